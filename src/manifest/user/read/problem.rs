//! `[workload.X]`: parameters, tensors and work of a problem.

use std::collections::BTreeSet;

use sweeper_program::workload::ParameterInfo;
use sweeper_program::{Dtype, Value};

use super::check::check;
use super::inputs_from::inputs_from;
use super::kernelbench::{self, KERNELBENCH};
use super::names::{NUMBER, WHOLE, expression};
use super::python::PythonSettings;
use super::source::{PATHS_OF_MANIFEST, named_file};
use crate::grammar::axis;
use crate::grammar::expression::check_name;
use crate::grammar::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::tree::{Entry, Node, Raw};
use crate::user::check::Reference;
use crate::user::declaration::{
    DeclaredKind, FileDeclaration, Fill, Initial, InputDeclaration, OutputDeclaration,
    ParameterDeclaration, ProblemDeclaration, TensorDeclaration,
};
use crate::user::{fill_scope, parameters, problem_scope};
use sweeper_model::expression::Scope;

/// Reads a declared problem; what is wrong is reported.
pub(super) fn problem(
    cx: &mut Context<'_>,
    entry: &Entry,
    settings: &PythonSettings,
) -> Option<ProblemDeclaration> {
    let path = format!("workload.{}", entry.key);
    let mut section = cx.section(&entry.value, &path)?;
    let about = section.read(cx, "about", Context::text);
    let params = section.take(cx, "params");
    let declared = params.map_or_else(Vec::new, |node| entries(cx, node, "params", parameter));
    let mut problem = ProblemDeclaration {
        about: about.unwrap_or_default(),
        parameters: declared,
        ..ProblemDeclaration::default()
    };
    let infos = parameters(&problem);
    if let Some(node) = section.take(cx, "inputs") {
        problem.inputs = entries(cx, node, "inputs", |cx, entry| input(cx, entry, infos));
    }
    problem.inputs_from = inputs_from(cx, &mut section, &problem, settings);
    let files = section.take(cx, "files");
    problem.files = files.map_or_else(Vec::new, |node| entries(cx, node, "files", file));
    // Commands have no tensors: their results are files, which each backend checks by itself.
    let has_tensors = ["inputs", "outputs", "check", KERNELBENCH]
        .iter()
        .any(|key| section.table.get(key).is_some());
    let outputs = match section.table.get(KERNELBENCH) {
        Some(_) => kernelbench::outputs(cx, &mut section),
        None if has_tensors => section.need(cx, "outputs"),
        None => None,
    };
    if let Some(node) = outputs {
        let inputs = problem.inputs.iter();
        let inputs: Vec<String> = inputs.map(|it| it.tensor.name.clone()).collect();
        problem.outputs = entries(cx, node, "outputs", |cx, entry| {
            output(cx, entry, infos, &inputs)
        });
    }
    if let Some(node) = section.take(cx, "work") {
        work(cx, node, &mut problem, &problem_scope(infos));
    }
    problem.requires_own_kernels = requires_own_kernels(cx, &mut section);
    let found = [
        ("params", problem.parameters.len()),
        ("inputs", problem.inputs.len()),
        ("outputs", problem.outputs.len()),
    ];
    if has_tensors && outputs.is_none() || found.iter().any(|found| lacks(&section, found)) {
        cx.broken.insert(path);
    }
    right_answer(cx, &mut section, &mut problem, has_tensors, settings);
    section.finish(cx);
    Some(problem)
}

/// What may be required of the functions of a problem.
pub(super) const OWN_KERNELS: &str = "own kernels";

fn requires_own_kernels(cx: &mut Context<'_>, section: &mut Section<'_>) -> bool {
    let node = section.take(cx, "require");
    let word = node.and_then(|node| Some((node.at, cx.text(node, "require")?)));
    if let Some((at, word)) = word.as_ref().filter(|(_, word)| word != OWN_KERNELS) {
        cx.unknown_word(*at, "require", word, [OWN_KERNELS]);
        return false;
    }
    word.is_some()
}

