//! `kollage plan`: what a build would do, without touching anything.

use serde_json::{Value, json};

use crate::catalogue::Catalogue;
use crate::cli::App;
use crate::cli::args::{Plan, TextOrJson};
use crate::cli::builders::Asked;
use crate::cli::kolla_build::lent;
use crate::cli::machine::{self, Builder, EngineFlags};
use crate::cli::no_cache::no_cache;
use crate::cli::outcome;
use crate::cli::workspace::{store_path, wrong_definitions};
use crate::context::HashTable;
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::graph::node::NodeKind;
use crate::graph::plan::{Planner, Settings};
use crate::report::plan;
use crate::schedule::estimate::{Left, critical_path};
use crate::schedule::history::History;
use crate::suggest;

fn explain(app: &App, catalogue: &Catalogue, name: &str) -> Result<u8> {
    let Some(text) = catalogue.explain(name) else {
        let error = Error::bad_input(format!("there is no image and no plugin `{name}`"));
        let known = catalogue.images.keys().chain(catalogue.plugins.keys()).map(String::as_str);
        return Err(match suggest::hint(name, known) {
            Some(hint) => error.hint(hint),
            None => error,
        });
    };
    app.print(&text)?;
    Ok(0)
}

pub fn run(app: &App, args: &Plan) -> Result<u8> {
    let lent = lent(app, &args.tree)?;
    let workspace = lent.workspace(app, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    if let Some(name) = &args.explain {
        return explain(app, &workspace.catalogue, name);
    }
    let mut graph = workspace.graph()?;
    graph.awaited = lent.view.awaited;
    app.show_warnings(&graph.warnings());
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let settings = &workspace.catalogue.settings;
    let name = machine::chosen(args.engine.as_deref(), settings, &app.env)?;
    let local = machine::engine(store.clone(), EngineFlags::default(), settings, &app.env)?;
    let asked = Asked {
        flags: &args.builders,
        settings,
        env: &app.env,
        platforms: workspace.platforms.clone(),
        jobs: args.jobs,
    };
    let builder = Builder::open(name, local, false, &asked, &Cancel::new()?)?;
    machine::refuse_unsupported(&graph, None)?;
    let table_path = store.state_path(machine::HASH_TABLE);
    let table = HashTable::load(&table_path);
    let history = History::load(&store.state_path(machine::HISTORY), builder.engine());
    let settings = Settings {
        no_cache: no_cache(&args.again, &graph)?,
        refresh: args.pull,
        squash: args.squash,
        ..workspace.planning(&args.surroundings)?
    };
    let planner = Planner::new(&graph, &settings, &table, &history);
    let planned = planner.plan().map_err(wrong_definitions)?;
    table.save(&table_path)?;
    let expected = history.expected(&graph, &planned);
    let left: Vec<Left> = expected.iter().copied().map(Left::whole).collect();
    let path = critical_path(&graph, &left);
    let nodes = graph.nodes.iter().zip(&planned).zip(&expected);
    match args.format {
        TextOrJson::Text => {
            let rows: Vec<_> =
                nodes.map(|((node, planned), time)| outcome::plan_row(&graph, node, planned, *time)).collect();
            let jobs = builder.jobs(args.jobs, &workspace.catalogue.settings);
            let outlook = outcome::outlook(&graph, &left, &path, jobs);
            let (look, width) = app.table_look();
            app.print(&plan::render(&rows, &outlook, look, width))?;
        }
        TextOrJson::Json => {
            let critical: Vec<&str> = path.nodes.iter().map(|id| &*graph.node(*id).name).collect();
            let values: Vec<Value> = nodes
                .map(|((node, planned), time)| {
                    json!({
                        "name": &*node.name,
                        "kind": node.kind_name(),
                        "action": planned.action,
                        "reason": planned.reason,
                        "key": planned.key,
                        "expected_seconds": time,
                        "critical": critical.contains(&&*node.name),
                        "source": match &node.kind {
                            NodeKind::Base(source) => Some(outcome::source_name(source)),
                            _ => None,
                        },
                        "needs": node.needs.iter().map(|e| &*graph.node(e.to).name).collect::<Vec<_>>(),
                        "references": node.spec().map(|s| s.names.clone()).unwrap_or_default(),
                    })
                })
                .collect();
            app.print_json(&Value::Array(values))?;
        }
    }
    Ok(0)
}
