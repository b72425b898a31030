//! Manifests that are part of this build, by the questions that they answer, for who has none yet.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use super::exit::Exit;
use super::screen::Screen;
use sweeper_results::report::answer::folded;

/// Names and texts; the question is what `about` asks.
const EXAMPLES: [(&str, &str); 6] = [
    ("softmax", include_str!("../../manifests/softmax.toml")),
    ("quick", include_str!("../../manifests/quick.toml")),
    (
        "attention-quick",
        include_str!("../../manifests/attention-quick.toml"),
    ),
    (
        "transformer-quick",
        include_str!("../../manifests/transformer-quick.toml"),
    ),
    (
        "economics-quick",
        include_str!("../../manifests/economics-quick.toml"),
    ),
    (
        "calibration-quick",
        include_str!("../../manifests/calibration-quick.toml"),
    ),
];

/// Where manifests lie in a clone.
const FOLDER: &str = "manifests";

/// The question that a manifest answers.
fn question(text: &str) -> &str {
    let about = text
        .split("about")
        .nth(1)
        .and_then(|rest| rest.split('"').nth(1));
    let about = about.unwrap_or_default();
    about.split_inclusive('?').next().unwrap_or(about)
}

/// The examples, a line each: number, name, question.
pub(super) fn list() -> String {
    let lines = (1..).zip(EXAMPLES).map(|(number, (name, text))| {
        let indented = folded(question(text), 54).replace('\n', &format!("\n{:25}", ""));
        format!("  {number}  {name:<18}  {indented}\n")
    });
    lines.collect()
}

/// The manifest that a command line means: a file, or the name of one in the folder of manifests or
/// of an example, which is written here. Without one, the examples are offered.
///
/// # Errors
/// [`Exit::Usage`] if none was chosen, [`Exit::Files`] if it can't be written; after a message.
pub(super) fn manifest(given: Option<&Path>, screen: &Screen) -> Result<PathBuf, Exit> {
    let Some(given) = given else {
        return offered(screen);
    };
    let is_name = given.extension().is_none() && given.components().count() == 1;
    if given.exists() || !is_name {
        return Ok(given.to_owned());
    }
    let file = given.with_extension("toml");
    let in_clone = Path::new(FOLDER).join(&file);
    if let Some(found) = [&file, &in_clone].into_iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    let named = EXAMPLES.iter().find(|(name, _)| given == Path::new(name));
    match named {
        Some((name, text)) => written(name, text, screen),
        None => Ok(given.to_owned()),
    }
}

/// Asks which of the examples is wanted, where somebody can answer.
fn offered(screen: &Screen) -> Result<PathBuf, Exit> {
    let own = "For code of yours: `sweeper new FILE.c`, `sweeper time 'COMMAND {x}' --x a,b`.";
    let text = format!(
        "Which question? These manifests are part of this build:\n\n{}\n{own}",
        list()
    );
    if screen.json || !can_ask() {
        screen.error(&format!(
            "a manifest is needed, or a name of these.\n{text}"
        ));
        return Err(Exit::Usage);
    }
    screen.to_stderr(&text);
    let Some((name, _)) = chosen() else {
        screen.error("none of these was chosen");
        return Err(Exit::Usage);
    };
    manifest(Some(Path::new(name)), screen)
}

/// Whether somebody is there to answer questions.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The example of the number or name that is typed, if it is one.
pub(super) fn chosen() -> Option<(&'static str, &'static str)> {
    let answer = asked("Number or name: ")?;
    let mut all = (1..).zip(EXAMPLES);
    let found = all.find(|(number, (name, _))| answer == *name || answer == number.to_string());
    found.map(|(_, example)| example)
}

/// The answer to a question; none at the end of input.
pub(super) fn asked(question: &str) -> Option<String> {
    let mut stderr = io::stderr();
    let mut answer = String::new();
    write!(stderr, "{question}")
        .and_then(|()| stderr.flush())
        .ok()?;
    io::stdin().read_line(&mut answer).ok()?;
    Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty())
}

/// Writes an example into this folder.
fn written(name: &str, text: &str, screen: &Screen) -> Result<PathBuf, Exit> {
    let path = PathBuf::from(format!("{name}.toml"));
    create(&path, text, screen)?;
    screen.note(&format!(
        "wrote {}, an example of this build",
        path.display()
    ));
    Ok(path)
}

/// Writes a file that must not exist.
///
/// # Errors
/// [`Exit::Files`], after a message.
pub(super) fn create(path: &Path, text: &str, screen: &Screen) -> Result<(), Exit> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AlreadyExists => "; it is left as it is: name another file",
            _ => "",
        };
        screen.error(&format!("{}: {error}{advice}", path.display()));
        Exit::Files
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_has_a_question_that_fits() {
        for (name, text) in EXAMPLES {
            assert!(question(text).ends_with('?'), "{name}: {}", question(text));
            assert!(
                text.contains(&format!("\"{name}\"")),
                "{name} has another name"
            );
        }
        let list = list();
        assert!(
            list.lines().all(|line| line.chars().count() <= 80),
            "{list}"
        );
    }
}
