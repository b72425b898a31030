//! `sweeper rerun`: repeat a recorded run, and compare outputs and times.

use std::collections::{HashMap, HashSet};

use clap::Args;
use serde_json::json;
use sweeper_program::Workload;

use super::exit::Exit;
use super::screen::Screen;
use super::{place, run, runs, settings, worker};
use crate::run::retry::Retry;
use crate::run::reuse::Reuse;
use crate::run::time::Allowed;
use crate::run::{self as engine, Request};
use sweeper_engine::execute::foreign_inputs::InputMaker;
use sweeper_manifest::{Manifest, OverrideOrigin, Overrides};
use sweeper_model::identity::PointId;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_model::shard::Part;
use sweeper_results::record::environment::RunIdentity;
use sweeper_results::record::find;
use sweeper_results::record::recorded::Recorded;

/// The end of a refusal.
const OTHER_RUN: &str = "this would not be the same run; --anyway runs it all the same";

/// Arguments of `rerun`.
#[derive(Args)]
pub struct RerunArgs {
    /// First digits of the run's id, or its folder
    run: String,
    #[command(flatten)]
    place: runs::Place,
    /// Run although the toolchain, the device, the program or the inputs that functions make differ
    #[arg(long)]
    anyway: bool,
}

/// Repeats a recorded run.
pub fn rerun(args: &RerunArgs, screen: &Screen) -> Exit {
    let recorded = match find::find(&args.run, &args.place.output_dir) {
        Ok(recorded) => recorded,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };
    let before = match before(&recorded) {
        Ok(rows) => rows,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };
    let mut overrides = Overrides::new();
    if let Some(dir) = recorded.results_folder() {
        let origin = OverrideOrigin::Flag("--output-dir".to_owned());
        overrides.push("output.dir", dir.to_string_lossy(), origin);
    }
    let manifest = match settings::load(&recorded.path.join("manifest.toml"), &overrides, screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    if let Err(exit) = refuse(&recorded, &manifest, args.anyway, screen) {
        return exit;
    }
    if !args.anyway
        && let Err(exit) = refuse_other_inputs(&before, &manifest, screen)
    {
        return exit;
    }
    let Ok(worker) = worker::command() else {
        return Exit::Files;
    };
    let request = Request {
        worker,
        resolved: manifest.resolved_toml(),
        command: std::env::args().collect(),
        fresh: true,
        retry: Retry::default(),
        part: Part::Whole,
        allowed: Allowed::default(),
        reuse: Reuse::Nothing,
        require_cached: false,
        skip_precompile: false,
        save_tensors: None,
        cache_dir: Some(place::cache_dir(Some(&manifest)).0),
        compile_threads: place::compile_threads(&manifest),
    };
    let ended = match run::execute(&manifest, &request, screen) {
        Ok(ended) => ended,
        Err(exit) => return exit,
    };
    match Recorded::read(&ended.folder).and_then(|run| run.rows()) {
        Ok(after) => compare(&before, &after, ended.stopped, screen),
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Files
        }
    }
}

/// The rows to compare with.
///
/// # Errors
/// A sentence; also for an attempt that was left unfinished, which the rerun would go on with.
fn before(recorded: &Recorded) -> Result<Vec<Row>, String> {
    let rows = recorded.rows().map_err(|error| error.to_string())?;
    let is_attempt = find::attempt_number(&recorded.path).is_some();
    let points = recorded.planned_points();
    if is_attempt && points.is_some_and(|points| rows.len() < points) {
        return Err(format!(
            "{} was stopped early; `sweeper run --fresh` of its manifest goes on with it, then it can be repeated",
            recorded.path.display()
        ));
    }
    Ok(rows)
}

/// Refuses where this is not the place or the program that the run was made with.
fn refuse(
    recorded: &Recorded,
    manifest: &Manifest,
    anyway: bool,
    screen: &Screen,
) -> Result<(), Exit> {
    let devices = engine::local_devices(manifest).map_err(|error| {
        screen.error(&error.to_string());
        Exit::from(&error)
    })?;
    let kind = devices[0].kind;
    let interpreters = engine::interpreters(manifest).map_err(|error| {
        screen.error(&error.to_string());
        Exit::from(&error)
    })?;
    let toolchain = place::toolchain(Some(&place::cache_dir(Some(manifest)).0));
    let here = RunIdentity::new(
        manifest.hash(),
        devices,
        engine::toolchain_for(kind, &toolchain).identity(kind),
        interpreters,
    );
    let differences = here.differences(&recorded.environment.identity);
    for difference in &differences {
        let text = format!(
            "{} differs: here {}, recorded {}",
            difference.field, difference.own, difference.other
        );
        if anyway {
            screen.warning(&text);
        } else {
            screen.error(&text);
        }
    }
    if differences.is_empty() || anyway {
        return Ok(());
    }
    screen.error(OTHER_RUN);
    Err(Exit::Impossible)
}

