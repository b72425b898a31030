//! Runs a nest on the CPU device and on the shim.

use std::time::Duration;

use sweeper_compiler::codegen::{self, Generated};
use sweeper_compiler::nest::{
    Alignment, Bounds, CrossBlock, Extents, Launch, Memory, Nest, Stride, Value,
};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Binding, Data, Dtype, Geometry, Index, Kernel, KernelSource, Program, Role, Step, Target,
    Tensor, Tensors, View,
};

use sweeper::compile::nvrtc::Nvrtc;

use super::cpu;
use crate::shim::{self, Mode};

/// Old and new GPUs.
pub(super) const ARCHS: [&str; 2] = ["sm_80", "sm_90a"];

/// Compiles the source that is made for a GPU, which yields no warnings and spills nothing. Returns
/// the assembler's report.
pub(super) fn report(
    nvrtc: &Nvrtc,
    arch: &str,
    source: impl Fn(&Target) -> KernelSource,
) -> String {
    let source = source(&Target::Cuda {
        arch: arch.to_owned(),
    });
    let text = &source.files[0].text;
    let compiled = nvrtc.compile(
        &source,
        arch,
        &sweeper::compile::Bounds::within(Duration::from_secs(120)),
    );
    let log = compiled
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .log;
    assert!(!log.contains("warning"), "{log}");
    assert!(log.contains(" 0 bytes spill stores"), "{log}\n{text}");
    log
}

/// The device on which a nest runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// On the CPU device with so many threads.
    Cpu(usize),
    /// The CUDA text, on the CPU.
    Shim(Mode),
}

impl Place {
    pub(super) fn target(self) -> Target {
        match self {
            Place::Cpu(_) => Target::Cpu,
            Place::Shim(_) => Target::Cuda {
                arch: "sm_90a".to_owned(),
            },
        }
    }
}

/// A nest with sizes and data.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub nest: Nest,
    pub bounds: Bounds,
    pub extents: Extents,
    pub scalars: Vec<f32>,
    /// Elements that are left out between rows of dense operands.
    pub padding: usize,
    /// For operands that are loaded by an index, how many there are to choose from.
    pub choices: usize,
    /// Bytes from which on tensors are large for kernels in C; as their header says unless it is
    /// given.
    pub large_bytes: Option<u64>,
    /// Added to all numbers that are loaded.
    pub shift: f32,
}

/// Numbers that look random, in [-1, 1).
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / ((1u64 << 23) as f32) - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Whether a CUDA kernel waits for the launches before it. If so, it must wait first, and declare
/// none of its inputs constant: otherwise the compiler may load them before the wait.
pub(super) fn waits(source: &KernelSource) -> bool {
    let text = &source.files[0].text;
    let (_, kernel) = text.split_once("KERNEL(").unwrap();
    let (declared, body) = kernel.split_once(") {").unwrap();
    let waits = body.trim_start().starts_with("grid_dependency_wait();\n");
    let awaits = text.matches("grid_dependency_wait").count();
    assert_eq!(awaits, usize::from(waits), "{text}");
    let constant = declared.split(", ").filter(|one| one.contains("const "));
    let is_restricted = |one: &str| one.contains("__restrict__");
    let restricted = constant.filter(|one| is_restricted(one)).count();
    assert!(!waits || restricted == 0, "{text}");
    waits
}

impl Case {
    pub(super) fn new(nest: Nest, rows: &[u64], columns: u64) -> Case {
        Case {
            nest,
            bounds: Bounds {
                columns: Some(columns),
                ..Bounds::default()
            },
            extents: Extents {
                rows: rows.to_vec(),
                columns,
            },
            scalars: vec![0.5, 2.0, 0.25, 1.5],
            padding: 0,
            choices: 7,
            large_bytes: None,
            shift: 0.0,
        }
    }

    pub(super) fn unbounded(mut self) -> Case {
        self.bounds = Bounds::default();
        self
    }

    fn bounded(&self, bounds: Bounds) -> Case {
        Case {
            bounds,
            ..self.clone()
        }
    }

