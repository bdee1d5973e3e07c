//! The file read and checked, all problems at once.

use std::path::Path;
use std::sync::Arc;

use super::{FILE, Lock, Package, Resolved, SOURCE, Tool, VERSION};
use crate::catalogue::definition::read as read_file;
use crate::catalogue::names;
use crate::catalogue::reader::{Out, Reader, error};
use crate::catalogue::tree::{self, Node, Value};
use crate::diag::{Diagnostics, SourceFile};
use crate::fetch::Pin;
use crate::image::digest::Digest;

/// The lock of a catalogue; an empty one where there is no file.
pub fn load(root: &Path, problems: &mut Diagnostics) -> Lock {
    let path = root.join(FILE);
    match path.exists() {
        true => read_file(&path, problems).and_then(|file| parse(&file, problems)).unwrap_or_default(),
        false => Lock::default(),
    }
}

/// None where there are problems.
pub fn parse(file: &Arc<SourceFile>, problems: &mut Diagnostics) -> Option<Lock> {
    let Node { value: Value::Table(table), place } = tree::parse(file, problems)? else { return None };
    let before = problems.0.len();
    let mut out = Out { problems: std::mem::take(problems), ..Out::default() };
    let mut root = Reader::new(&table, &place, &mut out);
    match root.integer("version") {
        Some(VERSION) => {}
        found => {
            let place = root.value_place("version");
            let message = match found {
                Some(other) => format!("the lock is of version {other}, and this program knows version {VERSION}"),
                None => "the lock does not say its version".into(),
            };
            root.out.problems.push(error(place, message).hint("`kollage lock` writes it anew once it is removed"));
        }
    }
    let mut lock = Lock::default();
    lines(&mut root, "bases", "a digest", |name, value| {
        lock.bases.insert(name.to_owned(), value.parse().ok()?);
        Some(())
    });
    lines(&mut root, "debian", "a time, as 20261130T000000Z", |name, value| {
        is_snapshot(value).then(|| drop(lock.debian.insert(name.to_owned(), value.to_owned())))
    });
    lines(&mut root, "git", "a commit and perhaps the name that led to it", |name, value| {
        let (id, reference) = value.split_once(' ').map_or((value, None), |(id, name)| (id, Some(name)));
        let fine = id.len() >= 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let named = reference.is_none_or(|name| name.starts_with("refs/") && !name.contains(char::is_whitespace));
        let pin = Pin::Commit { id: id.to_owned(), name: reference.map(str::to_owned) };
        (fine && named).then(|| drop(lock.remotes.insert(name.to_owned(), pin)))
    });
    lines(&mut root, "urls", "a digest and perhaps a time", |name, value| {
        let (digest, modified) = value.split_once(' ').map_or((value, None), |(digest, time)| (digest, Some(time)));
        let modified = modified.map(str::parse::<i64>).transpose().ok()?;
        lock.remotes.insert(name.to_owned(), Pin::File { digest: digest.parse().ok()?, modified });
        Some(())
    });
    lines(&mut root, "pypi", "a digest of what was asked, for an image and its platform", |name, value| {
        let fine = !value.is_empty() && value.bytes().all(|b| b.is_ascii_hexdigit());
        (fine && super::parts(name).is_some())
            .then(|| lock.pypi.entry(name.to_owned()).or_default().inputs = value.to_owned())
    });
    let what = "a package with a version and the digests of its files";
    found(&mut root, "packages", what, &mut lock, |resolved, name, value| {
        resolved.packages.insert(name.to_owned(), package(value)?);
        Some(())
    });
    let what = "a package with versions and the digests of their files";
    found(&mut root, "builds", what, &mut lock, |resolved, name, value| {
        let tools: Option<Vec<Tool>> = value.split(", ").map(tool).collect();
        resolved.builds.insert(name.to_owned(), tools?);
        Some(())
    });
    root.finish();
    *problems = out.problems;
    (problems.0.len() == before).then_some(lock)
}

fn lines(root: &mut Reader<'_>, key: &'static str, what: &str, mut take: impl FnMut(&str, &str) -> Option<()>) {
    root.each(key, |name, entry, reader| match &entry.node.value {
        Value::String(value) if take(name, value).is_some() => {}
        Value::String(value) => reader.out.problems.push(error(&entry.node.place, format!("`{value}` is not {what}"))),
        _ => reader.wrong_type(&reader.name(name), &entry.node, "a string"),
    });
}

/// A section with a table for each of the nodes in [pypi].
fn found(
    root: &mut Reader<'_>,
    key: &'static str,
    what: &str,
    lock: &mut Lock,
    take: impl Fn(&mut Resolved, &str, &str) -> Option<()>,
) {
    root.each(key, |node, entry, reader| {
        let Value::Table(table) = &entry.node.value else {
            return reader.wrong_type(&reader.name(node), &entry.node, "a table");
        };
        let Some(resolved) = lock.pypi.get_mut(node) else {
            let message = format!("[pypi] has no line for `{node}`");
            return reader.out.problems.push(error(&entry.place, message).hint("`kollage lock` mends it"));
        };
        for (name, line) in table {
            let taken = match &line.node.value {
                Value::String(value) if is_name(name) => take(resolved, name, value),
                _ => None,
            };
            if taken.is_none() {
                reader.out.problems.push(error(&line.node.place, format!("`{name}` is not {what}")));
            }
        }
    });
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && names::normalised(name) == name && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn package(text: &str) -> Option<Package> {
    let mut words = text.split(' ');
    // It is written into a Dockerfile: nothing else may be.
    let plain = |word: &&str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"!.+-_".contains(&b));
    let version = words.next().filter(plain).filter(|word| word.parse::<pep440_rs::Version>().is_ok())?.to_owned();
    let hashes: Vec<Digest> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    (!hashes.is_empty()).then_some(Package { version, hashes })
}

fn tool(text: &str) -> Option<Tool> {
    let (text, source) = text.strip_suffix(SOURCE).map_or((text, false), |text| (text, true));
    Some(Tool { package: package(text)?, source })
}

/// `20261130T000000Z`
pub fn is_snapshot(text: &str) -> bool {
    let digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    let parts = text.strip_suffix('Z').and_then(|text| text.split_once('T'));
    parts.is_some_and(|(day, time)| digits(day, 8) && digits(time, 6))
}
