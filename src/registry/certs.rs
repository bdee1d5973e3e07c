//! Certificates that are for one registry alone, laid out as Docker and podman have it: `certs.d/HOST[:PORT]/` with
//! `*.crt` of authorities, and `NAME.cert` with `NAME.key` of this client.

use std::path::{Path, PathBuf};

use reqwest::{Certificate, ClientBuilder, Identity};

use crate::error::{Context as _, Error, Result};

#[derive(Clone, Debug, Default)]
pub struct Certs {
    /// Directories with one for each registry.
    pub dirs: Vec<PathBuf>,
    /// The directory for every registry, in place of those.
    pub only: Option<PathBuf>,
}

impl Certs {
    /// Adds what there is for a registry; `name` as in a reference: `registry.example.org:5000`.
    pub(super) fn add(&self, name: &str, mut builder: ClientBuilder) -> Result<ClientBuilder> {
        let dirs = match &self.only {
            Some(dir) => vec![dir.clone()],
            None => self.dirs.iter().map(|dir| dir.join(name)).filter(|dir| dir.is_dir()).collect(),
        };
        for dir in dirs {
            for file in files(&dir)? {
                match file.extension().and_then(|end| end.to_str()) {
                    Some("crt") => {
                        let all = Certificate::from_pem_bundle(&read(&file)?).ok().filter(|all| !all.is_empty());
                        let all = all.ok_or_else(|| broken(&file, "it holds no certificate in PEM"))?;
                        builder = builder.tls_certs_merge(all);
                    }
                    Some("cert") => {
                        let key = file.with_extension("key");
                        if !key.exists() {
                            return Err(broken(&file, &format!("its key {} is missing", key.display())));
                        }
                        let pem = [read(&key)?, b"\n".to_vec(), read(&file)?].concat();
                        let identity = Identity::from_pem(&pem);
                        builder =
                            builder.identity(identity.map_err(|_| broken(&file, "it is no certificate with key"))?);
                    }
                    _ => {}
                }
            }
        }
        Ok(builder)
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("the certificates in {} cannot be read", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unusable(cannot)? {
        files.push(entry.unusable(cannot)?.path());
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).unusable(|| format!("the certificate {} cannot be read", file.display()))
}

fn broken(file: &Path, why: &str) -> Error {
    Error::unusable(format!("the certificate {} cannot be used", file.display())).cause(why)
}
