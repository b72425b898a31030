//! Verbs by what they are for, with examples: the text of `--help`, and of each verb's own.

use std::fmt::Write as _;

use clap::Command;

/// Verbs by what they are for, in the order in which somebody meets them, each with examples: the
/// words after `sweeper`, two or more spaces, and their meaning.
const GROUPS: &[(&str, &[(&str, &str)])] = &[
    (
        "Start",
        &[
            (
                "new",
                "new axpy.c                      backends of all functions that take the same arguments
                 new softmax.cu --entry fast     one kernel among several
                 new softplus.py                 functions in Python
                 new axpy.c -o sweep.toml        under another name",
            ),
            (
                "time",
                "time 'sort {f}' 'sort -n {f}' --f a,b   two programs on two files
                 time 'make -j {n}' --n 1,2,4            one program over a parameter
                 time ./a ./b -o ab.toml                 keeps the manifest under a name",
            ),
            (
                "init",
                "init                  asks what is to be measured, and writes it down
                 init softmax.toml     a commented starter
                 init < /dev/null      the same as sweep.toml, without questions",
            ),
            (
                "import",
                "import kernelbench level1/     problems of KernelBench
                 import flashinfer trace/       definitions of FlashInfer-Bench
                 import t1 gemm.json            a tuning problem of Kernel Tuner",
            ),
            (
                "doctor",
                "doctor                 what works here, and what to install for what does not
                 doctor --aa            how far two runs of one program differ here
                 doctor --json          the same for scripts",
            ),
        ],
    ),
    (
        "Run",
        &[
            (
                "run",
                "run                                     which questions there are examples for
                 run quick                               one of them
                 run manifests/paper.toml --T 128,256    a manifest with another axis
                 run m.toml --retry oom,timeout          points again that have no result",
            ),
            (
                "referee",
                "referee softmax.toml < lines.json              a verdict for each candidate, as JSON
                 referee softmax.toml --candidates tried/      for each file of a folder
                 referee softmax.toml --socket referee.sock    for whoever connects",
            ),
            (
                "plan",
                "plan manifests/paper.toml      what would be measured and compiled
                 plan m.toml --list             each point
                 plan m.toml --arch sm_90       for a GPU that is not here",
            ),
            (
                "check",
                "check m.toml                       whether it is right, and how many points it has
                 check m.toml --resolved            where every value comes from
                 check m.toml --set grid.n=1000     with a key overridden",
            ),
            (
                "compile",
                "compile m.toml                         fill the kernel cache ahead
                 compile m.toml --arch sm_80,sm_90      for GPUs that need not be here
                 compile m.toml --cache-dir /scratch    into another folder",
            ),
            (
                "rerun",
                "rerun 3f9a                     repeat a run, and compare outputs and times
                 rerun results/quick-3f9a12     a run by its folder
                 rerun 3f9a --anyway            on another device or toolchain",
            ),
        ],
    ),
    (
        "Look",
        &[
            (
                "report",
                "report                    tables and plots of the last run
                 report 3f9a --html        one page to look through
                 report results.csv        of a CSV file, ours or a guide's",
            ),
            (
                "runs",
                "runs                               what was measured here
                 runs --output-dir /scratch/runs    in another folder
                 runs --all                         wherever it was written",
            ),
            (
                "show",
                "show 3f9a                     one run: device, settings, outcomes
                 show 3f9a --rows              every row
                 show results/quick-3f9a12     a run by its folder",
            ),
            (
                "why",
                "why m.toml T=1024             which points are in, and which rule leaves others out
                 why m.toml T=1024 fused       why one is measured or compiled again
                 why m.toml 3f9a --json        a point by its id, for scripts",
            ),
            (
                "workloads",
                "workloads             all of this build
                 workloads softmax     its backends, parameters, tensors, formula
                 workloads --json      the same for scripts",
            ),
            (
                "devices",
                "devices                 processors and GPUs that can run here
                 devices --calibrate     what they can do at most, measured again
                 devices --json          the same for scripts",
            ),
        ],
    ),
    (
        "Compare",
        &[(
            "compare",
            "compare 3f9a 81c2                  two runs, by the first digits of their ids
             compare old/ new/ --by backend     all runs below two folders
             compare a/1 a/2 -- b/1 b/2         several runs a side
             compare old/ new/ --fail-on 'slower > 3%' --markdown",
        )],
    ),
    (
        "Cache",
        &[(
            "cache",
            "cache stats     how full it is, and what happened in it
             cache ls        all entries
             cache gc        evict until 90 % of the bound",
        )],
    ),
    (
        "Cluster",
        &[
            (
                "submit",
                "submit m.toml                     have Slurm measure it by an array of jobs
                 submit m.toml --dry-run           print the scripts alone
                 submit m.toml --retry failed      again, with tasks that have failed points",
            ),
            (
                "status",
                "status 3f9a                     how far its processes are
                 status 3f9a --watch             until they are done
                 status results/paper-3f9a12     a run by its folder",
            ),
            (
                "cancel",
                "cancel 3f9a                     the jobs of a run
                 cancel results/paper-3f9a12     of a run by its folder
                 cancel 3f9a --json              the same for scripts",
            ),
            (
                "merge",
                "merge 3f9a                      the shards of a run
                 merge 3f9a /copy/paper-3f9a     with a copy from elsewhere
                 merge 3f9a --json               the same for scripts",
            ),
        ],
    ),
    (
        "Editors and shells",
        &[
            (
                "schema",
                "schema > schema.json        the JSON Schema of manifests
                 schema | jq .properties     its sections
                 schema --color never        without colours",
            ),
            (
                "completions",
                "completions bash     to be sourced by bash
                 completions zsh      by zsh
                 completions fish     by fish",
            ),
        ],
    ),
];

