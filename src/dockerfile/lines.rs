//! Physical lines to logical ones: directives, comments, continuations and heredocs. A logical line remembers where
//! each of its pieces came from, so that everything cut out of it later still has a place in the file.

use std::ops::Range;
use std::sync::Arc;

use super::ast::{Directives, Heredoc, Span, Spanned};
use super::expand::Expander;
use super::words;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};

#[derive(Debug)]
pub(super) struct Lines {
    pub directives: Directives,
    pub lines: Vec<Logical>,
}

/// One instruction: its lines joined.
#[derive(Debug)]
pub(super) struct Logical {
    pub text: String,
    /// Where pieces of `text` begin, in it and in the file; in order.
    pieces: Vec<(usize, usize)>,
    pub line: usize,
    pub span: Span,
    pub heredocs: Vec<Heredoc>,
}

impl Logical {
    /// Of a part of `text`. A part that spans several lines includes what was dropped between them.
    pub fn place(&self, part: Range<usize>) -> Span {
        let start = self.offset(part.start);
        // The end is where the last character is, and one on: the next piece may begin far away.
        let end = if part.end > part.start { self.offset(part.end - 1) + 1 } else { start };
        start..end.max(start)
    }

    fn offset(&self, at: usize) -> usize {
        let piece = self.pieces.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        self.pieces.get(piece).map_or(self.span.start, |(start, source)| source + (at - start))
    }
}

/// One line of the file.
struct Physical<'a> {
    start: usize,
    /// Without its line end.
    text: &'a str,
    /// With it.
    whole: &'a str,
    number: usize,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    number: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Physical<'a>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = rest.find('\n').map_or(rest.len(), |i| i + 1);
        let (start, whole) = (self.at, &rest[..end]);
        self.at += end;
        self.number += 1;
        Some(Physical { start, text: whole.trim_end_matches(['\r', '\n']), whole, number: self.number })
    }
}

/// Problems go to `errors`, what is only worth knowing to `warnings`.
pub(super) fn read(file: &Arc<SourceFile>, errors: &mut Diagnostics, warnings: &mut Diagnostics) -> Lines {
    let text = file.text.as_str();
    if let Some(at) = text.find('\0') {
        // No argument and no file name can hold one: Linux ends them there.
        let hint = "remove it; a file saved as UTF-16 has one in every second place, and has to be saved as UTF-8";
        let problem = Diagnostic::error("there is a NUL byte in the Dockerfile").at(file, at..at + 1);
        errors.push(problem.label("a NUL byte").hint(hint));
    }
    // A byte order mark is not part of the first line.
    let mut reader = Reader { text, at: text.len() - text.trim_start_matches('\u{feff}').len(), number: 0 };
    let mut head =
        Head { directives: Directives { syntax: None, escape: '\\', check: None }, seen: Vec::new(), over: false };
    let mut lines = Vec::new();
    while let Some(physical) = reader.next() {
        let body = physical.text.trim_start();
        let start = physical.start + (physical.text.len() - body.len());
        head.look_at(body, start, file, errors);
        if body.starts_with('#') {
            continue;
        }
        let escape = head.directives.escape;
        let (content, mut continued) = cut_continuation(body, escape);
        if content.is_empty() && !continued {
            continue;
        }
        let mut line = Logical {
            text: content.to_owned(),
            pieces: vec![(0, start)],
            line: physical.number,
            span: start..start + content.trim_end().len(),
            heredocs: Vec::new(),
        };
        let mut empty: Option<Span> = None;
        while continued {
            let Some(next) = reader.next() else { break };
            let trimmed = next.text.trim_start();
            if trimmed.starts_with('#') {
                continue;
            }
            if trimmed.is_empty() {
                empty.get_or_insert(next.start..next.start + next.text.len());
                continue;
            }
            let content;
            (content, continued) = cut_continuation(next.text, escape);
            if content.is_empty() {
                continue;
            }
            line.pieces.push((line.text.len(), next.start));
            line.text.push_str(content);
            line.span.end = next.start + content.trim_end().len();
        }
        if line.text.trim().is_empty() {
            continue;
        }
        if let Some(span) = empty {
            warnings.push(
                Diagnostic::warning("an empty line inside of an instruction")
                    .at(file, span)
                    .label("the instruction goes on below")
                    .hint("remove the line, or begin it with `#`"),
            );
        }
        read_heredocs(&mut line, &mut reader, escape, file, errors);
        lines.push(line);
    }
    Lines { directives: head.directives, lines }
}

/// Directives are comments at the very head of the file; the first line that is none ends them.
struct Head {
    directives: Directives,
    seen: Vec<String>,
    over: bool,
}

