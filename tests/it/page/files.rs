//! Pages of files that are not as our program writes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sweeper::report::files::{Options, write_page};
use sweeper::report::source::{Kind, Source};
use sweeper::row::entry::{Entry, Times};
use sweeper::row::outcome::Status;
use sweeper_program::{Phase, Value};

use super::assert_content;
use crate::browser::Browser;

fn write(path: &Path, sources: &[Source]) {
    let folder = path.parent().unwrap();
    let made = write_page(sources, &Options::default(), folder).unwrap();
    fs::rename(made, path).unwrap();
}

/// Text from files stays text, wherever it comes from.
#[test]
fn hostile_text_does_not_run() {
    let Some(mut browser) = Browser::start(1280, 1000) else {
        return;
    };
    let hostile = "</script><script>window.hacked=1</script><img src=x onerror=\"window.hacked=2\">\
        <!--\u{2028}{{script}}' onmouseover='hacked=3'";
    let word = |text: &str| -> Arc<str> { text.into() };
    let entry = |backend: &str, status| {
        let mut entry = Entry::new(word(hostile), word(backend), Phase::Forward, status);
        entry
            .parameters
            .insert(word(hostile), Value::Text(word(hostile)));
        entry
            .parameters
            .insert(word("__proto__"), Value::Text(word(backend)));
        entry.reason = Some(word(&format!("{hostile}\n{hostile}")));
        entry
    };
    let mut fine = entry("fused", Status::Ok);
    fine.times = Some(Times {
        median: 1234.5678,
        ..Times::default()
    });
    let mut other = fine.clone();
    other.backend = word(hostile);
    let mut source = source(vec![fine, other, entry(hostile, Status::CompileError)]);
    source.label = hostile.to_owned();
    source.manifest = Some(format!(
        "# {hostile}\n[report]\nbaseline = '''{hostile}'''\n"
    ));
    source.warnings = vec![hostile.to_owned()];
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("page.html");
    write(&html, &[source]);
    browser.open(&html, "");
    assert_eq!(browser.text("typeof window.hacked"), "undefined");
    assert_eq!(browser.text("document.querySelectorAll('img').length"), "0");
    // The data's description and the script: the packed data is let go once it is read.
    assert_eq!(browser.text("document.scripts.length"), "2");
    assert_eq!(browser.text("document.title"), hostile);
    let log = browser.text("document.querySelector('pre.log').textContent");
    assert_eq!(log, format!("{hostile}\n{hostile}"));
    assert!(
        browser
            .text("document.querySelector('pre.toml').textContent")
            .contains(hostile)
    );
    assert!(
        browser
            .text("document.querySelector('.verdicts tbody').textContent")
            .contains(hostile)
    );
    // A script that came in another way would not run either.
    browser.evaluate(
        "{ const script = document.createElement('script'); script.textContent = 'window.hacked = 4'; \
         document.body.append(script); }",
    );
    assert_eq!(browser.text("typeof window.hacked"), "undefined");
}

fn source(entries: Vec<Entry>) -> Source {
    Source {
        label: "somewhere".to_owned(),
        origin: PathBuf::from("records.csv"),
        kind: Kind::Records,
        schema: Some(1),
        environment: None,
        usage: None,
        manifest: None,
        entries,
        warnings: Vec::new(),
    }
}

/// No rows, one row, failures alone, times without anything else: the page is still sensible.
#[test]
fn poor_files_have_pages_too() {
    let Some(mut browser) = Browser::start(1280, 1000) else {
        return;
    };
    let entry = |status, t: i64| {
        let mut entry = Entry::new("semicrf".into(), "fused".into(), Phase::Forward, status);
        entry.parameters.insert("T".into(), Value::Int(t));
        if status == Status::Ok {
            entry.times = Some(Times {
                median: t as f64,
                ..Times::default()
            });
        }
        entry
    };
    let cases = [
        ("no rows", vec![], "There are no points."),
        (
            "one row",
            vec![entry(Status::Ok, 5)],
            "there is nothing to plot against",
        ),
        (
            "failures alone",
            vec![entry(Status::Oom, 5), entry(Status::Timeout, 6)],
            "No point has a time",
        ),
        (
            "bare times",
            vec![entry(Status::Ok, 5), entry(Status::Ok, 6)],
            "there is no roofline",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, entries, expected) in cases {
        let html = folder.path().join("page.html");
        write(&html, &[source(entries)]);
        browser.open(&html, "");
        let shown = browser.text("document.body.innerText");
        assert!(shown.contains(expected), "{name}: {shown}");
        assert!(!shown.contains("could not be drawn"), "{name}: {shown}");
    }
    assert_content(&mut browser);
}

/// Two machines: their rows are never compared with each other, and the page says what differs.
#[test]
fn several_machines_are_told_apart() {
    let Some(mut browser) = Browser::start(1280, 1000) else {
        return;
    };
    let machine = |label: &str, factor: f64| {
        let entry = |backend: &str, t: i64, median: f64| {
            let mut entry = Entry::new("copy".into(), backend.into(), Phase::Forward, Status::Ok);
            entry.parameters.insert("T".into(), Value::Int(t));
            entry.times = Some(Times {
                median: median * factor,
                ..Times::default()
            });
            entry
        };
        let mut source = source(vec![
            entry("plain", 1, 8.0),
            entry("quick", 1, 2.0),
            entry("plain", 2, 18.0),
            entry("quick", 2, 2.0),
        ]);
        source.label = label.to_owned();
        source
    };
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("page.html");
    write(
        &html,
        &[machine("slow box", 100.0), machine("fast box", 1.0)],
    );
    browser.open(&html, "");
    let table = browser.text(
        "[...document.querySelectorAll('#summary tbody tr')].map((row) => row.textContent).join('; ')",
    );
    // The geometric mean of 4 and 9, on each machine.
    assert_eq!(
        table,
        "slow box21×0 of 26.00×2 of 2; fast box21×0 of 26.00×2 of 2"
    );
    let panels = browser.text(
        "[...document.querySelectorAll('#explore .panel-title')].map((title) => title.textContent)",
    );
    assert_eq!(panels, "machine = slow box,machine = fast box");
    assert_content(&mut browser);
}
