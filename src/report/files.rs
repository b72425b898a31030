//! The files of a report: sections, tables, plots, and where they go.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sweeper_kernels::registry;
use sweeper_kernels::workload::BackendInfo;

use super::chart;
use super::entry::Entry;
use super::frame::{Frame, MACHINE};
use super::page::{self, verdicts::Shown};
use super::plot::{self, Plot};
use super::source::Source;
use super::table::{self, Layout, Table, render};
use crate::files;
use crate::manifest::settings::{ITERATIONS, PlotFormat};

/// So many sections are reported on; more are a mistake in the choice of axes.
const MOST_SECTIONS: usize = 64;

/// Tables of more rows are CSV alone: nobody prints them.
const MOST_PRINTED: usize = 200;

/// What a report is to have.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend that ratios are relative to.
    pub baseline: Option<String>,
    /// Iterations of the loop that economics is about; guide 003's where nobody says.
    pub iterations: Option<u32>,
    /// Axes by which backends are compared.
    pub by: Vec<String>,
    /// File formats of plots; none for no plots.
    pub formats: Vec<PlotFormat>,
    /// Plots by name; none for all.
    pub plots: Option<Vec<String>>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file can't be written.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// An axis that no row has.
    #[error("no row has an axis `{axis}`; there are {known}")]
    Axis {
        /// The name.
        axis: String,
        /// All names.
        known: String,
    },
    /// A baseline that no row has.
    #[error("no row has the backend `{baseline}`; there are {known}")]
    Baseline {
        /// The name.
        baseline: String,
        /// All names.
        known: String,
    },
}

/// A report: what it is made of, ready to be written.
pub struct Report {
    /// Tables with their folder, relative to the report's; the first is the most telling.
    pub tables: Vec<(PathBuf, Table)>,
    /// Plots with their folder.
    pub plots: Vec<(PathBuf, Plot)>,
    /// What to know before believing it.
    pub warnings: Vec<String>,
}

/// Rows that are reported on together: they differ in sizes, backends and phases, and in the words that
/// guide 000's tables have columns for.
struct Section {
    /// Relative to the report's folder.
    folder: PathBuf,
    /// What all of its rows have in common.
    title: String,
    rows: Vec<usize>,
    layout: Layout,
}

/// Makes a report of some sources.
///
/// # Errors
/// If an axis or the baseline is not in any row.
pub fn make(sources: &[Source], options: &Options) -> Result<Report, ReportError> {
    let frame = Frame::new(sources);
    refuse_unknown(&frame, options)?;
    let mut warnings: Vec<String> = Vec::new();
    for source in sources {
        let label = &source.label;
        warnings.extend(
            source
                .warnings
                .iter()
                .map(|text| format!("{label}: {text}")),
        );
    }
    let mut sections = sections(&frame);
    if sections.len() > MOST_SECTIONS {
        warnings.push(format!(
            "the first {MOST_SECTIONS} of {} combinations of words are reported on; the tables of all \
             rows have them all",
            sections.len()
        ));
        sections.truncate(MOST_SECTIONS);
    }
    let all = frame.all();
    let layout = Layout::of(&frame, &all);
    let request = table::Request {
        frame: &frame,
        rows: &all,
        baseline: options.baseline.as_deref(),
        iterations: options.iterations.unwrap_or(ITERATIONS),
        layout: &layout,
    };
    let root = PathBuf::new();
    let by = options.by.iter().map(|axis| table::by_axis(&request, axis));
    let mut tables: Vec<(PathBuf, Table)> = by
        .chain(table::of_report(&request))
        .map(|table| (root.clone(), table))
        .collect();
    let series = series(&frame);
    let is_wanted = |name: &str| {
        let wanted = options.plots.as_ref();
        wanted.is_none_or(|wanted| wanted.iter().any(|held| held == name))
    };
    let of_all = plot::Request {
        frame: &frame,
        sources,
        rows: &all,
        section: "",
        baseline: options.baseline.as_deref(),
        layout: &layout,
        series: &series,
    };
    let mut plots = Vec::new();
    if !options.formats.is_empty() {
        let made = plot::of_report(&of_all, is_wanted);
        plots.extend(made.into_iter().map(|plot| (root.clone(), plot)));
    }
    for section in &sections {
        let request = table::Request {
            rows: &section.rows,
            layout: &section.layout,
            ..request
        };
        let of_section = table::of_section(&request);
        tables.extend(
            of_section
                .into_iter()
                .map(|table| (section.folder.clone(), table)),
        );
        if options.formats.is_empty() {
            continue;
        }
        let request = plot::Request {
            rows: &section.rows,
            section: &section.title,
            layout: &section.layout,
            ..of_all
        };
        let made = plot::of_section(&request, is_wanted);
        plots.extend(made.into_iter().map(|plot| (section.folder.clone(), plot)));
    }
    Ok(Report {
        tables,
        plots,
        warnings,
    })
}

