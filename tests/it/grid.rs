//! Grids: the points of a manifest, and their order.

use proptest::prelude::*;
use sweeper::grid::Grid;
use sweeper::plan::canonical::Canonical;
use sweeper::status::Status;
use sweeper_program::Value;

use crate::support::{manifest, semicrf};

/// `name` of every point, as text.
fn values(grid: &Grid<'_>, name: &str) -> Vec<String> {
    let text = |point: &_| {
        grid.value(*point, name)
            .map_or("-".to_owned(), |value| value.to_string())
    };
    grid.points().iter().map(text).collect()
}

fn labels(text: &str) -> Vec<String> {
    let manifest = manifest(text);
    let grid = Grid::new(&manifest);
    grid.points()
        .iter()
        .map(|point| grid.label(*point))
        .collect()
}

#[test]
fn the_last_axis_is_fastest_and_variants_of_a_problem_stand_together() {
    let text = semicrf("T = [8, 4]\nK = [1, 2]\nC = 3", "")
        .replace("[\"fused\"]", "[\"streaming\", \"fused\"]");
    let expected = [
        "semicrf T=8 K=1 C=3 streaming forward",
        "semicrf T=8 K=1 C=3 fused forward",
        "semicrf T=8 K=2 C=3 streaming forward",
        "semicrf T=8 K=2 C=3 fused forward",
        "semicrf T=4 K=1 C=3 streaming forward",
        "semicrf T=4 K=1 C=3 fused forward",
        "semicrf T=4 K=2 C=3 streaming forward",
        "semicrf T=4 K=2 C=3 fused forward",
    ];
    assert_eq!(labels(&text), expected);
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let numbers: Vec<usize> = (0..8).map(|index| grid.problem_number(index)).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn every_form_of_an_axis_has_its_values() {
    for (form, expected) in [
        ("7", "7"),
        ("[3, 1, 2]", "3 1 2"),
        ("{ values = [3, 1] }", "3 1"),
        ("{ values = 5 }", "5"),
        ("{ pow2 = [64, 512] }", "64 128 256 512"),
        ("{ pow2 = [4, 4] }", "4"),
        ("{ range = [1, 5] }", "1 2 3 4"),
        (
            "{ range = [0, 5], step = 2, when = \"true\", else = 1 }",
            "0 2 4",
        ),
        ("{ range = [5, 0], step = -2 }", "5 3 1"),
    ] {
        let text = format!(
            "schema = 1\n[grid]\nK = 1\nC = 1\n[case.a]\nworkload = \"semicrf\"\n\
             backends = [\"fused\"]\nphases = [\"forward\"]\n[case.a.grid]\nB = {form}\n\
             [case.a.derive]\nT = \"B + 1\"\n"
        );
        let text = text.replace("else = 1", "else = 2");
        let values = if form.contains("range = [0, 5]") {
            // 0 is not a batch size: the axis is a new one, from which the batch size is derived.
            let text = text.replace("\nB = {", "\nb = {").replace("B + 1", "b + 1");
            let manifest = manifest(&text);
            values(&Grid::new(&manifest), "b")
        } else {
            let manifest = manifest(&text);
            values(&Grid::new(&manifest), "B")
        };
        assert_eq!(values.join(" "), expected, "{form}");
    }
}

#[test]
fn float_forms_have_exact_ends() {
    for (form, expected) in [
        (
            "{ linspace = [0.0, 1.0], num = 5 }",
            "0.0 0.25 0.5 0.75 1.0",
        ),
        ("{ logspace = [1e-5, 1e-1], num = 3 }", "1e-5 0.001 0.1"),
        ("{ range = [0.0, 0.3], step = 0.1 }", "0.0 0.1 0.2"),
        ("[0, 0.5, 1]", "0.0 0.5 1.0"),
        ("1", "1.0"),
    ] {
        let text = format!(
            "schema = 1\n[grid]\nrows = 8\ndim = 8\neps = {form}\n[case.n]\nworkload = \"layernorm\"\n\
             backends = [\"eager\"]\nphases = [\"forward\"]\n"
        );
        let manifest = manifest(&text);
        assert_eq!(
            values(&Grid::new(&manifest), "eps").join(" "),
            expected,
            "{form}"
        );
    }
}

#[test]
fn tied_axes_walk_together() {
    let text = semicrf(
        "semiring = [\"log\", \"max\"]",
        "[[zip]]\naxes = { T = [8, 16, 32], B = [4, 2, 1] }\n\
         [[zip]]\naxes = { K = [1, 2], C = [3, 6] }\n",
    );
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    assert_eq!(grid.points().len(), 2 * 3 * 2);
    for point in grid.points() {
        let value = |name| grid.value(*point, name).unwrap().to_string();
        assert!(
            ["8 4", "16 2", "32 1"].contains(&format!("{} {}", value("T"), value("B")).as_str())
        );
        assert!(["1 3", "2 6"].contains(&format!("{} {}", value("K"), value("C")).as_str()));
    }
}

#[test]
fn a_zip_of_a_case_takes_the_place_of_a_shared_one() {
    let pairs = |own: &str| {
        let text = format!(
            "schema = 1\n[grid]\nC = 3\nB = [1, 2]\n\
             [[zip]]\naxes = {{ T = [8, 16, 32], K = [2, 4, 8] }}\n\
             [case.crf]\nworkload = \"semicrf\"\nbackends = [\"fused\"]\nphases = [\"forward\"]\n{own}\n"
        );
        let manifest = manifest(&text);
        let grid = Grid::new(&manifest);
        let label =
            |point| ["T", "K", "B"].map(|name| grid.value(point, name).unwrap().to_string());
        let points = grid.points().iter();
        points
            .map(|point| label(*point).join(" "))
            .collect::<Vec<_>>()
    };
    let both = |rows: &[&str]| {
        let both = ["1", "2"].iter();
        both.flat_map(|b| rows.iter().map(move |row| format!("{row} {b}")))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs(""), both(&["8 2", "16 4", "32 8"]));
    // Values of a tied axis may repeat.
    assert_eq!(
        pairs("[[case.crf.zip]]\naxes = { T = [9, 9], K = [3, 5] }"),
        both(&["9 3", "9 5"])
    );
    // Of shared axes, too.
    assert_eq!(
        pairs("[[case.crf.zip]]\naxes = { T = [9, 17], K = [3, 5], B = [4, 6] }"),
        ["9 3 4", "17 5 6"]
    );
}

#[test]
fn a_conditional_axis_exists_where_its_condition_holds() {
    let text = semicrf(
        "T = [8, 16]\nK = 2\nC = 3\nB = { values = [1, 2, 3], when = \"T > 8 and backend == 'fused'\" }\n\
         semiring = { values = [\"max\", \"entropy\"], when = \"B == 3\", else = \"log\" }",
        "",
    )
    .replace("[\"fused\"]", "[\"streaming\", \"fused\"]");
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let lines = labels(&text);
    let expected = [
        "semicrf T=8 K=2 C=3 streaming forward",
        "semicrf T=8 K=2 C=3 fused forward",
        "semicrf T=16 K=2 C=3 streaming forward",
        "semicrf T=16 K=2 C=3 B=1 fused forward",
        "semicrf T=16 K=2 C=3 B=2 fused forward",
        "semicrf T=16 K=2 C=3 B=3 semiring=max fused forward",
        "semicrf T=16 K=2 C=3 B=3 semiring=entropy fused forward",
    ];
    assert_eq!(lines, expected);
    let parameters = grid.parameters(grid.points()[0]);
    assert_eq!(parameters.get("B"), Some(&Value::Int(4)));
    assert_eq!(parameters.get("semiring"), Some(&Value::from("log")));
    assert_eq!(grid.counts()[0].existing, 7);
    assert_eq!(grid.counts()[0].combinations, 2 * 3 * 2 * 2);
}

#[test]
fn rules_are_applied_in_the_order_of_meaning() {
    let text = semicrf(
        "T = [8, 16, 32]\nK = [2, 4]\nC = 3",
        "[derive]\nKC = \"K * C\"\n\
         [[exclude]]\nwhen = \"T < KC\"\n\
         [[exclude]]\nwhen = \"T == 32\"\nreason = \"thirty-two\"\n\
         [[exclude]]\nwhen = \"T == 32 and K == 4\"\nreason = \"second\"\n\
         [[include]]\npoint = { T = 32, K = 4, C = 3 }\n\
         [[include]]\npoint = { T = 1000, K = 5, C = 7 }\n",
    );
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let lines = labels(&text);
    let expected = [
        "semicrf T=8 K=2 C=3 fused forward",
        "semicrf T=16 K=2 C=3 fused forward",
        "semicrf T=16 K=4 C=3 fused forward",
        "semicrf T=32 K=4 C=3 fused forward",
        "semicrf T=1000 K=5 C=7 fused forward",
    ];
    assert_eq!(lines, expected);
    let skips: Vec<(String, &str)> = grid
        .skips()
        .iter()
        .map(|skip| (grid.label(skip.point), &*skip.reason))
        .collect();
    let expected = [
        (
            "semicrf T=8 K=4 C=3 fused forward".to_owned(),
            "excluded: T < KC",
        ),
        (
            "semicrf T=32 K=2 C=3 fused forward".to_owned(),
            "thirty-two",
        ),
    ];
    assert_eq!(skips, expected);
    let counts = &grid.counts()[0];
    assert_eq!(counts.points(), grid.points().len() as u64);
    let left: Vec<u64> = counts.steps().iter().map(|(_, left)| *left).collect();
    assert_eq!(left, [6, 6, 6, 3, 5, 5]);
    assert_eq!(grid.derived(grid.points()[4])[0].1, Value::Int(35));
}

#[test]
fn an_extra_point_can_be_for_some_variants() {
    let text = semicrf(
        "T = 8\nK = 2\nC = 3",
        "[[include]]\npoint = { T = 16 }\nbackends = [\"triton\"]\nphases = [\"both\"]\n",
    )
    .replace("[\"fused\"]", "[\"streaming\", \"fused\"]");
    assert_eq!(labels(&text)[2..], ["semicrf T=16 K=2 C=3 fused both"]);
}

#[test]
fn a_derived_value_can_be_a_parameter() {
    let text = semicrf(
        "T = [8, 16]\nC = 3",
        "[derive]\nK = \"T // 4\"\nsemiring = \"'Max'\"\n",
    );
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let parameters = grid.parameters(grid.points()[1]);
    assert_eq!(parameters.get("K"), Some(&Value::Int(4)));
    assert_eq!(parameters.get("semiring"), Some(&Value::from("max")));
}

#[test]
fn cases_take_axes_of_their_workload_and_rules_that_name_them() {
    let text = "schema = 1\n[grid]\nT = [8, 16]\nK = 2\nC = 3\nrows = [1, 2, 3]\ndim = 4\n\
                scale = [1, 2]\n\
                [[exclude]]\ncases = [\"semicrf\"]\nwhen = \"T > 8\"\n\
                [[exclude]]\ncases = [\"norm\"]\nwhen = \"area > 20\"\n\
                [case.norm]\nworkload = \"layernorm\"\nneeds = [\"crf\"]\nbackends = [\"eager\"]\n\
                phases = [\"forward\"]\nderive = { area = \"rows * dim * scale\" }\n\
                [case.crf]\nworkload = \"semicrf\"\nbackends = [\"fused\"]\nphases = [\"forward\"]\n";
    let manifest = manifest(text);
    let names: Vec<&str> = manifest.cases.iter().map(|case| &*case.name).collect();
    assert_eq!(names, ["crf", "norm"]);
    assert_eq!(manifest.cases[1].needs, [0]);
    let grid = Grid::new(&manifest);
    let lines = labels(text);
    // `scale` is not a parameter: points that differ in it alone are equal.
    let expected = [
        "crf T=8 K=2 C=3 fused forward",
        "norm rows=1 dim=4 scale=1 eager forward",
        "norm rows=2 dim=4 scale=1 eager forward",
        "norm rows=3 dim=4 scale=1 eager forward",
    ];
    assert_eq!(lines, expected);
    assert_eq!(grid.counts()[1].merged, 2);
    assert_eq!(grid.skips().len(), 2);
}

#[test]
fn the_scripted_device_answers() {
    let text = semicrf(
        "T = [8, 16, 32]\nK = 2\nC = 3",
        "[device]\nuse = \"null\"\n[null]\ntime_ns = \"10.5 * T\"\nmemory_bytes = \"T * 4\"\nnoise = 0.5\n\
         outcomes = [{ when = \"T == 16\", status = \"timeout\" }, { when = \"T > 8\", status = \"oom\" }]\n",
    );
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let answers: Vec<_> = grid
        .points()
        .iter()
        .map(|point| grid.null_answer(*point).unwrap().unwrap())
        .collect();
    let statuses: Vec<Status> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::Timeout, Status::Oom]);
    assert_eq!(answers[1].time_ns, 168.0);
    assert_eq!(answers[1].memory_bytes, Some(64.0));
    assert_eq!(answers[1].noise, 0.5);
}

