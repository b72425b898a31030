//! `sweeper workloads`: the workloads that can be measured.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sweeper_program::Value;
use sweeper_program::Workload;
use sweeper_program::workload::{ParameterInfo, ParameterKind, TensorInfo, WorkloadInfo};

use super::exit::Exit;
use super::screen::Screen;
use super::settings;
use crate::manifest::{self, Overrides};

/// Arguments of `workloads`.
#[derive(Args)]
pub struct WorkloadsArgs {
    /// Show this one
    name: Option<String>,
    /// Those that this manifest declares, too
    #[arg(long, short, value_name = "MANIFEST")]
    manifest: Option<PathBuf>,
}

/// Lists workloads, or shows one.
pub fn workloads(args: &WorkloadsArgs, screen: &Screen) -> Exit {
    let known = match known(args.manifest.as_deref(), screen) {
        Ok(known) => known,
        Err(exit) => return exit,
    };
    let Some(name) = &args.name else {
        if screen.json {
            let all = known.iter().map(|info| describe(info));
            screen.json(&all.collect::<Vec<_>>());
            return Exit::Fine;
        }
        for info in known {
            screen.line(&format!("{:12} {}", info.name, info.about));
        }
        return Exit::Fine;
    };
    let Some(info) = known.iter().find(|info| info.name == *name) else {
        let names: Vec<&str> = known.iter().map(|info| info.name).collect();
        screen.error(&format!(
            "there is no workload `{name}`, only {}",
            names.join(", ")
        ));
        return Exit::Usage;
    };
    if screen.json {
        screen.json(&describe(info));
    } else {
        show(info, screen);
    }
    Exit::Fine
}

/// The workloads of this build, as a manifest extends them, and those that it declares.
fn known(manifest: Option<&Path>, screen: &Screen) -> Result<Vec<&'static WorkloadInfo>, Exit> {
    let mut known = manifest::registry();
    let Some(path) = manifest else {
        return Ok(known);
    };
    let manifest = settings::load(path, &Overrides::new(), screen)?;
    for declared in manifest.declared() {
        match known
            .iter_mut()
            .find(|info| info.name == declared.info().name)
        {
            Some(held) => *held = declared.info(),
            None => known.push(declared.info()),
        }
    }
    Ok(known)
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
