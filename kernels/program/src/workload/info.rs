//! The description of a workload without a problem: its parameters, backends and tensors.

use std::fmt;

use super::{Phase, Presentation, PublishedSampling, ShorthandFlag};
use crate::parameters::{Parameters, Value};
use crate::tensor::Dtype;

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterKind {
    /// A whole number within bounds, both inclusive.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// A real number within bounds, both inclusive.
    Float {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// True or false.
    Bool,
    /// One of some words. Each choice is `(word, other spellings of it)`; spellings are compared
    /// without regard to case and turned into the word.
    Choice(&'static [(&'static str, &'static [&'static str])]),
}

impl ParameterKind {
    /// `value` as this kind holds it, or nothing if it is of another kind or out of bounds.
    pub fn accept(&self, value: &Value) -> Option<Value> {
        let float = |number: f64, min: f64, max: f64| {
            (min..=max)
                .contains(&number)
                .then_some(Value::Float(number))
        };
        match (*self, value) {
            (ParameterKind::Int { min, max }, &Value::Int(number)) => {
                (min..=max).contains(&number).then_some(Value::Int(number))
            }
            (ParameterKind::Float { min, max }, &Value::Int(number)) => {
                float(number as f64, min, max)
            }
            (ParameterKind::Float { min, max }, &Value::Float(number)) => float(number, min, max),
            (ParameterKind::Bool, &Value::Bool(_)) => Some(value.clone()),
            (ParameterKind::Choice(choices), Value::Text(text)) => {
                let same = |word: &&str| word.eq_ignore_ascii_case(text);
                let (word, _) = choices
                    .iter()
                    .find(|(word, spellings)| same(word) || spellings.iter().any(same))?;
                Some(Value::from(*word))
            }
            _ => None,
        }
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterKind::Int { min, max } => write!(out, "a whole number from {min} to {max}"),
            ParameterKind::Float { min, max } => write!(out, "a number from {min} to {max}"),
            ParameterKind::Bool => out.write_str("true or false"),
            ParameterKind::Choice(choices) => {
                for (at, (word, _)) in choices.iter().enumerate() {
                    let separator = if at == 0 { "one of " } else { ", " };
                    write!(out, "{separator}{word}")?;
                }
                Ok(())
            }
        }
    }
}

/// A parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct ParameterInfo {
    /// Name, which is also the name of the axis in manifests.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: ParameterKind,
    /// Used where a manifest says nothing; without one the axis is required.
    pub default: Option<DefaultValue>,
    /// Meaning and unit, one line.
    pub about: &'static str,
}

/// A default of a parameter (a `const`-friendly [`Value`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A word.
    Text(&'static str),
}

impl From<DefaultValue> for Value {
    fn from(value: DefaultValue) -> Self {
        match value {
            DefaultValue::Int(value) => Value::Int(value),
            DefaultValue::Float(value) => Value::Float(value),
            DefaultValue::Bool(value) => Value::Bool(value),
            DefaultValue::Text(value) => Value::from(value),
        }
    }
}

/// A whole number from 1 to `max`.
pub const fn size(
    name: &'static str,
    max: i64,
    default: Option<DefaultValue>,
    about: &'static str,
) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Int { min: 1, max },
        default,
        about,
    }
}

/// A word of a few, each with its other names.
pub const fn word(
    name: &'static str,
    choices: &'static [(&'static str, &'static [&'static str])],
    default: &'static str,
    about: &'static str,
) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Choice(choices),
        default: Some(DefaultValue::Text(default)),
        about,
    }
}

/// A tensor of f32.
pub const fn tensor(name: &'static str, shape: &'static str, about: &'static str) -> TensorInfo {
    TensorInfo {
        name,
        shape,
        dtype: Dtype::F32,
        about,
    }
}

/// A backend of a workload.
#[derive(Clone, Copy, Debug)]
pub struct BackendInfo {
    /// Name in manifests and rows.
    pub name: &'static str,
    /// Other names that manifests may use; rows never do.
    pub aliases: &'static [&'static str],
    /// How it computes, one line.
    pub about: &'static str,
    /// True if it is measured where a manifest names no backends: false for one that answers a
    /// question of its own, as a control does.
    pub by_default: bool,
}

/// A tensor of a workload, for people.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo {
    /// Name in files of inputs and outputs.
    pub name: &'static str,
    /// Shape in terms of the parameters, such as `(B, T-1, K, C, C)`.
    pub shape: &'static str,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Its condition, if it does not always exist, and its content, one line.
    pub about: &'static str,
}

/// Everything that is known of a workload without a problem.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Name in manifests and rows.
    pub name: &'static str,
    /// What it computes, one line.
    pub about: &'static str,
    /// The definition, several lines of plain text.
    pub formula: &'static str,
    /// Parameters, in the order people list them.
    pub parameters: &'static [ParameterInfo],
    /// Backends, the plain one first.
    pub backends: &'static [BackendInfo],
    /// Phases it has.
    pub phases: &'static [Phase],
    /// Types it is defined for; the first is the default.
    pub dtypes: &'static [Dtype],
    /// Inputs.
    pub inputs: &'static [TensorInfo],
    /// Outputs and gradients.
    pub outputs: &'static [TensorInfo],
    /// Buckets used where a manifest gives none: parameter, ascending values.
    pub buckets: &'static [(&'static str, &'static [u64])],
    /// How its rows are shown; none where sizes are as good as each other, and words, too.
    pub presentation: Option<&'static Presentation>,
    /// The sampling of its published benchmark, if there is one.
    pub published: Option<&'static PublishedSampling>,
    /// Flags of the command line that stand for its parameters and backends.
    pub flags: &'static [ShorthandFlag],
}

