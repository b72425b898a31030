//! Rows whose last numbers are known late: when all lanes are done with their columns, the first warp of the block computes
//! them, a row a lane. So warps that share a row, and rows that share a block, wait for each other once, not at each
//! reduction and for the block's sum.

use crate::nest::{Nest, Value, ValueId};
use crate::tensor::Dtype;

use super::super::exponentials::{Exponentials, only_use};
use super::super::scalar::Dialect;
use super::super::stages::{Pass, Stages};
use super::super::text::Text;
use super::finish::how;
use super::kernel::Writer;

/// What is known late of a row, and from what.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Late {
    /// Sums of exponentials, of which each warp goes by the maximum of its own columns.
    exponentials: Vec<Exponentials>,
    /// Other reductions over columns.
    reductions: Vec<ValueId>,
    /// Numbers of the row that are known before its columns are, and used late.
    numbers: Vec<ValueId>,
    /// What is computed, in order.
    values: Vec<ValueId>,
    /// Reductions over all to which that is added.
    last: Vec<ValueId>,
}

impl Late {
    /// Of a nest that leaves nothing but parts of totals; none where columns need what is known of others, but for a
    /// maximum that exponentials go by.
    pub(super) fn of(nest: &Nest, stages: &Stages) -> Option<Late> {
        let between = &stages.between;
        let leaves_more = |pass: &Pass| !pass.last.is_empty() || !pass.stores.is_empty();
        if stages.passes.iter().any(leaves_more) || between.iter().any(|it| !it.stores.is_empty()) {
            return None;
        }
        let (exponentials, reductions) = reductions(nest, stages);
        let is_reduced = |id: &ValueId| matches!(nest.values[id.0], Value::Reduce { .. });
        let later = between.iter().skip(1).flat_map(|it| &it.values);
        let mut late = Late {
            exponentials,
            reductions,
            numbers: vec![],
            values: later.copied().filter(|id| !is_reduced(id)).collect(),
            last: between.iter().flat_map(|it| it.last.clone()).collect(),
        };
        late.numbers = late.numbers(nest, stages);
        let is_float = |id: &ValueId| stages.dtypes[id.0] == Dtype::F32;
        // Where a row lies is known to its own lanes.
        let needs_row =
            |id: &ValueId| matches!(nest.values[id.0], Value::Load { .. } | Value::Row(_));
        let is_possible = late.numbers.iter().all(is_float)
            && !late.values.iter().any(needs_row)
            && !late.is_used_by_columns(nest, stages);
        is_possible.then_some(late)
    }

    /// Reductions over columns, in order: each warp of a row leaves what it has of them.
    fn left(&self) -> Vec<ValueId> {
        let of_two = self
            .exponentials
            .iter()
            .flat_map(|both| [both.max, both.sum]);
        of_two.chain(self.reductions.iter().copied()).collect()
    }

    /// What the row's numbers are computed from late, and known before its columns are.
    fn numbers(&self, nest: &Nest, stages: &Stages) -> Vec<ValueId> {
        let known = [self.left(), self.values.clone()].concat();
        let used = |id: &ValueId| nest.values[id.0].operands();
        let used = self.values.iter().chain(&self.last).flat_map(used);
        let mut numbers: Vec<ValueId> = used
            .filter(|id| stages.varies[id.0].rows && !known.contains(id))
            .collect();
        numbers.sort();
        numbers.dedup();
        numbers
    }

    /// Whether anything computed for columns needs what is known late, but for exponents.
    fn is_used_by_columns(&self, nest: &Nest, stages: &Stages) -> bool {
        let known = [self.left(), self.values.clone()].concat();
        let is_exponent =
            |id: &ValueId| self.exponentials.iter().any(|both| both.difference == *id);
        let computed = stages.passes.iter().flat_map(|pass| &pass.values);
        let mut computed = computed.filter(|id| !is_exponent(id));
        computed.any(|id| {
            nest.values[id.0]
                .operands()
                .any(|used| known.contains(&used))
        })
    }

    /// Floats of shared memory for so many groups of so many warps each.
    pub(super) fn shared_floats(&self, groups: u32, row_warps: u32) -> u32 {
        (self.left().len() + self.numbers.len()) as u32 * groups * row_warps
    }
}

