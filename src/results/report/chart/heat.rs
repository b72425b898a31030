//! Drawing coloured cells.

use super::page::{self, BLACK, EDGE, FAINT, GREY, LEADING, MOST_LABEL, WHITE, WIDTH};
use super::picture::{Anchor, Colour, Ink, Picture, Segment};
use super::{Heat, HeatCell, Panel};
use sweeper_model::quantity;

/// Height of a row with its name.
const ROW: f64 = 11.0;
/// A panel is at most this high, however many rows it has.
const PANEL: f64 = 96.0;
/// Sides of the corners that mark ratios below one: without colours both ends of the scale are
/// equally dark.
const CORNER: f64 = 2.6;
/// Height of the bar that explains colours.
const BAR: f64 = 5.0;

/// Blues, from light to dark, for amounts.
const LEAST: Colour = Colour(235, 243, 251);
const MOST: Colour = Colour(8, 64, 129);
/// Colours of ratios below one, and above one.
const LESS: Colour = Colour(0, 114, 178);
const MORE: Colour = Colour(213, 94, 0);

/// The scale of colours: logarithms of the values at its ends.
struct Shades {
    low: f64,
    high: f64,
    is_ratio: bool,
}

impl Shades {
    fn of(heat: &Heat) -> Self {
        let cells = heat
            .panels
            .iter()
            .flat_map(|panel| panel.cells.iter().flatten());
        let logs = cells.filter_map(|cell| match cell {
            HeatCell::Value(value) if *value > 0.0 && value.is_finite() => Some(value.ln()),
            _ => None,
        });
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        let (low, high) = match low <= high {
            true => (low, high),
            false => (0.0, 0.0),
        };
        // A ratio's colours are as strong on both sides, and a difference of 10 % is faint.
        let most = low.abs().max(high.abs()).max(2f64.ln());
        match heat.is_ratio {
            true => Shades {
                low: -most,
                high: most,
                is_ratio: true,
            },
            false => Shades {
                low,
                high: high.max(low + 0.1),
                is_ratio: false,
            },
        }
    }

    fn colour(&self, value: f64) -> Colour {
        self.at((value.ln() - self.low) / (self.high - self.low))
    }

    /// The colour a part of the way from the least to the greatest.
    fn at(&self, part: f64) -> Colour {
        match self.is_ratio {
            true if part < 0.5 => WHITE.towards(LESS, 1.0 - 2.0 * part),
            true => WHITE.towards(MORE, 2.0 * part - 1.0),
            false => LEAST.towards(MOST, part),
        }
    }
}

/// Draws the chart.
pub(super) fn draw(heat: &Heat) -> Picture {
    let (mut picture, mut y) = page::begin(&heat.caption);
    let shades = Shades::of(heat);
    let names = heat.panels.iter().flat_map(|panel| &panel.rows);
    let widest = names
        .map(|name| page::small_width(name))
        .fold(0.0, f64::max)
        .min(MOST_LABEL);
    let left = EDGE + widest + 4.0;
    let width = (WIDTH - EDGE - left) / heat.columns.len().max(1) as f64;
    y += LEADING;
    let place = (EDGE, y - 2.0);
    page::small(&mut picture, place, Anchor::Start, BLACK, &heat.y_label);
    for panel in &heat.panels {
        y = draw_panel(&mut picture, panel, &shades, (left, y), width);
    }
    y = column_names(&mut picture, &heat.columns, (left, y), width);
    let middle = (left + WIDTH - EDGE) / 2.0;
    page::small(
        &mut picture,
        (middle, y + LEADING),
        Anchor::Middle,
        BLACK,
        &heat.x_label,
    );
    let cells = heat
        .panels
        .iter()
        .flat_map(|panel| panel.cells.iter().flatten());
    let has_values = cells.clone().any(|cell| matches!(cell, HeatCell::Value(_)));
    y += LEADING + 5.0;
    if has_values {
        y = bar(&mut picture, &shades, &heat.colour_label, left, y);
    }
    page::end(picture, &heat.caption.notes, y)
}

fn draw_panel(
    picture: &mut Picture,
    panel: &Panel,
    shades: &Shades,
    (left, mut y): (f64, f64),
    width: f64,
) -> f64 {
    if !panel.title.is_empty() {
        y += LEADING;
        page::part_name(picture, (left, y - 2.0), &panel.title);
    }
    let height = (PANEL / panel.rows.len().max(1) as f64).min(ROW);
    // Names that would overlap are left out.
    let every = (LEADING / height).ceil() as usize;
    for (row, (name, cells)) in panel.rows.iter().zip(&panel.cells).enumerate() {
        let top = y + row as f64 * height;
        if row % every == 0 {
            let place = (left - 3.0, top + height / 2.0 + 2.4);
            let name = page::fitted(name, MOST_LABEL);
            page::small(picture, place, Anchor::End, BLACK, &name);
        }
        for (column, cell) in cells.iter().enumerate() {
            let place = [left + column as f64 * width, top, width, height];
            draw_cell(picture, cell, shades, place);
        }
    }
    y + panel.rows.len() as f64 * height + 3.0
}

