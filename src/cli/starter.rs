//! `sweeper init`, `schema` and `completions`: help for those who write manifests.

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use super::examples::{self, asked};
use super::exit::Exit;
use super::new::{self, NewArgs};
use super::screen::Screen;
use super::time::{self, TimeArgs};
use sweeper_manifest::{STARTER, registry, schema};

/// The starter's file.
const SWEEP: &str = "sweep.toml";

const KINDS: &str = "\
What is to be measured?
  1  kernels in a file of yours, in C or CUDA
  2  programs
  3  what this build has: operations, attention, Transformers, semi-Markov CRFs
  4  something else, from a commented starter";

/// Arguments of `init`.
#[derive(Args)]
pub struct InitArgs {
    /// The file to write, which must not exist: a commented starter. Without it, at a terminal, a
    /// few questions find what to write; elsewhere it is sweep.toml
    path: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Writes a manifest to start from.
pub fn init(args: &InitArgs, screen: &Screen) -> Exit {
    match &args.path {
        None if !screen.json && examples::can_ask() => ask(screen),
        path => write(path.as_deref().unwrap_or(Path::new(SWEEP)), STARTER, screen),
    }
}

/// Asks what is to be measured, and writes a manifest for that.
fn ask(screen: &Screen) -> Exit {
    screen.to_stderr(KINDS);
    let kind = asked("Number: ");
    let exit = match kind.as_deref() {
        Some("1") => {
            asked("Which file? ").map(|file| new::new(&NewArgs::new(PathBuf::from(file)), screen))
        }
        Some("2") => ask_for_programs(screen),
        Some("3") => {
            screen.to_stderr(&examples::list());
            let chosen = examples::chosen();
            let file = |name: &str| PathBuf::from(format!("{name}.toml"));
            chosen.map(|(name, text)| write(&file(name), text, screen))
        }
        Some("4") => Some(write(Path::new(SWEEP), STARTER, screen)),
        _ => None,
    };
    exit.unwrap_or_else(|| {
        screen.error("nothing was chosen, and nothing is written");
        Exit::Usage
    })
}

/// Asks for a command and the values in it; `None` without an answer.
fn ask_for_programs(screen: &Screen) -> Option<Exit> {
    let command = asked("Which command? What varies stands in braces, as in `sort {f}`: ")?;
    let mut values: Vec<(String, String)> = Vec::new();
    for part in command.split('{').skip(1) {
        let Some((name, _)) = part.split_once('}') else {
            continue;
        };
        if !values.iter().any(|(known, _)| known == name) {
            let question = format!("Values of {name}, with commas between: ");
            values.push((name.to_owned(), asked(&question)?));
        }
    }
    let written = time::write(&TimeArgs::new(command, values), screen);
    Some(written.map_or_else(|exit| exit, |()| Exit::Fine))
}

/// Writes a manifest, and says how to go on.
fn write(path: &Path, text: &str, screen: &Screen) -> Exit {
    let shown = path.display();
    match examples::create(path, text, screen) {
        Ok(()) if screen.json => screen.json(&json!({ "wrote": path })),
        Ok(()) => screen.line(&format!("wrote {shown}; next: sweeper run {shown}")),
        Err(exit) => return exit,
    }
    Exit::Fine
}

/// Prints the JSON Schema of manifests.
pub fn print_schema(screen: &Screen) -> Exit {
    screen.json(&schema(&registry()));
    Exit::Fine
}

/// Prints completions for a shell.
pub fn completions<C: CommandFactory>(args: &CompletionsArgs, screen: &Screen) -> Exit {
    if screen.json {
        screen.error("completions are a program for a shell: there is no --json of them");
        return Exit::Usage;
    }
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "sweeper", &mut text);
    screen.out(&String::from_utf8_lossy(&text));
    Exit::Fine
}
