//! The font of charts, which travels with the program: pictures look alike on every machine.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ttf_parser::{GlyphId, OutlineBuilder};

use super::picture::Segment;

/// Weight of a font.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// For all text but titles.
    Regular,
    /// For titles.
    Semibold,
}

impl Weight {
    /// All weights.
    pub const ALL: [Weight; 2] = [Weight::Regular, Weight::Semibold];
}

/// A glyph's outline and advance, in units of the em.
#[derive(Clone, Debug, Default)]
pub(super) struct Glyph {
    /// The glyph's number in the font.
    pub(super) id: u16,
    /// Distance to the next glyph on the right.
    pub(super) advance: f64,
    /// The glyph's outline: y downwards from the base line.
    pub(super) outline: Vec<Segment>,
}

/// A font face.
pub(super) struct Face {
    /// The bytes of the font file.
    pub(super) bytes: &'static [u8],
    /// Name of the face in PDF files.
    pub(super) name: &'static str,
    /// Top of capitals and bottom of descenders over the base line, in ems.
    pub(super) extent: (f64, f64),
    glyphs: BTreeMap<char, Glyph>,
    missing: Glyph,
}

impl Face {
    /// The face of a weight.
    pub(super) fn of(weight: Weight) -> &'static Face {
        static REGULAR: OnceLock<Face> = OnceLock::new();
        static SEMIBOLD: OnceLock<Face> = OnceLock::new();
        match weight {
            Weight::Regular => REGULAR.get_or_init(|| {
                Face::read(include_bytes!("OpenSans-Regular.ttf"), "OpenSans-Regular")
            }),
            Weight::Semibold => SEMIBOLD.get_or_init(|| {
                Face::read(include_bytes!("OpenSans-Semibold.ttf"), "OpenSans-Semibold")
            }),
        }
    }

    fn read(bytes: &'static [u8], name: &'static str) -> Face {
        let mut face = Face {
            bytes,
            name,
            extent: (0.76, -0.24),
            glyphs: BTreeMap::new(),
            missing: Glyph {
                advance: 0.5,
                ..Glyph::default()
            },
        };
        let Ok(font) = ttf_parser::Face::parse(bytes, 0) else {
            return face;
        };
        let em = f64::from(font.units_per_em());
        face.extent = (
            f64::from(font.ascender()) / em,
            f64::from(font.descender()) / em,
        );
        let letters = font
            .tables()
            .cmap
            .iter()
            .flat_map(|cmap| cmap.subtables)
            .filter(ttf_parser::cmap::Subtable::is_unicode);
        let mut found = Vec::new();
        for table in letters {
            table.codepoints(|code| found.extend(char::from_u32(code)));
        }
        for letter in found {
            if let Some(id) = font.glyph_index(letter) {
                face.glyphs.insert(letter, glyph(&font, id, em));
            }
        }
        face.missing = glyph(&font, GlyphId(0), em);
        face
    }

    /// The glyph of a letter; a box for letters that the font lacks.
    pub(super) fn glyph(&self, letter: char) -> &Glyph {
        self.glyphs.get(&letter).unwrap_or(&self.missing)
    }

    /// Width of a text, in points.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars()
            .map(|letter| self.glyph(letter).advance)
            .sum::<f64>()
            * size
    }
}

fn glyph(font: &ttf_parser::Face<'_>, id: GlyphId, em: f64) -> Glyph {
    let mut outline = Outline {
        em,
        segments: Vec::new(),
        at: (0.0, 0.0),
    };
    font.outline_glyph(id, &mut outline);
    Glyph {
        id: id.0,
        advance: f64::from(font.glyph_hor_advance(id).unwrap_or(0)) / em,
        outline: outline.segments,
    }
}

/// Collects a glyph's outline in ems.
struct Outline {
    em: f64,
    segments: Vec<Segment>,
    at: (f64, f64),
}

impl Outline {
    fn scaled(&self, x: f32, y: f32) -> (f64, f64) {
        (f64::from(x) / self.em, -f64::from(y) / self.em)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.at = self.scaled(x, y);
        self.segments.push(Segment::Move(self.at.0, self.at.1));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.at = self.scaled(x, y);
        self.segments.push(Segment::Line(self.at.0, self.at.1));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        // The quadratic curve as a cubic one: control points two thirds of the way to its own.
        let (from, control, to) = (self.at, self.scaled(x1, y1), self.scaled(x, y));
        let near = |end: (f64, f64)| {
            let part = |end: f64, control: f64| end + (control - end) * 2.0 / 3.0;
            (part(end.0, control.0), part(end.1, control.1))
        };
        let (one, two) = (near(from), near(to));
        self.segments
            .push(Segment::Curve([one.0, one.1, two.0, two.1, to.0, to.1]));
        self.at = to;
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (one, two, to) = (self.scaled(x1, y1), self.scaled(x2, y2), self.scaled(x, y));
        self.segments
            .push(Segment::Curve([one.0, one.1, two.0, two.1, to.0, to.1]));
        self.at = to;
    }

    fn close(&mut self) {
        self.segments.push(Segment::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_charts_say() {
        for weight in Weight::ALL {
            let face = Face::of(weight);
            let needed = "abcXYZ0189 ,.;:()[]/×±–−·≤≥µ%=…";
            for letter in needed.chars() {
                let glyph = face.glyphs.get(&letter);
                assert!(glyph.is_some_and(|glyph| glyph.advance > 0.1), "{letter:?}");
            }
            assert!(!face.glyph('\u{4e00}').outline.is_empty(), "a box");
            assert!(face.width("mm", 10.0) > face.width("ii", 10.0));
        }
    }
}
