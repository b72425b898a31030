//! Rows of a run's journal.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::entry::{Entry, Kernel, Memory, Program, TensorError, Times, Words};
use crate::execute::outcome::Measurement;
use crate::record::journal::Contents;
use crate::record::row::Row;

/// Rows that are held in the journal's form at a time.
const CHUNK: usize = 8192;

/// The rows of a journal; its lines are read in parallel.
///
/// # Errors
/// A message that names the line.
pub(super) fn entries(contents: &Contents) -> Result<Vec<Entry>, String> {
    let mut words = Words::default();
    let mut entries = Vec::with_capacity(contents.len());
    for start in (0..contents.len()).step_by(CHUNK) {
        let end = contents.len().min(start + CHUNK);
        let rows: Vec<(Row, Option<Times>)> = (start..end)
            .into_par_iter()
            .map(|number| {
                let row = contents.row(number)?;
                let times = row.summary().map(Times::from);
                Ok((row, times))
            })
            .collect::<Result<_, String>>()?;
        entries.extend(
            rows.into_iter()
                .map(|(row, times)| entry(row, times, &mut words)),
        );
    }
    Ok(entries)
}

fn entry(row: Row, times: Option<Times>, words: &mut Words) -> Entry {
    let named = |values: &std::collections::BTreeMap<String, _>, words: &mut Words| {
        values
            .iter()
            .map(|(name, value)| (words.get(name), words.value(value)))
            .collect()
    };
    let parameters = named(&row.parameters, words);
    let values = named(&row.values, words);
    let (measurement, memory) = match row.outcome.measurement {
        Some(found) => {
            let memory = memory(&found);
            (Some(found), memory)
        }
        None => (None, Memory::default()),
    };
    let (program, samples_ns) = match measurement {
        Some(found) => {
            let (program, samples_ns) = program(*found, words);
            (Some(Box::new(program)), samples_ns)
        }
        None => (None, Vec::new()),
    };
    Entry {
        point: Some(row.point),
        problem: Some(row.problem),
        case: words.get(&row.case),
        workload: words.get(&row.workload),
        parameters,
        values,
        dtype: Some(row.dtype),
        backend: words.get(&row.backend),
        phase: row.phase,
        canonical: row
            .canonical
            .iter()
            .map(|(name, &bound)| (words.get(name), bound))
            .collect(),
        device: Some(row.device),
        device_name: words.some(&row.device_name),
        l2: words.some(&row.l2),
        mode: words.some(&row.mode),
        threads: Some(row.threads),
        status: row.outcome.status,
        reason: row
            .outcome
            .reason
            .as_deref()
            .and_then(|text| words.some(text)),
        times,
        samples_ns,
        memory,
        program,
        compile: row.compile,
        roofline_ns: row.roofline_ns,
        unix_time_s: Some(row.unix_time_s),
    }
}

fn memory(found: &Measurement) -> Memory {
    use sweeper_kernels::program::Role;
    let autograd = [Role::Gradient, Role::Saved].map(|role| found.memory_bytes.get(&role));
    Memory {
        by_role: found.memory_bytes.clone(),
        autograd: Some(autograd.into_iter().flatten().sum()),
        peak_allocated: Some(found.device_memory.peak_allocated_bytes),
        peak_reserved: Some(found.device_memory.peak_reserved_bytes),
    }
}

fn program(found: Measurement, words: &mut Words) -> (Program, Vec<f64>) {
    let fresh_starting = found.fresh_starting();
    let checks = found.check.map(|check| check.tensors).unwrap_or_default();
    let program = Program {
        iterations: found.iterations,
        warmup_samples: found.warmup_samples,
        first_runs: found.first_runs,
        prepare_ns: found.prepare_ns,
        fresh_starting,
        launches: found.totals.launches,
        calls: found.totals.calls,
        read_bytes: found.totals.read_bytes,
        written_bytes: found.totals.written_bytes,
        flops: found.flops,
        compulsory_bytes: found.compulsory_bytes,
        same_program_as: found
            .same_program_as
            .as_deref()
            .map(|backend| words.get(backend)),
        kernels: found
            .kernels
            .iter()
            .map(|kernel| Kernel {
                name: words.get(&kernel.name),
                key: kernel.key.as_deref().map(|key| words.get(key)),
            })
            .collect(),
        checked: found.checked,
        errors: checks
            .iter()
            .map(|check| TensorError {
                tensor: words.get(&check.tensor),
                metric: Some(check.metric),
                error: check.error,
                tolerance: check.tolerance,
            })
            .collect(),
        output_digest: found.output_digest.as_deref().map(Arc::from),
        clocks: found.clocks,
        flags: found.flags,
    };
    (program, found.samples_ns)
}
