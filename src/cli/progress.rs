//! A run on the screen: a bar on a terminal, plain lines in a log, or one JSON event a line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::json;

use super::screen::Screen;
use crate::run::ceilings_file::Raised;
use crate::run::tables::Tally;
use crate::run::{Ended, Event, LeftOut, Progress};
use sweeper_engine::compile::kernels::Origin;
use sweeper_engine::execute::protocol::Stage;
use sweeper_model::hardware::ceilings::COPY;
use sweeper_model::quantity;
use sweeper_model::row::outcome::Status;
use sweeper_results::record::history;
use sweeper_results::record::usage::DeviceUsage;
use sweeper_results::report::answer::{Answer, text};

/// A line in a log at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Shows a run.
pub struct Shown<'a> {
    screen: &'a Screen,
    bar: ProgressBar,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    points: usize,
    kernels: usize,
    compiled: usize,
    logged: Option<Instant>,
    /// The first complaint of each wording, whatever its numbers, and how often that came up: it is
    /// shown once, and counted in the end.
    complaints: BTreeMap<String, (String, usize)>,
}

impl<'a> Shown<'a> {
    /// A run that begins now.
    pub fn new(screen: &'a Screen) -> Self {
        let shown = screen.interactive && !screen.quiet && !screen.json;
        let target = if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{bar:16} {pos}/{len} points  {rate}  {prefix}{wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            let style =
                style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
                    // A screen that can't be written to does not stop measuring.
                    let _ = write!(out, "{:.1}/s", state.per_sec());
                });
            bar.set_style(style.progress_chars("=> "));
        }
        Shown {
            screen,
            bar,
            started: Instant::now(),
            state: Mutex::new(State::default()),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// How the run ended.
    pub fn summary(&self, ended: &Ended, answer: Option<&Answer>) {
        if self.screen.json {
            let mut event = as_json(ended);
            event["answer"] = json!(answer.map(Answer::json));
            self.screen.line(&event.to_string());
            return;
        }
        if self.screen.quiet {
            return;
        }
        let complaints = self.with_state(|state| std::mem::take(&mut state.complaints));
        for (first, times) in complaints.unwrap_or_default().into_values() {
            if times > 1 {
                self.screen.line(&format!("{times} x {first}"));
            }
        }
        self.screen.line(&self.outcome(ended));
        if let Some(text) = without_result(&ended.tally).filter(|_| !ended.stopped) {
            self.screen.line(&text);
        }
        if let Some(answer) = answer {
            let bold = |text: &str| self.screen.paint("1", text);
            self.screen.line(&text(answer, self.screen.width(), bold));
        }
        self.usage(ended);
        self.screen
            .line(&format!("results: {}", ended.folder.display()));
        if !ended.stopped {
            let folder = ended.folder.display();
            self.screen
                .note(&format!("tables and plots: sweeper report {folder}"));
        }
    }

    /// How many points were measured, in what time, and their statuses.
    fn outcome(&self, ended: &Ended) -> String {
        let statuses = ended.tally.statuses.iter();
        let counts: Vec<String> = statuses
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        let seconds = self.started.elapsed().as_secs_f64();
        let did = match (ended.written, ended.reused) {
            (0, reused) if !ended.stopped => {
                format!("nothing to do, {reused} points measured before")
            }
            (written, 0) => format!("{written} points in {seconds:.1} s"),
            (written, reused) => {
                format!("{written} points in {seconds:.1} s, {reused} measured before")
            }
        };
        let stopped = if ended.stopped {
            "stopped early, run again to go on: "
        } else {
            ""
        };
        let counts = if counts.is_empty() {
            String::new()
        } else {
            format!(" ({})", counts.join(", "))
        };
        let parts = [
            (ended.taken, "taken from earlier runs"),
            (
                ended.unmeasured,
                "without a measurement, since the time was over",
            ),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: String = parts
            .map(|(count, how)| format!(", {count} {how}"))
            .collect();
        format!("{stopped}{did}{parts}{counts}")
    }

    /// How the devices' time was used, and by how much anchors moved.
    fn usage(&self, ended: &Ended) {
        let is_gpu = |device: &DeviceUsage| device.kind.facts().is_gpu;
        if ended.usage.devices.iter().any(is_gpu) || self.screen.verbose {
            let usage = &ended.usage;
            self.screen.line(&format!(
                "devices ran programs {} of {:.1} s, and had a block to measure {}",
                quantity::percent(usage.running),
                usage.wall_s,
                quantity::percent(usage.at_work)
            ));
        }
        if let Some(drift) = ended.usage.drift() {
            let times = match ended.usage.anchors.len() {
                1 => "once".to_owned(),
                readings => format!("{readings} times"),
            };
            self.screen.line(&format!(
                "anchor points, measured again {times}, moved by {} at most",
                quantity::percent(drift)
            ));
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| self.screen.note(text));
    }

    fn with_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> Option<R> {
        self.state.lock().ok().map(|mut state| change(&mut state))
    }

    fn compiled(
        &self,
        name: &str,
        result: &Result<
            &sweeper_engine::compile::kernels::Built,
            &sweeper_engine::compile::CompileError,
        >,
        remaining: Duration,
    ) {
        self.bar.set_prefix(format!("{}  ", left(remaining)));
        let progress = self.with_state(|state| {
            state.compiled += 1;
            format!("kernel {}/{}", state.compiled, state.kernels)
        });
        self.bar
            .set_message(format!("{} {name}", progress.unwrap_or_default()));
        match result {
            Ok(built) if built.origin == Origin::Built && self.screen.verbose => {
                self.say(&format!(
                    "compiled {name} in {}",
                    quantity::time_ns(built.compile_ns as f64)
                ));
            }
            Ok(_) => {}
            Err(error) => {
                let warning = self.screen.paint("33;1", "warning");
                self.say(&format!("{warning}: {name}: {error}"));
            }
        }
    }

    fn row(&self, row: &sweeper_model::row::Row, label: &str, done: usize, remaining: Duration) {
        self.bar.set_position(done as u64);
        let left = left(remaining);
        self.bar.set_prefix(format!("{left}  "));
        let status = row.outcome.status;
        let reason = row.outcome.reason.as_deref().unwrap_or_default();
        if self.screen.verbose {
            let time = row
                .summary()
                .map(|summary| quantity::time_ns(summary.median));
            self.say(&format!(
                "{label}: {}",
                time.unwrap_or_else(|| format!("{status}: {reason}"))
            ));
        } else if !matches!(status, Status::Ok | Status::Pruned) {
            let complaint = format!("{status}: {}", reason.lines().next().unwrap_or_default());
            let times = self.with_state(|state| {
                let is_number = |letter: char| letter.is_ascii_digit() || "+-.e".contains(letter);
                let wording = complaint.replace(is_number, "");
                let (_, times) = state.complaints.entry(wording).or_insert((complaint, 0));
                *times += 1;
                *times
            });
            if times == Some(1) {
                let word = self.screen.paint("33;1", status.name());
                self.say(&format!("{label}: {word}: {reason}"));
            }
        }
        if self.screen.interactive {
            return;
        }
        let due = self.with_state(|state| {
            let due = state
                .logged
                .is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
            if due {
                state.logged = Some(Instant::now());
            }
            due.then_some(state.points)
        });
        if let Some(Some(points)) = due {
            let seconds = self.started.elapsed().as_secs_f64();
            self.say(&format!(
                "{done}/{points} points after {seconds:.0} s, {left}, last: {label}"
            ));
        }
    }

    fn event_json(&self, event: &Event<'_>) {
        let line = match event {
            Event::Started {
                run,
                folder,
                points,
                finished,
                left_out,
                device,
            } => json!({
                "event": "started", "run": run, "folder": folder, "points": points,
                "finished": finished, "left_out": left_out, "device": device,
            }),
            Event::Compiling { kernels } => json!({ "event": "compiling", "kernels": kernels }),
            Event::Compiled { name, result, left } => match result {
                Ok(built) => json!({
                    "event": "compiled", "kernel": name, "key": built.artifact.key,
                    "hit": built.origin == Origin::Hit, "compile_ns": built.compile_ns,
                    "left_s": left.as_secs_f64(),
                }),
                Err(error) => json!({
                    "event": "compiled", "kernel": name, "error": error.to_string(),
                    "left_s": left.as_secs_f64(),
                }),
            },
            Event::Working { .. } => return,
            Event::Row {
                row,
                label,
                done,
                left,
            } => json!({
                "event": "row", "label": label, "done": done, "point": row.point,
                "status": row.outcome.status, "reason": row.outcome.reason,
                "median_ns": row.summary().map(|summary| summary.median),
                "left_s": left.as_secs_f64(),
            }),
            Event::Raised { device, raised } => json!({
                "event": "raised", "device": device, "ceiling": raised.kind,
                "from_per_s": raised.from_per_s, "to_per_s": raised.to_per_s,
            }),
            Event::Edited(text) => json!({ "event": "edited", "text": text }),
            Event::Warning(text) => json!({ "event": "warning", "text": text }),
        };
        self.screen.line(&line.to_string());
    }
}

impl Progress for Shown<'_> {
    fn event(&self, event: &Event<'_>) {
        if let Event::Started { run, folder, .. } = event {
            history::remember(*run, folder);
        }
        if self.screen.json {
            return self.event_json(event);
        }
        match event {
            Event::Started {
                run,
                points,
                finished,
                left_out,
                device,
                ..
            } => {
                self.with_state(|state| state.points = *points);
                self.bar.set_length(*points as u64);
                self.bar.set_position(*finished as u64);
                self.bar.reset_eta();
                let before = match finished {
                    0 => String::new(),
                    _ => format!(", {finished} measured before"),
                };
                let left_out = left_out_text(left_out);
                self.say(&format!(
                    "run {run}: {points} points on {device}{before}{left_out}"
                ));
            }
            Event::Compiling { kernels } => {
                self.with_state(|state| (state.kernels, state.compiled) = (*kernels, 0));
                self.bar.set_message(format!("compiling {kernels} kernels"));
            }
            Event::Compiled { name, result, left } => self.compiled(name, result, *left),
            Event::Working { label, stage } => self.bar.set_message(working(label, *stage)),
            Event::Row {
                row,
                label,
                done,
                left,
            } => self.row(row, label, *done, *left),
            Event::Raised { device, raised } => self.say(&raised_text(device, raised)),
            Event::Edited(text) => self.say(text),
            Event::Warning(text) => self.bar.suspend(|| self.screen.warning(text)),
        }
    }
}

