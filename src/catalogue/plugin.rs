//! `plugins/<name>/plugin.toml`.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use pep440_rs::VersionSpecifiers;

use crate::diag::{Diagnostics, SourceFile};

use super::definition::{Folder, House, Loaded, Tree, check_name, head_of, patterns, read, read_body, shared_recipe};
use super::names;
use super::overlay::What;
use super::pattern::Pattern;
use super::reader::{Out, Reader, error};
use super::tree;
use super::types::{Places, PluginDef, Recipe};

pub(super) fn load_plugin(folder: &Folder, house: &House) -> Loaded<PluginDef> {
    let mut problems = Diagnostics::default();
    check_name(folder, "a plugin", &mut problems);
    match read(&folder.dir.join("plugin.toml"), &mut problems) {
        Some(file) => read_plugin(folder, house, file, problems),
        None => Loaded::failed(problems),
    }
}

pub(super) fn read_plugin(
    folder: &Folder,
    house: &House,
    file: Arc<SourceFile>,
    mut problems: Diagnostics,
) -> Loaded<PluginDef> {
    let Some(tree) = Tree::read(&file, What::Plugins, &folder.name, house, &mut problems) else {
        return Loaded::failed(problems);
    };
    let Tree { table: entries, place, additions, tried } = tree;
    let mut out = Out { problems, places: BTreeMap::new() };
    let mut root = Reader::new(&entries, &place, &mut out);
    let head = root.table("plugin", |reader| PluginHead {
        summary: reader.string("summary").unwrap_or_default(),
        images: patterns(reader, "images", "a pattern of images"),
        images_said: reader.has("images"),
        requires: reader.forms("requires", "a name of a plugin", names::component),
        conflicts: reader.forms("conflicts", "a name of a plugin", names::component),
        changes: reader.forms("changes", "a pattern of files", crate::fit::check_pattern),
        needs: reader.string_map("needs", "a name of a distribution on PyPI", names::requirement),
        order: reader.number("order", -1_000_000..=1_000_000).unwrap_or(50),
        recipe: plugin_recipe(reader, folder, house),
    });
    if head.as_ref().is_none_or(|h| !h.images_said) {
        let place = match root.has("plugin") {
            true => root.value_place("plugin").clone(),
            false => head_of(&file),
        };
        let hint = "add `images = [\"…\"]` to [plugin]: names or globs of service images";
        root.out.problems.push(error(&place, "the plugin does not say what it may be put on").hint(hint));
    }
    for (distribution, range) in head.iter().flat_map(|head| &head.needs) {
        let Some(node) = tree::get(&entries, &["plugin", "needs", distribution]) else { continue };
        if VersionSpecifiers::from_str(range).is_err() {
            let message = format!("`{range}` is not a range of versions");
            root.out.problems.push(error(&node.place, message).hint("for example `>=28,<30`"));
        }
    }
    let body = read_body(&mut root, folder);
    root.finish();
    let Out { problems, places } = out;
    let Some(head) = head else { return Loaded { definition: None, problems, tried } };
    let Some(recipe) = head.recipe else { return Loaded { definition: None, problems, tried } };
    let definition = PluginDef {
        name: folder.name.clone(),
        dir: folder.dir.clone(),
        file,
        summary: head.summary,
        images: head.images,
        requires: head.requires,
        conflicts: head.conflicts,
        changes: head.changes,
        needs: head.needs,
        order: head.order,
        recipe,
        packages: body.packages,
        sources: body.sources,
        checks: body.checks,
        env: body.env,
        labels: body.labels,
        vars: body.vars,
        additions,
        places: Places(places),
        tree: Arc::new(entries),
    };
    Loaded { definition: Some(definition), problems, tried }
}

struct PluginHead {
    summary: String,
    images: Vec<Pattern>,
    images_said: bool,
    requires: Vec<String>,
    conflicts: Vec<String>,
    changes: Vec<String>,
    needs: BTreeMap<String, String>,
    order: i32,
    recipe: Option<Recipe>,
}

fn plugin_recipe(reader: &mut Reader<'_>, folder: &Folder, house: &House) -> Option<Recipe> {
    match shared_recipe(reader, folder, house) {
        Some(shared) => return shared,
        None if folder.template => return Some(Recipe::Own(folder.dir.join("Dockerfile.j2"))),
        None if house.recipes().iter().any(|r| r == "plugin") => return Some(Recipe::Shared("plugin".into())),
        None => {}
    }
    let hint = match folder.dockerfile {
        true => {
            "rename its Dockerfile to `Dockerfile.j2` and write `FROM {{ parent }}`: it is put on several images".into()
        }
        false => format!(
            "write `{}`, or `{}` for all plugins",
            folder.dir.join("Dockerfile.j2").display(),
            house.path("images/_recipes/plugin.j2").display()
        ),
    };
    reader.out.problems.push(error(reader.place, "the plugin has no recipe").hint(hint));
    None
}
