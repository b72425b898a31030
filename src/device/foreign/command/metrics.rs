//! Values that are read after a run.

use std::fs;
use std::path::Path;

use regex_lite::Regex;
use serde_json::{Number, Value};

use crate::declared::declaration::{MetricSource, OutputText};

/// The files that hold the output of a run.
pub struct Written<'a> {
    /// Standard output.
    pub stdout: &'a Path,
    /// Standard error.
    pub stderr: &'a Path,
    /// Where relative paths begin.
    pub directory: &'a Path,
}

/// The value of a metric. Texts of its source are filled.
///
/// # Errors
/// A sentence: why there is none.
pub fn read(source: &MetricSource, written: &Written<'_>) -> Result<f64, String> {
    match source {
        MetricSource::Bytes { file } => {
            let found = fs::metadata(written.directory.join(file));
            let found = found.map_err(|error| format!("{}: {error}", shown(file)))?;
            Ok(found.len() as f64)
        }
        MetricSource::Regex { pattern, from } => {
            let text = written.text(from)?;
            let expression = Regex::new(pattern).map_err(|error| error.to_string())?;
            let last = expression.captures_iter(&text).last();
            let last =
                last.ok_or_else(|| format!("`{pattern}` matches nothing in {}", name(from)))?;
            let found = last.get(1).or_else(|| last.get(0));
            number(found.map_or("", |found| found.as_str()))
        }
        MetricSource::Json { pointer, from } => {
            let text = written.text(from)?;
            let document: Value = serde_json::from_str(&text)
                .map_err(|error| format!("{} is no JSON: {error}", name(from)))?;
            let found = at(&document, pointer)
                .ok_or_else(|| format!("{} has nothing at `{pointer}`", name(from)))?;
            match found {
                Value::Number(found) => found
                    .as_f64()
                    .ok_or_else(|| format!("`{found}` is no number that can be held")),
                Value::String(text) => number(text),
                other => Err(format!("`{pointer}` is {other}, and no number")),
            }
        }
    }
}

impl Written<'_> {
    fn text(&self, from: &OutputText) -> Result<String, String> {
        let path = match from {
            OutputText::Stdout => self.stdout.to_owned(),
            OutputText::Stderr => self.stderr.to_owned(),
            OutputText::File(file) => self.directory.join(file),
        };
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", name(from)))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn name(from: &OutputText) -> String {
    match from {
        OutputText::Stdout => "standard output".to_owned(),
        OutputText::Stderr => "standard error".to_owned(),
        OutputText::File(file) => shown(file),
    }
}

/// A file for people: its name, without the folder that lasts no longer than the run.
fn shown(file: &str) -> String {
    let name = Path::new(file).file_name().unwrap_or_default();
    format!("the file `{}`", name.to_string_lossy())
}

fn number(text: &str) -> Result<f64, String> {
    let found = text
        .trim()
        .parse()
        .ok()
        .filter(|found: &f64| found.is_finite());
    found.ok_or_else(|| format!("`{text}` is no number"))
}

/// The value at an RFC 6901 pointer, in which a step `*[key=value]` takes the first element of a
/// list whose `key` is `value`; the value may have slashes.
fn at<'v>(document: &'v Value, pointer: &str) -> Option<&'v Value> {
    let Some(rest) = pointer.strip_prefix('/') else {
        return pointer.is_empty().then_some(document);
    };
    if let Some(rest) = rest.strip_prefix("*[") {
        let (condition, rest) = rest.split_once(']')?;
        let (key, wanted) = condition.split_once('=')?;
        let is_wanted = |element: &&Value| match element.get(key) {
            Some(Value::String(text)) => text == wanted,
            Some(Value::Bool(value)) => wanted.parse() == Ok(*value),
            Some(Value::Number(number)) => wanted.parse().is_ok_and(|it: Number| it == *number),
            _ => false,
        };
        return at(document.as_array()?.iter().find(is_wanted)?, rest);
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let (step, rest) = rest.split_at(end);
    let step = step.replace("~1", "/").replace("~0", "~");
    let inside = match document {
        Value::Array(elements) => elements.get(step.parse::<usize>().ok()?)?,
        other => other.get(&step)?,
    };
    at(inside, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(source: MetricSource, text: &str) -> Result<f64, String> {
        let folder = tempfile::tempdir().unwrap();
        let stdout = folder.path().join("out");
        fs::write(&stdout, text).unwrap();
        let written = Written {
            stdout: &stdout,
            stderr: Path::new("/nowhere"),
            directory: folder.path(),
        };
        read(&source, &written)
    }

    fn regex(pattern: &str) -> MetricSource {
        MetricSource::Regex {
            pattern: pattern.to_owned(),
            from: OutputText::Stdout,
        }
    }

    fn json(pointer: &str) -> MetricSource {
        MetricSource::Json {
            pointer: pointer.to_owned(),
            from: OutputText::Stdout,
        }
    }

    #[test]
    fn the_last_match_counts() {
        let text = "12 MB/s\n19.5 MB/s\n";
        assert_eq!(of_text(regex("([0-9.]+) MB/s"), text), Ok(19.5));
        assert_eq!(of_text(regex("[0-9.]+"), text), Ok(19.5));
        let none = of_text(regex("([0-9]+) GB/s"), text).unwrap_err();
        assert!(
            none.contains("matches nothing in standard output"),
            "{none}"
        );
        assert!(
            of_text(regex("(MB)"), text)
                .unwrap_err()
                .contains("no number")
        );
    }

    #[test]
    fn pointers_lead_through_lists_by_a_key() {
        let text = r#"{"a/b": [{"tag": "nv/cold", "data": ["0.25"]}, {"tag": "x", "n": 2}]}"#;
        assert_eq!(of_text(json("/a~1b/*[tag=nv/cold]/data/0"), text), Ok(0.25));
        assert_eq!(of_text(json("/a~1b/1/n"), text), Ok(2.0));
        assert!(of_text(json("/a~1b/*[tag=y]/n"), text).is_err());
        assert!(
            of_text(json("/a~1b"), text)
                .unwrap_err()
                .contains("no number")
        );
    }
}
