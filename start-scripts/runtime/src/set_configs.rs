//! What `kolla_set_configs` does: the configuration, into the container.

use crate::config::Config;
use crate::error::{Failure, Problems, Result, shown};
use crate::places::Places;
use crate::plan::Plan;
use crate::state::Store;
use crate::users::Users;
use crate::{apply, check, files, log, permissions, preflight};
use std::fs;

/// KOLLA_CONFIG_STRATEGY.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    CopyOnce,
    CopyAlways,
}

/// Configures, unless COPY_ONCE has done so before. Whether it did.
pub fn configure(config: &Config, places: &Places, users: &Users, strategy: Strategy) -> Result<bool> {
    if strategy == Strategy::CopyOnce && places.configured.exists() {
        log::info("configured before, and KOLLA_CONFIG_STRATEGY is COPY_ONCE: nothing is copied");
        return Ok(false);
    }
    let mut plan = plan(config, places, users)?;
    let mut problems = Problems::default();
    problems.keep(preflight::look(&plan));
    problems.keep(permissions::look(config, users));
    problems.end()?;

    let mut store = Store::open(&places.defaults)?;
    if apply::restore_gone(&plan, &mut store)? {
        // What is in the way may be another now, links included.
        plan = Plan::of(config, users, &store.state)?;
        preflight::look(&plan)?;
    }
    apply::keep_originals(&plan, &mut store)?;
    apply::change(&plan)?;
    permissions::set(config, users)?;
    store.state.sections = config.fixed_sections();
    store.save()?;
    write_command(config, places)?;
    if strategy == Strategy::CopyOnce {
        files::write(&places.configured, b"", 0o644)?;
    }
    Ok(true)
}

fn write_command(config: &Config, places: &Places) -> Result<()> {
    let there = fs::read(&places.run_command);
    if there.is_ok_and(|there| there == config.command.as_bytes()) {
        return Ok(());
    }
    files::write(&places.run_command, config.command.as_bytes(), 0o644)
}

/// The command that the last `configure` wrote.
pub fn command(places: &Places) -> Result<String> {
    let path = &places.run_command;
    fs::read_to_string(path).map_err(|error| Failure::system(format_args!("read the command {}", shown(path)), error))
}

/// What a start would do with this configuration.
pub fn plan(config: &Config, places: &Places, users: &Users) -> Result<Plan> {
    let recorded = Store::look(&places.defaults)?.map(|store| store.state).unwrap_or_default();
    Plan::of(config, users, &recorded)
}

/// `--check`: whether a start would change anything now.
pub fn check(config: &Config, places: &Places, users: &Users) -> Result<()> {
    let Some(store) = Store::look(&places.defaults)? else {
        return Err(Failure::wrong(format!("no start is recorded in {}", shown(&places.defaults))));
    };
    let plan = Plan::of(config, users, &store.state)?;
    let mut problems = Problems::default();
    match fs::read(&places.run_command) {
        Ok(there) if there == config.command.as_bytes() => {}
        Ok(there) => problems.add(Failure::wrong(format!(
            "command: `{}` is not what runs, which is `{}`",
            config.command.escape_debug(),
            String::from_utf8_lossy(&there).escape_debug()
        ))),
        Err(error) => {
            problems.add(Failure::system(format_args!("read the command {}", shown(&places.run_command)), error));
        }
    }
    for difference in check::plan(&plan, &store.state) {
        problems.add(difference);
    }
    let now = config.fixed_sections();
    for (what, entries, others) in [("new", &now, &store.state.sections), ("gone", &store.state.sections, &now)] {
        for entry in entries.iter().filter(|entry| !others.contains(entry)) {
            problems.add(Failure::wrong(format!("{what} since the last start: {entry}")));
        }
    }
    problems.end()
}
