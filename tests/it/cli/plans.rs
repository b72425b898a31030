//! `plan`, `why` and `check`: a sweep as it would be measured, and the reasons.

use std::fs;

use super::{err, out, root, sweeper, with_outs};
use crate::place::{Place, text};

#[test]
fn plans_are_the_same_bytes_every_time() {
    let plan = |flag: &str| out(&sweeper(root(), &["plan", "manifests/quick.toml", flag]));
    for flag in ["--json", "--dot", "--list"] {
        assert_eq!(plan(flag), plan(flag));
        assert!(plan(flag).len() > 100, "{flag}");
    }
}

#[test]
fn of_flags_that_undo_each_other_the_last_holds() {
    let backends = |flags: [&str; 2]| {
        let args = ["plan", "manifests/quick.toml", "--list", flags[0], flags[1]];
        let text = out(&sweeper(root(), &args));
        ["fused", "fused_checkpointing"].map(|name| text.contains(&format!(" {name} ")))
    };
    let (with, without) = ("--use-compile", "--no-use-compile");
    assert_eq!(backends([with, without]), [false, true]);
    assert_eq!(backends([without, with]), [true, false]);
}

/// A name is for the cases whose workload has it, a case with none is left out, and a name that
/// nobody has is told of once.
#[test]
fn backends_of_several_workloads_are_chosen_together() {
    let place = Place::new(
        "schema = 1\n[grid]\nT = 16\nK = 2\nC = 3\n[case.crf]\nworkload = \"semicrf\"\n\
         [case.other]\nworkload = \"semicrf\"\n[case.copy]\nworkload = \"copy\"\n\
         grid = { elements = 64 }\n[device]\nuse = \"cpu\"\n",
    );
    let args = ["plan", "m.toml", "--list", "--backends"];
    let listed = |backends| text(&place.sweeper(&[&args[..], &[backends]].concat()));
    let both = listed("fused,builtin");
    assert!(
        both.contains(" fused ") && both.contains(" builtin "),
        "{both}"
    );
    assert!(!both.contains(" compiled "), "{both}");
    let some = listed("f*d,*reference");
    assert!(
        some.contains(" fused ") && some.contains(" fused_reference "),
        "{some}"
    );
    assert!(!some.contains(" copy "), "{some}");
    let none = text(&place.sweeper(&["check", "m.toml", "--case=copy", "--backends=fused"]));
    assert!(none.contains("no case that is run has any"), "{none}");
    let none = listed("fussed");
    assert!(
        none.contains("`fused`?") && none.ends_with("\n1 error\n\n"),
        "{none}"
    );
}

#[test]
fn a_flag_that_is_given_again_adds_to_its_list() {
    let listed = |flags: &[&str]| {
        let args = [&["plan", "manifests/quick.toml", "--list"], flags].concat();
        out(&sweeper(root(), &args))
    };
    let again = listed(&["--T", "128", "--T", "256"]);
    assert_eq!(again, listed(&["--T", "128,256"]));
    assert_ne!(again, listed(&["--T", "256"]));
}

/// The semi-CRF guide's grid needs at most 8 kernels for each backend, phase, semiring and form,
/// and drops nothing, on either target; the published sampling keeps 11 configurations of it.
#[test]
fn the_paper_needs_few_kernels_and_drops_nothing() {
    for target in [["--device", "cpu"], ["--arch", "sm_90a"]] {
        let args = [&["plan", "manifests/paper.toml", "--json"][..], &target].concat();
        let text = out(&sweeper(root(), &args));
        let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        let points = plan["points"].as_array().unwrap();
        assert_eq!(points.len(), 96 * 3 * 4 * 3 * 2);
        assert_eq!(plan["sampled_out"], 0);
        let mut kernels: std::collections::BTreeMap<String, std::collections::BTreeSet<u64>> =
            std::collections::BTreeMap::new();
        for point in points {
            let label = point["label"].as_str().unwrap();
            // Functions of the host.
            let is_refused = target[0] == "--arch" && label.contains(" fused_reference ");
            assert_eq!(!point["refusal"].is_null(), is_refused, "{point}");
            let is_size =
                |word: &&str| ["T=", "K=", "C="].iter().any(|size| word.starts_with(size));
            let variant: Vec<&str> = label.split(' ').filter(|word| !is_size(word)).collect();
            let used = point["kernels"]
                .as_array()
                .unwrap()
                .iter()
                .map(|kernel| kernel.as_u64().unwrap());
            kernels.entry(variant.join(" ")).or_default().extend(used);
        }
        assert_eq!(kernels.len(), 3 * 4 * 3 * 2);
        // Backward takes the forward kernel as its prologue.
        assert!(
            kernels.values().all(|kernels| kernels.len() <= 8),
            "{target:?}: {kernels:?}"
        );
    }
    let published = [
        "plan",
        "manifests/paper.toml",
        "--json",
        "--set",
        "plan.canonical=published",
        "--max-canonical-shapes",
        "8",
        "--samples-per-shape",
        "2",
    ];
    let plan: serde_json::Value = serde_json::from_str(&out(&sweeper(root(), &published))).unwrap();
    assert_eq!(plan["points"].as_array().unwrap().len(), 11 * 3 * 4 * 3 * 2);
}

