//! The steps of a program that must wait for each other: those that share memory.

use super::{Arg, KernelId, Program, Step, View};

/// The order of a program's timed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One after the other, as an eager framework launches them, and as kernels need that share
    /// more than their arguments.
    #[default]
    InTurn,
    /// A step waits for those whose memory it shares, and may run beside all others where a device
    /// can: a CUDA graph has these dependencies alone.
    ByData,
}

/// Programs of more steps run in turn: dependencies are found by comparing pairs.
const MOST_STEPS: usize = 4096;

/// Memory that a step reads or writes.
struct Access<'p> {
    view: &'p View,
    /// First byte of the buffer.
    buffer_begins: u64,
    /// Bytes that the view spans, in all iterations of a loop.
    begin: u64,
    end: u64,
    is_written: bool,
}

impl Access<'_> {
    fn conflicts(&self, other: &Access<'_>) -> bool {
        let are_both_read = !self.is_written && !other.is_written;
        if are_both_read || self.begin >= other.end || other.begin >= self.end {
            return false;
        }
        let begins = [self, other].map(|access| access.view.offset.fixed_value());
        match begins {
            [Some(begin), Some(other_begin)] if self.buffer_begins == other.buffer_begins => {
                self.view.meets(begin, other.view, other_begin)
            }
            _ => true,
        }
    }
}

/// Whether a step with accesses of its own must wait for one before it.
fn must_wait(own: &[Access<'_>], before: &[Access<'_>]) -> bool {
    let conflicts = |access: &Access<'_>| own.iter().any(|it| it.conflicts(access));
    before.iter().any(conflicts)
}

