//! `kollage start check` and `kollage start adopt`: what a service needs of an image, and an image that has the bundle.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Told;
use crate::catalogue::{Settings, parse_reference};
use crate::cli::App;
use crate::cli::args::{Registries, StartAdopt, StartCheck, TextOrJson};
use crate::cli::machine;
use crate::cli::publish::{Publisher, Target, allowed};
use crate::cli::run::find;
use crate::cli::signals;
use crate::cli::workspace::{catalogue_root, source_date_epoch, store_path};
use crate::engine::BaseSource;
use crate::error::{Context as _, Error, Kind as ErrorKind, Result};
use crate::event::Cancel;
use crate::image::archive::{Imported, import_docker_archive, import_oci};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::manifest::OCI_MANIFEST;
use crate::image::reference::Reference;
use crate::image::store::{Codec, Store};
use crate::registry::push::{Elsewhere, Image};
use crate::registry::{self, Caller, form};
use crate::report::human;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};
use crate::start::adopt::{Options, Source, adopt as adopt_image, rewrite};
use crate::start::bundle::Bundle;
use crate::start::check::{Need, State, check as check_image};
use crate::start::{Definition, Definitions};

pub(super) fn check(app: &App, args: &StartCheck) -> Result<u8> {
    let definitions = Definitions::load(&catalogue_root(&app.global)?)?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let found = Found::of(app, &store, &args.image, &args.registries, &super::settings(app)?, &cancel)?;
    let source = found.source(app, &store, &cancel)?;
    let definition = service(&definitions, args.service.as_deref(), &args.image, &source.config)?;
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
    let name = name.with_default_tag();
    let (definitions, bundle) = super::bundle(app, args.runtime.as_deref())?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let settings = super::settings(app)?;
    let pushed = Reference::names_registry(&args.name);
    let adoption = Adoption { app, args, name: &name, store: &store, cancel: &cancel, bundle: &bundle };
    let publisher = match pushed {
        true => {
            let publisher = Publisher::new(app, &args.pushing, &args.registries, &settings, &store, None)?;
            publisher.check(&settings, std::slice::from_ref(&name), &Told { look: app.look }, &cancel)?;
            Some(publisher)
        }
        false => None,
    };
    let found = Found::of(app, &store, &args.image, &args.registries, &settings, &cancel)?;
    let digest = match (found, &publisher) {
        (Found::Registry { reference, options }, Some(publisher)) if !args.check => {
            adoption.within_registries(&definitions, &reference, &options, publisher)?
        }
        (found, publisher) => {
            let source = found.source(app, &store, &cancel)?;
            adoption.in_store(&definitions, &source, publisher.as_ref())?
        }
    };
    app.print(&format!("{digest}\n"))?;
    Ok(0)
}

struct Adoption<'a> {
    app: &'a App,
    args: &'a StartAdopt,
    name: &'a Reference,
    store: &'a Store,
    cancel: &'a Cancel,
    bundle: &'a Bundle,
}

