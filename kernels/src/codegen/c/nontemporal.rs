//! What of a kernel in C may go past the caches: stores that nobody reads soon, and the loads beside them.
//!
//! An ordinary store reads the line that it overwrites. One that is not temporal, of a whole line, does not, and leaves
//! in the caches what was there; whoever reads the tensor next finds it in memory alone. So it pays where the tensor is
//! larger than what caches keep, which a launch's sizes tell: texts ask for them (`is_nontemporal` in `functions.h`).
//!
//! While such stores are on their way, loads that the processor would have asked for in time come late: texts ask for
//! them ahead.

use crate::nest::{Nest, Step, Value, ValueId};
use crate::tensor::Dtype;

use super::super::stages::Stages;
use super::{Home, Schedule, is_row_memory};

/// Stores and loads of a nest that may go past the caches.
pub(super) struct Nontemporal {
    /// Positions of stores. Each launch writes each of their elements once, along contiguous columns.
    stores: Vec<usize>,
    /// For each pass, loads to ask for ahead: of elements that no other pass before and no other row needs.
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
            .filter(|store| is_row_memory(nest, *store) && !is_home(store))
            .collect();
        let mut prefetched: Vec<Vec<ValueId>> = Vec::new();
        for pass in passes {
            let is_new = |id: &ValueId| !prefetched.iter().flatten().any(|other| other == id);
            let loads = pass.values.iter().copied();
            let loads = loads.filter(|id| !stores.is_empty() && is_read_once(nest, *id));
            let loads = loads.filter(is_new).collect();
            prefetched.push(loads);
        }
        Nontemporal { stores, prefetched }
    }

    /// Whether anything may go past the caches.
    pub(super) fn is_any(&self) -> bool {
        !self.stores.is_empty()
    }

    /// Whether a store may.
    pub(super) fn has(&self, store: usize) -> bool {
        self.stores.contains(&store)
    }

    /// The lines of a pass, before its loads.
    pub(super) fn prefetches(&self, pass: usize) -> impl Iterator<Item = String> {
        let loads = self.prefetched[pass].iter();
        loads.map(|id| format!("v_prefetch(row->at_{} + c, row->nontemporal);", id.0))
    }

    /// The line that decides for a launch.
    pub(super) fn of_launch(&self) -> Option<&'static str> {
        self.is_any()
            .then_some("const int nontemporal = is_nontemporal(rows * columns);")
    }

    /// The line that decides for a row, when it is known where its stores begin: only whole lines may go past the caches.
    pub(super) fn of_row(&self) -> Option<String> {
        let begins = self.stores.iter();
        let begins = begins.map(|store| format!(" && begins_line(row.to_{store})"));
        self.is_any().then(|| {
            let begins: String = begins.collect();
            format!("row.nontemporal = nontemporal{begins};")
        })
    }

    /// The line after the last store: others may read then.
    pub(super) fn end(&self) -> Option<&'static str> {
        self.is_any().then_some("if (nontemporal) v_fence();")
    }
}

/// Whether a value is loaded from contiguous memory that each row has for itself.
fn is_read_once(nest: &Nest, id: ValueId) -> bool {
    let Value::Load {
        operand,
        index: None,
    } = nest.values[id.0]
    else {
        return false;
    };
    let operand = &nest.operands[operand.0];
    operand.dtype == Dtype::F32
        && operand.columns == Step::One
        && operand.rows.iter().all(|step| *step != Step::Zero)
}
