//! A nest as one of several in a kernel: a struct with a function that computes a block.

use crate::nest::Nest;

use super::super::launch::Parameter;
use super::super::text::{self, Text};
use super::Schedule;
use super::kernel::Writer;

/// The declaration of a pointer to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Pointee {
    /// `__restrict__`: nothing else accesses the memory while the kernel runs.
    Restricted,
    /// Other code may write to it, such as an overlapping launch.
    Unrestricted,
    /// Partials that the finalizer block combines.
    Partials,
}

/// Writes the members of a nest's struct: its constants, and the function `run`, which computes a
/// block.
///
/// # Errors
/// As [`Stages::new`](super::super::stages::Stages::new).
pub(in super::super) fn sub_kernel(
    out: &mut Text,
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
    pointee: &dyn Fn(usize) -> Pointee,
) -> Result<(), String> {
    let stages = schedule.stages(nest)?;
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

/// Declarations of parameters, whose names begin with `prefix`.
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
                    Pointee::Partials => return format!("Partial *{name}"),
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
