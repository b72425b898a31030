//! Problems that a backend of the user computes: a declared one, and one of this build.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sweeper_program::check::{Check, Trial};
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::{AnswerSource, DeviceOracle, TensorSpec, Work};
use sweeper_program::{
    CanonicalShape, Dtype, Foreign, Phase, Problem, Program, Refusal, Target, Tensor, Tensors,
    Value,
};

use super::backend::Backend;
use super::check::{PeerDeclaration, Products};
use super::definition::{Definition, Sizes};
use super::program::ProblemTensors;
use super::real_types::RealTypes;
use super::trial::trials;

/// The backends that a manifest declares for a workload.
pub(super) struct Backends {
    pub(super) all: Vec<Backend>,
    /// Backend and configuration, by the configuration's name.
    pub(super) configurations: HashMap<&'static str, (usize, usize)>,
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

/// A declared problem.
pub(super) struct Own {
    pub(super) backends: Arc<Backends>,
    pub(super) definition: Arc<Definition>,
    pub(super) sizes: Sizes,
    pub(super) dtype: Dtype,
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

    fn showing(&self, key: &InputKey) -> Option<Tensors> {
        self.definition.showing(&self.sizes, key)
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

    fn foreign_oracle(&self) -> Option<Foreign> {
        self.definition.foreign_oracle(&self.sizes)
    }

    fn answer_source(&self) -> Option<AnswerSource> {
        self.definition.answer_source(&self.sizes)
    }

    fn judge(&self) -> Option<Foreign> {
        self.definition.judge(&self.sizes)
    }

    fn requires_own_kernels(&self, backend: &str) -> bool {
        let known = self.backends.configurations.get(backend);
        let may_call = known.is_some_and(|&(at, _)| {
            let backend = &self.backends.all[at];
            backend.declaration.may_call_libraries
        });
        self.definition.declaration.requires_own_kernels && !may_call
    }

    fn trials(&self, inputs: &Tensors, expected: Option<&Tensors>) -> Vec<Trial> {
        let declared = &self.definition.declaration.outputs;
        trials(&self.sizes.outputs, declared, inputs, expected)
    }

    fn oracle_operations(&self, _phase: Phase, threads: usize) -> f64 {
        self.definition.oracle_operations(&self.sizes) / threads.max(1) as f64
    }

    fn check(
        &self,
        _inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        _phase: Phase,
    ) -> Check {
        self.definition.check(&self.sizes, outputs, expected)
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
        let (backend, reals) = PeerDeclaration::parse_program_name(backend);
        let typed = |specs: &[TensorSpec]| -> Vec<TensorSpec> {
            let typed = |spec: &TensorSpec| TensorSpec {
                dtype: reals.dtype(spec.dtype),
                ..spec.clone()
            };
            specs.iter().map(typed).collect()
        };
        let (inputs, outputs) = (typed(&self.sizes.inputs), typed(&self.sizes.outputs));
        let declared = self.definition.declaration.outputs.iter();
        let initial = declared.map(|output| (&*output.tensor.name, &output.initial));
        let tensors = ProblemTensors {
            inputs: &inputs,
            outputs: &outputs,
            initial: initial.collect(),
            parameters: &self.sizes.values,
            dtype: reals.dtype(self.dtype),
            products: self.definition.declaration.products,
            phase,
            reals,
        };
        let program = self.backends.program(backend, &tensors, target);
        program.unwrap_or_else(|| Err(unknown(backend)))
    }
}

fn unknown(backend: &str) -> Refusal {
    Refusal::Unavailable(format!("there is no backend `{backend}`"))
}

/// A problem of a workload of this build, which backends of the user compute, too.
pub(super) struct Extended {
    pub(super) backends: Arc<Backends>,
    pub(super) inner: Box<dyn Problem>,
    pub(super) values: Vec<Value>,
    pub(super) dtype: Dtype,
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

    fn showing(&self, key: &InputKey) -> Option<Tensors> {
        self.inner.showing(key)
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
    fn device_oracle(&self, phase: Phase, target: &Target) -> Option<DeviceOracle> {
        self.inner.device_oracle(phase, target)
    }

    fn add_spreads(&self, answers: &mut Tensors, smaller: (&dyn Problem, &Tensors)) {
        self.inner.add_spreads(answers, smaller);
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
            products: Products::F32,
            phase,
            reals: RealTypes::AsWritten,
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
