//! `fusion.csv`: the speedup by fusing for each pattern and size, and whether the machine can tell.

use super::means::LogInterval;
use super::{Cell, Request, Table, Unit};
use crate::report::frame::Frame;
use crate::report::fused::{Pair, conditions, pairs};
use sweeper_model::fusion::{BOUNDS, Basis, Judged, MARGIN, Ratio, Verdict, reduction};
use sweeper_model::row::entry::Entry;

/// A note for verdicts without a control.
const NO_CONTROL: &str = "no control: what this machine takes for a difference is not known";

/// Unfused rows against fused ones, where both were measured.
pub(super) fn fusion(request: &Request<'_>) -> Option<Table> {
    let frame = request.frame;
    let measured = pairs(frame, request.rows);
    if measured.is_empty() {
        return None;
    }
    let conditions = conditions(frame);
    let mut table = Table::new("fusion", "What fusing gains: `eager` over `compiled`");
    table
        .plain(["pattern", "shape"])
        .plain(conditions.iter().copied())
        .names_rows()
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
    table.notes = notes(&measured);
    Some(table)
}

impl Pair<'_> {
    /// The row of the table.
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
        let time = |entry: &Entry| LogInterval::of(entry).map_or(Cell::Empty, Cell::from);
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
        let reason = match verdict.doubt() {
            Some(doubt) => Some(Cell::word(doubt.to_string())),
            None if control.is_none() && *verdict != Verdict::SameProgram => {
                Some(Cell::word(NO_CONTROL))
            }
            None => None,
        };
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
    let totals = entry.measurement.as_ref()?.totals?;
    Some(totals.read_bytes + totals.written_bytes)
}

fn cell(ratio: Option<&Ratio>) -> Cell {
    ratio.map_or(Cell::Empty, |ratio| Cell::Interval {
        value: ratio.value,
        low: ratio.low,
        high: ratio.high,
    })
}

fn notes(measured: &[Pair<'_>]) -> Vec<String> {
    let [minimal, moderate, strong] = BOUNDS;
    let mut notes = vec![
        format!(
            "speedup: unfused over fused, the centre of the ratios of rounds in which both were timed, with its \
             95 % interval. verdict: strong from {strong}, moderate from {moderate}, minimal from {minimal}, \
             slower below, where the whole interval lies there; `at least moderate` where it lies in the upper \
             two; else, or where the control is certainly off by more than {} %, inconclusive",
            100.0 * MARGIN
        ),
        "control: the unfused program over itself, measured twice like two backends. traffic_reduction: of \
         the bytes that the programs' steps read and write, counted in the programs that ran; \
         peak_reduction: of what the device allocated for them, measured"
            .to_owned(),
    ];
    let of_medians = |one: &&Pair<'_>| {
        let speedup = one.judged.speedup.as_ref();
        speedup.is_some_and(|speedup| speedup.basis == Basis::Medians)
    };
    let count = |is: &dyn Fn(&&Pair<'_>) -> bool| measured.iter().filter(|one| is(one)).count();
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
