//! `deployment.toml` to checked types, all problems at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::definition::{
    Bundle, Config, ConfigFile, Deployment, Mount, MountSource, Port, Restart, SecretSource, Service, Tasks,
};
use super::order;
use crate::catalogue::definition::{head_of, read as read_file};
use crate::catalogue::names;
use crate::catalogue::reader::{Out, Reader, error};
use crate::catalogue::tree::{self, Value};
use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::error::{Error, Result};
use crate::start::definition::{Takes, Then};
use crate::start::{Definition, Definitions};
use crate::suggest;

/// What a deployment can name besides itself.
pub struct Known<'a> {
    pub services: &'a Definitions,
    /// The images of the catalogue, by name.
    pub images: &'a BTreeMap<String, KnownImage>,
}

pub struct KnownImage {
    pub reference: String,
    /// The start definition that it names.
    pub start: Option<String>,
}

/// Reads a deployment and the configuration that it names.
pub fn load(path: &Path, known: &Known<'_>) -> Result<Deployment> {
    let mut problems = Diagnostics::default();
    let file = read_file(path, &mut problems);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = std::path::absolute(dir)
        .map_err(|why| Error::bad_input(format!("cannot use `{}`", dir.display())).cause(why))?;
    let deployment = file.and_then(|file| read(&file, &dir, known, &mut problems));
    match deployment {
        Some(deployment) if !problems.has_errors() => Ok(deployment),
        _ => Err(Error::from_diagnostics("the deployment has problems; nothing was done", problems)),
    }
}

pub(super) fn read(
    file: &Arc<SourceFile>,
    dir: &Path,
    known: &Known<'_>,
    problems: &mut Diagnostics,
) -> Option<Deployment> {
    let root = tree::parse(file, problems)?;
    let Value::Table(table) = &root.value else { return None };
    let mut out = Out::default();
    let mut root = Reader::new(table, &root.place, &mut out);
    let name = root.table("deployment", |reader| reader.form("name", "a name of a deployment", names::component));
    if name.as_ref().is_none_or(Option::is_none) && !root.has_like("deployment") {
        let problem = error(&head_of(file), "there is no [deployment] table");
        root.out.problems.push(problem.hint("write `[deployment]` with a `name`, which all containers begin with"));
    }
    let bundle = root.table("bundle", |reader| read_bundle(reader, dir)).flatten();
    if bundle.is_none() && !root.has_like("bundle") {
        let problem = error(&head_of(file), "there is no [bundle] table");
        let hint = "write `[bundle]` with `directory`, `volume` or `image`; `kollage start pack -o dir:DIR` makes one";
        root.out.problems.push(problem.hint(hint));
    }
    let everywhere = root.string_map("environment", "a name of a variable", names::env);
    let secrets = read_secrets(&mut root, dir);
    let mut services: Vec<(Service, Places)> = Vec::new();
    let mut names = Vec::new();
    root.tables("service", |reader| {
        if let Some(Value::String(name)) = reader.peek("name").map(|node| &node.value) {
            names.push(name.clone());
        }
        let Some((mut service, places)) = read_service(reader, dir, known, &secrets) else { return };
        if services.iter().any(|(other, _)| other.name == service.name) {
            let message = format!("another service is called `{}` already", service.name);
            reader.out.problems.push(error(reader.value_place("name"), message));
            return;
        }
        for (variable, value) in &everywhere {
            if !service.secrets.contains_key(variable) {
                service.environment.entry(variable.clone()).or_insert_with(|| value.clone());
            }
        }
        services.push((service, places));
    });
    if !root.has_like("service") {
        let problem = error(&head_of(file), "there is no [[service]]");
        root.out.problems.push(problem.hint("a service has a `name` and an `image`"));
    }
    root.finish();
    let services = order::sorted(services, &names, &mut out.problems);
    problems.extend(out.problems);
    Some(Deployment { name: name??, bundle: bundle?, secrets, services })
}

fn read_bundle(reader: &mut Reader<'_>, dir: &Path) -> Option<Bundle> {
    let directory = reader.form("directory", "a directory", plain).map(|path| Bundle::Directory(beside(dir, &path)));
    let volume = reader.form("volume", "a name of a volume", volume_name).map(Bundle::Volume);
    let image = reader.form("image", "a reference of an image", names::reference).map(Bundle::Image);
    let said = ["directory", "volume", "image"].map(|key| reader.has(key)).into_iter().filter(|said| *said).count();
    match said {
        1 => directory.or(volume).or(image),
        _ => {
            let message = "a bundle comes from one of `directory`, `volume` and `image`";
            reader.out.problems.push(error(reader.place, message));
            None
        }
    }
}

