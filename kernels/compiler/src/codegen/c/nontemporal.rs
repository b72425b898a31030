//! Non-temporal stores of kernels in C, and prefetches for the loads beside them.
//!
//! An ordinary store reads the line that it overwrites. A non-temporal store of a whole line does
//! not, and leaves the contents of the caches; the next reader of the tensor finds it in memory
//! alone. So such stores pay where the tensor is larger than the caches, which depends on a
//! launch's sizes: texts check these (`headers/nontemporal.h`).
//!
//! While such stores are on their way, the processor's own prefetches come late: texts prefetch
//! loads explicitly. Prefetching also pays for large tensors whose rows are not whole lines, and
//! which are stored as usual.

use crate::nest::{Nest, Operand, Stride, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::super::launch::Parameter;
use super::super::names::Names;
use super::super::stages::Stages;
use super::{Home, Schedule, is_contiguous};

/// Stores and loads of a nest that may go past the caches.
pub(super) struct Nontemporal {
    /// Positions of stores. Each launch writes each of their elements once, along contiguous
    /// columns.
    stores: Vec<usize>,
    /// For each pass, loads to prefetch: of memory that no earlier pass and no other row reads.
    prefetched: Vec<Vec<ValueId>>,
}

impl Nontemporal {
    /// Finds them. There are no loads without stores.
    pub(super) fn new(nest: &Nest, schedule: &Schedule, stages: &Stages) -> Nontemporal {
        let passes = &stages.passes;
        // Rows in which values are kept are read again.
        let is_home = |store: &usize| {
            let mut homes = schedule.homes.iter();
            homes.any(|(_, home)| *home == Home::Output(*store))
        };
        let stores = passes.iter().flat_map(|pass| &pass.stores).copied();
        let stores: Vec<usize> = stores
            .filter(|store| is_written_once(nest, *store) && !is_home(store))
            .collect();
        let mut prefetched: Vec<Vec<ValueId>> = Vec::new();
        for pass in passes {
            let is_new = |id: &ValueId| !prefetched.iter().flatten().any(|other| other == id);
            let loads = pass.values.iter().copied();
            let loads = loads.filter(|id| is_read_once(nest, *id, &stores));
            let loads = loads.filter(is_new).collect();
            prefetched.push(loads);
        }
        Nontemporal { stores, prefetched }
    }

    /// Whether any store may go past the caches.
    pub(super) fn is_any(&self) -> bool {
        !self.stores.is_empty()
    }

    /// Whether a store may go past the caches.
    pub(super) fn has(&self, store: usize) -> bool {
        self.stores.contains(&store)
    }

    /// The lines of a pass, before its loads.
    pub(super) fn prefetches(&self, pass: usize) -> impl Iterator<Item = String> {
        let loads = self.prefetched[pass].iter();
        loads.map(|id| format!("v_prefetch(row->at_{} + c, row->large);", id.0))
    }

    /// The lines that decide for a launch: loads are asked for ahead where it is large, and stores
    /// go past the caches where all rows are whole lines, too. `first` is the block's first column.
    pub(super) fn of_launch(&self, names: &Names) -> Vec<String> {
        if !self.is_any() {
            return vec![];
        }
        let stores = self.stores.iter();
        let lines: String = stores
            .map(|store| {
                let operand = names.nest.stores[*store].operand.0;
                let dims = 0..names.nest.operands[operand].rows.len();
                let steps = dims.map(|dim| Parameter::RowStep(operand, dim).name(names.nest));
                let steps: Vec<String> = match names.is_row_invariant(operand) {
                    true => vec![],
                    false => steps.collect(),
                };
                let step = match &steps[..] {
                    [] => "0".to_owned(),
                    steps => format!("rows > 1 ? {} : 0", steps.join(" | ")),
                };
                format!(
                    " && is_lines({} + first_column, {step})",
                    names.operand(operand)
                )
            })
            .collect();
        vec![
            "row.large = is_large(rows * columns);".to_owned(),
            format!("row.nontemporal = row.large{lines};"),
        ]
    }

    /// The line after the last store: others may read then.
    pub(super) fn end(&self) -> Option<&'static str> {
        self.is_any().then_some("if (row.nontemporal) v_fence();")
    }
}

/// Whether a launch writes each element of a store's operand once: rows have elements of their own,
/// or the first row alone is stored.
fn is_written_once(nest: &Nest, store: usize) -> bool {
    let rows = &nest.operands[nest.stores[store].operand.0].rows;
    let all_are = |wanted: Stride| rows.iter().all(|step| *step == wanted);
    is_contiguous(nest, store) && (all_are(Stride::Broadcast) || all_are(Stride::Dynamic))
}