/// Refuses where functions (`inputs_from`) make other inputs than the recorded ones. They are
/// called here, before anything is measured, and once more by the run. One that fails is told of in
/// the run's rows.
fn refuse_other_inputs(before: &[Row], manifest: &Manifest, screen: &Screen) -> Result<(), Exit> {
    let mut maker = InputMaker::within(manifest.limits.oracle_time.as_secs_f64());
    let mut seen = HashSet::new();
    let mut others = 0;
    for row in before {
        let Some(was) = input_digest(row).filter(|_| seen.insert(row.problem)) else {
            continue;
        };
        let problem = manifest.declared().find_map(|declared| {
            let parameters = row.parameters.iter();
            let parameters = parameters.map(|(name, value)| (name.as_str(), value.clone()));
            let is_it = declared.info().name == row.workload;
            let problem = is_it.then(|| declared.problem(&parameters.collect(), row.dtype));
            problem?.ok()
        });
        let made = problem.and_then(|problem| maker.digest(problem.as_ref(), row.problem));
        let Some(Ok(is)) = made else { continue };
        if is != was {
            others += 1;
            let parameters = row.parameters.iter();
            let words = parameters.map(|(name, value)| format!("{name}={value}"));
            screen.error(&format!(
                "input_digest of {} {} differs: here {is:.12}, recorded {was:.12}; its function (`inputs_from`) makes \
                 other inputs",
                row.workload,
                words.collect::<Vec<_>>().join(" ")
            ));
        }
    }
    if others == 0 {
        return Ok(());
    }
    screen.error(OTHER_RUN);
    Err(Exit::Impossible)
}

/// The digest of inputs that a function made.
fn input_digest(row: &Row) -> Option<&str> {
    row.outcome.measurement.as_ref()?.input_digest.as_deref()
}

/// Compares outputs bit by bit, and times by the intervals of their medians.
fn compare(before: &[Row], after: &[Row], stopped: bool, screen: &Screen) -> Exit {
    let old: HashMap<PointId, &Row> = before.iter().map(|row| (row.point, row)).collect();
    let mut tally = Tally::default();
    for row in after {
        if let Some(old) = old.get(&row.point) {
            tally.add(old, row);
        }
    }
    tally.show(screen);
    match () {
        () if tally.differ > 0 || tally.status > 0 => Exit::Different,
        () if stopped => Exit::Stopped,
        () => Exit::Fine,
    }
}

#[derive(Default)]
struct Tally {
    identical: usize,
    differ: usize,
    status: usize,
    chosen: usize,
    slower: usize,
    faster: usize,
    ratios: Vec<f64>,
    lines: Vec<String>,
}

impl Tally {
    fn add(&mut self, old: &Row, new: &Row) {
        if let (Some(was), Some(is)) = (input_digest(old), input_digest(new))
            && was != is
        {
            self.differ += 1;
            self.lines.push(format!(
                "{}: input_digest differs: here {is:.12}, recorded {was:.12}; its function \
                 (`inputs_from`) made other inputs, so that neither outputs nor times can be compared",
                new.point
            ));
            return;
        }
        if old.outcome.status != new.outcome.status {
            self.status += 1;
            self.lines.push(format!(
                "{}: was {}, is {}",
                new.point, old.outcome.status, new.outcome.status
            ));
            return;
        }
        if new.outcome.status != Status::Ok {
            return;
        }
        self.note_choices(old, new);
        let digest = |row: &Row| row.outcome.measurement.as_ref()?.output_digest.clone();
        match (digest(old), digest(new)) {
            (Some(old), Some(now)) if old == now => self.identical += 1,
            (Some(old), Some(now)) => {
                self.differ += 1;
                self.lines.push(format!(
                    "{}: outputs were {old:.12}, are {now:.12}",
                    new.point
                ));
            }
            _ => {}
        }
        if let (Some(old), Some(new)) = (old.summary(), new.summary()) {
            self.ratios.push(new.median / old.median);
            self.slower += usize::from(new.interval.low > old.interval.high);
            self.faster += usize::from(new.interval.high < old.interval.low);
        }
    }

    /// Notes where an autotuner chose otherwise: times and bits below may differ by that alone.
    fn note_choices(&mut self, old: &Row, new: &Row) {
        let choices = |row: &Row| match &row.outcome.measurement {
            Some(found) if !found.autotuned.is_empty() => found.autotuned.join("; "),
            _ => "none noted".to_owned(),
        };
        let (was, is) = (choices(old), choices(new));
        if was != is {
            self.chosen += 1;
            self.lines.push(format!(
                "{}: autotuned was {was}, is {is}: time and bits may differ by that",
                new.point
            ));
        }
    }

    fn show(&self, screen: &Screen) {
        let logs: f64 = self.ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = (logs / self.ratios.len().max(1) as f64).exp();
        if screen.json {
            screen.line(
                &json!({
                    "event": "compared", "identical": self.identical, "differ": self.differ,
                    "status_differs": self.status, "autotuned_differs": self.chosen,
                    "time_ratio_geometric_mean": mean,
                    "slower": self.slower, "faster": self.faster,
                })
                .to_string(),
            );
            return;
        }
        for line in &self.lines {
            screen.line(line);
        }
        screen.line(&format!(
            "outputs: {} bit-identical, {} differ, {} rows of another status",
            self.identical, self.differ, self.status
        ));
        if self.chosen > 0 {
            screen.line(&format!(
                "autotuners: {} rows of another choice",
                self.chosen
            ));
        }
        screen.line(&format!(
            "times: {mean:.3} of before (geometric mean of {}); intervals apart: {} slower, {} faster",
            self.ratios.len(),
            self.slower,
            self.faster
        ));
    }
}
