//! Settings from several files and the command line, bases, single Dockerfiles, and `init`.

use insta::assert_snapshot;

use super::super::*;
use super::Tree;
use crate::engine::BaseSource;

#[test]
fn layers_of_settings() {
    let tree = Tree::with(&[
        ("kollage.toml", "[build]\nnamespace = \"project\"\nrelease = \"1\"\n[build.build_args]\nA = \"project\"\n"),
        (
            "user.toml",
            "[build]\nnamespace = \"user\"\nregistry = \"registry.example.org\"\nca_bundle = \"ca.pem\"\n\
             [build.build_args]\nA = \"user\"\nB = \"user\"\n",
        ),
        (
            "system.toml",
            "[build]\nretries = 7\nregistry = \"lower.example.org\"\n\
             [policy]\nregistries = [\"registry.example.org\", \"docker.io\"]\n",
        ),
    ]);
    let config =
        ConfigFiles { user: Some(tree.path().join("user.toml")), system: Some(tree.path().join("system.toml")) };
    let mut overrides = Overrides::new();
    overrides.string("KOLLAGE_TAG", "build.tag", "{release}-env");
    overrides.string("--tag", "build.tag", "{release}-line");
    overrides.value("--jobs", "build.jobs", 3);
    overrides.set("--set", "build.compression=zstd").unwrap();
    overrides.set("--set", "vars.n = 2").unwrap();
    overrides.plugins("--plugin", "keystone", &[]);
    overrides.build_arg("--build-arg", "B", "line");
    let catalogue = Catalogue::load(tree.path(), &overrides, &config).unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    let build = &catalogue.settings.build;
    assert_eq!((build.namespace.as_str(), build.tag.as_str()), ("project", "1-line"));
    assert_eq!((build.retries, build.jobs), (7, Some(3)));
    assert_eq!(build.registry.as_deref(), Some("registry.example.org"));
    assert_eq!(build.ca_bundle, CaBundle::Path(tree.path().join("ca.pem")));
    assert_eq!(build.compression, crate::image::store::Codec::Zstd);
    let args: Vec<String> = build.build_args.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(args, ["A=project", "B=line"]);
    assert_eq!(catalogue.settings.vars["n"].as_integer(), Some(2));
    assert_eq!(catalogue.settings.image_plugins["keystone"], Vec::<String>::new());
    assert!(!catalogue.settings.policy.allows_registry("example.com"));
}

