//! Digests (sha256, of what leaves Kollage) and keys (blake3, of what goes into a node or step).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// `sha256:<64 hex digits>`, the only algorithm that images use in practice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Digest::from_sha256(sha2::Sha256::digest(bytes).as_slice())
    }

    pub fn from_sha256(hash: &[u8]) -> Self {
        Digest(to_hex(hash))
    }

    pub fn hex(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, as every tool shows them.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let hex = s.strip_prefix("sha256:").ok_or_else(|| format!("`{s}` is not a sha256 digest"))?;
        if hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Digest(hex.to_owned()))
        } else {
            Err(format!("`{s}` is not a sha256 digest"))
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Digest> for String {
    fn from(d: Digest) -> String {
        d.to_string()
    }
}

/// Digest of every input of a node or step: equal keys mean that the result can be reused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

impl Key {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(12)]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Builds a key from labelled, length-prefixed parts, so that no two lists of parts give the same bytes.
pub struct KeyHasher(blake3::Hasher);

impl KeyHasher {
    pub fn new(domain: &str) -> Self {
        let mut hasher = KeyHasher(blake3::Hasher::new());
        hasher.part("domain", domain.as_bytes());
        hasher
    }

    pub fn part(&mut self, label: &str, value: impl AsRef<[u8]>) -> &mut Self {
        for bytes in [label.as_bytes(), value.as_ref()] {
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
        self
    }

    pub fn finish(&self) -> Key {
        Key(self.0.finalize().to_hex().to_string())
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        let _ = write!(out, "{b:02x}");
    }
    out
}
