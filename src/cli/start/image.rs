//! `kollage start check` and `kollage start adopt`: what a service needs of an image, and an image that has the bundle.

use std::path::Path;

use serde_json::json;

use crate::catalogue::parse_reference;
use crate::cli::App;
use crate::cli::args::{StartAdopt, StartCheck, TextOrJson};
use crate::cli::machine;
use crate::cli::run::find;
use crate::cli::signals;
use crate::cli::workspace::{catalogue_root, source_date_epoch, store_path};
use crate::engine::BaseSource;
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::Cancel;
use crate::image::archive::{Imported, import_docker_archive, import_oci};
use crate::image::config::Platform;
use crate::image::reference::Reference;
use crate::image::store::{Codec, Store};
use crate::report::human;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};
use crate::start::adopt::{Options, Source, adopt as adopt_image};
use crate::start::check::{Need, State, check as check_image};
use crate::start::{Definition, Definitions};

pub(super) fn check(app: &App, args: &StartCheck) -> Result<u8> {
    let definitions = Definitions::load(&catalogue_root(&app.global)?)?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let source = source(&store, &args.image, &cancel)?;
    let definition = service(&definitions, args.service.as_deref(), &args.image, &source)?;
    let needs = check_image(definition, &source.view(&store)?, &source.config)?;
    let missing = needs.iter().filter(|need| need.state == State::Missing).count();
    if args.format == TextOrJson::Json {
        app.print_json(&json!({
            "image": args.image, "service": definition.name, "missing": missing, "needs": needs,
        }))?;
    } else {
        show(app, &needs)?;
        let what = human::count(missing, "thing");
        app.say(&match missing {
            0 => format!("{} has what {} needs", args.image, definition.name),
            _ => format!("{} lacks {what} that {} needs", args.image, definition.name),
        });
    }
    Ok(if missing == 0 { 0 } else { ErrorKind::Difference.exit_code() })
}

fn show(app: &App, needs: &[Need]) -> Result<()> {
    let mut table = Table::with_heading(&["", "what", "needed by", "state", ""]);
    for need in needs {
        let (state, paint) = match need.state {
            State::Found => ("found", Paint::Dim),
            State::Replaced => ("replaced", Paint::Strong),
            State::Missing => ("missing", Paint::Failed),
        };
        table.row([
            Cell::new(need.kind.as_str()),
            Cell::new(&need.what).paint(Paint::Strong),
            Cell::new(need.by.join(", ")),
            Cell::new(state).paint(paint),
            Cell::new(&need.note).paint(Paint::Dim),
        ]);
    }
    let (look, width) = app.table_look();
    app.print(&table.render(look, width))
}

pub(super) fn adopt(app: &App, args: &StartAdopt) -> Result<u8> {
    let name =
        args.name.parse::<Reference>().map_err(|e| e.context(format!("cannot name an image `{}`", args.name)))?;
    let name = name.with_default_tag().familiar();
    let (definitions, bundle) = super::bundle(app, args.runtime.as_deref())?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let source = source(&store, &args.image, &cancel)?;
    let definition = service(&definitions, args.service.as_deref(), &args.image, &source)?;
    let platform = source.config.platform();
    if (&platform.os, &platform.architecture) != (&bundle.platform.os, &bundle.platform.architecture) {
        return Err(Error::bad_input(format!("{} is for {platform}, the runtime for {}", args.image, bundle.platform))
            .hint("name a runtime for that with `--runtime FILE`"));
    }
    let needs = check_image(definition, &source.view(&store)?, &source.config)?;
    let missing: Vec<&str> =
        needs.iter().filter(|need| need.state == State::Missing).map(|need| need.what.as_str()).collect();
    if !missing.is_empty() {
        let what = missing.join(", ");
        let message = format!("{} lacks what {} needs: {what}", args.image, definition.name);
        let hint = format!("`kollage start check {} --service {}` says what each is for", args.image, definition.name);
        return Err(Error::new(ErrorKind::Difference, message).hint(hint));
    }
    let source_date_epoch = source_date_epoch(&app.env)?.unwrap_or(0);
    let options = Options { codec: Codec::Gzip, source_date_epoch, cancel: &cancel };
    let written = adopt_image(&store, &source, definition, &bundle, &name, &options)?;
    app.print(&format!("{}\n", written.digest))?;
    app.say(&format!("{name} is {} with the start of {}", args.image, definition.name));
    Ok(0)
}

/// An image of the store, or one that is brought into it.
fn source(store: &Store, image: &str, cancel: &Cancel) -> Result<Source> {
    let platform = Platform::host();
    let imported = |imported: Imported| Source { config: imported.config, manifest: imported.manifest };
    match parse_reference(image, Path::new("")) {
        Ok(BaseSource::OciLayout { path, reference }) => {
            import_oci(store, &path, reference.as_deref(), &platform, cancel).map(imported)
        }
        Ok(BaseSource::DockerArchive { path, reference }) => {
            import_docker_archive(store, &path, reference.as_deref(), &platform, cancel).map(imported)
        }
        _ => {
            let found = find(store, image, None).map_err(|error| {
                error.cause("images are taken from the store, oci:DIR or docker-archive:FILE; not yet from registries")
            })?;
            let manifest = store.manifest(&found.manifest)?;
            Ok(Source { config: store.image_config(&manifest.config.digest)?, manifest: Some(found.manifest) })
        }
    }
}

/// The service that was named, else the one that the image says it is, else the one of the image's own name.
fn service<'a>(
    definitions: &'a Definitions,
    named: Option<&str>,
    image: &str,
    source: &Source,
) -> Result<&'a Definition> {
    if let Some(name) = named.or_else(|| source.config.config.env_get("KOLLAGE_SERVICE")) {
        return definitions.get(name);
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    definitions.get(name).map_err(|_| {
        Error::bad_input(format!("which service {image} is for isn't known")).hint("name it with `--service NAME`")
    })
}