/// The command with verbs in groups, and examples in the help of each.
pub(super) fn explained(command: Command) -> Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        groups(&command)
    );
    let command = command.help_template(template);
    // Without a manifest `run` offers examples.
    let command = command.mut_subcommand("run", |run| {
        run.mut_arg("manifest", |manifest| manifest.required(false))
    });
    let verbs = GROUPS.iter().flat_map(|(_, verbs)| *verbs);
    verbs.fold(command, |command, &(verb, examples)| {
        command.mut_subcommand(verb, |verb| {
            let more = verb.get_after_help().map(|text| format!("\n\n{text}"));
            let more = more.unwrap_or_default();
            verb.after_help(format!("{}{more}", shown(examples).trim_end()))
        })
    })
}

/// The groups with their verbs, a line each.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        let _ = writeln!(text, "{group}:");
        for (verb, _) in *verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {verb:<12} {about}");
        }
        text.push('\n');
    }
    text
}

/// A verb's examples as help shows them.
fn shown(examples: &str) -> String {
    let lines = examples
        .lines()
        .map(|line| format!("  sweeper {}\n", line.trim()));
    format!("Examples:\n{}", lines.collect::<String>())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The command lines of all examples, with the verb that each is of.
    fn command_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
        let verbs = GROUPS.iter().flat_map(|(_, verbs)| *verbs);
        verbs.flat_map(|&(verb, examples)| {
            let lines = examples.lines();
            lines.map(move |line| (verb, line.trim().split("  ").next().unwrap_or(line)))
        })
    }

    /// The words of a command line, as a shell divides it up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let quoted = line.split('\'').enumerate();
        let parts = quoted.flat_map(|(at, part)| match at % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        });
        let is_word = |part: &String| !["<", ">", "|"].contains(&part.as_str());
        std::iter::once("sweeper".to_owned())
            .chain(parts.take_while(is_word))
            .collect()
    }

    /// Each verb is in one group and has examples that the command line takes.
    pub(in crate::cli) fn assert_whole(command: &Command) {
        let in_groups: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| verbs.iter().map(|(verb, _)| *verb))
            .collect();
        let all = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in all.map(Command::get_name) {
            let count = in_groups.iter().filter(|known| **known == verb).count();
            assert_eq!(count, 1, "`{verb}` is in {count} groups");
            let examples = command_lines().filter(|(of, _)| *of == verb).count();
            assert!(examples >= 3, "`{verb}` has {examples} examples");
        }
        for (verb, line) in command_lines() {
            let matches = command.clone().try_get_matches_from(words(line));
            let matches = matches.unwrap_or_else(|error| panic!("`{line}`: {error}"));
            assert_eq!(matches.subcommand_name(), Some(verb), "{line}");
        }
    }
}
