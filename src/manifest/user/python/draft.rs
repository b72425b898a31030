//! A manifest to start from, written from the signatures of functions in Python.

use std::collections::BTreeSet;

use sweeper_workloads::registry;

use crate::objection;
use sweeper_model::toml_text::{in_comment, key, string};

/// A function at the top level of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its parameters that have no default, in order.
    parameters: Vec<Parameter>,
    /// Names of those that have one.
    defaults: Vec<String>,
    /// How many values it returns, as far as its annotation says.
    results: usize,
    /// It multiplies matrices.
    has_products: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    kind: Kind,
    /// The name by which it has to be passed, if it has to.
    keyword: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tensor,
    Int,
    Float,
    Bool,
}

impl Function {
    /// Whether it takes the arguments of another one.
    pub fn takes_what(&self, other: &Function) -> bool {
        self.parameters == other.parameters && self.results == other.results
    }

    fn tensors(&self) -> impl Iterator<Item = &Parameter> {
        let parameters = self.parameters.iter();
        parameters.filter(|parameter| parameter.kind == Kind::Tensor)
    }
}

/// The functions of a source that can be measured: those that take a tensor at least, and whose
/// names do not begin with `_`.
pub fn functions(text: &str) -> Vec<Function> {
    let code = without_texts(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("def ") {
        let is_top = at == 0 || code[..at].ends_with('\n');
        if let Some(function) = is_top.then(|| function(&code[at + 4..])).flatten() {
            // The last one of a name counts.
            found.retain(|it: &Function| it.name != function.name);
            found.push(function);
        }
    }
    found
}

/// The function whose name and parameters stand at the beginning of a text.
fn function(text: &str) -> Option<Function> {
    let (name, rest) = text.split_once('(')?;
    let name = name.trim();
    if name.starts_with('_') || !is_plain(name) {
        return None;
    }
    let parts = parts(rest)?;
    let (head, body) = rest[parts.end..].split_once(':')?;
    let end = body.find("\ndef ").unwrap_or(body.len());
    let body = &body[..end];
    let mut found = Function {
        name: name.to_owned(),
        parameters: Vec::new(),
        defaults: Vec::new(),
        results: results(head, body),
        has_products: ["@", "matmul(", "dot(", "mm(", "einsum("]
            .iter()
            .any(|sign| body.contains(sign)),
    };
    let mut is_keyword = false;
    for part in parts.texts {
        if part.starts_with('*') {
            is_keyword |= !part.starts_with("**");
            continue;
        }
        let (declared, default) = match part.split_once('=') {
            Some((declared, _)) => (declared, true),
            None => (part, false),
        };
        let (name, annotation) = declared.split_once(':').unwrap_or((declared, ""));
        let name = name.trim().to_owned();
        match default {
            _ if name == "/" || name.is_empty() => {}
            true => found.defaults.push(name),
            false => found.parameters.push(Parameter {
                keyword: is_keyword.then(|| name.clone()),
                name,
                kind: kind(annotation.trim()),
            }),
        }
    }
    found.rename();
    let takes_tensors = found.tensors().next().is_some();
    takes_tensors.then_some(found)
}

/// Whether a name can be one in a manifest.
fn is_plain(name: &str) -> bool {
    let is_letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

impl Function {
    /// Gives other names to parameters whose names a manifest can't have, or that mean something
    /// else in expressions.
    fn rename(&mut self) {
        let mut given = BTreeSet::new();
        for (at, parameter) in self.parameters.iter_mut().enumerate() {
            if !is_plain(&parameter.name) {
                parameter.name = format!("arg{at}");
            }
            while objection(&parameter.name).is_some() || given.contains(&parameter.name) {
                parameter.name.push('_');
            }
            given.insert(parameter.name.clone());
        }
    }
}

/// The texts between commas up to the bracket that closes, and where that ends.
struct Parts<'t> {
    texts: Vec<&'t str>,
    end: usize,
}

fn parts(text: &str) -> Option<Parts<'_>> {
    let (mut depth, mut from, mut texts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                texts.push(text[from..at].trim());
                return Some(Parts { texts, end: at + 1 });
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                texts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn kind(annotation: &str) -> Kind {
    match annotation {
        "int" => Kind::Int,
        "float" => Kind::Float,
        "bool" => Kind::Bool,
        _ => Kind::Tensor,
    }
}

/// How many values a function returns, by its annotation or else by its last `return`.
fn results(annotation: &str, body: &str) -> usize {
    let count = |text: &str| parts(text).map_or(1, |parts| parts.texts.len());
    let declared = annotation.to_lowercase();
    if let Some((_, inside)) = declared.split_once("tuple[") {
        return count(&inside.replace(']', ")"));
    }
    let returned = body.lines().rev().find_map(|line| {
        let line = line.strip_prefix("    ")?;
        line.strip_prefix("return ")
    });
    returned.map_or(1, |returned| count(&format!("{returned})")))
}

/// A source without comments and what stands in quotes, line by line as it was.
fn without_texts(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        code += &rest[..at];
        rest = &rest[at..];
        let (skipped, end) = match rest.starts_with('#') {
            true => (rest.find('\n').unwrap_or(rest.len()), ""),
            false => (quoted(rest), "\"\""),
        };
        code += end;
        code.extend(rest[..skipped].chars().filter(|&c| c == '\n'));
        rest = &rest[skipped..];
    }
    code + rest
}

/// The bytes of the text in quotes at the beginning.
fn quoted(text: &str) -> usize {
    let one = &text[..1];
    let three = one.repeat(3);
    let quote = if text.starts_with(&three) {
        &three
    } else {
        one
    };
    let mut at = quote.len();
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(quote) {
            return at + quote.len();
        }
        if quote.len() == 1 && rest.starts_with('\n') {
            return at;
        }
        let mut chars = rest.chars();
        let first = chars.next().map_or(1, char::len_utf8);
        let escaped = chars.next().map_or(0, char::len_utf8);
        at += first + if rest.starts_with('\\') { escaped } else { 0 };
    }
    text.len()
}

