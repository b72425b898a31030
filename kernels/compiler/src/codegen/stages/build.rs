//! Puts each value of a nest into the pass in which it is computed.

use super::{AfterRows, Between, Pass, Residency, Stages, is_expensive};
use crate::nest::{CrossBlock, Nest, Over, Stride, Value, ValueId, Varies};

/// Orders the work of a valid nest.
///
/// # Errors
/// A sentence about a value that no kernel can compute.
pub(super) fn stages(nest: &Nest, residency: Residency) -> Result<Stages, String> {
    let dtypes = nest.dtypes()?;
    let builder = Builder {
        nest,
        residency,
        varies: nest.varies(),
        levels: levels(nest),
        needed: needed(nest),
    };
    let between = builder.between();
    Ok(Stages {
        dtypes,
        uniform: builder.needed_where(|builder, id| {
            let varies = builder.varies[id.0];
            !varies.rows && !varies.columns && !nest.is_cross_block(id)
        }),
        passes: builder.passes(between.len() - 1),
        between,
        after_rows: builder.after_rows()?,
        varies: builder.varies,
    })
}

/// For each value, the number of reductions over columns that lie before it, one after the other.
fn levels(nest: &Nest) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(nest.values.len());
    for value in &nest.values {
        let before = value.operands().map(|id| levels[id.0]).max().unwrap_or(0);
        let is_step = matches!(
            value,
            Value::Reduce {
                over: Over::Columns,
                ..
            }
        );
        levels.push(before + usize::from(is_step));
    }
    levels
}

/// Values that a store depends on.
fn needed(nest: &Nest) -> Vec<bool> {
    let mut needed = vec![false; nest.values.len()];
    for store in &nest.stores {
        needed[store.value.0] = true;
    }
    for at in (0..nest.values.len()).rev() {
        if needed[at] {
            for operand in nest.values[at].operands() {
                needed[operand.0] = true;
            }
        }
    }
    needed
}

struct Builder<'a> {
    nest: &'a Nest,
    residency: Residency,
    varies: Vec<Varies>,
    levels: Vec<usize>,
    needed: Vec<bool>,
}

/// The place in which a store is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorePlace {
    /// In the pass of this level.
    Pass(usize),
    /// For each row, when values of that level are known.
    Row(usize),
    AfterRows,
}

