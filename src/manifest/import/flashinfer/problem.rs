//! A definition as `[workload.X]`, its backends and its case.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value as Json;
use sweeper_program::Dtype;

use super::cases::Lines;
use super::inputs::{self, Stored};
use super::schema::{Axis, Content, Definition, PROBABILITIES, SAMPLING, Tensor, Workload};
use super::sources;
use crate::grammar::expression::objection;
use sweeper_model::expression::Tree;
use sweeper_model::toml_text::{in_comment, string};

/// Greatest value of an axis that varies.
const MOST: i64 = i32::MAX as i64;

/// The distance from the reference, absolute and relative, up to which FlashInfer-Bench takes an
/// element for right.
const TOLERANCE: &str = "1e-2";

/// The parameter that says which workload's files inputs are in.
const LINE: &str = "line";

/// A definition that can be imported, and its workloads.
pub(super) struct Problem<'d> {
    pub(super) definition: &'d Definition,
    /// The name of its workload.
    pub(super) name: String,
    /// Values of its axes that vary, of its numbers, and of the parameter that tells inputs in
    /// files apart.
    lines: Lines,
    /// The name of that parameter.
    line: String,
    /// Inputs in files, for each value of it.
    stored: Vec<Stored>,
}

impl<'d> Problem<'d> {
    /// A definition without workloads.
    ///
    /// # Errors
    /// A sentence: why it can't be imported.
    pub(super) fn of(definition: &'d Definition) -> Result<Self, String> {
        if let Some(reason) = refusal(definition) {
            return Err(format!("the definition `{}`: {reason}", definition.name));
        }
        let mut problem = Problem {
            definition,
            name: String::new(),
            lines: Lines::default(),
            line: match definition.names().any(|name| name == LINE) {
                true => format!("workload_{LINE}"),
                false => LINE.to_owned(),
            },
            stored: Vec::new(),
        };
        let numbers = problem.numbers().map(|(name, _)| name);
        let names = problem.varying().chain(numbers);
        let names: Vec<String> = names
            .chain([problem.line.as_str()])
            .map(str::to_owned)
            .collect();
        problem.lines.names = names;
        Ok(problem)
    }

    /// Axes that vary.
    fn varying(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        let axes = self.definition.axes.0.iter();
        let axes = axes.filter(|(_, axis)| matches!(axis, Axis::Var {}));
        axes.map(|(name, _)| name.as_str())
    }

