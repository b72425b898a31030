//! A nest as one of several in a kernel: a struct with a function that does a block.

use crate::nest::Nest;

use super::super::launch::Parameter;
use super::super::stages::Stages;
use super::super::text::{self, Text};
use super::Schedule;
use super::kernel::Writer;

/// Writes what the struct of a nest has: its constants, and the function `run`, which does a block. `is_restricted` as
/// in [`declarations`].
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn member(
    out: &mut Text,
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
    is_restricted: &dyn Fn(usize) -> bool,
) -> Result<(), String> {
    let stages = Stages::new(nest, schedule.keep)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, "block");
    out.lines(
        writer
            .constants()
            .iter()
            .map(|line| format!("static {line}")),
    );
    let given = declarations(nest, parameters, is_restricted, "").join(", ");
    out.open(format!(
        "static METHOD void run(const unsigned block, {given})"
    ));
    writer.body(out);
    out.close();
    Ok(())
}

/// Declarations of parameters, whose names begin with `prefix`. Pointers to operands that are restricted point to what
/// nothing else touches as long as the kernel runs, if it is written.
pub(in super::super) fn declarations(
    nest: &Nest,
    parameters: &[Parameter],
    is_restricted: &dyn Fn(usize) -> bool,
    prefix: &str,
) -> Vec<String> {
    let declare = |parameter: &Parameter| {
        let name = format!("{prefix}{}", parameter.name(nest));
        match *parameter {
            Parameter::Pointer(operand) => {
                let restrict = if is_restricted(operand) {
                    "__restrict__ "
                } else {
                    ""
                };
                let operand = &nest.operands[operand];
                let constant = if operand.is_written { "" } else { "const " };
                let dtype = text::element(operand.dtype, "int64");
                format!("{constant}{dtype} *{restrict}{name}")
            }
            Parameter::Scalar(_) => format!("float {name}"),
            _ => format!("int64 {name}"),
        }
    };
    parameters.iter().map(declare).collect()
}