/// Points that are not measured, after a comma; nothing where none is left out.
fn left_out_text(left_out: &LeftOut) -> String {
    let counts = [
        (left_out.skipped as u64, "skipped by the manifest"),
        (left_out.sampled_out, "sampled out"),
        (left_out.over_budget, "beyond limits.max_points"),
    ];
    let told = counts.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, how)| format!(", {count} {how}"))
        .collect()
}

/// A ceiling that rose, in a line.
fn raised_text(device: &str, raised: &Raised) -> String {
    let unit = if raised.kind == COPY { "B/s" } else { "flop/s" };
    let rate = |per_s: f64| format!("{}{unit}", quantity::scaled(per_s));
    let before = raised
        .from_per_s
        .map(|per_s| format!(", was {}", rate(per_s)));
    format!(
        "ceiling of {device} raised: {} {}{}",
        raised.kind,
        rate(raised.to_per_s),
        before.unwrap_or_default()
    )
}

/// How many points have no result, and how they get one.
fn without_result(tally: &Tally) -> Option<String> {
    let names: Vec<&str> = tally.failures.keys().map(|status| status.name()).collect();
    let again = match (tally.failed(), tally.of_the_moment) {
        (0, _) => return None,
        (all, momentary) if momentary == all => {
            "the next run tries again, since trouble of the moment was the cause".to_owned()
        }
        (_, 0) => format!("--retry {} tries again", names.join(",")),
        (_, momentary) => format!(
            "the next run tries {momentary} again, since trouble of the moment was the cause; --retry {} all",
            names.join(",")
        ),
    };
    let points = match tally.failed() {
        1 => "1 point has no result".to_owned(),
        count => format!("{count} points have no result"),
    };
    Some(format!("{points}; {again}"))
}

