//! A picture as SVG. Text is drawn as outlines of glyphs, so that it looks alike on machines
//! without the font; the picture's text is kept in its title and description.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::font::{Face, Weight};
use super::picture::{Colour, Ink, Item, Picture, Segment, Text};

/// The text of the SVG file.
pub(super) fn svg(picture: &Picture) -> String {
    let mut glyphs: BTreeMap<(Weight, u32, u16), String> = BTreeMap::new();
    let mut body = String::new();
    for item in &picture.items {
        match item {
            Item::Path(segments, ink) => path(&mut body, segments, *ink),
            Item::Text(text) => letters(&mut body, text, &mut glyphs),
        }
    }
    let (width, height) = (number(picture.width), number(picture.height));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}pt\" height=\"{height}pt\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<defs>\n",
        escaped(&picture.title),
        escaped(&picture.description)
    );
    for ((weight, size, id), data) in &glyphs {
        let name = name(*weight, *size, *id);
        let _ = writeln!(out, "<path id=\"{name}\" d=\"{data}\"/>");
    }
    let _ = write!(
        out,
        "</defs>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
    );
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Two digits after the point are finer than any printer.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" | "" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn data(segments: &[Segment], scale: f64) -> String {
    let mut out = String::new();
    let n = |value: f64| number(value * scale);
    for segment in segments {
        let _ = match *segment {
            Segment::Move(x, y) => write!(out, "M{} {}", n(x), n(y)),
            Segment::Line(x, y) => write!(out, "L{} {}", n(x), n(y)),
            Segment::Curve([a, b, c, d, x, y]) => {
                let [a, b, c, d, x, y] = [a, b, c, d, x, y].map(n);
                write!(out, "C{a} {b} {c} {d} {x} {y}")
            }
            Segment::Close => write!(out, "Z"),
        };
    }
    out
}

fn path(out: &mut String, segments: &[Segment], ink: Ink) {
    let fill = ink.fill.map_or("none".to_owned(), hex);
    let _ = write!(out, "<path d=\"{}\" fill=\"{fill}\"", data(segments, 1.0));
    if let Some((colour, width)) = ink.stroke {
        let _ = write!(
            out,
            " stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"",
            hex(colour),
            number(width)
        );
        if ink.dash != [0.0; 2] {
            let [dash, gap] = ink.dash.map(number);
            let _ = write!(out, " stroke-dasharray=\"{dash} {gap}\"");
        }
    }
    if ink.opacity < 1.0 {
        let _ = write!(out, " opacity=\"{}\"", number(ink.opacity));
    }
    out.push_str("/>\n");
}

fn name(weight: Weight, size: u32, id: u16) -> String {
    let weight = match weight {
        Weight::Regular => 'r',
        Weight::Semibold => 's',
    };
    format!("{weight}{size}-{id}")
}

fn letters(out: &mut String, text: &Text, glyphs: &mut BTreeMap<(Weight, u32, u16), String>) {
    let face = Face::of(text.weight);
    // Sizes are told apart by hundredths of a point.
    let size = (text.size * 100.0).round() as u32;
    let _ = write!(out, "<g fill=\"{}\">", hex(text.colour));
    let mut x = text.x;
    for letter in text.text.chars() {
        let glyph = face.glyph(letter);
        if !glyph.outline.is_empty() {
            glyphs
                .entry((text.weight, size, glyph.id))
                .or_insert_with(|| data(&glyph.outline, text.size));
            let _ = write!(
                out,
                "<use href=\"#{}\" x=\"{}\" y=\"{}\"/>",
                name(text.weight, size, glyph.id),
                number(x),
                number(text.y)
            );
        }
        x += glyph.advance * text.size;
    }
    out.push_str("</g>\n");
}
