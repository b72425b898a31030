//! `${NAME}` and `${NAME:-default}` in paths and thread counts.

use std::collections::BTreeMap;
use std::ops::Range;

/// A variable that has no value and no default, and where it stands.
pub(crate) struct Unset {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

/// Names of the variables in `text`.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    references(text)
        .filter_map(Result::ok)
        .map(|reference| reference.name)
}

/// `text` with the values of variables in it. As in a shell, a default replaces an empty value.
pub(crate) fn expand(text: &str, environment: &BTreeMap<String, String>) -> Result<String, Unset> {
    let mut out = String::new();
    let mut end = 0;
    for reference in references(text) {
        let reference = reference?;
        out.push_str(&text[end..reference.span.start]);
        end = reference.span.end;
        let value = environment.get(reference.name).map(String::as_str);
        match (value, reference.default) {
            (Some(value), None) => out.push_str(value),
            (Some(value), Some(_)) if !value.is_empty() => out.push_str(value),
            (_, Some(default)) => out.push_str(default),
            (None, None) => {
                let message = format!("`{}` is not set in the environment", reference.name);
                let span = reference.span;
                return Err(Unset { span, message });
            }
        }
    }
    out.push_str(&text[end..]);
    Ok(out)
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    span: Range<usize>,
}

fn references(text: &str) -> impl Iterator<Item = Result<Reference<'_>, Unset>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find("${")?;
        let Some(length) = text[start..].find('}') else {
            from = text.len();
            let message = "this `${` never ends".to_owned();
            let span = start..text.len();
            return Some(Err(Unset { span, message }));
        };
        let span = start..start + length + 1;
        from = span.end;
        let inner = &text[start + 2..start + length];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(plain) {
            let message = format!("`{name}` is not a name of a variable");
            return Some(Err(Unset { span, message }));
        }
        Some(Ok(Reference {
            name,
            default,
            span,
        }))
    })
}
