//! Sources in Python that are written beside a manifest: references and solutions.

use std::collections::BTreeMap;

use super::schema::{Definition, Solution};
use sweeper_model::toml_text::string;

/// The function of every definition.
pub(super) const RUN: &str = "run";

/// The function that is added to a reference in PyTorch, for arrays of NumPy.
const WITH_ARRAYS: &str = "with_arrays";

/// A file beside the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// Its path below the folder of sources.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The source of a definition's reference, and the function of it that takes arrays of NumPy.
pub(super) fn reference(definition: &Definition) -> (String, &'static str) {
    let text = definition.reference.trim_end();
    if !uses_torch(definition) {
        return (format!("{text}\n"), RUN);
    }
    let names = |names: Vec<String>| match names.as_slice() {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    };
    let inputs = definition
        .inputs
        .0
        .iter()
        .map(|(_, input)| match input.shape {
            Some(_) => format!("torch.{}", input.dtype),
            None => "None".to_owned(),
        });
    let outputs = definition.outputs.0.iter();
    let types = outputs.clone().map(|(_, output)| {
        let is_real = output.dtype.contains("float");
        format!("torch.{}", if is_real { "float64" } else { &output.dtype })
    });
    let outputs = outputs.map(|(name, _)| string(name));
    let added = format!(
        "{text}


# Added by `sweeper import flashinfer`.


def {WITH_ARRAYS}(*given):
    \"\"\"`{RUN}` for arrays of NumPy: it gets tensors of the definition's types, on a CPU.\"\"\"
    import torch

    types = {inputs}
    given = [
        held if dtype is None else torch.tensor(held, dtype=dtype)
        for held, dtype in zip(given, types)
    ]
    with torch.no_grad():
        results = {RUN}(*given)
    if isinstance(results, dict):
        results = [results[name] for name in {outputs}]
    elif not isinstance(results, (tuple, list)):
        results = [results]
    types = {types}
    return tuple(held.to(dtype).numpy() for held, dtype in zip(results, types, strict=True))
",
        inputs = names(inputs.collect()),
        outputs = names(outputs.collect()),
        types = names(types.collect()),
    );
    (added, WITH_ARRAYS)
}

/// Whether a reference is written in PyTorch, as the format asks for.
pub(super) fn uses_torch(definition: &Definition) -> bool {
    definition.reference.contains("torch")
}

/// The files of a solution in Python, the main one's path and its function. `name` is that of its
/// backend, which names its folder.
///
/// # Errors
/// A sentence: the part that can't be written, and why.
pub(super) fn solution(
    solution: &Solution,
    name: &str,
) -> Result<(Vec<SourceText>, String, String), String> {
    let entry = &solution.spec.entry_point;
    let (main, function) = entry
        .split_once("::")
        .ok_or_else(|| format!("its entry point `{entry}` is not `FILE::FUNCTION`"))?;
    if let Some(file) = solution.sources.iter().find(|file| !is_below(&file.path)) {
        return Err(format!("its source `{}` is outside of a folder", file.path));
    }
    let mut sources = solution.sources.iter();
    let held = sources
        .find(|file| file.path == main)
        .ok_or_else(|| format!("its entry point's file `{main}` is none of its sources"))?;
    let Some(module) = main.strip_suffix(".py") else {
        return Err(format!("its entry point's file `{main}` is not Python"));
    };
    let is_relative = |line: &str| line.trim_start().starts_with("from .");
    if !held.content.lines().any(is_relative) {
        let files = solution.sources.iter();
        let files = files.map(|file| SourceText {
            path: format!("{name}/{}", file.path),
            text: file.content.clone(),
        });
        return Ok((
            files.collect(),
            format!("{name}/{main}"),
            function.to_owned(),
        ));
    }
    let package = format!("{name}_package");
    let mut files = packaged(solution, &package);
    let main = format!("{name}.py");
    let module = module.replace('/', ".");
    files.push(SourceText {
        path: main.clone(),
        text: format!("from {package}.{module} import {function}\n"),
    });
    Ok((files, main, function.to_owned()))
}

/// The files of a solution as a package, in which relative imports work.
fn packaged(solution: &Solution, package: &str) -> Vec<SourceText> {
    let mut texts = BTreeMap::new();
    for file in &solution.sources {
        let path = format!("{package}/{}", file.path);
        for (at, _) in path.match_indices('/') {
            let init = format!("{}/__init__.py", &path[..at]);
            texts.entry(init).or_insert_with(String::new);
        }
        texts.insert(path, file.content.clone());
    }
    let files = texts.into_iter();
    files
        .map(|(path, text)| SourceText { path, text })
        .collect()
}

/// Whether a path leads to no place above its folder.
fn is_below(path: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains('\\') && path.split('/').all(is_name)
}
