//! Generated kernels in C against copying as many bytes as they must read and write.
//!
//! `cargo bench --bench nests -- [word]...`: words choose among nests. Kernel and copy run
//! interleaved in one process on one thread, once with rows that stay in a core's cache and once
//! with more than any cache holds; medians. Nanoseconds an element are the time of one thread.

#![expect(clippy::print_stdout, reason = "a table for people")]
#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on stops")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sweeper::compile::cc::Cc;
use sweeper::compile::digests::Digests;
use sweeper::device::cpu::Cpu;
use sweeper::device::{Artifact, Device, Job, Prepared, RunsPrograms};
use sweeper_compiler::codegen::Generated;
use sweeper_compiler::nest::{Bounds, CrossBlock, Extents, Launch, Memory, Nest, Stride};
use sweeper_program::builtin::Builtin;
use sweeper_program::{
    Arg, Binding, Data, Dtype, Geometry, Index, Kernel, KernelSource, Program, Role, Step, Target,
    Tensor, Tensors, View,
};

#[path = "../tests/it/codegen/nests.rs"]
#[expect(dead_code, reason = "tests have more nests than this")]
mod nests;

const ROUNDS: usize = 15;
/// A sample lasts at least this long.
const SAMPLE_NS: f64 = 2e6;
const COLUMNS: u64 = 512;
/// Rows of a megabyte, and of a quarter of a gigabyte for each operand.
const ROWS: [u64; 2] = [256, 131_072];

/// Copies argument 0 to argument 1.
const COPY: Builtin = Builtin {
    name: "bench.copy",
    function: |call| call.write(1).copy_from_slice(call.read(0)),
};

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let all = [
        nests::layernorm(),
        nests::layernorm_backward(),
        nests::softmax(),
        nests::cross_entropy(),
        nests::gelu_of_bias(),
        nests::squared_error(),
        nests::column_sum(CrossBlock::Partials),
    ];
    for nest in &all {
        if words.is_empty() || words.iter().any(|word| nest.name.contains(word)) {
            ROWS.into_iter().for_each(|rows| report(nest, rows));
        }
    }
}

/// Times a nest and its floor, and prints a line.
fn report(nest: &Nest, rows: u64) {
    let (program, inputs, bytes) = program(nest, rows);
    let (floor, floor_inputs) = copy(bytes);
    let mut device = [Cpu::new(1).unwrap(), Cpu::new(1).unwrap()];
    device[0].bind(&inputs).unwrap();
    device[1].bind(&floor_inputs).unwrap();
    let prepared = [
        prepare(&mut device[0], program),
        prepare(&mut device[1], floor),
    ];
    let mut times = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for at in 0..2 {
            times[at].push(sample(&mut device[at], prepared[at]));
        }
    }
    let [own, floor] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!(
        "{:<20} {rows:>7} x {COLUMNS} {:>9.1} us {:>6.1} GB/s {:>6.2} x copy {:>6.2} ns an element",
        nest.name,
        own / 1e3,
        bytes as f64 / own,
        own / floor,
        own / (rows * COLUMNS) as f64
    );
}

/// Nanoseconds of one iteration.
fn sample(device: &mut Cpu, prepared: Prepared) -> f64 {
    let mut iterations = 1;
    loop {
        let sample = device.sample(prepared, iterations).unwrap();
        if sample.elapsed_ns >= SAMPLE_NS {
            return sample.elapsed_ns / f64::from(iterations);
        }
        iterations *= 2;
    }
}

fn prepare(device: &mut Cpu, program: Program) -> Prepared {
    let cc = Cc::find(None, &Digests::default(), &AtomicBool::new(false)).unwrap();
    let artifact = |source: &KernelSource| Artifact {
        key: source.title(),
        bytes: cc
            .compile(
                source,
                &sweeper::compile::Bounds::within(Duration::from_secs(60)),
            )
            .unwrap()
            .into(),
        symbols: Default::default(),
    };
    let artifacts: Vec<Artifact> = program.sources().into_iter().map(artifact).collect();
    let job = Job {
        program,
        artifacts: &artifacts,
        script: None,
    };
    device.prepare(job).unwrap()
}

/// One launch of a nest on dense operands, its inputs, and the bytes it must read and write.
fn program(nest: &Nest, rows: u64) -> (Program, Tensors, usize) {
    let bounds = Bounds {
        columns: Some(COLUMNS),
        ..Bounds::default()
    };
    let generated = Generated::new(nest, bounds, &Target::Cpu).unwrap();
    let extents = Extents {
        rows: vec![rows],
        columns: COLUMNS,
    };
    let parts = generated.partial_count(&extents);
    let mut program = Program::default();
    let (mut inputs, mut operands, mut bytes) = (Tensors::new(), vec![], 0);
    for (at, operand) in nest.operands.iter().enumerate() {
        let [has_rows, has_columns] =
            [operand.rows[0], operand.columns].map(|step| step != Stride::Broadcast);
        let columns = if has_columns { COLUMNS } else { 1 };
        let outer = match (has_rows, operand.is_written) {
            (true, _) => rows as usize,
            (false, true) => parts,
            (false, false) => 1,
        };
        let len = outer * columns as usize;
        bytes += len * operand.dtype.size_bytes();
        let (role, binding) = match operand.is_written {
            true => (Role::Output, Binding::Scratch),
            false => (Role::Input, Binding::Given),
        };
        let name = format!("operand{at}");
        let buffer = program.buffer(name.clone(), operand.dtype, len, role, binding);
        operands.push(Memory {
            view: View::new(buffer, Index::fixed(0), len),
            rows: vec![if has_rows { columns as i64 } else { 0 }],
            columns: i64::from(has_columns),
            index_step: 0,
        });
        if !operand.is_written {
            let data = match operand.dtype {
                Dtype::I64 => Data::I64((0..len as i64).map(|at| at % COLUMNS as i64).collect()),
                _ => Data::F32(
                    (0..len)
                        .map(|at| (at * 7 % 31) as f32 / 16.0 - 1.0)
                        .collect(),
                ),
            };
            inputs.insert(name, Tensor::new([len], data));
        }
    }
    let launch = Launch {
        extents,
        operands,
        scalars: vec![1.0 / COLUMNS as f32, 1e-5],
    };
    let kernel = program.kernel(generated.kernel());
    program
        .steps
        .push(generated.launch(kernel, &launch).unwrap());
    (program, inputs, bytes)
}

/// A copy that reads and writes so many bytes together.
fn copy(bytes: usize) -> (Program, Tensors) {
    let len = bytes / 8;
    let mut program = Program::default();
    let from = program.buffer("from", Dtype::F32, len, Role::Input, Binding::Given);
    let to = program.buffer("to", Dtype::F32, len, Role::Output, Binding::Scratch);
    let kernel = program.kernel(Kernel::Builtin(COPY));
    let args = vec![Arg::Read(program.all(from)), Arg::Write(program.all(to))];
    program.steps.push(Step::Launch {
        kernel,
        geometry: Geometry::blocks(1),
        args,
    });
    let inputs = [("from".to_owned(), Tensor::f32([len], vec![1.0; len]))];
    (program, inputs.into())
}