fn read_secrets(root: &mut Reader<'_>, dir: &Path) -> BTreeMap<String, SecretSource> {
    let mut secrets = BTreeMap::new();
    root.each("secrets", |name, entry, reader| {
        if let Err(why) = names::component(name) {
            reader.out.problems.push(error(&entry.place, format!("`{name}` is not a name of a secret: {why}")));
        }
        if let Value::String(_) = entry.node.value {
            // Without its place, where the line would be shown.
            let problem =
                Diagnostic::error(format!("{}: the secret `{name}` has its value in this file", entry.place.line()));
            let hint = "write where the value is: { env = \"VARIABLE\" } or { file = \"PATH\" }";
            reader.out.problems.push(problem.hint(hint));
            return;
        }
        let full = reader.name(name);
        let source = reader.table_of(&full, &entry.node, |reader| {
            let variable = reader.form("env", "a name of a variable", names::env).map(SecretSource::Environment);
            let file = reader.form("file", "a path", plain).map(|path| SecretSource::File(beside(dir, &path)));
            if reader.has("env") == reader.has("file") {
                let message = format!("the secret `{name}` has its value from one of `env` and `file`");
                reader.out.problems.push(error(reader.place, message));
            }
            variable.or(file)
        });
        secrets.extend(source.flatten().map(|source| (name.to_owned(), source)));
    });
    secrets
}

/// Where a service says whom it needs.
pub(super) struct Places {
    pub after: Vec<Place>,
}

fn read_service(
    reader: &mut Reader<'_>,
    dir: &Path,
    known: &Known<'_>,
    all_secrets: &BTreeMap<String, SecretSource>,
) -> Option<(Service, Places)> {
    let name = reader.form("name", "a name of a service", names::component);
    let own = match reader.peek("image").map(|node| &node.value) {
        Some(Value::String(image)) => known.images.get(image).and_then(|image| image.start.as_deref()),
        _ => None,
    };
    let image = read_image(reader, known);
    let start = read_start(reader, name.as_deref(), own, known);
    let config = read_config(reader, dir);
    let host_network = reader.choice("network", &[("host", true), ("own", false)]).unwrap_or(false);
    let ports = read_ports(reader, host_network);
    let mounts = read_mounts(reader, dir);
    let environment = reader.string_map("environment", "a name of a variable", names::env);
    let secrets = read_used(reader, all_secrets, &environment, start.as_deref());
    let after = reader.placed_forms("after", "a name of a service", names::component);
    let restart = reader.choice("restart", &Restart::ALL).unwrap_or_default();
    let capabilities = reader.forms("capabilities", "a capability", names::capability);
    let health_timeout = reader.number("health_timeout", 1..=86_400).unwrap_or(300);
    let tasks = read_tasks(reader, start.as_deref());
    for (key, there) in [("name", name.is_some()), ("image", image.is_some())] {
        if !there && !reader.has_like(key) {
            reader.out.problems.push(error(reader.place, format!("a service has no `{key}`")));
        }
    }
    let (after, places) = after.into_iter().unzip();
    let service = Service {
        name: name?,
        image: image?,
        start: start?,
        config,
        host_network,
        ports,
        mounts,
        environment,
        secrets,
        after,
        restart,
        capabilities,
        health_timeout,
        tasks,
    };
    Some((service, Places { after: places }))
}

/// A name of the catalogue, or any reference.
fn read_image(reader: &mut Reader<'_>, known: &Known<'_>) -> Option<String> {
    let text = reader.form("image", "a reference of an image", names::reference)?;
    if let Some(image) = known.images.get(&text) {
        return Some(image.reference.clone());
    }
    if text.contains(['/', ':', '@']) {
        return Some(text);
    }
    let mut problem = error(reader.value_place("image"), format!("the catalogue has no image `{text}`"));
    let near = suggest::near(&text, known.images.keys().map(String::as_str));
    problem.hint = Some(near.unwrap_or_else(|| format!("an image from elsewhere has a tag: `{text}:TAG`")));
    reader.out.problems.push(problem);
    None
}

/// The definition is the one that is named, else the one that its image names, else the one of the service's own name.
fn read_start(
    reader: &mut Reader<'_>,
    name: Option<&str>,
    of_image: Option<&str>,
    known: &Known<'_>,
) -> Option<Arc<Definition>> {
    let said = reader.form("start", "a name of a service", names::component);
    let (wanted, key) = match (&said, of_image, reader.has("start")) {
        (Some(said), _, _) => (said.as_str(), "start"),
        (None, _, true) => return None,
        (None, Some(own), false) => (own, "image"),
        (None, None, false) => (name?, "name"),
    };
    if let Some((_, definition)) = known.services.services.get(wanted) {
        return Some(Arc::new(definition.clone()));
    }
    let mut problem = error(reader.value_place(key), format!("there is no start definition `{wanted}`"));
    let near = suggest::near(wanted, known.services.services.keys().map(String::as_str));
    problem.hint = Some(near.unwrap_or_else(|| "`start` names one of those that `kollage start ls` lists".into()));
    reader.out.problems.push(problem);
    None
}

