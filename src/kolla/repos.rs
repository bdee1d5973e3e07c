//! `handle_repos` and `cleanup_repos` of Kolla's templates: repositories by their short names to the shell that sets them
//! up, in the words of the tree's own format strings. Releases differ in what they do; a tree says by its functions which
//! it is.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::Error;
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::tree::{Tree, load};
use crate::kolla::value::{Value, set};

type Entries = Vec<(String, Value)>;

/// What the repositories of one build are chosen by.
#[derive(Debug)]
pub struct Repos {
    /// By name, for this distribution and architecture.
    list: Entries,
    /// What the list would be without a file of one's own.
    defaults: Entries,
    rpm: bool,
    codename: String,
    own_file: bool,
    strings: Vec<(&'static str, String)>,
    /// Files of one's own are merged with the release's, and what a distribution has can be replaced.
    merges: bool,
    /// From 23 on: what was there before a repository that is only for the build is kept and put back.
    keeps: bool,
}

/// The format strings that the tree's methods have.
const STRINGS: [&str; 16] = [
    "APT_ARCH",
    "APT_BACKUP",
    "APT_REPO",
    "APT_TRUSTED",
    "BACKUP_DIR",
    "DNF_BASEURL",
    "DNF_DISABLE",
    "DNF_ENABLE",
    "DNF_GPGCHECK",
    "DNF_GPGKEY",
    "DNF_GPGKEY_ADD",
    "DNF_METALINK",
    "DNF_MIRRORLIST",
    "DNF_REMOVE_EXISTING",
    "DNF_REPO",
    "DNF_REPO_GPGCHECK",
];

impl Repos {
    pub fn of(options: &Options<'_>, settings: &Settings) -> crate::error::Result<Repos> {
        Repos::new(
            options.tree,
            settings.repos_yaml.as_deref().map(Path::new),
            &settings.base_package_type,
            &settings.base,
            &settings.base_arch,
            &settings.openstack_release_codename,
        )
    }

    /// Of this distribution and architecture.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(name, _)| name.as_str())
    }

    fn new(
        tree: &Tree,
        own: Option<&Path>,
        package_type: &str,
        distro: &str,
        arch: &str,
        codename: &str,
    ) -> crate::error::Result<Repos> {
        // What is replaced has to be taken away first, and there is a command for it.
        let merges = tree.methods.text("DNF_REMOVE_EXISTING").is_some();
        let own_data = own.map(load).transpose()?;
        if let (Some(path), Some(data)) = (own, &own_data) {
            sections(path, data)?;
        }
        let data = match (&own_data, merges) {
            (None, _) => tree.repos.clone(),
            (Some(own), false) => own.clone(),
            (Some(own), true) => merged(&tree.repos, own),
        };
        let sections = [package_type.to_owned(), distro.to_owned(), format!("{distro}-{arch}")];
        let backups = tree.methods.text("RPM_BACKUP").map(|text| ("RPM_BACKUP", text.to_owned()));
        Ok(Repos {
            list: flattened(&data, &sections, merges),
            defaults: flattened(&tree.repos, &sections, merges),
            rpm: package_type == "rpm",
            codename: codename.to_lowercase(),
            own_file: own.is_some(),
            strings: STRINGS
                .into_iter()
                .filter_map(|name| Some((name, tree.methods.text(name)?.to_owned())))
                .chain(backups)
                .collect(),
            merges,
            keeps: tree.methods.text("BACKUP_DIR").is_some(),
        })
    }

