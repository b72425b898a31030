//! `sweeper report`: tables and plots of recorded runs and of bare CSV files.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::exit::Exit;
use super::merge;
use super::referee;
use super::screen::Screen;
use crate::run::Ended;
use sweeper_manifest::Manifest;
use sweeper_manifest::settings::PlotFormat;
use sweeper_model::word::Word;
use sweeper_results::record::history;
use sweeper_results::report::answer::Answer;
use sweeper_results::report::files::{self, INDEX, Options, Report, ReportError};
use sweeper_results::report::source::{self, Kind, Source};
use sweeper_results::report::table::{self, Table, render};

/// Rows of a table that go to the screen.
const MOST_ROWS: usize = 40;

/// Arguments of `report`.
#[derive(Args)]
pub struct ReportArgs {
    /// Runs by the first digits of their ids, their folders, or CSV files; several are compared
    /// [default: the run that was last written]
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Backend that ratios are relative to
    #[arg(long, value_name = "BACKEND")]
    baseline: Option<String>,
    /// Iterations of the loop that economics is about [default: the manifest's, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Compare backends by the values of an axis or parameter
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    by: Vec<String>,
    /// File formats of plots
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    format: Vec<Format>,
    /// Make tables only
    #[arg(long)]
    no_plots: bool,
    /// Write a page to open in a browser, report.html, instead of tables and plots
    #[arg(long, conflicts_with_all = ["by", "format", "no_plots"])]
    html: bool,
    /// Where the files go [default: `report` in the run's folder, or beside the file]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Folder of the runs' folders, where runs are named by digits
    #[arg(long, value_name = "DIR", default_value = "results")]
    runs_dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Pdf,
    Svg,
    Png,
}

impl From<Format> for PlotFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Pdf => PlotFormat::Pdf,
            Format::Svg => PlotFormat::Svg,
            Format::Png => PlotFormat::Png,
        }
    }
}

/// Makes a report.
pub fn report(args: &ReportArgs, screen: &Screen) -> Exit {
    let mut runs = args.runs.clone();
    if runs.is_empty() {
        let Some(last) = history::last_written() else {
            screen.error("no run is known here: name one, or its folder");
            return Exit::Usage;
        };
        screen.note(&format!("the last run: {}", last.display()));
        runs.push(last.to_string_lossy().into_owned());
    }
    if let [file] = &runs[..]
        && file.ends_with(referee::table::ENDING)
    {
        return report_candidates(Path::new(file), args, screen);
    }
    for name in &runs {
        merge::tables_on_demand(name, &args.runs_dir, screen);
    }
    let sources = match source::open_all(&runs, &args.runs_dir) {
        Ok(sources) => sources,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Files;
        }
    };
    let settings = sources.first().and_then(Settings::of).unwrap_or_default();
    let options = options(args, &sources, settings, screen);
    if args.html {
        return write_page(args, &sources, &options, screen);
    }
    let report = match files::make(&sources, &options) {
        Ok(report) => report,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Usage;
        }
    };
    let folder = folder(args, &sources);
    let paths = match files::write(&report, &folder, &options.formats) {
        Ok(paths) => paths,
        Err(error) => {
            screen.error(&format!("{error}; write elsewhere with --output-dir"));
            return Exit::Files;
        }
    };
    for warning in &report.warnings {
        screen.warning(warning);
    }
    show(&report, &folder, &paths, &options, screen);
    Exit::Fine
}

/// Writes and shows the tables of verdicts on candidates.
fn report_candidates(path: &Path, args: &ReportArgs, screen: &Screen) -> Exit {
    let folder = args.output_dir.clone();
    let folder = folder.unwrap_or_else(|| path.with_extension("report"));
    let tables = referee::table::tables(path);
    let written = tables.and_then(|tables| {
        let paths = referee::table::write(&tables, &folder)?;
        Ok((tables, paths))
    });
    match written {
        Ok((_, paths)) if screen.json => screen.json(&json!({ "files": paths })),
        Ok((tables, _)) => {
            for table in tables.iter().filter(|table| !table.rows.is_empty()) {
                screen.out(&terminal(table, screen));
            }
            screen.line(&format!("tables: {}", folder.display()));
        }
        Err(error) => {
            screen.error(&format!("{}: {error}", path.display()));
            return Exit::Files;
        }
    }
    Exit::Fine
}