    /// Inputs that are numbers.
    fn numbers(&self) -> impl Iterator<Item = (&'d str, &'d Tensor)> + use<'d> {
        let inputs = self.definition.inputs.0.iter();
        let inputs = inputs.filter(|(_, input)| input.shape.is_none());
        inputs.map(|(name, input)| (name.as_str(), input))
    }

    /// Adds a workload; `locate` finds the files of inputs.
    ///
    /// # Errors
    /// A sentence: why it can't be imported.
    pub(super) fn add(
        &mut self,
        workload: &Workload,
        locate: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        let mut stored = Stored::new();
        for (name, content) in &workload.inputs {
            let input = self.definition.inputs.get(name);
            let Some(input) = input else {
                return Err(format!("the definition has no input `{name}`"));
            };
            match content {
                Content::Safetensors { path, tensor_key } => {
                    let path = locate(path);
                    let path =
                        path.map_err(|why| format!("the file of its input `{name}`: {why}"))?;
                    stored.insert(name.clone(), (path, tensor_key.clone()));
                }
                Content::Other => {
                    return Err(format!("the contents of `{name}` are of no known kind"));
                }
                Content::Scalar { .. } if input.shape.is_some() => {
                    return Err(format!("the input `{name}` is a tensor, and no number"));
                }
                Content::Scalar { .. } | Content::Random => {}
            }
        }
        let mut row = Vec::new();
        for axis in self.varying() {
            match workload.axes.get(axis) {
                Some(extent @ 1..=MOST) => row.push(extent.to_string()),
                Some(extent) => return Err(format!("the axis `{axis}` is {extent}")),
                None => return Err(format!("the axis `{axis}` has no value")),
            }
        }
        for (name, input) in self.numbers() {
            let Some(Content::Scalar { value }) = workload.inputs.get(name) else {
                return Err(format!("the number `{name}` has no value, and is drawn"));
            };
            let Some(value) = number(value, input) else {
                return Err(format!("`{name}` is {value}, which is no {}", input.dtype));
            };
            row.push(value);
        }
        let known = self.stored.iter().position(|held| *held == stored);
        let line = known.unwrap_or(self.stored.len());
        if known.is_none() {
            self.stored.push(stored);
        }
        row.push(line.to_string());
        self.lines.add(row);
        Ok(())
    }

    /// The source that makes its inputs, where fills can't.
    pub(super) fn inputs_source(&mut self) -> Option<String> {
        let definition = self.definition;
        let is_sampling = definition.op_type == SAMPLING;
        let needs_sum = is_sampling && definition.inputs.get(PROBABILITIES).is_some();
        if self.stored.iter().all(Stored::is_empty) {
            self.stored.clear();
            self.lines.remove(&self.line);
            if !needs_sum {
                return None;
            }
        }
        if self.stored.is_empty() {
            self.stored.push(Stored::new());
        }
        Some(inputs::source(definition, &self.line, &self.stored))
    }

    /// Writes `[workload.X]`, whose reference is `function` of the source at `path`, and whose
    /// inputs another source makes.
    pub(super) fn write_workload(
        &mut self,
        out: &mut String,
        (path, function): (&str, &str),
        inputs_from: Option<&str>,
    ) {
        let definition = self.definition;
        let _ = write!(out, "\n[workload.{}]\n", self.name);
        if let Some(about) = &definition.description {
            let _ = writeln!(out, "about = {}", string(&about.replace('\n', " ")));
        }
        for (name, axis) in &definition.axes.0 {
            let values = match axis {
                Axis::Const { value } => format!("int = [{value}, {value}], default = {value}"),
                Axis::Var {} => format!("int = [1, {MOST}]"),
            };
            let _ = writeln!(out, "params.{name} = {{ {values} }}");
        }
        let numbers: Vec<(&str, &Tensor)> = self.numbers().collect();
        for (name, input) in numbers {
            let default = self.lines.take_constant(name);
            let default = default.map_or_else(String::new, |value| format!(", default = {value}"));
            let _ = writeln!(out, "params.{name} = {{ {}{default} }}", values_of(input));
        }
        if inputs_from.is_some() {
            // Where no file tells workloads apart, it has one value.
            let last = self.stored.len() - 1;
            let default = match last {
                0 => ", default = 0",
                _ => "",
            };
            let line = self.line.clone();
            if last == 0 {
                self.lines.remove(&line);
            }
            let _ = writeln!(out, "params.{line} = {{ int = [0, {last}]{default} }}");
        }
        for (name, input) in definition
            .inputs
            .0
            .iter()
            .filter(|(_, input)| input.shape.is_some())
        {
            let (fill, doubt) = match inputs_from {
                Some(_) => ("", ""),
                None => fill(input),
            };
            let _ = writeln!(
                out,
                "inputs.{name} = {{ {}{fill} }}{doubt}",
                declared(input)
            );
        }
        if let Some(path) = inputs_from {
            let function = format!("{path}:{}", inputs::GENERATE);
            let _ = writeln!(out, "inputs_from = {}", string(&function));
        }
        for (name, output) in &definition.outputs.0 {
            let _ = writeln!(out, "outputs.{name} = {{ {} }}", declared(output));
        }
        let (_, comments) = self.requirements();
        out.push_str(&comments);
        self.write_check(out, path, function);
    }

    /// Writes how outputs are judged.
    fn write_check(&self, out: &mut String, path: &str, function: &str) {
        let definition = self.definition;
        if definition.op_type == SAMPLING {
            out.push_str(
                "check = { reference = \"none\" }   # ? results are drawn: FlashInfer-Bench \
                 compares frequencies, here a `judge` can say which are possible\n",
            );
            return;
        }
        // Without `args` a reference gets all tensors, and no numbers.
        let args = match self.numbers().next() {
            Some(_) => format!(", args = [{}]", names(&definition.inputs.0).join(", ")),
            None => String::new(),
        };
        let path = string(path);
        // What is called takes arrays of NumPy, and makes tensors of the definition's types.
        let arrays = match sources::uses_torch(definition) {
            true => ", arrays = \"numpy\"",
            false => "",
        };
        let reference = format!("{{ python = {path}, entry = \"{function}\"{arrays}{args} }}");
        let _ = writeln!(out, "check.reference = {reference}");
        if let Some(tolerance) = self.tolerance() {
            let _ = writeln!(
                out,
                "check.tolerance = {tolerance}   # ? in FlashInfer-Bench the absolute and the \
                 relative error of an element, here a relative L2 norm"
            );
        }
        if ["\"cuda", "'cuda", ".cuda("]
            .iter()
            .any(|word| definition.reference.contains(word))
        {
            out.push_str(
                "# ? the reference names a GPU: as `check.reference` it is called on a CPU\n",
            );
        }
    }

    /// The tolerance of outputs of real numbers, as TOML; others have to be equal.
    fn tolerance(&self) -> Option<String> {
        let outputs = self.definition.outputs.0.iter();
        let (real, whole): (Vec<_>, Vec<_>) =
            outputs.partition(|(_, output)| dtype(output).is_some_and(Dtype::is_real));
        if real.is_empty() {
            return None;
        }
        if whole.is_empty() {
            return Some(TOLERANCE.to_owned());
        }
        let norms = real.iter().map(|(name, _)| format!("{name} = {TOLERANCE}"));
        Some(format!("{{ {} }}", norms.collect::<Vec<_>>().join(", ")))
    }

    /// The keys of a backend that is `function` of the source at `path`. It gets outputs as
    /// arguments, or returns them; it gets them, with a doubt, where that is not said.
    pub(super) fn backend(&self, path: &str, function: &str, gets_outputs: Option<bool>) -> String {
        let mut args = names(&self.definition.inputs.0);
        let outputs = names(&self.definition.outputs.0);
        let mut out = format!(
            "workload = \"{}\"\npython   = {}\nentry    = {}\narrays   = \"{}\"\n",
            self.name,
            string(path),
            string(function),
            match sources::uses_torch(self.definition) {
                true => "torch",
                false => "numpy",
            }
        );
        if gets_outputs != Some(false) {
            args.extend(outputs);
            let doubt = match gets_outputs {
                Some(_) => "",
                None => {
                    "   # ? the file does not say whether outputs are arguments: by default they are"
                }
            };
            let _ = writeln!(out, "args     = [{}]{doubt}", args.join(", "));
        } else {
            let _ = writeln!(out, "args     = [{}]", args.join(", "));
            let _ = writeln!(out, "returns  = [{}]", outputs.join(", "));
        }
        let (required, _) = self.requirements();
        if !required.is_empty() {
            let required = required.into_iter().map(string);
            let required: Vec<String> = required.collect();
            let _ = writeln!(out, "require  = [{}]", required.join(", "));
        }
        if self.definition.op_type == SAMPLING {
            out.push_str("deterministic = false\n");
        }
        out
    }

    /// Writes the case.
    pub(super) fn write_case(&self, out: &mut String) {
        let name = &self.name;
        let _ = write!(out, "\n[case.{name}]\nworkload = \"{name}\"\n");
        if self.lines.rows.is_empty() {
            for axis in &self.lines.names {
                let _ = writeln!(
                    out,
                    "grid.{axis} = 1   # ? no workload was imported that has a value"
                );
            }
        } else {
            self.lines.write(out, name);
        }
    }

    /// The constraints that are conditions of axes, which every backend has, and a comment for each
    /// of the others.
    fn requirements(&self) -> (Vec<&'d str>, String) {
        let (mut kept, mut comments) = (Vec::new(), String::new());
        for constraint in self.definition.constraints.iter().flatten() {
            match self.condition(constraint) {
                Ok(()) => kept.push(constraint.as_str()),
                Err(why) => {
                    let why = in_comment(&why);
                    let _ = writeln!(comments, "# ? left out, {why}: {}", string(constraint));
                }
            }
        }
        (kept, comments)
    }

    /// Whether a constraint is a condition of axes.
    fn condition(&self, constraint: &str) -> Result<(), String> {
        let tree = Tree::parse(constraint).map_err(|error| error.message)?;
        let mut unknown = None;
        tree.names(&mut |name, _| {
            if self.definition.axes.get(name).is_none() {
                unknown = Some(name.to_owned());
            }
        });
        unknown.map_or(Ok(()), |name| Err(format!("`{name}` is not an axis")))
    }
}

