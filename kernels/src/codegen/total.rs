//! One kernel of two nests, one after the other: all blocks of the first leave parts of totals, and the last block to be
//! done makes of the parts what the second nest says. That takes one launch, not two.
//!
//! Which block is last may be another one each time; what it does is the same: parts are added up in their order by one
//! block, whose threads are as many as the kernel says. Blocks are counted in memory of the module, by a count that
//! begins again by itself: launches of one kernel follow each other, so that a count is always of one launch. Thread 0
//! of a block leaves all of its parts, and then counts. Pointers to parts are not `__restrict__`: what the last block
//! reads is not constant while the kernel runs.

use super::launch::Parameter;
use super::text::{self, Text};
use super::{Member, Schedule, Shared, cuda, launch};
use crate::nest::{Nest, Step};

/// What the two are called in text.
const NAMES: [&str; 2] = ["first", "last"];

/// Gives the second nest as many threads as the first one has, and the first one's memory of parts.
///
/// # Errors
/// A sentence where there are no such threads or no such parts.
pub(super) fn join(members: &mut [Member], shared: &[Shared]) -> Result<(), String> {
    let [first, last] = members else {
        return Err("a total is two kernels".to_owned());
    };
    let (Schedule::Cuda(of_first), Schedule::Cuda(of_last)) = (&first.schedule, &last.schedule)
    else {
        return Err("only blocks of GPUs know which of them is last".to_owned());
    };
    let schedule = of_last
        .clone()
        .in_last_block(&last.nest, of_first.threads())?;
    last.schedule = Schedule::Cuda(schedule);
    let is_shared = |operand: usize| shared.iter().any(|shared| shared.added_up == operand);
    let mut operands = 0..last.nest.operands.len();
    let are_all = operands.all(|operand| is_shared(operand) == is_added_up(&last.nest, operand));
    let mut left = shared.iter().map(|shared| shared.left);
    if shared.is_empty() || !are_all || !left.all(|operand| launch::is_part(&first.nest, operand)) {
        return Err("a total of parts that nobody leaves".to_owned());
    }
    last.shared = shared.to_vec();
    Ok(())
}

/// Whether an operand of the second nest holds what the first one left.
fn is_added_up(nest: &Nest, operand: usize) -> bool {
    let held = &nest.operands[operand];
    !held.is_written && held.columns != Step::Zero
}

/// For each of the two, whether an operand holds parts.
const HOLDS_PARTS: [fn(&Nest, usize) -> bool; 2] = [launch::is_part, is_added_up];

/// The text of the kernel `entry`.
///
/// # Errors
/// A sentence about what can't be generated.
pub(super) fn text(members: &[Member], entry: &str) -> Result<String, String> {
    let mut out = Text::default();
    out.line("// What the last block to be done makes of the parts that all leave.");
    out.line("#include \"functions.cuh\"");
    let mut declared = Vec::new();
    let mut of_first = None;
    for ((member, name), holds_parts) in members.iter().zip(NAMES).zip(HOLDS_PARTS) {
        let Schedule::Cuda(schedule) = &member.schedule else {
            continue;
        };
        let (nest, parameters) = (&member.nest, &member.parameters);
        let is_restricted =
            |operand: usize| !holds_parts(nest, operand) && schedule.is_restricted(nest, operand);
        let words = text::words(nest).join(", ");
        out.lines(["".to_owned(), format!("// {words}.")]);
        out.open(format!("struct {name}"));
        cuda::member(&mut out, nest, schedule, parameters, &is_restricted)?;
        out.close_with(";");
        let prefix = format!("{name}_");
        declared.extend(cuda::declarations(
            nest,
            &member.given(),
            &is_restricted,
            &prefix,
        ));
        of_first.get_or_insert(schedule);
    }
    let bounds = of_first.map_or(String::new(), cuda::Schedule::bounds);
    out.lines([
        "",
        "// Blocks of the launch that have left their parts.",
        "static __device__ unsigned done;",
        "",
    ]);
    out.open(format!(
        "KERNEL({entry}, first::THREADS{bounds})({})",
        declared.join(", ")
    ));
    out.lines(of_first.and_then(cuda::Schedule::waits));
    out.line(run(members, 0, "blockIdx.x"));
    out.line("if (!is_last_block(&done)) return;");
    out.line(run(members, 1, "0"));
    out.close();
    Ok(out.finish())
}

/// Does a block of the member at this position.
fn run(members: &[Member], at: usize, block: &str) -> String {
    let Member {
        nest,
        parameters,
        shared,
        ..
    } = &members[at];
    let argument = |parameter: &Parameter| {
        let mut shared = shared.iter();
        match shared.find(|shared| *parameter == Parameter::Pointer(shared.added_up)) {
            Some(shared) => {
                let left = Parameter::Pointer(shared.left).name(&members[0].nest);
                format!("{}_{left}", NAMES[0])
            }
            None => format!("{}_{}", NAMES[at], parameter.name(nest)),
        }
    };
    let own = parameters.iter().map(argument);
    let all: Vec<String> = std::iter::once(block.to_owned()).chain(own).collect();
    format!("{}::run({});", NAMES[at], all.join(", "))
}
