//! `sweeper workloads`: the workloads that can be measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sweeper_program::Value;
use sweeper_program::Workload;
use sweeper_program::workload::{ParameterInfo, ParameterKind, TensorInfo, WorkloadInfo};

use super::exit::Exit;
use super::screen::Screen;
use super::settings;
use sweeper_manifest::Overrides;
use sweeper_manifest::user::Declared;

/// Arguments of `workloads`.
#[derive(Args)]
pub struct WorkloadsArgs {
    /// Show this one
    name: Option<String>,
    /// Those that this manifest declares, too
    #[arg(long, short, value_name = "MANIFEST")]
    manifest: Option<PathBuf>,
}

/// A workload, and what a manifest declares of it.
#[derive(Clone, Copy)]
struct Known {
    info: &'static WorkloadInfo,
    declared: Option<&'static Declared>,
}

impl Known {
    /// How outputs are judged, where the manifest says it.
    fn check(self) -> Vec<(&'static str, String)> {
        self.declared
            .map_or_else(Vec::new, Declared::check_in_words)
    }
}

/// Lists workloads, or shows one.
pub fn workloads(args: &WorkloadsArgs, screen: &Screen) -> Exit {
    let known = match known(args.manifest.as_deref(), screen) {
        Ok(known) => known,
        Err(exit) => return exit,
    };
    let Some(name) = &args.name else {
        if screen.json {
            let all = known.iter().map(|one| describe(*one));
            screen.json(&all.collect::<Vec<_>>());
            return Exit::Fine;
        }
        for Known { info, .. } in known {
            screen.line(&format!("{:12} {}", info.name, info.about));
        }
        return Exit::Fine;
    };
    let Some(one) = known.iter().find(|one| one.info.name == *name) else {
        let names: Vec<&str> = known.iter().map(|one| one.info.name).collect();
        screen.error(&format!(
            "there is no workload `{name}`, only {}",
            names.join(", ")
        ));
        return Exit::Usage;
    };
    if screen.json {
        screen.json(&describe(*one));
    } else {
        show(*one, screen);
    }
    Exit::Fine
}

/// The workloads of this build, as a manifest extends them, and those that it declares.
fn known(manifest: Option<&Path>, screen: &Screen) -> Result<Vec<Known>, Exit> {
    let infos = sweeper_manifest::registry().into_iter();
    let of_build = |info| Known {
        info,
        declared: None,
    };
    let mut known: Vec<Known> = infos.map(of_build).collect();
    let Some(path) = manifest else {
        return Ok(known);
    };
    let manifest = settings::load(path, &Overrides::new(), screen)?;
    for declared in manifest.declared() {
        let one = Known {
            info: declared.info(),
            declared: Some(declared),
        };
        match known
            .iter_mut()
            .find(|held| held.info.name == one.info.name)
        {
            Some(held) => *held = one,
            None => known.push(one),
        }
    }
    Ok(known)
}

fn show(one: Known, screen: &Screen) {
    let info = one.info;
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
    let check = one.check();
    if !check.is_empty() {
        screen.line("\ncheck");
    }
    for (key, meaning) in check {
        screen.line(&format!("  {key:10} {meaning}"));
    }
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

fn describe(one: Known) -> serde_json::Value {
    let info = one.info;
    let check: BTreeMap<&str, String> = one.check().into_iter().collect();
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
        "check": (!check.is_empty()).then_some(check),
    })
}
