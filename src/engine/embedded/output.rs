//! Output of a step: bytes to lines, and values of secrets out of them.

/// A line longer than this comes in pieces.
const LONGEST: usize = 8 * 1024;

/// Cuts a stream into lines. What is not UTF-8 is replaced.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(String)) {
        self.pending.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|b| *b == b'\n') {
            line(text(&self.pending[start..start + length]));
            start += length + 1;
        }
        while self.pending.len() - start > LONGEST {
            let mut end = start + LONGEST;
            // Not within a character: at most three bytes of it follow its first one.
            while end > start + LONGEST - 4 && self.pending[end] & 0xc0 == 0x80 {
                end -= 1;
            }
            line(text(&self.pending[start..end]));
            start = end;
        }
        self.pending.drain(..start);
    }

    /// What came after the last line end.
    pub fn finish(&mut self, mut line: impl FnMut(String)) {
        if !self.pending.is_empty() {
            line(text(&std::mem::take(&mut self.pending)));
        }
    }
}

/// Of a line that a program drew over, the last state is shown.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let shown = line.rsplit(|b| *b == b'\r').find(|part| !part.is_empty()).unwrap_or_default();
    String::from_utf8_lossy(shown).into_owned()
}

/// Keeps values of secrets out of what is shown and logged, should a step print them.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that no rest of one is left by a shorter one within it.
    values: Vec<String>,
}

impl Redactor {
    /// Shorter values than this would mangle everything and hide nothing.
    const SHORTEST: usize = 4;

    pub fn add(&mut self, secret: &[u8]) {
        let text = String::from_utf8_lossy(secret);
        let lines = text.lines().map(str::trim).filter(|l| l.len() >= Self::SHORTEST);
        self.values.extend(lines.map(str::to_owned));
        self.values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        self.values.dedup();
    }

    pub fn redact(&self, line: String) -> String {
        if self.values.is_empty() {
            return line;
        }
        // What shows the line leaves escapes out: a value must not come together only then.
        let plain = without_escapes(&line);
        let hidden = self.hide(plain.clone());
        if hidden == plain { line } else { hidden }
    }

    fn hide(&self, line: String) -> String {
        self.values.iter().fold(line, |line, value| match line.contains(value.as_str()) {
            true => line.replace(value.as_str(), "***"),
            false => line,
        })
    }
}

/// Without escape sequences (ECMA-48) and other control characters.
pub fn without_escapes(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // CSI: parameters, then one final character.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // OSC: up to BEL or ST.
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            c if c.is_control() && c != '\t' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut out = Vec::new();
        let mut lines = Lines::default();
        for chunk in chunks {
            lines.push(chunk, |line| out.push(line));
        }
        lines.finish(|line| out.push(line));
        out
    }

    #[test]
    fn lines_are_cut_where_they_end() {
        assert_eq!(lines(&[b"a\nb", b"c\r\n\n", b"d"]), ["a", "bc", "", "d"]);
        assert_eq!(lines(&[b"10%\r50%\r100%\r\n", b"\xff!\n"]), ["100%", "\u{fffd}!"]);
    }

    #[test]
    fn long_lines_are_split_between_characters() {
        let long = "x".repeat(LONGEST - 1) + "é" + "end";
        let out = lines(&[long.as_bytes()]);
        assert_eq!(out.concat(), long);
        assert_eq!(out.len(), 2);
        // Nothing but continuation bytes must not stop it.
        assert_eq!(lines(&[&vec![0x80; 3 * LONGEST]]).len(), 4);
    }

    #[test]
    fn secrets_do_not_come_through() {
        let mut redactor = Redactor::default();
        redactor.add(b"hunter2\n");
        redactor.add(b"hunter2-and-more");
        redactor.add(b"no");
        assert_eq!(redactor.redact("hun\u{1b}[0mter2 \u{1b}[1mbold".into()), "*** bold");
        assert_eq!(redactor.redact("hun\u{1b}]0;title\u{7}ter\u{1}2".into()), "***");
        assert_eq!(redactor.redact("\u{1b}[1mbold".into()), "\u{1b}[1mbold");
        assert_eq!(redactor.redact("x=hunter2-and-more, hunter2, no".into()), "x=***, ***, no");
    }
}
