//! Output for people: how much, in colour or not, and where it goes.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};

use super::exit::Exit;

/// Flags that every verb has.
#[derive(Args)]
pub struct ScreenArgs {
    /// Say nothing but errors
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say more
    #[arg(long, short, global = true)]
    verbose: bool,
    /// Colours: auto, always or never (NO_COLOR counts as never)
    #[arg(long, global = true, default_value = "auto")]
    color: ColorChoice,
    /// Machine-readable output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// The terminal, or the files and pipes in its place.
pub struct Screen {
    /// Nothing but errors.
    pub quiet: bool,
    /// More than usual.
    pub verbose: bool,
    /// Machine-readable output.
    pub json: bool,
    /// Colours on standard output.
    pub colour: bool,
    /// Standard error is a terminal.
    pub interactive: bool,
    /// Standard output takes nothing more.
    is_closed: AtomicBool,
    /// Something that was for standard output could not be written.
    is_incomplete: AtomicBool,
}

impl Screen {
    /// The screen that the flags and the environment ask for.
    pub fn new(args: &ScreenArgs) -> Self {
        let colour = match args.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                io::stdout().is_terminal() && io::stderr().is_terminal() && !refused
            }
        };
        Screen {
            quiet: args.quiet,
            verbose: args.verbose,
            json: args.json,
            colour,
            interactive: io::stderr().is_terminal(),
            is_closed: AtomicBool::new(false),
            is_incomplete: AtomicBool::new(false),
        }
    }

    /// Writes to standard output. Where that fails nothing more is written there: a reader that
    /// went away wants no more, and anything else is said once and becomes the [`Screen::verdict`].
    pub fn out(&self, text: &str) {
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
        if let Err(error) = written {
            self.is_closed.store(true, Ordering::Relaxed);
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.is_incomplete.store(true, Ordering::Relaxed);
                self.error(&format!("standard output: {error}"));
            }
        }
    }

    /// How the program ends: output that could not be written is a failure where nothing else
    /// failed.
    pub fn verdict(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Fine if self.is_incomplete.load(Ordering::Relaxed) => Exit::Files,
            exit => exit,
        }
    }

    /// Characters of a line of standard output: those of the terminal, 80 where it is none.
    pub fn width(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(io::stdout());
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        if columns == 0 { 80 } else { columns }
    }

    /// Writes a line to standard output.
    pub fn line(&self, text: &str) {
        self.out(&format!("{text}\n"));
    }

    /// Writes a value as JSON to standard output.
    pub fn json(&self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => self.line(&text),
            Err(error) => self.error(&error.to_string()),
        }
    }

    /// Writes a line to standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.to_stderr(text);
        }
    }

    /// Writes a warning to standard error.
    pub fn warning(&self, text: &str) {
        let word = self.paint("33;1", "warning");
        self.note(&format!("{word}: {text}"));
    }

    /// Writes an error to standard error.
    pub fn error(&self, text: &str) {
        let word = self.paint("31;1", "error");
        self.to_stderr(&format!("{word}: {text}"));
    }

    /// Writes text to standard error as it is.
    pub fn to_stderr(&self, text: &str) {
        // With standard error closed there is no way to tell.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// `text` in a colour, by its ANSI code, where colours are wanted.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
