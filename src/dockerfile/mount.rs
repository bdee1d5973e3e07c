//! `RUN --mount=`: its fields, checked and typed. What can be checked without variables is checked when the file is
//! parsed, with the same code that is used when the variables are known.

use super::ast::MountFlag;
use super::ast::Span;
use super::expand::Expander;
use super::words;
use crate::quantity;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Type {
    #[default]
    Bind,
    Cache,
    Tmpfs,
    Secret,
    Ssh,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    pub kind: Type,
    pub source: String,
    pub target: String,
    pub read_only: bool,
    pub required: bool,
    pub size: Option<u64>,
    pub id: String,
    pub sharing: Option<super::step::Sharing>,
    pub env: Option<String>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// One problem: what is wrong, and what to do about it.
pub(super) type Problem = (String, Option<String>);

const KEYS: [&str; 19] = [
    "type",
    "from",
    "source",
    "src",
    "target",
    "dst",
    "destination",
    "readonly",
    "ro",
    "readwrite",
    "rw",
    "required",
    "size",
    "id",
    "sharing",
    "mode",
    "uid",
    "gid",
    "env",
];

pub(super) fn parse(value: &str, span: Span) -> Result<MountFlag, Problem> {
    let fields = words::csv(value).map_err(|e| (format!("`{value}` cannot be taken apart: {e}"), None))?;
    let fields = fields
        .into_iter()
        .map(|field| match field.split_once('=') {
            Some((key, value)) => (key.to_ascii_lowercase(), Some(value.to_owned())),
            None => (field.to_ascii_lowercase(), None),
        })
        .collect();
    let flag = MountFlag { fields, span };
    if flag.from().is_some_and(|from| from.contains('$')) {
        let hint = "name the image in a stage of its own with FROM, where variables work, and use the stage's name";
        return Err(("variables are not expanded in `from` of a mount".into(), Some(hint.into())));
    }
    if flag.fields.iter().all(|(_, value)| value.as_ref().is_none_or(|v| !v.contains('$'))) {
        spec(&flag, &|value| Expander::new('\\').expand(value, &|_| None).map(|e| e.text))?;
    } else if let Some((key, _)) = flag.fields.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        return Err(unknown(key));
    }
    Ok(flag)
}

fn unknown(key: &str) -> Problem {
    (format!("a mount has no field `{key}`"), super::nearest(key, KEYS.iter().map(|k| (*k).to_owned())))
}

/// `expand` is given every value.
pub(super) fn spec(flag: &MountFlag, expand: &dyn Fn(&str) -> Result<String, String>) -> Result<Spec, Problem> {
    let mut fields = Vec::new();
    for (key, value) in &flag.fields {
        let value = value.as_deref().map(expand).transpose().map_err(|e| (e, None))?;
        fields.push((key.as_str(), value));
    }
    let mut spec = Spec::default();
    if let Some((_, Some(kind))) = fields.iter().rev().find(|(key, _)| *key == "type") {
        spec.kind = kind_of(kind)?;
    }
    let mut read_only = None;
    for (key, value) in fields {
        let flag = || match &value {
            None => Ok(true),
            Some(value) => boolean(value).ok_or_else(|| (format!("`{key}={value}` is neither true nor false"), None)),
        };
        match key {
            "readonly" | "ro" => {
                read_only = Some(flag()?);
                continue;
            }
            "readwrite" | "rw" => {
                read_only = Some(!flag()?);
                continue;
            }
            "required" if matches!(spec.kind, Type::Secret | Type::Ssh) => {
                spec.required = flag()?;
                continue;
            }
            _ if !KEYS.contains(&key) => return Err(unknown(key)),
            _ => {}
        }
        let Some(value) = value else {
            return Err((format!("`{key}` of a mount needs a value"), Some(format!("write `{key}=…`"))));
        };
        let number =
            |radix| u32::from_str_radix(&value, radix).map_err(|_| (format!("`{key}={value}` is not a number"), None));
        match key {
            "type" | "from" => {}
            "source" | "src" => spec.source = value,
            "target" | "dst" | "destination" => spec.target = value,
            "id" => spec.id = value,
            "env" if spec.kind == Type::Secret => spec.env = Some(value),
            "size" if spec.kind == Type::Tmpfs => {
                let size = quantity::bytes(&value).ok_or_else(|| {
                    (format!("`size={value}` is not a size"), Some("write it as `512m` or `2g`".to_owned()))
                })?;
                spec.size = Some(size);
            }
            "sharing" if spec.kind == Type::Cache => spec.sharing = Some(sharing(&value)?),
            "mode" if spec.takes_owner() => spec.mode = Some(number(8)?),
            "uid" if spec.takes_owner() => spec.uid = Some(number(10)?),
            "gid" if spec.takes_owner() => spec.gid = Some(number(10)?),
            _ => return Err((format!("`{key}` means nothing for a mount of type {}", spec.kind.name()), None)),
        }
    }
    spec.read_only = read_only.unwrap_or(spec.kind == Type::Bind);
    let from = flag.from().is_some();
    match spec.kind {
        Type::Secret if from => Err(("a secret comes from outside of the build: `from` means nothing".into(), None)),
        Type::Secret if spec.source.is_empty() && spec.target.is_empty() && spec.id.is_empty() => {
            Err(("a secret without a name".into(), Some("say which one with `id=…`".into())))
        }
        Type::Secret if !spec.source.is_empty() && !spec.id.is_empty() => {
            Err(("`id` and `source` of a secret mean the same".into(), Some("leave one of them out".into())))
        }
        Type::Ssh if !spec.source.is_empty() => Err(("`source` means nothing for a mount of type ssh".into(), None)),
        _ => Ok(spec),
    }
}

