//! References that are backends or files, and checks that wrong outputs would pass.

use std::collections::BTreeMap;
use std::fs;

use sweeper::tensor_file::to_file;
use sweeper_program::{Data, Tensor, Tensors};

use super::rows;
use crate::place::{Place, code, text};

const SOURCE: &str = "\
#include <stdlib.h>
void right(float *y, const float *x, int n) { for (int i = 0; i < n; i++) y[i] = 2 * x[i]; }
void added(float *y, const float *x, int n) { for (int i = 0; i < n; i++) y[i] = x[i] + x[i]; }
void wrong(float *y, const float *x, int n) { for (int i = 0; i < n; i++) y[i] = 2.01f * x[i]; }
void off(float *y, const float *x, int n) { for (int i = 0; i < n; i++) y[i] = 2.00005f * x[i]; }
void zeros(float *y, const float *x, int n) { for (int i = 0; i < n; i++) y[i] = 0; }
void untouched(float *y, const float *x, int n) {}
void dies(float *y, const float *x, int n) { abort(); }
void past(float *y, const float *x, int n) { for (int i = 0; i <= n; i++) y[i] = 2.0f * (i + 1); }
void overwrites(float *y, float *x, int n) { for (int i = 0; i < n; i++) y[i] = x[i] = 1; }
";

/// A backend in C of the workload `double`.
fn backend(name: &str, file: &str) -> String {
    format!(
        "[backend.{name}]\nworkload = \"double\"\nc = \"{file}\"\nentry = \"{name}\"\n\
         args = [\"y\", \"x\", {{ i32 = \"n\" }}]\n"
    )
}

/// A manifest in which `measured` double an input, with this check.
fn place(check: &str, measured: &[&str], more: &str) -> Place {
    let mut manifest = format!(
        "schema = 1\n[workload.double]\nparams = {{ n = {{ int = [1, 1000000] }} }}\n\
         inputs.x = {{ dtype = \"f32\", shape = [\"n\"], fill = {{ arange = [1, 1] }} }}\n\
         outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}\ncheck = {{ {check} }}\n{more}\n\
         [case.double]\nworkload = \"double\"\nbackends = {measured:?}\ngrid = {{ n = [5, 100] }}\n\
         [device]\nuse = \"cpu\"\n[measure]\nrepeats = 3\n"
    );
    for name in measured {
        manifest += &backend(name, "kernels.c");
    }
    let place = Place::new(&manifest);
    fs::write(place.path("kernels.c"), SOURCE).unwrap();
    fs::write(place.path("peer.c"), SOURCE).unwrap();
    place
}

/// Status, check and reason of each backend's row for five elements.
fn judged(place: &Place) -> BTreeMap<String, (String, String, String)> {
    let rows = rows(place).into_iter().filter(|row| row["axis_n"] == "5");
    let judged = rows.map(|row| {
        let of = |column: &str| row[column].clone();
        (of("backend"), (of("status"), of("checked"), of("reason")))
    });
    judged.collect()
}

fn run(place: &Place) -> String {
    text(&place.sweeper(&["run", "m.toml"]))
}

const PEER: &str = "reference = { backend = \"right\" }, tolerance = 1e-6";

#[test]
fn a_backend_judges_others_and_is_unchecked_itself() {
    let folder = place(PEER, &["right", "added", "wrong", "zeros", "untouched"], "");
    run(&folder);
    let rows = judged(&folder);
    let of = |name: &str| {
        let (status, checked, reason) = &rows[name];
        (&**status, &**checked, &**reason)
    };
    assert_eq!(of("right"), ("ok", "none", ""));
    assert_eq!(of("added"), ("ok", "peer", ""));
    for (name, error) in [
        ("wrong", "5.000e-3"),
        ("zeros", "1.000e0"),
        ("untouched", "inf"),
    ] {
        let (status, checked, reason) = of(name);
        assert_eq!((status, checked), ("wrong", "peer"), "{name}");
        let said = format!("`y` is off by {error}");
        assert!(reason.contains(&said), "{name}: {reason}");
    }
    let shown = text(&folder.sweeper(&["workloads", "double", "-m", "m.toml"]));
    assert!(shown.contains("reference  the backend `right`"), "{shown}");
    assert!(
        shown.contains("tolerance  relative L2 norm 1e-6 (y)"),
        "{shown}"
    );
}