#[test]
fn the_program_of_a_point_is_explained() {
    let words = "T=1024 K=16 C=12 fused forward";
    let text = out(&sweeper(
        root(),
        &[
            "plan",
            "manifests/paper.toml",
            "--explain",
            &format!("{words} semiring=log potentials=decomposed"),
        ],
    ));
    assert!(
        text.contains("cum_scores") && text.contains("launches"),
        "{text}"
    );
    let vague = sweeper(
        root(),
        &["plan", "manifests/paper.toml", "--explain", words],
    );
    assert_eq!(vague.status.code(), Some(2));
    assert!(err(&vague).contains("among them"), "{}", err(&vague));
}

/// A small plan in all its forms, as people and programs read it.
#[test]
fn plans_have_the_promised_form() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "schema = 1\nname = \"small\"\nabout = \"What does a plan look like?\"\nseed = 7\n\
                    [grid]\nT = [4, 70]\nK = [3, 5]\nC = 2\n[case.semicrf]\nworkload = \"semicrf\"\n\
                    backends = [\"streaming\", \"fused\"]\nphases = [\"forward\", \"both\"]\n\
                    [[exclude]]\nwhen = \"K > T\"\nreason = \"no segment is longer\"\n\
                    [device]\nuse = \"null\"\n[null]\ntime_ns = \"1000\"\n";
    fs::write(folder.path().join("m.toml"), manifest).unwrap();
    for (form, flag) in [("json", "--json"), ("dot", "--dot"), ("list", "--list")] {
        let output = sweeper(folder.path(), &["plan", "m.toml", flag]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let plan = out(&output);
        let expected = root().join(format!("tests/golden/plan.{form}"));
        crate::support::golden(&expected, &plan).unwrap();
    }
}

