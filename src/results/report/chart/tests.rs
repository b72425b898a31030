//! Pictures of charts: their contents, and that every format can hold them.

use super::picture::Item;
use super::*;

fn lines() -> Lines {
    let series = |label: &str, style: usize, factor: f64| Series {
        label: label.to_owned(),
        style,
        is_joined: true,
        points: (0..4)
            .map(|power| {
                let x = 128.0 * 2f64.powi(power);
                let y = x * factor;
                Point {
                    x,
                    y,
                    low: y * 0.9,
                    high: y * 1.1,
                }
            })
            .collect(),
        dots: Vec::new(),
        failures: Vec::new(),
    };
    let axis = |label: &str, scale| Axis {
        label: label.to_owned(),
        scale,
    };
    Lines {
        caption: Caption {
            title: "Time against length".to_owned(),
            subtitle: "K = 8, C = 6; medians of 5 samples <&>".to_owned(),
            ..Caption::default()
        },
        x: axis("T", Scale::Log2),
        y: axis("time (ms)", Scale::Log10),
        series: vec![series("fused", 0, 1e-3), series("streaming", 1, 1e-2)],
        rules: Vec::new(),
        marks: Vec::new(),
    }
}

fn texts(picture: &Picture) -> Vec<&str> {
    picture
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Text(text) => Some(text.text.as_str()),
            Item::Path(..) => None,
        })
        .collect()
}

/// No text ends outside of the page or under seven points, except for exponents.
fn is_readable(picture: &Picture) {
    for item in &picture.items {
        let Item::Text(text) = item else { continue };
        let width = font::Face::of(text.weight).width(&text.text, text.size);
        assert!(text.x >= 0.0 && text.x + width <= picture.width, "{text:?}");
        assert!(text.y > 0.0 && text.y <= picture.height, "{text:?}");
        let is_exponent = text
            .text
            .chars()
            .all(|letter| "−0123456789".contains(letter));
        assert!(text.size >= 7.0 || is_exponent, "{text:?}");
    }
}

#[test]
fn lines_have_ticks_and_names() {
    let picture = Chart::Lines(lines()).draw();
    let texts = texts(&picture);
    for text in [
        "128",
        "1024",
        "T",
        "time (ms)",
        "fused",
        "streaming",
        "1",
        "10",
    ] {
        assert!(texts.contains(&text), "{text} is not in {texts:?}");
    }
    is_readable(&picture);
}

#[test]
fn failures_are_seen() {
    let count = |lines: &Lines| Chart::Lines(lines.clone()).draw().items.len();
    let mut failing = lines();
    let before = count(&failing);
    failing.series[1].failures = vec![1024.0, 2048.0];
    assert!(count(&failing) >= before + 4, "two strokes a cross");
    failing.series[1].points.clear();
    let picture = Chart::Lines(failing).draw();
    assert!(texts(&picture).contains(&"streaming"));
    is_readable(&picture);
}

#[test]
fn long_names_go_into_a_legend() {
    let mut long = lines();
    long.series[0].label =
        "a backend with a very long name (on a machine with one, too)".to_owned();
    let picture = Chart::Lines(long).draw();
    assert!(texts(&picture).contains(&"streaming"));
    is_readable(&picture);
}

#[test]
fn one_point_is_a_picture_too() {
    let mut one = lines();
    one.series.truncate(1);
    one.series[0].points.truncate(1);
    is_readable(&Chart::Lines(one).draw());
}

#[test]
fn the_description_has_one_point_after_each_sentence() {
    let mut noted = lines();
    noted.caption.subtitle = "at B = 4".to_owned();
    noted.caption.notes = vec!["One.".to_owned(), "Two.".to_owned()];
    let picture = Chart::Lines(noted).draw();
    assert_eq!(picture.description, "at B = 4. One. Two.");
}

/// Rings close to each other, one with an interval through the other's label.
#[test]
fn labels_of_marks_do_not_overprint() {
    let mut marked = lines();
    let mark = |x: f64, y: f64, label: &str| Mark {
        x,
        y,
        ends: Some([x / 3.0, f64::INFINITY]),
        label: label.to_owned(),
    };
    marked.marks = vec![
        mark(400.0, 1.0, "2.93 k"),
        mark(402.0, 1.01, "2.94 k"),
        mark(402.0, 0.9, "2.95 k"),
        mark(1020.0, 0.13, "7.00 M"),
    ];
    let picture = Chart::Lines(marked).draw();
    is_readable(&picture);
    let boxes: Vec<[f64; 4]> = picture
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Text(text) if text.text.starts_with(['2', '7']) && text.text.contains('.') => {
                let width = font::Face::of(text.weight).width(&text.text, text.size);
                Some([text.x, text.y - 5.0, text.x + width, text.y])
            }
            _ => None,
        })
        .collect();
    assert_eq!(boxes.len(), 4);
    for (place, one) in boxes.iter().enumerate() {
        for other in &boxes[place + 1..] {
            let is_apart = one[2] <= other[0]
                || other[2] <= one[0]
                || one[3] <= other[1]
                || other[3] <= one[1];
            assert!(is_apart, "{one:?} and {other:?}");
        }
    }
}

fn heat() -> Heat {
    Heat {
        caption: lines().caption,
        x_label: "K C".to_owned(),
        y_label: "backend".to_owned(),
        columns: vec!["12".to_owned(), "24".to_owned(), "48".to_owned()],
        panels: vec![Panel {
            title: String::new(),
            rows: vec!["fused".to_owned()],
            cells: vec![vec![
                HeatCell::Value(0.5),
                HeatCell::Failed("oom"),
                HeatCell::Blank,
            ]],
        }],
        colour_label: "time ratio".to_owned(),
        is_ratio: true,
    }
}