    /// The commands that enable or disable repositories, as one RUN line; nothing when there is nothing to do.
    pub fn handle(&self, names: &[String], enable: bool) -> Result<String, String> {
        if self.merges && self.rpm && self.own_file {
            self.whole_groups()?;
        }
        let mut commands = String::new();
        let mut kept: BTreeSet<String> = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            let repo = find(&self.list, name).ok_or_else(|| self.no_repo(name))?;
            let more = index + 1 != names.len();
            match (self.rpm, enable) {
                (true, true) => self.enable_rpm(name, repo, &mut kept, &mut commands)?,
                (true, false) if is(repo, "distro") => {
                    commands.push_str(&self.fill("DNF_DISABLE", &[("name", &need(name, repo, "name")?)])?);
                    continue;
                }
                (false, true) if !(self.merges && is(repo, "distro")) => {
                    self.enable_deb(name, repo, &mut kept, &mut commands)?;
                }
                _ => continue,
            }
            if more {
                commands.push_str(" && ");
            }
        }
        Ok(if commands.is_empty() { commands } else { format!("RUN {commands}") })
    }

    fn no_repo(&self, name: &str) -> String {
        let known = self.list.iter().map(|(name, _)| name.as_str());
        match crate::suggest::near(name, known) {
            Some(near) => format!("there is no repository `{name}` for this distribution; {near}"),
            None => format!("there is no repository `{name}` for this distribution"),
        }
    }

    fn enable_rpm(
        &self,
        name: &str,
        repo: &Value,
        kept: &mut BTreeSet<String>,
        out: &mut String,
    ) -> Result<(), String> {
        if is(repo, "distro") {
            out.push_str(&self.fill("DNF_ENABLE", &[("name", &need(name, repo, "name")?)])?);
            return if self.merges { Ok(()) } else { self.addresses(name, repo, out) };
        }
        let own = need(name, repo, "name")?;
        if self.keeps && is(repo, "build_only") {
            let file = self.group(name, repo).unwrap_or_else(|| format!("{name}.repo"));
            if kept.insert(file.clone()) {
                let dir = self.string("BACKUP_DIR")?;
                out.push_str(&self.fill("RPM_BACKUP", &[("backup_dir", dir), ("file", &file)])?);
            }
        }
        if self.merges {
            out.push_str(&self.fill("DNF_REMOVE_EXISTING", &[("name", &own)])?);
            out.push_str(" && ");
        }
        out.push_str(&self.fill("DNF_REPO", &[("name", &own), ("repo", name)])?);
        for (key, format) in [("gpgcheck", "DNF_GPGCHECK"), ("repo_gpgcheck", "DNF_REPO_GPGCHECK")] {
            if is(repo, key) {
                out.push_str(&self.fill(format, &[(key, &need(name, repo, key)?), ("repo", name)])?);
            }
        }
        if self.merges && !["baseurl", "metalink", "mirrorlist"].iter().any(|key| repo.get(key).is_some()) {
            return Err(format!("repository `{name}` has no baseurl, metalink or mirrorlist"));
        }
        for (index, key) in lines(&need(name, repo, "gpgkey")?).enumerate() {
            let format = if index == 0 { "DNF_GPGKEY" } else { "DNF_GPGKEY_ADD" };
            out.push_str(&self.fill(format, &[("gpgkey", key), ("repo", name)])?);
        }
        self.addresses(name, repo, out)
    }

    fn addresses(&self, name: &str, repo: &Value, out: &mut String) -> Result<(), String> {
        if repo.get("baseurl").is_some() {
            for url in lines(&need(name, repo, "baseurl")?) {
                out.push_str(&self.fill("DNF_BASEURL", &[("baseurl", url), ("repo", name)])?);
            }
            return Ok(());
        }
        for (key, format) in [("metalink", "DNF_METALINK"), ("mirrorlist", "DNF_MIRRORLIST")] {
            if repo.get(key).is_some() {
                out.push_str(&self.fill(format, &[(key, &need(name, repo, key)?), ("repo", name)])?);
                return Ok(());
            }
        }
        Ok(())
    }

    fn enable_deb(
        &self,
        name: &str,
        repo: &Value,
        kept: &mut BTreeSet<String>,
        out: &mut String,
    ) -> Result<(), String> {
        if self.keeps && is(repo, "build_only") && kept.insert(name.to_owned()) {
            let dir = self.string("BACKUP_DIR")?;
            out.push_str(&self.fill("APT_BACKUP", &[("backup_dir", dir), ("repo", name)])?);
        }
        let key = need(name, repo, "gpg_key")?;
        let signed_by = if key.starts_with('/') { key.clone() } else { format!("/etc/kolla/apt-keys/{key}") };
        let mut suite = need(name, repo, "suite")?;
        if self.merges {
            suite = suite.replace("{openstack_release_codename}", &self.codename);
        }
        let (component, url) = (need(name, repo, "component")?, need(name, repo, "url")?);
        let values = [
            ("component", component.as_str()),
            ("gpg_key", &key),
            ("signed_by", &signed_by),
            ("suite", &suite),
            ("url", &url),
            ("repo", name),
        ];
        out.push_str(&self.fill("APT_REPO", &values)?);
        if self.merges && is(repo, "trusted") {
            out.push_str(&self.fill("APT_TRUSTED", &[("repo", name)])?);
        }
        if repo.get("arch").is_some() {
            out.push_str(&self.fill("APT_ARCH", &[("arch", &need(name, repo, "arch")?), ("repo", name)])?);
        }
        Ok(())
    }

    /// Puts back what was there before repositories that are only for the build, as one RUN line.
    pub fn cleanup(&self) -> Result<String, String> {
        let mut commands = Vec::new();
        let mut done: BTreeSet<String> = BTreeSet::new();
        for (name, repo) in self.list.iter().filter(|(_, repo)| is(repo, "build_only") && !is(repo, "distro")) {
            let dir = self.string("BACKUP_DIR")?;
            let (file, kept, above) = if self.rpm {
                let own = format!("{name}.repo");
                let group = self.group(name, repo).unwrap_or_else(|| own.clone());
                if group != own {
                    commands.push(format!("rm -f /etc/yum.repos.d/{own}"));
                    if !done.insert(group.clone()) {
                        continue;
                    }
                }
                (group.clone(), group, "/etc/yum.repos.d")
            } else {
                (format!("{name}.sources"), name.clone(), "/etc/apt/sources.list.d")
            };
            commands.push(format!(
                "[ -f {dir}/{kept}.enabled ] && ( mv {dir}/{file} {above}/{file} 2>/dev/null || rm -f {above}/{file} ) || true"
            ));
        }
        if commands.is_empty() {
            return Ok(String::new());
        }
        commands.push(format!("rm -rf {}", self.string("BACKUP_DIR")?));
        Ok(format!("RUN {}", commands.join(" \\\n    && ")))
    }

    /// The file that the distribution keeps this repository in, with others.
    fn group(&self, name: &str, repo: &Value) -> Option<String> {
        let group = |repo: &Value| repo.get("file_group").filter(|g| g.is_true()).map(Value::printed);
        group(repo).or_else(|| find(&self.defaults, name).and_then(group))
    }

    /// Repositories that share a file are replaced together or not at all.
    fn whole_groups(&self) -> Result<(), String> {
        let default = |name: &str| find(&self.defaults, name);
        let replaced = |name: &str, repo: &Value| !is(repo, "distro") && default(name).is_some_and(|d| is(d, "distro"));
        let group = |repo: &Value| repo.get("file_group").map(Value::printed);
        let mut ours: Vec<&str> =
            self.list.iter().filter(|(name, repo)| replaced(name, repo)).map(|(name, _)| name.as_str()).collect();
        let groups: BTreeSet<String> = ours.iter().filter_map(|name| default(name).and_then(group)).collect();
        let mut left: Vec<&str> = self
            .list
            .iter()
            .filter(|(_, repo)| is(repo, "distro") && group(repo).is_some_and(|g| groups.contains(&g)))
            .map(|(name, _)| name.as_str())
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        ours.sort_unstable();
        left.sort_unstable();
        Err(format!(
            "your repos.yaml replaces {} and leaves {} as the distribution has them, but they share one file; \
             replace them too",
            ours.join(", "),
            left.join(", ")
        ))
    }

    fn string(&self, name: &str) -> Result<&str, String> {
        let found = self.strings.iter().find(|(n, _)| *n == name).map(|(_, text)| text.as_str());
        found.ok_or_else(|| format!("the tree's template/methods.py has no string {name}"))
    }

    fn fill(&self, name: &str, values: &[(&str, &str)]) -> Result<String, String> {
        Ok(filled(self.string(name)?, values))
    }
}

