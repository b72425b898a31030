//! Totals that are added up in the launch that leaves their parts.

use std::path::Path;

use sweeper_compiler::codegen::{Generated, Partials};
use sweeper_compiler::graph::op::{Binary, Reduction, Unary};
use sweeper_compiler::nest::{Bounds, Extents, Launch, Memory, Nest, Over, Stride, Value};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Binding, BufferId, Data, Dtype, Index, Kernel, KernelId, KernelSource, Program, Role, Step,
    Target, Tensor, Tensors, View, check,
};

use super::harness::{ARCHS, Case, Place, report, waits};
use super::interpret;
use super::nests::{self, Build, CELLS, OF_COLUMNS, ONE};
use crate::shim::{self, Blocks, Mode};
use crate::support::golden;

/// A kernel that stores partials, and the nest that combines them.
struct Total {
    first: Case,
    last: Nest,
}

/// The mean: the sum times a number of the launch.
fn mean() -> Nest {
    let mut b = Build::new("mean", 1);
    let scale = b.add(Value::Scalar(0));
    let parts = b.load(&OF_COLUMNS);
    let total = b.sum(Over::All, parts);
    let mean = b.binary(Binary::Mul, total, scale);
    b.store(&ONE, mean);
    b.one()
}

/// Two sums.
fn two_sums() -> Nest {
    let mut b = Build::new("sums", 1);
    for _ in 0..2 {
        let parts = b.load(&OF_COLUMNS);
        let total = b.sum(Over::All, parts);
        b.store(&ONE, total);
    }
    b.one()
}

/// The sum of squares and the greatest element, and exponentials of all.
fn two_totals() -> Nest {
    let mut b = Build::new("norms", 1);
    let (x, bias) = (b.load(&CELLS), b.load(&OF_COLUMNS));
    let x = b.binary(Binary::Add, x, bias);
    let power = b.unary(Unary::Exp, x);
    let square = b.binary(Binary::Mul, x, x);
    let total = b.sum(Over::All, square);
    let most = b.reduce(Reduction::Max, Over::All, x);
    b.store(&CELLS, power);
    b.store(&ONE, total);
    b.store(&ONE, most);
    b.0
}

/// The root of the first total over the second one, and the second one.
fn norm() -> Nest {
    let mut b = Build::new("norm", 1);
    let (squares, most) = (b.load(&OF_COLUMNS), b.load(&OF_COLUMNS));
    let (total, most) = (
        b.sum(Over::All, squares),
        b.reduce(Reduction::Max, Over::All, most),
    );
    let root = b.unary(Unary::Sqrt, total);
    let ratio = b.binary(Binary::Div, root, most);
    b.store(&ONE, ratio);
    b.store(&ONE, most);
    b.one()
}

/// All kinds of first kernels: pieces of one long row, rows that a group reduces, a lone block,
/// many.
fn totals() -> Vec<Total> {
    let of = |first, last| Total { first, last };
    let error = |rows, columns| Case::new(nests::squared_error(), &[rows], columns);
    let entropy = |rows, columns| Case::new(nests::cross_entropy(), &[rows], columns);
    let target = Place::Shim(Mode::Fast).target();
    let likelihood = |rows, columns| Case::new(nests::log_likelihood(), &[rows], columns);
    let masked = |rows, columns| Case::new(nests::masked_exponentials(), &[rows], columns);
    let full = |case: Case| case.filled(&target).last().unwrap();
    let only = |case: Case| case.only(&target);
    vec![
        of(error(1, 5), mean()),
        of(error(3, 17).padded(3), mean()),
        of(error(200, 1025).unbounded(), mean()),
        of(error(700, 30).padded(1), mean()),
        of(entropy(1, 1), mean()),
        of(entropy(300, 17), mean()),
        of(entropy(40, 4097).unbounded(), mean()),
        of(Case::new(two_totals(), &[1], 4), norm()),
        of(Case::new(two_totals(), &[333], 70), norm()),
        of(Case::new(two_totals(), &[90], 1025).unbounded(), norm()),
        of(full(error(1, 70 * 8192)), mean()),
        of(full(error(3, 8192)), mean()),
        of(full(entropy(300, 32)), mean()),
        of(full(entropy(300, 192)), mean()),
        of(only(error(1, 70 * 8192)), mean()),
        of(only(error(3, 17).padded(3)), mean()),
        of(only(error(200, 1025).unbounded()), mean()),
        of(only(entropy(300, 32)), mean()),
        of(only(entropy(300, 768)), mean()),
        of(only(entropy(35, 1000)), mean()),
        of(only(entropy(40, 4097).unbounded()), mean()),
        of(only(likelihood(1, 16)), mean()),
        of(only(likelihood(300, 512)), mean()),
        of(only(likelihood(35, 768)), mean()),
        of(only(likelihood(5, 4096)), mean()),
        of(only(masked(300, 32)), two_sums()),
        of(only(masked(35, 512)), two_sums()),
        of(only(masked(6, 2048)), two_sums()),
        // Rows that are all far below any exponent of a normal number.
        of(only(entropy(35, 1000).shifted(-1000.0)), mean()),
        of(only(likelihood(35, 768).shifted(-1000.0)), mean()),
        // Many rows, and more than there are parts at most.
        of(error(1100, 30).padded(1), mean()),
        of(entropy(1500, 17), mean()),
        of(full(entropy(1500, 32)), mean()),
        of(only(likelihood(1500, 512)), mean()),
        of(only(entropy(17_000, 32)), mean()),
        of(only(likelihood(17_000, 16)), mean()),
    ]
}

