//! The `sweeper` program.

use std::process::ExitCode;

/// A plan of 100,000 points makes and drops as many programs: small allocations are half its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sweeper::cli::main()
}
