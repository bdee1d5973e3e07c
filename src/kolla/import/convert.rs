//! One instruction of a rendered Dockerfile as a part of a recipe: what is regular becomes an expression over the definition's
//! data, the rest stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::LazyLock;

use minijinja::Value as Shown;
use minijinja::value::Rest;
use regex::Regex;

use crate::catalogue::User;
use crate::kolla::import::merge::Part;
use crate::kolla::import::source::{self, Carried};
use crate::kolla::import::start;
use crate::kolla::import::{Found, NO_LOGIN, Side};
use crate::kolla::pieces::{Kind, Piece, escaped};
use crate::kolla::render;
use crate::kolla::settings::Settings;

/// What is decided about an image before its instructions are looked at one by one, the same for all distributions.
#[derive(Debug, Default)]
pub struct Plan {
    pub user: Option<User>,
    /// What a list is called in the recipe, by Kolla's name of it.
    pub lists: BTreeMap<String, String>,
    /// Whether its plugins are layers of their own.
    pub layered: bool,
    /// The file that is the start definition's from now on, with its mode.
    pub moved: Option<(String, u32)>,
    /// Whether what it is built on differs from one distribution to the other.
    pub several_bases: bool,
    /// How the definition's parent is named in FROM, by distribution.
    pub parent: BTreeMap<String, String>,
    /// Images of the tree as FROM and COPY name them, and as the catalogue does.
    pub names: BTreeMap<String, String>,
}

/// What was taken out of the instructions on the way.
#[derive(Debug, Default)]
pub struct Taken {
    pub lists: BTreeSet<String>,
    pub users: BTreeMap<String, (u32, u32, String)>,
    /// Distributions for which a macro says Kolla's labels.
    pub labelled: BTreeSet<String>,
    /// Repositories that the recipe enables: commands by name, by distribution.
    pub repositories: BTreeMap<String, BTreeMap<String, String>>,
    pub sources: BTreeMap<String, Carried>,
    pub notes: BTreeSet<String>,
}

/// A user as the tree's macro sets it up.
pub fn configured(line: &str) -> Option<User> {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"^RUN usermod --append --home (\S+) --groups kolla (\S+)(?: && usermod --append --groups (\S+) \S+)?(?: && chsh --shell (\S+) \S+)? && mkdir -p \S+ && chown -R (\d+):(\d+) \S+$",
        )
        .ok()
    });
    let found = FORM.as_ref()?.captures(line)?;
    let text = |group: usize| found.get(group).map(|part| part.as_str().to_owned());
    let name = text(2)?;
    let user = User {
        uid: text(5)?.parse().ok()?,
        gid: text(6)?.parse().ok()?,
        group: name.clone(),
        home: text(1)?,
        shell: text(4).unwrap_or_else(|| NO_LOGIN.into()),
        groups: text(3).map(|groups| groups.split(',').map(str::to_owned).collect()).unwrap_or_default(),
        name,
    };
    (configuring(&user) == line).then_some(user)
}

/// What `macros.configure_user` says, in one line.
fn configuring(user: &User) -> String {
    let User { name, uid, gid, home, shell, groups, .. } = user;
    let mut line = format!("RUN usermod --append --home {home} --groups kolla {name}");
    if !groups.is_empty() {
        line.push_str(&format!(" && usermod --append --groups {} {name}", groups.join(",")));
    }
    if shell != NO_LOGIN {
        line.push_str(&format!(" && chsh --shell {shell} {name}"));
    }
    line + &format!(" && mkdir -p {home} && chown -R {uid}:{gid} {home}")
}

/// The users that the base makes, when the instruction does nothing else: uid, gid and group by name.
fn created(line: &str) -> Option<BTreeMap<String, (u32, u32, String)>> {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let form =
            r"^groupadd --gid (\d+) (\S+) && useradd -l -M --shell /usr/sbin/nologin --uid (\d+) --gid (\d+) (\S+)$";
        Regex::new(form).ok()
    });
    let commands: Vec<&str> = line.strip_prefix("RUN ")?.split(" && ").collect();
    let mut users = BTreeMap::new();
    for pair in commands.chunks(2) {
        let pair = pair.join(" && ");
        let found = FORM.as_ref()?.captures(&pair)?;
        if found[1] != found[4] {
            return None;
        }
        users.insert(found[5].to_owned(), (found[3].parse().ok()?, found[1].parse().ok()?, found[2].to_owned()));
    }
    let names: Vec<&String> = users.keys().collect();
    // The order is that of the names, or the recipe would change it.
    let same = commands.len() == 2 * users.len()
        && names.iter().zip(commands.iter().skip(1).step_by(2)).all(|(n, c)| c.ends_with(&format!(" {n}")));
    same.then_some(users)
}

/// The commands that the tree's macro gives for a list of packages.
pub fn install_command(items: &[String], settings: &Settings, clean: bool) -> Option<String> {
    if settings.base_package_type == "rpm" {
        let install = format!("dnf -y install {}", items.join(" "));
        let end = if clean { " \\\n    && dnf clean all && rm -rf /var/cache/dnf" } else { "" };
        return Some(install + end);
    }
    let list: Shown = items.iter().map(String::as_str).collect();
    render::debian_package_install(list, Rest(vec![Shown::from(clean)])).ok()
}

