//! Columns of times: statistics of the samples, how they were taken, and the costs of starting.

use super::Field;
use super::column::{Column, Group, count, float, int, number, put, with_another};
use crate::row::entry::{Again, Entry};
use crate::row::lines::TableError;
use crate::row::measured::Measured;
use crate::row::outcome::{FirstRuns, Starting};

const SAMPLES: &str = "samples";
const SAMPLING: &str = "sampling";
const STARTS: &str = "starts in processes of their own";

/// A statistic that a file may lack.
macro_rules! statistic {
    ($name:literal, $unit:literal, $field:ident, $meaning:literal) => {
        number($name, $meaning, SAMPLES)
            .unit($unit)
            .group(Group::Statistic)
            .of_times(
                |times| times.$field.and_then(float),
                |times, field| put(&mut times.$field, field.amount()),
            )
    };
}

/// A time of the second measurement.
macro_rules! again {
    ($name:literal, $field:ident, $meaning:literal, $read:expr) => {
        number($name, $meaning, SAMPLES)
            .unit("ns")
            .group(Group::Statistic)
            .of_entry(|entry| float(entry.again.as_ref()?.$field), $read)
    };
}

/// Statistics of the samples.
pub(super) const STATISTICS: &[Column] = &[
    count("n", "number of samples", SAMPLES)
        .group(Group::Statistic)
        .of_times(
            |times| int(times.n?),
            |times, field| put(&mut times.n, field.count::<u32>()),
        ),
    number("median_ns", "median time of one iteration", SAMPLES)
        .unit("ns")
        .group(Group::Result)
        .of_times(
            |times| float(times.median),
            |times, field| put(&mut times.median, field.amount()),
        ),
    statistic!(
        "median_low_ns",
        "ns",
        ci_low,
        "lower end of the median's 95 % interval, from order statistics"
    ),
    statistic!(
        "median_high_ns",
        "ns",
        ci_high,
        "upper end of the median's 95 % interval, from order statistics"
    ),
    statistic!(
        "median_coverage",
        "",
        coverage,
        "probability that the interval covers the median: under 0.95 of fewer than six samples"
    ),
    statistic!("mean_ns", "ns", mean, "arithmetic mean"),
    statistic!("std_ns", "ns", std, "standard deviation, with n - 1"),
    statistic!("min_ns", "ns", min, "least sample"),
    statistic!("p5_ns", "ns", p5, "5 % quantile (type 7)"),
    statistic!("q1_ns", "ns", q1, "25 % quantile"),
    statistic!("q3_ns", "ns", q3, "75 % quantile"),
    statistic!("p95_ns", "ns", p95, "95 % quantile"),
    statistic!("max_ns", "ns", max, "greatest sample"),
    statistic!(
        "mad_ns",
        "ns",
        mad,
        "median absolute deviation from the median, not scaled"
    ),
    count(
        "again_n",
        "samples of the second measurement, which the best configuration of a tuned backend gets, \
         and those that can't be told from it (empty of all others)",
        SAMPLES,
    )
    .group(Group::Statistic)
    .of_entry(|entry| int(entry.again.as_ref()?.n), with_another),
    again!(
        "again_median_ns",
        median_ns,
        "median of the second measurement",
        read_again
    ),
    again!(
        "again_low_ns",
        low_ns,
        "lower end of the interval of `again_median_ns`",
        with_another
    ),
    again!(
        "again_high_ns",
        high_ns,
        "upper end of the interval of `again_median_ns`",
        with_another
    ),
];

