//! The CA bundle and the proxies for steps on a builder, without a trace.
//!
//! No Dockerfile can give a step a variable of which neither history nor configuration tells. So BuildKit's frontend is
//! asked to translate only: what comes back are the operations of the build (LLB), each named by its digest, and the
//! configuration, which is left as it is. Here every operation that runs a command gets what it is lent, and that is what
//! the builder carries out. Files come as secrets do, below /dev, which is never part of a layer.

use std::collections::{BTreeMap, HashMap};

use bollard_buildkit_proto::google::rpc;
use bollard_buildkit_proto::moby::buildkit::v1::frontend::llb_bridge_client::LlbBridgeClient;
use bollard_buildkit_proto::moby::buildkit::v1::frontend::result::Result as Kind;
use bollard_buildkit_proto::moby::buildkit::v1::frontend::{
    CacheOptionsEntry, PingRequest, Ref, Result, ReturnRequest, SolveRequest,
};
use bollard_buildkit_proto::pb::{self, Definition, ExecOp, Mount, MountType, Op, ProxyEnv, SecretEnv, SecretOpt, op};
use prost::Message as _;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::client::{CACHE, FRONTEND, LARGEST};
use crate::engine::SecretSource;
use crate::engine::embedded::lend::{Lending, Places};
use crate::error::{Context as _, Error};
use crate::image::digest::Digest;
use crate::quantity;

const PLACES: Places = Places { bundle: "/dev/kollage/ca-certificates.crt", apt_config: "/dev/kollage/apt.conf" };

/// Ids of secrets, which are chosen so that no Dockerfile has them.
const BUNDLE: &str = "kollage.lent.ca-bundle";
const APT_CONFIG: &str = "kollage.lent.apt-config";
const VARIABLE: &str = "kollage.lent.variable.";

/// The header by which a builder knows what build a call belongs to.
const BUILD: &str = "buildkit-controlapi-buildid";

/// What a builder takes of an answer of ours (gRPC's own limit), less what is around the bundle in it. The 500 KB that
/// are said to be the limit of secrets are one of the clients that have it, which this is not.
const LARGEST_BUNDLE: u64 = 4 * 1024 * 1024 - 1024;

/// Whether the bundle can be lent, before anything is built.
pub fn refuse_bundle(lending: &Lending) -> crate::error::Result<()> {
    let Some(path) = &lending.ca_bundle else { return Ok(()) };
    let size = std::fs::metadata(path).bad_input(|| format!("cannot read the CA bundle `{}`", path.display()))?.len();
    if size <= LARGEST_BUNDLE {
        return Ok(());
    }
    let (size, largest) = (quantity::shown(size), quantity::shown(LARGEST_BUNDLE));
    let message = format!("the CA bundle `{}` has {size}, and BuildKit takes no more than {largest}", path.display());
    Err(Error::bad_input(message)
        .hint("`ca_bundle` in [build] names one with fewer certificates; `--engine embedded` takes any"))
}

/// What the session has to have for [`through`].
pub fn secrets(lending: &Lending) -> BTreeMap<String, SecretSource> {
    let bundle = lending.ca_bundle.iter().map(|path| (BUNDLE.to_owned(), SecretSource::File(path.clone())));
    let config = lending.apt_config(&PLACES);
    let config = config.map(|text| (APT_CONFIG.to_owned(), SecretSource::Value(text.into_bytes())));
    let proxies = lending.proxy.iter();
    let proxies = proxies.map(|(name, value)| {
        let id = format!("{VARIABLE}{name}");
        (id, SecretSource::Value(value.clone().into_bytes()))
    });
    bundle.chain(config).chain(proxies).collect()
}

