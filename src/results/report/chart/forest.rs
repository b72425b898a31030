//! Drawing ratios with their intervals, one below the other.

use super::axis::Span;
use super::lines::write_tick;
use super::page::{self, BLACK, EDGE, GREY, LEADING, MOST_LABEL, MOST_SAID, WHITE, WIDTH};
use super::picture::{Anchor, Colour, Ink, Picture, circle, polygon};
use super::{Estimate, Forest, ForestRow};

/// Height of a row.
const ROW: f64 = 10.5;
/// Distance from the first estimate of a row down to the second.
const BESIDE: f64 = 4.6;
/// Room above the name of a group.
const GAP: f64 = 2.5;
/// An interval that reaches further than this factor from its own estimate does not widen the axis.
const FAR: f64 = 1.5;
/// Colour of the bounds, which are seen but not read.
const BOUND: Colour = Colour(185, 185, 185);
/// Half the height of the caps of an interval.
const CAP: f64 = 1.5;

/// Horizontal places of the parts of the chart.
struct Plot {
    x: Span,
    left: f64,
    right: f64,
}

impl Plot {
    fn at(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }
}

/// Draws the chart.
pub(super) fn draw(forest: &Forest) -> Picture {
    let (mut picture, y) = page::begin(&forest.caption);
    let plot = layout(forest);
    let top = y + 2.0;
    let bottom = top + height(forest);
    let mut y = top;
    for group in &forest.groups {
        if !group.title.is_empty() {
            y += LEADING + GAP;
            page::part_name(&mut picture, (EDGE, y - 1.0), &group.title);
        }
        // Beside the rows alone: a group's name may be longer than the rows' labels.
        let end = y + group.rows.len() as f64 * ROW;
        rules(&mut picture, forest, &plot, (y, end));
        for row in &group.rows {
            draw_row(&mut picture, &plot, row, y);
            y += ROW;
        }
    }
    axis(&mut picture, forest, &plot, bottom);
    let y = legend(&mut picture, forest, bottom + 2.0 * LEADING + 3.0);
    page::end(picture, &forest.caption.notes, y)
}

fn rows(forest: &Forest) -> impl Iterator<Item = &ForestRow> {
    forest.groups.iter().flat_map(|group| &group.rows)
}

fn height(forest: &Forest) -> f64 {
    let titles = forest.groups.iter().filter(|group| !group.title.is_empty());
    titles.count() as f64 * (LEADING + GAP) + rows(forest).count() as f64 * ROW + 3.0
}

fn layout(forest: &Forest) -> Plot {
    let widest = |text: fn(&ForestRow) -> &str, most: f64| {
        let widths = rows(forest).map(|row| page::small_width(text(row)));
        widths.fold(0.0, f64::max).min(most)
    };
    let estimates = rows(forest).flat_map(|row| row.estimate.iter().chain(&row.beside));
    let shown = estimates.flat_map(|one| {
        let near = |end: f64| end.clamp(one.value / FAR, one.value * FAR);
        [near(one.low), one.value, near(one.high)]
    });
    let rules = forest.rules.iter().map(|rule| rule.0);
    Plot {
        x: Span::of(shown.chain(rules), 1.2),
        left: EDGE + widest(|row| &row.label, MOST_LABEL) + 7.0,
        right: WIDTH - EDGE - widest(|row| &row.said, MOST_SAID) - 5.0,
    }
}

/// The lines for comparison, beside the rows of a group.
fn rules(picture: &mut Picture, forest: &Forest, plot: &Plot, (top, end): (f64, f64)) {
    for &(value, is_strong) in &forest.rules {
        let x = plot.at(value);
        let ink = match is_strong {
            true => Ink::line(GREY, 0.8),
            false => Ink::line(BOUND, 0.6).with_dash([2.5, 1.5]),
        };
        picture.line((x, top), (x, end), ink);
    }
}

