//! Other file formats, made from rows: names and columns are a contract for people's scripts. Those
//! that other programs read are here, the guides' own in [`guides`].

use std::io;
use std::path::Path;

use crate::guides::semicrf::write as semicrf;
use crate::guides::{self, About};
use sweeper_manifest::settings::EXPORTS;
use sweeper_model::files;
use sweeper_model::row::Row;

pub mod nvbench;
pub mod tuned;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod typed;

/// Writes an export of a run's rows below a folder, if any row belongs to it.
type Writer = fn(&[Row], &About<'_>, &Path) -> io::Result<()>;

/// The writer of each of [`EXPORTS`], in their order.
static WRITERS: [(&str, Writer); EXPORTS.len()] = [
    ("benchmark_full", |rows, _, to| {
        guides::write_semicrf(
            rows,
            to,
            "benchmark_full.csv",
            semicrf::write_benchmark_full,
        )
    }),
    ("heatmap_data", |rows, _, to| {
        guides::write_semicrf(rows, to, "heatmap_data.json", semicrf::write_heatmap_data)
    }),
    ("memory_breakdown", |rows, _, to| {
        guides::write_semicrf(
            rows,
            to,
            "memory_breakdown.csv",
            semicrf::write_memory_breakdown,
        )
    }),
    (guides::BENCHMARK_RESULTS, |rows, _, to| {
        guides::write_operations(rows, to)
    }),
    ("compilation_economics", guides::write_economics),
    (guides::CALIBRATION_PROFILE, guides::write_calibration),
    ("compiled_attention_benchmark", guides::write_attention),
    ("compiled_transformer_benchmark", guides::write_transformer),
    ("json", |rows, _, to| {
        json::write_records(rows, files::create(to, "records.json")?)
    }),
    ("parquet", |rows, _, to| write_parquet(rows, to)),
    ("nvbench", |rows, _, to| nvbench::write(rows, to)),
    ("dispatch", |rows, _, to| tuned::write_dispatch(rows, to)),
    ("t4", |rows, _, to| tuned::write_t4(rows, to)),
];

/// Writes the exports called `names` below `folder`; those that no row belongs to are left out, and
/// those that another version made.
///
/// # Errors
/// Those of the file system.
pub fn write(names: &[&str], rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let wanted = WRITERS.iter().filter(|(name, _)| names.contains(name));
    wanted
        .into_iter()
        .try_for_each(|(_, write)| write(rows, about, folder))
}

#[cfg(feature = "parquet")]
fn write_parquet(rows: &[Row], folder: &Path) -> io::Result<()> {
    parquet::write_records(rows, files::create(folder, "records.parquet")?)
}

/// Refuses exports that this build can't write, before anything is measured for them.
///
/// # Errors
/// Advice.
pub fn check(names: &[&str]) -> Result<(), String> {
    match names.contains(&"parquet") && cfg!(not(feature = "parquet")) {
        true => Err(NO_PARQUET.to_owned()),
        false => Ok(()),
    }
}

const NO_PARQUET: &str = "this program was built without Parquet; `cargo build --release --features \
     parquet` builds one with it, and `exports = [\"json\"]` needs none";

#[cfg(not(feature = "parquet"))]
fn write_parquet(_rows: &[Row], _folder: &Path) -> io::Result<()> {
    Err(io::Error::other(NO_PARQUET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_writer() {
        assert_eq!(WRITERS.map(|(name, _)| name), EXPORTS);
    }
}
