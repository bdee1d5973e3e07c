//! `kollage images`: what images weigh.

use serde_json::Value;

use crate::sandbox::{Sandbox, is_root};

/// base (2 layers of its own), service on it (1), a plugin on service, and one that is never built.
fn family() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN dd if=/dev/zero of=/zeros bs=1024 count=300\n");
    sandbox.image("service", "base", "FROM {{ parent }}\nRUN echo service > /service\n");
    sandbox.image("never", "base", "FROM {{ parent }}\nRUN echo never > /never\n");
    let toml = std::fs::read_to_string(sandbox.catalogue().join("images/service/image.toml")).unwrap();
    sandbox.write("images/service/image.toml", &format!("{toml}\n[plugins]\naccept = [\"extra\"]\n"));
    sandbox.write("plugins/extra/plugin.toml", "[plugin]\nimages = [\"service\"]\n");
    sandbox.write("plugins/extra/Dockerfile.j2", "FROM {{ parent }}\nRUN echo extra > /extra\n");
    sandbox
}

fn image<'a>(json: &'a Value, name: &str) -> &'a Value {
    json["images"].as_array().unwrap().iter().find(|i| i["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"))
}

#[test]
fn sizes_layers_and_plugins_of_what_is_in_the_store() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.run(&["images"]).ok().says("not in the store: base, never, service");
    sandbox.build(&["base", "service", "--plugin", "service=extra"]);

    let json = sandbox.run(&["images", "--format", "json"]).ok().says("not in the store: never").json();
    let (base, service) = (image(&json, "base"), image(&json, "service"));
    assert_eq!((&service["plugins"], &json["not_in_store"]), (&["extra"].into(), &["never"].into()));
    let count = |image: &Value| image["layers"].as_array().unwrap().len();
    assert_eq!((count(base), count(service), &service["own_layers"]), (2, 4, &2.into()));
    let number = |image: &Value, field: &str| image[field].as_u64().unwrap();
    // 300 KiB of nothing: all of it unpacked, next to none of it compressed.
    assert!(number(base, "size") > 300 << 10);
    let zeros = &base["layers"][1];
    assert!(number(zeros, "size") > 300 << 10 && number(zeros, "compressed_size") < 10 << 10, "{zeros}");
    assert!(zeros["created_by"].as_str().unwrap().contains("/zeros"), "{zeros}");
    let layers = |image: &Value| image["layers"].as_array().unwrap().iter().map(|l| number(l, "size")).sum::<u64>();
    assert_eq!((number(service, "size"), number(&json, "size")), (layers(service), layers(service)));
    assert_eq!(number(service, "own_size") + number(base, "size"), number(service, "size"));

    let table = sandbox.run(&["images", "service"]).ok();
    assert!(table.stdout.contains("service+extra") && !table.stdout.contains("base"), "{}", table.stdout);
    assert!(table.stderr.contains("1 image of 4 layers"), "{}", table.stderr);
    let markdown = sandbox.run(&["images", "serv*", "base", "--format", "markdown"]).ok().stdout;
    assert!(markdown.starts_with("| image | layers | unpacked | compressed | own layers |"), "{markdown}");
    assert!(markdown.contains("\n| service+extra | 4 | "), "{markdown}");
    assert!(markdown.contains("2 images of 4 layers"), "{markdown}");
    let layers = sandbox.run(&["images", "base", "--layers"]).ok().stdout;
    assert!(layers.lines().nth(2).unwrap().contains("/zeros"), "{layers}");
}

#[test]
fn outside_a_catalogue_it_is_about_the_store() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.build(&["base"]);
    let elsewhere = |args: &[&str]| crate::sandbox::ran(sandbox.command(args).current_dir(sandbox.path("home")));
    assert!(elsewhere(&["images"]).ok().stdout.contains("kollage/base:"));
    assert!(elsewhere(&["images", "ba*"]).ok().stdout.contains("kollage/base:"));
    elsewhere(&["images", "service"]).exits(2).says("no image in the store matches `service`");
    elsewhere(&["images", "-p", "demo"]).exits(2).says("there is no kollage.toml");
    sandbox.run(&["images", "sevice"]).exits(2).says("did you mean `service`?");
    // Another tag is another image.
    sandbox.run(&["images", "--tag", "2", "base"]).ok().says("not in the store: base");
    assert!(sandbox.run(&["images", "--all"]).ok().stdout.contains("kollage/base:"));
}
