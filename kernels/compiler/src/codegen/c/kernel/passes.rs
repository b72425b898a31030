//! Functions of a vector of columns, one for each pass, and the `Row` that they share with the
//! kernel.

use super::super::vectors::Steps;
use super::Writer;
use crate::codegen::launch::Parameter;
use crate::codegen::scalar::Dialect;
use crate::codegen::stages::Pass;
use crate::codegen::text::Text;
use crate::graph::op::Reduction;
use crate::nest::{CrossBlock, Over, Value, ValueId};
use sweeper_program::tensor::Dtype;

impl Writer<'_> {
    fn is_over(&self, id: ValueId, wanted: Over) -> bool {
        matches!(self.nest.values[id.0], Value::Reduce { over, .. } if over == wanted)
    }

    /// Values that are one number, or one a row: fields of `Row`.
    fn row_values(&self) -> Vec<ValueId> {
        let between = self
            .stages
            .between
            .iter()
            .flat_map(|between| &between.values);
        let all = self.stages.uniform.iter().chain(between);
        let all = all.chain(&self.stages.after_rows.uniform);
        let mut all: Vec<ValueId> = all
            .copied()
            .filter(|id| !matches!(self.nest.values[id.0], Value::Constant(_)))
            .collect();
        if self.nest.cross_block == CrossBlock::OneBlock {
            all.extend(self.stages.over_all(self.nest));
        }
        all
    }

    /// Loads that vary over columns.
    fn column_loads(&self) -> Vec<ValueId> {
        let passes = self.stages.passes.iter().flat_map(|pass| &pass.values);
        let all = passes.chain(&self.stages.after_rows.columns);
        let mut loads: Vec<ValueId> = all
            .copied()
            .filter(|id| matches!(self.nest.values[id.0], Value::Load { .. }))
            .collect();
        loads.sort();
        loads.dedup();
        loads
    }

    /// Stores of each column.
    fn column_stores(&self) -> impl Iterator<Item = usize> {
        let passes = self.stages.passes.iter().flat_map(|pass| &pass.stores);
        let finish = self.stages.after_rows.stores.iter();
        let finish = finish
            .filter(|&&store| self.names.is_of_columns(store) && !self.names.is_partial(store));
        passes.chain(finish).copied()
    }

    /// The type of the values that a row's columns share.
    pub(super) fn row_type(&self, out: &mut Text) {
        out.line("// Values of a row.");
        out.open("typedef struct");
        out.line("int64_t index, first_column;");
        for parameter in self.parameters {
            if let Parameter::ColumnStep(_) | Parameter::IndexStep(_) = parameter {
                out.line(format!("int64_t {};", parameter.name(self.nest)));
            }
        }
        for id in self.row_values() {
            out.line(format!("{} {};", self.names.dtype(id), self.names.of(id)));
        }
        for id in self.column_loads() {
            out.line(format!("const {} *at_{};", self.names.dtype(id), id.0));
        }
        for store in self.column_stores() {
            let dtype = self.names.dtype(self.nest.stores[store].value);
            out.line(format!("{dtype} *to_{store};"));
        }
        for (id, _) in &self.schedule.homes {
            out.line(format!("float *kept_{};", id.0));
        }
        for id in self.stages.over_rows(self.nest) {
            out.line(format!("float *partials_{};", id.0));
        }
        if self.nontemporal.is_any() {
            out.line("int large, nontemporal;");
        }
        out.close_with(&format!(" {}Row;", self.prefix));
        out.line("");
    }

    /// Accumulators of a pass that are in registers: of columns, then of all.
    pub(super) fn accumulators(&self, pass: &Pass) -> Vec<ValueId> {
        let last = pass
            .cross_block
            .iter()
            .filter(|id| self.is_over(**id, Over::All));
        pass.reductions.iter().chain(last).copied().collect()
    }

    /// The function of a pass.
    pub(super) fn pass(&self, out: &mut Text, at: usize) {
        let pass = &self.stages.passes[at];
        let accumulators = self.accumulators(pass);
        let parameters: String = accumulators
            .iter()
            .map(|&id| format!(", vf *{}", self.names.of(id)))
            .collect();
        out.open(format!(
            "INLINE void {0}pass_{at}(const {0}Row *row, int64_t c, int64_t count{parameters})",
            self.prefix
        ));
        out.lines(self.nontemporal.prefetches(at));
        for id in &pass.reused {
            let name = self.names.of(*id);
            out.line(format!(
                "const vf {name} = v_load_first(row->kept_{} + c, count);",
                id.0
            ));
        }
        for id in &pass.values {
            out.lines(self.vectors.define(*id));
            if pass.resident.contains(id) {
                let name = self.names.of(*id);
                out.line(format!(
                    "v_store_first(row->kept_{} + c, {name}, count);",
                    id.0
                ));
            }
        }
        for id in accumulators {
            let (reduction, of) = self.names.reduction(id);
            let name = self.names.of(id);
            let rest = Dialect::C.identity(reduction);
            let term = format!("v_first_of({}, count, {rest})", self.vectors.lanes(of));
            out.line(match reduction {
                Reduction::Sum => format!("*{name} += {term};"),
                Reduction::Max => format!("*{name} = v_max({term}, *{name});"),
            });
        }
        for id in pass
            .cross_block
            .iter()
            .filter(|id| self.is_over(**id, Over::Rows))
        {
            let (reduction, of) = self.names.reduction(*id);
            let old = format!("v_load_first(row->partials_{} + c, count)", id.0);
            let term = self.vectors.lanes(of);
            let new = match reduction {
                Reduction::Sum => format!("{old} + {term}"),
                Reduction::Max => format!("v_max({term}, {old})"),
            };
            out.line(format!(
                "v_store_first(row->partials_{} + c, {new}, count);",
                id.0
            ));
        }
        for store in &pass.stores {
            self.store(out, *store);
        }
        out.close();
        out.line("");
    }

    /// A store of columns.
    fn store(&self, out: &mut Text, at: usize) {
        let store = &self.nest.stores[at];
        let value = self.vectors.lanes(store.value);
        let steps = Steps::of(self.nest, store.operand.0);
        let is_long = self.stages.dtypes[store.value.0] == Dtype::I64;
        let line = match &steps {
            Steps::Contiguous if self.nontemporal.has(at) => {
                format!("v_store_past(row->to_{at} + c, {value}, count, row->nontemporal);")
            }
            Steps::Contiguous if !is_long => {
                format!("v_store_first(row->to_{at} + c, {value}, count);")
            }
            steps => format!(
                "{}_store_step(row->to_{at} + {}, {}, {value}, count);",
                if is_long { 'l' } else { 'v' },
                steps.offset("c"),
                steps.column()
            ),
        };
        let is_once = self.names.is_row_invariant(store.operand.0);
        out.line(match is_once && !self.nest.is_cross_block(store.value) {
            true => format!("if (row->index == 0) {line}"),
            false => line,
        });
    }

    /// Computes each column after all rows.
    pub(super) fn finish_columns(&self, out: &mut Text) {
        if !self.finishes_columns() {
            return;
        }
        out.open(format!(
            "INLINE void {0}finish(const {0}Row *row, int64_t c, int64_t count)",
            self.prefix
        ));
        for id in self.stages.over_rows(self.nest) {
            out.lines(self.vectors.define(id));
        }
        for id in &self.stages.after_rows.columns {
            out.lines(self.vectors.define(*id));
        }
        for &store in &self.stages.after_rows.stores {
            if self.names.is_of_columns(store) {
                self.store(out, store);
            }
        }
        out.close();
        out.line("");
    }
}
