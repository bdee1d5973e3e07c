//! `kollage graph`

use crate::cli::App;
use crate::cli::args::{GraphArgs, GraphFormat};
use crate::cli::workspace::Workspace;
use crate::error::Result;
use crate::graph::draw;

pub fn run(app: &App, args: &GraphArgs) -> Result<u8> {
    let workspace = Workspace::load(&app.global, &app.env, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let graph = workspace.graph()?;
    match args.format {
        GraphFormat::Dot => app.print(&draw::dot(&graph))?,
        GraphFormat::Mermaid => app.print(&draw::mermaid(&graph))?,
        GraphFormat::Json => app.print_json(&draw::json(&graph))?,
    }
    Ok(0)
}