/// The tensors of a total's launches.
struct Made {
    program: Program,
    /// Inputs of all launches, one after the other.
    inputs: Tensors,
    /// Inputs of the last launch.
    last_inputs: Tensors,
    specs: Vec<TensorSpec>,
    launches: [Launch; 2],
}

/// Number of launches of a total.
const LAUNCHES: usize = 3;

/// The contents of a tensor for each launch: numbers become smaller from launch to launch, and
/// labels change.
fn of_launches(tensor: &Tensor) -> Data {
    let earlier = (0..LAUNCHES).rev();
    match tensor.data() {
        Data::F32(values) => {
            let scaled = |by: usize| values.iter().map(move |x| x * (1.0 + by as f32 / 2.0));
            Data::F32(earlier.flat_map(scaled).collect())
        }
        Data::I64(values) => {
            let turned = |by: usize| {
                let (before, after) = values.split_at(by.min(values.len()));
                after.iter().chain(before).copied()
            };
            Data::I64(earlier.flat_map(turned).collect())
        }
        data => panic!("{data:?}"),
    }
}

/// Lets a launch read memory that is filled with the inputs of each iteration. Returns the steps
/// that fill it.
fn copies(program: &mut Program, launch: &mut Launch, inputs: &mut Tensors) -> Vec<Step> {
    let mut copies = vec![];
    for memory in &mut launch.operands {
        let given = &mut program.buffers[memory.view.buffer.0];
        let Some(tensor) = inputs.get_mut(&*given.name) else {
            continue;
        };
        let (name, dtype, len) = (format!("held {}", given.name), given.dtype, given.len);
        given.len = LAUNCHES * len;
        *tensor = Tensor::new([LAUNCHES * len], of_launches(tensor));
        let offset = Index::affine(0, 0, len as i64);
        let from = View::new(memory.view.buffer, offset, len);
        let held = program.buffer(name, dtype, len, Role::Workspace, Binding::Scratch);
        memory.view.buffer = held;
        let to = program.all(held);
        copies.push(Step::Copy { from, to });
    }
    copies
}

