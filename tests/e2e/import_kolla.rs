//! `kollage import-kolla` on a small tree that is laid out as Kolla's: what was written is a catalogue, does the same step by
//! step for each distribution, and builds the same trees.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kollage::kolla::import::{Side, verify};
use kollage::kolla::options::Options;
use kollage::kolla::settings::{self, Settings};
use kollage::kolla::tree::Tree;

use crate::sandbox::{Ran, Sandbox, is_root};

const CONFIG: &str = r#"
BASE_OS_DISTRO = ['debian', 'rocky']
DEFAULT_BASE_TAGS = {
    'debian': {'name': 'debian', 'tag': 'trixie'},
    'rocky': {'name': 'example.org/rocky', 'tag': '10'},
}
DISTRO_PRETTY_NAME = {'debian': 'Debian', 'rocky': 'Rocky'}
_PROFILE_OPTS = [
    cfg.ListOpt('main', default=['^till', 'nothing']),
]
_CLI_OPTS = [
    cfg.StrOpt('base', default='debian', choices=BASE_OS_DISTRO),
    cfg.StrOpt('base-tag', default='latest'),
    cfg.StrOpt('base-image'),
    cfg.StrOpt('base-arch', default='x86_64'),
    cfg.BoolOpt('use-dumb-init', default=True),
    cfg.BoolOpt('docker-healthchecks', default=True),
    cfg.BoolOpt('clean_package_cache', default=True),
    cfg.StrOpt('maintainer', default='Somebody'),
    cfg.DictOpt('build-args'),
    cfg.StrOpt('namespace', default='shop'),
    cfg.StrOpt('tag'),
    cfg.StrOpt('registry'),
    cfg.StrOpt('openstack-release', default='2026.2'),
    cfg.StrOpt('openstack-branch', default='master'),
    cfg.StrOpt('openstack-branch-slashed'),
    cfg.StrOpt('openstack-release-codename', default='Hibiscus'),
    cfg.StrOpt('work-dir'),
    cfg.StrOpt('repos-yaml'),
    cfg.StrOpt('patches-path'),
    cfg.StrOpt('image-name-prefix', default=''),
    cfg.MultiOpt('template-override'),
    cfg.MultiOpt('docker-dir'),
    cfg.MultiOpt('regex', positional=True),
    cfg.MultiOpt('profile'),
    cfg.BoolOpt('enable-unbuildable', default=False),
]
_BASE_OPTS = [
    cfg.StrOpt('base_package_type'),
    cfg.StrOpt('distro_package_manager'),
    cfg.StrOpt('debian_arch'),
    cfg.StrOpt('apt_sources_list'),
    cfg.StrOpt('apt_preferences'),
    cfg.ListOpt('rpm_setup_config', default=[]),
]
"#;

const SOURCES: &str = r#"
SOURCES = {
    'till-base': {'type': 'local', 'location': '@TREE@/till-1.0'},
    'price': {'type': 'url', 'location': 'https://example.org/price-${openstack_branch}-${debian_arch}.tar.gz'},
    'till-plugin-receipts': {'type': 'local', 'location': '@TREE@/receipts.tar'},
}
"#;

const USERS: &str = "USERS = {'kolla-user': {'uid': 42400, 'gid': 42400}, 'till-user': {'uid': 42411, 'gid': 42412, 'group': 'shop'}}\n";

const REPOS: &str = "deb: {}\ndebian:\n  main: {distro: true}\nrocky:\n  extra: {distro: true, name: extra}\n";

const METHODS: &str = r#"
APT_REPO = 'unused'
DNF_ENABLE = 'dnf config-manager --enable {name}'
DNF_DISABLE = 'dnf config-manager --disable {name}'
"#;

