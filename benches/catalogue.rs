//! A synthetic catalogue of a thousand images: how long it takes from reading it to the plan.
//!
//! `cargo bench --bench catalogue [IMAGES]` prints the best and the median of several runs; nothing is asserted.

// A benchmark is a program for a person at a terminal.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use kollage::catalogue::{Catalogue, ConfigFiles, Overrides};
use kollage::context::HashTable;
use kollage::dockerfile::Inputs;
use kollage::engine::surroundings::Surroundings;
use kollage::engine::{BaseSource, Built, NoCache};
use kollage::graph::assemble::assemble;
use kollage::graph::plan::{Action, Memory, NodeHistory, Planner, Settings};
use kollage::image::config::{ImageConfig, Platform};
use kollage::image::digest::Key;

fn main() {
    // cargo passes `--bench`.
    let images = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(1000);
    let dir = tempfile::tempdir().unwrap();
    synthetic(dir.path(), images);
    let load = || {
        let loaded = Catalogue::load(dir.path(), &Overrides::new(), &ConfigFiles::default());
        loaded.unwrap_or_else(|problems| panic!("{:?}", problems.0.first().map(|p| &p.message)))
    };
    let (mut loads, mut graphs, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let settings = Settings {
        source_date_epoch: Some(0),
        no_cache: NoCache::Nothing,
        refresh: false,
        surroundings: Surroundings::default(),
        locked: Default::default(),
        squash: false,
        only_locked: false,
    };
    let inputs =
        Inputs { target: None, build_args: BTreeMap::new(), platform: Platform::host(), contexts: Default::default() };
    let table = HashTable::default();
    let mut nodes = 0;
    for _ in 0..7 {
        let start = Instant::now();
        let catalogue = load();
        loads.push(start.elapsed());

        let start = Instant::now();
        let selected = catalogue.images.keys().cloned().collect();
        let graph = assemble(&catalogue, &selected, &inputs).unwrap_or_else(|p| panic!("{:?}", p.0.first()));
        graphs.push(start.elapsed());
        nodes = graph.nodes.len();

        for (remembers, times) in [(false, &mut cold), (true, &mut warm)] {
            let start = Instant::now();
            let memory = Remembers(remembers);
            let plan = Planner::new(&graph, &settings, &table, &memory).plan().unwrap_or_else(|p| panic!("{:?}", p.0));
            times.push(start.elapsed());
            assert_eq!(plan.iter().all(|p| p.action == Action::Reuse), remembers);
        }
    }
    println!("{images} images, {nodes} nodes");
    report("load and check", &mut loads);
    report("render and graph", &mut graphs);
    report("plan, empty store", &mut cold);
    report("plan, all reused", &mut warm);
}

/// A store that has nothing, or the result of every key.
struct Remembers(bool);

impl Memory for Remembers {
    fn known(&self, _: &kollage::fetch::Remote) -> Option<kollage::fetch::Pin> {
        None
    }

    fn recall(&self, key: &Key) -> Option<Built> {
        self.0.then(|| Built { key: key.clone(), config: ImageConfig::new(&Platform::host()), size: 0 })
    }

    fn named(&self, _: &str) -> Option<Built> {
        None
    }

    fn history(&self, _: &str) -> Option<&NodeHistory> {
        None
    }

    fn foresee(&self, _: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
        Some(ImageConfig::new(platform))
    }
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    println!("{what:>18}: best {:>7.1?}, median {:>7.1?}", times[0], times[times.len() / 2]);
}

/// One root, a base for every 50 services, half of the services with a recipe of their own, and a plugin for every
/// tenth.
fn synthetic(root: &Path, images: usize) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("kollage.toml", "[build]\nrelease = \"1\"\n[profiles]\nall = [\"*\"]\nsome = [\"service-1*\"]\n");
    write(
        "images/_recipes/macros.j2",
        "{% macro install(packages) %}{% if packages %}RUN apt-get install --yes {{ packages | shell_quote }}{% endif %}{% endmacro %}",
    );
    write(
        "images/_recipes/service.j2",
        "{%- import '_recipes/macros.j2' as macros -%}\nFROM {{ parent }}\nLABEL title={{ image.name | env_quote }}\n\
         {% block packages %}{{ macros.install(image.packages) }}{% endblock %}\n\
         {% block sources %}{% for name, source in image.sources | items %}RUN pip install '{{ source.requirement }}'\n{% endfor %}{% endblock %}\n\
         {% block end %}{% if image.user %}USER {{ image.user.uid }}{% endif %}{% endblock %}\n",
    );
    write(
        "images/base-0/image.toml",
        "[image]\nkind = \"base\"\nfrom = { bootstrap = \"debian\", suite = \"bookworm\" }\nrecipe = \"service\"\n",
    );
    let bases = (images / 50).max(1);
    for n in 1..bases {
        let parent = (n - 1) / 3;
        write(
            &format!("images/base-{n}/image.toml"),
            &format!(
                "[image]\nkind = \"base\"\nparent = \"base-{parent}\"\nrecipe = \"service\"\n[packages]\ndeb = [\"lib{n}\"]\n"
            ),
        );
    }
    for n in 0..images - bases {
        let own = n % 2 == 0;
        let recipe = if own { "" } else { "recipe = \"service\"\n" };
        let plugin = n % 10 == 0;
        let default = if plugin { format!("\"service-{n}-plugin\"") } else { String::new() };
        write(
            &format!("images/service-{n}/image.toml"),
            &format!(
                "[image]\nkind = \"service\"\nparent = \"base-{}\"\n{recipe}start = \"service\"\nsummary = \"Service number {n}\"\n\
                 [user]\nname = \"service{n}\"\nuid = {uid}\ngid = {uid}\n\
                 [packages]\ndeb = [\"libldap2\", \"libsasl2-2\", \"package-{n}\"]\nrpm = [\"openldap\", \"package-{n}\"]\n\
                 [sources.service-{n}]\npypi = \"service-{n}[extra]>=1.0\"\n\
                 [plugins]\naccept = [\"service-{n}-*\"]\ndefault = [{default}]\n\
                 [vars]\nport = {uid}\ncommand = [\"service\", \"--port\", \"{uid}\"]\n\
                 [[check]]\nrun = [\"service-{n}\", \"--version\"]\n",
                n % bases,
                uid = 20_000 + n,
            ),
        );
        if own {
            write(
                &format!("images/service-{n}/Dockerfile.j2"),
                "{% extends '_recipes/service.j2' %}\n{% block end %}{{ super() }}\nCMD {{ image.vars.command | json }}{% endblock %}\n",
            );
        }
        if plugin {
            write(
                &format!("plugins/service-{n}-plugin/plugin.toml"),
                &format!("[plugin]\nimages = [\"service-{n}\"]\n[sources.plugin]\npypi = \"plugin-{n}\"\n"),
            );
            write(
                &format!("plugins/service-{n}-plugin/Dockerfile.j2"),
                "FROM {{ parent }}\nRUN pip install {{ plugin.sources.plugin.requirement }}\n",
            );
        }
    }
}
