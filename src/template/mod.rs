//! Recipes to Dockerfiles: the minijinja environment, its filters and functions, and its limits.
//!
//! A recipe sees what the catalogue says and nothing else: no environment, no clock, no file outside the catalogue.
//! The same definitions therefore always give the same text, and a template that never ends is stopped. What recipes
//! can use is listed in [`context`] (variables) and [`environment`] (filters, functions, template names).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalogue::{Additions, Catalogue, ImageDef, Parent, PluginDef, Recipe};
use crate::context::Parts;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};

mod changed;
mod context;
mod environment;
mod problem;
#[cfg(test)]
mod tests;

pub(crate) use changed::Changed;
pub(crate) use environment::Recipes;

/// A Dockerfile and the directory that its COPY instructions read.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// Its path is that of the plain Dockerfile, or for rendered text where it would be, marked as rendered.
    pub dockerfile: Arc<SourceFile>,
    pub context: PathBuf,
    pub parts: Parts,
}

pub fn render_image(catalogue: &Catalogue, image: &ImageDef) -> Result<Rendered, Diagnostics> {
    let owner = format!("image `{}`", image.name);
    let recipe = |parent: &str| {
        let template = image.template().unwrap_or_default();
        let name = changed_or("images", &image.name, template, &image.additions);
        render(catalogue, &name, &owner, context::for_image(catalogue, image, parent), &image.dir)
    };
    let rendered = match (&image.recipe, &image.parent) {
        (Recipe::Dockerfile(path), _) => plain(image, path),
        (_, Parent::Dockerfile) => plain(image, &image.dir.join("Dockerfile")),
        (_, Parent::Image(parent)) => recipe(&catalogue.image_ref(parent)),
        (_, Parent::External { reference, .. }) => recipe(reference),
    };
    patched(&owner, &image.additions, rendered?)
}

/// `node` is the layer's name; `parent_ref` is what FROM says: the image, or the plugin layer below this one.
pub fn render_plugin(
    catalogue: &Catalogue,
    plugin: &PluginDef,
    on: &ImageDef,
    node: &str,
    parent_ref: &str,
) -> Result<Rendered, Diagnostics> {
    let template = plugin.template().unwrap_or_default();
    let name = changed_or("plugins", &plugin.name, template, &plugin.additions);
    let variables = context::for_plugin(catalogue, plugin, on, node, parent_ref);
    let owner = format!("plugin `{}` on image `{}`", plugin.name, on.name);
    let rendered = render(catalogue, &name, &owner, variables, &plugin.dir)?;
    patched(&owner, &plugin.additions, rendered)
}

/// The recipe, or what overlays made of it.
fn changed_or(below: &str, name: &str, template: String, additions: &Additions) -> String {
    if additions.blocks.is_empty() { template } else { changed::prefix(below, name) }
}

/// A patch that a recipe passed over would be missed only when it is too late.
fn patched(owner: &str, additions: &Additions, rendered: Rendered) -> Result<Rendered, Diagnostics> {
    let mut problems = Diagnostics::default();
    for (source, patch) in &additions.patches {
        if !rendered.dockerfile.text.contains(&patch.text) {
            let message = format!("the recipe of {owner} does not apply `{}` to source `{source}`", patch.name);
            let hint = "a recipe finds patches in `sources.NAME.patches`; see the README, \"Changing a catalogue\"";
            problems.push(Diagnostic::error(message).at(&patch.place.file, patch.place.span.clone()).hint(hint));
        }
    }
    if problems.is_empty() { Ok(rendered) } else { Err(problems) }
}

fn plain(image: &ImageDef, path: &Path) -> Result<Rendered, Diagnostics> {
    // A definition that is nothing but a Dockerfile was read when the catalogue was loaded.
    let dockerfile = if let Some(given) = &image.given {
        given.dockerfile.clone()
    } else if image.file.path == path {
        image.file.clone()
    } else {
        match crate::text::read_to_string(path) {
            Ok(text) => SourceFile::new(path, text),
            Err(e) => {
                let message = format!("cannot read the Dockerfile `{}` of image `{}`: {e}", path.display(), image.name);
                return Err(Diagnostics(vec![Diagnostic::error(message)]));
            }
        }
    };
    let parts = image.given.as_ref().map(|given| given.parts.clone()).unwrap_or_default();
    Ok(Rendered { dockerfile, context: image.dir.clone(), parts })
}

fn render(
    catalogue: &Catalogue,
    name: &str,
    owner: &str,
    variables: minijinja::Value,
    dir: &Path,
) -> Result<Rendered, Diagnostics> {
    let recipes = &catalogue.recipes;
    let environment = recipes.environment();
    let text = environment.get_template(name).and_then(|template| template.render(variables.clone()));
    match text {
        Ok(text) => {
            let path = dir.join("Dockerfile (rendered)");
            let dockerfile = SourceFile::new(path, text);
            Ok(Rendered { dockerfile, context: dir.to_owned(), parts: Parts::default() })
        }
        Err(error) => Err(Diagnostics(vec![problem::diagnostic(&error, owner, name, recipes, &variables)])),
    }
}