const PIP: &str = "python3 -m pip --no-cache-dir install --upgrade -c /requirements/upper-constraints.txt ";

/// Where in an instruction a list stands, and what takes its place; `name` is what the recipe calls it.
fn placed(raw: &str, items: &[String], name: &str, settings: &Settings) -> Option<(Range<usize>, String)> {
    let joined = items.join(" ");
    let mut forms = Vec::new();
    for (clean, more) in [(true, ""), (false, ", keep_cache=true")] {
        forms.extend(install_command(items, settings, clean).map(|c| (c, format!("macros.install({name}{more})"))));
    }
    forms.push((format!("{PIP}{joined}"), format!("macros.pip({name})")));
    forms.push((joined, format!("{name} | join(\" \")")));
    for (text, expression) in forms {
        let mut found = raw.match_indices(text.as_str()).filter(|(at, _)| {
            let ends = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || matches!(c, ';' | '&' | '|' | ')'));
            ends(raw[..*at].chars().next_back()) && ends(raw[at + text.len()..].chars().next())
        });
        if let (Some((at, _)), None) = (found.next(), found.next()) {
            return Some((at..at + text.len(), format!("{{{{ {expression} }}}}")));
        }
    }
    None
}

/// Whether a list stands in one of the instructions.
pub fn stands(pieces: &[Piece], items: &[String], settings: &Settings) -> bool {
    pieces.iter().any(|piece| piece.keyword == "RUN" && placed(&piece.raw, items, "x", settings).is_some())
}

/// `raw` with some of its ranges replaced by what is template already.
fn replaced(raw: &str, mut changes: Vec<(Range<usize>, String)>) -> String {
    changes.sort_by_key(|(range, _)| range.start);
    let mut out = String::new();
    let mut at = 0;
    for (range, expression) in changes {
        // One list may be a part of another.
        if range.start < at {
            continue;
        }
        out.push_str(&escaped(&raw[at..range.start]));
        out.push_str(&expression);
        at = range.end;
    }
    out + &escaped(&raw[at..])
}

/// The parts of a recipe that an instruction becomes.
pub fn parts(piece: &Piece, found: &Found, side: &Side<'_>, plan: &Plan, taken: &mut Taken) -> Vec<Part> {
    let one = |text: String| vec![Part { comment: piece.comment.clone(), text, kept: false }];
    match &piece.kind {
        Kind::From { image, at } => {
            let name = match plan.names.get(image) {
                _ if plan.parent.get(&side.settings.base) == Some(image) && plan.several_bases => {
                    "{{ image.vars.from[build.base] }}".to_owned()
                }
                _ if plan.parent.get(&side.settings.base) == Some(image) => "{{ parent }}".to_owned(),
                Some(name) => name.clone(),
                None => escaped(image),
            };
            return one(replaced(&piece.raw, vec![(at.clone(), name)]));
        }
        Kind::User(name) if plan.user.as_ref().is_some_and(|user| user.name == *name) => {
            return one("USER {{ image.user.name }}".into());
        }
        Kind::Transfer { source, dest } if piece.keyword == "ADD" => {
            if let Some(texts) = archive(source, dest, found, plan, taken) {
                let mut texts = texts.into_iter();
                let first = texts.next().map(|text| Part { comment: piece.comment.clone(), text, kept: false });
                return first
                    .into_iter()
                    .chain(texts.map(|text| Part { comment: Vec::new(), text, kept: false }))
                    .collect();
            }
        }
        Kind::Transfer { source, dest } if dest == start::MAIN => {
            if let Some((_, mode)) = plan.moved.as_ref().filter(|(file, _)| file == source) {
                let mode = if *mode == 0o644 { String::new() } else { format!("--chmod={mode:04o} ") };
                let end = start::DELIMITER;
                return one(format!("COPY {mode}<<\"{end}\" {dest}\n{{{{ start_script(image.start) }}}}{end}"));
            }
        }
        _ => {}
    }
    // With a prefix an image is labelled by another name than it has in the catalogue.
    let label = source::label(&found.image.name, side.settings);
    let rest = piece.line.strip_prefix(&label).filter(|rest| rest.is_empty() || rest.starts_with(' '));
    if let Some(rest) =
        rest.filter(|_| side.settings.image_name_prefix.is_empty() && !taken.labelled.contains(side.name()))
    {
        taken.labelled.insert(side.name().to_owned());
        let more = if rest.is_empty() { String::new() } else { format!("\nLABEL{}", escaped(rest)) };
        return one(format!("{{{{ macros.labels(image) }}}}{more}"));
    }
    if piece.keyword == "RUN" {
        if plan.user.as_ref().is_some_and(|user| configuring(user) == piece.line) {
            return one("{{ macros.configure_user(image.user) }}".into());
        }
        if let Some(users) = created(&piece.line).filter(|users| taken.users.is_empty() || taken.users == *users) {
            taken.users = users;
            return one("{{ macros.create_users(image.vars.users) }}".into());
        }
        if let Some(enabled) = enabled(&piece.raw, &side.repositories) {
            let names: Vec<String> = enabled.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            taken.repositories.entry(side.settings.base.clone()).or_default().extend(enabled);
            return one(format!("{{{{ repositories.enable([{}]) }}}}", names.join(", ")));
        }
        let mut changes = Vec::new();
        for (what, items) in found.lists.iter().filter(|(_, items)| !items.is_empty()) {
            let Some(name) = plan.lists.get(what) else { continue };
            if let Some(change) = placed(&piece.raw, items, name, side.settings) {
                taken.lists.insert(what.clone());
                changes.push(change);
            }
        }
        if !changes.is_empty() {
            return one(replaced(&piece.raw, changes));
        }
    }
    let mut changes = Vec::new();
    if matches!(piece.keyword, "COPY" | "ADD") {
        for (reference, name) in &plan.names {
            changes.extend(
                piece.raw.match_indices(reference.as_str()).map(|(at, _)| (at..at + reference.len(), name.clone())),
            );
        }
    }
    vec![Part { comment: piece.comment.clone(), text: replaced(&piece.raw, changes), kept: true }]
}

