//! Colours and symbols: what they mean, and what stands for them where there are none.

use std::fmt::Display;

use crate::report::text;

/// What the reader's terminal can show. The command line decides (NO_COLOR, TERM, the locale); see
/// [`crate::report::progress::Facts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub color: bool,
    /// Symbols beyond ASCII.
    pub unicode: bool,
}

impl Look {
    /// No colours and ASCII symbols: files, pipes, CI.
    pub const PLAIN: Look = Look { color: false, unicode: false };
}

/// By meaning, not by colour: the same thing looks the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As the terminal has it.
    None,
    Done,
    Running,
    Failed,
    Warning,
    /// What there is to do.
    Hint,
    /// What explains, and need not be read.
    Dim,
    /// Names and headings.
    Strong,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::None => "",
            Paint::Done => "\x1b[32m",
            Paint::Running => "\x1b[33m",
            Paint::Failed => "\x1b[1;31m",
            Paint::Warning => "\x1b[1;33m",
            Paint::Hint => "\x1b[36m",
            Paint::Dim => "\x1b[2m",
            Paint::Strong => "\x1b[1m",
        }
    }
}

impl Look {
    pub fn paint(self, paint: Paint, text: impl Display) -> String {
        let text = text.to_string();
        if !self.color || paint == Paint::None || text.is_empty() {
            return text;
        }
        format!("{}{text}\x1b[0m", paint.code())
    }

    fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    pub fn done(self) -> &'static str {
        self.pick("✓", "+")
    }

    pub fn reused(self) -> &'static str {
        "="
    }

    pub fn failed(self) -> &'static str {
        self.pick("✗", "x")
    }

    pub fn left_out(self) -> &'static str {
        "-"
    }

    pub fn warning(self) -> &'static str {
        "!"
    }

    /// Between things that stand side by side.
    pub fn dot(self) -> &'static str {
        self.pick("·", "-")
    }

    /// Where something was cut.
    pub fn ellipsis(self) -> &'static str {
        self.pick("…", "...")
    }

    /// Turns once a second or so at ten frames a second.
    pub fn spinner(self, frame: usize) -> &'static str {
        const DOTS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
        const BARS: [&str; 4] = ["|", "/", "-", "\\"];
        if self.unicode { DOTS[frame % DOTS.len()] } else { BARS[(frame / 2) % BARS.len()] }
    }
}

/// A line of differently painted parts, which can be cut to the terminal's width as one.
#[derive(Clone, Debug, Default)]
pub struct Line(Vec<(Paint, String)>);

impl Line {
    pub fn new() -> Self {
        Line::default()
    }

    pub fn with(mut self, paint: Paint, text: impl Into<String>) -> Self {
        self.push(paint, text);
        self
    }

    pub fn push(&mut self, paint: Paint, text: impl Into<String>) {
        self.0.push((paint, text.into()));
    }

    /// Adds `[====    ]`, or a line that fills: `width` columns in all.
    pub fn bar(&mut self, look: Look, done: usize, total: usize, width: usize) -> &mut Self {
        let inner = if look.unicode { width } else { width.saturating_sub(2) };
        let filled = inner.saturating_mul(done.min(total)).checked_div(total).unwrap_or(0).min(inner);
        if look.unicode {
            self.push(Paint::Done, "━".repeat(filled));
            self.push(Paint::Dim, "─".repeat(inner - filled));
        } else {
            self.push(Paint::Dim, "[");
            self.push(Paint::Done, "=".repeat(filled));
            self.push(Paint::Dim, format!("{}]", " ".repeat(inner - filled)));
        }
        self
    }

    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text::width(text)).sum()
    }

    /// `columns` is the width to cut to, None where lines may have any length.
    pub fn render(&self, look: Look, columns: Option<usize>) -> String {
        let whole: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        let (mut kept, mark) = match columns {
            Some(columns) => text::fit(&whole, columns, look.ellipsis()),
            None => (whole.len(), ""),
        };
        let mut out = String::new();
        for (paint, text) in &self.0 {
            let end = kept.min(text.len());
            let last = kept <= text.len();
            let shown = if last { format!("{}{mark}", &text[..end]) } else { text.clone() };
            out.push_str(&look.paint(*paint, shown));
            kept -= end;
            if last {
                break;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_only_added_where_it_is_wanted() {
        assert_eq!(Look::PLAIN.paint(Paint::Failed, "x"), "x");
        assert_eq!(Look { color: true, unicode: false }.paint(Paint::Done, "x"), "\x1b[32mx\x1b[0m");
        assert_eq!(Look { color: true, unicode: false }.paint(Paint::Done, ""), "");
    }

    #[test]
    fn a_line_is_cut_as_one() {
        let look = Look { color: true, unicode: true };
        let line = Line::new().with(Paint::Done, "ok").with(Paint::None, " ").with(Paint::Dim, "日本語");
        let show = |columns| line.render(look, columns).replace('\x1b', "^");
        assert_eq!(show(None), "^[32mok^[0m ^[2m日本語^[0m");
        assert_eq!(show(Some(9)), show(None));
        assert_eq!(show(Some(8)), "^[32mok^[0m ^[2m日本…^[0m");
        assert_eq!(show(Some(3)), "^[32mok…^[0m");
        assert_eq!(show(Some(1)), "^[32m…^[0m");
        assert_eq!(show(Some(0)), "");
    }

    #[test]
    fn a_bar_has_its_width_whatever_it_shows() {
        let bar = |unicode, done, total, width| {
            let look = Look { color: false, unicode };
            Line::new().bar(look, done, total, width).render(look, None)
        };
        assert_eq!(bar(false, 0, 0, 10), "[        ]");
        assert_eq!(bar(false, 1, 2, 10), "[====    ]");
        assert_eq!(bar(false, 9, 2, 10), "[========]");
        assert_eq!(bar(false, 1, 2, 1), "[]");
        assert_eq!(bar(true, 1, 2, 6), "━━━───");
    }
}
