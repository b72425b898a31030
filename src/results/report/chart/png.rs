//! A picture as PNG.

use std::io;

use tiny_skia::{
    Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform,
};

use super::font::Face;
use super::picture::{Colour, Ink, Item, Picture, Segment};

/// Points in an inch.
const INCH: f64 = 72.0;

/// The dots of a picture, and how many dots a point is wide.
struct Canvas {
    dots: Pixmap,
    scale: Transform,
}

/// The file, with so many dots an inch.
///
/// # Errors
/// If the picture has no area, or is too large.
pub(super) fn png(picture: &Picture, dots_per_inch: f64) -> io::Result<Vec<u8>> {
    let scale = dots_per_inch / INCH;
    let size = |points: f64| (points * scale).round() as u32;
    let dots = Pixmap::new(size(picture.width), size(picture.height))
        .ok_or_else(|| io::Error::other("the picture has no area or is too large"))?;
    let scale = Transform::from_scale(scale as f32, scale as f32);
    let mut canvas = Canvas { dots, scale };
    canvas.dots.fill(Color::WHITE);
    for item in &picture.items {
        match item {
            Item::Path(segments, ink) => canvas.draw(segments, *ink),
            Item::Text(text) => {
                let mut x = text.x;
                let mut letters = PathBuilder::new();
                for letter in text.text.chars() {
                    let glyph = Face::of(text.weight).glyph(letter);
                    add(&mut letters, &glyph.outline, text.size, (x, text.y));
                    x += glyph.advance * text.size;
                }
                if let Some(path) = letters.finish() {
                    canvas.fill(&path, text.colour, 1.0);
                }
            }
        }
    }
    canvas.dots.encode_png().map_err(io::Error::other)
}

fn add(builder: &mut PathBuilder, segments: &[Segment], scale: f64, at: (f64, f64)) {
    let x = |value: f64| (value * scale + at.0) as f32;
    let y = |value: f64| (value * scale + at.1) as f32;
    for segment in segments {
        match *segment {
            Segment::Move(to_x, to_y) => builder.move_to(x(to_x), y(to_y)),
            Segment::Line(to_x, to_y) => builder.line_to(x(to_x), y(to_y)),
            Segment::Curve([a, b, c, d, e, f]) => {
                builder.cubic_to(x(a), y(b), x(c), y(d), x(e), y(f));
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

impl Canvas {
    fn fill(&mut self, path: &Path, colour: Colour, opacity: f64) {
        let paint = paint(colour, opacity);
        self.dots
            .fill_path(path, &paint, FillRule::Winding, self.scale, None);
    }

    fn draw(&mut self, segments: &[Segment], ink: Ink) {
        let mut builder = PathBuilder::new();
        add(&mut builder, segments, 1.0, (0.0, 0.0));
        let Some(path) = builder.finish() else {
            return;
        };
        if let Some(colour) = ink.fill {
            self.fill(&path, colour, ink.opacity);
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
            self.dots
                .stroke_path(&path, &paint, &stroke, self.scale, None);
        }
    }
}