/// The repositories that an instruction enables, if it does nothing else.
fn enabled(raw: &str, repositories: &[(String, String)]) -> Option<Vec<(String, String)>> {
    let mut rest = raw.strip_prefix("RUN ")?;
    let mut names = Vec::new();
    loop {
        let (name, command) = repositories.iter().find(|(_, command)| rest.starts_with(command.as_str()))?;
        names.push((name.clone(), command.clone()));
        rest = &rest[command.len()..];
        if rest.is_empty() {
            return Some(names);
        }
        rest = rest.strip_prefix(" && ")?;
    }
}

/// What ADD of one of kolla-build's archives becomes. None: it is none.
fn archive(source: &str, dest: &str, found: &Found, plan: &Plan, taken: &mut Taken) -> Option<Vec<String>> {
    let mut add = |source: &crate::kolla::sources::Source, into: &str| match Carried::of(source) {
        Ok(carried) => {
            let text = format!("{{{{ macros.add_source(image.sources[\"{}\"], \"{into}\") }}}}", carried.name);
            taken.sources.insert(carried.name.clone(), carried);
            Ok(text)
        }
        Err(why) => {
            taken.notes.insert(why);
            Err(())
        }
    };
    let own = found.sources.own.as_ref();
    if own.is_some_and(|own| source == own.archive()) {
        return own.and_then(|own| add(own, dest).ok()).map(|text| vec![text]);
    }
    let (what, several) = match source {
        "plugins-archive" => ("plugins", &found.sources.plugins),
        "additions-archive" => ("additions", &found.sources.additions),
        _ if source.strip_suffix("-archive") == Some(found.image.name.as_str()) => {
            taken.notes.insert("no source is configured for it; kolla-build would stop there as well".to_owned());
            return None;
        }
        _ => return None,
    };
    let into = format!("{}/{what}", dest.trim_end_matches('/'));
    let mut texts = vec![format!("RUN mkdir -p {into}")];
    if !(what == "plugins" && plan.layered) {
        for source in several {
            texts.push(add(source, &into).ok()?);
        }
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_trees_macro_are_data_and_others_are_not() {
        let line = "RUN usermod --append --home /run/m --groups kolla m && usermod --append --groups a,b m && chsh --shell /bin/sh m && mkdir -p /run/m && chown -R 7:8 /run/m";
        let user = configured(line).unwrap();
        assert_eq!((user.uid, user.gid, user.groups.len(), user.shell.as_str()), (7, 8, 2, "/bin/sh"));
        assert_eq!(configured(&line.replace("mkdir -p /run/m", "mkdir -p /else")), None);
        let line = "RUN groupadd --gid 1 a && useradd -l -M --shell /usr/sbin/nologin --uid 2 --gid 1 b";
        assert_eq!(created(line).unwrap()["b"], (2, 1, "a".to_owned()));
        assert_eq!(created(&format!("{line} && true")), None);
    }

    #[test]
    fn repositories_are_named_when_an_instruction_does_nothing_else() {
        let known =
            [("ab", "add a && add b"), ("a", "add a"), ("c", "add c")].map(|(n, c)| (n.to_owned(), c.to_owned()));
        let names = |raw: &str| {
            enabled(raw, &known).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names("RUN add c && add a && add b").as_deref(), Some("c ab"));
        assert_eq!(names("RUN add a && add c").as_deref(), Some("a c"));
        assert_eq!(names("RUN add a && add d"), None);
        assert_eq!(names("RUN add a && "), None);
    }

    #[test]
    fn text_that_looks_like_a_template_stays_text() {
        assert_eq!(replaced("a ${#b} c d", vec![(8..9, "{{ x }}".into())]), "{% raw %}a ${#b} {% endraw %}{{ x }} d");
    }
}
