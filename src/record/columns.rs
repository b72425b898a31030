//! What every column of `records.csv` means: its kind, unit, meaning and source.
//!
//! `docs/records.md` is held against this, and typed exports follow it.

use sweeper_kernels::program::Role;

use super::tables;

/// What the fields of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Whole numbers of 64 bits.
    Int,
    /// Numbers of 64 bits.
    Float,
    /// `true` or `false`.
    Bool,
}

impl Kind {
    /// The word of documents.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Int => "integer",
            Kind::Float => "number",
            Kind::Bool => "boolean",
        }
    }
}

/// A column that every `records.csv` has.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What its fields are.
    pub kind: Kind,
    /// The unit; empty for words and counts.
    pub unit: &'static str,
    /// What it says.
    pub meaning: &'static str,
    /// Where that comes from.
    pub source: &'static str,
}

const fn column(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    meaning: &'static str,
    source: &'static str,
) -> Column {
    Column {
        name,
        kind,
        unit,
        meaning,
        source,
    }
}

use Kind::{Float, Int, Text};

const SAMPLES: &str = "samples";
const STARTS: &str = "starts in processes of their own";
const PROGRAM: &str = "program, before it runs";
const PLAN: &str = "plan";

/// The columns beside those of memory by role, in the order of the file; parameters, axes and derived
/// values stand between `dtype` and `canonical`, under their own names.
pub const COLUMNS: [Column; 70] = [
    column(
        "point",
        Text,
        "",
        "identity of the row: SHA-256 of problem, backend, phase, canonical shape and conditions, 64 hex digits",
        PLAN,
    ),
    column(
        "problem",
        Text,
        "",
        "identity of workload, parameters, type and inputs, 64 hex digits",
        PLAN,
    ),
    column(
        "case",
        Text,
        "",
        "name of the case in the manifest",
        "manifest",
    ),
    column("workload", Text, "", "what is computed", "manifest"),
    column("backend", Text, "", "how it is computed", "manifest"),
    column(
        "phase",
        Text,
        "",
        "`forward`, `backward` or `both`",
        "manifest",
    ),
    column(
        "dtype",
        Text,
        "",
        "type of the elements, such as `f32`",
        "manifest",
    ),
    column(
        "canonical",
        Text,
        "",
        "bounds that kernels were compiled for, as `K<=8 T<=128`; empty where there are none",
        PLAN,
    ),
    column("device", Text, "", "`cpu`, `cuda` or `null`", "device"),
    column(
        "device_name",
        Text,
        "",
        "product, and the unit of a GPU",
        "device",
    ),
    column(
        "l2",
        Text,
        "",
        "second-level cache before a sample: `cold`, `clean` or `hot`",
        "manifest",
    ),
    column(
        "mode",
        Text,
        "",
        "`launch` by launch, or as one `graph`",
        "manifest",
    ),
    column(
        "threads",
        Int,
        "",
        "CPU threads of the measured program",
        "manifest",
    ),
    column(
        "status",
        Text,
        "",
        "`ok`, or what became of it instead (docs/codes.md)",
        "run",
    ),
    column("reason", Text, "", "why, where that is not `ok`", "run"),
    column("n", Int, "", "number of samples", SAMPLES),
    column(
        "median_ns",
        Float,
        "ns",
        "median time of one iteration",
        SAMPLES,
    ),
    column(
        "median_low_ns",
        Float,
        "ns",
        "lower end of the median's interval, from order statistics",
        SAMPLES,
    ),
    column("median_high_ns", Float, "ns", "upper end of it", SAMPLES),
    column(
        "median_coverage",
        Float,
        "",
        "probability that the interval covers the median",
        SAMPLES,
    ),
    column("mean_ns", Float, "ns", "arithmetic mean", SAMPLES),
    column(
        "std_ns",
        Float,
        "ns",
        "standard deviation, with n - 1",
        SAMPLES,
    ),
    column("min_ns", Float, "ns", "least sample", SAMPLES),
    column("p5_ns", Float, "ns", "5 % quantile (type 7)", SAMPLES),
    column("q1_ns", Float, "ns", "25 % quantile", SAMPLES),
    column("q3_ns", Float, "ns", "75 % quantile", SAMPLES),
    column("p95_ns", Float, "ns", "95 % quantile", SAMPLES),
    column("max_ns", Float, "ns", "greatest sample", SAMPLES),
    column(
        "mad_ns",
        Float,
        "ns",
        "median absolute deviation from the median, not scaled",
        SAMPLES,
    ),
    column(
        "iterations",
        Int,
        "",
        "iterations in one sample",
        "sampling",
    ),
    column(
        "warmup_samples",
        Int,
        "",
        "samples before the first that counts",
        "sampling",
    ),
    column(
        "first_runs",
        Int,
        "",
        "first iterations, each timed by itself",
        "sampling",
    ),
    column(
        "first_runs_ns",
        Float,
        "ns",
        "their time in all",
        "sampling",
    ),
    column(
        "prepare_ns",
        Int,
        "ns",
        "time to make the program ready from compiled kernels, as the first of its process; empty on the null device",
        "device",
    ),
    column(
        "fresh_starts",
        Int,
        "",
        "processes of its own in which the program was started, as `measure.fresh_starts` asks; empty where there were none",
        STARTS,
    ),
    column(
        "start_runs",
        Int,
        "",
        "first iterations in such a start",
        STARTS,
    ),
    column(
        "start_ns",
        Float,
        "ns",
        "time of a start: making the program ready, and its first iterations; the median",
        STARTS,
    ),
    column(
        "start_low_ns",
        Float,
        "ns",
        "lower end of the interval of `start_ns`; empty of one start",
        STARTS,
    ),
    column(
        "start_high_ns",
        Float,
        "ns",
        "upper end of the interval of `start_ns`; empty of one start",
        STARTS,
    ),
    column(
        "launches",
        Int,
        "",
        "kernels launched in an iteration, copies and fills included",
        PROGRAM,
    ),
    column(
        "library_launches",
        Int,
        "",
        "of these, calls of a vendor's or another library; the others are kernels of ours",
        PROGRAM,
    ),
    column("read_bytes", Int, "bytes", "read in an iteration", PROGRAM),
    column(
        "written_bytes",
        Int,
        "bytes",
        "written in an iteration",
        PROGRAM,
    ),
    column(
        "flops",
        Float,
        "operations",
        "useful floating-point operations of an iteration",
        "workload's formula",
    ),
    column(
        "compulsory_bytes",
        Float,
        "bytes",
        "the least that an iteration must move",
        "workload's formula",
    ),
    column(
        "flops_per_s",
        Float,
        "operations/s",
        "`flops` over `median_ns`",
        "both columns",
    ),
    column(
        "bytes_per_s",
        Float,
        "bytes/s",
        "`compulsory_bytes` over `median_ns`",
        "both columns",
    ),
    column(
        "roofline_ns",
        Float,
        "ns",
        "the least time that the measured ceilings allow",
        "ceilings",
    ),
    column(
        "efficiency",
        Float,
        "",
        "`roofline_ns` over `median_ns`",
        "both columns",
    ),
    column(
        "peak_allocated_bytes",
        Int,
        "bytes",
        "the most that was allocated for the program at one time",
        "device",
    ),
    column(
        "peak_reserved_bytes",
        Int,
        "bytes",
        "the most that the worker (on a GPU: the pool) held",
        "device",
    ),
    column("kernels", Int, "", "kernels that had to be compiled", PLAN),
    column(
        "kernel_hits",
        Int,
        "",
        "of these, how many the cache had",
        "kernel cache",
    ),
    column(
        "compile_ns",
        Int,
        "ns",
        "time that compiling each of them took, whenever that was, added up: more than anybody waited, where some were \
         compiled side by side",
        "kernel cache",
    ),
    column(
        "compile_wall_ns",
        Int,
        "ns",
        "time in which at least one of them was being compiled; empty where there are none",
        "kernel cache",
    ),
    column(
        "cache_read_ns",
        Int,
        "ns",
        "time that reading all of them from the cache took, as a sum; empty where one is in none",
        "kernel cache",
    ),
    column(
        "kernel_keys",
        Text,
        "",
        "first digits of the keys of compiled kernels, in the order of the program; `sweeper cache show` finds them",
        "kernel cache",
    ),
    column(
        "same_program_as",
        Text,
        "",
        "backend of the same block whose program is the same, launch by launch; empty where none is",
        PROGRAM,
    ),
    column(
        "checked",
        Text,
        "",
        "how outputs were judged: `full`, `reduced` or `none`",
        "oracle",
    ),
    column(
        "worst_tensor",
        Text,
        "",
        "the output that was furthest from the oracle's",
        "oracle",
    ),
    column(
        "worst_error",
        Float,
        "",
        "how far, in the tensor's metric",
        "oracle",
    ),
    column(
        "worst_tolerance",
        Float,
        "",
        "how far it may be",
        "workload",
    ),
    column(
        "output_digest",
        Text,
        "",
        "SHA-256 of the outputs, 64 hex digits",
        "outputs",
    ),
    column(
        "sm_mhz",
        Int,
        "MHz",
        "median clock of the multiprocessors",
        "NVML",
    ),
    column(
        "temperature_c",
        Int,
        "degrees C",
        "greatest temperature",
        "NVML",
    ),
    column("power_w", Float, "W", "median power", "NVML"),
    column(
        "throttled_by",
        Text,
        "",
        "what held clocks back, in words with spaces between",
        "NVML",
    ),
    column(
        "flags",
        Text,
        "",
        "what else to know (docs/codes.md), in words with spaces between",
        "run",
    ),
    column(
        "unix_time_s",
        Float,
        "s",
        "when the row was made, since 1970; 0 on the null device",
        "clock",
    ),
    column("schema", Int, "", "version of this format", "program"),
];