const MACROS: &str = r#"
{% macro install(packages, more='') -%}
{%- if base_package_type == 'rpm' -%}
dnf -y install {{ packages | join(' ') }} \
    && dnf clean all && rm -rf /var/cache/dnf
{%- else -%}
{{ debian_package_install(packages) }}
{%- endif -%}
{%- endmacro %}
{% macro user(name) %}
RUN usermod --append --home /var/lib/{{ name }} --groups kolla {{ name }} \
    && mkdir -p /var/lib/{{ name }} \
    && chown -R {{ users[name].uid }}:{{ users[name].gid }} /var/lib/{{ name }}
{% endmacro %}
{% macro pip(packages) -%}
python3 -m pip --no-cache-dir install --upgrade -c /requirements/upper-constraints.txt {{ packages | join(' ') }}
{%- endmacro %}
"#;

const HEAD: &str = r#"LABEL maintainer="{{ maintainer }}" name="{{ image_name }}"
{% import "macros.j2" as macros with context %}
"#;

const BASE: &str = r#"FROM {{ base_image }}:{{ base_distro_tag }}
@HEAD@
# What the machine lacks.
COPY tools /usr/bin/
{%- for name, user in users | dictsort() %}
{% if loop.first -%}RUN {% else %}    && {% endif -%}
    groupadd --gid {{ user.gid }} {{ user.group }} \
    && useradd -l -M --shell /usr/sbin/nologin --uid {{ user.uid }} --gid {{ user.gid }} {{ name }}
        {%- if not loop.last %} \{% endif -%}
{%- endfor %}

ENV DISTRO={{ base_distro }}
RUN echo 'till:x:42411:42412::/:/bin/sh' >> /etc/passwd && echo {{ '${#DISTRO}' }} > /length
CMD ["sh"]
"#;

const TILL_BASE: &str = r#"FROM {{ namespace }}/{{ image_prefix }}base:{{ tag }}
@HEAD@
{{ macros.user('till') }}
{% if base_package_type == 'rpm' %}
{{ handle_repos(['extra'], 'enable') }}
{% set packages = ['till-libs'] %}
{% else %}
{% set packages = ['libtill1', 'till-data'] %}
{% endif %}
RUN {{ macros.install(packages | customizable('packages')) }}
ADD till-base-archive /till-source
COPY extend_start.sh /usr/local/bin/kolla_extend_start
"#;

const TILL: &str = r#"FROM {{ namespace }}/{{ image_prefix }}till-base:{{ tag }}
@HEAD@
{% set packages = ['cash'] %}
RUN mkdir /till && {{ macros.install(packages | customizable('packages')) }}
{% set pip = ['coins', '/till'] %}
RUN {{ macros.pip(pip | customizable('pip_packages')) }}
ADD plugins-archive /
ADD additions-archive /
COPY extend_start.sh /usr/local/bin/kolla_till_extend_start
RUN if [ "$(ls /plugins)" ]; then \
        {{ macros.pip(['/plugins/*']) }}; \
    fi \
    && chmod 644 /usr/local/bin/kolla_till_extend_start
USER till
"#;

