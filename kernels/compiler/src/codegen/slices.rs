//! Launches of more elements than a kernel counts in 32 bits, as several launches over slices.
//!
//! Only kernels whose iterations know nothing of each other along the dimension that is cut:
//! neither is anything reduced along it, nor is its index a value.

use crate::nest::{Launch, Memory, Nest, Over, Value};
use sweeper_program::{Index, View};

/// A dimension of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Row(usize),
    Columns,
}

/// The launch, or slices of it of which each `fits`; the whole launch where it can't be cut.
pub(super) fn slices(nest: &Nest, launch: &Launch, fits: impl Fn(&Launch) -> bool) -> Vec<Launch> {
    let (mut open, mut done) = (vec![launch.clone()], vec![]);
    while let Some(whole) = open.pop() {
        match longest(nest, &whole).filter(|_| !fits(&whole)) {
            Some(dimension) => {
                let extent = extent(&whole, dimension);
                // Of a power of two, so that tiles are full and rows aligned as in the whole.
                let first = 1 << (extent / 2).ilog2();
                open.push(slice(&whole, dimension, first..extent));
                open.push(slice(&whole, dimension, 0..first));
            }
            None => done.push(whole),
        }
    }
    done
}

/// The longest dimension that may be cut.
fn longest(nest: &Nest, launch: &Launch) -> Option<Dimension> {
    let rows = (0..nest.row_dims).map(Dimension::Row);
    let all = rows.chain([Dimension::Columns]);
    let may_be_cut = all.filter(|&dimension| is_independent(nest, dimension));
    may_be_cut
        .filter(|&dimension| extent(launch, dimension) > 1)
        .max_by_key(|&dimension| extent(launch, dimension))
}

/// Whether iterations along a dimension know nothing of each other.
fn is_independent(nest: &Nest, dimension: Dimension) -> bool {
    let knows = |value: &Value| match (value, dimension) {
        (Value::Row(row), Dimension::Row(dim)) => *row == dim,
        (Value::Column, Dimension::Columns) => true,
        (Value::Reduce { over, .. }, Dimension::Row(_)) => *over != Over::Columns,
        (Value::Reduce { .. }, Dimension::Columns) => true,
        _ => false,
    };
    !nest.values.iter().any(knows)
}

fn extent(launch: &Launch, dimension: Dimension) -> u64 {
    match dimension {
        Dimension::Row(dim) => launch.extents.rows[dim],
        Dimension::Columns => launch.extents.columns,
    }
}

/// The iterations of a launch that are in a range of a dimension.
fn slice(launch: &Launch, dimension: Dimension, range: std::ops::Range<u64>) -> Launch {
    let mut slice = launch.clone();
    let (extent, count) = (extent(launch, dimension), range.end - range.start);
    for memory in &mut slice.operands {
        let step = match dimension {
            Dimension::Row(dim) => memory.rows[dim],
            Dimension::Columns => memory.columns,
        };
        memory.view = slice_of_view(memory, step, range.start, [count, extent]);
    }
    match dimension {
        Dimension::Row(dim) => slice.extents.rows[dim] = count,
        Dimension::Columns => slice.extents.columns = count,
    }
    slice
}

