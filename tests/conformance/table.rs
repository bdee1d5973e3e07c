//! What came out, for a person: on standard error, and as the Markdown of docs/conformance.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::case::Case;
use crate::compare::Verdict;
use crate::rootless::{Excuse, Ids};

/// The differences, then a line that counts.
pub fn summary(cases: &[Case], verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    for (case, verdict) in cases.iter().zip(verdicts) {
        if let Verdict::Wrong(differences) = verdict {
            writeln!(out, "{} differs:", case.name).unwrap();
            for difference in differences {
                writeln!(out, "    {}", difference.replace('\n', "\n    ")).unwrap();
            }
        }
    }
    let count = Count::of(verdicts.iter());
    writeln!(
        out,
        "{} cases: {} equal, {} meant to differ, {} excused for an ordinary user, {} wrong",
        cases.len(),
        count.equal,
        count.meant,
        count.excused,
        count.wrong
    )
    .unwrap();
    out
}

/// The table of docs/rootless.md: what differs for whom.
pub fn rootless(excuses: &[Excuse]) -> String {
    let mut out = String::from("| ids | what | cases |\n| --- | --- | --- |\n");
    for excuse in excuses {
        let ids: Vec<_> = excuse.ids.iter().map(|ids| ids.name()).collect();
        let names: Vec<_> = excuse.cases.iter().map(|name| format!("`{name}`")).collect();
        writeln!(out, "| {} | {} | {} |", ids.join(", "), excuse.why.replace('\n', " "), names.join(" ")).unwrap();
    }
    let differ = |ids| excuses.iter().filter(|e| e.ids.contains(&ids)).map(|e| e.cases.len()).sum::<usize>();
    writeln!(
        out,
        "\nWith a range {} cases come out otherwise, with a single id {}; all others are as for root.",
        differ(Ids::Range),
        differ(Ids::Single)
    )
    .unwrap();
    out
}

#[derive(Default)]
struct Count {
    equal: usize,
    meant: usize,
    excused: usize,
    wrong: usize,
}

impl Count {
    fn of<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Count {
        let mut count = Count::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Equal => count.equal += 1,
                Verdict::Meant => count.meant += 1,
                Verdict::Excused => count.excused += 1,
                Verdict::Wrong(_) => count.wrong += 1,
            }
        }
        count
    }
}

pub fn markdown(cases: &[Case], verdicts: &[Verdict]) -> String {
    let mut versions: Vec<String> = cases.iter().filter_map(|c| Some(c.expected()?.docker)).collect();
    versions.sort();
    versions.dedup();
    let mut groups: BTreeMap<&str, Vec<(&Case, &Verdict)>> = BTreeMap::new();
    for (case, verdict) in cases.iter().zip(verdicts) {
        groups.entry(case.name.split('/').next().unwrap()).or_default().push((case, verdict));
    }
    let mut out = String::from("# What a Dockerfile means here, and in Docker\n\n");
    writeln!(
        out,
        "Written by `cargo test --test conformance` (see tests/conformance/README.md). Docker's results are those of \
         Docker {} with BuildKit; compared are the whole file tree and the image's configuration, and of cases that \
         must be refused, that they are, with the line named. One difference is excused everywhere, because no \
         process can see it: Docker adds an empty layer for a WORKDIR whose directory is there already, and Kollage \
         adds none.\n",
        versions.join(", ")
    )
    .unwrap();
    out.push_str("| subject | cases | equal | meant to differ | wrong |\n| --- | ---: | ---: | ---: | ---: |\n");
    for (group, members) in &groups {
        let count = Count::of(members.iter().map(|(_, verdict)| *verdict));
        writeln!(out, "| {group} | {} | {} | {} | {} |", members.len(), count.equal, count.meant, count.wrong).unwrap();
    }
    let count = Count::of(verdicts.iter());
    writeln!(out, "| all | {} | {} | {} | {} |", cases.len(), count.equal, count.meant, count.wrong).unwrap();

    out.push_str("\n## Differences\n\n| case | why |\n| --- | --- |\n");
    for (case, verdict) in cases.iter().zip(verdicts) {
        let why = match verdict {
            Verdict::Equal | Verdict::Excused => continue,
            Verdict::Meant => case.settings.differs.clone().unwrap_or_default(),
            Verdict::Wrong(differences) => {
                let first = differences.first().map_or("", |d| d.lines().next().unwrap_or_default());
                format!("wrong: {first}")
            }
        };
        writeln!(out, "| `{}` | {} |", case.name, why.replace('|', "\\|").replace('\n', " ")).unwrap();
    }
    out.push_str("\n## Cases\n");
    for (group, members) in &groups {
        let names: Vec<_> =
            members.iter().map(|(case, _)| case.name.split_once('/').unwrap().1.replace('-', " ")).collect();
        writeln!(out, "\n{group}: {}.", names.join(", ")).unwrap();
    }
    out
}
