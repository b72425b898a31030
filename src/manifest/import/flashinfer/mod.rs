//! Definitions, workloads and solutions of FlashInfer-Bench as a manifest with sources beside it.
//!
//! A comment with a `?` stands where the manifest can't say it, or means something else; at its end
//! stand files and lines that are left out, with their reasons.

mod cases;
mod inputs;
mod problem;
mod schema;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::names::Names;
use problem::Problem;
use schema::{Contents, Definition, Solution, Trace};
pub use sources::SourceText;
use sweeper_model::toml_text::{in_comment, string};

/// A file that was read.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Its path, for people.
    pub path: String,
    /// Its name without the ending.
    pub stem: String,
    /// Its text.
    pub text: String,
}

/// A manifest and the sources that it names.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The manifest.
    pub manifest: String,
    /// The sources.
    pub sources: Vec<SourceText>,
}

/// The manifest of all that can be imported from `files`. `folder` is that of the sources, as the
/// manifest names it; `locate` finds a file that one of `files`, the first path, names by the
/// second.
///
/// # Errors
/// A sentence: there is no definition that can be imported.
pub fn import(
    interpreter: Option<&str>,
    files: &[TraceFile],
    folder: &str,
    locate: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<Imported, String> {
    let contents = files.iter();
    let contents: Vec<(&str, Contents)> = contents
        .map(|file| (&*file.path, Contents::read(&file.text, &file.stem)))
        .collect();
    let mut draft = Draft {
        folder,
        names: Names::new("fi"),
        out: String::new(),
        sources: Vec::new(),
        left_out: LeftOut::default(),
    };
    for (path, found) in &contents {
        for reason in &found.unread {
            draft.left_out.add(path, None, reason.clone());
        }
    }
    let mut problems: Vec<Problem<'_>> = Vec::new();
    for (path, definition) in all(&contents, |found| &found.definitions) {
        match draft.problem(definition, &problems) {
            Ok(problem) => problems.push(problem),
            Err(reason) => draft.left_out.add(path, None, reason),
        }
    }
    if problems.is_empty() {
        return Err(match draft.left_out.lines().as_slice() {
            [] => "no file has a definition".to_owned(),
            lines => lines.join("; "),
        });
    }
    for (path, (line, trace)) in all(&contents, |found| &found.workloads) {
        draft.workload(&mut problems, (path, *line), trace, locate);
    }
    let mut solutions: Vec<(&str, &Solution)> = Vec::new();
    for (path, solution) in all(&contents, |found| &found.solutions) {
        if problems
            .iter()
            .any(|problem| problem.definition.name == solution.definition)
        {
            solutions.push((path, solution));
        } else {
            let reason = format!("its definition `{}` was not imported", solution.definition);
            draft.left_out.add(path, None, reason);
        }
    }
    let is_alone = problems.len() == 1;
    for problem in &mut problems {
        draft.write(problem, &solutions, is_alone);
    }
    for (path, found) in contents.iter().filter(|(_, found)| found.results > 0) {
        let reason = format!(
            "{} results of solutions: `sweeper run` makes new ones",
            found.results
        );
        draft.left_out.add(path, None, reason);
    }
    Ok(draft.finished(interpreter))
}

/// Parts of all files, with the paths of their files.
fn all<'c, T: 'c>(
    contents: &'c [(&'c str, Contents)],
    part: impl Fn(&'c Contents) -> &'c Vec<T>,
) -> impl Iterator<Item = (&'c str, &'c T)> {
    let files = contents.iter();
    files.flat_map(move |(path, found)| part(found).iter().map(|held| (*path, held)))
}

/// A manifest that is being written.
struct Draft<'f> {
    folder: &'f str,
    names: Names,
    out: String,
    sources: Vec<SourceText>,
    left_out: LeftOut,
}