    /// The properties of this launch that a kernel may rely on.
    fn known(&self, target: &Target) -> Bounds {
        let (mut inputs, mut specs) = (Tensors::new(), vec![]);
        let launch = self.place(&mut Program::default(), "", 1, &mut inputs, &mut specs);
        codegen::known(&self.nest, self.bounds, &launch, target)
    }

    /// The alignment of this launch's columns, which decides the size of a kernel's memory
    /// accesses.
    pub(super) fn alignment(&self, target: &Target) -> Alignment {
        self.known(target).alignment
    }

    /// This case with kernels for greater alignments than its bounds state, up to the alignment of
    /// this launch; the last kernel relies on all known properties.
    pub(super) fn filled(&self, target: &Target) -> impl Iterator<Item = Case> {
        let fills = [Alignment::Float4, Alignment::FullTiles].into_iter();
        let (own, known) = (self.bounds, self.known(target));
        let mut all: Vec<Bounds> = fills
            .filter(|alignment| own.alignment < *alignment && *alignment < known.alignment)
            .map(|alignment| Bounds { alignment, ..own })
            .collect();
        if known != own {
            all.push(known);
        }
        all.into_iter().map(|bounds| self.bounded(bounds))
    }

    /// This case as the only launch of its program, with all properties that can be known of it.
    pub(super) fn only(&self, target: &Target) -> Case {
        let only = self.bounded(Bounds {
            is_only_launch: true,
            ..self.bounds
        });
        only.bounded(only.known(target))
    }

    /// This kernel, and other kernels that a program may have for sizes like this case's, if their
    /// texts differ.
    pub(super) fn kernels(&self, target: &Target) -> Vec<Case> {
        let mut all = vec![self.clone()];
        all.extend(self.filled(target));
        all.push(self.only(target));
        all.extend(self.several_rows(target));
        all.dedup_by_key(|case| case.source(target).files[0].text.clone());
        all
    }

    /// With kernels whose groups have several rows side by side, as there are for more rows, if
    /// these can be launched.
    pub(super) fn several_rows(&self, target: &Target) -> Vec<Case> {
        let fills = [self.bounds.alignment, Alignment::FullTiles].into_iter();
        let cases = fills.map(|alignment| {
            self.bounded(Bounds {
                is_only_launch: true,
                several_rows_per_warp: true,
                alignment,
                ..self.bounds
            })
        });
        let can_be_launched = |case: &Case| {
            let Ok(generated) = Generated::new(&case.nest, case.bounds, target) else {
                return false;
            };
            let mut program = Program::default();
            let kernel = program.kernel(generated.kernel());
            let launch = case.place(&mut program, "", 1, &mut Tensors::new(), &mut vec![]);
            generated.launch(kernel, &launch).is_ok()
        };
        let has_several_rows = |case: &Case| {
            case.source(target).files[0]
                .text
                .contains("ROWS_PER_WARP = ")
        };
        let cases = cases.filter(|case| can_be_launched(case) && has_several_rows(case));
        cases.collect()
    }

    pub(super) fn padded(mut self, padding: usize) -> Case {
        self.padding = padding;
        self
    }

    pub(super) fn large_from(mut self, bytes: u64) -> Case {
        self.large_bytes = Some(bytes);
        self
    }

    pub(super) fn shifted(mut self, shift: f32) -> Case {
        self.shift = shift;
        self
    }

    pub(super) fn is_part(&self, operand: usize) -> bool {
        let mut stores = self.nest.stores.iter();
        self.nest.cross_block == CrossBlock::Partials
            && stores
                .any(|store| store.operand.0 == operand && self.nest.is_cross_block(store.value))
    }

    fn is_indexed(&self, operand: usize) -> bool {
        self.nest.values.iter().any(
            |value| matches!(value, Value::Load { operand: at, index: Some(_) } if at.0 == operand),
        )
    }