/// Whether a value is loaded from contiguous memory, of which each row has a part of its own, as it
/// has of the stored operands.
fn is_read_once(nest: &Nest, id: ValueId, stores: &[usize]) -> bool {
    let Value::Load {
        operand,
        index: None,
    } = nest.values[id.0]
    else {
        return false;
    };
    let from = &nest.operands[operand.0];
    let varies_like = |to: &Operand| {
        let mut steps = from.rows.iter().zip(&to.rows);
        steps.all(|(from, to)| *from != Stride::Broadcast || *to == Stride::Broadcast)
    };
    let mut stores = stores.iter().map(|store| nest.stores[*store].operand);
    from.dtype == Dtype::F32
        && from.columns == Stride::Unit
        && stores.any(|to| varies_like(&nest.operands[to.0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Binary, Reduction, Unary};
    use crate::nest::{Bounds, CrossBlock, OperandId, Over, Store};

    fn operand(rows: Stride, is_written: bool) -> Operand {
        Operand {
            dtype: Dtype::F32,
            rows: vec![rows],
            columns: Stride::Unit,
            is_written,
            swaps_pairs: false,
        }
    }

    fn load(operand: usize) -> Value {
        Value::Load {
            operand: OperandId(operand),
            index: None,
        }
    }

    /// A sum of two operands, stored to a third.
    fn sum(rows: [Stride; 3]) -> Nest {
        let operands = rows.iter().enumerate();
        Nest {
            name: String::new(),
            row_dims: 1,
            operands: operands.map(|(at, rows)| operand(*rows, at == 2)).collect(),
            values: vec![
                load(0),
                load(1),
                Value::Binary(Binary::Add, ValueId(0), ValueId(1)),
            ],
            stores: vec![Store {
                operand: OperandId(2),
                value: ValueId(2),
            }],
            cross_block: CrossBlock::Partials,
        }
    }

    /// Stores and loads that are found, for rows of at most so many columns.
    fn found(nest: &Nest, columns: Option<u64>) -> Nontemporal {
        let bounds = Bounds {
            columns,
            ..Bounds::default()
        };
        let schedule = Schedule::new(nest, bounds).unwrap();
        let stages = Stages::new(nest, schedule.residency).unwrap();
        Nontemporal::new(nest, &schedule, &stages)
    }

    fn prefetched(nest: &Nest) -> Vec<Vec<usize>> {
        let passes = found(nest, Some(512)).prefetched.into_iter();
        let numbers = |pass: Vec<ValueId>| pass.iter().map(|id| id.0).collect();
        passes.map(numbers).collect()
    }

    #[test]
    fn what_all_rows_share_is_not_asked_for_ahead() {
        let of_rows = sum([Stride::Dynamic, Stride::Broadcast, Stride::Dynamic]);
        assert_eq!(prefetched(&of_rows), [[0]]);
        // A dense tensor is one row.
        assert_eq!(prefetched(&sum([Stride::Broadcast; 3])), [[0, 1]]);
    }

    #[test]
    fn only_columns_that_lie_together_go_past_the_caches() {
        let mut nest = sum([Stride::Dynamic; 3]);
        assert!(found(&nest, None).has(0));
        nest.operands[2].columns = Stride::Dynamic;
        let found = found(&nest, None);
        assert!(!found.is_any() && found.end().is_none());
        assert_eq!(prefetched(&nest), [[0; 0]]);
    }

    /// `e^x / sum`, whose powers are kept on the stack or, in rows of any length, where the result
    /// will be.
    #[test]
    fn rows_that_are_read_again_are_stored_in_the_caches() {
        let mut nest = sum([Stride::Dynamic; 3]);
        nest.operands.remove(1);
        nest.stores[0].operand = OperandId(1);
        nest.stores[0].value = ValueId(3);
        nest.values = vec![
            load(0),
            Value::Unary(Unary::Exp, ValueId(0)),
            Value::Reduce {
                reduction: Reduction::Sum,
                over: Over::Columns,
                of: ValueId(1),
            },
            Value::Binary(Binary::Div, ValueId(1), ValueId(2)),
        ];
        assert!(found(&nest, Some(512)).has(0));
        assert_eq!(prefetched(&nest), [vec![0], vec![]]);
        assert!(!found(&nest, None).is_any());
    }
}
