//! Times each operation of `streaming` against copying as many bytes as it reads and writes.
//!
//! `cargo bench --bench ops`, or `cargo bench --bench ops -- exp` for some. Sizes are those of one
//! position at T = 1024, K = 24, C = 12, B = 4; all operands, also of the copy, stay in the caches
//! that they fit in. The floor is a copy from one half of as many bytes to the other; an operation
//! in place is also compared with reading and writing its elements in place, which touches half the
//! memory. All are launches with as many arguments, and all times include making the list of
//! arguments, as a device does for each launch. Batches of the operation and of its floors
//! alternate, so that other work on the machine slows all; medians of batches. Where memory lies
//! within its page matters, to copies by a third: operands lie elsewhere in every ninth batch.

#![expect(clippy::print_stdout, reason = "a table for people")]

/// Launches, timed.
mod launch;
/// The placement of operands in memory.
mod memory;

use sweeper_program::builtin::{Builtin, Slice, SliceMut};
use sweeper_workloads::ops;

use launch::{Launch, ints};
use memory::Aligned;

const B: usize = 4;
const K: usize = 23;
const C: usize = 12;
/// Edges that end at one position, segments, states.
const EDGES: usize = B * K * C * C;
const SEGMENTS: usize = B * K * C;
const STATES: usize = B * C;

/// Does nothing.
const NOTHING: Builtin = Builtin {
    name: "bench.nothing",
    function: |_| {},
};

/// Start and steps of the operands of a sum over edges.
const ALL: [usize; 5] = [0, K * C * C, C * C, C, 1];
const SOURCES: [usize; 5] = [0, K * C, C, 0, 1];
const SUMS: [usize; 5] = [0, C, 0, 1, 0];
const DESTINATIONS: [usize; 5] = [0, K * C, C, 1, 0];
const SHAPE: [usize; 4] = [B, K, C, C];
/// And of one over segments, (B, K, C, 1).
const EACH: [usize; 5] = [0, K * C, C, 1, 0];
const SEGMENT_SHAPE: [usize; 4] = [B, K, C, 1];

fn loops(shape: [usize; 4], operands: &[[i64; 5]]) -> Vec<i64> {
    let mut all = ints(shape);
    all.extend(operands.iter().flatten());
    all
}

fn signed(steps: [usize; 5]) -> [i64; 5] {
    steps.map(|step| step as i64)
}

fn main() {
    let nothing = Launch {
        name: "21 arguments",
        builtin: NOTHING,
        reads: vec![],
        ints: ints([0; 21]),
        bytes: 8,
        in_place: None,
    };
    nothing.report(vec![]);
    on_edges();
    on_edges_in_place();
    functions();
    on_segments();
    on_positions_before();
    reductions();
    greatest();
    moves();
    states();
    rows();
}

