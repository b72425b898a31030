//! One row, or several that a warp has at once: indices, pointers, numbers, and passes over its
//! columns.

use std::fmt;

use crate::nest::{Stride, Value, ValueId};

use super::super::scalar::Dialect;
use super::super::stages::Pass;
use super::super::text::Text;
use super::elements::Elements;
use super::kernel::Writer;
use super::{FullReduction, Template};

/// A variable of a row, or an array of them for several rows.
pub(super) struct Definition {
    /// Type of the variable; a pointer's ends with the star.
    pub dtype: String,
    pub name: String,
    pub value: String,
    /// The value depends on the row's index.
    pub uses_row: bool,
}

impl Definition {
    /// The variable's declaration, as an array of `extent` unless this is empty.
    fn declaration(&self, extent: &str) -> String {
        let space = if self.dtype.ends_with('*') { "" } else { " " };
        format!("{}{space}{}{extent}", self.dtype, self.name)
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {};", self.declaration(""), self.value)
    }
}

impl Writer<'_> {
    /// Computes the row: passes over its columns, and numbers between them.
    pub(super) fn row(&self, out: &mut Text) {
        let stores = self.stages.passes.iter().flat_map(|pass| &pass.stores);
        let targets: Vec<_> = stores.map(|&store| self.target(store)).collect();
        self.define(out, &targets);
        let is_deferred = self.schedule.deferred().is_some();
        let mut placed: Vec<ValueId> = Vec::new();
        for at in 0..self.stages.between.len() {
            match is_deferred {
                true if at == 0 => self.values(out, &self.stages.between[0].values),
                // Computed by warp 0 for all rows.
                true => {}
                false => self.between(out, at),
            }
            let Some(pass) = self.stages.passes.get(at) else {
                continue;
            };
            let is_new = |id: &ValueId| {
                let is_load = matches!(self.nest.values[id.0], Value::Load { .. });
                is_load && !self.is_loaded(*id) && !placed.contains(id)
            };
            let loads: Vec<ValueId> = pass.values.iter().copied().filter(is_new).collect();
            let pointers = loads.iter().filter_map(|&id| self.pointer(id, true));
            self.define(out, &pointers.collect::<Vec<_>>());
            placed.extend(loads);
            self.pass(out, pass);
        }
    }

    /// Numbers of the row before pass `at`, or after the last one.
    fn between(&self, out: &mut Text, at: usize) {
        let between = &self.stages.between[at];
        match self.names.has_row_arrays {
            true => self.define(out, &self.definitions(&between.values)),
            false => self.values(out, &between.values),
        }
        let own = if self.has_groups() {
            " && is_in_range"
        } else {
            ""
        };
        for &id in &between.cross_block {
            let (reduction, of) = self.names.reduction(id);
            let name = self.names.of(id);
            let sum = Dialect::Cuda.reduced(reduction, &name, &self.names.scalar(of));
            out.line(format!("if (lane == 0{own}) {name} = {sum};"));
        }
        if between.stores.is_empty() {
            return;
        }
        self.open_rows_of_warp(out, true);
        for &at in &between.stores {
            let store = &self.nest.stores[at];
            let to = self.names.row_offset(store.operand.0);
            let once = match self.names.is_row_invariant(store.operand.0) {
                true => " && r == 0",
                false => "",
            };
            out.line(format!(
                "if (lane == 0{own} && first_column == 0{once}) *({to}) = {};",
                self.names.scalar(store.value)
            ));
        }
        self.close_rows_of_warp(out);
    }

    fn pass(&self, out: &mut Text, pass: &Pass) {
        let initial = |&id: &ValueId| Definition {
            dtype: "float".to_owned(),
            name: self.names.defined(id),
            value: self.initial(id),
            uses_row: false,
        };
        self.define(
            out,
            &pass.reductions.iter().map(initial).collect::<Vec<_>>(),
        );
        let reductions = pass.reductions.iter().chain(&pass.cross_block);
        let elements = Elements {
            values: &pass.values,
            resident: &pass.resident,
            reused: &pass.reused,
            reductions: reductions.copied().collect(),
            stores: &pass.stores,
        };
        for &id in pass.resident.iter().filter(|id| !self.is_loaded(**id)) {
            self.array(out, id);
        }
        self.tiles(out, &elements);
        self.reduce_row(out, &pass.reductions);
    }

    /// Computes elements in the tile, or in a loop over tiles.
    pub(super) fn tiles(&self, out: &mut Text, elements: &Elements<'_>) {
        let (begin, at) = if self.schedule.tile.is_looped {
            let form = &self.schedule.template;
            let step = match form == &Template::FullReduction(FullReduction::ColumnTiles) {
                true => "(int)column_blocks * TILE",
                false => "TILE",
            };
            let line = format!("for (int offset = 0; offset < extent; offset += {step})");
            (line, " + offset")
        } else {
            (String::new(), "")
        };
        out.open(begin);
        self.elements(out, elements, at);
        out.close();
    }

    /// Defines variables of the row; as arrays where a warp has several rows.
    pub(super) fn define(&self, out: &mut Text, definitions: &[Definition]) {
        if !self.names.has_row_arrays {
            out.lines(definitions.iter().map(Definition::to_string));
            return;
        }
        if definitions.is_empty() {
            return;
        }
        let arrays = definitions.iter();
        out.lines(arrays.map(|definition| definition.declaration("[ROWS_PER_WARP]") + ";"));
        let uses_row = definitions.iter().any(|definition| definition.uses_row);
        self.open_rows_of_warp(out, uses_row);
        for Definition { name, value, .. } in definitions {
            out.line(format!("{name}[i] = {value};"));
        }
        self.close_rows_of_warp(out);
    }

    /// Opens the loop over the rows that a warp has at once, if it has several; with each row's
    /// indices, if they are used.
    pub(super) fn open_rows_of_warp(&self, out: &mut Text, uses_row: bool) {
        if !self.names.has_row_arrays {
            return;
        }
        out.line("#pragma unroll");
        out.open("for (int i = 0; i < ROWS_PER_WARP; i++)");
        if uses_row {
            out.line("const int64 r = begin + i;");
            let operands: Vec<usize> = (0..self.nest.operands.len()).collect();
            self.row_indices(out, &operands, true);
        }
    }

    pub(super) fn close_rows_of_warp(&self, out: &mut Text) {
        if self.names.has_row_arrays {
            out.close();
        }
    }

    /// Defines values that are one number for the thread.
    pub(super) fn values(&self, out: &mut Text, ids: &[ValueId]) {
        let definitions = self.definitions(ids);
        out.lines(
            definitions
                .iter()
                .map(|definition| format!("const {definition}")),
        );
    }

    /// Definitions of values that are one number, or one a row.
    pub(super) fn definitions(&self, ids: &[ValueId]) -> Vec<Definition> {
        let is_loaded = |id: &ValueId| match &self.schedule.template {
            Template::RowAndColumnReduction(prefetch) => prefetch.scalars.contains(id),
            _ => false,
        };
        let is_defined = |id: &&ValueId| match &self.nest.values[id.0] {
            Value::Constant(_) | Value::Reduce { .. } => false,
            _ => !is_loaded(id),
        };
        let defined = ids.iter().filter(is_defined).map(|&id| Definition {
            dtype: self.names.dtype(id).to_owned(),
            name: self.names.defined(id),
            value: self.names.expression(id),
            uses_row: matches!(self.nest.values[id.0], Value::Row(_) | Value::Load { .. }),
        });
        defined.collect()
    }

    /// The row's index along each dimension in which one of these operands has a stride; and, if
    /// `is_counted`, along each dimension whose index is a value.
    pub(super) fn row_indices(&self, out: &mut Text, operands: &[usize], is_counted: bool) {
        let uses = |dim: usize| {
            let counts = |value: &Value| *value == Value::Row(dim);
            let moves = |&at: &usize| self.nest.operands[at].rows[dim] != Stride::Broadcast;
            (is_counted && self.nest.values.iter().any(counts)) || operands.iter().any(moves)
        };
        let Some(outermost) = (0..self.nest.row_dims).find(|&dim| uses(dim)) else {
            return;
        };
        if self.nest.row_dims == 1 {
            out.line("const int64 row_0 = r;");
            return;
        }
        // In 32 bits: division takes a quarter of the time.
        out.line("unsigned rest = (unsigned)r;");
        for dim in (outermost.max(1)..self.nest.row_dims).rev() {
            if uses(dim) {
                out.line(format!(
                    "const int64 row_{dim} = rest % (unsigned)rows_{dim};"
                ));
            }
            if dim > outermost {
                out.line(format!("rest /= (unsigned)rows_{dim};"));
            }
        }
        if outermost == 0 {
            out.line("const int64 row_0 = rest;");
        }
    }

    fn first_of(&self, operand: usize) -> String {
        match self.nest.operands[operand].columns {
            Stride::Broadcast => String::new(),
            Stride::Unit => " + first_column".to_owned(),
            Stride::Dynamic => format!(" + first_column * {}_column", self.names.operand(operand)),
        }
    }

    /// The pointer to the elements that a store writes.
    pub(super) fn target(&self, at: usize) -> Definition {
        let store = &self.nest.stores[at];
        let operand = store.operand.0;
        let (to, first) = (self.names.row_offset(operand), self.first_of(operand));
        Definition {
            dtype: format!("{} *", self.names.element(operand)),
            name: format!("to_{at}"),
            value: format!("{to}{first}"),
            uses_row: true,
        }
    }

    /// The pointer to the elements of a load: of this row, or of all rows.
    pub(super) fn pointer(&self, id: ValueId, of_row: bool) -> Option<Definition> {
        let Value::Load { operand, index } = self.nest.values[id.0] else {
            return None;
        };
        let index = index.filter(|index| !self.stages.varies[index.0].columns);
        let index = self.names.index(operand.0, index);
        let from = match of_row {
            true => self.names.row_offset(operand.0),
            false => self.names.operand(operand.0),
        };
        let first = self.first_of(operand.0);
        Some(Definition {
            dtype: format!("const {} *", self.names.element(operand.0)),
            name: format!("at_{}", id.0),
            value: format!("{from}{first}{index}"),
            uses_row: of_row,
        })
    }
}
