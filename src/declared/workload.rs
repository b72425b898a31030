//! Declared workloads as the engine knows workloads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sweeper_program::check::{Check, Trial};
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::{
    AnswerSource, BackendInfo, DefaultValue, DeviceOracle, ParameterError, ParameterInfo,
    ParameterKind, TensorInfo, TensorSpec, Work, WorkloadInfo,
};
use sweeper_program::{
    CanonicalShape, Dtype, Foreign, Parameters, Phase, Problem, Program, Refusal, Target, Tensor,
    Tensors, Value, Workload,
};
use sweeper_workloads::registry;

use super::backend::Backend;
use super::check::Reference;
use super::declaration::{
    BackendDeclaration, Declaration, DeclaredKind, Implementation, ParameterDeclaration,
    ProblemDeclaration, TensorDeclaration,
};
use super::definition::{Definition, Sizes};
use super::program::ProblemTensors;
use super::scope::values;
use super::trial::trials;
use crate::identity::Digest;
use crate::tuning::family_of;

/// A workload that a manifest declares, or one of this build with backends that it adds.
pub struct Declared {
    info: &'static WorkloadInfo,
    base: Option<&'static dyn Workload>,
    definition: Option<Arc<Definition>>,
    backends: Arc<Backends>,
    json: String,
}

/// The backends that a manifest declares for a workload.
struct Backends {
    all: Vec<Backend>,
    /// Backend and configuration, by the configuration's name.
    configurations: HashMap<&'static str, (usize, usize)>,
}

/// Declared workloads live as long as the process, as those of the build do, and each is made
/// once: a process reads few manifests, and a worker gets its declarations once.
static INTERNED: Mutex<BTreeMap<String, &'static Declared>> = Mutex::new(BTreeMap::new());

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
        vec![("reference", problem.reference.shown()), judged]
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

