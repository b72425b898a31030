//! Programs of paths, whose buffers get the names of the problem's tensors.

use sweeper_compiler::stream::PathGraph;
use sweeper_program::{Binding, Program};

/// Names of the problem's tensors, for slots and results of a path.
pub(super) struct Names {
    pub(super) slots: Vec<String>,
    pub(super) results: Vec<Option<String>>,
}

impl Names {
    /// A program of a path's graph, with these names for its buffers.
    pub(super) fn renamed(&self, mut program: Program, made: &PathGraph) -> Program {
        let slot = |name: &str| {
            let position = made.inputs.iter().position(|held| held == name);
            position.map(|position| self.slots[position].clone())
        };
        let result = |name: &str| {
            let position = made.outputs.iter().position(|held| held == name)?;
            self.results[position].clone()
        };
        for buffer in &mut program.buffers {
            let own = buffer.name.clone();
            match &mut buffer.binding {
                Binding::Given => {
                    if let Some(name) = slot(&own) {
                        buffer.name = name.into();
                    }
                }
                Binding::Updated { result: next } => {
                    if let Some(name) = slot(&own) {
                        buffer.name = name.into();
                    }
                    if let Some(name) = result(next) {
                        *next = name.into();
                    }
                }
                Binding::Result => {
                    if let Some(name) = result(&own) {
                        buffer.name = name.into();
                    }
                }
                Binding::Scratch | Binding::Symbol { .. } => {}
            }
        }
        program
    }
}
