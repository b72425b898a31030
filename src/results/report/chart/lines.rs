//! Drawing lines over an axis.

use super::axis::{Span, Tick};
use super::page::{self, BLACK, EDGE, FAINT, GREY, LEADING, SMALL, WIDTH};
use super::picture::{Anchor, Ink, Picture, Segment, open, polygon};
use super::{Lines, Series, marks};

/// Height of the plot proper.
const HEIGHT: f64 = 122.0;
/// Height of the strip for points without a result.
const STRIP: f64 = 9.0;
/// Labels at the ends of lines take at most this part of the width.
const LABELS: f64 = 0.36;
/// From one label at the end of a line to the next.
const LABEL_GAP: f64 = 8.0;
/// Lines with more points have marks at some of them only.
const MANY: usize = 30;
/// Lines with at least so many points are drawn as curves without marks.
pub const CURVE: usize = 100;

/// Places of the plot's parts, and its two spans.
pub(super) struct Plot {
    x: Span,
    y: Span,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plot {
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.at_x(x), self.at_y(y))
    }

    pub(super) fn at_x(&self, x: f64) -> f64 {
        self.left + self.x.place(x) * (self.right - self.left)
    }

    fn at_y(&self, y: f64) -> f64 {
        let place = self.bottom - self.y.place(y) * (self.bottom - self.top);
        place.clamp(self.top, self.bottom)
    }
}

/// Draws the chart.
pub(super) fn draw(lines: &Lines) -> Picture {
    let (mut picture, y) = page::begin(&lines.caption);
    let labelled: Vec<&Series> = lines.series.iter().filter(|one| is_labelled(one)).collect();
    let widths = labelled.iter().map(|one| page::small_width(&one.label));
    let widest = widths.fold(0.0, f64::max);
    let is_direct = widest <= LABELS * WIDTH
        && labelled.len() as f64 * LABEL_GAP <= HEIGHT
        && labelled.iter().all(|one| one.is_joined);
    let right = match is_direct {
        true => WIDTH - EDGE - widest - 9.0,
        false => WIDTH - EDGE - 6.0,
    };
    let (plot, ticks) = layout(lines, y, right);
    axes(&mut picture, lines, &plot, &ticks);
    for rule in &lines.rules {
        draw_rule(&mut picture, &plot, rule);
    }
    for series in &lines.series {
        draw_interval(&mut picture, &plot, series);
    }
    for series in &lines.series {
        draw_series(&mut picture, &plot, series);
    }
    marks::draw(&mut picture, &plot, &lines.marks);
    draw_failures(&mut picture, &plot, &lines.series);
    let mut y = plot.bottom + 2.0 * LEADING + 4.0;
    if is_direct {
        label_ends(&mut picture, &plot, &labelled);
    } else {
        y = legend(&mut picture, &labelled, y);
    }
    page::end(picture, &lines.caption.notes, y)
}

fn is_labelled(series: &Series) -> bool {
    !series.points.is_empty() || !series.failures.is_empty() || !series.dots.is_empty()
}

/// The places of the plot's parts, and the ticks of the axis upwards.
fn layout(lines: &Lines, y: f64, right: f64) -> (Plot, Vec<Tick>) {
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let dots = || lines.series.iter().flat_map(|series| &series.dots);
    let failed = lines.series.iter().flat_map(|series| &series.failures);
    let ends = || {
        let ends = lines.rules.iter().flat_map(|rule| [rule.from, rule.to]);
        ends.chain(lines.marks.iter().map(|mark| (mark.x, mark.y)))
    };
    let x = points()
        .map(|point| point.x)
        .chain(dots().map(|dot| dot.0))
        .chain(failed.copied())
        .chain(ends().map(|end| end.0));
    let x = Span::of(x, 2.0);
    let values = points()
        .flat_map(|point| [point.low, point.y, point.high])
        .chain(dots().map(|dot| dot.1))
        .chain(ends().map(|end| end.1));
    let y_span = Span::of(values, 1.5);
    let ticks = y_span.ticks(lines.y.scale, 7);
    let widths = ticks.iter().map(|tick| {
        let exponent = tick.exponent.as_deref().unwrap_or_default();
        page::small_width(&tick.label) + page::small_width(exponent) * 0.8
    });
    let has_failures = lines
        .series
        .iter()
        .any(|series| !series.failures.is_empty());
    let top = y + LEADING + 4.0 + if has_failures { STRIP } else { 0.0 };
    let plot = Plot {
        x,
        y: y_span,
        left: EDGE + widths.fold(0.0, f64::max) + 5.0,
        right,
        top,
        bottom: top + HEIGHT,
    };
    (plot, ticks)
}

