//! Texts with parts in braces.

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
