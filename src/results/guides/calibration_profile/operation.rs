//! One operation of one size, with the fastest of its backends.

use serde_json::{Value, json};

use super::{Group, Measured, Paper, key, measurement, part, subject};
use sweeper_model::fusion::CONTROL;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Measurement;

/// An operation that was measured.
pub(super) struct Operation<'r> {
    /// The row of the fastest backend.
    pub(super) row: &'r Row,
    found: &'r Measurement,
    median_ns: f64,
}

impl<'r> Operation<'r> {
    /// The fastest backend that is right, if one is.
    pub(super) fn of(group: &Group<'r>) -> Option<Self> {
        let backends = group.iter().filter(|(backend, _)| **backend != CONTROL);
        let measured = backends.filter_map(|(_, &row)| {
            let (found, median_ns) = measurement(row)?;
            Some(Operation {
                row,
                found,
                median_ns,
            })
        });
        measured.min_by(|one, other| one.median_ns.total_cmp(&other.median_ns))
    }

    pub(super) fn key(&self) -> String {
        key(self.row)
    }

    /// Useful operations a second, in 10^9.
    pub(super) fn gflops(&self) -> f64 {
        self.found.flops / self.median_ns
    }

    /// Compulsory bytes a second, in 10^9: a copy counts the bytes that it reads and writes.
    pub(super) fn gbps(&self) -> f64 {
        self.found.compulsory_bytes / self.median_ns
    }

    /// Memory bounds it if moving its bytes at the best measured rate takes longer than computing
    /// at the best.
    fn is_memory_bound(&self, measured: &Measured) -> Option<bool> {
        if self.found.flops == 0.0 {
            return Some(true);
        }
        let computing_ns = self.found.flops / measured.best(self.row.arithmetic())?;
        let moving_ns = self.found.compulsory_bytes / measured.bandwidth_gbps?;
        Some(moving_ns > computing_ns)
    }

    pub(super) fn json(&self, paper: &Paper<'_>, measured: &Measured) -> Value {
        let subject = subject(self.row);
        let summary = self.row.summary();
        let ms = |of: fn(&sweeper_model::stats::Summary) -> f64| {
            summary.as_ref().map(|held| of(held) / 1e6)
        };
        let computes = self.found.flops > 0.0;
        let efficiency = match computes {
            true => part(Some(self.gflops()), paper.gflops(self.row.arithmetic())),
            false => part(Some(self.gbps()), paper.bandwidth_gbps()),
        };
        let is_memory_bound = self.is_memory_bound(measured);
        json!({
            "operation_type": self.row.workload,
            "backend": self.row.backend,
            "precision": self.row.arithmetic(),
            "measured_gflops": self.gflops(),
            "efficiency": efficiency,
            "achieved_bandwidth_gbps": self.gbps(),
            "memory_bound": is_memory_bound,
            "compute_bound": is_memory_bound.map(|is| !is),
            "arithmetic_intensity": self.found.flops / self.found.compulsory_bytes,
            "flops": self.found.flops,
            "compulsory_bytes": self.found.compulsory_bytes,
            "input_shape": subject.sizes,
            "extra_params": subject.parameters,
            "median_latency_ms": self.median_ns / 1e6,
            "median_latency_low_ms": ms(|held| held.interval.low),
            "median_latency_high_ms": ms(|held| held.interval.high),
            "mean_latency_ms": ms(|held| held.mean),
            "std_latency_ms": ms(|held| held.std),
            "min_latency_ms": ms(|held| held.min),
            "max_latency_ms": ms(|held| held.max),
            "num_trials": self.found.samples_ns.len(),
            "checked": self.found.checked.name(),
        })
    }
}
