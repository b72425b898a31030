//! The ways in which a program is run for a sample.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::word::Word;

/// How the work of a sample is launched on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Launching {
    /// Launch by launch.
    Launch,
    /// As one CUDA graph.
    Graph,
}

impl Word for Launching {
    const WORDS: &'static [(&'static str, Self)] =
        &[("launch", Launching::Launch), ("graph", Launching::Graph)];
}

/// The way in which a program is run for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// Iterations that do not depend on each other: given values are restored before each.
    Each(Launching),
    /// A whole loop of so many iterations, from its first launch until the device has finished, by
    /// the host's clock. Each iteration begins with the state that the one before left.
    Loop(u32),
}

/// Before the number of iterations of a loop, in files.
const LOOP: &str = "loop:";

impl Mode {
    /// The mode of its text in rows.
    pub fn parse(text: &str) -> Option<Mode> {
        match text.strip_prefix(LOOP) {
            Some(iterations) => iterations.parse().ok().map(Mode::Loop),
            None => Launching::parse(text).map(Mode::Each),
        }
    }

    /// Whether the steps of an iteration are one CUDA graph.
    pub fn is_graph(self) -> bool {
        self == Mode::Each(Launching::Graph)
    }

    /// Iterations of a loop; none where iterations do not depend on each other.
    pub fn iterations(self) -> Option<u32> {
        match self {
            Mode::Loop(iterations) => Some(iterations),
            Mode::Each(_) => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Each(launching) => out.write_str(launching.word()),
            Mode::Loop(iterations) => write!(out, "{LOOP}{iterations}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        let modes = [
            Mode::Each(Launching::Launch),
            Mode::Each(Launching::Graph),
            Mode::Loop(1_000_000),
        ];
        for mode in modes {
            assert_eq!(Mode::parse(&mode.to_string()), Some(mode));
        }
        assert_eq!(Mode::parse("loop"), None);
        assert_eq!(Mode::parse("loop x"), None);
    }
}
