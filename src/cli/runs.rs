//! `sweeper runs` and `sweeper show`: recorded runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use sweeper_model::quantity;
use sweeper_model::row::Row;
use sweeper_model::row::entry::notices;
use sweeper_model::row::outcome::{LibraryUse, Status};
use sweeper_results::record::find::{self, DEPTH, Found};
use sweeper_results::record::recorded::Recorded;

/// Where runs are.
#[derive(Args)]
pub struct Place {
    /// Folder of the runs' folders
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub output_dir: PathBuf,
}

/// Arguments of `runs`.
#[derive(Args)]
pub struct RunsArgs {
    #[command(flatten)]
    place: Place,
    /// List runs that were written elsewhere, too
    #[arg(long)]
    all: bool,
}

/// Arguments of `show`.
#[derive(Args)]
pub struct ShowArgs {
    /// First digits of the run's id, or its folder
    run: String,
    #[command(flatten)]
    place: Place,
    /// Show every row
    #[arg(long)]
    rows: bool,
}

/// Lists runs.
pub fn runs(args: &RunsArgs, screen: &Screen) -> Exit {
    let dir = &args.place.output_dir;
    let mut listing = match find::list(dir) {
        Ok(listing) => listing,
        Err(_) if args.all => find::Listing::default(),
        Err(error) => {
            screen.error(&format!(
                "{error}; name the folder of results with --output-dir, or list all runs with --all"
            ));
            return Exit::Files;
        }
    };
    let below = listing.runs.len();
    let absolute = |found: &Found| std::path::absolute(&found.path).ok();
    let listed: Vec<_> = listing.runs.iter().map(absolute).collect();
    let elsewhere = find::list_remembered().runs.into_iter();
    let mut elsewhere: Vec<Found> = elsewhere
        .filter(|found| !listed.contains(&absolute(found)))
        .collect();
    let more = elsewhere.len();
    if args.all {
        listing.runs.append(&mut elsewhere);
    }
    for error in &listing.unread {
        screen.warning(&format!("not looked into: {error}"));
    }
    let listed: Vec<Listed> = listing.runs.into_par_iter().map(Listed::of).collect();
    if screen.json {
        screen.json(&listed.iter().map(Listed::json).collect::<Vec<_>>());
        return Exit::Fine;
    }
    listed
        .iter()
        .for_each(|listed| screen.line(&listed.line(screen)));
    let others = match (more, args.all) {
        (0, _) => String::new(),
        (more, true) => format!(", {more} elsewhere"),
        (more, false) => format!("; {more} elsewhere, which --all lists"),
    };
    screen.note(&format!(
        "{below} run{} below {}, looked {DEPTH} folders deep{others}",
        if below == 1 { "" } else { "s" },
        dir.display()
    ));
    Exit::Fine
}

/// A run as it is listed.
struct Listed {
    found: Found,
    /// Rows by status, or why they can't be read.
    counts: Result<BTreeMap<Status, usize>, String>,
    /// Points of its plan.
    points: Option<usize>,
}

impl Listed {
    fn of(found: Found) -> Self {
        let (counts, points) = match &found.run {
            Ok(run) => (
                run.contents()
                    .map_err(|error| error.to_string())
                    .and_then(|contents| contents.standings())
                    .map(|rows| counts(rows.iter().map(|row| row.status))),
                run.planned_points(),
            ),
            Err(error) => (Err(error.to_string()), None),
        };
        Listed {
            found,
            counts,
            points,
        }
    }

