//! Nests as a compiler makes them, and a short way to write one down.

use sweeper_compiler::graph::op::{Binary, Reduction, Unary};
use sweeper_compiler::nest::{
    CrossBlock, Nest, Operand, OperandId, Over, Store, Stride, Value, ValueId,
};
use sweeper_program::Dtype;

/// Builds a nest of values in order.
pub(super) struct Build(pub Nest);

/// Steps of operands with one dimension of rows.
pub(super) const CELLS: [Stride; 2] = [Stride::Dynamic, Stride::Unit];
pub(super) const OF_COLUMNS: [Stride; 2] = [Stride::Broadcast, Stride::Unit];
pub(super) const OF_ROWS: [Stride; 2] = [Stride::Dynamic, Stride::Broadcast];
pub(super) const ONE: [Stride; 2] = [Stride::Broadcast, Stride::Broadcast];

impl Build {
    pub(super) fn new(name: &str, row_dims: usize) -> Build {
        Build(Nest {
            name: name.to_owned(),
            row_dims,
            operands: vec![],
            values: vec![],
            stores: vec![],
            cross_block: CrossBlock::Partials,
        })
    }

    pub(super) fn operand(
        &mut self,
        steps: &[Stride],
        dtype: Dtype,
        is_written: bool,
    ) -> OperandId {
        let (&columns, rows) = steps.split_last().unwrap();
        let rows = rows.to_vec();
        self.0.operands.push(Operand {
            dtype,
            rows,
            columns,
            is_written,
            swaps_pairs: false,
        });
        OperandId(self.0.operands.len() - 1)
    }

    pub(super) fn add(&mut self, value: Value) -> ValueId {
        self.0.values.push(value);
        ValueId(self.0.values.len() - 1)
    }

    pub(super) fn load(&mut self, steps: &[Stride]) -> ValueId {
        let operand = self.operand(steps, Dtype::F32, false);
        self.add(Value::Load {
            operand,
            index: None,
        })
    }

    pub(super) fn whole(&mut self, steps: &[Stride]) -> ValueId {
        let operand = self.operand(steps, Dtype::I64, false);
        self.add(Value::Load {
            operand,
            index: None,
        })
    }

    pub(super) fn at(&mut self, steps: &[Stride], index: ValueId) -> ValueId {
        let operand = self.operand(steps, Dtype::F32, false);
        self.add(Value::Load {
            operand,
            index: Some(index),
        })
    }

    pub(super) fn constant(&mut self, number: f64) -> ValueId {
        self.add(Value::Constant(number))
    }

    pub(super) fn unary(&mut self, unary: Unary, x: ValueId) -> ValueId {
        self.add(Value::Unary(unary, x))
    }

    pub(super) fn binary(&mut self, binary: Binary, a: ValueId, b: ValueId) -> ValueId {
        self.add(Value::Binary(binary, a, b))
    }

    pub(super) fn reduce(&mut self, reduction: Reduction, over: Over, of: ValueId) -> ValueId {
        self.add(Value::Reduce {
            reduction,
            over,
            of,
        })
    }

    pub(super) fn sum(&mut self, over: Over, of: ValueId) -> ValueId {
        self.reduce(Reduction::Sum, over, of)
    }

    /// The greatest of a row's columns, and the logarithm of their sum of e^(x - greatest).
    fn log_of_exponentials(&mut self, x: ValueId) -> (ValueId, ValueId) {
        let most = self.reduce(Reduction::Max, Over::Columns, x);
        let apart = self.binary(Binary::Sub, x, most);
        let power = self.unary(Unary::Exp, apart);
        let sum = self.sum(Over::Columns, power);
        (most, self.unary(Unary::Ln, sum))
    }

    pub(super) fn store(&mut self, steps: &[Stride], value: ValueId) {
        let dtype = self.0.dtypes().unwrap()[value.0];
        let operand = self.operand(steps, dtype, true);
        self.0.stores.push(Store { operand, value });
    }

    pub(super) fn one(mut self) -> Nest {
        self.0.cross_block = CrossBlock::OneBlock;
        self.0
    }
}

