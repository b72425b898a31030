//! Columns of what came out: status, times, memory, and what the program did.

use std::sync::Arc;

use sweeper_kernels::program::Role;

use super::{Cells, Column, Group, make, numbers, of_program, or_nan, words};
use crate::record::row::CompileUse;
use crate::record::tables;
use crate::report::entry::{Entry, Program, Times};

/// Status, median, and what follows from it.
pub(super) fn results(entries: &[&Entry]) -> Vec<Column> {
    let group = Group::Result;
    let words = |name, about, of: fn(&Entry) -> Arc<str>| words(entries, group, name, about, of);
    let numbers =
        |name, about, of: fn(&Entry) -> Option<f64>| numbers(entries, group, name, about, of);
    vec![
        words("status", "What became of the point", |entry| {
            entry.status.name().into()
        }),
        words("reason", "Why, where that is not ok", |entry| {
            entry.reason.clone().unwrap_or_default()
        }),
        numbers(
            "median_ns",
            "Median time of one iteration, in nanoseconds",
            |entry| Some(entry.times?.median),
        ),
        numbers(
            "flops_per_s",
            "Useful operations a second, at the median",
            Entry::flops_per_s,
        ),
        numbers(
            "bytes_per_s",
            "Compulsory bytes a second, at the median",
            Entry::bytes_per_s,
        ),
        numbers(
            "roofline_ns",
            "The least time that the device’s measured ceilings allow",
            |entry| entry.roofline_ns,
        ),
        numbers(
            "efficiency",
            "Roofline over median: above 1 where data stays in a cache",
            Entry::efficiency,
        ),
        words(
            "checked",
            "How thoroughly outputs were compared with the oracle’s",
            |entry| {
                of_program(entry, |program| Some(program.checked.name().into())).unwrap_or_default()
            },
        ),
        words("flags", "What else to know of the row", |entry| {
            let flags = of_program(entry, |program| {
                let names: Vec<&str> = program.flags.iter().map(|flag| flag.name()).collect();
                Some(names.join(" ").into())
            });
            flags.unwrap_or_default()
        }),
    ]
}

/// Statistics of the samples.
pub(super) fn statistics(entries: &[&Entry]) -> Vec<Column> {
    type Statistic = (&'static str, &'static str, fn(&Times) -> Option<f64>);
    const STATISTICS: [Statistic; 13] = [
        ("n", "Number of samples", |times| times.n.map(f64::from)),
        (
            "median_low_ns",
            "Lower end of the median’s 95 % interval",
            |times| times.ci_low,
        ),
        (
            "median_high_ns",
            "Upper end of the median’s 95 % interval",
            |times| times.ci_high,
        ),
        (
            "median_coverage",
            "Probability that the interval covers the median",
            |times| times.coverage,
        ),
        ("mean_ns", "Arithmetic mean", |times| times.mean),
        ("std_ns", "Standard deviation, with n - 1", |times| {
            times.std
        }),
        ("min_ns", "Least sample", |times| times.min),
        ("p5_ns", "5 % quantile", |times| times.p5),
        ("q1_ns", "25 % quantile", |times| times.q1),
        ("q3_ns", "75 % quantile", |times| times.q3),
        ("p95_ns", "95 % quantile", |times| times.p95),
        ("max_ns", "Greatest sample", |times| times.max),
        (
            "mad_ns",
            "Median absolute deviation from the median",
            |times| times.mad,
        ),
    ];
    let column = |&(name, about, of): &Statistic| {
        let values = entries
            .iter()
            .map(|entry| entry.times.as_ref().and_then(of));
        make(
            Group::Statistic,
            name,
            about,
            Cells::Numbers(values.map(or_nan).collect()),
        )
    };
    STATISTICS.iter().map(column).collect()
}

/// Memory, altogether and by role.
pub(super) fn memory(entries: &[&Entry]) -> Vec<Column> {
    let group = Group::Memory;
    let mut columns = vec![
        numbers(
            entries,
            group,
            "peak_allocated_bytes",
            "The most that was allocated at one time",
            |entry| entry.memory.peak_allocated.map(|bytes| bytes as f64),
        ),
        numbers(
            entries,
            group,
            "peak_reserved_bytes",
            "The most that the process or pool held",
            |entry| entry.memory.peak_reserved.map(|bytes| bytes as f64),
        ),
    ];
    for role in Role::ALL {
        let values = entries.iter().map(|entry| {
            let held = entry.memory.by_role.get(&role);
            or_nan(held.map(|&bytes| bytes as f64))
        });
        let name = tables::memory_column(role);
        columns.push(make(
            group,
            &name,
            "Bytes of the program’s buffers of this role",
            Cells::Numbers(values.collect()),
        ));
    }
    columns
}

