//! A backend that is a source in CUDA or C: its keys, and how its functions are launched.

use sweeper_program::Dtype;

use super::keys::LAUNCH;
use super::names::{ANY, NUMBER, Names, WHOLE, expression, template, template_of};
use super::problem::tensor;
use super::source;
use crate::grammar::expression::check_name;
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::tree::{Entry, Node, Raw};
use crate::user::declaration::{
    ArgDeclaration, DeclaredLanguage, KernelsDeclaration, LaunchDeclaration, ScratchDeclaration,
};
use sweeper_model::expression::Scope;

/// A reader of the launches of one backend.
struct Reader<'n> {
    names: &'n Names,
    /// Names that expressions use.
    scope: &'n Scope,
    /// Names of tensors that arguments use.
    tensors: Vec<String>,
    language: DeclaredLanguage,
    has_source: bool,
}

/// Reads the keys of a source, and reports mistakes.
pub(super) fn kernels(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    names: &Names,
    scope: &Scope,
) -> Option<KernelsDeclaration> {
    if names.outputs.is_empty() && names.is_broken {
        section.abandon();
        return None;
    }
    if names.outputs.is_empty() {
        let message = format!(
            "`{}` has a source, and its workload has no outputs",
            section.path
        );
        cx.report(Code::Declaration, section.at, message)
            .help("a kernel computes tensors: the workload needs `outputs` and a `check`");
        section.abandon();
        return None;
    }
    let source = source::source(cx, section);
    let scratch = section.take(cx, "scratch");
    let mut tensors = [names.inputs.clone(), names.outputs.clone()].concat();
    let scratch = scratch.map_or_else(Vec::new, |node| scratch_of(cx, node, scope, &tensors));
    tensors.extend(scratch.iter().map(|scratch| scratch.tensor.name.clone()));
    let defines = section.take(cx, "defines");
    let defines = defines.map_or_else(Vec::new, |node| defines_of(cx, node, scope));
    let constants = section.take(cx, "constants");
    let constants = constants.map_or_else(Vec::new, |node| {
        constants_of(cx, node, names, source::language(section))
    });
    let options = section.take(cx, "options");
    let mut options = options.map_or_else(Vec::new, |node| options_of(cx, node, scope));
    let libraries = section
        .words(cx, "libs")
        .into_iter()
        .map(|word| word.value)
        .collect();
    let reader = Reader {
        names,
        scope,
        tensors,
        language: source::language(section),
        has_source: source.is_some(),
    };
    let launches = reader.launches(cx, section);
    let source = source?;
    // Paths have no expressions.
    let literal = |option: String| option.replace('{', "{{").replace('}', "}}");
    options.extend(source.options.into_iter().map(literal));
    Some(KernelsDeclaration {
        language: source.language,
        files: source.files,
        launches: launches?,
        scratch,
        constants,
        defines,
        options,
        libraries,
    })
}

/// Options of the compiler, with expressions in braces.
fn options_of(cx: &mut Context<'_>, node: &Node, scope: &Scope) -> Vec<String> {
    let words = cx.words(node, "options").unwrap_or_default().into_iter();
    let checked = words.filter(|word| {
        let at = Node {
            at: word.at,
            ..node.clone()
        };
        template_of(cx, &at, "options", &word.value, scope).is_some()
    });
    checked.map(|word| word.value).collect()
}

/// Variables of the source, and the inputs that are copied there.
fn constants_of(
    cx: &mut Context<'_>,
    node: &Node,
    names: &Names,
    language: DeclaredLanguage,
) -> Vec<(String, String)> {
    if language == DeclaredLanguage::C {
        let message = "`constants` is for CUDA; a function in C gets its tensors as arguments";
        cx.report(Code::Conflict, node.at, message);
        return Vec::new();
    }
    let Some(section) = cx.section(node, "constants") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in &section.table.entries {
        let is_name = |c: char| c == '_' || c == ':' || c.is_ascii_alphanumeric();
        if !entry.key.chars().all(is_name) || entry.key.is_empty() {
            let message = format!("`{}` is not a variable of CUDA", entry.key);
            cx.report(Code::Name, entry.key_at, message);
        } else if let Some(input) = cx.text(&entry.value, &entry.key) {
            if names.inputs.contains(&input) {
                found.push((entry.key.clone(), input));
            } else {
                let known = names.inputs.iter().map(String::as_str);
                cx.unknown_word(entry.value.at, &entry.key, &input, known);
            }
        }
    }
    found
}

