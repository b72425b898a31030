//! The first page of a report's folder: its tables and plots, with small pictures to choose from.
//! It has no scripts and loads nothing; text from files is escaped.

use std::fmt::Write;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::chart::{Chart, Picture, thumbnail};
use super::files::{PAGE, Part, Report};
use super::html::{GENERATOR, data_url, escaped, fill, in_policy};
use super::plot::Plot;
use super::table::{Table, render};

const FRAME: &str = include_str!("index.html");
const STYLE: &str = include_str!("index.css");

/// Tables of at most so many rows are shown; larger tables are only linked as files.
const MOST_ROWS: usize = 40;
/// CSS pixels in a point.
const PIXELS: f64 = 96.0 / 72.0;

/// A small picture of a plot.
pub(super) struct Thumbnail {
    png: Vec<u8>,
    /// Width and height in CSS pixels.
    size: [f64; 2],
}

impl Thumbnail {
    /// Draws the small picture.
    ///
    /// # Errors
    /// If the picture has no area.
    pub(super) fn of(picture: &Picture) -> io::Result<Self> {
        Ok(Thumbnail {
            png: thumbnail(picture)?,
            size: [picture.width, picture.height].map(|points| (points * PIXELS).round()),
        })
    }
}

/// A part of the report, and the files that it was written to.
pub(super) struct Section<'r> {
    part: &'r Part,
    tables: Vec<(&'r Table, Links)>,
    plots: Vec<(&'r Plot<Chart>, Links, Thumbnail)>,
}

/// Files with one name and several extensions, as links.
struct Links(Vec<(String, String)>);

impl Links {
    /// Links to the files at `paths`, which lie in the part's folder.
    fn new(part: &Part, paths: &[PathBuf]) -> Self {
        let link = |path: &PathBuf| {
            let name = path.file_name()?;
            let extension = path.extension()?.to_string_lossy().into_owned();
            Some((address(&part.folder.join(name)), extension))
        };
        Links(paths.iter().filter_map(link).collect())
    }

    /// The extensions, each a link.
    fn html(&self) -> String {
        let links = self.0.iter().map(|(address, extension)| {
            format!(
                "<a href=\"{}\">{}</a>",
                escaped(address),
                escaped(extension)
            )
        });
        links.collect::<Vec<String>>().join(" ")
    }
}

impl<'r> Section<'r> {
    /// The tables and plots of a part, with the files that each was written to.
    pub(super) fn new(
        part: &'r Part,
        tables: &[Vec<PathBuf>],
        plots: Vec<(Vec<PathBuf>, Thumbnail)>,
    ) -> Self {
        let links = |paths: &Vec<PathBuf>| Links::new(part, paths);
        Section {
            part,
            tables: part.tables.iter().zip(tables.iter().map(links)).collect(),
            plots: part
                .plots
                .iter()
                .zip(plots)
                .map(|(plot, (paths, thumbnail))| (plot, links(&paths), thumbnail))
                .collect(),
        }
    }

    fn title(&self) -> &str {
        match self.part.title.as_str() {
            "" => "All points",
            title => title,
        }
    }
}

/// The page, as HTML. With `has_page` it links the page that `report --html` wrote.
pub(super) fn index(report: &Report, sections: &[Section<'_>], has_page: bool) -> String {
    let policy = format!(
        "default-src 'none'; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        in_policy(STYLE)
    );
    let page = match has_page {
        true => format!("<a href=\"{PAGE}\">{PAGE}</a> has all points, to sort and to filter."),
        false => {
            "<code>sweeper report --html</code> makes a page of all points, to sort and to filter."
                .to_owned()
        }
    };
    let warnings: String = report
        .warnings
        .iter()
        .map(|text| format!("<p class=\"warning\">{}</p>\n", escaped(text)))
        .collect();
    let bodies: String = sections
        .iter()
        .enumerate()
        .map(|(number, section)| body(number, section))
        .collect();
    fill(
        FRAME,
        &[
            ("policy", &escaped(&policy)),
            ("generator", GENERATOR),
            ("title", &escaped(&report.title)),
            ("style", STYLE),
            ("lede", &escaped(&report.lede)),
            ("page", &page),
            ("warnings", &warnings),
            ("contents", &contents(sections)),
            ("sections", &bodies),
        ],
    )
}

/// Links to the sections, if there are several.
fn contents(sections: &[Section<'_>]) -> String {
    if sections.len() < 2 {
        return String::new();
    }
    let links = sections.iter().enumerate().map(|(number, section)| {
        let title = escaped(section.title());
        format!("<a href=\"#s{number}\">{title}</a>\n")
    });
    format!("<nav>\n{}</nav>\n", links.collect::<String>())
}

fn body(number: usize, section: &Section<'_>) -> String {
    let title = escaped(section.title());
    let mut html = format!("<section id=\"s{number}\">\n<h2>{title}</h2>\n");
    for (place, (table, links)) in section.tables.iter().enumerate() {
        // The first table of all is the most telling.
        html.push_str(&table_html(table, links, number == 0 && place == 0));
    }
    let mut kind = "";
    for (plot, links, thumbnail) in &section.plots {
        let (own, question) = kind_of(plot);
        if own != kind {
            let end = if kind.is_empty() { "" } else { "</div>\n" };
            let _ = writeln!(
                html,
                "{end}<h3>{}</h3>\n<div class=\"plots\">",
                escaped(own)
            );
            kind = own;
        }
        html.push_str(&figure(plot, question, links, thumbnail));
    }
    if !kind.is_empty() {
        html.push_str("</div>\n");
    }
    html.push_str(&empty(section.part));
    html.push_str("</section>\n");
    html
}

/// A plot's title up to its question, and the question: `Time over T`, `log semiring, forward`.
fn kind_of(plot: &Plot<Chart>) -> (&str, &str) {
    let title = plot.chart.caption().title.as_str();
    title.split_once(": ").unwrap_or((title, ""))
}

fn figure(plot: &Plot<Chart>, question: &str, links: &Links, thumbnail: &Thumbnail) -> String {
    let caption = plot.chart.caption();
    let image = format!(
        "<img src=\"{}\" width=\"{}\" height=\"{}\" alt=\"{}\">",
        data_url("image/png", &thumbnail.png),
        thumbnail.size[0],
        thumbnail.size[1],
        escaped(&format!("{}. {}", caption.title, caption.subtitle)),
    );
    let image = match links.0.first() {
        Some((address, _)) => format!("<a href=\"{}\">{image}</a>", escaped(address)),
        None => image,
    };
    let question = escaped(question);
    let files = links.html();
    format!("<figure>{image}<figcaption>{question} {files}</figcaption></figure>\n")
}

fn table_html(table: &Table, links: &Links, is_open: bool) -> String {
    let title = escaped(&table.title);
    let rows = match table.rows.len() {
        1 => "1 row".to_owned(),
        rows => format!("{rows} rows"),
    };
    let files = links.html();
    if !(1..=MOST_ROWS).contains(&table.rows.len()) {
        // An empty table says why it is empty.
        let notes = table.notes.iter().filter(|_| table.rows.is_empty());
        let notes: String = notes.map(|note| format!(": {}", escaped(note))).collect();
        return format!("<p>{title} <small>{rows} {files}</small>{notes}</p>\n");
    }
    let open = if is_open { " open" } else { "" };
    let mut html = format!(
        "<details{open}><summary>{title} <small>{rows} {files}</small></summary>\n<div class=\"wide\"><table>\n"
    );
    for (number, line) in render::texts(table).iter().enumerate() {
        html.push_str("<tr>");
        for (column, field) in line.iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            let class = match render::is_number(table, column) {
                true => " class=\"number\"",
                false => "",
            };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", escaped(field));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    for note in &table.notes {
        let _ = writeln!(html, "<p>{}</p>", escaped(note));
    }
    html.push_str("</details>\n");
    html
}

/// Plots that would be empty, by reason.
fn empty(part: &Part) -> String {
    if part.empty.is_empty() {
        return String::new();
    }
    let lines = part.empty.iter().map(|plot| {
        let (name, reason) = (escaped(&plot.name), escaped(&plot.chart));
        format!("<li><code>{name}</code>: {reason}</li>\n")
    });
    format!(
        "<details class=\"empty\"><summary>Plots that would be empty: {}</summary>\n<ul>\n{}</ul></details>\n",
        part.empty.len(),
        lines.collect::<String>()
    )
}

/// A relative path as an address: everything but plain letters as bytes in hexadecimal.
fn address(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    let mut out = String::new();
    for (place, part) in parts.enumerate() {
        if place > 0 {
            out.push('/');
        }
        for byte in part.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'=' | b',' => {
                    out.push(char::from(byte));
                }
                other => {
                    let _ = write!(out, "%{other:02X}");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