/// The end of a run as an event.
fn as_json(ended: &Ended) -> serde_json::Value {
    json!({
        "event": "ended",
        "run": ended.run,
        "folder": ended.folder,
        "statuses": by_name(&ended.tally.statuses),
        "failures": by_name(&ended.tally.failures),
        "of_the_moment": ended.tally.of_the_moment,
        "reused": ended.reused,
        "written": ended.written,
        "taken": ended.taken,
        "unmeasured": ended.unmeasured,
        "compiled": ended.compiled,
        "stopped": ended.stopped,
        "usage": ended.usage,
    })
}

/// Counts by the statuses' names.
fn by_name(counts: &BTreeMap<Status, usize>) -> BTreeMap<&'static str, usize> {
    let counts = counts.iter();
    counts
        .map(|(status, count)| (status.name(), *count))
        .collect()
}

/// The remaining time of a run, in words that fit beside a bar.
fn left(remaining: Duration) -> String {
    let seconds = remaining.as_secs();
    match seconds {
        0..120 => format!("{seconds} s left"),
        120..7200 => format!("{} min left", seconds / 60),
        _ => format!("{} h left", seconds / 3600),
    }
}

/// The current work: a label ends with backend and phase, which a narrow screen would cut off.
fn working(label: &str, stage: Stage) -> String {
    let mut words = label.rsplitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(phase), Some(backend), Some(rest)) => {
            format!("{backend} {phase} {}: {rest}", stage.name())
        }
        _ => format!("{}: {label}", stage.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(left_out_text(&LeftOut::default()), "");
        let left_out = LeftOut {
            skipped: 3,
            sampled_out: 255,
            over_budget: 0,
        };
        assert_eq!(
            left_out_text(&left_out),
            ", 3 skipped by the manifest, 255 sampled out"
        );
    }

    #[test]
    fn what_matters_comes_first() {
        assert_eq!(
            working("semicrf T=4 K=2 fused both", Stage::Warmup),
            "fused both warm-up: semicrf T=4 K=2"
        );
        assert_eq!(working("copy", Stage::Check), "check: copy");
        assert_eq!(left(Duration::from_millis(90_400)), "90 s left");
        assert_eq!(left(Duration::from_secs(7300)), "2 h left");
    }
}
