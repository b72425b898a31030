//! Quantities as people read them. Files hold plain numbers.

/// Three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A time in nanoseconds, in the unit that suits it: what rounds to 1000 of a unit is one of the
/// next.
pub fn time_ns(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds.abs() {
        size if size < 999.5 => (nanoseconds, "ns"),
        size if size < 999.5e3 => (nanoseconds / 1e3, "us"),
        size if size < 999.5e6 => (nanoseconds / 1e6, "ms"),
        size if size < 120e9 => (nanoseconds / 1e9, "s"),
        _ => (nanoseconds / 60e9, "min"),
    };
    format!("{} {unit}", short(value))
}

/// The day of a time in seconds since 1970, in UTC: `2026-11-21`.
pub fn date(unix_s: f64) -> String {
    // The calendar repeats every 400 years of 146 097 days; years begin in March here, so that a
    // leap day is the last of its year.
    let days = (unix_s / 86_400.0).floor() as i64 + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
}

/// A number of bytes, in powers of 1024.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{} {}", short(value), UNITS[unit])
    }
}

/// Three significant digits at least, and no more than make sense: `1.2e-3`, `1.23`, `12.3`,
/// `1234`.
pub fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-4 => format!("{value:.1e}"),
        size if size < 0.1 => {
            // Two digits after the zeros.
            let zeros = (-size.log10()).floor() as usize;
            format!("{value:.digits$}", digits = zeros + 2)
        }
        _ => short(value),
    }
}

/// A number with a prefix of the SI: `1.23 M`.
pub fn scaled(value: f64) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut scaled = value;
    let mut prefix = 0;
    while scaled.abs() >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    format!("{} {}", short(scaled), PREFIXES[prefix])
        .trim_end()
        .to_owned()
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0.0, "1970-01-01"),
            (951_782_399.0, "2000-02-28"),
            (951_782_400.0, "2000-02-29"),
            (951_868_800.0, "2000-03-01"),
            (1_795_305_599.0, "2026-11-21"),
            (4_102_444_800.0, "2100-01-01"),
        ] {
            assert_eq!(date(unix_s), expected);
        }
    }

    #[test]
    fn units_suit_their_values() {
        assert_eq!(time_ns(12.34), "12.3 ns");
        assert_eq!(time_ns(1_234.0), "1.23 us");
        assert_eq!(time_ns(123_456_789.0), "123 ms");
        assert_eq!(time_ns(600e9), "10.0 min");
        // The mean of 1000 ns by logarithms is a little less.
        assert_eq!(time_ns(1000f64.ln().exp()), "1.00 us");
        assert_eq!(time_ns(999.4), "999 ns");
        assert_eq!(time_ns(9_999.0), "10.0 us");
        assert_eq!(time_ns(999_960_000.0), "1.00 s");
        assert_eq!(scaled(999.9), "1.00 k");
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1 << 40), "1.00 TiB");
        assert_eq!(percent(0.123), "12.3 %");
        assert_eq!(significant(0.5), "0.50");
        assert_eq!(significant(0.00123), "0.0012");
        assert_eq!(significant(0.0000123), "1.2e-5");
        assert_eq!(significant(0.0123), "0.012");
        assert_eq!(scaled(1_234_567.0), "1.23 M");
        assert_eq!(scaled(12.0), "12.0");
    }
}
