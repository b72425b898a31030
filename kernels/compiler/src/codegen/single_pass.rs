//! Single-pass reduction: one kernel of two nests. All blocks of the first nest store partials, and
//! one block of the same launch, the finalizer, computes the second nest from them. This saves a
//! launch.
//!
//! Partials are memory of the kernel. Each partial is one word with a mark for its presence: the
//! finalizer reads until all are present, takes them in a fixed order, and clears them for the next
//! launch (launches of one kernel follow each other). There are no counters and no fences, so that
//! many small blocks can store a partial each. With many blocks the finalizer does nothing else. It
//! starts when seven of eight other blocks have started, so that most partials are taken while
//! others compute, and it does not spin for long. With few blocks, which all run at once, the last
//! block is the finalizer after its own work.

use super::launch::Parameter;
use super::text::{self, Text};
use super::{ENTRY, Partials, Schedule, SubKernel, cuda, launch};
use crate::graph::op::Reduction;
use crate::nest::{Nest, Stride, Value, ValueId};

/// The structs of the two nests.
const NAMES: [&str; 2] = ["first", "last"];

/// The memory of partials, and the array of partials that the finalizer's threads have taken.
const MEMORIES: [&str; 2] = ["partials", "combined"];

/// Gives the second nest as many threads as the first one, and both the memory of partials.
///
/// # Errors
/// A sentence where the threads or the partials can't be had.
pub(super) fn connect(sub_kernels: &mut [SubKernel], partials: &[Partials]) -> Result<(), String> {
    let [first, last] = sub_kernels else {
        return Err("a single-pass reduction has two nests".to_owned());
    };
    let own = cuda_schedule(last)?.clone();
    last.schedule = Schedule::Cuda(own.into_finalizer(&last.nest, cuda_schedule(first)?)?);
    last.is_finalizer = true;
    first.internal = partials.iter().map(|pair| pair.stored).collect();
    last.internal = partials.iter().map(|pair| pair.loaded).collect();
    let has_all = |it: &SubKernel, is_partial: fn(&Nest, usize) -> bool| {
        let mut operands = 0..it.nest.operands.len();
        operands.all(|operand| it.internal.contains(&operand) == is_partial(&it.nest, operand))
    };
    if partials.is_empty() || !has_all(first, launch::is_partial) || !has_all(last, is_combined) {
        return Err("a single-pass reduction of partials that are not stored".to_owned());
    }
    let mut pairs = partials.iter();
    let are_alike = pairs.all(|pair| {
        stored_reduction(&first.nest, pair.stored) == combined_reduction(&last.nest, pair.loaded)
    });
    match are_alike {
        true => Ok(()),
        false => Err("partials that are not combined as they were reduced".to_owned()),
    }
}

/// The schedule of a sub-kernel on a GPU.
///
/// # Errors
/// A sentence where it is one for CPUs.
fn cuda_schedule(sub_kernel: &SubKernel) -> Result<&cuda::Schedule, String> {
    match &sub_kernel.schedule {
        Schedule::Cuda(schedule) => Ok(schedule),
        Schedule::C(_) => Err("single-pass reductions need a CUDA schedule".to_owned()),
    }
}

/// A launch has one more block, which is the finalizer alone.
pub(super) fn has_finalizer_block(sub_kernels: &[SubKernel]) -> bool {
    let [first, last] = sub_kernels else {
        return false;
    };
    last.is_finalizer && cuda_schedule(first).is_ok_and(cuda::Schedule::has_many_partials)
}

/// An operand of the second nest holds partials of the first one.
fn is_combined(nest: &Nest, operand: usize) -> bool {
    let held = &nest.operands[operand];
    !held.is_written && held.columns != Stride::Broadcast
}

fn reduction(value: &Value) -> Option<Reduction> {
    match value {
        Value::Reduce { reduction, .. } => Some(*reduction),
        _ => None,
    }
}

/// The reduction whose partials are stored to an operand.
fn stored_reduction(nest: &Nest, operand: usize) -> Option<Reduction> {
    let mut stores = nest.stores.iter();
    let store = stores.find(|store| store.operand.0 == operand)?;
    reduction(&nest.values[store.value.0])
}

/// The reduction of an operand's elements, if they have no other use.
fn combined_reduction(nest: &Nest, operand: usize) -> Option<Reduction> {
    let is_load = |id: ValueId| matches!(nest.values[id.0], Value::Load { operand: at, .. } if at.0 == operand);
    let values = nest.values.iter();
    let mut uses = values.filter(|value| value.operands().any(is_load));
    let first = reduction(uses.next()?)?;
    let are_alike = uses.all(|value| reduction(value) == Some(first));
    let is_stored = nest.stores.iter().any(|store| is_load(store.value));
    (are_alike && !is_stored).then_some(first)
}

