//! What a kernel defines for a row, or for several rows that a group has side by side: numbers, and where operands lie.

use std::fmt;

use crate::nest::{Step, Value, ValueId};

use super::super::text::Text;
use super::kernel::Writer;

/// A variable of a row.
pub(super) struct Definition {
    /// Its type; a pointer's ends with the star.
    pub dtype: String,
    pub name: String,
    pub value: String,
    /// Whether it is made from the row's index.
    pub uses_row: bool,
}

impl Definition {
    /// Its declaration, as an array of `extent`, or of none.
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
    /// Defines variables of the row; or of all that the group has side by side, as arrays.
    pub(super) fn define(&self, out: &mut Text, definitions: &[Definition]) {
        if !self.names.is_abreast {
            out.lines(definitions.iter().map(Definition::to_string));
            return;
        }
        if definitions.is_empty() {
            return;
        }
        let arrays = definitions.iter();
        out.lines(arrays.map(|definition| definition.declaration("[ROWS]") + ";"));
        let uses_row = definitions.iter().any(|definition| definition.uses_row);
        self.open_abreast(out, uses_row);
        for Definition { name, value, .. } in definitions {
            out.line(format!("{name}[i] = {value};"));
        }
        self.close_abreast(out);
    }

    /// Opens what is done for each row that the group has side by side; with the row's indices, if they are used.
    pub(super) fn open_abreast(&self, out: &mut Text, uses_row: bool) {
        if !self.names.is_abreast {
            return;
        }
        out.line("#pragma unroll");
        out.open("for (int i = 0; i < ROWS; i++)");
        if uses_row {
            out.line("const int64 r = begin + i;");
            let operands: Vec<usize> = (0..self.nest.operands.len()).collect();
            self.row_indices(out, &operands, true);
        }
    }

    pub(super) fn close_abreast(&self, out: &mut Text) {
        if self.names.is_abreast {
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
        let is_loaded = |id: &ValueId| self.schedule.ahead_of_row.contains(id);
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

    /// The row's index along each dimension that something is counted along, or in which one of these operands has a
    /// step.
    pub(super) fn row_indices(&self, out: &mut Text, operands: &[usize], is_counted: bool) {
        let uses = |dim: usize| {
            let counts = |value: &Value| *value == Value::Row(dim);
            let steps = |&at: &usize| self.nest.operands[at].rows[dim] != Step::Zero;
            (is_counted && self.nest.values.iter().any(counts)) || operands.iter().any(steps)
        };
        let Some(outermost) = (0..self.nest.row_dims).find(|&dim| uses(dim)) else {
            return;
        };
        if self.nest.row_dims == 1 {
            out.line("const int64 row_0 = r;");
            return;
        }
        // 32 bits: division takes a quarter of the time.
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
            Step::Zero => String::new(),
            Step::One => " + first".to_owned(),
            Step::Given => format!(" + first * {}_column", self.names.operand(operand)),
        }
    }

    /// The pointer to where a lane stores.
    pub(super) fn target(&self, at: usize) -> Definition {
        let store = &self.nest.stores[at];
        let operand = store.operand.0;
        let (to, first) = (self.names.row_offset(operand), self.first_of(operand));
        Definition {
            dtype: format!("{} *", self.names.dtype(store.value)),
            name: format!("to_{at}"),
            value: format!("{to}{first}"),
            uses_row: true,
        }
    }

    /// The pointer to what a lane loads: of a row, or of all.
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
            dtype: format!("const {} *", self.names.dtype(id)),
            name: format!("at_{}", id.0),
            value: format!("{from}{first}{index}"),
            uses_row: of_row,
        })
    }
}
