//! The `sweeper` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    sweeper::cli::main()
}
