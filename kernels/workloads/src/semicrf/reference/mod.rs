//! `fused_reference`: the fused algorithm in plain Rust, one builtin a pass. It is meant to be
//! read.
//!
//! A pass goes over a sequence once, with its working set in a cache: the states of the boundaries
//! that a segment can come from, the terms of one sum. Edges of the decomposed form are never made
//! where the transition can be factored out. Three things make it right in f32:
//!
//! * the greatest term is taken off before exponentials are summed, so that a term of -1e9 is a
//!   zero and a sum of such terms is still their sum;
//! * a factored sum stays in log space from step to step, so that the only allowed source may lie
//!   far below the best one, for as long as a minimum duration takes;
//! * states are f64, and differences of them f32 (see [`tables`]).
//!
//! Reading order: [`sums`] is the semiring, [`tables`] holds states, [`scores`] are the inputs,
//! [`sequence`] the forward pass over one sequence, [`whole`] its sum where nothing can be
//! factored, [`backward`] the backward pass, [`pass`] takes a launch apart into sequences.

mod sums;
mod tables;
mod scores;
mod sequence;
mod whole;
mod backward;
mod pass;

use super::sizes::{Lengths, Potentials, Semiring, Sizes};
use crate::ops::emit::Emitter;
use sweeper_program::builtin::Call;
use sweeper_program::workload::{Phase, Refusal, Target};
use sweeper_program::{Arg, Binding, BufferId, Dtype, Index, Program, Role};

/// The program of `phase`.
///
/// # Errors
/// [`Refusal::Unavailable`] on a GPU: the passes are functions of the host.
pub fn program(sizes: &Sizes, phase: Phase, target: &Target) -> Result<Program, Refusal> {
    if *target != Target::Cpu {
        return Err(Refusal::Unavailable(
            "`fused_reference` runs on a CPU only: its passes are functions of the host".to_owned(),
        ));
    }
    let forward = Layout::new(sizes, phase.has_gradients(), false);
    let mut emit = Emitter::default();
    let mut given: Vec<BufferId> = Vec::new();
    for spec in sizes.inputs() {
        let role = match spec.name.as_str() {
            "edge" => Role::Potentials,
            "transition" | "duration_bias" => Role::Parameter,
            _ => Role::Input,
        };
        let len = spec.shape.iter().product();
        given.push(emit.buffer(spec.name, spec.dtype, len, role, Binding::Given));
    }
    let role = if phase.has_gradients() {
        Role::Saved
    } else {
        Role::DpState
    };
    let states = sizes.b * forward.states();
    let states = emit.buffer("states", Dtype::F64, states, role, Binding::Scratch);
    write_forward(&mut emit, &forward, phase, &given, states);
    if phase == Phase::Backward {
        emit.end_prologue();
    }
    if phase.has_gradients() {
        write_backward(&mut emit, &Layout::new(sizes, true, true), &given, states);
    }
    Ok(emit.finish())
}

fn write_forward(
    emit: &mut Emitter,
    layout: &Layout,
    phase: Phase,
    given: &[BufferId],
    states: BufferId,
) {
    let mut args = arguments(layout);
    args.extend(given.iter().map(|&buffer| Arg::Read(emit.all(buffer))));
    args.push(Arg::Write(emit.all(states)));
    let scratch = layout.sizes.b * layout.scratch();
    let scratch = emit.buffer(
        "scratch",
        Dtype::F32,
        scratch,
        Role::Workspace,
        Binding::Scratch,
    );
    args.push(Arg::Write(emit.all(scratch)));
    let binding = if phase == Phase::Backward {
        Binding::Scratch
    } else {
        Binding::Result
    };
    for spec in layout.sizes.outputs(Phase::Forward) {
        let result = emit.buffer(
            spec.name,
            Dtype::F32,
            layout.sizes.b,
            Role::Output,
            binding.clone(),
        );
        args.push(Arg::Write(emit.all(result)));
    }
    emit.launch(pass::FORWARD, args);
}

fn write_backward(emit: &mut Emitter, layout: &Layout, given: &[BufferId], states: BufferId) {
    let mut args = arguments(layout);
    let reads = given.iter().chain([&states]);
    args.extend(reads.map(|&buffer| Arg::Read(emit.all(buffer))));
    let b = layout.sizes.b;
    let mut written = vec![("scratch_backward", b * layout.scratch())];
    if layout.sizes.is_decomposed() {
        written.push(("gradient_shares", b * layout.share()));
    }
    for (name, len) in written {
        let buffer = emit.buffer(name, Dtype::F32, len, Role::Workspace, Binding::Scratch);
        args.push(Arg::Write(emit.all(buffer)));
    }
    for spec in layout.sizes.score_specs("grad_") {
        let len = spec.shape.iter().product();
        let gradient = emit.buffer(spec.name, Dtype::F32, len, Role::Gradient, Binding::Result);
        args.push(Arg::Write(emit.all(gradient)));
    }
    emit.launch(pass::BACKWARD, args);
}

