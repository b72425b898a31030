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
pub use lines::CURVE;
pub use picture::{Colour, Picture};

use sweeper_manifest::settings::PlotFormat;

/// The text over a chart, and under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caption {
    /// The subject of the chart.
    pub title: String,
    /// The dimensions that are held fixed, the way of measuring, and the machine.
    pub subtitle: String,
    /// Remarks without which the chart can't be read.
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
    /// The quantity that the axis shows, with its unit.
    pub label: String,
    /// The values at which the axis has ticks.
    pub scale: Scale,
}

/// Lines over an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// The text around the chart.
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
    /// Name of the line.
    pub label: String,
    /// The line's colour and mark: one style for one thing in every chart of a report.
    pub style: usize,
    /// True for a line without gaps between marks, false for marks alone.
    pub is_joined: bool,
    /// Points of the line, by x.
    pub points: Vec<Point>,
    /// The single values of which a point is the mean.
    pub dots: Vec<(f64, f64)>,
    /// Places on the axis without a result.
    pub failures: Vec<f64>,
}

/// A point of a line. All numbers are greater than zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Place to the right.
    pub x: f64,
    /// Place upwards.
    pub y: f64,
    /// Lower end of the point's interval.
    pub low: f64,
    /// Upper end of the point's interval.
    pub high: f64,
}

/// A straight line for comparison, between two points.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The point where the rule begins.
    pub from: (f64, f64),
    /// The point where the rule ends.
    pub to: (f64, f64),
    /// Name of the rule, written over it.
    pub label: String,
}

/// A place to look at, with its interval to the left and right. All numbers are greater than zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Place to the right.
    pub x: f64,
    /// Place upwards.
    pub y: f64,
    /// Ends of the mark's interval, if it has one; an infinite end lies beyond the chart.
    pub ends: Option<[f64; 2]>,
    /// Name of the mark, written beside it.
    pub label: String,
}

/// The dashed style with the colour and the mark of `style`.
pub fn dashed(style: usize) -> usize {
    style + page::COLOURS
}

/// Coloured cells in panels that share their columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The text around the chart.
    pub caption: Caption,
    /// Name of the dimension of the columns.
    pub x_label: String,
    /// Name of the dimension of the rows.
    pub y_label: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The quantity that colours show, with its unit.
    pub colour_label: String,
    /// True if values are ratios, whose colours tell more than one from less than one.
    pub is_ratio: bool,
}

/// A panel of cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The subject of the panel; empty where there is one panel only.
    pub title: String,
    /// Names of the rows, from the top.
    pub rows: Vec<String>,
    /// The cells, as many rows and columns as there are names.
    pub cells: Vec<Vec<HeatCell>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum HeatCell {
    /// No point was asked for.
    Blank,
    /// A value greater than zero.
    Value(f64),
    /// No result: hatched, with a word where it fits.
    Failed(&'static str),
}

/// Ratios with their intervals, one below the other: a forest plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest {
    /// The text around the chart.
    pub caption: Caption,
    /// The quantity of which ratios are made.
    pub x_label: String,
    /// Rows that belong together, from the top.
    pub groups: Vec<ForestGroup>,
    /// Vertical lines for comparison; true for the reference of all ratios, false for bounds.
    pub rules: Vec<(f64, bool)>,
    /// Styles and the meanings of their marks.
    pub legend: Vec<(usize, String)>,
    /// Meaning of the ring below an estimate, where there is one.
    pub beside: Option<String>,
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct ForestGroup {
    /// Name of the group; may be empty.
    pub title: String,
    /// The rows, from the top.
    pub rows: Vec<ForestRow>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct ForestRow {
    /// Name of the row.
    pub label: String,
    /// The ratio; none where there is no ratio to show.
    pub estimate: Option<Estimate>,
    /// The estimate that the ratio is held against, drawn as a ring below it whatever its style.
    pub beside: Option<Estimate>,
    /// The ratio in digits, or a word for the reason why there is no ratio.
    pub said: String,
}

/// A ratio with its interval. The ratio is greater than zero; ends are NaN where there is no
/// interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The ratio.
    pub value: f64,
    /// Lower end of the ratio's interval.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// The colour and the mark.
    pub style: usize,
}

impl Chart {
    /// The text around the chart.
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
