//! `fused` and `fused_checkpointing`: one kernel in C a pass, one block a sequence.
//!
//! The sources beside this file say how; here their memory is laid out. T, K, C and B are
//! arguments. Compiled in are the semiring, the form of the potentials, and the number of vectors
//! that hold a row of labels where the canonical shape bounds C.

use std::borrow::Cow;

use super::cuda;
use super::sizes::{Semiring, Sizes};
use sweeper_program::headers::{CPU_H, ELEMENTARY_H, VECTOR_H};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{CanonicalShape, Phase, Refusal, Target};
use sweeper_program::{
    Arg, Binding, BufferId, Geometry, Index, Kernel, KernelSource, Language, Program, Role,
    SourceFile, Step,
};

mod layout;

use layout::Layout;

/// The values that the forward pass keeps for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The weights of all boundaries.
    Rows,
    /// The weights before every sqrt(T K)-th boundary, from which the others are computed again.
    Checkpoints,
}

macro_rules! sources {
    ($main:literal) => {
        [
            SourceFile::embedded($main, include_str!(concat!("../", $main))),
            CPU_H,
            VECTOR_H,
            ELEMENTARY_H,
            SourceFile::embedded("scan.h", include_str!("../scan.h")),
            SourceFile::embedded("flat.h", include_str!("../flat.h")),
            SourceFile::embedded("messages.h", include_str!("../messages.h")),
            SourceFile::embedded("materialized.h", include_str!("../materialized.h")),
            SourceFile::embedded("decomposed.h", include_str!("../decomposed.h")),
            SourceFile::embedded("ring.h", include_str!("../ring.h")),
            SourceFile::embedded("forward.h", include_str!("../forward.h")),
            SourceFile::embedded("targets.h", include_str!("../targets.h")),
            SourceFile::embedded(
                "materialized_backward.h",
                include_str!("../materialized_backward.h"),
            ),
            SourceFile::embedded(
                "decomposed_backward.h",
                include_str!("../decomposed_backward.h"),
            ),
        ]
    };
}

static FORWARD: [SourceFile; 14] = sources!("forward.c");
static BACKWARD: [SourceFile; 14] = sources!("backward.c");
static REDUCE: [SourceFile; 2] = [
    SourceFile::embedded("reduce.c", include_str!("../reduce.c")),
    CPU_H,
];

/// The program of one phase.
///
/// # Errors
/// A [`Refusal`] where a GPU has no room.
pub fn program(
    sizes: &Sizes,
    phase: Phase,
    canonical: &CanonicalShape,
    target: &Target,
    keep: Keep,
) -> Result<Program, Refusal> {
    if let Target::Cuda { arch } = target {
        return cuda::program(sizes, phase, canonical, arch, keep);
    }
    let mut builder = Builder::new(sizes, canonical, phase, keep);
    let forward = builder.forward();
    if !phase.has_gradients() {
        builder.program.steps = vec![forward];
        return Ok(builder.program);
    }
    let backward = builder.backward();
    match phase {
        Phase::Backward => {
            builder.program.prologue = vec![forward];
            builder.program.steps = backward;
        }
        _ => {
            builder.program.steps = vec![forward];
            builder.program.steps.extend(backward);
        }
    }
    Ok(builder.program)
}

/// A buffer with a part for each sequence.
#[derive(Clone, Copy)]
struct Parts {
    buffer: BufferId,
    part: usize,
}

struct Builder {
    sizes: Sizes,
    phase: Phase,
    layout: Layout,
    defines: Vec<(Cow<'static, str>, String)>,
    program: Program,
    /// Edges, or cumulative scores, transition and bias.
    scores: Vec<BufferId>,
    lengths: BufferId,
    rows: Parts,
    offsets: Parts,
    checkpoints: Option<[Parts; 2]>,
    messages: Parts,
    tables: Parts,
    ring: Parts,
}

impl Builder {
    fn new(sizes: &Sizes, canonical: &CanonicalShape, phase: Phase, keep: Keep) -> Self {
        let (layout, defines) = layout_and_defines(sizes, canonical);
        let mut program = Program::default();
        let given = given(sizes, &mut program);
        let (&lengths, scores) = given.split_last().unwrap_or((&BufferId(0), &[]));
        let checkpoints = phase.has_gradients() && keep == Keep::Checkpoints;
        let interval = layout.interval();
        let (capacity, role) = match (phase.has_gradients(), keep) {
            (true, Keep::Rows) => (sizes.last_end() + 1, Role::Saved),
            _ => (layout.longest + 1, Role::DpState),
        };
        let mut parts = |name: &'static str, dtype, part: usize, role| {
            let elements = part * sizes.b;
            let buffer = program.buffer(name, dtype, elements, role, Binding::Scratch);
            Parts { buffer, part }
        };
        let (f32, f64) = (Dtype::F32, Dtype::F64);
        let rows = parts("rows", f32, capacity * layout.row_floats(), role);
        let offsets = parts("offsets", f64, 2 * capacity, role);
        let checkpoints = checkpoints.then(|| {
            let kept = layout.longest * (sizes.last_end() / interval).max(1);
            let (rows, offsets) = (kept * layout.row_floats(), 2 * kept);
            [
                parts("checkpoints", f32, rows, Role::Saved),
                parts("checkpoint_offsets", f64, offsets, Role::Saved),
            ]
        });
        let messages = parts("messages", f32, layout.message_floats(), Role::DpState);
        let tables = parts("tables", f32, layout.table_floats(), Role::Workspace);
        let ring = parts("ring", f32, layout.ring_floats(), Role::DpState);
        Builder {
            sizes: *sizes,
            phase,
            layout,
            defines,
            scores: scores.to_vec(),
            lengths,
            rows,
            offsets,
            checkpoints,
            messages,
            tables,
            ring,
            program,
        }
    }

