//! The grid: from a manifest to its points, in a fixed order.
//!
//! Order of meaning: grid x zip, conditional axes, derive, exclude, include; then points with one
//! problem and one way of measuring are merged. The steps after that (canonical shapes, sampling,
//! budget) are the plan's.
//!
//! Architecture invariant: a grid does no I/O and cannot fail; all errors were reported when the
//! manifest was resolved.

mod point;
pub(crate) mod walk;
mod meaning;
mod merge;
mod fate;
mod check;

use std::fmt::Write;
use std::sync::Arc;

use sweeper_program::workload::BackendInfo;
use sweeper_program::{Parameters, Value};

use crate::cases::dimensions::fitted;
use crate::model::case::{Case, NullScript, ParameterSource, VARIANTS};
use crate::model::manifest::Manifest;
use sweeper_model::expression::{EvalError, Operand};
use sweeper_model::identity::ProblemId;
use sweeper_model::status::Status;
use walk::{Verdict, Walker};

pub use fate::Fate;
pub use meaning::{Counts, Factor};
pub(crate) use merge::{Merger, Problems};
pub(crate) use point::Layout;
pub use point::{Point, Skip};

/// The points of a manifest.
pub struct Grid<'m> {
    manifest: &'m Manifest,
    layouts: Vec<Layout>,
    points: Vec<Point>,
    problem_of: Vec<u32>,
    problems: Vec<ProblemId>,
    skips: Vec<Skip>,
    counts: Vec<Counts>,
    /// Of each case's backends: a digest of sources, which takes longer than a point.
    implementations: Vec<Vec<String>>,
}

/// The scripted answer of the null device for a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NullAnswer {
    /// Median time in nanoseconds.
    pub time_ns: f64,
    /// Peak memory in bytes, where the script says one.
    pub memory_bytes: Option<f64>,
    /// Relative standard deviation of samples.
    pub noise: f64,
    /// The status of the point.
    pub status: Status,
}

impl<'m> Grid<'m> {
    /// Expands a manifest.
    pub fn new(manifest: &'m Manifest) -> Self {
        let layouts: Vec<Layout> = manifest.cases.iter().filter_map(Layout::new).collect();
        let mut grid = Grid {
            manifest,
            layouts: Vec::new(),
            points: Vec::new(),
            problem_of: Vec::new(),
            problems: Vec::new(),
            skips: Vec::new(),
            counts: Vec::new(),
            implementations: manifest.cases.iter().map(implementations).collect(),
        };
        let mut merger = Merger::of(&manifest.cases);
        for (index, (case, layout)) in manifest.cases.iter().zip(&layouts).enumerate() {
            grid.expand(index, case, layout, &mut merger);
        }
        grid.problems = merger.problems;
        grid.layouts = layouts;
        grid
    }

    fn expand(&mut self, index: usize, case: &'m Case, layout: &Layout, merger: &mut Merger) {
        let mut counts = Counts::of(case);
        let mut problems = Problems::new(self.manifest, case, merger);
        Walker::new(case, layout).run(|visit| {
            counts.add(&visit);
            let point = Point {
                case: index as u16,
                code: visit.code,
                backend: visit.backend as u16,
                phase: visit.phase,
            };
            if let Some(reason) = reason(case, &visit.verdict) {
                self.skips.push(Skip { point, reason });
            } else if visit.verdict == Verdict::Kept {
                let problem = merger.problem(problems.id(&visit));
                if merger.is_new(problem, problems.backends[visit.backend], visit.phase) {
                    self.points.push(point);
                    self.problem_of.push(problem);
                } else {
                    counts.merged += 1;
                }
            }
        });
        self.counts.push(counts);
    }

