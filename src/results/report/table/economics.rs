//! `economics.csv`: when compiling pays, by problem: the total cost of a loop by the baseline and
//! by the other backends, and the number of iterations from which on they are ahead.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cell, Request, Table, Unit};
use crate::report::frame::{Frame, MACHINE};
use crate::report::loops::{Problem, baselines_of, problems};
use sweeper_model::economics::{
    BreakEven, Comparison, Crossing, Kernels, Loop, Priced, SEEN, Start, is_same_program,
};
use sweeper_model::row::entry::DIMENSIONS;

/// Name of the table.
pub const NAME: &str = "economics";

/// True if rows with equal words are of one problem: there is no dimension to take means over.
pub(super) fn is_of_single_problems(request: &Request<'_>) -> bool {
    let frame = request.frame;
    let words = frame.words(&[]);
    let sizes = frame.sizes(&[]);
    let questions = frame.groups(request.rows, &words).into_values();
    questions.into_iter().all(|rows| {
        let keys = rows.iter().map(|&row| frame.key_of(row, &sizes));
        keys.collect::<BTreeSet<_>>().len() == 1
    })
}

/// `economics.csv`.
pub(super) fn economics(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let baselines = baselines_of(request.baseline, request.more_baselines);
    let baseline = match baselines.as_slice() {
        [one] => format!("`{one}`"),
        _ => "the baseline".to_owned(),
    };
    let problems = problems(frame, request.rows, &baselines);
    if problems.is_empty() {
        return None;
    }
    let names = Names::of(frame, baselines.len() > 1);
    let title = format!("When compiling pays, against {baseline}");
    let mut table = Table::new(NAME, title);
    names.columns(&mut table);
    table
        .column("warmup_ns", Unit::Ns)
        .column("iteration_ns", Unit::Ns)
        .column("total_ns", Unit::Ns)
        .column("warmup_overhead", Unit::Ratio)
        .column("speedup_steady", Unit::Ratio)
        .column("speedup_total", Unit::Ratio)
        .plain([
            "break_even",
            "break_even_low",
            "break_even_high",
            "verdict",
            "best_for",
        ]);
    let mut iterations = BTreeSet::new();
    for Problem { baseline, others } in &problems {
        for (start, held) in of_baseline(&baseline.price) {
            let iterations = request.iterations.max(held.first);
            let mut line = names.cells(frame, baseline.row, None, start);
            line.extend(loop_cells(&held, iterations.into()));
            line.resize(table.columns.len(), Cell::Empty);
            table.rows.push(line);
        }
        for other in others {
            let compared =
                |start| Comparison::new(&baseline.price, &other.price, start, request.iterations);
            for (start, found) in Start::each(&Start::ALL, compared) {
                let programs = [baseline.row, other.row].map(|row| program_of(frame, row));
                let found = found.of_same_program(is_same_program(programs[0], programs[1]));
                iterations.insert(found.iterations);
                let mut line = names.cells(frame, other.row, Some(baseline.row), start);
                line.extend(comparison_cells(&found));
                table.rows.push(line);
            }
        }
    }
    notes(&mut table, &baseline, &iterations);
    let mut compiled = request.rows.iter().map(|&row| &frame.entries[row].compile);
    if compiled.all(|compile| compile.kernels == 0) {
        let note = "no kernels were compiled: all programs call libraries and builtins alone";
        table.notes.push(note.to_owned());
    }
    Some(table)
}

/// The costs of the baseline's own loops.
fn of_baseline(price: &Priced) -> Vec<(&'static str, Loop)> {
    Start::each(&[Start::Cold, Start::Warm], |start| {
        let kernels = match start {
            Start::Cold => Kernels::Compiled,
            Start::BaselineCached | Start::Warm => Kernels::Cached,
        };
        price.begin(kernels, price.starting.iterations)
    })
}

/// The values that tell problems apart: a column for each word and condition, one for parameters.
struct Names<'f> {
    words: Vec<&'static str>,
    /// By workload, the parameters in which its problems differ.
    parameters: BTreeMap<&'f str, Vec<&'f str>>,
    /// There are several baselines: a column names the one of a comparison.
    has_baseline: bool,
}

impl<'f> Names<'f> {
    fn of(frame: &'f Frame<'_>, has_baseline: bool) -> Self {
        let differs = |name: &&str| frame.dimension(name).is_some();
        let is_condition = |name: &&str| !["workload", "phase", "backend"].contains(name);
        let conditions = DIMENSIONS.into_iter().chain([MACHINE]);
        let conditions = conditions.filter(is_condition).filter(differs);
        let mut rows: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in frame.all() {
            let workload = frame.entries[row].workload.as_ref();
            rows.entry(workload).or_default().push(row);
        }
        let of_workload = |rows: &[usize]| {
            let names = frame.dimensions.iter().map(|held| held.name.as_ref());
            let is_parameter = |name: &&str| !DIMENSIONS.contains(name) && *name != MACHINE;
            let differs = |name: &&str| frame.groups(rows, &[name]).len() > 1;
            names.filter(is_parameter).filter(differs).collect()
        };
        Names {
            words: ["workload", "phase"]
                .into_iter()
                .chain(conditions)
                .collect(),
            parameters: rows
                .into_iter()
                .map(|(workload, rows)| (workload, of_workload(&rows)))
                .filter(|(_, names): &(&str, Vec<&str>)| !names.is_empty())
                .collect(),
            has_baseline,
        }
    }