/// Reductions over columns: sums of exponentials whose differences nothing else uses, each of a maximum of its own; and the
/// others.
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
    /// Lanes are those of a warp: each warp of a row has a piece of it.
    pub(super) fn late_constants(&self) -> Vec<String> {
        let (schedule, warps) = (self.schedule, self.schedule.row_warps());
        let (width, groups, chunks) = (schedule.width / warps, schedule.groups, schedule.chunks);
        vec![
            format!(
                "constexpr int WIDTH = {width}, ROW_WARPS = {warps}, GROUPS = {groups}, CHUNKS = {chunks};"
            ),
            "constexpr int LEFT = ROW_WARPS * GROUPS, THREADS = WIDTH * LEFT;".to_owned(),
        ]
    }

    /// What the block has of rows, and the warp of columns. Blocks are many and small: what they begin with counts, so that rows
    /// are counted in 32 bits.
    pub(super) fn share_late(&self, out: &mut Text) {
        let block = self.block;
        out.line("const int lane = threadIdx.x % WIDTH;");
        out.line(match self.schedule.row_warps() {
            1 => "constexpr int64 first = 0;",
            _ => "const int64 first = threadIdx.x / WIDTH % ROW_WARPS * (4 * WIDTH * CHUNKS);",
        });
        out.line(self.here("(int)(columns - first)"));
        out.line(format!(
            "const unsigned begin = {block} * GROUPS, end = (unsigned)rows;"
        ));
    }

    /// Opens what a warp does for its row; one without a row does another one's, of which nothing becomes.
    pub(super) fn open_late(&self, out: &mut Text) {
        out.open("if (begin < end)");
        out.line("const int64 r = min(begin + threadIdx.x / WIDTH / ROW_WARPS, end - 1);");
    }

    /// What a reduction of a warp's columns begins with. A warp whose columns are all minus infinity goes by the least number.
    pub(super) fn begins_with(&self, id: ValueId) -> String {
        let late = self.schedule.late.iter();
        let mut maxima = late
            .flat_map(|late| &late.exponentials)
            .map(|both| both.max);
        match self.schedule.width > 32 && maxima.any(|max| max == id) {
            true => "LEAST".to_owned(),
            false => self.names.identity(id),
        }
    }

    /// Has each warp leave what it has of a row.
    pub(super) fn leave(&self, out: &mut Text, late: &Late) {
        out.open("if (lane == 0)");
        out.line("float *left = shared + threadIdx.x / WIDTH;");
        for (at, &id) in late.left().iter().chain(&late.numbers).enumerate() {
            out.line(format!("left[{at} * LEFT] = {};", self.names.of(id)));
        }
        out.close();
    }

    /// Computes what is known late, in the first warp, and the block's sums of it.
    pub(super) fn finish_late(&self, out: &mut Text, late: &Late) {
        out.line("__syncthreads();");
        out.line("if (threadIdx.x >= 32) return;");
        out.open("for (int of = threadIdx.x; of < GROUPS && begin + of < end; of += 32)");
        out.line("const float *left = shared + of * ROW_WARPS;");
        let mut at = 0;
        for both in &late.exponentials {
            let (max, sum) = (self.names.of(both.max), self.names.of(both.sum));
            out.line(format!("float {max}, {sum};"));
            out.line(format!(
                "join_exponentials<ROW_WARPS>({max}, {sum}, left + {at} * LEFT, left + {} * LEFT);",
                at + 1
            ));
            at += 2;
        }
        for &id in &late.reductions {
            let (name, how) = (self.names.of(id), how(self.names.reduction(id).0));
            out.line(format!(
                "const float {name} = reduce_left<{how}, ROW_WARPS>(left + {at} * LEFT);"
            ));
            at += 1;
        }
        for &id in &late.numbers {
            let name = self.names.of(id);
            out.line(format!("const float {name} = left[{at} * LEFT];"));
            at += 1;
        }
        self.values(out, &late.values);
        for &id in &late.last {
            let (reduction, of) = self.names.reduction(id);
            let name = self.names.of(id);
            let sum = Dialect::Cuda.reduced(reduction, &name, &self.names.scalar(of));
            out.line(format!("{name} = {sum};"));
        }
        out.close();
        for &id in &late.last {
            let (name, how) = (self.names.of(id), how(self.names.reduction(id).0));
            out.line(format!("{name} = reduce_lanes<{how}, 32>({name});"));
        }
    }
}
