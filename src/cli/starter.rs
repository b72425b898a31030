//! `sweeper init`, `schema` and `completions`: help for those who write manifests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use crate::manifest::{STARTER, registry, schema};

/// Arguments of `init`.
#[derive(Args)]
pub struct InitArgs {
    /// The file to write; it must not exist
    #[arg(default_value = "sweep.toml")]
    path: PathBuf,
}

/// Arguments of `completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Writes a starter manifest.
pub fn init(args: &InitArgs, screen: &Screen) -> Exit {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.path)
        .and_then(|mut file| file.write_all(STARTER.as_bytes()));
    match written {
        Ok(()) if screen.json => {
            screen.json(&json!({ "wrote": args.path }));
            Exit::Fine
        }
        Ok(()) => {
            let path = args.path.display();
            screen.line(&format!("wrote {path}; next: sweeper plan {path}"));
            Exit::Fine
        }
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::AlreadyExists => "; it is left as it is: name another file",
                _ => "",
            };
            screen.error(&format!("{}: {error}{advice}", args.path.display()));
            Exit::Files
        }
    }
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
