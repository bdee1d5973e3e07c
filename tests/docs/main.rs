//! The documentation against the program: every command in a page is run, and where a page shows what comes of it, that
//! has to come of it.
//!
//! A block of ```console is a piece of a session: lines that begin with `$ ` (or `# `, as root) are typed into bash, the
//! lines below are looked for in what the command wrote; `…` stands for anything within a line. All blocks of a page are
//! one session, in an empty directory with a store and a home of its own. A comment above a block says more:
//!
//! - `<!-- file: NAME -->` writes the block, whatever its language, to that file of the session
//! - `<!-- exits: N -->` what the last command of the block exits with
//! - `<!-- needs: network -->` anywhere: the page's session installs Debian packages
//! - `<!-- not run: WHY -->` is an exception, and stands in the list below

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

mod book;
mod page;
#[path = "../common/ready.rs"]
mod ready;
mod reference;
mod session;
use page::{Block, Page, pages};
use session::Session;

/// Pages, and how a block begins that is not run.
const EXCEPTIONS: [(&str, &str); 17] = [
    ("README.md", "make demo"),
    ("README.md", "make test"),
    ("docs/howto/ci.md", "kollage build -p main --push"),
    ("docs/howto/deploy.md", "kollage start pack -o dir:"),
    ("docs/howto/deploy.md", "kollage deploy task mariadb-server backup"),
    ("docs/howto/editor.md", "taplo check"),
    ("docs/howto/export.md", "cd bake && docker buildx bake"),
    ("docs/howto/export.md", "kollage export --format bake -o bake --set build.ca_bundle="),
    ("docs/howto/leave-kolla.md", "kollage import-kolla "),
    ("docs/howto/lock.md", "kollage lock -p demo"),
    ("docs/howto/publish.md", "kollage build -p main --push"),
    ("docs/howto/publish.md", "kollage push 'neutron-*'"),
    ("docs/start-runtime.md", "docker run --user root "),
    ("docs/start-scripts.md", "tools/build-start"),
    ("docs/start-scripts.md", "kollage start check oci:"),
    ("docs/tutorial.md", "apt-get update && apt-get install --yes mmdebstrap git build-essential"),
    ("docs/tutorial.md", "git clone ADDRESS-OF-THE-REPOSITORY kollage && cd kollage"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn run(page: &Page, shared_store: Option<&Path>) {
    let mut session = Session::new(shared_store);
    for block in &page.blocks {
        session.block(page, block);
    }
}

#[test]
fn what_pages_show_without_network_is_what_happens() {
    if !ready::ready(&["bash"]) {
        return;
    }
    let pages = pages();
    let offline: Vec<&Page> = pages.iter().filter(|page| !page.needs_network).collect();
    assert!(offline.iter().flat_map(|page| page.commands()).count() > 20);
    offline.into_iter().for_each(|page| run(page, None));
}

/// They share a store, as they would on a person's machine: a base is made once.
#[test]
fn what_pages_show_with_network_is_what_happens() {
    if !ready::ready(&["bash", "mmdebstrap", "git"]) {
        return;
    }
    let store = tempfile::tempdir().unwrap();
    let pages = pages();
    let online: Vec<&Page> = pages.iter().filter(|page| page.needs_network).collect();
    assert!(!online.is_empty());
    online.into_iter().for_each(|page| run(page, Some(store.path())));
}

#[test]
fn what_is_not_run_is_known() {
    let mut left_out = Vec::new();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.not_run.is_some()) {
            assert!(block.not_run.as_ref().is_some_and(|why| why.len() > 10), "{}: say why", page.name);
            let first = block.commands.first().unwrap_or_else(|| panic!("{}: nothing to leave out", page.name));
            left_out.push((page.name.clone(), first.typed.clone()));
        }
    }
    let is_known = |((page, typed), (known, begins)): (&(String, String), &(&str, &str))| {
        page == known && typed.starts_with(begins)
    };
    let all_known = left_out.iter().zip(&EXCEPTIONS).all(is_known);
    assert!(all_known && left_out.len() == EXCEPTIONS.len(), "{left_out:#?}");
}

#[test]
fn a_page_that_shows_something_else_is_noticed() {
    let text = "```console\n$ echo one; echo two >&2\none\nt…o\n```\n<!-- exits: 3 -->\n```console\n$ exit 3\n```\n";
    let good = Page::parse("good", text);
    assert_eq!(good.blocks.len(), 2);
    run(&good, None);
    for bad in [text.replace("one\n", "three\n"), text.replace("exits: 3", "exits: 4"), text.replace("t…o", "t…x")]
    {
        let page = Page::parse("bad", &bad);
        assert!(std::panic::catch_unwind(|| run(&page, None)).is_err(), "{bad}");
    }
    // Shown lines belong to their own command.
    let swapped = Page::parse("bad", "```console\n$ echo one\ntwo\n$ echo two\none\n```\n");
    assert!(std::panic::catch_unwind(|| run(&swapped, None)).is_err());
    let written = "<!-- file: a/b -->\n```toml\nx = 1\n```\n```console\n$ cat a/b\nx = 1\n```\n";
    run(&Page::parse("good", written), None);
}

/// The text of a file of the repository.
fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

impl Page {
    fn commands(&self) -> impl Iterator<Item = &str> {
        let run = |block: &&Block| block.not_run.is_none();
        self.blocks.iter().filter(run).flat_map(|block| &block.commands).map(|command| command.typed.as_str())
    }
}
