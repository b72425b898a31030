//! An interpreter of nests, one cell after the other in f64: for tests of the passes that make
//! nests and of the code that is made of them, in this crate and outside.

use std::ops::Range;

use super::{CrossBlock, Dtype, Launch, Nest, Over, Reduction, Value, ValueId};

/// Elements of one operand: f64 or whole numbers, both as f64 (exact to 2^53).
pub(crate) type Elements = Vec<f64>;

/// Values of all cells: rows x columns, each computed from its definition.
struct Interpreter<'a> {
    nest: &'a Nest,
    launch: &'a Launch,
    memory: &'a [Elements],
    /// First row.
    first: usize,
    rows: usize,
    columns: usize,
    values: Vec<Vec<f64>>,
}

/// Computes some rows of a launch, as one block would: a reduction that is stored in parts is
/// written as the part of these rows. `memory` has the memory of each operand; an operand's view
/// has the position of its first element.
pub(crate) fn run(nest: &Nest, launch: &Launch, rows: Range<usize>, memory: &mut [Elements]) {
    let columns = launch.extents.columns as usize;
    let mut interpreter = Interpreter {
        nest,
        launch,
        memory,
        first: rows.start,
        rows: rows.len(),
        columns,
        values: vec![],
    };
    for at in 0..nest.values.len() {
        let value = interpreter.value(at);
        interpreter.values.push(value);
    }
    let varies = nest.varies();
    let mut written = Vec::new();
    for store in &nest.stores {
        let is_part = nest.cross_block == CrossBlock::Partials && nest.is_cross_block(store.value);
        for (row, column) in interpreter.cells() {
            let to = match (is_part, varies[store.value.0].columns) {
                (true, false) => 0,
                (true, true) => column,
                (false, _) => interpreter.place(store.operand.0, row, column, 0),
            };
            written.push((
                store.operand.0,
                to,
                interpreter.at(store.value, row, column),
            ));
        }
    }
    for (operand, to, value) in written {
        memory[operand][to] = value;
    }
}

impl Interpreter<'_> {
    fn at(&self, id: ValueId, row: usize, column: usize) -> f64 {
        self.values[id.0][row * self.columns + column]
    }

    /// All cells, with rows counted from the first one.
    fn cells(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rows, columns) = (self.rows, self.columns);
        (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }

    fn indices(&self, row: usize) -> Vec<usize> {
        let mut rest = self.first + row;
        let mut indices: Vec<usize> = self
            .launch
            .extents
            .rows
            .iter()
            .rev()
            .map(|&extent| {
                let index = rest % extent as usize;
                rest /= extent as usize;
                index
            })
            .collect();
        indices.reverse();
        indices
    }

    fn place(&self, operand: usize, row: usize, column: usize, index: i64) -> usize {
        let memory = &self.launch.operands[operand];
        let column = column ^ usize::from(self.nest.operands[operand].swaps_pairs);
        let rows = self.indices(row);
        let rows = rows
            .iter()
            .zip(&memory.rows)
            .map(|(&at, &step)| at as i64 * step);
        let start = memory.view.offset.fixed_value().unwrap_or(0);
        let place =
            start + rows.sum::<i64>() + column as i64 * memory.columns + index * memory.index_step;
        usize::try_from(place).unwrap()
    }

    fn value(&self, at: usize) -> Vec<f64> {
        match &self.nest.values[at] {
            Value::Reduce {
                reduction,
                over,
                of,
            } => self.reduce(*reduction, *over, *of),
            value => self
                .cells()
                .map(|(row, column)| self.cell(value, row, column))
                .collect(),
        }
    }

    fn cell(&self, value: &Value, row: usize, column: usize) -> f64 {
        let at = |id: ValueId| self.at(id, row, column);
        match value {
            Value::Load { operand, index } => {
                let index = index.map_or(0, |index| at(index) as i64);
                self.memory[operand.0][self.place(operand.0, row, column, index)]
            }
            Value::Constant(number) => *number,
            Value::Scalar(at) => f64::from(self.launch.scalars[*at]),
            Value::Column => column as f64,
            Value::Row(dim) => self.indices(row)[*dim] as f64,
            Value::Unary(unary, x) => unary.value(at(*x)),
            Value::Binary(binary, a, b) => binary.value(at(*a), at(*b)),
            Value::Select(mask, a, b) => {
                if at(*mask) != 0.0 {
                    at(*a)
                } else {
                    at(*b)
                }
            }
            Value::Cast(Dtype::I64, x) => at(*x).trunc(),
            Value::Cast(_, x) => at(*x),
            Value::Reduce { .. } => unreachable!("reductions have a function of their own"),
        }
    }

    fn reduce(&self, reduction: Reduction, over: Over, of: ValueId) -> Vec<f64> {
        let varies = self.nest.varies()[of.0];
        let fold = |terms: &mut dyn Iterator<Item = f64>| match reduction {
            Reduction::Sum => terms.sum(),
            Reduction::Max => terms.fold(f64::NEG_INFINITY, f64::max),
        };
        let (rows, columns) = (self.rows, self.columns);
        let mut result = vec![0.0; rows * columns];
        match over {
            Over::Columns => {
                for row in 0..rows {
                    let sum = fold(&mut (0..columns).map(|column| self.at(of, row, column)));
                    result[row * columns..][..columns].fill(sum);
                }
            }
            Over::Rows => {
                for column in 0..columns {
                    let sum = fold(&mut (0..rows).map(|row| self.at(of, row, column)));
                    (0..rows).for_each(|row| result[row * columns + column] = sum);
                }
            }
            Over::All => {
                let each = if varies.columns { columns } else { 1 };
                let cells = (0..rows).flat_map(|row| (0..each).map(move |column| (row, column)));
                let sum = fold(&mut cells.map(|(row, column)| self.at(of, row, column)));
                result.fill(sum);
            }
        }
        result
    }
}