/// Carries out the build of this id, which was begun with neither a frontend nor operations. What goes wrong is the
/// build's own answer.
pub(super) async fn through(
    channel: Channel,
    id: &str,
    attributes: HashMap<String, String>,
    cache: Option<&str>,
    lending: &Lending,
    is_old: bool,
) -> std::result::Result<(), Status> {
    let mut bridge =
        LlbBridgeClient::new(channel).max_decoding_message_size(LARGEST).max_encoding_message_size(LARGEST);
    // The build has to be known there before it can be talked about: the builder waits for it with the answer.
    bridge.ping(of_build(id, PingRequest::default())?).await?;
    let returned = match translated(&mut bridge, id, attributes, cache, lending, is_old).await {
        Ok(result) => ReturnRequest { result: Some(result), error: None },
        Err(status) => {
            let error =
                rpc::Status { code: status.code() as i32, message: status.message().to_owned(), details: Vec::new() };
            ReturnRequest { result: None, error: Some(error) }
        }
    };
    bridge.r#return(of_build(id, returned)?).await.map(drop)
}

fn of_build<T>(id: &str, message: T) -> std::result::Result<Request<T>, Status> {
    let mut request = Request::new(message);
    let id = id.parse().map_err(|_| Status::internal("the id of a build is no header"))?;
    request.metadata_mut().insert(BUILD, id);
    Ok(request)
}

async fn translated(
    bridge: &mut LlbBridgeClient<Channel>,
    id: &str,
    attributes: HashMap<String, String>,
    cache: Option<&str>,
    lending: &Lending,
    is_old: bool,
) -> std::result::Result<Result, Status> {
    let solve = SolveRequest { allow_result_return: true, allow_result_array_ref: true, ..SolveRequest::default() };
    let asked = SolveRequest { frontend: FRONTEND.into(), frontend_opt: attributes, ..solve.clone() };
    let found = bridge.solve(of_build(id, asked)?).await?.into_inner().result.unwrap_or_default();
    let Some(Kind::Ref(Ref { def: Some(definition), .. })) = found.result else {
        // Nothing is done in it.
        return Ok(found);
    };
    let place = |place: &str| CacheOptionsEntry {
        r#type: CACHE.into(),
        attrs: HashMap::from([("ref".to_owned(), place.to_owned())]),
    };
    let asked = SolveRequest {
        definition: Some(lent(definition, lending, is_old)?),
        cache_imports: cache.into_iter().map(place).collect(),
        ..solve
    };
    let made = bridge.solve(of_build(id, asked)?).await?.into_inner().result.unwrap_or_default();
    Ok(Result { result: made.result, ..found })
}

/// The same operations, with something lent to those that run a command. Their digests change with that, and so do those
/// of all that are made from them.
fn lent(definition: Definition, lending: &Lending, is_old: bool) -> std::result::Result<Definition, Status> {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut def = Vec::with_capacity(definition.def.len());
    let mut waiting = definition.def;
    while !waiting.is_empty() {
        let count = waiting.len();
        let mut later = Vec::new();
        for bytes in waiting {
            let op = decoded(&bytes)?;
            if !op.inputs.iter().all(|input| names.contains_key(&input.digest)) {
                later.push(bytes);
                continue;
            }
            let name = Digest::of(&bytes).to_string();
            let mut bytes = renamed(bytes, &op, &names);
            if matches!(op.op, Some(op::Op::Exec(_))) {
                let mut op = decoded(&bytes)?;
                if let Some(op::Op::Exec(exec)) = &mut op.op {
                    lend(exec, lending, is_old);
                }
                bytes = op.encode_to_vec();
            }
            names.insert(name, Digest::of(&bytes).to_string());
            def.push(bytes);
        }
        if later.len() == count {
            return Err(Status::internal("the builder's own translation names operations that it doesn't have"));
        }
        waiting = later;
    }
    let new = |old: &String| names.get(old).cloned();
    let metadata = definition.metadata.into_iter().filter_map(|(old, of)| Some((new(&old)?, of))).collect();
    let source = definition.source.map(|source| pb::Source {
        locations: source.locations.into_iter().filter_map(|(old, of)| Some((new(&old)?, of))).collect(),
        ..source
    });
    Ok(Definition { def, metadata, source })
}

fn decoded(bytes: &[u8]) -> std::result::Result<Op, Status> {
    Op::decode(bytes).map_err(|e| Status::internal(format!("an operation cannot be read: {e}")))
}

