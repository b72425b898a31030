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
    /// The pattern as the guide spells it, `Linear_Bias_ReLU`, with words that are not the default,
    /// `FullAttention_causal`; of other workloads the name and all words that choose among its
    /// forms, `matmul_f32`.
    pub pattern: String,
    /// Sizes in the order in which the workload lists them, without last ones that are 0 or 1 by
    /// default: one head, no size of its own.
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
        let known = declared.iter().filter_map(|parameter| {
            let value = *given.get(parameter.name)?;
            Some((parameter, value))
        });
        let guides = known
            .clone()
            .find_map(|(parameter, value)| guides_name(parameter, value));
        if let Some(name) = guides {
            name.clone_into(&mut subject.pattern);
        }
        let mut last = 0;
        for (parameter, value) in known {
            let is_default = parameter.default.map(Value::from).as_ref() == Some(value);
            if guides.is_none() || !is_default && parameter.name != PATTERN {
                subject.add_word(value);
            }
            subject.add_number(parameter, value);
            let is_said = value.as_int().is_some_and(|size| !is_default || size > 1);
            if is_said {
                last = subject.sizes.len();
            }
        }
        subject.sizes.truncate(last);
        // A file of another version may have parameters that this one does not know.
        for (name, value) in given {
            if !declared.iter().any(|held| held.name == name) {
                subject.others.push(format!("{name}={value}"));
            }
        }
        subject
    }

    fn add_word(&mut self, value: &Value) {
        if let Value::Text(word) = value {
            self.pattern = format!("{}_{word}", self.pattern);
        }
    }

    fn add_number(&mut self, parameter: &ParameterInfo, value: &Value) {
        match (&parameter.kind, value) {
            (ParameterKind::Int { .. }, Value::Int(size)) => self.sizes.push(*size),
            (ParameterKind::Choice(_), Value::Text(_)) => {}
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

/// The guide's name of a pattern, where the parameter says the pattern and the guide has it.
fn guides_name(parameter: &ParameterInfo, value: &Value) -> Option<&'static str> {
    match parameter.kind {
        ParameterKind::Choice(words) if parameter.name == PATTERN => {
            let known = words.iter().find(|(held, _)| value.as_text() == Some(held));
            known.and_then(|(_, aliases)| aliases.first()).copied()
        }
        _ => None,
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

    /// Parameters that the guide's patterns do not have leave their names, unless they are used.
    #[test]
    fn defaults_of_a_guides_pattern_leave_its_name() {
        let names = ["batch", "sequence", "dimension", "heads", "kv_heads"];
        let attention = |sizes: [i64; 5], mask: &str| {
            let mut parameters: Vec<(&str, Value)> =
                names.into_iter().zip(sizes.map(Value::Int)).collect();
            let words = [("mask", mask), ("precision", "f32"), ("pattern", "full")];
            parameters.extend(words.map(|(name, word)| (name, Value::from(word))));
            subject("attention", &parameters).key(Phase::Forward, false)
        };
        assert_eq!(
            attention([8, 512, 64, 1, 0], "none"),
            "FullAttention_8x512x64"
        );
        assert_eq!(
            attention([8, 512, 64, 4, 0], "causal"),
            "FullAttention_causal_8x512x64x4"
        );
        assert_eq!(
            attention([8, 512, 64, 1, 2], "none"),
            "FullAttention_8x512x64x1x2"
        );
    }

    #[test]
    fn what_is_not_known_is_in_the_key_all_the_same() {
        let later = [("elements", Value::Int(8)), ("pitch", Value::Int(3))];
        let copy = subject("copy", &later);
        assert_eq!(copy.key(Phase::Forward, false), "copy_8_pitch=3");
        assert_eq!(subject("nowhere", &later).shape(), "");
    }
}
