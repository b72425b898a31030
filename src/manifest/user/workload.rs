//! Declared workloads as the engine knows workloads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sweeper_program::workload::{
    BackendInfo, DefaultValue, ParameterError, ParameterInfo, ParameterKind, TensorInfo,
    WorkloadInfo,
};
use sweeper_program::{Dtype, Parameters, Phase, Problem, Value, Workload};
use sweeper_workloads::registry;

use super::backend::Backend;
use super::check::Reference;
use super::declaration::{
    BackendDeclaration, Declaration, DeclaredKind, DeclaredLanguage, Implementation,
    ParameterDeclaration, ProblemDeclaration, TensorDeclaration,
};
use super::definition::Definition;
use super::problem::{Backends, Extended, Own};
use super::scope::values;
use sweeper_model::identity::Digest;
use sweeper_model::tuning::family_of;

/// A workload that a manifest declares, or one of this build with backends that it adds.
pub struct Declared {
    info: &'static WorkloadInfo,
    base: Option<&'static dyn Workload>,
    definition: Option<Arc<Definition>>,
    backends: Arc<Backends>,
    json: String,
}

/// Declared workloads live as long as the process, as those of the build do, and each is made
/// once: a process reads few manifests, and a worker gets its declarations once.
static INTERNED: Mutex<BTreeMap<String, &'static Declared>> = Mutex::new(BTreeMap::new());

/// How a manifest names the file of a source that a candidate can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKey {
    /// `python`: a function.
    Python,
    /// `kernelbench`: a class of models.
    KernelBench,
    /// `c`: kernels for CPUs.
    C,
    /// `cuda`: kernels for GPUs.
    Cuda,
}

impl SourceKey {
    /// The key.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKey::Python => "python",
            SourceKey::KernelBench => "kernelbench",
            SourceKey::C => "c",
            SourceKey::Cuda => "cuda",
        }
    }

    /// What names of such files end with.
    pub const fn extension(self) -> &'static str {
        match self {
            SourceKey::Python | SourceKey::KernelBench => "py",
            SourceKey::C => "c",
            SourceKey::Cuda => "cu",
        }
    }
}

