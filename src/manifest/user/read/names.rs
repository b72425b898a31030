//! The names that a declaration may use, and its expressions, whose names are checked.

use sweeper_program::workload::WorkloadInfo;
use sweeper_program::{Dtype, Phase};

use crate::grammar::expression;
use crate::grammar::section::{Context, Spanned};
use crate::text::braces::pieces;
use crate::text::diagnostics::Code;
use crate::text::tree::Node;
use crate::user::check::{Reference, Tolerance};
use crate::user::declaration::{FileDeclaration, ProblemDeclaration};
use crate::user::python::declaration::PythonDeclaration;
use sweeper_model::expression::{Expression, Kind, Scope, Tree};

/// A whole number, as sizes are.
pub(super) const WHOLE: (&str, fn(Kind) -> bool) = ("a whole number", |kind| kind == Kind::Int);

/// A number.
pub(super) const NUMBER: (&str, fn(Kind) -> bool) =
    ("a number", |kind| matches!(kind, Kind::Int | Kind::Float));

/// True or false.
pub(super) const CONDITION: (&str, fn(Kind) -> bool) = ("a condition", |kind| kind == Kind::Bool);

/// Anything.
pub(super) const ANY: (&str, fn(Kind) -> bool) = ("a value", |_| true);

/// The names of a workload that a backend may refer to.
#[derive(Default)]
pub(super) struct Names {
    pub(super) parameters: Vec<sweeper_program::workload::ParameterInfo>,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    /// Files that commands read.
    pub(super) files: Vec<FileDeclaration>,
    /// The model of `kernelbench`.
    pub(super) model: Option<PythonDeclaration>,
    pub(super) backends: Vec<&'static str>,
    pub(super) phases: &'static [Phase],
    /// Whether parameters or tensors are missing here that could not be read.
    pub(super) is_broken: bool,
    /// Why no backend may multiply the workload's tolerances, and what to do.
    pub(super) without_factor: Option<(&'static str, &'static str)>,
}

impl Names {
    /// Of parameters alone.
    pub(super) fn of_parameters(parameters: &[sweeper_program::workload::ParameterInfo]) -> Self {
        Names {
            parameters: parameters.to_vec(),
            ..Names::default()
        }
    }

    pub(super) fn of_build(info: &'static WorkloadInfo) -> Self {
        let names = |tensors: &[sweeper_program::workload::TensorInfo]| {
            tensors
                .iter()
                .map(|tensor| tensor.name.to_owned())
                .collect()
        };
        let backends = info.backends.iter();
        Names {
            parameters: info.parameters.to_vec(),
            inputs: names(info.inputs),
            outputs: names(info.outputs),
            phases: info.phases,
            backends: backends
                .flat_map(|each| std::iter::once(each.name).chain(each.aliases.iter().copied()))
                .collect(),
            ..Names::default()
        }
    }

    pub(super) fn of_problem(problem: &ProblemDeclaration) -> Self {
        let inputs = problem.inputs.iter().map(|input| input.tensor.name.clone());
        let outputs = problem
            .outputs
            .iter()
            .map(|output| output.tensor.name.clone());
        Names {
            parameters: crate::user::parameters(problem).to_vec(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            files: problem.files.clone(),
            model: problem.model.clone(),
            phases: &[Phase::Forward],
            without_factor: without_factor(problem),
            ..Names::default()
        }
    }
}

impl Names {
    /// Phases by name; those of the workload.
    pub(super) fn phases(&self, cx: &mut Context<'_>, words: Vec<Spanned<String>>) -> Vec<Phase> {
        let mut found = Vec::new();
        for word in words {
            let mut phases = self.phases.iter();
            match phases.find(|phase| phase.name() == word.value) {
                Some(phase) => found.push(*phase),
                None => {
                    let known = self.phases.iter().map(|phase| phase.name());
                    cx.unknown_word(word.at, "phases", &word.value, known);
                }
            }
        }
        found
    }
}

/// An expression whose value is of a kind that fits; its text.
pub(super) fn expression(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    scope: &Scope,
    (wanted, fits): (&str, fn(Kind) -> bool),
) -> Option<Expression> {
    let mut text = expression::expression(cx, node, key)?;
    text.is_declared = true;
    let expression = expression::compile(cx, &text, scope)?;
    note_used(cx, &expression, scope);
    if fits(expression.kind()) {
        return Some(expression);
    }
    let message = format!("`{key}` takes {wanted}");
    cx.report(Code::ExpressionKind, node.at, message)
        .label(format!("this is {}", expression.kind().noun()));
    None
}

/// A text in which expressions stand in braces, which are checked; the text.
pub(super) fn template(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    scope: &Scope,
) -> Option<String> {
    let text = cx.text(node, key)?;
    template_of(cx, node, key, &text, scope)?;
    Some(text)
}

/// Checks the expressions in the braces of a text.
pub(super) fn template_of(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    text: &str,
    scope: &Scope,
) -> Option<()> {
    let pieces = match pieces(text) {
        Ok(pieces) => pieces,
        Err(reason) => {
            cx.report(Code::Name, node.at, format!("`{key}`: {reason}"));
            return None;
        }
    };
    for inside in pieces.iter().filter_map(|(_, expression)| *expression) {
        let tree = Tree::parse(inside);
        if let Ok(tree) = &tree {
            let mut is_broken = false;
            tree.names(&mut |name, _| is_broken |= cx.broken.contains(name));
            if is_broken {
                return None;
            }
        }
        let compiled = tree.map_err(|error| error.message).and_then(|tree| {
            Expression::compile(inside, &tree, scope)
                .map_err(|_| format!("`{inside}` uses a name that is not known here"))
        });
        let reason = match compiled {
            Ok(expression) => {
                note_used(cx, &expression, scope);
                continue;
            }
            Err(reason) => reason,
        };
        let names = crate::grammar::expression::names(scope);
        let message = format!("`{key}` has a wrong expression");
        cx.report(Code::UnknownName, node.at, message)
            .label(reason)
            .help(format!("names: {}", names.join(" ")));
        return None;
    }
    Some(())
}

/// Notes the names that an expression uses.
pub(super) fn note_used(cx: &mut Context<'_>, expression: &Expression, scope: &Scope) {
    let slots = expression.slots().iter();
    let names = slots.filter_map(|slot| scope.names.get(*slot));
    cx.used.extend(names.map(|known| known.name.to_string()));
}

/// Why a problem has no tolerance that a backend may multiply, and what to do. A tolerance that the
/// manifest states is raised there, for all to see.
fn without_factor(problem: &ProblemDeclaration) -> Option<(&'static str, &'static str)> {
    let is_real = |dtype: Option<Dtype>| dtype.is_none_or(Dtype::is_real);
    let mut outputs = problem.outputs.iter();
    let has_real = outputs.any(|output| is_real(output.tensor.dtype));
    let is_derived = "it is for derived tolerances and workloads of this build";
    if problem.judge.is_some() {
        return Some((
            "a function judges the outputs of this workload",
            "the judge's `bound` holds for all backends",
        ));
    }
    match (&problem.tolerance, &problem.reference) {
        _ if !has_real => Some(("the workload has no outputs of real numbers", is_derived)),
        (_, Reference::None) => Some(("the workload has no right outputs", is_derived)),
        (Tolerance::Exact, _) => Some(("outputs of this workload have to be equal", is_derived)),
        (Tolerance::L2(_), _) => Some((
            "the tolerance of this workload is stated",
            "state a larger one in `check.tolerance`",
        )),
        (Tolerance::Derived, _) => None,
    }
}
