//! `fused` and `fused_checkpointing` on NVIDIA GPUs: scans, one sequence a block, then gradients of
//! all positions at once.
//!
//! The sources in `cuda/` have the algorithm; this module lays out their launches. A scan from the
//! end does not depend on the scan from the start, so both run side by side, and a segment between
//! a prefix and a suffix has its gradient from both. Compiled in are the semiring, the form of the
//! potentials, and a power of two that labels fit into; all sizes are arguments.

use std::borrow::Cow;

use super::compiled::{Keep, given};
use super::sizes::{Semiring, Sizes};
use sweeper_program::headers::CUDA_H;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{CanonicalShape, Phase, Refusal};
use sweeper_program::{
    Arg, Binding, BufferId, Geometry, Index, Kernel, KernelSource, Language, Program, Role,
    SourceFile, Step,
};

mod layout;

use layout::Layout;

macro_rules! sources {
    ($main:literal $(, $header:literal)*) => {
        &[
            SourceFile::embedded($main, include_str!($main)),
            CUDA_H,
            $(SourceFile::embedded($header, include_str!($header)),)*
        ]
    };
}

static SCAN: &[SourceFile] = sources!(
    "scan.cu",
    "weights.cuh",
    "sequence.cuh",
    "chain.cuh",
    "state.cuh",
    "fixed.cuh",
    "held.cuh",
    "edges.cuh"
);
static GRADIENTS: &[SourceFile] = sources!(
    "gradients.cu",
    "weights.cuh",
    "sequence.cuh",
    "marginals.cuh"
);
static EDGE_GRADIENTS: &[SourceFile] = sources!(
    "edge_gradients.cu",
    "weights.cuh",
    "sequence.cuh",
    "marginals.cuh"
);
static TRACE: &[SourceFile] = sources!("trace.cu", "weights.cuh", "sequence.cuh", "marginals.cuh");
static SUMS: &[SourceFile] = sources!("sums.cu");

/// The program of one phase.
///
/// # Errors
/// [`Refusal::Unavailable`] where labels do not fit into a block.
pub(super) fn program(
    sizes: &Sizes,
    phase: Phase,
    canonical: &CanonicalShape,
    arch: &str,
    keep: Keep,
) -> Result<Program, Refusal> {
    let layout = Layout::new(sizes, canonical, arch)?;
    let mut builder = Builder::new(sizes, layout, phase, keep);
    let (forward, backward) = builder.passes();
    builder.program.steps = backward;
    if phase == Phase::Backward {
        builder.program.prologue = forward;
    } else {
        builder.program.steps.splice(0..0, forward);
    }
    Ok(builder.program)
}

/// Rows that outlive a scan.
#[derive(Clone, Copy)]
struct Rows {
    values: BufferId,
    offsets: BufferId,
    /// Boundaries of a sequence.
    capacity: usize,
}

/// The work of one launch of the scan.
#[derive(Clone, Copy)]
struct Scan {
    /// 0 to begin with the scans of sequences from their start, 1 for the scans from their end.
    first_role: usize,
    roles: usize,
    low: usize,
    high: usize,
    keeps_rows: bool,
}

struct Builder {
    sizes: Sizes,
    phase: Phase,
    keep: Keep,
    layout: Layout,
    program: Program,
    /// Edges, or cumulative scores, transition and bias.
    scores: Vec<BufferId>,
    lengths: BufferId,
    prefixes: Option<Rows>,
    suffixes: Option<Rows>,
    /// States at checkpoints, and states that go from launch to launch.
    states: Option<[BufferId; 2]>,
    cells: Option<BufferId>,
    totals: BufferId,
    value: BufferId,
    entropy: Option<BufferId>,
}

