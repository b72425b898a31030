//! The files of a report: sections, tables and plots, and the folders that they are written to.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sweeper_program::workload::BackendInfo;
use sweeper_workloads::registry;

use super::chart::{self, Chart};
use super::frame::{Frame, MACHINE};
use super::index;
use super::page::{self, verdicts::Shown};
use super::plot::{self, Drawn, Plot};
use super::source::Source;
use super::table::{self, Layout, Table, render};
use sweeper_manifest::settings::{ITERATIONS, PlotFormat};
use sweeper_model::files;
use sweeper_model::row::entry::Entry;

/// So many sections are reported on; more are a mistake in the choice of axes.
const MOST_SECTIONS: usize = 64;

/// Tables of more rows are CSV alone: nobody prints them.
const MOST_PRINTED: usize = 200;

/// The page that a report's folder is looked through with.
pub const INDEX: &str = "index.html";

/// The page to look at, of `report --html`.
pub(super) const PAGE: &str = "report.html";

/// The user's choices for a report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend that ratios are relative to.
    pub baseline: Option<String>,
    /// Further backends that loops are held against.
    pub more_baselines: Vec<String>,
    /// Iterations of the loop in tables of economics; by default the compilation guide's.
    pub iterations: Option<u32>,
    /// Axes by which backends are compared.
    pub by: Vec<String>,
    /// File formats of plots; none for no plots.
    pub formats: Vec<PlotFormat>,
    /// Plots by name; none for all.
    pub plots: Option<Vec<String>>,
}

impl Options {
    /// What tables of these rows are made from.
    fn tables<'a>(
        &'a self,
        frame: &'a Frame<'a>,
        rows: &'a [usize],
        layout: &'a Layout,
    ) -> table::Request<'a> {
        table::Request {
            frame,
            rows,
            baseline: self.baseline.as_deref(),
            more_baselines: &self.more_baselines,
            iterations: self.iterations.unwrap_or(ITERATIONS),
            layout,
        }
    }
}

/// A reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file can't be written.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// An axis that no row has.
    #[error("no row has an axis `{axis}`; there are {known}")]
    Axis {
        /// Name of the axis.
        axis: String,
        /// Names of all axes.
        known: String,
    },
    /// A baseline that no row has.
    #[error("no row has the backend `{baseline}`; there are {known}")]
    Baseline {
        /// Name of the baseline.
        baseline: String,
        /// Names of all backends.
        known: String,
    },
}

/// A report: its text, tables and plots, ready to be written.
#[derive(Default)]
pub struct Report {
    /// The names of the manifests or files that the report is about.
    pub title: String,
    /// How many points there are, and where they were measured.
    pub lede: String,
    /// The contents of each folder; first the report's own, whose first table is the most telling.
    pub parts: Vec<Part>,
    /// Reasons to doubt the numbers.
    pub warnings: Vec<String>,
}

/// The tables and plots of one folder.
#[derive(Default)]
pub struct Part {
    /// The folder, relative to the report's.
    pub folder: PathBuf,
    /// The words that all rows of the part share; empty for the part of all rows.
    pub title: String,
    /// Tables of the part.
    pub tables: Vec<Table>,
    /// Plots of the part.
    pub plots: Vec<Plot<Chart>>,
    /// Plots that would be empty and are not written, with the reason.
    pub empty: Vec<Plot<String>>,
}

impl Report {
    /// All plots that would be empty: for each reason the places and names of the plots that it
    /// keeps from being drawn, in the order of the report.
    pub fn empty(&self) -> Vec<(&str, Vec<PathBuf>)> {
        let mut reasons: Vec<(&str, Vec<PathBuf>)> = Vec::new();
        for part in &self.parts {
            for plot in &part.empty {
                let place = part.folder.join(&plot.name);
                match reasons.iter_mut().find(|(reason, _)| *reason == plot.chart) {
                    Some((_, places)) => places.push(place),
                    None => reasons.push((&plot.chart, vec![place])),
                }
            }
        }
        reasons
    }
}