/// The kind of a column, if it is not a parameter, an axis or a derived value.
pub fn kind_of(name: &str) -> Option<Kind> {
    let fixed = COLUMNS.iter().find(|column| column.name == name);
    let is_memory = || {
        Role::ALL
            .iter()
            .any(|&role| tables::memory_column(role) == name)
    };
    match fixed {
        Some(column) => Some(column.kind),
        None => is_memory().then_some(Int),
    }
}

/// The table of `docs/records.md`.
pub fn markdown() -> String {
    let mut lines = vec![
        "| column | kind | unit | meaning | source |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let line = |column: &Column| {
        format!(
            "| `{}` | {} | {} | {} | {} |",
            column.name,
            column.kind.name(),
            column.unit,
            column.meaning,
            column.source
        )
    };
    for column in &COLUMNS {
        match column.name {
            "canonical" => lines.push(
                "| *parameters, axes, derived values* | as they are | | each under its own name, after `axis_` where \
                 another column is called like that (`axis_n`); parameters first, by name | manifest |"
                    .to_owned(),
            ),
            "unix_time_s" => lines.extend(Role::ALL.map(|role| {
                let name = tables::memory_column(role);
                format!(
                    "| `{name}` | integer | bytes | the program's buffers of the role `{}` | {PROGRAM} |",
                    role.name()
                )
            })),
            _ => {}
        }
        lines.push(line(column));
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::outcome::{Outcome, Status};
    use crate::record::row::test_row;

    #[test]
    fn the_description_has_the_columns_of_the_file_in_their_order() {
        let rows = [test_row(1, Outcome::without_measurement(Status::Oom, ""))];
        let mut bytes = Vec::new();
        tables::write_records(&rows, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let header = text.lines().next().unwrap().split(',');
        let row = &rows[0];
        let own = header.filter(|name| !row.parameters.contains_key(*name) && *name != "KC");
        let described = markdown();
        let described = described.lines().filter_map(|line| line.split('`').nth(1));
        let described: Vec<&str> = described.filter(|name| kind_of(name).is_some()).collect();
        assert_eq!(own.collect::<Vec<_>>(), described);
    }
}