    fn columns(&self, table: &mut Table) {
        table.plain(self.words.iter().copied());
        if !self.parameters.is_empty() {
            table.plain(["problem"]);
        }
        if self.has_baseline {
            table.plain(["baseline"]);
        }
        table.plain(["backend", "start"]).names_rows();
    }

    /// The cells that name a row, and the row of the baseline that it is compared with.
    fn cells(
        &self,
        frame: &Frame<'_>,
        row: usize,
        baseline: Option<usize>,
        start: &str,
    ) -> Vec<Cell> {
        let words = self.words.iter();
        let mut line: Vec<Cell> = words
            .map(|name| Cell::from(frame.value(row, name)))
            .collect();
        if !self.parameters.is_empty() {
            let workload = frame.entries[row].workload.as_ref();
            let names = self.parameters.get(workload).into_iter().flatten();
            let named = names.filter_map(|name| {
                let value = frame.value(row, name)?;
                Some(format!("{name}={value}"))
            });
            let named: Vec<String> = named.collect();
            line.push(match named.is_empty() {
                true => Cell::Empty,
                false => Cell::word(named.join(" ")),
            });
        }
        if self.has_baseline {
            let name = |row: usize| Cell::word(&frame.entries[row].backend);
            line.push(baseline.map_or(Cell::Empty, name));
        }
        let backend = &frame.entries[row].backend;
        line.extend([Cell::word(backend), Cell::word(start)]);
        line
    }
}

/// Warm-up, an iteration, and all of them.
fn loop_cells(held: &Loop, iterations: u64) -> [Cell; 3] {
    let cell = |value, ends: Option<(f64, f64)>| {
        let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
        Cell::Interval { value, low, high }
    };
    let total_ns = held.total_ns(iterations);
    [
        cell(held.warmup_ns, held.warmup_ends_ns),
        cell(held.steady.median_ns, held.steady.interval_ns),
        cell(total_ns, held.total_ends_ns(iterations)),
    ]
}

/// A row's backend, and the earlier backend with an equal program.
fn program_of<'f>(frame: &'f Frame<'_>, row: usize) -> (&'f str, Option<&'f str>) {
    let entry = &frame.entries[row];
    let same = entry.measurement.as_ref();
    let same = same.and_then(|found| found.same_program_as.as_deref());
    (&entry.backend, same)
}

/// All cells of a comparison; of two backends with one program only the costs and the verdict.
fn comparison_cells(found: &Comparison) -> Vec<Cell> {
    let break_even = found.break_even();
    let mut cells = loop_cells(&found.other, found.iterations).to_vec();
    if found.is_same_program {
        let blanks = std::iter::repeat_n(Cell::Empty, 6);
        cells.extend(blanks);
        cells.extend([found.verdict().name(), &found.best_for()].map(Cell::word));
        return cells;
    }
    cells.extend([
        Cell::Number(found.other.warmup_ns / found.baseline.warmup_ns),
        Cell::from(found.steady_speedup()),
        Cell::from(found.total_speedup()),
        estimate(break_even),
    ]);
    cells.extend(match break_even.ends {
        Some((low, high)) => [low, high].map(crossing),
        None => [Cell::Empty, Cell::Empty],
    });
    cells.extend([found.verdict().name(), &found.best_for()].map(Cell::word));
    cells
}

fn estimate(found: BreakEven) -> Cell {
    match found.is_unclear {
        true => Cell::word("unclear"),
        false => crossing(found.estimate),
    }
}

fn crossing(at: Crossing) -> Cell {
    match at {
        Crossing::At(iterations) => Cell::Count(i64::try_from(iterations).unwrap_or(i64::MAX)),
        Crossing::Never => Cell::word("never"),
    }
}

fn notes(table: &mut Table, baseline: &str, iterations: &BTreeSet<u64>) {
    let counts: Vec<String> = iterations.iter().map(u64::to_string).collect();
    table.notes.extend([
        format!(
            "totals: of {} iterations (`report.iterations`); warmup: what comes before the steady iterations: \
             kernels (compiled, or read from the cache), preparing, first runs; not importing libraries",
            counts.join(" and ")
        ),
        format!(
            "start: `cold`, both are compiled; `baseline_cached`, the kernels of {baseline} are there, as \
             an eager framework ships its own; `warm`, both are in the cache"
        ),
        "intervals of warmup and totals: from starts in processes of their own (`measure.fresh_starts`); none where a \
         program was started once, in a process that had run others. Compiling and reading were seen once"
            .to_owned(),
        "verdict: of the total speedup by the guide's bounds; `UNCLEAR` where its interval does not tell"
            .to_owned(),
        "break_even: the first iteration that ends with the backend ahead for good; `never` where an iteration \
         is no faster, `unclear` where the medians' intervals do not tell"
            .to_owned(),
        "best_for: the loops that the intervals are sure to end earlier with the backend: from the upper end of \
         break_even on"
            .to_owned(),
    ]);
    let seen = Cell::word(SEEN);
    if table.rows.iter().any(|line| line.contains(&seen)) {
        let note = "start: `seen`, as the run started them: nothing tells a cold start from a warm one; what \
                    libraries of functions in Python compile is measured by `measure.fresh_starts`";
        table.notes.push(note.to_owned());
    }
}
