//! The part of a terminal that is drawn over: a few lines at the end, below everything that stays.
//!
//! The cursor always rests at the beginning of the line below, so that whatever else writes to the terminal, the
//! shell's prompt after a `kill -9` included, begins on a line of its own. Lines are one column narrower than the
//! terminal, so that none of them ever wraps. When the terminal becomes narrower, terminals wrap what stands there
//! already; how many rows it then takes is known from the widths, and that many are drawn over.

use crate::report::text;

const ERASE_TO_LINE_END: &str = "\x1b[K";
const ERASE_LINE: &str = "\x1b[2K";
const ERASE_BELOW: &str = "\x1b[J";

#[derive(Debug, Default)]
pub(super) struct Live {
    /// What stands there.
    frame: Vec<String>,
    /// Of the terminal, when it was drawn.
    columns: usize,
}

impl Live {
    /// What to write so that `permanent` (whole lines) stands above, and `frame` where the last frame was.
    /// Nothing when nothing would change.
    pub(super) fn draw(&mut self, permanent: &str, frame: Vec<String>, columns: usize) -> String {
        let mut out = String::new();
        if permanent.is_empty() && columns == self.columns && frame == self.frame {
            return out;
        }
        let rows = self.rows(columns);
        if rows > 0 {
            out.push_str(&format!("\x1b[{rows}A\r"));
        }
        // Frame lines erase to their end, which does not flicker. What stays may wrap, and may fill its last row to
        // the edge, where erasing would take its last character: the place is cleared for it before. Line by line,
        // because some terminals keep what is erased as a whole screen in their history.
        if rows > 0 && (!permanent.is_empty() || columns < self.columns) {
            for _ in 0..rows {
                out.push_str(ERASE_LINE);
                out.push_str("\x1b[1B");
            }
            out.push_str(&format!("\x1b[{rows}A"));
        }
        out.push_str(permanent);
        for line in &frame {
            out.push_str(line);
            out.push_str(ERASE_TO_LINE_END);
            out.push('\n');
        }
        if frame.len() < rows {
            out.push_str(ERASE_BELOW);
        }
        self.frame = frame;
        self.columns = columns;
        out
    }

    /// Rows that the last frame takes on a terminal that is `columns` wide now.
    fn rows(&self, columns: usize) -> usize {
        let columns = columns.max(1);
        self.frame.iter().map(|line| text::width(line).div_ceil(columns).max(1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|l| (*l).to_owned()).collect()
    }

    #[test]
    fn a_frame_is_drawn_over_the_one_before() {
        let mut live = Live::default();
        assert_eq!(live.draw("", frame(&["a", "b"]), 80), "a\x1b[K\nb\x1b[K\n");
        assert_eq!(
            live.draw("done\n", frame(&["b"]), 80),
            "\x1b[2A\r\x1b[2K\x1b[1B\x1b[2K\x1b[1B\x1b[2Adone\nb\x1b[K\n\x1b[J"
        );
        assert_eq!(live.draw("", vec![], 80), "\x1b[1A\r\x1b[J");
        assert_eq!(live.draw("", vec![], 80), "", "nothing has changed");
        assert_eq!(live.draw("more\n", vec![], 80), "more\n");
    }

    #[test]
    fn lines_that_wrapped_when_the_terminal_shrank_are_drawn_over_whole() {
        let mut live = Live::default();
        live.draw("", frame(&["0123456789", "", "01234"]), 20);
        let out = live.draw("", frame(&["x"]), 5);
        assert!(out.starts_with("\x1b[4A\r\x1b[2K\x1b[1B") && out.contains("\x1b[4Ax"), "{out:?}");
    }
}