    fn forward(&mut self) -> Step {
        let mut args = self.common_args(self.rows, self.offsets, true);
        // Where only gradients are asked for, values are a by-product.
        let binding = if self.phase == Phase::Backward {
            Binding::Scratch
        } else {
            Binding::Result
        };
        let mut result = |name: &'static str| {
            let elements = self.sizes.b;
            self.program
                .buffer(name, Dtype::F32, elements, Role::Output, binding.clone())
        };
        let value = result("value");
        let entropy = (self.sizes.semiring == Semiring::Entropy).then(|| result("entropy"));
        args.push(Arg::Write(self.program.all(value)));
        args.push(self.write_or_nothing(entropy));
        self.launch(&FORWARD, "semicrf_forward", args)
    }

    fn backward(&mut self) -> Vec<Step> {
        let (mut rows, mut offsets) = (self.rows, self.offsets);
        if self.checkpoints.is_some() {
            let capacity = self.layout.interval() + self.layout.longest;
            let floats = capacity * self.layout.row_floats();
            rows = self.parts("interval_rows", Dtype::F32, floats, Role::Workspace);
            offsets = self.parts(
                "interval_offsets",
                Dtype::F64,
                2 * capacity,
                Role::Workspace,
            );
        }
        let mut args = self.common_args(rows, offsets, self.checkpoints.is_some());
        let layout = self.layout;
        let targets = self.parts("targets", Dtype::F32, layout.target_floats(), Role::DpState);
        let target_offsets = 2 * layout.longest;
        let target_offsets =
            self.parts("target_offsets", Dtype::F64, target_offsets, Role::DpState);
        let work = self.parts("work", Dtype::F32, layout.work_floats(), Role::Workspace);
        for parts in [targets, target_offsets, work] {
            self.write_parts(&mut args, parts);
        }
        let gradients: Vec<BufferId> = self
            .sizes
            .score_specs("grad_")
            .into_iter()
            .map(|spec| {
                let elements = spec.shape.iter().product();
                let role = Role::Gradient;
                self.program
                    .buffer(spec.name, Dtype::F32, elements, role, Binding::Result)
            })
            .collect();
        let batch_parts = (gradients.len() > 1).then(|| {
            let floats = layout.part_floats();
            self.parts("gradient_parts", Dtype::F32, floats, Role::Workspace)
        });
        match batch_parts {
            Some(parts) => self.write_parts(&mut args, parts),
            None => args.extend([nothing(), nothing()]),
        }
        let part = self.program.buffers[gradients[0].0].len / self.sizes.b;
        let buffer = gradients[0];
        self.write_parts(&mut args, Parts { buffer, part });
        let mut steps = vec![self.launch(&BACKWARD, "semicrf_backward", args)];
        if let (Some(parts), [_, transition, bias]) = (batch_parts, &gradients[..]) {
            steps.push(self.reduce(parts, *transition, *bias));
        }
        steps
    }

    /// Sums the sequences' parts of the gradients of transition and bias.
    fn reduce(&mut self, parts: Parts, transition: BufferId, bias: BufferId) -> Step {
        let Sizes { k, c, b, .. } = self.sizes;
        let tables = usize::from(self.sizes.transition_per_duration);
        let first = self.sizes.first_duration_index();
        let numbers = [b, k, c, self.layout.longest, first, tables];
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(int(self.layout.pitch));
        args.push(Arg::Read(self.program.all(parts.buffer)));
        args.push(int(parts.part));
        args.push(Arg::Write(self.program.all(transition)));
        args.push(Arg::Write(self.program.all(bias)));
        let kernel = kernel(&REDUCE, "semicrf_reduce", vec![]);
        Step::Launch {
            kernel: self.program.kernel(kernel),
            geometry: Geometry::blocks(1),
            args,
        }
    }

    /// The arguments of both passes, in the order of scan.h.
    fn common_args(&self, rows: Parts, offsets: Parts, writes_rows: bool) -> Vec<Arg> {
        let Sizes { t, k, c, .. } = self.sizes;
        let first = self.sizes.first_duration_index();
        let numbers = [t, k, c, self.layout.longest, first, self.layout.interval()];
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(Arg::Read(self.program.all(self.lengths)));
        args.push(Arg::Read(self.program.all(self.scores[0])));
        args.push(int(self.program.buffers[self.scores[0].0].len));
        for at in [1, 2] {
            args.push(match self.scores.get(at) {
                Some(&buffer) => Arg::Read(self.program.all(buffer)),
                None => nothing(),
            });
        }
        for parts in [rows, offsets] {
            let view = self.program.all(parts.buffer);
            args.push(if writes_rows {
                Arg::Write(view)
            } else {
                Arg::Read(view)
            });
            args.push(int(parts.part));
        }
        match self.checkpoints {
            Some(checkpoints) => {
                for parts in checkpoints {
                    self.write_parts(&mut args, parts);
                }
            }
            None => args.extend([nothing(), nothing(), nothing(), nothing()]),
        }
        self.write_parts(&mut args, self.messages);
        self.write_parts(&mut args, self.tables);
        self.write_parts(&mut args, self.ring);
        args
    }

    fn parts(&mut self, name: &'static str, dtype: Dtype, part: usize, role: Role) -> Parts {
        let elements = part * self.sizes.b;
        let buffer = self
            .program
            .buffer(name, dtype, elements, role, Binding::Scratch);
        Parts { buffer, part }
    }

    fn write_parts(&self, args: &mut Vec<Arg>, parts: Parts) {
        args.push(Arg::Write(self.program.all(parts.buffer)));
        args.push(int(parts.part));
    }

    fn write_or_nothing(&self, buffer: Option<BufferId>) -> Arg {
        buffer.map_or_else(nothing, |buffer| Arg::Write(self.program.all(buffer)))
    }

    fn launch(
        &mut self,
        files: &'static [SourceFile],
        entry: &'static str,
        args: Vec<Arg>,
    ) -> Step {
        let kernel = kernel(files, entry, self.defines.clone());
        Step::Launch {
            kernel: self.program.kernel(kernel),
            geometry: Geometry::blocks(self.sizes.b as u32),
            args,
        }
    }
}

