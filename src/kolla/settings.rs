//! What a build of a Kolla tree is set to, worked out of its options as kolla-build does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use minijinja::Value as Shown;

use crate::error::{Error, Result};
use crate::kolla::options::Options;
use crate::kolla::render::shown;
use crate::kolla::tree::Tree;
use crate::kolla::value::Value;

#[derive(Clone, Debug)]
pub struct Settings {
    pub base: String,
    pub base_arch: String,
    pub base_package_type: String,
    /// With the registry before it.
    pub namespace: String,
    pub tag: String,
    pub image_name_prefix: String,
    pub maintainer: String,
    pub openstack_release_codename: String,
    pub repos_yaml: Option<String>,
    pub template_override: Vec<String>,
    pub docker_dir: Vec<String>,
    pub patches_path: Option<String>,
    /// The architecture as checksums of sources have it.
    source_arch: String,
    pip_arguments: Vec<&'static str>,
    /// What every template sees.
    pub values: BTreeMap<String, Shown>,
}

impl Settings {
    /// `date` is what `date +%Y%m%d` prints.
    pub fn new(options: &Options<'_>, environment: &BTreeMap<String, String>, date: &str) -> Result<Settings> {
        let text = |key: &str| options.text(key);
        let or_empty = |key: &str| Ok::<String, Error>(options.text(key)?.unwrap_or_default());
        let base = or_empty("base")?;
        let base_image = match options.filled("base_image")? {
            Some(image) => image,
            None => of_base(options.tree, &base, "name").unwrap_or_default(),
        };
        let base_arch = or_empty("base_arch")?;
        let debian_arch = match base_arch.as_str() {
            "aarch64" => "arm64".to_owned(),
            "x86_64" => "amd64".to_owned(),
            other => other.to_owned(),
        };
        let (manager, package_type) = match base.as_str() {
            "debian" | "ubuntu" => ("apt", "deb"),
            _ => ("dnf", "rpm"),
        };
        let manager = text("distro_package_manager")?.unwrap_or_else(|| manager.to_owned());
        let package_type = options.filled("base_package_type")?.unwrap_or_else(|| package_type.to_owned());
        let namespace = match options.filled("registry")? {
            Some(registry) => format!("{registry}/{}", or_empty("namespace")?),
            None => or_empty("namespace")?,
        };
        let pip = [
            ("pip_index_url", "PIP_INDEX_URL"),
            ("pip_trusted_host", "PIP_TRUSTED_HOST"),
            ("pip_extra_index_url", "PIP_EXTRA_INDEX_URL"),
        ];
        let mut pip_arguments = Vec::new();
        for (key, argument) in pip {
            if options.has(key) && options.filled(key)?.is_some() {
                pip_arguments.push(argument);
            }
        }
        let mut settings = Settings {
            base,
            base_arch,
            base_package_type: package_type,
            namespace,
            tag: or_empty("tag")?,
            source_arch: or_empty("debian_arch")?,
            image_name_prefix: or_empty("image_name_prefix")?,
            maintainer: or_empty("maintainer")?,
            openstack_release_codename: or_empty("openstack_release_codename")?,
            repos_yaml: options.filled("repos_yaml")?,
            template_override: options.texts("template_override")?,
            docker_dir: options.texts("docker_dir")?,
            patches_path: options.filled("patches_path")?,
            pip_arguments,
            values: BTreeMap::new(),
        };
        let pretty = options.tree.config.get("DISTRO_PRETTY_NAME").and_then(|all| all.get(&settings.base)).cloned();
        let strings = [
            ("base_distro", settings.base.clone()),
            ("base_image", base_image),
            ("base_distro_tag", or_empty("base_tag")?),
            ("base_arch", settings.base_arch.clone()),
            ("repos_yaml", or_empty("repos_yaml")?),
            ("base_package_type", settings.base_package_type.clone()),
            ("debian_arch", debian_arch),
            ("image_prefix", settings.image_name_prefix.clone()),
            ("namespace", settings.namespace.clone()),
            ("openstack_release", or_empty("openstack_release")?),
            ("openstack_release_codename", settings.openstack_release_codename.clone()),
            ("openstack_branch", or_empty("openstack_branch")?),
            ("openstack_branch_slashed", or_empty("openstack_branch_slashed")?),
            ("tag", settings.tag.clone()),
            ("maintainer", settings.maintainer.clone()),
            ("kolla_version", options.tree.version.clone()),
            ("distro_package_manager", manager),
        ];
        let mut values: BTreeMap<String, Shown> =
            strings.into_iter().map(|(key, value)| (key.to_owned(), Shown::from(value))).collect();
        for key in ["use_dumb_init", "docker_healthchecks", "clean_package_cache"] {
            values.insert(key.into(), Shown::from(options.flag(key)?));
        }
        if options.tree.dated {
            values.insert("build_date".into(), Shown::from(date));
        }
        values.insert("supported_distro_name".into(), shown(&pretty.unwrap_or(Value::None)));
        values.insert("patches_path".into(), Shown::from(text("patches_path")?));
        values.insert("rpm_setup".into(), Shown::from(rpm_setup(&options.texts("rpm_setup_config")?)?));
        values.insert("users".into(), users(options)?);
        values.insert("env".into(), Shown::from_pairs(environment.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
        settings.values = values;
        Ok(settings)
    }

    /// The tree's directories with templates; later ones lie over earlier ones.
    pub fn roots(&self, tree: &Tree) -> Vec<PathBuf> {
        std::iter::once(tree.docker.clone()).chain(self.docker_dir.iter().map(PathBuf::from)).collect()
    }

    /// The architecture as checksums of sources have it.
    pub fn source_arch(&self) -> &str {
        &self.source_arch
    }

    /// What pip is told by ARG, behind the first FROM.
    pub fn with_pip_arguments(&self, text: String) -> String {
        if self.pip_arguments.is_empty() {
            return text;
        }
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let from = |line: &String| {
            line.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("from"))
                && line[4..].starts_with(char::is_whitespace)
        };
        if let Some(at) = lines.iter().position(from) {
            let arguments = self.pip_arguments.iter().map(|name| format!("ARG {name}"));
            lines.splice(at + 1..at + 1, arguments);
        }
        lines.join("\n")
    }

    /// The name and tag of an image of the tree.
    pub fn canonical(&self, image: &str) -> String {
        format!("{}/{}{image}:{}", self.namespace, self.image_name_prefix, self.tag)
    }
}

/// Gives options that follow from others what they are when nobody sets them; addresses of sources refer to them.
pub fn derive(options: &mut Options<'_>) -> Result<()> {
    let text = |options: &Options<'_>, key: &str| Ok::<String, Error>(options.text(key)?.unwrap_or_default());
    let base = text(options, "base")?;
    if let Some(tag) = of_base(options.tree, &base, "tag") {
        options.default("base_tag", tag);
    }
    let release = text(options, "openstack_release")?;
    // Older releases name images after Kolla's own version.
    if options.is_unset("tag") {
        let tag = format!("{release}-{base}-{}", text(options, "base_tag")?);
        options.default("tag", tag);
    }
    let branch = if release == "master" { release } else { format!("stable-{release}") };
    options.default("openstack_branch_slashed", branch.replace('-', "/"));
    options.default("openstack_branch", branch);
    let arch = if text(options, "base_arch")? == "aarch64" { "arm64" } else { "amd64" };
    options.default("debian_arch", arch.to_owned());
    Ok(())
}

/// What the release says of the image that a distribution begins with.
fn of_base(tree: &Tree, base: &str, key: &str) -> Option<String> {
    tree.config.get("DEFAULT_BASE_TAGS")?.get(base)?.get(key).map(Value::printed)
}

fn rpm_setup(configured: &[String]) -> Result<Vec<String>> {
    configured
        .iter()
        .map(|config| {
            Ok(match config.as_str() {
                "" => String::new(),
                rpm if rpm.ends_with(".rpm") => format!("RUN dnf -y install {rpm}"),
                url if url.ends_with(".repo") && url.starts_with("http") => {
                    let file = url.rsplit('/').next().unwrap_or(url);
                    format!("RUN curl -L {url} -o /etc/yum.repos.d/{file}")
                }
                file if file.ends_with(".repo") => format!("COPY {file} /etc/yum.repos.d/"),
                other => {
                    let problem = format!("`rpm_setup_config` has `{other}`, which is neither a .rpm nor a .repo");
                    return Err(Error::bad_input(problem).hint("name files or URLs that end so"));
                }
            })
        })
        .collect()
}

/// All users, those of one's own `[NAME-user]` sections included.
fn users(options: &Options<'_>) -> Result<Shown> {
    let mut users = Vec::new();
    for section in options.sections().into_iter().filter(|section| section.ends_with("-user")) {
        let mut entry = Vec::new();
        for key in ["uid", "gid", "group"] {
            entry.push((key, shown(&options.get(section, key)?)));
        }
        users.push((section.strip_suffix("-user").unwrap_or(section).to_owned(), Shown::from_pairs(entry)));
    }
    Ok(Shown::from_pairs(users))
}
