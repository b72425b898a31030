//! Charts as data, and how they are drawn: at the width of one column of a paper, 3.4 inches, with
//! no text under 7 points.

mod axis;
mod font;
mod forest;
mod heat;
mod lines;
mod marks;
mod page;
mod pdf;
mod picture;
mod png;
mod svg;

use std::io;

pub use axis::Scale;
pub use picture::{Colour, Picture};

use crate::manifest::settings::PlotFormat;

/// What stands over a chart, and under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caption {
    /// What it shows.
    pub title: String,
    /// What is held fixed, how it was measured, and where.
    pub subtitle: String,
    /// What to know to read it.
    pub notes: Vec<String>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines over an axis.
    Lines(Lines),
    /// Coloured cells.
    Heat(Heat),
    /// Ratios with their intervals, one below the other.
    Forest(Forest),
}

/// An axis. All are logarithmic: times, sizes and ratios are compared by factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// Where its ticks are.
    pub scale: Scale,
}

/// Lines over an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What stands around it.
    pub caption: Caption,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Straight lines for comparison: ceilings, a ratio of one.
    pub rules: Vec<Rule>,
    /// Places to look at.
    pub marks: Vec<Mark>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub label: String,
    /// Which colour and mark it has; the same for the same thing in every chart of a report.
    pub style: usize,
    /// True for a line without gaps between marks, false for marks alone.
    pub is_joined: bool,
    /// Its points, by x.
    pub points: Vec<Point>,
    /// Single values that a point is the mean of.
    pub dots: Vec<(f64, f64)>,
    /// Where there is no result.
    pub failures: Vec<f64>,
}

/// A point of a line. All numbers are greater than zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A straight line for comparison, between two points.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Where it begins.
    pub from: (f64, f64),
    /// Where it ends.
    pub to: (f64, f64),
    /// What it is; written over it.
    pub label: String,
}

/// A place to look at, with its interval to the left and right. All numbers are greater than zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Ends of its interval, if it has one; an infinite one lies beyond the chart.
    pub ends: Option<[f64; 2]>,
    /// What it is; written beside it.
    pub label: String,
}

/// The style with the same colour and mark, dashed.
pub fn dashed(style: usize) -> usize {
    style + page::COLOURS
}

/// Coloured cells in panels that share their columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// What stands around it.
    pub caption: Caption,
    /// What the columns are.
    pub x_label: String,
    /// What the rows are.
    pub y_label: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// What the colours mean, with the unit.
    pub colour_label: String,
    /// True if colours tell more than one from less than one.
    pub is_ratio: bool,
}

/// A panel of cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows; empty where there is one panel only.
    pub title: String,
    /// Names of the rows, from the top.
    pub rows: Vec<String>,
    /// The cells, as many rows and columns as there are names.
    pub cells: Vec<Vec<HeatCell>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum HeatCell {
    /// Nobody asked.
    Blank,
    /// A value greater than zero.
    Value(f64),
    /// No result: hatched, with a word where it fits.
    Failed(&'static str),
}

/// Ratios with their intervals, one below the other: a forest plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest {
    /// What stands around it.
    pub caption: Caption,
    /// What the ratios are.
    pub x_label: String,
    /// Rows that belong together, from the top.
    pub groups: Vec<ForestGroup>,
    /// Vertical lines for comparison; true for one that all ratios are held against, false for
    /// bounds.
    pub rules: Vec<(f64, bool)>,
    /// What the marks of styles mean.
    pub legend: Vec<(usize, String)>,
    /// What the ring below an estimate is, where there is one.
    pub beside: Option<String>,
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct ForestGroup {
    /// What they are; empty where there is nothing to say.
    pub title: String,
    /// The rows, from the top.
    pub rows: Vec<ForestRow>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct ForestRow {
    /// What it is.
    pub label: String,
    /// The ratio; none where there is none to show.
    pub estimate: Option<Estimate>,
    /// What it is held against, drawn as a ring below it whatever its style.
    pub beside: Option<Estimate>,
    /// The ratio in digits, or why there is none: a word.
    pub said: String,
}

/// A ratio with its interval. The ratio is greater than zero; ends may be NaN, where there are
/// none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The ratio.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Which colour and mark it has.
    pub style: usize,
}

impl Chart {
    /// What stands around it.
    pub fn caption(&self) -> &Caption {
        match self {
            Chart::Lines(lines) => &lines.caption,
            Chart::Heat(heat) => &heat.caption,
            Chart::Forest(forest) => &forest.caption,
        }
    }

    /// The picture.
    pub fn draw(&self) -> Picture {
        match self {
            Chart::Lines(lines) => lines::draw(lines),
            Chart::Heat(heat) => heat::draw(heat),
            Chart::Forest(forest) => forest::draw(forest),
        }
    }
}

/// A small picture as PNG, for a page that shows many.
///
/// # Errors
/// If the format can't hold it.
pub fn thumbnail(picture: &Picture) -> io::Result<Vec<u8>> {
    png::png(picture, 120.0)
}

/// The bytes of a picture's file.
///
/// # Errors
/// If the format can't hold it.
pub fn encode(picture: &Picture, format: PlotFormat) -> io::Result<Vec<u8>> {
    match format {
        PlotFormat::Svg => Ok(svg::svg(picture).into_bytes()),
        PlotFormat::Pdf => pdf::pdf(picture),
        PlotFormat::Png => png::png(picture, 300.0),
    }
}

#[cfg(test)]
mod tests;
