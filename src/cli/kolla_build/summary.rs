//! What kolla-build says in the end, in its own words, and whether the run counts as failed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::App;
use crate::error::{Context as _, Error, Kind, Result};
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
use crate::kolla::layers::Layers;
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::value::Value;

/// How each image of the tree ended, by Kolla's names of groups.
pub struct Ends {
    groups: [(&'static str, BTreeMap<String, End>); 5],
}

/// How one image ended.
struct End {
    /// Kolla's word for what went wrong where something did.
    why: Option<&'static str>,
    /// Its plugins that are layers, the lowest first.
    layers: Vec<String>,
}

/// The words for a node that a run took on. One that failed says more than those that were not tried for it.
const FROM_BEST: [&str; 5] = ["reused", "built", "cancelled", "skipped", "failed"];

const GROUPS: [&str; 5] = ["built", "failed", "not_matched", "skipped", "unbuildable"];

impl Ends {
    /// From the summary file of a build. What was there already counts as skipped where that was asked for.
    pub fn read(
        file: &Path,
        images: &[Image],
        layers: &Layers,
        options: &Options<'_>,
        settings: &Settings,
    ) -> Result<Ends> {
        let say = || format!("cannot read the summary {}", file.display());
        let text = crate::text::read_to_string(file).map_err(|e| Error::failed(say()).cause(e))?;
        let run: serde_json::Value = serde_json::from_str(&text).failed(say)?;
        let (existing, parents) = (options.flag("skip_existing")?, options.flag("skip_parents")?);
        // With its layers, which are told as IMAGE+PLUGIN, an image has come as far as the one that came least far.
        let mut told: BTreeMap<&str, (usize, &str, &str)> = BTreeMap::new();
        for group in GROUPS {
            for node in run[group].as_array().into_iter().flatten() {
                if let (Some(name), Some(status)) = (node["name"].as_str(), node["status"].as_str()) {
                    let far = FROM_BEST.iter().position(|known| *known == status).unwrap_or(FROM_BEST.len());
                    let image = name.split('+').next().unwrap_or(name);
                    let worst = told.entry(image).or_insert((far, group, status));
                    if far > worst.0 {
                        *worst = (far, group, status);
                    }
                }
            }
        }
        let mut ends = Ends { groups: GROUPS.map(|group| (group, BTreeMap::new())) };
        for image in images {
            let name = house::name(image, settings);
            let (group, why) = match (image.status, told.get(name.as_str())) {
                (Status::Unbuildable, _) => ("unbuildable", None),
                (Status::Unmatched, _) => ("not_matched", None),
                (_, Some((_, _, "reused"))) if existing || (parents && !image.children.is_empty()) => ("skipped", None),
                (_, Some((_, "built", _))) => ("built", None),
                (_, Some((_, "failed", _))) => ("failed", Some("error")),
                // The run was ended before it.
                (_, Some((_, _, "cancelled"))) => ("failed", Some("matched")),
                (_, Some(_)) => ("failed", Some("parent_error")),
                // A parent that nothing has asked for.
                (_, None) => ("skipped", None),
            };
            if let Some((_, names)) = ends.groups.iter_mut().find(|(name, _)| *name == group) {
                let layers = layers.names(&image.name).into_iter().map(str::to_owned).collect();
                names.insert(image.name.clone(), End { why, layers });
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
        let item = |(name, end): (&String, &End)| {
            let status = end.why.map(|why| ("status".to_owned(), text(why)));
            let plugins = end.layers.iter().map(|layer| text(layer)).collect::<Vec<_>>();
            let plugins = (!plugins.is_empty()).then_some(("plugins".to_owned(), Value::List(plugins)));
            Value::Dict(std::iter::once(("name".to_owned(), text(name))).chain(status).chain(plugins).collect())
        };
        let group = |(group, names): &(&str, BTreeMap<_, _>)| {
            ((*group).to_owned(), Value::List(names.iter().map(item).collect()))
        };
        let summary = Value::Dict(self.groups.iter().map(group).collect());
        match options.filled("summary_json_file")? {
            Some(file) => {
                std::fs::write(&file, summary.json(Some(4))).failed(|| format!("cannot write the summary to {file}"))
            }
            None => app.print(&summary.json(None)),
        }
    }
}
