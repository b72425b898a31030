//! Deferred row epilogue: each warp stores its partial reductions of a row to shared memory; after
//! one barrier, warp 0 finishes all of the block's rows, one row per lane, and reduces them. The
//! block has one barrier, instead of one for each reduction of a row and one for the block's.

use crate::nest::{Nest, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::super::exponentials::{Exponentials, only_use};
use super::super::scalar::Dialect;
use super::super::stages::{Pass, Stages};
use super::super::text::Text;
use super::block_reduce::operator;
use super::kernel::Writer;

/// The epilogue of a row, and its inputs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeferredEpilogue {
    /// Sums of exponentials, each warp's relative to the maximum of its own columns (online
    /// softmax).
    exponentials: Vec<Exponentials>,
    /// Other reductions over columns.
    reductions: Vec<ValueId>,
    /// Numbers of the row that are computed before its columns, and used in the epilogue.
    row_inputs: Vec<ValueId>,
    /// Values of the epilogue, in order.
    values: Vec<ValueId>,
    /// Reductions over all that accumulate them.
    totals: Vec<ValueId>,
}

impl DeferredEpilogue {
    /// The epilogue of a nest that stores nothing but partials of full reductions. None where an
    /// element needs a reduction of its row other than the maximum in an exponent.
    pub(super) fn of(nest: &Nest, stages: &Stages) -> Option<DeferredEpilogue> {
        let between = &stages.between;
        let has_outputs = |pass: &Pass| !pass.cross_block.is_empty() || !pass.stores.is_empty();
        if stages.passes.iter().any(has_outputs) || between.iter().any(|it| !it.stores.is_empty()) {
            return None;
        }
        let (exponentials, reductions) = reductions(nest, stages);
        let is_reduced = |id: &ValueId| matches!(nest.values[id.0], Value::Reduce { .. });
        let after_columns = between.iter().skip(1).flat_map(|it| &it.values);
        let mut deferred = DeferredEpilogue {
            exponentials,
            reductions,
            row_inputs: vec![],
            values: after_columns
                .copied()
                .filter(|id| !is_reduced(id))
                .collect(),
            totals: between
                .iter()
                .flat_map(|it| it.cross_block.clone())
                .collect(),
        };
        deferred.row_inputs = deferred.row_inputs_of(nest, stages);
        let is_float = |id: &ValueId| stages.dtypes[id.0] == Dtype::F32;
        // Warp 0 does not have the rows' indices.
        let needs_row =
            |id: &ValueId| matches!(nest.values[id.0], Value::Load { .. } | Value::Row(_));
        let is_possible = deferred.row_inputs.iter().all(is_float)
            && !deferred.values.iter().any(needs_row)
            && !deferred.is_used_by_elements(nest, stages);
        is_possible.then_some(deferred)
    }

    /// Reductions over columns, in the order of their partials in shared memory.
    fn partials(&self) -> Vec<ValueId> {
        let of_two = self
            .exponentials
            .iter()
            .flat_map(|both| [both.max, both.sum]);
        of_two.chain(self.reductions.iter().copied()).collect()
    }

    /// Numbers that the epilogue uses and that are computed before the row's columns.
    fn row_inputs_of(&self, nest: &Nest, stages: &Stages) -> Vec<ValueId> {
        let own = [self.partials(), self.values.clone()].concat();
        let used = |id: &ValueId| nest.values[id.0].operands();
        let used = self.values.iter().chain(&self.totals).flat_map(used);
        let mut inputs: Vec<ValueId> = used
            .filter(|id| stages.varies[id.0].rows && !own.contains(id))
            .collect();
        inputs.sort();
        inputs.dedup();
        inputs
    }

    /// An element that is not an exponent needs a reduction of its row or a value of the epilogue.
    fn is_used_by_elements(&self, nest: &Nest, stages: &Stages) -> bool {
        let own = [self.partials(), self.values.clone()].concat();
        let is_exponent =
            |id: &ValueId| self.exponentials.iter().any(|both| both.difference == *id);
        let computed = stages.passes.iter().flat_map(|pass| &pass.values);
        let mut computed = computed.filter(|id| !is_exponent(id));
        computed.any(|id| nest.values[id.0].operands().any(|used| own.contains(&used)))
    }

    /// Floats of shared memory of `row_groups` row groups.
    pub(super) fn shared_floats(&self, row_groups: u32, warps_per_row: u32) -> u32 {
        (self.partials().len() + self.row_inputs.len()) as u32 * row_groups * warps_per_row
    }
}

/// Reductions over columns: sums of exponentials, each with a maximum of its own and an exponent
/// that nothing else uses; and the others.
fn reductions(nest: &Nest, stages: &Stages) -> (Vec<Exponentials>, Vec<ValueId>) {
    let all = stages
        .passes
        .iter()
        .flat_map(|pass| pass.reductions.clone());
    let all: Vec<ValueId> = all.collect();
    let mut exponentials: Vec<Exponentials> = Vec::new();
    for both in all.iter().filter_map(|&id| Exponentials::by_sum(nest, id)) {
        let is_own = exponentials.iter().all(|other| other.max != both.max);
        if is_own && only_use(nest, both.difference).is_some() {
            exponentials.push(both);
        }
    }
    let is_of_two = |id: &ValueId| {
        exponentials
            .iter()
            .any(|both| [both.max, both.sum].contains(id))
    };
    let others = all.iter().copied().filter(|id| !is_of_two(id)).collect();
    (exponentials, others)
}

