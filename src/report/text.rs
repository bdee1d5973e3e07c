//! Text as a terminal shows it: display width, truncation, padding, and what may not reach a terminal at all.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that `text` takes. Escape sequences take none, control characters neither.
pub fn width(text: &str) -> usize {
    if text.contains('\x1b') { strip(text).width() } else { printable(text) }
}

fn printable(text: &str) -> usize {
    if text.is_ascii() { text.bytes().filter(|b| (0x20..0x7f).contains(b)).count() } else { text.width() }
}

/// The longest beginning of plain `text` (no escape sequences) that fits into `columns`, with `ellipsis` at its end
/// where something was cut; without it where not even that fits.
pub fn truncate(text: &str, columns: usize, ellipsis: &str) -> String {
    let (end, mark) = fit(text, columns, ellipsis);
    format!("{}{mark}", &text[..end])
}

/// How many bytes of `text` to keep, and what to put behind them, to stay within `columns`.
pub fn fit<'a>(text: &str, columns: usize, ellipsis: &'a str) -> (usize, &'a str) {
    if width(text) <= columns {
        return (text.len(), "");
    }
    let mark = if width(ellipsis) <= columns { ellipsis } else { "" };
    let room = columns - width(mark);
    // The width of a string is not always the sum of its characters' (emoji, combining marks), so the sum only finds
    // where to start looking.
    let mut used = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        end = at + c.len_utf8();
    }
    while end > 0 && width(&text[..end]) > room {
        end = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
    }
    (text[..end].trim_end().len(), mark)
}

/// Cut in the middle, where how a text ends says as much as how it begins.
pub fn shorten(text: &str, columns: usize, mark: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(mark)) / 3;
    let mut tails = text.char_indices().map(|(at, _)| &text[at..]);
    let tail = tails.find(|tail| width(tail) <= room).unwrap_or_default();
    format!("{}{tail}", truncate(text, columns - width(tail), mark))
}

/// Adds blanks up to `columns`; `text` may have colours.
pub fn pad(text: &str, columns: usize) -> String {
    let mut padded = text.to_owned();
    padded.extend(std::iter::repeat_n(' ', columns.saturating_sub(width(text))));
    padded
}

pub fn pad_left(text: &str, columns: usize) -> String {
    let mut padded = " ".repeat(columns.saturating_sub(width(text)));
    padded.push_str(text);
    padded
}

/// One line of output as it would stand on a terminal in the end: no colours or other escape sequences, no control
/// characters, tabs as blanks, and of a line that was drawn over (`\r`) only what was drawn last.
pub fn clean(line: &str) -> String {
    if line.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return line.to_owned();
    }
    let text = strip(line);
    let last = text.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default();
    let mut cleaned = String::with_capacity(last.len());
    for c in last.chars() {
        match c {
            '\t' => {
                let to_stop = 8 - width(&cleaned) % 8;
                cleaned.extend(std::iter::repeat_n(' ', to_stop));
            }
            // Overwriting by backspace is how man pages make text bold.
            '\x08' => {
                cleaned.pop();
            }
            c if c.is_control() || is_invisible(c) => {}
            c => cleaned.push(c),
        }
    }
    cleaned.truncate(cleaned.trim_end().len());
    cleaned
}

/// A message, which may have several lines: each of them [`clean`].
pub fn clean_lines(message: &str) -> Vec<String> {
    message.lines().map(clean).collect()
}

/// The message on one line, for places that have one.
pub fn one_line(message: &str) -> String {
    let lines = clean_lines(message);
    lines.iter().map(|l| l.trim()).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Characters that turn the direction of what follows or stand for nothing: they could make a line read as another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Without escape sequences (ECMA-48): CSI up to its final byte, strings such as OSC up to their terminator, and
/// short ones.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => {
                while let Some(&c) = chars.peek() {
                    // Anything outside of parameters and the final byte breaks the sequence off; it is kept.
                    if !(' '..='~').contains(&c) {
                        break;
                    }
                    chars.next();
                    if ('@'..='~').contains(&c) {
                        break;
                    }
                }
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                while let Some(c) = chars.next() {
                    if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            // Intermediate bytes, then a final one: `ESC ( B` selects a character set.
            Some(' '..='/') => {
                while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
                chars.next();
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("keystone"), 8);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(width("\x1b[1;31mred\x1b[0m"), 3);
    }

    #[test]
    fn truncation_marks_what_it_cut() {
        assert_eq!(truncate("keystone", 8, "…"), "keystone");
        assert_eq!(truncate("keystone", 5, "…"), "keys…");
        assert_eq!(truncate("keystone", 5, "..."), "ke...");
        assert_eq!(truncate("keystone", 2, "..."), "ke");
        assert_eq!(truncate("日本語", 4, "…"), "日…");
        assert_eq!(truncate("keystone", 0, "…"), "");
    }

    #[test]
    fn what_is_cut_in_the_middle_keeps_its_end() {
        assert_eq!(shorten("short", 8, "…"), "short");
        assert_eq!(
            shorten("`Install packages: lvm2 multipath-tools` changed", 28, "…"),
            "`Install packages:…` changed"
        );
        assert_eq!(shorten("日本語日本語", 7, "…"), "日本…語");
        assert_eq!(shorten("keystone", 2, "…"), "k…");
        assert_eq!(shorten("keystone", 0, "…"), "");
    }

    #[test]
    fn padding_goes_by_display_width() {
        assert_eq!(pad("日本", 6), "日本  ");
        assert_eq!(pad_left("\x1b[2m1\x1b[0m", 3), "  \x1b[2m1\x1b[0m");
        assert_eq!(pad("long", 2), "long");
    }

    #[test]
    fn output_is_what_would_stand_there_in_the_end() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(clean("\x1b[32mgreen\x1b[0m and \x1b]8;;http://x\x1b\\a link\x1b]8;;\x07"), "green and a link");
        assert_eq!(clean("10%\r50%\r100%"), "100%");
        assert_eq!(clean("100%\r"), "100%");
        assert_eq!(clean("a\tb"), "a       b");
        assert_eq!(clean("bell\x07 nul\0"), "bell nul");
        assert_eq!(clean("N\x08NA\x08A"), "NA");
        assert_eq!(clean("\x1b(Btext\x1b[K"), "text");
        assert_eq!(clean("a\u{202e}b"), "ab");
        assert_eq!(clean("cut off \x1b[31"), "cut off");
    }

    proptest! {
        #[test]
        fn truncation_never_exceeds_the_width(text in "\\PC{0,60}", columns in 0usize..40, ascii: bool) {
            let cut = truncate(&text, columns, if ascii { "..." } else { "…" });
            prop_assert!(width(&cut) <= columns, "{cut:?} takes {} of {columns}", width(&cut));
        }

        #[test]
        fn clean_text_has_no_control_characters(text in "[\\x00-\\x7f\\x1b\\x1b\r\t日é]{0,60}") {
            let cleaned = clean(&text);
            prop_assert!(!cleaned.chars().any(char::is_control), "{cleaned:?}");
            prop_assert_eq!(clean(&cleaned), cleaned.clone());
        }
    }
}
