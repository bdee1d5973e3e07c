//! Layers: made from an overlay's upper directory, unpacked from a tar, and given out compressed.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Codec, Layer, Store, WorkDir, records};
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::config::chain_id;
use crate::image::digest::{Digest, Key};
use crate::image::layer::compress::Encoder;
use crate::image::layer::decompress::{self, Compression};
use crate::image::layer::diff::{Diff, write_layer};
use crate::image::layer::hash::HashWriter;
use crate::image::layer::merged::write_merged;
use crate::image::layer::stack::LayerStack;
use crate::image::layer::standin;
use crate::image::layer::sys::{self, OsContext};
use crate::image::layer::unpack::{Unpacked, unpack_layer};
use crate::image::manifest::Descriptor;

/// `layer.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    #[serde(flatten)]
    pub(super) layer: Layer,
    /// Digest of the tar that the directory gives; that of the layer itself when it was built here.
    pub(super) tree: Digest,
    /// The blob that has the layer's own tar, when the directory doesn't give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Descriptor>,
    /// The chain id of the layers that it was unpacked over, where the directory has something from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) over: Option<Key>,
}

/// In a layer's directory: what a layer that borrows from those below it is over others than the first ones.
const OVER: &str = "over";

/// The read side of a layer's tar: what passes is also written to the blob that is kept.
struct Tee<R, W> {
    from: R,
    to: W,
    /// Why the blob could not be written, which is not the tar's fault.
    failed: Option<io::Error>,
}

impl<R, W> Tee<R, W> {
    fn new(from: R, to: W) -> Self {
        Tee { from, to, failed: None }
    }

    /// The result of reading, or what stopped the writing.
    fn check<T>(&mut self, result: Result<T>, root: &Path) -> Result<T> {
        match self.failed.take() {
            Some(e) => Err(e).os(root, || "cannot keep the layer's data".into()),
            None => result,
        }
    }
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        if let Err(e) = self.to.write_all(&buffer[..n]) {
            self.failed = Some(e);
            return Err(io::Error::other("what was read cannot be kept"));
        }
        Ok(n)
    }
}

impl Store {
    pub(super) fn layer_dir(&self, diff_id: &Digest) -> PathBuf {
        self.path("layers").join(diff_id.hex())
    }

    pub(super) fn layer_record(&self, diff_id: &Digest) -> Option<LayerRecord> {
        let record: LayerRecord = self.record(&self.layer_dir(diff_id).join("layer.json"))?;
        (record.layer.diff_id == *diff_id).then_some(record)
    }

    pub fn layer(&self, diff_id: &Digest) -> Option<Layer> {
        self.layer_record(diff_id).map(|r| r.layer)
    }

    /// The directory of a layer as it was over the layers that it came with first.
    pub fn layer_fs(&self, diff_id: &Digest) -> PathBuf {
        self.layer_dir(diff_id).join("fs")
    }

    /// A layer where it lies over others, and its overlayfs lower directory. Nearly every layer is the same over all.
    pub fn layer_over(&self, diff_id: &Digest, below: &[Digest]) -> Option<(Layer, PathBuf)> {
        let record = self.layer_record(diff_id)?;
        let Some(over) = record.over else { return Some((record.layer, self.layer_fs(diff_id))) };
        let wanted = chain_id(below);
        if over == wanted {
            return Some((record.layer, self.layer_fs(diff_id)));
        }
        let dir = self.variant_dir(diff_id, &wanted);
        let record: LayerRecord = self.record(&dir.join("layer.json"))?;
        (record.over == Some(wanted)).then(|| (record.layer, dir.join("fs")))
    }

    fn variant_dir(&self, diff_id: &Digest, over: &Key) -> PathBuf {
        self.layer_dir(diff_id).join(OVER).join(super::file_name(over.as_str()))
    }

    /// Of a layer's directory: what it is over others than the first ones.
    pub(super) fn variants(&self, layer_dir: &Path) -> Result<Vec<PathBuf>> {
        let name = layer_dir.join(OVER);
        if name.exists() { self.files(&name.to_string_lossy()) } else { Ok(Vec::new()) }
    }

