//! Texts with expressions in them.

use super::scope::compile;
use crate::expression::{Expression, Operand, Scope};

/// A text in which expressions stand in braces, such as `reduce<{T}, {block_size}>`.
#[derive(Debug)]
pub(super) struct Template {
    /// Texts, each with the expression after it; the last has none.
    parts: Vec<(String, Option<Expression>)>,
}

impl Template {
    /// # Errors
    /// A brace without its other, or what stands between two.
    pub(super) fn new(text: &str, scope: &Scope) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, behind)) = after.split_once('}') else {
                return Err(format!("`{text}` has a `{{` that is not closed"));
            };
            parts.push((before.to_owned(), Some(compile(inside, scope)?)));
            rest = behind;
        }
        parts.push((rest.to_owned(), None));
        Ok(Template { parts })
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
