//! Sizes, times and counts as people write them.

use std::time::Duration;

pub use crate::quantity::shown as size;

/// How long something took: `12ms`, `0.4s`, `41s`, `1m03s`, `2h05m`.
pub fn duration(time: Duration) -> String {
    if time < Duration::from_millis(100) {
        return format!("{}ms", time.as_millis());
    }
    let tenths = (time.as_millis() + 50) / 100;
    if tenths < 100 { format!("{}.{}s", tenths / 10, tenths % 10) } else { whole((tenths + 5) / 10) }
}

/// Seconds to the millisecond, as files for other programs have them.
pub fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

/// The same of seconds, as a record has them.
pub fn of_seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// How long something has been going on: whole seconds, so that the text keeps still.
pub fn elapsed(time: Duration) -> String {
    whole(u128::from(time.as_secs()))
}

fn whole(seconds: u128) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 image`, `3 images`.
pub fn count(n: usize, singular: &str) -> String {
    if n == 1 { format!("1 {singular}") } else { format!("{n} {singular}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            (0, "0ms"),
            (99, "99ms"),
            (100, "0.1s"),
            (449, "0.4s"),
            (9_940, "9.9s"),
            (9_960, "10s"),
            (41_200, "41s"),
            (59_600, "1m00s"),
            (63_000, "1m03s"),
            (7_500_000, "2h05m"),
        ];
        for (millis, text) in cases {
            assert_eq!(duration(Duration::from_millis(millis)), text, "{millis}");
        }
        assert_eq!(elapsed(Duration::from_millis(1_999)), "1s");
    }

    #[test]
    fn counts() {
        assert_eq!(count(1, "problem"), "1 problem");
        assert_eq!(count(0, "problem"), "0 problems");
    }
}