/// Writes the page.
fn write_page(args: &ReportArgs, sources: &[Source], options: &Options, screen: &Screen) -> Exit {
    let path = match files::write_page(sources, options, &folder(args, sources)) {
        Ok(path) => path,
        Err(error @ ReportError::Io { .. }) => {
            screen.error(&format!("{error}; write elsewhere with --output-dir"));
            return Exit::Files;
        }
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Usage;
        }
    };
    for source in sources {
        for warning in &source.warnings {
            screen.warning(&format!("{}: {warning}", source.label));
        }
    }
    if screen.json {
        screen.json(&json!({ "files": [path], "baseline": options.baseline }));
    } else {
        screen.line(&path.display().to_string());
    }
    Exit::Fine
}

fn folder(args: &ReportArgs, sources: &[Source]) -> PathBuf {
    match &args.output_dir {
        Some(folder) => folder.clone(),
        None => default_folder(&sources[0]),
    }
}

/// Settings of a run's manifest for reports.
#[derive(Default)]
struct Settings {
    baseline: Option<String>,
    more_baselines: Vec<String>,
    iterations: Option<u32>,
    formats: Vec<PlotFormat>,
    plots: Option<Vec<String>>,
}

impl Settings {
    fn of(source: &Source) -> Option<Self> {
        let manifest: toml::Table = source.manifest.as_deref()?.parse().ok()?;
        let report = manifest.get("report")?.as_table()?;
        let words = |key: &str| {
            let list = report.get(key)?.as_array()?;
            let words = list
                .iter()
                .filter_map(|word| word.as_str().map(str::to_owned));
            Some(words.collect::<Vec<String>>())
        };
        let baseline = report.get("baseline").and_then(toml::Value::as_str);
        let iterations = report.get("iterations").and_then(toml::Value::as_integer);
        let formats = words("format").unwrap_or_default();
        Some(Settings {
            baseline: baseline.map(str::to_owned),
            more_baselines: words("more_baselines").unwrap_or_default(),
            iterations: iterations.and_then(|count| u32::try_from(count).ok()),
            formats: formats
                .iter()
                .filter_map(|word| PlotFormat::parse(word))
                .collect(),
            plots: words("plots"),
        })
    }
}

fn options(args: &ReportArgs, sources: &[Source], settings: Settings, screen: &Screen) -> Options {
    let mut formats: Vec<PlotFormat> = args.format.iter().map(|&format| format.into()).collect();
    if formats.is_empty() {
        formats = settings.formats;
    }
    if formats.is_empty() {
        formats = vec![PlotFormat::Pdf];
    }
    if args.no_plots {
        formats.clear();
    }
    let is_measured = |backend: &String| {
        let mut entries = sources.iter().flat_map(|source| &source.entries);
        entries.any(|entry| *entry.backend == **backend)
    };
    let from_manifest = settings.baseline.filter(|backend| {
        let found = is_measured(backend);
        if !found && args.baseline.is_none() {
            screen.warning(&format!("the manifest's baseline `{backend}` has no rows"));
        }
        found
    });
    let asked = args.baseline.as_ref();
    let asked = asked.map(|word| files::backend_of(word, sources).unwrap_or_else(|| word.clone()));
    Options {
        baseline: asked.or(from_manifest),
        more_baselines: settings.more_baselines,
        iterations: args.iterations.or(settings.iterations),
        by: args.by.clone(),
        formats,
        plots: settings.plots,
    }
}