impl Part {
    /// Takes plots in; empty plots go into a list of their own.
    fn take(&mut self, plots: Vec<Plot<Drawn>>) {
        for Plot { name, chart } in plots {
            match chart {
                Ok(chart) => self.plots.push(Plot { name, chart }),
                Err(chart) => self.empty.push(Plot { name, chart }),
            }
        }
    }
}

/// Rows that are reported on together: they differ in sizes, backends and phases, and in the word
/// that their workload compares.
struct Section {
    /// Folder of the section, relative to the report's.
    folder: PathBuf,
    /// The words that all rows of the section share.
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
    let parts = parts(&frame, sources, &sections, options);
    Ok(Report {
        title: title(sources),
        lede: lede(sources),
        parts,
        warnings,
    })
}

/// The names of manifests, or of files where there is no manifest.
fn title(sources: &[Source]) -> String {
    let mut names: Vec<String> = Vec::new();
    for source in sources {
        let stem = source.origin.file_stem().unwrap_or_default();
        let name = match &source.environment {
            Some(environment) => environment.name.clone(),
            None => stem.to_string_lossy().into_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// How many points there are, and where they were measured.
fn lede(sources: &[Source]) -> String {
    let entries = || sources.iter().flat_map(|source| &source.entries);
    let failed = entries().filter(|entry| !entry.is_ok()).count();
    let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
    let points = entries().count();
    let without = match failed {
        0 => String::new(),
        failed => format!(", {failed} of them without a result"),
    };
    format!("{points} points{without}; {}", labels.join(", "))
}

/// Tables and plots of all rows, then the tables and plots of each section.
fn parts(
    frame: &Frame<'_>,
    sources: &[Source],
    sections: &[Section],
    options: &Options,
) -> Vec<Part> {
    let all = frame.all();
    let layout = Layout::of(frame, &all);
    let of_tables = options.tables(frame, &all, &layout);
    let series = series(frame);
    let of_plots = plot::Request {
        frame,
        sources,
        rows: &all,
        section: "",
        baseline: options.baseline.as_deref(),
        more_baselines: &options.more_baselines,
        layout: &layout,
        series: &series,
    };
    let has_plots = !options.formats.is_empty();
    let is_wanted = |name: &str| {
        let wanted = options.plots.as_ref();
        has_plots && wanted.is_none_or(|wanted| wanted.iter().any(|held| held == name))
    };
    let by = options.by.iter();
    let mut first = Part {
        tables: by.map(|axis| table::by_axis(&of_tables, axis)).collect(),
        ..Part::default()
    };
    first.tables.extend(table::of_report(&of_tables));
    first.take(plot::of_report(&of_plots, is_wanted));
    let mut parts = vec![first];
    for section in sections {
        let of_tables = table::Request {
            rows: &section.rows,
            layout: &section.layout,
            ..of_tables
        };
        let of_plots = plot::Request {
            rows: &section.rows,
            section: &section.title,
            layout: &section.layout,
            ..of_plots
        };
        // The only section shares the folder of all rows.
        if !section.folder.as_os_str().is_empty() {
            parts.push(Part {
                folder: section.folder.clone(),
                title: section.title.clone(),
                ..Part::default()
            });
        }
        if let Some(part) = parts.last_mut() {
            part.tables.extend(table::of_section(&of_tables));
            part.take(plot::of_section(&of_plots, is_wanted));
        }
    }
    parts
}

/// The backend of some rows that `word` names: by its own name or by an alias of its workload.
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

/// Sections by the words in which rows differ. A word that no row of a section's workload has is
/// not among the section's words; a word that only other rows of the workload have is `unstated`.
fn sections(frame: &Frame<'_>) -> Vec<Section> {
    let workloads = registry::workloads().iter();
    let shown = workloads.filter_map(|workload| workload.info().presentation);
    let mut together = vec!["backend", "phase", MACHINE];
    for shown in shown {
        together.extend(shown.compared.map(|compared| compared.name));
        together.extend(shown.sizes);
    }
    let names = frame.words(&together);
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
    let letters = name.chars().map(|letter| match letter {
        '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
        letter if letter.is_whitespace() || letter.is_control() => '-',
        letter => letter,
    });
    files::short_name(&letters.collect::<String>())
}

/// Writes a report below `folder`, and an index of it.
///
/// # Errors
/// If a file can't be written.
pub fn write(
    report: &Report,
    folder: &Path,
    formats: &[PlotFormat],
) -> Result<Vec<PathBuf>, ReportError> {
    let mut paths = Vec::new();
    let mut sections = Vec::new();
    for part in &report.parts {
        let place = folder.join(&part.folder);
        let tables = part.tables.par_iter();
        let tables: Vec<Vec<PathBuf>> = tables
            .map(|table| write_table(table, &place))
            .collect::<Result<_, _>>()?;
        let plots = part.plots.par_iter();
        let plots: Vec<(Vec<PathBuf>, index::Thumbnail)> = plots
            .map(|plot| write_plot(plot, &place, formats))
            .collect::<Result<_, _>>()?;
        paths.extend(tables.iter().flatten().cloned());
        paths.extend(plots.iter().flat_map(|(paths, _)| paths.iter().cloned()));
        sections.push(index::Section::new(part, &tables, plots));
    }
    let path = folder.join(INDEX);
    let has_page = folder.join(PAGE).is_file();
    write_file(&path, index::index(report, &sections, has_page).as_bytes())?;
    paths.insert(0, path);
    Ok(paths)
}

/// Writes the page of some sources into a folder, as `report.html`; returns the path. Only the
/// baseline and the iterations of the options count.
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
    let path = folder.join(PAGE);
    let baseline = options.baseline.as_deref();
    let tables = page_tables(&frame, options);
    let page = page::page(sources, baseline, &tables).map_err(|error| ReportError::Io {
        path: path.clone(),
        error,
    })?;
    write_file(&path, page.as_bytes())?;
    Ok(path)
}

/// The operations guide's comparison of the operations in some rows.
pub fn operations(sources: &[Source], options: &Options) -> Option<Table> {
    let frame = Frame::new(sources);
    let all = frame.all();
    let layout = Layout::of(&frame, &all);
    let is_measured = |name: &&str| frame.entries.iter().any(|entry| &*entry.backend == *name);
    table::operations(&table::Request {
        baseline: options.baseline.as_deref().filter(is_measured),
        ..options.tables(&frame, &all, &layout)
    })
}

/// The tables that the page carries. Tables that are too long for print are left to a report's
/// files.
fn page_tables(frame: &Frame<'_>, options: &Options) -> Vec<Shown> {
    let all = frame.all();
    let layout = Layout::of(frame, &all);
    let of_all = options.tables(frame, &all, &layout);
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
    // Straight into the file: tables of a million rows are hundreds of megabytes of text.
    write_with(&path, |file| render::csv(table, file))?;
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
    plot: &Plot<Chart>,
    folder: &Path,
    formats: &[PlotFormat],
) -> Result<(Vec<PathBuf>, index::Thumbnail), ReportError> {
    let picture = plot.chart.draw();
    let mut paths = Vec::new();
    for &format in formats {
        use sweeper_model::word::Word;
        let name = files::short_name(&plot.name);
        let path = folder.join(format!("{name}.{}", format.word()));
        let bytes = chart::encode(&picture, format).map_err(|error| ReportError::Io {
            path: path.clone(),
            error,
        })?;
        write_file(&path, &bytes)?;
        paths.push(path);
    }
    let thumbnail = index::Thumbnail::of(&picture).map_err(|error| ReportError::Io {
        path: folder.join(&plot.name),
        error,
    })?;
    Ok((paths, thumbnail))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    write_with(path, |file| file.write_all(bytes))
}

fn write_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), ReportError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| files::write_with(path, write))
        .map_err(|error| ReportError::Io {
            path: path.to_owned(),
            error,
        })
}
