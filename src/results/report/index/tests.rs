//! The index of a report whose names and reasons look like markup.

use super::*;
use crate::report::chart::{Axis, Caption, Lines, Point, Scale, Series};
use crate::report::table::{Cell, Unit};

const HOSTILE: &str = "<script>alert(1)</script>&\"'";

fn chart(title: &str) -> Chart {
    let axis = |scale| Axis {
        label: "T".to_owned(),
        scale,
    };
    Chart::Lines(Lines {
        caption: Caption {
            title: title.to_owned(),
            subtitle: HOSTILE.to_owned(),
            notes: Vec::new(),
        },
        x: axis(Scale::Log2),
        y: axis(Scale::Log10),
        series: vec![Series {
            label: "fused".to_owned(),
            style: 0,
            is_joined: true,
            points: [1.0, 2.0]
                .map(|x| Point {
                    x,
                    y: x,
                    low: x,
                    high: x,
                })
                .to_vec(),
            dots: Vec::new(),
            failures: Vec::new(),
        }],
        rules: Vec::new(),
        marks: Vec::new(),
    })
}

fn report() -> Report {
    let mut table = Table::new("speedup", format!("Speedup over {HOSTILE}"));
    table.plain(["phase"]).column("fused", Unit::Ratio);
    table.rows = vec![vec![Cell::word(HOSTILE), Cell::Number(2.0)]];
    table.notes = vec![HOSTILE.to_owned()];
    let plot = |name: &str, title: &str| Plot {
        name: name.to_owned(),
        chart: chart(title),
    };
    Report {
        title: HOSTILE.to_owned(),
        lede: HOSTILE.to_owned(),
        parts: vec![
            Part {
                tables: vec![table, Table::new("long", "Long")],
                ..Part::default()
            },
            Part {
                folder: Path::new("mode=a b%").join("form=\"<x>#?"),
                title: HOSTILE.to_owned(),
                plots: vec![
                    plot("time_a", "Time over T: log"),
                    plot("time_b", "Time over T: max"),
                    plot("roofline", "Roofline"),
                ],
                empty: vec![Plot {
                    name: "heat".to_owned(),
                    chart: HOSTILE.to_owned(),
                }],
                ..Part::default()
            },
        ],
        warnings: vec![HOSTILE.to_owned()],
    }
}

/// The index of a report that was written as PDF and SVG.
fn html(report: &Report) -> String {
    let named = |name: &str, extensions: [&str; 2]| {
        extensions
            .map(|end| PathBuf::from(format!("{name}.{end}")))
            .to_vec()
    };
    let sections: Vec<Section<'_>> = report
        .parts
        .iter()
        .map(|part| {
            let tables = part.tables.iter();
            let tables: Vec<_> = tables
                .map(|table| named(&table.name, ["csv", "md"]))
                .collect();
            let plots = part.plots.iter().map(|plot| {
                let thumbnail = Thumbnail::of(&plot.chart.draw()).unwrap();
                (named(&plot.name, ["pdf", "svg"]), thumbnail)
            });
            Section::new(part, &tables, plots.collect())
        })
        .collect();
    index(report, &sections, false)
}

#[test]
fn what_comes_from_files_is_text() {
    let html = html(&report());
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains("alert(1)</script>"));
    let written = escaped(HOSTILE);
    // Title and heading, lede, warning, link and heading of a section, title, cell and note of a
    // table, three pictures' texts, the reason.
    assert_eq!(html.matches(&written).count(), 13);
    let folder = "mode=a%20b%25/form=%22%3Cx%3E%23%3F";
    assert!(
        html.contains(&format!("<a href=\"{folder}/time_a.pdf\">")),
        "{html}"
    );
}

#[test]
fn plots_of_one_kind_share_a_heading() {
    let html = html(&report());
    let count = |text: &str| html.matches(text).count();
    assert_eq!(count("<h3>Time over T</h3>"), 1);
    assert_eq!(count("<h3>Roofline</h3>"), 1);
    assert_eq!(count("<div class=\"plots\">"), 2);
    assert_eq!(count("<figure>"), 3);
    assert_eq!(count("<img src=\"data:image/png;base64,"), 3);
    for tag in ["div", "section", "details", "figure", "table", "nav"] {
        let open = count(&format!("<{tag} ")) + count(&format!("<{tag}>"));
        assert_eq!(open, count(&format!("</{tag}>")), "{tag}");
    }
}

#[test]
fn it_asks_nothing_of_a_network() {
    let html = html(&report());
    let policy = format!(
        "default-src &#39;none&#39;; style-src {}; img-src data:",
        escaped(&in_policy(STYLE))
    );
    assert!(html.contains(&policy), "{html}");
    for ask in ["http://", "https://", "@import", "url(", " src=\"/"] {
        assert!(!html.contains(ask), "{ask}");
    }
}
