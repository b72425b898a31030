//! Reading the settings of a manifest, and checking them against each other.

use std::collections::BTreeMap;

use super::{ADAPTIVE, PUBLISHED, Setting, sections};
use crate::grammar::section::{Context, Section};
use crate::model::manifest::Manifest;
use crate::model::settings::{Canonical, Stopping};
use crate::text::diagnostics::Code;
use crate::text::tree::Node;

/// The values that were written, by the paths of their settings.
pub(crate) type Given<'n> = BTreeMap<&'static str, &'n Node>;

/// Reads all settings below `root` into `manifest`.
pub(crate) fn settings<'n>(
    cx: &mut Context<'_>,
    root: &mut Section<'n>,
    manifest: &mut Manifest,
) -> Given<'n> {
    let mut given = Given::new();
    for (name, settings) in sections() {
        if name.is_empty() {
            keys(cx, root, settings, manifest, &mut given);
            continue;
        }
        let node = root.take(cx, name);
        let Some(mut section) = node.and_then(|node| cx.section(node, name)) else {
            continue;
        };
        keys(cx, &mut section, settings, manifest, &mut given);
        section.finish(cx);
    }
    stopping(cx, manifest, &given);
    published_only(cx, manifest, &given);
    given
}

/// Reads the keys of one section.
fn keys<'n>(
    cx: &mut Context<'_>,
    section: &mut Section<'n>,
    settings: &'static [Setting],
    manifest: &mut Manifest,
    given: &mut Given<'n>,
) {
    for setting in settings {
        // A missing version is reported with a text of its own.
        let node = match setting.is_needed && !section.path.is_empty() {
            true => section.need(cx, setting.key()),
            false => section.take(cx, setting.key()),
        };
        if let Some(node) = node {
            setting.kind.read(cx, node, setting.key(), manifest);
            given.insert(setting.path, node);
        }
    }
}

/// A fixed number of samples excludes the rule that stops by itself, whose bounds must be in order.
fn stopping(cx: &mut Context<'_>, manifest: &Manifest, given: &Given<'_>) {
    if let Some(repeats) = given.get("measure.repeats") {
        for node in ADAPTIVE.iter().filter_map(|path| given.get(path)) {
            let before = cx.name_of(repeats.at);
            let message = "`repeats` excludes the adaptive rule";
            cx.report(Code::Conflict, node.at, message)
                .label(format!("`repeats` is set at {before}"))
                .help("keep `repeats`, or min_samples, max_samples, max_rel_ci and max_seconds");
        }
        return;
    }
    let Stopping::Adaptive {
        min_samples,
        max_samples,
        ..
    } = manifest.measure.stopping
    else {
        return;
    };
    let given = given
        .get("measure.max_samples")
        .or(given.get("measure.min_samples"));
    if let (Some(node), true) = (given, max_samples < min_samples) {
        let message = "`max_samples` is less than `min_samples`";
        cx.report(Code::OutOfBounds, node.at, message)
            .label(format!("{max_samples} is less than {min_samples}"));
    }
}

fn published_only(cx: &mut Context<'_>, manifest: &Manifest, given: &Given<'_>) {
    if matches!(manifest.plan.canonical, Canonical::Published { .. }) {
        return;
    }
    for path in PUBLISHED {
        let Some(node) = given.get(path) else {
            continue;
        };
        let key = path.trim_start_matches("plan.");
        let message = format!("`{key}` belongs to the published sampling");
        cx.report(Code::PublishedOnly, node.at, message)
            .label("nothing is sampled here")
            .help("set `canonical = \"published\"`, or `--compile-friendly`");
    }
}
