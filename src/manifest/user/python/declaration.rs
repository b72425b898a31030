//! A function in Python as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sweeper_program::Value;

use crate::files::python::{ArrayLibrary, PythonFile};
use sweeper_model::word::Word;

/// A function, its arguments and its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PythonDeclaration {
    /// Where it is executed; part of no identity, which has the interpreter that is found there.
    pub place: InterpreterPlace,
    /// The source.
    pub source: PythonSource,
    /// Name of the function in it, with dots.
    pub entry: String,
    /// The library whose arrays it takes.
    pub arrays: ArrayLibrary,
    /// Arguments by position.
    pub args: Vec<PythonArgument>,
    /// Arguments by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kwargs: Vec<(String, PythonArgument)>,
    /// Names of the outputs that it returns, in their order; `_` for a value that is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<String>,
    /// Options of `torch.compile`; none where it is called as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch_compile: Option<BTreeMap<String, Value>>,
    /// Gradients that PyTorch derives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autograd: Option<Autograd>,
    /// Its results may differ from run to run by rounding: sums in an order of chance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_fickle: bool,
    /// How a model of PyTorch is made, whose class `entry` is; none where `entry` is a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelDeclaration>,
}

/// A class of models in the form of KernelBench.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDeclaration {
    /// The source of the problem, which has `Model` and `get_init_inputs`; the function's own
    /// where none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problem: Vec<PythonFile>,
    /// Parameters of the problem that are constants of the sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<String>,
}

/// An interpreter, and where it looks for modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterpreterPlace {
    /// The program.
    pub exe: String,
    /// Folders of modules, after those of its own.
    pub folders: Vec<String>,
    /// The folder of the main file.
    pub folder: String,
}

/// Where a function is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonSource {
    /// A file, with the modules of the user that it imports.
    Files {
        /// The main file first.
        files: Vec<PythonFile>,
        /// How much of the main file is executed.
        load: Load,
        /// The name by which the main file is imported; none where it is executed as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        module: Option<String>,
    },
    /// A module of an installed package.
    Module(String),
    /// A file that is not here, which the manifest allows: why.
    Missing(String),
}

/// How much of a file is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// All of it.
    #[default]
    All,
    /// Its definitions without other statements: for files that measure themselves on import.
    Definitions,
}

impl Word for Load {
    const WORDS: &'static [(&'static str, Self)] =
        &[("all", Load::All), ("definitions", Load::Definitions)];
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonArgument {
    /// A tensor of the problem, under another shape where one is said.
    Tensor {
        /// Its name.
        name: String,
        /// Extents, as expressions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Vec<String>>,
    },
    /// The value of an expression.
    Expression(String),
    /// A value as it is.
    Literal(Value),
    /// A list.
    List(Vec<PythonArgument>),
}

/// Gradients that PyTorch derives from a call of the function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autograd {
    /// Outputs of the call that gradients are of.
    pub of: Vec<String>,
    /// Inputs that are the gradients at these outputs; none where each is 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incoming: Vec<String>,
    /// Inputs, and the outputs that are the gradients by them.
    pub by: Vec<(String, String)>,
}

impl PythonArgument {
    /// Whether it is a tensor of this name, or has one in it.
    pub fn is_of(&self, tensor: &str) -> bool {
        match self {
            PythonArgument::Tensor { name, .. } => name == tensor,
            PythonArgument::List(items) => items.iter().any(|item| item.is_of(tensor)),
            PythonArgument::Expression(_) | PythonArgument::Literal(_) => false,
        }
    }
}

impl PythonDeclaration {
    /// All arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &PythonArgument> {
        self.args
            .iter()
            .chain(self.kwargs.iter().map(|(_, held)| held))
    }

    /// Whether it gets a tensor, as an argument or as a gradient.
    pub fn passes(&self, tensor: &str) -> bool {
        let incoming = self.autograd.iter().flat_map(|held| &held.incoming);
        self.arguments().any(|held| held.is_of(tensor))
            || incoming.clone().any(|name| name == tensor)
    }

    /// This declaration without its paths, for its identity.
    pub fn without_place(&self) -> Self {
        let mut other = self.clone();
        other.place = InterpreterPlace::default();
        if let Some(model) = &mut other.model {
            model
                .problem
                .iter_mut()
                .for_each(|file| file.folder.clear());
        }
        match &mut other.source {
            PythonSource::Files { files, .. } => {
                files.iter_mut().for_each(|file| file.folder.clear());
            }
            PythonSource::Missing(reason) => reason.clear(),
            PythonSource::Module(_) => {}
        }
        other
    }

    /// Its source, for people.
    pub fn shown(&self) -> &str {
        match &self.source {
            PythonSource::Files { files, .. } => files.first().map_or("", |file| &file.name),
            PythonSource::Module(name) => name,
            PythonSource::Missing(_) => "a source that is not here",
        }
    }
}