fn read_config(reader: &mut Reader<'_>, dir: &Path) -> Option<Config> {
    let path = reader.form("config", "a directory", plain);
    let secret = reader.boolean("config_secret");
    let config = beside(dir, &path?);
    let mut files = BTreeMap::new();
    if let Err(why) = gather(&config, "", &mut files) {
        let message = format!("cannot read the configuration in `{}`: {why}", config.display());
        reader.out.problems.push(error(reader.value_place("config"), message));
    }
    Some(Config { dir: config, secret, files })
}

/// Links are followed, as a mount of the directory would have them.
fn gather(dir: &Path, below: &str, files: &mut BTreeMap<String, ConfigFile>) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if below.matches('/').count() > 32 {
        return Err(std::io::Error::other("its directories have no end"));
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| std::io::Error::other(format!("{name:?} is not UTF-8")))?;
        let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        let meta = std::fs::metadata(entry.path()).map_err(|why| std::io::Error::other(format!("{path}: {why}")))?;
        if meta.is_dir() {
            gather(&entry.path(), &path, files)?;
        } else if meta.is_file() {
            let bytes = std::fs::read(entry.path()).map_err(|why| std::io::Error::other(format!("{path}: {why}")))?;
            files.insert(path, ConfigFile { bytes, mode: meta.permissions().mode() & 0o777 });
        } else {
            return Err(std::io::Error::other(format!("{path} is neither a file nor a directory")));
        }
    }
    Ok(())
}

fn read_ports(reader: &mut Reader<'_>, host_network: bool) -> Vec<Port> {
    let texts = reader.forms("ports", "a port", |text| port(text).map(drop));
    if host_network && !texts.is_empty() {
        let problem = error(reader.value_place("ports"), "a service on the host's network has no `ports`");
        reader.out.problems.push(problem.hint("leave them out: it is reached at those that it listens on"));
    }
    texts.iter().filter_map(|text| port(text).ok()).collect()
}

/// `[ADDRESS:]HOST:CONTAINER[/udp]`
fn port(text: &str) -> Result<Port, String> {
    let usage = || "write [ADDRESS:]HOST:CONTAINER, with /udp behind it where it isn't TCP".to_owned();
    let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let (rest, container) = numbers.rsplit_once(':').ok_or_else(usage)?;
    let (address, host) = match rest.rsplit_once(':') {
        Some((address, host)) => (Some(address), host),
        None => (None, rest),
    };
    if let Some(address) = address {
        let plain = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
        plain.parse::<std::net::IpAddr>().map_err(|_| format!("`{address}` isn't an address"))?;
    }
    let number = |text: &str| match text.parse::<u16>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{text}` isn't a port")),
    };
    if !matches!(protocol, "tcp" | "udp") {
        return Err(format!("its protocol is `{protocol}`, not tcp or udp"));
    }
    Ok(Port {
        address: address.map(str::to_owned),
        host: number(host)?,
        container: number(container)?,
        udp: protocol == "udp",
    })
}

fn read_mounts(reader: &mut Reader<'_>, dir: &Path) -> Vec<Mount> {
    let texts = reader.placed_forms("volumes", "a volume", |text| mount(text, dir).map(drop));
    let mut mounts: Vec<Mount> = Vec::new();
    for (text, place) in texts {
        let Ok(mount) = mount(&text, dir) else { continue };
        if mounts.iter().any(|other| other.target == mount.target) {
            reader.out.problems.push(error(&place, format!("something else is at `{}` already", mount.target)));
        }
        mounts.push(mount);
    }
    mounts
}

/// `NAME:PATH[:ro]`, or `./DIR:PATH[:ro]` and `/DIR:PATH[:ro]` for what the host has.
fn mount(text: &str, dir: &Path) -> Result<Mount, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts[..] {
        [source, target] => (source, target, false),
        [source, target, "ro"] => (source, target, true),
        [source, target, "rw"] => (source, target, false),
        _ => return Err("write NAME:PATH or /DIRECTORY:PATH, with :ro behind it where it is only read".into()),
    };
    names::absolute(target).map_err(|why| format!("`{target}` is no place in a container: {why}"))?;
    let target = target.trim_end_matches('/');
    for taken in [super::definition::BUNDLE, super::definition::CONFIG] {
        if target == taken {
            return Err(format!("`{taken}` is where the bundle or the configuration is"));
        }
    }
    let source = match source.starts_with(['/', '.']) {
        true => MountSource::Path(beside(dir, source)),
        false => {
            names::component(source).map_err(|why| format!("`{source}` is no name of a volume: {why}"))?;
            MountSource::Volume(source.to_owned())
        }
    };
    Ok(Mount { source, target: target.to_owned(), read_only })
}

/// The secrets of a service, by variable.
fn read_used(
    reader: &mut Reader<'_>,
    all: &BTreeMap<String, SecretSource>,
    environment: &BTreeMap<String, String>,
    start: Option<&Definition>,
) -> BTreeMap<String, String> {
    let used = reader.string_map("secrets", "a name of a variable", names::env);
    for (variable, secret) in &used {
        let place = reader.out.places.get(&reader.name(&format!("secrets.{variable}"))).cloned();
        let place = place.as_ref().unwrap_or(reader.value_place("secrets"));
        if !all.contains_key(secret) {
            let mut problem = error(place, format!("there is no secret `{secret}`"));
            let near = suggest::near(secret, all.keys().map(String::as_str));
            problem.hint = Some(near.unwrap_or_else(|| "the table [secrets] says where values are".into()));
            reader.out.problems.push(problem);
        } else if environment.contains_key(variable) {
            reader.out.problems.push(error(place, format!("`{variable}` is in `environment` as well")));
        }
    }
    for variable in environment.keys() {
        if start.and_then(|start| start.variables.get(variable)).is_some_and(|known| known.secret) {
            let line = reader.peek("environment").and_then(|node| node.table()?.get(variable.as_str()));
            let line = line.map_or(reader.value_place("environment"), |entry| &entry.place).line();
            let problem =
                Diagnostic::error(format!("{line}: `{variable}` is a secret, whose value must not stand here"));
            let hint = format!("name one of [secrets]: `secrets = {{ {variable} = \"NAME\" }}`");
            reader.out.problems.push(problem.hint(hint));
        }
    }
    used
}

