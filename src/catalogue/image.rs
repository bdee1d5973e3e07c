//! `images/<name>/image.toml`, and folders with nothing but a Dockerfile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::diag::{Diagnostics, SourceFile};

use super::base;
use super::definition::{
    Folder, House, Loaded, Tree, check_name, head_of, patterns, quoted, read, read_body, shared_recipe,
};
use super::names;
use super::overlay::{Additions, What};
use super::reader::{Out, Reader, error};
use super::types::{ImageDef, ImageKind, Packages, Parent, Places, PluginRules, Recipe, User};

pub(super) fn load_image(folder: &Folder, house: &House) -> Loaded<ImageDef> {
    let mut problems = Diagnostics::default();
    check_name(folder, "an image", &mut problems);
    if !folder.toml {
        return dockerfile_only(folder, house, problems);
    }
    let file = match &folder.given {
        Some(given) => Some(given.definition.clone()),
        None => read(&folder.dir.join("image.toml"), &mut problems),
    };
    match file {
        Some(file) => read_image(folder, house, file, problems),
        None => Loaded::failed(problems),
    }
}

pub(super) fn read_image(
    folder: &Folder,
    house: &House,
    file: Arc<SourceFile>,
    mut problems: Diagnostics,
) -> Loaded<ImageDef> {
    let Some(tree) = Tree::read(&file, What::Images, &folder.name, house, &mut problems) else {
        return Loaded::failed(problems);
    };
    let Tree { table: entries, place, additions, tried } = tree;
    let mut out = Out { problems, places: BTreeMap::new() };
    let mut root = Reader::new(&entries, &place, &mut out);
    let head = root.table("image", |reader| read_head(reader, folder, house));
    if !root.has("image") {
        let problem = error(&head_of(&file), "there is no [image] table");
        root.out.problems.push(problem.hint("a definition has at least `[image]` with `parent` or `from`"));
    }
    let body = read_body(&mut root, folder);
    let user = root.table("user", read_user).flatten();
    let plugins = root.table("plugins", read_rules).unwrap_or_default();
    root.finish();
    let Out { problems, places } = out;
    let Some(Some(head)) = head else { return Loaded { definition: None, problems, tried } };
    let definition = ImageDef {
        name: folder.name.clone(),
        dir: folder.dir.clone(),
        file,
        kind: head.kind,
        parent: head.parent,
        recipe: head.recipe,
        start: head.start,
        summary: head.summary,
        user,
        packages: body.packages,
        sources: body.sources,
        plugins,
        checks: body.checks,
        env: body.env,
        labels: body.labels,
        ports: head.ports,
        volumes: head.volumes,
        vars: body.vars,
        additions,
        given: folder.given.clone(),
        places: Places(places),
        tree: Arc::new(entries),
    };
    Loaded { definition: Some(definition), problems, tried }
}

struct Head {
    kind: ImageKind,
    parent: Parent,
    recipe: Recipe,
    start: Option<String>,
    summary: String,
    ports: Vec<String>,
    volumes: Vec<String>,
}

fn read_head(reader: &mut Reader<'_>, folder: &Folder, house: &House) -> Option<Head> {
    let kind = reader.choice("kind", &[("base", ImageKind::Base), ("service", ImageKind::Service)]);
    let recipe = image_recipe(reader, folder, house);
    let plain = matches!(recipe, Some(Recipe::Dockerfile(_)));
    let parent = read_parent(reader, house, plain);
    let start = reader.form("start", "a name of a start definition", names::component);
    let summary = reader.string("summary").unwrap_or_default();
    let ports = reader.forms("ports", "a port", names::port);
    let volumes = reader.forms("volumes", "a path in the image", names::absolute);
    Some(Head { kind: kind.unwrap_or_default(), parent: parent?, recipe: recipe?, start, summary, ports, volumes })
}

fn read_parent(reader: &mut Reader<'_>, house: &House, plain: bool) -> Option<Parent> {
    let said: Vec<&str> = ["parent", "from"].into_iter().filter(|k| reader.has(k)).collect();
    let parent = reader.form("parent", "an image of this catalogue", |text| {
        names::component(text).map_err(|why| match text.contains(['/', ':']) {
            true => "one from elsewhere is named with `from`".into(),
            false => why,
        })
    });
    let from = base::read(reader, house);
    if let (true, Some(key)) = (plain, said.first()) {
        let place = reader.key_place(key).unwrap_or(reader.place);
        let hint =
            format!("leave out `{key}`, or rename the Dockerfile to `Dockerfile.j2` and write `FROM {{{{ parent }}}}`");
        let message = format!("`{key}` stands beside a plain Dockerfile, whose FROM names the parent");
        reader.out.problems.push(error(place, message).hint(hint));
        return None;
    }
    match said.as_slice() {
        [] if plain => Some(Parent::Dockerfile),
        [] if reader.has_like("parent") || reader.has_like("from") => None,
        [] => {
            let hint =
                "`parent = \"NAME\"` is an image of this catalogue, `from = \"debian:bookworm\"` one from elsewhere";
            reader.out.problems.push(error(reader.place, "the image has neither `parent` nor `from`").hint(hint));
            None
        }
        [_] => parent.map(Parent::Image).or(from),
        _ => {
            let place = reader.key_place("from").unwrap_or(reader.place);
            let message = "the image has both `parent` and `from`";
            reader.out.problems.push(error(place, message).hint("keep the one that it is built on"));
            None
        }
    }
}

