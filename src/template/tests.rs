//! Recipes in whole catalogues: what they give, and how they fail.

use insta::assert_snapshot;

use super::*;
use crate::catalogue::tests::Tree;

const KEYSTONE: &str = "[image]\nparent = \"base\"\nsummary = \"Identity\"\n[packages]\ndeb = [\"libldap2\"]\n[sources.keystone]\npypi = \"keystone[ldap]\"\n\
     [vars]\nanswer = 42\nlist = [\"it's\", \"a b\", \"\"]\n";

/// Renders a keystone whose Dockerfile.j2 this is.
fn render(template: &str) -> String {
    render_with(template, &[])
}

fn render_with(template: &str, files: &[(&str, &str)]) -> String {
    let own = [("images/keystone/image.toml", KEYSTONE), ("images/keystone/Dockerfile.j2", template)];
    let tree = Tree::with(&[&own, files].concat());
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    match render_image(&catalogue, &catalogue.images["keystone"]) {
        Ok(rendered) => rendered.dockerfile.text.clone(),
        Err(problems) => tree.show(&problems),
    }
}

#[test]
fn variables() {
    assert_snapshot!(render(
        "FROM {{ parent }}\n# {{ image.name }} {{ image.kind }} {{ image.summary }} {{ image.packages }} {{ build.base_package_type }}\n\
         {% for name, s in image.sources | items %}{{ name }}: {{ s.kind }} {{ s.requirement }}{% endfor %}\n\
         {{ image.vars.answer }}{% if image.user %} no{% endif %}{% if image.start is none %} none{% endif %}{{ image.vars.other | default(\" default\") }}\n"
    ), @r##"
FROM kollage/base:debian-bookworm
# keystone service Identity ['libldap2'] deb
keystone: pypi keystone[ldap]
42 none default
"##);
}

#[test]
fn filters() {
    assert_snapshot!(render(
        "{{ image.vars.list | shell_quote }}\n{{ 'plain' | shell_quote }}\n{{ '$(id)' | shell_quote }}\n{{ image.vars.list | json }}\n\
         {{ '<&>' | tojson }}\n{{ 'a \"b\" $c \\\\' | env_quote }}\n"
    ), @r##"
'it'\''s' 'a b' ''
plain
'$(id)'
["it's","a b",""]
"<&>"
"a \"b\" \$c \\"
"##);
    assert_snapshot!(render("RUN {{ \"a\nb\" | shell_quote }}\n"), @r##"
error: the recipe of image `keystone` cannot be rendered: `shell_quote` got a line break, which a RUN line cannot hold
  at images/keystone/Dockerfile.j2:1:1: RUN {{ "a
"##);
    assert_snapshot!(render("RUN {{ image.vars | shell_quote }}\n"), @r##"
error: the recipe of image `keystone` cannot be rendered: `shell_quote` wants a string, not map
  at images/keystone/Dockerfile.j2:1:21: shell_quote
"##);
    assert_snapshot!(render("CMD {{ image.vars.comand | json }}\n"), @r##"
error: the recipe of image `keystone` cannot be rendered: `json` got an undefined value
  at images/keystone/Dockerfile.j2:1:28: json
  hint: `image.vars.comand` is undefined; there are `image.vars.answer`, `image.vars.list`; [vars] of the definition sets them
"##);
}

#[test]
fn undefined_is_an_error_that_names_it() {
    assert_snapshot!(render("FROM x\nRUN {{ image.pakages }}\n"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.pakages` is undefined
  at images/keystone/Dockerfile.j2:2:8: image.pakages
  hint: did you mean `image.packages`?
"##);
    assert_snapshot!(render("{{ imgae.name }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: `imgae` is undefined
  at images/keystone/Dockerfile.j2:1:4: imgae.name
  hint: did you mean `image`?
"##);
    assert_snapshot!(render("{{ image.user.name }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.user.name` is undefined
  at images/keystone/Dockerfile.j2:1:4: image.user.name
  hint: the definition says nothing for `image.user`; test it with `if` first
"##);
    assert_snapshot!(render("{{ image.user }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: the value is `none`, which no Dockerfile has
  at images/keystone/Dockerfile.j2:1:4: image.user
"##);
    assert_snapshot!(render("{% for x in image.vars.lisst %}{{ x }}{% endfor %}"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.vars.lisst` is undefined
  at images/keystone/Dockerfile.j2:1:18: .vars.lisst
  hint: did you mean `image.vars.list`?
"##);
}

#[test]
fn syntax_and_unknown_things() {
    assert_snapshot!(render("FROM x\n{% if image.user %}\nRUN x\n"), @r##"
error: the recipe of image `keystone` cannot be rendered: syntax error: unexpected end of input, expected end of block
  at images/keystone/Dockerfile.j2:2:20: ⏎RUN x⏎
"##);
    assert_snapshot!(render("{{ image.name | shel_quote }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: there is no filter `shel_quote`
  at images/keystone/Dockerfile.j2:1:17: shel_quote
  hint: did you mean `shell_quote`?
"##);
    assert_snapshot!(render("{{ env('HOME') }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: there is no function `env`
  at images/keystone/Dockerfile.j2:1:4: env('HOME')
"##);
    assert_snapshot!(render("{{ image.name.__class__ }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.name.__class__` is undefined
  at images/keystone/Dockerfile.j2:1:4: image.name.__class__
"##);
    assert_snapshot!(render("{{ fail('this needs a user') }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: this needs a user
  at images/keystone/Dockerfile.j2:1:4: fail('this needs a user')
"##);
}

#[test]
fn endless_and_huge_templates_are_stopped() {
    let nested = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}x{% endfor %}{% endfor %}{% endfor %}";
    assert_snapshot!(render(nested), @r##"
error: the recipe of image `keystone` cannot be rendered: it was stopped after 1000000 operations; a loop in it may never end
  at images/keystone/Dockerfile.j2:1:65: range(1000)
"##);
    assert_snapshot!(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), @r##"
error: the recipe of image `keystone` cannot be rendered: recursion limit exceeded
  at images/keystone/Dockerfile.j2:1:19: m()
"##);
    let huge = render("{{ 'x' * 100000000000 }}");
    assert!(huge.contains("error:"), "{}", &huge[..huge.len().min(200)]);
    assert_snapshot!(render("{% include 'images/keystone/Dockerfile.j2' %}"), @r##"
error: the recipe of image `keystone` cannot be rendered: recursion limit exceeded
  at images/keystone/Dockerfile.j2:1:4: include 'images/keystone/Dockerfile.j2'
  hint: it was reached from images/keystone/Dockerfile.j2:1
"##);
}

/// Worker threads have small stacks.
#[test]
fn recursion_fits_a_worker_thread() {
    let text = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(|| render("{% macro m(x) %}{% if x %}{{ m(x + 1) }}{% endif %}{% endmacro %}{{ m(1) }}"))
        .unwrap()
        .join()
        .unwrap();
    assert!(text.contains("recursion"), "{text}");
}

#[test]
fn shared_recipes_can_be_extended_and_imported() {
    let files = [
        (
            "images/_recipes/service.j2",
            "FROM {{ parent }}\n{% block packages %}RUN install{% endblock %}\n{% block end %}{% endblock %}",
        ),
        ("images/_recipes/macros.j2", "{% macro greet(x) %}RUN echo {{ x }} {{ image.name }}{% endmacro %}"),
        ("images/keystone/part.j2", "# part of {{ image.name }}"),
    ];
    assert_snapshot!(render_with(
        "{% extends '_recipes/service.j2' %}{% import '_recipes/macros.j2' as m %}\
         {% block packages %}{{ super() }} {{ image.packages | join(' ') }}{% endblock %}\
         {% block end %}{{ m.greet('hello') }}\n{% include './part.j2' %}\n{% endblock %}",
        &files
    ), @r##"
FROM kollage/base:debian-bookworm
RUN install libldap2
RUN echo hello keystone
# part of keystone
"##);
    assert_snapshot!(render_with(
        "{% import '_recipes/macros.j2' as m %}FROM x\n{{ m.greet(nothing) }}",
        &files
    ), @r##"
error: the recipe of image `keystone` cannot be rendered: `nothing` is undefined (from images/keystone/Dockerfile.j2:2)
  at images/_recipes/macros.j2:1:33: x
  hint: there are `image`, `parent`, `build`, `release`, `vars`
"##);
}

#[test]
fn nothing_outside_the_catalogue_can_be_read() {
    for name in [
        "/etc/passwd",
        "../../../etc/passwd",
        "./../../../../etc/passwd",
        "_recipes/../../kollage.toml",
        "kollage.toml",
        "images/../kollage.toml",
        "",
    ] {
        let text = render(&format!("FROM x\n{{% include \"{name}\" %}}\n"));
        assert!(text.contains("is not in the catalogue's `images` or `plugins`"), "{name}: {text}");
    }
    let tree = Tree::with(&[
        ("images/keystone/image.toml", KEYSTONE),
        ("images/keystone/Dockerfile.j2", "{% include './link.j2' %}"),
    ]);
    std::os::unix::fs::symlink("/etc/passwd", tree.path().join("images/keystone/link.j2")).unwrap();
    let catalogue = tree.load().unwrap();
    let problems = render_image(&catalogue, &catalogue.images["keystone"]).unwrap_err();
    assert_snapshot!(tree.show(&problems), @r##"
error: the recipe of image `keystone` cannot be rendered: template `images/keystone/link.j2` is not in the catalogue's `images` or `plugins`
  at images/keystone/Dockerfile.j2:1:4: include './link.j2'
"##);
    assert_snapshot!(render("{% include '_recipes/nothing.j2' %}"), @r##"
error: the recipe of image `keystone` cannot be rendered: tried to include non-existing template '_recipes/nothing.j2'
  at images/keystone/Dockerfile.j2:1:4: include '_recipes/nothing.j2'
  hint: templates are named from the catalogue's root: `_recipes/NAME.j2` or `images/NAME/FILE`
"##);
}

#[test]
fn plugins_see_the_image_below_them() {
    let tree = Tree::with(&[
        ("plugins/keystone-x/plugin.toml", "[plugin]\nimages = [\"keystone\"]\n[sources.x]\npypi = \"x\"\n"),
        (
            "plugins/keystone-x/Dockerfile.j2",
            "FROM {{ parent }}\nRUN pip install {{ plugin.sources.x.requirement }} # {{ plugin.name }} on {{ image.name }}\n",
        ),
    ]);
    let catalogue = tree.load().unwrap();
    let (plugin, image) = (&catalogue.plugins["keystone-x"], &catalogue.images["keystone"]);
    let rendered = render_plugin(&catalogue, plugin, image, "keystone+keystone-x", "kollage/keystone:1").unwrap();
    assert_snapshot!(rendered.dockerfile.text, @r##"
FROM kollage/keystone:1
RUN pip install x # keystone-x on keystone
"##);
    assert_eq!(rendered.context, plugin.dir);
    assert_eq!(rendered.dockerfile.path, plugin.dir.join("Dockerfile (rendered)"));
}