#[test]
fn a_text_in_f64_judges_others_and_itself() {
    let check = "reference = { backend = \"right\", dtype = \"f64\" }";
    let names = ["right", "added", "off", "wrong", "zeros", "untouched"];
    let folder = place(check, &names, "");
    run(&folder);
    let rows = judged(&folder);
    for (name, status) in names
        .iter()
        .zip(["ok", "ok", "wrong", "wrong", "wrong", "wrong"])
    {
        let (found, checked, reason) = &rows[*name];
        assert_eq!((&**found, &**checked), (status, "peer"), "{name}: {reason}");
    }
    let shown = text(&folder.sweeper(&["workloads", "double", "-m", "m.toml"]));
    assert!(shown.contains("the backend `right in f64`"), "{shown}");
    // No other type is wider.
    let unknown = place(&check.replace("\"f64\"", "\"f16\""), &["right"], "");
    let refused = unknown.sweeper(&["check", "m.toml"]);
    assert!(
        text(&refused).contains("not one of: f64"),
        "{}",
        text(&refused)
    );
}

#[test]
fn tensors_that_contradict_each_other_are_an_error_and_not_skipped() {
    let expr = "reference = { expr = \"x + short\" }";
    for (more, reason) in [
        (
            "inputs.short = { dtype = \"f32\", shape = [\"n - 1\"] }",
            "`check.reference`: `short` of [4] does not broadcast to `y` of [5]",
        ),
        (
            "inputs.z = { dtype = \"f64\", shape = [\"n\"] }\n\
             outputs.w = { dtype = \"f32\", shape = [\"n\"], init = \"z\" }",
            "`outputs.w.init`: `z` is f64 [5], and the output f32 [5]",
        ),
        (
            "inputs.z = { dtype = \"f32\", shape = [1] }\n\
             outputs.w = { dtype = \"f32\", shape = [\"n\"], init = \"z\" }",
            "`outputs.w.init`: `z` is f32 [1], and the output f32 [5]",
        ),
    ] {
        let several = "reference = { expr = { y = \"x\", w = \"x\" } }";
        let check = if more.contains("outputs.w") {
            several
        } else {
            expr
        };
        let folder = place(check, &["right"], more);
        let ran = folder.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&ran), 4, "{}", text(&ran));
        let (status, _, why) = &judged(&folder)["right"];
        assert_eq!(status, "error", "{why}");
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn a_reference_need_not_read_all_inputs() {
    let more = "inputs.other = { dtype = \"f32\", shape = [\"n - 1\"] }";
    let folder = place("reference = { expr = \"2 * x\" }", &["right"], more);
    run(&folder);
    let (status, checked, why) = &judged(&folder)["right"];
    assert_eq!((&**status, &**checked), ("ok", "full"), "{why}");
}

#[test]
fn without_a_reference_rows_say_that_they_are_unchecked() {
    let folder = place("reference = \"none\"", &["right", "wrong"], "");
    run(&folder);
    for (backend, (status, checked, reason)) in judged(&folder) {
        assert_eq!((&*status, &*checked), ("ok", "none"), "{backend}: {reason}");
    }
}

#[test]
fn an_edited_peer_that_is_not_measured_measures_all_again() {
    let folder = place(PEER, &["added", "wrong"], &backend("right", "peer.c"));
    let said = run(&folder);
    assert!(said.contains("2 ok") && said.contains("2 wrong"), "{said}");
    assert!(run(&folder).contains("nothing to do"));
    let first = folder.run_folder();
    let kept = folder.path("results");
    // Another right answer.
    let edited = SOURCE.replace("2 * x[i]", "2.01f * x[i]");
    fs::write(folder.path("peer.c"), edited).unwrap();
    let said = run(&folder);
    assert!(
        said.contains("backend.right.digests.peer.c changed since run")
            && said.contains("4 of 4 points are to be measured, 0 are taken"),
        "{said}"
    );
    fs::remove_dir_all(&first).unwrap();
    let rows = judged(&folder);
    assert_eq!(rows["added"].0, "wrong");
    assert_eq!((&*rows["wrong"].0, &*rows["wrong"].1), ("ok", "peer"));
    // A run has the peer's source, too.
    for file in ["m.toml", "kernels.c", "peer.c"] {
        fs::remove_file(folder.path(file)).unwrap();
    }
    assert!(kept.is_dir());
    let again = folder.run_folder();
    let again = text(&folder.sweeper(&["rerun", again.to_str().unwrap()]));
    assert!(again.contains("2 bit-identical, 0 differ"), "{again}");
}