impl Declared {
    /// The workload of a declaration that was checked.
    ///
    /// # Errors
    /// A sentence: the declaration is from another version of the program.
    pub fn of(declaration: &Declaration) -> Result<&'static Declared, String> {
        let json = declaration.json();
        let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = interned.get(&json) {
            return Ok(held);
        }
        let made: &'static Declared =
            Box::leak(Box::new(Declared::new(declaration, json.clone())?));
        interned.insert(json, made);
        Ok(made)
    }

    /// The workload of a declaration's JSON.
    ///
    /// # Errors
    /// As [`Declared::of`].
    pub fn of_json(json: &str) -> Result<&'static Declared, String> {
        let declaration = serde_json::from_str(json);
        Declared::of(&declaration.map_err(|error| error.to_string())?)
    }

    /// The declaration, as [`Declared::of_json`] reads it.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The identity of the problem, beside its parameters; none for a workload of this build.
    pub fn definition(&self) -> Option<Digest> {
        self.definition.as_ref().map(|definition| definition.digest)
    }

    /// The identity of a declared backend's source, options and geometry.
    pub fn backend_digest(&self, backend: &str) -> Option<Digest> {
        Some(self.declaration_of(backend)?.digest())
    }

    /// The identity of a backend's implementation, which its points have; none if it is not the
    /// manifest's.
    pub fn implementation_digest(&self, backend: &str) -> Option<Digest> {
        Some(self.declaration_of(backend)?.implementation_digest())
    }

    /// Whether a backend's configurations race each other.
    pub fn is_raced(&self, backend: &str) -> bool {
        let declaration = self.declaration_of(backend);
        declaration.is_some_and(|declaration| declaration.race)
    }

    /// What the workload's tolerances are multiplied by for a backend's outputs.
    pub fn tolerance_factor(&self, backend: &str) -> f64 {
        let declaration = self.declaration_of(backend);
        let factor = declaration.and_then(|declaration| declaration.tolerance_factor);
        factor.unwrap_or(1.0)
    }

    /// The key of a backend's source, if a candidate can stand for it.
    pub fn source_key(&self, backend: &str) -> Option<SourceKey> {
        match &self.declaration_of(backend)?.implementation {
            Implementation::Python(function) if function.model.is_some() => {
                Some(SourceKey::KernelBench)
            }
            Implementation::Python(_) => Some(SourceKey::Python),
            Implementation::Kernels(kernels) => Some(match kernels.language {
                DeclaredLanguage::C => SourceKey::C,
                DeclaredLanguage::Cuda => SourceKey::Cuda,
            }),
            Implementation::Command(_) => None,
        }
    }

    fn declaration_of(&self, backend: &str) -> Option<&BackendDeclaration> {
        let family = family_of(backend);
        let mut backends = self.backends.all.iter();
        let found = backends.find(|backend| backend.declaration.name == family)?;
        Some(&found.declaration)
    }

    /// How outputs of a declared problem are judged, for people: keys of `check`, with meanings.
    pub fn check_in_words(&self) -> Vec<(&'static str, String)> {
        let Some(problem) = self.definition.as_ref().map(|held| &held.declaration) else {
            return Vec::new();
        };
        // Each backend of a problem without tensors judges by itself.
        if problem.outputs.is_empty() {
            return Vec::new();
        }
        let judged = match &problem.judge {
            Some(judge) => ("judge", judge.shown()),
            None => ("tolerance", problem.tolerance.shown()),
        };
        let mut words = vec![("reference", problem.reference.shown()), judged];
        if !problem.products.is_f32() {
            words.push(("products", "factors in tf32".to_owned()));
        }
        if problem.requires_own_kernels {
            words.push(("require", "own kernels".to_owned()));
        }
        words
    }

    /// The backend that computes the right outputs, if one does.
    pub fn peer(&self) -> Option<&str> {
        let reference = &self.definition.as_ref()?.declaration.reference;
        reference.peer().map(|peer| &*peer.name)
    }

    /// The interpreters that execute its functions in Python.
    pub fn interpreters(&self) -> impl Iterator<Item = &str> {
        let problems = self.definition.iter();
        let inputs = problems
            .clone()
            .filter_map(|held| held.declaration.inputs_from.as_ref());
        let reference = problems
            .clone()
            .filter_map(|held| match &held.declaration.reference {
                Reference::Python(function) => Some(&**function),
                _ => None,
            });
        let judge = problems.filter_map(|held| held.declaration.judge.as_ref());
        let judge = judge.map(|judge| &judge.function);
        let backends = self.backends.all.iter();
        let backends = backends.filter_map(|held| match &held.declaration.implementation {
            Implementation::Python(function) => Some(function),
            _ => None,
        });
        let functions = inputs.chain(reference).chain(judge).chain(backends);
        functions.map(|function| &*function.place.exe)
    }

    fn new(declaration: &Declaration, json: String) -> Result<Self, String> {
        let base = match &declaration.problem {
            Some(_) => None,
            None => Some(registry::workload(&declaration.workload).ok_or_else(|| {
                format!(
                    "there is no workload `{}` in this build",
                    declaration.workload
                )
            })?),
        };
        let parameters: &'static [ParameterInfo] = match (&declaration.problem, base) {
            (Some(problem), _) => self::parameters(problem),
            (None, Some(base)) => base.info().parameters,
            (None, None) => &[],
        };
        let problem = declaration.problem.as_ref();
        let files = problem.map_or(&[][..], |problem| &problem.files);
        let backends = declaration.backends.iter();
        let backends: Vec<Backend> = backends
            .map(|backend| Backend::new(backend.clone(), parameters, files))
            .collect::<Result<_, _>>()?;
        let infos = backend_infos(base, &backends);
        let mut configurations = HashMap::new();
        let own = backends.iter().map(|backend| backend.configurations.len());
        let own = &infos[infos.len() - own.sum::<usize>()..];
        let places = backends.iter().enumerate().flat_map(|(backend, it)| {
            (0..it.configurations.len()).map(move |configuration| (backend, configuration))
        });
        for (info, place) in own.iter().zip(places) {
            configurations.insert(info.name, place);
        }
        let info = match (&declaration.problem, base) {
            (Some(problem), _) => declared_info(&declaration.workload, problem, parameters, infos),
            (None, Some(base)) => WorkloadInfo {
                backends: infos,
                ..*base.info()
            },
            (None, None) => return Err("a declaration without a workload".to_owned()),
        };
        let definition = declaration.problem.clone();
        let definition = definition.map(|problem| Definition::new(problem, parameters));
        Ok(Declared {
            info: Box::leak(Box::new(info)),
            base,
            definition: definition.transpose()?.map(Arc::new),
            backends: Arc::new(Backends {
                all: backends,
                configurations,
            }),
            json,
        })
    }
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Declared {}", self.info.name)
    }
}