fn find<'a>(list: &'a Entries, name: &str) -> Option<&'a Value> {
    list.iter().find(|(n, _)| n == name).map(|(_, repo)| repo)
}

fn is(repo: &Value, key: &str) -> bool {
    repo.get(key).is_some_and(Value::is_true)
}

fn need(name: &str, repo: &Value, key: &str) -> Result<String, String> {
    repo.get(key).map(Value::printed).ok_or_else(|| format!("repository `{name}` has no `{key}`"))
}

/// What Python's `splitlines` gives of such values.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
}

/// Python's `str.format` with names alone.
fn filled(format: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(format.len() + 64);
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        let inside = after.split_once('}').filter(|_| brace == "{");
        match inside.and_then(|(name, after)| Some((values.iter().find(|(n, _)| *n == name)?.1, after))) {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push_str(brace);
                rest = after.strip_prefix(brace).unwrap_or(after);
            }
        }
    }
    out.push_str(rest);
    out
}

/// A file of somebody's has sections with repositories; an empty one has none.
fn sections(path: &Path, data: &Value) -> crate::error::Result<()> {
    let is_table = |value: &Value| matches!(value, Value::None | Value::Dict(_));
    let wrong = |what: String| {
        let hint = "it has sections such as `deb` or `debian-aarch64`, and in them repositories by name";
        Err(Error::bad_input(format!("{} {what}", path.display())).hint(hint))
    };
    if !is_table(data) {
        return wrong("has no sections of repositories".into());
    }
    let repos = data.dict().iter().flat_map(|(_, section)| section.dict());
    match data.dict().iter().chain(repos).find(|(_, value)| !is_table(value)) {
        Some((name, _)) => wrong(format!("has `{name}`, which is no table")),
        None => Ok(()),
    }
}