#[test]
fn cells_show_values_and_failures() {
    let picture = Chart::Heat(heat()).draw();
    let texts = texts(&picture);
    let label = "time ratio; a corner marks less than 1";
    for text in ["0.50", "oom", "fused", "12", "K C", label] {
        assert!(texts.contains(&text), "{text} is not in {texts:?}");
    }
    is_readable(&picture);
}

fn forest() -> Forest {
    let estimate = |value: f64, style| Estimate {
        value,
        low: value * 0.98,
        high: value * 1.02,
        style,
    };
    let row = |label: &str, value: f64| ForestRow {
        label: label.to_owned(),
        estimate: Some(estimate(value, 2)),
        beside: Some(estimate(1.0, 0)),
        said: format!("{value:.2}"),
    };
    let same = ForestRow {
        estimate: None,
        said: "same".to_owned(),
        ..row("128x512x512", 1.0)
    };
    Forest {
        caption: lines().caption,
        x_label: "speedup".to_owned(),
        groups: vec![
            ForestGroup {
                title: "Linear_Bias".to_owned(),
                rows: vec![same],
            },
            ForestGroup {
                title: "Linear_Bias_GELU".to_owned(),
                rows: vec![row("128x512x512", 1.62), row("1024x2048x2048", 0.91)],
            },
        ],
        rules: vec![(1.5, false), (1.0, true)],
        legend: vec![(2, "strong".to_owned())],
        beside: Some("control".to_owned()),
    }
}

/// As many tuned values, or the path of a source, make them.
#[test]
fn no_name_is_too_long_for_any_chart() {
    let name = "block_size_x=16,".repeat(20);
    let mut charts = Vec::new();
    let mut long = lines();
    long.x.label.clone_from(&name);
    long.y.label.clone_from(&name);
    long.series
        .iter_mut()
        .for_each(|one| one.label.clone_from(&name));
    charts.push(Chart::Lines(long));
    let mut long = heat();
    long.panels[0].title.clone_from(&name);
    long.panels[0].rows[0].clone_from(&name);
    for text in [&mut long.x_label, &mut long.y_label, &mut long.columns[2]] {
        text.clone_from(&name);
    }
    charts.push(Chart::Heat(long));
    let mut long = forest();
    for group in &mut long.groups {
        group.title.clone_from(&name);
        for row in &mut group.rows {
            row.label.clone_from(&name);
            row.said.clone_from(&name);
        }
    }
    long.legend[0].1.clone_from(&name);
    long.x_label.clone_from(&name);
    long.beside = Some(name);
    charts.push(Chart::Forest(long));
    for chart in charts {
        is_readable(&chart.draw());
    }
}

#[test]
fn ratios_stand_below_each_other_with_what_they_are() {
    let picture = Chart::Forest(forest()).draw();
    let found = texts(&picture);
    for text in [
        "Linear_Bias",
        "Linear_Bias_GELU",
        "1024x2048x2048",
        "same",
        "1.62",
        "0.91",
        "speedup",
        "strong",
        "control",
    ] {
        assert!(found.contains(&text), "{text} is not in {found:?}");
    }
    is_readable(&picture);
    // No row's text overlaps another row's.
    let at = |text: &str| {
        let mut items = picture.items.iter();
        items.find_map(|item| match item {
            Item::Text(held) if held.text == text => Some(held.y),
            _ => None,
        })
    };
    let [same, title, first, second] = ["same", "Linear_Bias_GELU", "1.62", "0.91"].map(at);
    for pair in [(same, title), (title, first), (first, second)] {
        assert!(pair.0.unwrap() + 7.0 <= pair.1.unwrap(), "{pair:?}");
    }
}

#[test]
fn an_interval_that_reaches_far_does_not_squeeze_the_others() {
    let marks = |high: f64| {
        let mut far = forest();
        let estimate = far.groups[1].rows[0].estimate.as_mut().unwrap();
        (estimate.low, estimate.high) = (1.62 / high, 1.62 * high);
        let picture = Chart::Forest(far).draw();
        is_readable(&picture);
        // The line for one, the only one of its width.
        picture
            .items
            .iter()
            .find_map(|item| match item {
                Item::Path(path, ink) if ink.stroke.is_some_and(|(_, width)| width == 0.8) => {
                    Some(path.clone())
                }
                _ => None,
            })
            .unwrap()
    };
    assert_eq!(marks(3.0), marks(30.0));
}

#[test]
fn every_format_takes_a_picture() {
    let charts = [
        Chart::Lines(lines()),
        Chart::Heat(heat()),
        Chart::Forest(forest()),
    ];
    for chart in charts {
        let picture = chart.draw();
        let svg = String::from_utf8(encode(&picture, PlotFormat::Svg).unwrap()).unwrap();
        assert!(svg.contains("medians of 5 samples &lt;&amp;&gt;"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let png = encode(&picture, PlotFormat::Png).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        // 3.4 inches at 300 dots.
        assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 1020);
        let pdf = encode(&picture, PlotFormat::Pdf).unwrap();
        assert!(pdf.starts_with(b"%PDF-"));
        let held = |needle: &[u8]| pdf.windows(needle.len()).any(|part| part == needle);
        assert!(held(b"OpenSans-Regular") && held(b"FontFile2") && held(b"ToUnicode"));
    }
}
