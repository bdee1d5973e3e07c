//! The files of a catalogue, in the form in which a person would write them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalogue::{PackageType, Pattern};
use crate::error::{Context as _, Result};
use crate::kolla::import::plugins::Plugins;
use crate::kolla::import::source::Carried;
use crate::kolla::import::start::Start;
use crate::kolla::import::toml_text::{key, list, pair, quoted};
use crate::kolla::import::{Draft, Found, Listed, NO_LOGIN, Side, merge, name_of};
use crate::kolla::value::Value;
use crate::kolla::{house, render};

const MACROS: &str = include_str!("kolla.j2");
const PLUGIN: &str = include_str!("plugin.j2");

pub fn catalogue(to: &Path, drafts: &[Draft], plugins: &Plugins, sides: &[Side<'_>], roots: &[PathBuf]) -> Result<()> {
    let recipes = to.join("images/_recipes");
    make(&recipes)?;
    put(&recipes.join("kolla.j2"), MACROS)?;
    if let Some(text) = repositories(drafts) {
        put(&recipes.join("repositories.j2"), &text)?;
    }
    put(&to.join("kollage.toml"), &project(drafts, sides)?)?;
    for draft in drafts {
        let dir = to.join("images").join(name_of(&draft.name, &sides[0]));
        make(&dir)?;
        for found in sides.iter().filter_map(|side| side.images.get(&draft.name)) {
            context(found, &dir, roots)?;
        }
        if let Some((file, _)) = draft.start.as_ref().and_then(Start::moved) {
            let _ = fs::remove_file(dir.join(file));
        }
        if sides[0].settings.patches_path.is_some() {
            house::patches(sides[0].settings, &draft.name, &dir)?;
        }
        for source in draft.taken.sources.values() {
            source.copy(&dir)?;
        }
        put(&dir.join("image.toml"), &definition(draft, sides))?;
        put(&dir.join(render::TEMPLATE), &recipe(draft, sides))?;
        start(draft, to, sides)?;
    }
    if !plugins.all.is_empty() {
        put(&recipes.join("plugin.j2"), PLUGIN)?;
    }
    for (name, (source, _)) in &plugins.all {
        let dir = to.join("plugins").join(name);
        make(&dir)?;
        source.copy(&dir)?;
        let mut text = format!("# [{}] of Kolla {}.\n[plugin]\n", source.name, sides[0].options.tree.version);
        text.push_str(&list("images", &plugins.images(name, &sides[0])));
        text.push_str(&pair("summary", &format!("{name}, which Kolla installs in the middle of its images")));
        text.push_str(&source_table(source));
        put(&dir.join("plugin.toml"), &text)?;
    }
    Ok(())
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).unusable(|| format!("cannot make {}", dir.display()))
}

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).unusable(|| format!("cannot write {}", path.display()))
}

/// The image's own files, from all directories of the tree.
fn context(found: &Found, dir: &Path, roots: &[PathBuf]) -> Result<()> {
    for root in roots {
        let from = root.join(&found.image.path);
        if from.is_dir() {
            house::copy(&from, dir)?;
        }
    }
    // What Python leaves beside its programs is of no use, and differs between machines.
    let _ = fs::remove_dir_all(dir.join("__pycache__"));
    let _ = fs::remove_file(dir.join("Dockerfile"));
    Ok(())
}

