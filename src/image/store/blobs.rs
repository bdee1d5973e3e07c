//! Blobs: configurations, manifests and compressed layers by the digest of their bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{Store, records};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::layer::hash::HashWriter;
use crate::image::layer::sys::OsContext;

/// A blob that is being written; it exists under its digest once `finish` returns.
#[derive(Debug)]
pub struct BlobWriter {
    store: Store,
    path: PathBuf,
    out: Option<HashWriter<File>>,
}

impl std::fmt::Debug for HashWriter<File> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get_ref().fmt(f)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(data),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobWriter {
    /// On disk, and in its place. Digest and size of what was written.
    pub fn finish(mut self, expected: Option<&Digest>) -> Result<(Digest, u64)> {
        let Some(out) = self.out.take() else { return Err(Error::failed("a blob was finished twice")) };
        let (digest, size, file) = out.finish();
        if let Some(expected) = expected.filter(|e| **e != digest) {
            return Err(Error::failed("the data is not what was asked for")
                .cause(format!("its digest is {digest}, and not {expected}")));
        }
        self.store.place_blob(&self.path, &file, &digest)?;
        Ok((digest, size))
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        // Nothing is there any more when it went to its place.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Store {
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path("blobs/sha256").join(digest.hex())
    }

    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blob_path(digest).is_file()
    }

    pub fn put_blob(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        if self.has_blob(&digest) {
            records::touch(&self.blob_path(&digest));
            return Ok(digest);
        }
        let mut writer = self.blob_writer()?;
        writer.write_all(bytes).os(self.root(), || "cannot write a blob".into())?;
        writer.finish(Some(&digest)).map(|(digest, _)| digest)
    }

    /// For blobs that don't fit into memory.
    pub fn blob_writer(&self) -> Result<BlobWriter> {
        let path = self.inner.owner.fresh("blob");
        let file = File::create(&path).os(&path, || format!("cannot write {}", path.display()))?;
        Ok(BlobWriter { store: self.clone(), path, out: Some(HashWriter::new(file)) })
    }

    /// Copies a stream into the store.
    pub fn put_blob_from(
        &self,
        from: &mut dyn Read,
        expected: Option<&Digest>,
        cancel: &Cancel,
    ) -> Result<(Digest, u64)> {
        let mut writer = self.blob_writer()?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            cancel.check()?;
            let n = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::failed("cannot read the data of a blob").cause(e)),
            };
            writer.write_all(&buffer[..n]).os(self.root(), || "cannot write a blob".into())?;
        }
        writer.finish(expected)
    }

    /// Takes a file of a [`WorkDir`](super::WorkDir), whose digest the caller has checked, into the store by renaming.
    pub fn adopt_blob(&self, file: &Path, digest: &Digest) -> Result<()> {
        let open = File::open(file).os(file, || format!("cannot read {}", file.display()))?;
        self.place_blob(file, &open, digest)
    }

    fn place_blob(&self, from: &Path, file: &File, digest: &Digest) -> Result<()> {
        let to = self.blob_path(digest);
        let cannot = || format!("cannot write the blob {digest}");
        if to.is_file() {
            let _ = std::fs::remove_file(from);
            records::touch(&to);
            return Ok(());
        }
        file.sync_all().os(from, cannot)?;
        std::fs::rename(from, &to).os(&to, cannot)?;
        let dir = self.path("blobs/sha256");
        File::open(&dir).and_then(|d| d.sync_all()).os(&dir, cannot)
    }

    /// The whole blob, checked: for configurations and manifests.
    pub fn read_blob(&self, digest: &Digest) -> Result<Vec<u8>> {
        let path = self.blob_path(digest);
        let bytes = std::fs::read(&path).os(&path, || format!("cannot read the blob {digest}"))?;
        if Digest::of(&bytes) != *digest {
            return Err(Error::failed(format!("the blob {digest} in the store is damaged"))
                .cause(path.display())
                .hint("`kollage store verify --repair` removes what is damaged, and the next build makes it again"));
        }
        Ok(bytes)
    }
}