    /// Steps of an operand, and how many elements it spans. Columns that are not contiguous are
    /// outside of rows, as in a transposed tensor.
    pub(super) fn steps(&self, operand: usize, parts: usize) -> (Vec<i64>, i64, i64, usize) {
        let structure = &self.nest.operands[operand];
        if self.is_part(operand) {
            let columns = self.extents.columns as usize;
            return (vec![0; structure.rows.len()], 0, 0, parts * columns);
        }
        let mut len = 1;
        let mut columns = 0;
        if structure.columns == Stride::Unit {
            columns = 1;
            len = self.extents.columns as i64 + self.padding as i64;
        }
        let mut rows = vec![0; structure.rows.len()];
        for dim in (0..rows.len()).rev() {
            if structure.rows[dim] != Stride::Broadcast {
                rows[dim] = if structure.rows[dim] == Stride::Unit {
                    1
                } else {
                    len
                };
                len *= self.extents.rows[dim] as i64;
            }
        }
        if structure.columns == Stride::Dynamic {
            columns = len;
            len *= self.extents.columns as i64;
        }
        let index = len;
        if self.is_indexed(operand) {
            len *= self.choices as i64;
        }
        (rows, columns, index, len as usize)
    }

    pub(super) fn name(&self, operand: usize) -> String {
        let kind = if self.nest.operands[operand].is_written {
            "out"
        } else {
            "in"
        };
        format!("{kind}{operand}")
    }

    fn generated(&self, target: &Target) -> Generated {
        Generated::new(&self.nest, self.bounds, target)
            .unwrap_or_else(|reason| panic!("{reason}: {self:?}"))
    }

    /// A kernel with the case's defines for its text.
    fn defined(&self, mut kernel: Kernel) -> Kernel {
        if let (Kernel::Compiled(source), Some(bytes)) = (&mut kernel, self.large_bytes) {
            let define = KernelSource::define("LARGE_BYTES", bytes);
            source.defines.push(define);
        }
        kernel
    }

    /// The program of one launch, its inputs, the specs of its results, the launch, and the number
    /// of partials.
    fn program(&self, target: &Target) -> (Program, Tensors, Vec<TensorSpec>, Launch, usize) {
        let generated = self.generated(target);
        let parts = generated.partial_count(&self.extents);
        let mut program = Program::default();
        let (mut inputs, mut specs) = (Tensors::new(), vec![]);
        let launch = self.place(&mut program, "", parts, &mut inputs, &mut specs);
        let kernel = program.kernel(self.defined(generated.kernel()));
        program
            .steps
            .push(generated.launch(kernel, &launch).unwrap());
        program.validate().unwrap();
        (program, inputs, specs, launch, parts)
    }

    /// Adds memory to a program, with names that begin with `prefix`, and data.
    pub(super) fn place(
        &self,
        program: &mut Program,
        prefix: &str,
        parts: usize,
        inputs: &mut Tensors,
        specs: &mut Vec<TensorSpec>,
    ) -> Launch {
        let mut operands = vec![];
        for (at, operand) in self.nest.operands.iter().enumerate() {
            let (rows, columns, index_step, len) = self.steps(at, parts);
            let (role, binding) = match operand.is_written {
                true => (Role::Output, Binding::Result),
                false => (Role::Input, Binding::Given),
            };
            let name = format!("{prefix}{}", self.name(at));
            let buffer = program.buffer(name.clone(), operand.dtype, len, role, binding);
            let view = View::new(buffer, Index::fixed(0), len);
            operands.push(Memory {
                view,
                rows,
                columns,
                index_step,
            });
            let spec = TensorSpec {
                name: name.clone(),
                dtype: operand.dtype,
                shape: vec![len],
            };
            if operand.is_written {
                specs.push(spec);
                continue;
            }
            let values = numbers(at + 1 + prefix.len(), len);
            let data = match operand.dtype {
                Dtype::I64 => Data::I64(
                    values
                        .iter()
                        .map(|x| ((x + 1.0) / 2.0 * self.choices as f32) as i64)
                        .collect(),
                ),
                Dtype::Bf16 => {
                    let rounded = values.iter().map(|x| half::bf16::from_f32(x + self.shift));
                    Data::Bf16(rounded.collect())
                }
                _ => Data::F32(values.iter().map(|x| x + self.shift).collect()),
            };
            inputs.insert(name, Tensor::new([len], data));
        }
        Launch {
            extents: self.extents.clone(),
            operands,
            scalars: self.scalars.clone(),
        }
    }