fn project(drafts: &[Draft], sides: &[Side<'_>]) -> Result<String> {
    let side = &sides[0];
    let settings = side.settings;
    let value = |name: &str| settings.values.get(name).map(|value| value.to_string()).unwrap_or_default();
    let (base_tag, release) = (value("base_distro_tag"), value("openstack_release"));
    let mut text = format!("# Imported from Kolla {}.\n", side.options.tree.version);
    if sides.len() > 1 {
        text.push_str("# Other distributions that the recipes know:\n");
        for other in &sides[1..] {
            let tag = other.settings.values.get("base_distro_tag").map(|tag| tag.to_string()).unwrap_or_default();
            text.push_str(&format!("#   --set build.base={} --set 'build.base_tag=\"{tag}\"'\n", other.settings.base));
        }
    }
    text.push_str("[build]\n");
    text.push_str(&pair("base", &settings.base));
    text.push_str(&pair("base_tag", &base_tag));
    if !release.is_empty() {
        text.push_str(&pair("release", &release));
    }
    text.push_str(&pair("namespace", &settings.namespace));
    let usual = format!("{release}-{}-{base_tag}", settings.base);
    text.push_str(&pair("tag", if usual == settings.tag { "{release}-{base}-{base_tag}" } else { &settings.tag }));
    if let Value::Dict(args) = side.options.get("DEFAULT", "build_args")?
        && !args.is_empty()
    {
        text.push_str("\n[build.build_args]\n");
        text.extend(args.iter().map(|(name, value)| pair(name, &value.printed())));
    }
    let names: Vec<&str> = drafts.iter().map(|draft| draft.name.as_str()).collect();
    let mut profiles = String::new();
    for profile in side.options.keys("profiles") {
        let entries = side.options.get("profiles", &profile)?;
        let patterns: BTreeSet<String> = entries.texts().filter_map(|entry| pattern(entry, &names, side)).collect();
        if !patterns.is_empty() {
            profiles.push_str(&list(&profile, &patterns.into_iter().collect::<Vec<_>>()));
        }
    }
    if !profiles.is_empty() {
        text.push_str(&format!("\n[profiles]\n{profiles}"));
    }
    let labels = house::labels("", settings);
    let label = |name: &str| labels.get(&format!("org.opencontainers.image.{name}")).and_then(toml::Value::as_str);
    text.push_str("\n# What every image's labels say.\n[vars]\n");
    text.push_str(&pair("maintainer", &settings.maintainer));
    text.push_str(&pair("home", label("url").unwrap_or_default()));
    text.push_str(&pair("license", label("licenses").unwrap_or_default()));
    Ok(text)
}

/// An entry of a profile, which Kolla looks for anywhere in a name, as a pattern for the same images. None: it selects none.
fn pattern(entry: &str, names: &[&str], side: &Side<'_>) -> Option<String> {
    let regex = regex::Regex::new(entry).ok()?;
    let selected: Vec<String> =
        names.iter().filter(|name| regex.is_match(name)).map(|name| name_of(name, side)).collect();
    if selected.is_empty() {
        return None;
    }
    let all: Vec<String> = names.iter().map(|name| name_of(name, side)).collect();
    let whole = entry.trim_matches(['^', '$']);
    let plain = whole.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let globs = [whole.to_owned(), format!("{whole}*"), format!("*{whole}"), format!("*{whole}*")];
    let same = |glob: &String| {
        Pattern::parse(glob).is_ok_and(|glob| all.iter().filter(|name| glob.matches(name)).eq(selected.iter()))
    };
    let short = globs.into_iter().filter(|_| plain).find(same);
    Some(short.unwrap_or_else(|| format!("re:.*(?:{entry}).*")))
}

fn definition(draft: &Draft, sides: &[Side<'_>]) -> String {
    let mut text = String::new();
    let templates: BTreeSet<&Path> =
        sides.iter().filter_map(|side| side.images.get(&draft.name)).map(|found| found.image.path.as_path()).collect();
    for template in templates {
        let version = &sides[0].options.tree.version;
        text.push_str(&format!("# From Kolla {version}, docker/{}/{}.\n", template.display(), render::TEMPLATE));
    }
    text.extend(draft.taken.notes.iter().map(|note| format!("# {note}.\n")));
    text.push_str("[image]\n");
    if draft.kind_base {
        text.push_str(&pair("kind", "base"));
    }
    match (&draft.parent, draft.from.get(&sides[0].settings.base).or_else(|| draft.from.values().next())) {
        (Some(parent), _) => text.push_str(&pair("parent", parent)),
        (None, Some(from)) => text.push_str(&pair("from", from)),
        (None, None) => {}
    }
    if draft.start.is_some() {
        text.push_str(&pair("start", &name_of(&draft.name, &sides[0])));
    }
    text.push_str(&pair("summary", &house::summary(&draft.name)));
    if let Some(user) = &draft.user {
        text.push_str(&format!("\n[user]\n{}uid = {}\ngid = {}\n", pair("name", &user.name), user.uid, user.gid));
        if user.group != user.name {
            text.push_str(&pair("group", &user.group));
        }
        if user.home != format!("/var/lib/{}", user.name) {
            text.push_str(&pair("home", &user.home));
        }
        if user.shell != NO_LOGIN {
            text.push_str(&pair("shell", &user.shell));
        }
        if !user.groups.is_empty() {
            text.push_str(&list("groups", &user.groups));
        }
    }
    if draft.packages.iter().any(|list| !list.is_empty()) {
        text.push_str("\n[packages]\n");
        for (kind, packages) in [PackageType::Deb, PackageType::Rpm].into_iter().zip(&draft.packages) {
            if !packages.is_empty() {
                text.push_str(&list(kind.as_str(), packages));
            }
        }
    }
    text.extend(draft.taken.sources.values().map(source_table));
    if !draft.plugins.is_empty() {
        text.push_str(&format!("\n[plugins]\n{}{}", list("accept", &draft.plugins), list("default", &draft.plugins)));
    }
    text.push_str(&vars(draft));
    if draft.taken.labelled.is_empty() {
        let labels = house::labels(&draft.name, sides[0].settings);
        text.push_str("\n[labels]\n");
        text.extend(labels.iter().filter_map(|(name, value)| Some(pair(name, value.as_str()?))));
    }
    text
}

fn vars(draft: &Draft) -> String {
    let mut text = String::new();
    let distinct: BTreeSet<&String> = draft.from.values().collect();
    for (name, listed) in &draft.lists {
        if let Listed::Same(items) = listed {
            text.push_str(&list(name, items));
        }
    }
    if !draft.plugins.is_empty() && draft.user.is_some() && draft.runs_as_user() {
        text.push_str("runs_as_user = true\n");
    }
    if !text.is_empty() {
        text.insert_str(0, "\n[vars]\n");
    }
    if distinct.len() > 1 {
        text.push_str("\n# What it is built on, by distribution.\n[vars.from]\n");
        text.extend(draft.from.iter().map(|(base, from)| pair(base, from)));
    }
    for (name, listed) in &draft.lists {
        if let Listed::Each(all) = listed {
            text.push_str(&format!("\n[vars.{}]\n", key(name)));
            text.extend(all.iter().map(|(base, items)| list(base, items)));
        }
    }
    if !draft.taken.users.is_empty() {
        text.push_str("\n[vars.users]\n");
        for (name, (uid, gid, group)) in &draft.taken.users {
            let group = if group == name { String::new() } else { format!(", group = {}", quoted(group)) };
            text.push_str(&format!("{} = {{ uid = {uid}, gid = {gid}{group} }}\n", key(name)));
        }
    }
    text
}

fn source_table(source: &Carried) -> String {
    let pairs: String = source.keys.iter().map(|(name, value)| pair(name, value)).collect();
    format!("\n[sources.{}]\n{pairs}", key(&source.name))
}

fn recipe(draft: &Draft, sides: &[Side<'_>]) -> String {
    let bases: Vec<(&str, PackageType)> =
        sides.iter().map(|side| (side.settings.base.as_str(), side.package_type())).collect();
    let names = merge::Names { bases: &bases, there: &draft.there };
    let mut head = "{%- import \"_recipes/kolla.j2\" as macros -%}\n".to_owned();
    if !draft.taken.repositories.is_empty() {
        head.push_str("{%- import \"_recipes/repositories.j2\" as repositories -%}\n");
    }
    head + &names.written(&draft.recipe)
}

/// All repositories that recipes enable, so that an address stands once.
fn repositories(drafts: &[Draft]) -> Option<String> {
    let mut all: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (base, commands) in drafts.iter().flat_map(|draft| &draft.taken.repositories) {
        let commands = commands.iter().map(|(name, command)| (name.as_str(), command.as_str()));
        all.entry(base).or_default().extend(commands);
    }
    if all.is_empty() {
        return None;
    }
    let mut text = "{#- Repositories by their short names: for each distribution the commands that set them up. -#}\n\
                    {%- set commands = {\n"
        .to_owned();
    for (base, commands) in all {
        text.push_str(&format!("    {}: {{\n", literal(base)));
        for (name, command) in commands {
            text.push_str(&format!("        {}: {},\n", literal(name), literal(command)));
        }
        text.push_str("    },\n");
    }
    text.push_str(
        "} -%}\n{%- macro enable(names) -%}\nRUN {% for name in names -%}\n\
         {{ commands[build.base][name] }}{% if not loop.last %} && {% endif %}\n{%- endfor -%}\n{%- endmacro -%}\n",
    );
    Some(text)
}

fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `start-scripts/NAME`: the script, and who the service runs as.
fn start(draft: &Draft, to: &Path, sides: &[Side<'_>]) -> Result<()> {
    let Some(start) = &draft.start else { return Ok(()) };
    let dir = to.join("start-scripts").join(name_of(&draft.name, &sides[0]));
    make(&dir)?;
    put(&dir.join("extend_start.sh"), &start.script)?;
    let from: Vec<String> = start.from.iter().map(|path| format!("docker/{}", path.display())).collect();
    let also = if start.moved.is_some() { "; the image has it as kolla_extend_start, too" } else { "" };
    let mut text = format!(
        "# extend_start.sh is what Kolla {} has in {}{also}.\n# The command is the deployment's.\n[service]\n",
        sides[0].options.tree.version,
        from.join(" and ")
    );
    text.push_str(&pair("summary", &house::summary(&draft.name)));
    if let Some(user) = draft.user.as_ref().filter(|_| draft.runs_as_user()) {
        text.push_str(&format!("\n[user]\n{}uid = {}\ngid = {}\n", pair("name", &user.name), user.uid, user.gid));
    }
    put(&dir.join("start.toml"), &text)
}

impl Draft {
    /// Whether the image's last word on it is that it runs as its user.
    fn runs_as_user(&self) -> bool {
        let last = self.recipe.iter().rev().find(|line| line.part.text.starts_with("USER "));
        last.is_some_and(|line| line.part.text == "USER {{ image.user.name }}")
    }
}
