//! One kernel of two nests: all blocks of the first leave parts of totals, and one block of the launch makes of the parts
//! what the second nest says. That takes one launch, not two.
//!
//! A part is one word of the kernel's own memory, which says itself that it is there: the block that adds them up reads until
//! all are, takes them in their order, and leaves none behind for the next launch, as launches of one kernel follow each other.
//! Nobody counts blocks, nor is anything fenced, so that many small blocks may leave a part each. Where they do, this block has
//! nothing else to do. It begins when seven of eight others have, so that most parts are taken while others work, and nobody has
//! read for long what is not there. Few blocks are all there is room for, and the last of them leaves its own part first.

use super::launch::Parameter;
use super::text::{self, Text};
use super::{ENTRY, Member, Schedule, Shared, cuda, launch};
use crate::graph::op::Reduction;
use crate::nest::{Nest, Step, Value, ValueId};

/// What the two are called in text.
const NAMES: [&str; 2] = ["first", "last"];

/// What the memory of parts is called in text: that of the first nest, and what threads of the block that adds up take of it.
const MEMORIES: [&str; 2] = ["left", "taken"];

/// Gives the second nest as many threads as the first one has, and both the memory of parts.
///
/// # Errors
/// A sentence where there are no such threads or no such parts.
pub(super) fn join(members: &mut [Member], shared: &[Shared]) -> Result<(), String> {
    let [first, last] = members else {
        return Err("a total is two kernels".to_owned());
    };
    let of_last = of_gpu(last)?.clone();
    last.schedule = Schedule::Cuda(of_last.adding_up_parts(&last.nest, of_gpu(first)?)?);
    last.adds_up_parts = true;
    first.own = shared.iter().map(|shared| shared.left).collect();
    last.own = shared.iter().map(|shared| shared.added_up).collect();
    let own_all = |member: &Member, are_parts: fn(&Nest, usize) -> bool| {
        let mut operands = 0..member.nest.operands.len();
        operands.all(|operand| member.own.contains(&operand) == are_parts(&member.nest, operand))
    };
    if shared.is_empty() || !own_all(first, launch::is_part) || !own_all(last, is_added_up) {
        return Err("a total of parts that nobody leaves".to_owned());
    }
    let mut pairs = shared.iter();
    match pairs.all(|pair| left_by(&first.nest, pair.left) == taken_by(&last.nest, pair.added_up)) {
        true => Ok(()),
        false => Err("a total of parts that are not reduced as they were left".to_owned()),
    }
}

/// How a member's blocks share out its work.
///
/// # Errors
/// A sentence where they are not a GPU's.
fn of_gpu(member: &Member) -> Result<&cuda::Schedule, String> {
    match &member.schedule {
        Schedule::Cuda(schedule) => Ok(schedule),
        Schedule::C(_) => Err("only blocks of GPUs know which of them is last".to_owned()),
    }
}

/// Whether one block of a kernel's launches only takes what others leave.
pub(super) fn has_collector(members: &[Member]) -> bool {
    let [first, last] = members else {
        return false;
    };
    last.adds_up_parts && of_gpu(first).is_ok_and(cuda::Schedule::has_many_parts)
}

/// Whether an operand of the second nest holds what the first one left.
fn is_added_up(nest: &Nest, operand: usize) -> bool {
    let held = &nest.operands[operand];
    !held.is_written && held.columns != Step::Zero
}

fn reduction(value: &Value) -> Option<Reduction> {
    match value {
        Value::Reduce { reduction, .. } => Some(*reduction),
        _ => None,
    }
}

/// How what is stored to an operand was reduced.
fn left_by(nest: &Nest, operand: usize) -> Option<Reduction> {
    let mut stores = nest.stores.iter();
    let store = stores.find(|store| store.operand.0 == operand)?;
    reduction(&nest.values[store.value.0])
}

