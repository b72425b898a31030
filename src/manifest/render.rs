//! Diagnostics as text for people.
//!
//! ```text
//! error[E0104]: unknown axis `layot` in `when`
//!   --> manifests/paper.toml:61:13
//!    |
//! 61 |   when  = "layot == 'tn' and dtype == 'f32'"
//!    |            ^^^^^ not an axis, derived value or variable of this case
//!    = help: did you mean `layout`?   in scope: backend dtype m layout n k KC
//! ```

use std::fmt::Write;

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

/// One diagnostic, ending with a line break.
pub fn one(diagnostic: &Diagnostic, colour: Colour) -> String {
    let paint = Paint(colour);
    let (word, tint) = match diagnostic.code.severity() {
        Severity::Error => ("error", RED),
        Severity::Warning => ("warning", YELLOW),
    };
    let title = paint.with(tint, &format!("{word}[{}]", diagnostic.code.id()));
    let message = paint.with(BOLD, &format!(": {}", diagnostic.message));
    let mut out = format!("{title}{message}\n");
    let mut gutter = 1;
    if let Some(place) = &diagnostic.place {
        gutter = place.line.to_string().len();
        snippet(&mut out, place, &diagnostic.label, tint, paint);
    }
    let margin = " ".repeat(gutter + 1);
    for help in &diagnostic.help {
        let mark = paint.with(BLUE, "=");
        out.push_str(&format!("{margin}{mark} help: {help}\n"));
    }
    out
}

fn snippet(out: &mut String, place: &Place, label: &str, tint: &str, paint: Paint) {
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let arrow = paint.with(BLUE, "-->");
    let bar = paint.with(BLUE, "|");
    let number = paint.with(BLUE, &number);
    let (text, column) = window(place);
    let width = place
        .width
        .min(text.chars().count().max(column) + 1 - column)
        .max(1);
    let underline = paint.with(tint, &format!("{} {label}", "^".repeat(width)));
    let location = if place.is_file {
        format!("{}:{}:{}", place.name, place.line, place.column)
    } else {
        place.name.clone()
    };
    let indent = " ".repeat(column - 1);
    let mut lines = String::new();
    // Writing to a string can't fail.
    let _ = write!(
        lines,
        "{margin}{arrow} {location}\n{margin} {bar}\n{number} {bar} {text}\n{margin} {bar} {indent}{}\n",
        underline.trim_end(),
    );
    out.push_str(&lines);
}

/// The line with tabs as spaces, cut around the place if it is long, and the column in what is
/// left.
fn window(place: &Place) -> (String, usize) {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let length = place.text.chars().count();
    if length <= MAX_LINE {
        return (place.text.chars().map(printable).collect(), place.column);
    }
    let start = place
        .column
        .saturating_sub(MAX_LINE / 4)
        .min(length - MAX_LINE / 2);
    let cut: String = place
        .text
        .chars()
        .map(printable)
        .skip(start)
        .take(MAX_LINE)
        .collect();
    let (before, shift) = if start > 0 { ("...", 3) } else { ("", 0) };
    let after = if start + MAX_LINE < length { "..." } else { "" };
    (
        format!("{before}{cut}{after}"),
        place.column - start + shift,
    )
}

const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const BLUE: &str = "1;34";
const BOLD: &str = "1";

#[derive(Clone, Copy)]
struct Paint(Colour);

impl Paint {
    fn with(self, tint: &str, text: &str) -> String {
        match self.0 {
            Colour::Always => format!("\u{1b}[{tint}m{text}\u{1b}[0m"),
            Colour::Never => text.to_owned(),
        }
    }
}
