//! `kollage start pack`

use std::path::Path;

use crate::cli::App;
use crate::cli::machine;
use crate::cli::signals;
use crate::cli::workspace::{source_date_epoch, store_path};
use crate::daemon;
use crate::deploy::engine::Engine;
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::{ExportImage, Format, Output as Archive, check_destination, export};
use crate::image::layer::compress::Codec;
use crate::image::reference::Reference;
use crate::start::bundle::Bundle;

/// Where a bundle goes.
enum Output<'a> {
    Tar(&'a Path, Codec),
    Directory(&'a Path),
    /// An image with the bundle in its root, to be mounted as an image volume.
    Oci(Archive),
    /// The same, in the engine that answers.
    Engine(Reference),
}

impl Output<'_> {
    fn parse(text: &str) -> Result<Output<'_>> {
        let codecs =
            [(".tar.gz", Codec::Gzip), (".tgz", Codec::Gzip), (".tar.zst", Codec::Zstd), (".tar", Codec::None)];
        if let Some(dir) = text.strip_prefix("dir:").filter(|dir| !dir.is_empty()) {
            return Ok(Output::Directory(Path::new(dir)));
        }
        if let Some(rest) = text.strip_prefix("oci:").filter(|dir| !dir.is_empty()) {
            let (dest, name) = rest.rsplit_once(':').unwrap_or((rest, NAME));
            let name = name.parse::<Reference>().map_err(|e| e.context(format!("cannot use `{text}`")))?;
            let archive = Archive { format: Format::OciLayout, dest: dest.into(), name: Some(name) };
            check_destination(&archive)?;
            return Ok(Output::Oci(archive));
        }
        if text == "docker" || text.starts_with("docker:") && !text.contains("://") {
            let name = text.strip_prefix("docker:").unwrap_or(NAME);
            let name = name.parse::<Reference>().map_err(|e| e.context(format!("cannot use `{text}`")))?;
            return Ok(Output::Engine(name.with_default_tag()));
        }
        if text.contains("://") {
            return Err(Error::bad_input(format!("`{text}` is not a file"))
                .hint("`kollage start push REF` brings the bundle to a registry, `-o docker` to an engine"));
        }
        if let Some((_, codec)) = codecs.iter().find(|(end, _)| text.ends_with(end) && text.len() > end.len()) {
            return Ok(Output::Tar(Path::new(text), *codec));
        }
        Err(Error::bad_input(format!("`{text}` doesn't say what the bundle is written as"))
            .hint("write FILE.tar.gz, FILE.tar.zst, FILE.tar, dir:DIR, oci:DIR[:NAME] or docker[:NAME]"))
    }
}

/// What an image with the bundle is called unless somebody says otherwise.
const NAME: &str = "kollage-start:latest";

pub(super) fn run(app: &App, output: &str, runtime: Option<&Path>, host: Option<&str>) -> Result<u8> {
    let output = Output::parse(output)?;
    let (_, bundle) = super::bundle(app, runtime)?;
    let time = source_date_epoch(&app.env)?.unwrap_or(0);
    let dest = match &output {
        Output::Engine(name) => {
            engine(app, &bundle, name, host, time)?;
            app.say(&format!("loaded {}", name.familiar()));
            return Ok(0);
        }
        Output::Tar(dest, codec) => {
            bundle.write_tar(dest, *codec, time)?;
            *dest
        }
        Output::Directory(dest) => {
            if dest.read_dir().is_ok_and(|mut there| there.next().is_some()) {
                return Err(Error::bad_input(format!("`{}` is there already, and isn't empty", dest.display())));
            }
            bundle.write_directory(dest)?;
            *dest
        }
        Output::Oci(archive) => {
            oci(app, &bundle, archive, time)?;
            &archive.dest
        }
    };
    app.say(&format!("wrote {}", dest.display()));
    Ok(0)
}

/// By way of a Docker archive, which Docker and Podman both load.
fn engine(app: &App, bundle: &Bundle, name: &Reference, host: Option<&str>, time: i64) -> Result<()> {
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let engine = Engine::connect(daemon::find(host, &app.env.daemon())?, &cancel)?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let written = bundle.write_image(&store, time, &cancel)?;
    let work = store.work_dir()?;
    let archive = Archive { format: Format::Docker, dest: work.path().join("bundle.tar"), name: Some(name.clone()) };
    let image = ExportImage { name: name.clone(), manifest: written.digest };
    export(&store, &[image], &archive, Some(time), &cancel)?;
    engine.load(&archive.dest)
}

fn oci(app: &App, bundle: &Bundle, archive: &Archive, time: i64) -> Result<()> {
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let written = bundle.write_image(&store, time, &cancel)?;
    let name = archive.name.clone().ok_or_else(|| Error::failed("the image has no name"))?;
    let image = ExportImage { name, manifest: written.digest };
    export(&store, &[image], archive, Some(time), &cancel).map(drop).failed(|| "cannot write the bundle".into())
}