/// Why a definition can't be imported, if so.
fn refusal(definition: &Definition) -> Option<String> {
    let has_run = |line: &str| {
        let rest = line.strip_prefix("def ").map(str::trim_start);
        let rest = rest.and_then(|rest| rest.strip_prefix(sources::RUN));
        rest.is_some_and(|rest| rest.trim_start().starts_with('('))
    };
    if !definition.reference.lines().any(has_run) {
        return Some("its reference has no function `run`".to_owned());
    }
    let mut names = BTreeSet::new();
    for name in definition.names() {
        if let Some(why) = objection(name) {
            return Some(format!("`{name}` can't be a name here: {why}"));
        }
        if !names.insert(name) {
            return Some(format!("`{name}` is the name of two things"));
        }
    }
    for (name, tensor) in definition.inputs.0.iter().chain(&definition.outputs.0) {
        if dtype(tensor).is_none() {
            let dtype = &tensor.dtype;
            return Some(format!(
                "`{name}` is {dtype}, a type that is not known here"
            ));
        }
        let mut axes = tensor.shape.iter().flatten();
        if let Some(axis) = axes.find(|axis| definition.axes.get(axis).is_none()) {
            return Some(format!(
                "`{name}` has an axis `{axis}`, which it does not declare"
            ));
        }
    }
    let mut outputs = definition.outputs.0.iter();
    match outputs.find(|(_, output)| output.shape.is_none()) {
        Some((name, _)) => Some(format!("its output `{name}` is a number, and no tensor")),
        None if definition.outputs.0.is_empty() => Some("it has no outputs".to_owned()),
        None => None,
    }
}

