//! Diagnostics as text for people.
//!
//! ```text
//! error[E0104]: unknown axis `layot` in `when`
//!   --> manifests/paper.toml:61:13
//!    |
//! 61 |   when  = "layot == 'tn' and dtype == 'f32'"
//!    |            ^^^^^ not an axis, derived value or variable of this case
//!    |
//!    = help: did you mean `layout`?   in scope: backend dtype m layout n k KC
//! ```

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::diagnostics::{Diagnostic, Diagnostics, Place, Severity};

/// Whether text is coloured with ANSI escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Bold and coloured.
    Always,
    /// Plain.
    Never,
}

/// No more diagnostics than this are shown; the rest is counted.
const MAX_SHOWN: usize = 100;

/// Longer lines are cut around the place.
const MAX_LINE: usize = 160;

/// All diagnostics, blank lines between, and a closing line with counts.
pub fn render(diagnostics: &Diagnostics, colour: Colour) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MAX_SHOWN) {
        out.push_str(&one(diagnostic, colour));
        out.push('\n');
    }
    let hidden = diagnostics.iter().len().saturating_sub(MAX_SHOWN);
    if hidden > 0 {
        out.push_str(&format!("... and {hidden} more\n\n"));
    }
    let errors = diagnostics.errors();
    let warnings = diagnostics.iter().len() - errors;
    let counts: Vec<_> = [(errors, "error"), (warnings, "warning")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
        .collect();
    if !counts.is_empty() {
        out.push_str(&counts.join(", "));
        out.push('\n');
    }
    out
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&render(self, Colour::Never))
    }
}

/// One diagnostic, ending with a line break.
pub fn one(diagnostic: &Diagnostic, colour: Colour) -> String {
    let level = match diagnostic.code.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&diagnostic.message);
    let mut report = Group::with_title(title.id(diagnostic.code.id()));
    if let Some(place) = &diagnostic.place {
        let label = Some(&*diagnostic.label).filter(|label| !label.is_empty());
        let mark = AnnotationKind::Primary.span(marked(place)).label(label);
        let snippet = Snippet::source(&place.text).line_start(place.line);
        report = report.element(snippet.path(&place.name).annotation(mark));
    }
    let help = diagnostic.help.iter().map(|line| Level::HELP.message(line));
    let renderer = match colour {
        Colour::Always => Renderer::styled(),
        Colour::Never => Renderer::plain(),
    };
    let text = renderer
        .term_width(MAX_LINE)
        .render(&[report.elements(help)]);
    match &diagnostic.place {
        Some(place) if !place.is_file => without_numbers(&text, place) + "\n",
        _ => text + "\n",
    }
}

/// The text of a diagnostic without line and column of its place: a flag has none.
fn without_numbers(text: &str, place: &Place) -> String {
    let Place {
        name, line, column, ..
    } = place;
    text.replacen(&format!("{name}:{line}:{column}"), name, 1)
}

/// The bytes of a place's line that the caret underlines.
fn marked(place: &Place) -> Range<usize> {
    let ends = place.text.char_indices().map(|(byte, _)| byte);
    let ends: Vec<usize> = ends.chain([place.text.len()]).collect();
    let byte = |character: usize| ends[character.min(ends.len() - 1)];
    let first = place.column - 1;
    byte(first)..byte(first + place.width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::diagnostics::Code;

    fn place(text: &str, column: usize, width: usize) -> Place {
        Place {
            source: 0,
            name: "m.toml".to_owned(),
            is_file: true,
            line: 7,
            column,
            width,
            text: text.to_owned(),
        }
    }

    fn shown(place: Place, colour: Colour) -> String {
        let diagnostic = Diagnostic::new(Code::WrongType, "wrong").at(place);
        one(&diagnostic.label("here").help("mend it"), colour)
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("T = [{}x{}]", "1, ".repeat(200), ", 2".repeat(200));
        let shown = shown(place(&text, 606, 1), Colour::Never);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].ends_with("m.toml:7:606"), "{shown}");
        assert!(
            lines[3].contains("...") && lines[3].contains("x"),
            "{shown}"
        );
        assert!(lines[3].chars().count() <= MAX_LINE + 10, "{shown}");
        assert_eq!(lines[3].find('x'), lines[4].find('^'), "{shown}");
    }

    #[test]
    fn carets_are_below_characters_and_control_characters_do_nothing() {
        let shown = shown(place("é\u{1b} = 1", 6, 1), Colour::Never);
        assert!(!shown.contains('\u{1b}'), "{shown}");
        let column = |line: &str, mark: char| line.chars().position(|held| held == mark);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(column(lines[3], '1'), column(lines[4], '^'), "{shown}");
        // A place beyond the line's end is at its end.
        assert_eq!(marked(&place("ab", 9, 3)), 2..2);
    }

    #[test]
    fn colours_change_nothing_else() {
        let plain = shown(place("T = 1", 5, 1), Colour::Never);
        let coloured = shown(place("T = 1", 5, 1), Colour::Always);
        assert!(coloured.contains("\u{1b}["), "{coloured}");
        let mut stripped = String::new();
        for (index, part) in coloured.split("\u{1b}[").enumerate() {
            let text = if index == 0 {
                part
            } else {
                part.split_once('m').unwrap().1
            };
            stripped += text;
        }
        assert_eq!(stripped, plain);
    }
}
