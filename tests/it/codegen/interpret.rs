//! What a nest means, one cell after the other in f64.

use sweeper_kernels::graph::op::{Binary, Reduction, Unary};
use sweeper_kernels::nest::{Launch, Nest, Over, Parts, Value, ValueId};
use sweeper_kernels::{Data, Dtype};

/// Elements of one operand: f64 or whole numbers, both as f64 (exact to 2^53).
pub(super) type Elements = Vec<f64>;

pub(super) fn elements(data: &Data) -> Elements {
    match data {
        Data::F32(values) => values.iter().copied().map(f64::from).collect(),
        Data::F64(values) => values.clone(),
        Data::I32(values) => values.iter().copied().map(f64::from).collect(),
        Data::I64(values) => values.iter().map(|&value| value as f64).collect(),
    }
}

/// Values of all cells: rows x columns, each computed from its definition.
struct Interpreter<'a> {
    nest: &'a Nest,
    launch: &'a Launch,
    memory: &'a [Elements],
    rows: usize,
    columns: usize,
    values: Vec<Vec<f64>>,
}

/// Contents of all operands after a launch; what is not written stays as it is. Parts are not split:
/// a reduction that is stored in parts is written as one.
pub(super) fn run(nest: &Nest, launch: &Launch, memory: &[Elements]) -> Vec<Elements> {
    let rows = launch.extents.row_count() as usize;
    let columns = launch.extents.columns as usize;
    let mut interpreter = Interpreter {
        nest,
        launch,
        memory,
        rows,
        columns,
        values: vec![],
    };
    for at in 0..nest.values.len() {
        let value = interpreter.value(at);
        interpreter.values.push(value);
    }
    let mut written = memory.to_vec();
    for store in &nest.stores {
        let is_part = nest.parts == Parts::Many && nest.is_last(store.value);
        for row in 0..rows {
            for column in 0..columns {
                let to = if is_part {
                    let over_all = !nest.varies()[store.value.0].columns;
                    if over_all { 0 } else { column }
                } else {
                    interpreter.place(store.operand.0, row, column, 0)
                };
                written[store.operand.0][to] = interpreter.at(store.value, row, column);
            }
        }
    }
    written
}

impl Interpreter<'_> {
    fn at(&self, id: ValueId, row: usize, column: usize) -> f64 {
        self.values[id.0][row * self.columns + column]
    }

    fn indices(&self, row: usize) -> Vec<usize> {
        let mut rest = row;
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
        let rows = self.indices(row);
        let rows = rows
            .iter()
            .zip(&memory.rows)
            .map(|(&at, &step)| at as i64 * step);
        let place = rows.sum::<i64>() + column as i64 * memory.columns + index * memory.index_step;
        usize::try_from(place).unwrap()
    }

    fn value(&self, at: usize) -> Vec<f64> {
        let cells =
            (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column)));
        match &self.nest.values[at] {
            Value::Reduce {
                reduction,
                over,
                of,
            } => self.reduce(*reduction, *over, *of),
            value => cells
                .map(|(row, column)| self.cell(value, row, column))
                .collect(),
        }
    }

    fn cell(&self, value: &Value, row: usize, column: usize) -> f64 {
        let at = |id: ValueId| self.at(id, row, column);
        let mask = |is: bool| f64::from(u8::from(is));
        match value {
            Value::Load { operand, index } => {
                let index = index.map_or(0, |index| at(index) as i64);
                self.memory[operand.0][self.place(operand.0, row, column, index)]
            }
            Value::Constant(number) => *number,
            Value::Scalar(at) => f64::from(self.launch.scalars[*at]),
            Value::Column => column as f64,
            Value::Row(dim) => self.indices(row)[*dim] as f64,
            Value::Unary(unary, x) => self::unary(*unary, at(*x)),
            Value::Binary(binary, a, b) => {
                let (a, b) = (at(*a), at(*b));
                match binary {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                    Binary::Max => a.max(b),
                    Binary::Min => a.min(b),
                    Binary::Equal => mask(a == b),
                    Binary::Less => mask(a < b),
                    Binary::LessEqual => mask(a <= b),
                }
            }
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

/// The function itself, in f64.
pub(super) fn unary(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Tanh => x.tanh(),
        Unary::Erf => erf(x),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
    }
}

/// The error function: its series up to 3, above that the continued fraction of the rest.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let scale = 2.0 / std::f64::consts::PI.sqrt();
    if a < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return scale * sum;
    }
    let fraction = (1..60)
        .rev()
        .fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
    x.signum() * (1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt()))
}