impl Adoption<'_> {
    fn options(&self) -> Result<Options<'_>> {
        let source_date_epoch = source_date_epoch(&self.app.env)?.unwrap_or(0);
        Ok(Options { codec: Codec::Gzip, source_date_epoch, cancel: self.cancel })
    }

    fn fits(&self, config: &ImageConfig) -> Result<()> {
        let (image, bundle) = (&self.args.image, &self.bundle.platform);
        let platform = config.platform();
        if (&platform.os, &platform.architecture) == (&bundle.os, &bundle.architecture) {
            return Ok(());
        }
        Err(Error::bad_input(format!("{image} is for {platform}, the runtime for {bundle}"))
            .hint("name a runtime for that with `--runtime FILE`"))
    }

    /// Checked first, with all of its files.
    fn in_store(&self, definitions: &Definitions, source: &Source, publisher: Option<&Publisher>) -> Result<Digest> {
        let (args, app) = (self.args, self.app);
        let definition = service(definitions, args.service.as_deref(), &args.image, &source.config)?;
        self.fits(&source.config)?;
        let needs = check_image(definition, &source.view(self.store)?, &source.config)?;
        let missing: Vec<&str> =
            needs.iter().filter(|need| need.state == State::Missing).map(|need| need.what.as_str()).collect();
        if !missing.is_empty() {
            let what = missing.join(", ");
            let message = format!("{} lacks what {} needs: {what}", args.image, definition.name);
            let hint =
                format!("`kollage start check {} --service {}` says what each is for", args.image, definition.name);
            return Err(Error::new(ErrorKind::Difference, message).hint(hint));
        }
        let name = self.name.familiar();
        let written = adopt_image(self.store, source, definition, self.bundle, &name, &self.options()?)?;
        if let Some(publisher) = publisher {
            let target =
                Target { node: Arc::from(name.as_str()), name: self.name.clone(), manifest: written.digest.clone() };
            let (lines, error) = publisher.push(self.store, &[target], &Told { look: app.look }, self.cancel);
            lines.iter().for_each(|line| app.say(line));
            error.map_or(Ok(()), Err)?;
        }
        app.say(&format!("{name} is {} with the start of {}", args.image, definition.name));
        Ok(written.digest)
    }

    /// From registry to registry: the image's layers are mounted or copied, and not unpacked.
    fn within_registries(
        &self,
        definitions: &Definitions,
        reference: &Reference,
        options: &registry::Options,
        publisher: &Publisher,
    ) -> Result<Digest> {
        let (args, app) = (self.args, self.app);
        let node: Arc<str> = Arc::from(self.name.repository());
        let sink = Told { look: app.look };
        let caller = Caller { node: &node, sink: &sink, cancel: self.cancel };
        let (manifest, config) = registry::inspect(self.store, reference, &self.bundle.platform, options, &caller)?;
        let definition = service(definitions, args.service.as_deref(), &args.image, &config)?;
        self.fits(&config)?;
        let theirs = manifest.layers.clone();
        let manifest = rewrite(self.store, config, manifest, definition, self.bundle, &self.options()?)?;
        let media_type = manifest.media_type.clone().unwrap_or_else(|| OCI_MANIFEST.to_owned());
        let mut blobs = form::blobs(self.store, &manifest);
        for (blob, layer) in blobs.iter_mut().zip(&theirs) {
            blob.from = Some(Elsewhere {
                image: reference.clone(),
                media_type: layer.media_type.clone(),
                store: self.store.clone(),
            });
        }
        let bytes = serde_json::to_vec(&manifest).failed(|| "cannot write the image's manifest".into())?;
        let image = Image {
            node: node.clone(),
            name: self.name.clone(),
            manifest: bytes,
            media_type,
            blobs,
            parts: Vec::new(),
        };
        let digest = image.digest();
        let (lines, error) = publisher.told(&publisher.send(&[image], &sink, self.cancel));
        lines.iter().for_each(|line| app.say(line));
        error.map_or(Ok(()), Err)?;
        let (name, service) = (self.name.familiar(), &definition.name);
        app.say(&format!("{name} is {} with the start of {service}; its files were not looked at", args.image));
        app.say(&format!("`kollage start check {name} --service {service}` says whether it has what that needs"));
        Ok(digest)
    }
}

/// Where an image is.
enum Found {
    Here(Box<Source>),
    Registry { reference: Reference, options: Box<registry::Options> },
}

impl Found {
    /// A name of the store counts more than one of a registry.
    fn of(
        app: &App,
        store: &Store,
        image: &str,
        registries: &Registries,
        settings: &Settings,
        cancel: &Cancel,
    ) -> Result<Found> {
        let platform = Platform::host();
        let imported =
            |imported: Imported| Found::Here(Box::new(Source { config: imported.config, manifest: imported.manifest }));
        match parse_reference(image, Path::new("")) {
            Ok(BaseSource::OciLayout { path, reference }) => {
                return import_oci(store, &path, reference.as_deref(), &platform, cancel).map(imported);
            }
            Ok(BaseSource::DockerArchive { path, reference }) => {
                return import_docker_archive(store, &path, reference.as_deref(), &platform, cancel).map(imported);
            }
            _ => {}
        }
        match find(store, image, None) {
            Ok(found) => {
                let manifest = store.manifest(&found.manifest)?;
                let config = store.image_config(&manifest.config.digest)?;
                Ok(Found::Here(Box::new(Source { config, manifest: Some(found.manifest) })))
            }
            Err(_) if Reference::names_registry(image) => {
                let reference: Reference = image.parse()?;
                allowed(settings, std::slice::from_ref(&reference))?;
                let options = machine::registry_options(&app.env, registries, settings.build.retries)?;
                Ok(Found::Registry { reference, options: Box::new(options) })
            }
            Err(error) => Err(error.cause("one of a registry is named with its registry, docker.io included")),
        }
    }

    /// In the store; of its layers only those are fetched that aren't there.
    fn source(self, app: &App, store: &Store, cancel: &Cancel) -> Result<Source> {
        match self {
            Found::Here(source) => Ok(*source),
            Found::Registry { reference, options } => {
                let node: Arc<str> = Arc::from(reference.repository());
                let caller = Caller { node: &node, sink: &Told { look: app.look }, cancel };
                let imported = registry::pull(store, &reference, &Platform::host(), &options, &caller)?;
                Ok(Source { config: imported.config, manifest: imported.manifest })
            }
        }
    }
}

/// The service that was named, else the one that the image says it is, else the one of the image's own name.
fn service<'a>(
    definitions: &'a Definitions,
    named: Option<&str>,
    image: &str,
    config: &ImageConfig,
) -> Result<&'a Definition> {
    if let Some(name) = named.or_else(|| config.config.env_get("KOLLAGE_SERVICE")) {
        return definitions.get(name);
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    definitions.get(name).map_err(|_| {
        Error::bad_input(format!("which service {image} is for isn't known")).hint("name it with `--service NAME`")
    })
}