/// `gamma (x - mean) / sqrt(variance + epsilon) + beta`, mean and reciprocal deviation saved.
/// Numbers of the launch: the reciprocal of the columns, epsilon.
pub(super) fn layernorm() -> Nest {
    let mut b = Build::new("layernorm", 1);
    let x = b.load(&CELLS);
    let (gamma, beta) = (b.load(&OF_COLUMNS), b.load(&OF_COLUMNS));
    let (each, epsilon) = (b.add(Value::Scalar(0)), b.add(Value::Scalar(1)));
    let sum = b.sum(Over::Columns, x);
    let mean = b.binary(Binary::Mul, sum, each);
    let apart = b.binary(Binary::Sub, x, mean);
    let square = b.binary(Binary::Mul, apart, apart);
    let squares = b.sum(Over::Columns, square);
    let variance = b.binary(Binary::Mul, squares, each);
    let variance = b.binary(Binary::Add, variance, epsilon);
    let rstd = b.unary(Unary::Rsqrt, variance);
    let normal = b.binary(Binary::Mul, apart, rstd);
    let scaled = b.binary(Binary::Mul, normal, gamma);
    let out = b.binary(Binary::Add, scaled, beta);
    b.store(&CELLS, out);
    b.store(&OF_ROWS, mean);
    b.store(&OF_ROWS, rstd);
    b.0
}

/// Gradients of [`layernorm`] by x, and partials of the gradients by gamma and beta. The launch's
/// scalar is the reciprocal of the number of columns.
pub(super) fn layernorm_backward() -> Nest {
    let mut b = Build::new("layernorm_backward", 1);
    let (x, grad) = (b.load(&CELLS), b.load(&CELLS));
    let (gamma, mean, rstd) = (b.load(&OF_COLUMNS), b.load(&OF_ROWS), b.load(&OF_ROWS));
    let each = b.add(Value::Scalar(0));
    let apart = b.binary(Binary::Sub, x, mean);
    let normal = b.binary(Binary::Mul, apart, rstd);
    let scaled = b.binary(Binary::Mul, grad, gamma);
    let product = b.binary(Binary::Mul, scaled, normal);
    let (sum, products) = (b.sum(Over::Columns, scaled), b.sum(Over::Columns, product));
    let (sum, products) = (
        b.binary(Binary::Mul, sum, each),
        b.binary(Binary::Mul, products, each),
    );
    let along = b.binary(Binary::Mul, normal, products);
    let rest = b.binary(Binary::Sub, scaled, sum);
    let rest = b.binary(Binary::Sub, rest, along);
    let grad_x = b.binary(Binary::Mul, rest, rstd);
    let by_gamma = b.binary(Binary::Mul, grad, normal);
    let (by_gamma, by_beta) = (b.sum(Over::Rows, by_gamma), b.sum(Over::Rows, grad));
    b.store(&CELLS, grad_x);
    b.store(&OF_COLUMNS, by_gamma);
    b.store(&OF_COLUMNS, by_beta);
    b.0
}

/// Of rows of four tensors: the sum less its part along `gamma`, and the sums over rows of the
/// products with another tensor. Too many loads to prefetch a row.
pub(super) fn many_loads() -> Nest {
    let mut b = Build::new("many_loads", 1);
    let gamma = b.load(&OF_COLUMNS);
    let [x, y, z, w] = [0; 4].map(|_| b.load(&CELLS));
    let each = b.add(Value::Scalar(0));
    let (sum, other) = (b.binary(Binary::Add, x, y), b.binary(Binary::Add, z, w));
    let sum = b.binary(Binary::Add, sum, other);
    let scaled = b.binary(Binary::Mul, sum, gamma);
    let total = b.sum(Over::Columns, scaled);
    let total = b.binary(Binary::Mul, total, each);
    let along = b.binary(Binary::Mul, gamma, total);
    let rest = b.binary(Binary::Sub, sum, along);
    let product = b.binary(Binary::Mul, sum, w);
    let by_gamma = b.sum(Over::Rows, product);
    b.store(&CELLS, rest);
    b.store(&OF_COLUMNS, by_gamma);
    b.0
}

/// A nest whose numbers are bf16 in memory where it loads them.
pub(super) fn of_bf16(mut nest: Nest) -> Nest {
    for operand in &mut nest.operands {
        if operand.dtype == Dtype::F32 && !operand.is_written {
            operand.dtype = Dtype::Bf16;
        }
    }
    nest
}

