//! Every key of a manifest's settings, in the order in which `sweeper check --resolved` prints
//! them.

use super::describe::setting;
use super::kinds::{
    Boolean, Counts, Fraction, Integer, Number, OneOf, Path, Paths, Seconds, SeveralOf, Text, Texts,
};
use super::special::{
    Buckets, CompileThreads, DeviceThreads, Devices, Elsewhere, Exports, Expression, Name,
    Outcomes, PlotNames, PruneRule, WarmupRuns,
};
use super::{Data, Setting};
use crate::grammar::json;
use crate::model::manifest::SCHEMA;
use crate::model::settings::{Canonical, GB, PartsRule, Stopping};

/// Upper bound of processes for a point: more would take too long.
const MAX_FRESH_STARTS: u32 = 1000;

/// Iterations of a loop, at most.
const MAX_LOOP: u32 = 1_000_000_000;

/// The largest integer that TOML can hold.
const MAX_INTEGER: u64 = i64::MAX as u64;

/// Keys of the rule that stops when a median is known well enough; `measure.repeats` excludes them.
pub(crate) const ADAPTIVE: &[&str] = &[
    "measure.min_samples",
    "measure.max_samples",
    "measure.max_rel_ci",
    "measure.max_seconds",
];

/// Keys that mean something with `plan.canonical = "published"` alone.
pub(crate) const PUBLISHED: &[&str] = &["plan.max_canonical_shapes", "plan.samples_per_shape"];

/// A field of a variant: it has a value, and can be set, while the manifest has that variant.
macro_rules! of_variant {
    ($kind:ident { $($bound:ident: $value:expr),* }
        of $($place:ident).+, $variant:path, $field:ident) => {
        &$kind {
            $($bound: $value,)*
            get: |manifest| match manifest.$($place).+ {
                $variant { $field, .. } => Some($field),
                _ => None,
            },
            set: |manifest, value| {
                if let $variant { $field, .. } = &mut manifest.$($place).+ {
                    *$field = value;
                }
            },
        }
    };
}

/// A field that always has a value.
macro_rules! field {
    ($kind:ident { $($bound:ident: $value:expr),* } of $($place:ident).+) => {
        &$kind {
            $($bound: $value,)*
            get: |manifest| Some(manifest.$($place).+.clone()),
            set: |manifest, value| manifest.$($place).+ = value,
        }
    };
}

/// A field that may have no value.
macro_rules! optional {
    ($kind:ident { $($bound:ident: $value:expr),* } of $($place:ident).+) => {
        &$kind {
            $($bound: $value,)*
            get: |manifest| manifest.$($place).+.clone(),
            set: |manifest, value| manifest.$($place).+ = Some(value),
        }
    };
}

