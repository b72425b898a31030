//! Settings of a sweep apart from its cases: plain data that a manifest was validated into.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sweeper_program::workload::PublishedSampling;

use sweeper_model::hardware::DeviceKind;
use sweeper_model::mode::Launching;
use sweeper_model::status::Status;
use sweeper_model::word::Word;

/// One gigabyte as this project counts it, in guide files too: 2^30 bytes.
pub const GB: f64 = (1u64 << 30) as f64;

/// The default bound of a kernel cache, in units of [`GB`].
pub const DEFAULT_CACHE_GB: f64 = 10.0;

/// `[plan]`: how points become steps.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSettings {
    /// Bucket lists by the name of an axis or derived value; ascending, never empty.
    ///
    /// A case that has none of these names uses the buckets of its workload.
    pub buckets: Vec<(Arc<str>, Vec<u64>)>,
    /// The points that are measured, chosen by their canonical shapes.
    pub canonical: Canonical,
    /// Order of the measurements within a problem's block.
    pub order: Order,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings {
            buckets: Vec::new(),
            canonical: Canonical::Dominating,
            order: Order::Interleaved,
        }
    }
}

/// The choice of the grid's points that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canonical {
    /// All points; canonical shapes dominate their points.
    Dominating,
    /// The sampling of the published benchmark: some shapes, some points of each.
    Published {
        /// Greatest number of canonical shapes.
        max_canonical_shapes: u32,
        /// Greatest number of points of each canonical shape.
        samples_per_shape: u32,
    },
}

impl Canonical {
    /// The published sampling, as large as it was published.
    pub const PUBLISHED: Canonical = Canonical::Published {
        max_canonical_shapes: 8,
        samples_per_shape: 2,
    };

    /// The published sampling: sizes and buckets of the workload that has one.
    pub fn published_sampling() -> Option<&'static PublishedSampling> {
        super::case::registry()
            .iter()
            .find_map(|info| info.published)
    }
}

/// Order of the measurements within a problem's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Rounds over all variants, in a seeded order (A B A B).
    Interleaved,
    /// One variant after the other, in the declared order.
    Sequential,
    /// One variant after the other, in a seeded order.
    Random,
}

/// `[device]`: where programs run.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSettings {
    /// The devices in use.
    pub use_: DeviceUse,
    /// CPU threads of a measured program.
    pub threads: u32,
    /// The maker's data of the device.
    pub hardware: Hardware,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        DeviceSettings {
            use_: DeviceUse::Auto,
            threads: 1,
            hardware: Hardware::default(),
        }
    }
}

/// The nominal data of a device, for calibration profiles; missing values may be known from
/// [`sweeper_model::hardware::peaks`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hardware {
    /// Name of the device.
    pub name: Option<String>,
    /// Theoretical f32 operations a second, in 10^9.
    pub peak_gflops: Option<f64>,
    /// Theoretical bytes a second to and from memory, in 10^9.
    pub peak_bandwidth_gbps: Option<f64>,
}

/// Which devices a sweep uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// The first GPU if one answers, else the CPU.
    Auto,
    /// Every device of a kind; of the null device, the units of `[null]`.
    All(DeviceKind),
    /// Devices of a kind by index, in order, each once, at least one.
    Listed(DeviceKind, Vec<u32>),
}

/// `[cache]`: the kernel cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// Folder of the cache; by default the environment's, else the user's cache folder or scratch.
    pub dir: Option<PathBuf>,
    /// Greatest size of the cache in bytes, before eviction.
    pub size_bytes: u64,
    /// Read-only caches or bundle files that are asked before compiling.
    pub upstream: Vec<PathBuf>,
    /// Threads that compile.
    pub compile_threads: Threads,
}

impl Default for CacheSettings {
    fn default() -> Self {
        CacheSettings {
            dir: None,
            size_bytes: (DEFAULT_CACHE_GB * GB) as u64,
            upstream: Vec::new(),
            compile_threads: Threads::All,
        }
    }
}

/// A number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As many threads as this process may use.
    All,
    /// Exactly so many, at least one.
    Count(u32),
}