    /// The sources of a target.
    pub(super) fn source(&self, target: &Target) -> KernelSource {
        let (program, ..) = self.program(target);
        program.compiled().next().unwrap().clone()
    }

    /// The geometry of the case's launch.
    pub(super) fn geometry(&self, target: &Target) -> Geometry {
        let (program, ..) = self.program(target);
        match program.steps[0] {
            Step::Launch { geometry, .. } => geometry,
            ref step => panic!("no launch: {step:?}"),
        }
    }

    /// The results that a place computes.
    pub(super) fn outputs(&self, place: Place) -> Tensors {
        let (program, inputs, specs, ..) = self.program(&place.target());
        match place {
            Place::Cpu(threads) => cpu::run(program, &inputs, &specs, threads),
            Place::Shim(mode) => shim::run(&program, &inputs, &specs, mode),
        }
    }

    /// Checks that a place computes the meaning of the nest, by a kernel for all sizes and by the
    /// kernels for sizes like this one.
    pub(super) fn check(&self, place: Place) {
        for case in self.kernels(&place.target()) {
            case.check_as_is(place);
        }
    }

    pub(super) fn check_as_is(&self, place: Place) {
        let outputs = self.outputs(place);
        let (program, inputs, _, launch, parts) = self.program(&place.target());
        let what = || {
            let text = program.compiled().next().unwrap().files[0].text.clone();
            format!("{place:?} {text}")
        };
        self.judge("", &launch, parts, (&inputs, &outputs), &what);
    }
}

/// Cases whose nests are one kernel.
#[derive(Clone, Debug)]
pub(super) struct Pack(pub Vec<Case>);

impl Pack {
    fn generated(&self, target: &Target) -> Generated {
        let nests: Vec<_> = self
            .0
            .iter()
            .map(|case| (&case.nest, case.bounds))
            .collect();
        Generated::horizontal(&nests, target).unwrap_or_else(|reason| panic!("{reason}: {self:?}"))
    }

    /// The source of the kernel.
    pub(super) fn source(&self, target: &Target) -> KernelSource {
        match self.generated(target).kernel() {
            Kernel::Compiled(source) => source,
            kernel => panic!("{kernel:?}"),
        }
    }

    /// Checks that one launch computes the meaning of the nests, as [`Case::check`] does.
    pub(super) fn check(&self, place: Place) {
        let target = place.target();
        self.check_as_is(place);
        if self
            .0
            .iter()
            .any(|case| case.alignment(&target) > Alignment::Unknown)
        {
            let filled = |case: &Case| case.filled(&target).last().unwrap_or_else(|| case.clone());
            Pack(self.0.iter().map(filled).collect()).check_as_is(place);
            let only = |case: &Case| case.only(&target);
            Pack(self.0.iter().map(only).collect()).check_as_is(place);
        }
    }

    fn check_as_is(&self, place: Place) {
        let target = place.target();
        let generated = self.generated(&target);
        let mut program = Program::default();
        let (mut inputs, mut specs) = (Tensors::new(), vec![]);
        // As long as the position is great: other numbers for each.
        let prefixes: Vec<String> = (1..=self.0.len()).map(|at| "m".repeat(at)).collect();
        let cases = || self.0.iter().zip(&prefixes);
        let launches: Vec<Launch> = cases()
            .map(|(case, prefix)| case.place(&mut program, prefix, 1, &mut inputs, &mut specs))
            .collect();
        let kernel = program.kernel(generated.kernel());
        let step = generated.launch_all(kernel, &launches).unwrap();
        program.steps.push(step);
        program.validate().unwrap();
        let outputs = match place {
            Place::Cpu(threads) => cpu::run(program, &inputs, &specs, threads),
            Place::Shim(mode) => shim::run(&program, &inputs, &specs, mode),
        };
        let what = || format!("{place:?} {}", self.source(&target).files[0].text);
        for ((case, prefix), launch) in cases().zip(&launches) {
            case.judge(prefix, launch, 1, (&inputs, &outputs), &what);
        }
    }
}
