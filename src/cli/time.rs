//! `sweeper time`: programs side by side, in a line, by a manifest that it writes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches as _};

use super::exit::Exit;
use super::run::{self, RunArgs};
use super::screen::Screen;
use sweeper_model::toml_text::string;

/// The first line of manifests that this verb writes, and may overwrite.
const HEAD: &str = "# Written by `sweeper time`.";

/// Signs that a shell gives a meaning.
const OF_SHELLS: &str = "|&;<>()$`\"'\\*?[]#~=%";

/// Arguments of `time`.
#[derive(Args)]
pub struct TimeArgs {
    /// The manifest to write
    #[arg(long, short, value_name = "FILE", default_value = "time.toml")]
    output: PathBuf,
    /// How often each program runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Commands, then values of names that stand in braces in them:
    /// 'sort {f}' 'sort -n {f}' --f a,b
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    words: Vec<String>,
}

impl TimeArgs {
    /// Those of a command, and values of the names that stand in braces in it.
    pub(super) fn new(command: String, values: Vec<(String, String)>) -> Self {
        let flags = values
            .into_iter()
            .flat_map(|(name, values)| [format!("--{name}"), values]);
        TimeArgs {
            output: PathBuf::from("time.toml"),
            repeats: 10,
            words: std::iter::once(command).chain(flags).collect(),
        }
    }
}

/// Writes the manifest and runs it.
pub fn time(args: &TimeArgs, screen: &Screen) -> Exit {
    if let Err(exit) = write(args, screen) {
        return exit;
    }
    let command = RunArgs::augment_args(Command::new("run"));
    let words = ["run".as_ref(), args.output.as_os_str()];
    let parsed = command.try_get_matches_from(words);
    match parsed.and_then(|found| RunArgs::from_arg_matches(&found)) {
        Ok(args) => run::run(&args, screen),
        Err(error) => {
            screen.error(&error.to_string());
            Exit::Usage
        }
    }
}

/// Writes the manifest.
pub(super) fn write(args: &TimeArgs, screen: &Screen) -> Result<(), Exit> {
    let text = manifest(args).map_err(|message| {
        screen.error(&message);
        Exit::Usage
    })?;
    let shown = args.output.display();
    let is_other = fs::read_to_string(&args.output).is_ok_and(|held| !held.starts_with(HEAD));
    if is_other {
        screen.error(&format!(
            "{shown} is another manifest: -o FILE names one to write"
        ));
        return Err(Exit::Files);
    }
    if let Err(error) = fs::write(&args.output, text) {
        screen.error(&format!("{shown}: {error}"));
        return Err(Exit::Files);
    }
    screen.note(&format!("wrote {shown}"));
    Ok(())
}

/// The text of the manifest.
fn manifest(args: &TimeArgs) -> Result<String, String> {
    let flags = args.words.iter().position(|word| word.starts_with("--"));
    let (commands, flags) = args.words.split_at(flags.unwrap_or(args.words.len()));
    if commands.is_empty() {
        return Err("commands come first, then `--NAME VALUES`".to_owned());
    }
    let mut parameters = Vec::new();
    for pair in flags.chunks(2) {
        match pair {
            [flag, values] if flag.starts_with("--") => {
                let values: Vec<&str> = values.split(',').collect();
                parameters.push((flag.trim_start_matches('-'), values));
            }
            _ => return Err(format!("`{}` has no values: --NAME a,b,c", pair[0])),
        }
    }
    if let Some((name, _)) = parameters.iter().find(|(name, _)| {
        let hole = format!("{{{name}}}");
        !commands.iter().any(|command| command.contains(&hole))
    }) {
        return Err(format!("`{{{name}}}` stands in no command"));
    }
    let mut text = format!("{HEAD}\nschema = 1\n\n[workload.time]\nparams = {{");
    let listed: Vec<String> = parameters
        .iter()
        .map(|(name, values)| format!(" {name} = {}", kind(values)))
        .collect();
    text += &listed.join(",");
    text += " }\n";
    let names = names(commands);
    for (name, command) in names.iter().zip(commands) {
        let words = match command.contains(|c| OF_SHELLS.contains(c)) {
            true => vec!["sh", "-c", command],
            false => command.split_whitespace().collect(),
        };
        let words: Vec<String> = words.into_iter().map(string).collect();
        let _ = write!(
            text,
            "\n[backend.{name}]\nworkload = \"time\"\ncommand  = [{}]\n",
            words.join(", ")
        );
    }
    let axes: Vec<String> = parameters
        .iter()
        .map(|(name, values)| format!(" {name} = [{}]", listed_values(values)))
        .collect();
    let _ = write!(
        text,
        "\n[case.time]\nworkload = \"time\"\ngrid     = {{{} }}\n\n[device]\nuse = \"cpu\"\n\n[measure]\n\
         repeats = {}\n\n[report]\nbaseline = \"{}\"\n",
        axes.join(","),
        args.repeats,
        names[0]
    );
    Ok(text)
}

fn is_whole(values: &[&str]) -> bool {
    values.iter().all(|value| value.parse::<i64>().is_ok())
}

/// A parameter of these values.
fn kind(values: &[&str]) -> String {
    let whole = values.iter().filter_map(|value| value.parse::<i64>().ok());
    match is_whole(values) {
        true => {
            let (least, most) = whole.fold((i64::MAX, i64::MIN), |(least, most), value| {
                (least.min(value), most.max(value))
            });
            format!("{{ int = [{least}, {most}] }}")
        }
        false => format!("{{ choice = [{}] }}", listed_values(values)),
    }
}

fn listed_values(values: &[&str]) -> String {
    let shown = values.iter().map(|value| match is_whole(values) {
        true => (*value).to_owned(),
        false => string(value),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Names of backends: the programs', with numbers where several commands have one.
fn names(commands: &[String]) -> Vec<String> {
    let program = |command: &String| {
        let first = command.split_whitespace().next().unwrap_or("command");
        let name = Path::new(first).file_stem().and_then(|name| name.to_str());
        let plain = name
            .unwrap_or("command")
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        match plain.starts_with(|c: char| c.is_ascii_alphabetic()) {
            true => plain,
            false => format!("c_{plain}"),
        }
    };
    let programs: Vec<String> = commands.iter().map(program).collect();
    let all = programs.iter().enumerate().map(|(at, name)| {
        let is_alone = programs.iter().filter(|other| *other == name).count() == 1;
        let number = programs[..=at]
            .iter()
            .filter(|other| *other == name)
            .count();
        match is_alone {
            true => name.clone(),
            false => format!("{name}_{number}"),
        }
    });
    all.collect()
}
