//! Arguments of a T1 file as inputs, outputs and arguments of a manifest.

use std::fmt::Write;

use serde_json::Value as Json;
use sweeper_program::Dtype;

use super::file::{Argument, dtype, whole};
use crate::import::python::Names;
use sweeper_model::expression::Tree;
use sweeper_model::toml_text::{key, string};

/// A manifest that is being written.
pub(super) struct Draft {
    pub(super) names: Names,
    pub(super) inputs: String,
    pub(super) outputs: String,
    pub(super) args: Vec<String>,
    /// Variables in constant memory, and the inputs that are copied there.
    pub(super) constants: Vec<String>,
}

impl Draft {
    pub(super) fn argument(&mut self, argument: &Argument) -> Result<(), String> {
        let dtype = dtype(&argument.kind)
            .ok_or_else(|| format!("the type `{}` is not known", argument.kind))?;
        match argument.memory_type.as_str() {
            "Scalar" => {
                let value = argument.fill_value.as_ref().unwrap_or(&Json::Null);
                let value = number(value, dtype).ok_or("a scalar without a value")?;
                self.args.push(format!("{{ {dtype} = {value} }}"));
                Ok(())
            }
            "Vector" if argument.mem_type.as_deref() == Some("Constant") => {
                self.vector(argument, "ReadOnly", dtype)?;
                // No argument: a variable of this name.
                self.args.pop();
                let (variable, input) = (key(&argument.name), name_of(&argument.name));
                self.constants.push(format!("{variable} = \"{input}\""));
                Ok(())
            }
            "Vector" => {
                let access = argument.access_type.as_deref().unwrap_or("ReadWrite");
                self.vector(argument, access, dtype)
            }
            other => Err(format!("memory of type {other} can't be imported")),
        }
    }

    fn vector(&mut self, argument: &Argument, access: &str, dtype: Dtype) -> Result<(), String> {
        let name = name_of(&argument.name);
        let size = match &argument.size {
            Some(Json::String(text)) => whole(text, &self.names)?,
            Some(size) => size.as_i64().ok_or("a size that is not a whole number")?,
            None => return Err("it has no size".to_owned()),
        };
        let head = format!("{{ dtype = \"{dtype}\", shape = [{size}]");
        let (fill, doubt) = fill(argument, dtype)?;
        let is_output = argument
            .output
            .as_ref()
            .is_some_and(|it| !matches!(it, Json::Bool(false)) && it.as_i64() != Some(0));
        match access {
            "ReadOnly" => {
                let doubt = match is_output {
                    true => "   # ? the file calls it an output, too",
                    false => doubt,
                };
                let _ = writeln!(self.inputs, "inputs.{name} = {head}{fill} }}{doubt}");
            }
            "WriteOnly" => {
                let _ = writeln!(self.outputs, "outputs.{name} = {head} }}");
            }
            _ if argument.fill_type.as_deref() == Some("Constant") => {
                let value = fill.trim_start_matches(", fill = ");
                let _ = writeln!(self.outputs, "outputs.{name} = {head}, init = {value} }}");
            }
            _ => {
                let _ = writeln!(self.inputs, "inputs.{name}_0 = {head}{fill} }}{doubt}");
                let _ = writeln!(
                    self.outputs,
                    "outputs.{name} = {head}, init = \"{name}_0\" }}   # ? read and written"
                );
            }
        }
        self.args.push(format!("\"{name}\""));
        Ok(())
    }
}

/// The key of a fill, and a doubt about it.
fn fill(argument: &Argument, dtype: Dtype) -> Result<(String, &'static str), String> {
    match argument.fill_type.as_deref() {
        Some("Constant") => {
            let value = argument
                .fill_value
                .as_ref()
                .and_then(|value| number(value, dtype));
            Ok((
                format!(", fill = {}", value.ok_or("a fill without a value")?),
                "",
            ))
        }
        Some("Generator") => {
            let expression = argument.data_source.as_deref().unwrap_or("i");
            Tree::parse(expression).map_err(|error| {
                format!(
                    "the generator `{expression}` is not an expression: {}",
                    error.message
                )
            })?;
            Ok((format!(", fill = {{ expr = {} }}", string(expression)), ""))
        }
        None | Some("Random") => Ok((
            String::new(),
            "   # ? Random: normal in Kernel Tuner and here, uniform(0, FillValue) in KTT",
        )),
        Some(other) => Err(format!("a fill from `{other}` can't be imported")),
    }
}

/// A number of a type, as TOML.
fn number(value: &Json, dtype: Dtype) -> Option<String> {
    let value = value.as_f64()?;
    Some(match dtype.is_real() {
        true => format!("{value:?}"),
        false => format!("{}", value as i64),
    })
}

/// A name that a manifest can have.
pub(super) fn name_of(name: &str) -> String {
    let plain = |c: char| {
        if c == '_' || c.is_ascii_alphanumeric() {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(plain).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}
