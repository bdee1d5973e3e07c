//! One node through the BuildKit inside of Docker: as with builders elsewhere, but that the result stays where it is and
//! images are taken from what the engine has.

use std::collections::BTreeSet;

use super::DockerEngine;
use crate::daemon::{self, Daemon};
use crate::engine::buildkit::build::{self, Ended, Worker};
use crate::engine::buildkit::client::{Connection, Exporter, Facts, Problem};
use crate::engine::buildkit::dial::{self, Certificates};
use crate::engine::{BuildJob, Ctl};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::net::block_on;

pub(super) struct BuildKit(Worker);

impl BuildKit {
    /// Why the engine has none that can be asked, where it has none.
    pub fn find(engine: &daemon::Engine, cancel: &Cancel) -> Result<BuildKit> {
        let none = |why: String| Error::unusable(format!("{} has no BuildKit", engine.facts.name)).cause(why);
        if engine.facts.is_podman {
            return Err(none("Podman builds with Buildah".into()));
        }
        let dial = dial::dial(&engine.plain().to_string().parse()?, &Certificates(None))?;
        let facts = block_on(cancel, async {
            let connection = Connection::open(&dial).await.map_err(|e| none(e.to_string()))?;
            connection.facts().await.map_err(|(Problem::Gone(why) | Problem::Failed(why))| none(why))
        })?;
        Ok(BuildKit(Worker { dial, facts }))
    }

    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Builds an image of this name; gives how many steps that were.
    pub fn build(
        &self,
        engine: &DockerEngine,
        job: &BuildJob,
        daemon: &Daemon,
        name: &str,
        ctl: &Ctl<'_>,
    ) -> Result<usize> {
        let work = engine.local.store().work_dir()?;
        let made = engine.portable(job, daemon, work.path(), ctl)?;
        let mut prepared = build::prepare(&engine.local, BTreeSet::new(), job, made, work.path(), ctl)?;
        // What FROM names is there under names that no registry has.
        prepared.attributes.insert("image-resolve-mode".into(), "local".into());
        build::on(&self.0, job, &prepared, Exporter::kept(name), None, ctl).map(|done| done.steps).map_err(|ended| {
            match ended {
                Ended::Failed(error) => error,
                Ended::Gone(why) => Error::unusable(format!("{} went away", engine.engine.facts.name)).cause(why),
            }
        })
    }
}
