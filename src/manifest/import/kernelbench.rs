//! Problems of KernelBench as manifests.
//!
//! A problem is a file of Python with a class `Model`; a candidate is one with `ModelNew`. What
//! tensors a problem has was found by an interpreter; what the manifest can't say is a comment with
//! a `?`, and files that are left out stand at its end with their reasons.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value as Json;

use super::names::Names;
use sweeper_model::toml_text::{self, in_comment, string};

/// A file that was read.
#[derive(Clone, Debug)]
pub struct BenchFile {
    /// Its path, as the manifest names it.
    pub path: String,
    /// Its name without the ending.
    pub stem: String,
    /// What it is.
    pub kind: FileKind,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// It has `Model`.
    Problem,
    /// It has `ModelNew`.
    Candidate,
    /// It has neither.
    Other,
}

impl FileKind {
    /// The kind of a text.
    pub fn of(text: &str) -> Self {
        let has = |class: &str| {
            text.lines().any(|line| {
                let rest = line.strip_prefix("class ").map(str::trim_start);
                let rest = rest.and_then(|rest| rest.strip_prefix(class));
                rest.is_some_and(|rest| rest.trim_start().starts_with(['(', ':']))
            })
        };
        if has("ModelNew") {
            FileKind::Candidate
        } else if has("Model") {
            FileKind::Problem
        } else {
            FileKind::Other
        }
    }
}

