//! Flags of the guides that are not flags here, with their replacements.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags as the guides have them, and hints on their replacements.
const HINTS: &[(&str, &str)] = &[
    (
        "--quick",
        "quick sweeps are manifests of their own: manifests/quick.toml (semi-Markov CRFs), operations-quick.toml \
         (layer norm, activations, losses), economics-quick.toml (when compiling pays), calibration-quick.toml \
         (fusion)",
    ),
    (
        "--fusion-patterns",
        "patterns are axes: manifests/calibration.toml has all of them, and `--case linear --set \
         case.linear.grid.pattern=bias,bias_relu` chooses",
    ),
    (
        "--output",
        "`--output-dir DIR` says where runs go; a run's guide files, such as calibration_profile.json, are in \
         its folder under exports",
    ),
    (
        "--output-file",
        "`--output-dir DIR` says where runs go; a run's guide files, such as benchmark_results.json, are in its \
         folder under exports",
    ),
    (
        "--input",
        "`sweeper report FILE` makes tables and plots of a CSV file, ours or the guide's",
    ),
    (
        "--num-iterations",
        "`--repeats N` (the attention guide's iterations) is how often a point is measured, `--iterations N` how long the loop is that economics \
         is about",
    ),
    (
        "--hot-threshold",
        "`--set measure.hot_threshold=N` says after how many iterations the backend `auto` compiles a loop; the \
         column `break_even` of the table `economics` says from how many on compiling pays",
    ),
];

/// The hint for a flag of a guide.
fn hint(flag: &str) -> Option<&'static str> {
    let name = flag.split('=').next().unwrap_or(flag);
    let found = HINTS.iter().find(|(held, _)| *held == name);
    found.map(|(_, hint)| *hint)
}

/// Explains an error of the command line, where it is about a flag that a guide has.
pub fn explain(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => hint(flag),
        _ => None,
    };
    if let Some(hint) = unknown {
        // A flag that is merely spelt alike would mislead.
        error.remove(ContextKind::SuggestedArg);
        let hint = ContextValue::StyledStrs(vec![hint.to_owned().into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_manifest::overrides::FLAGS;

    #[test]
    fn hints_are_for_flags_that_there_are_not() {
        for (flag, _) in HINTS {
            let is_there = FLAGS.iter().any(|known| known.flags.contains(flag));
            assert!(!is_there, "{flag} is a flag");
        }
        assert!(hint("--quick").is_some_and(|hint| hint.contains("economics-quick.toml")));
        assert!(hint("--output=profiles/test.json").is_some());
        assert_eq!(hint("--quik"), None);
    }
}
