//! Arguments and results of a function in Python: tensors, reshaped ones, and values of parameters.

use std::ops::Range;

use sweeper_program::Value;

use super::names::{ANY, Names, WHOLE, expression};
use crate::grammar::expression::{WireText, compile};
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::tree::{Node, Raw};
use crate::user::python::declaration::{Autograd, PythonArgument};
use sweeper_model::expression::Scope;

/// A reader of arguments.
pub(super) struct Reader<'n> {
    pub(super) names: &'n Names,
    /// Names that expressions use.
    pub(super) scope: &'n Scope,
}

impl Reader<'_> {
    fn is_tensor(&self, name: &str) -> bool {
        let mut all = self.names.inputs.iter().chain(&self.names.outputs);
        all.any(|tensor| tensor == name)
    }

    /// Whether a text is a lone name, and none that is known.
    fn is_unknown(&self, text: &str) -> bool {
        let is_letter = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let is_name = text.chars().all(is_letter)
            && text.starts_with(|c: char| !c.is_ascii_digit())
            && !["true", "false"].contains(&text);
        is_name && self.scope.find(text).is_none()
    }

    pub(super) fn list(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        key: &str,
    ) -> Option<Vec<PythonArgument>> {
        let Raw::Array(items) = &node.raw else {
            cx.wrong_type(node, key, "a list");
            return None;
        };
        let items = items.iter().map(|item| self.argument(cx, item, key));
        let items: Vec<Option<PythonArgument>> = items.collect();
        items.into_iter().collect()
    }

    pub(super) fn named(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
    ) -> Option<Vec<(String, PythonArgument)>> {
        let table = cx.section(node, "kwargs")?.table;
        let entries = table.entries.iter();
        let entries = entries.map(|entry| {
            let argument = self.argument(cx, &entry.value, &entry.key)?;
            Some((entry.key.clone(), argument))
        });
        let entries: Vec<Option<(String, PythonArgument)>> = entries.collect();
        entries.into_iter().collect()
    }

    fn argument(&self, cx: &mut Context<'_>, node: &Node, key: &str) -> Option<PythonArgument> {
        match &node.raw {
            Raw::Array(_) => Some(PythonArgument::List(self.list(cx, node, key)?)),
            Raw::Text(text) if self.is_tensor(text) => Some(PythonArgument::Tensor {
                name: text.clone(),
                shape: None,
            }),
            Raw::Text(text) if text.ends_with(']') && text.contains('[') => {
                self.reshaped(cx, node, text)
            }
            Raw::Text(text) if self.is_unknown(text) => {
                if !cx.broken.contains(text) {
                    let message = format!("`{key}` has no tensor and no parameter `{text}`");
                    let tensors = [&*self.names.inputs, &*self.names.outputs].concat();
                    let parameters = crate::grammar::expression::names(self.scope);
                    let tensors = match tensors.is_empty() {
                        true => String::new(),
                        false => format!("tensors: {}", tensors.join(" ")),
                    };
                    cx.report(Code::UnknownName, node.at, message)
                        .help(tensors)
                        .help(format!("names of expressions: {}", parameters.join(" ")))
                        .help(format!("a word is {{ text = \"{text}\" }}"));
                }
                None
            }
            Raw::Text(_) => {
                let found = expression(cx, node, key, self.scope, ANY)?;
                Some(PythonArgument::Expression(found.text().to_string()))
            }
            Raw::Table(table) => match table.entries.as_slice() {
                [entry] if entry.key == "text" => {
                    let text = cx.text(&entry.value, "text")?;
                    Some(PythonArgument::Literal(Value::from(text.as_str())))
                }
                _ => {
                    cx.wrong_type(node, key, ARGUMENTS);
                    None
                }
            },
            _ => match literal(node) {
                Some(value) => Some(PythonArgument::Literal(value)),
                None => {
                    cx.wrong_type(node, key, ARGUMENTS);
                    None
                }
            },
        }
    }

    /// A tensor under another shape, such as `x[batch * sequence, dimension]`.
    fn reshaped(&self, cx: &mut Context<'_>, node: &Node, text: &str) -> Option<PythonArgument> {
        let (name, _) = text.split_once('[')?;
        if !self.is_tensor(name) {
            let tensors = [&*self.names.inputs, &*self.names.outputs].concat();
            let message = format!("there is no tensor `{name}`");
            cx.report(Code::UnknownName, node.at, message)
                .help(format!("tensors: {}", tensors.join(" ")));
            return None;
        }
        let inside = name.len() + 1..text.len() - 1;
        let parts = parts(&text[inside.clone()]).into_iter();
        let shape = parts.map(|part| {
            let span = inside.start + part.start..inside.start + part.end;
            self.extent(cx, node, text, span)
        });
        let shape: Vec<Option<String>> = shape.collect();
        Some(PythonArgument::Tensor {
            name: name.to_owned(),
            shape: Some(shape.into_iter().collect::<Option<_>>()?),
        })
    }

    fn extent(
        &self,
        cx: &mut Context<'_>,
        node: &Node,
        text: &str,
        span: Range<usize>,
    ) -> Option<String> {
        let part = WireText {
            key: "args".to_owned(),
            text: text[span.clone()].to_owned(),
            at: cx.texts.inside(node.at, text, span),
            for_all: None,
            is_declared: true,
        };
        let compiled = compile(cx, &part, self.scope)?;
        let (wanted, fits) = WHOLE;
        if fits(compiled.kind()) {
            return Some(compiled.text().to_string());
        }
        let message = format!("an extent is {wanted}");
        cx.report(Code::ExpressionKind, part.at, message);
        None
    }

    pub(super) fn autograd(&self, cx: &mut Context<'_>, node: &Node) -> Option<Autograd> {
        let mut section = cx.section(node, "autograd")?;
        let (inputs, outputs) = (&self.names.inputs, &self.names.outputs);
        let of = self.known(cx, &mut section, "of", outputs);
        let incoming = self.known(cx, &mut section, "incoming", inputs);
        let by = section.need(cx, "by");
        section.finish(cx);
        let table = cx.section(by?, "by")?.table;
        let mut pairs = Vec::new();
        for entry in &table.entries {
            let result = cx.text(&entry.value, &entry.key)?;
            for (at, key, name, all) in [
                (entry.key_at, "by", &entry.key, inputs),
                (entry.value.at, &*entry.key, &result, outputs),
            ] {
                if !all.contains(name) {
                    cx.unknown_word(at, key, name, all.iter().map(String::as_str));
                    return None;
                }
            }
            pairs.push((entry.key.clone(), result));
        }
        if of.is_empty() {
            let message = "`autograd` needs `of`, the output that gradients are of";
            cx.report(Code::MissingKey, node.at, message);
            return None;
        }
        Some(Autograd {
            of,
            incoming,
            by: pairs,
        })
    }

    /// Names of tensors at a key, each of which is among `all`.
    fn known(
        &self,
        cx: &mut Context<'_>,
        section: &mut Section<'_>,
        key: &'static str,
        all: &[String],
    ) -> Vec<String> {
        let mut found = Vec::new();
        for word in section.words(cx, key) {
            match all.contains(&word.value) {
                true => found.push(word.value),
                false => {
                    let known = all.iter().map(String::as_str);
                    cx.unknown_word(word.at, key, &word.value, known);
                }
            }
        }
        found
    }
}

/// Where the parts of a text between commas are that stand in no parentheses.
fn parts(text: &str) -> Vec<Range<usize>> {
    let (mut depth, mut start) = (0, 0);
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(start..text.len());
    found
}

/// The forms of an argument, for people.
const ARGUMENTS: &str = "the name of a tensor, one with a shape such as \"x[n, 4]\", an \
     expression, a value, a list of these, or { text = \"word\" }";

pub(super) fn literal(node: &Node) -> Option<Value> {
    Some(match &node.raw {
        Raw::Bool(value) => Value::Bool(*value),
        Raw::Int(value) => Value::Int(*value),
        Raw::Float(value) => Value::Float(*value),
        Raw::Text(text) => Value::from(text.as_str()),
        Raw::Date | Raw::Array(_) | Raw::Table(_) => return None,
    })
}
