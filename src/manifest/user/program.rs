//! The program of a declared backend for a problem.

use std::collections::BTreeMap;

use sweeper_program::workload::{Refusal, TensorSpec};
use sweeper_program::{
    Arg, Binding, BufferId, Dtype, Foreign, Geometry, Index, Kernel, KernelId, Language, Phase,
    Program, Role, Runner, Scalar, Step, Target, Value, View,
};

use super::backend::{Backend, Compiled};
use super::check::Products;
use super::command::Command;
use super::declaration::{DeclaredLanguage, Initial};
use super::kernels::{Kernels, Launch, LaunchArg, address_of};
use super::python::Function;
use super::python::declaration::PythonSource;
use super::real_types::RealTypes;
use super::scope::{limits, size};
use crate::files::python::ArrayLibrary;
use sweeper_model::expression::{Expression, Operand};

/// The tensors of a problem, as a backend of the user gets them.
pub(super) struct ProblemTensors<'a> {
    pub(super) inputs: &'a [TensorSpec],
    pub(super) outputs: &'a [TensorSpec],
    /// Contents of outputs before each run, by name; poison where none is said.
    pub(super) initial: BTreeMap<&'a str, &'a Initial>,
    /// Values of the parameters, in their order.
    pub(super) parameters: &'a [Value],
    /// The type of the case.
    pub(super) dtype: Dtype,
    /// What factors of products may be rounded to.
    pub(super) products: Products,
    /// What is computed.
    pub(super) phase: Phase,
    /// The types that texts compute in; those of tensors are adapted already.
    pub(super) reals: RealTypes,
}

/// A program in the making: where each tensor lies.
struct Maker<'a> {
    program: Program,
    /// The buffer of each name that arguments use, and whether it may be written.
    named: BTreeMap<String, (BufferId, bool)>,
    slots: Vec<Operand<'a>>,
    reals: RealTypes,
}

impl Backend {
    /// The program of a configuration.
    ///
    /// # Errors
    /// A target of another language, a condition that does not hold, an expression without a
    /// value.
    pub(super) fn program(
        &self,
        tuned: &[Value],
        tensors: &ProblemTensors<'_>,
        target: &Target,
    ) -> Result<Program, Refusal> {
        if let Some(reason) = self.implementation.refusal(target) {
            return Err(Refusal::Unavailable(reason.to_owned()));
        }
        if let Compiled::Python(function) = &self.implementation
            && let PythonSource::Missing(reason) = &function.declaration.source
        {
            return Err(Refusal::Unavailable(reason.clone()));
        }
        if !self.declaration.has(tensors.phase) {
            let reason = format!(
                "`{}` does not compute the phase `{}`",
                self.declaration.name, tensors.phase
            );
            return Err(Refusal::Unavailable(reason));
        }
        let values = tensors.parameters.iter().chain(tuned).map(Operand::from);
        let limits = limits(target).map(Operand::Int);
        let mut maker = Maker {
            program: Program::default(),
            named: BTreeMap::new(),
            slots: values.chain(limits).collect(),
            reals: tensors.reals,
        };
        for (rule, reason) in &self.require {
            match rule.holds(&maker.slots) {
                Ok(true) => {}
                Ok(false) => return Err(Refusal::Undefined(reason.clone())),
                Err(error) => {
                    let reason = format!("`{}`: {error}", rule.text());
                    return Err(Refusal::Undefined(reason));
                }
            }
        }
        let is_untrusted = self.declaration.is_untrusted;
        match &self.implementation {
            Compiled::Python(function) => {
                maker
                    .call(self, function, tensors)
                    .map_err(Refusal::Undefined)?;
            }
            Compiled::Kernels(kernels) => {
                maker.place(self, tensors).map_err(Refusal::Undefined)?;
                maker
                    .place_scratch(kernels, tensors.dtype)
                    .map_err(Refusal::Undefined)?;
                maker
                    .launch(kernels, is_untrusted)
                    .map_err(Refusal::Undefined)?;
            }
            Compiled::Command(command) => {
                maker
                    .start(command, is_untrusted)
                    .map_err(Refusal::Undefined)?;
            }
        }
        Ok(maker.program)
    }
}

impl Compiled {
    /// Why it does not run on a target.
    fn refusal(&self, target: &Target) -> Option<&'static str> {
        match self {
            Compiled::Python(function) => match (function.declaration.arrays, target) {
                (ArrayLibrary::Numpy, Target::Cuda { .. }) => Some("NumPy runs on CPUs"),
                (ArrayLibrary::Cupy, Target::Cpu) => Some("CuPy needs a GPU"),
                _ => None,
            },
            Compiled::Kernels(kernels) => match (kernels.declaration.language, target) {
                (DeclaredLanguage::Cuda, Target::Cuda { .. })
                | (DeclaredLanguage::C, Target::Cpu) => None,
                (DeclaredLanguage::Cuda, Target::Cpu) => Some("a CUDA kernel needs a GPU"),
                (DeclaredLanguage::C, Target::Cuda { .. }) => Some("a kernel in C runs on CPUs"),
            },
            // A program may use any device.
            Compiled::Command(_) => None,
        }
    }
}

