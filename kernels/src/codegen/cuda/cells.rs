//! Loops over the columns that a lane has, in CUDA.

use crate::nest::{Fill, Over, Step, Value, ValueId};
use crate::tensor::Dtype;

use super::super::scalar::{self, Dialect};
use super::super::text::Text;
use super::kernel::Writer;
use super::wide::is_gather;

/// What is done for each column of a lane.
#[derive(Default)]
pub(super) struct Cells<'a> {
    /// Values to compute, in order.
    pub values: &'a [ValueId],
    /// Values that later passes fetch.
    pub kept: &'a [ValueId],
    /// Values that are in arrays already.
    pub fetched: &'a [ValueId],
    /// Reductions to add to.
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

    /// The step of an operand's columns, in text.
    fn column_step(&self, operand: usize) -> String {
        match self.nest.operands[operand].columns {
            Step::Zero => "0".to_owned(),
            Step::One => "1".to_owned(),
            Step::Given => format!("{}_column", self.names.operand(operand)),
        }
    }

    /// Writes the loads, then one loop for the rest. `at` is added to columns: empty, or ` + offset`.
    pub(super) fn cells(&self, out: &mut Text, cells: &Cells<'_>, at: &str) {
        let here = match (at.is_empty(), self.schedule.fill) {
            (true, _) => "here",
            (false, Fill::Lanes) => "SPAN",
            (false, _) => "here - offset",
        };
        for &id in cells.values {
            let is_own = self.is_early_load(id) && !cells.kept.contains(&id);
            if is_own && !self.is_loaded(id) {
                self.array(out, id);
            }
        }
        self.loads(out, cells, at, here);
        let is_alone = cells.reductions.is_empty() && cells.stores.is_empty();
        if is_alone && cells.kept.iter().all(|id| self.is_early_load(*id)) {
            return;
        }
        self.open_abreast(out, false);
        out.line("#pragma unroll");
        out.open("for (int k = 0; k < CHUNKS; k++)");
        for &store in cells.stores {
            let dtype = self.names.dtype(self.nest.stores[store].value);
            out.line(format!("{dtype} chunk_{store}[4];"));
        }
        out.line("#pragma unroll");
        out.open("for (int j = 0; j < 4; j++)");
        let uses_column = cells
            .values
            .iter()
            .any(|id| matches!(self.nest.values[id.0], Value::Column) || self.is_gather(*id));
        if uses_column || !cells.reductions.is_empty() {
            out.line("const int c = 4 * (lane + WIDTH * k) + j;");
        }
        self.each(out, cells, at, here);
        out.close();
        for &store in cells.stores {
            self.store_chunk(out, store, at, here);
        }
        out.close();
        self.close_abreast(out);
    }

    /// Declares what a lane has of a value.
    pub(super) fn array(&self, out: &mut Text, id: ValueId) {
        let dtype = self.names.dtype(id);
        let rows = match self.names.is_abreast {
            true => "[ROWS]",
            false => "",
        };
        let name = self.names.defined(id);
        out.line(format!("{dtype} {name}{rows}[CHUNKS][4];"));
    }

    fn loads(&self, out: &mut Text, cells: &Cells<'_>, at: &str, here: &str) {
        let loads = cells.values.iter();
        let loads = loads.filter(|id| self.is_early_load(**id) && !self.is_loaded(**id));
        let lines: Vec<String> = loads
            .map(|&id| self.load(id, &self.names.of(id), at, here))
            .collect();
        if lines.is_empty() {
            return;
        }
        self.open_abreast(out, false);
        out.lines(lines);
        self.close_abreast(out);
    }

    /// Loads a lane's columns of an operand into the array `name`.
    pub(super) fn load(&self, id: ValueId, name: &str, at: &str, here: &str) -> String {
        let Value::Load { operand, .. } = self.nest.values[id.0] else {
            return String::new();
        };
        let step = self.column_step(operand.0);
        let (from, offset) = (self.names.pointer(id), self.offset(at, &step));
        if step == "1" && self.stages.dtypes[id.0] == Dtype::F32 {
            let how = match self.schedule.streams {
                true => ", stream",
                false => "",
            };
            format!("load_chunks<WIDTH>({name}, {from}{offset}, lane, {here}, is_wide{how});")
        } else {
            format!("load_steps<WIDTH>({name}, {from}{offset}, {step}, lane, {here});")
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
    fn cell_name(&self, cells: &Cells<'_>, id: ValueId) -> String {
        let name = self.names.scalar(id);
        let is_own =
            cells.values.contains(&id) && (self.is_early_load(id) || cells.kept.contains(&id));
        let is_sum = matches!(
            self.nest.values[id.0],
            Value::Reduce {
                over: Over::Rows,
                ..
            }
        );
        match is_own || is_sum || cells.fetched.contains(&id) {
            true => format!("{name}[k][j]"),
            false => name,
        }
    }

    /// What is computed for one column.
    fn each(&self, out: &mut Text, cells: &Cells<'_>, at: &str, here: &str) {
        let name = |id: ValueId| self.cell_name(cells, id);
        for &id in cells.values {
            let is_constant = matches!(self.nest.values[id.0], Value::Constant(_));
            if self.is_early_load(id) || is_constant {
                continue;
            }
            let expression = match &self.nest.values[id.0] {
                Value::Column => format!("first{at} + c"),
                Value::Load { operand, index } => {
                    let step = self.column_step(operand.0);
                    let index = index.map_or(String::new(), name);
                    let own = self.names.operand(operand.0);
                    let column = match step.as_str() {
                        "0" => String::new(),
                        step => format!(" + (c{at}) * {step}"),
                    };
                    let from = self.names.pointer(id);
                    format!("c < {here} ? {from}[{index} * {own}_index{column}] : 0")
                }
                _ => scalar::expression(self.nest, Dialect::Cuda, id, name),
            };
            out.line(match cells.kept.contains(&id) {
                true => format!("{} = {expression};", name(id)),
                false => format!(
                    "const {} {} = {expression};",
                    self.names.dtype(id),
                    name(id)
                ),
            });
        }
        for &id in &cells.reductions {
            self.accumulate(out, cells, id, at, here);
        }
        for &store in cells.stores {
            let value = name(self.nest.stores[store].value);
            out.line(format!("chunk_{store}[j] = {value};"));
        }
    }

    fn accumulate(&self, out: &mut Text, cells: &Cells<'_>, id: ValueId, at: &str, here: &str) {
        let Value::Reduce {
            reduction,
            over,
            of,
        } = self.nest.values[id.0]
        else {
            return;
        };
        let (total, term) = (self.names.of(id), self.cell_name(cells, of));
        let reduced = |to: &str| Dialect::Cuda.reduced(reduction, to, &term);
        let own = if over == Over::Columns || !self.has_groups() {
            ""
        } else {
            "is_own && "
        };
        out.line(match over {
            Over::Rows if self.schedule.is_looped => {
                let to = format!("part_{}[c{at}]", id.0);
                let old = format!(
                    "(r == begin ? {} : {to})",
                    Dialect::Cuda.identity(reduction)
                );
                format!("if (c < {here}) {to} = {};", reduced(&old))
            }
            Over::Rows => {
                let to = format!("{total}[k][j]");
                format!("if ({own}c < {here}) {to} = {};", reduced(&to))
            }
            _ => format!("if ({own}c < {here}) {total} = {};", reduced(&total)),
        });
    }

    /// Writes a chunk that a store has made.
    fn store_chunk(&self, out: &mut Text, at: usize, offset: &str, here: &str) {
        let store = &self.nest.stores[at];
        let is_last = self.nest.is_last(store.value);
        let is_once = self.names.is_one_row(store.operand.0) && !is_last;
        let to = self.names.target(at);
        let guard = match (is_once, self.has_groups() && !is_last) {
            (true, true) => format!("is_own && r == 0 ? {here} : 0"),
            (true, false) => format!("r == 0 ? {here} : 0"),
            (false, true) => format!("is_own ? {here} : 0"),
            (false, false) => here.to_owned(),
        };
        let step = self.column_step(store.operand.0);
        let offset = self.offset(offset, &step);
        out.line(
            if step == "1" && self.stages.dtypes[store.value.0] == Dtype::F32 {
                format!("store_chunk<WIDTH>({to}{offset}, chunk_{at}, lane, k, {guard}, is_wide);")
            } else {
                format!("store_steps<WIDTH>({to}{offset}, {step}, chunk_{at}, lane, k, {guard});")
            },
        );
    }
}