impl Writer<'_> {
    /// `ROW_THREADS` threads are a warp, or a part of one; several warps share a row.
    pub(super) fn deferred_constants(&self) -> Vec<String> {
        let tile = &self.schedule.tile;
        let (warps, groups, chunks) = (tile.warps_per_row(), tile.row_groups, tile.vectors);
        let width = tile.threads_per_row / warps;
        vec![
            format!(
                "constexpr int ROW_THREADS = {width}, ROW_WARPS = {warps}, ROW_GROUPS = {groups}, VECTORS = {chunks};"
            ),
            "constexpr int PARTIALS = ROW_WARPS * ROW_GROUPS, THREADS = ROW_THREADS * PARTIALS;"
                .to_owned(),
        ]
    }

    /// A full reduction with one row a row group, whose epilogue warp 0 computes.
    pub(super) fn deferred_full_reduction(&self, out: &mut Text, deferred: &DeferredEpilogue) {
        self.warp_tile(out);
        out.lines(self.eviction_policy());
        self.shared_memory(out);
        self.values(out, &self.stages.uniform);
        self.accumulators(out);
        self.hoisted_loads(out);
        out.open("if (begin < end)");
        // Warps past the last row compute it again, and their partials are not read.
        out.line("const int64 r = min(begin + threadIdx.x / ROW_THREADS / ROW_WARPS, end - 1);");
        self.indices_of_row(out);
        self.row(out);
        self.store_row_partials(out, deferred);
        out.close();
        self.finish_rows(out, deferred);
        self.store_reductions(out);
    }

    /// The rows of the block, and the columns of the warp. Blocks are many and small, so that their
    /// first instructions count: rows are counted in 32 bits.
    fn warp_tile(&self, out: &mut Text) {
        let block = self.block;
        out.line("const int lane = threadIdx.x % ROW_THREADS;");
        out.line(match self.schedule.tile.warps_per_row() {
            1 => "constexpr int64 first_column = 0;",
            _ => "const int64 first_column = threadIdx.x / ROW_THREADS % ROW_WARPS * (4 * ROW_THREADS * VECTORS);",
        });
        out.line(self.tile_extent("(int)(columns - first_column)"));
        out.line(format!(
            "const unsigned begin = {block} * ROW_GROUPS, end = (unsigned)rows;"
        ));
    }

    /// The initial value of a reduction over columns. A warp's own maximum starts at the lowest
    /// finite number: where all its columns are minus infinity, its exponents are minus infinity
    /// then, and not NaN.
    pub(super) fn initial(&self, id: ValueId) -> String {
        let deferred = self.schedule.deferred().into_iter();
        let mut exponentials = deferred.flat_map(|deferred| &deferred.exponentials);
        let shares_row = self.schedule.tile.threads_per_row > 32;
        if shares_row && exponentials.any(|both| both.max == id) {
            "LOWEST".to_owned()
        } else {
            self.names.identity(id)
        }
    }

    /// Stores the partial reductions of a warp.
    fn store_row_partials(&self, out: &mut Text, deferred: &DeferredEpilogue) {
        out.open("if (lane == 0)");
        out.line("float *partials = shared + threadIdx.x / ROW_THREADS;");
        let partials = deferred.partials();
        for (at, &id) in partials.iter().chain(&deferred.row_inputs).enumerate() {
            out.line(format!(
                "partials[{at} * PARTIALS] = {};",
                self.names.of(id)
            ));
        }
        out.close();
    }

    /// Warp 0 finishes the block's rows, one row per lane, and reduces them.
    fn finish_rows(&self, out: &mut Text, deferred: &DeferredEpilogue) {
        out.line("__syncthreads();");
        out.line("if (threadIdx.x >= 32) return;");
        out.open("for (int row = threadIdx.x; row < ROW_GROUPS && begin + row < end; row += 32)");
        out.line("const float *partials = shared + row * ROW_WARPS;");
        self.load_row_partials(out, deferred);
        self.values(out, &deferred.values);
        for &id in &deferred.totals {
            let (reduction, of) = self.names.reduction(id);
            let name = self.names.of(id);
            let sum = Dialect::Cuda.reduced(reduction, &name, &self.names.scalar(of));
            out.line(format!("{name} = {sum};"));
        }
        out.close();
        for &id in &deferred.totals {
            let (name, how) = (self.names.of(id), operator(self.names.reduction(id).0));
            out.line(format!("{name} = reduce_lanes<{how}, 32>({name});"));
        }
    }

    /// Combines the partial reductions of a row's warps.
    fn load_row_partials(&self, out: &mut Text, deferred: &DeferredEpilogue) {
        let mut at = 0;
        for both in &deferred.exponentials {
            let (max, sum) = (self.names.of(both.max), self.names.of(both.sum));
            out.line(format!("float {max}, {sum};"));
            out.line(format!(
                "merge_exp_sums<ROW_WARPS>({max}, {sum}, partials + {at} * PARTIALS, partials + {} * PARTIALS);",
                at + 1
            ));
            at += 2;
        }
        for &id in &deferred.reductions {
            let (name, how) = (self.names.of(id), operator(self.names.reduction(id).0));
            out.line(format!(
                "const float {name} = reduce_partials<{how}, ROW_WARPS>(partials + {at} * PARTIALS);"
            ));
            at += 1;
        }
        for &id in &deferred.row_inputs {
            let name = self.names.of(id);
            out.line(format!("const float {name} = partials[{at} * PARTIALS];"));
            at += 1;
        }
    }
}
