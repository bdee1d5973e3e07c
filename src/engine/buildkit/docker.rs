//! A dockerd that keeps images in its older way builds them, and can't push them as part of a build: its own API is
//! asked for that afterwards, at the same address.

use bollard::auth::DockerCredentials;
use bollard::query_parameters::PushImageOptionsBuilder;
use futures_util::StreamExt as _;

use super::Builder;
use super::address::Address;
use super::build::Ended;
use super::dial::Certificates;
use crate::daemon::{self, Endpoint};
use crate::engine::Ctl;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::registry::credentials::Lookup;
use crate::registry::{Credentials, Reference};

/// Pushes an image of the builder to the registry that its name says.
pub fn push(builder: &Builder, name: &str, credentials: &Credentials, ctl: &Ctl<'_>) -> Result<(), Ended> {
    let reference: Reference = name.parse().map_err(Ended::Failed)?;
    let endpoint = endpoint(&builder.address, &builder.certificates);
    let engine = daemon::Engine::open(endpoint, ctl.cancel).map_err(gone)?;
    let daemon = engine.connect(ctl.cancel).map_err(gone)?;
    let known = credentials.lookup(&reference);
    if let Lookup::Unusable(why) = known {
        return Err(Error::unusable(why).into());
    }
    let login = daemon::credentials(&known)
        .map(|login| DockerCredentials { serveraddress: Some(reference.registry().to_owned()), ..login });
    let title = format!("pushing to {}", reference.registry());
    ctl.sink.event(Event::Background { node: ctl.node.clone(), title });
    let tag = reference.tag_or_latest().unwrap_or("latest");
    let repository = name.strip_suffix(tag).and_then(|name| name.strip_suffix(':')).unwrap_or(name);
    let options = PushImageOptionsBuilder::default().tag(tag).build();
    let what = || format!("the builder {} cannot push to {}", builder.address, reference.registry());
    let pushed = daemon.work(what, async {
        let mut stream = daemon.docker.push_image(repository, Some(options), login);
        while let Some(line) = stream.next().await {
            line?;
        }
        Ok(())
    });
    ctl.sink.event(Event::BackgroundFinished { node: ctl.node.clone() });
    pushed.map_err(|error| {
        ctl.cancel.check().err().map_or_else(
            // Whether the builder or the registry is in the way: the builder is asked once more.
            || match engine.connect(ctl.cancel) {
                Ok(_) => Ended::Failed(error.hint("every builder has to reach the registry; a dockerd takes one without TLS only from `insecure-registries`")),
                Err(why) => gone(why),
            },
            Ended::Failed,
        )
    })
}

fn gone(error: Error) -> Ended {
    Ended::Gone(error.causes().first().cloned().unwrap_or_else(|| error.to_string()))
}

/// Where the API of the dockerd is that a builder belongs to.
pub(super) fn endpoint(of: &Address, certificates: &Certificates) -> Endpoint {
    let address = match of {
        Address::Unix(path) => daemon::Address::Unix(path.clone()),
        Address::Tcp { tls: false, .. } => daemon::Address::Tcp(of.host_and_port()),
        Address::Tcp { tls: true, .. } => {
            let dir = certificates.0.clone().unwrap_or_default();
            let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
            let client = key.exists().then_some((cert, key));
            let certificates = daemon::find::Certificates { ca: dir.join("ca.pem"), client };
            daemon::Address::Tls { address: of.host_and_port(), certificates }
        }
    };
    Endpoint { address, said_by: format!("the builder {of}") }
}
