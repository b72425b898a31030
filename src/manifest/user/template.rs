//! Texts with expressions in them.

use super::scope::compile;
use sweeper_model::expression::{Expression, Operand, Scope};

/// A text in which expressions stand in braces, such as `reduce<{T}, {block_size}>`; `{{` and `}}`
/// are braces of the text.
#[derive(Debug)]
pub(crate) struct Template {
    /// Texts, each with the expression after it; the last has none.
    parts: Vec<(String, Option<Expression>)>,
}

/// The pieces of a text: texts, each with the expression after it; the last has none.
///
/// # Errors
/// A sentence: a brace without its other.
pub(crate) fn pieces(text: &str) -> Result<Vec<(String, Option<&str>)>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        if from.starts_with("{{") || from.starts_with("}}") {
            plain.push_str(&from[..1]);
            rest = &from[2..];
            continue;
        }
        let inside = from.strip_prefix('{').ok_or_else(|| {
            format!("`{text}` has a `}}` without its `{{`; `}}}}` is a brace of the text")
        })?;
        let (expression, behind) = inside.split_once('}').ok_or_else(|| {
            format!("`{text}` has a `{{` that is not closed; `{{{{` is a brace of the text")
        })?;
        pieces.push((std::mem::take(&mut plain), Some(expression)));
        rest = behind;
    }
    plain.push_str(rest);
    pieces.push((plain, None));
    Ok(pieces)
}

impl Template {
    /// # Errors
    /// A brace without its other, or a mistake in the expression between two.
    pub(super) fn new(text: &str, scope: &Scope) -> Result<Self, String> {
        let parts = pieces(text)?.into_iter().map(|(plain, expression)| {
            let expression = expression.map(|text| compile(text, scope)).transpose()?;
            Ok((plain, expression))
        });
        Ok(Template {
            parts: parts.collect::<Result<_, String>>()?,
        })
    }

    /// The text for some values.
    ///
    /// # Errors
    /// An expression without a value.
    pub(super) fn text(&self, slots: &[Operand<'_>]) -> Result<String, String> {
        let mut filled = String::new();
        for (text, expression) in &self.parts {
            filled.push_str(text);
            if let Some(expression) = expression {
                let value = expression.evaluate(slots);
                let value = value.map_err(|error| format!("`{}`: {error}", expression.text()))?;
                filled.push_str(&value.to_string());
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn braces_hold_expressions_and_double_ones_stand_for_themselves() {
        let found = pieces("awk '{{ print {n + 1} }}'").unwrap();
        let texts: Vec<(&str, Option<&str>)> =
            found.iter().map(|(text, it)| (&**text, *it)).collect();
        assert_eq!(texts, [("awk '{ print ", Some("n + 1")), (" }'", None)]);
        assert!(pieces("{n").unwrap_err().contains("not closed"));
        assert!(pieces("n}").unwrap_err().contains("without"));
    }
}