#[test]
fn the_command_line_has_places_too() {
    let tree = Tree::with(&[]);
    let mut overrides = Overrides::new();
    overrides.set("--set", "build.jbos=3").unwrap();
    overrides.set("--set", "build.retries = many").unwrap();
    overrides.set("--set", "policy.engines=[]").unwrap();
    overrides.string("--namespace", "build.namespace", "A");
    overrides.build_arg("--build-arg", "A.dot", "x");
    overrides.plugins("--plugin", "keystone", &["nope".into()]);
    overrides.plugins("--plugin", "keystnoe", &["nope".into()]);
    assert_snapshot!(tree.show(&tree.load_with(&overrides).unwrap_err()), @r##"
error: `A.dot` is not a name of a build argument: it contains '.'; only letters, digits and `_` are allowed
  at --build-arg:1:1: A.dot=x
error: `A` is not a namespace of images: it has a capital letter, `A`
  at --namespace:1:1: A
error: unknown image `keystnoe`
  at --plugin:1:1: keystnoe=nope
  hint: did you mean `keystone`?
error: unknown plugin `nope`
  at --plugin:1:10: nope
  hint: there are no plugins in `plugins/`
error: [policy] is the operator's and cannot be set here
  at --set:1:1: policy.engines=[]
  hint: it is read from `/etc/kollage/kollage.toml` only
error: unknown key `jbos` in [build]
  at --set:1:1: build.jbos=3
  hint: did you mean `jobs`?
error: `build.retries` should be an integer, not a string
  at --set:1:17: many
"##);
    assert_snapshot!(tree.show(&Diagnostics(vec![overrides.set("--set", "nonsense").unwrap_err()])), @r##"
error: `--set nonsense` is not of the form `key.key=value`
  at --set:1:1: nonsense
  hint: for example `--set build.namespace=acme`
"##);
    assert_snapshot!(tree.show(&Diagnostics(vec![overrides.set("--set", "a..b=1").unwrap_err()])), @r##"
error: `--set a..b=1` is not of the form `key.key=value`
  at --set:1:1: a..b=1
  hint: for example `--set build.namespace=acme`
"##);
}

#[test]
fn the_policy_is_the_operators() {
    let tree = Tree::with(&[
        (
            "kollage.toml",
            "[engine]\ndefault = \"docker\"\n[build]\nregistry = \"example.org/team\"\n[policy]\nengines = [\"docker\"]\n",
        ),
        ("system.toml", "[policy]\nengines = [\"embedded\"]\nregistries = [\"registry.example.org\"]\n"),
    ]);
    let config = ConfigFiles { user: None, system: Some(tree.path().join("system.toml")) };
    let problems = Catalogue::load(tree.path(), &Overrides::new(), &config).unwrap_err();
    assert_snapshot!(tree.show(&problems), @r##"
error: the operator's policy does not allow the registry `docker.io`
  at images/base/image.toml:3:8: "debian:bookworm"
  hint: [policy] in system.toml allows `registry.example.org`
error: the operator's policy does not allow the registry `example.org`
  at kollage.toml:4:12: "example.org/team"
  hint: [policy] in system.toml allows `registry.example.org`
error: [policy] is the operator's and cannot be set here
  at kollage.toml:5:2: policy
  hint: it is read from `system.toml` only
"##);
    // Which engine builds is known only when the command line was read.
    let chosen = "[engine]\ndefault = \"docker\"\n";
    let tree = Tree::with(&[("kollage.toml", chosen), ("system.toml", "[policy]\nengines = [\"embedded\"]\n")]);
    let config = ConfigFiles { user: None, system: Some(tree.path().join("system.toml")) };
    let settings = Catalogue::load(tree.path(), &Overrides::new(), &config).unwrap().settings;
    assert!(settings.refuse_engine(EngineName::Embedded, false).is_none());
    let problem = settings.refuse_engine(EngineName::Docker, true).unwrap();
    assert_snapshot!(tree.show(&Diagnostics(vec![problem])), @r##"
error: the operator's policy does not allow the engine `docker`
  at kollage.toml:2:11: "docker"
  hint: [policy] in system.toml allows `embedded`
"##);
    assert!(settings.refuse_engine(EngineName::Docker, false).unwrap().place.is_none());
}

#[test]
fn bases_that_differ_have_references_that_differ() {
    let image = |from: &str| format!("[image]\nfrom = {from}\nrecipe = \"service\"\n");
    let tree = Tree::with(&[
        ("images/a/image.toml", &image("{ bootstrap = \"debian\", suite = \"bookworm\" }")),
        ("images/b/image.toml", &image("\"bootstrap:debian/bookworm\"")),
        ("images/c/image.toml", &image("{ bootstrap = \"debian\", suite = \"bookworm\", packages = [\"curl\"] }")),
        ("images/d/image.toml", &image("{ oci = \"bases/x\", ref = \"v1\" }")),
        ("images/e/image.toml", &image("\"oci:bases/x:v1\"")),
        ("images/f/image.toml", &image("{ rootfs = \"x.tar\" }")),
    ]);
    let catalogue = tree.load().unwrap();
    let parent = |name: &str| catalogue.images[name].parent.clone();
    assert_eq!(parent("a"), parent("b"));
    assert_ne!(parent("a"), parent("c"));
    assert_eq!(parent("d"), parent("e"));
    let source = BaseSource::RootfsTar { path: tree.path().join("x.tar") };
    assert_eq!(parent("f"), Parent::External { reference: "rootfs:x.tar".into(), source });
}

#[test]
fn a_single_dockerfile_is_a_catalogue_of_one() {
    let tree = Tree::new(&[("ctx/x", "")]);
    let (file, context) = (SourceFile::new("sub/My.Dockerfile", "FROM scratch\n"), tree.path().join("ctx"));
    let load = |name: &str| Catalogue::single(name, &file, &context, &Overrides::new(), &ConfigFiles::default());
    let catalogue = load("app").unwrap();
    let rendered = crate::template::render_image(&catalogue, &catalogue.images["app"]).unwrap();
    assert_eq!((rendered.dockerfile.text.as_str(), &rendered.context), ("FROM scratch\n", &context));
    assert_eq!(load("App").unwrap_err().0.len(), 1);
}

#[test]
fn init_writes_a_sound_catalogue_and_nothing_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let files = init(dir.path()).unwrap();
    assert!(files.contains(&dir.path().join("kollage.toml")));
    let catalogue = Catalogue::load(dir.path(), &Overrides::new(), &ConfigFiles::default()).unwrap();
    assert!(catalogue.warnings.is_empty());
    let hello = crate::template::render_image(&catalogue, &catalogue.images["hello"]).unwrap();
    assert_snapshot!(hello.dockerfile.text, @r##"
FROM example/base:1.0-debian-bookworm
ARG SOURCE_DATE_EPOCH
LABEL org.opencontainers.image.title="hello" \
      org.opencontainers.image.description="Says hello"
RUN groupadd --gid 10001 hello \
    && useradd --no-log-init --create-home --home-dir /var/lib/hello --shell /usr/sbin/nologin \
        --uid 10001 --gid 10001 hello
COPY --chmod=755 hello.sh /usr/local/bin/hello
USER 10001
CMD ["/usr/local/bin/hello"]
"##);
    let base = crate::template::render_image(&catalogue, &catalogue.images["base"]).unwrap();
    assert_snapshot!(base.dockerfile.text, @r##"
FROM bootstrap:debian/bookworm
ENV LANG=C.UTF-8
LABEL org.opencontainers.image.title="base"
"##);

    std::fs::remove_file(dir.path().join("kollage.toml")).unwrap();
    std::fs::write(dir.path().join("images/hello/image.toml"), "mine").unwrap();
    let error = init(dir.path()).unwrap_err();
    assert_eq!(error.kind(), crate::error::Kind::BadInput);
    assert!(!dir.path().join("kollage.toml").exists(), "nothing is written when something is there");
    assert_eq!(std::fs::read_to_string(dir.path().join("images/hello/image.toml")).unwrap(), "mine");
}
