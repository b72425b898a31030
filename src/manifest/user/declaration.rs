//! A workload and backends that a manifest declares, as data that a worker process gets.
//!
//! Expressions are texts that were checked when the manifest was read. The JSON form is the
//! identity of a declaration: keys that are not given are left out of it, so that a key that is
//! added to the format changes no identity.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sweeper_program::{Dtype, Language, Phase, Value};

use super::check::{JudgeDeclaration, Products, Reference, Tolerance};
use super::command_declaration::CommandDeclaration;
use super::python::declaration::PythonDeclaration;
use crate::files::includes::DeclaredFile;
use sweeper_model::identity::Digest;

/// A workload as a manifest extends or declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// Name of the workload.
    pub workload: String,
    /// The problem; none where the workload is one of this build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemDeclaration>,
    /// Backends that the manifest adds.
    pub backends: Vec<BackendDeclaration>,
}

/// A problem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProblemDeclaration {
    /// One line for people; part of no identity.
    #[serde(skip)]
    pub about: String,
    /// The parameters, in the order of the manifest.
    pub parameters: Vec<ParameterDeclaration>,
    /// Inputs, in the order of the manifest.
    pub inputs: Vec<InputDeclaration>,
    /// The function that makes the inputs, in place of fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_from: Option<PythonDeclaration>,
    /// Outputs, in the order of the manifest.
    pub outputs: Vec<OutputDeclaration>,
    /// Files that commands read, in the order of the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileDeclaration>,
    /// The model of `kernelbench`; part of the identity of the reference and of the backends that
    /// are made of it.
    #[serde(skip)]
    pub model: Option<PythonDeclaration>,
    /// The right answer.
    pub reference: Reference,
    /// How far from it an output may be.
    pub tolerance: Tolerance,
    /// What factors of products may be rounded to.
    #[serde(default, skip_serializing_if = "Products::is_f32")]
    pub products: Products,
    /// The function that judges outputs in place of a tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeDeclaration>,
    /// Functions that call kernels of libraries on a GPU are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requires_own_kernels: bool,
    /// Useful floating-point operations, as an expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<String>,
    /// Bytes that any implementation must move, as an expression; each input and each output once
    /// where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

/// A parameter of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterDeclaration {
    /// Its name.
    pub name: String,
    /// The values that it takes.
    pub kind: DeclaredKind,
    /// Its value where a case gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// The values that a declared parameter takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredKind {
    /// A whole number within bounds, both inclusive.
    Int(i64, i64),
    /// A real number within bounds, both inclusive.
    Float(f64, f64),
    /// True or false.
    Bool,
    /// One of some words.
    Choice(Vec<String>),
}

/// A tensor of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorDeclaration {
    /// Its name.
    pub name: String,
    /// Type of its elements; that of the case where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Extents as expressions of the parameters, outermost first.
    pub shape: Vec<String>,
}

/// A tensor that is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputDeclaration {
    /// The tensor.
    #[serde(flatten)]
    pub tensor: TensorDeclaration,
    /// Its elements.
    pub fill: Fill,
}

/// A tensor that is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputDeclaration {
    /// The tensor.
    #[serde(flatten)]
    pub tensor: TensorDeclaration,
    /// Its contents before each run.
    pub initial: Initial,
}

/// A file that commands read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileDeclaration {
    /// Its name: `corpus` of `files.corpus`.
    pub name: String,
    /// Where it is; part of no identity.
    pub path: String,
    /// SHA-256 of its contents when the manifest was read.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

/// The elements of an input, all keyed by the problem and the tensor's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// About normal, with this mean and standard deviation.
    Normal(f64, f64),
    /// Uniform from the first to the second, which it does not reach.
    Uniform(f64, f64),
    /// Whole numbers from the first to the second, both inclusive.
    Integers(i64, i64),
    /// One value.
    Constant(f64),
    /// The first, and a step more for each element.
    Arange(f64, f64),
    /// The numbers below the tensor's size, each once, in an order of chance.
    Permutation,
    /// One of these, each as likely.
    Choice(Vec<f64>),
    /// An expression of `i`, the flat index, and of the parameters.
    Expr(String),
    /// Another fill, ascending along the last axis.
    Sorted(Box<Fill>),
}

/// The contents of an output before each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initial {
    /// All bits set, so that elements that are never written show.
    Poison,
    /// One value, set before each run, untimed.
    Constant(f64),
    /// A copy of this input, made before each run, untimed.
    Input(String),
}

/// How it is computed: an implementation of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendDeclaration {
    /// Its name.
    pub name: String,
    /// One line for people; part of no identity.
    #[serde(skip)]
    pub about: String,
    /// The implementation.
    pub implementation: Implementation,
    /// The phases that it computes; the forward pass where none are said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Inputs that it overwrites: it gets a copy, made before each run, untimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutates: Vec<String>,
    /// Values that change the implementation and not the problem: name and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tune: Vec<(String, Vec<Value>)>,
    /// How many configurations are measured; all where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u32>,
    /// Conditions of the configurations that are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
    /// A configuration that is clearly slower than the best takes no more samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub race: bool,
    /// Nobody trusts it: it is measured in a sandbox, by a clock that it can't reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_untrusted: bool,
    /// It may call kernels of libraries although its problem requires own ones: a baseline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_call_libraries: bool,
    /// How much less exact than the workload's tolerances its outputs may be; by nothing where none
    /// is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_factor: Option<f64>,
}

/// The implementation of a user's backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Implementation {
    /// Functions of a source that this program compiles.
    Kernels(KernelsDeclaration),
    /// A program that is started for each run.
    Command(CommandDeclaration),
    /// A function in Python.
    Python(PythonDeclaration),
}