impl WorkloadInfo {
    /// The backend called `name`, or of which `name` is an alias.
    pub fn backend(&self, name: &str) -> Option<&'static BackendInfo> {
        self.backends
            .iter()
            .find(|backend| backend.name == name || backend.aliases.contains(&name))
    }

    /// The parameter called `name`.
    pub fn parameter(&self, name: &str) -> Option<&'static ParameterInfo> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name == name)
    }

    /// All parameters, checked one by one: defaults filled in, other spellings turned into the
    /// word, whole numbers accepted for reals.
    ///
    /// # Errors
    /// The first parameter that is unknown, missing, of another kind or out of bounds.
    pub fn resolve(&self, parameters: &Parameters) -> Result<Parameters, ParameterError> {
        if let Some((name, _)) = parameters
            .iter()
            .find(|(name, _)| self.parameter(name).is_none())
        {
            return Err(ParameterError::Unknown {
                workload: self.name,
                name: name.to_string(),
            });
        }
        let mut resolved = parameters.clone();
        for info in self.parameters {
            match (parameters.get(info.name), info.default) {
                (Some(given), _) => {
                    let value = info.kind.accept(given);
                    let value = value.ok_or_else(|| ParameterError::Value {
                        name: info.name.to_owned(),
                        value: given.to_string(),
                        expected: format!("expected {}", info.kind),
                    })?;
                    // Most values are in their canonical form already: cloning a name is an
                    // allocation.
                    if value != *given {
                        resolved.set(info.name, value);
                    }
                }
                (None, Some(default)) => resolved.set(info.name, default),
                (None, None) => {
                    return Err(ParameterError::Missing {
                        workload: self.name,
                        name: info.name,
                    });
                }
            }
        }
        Ok(resolved)
    }
}

/// Why a problem can't be made from parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// The workload has no such parameter.
    #[error("workload `{workload}` has no parameter `{name}`")]
    Unknown {
        /// Name of the workload.
        workload: &'static str,
        /// The name that was given.
        name: String,
    },
    /// A parameter without a default was not given.
    #[error("workload `{workload}` needs the parameter `{name}`")]
    Missing {
        /// Name of the workload.
        workload: &'static str,
        /// The parameter's name.
        name: &'static str,
    },
    /// The value is of another kind or outside the bounds.
    #[error("`{name}` = {value}: {expected}")]
    Value {
        /// The parameter's name.
        name: String,
        /// The value that was given.
        value: String,
        /// The values that are accepted, in words.
        expected: String,
    },
    /// Each value is fine, but not together.
    #[error("{reason}")]
    Together {
        /// Why, in words.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    static INFO: WorkloadInfo = WorkloadInfo {
        name: "w",
        about: "",
        formula: "",
        parameters: &[
            ParameterInfo {
                name: "n",
                kind: ParameterKind::Int { min: 1, max: 9 },
                default: None,
                about: "",
            },
            ParameterInfo {
                name: "rate",
                kind: ParameterKind::Float { min: 0.0, max: 1.0 },
                default: Some(DefaultValue::Float(0.5)),
                about: "",
            },
            ParameterInfo {
                name: "mode",
                kind: ParameterKind::Choice(&[("fast", &["quick"]), ("slow", &[])]),
                default: Some(DefaultValue::Text("slow")),
                about: "",
            },
        ],
        backends: &[],
        phases: &[],
        dtypes: &[],
        inputs: &[],
        outputs: &[],
        buckets: &[],
        presentation: None,
        published: None,
        flags: &[],
    };

    fn resolved(parameters: &[(&str, Value)]) -> Result<Parameters, String> {
        let parameters = parameters.iter().cloned().collect();
        INFO.resolve(&parameters).map_err(|error| error.to_string())
    }

    #[test]
    fn resolving_fills_in_defaults_and_words() {
        let parameters = resolved(&[
            ("n", Value::Int(9)),
            ("rate", Value::Int(1)),
            ("mode", "Quick".into()),
        ])
        .unwrap();
        assert_eq!(parameters.get("rate"), Some(&Value::Float(1.0)));
        assert_eq!(parameters.get("mode"), Some(&Value::from("fast")));
        let parameters = resolved(&[("n", Value::Int(1))]).unwrap();
        assert_eq!(parameters.get("rate"), Some(&Value::Float(0.5)));
        assert_eq!(parameters.get("mode"), Some(&Value::from("slow")));
    }

    #[test]
    fn what_is_not_accepted_is_explained() {
        let complaint = |parameters: &[(&str, Value)]| resolved(parameters).unwrap_err();
        assert_eq!(complaint(&[]), "workload `w` needs the parameter `n`");
        assert_eq!(
            complaint(&[("m", Value::Int(1))]),
            "workload `w` has no parameter `m`"
        );
        assert_eq!(
            complaint(&[("n", Value::Int(10))]),
            "`n` = 10: expected a whole number from 1 to 9"
        );
        assert_eq!(
            complaint(&[("n", Value::Int(1)), ("rate", Value::Float(1.5))]),
            "`rate` = 1.5: expected a number from 0 to 1"
        );
        assert_eq!(
            complaint(&[("n", Value::Int(1)), ("mode", "medium".into())]),
            "`mode` = medium: expected one of fast, slow"
        );
    }
}
