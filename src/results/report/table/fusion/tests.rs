//! The table of rows whose times and intervals are known.

use sweeper_program::Totals;

use super::*;
use crate::golden::assert_golden;
use crate::report::frame::tests::{linear, source};
use crate::report::source::Source;
use crate::report::table::{Layout, render};
use sweeper_model::row::measured::Measured;

/// A row of `linear` whose program reads and writes so many bytes.
fn entry(backend: &str, pattern: &str, m: i64, time_ns: f64, bytes: u64) -> Entry {
    let mut entry = linear(backend, pattern, m, time_ns);
    entry.memory.peak_allocated = Some(bytes);
    entry.measurement = Some(Box::new(Measured {
        totals: Some(Totals {
            read_bytes: bytes,
            written_bytes: bytes,
            ..Totals::default()
        }),
        flops: 2e6,
        ..Measured::default()
    }));
    entry
}

fn sources() -> Vec<Source> {
    let mut sources = vec![source("here", &[])];
    sources[0].entries = vec![
        entry("eager", "bias_gelu", 512, 3000.0, 400),
        entry("compiled", "bias_gelu", 512, 1000.0, 100),
        entry("control", "bias_gelu", 512, 3000.0, 400),
        // The machine measures one program as two different ones here.
        entry("eager", "bias_gelu", 128, 3000.0, 400),
        entry("compiled", "bias_gelu", 128, 1000.0, 100),
        entry("control", "bias_gelu", 128, 3300.0, 400),
        entry("eager", "bias", 128, 1200.0, 100),
        entry("compiled", "bias", 128, 1210.0, 100),
        entry("eager", "bias_relu", 128, 1200.0, 100),
        entry("compiled", "bias_relu", 128, 1000.0, 50),
        entry("primitive", "bias_relu", 128, 9000.0, 900),
    ];
    let same = sources[0].entries[7].measurement.as_mut().unwrap();
    same.same_program_as = Some("eager".into());
    // A file without samples.
    for row in [8, 9] {
        sources[0].entries[row].samples_ns.clear();
    }
    sources
}

fn table(sources: &[Source]) -> Option<Table> {
    let frame = Frame::new(sources);
    let rows = frame.all();
    let layout = Layout::of(&frame, &rows);
    fusion(&Request {
        frame: &frame,
        rows: &rows,
        baseline: None,
        more_baselines: &[],
        iterations: 100,
        layout: &layout,
    })
}

#[test]
fn each_pattern_and_size_has_its_verdict() {
    let table = table(&sources()).unwrap();
    let mut csv = Vec::new();
    render::csv(&table, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let notes: String = table
        .notes
        .iter()
        .map(|note| format!("# {note}\n"))
        .collect();
    assert_golden("report/fusion.csv", &(csv + &notes));
}

#[test]
fn there_is_no_table_where_nothing_was_fused() {
    let mut sources = sources();
    sources[0]
        .entries
        .retain(|entry| &*entry.backend != "compiled");
    assert_eq!(table(&sources), None);
}

#[test]
fn what_was_not_sampled_in_turns_has_no_verdict() {
    let mut sources = sources();
    sources[0].manifest = Some("[plan]\norder = \"sequential\"\n".to_owned());
    let table = table(&sources).unwrap();
    let verdict = table.columns.iter().position(|held| held.name == "verdict");
    let verdicts: Vec<&Cell> = table
        .rows
        .iter()
        .map(|row| &row[verdict.unwrap()])
        .collect();
    let [same, others @ ..] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert_eq!(**same, Cell::word("same program"));
    assert!(
        others
            .iter()
            .all(|held| **held == Cell::word("inconclusive"))
    );
}