impl Builder<'_> {
    fn needed_where(&self, is: impl Fn(&Self, ValueId) -> bool) -> Vec<ValueId> {
        let ids = (0..self.needed.len()).map(ValueId);
        ids.filter(|&id| self.needed[id.0] && is(self, id))
            .collect()
    }

    fn place(&self, store: usize) -> StorePlace {
        let store = &self.nest.stores[store];
        let operand = &self.nest.operands[store.operand.0];
        let level = self.levels[store.value.0];
        if self.nest.is_cross_block(store.value) {
            StorePlace::AfterRows
        } else if self.varies[store.value.0].columns || operand.columns != Stride::Broadcast {
            StorePlace::Pass(level)
        } else {
            StorePlace::Row(level)
        }
    }

    fn stores(&self, place: StorePlace) -> Vec<usize> {
        let all = 0..self.nest.stores.len();
        all.filter(|&store| self.place(store) == place).collect()
    }

    /// Reductions that take an element from each column of a row in the pass of a level.
    fn reductions(&self, level: usize) -> (Vec<ValueId>, Vec<ValueId>) {
        let all = self.needed_where(|builder, id| match builder.nest.values[id.0] {
            Value::Reduce { over, of, .. } => {
                let is_once_a_row = over == Over::All && !builder.varies[of.0].columns;
                builder.levels[of.0] == level && !is_once_a_row
            }
            _ => false,
        });
        all.into_iter().partition(|id| {
            matches!(
                self.nest.values[id.0],
                Value::Reduce {
                    over: Over::Columns,
                    ..
                }
            )
        })
    }

    fn between(&self) -> Vec<Between> {
        let stores = (0..self.nest.stores.len()).filter_map(|store| match self.place(store) {
            StorePlace::Pass(level) => Some(level + 1),
            StorePlace::Row(_) | StorePlace::AfterRows => None,
        });
        let reductions = (0..self.nest.values.len())
            .filter(|&level| self.reductions(level) != (vec![], vec![]))
            .map(|level| level + 1);
        let passes = stores.chain(reductions).max().unwrap_or(0);
        let between = (0..=passes).map(|level| Between {
            values: self.needed_where(|builder, id| {
                let varies = builder.varies[id.0];
                varies.rows
                    && !varies.columns
                    && builder.levels[id.0] == level
                    && !builder.nest.is_cross_block(id)
            }),
            cross_block: self.needed_where(|builder, id| match builder.nest.values[id.0] {
                Value::Reduce {
                    over: Over::All,
                    of,
                    ..
                } => !builder.varies[of.0].columns && builder.levels[of.0] == level,
                _ => false,
            }),
            stores: self.stores(StorePlace::Row(level)),
        });
        between.collect()
    }

    fn passes(&self, count: usize) -> Vec<Pass> {
        let mut passes: Vec<Pass> = (0..count).map(|level| self.roots(level)).collect();
        let early = self.early_loads(&passes);
        // The pass in which each value was computed first.
        let mut computed: Vec<Option<usize>> = vec![None; self.nest.values.len()];
        for level in 0..count {
            let mut walk = Walk::new(self, &computed);
            for id in early.iter().filter(|id| self.levels[id.0] == level) {
                walk.visit(*id);
            }
            for root in self.elements(&passes[level]) {
                walk.visit(root);
            }
            let Walk { values, reused, .. } = walk;
            for id in &values {
                computed[id.0].get_or_insert(level);
            }
            for &id in &reused {
                let first = computed[id.0].unwrap_or(level);
                if !passes[first].resident.contains(&id) {
                    passes[first].resident.push(id);
                }
            }
            passes[level].values = values;
            passes[level].reused = reused;
        }
        passes
    }

    fn roots(&self, level: usize) -> Pass {
        let (reductions, cross_block) = self.reductions(level);
        Pass {
            reductions,
            cross_block,
            stores: self.stores(StorePlace::Pass(level)),
            ..Pass::default()
        }
    }

    /// The values that a pass is there for.
    fn elements(&self, pass: &Pass) -> Vec<ValueId> {
        let reduced = pass.reductions.iter().chain(&pass.cross_block);
        let reduced = reduced.filter_map(|id| match self.nest.values[id.0] {
            Value::Reduce { of, .. } => Some(of),
            _ => None,
        });
        let stored = pass.stores.iter().map(|&at| self.nest.stores[at].value);
        reduced.chain(stored).collect()
    }

    /// Loads of all passes, where they are kept.
    fn early_loads(&self, passes: &[Pass]) -> Vec<ValueId> {
        if self.residency != Residency::ResultsAndLoads {
            return vec![];
        }
        let computed = vec![None; self.nest.values.len()];
        let mut walk = Walk::new(self, &computed);
        for pass in passes {
            for root in self.elements(pass) {
                walk.visit(root);
            }
        }
        let is_load = |id: &ValueId| self.is_load_of_rows(*id);
        walk.values.into_iter().filter(is_load).collect()
    }

    fn is_resident(&self, id: ValueId) -> bool {
        let value = &self.nest.values[id.0];
        match self.residency {
            Residency::Nothing => false,
            Residency::Results => is_expensive(value),
            Residency::ResultsAndLoads => is_expensive(value) || self.is_load_of_rows(id),
        }
    }

    /// Whether a value is a load that differs from row to row. Row-invariant loads hit caches:
    /// keeping them in registers would gain nothing.
    fn is_load_of_rows(&self, id: ValueId) -> bool {
        matches!(self.nest.values[id.0], Value::Load { .. }) && self.varies[id.0].rows
    }

    fn after_rows(&self) -> Result<AfterRows, String> {
        let reductions = self.needed_where(|builder, id| match builder.nest.values[id.0] {
            Value::Reduce { over, .. } => over != Over::Columns,
            _ => false,
        });
        let stores = self.stores(StorePlace::AfterRows);
        let mut after_rows = AfterRows {
            stores,
            ..AfterRows::default()
        };
        let mut seen = vec![false; self.nest.values.len()];
        for &store in &after_rows.stores {
            seen[self.nest.stores[store].value.0] = true;
        }
        // Backwards: operands of values after rows, but not operands of the reductions themselves.
        for at in (0..seen.len()).rev() {
            let value = &self.nest.values[at];
            if !seen[at] || matches!(value, Value::Reduce { .. }) {
                continue;
            }
            if self.varies[at].rows {
                return Err(format!(
                    "value {at} varies over rows, and is used when all rows are done"
                ));
            }
            value.operands().for_each(|operand| seen[operand.0] = true);
        }
        for at in (0..seen.len()).filter(|&at| seen[at]) {
            let id = ValueId(at);
            let is_reduction = reductions.contains(&id);
            if self.varies[at].columns && !is_reduction {
                after_rows.columns.push(id);
            } else if !is_reduction && self.nest.is_cross_block(id) {
                after_rows.uniform.push(id);
            }
        }
        after_rows.reductions = reductions;
        self.check_stores(&after_rows)?;
        Ok(after_rows)
    }

    fn check_stores(&self, after_rows: &AfterRows) -> Result<(), String> {
        if self.nest.cross_block == CrossBlock::OneBlock {
            for &store in &after_rows.stores {
                let operand = self.nest.stores[store].operand;
                let steps = &self.nest.operands[operand.0].rows;
                if steps.iter().any(|step| *step != Stride::Broadcast) {
                    return Err(format!(
                        "operand {} has rows, and is written when all rows are done",
                        operand.0
                    ));
                }
            }
            return Ok(());
        }
        for id in &after_rows.reductions {
            let stores = after_rows.stores.iter();
            let stored = stores.filter(|&&store| self.nest.stores[store].value == *id);
            if stored.count() != 1 {
                return Err(format!(
                    "partials of value {} are stored more than once",
                    id.0
                ));
            }
        }
        Ok(())
    }
}

/// Collects the values that must be computed for some others.
struct Walk<'a> {
    builder: &'a Builder<'a>,
    computed: &'a [Option<usize>],
    seen: Vec<bool>,
    values: Vec<ValueId>,
    reused: Vec<ValueId>,
}

impl<'a> Walk<'a> {
    /// Before the first visit; `computed` has the pass in which each value was computed first, if
    /// any.
    fn new(builder: &'a Builder<'a>, computed: &'a [Option<usize>]) -> Self {
        Walk {
            builder,
            computed,
            seen: vec![false; computed.len()],
            values: vec![],
            reused: vec![],
        }
    }

    fn visit(&mut self, id: ValueId) {
        if self.seen[id.0] || !self.builder.varies[id.0].columns {
            return;
        }
        self.seen[id.0] = true;
        if self.computed[id.0].is_some() && self.builder.is_resident(id) {
            self.reused.push(id);
            return;
        }
        for operand in self.builder.nest.values[id.0].operands() {
            self.visit(operand);
        }
        self.values.push(id);
    }
}
