//! The files of FlashInfer-Bench: definitions, solutions, and lines of workloads and results.
//!
//! Keys that are not needed here are not read, and those that older files lack may be missing.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;

/// The category of definitions whose results are drawn.
pub(super) const SAMPLING: &str = "sampling";

/// The input of such a definition whose rows have the sum 1.
pub(super) const PROBABILITIES: &str = "probs";

/// A problem.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Definition {
    pub(super) name: String,
    #[serde(default, alias = "type")]
    pub(super) op_type: String,
    pub(super) description: Option<String>,
    pub(super) axes: Ordered<Axis>,
    pub(super) inputs: Ordered<Tensor>,
    pub(super) outputs: Ordered<Tensor>,
    /// A text in Python with a function `run`.
    pub(super) reference: String,
    pub(super) constraints: Option<Vec<String>>,
}

impl Definition {
    /// The names of axes, inputs and outputs.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let axes = self.axes.0.iter().map(|(name, _)| name.as_str());
        let tensors = self.inputs.0.iter().chain(&self.outputs.0);
        axes.chain(tensors.map(|(name, _)| name.as_str()))
    }
}

/// An extent of tensors.
#[derive(Debug, serde::Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Axis {
    Const { value: i64 },
    Var {},
}

/// A tensor, or a number where it has no shape.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Tensor {
    /// Names of axes.
    pub(super) shape: Option<Vec<String>>,
    pub(super) dtype: String,
}

/// An implementation.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Solution {
    pub(super) name: String,
    pub(super) definition: String,
    pub(super) author: Option<String>,
    pub(super) description: Option<String>,
    pub(super) spec: BuildSpec,
    pub(super) sources: Vec<SourceFile>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct BuildSpec {
    pub(super) language: String,
    /// `FILE::FUNCTION`.
    pub(super) entry_point: String,
    /// Whether outputs are arguments, after the inputs; true where it is not said.
    pub(super) destination_passing_style: Option<bool>,
    pub(super) binding: Option<String>,
}

/// A file of a solution.
#[derive(Debug, serde::Deserialize)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) content: String,
}

/// A line of a file of workloads or of results.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Trace {
    pub(super) definition: String,
    pub(super) workload: Workload,
    /// The solution that was measured; none in a file of workloads.
    pub(super) solution: Option<String>,
}

/// Values of axes and contents of inputs.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Workload {
    pub(super) axes: BTreeMap<String, i64>,
    #[serde(default)]
    pub(super) inputs: BTreeMap<String, Content>,
}

/// The contents of an input.
#[derive(Debug, serde::Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Content {
    Random,
    Scalar {
        value: Json,
    },
    Safetensors {
        path: String,
        tensor_key: String,
    },
    #[serde(other)]
    Other,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) definitions: Vec<Definition>,
    pub(super) solutions: Vec<Solution>,
    /// Numbers of lines, and lines.
    pub(super) workloads: Vec<(usize, Trace)>,
    /// How many results of solutions there are.
    pub(super) results: usize,
    /// Lines that can't be read.
    pub(super) unread: Vec<String>,
}

impl Contents {
    /// Reads a file: one document, or one a line. `stem` is its name without the ending: that of
    /// the definition where a line of a workload names none.
    pub(super) fn read(text: &str, stem: &str) -> Self {
        let mut found = Contents::default();
        if serde_json::from_str::<Json>(text).is_ok() {
            if let Err(reason) = found.add(text, 1, stem) {
                found.unread.push(reason);
            }
            return found;
        }
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            if let Err(reason) = found.add(line, at + 1, stem) {
                found.unread.push(format!("line {}: {reason}", at + 1));
            }
        }
        found
    }

    fn add(&mut self, text: &str, line: usize, stem: &str) -> Result<(), String> {
        let document: Json = typed(text)?;
        let has = |keys: [&str; 2]| keys.iter().all(|key| document.get(key).is_some());
        if has(["axes", "reference"]) {
            self.definitions.push(typed(text)?);
        } else if has(["spec", "sources"]) {
            self.solutions.push(typed(text)?);
        } else if has(["definition", "workload"]) {
            let trace: Trace = typed(text)?;
            // Older files of workloads have an empty name there.
            match trace.solution.as_deref() {
                None | Some("") => self.workloads.push((line, trace)),
                Some(_) => self.results += 1,
            }
        } else if has(["axes", "inputs"]) {
            let trace = Trace {
                definition: stem.to_owned(),
                workload: typed(text)?,
                solution: None,
            };
            self.workloads.push((line, trace));
        } else {
            return Err("no definition, workload or solution".to_owned());
        }
        Ok(())
    }
}

fn typed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The entries of an object, in their order: that of arguments.
#[derive(Debug)]
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<T> Ordered<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let found = self.0.iter().find(|(held, _)| held == name);
        found.map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Reads entries one by one.
struct Entries<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
    type Value = Ordered<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
        let mut found = Vec::new();
        while let Some(entry) = map.next_entry()? {
            found.push(entry);
        }
        Ok(Ordered(found))
    }
}