/// Names, as TOML.
fn names(tensors: &[(String, Tensor)]) -> Vec<String> {
    tensors.iter().map(|(name, _)| string(name)).collect()
}

/// The type of a tensor's elements, or of a number.
fn dtype(tensor: &Tensor) -> Option<Dtype> {
    Some(match tensor.dtype.as_str() {
        "float32" => Dtype::F32,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "int64" => Dtype::I64,
        "int32" => Dtype::I32,
        "int16" => Dtype::I16,
        "int8" => Dtype::I8,
        "bool" => Dtype::Bool,
        _ => return None,
    })
}

/// The type and the shape of a tensor, as keys.
fn declared(tensor: &Tensor) -> String {
    let axes = tensor.shape.iter().flatten().map(|axis| string(axis));
    let axes: Vec<String> = axes.collect();
    let dtype = dtype(tensor).map_or("", Dtype::name);
    format!("dtype = \"{dtype}\", shape = [{}]", axes.join(", "))
}

/// The key of a random fill where it is not about normal, and a doubt about it.
fn fill(input: &Tensor) -> (&'static str, &'static str) {
    let dtype = dtype(input);
    let doubt = "   # ? whole numbers by chance, as in FlashInfer-Bench: are they indices?";
    match dtype {
        Some(Dtype::Bool) => (", fill = { integers = [0, 1] }", ""),
        Some(Dtype::I8) => (", fill = { integers = [-128, 127] }", doubt),
        Some(Dtype::I16 | Dtype::I32 | Dtype::I64) => {
            (", fill = { integers = [-1024, 1023] }", doubt)
        }
        _ => ("", ""),
    }
}

/// The values of a number, as keys of a parameter.
fn values_of(input: &Tensor) -> &'static str {
    match dtype(input) {
        Some(Dtype::Bool) => "bool = true",
        Some(dtype) if dtype.is_real() => "float = [-3.4e38, 3.4e38]",
        _ => "int = [-9223372036854775808, 9223372036854775807]",
    }
}

/// A number of a type, as TOML.
fn number(value: &Json, input: &Tensor) -> Option<String> {
    match dtype(input)? {
        Dtype::Bool => value.as_bool().map(|value| value.to_string()),
        dtype if dtype.is_real() => value.as_f64().map(|value| format!("{value:?}")),
        _ => value.as_i64().map(|value| value.to_string()),
    }
}
