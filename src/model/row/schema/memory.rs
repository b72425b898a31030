//! Columns of memory.

use sweeper_program::Role;

use super::column::{Column, Group, count, int, put};

/// Memory at its peak.
pub(super) const PEAKS: &[Column] = &[
    count(
        "peak_allocated_bytes",
        "the most memory that was allocated for the program at one time",
        "device",
    )
    .unit("bytes")
    .group(Group::Memory)
    .of_entry(
        |entry| int(entry.memory.peak_allocated?),
        |entry, field| put(&mut entry.memory.peak_allocated, field.count::<u64>()),
    ),
    count(
        "peak_reserved_bytes",
        "the most memory that the worker held, with problems that it made ready meanwhile (on a GPU: the pool)",
        "device",
    )
    .unit("bytes")
    .group(Group::Memory)
    .of_entry(
        |entry| int(entry.memory.peak_reserved?),
        |entry, field| put(&mut entry.memory.peak_reserved, field.count::<u64>()),
    ),
];

/// The column of a role, by the role's word.
macro_rules! of_role {
    ($role:ident, $word:literal) => {
        count(
            concat!("memory_", $word, "_bytes"),
            concat!("the program's buffers of the role `", $word, "`"),
            "program, before it runs",
        )
        .unit("bytes")
        .group(Group::Memory)
        .of_role(Role::$role)
    };
}

/// Memory by its role.
pub(super) const BY_ROLE: &[Column] = &[
    of_role!(Input, "input"),
    of_role!(Output, "output"),
    of_role!(Gradient, "gradient"),
    of_role!(Potentials, "potentials"),
    of_role!(DpState, "dp_state"),
    of_role!(Saved, "saved"),
    of_role!(Workspace, "workspace"),
    of_role!(Parameter, "parameter"),
    of_role!(Optimizer, "optimizer"),
];
