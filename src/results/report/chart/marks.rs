//! Drawing places to look at: rings with their intervals, and labels that do not overprint each
//! other.

use super::Mark;
use super::lines::Plot;
use super::page::{self, BLACK, SMALL};
use super::picture::{Anchor, Ink, Picture, circle};

/// Radius of a ring.
const RING: f64 = 2.2;
/// Half the height of the caps of an interval.
const CAP: f64 = 1.8;

/// A rectangle that is taken: left, top, right, bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken([f64; 4]);

impl Taken {
    fn overlaps(&self, other: &Self) -> bool {
        let ([left, top, right, bottom], [a, b, c, d]) = (self.0, other.0);
        left < c && a < right && top < d && b < bottom
    }
}

/// A mark where it is drawn.
struct Drawn<'m> {
    mark: &'m Mark,
    x: f64,
    y: f64,
    /// Ends of the interval inside the plot, each with whether it is the interval's own end.
    ends: Option<[(f64, bool); 2]>,
}

impl<'m> Drawn<'m> {
    fn new(plot: &Plot, mark: &'m Mark) -> Self {
        let (x, y) = plot.at(mark.x, mark.y);
        let end = |end: f64| match end.is_finite() {
            true => {
                let at = plot.at_x(end);
                let inside = at.clamp(plot.left, plot.right);
                (inside, (at - inside).abs() < 1e-6)
            }
            false => (plot.right, false),
        };
        let ends = mark.ends.map(|ends| ends.map(end));
        Drawn { mark, x, y, ends }
    }

    /// The rectangles that the ring and the interval take.
    fn taken(&self) -> Vec<Taken> {
        let (x, y) = (self.x, self.y);
        let mut taken = vec![Taken([x - RING, y - RING, x + RING, y + RING])];
        if let Some([(low, _), (high, _)]) = self.ends {
            taken.push(Taken([low, y - 0.6, high, y + 0.6]));
        }
        taken
    }
}

/// Draws rings over the bars of their intervals; labels go below them to the right if there is
/// room, else elsewhere around the ring.
pub(super) fn draw(picture: &mut Picture, plot: &Plot, marks: &[Mark]) {
    let drawn: Vec<Drawn<'_>> = marks.iter().map(|mark| Drawn::new(plot, mark)).collect();
    let ink = Ink::line(BLACK, 0.8);
    for one in &drawn {
        let Some([low, high]) = one.ends else {
            continue;
        };
        picture.line((low.0, one.y), (high.0, one.y), ink);
        // An end beyond the chart has no cap.
        for (at, _) in [low, high].into_iter().filter(|(_, is_own)| *is_own) {
            picture.line((at, one.y - CAP), (at, one.y + CAP), ink);
        }
    }
    let ring = Ink {
        fill: Some(page::WHITE),
        ..ink
    };
    for one in &drawn {
        picture.path(circle(one.x, one.y, RING), ring);
    }
    let mut taken: Vec<Taken> = drawn.iter().flat_map(Drawn::taken).collect();
    for one in &drawn {
        let width = page::small_width(&one.mark.label);
        // Of two rings side by side the left one has its label to the left.
        let is_left = |other: &Drawn<'_>| other.x > one.x && other.x - one.x < width;
        let ways = Ways {
            is_left_first: drawn.iter().any(is_left),
            width,
        };
        let (left, base) = place(plot, (one.x, one.y), &ways, &taken);
        taken.push(letters(left, base, width));
        let label = &one.mark.label;
        page::small(picture, (left, base), Anchor::Start, BLACK, label);
    }
}

/// The rectangle that letters on a line take.
fn letters(left: f64, base: f64, width: f64) -> Taken {
    Taken([left, base - SMALL * 0.8, left + width, base + SMALL * 0.1])
}

/// The places that a label may take.
struct Ways {
    is_left_first: bool,
    width: f64,
}

/// Where a label begins, and its line: the first free place around its ring, nearer ones first.
fn place(plot: &Plot, (x, y): (f64, f64), ways: &Ways, taken: &[Taken]) -> (f64, f64) {
    let width = ways.width;
    let (right, left) = (x + 2.0, x - 2.0 - width);
    let is_free = |&(at, base): &(f64, f64)| {
        let own = letters(at, base, width);
        let [from, top, to, bottom] = own.0;
        let is_inside =
            from >= plot.left && to <= plot.right && top >= plot.top && bottom <= plot.bottom;
        is_inside && !taken.iter().any(|held| held.overlaps(&own))
    };
    let places = (0..6).flat_map(|step| {
        let out = f64::from(step) * SMALL;
        let (below, above) = (y + 9.5 + out, y - 4.0 - out);
        match ways.is_left_first {
            true => [(left, above), (left, below), (right, below), (right, above)],
            false => [(right, below), (left, above), (left, below), (right, above)],
        }
    });
    let mut places = places.filter(is_free);
    places.next().unwrap_or((right, y + 9.5))
}
