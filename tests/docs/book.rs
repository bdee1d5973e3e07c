//! The book as a whole: every page is in SUMMARY.md, and every link leads somewhere.

use std::collections::BTreeSet;
use std::path::Path;

use crate::page::collect;
use crate::{read, root};

/// `](target)` of a page, those of code left out.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut links = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if fenced {
            continue;
        }
        // What is between backticks is code.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        links.extend(plain.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    links
}

/// As mdbook and forges make them of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(|c| kept(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    headings.map(anchor).collect()
}

fn documents() -> Vec<String> {
    let mut names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned).to_vec();
    collect(&root().join("docs"), &mut names);
    names
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for name in documents() {
        let text = read(&name);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(p, a)| (p, Some(a)));
            let folder = Path::new(&name).parent().unwrap();
            let target = if path.is_empty() { root().join(&name) } else { root().join(folder).join(path) };
            let fits =
                |anchor: &str| std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
            if !target.exists() || !anchor.is_none_or(fits) {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let listed: BTreeSet<String> = links(&read("docs/SUMMARY.md")).iter().map(|link| format!("docs/{link}")).collect();
    let mut there = Vec::new();
    collect(&root().join("docs"), &mut there);
    let there: BTreeSet<String> = there.into_iter().filter(|name| name != "docs/SUMMARY.md").collect();
    assert_eq!(listed, there);
}