impl Draft<'_> {
    /// A definition as a problem, which gets a name.
    fn problem<'c>(
        &mut self,
        definition: &'c Definition,
        before: &[Problem<'_>],
    ) -> Result<Problem<'c>, String> {
        let name = &definition.name;
        if before
            .iter()
            .any(|problem| problem.definition.name == *name)
        {
            return Err(format!("another definition is called `{name}`"));
        }
        let mut problem = Problem::of(definition)?;
        problem.name = match sweeper_workloads::registry::workload(name) {
            // A manifest can't declare a workload of this build.
            Some(_) => self.names.of(&format!("fi_{name}")),
            None => self.names.of(name),
        };
        Ok(problem)
    }

    /// Adds a line to the problem of its definition.
    fn workload(
        &mut self,
        problems: &mut [Problem<'_>],
        (path, at): (&str, usize),
        trace: &Trace,
        locate: &dyn Fn(&str, &str) -> Result<String, String>,
    ) {
        let name = &trace.definition;
        let mut known = problems.iter_mut();
        let result = match known.find(|problem| problem.definition.name == *name) {
            Some(problem) => problem.add(&trace.workload, |file| locate(path, file)),
            None => Err(format!("the definition `{name}` was not imported")),
        };
        if let Err(reason) = result {
            self.left_out.add(path, Some(at), reason);
        }
    }

    fn write(
        &mut self,
        problem: &mut Problem<'_>,
        solutions: &[(&str, &Solution)],
        is_alone: bool,
    ) {
        let definition = problem.definition;
        let (text, function) = sources::reference(definition);
        let reference = SourceText {
            path: format!("{}/reference.py", problem.name),
            text,
        };
        let path = format!("{}/{}", self.folder, reference.path);
        self.sources.push(reference);
        let inputs = problem.inputs_source().map(|text| SourceText {
            path: format!("{}/inputs.py", problem.name),
            text,
        });
        let inputs_from = inputs
            .as_ref()
            .map(|source| format!("{}/{}", self.folder, source.path));
        self.sources.extend(inputs);
        problem.write_workload(&mut self.out, (&path, function), inputs_from.as_deref());
        let backend = match is_alone {
            true => self.names.of("reference"),
            false => self.names.of(&format!("{}_reference", problem.name)),
        };
        let arguments = problem.backend(&path, sources::RUN, Some(false));
        let _ = write!(self.out, "\n[backend.{backend}]\n{arguments}");
        let own = solutions.iter();
        let own = own.filter(|(_, solution)| solution.definition == definition.name);
        for (path, solution) in own {
            if let Err(reason) = self.solution(problem, solution) {
                self.left_out.add(path, None, reason);
            }
        }
        problem.write_case(&mut self.out);
    }

    /// Writes a solution as a backend.
    fn solution(&mut self, problem: &Problem<'_>, solution: &Solution) -> Result<(), String> {
        let spec = &solution.spec;
        match spec.language.to_ascii_lowercase().as_str() {
            "python" | "triton" | "tilelang" => {}
            "cuda" | "cpp" => return Err(compiled(solution)),
            other => return Err(format!("a solution in {other} can't be imported")),
        }
        let name = self.names.of(&solution.name);
        let (files, main, function) = sources::solution(solution, &name)?;
        let below = |path: &str| format!("{}/{path}", problem.name);
        let path = format!("{}/{}", self.folder, below(&main));
        self.sources
            .extend(files.into_iter().map(|file| SourceText {
                path: below(&file.path),
                text: file.text,
            }));
        let _ = write!(self.out, "\n[backend.{name}]\n");
        if let Some(about) = solution.description.as_ref().or(solution.author.as_ref()) {
            let _ = writeln!(self.out, "about    = {}", string(about));
        }
        let keys = problem.backend(&path, &function, spec.destination_passing_style);
        self.out.push_str(&keys);
        Ok(())
    }

    fn finished(self, interpreter: Option<&str>) -> Imported {
        let exe = interpreter.unwrap_or("${SWEEPER_PYTHON:-python3}");
        let mut manifest = format!(
            "schema = 1\n\n# Imported from FlashInfer-Bench. Lines with a `?` are doubts: look at each. \
             Sources are copies\n# in `{}`.\n\n[python]\nexe = {}\n{}",
            self.folder,
            string(exe),
            self.out
        );
        let left_out = self.left_out.lines();
        if !left_out.is_empty() {
            manifest.push_str("\n# Not imported:\n");
        }
        for line in left_out {
            let _ = writeln!(manifest, "#   {}", in_comment(&line));
        }
        Imported {
            manifest,
            sources: self.sources,
        }
    }
}

/// Why a solution in CUDA or C++ is left out: its function is one of the host.
fn compiled(solution: &Solution) -> String {
    let binding = solution.spec.binding.as_deref().unwrap_or("tvm-ffi");
    let is_kernel = |text: &str| text.contains("__global__");
    let mut sources = solution.sources.iter();
    let kernels = match sources.find(|file| is_kernel(&file.content)) {
        Some(file) => format!(
            "; for a kernel of its `{}` alone, `sweeper new` writes a manifest",
            file.path
        ),
        None => String::new(),
    };
    format!(
        "`{}` is host code in {} with the binding {binding}, which nothing here compiles{kernels}",
        solution.name, solution.spec.language
    )
}

/// Files that are left out, or lines of them, with reasons.
#[derive(Default)]
struct LeftOut(BTreeMap<(String, String), Vec<usize>>);

/// Numbers of lines that are named.
const SHOWN: usize = 3;

impl LeftOut {
    fn add(&mut self, path: &str, line: Option<usize>, reason: String) {
        let lines = self.0.entry((path.to_owned(), reason)).or_default();
        lines.extend(line);
    }

    fn lines(&self) -> Vec<String> {
        let entries = self.0.iter();
        let entries = entries.map(|((path, reason), lines)| {
            let shown: Vec<String> = lines.iter().take(SHOWN).map(usize::to_string).collect();
            let place = match lines.len() {
                0 => String::new(),
                1 => format!(", line {}", shown[0]),
                all if all <= SHOWN => format!(", lines {}", shown.join(", ")),
                all => format!(", lines {} and {} more", shown.join(", "), all - SHOWN),
            };
            format!("{path}{place}: {reason}")
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::names::{assert_unharmed, hostile_variants};

    #[test]
    fn hostile_texts_become_no_structure() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/manifests/flashinfer"
        );
        let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).unwrap();
        let definition = read("definitions/scaled_rows.json");
        let solution = read("solutions/returned.json");
        let file = |stem: &str, text: &str| TraceFile {
            path: format!("{stem}.json"),
            stem: stem.to_owned(),
            text: text.to_owned(),
        };
        let nowhere = |_: &str, _: &str| Err("it is in no folder".to_owned());
        let imported = |definition: &str, solution: &str| {
            let files = [file("scaled_rows", definition), file("returned", solution)];
            import(None, &files, "sources", &nowhere).map(|imported| imported.manifest)
        };
        let definitions = hostile_variants(&definition);
        let solutions = hostile_variants(&solution);
        let written = definitions.iter().map(|it| imported(it, &solution));
        let written = written.chain(solutions.iter().map(|it| imported(&definition, it)));
        let written: Vec<String> = written.filter_map(Result::ok).collect();
        assert!(written.len() > solutions.len(), "{}", written.len());
        written
            .iter()
            .for_each(|manifest| assert_unharmed(manifest));
    }
}
