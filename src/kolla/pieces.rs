//! A rendered Dockerfile as a list of instructions that can be written again.

use crate::diag::{Diagnostics, SourceFile};
use crate::dockerfile;
use crate::dockerfile::ast::{Heredoc, Instruction, InstructionKind, Span};

/// One instruction with the comment above it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Where it begins.
    pub at: usize,
    pub comment: Vec<String>,
    /// As it is to be written, without blank lines and blanks at the ends of lines.
    pub raw: String,
    /// In one line, blanks outside of quotes reduced to one.
    pub line: String,
    pub keyword: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// The image that it names, and where in `raw` the name stands.
    From {
        image: String,
        at: Span,
    },
    /// COPY or ADD of one thing from the context.
    Transfer {
        source: String,
        dest: String,
    },
    User(String),
    Other,
}

pub fn read(name: &str, text: &str) -> Result<Vec<Piece>, Diagnostics> {
    let file = SourceFile::new(format!("{name}/Dockerfile"), text);
    let parsed = dockerfile::parse(&file)?;
    let mut found: Vec<(Span, Piece)> = Vec::new();
    for stage in &parsed.stages {
        let span = stage.from.span.clone();
        let at = stage.from.image.span.start - span.start..stage.from.image.span.end - span.start;
        let kind = Kind::From { image: stage.from.image.value.clone(), at };
        let raw = text[span.clone()].to_owned();
        let (at, line) = (span.start, squeezed(&raw));
        found.push((span, Piece { at, comment: Vec::new(), line, raw, keyword: "FROM", kind }));
    }
    let instructions = parsed.stages.iter().flat_map(|stage| &stage.instructions);
    for instruction in parsed.global_args.iter().chain(instructions) {
        found.push(piece(text, instruction));
    }
    found.sort_by_key(|(span, _)| span.start);
    let mut end = 0;
    let mut pieces = Vec::with_capacity(found.len());
    for (span, mut piece) in found {
        let between = text[end..span.start].lines().map(str::trim);
        piece.comment = between.filter(|line| line.starts_with('#')).map(str::to_owned).collect();
        end = span.end;
        pieces.push(piece);
    }
    Ok(pieces)
}

fn piece(text: &str, instruction: &Instruction) -> (Span, Piece) {
    let heredocs: &[Heredoc] = match &instruction.kind {
        InstructionKind::Add(transfer) | InstructionKind::Copy(transfer) => &transfer.heredocs,
        InstructionKind::Run(run) => &run.heredocs,
        _ => &[],
    };
    // What ends a here-document is a line of its own behind its body.
    let last = heredocs.iter().map(|heredoc| heredoc.span.end).max().unwrap_or(0).max(instruction.span.end);
    let mut span = instruction.span.start..last;
    if let Some(heredoc) = heredocs.last() {
        let rest = &text[last..];
        let ends = rest.split_inclusive('\n').scan(0, |at, line| {
            *at += line.len();
            Some((*at, line.trim()))
        });
        span.end = ends.into_iter().find(|(_, line)| *line == heredoc.name).map_or(last, |(at, _)| last + at);
    }
    let written = text[span.clone()].trim_end();
    let raw = match heredocs.is_empty() {
        true => cleaned(written),
        false => written.to_owned(),
    };
    let kind = match &instruction.kind {
        InstructionKind::Add(transfer) | InstructionKind::Copy(transfer)
            if transfer.from.is_none() && transfer.heredocs.is_empty() && transfer.sources.len() == 1 =>
        {
            Kind::Transfer { source: transfer.sources[0].value.clone(), dest: transfer.dest.value.clone() }
        }
        InstructionKind::User(user) => Kind::User(user.value.clone()),
        _ => Kind::Other,
    };
    let line = squeezed(&instruction.text);
    (span.clone(), Piece { at: span.start, comment: Vec::new(), line, raw, keyword: instruction.keyword, kind })
}

fn cleaned(written: &str) -> String {
    let lines: Vec<&str> = written.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    lines.join("\n")
}

/// Blanks that a shell would not see are one blank.
pub fn squeezed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut escaped = false;
    for c in text.trim().chars() {
        if quote.is_none() && !escaped && c.is_whitespace() {
            if !out.ends_with(' ') {
                out.push(' ');
            }
            continue;
        }
        match (quote, c) {
            _ if escaped => {}
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        escaped = c == '\\' && !escaped && quote != Some('\'');
        out.push(c);
    }
    out
}

/// Text of a Dockerfile in a template.
pub fn escaped(text: &str) -> String {
    match text.contains("{{") || text.contains("{%") || text.contains("{#") || text.ends_with('{') {
        true => format!("{{% raw %}}{text}{{% endraw %}}"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_keep_their_comments_and_lose_blank_lines() {
        let text = "FROM a:b\n\n# why\n\n  RUN one  \\\n\n    && two 'x  y' \\\n    # inside\n    && three\nCOPY <<EOF /x\na\n\nb\nEOF\nUSER z\n";
        let pieces = read("x", text).unwrap();
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[1].comment, ["# why"]);
        assert_eq!(pieces[1].raw, "RUN one  \\\n    && two 'x  y' \\\n    # inside\n    && three");
        assert_eq!(pieces[1].line, "RUN one && two 'x  y' && three");
        assert_eq!(pieces[2].raw, "COPY <<EOF /x\na\n\nb\nEOF");
        assert!(matches!(&pieces[3].kind, Kind::User(user) if user == "z"));
    }
}
