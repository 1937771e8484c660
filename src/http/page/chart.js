// Time charts on a canvas: up to five minutes, stacked areas or lines, a cursor for pointer and keyboard.

const WINDOW_S = 300, FIRST_WINDOW_S = 60, GAP_S = 4;
const MARGIN = { left: 52, right: 8, top: 10, bottom: 20 };

/** The smallest round number of steps that holds `value`: [step, top]. */
function axis(value, steps) {
  const raw = Math.max(value, 1e-9) / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.9999);
  return [step, step * Math.ceil(value / step - 1e-9)];
}

/** Marks from zero to above `highest`: where the lines are, and where a value is between 0 and 1. */
function linearAxis(highest) {
  const [step, top] = axis(highest, 4);
  const marks = Array.from({ length: Math.round(top / step) + 1 }, (_, index) => index * step);
  return { marks, place: (value) => value / top };
}

/** Marks at powers of ten, with twos and fives between them where there is room; for values over several decades. */
function logarithmicAxis(lowest, highest) {
  const low = 10 ** Math.floor(Math.log10(lowest) + 1e-9);
  const decade = 10 ** Math.floor(Math.log10(highest) + 1e-9);
  const top = Math.max(10 * low, [1, 2, 5, 10].map((factor) => factor * decade).find((size) => size >= highest * 0.9999));
  const decades = Math.log10(top / low);
  const factors = decades > 3 ? [1] : decades > 1.5 ? [1, 3] : [1, 2, 5];
  const marks = [];
  for (let power = low; power <= top * 1.001; power *= 10) marks.push(...factors.map((factor) => factor * power));
  return { marks: marks.filter((mark) => mark <= top * 1.001), place: (value) => Math.max(0, Math.log10(Math.max(value, low) / low) / decades) };
}

/** A label of an axis: no zeros behind the point. */
const tick = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

class Chart {
  /** `series(samples)` gives [{name, color, values}], one value a sample, null where there is none. */
  constructor(parent, { title, unit, format, series, stacked, logarithmic, least, empty }) {
    Object.assign(this, { title, format, series, stacked, logarithmic, least, empty, samples: [], cursor: null });
    this.legend = el("div", { class: "legend" });
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": title });
    parent.append(el("figure", { class: "panel chart" },
      el("figcaption", {}, el("h2", { text: title }, el("span", { class: "unit", text: unit })), this.legend), this.canvas));
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.moveTo(null));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  update(samples) {
    if (this.cursor !== null) {
      const at = this.samples[this.cursor]?.at;
      this.cursor = samples.findIndex((sample) => sample.at === at);
      if (this.cursor < 0) this.cursor = null;
    }
    this.samples = samples;
    this.drawn = this.series(samples);
    this.draw();
  }

  key(event) {
    const last = this.samples.length - 1;
    const from = this.cursor ?? last + 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 30, PageDown: from + 30, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.moveTo(null);
    else if (to !== undefined && last >= 0) { event.preventDefault(); this.moveTo(Math.min(last, Math.max(0, to)), true); }
  }

  point(x) {
    const now = this.samples.at(-1)?.at;
    if (now === undefined) return;
    const wanted = now - this.window() * (1 - (x - MARGIN.left) / this.plotWidth());
    let best = 0;
    this.samples.forEach((sample, index) => {
      if (Math.abs(sample.at - wanted) < Math.abs(this.samples[best].at - wanted)) best = index;
    });
    this.moveTo(best);
  }

  moveTo(cursor, aloud) {
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    this.draw();
    if (aloud) setText(byId("said"), `${this.title}, ${this.legend.textContent}`);
  }

  /** Seconds shown: as many as there are samples for, within bounds. */
  window() {
    const [first, last] = [this.samples[0]?.at ?? 0, this.samples.at(-1)?.at ?? 0];
    return Math.min(WINDOW_S, Math.max(FIRST_WINDOW_S, last - first));
  }

  plotWidth() { return Math.max(10, this.canvas.clientWidth - MARGIN.left - MARGIN.right); }

  /** Bottom and top of every point: stacked on the series before, or from zero. */
  bands() {
    const floor = this.samples.map(() => 0);
    return (this.drawn ?? []).map((one) => one.values.map((value, index) => {
      if (value === null || value === undefined) return null;
      const low = this.stacked ? floor[index] : 0;
      if (this.stacked) floor[index] += value;
      return [low, low + value];
    }));
  }