fn axes(picture: &mut Picture, lines: &Lines, plot: &Plot, ticks: &[Tick]) {
    let strip = lines
        .series
        .iter()
        .any(|series| !series.failures.is_empty());
    let above = plot.top - if strip { STRIP } else { 0.0 };
    let place = (EDGE, above - 5.5);
    page::small(picture, place, Anchor::Start, BLACK, &lines.y.label);
    let thin = Ink::line(FAINT, 0.4);
    for tick in ticks {
        let y = plot.at_y(tick.value);
        picture.line((plot.left, y), (plot.right, y), thin);
        write_tick(picture, tick, (plot.left - 3.0, y + 2.4), Anchor::End);
    }
    for value in plot.y.minor() {
        let y = plot.at_y(value);
        picture.line((plot.left - 1.5, y), (plot.left, y), Ink::line(GREY, 0.4));
    }
    let room = ((plot.right - plot.left) / 22.0) as usize;
    for tick in plot.x.ticks(lines.x.scale, room) {
        let x = plot.at_x(tick.value);
        picture.line((x, above), (x, plot.bottom), thin);
        picture.line(
            (x, plot.bottom),
            (x, plot.bottom + 2.0),
            Ink::line(GREY, 0.5),
        );
        write_tick(
            picture,
            &tick,
            (x, plot.bottom + LEADING + 1.0),
            Anchor::Middle,
        );
    }
    let axis = Ink::line(GREY, 0.6);
    picture.line((plot.left, plot.bottom), (plot.right, plot.bottom), axis);
    picture.line((plot.left, above), (plot.left, plot.bottom), axis);
    let place = (
        f64::midpoint(plot.left, plot.right),
        plot.bottom + 2.0 * LEADING + 1.0,
    );
    page::small(picture, place, Anchor::Middle, BLACK, &lines.x.label);
}

/// Writes a tick's label, with its exponent raised.
pub(super) fn write_tick(picture: &mut Picture, tick: &Tick, place: (f64, f64), anchor: Anchor) {
    let Some(exponent) = &tick.exponent else {
        page::small(picture, place, anchor, BLACK, &tick.label);
        return;
    };
    let base = page::small_width(&tick.label);
    let raised = page::small_width(exponent) * 0.8;
    let start = match anchor {
        Anchor::Start => place.0,
        Anchor::Middle => place.0 - (base + raised) / 2.0,
        Anchor::End => place.0 - base - raised,
    };
    page::small(picture, (start, place.1), Anchor::Start, BLACK, &tick.label);
    picture.text(
        (start + base, place.1 - 2.6),
        Anchor::Start,
        SMALL * 0.8,
        super::font::Weight::Regular,
        BLACK,
        exponent,
    );
}

fn draw_rule(picture: &mut Picture, plot: &Plot, rule: &super::Rule) {
    let (from, to) = (
        plot.at(rule.from.0, rule.from.1),
        plot.at(rule.to.0, rule.to.1),
    );
    picture.line(from, to, Ink::line(GREY, 0.7).with_dash([3.0, 2.0]));
    // Over the middle of the line; a steep one has its label to the right of where it begins.
    let is_flat = (to.1 - from.1).abs() < 2.0;
    let (place, anchor) = match is_flat {
        true => ((to.0 - 2.0, from.1 - 2.0), Anchor::End),
        false => {
            let middle = (f64::midpoint(from.0, to.0), f64::midpoint(from.1, to.1));
            ((middle.0 + 3.0, middle.1 + 7.0), Anchor::Start)
        }
    };
    page::small(picture, place, anchor, GREY, &rule.label);
}

