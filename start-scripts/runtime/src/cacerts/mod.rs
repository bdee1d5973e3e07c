//! What `kolla_copy_cacerts` does: an operator's CA certificates among the system's, as update-ca-certificates (Debian)
//! or update-ca-trust (RHEL) would put them there, without either. They are planned files like any other, so that they
//! go away again, and the system's own bundle comes back, when they are no longer given.

mod certificate;

use crate::error::{Failure, Result, shown};
use crate::places::Places;
use crate::plan::{Own, Plan};
use crate::state::{Original, Store};
use crate::{apply, files, log, preflight};
use certificate::Certificate;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where kolla-ansible has its own copied to, and where Kolla looks otherwise.
const SHARED: &str = "/var/lib/kolla/share/ca-certificates";
/// What this is called in messages.
const ENTRY: &str = "CA certificates";

/// Bundles of systems of any family, by what reads them.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A file of an operator's, with one certificate or more.
struct Given {
    name: OsString,
    /// As it is.
    content: Vec<u8>,
    certificates: Vec<Certificate>,
}

/// Installs what is given into the system's places. What was installed before and isn't given now goes away.
pub fn install(places: &Places) -> Result<()> {
    let given = given(places)?;
    let directory = places.defaults.join("cacerts");
    if given.is_empty() && Store::look(&directory)?.is_none() {
        return Ok(());
    }
    let mut store = Store::open(&directory)?;
    let mut plan = plan(&given, &store)?;
    preflight::look(&plan)?;
    if apply::restore_gone(&plan, &mut store)? {
        plan = self::plan(&given, &store)?;
        preflight::look(&plan)?;
    }
    apply::keep_originals(&plan, &mut store)?;
    apply::change(&plan)
}

/// Writes the system's certificates and those that are given to one file, and leaves the system's as they are: for a
/// root file system that is read-only. Whether there is such a file then.
pub fn write_bundle(places: &Places, bundle: &Path) -> Result<bool> {
    let given = given(places)?;
    if given.is_empty() {
        return Ok(false);
    }
    let system = BUNDLES.iter().find_map(|bundle| fs::read(bundle).ok()).unwrap_or_default();
    files::write(bundle, &joined(&system, &given), 0o644).map_err(|failure| failure.of("KOLLAGE_CA_BUNDLE"))?;
    Ok(true)
}

fn given(places: &Places) -> Result<Vec<Given>> {
    let mut given = Vec::new();
    let own = places.config.join("ca-certificates");
    let Some(directory) = [Path::new(SHARED), &own].into_iter().find(|place| place.is_dir()) else { return Ok(given) };
    let cannot = |path: &Path, error| Failure::system(format_args!("read {}", shown(path)), error).of(ENTRY);
    for entry in fs::read_dir(directory).map_err(|error| cannot(directory, error))? {
        let name = entry.map_err(|error| cannot(directory, error))?.file_name();
        let path = directory.join(&name);
        // What Kubernetes keeps beside its links; and subdirectories, which Kolla doesn't look into.
        if name.as_encoded_bytes().starts_with(b".") || path.is_dir() {
            continue;
        }
        let content = fs::read(&path).map_err(|error| cannot(&path, error))?;
        let certificates = certificate::read(&content);
        if certificates.is_empty() {
            log::warning(format_args!("{ENTRY}: {} has no certificate in PEM, and is left out", shown(&path)));
        } else {
            given.push(Given { name, content, certificates });
        }
    }
    given.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(given)
}

fn plan(given: &[Given], store: &Store) -> Result<Plan> {
    let mut planner = Planner { plan: Plan::empty(), store, given, taken: BTreeSet::new() };
    if given.is_empty() {
        return Ok(planner.plan);
    }
    if Path::new("/etc/debian_version").exists() {
        planner.debian()?;
    } else if Path::new("/etc/pki/ca-trust").is_dir() {
        planner.red_hat()?;
    } else {
        let bundle = BUNDLES.iter().map(Path::new).find(|bundle| bundle.is_file());
        let bundle = bundle.ok_or_else(|| {
            Failure::wrong(format!(
                "{ENTRY}: the image has no bundle of certificates; KOLLAGE_CA_BUNDLE=FILE makes one"
            ))
        })?;
        planner.bundle(bundle)?;
    }
    Ok(planner.plan)
}

struct Planner<'a> {
    plan: Plan,
    store: &'a Store,
    given: &'a [Given],
    /// Names by hash that are planned already.
    taken: BTreeSet<PathBuf>,
}

