//! `[null]`: what the scripted test device answers.

use std::sync::Arc;

use super::diagnostics::Code;
use super::section::{Context, Section};
use super::tree::Raw;
use super::wire::{self, WireText};
use crate::status::Status;

/// `[null]` as it was written.
#[derive(Clone, Debug)]
pub(super) struct WireNull {
    pub(super) time_ns: WireText,
    pub(super) memory_bytes: Option<WireText>,
    pub(super) noise: f64,
    pub(super) units: u32,
    pub(super) outcomes: Vec<(WireText, Status)>,
}

/// `[null]`, its expressions as text: each case has them ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct NullDevice {
    /// Median time in nanoseconds.
    pub time_ns: Arc<str>,
    /// Peak memory in bytes.
    pub memory_bytes: Option<Arc<str>>,
    /// Relative standard deviation of samples.
    pub noise: f64,
    /// How many devices it pretends to be; no part of any identity but the devices' own.
    pub units: u32,
    /// Conditions with the status they lead to; the first that holds decides.
    pub outcomes: Vec<(Arc<str>, Status)>,
}

impl WireNull {
    /// Reads the section.
    pub(super) fn read(cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<Self> {
        let time_ns = section.need(cx, "time_ns");
        let time_ns = time_ns.and_then(|node| wire::expression(cx, node, "time_ns"));
        let memory = section.take(cx, "memory_bytes");
        let memory_bytes = memory.and_then(|node| wire::expression(cx, node, "memory_bytes"));
        let noise = section.or(cx, "noise", 0.0, |cx, node, key| {
            let noise = cx.number(node, key)?;
            if (0.0..1.0).contains(&noise) {
                return Some(noise);
            }
            cx.report(Code::OutOfBounds, node.at, "`noise` is out of bounds")
                .label("from 0 to less than 1");
            None
        });
        let units = section.or(cx, "units", 1, |cx, node, key| {
            u32::try_from(cx.integer(node, key, 1, 64)?).ok()
        });
        let mut outcomes = Vec::new();
        match section.take(cx, "outcomes").map(|node| (&node.raw, node)) {
            Some((Raw::Array(items), _)) => {
                for item in items {
                    let Some(mut inner) = cx.section(item, "outcomes") else {
                        continue;
                    };
                    let when = inner.need(cx, "when");
                    let when = when.and_then(|node| wire::expression(cx, node, "when"));
                    let status = inner.need(cx, "status");
                    let status = status.and_then(|node| cx.word::<Status>(node, "status"));
                    inner.finish(cx, &[]);
                    outcomes.extend(when.zip(status));
                }
            }
            Some((_, node)) => cx.wrong_type(node, "outcomes", "a list of tables"),
            None => {}
        }
        section.finish(cx, &[]);
        Some(WireNull {
            time_ns: time_ns?,
            memory_bytes,
            noise,
            units,
            outcomes,
        })
    }

    /// All its expressions.
    pub(super) fn texts(&self) -> impl Iterator<Item = &WireText> {
        let outcomes = self.outcomes.iter().map(|(when, _)| when);
        std::iter::once(&self.time_ns)
            .chain(&self.memory_bytes)
            .chain(outcomes)
    }

    /// The plain twin.
    pub(super) fn plain(&self) -> NullDevice {
        let text = |wire: &WireText| Arc::from(wire.text.as_str());
        NullDevice {
            time_ns: text(&self.time_ns),
            memory_bytes: self.memory_bytes.as_ref().map(text),
            noise: self.noise,
            units: self.units,
            outcomes: self
                .outcomes
                .iter()
                .map(|(when, status)| (text(when), *status))
                .collect(),
        }
    }
}