    /// The layers of an image, the lowest first, each as it is over those before it; None when one is missing.
    pub fn layers(&self, diff_ids: &[Digest]) -> Option<Vec<(Layer, PathBuf)>> {
        diff_ids.iter().enumerate().map(|(i, diff_id)| self.layer_over(diff_id, &diff_ids[..i])).collect()
    }

    /// The merged view of layers, the lowest first.
    pub fn stack(&self, layers: &[Digest]) -> Result<LayerStack> {
        for diff_id in layers {
            self.require(diff_id)?;
        }
        let found = self.layers(layers).ok_or_else(|| {
            Error::failed("the store has a layer only as it is over others than these").hint("import the image again")
        })?;
        Ok(LayerStack::new(found.into_iter().map(|(_, fs)| fs)))
    }

    fn require(&self, diff_id: &Digest) -> Result<LayerRecord> {
        self.layer_record(diff_id).ok_or_else(|| Error::failed(format!("the store has no layer {diff_id}")))
    }

    /// Makes the upper directory of an overlay a layer: hashes its tar (deterministic; times clamped to
    /// `source_date_epoch`), and moves it into place; nothing is copied. `below` are the layers under it, lowest
    /// first: they decide which whiteouts and opaque markers mean anything. An upper directory that holds nothing
    /// gives the (valid) empty layer. If the same layer is there already, `upper` is removed and that one is given.
    ///
    /// The overlay must not be mounted any more. `upper` is on the store's file system, in a work directory.
    pub fn commit_upper(&self, upper: &Path, below: &[Digest], source_date_epoch: Option<i64>) -> Result<Layer> {
        let stack = self.stack(below)?;
        let limits = &self.inner.limits;
        let diff = Diff { below: Some(&stack), source_date_epoch, normalise: true, limits, cancel: None };
        let mut hash = HashWriter::new(io::sink());
        let entries = write_layer(upper, &mut hash, &diff)?;
        let (diff_id, size, _) = hash.finish();
        set_root(upper, &stack)?;
        let layer = Layer { diff_id: diff_id.clone(), size, entries };
        if let Some(layer) = self.layer(&diff_id) {
            sys::remove_tree(upper).os(upper, || format!("cannot remove {}", upper.display()))?;
            return Ok(layer);
        }
        let work = self.work_dir()?;
        let dir = work.path().join("layer");
        std::fs::create_dir(&dir).os(&dir, || format!("cannot make {}", dir.display()))?;
        std::fs::rename(upper, dir.join("fs"))
            .os(upper, || format!("cannot move {} into the store", upper.display()))?;
        self.publish(&work, &dir, LayerRecord { layer, tree: diff_id, source: None, over: None })
    }

