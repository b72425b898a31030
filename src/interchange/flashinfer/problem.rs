//! A definition as `[workload.X]`, its backends and its case.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value as Json;
use sweeper_program::Dtype;

use super::cases::Lines;
use super::schema::{Axis, Content, Definition, Tensor, Workload};
use super::sources;
use crate::expression::Tree;
use crate::interchange::names::quoted;
use crate::manifest::objection;

/// Greatest value of an axis that varies.
const MOST: i64 = i32::MAX as i64;

/// The distance from the reference, absolute and relative, up to which FlashInfer-Bench takes an
/// element for right.
const TOLERANCE: &str = "1e-2";

/// The category of definitions whose results are drawn.
const SAMPLING: &str = "sampling";

/// A definition that can be imported, and its workloads.
pub(super) struct Problem<'d> {
    pub(super) definition: &'d Definition,
    /// The name of its workload.
    pub(super) name: String,
    /// Values of its axes that vary and of its numbers.
    lines: Lines,
}

impl<'d> Problem<'d> {
    /// A definition without workloads.
    ///
    /// # Errors
    /// A sentence: why it can't be imported.
    pub(super) fn of(definition: &'d Definition) -> Result<Self, String> {
        let name = &definition.name;
        let refused = |reason: String| Err(format!("the definition `{name}`: {reason}"));
        let has_run = |line: &str| {
            let rest = line.strip_prefix("def ").map(str::trim_start);
            let rest = rest.and_then(|rest| rest.strip_prefix(sources::RUN));
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        };
        if !definition.reference.lines().any(has_run) {
            return refused("its reference has no function `run`".to_owned());
        }
        let mut names = BTreeSet::new();
        let tensors = || definition.inputs.0.iter().chain(&definition.outputs.0);
        let all = definition.axes.0.iter().map(|(name, _)| name);
        for name in all.chain(tensors().map(|(name, _)| name)) {
            if let Some(why) = objection(name) {
                return refused(format!("`{name}` can't be a name here: {why}"));
            }
            if !names.insert(name) {
                return refused(format!("`{name}` is the name of two things"));
            }
        }
        for (name, tensor) in tensors() {
            if dtype(tensor).is_none() {
                return refused(format!(
                    "`{name}` is {}, a type that is not known here",
                    tensor.dtype
                ));
            }
            let mut axes = tensor.shape.iter().flatten();
            if let Some(axis) = axes.find(|axis| definition.axes.get(axis).is_none()) {
                return refused(format!(
                    "`{name}` has an axis `{axis}`, which it does not declare"
                ));
            }
        }
        let mut outputs = definition.outputs.0.iter();
        match outputs.find(|(_, output)| output.shape.is_none()) {
            Some((name, _)) => {
                return refused(format!("its output `{name}` is a number, and no tensor"));
            }
            None if definition.outputs.0.is_empty() => {
                return refused("it has no outputs".to_owned());
            }
            None => {}
        }
        let mut problem = Problem {
            definition,
            name: String::new(),
            lines: Lines::default(),
        };
        let numbers = problem.numbers().map(|(name, _)| name);
        let names: Vec<String> = problem
            .varying()
            .chain(numbers)
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

    /// Adds a workload.
    ///
    /// # Errors
    /// A sentence: why it can't be imported.
    pub(super) fn add(&mut self, workload: &Workload) -> Result<(), String> {
        for (name, content) in &workload.inputs {
            let input = self.definition.inputs.get(name);
            let Some(input) = input else {
                return Err(format!("the definition has no input `{name}`"));
            };
            match content {
                Content::Safetensors { .. } => {
                    return Err(format!("the input `{name}` is in a file of safetensors"));
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
        self.lines.add(row);
        Ok(())
    }

    /// Writes `[workload.X]`, whose reference is `function` of the source at `path`.
    pub(super) fn write_workload(&mut self, out: &mut String, path: &str, function: &str) {
        let definition = self.definition;
        let _ = write!(out, "\n[workload.{}]\n", self.name);
        if let Some(about) = &definition.description {
            let _ = writeln!(out, "about = {}", quoted(&about.replace('\n', " ")));
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
        for (name, input) in definition
            .inputs
            .0
            .iter()
            .filter(|(_, input)| input.shape.is_some())
        {
            let (fill, doubt) = fill(definition, name, input);
            let _ = writeln!(
                out,
                "inputs.{name} = {{ {}{fill} }}{doubt}",
                declared(input)
            );
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
        let path = quoted(path);
        let reference = format!("{{ python = {path}, entry = \"{function}\"{args} }}");
        let _ = writeln!(out, "check.reference = {reference}");
        if let Some(tolerance) = self.tolerance() {
            let _ = writeln!(
                out,
                "check.tolerance = {tolerance}   # ? in FlashInfer-Bench the absolute and the \
                 relative error of an element, here a relative L2 norm"
            );
        }
        if ["cuda", "device="]
            .iter()
            .any(|word| definition.reference.contains(word))
        {
            out.push_str(
                "# ? the reference names a device: as `check.reference` it is called on a CPU\n",
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
            quoted(path),
            quoted(function),
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
            let required = required.into_iter().map(quoted);
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
                    let _ = writeln!(comments, "# ? left out, {why}: {}", quoted(constraint));
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
        unknown.map_or(Ok(()), |name| Err(format!("`{name}` is no axis")))
    }
}

/// Names, as TOML.
fn names(tensors: &[(String, Tensor)]) -> Vec<String> {
    tensors.iter().map(|(name, _)| quoted(name)).collect()
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
    let axes = tensor.shape.iter().flatten().map(|axis| quoted(axis));
    let axes: Vec<String> = axes.collect();
    let dtype = dtype(tensor).map_or("", Dtype::name);
    format!("dtype = \"{dtype}\", shape = [{}]", axes.join(", "))
}

/// The key of a random fill where it is not about normal, and a doubt about it.
fn fill(definition: &Definition, name: &str, input: &Tensor) -> (&'static str, &'static str) {
    let dtype = dtype(input);
    if definition.op_type == SAMPLING && name == "probs" {
        return (
            ", fill = { uniform = [0, 1] }",
            "   # ? rows of probabilities in FlashInfer-Bench, here without a sum of 1",
        );
    }
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
