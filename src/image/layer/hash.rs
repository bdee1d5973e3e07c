//! Hashes on the way: what is written or read is counted and hashed as it passes.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use crate::image::digest::Digest;

/// Hashes everything that is written, and passes it on to `inner`.
pub struct HashWriter<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> HashWriter<W> {
    pub fn new(inner: W) -> Self {
        HashWriter { inner, hash: Sha256::new(), size: 0 }
    }

    /// Digest and number of the bytes that were written, and where they went.
    pub fn finish(self) -> (Digest, u64, W) {
        (Digest::from_sha256(self.hash.finalize().as_slice()), self.size, self.inner)
    }

    pub fn get_ref(&self) -> &W {
        &self.inner
    }
}

impl<W: Write> Write for HashWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(data)?;
        self.hash.update(&data[..n]);
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Hashes everything that is read from `inner`.
pub struct HashReader<R> {
    inner: R,
    hash: Sha256,
    size: u64,
}

impl<R: Read> HashReader<R> {
    pub fn new(inner: R) -> Self {
        HashReader { inner, hash: Sha256::new(), size: 0 }
    }

    pub fn finish(self) -> (Digest, u64, R) {
        (Digest::from_sha256(self.hash.finalize().as_slice()), self.size, self.inner)
    }
}

impl<R: Read> Read for HashReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.size += n as u64;
        Ok(n)
    }
}