/// Whether a table has more entries than were read.
fn lacks(section: &Section<'_>, (key, read): &(&str, usize)) -> bool {
    let node = section.table.value(key);
    node.is_some_and(|node| node.table().is_none_or(|table| table.entries.len() > *read))
}

/// Reads the model of a problem and how outputs are judged.
fn right_answer(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    problem: &mut ProblemDeclaration,
    has_tensors: bool,
    settings: &PythonSettings,
) {
    let has_model = kernelbench::model(cx, section, problem, settings);
    let checked = match has_model {
        // Its model is the reference where none is said.
        true => section.take(cx, "check"),
        false if has_tensors => section.need(cx, "check"),
        false => None,
    };
    match (checked, &problem.model) {
        (Some(node), _) => check(cx, node, problem, parameters(problem), settings),
        (None, Some(model)) => problem.reference = Reference::Python(Box::new(model.clone())),
        (None, None) => {}
    }
}

/// A file that commands read.
fn file(cx: &mut Context<'_>, entry: &Entry) -> Option<FileDeclaration> {
    let path = cx.path(&entry.value, &entry.key)?;
    let path = cx.in_folder(entry.value.at, &path);
    if let Some(file) = named_file(cx, entry.value.at, &path, PATHS_OF_MANIFEST) {
        return Some(FileDeclaration {
            name: entry.key.clone(),
            path: file.path.to_string_lossy().into_owned(),
            sha256: file.digest.hex(),
            bytes: file.bytes,
        });
    }
    let name = format!("files.{}", entry.key);
    cx.broken.insert(format!("{name}.bytes"));
    cx.broken.insert(name);
    None
}