/// Entries of one's own replace the release's of the same section and name.
fn merged(release: &Value, own: &Value) -> Value {
    let mut sections = release.dict().to_vec();
    for (section, repos) in own.dict() {
        let mut entries = find(&sections, section).map(|old| old.dict().to_vec()).unwrap_or_default();
        for (name, repo) in repos.dict() {
            set(&mut entries, name.clone(), repo.clone());
        }
        set(&mut sections, section.clone(), Value::Dict(entries));
    }
    Value::Dict(sections)
}

fn flattened(data: &Value, sections: &[String], merge: bool) -> Entries {
    let mut list = Entries::new();
    for (name, repo) in sections.iter().flat_map(|section| data.get(section).map(Value::dict).unwrap_or_default()) {
        let Some(old) = find(&list, name).filter(|_| merge) else {
            set(&mut list, name.clone(), repo.clone());
            continue;
        };
        let mut both = old.dict().to_vec();
        for (key, value) in repo.dict() {
            set(&mut both, key.clone(), value.clone());
        }
        // With an address it is no longer what the distribution has.
        if ["baseurl", "metalink", "mirrorlist", "url"].iter().any(|key| both.iter().any(|(k, _)| k == key)) {
            both.retain(|(key, _)| key != "distro");
        }
        set(&mut list, name.clone(), Value::Dict(both));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_python_s() {
        assert_eq!(filled("{a}-{{x}}-{b}", &[("a", "1"), ("b", "{a}")]), "1-{x}-{a}");
        assert_eq!(filled("{unknown} }", &[]), "{unknown} }");
    }
}