/// Memory of a backend, whose names are none of `tensors`.
fn scratch_of(
    cx: &mut Context<'_>,
    node: &Node,
    scope: &Scope,
    tensors: &[String],
) -> Vec<ScratchDeclaration> {
    let Some(section) = cx.section(node, "scratch") else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    let read = |entry: &Entry| {
        let scratch = scratch(cx, entry, scope, tensors);
        if scratch.is_none() {
            cx.broken.insert(entry.key.clone());
        }
        scratch
    };
    entries.filter_map(read).collect()
}

fn scratch(
    cx: &mut Context<'_>,
    entry: &Entry,
    scope: &Scope,
    tensors: &[String],
) -> Option<ScratchDeclaration> {
    if !check_name(cx, entry) {
        return None;
    }
    if tensors.contains(&entry.key) {
        let message = format!("`{}` is a tensor of the problem, too", entry.key);
        cx.report(Code::Duplicate, entry.key_at, message)
            .label("choose another name");
        return None;
    }
    let mut section = cx.section(&entry.value, &entry.key)?;
    let tensor = tensor(cx, &mut section, &entry.key, scope);
    let initial = section.optional(cx, "init", Context::number);
    section.finish(cx);
    Some(ScratchDeclaration {
        tensor: tensor?,
        initial: initial?,
    })
}

fn defines_of(cx: &mut Context<'_>, node: &Node, scope: &Scope) -> Vec<(String, String)> {
    let Some(section) = cx.section(node, "defines") else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let read = |entry: &Entry| {
        let key = &entry.key;
        if key.starts_with(|c: char| c.is_ascii_digit()) || !key.chars().all(is_name) {
            let message = format!("`{key}` can't be a macro");
            cx.report(Code::Name, entry.key_at, message)
                .label("letters, digits and `_`, and no digit first");
            return None;
        }
        let value = expression(cx, &entry.value, &entry.key, scope, ANY)?;
        Some((entry.key.clone(), value.text().to_string()))
    };
    entries.filter_map(read).collect()
}