/// A nest that loads columns with those of each pair exchanged.
pub(super) fn of_swapped_pairs(mut nest: Nest) -> Nest {
    let is_looked_up = |at: usize, nest: &Nest| {
        nest.values.iter().any(
            |value| matches!(value, Value::Load { operand, index: Some(_) } if operand.0 == at),
        )
    };
    for at in 0..nest.operands.len() {
        let is_apart = is_looked_up(at, &nest);
        let operand = &mut nest.operands[at];
        let has_columns = operand.columns == Stride::Unit && operand.dtype == Dtype::F32;
        operand.swaps_pairs = has_columns && !operand.is_written && !is_apart;
    }
    nest
}

/// `e^(x - max) / sum`.
pub(super) fn softmax() -> Nest {
    let mut b = Build::new("softmax", 1);
    let x = b.load(&CELLS);
    let most = b.reduce(Reduction::Max, Over::Columns, x);
    let apart = b.binary(Binary::Sub, x, most);
    let power = b.unary(Unary::Exp, apart);
    let sum = b.sum(Over::Columns, power);
    let out = b.binary(Binary::Div, power, sum);
    b.store(&CELLS, out);
    b.0
}

/// All values that a row may have of its own or share with other rows, without reductions over
/// rows: numbers that are loaded, looked up, computed from its index and stored; columns that are
/// looked up by one number for the row, or by one for each column; values computed from columns
/// that all rows share.
pub(super) fn rows_alone() -> Nest {
    let (given, zero, one) = (Stride::Dynamic, Stride::Broadcast, Stride::Unit);
    let mut b = Build::new("rows alone", 2);
    let x = b.load(&[given, given, one]);
    let (shared, number) = (b.load(&[zero, zero, one]), b.load(&[given, zero, zero]));
    let label = b.whole(&[given, given, zero]);
    let (looked_up, picked) = (
        b.at(&[zero, zero, one], label),
        b.at(&[zero, zero, zero], label),
    );
    let each = b.whole(&[zero, zero, one]);
    let gathered = b.at(&[given, zero, zero], each);
    let row = b.add(Value::Row(1));
    let (row, hundredth) = (b.add(Value::Cast(Dtype::F32, row)), b.constant(0.01));
    let row = b.binary(Binary::Mul, row, hundredth);
    let power = b.unary(Unary::Exp, shared);
    let scaled = b.binary(Binary::Mul, x, power);
    let sum = b.binary(Binary::Add, scaled, looked_up);
    let sum = b.binary(Binary::Add, sum, gathered);
    let most = b.reduce(Reduction::Max, Over::Columns, sum);
    let apart = b.binary(Binary::Sub, sum, most);
    let small = b.binary(Binary::Mul, apart, number);
    let sigmoid = b.unary(Unary::Sigmoid, small);
    let total = b.sum(Over::Columns, sigmoid);
    let each = b.binary(Binary::Div, sigmoid, total);
    let out = b.binary(Binary::Mul, each, power);
    let out = b.binary(Binary::Add, out, row);
    b.store(&[given, given, one], out);
    let number = b.binary(Binary::Add, most, picked);
    b.store(&[given, given, zero], number);
    b.store(&[given, one, given], out);
    b.0
}

/// The logarithm of the sum of exponentials less the label's logit, for each row, and the parts of
/// the sum over rows.
pub(super) fn cross_entropy() -> Nest {
    let mut b = Build::new("cross_entropy", 1);
    let x = b.load(&CELLS);
    let label = b.whole(&OF_ROWS);
    let most = b.reduce(Reduction::Max, Over::Columns, x);
    let apart = b.binary(Binary::Sub, x, most);
    let power = b.unary(Unary::Exp, apart);
    let sum = b.sum(Over::Columns, power);
    let log = b.unary(Unary::Ln, sum);
    let column = b.add(Value::Column);
    let is_label = b.binary(Binary::Equal, column, label);
    let zero = b.constant(0.0);
    let picked = b.add(Value::Select(is_label, apart, zero));
    let picked = b.sum(Over::Columns, picked);
    let loss = b.binary(Binary::Sub, log, picked);
    let total = b.sum(Over::All, loss);
    b.store(&OF_ROWS, loss);
    b.store(&ONE, total);
    b.0
}