/// The axis below the rows.
fn axis(picture: &mut Picture, forest: &Forest, plot: &Plot, bottom: f64) {
    picture.line(
        (plot.left, bottom),
        (plot.right, bottom),
        Ink::line(GREY, 0.6),
    );
    let room = ((plot.right - plot.left) / 22.0) as usize;
    for tick in plot.x.ticks(super::Scale::Log10, room) {
        let x = plot.at(tick.value);
        picture.line((x, bottom), (x, bottom + 2.0), Ink::line(GREY, 0.5));
        let place = (x, bottom + LEADING + 1.0);
        write_tick(picture, &tick, place, Anchor::Middle);
    }
    let middle = f64::midpoint(plot.left, plot.right);
    let place = (middle, bottom + 2.0 * LEADING + 1.0);
    page::small(picture, place, Anchor::Middle, BLACK, &forest.x_label);
}

/// Draws a row whose upper end is at `top`.
fn draw_row(picture: &mut Picture, plot: &Plot, row: &ForestRow, top: f64) {
    let text = top + ROW / 2.0 + 2.4;
    let place = (EDGE + 4.0, text);
    let label = page::fitted(&row.label, MOST_LABEL);
    page::small(picture, place, Anchor::Start, GREY, &label);
    let place = (WIDTH - EDGE, text);
    let said = page::fitted(&row.said, MOST_SAID);
    page::small(picture, place, Anchor::End, BLACK, &said);
    let y = match row.beside {
        Some(_) => top + ROW / 2.0 - BESIDE / 2.0 + 0.8,
        None => top + ROW / 2.0,
    };
    if let Some(beside) = &row.beside {
        let y = y + BESIDE;
        interval(picture, plot, beside, y, Ink::line(GREY, 0.5));
        ring(picture, plot.at(beside.value), y);
    }
    if let Some(one) = &row.estimate {
        let ink = Ink::line(page::colour(one.style), 0.9);
        interval(picture, plot, one, y, ink);
        page::mark(picture, one.style, plot.at(one.value), y, 2.1);
    }
}

/// A small grey ring: the value that an estimate is held against.
fn ring(picture: &mut Picture, x: f64, y: f64) {
    let ink = Ink {
        fill: Some(WHITE),
        ..Ink::line(GREY, 0.6)
    };
    picture.path(circle(x, y, 1.1), ink);
}

/// Draws the interval of an estimate; an end beyond the chart has an arrow instead of a cap.
fn interval(picture: &mut Picture, plot: &Plot, one: &Estimate, y: f64, ink: Ink) {
    if one.low.is_nan() || one.high.is_nan() {
        return;
    }
    let [low, high] = [one.low, one.high].map(|end| plot.at(end));
    let [from, to] = [low, high].map(|x| x.clamp(plot.left, plot.right));
    picture.line((from, y), (to, y), ink);
    for (end, at, way) in [(low, from, 1.0), (high, to, -1.0)] {
        if (end - at).abs() < 1e-6 {
            picture.line((at, y - CAP), (at, y + CAP), ink);
            continue;
        }
        let corners = [(0.0, 0.0), (2.4 * way, -CAP), (2.4 * way, CAP)];
        let arrow = polygon(corners.map(|(dx, dy)| (at + dx, y + dy)));
        if let Some((colour, _)) = ink.stroke {
            picture.path(arrow, Ink::fill(colour));
        }
    }
}

/// Explains the marks; returns how far down the legend goes.
fn legend(picture: &mut Picture, forest: &Forest, y: f64) -> f64 {
    let (mut x, mut line) = (EDGE, y + LEADING);
    let marks = forest
        .legend
        .iter()
        .map(|(style, label)| (Some(*style), label));
    let beside = forest.beside.iter().map(|label| (None, label));
    for (style, label) in marks.chain(beside) {
        let width = page::small_width(label) + 15.0;
        if x + width > WIDTH - EDGE && x > EDGE {
            x = EDGE;
            line += LEADING;
        }
        match style {
            Some(style) => page::mark(picture, style, x + 3.0, line - 2.4, 2.1),
            None => ring(picture, x + 3.0, line - 2.4),
        }
        page::small(picture, (x + 8.0, line), Anchor::Start, BLACK, label);
        x += width;
    }
    line + 2.0
}