/// The backend of some rows that `word` names: by its own name, or by another name of it that its workload has.
pub fn backend_of(word: &str, sources: &[Source]) -> Option<String> {
    let entries = || sources.iter().flat_map(|source| &source.entries);
    if entries().any(|entry| &*entry.backend == word) {
        return Some(word.to_owned());
    }
    let named = |entry: &Entry| {
        let info = registry::workload(&entry.workload)?.info();
        let mut backends = info.backends.iter();
        let is_it = |backend: &&BackendInfo| {
            backend.name == &*entry.backend && backend.aliases.contains(&word)
        };
        backends.find(is_it).map(|backend| backend.name.to_owned())
    };
    entries().find_map(named)
}

/// Names of lines, each once, in the order of their colours.
fn series(frame: &Frame<'_>) -> Vec<String> {
    let mut series: Vec<String> = frame
        .all()
        .into_iter()
        .map(|row| frame.series(row))
        .collect();
    series.sort();
    series.dedup();
    series
}

fn refuse_unknown(frame: &Frame<'_>, options: &Options) -> Result<(), ReportError> {
    let known = frame.axes();
    for axis in &options.by {
        if !known.contains(axis) || axis == "backend" {
            return Err(ReportError::Axis {
                axis: axis.clone(),
                known: known
                    .into_iter()
                    .filter(|name| name != "backend")
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
    }
    if let Some(baseline) = &options.baseline {
        let mut backends: Vec<&str> = frame
            .entries
            .iter()
            .map(|entry| entry.backend.as_ref())
            .collect();
        backends.sort_unstable();
        backends.dedup();
        if !backends.contains(&baseline.as_str()) {
            return Err(ReportError::Baseline {
                baseline: baseline.clone(),
                known: backends.join(", "),
            });
        }
    }
    Ok(())
}

/// Sections by the words in which rows differ. A word that no row of a section's workload has is not
/// among its own; one that others of that workload have is `unstated`.
fn sections(frame: &Frame<'_>) -> Vec<Section> {
    let names = frame.words(&["backend", "phase", MACHINE, "semiring"]);
    let groups = frame.groups(&frame.all(), &names);
    let is_alone = groups.len() == 1;
    let workload = |row: usize| frame.entries[row].workload.as_ref();
    let stated: BTreeSet<(&str, &str)> = groups
        .values()
        .flat_map(|rows| names.iter().map(|&name| (rows[0], name)))
        .filter(|&(row, name)| frame.value(row, name).is_some())
        .map(|(row, name)| (workload(row), name))
        .collect();
    groups
        .into_values()
        .map(|rows| {
            let layout = Layout::of(frame, &rows);
            let own = names.iter().copied();
            let own = own.filter(|&name| stated.contains(&(workload(rows[0]), name)));
            let words: Vec<String> = own
                .map(|name| match frame.value(rows[0], name) {
                    Some(value) => format!("{name}={value}"),
                    None => format!("{name}=unstated"),
                })
                .collect();
            let folder = words.iter().map(|word| file_name(word)).collect();
            let title: Vec<String> = words
                .iter()
                .map(|word| word.replacen('=', " = ", 1))
                .collect();
            Section {
                folder: if is_alone { PathBuf::new() } else { folder },
                title: title.join(", "),
                rows,
                layout,
            }
        })
        .collect()
}

/// A name that every file system takes.
pub(super) fn file_name(name: &str) -> String {
    name.chars()
        .map(|letter| match letter {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            letter if letter.is_whitespace() || letter.is_control() => '-',
            letter => letter,
        })
        .collect()
}

/// Writes a report below `folder`.
///
/// # Errors
/// Of the first file that can't be written.
pub fn write(
    report: &Report,
    folder: &Path,
    formats: &[PlotFormat],
) -> Result<Vec<PathBuf>, ReportError> {
    let tables: Vec<Vec<PathBuf>> = report
        .tables
        .par_iter()
        .map(|(place, table)| write_table(table, &folder.join(place)))
        .collect::<Result<_, _>>()?;
    let plots: Vec<Vec<PathBuf>> = report
        .plots
        .par_iter()
        .map(|(place, plot)| write_plot(plot, &folder.join(place), formats))
        .collect::<Result<_, _>>()?;
    Ok(tables.into_iter().chain(plots).flatten().collect())
}

/// Writes the page of some sources into a folder, as `report.html`; says where. Of the options it needs the
/// baseline and the iterations.
///
/// # Errors
/// If the baseline is not in any row, or the file can't be written.
pub fn write_page(
    sources: &[Source],
    options: &Options,
    folder: &Path,
) -> Result<PathBuf, ReportError> {
    let frame = Frame::new(sources);
    refuse_unknown(&frame, options)?;
    let path = folder.join("report.html");
    let baseline = options.baseline.as_deref();
    let tables = page_tables(&frame, options);
    let page = page::page(sources, baseline, &tables).map_err(|error| ReportError::Io {
        path: path.clone(),
        error,
    })?;
    write_file(&path, page.as_bytes())?;
    Ok(path)
}

/// Guide 001's comparison of the operations in some rows.
pub fn operations(sources: &[Source], options: &Options) -> Option<Table> {
    let frame = Frame::new(sources);
    let all = frame.all();
    let layout = Layout::of(&frame, &all);
    let is_measured = |name: &&str| frame.entries.iter().any(|entry| &*entry.backend == *name);
    table::operations(&table::Request {
        frame: &frame,
        rows: &all,
        baseline: options.baseline.as_deref().filter(is_measured),
        iterations: options.iterations.unwrap_or(ITERATIONS),
        layout: &layout,
    })
}

/// The tables that the page carries. Those that nobody would print are left to the files of a report.
fn page_tables(frame: &Frame<'_>, options: &Options) -> Vec<Shown> {
    let all = frame.all();
    let layout = Layout::of(frame, &all);
    let of_all = table::Request {
        frame,
        rows: &all,
        baseline: options.baseline.as_deref(),
        iterations: options.iterations.unwrap_or(ITERATIONS),
        layout: &layout,
    };
    let verdicts = table::verdicts(&of_all).into_iter();
    let mut shown: Vec<Shown> = verdicts
        .map(|table| Shown {
            section: String::new(),
            table,
        })
        .collect();
    if frame.dimension("backend").is_some() {
        for section in sections(frame).into_iter().take(MOST_SECTIONS) {
            let request = table::Request {
                rows: &section.rows,
                layout: &section.layout,
                ..of_all
            };
            let section = section.title.clone();
            let found = table::comparison(&request);
            shown.extend(found.map(|table| Shown { section, table }));
        }
    }
    shown.retain(|held| (1..=MOST_PRINTED).contains(&held.table.rows.len()));
    shown
}

fn write_table(table: &Table, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let name = file_name(&table.name);
    let path = folder.join(format!("{name}.csv"));
    let bytes = render::csv(table).map_err(|error| ReportError::Io {
        path: path.clone(),
        error,
    })?;
    write_file(&path, &bytes)?;
    let mut paths = vec![path];
    if table.rows.len() <= MOST_PRINTED {
        for (extension, text) in [
            ("md", render::markdown(table)),
            ("tex", render::latex(table)),
        ] {
            let path = folder.join(format!("{name}.{extension}"));
            write_file(&path, text.as_bytes())?;
            paths.push(path);
        }
    }
    Ok(paths)
}

fn write_plot(
    plot: &Plot,
    folder: &Path,
    formats: &[PlotFormat],
) -> Result<Vec<PathBuf>, ReportError> {
    let picture = plot.chart.draw();
    let mut paths = Vec::new();
    for &format in formats {
        use crate::manifest::settings::Word;
        let path = folder.join(format!("{}.{}", plot.name, format.word()));
        let bytes = chart::encode(&picture, format).map_err(|error| ReportError::Io {
            path: path.clone(),
            error,
        })?;
        write_file(&path, &bytes)?;
        paths.push(path);
    }
    Ok(paths)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| files::write(path, bytes))
        .map_err(|error| ReportError::Io {
            path: path.to_owned(),
            error,
        })
}
