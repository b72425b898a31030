//! `[null]`: the answers of the scripted test device.

use std::sync::Arc;

use crate::decode::Given;
use crate::section::Context;
use crate::wire::{self, WireText};
use sweeper_model::status::Status;

/// `[null]` with the places of its expressions.
#[derive(Clone, Debug)]
pub(super) struct WireNull {
    pub(super) time_ns: WireText,
    pub(super) memory_bytes: Option<WireText>,
    pub(super) noise: f64,
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
    /// Number of simulated devices; no part of any identity but those devices' own.
    pub units: u32,
    /// Conditions with the status they lead to; the first that holds decides.
    pub outcomes: Vec<(Arc<str>, Status)>,
}

impl Default for NullDevice {
    fn default() -> Self {
        NullDevice {
            time_ns: "".into(),
            memory_bytes: None,
            noise: 0.0,
            units: 1,
            outcomes: Vec::new(),
        }
    }
}

impl WireNull {
    /// The script of the settings that were read, where it can be used.
    pub(super) fn new(cx: &mut Context<'_>, given: &Given<'_>, null: &NullDevice) -> Option<Self> {
        let mut text = |path: &str, key| {
            let node = given.get(path)?;
            wire::expression(cx, node, key)
        };
        let time_ns = text("null.time_ns", "time_ns");
        let memory_bytes = text("null.memory_bytes", "memory_bytes");
        let outcomes = given.get("null.outcomes");
        let outcomes = outcomes.map_or_else(Vec::new, |node| wire::outcomes(cx, node));
        Some(WireNull {
            time_ns: time_ns?,
            memory_bytes,
            noise: null.noise,
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
}