impl Total {
    fn generated(&self, target: &Target) -> Generated {
        let nests = [
            (&self.first.nest, self.first.bounds),
            (&self.last, Bounds::default()),
        ];
        Generated::single_pass(nests, &self.partials(), target)
            .unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Partials are combined in the order in which they are stored.
    fn partials(&self) -> Vec<Partials> {
        let nest = &self.first.nest;
        let stores = nest.stores.iter();
        let stores = stores.filter(|store| nest.is_cross_block(store.value));
        let operands = self.last.operands.iter().enumerate();
        let loaded = operands.filter(|(_, operand)| !operand.is_written);
        let pairs = stores.zip(loaded);
        let partials = pairs.map(|(store, (loaded, _))| Partials {
            stored: store.operand.0,
            loaded,
        });
        partials.collect()
    }

    fn source(&self, target: &Target) -> KernelSource {
        match self.generated(target).kernel() {
            Kernel::Compiled(source) => source,
            kernel => panic!("{kernel:?}"),
        }
    }

    /// Launches with inputs of their own; their outputs are set to NaN before each. Partials are
    /// memory of the kernel and not visible.
    fn made(&self) -> Made {
        let generated = self.generated(&Place::Shim(Mode::Fast).target());
        assert_eq!(generated.partial_count(&self.first.extents), 1);
        let mut program = Program::default();
        let (mut inputs, mut specs) = (Tensors::new(), vec![]);
        let mut first = self
            .first
            .place(&mut program, "", 1, &mut inputs, &mut specs);
        let last_inputs = inputs.clone();
        let copies = copies(&mut program, &mut first, &mut inputs);
        let last = self.launch_of_last(&mut program, &mut specs, &first);
        let launches = [first, last];
        let kernel = program.kernel(generated.kernel());
        let step = generated.launch_all(kernel, &launches).unwrap();
        let written = program.buffers.iter().enumerate();
        let written = written.filter(|(_, buffer)| buffer.binding == Binding::Result);
        let mut body: Vec<Step> = written
            .map(|(at, _)| Step::Fill {
                view: program.all(BufferId(at)),
                value: f64::NAN,
            })
            .collect();
        body.extend(copies);
        body.push(step);
        let count = LAUNCHES as u64;
        program.steps.push(Step::Repeat { count, body });
        program.validate().unwrap();
        Made {
            program,
            inputs,
            last_inputs,
            specs,
            launches,
        }
    }

    /// The launch of the second nest: it loads the partials in the order in which they are stored.
    fn launch_of_last(
        &self,
        program: &mut Program,
        specs: &mut Vec<TensorSpec>,
        first: &Launch,
    ) -> Launch {
        let nest = &self.first.nest;
        let stores = nest.stores.iter();
        let stored = stores.filter(|store| nest.is_cross_block(store.value));
        let mut left = stored.map(|store| first.operands[store.operand.0].view.clone());
        let operands = self.last.operands.iter().enumerate();
        let operands = operands.map(|(at, operand)| {
            let view = match operand.is_written {
                false => View {
                    len: 1,
                    ..left.next().unwrap()
                },
                true => {
                    let name = format!("last{at}");
                    specs.push(TensorSpec {
                        name: name.clone(),
                        dtype: Dtype::F32,
                        shape: vec![1],
                    });
                    let (role, binding) = (Role::Output, Binding::Result);
                    let buffer = program.buffer(name, Dtype::F32, 1, role, binding);
                    View::new(buffer, Index::fixed(0), 1)
                }
            };
            Memory {
                view,
                rows: vec![0],
                columns: i64::from(operand.columns == Stride::Unit),
                index_step: 0,
            }
        });
        Launch {
            operands: operands.collect(),
            extents: Extents {
                rows: vec![1],
                columns: 1,
            },
            scalars: vec![0.125],
        }
    }

    /// Checks that both nests are done as they mean.
    fn check(&self, mode: Mode) {
        let made = self.made();
        let mut outputs = shim::run(&made.program, &made.inputs, &made.specs, mode);
        for pair in self.partials() {
            outputs.remove(&*self.first.name(pair.stored)).unwrap();
        }
        let text = &made.program.compiled().next().unwrap().files[0].text;
        let [first, last] = &made.launches;
        self.first
            .judge("", first, 1, (&made.last_inputs, &outputs), &|| {
                text.to_string()
            });
        // As if it were of one part.
        let meant = self.first.meaning("", first, 1, &made.last_inputs);
        let mut expected = vec![vec![f64::NAN]; last.operands.len()];
        for pair in self.partials() {
            expected[pair.loaded] = vec![meant[pair.stored][0]];
        }
        interpret::run(&self.last, last, 0..1, &mut expected);
        for (memory, expected) in last.operands.iter().zip(&expected) {
            let name = &made.program.buffers[memory.view.buffer.0].name;
            let Some(found) = outputs.get(&**name) else {
                continue;
            };
            let (found, expected) = (check::elements(found).next().unwrap(), expected[0]);
            let is_close = (found - expected).abs() <= 1e-5 * (1.0 + expected.abs());
            assert!(is_close, "{found}, not {expected}\n{text}");
        }
    }
}

#[test]
fn totals_are_added_up_by_one_block_of_each_launch() {
    if !shim::is_here() {
        return;
    }
    for total in totals() {
        total.check(Mode::Fast);
    }
    for total in totals().iter().step_by(3) {
        total.check(Mode::Sanitized);
    }
}

/// Results are equal bit by bit.
#[test]
fn totals_do_not_depend_on_the_order_of_blocks() {
    if !shim::is_here() {
        return;
    }
    for total in totals() {
        let made = total.made();
        let outputs = |blocks| {
            let (program, inputs, specs) = (&made.program, &made.inputs, &made.specs);
            let outputs = shim::run_blocks(program, inputs, specs, Mode::Fast, blocks);
            format!("{outputs:?}")
        };
        assert!(outputs(Blocks::Ascending) == outputs(Blocks::Descending));
    }
}

#[test]
fn totals_keep_the_launches_of_what_leaves_their_parts() {
    for arch in ARCHS {
        let target = Target::Cuda {
            arch: arch.to_owned(),
        };
        for total in totals() {
            let alone = total.first.geometry(&target);
            let made = total.made();
            let generated = total.generated(&target);
            let step = generated.launch_all(KernelId(0), &made.launches);
            let Step::Launch { geometry, .. } = step.unwrap() else {
                panic!("no launch");
            };
            // A block of its own collects the partials of many blocks.
            let collects = u32::from(total.source(&target).files[0].text.contains("blocks ="));
            assert_eq!(geometry.grid[0], alone.grid[0] + collects);
            assert_eq!(geometry.block, alone.block);
            assert_eq!(geometry.overlaps, alone.overlaps);
            let (own, first) = (total.source(&target), total.first.source(&target));
            assert_eq!(bounds(&own).replace("first::", ""), bounds(&first));
        }
    }
}

/// The compiler's bounds on a kernel's blocks: `THREADS`, or `THREADS, 3`.
fn bounds(source: &KernelSource) -> &str {
    let kernel = source.files[0].text.split("KERNEL(").nth(1).unwrap();
    let bounds = kernel.split(')').next().unwrap();
    bounds.split_once(", ").unwrap().1
}

/// Registers of a processor.
const ALL_REGISTERS: u32 = 65_536;

/// With so many, as many threads have room as a processor takes, or nearly.
const FEW_REGISTERS: u32 = 40;

/// Registers of a thread, as the assembler reports them.
fn registers(log: &str) -> u32 {
    let before = log.split(" registers").next().unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn totals_wait_for_the_launches_before_them() {
    for total in totals() {
        let source = total.source(&Place::Shim(Mode::Fast).target());
        let is_only = total.first.bounds.is_only_launch;
        assert_eq!(waits(&source), !is_only, "{}", source.files[0].text);
    }
}

#[test]
fn totals_compile_for_old_and_new_gpus() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    for arch in ARCHS {
        for total in totals() {
            let own = registers(&report(&nvrtc, arch, |target| total.source(target)));
            // As many blocks have room as of the first one alone, or as the launch is made for:
            // registers are given out by eights.
            let first = registers(&report(&nvrtc, arch, |target| total.first.source(target)));
            let target = Place::Shim(Mode::Fast).target();
            let told = bounds(&total.source(&target))
                .split_once(", ")
                .map_or(0, |(_, blocks)| {
                    let threads =
                        blocks.parse::<u32>().unwrap() * total.first.geometry(&target).block[0];
                    ALL_REGISTERS / threads / 8 * 8
                });
            let most = first.next_multiple_of(8).max(FEW_REGISTERS).max(told);
            assert!(own <= most, "{own} registers, not {first} or {told}");
        }
    }
}

#[test]
fn people_can_read_totals() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/codegen");
    for (at, file) in [
        (8, "single_pass.cu"),
        (17, "single_pass_of_rows.cu"),
        (22, "single_pass_deferred.cu"),
    ] {
        let source = totals()[at].source(&Place::Shim(Mode::Fast).target());
        golden(&folder.join(file), &source.files[0].text).unwrap();
    }
}

