//! T1 files as they are read: what is used of them, and values that are expressions of Python.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;
use sweeper_program::Dtype;

use crate::import::python::{Names, Object, evaluate};

/// A T1 file, as far as it is used. Writers differ in what they leave out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct File {
    pub(super) configuration_space: Space,
    pub(super) kernel_specification: Specification,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Space {
    pub(super) tuning_parameters: Vec<Tuned>,
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Tuned {
    pub(super) name: String,
    pub(super) values: Json,
    pub(super) default: Option<Json>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Condition {
    pub(super) expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Specification {
    pub(super) language: String,
    pub(super) kernel_name: String,
    pub(super) kernel_file: String,
    pub(super) global_size_type: Option<String>,
    pub(super) global_size: Option<BTreeMap<String, Json>>,
    #[serde(default)]
    pub(super) local_size: BTreeMap<String, Json>,
    pub(super) problem_size: Option<Json>,
    #[serde(default)]
    pub(super) grid_div_x: Vec<String>,
    #[serde(default)]
    pub(super) grid_div_y: Vec<String>,
    #[serde(default)]
    pub(super) grid_div_z: Vec<String>,
    pub(super) shared_memory: Option<Json>,
    #[serde(default)]
    pub(super) compiler_options: Vec<String>,
    pub(super) arguments: Vec<Argument>,
    #[serde(default)]
    pub(super) reference_arguments: Vec<Reference>,
    #[serde(default)]
    pub(super) reference_kernels: Vec<Json>,
}

/// What an argument is to be, which is not an expression of inputs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Reference {
    pub(super) target_name: Option<String>,
    pub(super) data_source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Argument {
    pub(super) name: String,
    #[serde(rename = "Type")]
    pub(super) kind: String,
    pub(super) memory_type: String,
    pub(super) access_type: Option<String>,
    pub(super) mem_type: Option<String>,
    pub(super) fill_type: Option<String>,
    pub(super) fill_value: Option<Json>,
    pub(super) data_source: Option<String>,
    pub(super) size: Option<Json>,
    pub(super) output: Option<Json>,
}

/// Values of tuned names, the default first.
pub(super) fn tuned(space: &Space) -> Result<Vec<(String, Vec<Object>)>, String> {
    let values = |tuned: &Tuned| {
        let values = match &tuned.values {
            Json::String(text) => evaluate(text, &Names::new())?,
            other => object(other),
        };
        let Object::List(mut values) = values else {
            return Err("its values are not a list".to_owned());
        };
        if let Some(default) = tuned.default.as_ref().map(object)
            && let Some(at) = values.iter().position(|value| *value == default)
        {
            values[..=at].rotate_right(1);
        }
        Ok(values)
    };
    let parameters = space.tuning_parameters.iter();
    parameters
        .map(|tuned| {
            let values = values(tuned).map_err(|why| format!("`{}`: {why}", tuned.name))?;
            Ok((tuned.name.clone(), values))
        })
        .collect()
}

/// JSON as an object of Python.
fn object(json: &Json) -> Object {
    match json {
        Json::Bool(value) => Object::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Object::Int(value),
            None => Object::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Object::Text(text.clone()),
        Json::Array(items) => Object::List(items.iter().map(object).collect()),
        Json::Null | Json::Object(_) => Object::Text(String::new()),
    }
}

/// Names that sizes may use: the problem's size, and the values of each tuned name.
pub(super) fn names(
    kernel: &Specification,
    tuned: &[(String, Vec<Object>)],
) -> Result<Names, String> {
    let mut names: Names = tuned
        .iter()
        .map(|(name, values)| (name.clone(), Object::List(values.clone())))
        .collect();
    if let Some(size) = &kernel.problem_size {
        let size = problem_size(size)?.into_iter().map(Object::Int).collect();
        names.insert("ProblemSize".to_owned(), Object::List(size));
    }
    Ok(names)
}

pub(super) fn problem_size(size: &Json) -> Result<Vec<i64>, String> {
    let items = match size {
        Json::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    let whole = |item: &Json| match item {
        Json::String(text) => whole(text, &Names::new()),
        other => other
            .as_i64()
            .ok_or_else(|| format!("the problem size {other} is not a number")),
    };
    items.iter().map(whole).collect()
}

pub(super) fn whole(text: &str, names: &Names) -> Result<i64, String> {
    match evaluate(text, names)? {
        Object::Int(value) => Ok(value),
        other => Err(format!("`{text}` is {other:?}, and no whole number")),
    }
}

/// A type of a file.
pub(super) fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "half" => Dtype::F16,
        "bool" => Dtype::Bool,
        "int8" => Dtype::I8,
        "int16" => Dtype::I16,
        "int32" | "int" => Dtype::I32,
        "int64" => Dtype::I64,
        "uint8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" | "uint" => Dtype::U32,
        "uint64" => Dtype::U64,
        _ => return None,
    })
}
