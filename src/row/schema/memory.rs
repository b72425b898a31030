//! Columns of memory.

use sweeper_kernels::program::Role;

use super::Access;
use super::{Column, Group, Kind, int, put};

/// Memory at its peak.
pub(super) const PEAKS: &[Column] = &[
    Column {
        name: "peak_allocated_bytes",
        kind: Kind::Int,
        unit: "bytes",
        meaning: "the most memory that was allocated for the program at one time",
        source: "device",
        group: Some(Group::Memory),
        access: Access::Entry(
            |entry| int(entry.memory.peak_allocated?),
            |entry, field| put(&mut entry.memory.peak_allocated, field.count::<u64>()),
        ),
    },
    Column {
        name: "peak_reserved_bytes",
        kind: Kind::Int,
        unit: "bytes",
        meaning: "the most memory that the worker (on a GPU: the pool) held",
        source: "device",
        group: Some(Group::Memory),
        access: Access::Entry(
            |entry| int(entry.memory.peak_reserved?),
            |entry, field| put(&mut entry.memory.peak_reserved, field.count::<u64>()),
        ),
    },
];

/// The column of a role, by the role's word.
macro_rules! of_role {
    ($role:ident, $word:literal) => {
        Column {
            name: concat!("memory_", $word, "_bytes"),
            kind: Kind::Int,
            unit: "bytes",
            meaning: concat!("the program's buffers of the role `", $word, "`"),
            source: "program, before it runs",
            group: Some(Group::Memory),
            access: Access::Memory(Role::$role),
        }
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
