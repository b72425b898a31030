//! The identity of a manifest: the canonical form of the keys that change the meaning of rows.
//!
//! Hashed: cases with their grids, zips, derived values and rules, the script of the test device,
//! and the settings whose entry marks them as part of the identity. Not hashed: names, reasons,
//! `needs`, every order (of keys, values, cases, rules), and all other settings, which are stored
//! with the run.

use sweeper_program::Value;

use crate::model::case::{Case, Dimension, Include, NullScript};
use crate::model::manifest::Manifest;
use crate::setting::{Data, Identity, sections};
use sweeper_model::expression::Expression;
use sweeper_model::identity::{Digest, Encoder, ManifestHash};
use sweeper_model::word::Word;

pub(crate) fn hash(manifest: &Manifest) -> ManifestHash {
    let mut encoder = Encoder::new("manifest");
    for (section, settings) in sections() {
        for setting in settings {
            if let Identity::Hashed(tag) = setting.identity
                && let Some(data) = setting.kind.get(manifest)
            {
                value(&mut encoder, tag, &data);
            }
        }
        // The cases stand at the top, too.
        if section.is_empty() {
            encoder.set("cases", manifest.cases.iter().map(case).collect());
        }
    }
    ManifestHash(encoder.finish())
}

fn value(encoder: &mut Encoder, tag: &str, data: &Data) {
    match data {
        Data::Bool(value) => encoder.value(tag, &Value::Bool(*value)),
        Data::Integer(value) => encoder.unsigned(tag, *value),
        Data::Float(value) => encoder.value(tag, &Value::Float(*value)),
        Data::Time(time) => {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            encoder.unsigned(tag, nanoseconds)
        }
        Data::Text(text) => encoder.text(tag, text),
        Data::List(items) => encoder.set(tag, items.iter().map(item).collect()),
        Data::Inline(entries) => {
            encoder.list(tag, entries.len());
            for (name, data) in entries {
                value(encoder, name, data);
            }
            encoder
        }
        Data::Named(lists) => {
            encoder.list(tag, lists.len());
            for (name, list) in lists {
                encoder.list(name, list.len());
                for bucket in list {
                    encoder.unsigned("bucket", *bucket);
                }
            }
            encoder
        }
    };
}

/// An item of a list.
fn item(data: &Data) -> Digest {
    if let Data::Text(text) = data {
        return word(text);
    }
    let mut encoder = Encoder::new("item");
    value(&mut encoder, "is", data);
    encoder.finish()
}

fn case(case: &Case) -> Digest {
    let backends = case.backends.iter();
    let backends = backends.map(|backend| word(&case.workload.backend_identity(backend.0.name)));
    let phases = case.phases.iter().map(|phase| word(phase.name()));
    let dimensions = case.dimensions.iter().map(|each| dimension(case, each));
    let mut encoder = Encoder::new("case");
    encoder
        .text("workload", &case.workload.identity())
        .text("dtype", case.dtype.name())
        .set("backends", backends.collect())
        .set("phases", phases.collect())
        .set("dimensions", dimensions.collect());
    if let Some(inputs) = &case.inputs {
        encoder.digest("inputs", &inputs.digest);
    }
    rules(&mut encoder, case);
    if let Some(null) = &case.null {
        script(&mut encoder, null);
    }
    encoder.finish()
}

fn rules(encoder: &mut Encoder, case: &Case) {
    let derived = case
        .derived
        .iter()
        .map(|each| named(&each.name, &each.expression));
    let excluded = case.exclude.iter().map(|rule| word(rule.when.canonical()));
    let included = case.include.iter().map(|each| include(case, each));
    encoder
        .set("derive", derived.collect())
        // Rules that were removed from the format: ids of older runs stay valid.
        .set("restrict", Vec::new())
        .set("require", Vec::new())
        .set("exclude", excluded.collect())
        .set("include", included.collect());
}

fn script(encoder: &mut Encoder, null: &NullScript) {
    encoder.text("time_ns", null.time_ns.canonical());
    if let Some(memory) = &null.memory_bytes {
        encoder.text("memory_bytes", memory.canonical());
    }
    // The first condition that holds decides, so the order of conditions matters.
    encoder.list("outcomes", null.outcomes.len());
    for (when, status) in &null.outcomes {
        encoder
            .text("when", when.canonical())
            .text("status", status.word());
    }
}

fn word(word: &str) -> Digest {
    Encoder::new("word").text("word", word).finish()
}

fn named(name: &str, expression: &Expression) -> Digest {
    let mut encoder = Encoder::new("derived");
    encoder
        .text("name", name)
        .text("is", expression.canonical());
    encoder.finish()
}

fn dimension(case: &Case, dimension: &Dimension) -> Digest {
    let rows = dimension.rows[..dimension.swept].iter();
    let mut encoder = Encoder::new("dimension");
    encoder.set(
        "rows",
        rows.map(|values| row(case, dimension, values)).collect(),
    );
    if let Some(conditional) = &dimension.when {
        encoder
            .text("when", conditional.condition.canonical())
            .digest("else", &row(case, dimension, &conditional.otherwise));
    }
    encoder.finish()
}

/// A row as named values: the order of columns does not matter.
fn row(case: &Case, dimension: &Dimension, values: &[Value]) -> Digest {
    let names = dimension
        .columns
        .iter()
        .map(|column| &case.variables[*column].name);
    let cells = names.zip(values).map(|(name, value)| {
        let mut encoder = Encoder::new("cell");
        encoder.text("name", name).value("is", value);
        encoder.finish()
    });
    Encoder::new("row").set("cells", cells.collect()).finish()
}

fn include(case: &Case, include: &Include) -> Digest {
    let rows = case.dimensions.iter().zip(&include.rows);
    let mut encoder = Encoder::new("include");
    encoder
        .set(
            "rows",
            rows.map(|(dim, index)| row(case, dim, &dim.rows[*index]))
                .collect(),
        )
        .set(
            "backends",
            include
                .backends
                .iter()
                .map(|index| word(case.backends[*index].0.name))
                .collect(),
        )
        .set(
            "phases",
            include
                .phases
                .iter()
                .map(|phase| word(phase.name()))
                .collect(),
        );
    encoder.finish()
}