const PRICE: &str = r#"FROM {{ namespace }}/{{ image_prefix }}base:{{ tag }}
LABEL maintainer="{{ maintainer }}" name="{{ image_name }}" more="yes"
ADD price-archive /price-source
RUN echo '{{ base_distro }} {{ '{%' }}' > /price
"#;

/// Stands for the programs of a distribution: what it was called with is in the image.
const TOOL: &str = "#!/bin/sh\necho \"${0##*/} $*\" >> /var/lib/called\n";

fn tree(sandbox: &Sandbox) -> String {
    let root = sandbox.path("tree");
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("@HEAD@", HEAD).replace("@TREE@", root.to_str().unwrap())).unwrap();
    };
    write("kolla/common/config.py", CONFIG);
    write("kolla/common/sources.py", SOURCES);
    write("kolla/common/users.py", USERS);
    write("kolla/image/unbuildable.py", "UNBUILDABLE_IMAGES = {'rocky': {'price'}}\n");
    write("kolla/template/methods.py", METHODS);
    write("kolla/template/repos.yaml", REPOS);
    write("docker/macros.j2", MACROS);
    write("docker/base/Dockerfile.j2", BASE);
    for tool in ["apt-get", "dnf", "groupadd", "useradd", "usermod", "python3"] {
        write(&format!("docker/base/tools/{tool}"), TOOL);
        executable(&root.join(format!("docker/base/tools/{tool}")));
    }
    write("docker/till/till-base/Dockerfile.j2", TILL_BASE);
    write(
        "docker/till/till-base/extend_start.sh",
        "#!/bin/bash\n. /usr/local/bin/kolla_till_extend_start\necho base\n",
    );
    write("docker/till/till/Dockerfile.j2", TILL);
    write("docker/till/till/extend_start.sh", "#!/bin/bash\necho till\n");
    write("docker/price/Dockerfile.j2", PRICE);
    write("till-1.0/setup.py", "print('till')\n");
    write("receipts-2.0/setup.py", "print('receipts')\n");
    let mut tar = tar::Builder::new(fs::File::create(root.join("receipts.tar")).unwrap());
    tar.append_dir_all("receipts-2.0", root.join("receipts-2.0")).unwrap();
    tar.finish().unwrap();
    root.to_str().unwrap().to_owned()
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn import(sandbox: &Sandbox, tree: &str, more: &[&str]) -> Ran {
    sandbox.run(&[&["import-kolla", tree, "-o", "../imported"], more].concat())
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path("imported").join(name)).unwrap()
}

#[test]
fn a_tree_becomes_a_catalogue_that_does_the_same() {
    let sandbox = Sandbox::new();
    let tree = tree(&sandbox);
    let ran = import(&sandbox, &tree, &["--verify"]).ok();
    assert!(ran.stdout.contains("debian: 4 of 4 images do the same as Kolla's"), "{}", ran.stdout);
    assert!(ran.stdout.contains("rocky: 4 of 4 images do the same as Kolla's"), "{}", ran.stdout);
    assert!(ran.stdout.contains("Kolla says that it cannot be built for rocky"), "{}", ran.stdout);

    let till_base = read(&sandbox, "images/till-base/image.toml");
    for line in [
        "kind = \"base\"",
        "parent = \"base\"",
        "uid = 42411",
        "group = \"shop\"",
        "deb = [\"libtill1\", \"till-data\"]",
        "rpm = [\"till-libs\"]",
        "local = \"sources/till-base\"",
    ] {
        assert!(till_base.contains(line), "{line}\n{till_base}");
    }
    let recipe = read(&sandbox, "images/till-base/Dockerfile.j2");
    assert!(recipe.contains("{{ macros.configure_user(image.user) }}"), "{recipe}");
    assert!(
        recipe.contains(
            "{% if build.base_package_type == \"rpm\" %}\n{{ repositories.enable([\"extra\"]) }}\n{% endif %}"
        ),
        "{recipe}"
    );
    let till = read(&sandbox, "images/till/image.toml");
    assert!(
        till.contains("pip_packages = [\"coins\", \"/till\"]") && till.contains("default = [\"receipts\"]"),
        "{till}"
    );
    assert!(read(&sandbox, "plugins/receipts/plugin.toml").contains("images = [\"till\"]"));
    // Addresses refer to what follows from the release.
    let price = read(&sandbox, "images/price/image.toml");
    assert!(price.contains("price-stable-2026.2-amd64.tar.gz"), "{price}");
    // One script, of the image and of the one below it.
    assert_eq!(read(&sandbox, "start-scripts/till/extend_start.sh"), "#!/bin/bash\necho till\necho base\n");
    assert!(read(&sandbox, "start-scripts/till/start.toml").contains("name = \"till\""));
    assert!(read(&sandbox, "kollage.toml").contains("main = [\"till*\"]"));

    let plan = |more: &[&str]| sandbox.run(&[&["-C", "../imported", "plan"], more].concat()).ok();
    assert!(plan(&[]).stdout.contains("till+receipts"));
    plan(&["--set", "build.base=rocky", "--set", "build.base_tag=\"10\""]);
}

