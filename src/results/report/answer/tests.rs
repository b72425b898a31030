//! Sentences and tables of made-up questions.

use super::*;

/// A question about sizes `n`, each with the times of backends in milliseconds, known to 2 %.
fn block(lines: &[(u32, &[(&str, f64)])]) -> Block {
    let mut backends: Vec<String> = Vec::new();
    for (name, _) in lines.iter().flat_map(|(_, times)| times.iter()) {
        if !backends.iter().any(|held| held == name) {
            backends.push((*name).to_owned());
        }
    }
    let line = |(n, times): &(u32, &[(&str, f64)])| {
        let outcome = |ms: f64| Outcome {
            status: Status::Ok,
            time: Some(LogInterval::new(ms * 1e6, Some((0.98e6 * ms, 1.02e6 * ms)))),
            checked: Checked::Full,
        };
        let cells = times
            .iter()
            .map(|(name, ms)| ((*name).to_owned(), outcome(*ms)));
        Line {
            sizes: vec![n.to_string()],
            leading: Some(f64::from(*n)),
            cells: cells.collect(),
        }
    };
    let mut block = Block {
        title: "sums, forward".to_owned(),
        sizes: vec!["n".to_owned()],
        backends,
        lines: lines.iter().map(line).collect(),
    };
    block.keep_telling();
    block
}

fn said(lines: &[(u32, &[(&str, f64)])]) -> String {
    sentence::verdict(&block(lines)).unwrap_or_default()
}

#[test]
fn a_sentence_says_what_intervals_decide() {
    let one: &[(u32, &[(&str, f64)])] = &[(8, &[("plain", 3.0), ("fused", 1.0)])];
    assert_eq!(said(one), "`fused` is 3.00 times as fast as `plain`.");
    let all: &[(u32, &[(&str, f64)])] = &[
        (8, &[("plain", 3.0), ("fused", 1.0)]),
        (16, &[("plain", 8.0), ("fused", 2.0)]),
        (32, &[("plain", 20.0), ("fused", 6.0)]),
    ];
    let expected = "`fused` is 3.00 to 4.00 times as fast as `plain` at all 3 sizes.";
    assert_eq!(said(all), expected);
    // The baseline may be the faster one.
    let behind: &[(u32, &[(&str, f64)])] = &[(8, &[("plain", 1.0), ("fused", 3.0)])];
    assert_eq!(said(behind), "`plain` is 3.00 times as fast as `fused`.");
    let mixed: &[(u32, &[(&str, f64)])] = &[
        (8, &[("plain", 1.0), ("fused", 2.0)]),
        (16, &[("plain", 2.0), ("fused", 2.01)]),
        (32, &[("plain", 9.0), ("fused", 3.0)]),
        (64, &[("plain", 30.0), ("fused", 5.0)]),
    ];
    let expected = "`fused` is 1.73 times as fast as `plain` in the geometric mean: faster at 2 of 4 \
                    sizes, slower at 1, undecided at 1; at each size from n = 32 on.";
    assert_eq!(said(mixed), expected);
    let falling: &[(u32, &[(&str, f64)])] = &[
        (8, &[("plain", 9.0), ("fused", 1.0)]),
        (16, &[("plain", 2.0), ("fused", 2.2)]),
        (32, &[("plain", 9.0), ("fused", 9.9)]),
    ];
    let ending = "slower at 2; `plain` is faster at each size from n = 16 on.";
    assert!(said(falling).ends_with(ending), "{}", said(falling));
    let alike: &[(u32, &[(&str, f64)])] = &[
        (8, &[("plain", 1.0), ("fused", 1.01)]),
        (16, &[("plain", 2.02), ("fused", 2.0)]),
    ];
    assert!(said(alike).contains("can't be told apart at any of 2 sizes"));
    assert_eq!(said(&[(8, &[("alone", 1.0)])]), "");
}

#[test]
fn a_table_fits_its_width_and_keeps_sizes_that_tell() {
    let names = [
        "baseline_of_all",
        "second_backend",
        "third_backend",
        "fourth",
        "fifth",
    ];
    let times: Vec<Vec<(&str, f64)>> = (0..60)
        .map(|n| {
            let of = |(at, name): (usize, &&'static str)| {
                let is_best = at == if n < 40 { 1 } else { 3 };
                (*name, if is_best { 1.0 } else { 2.0 + at as f64 })
            };
            names.iter().enumerate().map(of).collect()
        })
        .collect();
    let lines: Vec<(u32, &[(&str, f64)])> = times
        .iter()
        .enumerate()
        .map(|(n, times)| (n as u32, &times[..]))
        .collect();
    let block = block(&lines);
    assert_eq!(block.backends.len(), MOST_BACKENDS);
    assert_eq!(block.backends[0], names[0]);
    assert!(
        ["second_backend", "fourth"]
            .iter()
            .all(|name| block.backends.iter().any(|it| it == name))
    );
    let answer = Answer {
        blocks: vec![block],
        tuned: Vec::new(),
        checks: Some("300 of 300 results checked in full.".to_owned()),
    };
    for width in [60, 80, 120] {
        let text = text(&answer, width, str::to_owned);
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width), "{width}: {text}");
        // The first, the last, and both sides of the change.
        for n in ["0", "39", "40", "59"] {
            let has = |line: &str| line.split_whitespace().next() == Some(n);
            assert!(text.lines().any(has), "{n}: {text}");
        }
        assert!(text.lines().count() < 40 && text.contains("more"), "{text}");
    }
}