/// The manifest of a function of a source, and of others that take the same arguments: they are
/// backends of one workload, judged by the first in f64. What the signature does not say is a
/// comment that begins with `?`.
pub fn manifest(source: &str, text: &str, function: &Function, others: &[String]) -> String {
    let name = &function.name;
    // A workload of this build is not a name for another problem.
    let workload = match registry::workload(name) {
        Some(_) => format!("my_{name}"),
        None => name.clone(),
    };
    let source = string(source);
    let taken = |name: &str| function.parameters.iter().any(|it| it.name == name);
    let size = if taken("n") { "elements" } else { "n" };
    let shape = match function.has_products {
        true => format!("[\"{size}\", \"{size}\"]"),
        false => format!("[\"{size}\"]"),
    };
    let results: Vec<String> = match function.results {
        1 => vec!["out".to_owned()],
        count => (0..count).map(|at| format!("out{at}")).collect(),
    };
    let mut written = format!(
        "schema = 1\n\n# Written from the signature of `{}`. Lines with a `?` are guesses: look at \
         each.\n\n[python]\nexe = \"${{SWEEPER_PYTHON:-python3}}\"\n\n[workload.{workload}]\n\
         params    = {{ {} }}\n",
        in_comment(name),
        parameters(function, size).join(", ")
    );
    for tensor in function.tensors() {
        written += &format!(
            "inputs.{} = {{ shape = {shape} }}   # ? its shape\n",
            tensor.name
        );
    }
    for result in &results {
        written += &format!("outputs.{result} = {{ shape = {shape} }}   # ? its shape\n");
    }
    written += &format!(
        "# ? Itself in f64: this shows what rounding does, and no mistake in its formula.\n\
         # A formula shows both: {{ expr = \"2 * x\" }}.\n\
         check     = {{ reference = {{ python = {source}, entry = \"{name}\" }} }}\n\n\
         [backend.{name}]\nworkload = \"{workload}\"\npython   = {source}\nentry    = \"{name}\"\n{}",
        arguments(function)
    );
    if !function.defaults.is_empty() {
        let defaults = in_comment(&function.defaults.join(", "));
        written += &format!("# ? Left to their defaults: {defaults}\n");
    }
    let quoted: Vec<String> = results.iter().map(|name| string(name)).collect();
    written += &format!("returns  = [{}]\n", quoted.join(", "));
    for other in others {
        written += &format!("\n[backend.{other}]\nlike  = \"{name}\"\nentry = \"{other}\"\n");
    }
    let sizes = match function.has_products {
        true => "[64, 256, 1024]",
        false => "[1000, 100000, 1000000]",
    };
    written += &format!(
        "\n[case.{workload}]\nworkload = \"{workload}\"\ngrid     = {{ {size} = {sizes}{} }}\n",
        axes(function)
    );
    written + device(text)
}