#[test]
fn a_peer_that_fails_gives_each_row_its_reason() {
    let cuda = "[backend.right]\nworkload = \"double\"\ncuda = \"kernels.c\"\nentry = \"right\"\n\
                args = [\"y\", \"x\", { i32 = \"n\" }]\ngrid = \"1\"\nblock = \"1\"\n";
    let named = "`workload.double.check.reference`, backend `";
    for (peer, declared, status, reason) in [
        (
            "right",
            cuda,
            "unavailable",
            "right`: a CUDA kernel needs a GPU",
        ),
        ("gone", &*backend("gone", "peer.c"), "compile_error", "gone"),
        (
            "overwrites",
            &*backend("overwrites", "peer.c"),
            "error",
            "it overwrote the input `x`",
        ),
        (
            "past",
            &*backend("past", "peer.c"),
            "error",
            "it wrote 4 bytes past the end of `y`",
        ),
        ("dies", &*backend("dies", "peer.c"), "crashed", "signal 6"),
    ] {
        let check = format!("reference = {{ backend = \"{peer}\" }}, tolerance = 1e-6");
        let folder = place(&check, &["added", "wrong"], declared);
        run(&folder);
        let rows = judged(&folder);
        assert_eq!(rows.len(), 2);
        for (backend, (was, checked, why)) in rows {
            assert_eq!(was, status, "{peer} {backend}: {why}");
            assert!(checked.is_empty(), "{peer} {backend}: {checked}");
            assert!(why.contains(reason), "{peer} {backend}: {why}");
            assert!(why.starts_with(named), "{peer} {backend}: {why}");
        }
    }
}

/// A file with the right outputs of n elements.
fn write_doubles(place: &Place, name: &str, elements: impl IntoIterator<Item = f64>) {
    let elements: Vec<f64> = elements.into_iter().collect();
    let tensor = Tensor::f64([elements.len()], elements);
    write(place, name, "y", tensor);
}

fn write(place: &Place, name: &str, tensor: &str, held: Tensor) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let tensors: Tensors = [(tensor.to_owned(), held)].into();
    fs::write(path, to_file(&tensors).unwrap()).unwrap();
}

fn doubles(n: i32) -> impl Iterator<Item = f64> {
    (1..=n).map(|value| 2.0 * f64::from(value))
}

const FILES: &str = "reference = { file = \"right/n={n}/y.safetensors\" }, tolerance = 1e-6";

#[test]
fn files_by_parameters_have_the_right_outputs_and_are_part_of_the_problem() {
    let folder = place(FILES, &["right", "wrong", "zeros"], "");
    for n in [5, 100] {
        write_doubles(&folder, &format!("right/n={n}/y.safetensors"), doubles(n));
    }
    let said = run(&folder);
    assert!(said.contains("2 ok") && said.contains("4 wrong"), "{said}");
    let rows = judged(&folder);
    assert_eq!((&*rows["right"].0, &*rows["right"].1), ("ok", "full"));
    assert!(rows["zeros"].2.contains("`y` is off by 1.000e0"));
    assert!(run(&folder).contains("nothing to do"));
    let first = folder.run_folder();
    let rerun = || text(&folder.sweeper(&["rerun", first.to_str().unwrap()]));
    let again = rerun();
    assert!(again.contains("2 bit-identical, 0 differ"), "{again}");
    write_doubles(&folder, "right/n=5/y.safetensors", [1.0; 5]);
    let refused = rerun();
    assert!(
        refused.contains("`n=5/y.safetensors` is not what it was for this run"),
        "{refused}"
    );
    run(&folder);
    fs::remove_dir_all(&first).unwrap();
    assert!(judged(&folder)["right"].2.contains("`y` is off by"));
}

