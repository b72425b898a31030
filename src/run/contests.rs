//! Configurations of tuned backends in the main process: those that have rows are rivals of those
//! that are measured later, in another part of the run or by another worker.

use std::collections::{BTreeMap, HashMap, HashSet};

use sweeper_program::Phase;

use sweeper_engine::execute::protocol::{Rival, Tuned};
use sweeper_manifest::plan::{Plan, PlannedBlock};
use sweeper_model::identity::PointId;
use sweeper_model::mode::Mode;
use sweeper_model::row::Row;
use sweeper_model::tuning::family_of;
use sweeper_model::tuning::race;

/// Configurations that are held against each other, in a block: those of one backend, for one phase
/// and mode.
type Group<'p> = (&'p str, Phase, Mode);

/// A configuration that has a row.
struct Known {
    /// None where it is not a rival of others: it failed, or was outraced.
    rival: Option<Rival>,
    earlier_rows: u32,
}

/// The configurations of tuned backends that have rows.
pub(super) struct Contests {
    is_active: bool,
    known: HashMap<PointId, Known>,
}

impl Contests {
    /// Before any row of a plan is known.
    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let mut cases = plan.manifest().cases.iter();
        let is_tuned = |name: &str| family_of(name) != name;
        Contests {
            is_active: cases.any(|case| case.backends.iter().any(|each| is_tuned(each.0.name))),
            known: HashMap::new(),
        }
    }

    /// False if no backend is tuned.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Takes note of a row.
    pub(super) fn learn(&mut self, row: &Row) {
        let mode = Mode::parse(&row.mode);
        let Some(mode) = mode.filter(|_| family_of(&row.backend) != row.backend) else {
            return;
        };
        let known = Known {
            rival: Rival::of(&row.backend, row.phase, mode, &row.outcome),
            earlier_rows: row.earlier_rows,
        };
        self.known.insert(row.point, known);
    }

    /// The points of a block that are configurations of a backend with several, by group.
    fn groups<'p>(plan: &'p Plan<'_>, block: &PlannedBlock) -> BTreeMap<Group<'p>, Vec<u32>> {
        let mut groups: BTreeMap<Group<'p>, Vec<u32>> = BTreeMap::new();
        for &number in &block.points {
            let point = &plan.points[number as usize];
            let backend = plan.grid.backend(point.point).name;
            let family = family_of(backend);
            if family != backend {
                let group = (family, point.point.phase, point.mode);
                groups.entry(group).or_default().push(number);
            }
        }
        groups.retain(|_, points| points.len() > 1);
        groups
    }

    /// Which points of a block are held against others, where only `numbers` are measured.
    pub(super) fn tuned(
        &self,
        plan: &Plan<'_>,
        block: &PlannedBlock,
        numbers: &[u32],
    ) -> HashMap<u32, Tuned> {
        let mut found = HashMap::new();
        if !self.is_active {
            return found;
        }
        let own: HashSet<u32> = numbers.iter().copied().collect();
        for ((family, ..), points) in Self::groups(plan, block) {
            let case = plan.grid.case(plan.points[points[0] as usize].point);
            let declared = case.workload.declared;
            let is_there = |number: &u32| {
                let id = &plan.points[*number as usize].id;
                own.contains(number) || self.known.contains_key(id)
            };
            let tuned = Tuned {
                is_raced: declared.is_some_and(|declared| declared.is_raced(family)),
                is_whole: points.iter().all(is_there),
            };
            found.extend(points.into_iter().map(|number| (number, tuned)));
        }
        found
    }

    /// The configurations of a block that have rows, beside `numbers`.
    pub(super) fn rivals(
        &self,
        plan: &Plan<'_>,
        block: &PlannedBlock,
        numbers: &[u32],
    ) -> Vec<Rival> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let own: HashSet<u32> = numbers.iter().copied().collect();
        let others = block.points.iter().filter(|number| !own.contains(number));
        let known = others.filter_map(|&number| self.known.get(&plan.points[number as usize].id));
        known.filter_map(|known| known.rival.clone()).collect()
    }

    /// Takes out the configurations that may be the best of a group of which others are not
    /// measured yet, and that have no second measurement. Returns them with their numbers of
    /// earlier rows.
    pub(super) fn open(
        &mut self,
        plan: &Plan<'_>,
        finished: &HashSet<PointId>,
    ) -> Vec<(PointId, u32)> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let mut open = Vec::new();
        for points in plan
            .blocks
            .iter()
            .flat_map(|block| Self::groups(plan, block).into_values())
        {
            let ids = points.iter().map(|&number| plan.points[number as usize].id);
            let ids: Vec<PointId> = ids.collect();
            if ids.iter().all(|id| finished.contains(id)) {
                continue;
            }
            let rivals = ids.iter().filter_map(|id| {
                let rival = self.known.get(id)?.rival.as_ref()?;
                Some((*id, rival))
            });
            let rivals: Vec<(PointId, &Rival)> = rivals.collect();
            let end = race::best_end(rivals.iter().filter_map(|(_, rival)| rival.interval));
            let is_open = |rival: &Rival| !rival.has_again && !race::is_above(rival.interval, end);
            let found = rivals.into_iter().filter(|(_, rival)| is_open(rival));
            open.extend(found.map(|(id, _)| id));
        }
        let taken = open.into_iter();
        taken
            .filter_map(|id| Some((id, self.known.remove(&id)?.earlier_rows)))
            .collect()
    }
}
