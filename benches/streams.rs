//! What an operation costs that is recorded in a stream, beside the cost of one eager launch on a
//! CPU. `cargo bench --bench streams`.
//!
//! Operations are made before the time is taken, but for those of known loops, whose values are
//! counted upwards meanwhile.

#![expect(clippy::print_stdout, reason = "a table for people")]
#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on stops")]

use std::hint::black_box;
use std::time::Instant;

use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job, RunsPrograms};
use sweeper_compiler::graph::Graph;
use sweeper_compiler::stream::{Answer, Definition, Kind, Operation, Stream, Tensor, Value};
use sweeper_program::builtin::Builtin;
use sweeper_program::{
    Arg, Binding, Dtype, Geometry, Kernel, Program, Role, Step, Tensor as Given, Tensors,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc; // as in the program

const ROUNDS: usize = 9;
const OPERATIONS: usize = 400_000;
const WORDS: usize = 100;

/// An operation with two operands and a result, by word.
#[derive(Clone, Copy)]
struct Made {
    word: usize,
    operands: [Tensor; 2],
    result: [Tensor; 1],
}

/// A client's operations.
#[derive(Default)]
struct Client {
    made: Vec<Made>,
    values: u64,
    random: u64,
}

impl Client {
    fn fresh(&mut self) -> Value {
        self.values += 1;
        Value(self.values)
    }

    fn below(&mut self, count: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % count
    }

    fn push(&mut self, word: usize, operands: [Value; 2]) -> Value {
        let result = self.fresh();
        self.made.push(Made {
            word,
            operands: operands.map(Tensor::new),
            result: [Tensor::new(result)],
        });
        result
    }

    /// Words whose operands were made among the last results, by chance.
    fn words(&mut self, words: impl IntoIterator<Item = usize>) {
        for word in words {
            let near = self.values.saturating_sub(self.below(50) as u64);
            let far = self.fresh();
            self.push(word, [Value(near), far]);
        }
    }

    /// Iterations of a training step of `period` operations: a chain over weights, back over its
    /// values, and a new value of each weight.
    fn train(&mut self, period: usize, weights: &mut Vec<Value>) {
        while weights.len() < period / 5 {
            let weight = self.fresh();
            weights.push(weight);
        }
        let chain = period - weights.len();
        let mut values = vec![self.fresh()];
        for at in 0..chain {
            let last = values[at];
            let other = match at > chain / 2 {
                true => values[chain - at],
                false if weights.is_empty() => last,
                false => weights[at % weights.len()],
            };
            let value = self.push((at * at + at / 7) % 61, [last, other]);
            values.push(value);
        }
        for (at, weight) in weights.iter_mut().enumerate() {
            *weight = self.push(99, [*weight, values[chain - at % (chain / 2 + 1)]]);
        }
    }

    fn trained(period: usize) -> Self {
        let mut client = Client::default();
        let mut weights = vec![];
        while client.made.len() < OPERATIONS {
            client.train(period, &mut weights);
        }
        client
    }
}

fn definition(word: usize) -> Definition {
    let mut graph = Graph::new();
    let [a, b] = ["a", "b"].map(|name| {
        let input = graph.input(name, &[64, 64], Dtype::F32, Role::Input);
        input.unwrap()
    });
    let scaled = graph.scale(a, 1.0 + word as f64).unwrap();
    let out = graph.add(scaled, b).unwrap();
    graph.output("out", out, Role::Output);
    Definition::new(&graph)
}

/// A stream that knows all words.
fn stream() -> (Stream, Vec<Kind>) {
    let mut stream = Stream::new();
    let kinds = (0..WORDS).map(|word| stream.define(definition(word)));
    let kinds = kinds.collect();
    (stream, kinds)
}

fn record(stream: &mut Stream, kinds: &[Kind], made: &Made) -> Answer {
    stream.record(&Operation {
        kind: kinds[made.word],
        operands: &made.operands,
        results: &made.result,
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds an operation from the first one on, and how many paths were found.
fn whole(made: &[Made]) -> (f64, usize) {
    let mut found = 0;
    let once = |_| {
        let (mut stream, kinds) = stream();
        found = 0;
        let start = Instant::now();
        for made in made {
            let answer = record(&mut stream, &kinds, made);
            found += usize::from(matches!(answer, Answer::Found(_)));
        }
        start.elapsed().as_secs_f64() * 1e9 / made.len() as f64
    };
    (median((0..ROUNDS).map(once).collect()), found)
}

/// Nanoseconds an operation up to the one with which the last loop is found.
fn until_found(made: &[Made], period: usize) -> (f64, usize) {
    let (mut stream, kinds) = stream();
    let is_it = |made: &Made| match record(&mut stream, &kinds, made) {
        Answer::Found(path) => stream.path(path).unwrap().period() == period,
        _ => false,
    };
    let count = made.iter().position(is_it).unwrap() + 1;
    (whole(&made[..count]).0, count)
}

/// Nanoseconds an operation of a loop that is known, and maybe adopted. `made` are the operations
/// of its first iterations; later ones have other values and are made while time is taken. Without
/// recording them it is the time of that.
fn followed(made: &[Made], period: usize, [is_recorded, is_adopted]: [bool; 2]) -> f64 {
    let (mut stream, kinds) = stream();
    let known = 10.max(60 / period) * period;
    for made in &made[..known] {
        if let Answer::Found(path) = record(&mut stream, &kinds, made)
            && is_adopted
        {
            stream.adopt(path);
        }
    }
    // Values are numbers that grow by as many in each iteration.
    let mut iteration = made[known..known + period].to_vec();
    let step = iteration[0].result[0].value.0 - made[known - period].result[0].value.0;
    let mut once = |_| {
        let iterations = OPERATIONS / period;
        let start = Instant::now();
        for _ in 0..iterations {
            for made in &mut iteration {
                match is_recorded {
                    true => _ = black_box(record(&mut stream, &kinds, made)),
                    false => _ = black_box(&made),
                }
                for tensor in made.operands.iter_mut().chain(&mut made.result) {
                    tensor.value.0 += step;
                }
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / (iterations * period) as f64
    };
    median((0..ROUNDS).map(&mut once).collect())
}

/// Work that takes the caches for itself, as kernels do: it reads and writes 32 KiB of its memory,
/// another part each time.
struct Kernels {
    memory: Vec<u64>,
    at: usize,
}

impl Kernels {
    /// Words of one launch.
    const WORDS: usize = (32 << 10) / 8;

    /// Kernels that have 4 MiB of memory together, more than a second-level cache has.
    fn new() -> Self {
        Kernels {
            memory: vec![1; 128 * Self::WORDS],
            at: 0,
        }
    }

    fn launch(&mut self) {
        let words = &mut self.memory[self.at..][..Self::WORDS];
        for word in words {
            *word = word.wrapping_mul(3);
        }
        self.at = (self.at + Self::WORDS) % self.memory.len();
    }
}

/// Nanoseconds that recording adds to an operation of a loop whose kernels take the caches: of the
/// first operations, until the loop is found and followed, or of later ones.
fn between_kernels(made: &[Made], period: usize, [is_known, is_adopted]: [bool; 2]) -> f64 {
    let iterations = if is_known {
        100
    } else {
        60usize.div_ceil(period)
    };
    let known = if is_known { 10.max(60 / period) } else { 0 } * period;
    let mut kernels = Kernels::new();
    let mut once = |is_recorded: bool| {
        let (mut stream, kinds) = stream();
        for made in &made[..known] {
            if let Answer::Found(path) = record(&mut stream, &kinds, made)
                && is_adopted
            {
                stream.adopt(path);
            }
        }
        let operations = &made[known..known + iterations * period];
        let start = Instant::now();
        for made in operations {
            if is_recorded {
                black_box(record(&mut stream, &kinds, made));
            }
            kernels.launch();
        }
        start.elapsed().as_secs_f64() * 1e9 / operations.len() as f64
    };
    let rounds = if is_known { 5 * ROUNDS } else { 40 * ROUNDS };
    let differences = (0..rounds).map(|_| once(true) - once(false));
    median(differences.collect())
}

/// Nanoseconds of one launch of a program on a CPU: one that copies nearly nothing.
fn launch() -> f64 {
    const LAUNCHES: usize = 1000;
    const COPY: Builtin = Builtin {
        name: "bench.copy",
        function: |call| call.write(1).copy_from_slice(call.read(0)),
    };
    let mut program = Program::default();
    let from = program.buffer("from", Dtype::F32, 16, Role::Input, Binding::Given);
    let to = program.buffer("to", Dtype::F32, 16, Role::Output, Binding::Scratch);
    let kernel = program.kernel(Kernel::Builtin(COPY));
    for _ in 0..LAUNCHES {
        let args = vec![Arg::Read(program.all(from)), Arg::Write(program.all(to))];
        program.steps.push(Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args,
        });
    }
    let inputs: Tensors = [("from".to_owned(), Given::f32([16], vec![1.0; 16]))].into();
    let mut device = Cpu::new(1).unwrap();
    device.bind(&inputs).unwrap();
    let job = Job {
        program,
        artifacts: &[],
        script: None,
    };
    let prepared = device.prepare(job).unwrap();
    let once = |_| device.sample(prepared, 10).unwrap().elapsed_ns / (10 * LAUNCHES) as f64;
    median((0..ROUNDS).map(once).collect())
}

fn print_between_kernels() {
    for period in [7, 25, 200] {
        let made = Client::trained(period).made;
        for (words, which) in [
            ("first ones", [false, false]),
            ("followed", [true, false]),
            ("adopted", [true, true]),
        ] {
            let added = between_kernels(&made, period, which);
            println!("period {period:4}: between kernels, {words:10} {added:7.1} ns");
        }
    }
}

fn main() {
    let mut client = Client::default();
    let words: Vec<usize> = (0..OPERATIONS).map(|_| client.below(WORDS)).collect();
    client.words(words);
    println!("one eager launch            {:7.1} ns", launch());
    println!(
        "noise of 100 words          {:7.1} ns",
        whole(&client.made).0
    );
    let mut client = Client::default();
    let words: Vec<usize> = (0..OPERATIONS).map(|_| client.below(2)).collect();
    client.words(words);
    println!(
        "noise of 2 words            {:7.1} ns",
        whole(&client.made).0
    );
    let mut client = Client::default();
    client.words((0..OPERATIONS as u64).map(|at| (at.count_ones() % 2) as usize));
    println!(
        "the Thue-Morse word         {:7.1} ns",
        whole(&client.made).0
    );
    for period in [3, 25, 800, 4096] {
        let made = Client::trained(period).made;
        let (until, count) = until_found(&made, period);
        println!("period {period:4}: until found     {until:7.1} ns, {count} operations");
        let alone = followed(&made, period, [false; 2]);
        println!("period {period:4}: counting alone  {alone:7.1} ns");
        println!(
            "period {period:4}: followed        {:7.1} ns",
            followed(&made, period, [true, false])
        );
        println!(
            "period {period:4}: adopted         {:7.1} ns",
            followed(&made, period, [true, true])
        );
    }
    print_between_kernels();
    let mut client = Client::default();
    let (mut weights, mut iterations) = (vec![], 0);
    while client.made.len() < OPERATIONS {
        client.train(120, &mut weights);
        iterations += 1;
        if iterations % 10 == 0 {
            let count = 20 + client.below(30);
            let words: Vec<usize> = (0..count).map(|_| client.below(WORDS)).collect();
            client.words(words);
        }
    }
    println!(
        "period 120, interrupted     {:7.1} ns",
        whole(&client.made).0
    );
}
