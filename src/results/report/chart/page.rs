//! The parts that all charts share: the page, captions, colours and marks.

use std::borrow::Cow;

use super::Caption;
use super::font::{Face, Weight};
use super::picture::{Anchor, Colour, Ink, Picture, Segment, circle, open, polygon};

/// One column of a paper, in points: 3.4 inches.
pub(super) const WIDTH: f64 = 244.8;
/// Room at the left and right.
pub(super) const EDGE: f64 = 3.0;
/// Size of the title.
const TITLE: f64 = 8.0;
/// Size of all other text.
pub(super) const SMALL: f64 = 7.0;
/// From one line of small text to the next.
pub(super) const LEADING: f64 = 8.8;

pub(super) const BLACK: Colour = Colour(20, 20, 20);
pub(super) const GREY: Colour = Colour(95, 95, 95);
pub(super) const FAINT: Colour = Colour(222, 222, 222);
pub(super) const WHITE: Colour = Colour(255, 255, 255);

/// The palette of Okabe and Ito (2008), which people with any kind of colour vision tell apart; the
/// yellow, too light for lines, comes last.
const PALETTE: [Colour; 8] = [
    Colour(0, 114, 178),
    Colour(213, 94, 0),
    Colour(0, 158, 115),
    Colour(204, 121, 167),
    Colour(230, 159, 0),
    Colour(86, 180, 233),
    Colour(0, 0, 0),
    Colour(190, 180, 20),
];

/// Styles that differ by their colours: further ones are dashed.
pub(super) const COLOURS: usize = PALETTE.len();

/// The colour of a style.
pub(super) fn colour(style: usize) -> Colour {
    PALETTE[style % PALETTE.len()]
}

/// Dashes of a style: the first eight are whole lines.
pub(super) fn dash(style: usize) -> [f64; 2] {
    match style / PALETTE.len() {
        0 => [0.0; 2],
        1 => [4.0, 1.5],
        _ => [1.5, 1.2],
    }
}