fn on_edges() {
    let edges = Aligned::filled(-0.5f32, EDGES);
    let small = Aligned::filled(0.999f32, SEGMENTS);
    let mut out = Aligned::filled(0.5f32, EDGES);
    let table = [0, 0, 0, C, 1];
    let binary = [
        ("edges + states", ops::ADD, ALL, SOURCES, EDGES + SEGMENTS),
        ("scores - sums", ops::SUB, ALL, SUMS, EDGES + STATES),
        ("sums - scores", ops::SUB, SUMS, ALL, EDGES + STATES),
        (
            "segments + transition",
            ops::ADD,
            DESTINATIONS,
            table,
            SEGMENTS + C * C,
        ),
    ];
    for (name, builtin, a, b, reads) in binary {
        let [a_values, b_values] = [a, b].map(|steps| if steps == ALL { &edges } else { &small });
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(a_values.read()), Slice::F32(b_values.read())],
            ints: loops(SHAPE, &[signed(a), signed(b)]),
            bytes: 4 * (reads + EDGES),
            in_place: None,
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

fn on_edges_in_place() {
    let edges = Aligned::filled(0.999f32, EDGES);
    let mut out = Aligned::filled(1.0f32, EDGES);
    let in_place = [
        ("p * gradient", ops::MUL_IN_PLACE, SUMS, STATES),
        ("terms * entropies", ops::MUL_IN_PLACE, SOURCES, SEGMENTS),
        ("terms + sums", ops::ADD_IN_PLACE, SUMS, STATES),
        ("edges * edges", ops::MUL_IN_PLACE, ALL, EDGES),
    ];
    for (name, builtin, from, reads) in in_place {
        out.write().fill(1.0);
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(&edges.read()[..reads])],
            ints: loops(SHAPE, &[signed(from), signed(ALL)]),
            bytes: 4 * (reads + 2 * EDGES),
            in_place: (from != ALL).then_some(EDGES),
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

fn functions() {
    let edges = Aligned::filled(-0.5f32, EDGES);
    let mut out = Aligned::filled(0.5f32, EDGES);
    let launch = Launch {
        name: "edges",
        builtin: ops::EXP,
        reads: vec![Slice::F32(edges.read())],
        ints: ints([EDGES]),
        bytes: 8 * EDGES,
        in_place: None,
    };
    launch.report(vec![SliceMut::F32(out.write())]);
    for (name, builtin, len) in [
        ("edges", ops::EXP_IN_PLACE, EDGES),
        ("sums", ops::LN_IN_PLACE, STATES),
    ] {
        out.write().fill(0.5);
        let launch = Launch {
            name,
            builtin,
            reads: vec![],
            ints: ints([len]),
            bytes: 8 * len,
            in_place: Some(len),
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

/// The operations on scores of segments, and on sums.
fn on_segments() {
    let small = Aligned::filled(0.999f32, SEGMENTS.max(4 * K * C));
    let mut out = Aligned::filled(0.5f32, SEGMENTS);
    let older = [((K - 1) * C) as i64, 0, -(C as i64), 1, 0];
    let launch = Launch {
        name: "sums of scores, differences",
        builtin: ops::SUB,
        reads: vec![Slice::F32(small.read()), Slice::F32(small.read())],
        ints: loops(SEGMENT_SHAPE, &[signed([0, C, 0, 1, 0]), older]),
        bytes: 4 * (2 * STATES + K * C + SEGMENTS),
        in_place: None,
    };
    launch.report(vec![SliceMut::F32(out.write())]);
    let bias = signed([0, 0, C, 1, 0]);
    let flat = signed([0, 0, 0, 0, 1]);
    for (name, shape, steps, reads, touched) in [
        (
            "segments + bias",
            SEGMENT_SHAPE,
            [bias, signed(EACH)],
            K * C,
            SEGMENTS,
        ),
        (
            "sums + maxima",
            [1, 1, 1, STATES],
            [flat, flat],
            STATES,
            STATES,
        ),
    ] {
        let launch = Launch {
            name,
            builtin: ops::ADD_IN_PLACE,
            reads: vec![Slice::F32(small.read())],
            ints: loops(shape, &steps),
            bytes: 4 * reads + 8 * touched,
            in_place: Some(touched),
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

/// The operations that add to gradients of earlier positions, newest first: gradients of states lie
/// B rows apart, gradients of cumulative scores follow one another.
fn on_positions_before() {
    let small = Aligned::filled(0.999f32, SEGMENTS);
    let mut out = Aligned::filled(0.5f32, K * STATES);
    let older = |row: usize, sequence: usize| {
        [((K - 1) * row) as i64, sequence as i64, -(row as i64), 1, 0]
    };
    let each = signed(EACH);
    let flat = signed([0, 0, 0, 0, 1]);
    for (name, builtin, shape, steps, touched) in [
        (
            "states before",
            ops::ADD_IN_PLACE,
            SEGMENT_SHAPE,
            [each, older(STATES, C)],
            SEGMENTS,
        ),
        (
            "scores before",
            ops::SUB_IN_PLACE,
            SEGMENT_SHAPE,
            [each, older(C, K * C)],
            SEGMENTS,
        ),
        (
            "scores at the end",
            ops::ADD_IN_PLACE,
            [B, 1, C, 1],
            [signed([0, C, 0, 1, 0]), signed([0, K * C, 0, 1, 0])],
            STATES,
        ),
        (
            "gradient of the transition",
            ops::ADD_IN_PLACE,
            [1, 1, 1, C * C],
            [flat, flat],
            C * C,
        ),
    ] {
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(small.read())],
            ints: loops(shape, &steps),
            bytes: 12 * touched,
            in_place: Some(touched),
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

fn reductions() {
    let edges = Aligned::new((0..EDGES).map(|at| (at * 7 % 31) as f32));
    let mut out = Aligned::filled(0.0f32, K * C * C);
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
        ("over segments' durations", ops::SUM, [B, K, C, 1], STATES),
        (
            "over segments' sequences",
            ops::SUM,
            [1, B, K * C, 1],
            K * C,
        ),
    ];
    for (name, builtin, extents, written) in axes {
        let read: usize = extents.iter().product();
        let launch = Launch {
            name,
            builtin,
            reads: vec![Slice::F32(edges.read())],
            ints: ints(extents),
            bytes: 4 * (read + written),
            in_place: None,
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

fn greatest() {
    let edges = Aligned::new((0..EDGES).map(|at| (at * 7 % 31) as f32));
    let mut out = Aligned::filled(0.0f32, EDGES);
    let mut index = Aligned::filled(0i64, STATES);
    let bytes = 4 * (EDGES + STATES) + 8 * STATES;
    let launch = Launch {
        name: "over durations and sources",
        builtin: ops::ARGMAX,
        reads: vec![Slice::F32(edges.read())],
        ints: ints(SHAPE),
        bytes,
        in_place: None,
    };
    launch.report(vec![
        SliceMut::F32(out.write()),
        SliceMut::I64(index.write()),
    ]);
    let launch = Launch {
        name: "gradients of maxima",
        builtin: ops::SCATTER_INDEX,
        reads: vec![Slice::F32(edges.read()), Slice::I64(index.read())],
        ints: ints(SHAPE),
        bytes,
        in_place: None,
    };
    launch.report(vec![SliceMut::F32(out.write())]);
}

fn moves() {
    // Edges that end at one position lie K - 1 planes apart, in a tensor of 2 K positions.
    let rows = 2 * K;
    let edge = Aligned::filled(1.0f32, B * rows * (K + 1) * C * C);
    let mut out = Aligned::filled(0.0f32, B * rows * (K + 1) * C * C);
    let plane = C * C;
    let position = (K + 1) * plane;
    let apart = signed([(rows - 1) * position, rows * position, 0, C, 1]);
    let mut apart = apart;
    apart[2] = plane as i64 - position as i64;
    for (name, from, to) in [
        ("edges that end at a position", apart, signed(ALL)),
        ("gradients to their edges", signed(ALL), apart),
    ] {
        let launch = Launch {
            name,
            builtin: ops::COPY,
            reads: vec![Slice::F32(edge.read())],
            ints: loops(SHAPE, &[from, to]),
            bytes: 8 * EDGES,
            in_place: None,
        };
        launch.report(vec![SliceMut::F32(out.write())]);
    }
}

fn states() {
    let ring = Aligned::filled(1.0f64, (K + 1) * STATES);
    let mut window = Aligned::filled(0.0f64, SEGMENTS);
    let launch = Launch {
        name: "states",
        builtin: ops::RING_WINDOW,
        reads: vec![Slice::F64(ring.read())],
        ints: ints([K + 1, 3, B, K, C]),
        bytes: 16 * SEGMENTS,
        in_place: None,
    };
    launch.report(vec![SliceMut::F64(window.write())]);
    let mut reference = Aligned::filled(0.0f64, B);
    let launch = Launch {
        name: "window",
        builtin: ops::AMAX_F64,
        reads: vec![Slice::F64(window.read())],
        ints: ints([B, 1, 1, K * C]),
        bytes: 8 * (SEGMENTS + B),
        in_place: None,
    };
    launch.report(vec![SliceMut::F64(reference.write())]);
    let mut relative = Aligned::filled(0.0f32, SEGMENTS);
    let launch = Launch {
        name: "window",
        builtin: ops::RELATIVE,
        reads: vec![Slice::F64(window.read()), Slice::F64(reference.read())],
        ints: ints([B, K * C]),
        bytes: 12 * SEGMENTS,
        in_place: None,
    };
    launch.report(vec![SliceMut::F32(relative.write())]);
    let sums = Aligned::filled(1.0f32, STATES);
    let launch = Launch {
        name: "sums",
        builtin: ops::ABSOLUTE,
        reads: vec![Slice::F32(sums.read()), Slice::F64(reference.read())],
        ints: ints([B, C]),
        bytes: 12 * STATES,
        in_place: None,
    };
    launch.report(vec![SliceMut::F64(window.write())]);
}

fn rows() {
    let (states, sums) = (
        Aligned::filled(1.0f64, STATES),
        Aligned::filled(1.0f32, STATES),
    );
    let mut last = Aligned::filled(1.0f64, STATES);
    let lengths = Aligned::filled(7i64, B);
    for (name, wanted) in [("none ends here", 6), ("all end here", 7)] {
        let launch = Launch {
            name,
            builtin: ops::SELECT_ROWS,
            reads: vec![Slice::F64(states.read()), Slice::I64(lengths.read())],
            ints: ints([wanted, C, B]),
            bytes: if wanted == 7 { 16 * STATES } else { 8 * B },
            in_place: None,
        };
        launch.report(vec![SliceMut::F64(last.write())]);
    }
    let mut gradients = Aligned::filled(0.0f32, 8 * STATES);
    let launch = Launch {
        name: "gradients of last states",
        builtin: ops::SCATTER_ROWS,
        reads: vec![Slice::F32(sums.read()), Slice::I64(lengths.read())],
        ints: ints([0, C, B]),
        bytes: 8 * STATES + 8 * B,
        in_place: None,
    };
    launch.report(vec![SliceMut::F32(gradients.write())]);
}
