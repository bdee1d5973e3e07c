//! Amounts as people write them.

/// `64m`, `1.5 GiB`, `100`: units are powers of 1024 whether there is an `i` or not.
pub fn bytes(value: &str) -> Option<u64> {
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let number: f64 = value[..digits].parse().ok()?;
    let unit = value[digits..].trim_start_matches(' ').to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let power = match unit {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let bytes = number * 1024f64.powi(power);
    (bytes.is_finite() && bytes < 9e18).then_some(bytes as u64)
}

/// `812 B`, `1.2 GB`: decimal units, as Docker and registries count.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // 999.95 would be shown as 1000.0.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if value < 9.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read() {
        assert_eq!(bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(bytes("2 kb"), Some(2048));
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("m"), None);
        assert_eq!(bytes("1x"), None);
    }

    #[test]
    fn written() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9_949, "9.9 kB"),
            (9_950, "10 kB"),
            (212_400_000, "212 MB"),
            (999_600_000, "1.0 GB"),
            (1_240_000_000, "1.2 GB"),
            (u64::MAX, "18 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(shown(bytes), text, "{bytes}");
        }
    }
}
