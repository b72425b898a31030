//! Other file formats, made from rows: names and columns are a contract for people's scripts. Those
//! that other programs read are here, the guides' own in [`guides`].

use std::io;
use std::path::Path;

use crate::guides::{self, About};
use sweeper_model::files;
use sweeper_model::row::Row;

pub mod nvbench;
pub mod tuned;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod typed;

/// Writes the exports called `names` below `folder`; those that no row belongs to are left out.
///
/// # Errors
/// Those of the file system.
pub fn write(names: &[&str], rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    for name in names {
        match *name {
            "json" => json::write_records(rows, files::create(folder, "records.json")?)?,
            "nvbench" => nvbench::write(rows, folder)?,
            "dispatch" => tuned::write_dispatch(rows, folder)?,
            "t4" => tuned::write_t4(rows, folder)?,
            "parquet" => write_parquet(rows, folder)?,
            _ => {}
        }
    }
    guides::write(names, rows, about, folder)
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