#[test]
fn canonical_shapes_come_from_the_manifest_or_the_workload() {
    let shapes = |more: &str| {
        let text = semicrf("T = [100, 3000]\nK = [4, 9]\nC = 3", more);
        let manifest = manifest(&text);
        let grid = Grid::new(&manifest);
        let canonical = Canonical::of(&grid);
        let all: Vec<String> = canonical.shapes().iter().map(ToString::to_string).collect();
        (all.join(", "), canonical.waste().to_vec())
    };
    let (all, waste) =
        shapes("[derive]\nKC = \"K * C\"\n[plan]\nbuckets = { T = [128, 2048], KC = [12, 24] }");
    let expected = "KC<=12 T<=128, KC<=32 T<=128, KC<=12 T<=4096, KC<=32 T<=4096";
    assert_eq!(all, expected);
    assert_eq!(&*waste[0].name, "KC");
    assert!((waste[0].max - 5.0 / 32.0).abs() < 1e-12);
    assert!((waste[0].mean - 2.5 / 32.0).abs() < 1e-12);
    let (all, _) = shapes("");
    let expected = "C<=4 K<=8 T<=128, C<=4 K<=16 T<=128, C<=4 K<=8 T<=4096, C<=4 K<=16 T<=4096";
    assert_eq!(all, expected);
}

