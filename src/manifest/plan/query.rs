//! Points by words, as people name them: `T=128 K=4 fused forward`, `triton Log`.

use sweeper_program::Value;
use sweeper_program::workload::ParameterKind;

use crate::grid::{Grid, Point};
use crate::model::case::Case;
use sweeper_model::mode::Mode;

/// So many values of an axis are listed where none is the wanted one.
const MOST_VALUES: usize = 16;

/// A query: all words must hold of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    words: Vec<Word>,
    /// How programs are run, where the query says it.
    mode: Option<Mode>,
}

#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// `name=value`: an axis, a derived value, `backend`, `phase`, `dtype` or `workload`.
    Of(String, String),
    /// A case, a workload, a backend, a phase, or a value of an axis of words.
    Bare(String),
}

impl Query {
    /// Reads words.
    pub fn new(text: &str) -> Self {
        let (modes, words): (Vec<&str>, Vec<&str>) = text
            .split_whitespace()
            .partition(|word| Mode::parse(word).is_some());
        let word = |word: &str| match word.split_once('=') {
            Some((name, value)) => Word::Of(name.to_owned(), value.to_owned()),
            None => Word::Bare(word.to_owned()),
        };
        Query {
            words: words.into_iter().map(word).collect(),
            mode: modes.first().and_then(|word| Mode::parse(word)),
        }
    }

    /// True if nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.mode.is_none()
    }

    /// How programs are run, where the query says it.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// True if all words hold of a combination of the grid.
    pub fn matches(&self, grid: &Grid<'_>, point: Point) -> bool {
        self.words.iter().all(|word| word.matches(grid, point))
    }

    /// Why no combination of a grid has all words, in a sentence.
    pub fn why_nothing(&self, grid: &Grid<'_>) -> String {
        let mut met = vec![false; self.words.len()];
        grid.fates(|point, _| {
            for (met, word) in met.iter_mut().zip(&self.words) {
                *met = *met || word.matches(grid, point);
            }
        });
        let missing = self.words.iter().zip(met).find(|(_, met)| !met);
        match missing {
            Some((word, _)) => word.why_nothing(grid),
            None => "each of the words is in the grid, but no combination has them all".to_owned(),
        }
    }
}

impl Word {
    fn matches(&self, grid: &Grid<'_>, point: Point) -> bool {
        let case = grid.case(point);
        match self {
            Word::Of(name, wanted) => match grid.value(point, name) {
                Some(value) => is_value(&value, wanted) || is_alias(case, name, &value, wanted),
                None => false,
            },
            Word::Bare(wanted) => {
                let words = [&*case.name, case.workload.info.name, point.phase.name()];
                let backend = grid.backend(point);
                words.contains(&wanted.as_str())
                    || backend.name == wanted
                    || backend.aliases.contains(&wanted.as_str())
                    || grid.axes(point).any(|(name, value)| {
                        let is_word = matches!(value, Value::Text(_));
                        is_word && (is_value(value, wanted) || is_alias(case, name, value, wanted))
                    })
            }
        }
    }

    /// Why no combination has this word.
    fn why_nothing(&self, grid: &Grid<'_>) -> String {
        let cases = &grid.manifest().cases;
        match self {
            Word::Of(name, _) => {
                let mut values: Vec<String> = Vec::new();
                grid.fates(|point, _| {
                    let value = grid.value(point, name).map(|value| value.to_string());
                    if let Some(value) = value.filter(|value| !values.contains(value)) {
                        values.push(value);
                    }
                });
                match values.len() {
                    0 => format!("no case has an axis `{name}`; there are {}", axes(cases)),
                    count => {
                        let more = count.saturating_sub(MOST_VALUES);
                        values.truncate(MOST_VALUES);
                        let more = match more {
                            0 => String::new(),
                            more => format!(" and {more} more"),
                        };
                        format!(
                            "it is not in the grid: `{name}` is {}{more}",
                            values.join(", ")
                        )
                    }
                }
            }
            Word::Bare(word) => format!(
                "`{word}` is not a case, workload, backend, phase or value of an axis here; backends are {}, phases {}",
                listed(
                    cases
                        .iter()
                        .flat_map(|case| &case.backends)
                        .map(|backend| backend.0.name)
                ),
                listed(
                    cases
                        .iter()
                        .flat_map(|case| &case.phases)
                        .map(|phase| phase.name())
                )
            ),
        }
    }
}

/// True if a value is written so; manifests take words in any case, such as `Log`.
fn is_value(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Float(value) => wanted.parse() == Ok(*value),
        Value::Text(word) => word.eq_ignore_ascii_case(wanted),
        value => value.to_string() == wanted,
    }
}

/// True if `wanted` is another name of a value: of a backend, or of a choice of the workload's.
fn is_alias(case: &Case, name: &str, value: &Value, wanted: &str) -> bool {
    let Value::Text(held) = value else {
        return false;
    };
    let info = case.workload.info;
    if name == "backend" {
        let mut backends = info.backends.iter();
        return backends.any(|each| each.name == &**held && each.aliases.contains(&wanted));
    }
    match info.parameter(name).map(|parameter| parameter.kind) {
        Some(ParameterKind::Choice(choices)) => choices
            .iter()
            .filter(|(word, _)| *word == &**held)
            .flat_map(|(_, aliases)| *aliases)
            .any(|alias| alias.eq_ignore_ascii_case(wanted)),
        _ => false,
    }
}

fn axes(cases: &[Case]) -> String {
    let names = cases.iter().flat_map(|case| &case.variables);
    listed(names.map(|variable| &*variable.name))
}

/// Each once, in order of appearance.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sources::Sources;
    use crate::model::case::registry;
    use crate::model::manifest::Manifest;
    use crate::resolve::overrides::Overrides;

    const TEXT: &str = "schema = 1\nname = \"a\"\n[grid]\nT = [8, 16]\nK = 2\nC = 3\nsemiring = [\"log\", \"max\"]\n\
                        [case.crf]\nworkload = \"semicrf\"\nbackends = [\"fused\", \"streaming\"]\nphases = [\"forward\"]\n\
                        [derive]\nKC = \"K * C\"\n";

    fn count(words: &str) -> usize {
        let sources = Sources::from_text("m.toml", TEXT);
        let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry()).unwrap();
        let grid = Grid::new(&manifest);
        let query = Query::new(words);
        let points = grid.points().iter();
        points.filter(|point| query.matches(&grid, **point)).count()
    }

    #[test]
    fn words_and_other_names_of_them_are_understood() {
        for (words, expected) in [
            ("T=8", 4),
            ("T=8 Log", 2),
            ("semiring=Max triton T=16", 1),
            ("backend=linear_scan_streaming forward crf", 4),
            ("KC=6 semicrf", 8),
            ("T=9", 0),
            ("backward", 0),
            ("X=1", 0),
        ] {
            assert_eq!(count(words), expected, "{words}");
        }
    }

    #[test]
    fn what_is_not_in_the_grid_is_told() {
        let sources = Sources::from_text("m.toml", TEXT);
        let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry()).unwrap();
        let grid = Grid::new(&manifest);
        for (words, expected) in [
            ("T=9 fused", "`T` is 8, 16"),
            ("X=1", "no case has an axis `X`; there are T, K, C"),
            ("backward", "phases forward"),
            ("fused streaming", "no combination has them all"),
        ] {
            let said = Query::new(words).why_nothing(&grid);
            assert!(said.contains(expected), "{words}: {said}");
        }
    }
}
