//! Recipes of which an overlay changes blocks: templates made here, that extend the recipe's own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use regex::Regex;

use crate::catalogue::Block;
use crate::diag::Place;

use super::environment::Recipes;

/// The changed recipe of one definition.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// `overlay/images/keystone`; a layer's number follows.
    name: String,
    /// The template that is changed.
    recipe: String,
    /// One above the other: a block that is changed twice is in two, so that `super()` has what was there before.
    layers: Vec<Vec<Block>>,
}

/// A template that is no file, and where the parts of it stand that somebody wrote.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub text: String,
    parts: Vec<(Range<usize>, Place)>,
}

impl Changed {
    /// `below` is `images` or `plugins`. None: nothing is changed.
    pub fn new(below: &str, name: &str, recipe: String, blocks: &[Block]) -> Option<Changed> {
        let mut layers: Vec<Vec<Block>> = Vec::new();
        for block in blocks {
            match layers.last_mut() {
                Some(layer) if layer.iter().all(|other| other.name != block.name) => layer.push(block.clone()),
                _ => layers.push(vec![block.clone()]),
            }
        }
        (!layers.is_empty()).then(|| Changed { name: prefix(below, name), recipe, layers })
    }

    /// Each template with its name, the last of which is the one to render.
    pub(super) fn templates(&self) -> Vec<(String, Made)> {
        let mut below = self.recipe.clone();
        let mut all = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            let mut made = Made { text: format!("{{% extends {below:?} %}}"), parts: Vec::new() };
            for block in layer {
                made.text.push_str(&format!("{{% block {} %}}", block.name));
                let start = made.text.len();
                made.text.push_str(&block.text);
                made.parts.push((start..made.text.len(), block.place.clone()));
                made.text.push_str("{% endblock %}");
            }
            let name = match i + 1 == self.layers.len() {
                true => self.name.clone(),
                false => format!("{}/{i}", self.name),
            };
            all.push((name.clone(), made));
            below = name;
        }
        all
    }
}

/// The template that is rendered in place of a definition's recipe.
pub(super) fn prefix(below: &str, name: &str) -> String {
    format!("overlay/{below}/{name}")
}

impl Made {
    /// Where a person finds what is at `span`: exactly, when the text stands in its file as it is meant.
    pub fn place(&self, span: &Range<usize>) -> Option<Place> {
        let (part, place) = self.parts.iter().find(|(part, _)| part.start <= span.start && span.start <= part.end)?;
        let written = place.file.text.get(place.span.clone())?;
        let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| written.starts_with(quote))?;
        let mut start = quote.len();
        if quote.len() == 3 {
            let rest = &written[start..];
            start += if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
        }
        let meant = self.text.get(part.clone())?;
        if written.get(start..written.len().saturating_sub(quote.len())) != Some(meant) {
            return Some(place.clone());
        }
        let from = place.span.start + start;
        let end = span.end.min(part.end).max(span.start);
        Some(Place { file: place.file.clone(), span: from + span.start - part.start..from + end - part.start })
    }
}

impl Recipes {
    /// The names of the blocks of a template and of those that it extends, and where the first of these is. None when
    /// that can't be told without rendering.
    pub(crate) fn blocks(&self, name: &str) -> Option<(BTreeSet<String>, Place)> {
        static FORMS: OnceLock<Option<[Regex; 3]>> = OnceLock::new();
        let forms = FORMS.get_or_init(|| {
            Some([
                Regex::new(r"(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}").ok()?,
                Regex::new(r"\{%[-+]?\s*block\s+([A-Za-z_][A-Za-z0-9_]*)").ok()?,
                Regex::new(r#"\{%[-+]?\s*extends\s+(?:"([^"]*)"|'([^']*)'|())"#).ok()?,
            ])
        });
        let [silent, block, extends] = forms.as_ref()?;
        let (mut blocks, mut place) = (BTreeSet::new(), None);
        let mut next = Some(name.to_owned());
        let mut seen = BTreeSet::new();
        while let Some(name) = next.take() {
            if !seen.insert(name.clone()) {
                return None;
            }
            self.environment().get_template(&name).ok()?;
            let file = self.file(&name)?;
            let text = silent.replace_all(&file.text, "");
            blocks.extend(block.captures_iter(&text).map(|found| found[1].to_owned()));
            if let Some(found) = extends.captures(&text) {
                // Which template an expression names is known when it is rendered.
                let literal = found.get(1).or(found.get(2))?.as_str();
                next = Some(super::environment::joined(&name, literal));
            }
            place.get_or_insert_with(|| {
                let end = file.text.find('\n').unwrap_or(file.text.len());
                Place { file: file.clone(), span: 0..end }
            });
        }
        Some((blocks, place?))
    }
}