/// The sum of the parts' squares.
fn of_squares() -> Nest {
    let mut b = Build::new("squares", 1);
    let parts = b.load(&OF_COLUMNS);
    let squares = b.binary(Binary::Mul, parts, parts);
    let total = b.sum(Over::All, squares);
    b.store(&ONE, total);
    b.one()
}

/// The greatest part.
fn greatest() -> Nest {
    let mut b = Build::new("greatest", 1);
    let parts = b.load(&OF_COLUMNS);
    let most = b.reduce(Reduction::Max, Over::All, parts);
    b.store(&ONE, most);
    b.one()
}

#[test]
fn parts_are_reduced_as_they_were_left_or_refused() {
    let cuda = Place::Shim(Mode::Fast).target();
    for last in [of_squares(), greatest()] {
        let first = Case::new(nests::squared_error(), &[3], 17);
        let total = Total { first, last };
        let nests = [
            (&total.first.nest, Bounds::default()),
            (&total.last, Bounds::default()),
        ];
        assert_eq!(
            Generated::single_pass(nests, &total.partials(), &cuda).unwrap_err(),
            "partials that are not combined as they were reduced"
        );
    }
}

#[test]
fn what_is_no_total_is_refused() {
    let bounds = Bounds::default();
    let refused = |first: &Nest, last: &Nest, target: &Target| {
        Generated::single_pass([(first, bounds), (last, bounds)], &[], target).unwrap_err()
    };
    let cuda = Place::Shim(Mode::Fast).target();
    let rows = nests::layernorm_backward();
    assert_eq!(
        refused(&rows, &mean(), &cuda),
        "mean does not combine partials of layernorm_backward"
    );
    assert_eq!(
        refused(&nests::squared_error(), &nests::sgd(), &cuda),
        "sgd does not combine partials of mse"
    );
    assert_eq!(
        refused(&nests::squared_error(), &mean(), &cuda),
        "a single-pass reduction of partials that are not stored"
    );
    assert_eq!(
        refused(&nests::squared_error(), &mean(), &Target::Cpu),
        "single-pass reductions need a CUDA schedule"
    );
}
