//! A picture as PNG.

use std::io;

use tiny_skia::{
    Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};

use super::font::Face;
use super::picture::{Colour, Ink, Item, Picture, Segment};

/// Dots in a point: 300 an inch.
const SCALE: f64 = 300.0 / 72.0;

/// The file.
///
/// # Errors
/// If the picture has no area, or is too large.
pub(super) fn png(picture: &Picture) -> io::Result<Vec<u8>> {
    let size = |points: f64| (points * SCALE).ceil() as u32;
    let mut pixmap = Pixmap::new(size(picture.width), size(picture.height))
        .ok_or_else(|| io::Error::other("the picture has no area or is too large"))?;
    pixmap.fill(Color::WHITE);
    for item in &picture.items {
        match item {
            Item::Path(segments, ink) => draw(&mut pixmap, segments, *ink),
            Item::Text(text) => {
                let mut x = text.x;
                let mut letters = PathBuilder::new();
                for letter in text.text.chars() {
                    let glyph = Face::of(text.weight).glyph(letter);
                    add(&mut letters, &glyph.outline, text.size, (x, text.y));
                    x += glyph.advance * text.size;
                }
                if let Some(path) = letters.finish() {
                    fill(&mut pixmap, &path, text.colour, 1.0);
                }
            }
        }
    }
    pixmap.encode_png().map_err(io::Error::other)
}

fn add(builder: &mut PathBuilder, segments: &[Segment], scale: f64, at: (f64, f64)) {
    let x = |value: f64| (value * scale + at.0) as f32;
    let y = |value: f64| (value * scale + at.1) as f32;
    for segment in segments {
        match *segment {
            Segment::Move(to_x, to_y) => builder.move_to(x(to_x), y(to_y)),
            Segment::Line(to_x, to_y) => builder.line_to(x(to_x), y(to_y)),
            Segment::Curve([a, b, c, d, e, f]) => {
                builder.cubic_to(x(a), y(b), x(c), y(d), x(e), y(f))
            }
            Segment::Close => builder.close(),
        }
    }
}

fn paint(colour: Colour, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    paint.set_color_rgba8(colour.0, colour.1, colour.2, alpha);
    paint.anti_alias = true;
    paint
}

fn scaled() -> Transform {
    Transform::from_scale(SCALE as f32, SCALE as f32)
}

fn fill(pixmap: &mut Pixmap, path: &Path, colour: Colour, opacity: f64) {
    let paint = paint(colour, opacity);
    pixmap.fill_path(path, &paint, FillRule::Winding, scaled(), None);
}

fn draw(pixmap: &mut Pixmap, segments: &[Segment], ink: Ink) {
    let mut builder = PathBuilder::new();
    add(&mut builder, segments, 1.0, (0.0, 0.0));
    let Some(path) = builder.finish() else {
        return;
    };
    if let Some(colour) = ink.fill {
        fill(pixmap, &path, colour, ink.opacity);
    }
    if let Some((colour, width)) = ink.stroke {
        let dash = ink.dash.map(|length| length as f32);
        let stroke = Stroke {
            width: width as f32,
            line_join: LineJoin::Round,
            dash: StrokeDash::new(dash.to_vec(), 0.0).filter(|_| dash != [0.0; 2]),
            ..Stroke::default()
        };
        let paint = paint(colour, ink.opacity);
        pixmap.stroke_path(&path, &paint, &stroke, scaled(), None);
    }
}
