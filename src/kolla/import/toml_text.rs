//! TOML as a person would write it.

/// Lines are no longer than the editor is wide.
const WIDTH: usize = 100;

pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A key, in quotes where it has to be.
pub fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if bare { text.to_owned() } else { quoted(text) }
}

/// `key = ["a", "b"]`, one a line where that is long.
pub fn list<T: AsRef<str>>(name: &str, items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    let line = format!("{} = [{}]\n", key(name), items.join(", "));
    if line.len() <= WIDTH {
        return line;
    }
    let items: String = items.iter().map(|item| format!("    {item},\n")).collect();
    format!("{} = [\n{items}]\n", key(name))
}

pub fn pair(name: &str, text: &str) -> String {
    format!("{} = {}\n", key(name), quoted(text))
}