/// What the program did, and how it was judged.
pub(super) fn program(entries: &[&Entry]) -> Vec<Column> {
    type Count = (&'static str, &'static str, fn(&Program) -> Option<f64>);
    const COUNTS: [Count; 21] = [
        ("iterations", "Iterations in a sample", |program| {
            Some(f64::from(program.iterations))
        }),
        (
            "warmup_samples",
            "Samples before the first that counts",
            |program| Some(f64::from(program.warmup_samples)),
        ),
        (
            "first_runs",
            "First iterations, each timed by itself",
            |program| Some(f64::from(program.first_runs?.count)),
        ),
        ("first_runs_ns", "What these took together", |program| {
            Some(program.first_runs?.elapsed_ns)
        }),
        (
            "prepare_ns",
            "Making the program ready from compiled kernels",
            |program| Some(program.prepare_ns? as f64),
        ),
        (
            "fresh_starts",
            "Processes of its own in which it was started",
            |program| Some(f64::from(program.fresh_starting?.processes)),
        ),
        (
            "start_runs",
            "First iterations in such a start",
            |program| Some(f64::from(program.fresh_starting?.iterations)),
        ),
        (
            "start_ns",
            "A start: making it ready, and first iterations; the median",
            |program| Some(program.fresh_starting?.median_ns),
        ),
        ("start_low_ns", "Lower end of its interval", |program| {
            Some(program.fresh_starting?.interval_ns?.0)
        }),
        ("start_high_ns", "Upper end of its interval", |program| {
            Some(program.fresh_starting?.interval_ns?.1)
        }),
        (
            "launches",
            "Kernels launched in an iteration, calls of libraries among them",
            |program| Some(program.launches as f64),
        ),
        (
            "library_launches",
            "Of these, calls of libraries",
            |program| Some(program.calls as f64),
        ),
        ("read_bytes", "Bytes that an iteration reads", |program| {
            Some(program.read_bytes as f64)
        }),
        (
            "written_bytes",
            "Bytes that an iteration writes",
            |program| Some(program.written_bytes as f64),
        ),
        (
            "flops",
            "Useful floating-point operations of an iteration",
            |program| Some(program.flops),
        ),
        (
            "compulsory_bytes",
            "The least bytes that an iteration must move",
            |program| Some(program.compulsory_bytes),
        ),
        (
            "worst_error",
            "Greatest distance of an output from the oracle’s",
            |program| Some(program.worst()?.error),
        ),
        (
            "worst_tolerance",
            "The distance up to which that output is right",
            |program| Some(program.worst()?.tolerance),
        ),
        ("sm_mhz", "Median clock of the multiprocessors", |program| {
            Some(f64::from(program.clocks.as_ref()?.sm_mhz))
        }),
        ("temperature_c", "Greatest temperature", |program| {
            Some(f64::from(program.clocks.as_ref()?.temperature_c))
        }),
        ("power_w", "Median power", |program| {
            Some(program.clocks.as_ref()?.power_w)
        }),
    ];
    let count = |&(name, about, of): &Count| {
        let values = entries.iter().map(|entry| or_nan(of_program(entry, of)));
        make(
            Group::Program,
            name,
            about,
            Cells::Numbers(values.collect()),
        )
    };
    let words =
        |name, about, of: fn(&Entry) -> Arc<str>| words(entries, Group::Program, name, about, of);
    let mut columns: Vec<Column> = COUNTS.iter().map(count).collect();
    columns.push(words(
        "worst_tensor",
        "The output that was furthest from right",
        |entry| {
            of_program(entry, |program| Some(Arc::clone(&program.worst()?.tensor)))
                .unwrap_or_default()
        },
    ));
    columns.push(words(
        "throttled_by",
        "Why the device held its clocks back",
        |entry| {
            let reasons = of_program(entry, |program| {
                Some(program.clocks.as_ref()?.throttled_by.join(" ").into())
            });
            reasons.unwrap_or_default()
        },
    ));
    columns.push(words(
        "canonical",
        "The shape that kernels were made for",
        |entry| {
            let bounds: Vec<String> = entry
                .canonical
                .iter()
                .map(|(name, bound)| format!("{name}<={bound}"))
                .collect();
            bounds.join(" ").into()
        },
    ));
    columns.push(words(
        "kernel_names",
        "Kernels of the program, where the source names them",
        |entry| {
            let names = of_program(entry, |program| {
                let names: Vec<&str> = program
                    .kernels
                    .iter()
                    .map(|kernel| kernel.name.as_ref())
                    .collect();
                Some(names.join(" ").into())
            });
            names.unwrap_or_default()
        },
    ));
    columns.push(words(
        "same_program_as",
        "The backend before it in the block whose program is the same, launch by launch",
        |entry| of_program(entry, |program| program.same_program_as.clone()).unwrap_or_default(),
    ));
    columns.extend(compiling(entries));
    columns
}

/// What the program's kernels cost.
fn compiling(entries: &[&Entry]) -> Vec<Column> {
    type Cost = (&'static str, &'static str, fn(&CompileUse) -> Option<f64>);
    const COSTS: [Cost; 5] = [
        ("kernels", "Kernels that had to be compiled", |compile| {
            Some(f64::from(compile.kernels))
        }),
        (
            "kernel_hits",
            "Of these, how many the cache had",
            |compile| Some(f64::from(compile.hits)),
        ),
        (
            "compile_ns",
            "Compiling each of its kernels, whenever that was, added up",
            |compile| Some(compile.compile_ns as f64),
        ),
        (
            "compile_wall_ns",
            "For how long at least one of them was being compiled",
            |compile| Some(compile.wall_ns? as f64),
        ),
        (
            "cache_read_ns",
            "Reading all of them from the cache",
            |compile| Some(compile.read_ns? as f64),
        ),
    ];
    let column = |&(name, about, of): &Cost| {
        let cost = |entry: &Entry| of_program(entry, |_| of(&entry.compile));
        let values = entries.iter().map(|entry| or_nan(cost(entry)));
        let cells = Cells::Numbers(values.collect());
        make(Group::Program, name, about, cells)
    };
    COSTS.iter().map(column).collect()
}
