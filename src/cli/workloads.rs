//! `sweeper workloads`: the workloads that can be measured.

use clap::Args;
use serde_json::json;
use sweeper_program::Value;
use sweeper_program::workload::{ParameterInfo, ParameterKind, TensorInfo, WorkloadInfo};
use sweeper_workloads::registry;

use super::exit::Exit;
use super::screen::Screen;

/// Arguments of `workloads`.
#[derive(Args)]
pub struct WorkloadsArgs {
    /// Show this one
    name: Option<String>,
}

/// Lists workloads, or shows one.
pub fn workloads(args: &WorkloadsArgs, screen: &Screen) -> Exit {
    let Some(name) = &args.name else {
        if screen.json {
            let all = registry::workloads().iter();
            screen.json(
                &all.map(|workload| describe(workload.info()))
                    .collect::<Vec<_>>(),
            );
            return Exit::Fine;
        }
        for workload in registry::workloads() {
            screen.line(&format!(
                "{:12} {}",
                workload.info().name,
                workload.info().about
            ));
        }
        return Exit::Fine;
    };
    let Some(workload) = registry::workload(name) else {
        let names: Vec<&str> = registry::workloads()
            .iter()
            .map(|workload| workload.info().name)
            .collect();
        screen.error(&format!(
            "there is no workload `{name}`, only {}",
            names.join(", ")
        ));
        return Exit::Usage;
    };
    if screen.json {
        screen.json(&describe(workload.info()));
    } else {
        show(workload.info(), screen);
    }
    Exit::Fine
}

fn show(info: &WorkloadInfo, screen: &Screen) {
    screen.line(&format!("{}: {}\n", info.name, info.about));
    for line in info.formula.lines() {
        screen.line(&format!("  {line}"));
    }
    screen.line("\nparameters");
    for parameter in info.parameters {
        let default = match parameter.default {
            Some(default) => format!(", default {}", Value::from(default)),
            None => ", required".to_owned(),
        };
        screen.line(&format!(
            "  {:14} {} ({}{default})",
            parameter.name,
            parameter.about,
            kind(parameter)
        ));
    }
    screen.line("\nbackends");
    for backend in info.backends {
        let aliases = match backend.aliases {
            [] => String::new(),
            aliases => format!(" (also {})", aliases.join(", ")),
        };
        let only = match backend.by_default {
            true => "",
            false => "; only where `backends` names it",
        };
        screen.line(&format!(
            "  {:20} {}{aliases}{only}",
            backend.name, backend.about
        ));
    }
    let phases: Vec<&str> = info.phases.iter().map(|phase| phase.name()).collect();
    screen.line(&format!("\nphases: {}", phases.join(", ")));
    tensors("inputs", info.inputs, screen);
    tensors("outputs", info.outputs, screen);
}

fn tensors(heading: &str, tensors: &[TensorInfo], screen: &Screen) {
    screen.line(&format!("\n{heading}"));
    for tensor in tensors {
        screen.line(&format!(
            "  {:20} {} {:22} {}",
            tensor.name, tensor.dtype, tensor.shape, tensor.about
        ));
    }
}

fn kind(parameter: &ParameterInfo) -> String {
    match parameter.kind {
        ParameterKind::Int { min, max } => format!("integer, {min} to {max}"),
        ParameterKind::Float { min, max } => format!("number, {min} to {max}"),
        ParameterKind::Bool => "true or false".to_owned(),
        ParameterKind::Choice(choices) => {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            words.join(" | ")
        }
    }
}

fn describe(info: &WorkloadInfo) -> serde_json::Value {
    let tensor = |tensor: &TensorInfo| json!({ "name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype, "about": tensor.about });
    json!({
        "name": info.name,
        "about": info.about,
        "formula": info.formula,
        "parameters": info.parameters.iter().map(|parameter| json!({
            "name": parameter.name,
            "kind": kind(parameter),
            "default": parameter.default.map(Value::from),
            "about": parameter.about,
        })).collect::<Vec<_>>(),
        "backends": info.backends.iter().map(|backend| json!({
            "name": backend.name, "aliases": backend.aliases, "about": backend.about,
            "by_default": backend.by_default,
        })).collect::<Vec<_>>(),
        "phases": info.phases,
        "inputs": info.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "outputs": info.outputs.iter().map(tensor).collect::<Vec<_>>(),
    })
}