/// Without this the comparison would prove nothing.
#[test]
fn a_difference_is_found_and_named() {
    let sandbox = Sandbox::new();
    let tree = tree(&sandbox);
    import(&sandbox, &tree, &[]).ok();
    let root = sandbox.path("imported");
    let differences = || -> Vec<String> {
        let tree = Tree::open(Path::new(&tree)).unwrap();
        let mut options = Options::new(&tree, "x86_64");
        settings::derive(&mut options).unwrap();
        let settings = Settings::new(&options, &BTreeMap::new(), "20261130").unwrap();
        let roots = [tree.docker.clone()];
        let sides = [Side::new(&options, &settings, &roots).unwrap()];
        let verdicts = verify::verify(&root, &sides, &roots).unwrap();
        verdicts.into_iter().flat_map(|one| one.differences).collect()
    };
    assert_eq!(differences(), Vec::<String>::new());
    for (file, from, to, said) in [
        ("images/till-base/image.toml", "\"libtill1\", ", "", "libtill1"),
        ("images/till-base/image.toml", "group = ", "home = \"/elsewhere\"\ngroup = ", "/elsewhere"),
        ("images/till/image.toml", "default = [\"receipts\"]", "default = []", "receipts"),
        ("images/price/image.toml", "2026.2", "2026.1", "price-stable-2026.1"),
        ("images/till/Dockerfile.j2", "USER {{ image.user.name }}", "", "till"),
        ("images/base/tools/dnf", "echo", "true", "tools/dnf"),
    ] {
        let path = root.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let found = differences();
        assert!(found.iter().any(|difference| difference.contains(said)), "{file}: {found:?}");
        fs::write(&path, text).unwrap();
    }
}

#[test]
fn what_is_irregular_stays_and_mistakes_are_named() {
    let sandbox = Sandbox::new();
    let tree = tree(&sandbox);
    // Braces that a template would read, a list that is given twice, a file that is somebody's: all stay as they are.
    let template = Path::new(&tree).join("docker/price/Dockerfile.j2");
    let text = fs::read_to_string(&template).unwrap();
    fs::write(&template, text + "RUN echo {{ ['a'] | customizable('x') | join(' ') }} {{ ['b'] | customizable('x') | join(' ') }} {{ '${#y}' }}\n").unwrap();
    import(&sandbox, &tree, &["--images", "price", "--verify"]).ok();
    let recipe = read(&sandbox, "images/price/Dockerfile.j2");
    assert!(recipe.contains("echo a b ${#y}"), "{recipe}");
    assert!(!sandbox.path("imported/images/till").exists());

    // What was written is never written over.
    import(&sandbox, &tree, &[]).exits(2).says("is not empty");
    assert_eq!(read(&sandbox, "images/price/Dockerfile.j2"), recipe);
    let ran = sandbox.run(&["import-kolla", &tree, "-o", "../other", "--images", "tall"]).exits(2);
    assert!(ran.stderr.contains("did you mean `till`"), "{}", ran.stderr);
    sandbox.run(&["import-kolla", &tree, "-o", "../other", "-b", "debain"]).exits(2).says("debian");
    let several = ["-b", "debian", "-b", "rocky", "--base-image", "x"];
    sandbox.run(&[&["import-kolla", &tree, "-o", "../other"][..], &several].concat()).exits(2).says("one distribution");
    assert!(!sandbox.path("other").exists());
}

