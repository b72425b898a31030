//! Finding equal points: identities of problems, and a record of those seen.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use sweeper_program::{Phase, Value};

use super::walk::Visit;
use super::{parameter_of, slot};
use crate::model::case::{Case, ParameterSource};
use crate::model::manifest::Manifest;
use sweeper_model::expression::Operand;
use sweeper_model::identity::{Encoder, InputSource, ProblemId, problem_id_of};

/// Identities of a case's problems; variants of one problem are hashed once.
pub(crate) struct Problems<'m> {
    case: &'m Case,
    /// The workload's identity.
    workload: Cow<'static, str>,
    /// Numbers of the case's backends.
    pub(crate) backends: Vec<usize>,
    inputs: InputSource,
    /// Parameters in the order of their names: name, slot, index.
    order: Vec<(&'static str, usize, usize)>,
    values: Vec<Value>,
    encoder: Encoder,
    last: Option<ProblemId>,
}

impl<'m> Problems<'m> {
    pub(crate) fn new(manifest: &Manifest, case: &'m Case, merger: &mut Merger) -> Self {
        let inputs = match &case.inputs {
            Some(file) => InputSource::File(file.digest),
            None => InputSource::Seed(manifest.seed),
        };
        let parameters = case.workload.info.parameters.iter().zip(&case.parameters);
        let mut order: Vec<(&'static str, usize, usize)> = parameters
            .enumerate()
            .map(|(index, (parameter, source))| (parameter.name, slot(case, *source), index))
            .collect();
        order.sort_unstable();
        Problems {
            case,
            workload: case.workload.identity(),
            backends: case
                .backends
                .iter()
                .map(|backend| merger.backend(backend.0.name))
                .collect(),
            inputs,
            values: vec![Value::Bool(false); order.len()],
            order,
            encoder: Encoder::new("problem"),
            last: None,
        }
    }

    pub(crate) fn id(&mut self, visit: &Visit<'_, 'm>) -> ProblemId {
        let mut changed = self.last.is_none();
        for (value, (_, slot, index)) in self.values.iter_mut().zip(&self.order) {
            if Operand::from(&*value) != visit.slots[*slot] {
                *value = parameter_of(self.case, *index, visit.slots);
                changed = true;
            }
        }
        if let (Some(last), false) = (self.last, changed) {
            return last;
        }
        let entries = self.order.iter().map(|(name, ..)| *name).zip(&self.values);
        let id = problem_id_of(
            &mut self.encoder,
            &self.workload,
            entries,
            self.case.dtype,
            self.inputs,
        );
        self.last = Some(id);
        id
    }
}

/// Finds equal points.
#[derive(Default)]
pub(crate) struct Merger {
    /// No two points are equal: nothing is looked up.
    pub(super) all_differ: bool,
    pub(super) problems: Vec<ProblemId>,
    numbers: HashMap<ProblemId, u32, Cheap>,
    backends: HashMap<&'static str, usize>,
    /// Problem, backend and phase in one number.
    seen: HashSet<u64, Cheap>,
}

impl Merger {
    /// For the points of some cases.
    pub(crate) fn of(cases: &[Case]) -> Self {
        Merger {
            all_differ: matches!(cases, [only] if all_differ(only)),
            ..Merger::default()
        }
    }

    /// The number of a problem, in order of appearance.
    pub(crate) fn problem(&mut self, id: ProblemId) -> u32 {
        if self.problems.last() == Some(&id) {
            return self.problems.len() as u32 - 1;
        }
        let next = self.problems.len() as u32;
        if self.all_differ {
            self.problems.push(id);
            return next;
        }
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            self.problems.push(id);
        }
        number
    }

    /// The number of a backend, in order of appearance.
    pub(crate) fn backend(&mut self, name: &'static str) -> usize {
        let next = self.backends.len();
        *self.backends.entry(name).or_insert(next)
    }

    /// True the first time that a variant of a problem is seen.
    pub(crate) fn is_new(&mut self, problem: u32, backend: usize, phase: Phase) -> bool {
        if self.all_differ {
            return true;
        }
        let variant = (backend as u64) << 8 | phase as u64;
        self.seen.insert(u64::from(problem) << 32 | variant)
    }
}

/// True if no two points of a case can be equal: it has each combination of rows once, and all that
/// differs between rows are parameters of the workload, as they are written.
fn all_differ(case: &Case) -> bool {
    let is_parameter = |index: &usize| {
        let sources = case.parameters.iter();
        let mut sources = sources
            .map(|source| matches!(source, ParameterSource::Variable(held) if held == index));
        sources.any(|is_it| is_it)
    };
    let mut dimensions = case.dimensions.iter();
    let are_plain = dimensions.all(|dimension| {
        let differs = dimension.rows.len() > 1;
        dimension.when.is_none() && (!differs || dimension.columns.iter().all(is_parameter))
    });
    are_plain && case.include.is_empty()
}

type Cheap = BuildHasherDefault<CheapHasher>;

/// A hash for keys that are digests, and so random already, or small numbers. An author of a
/// manifest gains nothing from collisions in it.
#[derive(Default)]
struct CheapHasher(u64);

impl Hasher for CheapHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_u64(&mut self, value: u64) {
        // Fibonacci hashing; the fold brings high bits down to where a table looks first.
        let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn write_usize(&mut self, _length: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sources::Sources;
    use crate::grid::Grid;
    use crate::model::case::registry;
    use crate::resolve::overrides::Overrides;

    /// Whether points are taken to differ, and how many there are.
    fn points(grid: &str, more: &str) -> (bool, usize) {
        let text = format!(
            "schema = 1\nname = \"a\"\nabout = \"b\"\n[grid]\n{grid}\n[case.one]\n\
             workload = \"copy\"\nphases = [\"forward\"]\nbackends = [\"builtin\"]\n{more}"
        );
        let sources = Sources::from_text("m.toml", &text);
        let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry()).unwrap();
        let all_differ = Merger::of(&manifest.cases).all_differ;
        (all_differ, Grid::new(&manifest).points().len())
    }

    #[test]
    fn points_are_compared_where_some_may_be_equal() {
        assert_eq!(points("elements = [1, 2, 2, 3]", ""), (true, 3));
        let derived = "[derive]\nelements = \"min(size, 3)\"\n";
        assert_eq!(points("size = [1, 2, 3, 4]", derived), (false, 3));
        let second =
            "[case.two]\nworkload = \"copy\"\nphases = [\"forward\"]\nbackends = [\"builtin\"]\n";
        assert_eq!(points("elements = [1, 2]", second), (false, 2));
        let extra = "[[include]]\npoint = { elements = 7 }\n";
        assert_eq!(points("elements = [1, 2]", extra), (false, 3));
    }
}
