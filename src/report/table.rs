//! Columns without borders, aligned by display width: what `list`, `plan` and `store ls` print.

use crate::report::style::{Look, Paint};
use crate::report::text;

const GAP: &str = "  ";
/// A last column that would be cut below this is left alone: the terminal may wrap it.
const NARROWEST: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    pub fn new(text: impl Into<String>) -> Self {
        Cell { text: text::one_line(&text.into()), paint: Paint::None }
    }

    pub fn paint(mut self, paint: Paint) -> Self {
        self.paint = paint;
        self
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(text)
    }
}

/// Rows of cells. Cells are given plain; colour is added when the columns are known.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heading: Vec<String>,
    aligns: Vec<Align>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without a heading.
    pub fn new() -> Self {
        Table::default()
    }

    pub fn with_heading(heading: &[&str]) -> Self {
        Table { heading: heading.iter().map(|h| (*h).to_owned()).collect(), ..Table::default() }
    }

    /// Numbers are read from the right. Columns that nobody says anything about are aligned left.
    pub fn right(mut self, column: usize) -> Self {
        if self.aligns.len() <= column {
            self.aligns.resize(column + 1, Align::Left);
        }
        self.aligns[column] = Align::Right;
        self
    }

    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: Into<Cell>,
    {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// `width` is the terminal's, to which the last column is cut; None where lines may have any length (a pipe).
    /// Columns in which every cell is empty are left out.
    pub fn render(&self, look: Look, width: Option<usize>) -> String {
        let heading: Vec<Cell> = self.heading.iter().map(|h| Cell::new(h.clone()).paint(Paint::Dim)).collect();
        let columns = self.rows.iter().map(Vec::len).chain([heading.len()]).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|i| {
                let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| text::width(&cell.text)).max();
                match cells {
                    None | Some(0) => 0,
                    Some(cells) => cells.max(heading.get(i).map_or(0, |h| text::width(&h.text))),
                }
            })
            .collect();
        let mut out = String::new();
        if !heading.is_empty() && !self.rows.is_empty() {
            self.line(&mut out, &heading, &widths, look, width);
        }
        for row in &self.rows {
            self.line(&mut out, row, &widths, look, width);
        }
        out
    }

    /// The same as a table of Markdown, in which empty columns are left out as well.
    pub fn markdown(&self) -> String {
        let shown: Vec<usize> = (0..self.heading.len())
            .filter(|i| self.rows.iter().any(|row| row.get(*i).is_some_and(|cell| !cell.text.is_empty())))
            .collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = shown.iter().map(|i| cell(*i)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut out = line(&|i| self.heading[i].clone());
        out.push_str(&line(&|i| match self.aligns.get(i) {
            Some(Align::Right) => "---:".into(),
            _ => "---".into(),
        }));
        for row in &self.rows {
            out.push_str(&line(&|i| row.get(i).map_or(String::new(), |cell| cell.text.replace('|', "\\|"))));
        }
        out
    }

    fn line(&self, out: &mut String, row: &[Cell], widths: &[usize], look: Look, width: Option<usize>) {
        let last = widths.iter().rposition(|w| *w > 0).unwrap_or(0);
        let mut line = String::new();
        let mut at = 0;
        for (i, (cell, column)) in row.iter().zip(widths).enumerate().filter(|(_, (_, column))| **column > 0) {
            let mut shown = cell.text.clone();
            if i == last
                && let Some(room) = width.map(|w| w.saturating_sub(at)).filter(|room| *room >= NARROWEST)
            {
                shown = text::truncate(&shown, room, look.ellipsis());
            }
            let blanks = " ".repeat(column.saturating_sub(text::width(&shown)));
            let painted = look.paint(cell.paint, &shown);
            if self.aligns.get(i) == Some(&Align::Right) {
                line.push_str(&blanks);
                line.push_str(&painted);
            } else {
                line.push_str(&painted);
                line.push_str(&blanks);
            }
            line.push_str(GAP);
            at += column + GAP.len();
        }
        out.push_str(line.trim_end_matches(' '));
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;

    fn images() -> Table {
        let mut table = Table::with_heading(&["NAME", "SIZE", "", "SUMMARY"]).right(1);
        table.row([Cell::new("keystone").paint(Paint::Strong), "212 MB".into(), "".into(), "identity service".into()]);
        table.row(["日本", "1.2 GB", "", "wide names line up; this summary is a long one"]);
        table.row(["short"]);
        table
    }

    #[test]
    fn columns_line_up_by_display_width() {
        assert_snapshot!(images().render(Look::PLAIN, None), @r#"
        NAME        SIZE  SUMMARY
        keystone  212 MB  identity service
        日本      1.2 GB  wide names line up; this summary is a long one
        short
        "#);
    }

    #[test]
    fn the_last_column_is_cut_to_the_terminal() {
        assert_snapshot!(images().render(Look::PLAIN, Some(40)), @r#"
        NAME        SIZE  SUMMARY
        keystone  212 MB  identity service
        日本      1.2 GB  wide names line up;...
        short
        "#);
        assert_snapshot!(images().render(Look { color: true, unicode: true }, Some(40)).replace('\x1b', "^"), @r#"
        ^[2mNAME^[0m        ^[2mSIZE^[0m  ^[2mSUMMARY^[0m
        ^[1mkeystone^[0m  212 MB  identity service
        日本      1.2 GB  wide names line up; t…
        short
        "#);
    }

    #[test]
    fn markdown_has_its_bars_escaped() {
        let mut table = images();
        table.row(["a|b", "1 B", "", "c"]);
        assert_snapshot!(table.markdown(), @r#"
        | NAME | SIZE | SUMMARY |
        | --- | ---: | --- |
        | keystone | 212 MB | identity service |
        | 日本 | 1.2 GB | wide names line up; this summary is a long one |
        | short |  |  |
        | a\|b | 1 B | c |
        "#);
    }

    #[test]
    fn an_empty_table_is_nothing() {
        assert_eq!(Table::with_heading(&["NAME"]).render(Look::PLAIN, Some(80)), "");
        let mut blank = Table::new();
        blank.row([""]);
        assert_eq!(blank.render(Look::PLAIN, Some(80)), "\n");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal_unless_the_first_columns_are(
            rows in proptest::collection::vec(proptest::collection::vec("\\PC{0,12}", 0..4), 0..6),
            width in 60usize..100,
        ) {
            let mut table = Table::with_heading(&["A", "B", "C"]).right(1);
            for row in rows {
                table.row(row);
            }
            for line in table.render(Look::PLAIN, Some(width)).lines() {
                prop_assert!(text::width(line) <= width.max(3 * 26), "{line:?}");
            }
        }
    }
}