/// The part of an operand that `count` of `extent` iterations touch, from `first` on.
fn slice_of_view(memory: &Memory, step: i64, first: u64, [count, extent]: [u64; 2]) -> View {
    let mut view = memory.view.clone();
    if step == 0 {
        return view;
    }
    view.offset = view.offset.shifted(first as i64 * step);
    view.len = view
        .len
        .saturating_sub(((extent - count) as i64 * step) as usize);
    if let Some(touched) = &mut view.touched
        && let Some(elements) = touched.elements.fixed_value()
    {
        let share = i128::from(elements) * i128::from(count) / i128::from(extent);
        touched.elements = Index::fixed(share as i64);
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::{Generated, known};
    use crate::nest::{
        Binary, Bounds, CrossBlock, Extents, Operand, OperandId, Reduction, Store, Stride, Unary,
        ValueId, interpret,
    };
    use sweeper_program::tensor::Dtype;
    use sweeper_program::workload::Target;
    use sweeper_program::{Arg, BufferId, KernelId, Step};

    /// Loads of a matrix (rows, columns) and of a number a row, and a store of the matrix.
    fn nest(values: Vec<Value>) -> Nest {
        let operand = |columns, is_written| Operand {
            dtype: Dtype::F32,
            rows: vec![Stride::Dynamic],
            columns,
            is_written,
            swaps_pairs: false,
        };
        let load = |at| Value::Load {
            operand: OperandId(at),
            index: None,
        };
        let values: Vec<Value> = [load(0), load(1)].into_iter().chain(values).collect();
        Nest {
            name: String::new(),
            row_dims: 1,
            operands: vec![
                operand(Stride::Unit, false),
                operand(Stride::Broadcast, false),
                operand(Stride::Unit, true),
            ],
            stores: vec![Store {
                operand: OperandId(2),
                value: ValueId(values.len() - 1),
            }],
            values,
            cross_block: CrossBlock::OneBlock,
        }
    }

    /// `exp(x) y`
    fn pointwise() -> Nest {
        nest(vec![
            Value::Unary(Unary::Exp, ValueId(0)),
            Value::Binary(Binary::Mul, ValueId(2), ValueId(1)),
        ])
    }

    fn launch(rows: u64, columns: u64) -> Launch {
        let memory = |buffer, row: u64, column| Memory {
            view: View::new(
                BufferId(buffer),
                Index::fixed(0),
                if column == 1 { rows * columns } else { rows } as usize,
            ),
            rows: vec![row as i64],
            columns: column,
            index_step: 0,
        };
        Launch {
            extents: Extents {
                rows: vec![rows],
                columns,
            },
            operands: vec![
                memory(0, columns, 1),
                memory(1, 1, 0),
                memory(2, columns, 1),
            ],
            scalars: vec![],
        }
    }

    fn values(nest: &Nest, launches: &[Launch]) -> Vec<f64> {
        let whole = |len: usize| (0..len).map(|at| (at % 17) as f64 / 8.0 - 1.0).collect();
        let mut memory: Vec<Vec<f64>> = vec![whole(60), whole(60), vec![f64::NAN; 60]];
        for launch in launches {
            interpret::run(
                nest,
                launch,
                0..launch.extents.row_count() as usize,
                &mut memory,
            );
        }
        memory.remove(2)
    }

    #[test]
    fn slices_compute_what_the_whole_does() {
        let sums = nest(vec![
            Value::Reduce {
                reduction: Reduction::Sum,
                over: Over::Columns,
                of: ValueId(0),
            },
            Value::Binary(Binary::Mul, ValueId(2), ValueId(0)),
        ]);
        for (rows, columns) in [(1, 60), (60, 1), (5, 12), (12, 5), (4, 15)] {
            for nest in [pointwise(), sums.clone()] {
                let whole = launch(rows, columns);
                let fits = |launch: &Launch| {
                    let extents = &launch.extents;
                    extents.row_count() <= 3 && extents.columns < 5
                };
                let slices = slices(&nest, &whole, fits);
                let is_cut_enough = slices.iter().all(fits);
                // The columns that are reduced stay together.
                let may_be_cut = nest != sums || columns < 5;
                assert_eq!(is_cut_enough, may_be_cut, "{rows} {columns}");
                assert_eq!(
                    values(&nest, &slices),
                    values(&nest, &[whole]),
                    "{rows} {columns}"
                );
            }
        }
    }

    #[test]
    fn what_counts_iterations_is_not_cut() {
        let counted = nest(vec![Value::Row(0)]);
        let whole = launch(60, 1);
        assert_eq!(slices(&counted, &whole, |_| false), vec![whole]);
    }

    /// 8 x 16384 x 16384 numbers, which are one row.
    #[test]
    fn a_row_of_two_to_the_31_is_two_launches() {
        let (nest, whole) = (pointwise(), launch(1, 1 << 31));
        let target = Target::Cuda {
            arch: "sm_90a".to_owned(),
        };
        let bounds = known(&nest, Bounds::default(), &whole, &target);
        let generated = Generated::new(&nest, bounds, &target).unwrap();
        assert!(generated.launch(KernelId(0), &whole).is_err());
        let launches = generated.launches(KernelId(0), &[whole]).unwrap();
        let written = launches.iter().map(|step| match step {
            Step::Launch { args, geometry, .. } => {
                let view = args.iter().find_map(|arg| match arg {
                    Arg::Write(view) => Some((view.offset.fixed_value(), view.len)),
                    _ => None,
                });
                (view.unwrap(), geometry.grid[0] > 1)
            }
            other => panic!("{other:?}"),
        });
        let half = 1 << 30;
        let expected = [((Some(0), half), true), ((Some(1 << 30), half), true)];
        assert_eq!(written.collect::<Vec<_>>(), expected);
        let small = generated
            .launches(KernelId(0), &[launch(1, 1 << 20)])
            .unwrap();
        assert_eq!(small.len(), 1);
    }
}
