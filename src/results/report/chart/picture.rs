//! The primitives of a chart: paths and lines of text, in points, downwards from the top left.

use super::font::{Face, Weight};

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// The colour a part of the way to another, from 0 to 1.
    pub fn towards(self, other: Colour, part: f64) -> Colour {
        let mix = |from: u8, to: u8| {
            (f64::from(from) + (f64::from(to) - f64::from(from)) * part.clamp(0.0, 1.0)).round()
                as u8
        };
        Colour(
            mix(self.0, other.0),
            mix(self.1, other.1),
            mix(self.2, other.2),
        )
    }

    /// Lightness as it is seen, from 0 to 1 (the weights of Rec. 709).
    pub fn lightness(self) -> f64 {
        let linear = |value: u8| (f64::from(value) / 255.0).powf(2.2);
        (0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2))
            .powf(1.0 / 2.2)
    }
}

/// A part of a path; numbers are pairs of x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Segment {
    /// Begins a new part of the path at a point.
    Move(f64, f64),
    /// A straight line.
    Line(f64, f64),
    /// A cubic curve: two control points and the end.
    Curve([f64; 6]),
    /// Closes the part: a line back to the point where it began.
    Close,
}

/// The colours and the line of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ink {
    /// Colour of the path's inside.
    pub fill: Option<Colour>,
    /// Colour and width of the path's line.
    pub stroke: Option<(Colour, f64)>,
    /// Opacity, from 0 to 1.
    pub opacity: f64,
    /// Lengths of dashes and gaps; zeros for a whole line.
    pub dash: [f64; 2],
}

impl Ink {
    /// An inside without a line.
    pub const fn fill(colour: Colour) -> Self {
        Ink {
            fill: Some(colour),
            stroke: None,
            opacity: 1.0,
            dash: [0.0; 2],
        }
    }

    /// A line.
    pub const fn line(colour: Colour, width: f64) -> Self {
        Ink {
            fill: None,
            stroke: Some((colour, width)),
            opacity: 1.0,
            dash: [0.0; 2],
        }
    }

    /// This ink with an opacity below one.
    pub const fn with_opacity(self, opacity: f64) -> Self {
        Ink { opacity, ..self }
    }

    /// This ink with a dashed line.
    pub const fn with_dash(self, dash: [f64; 2]) -> Self {
        Ink { dash, ..self }
    }
}

/// One line of text.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Left end of the text, on the base line.
    pub x: f64,
    /// The base line.
    pub y: f64,
    /// Size of the font in points.
    pub size: f64,
    /// Weight of the font.
    pub weight: Weight,
    /// Colour of the text.
    pub colour: Colour,
    /// The text.
    pub text: String,
}

/// A drawn path or line of text.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A path.
    Path(Vec<Segment>, Ink),
    /// A line of text.
    Text(Text),
}

/// The position of a text relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at its place.
    Start,
    /// The middle of the text is at its place.
    Middle,
    /// The text ends at its place.
    End,
}

/// A picture: later items lie over earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Width in points.
    pub width: f64,
    /// Height in points.
    pub height: f64,
    /// The subject of the picture, for people who can't see it.
    pub title: String,
    /// All further information in the picture, for people who can't see it.
    pub description: String,
    /// The drawn paths and lines of text.
    pub items: Vec<Item>,
}

impl Picture {
    /// Draws a path.
    pub fn path(&mut self, path: Vec<Segment>, ink: Ink) {
        self.items.push(Item::Path(path, ink));
    }

    /// Draws a straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink) {
        let path = vec![Segment::Move(from.0, from.1), Segment::Line(to.0, to.1)];
        self.path(path, ink);
    }

    /// Draws a rectangle.
    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, ink: Ink) {
        let path = vec![
            Segment::Move(x, y),
            Segment::Line(x + width, y),
            Segment::Line(x + width, y + height),
            Segment::Line(x, y + height),
            Segment::Close,
        ];
        self.path(path, ink);
    }

    /// Writes a line of text.
    pub fn text(
        &mut self,
        place: (f64, f64),
        anchor: Anchor,
        size: f64,
        weight: Weight,
        colour: Colour,
        text: &str,
    ) {
        let width = Face::of(weight).width(text, size);
        let x = match anchor {
            Anchor::Start => place.0,
            Anchor::Middle => place.0 - width / 2.0,
            Anchor::End => place.0 - width,
        };
        self.items.push(Item::Text(Text {
            x,
            y: place.1,
            size,
            weight,
            colour,
            text: text.to_owned(),
        }));
    }
}

/// A closed circle.
pub(super) fn circle(x: f64, y: f64, radius: f64) -> Vec<Segment> {
    // Four cubic curves come within 0.03 % of a circle with this.
    let k = 0.552_284_75 * radius;
    let r = radius;
    vec![
        Segment::Move(x + r, y),
        Segment::Curve([x + r, y + k, x + k, y + r, x, y + r]),
        Segment::Curve([x - k, y + r, x - r, y + k, x - r, y]),
        Segment::Curve([x - r, y - k, x - k, y - r, x, y - r]),
        Segment::Curve([x + k, y - r, x + r, y - k, x + r, y]),
        Segment::Close,
    ]
}

/// A closed path through points.
pub(super) fn polygon(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<Segment> {
    let mut path = open(points);
    path.push(Segment::Close);
    path
}

/// An open path through points.
pub(super) fn open(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<Segment> {
    let mut points = points.into_iter();
    let first = points.next().map(|(x, y)| Segment::Move(x, y));
    first
        .into_iter()
        .chain(points.map(|(x, y)| Segment::Line(x, y)))
        .collect()
}
