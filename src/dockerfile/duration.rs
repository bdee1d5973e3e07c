//! Durations as Go writes and reads them: `1m30s`.

const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// Nanoseconds.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        total += number * factor;
        rest = &rest[end..];
    }
    // Beyond this a 64-bit number of nanoseconds overflows.
    (total < 9.2e18).then_some(if negative { -total } else { total } as i64)
}

pub(crate) fn format(nanoseconds: i64) -> String {
    let fraction = |value: i64, unit: i64, name: &str| {
        let text = format!("{}.{:0width$}", value / unit, value % unit, width = unit.ilog10() as usize);
        format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match nanoseconds {
        0 => "0s".into(),
        n if n < 0 => format!("-{}", format(n.saturating_neg())),
        n if n < 1_000 => format!("{n}ns"),
        n if n < 1_000_000 => fraction(n, 1_000, "µs"),
        n if n < 1_000_000_000 => fraction(n, 1_000_000, "ms"),
        n => {
            let (minutes, rest) = (n / 60_000_000_000, n % 60_000_000_000);
            let seconds = fraction(rest, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (text, nanoseconds, normal) in [
            ("30s", 30_000_000_000, "30s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("250ms", 250_000_000, "250ms"),
            ("1m0.5s", 60_500_000_000, "1m0.5s"),
            ("0", 0, "0s"),
            ("-5s", -5_000_000_000, "-5s"),
        ] {
            assert_eq!(parse(text), Some(nanoseconds), "{text}");
            assert_eq!(format(nanoseconds), normal, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in ["", "5", "s", "1d", "1 s", "-", "1..5s", "99999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
