//! Judges that are functions in Python: right, failing, and those that wrong outputs pass.

use std::fs;

use super::{assert_failing, rows};
use crate::place::{Place, code, text};
use crate::support::has_package;

const SOURCE: &str = "\
import os, time
import numpy as np
from limit import LIMIT

def sorted_(inputs, outputs):
    x, y = inputs['x'], outputs['y']
    if np.any(y[1:] < y[:-1]):
        return False, f'element {int(np.argmax(y[1:] < y[:-1]))} is over the next'
    x.sort()
    return np.array_equal(x, y), 'other elements'

def truth(inputs, outputs, expected):
    assert expected['y'].dtype == np.float64
    return np.allclose(outputs['y'], expected['y'])

def distance(inputs, outputs, expected, scale):
    found = np.max(np.abs(outputs['y'] - expected['y'])) / scale
    return found if found < LIMIT else float('nan')

def passes(inputs, outputs):
    return True

def raises(inputs, outputs):
    raise ValueError('no such order')

def slow(inputs, outputs):
    time.sleep(60)

def ends(inputs, outputs):
    os._exit(3)

def text(inputs, outputs):
    return 'right'

def number(inputs, outputs):
    return 0.0

def nothing(inputs, outputs):
    np.sort(outputs['y'])

def array(inputs, outputs):
    return outputs['y'] >= 0
";

const BACKENDS: &str = "\
import numpy as np

def right(x):
    return np.sort(x)

def wrong(x):
    return -np.sort(-x)

def partly(x):
    y = np.sort(x)
    y[0] = y[1]
    return y

def zeros(x):
    return np.zeros_like(x)
";

const NAMES: [&str; 4] = ["right", "wrong", "partly", "zeros"];

/// A manifest with this check for four backends.
fn place(check: &str) -> Place {
    let mut text = format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[limits]
oracle_s = 3
[workload.sort]
params = {{ n = {{ int = [1, 1000000] }} }}
inputs.x = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
check = {{ {check} }}
[case.sort]
workload = \"sort\"
backends = {NAMES:?}
grid = {{ n = [50] }}
[device]
use = \"cpu\"
[measure]
repeats = 3
"
    );
    for name in NAMES {
        text += &format!(
            "[backend.{name}]\nworkload = \"sort\"\npython = \"mine.py\"\nentry = \"{name}\"\n\
             args = [\"x\"]\nreturns = [\"y\"]\n"
        );
    }
    let place = Place::new(&text);
    fs::write(place.path("judge.py"), SOURCE).unwrap();
    fs::write(place.path("limit.py"), "LIMIT = 10\n").unwrap();
    fs::write(place.path("mine.py"), BACKENDS).unwrap();
    place
}

/// Status, check and reason of each backend's only row.
fn judged(place: &Place) -> Vec<[String; 3]> {
    let rows = rows(place);
    let of = |name| &rows[&format!("{name} forward")];
    let rows = NAMES.map(of).into_iter();
    rows.map(|row| ["status", "checked", "reason"].map(|column| row[column].clone()))
        .collect()
}

#[test]
fn a_judge_gets_tensors_by_name_and_says_why_outputs_are_wrong() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let peer = "reference = { backend = \"right\" }, judge = { python = \"judge.py\", entry = ";
    let own = "judge = { python = \"judge.py\", entry = \"sorted_\" }".to_owned();
    let truth = format!("{peer}\"truth\" }}");
    let distance =
        format!("{peer}\"distance\", kwargs = {{ scale = \"n / 50\" }}, bound = 1e-6 }}");
    for (check, checked, wrong, partly) in [
        (
            own,
            "full",
            "refuses the outputs: element 0 is over",
            "refuses the outputs: other",
        ),
        (
            truth,
            "peer",
            "the judge refuses the outputs",
            "the judge refuses the outputs",
        ),
        (
            distance,
            "peer",
            "finds a distance of ",
            "finds a distance of ",
        ),
    ] {
        let folder = place(&check);
        let ran = folder.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&ran), 4, "{}", text(&ran));
        let [right, descending, first, zeros] = judged(&folder).try_into().unwrap();
        let own = if checked == "peer" { "none" } else { checked };
        assert_eq!(right[..2], ["ok", own], "{check}: {right:?}");
        for (row, reason) in [(descending, wrong), (first, partly), (zeros, "the judge ")] {
            assert_eq!(row[..2], ["wrong", checked], "{check}: {row:?}");
            assert!(row[2].contains(reason), "{check}: {row:?}");
        }
    }
}

