//! The page's tables on fusing and compiling.

use super::{MANIFEST, Shown, assert_content};
use crate::browser::Browser;

/// Fused in half the time on the null device, and its control.
const PATTERNS: &str = "schema = 1\nname = \"patterns\"\nabout = \"What does fusing gain?\"\n\
    [grid]\nm = [64, 128]\nk = 32\nn = 16\npattern = [\"bias\", \"bias_relu\"]\n\
    [case.linear]\nworkload = \"linear\"\nbackends = [\"eager\", \"compiled\", \"control\"]\n\
    [device]\nuse = \"null\"\n[measure]\nrepeats = 10\n[report]\nbaseline = \"eager\"\n\
    [null]\ntime_ns = \"1000 * m\"\nnoise = 0.001\n";

#[test]
fn fusing_and_comparing_are_tables_of_the_page() {
    let Some(mut browser) = Browser::start(1280, 1400) else {
        return;
    };
    let shown = Shown::new(PATTERNS);
    browser.open(&shown.html, "");
    let names =
        "[...document.querySelectorAll('.verdicts')].map((held) => held.dataset.table).join(' ')";
    assert_eq!(browser.text(names), "fusion comparison comparison");
    let line = |row: usize| {
        format!("document.querySelectorAll('[data-table=fusion] tbody tr')[{row}].textContent")
    };
    assert!(browser.text(&line(0)).starts_with("Linear_Bias64x32x16"));
    // A program is no faster than itself, with or without fusing; noise is a thousandth.
    let badges = "document.querySelectorAll('[data-table=fusion] td .badge').length";
    assert_eq!(browser.text(badges), "4");
    // A parameter that is called like a column has a column, too.
    let axes = shown.column("axis_n");
    assert!(axes.iter().all(|value| value == "16"), "{axes:?}");
    browser.picture("verdicts");
    assert_content(&mut browser);
}

#[test]
fn a_run_without_verdicts_has_no_place_for_them() {
    let Some(mut browser) = Browser::start(1280, 1000) else {
        return;
    };
    let shown = Shown::new(MANIFEST);
    browser.open(&shown.html, "");
    for place in ["#verdicts", "[data-jump=verdicts]"] {
        let hidden = format!("getComputedStyle(document.querySelector('{place}')).display");
        assert_eq!(browser.text(&hidden), "none");
    }
    assert_content(&mut browser);
}
