//! A graph as a drawing of its own: boxes and lines in SVG, without any program beside it.

use std::fmt::Write as _;

use crate::report::text;

pub mod layout;

use layout::{BOX_HEIGHT, Layout, Point};

/// Of the font of labels at 12 pixels, which has one width for all characters.
const CHARACTER: f64 = 7.25;
const PADDING: f64 = 9.0;
/// Longer labels are cut; the whole one is told when the mouse rests on the box.
const LABEL: usize = 40;
const STYLE: &str = include_str!("style.css");

#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// What the whole shows, for those who don't see it.
    pub title: String,
    pub nodes: Vec<DrawnNode>,
    pub edges: Vec<DrawnEdge>,
}

#[derive(Clone, Debug, Default)]
pub struct DrawnNode {
    pub label: String,
    /// Told when the mouse rests on it.
    pub title: String,
    /// Words of the style sheet, separated by blanks.
    pub class: String,
    /// Where a click leads.
    pub link: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct DrawnEdge {
    /// Positions of nodes; `from` is the earlier one.
    pub from: usize,
    pub to: usize,
    pub class: String,
}

impl Drawing {
    /// A file of its own, with its style.
    pub fn standalone(&self) -> String {
        self.render(Some(STYLE))
    }

    /// An element of a page that has the style.
    pub fn inline(&self) -> String {
        self.render(None)
    }

    fn render(&self, style: Option<&str>) -> String {
        let labels: Vec<String> =
            self.nodes.iter().map(|node| text::truncate(&text::one_line(&node.label), LABEL, "…")).collect();
        let widths: Vec<f64> = labels.iter().map(|l| text::width(l) as f64 * CHARACTER + 2.0 * PADDING).collect();
        let edges: Vec<(usize, usize)> = self.edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let made = layout::layout(&widths, &edges);
        let mut out = String::new();
        let (width, height) = (made.width.ceil(), made.height.ceil());
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" role=\"img\" width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n<title>{}</title>",
            escape(&self.title)
        );
        if let Some(style) = style {
            let _ = writeln!(out, "<style>\n{style}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>");
        }
        self.lines(&mut out, &made);
        for ((node, label), (at, width)) in self.nodes.iter().zip(&labels).zip(made.boxes.iter().zip(&widths)) {
            let (open, close) = match &node.link {
                Some(link) => (format!("<a href=\"{}\">", escape(link)), "</a>"),
                None => (String::new(), ""),
            };
            let _ = writeln!(
                out,
                "{open}<g class=\"node {}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{BOX_HEIGHT}\" rx=\"5\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>{close}",
                escape(&node.class),
                escape(&node.title),
                at.x,
                at.y - BOX_HEIGHT / 2.0,
                at.x + PADDING,
                at.y + 4.0,
                escape(label)
            );
        }
        out.push_str("</svg>\n");
        out
    }

    fn lines(&self, out: &mut String, made: &Layout) {
        for (edge, line) in self.edges.iter().zip(&made.lines).filter(|(_, line)| line.len() > 1) {
            let _ = write!(out, "<path class=\"edge {}\" d=\"M{:.1} {:.1}", escape(&edge.class), line[0].x, line[0].y);
            for (i, pair) in line.windows(2).enumerate() {
                let (from, to): (Point, Point) = (pair[0], pair[1]);
                // Curves between columns, straight through them.
                let _ = if i % 2 == 0 {
                    let middle = (from.x + to.x) / 2.0;
                    write!(out, " C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}", from.y, to.y, to.x, to.y)
                } else {
                    write!(out, " L{:.1} {:.1}", to.x, to.y)
                };
            }
            out.push_str("\"/>\n");
        }
    }
}

/// For the text of elements and attributes. What XML has no characters for is left out.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_escaped_and_the_same_each_time() {
        let hostile = "</text><script>alert(\"1\")</script>&\u{1b}[2J\u{0}";
        let node = |link: Option<&str>| DrawnNode {
            label: hostile.into(),
            title: hostile.into(),
            class: "image\" onload=\"x".into(),
            link: link.map(Into::into),
        };
        let drawing = Drawing {
            title: hostile.into(),
            nodes: vec![node(None), node(Some("#a\"><script>"))],
            edges: vec![DrawnEdge { from: 0, to: 1, class: "parent".into() }],
        };
        let text = drawing.standalone();
        assert!(!text.contains("<script") && !text.contains("onload=\"") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;"), "{text}");
        assert_eq!(text, drawing.standalone());
        assert!(!text.contains("url(") && !text.contains("@import"));
    }

    #[test]
    fn long_labels_are_cut_and_told_whole() {
        let name = "x".repeat(100);
        let node = DrawnNode { label: name.clone(), title: name.clone(), ..DrawnNode::default() };
        let text = Drawing { nodes: vec![node], ..Drawing::default() }.inline();
        assert!(text.contains(&format!("<title>{name}</title>")) && text.contains(&format!("{}…", "x".repeat(39))));
    }
}