#[test]
fn a_judge_that_fails_or_says_nothing_is_an_error_and_passes_nothing() {
    if !has_package("numpy", "numpy") {
        return;
    }
    for (entry, more, status, reason) in [
        (
            "raises",
            "",
            "error",
            "judge.py:24: ValueError: no such order",
        ),
        ("ends", "", "error", "code 3"),
        (
            "text",
            "",
            "error",
            "it returns 'right', and not True, False, or one of them",
        ),
        (
            "number",
            "",
            "error",
            "it returns 0.0, and not True or False, as there is no `bound`",
        ),
        ("nothing", "", "error", "it returns None, and not"),
        ("array", "", "error", "it returns array("),
        (
            "passes",
            ", bound = 1",
            "error",
            "it returns True, and not a number",
        ),
        ("passes", "", "error", "zeros would pass"),
        ("absent", "", "unavailable", "judge.py has no `absent`"),
        ("slow", "", "timeout", "(`limits.oracle_s = 3`)"),
    ] {
        let folder = place(&format!(
            "judge = {{ python = \"judge.py\", entry = \"{entry}\"{more} }}"
        ));
        if entry == "slow" {
            // It is called once, and not for each of the outputs that it has to refuse.
            let manifest = fs::read_to_string(folder.path("m.toml")).unwrap();
            let limited = manifest.replace("oracle_s = 3", "oracle_s = 3\npoint_timeout_s = 8");
            fs::write(folder.path("m.toml"), limited).unwrap();
        }
        let reason = ("workload.sort.check.judge", reason);
        assert_failing(&folder, entry, status, reason);
    }
}

#[test]
fn an_edited_module_of_a_judge_is_another_problem_and_a_run_keeps_it() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = place(
        "reference = { backend = \"right\" }, judge = { python = \"judge.py\", entry = \"distance\", \
         kwargs = { scale = \"n\" }, bound = 100 }",
    );
    let ran = folder.sweeper(&["run", "m.toml"]);
    let said = text(&ran);
    // The judge is generous; the trial finds it.
    assert!(said.contains("4 error"), "{said}");
    let manifest = fs::read_to_string(folder.path("m.toml")).unwrap();
    let strict = manifest.replace("bound = 100", "bound = 1e-3");
    fs::write(folder.path("m.toml"), strict).unwrap();
    fs::remove_dir_all(folder.path("results")).unwrap();
    folder.sweeper(&["run", "m.toml"]);
    let run = folder.run_folder();
    let copy = run.join("sources/sort.judge/limit.py");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "LIMIT = 10\n");
    fs::write(folder.path("limit.py"), "LIMIT = 1e-9\n").unwrap();
    let kept = folder.path("first");
    fs::rename(&run, &kept).unwrap();
    let said = text(&folder.sweeper(&["run", "m.toml"]));
    assert!(said.contains("3 wrong"), "{said}");
    assert_ne!(folder.run_folder(), run, "another run");
    fs::remove_dir_all(folder.path("results")).unwrap();
    for name in ["m.toml", "judge.py", "limit.py", "mine.py"] {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let again = text(&folder.sweeper(&["rerun", kept.to_str().unwrap()]));
    assert!(again.contains("1 bit-identical, 0 differ"), "{again}");
    fs::write(kept.join("sources/sort.judge/limit.py"), "LIMIT = 4\n").unwrap();
    let refused = text(&folder.sweeper(&["rerun", kept.to_str().unwrap()]));
    assert!(refused.contains("`limit.py` is not what was"), "{refused}");
}
