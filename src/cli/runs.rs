//! `sweeper runs` and `sweeper show`: what was recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use crate::execute::outcome::Status;
use crate::quantity;
use crate::record::folder::{self, Recorded};
use crate::record::row::Row;

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
    let runs = match folder::list(&args.place.output_dir) {
        Ok(runs) => runs,
        Err(error) => {
            screen.error(&format!("{error}; name the folder with --output-dir"));
            return Exit::Files;
        }
    };
    if screen.json {
        screen.json(&runs.iter().map(|run| &run.environment).collect::<Vec<_>>());
        return Exit::Fine;
    }
    for run in &runs {
        let environment = &run.environment;
        let counts = run.rows().map(|rows| counts(&rows)).unwrap_or_default();
        screen.line(&format!(
            "{}  {:20} {}  {}",
            environment.identity.run,
            environment.name,
            devices(run),
            words(&counts)
        ));
    }
    Exit::Fine
}

/// Shows one run.
pub fn show(args: &ShowArgs, screen: &Screen) -> Exit {
    let run = match folder::find(&args.run, &args.place.output_dir) {
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
    screen.line(&format!(
        "rows       {} ({})",
        rows.len(),
        words(&counts(&rows))
    ));
    if args.rows {
        rows.iter().for_each(|row| screen.line(&line(row)));
    } else {
        show_medians(&rows, screen);
    }
    Exit::Fine
}

/// Geometric mean of the medians by what was run.
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
            "  {case:16} {phase:9} {backend:20} {:>10}  over {} points",
            quantity::time_ns(mean),
            medians.len()
        ));
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

fn counts(rows: &[Row]) -> BTreeMap<Status, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.outcome.status).or_insert(0) += 1;
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