/// What an interpreter found in a problem.
#[derive(Clone, Debug, Deserialize)]
pub struct Examined {
    /// Constants on which shapes depend, with their values.
    params: Vec<(String, i64)>,
    /// Numbers among the arguments of a call; none in the place of a tensor.
    #[serde(default)]
    args: Vec<Option<Json>>,
    inputs: Vec<ExaminedTensor>,
    outputs: Vec<ExaminedTensor>,
    /// It draws random numbers.
    random: bool,
    /// Of its tensors and weights.
    bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct ExaminedTensor {
    name: String,
    dtype: String,
    /// Expressions of the constants.
    shape: Vec<String>,
    /// As a manifest has it; none where it is not known.
    #[serde(default)]
    fill: Option<Json>,
}

/// A reference that takes more than this in f64 is worth a doubt.
const LARGE_BYTES: u64 = 4 << 30;

/// The manifest of problems, with what was found in each or why it is left out, and of candidates.
///
/// # Errors
/// A sentence: there is no problem that can be imported.
pub fn manifest(
    interpreter: Option<&str>,
    problems: &[(BenchFile, Result<Examined, String>)],
    others: &[BenchFile],
) -> Result<String, String> {
    let found: Vec<(&BenchFile, &Examined)> = problems
        .iter()
        .filter_map(|(file, examined)| Some((file, examined.as_ref().ok()?)))
        .collect();
    let mut left_out: Vec<(&str, String)> = problems
        .iter()
        .filter_map(|(file, examined)| Some((&*file.path, examined.as_ref().err()?.clone())))
        .collect();
    if found.is_empty() {
        let all = left_out.iter();
        let all = all.map(|(path, reason)| format!("{path}: {reason}"));
        return Err(match left_out.as_slice() {
            [] => "no file has a class `Model`".to_owned(),
            [(_, first), rest @ ..] if rest.iter().all(|(_, reason)| reason == first) => {
                first.clone()
            }
            _ => all.collect::<Vec<_>>().join("; "),
        });
    }
    let mut candidates: Vec<Vec<&BenchFile>> = vec![Vec::new(); found.len()];
    for file in others {
        match (file.kind, problem_of(&file.stem, &found)) {
            (FileKind::Candidate, Some(problem)) => candidates[problem].push(file),
            (FileKind::Candidate, None) => left_out.push((
                &file.path,
                "no imported problem has a name that stands in its name".to_owned(),
            )),
            _ => left_out.push((
                &file.path,
                "it has no class `Model` or `ModelNew`".to_owned(),
            )),
        }
    }
    let exe = interpreter.unwrap_or("${SWEEPER_PYTHON:-python3}");
    let mut out = format!(
        "schema = 1\n\n# Imported from KernelBench. Lines with a `?` are doubts: look at each. Real \
         tensors have the\n# type of the case, f32 where it says none.\n\n[python]\nexe = {}\n",
        string(exe)
    );
    let mut names = Names::new("kb");
    for ((file, examined), candidates) in found.iter().zip(&candidates) {
        let alone = found.len() == 1;
        write_problem(&mut out, file, examined, candidates, alone, &mut names);
    }
    if !left_out.is_empty() {
        out.push_str("\n# Not imported:\n");
    }
    for (path, reason) in left_out {
        let line = format!("{path}: {reason}");
        let _ = writeln!(out, "#   {}", in_comment(&line));
    }
    Ok(out)
}

/// The problem that a candidate is of: the only one, or the one with the longest name that stands
/// in the candidate's.
fn problem_of(candidate: &str, problems: &[(&BenchFile, &Examined)]) -> Option<usize> {
    if problems.len() == 1 {
        return Some(0);
    }
    let named = problems.iter().enumerate();
    let named = named.filter(|(_, (file, _))| candidate.contains(&file.stem));
    let longest = named.max_by_key(|(_, (file, _))| file.stem.len());
    longest.map(|(at, _)| at)
}

fn write_problem(
    out: &mut String,
    file: &BenchFile,
    examined: &Examined,
    candidates: &[&BenchFile],
    is_alone: bool,
    names: &mut Names,
) {
    let name = names.of(&file.stem);
    let _ = write!(
        out,
        "\n[workload.{name}]\nkernelbench = {}\n",
        string(&file.path)
    );
    let params = examined.params.iter();
    let params = params
        .map(|(name, value)| (toml_text::key(name), value))
        .map(|(name, value)| format!("{name} = {{ int = [1, 2147483647], default = {value} }}"));
    let params: Vec<String> = params.collect();
    if !params.is_empty() {
        let _ = writeln!(out, "params = {{ {} }}", params.join(", "));
    }
    let has_fills = examined.inputs.iter().all(|input| input.fill.is_some());
    for input in &examined.inputs {
        let fill = input.fill.as_ref().filter(|_| has_fills);
        write_tensor(out, "inputs", input, fill);
    }
    if !has_fills {
        // The file computes elements.
        let function = string(&format!("{}:get_inputs", file.path));
        let _ = writeln!(out, "inputs_from = {function}");
    }
    for output in &examined.outputs {
        write_tensor(out, "outputs", output, None);
    }
    if examined.args.iter().any(Option::is_some) {
        let mut tensors = examined.inputs.iter().map(|input| string(&input.name));
        let args = examined.args.iter();
        let args = args.filter_map(|number| number.as_ref().map(toml).or_else(|| tensors.next()));
        let _ = writeln!(out, "args = [{}]", args.collect::<Vec<_>>().join(", "));
    }
    out.push_str("check = { reference = \"model\" }");
    if examined.random {
        out.push_str(
            "   # ? the model draws random numbers (dropout): no two calls agree, its rows will be \
             `error`",
        );
    }
    out.push('\n');
    write_backends(out, &name, candidates, is_alone, names);
    let _ = write!(out, "\n[case.{name}]\nworkload = \"{name}\"\n");
    let values = examined.params.iter();
    let values = values.map(|(name, value)| format!("{} = {value}", toml_text::key(name)));
    let values: Vec<String> = values.collect();
    if !values.is_empty() {
        let _ = write!(out, "grid = {{ {} }}", values.join(", "));
        // Twice as large in f64.
        if 2 * examined.bytes > LARGE_BYTES {
            let _ = write!(
                out,
                "   # ? the reference takes over {} GB of the host's memory in f64",
                2 * examined.bytes / 1_000_000_000
            );
        }
        out.push('\n');
    }
}

/// The model as it is and compiled, and the candidates.
fn write_backends(
    out: &mut String,
    name: &str,
    candidates: &[&BenchFile],
    is_alone: bool,
    names: &mut Names,
) {
    let of_problem = |backend: &str| match is_alone {
        true => backend.to_owned(),
        false => format!("{name}_{backend}"),
    };
    let eager = names.of(&of_problem("eager"));
    let compiled = names.of(&of_problem("compiled"));
    let _ = write!(
        out,
        "\n[backend.{eager}]\nworkload = \"{name}\"\nkernelbench = \"model\"\n\n\
         [backend.{compiled}]\nlike = \"{eager}\"\ntorch_compile = {{}}\n"
    );
    for candidate in candidates {
        let backend = names.of(&candidate.stem);
        let _ = write!(
            out,
            "\n[backend.{backend}]\nworkload = \"{name}\"\nkernelbench = {}\n",
            string(&candidate.path)
        );
    }
}

fn write_tensor(out: &mut String, key: &str, tensor: &ExaminedTensor, fill: Option<&Json>) {
    let shape = tensor.shape.iter().map(|extent| string(extent));
    let shape: Vec<String> = shape.collect();
    let mut parts = vec![format!("shape = [{}]", shape.join(", "))];
    if tensor.dtype != "f32" {
        parts.insert(0, format!("dtype = {}", string(&tensor.dtype)));
    }
    parts.extend(fill.map(|fill| format!("fill = {}", toml(fill))));
    let name = toml_text::key(&tensor.name);
    let _ = writeln!(out, "{key}.{name} = {{ {} }}", parts.join(", "));
}

/// A fill as TOML.
fn toml(value: &Json) -> String {
    match value {
        Json::Object(entries) => {
            let entries = entries.iter();
            let name = toml_text::key;
            let entries = entries.map(|(key, value)| format!("{} = {}", name(key), toml(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) => {
            let items = items.iter().map(toml);
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Json::String(text) => string(text),
        Json::Null => string("null"),
        Json::Number(number) if !number.is_i64() => format!("{:?}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}