fn kernel(
    files: &'static [SourceFile],
    entry: &'static str,
    defines: Vec<(Cow<'static, str>, String)>,
) -> Kernel {
    Kernel::Compiled(KernelSource {
        language: Language::C,
        files: Cow::Borrowed(files),
        entry: entry.into(),
        defines,
        options: Vec::new(),
        user: None,
    })
}

fn int(value: usize) -> Arg {
    Arg::Int(Index::from(value))
}

/// Buffers of the tensors that a problem gives, lengths last.
pub(super) fn given(sizes: &Sizes, program: &mut Program) -> Vec<BufferId> {
    let specs = sizes.inputs().into_iter();
    specs
        .map(|spec| {
            let role = match spec.name.as_str() {
                "edge" => Role::Potentials,
                "transition" | "duration_bias" => Role::Parameter,
                _ => Role::Input,
            };
            let elements = spec.shape.iter().product();
            program.buffer(spec.name, spec.dtype, elements, role, Binding::Given)
        })
        .collect()
}

/// A null pointer, for an array that this form or semiring does not have.
fn nothing() -> Arg {
    Arg::Int(Index::fixed(0))
}

/// The memory of these sizes, and the macros of its kernels.
fn layout_and_defines(
    sizes: &Sizes,
    canonical: &CanonicalShape,
) -> (Layout, Vec<(Cow<'static, str>, String)>) {
    let form = match (sizes.is_decomposed(), sizes.transition_per_duration) {
        (false, _) => "MATERIALIZED",
        (true, false) => "FIXED",
        (true, true) => "PER_DURATION",
    };
    let semiring = match sizes.semiring {
        Semiring::Log => "LOG",
        Semiring::Max => "MAX",
        Semiring::Entropy => "ENTROPY",
    };
    let mut defines = vec![
        KernelSource::define("FORM", form),
        KernelSource::define("SEMIRING", semiring),
    ];
    let bound = canonical
        .bound("C")
        .filter(|&bound| bound >= sizes.c as u64);
    let labels = bound.map_or(sizes.c, |bound| bound as usize);
    let lines = labels.div_ceil(layout::LINE);
    if bound.is_some() {
        defines.push(KernelSource::define("LINES", lines));
    }
    (Layout::new(sizes, lines), defines)
}

#[cfg(test)]
mod tests;