impl Planner<'_> {
    fn debian(&mut self) -> Result<()> {
        let (local, certs) = (Path::new("/usr/local/share/ca-certificates"), Path::new("/etc/ssl/certs"));
        for given in self.given {
            let file = local.join(custom(&given.name));
            self.plan.put_file(&file, given.content.clone(), root(0o644), ENTRY)?;
            let stem = Path::new(&given.name).file_stem().unwrap_or(&given.name);
            let mut link = custom(stem);
            link.push(".pem");
            self.plan.put_link(&certs.join(&link), file, ENTRY)?;
            self.hashed(certs, given, Path::new(&link))?;
        }
        self.bundle(&certs.join("ca-certificates.crt"))
    }

    fn red_hat(&mut self) -> Result<()> {
        let trust = Path::new("/etc/pki/ca-trust");
        for given in self.given {
            let file = trust.join("source/anchors").join(custom(&given.name));
            self.plan.put_file(&file, given.content.clone(), root(0o644), ENTRY)?;
        }
        let extracted = trust.join("extracted");
        self.bundle(&extracted.join("pem/tls-ca-bundle.pem"))?;
        for name in ["pem/email-ca-bundle.pem", "pem/objsign-ca-bundle.pem", "openssl/ca-bundle.trust.crt"] {
            let bundle = extracted.join(name);
            if bundle.is_file() {
                self.bundle(&bundle)?;
            }
        }
        let hashes = extracted.join("pem/directory-hash");
        if hashes.is_dir() {
            for given in self.given {
                let mut name = custom(&given.name);
                name.push(".pem");
                self.plan.put_file(&hashes.join(&name), given.content.clone(), root(0o444), ENTRY)?;
                self.hashed(&hashes, given, Path::new(&name))?;
            }
        }
        Ok(())
    }

    /// The system's own bundle, and the given certificates after it.
    fn bundle(&mut self, bundle: &Path) -> Result<()> {
        // Written to where a link leads, so that all that lead there see it.
        let bundle = fs::canonicalize(bundle).unwrap_or_else(|_| bundle.into());
        let original = match self.store.state.units.get(&bundle).map(|unit| &unit.original) {
            Some(Original::Copy(copy)) => Some(self.store.copy(copy)),
            Some(_) => None,
            None => bundle.is_file().then(|| bundle.clone()),
        };
        let cannot = |error| Failure::system(format_args!("read {}", shown(&bundle)), error).of(ENTRY);
        let (content, own) = match original {
            Some(original) => {
                let there = fs::metadata(&original).map_err(cannot)?;
                let own = Own { uid: there.uid(), gid: there.gid(), mode: there.mode() & 0o7777, like: None };
                (fs::read(&original).map_err(cannot)?, own)
            }
            None => (Vec::new(), root(0o644)),
        };
        self.plan.put_file(&bundle, joined(&content, self.given), own, ENTRY)
    }

    /// The links by which OpenSSL finds a certificate in a directory: the hash of its subject, and a number that is free.
    fn hashed(&mut self, directory: &Path, given: &Given, target: &Path) -> Result<()> {
        for certificate in &given.certificates {
            let Some(hash) = certificate.subject_hash() else {
                log::warning(format_args!(
                    "{ENTRY}: {} has a subject that can't be read",
                    shown(Path::new(&given.name))
                ));
                continue;
            };
            let name = (0..).map(|number| directory.join(format!("{hash:08x}.{number}"))).find(|name| {
                let others = name.symlink_metadata().is_ok() && !self.store.state.units.contains_key(name);
                !others && !self.taken.contains(name)
            });
            if let Some(name) = name {
                self.plan.put_link(&name, target.into(), ENTRY)?;
                self.taken.insert(name);
            }
        }
        Ok(())
    }
}

/// Kolla's name for a file.
fn custom(name: &OsStr) -> OsString {
    let mut custom = OsString::from("kolla-customca-");
    custom.push(name);
    custom
}

fn root(mode: u32) -> Own {
    Own { uid: 0, gid: 0, mode, like: None }
}

fn joined(bundle: &[u8], given: &[Given]) -> Vec<u8> {
    let mut joined = bundle.to_vec();
    for certificate in given.iter().flat_map(|given| &given.certificates) {
        if !joined.is_empty() && !joined.ends_with(b"\n") {
            joined.push(b'\n');
        }
        joined.extend_from_slice(certificate.pem.as_bytes());
    }
    joined
}
