//! Executes the steps of a program on the host.

use half::bf16;
use std::ops::Range;
use std::time::Instant;

use rayon::prelude::*;
use sweeper_program::builtin::{Call, CallArg, Slice, SliceMut};
use sweeper_program::{
    Arg, Binding, Dtype, Element, Geometry, Kernel, KernelId, Program, Step, View,
    with_element_type,
};

use super::calls;
use super::library::Entry;
use super::resolved::Calls;

/// Runs one program whose buffers have addresses.
pub struct Runner<'a> {
    program: &'a Program,
    entries: &'a [Option<Entry>],
    addresses: &'a [usize],
}

impl<'a> Runner<'a> {
    /// A runner; `addresses` has one for each buffer, `entries` one for each kernel.
    ///
    /// The program was validated: every view lies inside its buffer in every iteration.
    pub fn new(program: &'a Program, entries: &'a [Option<Entry>], addresses: &'a [usize]) -> Self {
        Runner {
            program,
            entries,
            addresses,
        }
    }

    /// Runs the program `iterations` times; the time of the timed steps alone, in nanoseconds.
    pub fn sample(&self, iterations: u32) -> f64 {
        if self.program.prologue.is_empty() {
            let calls = Calls::of(self);
            calls.touch();
            return timed(&calls, iterations);
        }
        (0..iterations).map(|_| self.sample_after(|| ())).sum()
    }

    /// The time of as many calls of a function that does nothing as the program makes, in
    /// nanoseconds of one iteration: the median of a few samples like those of the program.
    pub fn launch_floor(&self, iterations: u32, flush: impl Fn()) -> f64 {
        let empty = Calls::of(self).emptied();
        let samples = (0..FLOOR_SAMPLES).map(|_| {
            flush();
            timed(&empty, 1);
            timed(&empty, iterations) / f64::from(iterations)
        });
        let mut samples: Vec<f64> = samples.collect();
        samples.sort_by(f64::total_cmp);
        samples[FLOOR_SAMPLES / 2]
    }

    /// Runs the prologue.
    pub fn prologue(&self) {
        self.steps(&self.program.prologue, &mut Vec::new());
    }

    /// Runs some of the timed steps.
    pub fn part(&self, steps: Range<usize>) {
        self.steps(&self.program.steps[steps], &mut Vec::new());
    }

    /// Runs the program once, with `flush` between the prologue and the timed steps. Behind it what
    /// makes the calls is not cold: it has made as many that do nothing.
    pub fn sample_after(&self, flush: impl FnOnce()) -> f64 {
        self.steps(&self.program.prologue, &mut Vec::new());
        let calls = Calls::of(self);
        let empty = calls.emptied();
        flush();
        timed(&empty, 1);
        calls.touch();
        timed(&calls, 1)
    }