/// Draws the intervals: a band along a line, bars at single points.
fn draw_interval(picture: &mut Picture, plot: &Plot, series: &Series) {
    let colour = page::colour(series.style);
    let upper = series
        .points
        .iter()
        .map(|point| plot.at(point.x, point.high));
    let lower = series
        .points
        .iter()
        .map(|point| plot.at(point.x, point.low));
    if series.is_joined && series.points.len() > 1 {
        let band = polygon(upper.chain(lower.rev()));
        picture.path(band, Ink::fill(colour).with_opacity(0.25));
        return;
    }
    for point in &series.points {
        let (x, high) = plot.at(point.x, point.high);
        let low = plot.at_y(point.low);
        // A bar that the mark would hide says nothing.
        if low - high > 1.0 {
            let ink = Ink::line(colour, 0.6);
            picture.line((x, low), (x, high), ink);
            picture.line((x - 1.5, low), (x + 1.5, low), ink);
            picture.line((x - 1.5, high), (x + 1.5, high), ink);
        }
    }
}

fn draw_series(picture: &mut Picture, plot: &Plot, series: &Series) {
    let colour = page::colour(series.style);
    for &(x, y) in &series.dots {
        let (x, y) = plot.at(x, y);
        let ink = Ink::fill(colour).with_opacity(0.5);
        picture.path(super::picture::circle(x, y, 1.0), ink);
    }
    let places: Vec<(f64, f64)> = series
        .points
        .iter()
        .map(|point| plot.at(point.x, point.y))
        .collect();
    if series.is_joined && places.len() > 1 {
        let ink = Ink::line(colour, 1.1).with_dash(page::dash(series.style));
        picture.path(open(places.iter().copied()), ink);
    }
    if series.is_joined && places.len() >= CURVE {
        return;
    }
    let step = match series.is_joined {
        true => places.len().div_ceil(MANY).max(1),
        false => 1,
    };
    let radius = if series.is_joined { 1.9 } else { 1.5 };
    for &(x, y) in places.iter().step_by(step) {
        page::mark(picture, series.style, x, y, radius);
    }
}

/// Draws crosses over the plot; the crosses of lines that fail at one place stand side by side.
fn draw_failures(picture: &mut Picture, plot: &Plot, series: &[Series]) {
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for one in series {
        for &x in &one.failures {
            let at = plot.at_x(x);
            let here = taken.iter().filter(|(place, _)| (place - at).abs() < 1e-6);
            let shift = 4.2 * here.count() as f64;
            taken.push((at, shift));
            let colour = page::colour(one.style);
            let x = (at + shift).min(plot.right + 4.0);
            page::cross(picture, x, plot.top - STRIP / 2.0 - 0.5, 1.6, colour);
        }
    }
}

/// Writes the name of each line at its end, moved up or down where names would overlap.
fn label_ends(picture: &mut Picture, plot: &Plot, series: &[&Series]) {
    let mut ends: Vec<(f64, f64, &Series)> = series
        .iter()
        .filter_map(|one| {
            let strip = plot.top - STRIP / 2.0 - 0.5;
            match one.points.last() {
                Some(last) => Some((plot.at_x(last.x), plot.at_y(last.y), *one)),
                None => Some((plot.at_x(*one.failures.last()?), strip, *one)),
            }
        })
        .collect();
    ends.sort_by(|one, other| one.1.total_cmp(&other.1));
    let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
    let top = wanted
        .first()
        .map_or(plot.top, |first| first.min(plot.top + 2.0));
    let places = spread(&wanted, top, plot.bottom - 2.0);
    for ((x, y, one), place) in ends.into_iter().zip(places) {
        let start = plot.right + 7.0;
        if x < plot.right - 12.0 || (place - y).abs() > 1.5 {
            // Dotted: a whole line looks like data.
            let ink = Ink::line(page::colour(one.style), 0.4).with_dash([0.8, 1.6]);
            let path: Vec<Segment> = open([(x + 2.5, y), (start - 1.5, place)]);
            picture.path(path, ink);
        }
        let colour = darker(page::colour(one.style));
        page::small(
            picture,
            (start, place + 2.4),
            Anchor::Start,
            colour,
            &one.label,
        );
    }
}