/// `[measure]`: how a point is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// When there are enough samples.
    pub stopping: Stopping,
    /// Warm-up before the first sample.
    pub warmup: Warmup,
    /// Number of processes in which each program is started, to measure the cost of starts.
    pub fresh_starts: u32,
    /// State of the second-level cache at the start of a sample.
    pub l2: L2,
    /// The ways of launching work on a GPU, at least one: each point is measured in all of them.
    pub modes: Vec<Launching>,
    /// Iterations of whole loops that are measured in their place, each once, ascending.
    pub loops: Vec<u32>,
    /// How loops decide that compile themselves.
    pub auto: AutoRules,
    /// Check outputs against the oracle.
    pub verify: bool,
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            stopping: Stopping::Adaptive {
                min_samples: 10,
                max_samples: 1000,
                max_rel_ci: 0.01,
                max_time: Duration::from_secs(10),
            },
            warmup: Warmup::Auto,
            fresh_starts: 0,
            l2: L2::Auto,
            modes: vec![Launching::Launch],
            loops: Vec::new(),
            auto: AutoRules::default(),
            verify: true,
        }
    }
}

/// How the backend `auto` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRules {
    /// Compile a loop after so many iterations, whatever it costs; none to weigh gain and price.
    pub threshold: Option<u32>,
    /// Whether kernels of the cache and decisions on earlier loops are used.
    pub remembers: bool,
    /// When parts that repeat in a loop are compiled by themselves.
    pub parts: PartsRule,
}

/// When parts that repeat in a loop's iteration are compiled by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartsRule {
    /// Where the whole iteration does not pay yet, and they do.
    #[default]
    Paid,
    /// Before the whole iteration, whatever they cost.
    First,
    /// Never.
    Never,
}

impl Default for AutoRules {
    fn default() -> Self {
        AutoRules {
            threshold: None,
            remembers: true,
            parts: PartsRule::default(),
        }
    }
}

/// When a point has enough samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stopping {
    /// After so many samples.
    Repeats(u32),
    /// When the interval of the median is narrow enough.
    Adaptive {
        /// Never fewer samples.
        min_samples: u32,
        /// Never more samples.
        max_samples: u32,
        /// Width of the 95 % interval of the median over the median at which to stop.
        max_rel_ci: f64,
        /// Never longer than this.
        max_time: Duration,
    },
}

/// Warm-up before the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Warmup {
    /// Until a time is over and a test finds a steady state.
    Auto,
    /// So many runs.
    Runs(u32),
}

/// State of the second-level cache at the start of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2 {
    /// Cold on a GPU, hot on a CPU.
    Auto,
    /// Flushed before each sample by writes.
    Cold,
    /// Flushed, and its dirty lines written back, before each sample.
    Clean,
    /// As the previous sample left it.
    Hot,
}

/// `[limits]`: the resources that a sweep may use; no part of any identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Points that are predicted to need more memory are not run.
    pub max_memory_bytes: Option<u64>,
    /// The larger points to leave out after a failed one.
    pub prune: Option<Prune>,
    /// Longest compilation of one kernel.
    pub compile_timeout: Duration,
    /// Longest stay in one point.
    pub point_timeout: Duration,
    /// Longest evaluation of the oracle for one problem; where it would take longer, the kernels
    /// are checked on a reduced problem.
    pub oracle_time: Duration,
    /// Time until a device's anchor point is measured again, to detect drift.
    pub anchor_interval: Duration,
    /// Measure no more points than this, the first ones in order.
    pub max_points: Option<u64>,
    /// Greatest number of configurations of a case, spread over its grid; all if absent.
    pub sample_configs: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_memory_bytes: None,
            prune: None,
            compile_timeout: Duration::from_secs(120),
            point_timeout: Duration::from_secs(300),
            oracle_time: Duration::from_secs(30),
            anchor_interval: Duration::from_secs(60),
            max_points: None,
            sample_configs: None,
        }
    }
}

/// Skips points that are at least as large as a failed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Statuses of the failed point.
    pub on: Vec<Status>,
    /// Axes on which "larger" is judged; on all others the points are equal.
    pub along: Vec<Arc<str>>,
}