/// The number of arguments that are sizes.
const SIZES: usize = 10;

/// The first arguments of both passes: T, K, C, B; semiring (0 log, 1 max, 2 entropy); 1 for
/// decomposed potentials, for durations to K, for a transition for each duration; 1 if the tables
/// hold all boundaries; 1 for a backward pass.
fn arguments(layout: &Layout) -> Vec<Arg> {
    let sizes = &layout.sizes;
    let semiring = match sizes.semiring {
        Semiring::Log => 0,
        Semiring::Max => 1,
        Semiring::Entropy => 2,
    };
    let words: [usize; SIZES] = [
        sizes.t,
        sizes.k,
        sizes.c,
        sizes.b,
        semiring,
        sizes.is_decomposed().into(),
        sizes.durations_to_k.into(),
        sizes.transition_per_duration.into(),
        layout.keeps_all.into(),
        layout.is_backward.into(),
    ];
    words.map(|word| Arg::Int(Index::from(word))).into()
}

/// Memory of each sequence, in elements, as it follows from the sizes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    sizes: Sizes,
    keeps_all: bool,
    is_backward: bool,
}

impl Layout {
    fn new(sizes: &Sizes, keeps_all: bool, is_backward: bool) -> Self {
        Layout {
            sizes: *sizes,
            keeps_all,
            is_backward,
        }
    }

    /// The inverse of [`arguments`].
    fn read(call: &Call<'_>) -> Self {
        let size = |position: usize| call.size(position);
        let is = |position: usize| call.int(position) == 1;
        let sizes = Sizes {
            t: size(0),
            k: size(1),
            c: size(2),
            b: size(3),
            semiring: match size(4) {
                0 => Semiring::Log,
                1 => Semiring::Max,
                _ => Semiring::Entropy,
            },
            potentials: if is(5) {
                Potentials::Decomposed
            } else {
                Potentials::Materialized
            },
            // Lengths are a tensor by now.
            lengths: Lengths::Full,
            durations_to_k: is(6),
            transition_per_duration: is(7),
        };
        Layout::new(&sizes, is(8), is(9))
    }

    /// Tensors of scores.
    fn scores(&self) -> usize {
        if self.sizes.is_decomposed() { 3 } else { 1 }
    }

    fn has_entropy(&self) -> bool {
        self.sizes.semiring == Semiring::Entropy
    }

    fn is_factored(&self) -> bool {
        self.sizes.is_decomposed() && !self.sizes.transition_per_duration
    }

    /// Most durations that end at one boundary.
    fn span(&self) -> usize {
        self.sizes.longest().min(self.sizes.last_end())
    }

    /// Elements of one table of states: all boundaries, or a window and the boundary after it.
    fn table(&self) -> usize {
        let slots = if self.keeps_all {
            self.sizes.last_end() + 1
        } else {
            self.span() + 1
        };
        slots * self.sizes.c
    }

    /// Number of elements of all tables: states, arrivals, and entropies of both.
    fn states(&self) -> usize {
        let components = if self.has_entropy() { 2 } else { 1 };
        let tables = if self.is_factored() { 2 } else { 1 };
        components * tables * self.table()
    }

    /// Most terms of one stage.
    fn terms(&self) -> usize {
        let c = self.sizes.c;
        if self.is_factored() {
            c * self.span().max(c)
        } else {
            c * c * self.span()
        }
    }

    fn window(&self) -> usize {
        self.sizes.c * self.span()
    }

    /// Gradients by boundary and label, for a backward pass.
    fn gradients(&self) -> usize {
        if self.is_backward {
            self.sizes.c * (self.sizes.last_end() + 1)
        } else {
            0
        }
    }

    fn scratch(&self) -> usize {
        let components = if self.has_entropy() { 2 } else { 1 };
        let per_component = self.terms() + 2 * self.sizes.c + self.gradients();
        components * per_component + self.terms() + self.sizes.c + self.window()
    }

    fn transition(&self) -> usize {
        let Sizes { k, c, .. } = self.sizes;
        if self.sizes.transition_per_duration {
            k * c * c
        } else {
            c * c
        }
    }

    /// A sequence's share of the gradients of transition and bias.
    fn share(&self) -> usize {
        self.transition() + self.sizes.k * self.sizes.c
    }
}
