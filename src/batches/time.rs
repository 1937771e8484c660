//! Moments as the batch API writes them.

/// Microseconds since the epoch as `2026-10-30T12:00:00.123Z`.
#[must_use]
pub fn iso_millis(ts_us: i64) -> String {
    let millis = ts_us.max(0) / 1000;
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a day since the epoch. Years are counted from March, so that the leap day is their last,
/// and in cycles of 400, which all have the same length.
fn civil(days: i64) -> (i64, i64, i64) {
    const CYCLE_DAYS: i64 = 146_097;
    let days = days + 719_468;
    let (cycle, of_cycle) = (days / CYCLE_DAYS, days % CYCLE_DAYS);
    let year_of_cycle = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (cycle * 400 + year_of_cycle + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_795_979_200, "2026-11-29T19:06:40.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_millis(seconds * 1_000_000), text);
        }
        assert_eq!(iso_millis(1_793_361_600_123_999), "2026-10-30T12:00:00.123Z");
    }
}