/// The sum over rows of a logit that the row's label picks less the logarithm of the sum of
/// exponentials.
pub(super) fn log_likelihood() -> Nest {
    let mut b = Build::new("log_likelihood", 1);
    let x = b.load(&CELLS);
    let label = b.whole(&OF_ROWS);
    let logit = b.at(&OF_ROWS, label);
    let (most, log) = b.log_of_exponentials(x);
    let apart = b.binary(Binary::Sub, logit, most);
    let each = b.binary(Binary::Sub, apart, log);
    let total = b.sum(Over::All, each);
    b.store(&ONE, total);
    b.0
}

/// For x times a number, the greatest element of a row, and the sum of exponentials of the
/// differences from it; and x times the number.
pub(super) fn sums_of_exponentials(magnitude: f64) -> Nest {
    let mut b = Build::new("exponentials", 1);
    let x = b.load(&CELLS);
    let magnitude = b.constant(magnitude);
    let x = b.binary(Binary::Mul, x, magnitude);
    let most = b.reduce(Reduction::Max, Over::Columns, x);
    let apart = b.binary(Binary::Sub, x, most);
    let power = b.unary(Unary::Exp, apart);
    let sum = b.sum(Over::Columns, power);
    b.store(&OF_ROWS, most);
    b.store(&OF_ROWS, sum);
    b.store(&CELLS, x);
    b.0
}

/// The sum over rows of the logarithm of the sum of exponentials of the row's given number of
/// columns, times a number of the row; beside it, the sum of the greatest elements of twice a row.
/// Without columns the logarithm is not a number, and counts as 5 in the sum.
pub(super) fn masked_exponentials() -> Nest {
    let mut b = Build::new("masked", 1);
    let (x, weight) = (b.load(&CELLS), b.load(&OF_ROWS));
    let count = b.whole(&OF_ROWS);
    let column = b.add(Value::Column);
    let is_there = b.binary(Binary::Less, column, count);
    let nothing = b.constant(f64::NEG_INFINITY);
    let masked = b.add(Value::Select(is_there, x, nothing));
    let (most, log) = b.log_of_exponentials(masked);
    let log = b.binary(Binary::Add, most, log);
    let is_number = b.binary(Binary::Equal, log, log);
    let five = b.constant(5.0);
    let chosen = b.add(Value::Select(is_number, log, five));
    let weighted = b.binary(Binary::Mul, chosen, weight);
    let total = b.sum(Over::All, weighted);
    let twice = b.binary(Binary::Add, x, x);
    let greatest = b.reduce(Reduction::Max, Over::Columns, twice);
    let total_of_greatest = b.sum(Over::All, greatest);
    b.store(&ONE, total);
    b.store(&ONE, total_of_greatest);
    b.0
}

/// The sum over rows of the squared differences from the row's sum times a number.
pub(super) fn total_of_variances() -> Nest {
    let mut b = Build::new("variances", 1);
    let x = b.load(&CELLS);
    let sum = b.sum(Over::Columns, x);
    let each = b.add(Value::Scalar(0));
    let mean = b.binary(Binary::Mul, sum, each);
    let apart = b.binary(Binary::Sub, x, mean);
    let square = b.binary(Binary::Mul, apart, apart);
    let squares = b.sum(Over::Columns, square);
    let root = b.unary(Unary::Sqrt, squares);
    let total = b.sum(Over::All, root);
    b.store(&ONE, total);
    b.0
}

/// `(x + bias) / 2 (1 + erf((x + bias) / sqrt 2))`.
pub(super) fn gelu_of_bias() -> Nest {
    let mut b = Build::new("gelu", 1);
    let (x, bias) = (b.load(&CELLS), b.load(&OF_COLUMNS));
    let x = b.binary(Binary::Add, x, bias);
    let (half, one, root) = (b.constant(0.5), b.constant(1.0), b.constant(0.5f64.sqrt()));
    let scaled = b.binary(Binary::Mul, x, root);
    let erf = b.unary(Unary::Erf, scaled);
    let more = b.binary(Binary::Add, erf, one);
    let halves = b.binary(Binary::Mul, x, half);
    let out = b.binary(Binary::Mul, halves, more);
    b.store(&CELLS, out);
    b.0
}