#[test]
fn files_that_do_not_fit_a_problem_are_errors_of_the_plan() {
    let folder = place(FILES, &["right"], "");
    fs::create_dir_all(folder.path("right/n=5")).unwrap();
    let of = |write: &dyn Fn(&str)| {
        write("right/n=5/y.safetensors");
        let planned = text(&folder.sweeper(&["plan", "m.toml", "--device", "cpu"]));
        assert!(planned.contains("2 refused"), "{planned}");
        let said = run(&folder);
        assert!(said.contains("2 error"), "{said}");
        let rows = judged(&folder);
        fs::remove_dir_all(folder.path("results")).unwrap();
        assert!(planned.contains(&rows["right"].2), "{planned}");
        rows["right"].2.clone()
    };
    let reason = of(&|name| write_doubles(&folder, name, [1.0; 4]));
    assert_eq!(
        reason,
        "`check.reference`: n=5/y.safetensors: `y` has shape [4], the output has [5]"
    );
    let reason = of(&|name| write(&folder, name, "z", Tensor::f64([5], vec![1.0; 5])));
    assert!(reason.ends_with("has no tensor `y`, only `z`"), "{reason}");
    let whole = Tensor::new([5], Data::I32(vec![1; 5]));
    let reason = of(&|name| write(&folder, name, "y", whole.clone()));
    assert!(
        reason.ends_with("`y` is i32, the output is f32"),
        "{reason}"
    );
    let reason = of(&|name| fs::write(folder.path(name), "12345678{}").unwrap());
    assert!(reason.contains("not a file of safetensors"), "{reason}");
    let missing = run(&folder);
    assert!(missing.contains("2 error"), "{missing}");
    let rows = rows(&folder);
    let hundred = rows.iter().find(|row| row["axis_n"] == "100").unwrap();
    assert!(
        hundred["reason"].ends_with("right/n=100/y.safetensors"),
        "{hundred:?}"
    );
}

#[test]
fn a_check_that_zeros_or_unwritten_memory_would_pass_is_refused() {
    let only = "outputs that nothing was written to would pass";
    let zero = "reference = { expr = \"0 * x\" }, tolerance = 1e-6";
    for (check, output, reason) in [
        (zero, "", ""),
        (
            zero,
            ", init = 0",
            ": all outputs begin with the right values, by `init`",
        ),
        ("reference = { expr = \"2 * x\" }, tolerance = 0.9", "", ""),
    ] {
        let folder = place(check, &["right", "zeros"], "");
        let text = fs::read_to_string(folder.path("m.toml")).unwrap();
        let declared = "outputs.y = { dtype = \"f32\", shape = [\"n\"]";
        let text = text.replace(declared, &format!("{declared}{output}"));
        fs::write(folder.path("m.toml"), text).unwrap();
        run(&folder);
        for (backend, (status, _, why)) in judged(&folder) {
            if reason.is_empty() {
                let is_right = (check == zero) == (backend == "zeros");
                let wanted = if is_right { "ok" } else { "wrong" };
                assert_eq!(status, wanted, "{check} {backend}: {why}");
            } else {
                assert_eq!(status, "error", "{check} {backend}: {why}");
                assert!(why.starts_with("`workload.double.check."), "{why}");
                assert!(why.contains(reason), "{check} {backend}: {why}");
            }
        }
    }
    // Bits that are all set are -1.
    let mostly = "reference = { expr = \"where(x > 1, -1, -2)\" }, tolerance = 0.5";
    let folder = place(mostly, &["right"], "");
    let text = fs::read_to_string(folder.path("m.toml")).unwrap();
    fs::write(
        folder.path("m.toml"),
        text.replace(
            "outputs.y = { dtype = \"f32\"",
            "outputs.y = { dtype = \"i32\"",
        ),
    )
    .unwrap();
    run(&folder);
    let (status, _, why) = &judged(&folder)["right"];
    assert_eq!(status, "error", "{why}");
    assert!(
        why.contains(only) && why.contains("its tolerance is 5.0e-1"),
        "{why}"
    );
}