impl Reader<'_> {
    /// The launches: those of `launch`, or the one at the backend's table.
    fn launches(
        &self,
        cx: &mut Context<'_>,
        section: &mut Section<'_>,
    ) -> Option<Vec<LaunchDeclaration>> {
        let Some(node) = section.take(cx, "launch") else {
            let launch = self.launch(cx, section);
            let launches = vec![launch?];
            self.outputs_are_passed(cx, section, &launches);
            return Some(launches);
        };
        for key in LAUNCH.iter().map(|key| key.name) {
            if let Some(node) = section.take(cx, key) {
                let message = format!("`{key}` stands beside `launch`");
                cx.report(Code::Conflict, node.at, message)
                    .help("with several launches each has its own keys: `[[backend.NAME.launch]]`");
            }
        }
        let items = node.items();
        let mut launches = Vec::new();
        let mut is_sound = true;
        for item in items {
            let Some(mut inner) = cx.section(item, "launch") else {
                is_sound = false;
                continue;
            };
            match self.launch(cx, &mut inner) {
                Some(launch) => launches.push(launch),
                None => is_sound = false,
            }
            inner.finish(cx);
        }
        if is_sound {
            self.outputs_are_passed(cx, section, &launches);
        }
        is_sound.then_some(launches)
    }

    /// Reports outputs that no launch gets: they would never be written.
    fn outputs_are_passed(
        &self,
        cx: &mut Context<'_>,
        section: &Section<'_>,
        launches: &[LaunchDeclaration],
    ) {
        let is_passed = |output: &str| {
            let mut args = launches.iter().flat_map(|launch| &launch.args);
            args.any(|arg| matches!(arg, ArgDeclaration::Tensor { name, .. } if name == output))
        };
        let is_any_passed = self.names.outputs.iter().any(|output| is_passed(output));
        if !is_any_passed && !self.names.is_broken {
            let message = format!("`{}` passes no output to its source", section.path);
            cx.report(Code::Declaration, section.at, message)
                .help(format!("outputs: {}", self.names.outputs.join(" ")));
        }
    }

    fn launch(&self, cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<LaunchDeclaration> {
        let entry = section.need(cx, "entry");
        let entry = entry.and_then(|node| self.entry(cx, node));
        let args = section.need(cx, "args").map(|node| self.args(cx, node));
        let is_cuda = self.language == DeclaredLanguage::Cuda;
        let mut extents = |cx: &mut Context<'_>, key: &'static str| match section.take(cx, key) {
            Some(node) if is_cuda || !self.has_source => self.extents(cx, node, key),
            Some(node) => {
                let message = format!("`{key}` is for CUDA; a function in C is called once");
                cx.report(Code::Conflict, node.at, message);
                None
            }
            None => Some(Vec::new()),
        };
        let grid = extents(cx, "grid");
        let block = extents(cx, "block");
        let shared = extents(cx, "shared").map(|extents| extents.into_iter().next());
        let cluster = extents(cx, "cluster").map(|extents| extents.into_iter().next());
        if is_cuda && self.has_source {
            for key in ["grid", "block"] {
                section.need(cx, key);
            }
        }
        Some(LaunchDeclaration {
            entry: entry?,
            args: args??,
            grid: grid?,
            block: block?,
            shared: shared?,
            cluster: cluster?,
        })
    }

    /// The name of a function; expressions in braces are checked.
    fn entry(&self, cx: &mut Context<'_>, node: &Node) -> Option<String> {
        let text = template(cx, node, "entry", self.scope)?;
        let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if self.language == DeclaredLanguage::C && !text.chars().all(is_name) || text.is_empty() {
            cx.report(
                Code::Name,
                node.at,
                format!("`{text}` is not a function of C"),
            );
            return None;
        }
        Some(text)
    }

    fn args(&self, cx: &mut Context<'_>, node: &Node) -> Option<Vec<ArgDeclaration>> {
        let Raw::Array(items) = &node.raw else {
            cx.wrong_type(node, "args", "a list");
            return None;
        };
        let args: Vec<Option<ArgDeclaration>> =
            items.iter().map(|item| self.arg(cx, item)).collect();
        args.into_iter().collect()
    }

    fn arg(&self, cx: &mut Context<'_>, node: &Node) -> Option<ArgDeclaration> {
        if let Some(name) = node.text() {
            return self.tensor(cx, node, name, None);
        }
        let Some(table) = node.table() else {
            cx.wrong_type(node, "args", ARGS);
            return None;
        };
        if let Some(name) = table.value("ptr").and_then(Node::text) {
            let mut section = Section::new(table, node.at, "args");
            section.take(cx, "ptr");
            let offset = section.optional(cx, "offset", |cx, node, key| {
                expression(cx, node, key, self.scope, WHOLE)
            });
            section.finish(cx);
            let offset = offset?.map(|offset| offset.text().to_string());
            return self.tensor(cx, node, name, offset);
        }
        let [entry] = table.entries.as_slice() else {
            cx.wrong_type(node, "args", ARGS);
            return None;
        };
        let Some(dtype) = Dtype::named(&entry.key) else {
            let names = Dtype::ALL.iter().map(|dtype| dtype.name());
            cx.unknown_word(entry.key_at, "args", &entry.key, names.chain(["ptr"]));
            return None;
        };
        let wanted = if dtype.is_real() {
            NUMBER
        } else if dtype == Dtype::Bool {
            ANY
        } else {
            WHOLE
        };
        let value = expression(cx, &entry.value, &entry.key, self.scope, wanted)?;
        Some(ArgDeclaration::Scalar(dtype, value.text().to_string()))
    }

    fn tensor(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        name: &str,
        offset: Option<String>,
    ) -> Option<ArgDeclaration> {
        if self.tensors.iter().any(|tensor| tensor == name) {
            return Some(ArgDeclaration::Tensor {
                name: name.to_owned(),
                offset,
            });
        }
        if cx.broken.contains(name) {
            return None;
        }
        let message = format!("there is no tensor `{name}`");
        let help = format!(
            "tensors: {}; a number has its type: {{ i32 = \"{name}\" }}",
            self.tensors.join(" ")
        );
        cx.report(Code::UnknownName, node.at, message).help(help);
        None
    }

    /// One to three expressions.
    fn extents(&self, cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<String>> {
        let items = node.items();
        if !(1..=3).contains(&items.len()) {
            cx.wrong_type(node, key, "one to three expressions");
            return None;
        }
        let extent = |item: &Node| {
            let extent = expression(cx, item, key, self.scope, WHOLE)?;
            Some(extent.text().to_string())
        };
        items.iter().map(extent).collect()
    }
}

/// The forms of an argument, for people.
const ARGS: &str = "the name of a tensor, { ptr = \"x\", offset = \"n\" }, or a number with its \
     type such as { i32 = \"n\" }";
