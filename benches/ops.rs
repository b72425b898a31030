//! Times each operation of the eager backends against copying as many bytes as it reads and writes.
//!
//! `cargo bench --bench ops`. Sizes are those of one position at T = 1024, K = 24, C = 12, B = 4; all
//! operands stay in the caches that they fit in, and so do the copy's. The time of an operation is the
//! median of batches, and includes making its list of arguments, as a device does for each launch.

#![expect(clippy::print_stdout, reason = "a table for people")]

use std::hint::black_box;
use std::time::Instant;

use sweeper_kernels::builtin::{Builtin, Call, CallArg, Slice, SliceMut};
use sweeper_kernels::ops;

const B: usize = 4;
const K: usize = 23;
const C: usize = 12;
/// Edges that end at one position, segments, states.
const EDGES: usize = B * K * C * C;
const SEGMENTS: usize = B * K * C;
const STATES: usize = B * C;

const BATCHES: usize = 41;
const CALLS: usize = 200;

/// Seconds of one call.
fn time(mut call: impl FnMut()) -> f64 {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            start.elapsed().as_secs_f64() / CALLS as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

/// Seconds to copy so that `bytes` are read and written in all.
fn copy_time(bytes: usize) -> f64 {
    let from = vec![1.0f32; (bytes / 8).max(1)];
    let mut to = vec![0.0f32; from.len()];
    time(|| black_box(&mut to[..]).copy_from_slice(black_box(&from)))
}

/// Memory of a launch: what is read, what is written, and how much is touched.
struct Launch<'a> {
    name: &'a str,
    builtin: Builtin,
    reads: Vec<Slice<'a>>,
    ints: Vec<i64>,
    bytes: usize,
}

impl Launch<'_> {
    fn report(&self, mut writes: Vec<SliceMut<'_>>) {
        let function = self.builtin.function;
        let seconds = time(|| {
            let reads = self.reads.iter().map(|&slice| CallArg::Read(slice));
            let mut args: Vec<CallArg<'_>> = reads.collect();
            args.extend(
                writes
                    .iter_mut()
                    .map(|write| CallArg::Write(Some(again(write)))),
            );
            args.extend(self.ints.iter().map(|&value| CallArg::Int(value)));
            function(black_box(&mut Call::new(args)));
        });
        let floor = copy_time(self.bytes);
        println!(
            "{:<24} {:<42} {:>9} B {:>9.3} us {:>7.1} GB/s {:>6.2} x copy",
            self.builtin.name,
            self.name,
            self.bytes,
            seconds * 1e6,
            self.bytes as f64 / seconds / 1e9,
            seconds / floor
        );
    }
}

/// The same memory for one more call.
fn again<'a>(slice: &'a mut SliceMut<'_>) -> SliceMut<'a> {
    match slice {
        SliceMut::F32(values) => SliceMut::F32(values),
        SliceMut::F64(values) => SliceMut::F64(values),
        SliceMut::I32(values) => SliceMut::I32(values),
        SliceMut::I64(values) => SliceMut::I64(values),
    }
}

fn ints<const N: usize>(values: [usize; N]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// Steps of what the operands of a sum over edges look like.
const ALL: [usize; 5] = [0, K * C * C, C * C, C, 1];
const SOURCES: [usize; 5] = [0, K * C, C, 0, 1];
const SUMS: [usize; 5] = [0, C, 0, 1, 0];
const DESTINATIONS: [usize; 5] = [0, K * C, C, 1, 0];
const SHAPE: [usize; 4] = [B, K, C, C];

fn loops(operands: &[[usize; 5]]) -> Vec<i64> {
    let mut all = ints(SHAPE);
    all.extend(operands.iter().flatten().map(|&value| value as i64));
    all
}

fn main() {
    elementwise();
    reductions();
    moves();
    states();
}

fn elementwise() {
    let edges = vec![-0.5f32; EDGES];
    let small = vec![0.999f32; SEGMENTS];
    let mut out = vec![0.5f32; EDGES];
    let binary = [
        ("edges + states", ops::ADD, ALL, SOURCES, EDGES + SEGMENTS),
        ("scores - maxima", ops::SUB, ALL, SUMS, EDGES + STATES),
        (
            "segments + transition",
            ops::ADD,
            DESTINATIONS,
            [0, 0, 0, C, 1],
            SEGMENTS + C * C,
        ),
    ];
    for (name, builtin, a, b, reads) in binary {
        let from = if a == ALL { &edges } else { &small };
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(from), Slice::F32(&small)],
            ints: loops(&[a, b]),
            bytes: 4 * (reads + EDGES),
        };
        launch.report(vec![SliceMut::F32(&mut out)]);
    }
    let in_place = [
        ("p * gradient", ops::MUL_IN_PLACE, SUMS, STATES),
        ("terms * entropies", ops::MUL_IN_PLACE, SOURCES, SEGMENTS),
        ("edges += edges", ops::ADD_IN_PLACE, ALL, EDGES),
    ];
    for (name, builtin, from, reads) in in_place {
        out.fill(1.0);
        let x = if from == ALL { &edges } else { &small };
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(x)],
            ints: loops(&[from, ALL]),
            bytes: 4 * (reads + 2 * EDGES),
        };
        launch.report(vec![SliceMut::F32(&mut out)]);
    }
    let launch = Launch {
        name: "edges",
        builtin: ops::EXP,
        reads: vec![Slice::F32(&edges)],
        ints: ints([EDGES]),
        bytes: 8 * EDGES,
    };
    launch.report(vec![SliceMut::F32(&mut out)]);
    for builtin in [ops::EXP_IN_PLACE, ops::LN_IN_PLACE] {
        out.fill(0.5);
        let launch = Launch {
            name: "edges, in place",
            builtin,
            reads: vec![],
            ints: ints([EDGES]),
            bytes: 8 * EDGES,
        };
        launch.report(vec![SliceMut::F32(&mut out)]);
    }
}