fn read_tasks(reader: &mut Reader<'_>, start: Option<&Definition>) -> Tasks {
    let all = start.iter().flat_map(|start| &start.tasks);
    // One that goes on to be the service has no end to wait for.
    let (ends, goes_on): (Vec<_>, Vec<_>) = all.partition(|task| task.then == Then::End);
    let names: Vec<String> = ends.iter().map(|task| task.name.clone()).collect();
    let usual = |name: &str| if names.iter().any(|n| n == name) { vec![name.to_owned()] } else { Vec::new() };
    let takes = |name: &str, how: Takes| start.and_then(|start| start.task(name)).is_some_and(|t| t.takes == how);
    let mut tasks = Tasks { first: usual("bootstrap"), upgrade: usual("upgrade"), finish: usual("finish-upgrade") };
    if takes("upgrade", Takes::Running) {
        // It is for the new server, as that of a database.
        tasks.finish.splice(0..0, std::mem::take(&mut tasks.upgrade));
    }
    let known = |text: &str| match start.is_none() || names.iter().any(|n| n == text) {
        true => Ok(()),
        false if goes_on.iter().any(|task| task.name == text) => {
            Err("it goes on to start the service, and has no end of its own".into())
        }
        false => Err(suggest::hint(text, names.iter().map(String::as_str))
            .unwrap_or_else(|| "its start definition has no tasks".into())),
    };
    reader.table("tasks", |reader| {
        for (key, list) in [("first", &mut tasks.first), ("upgrade", &mut tasks.upgrade), ("finish", &mut tasks.finish)]
        {
            let fits = |text: &str| match (key, known(text)) {
                ("first", Ok(())) if takes(text, Takes::Running) => {
                    Err("it takes the service running, which it isn't before its first start".into())
                }
                ("finish", Ok(())) if takes(text, Takes::Stopped) => {
                    Err("it takes the service stopped, which it isn't once it is well".into())
                }
                (_, known) => known,
            };
            let said = reader.forms(key, "a task of it", fits);
            if reader.has(key) {
                *list = said;
            }
        }
    });
    tasks
}

fn volume_name(text: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fine) {
        true => Ok(()),
        false => Err("it has letters, digits, `_`, `.` and `-`".into()),
    }
}

/// Of a path on the host: mounts are lines with colons between their parts.
fn plain(text: &str) -> Result<(), String> {
    match text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        true => Err("it is empty, or has a colon or an unprintable character".into()),
        false => Ok(()),
    }
}

/// A path of the deployment's file, made absolute without looking at it.
fn beside(dir: &Path, path: &str) -> PathBuf {
    let mut all = PathBuf::new();
    for part in dir.join(path).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                all.pop();
            }
            part => all.push(part),
        }
    }
    all
}
