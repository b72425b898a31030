//! The command line: one verb a file. Only this module prints.

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub mod exit;
pub mod screen;
pub mod place;
pub mod target;
pub mod settings;
pub mod hints;
pub mod progress;
pub mod check;
pub mod plan;
pub mod why;
pub mod run;
pub mod compile;
pub mod rerun;
pub mod runs;
pub mod merge;
pub mod status;
pub mod submit;
pub mod cancel;
mod slurm;
pub mod compare;
mod examples;
pub mod report;
pub mod cache;
pub mod devices;
pub mod aa;
pub mod workloads;
pub mod new;
pub mod import;
pub mod import_flashinfer;
pub mod import_kernelbench;
pub mod starter;
mod repeats;
mod signals;
pub mod referee;
pub mod time;
mod verbs;
pub mod worker;

use exit::Exit;
use sweeper_engine::compile::nvrtc;
use sweeper_model::digests::{self, Digests};

const CODES: &str = "\
`sweeper help VERB` has examples of each verb.

Exit codes: 0 fine, 2 usage, 3 bad manifest, 4 some points failed, 5 a rerun or
comparison differs, 6 files, 7 this place can't do it, 75 stopped early (run again to go on)";

/// Measures kernels over grids of parameters, checks every result, and writes down how anybody can
/// run the same thing again.
#[derive(Parser)]
#[command(name = "sweeper", version, after_help = CODES)]
struct Cli {
    #[command(flatten)]
    screen: screen::ScreenArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Plan, compile, measure and record a manifest; again, only what is missing
    Run(run::RunArgs),
    /// Measure and judge candidates of strangers or of models, as lines of JSON
    Referee(referee::RefereeArgs),
    /// Time programs side by side: 'sort {f}' 'sort -n {f}' --f a,b
    Time(time::TimeArgs),
    /// Show what a run would do, and why
    Plan(plan::PlanArgs),
    /// Say of one point why it is in or out, measured or not, compiled or not
    Why(why::WhyArgs),
    /// Validate a manifest
    Check(check::CheckArgs),
    /// Fill the kernel cache ahead
    Compile(compile::CompileArgs),
    /// Repeat a recorded run and compare outputs bit by bit, and times
    Rerun(rerun::RerunArgs),
    /// Compare recorded runs point by point: faster, slower, or the same
    Compare(compare::CompareArgs),
    /// List recorded runs
    Runs(runs::RunsArgs),
    /// Have Slurm measure a manifest by an array of jobs; again, only what is missing
    Submit(submit::SubmitArgs),
    /// Cancel the jobs of a run
    Cancel(cancel::CancelArgs),
    /// Show how far the processes are that measure a run, on whatever machines
    Status(status::StatusArgs),
    /// Join the journals of a shared run, and of copies of its folder
    Merge(merge::MergeArgs),
    /// Show one recorded run
    Show(runs::ShowArgs),
    /// Make tables and plots of recorded runs, or of CSV files
    Report(report::ReportArgs),
    /// Look into the kernel cache and look after it
    #[command(subcommand)]
    Cache(cache::CacheVerb),
    /// List devices that can run here
    Devices(devices::DevicesArgs),
    /// Say what works here, and what to install for what does not
    Doctor(devices::DoctorArgs),
    /// List workloads, or show one: backends, parameters, tensors, formulas
    Workloads(workloads::WorkloadsArgs),
    /// Write a manifest to start from, by a few questions
    Init(starter::InitArgs),
    /// Write a manifest for kernels or functions of one's own, from their signatures
    New(new::NewArgs),
    /// Write a manifest from a file of another tool
    #[command(subcommand)]
    Import(import::ImportVerb),
    /// Print the JSON Schema of manifests, for editors
    Schema,
    /// Print shell completions
    Completions(starter::CompletionsArgs),
    /// Measure on one device (started by `run`)
    #[command(hide = true)]
    Worker,
    /// Compile kernels while a loop runs (started by a worker)
    #[command(hide = true)]
    Compiler,
    /// Start programs of the user (started by a worker)
    #[command(hide = true)]
    Launcher,
    /// Call kernels that nobody trusts (started by a worker)
    #[command(hide = true)]
    Candidate(worker::CandidateArgs),
}

/// Parses the command line and runs its verb.
pub fn main() -> ExitCode {
    digests::set(Digests {
        engine: env!("SWEEPER_ENGINE_DIGEST"),
        kernels: env!("SWEEPER_KERNELS_DIGEST"),
    });
    let parsed = verbs::explained(Cli::command()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = hints::explain(error);
            // Help and version are not errors, and go to standard output.
            let printed = error.print();
            let is_lost = printed.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe);
            let exit = match error.use_stderr() {
                true => Exit::Usage,
                false if is_lost => Exit::Files,
                false => Exit::Fine,
            };
            return exit.into();
        }
    };
    let screen = screen::Screen::new(&cli.screen);
    place::allow_open_files();
    // Now, since a pool that can't be had when it is first needed is a panic. A worker has one of
    // its own size, a launcher, a compiler and a candidate none.
    if !matches!(
        cli.verb,
        Verb::Worker | Verb::Launcher | Verb::Compiler | Verb::Candidate(_)
    ) && let Err(error) = rayon::ThreadPoolBuilder::new()
        .num_threads(place::processors().0)
        .build_global()
    {
        screen.error(&format!("threads can't be started: {error}"));
        return Exit::Impossible.into();
    }
    let verdict = ended(cli.verb, &screen);
    let exit = screen.verdict(verdict);
    if nvrtc::is_left_at_work() {
        exit.at_once();
    }
    exit.into()
}

/// Runs a verb to its end.
fn ended(verb: Verb, screen: &screen::Screen) -> Exit {
    match verb {
        Verb::Run(args) => run::run(&args, screen),
        Verb::Referee(args) => referee::referee(&args, screen),
        Verb::Time(args) => time::time(&args, screen),
        Verb::Plan(args) => plan::plan(&args, screen),
        Verb::Why(args) => why::why(&args, screen),
        Verb::Check(args) => check::check(&args, screen),
        Verb::Compile(args) => compile::compile(&args, screen),
        Verb::Rerun(args) => rerun::rerun(&args, screen),
        Verb::Compare(args) => compare::compare(&args, screen),
        Verb::Runs(args) => runs::runs(&args, screen),
        Verb::Submit(args) => submit::submit(&args, screen),
        Verb::Cancel(args) => cancel::cancel(&args, screen),
        Verb::Status(args) => status::status(&args, screen),
        Verb::Merge(args) => merge::merge(&args, screen),
        Verb::Show(args) => runs::show(&args, screen),
        Verb::Report(args) => report::report(&args, screen),
        Verb::Cache(verb) => cache::cache(&verb, screen),
        Verb::Devices(args) => devices::devices(&args, screen),
        Verb::Doctor(args) => devices::doctor(&args, screen),
        Verb::Workloads(args) => workloads::workloads(&args, screen),
        Verb::Init(args) => starter::init(&args, screen),
        Verb::New(args) => new::new(&args, screen),
        Verb::Import(verb) => import::import(&verb, screen),
        Verb::Schema => starter::print_schema(screen),
        Verb::Completions(args) => starter::completions::<Cli>(&args, screen),
        Verb::Worker => worker::worker(),
        Verb::Launcher => worker::launcher(),
        Verb::Candidate(args) => worker::candidate(&args),
        Verb::Compiler => worker::compiler(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_a_group_and_has_examples() {
        verbs::tests::assert_whole(&verbs::explained(Cli::command()));
    }
}
