//! `--secret id=ID[,src=FILE|,env=NAME]`, as docker buildx takes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cli::environment::Environment;
use crate::engine::SecretSource;
use crate::error::{Error, Result};

pub fn secrets(specs: &[String], env: &Environment) -> Result<BTreeMap<String, SecretSource>> {
    let mut secrets = BTreeMap::new();
    for spec in specs {
        let (id, source) = secret(spec, env)?;
        if secrets.insert(id.clone(), source).is_some() {
            return Err(Error::bad_input(format!("secret `{id}` is given twice")));
        }
    }
    Ok(secrets)
}

fn secret(spec: &str, env: &Environment) -> Result<(String, SecretSource)> {
    // Only the names of the fields may be shown: a mistyped spec can hold the value itself.
    let wrong = |what: &str| {
        Error::bad_input(format!("`--secret`: {what}")).hint("write it as id=NAME,src=FILE or id=NAME,env=VARIABLE")
    };
    let (mut id, mut file, mut variable, mut kind) = (None, None, None, None);
    for field in spec.split(',') {
        match field.split_once('=') {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("src" | "source", value)) => file = Some(PathBuf::from(value)),
            Some(("env", value)) => variable = Some(value.to_owned()),
            Some(("type", value @ ("file" | "env"))) => kind = Some(value.to_owned()),
            Some((name, _)) => return Err(wrong(&format!("there is no field `{name}`"))),
            None => return Err(wrong("a field has no `=`")),
        }
    }
    let id = id.filter(|id| !id.is_empty()).ok_or_else(|| wrong("the id is missing"))?;
    if kind.as_deref() == Some("env") && variable.is_none() {
        variable = file.take().map(|f| f.to_string_lossy().into_owned()).or_else(|| Some(id.clone()));
    }
    let from_variable = |name: &str| env.named(name).map(|v| v.into_encoded_bytes());
    let source = match (file, variable) {
        (Some(_), Some(_)) => return Err(wrong("both src and env are given")),
        (Some(file), None) => SecretSource::File(file),
        (None, Some(name)) => SecretSource::Value(
            from_variable(&name)
                .ok_or_else(|| Error::bad_input(format!("secret `{id}`: there is no variable {name}")))?,
        ),
        (None, None) => match from_variable(&id) {
            Some(value) => SecretSource::Value(value),
            None => SecretSource::File(PathBuf::from(&id)),
        },
    };
    if let SecretSource::File(path) = &source
        && let Err(error) = std::fs::File::open(path)
    {
        return Err(Error::bad_input(format!("secret `{id}`: cannot read {}", path.display())).cause(error));
    }
    Ok((id, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(spec: &str) -> Result<BTreeMap<String, SecretSource>> {
        secrets(&[spec.to_owned()], &Environment::default())
    }

    #[test]
    fn the_forms_of_buildx_are_taken() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        for spec in [format!("id=a,src={}", path.display()), format!("type=file,id=a,source={}", path.display())] {
            assert_eq!(parse(&spec).unwrap()["a"], SecretSource::File(path.clone()));
        }
        let home = parse("id=a,env=PATH").unwrap();
        assert!(matches!(&home["a"], SecretSource::Value(v) if !v.is_empty()));
        assert!(matches!(parse("id=PATH").unwrap()["PATH"], SecretSource::Value(_)));
    }

    #[test]
    fn errors_never_show_a_value() {
        for spec in ["id=a,scr=hunter2", "hunter2", "src=hunter2", "id=a,env=NOT_SET_hunter,src=hunter2"] {
            let text = format!("{:?}", parse(spec).unwrap_err());
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(parse("id=a,src=/does/not/exist").unwrap_err().to_string().contains("/does/not/exist"));
    }
}