impl Head {
    fn look_at(&mut self, line: &str, start: usize, file: &Arc<SourceFile>, errors: &mut Diagnostics) {
        if self.over {
            return;
        }
        let Some((name, value, value_at)) = directive(line) else {
            self.over = true;
            return;
        };
        let span = start + value_at..start + value_at + value.len();
        if self.seen.contains(&name) {
            let problem = Diagnostic::error(format!("`{name}` is set twice")).at(file, span).label("the second time");
            errors.push(problem.hint("leave one of the two directives"));
            return;
        }
        let word = Spanned { value: value.to_owned(), span: span.clone() };
        match name.as_str() {
            "syntax" => self.directives.syntax = Some(word),
            "check" => self.directives.check = Some(word),
            _ => match value {
                "\\" | "`" => self.directives.escape = if value == "`" { '`' } else { '\\' },
                _ => errors.push(
                    Diagnostic::error(format!("`{value}` cannot be the escape character"))
                        .at(file, span)
                        .label("not an escape character")
                        .hint("it is either `\\` or a backquote"),
                ),
            },
        }
        self.seen.push(name);
    }
}

/// Name, value and where the value begins.
fn directive(line: &str) -> Option<(String, &str, usize)> {
    let comment = line.strip_prefix('#')?.trim_start();
    let (name, value) = comment.split_once('=')?;
    let name = name.trim_end().to_ascii_lowercase();
    let value = value.trim();
    if value.is_empty() || !matches!(name.as_str(), "syntax" | "escape" | "check") {
        return None;
    }
    let at = line.len() - line.split_once('=')?.1.trim_start().len();
    Some((name, value, at))
}

/// An escape character at the end, blanks after it allowed, continues the line; a doubled one doesn't.
fn cut_continuation(line: &str, escape: char) -> (&str, bool) {
    match line.trim_end_matches([' ', '\t']).strip_suffix(escape) {
        Some(rest) if !rest.ends_with(escape) => (rest, true),
        _ => (line, false),
    }
}

/// RUN, COPY and ADD (and those in ONBUILD) can be followed by the bodies of heredocs.
fn read_heredocs(
    line: &mut Logical,
    reader: &mut Reader<'_>,
    escape: char,
    file: &Arc<SourceFile>,
    errors: &mut Diagnostics,
) {
    if !line.text.contains("<<") || !takes_heredocs(&line.text, escape) {
        return;
    }
    for mut heredoc in delimiters(&line.text) {
        let begin = reader.at;
        let mut end = None;
        while let Some(physical) = reader.next() {
            let candidate = if heredoc.chomp { physical.text.trim_start_matches('\t') } else { physical.text };
            if candidate == heredoc.name {
                end = Some(physical.start);
                break;
            }
            heredoc.body.push_str(physical.whole);
        }
        heredoc.span = begin..end.unwrap_or(reader.text.len());
        if end.is_none() {
            let at = line.text.find("<<").unwrap_or(0);
            let length = line.text[at..].find(char::is_whitespace).unwrap_or(line.text.len() - at);
            errors.push(
                Diagnostic::error(format!("the heredoc `{}` does not end", heredoc.name))
                    .at(file, line.place(at..at + length))
                    .label("begins here")
                    .hint(format!("put `{}` alone on the line after the last one of its text", heredoc.name)),
            );
        }
        line.heredocs.push(heredoc);
    }
}

fn takes_heredocs(text: &str, escape: char) -> bool {
    let (mut keyword, mut rest) = words::keyword(text, 0..text.len());
    if text[keyword.clone()].eq_ignore_ascii_case("ONBUILD") {
        rest = words::flags(text, rest, escape).1;
        (keyword, rest) = words::keyword(text, rest);
    }
    let keyword = text[keyword].to_ascii_uppercase();
    let arguments = words::flags(text, rest, escape).1;
    matches!(keyword.as_str(), "RUN" | "COPY" | "ADD") && words::json(&text[arguments]).is_none()
}

/// The heredocs that a line announces, in order; their bodies are still empty.
fn delimiters(text: &str) -> Vec<Heredoc> {
    let raw = Expander { keep_quotes: true, keep_escapes: true, keep_unset: true, ..Expander::new('\\') };
    // Text that no shell would understand announces nothing; Docker sees it the same way.
    let words = raw.expand(text, &|_| None).map(|e| e.words).unwrap_or_default();
    words.iter().filter_map(|word| delimiter(word)).collect()
}

