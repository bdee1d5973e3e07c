//! Values as Go prints them, for the history that BuildKit would have written.

/// `%q` of a list of strings.
pub(super) fn quoted_list(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(" "))
}

/// `%v` of a list of strings.
pub(super) fn list(words: &[String]) -> String {
    format!("[{}]", words.join(" "))
}

/// `%q` of a number, which Go takes for a character.
pub(super) fn quoted_number(number: u32) -> String {
    within('\'', char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut [0; 4]))
}

/// `%q` of a string.
pub(super) fn quoted(text: &str) -> String {
    within('"', text)
}

fn within(quote: char, text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            c if c == quote => out.extend(['\\', c]),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_prints_it() {
        assert_eq!(quoted_list(&["a".into(), "b\n<>\"\\é\u{1}".into()]), r#"["a" "b\n<>\"\\é\x01"]"#);
        assert_eq!(quoted_list(&[]), "[]");
        let numbers = [0, 4, 7, 39, 65].map(quoted_number);
        assert_eq!(numbers, [r"'\x00'", r"'\x04'", r"'\a'", r"'\''", "'A'"]);
        assert_eq!(list(&["/a".into(), "/b".into()]), "[/a /b]");
    }
}