  draw() {
    const { canvas } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const bands = this.bands();
    const values = bands.flat().flatMap((point) => (point && point[1] > 0 ? [point[1]] : []));
    const highest = values.reduce((most, value) => Math.max(most, value), this.least ?? 1);
    const lowest = values.reduce((least, value) => Math.min(least, value), highest);
    const { marks, place } = this.logarithmic ? logarithmicAxis(lowest, highest) : linearAxis(highest);
    const now = this.samples.at(-1)?.at ?? Date.now() / 1000;
    const bottomY = height - MARGIN.bottom, plotWidth = this.plotWidth();
    const seconds = this.window();
    const x = (at) => MARGIN.left + plotWidth * (1 - (now - at) / seconds);
    const y = (value) => bottomY - (bottomY - MARGIN.top) * place(value);

    this.drawGrid(pen, { color, marks, now, seconds, x, y, width, bottomY, font: style.getPropertyValue("--sans") });
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, 0, plotWidth + MARGIN.right, height);
    pen.clip();
    // From the top of the stack down, so that a series of zeros does not hide the one below it.
    for (let index = bands.length - 1; index >= 0; index -= 1) {
      if (this.drawn[index].values.some((value) => value > 0)) this.drawBand(pen, bands[index], color(this.drawn[index].color), x, y);
    }
    pen.restore();
    if (!values.length) {
      pen.fillStyle = color("faint");
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(this.samples.length < 2 ? "collecting…" : this.empty, MARGIN.left + plotWidth / 2, (bottomY + MARGIN.top) / 2);
    }
    this.drawCursor(pen, { bands, color, x, y, bottomY });
    this.drawLegend(color);
  }

  drawGrid(pen, { color, marks, now, seconds, x, y, width, bottomY, font }) {
    pen.font = `11px ${font}`;
    pen.lineWidth = 1;
    pen.strokeStyle = color("line");
    pen.fillStyle = color("faint");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of marks) {
      const line = Math.round(y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(MARGIN.left, line);
      pen.lineTo(width - MARGIN.right, line);
      pen.stroke();
      pen.fillText(tick(this.format(value)), MARGIN.left - 8, line);
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    const every = seconds > 150 ? 60 : 15;
    for (let at = Math.ceil((now - seconds) / every) * every; at <= now; at += every) {
      const place = x(at);
      const label = clock(at * 1000).slice(0, every < 60 ? 8 : 5);
      if (place > MARGIN.left + 24 && place < width - 28) pen.fillText(label, place, bottomY + 15);
    }
  }

  /** One series: an area under a line, broken where samples are missing. */
  drawBand(pen, band, color, x, y) {
    let piece = [];
    const finish = () => {
      if (piece.length > 1) {
        pen.beginPath();
        piece.forEach(([at, , high], index) => (index ? pen.lineTo(x(at), y(high)) : pen.moveTo(x(at), y(high))));
        pen.lineWidth = 1.5;
        pen.lineJoin = "round";
        pen.strokeStyle = color;
        pen.stroke();
        piece.slice().reverse().forEach(([at, low]) => pen.lineTo(x(at), y(low)));
        pen.closePath();
        pen.globalAlpha = this.stacked ? 0.2 : 0.07;
        pen.fillStyle = color;
        pen.fill();
        pen.globalAlpha = 1;
      }
      piece = [];
    };
    band.forEach((point, index) => {
      const at = this.samples[index].at;
      if (!point || (piece.length && at - piece.at(-1)[0] > GAP_S)) finish();
      if (point) piece.push([at, point[0], point[1]]);
    });
    finish();
  }

  drawCursor(pen, { bands, color, x, y, bottomY }) {
    if (this.cursor === null || !this.samples[this.cursor]) return;
    const place = x(this.samples[this.cursor].at);
    pen.strokeStyle = color("line-strong");
    pen.beginPath();
    pen.moveTo(Math.round(place) + 0.5, MARGIN.top);
    pen.lineTo(Math.round(place) + 0.5, bottomY);
    pen.stroke();
    bands.forEach((band, index) => {
      const point = band[this.cursor];
      if (!point || (this.stacked && point[0] === point[1])) return;
      pen.beginPath();
      pen.arc(place, y(point[1]), 3, 0, 7);
      pen.fillStyle = color(this.drawn[index].color);
      pen.fill();
      pen.strokeStyle = color("panel");
      pen.stroke();
    });
  }

  /** The legend tells the values under the cursor, the newest without one. */
  drawLegend(color) {
    const index = this.cursor ?? this.samples.length - 1;
    const entries = (this.drawn ?? []).map(({ name, color: tone, values }) => {
      const swatch = el("i");
      swatch.style.background = color(tone);
      return el("span", {}, swatch, `${name} `, el("b", { text: values[index] === null || values[index] === undefined ? "–" : this.format(values[index]) }));
    });
    if (this.cursor !== null && this.samples[index]) entries.unshift(el("span", { class: "time", text: clock(this.samples[index].at * 1000) }));
    this.legend.replaceChildren(...entries);
    this.canvas.setAttribute("aria-label", `${this.title}, the last five minutes. Now: ${this.legend.textContent || "no data"}`);
  }
}
