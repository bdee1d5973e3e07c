//! The fields of a header block, and of the records that extend it.

const BLOCK: usize = super::BLOCK;

/// Whether these bytes begin with a header block (or with the zeros at an archive's end).
pub(in crate::image::layer) fn is_header(bytes: &[u8]) -> bool {
    bytes.get(..BLOCK).is_some_and(checksum_holds)
}

pub(super) fn checksum_holds(block: &[u8]) -> bool {
    let Some(stated) = number(&block[148..156]) else { return false };
    let (mut unsigned, mut signed) = (0i64, 0i64);
    for (i, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&i) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(byte as i8);
    }
    stated == unsigned || stated == signed
}

/// Octal text, or GNU's big-endian binary numbers. None when it is neither.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        // 0xff… is a negative number in two's complement, 0x80 the mark alone.
        let mut value: i128 = if negative { -1 } else { 0 };
        for (i, byte) in field.iter().enumerate() {
            let byte = if i == 0 && !negative { byte & 0x7f } else { *byte };
            value = value.checked_shl(8)? | i128::from(byte);
            if value > i128::from(i64::MAX) || value < i128::from(i64::MIN) {
                return None;
            }
        }
        return i64::try_from(value).ok();
    }
    let text = field.split(|b| *b == 0).next().unwrap_or_default().trim_ascii();
    let mut value: i64 = 0;
    for byte in text {
        if !matches!(byte, b'0'..=b'7') {
            return None;
        }
        value = value.checked_mul(8)?.checked_add(i64::from(byte - b'0'))?;
    }
    Some(value)
}

pub(super) fn text(field: &[u8]) -> Vec<u8> {
    field.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// `-1.5` is half a second after -2. Times beyond what a number can hold are as far as it goes.
pub(super) fn pax_time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let seconds = match whole.parse::<i64>() {
        Ok(seconds) => seconds,
        Err(e) => match e.kind() {
            std::num::IntErrorKind::PosOverflow => i64::MAX,
            std::num::IntErrorKind::NegOverflow => i64::MIN,
            _ => return None,
        },
    };
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if negative && nanoseconds > 0 {
        return Some((seconds.saturating_sub(1), 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

/// The name field, with ustar's (or star's) prefix before it.
pub(super) fn header_path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    if &block[257..263] != b"ustar\0" {
        return name;
    }
    let prefix = if &block[508..512] == b"tar\0" { text(&block[345..476]) } else { text(&block[345..500]) };
    if prefix.is_empty() { name } else { [prefix.as_slice(), b"/", name.as_slice()].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_their_forms() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Some(258));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(number(b"77777777777777777777777777"), None);
    }

    #[test]
    fn times_before_1970_and_with_fractions() {
        assert_eq!(pax_time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(pax_time(b"-1.5"), Some((-2, 500_000_000)));
        assert_eq!(pax_time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(pax_time(b"-3"), Some((-3, 0)));
        assert_eq!(pax_time(b"99999999999999999999"), Some((i64::MAX, 0)));
        assert_eq!(pax_time(b"noon"), None);
    }
}