fn image_recipe(reader: &mut Reader<'_>, folder: &Folder, house: &House) -> Option<Recipe> {
    let shared = shared_recipe(reader, folder, house);
    let dockerfile = folder.dir.join("Dockerfile");
    match (shared, folder.template, folder.dockerfile) {
        (Some(shared), _, false) => shared,
        (Some(_), _, true) => {
            let message = format!("`recipe` stands beside `{}`", dockerfile.display());
            reader.out.problems.push(error(reader.value_place("recipe"), message).hint("keep one of them"));
            None
        }
        (None, true, true) => {
            let message = format!("`{}` has both a Dockerfile and a Dockerfile.j2", folder.dir.display());
            reader.out.problems.push(error(reader.place, message).hint("keep one of them"));
            None
        }
        (None, true, false) => Some(Recipe::Own(folder.dir.join("Dockerfile.j2"))),
        (None, false, true) => Some(Recipe::Dockerfile(dockerfile)),
        (None, false, false) => {
            let own = folder.dir.join("Dockerfile.j2");
            let mut hint = format!("write `{}`", own.display());
            if !house.recipes().is_empty() {
                hint.push_str(&format!(", or name a shared one with `recipe`: {}", quoted(house.recipes())));
            }
            reader.out.problems.push(error(reader.place, "the image has no recipe").hint(hint));
            None
        }
    }
}

fn read_user(reader: &mut Reader<'_>) -> Option<User> {
    let name = reader.form("name", "a user name", names::user);
    // 65535 and 4294967295 mean "no user" in system calls.
    let uid: Option<u32> = reader.number("uid", 0..=4_294_967_294);
    let gid: Option<u32> = reader.number("gid", 0..=4_294_967_294);
    let group = reader.form("group", "a group name", names::user);
    let home = reader.form("home", "a path in the image", names::absolute);
    let shell = reader.form("shell", "a path in the image", names::absolute);
    let groups = reader.forms("groups", "a group name", names::user);
    for key in ["name", "uid"] {
        if !reader.has_like(key) {
            reader.out.problems.push(error(reader.place, format!("[user] has no `{key}`")));
        }
    }
    let said = reader.has("gid");
    let (name, uid) = (name?, uid?);
    Some(User {
        gid: if said { gid? } else { uid },
        group: group.unwrap_or_else(|| name.clone()),
        home: home.unwrap_or_else(|| format!("/var/lib/{name}")),
        shell: shell.unwrap_or_else(|| "/usr/sbin/nologin".into()),
        groups,
        name,
        uid,
    })
}

fn read_rules(reader: &mut Reader<'_>) -> PluginRules {
    PluginRules {
        accept: patterns(reader, "accept", "a pattern of plugins"),
        default: reader.forms("default", "a name of a plugin", names::component),
        inherited: reader.boolean("inherited"),
    }
}

fn dockerfile_only(folder: &Folder, house: &House, mut problems: Diagnostics) -> Loaded<ImageDef> {
    let Some(file) = read(&folder.dir.join("Dockerfile"), &mut problems) else { return Loaded::failed(problems) };
    let overlays = house.overlays.iter().enumerate();
    let tried = overlays.flat_map(|(number, overlay)| overlay.refuse(number, &folder.name, &head_of(&file))).collect();
    Loaded { definition: Some(from_dockerfile(&folder.name, &folder.dir, file)), problems, tried }
}

/// A definition that is nothing but a Dockerfile.
pub(super) fn from_dockerfile(name: &str, context: &Path, file: Arc<SourceFile>) -> ImageDef {
    ImageDef {
        name: name.to_owned(),
        dir: context.to_owned(),
        recipe: Recipe::Dockerfile(file.path.clone()),
        file,
        kind: ImageKind::Service,
        parent: Parent::Dockerfile,
        start: None,
        summary: String::new(),
        user: None,
        packages: Packages::default(),
        sources: BTreeMap::new(),
        plugins: PluginRules::default(),
        checks: Vec::new(),
        env: BTreeMap::new(),
        labels: BTreeMap::new(),
        ports: Vec::new(),
        volumes: Vec::new(),
        vars: toml::Table::new(),
        additions: Additions::default(),
        given: None,
        places: Places::default(),
        tree: Arc::default(),
    }
}
