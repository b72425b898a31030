//! The full manifest as TOML again: every key, with all shared settings resolved into the cases.
//!
//! Reading the printed text yields an equal manifest; its comments name the origin of each value.

use std::fmt::Write;

use crate::model::case::{Case, Dimension, Include};
use crate::model::manifest::Manifest;
use crate::setting::{Data, Setting, sections};
use crate::text::provenance::Origin;
use sweeper_model::toml_text;

/// Columns that comments are aligned to.
const COMMENT_COLUMN: usize = 56;

pub(crate) fn toml(manifest: &Manifest, comments: bool) -> String {
    let mut printer = Printer {
        out: String::new(),
        comments: comments.then_some(manifest),
    };
    for (name, settings) in sections() {
        printer.settings(manifest, name, settings);
        if name.is_empty() {
            for table in &manifest.declared {
                printer.section(&format!("[{}]", table.path));
                for (key, value) in &table.keys {
                    let mut in_run = table.in_run.iter().filter(|_| !comments);
                    let held = in_run.find(|(held, _)| held == key);
                    let value = held.map_or(value, |(_, value)| value);
                    printer.key(&table.path, key, value);
                }
                let has = |key: &str| table.keys.iter().any(|(held, _)| held == key);
                let more = table
                    .in_run
                    .iter()
                    .filter(|(key, _)| !comments && !has(key));
                for (key, value) in more {
                    printer.key(&table.path, key, value);
                }
            }
            for case in &manifest.cases {
                printer.case(manifest, case);
            }
        }
    }
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

    /// A key whose origin is the origin of another path.
    fn key_from(&mut self, full: &str, key: &str, value: &str) {
        let line = format!("{} = {value}", toml_text::key(key));
        let Some(manifest) = self.comments else {
            self.out.push_str(&line);
            self.out.push('\n');
            return;
        };
        let origin = manifest.provenance().origin(full);
        let pad = COMMENT_COLUMN.saturating_sub(line.chars().count());
        let origin = match origin {
            Origin::Default => "default".to_owned(),
            other => other.to_string().replace(['\n', '\r'], " "),
        };
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{line}{} # {origin}", " ".repeat(pad));
    }

    /// A section of settings; one without a value is left out.
    fn settings(&mut self, manifest: &Manifest, name: &str, settings: &[Setting]) {
        let held: Vec<(&Setting, Data)> = settings
            .iter()
            .filter_map(|setting| Some((setting, setting.kind.get(manifest)?)))
            .collect();
        if !name.is_empty() && !held.is_empty() {
            self.section(&format!("[{name}]"));
        }
        for (setting, data) in &held {
            if !matches!(data, Data::Named(_)) {
                self.key(name, setting.key(), &value_of(data));
            }
        }
        for (setting, data) in &held {
            if let Data::Named(lists) = data
                && !lists.is_empty()
            {
                self.section(&format!("[{}]", setting.path));
                for (name, integers) in lists {
                    let integers = toml_text::list(integers.iter().map(u64::to_string));
                    self.key(setting.path, name, &integers);
                }
            }
        }
    }

    fn case(&mut self, manifest: &Manifest, case: &Case) {
        let path = format!("case.{}", case.name);
        self.section(&format!("[{path}]"));
        let workload = case.workload.info.name;
        self.key(&path, "workload", &toml_text::string(workload));
        let backends = case.backends.iter().map(|backend| backend.0.name);
        self.key(&path, "backends", &toml_text::strings(backends));
        let phases = case.phases.iter().map(|phase| phase.name());
        self.key(&path, "phases", &toml_text::strings(phases));
        self.key(&path, "dtype", &toml_text::string(case.dtype.name()));
        if let Some(inputs) = &case.inputs {
            self.key(
                &path,
                "inputs",
                &toml_text::string(&inputs.path.to_string_lossy()),
            );
        }
        let needs = case.needs.iter().map(|need| &*manifest.cases[*need].name);
        if needs.len() > 0 {
            self.key(&path, "needs", &toml_text::strings(needs));
        }
        self.axes(case, &path);
        if !case.derived.is_empty() {
            self.section(&format!("[{path}.derive]"));
            for derived in &case.derived {
                let text = toml_text::string(derived.expression.text());
                self.key(&format!("{path}.derive"), &derived.name, &text);
            }
        }
        self.rules(case, &path);
    }

    /// Plain axes first, then axes with several columns: the order in which they are read.
    fn axes(&mut self, case: &Case, path: &str) {
        let plain = |dimension: &&Dimension| dimension.columns.len() == 1;
        self.section(&format!("[{path}.grid]"));
        for dimension in case.dimensions.iter().filter(plain) {
            let variable = &case.variables[dimension.columns[0]];
            if variable.given {
                self.key(&format!("{path}.grid"), &variable.name, &axis(dimension));
            }
        }
        for dimension in case.dimensions.iter().filter(|each| !plain(each)) {
            self.section(&format!("[[{path}.zip]]"));
            let names: Vec<&str> = dimension
                .columns
                .iter()
                .map(|column| &*case.variables[*column].name)
                .collect();
            let origin = format!("{path}.grid.{}", names[0]);
            let rows = &dimension.rows[..dimension.swept];
            let axes = names.iter().enumerate().map(|(column, name)| {
                let values = rows.iter().map(|row| toml_text::value(&row[column]));
                (*name, toml_text::list(values))
            });
            self.key_from(&origin, "axes", &toml_text::inline(axes));
            if let Some(conditional) = &dimension.when {
                let when = toml_text::string(conditional.condition.text());
                self.key_from(&origin, "when", &when);
                let cells = names.iter().zip(&conditional.otherwise);
                let cells = cells.map(|(name, held)| (*name, toml_text::value(held)));
                self.key_from(&origin, "else", &toml_text::inline(cells));
            }
        }
    }

    fn rules(&mut self, case: &Case, path: &str) {
        for rule in &case.exclude {
            self.section(&format!("[[{path}.exclude]]"));
            let origin = format!("{path}.rule.{}", rule.when.text());
            self.key_from(&origin, "when", &toml_text::string(rule.when.text()));
            self.key_from(&origin, "reason", &toml_text::string(&rule.reason));
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
                cells.push((&*case.variables[*column].name, toml_text::value(held)));
            }
        }
        self.plain("point", &toml_text::inline(cells.into_iter()));
        let backends = extra.backends.iter();
        let backends = backends.map(|index| case.backends[*index].0.name);
        self.plain("backends", &toml_text::strings(backends));
        let phases = extra.phases.iter().map(|phase| phase.name());
        self.plain("phases", &toml_text::strings(phases));
    }

    /// A key whose origin is not kept.
    fn plain(&mut self, key: &str, value: &str) {
        self.out
            .push_str(&format!("{} = {value}\n", toml_text::key(key)));
    }
}