    /// `complete`, `unfinished` or `damaged`.
    fn state(&self) -> &'static str {
        let rows = self
            .counts
            .as_ref()
            .map(|counts| counts.values().sum::<usize>());
        match (rows, self.points) {
            (Err(_), _) => "damaged",
            (Ok(rows), Some(points)) if rows < points => "unfinished",
            (Ok(_), _) => "complete",
        }
    }

    fn line(&self, screen: &Screen) -> String {
        let id = self.found.id().unwrap_or_else(|| "?           ".to_owned());
        let attempt = self
            .found
            .attempt
            .map(|number| format!(" attempt {number}"))
            .unwrap_or_default();
        let folder = self.found.path.display();
        let (run, counts) = match (&self.found.run, &self.counts) {
            (Ok(run), Ok(counts)) => (run, counts),
            (_, Err(reason)) => {
                let word = screen.paint("31;1", "damaged");
                return format!("{id}  {word}{attempt}  {folder}: {reason}");
            }
            (Err(error), _) => return format!("{id}  damaged{attempt}  {folder}: {error}"),
        };
        let rows: usize = counts.values().sum();
        let points = self
            .points
            .map_or("?".to_owned(), |points| points.to_string());
        let state = match self.state() {
            "unfinished" => screen.paint("33;1", "unfinished"),
            state => state.to_owned(),
        };
        format!(
            "{id}  {:16}  {state:10} {rows}/{points} rows  {}{attempt}  {}  ({})  {folder}",
            when(run.environment.started_unix_s),
            run.environment.name,
            devices(run),
            words(counts),
        )
    }

    fn json(&self) -> serde_json::Value {
        let run = self.found.run.as_ref().ok();
        let counts = self.counts.as_ref().ok();
        let statuses = counts.map(|counts| {
            let named = counts.iter().map(|(status, count)| (status.name(), count));
            named.collect::<BTreeMap<_, _>>()
        });
        json!({
            "run": self.found.id(),
            "folder": self.found.path,
            "attempt": self.found.attempt,
            "state": self.state(),
            "rows": counts.map(|counts| counts.values().sum::<usize>()),
            "points": self.points,
            "statuses": statuses,
            "damage": self.counts.as_ref().err(),
            "environment": run.map(|run| &run.environment),
        })
    }
}

/// The minute in which a run began, in UTC; the null device has no clock.
fn when(unix_s: f64) -> String {
    if unix_s <= 0.0 {
        return "no clock".to_owned();
    }
    let minutes = (unix_s / 60.0).floor() as u64 % (24 * 60);
    format!(
        "{} {:02}:{:02}",
        quantity::date(unix_s),
        minutes / 60,
        minutes % 60
    )
}

/// The minute in which a run began, with its time zone.
fn began(unix_s: f64) -> String {
    match unix_s > 0.0 {
        true => format!("{} UTC", when(unix_s)),
        false => when(unix_s),
    }
}

/// Shows one run.
pub fn show(args: &ShowArgs, screen: &Screen) -> Exit {
    let run = match find::find(&args.run, &args.place.output_dir) {
        Ok(run) => run,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };
    let rows = match run.rows() {
        Ok(rows) => rows,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Files;
        }
    };
    if screen.json {
        screen.json(&json!({ "environment": run.environment, "rows": rows }));
        return Exit::Fine;
    }
    let environment = &run.environment;
    screen.line(&format!("run        {:#}", environment.identity.run));
    screen.line(&format!("name       {}", environment.name));
    screen.line(&format!("folder     {}", run.path.display()));
    screen.line(&format!("device     {}", devices(&run)));
    screen.line(&format!("toolchain  {}", environment.identity.toolchain));
    screen.line(&format!("manifest   {}", environment.identity.manifest));
    screen.line(&format!(
        "engine     {} ({})",
        environment.identity.engine, environment.version
    ));
    screen.line(&format!("kernels    {}", environment.identity.kernels));
    screen.line(&format!("command    {}", environment.command.join(" ")));
    let began = began(environment.started_unix_s);
    screen.line(&format!("began      {began}"));
    let of = run
        .planned_points()
        .filter(|points| *points != rows.len())
        .map(|points| format!(" of {points} points"));
    screen.line(&format!(
        "rows       {}{} ({})",
        rows.len(),
        of.unwrap_or_default(),
        words(&counts(rows.iter().map(|row| row.outcome.status)))
    ));
    let attempts = find::attempts(&run.path);
    if !attempts.is_empty() {
        let folders: Vec<String> = attempts
            .iter()
            .rev()
            .map(|(_, path)| path.display().to_string())
            .collect();
        screen.line(&format!("attempts   {}", folders.join(", ")));
    }
    if args.rows {
        rows.iter().for_each(|row| screen.line(&line(row)));
    } else {
        show_medians(&rows, screen);
        show_notices(&rows, screen);
        show_libraries(&rows, screen);
    }
    Exit::Fine
}