#[test]
fn both_build_the_same_trees() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    let tree = tree(&sandbox);
    let base = format!("rootfs:{}", sandbox.path("base.tar").display());
    // Its source is elsewhere.
    let more = ["--images", "till", "-b", "debian", "--base-image", &base, "--verify=build"];
    let ran = import(&sandbox, &tree, &more).ok();
    for image in ["base", "till-base", "till"] {
        assert!(ran.stdout.contains(&format!("{image}: the same tree and configuration")), "{}", ran.stdout);
    }
    assert!(ran.stdout.contains("without their plugins: till"), "{}", ran.stdout);
    // The plugin's layer, too; what it does to the list of calls is nothing that a plugin should do.
    sandbox.run(&["-C", "../imported", "build", "--set", "plugins.allow=[\"receipts\"]"]).ok();
    let ran = sandbox.run(&["-C", "../imported", "run", "till", "cat", "/var/lib/called"]).ok();
    assert!(ran.stdout.contains("usermod --append --home /var/lib/till --groups kolla till"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("install --upgrade -c /requirements/upper-constraints.txt /sources/receipts-2.0"),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_kolla_build_conf_and_overrides_say_is_carried_over() {
    let sandbox = Sandbox::new();
    let tree = tree(&sandbox);
    let sum = "0123456789abcdef".repeat(4);
    let config = format!(
        "[DEFAULT]\nnamespace = mine\n[till-base]\ntype = git\nreference = v1\nlocation = https://git.example/till\n\
         [price]\ntype = url\nlocation = https://me:hidden-word@example.org/price.tar.gz\n\
         [till-plugin-receipts]\nenabled = no\n[till-plugin-coupons]\ntype = url\nversion = 3\n\
         location = https://example.org/coupons-${{version}}.tar.gz\nsha256 = amd64:{sum},arm64:{}\n\
         [till-additions-more]\ntype = local\nlocation = {tree}/till-1.0\n[till-user]\nuid = 7\n\
         [profiles]\nmain = ^price$\n",
        "f".repeat(64)
    );
    let over = "{% extends parent_template %}\n{% set till_base_packages_append = ['of-ours'] %}\n";
    let written = |name: &str, text: &str| {
        fs::write(sandbox.path(name), text).unwrap();
        sandbox.path(name).display().to_string()
    };
    let (config, over) = (written("kolla-build.conf", &config), written("over.j2", over));
    let more = ["-b", "debian", "--config-file", &config, "--template-override", &over, "--verify"];
    let ran = import(&sandbox, &tree, &more).ok();
    assert!(ran.stdout.contains("the address of [price] holds a login"), "{}", ran.stdout);
    assert!(ran.stdout.contains("4 of 4 images do the same as Kolla's"), "{}", ran.stdout);

    let base = read(&sandbox, "images/till-base/image.toml");
    for line in ["git = \"https://git.example/till\"", "ref = \"v1\"", "uid = 7", "\"till-data\", \"of-ours\"]"] {
        assert!(base.contains(line), "{line}\n{base}");
    }
    let till = read(&sandbox, "images/till/image.toml");
    assert!(till.contains("local = \"sources/till-additions-more\"") && !till.contains("receipts"), "{till}");
    assert!(sandbox.path("imported/images/till/sources/till-additions-more/till-1.0/setup.py").is_file());
    let coupons = read(&sandbox, "plugins/coupons/plugin.toml");
    assert!(coupons.contains("url = \"https://example.org/coupons-3.tar.gz\"") && coupons.contains(&sum), "{coupons}");
    assert!(read(&sandbox, "images/price/Dockerfile.j2").contains("ADD price-archive /price-source"));
    let project = read(&sandbox, "kollage.toml");
    assert!(project.contains("namespace = \"mine\"") && project.contains("main = [\"price\"]"), "{project}");
    let found = std::process::Command::new("grep").args(["-rlF", "hidden-word"]).arg(sandbox.path("imported")).output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
    assert!(!ran.stdout.contains("hidden-word") && !ran.stderr.contains("hidden-word"));
}
