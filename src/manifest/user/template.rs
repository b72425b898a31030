//! Texts with expressions in them.

use super::scope::compile;
use crate::text::braces::pieces;
use sweeper_model::expression::{Expression, Operand, Scope};

/// A text in which expressions stand in braces, such as `reduce<{T}, {block_size}>`; `{{` and `}}`
/// are braces of the text.
#[derive(Debug)]
pub(crate) struct Template {
    /// Texts, each with the expression after it; the last has none.
    parts: Vec<(String, Option<Expression>)>,
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
