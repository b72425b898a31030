//! What a run says in the end, and manifests that `new` writes for several functions.

use std::fs;

use super::place::{Place, code, text};

/// Two functions of one signature, and one of another.
const PAIR: &str = "\
void twice(int n, const float *restrict x, float *restrict y) {
    for (int i = 0; i < n; i++) y[i] = 2 * x[i];
}
void slowly(int n, const float *restrict x, float *restrict y) {
    for (int i = 0; i < n; i++) y[i] = 0;
    for (int times = 0; times < 20; times++)
        for (int i = 0; i < n; i++) y[i] += 0.1f * x[i];
}
int count(int n) { return n; }
";

#[test]
fn functions_of_one_file_are_compared_and_the_run_says_which_is_faster() {
    let place = Place::new("");
    let nothing = place.sweeper(&["report"]);
    assert_eq!(code(&nothing), 2, "{}", text(&nothing));
    assert!(text(&nothing).contains("no run is known here"));
    fs::write(place.path("pair.c"), PAIR).unwrap();
    let written = place.sweeper(&["new", "pair.c"]);
    assert_eq!(code(&written), 0, "{}", text(&written));
    assert!(
        text(&written).contains("left out, since they take other arguments than `twice`: count")
    );
    let manifest = fs::read_to_string(place.path("pair.toml")).unwrap();
    let manifest = manifest.replace(
        "[1000, 10000, 100000, 1000000, 10000000]",
        "[1000, 20000, 50000]",
    );
    fs::write(
        place.path("pair.toml"),
        manifest + "[device]\nuse = \"cpu\"\n",
    )
    .unwrap();
    let ran = place.sweeper(&["run", "pair.toml", "--repeats", "9"]);
    let said = text(&ran);
    assert_eq!(code(&ran), 0, "{said}");
    for words in [
        "twice, forward",
        "twice_c",
        "slowly_c",
        "`twice_c` is ",
        " times as fast as `slowly_c` at all 3 sizes.",
        "6 of 6 results checked against a text in f64",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let answer: Vec<&str> = said
        .lines()
        .skip_while(|line| *line != "twice, forward")
        .collect();
    let table: Vec<&str> = answer
        .iter()
        .copied()
        .take_while(|line| !line.starts_with('`'))
        .collect();
    let has_row = |n: &str| {
        let mut rows = table
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.any(|cells| cells.first() == Some(&n) && cells.last() == Some(&"peer"))
    };
    assert!(
        ["1000", "20000", "50000"].iter().all(|n| has_row(n)),
        "{said}"
    );
    assert!(
        table.iter().all(|line| line.chars().count() <= 80),
        "{said}"
    );

    let report = place.sweeper(&["report", "--no-plots"]);
    assert_eq!(code(&report), 0, "{}", text(&report));
    assert!(
        text(&report).contains("the last run: "),
        "{}",
        text(&report)
    );

    let again = place.sweeper(&["run", "pair.toml", "--repeats", "9", "--json"]);
    let stdout = String::from_utf8(again.stdout.clone()).unwrap();
    let ended: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let question = &ended["answer"]["questions"][0];
    assert_eq!(question["baseline"], "twice_c", "{ended}");
    let found = &question["sizes"][2];
    assert_eq!(found["sizes"]["n"], "50000", "{ended}");
    let median = |backend: &str| found["backends"][backend]["median_ns"].as_f64().unwrap();
    assert!(median("twice_c") < median("slowly_c"), "{ended}");
}

/// Programs side by side in a line, with values of a name in their commands.
#[test]
fn programs_are_timed_by_a_line_that_writes_its_manifest() {
    let place = Place::new("");
    for name in ["a.txt", "b.txt"] {
        fs::write(place.path(name), "2\n1\n").unwrap();
    }
    let line = [
        "time",
        "--repeats",
        "3",
        "cat {f}",
        "sleep 0.1; cat {f}",
        "--f",
        "a.txt,b.txt",
    ];
    let ran = place.sweeper(&line);
    let said = text(&ran);
    assert_eq!(code(&ran), 0, "{said}");
    for words in [
        "time, forward",
        "a.txt",
        "`cat` is ",
        " times as fast as `sleep` at both sizes.",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let manifest = fs::read_to_string(place.path("time.toml")).unwrap();
    assert!(
        manifest.contains("command  = [\"cat\", \"{f}\"]"),
        "{manifest}"
    );
    assert!(
        manifest.contains("[\"sh\", \"-c\", \"sleep 0.1; cat {f}\"]"),
        "{manifest}"
    );
    // The same line again has nothing to do; another's manifest is not overwritten.
    assert!(text(&place.sweeper(&line)).contains("nothing to do"));
    fs::write(place.path("time.toml"), "schema = 1\n").unwrap();
    assert_eq!(code(&place.sweeper(&line)), 6);
    for (wrong, why) in [
        (&["time", "cat {f}", "--f"][..], "has no values"),
        (&["time", "cat", "--f", "a.txt"][..], "stands in no command"),
    ] {
        let found = place.sweeper(wrong);
        assert_eq!(code(&found), 2, "{}", text(&found));
        assert!(text(&found).contains(why), "{}", text(&found));
    }
}
