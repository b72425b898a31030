//! Nests from random choices: well-conditioned ones, so that f32 and f64 agree.

use sweeper_compiler::graph::op::{Binary, Reduction, Unary};
use sweeper_compiler::nest::{CrossBlock, Nest, Over, Stride, Value, ValueId};
use sweeper_program::Dtype;

use super::nests::Build;

/// Steps of operands over two dimensions of rows and one of columns.
const STEPS: [[Stride; 3]; 7] = [
    [Stride::Dynamic, Stride::Dynamic, Stride::Unit],
    [Stride::Broadcast, Stride::Dynamic, Stride::Unit],
    [Stride::Dynamic, Stride::Broadcast, Stride::Unit],
    [Stride::Broadcast, Stride::Broadcast, Stride::Unit],
    [Stride::Dynamic, Stride::Dynamic, Stride::Broadcast],
    [Stride::Dynamic, Stride::Unit, Stride::Dynamic],
    [Stride::Broadcast, Stride::Broadcast, Stride::Broadcast],
];

/// The nest for some choices: loads, functions of loads, reductions, and functions of reductions.
pub(super) fn nest(choices: &[u8]) -> Nest {
    let mut choices = choices.iter().map(|&choice| usize::from(choice));
    let mut next = |count: usize| choices.next().unwrap_or(0) % count;
    let mut b = Build::new("random", 2);
    let mut values: Vec<ValueId> = (0..2 + next(3)).map(|_| b.load(&STEPS[next(7)])).collect();
    let index = b.whole(&STEPS[next(7)]);
    values.push(b.at(&STEPS[next(4)], index));
    let column = b.add(Value::Column);
    let mask = b.binary(Binary::LessEqual, index, column);
    values.push(b.add(Value::Cast(Dtype::F32, index)));
    values.push(b.constant(0.75));
    for _ in 0..4 + next(6) {
        let (x, y) = (values[next(values.len())], values[next(values.len())]);
        let value = match next(8) {
            0 => b.binary(Binary::Add, x, y),
            1 => b.binary(Binary::Max, x, y),
            2 => b.unary(Unary::Tanh, x),
            3 => b.unary(Unary::Sigmoid, x),
            4 => {
                let bounded = b.unary(Unary::Tanh, x);
                b.unary(Unary::Exp, bounded)
            }
            5 => b.add(Value::Select(mask, x, y)),
            6 => {
                // A reduction over columns, made small for any number of columns.
                let reduced = match next(2) {
                    0 => b.reduce(Reduction::Max, Over::Columns, x),
                    _ => b.sum(Over::Columns, x),
                };
                let small = b.constant(1.0 / 1024.0);
                b.binary(Binary::Mul, reduced, small)
            }
            _ => {
                let bounded = b.unary(Unary::Erf, y);
                b.binary(Binary::Mul, x, bounded)
            }
        };
        values.push(value);
    }
    let last = values[values.len() - 1];
    b.store(&STEPS[0], last);
    let before = values[values.len() - 2];
    b.store(&STEPS[0], before);
    let varies = b.0.varies();
    match next(4) {
        0 => {
            let sum = b.sum(Over::Rows, last);
            b.store(&STEPS[3], sum);
        }
        1 => {
            let sum = b.sum(Over::All, before);
            b.store(&STEPS[6], sum);
        }
        2 if !varies.iter().any(|varies| varies.columns && varies.rows) => {
            b.0.cross_block = CrossBlock::OneBlock;
        }
        _ => {}
    }
    b.0
}