/// Draws the mark of a style. No two colours of the palette have equal marks.
pub(super) fn mark(picture: &mut Picture, style: usize, x: f64, y: f64, radius: f64) {
    let r = radius;
    let ink = Ink::fill(colour(style));
    let corners =
        |points: &[(f64, f64)]| polygon(points.iter().map(|&(dx, dy)| (x + dx * r, y + dy * r)));
    let path = match style % PALETTE.len() {
        0 => circle(x, y, r),
        1 => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => corners(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        3 => corners(&[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)]),
        4 => corners(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
        5 => {
            let ink = Ink {
                stroke: Some((colour(style), 0.9)),
                fill: Some(WHITE),
                ..ink
            };
            picture.path(circle(x, y, r), ink);
            return;
        }
        6 => {
            let bars = [((-1.2, 0.0), (1.2, 0.0)), ((0.0, -1.2), (0.0, 1.2))];
            return strokes(picture, x, y, r, &bars, colour(style));
        }
        _ => {
            let bars = [((-1.0, -1.0), (1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0))];
            return strokes(picture, x, y, r, &bars, colour(style));
        }
    };
    picture.path(path, ink);
}

/// Draws a cross, for a point without a result.
pub(super) fn cross(picture: &mut Picture, x: f64, y: f64, radius: f64, colour: Colour) {
    let bars = [((-1.0, -1.0), (1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0))];
    strokes(picture, x, y, radius, &bars, colour);
}

type Bar = ((f64, f64), (f64, f64));

fn strokes(picture: &mut Picture, x: f64, y: f64, r: f64, bars: &[Bar], colour: Colour) {
    for (from, to) in bars {
        let at = |(dx, dy): &(f64, f64)| (x + dx * r, y + dy * r);
        picture.line(at(from), at(to), Ink::line(colour, 1.0));
    }
}

/// Draws diagonals over a rectangle.
pub(super) fn hatch(picture: &mut Picture, place: [f64; 4], colour: Colour) {
    let [x, y, width, height] = place;
    let mut path: Vec<Segment> = Vec::new();
    let mut offset = 1.5;
    while offset < width + height {
        // The line on which distances from the left and the bottom add up to `offset`.
        let from = ((offset - height).max(0.0), offset.min(height));
        let to = (offset.min(width), (offset - width).max(0.0));
        path.extend(open([(x + from.0, y + from.1), (x + to.0, y + to.1)]));
        offset += 3.0;
    }
    picture.path(path, Ink::line(colour, 0.5));
}

/// A picture with its caption, and how far down the caption goes.
pub(super) fn begin(caption: &Caption) -> (Picture, f64) {
    let mut description = caption.subtitle.clone();
    for note in &caption.notes {
        let has_end = description.ends_with('.');
        description.push_str(if has_end { " " } else { ". " });
        description.push_str(note);
    }
    let mut picture = Picture {
        width: WIDTH,
        height: 0.0,
        title: caption.title.clone(),
        description,
        items: Vec::new(),
    };
    let mut y = 2.0;
    for line in wrap(&caption.title, TITLE, Weight::Semibold) {
        y += TITLE * 1.2;
        let place = (EDGE, y);
        picture.text(place, Anchor::Start, TITLE, Weight::Semibold, BLACK, &line);
    }
    y += 1.5;
    for line in wrap(&caption.subtitle, SMALL, Weight::Regular) {
        y += LEADING;
        small(&mut picture, (EDGE, y), Anchor::Start, GREY, &line);
    }
    (picture, y + 3.0)
}

/// Writes the notes under a chart, and ends the picture there.
pub(super) fn end(mut picture: Picture, notes: &[String], mut y: f64) -> Picture {
    for note in notes {
        for line in wrap(note, SMALL, Weight::Regular) {
            y += LEADING;
            small(&mut picture, (EDGE, y), Anchor::Start, GREY, &line);
        }
    }
    picture.height = (y + 4.0).ceil();
    picture
}

/// Writes small text, as much of it as the page has room for.
pub(super) fn small(
    picture: &mut Picture,
    place: (f64, f64),
    anchor: Anchor,
    colour: Colour,
    text: &str,
) {
    let x = place.0;
    let room = match anchor {
        Anchor::Start => WIDTH - x,
        Anchor::Middle => 2.0 * x.min(WIDTH - x),
        Anchor::End => x,
    };
    let text = fitted(text, room);
    picture.text(place, anchor, SMALL, Weight::Regular, colour, &text);
}

/// Writes the name of a part of a chart.
pub(super) fn part_name(picture: &mut Picture, place: (f64, f64), text: &str) {
    let weight = Weight::Semibold;
    let text = fitted_in(text, WIDTH - place.0, weight);
    picture.text(place, Anchor::Start, SMALL, weight, BLACK, &text);
}

/// Width of small text.
pub(super) fn small_width(text: &str) -> f64 {
    Face::of(Weight::Regular).width(text, SMALL)
}

/// The widest label beside a plot, and what stands at its other side: so much of the page is the
/// plot's, whatever names there are.
pub(super) const MOST_LABEL: f64 = 0.5 * WIDTH;
pub(super) const MOST_SAID: f64 = 0.3 * WIDTH;

/// Small text of at most the width `most`: the middle of a longer one is left out.
pub(super) fn fitted(text: &str, most: f64) -> Cow<'_, str> {
    fitted_in(text, most, Weight::Regular)
}

fn fitted_in(text: &str, most: f64, weight: Weight) -> Cow<'_, str> {
    let width_of = |text: &str| Face::of(weight).width(text, SMALL);
    let width = width_of(text);
    if width <= most {
        return Cow::Borrowed(text);
    }
    let letters: Vec<char> = text.chars().collect();
    let shown = |kept: usize| -> String {
        let (head, tail) = (kept.div_ceil(2), letters.len() - kept / 2);
        let parts = [&letters[..head], &['.', '.', '.'], &letters[tail..]];
        parts.concat().into_iter().collect()
    };
    let mut kept = (most / width * letters.len() as f64) as usize;
    while kept > 0 && width_of(&shown(kept)) > most {
        kept -= 1;
    }
    Cow::Owned(shown(kept))
}

/// Text in lines as wide as the page; broken at spaces, and inside a word that is wider than a
/// line.
pub(super) fn wrap(text: &str, size: f64, weight: Weight) -> Vec<String> {
    let face = Face::of(weight);
    let most = WIDTH - 2.0 * EDGE;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = match line.is_empty() {
            true => word.to_owned(),
            false => format!("{line} {word}"),
        };
        if face.width(&longer, size) <= most {
            line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for letter in word.chars() {
            line.push(letter);
            if face.width(&line, size) > most {
                line.pop();
                lines.push(std::mem::take(&mut line));
                line.push(letter);
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