impl Program {
    /// For each timed step, the earlier steps that it must wait for: those that write memory which
    /// it reads or writes, and those that read memory which it writes. A step for which another of
    /// these waits already is left out. A loop is one step.
    ///
    /// Buffers begin at `addresses`, in bytes, and may share memory. Arguments of which `is_unused`
    /// holds, by kernel and position, are not accessed. None where the program has more steps than
    /// are compared.
    pub fn dependencies(
        &self,
        addresses: &[u64],
        is_unused: impl Fn(KernelId, usize) -> bool,
    ) -> Option<Vec<Vec<usize>>> {
        if self.steps.len() > MOST_STEPS {
            return None;
        }
        let mut accesses: Vec<Vec<Access<'_>>> = Vec::with_capacity(self.steps.len());
        // Steps that have ended before each step begins, a bit each.
        let mut earlier: Vec<Vec<u64>> = Vec::with_capacity(self.steps.len());
        let mut dependencies = Vec::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            let own = self.accesses(step, addresses, &is_unused);
            let mut ended = vec![0u64; at.div_ceil(64)];
            let mut waits = Vec::new();
            for before in (0..at).rev() {
                let has_ended = ended[before / 64] >> (before % 64) & 1 == 1;
                if has_ended || !must_wait(&own, &accesses[before]) {
                    continue;
                }
                for (mine, theirs) in ended.iter_mut().zip(&earlier[before]) {
                    *mine |= theirs;
                }
                ended[before / 64] |= 1 << (before % 64);
                waits.push(before);
            }
            waits.reverse();
            accesses.push(own);
            earlier.push(ended);
            dependencies.push(waits);
        }
        Some(dependencies)
    }

    /// Addresses of buffers of which no two share memory.
    pub fn addresses_apart(&self) -> Vec<u64> {
        let begins = self.buffers.iter().scan(0, |end, buffer| {
            let begin = *end;
            *end += buffer.size_bytes();
            Some(begin)
        });
        begins.collect()
    }

    /// Whether each timed step waits for the one before, though no two buffers share memory: then
    /// steps have one order.
    pub fn is_chain(&self) -> bool {
        let apart = self.addresses_apart();
        let accesses = self
            .steps
            .iter()
            .map(|step| self.accesses(step, &apart, &|_, _| false));
        let accesses: Vec<Vec<Access<'_>>> = accesses.collect();
        accesses
            .windows(2)
            .all(|pair| must_wait(&pair[1], &pair[0]))
    }

    /// All memory that a step reads or writes.
    fn accesses<'p>(
        &'p self,
        step: &'p Step,
        addresses: &[u64],
        is_unused: &impl Fn(KernelId, usize) -> bool,
    ) -> Vec<Access<'p>> {
        let mut accesses = Vec::new();
        self.collect_accesses(step, &mut Vec::new(), addresses, is_unused, &mut accesses);
        accesses
    }

    fn collect_accesses<'p>(
        &'p self,
        step: &'p Step,
        counts: &mut Vec<u64>,
        addresses: &[u64],
        is_unused: &impl Fn(KernelId, usize) -> bool,
        accesses: &mut Vec<Access<'p>>,
    ) {
        let mut add = |view: &'p View, is_written: bool| {
            let range = view.offset.range(counts);
            let Some((least, most)) = range.filter(|_| view.len > 0) else {
                return;
            };
            let bytes = self.buffers[view.buffer.0].dtype.size_bytes() as u64;
            let buffer_begins = addresses[view.buffer.0];
            accesses.push(Access {
                view,
                buffer_begins,
                begin: buffer_begins + least as u64 * bytes,
                end: buffer_begins + (most as u64 + view.len as u64) * bytes,
                is_written,
            });
        };
        match step {
            Step::Launch { kernel, args, .. } => {
                for (at, arg) in args.iter().enumerate() {
                    match arg {
                        _ if is_unused(*kernel, at) => {}
                        Arg::Read(view) => add(view, false),
                        Arg::Write(view) => add(view, true),
                        Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => {}
                    }
                }
            }
            Step::Copy { from, to } => {
                add(from, false);
                add(to, true);
            }
            Step::Fill { view, .. } => add(view, true),
            Step::Repeat { count, body } => {
                counts.push(*count);
                for step in body {
                    self.collect_accesses(step, counts, addresses, is_unused, accesses);
                }
                counts.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Binding, BufferId, Geometry, Index, Role, Rows};
    use super::*;
    use crate::tensor::Dtype;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Launches that read and write views of buffers of 64 floats.
    fn program(buffers: usize, launches: Vec<(Vec<View>, Vec<View>)>) -> Program {
        let mut program = Program::default();
        for _ in 0..buffers {
            program.buffer("", Dtype::F32, 64, Role::Workspace, Binding::Scratch);
        }
        let launch = |(reads, writes): (Vec<View>, Vec<View>)| Step::Launch {
            kernel: KernelId(0),
            geometry: Geometry::blocks(1),
            args: reads
                .into_iter()
                .map(Arg::Read)
                .chain(writes.into_iter().map(Arg::Write))
                .collect(),
        };
        program.steps = launches.into_iter().map(launch).collect();
        program
    }

    /// Two steps, neither of which waits.
    const BOTH_FREE: [Vec<usize>; 2] = [Vec::new(), Vec::new()];

    fn whole(buffer: usize) -> View {
        View::new(BufferId(buffer), Index::fixed(0), 64)
    }

    #[test]
    fn steps_wait_for_writers_and_readers_of_their_memory() {
        let program = program(
            4,
            vec![
                (vec![], vec![whole(0)]),
                (vec![whole(0)], vec![whole(1)]),
                (vec![whole(0)], vec![whole(2)]),
                (vec![whole(1), whole(2)], vec![whole(3)]),
                (vec![], vec![whole(0)]),
            ],
        );
        let found = program.dependencies(&program.addresses_apart(), |_, _| false);
        // The last waits for both readers, and so for the first, too; not for the fourth.
        let expected = [vec![], vec![0], vec![0], vec![1, 2], vec![1, 2]];
        assert_eq!(found.unwrap(), expected);
        assert!(!program.is_chain());
    }

    #[test]
    fn buffers_may_share_memory() {
        let two = || vec![(vec![], vec![whole(0)]), (vec![], vec![whole(1)])];
        let program = program(2, two());
        let waits = |addresses: [u64; 2]| program.dependencies(&addresses, |_, _| false).unwrap();
        assert_eq!(waits([0, 256]), BOTH_FREE);
        assert_eq!(waits([0, 252]), [vec![], vec![0]]);
        // Nobody accesses what is unused.
        let none = program.dependencies(&[0, 0], |kernel, at| (kernel.0, at) == (0, 0));
        assert_eq!(none.unwrap(), BOTH_FREE);
    }

    #[test]
    fn rows_of_one_buffer_are_apart() {
        let columns = |first: i64| {
            let rows = Rows { len: 4, step: 8 };
            View::new(BufferId(0), Index::fixed(first), 60).in_rows(rows)
        };
        let of = |second| {
            let launches = vec![(vec![], vec![columns(0)]), (vec![second], vec![])];
            program(1, launches)
                .dependencies(&[0], |_, _| false)
                .unwrap()
        };
        assert_eq!(of(columns(4)), BOTH_FREE);
        assert_eq!(of(columns(3)), [vec![], vec![0]]);
        assert_eq!(of(whole(0)), [vec![], vec![0]]);
    }

    #[test]
    fn a_loop_is_one_step_with_all_that_it_touches() {
        let at = |offset| View::new(BufferId(0), offset, 16);
        let mut program = program(1, vec![(vec![], vec![at(Index::fixed(48))])]);
        let body = |stride| Step::Repeat {
            count: 3,
            body: vec![Step::Fill {
                view: at(Index::affine(0, 0, stride)),
                value: 0.0,
            }],
        };
        program.steps.extend([body(16), body(20)]);
        let found = program.dependencies(&[0], |_, _| false).unwrap();
        assert_eq!(found, [vec![], vec![], vec![0, 1]]);
    }

    /// Launches over three buffers of 64 floats, each of one read part and one written part.
    fn any_launches() -> impl Strategy<Value = Vec<(View, View)>> {
        let view = (0..3usize, 0..60i64, 1..24usize).prop_map(|(buffer, first, len)| {
            let len = len.min(64 - first as usize);
            View::new(BufferId(buffer), Index::fixed(first), len)
        });
        vec((view.clone(), view), 1..24)
    }

    /// What a launch leaves: each element that it writes depends on all that it reads.
    fn run(memory: &mut [u64], (read, write): &(View, View), addresses: &[u64], launch: usize) {
        let range = |view: &View| {
            let begin = addresses[view.buffer.0] / 4 + view.offset.fixed_value().unwrap() as u64;
            begin as usize..begin as usize + view.len
        };
        let seen = memory[range(read)].iter().fold(launch as u64, |sum, &it| {
            sum.wrapping_mul(31).wrapping_add(it)
        });
        for element in &mut memory[range(write)] {
            *element = element.wrapping_mul(7).wrapping_add(seen);
        }
    }

    proptest! {
        #[test]
        fn any_order_that_dependencies_allow_computes_the_same(
            launches in any_launches(),
            priorities in vec(0..1000u32, 24),
            // Buffers may share memory.
            addresses in vec((0..40u64).prop_map(|at| at * 4), 3),
        ) {
            let args = launches.iter().map(|(read, write)| (vec![read.clone()], vec![write.clone()]));
            let program = program(3, args.collect());
            let dependencies = program.dependencies(&addresses, |_, _| false).unwrap();
            let mut in_turn = vec![0; 128];
            for (at, launch) in launches.iter().enumerate() {
                run(&mut in_turn, launch, &addresses, at);
            }
            let mut other = vec![0; 128];
            let mut done = vec![false; launches.len()];
            for _ in 0..launches.len() {
                let is_ready = |&at: &usize| !done[at] && dependencies[at].iter().all(|&it| done[it]);
                let ready = (0..launches.len()).filter(is_ready);
                let next = ready.max_by_key(|&at| priorities[at]).unwrap();
                run(&mut other, &launches[next], &addresses, next);
                done[next] = true;
            }
            prop_assert_eq!(in_turn, other);
        }
    }

    #[test]
    fn a_chain_has_one_order() {
        let chain = program(
            3,
            vec![
                (vec![], vec![whole(0)]),
                (vec![whole(0)], vec![whole(1)]),
                (vec![whole(0), whole(1)], vec![whole(2)]),
            ],
        );
        assert!(chain.is_chain());
        assert!(program(0, vec![]).is_chain());
        let apart = chain.addresses_apart();
        let dependencies = chain.dependencies(&apart, |_, _| false).unwrap();
        assert_eq!(dependencies, [vec![], vec![0], vec![1]]);
    }
}
