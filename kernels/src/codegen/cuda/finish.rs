//! The text of reductions: of a row's lanes, and of what a block leaves when its rows are done.

use crate::graph::op::Reduction;
use crate::nest::{Parts, ValueId};

use super::super::text::Text;
use super::cells::Cells;
use super::kernel::Writer;

/// The struct of functions.cuh that reduces so.
pub(in super::super) fn how(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "Sum",
        Reduction::Max => "Max",
    }
}

impl Writer<'_> {
    /// Reduces what the lanes of a row have.
    pub(super) fn reduce(&self, out: &mut Text, ids: &[ValueId]) {
        for &id in ids {
            let (name, reduction) = (self.names.defined(id), self.names.reduction(id).0);
            let how = how(reduction);
            let is_late = self.schedule.late.is_some();
            out.line(match (self.names.is_abreast, reduction) {
                (true, _) => format!("reduce_lanes<{how}, WIDTH>({name});"),
                (_, Reduction::Max) if is_late => {
                    format!("{name} = greatest_of_lanes<WIDTH>({name});")
                }
                _ => format!("{name} = reduce_lanes<{how}, WIDTH>({name});"),
            });
        }
        if !self.shares_rows() || ids.is_empty() {
            return;
        }
        out.open("");
        out.line("float *cells = shared + turn;");
        out.line("turn ^= SLOTS;");
        self.exchange(out, ids, "WIDTH");
        out.close();
    }

    /// Reduces what warps have, through `cells` in shared memory.
    fn exchange(&self, out: &mut Text, ids: &[ValueId], width: &str) {
        for (at, &id) in ids.iter().enumerate() {
            let name = self.names.of(id);
            out.line(format!(
                "if (threadIdx.x % 32 == 0) cells[{at} * WARPS + threadIdx.x / 32] = {name};"
            ));
        }
        // Groups do not wait for each other. That takes all barriers that a block can have, and so keeps small blocks, whose
        // groups have one row and leave nothing, from being many.
        let is_small = self.schedule.has_one_row && !self.schedule.has_few_rows;
        let is_apart = width == "WIDTH" && self.has_groups() && !is_small;
        out.line(match is_apart {
            true => "sync_some(1 + group, WIDTH);",
            false => "__syncthreads();",
        });
        for (at, &id) in ids.iter().enumerate() {
            let (name, how) = (self.names.of(id), how(self.names.reduction(id).0));
            out.line(format!(
                "{name} = reduce_warps<{how}, {width}>(cells + {at} * WARPS);"
            ));
        }
    }

    pub(super) fn finish(&self, out: &mut Text) {
        let (over_rows, over_all) = (
            self.stages.over_rows(self.nest),
            self.stages.over_all(self.nest),
        );
        if self.has_groups() {
            for &id in &over_rows {
                let (name, how) = (self.names.of(id), how(self.names.reduction(id).0));
                out.line(format!(
                    "reduce_groups<{how}, WIDTH, GROUPS, CHUNKS>({name}, shared, lane, group);"
                ));
            }
        }
        if let Some(late) = &self.schedule.late {
            self.finish_late(out, late);
        } else if !over_all.is_empty() {
            for &id in &over_all {
                let (name, how) = (self.names.of(id), how(self.names.reduction(id).0));
                out.line(format!("{name} = reduce_lanes<{how}, 32>({name});"));
            }
            if self.shares_rows() || (self.has_groups() && !over_rows.is_empty()) {
                out.line("__syncthreads();");
            }
            out.line("float *cells = shared;");
            self.exchange(out, &over_all, "THREADS");
        }
        match self.nest.parts {
            Parts::Many => self.write_parts(out, &over_rows, &over_all),
            Parts::One => self.write_last(out),
        }
    }

    fn write_parts(&self, out: &mut Text, over_rows: &[ValueId], over_all: &[ValueId]) {
        for &id in over_all {
            let (part, name) = (self.names.part_of(id), self.names.of(id));
            out.line(format!(
                "if (threadIdx.x == 0) {part}[{}] = {name};",
                self.block
            ));
        }
        if over_rows.is_empty() || self.schedule.is_looped {
            return;
        }
        if self.has_groups() {
            out.line("if (group > 0) return;");
        }
        out.line("#pragma unroll");
        out.open("for (int k = 0; k < CHUNKS; k++)");
        for &id in over_rows {
            let (part, name) = (self.names.part_of(id), self.names.of(id));
            out.line(format!(
                "store_steps<WIDTH>({part} + share * columns + first, 1, {name}[k], lane, k, here);"
            ));
        }
        out.close();
    }

    /// What is computed from reductions over all rows.
    fn write_last(&self, out: &mut Text) {
        let finish = &self.stages.finish;
        self.values(out, &finish.uniform);
        for &at in &finish.stores {
            if !self.names.is_of_columns(at) {
                let store = &self.nest.stores[at];
                let to = self.names.operand(store.operand.0);
                out.line(format!(
                    "if (threadIdx.x == 0) *{to} = {};",
                    self.names.scalar(store.value)
                ));
            }
        }
        let stores = finish.stores.iter().copied();
        let stores: Vec<usize> = stores.filter(|&at| self.names.is_of_columns(at)).collect();
        if stores.is_empty() {
            return;
        }
        if self.has_groups() {
            out.line("if (group > 0) return;");
        }
        let targets = stores.iter().map(|&store| self.target(store));
        let pointers = finish
            .columns
            .iter()
            .filter_map(|&id| self.pointer(id, false));
        self.define(out, &targets.chain(pointers).collect::<Vec<_>>());
        let cells = Cells {
            values: &finish.columns,
            stores: &stores,
            ..Cells::default()
        };
        self.in_loop(out, &cells);
    }
}
