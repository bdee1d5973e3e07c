//! As much of a certificate as is needed to put it where OpenSSL finds it.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub struct Certificate {
    /// Its own lines of PEM, the last one ended.
    pub pem: String,
    der: Vec<u8>,
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a file; text between them is for people.
pub fn read(content: &[u8]) -> Vec<Certificate> {
    let text = String::from_utf8_lossy(content);
    let mut found = Vec::new();
    let mut rest = &*text;
    while let Some(start) = rest.find(BEGIN) {
        rest = &rest[start..];
        let Some(end) = rest.find(END) else { break };
        let (block, after) = rest.split_at(end + END.len());
        rest = after;
        if let Ok(der) = CertificateDer::from_pem_slice(block.as_bytes()) {
            found.push(Certificate { pem: format!("{block}\n"), der: der.to_vec() });
        }
    }
    found
}

impl Certificate {
    /// What `openssl x509 -subject_hash` prints.
    pub fn subject_hash(&self) -> Option<u32> {
        let canonical = canonical_name(self.subject()?)?;
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &canonical);
        let first: [u8; 4] = digest.as_ref().get(..4)?.try_into().ok()?;
        Some(u32::from_le_bytes(first))
    }

    /// The content of the subject, a sequence of sets.
    fn subject(&self) -> Option<&[u8]> {
        let (certificate, _) = element(&self.der)?;
        let (mut rest, _) = element(certificate.content).map(|(signed, after)| (signed.content, after))?;
        let (first, after) = element(rest)?;
        // The version is there unless it is 1.
        if first.tag == 0xa0 {
            rest = after;
        }
        // Serial number, algorithm, issuer, validity.
        for _ in 0..4 {
            rest = element(rest)?.1;
        }
        Some(element(rest)?.0.content)
    }
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// The first element of DER, and what comes after it.
fn element(der: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, first) = (*der.first()?, usize::from(*der.get(1)?));
    let (length, head) = if first < 0x80 {
        (first, 2)
    } else {
        let bytes = der.get(2..2 + (first & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), 2 + bytes.len())
    };
    let end = head.checked_add(length)?;
    Some((Element { tag, content: der.get(head..end)?, whole: der.get(..end)? }, &der[end..]))
}

/// OpenSSL's canonical form of a name: its sets one after the other, strings in UTF-8 and small letters, runs of blanks
/// as one, none at the ends.
fn canonical_name(mut name: &[u8]) -> Option<Vec<u8>> {
    let mut canonical = Vec::new();
    while !name.is_empty() {
        let (set, after) = element(name)?;
        name = after;
        let mut attributes = Vec::new();
        let mut rest = set.content;
        while !rest.is_empty() {
            let (attribute, after) = element(rest)?;
            rest = after;
            let (kind, value) = element(attribute.content)?;
            let (value, _) = element(value)?;
            let value = match text(&value) {
                Some(text) => encoded(0x0c, squeezed(&text).as_bytes()),
                None => value.whole.to_vec(),
            };
            attributes.push(encoded(0x30, &[kind.whole, &value].concat()));
        }
        // As a set in DER is ordered.
        attributes.sort();
        canonical.extend(encoded(0x31, &attributes.concat()));
    }
    Some(canonical)
}

/// The text of a string of any kind that counts as text in names.
fn text(value: &Element<'_>) -> Option<String> {
    let content = value.content;
    match value.tag {
        // UTF8String
        0x0c => String::from_utf8(content.to_vec()).ok(),
        // PrintableString, T61String, IA5String, VisibleString: a byte, a character.
        0x13 | 0x14 | 0x16 | 0x1a => Some(content.iter().map(|byte| char::from(*byte)).collect()),
        // UniversalString
        0x1c => content.chunks(4).map(|four| char::from_u32(u32::from_be_bytes(four.try_into().ok()?))).collect(),
        // BMPString
        0x1e => content.chunks(2).map(|two| char::from_u32(u16::from_be_bytes(two.try_into().ok()?).into())).collect(),
        _ => None,
    }
}

fn squeezed(text: &str) -> String {
    let words: Vec<&str> = text.split(|blank: char| blank.is_ascii_whitespace() || blank == '\u{b}').collect();
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut encoded = vec![tag];
    let length = content.len();
    if length < 0x80 {
        encoded.push(length as u8);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        encoded.push(0x80 | bytes.len() as u8);
        encoded.extend(bytes);
    }
    encoded.extend_from_slice(content);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    /// Debian names every certificate of its own by this hash.
    #[test]
    fn subjects_hash_as_openssl_hashes_them() {
        let mut compared = 0;
        for entry in std::fs::read_dir("/etc/ssl/certs").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(hash) = name.to_str().and_then(|name| name.strip_suffix(".0")) else { continue };
            let content = std::fs::read(Path::new("/etc/ssl/certs").join(&name)).unwrap();
            let certificates = read(&content);
            let hashes: Vec<_> =
                certificates.iter().map(|one| format!("{:08x}", one.subject_hash().unwrap())).collect();
            assert!(hashes.contains(&hash.to_string()), "{name:?}: {hashes:?}");
            compared += 1;
        }
        assert!(compared > 50, "only {compared} certificates to compare with; is ca-certificates installed?");
    }

    #[test]
    fn names_are_squeezed() {
        assert_eq!(squeezed("  Ex\u{e4}mple \t CA  "), "ex\u{e4}mple ca");
    }

    #[test]
    fn only_certificates_are_read() {
        assert!(read(b"").is_empty());
        assert!(read(b"-----BEGIN CERTIFICATE-----\nAAAA").is_empty());
        assert!(read(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(der in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Certificate { pem: String::new(), der }.subject_hash();
        }
    }
}
