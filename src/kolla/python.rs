//! Python read as data: the values that a module assigns to names at its top level, as far as they are literals.
//! Nothing is run; what only Python can evaluate is `Opaque`, and what follows it is still read.

use std::collections::BTreeMap;

use crate::kolla::value::{Call, Value, set};

/// Deeper than any table of Kolla's; a file that nests deeper is no table.
const DEEPEST: usize = 64;

#[derive(Debug, Default)]
pub struct Module {
    values: BTreeMap<String, Value>,
}

impl Module {
    pub fn read(text: &str) -> Module {
        let tokens = tokens(text);
        let mut module = Module::default();
        let mut at = 0;
        while at < tokens.len() {
            let mut reader = Reader { tokens: &tokens, at, known: &module.values, depth: 0 };
            let found = reader.statement();
            at = reader.at;
            module.values.extend(found);
        }
        module
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::text)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// The second says that it begins a line.
    Name(String, bool),
    Text(String),
    Int(i64),
    Sign(char),
    /// A number or a string of a kind that no table has.
    Other,
    /// The end of a logical line.
    Line,
}

fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut open) = (0, 0_usize);
    while let Some(&c) = chars.get(at) {
        match c {
            '\n' => {
                if open == 0 {
                    tokens.push(Token::Line);
                }
                at += 1;
            }
            '#' => at += chars[at..].iter().take_while(|c| **c != '\n').count(),
            // The end of a line that goes on is no end.
            '\\' => at += if chars.get(at + 1) == Some(&'\n') { 2 } else { 1 },
            c if c.is_whitespace() => at += 1,
            '"' | '\'' => {
                let (text, next) = string(&chars, at, false);
                tokens.push(Token::Text(text));
                at = next;
            }
            c if c.is_alphabetic() || c == '_' => {
                let begins = at == 0 || chars[at - 1] == '\n';
                let end = at + chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
                let word: String = chars[at..end].iter().collect();
                at = end;
                if word.len() <= 2 && matches!(chars.get(at), Some('"' | '\'')) {
                    let kind = word.to_ascii_lowercase();
                    let (text, next) = string(&chars, at, kind.contains('r'));
                    let plain = matches!(kind.as_str(), "r" | "u");
                    tokens.push(if plain { Token::Text(text) } else { Token::Other });
                    at = next;
                } else {
                    tokens.push(Token::Name(word, begins));
                }
            }
            c if c.is_ascii_digit() => {
                let end = at + chars[at..].iter().take_while(|c| c.is_alphanumeric() || "_.".contains(**c)).count();
                let word: String = chars[at..end].iter().filter(|c| **c != '_').collect();
                tokens.push(word.parse().map_or(Token::Other, Token::Int));
                at = end;
            }
            c => {
                match c {
                    '(' | '[' | '{' => open += 1,
                    ')' | ']' | '}' => open = open.saturating_sub(1),
                    _ => {}
                }
                tokens.push(Token::Sign(c));
                at += 1;
            }
        }
    }
    tokens.push(Token::Line);
    tokens
}

/// The string whose quote is at `start`, and where it ends.
fn string(chars: &[char], start: usize, raw: bool) -> (String, usize) {
    let quote = chars[start];
    let long = chars.get(start + 1) == Some(&quote) && chars.get(start + 2) == Some(&quote);
    let width = if long { 3 } else { 1 };
    let mut at = start + width;
    let mut inside = String::new();
    while let Some(&c) = chars.get(at) {
        let ends = c == quote && (!long || chars[at..].iter().take(3).filter(|c| **c == quote).count() == 3);
        if ends {
            at += width;
            break;
        }
        inside.push(c);
        at += 1;
        if c == '\\' {
            inside.extend(chars.get(at));
            at += 1;
        }
    }
    (if raw { inside } else { unescaped(&inside) }, at.min(chars.len()))
}

