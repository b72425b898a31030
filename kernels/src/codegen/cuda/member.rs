//! A nest as one of several in a kernel: a struct with a function that does a block.

use crate::nest::Nest;

use super::super::launch::Parameter;
use super::super::stages::Stages;
use super::super::text::{self, Text};
use super::Schedule;
use super::kernel::Writer;

/// What a pointer to an operand points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Pointee {
    /// What nothing else touches as long as the kernel runs, if it is written.
    Restricted,
    /// What others may write, such as a launch that the kernel waits for.
    Unrestricted,
    /// Parts that one of the kernel's blocks adds up.
    Parts,
}

/// Writes what the struct of a nest has: its constants, and the function `run`, which does a block. `pointee` tells of each
/// operand.
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn member(
    out: &mut Text,
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
    pointee: &dyn Fn(usize) -> Pointee,
) -> Result<(), String> {
    let stages = Stages::new(nest, schedule.keep)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, "block");
    out.lines(
        writer
            .constants()
            .iter()
            .map(|line| format!("static {line}")),
    );
    let given = declarations(nest, parameters, pointee, "").join(", ");
    out.open(format!(
        "static METHOD void run(const unsigned block, {given})"
    ));
    writer.body(out);
    out.close();
    Ok(())
}

/// Declarations of parameters, whose names begin with `prefix`. `pointee` tells of each operand.
pub(in super::super) fn declarations(
    nest: &Nest,
    parameters: &[Parameter],
    pointee: &dyn Fn(usize) -> Pointee,
    prefix: &str,
) -> Vec<String> {
    let declare = |parameter: &Parameter| {
        let name = format!("{prefix}{}", parameter.name(nest));
        match *parameter {
            Parameter::Pointer(operand) => {
                let restrict = match pointee(operand) {
                    Pointee::Restricted => "__restrict__ ",
                    Pointee::Unrestricted => "",
                    Pointee::Parts => return format!("Part *{name}"),
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