impl Builder {
    #[expect(clippy::too_many_lines, reason = "a buffer after the other")]
    fn new(sizes: &Sizes, layout: Layout, phase: Phase, keep: Keep) -> Self {
        let mut program = Program::default();
        let given = given(sizes, &mut program);
        let (&lengths, scores) = given.split_last().unwrap_or((&BufferId(0), &[]));
        let mut scratch = |name: Cow<'static, str>, dtype, elements: usize, role| {
            program.buffer(name, dtype, elements * sizes.b, role, Binding::Scratch)
        };
        let totals = scratch("totals".into(), Dtype::F64, 2, Role::DpState);
        let has_gradients = phase.has_gradients();
        let (boundaries, interval) = (sizes.last_end() + 1, layout.interval());
        let is_max = sizes.semiring == Semiring::Max;
        let (role, of_prefixes, of_suffixes) = match keep {
            Keep::Rows => (Role::Saved, boundaries, boundaries),
            Keep::Checkpoints => (
                Role::Workspace,
                interval * if is_max { 2 } else { 1 },
                2 * interval,
            ),
        };
        let mut rows = |name: &'static str, capacity: usize| Rows {
            values: scratch(
                name.into(),
                Dtype::F32,
                capacity * layout.row_floats(),
                role,
            ),
            offsets: scratch(
                format!("{name}_offsets").into(),
                Dtype::F64,
                2 * capacity,
                role,
            ),
            capacity,
        };
        let prefixes = has_gradients.then(|| rows("prefixes", of_prefixes));
        let suffixes = (has_gradients && !is_max).then(|| rows("suffixes", of_suffixes));
        let states = (has_gradients && keep == Keep::Checkpoints).then(|| {
            let count = (boundaries - 1) / interval;
            let floats = layout.state_floats();
            [("states", count.max(1)), ("carries", 1)]
                .map(|(name, count)| scratch(name.into(), Dtype::F32, count * floats, Role::Saved))
        });
        let cells = (!layout.shares_cells()).then(|| {
            let floats = 2 * layout.global_cell_floats();
            scratch("cells".into(), Dtype::F32, floats, Role::DpState)
        });
        // Where only gradients are asked for, values are a by-product.
        let binding = match phase {
            Phase::Backward => Binding::Scratch,
            _ => Binding::Result,
        };
        let mut result = |name: &'static str| {
            program.buffer(name, Dtype::F32, sizes.b, Role::Output, binding.clone())
        };
        let value = result("value");
        let entropy = (sizes.semiring == Semiring::Entropy).then(|| result("entropy"));
        Builder {
            sizes: *sizes,
            phase,
            keep,
            layout,
            scores: scores.to_vec(),
            lengths,
            prefixes,
            suffixes,
            states,
            cells,
            totals,
            value,
            entropy,
            program,
        }
    }

    /// Steps of the forward pass, and of all that follows it. With all rows kept, the scan from the
    /// end is part of the first where both are timed.
    fn passes(&mut self) -> (Vec<Step>, Vec<Step>) {
        let kernel = self.compiled(SCAN, "semicrf_scan");
        let kernel = self.program.kernel(kernel);
        let everything = self.sizes.last_end() + 1;
        let has_suffixes = self.suffixes.is_some();
        let whole = Scan {
            first_role: 0,
            roles: 1,
            low: 0,
            high: everything,
            keeps_rows: self.phase.has_gradients() && self.keep == Keep::Rows,
        };
        let scan = |builder: &Self, scan: Scan| builder.scan(kernel, scan);
        if !self.phase.has_gradients() {
            return (vec![scan(self, whole)], vec![]);
        }
        let mut gradients = Gradients::new(self);
        let mut backward = gradients.begin(self);
        let forward = if self.keep == Keep::Rows && self.phase == Phase::Both && has_suffixes {
            vec![scan(self, Scan { roles: 2, ..whole })]
        } else {
            if self.keep == Keep::Rows && has_suffixes {
                let first_role = 1;
                backward.push(scan(
                    self,
                    Scan {
                        first_role,
                        ..whole
                    },
                ));
            }
            vec![scan(self, whole)]
        };
        if self.keep == Keep::Rows {
            backward.push(gradients.step(self, 0, everything));
        } else {
            let interval = self.layout.interval();
            let again = |index: usize| Scan {
                roles: if has_suffixes { 2 } else { 1 },
                low: index * interval,
                high: everything.min((index + 1) * interval),
                keeps_rows: true,
                ..whole
            };
            let last = (everything - 1) / interval;
            // A best segmentation reaches into the interval before.
            let ahead = usize::from(!has_suffixes);
            for index in (0..=last).rev() {
                if index == last {
                    backward.push(scan(self, again(index)));
                }
                if index >= ahead && (index < last || ahead == 1) {
                    backward.push(scan(self, again(index - ahead)));
                }
                let Scan { low, high, .. } = again(index);
                backward.push(gradients.step(self, low, high));
            }
        }
        backward.extend(gradients.conclude(self));
        (forward, backward)
    }

    #[expect(clippy::too_many_lines, reason = "an argument after the other")]
    fn scan(&self, kernel: sweeper_program::KernelId, scan: Scan) -> Step {
        let Sizes { t, k, c, b, .. } = self.sizes;
        let layout = &self.layout;
        let interval = match (self.phase.has_gradients(), self.keep) {
            (true, Keep::Checkpoints) => layout.interval(),
            _ => 0,
        };
        let first = self.sizes.first_duration_index();
        let numbers = [
            t,
            k,
            c,
            layout.longest,
            first,
            b,
            scan.first_role,
            scan.low,
            scan.high,
        ];
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(int(interval));
        args.push(self.read(self.lengths));
        args.push(self.read(self.scores[0]));
        args.push(int(self.program.buffers[self.scores[0].0].len));
        args.push(self.read_or_nothing(self.scores.get(1)));
        args.push(self.read_or_nothing(self.scores.get(2)));
        for (role, rows) in [self.prefixes, self.suffixes].into_iter().enumerate() {
            let takes_part = (scan.first_role..scan.first_role + scan.roles).contains(&role);
            match rows.filter(|_| scan.keeps_rows && takes_part) {
                Some(rows) => args.extend([
                    self.write(rows.values),
                    self.write(rows.offsets),
                    int(rows.capacity),
                ]),
                None => args.extend([nothing(), nothing(), nothing()]),
            }
        }
        let state_floats = layout.state_floats();
        match self.states {
            Some([states, carries]) => args.extend([
                self.write(states),
                int(self.program.buffers[states.0].len / state_floats / b),
                int(state_floats),
                self.write(carries),
            ]),
            None => args.extend([nothing(), nothing(), nothing(), nothing()]),
        }
        args.push(self.cells.map_or_else(nothing, |cells| self.write(cells)));
        args.push(int(layout.chunk_durations()));
        args.push(int(layout.porters()));
        args.push(self.write(self.totals));
        args.push(self.write(self.value));
        args.push(
            self.entropy
                .map_or_else(nothing, |entropy| self.write(entropy)),
        );
        let mut geometry = Geometry::linear((b * scan.roles) as u32, layout.scan_threads());
        geometry.shared_bytes = layout.scan_shared_bytes();
        Step::Launch {
            kernel,
            geometry,
            args,
        }
    }

    fn compiled(&self, files: &'static [SourceFile], entry: &'static str) -> Kernel {
        let mut defines = match entry {
            "semicrf_sums" => vec![],
            _ => self.layout.defines(entry),
        };
        if entry == "semicrf_scan" {
            defines.push(KernelSource::define("HAS_STATES", self.states.is_some()));
        }
        Kernel::Compiled(KernelSource {
            language: Language::Cuda,
            files: Cow::Borrowed(files),
            entry: entry.into(),
            defines,
            options: Vec::new(),
            user: None,
        })
    }

    fn read(&self, buffer: BufferId) -> Arg {
        Arg::Read(self.program.all(buffer))
    }

    fn read_or_nothing(&self, buffer: Option<&BufferId>) -> Arg {
        buffer.map_or_else(nothing, |&buffer| self.read(buffer))
    }

    fn write(&self, buffer: BufferId) -> Arg {
        Arg::Write(self.program.all(buffer))
    }

    fn read_rows(&self, rows: Option<Rows>) -> [Arg; 3] {
        match rows {
            Some(rows) => [
                self.read(rows.values),
                self.read(rows.offsets),
                int(rows.capacity),
            ],
            None => [nothing(), nothing(), nothing()],
        }
    }
}

