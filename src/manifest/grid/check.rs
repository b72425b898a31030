//! What of a manifest can be judged on all points only: expressions without a value, cases without
//! a point, rules that never fire, values that are never reached, points that are the same.

use std::collections::{BTreeMap, BTreeSet};

use sweeper_program::Value;
use sweeper_program::workload::WorkloadInfo;

use super::walk::{Part, Verdict, Visit, Walker};
use super::{Layout, Merger, Problems, answer};
use crate::cases::dimensions::{Misfit, fitted};
use crate::cases::shared::Places;
use crate::files::sources::Sources;
use crate::grammar::expression::WireText;
use crate::grammar::section::Context;
use crate::model::case::{Case, ParameterSource, VARIANTS};
use crate::model::manifest::Manifest;
use crate::resolve::Draft;
use crate::resolve::overrides::Overrides;
use crate::text::diagnostics::{Code, Diagnostics};
use crate::text::texts::At;
use sweeper_model::expression::{EvalError, Operand};

/// No sweep has more combinations than this.
const MAX_COMBINATIONS: u64 = 10_000_000;

impl Manifest {
    /// Turns sources into a manifest.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the text; warnings too.
    pub fn resolve(
        sources: &Sources,
        overrides: &Overrides,
        registry: &[&'static WorkloadInfo],
    ) -> Result<Self, Diagnostics> {
        let mut draft = Draft::new(sources, overrides, registry);
        if let Some((cx, manifest, places)) = draft.sound() {
            check(cx, manifest, places);
        }
        draft.settle()
    }
}

/// Walks every case once and reports what is wrong with its points.
fn check(cx: &mut Context<'_>, manifest: &Manifest, places: &[Places]) {
    let mut merger = Merger::of(&manifest.cases);
    let mut tally = Tally::default();
    let mut surveys: Vec<Survey<'_>> = Vec::new();
    for (case, places) in manifest.cases.iter().zip(places) {
        let layout = Layout::new(case).filter(|_| combinations(case) <= MAX_COMBINATIONS);
        let Some(layout) = layout else {
            let message = format!("the case `{}` has too many points", case.name);
            cx.report(Code::GridTooLarge, places.name, message)
                .label(format!("over {MAX_COMBINATIONS} combinations"));
            continue;
        };
        let mut survey = Survey::new(manifest, case, places, &mut merger);
        Walker::new(case, &layout).run(|visit| survey.visit(&visit, &layout, &mut merger));
        survey.report(cx, &mut tally);
        surveys.push(survey);
    }
    tally.report(cx);
    report_values(cx, &surveys);
}

fn combinations(case: &Case) -> u64 {
    let variants = case.backends.len() as u64 * case.phases.len() as u64;
    let dimensions = case.dimensions.iter();
    dimensions.fold(variants, |all, dimension| {
        all.saturating_mul(dimension.swept as u64)
    })
}

/// What the walk over one case found.
struct Survey<'m> {
    case: &'m Case,
    places: &'m Places,
    problems: Problems<'m>,
    points: u64,
    merged: u64,
    /// Whether each row of each dimension is in some point.
    reached: Vec<Vec<bool>>,
    /// Whether each rule was of consequence for some combination.
    fired: BTreeMap<Part, bool>,
    outcomes: Vec<bool>,
    /// The first failure of each expression.
    failures: BTreeMap<Part, (EvalError, String)>,
    misfits: BTreeMap<usize, (Value, String)>,
    script: Option<(String, String)>,
}

/// Rules of all cases, by place: one that is of use anywhere is of use.
#[derive(Default)]
struct Tally {
    rules: BTreeMap<At, bool>,
    outcomes: BTreeMap<At, bool>,
}

impl<'m> Survey<'m> {
    fn new(manifest: &Manifest, case: &'m Case, places: &'m Places, merger: &mut Merger) -> Self {
        let rules = (0..case.exclude.len()).map(Part::Exclude);
        let fired = rules.map(|part| (part, false)).collect();
        Survey {
            case,
            places,
            problems: Problems::new(manifest, case, merger),
            points: 0,
            merged: 0,
            reached: places
                .rows
                .iter()
                .map(|rows| vec![false; rows.len()])
                .collect(),
            fired,
            outcomes: vec![false; case.null.as_ref().map_or(0, |null| null.outcomes.len())],
            failures: BTreeMap::new(),
            misfits: BTreeMap::new(),
            script: None,
        }
    }

