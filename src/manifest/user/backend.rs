//! A user's implementation and its configurations: one for each combination of tuned values.

use sweeper_program::Value;
use sweeper_program::workload::ParameterInfo;

use super::command::Command;
use super::declaration::{BackendDeclaration, FileDeclaration, Implementation, Requirement};
use super::kernels::Kernels;
use super::python::Function;
use super::scope::{LIMITS, compile, number, problem_scope};
use super::space::configurations;
use sweeper_model::expression::{Expression, Kind, Scope};

/// The names that expressions of a backend use: parameters, tuned values, limits of the device.
pub(crate) fn backend_scope(parameters: &[ParameterInfo], tune: &[(String, Vec<Value>)]) -> Scope {
    let mut scope = problem_scope(parameters);
    let tuned = tune.iter().map(|(name, values)| {
        let kind = values.first().map_or(Kind::Int, Kind::of);
        number(name, kind)
    });
    scope.names.extend(tuned);
    let limits = LIMITS.iter().map(|name| number(name, Kind::Int));
    scope.names.extend(limits);
    scope
}

impl BackendDeclaration {
    /// One line about it, for people.
    pub(super) fn described(&self) -> String {
        let about = match self.about.as_str() {
            "" => self.implementation.shown(),
            about => about.to_owned(),
        };
        match self.tolerance_factor {
            Some(factor) => format!("{about}; tolerances times {factor}"),
            None => about,
        }
    }
}

/// A backend with its expressions compiled.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) declaration: BackendDeclaration,
    pub(super) implementation: Compiled,
    /// Conditions, with the reasons for configurations that do not meet them.
    pub(super) require: Vec<(Expression, String)>,
    /// Tuned values of each configuration, and its name.
    pub(super) configurations: Vec<(Vec<Value>, String)>,
}

/// An implementation with its expressions compiled.
#[derive(Debug)]
pub(super) enum Compiled {
    Kernels(Kernels),
    Command(Command),
    Python(Function),
}

impl Backend {
    /// # Errors
    /// A sentence: a text is from another version of the program.
    pub(super) fn new(
        declaration: BackendDeclaration,
        parameters: &[ParameterInfo],
        files: &[FileDeclaration],
    ) -> Result<Self, String> {
        let scope = backend_scope(parameters, &declaration.tune);
        let require = declaration
            .require
            .iter()
            .map(|Requirement { that, reason }| Ok((compile(that, &scope)?, reason.clone())));
        let require: Vec<(Expression, String)> = require.collect::<Result<_, String>>()?;
        let rules: Vec<Expression> = require.iter().map(|(rule, _)| rule.clone()).collect();
        let configurations = configurations(
            parameters.len(),
            &declaration.tune,
            &rules,
            declaration.sample,
        );
        let named = configurations.unwrap_or_default().into_iter();
        let named = named.map(|values| {
            let name = configured(&declaration, &values);
            (values, name)
        });
        Ok(Backend {
            implementation: match &declaration.implementation {
                Implementation::Kernels(kernels) => {
                    Compiled::Kernels(Kernels::new(kernels, &scope)?)
                }
                Implementation::Command(command) => {
                    Compiled::Command(Command::new(command, files, &scope)?)
                }
                Implementation::Python(function) => Compiled::Python(Function::new(
                    function,
                    &scope,
                    parameters.len(),
                    &declaration.tune,
                )?),
            },
            require,
            configurations: named.collect(),
            declaration,
        })
    }
}

/// The name of a configuration: `add{block_size=256}`.
fn configured(declaration: &BackendDeclaration, values: &[Value]) -> String {
    if values.is_empty() {
        return declaration.name.clone();
    }
    let pairs = declaration.tune.iter().zip(values);
    let pairs: Vec<String> = pairs
        .map(|((name, _), value)| format!("{name}={value}"))
        .collect();
    format!("{}{{{}}}", declaration.name, pairs.join(","))
}
