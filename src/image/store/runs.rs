//! Records of runs (`runs/<run>.json`), what `kollage report` shows; each with its logs (`logs/<run>`). Names sort by
//! time. What is in a record is not the store's to know.

use std::path::PathBuf;

use super::Store;
use crate::error::Result;
use crate::image::layer::sys::{self, OsContext};

/// Records that a finished run leaves of those before it.
const KEPT: usize = 100;
/// Records that a prune leaves.
pub(super) const KEPT_BY_PRUNE: usize = 10;

impl Store {
    fn run_path(&self, name: &str) -> PathBuf {
        self.path("runs").join(format!("{name}.json"))
    }

    /// Keeps a record, and takes the oldest away where there are too many.
    pub fn put_run(&self, name: &str, record: &[u8]) -> Result<()> {
        self.write_file(&self.run_path(name), record, false)?;
        let names = self.runs()?;
        for old in names.iter().take(names.len().saturating_sub(KEPT)) {
            for path in self.paths_of_run(old) {
                // Another run that ends now may be faster, and nothing depends on it.
                let _ = if path.is_dir() { sys::remove_tree(&path) } else { std::fs::remove_file(&path) };
            }
        }
        Ok(())
    }

    /// Names of the runs that have a record, the latest last.
    pub fn runs(&self) -> Result<Vec<String>> {
        let files = self.files("runs")?;
        let names = files.iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
        Ok(names.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned)).collect())
    }

    pub fn read_run(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.run_path(name);
        std::fs::read(&path).os(&path, || format!("cannot read the record of the run {name}"))
    }

    /// The record and the logs, as far as they are there.
    pub(super) fn paths_of_run(&self, name: &str) -> Vec<PathBuf> {
        [self.run_path(name), self.path("logs").join(name)].into_iter().filter(|path| path.exists()).collect()
    }

    /// Of runs that have a record, and of those that came to none.
    pub(super) fn all_runs(&self) -> Result<Vec<String>> {
        let mut names = self.runs()?;
        let logs = self.files("logs")?;
        names.extend(logs.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)));
        names.sort();
        names.dedup();
        Ok(names)
    }
}