    fn visit(&mut self, visit: &Visit<'_, 'm>, layout: &Layout, merger: &mut Merger) {
        if let Verdict::Failed(part, error) = &visit.verdict {
            let describe = || (error.clone(), describe(self.case, visit.slots));
            self.failures.entry(*part).or_insert_with(describe);
            return;
        }
        self.rules(visit);
        if visit.verdict != Verdict::Kept {
            return;
        }
        self.points += 1;
        for (index, rows) in self.reached.iter_mut().enumerate() {
            if let Some(reached) = rows.get_mut(layout.digit(visit.code, index)) {
                *reached = true;
            }
        }
        self.parameters(visit);
        self.script(visit);
        if merger.all_differ {
            return;
        }
        let problem = merger.problem(self.problems.id(visit));
        let backend = self.problems.backends[visit.backend];
        if !merger.is_new(problem, backend, visit.phase) {
            self.merged += 1;
        }
    }

    /// Notes which rules are of consequence, one after the other as if it were alone.
    fn rules(&mut self, visit: &Visit<'_, 'm>) {
        let slots = visit.slots;
        let case = self.case;
        for (part, fired) in self.fired.iter_mut().filter(|(_, fired)| !**fired) {
            *fired = match *part {
                Part::Exclude(index) => case.exclude[index].when.holds(slots) == Ok(true),
                Part::When(_) | Part::Derived(_) => true,
            };
        }
    }

    /// Checks that derived values are what the parameters they give can be.
    fn parameters(&mut self, visit: &Visit<'_, 'm>) {
        let case = self.case;
        for (parameter, source) in case.workload.info.parameters.iter().zip(&case.parameters) {
            let ParameterSource::Derived(index) = source else {
                continue;
            };
            let value = Value::from(visit.slots[VARIANTS + case.variables.len() + index]);
            if let Err(misfit) = fitted(&value, &parameter.kind) {
                let wanted = match misfit {
                    Misfit::Kind(wanted) => wanted.to_owned(),
                    Misfit::Bounds(wanted) => wanted,
                    Misfit::Word(words) => format!("one of {}", words.join(" ")),
                };
                let what = format!("must be {wanted}, at {}", describe(case, visit.slots));
                self.misfits.entry(*index).or_insert((value, what));
            }
        }
    }

    /// Tries the script of the test device.
    fn script(&mut self, visit: &Visit<'_, 'm>) {
        let Some(null) = &self.case.null else { return };
        for ((when, _), fired) in null.outcomes.iter().zip(&mut self.outcomes) {
            *fired = *fired || when.holds(visit.slots) == Ok(true);
        }
        let wrong = match answer(null, visit.slots) {
            Err(error) => error.to_string(),
            Ok(answer) if !answer.time_ns.is_finite() || answer.time_ns <= 0.0 => {
                format!("`time_ns` is {}", answer.time_ns)
            }
            Ok(answer) if answer.memory_bytes.is_some_and(|bytes| bytes < 0.0) => {
                "`memory_bytes` is less than zero".to_owned()
            }
            Ok(_) => return,
        };
        if self.script.is_none() {
            self.script = Some((wrong, describe(self.case, visit.slots)));
        }
    }

    fn report(&self, cx: &mut Context<'_>, tally: &mut Tally) {
        let places = self.places;
        for (part, (error, point)) in &self.failures {
            let Some(text) = text_of(places, *part) else {
                continue;
            };
            let at = cx.inside(text, error.span.clone());
            cx.report(Code::Arithmetic, at, format!("`{}` has no value", text.key))
                .label(error.to_string())
                .help(format!("at {point}"));
        }
        for (index, (value, what)) in &self.misfits {
            let text = &places.derived[*index];
            let message = format!("the parameter `{}` can't be {value}", text.key);
            cx.report(Code::DerivedParameter, text.at, message)
                .label(what.clone());
        }
        if let Some((wrong, point)) = &self.script {
            let message = format!("the scripted device has no answer: {wrong}");
            cx.report(Code::NullScript, places.name, message)
                .label(format!("at {point}"));
        }
        if self.failures.is_empty() && self.points == 0 {
            let message = format!("no point of the case `{}` is left", self.case.name);
            cx.report(Code::EmptyCase, places.name, message)
                .label("every combination is left out")
                .help("`sweeper check` prints how many each rule leaves");
        }
        if self.merged > 0 {
            let count = self.merged;
            let message = format!(
                "{count} points of `{}` are the same as others",
                self.case.name
            );
            cx.report(Code::Merged, places.name, message)
                .label("measured once");
        }
        self.count(tally);
    }

