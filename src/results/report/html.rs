//! Helpers for all pages: filling a frame, and text that can't become markup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Name and version of this program, which pages state as their generator.
pub(super) const GENERATOR: &str = concat!("sweeper ", env!("CARGO_PKG_VERSION"));

/// Puts parts into a frame's places; a part that looks like a place stays as it is.
pub(super) fn fill(frame: &str, parts: &[(&str, &str)]) -> String {
    let len = parts.iter().map(|(_, text)| text.len()).sum::<usize>();
    let mut out = String::with_capacity(len + frame.len());
    let mut pieces = frame.split("{{");
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (name, after) = piece.split_once("}}").unwrap_or((piece, ""));
        let part = parts.iter().find(|(held, _)| *held == name);
        out.push_str(part.map_or("", |(_, text)| text));
        out.push_str(after);
    }
    out
}

/// Text that can stand in an element or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// A script or a style as an entry of a content security policy, by its digest.
pub(super) fn in_policy(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Bytes as a `data:` address, which contains them.
pub(super) fn data_url(kind: &str, bytes: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_looks_like_a_place_is_not_filled() {
        let frame = "<title>{{title}}</title><h1>{{title}}</h1>{{meta}}{{none}}";
        let page = fill(frame, &[("title", "{{meta}}"), ("meta", "once")]);
        assert_eq!(page, "<title>{{meta}}</title><h1>{{meta}}</h1>once");
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(
            escaped("<a b='\"&\">"),
            "&lt;a b=&#39;&quot;&amp;&quot;&gt;"
        );
    }
}
