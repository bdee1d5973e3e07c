//! How the rest of an instruction is taken apart: keyword, flags, words, JSON. Everything is given as ranges of the
//! logical line, or as text with such a range.

use std::ops::Range;

/// A flag without its quotes, as `name=value` or `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawFlag {
    pub text: String,
    pub range: Range<usize>,
}

const BLANKS: [char; 5] = ['\t', '\u{b}', '\u{c}', '\r', ' '];

/// The first word, and what comes after it without blanks around it.
pub(super) fn keyword(text: &str, range: Range<usize>) -> (Range<usize>, Range<usize>) {
    let range = trim(text, range);
    let end = text[range.clone()].find(BLANKS).map_or(range.end, |i| range.start + i);
    (range.start..end, trim(text, end..range.end))
}

pub(super) fn trim(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..range.end.max(start).min(start + text[start..range.end.max(start)].trim_end().len())
}

/// Words that begin with `--`, up to the first that doesn't, or `--` itself; and the rest.
pub(super) fn flags(text: &str, range: Range<usize>, escape: char) -> (Vec<RawFlag>, Range<usize>) {
    let mut flags = Vec::new();
    let mut rest = trim(text, range);
    while text[rest.clone()].starts_with("--") {
        let (mut flag, mut quote, mut end) = (String::new(), None, rest.end);
        let mut chars = text[rest.clone()].char_indices();
        while let Some((at, c)) = chars.next() {
            match quote {
                None if c.is_whitespace() => {
                    end = rest.start + at;
                    break;
                }
                None if c == '\'' || c == '"' => quote = Some(c),
                Some(open) if c == open => quote = None,
                _ if c == escape => flag.extend(chars.next().map(|(_, c)| c)),
                _ => flag.push(c),
            }
        }
        let range = rest.start..end;
        rest = trim(text, end..rest.end);
        if flag == "--" {
            break;
        }
        flags.push(RawFlag { text: flag, range });
    }
    (flags, rest)
}

/// Split at blanks, whatever the quotes.
pub(super) fn split(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text[range.clone()].char_indices() {
        let at = range.start + at;
        if !BLANKS.contains(&c) {
            start.get_or_insert(at);
        } else if let Some(start) = start.take() {
            words.push(start..at);
        }
    }
    words.extend(start.map(|start| start..range.end));
    words
}

/// Split at blanks outside of quotes; quotes and escapes stay in the words.
pub(super) fn quoted(text: &str, range: Range<usize>, escape: char) -> Vec<(String, Range<usize>)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut start = None;
    let mut quote = None;
    let mut chars = text[range.clone()].char_indices();
    while let Some((at, c)) = chars.next() {
        let at = range.start + at;
        match quote {
            None if c.is_whitespace() => {
                if let Some(start) = start.take() {
                    words.push((std::mem::take(&mut word), start..at));
                }
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
        start.get_or_insert(at);
        if c == escape && quote != Some('\'') {
            // Nothing is left to escape at the end: the character is dropped.
            if let Some((_, escaped)) = chars.next() {
                word.push(c);
                word.push(escaped);
            }
            continue;
        }
        word.push(c);
    }
    if let Some(start) = start.filter(|_| !word.is_empty()) {
        words.push((word, start..range.end));
    }
    words
}

/// A JSON array: its strings, or what is wrong with it. None when it isn't one at all, so that it is something else.
pub(super) fn json(text: &str) -> Option<Result<Vec<String>, String>> {
    if !text.trim_start().starts_with('[') {
        return None;
    }
    let values: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let strings = values.into_iter().map(|value| match value {
        serde_json::Value::String(s) => Ok(s),
        other => Err(format!("`{other}` is not a string")),
    });
    Some(strings.collect())
}

/// The fields of one line of CSV: a field in double quotes may hold commas and doubled quotes.
pub(super) fn csv(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut chars = line.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if quoted => {
                quoted = false;
                if chars.peek().is_some_and(|c| *c != ',') {
                    return Err("there is text after a closing quote".into());
                }
            }
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    if quoted {
        return Err("a closing quote is missing".into());
    }
    fields.push(field);
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag_texts(text: &str) -> (Vec<String>, &str) {
        let (flags, rest) = flags(text, 0..text.len(), '\\');
        (flags.into_iter().map(|f| f.text).collect(), &text[rest])
    }

    #[test]
    fn flags_come_first_and_lose_their_quotes() {
        assert_eq!(flag_texts("--a=b --c='d e' f --g"), (vec!["--a=b".to_owned(), "--c=d e".to_owned()], "f --g"));
        assert_eq!(flag_texts("--a -- --b"), (vec!["--a".to_owned()], "--b"));
        assert_eq!(flag_texts("-x"), (vec![], "-x"));
        assert_eq!(flag_texts(r"--a=b\ c"), (vec!["--a=b c".to_owned()], ""));
    }

    #[test]
    fn words_keep_their_quotes() {
        let text = r#"a="b c" d=e\ f 'g "h' "" i\"#;
        let words: Vec<_> = quoted(text, 0..text.len(), '\\').into_iter().map(|w| w.0).collect();
        assert_eq!(words, [r#"a="b c""#, r"d=e\ f", r#"'g "h'"#, r#""""#, "i"]);
    }

    #[test]
    fn json_or_not() {
        assert_eq!(json(r#" ["a", "b"] "#), Some(Ok(vec!["a".into(), "b".into()])));
        assert_eq!(json("[]"), Some(Ok(vec![])));
        assert_eq!(json("[1]"), Some(Err("`1` is not a string".into())));
        assert_eq!(json("['a']"), None);
        assert_eq!(json("a"), None);
    }

    #[test]
    fn csv_fields() {
        assert_eq!(csv("a=b,c").unwrap(), ["a=b", "c"]);
        assert_eq!(csv(r#"a,"b,""c""""#).unwrap(), ["a", r#"b,"c""#]);
        assert!(csv("\"a").is_err());
        assert!(csv("\"a\"b").is_err());
    }

    #[test]
    fn trimming_what_is_blank() {
        assert_eq!(trim("a   b", 1..4), 4..4);
        assert_eq!(trim("  a ", 0..4), 2..3);
        assert_eq!(keyword("  RUN  x ", 0..9), (2..5, 7..8));
        assert_eq!(keyword("RUN", 0..3), (0..3, 3..3));
    }
}
