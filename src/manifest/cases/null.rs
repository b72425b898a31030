//! `[null]`: the answers of the scripted test device.

use crate::grammar::expression::{WireText, expression};
use crate::grammar::section::Context;
use crate::grammar::wire;
use crate::model::settings::NullDevice;
use crate::setting::read::Given;
use sweeper_model::status::Status;

/// `[null]` with the places of its expressions.
#[derive(Clone, Debug)]
pub(crate) struct WireNull {
    pub(crate) time_ns: WireText,
    pub(crate) memory_bytes: Option<WireText>,
    pub(crate) noise: f64,
    pub(crate) outcomes: Vec<(WireText, Status)>,
}

impl WireNull {
    /// The script of the settings that were read, where it can be used.
    pub(crate) fn new(cx: &mut Context<'_>, given: &Given<'_>, null: &NullDevice) -> Option<Self> {
        let mut text = |path: &str, key| {
            let node = given.get(path)?;
            expression(cx, node, key)
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
    pub(crate) fn texts(&self) -> impl Iterator<Item = &WireText> {
        let outcomes = self.outcomes.iter().map(|(when, _)| when);
        std::iter::once(&self.time_ns)
            .chain(&self.memory_bytes)
            .chain(outcomes)
    }
}