    /// The timed steps.
    pub(super) fn timed_steps(&self) -> &'a [Step] {
        &self.program.steps
    }

    /// A kernel, and its function if it is compiled.
    pub(super) fn entry(&self, kernel: KernelId) -> (&'a Kernel, Option<Entry>) {
        (&self.program.kernels[kernel.0], self.entries[kernel.0])
    }

    pub(super) fn steps(&self, steps: &[Step], iterations: &mut Vec<i64>) {
        for step in steps {
            match step {
                Step::Launch {
                    kernel,
                    geometry,
                    args,
                } => {
                    self.launch(*kernel, *geometry, args, iterations);
                }
                Step::Copy { from, to } => self.copy(from, to, iterations),
                Step::Fill { view, value } => self.fill(view, *value, iterations),
                Step::Repeat { count, body } => {
                    iterations.push(0);
                    for iteration in 0..*count as i64 {
                        if let Some(last) = iterations.last_mut() {
                            *last = iteration;
                        }
                        self.steps(body, iterations);
                    }
                    iterations.pop();
                }
            }
        }
    }

    fn launch(&self, kernel: KernelId, geometry: Geometry, args: &[Arg], iterations: &[i64]) {
        match (&self.program.kernels[kernel.0], &self.entries[kernel.0]) {
            (Kernel::Builtin(builtin), _) => {
                let args = args
                    .iter()
                    .map(|arg| self.call_arg(arg, iterations))
                    .collect();
                (builtin.function)(&mut Call::new(args));
            }
            (Kernel::Library(library), _) => {
                let addresses = args.iter().filter_map(|arg| match arg {
                    Arg::Read(view) | Arg::Write(view) => Some(self.address(view, iterations).0),
                    Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => None,
                });
                calls::run(library, &addresses.collect::<Vec<_>>());
            }
            (Kernel::Compiled(_), Some(entry)) => {
                let cells: Vec<u64> = args.iter().map(|arg| self.cell(arg, iterations)).collect();
                let blocks = geometry.grid[0];
                if blocks == 1 || rayon::current_num_threads() == 1 {
                    (0..blocks).for_each(|block| entry.call(&cells, block));
                } else {
                    (0..blocks)
                        .into_par_iter()
                        .for_each(|block| entry.call(&cells, block));
                }
            }
            (Kernel::Foreign(foreign), _) => {
                unreachable!("`prepare` refused `{}`", foreign.name)
            }
            (Kernel::Compiled(source), None) => {
                unreachable!(
                    "`{}` was loaded when the program was prepared",
                    source.entry
                )
            }
        }
    }

    fn address(&self, view: &View, iterations: &[i64]) -> (usize, Dtype) {
        let dtype = self.program.buffers[view.buffer.0].dtype;
        let offset = view.offset.at(iterations) as usize * dtype.size_bytes();
        (self.addresses[view.buffer.0] + offset, dtype)
    }

    pub(super) fn cell(&self, arg: &Arg, iterations: &[i64]) -> u64 {
        match arg {
            Arg::Read(view) | Arg::Write(view) => self.address(view, iterations).0 as u64,
            Arg::Int(index) => index.at(iterations) as u64,
            Arg::Float(value) => u64::from(value.to_bits()),
            Arg::Scalar(scalar) => scalar.bits(),
        }
    }

    fn call_arg(&self, arg: &Arg, iterations: &[i64]) -> CallArg<'a> {
        match arg {
            Arg::Read(view) => CallArg::Read(self.slice(view, iterations)),
            Arg::Write(view) => CallArg::Write(Some(self.slice_mut(view, iterations))),
            Arg::Int(index) => CallArg::Int(index.at(iterations)),
            Arg::Float(value) => CallArg::Float(*value),
            Arg::Scalar(_) => unreachable!("builtins take whole numbers and f32"),
        }
    }

    #[expect(unsafe_code, reason = "buffers are typed by their program")]
    fn slice(&self, view: &View, iterations: &[i64]) -> Slice<'a> {
        let (address, dtype) = self.address(view, iterations);
        // SAFETY: `Program::validate` keeps the view inside its buffer; buffers start at multiples
        // of 64 and offsets are whole elements, so it is aligned; any bytes are a valid number; and
        // `check_writes_are_exclusive` keeps mutable views of the launch apart from this one.
        unsafe {
            match dtype {
                Dtype::Bf16 => {
                    Slice::Bf16(std::slice::from_raw_parts(address as *const bf16, view.len))
                }
                Dtype::F32 => {
                    Slice::F32(std::slice::from_raw_parts(address as *const f32, view.len))
                }
                Dtype::F64 => {
                    Slice::F64(std::slice::from_raw_parts(address as *const f64, view.len))
                }
                Dtype::I32 => {
                    Slice::I32(std::slice::from_raw_parts(address as *const i32, view.len))
                }
                Dtype::I64 => {
                    Slice::I64(std::slice::from_raw_parts(address as *const i64, view.len))
                }
                other => unreachable!("no builtin takes {other}"),
            }
        }
    }

    #[expect(unsafe_code, reason = "buffers are typed by their program")]
    fn slice_mut(&self, view: &View, iterations: &[i64]) -> SliceMut<'a> {
        let (address, dtype) = self.address(view, iterations);
        // SAFETY: as in `slice`; no other view of the launch overlaps one that is written.
        unsafe {
            match dtype {
                Dtype::Bf16 => SliceMut::Bf16(std::slice::from_raw_parts_mut(
                    address as *mut bf16,
                    view.len,
                )),
                Dtype::F32 => SliceMut::F32(std::slice::from_raw_parts_mut(
                    address as *mut f32,
                    view.len,
                )),
                Dtype::F64 => SliceMut::F64(std::slice::from_raw_parts_mut(
                    address as *mut f64,
                    view.len,
                )),
                Dtype::I32 => SliceMut::I32(std::slice::from_raw_parts_mut(
                    address as *mut i32,
                    view.len,
                )),
                Dtype::I64 => SliceMut::I64(std::slice::from_raw_parts_mut(
                    address as *mut i64,
                    view.len,
                )),
                other => unreachable!("no builtin takes {other}"),
            }
        }
    }

    #[expect(unsafe_code, reason = "buffers are typed by their program")]
    fn copy(&self, from: &View, to: &View, iterations: &[i64]) {
        let (source, dtype) = self.address(from, iterations);
        let (destination, _) = self.address(to, iterations);
        let bytes = from.len * dtype.size_bytes();
        // SAFETY: both views lie inside their buffers and have one length (`Program::validate`),
        // and `check_writes_are_exclusive` keeps them apart.
        unsafe {
            std::ptr::copy_nonoverlapping(source as *const u8, destination as *mut u8, bytes);
        }
    }

    #[expect(unsafe_code, reason = "buffers are typed by their program")]
    fn fill(&self, view: &View, value: f64, iterations: &[i64]) {
        let (address, dtype) = self.address(view, iterations);
        with_element_type!(dtype, T => {
            // SAFETY: as in `slice_mut`.
            let elements =
                unsafe { std::slice::from_raw_parts_mut(address as *mut T, view.len) };
            elements.fill(T::from_f64(value));
        });
    }
}