/// `[cluster]`: requests of `sweeper submit` to a scheduler, in the scheduler's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Tasks that share the sweep.
    pub shards: Option<u32>,
    /// Part of the cluster.
    pub partition: Option<String>,
    /// Who pays.
    pub account: Option<String>,
    /// Longest time of one task.
    pub time: Option<String>,
    /// GPUs of one task, such as `1` or `a100:2`.
    pub gpus: Option<String>,
    /// Processors of one task.
    pub cpus: Option<u32>,
    /// Memory of one task, such as `16G`.
    pub memory: Option<String>,
    /// Greatest number of tasks at once.
    pub at_once: Option<u32>,
    /// The GPUs' architecture, such as `sm_90`, so that kernels are compiled without one.
    pub arch: Option<String>,
    /// Part of the cluster where kernels are compiled and reports are made.
    pub compile_partition: Option<String>,
    /// Further options of `sbatch`.
    pub options: Vec<String>,
    /// Lines of a shell before the command.
    pub before: Vec<String>,
}

/// `[output]`: where results go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Folder of the runs' folders.
    pub dir: PathBuf,
    /// Guides' file formats to write, of [`EXPORTS`].
    pub exports: Vec<&'static str>,
}

impl Default for Output {
    fn default() -> Self {
        Output {
            dir: "results".into(),
            exports: Vec::new(),
        }
    }
}

/// Other file formats, by the names that `output.exports` takes: first the guides' formats, then
/// formats of other programs.
pub const EXPORTS: &[&str] = &[
    "benchmark_full",
    "heatmap_data",
    "memory_breakdown",
    "benchmark_results",
    "compilation_economics",
    "calibration_profile",
    "compiled_attention_benchmark",
    "compiled_transformer_benchmark",
    "json",
    "parquet",
    "nvbench",
    "dispatch",
    "t4",
];

/// Default iterations of the loop that the tables of economics are about: the compilation guide's.
pub const ITERATIONS: u32 = 100;

/// `[report]`: the reports that are made of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Backend that ratios are relative to.
    pub baseline: Option<&'static str>,
    /// Further backends that loops are held against.
    pub more_baselines: Vec<String>,
    /// Iterations of the loop in tables of economics, at least one.
    pub iterations: u32,
    /// The plots of a report.
    pub plots: Plots,
    /// File formats of plots, at least one.
    pub formats: Vec<PlotFormat>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            baseline: None,
            more_baselines: Vec::new(),
            iterations: ITERATIONS,
            plots: Plots::All,
            formats: vec![PlotFormat::Pdf],
        }
    }
}

/// The choice of a report's plots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plots {
    /// All that the results allow.
    All,
    /// These, of [`super::plots::PLOTS`].
    Names(Vec<&'static str>),
}

/// File format of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotFormat {
    /// Portable Document Format.
    Pdf,
    /// Scalable Vector Graphics.
    Svg,
    /// Portable Network Graphics.
    Png,
}

impl Word for Order {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("interleaved", Order::Interleaved),
        ("sequential", Order::Sequential),
        ("random", Order::Random),
    ];
}

impl Word for Canonical {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("dominating", Canonical::Dominating),
        ("published", Canonical::PUBLISHED),
    ];
}

impl Word for L2 {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", L2::Auto),
        ("cold", L2::Cold),
        ("clean", L2::Clean),
        ("hot", L2::Hot),
    ];
}

impl Word for PartsRule {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("paid", PartsRule::Paid),
        ("first", PartsRule::First),
        ("never", PartsRule::Never),
    ];
}

impl Word for PlotFormat {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("pdf", PlotFormat::Pdf),
        ("svg", PlotFormat::Svg),
        ("png", PlotFormat::Png),
    ];
}

/// `[null]`, its expressions as text: each case has them ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct NullDevice {
    /// Median time in nanoseconds.
    pub time_ns: Arc<str>,
    /// Peak memory in bytes.
    pub memory_bytes: Option<Arc<str>>,
    /// Relative standard deviation of samples.
    pub noise: f64,
    /// Number of simulated devices; no part of any identity but those devices' own.
    pub units: u32,
    /// Conditions with the status they lead to; the first that holds decides.
    pub outcomes: Vec<(Arc<str>, Status)>,
}

impl Default for NullDevice {
    fn default() -> Self {
        NullDevice {
            time_ns: "".into(),
            memory_bytes: None,
            noise: 0.0,
            units: 1,
            outcomes: Vec::new(),
        }
    }
}
