//! `kollage graph`

use crate::cli::App;
use crate::cli::args::{GraphArgs, GraphFormat};
use crate::cli::kolla_build::lent;
use crate::error::Result;
use crate::graph::draw;
use crate::graph::node::Graph;
use crate::report::svg::{Drawing, DrawnEdge, DrawnNode};

pub fn run(app: &App, args: &GraphArgs) -> Result<u8> {
    let lent = lent(app, &args.tree)?;
    let workspace = lent.workspace(app, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let graph = workspace.graph()?;
    match args.format {
        GraphFormat::Dot => app.print(&draw::dot(&graph))?,
        GraphFormat::Mermaid => app.print(&draw::mermaid(&graph))?,
        GraphFormat::Svg => app.print(&drawing(&graph).standalone())?,
        GraphFormat::Json => app.print_json(&draw::json(&graph))?,
    }
    Ok(0)
}

fn drawing(graph: &Graph) -> Drawing {
    let nodes = graph.nodes.iter().map(|node| {
        let references = node.spec().map(|spec| spec.names.join(", ")).unwrap_or_default();
        DrawnNode {
            label: node.name.to_string(),
            title: if references.is_empty() { node.name.to_string() } else { references },
            class: format!("{}{}", node.kind_name(), if node.selected { "" } else { " unselected" }),
            link: None,
        }
    });
    let edges = graph.ids().flat_map(|id| {
        let needs = graph.node(id).needs.iter();
        needs.map(move |edge| DrawnEdge { from: edge.to.0, to: id.0, class: edge.kind.as_str().to_owned() })
    });
    Drawing { title: "Build graph".into(), nodes: nodes.collect(), edges: edges.collect() }
}