/// Functions of a user's source, and how they are launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelsDeclaration {
    /// The language of the source.
    pub language: DeclaredLanguage,
    /// The source, and every file that it includes, by the names under which it does.
    pub files: Vec<DeclaredFile>,
    /// Launches, one after the other.
    pub launches: Vec<LaunchDeclaration>,
    /// Memory of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scratch: Vec<ScratchDeclaration>,
    /// Variables in `__constant__` memory, and the inputs that are copied there before each run,
    /// untimed. CUDA alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<(String, String)>,
    /// Macros with expressions of parameters and tuned values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defines: Vec<(String, String)>,
    /// Options of the compiler, after those of every kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Libraries to link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
}

/// The language of a user's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclaredLanguage {
    /// CUDA C++, for NVRTC.
    Cuda,
    /// C, for the system's compiler.
    C,
}

impl DeclaredLanguage {
    /// The language of its kernels.
    pub fn of_kernels(self) -> Language {
        match self {
            DeclaredLanguage::Cuda => Language::Cuda,
            DeclaredLanguage::C => Language::C,
        }
    }
}

/// A launch of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchDeclaration {
    /// The function: a name, or for CUDA an instance of a template such as
    /// `reduce<{T}, {block_size}>`, in which names in braces are values.
    pub entry: String,
    /// Arguments in their order.
    pub args: Vec<ArgDeclaration>,
    /// Blocks, one to three expressions. CUDA alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<String>,
    /// Threads of a block, one to three expressions. CUDA alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block: Vec<String>,
    /// Dynamic shared memory of a block in bytes, an expression. CUDA alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Blocks of a cluster along x, an expression. CUDA alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgDeclaration {
    /// The address of a tensor, from an element on.
    Tensor {
        /// Its name.
        name: String,
        /// The first element, an expression; 0 where none is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<String>,
    },
    /// A number of this type.
    Scalar(Dtype, String),
}

/// Memory of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScratchDeclaration {
    /// The tensor, whose shape may depend on tuned values.
    #[serde(flatten)]
    pub tensor: TensorDeclaration,
    /// Set to this value before each run, untimed; left as it is where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<f64>,
}

/// A condition of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    /// What must hold, over parameters, tuned values and the device's limits.
    pub that: String,
    /// Why a configuration is left out otherwise.
    pub reason: String,
}

impl Declaration {
    /// The canonical text, which the worker reads.
    pub fn json(&self) -> String {
        // Maps have text keys, and numbers are finite: this can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl ProblemDeclaration {
    /// The identity of the problem, beside its parameters and the seed.
    pub fn digest(&self) -> Digest {
        let mut portable = self.clone();
        for file in &mut portable.files {
            file.path.clear();
        }
        if let Some(function) = &mut portable.inputs_from {
            *function = function.without_place();
        }
        portable.reference.clear_places();
        if let Some(judge) = &mut portable.judge {
            judge.function = judge.function.without_place();
        }
        digest(&portable)
    }
}

impl BackendDeclaration {
    /// Whether it computes a phase.
    pub fn has(&self, phase: Phase) -> bool {
        match self.phases.as_slice() {
            [] => phase == Phase::Forward,
            phases => phases.contains(&phase),
        }
    }

    /// Whether it refers to a tensor of the problem, in an argument or for a copy.
    pub fn uses(&self, tensor: &str) -> bool {
        let is_argument = match &self.implementation {
            Implementation::Kernels(kernels) => kernels.passes(tensor),
            Implementation::Command(_) => false,
            Implementation::Python(function) => function.passes(tensor),
        };
        is_argument || self.mutates.iter().any(|name| name == tensor)
    }

    /// The identity of the implementation alone: which of its configurations are measured is in the
    /// names of these, and how samples are taken is part of no point.
    pub fn implementation_digest(&self) -> Digest {
        let alone = BackendDeclaration {
            tune: Vec::new(),
            sample: None,
            race: false,
            is_untrusted: false,
            ..self.clone()
        };
        alone.digest()
    }

    /// The identity of the implementation and its configurations: source, options, geometry, tuned
    /// values.
    pub fn digest(&self) -> Digest {
        let mut portable = self.clone();
        if let Implementation::Python(function) = &mut portable.implementation {
            *function = function.without_place();
        }
        if let Implementation::Command(command) = &mut portable.implementation {
            *command = command.without_place();
        }
        digest(&portable)
    }
}

impl Implementation {
    /// Its functions and files, for people.
    pub fn shown(&self) -> String {
        match self {
            Implementation::Kernels(kernels) => {
                let file = kernels.files.first().map_or("", |file| &file.name);
                let entries = kernels.launches.iter().map(|launch| &*launch.entry);
                let entries: Vec<&str> = entries.collect();
                format!("`{}` of {file}", entries.join("`, `"))
            }
            Implementation::Command(command) => format!("`{}`", command.command.join(" ")),
            Implementation::Python(function) => {
                format!("`{}` of {}", function.entry, function.shown())
            }
        }
    }
}

impl KernelsDeclaration {
    /// Whether a launch gets the address of a tensor, or a variable its elements.
    fn passes(&self, tensor: &str) -> bool {
        if self.constants.iter().any(|(_, input)| input == tensor) {
            return true;
        }
        let mut args = self.launches.iter().flat_map(|launch| &launch.args);
        args.any(|arg| matches!(arg, ArgDeclaration::Tensor { name, .. } if name == tensor))
    }
}

fn digest(part: &impl Serialize) -> Digest {
    let text = serde_json::to_string(part).unwrap_or_default();
    Digest::from_bytes(Sha256::digest(text).into())
}