/// `report` in the run's folder; beside a file, with its name.
fn default_folder(source: &Source) -> PathBuf {
    if source.kind == Kind::Run || source.origin.is_dir() {
        return source.origin.join("report");
    }
    let stem = source.origin.file_stem().unwrap_or_default();
    let parent = source.origin.parent().unwrap_or(Path::new("."));
    parent.join(format!("{}-report", stem.to_string_lossy()))
}

fn show(report: &Report, folder: &Path, paths: &[PathBuf], options: &Options, screen: &Screen) {
    if screen.json {
        let tables = report.parts.iter().flat_map(|part| {
            part.tables.iter().map(|table| {
                json!({ "name": table.name, "folder": part.folder, "rows": table.rows.len(), "notes": table.notes })
            })
        });
        let tables: Vec<_> = tables.collect();
        let empty: Vec<_> = report
            .empty()
            .into_iter()
            .map(|(reason, plots)| json!({ "reason": reason, "plots": plots }))
            .collect();
        screen.json(&json!({
            "folder": folder,
            "files": paths,
            "baseline": options.baseline,
            "tables": tables,
            "empty_plots": empty,
            "warnings": report.warnings,
        }));
        return;
    }
    let tables = || report.parts.iter().flat_map(|part| &part.tables);
    let named = |place: usize| tables().nth(place).map(|table| &*table.name);
    // Where there are single problems, the costs of a loop stand beside the comparison of
    // operations.
    let telling = match (named(0), named(1)) {
        (Some(table::OPERATIONS), Some(table::ECONOMICS)) => 2,
        _ => 1,
    };
    let asked = options.by.len();
    for table in tables().take(asked.max(telling)) {
        screen.out(&terminal(table, screen));
    }
    if screen.verbose {
        for path in paths {
            screen.line(&path.display().to_string());
        }
    }
    for (reason, plots) in report.empty() {
        screen.line(&empty_line(reason, &plots));
    }
    let plots = report.parts.iter().map(|part| part.plots.len());
    screen.line(&format!(
        "{} tables and {} plots in {} files; begin with {}",
        tables().count(),
        plots.sum::<usize>(),
        paths.len(),
        folder.join(INDEX).display()
    ));
}

/// Points of a run whose answer is read from its files and shown.
const MOST_ANSWERED: usize = 50_000;

/// What a run found out; none of a run of too many points, for which a report is made.
pub fn answer_of(ended: &Ended, manifest: &Manifest) -> Option<Answer> {
    let points: usize = ended.tally.statuses.values().sum();
    if points > MOST_ANSWERED {
        return None;
    }
    let run = ended.folder.to_string_lossy().into_owned();
    let sources = source::open_all(&[run], &ended.folder).ok()?;
    Answer::of(&sources, manifest.report.baseline)
}

/// Prints the operations guide's comparison of a run's operations, if it has any; a comparison that
/// can't be made is not a failure of the run, and `sweeper report` explains it.
pub fn show_operations(folder: &Path, manifest: &Manifest, screen: &Screen) {
    let run = folder.to_string_lossy().into_owned();
    let Ok(sources) = source::open_all(&[run], folder) else {
        return;
    };
    let options = Options {
        baseline: manifest.report.baseline.map(str::to_owned),
        ..Options::default()
    };
    if let Some(table) = files::operations(&sources, &options) {
        let text = render::terminal(&table, table.rows.len(), |text| screen.paint("1", text));
        screen.out(&text);
    }
}

/// Which plots would be empty for one reason.
fn empty_line(reason: &str, plots: &[PathBuf]) -> String {
    let first = plots.first().map_or(Path::new(""), PathBuf::as_path);
    let first = first.display();
    match plots.len() {
        1 => format!("not drawn: {first}: {reason}"),
        count => format!("not drawn: {count} plots, such as {first}: {reason}"),
    }
}

fn terminal(table: &Table, screen: &Screen) -> String {
    render::terminal(table, MOST_ROWS, |text| screen.paint("1", text))
}