impl Spec {
    fn takes_owner(&self) -> bool {
        matches!(self.kind, Type::Cache | Type::Secret | Type::Ssh)
    }
}

impl Type {
    const ALL: [Type; 5] = [Type::Bind, Type::Cache, Type::Tmpfs, Type::Secret, Type::Ssh];

    fn name(self) -> &'static str {
        match self {
            Type::Bind => "bind",
            Type::Cache => "cache",
            Type::Tmpfs => "tmpfs",
            Type::Secret => "secret",
            Type::Ssh => "ssh",
        }
    }
}

fn kind_of(value: &str) -> Result<Type, Problem> {
    Type::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(value)).ok_or_else(|| {
        let hint = super::nearest(value, Type::ALL.iter().map(|kind| kind.name().to_owned()));
        (format!("there is no mount of type `{value}`"), hint.or(Some("bind, cache, tmpfs, secret or ssh".into())))
    })
}

fn sharing(value: &str) -> Result<super::step::Sharing, Problem> {
    use super::step::Sharing;
    match value.to_ascii_lowercase().as_str() {
        "shared" => Ok(Sharing::Shared),
        "private" => Ok(Sharing::Private),
        "locked" => Ok(Sharing::Locked),
        _ => Err((format!("a cache cannot be shared as `{value}`"), Some("shared, private or locked".into()))),
    }
}

/// Go's strconv.ParseBool.
fn boolean(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dockerfile::step::Sharing;

    fn spec_of(value: &str) -> Result<Spec, String> {
        let flag = parse(value, 0..1).map_err(|(message, _)| message)?;
        spec(&flag, &|v| Ok(v.to_owned())).map_err(|(message, _)| message)
    }

    #[test]
    fn types_and_defaults() {
        assert_eq!(
            spec_of("target=/x,src=a").unwrap(),
            Spec { target: "/x".into(), source: "a".into(), read_only: true, ..Spec::default() }
        );
        let cache = spec_of("sharing=locked,type=cache,dst=/c,mode=0700,uid=5,ro").unwrap();
        assert_eq!(
            (cache.kind, cache.sharing, cache.mode, cache.uid, cache.read_only),
            (Type::Cache, Some(Sharing::Locked), Some(0o700), Some(5), true)
        );
        assert_eq!(spec_of("type=tmpfs,target=/t,size=64M").unwrap().size, Some(64 << 20));
        let secret = spec_of("type=secret,id=k,env=TOKEN,required").unwrap();
        assert_eq!((secret.env.as_deref(), secret.required), (Some("TOKEN"), true));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (value, message) in [
            ("type=bnd", "there is no mount of type `bnd`"),
            ("traget=/x", "a mount has no field `traget`"),
            ("target", "`target` of a mount needs a value"),
            ("type=bind,size=1", "`size` means nothing for a mount of type bind"),
            ("type=cache,target=/c,mode=9", "`mode=9` is not a number"),
            ("type=secret", "a secret without a name"),
            ("type=secret,id=a,from=b", "a secret comes from outside of the build: `from` means nothing"),
            ("from=$x,target=/", "variables are not expanded in `from` of a mount"),
            ("target=$x,bogus=1", "a mount has no field `bogus`"),
            ("rw=maybe,target=/x", "`rw=maybe` is neither true nor false"),
        ] {
            assert_eq!(spec_of(value), Err(message.to_owned()), "{value}");
        }
        assert_eq!(parse("traget=/x", 0..1).unwrap_err().1.as_deref(), Some("did you mean `target`?"));
    }
}
