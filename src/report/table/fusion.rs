//! `fusion.csv`: what fusing gains for each pattern and size, and whether the machine can tell.

use std::collections::BTreeMap;

use super::means::LogInterval;
use super::{Cell, Request, Table, Unit};
use crate::fusion::subject::Subject;
use crate::fusion::{Basis, CONTROL, FUSED, Judged, Ratio, UNFUSED, is_same_program, reduction};
use crate::report::entry::{DIMENSIONS, Entry};
use crate::report::frame::{Frame, MACHINE};

/// What the table has no column for, or a column of its own.
const NAMED: [&str; 3] = ["backend", "workload", "case"];

/// Unfused against fused, wherever both were measured.
pub(super) fn fusion(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let is_one_of =
        |row: &usize| [UNFUSED, FUSED, CONTROL].contains(&&*frame.entries[*row].backend);
    let rows: Vec<usize> = request.rows.iter().copied().filter(is_one_of).collect();
    let measured: Vec<Measured<'_>> = frame
        .joined(&rows, &["backend"])
        .into_values()
        .filter_map(|rows| Measured::of(frame, &rows))
        .collect();
    if measured.is_empty() {
        return None;
    }
    // What differs beside parameters: those are in the pattern's name and in its sizes.
    let names = frame.dimensions.iter().map(|held| held.name.as_ref());
    let is_condition = |name: &&str| DIMENSIONS.contains(name) || *name == MACHINE;
    let conditions: Vec<&str> = names
        .filter(is_condition)
        .filter(|name| !NAMED.contains(name))
        .collect();
    let mut table = Table::new("fusion", "What fusing gains: `eager` over `compiled`");
    table
        .plain(["pattern", "shape"])
        .plain(conditions.iter().copied())
        .column("unfused_ns", Unit::Ns)
        .column("fused_ns", Unit::Ns)
        .column("speedup", Unit::Ratio)
        .plain(["verdict"])
        .column("control", Unit::Ratio)
        .plain(["rounds", "traffic_reduction", "peak_reduction"])
        .plain(["unfused_gflops", "fused_gflops", "reason"]);
    for one in &measured {
        table.rows.push(one.line(frame, &conditions));
    }
    // By pattern and size, not by the codes of whatever rows differ in.
    let mut order: Vec<(String, Vec<i64>, Vec<Cell>)> = measured
        .iter()
        .zip(std::mem::take(&mut table.rows))
        .map(|(one, line)| (one.subject.pattern.clone(), one.subject.sizes.clone(), line))
        .collect();
    order.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    table.rows = order.into_iter().map(|(.., line)| line).collect();
    table.notes = notes(&measured);
    Some(table)
}

/// One pattern of one size.
struct Measured<'f> {
    unfused: &'f Entry,
    fused: &'f Entry,
    control: Option<&'f Entry>,
    row: usize,
    subject: Subject,
    judged: Judged,
}

impl<'f> Measured<'f> {
    /// Rows that differ in their backend alone, if both are among them.
    fn of(frame: &Frame<'f>, rows: &[usize]) -> Option<Self> {
        let backends: BTreeMap<&str, usize> = rows
            .iter()
            .map(|&row| (&*frame.entries[row].backend, row))
            .collect();
        let entry = |backend: &str| backends.get(backend).map(|&row| frame.entries[row]);
        let (unfused, fused, control) = (entry(UNFUSED)?, entry(FUSED)?, entry(CONTROL));
        let said = |entry: &'f Entry| entry.program.as_ref()?.same_program_as.as_deref();
        let is_same = is_same_program(said(unfused), said(fused));
        let row = backends[UNFUSED];
        let judged = match frame.is_in_turns(row) {
            true => {
                let control = control.and_then(|control| ratio(unfused, control));
                Judged::new(is_same, ratio(unfused, fused), control)
            }
            false => Judged::apart(is_same),
        };
        let parameters = unfused.parameters.iter();
        Some(Measured {
            unfused,
            fused,
            control,
            row,
            subject: Subject::of(
                &unfused.workload,
                parameters.map(|(name, value)| (&**name, value)),
            ),
            judged,
        })
    }

