//! Differences between the surroundings of two sides: read this before any ratio.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::record::environment::Environment;
use crate::report::source::Source;
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::quantity;
use sweeper_model::row::outcome::Flag;

/// A field in which two sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The field, such as `toolchain` or `device driver`.
    pub field: String,
    /// The field's values among the runs of A; none where no run has the field.
    pub a: Vec<String>,
    /// The field's values among the runs of B.
    pub b: Vec<String>,
}

/// Texts of a side that are declared at most.
const MOST: usize = 3;

impl Change {
    /// The declaration of a column in which points differ, each with the texts of both sides; none
    /// where no point differs.
    pub(super) fn of_points(column: &str, points: &[[Vec<String>; 2]]) -> Option<Self> {
        let field = match points.len() {
            0 => return None,
            1 => format!("{column} of 1 point"),
            count => format!("{column} of {count} points"),
        };
        let [a, b] = [0, 1].map(|side| {
            let mut all: Vec<String> = Vec::new();
            for text in points.iter().flat_map(|point| &point[side]) {
                if !all.contains(text) {
                    all.push(text.clone());
                }
            }
            let more = all.len().saturating_sub(MOST);
            all.truncate(MOST);
            all.extend((more > 0).then(|| format!("{more} more")));
            all
        });
        Some(Change { field, a, b })
    }
}

/// Descriptions of a side, by field, in the order of reports.
type Fields = BTreeMap<(u8, String), BTreeSet<String>>;

/// The fields in which the sides differ, the weightiest first, and warnings about differences
/// between the runs of one side.
pub(super) fn changes(sides: [&[Source]; 2]) -> (Vec<Change>, Vec<String>) {
    let [a, b] = sides.map(fields);
    let names: BTreeSet<&(u8, String)> = a.keys().chain(b.keys()).collect();
    let values = |fields: &Fields, name: &(u8, String)| -> Vec<String> {
        fields.get(name).into_iter().flatten().cloned().collect()
    };
    let mut changes = Vec::new();
    let mut warnings = Vec::new();
    for name in names {
        let (a, b) = (values(&a, name), values(&b, name));
        for (side, values) in [("A", &a), ("B", &b)] {
            if values.len() > 1 && IDENTITIES.contains(&name.1.as_str()) {
                warnings.push(format!(
                    "runs of {side} differ in their {}: {}",
                    name.1,
                    values.join(", ")
                ));
            }
        }
        if a != b {
            let field = name.1.clone();
            changes.push(Change { field, a, b });
        }
    }
    (changes, warnings)
}

/// Fields that runs of one side should share.
const IDENTITIES: [&str; 5] = [
    "device",
    "toolchain",
    "engine sources",
    "kernel sources",
    "manifest hash",
];

fn fields(sources: &[Source]) -> Fields {
    let mut fields = Fields::new();
    let mut add = |weight: u8, name: &str, value: String| {
        if !value.is_empty() {
            fields
                .entry((weight, name.to_owned()))
                .or_default()
                .insert(value);
        }
    };
    for source in sources {
        if let Some(environment) = &source.environment {
            of_environment(environment, &mut add);
        }
        for device in source.usage.iter().flat_map(|usage| &usage.devices) {
            if let Some(ceilings) = &device.ceilings {
                of_ceilings(ceilings, &mut add);
            }
        }
        for (name, digest) in own_sources(source) {
            add(0, &name, digest);
        }
        let of = |name: &str| -> BTreeSet<String> {
            let values = source.entries.iter().filter_map(|entry| entry.axis(name));
            values.map(|value| value.to_string()).collect()
        };
        let words = |name: &str| of(name).into_iter().collect::<Vec<_>>().join(", ");
        if source.environment.is_none() {
            add(0, "device", words("device_name"));
        }
        add(3, "threads", words("threads"));
        add(3, "cache before a sample", words("l2"));
        add(3, "launched as", words("mode"));
        if let Some(mhz) = median_clock_mhz(source) {
            // A step of the clock, not every megahertz.
            add(4, "median clock", format!("{} MHz", (mhz + 25) / 50 * 50));
        }
        for (flag, name) in [
            (Flag::Throttled, "throttled rows"),
            (Flag::SharedGpu, "rows of a shared GPU"),
        ] {
            let found = source.entries.iter();
            let found = found.filter_map(|entry| entry.measurement.as_deref());
            let flagged = found.filter(|found| found.flags.contains(&flag));
            add(4, name, flagged.count().to_string());
        }
    }
    fields
}

/// The files of declared backends and workloads in a run, with the beginnings of their digests.
fn own_sources(source: &Source) -> Vec<(String, String)> {
    let manifest: Option<toml::Table> = source.manifest.as_deref().and_then(|it| it.parse().ok());
    let mut found = Vec::new();
    for section in ["backend", "workload"] {
        let declared = manifest.as_ref().and_then(|it| it.get(section)?.as_table());
        for (name, table) in declared.into_iter().flatten() {
            add_sources(name, table, &mut found);
        }
    }
    found
}

/// Adds those of a declaration and of the tables in it, as that of a workload's reference.
fn add_sources(name: &str, declared: &toml::Value, found: &mut Vec<(String, String)>) {
    for (key, value) in declared.as_table().into_iter().flatten() {
        match value.as_table() {
            Some(digests) if key == "digests" => {
                for (file, digest) in digests {
                    let digits = digest.as_str().unwrap_or_default().chars().take(12);
                    found.push((format!("source {file} of {name}"), digits.collect()));
                }
            }
            Some(_) => add_sources(&format!("{name}.{key}"), value, found),
            None => {}
        }
    }
}

/// Ceilings that the device was taken to have: efficiencies are parts of them.
fn of_ceilings(ceilings: &Ceilings, add: &mut impl FnMut(u8, &str, String)) {
    let rate = |per_s: f64, unit: &str| format!("{}{unit}", quantity::scaled(per_s));
    add(
        4,
        "ceiling of copies",
        rate(ceilings.copy_bytes_per_s, "B/s"),
    );
    for (kind, &per_s) in &ceilings.flops_per_s {
        add(4, &format!("ceiling of {kind}"), rate(per_s, "flop/s"));
    }
}

fn of_environment(environment: &Environment, add: &mut impl FnMut(u8, &str, String)) {
    let identity = &environment.identity;
    for device in &identity.devices {
        add(0, "device", device.name.clone());
        add(0, "device unit", device.unit.clone());
        for (name, value) in &device.details {
            add(1, &format!("device {name}"), value.clone());
        }
    }
    add(2, "toolchain", identity.toolchain.clone());
    add(2, "kernel sources", identity.kernels.to_string());
    add(2, "engine sources", identity.engine.to_string());
    add(2, "version", environment.version.clone());
    add(5, "manifest", environment.name.clone());
    add(5, "manifest hash", identity.manifest.to_string());
    add(5, "run", identity.run.to_string());
    for (name, value) in &environment.host {
        add(6, &format!("host {name}"), value.clone());
    }
    for (name, value) in &environment.variables {
        add(7, name, value.clone());
    }
}

fn median_clock_mhz(source: &Source) -> Option<u32> {
    let clocks = source
        .entries
        .iter()
        .filter_map(|entry| Some(entry.measurement.as_ref()?.clocks.as_ref()?.sm_mhz));
    let mut clocks: Vec<u32> = clocks.collect();
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied()
}