    /// The manifest.
    pub fn manifest(&self) -> &'m Manifest {
        self.manifest
    }

    /// Points to measure: by case, then by problem, backend and phase.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Points that the manifest leaves out, with reasons.
    pub fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// How many combinations each rule of the manifest left, by case.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// The problem of `points()[index]`.
    pub fn problem_id(&self, index: usize) -> ProblemId {
        self.problems[self.problem_of[index] as usize]
    }

    /// Points `points()[index]` with the same number are variants of one problem.
    pub fn problem_number(&self, index: usize) -> usize {
        self.problem_of[index] as usize
    }

    /// The problems of all points, each once, in order of appearance.
    pub fn problems(&self) -> &[ProblemId] {
        &self.problems
    }

    /// The case of a point.
    pub fn case(&self, point: Point) -> &'m Case {
        &self.manifest.cases[usize::from(point.case)]
    }

    /// The backend of a point.
    pub fn backend(&self, point: Point) -> &'static BackendInfo {
        self.case(point).backends[usize::from(point.backend)].0
    }

    /// The identity of a point's backend: its name, and the digest of what a manifest declares.
    pub fn implementation(&self, point: Point) -> &str {
        &self.implementations[usize::from(point.case)][usize::from(point.backend)]
    }

    /// The axes that exist for a point, in order, defaults of the workload included.
    pub fn axes(&self, point: Point) -> impl Iterator<Item = (&'m Arc<str>, &'m Value)> {
        let case = self.case(point);
        let layout = &self.layouts[usize::from(point.case)];
        case.variables.iter().filter_map(move |variable| {
            let digit = layout.digit(point.code, variable.dimension);
            let row = case.dimensions[variable.dimension].rows.get(digit)?;
            Some((&variable.name, &row[variable.column]))
        })
    }

    /// The value of an axis, a derived value or a variant (`backend`, `phase`, `dtype`,
    /// `workload`).
    pub fn value(&self, point: Point, name: &str) -> Option<Value> {
        let case = self.case(point);
        let slot = match name {
            "backend" => 0,
            "phase" => 1,
            "dtype" => 2,
            "workload" => 3,
            _ => VARIANTS + slot_of(case, name)?,
        };
        self.with_slots(point, |slots| Value::from(slots[slot]))
            .ok()
    }

    /// The derived values of a point, in an order in which they can be computed.
    pub fn derived(&self, point: Point) -> Vec<(&'m Arc<str>, Value)> {
        let case = self.case(point);
        let first = VARIANTS + case.variables.len();
        let values = self.with_slots(point, |slots| {
            let derived = case.derived.iter().zip(&slots[first..]);
            derived
                .map(|(derived, value)| (&derived.name, Value::from(*value)))
                .collect()
        });
        values.unwrap_or_default()
    }

    /// The workload's parameters at a point: every one, by name.
    pub fn parameters(&self, point: Point) -> Parameters {
        let case = self.case(point);
        let parameters = self.with_slots(point, |slots| {
            let parameters = case.workload.info.parameters.iter().enumerate();
            parameters
                .map(|(index, parameter)| (parameter.name, parameter_of(case, index, slots)))
                .collect()
        });
        parameters.unwrap_or_default()
    }

    /// One line that names a point: case, axes that the manifest gives, backend, phase.
    pub fn label(&self, point: Point) -> String {
        let case = self.case(point);
        let mut label = case.name.to_string();
        let given = |name: &Arc<str>| {
            let variable = case.variable(name);
            variable.is_some_and(|index| case.variables[index].given)
        };
        for (name, value) in self.axes(point).filter(|(name, _)| given(name)) {
            // Writing to a string can't fail.
            let _ = write!(label, " {name}={value}");
        }
        let _ = write!(label, " {} {}", self.backend(point).name, point.phase);
        label
    }

    /// The scripted answer of the null device for a point, where the manifest has a script.
    ///
    /// # Errors
    /// An expression that has no value for it.
    pub fn null_answer(&self, point: Point) -> Result<Option<NullAnswer>, EvalError> {
        let Some(script) = &self.case(point).null else {
            return Ok(None);
        };
        self.with_slots(point, |slots| answer(script, slots))?
            .map(Some)
    }

    fn with_slots<R>(
        &self,
        point: Point,
        read: impl FnOnce(&[Operand<'m>]) -> R,
    ) -> Result<R, EvalError> {
        let case = self.case(point);
        let mut walker = Walker::bare(case, &self.layouts[usize::from(point.case)]);
        let slots = walker.at(point.code, usize::from(point.backend), point.phase)?;
        Ok(read(slots))
    }

    /// A reader of many points that allocates nothing between them.
    pub(crate) fn reader(&self, case: usize) -> Walker<'m, '_> {
        Walker::bare(&self.manifest.cases[case], &self.layouts[case])
    }
}

/// The slot of an axis or a derived value, after the variants.
pub(crate) fn slot_of(case: &Case, name: &str) -> Option<usize> {
    let derived = || {
        case.derived
            .iter()
            .position(|derived| &*derived.name == name)
    };
    let variables = case.variables.len();
    case.variable(name)
        .or_else(|| derived().map(|index| variables + index))
}

fn slot(case: &Case, source: ParameterSource) -> usize {
    VARIANTS
        + match source {
            ParameterSource::Variable(index) => index,
            ParameterSource::Derived(index) => case.variables.len() + index,
        }
}

/// The value of the workload's parameter `index`. Derived values are spelt as the parameter wants.
fn parameter_of(case: &Case, index: usize, slots: &[Operand<'_>]) -> Value {
    let source = case.parameters[index];
    let value = Value::from(slots[slot(case, source)]);
    match source {
        ParameterSource::Variable(_) => value,
        ParameterSource::Derived(_) => {
            let kind = &case.workload.info.parameters[index].kind;
            fitted(&value, kind).unwrap_or(value)
        }
    }
}

fn answer(script: &NullScript, slots: &[Operand<'_>]) -> Result<NullAnswer, EvalError> {
    let number = |operand| match operand {
        Operand::Int(value) => value as f64,
        Operand::Float(value) => value,
        Operand::Bool(_) | Operand::Text(_) => f64::NAN,
    };
    let mut status = Status::Ok;
    for (when, outcome) in &script.outcomes {
        if when.holds(slots)? {
            status = *outcome;
            break;
        }
    }
    let memory_bytes = match &script.memory_bytes {
        Some(expression) => Some(number(expression.evaluate(slots)?)),
        None => None,
    };
    Ok(NullAnswer {
        time_ns: number(script.time_ns.evaluate(slots)?),
        memory_bytes,
        noise: script.noise,
        status,
    })
}

/// Why a combination is a declared skip.
fn implementations(case: &Case) -> Vec<String> {
    let backends = case.backends.iter();
    backends
        .map(|backend| case.workload.implementation_identity(backend.0.name))
        .collect()
}

fn reason(case: &Case, verdict: &Verdict) -> Option<Arc<str>> {
    match verdict {
        Verdict::Kept => None,
        Verdict::Excluded(rule) => Some(case.exclude[*rule].reason.clone()),
        Verdict::Failed(_, error) => Some(error.to_string().into()),
    }
}