/// Light colours are hard to read as text.
fn darker(colour: super::Colour) -> super::Colour {
    let excess = (colour.lightness() - 0.45).max(0.0);
    colour.towards(BLACK, excess * 1.6)
}

/// Places at least [`LABEL_GAP`] apart, in order, as near to `wanted` as distance and ends allow.
fn spread(wanted: &[f64], low: f64, high: f64) -> Vec<f64> {
    // Neighbours that would overlap form a group around the mean of their wanted places.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for &place in wanted {
        groups.push((place, 1));
        while let [.., before, last] = groups[..] {
            let half = |count: usize| count as f64 * LABEL_GAP / 2.0;
            if before.0 + half(before.1) <= last.0 - half(last.1) {
                break;
            }
            let count = before.1 + last.1;
            let mean = (before.0 * before.1 as f64 + last.0 * last.1 as f64) / count as f64;
            groups.pop();
            groups.pop();
            groups.push((mean, count));
        }
    }
    let mut places = Vec::new();
    for (centre, count) in groups {
        let first = centre - (count - 1) as f64 * LABEL_GAP / 2.0;
        places.extend((0..count).map(|index| first + index as f64 * LABEL_GAP));
    }
    // Into the plot, from below and then from above.
    let n = places.len();
    for (index, place) in places.iter_mut().enumerate() {
        *place = place.min(high - (n - 1 - index) as f64 * LABEL_GAP);
    }
    for (index, place) in places.iter_mut().enumerate() {
        *place = place.max(low + index as f64 * LABEL_GAP);
    }
    places
}

/// Writes the lines' names under the plot; returns how far down the legend goes.
fn legend(picture: &mut Picture, series: &[&Series], y: f64) -> f64 {
    let mut x = EDGE;
    let mut line = y + LEADING;
    for one in series {
        let width = page::small_width(&one.label) + 22.0;
        if x + width > WIDTH - EDGE && x > EDGE {
            x = EDGE;
            line += LEADING;
        }
        let ink = Ink::line(page::colour(one.style), 1.1).with_dash(page::dash(one.style));
        let middle = line - 2.4;
        if one.is_joined {
            picture.line((x, middle), (x + 10.0, middle), ink);
        }
        page::mark(picture, one.style, x + 5.0, middle, 1.9);
        page::small(picture, (x + 13.0, line), Anchor::Start, BLACK, &one.label);
        x += width;
    }
    line + 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_do_not_overlap(mut wanted in prop::collection::vec(0.0f64..120.0, 0..14)) {
            wanted.sort_by(f64::total_cmp);
            let places = spread(&wanted, 0.0, 120.0);
            prop_assert_eq!(places.len(), wanted.len());
            for pair in places.windows(2) {
                prop_assert!(pair[1] - pair[0] >= LABEL_GAP - 1e-9);
            }
            for place in &places {
                prop_assert!((-1e-9..=120.0 + 1e-9).contains(place));
            }
        }
    }

    #[test]
    fn labels_with_room_stay_where_they_are() {
        assert_eq!(spread(&[10.0, 50.0, 90.0], 0.0, 100.0), [10.0, 50.0, 90.0]);
        assert_eq!(spread(&[50.0, 50.0], 0.0, 100.0), [46.0, 54.0]);
    }
}
