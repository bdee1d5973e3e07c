//! What a run would do, node by node, and why.

use crate::report::style::{Look, Paint};
use crate::report::table::{Cell, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Build,
    /// A base that is made here.
    Bootstrap,
    /// A base that comes from a registry or an archive.
    Pull,
    Reuse,
    Skip,
}

impl Action {
    const ALL: [Action; 5] = [Action::Build, Action::Bootstrap, Action::Pull, Action::Reuse, Action::Skip];

    pub fn name(self) -> &'static str {
        match self {
            Action::Build => "build",
            Action::Bootstrap => "bootstrap",
            Action::Pull => "pull",
            Action::Reuse => "reuse",
            Action::Skip => "skip",
        }
    }

    fn paint(self) -> Paint {
        match self {
            Action::Build | Action::Bootstrap | Action::Pull => Paint::Running,
            Action::Reuse | Action::Skip => Paint::Dim,
        }
    }
}

#[derive(Clone, Debug)]
pub struct PlanRow {
    pub action: Action,
    pub node: String,
    /// In plain words: `its context file start.sh changed`.
    pub reason: String,
    pub parent: Option<String>,
}

/// A line for each row, in the order given, and what they add up to.
/// `width` is the terminal's; None where lines may have any length.
pub fn render(rows: &[PlanRow], look: Look, width: Option<usize>) -> String {
    if rows.is_empty() {
        return "nothing is selected\n".to_owned();
    }
    let mut table = Table::new();
    for row in rows {
        let paint = row.action.paint();
        let node = if paint == Paint::Dim { Paint::None } else { Paint::Strong };
        table.row([
            Cell::new(row.action.name()).paint(paint),
            Cell::new(row.node.as_str()).paint(node),
            Cell::new(row.parent.as_ref().map_or_else(String::new, |p| format!("on {p}"))).paint(Paint::Dim),
            Cell::new(row.reason.as_str()),
        ]);
    }
    let counts: Vec<String> = Action::ALL
        .into_iter()
        .map(|action| (action, rows.iter().filter(|row| row.action == action).count()))
        .filter(|(_, n)| *n > 0)
        .map(|(action, n)| format!("{n} to {}", action.name()))
        .collect();
    let work = rows.iter().any(|row| row.action.paint() == Paint::Running);
    let all = if work { counts.join(", ") } else { format!("nothing to build: {}", counts.join(", ")) };
    format!("{}\n{}\n", table.render(look, width), look.paint(Paint::Strong, all))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn row(action: Action, node: &str, parent: Option<&str>, reason: &str) -> PlanRow {
        PlanRow { action, node: node.into(), reason: reason.into(), parent: parent.map(Into::into) }
    }

    #[test]
    fn each_node_has_its_action_and_reason() {
        let rows = [
            row(Action::Pull, "debian:bookworm", None, "not in the store"),
            row(Action::Reuse, "base", Some("debian:bookworm"), "nothing changed"),
            row(Action::Build, "keystone", Some("openstack-base"), "its context file policy.yaml changed"),
        ];
        assert_snapshot!(render(&rows, Look::PLAIN, Some(72)), @r#"
        pull   debian:bookworm                      not in the store
        reuse  base             on debian:bookworm  nothing changed
        build  keystone         on openstack-base   its context file policy.y...

        1 to build, 1 to pull, 1 to reuse
        "#);
        assert_snapshot!(render(&rows, Look { color: true, unicode: true }, None).replace('\x1b', "^"), @r#"
        ^[33mpull^[0m   ^[1mdebian:bookworm^[0m                      not in the store
        ^[2mreuse^[0m  base             ^[2mon debian:bookworm^[0m  nothing changed
        ^[33mbuild^[0m  ^[1mkeystone^[0m         ^[2mon openstack-base^[0m   its context file policy.yaml changed

        ^[1m1 to build, 1 to pull, 1 to reuse^[0m
        "#);
    }

    #[test]
    fn nothing_to_do_is_said() {
        assert_snapshot!(render(&[row(Action::Reuse, "base", None, "nothing changed")], Look::PLAIN, None), @r#"
        reuse  base  nothing changed

        nothing to build: 1 to reuse
        "#);
        assert_snapshot!(render(&[], Look::PLAIN, None), @r#"nothing is selected"#);
    }
}
