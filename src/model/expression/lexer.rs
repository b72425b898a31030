//! From text to tokens.

use super::{Span, SyntaxError};

/// A token with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) span: Span,
    pub(super) kind: TokenKind,
}

/// The kind of a token, with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    /// An operator, bracket or comma.
    Symbol(&'static str),
    End,
}

/// Longest first, so that `**` is not read as two `*`.
const SYMBOLS: [&str; 22] = [
    "**", "//", "<<", ">>", "==", "!=", "<=", ">=", "&&", "||", "+", "-", "*", "/", "%", "<", ">",
    "(", ")", "[", "]", ",",
];

/// The tokens of `text`; the last token is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (length, kind) = token(rest, first, at)?;
        let span = at..at + length;
        found.push(Token { span, kind });
        at += length;
    }
    found.push(Token {
        span: text.len()..text.len(),
        kind: TokenKind::End,
    });
    Ok(found)
}

fn token(rest: &str, first: char, at: usize) -> Result<(usize, TokenKind), SyntaxError> {
    if first.is_ascii_digit()
        || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
    {
        return number(rest, at);
    }
    if first == '_' || first.is_alphabetic() {
        // A dot joins names, as in `device.max_threads`.
        let length = rest
            .find(|c: char| c != '_' && c != '.' && !c.is_alphanumeric())
            .unwrap_or(rest.len());
        return Ok((length, TokenKind::Name(rest[..length].to_owned())));
    }
    if first == '\'' || first == '"' {
        let Some(length) = rest[1..].find(first) else {
            return Err(SyntaxError::new(
                at..at + rest.len(),
                "this string never ends",
            ));
        };
        let text = rest[1..=length].to_owned();
        return Ok((length + 2, TokenKind::Text(text)));
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        return Ok((symbol.len(), TokenKind::Symbol(symbol)));
    }
    let error = SyntaxError::new(
        at..at + first.len_utf8(),
        format!("`{first}` means nothing here"),
    );
    Err(match first {
        '=' => error.help("equality is `==`"),
        '!' => error.help("negation is `not`"),
        '^' => error.help("powers are `**`"),
        _ => error,
    })
}

fn number(rest: &str, at: usize) -> Result<(usize, TokenKind), SyntaxError> {
    let mut length = digits(rest);
    let mut float = false;
    if rest[length..].starts_with('.') {
        float = true;
        length += 1;
        length += digits(&rest[length..]);
    }
    if rest[length..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
        let exponent = digits(&rest[length + 1 + sign..]);
        if exponent > 0 {
            float = true;
            length += 1 + sign + exponent;
        }
    }
    let span = at..at + length;
    if rest[length..].starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
        return Err(SyntaxError::new(span, "a number can't run into a name"));
    }
    let text = rest[..length].replace('_', "");
    if float {
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((length, TokenKind::Float(value))),
            _ => Err(SyntaxError::new(span, "too large for a float")),
        };
    }
    match text.parse() {
        Ok(value) => Ok((length, TokenKind::Int(value))),
        Err(_) => Err(SyntaxError::new(
            span,
            "too large for an integer of 64 bits",
        )),
    }
}

/// The length of a run of digits, which may be grouped by `_`.
fn digits(text: &str) -> usize {
    let length = text
        .find(|c: char| c != '_' && !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..length].trim_end_matches('_').len()
}
