//! Definitions and recipes.

use crate::layouts::fifo;
use crate::place::{Place, Ran};
use crate::table::{Row, contained, refused};

const GROUP: &str = "Definitions and recipes";
const IMAGE: &str = "[image]\nkind = \"base\"\nfrom = { rootfs = \"none.tar\" }\n";

fn write(place: &Place, name: &str, text: impl AsRef<[u8]>) {
    let path = place.path("catalogue").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn render(place: &Place) -> Ran {
    if !place.path("catalogue/kollage.toml").exists() {
        write(place, "kollage.toml", "[build]\nbase = \"debian\"\n");
    }
    place.run(&["-C", "catalogue", "render"])
}

fn settings(place: &Place, text: impl AsRef<[u8]>) -> Ran {
    write(place, "kollage.toml", text);
    render(place)
}

fn recipe(place: &Place, text: &str) -> Ran {
    write(place, "images/x/image.toml", IMAGE);
    write(place, "images/x/Dockerfile.j2", text);
    render(place)
}

pub fn rows() -> Vec<Row> {
    vec![
        refused(GROUP, "kollage.toml of 100000 brackets", 2, "kollage.toml", |p| {
            settings(p, "a = ".to_owned() + &"[".repeat(100_000))
        }),
        refused(GROUP, "kollage.toml of 100000 inline tables within each other", 2, "kollage.toml", |p| {
            settings(p, "a = ".to_owned() + &"{ a = ".repeat(100_000))
        }),
        refused(GROUP, "kollage.toml with a key of 100000 parts", 2, "kollage.toml", |p| {
            settings(p, "a.".repeat(100_000) + "a = 1\n")
        }),
        refused(GROUP, "kollage.toml that is no text", 2, "kollage.toml", |p| settings(p, [0xff, 0xfe, 0x00])),
        refused(GROUP, "kollage.toml that is a FIFO", 2, "kollage.toml", |p| {
            std::fs::create_dir(p.path("catalogue")).unwrap();
            fifo(&p.path("catalogue/kollage.toml"));
            p.run(&["-C", "catalogue", "render"])
        }),
        refused(GROUP, "image.toml that is a FIFO", 2, "image.toml", |p| {
            write(p, "images/x/Dockerfile.j2", "FROM scratch\n");
            fifo(&p.path("catalogue/images/x/image.toml"));
            render(p)
        }),
        refused(GROUP, "number of 2^64", 2, "kollage.toml", |p| settings(p, "[build]\njobs = 18446744073709551616\n")),
        refused(GROUP, "loop in a loop in a loop, of 100000 each", 2, "Dockerfile.j2", |p| {
            recipe(
                p,
                "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}x{% endfor %}{% endfor %}{% endfor %}",
            )
        }),
        refused(GROUP, "ten variables, each of ten of the one before (billion laughs)", 2, "Dockerfile.j2", |p| {
            let mut text = String::from("{% set a0 = 'lollollollollollollollollollollol' %}");
            for n in 1..16 {
                let before = format!("a{}", n - 1);
                text += &format!("{{% set a{n} = {} %}}", [before.as_str(); 10].join(" ~ "));
            }
            recipe(p, &(text + "FROM scratch\nLABEL a={{ a15 }}\n"))
        }),
        refused(GROUP, "text repeated 10^12 times", 2, "Dockerfile.j2", |p| {
            recipe(p, "FROM scratch\nLABEL a={{ 'abcdefgh' * 1000000000000 }}\n")
        }),
        refused(GROUP, "range up to 10^15", 2, "Dockerfile.j2", |p| {
            recipe(p, "FROM scratch\nLABEL a={{ range(1000000000000000)|list|length }}\n")
        }),
        refused(GROUP, "text centred in 10^12 columns", 2, "Dockerfile.j2", |p| {
            recipe(p, "FROM scratch\nLABEL a={{ 'x'|indent(1000000000000, true) }}\n")
        }),
        refused(GROUP, "macro that calls itself", 2, "Dockerfile.j2", |p| {
            recipe(p, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
        }),
        refused(GROUP, "recipe that includes itself", 2, "Dockerfile.j2", |p| {
            recipe(p, "{% include 'images/x/Dockerfile.j2' %}")
        }),
        refused(GROUP, "expression in 100000 brackets", 2, "Dockerfile.j2", |p| {
            recipe(p, &format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)))
        }),
        refused(GROUP, "recipe that includes `../../../outside/canary`", 2, "is not in the catalogue", |p| {
            recipe(p, "{% include '../../../outside/canary' %}")
        }),
        refused(GROUP, "recipe that includes a link to a file of the host's", 2, "is not in the catalogue", |p| {
            write(p, "images/x/image.toml", IMAGE);
            std::os::unix::fs::symlink(p.path("outside/canary"), p.path("catalogue/images/x/way.j2")).unwrap();
            recipe(p, "{% include 'images/x/way.j2' %}")
        }),
        contained(
            GROUP,
            "recipe that asks for `__class__`, `os.environ` and `self.__init__`",
            "there is none of it",
            |p| recipe(p, "FROM scratch\nLABEL a={{ ''.__class__.__mro__ }}{{ os.environ }}{{ self.__init__ }}\n"),
            |p| if p.last_code() == 2 { Ok(()) } else { Err(format!("exit code {}", p.last_code())) },
        ),
        refused(GROUP, "image whose parent is itself", 2, "x", |p| {
            write(p, "images/x/image.toml", "[image]\nparent = \"x\"\n");
            write(p, "images/x/Dockerfile.j2", "FROM scratch\n");
            render(p)
        }),
        refused(GROUP, "image named `..`", 2, "parent", |p| {
            write(p, "images/x/image.toml", "[image]\nparent = \"../../outside\"\n");
            write(p, "images/x/Dockerfile.j2", "FROM scratch\n");
            render(p)
        }),
    ]
}
