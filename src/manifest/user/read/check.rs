//! `check` of `[workload.X]`: how outputs are judged, by a tolerance around the right answer or by
//! a function.

use std::collections::BTreeMap;

use sweeper_program::Dtype;
use sweeper_program::workload::ParameterInfo;

use super::names::Names;
use super::python::{PythonSettings, host_function};
use super::python_arguments::Reader;
use super::reference::reference;
use crate::files::python::ArrayLibrary;
use crate::grammar::section::Context;
use crate::text::diagnostics::Code;
use crate::text::tree::{Node, Raw};
use crate::user::check::{JudgeDeclaration, Products, Reference, Tolerance};
use crate::user::declaration::ProblemDeclaration;
use crate::user::problem_scope;

/// A relative L2 norm that zeros have, whatever the right answer is.
const OF_ZEROS: f64 = 1.0;

/// Reads `check`; what is wrong is reported.
pub(super) fn check(
    cx: &mut Context<'_>,
    node: &Node,
    problem: &mut ProblemDeclaration,
    infos: &[ParameterInfo],
    settings: &PythonSettings,
) {
    let Some(mut section) = cx.section(node, "check") else {
        return;
    };
    let judge_at = section.take(cx, "judge");
    problem.judge = judge_at.and_then(|node| judge(cx, node, infos, settings));
    let reference_at = match judge_at {
        // A judge may know by itself what is right.
        Some(_) => section.take(cx, "reference"),
        None => section.need(cx, "reference"),
    };
    let found = reference_at.and_then(|node| reference(cx, node, problem, infos, settings));
    let tolerance_at = section.take(cx, "tolerance");
    let products_at = section.take(cx, "products");
    section.finish(cx);
    match (judge_at, tolerance_at) {
        (Some(_), Some(node)) => {
            let message = "`judge` and `tolerance` exclude each other";
            cx.report(Code::Conflict, node.at, message)
                .label("a judge decides alone, by `bound` where it returns a distance");
        }
        (Some(_), None) => problem.tolerance = Tolerance::Exact,
        (None, Some(node)) => match tolerance(cx, node, problem) {
            Some(tolerance) => problem.tolerance = tolerance,
            None => return,
        },
        (None, None) => {}
    }
    let Some((node, reference)) = reference_at.zip(found) else {
        return;
    };
    problem.reference = reference;
    if let Some(node) = products_at {
        products(cx, node, problem);
    }
    needs_tolerance(cx, tolerance_at.unwrap_or(node), problem);
}

/// Reads what factors of products may be rounded to.
fn products(cx: &mut Context<'_>, node: &Node, problem: &mut ProblemDeclaration) {
    let Some(found) = cx.word::<Products>(node, "products") else {
        return;
    };
    let is_torch = matches!(&problem.reference, Reference::Python(function)
        if function.arrays == ArrayLibrary::Torch);
    if !found.is_f32() && !is_torch {
        let message = "products in tf32 need a reference of PyTorch";
        cx.report(Code::Conflict, node.at, message)
            .label("no other reference tells what rounding factors does");
        return;
    }
    problem.products = found;
}

/// Reports a tolerance that can't be derived: nobody knows the error of a backend's outputs, or of
/// those in a file.
fn needs_tolerance(cx: &mut Context<'_>, node: &Node, problem: &ProblemDeclaration) {
    let given = match &problem.reference {
        Reference::Backend(peer) if !peer.is_in_f64 => "a backend's outputs",
        Reference::File(_) => "a file's tensors",
        Reference::Backend(_) | Reference::Expr(_) | Reference::Python(_) | Reference::None => {
            return;
        }
    };
    let mut outputs = problem.outputs.iter();
    let has_real = outputs.any(|output| output.tensor.dtype.is_none_or(Dtype::is_real));
    if has_real && problem.tolerance == Tolerance::Derived {
        let message = format!("no tolerance can be derived from {given}");
        cx.report(Code::MissingKey, node.at, message)
            .label("`tolerance = 1e-5` is needed, or another relative L2 norm")
            .help("`tolerance = \"exact\"` where outputs have to be equal");
    }
}

/// Reads a judge: a function in Python that gets tensors by name, and values of parameters as
/// `kwargs`.
fn judge(
    cx: &mut Context<'_>,
    node: &Node,
    infos: &[ParameterInfo],
    settings: &PythonSettings,
) -> Option<JudgeDeclaration> {
    let mut section = cx.section(node, "judge")?;
    let function = host_function(cx, &mut section, settings).map(|it| it.0);
    let names = Names::of_parameters(infos);
    let scope = problem_scope(infos);
    let reader = Reader {
        names: &names,
        scope: &scope,
    };
    let kwargs = section.optional(cx, "kwargs", |cx, node, _| reader.named(cx, node));
    let bound = section.optional(cx, "bound", |cx, node, key| match cx.number(node, key)? {
        bound if bound >= 0.0 => Some(bound),
        _ => {
            cx.report(Code::OutOfBounds, node.at, "`bound` is out of bounds")
                .label("the greatest distance that is right, at least 0");
            None
        }
    });
    section.finish(cx);
    let mut function = function?;
    function.kwargs = kwargs?.unwrap_or_default();
    Some(JudgeDeclaration {
        function,
        bound: bound?,
    })
}

fn tolerance(cx: &mut Context<'_>, node: &Node, problem: &ProblemDeclaration) -> Option<Tolerance> {
    let outputs: Vec<&str> = problem.outputs.iter().map(|it| &*it.tensor.name).collect();
    match &node.raw {
        Raw::Text(word) if word == "derived" => Some(Tolerance::Derived),
        Raw::Text(word) if word == "exact" => Some(Tolerance::Exact),
        Raw::Text(word) => {
            cx.unknown_word(node.at, "tolerance", word, ["derived", "exact"]);
            None
        }
        Raw::Int(_) | Raw::Float(_) => {
            let stated = stated(cx, node)?;
            let all = outputs.iter().map(|output| ((*output).to_owned(), stated));
            Some(Tolerance::L2(all.collect()))
        }
        Raw::Table(table) => {
            let mut found = BTreeMap::new();
            for entry in &table.entries {
                if !outputs.contains(&entry.key.as_str()) {
                    cx.unknown_word(
                        entry.key_at,
                        "tolerance",
                        &entry.key,
                        outputs.iter().copied(),
                    );
                } else if let Some(stated) = stated(cx, &entry.value) {
                    found.insert(entry.key.clone(), stated);
                }
            }
            Some(Tolerance::L2(found))
        }
        _ => {
            cx.wrong_type(
                node,
                "tolerance",
                "`derived`, `exact`, or a relative L2 norm",
            );
            None
        }
    }
}

/// A relative L2 norm that is stated. One that zeros would pass judges nothing.
fn stated(cx: &mut Context<'_>, node: &Node) -> Option<f64> {
    let norm = cx.positive(node, "tolerance")?;
    if norm >= OF_ZEROS {
        let message = "zeros would pass this tolerance";
        cx.report(Code::Declaration, node.at, message)
            .label("a relative L2 norm, which is 1 for zeros")
            .help("leave it out: the tolerance is derived from the rounding of the outputs' type");
        return None;
    }
    Some(norm)
}