impl Backends {
    /// The program of a configuration, if it is one of these.
    fn program(
        &self,
        backend: &str,
        tensors: &ProblemTensors<'_>,
        target: &Target,
    ) -> Option<Result<Program, Refusal>> {
        let &(at, configuration) = self.configurations.get(backend)?;
        let backend = &self.all[at];
        let (tuned, _) = &backend.configurations[configuration];
        Some(backend.program(tuned, tensors, target))
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

/// A declared problem.
struct Own {
    backends: Arc<Backends>,
    definition: Arc<Definition>,
    sizes: Sizes,
    dtype: Dtype,
}

impl Problem for Own {
    fn inputs(&self) -> Vec<TensorSpec> {
        self.sizes.inputs.clone()
    }

    fn outputs(&self, _phase: Phase) -> Vec<TensorSpec> {
        self.sizes.outputs.clone()
    }

    fn generate(&self, key: &InputKey) -> Tensors {
        self.definition.generate(&self.sizes, key)
    }

    fn foreign_inputs(&self, seed: u32) -> Option<Foreign> {
        self.definition
            .foreign_inputs(&self.sizes, self.dtype, seed)
    }

    fn validate(&self, _inputs: &Tensors) -> Result<(), String> {
        Ok(())
    }

    fn oracle(&self, inputs: &Tensors, _phase: Phase) -> Tensors {
        self.definition.oracle(&self.sizes, inputs)
    }

    fn foreign_oracle(&self, dtype: Dtype) -> Option<Foreign> {
        self.definition.foreign_oracle(&self.sizes, dtype)
    }

    fn answer_source(&self) -> Option<AnswerSource> {
        self.definition.answer_source(&self.sizes)
    }

    fn judge(&self) -> Option<Foreign> {
        self.definition.judge(&self.sizes)
    }

    fn trials(&self, inputs: &Tensors, expected: Option<&Tensors>) -> Vec<Trial> {
        let declared = &self.definition.declaration.outputs;
        trials(&self.sizes.outputs, declared, inputs, expected)
    }

    fn oracle_operations(&self, _phase: Phase, threads: usize) -> f64 {
        self.definition.oracle_operations(&self.sizes) / threads.max(1) as f64
    }

    fn reduced(
        &self,
        _phase: Phase,
        _operations: f64,
        _threads: usize,
    ) -> Option<Box<dyn Problem>> {
        None
    }

    fn check(
        &self,
        inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        _phase: Phase,
    ) -> Check {
        self.definition
            .check(&self.sizes, inputs, outputs, expected)
    }

    fn work(&self, _phase: Phase) -> Work {
        self.sizes.work
    }

    fn program(
        &self,
        backend: &str,
        phase: Phase,
        _canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal> {
        if let Some(reason) = self.definition.objection(&self.sizes) {
            return Err(Refusal::Invalid(reason));
        }
        let outputs = &self.definition.declaration.outputs;
        let initial = outputs
            .iter()
            .map(|output| (&*output.tensor.name, &output.initial));
        let tensors = ProblemTensors {
            inputs: &self.sizes.inputs,
            outputs: &self.sizes.outputs,
            initial: initial.collect(),
            parameters: &self.sizes.values,
            dtype: self.dtype,
            phase,
        };
        let program = self.backends.program(backend, &tensors, target);
        program.unwrap_or_else(|| Err(unknown(backend)))
    }
}

fn unknown(backend: &str) -> Refusal {
    Refusal::Unavailable(format!("there is no backend `{backend}`"))
}

/// A problem of a workload of this build, which backends of the user compute, too.
struct Extended {
    backends: Arc<Backends>,
    inner: Box<dyn Problem>,
    values: Vec<Value>,
    dtype: Dtype,
}

impl Problem for Extended {
    fn inputs(&self) -> Vec<TensorSpec> {
        self.inner.inputs()
    }

    fn outputs(&self, phase: Phase) -> Vec<TensorSpec> {
        self.inner.outputs(phase)
    }

    fn generate(&self, key: &InputKey) -> Tensors {
        self.inner.generate(key)
    }

    fn absent_input(&self, spec: &TensorSpec) -> Option<Tensor> {
        self.inner.absent_input(spec)
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        self.inner.validate(inputs)
    }

    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        self.inner.oracle(inputs, phase)
    }

    fn oracle_operations(&self, phase: Phase, threads: usize) -> f64 {
        self.inner.oracle_operations(phase, threads)
    }

    fn oracle_bytes(&self, phase: Phase) -> u64 {
        self.inner.oracle_bytes(phase)
    }

    /// None: sizes of a smaller problem are not parameters of the manifest, which expressions of
    /// the user's backends need.
    fn reduced(
        &self,
        _phase: Phase,
        _operations: f64,
        _threads: usize,
    ) -> Option<Box<dyn Problem>> {
        None
    }

    fn device_oracle(&self, phase: Phase, target: &Target) -> Option<DeviceOracle> {
        self.inner.device_oracle(phase, target)
    }

    fn smaller(&self, phase: Phase, operations: f64, threads: usize) -> Option<Box<dyn Problem>> {
        self.inner.smaller(phase, operations, threads)
    }

    fn check(
        &self,
        inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        phase: Phase,
    ) -> Check {
        self.inner.check(inputs, outputs, expected, phase)
    }

    fn work(&self, phase: Phase) -> Work {
        self.inner.work(phase)
    }

    fn program(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal> {
        let (inputs, outputs) = (self.inner.inputs(), self.inner.outputs(phase));
        let tensors = ProblemTensors {
            inputs: &inputs,
            outputs: &outputs,
            initial: BTreeMap::new(),
            parameters: &self.values,
            dtype: self.dtype,
            phase,
        };
        match self.backends.program(backend, &tensors, target) {
            Some(program) => program,
            None => self.inner.program(backend, phase, canonical, target),
        }
    }

    fn explain(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Option<String> {
        self.inner.explain(backend, phase, canonical, target)
    }
}
