//! Names of fused patterns: the calibration guide's name of a pattern, its sizes, and a unique key.

use std::collections::BTreeMap;

use sweeper_program::workload::{ParameterInfo, ParameterKind};
use sweeper_program::{Phase, Value};
use sweeper_workloads::registry;

/// The parameter that says which pattern of a workload it is.
const PATTERN: &str = "pattern";

/// A pattern or an operation, of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The pattern as the guide spells it, `Linear_Bias_ReLU`; of other workloads the name and the
    /// words that choose among its forms, `matmul_f32`.
    pub pattern: String,
    /// Sizes in the order in which the workload lists them.
    pub sizes: Vec<i64>,
    /// All parameters.
    pub parameters: BTreeMap<String, Value>,
    /// Numbers and switches beside the sizes, in words.
    others: Vec<String>,
}

impl Subject {
    /// The subject of a row of a workload with these parameters.
    pub fn of<'v>(
        workload: &str,
        parameters: impl IntoIterator<Item = (&'v str, &'v Value)>,
    ) -> Self {
        let given: BTreeMap<&str, &Value> = parameters.into_iter().collect();
        let declared = registry::workload(workload).map_or(&[][..], |it| it.info().parameters);
        let mut subject = Subject {
            pattern: workload.to_owned(),
            sizes: Vec::new(),
            parameters: given
                .iter()
                .map(|(&name, &value)| (name.to_owned(), value.clone()))
                .collect(),
            others: Vec::new(),
        };
        for parameter in declared {
            if let Some(value) = given.get(parameter.name) {
                subject.add(parameter, value);
            }
        }
        // A file of another version may have parameters that this one does not know.
        for (name, value) in given {
            if !declared.iter().any(|held| held.name == name) {
                subject.others.push(format!("{name}={value}"));
            }
        }
        subject
    }

    fn add(&mut self, parameter: &ParameterInfo, value: &Value) {
        match (&parameter.kind, value) {
            (ParameterKind::Int { .. }, Value::Int(size)) => self.sizes.push(*size),
            (ParameterKind::Choice(words), Value::Text(word)) => {
                let known = words.iter().find(|(held, _)| *held == &**word);
                let guides = known.and_then(|(_, aliases)| aliases.first());
                match guides {
                    Some(name) if parameter.name == PATTERN => self.pattern = (*name).to_owned(),
                    _ => self.pattern = format!("{}_{word}", self.pattern),
                }
            }
            _ => self.others.push(format!("{}={value}", parameter.name)),
        }
    }

    /// The sizes in one word: `512x1024x1024`.
    pub fn shape(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(i64::to_string).collect();
        sizes.join("x")
    }

    /// Pattern and sizes, and everything else that tells a row from others: the phase unless it is
    /// forward, and a launch as a graph.
    pub fn key(&self, phase: Phase, is_graph: bool) -> String {
        let mut parts = vec![self.pattern.clone(), self.shape()];
        parts.extend(self.others.iter().cloned());
        if phase != Phase::Forward {
            parts.push(phase.name().to_owned());
        }
        if is_graph {
            parts.push("graph".to_owned());
        }
        parts.retain(|part| !part.is_empty());
        parts.join("_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(workload: &str, parameters: &[(&str, Value)]) -> Subject {
        Subject::of(
            workload,
            parameters.iter().map(|(name, value)| (*name, value)),
        )
    }

    #[test]
    fn patterns_have_the_guides_names_and_all_their_sizes() {
        let sizes = [("n", 3), ("m", 1), ("k", 2)].map(|(name, size)| (name, Value::Int(size)));
        let with = |name, word: &str| [&sizes[..], &[(name, Value::from(word))]].concat();
        let linear = subject("linear", &with("pattern", "bias_relu"));
        assert_eq!(linear.pattern, "Linear_Bias_ReLU");
        assert_eq!(linear.key(Phase::Forward, false), "Linear_Bias_ReLU_1x2x3");
        assert_eq!(
            linear.key(Phase::Both, true),
            "Linear_Bias_ReLU_1x2x3_both_graph"
        );
        let tanh = subject("linear", &with("pattern", "bias_gelu_tanh"));
        assert_eq!(tanh.pattern, "linear_bias_gelu_tanh");
        let product = subject("matmul", &with("precision", "tf32"));
        assert_eq!(product.key(Phase::Forward, false), "matmul_tf32_1x2x3");
    }

    #[test]
    fn what_is_not_known_is_in_the_key_all_the_same() {
        let later = [("elements", Value::Int(8)), ("pitch", Value::Int(3))];
        let copy = subject("copy", &later);
        assert_eq!(copy.key(Phase::Forward, false), "copy_8_pitch=3");
        assert_eq!(subject("nowhere", &later).shape(), "");
    }
}