/// `<<EOF`, `<<-"EOF"`, `3<<EOF`: exactly one delimiter and nothing else.
pub(super) fn delimiter(word: &str) -> Option<Heredoc> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (chomp, rest) = rest.strip_prefix('-').map_or((false, rest), |rest| (true, rest));
    let rest = rest.trim_start();
    if rest.contains('<') {
        return None;
    }
    let plain = Expander { keep_unset: true, ..Expander::new('\\') };
    let quotes = |s: &str| s.matches(['\'', '"']).count();
    let mut names = plain.expand(rest, &|_| None).ok()?.words;
    let name = names.pop().filter(|_| names.is_empty())?;
    let written = Expander { keep_quotes: true, ..plain }.expand(rest, &|_| None).ok()?.words;
    let expand = written.first().is_some_and(|written| quotes(written) == quotes(&name));
    Some(Heredoc { name, expand, chomp, body: String::new(), span: 0..0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> (Lines, Diagnostics, Diagnostics) {
        let (mut errors, mut warnings) = Default::default();
        let lines = read(&SourceFile::new("Dockerfile", text), &mut errors, &mut warnings);
        (lines, errors, warnings)
    }

    fn texts(text: &str) -> Vec<String> {
        let (lines, errors, _) = lines(text);
        assert!(errors.is_empty(), "{errors:?}");
        lines.lines.into_iter().map(|l| l.text).collect()
    }

    #[test]
    fn comments_and_empty_lines_inside_of_a_continuation() {
        assert_eq!(
            texts("RUN echo one && \\\n  # a comment\n\n  echo two\nCMD x\n"),
            ["RUN echo one &&   echo two", "CMD x"]
        );
        let (_, _, warnings) = lines("RUN a \\\n\n b\n");
        assert_eq!(warnings.0.len(), 1);
    }

    #[test]
    fn continuation_characters() {
        assert_eq!(texts("RUN a \\  \nb"), ["RUN a b"]);
        assert_eq!(texts("RUN a \\\\\nRUN b"), ["RUN a \\\\", "RUN b"]);
        assert_eq!(texts("\\\nRUN a"), ["RUN a"]);
        assert_eq!(texts("RUN a \\\n"), ["RUN a "]);
        assert_eq!(texts("#escape=`\nRUN a `\n b\\"), ["RUN a  b\\"]);
    }

    #[test]
    fn windows_line_ends_and_a_byte_order_mark() {
        assert_eq!(texts("\u{feff}# escape=`\r\nFROM x\r\nRUN a `\r\n  b\r\n"), ["FROM x", "RUN a   b"]);
    }

    #[test]
    fn directives_end_at_the_first_other_line() {
        let (lines, ..) = lines("# syntax = docker/dockerfile:1 \n# Check=skip=all\n# plain\n# escape=`\nFROM x");
        assert_eq!(lines.directives.syntax.map(|w| (w.value, w.span)), Some(("docker/dockerfile:1".into(), 11..30)));
        assert_eq!(lines.directives.check.map(|w| w.value).as_deref(), Some("skip=all"));
        assert_eq!(lines.directives.escape, '\\');
    }

    #[test]
    fn bad_directives() {
        let (_, errors, _) = lines("# escape=x\n# escape=`\nFROM x");
        let messages: Vec<_> = errors.0.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(messages, ["`x` cannot be the escape character", "`escape` is set twice"]);
    }

    #[test]
    fn heredocs_of_every_form() {
        let (lines, errors, _) = lines("COPY <<a <<-'b' /x/\n1\na\n\t2\n\tb\nRUN cat << EOF | x\n$V\nEOF\nCMD y");
        assert!(errors.is_empty(), "{errors:?}");
        let all: Vec<_> = lines.lines.iter().flat_map(|l| &l.heredocs).collect();
        let facts: Vec<_> =
            all.iter().map(|h| (h.name.as_str(), h.body.as_str(), h.content(), h.expand, h.chomp)).collect();
        assert_eq!(
            facts,
            [
                ("a", "1\n", "1\n".into(), true, false),
                ("b", "\t2\n", "2\n".into(), false, true),
                ("EOF", "$V\n", "$V\n".into(), true, false)
            ]
        );
        assert_eq!(lines.lines.len(), 3);
    }

    #[test]
    fn what_only_looks_like_a_heredoc() {
        assert_eq!(texts("RUN [\"cat\", \"<<EOF\"]\nCMD x").len(), 2);
        assert_eq!(texts("CMD cat <<EOF\nENV a b").len(), 2);
        assert_eq!(texts("RUN echo '<<EOF'\nENV a b").len(), 2);
        assert_eq!(texts("RUN cat <<< EOF\nENV a b").len(), 2);
    }

    #[test]
    fn a_nul_byte_is_said_with_its_place() {
        for text in ["FROM x\nRUN a\0b\n", "# \0\nFROM x\n", "FROM x\nCOPY <<E /x\na\0\0\nE\n"] {
            let (_, errors, _) = lines(text);
            let at = text.find('\0').unwrap();
            assert_eq!(errors.0[0].message, "there is a NUL byte in the Dockerfile");
            assert_eq!(errors.0[0].place.as_ref().map(|p| p.span.clone()), Some(at..at + 1));
        }
    }

    #[test]
    fn a_heredoc_that_does_not_end() {
        let (_, errors, _) = lines("RUN <<EOF x\nabc\n");
        assert_eq!(errors.0[0].message, "the heredoc `EOF` does not end");
        assert_eq!(errors.0[0].place.as_ref().map(|p| p.span.clone()), Some(4..9));
    }

    #[test]
    fn places_lead_back_to_the_file() {
        let (lines, ..) = lines("RUN one \\\n # c\n  two");
        let line = &lines.lines[0];
        let at = line.text.find("two").unwrap();
        assert_eq!(line.place(at..at + 3), 17..20);
        assert_eq!(line.place(4..7), 4..7);
        assert_eq!(line.place(4..line.text.len()), 4..20);
        assert_eq!(line.span, 0..20);
    }
}