    fn count(&self, tally: &mut Tally) {
        for (at, fired) in self.places.outcomes.iter().zip(&self.outcomes) {
            *tally.outcomes.entry(*at).or_default() |= *fired;
        }
        let rules = self.fired.iter().filter(|_| self.failures.is_empty());
        for (part, fired) in rules {
            if let Some(text) = text_of(self.places, *part) {
                *tally.rules.entry(text.at).or_default() |= *fired;
            }
        }
    }

    /// Rows of dimensions, with their places: those that are in some point, or those in none.
    fn rows(&self, are_reached: bool) -> impl Iterator<Item = (At, Values<'_>)> {
        let dimensions = self.reached.iter().zip(&self.places.rows).enumerate();
        dimensions.flat_map(move |(index, (rows, places))| {
            let is_wanted = move |reached: bool| (reached || self.points == 0) == are_reached;
            let rows = rows.iter().zip(places).enumerate();
            let rows = rows.filter(move |(_, (reached, _))| is_wanted(**reached));
            rows.map(move |(row, (_, at))| {
                let case = self.case;
                (*at, Values { case, index, row })
            })
        })
    }
}

/// A row of a dimension.
struct Values<'m> {
    case: &'m Case,
    index: usize,
    row: usize,
}

impl Values<'_> {
    /// Its names and values.
    fn words(&self) -> (String, String) {
        let dimension = &self.case.dimensions[self.index];
        let columns = dimension.columns.iter();
        let names: Vec<&str> = columns
            .map(|column| &*self.case.variables[*column].name)
            .collect();
        let values = dimension.rows[self.row].iter();
        let values: Vec<String> = values.map(Value::to_string).collect();
        (names.join(", "), values.join(", "))
    }
}

/// Reports values that are in no point of any case. Those that are in some are put into words only
/// where others at their places are in none: a grid may have a million.
fn report_values(cx: &mut Context<'_>, surveys: &[Survey<'_>]) {
    let unreached = surveys.iter().flat_map(|survey| survey.rows(false));
    let mut unreached: BTreeSet<(At, (String, String))> =
        unreached.map(|(at, values)| (at, values.words())).collect();
    let places: BTreeSet<At> = unreached.iter().map(|(at, _)| *at).collect();
    if !places.is_empty() {
        let reached = surveys.iter().flat_map(|survey| survey.rows(true));
        for (at, values) in reached.filter(|(at, _)| places.contains(at)) {
            unreached.remove(&(at, values.words()));
        }
    }
    for (at, (names, values)) in unreached {
        let message = format!("the value {values} of `{names}` is in no point");
        cx.report(Code::NeverReached, at, message)
            .label("every point with it is left out");
    }
}

fn text_of(places: &Places, part: Part) -> Option<&WireText> {
    match part {
        Part::When(index) => places.when.get(index)?.as_ref(),
        Part::Derived(index) => places.derived.get(index),
        Part::Exclude(index) => places.exclude.get(index),
    }
}

impl Tally {
    fn report(self, cx: &mut Context<'_>) {
        for (at, fired) in self.rules {
            if !fired {
                cx.report(Code::NeverFires, at, "this rule never leaves anything out")
                    .label("true of no combination");
            }
        }
        for (at, fired) in self.outcomes {
            if !fired {
                cx.report(Code::NeverFires, at, "this outcome never happens")
                    .label("true of no point");
            }
        }
    }
}

/// The axes of a combination, for people.
fn describe(case: &Case, slots: &[Operand<'_>]) -> String {
    let given = case
        .variables
        .iter()
        .zip(&slots[VARIANTS..])
        .filter(|(variable, _)| variable.given);
    let axes: Vec<String> = given
        .map(|(variable, value)| format!("{}={value}", variable.name))
        .collect();
    format!("{} {} {}", axes.join(" "), slots[0], slots[1])
        .trim()
        .to_owned()
}