#[test]
fn a_hundred_thousand_points_are_expanded_hashed_and_bucketed() {
    // The worst case: every point is a problem of its own.
    let text = semicrf(
        "T = { range = [1, 101] }\nK = { range = [1, 101] }\nC = { range = [1, 11] }",
        "[derive]\nKC = \"K * C\"\n[[exclude]]\nwhen = \"K > T and C > 100\"\n\
         [plan]\nbuckets = { T = [16, 32, 64], KC = [12, 24, 48, 96, 192, 384, 768] }\n",
    );
    let manifest = manifest(&text);
    let grid = Grid::new(&manifest);
    let canonical = Canonical::of(&grid);
    assert_eq!(grid.points().len(), 100_000);
    assert_eq!(grid.problems().len(), 100_000);
    assert!(canonical.shapes().len() <= 4 * 8);
}

fn axis_values() -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::btree_set(1i64..60, 1..5).prop_map(|set| set.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn points_are_the_product_less_what_is_excluded(
        t in axis_values(), k in axis_values(), c in axis_values(), bound in 1i64..120,
    ) {
        let text = semicrf(
            &format!("T = {t:?}\nK = {k:?}\nC = {c:?}"),
            &format!("[[exclude]]\nwhen = \"T + K > {bound} and C < 30\"\n[[include]]\n\
                      point = {{ T = 61, K = 1, C = 1 }}\n"),
        );
        let mut expected = Vec::new();
        let mut skipped = 0;
        for t in &t {
            for k in &k {
                for c in &c {
                    if t + k > bound && *c < 30 {
                        skipped += 1;
                    } else {
                        expected.push(format!("semicrf T={t} K={k} C={c} fused forward"));
                    }
                }
            }
        }
        // Where nothing is left but the extra point, the manifest is still a sweep.
        expected.push("semicrf T=61 K=1 C=1 fused forward".to_owned());
        let manifest = manifest(&text);
        let grid = Grid::new(&manifest);
        let lines: Vec<String> = grid.points().iter().map(|point| grid.label(*point)).collect();
        prop_assert_eq!(lines, expected);
        prop_assert_eq!(grid.skips().len(), skipped);
        prop_assert_eq!(grid.counts()[0].combinations, (t.len() * k.len() * c.len()) as u64);
    }

    #[test]
    fn a_zip_is_the_diagonal_of_the_product(pairs in proptest::collection::btree_map(1i64..60, 1i64..60, 1..6)) {
        let t: Vec<i64> = pairs.keys().copied().collect();
        let k: Vec<i64> = pairs.values().copied().collect();
        let zip = semicrf("C = [3, 4]", &format!("[[zip]]\naxes = {{ T = {t:?}, K = {k:?} }}\n"));
        let (zip, rows) = (manifest(&zip), t.len());
        let grid = Grid::new(&zip);
        prop_assert_eq!(grid.points().len(), 2 * rows);
        for point in grid.points() {
            let value = |name| match grid.value(*point, name) {
                Some(Value::Int(value)) => value,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(pairs.get(&value("T")), Some(&value("K")));
        }
    }

    #[test]
    fn canonical_shapes_dominate_and_do_not_depend_on_other_points(
        t in axis_values(), k in axis_values(), c in axis_values(),
    ) {
        let plan = "[derive]\nKC = \"K * C\"\n[plan]\nbuckets = { T = [16, 32], KC = [12, 24, 288] }\n";
        let all = manifest(&semicrf(&format!("T = {t:?}\nK = {k:?}\nC = {c:?}"), plan));
        let grid = Grid::new(&all);
        let canonical = Canonical::of(&grid);
        let last = grid.points().len() - 1;
        for (index, point) in grid.points().iter().enumerate() {
            for (name, bound) in canonical.shape(index).iter() {
                let value = grid.value(*point, name).unwrap().to_string();
                prop_assert!(bound >= value.parse().unwrap());
            }
        }
        let (t, k, c) = (t.last().unwrap(), k.last().unwrap(), c.last().unwrap());
        let alone = manifest(&semicrf(&format!("T = {t}\nK = {k}\nC = {c}"), plan));
        let alone = Grid::new(&alone);
        let of_alone = Canonical::of(&alone);
        prop_assert_eq!(of_alone.shape(0), canonical.shape(last));
        prop_assert_eq!(alone.problem_id(0), grid.problem_id(last));
    }
}
