//! `--allow NAME`: what RUN may ask for beyond what every step gets, within the operator's policy.

use std::collections::BTreeSet;

use crate::catalogue::Settings;
use crate::cli::args::Network;
use crate::dockerfile::step::Entitlement;
use crate::error::{Error, Result};
use crate::suggest;

/// `--network host` for the whole build allows it for the single step, too, as docker buildx has it.
pub fn entitlements(allow: &[String], network: Option<Network>, settings: &Settings) -> Result<BTreeSet<Entitlement>> {
    let mut granted = BTreeSet::new();
    for name in allow {
        let found = Entitlement::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
            let error = Error::bad_input(format!("`--allow {name}`: nothing of that name can be allowed"));
            match suggest::hint(name, Entitlement::ALL.map(Entitlement::as_str)) {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })?;
        if !settings.policy.allows_entitlement(found) {
            let file = settings.policy_file("entitlements");
            return Err(Error::bad_input(format!("`--allow {name}` is not possible on this machine"))
                .hint(format!("[policy] in {file} says what may be allowed")));
        }
        granted.insert(found);
    }
    if network == Some(Network::Host) && settings.policy.allows_entitlement(Entitlement::NetworkHost) {
        granted.insert(Entitlement::NetworkHost);
    }
    Ok(granted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Catalogue, ConfigFiles, Overrides};
    use crate::diag::SourceFile;

    fn granted(allow: &[&str], network: Option<Network>, policy: &str) -> Result<BTreeSet<Entitlement>> {
        let dir = tempfile::tempdir().unwrap();
        let (system, file) = (dir.path().join("operator.toml"), SourceFile::new("Dockerfile", "FROM scratch\n"));
        std::fs::write(&system, policy).unwrap();
        let files = ConfigFiles { user: None, system: Some(system) };
        let catalogue = Catalogue::single("x", &file, dir.path(), &Overrides::new(), &files).unwrap();
        let allow: Vec<String> = allow.iter().map(|a| (*a).to_owned()).collect();
        entitlements(&allow, network, &catalogue.settings)
    }

    #[test]
    fn names_of_buildx_within_the_policy() {
        use Entitlement::{NetworkHost, SecurityInsecure};
        assert_eq!(granted(&[], None, "").unwrap(), BTreeSet::new());
        let both = BTreeSet::from([NetworkHost, SecurityInsecure]);
        assert_eq!(granted(&["network.host", "security.insecure"], None, "").unwrap(), both);
        assert_eq!(granted(&[], Some(Network::Host), "").unwrap(), BTreeSet::from([NetworkHost]));
        let error = granted(&["security.insecur"], None, "").unwrap_err();
        assert_eq!(error.hint_text(), Some("did you mean `security.insecure`?"));

        let policy = "[policy]\nentitlements = [\"network.host\"]\n";
        assert_eq!(granted(&["network.host"], None, policy).unwrap(), BTreeSet::from([NetworkHost]));
        let error = granted(&["security.insecure"], None, policy).unwrap_err();
        assert!(error.message().contains("not possible on this machine"), "{error}");
        assert!(error.hint_text().unwrap().contains("operator.toml"), "{error:?}");
        let nothing = "[policy]\nentitlements = []\n";
        assert!(granted(&["network.host"], None, nothing).is_err());
        assert_eq!(granted(&[], Some(Network::Host), nothing).unwrap(), BTreeSet::new());
    }
}