impl Maker<'_> {
    /// Makes the buffers, and the steps that fill them before each run.
    fn place(&mut self, backend: &Backend, tensors: &ProblemTensors<'_>) -> Result<(), String> {
        let is_copied = |name: &str| {
            let mut initial = tensors.initial.values();
            initial.any(|initial| matches!(initial, Initial::Input(input) if input == name))
        };
        for spec in tensors.inputs {
            if !backend.declaration.uses(&spec.name) && !is_copied(&spec.name) {
                continue;
            }
            let buffer = self.buffer(spec, Role::Input, Binding::Given);
            self.named.insert(spec.name.clone(), (buffer, false));
        }
        for spec in tensors.outputs {
            let buffer = self.buffer(spec, Role::Output, Binding::Result);
            match tensors.initial.get(&*spec.name) {
                None | Some(Initial::Poison) => {}
                Some(Initial::Constant(value)) => self.fill(buffer, *value),
                Some(Initial::Input(input)) => self.copy(input, buffer),
            }
            self.named.insert(spec.name.clone(), (buffer, true));
        }
        for name in &backend.declaration.mutates {
            let Some(spec) = tensors.inputs.iter().find(|spec| spec.name == *name) else {
                continue;
            };
            let copy = TensorSpec {
                name: format!("{name}.copy"),
                ..spec.clone()
            };
            let buffer = self.buffer(&copy, Role::Workspace, Binding::Scratch);
            self.copy(name, buffer);
            self.named.insert(name.clone(), (buffer, true));
        }
        Ok(())
    }

    /// Makes the buffers of memory of its own.
    fn place_scratch(&mut self, kernels: &Kernels, dtype: Dtype) -> Result<(), String> {
        let declared = kernels.declaration.scratch.iter();
        for (shaped, scratch) in kernels.scratch.iter().zip(declared) {
            let mut spec = shaped.spec(dtype, &self.slots)?;
            spec.dtype = self.reals.dtype(spec.dtype);
            let buffer = self.buffer(&spec, Role::Workspace, Binding::Scratch);
            if let Some(value) = scratch.initial {
                self.fill(buffer, value);
            }
            self.named.insert(spec.name, (buffer, true));
        }
        Ok(())
    }

    fn buffer(&mut self, spec: &TensorSpec, role: Role, binding: Binding) -> BufferId {
        let len = spec.elements() as usize;
        self.program
            .buffer(spec.name.clone(), spec.dtype, len, role, binding)
    }

    fn fill(&mut self, buffer: BufferId, value: f64) {
        let view = self.program.all(buffer);
        self.program.prologue.push(Step::Fill { view, value });
    }

    fn copy(&mut self, input: &str, to: BufferId) {
        let Some(&(from, _)) = self.named.get(input) else {
            return;
        };
        let (from, to) = (self.program.all(from), self.program.all(to));
        self.program.prologue.push(Step::Copy { from, to });
    }

    /// Makes the buffers of a function in another process, and the step that calls it. That process
    /// has memory of its own for all of them, and restores tensors that the function overwrites.
    fn call(
        &mut self,
        backend: &Backend,
        function: &Function,
        tensors: &ProblemTensors<'_>,
    ) -> Result<(), String> {
        let request = function.request(&backend.declaration.mutates, tensors, &self.slots)?;
        let used = |spec: &&TensorSpec| backend.declaration.uses(&spec.name);
        let mut args = Vec::new();
        for spec in tensors.inputs.iter().filter(used) {
            let buffer = self.buffer(spec, Role::Input, Binding::Given);
            args.push(Arg::Read(self.program.all(buffer)));
        }
        for spec in tensors.outputs {
            let buffer = self.buffer(spec, Role::Output, Binding::Result);
            args.push(Arg::Write(self.program.all(buffer)));
        }
        let kernel = self.program.kernel(Kernel::Foreign(Foreign {
            runner: match backend.declaration.is_untrusted {
                true => Runner::Referee,
                false => Runner::Python,
            },
            name: function.declaration.entry.clone(),
            is_deterministic: !function.declaration.is_fickle,
            is_untrusted: backend.declaration.is_untrusted,
            request,
        }));
        self.program.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args,
        });
        Ok(())
    }

    /// Adds the kernels and the launches.
    fn launch(&mut self, kernels: &Kernels, is_untrusted: bool) -> Result<(), String> {
        let names = kernels.launches.iter();
        let names: Vec<String> = names
            .map(|launch| launch.entry.text(&self.slots))
            .collect::<Result<_, _>>()?;
        for (number, launch) in kernels.launches.iter().enumerate() {
            let geometry = self.geometry(launch, kernels.declaration.language.of_kernels())?;
            // A launch without blocks does nothing, and CUDA refuses it.
            let threads = geometry.grid.iter().chain(&geometry.block);
            if threads.clone().any(|&extent| extent == 0) {
                continue;
            }
            let mut source = kernels.source(number, &names, &self.slots, self.reals)?;
            if let Some(user) = &mut source.user {
                user.is_untrusted = is_untrusted;
            }
            let args = launch.args.iter().map(|arg| self.arg(arg));
            let args = args.collect::<Result<_, String>>()?;
            let kernel = self.program.kernel(Kernel::Compiled(source));
            self.program.steps.push(Step::Launch {
                kernel,
                geometry,
                args,
            });
        }
        self.place_constants(&kernels.declaration.constants);
        Ok(())
    }

    /// Makes the buffers of variables of the source, if a launch sees them, and the steps that copy
    /// inputs there.
    fn place_constants(&mut self, constants: &[(String, String)]) {
        if self.program.kernels.is_empty() {
            return;
        }
        for (name, input) in constants {
            let Some(&(from, _)) = self.named.get(input) else {
                continue;
            };
            let (dtype, len) = (
                self.program.buffers[from.0].dtype,
                self.program.buffers[from.0].len,
            );
            let binding = Binding::Symbol {
                kernel: KernelId(0),
                name: address_of(name).into(),
            };
            let to = (name.clone(), dtype, len, Role::Workspace, binding);
            let to = self.program.buffer(to.0, to.1, to.2, to.3, to.4);
            self.copy(input, to);
        }
    }

    /// Adds the start of a command.
    fn start(&mut self, command: &Command, is_untrusted: bool) -> Result<(), String> {
        let mut request = command.request(&self.slots)?;
        request.is_untrusted = is_untrusted;
        let request = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let kernel = self.program.kernel(Kernel::Foreign(Foreign {
            runner: Runner::Command,
            name: command.name().to_owned(),
            is_deterministic: true,
            is_untrusted,
            request,
        }));
        self.program.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args: Vec::new(),
        });
        Ok(())
    }

    fn geometry(&self, launch: &Launch, language: Language) -> Result<Geometry, String> {
        if language == Language::C {
            return Ok(Geometry::blocks(1));
        }
        let extents = |expressions: &[Expression]| -> Result<[u32; 3], String> {
            let mut extents = [1; 3];
            for (extent, expression) in extents.iter_mut().zip(expressions) {
                *extent = self.extent(expression)?;
            }
            Ok(extents)
        };
        let optional = |expression: &Option<Expression>, default| match expression {
            Some(expression) => self.extent(expression),
            None => Ok(default),
        };
        let shared_bytes = optional(&launch.shared, 0)?;
        Ok(Geometry {
            grid: extents(&launch.grid)?,
            block: extents(&launch.block)?,
            // What it holds may all be f32.
            shared_bytes: match self.reals {
                RealTypes::AsWritten => shared_bytes,
                RealTypes::InF64 => 2 * shared_bytes,
            },
            cluster: optional(&launch.cluster, 1)?,
            overlaps: false,
        })
    }

    fn extent(&self, expression: &Expression) -> Result<u32, String> {
        let extent = size(expression, &self.slots)?;
        u32::try_from(extent)
            .map_err(|_| format!("`{}` is {extent}, which is too large", expression.text()))
    }

    fn arg(&self, arg: &LaunchArg) -> Result<Arg, String> {
        match arg {
            LaunchArg::Tensor(name, offset) => {
                let &(buffer, is_written) = self
                    .named
                    .get(name)
                    .ok_or_else(|| format!("this phase of the problem has no tensor `{name}`"))?;
                let len = self.program.buffers[buffer.0].len;
                let first = match offset {
                    Some(offset) => size(offset, &self.slots)? as usize,
                    None => 0,
                };
                let left = len
                    .checked_sub(first)
                    .ok_or_else(|| format!("element {first} of `{name}`, which has {len}"))?;
                let view = View::new(buffer, Index::from(first), left);
                Ok(match is_written {
                    true => Arg::Write(view),
                    false => Arg::Read(view),
                })
            }
            LaunchArg::Scalar(dtype, expression) => {
                let shown = expression.text();
                let value = expression.evaluate(&self.slots);
                let value = value.map_err(|error| format!("`{shown}`: {error}"))?;
                let dtype = &self.reals.dtype(*dtype);
                let scalar = match value {
                    Operand::Int(value) => Scalar::whole(*dtype, value),
                    Operand::Bool(value) => Scalar::whole(*dtype, i64::from(value)),
                    Operand::Float(value) if dtype.is_real() => Some(Scalar::real(*dtype, value)),
                    Operand::Float(_) | Operand::Text(_) => None,
                };
                scalar
                    .map(Arg::Scalar)
                    .ok_or_else(|| format!("`{shown}` is {value}, which is no {dtype}"))
            }
        }
    }
}