/// The value of a literal without its quotes. What is no escape keeps its backslash.
pub fn unescaped(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = rest.next() else {
            out.push('\\');
            break;
        };
        let simple = match kind {
            '\n' => continue,
            '\\' | '\'' | '"' => Some(kind),
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            _ => None,
        };
        if let Some(c) = simple {
            out.push(c);
            continue;
        }
        let (radix, longest, exact) = match kind {
            '0'..='7' => (8, 2, false),
            'x' => (16, 2, true),
            'u' => (16, 4, true),
            'U' => (16, 8, true),
            _ => {
                out.extend(['\\', kind]);
                continue;
            }
        };
        let digits: String = rest.as_str().chars().take(longest).take_while(|c| c.is_digit(radix)).collect();
        let number = if radix == 8 { format!("{kind}{digits}") } else { digits.clone() };
        let decoded = u32::from_str_radix(&number, radix).ok().and_then(char::from_u32);
        match decoded.filter(|_| !exact || digits.len() == longest) {
            Some(c) => {
                out.push(c);
                rest = rest.as_str()[digits.len()..].chars();
            }
            None => out.extend(['\\', kind]),
        }
    }
    out
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    known: &'a BTreeMap<String, Value>,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn sign(&self) -> Option<char> {
        match self.peek() {
            Some(Token::Sign(c)) => Some(*c),
            _ => None,
        }
    }

    fn take(&mut self, sign: char) -> bool {
        let there = self.sign() == Some(sign);
        self.at += usize::from(there);
        there
    }

    /// One logical line: the name and the value, when it assigns one.
    fn statement(&mut self) -> Option<(String, Value)> {
        let found = match (self.peek(), self.tokens.get(self.at + 1), self.tokens.get(self.at + 2)) {
            (Some(Token::Name(name, true)), Some(Token::Sign('=')), next) if next != Some(&Token::Sign('=')) => {
                let name = name.clone();
                self.at += 2;
                let value = self.expression();
                let whole = matches!(self.peek(), None | Some(Token::Line));
                Some((name, if whole { value } else { Value::Opaque }))
            }
            _ => None,
        };
        while let Some(token) = self.peek() {
            let last = *token == Token::Line;
            self.at += 1;
            if last {
                break;
            }
        }
        found
    }

    fn expression(&mut self) -> Value {
        self.depth += 1;
        let value = if self.depth > DEEPEST { Value::Opaque } else { self.sum() };
        self.depth -= 1;
        let ends = |reader: &Self| match reader.peek() {
            None | Some(Token::Line) => true,
            Some(Token::Sign(c)) => ",)]}:=".contains(*c),
            _ => false,
        };
        if ends(self) {
            return value;
        }
        let mut open = 0_usize;
        while open > 0 || !ends(self) {
            match self.sign() {
                Some('(' | '[' | '{') => open += 1,
                Some(')' | ']' | '}') => open = open.saturating_sub(1),
                _ if self.peek().is_none() => break,
                _ => {}
            }
            self.at += 1;
        }
        Value::Opaque
    }

    fn sum(&mut self) -> Value {
        let mut value = self.operand();
        while self.take('+') {
            value = match (value, self.operand()) {
                (Value::Text(left), Value::Text(right)) => Value::Text(left + &right),
                (Value::List(mut left), Value::List(right)) => {
                    left.extend(right);
                    Value::List(left)
                }
                _ => Value::Opaque,
            };
        }
        value
    }

    fn operand(&mut self) -> Value {
        let mut value = match self.peek().cloned() {
            Some(Token::Text(mut text)) => {
                self.at += 1;
                // Strings that stand side by side are one.
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Value::Text(text)
            }
            Some(Token::Int(number)) => {
                self.at += 1;
                Value::Int(number)
            }
            Some(Token::Name(name, _)) => {
                self.at += 1;
                match name.as_str() {
                    "None" => Value::None,
                    "True" => Value::Bool(true),
                    "False" => Value::Bool(false),
                    _ => self.known.get(&name).cloned().unwrap_or(Value::Name(name)),
                }
            }
            Some(Token::Sign('(')) => self.parenthesis(),
            Some(Token::Sign('[')) => Value::List(self.items('[', ']').0),
            Some(Token::Sign('{')) => self.braces(),
            Some(Token::Other) => {
                self.at += 1;
                Value::Opaque
            }
            _ => Value::Opaque,
        };
        loop {
            value = match (self.sign(), value) {
                (Some('.'), Value::Name(name)) => {
                    self.at += 1;
                    let Some(Token::Name(attribute, _)) = self.peek().cloned() else { return Value::Opaque };
                    self.at += 1;
                    Value::Name(format!("{name}.{attribute}"))
                }
                (Some('('), Value::Name(name)) => {
                    let (arguments, named) = self.items('(', ')');
                    Value::Call(Box::new(Call { name, arguments, named }))
                }
                (_, value) => return value,
            };
        }
    }

    /// `( … )`: a value in parentheses, or a tuple.
    fn parenthesis(&mut self) -> Value {
        let before = self.at;
        let (mut items, _) = self.items('(', ')');
        let comma = self.tokens[before..self.at].iter().rev().nth(1) == Some(&Token::Sign(','));
        if items.len() == 1 && !comma { items.remove(0) } else { Value::List(items) }
    }

    /// What stands between brackets: values, and values with a name.
    fn items(&mut self, open: char, close: char) -> (Vec<Value>, Vec<(String, Value)>) {
        let (mut items, mut named) = (Vec::new(), Vec::new());
        self.take(open);
        while self.peek().is_some() && !self.take(close) {
            match (self.peek().cloned(), self.tokens.get(self.at + 1)) {
                (Some(Token::Name(name, _)), Some(Token::Sign('='))) => {
                    self.at += 2;
                    named.push((name, self.expression()));
                }
                _ => items.push(self.expression()),
            }
            self.separated(close);
        }
        (items, named)
    }

    /// A dictionary or a set.
    fn braces(&mut self) -> Value {
        let (mut entries, mut items) = (Vec::new(), Vec::new());
        self.take('{');
        while self.peek().is_some() && !self.take('}') {
            let key = self.expression();
            if self.take(':') {
                let value = self.expression();
                set(&mut entries, key.printed(), value);
            } else {
                items.push(key);
            }
            self.separated('}');
        }
        if items.is_empty() { Value::Dict(entries) } else { Value::List(items) }
    }

    /// Past the comma; never stays where it is.
    fn separated(&mut self, close: char) {
        if !self.take(',') && self.sign() != Some(close) && self.peek().is_some() {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Module::read(&format!("X = {text}\n")).get("X").cloned().unwrap_or(Value::Opaque)
    }

    #[test]
    fn literals() {
        assert_eq!(
            value("{'a': [1, None], 'b': ('x', True,), \"c\": {'s', 't'}}").printed(),
            "{'a': [1, None], 'b': ['x', True], 'c': ['s', 't']}"
        );
        assert_eq!(value("('one '\n     'two')  # nosec"), Value::Text("one two".into()));
        assert_eq!(value("(1,)"), Value::List(vec![Value::Int(1)]));
        assert_eq!(value("\" && \\\necho\""), Value::Text(" && echo".into()));
        assert_eq!(value("r'\\d' '\\d\\x41\\101\\u00e9'"), Value::Text("\\d\\dAAé".into()));
        assert_eq!(value("[1] + [2]").list().len(), 2);
        assert_eq!(value("{}"), Value::Dict(Vec::new()));
    }

    #[test]
    fn what_only_python_knows_hides_nothing_that_follows() {
        let module = Module::read(
            "import os\nA = os.uname()[4]\nB = {'x': [n for n in y], 'z': 'w'.format(a, b), 'k': 7}\n\
             def f(x):\n    A = 3\n    return {\n\n}\nC = 1 if A else 2\nD = 'd'\nE = D + '/e'\nF = f'{D}'\n",
        );
        assert_eq!(module.get("A"), Some(&Value::Opaque));
        assert_eq!(module.get("B").and_then(|b| b.get("k")), Some(&Value::Int(7)));
        assert_eq!(module.get("C"), Some(&Value::Opaque));
        assert_eq!(module.text("E"), Some("d/e"));
        assert_eq!(module.get("F"), Some(&Value::Opaque));
    }

    #[test]
    fn options_are_calls() {
        let list = value("[cfg.StrOpt('base', short='b', choices=A, help=('a' % b)), cfg.BoolOpt('push')]");
        let Value::Call(first) = &list.list()[0] else { panic!("{list:?}") };
        assert_eq!((first.name.as_str(), first.arguments[0].text()), ("cfg.StrOpt", Some("base")));
        assert_eq!(first.named[1].1, Value::Name("A".into()));
        assert_eq!(list.list().len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn reads_anything(text in "[A-Za-z0-9_ =+.,:#'\"\\\\(){}\\[\\]\n-]{0,200}") {
            Module::read(&text);
        }
    }
}