/// The settings, section by section.
pub(crate) static SETTINGS: &[Setting] = &[
    setting(
        "schema",
        "version of the format",
        &Elsewhere {
            get: |_| Some(Data::Integer(SCHEMA as u64)),
            schema: || serde_json::json!({ "const": SCHEMA }),
        },
    )
    .needed(),
    setting(
        "extends",
        "manifest that this one is laid over, relative to this one",
        &Elsewhere {
            get: |_| None,
            schema: json::string,
        },
    ),
    setting("name", "names the folders of runs", field!(Name {} of name)),
    setting(
        "about",
        "the question that the sweep answers",
        field!(Text {} of about),
    ),
    setting(
        "tags",
        "words to find it by",
        &Texts {
            get: |manifest| Some(manifest.tags.clone()).filter(|tags| !tags.is_empty()),
            set: |manifest, tags| manifest.tags = tags,
        },
    ),
    setting(
        "cases",
        "run these cases alone, by name or by workload",
        &Elsewhere {
            get: |_| None,
            schema: || json::list(json::string()),
        },
    )
    .flag(&["--case", "--operations"]),
    setting(
        "seed",
        "inputs derive from it, per problem and tensor",
        field!(Integer { from: 0, to: MAX_INTEGER } of seed),
    )
    .hashed("seed"),
    setting(
        "plan.buckets",
        "bounds that kernels are compiled for, by axis or derived value; else the workload's own",
        field!(Buckets {} of plan.buckets),
    )
    .hashed("buckets"),
    setting(
        "plan.canonical",
        "which points are measured, seen from their canonical shapes: all, or some as published",
        &OneOf {
            get: |manifest| {
                Some(match manifest.plan.canonical {
                    Canonical::Published { .. } => Canonical::PUBLISHED,
                    dominating => dominating,
                })
            },
            set: |manifest, canonical| manifest.plan.canonical = canonical,
        },
    )
    .hashed("canonical")
    .preset(
        &["--compile-friendly"],
        "published",
        "sample configurations by canonical shape, as published",
    ),
    setting(
        "plan.max_canonical_shapes",
        "canonical shapes to sample",
        of_variant!(
            Integer { from: 1, to: u32::MAX }
            of plan.canonical, Canonical::Published, max_canonical_shapes
        ),
    )
    .hashed("max_canonical_shapes")
    .flag(&["--max-canonical-shapes"]),
    setting(
        "plan.samples_per_shape",
        "configurations of each canonical shape",
        of_variant!(
            Integer { from: 1, to: u32::MAX } of plan.canonical, Canonical::Published, samples_per_shape
        ),
    )
    .hashed("samples_per_shape")
    .flag(&["--samples-per-shape"]),
    setting(
        "plan.order",
        "order of the measurements of one problem",
        field!(OneOf {} of plan.order),
    ),
    setting(
        "device.use",
        "where to run: auto, cpu, cuda:0, cuda:all",
        field!(Devices {} of device.use_),
    )
    .flag(&["--device"]),
    setting(
        "device.threads",
        "CPU threads of a measured program",
        field!(DeviceThreads {} of device.threads),
    ),
    setting(
        "device.hardware",
        "what calibration profiles call the device",
        optional!(Text {} of device.hardware.name),
    )
    .flag(&["--hardware"]),
    setting(
        "device.peak_gflops",
        "theoretical f32 operations a second, in 10^9",
        optional!(Number {} of device.hardware.peak_gflops),
    )
    .flag(&["--peak-gflops"]),
    setting(
        "device.peak_bandwidth",
        "theoretical bytes of memory a second, in 10^9",
        optional!(Number {} of device.hardware.peak_bandwidth_gbps),
    )
    .flag(&["--peak-bandwidth"]),
    setting(
        "cache.dir",
        "folder of the kernel cache",
        optional!(Path {} of cache.dir),
    )
    .flag(&["--cache-dir", "--compile-cache-dir"]),
    setting(
        "cache.size_gb",
        "size of the kernel cache in units of 2^30 bytes",
        &Number {
            get: |manifest| Some(manifest.cache.size_bytes as f64 / GB),
            set: |manifest, gb| manifest.cache.size_bytes = (gb * GB) as u64,
        },
    )
    .flag(&["--cache-size-gb", "--compile-cache-size-gb"]),
    setting(
        "cache.upstream",
        "shared caches that are only read",
        field!(Paths {} of cache.upstream),
    )
    .flag(&["--cache-upstream"]),
    setting(
        "cache.compile_threads",
        "threads that compile",
        field!(CompileThreads {} of cache.compile_threads),
    )
    .flag(&["--compile-threads"]),
    setting(
        "measure.repeats",
        "samples of each point",
        &Integer {
            from: 1,
            to: u32::MAX,
            get: |manifest| match manifest.measure.stopping {
                Stopping::Repeats(repeats) => Some(repeats),
                Stopping::Adaptive { .. } => None,
            },
            set: |manifest, repeats| manifest.measure.stopping = Stopping::Repeats(repeats),
        },
    )
    .hashed("repeats")
    .flag(&["--repeats", "--measure-steps"]),
    setting(
        "measure.min_samples",
        "never fewer samples of a point",
        &Integer {
            from: 1,
            to: u32::MAX,
            get: |manifest| match manifest.measure.stopping {
                Stopping::Adaptive { min_samples, .. } => Some(min_samples),
                Stopping::Repeats(_) => None,
            },
            set: |manifest, least| {
                if let Stopping::Adaptive {
                    min_samples,
                    max_samples,
                    ..
                } = &mut manifest.measure.stopping
                {
                    *min_samples = least;
                    *max_samples = least.max(*max_samples);
                }
            },
        },
    )
    .hashed("min_samples"),
    setting(
        "measure.max_samples",
        "never more samples of a point",
        of_variant!(
            Integer { from: 1, to: u32::MAX } of measure.stopping, Stopping::Adaptive, max_samples
        ),
    )
    .hashed("max_samples"),
    setting(
        "measure.max_rel_ci",
        "stop at this relative width of the median's 95 % interval",
        of_variant!(
            Number {} of measure.stopping, Stopping::Adaptive, max_rel_ci
        ),
    )
    .hashed("max_rel_ci"),
    setting(
        "measure.max_seconds",
        "stop after this time in a point",
        of_variant!(
            Seconds {} of measure.stopping, Stopping::Adaptive, max_time
        ),
    )
    .hashed("max_ns"),
    setting(
        "measure.warmup",
        "runs before the first sample of a point, or auto",
        field!(WarmupRuns {} of measure.warmup),
    )
    .hashed("warmup")
    .flag(&["--warmup", "--num-warmup", "--warmup-steps"]),
    setting(
        "measure.fresh_starts",
        "processes in which each program is started by itself, to know how long starting takes",
        &Integer {
            from: 0,
            to: MAX_FRESH_STARTS,
            // Manifests without them are the runs that they were before there was this key.
            get: |manifest| Some(manifest.measure.fresh_starts).filter(|starts| *starts > 0),
            set: |manifest, starts| manifest.measure.fresh_starts = starts,
        },
    )
    .hashed("fresh_starts"),
    setting(
        "measure.l2",
        "state of the second-level cache before a sample; auto: cold on a GPU, hot on a CPU",
        field!(OneOf {} of measure.l2),
    )
    .hashed("l2"),
    setting(
        "measure.mode",
        "how a GPU is told what to do, in one way or several",
        field!(SeveralOf {} of measure.modes),
    )
    .hashed("modes"),
    setting(
        "measure.loops",
        "iterations of whole loops, which are measured in place of iterations by themselves",
        &Counts {
            to: MAX_LOOP,
            // Manifests without them are the runs that they were before there was this key.
            get: |manifest| {
                let loops = &manifest.measure.loops;
                (!loops.is_empty()).then(|| loops.clone())
            },
            set: |manifest, loops| manifest.measure.loops = loops,
        },
    )
    .hashed("loops"),
    setting(
        "measure.hot_threshold",
        "iterations after which `auto` compiles a loop, whatever that costs; else gain and price decide",
        &Integer {
            from: 1,
            to: MAX_LOOP,
            get: |manifest| manifest.measure.auto.threshold,
            set: |manifest, iterations| manifest.measure.auto.threshold = Some(iterations),
        },
    )
    .hashed("hot_threshold"),
    setting(
        "measure.hot_memory",
        "`auto` takes kernels from the cache, and remembers its decisions there; false: each sample begins anew",
        &Boolean {
            get: |manifest| Some(false).filter(|_| !manifest.measure.auto.remembers),
            set: |manifest, remembers| manifest.measure.auto.remembers = remembers,
        },
    )
    .hashed("hot_memory"),
    setting(
        "measure.hot_parts",
        "when `auto` compiles parts that repeat in a loop by themselves: where they pay and all of it does not yet, before all of it, or never",
        &OneOf {
            // Manifests without it are the runs that they were before there was this key.
            get: |manifest| {
                let rule = manifest.measure.auto.parts;
                Some(rule).filter(|rule| *rule != PartsRule::Paid)
            },
            set: |manifest, rule| manifest.measure.auto.parts = rule,
        },
    )
    .hashed("hot_parts"),
    setting(
        "measure.verify",
        "check outputs against the oracle",
        field!(Boolean {} of measure.verify),
    )
    .hashed("verify"),
    setting(
        "limits.max_memory_gb",
        "points that are predicted to need more are not run, in units of 2^30 bytes",
        &Number {
            get: |manifest| Some(manifest.limits.max_memory_bytes? as f64 / GB),
            set: |manifest, gb| manifest.limits.max_memory_bytes = Some((gb * GB) as u64),
        },
    ),
    setting(
        "limits.prune",
        "skip points that are at least as large along these axes as one with such a status",
        optional!(PruneRule {} of limits.prune),
    ),
    setting(
        "limits.skip_adjacent_oom",
        "short for `prune` on out of memory, along every integer axis",
        &Elsewhere {
            get: |_| None,
            schema: || serde_json::json!({ "type": "boolean" }),
        },
    ),
    setting(
        "limits.compile_timeout_s",
        "longest compilation of one kernel, in seconds",
        field!(Seconds {} of limits.compile_timeout),
    ),
    setting(
        "limits.point_timeout_s",
        "longest stay in one point, in seconds",
        field!(Seconds {} of limits.point_timeout),
    ),
    setting(
        "limits.oracle_s",
        "where the f64 oracle would take longer, a smaller problem is checked, in seconds",
        field!(Seconds {} of limits.oracle_time),
    ),
    setting(
        "limits.anchor_s",
        "how often a device's first point is measured again, to see drift, in seconds",
        field!(Seconds {} of limits.anchor_interval),
    ),
    setting(
        "limits.max_points",
        "measure no more points than this, the first ones in order",
        optional!(Integer { from: 1, to: MAX_INTEGER } of limits.max_points),
    ),
    setting(
        "limits.sample_configs",
        "measure so many configurations of each case, spread over its grid from end to end",
        optional!(Integer { from: 1, to: MAX_INTEGER } of limits.sample_configs),
    )
    .flag(&["--sample-configs"]),
    setting(
        "cluster.shards",
        "tasks that share the sweep",
        optional!(Integer { from: 1, to: 10_000 } of cluster.shards),
    ),
    setting(
        "cluster.partition",
        "partition of the tasks",
        optional!(Text {} of cluster.partition),
    ),
    setting(
        "cluster.account",
        "account that pays",
        optional!(Text {} of cluster.account),
    ),
    setting(
        "cluster.time",
        "longest time of a task, as Slurm writes it",
        optional!(Text {} of cluster.time),
    ),
    setting(
        "cluster.gpus",
        "GPUs of a task, such as 1 or a100:2",
        optional!(Text {} of cluster.gpus),
    ),
    setting(
        "cluster.cpus",
        "processors of a task",
        optional!(Integer { from: 1, to: 4096 } of cluster.cpus),
    ),
    setting(
        "cluster.memory",
        "memory of a task, such as 16G",
        optional!(Text {} of cluster.memory),
    ),
    setting(
        "cluster.at_once",
        "tasks at once",
        optional!(Integer { from: 1, to: 10_000 } of cluster.at_once),
    ),
    setting(
        "cluster.arch",
        "architecture of the GPUs, such as sm_90, to compile for it on a node without one",
        optional!(Text {} of cluster.arch),
    ),
    setting(
        "cluster.compile_partition",
        "partition where kernels are compiled and reports are made",
        optional!(Text {} of cluster.compile_partition),
    ),
    setting(
        "cluster.options",
        "further options of sbatch, such as --constraint=a100",
        &Texts {
            get: |manifest| Some(manifest.cluster.options.clone()).filter(|lines| !lines.is_empty()),
            set: |manifest, lines| manifest.cluster.options = lines,
        },
    ),
    setting(
        "cluster.before",
        "lines of a shell before the command, such as `module load cuda`",
        &Texts {
            get: |manifest| Some(manifest.cluster.before.clone()).filter(|lines| !lines.is_empty()),
            set: |manifest, lines| manifest.cluster.before = lines,
        },
    ),
    setting(
        "output.dir",
        "folder of results",
        field!(Path {} of output.dir),
    )
    .flag(&["--output-dir"]),
    setting(
        "output.exports",
        "files in other formats that a run writes",
        field!(Exports {} of output.exports),
    ),
    setting(
        "report.baseline",
        "backend that ratios are relative to",
        &Elsewhere {
            get: |manifest| manifest.report.baseline.map(Data::text),
            schema: json::string,
        },
    ),
    setting(
        "report.more_baselines",
        "further backends that economics holds the loops of their problems against",
        &Elsewhere {
            get: |manifest| {
                let names = &manifest.report.more_baselines;
                (!names.is_empty()).then(|| Data::texts(names))
            },
            schema: || json::list(json::string()),
        },
    ),
    setting(
        "report.iterations",
        "iterations of the loop that economics is about",
        field!(Integer { from: 1, to: u32::MAX } of report.iterations),
    )
    .flag(&["--iterations"]),
    setting("report.plots", "which plots are made", field!(PlotNames {} of report.plots)),
    setting(
        "report.format",
        "file formats of plots",
        field!(SeveralOf {} of report.formats),
    ),
    setting(
        "null.time_ns",
        "median time of a point in nanoseconds",
        &Expression {
            get: |manifest| Some(manifest.null.as_ref()?.time_ns.clone()),
            set: |manifest, text| manifest.null_mut().time_ns = text,
        },
    )
    .hashed_in_cases()
    .needed(),
    setting(
        "null.memory_bytes",
        "peak memory of a point; else the program's own account",
        &Expression {
            get: |manifest| manifest.null.as_ref()?.memory_bytes.clone(),
            set: |manifest, text| manifest.null_mut().memory_bytes = Some(text),
        },
    )
    .hashed_in_cases(),
    setting(
        "null.noise",
        "relative standard deviation of samples",
        &Fraction {
            get: |manifest| Some(manifest.null.as_ref()?.noise),
            set: |manifest, noise| manifest.null_mut().noise = noise,
        },
    )
    .hashed("noise"),
    setting(
        "null.units",
        "how many devices to pretend",
        &Integer {
            from: 1,
            to: 64,
            get: |manifest| Some(manifest.null.as_ref()?.units),
            set: |manifest, units: u32| manifest.null_mut().units = units,
        },
    ),
    setting(
        "null.outcomes",
        "conditions with statuses, of which the first that holds decides; a `timeout` really hangs",
        &Outcomes {
            get: |manifest| Some(manifest.null.as_ref()?.outcomes.clone()),
            set: |manifest, outcomes| manifest.null_mut().outcomes = outcomes,
        },
    )
    .hashed_in_cases(),
];