/// How the elements of an operand are reduced, if nothing else becomes of them.
fn taken_by(nest: &Nest, operand: usize) -> Option<Reduction> {
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
/// A sentence about what can't be generated.
pub(super) fn text(members: &[Member]) -> Result<String, String> {
    let [first, last] = members else {
        return Err("a total is two kernels".to_owned());
    };
    let mut out = Text::default();
    out.line("// What one block makes of the parts that all leave.");
    out.line("#include \"functions.cuh\"");
    let mut declared = Vec::new();
    for (member, name) in members.iter().zip(NAMES) {
        declared.extend(structure(&mut out, member, name)?);
    }
    out.lines(["", "// Of each total, what blocks have left."]);
    let [left, taken] = MEMORIES;
    for at in 0..first.own.len() {
        let most = cuda::MOST_PARTS;
        out.line(format!("static __device__ Part {left}_{at}[{most}];"));
    }
    out.line("");
    let schedule = of_gpu(first)?;
    out.open(format!(
        "KERNEL({ENTRY}, first::THREADS{})({})",
        schedule.bounds(),
        declared.join(", ")
    ));
    out.lines(schedule.waits());
    let blocks = run_first(&mut out, members);
    for (at, &operand) in last.own.iter().enumerate() {
        let how = taken_by(&last.nest, operand).map(cuda::how);
        let how = how.ok_or("a total that is no reduction")?;
        out.line(format!("SHARED_ARRAY({taken}_{at}, last::THREADS);"));
        out.line(format!(
            "{taken}_{at}[threadIdx.x] = take_parts<{how}, last::THREADS>({left}_{at}, {blocks});"
        ));
    }
    out.line("__syncthreads();");
    out.line(run(last, 1, "0"));
    out.close();
    Ok(out.finish())
}

/// Writes the struct of a member. The declarations of what a launch gives it.
///
/// # Errors
/// A sentence about what can't be generated.
fn structure(out: &mut Text, member: &Member, name: &str) -> Result<Vec<String>, String> {
    let (nest, schedule) = (&member.nest, of_gpu(member)?);
    let pointee = |operand: usize| match member.own.contains(&operand) {
        true if member.adds_up_parts => cuda::Pointee::Unrestricted,
        true => cuda::Pointee::Parts,
        false => schedule.pointee(nest, operand),
    };
    let words = text::words(nest).join(", ");
    out.lines(["".to_owned(), format!("// {words}.")]);
    out.open(format!("struct {name}"));
    cuda::member(out, nest, schedule, &member.parameters, &pointee)?;
    out.close_with(";");
    let (given, prefix) = (member.given(), format!("{name}_"));
    Ok(cuda::declarations(nest, &given, &pointee, &prefix))
}

/// Has all blocks do the first nest, and all but the last end. How many leave parts, in text.
fn run_first(out: &mut Text, members: &[Member]) -> &'static str {
    let run = |block| run(&members[0], 0, block);
    if has_collector(members) {
        out.line("const unsigned blocks = gridDim.x - 1, collector = blocks / 8 * 7;");
        let run = run("blockIdx.x - (blockIdx.x > collector)");
        out.line(format!("if (blockIdx.x != collector) {{ {run} return; }}"));
        return "blocks";
    }
    out.line(run("blockIdx.x"));
    out.line("if (blockIdx.x != gridDim.x - 1) return;");
    "gridDim.x"
}

/// Does a block of the member at this position.
fn run(member: &Member, at: usize, block: &str) -> String {
    let argument = |parameter: &Parameter| {
        let mut own = member.own.iter();
        match own.position(|&own| *parameter == Parameter::Pointer(own)) {
            Some(own) => format!("{}_{own}", MEMORIES[at]),
            None => format!("{}_{}", NAMES[at], parameter.name(&member.nest)),
        }
    };
    let arguments = member.parameters.iter().map(argument);
    let all: Vec<String> = std::iter::once(block.to_owned()).chain(arguments).collect();
    format!("{}::run({});", NAMES[at], all.join(", "))
}