fn reductions() {
    let edges: Vec<f32> = (0..EDGES).map(|at| (at * 7 % 31) as f32).collect();
    let mut out = vec![0.0f32; SEGMENTS];
    let mut index = vec![0i64; STATES];
    let axes = [
        (
            "over durations and sources",
            ops::AMAX,
            [B, K, C, C],
            STATES,
        ),
        ("over durations and sources", ops::SUM, [B, K, C, C], STATES),
        ("over destinations", ops::SUM, [B * K, C, C, 1], SEGMENTS),
        ("over sources", ops::SUM, [1, 1, B * K * C, C], SEGMENTS),
        (
            "over sequences and durations",
            ops::SUM,
            [1, B * K, C * C, 1],
            C * C,
        ),
        ("over sequences", ops::SUM, [1, B, K * C * C, 1], K * C * C),
    ];
    out.resize(K * C * C, 0.0);
    for (name, builtin, extents, written) in axes {
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(&edges)],
            ints: ints(extents),
            bytes: 4 * (EDGES + written),
        };
        launch.report(vec![SliceMut::F32(&mut out)]);
    }
    let launch = Launch {
        name: "over durations and sources",
        builtin: ops::ARGMAX,
        reads: vec![Slice::F32(&edges)],
        ints: ints([B, K, C, C]),
        bytes: 4 * (EDGES + STATES) + 8 * STATES,
    };
    launch.report(vec![SliceMut::F32(&mut out), SliceMut::I64(&mut index)]);
}

fn moves() {
    // Edges that end at one position lie K - 1 planes apart, in a tensor of 2 K positions.
    let rows = 2 * K;
    let edge = vec![1.0f32; B * rows * (K + 1) * C * C];
    let mut out = vec![0.0f32; EDGES];
    let plane = C * C;
    let position = (K + 1) * plane;
    let mut args = ints([B, K, C, C, (rows - 1) * position, rows * position]);
    args.push(plane as i64 - position as i64);
    args.extend(ints([C, 1, 0, K * plane, plane, C, 1]));
    let launch = Launch {
        name: "edges that end at a position",
        builtin: ops::COPY,
        reads: vec![Slice::F32(&edge)],
        ints: args,
        bytes: 8 * EDGES,
    };
    launch.report(vec![SliceMut::F32(&mut out)]);
    let (sums, index) = (vec![1.0f32; STATES], vec![7i64; STATES]);
    let launch = Launch {
        name: "gradients of maxima",
        builtin: ops::SCATTER_INDEX,
        reads: vec![Slice::F32(&sums), Slice::I64(&index)],
        ints: ints([B, K, C, C]),
        bytes: 4 * (EDGES + STATES) + 8 * STATES,
    };
    launch.report(vec![SliceMut::F32(&mut out)]);
}

fn states() {
    let ring = vec![1.0f64; (K + 1) * STATES];
    let mut window = vec![0.0f64; SEGMENTS];
    let launch = Launch {
        name: "states",
        builtin: ops::RING_WINDOW,
        reads: vec![Slice::F64(&ring)],
        ints: ints([K + 1, 3, B, K, C]),
        bytes: 16 * SEGMENTS,
    };
    launch.report(vec![SliceMut::F64(&mut window)]);
    let mut reference = vec![0.0f64; B];
    let launch = Launch {
        name: "window",
        builtin: ops::AMAX_F64,
        reads: vec![Slice::F64(&window)],
        ints: ints([B, 1, 1, K * C]),
        bytes: 8 * (SEGMENTS + B),
    };
    launch.report(vec![SliceMut::F64(&mut reference)]);
    let mut relative = vec![0.0f32; SEGMENTS];
    let launch = Launch {
        name: "window",
        builtin: ops::RELATIVE,
        reads: vec![Slice::F64(&window), Slice::F64(&reference)],
        ints: ints([B, K * C]),
        bytes: 12 * SEGMENTS,
    };
    launch.report(vec![SliceMut::F32(&mut relative)]);
}