/// The text of the kernel.
///
/// # Errors
/// A sentence that says why the kernel can't be generated.
pub(super) fn text(sub_kernels: &[SubKernel]) -> Result<String, String> {
    let [first, last] = sub_kernels else {
        return Err("a single-pass reduction has two nests".to_owned());
    };
    let mut out = Text::default();
    out.line("// Single-pass reduction: the finalizer block combines the partials of all blocks.");
    out.line("#include \"functions.cuh\"");
    let mut declared = Vec::new();
    for (sub_kernel, name) in sub_kernels.iter().zip(NAMES) {
        declared.extend(structure(&mut out, sub_kernel, name)?);
    }
    out.lines(["", "// Partials of each reduction, one a block."]);
    let [stored, taken] = MEMORIES;
    for at in 0..first.internal.len() {
        let max = cuda::MAX_DEFERRED_PARTIALS;
        out.line(format!("static __device__ Partial {stored}_{at}[{max}];"));
    }
    out.line("");
    let schedule = cuda_schedule(first)?;
    out.open(format!(
        "KERNEL({ENTRY}, first::THREADS{})({})",
        schedule.min_blocks(),
        declared.join(", ")
    ));
    out.lines(schedule.dependency_wait());
    let blocks = run_first(&mut out, sub_kernels);
    for (at, &operand) in last.internal.iter().enumerate() {
        let operator = combined_reduction(&last.nest, operand).map(cuda::operator);
        let operator = operator.ok_or("partials that are not reduced")?;
        out.line(format!("SHARED_ARRAY({taken}_{at}, last::THREADS);"));
        out.line(format!(
            "{taken}_{at}[threadIdx.x] = combine_partials<{operator}, last::THREADS>({stored}_{at}, {blocks});"
        ));
    }
    out.line("__syncthreads();");
    out.line(run(last, 1, "0"));
    out.close();
    Ok(out.finish())
}

/// Writes the struct of a sub-kernel. Returns the declarations of its arguments.
///
/// # Errors
/// A sentence that says why the kernel can't be generated.
fn structure(out: &mut Text, sub_kernel: &SubKernel, name: &str) -> Result<Vec<String>, String> {
    let (nest, schedule) = (&sub_kernel.nest, cuda_schedule(sub_kernel)?);
    let pointee = |operand: usize| match sub_kernel.internal.contains(&operand) {
        true if sub_kernel.is_finalizer => cuda::Pointee::Unrestricted,
        true => cuda::Pointee::Partials,
        false => schedule.pointee(nest, operand),
    };
    let words = text::words(nest).join(", ");
    out.lines(["".to_owned(), format!("// {words}.")]);
    out.open(format!("struct {name}"));
    cuda::sub_kernel(out, nest, schedule, &sub_kernel.parameters, &pointee)?;
    out.close_with(";");
    let (given, prefix) = (sub_kernel.given(), format!("{name}_"));
    Ok(cuda::declarations(nest, &given, &pointee, &prefix))
}

/// Runs the first nest in all blocks but a finalizer of its own, and returns from all but the
/// finalizer. Returns the expression of the number of blocks that store partials.
fn run_first(out: &mut Text, sub_kernels: &[SubKernel]) -> &'static str {
    let run = |block| run(&sub_kernels[0], 0, block);
    if has_finalizer_block(sub_kernels) {
        out.line("const unsigned blocks = gridDim.x - 1, finalizer = blocks / 8 * 7;");
        let run = run("blockIdx.x - (blockIdx.x > finalizer)");
        out.line(format!("if (blockIdx.x != finalizer) {{ {run} return; }}"));
        return "blocks";
    }
    out.line(run("blockIdx.x"));
    out.line("if (blockIdx.x != gridDim.x - 1) return;");
    "gridDim.x"
}

/// Runs block `block` of the sub-kernel at a position.
fn run(sub_kernel: &SubKernel, at: usize, block: &str) -> String {
    let argument = |parameter: &Parameter| {
        let mut internal = sub_kernel.internal.iter();
        match internal.position(|&operand| *parameter == Parameter::Pointer(operand)) {
            Some(operand) => format!("{}_{operand}", MEMORIES[at]),
            None => format!("{}_{}", NAMES[at], parameter.name(&sub_kernel.nest)),
        }
    };
    let arguments = sub_kernel.parameters.iter().map(argument);
    let all: Vec<String> = std::iter::once(block.to_owned()).chain(arguments).collect();
    format!("{}::run({});", NAMES[at], all.join(", "))
}