#[test]
fn why_tells_apart_what_is_out_and_by_which_rule() {
    let folder = with_outs();
    let why = |words: &[&str]| {
        let mut args = vec!["why", "m.toml"];
        args.extend(words);
        let output = sweeper(folder.path(), &args);
        (output.status.code(), out(&output) + &err(&output))
    };
    for (words, expected) in [
        (
            "T=8 K=4 triton",
            "skipped by `exclude` `T == 8 and K == 4` (m.toml:14): too short",
        ),
        (
            "T=32 K=2 linear_scan_streaming",
            "skipped by `exclude` `T == 32 and backend != 'fused'` (m.toml:17)",
        ),
        (
            "T=32 K=4 fused",
            "skipped by `exclude` `T == 32 and K == 4` (m.toml:19)",
        ),
        (
            "T=16 K=2 Log fused",
            "to be measured: no run in results has it",
        ),
    ] {
        let (code, said) = why(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(expected), "{words}: {said}");
    }
    let (code, said) = why(&["T=64", "fused"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("`T` is 8, 16, 32"), "{said}");
    let (code, said) = why(&["T=32"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("4 combinations of the grid: 1 of 4 are in"),
        "{said}"
    );
    let (_, said) = why(&["T=16", "fused", "--set", "limits.max_points=1"]);
    assert!(said.contains("beyond the first 1 points"), "{said}");
    // Both ends of the grid, with all their backends and phases.
    for (words, expected) in [
        ("T=8 K=2 Log fused", "to be measured"),
        (
            "T=16 K=2 Log fused",
            "among those of `limits.sample_configs` (--sample-configs)",
        ),
        ("T=32 K=2 Log fused", "to be measured"),
    ] {
        let one = ["--sample-configs", "2"];
        let (_, said) = why(&[&words.split(' ').collect::<Vec<_>>()[..], &one].concat());
        assert!(said.contains(expected), "{words}: {said}");
    }
    for (k, expected) in [
        (
            "K=2",
            "of the 3 configurations of the published shape T=64 K=2 C=6",
        ),
        (
            "K=4",
            "its published shape T=64 K=4 C=3 is not among those taken",
        ),
    ] {
        let one = ["--compile-friendly", "--max-canonical-shapes", "1"];
        let (code, said) = why(&[&["T=16", k, "fused"][..], &one].concat());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(expected), "{k}: {said}");
    }
}

#[test]
fn why_names_keys_that_changed_with_both_values() {
    let folder = with_outs();
    let run = sweeper(folder.path(), &["run", "m.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    assert!(
        err(&run).contains(", 5 skipped by the manifest"),
        "{}",
        err(&run)
    );
    let why = ["why", "m.toml", "T=16 K=2 fused", "--repeats", "7"];
    let said = out(&sweeper(folder.path(), &why));
    assert!(said.contains("measure.repeats: 5 -> 7"), "{said}");
    assert!(!said.contains("manifest:"), "{said}");
    let json = [&why[..], &["--json"]].concat();
    let json: serde_json::Value =
        serde_json::from_str(&out(&sweeper(folder.path(), &json))).unwrap();
    let change = &json["in"][0]["measured"]["changes"][0];
    assert_eq!(change["key"], "measure.repeats");
    assert_eq!(
        (change["from"].as_str(), change["to"].as_str()),
        (Some("5"), Some("7"))
    );
    let again = out(&sweeper(
        folder.path(),
        &["why", "m.toml", "T=16 K=2 fused"],
    ));
    assert!(again.contains("has it as ok"), "{again}");
}

#[test]
fn check_counts_the_whole_order_of_meaning() {
    let args = ["check", "manifests/memory.toml", "--compile-friendly"];
    let text = out(&sweeper(root(), &args));
    assert!(text.starts_with("semicrf: 33 points\n"), "{text}");
    let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    let named = |name: &str| steps.iter().any(|line| line.trim().starts_with(name));
    for step in ["derive", "merge", "canonical shapes", "sampling", "budget"] {
        assert!(named(step), "{step}: {text}");
    }
    assert!(
        text.contains("11 of 96 configurations, from 8 of 84 published shapes"),
        "{text}"
    );
    assert!(
        text.contains("shape T=512 K=24 C=8       T=512 K=20 C=9"),
        "{text}"
    );
    let plan = out(&sweeper(
        root(),
        &[
            "plan",
            "manifests/memory.toml",
            "--compile-friendly",
            "--device",
            "cpu",
        ],
    ));
    assert!(plan.contains("from 8 of 84 published shapes"), "{plan}");
    let json = out(&sweeper(root(), &[&args[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["published_shapes"].as_array().unwrap().len(), 84);
    assert_eq!(json["cases"][0]["points"], 33);
    let cut = out(&sweeper(
        root(),
        &[&args[..], &["--set", "limits.max_points=20"]].concat(),
    ));
    assert!(cut.starts_with("semicrf: 20 points\n"), "{cut}");
}

#[test]
fn plans_are_made_for_gpus_that_are_not_here() {
    let plan = ["plan", "manifests/quick.toml", "--arch", "sm_80"];
    let output = sweeper(root(), &plan);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("8 on cuda (sm_80)"),
        "{}",
        out(&output)
    );
    let explained = out(&sweeper(
        root(),
        &[&plan[..], &["--explain", "T=256 K=8 triton"]].concat(),
    ));
    assert!(explained.contains("launch"), "{explained}");
    let why = [
        "why",
        "manifests/quick.toml",
        "--arch",
        "sm_80",
        "T=256 K=8 triton C=6",
    ];
    let said = out(&sweeper(root(), &why));
    assert!(said.contains("kernel scan.cu"), "{said}");
    let wrong = sweeper(
        root(),
        &["plan", "manifests/quick.toml", "--arch", "hopper"],
    );
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn single_cases_are_chosen_from_outside() {
    let check = |args: &[&str]| {
        let args = [&["check", "manifests/operations.toml"], args].concat();
        sweeper(root(), &args)
    };
    let cases = |args: &[&str]| {
        let text = out(&check(args));
        let lines = text.lines().filter(|line| line.ends_with(" points"));
        lines
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(cases(&["--case", "gelu"]), ["gelu"]);
    assert_eq!(
        cases(&["--operations", "LayerNorm,CrossEntropy"]),
        ["layernorm", "cross_entropy"]
    );
    assert_eq!(cases(&["--set", "cases=swish"]), ["swish"]);
    assert_eq!(cases(&[]).len(), 5);
    let unknown = check(&["--case", "gelo"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(
        err(&unknown).contains("did you mean `gelu`"),
        "{}",
        err(&unknown)
    );
}

/// The time of a plan, as it is shown, for a workload with this reference.
fn predicted(reference: &str) -> String {
    let text = format!(
        "schema = 1\n[workload.twice]\nparams = {{ n = {{ int = [1, 100000000] }} }}\n\
         inputs.x = {{ dtype = \"f32\", shape = [\"n\"] }}\n\
         outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}\n\
         check = {{ reference = {reference} }}\n\
         [backend.twice]\nworkload = \"twice\"\nc = \"twice.c\"\nentry = \"twice\"\n\
         args = [\"y\", \"x\", {{ i32 = \"n\" }}]\n\
         [case.twice]\nworkload = \"twice\"\ngrid = {{ n = [10, 20] }}\n"
    );
    let place = Place::new(&text);
    fs::write(
        place.path("twice.c"),
        "void twice(float *y, const float *x, int n) {}",
    )
    .unwrap();
    fs::write(place.path("right.py"), "def right(x):\n    return 2 * x\n").unwrap();
    let planned = out(&place.sweeper(&["plan", "m.toml", "--device=cpu"]));
    let line = planned.lines().find(|line| line.starts_with("time "));
    line.unwrap_or_else(|| panic!("{planned}")).to_owned()
}

#[test]
fn a_plan_counts_time_for_right_outputs_where_somebody_is_asked() {
    let nobody = predicted("\"none\"");
    assert!(nobody.contains("about 24.0 ms"), "{nobody}");
    assert_eq!(predicted("{ expr = \"2 * x\" }"), nobody);
    // A second for a call in an interpreter, not all that `limits.oracle_s` allows.
    let function = predicted("{ python = \"right.py\", entry = \"right\", args = [\"x\"] }");
    assert!(function.contains("about 2.02 s"), "{function}");
}