/// Shows the geometric mean of the medians by case, phase and backend.
fn show_medians(rows: &[Row], screen: &Screen) {
    let mut groups: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
    for row in rows {
        if let (Status::Ok, Some(summary)) = (row.outcome.status, row.summary()) {
            let key = (row.case.clone(), row.phase.to_string(), row.backend.clone());
            groups.entry(key).or_default().push(summary.median);
        }
    }
    if groups.is_empty() {
        return;
    }
    screen.line("geometric mean of medians:");
    for ((case, phase, backend), medians) in groups {
        let logs: f64 = medians
            .iter()
            .map(|median| median.max(f64::MIN_POSITIVE).ln())
            .sum();
        let mean = (logs / medians.len() as f64).exp();
        screen.line(&format!(
            "  {case:16} {phase:9} {backend:20} {:>10}  over {} point{}",
            quantity::time_ns(mean),
            medians.len(),
            if medians.len() == 1 { "" } else { "s" }
        ));
    }
}

/// Shows by case and output what the check of a right result can't see: the greatest of the least
/// errors that are noticed.
fn show_notices(rows: &[Row], screen: &Screen) {
    let mut least: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    let right = rows.iter().filter(|row| row.outcome.status == Status::Ok);
    let checks =
        right.filter_map(|row| Some((row, row.outcome.measurement.as_ref()?.check.as_ref()?)));
    for (row, check) in checks {
        for (output, error) in notices(check) {
            let most = least.entry((&row.case, output)).or_default();
            *most = most.max(error);
        }
    }
    if least.is_empty() {
        return;
    }
    screen.line("errors of a whole output below which a check sees nothing, relative:");
    for ((case, output), error) in least {
        screen.line(&format!("  {case:16} {output:30} {error:.0e}"));
    }
}

/// Shows by case and backend the greatest share of a GPU's time that kernels of libraries take.
fn show_libraries(rows: &[Row], screen: &Screen) {
    let mut most: BTreeMap<(&str, &str), &LibraryUse> = BTreeMap::new();
    for row in rows {
        let measured = row.outcome.measurement.as_ref();
        if let Some(used) = measured.and_then(|found| found.library_use.as_ref()) {
            let held = most.entry((&row.case, &row.backend)).or_insert(used);
            if used.share > held.share {
                *held = used;
            }
        }
    }
    if most.is_empty() {
        return;
    }
    screen.line("share of the GPU's time in kernels of libraries, at most:");
    for ((case, backend), used) in most {
        let (percent, names) = (100.0 * used.share, used.kernels.join(", "));
        let line = format!("  {case:16} {backend:20} {percent:3.0} %  {names}");
        screen.line(line.trim_end());
    }
}

fn line(row: &Row) -> String {
    let parameters: Vec<String> = row
        .parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let result = match row.summary() {
        Some(summary) if row.outcome.status == Status::Ok => quantity::time_ns(summary.median),
        _ => format!(
            "{}: {}",
            row.outcome.status,
            row.outcome.reason.as_deref().unwrap_or_default()
        ),
    };
    format!(
        "{} {} {} {}  {result}",
        row.point,
        parameters.join(" "),
        row.backend,
        row.phase
    )
}

fn devices(run: &Recorded) -> String {
    let names: Vec<&str> = run
        .environment
        .identity
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    names.join(", ")
}

fn counts(statuses: impl Iterator<Item = Status>) -> BTreeMap<Status, usize> {
    let mut counts = BTreeMap::new();
    for status in statuses {
        *counts.entry(status).or_insert(0) += 1;
    }
    counts
}

fn words(counts: &BTreeMap<Status, usize>) -> String {
    let words: Vec<String> = counts
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    words.join(", ")
}