    fn line(&self, frame: &Frame<'_>, conditions: &[&str]) -> Vec<Cell> {
        let Judged {
            speedup,
            control,
            verdict,
        } = &self.judged;
        let mut line = vec![
            Cell::word(&self.subject.pattern),
            Cell::word(self.subject.shape()),
        ];
        let values = conditions.iter().map(|name| frame.value(self.row, name));
        line.extend(values.map(Cell::from));
        let time = |entry: &Entry| LogInterval::of(entry).map_or(Cell::Empty, LogInterval::cell);
        let number = |value: Option<f64>| value.map_or(Cell::Empty, Cell::Number);
        let gflops = |entry: &Entry| {
            let rate = entry.flops_per_s().filter(|&rate| rate > 0.0);
            number(rate.map(|rate| rate / 1e9))
        };
        let rounds = match speedup
            .as_ref()
            .or(control.as_ref())
            .map(|ratio| ratio.basis)
        {
            Some(Basis::Rounds(rounds)) => Cell::Count(rounds as i64),
            _ => Cell::Empty,
        };
        let reason = verdict.doubt().map(|doubt| Cell::word(doubt.to_string()));
        line.extend([
            time(self.unfused),
            time(self.fused),
            cell(speedup.as_ref()),
            Cell::word(verdict.name()),
            cell(control.as_ref()),
            rounds,
            number(self.saved(|entry| Some(moved_bytes(entry)? as f64))),
            number(self.saved(|entry| entry.memory.peak_allocated.map(|bytes| bytes as f64))),
            gflops(self.unfused),
            gflops(self.fused),
            reason.unwrap_or(Cell::Empty),
        ]);
        line
    }

    fn saved(&self, of: impl Fn(&Entry) -> Option<f64>) -> Option<f64> {
        reduction(of(self.unfused)?, of(self.fused)?)
    }
}

fn moved_bytes(entry: &Entry) -> Option<u64> {
    let program = entry.program.as_ref()?;
    Some(program.read_bytes + program.written_bytes)
}

/// The ratio of two rows: of their rounds, where the source has samples, else of their medians.
fn ratio(over: &Entry, under: &Entry) -> Option<Ratio> {
    if let Some(ratio) = Ratio::of_rounds(&over.samples_ns, &under.samples_ns) {
        return Some(ratio);
    }
    let [low, value, high] = LogInterval::of(over)?
        .over(LogInterval::of(under)?)
        .numbers();
    Some(Ratio {
        value,
        low,
        high,
        basis: Basis::Medians,
    })
}

fn cell(ratio: Option<&Ratio>) -> Cell {
    ratio.map_or(Cell::Empty, |ratio| Cell::Interval {
        value: ratio.value,
        low: ratio.low,
        high: ratio.high,
    })
}

fn notes(measured: &[Measured<'_>]) -> Vec<String> {
    let mut notes = vec![
        "speedup: unfused over fused, the centre of the ratios of rounds in which both were timed, with its \
         95 % interval. verdict: strong from 1.5, moderate from 1.1, minimal from 0.95, slower below, where \
         the whole interval lies there; `at least moderate` where it lies in the upper two; else, or where \
         the control is certainly off by more than 1 %, inconclusive"
            .to_owned(),
        "control: the unfused program over itself, measured twice like two backends. traffic_reduction: of \
         the bytes that the programs' steps read and write, counted in the programs that ran; \
         peak_reduction: of what the device allocated for them, measured"
            .to_owned(),
    ];
    let of_medians = |one: &&Measured<'_>| {
        let speedup = one.judged.speedup.as_ref();
        speedup.is_some_and(|speedup| speedup.basis == Basis::Medians)
    };
    let count = |is: &dyn Fn(&&Measured<'_>) -> bool| measured.iter().filter(|one| is(one)).count();
    match count(&of_medians) {
        0 => {}
        count => notes.push(format!(
            "{count} of {} rows have no samples: their intervals are made of those of both medians, as if \
             errors were independent",
            measured.len()
        )),
    }
    match count(&|one| one.control.is_none()) {
        0 => {}
        count => notes.push(format!(
            "{count} of {} rows have no control: what the machine takes for a difference is not known there; \
             add `control` to `backends`",
            measured.len()
        )),
    }
    notes
}

#[cfg(test)]
mod tests;
