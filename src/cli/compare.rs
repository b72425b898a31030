//! `sweeper compare`: two sides of recorded runs, point by point.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use super::exit::Exit;
use super::place;
use super::runs::Place;
use super::screen::Screen;
use sweeper_results::compare::fail_on::FailOn;
use sweeper_results::compare::pairing::Pairs;
use sweeper_results::compare::render::{data, markdown, terminal};
use sweeper_results::compare::spread::{Spread, SpreadFile};
use sweeper_results::compare::verdict::{Correction, Rule};
use sweeper_results::compare::{CompareError, Comparison, Settings, compare as compare_sides};
use sweeper_results::report::source::{self, Source, folders};

const TURNS: &str = "\
Two runs differ by more than their samples show. Where it matters, make runs in turns:
  for i in $(seq 20); do
    OLD run m.toml --output-dir old/$i; NEW run m.toml --output-dir new/$i
  done";

/// Arguments of `compare`.
#[derive(Args)]
#[command(after_help = TURNS)]
pub struct CompareArgs {
    /// A and B; with `--`, the runs of A alone: first digits of a run's id, a run's folder, a
    /// folder of runs, or a CSV file
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// The runs of B
    #[arg(last = true, value_name = "RUN")]
    others: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Geometric means for each value of an axis, such as backend or T
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    by: Vec<String>,
    /// The least difference that counts
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = share)]
    margin: f64,
    /// How far apart two runs of one program lie there, if you know better than `doctor --aa`
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    spread: Option<f64>,
    /// Whether runs were made in pairs
    #[arg(long, value_enum, default_value_t = Pairs::Auto)]
    pairs: Pairs,
    /// How many comparisons at once are allowed for
    #[arg(long, value_enum, default_value_t = Correction::Holm)]
    correction: Correction,
    /// End with exit code 5 on: `slower > 3%`, `faster > 3%`, `status`, `missing`, `digest`; may be
    /// given several times
    #[arg(long, value_name = "CONDITION", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Print Markdown, for pull requests
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    markdown: bool,
    /// Print one line of CSV a point
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Show every point
    #[arg(long)]
    all: bool,
}

/// `3%`, `3 %` or `0.5%`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').map(str::trim);
    let percent = number.and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a percentage from 0% to less than 100%, such as `1%`".to_owned()),
    }
}

/// Compares recorded runs.
pub fn compare(args: &CompareArgs, screen: &Screen) -> Exit {
    let named = match sides(args) {
        Ok(named) => named,
        Err(message) => {
            screen.error(&message);
            return Exit::Usage;
        }
    };
    for condition in &args.fail_on {
        if let Err(message) = condition.check(args.margin) {
            screen.error(&format!("--fail-on {message}"));
            return Exit::Usage;
        }
    }
    let [a, b] = match open(&named, &args.place.output_dir) {
        Ok(sides) => sides,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };

    let settings = Settings {
        rule: Rule {
            margin: args.margin,
            correction: args.correction,
        },
        pairs: args.pairs,
        spread: args.spread.map_or_else(|| spread([&a, &b]), Spread::given),
        by: args.by.clone(),
    };
    let comparison = match compare_sides([&a, &b], &settings) {
        Ok(comparison) => comparison,
        Err(error) => {
            screen.error(&error.to_string());
            return match error {
                CompareError::Settings(_) => Exit::Usage,
                CompareError::Rows(_) => Exit::Files,
            };
        }
    };
    show(args, &comparison, screen)
}

fn show(args: &CompareArgs, comparison: &Comparison, screen: &Screen) -> Exit {
    let failures: Vec<(&FailOn, usize)> = args
        .fail_on
        .iter()
        .map(|condition| (condition, condition.count(comparison)))
        .collect();
    match () {
        () if screen.json => screen.json(&data::json(comparison, &failures)),
        () if args.markdown => screen.out(&markdown::text(comparison, &failures)),
        () if args.csv => match data::csv(comparison) {
            Ok(text) => screen.out(&text),
            Err(error) => {
                screen.error(&error.to_string());
                return Exit::Files;
            }
        },
        () => {
            let paint = |code: &str, text: &str| screen.paint(code, text);
            screen.out(&terminal::text(comparison, &failures, args.all, &paint));
        }
    }
    match failures.iter().any(|(_, count)| *count > 0) {
        true => Exit::Different,
        false => Exit::Fine,
    }
}

/// The names of A and of B.
fn sides(args: &CompareArgs) -> Result<[Vec<String>; 2], String> {
    match (&args.runs[..], &args.others[..]) {
        ([a, b], []) => Ok([vec![a.clone()], vec![b.clone()]]),
        ([_], []) => Err("compare needs two sides: `sweeper compare A B`".to_owned()),
        (many, []) => Err(format!(
            "{} runs and no `--` between the two sides: `sweeper compare A1 A2 -- B1 B2`; three versions \
             are compared two by two",
            many.len()
        )),
        (a, b) => Ok([a.to_vec(), b.to_vec()]),
    }
}

/// The sources of both sides.
fn open(named: &[Vec<String>; 2], dir: &Path) -> Result<[Vec<Source>; 2], String> {
    let mut counts = [0, 0];
    let mut names = Vec::new();
    for (side, given) in named.iter().enumerate() {
        for name in given {
            let all = expanded(name)?;
            counts[side] += all.len();
            names.extend(all);
        }
    }
    let mut a = source::open_all(&names, dir).map_err(|error| error.to_string())?;
    let b = a.split_off(counts[0]);
    Ok([a, b])
}

/// A folder that is not a run but has some in it stands for them.
fn expanded(name: &str) -> Result<Vec<String>, String> {
    let path = Path::new(name);
    if !path.is_dir() || folders::is_run(path) {
        return Ok(vec![name.to_owned()]);
    }
    let runs = folders::runs_below(path).map_err(|error| format!("{name}: {error}"))?;
    if runs.is_empty() {
        return Err(format!(
            "{name}: no run is in this folder, nor below; `sweeper run` makes some"
        ));
    }
    Ok(runs
        .into_iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect())
}

/// The widest spread that is remembered here of the sides' devices, or else assumed of their kinds.
fn spread(sides: [&[Source]; 2]) -> Spread {
    let folder = place::cache_dir(None).0;
    let mut found: Option<Spread> = None;
    let mut add = |spread: Spread| {
        found = Some(match found.take() {
            Some(held) => held.wider(spread),
            None => spread,
        });
    };
    let mut seen = BTreeSet::new();
    for source in sides.into_iter().flatten() {
        let threads = source.entries.iter().find_map(|entry| entry.threads);
        let threads = threads.unwrap_or(1);
        let kind = source.entries.iter().find_map(|entry| entry.device);
        let devices = source.environment.as_ref();
        let devices = devices.map_or(&[][..], |held| &held.identity.devices[..]);
        if devices.is_empty() && seen.insert((None, 0)) {
            add(Spread::assumed(kind));
        }
        for device in devices {
            if seen.insert((Some(device), threads)) {
                let held = SpreadFile::read(&folder, device, threads);
                add(held.map_or_else(|| Spread::assumed(Some(device.kind)), |held| held.spread));
            }
        }
    }
    found.unwrap_or_else(|| Spread::assumed(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_strictly() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share(" 2.5 %"), Ok(0.025));
        assert_eq!(share("0%"), Ok(0.0));
        for wrong in ["1", "", "%", "-1%", "100%", "NaN%", "inf%", "one%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
