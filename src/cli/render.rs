//! `kollage render`: the Dockerfile and the context of each image, for another builder or for a look.

use std::fs;
use std::path::Path;

use crate::cli::App;
use crate::cli::args::Render;
use crate::cli::kolla_build::lent;
use crate::context::EntryKind;
use crate::error::{Context as _, Error, Result};
use crate::graph::node::{Node, Spec};

pub fn run(app: &App, args: &Render) -> Result<u8> {
    let lent = lent(app, &args.tree)?;
    let workspace = lent.workspace(app, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let graph = workspace.graph()?;
    let selected = graph.nodes.iter().filter(|node| node.selected);
    let Some(output) = &args.output else {
        for node in selected {
            if let Some(spec) = node.spec() {
                app.print(&format!("# --- {}\n{}\n", node.name, spec.resolved.dockerfile.file.text.trim_end()))?;
            }
        }
        return Ok(0);
    };
    let mut count = 0;
    for node in selected {
        if let Some(spec) = node.spec() {
            write(node, spec, &output.join(&*node.name))?;
            count += 1;
        }
    }
    app.say(&format!("wrote {} to {}", crate::report::human::count(count, "image"), output.display()));
    Ok(0)
}

/// Replaces what an earlier render wrote there, and refuses to touch a directory that isn't one of its own.
fn write(node: &Node, spec: &Spec, dir: &Path) -> Result<()> {
    let say = || format!("cannot write {}", dir.display());
    if dir.exists() {
        if !dir.join("Dockerfile").is_file() && fs::read_dir(dir).unusable(say)?.next().is_some() {
            return Err(Error::bad_input(format!("{} is there already and no rendered image", dir.display()))
                .hint("name another directory with `-o DIR`"));
        }
        fs::remove_dir_all(dir).unusable(say)?;
    }
    fs::create_dir_all(dir).unusable(say)?;
    for selected in spec.context.select(".", &[]).map_err(|e| e.context(format!("cannot read {}", node.name)))? {
        for entry in &selected.entries {
            let (from, to) = (spec.context.place(&entry.path), dir.join(&entry.path));
            match &entry.kind {
                EntryKind::Directory => fs::create_dir_all(&to).unusable(say)?,
                EntryKind::File => fs::copy(&from, &to).map(drop).unusable(say)?,
                EntryKind::Symlink(target) => std::os::unix::fs::symlink(target, &to).unusable(say)?,
                EntryKind::Other => {}
            }
        }
    }
    for name in ["Dockerfile.j2", "image.toml", "plugin.toml"] {
        // They are what the Dockerfile was made from, and no part of what it is built from.
        let _ = fs::remove_file(dir.join(name));
    }
    fs::write(dir.join("Dockerfile"), &spec.resolved.dockerfile.file.text).unusable(say)
}
