//! The format as a JSON Schema (draft 2020-12), for editors.
//!
//! It says what a manifest may look like; what it may mean is judged by `Manifest::resolve` alone.

use serde_json::{Map, Value, json};
use sweeper_kernels::Phase;
use sweeper_kernels::workload::{ParameterKind, WorkloadInfo};

use super::settings::{EXPORTS, L2, Launching, Order, PLOTS, PlotFormat, Word};
use crate::status::Status;

/// The JSON Schema of manifests for these workloads.
pub fn schema(registry: &[&'static WorkloadInfo]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sweeper manifest",
        "type": "object",
        "required": ["schema"],
        "additionalProperties": false,
        "properties": top(),
        "$defs": definitions(registry),
    })
}

fn top() -> Value {
    merged([
        json!({
            "schema": described(json!({ "const": super::SCHEMA }), "version of the format"),
            "extends": described(string(), "manifest that this one is laid over, relative to this one"),
            "name": described(string(), "names the folders of runs; the file's name by default"),
            "about": described(string(), "the question that the sweep answers"),
            "tags": described(list(string()), "words to find it by"),
            "cases": described(list(string()), "cases that are run; all by default"),
            "seed": described(whole(0), "inputs and orders derive from it"),
            "case": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": { "$ref": "#/$defs/case" },
            },
        }),
        shared(),
        json!({
            "plan": plan(),
            "device": device(),
            "cache": cache(),
            "measure": measure(),
            "limits": limits(),
            "output": object(json!({
                "dir": described(string(), "folder of the runs' folders"),
                "exports": described(list(one_of(EXPORTS)), "guides' file formats"),
            }), &[]),
            "report": object(json!({
                "baseline": described(string(), "backend that ratios are relative to"),
                "iterations": described(whole(1), "iterations of the loop that economics is about"),
                "plots": { "anyOf": [{ "const": "all" }, list(one_of(PLOTS))] },
                "format": list(words::<PlotFormat>()),
            }), &[]),
            "null": null_device(),
        }),
    ])
}

/// What may be shared by all cases, or belong to one.
fn shared() -> Value {
    let tie = |properties: Value, required: &[&str]| {
        let more = json!({
            "when": expression(),
            "else": { "type": "object", "additionalProperties": scalar() },
        });
        tables(object(merged([properties, more]), required))
    };
    let reason = described(string(), "why, for people");
    json!({
        "grid": described(axes(), "axes, multiplied"),
        "derive": { "type": "object", "additionalProperties": expression() },
        "zip": tie(json!({ "axes": axes() }), &["axes"]),
        "table": tie(
            json!({ "cols": list(string()), "rows": { "type": "array", "items": list(scalar()) } }),
            &["cols", "rows"],
        ),
        "restrict": tables(object(
            json!({ "keep": { "type": "object", "additionalProperties": list(scalar()) }, "when": expression() }),
            &["keep"],
        )),
        "require": tables(object(json!({ "that": expression(), "reason": reason }), &["that"])),
        "exclude": tables(object(json!({ "when": expression(), "reason": reason }), &["when"])),
        "include": tables(object(
            json!({
                "case": string(),
                "point": { "type": "object", "additionalProperties": scalar() },
                "backends": list(string()),
                "phases": list(string()),
            }),
            &["point"],
        )),
    })
}

fn plan() -> Value {
    object(
        json!({
            "buckets": { "type": "object", "additionalProperties": list(whole(1)) },
            "canonical": { "enum": ["dominating", "published"] },
            "max_canonical_shapes": described(whole(1), "of the published sampling alone"),
            "samples_per_shape": described(whole(1), "of the published sampling alone"),
            "order": words::<Order>(),
        }),
        &[],
    )
}

fn device() -> Value {
    let name =
        json!({ "type": "string", "pattern": "^(auto|cpu|null|cuda|cuda:all|cuda:[0-9]+)$" });
    object(
        json!({
            "use": described(list(name), "where programs run"),
            "threads": described(threads(), "CPU threads of a measured program"),
            "hardware": described(string(), "what calibration profiles call the device"),
            "peak_gflops": described(positive(), "its theoretical f32 operations a second, in 10^9"),
            "peak_bandwidth": described(positive(), "its theoretical bytes of memory a second, in 10^9"),
        }),
        &[],
    )
}

fn cache() -> Value {
    object(
        json!({
            "dir": described(string(), "folder of the kernel cache; `${NAME:-default}` is expanded"),
            "size_gb": described(positive(), "size in units of 2^30 bytes"),
            "upstream": described(list(string()), "caches or bundles that are only read"),
            "compile_threads": described(threads(), "threads that compile, or `all`"),
        }),
        &[],
    )
}

fn measure() -> Value {
    object(
        json!({
            "repeats": described(whole(1), "samples of each point; excludes the adaptive rule"),
            "min_samples": whole(1),
            "max_samples": whole(1),
            "max_rel_ci": described(positive(), "relative width of the median's 95 % interval"),
            "max_seconds": positive(),
            "warmup": { "anyOf": [{ "const": "auto" }, whole(0)] },
            "fresh_starts": described(whole(0), "processes in which each program is started by itself, to know what starting takes"),
            "l2": words::<L2>(),
            "mode": described(
                json!({ "anyOf": [words::<Launching>(), list(words::<Launching>())] }),
                "how a GPU is told what to do, in one way or several",
            ),
            "verify": { "type": "boolean" },
        }),
        &[],
    )
}

