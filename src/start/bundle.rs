//! The bundle: the runtime by all its names, a definition of each service as JSON, and `bundle.json`, which says what is
//! in it. Its bytes depend on what is in it alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde::Serialize;
use tar::EntryType;

use super::runtime::Runtime;
use super::{Definitions, definition};
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::staging::Staged;
use crate::image::config::{History, ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::layer::compress::{Codec, Encoder};
use crate::image::layer::write::{Entry, TarWriter};
use crate::image::store::{Store, Written};

/// What the runtime is called besides its own name, so that it is what Kolla's deployments call.
pub const NAMES: [&str; 9] = [
    "healthcheck_curl",
    "healthcheck_filemod",
    "healthcheck_listen",
    "healthcheck_port",
    "healthcheck_socket",
    "kolla_copy_cacerts",
    "kolla_extend_start",
    "kolla_set_configs",
    "kolla_start",
];

/// Where the runtime is in a bundle.
pub const PROGRAM: &str = "kollage-start";

pub struct Bundle {
    /// By path below the bundle, directories not named.
    pub files: BTreeMap<String, Content>,
    /// What the runtime runs on.
    pub platform: Platform,
}

pub enum Content {
    File { bytes: Vec<u8>, executable: bool },
    Link(&'static str),
}

/// `bundle.json`
#[derive(Serialize)]
struct Contents {
    version: &'static str,
    schema: u32,
    platform: String,
    runtime: Digest,
    services: BTreeMap<String, ServiceContents>,
}

#[derive(Serialize)]
struct ServiceContents {
    summary: String,
    definition: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<Digest>,
}

impl Bundle {
    pub fn new(definitions: &Definitions, runtime: Runtime) -> Result<Bundle> {
        let mut files = BTreeMap::new();
        let mut services = BTreeMap::new();
        for (name, (folder, definition)) in &definitions.services {
            let json = definition.json().failed(|| format!("cannot write the definition of {name} as JSON"))?;
            let mut contents = ServiceContents {
                summary: definition.summary.clone(),
                definition: Digest::of(json.as_bytes()),
                script: None,
            };
            files.insert(format!("services/{name}.json"), Content::text(json));
            if let Some(script) = &definition.script {
                let path = folder.join("extend_start.sh");
                let text = crate::text::read_to_string(&path)
                    .map_err(|e| Error::bad_input(format!("cannot read the script `{}`", path.display())).cause(e))?;
                contents.script = Some(Digest::of(text.as_bytes()));
                files.insert(format!("services/{script}"), Content::text(text));
            }
            services.insert(name.clone(), contents);
        }
        let contents = Contents {
            version: env!("CARGO_PKG_VERSION"),
            schema: definition::SCHEMA,
            platform: runtime.platform.to_string(),
            runtime: Digest::of(&runtime.bytes),
            services,
        };
        let json = serde_json::to_string_pretty(&contents).failed(|| "cannot write bundle.json".into())?;
        files.insert("bundle.json".into(), Content::text(json + "\n"));
        files.insert(PROGRAM.into(), Content::File { bytes: runtime.bytes, executable: true });
        files.extend(NAMES.map(|name| (name.to_owned(), Content::Link(PROGRAM))));
        Ok(Bundle { files, platform: runtime.platform })
    }

    /// As a tar in memory, compressed by gzip.
    pub fn tar_gz(&self, time: i64) -> io::Result<Vec<u8>> {
        self.tar(Encoder::new(Codec::Gzip, Vec::new())?, time)?.finish()
    }

    /// As a tar, which is compressed where the name says so.
    pub fn write_tar(&self, dest: &Path, codec: Codec, time: i64) -> Result<()> {
        let cannot = || format!("cannot write `{}`", dest.display());
        let staged = Staged::beside(dest)?;
        let out = BufWriter::new(staged.create_file()?);
        let encoder = Encoder::new(codec, out).unusable(cannot)?;
        let file = self.tar(encoder, time).and_then(Encoder::finish).and_then(|out| Ok(out.into_inner()?));
        file.and_then(|file| file.sync_all()).unusable(cannot)?;
        staged.put_in_place()
    }

    fn tar<W: Write>(&self, out: W, time: i64) -> io::Result<W> {
        let mut tar = TarWriter::new(out);
        self.entries(&mut tar, "", time)?;
        tar.finish()
    }

    /// As a layer for images whose files are not at hand: with the bundle at `place`, and its programs linked in
    /// `programs`. Directories that an image may have keep what it says of them, since the layer says nothing.
    pub fn layer(&self, place: &str, programs: &str, time: i64) -> io::Result<Vec<u8>> {
        let mut tar = TarWriter::new(Vec::new());
        let place = place.trim_start_matches('/');
        entry(&mut tar, &format!("{place}/"), EntryType::Directory, 0o755, b"", "", time)?;
        self.entries(&mut tar, &format!("{place}/"), time)?;
        for name in NAMES.iter().chain(&[PROGRAM]) {
            let path = format!("{}/{name}", programs.trim_start_matches('/'));
            entry(&mut tar, &path, EntryType::Symlink, 0o777, b"", &format!("/{place}/{PROGRAM}"), time)?;
        }
        tar.finish()
    }

    fn entries<W: Write>(&self, tar: &mut TarWriter<W>, place: &str, time: i64) -> io::Result<()> {
        let mut directory = "";
        for (path, content) in &self.files {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if parent != directory {
                directory = parent;
                entry(tar, &format!("{place}{parent}/"), EntryType::Directory, 0o755, b"", "", time)?;
            }
            let path = format!("{place}{path}");
            match content {
                Content::File { bytes, .. } => {
                    entry(tar, &path, EntryType::Regular, content.mode(), bytes, "", time)?;
                }
                Content::Link(to) => entry(tar, &path, EntryType::Symlink, 0o777, b"", to, time)?,
            }
        }
        Ok(())
    }

    /// As an image of one layer with the bundle in its root: an image volume.
    pub fn write_image(&self, store: &Store, time: i64, cancel: &Cancel) -> Result<Written> {
        let work = store.work_dir()?;
        let upper = work.path().join("upper");
        self.write_directory(&upper)?;
        let layer = store.commit_upper(&upper, &[], Some(time))?;
        let blob = store.compressed(&layer.diff_id, Codec::Gzip, cancel)?;
        let mut config = ImageConfig::new(&self.platform);
        config.config.entrypoint = Some(vec![format!("/{PROGRAM}")]);
        config.rootfs.diff_ids.push(layer.diff_id);
        config.history.push(History { created_by: Some("kollage start pack".into()), ..History::default() });
        let written = store.put_image(&config, vec![blob])?;
        store.settle()?;
        Ok(written)
    }

    /// Into a directory, which is new: to be mounted, or to become a layer.
    pub fn write_directory(&self, dest: &Path) -> Result<()> {
        let cannot = || format!("cannot write the bundle to `{}`", dest.display());
        let write = || -> io::Result<()> {
            for (path, content) in &self.files {
                let place = dest.join(path);
                if let Some(parent) = place.parent() {
                    fs::create_dir_all(parent)?;
                    fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
                }
                match content {
                    Content::File { bytes, .. } => {
                        File::create_new(&place)?.write_all(bytes)?;
                        fs::set_permissions(&place, fs::Permissions::from_mode(content.mode()))?;
                    }
                    Content::Link(to) => symlink(to, &place)?,
                }
            }
            Ok(())
        };
        write().unusable(cannot)
    }
}

fn entry<W: Write>(
    tar: &mut TarWriter<W>,
    path: &str,
    kind: EntryType,
    mode: u32,
    content: &[u8],
    link: &str,
    time: i64,
) -> io::Result<()> {
    let (path, link, size) = (path.as_bytes(), link.as_bytes(), content.len() as u64);
    let none = BTreeMap::new();
    let (uid, gid, mtime, device) = (0, 0, time, (0, 0));
    tar.entry(&Entry { path, kind, mode, uid, gid, mtime, size, link, device, xattrs: &none })?;
    tar.data(content)
}

impl Content {
    fn text(text: String) -> Content {
        Content::File { bytes: text.into_bytes(), executable: false }
    }

    fn mode(&self) -> u32 {
        match self {
            Content::File { executable: false, .. } => 0o644,
            _ => 0o755,
        }
    }
}