/// The value of a setting as TOML.
pub(crate) fn value_of(data: &Data) -> String {
    match data {
        Data::Bool(value) => value.to_string(),
        Data::Integer(value) => value.to_string(),
        Data::Float(value) => toml_text::float(*value),
        Data::Time(time) => toml_text::float(time.as_secs_f64()),
        Data::Text(value) => toml_text::string(value),
        Data::List(items) => toml_text::list(items.iter().map(value_of)),
        Data::Inline(entries) => {
            toml_text::inline(entries.iter().map(|(key, data)| (*key, value_of(data))))
        }
        Data::Named(lists) => {
            let lists = lists.iter().map(|(name, integers)| {
                (
                    &**name,
                    toml_text::list(integers.iter().map(u64::to_string)),
                )
            });
            toml_text::inline(lists)
        }
    }
}

/// The values of a plain axis, with its condition.
fn axis(dimension: &Dimension) -> String {
    let rows = dimension.rows[..dimension.swept].iter();
    let values = toml_text::list(rows.map(|row| toml_text::value(&row[0])));
    let Some(conditional) = &dimension.when else {
        return values;
    };
    let cells = [
        ("values", values),
        ("when", toml_text::string(conditional.condition.text())),
        ("else", toml_text::value(&conditional.otherwise[0])),
    ];
    toml_text::inline(cells.into_iter())
}