fn limits() -> Value {
    object(
        json!({
            "max_memory_gb": positive(),
            "skip_adjacent_oom": { "type": "boolean" },
            "prune": object(
                json!({ "on": list(words::<Status>()), "along": list(string()) }),
                &["on", "along"],
            ),
            "compile_timeout_s": positive(),
            "point_timeout_s": positive(),
            "oracle_s": positive(),
            "anchor_s": positive(),
            "max_points": whole(1),
        }),
        &[],
    )
}

fn null_device() -> Value {
    let outcome = object(
        json!({ "when": expression(), "status": words::<Status>() }),
        &["when", "status"],
    );
    object(
        json!({
            "time_ns": expression(),
            "memory_bytes": expression(),
            "noise": { "type": "number", "minimum": 0, "exclusiveMaximum": 1 },
            "units": described(whole(1), "devices to pretend"),
            "outcomes": { "type": "array", "items": outcome },
        }),
        &["time_ns"],
    )
}

fn definitions(registry: &[&'static WorkloadInfo]) -> Value {
    json!({
        "scalar": { "type": ["string", "number", "boolean"] },
        "expression": { "type": ["string", "number", "boolean"] },
        "axis": { "anyOf": [{ "$ref": "#/$defs/scalar" }, list(scalar()), form()] },
        "case": case(registry),
    })
}

/// An axis as a table: one form, its options, and perhaps a condition.
fn form() -> Value {
    let ends =
        json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
    object(
        json!({
            "values": { "anyOf": [scalar(), list(scalar())] },
            "pow2": ends, "mid": whole(0),
            "geom": ends, "factor": { "type": "number" },
            "range": ends, "through": ends, "step": { "type": "number" },
            "linspace": ends, "logspace": ends, "num": whole(2),
            "csv": string(), "col": string(),
            "when": expression(),
            "else": scalar(),
        }),
        &[],
    )
}

fn case(registry: &[&'static WorkloadInfo]) -> Value {
    let names: Vec<&str> = registry.iter().map(|info| info.name).collect();
    let backends = registry.iter().flat_map(|info| info.backends);
    let backends = backends.flat_map(|each| std::iter::once(&each.name).chain(each.aliases));
    let phases: Vec<&str> = Phase::ALL.iter().map(|phase| phase.name()).collect();
    let dtypes = registry
        .iter()
        .flat_map(|info| info.dtypes.iter().map(|dtype| dtype.name()));
    let mut parameters = Map::new();
    for parameter in registry.iter().flat_map(|info| info.parameters) {
        let about = match parameter.kind {
            ParameterKind::Choice(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("{} ({})", parameter.about, words.join(", "))
            }
            _ => parameter.about.to_owned(),
        };
        parameters.insert(parameter.name.to_owned(), described(axis(), &about));
    }
    let own = json!({
        "workload": { "enum": names },
        "backends": list(one_of(&unique(backends.copied()))),
        "phases": list(one_of(&phases)),
        "dtype": one_of(&unique(dtypes)),
        "inputs": described(string(), "file of tensors, relative to the manifest"),
        "needs": described(list(string()), "cases that must have finished first"),
    });
    // `workload` may come from the manifest that is extended.
    object(merged([Value::Object(parameters), own, shared()]), &[])
}

fn unique<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words: Vec<&str> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn axes() -> Value {
    json!({ "type": "object", "additionalProperties": axis() })
}

fn axis() -> Value {
    json!({ "$ref": "#/$defs/axis" })
}

fn scalar() -> Value {
    json!({ "$ref": "#/$defs/scalar" })
}

fn expression() -> Value {
    json!({ "$ref": "#/$defs/expression" })
}

fn string() -> Value {
    json!({ "type": "string" })
}

fn whole(minimum: i64) -> Value {
    json!({ "type": "integer", "minimum": minimum })
}

fn positive() -> Value {
    json!({ "type": "number", "exclusiveMinimum": 0 })
}

fn threads() -> Value {
    json!({ "anyOf": [whole(1), string()] })
}

fn words<W: Word>() -> Value {
    let words: Vec<&str> = W::WORDS.iter().map(|(word, _)| *word).collect();
    one_of(&words)
}

fn one_of(words: &[&str]) -> Value {
    json!({ "enum": words })
}

/// A list of items; a single one is a list of one.
fn list(item: Value) -> Value {
    json!({ "anyOf": [item.clone(), { "type": "array", "items": item }] })
}

/// A list of tables, or a single one.
fn tables(table: Value) -> Value {
    list(table)
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn described(mut schema: Value, description: &str) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), description.into());
    }
    schema
}

fn merged<const N: usize>(objects: [Value; N]) -> Value {
    let mut all = Map::new();
    for object in objects {
        if let Value::Object(object) = object {
            all.extend(object);
        }
    }
    Value::Object(all)
}