/// The device of a source: only NumPy has no arrays on a GPU.
fn device(text: &str) -> &'static str {
    let mut libraries = ["torch", "jax", "cupy", "triton"].iter();
    let names = |library: &&str| {
        let mut forms = ["import", "from"].iter();
        forms.any(|form| text.contains(&format!("{form} {library}")))
    };
    match libraries.any(names) {
        true => "",
        false => "\n[device]\nuse = \"cpu\"\n",
    }
}

fn parameters(function: &Function, size: &str) -> Vec<String> {
    let own = function.parameters.iter().filter_map(|parameter| {
        let bounds = match parameter.kind {
            Kind::Tensor => return None,
            Kind::Int => "{ int = [1, 2147483647] }",
            Kind::Float => "{ float = [-1e9, 1e9], default = 1.0 }",
            Kind::Bool => "{ bool = true, default = true }",
        };
        Some(format!("{} = {bounds}", parameter.name))
    });
    let size = format!("{size} = {{ int = [1, 100000000] }}");
    own.chain([size]).collect()
}

/// Values of whole numbers, which have no default.
fn axes(function: &Function) -> String {
    let whole = function.parameters.iter();
    let whole = whole.filter(|parameter| parameter.kind == Kind::Int);
    whole
        .map(|parameter| format!(", {} = 1", parameter.name))
        .collect()
}

fn arguments(function: &Function) -> String {
    let all = function.parameters.iter();
    let by_place = all.clone().filter(|it| it.keyword.is_none());
    let values: Vec<String> = by_place.map(|it| string(&it.name)).collect();
    let mut written = format!("args     = [{}]\n", values.join(", "));
    let by_name = all.filter_map(|it| Some((it.keyword.as_ref()?, &it.name)));
    let values: Vec<String> = by_name
        .map(|(keyword, name)| format!("{} = {}", key(keyword), string(name)))
        .collect();
    if !values.is_empty() {
        written += &format!("kwargs   = {{ {} }}\n", values.join(", "));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::rounding::mixed;

    const SOURCE: &str = "\
import numpy as np
\"\"\"
def not_this(x):
\"\"\"
def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:  # def nor(this)
    return x

def split(
    x, k: int, *, scale: float, name='a, b)',
) -> tuple[np.ndarray, np.ndarray]:
    return x, x @ x

def _own(x):
    pass

def nothing():
    pass
";

    #[test]
    fn functions_are_found_by_their_signatures() {
        let found = functions(SOURCE);
        let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["softmax", "split"]);
        assert_eq!(found[0].defaults, ["axis"]);
        assert_eq!((found[0].results, found[1].results), (1, 2));
        let kinds = found[1].parameters.iter();
        let kinds: Vec<_> = kinds
            .map(|it| (&*it.name, it.kind, it.keyword.is_some()))
            .collect();
        let expected = [
            ("x", Kind::Tensor, false),
            ("k", Kind::Int, false),
            ("scale", Kind::Float, true),
        ];
        assert_eq!(kinds, expected);
        assert!(found[1].has_products && !found[0].has_products);
        assert!(!found[0].takes_what(&found[1]));
    }

    #[test]
    fn any_source_becomes_toml() {
        let words = [
            "def ",
            "f",
            "(",
            ")",
            ":",
            ",",
            "x",
            "*",
            "=",
            "\n",
            "'",
            "\"",
            "\"\"\"",
            "#",
            "int",
            "->",
            "tuple[",
            "]",
            "    return ",
            "\\",
            "é",
            "@",
            "/",
        ];
        let mut drafts = 0;
        for seed in 0..20_000u64 {
            let word = |at: u64| words[(mixed(seed * 64 + at) % words.len() as u64) as usize];
            let rest: String = (0..seed % 40).map(word).collect();
            let text = format!("def f(x{rest}");
            for found in functions(&text) {
                let draft = manifest("f.py", &text, &found, &[]);
                let read: Result<toml::Table, _> = draft.parse();
                read.unwrap_or_else(|error| panic!("{error}\n{text}\n{draft}"));
                drafts += 1;
            }
        }
        assert!(drafts > 500, "{drafts}");
    }
}