/// How samples were taken, and the costs of starting.
pub(super) const STARTING: &[Column] = &[
    count("iterations", "iterations in one sample", SAMPLING)
        .group(Group::Program)
        .of_measurement(
            |found| int(found.iterations),
            |found, field| put(&mut found.iterations, field.count::<u32>()),
        ),
    count(
        "warmup_samples",
        "samples before the first that counts",
        SAMPLING,
    )
    .group(Group::Program)
    .of_measurement(
        |found| int(found.warmup_samples),
        |found, field| put(&mut found.warmup_samples, field.count::<u32>()),
    ),
    number(
        "launch_floor_ns",
        "time of an iteration's calls alone: of as many calls of a function that does nothing, made \
         and timed like them (empty where times hold no calls, as on a GPU, and of loops)",
        SAMPLING,
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| float(found.launch_floor_ns?),
        |found, field| put(&mut found.launch_floor_ns, field.amount()),
    ),
    number(
        "waited_share",
        "part of the samples' time for which one of the program's threads stood ready and had no \
         processor (empty where the system does not say, as of programs and on a GPU)",
        SAMPLING,
    )
    .group(Group::Program)
    .of_measurement(
        |found| float(found.waited_share?),
        |found, field| put(&mut found.waited_share, field.amount()),
    ),
    count(
        "referee_ns",
        "time of a call of an empty function by the referee, which is subtracted from times (empty \
         where the program is trusted)",
        "referee",
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| int(found.referee_ns?),
        |found, field| put(&mut found.referee_ns, field.count::<u64>()),
    ),
    count(
        "referee_spread_ns",
        "distance of the quartiles of such calls",
        "referee",
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| int(found.referee_spread_ns?),
        |found, field| put(&mut found.referee_spread_ns, field.count::<u64>()),
    ),
    number(
        "library_share",
        "share of the time of a function's kernels on a GPU that those of libraries take, by a call \
         under a profiler (empty where that was not asked for, or nobody can tell)",
        "CUPTI",
    )
    .group(Group::Program)
    .of_measurement(
        |found| float(found.library_share?),
        |found, field| put(&mut found.library_share, field.amount()),
    ),
    count(
        "first_runs",
        "first iterations, each timed by itself",
        SAMPLING,
    )
    .group(Group::Program)
    .of_measurement(|found| int(found.first_runs?.count), with_another),
    number(
        "first_runs_ns",
        "time of the first iterations together",
        SAMPLING,
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(|found| float(found.first_runs?.elapsed_ns), read_first_runs),
    count(
        "prepare_ns",
        "time to make the program ready from compiled kernels, as the first of its process \
         (empty on the null device)",
        "device",
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| int(found.prepare_ns?),
        |found, field| put(&mut found.prepare_ns, field.count::<u64>()),
    ),
    count(
        "import_ns",
        "of prepare_ns, the time of loading libraries: NVIDIA's that a program calls, or a function \
         in Python and the library of its arrays (empty where there are none)",
        "device",
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| int(found.import_ns?),
        |found, field| put(&mut found.import_ns, field.count::<u64>()),
    ),
    count(
        "first_call_ns",
        "of prepare_ns, the first call of a function in Python, in which it compiles (empty for \
         other backends)",
        "interpreter",
    )
    .unit("ns")
    .group(Group::Program)
    .of_measurement(
        |found| int(found.first_call_ns?),
        |found, field| put(&mut found.first_call_ns, field.count::<u64>()),
    ),
    count(
        "fresh_starts",
        "fresh starts of the program, each in a process of its own, as \
         `measure.fresh_starts` asks (empty where there were none)",
        STARTS,
    )
    .group(Group::Program)
    .of_entry(|entry| int(entry.fresh_starting.as_ref()?.processes), with_another),
    count("start_runs", "first iterations in a fresh start", STARTS)
        .group(Group::Program)
        .of_entry(|entry| int(entry.fresh_starting.as_ref()?.iterations), with_another),
    number(
        "start_ns",
        "median time of a fresh start: making the program ready, and its first iterations",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.fresh_starting.as_ref()?.median_ns),
        read_fresh_starting,
    ),
    number(
        "start_low_ns",
        "lower end of the interval of `start_ns` (empty of one start)",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.fresh_starting.as_ref()?.interval_ns?.0),
        with_another,
    ),
    number(
        "start_high_ns",
        "upper end of the interval of `start_ns` (empty of one start)",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.fresh_starting.as_ref()?.interval_ns?.1),
        with_another,
    ),
    number(
        "cold_start_ns",
        "as start_ns, of a function in Python whose libraries have nothing compiled in their caches \
         (empty for other backends)",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.cold_starting.as_ref()?.median_ns),
        read_cold_starting,
    ),
    number(
        "cold_start_low_ns",
        "lower end of the interval of `cold_start_ns` (empty of one start)",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.cold_starting.as_ref()?.interval_ns?.0),
        with_another,
    ),
    number(
        "cold_start_high_ns",
        "upper end of the interval of `cold_start_ns` (empty of one start)",
        STARTS,
    )
    .unit("ns")
    .group(Group::Program)
    .of_entry(
        |entry| float(entry.cold_starting.as_ref()?.interval_ns?.1),
        with_another,
    ),
];

fn read_again(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    let n = field.sibling("again_n").count()?;
    let median_ns = field.amount()?;
    let low_ns = field.sibling("again_low_ns").amount()?;
    let high_ns = field.sibling("again_high_ns").amount()?;
    if let (Some(n @ 1..), Some(median_ns), Some(low_ns), Some(high_ns)) =
        (n, median_ns, low_ns, high_ns)
    {
        entry.again = Some(Box::new(Again {
            n,
            median_ns,
            low_ns,
            high_ns,
        }));
    }
    Ok(())
}

fn read_first_runs(found: &mut Measured, field: &mut Field<'_>) -> Result<(), TableError> {
    let count = field.sibling("first_runs").count()?;
    let first_runs = count.zip(field.amount()?);
    found.first_runs = first_runs.map(|(count, elapsed_ns)| FirstRuns { count, elapsed_ns });
    Ok(())
}

fn read_fresh_starting(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    entry.fresh_starting = starting(entry, field, ["start_low_ns", "start_high_ns"])?;
    Ok(())
}

fn read_cold_starting(entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
    entry.cold_starting = starting(entry, field, ["cold_start_low_ns", "cold_start_high_ns"])?;
    Ok(())
}

/// The costs of starts whose median is this field, and whose interval has these ends.
fn starting(
    entry: &Entry,
    field: &mut Field<'_>,
    [low, high]: [&'static str; 2],
) -> Result<Option<Box<Starting>>, TableError> {
    if entry.measurement.is_none() {
        return Ok(None);
    }
    let processes: Option<u32> = field.sibling("fresh_starts").count()?;
    let iterations = field.sibling("start_runs").count()?;
    let median_ns = field.amount()?;
    let low_ns = field.sibling(low).amount()?;
    let high_ns = field.sibling(high).amount()?;
    let processes = processes.filter(|processes| *processes > 0);
    let known = processes.zip(iterations).zip(median_ns);
    let starting = known.map(|((processes, iterations), median_ns)| Starting {
        processes,
        iterations,
        median_ns,
        interval_ns: low_ns.zip(high_ns),
    });
    Ok(starting.map(Box::new))
}
