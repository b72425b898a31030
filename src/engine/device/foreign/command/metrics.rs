//! Values that are read after a run.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use regex_lite::Regex;
use serde_json::{Number, Value};

use sweeper_manifest::user::command_declaration::{MetricSource, OutputText};
use sweeper_model::files;

/// A number over this is none of a run: sums and squares of such numbers would be infinite, which
/// no record can hold.
const MOST: f64 = 1e100;

/// A longer text is not searched: it would have to be held in memory.
const MOST_BYTES: u64 = 256 << 20;

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
                .map_err(|error| format!("{} is not JSON: {error}", name(from)))?;
            let found = at(&document, pointer)
                .ok_or_else(|| format!("{} has nothing at `{pointer}`", name(from)))?;
            match found {
                Value::Number(found) => number(&found.to_string()),
                Value::String(text) => number(text),
                other => Err(format!("`{pointer}` is {other}, and not a number")),
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
        let unread = |error: io::Error| format!("{}: {error}", name(from));
        let file = files::open(&path).map_err(unread)?;
        let length = file.metadata().map_err(unread)?.len();
        if length > MOST_BYTES {
            let (name, most) = (name(from), MOST_BYTES >> 20);
            return Err(format!(
                "{name} has {length} bytes, more than the {most} MiB that are searched"
            ));
        }
        let mut bytes = Vec::new();
        // A process that was left running may still write.
        file.take(MOST_BYTES)
            .read_to_end(&mut bytes)
            .map_err(unread)?;
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
    match text.trim().parse::<f64>() {
        Ok(found) if found.abs() <= MOST => Ok(found),
        Ok(found) if found.is_finite() => Err(format!("`{text}` is over {MOST:e}")),
        _ => Err(format!("`{text}` is not a number")),
    }
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
                .contains("not a number")
        );
    }

    #[test]
    fn a_number_that_no_record_can_hold_is_refused() {
        for text in ["1e101", "-1e300"] {
            let found = of_text(regex(r"\S+"), text).unwrap_err();
            assert!(found.ends_with("is over 1e100"), "{found}");
            let found = of_text(json(""), text).unwrap_err();
            assert!(found.ends_with("is over 1e100"), "{found}");
        }
        assert_eq!(of_text(regex(r"\S+"), "1e100"), Ok(1e100));
    }

    #[test]
    fn a_text_that_memory_may_not_hold_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::File::create(&path)
            .unwrap()
            .set_len(MOST_BYTES + 1)
            .unwrap();
        let source = MetricSource::Regex {
            pattern: "a".to_owned(),
            from: OutputText::File("out".to_owned()),
        };
        let written = Written {
            stdout: &path,
            stderr: &path,
            directory: folder.path(),
        };
        let found = read(&source, &written).unwrap_err();
        let wanted = "the file `out` has 268435457 bytes, more than the 256 MiB that are searched";
        assert_eq!(found, wanted);
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
                .contains("not a number")
        );
    }
}