/// Hyperbolic tangent of a dense tensor, which is one row.
pub(super) fn tanh() -> Nest {
    let mut b = Build::new("tanh", 1);
    let x = b.load(&CELLS);
    let tanh = b.unary(Unary::Tanh, x);
    b.store(&CELLS, tanh);
    b.one()
}

/// Negation of one number: no value is computed for columns.
pub(super) fn neg_of_one() -> Nest {
    let mut b = Build::new("neg", 1);
    let x = b.load(&ONE);
    let neg = b.unary(Unary::Neg, x);
    b.store(&ONE, neg);
    b.one()
}

/// Parts of the sum of squared differences.
pub(super) fn squared_error() -> Nest {
    let mut b = Build::new("mse", 1);
    let (x, y) = (b.load(&CELLS), b.load(&CELLS));
    let apart = b.binary(Binary::Sub, x, y);
    let square = b.binary(Binary::Mul, apart, apart);
    let total = b.sum(Over::All, square);
    b.store(&ONE, total);
    b.0
}

/// The sum of a number of each row: nothing is computed for columns.
pub(super) fn total_of_rows() -> Nest {
    let mut b = Build::new("total of rows", 1);
    let x = b.load(&OF_ROWS);
    let total = b.sum(Over::All, x);
    b.store(&ONE, total);
    b.0
}

/// The sum over everything, times a number of the launch.
pub(super) fn mean_of_all() -> Nest {
    let mut b = Build::new("mean", 1);
    let x = b.load(&CELLS);
    let total = b.sum(Over::All, x);
    let each = b.add(Value::Scalar(2));
    let mean = b.binary(Binary::Mul, total, each);
    b.store(&ONE, mean);
    b.one()
}

/// The sum over rows: as partials, or whole and with a number added.
pub(super) fn column_sum(cross_block: CrossBlock) -> Nest {
    let mut b = Build::new("bias_backward", 1);
    let x = b.load(&CELLS);
    let sum = b.sum(Over::Rows, x);
    if cross_block == CrossBlock::Partials {
        b.store(&OF_COLUMNS, sum);
        return b.0;
    }
    let before = b.load(&OF_COLUMNS);
    let after = b.binary(Binary::Add, before, sum);
    b.store(&OF_COLUMNS, after);
    b.one()
}

/// Masked, transposed, broadcast and looked up by index, over two dimensions of rows.
pub(super) fn mixed() -> Nest {
    let (given, zero, one) = (Stride::Dynamic, Stride::Broadcast, Stride::Unit);
    let mut b = Build::new("mixed", 2);
    let x = b.load(&[given, given, one]);
    let (outer, inner) = (b.load(&[given, zero, one]), b.load(&[zero, given, zero]));
    let turned = b.load(&[given, one, given]);
    let index = b.whole(&[zero, given, zero]);
    let looked_up = b.at(&[zero, zero, one], index);
    let each = b.whole(&[given, given, one]);
    let gathered = b.at(&[zero, zero, zero], each);
    let (row, column) = (b.add(Value::Row(1)), b.add(Value::Column));
    let is_before = b.binary(Binary::LessEqual, column, row);
    let sum = b.binary(Binary::Add, x, outer);
    let sum = b.binary(Binary::Mul, sum, inner);
    let sum = b.binary(Binary::Add, sum, turned);
    let sum = b.binary(Binary::Add, sum, looked_up);
    let sum = b.binary(Binary::Sub, sum, gathered);
    let number = b.add(Value::Cast(Dtype::F32, each));
    let sum = b.binary(Binary::Max, sum, number);
    let out = b.add(Value::Select(is_before, sum, turned));
    b.store(&[given, given, one], out);
    let most = b.reduce(Reduction::Max, Over::Columns, out);
    b.store(&[given, given, zero], most);
    b.store(&[given, given, one], most);
    b.0
}

/// `parameter - rate gradient`, the number of the launch being the rate.
pub(super) fn sgd() -> Nest {
    let mut b = Build::new("sgd", 1);
    let (parameter, gradient) = (b.load(&CELLS), b.load(&CELLS));
    let rate = b.add(Value::Scalar(0));
    let step = b.binary(Binary::Mul, gradient, rate);
    let after = b.binary(Binary::Sub, parameter, step);
    b.store(&CELLS, after);
    b.0
}