/// Samples of calls that do nothing.
const FLOOR_SAMPLES: usize = 5;

/// Makes calls so many times; the time, in nanoseconds.
#[inline(never)]
fn timed(calls: &Calls<'_>, iterations: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..iterations {
        calls.run();
    }
    start.elapsed().as_nanos() as f64
}

/// Checks that no launch or copy writes memory that another of its arguments refers to.
///
/// # Errors
/// A sentence that names the buffer.
pub fn check_writes_are_exclusive(program: &Program) -> Result<(), String> {
    check_steps(program, &program.prologue, &mut Vec::new())?;
    check_steps(program, &program.steps, &mut Vec::new())
}

fn check_steps(program: &Program, steps: &[Step], counts: &mut Vec<u64>) -> Result<(), String> {
    for step in steps {
        match step {
            Step::Repeat { count, body } => {
                counts.push(*count);
                check_steps(program, body, counts)?;
                counts.pop();
            }
            Step::Launch { kernel, args, .. } => {
                let views: Vec<(&View, bool)> = args
                    .iter()
                    .filter_map(|arg| match arg {
                        Arg::Read(view) => Some((view, false)),
                        Arg::Write(view) => Some((view, true)),
                        Arg::Int(_) | Arg::Float(_) | Arg::Scalar(_) => None,
                    })
                    .collect();
                let is_compiled = matches!(program.kernels[kernel.0], Kernel::Compiled(_));
                check_views(program, &views, counts, is_compiled)?;
            }
            Step::Copy { from, to } => {
                if program.buffers[from.buffer.0].dtype != program.buffers[to.buffer.0].dtype {
                    return Err("a copy between buffers of different types".to_owned());
                }
                check_views(program, &[(from, false), (to, true)], counts, false)?;
            }
            Step::Fill { .. } => {}
        }
    }
    Ok(())
}

