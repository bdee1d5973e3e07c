//! What a run would do, node by node, and why; and how long it would take, as far as earlier runs tell.

use std::time::Duration;

use crate::report::human;
use crate::report::style::{Look, Paint};
use crate::report::table::{Cell, Table};
use crate::report::text;

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
    /// What it took the last time; None for what was never timed and what takes none.
    pub expected: Option<Duration>,
}

/// What a time is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// None where nothing was ever timed.
    pub time: Option<Duration>,
    /// Nodes that are not in it.
    pub unmeasured: usize,
}

/// How long the whole takes.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    pub jobs: usize,
    pub run: Expected,
    /// Nodes that wait for each other, in the order in which they are done.
    pub path: Vec<String>,
    pub path_time: Expected,
}

/// A line for each row, in the order given, and what they add up to.
/// `width` is the terminal's; None where lines may have any length.
pub fn render(rows: &[PlanRow], outlook: &Outlook, look: Look, width: Option<usize>) -> String {
    if rows.is_empty() {
        return "nothing is selected\n".to_owned();
    }
    let mut table = Table::new().right(2);
    for row in rows {
        let works = row.action.paint() == Paint::Running;
        // Where some were timed, a gap would look like no time at all.
        let unknown = if works && outlook.run.time.is_some() { "?" } else { "" };
        let paint = row.action.paint();
        let node = if paint == Paint::Dim { Paint::None } else { Paint::Strong };
        table.row([
            Cell::new(row.action.name()).paint(paint),
            Cell::new(row.node.as_str()).paint(node),
            Cell::new(row.expected.map_or(unknown.to_owned(), human::duration)).paint(Paint::Dim),
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
    let mut out = format!("{}\n{}\n", table.render(look, width), look.paint(Paint::Strong, all));
    if work {
        out.push_str(&times(outlook, look, width));
    }
    out
}

/// ```text
/// expected       4m10s with 2 jobs
/// critical path  3m02s: debian:bookworm > base > keystone
/// ```
fn times(outlook: &Outlook, look: Look, width: Option<usize>) -> String {
    let Outlook { jobs, run, path, path_time } = outlook;
    let jobs = human::count(*jobs, "job");
    let expected = match (run.time, run.unmeasured) {
        (None, _) => "not known, nothing of it was built here before".to_owned(),
        (Some(time), 0) => format!("{} with {jobs}", human::duration(time)),
        (Some(time), n) => {
            let verb = if n == 1 { "was" } else { "were" };
            format!("at least {} with {jobs}; {n} {verb} never timed", human::duration(time))
        }
    };
    let time = match (path_time.time, path_time.unmeasured) {
        (None, _) => String::new(),
        (Some(time), 0) => format!("{}: ", human::duration(time)),
        (Some(time), _) => format!("at least {}: ", human::duration(time)),
    };
    let arrow = if look.unicode { " → " } else { " > " };
    let names: Vec<String> = path.iter().map(|name| text::one_line(name)).collect();
    let mut out = String::new();
    // Without any times it is only a guess which one takes longest.
    let chain = if path_time.time.is_some() { "critical path" } else { "longest chain" };
    for (label, value) in [("expected", expected), (chain, format!("{time}{}", names.join(arrow)))] {
        let label = text::pad(label, 15);
        let value = match width {
            Some(width) => text::truncate(&value, width.saturating_sub(15).max(20), look.ellipsis()),
            None => value,
        };
        out.push_str(&format!("{}{value}\n", look.paint(Paint::Dim, label)));
    }
    out
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn row(action: Action, node: &str, parent: Option<&str>, reason: &str) -> PlanRow {
        PlanRow { action, node: node.into(), reason: reason.into(), parent: parent.map(Into::into), expected: None }
    }

    fn seconds(seconds: u64, unmeasured: usize) -> Expected {
        Expected { time: Some(Duration::from_secs(seconds)), unmeasured }
    }

    fn unknown() -> Outlook {
        let nothing = Expected { time: None, unmeasured: 2 };
        Outlook { jobs: 2, run: nothing, path: vec!["debian:bookworm".into(), "keystone".into()], path_time: nothing }
    }

    #[test]
    fn times_are_those_of_earlier_runs_and_say_what_is_not_in_them() {
        let timed = |row: PlanRow, seconds| PlanRow { expected: Some(Duration::from_secs(seconds)), ..row };
        let mut rows = vec![
            row(Action::Reuse, "base", None, "nothing changed"),
            timed(row(Action::Build, "keystone", Some("base"), "its user changed"), 182),
            timed(row(Action::Build, "keystone+ldap", Some("keystone"), "keystone is made first"), 9),
        ];
        let path = vec!["keystone".to_owned(), "keystone+ldap".to_owned()];
        let mut outlook = Outlook { jobs: 1, run: seconds(191, 0), path, path_time: seconds(191, 0) };
        assert_snapshot!(render(&rows, &outlook, Look { color: false, unicode: true }, None), @r#"
        reuse  base                               nothing changed
        build  keystone       3m02s  on base      its user changed
        build  keystone+ldap   9.0s  on keystone  keystone is made first

        2 to build, 1 to reuse
        expected       3m11s with 1 job
        critical path  3m11s: keystone → keystone+ldap
        "#);
        rows.push(row(Action::Build, "web", Some("base"), "not built before"));
        (outlook.jobs, outlook.run) = (2, seconds(191, 1));
        assert_snapshot!(render(&rows, &outlook, Look::PLAIN, Some(60)), @r#"
        reuse  base                               nothing changed
        build  keystone       3m02s  on base      its user changed
        build  keystone+ldap   9.0s  on keystone  keystone is mad...
        build  web                ?  on base      not built before

        3 to build, 1 to reuse
        expected       at least 3m11s with 2 jobs; 1 was never timed
        critical path  3m11s: keystone > keystone+ldap
        "#);
    }

    #[test]
    fn each_node_has_its_action_and_reason() {
        let rows = [
            row(Action::Pull, "debian:bookworm", None, "not in the store"),
            row(Action::Reuse, "base", Some("debian:bookworm"), "nothing changed"),
            row(Action::Build, "keystone", Some("openstack-base"), "its context file policy.yaml changed"),
        ];
        assert_snapshot!(render(&rows, &unknown(), Look::PLAIN, Some(72)), @r#"
        pull   debian:bookworm                      not in the store
        reuse  base             on debian:bookworm  nothing changed
        build  keystone         on openstack-base   its context file policy.y...

        1 to build, 1 to pull, 1 to reuse
        expected       not known, nothing of it was built here before
        longest chain  debian:bookworm > keystone
        "#);
        assert_snapshot!(render(&rows, &unknown(), Look { color: true, unicode: true }, None).replace('\x1b', "^"), @r#"
        ^[33mpull^[0m   ^[1mdebian:bookworm^[0m                      not in the store
        ^[2mreuse^[0m  base             ^[2mon debian:bookworm^[0m  nothing changed
        ^[33mbuild^[0m  ^[1mkeystone^[0m         ^[2mon openstack-base^[0m   its context file policy.yaml changed

        ^[1m1 to build, 1 to pull, 1 to reuse^[0m
        ^[2mexpected       ^[0mnot known, nothing of it was built here before
        ^[2mlongest chain  ^[0mdebian:bookworm → keystone
        "#);
    }

    #[test]
    fn nothing_to_do_is_said() {
        assert_snapshot!(render(&[row(Action::Reuse, "base", None, "nothing changed")], &Outlook::default(), Look::PLAIN, None), @r#"
        reuse  base  nothing changed

        nothing to build: 1 to reuse
        "#);
        assert_snapshot!(render(&[], &Outlook::default(), Look::PLAIN, None), @r#"nothing is selected"#);
    }
}