/// The buffers that turn rows into gradients, interval by interval.
struct Gradients {
    kernel: sweeper_program::KernelId,
    /// Gradients of the scores; for decomposed scores also of transition and bias.
    results: Vec<BufferId>,
    /// Sums over some positions each, which are added up at last.
    parts: Option<BufferId>,
    part_count: usize,
    /// Boundaries of a part.
    part_positions: usize,
    /// The place up to which each best segmentation has been followed.
    places: Option<BufferId>,
    is_first: bool,
}

impl Gradients {
    #[expect(clippy::too_many_lines, reason = "a buffer after the other")]
    fn new(builder: &mut Builder) -> Self {
        let sizes = builder.sizes;
        let is_max = sizes.semiring == Semiring::Max;
        let (files, entry) = match (is_max, sizes.is_decomposed()) {
            (true, _) => (TRACE, "semicrf_trace"),
            (_, true) => (GRADIENTS, "semicrf_gradients"),
            (_, false) => (EDGE_GRADIENTS, "semicrf_edge_gradients"),
        };
        let kernel = builder.compiled(files, entry);
        let kernel = builder.program.kernel(kernel);
        let program = &mut builder.program;
        let results: Vec<BufferId> = sizes
            .score_specs("grad_")
            .into_iter()
            .map(|spec| {
                let elements = spec.shape.iter().product();
                program.buffer(
                    spec.name,
                    Dtype::F32,
                    elements,
                    Role::Gradient,
                    Binding::Result,
                )
            })
            .collect();
        let positions = match builder.keep {
            Keep::Rows => sizes.last_end() + 1,
            Keep::Checkpoints => builder.layout.interval().min(sizes.last_end() + 1),
        };
        let part_positions = builder.layout.part_positions(positions);
        let part_count = if is_max {
            sizes.b
        } else {
            sizes.b * positions.div_ceil(part_positions)
        };
        let parts = sizes.is_decomposed().then(|| {
            let elements = part_count * builder.layout.part_elements();
            program.buffer(
                "parts",
                Dtype::F32,
                elements,
                Role::Workspace,
                Binding::Scratch,
            )
        });
        let places = is_max.then(|| {
            program.buffer(
                "places",
                Dtype::I64,
                sizes.b,
                Role::Workspace,
                Binding::Scratch,
            )
        });
        Gradients {
            kernel,
            results,
            parts,
            part_count,
            part_positions,
            places,
            is_first: true,
        }
    }

