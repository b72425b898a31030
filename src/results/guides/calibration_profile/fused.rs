//! One pattern of one size: unfused against fused, with the control beside them.

use serde_json::{Value, json};

use super::{Group, key, measurement, subject};
use sweeper_model::fusion::{
    Basis, CONTROL, FUSED, Judged, Ratio, UNFUSED, is_same_program, reduction,
};
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{KernelUse, Measurement};

/// Digits at the end of a generated kernel's name.
const DIGITS: usize = 8;

/// A profile with its key; or where a side has no result, which and why.
pub(super) fn profile(group: &Group<'_>, in_turns: bool) -> Result<(String, Value), Value> {
    let (unfused, fused) = (group[UNFUSED], group[FUSED]);
    let side = |row| measurement(row).ok_or_else(|| missing(row));
    let (unfused_found, unfused_ns) = side(unfused)?;
    let (fused_found, fused_ns) = side(fused)?;
    let control = group.get(CONTROL).and_then(|row| measurement(row));
    let is_same = is_same_program(
        unfused_found.same_program_as.as_deref(),
        fused_found.same_program_as.as_deref(),
    );
    let over = |found: &Measurement| Ratio::of_rounds(&unfused_found.samples_ns, &found.samples_ns);
    let judged = match in_turns {
        true => Judged::new(
            is_same,
            over(fused_found),
            control.and_then(|(found, _)| over(found)),
        ),
        false => Judged::apart(is_same),
    };
    let subject = subject(unfused);
    let operators = operators(&subject.pattern, unfused_found);
    let flops = unfused_found.flops;
    let peak = |found: &Measurement| found.device_memory.peak_allocated_bytes;
    let unfused_gflops = flops / unfused_ns;
    let value = json!({
        "fusion_pattern": subject.pattern,
        "operators": operators,
        "num_operators": operators.len(),
        "unfused_latency_ms": unfused_ns / 1e6,
        "unfused_gflops": unfused_gflops,
        "unfused_memory_bytes": moved(unfused_found),
        "unfused_bytes": moved(unfused_found),
        "unfused_peak_allocated_bytes": peak(unfused_found),
        "unfused_kernels": kernels(unfused_found),
        "unfused_launches": launches(unfused_found),
        "fused_latency_ms": fused_ns / 1e6,
        "fused_gflops": flops / fused_ns,
        "fused_memory_bytes": moved(fused_found),
        "fused_bytes": moved(fused_found),
        "fused_peak_allocated_bytes": peak(fused_found),
        "fused_kernels": kernels(fused_found),
        "fused_launches": launches(fused_found),
        "speedup_factor": unfused_ns / fused_ns,
        "memory_reduction": reduction(moved(unfused_found) as f64, moved(fused_found) as f64),
        "peak_allocated_reduction": reduction(peak(unfused_found) as f64, peak(fused_found) as f64),
        "gflops_improvement": (flops > 0.0).then(|| unfused_ns / fused_ns - 1.0),
        "flops": flops,
        "input_shape": subject.sizes,
        "extra_params": subject.parameters,
        "num_trials": unfused_found.samples_ns.len().min(fused_found.samples_ns.len()),
        "speedup": judged.speedup.as_ref().map(ratio),
        "verdict": judged.verdict.name(),
        "verdict_reason": judged.verdict.doubt().map(|doubt| doubt.to_string()),
        "control": judged.control.as_ref().map(ratio),
        "control_latency_ms": control.map(|(_, time_ns)| time_ns / 1e6),
        "checked": { "unfused": unfused_found.checked.name(), "fused": fused_found.checked.name() },
    });
    Ok((key(unfused), value))
}

fn missing(row: &Row) -> Value {
    json!({
        "profile": key(row),
        "backend": row.backend,
        "status": row.outcome.status.name(),
        "reason": row.outcome.reason,
    })
}

/// Bytes that the program's steps read and write, counted in the program that ran.
fn moved(found: &Measurement) -> u64 {
    let totals = found.totals.unwrap_or_default();
    totals.read_bytes + totals.written_bytes
}

fn launches(found: &Measurement) -> u64 {
    found.totals.unwrap_or_default().launches
}

fn ratio(ratio: &Ratio) -> Value {
    json!({
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "rounds": match ratio.basis {
            Basis::Rounds(rounds) => Some(rounds),
            Basis::Medians => None,
        },
    })
}

/// The fused operators, as the pattern's name lists them; for other names the unfused kernels.
fn operators(pattern: &str, unfused: &Measurement) -> Vec<String> {
    let parts: Vec<String> = pattern.split('_').map(str::to_lowercase).collect();
    match parts.len() {
        1 => kernels(unfused),
        _ => parts,
    }
}

/// Kernels and library calls, without the digits that tell kernels of one name apart.
fn kernels(found: &Measurement) -> Vec<String> {
    let plain = |kernel: &KernelUse| {
        let name = &*kernel.name;
        let name = name.strip_prefix("library.").unwrap_or(name);
        match name.rsplit_once('_') {
            Some((start, end)) if is_digest(end) => start.to_owned(),
            _ => name.to_owned(),
        }
    };
    found.kernels.iter().map(plain).collect()
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGITS && text.chars().all(|digit| digit.is_ascii_hexdigit())
}