/// With the new digests of what it is made from. The old ones are as long, so that whatever a newer builder writes into
/// an operation stays as it is.
fn renamed(mut bytes: Vec<u8>, op: &Op, names: &HashMap<String, String>) -> Vec<u8> {
    for input in &op.inputs {
        let old = input.digest.as_bytes();
        let Some(new) = names.get(&input.digest).filter(|new| new.len() == old.len() && *new != &input.digest) else {
            continue;
        };
        let mut at = 0;
        while let Some(place) = bytes.get(at..).and_then(|rest| rest.windows(old.len()).position(|part| part == old)) {
            at += place;
            bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
            at += old.len();
        }
    }
    bytes
}

fn lend(exec: &mut ExecOp, lending: &Lending, is_old: bool) {
    let meta = exec.meta.get_or_insert_default();
    let own: Vec<(String, String)> = meta
        .env
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut proxies = Vec::new();
    for (name, value) in lending.variables(&own, &PLACES) {
        // What names a place may stand in what the builder remembers of a build; the value of a proxy may have a password.
        match lending.proxy.iter().any(|(proxy, _)| *proxy == name) {
            true => proxies.push((name, value)),
            false => meta.env.push(format!("{name}={value}")),
        }
    }
    if is_old {
        // It knows no secrets that are variables, but proxies, which it takes for no part of what a step is.
        for (name, value) in proxies {
            let known = meta.proxy_env.get_or_insert_with(ProxyEnv::default);
            match name.to_ascii_lowercase().as_str() {
                "http_proxy" => known.http_proxy = value,
                "https_proxy" => known.https_proxy = value,
                "ftp_proxy" => known.ftp_proxy = value,
                "no_proxy" => known.no_proxy = value,
                _ => known.all_proxy = value,
            }
        }
    } else {
        let secret = |(name, _)| SecretEnv { id: format!("{VARIABLE}{name}"), name, optional: false };
        exec.secretenv.extend(proxies.into_iter().map(secret));
    }
    let files = [
        lending.ca_bundle.is_some().then_some((BUNDLE, PLACES.bundle)),
        lending.apt_config(&PLACES).map(|_| (APT_CONFIG, PLACES.apt_config)),
    ];
    exec.mounts.extend(files.into_iter().flatten().map(|(id, dest)| Mount {
        input: -1,
        dest: dest.into(),
        mount_type: MountType::Secret.into(),
        secret_opt: Some(SecretOpt { id: id.into(), mode: 0o444, ..SecretOpt::default() }),
        ..Mount::default()
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard_buildkit_proto::pb::{FileOp, Input, Meta, OpMetadata, SourceOp};

    fn op(op: Option<op::Op>, inputs: &[&Vec<u8>]) -> Vec<u8> {
        let input = |bytes: &&Vec<u8>| Input { digest: Digest::of(bytes).to_string(), index: 0 };
        Op { inputs: inputs.iter().map(input).collect(), op, ..Op::default() }.encode_to_vec()
    }

    #[test]
    fn what_runs_gets_what_is_lent_and_the_rest_stays_as_it_is() {
        let source =
            op(Some(op::Op::Source(SourceOp { identifier: "docker-image://x".into(), ..Default::default() })), &[]);
        let meta = Meta { env: vec!["PIP_CERT=mine".into(), "no_proxy=here".into()], ..Meta::default() };
        let exec = op(Some(op::Op::Exec(ExecOp { meta: Some(meta), ..ExecOp::default() })), &[&source]);
        let mut file = op(Some(op::Op::File(FileOp::default())), &[&exec, &source]);
        // Field 100, of which this side knows nothing.
        file.extend([0xa0, 0x06, 0x07]);
        let end = op(None, &[&file]);
        let metadata = BTreeMap::from([(
            Digest::of(&exec).to_string(),
            OpMetadata { ignore_cache: true, ..OpMetadata::default() },
        )]);
        // Not in the order in which they need each other.
        let def = vec![exec.clone(), source.clone(), file.clone(), end];
        let definition = Definition { def, metadata, source: None };
        let lending = Lending {
            ca_bundle: Some("/host/bundle".into()),
            proxy: vec![("HTTPS_PROXY".into(), "http://me:s3cret@proxy".into()), ("no_proxy".into(), "there".into())],
            apt_as_root: false,
        };
        for is_old in [true, false] {
            let Definition { def, metadata, .. } = lent(definition.clone(), &lending, is_old).unwrap();
            assert_eq!(def.len(), 4);
            assert_eq!(def[0], source);
            let new = Op::decode(def[1].as_slice()).unwrap();
            assert_eq!(new.inputs[0].digest, Digest::of(&source).to_string());
            let Some(op::Op::Exec(exec)) = new.op else { panic!("{new:?}") };
            let meta = exec.meta.unwrap();
            assert!(meta.env.contains(&format!("SSL_CERT_FILE={}", PLACES.bundle)), "{meta:?}");
            assert_eq!(meta.env.iter().filter(|line| line.starts_with("PIP_CERT=")).count(), 1, "{meta:?}");
            assert!(!meta.env.iter().any(|line| line.contains("s3cret")), "{meta:?}");
            let places: Vec<&str> = exec.mounts.iter().map(|mount| mount.dest.as_str()).collect();
            assert_eq!(places, [PLACES.bundle, PLACES.apt_config]);
            let secret: Vec<&str> = exec.secretenv.iter().map(|secret| secret.name.as_str()).collect();
            match (is_old, meta.proxy_env) {
                (true, Some(proxies)) => assert_eq!(
                    proxies,
                    ProxyEnv { https_proxy: "http://me:s3cret@proxy".into(), ..ProxyEnv::default() }
                ),
                (false, None) => assert_eq!(secret, ["HTTPS_PROXY"]),
                (_, proxies) => panic!("{proxies:?} {secret:?}"),
            }
            let copied = Op::decode(def[2].as_slice()).unwrap();
            assert_eq!(copied.inputs[0].digest, Digest::of(&def[1]).to_string());
            assert_eq!(copied.inputs[1].digest, Digest::of(&source).to_string());
            assert!(def[2].ends_with(&[0xa0, 0x06, 0x07]));
            assert_eq!(Op::decode(def[3].as_slice()).unwrap().inputs[0].digest, Digest::of(&def[2]).to_string());
            assert!(metadata[&Digest::of(&def[1]).to_string()].ignore_cache);
        }
        // Every file that is named is there to be asked for.
        let known = secrets(&lending);
        assert!(known.contains_key(BUNDLE) && known.contains_key(APT_CONFIG) && known.len() == 4, "{known:?}");
    }

    #[test]
    fn a_bundle_is_weighed_before_anything_is_built() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lending = Lending { ca_bundle: Some(file.path().to_owned()), ..Lending::default() };
        file.as_file().set_len(LARGEST_BUNDLE).unwrap();
        refuse_bundle(&lending).unwrap();
        refuse_bundle(&Lending::default()).unwrap();
        file.as_file().set_len(LARGEST_BUNDLE + 1).unwrap();
        let error = refuse_bundle(&lending).unwrap_err();
        assert!(
            error.to_string().contains(&file.path().display().to_string()) && error.hint_text().is_some(),
            "{error}"
        );
        let gone = Lending { ca_bundle: Some("/nowhere/at/all".into()), ..lending };
        assert!(refuse_bundle(&gone).unwrap_err().to_string().contains("/nowhere/at/all"));
    }

    #[test]
    fn operations_that_are_not_there_are_an_error() {
        let gone = vec![1, 2, 3];
        let definition = Definition { def: vec![op(None, &[&gone])], ..Definition::default() };
        assert!(lent(definition, &Lending::default(), true).unwrap_err().message().contains("doesn't have"));
        let definition = Definition { def: vec![vec![0xff]], ..Definition::default() };
        assert!(lent(definition, &Lending::default(), true).unwrap_err().message().contains("cannot be read"));
    }
}