    /// Steps before the first one of the scan: a trace marks elements of zeroed memory.
    fn begin(&self, builder: &Builder) -> Vec<Step> {
        let Some(places) = self.places else {
            return vec![];
        };
        let fill = |buffer, value| Step::Fill {
            view: builder.program.all(buffer),
            value,
        };
        let mut steps = vec![fill(places, -1.0), fill(self.results[0], 0.0)];
        steps.extend(self.parts.map(|parts| fill(parts, 0.0)));
        steps
    }

    /// The gradients of boundaries `low..high`.
    fn step(&mut self, builder: &Builder, low: usize, high: usize) -> Step {
        let sizes = builder.sizes;
        let Sizes { t, k, c, b, .. } = sizes;
        let (layout, first) = (&builder.layout, sizes.first_duration_index());
        let is_first = std::mem::replace(&mut self.is_first, false);
        let threads = layout.gradient_threads();
        let (numbers, mut geometry) = if self.places.is_some() {
            let numbers = vec![t, k, c, layout.longest, first, low];
            (numbers, Geometry::linear(b as u32, 32))
        } else if sizes.is_decomposed() {
            let chunk = self.part_positions;
            let element_blocks = layout.part_elements().div_ceil(threads);
            let part_blocks = element_blocks + (chunk.min(64) * c).div_ceil(4 * threads);
            let numbers = [t, c, layout.longest, first, b, low, high, chunk];
            let adds = usize::from(!is_first);
            let blocks = self.part_count * part_blocks;
            (
                [&numbers[..], &[element_blocks, part_blocks, adds]].concat(),
                Geometry::linear(blocks as u32, threads as u32),
            )
        } else {
            let rows = layout.gradient_rows();
            let numbers = vec![t, k, c, layout.longest, first, low, high, rows];
            let blocks = b * (high - low);
            (numbers, Geometry::linear(blocks as u32, threads as u32))
        };
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(builder.read(builder.lengths));
        args.push(builder.read(builder.scores[0]));
        if self.places.is_some() || sizes.is_decomposed() {
            args.push(builder.read_or_nothing(builder.scores.get(1)));
            args.push(builder.read_or_nothing(builder.scores.get(2)));
        }
        args.extend(builder.read_rows(builder.prefixes));
        let parts = self
            .parts
            .map_or_else(nothing, |parts| builder.write(parts));
        let elements = int(layout.part_elements());
        if let Some(places) = self.places {
            args.push(builder.write(places));
            args.extend([builder.write(self.results[0]), parts, elements]);
        } else {
            args.extend(builder.read_rows(builder.suffixes));
            args.push(builder.read(builder.totals));
            if sizes.is_decomposed() {
                args.extend([parts, elements]);
            }
            args.push(builder.write(self.results[0]));
            geometry.shared_bytes = layout.gradient_shared_bytes();
        }
        Step::Launch {
            kernel: self.kernel,
            geometry,
            args,
        }
    }

    /// Adds up the partial sums of the steps.
    fn conclude(&self, builder: &mut Builder) -> Option<Step> {
        let parts = self.parts?;
        let kernel = builder.compiled(SUMS, "semicrf_sums");
        let kernel = builder.program.kernel(kernel);
        let Sizes { k, c, .. } = builder.sizes;
        let layout = &builder.layout;
        let first = builder.sizes.first_duration_index();
        let per_duration = usize::from(builder.sizes.transition_per_duration);
        let numbers = [k, c, layout.longest, first, per_duration];
        let mut args: Vec<Arg> = numbers.into_iter().map(int).collect();
        args.push(builder.read(parts));
        args.push(int(self.part_count));
        args.push(int(layout.part_elements()));
        args.push(builder.write(self.results[1]));
        args.push(builder.write(self.results[2]));
        let results = self.results[1..].iter();
        let elements: usize = results
            .map(|buffer| builder.program.buffers[buffer.0].len)
            .sum();
        let geometry = Geometry::linear((32 * elements).div_ceil(128) as u32, 128);
        Some(Step::Launch {
            kernel,
            geometry,
            args,
        })
    }
}

fn int(value: usize) -> Arg {
    Arg::Int(Index::from(value))
}

/// A null pointer, for an array that this form or semiring does not have.
fn nothing() -> Arg {
    Arg::Int(Index::fixed(0))
}

#[cfg(test)]
mod tests;
