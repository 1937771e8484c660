//! Numbers as people read them.

/// A number with three significant digits, thousands as `k` and millions as `M`.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".to_owned(),
        0.0 => "0".to_owned(),
        _ if size >= 999_500.0 => format!("{}M", digits(value / 1e6)),
        _ if size >= 9_995.0 => format!("{}k", digits(value / 1e3)),
        _ => digits(value),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.12345, "0.123"),
            (1.2345, "1.23"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1234"),
            (65_432.0, "65.4k"),
            (10_400_000.0, "10.4M"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