#[test]
fn where_nothing_is_left_of_a_right_value_rows_say_so() {
    let check = "reference = { expr = \"(x + 1e12) - 1e12 + 0 * x\" }";
    let folder = place(check, &["right", "zeros"], "");
    run(&folder);
    for backend in ["right", "zeros"] {
        assert_eq!(judged(&folder)[backend].0, "ok");
        let flags = cell(&folder, backend, "flags");
        assert!(flags.contains("below_rounding"), "{flags}");
    }
}

/// A row's column for five elements of a backend.
fn cell(place: &Place, backend: &str, column: &str) -> String {
    let mut rows = rows(place).into_iter();
    let row = rows.find(|row| row["backend"] == backend && row["axis_n"] == "5");
    row.unwrap()[column].clone()
}

#[test]
fn a_backend_may_say_how_much_less_exact_it_is() {
    // In f32 digits of each x are lost: `wrong` is off by less than ten tolerances.
    let check = "reference = { expr = \"(x * 2 / 3 + 1e4 - 1e4) * 3\" }";
    let inexact = "[backend.less_exact]\nlike = \"wrong\"\ntolerance_factor = 20\n";
    let folder = place(check, &["right", "wrong"], inexact);
    let manifest = fs::read_to_string(folder.path("m.toml")).unwrap();
    let all = manifest.replace(
        "[\"right\", \"wrong\"]",
        "[\"right\", \"wrong\", \"less_exact\"]",
    );
    fs::write(folder.path("m.toml"), &all).unwrap();
    run(&folder);
    let status = |backend: &str| judged(&folder)[backend].0.clone();
    assert_eq!(status("right"), "ok");
    assert_eq!(status("wrong"), "wrong");
    assert_eq!(status("less_exact"), "ok");
    let tolerance = |backend: &str| {
        let tolerance = cell(&folder, backend, "worst_tolerance");
        tolerance.parse::<f64>().unwrap()
    };
    assert_eq!(tolerance("less_exact"), 20.0 * tolerance("wrong"));
    assert_eq!(
        cell(&folder, "less_exact", "worst_error"),
        cell(&folder, "wrong", "worst_error")
    );
    let shown = text(&folder.sweeper(&["workloads", "double", "-m", "m.toml"]));
    assert!(shown.contains("; tolerances times 20"), "{shown}");
    // Another factor is another backend, and the others' points are taken.
    let first = folder.run_folder();
    let edited = all.replace("tolerance_factor = 20", "tolerance_factor = 1.5");
    fs::write(folder.path("m.toml"), edited).unwrap();
    let said = run(&folder);
    assert!(
        said.contains("backend.less_exact.tolerance_factor changed since run")
            && said.contains("2 of 6 points are to be measured, 4 are taken"),
        "{said}"
    );
    fs::remove_dir_all(&first).unwrap();
    let (status, _, reason) = &judged(&folder)["less_exact"];
    assert_eq!(status, "wrong");
    assert!(reason.contains("`y` is off by 5.0"), "{reason}");
}

#[test]
fn a_factor_that_zeros_would_pass_costs_its_backend_alone() {
    let check = "reference = { expr = \"(x * 2 / 3 + 1e5 - 1e5) * 3\" }";
    let zeros = "[backend.any]\nlike = \"zeros\"\ntolerance_factor = 1000\n";
    let folder = place(
        check,
        &["right"],
        &(zeros.to_owned() + &backend("zeros", "kernels.c")),
    );
    let manifest = fs::read_to_string(folder.path("m.toml")).unwrap();
    let all = manifest.replace("[\"right\"]", "[\"right\", \"any\"]");
    fs::write(folder.path("m.toml"), all).unwrap();
    run(&folder);
    let rows = judged(&folder);
    assert_eq!(rows["right"].0, "ok");
    let (status, _, reason) = &rows["any"];
    assert_eq!(status, "error");
    let said = "`backend.any.tolerance_factor`: zeros would pass for `y`: they are off by 1.0e0, ";
    assert!(reason.starts_with(said), "{reason}");
}