/// Backends of this build, then those of the user, each configuration by itself.
fn backend_infos(
    base: Option<&'static dyn Workload>,
    backends: &[Backend],
) -> &'static [BackendInfo] {
    let built_in = base.map_or(&[][..], |base| base.info().backends);
    let declared = backends.iter().flat_map(|backend| {
        let about = leaked(&backend.declaration.described());
        let names = backend.configurations.iter();
        names.map(move |(_, name)| BackendInfo {
            name: leaked(name),
            aliases: &[],
            about,
            by_default: true,
        })
    });
    let all: Vec<BackendInfo> = built_in.iter().copied().chain(declared).collect();
    all.leak()
}

fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// The parameters of a declared problem.
pub(crate) fn parameters(problem: &ProblemDeclaration) -> &'static [ParameterInfo] {
    problem
        .parameters
        .iter()
        .map(parameter)
        .collect::<Vec<_>>()
        .leak()
}

fn parameter(declared: &ParameterDeclaration) -> ParameterInfo {
    let words = |words: &[String]| -> &'static [(&'static str, &'static [&'static str])] {
        let words = words.iter().map(|word| (leaked(word), &[][..]));
        words.collect::<Vec<_>>().leak()
    };
    ParameterInfo {
        name: leaked(&declared.name),
        kind: match &declared.kind {
            DeclaredKind::Int(min, max) => ParameterKind::Int {
                min: *min,
                max: *max,
            },
            DeclaredKind::Float(min, max) => ParameterKind::Float {
                min: *min,
                max: *max,
            },
            DeclaredKind::Bool => ParameterKind::Bool,
            DeclaredKind::Choice(choices) => ParameterKind::Choice(words(choices)),
        },
        default: declared.default.as_ref().map(|value| match value {
            Value::Bool(value) => DefaultValue::Bool(*value),
            Value::Int(value) => DefaultValue::Int(*value),
            Value::Float(value) => DefaultValue::Float(*value),
            Value::Text(value) => DefaultValue::Text(leaked(value)),
        }),
        about: "a parameter of the manifest",
    }
}

/// Types that a case may choose where a tensor says none.
const CASE_DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F64, Dtype::F16, Dtype::Bf16];

fn declared_info(
    name: &str,
    problem: &ProblemDeclaration,
    parameters: &'static [ParameterInfo],
    backends: &'static [BackendInfo],
) -> WorkloadInfo {
    let inputs = problem.inputs.iter().map(|input| &input.tensor);
    let outputs = problem.outputs.iter().map(|output| &output.tensor);
    let first = outputs.clone().chain(inputs.clone()).next();
    let fixed = first.and_then(|tensor| tensor.dtype);
    let is_open = inputs
        .clone()
        .chain(outputs.clone())
        .any(|tensor| tensor.dtype.is_none());
    WorkloadInfo {
        name: leaked(name),
        about: match problem.about.as_str() {
            "" => "declared by the manifest",
            about => leaked(about),
        },
        formula: formula(problem),
        parameters,
        backends,
        phases: &[Phase::Forward],
        dtypes: match fixed {
            Some(dtype) if !is_open => vec![dtype].leak(),
            _ => CASE_DTYPES,
        },
        inputs: inputs.map(tensor_info).collect::<Vec<_>>().leak(),
        outputs: outputs.map(tensor_info).collect::<Vec<_>>().leak(),
        buckets: &[],
        presentation: None,
        published: None,
        flags: &[],
    }
}

fn formula(problem: &ProblemDeclaration) -> &'static str {
    let Reference::Expr(expressions) = &problem.reference else {
        return "";
    };
    let lines = expressions
        .iter()
        .map(|(output, text)| format!("{output} = {text}"));
    leaked(&lines.collect::<Vec<_>>().join("\n"))
}

fn tensor_info(tensor: &TensorDeclaration) -> TensorInfo {
    TensorInfo {
        name: leaked(&tensor.name),
        shape: leaked(&format!("({})", tensor.shape.join(", "))),
        dtype: tensor.dtype.unwrap_or(Dtype::F32),
        about: match tensor.dtype {
            Some(_) => "",
            None => "of the case's type",
        },
    }
}

impl Workload for Declared {
    fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    fn problem(
        &self,
        parameters: &Parameters,
        dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let parameters = self.info.resolve(parameters)?;
        let values = values(self.info.parameters, &parameters);
        if let Some(base) = self.base {
            return Ok(Box::new(Extended {
                backends: Arc::clone(&self.backends),
                inner: base.problem(&parameters, dtype)?,
                values,
                dtype,
            }));
        }
        let together = |reason| ParameterError::Together { reason };
        let Some(definition) = &self.definition else {
            return Err(together("a declaration without a problem".to_owned()));
        };
        let sizes = definition.sizes(values, dtype).map_err(together)?;
        Ok(Box::new(Own {
            backends: Arc::clone(&self.backends),
            definition: Arc::clone(definition),
            sizes,
            dtype,
        }))
    }
}
