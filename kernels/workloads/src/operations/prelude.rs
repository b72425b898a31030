//! What files of operations use.

pub(super) use super::info::*;
pub(super) use super::oracle::{Asked, square_sum};
pub(super) use super::sized::{Operation, SizedOperation};
pub(super) use super::sizes::Sizes;
pub(super) use crate::graph_builder::{Added, Builder};
pub(super) use crate::graph_workload::GraphWorkload;
pub(super) use sweeper_compiler::graph::NodeId;
pub(super) use sweeper_program::inputs::Stream;
pub(super) use sweeper_program::workload::{WorkloadInfo, tensor};