    /// Moves a layer's directory into place. When another builder was faster, its layer is as good.
    fn publish(&self, work: &WorkDir, dir: &Path, record: LayerRecord) -> Result<Layer> {
        let mut target = self.layer_dir(&record.layer.diff_id);
        let json = dir.join("layer.json");
        std::fs::write(&json, self.envelope(&record)?).os(&json, || format!("cannot write {}", json.display()))?;
        let cannot = |target: &Path| format!("cannot move a layer to {}", target.display());
        for attempt in 0..8 {
            match rustix::fs::renameat_with(CWD, dir, CWD, &target, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    self.unsettled(target.join("layer.json"));
                    return Ok(record.layer);
                }
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(e) => return Err(e).os(&target, || cannot(&target)),
            }
            if let Some(there) = self.record::<LayerRecord>(&target.join("layer.json")) {
                let Some(over) = record.over.as_ref().filter(|_| there.over != record.over) else {
                    return Ok(there.layer);
                };
                // The same tar over other layers.
                target = self.variant_dir(&record.layer.diff_id, over);
                let parent = target.parent().unwrap_or(&target);
                std::fs::create_dir_all(parent).os(parent, || format!("cannot make {}", parent.display()))?;
                continue;
            }
            // What is there was not on disk when the machine stopped: it goes away with the work directory.
            match std::fs::rename(&target, work.path().join(format!("stale-{attempt}"))) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e).os(&target, || cannot(&target)),
            }
        }
        Err(Error::failed(cannot(&target)).cause("something else is always there"))
    }

    /// Unpacks a layer tar (any compression, told by content) as a layer of its own over `below`. `expected` is
    /// checked against the hash of the uncompressed tar. Hostile entries are refused or contained.
    ///
    /// The stream is kept as a blob where the directory can't give the same tar again: gzip and zstd as they are, so
    /// that they need not be compressed again; everything else as zstd. A layer that is there already is not read.
    pub fn unpack_layer(
        &self,
        tar: &mut dyn Read,
        below: &[Digest],
        expected: Option<&Digest>,
        cancel: &Cancel,
    ) -> Result<Layer> {
        let stack = self.stack(below)?;
        let _lock = match expected {
            Some(diff_id) => Some(self.lock_named(&format!("layer-{}", diff_id.hex()), Some(cancel))?),
            None => None,
        };
        if let Some((layer, _)) = expected.and_then(|d| self.layer_over(d, below)) {
            return Ok(layer);
        }
        let (work, dir, fs) = self.new_layer(&stack)?;
        let limits = &self.unpack_limits();
        let cannot = || "cannot keep the layer's data".to_owned();
        let (kind, stream) = decompress::detect(tar).map_err(|e| Error::failed("cannot read the layer").cause(e))?;
        let blob = self.blob_writer()?;
        let (unpacked, blob, codec) = match kind {
            Compression::Gzip | Compression::Zstd => {
                let codec = if kind == Compression::Gzip { Codec::Gzip } else { Codec::Zstd };
                let mut tee = Tee::new(stream, blob);
                let unpacked = unpack_layer(&mut tee, &fs, &stack, expected, limits, cancel);
                let unpacked = tee.check(unpacked, self.root())?;
                // What follows the compressed data belongs to the blob.
                io::copy(&mut tee, &mut io::sink()).os(self.root(), cannot)?;
                (unpacked, tee.to, codec)
            }
            Compression::Plain | Compression::Xz | Compression::Bzip2 => {
                let (_, stream) = decompress::decompress(stream)?;
                let to = Encoder::new(Codec::Zstd, blob).os(self.root(), cannot)?;
                let mut tee = Tee::new(stream, to);
                let unpacked = unpack_layer(&mut tee, &fs, &stack, expected, limits, cancel);
                let unpacked = tee.check(unpacked, self.root())?;
                (unpacked, tee.to.finish().os(self.root(), cannot)?, Codec::Zstd)
            }
        };
        let tree = self.tree(&fs, Some(cancel))?;
        // A plain tar that the directory gives again needs no copy.
        let keep = tree != unpacked.diff_id || matches!(kind, Compression::Gzip | Compression::Zstd);
        let blob = if keep { Some(self.finish_blob(blob, codec)?) } else { None };
        self.publish_unpacked(&work, &dir, below, unpacked, tree, blob)
    }

    /// As `unpack_layer`, from a blob that is in the store already and is the layer's compressed form from then on.
    pub fn unpack_blob(
        &self,
        blob: &Descriptor,
        below: &[Digest],
        expected: Option<&Digest>,
        cancel: &Cancel,
    ) -> Result<Layer> {
        let stack = self.stack(below)?;
        let _lock = match expected {
            Some(diff_id) => Some(self.lock_named(&format!("layer-{}", diff_id.hex()), Some(cancel))?),
            None => None,
        };
        if let Some((layer, _)) = expected.and_then(|d| self.layer_over(d, below)) {
            self.remember_blob(&layer.diff_id, blob)?;
            return Ok(layer);
        }
        let (work, dir, fs) = self.new_layer(&stack)?;
        let path = self.blob_path(&blob.digest);
        let mut file = std::fs::File::open(&path).os(&path, || format!("cannot read the blob {}", blob.digest))?;
        let unpacked = unpack_layer(&mut file, &fs, &stack, expected, &self.unpack_limits(), cancel)?;
        let tree = self.tree(&fs, Some(cancel))?;
        self.publish_unpacked(&work, &dir, below, unpacked, tree, Some(blob.clone()))
    }

    /// A tar of a whole root file system, from elsewhere, as a layer of Kollage's own form: sorted, times clamped,
    /// nothing kept but the files. The same files give the same layer whoever packed them.
    pub fn import_rootfs(&self, tar: &mut dyn Read, source_date_epoch: Option<i64>, cancel: &Cancel) -> Result<Layer> {
        let (_work, _, fs) = self.new_layer(&LayerStack::default())?;
        unpack_layer(tar, &fs, &LayerStack::default(), None, &self.unpack_limits(), cancel)?;
        self.commit_upper(&fs, &[], source_date_epoch)
    }

    /// One layer that does to the files of `below` what the layers `own` on it do one after the other.
    pub fn squash(
        &self,
        own: &[Digest],
        below: &[Digest],
        source_date_epoch: Option<i64>,
        cancel: &Cancel,
    ) -> Result<Layer> {
        let whole = [below, own].concat();
        self.stack(&whole)?;
        let paths = self.layers(&whole).unwrap_or_default().into_iter().map(|(_, fs)| fs);
        let own = LayerStack::new(paths.skip(below.len()));
        let below_own = self.stack(below)?;
        let work = self.work_dir()?;
        let path = work.path().join("squashed.tar");
        let cannot = || "cannot write a layer".to_owned();
        let mut out = io::BufWriter::new(std::fs::File::create(&path).os(&path, cannot)?);
        write_merged(&own, &below_own, &mut out, source_date_epoch, &self.inner.limits, cancel)?;
        out.flush().os(&path, cannot)?;
        drop(out);
        let mut tar = std::fs::File::open(&path).os(&path, cannot)?;
        self.unpack_layer(&mut tar, below, None, cancel)
    }

    fn new_layer(&self, below: &LayerStack) -> Result<(WorkDir, PathBuf, PathBuf)> {
        let work = self.work_dir()?;
        let dir = work.path().join("layer");
        let fs = dir.join("fs");
        std::fs::create_dir_all(&fs).os(&fs, || format!("cannot make {}", fs.display()))?;
        set_root(&fs, below)?;
        Ok((work, dir, fs))
    }

    /// Digest of the tar that a layer's directory gives.
    pub(super) fn tree(&self, fs: &Path, cancel: Option<&Cancel>) -> Result<Digest> {
        let limits = &self.inner.limits;
        let diff = Diff { below: None, source_date_epoch: None, normalise: false, limits, cancel };
        let mut hash = HashWriter::new(io::sink());
        write_layer(fs, &mut hash, &diff)?;
        Ok(hash.finish().0)
    }

    fn finish_blob(&self, blob: super::BlobWriter, codec: Codec) -> Result<Descriptor> {
        let (digest, size) = blob.finish(None)?;
        let media_type = codec.media_type().to_owned();
        Ok(Descriptor { media_type, digest, size, platform: None, annotations: Default::default() })
    }

    fn publish_unpacked(
        &self,
        work: &WorkDir,
        dir: &Path,
        below: &[Digest],
        unpacked: Unpacked,
        tree: Digest,
        blob: Option<Descriptor>,
    ) -> Result<Layer> {
        let Unpacked { diff_id, size, entries, borrows, .. } = unpacked;
        let source = if tree == diff_id { None } else { blob.clone() };
        let over = borrows.then(|| chain_id(below));
        let layer = Layer { diff_id, size, entries };
        let layer = self.publish(work, dir, LayerRecord { layer, tree, source, over })?;
        if let Some(blob) = blob {
            self.remember_blob(&layer.diff_id, &blob)?;
        }
        Ok(layer)
    }

    // --- compressed forms

    pub(super) fn codec_path(&self, diff_id: &Digest, codec: Codec) -> PathBuf {
        self.layer_dir(diff_id).join(format!("{}.json", codec.name()))
    }

    fn remembered(&self, diff_id: &Digest, codec: Codec) -> Option<Descriptor> {
        let blob: Descriptor = self.record(&self.codec_path(diff_id, codec))?;
        let path = self.blob_path(&blob.digest);
        let whole = std::fs::metadata(&path).is_ok_and(|m| m.len() == blob.size);
        records::touch(&path);
        whole.then_some(blob)
    }

    /// Makes `compressed` answer with this blob when it is asked for the codec of the blob's media type.
    pub fn remember_blob(&self, diff_id: &Digest, blob: &Descriptor) -> Result<()> {
        self.require(diff_id)?;
        let codec = Codec::of_media_type(&blob.media_type).ok_or_else(|| {
            Error::failed(format!("the blob {} is no layer", blob.digest))
                .cause(format!("its media type is `{}`", blob.media_type))
        })?;
        if !self.has_blob(&blob.digest) {
            return Err(Error::failed(format!("the store has no blob {}", blob.digest)));
        }
        let blob = Descriptor {
            media_type: codec.media_type().to_owned(),
            digest: blob.digest.clone(),
            size: blob.size,
            platform: None,
            annotations: Default::default(),
        };
        self.put_record(&self.codec_path(diff_id, codec), &blob)
    }

    /// Whether `compressed` has its answer already.
    pub fn is_compressed(&self, diff_id: &Digest, codec: Codec) -> bool {
        self.remembered(diff_id, codec).is_some()
    }

    /// The compressed form of a layer, made when it isn't there yet (in parallel; same bytes whatever the number of
    /// threads). Two callers at once share the work.
    pub fn compressed(&self, diff_id: &Digest, codec: Codec, cancel: &Cancel) -> Result<Descriptor> {
        self.require(diff_id)?;
        if let Some(blob) = self.remembered(diff_id, codec) {
            return Ok(blob);
        }
        let _lock = self.lock_named(&format!("{}-{}", codec.name(), diff_id.hex()), Some(cancel))?;
        if let Some(blob) = self.remembered(diff_id, codec) {
            return Ok(blob);
        }
        let cannot = || format!("cannot compress the layer {diff_id}");
        let mut encoder = Encoder::new(codec, self.blob_writer()?).os(self.root(), cannot)?;
        self.write_layer_tar(diff_id, &mut encoder, cancel)?;
        let blob = self.finish_blob(encoder.finish().os(self.root(), cannot)?, codec)?;
        self.put_record(&self.codec_path(diff_id, codec), &blob)?;
        Ok(blob)
    }

    /// The exact tar of a layer: its digest is the diff id. An error when the store no longer has what gives it.
    pub fn write_layer_tar(&self, diff_id: &Digest, out: &mut dyn Write, cancel: &Cancel) -> Result<()> {
        let record = self.require(diff_id)?;
        let mut hash = HashWriter::new(out);
        match &record.source {
            None => {
                let limits = &self.inner.limits;
                let diff =
                    Diff { below: None, source_date_epoch: None, normalise: false, limits, cancel: Some(cancel) };
                write_layer(&self.layer_fs(diff_id), &mut hash, &diff)?;
            }
            Some(blob) => self.copy_source(blob, &mut hash, cancel)?,
        }
        let found = hash.finish().0;
        if found != *diff_id {
            return Err(Error::failed(format!("the layer {diff_id} in the store is damaged"))
                .cause(format!("its files give {found}"))
                .hint("`kollage store verify --repair` removes what is damaged, and the next build makes it again"));
        }
        Ok(())
    }

    fn copy_source(&self, blob: &Descriptor, out: &mut dyn Write, cancel: &Cancel) -> Result<()> {
        let path = self.blob_path(&blob.digest);
        let cannot = || format!("cannot read the blob {}", blob.digest);
        let file = std::fs::File::open(&path).os(&path, cannot)?;
        let (_, mut stream) = decompress::decompress(file)?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            cancel.check()?;
            let n = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e).failed(cannot),
            };
            out.write_all(&buffer[..n]).os(self.root(), || "cannot write the layer".into())?;
        }
    }
}

/// A layer says nothing about the root itself (a tar that does is the exception), so the root of its directory is as
/// the layers below have it: overlayfs shows that of the topmost one.
fn set_root(fs: &Path, below: &LayerStack) -> Result<()> {
    let cannot = || format!("cannot change {}", fs.display());
    let (mode, (uid, gid), mtime) = match below.root() {
        Some(root) => {
            let found = root.metadata()?;
            let owner = standin::owner_of(&found.path, &found.stat).os(&found.path, cannot)?;
            (found.stat.st_mode & 0o7777, owner, found.stat.st_mtime)
        }
        None => (0o755, (0, 0), 0),
    };
    if rustix::process::geteuid().is_root() {
        standin::chown_path(fs, uid, gid).os(fs, cannot)?;
    }
    rustix::fs::chmodat(CWD, fs, Mode::from_raw_mode(mode), AtFlags::empty()).os(fs, cannot)?;
    rustix::fs::utimensat(CWD, fs, &sys::modified(mtime, 0), AtFlags::SYMLINK_NOFOLLOW).os(fs, cannot)
}
