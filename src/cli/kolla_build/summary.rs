//! What kolla-build says in the end, in its own words, and whether the run counts as failed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::App;
use crate::error::{Context as _, Error, Kind, Result};
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::value::Value;

/// How each image of the tree ended, by Kolla's names of groups.
pub struct Ends {
    /// Names, and Kolla's word for what went wrong where something did.
    groups: [(&'static str, BTreeMap<String, Option<&'static str>>); 5],
}

const GROUPS: [&str; 5] = ["built", "failed", "not_matched", "skipped", "unbuildable"];

impl Ends {
    /// From the summary file of a build. What was there already counts as skipped where that was asked for.
    pub fn read(file: &Path, images: &[Image], options: &Options<'_>, settings: &Settings) -> Result<Ends> {
        let say = || format!("cannot read the summary {}", file.display());
        let text = crate::text::read_to_string(file).map_err(|e| Error::failed(say()).cause(e))?;
        let run: serde_json::Value = serde_json::from_str(&text).failed(say)?;
        let (existing, parents) = (options.flag("skip_existing")?, options.flag("skip_parents")?);
        let mut told: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for group in GROUPS {
            for node in run[group].as_array().into_iter().flatten() {
                if let (Some(name), Some(status)) = (node["name"].as_str(), node["status"].as_str()) {
                    told.insert(name, (group, status));
                }
            }
        }
        let mut ends = Ends { groups: GROUPS.map(|group| (group, BTreeMap::new())) };
        for image in images {
            let name = house::name(image, settings);
            let (group, why) = match (image.status, told.get(name.as_str())) {
                (Status::Unbuildable, _) => ("unbuildable", None),
                (Status::Unmatched, _) => ("not_matched", None),
                (_, Some((_, "reused"))) if existing || (parents && !image.children.is_empty()) => ("skipped", None),
                (_, Some(("built", _))) => ("built", None),
                (_, Some(("failed", _))) => ("failed", Some("error")),
                (_, Some(_)) => ("failed", Some("parent_error")),
                // A parent that nothing has asked for.
                (_, None) => ("skipped", None),
            };
            if let Some((_, names)) = ends.groups.iter_mut().find(|(name, _)| *name == group) {
                names.insert(image.name.clone(), why);
            }
        }
        Ok(ends)
    }

    /// The exit code of the build, unless all that failed may.
    pub fn code(&self, code: u8, options: &Options<'_>) -> Result<u8> {
        let allowed = options.texts("allowed_to_fail")?;
        let failed = self.groups.iter().filter(|(group, _)| *group == "failed").flat_map(|(_, names)| names.keys());
        let mut failed = failed.peekable();
        let only_those = failed.peek().is_some() && failed.all(|name| allowed.contains(name));
        Ok(if code == Kind::Failed.exit_code() && only_those { 0 } else { code })
    }

    /// To the file that was asked for, or on standard output.
    pub fn write(&self, app: &App, options: &Options<'_>) -> Result<()> {
        if !options.flag("summary")? || options.text("format")?.as_deref() != Some("json") {
            return Ok(());
        }
        let text = |text: &str| Value::Text(text.to_owned());
        let item = |(name, why): (&String, &Option<&str>)| {
            let status = why.map(|why| ("status".to_owned(), text(why)));
            Value::Dict(std::iter::once(("name".to_owned(), text(name))).chain(status).collect())
        };
        let group = |(group, names): &(&str, BTreeMap<_, _>)| {
            ((*group).to_owned(), Value::List(names.iter().map(item).collect()))
        };
        let summary = Value::Dict(self.groups.iter().map(group).collect());
        match options.text("summary_json_file")? {
            Some(file) => {
                std::fs::write(&file, summary.json(Some(4))).failed(|| format!("cannot write the summary to {file}"))
            }
            None => app.print(&summary.json(None)),
        }
    }
}
