//! The full manifest as TOML again: every key, every shared thing resolved into its case.
//!
//! What it prints can be read again and is then equal; with comments it says where each value came
//! from.

use std::fmt::Write;
use std::path::Path;

use sweeper_kernels::Value;

use super::Manifest;
use super::case::{Case, Dimension, Include};
use super::provenance::Origin;
use super::settings::{Canonical, DeviceUse, GB, Plots, Stopping, Threads, Warmup, Word};

/// Columns that comments are aligned to.
const COMMENT_COLUMN: usize = 56;

pub(super) fn toml(manifest: &Manifest, comments: bool) -> String {
    let mut printer = Printer {
        out: String::new(),
        comments: comments.then_some(manifest),
    };
    printer.head(manifest);
    for case in &manifest.cases {
        printer.case(manifest, case);
    }
    printer.plan(manifest);
    printer.device_and_cache(manifest);
    printer.measure(manifest);
    printer.limits(manifest);
    printer.output(manifest);
    printer.null(manifest);
    printer.out
}

struct Printer<'m> {
    out: String,
    comments: Option<&'m Manifest>,
}

impl Printer<'_> {
    fn section(&mut self, header: &str) {
        self.out.push_str(&format!("\n{header}\n"));
    }

    /// A key of section `path` with a value that is TOML already.
    fn key(&mut self, path: &str, key: &str, value: &str) {
        let full = if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        };
        self.key_from(&full, key, value);
    }

    /// A key whose origin is that of another path.
    fn key_from(&mut self, full: &str, key: &str, value: &str) {
        let line = format!("{} = {value}", bare(key));
        let Some(manifest) = self.comments else {
            self.out.push_str(&line);
            self.out.push('\n');
            return;
        };
        let origin = manifest.provenance.origin(full);
        let pad = COMMENT_COLUMN.saturating_sub(line.chars().count());
        let origin = match origin {
            Origin::Default => "default".to_owned(),
            other => other.to_string().replace(['\n', '\r'], " "),
        };
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{line}{} # {origin}", " ".repeat(pad));
    }

    fn head(&mut self, manifest: &Manifest) {
        self.key("", "schema", &super::SCHEMA.to_string());
        self.key("", "name", &text(&manifest.name));
        self.key("", "about", &text(&manifest.about));
        if !manifest.tags.is_empty() {
            self.key("", "tags", &list(manifest.tags.iter().map(|tag| text(tag))));
        }
        self.key("", "seed", &manifest.seed.to_string());
    }

    fn case(&mut self, manifest: &Manifest, case: &Case) {
        let path = format!("case.{}", case.name);
        self.section(&format!("[{path}]"));
        self.key(&path, "workload", &text(case.workload.0.name));
        let backends = case.backends.iter().map(|backend| text(backend.0.name));
        self.key(&path, "backends", &list(backends));
        let phases = case.phases.iter().map(|phase| text(phase.name()));
        self.key(&path, "phases", &list(phases));
        self.key(&path, "dtype", &text(case.dtype.name()));
        if let Some(inputs) = &case.inputs {
            self.key(&path, "inputs", &path_text(&inputs.path));
        }
        let needs = case
            .needs
            .iter()
            .map(|need| text(&manifest.cases[*need].name));
        if needs.len() > 0 {
            self.key(&path, "needs", &list(needs));
        }
        self.axes(case, &path);
        if !case.derived.is_empty() {
            self.section(&format!("[{path}.derive]"));
            for derived in &case.derived {
                let inner = format!("{path}.derive");
                self.key(&inner, &derived.name, &text(derived.expression.text()));
            }
        }
        self.rules(case, &path);
    }

    /// Plain axes first, then those with several columns: the order in which they are read.
    fn axes(&mut self, case: &Case, path: &str) {
        let plain = |dimension: &&Dimension| dimension.columns.len() == 1;
        self.section(&format!("[{path}.grid]"));
        for dimension in case.dimensions.iter().filter(plain) {
            let variable = &case.variables[dimension.columns[0]];
            if variable.given {
                let inner = format!("{path}.grid");
                self.key(&inner, &variable.name, &axis(dimension));
            }
        }
        for dimension in case.dimensions.iter().filter(|each| !plain(each)) {
            self.section(&format!("[[{path}.table]]"));
            let names: Vec<&str> = dimension
                .columns
                .iter()
                .map(|column| &*case.variables[*column].name)
                .collect();
            let origin = format!("{path}.grid.{}", names[0]);
            self.key_from(&origin, "cols", &list(names.iter().map(|name| text(name))));
            let rows = dimension.rows[..dimension.swept].iter();
            let rows = list(rows.map(|row| list(row.iter().map(value))));
            self.key_from(&origin, "rows", &rows);
            if let Some(conditional) = &dimension.when {
                self.key_from(&origin, "when", &text(conditional.condition.text()));
                let cells = names.iter().zip(&conditional.otherwise);
                let cells = cells.map(|(name, held)| format!("{} = {}", bare(name), value(held)));
                self.key_from(&origin, "else", &inline(cells));
            }
        }
    }

    fn rules(&mut self, case: &Case, path: &str) {
        for restrict in &case.restrict {
            self.section(&format!("[[{path}.restrict]]"));
            let name = &case.variables[restrict.variable].name;
            let keep = format!(
                "{} = {}",
                bare(name),
                list(restrict.values.iter().map(value))
            );
            self.plain("keep", &inline([keep].into_iter()));
            if let Some(when) = &restrict.when {
                self.plain("when", &text(when.text()));
            }
        }
        let require = case.require.iter().map(|rule| ("require", "that", rule));
        let exclude = case.exclude.iter().map(|rule| ("exclude", "when", rule));
        for (list, key, rule) in require.chain(exclude) {
            self.section(&format!("[[{path}.{list}]]"));
            let origin = format!("{path}.rule.{}", rule.when.text());
            self.key_from(&origin, key, &text(rule.when.text()));
            self.key_from(&origin, "reason", &text(&rule.reason));
        }
        for extra in &case.include {
            self.include(case, path, extra);
        }
    }

    fn include(&mut self, case: &Case, path: &str, extra: &Include) {
        self.section(&format!("[[{path}.include]]"));
        let mut cells = Vec::new();
        for (dimension, row) in case.dimensions.iter().zip(&extra.rows) {
            for (column, held) in dimension.columns.iter().zip(&dimension.rows[*row]) {
                cells.push(format!(
                    "{} = {}",
                    bare(&case.variables[*column].name),
                    value(held)
                ));
            }
        }
        self.plain("point", &inline(cells.into_iter()));
        let backends = extra
            .backends
            .iter()
            .map(|index| text(case.backends[*index].0.name));
        self.plain("backends", &list(backends));
        self.plain(
            "phases",
            &list(extra.phases.iter().map(|phase| text(phase.name()))),
        );
    }

    /// A key whose origin is not kept.
    fn plain(&mut self, key: &str, value: &str) {
        self.out.push_str(&format!("{} = {value}\n", bare(key)));
    }

    fn plan(&mut self, manifest: &Manifest) {
        let plan = &manifest.plan;
        self.section("[plan]");
        match plan.canonical {
            Canonical::Dominating => self.key("plan", "canonical", "\"dominating\""),
            Canonical::Published {
                max_canonical_shapes,
                samples_per_shape,
            } => {
                self.key("plan", "canonical", "\"published\"");
                self.key(
                    "plan",
                    "max_canonical_shapes",
                    &max_canonical_shapes.to_string(),
                );
                self.key("plan", "samples_per_shape", &samples_per_shape.to_string());
            }
        }
        self.key("plan", "order", &text(plan.order.word()));
        if plan.buckets.is_empty() {
            return;
        }
        self.section("[plan.buckets]");
        for (name, buckets) in &plan.buckets {
            let buckets = list(buckets.iter().map(u64::to_string));
            self.key("plan.buckets", name, &buckets);
        }
    }

    fn device_and_cache(&mut self, manifest: &Manifest) {
        self.section("[device]");
        let device = match &manifest.device.use_ {
            DeviceUse::Auto => text("auto"),
            DeviceUse::Cpu => text("cpu"),
            DeviceUse::Null => text("null"),
            DeviceUse::AllCuda => text("cuda:all"),
            DeviceUse::Cuda(list_of) => {
                list(list_of.iter().map(|index| text(&format!("cuda:{index}"))))
            }
        };
        self.key("device", "use", &device);
        self.key("device", "threads", &manifest.device.threads.to_string());
        let hardware = &manifest.device.hardware;
        if let Some(name) = &hardware.name {
            self.key("device", "hardware", &text(name));
        }
        for (name, peak) in [
            ("peak_gflops", hardware.peak_gflops),
            ("peak_bandwidth", hardware.peak_bandwidth_gbps),
        ] {
            if let Some(peak) = peak {
                self.key("device", name, &float(peak));
            }
        }
        let cache = &manifest.cache;
        self.section("[cache]");
        if let Some(dir) = &cache.dir {
            self.key("cache", "dir", &path_text(dir));
        }
        self.key("cache", "size_gb", &float(cache.size_bytes as f64 / GB));
        let upstream = cache.upstream.iter().map(|path| path_text(path));
        self.key("cache", "upstream", &list(upstream));
        let threads = match cache.compile_threads {
            Threads::All => text("all"),
            Threads::Count(count) => count.to_string(),
        };
        self.key("cache", "compile_threads", &threads);
    }

    fn measure(&mut self, manifest: &Manifest) {
        let measure = &manifest.measure;
        self.section("[measure]");
        match measure.stopping {
            Stopping::Repeats(repeats) => self.key("measure", "repeats", &repeats.to_string()),
            Stopping::Adaptive {
                min_samples,
                max_samples,
                max_rel_ci,
                max_time,
            } => {
                self.key("measure", "min_samples", &min_samples.to_string());
                self.key("measure", "max_samples", &max_samples.to_string());
                self.key("measure", "max_rel_ci", &float(max_rel_ci));
                self.key("measure", "max_seconds", &float(max_time.as_secs_f64()));
            }
        }
        let warmup = match measure.warmup {
            Warmup::Auto => text("auto"),
            Warmup::Runs(runs) => runs.to_string(),
        };
        self.key("measure", "warmup", &warmup);
        if measure.fresh_starts > 0 {
            let count = measure.fresh_starts.to_string();
            self.key("measure", "fresh_starts", &count);
        }
        self.key("measure", "l2", &text(measure.l2.word()));
        let modes = measure.modes.iter().map(|mode| text(mode.word()));
        self.key("measure", "mode", &list(modes));
        self.key("measure", "verify", &measure.verify.to_string());
    }

    fn limits(&mut self, manifest: &Manifest) {
        let limits = &manifest.limits;
        self.section("[limits]");
        if let Some(bytes) = limits.max_memory_bytes {
            self.key("limits", "max_memory_gb", &float(bytes as f64 / GB));
        }
        if let Some(prune) = &limits.prune {
            let on = list(prune.on.iter().map(|status| text(status.word())));
            let along = list(prune.along.iter().map(|name| text(name)));
            let rule = inline([format!("on = {on}"), format!("along = {along}")].into_iter());
            let given = ["limits.prune", "limits.skip_adjacent_oom"];
            let origin = given.into_iter().find(|path| manifest.provenance.has(path));
            self.key_from(origin.unwrap_or("limits.prune"), "prune", &rule);
        }
        self.key(
            "limits",
            "compile_timeout_s",
            &float(limits.compile_timeout.as_secs_f64()),
        );
        self.key(
            "limits",
            "point_timeout_s",
            &float(limits.point_timeout.as_secs_f64()),
        );
        self.key(
            "limits",
            "oracle_s",
            &float(limits.oracle_time.as_secs_f64()),
        );
        self.key(
            "limits",
            "anchor_s",
            &float(limits.anchor_interval.as_secs_f64()),
        );
        if let Some(points) = limits.max_points {
            self.key("limits", "max_points", &points.to_string());
        }
    }

    fn output(&mut self, manifest: &Manifest) {
        self.section("[output]");
        self.key("output", "dir", &path_text(&manifest.output.dir));
        let exports = manifest.output.exports.iter().map(|name| text(name));
        self.key("output", "exports", &list(exports));
        let report = &manifest.report;
        self.section("[report]");
        if let Some(baseline) = report.baseline {
            self.key("report", "baseline", &text(baseline));
        }
        self.key("report", "iterations", &report.iterations.to_string());
        let plots = match &report.plots {
            Plots::All => text("all"),
            Plots::Names(names) => list(names.iter().map(|name| text(name))),
        };
        self.key("report", "plots", &plots);
        let formats = report.formats.iter().map(|format| text(format.word()));
        self.key("report", "format", &list(formats));
    }

    fn null(&mut self, manifest: &Manifest) {
        let Some(null) = &manifest.null else { return };
        self.section("[null]");
        self.key("null", "time_ns", &text(&null.time_ns));
        if let Some(memory) = &null.memory_bytes {
            self.key("null", "memory_bytes", &text(memory));
        }
        self.key("null", "noise", &float(null.noise));
        self.key("null", "units", &null.units.to_string());
        let outcomes = null.outcomes.iter().map(|(when, status)| {
            let cells = [
                format!("when = {}", text(when)),
                format!("status = {}", text(status.word())),
            ];
            inline(cells.into_iter())
        });
        self.key("null", "outcomes", &list(outcomes));
    }
}

/// The values of a plain axis, with its condition.
fn axis(dimension: &Dimension) -> String {
    let rows = dimension.rows[..dimension.swept].iter();
    let values = list(rows.map(|row| value(&row[0])));
    let Some(conditional) = &dimension.when else {
        return values;
    };
    let cells = [
        format!("values = {values}"),
        format!("when = {}", text(conditional.condition.text())),
        format!("else = {}", value(&conditional.otherwise[0])),
    ];
    inline(cells.into_iter())
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(", "))
}

fn inline(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<String> = entries.collect();
    format!("{{ {} }}", entries.join(", "))
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(word) => text(word),
        Value::Float(number) => float(*number),
        other => other.to_string(),
    }
}

/// A float that is read again as the same float.
fn float(value: f64) -> String {
    format!("{value:?}")
}

/// A key, in quotes where TOML wants them.
fn bare(key: &str) -> String {
    let plain = |c: char| matches!(c, '_' | '-') || c.is_ascii_alphanumeric();
    if !key.is_empty() && key.chars().all(plain) {
        return key.to_owned();
    }
    text(key)
}

fn path_text(path: &Path) -> String {
    text(&path.to_string_lossy())
}

/// A TOML basic string.
fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
