//! Small plots as SVG text: lines over two axes, and bars.

use std::fmt::Write;

/// One axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub label: String,
    pub logarithmic: bool,
    /// Values with a grid line and the text beside it; derived from the data when empty.
    pub ticks: Vec<(f64, String)>,
}

/// One line of a plot.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Colours that are told apart by most eyes, in light and dark.
const COLOURS: [&str; 8] = ["#2a6fdb", "#e0652b", "#2f9e62", "#9456c9", "#c8951a", "#d0417e", "#3aa3a3", "#7a7a7a"];

/// The colour of the `at`-th series.
pub(super) fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let ticks = axis.ticks.iter().map(|(value, _)| *value);
        let usable = |value: &f64| value.is_finite() && (!axis.logarithmic || *value > 0.0);
        let (mut low, mut high) = values
            .chain(ticks)
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if axis.logarithmic && axis.ticks.is_empty() {
            (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
        } else if !axis.logarithmic && axis.ticks.is_empty() {
            low = low.min(0.0);
        }
        if low >= high {
            high = low + low.abs().max(1.0);
        }
        Self { low, high, logarithmic: axis.logarithmic, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self, axis: &Axis) -> Vec<(f64, String)> {
        if !axis.ticks.is_empty() {
            return axis.ticks.clone();
        }
        let values: Vec<f64> = if self.logarithmic {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            (low..=high).map(|power| 10f64.powi(power)).collect()
        } else {
            (0..=4).map(|at| self.low + (self.high - self.low) * f64::from(at) / 4.0).collect()
        };
        values.into_iter().map(|value| (value, super::format::number(value))).collect()
    }
}

/// Lines over two axes, with a legend.
pub(super) fn lines(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|one| one.points.iter());
    let across = Scale::new(x, points().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let up = Scale::new(y, points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut out = open(title);
    for (value, text) in across.ticks(x) {
        let at = across.place(value);
        let (top, bottom, below) = (TOP, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 15.0);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            escape(&text)
        );
    }
    for (value, text) in up.ticks(y) {
        let at = up.place(value);
        let (left, right, beside) = (LEFT, WIDTH - RIGHT, LEFT - 6.0);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{beside}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            escape(&text)
        );
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"4\" y=\"{}\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escape(&x.label),
        TOP - 8.0,
        escape(&y.label)
    );
    for (at, one) in series.iter().enumerate() {
        let path: Vec<String> =
            one.points.iter().map(|(px, py)| format!("{:.1},{:.1}", across.place(*px), up.place(*py))).collect();
        let colour = colour(at);
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for point in &path {
            if let Some((px, py)) = point.split_once(',') {
                let _ = write!(out, "<circle cx=\"{px}\" cy=\"{py}\" r=\"2.6\" fill=\"{colour}\"/>");
            }
        }
        legend(&mut out, at, &one.name);
    }
    out.push_str("</svg>");
    out
}

/// One horizontal bar a value, longest scale logarithmic when values differ by more than a hundred.
pub(super) fn bars(title: &str, unit: &str, values: &[(String, f64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let least = values.iter().map(|(_, value)| *value).filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let logarithmic = most / least > 100.0;
    let height = TOP + 30.0 * values.len() as f64 + 24.0;
    let mut out = open_sized(title, height);
    let (left, right) = (150.0, WIDTH - 90.0);
    for (at, (name, value)) in values.iter().enumerate() {
        let part = match logarithmic {
            true => (value / least * 2.0).ln() / (most / least * 2.0).ln(),
            false => value / most,
        };
        let length = (part.clamp(0.0, 1.0) * (right - left)).max(1.0);
        let top = TOP + 30.0 * at as f64;
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{left}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"18\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 6.0,
            top + 15.0,
            escape(name),
            top + 2.0,
            colour(at),
            left + length + 6.0,
            top + 15.0,
            super::format::number(*value)
        );
    }
    let scale = if logarithmic { ", logarithmic" } else { "" };
    let _ = write!(out, "<text x=\"{left}\" y=\"{:.1}\">{}{scale}</text></svg>", height - 8.0, escape(unit));
    out
}

fn legend(out: &mut String, at: usize, name: &str) {
    let left = LEFT + 10.0;
    let top = TOP + 8.0 + 16.0 * at as f64;
    let _ = write!(
        out,
        "<rect x=\"{left}\" y=\"{top:.1}\" width=\"12\" height=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"{:.1}\">{}</text>",
        colour(at),
        left + 18.0,
        top + 6.0,
        escape(name)
    );
}

fn open(title: &str) -> String {
    open_sized(title, HEIGHT)
}

fn open_sized(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">\
         <text class=\"title\" x=\"4\" y=\"14\">{0}</text>",
        escape(title)
    )
}

/// Text as it may stand in markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_place_their_ends() {
        let axis = Axis { label: String::new(), logarithmic: true, ticks: Vec::new() };
        let scale = Scale::new(&axis, [2.0, 300.0].into_iter(), 0.0, 300.0);
        assert_eq!((scale.low, scale.high), (1.0, 1000.0));
        assert!((scale.place(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(scale.ticks(&axis).len(), 4);
        let linear = Axis { logarithmic: false, ..axis };
        let scale = Scale::new(&linear, std::iter::empty(), 10.0, 20.0);
        assert!(scale.place(f64::MAX) <= 20.0);
    }

    #[test]
    fn text_is_escaped() {
        let plot = bars("a<b", "x & y", &[("\"q\"".into(), 1.0), ("r".into(), 1e6)]);
        assert!(plot.contains("a&lt;b") && plot.contains("x &amp; y") && plot.contains("&quot;q&quot;"));
        assert!(!plot.contains("a<b"));
    }
}