fn draw_cell(picture: &mut Picture, cell: &HeatCell, shades: &Shades, place: [f64; 4]) {
    let [x, y, width, height] = place;
    let border = if width.min(height) > 4.0 { 0.5 } else { 0.0 };
    let inside = [x, y, width - border, height - border];
    let (ground, text) = match cell {
        HeatCell::Blank => return,
        HeatCell::Value(value) => (shades.colour(*value), quantity::significant(*value)),
        HeatCell::Failed(word) => (Colour(240, 240, 240), (*word).to_owned()),
    };
    let [x, y, width, height] = inside;
    let mut ink = Ink::fill(ground);
    // White cells are cells, too.
    if border > 0.0 && ground.lightness() > 0.9 {
        ink.stroke = Some((FAINT, 0.4));
    }
    picture.rectangle(x, y, width, height, ink);
    let fits = height >= LEADING && page::small_width(&text) + 2.0 <= width;
    if matches!(cell, HeatCell::Failed(_)) {
        page::hatch(picture, inside, Colour(160, 160, 160));
        if fits {
            let half = page::small_width(&text) / 2.0 + 1.0;
            let middle = x + width / 2.0;
            let ink = Ink::fill(ground);
            picture.rectangle(middle - half, y + height / 2.0 - 3.5, 2.0 * half, 7.0, ink);
        }
    }
    let colour = if ground.lightness() < 0.6 {
        WHITE
    } else {
        BLACK
    };
    if matches!(cell, HeatCell::Value(value) if shades.is_ratio && *value < 1.0) {
        let side = CORNER.min(width.min(height) / 2.0);
        let corner = vec![
            Segment::Move(x, y),
            Segment::Line(x + side, y),
            Segment::Line(x, y + side),
            Segment::Close,
        ];
        picture.path(corner, Ink::fill(colour));
    }
    if fits {
        let place = (x + width / 2.0, y + height / 2.0 + 2.4);
        page::small(picture, place, Anchor::Middle, colour, &text);
    }
}

/// Names under the columns, as many as fit.
fn column_names(picture: &mut Picture, names: &[String], (left, y): (f64, f64), width: f64) -> f64 {
    let widest = names
        .iter()
        .map(|name| page::small_width(name))
        .fold(0.0, f64::max);
    let every = ((widest + 3.0) / width).ceil().max(1.0) as usize;
    for (column, name) in names.iter().enumerate().step_by(every) {
        let place = (left + (column as f64 + 0.5) * width, y + LEADING - 2.0);
        page::small(picture, place, Anchor::Middle, BLACK, name);
    }
    y + LEADING
}

/// The bar that explains the colours; returns how far down the bar goes.
fn bar(picture: &mut Picture, shades: &Shades, label: &str, left: f64, y: f64) -> f64 {
    const STEPS: usize = 40;
    let width = WIDTH - EDGE - left;
    let step = width / STEPS as f64;
    for index in 0..STEPS {
        let part = (index as f64 + 0.5) / STEPS as f64;
        let x = left + index as f64 * step;
        // A little wider, so that no paper shines through.
        let ink = Ink::fill(shades.at(part));
        picture.rectangle(x, y, step.min(WIDTH - EDGE - x) + 0.1, BAR, ink);
    }
    picture.rectangle(left, y, width, BAR, Ink::line(FAINT, 0.4));
    let value = |part: f64| (shades.low + (shades.high - shades.low) * part).exp();
    for (part, anchor) in [
        (0.0, Anchor::Start),
        (0.5, Anchor::Middle),
        (1.0, Anchor::End),
    ] {
        let place = (left + part * width, y + BAR + LEADING - 1.0);
        let text = quantity::significant(value(part));
        page::small(picture, place, anchor, GREY, &text);
    }
    let place = (left + width / 2.0, y + BAR + 2.0 * LEADING - 1.0);
    let label = match shades.is_ratio {
        true => format!("{label}; a corner marks less than 1"),
        false => label.to_owned(),
    };
    page::small(picture, place, Anchor::Middle, BLACK, &label);
    y + BAR + 2.0 * LEADING
}
