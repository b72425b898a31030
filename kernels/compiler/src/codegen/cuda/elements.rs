//! Loops over the elements that a thread has of a tile.

use crate::nest::{Alignment, Over, Stride, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::super::scalar::{self, Dialect};
use super::super::text::Text;
use super::kernel::Writer;
use super::vector::is_gather;

/// The work for each element.
#[derive(Default)]
pub(super) struct Elements<'a> {
    /// Values to compute, in order.
    pub values: &'a [ValueId],
    /// Values that stay in registers for later passes.
    pub resident: &'a [ValueId],
    /// Values that earlier passes left in registers.
    pub reused: &'a [ValueId],
    /// Reductions to accumulate.
    pub reductions: Vec<ValueId>,
    pub stores: &'a [usize],
}

impl Writer<'_> {
    fn is_gather(&self, id: ValueId) -> bool {
        is_gather(&self.stages.varies, &self.nest.values[id.0])
    }

    fn is_early_load(&self, id: ValueId) -> bool {
        matches!(self.nest.values[id.0], Value::Load { .. }) && !self.is_gather(id)
    }

    /// The stride of an operand's columns.
    fn column_stride(&self, operand: usize) -> String {
        match self.nest.operands[operand].columns {
            Stride::Broadcast => "0".to_owned(),
            Stride::Unit => "1".to_owned(),
            Stride::Dynamic => format!("{}_column", self.names.operand(operand)),
        }
    }

    /// Writes the loads, then one loop over elements for the rest. `at` is added to columns: empty,
    /// or ` + offset`.
    pub(super) fn elements(&self, out: &mut Text, elements: &Elements<'_>, at: &str) {
        let extent = match (at.is_empty(), self.schedule.hints.alignment) {
            (true, _) => "extent",
            (false, Alignment::FullTiles) => "TILE",
            (false, _) => "extent - offset",
        };
        for &id in elements.values {
            let is_own = self.is_early_load(id) && !elements.resident.contains(&id);
            if is_own && !self.is_loaded(id) {
                self.array(out, id);
            }
        }
        self.loads(out, elements, at, extent);
        let is_alone = elements.reductions.is_empty() && elements.stores.is_empty();
        if is_alone && elements.resident.iter().all(|id| self.is_early_load(*id)) {
            return;
        }
        self.open_rows_of_warp(out, false);
        out.line("#pragma unroll");
        out.open("for (int k = 0; k < VECTORS; k++)");
        for &store in elements.stores {
            let dtype = self.names.dtype(self.nest.stores[store].value);
            out.line(format!("{dtype} vector_{store}[4];"));
        }
        out.line("#pragma unroll");
        out.open("for (int j = 0; j < 4; j++)");
        let uses_column = elements
            .values
            .iter()
            .any(|id| matches!(self.nest.values[id.0], Value::Column) || self.is_gather(*id));
        if uses_column || !elements.reductions.is_empty() {
            out.line("const int c = 4 * (lane + ROW_THREADS * k) + j;");
        }
        self.element(out, elements, at, extent);
        out.close();
        for &store in elements.stores {
            self.store_vector(out, store, at, extent);
        }
        out.close();
        self.close_rows_of_warp(out);
    }

    /// Declares the array of a value's elements.
    pub(super) fn array(&self, out: &mut Text, id: ValueId) {
        let dtype = self.names.dtype(id);
        let rows = match self.names.has_row_arrays {
            true => "[ROWS_PER_WARP]",
            false => "",
        };
        let name = self.names.defined(id);
        out.line(format!("{dtype} {name}{rows}[VECTORS][4];"));
    }

    fn loads(&self, out: &mut Text, elements: &Elements<'_>, at: &str, extent: &str) {
        let loads = elements.values.iter();
        let loads = loads.filter(|id| self.is_early_load(**id) && !self.is_loaded(**id));
        let lines: Vec<String> = loads
            .map(|&id| self.load(id, &self.names.of(id), at, extent))
            .collect();
        if lines.is_empty() {
            return;
        }
        self.open_rows_of_warp(out, false);
        out.lines(lines);
        self.close_rows_of_warp(out);
    }

    /// Loads a thread's elements of an operand into the array `name`.
    pub(super) fn load(&self, id: ValueId, name: &str, at: &str, extent: &str) -> String {
        let Value::Load { operand, .. } = self.nest.values[id.0] else {
            return String::new();
        };
        let step = self.column_stride(operand.0);
        let (from, offset) = (self.names.pointer(id), self.offset(at, &step));
        if step == "1" && self.stages.dtypes[id.0] == Dtype::F32 {
            let policy = match self.schedule.hints.evict_first {
                true => ", policy",
                false => "",
            };
            let load = match self.nest.operands[operand.0].swaps_pairs {
                true => "load_swapped_pairs",
                false => "load_vectors",
            };
            format!(
                "{load}<ROW_THREADS>({name}, {from}{offset}, lane, {extent}, is_vectorized{policy});"
            )
        } else {
            format!("load_strided<ROW_THREADS>({name}, {from}{offset}, {step}, lane, {extent});")
        }
    }

    fn offset(&self, at: &str, step: &str) -> String {
        match (at.is_empty(), step) {
            (true, _) | (_, "0") => String::new(),
            (_, "1") => at.to_owned(),
            _ => format!("{at} * {step}"),
        }
    }

    /// The name of a value inside the loop.
    fn element_name(&self, elements: &Elements<'_>, id: ValueId) -> String {
        let name = self.names.scalar(id);
        let is_own = elements.values.contains(&id)
            && (self.is_early_load(id) || elements.resident.contains(&id));
        let is_sum = matches!(
            self.nest.values[id.0],
            Value::Reduce {
                over: Over::Rows,
                ..
            }
        );
        match is_own || is_sum || elements.reused.contains(&id) {
            true => format!("{name}[k][j]"),
            false => name,
        }
    }

    /// Computes one element.
    fn element(&self, out: &mut Text, elements: &Elements<'_>, at: &str, extent: &str) {
        let name = |id: ValueId| self.element_name(elements, id);
        for &id in elements.values {
            let is_constant = matches!(self.nest.values[id.0], Value::Constant(_));
            if self.is_early_load(id) || is_constant {
                continue;
            }
            let expression = match &self.nest.values[id.0] {
                Value::Column => format!("first_column{at} + c"),
                Value::Load { operand, index } => {
                    let step = self.column_stride(operand.0);
                    let index = index.map_or(String::new(), name);
                    let own = self.names.operand(operand.0);
                    let column = match step.as_str() {
                        "0" => String::new(),
                        step => format!(" + (c{at}) * {step}"),
                    };
                    let from = self.names.pointer(id);
                    let element = format!("{from}[{index} * {own}_index{column}]");
                    format!(
                        "c < {extent} ? {} : 0",
                        self.names.loaded(operand.0, element)
                    )
                }
                _ => scalar::expression(self.nest, Dialect::Cuda, id, name),
            };
            out.line(match elements.resident.contains(&id) {
                true => format!("{} = {expression};", name(id)),
                false => format!(
                    "const {} {} = {expression};",
                    self.names.dtype(id),
                    name(id)
                ),
            });
        }
        for &id in &elements.reductions {
            self.accumulate(out, elements, id, at, extent);
        }
        for &store in elements.stores {
            let value = name(self.nest.stores[store].value);
            out.line(format!("vector_{store}[j] = {value};"));
        }
    }

    fn accumulate(
        &self,
        out: &mut Text,
        elements: &Elements<'_>,
        id: ValueId,
        at: &str,
        extent: &str,
    ) {
        let Value::Reduce {
            reduction,
            over,
            of,
        } = self.nest.values[id.0]
        else {
            return;
        };
        let (total, term) = (self.names.of(id), self.element_name(elements, of));
        let reduced = |to: &str| Dialect::Cuda.reduced(reduction, to, &term);
        let own = if over == Over::Columns || !self.has_groups() {
            ""
        } else {
            "is_in_range && "
        };
        out.line(match over {
            Over::Rows if self.schedule.tile.is_looped => {
                let to = format!("partials_{}[c{at}]", id.0);
                let old = format!(
                    "(r == begin ? {} : {to})",
                    Dialect::Cuda.identity(reduction)
                );
                format!("if (c < {extent}) {to} = {};", reduced(&old))
            }
            Over::Rows => {
                let to = format!("{total}[k][j]");
                format!("if ({own}c < {extent}) {to} = {};", reduced(&to))
            }
            _ => format!("if ({own}c < {extent}) {total} = {};", reduced(&total)),
        });
    }

    /// Stores a float4.
    fn store_vector(&self, out: &mut Text, at: usize, offset: &str, extent: &str) {
        let store = &self.nest.stores[at];
        let is_result = self.nest.is_cross_block(store.value);
        let is_once = self.names.is_row_invariant(store.operand.0) && !is_result;
        let to = self.names.target(at);
        let guard = match (is_once, self.has_groups() && !is_result) {
            (true, true) => format!("is_in_range && r == 0 ? {extent} : 0"),
            (true, false) => format!("r == 0 ? {extent} : 0"),
            (false, true) => format!("is_in_range ? {extent} : 0"),
            (false, false) => extent.to_owned(),
        };
        let step = self.column_stride(store.operand.0);
        let offset = self.offset(offset, &step);
        out.line(
            if step == "1" && self.stages.dtypes[store.value.0] == Dtype::F32 {
                format!("store_vector<ROW_THREADS>({to}{offset}, vector_{at}, lane, k, {guard}, is_vectorized);")
            } else {
                format!("store_strided<ROW_THREADS>({to}{offset}, {step}, vector_{at}, lane, k, {guard});")
            },
        );
    }
}