/// Views of one buffer, one of them written, must be disjoint in every iteration. There are few
/// such pairs and loops are a few thousand iterations long, so all iterations are tried. A kernel
/// that `may_update` may read the view of an updated buffer that it writes.
fn check_views(
    program: &Program,
    views: &[(&View, bool)],
    counts: &[u64],
    may_update: bool,
) -> Result<(), String> {
    for (position, &(one, one_written)) in views.iter().enumerate() {
        for &(other, other_written) in &views[position + 1..] {
            if one.buffer != other.buffer || !(one_written || other_written) {
                continue;
            }
            let buffer = &program.buffers[one.buffer.0];
            let is_updated = may_update && matches!(buffer.binding, Binding::Updated { .. });
            let is_one_view = one.offset == other.offset && one.len == other.len;
            if is_updated && is_one_view && one_written != other_written {
                continue;
            }
            if let Some(iterations) = find_overlap(one, other, counts) {
                return Err(format!(
                    "`{}` is written where it is used, at {iterations:?}",
                    buffer.name
                ));
            }
        }
    }
    Ok(())
}

fn find_overlap(one: &View, other: &View, counts: &[u64]) -> Option<Vec<i64>> {
    let total: u64 = counts.iter().product();
    (0..total)
        .map(|mut number| {
            let mut iterations = vec![0; counts.len()];
            for (slot, &count) in iterations.iter_mut().zip(counts).rev() {
                *slot = (number % count) as i64;
                number /= count;
            }
            iterations
        })
        .find(|iterations| {
            let (first, second) = (one.offset.at(iterations), other.offset.at(iterations));
            one.meets(first, other, second)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::builtin::Builtin;
    use sweeper_program::{BufferId, Index, Role, Rows};

    fn add(call: &mut Call<'_>) {
        let (from, to) = (call.read(0), call.write(1));
        for (to, from) in to.iter_mut().zip(from) {
            *to += from + call.float(2);
        }
    }

    /// Columns of one matrix may be written where other columns are used.
    #[test]
    fn rows_meet_where_their_columns_do() {
        let columns = |len| {
            let rows = Rows { len, step: 10 };
            View::new(BufferId(0), Index::fixed(0), 30 + len).in_rows(rows)
        };
        for (begin, len, meets) in [
            (4, 6, false),
            (3, 6, true),
            (4, 7, true),
            (14, 6, false),
            (0, 1, true),
            (34, 6, false),
            (40, 4, false),
        ] {
            let [one, other] = [columns(4), columns(len)];
            assert_eq!(one.meets(0, &other, begin), meets, "{begin} {len}");
            assert_eq!(other.meets(begin, &one, 0), meets, "{begin} {len}");
            let whole = View::new(BufferId(0), Index::fixed(0), 34);
            assert_eq!(whole.meets(0, &other, begin), begin < 34, "{begin}");
        }
    }

    /// Prefix sums: `x[i + 1] += x[i] + 1`, one element an iteration.
    fn prefix_sums(distance: i64) -> Program {
        let mut program = Program::default();
        let x = program.buffer("x", Dtype::F32, 5, Role::Output, Binding::Result);
        let kernel = program.kernel(Kernel::Builtin(Builtin {
            name: "test.add",
            function: add,
        }));
        let view = |base| View::new(BufferId(0), Index::affine(base, 0, 1), 1);
        let args = vec![
            Arg::Read(view(0)),
            Arg::Write(view(distance)),
            Arg::Float(1.0),
        ];
        let body = vec![Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args,
        }];
        program.prologue = vec![Step::Fill {
            view: program.all(x),
            value: 0.0,
        }];
        program.steps = vec![Step::Repeat { count: 4, body }];
        program
    }

    #[test]
    fn loops_move_views() {
        let program = prefix_sums(1);
        program.validate().unwrap();
        check_writes_are_exclusive(&program).unwrap();
        let mut x = [9f32; 5];
        let addresses = [x.as_mut_ptr() as usize];
        Runner::new(&program, &[None], &addresses).sample(2);
        assert_eq!(x, [0.0, 1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn overlapping_writes_are_refused() {
        let complaint = check_writes_are_exclusive(&prefix_sums(0)).unwrap_err();
        assert_eq!(complaint, "`x` is written where it is used, at [0]");
    }
}