/// The entries of a table that are what they should be; names are checked. That another is missing
/// is not a second mistake.
fn entries<T>(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    mut read: impl FnMut(&mut Context<'_>, &Entry) -> Option<T>,
) -> Vec<T> {
    let Some(section) = cx.section(node, key) else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries
        .filter_map(|entry| {
            let found = match check_name(cx, entry) {
                true => read(cx, entry),
                false => None,
            };
            if found.is_none() {
                cx.broken.insert(entry.key.clone());
            }
            found
        })
        .collect()
}

fn parameter(cx: &mut Context<'_>, entry: &Entry) -> Option<ParameterDeclaration> {
    let mut section = cx.section(&entry.value, &entry.key)?;
    let mut kinds = Vec::new();
    for key in ["int", "float", "choice", "bool"] {
        if let Some(node) = section.take(cx, key) {
            kinds.push((key, node));
        }
    }
    let kind = match *kinds {
        [("int", node)] => pair(cx, node, "int", whole).map(|(a, b)| DeclaredKind::Int(a, b)),
        [("float", node)] => {
            pair(cx, node, "float", number).map(|(a, b)| DeclaredKind::Float(a, b))
        }
        [("choice", node)] => {
            let words = cx.words(node, "choice")?;
            let words = words.into_iter().map(|word| word.value);
            Some(DeclaredKind::Choice(words.collect()))
        }
        [("bool", node)] => cx.boolean(node, "bool").map(|_| DeclaredKind::Bool),
        _ => {
            let message = format!("the parameter `{}` has no kind, or several", entry.key);
            cx.report(Code::Declaration, entry.value.at, message)
                .help("write one of: { int = [1, 4096] }  { float = [0, 1] }  { choice = [\"a\", \"b\"] }  { bool = true }");
            None
        }
    }?;
    let default = section.optional(cx, "default", |cx, node, _| {
        default_value(cx, node, &kind, &entry.key)
    });
    section.finish(cx);
    Some(ParameterDeclaration {
        name: entry.key.clone(),
        default: default?,
        kind,
    })
}

fn default_value(
    cx: &mut Context<'_>,
    node: &Node,
    kind: &DeclaredKind,
    name: &str,
) -> Option<Value> {
    let value = match (&node.raw, kind) {
        (Raw::Int(value), DeclaredKind::Int(least, most)) if (least..=most).contains(&value) => {
            Some(Value::Int(*value))
        }
        (Raw::Int(_) | Raw::Float(_), DeclaredKind::Float(least, most)) => {
            let value = cx.number(node, "default")?;
            (*least..=*most)
                .contains(&value)
                .then_some(Value::Float(value))
        }
        (Raw::Bool(value), DeclaredKind::Bool) => Some(Value::Bool(*value)),
        (Raw::Text(word), DeclaredKind::Choice(words)) if words.contains(word) => {
            Some(Value::from(word.as_str()))
        }
        _ => None,
    };
    if value.is_none() {
        let message = format!("the default of `{name}` is not one of its values");
        cx.report(Code::ParameterBounds, node.at, message);
    }
    value
}

fn number(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<f64> {
    cx.number(node, key)
}

fn whole(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<i64> {
    cx.integer(node, key, i64::MIN, i64::MAX)
}

/// Two values, the first not over the second.
fn pair<T: PartialOrd>(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    read: impl Fn(&mut Context<'_>, &Node, &str) -> Option<T>,
) -> Option<(T, T)> {
    let Raw::Array(items) = &node.raw else {
        cx.wrong_type(node, key, "a list of two numbers");
        return None;
    };
    let [low, high] = items.as_slice() else {
        cx.wrong_type(node, key, "a list of two numbers");
        return None;
    };
    let (low, high) = (read(cx, low, key)?, read(cx, high, key)?);
    if low > high {
        let message = format!("the bounds of `{key}` are empty");
        cx.report(Code::OutOfBounds, node.at, message)
            .label("the first is over the second");
        return None;
    }
    Some((low, high))
}

/// The dtype and the shape of a tensor.
pub(super) fn tensor(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    name: &str,
    scope: &Scope,
) -> Option<TensorDeclaration> {
    let (dtype, shape) = (section.take(cx, "dtype"), section.need(cx, "shape"));
    let dtype = dtype.and_then(|node| Some((cx.text(node, "dtype")?, node.at)));
    let dtype = match dtype {
        // The type of the case.
        None => None,
        Some((text, _)) if text == "dtype" => None,
        Some((text, at)) => {
            let found = Dtype::named(&text);
            if found.is_none() {
                let names = Dtype::ALL.iter().map(|dtype| dtype.name());
                let names: Vec<&str> = names.chain(["dtype"]).collect();
                cx.report(Code::UnknownDtype, at, format!("there is no type `{text}`"))
                    .help(suggest::among(&text, "types", &names));
            }
            Some(found?)
        }
    };
    let node = shape?;
    let items = node.items();
    let extent = |item: &Node| {
        let extent = expression(cx, item, "shape", scope, WHOLE)?;
        Some(extent.text().to_string())
    };
    let shape: Option<Vec<String>> = items.iter().map(extent).collect();
    Some(TensorDeclaration {
        name: name.to_owned(),
        dtype,
        shape: shape?,
    })
}

fn input(cx: &mut Context<'_>, entry: &Entry, infos: &[ParameterInfo]) -> Option<InputDeclaration> {
    let mut section = cx.section(&entry.value, &entry.key)?;
    let tensor = tensor(cx, &mut section, &entry.key, &problem_scope(infos));
    let stated = section.take(cx, "fill");
    let fill = match stated {
        Some(node) => fill(cx, node, &fill_scope(infos)),
        None => Some(Fill::Normal(0.0, 1.0)),
    };
    section.finish(cx);
    let (tensor, fill) = (tensor?, fill?);
    if let (Some(node), Some(dtype)) = (stated, tensor.dtype)
        && let Some(value) = beyond(&fill, dtype)
    {
        let message = format!("`fill` has {value}, which no {} is", dtype.name());
        cx.report(Code::OutOfBounds, node.at, message);
        return None;
    }
    Some(InputDeclaration { tensor, fill })
}

/// A number of a fill that elements of a type can't be. Those of an expression and of steps depend
/// on sizes; uniform ones are truncated.
fn beyond(fill: &Fill, dtype: Dtype) -> Option<f64> {
    let stated = match fill {
        Fill::Constant(value) => vec![*value],
        Fill::Choice(values) => values.clone(),
        Fill::Integers(low, high) => vec![*low as f64, *high as f64],
        Fill::Uniform(low, high) => vec![low.trunc(), high.trunc()],
        Fill::Sorted(inner) => return beyond(inner, dtype),
        Fill::Normal(..) | Fill::Arange(..) | Fill::Permutation | Fill::Expr(_) => vec![],
    };
    stated.into_iter().find(|&value| !dtype.holds(value))
}

fn fill(cx: &mut Context<'_>, node: &Node, scope: &Scope) -> Option<Fill> {
    match &node.raw {
        Raw::Text(word) if word == "normal" => return Some(Fill::Normal(0.0, 1.0)),
        Raw::Text(word) if word == "permutation" => return Some(Fill::Permutation),
        Raw::Text(word) => {
            cx.unknown_word(node.at, "fill", word, ["normal", "permutation"]);
            return None;
        }
        Raw::Int(_) | Raw::Float(_) => return Some(Fill::Constant(cx.number(node, "fill")?)),
        _ => {}
    }
    let section = cx.section(node, "fill")?;
    let [entry] = section.table.entries.as_slice() else {
        cx.report(Code::Declaration, node.at, "a fill has one form")
            .help(FORMS);
        return None;
    };
    let value = &entry.value;
    Some(match entry.key.as_str() {
        "normal" => {
            let (mean, deviation) = two(cx, value, "normal")?;
            if deviation < 0.0 {
                cx.report(Code::OutOfBounds, value.at, "`normal` is out of bounds")
                    .label("[mean, deviation]: a deviation can't be negative");
                return None;
            }
            Fill::Normal(mean, deviation)
        }
        "uniform" => {
            let (low, high) = pair(cx, value, "uniform", number)?;
            Fill::Uniform(low, high)
        }
        "integers" => {
            let (low, high) = pair(cx, value, "integers", whole)?;
            Fill::Integers(low, high)
        }
        "constant" => Fill::Constant(cx.number(value, "constant")?),
        "arange" => {
            let (first, step) = two(cx, value, "arange")?;
            Fill::Arange(first, step)
        }
        "choice" => Fill::Choice(numbers(cx, value, "choice")?),
        "expr" => Fill::Expr(
            expression(cx, value, "expr", scope, NUMBER)?
                .text()
                .to_string(),
        ),
        "sorted" => Fill::Sorted(Box::new(fill(cx, value, scope)?)),
        other => {
            let known = [
                "normal", "uniform", "integers", "constant", "arange", "choice", "expr", "sorted",
            ];
            cx.unknown_word(entry.key_at, "fill", other, known);
            return None;
        }
    })
}

/// Numbers of a list, at least one.
fn numbers(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<f64>> {
    let Raw::Array(items) = &node.raw else {
        cx.wrong_type(node, key, "a list of numbers");
        return None;
    };
    if items.is_empty() {
        let message = format!("`{key}` is an empty list");
        cx.report(Code::EmptyAxis, node.at, message);
        return None;
    }
    items.iter().map(|item| cx.number(item, key)).collect()
}

/// The forms of a fill, for people.
const FORMS: &str = "\"normal\"  \"permutation\"  { normal = [mean, deviation] }  \
     { uniform = [low, high] }  { integers = [low, high] }  { constant = 1 }  \
     { arange = [first, step] }  { choice = [1, 2] }  { expr = \"0.1 * (i % 10)\" }  \
     { sorted = FILL }";

/// Two numbers.
fn two(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<(f64, f64)> {
    match &node.raw {
        Raw::Array(items) if items.len() == 2 => {
            Some((cx.number(&items[0], key)?, cx.number(&items[1], key)?))
        }
        _ => {
            cx.wrong_type(node, key, "a list of two numbers");
            None
        }
    }
}

fn output(
    cx: &mut Context<'_>,
    entry: &Entry,
    infos: &[ParameterInfo],
    inputs: &[String],
) -> Option<OutputDeclaration> {
    let mut section = cx.section(&entry.value, &entry.key)?;
    if inputs.contains(&entry.key) {
        let message = format!("`{}` is an input, too", entry.key);
        cx.report(Code::Duplicate, entry.key_at, message)
            .help("an output in place of an input has a name of its own and `init = \"INPUT\"`");
        return None;
    }
    let tensor = tensor(cx, &mut section, &entry.key, &problem_scope(infos));
    let initial = match section.take(cx, "init") {
        None => Some(Initial::Poison),
        Some(node) => initial(cx, node, inputs),
    };
    section.finish(cx);
    Some(OutputDeclaration {
        tensor: tensor?,
        initial: initial?,
    })
}

fn initial(cx: &mut Context<'_>, node: &Node, inputs: &[String]) -> Option<Initial> {
    match &node.raw {
        Raw::Int(_) | Raw::Float(_) => Some(Initial::Constant(cx.number(node, "init")?)),
        Raw::Text(word) if word == "poison" => Some(Initial::Poison),
        Raw::Text(word) if inputs.contains(word) => Some(Initial::Input(word.clone())),
        Raw::Text(word) => {
            let known = inputs.iter().map(String::as_str).chain(["poison"]);
            cx.unknown_word(node.at, "init", word, known);
            None
        }
        _ => {
            cx.wrong_type(node, "init", "`poison`, a number or the name of an input");
            None
        }
    }
}

fn work(cx: &mut Context<'_>, node: &Node, problem: &mut ProblemDeclaration, scope: &Scope) {
    let Some(mut section) = cx.section(node, "work") else {
        return;
    };
    let mut amount = |cx: &mut Context<'_>, key| {
        let node = section.take(cx, key)?;
        let amount = expression(cx, node, key, scope, NUMBER)?;
        Some(amount.text().to_string())
    };
    problem.flops = amount(cx, "flops");
    problem.bytes = amount(cx, "bytes");
    section.finish(cx);
}

/// Values of a tuned name, in the forms that axes have.
pub(super) fn tuned(cx: &mut Context<'_>, entry: &Entry) -> Option<Vec<Value>> {
    let axis = axis::axis(cx, entry)?;
    let condition = axis.when.as_ref().map(|text| ("when", text.at));
    let condition = condition.or(axis.otherwise.as_ref().map(|value| ("else", value.at)));
    if let Some((key, at)) = condition {
        cx.report(Code::Conflict, at, format!("`{key}` is for axes of a grid"))
            .help("`require` says which combinations of tuned values are measured");
        return None;
    }
    // Names of configurations have these characters between values.
    let is_word = |value: &Value| {
        value
            .as_text()
            .is_none_or(|text| !text.contains([',', '=', '{', '}']))
    };
    if !axis.values.iter().all(|value| is_word(&value.value)) {
        let message = "tuned words can't have `,`, `=` or braces";
        cx.report(Code::Name, entry.value.at, message);
        return None;
    }
    let (mut values, mut seen) = (Vec::new(), BTreeSet::new());
    for Spanned { value, at } in axis.values {
        // All are of one kind: those that are shown alike have one configuration's name.
        if seen.insert(value.to_string()) {
            values.push(value);
        } else {
            let message = format!("`{}` has the value {value} twice", entry.key);
            cx.report(Code::Merged, at, message).label("measured once");
        }
    }
    Some(values)
}
