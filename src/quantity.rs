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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(bytes("2 kb"), Some(2048));
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("m"), None);
        assert_eq!(bytes("1x"), None);
    }
}
