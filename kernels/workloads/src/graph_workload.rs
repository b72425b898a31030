//! Workloads whose problems are graphs.

use crate::graph_problem::{Computation, GraphProblem};
use sweeper_program::Precision;
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{ParameterError, Problem, Workload, WorkloadInfo};

/// A workload that is one kind of [`Computation`].
pub(crate) struct GraphWorkload<C> {
    pub(crate) info: &'static WorkloadInfo,
    /// What its parameters ask for.
    pub(crate) computation: fn(&Given) -> Result<C, ParameterError>,
}

/// Parameters of which each has its value.
pub(crate) struct Given(Parameters);

impl Given {
    /// A whole number from 1 on.
    pub(crate) fn size(&self, name: &str) -> usize {
        let value = self.0.get(name).and_then(Value::as_int);
        value.map_or(1, |value| value as usize)
    }

    /// A real number.
    pub(crate) fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(Value::Float(value)) => *value,
            _ => 0.0,
        }
    }

    /// The number format of products, of the parameter `precision`.
    pub(crate) fn precision(&self) -> Precision {
        match self.word("precision") {
            "tf32" => Precision::Tf32,
            "bf16" => Precision::Bf16,
            _ => Precision::F32,
        }
    }

    /// One of some words.
    pub(crate) fn word(&self, name: &str) -> &str {
        let value = self.0.get(name).and_then(Value::as_text);
        value.unwrap_or("")
    }
}

impl<C: Computation> GraphWorkload<C> {
    /// The computation that parameters ask for.
    ///
    /// # Errors
    /// The first parameter that is unknown, missing or out of bounds.
    pub(crate) fn at(&self, parameters: &Parameters) -> Result<C, ParameterError> {
        (self.computation)(&Given(self.info.resolve(parameters)?))
    }
}

impl<C: Computation> Workload for GraphWorkload<C> {
    fn info(&self) -> &'static WorkloadInfo {
        self.info
    }

    fn problem(
        &self,
        parameters: &Parameters,
        _dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError> {
        let computation = self.at(parameters)?;
        Ok(Box::new(GraphProblem::new(self.info.name, computation)?))
    }
}
