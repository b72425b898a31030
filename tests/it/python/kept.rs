//! Answers that stay in the interpreter of references, and outputs that are compared there.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sweeper::device::foreign::python::reference::{KeptAnswer, Slot};
use sweeper::device::foreign::python::{Place, Python};
use sweeper::device::outputs::Outputs;
use sweeper::identity::CacheState;
use sweeper_program::check::{TensorCheck, as_f64};
use sweeper_program::inputs::InputKey;
use sweeper_program::spread::{self, ErrorSums};
use sweeper_program::{Foreign, Runner, Tensor, Tensors};

use crate::support::{has_package, python};

const SHAPE: [usize; 3] = [6, 40, 50];

/// The last element overflows.
const SOURCE: &str = "\
import torch
def scaled(x):
    out = torch.softmax(x, 2)
    out[-1, -1, -1] = 1e300
    return out
";

fn function() -> Foreign {
    let request = json!({
        "exe": python(), "arrays": "torch", "judged": "f32", "with_spread": true,
        "what": "the reference", "path": [], "entry": "scaled", "mutates": [],
        "source": { "files": [{ "path": "it.py", "text": SOURCE, "module": "it" }], "load": "all" },
        "args": [{ "tensor": "x" }], "kwargs": [], "returns": ["y"],
        "outputs": [{ "name": "y", "dtype": "f64", "shape": SHAPE, "passed": false }],
    });
    Foreign {
        runner: Runner::Python,
        name: "the reference".to_owned(),
        is_deterministic: true,
        is_untrusted: false,
        request: request.to_string(),
    }
}

/// The published answer of a problem.
fn published(problem: &str) -> KeptAnswer {
    KeptAnswer {
        problem: problem.to_owned(),
        slot: Slot::Published,
    }
}

/// How an output is judged by sums from where the answer is.
fn by_kept(python: &mut Python, out: Vec<f32>, expected: &Tensors) -> TensorCheck {
    let outputs = Outputs::Host([("y".to_owned(), Tensor::f32(SHAPE, out))].into());
    let found = python.compare(&published("it"), &outputs).unwrap();
    let sums = as_f64(&found[&spread::name_of_error_sums("y")]).into_owned();
    let sums = ErrorSums::from_raw(&SHAPE, &sums);
    spread::judge_by_sums("y", &SHAPE, sums, expected)
}

#[test]
fn kept_answers_judge_as_others_do() {
    if !has_package("torch", "torch") {
        return;
    }
    let place = Place::of_cpu(1, CacheState::Hot);
    let mut python = Python::new(place, CacheState::Hot, Duration::from_secs(60), None);
    let x = InputKey([7; 32])
        .stream("x")
        .normal(SHAPE.iter().product(), 1.0);
    let inputs = [("x".to_owned(), Tensor::f32(SHAPE, x))].into();
    let mut at_hand = python.reference(&function(), &inputs, None, true).unwrap();
    let kept = published("it");
    let mut expected = python
        .reference(&function(), &inputs, Some(&kept), true)
        .unwrap();
    assert!(at_hand.contains_key("y") && !expected.contains_key("y"));
    for answers in [&mut at_hand, &mut expected] {
        spread::finish_sums(answers, "y", &SHAPE);
    }

    let right: Vec<f32> = as_f64(&at_hand["y"]).iter().map(|&y| y as f32).collect();
    // What f32 can't hold has no error in sums; where answers are at hand another check sees it.
    let finite = as_f64(&at_hand["y"])
        .iter()
        .map(|&y| if y > 1e38 { 0.0 } else { y })
        .collect();
    at_hand.insert("y".to_owned(), Tensor::f64(SHAPE, finite));
    let changed = |at: usize, by: f32| {
        let mut out = right.clone();
        out[at] *= by;
        out
    };
    for out in [
        right.clone(),
        changed(7, 1.1),
        right.iter().map(|y| y * 1.00001).collect(),
    ] {
        let found = by_kept(&mut python, out.clone(), &expected);
        let finite = out
            .iter()
            .map(|&y| if y.is_finite() { y } else { 0.0 })
            .collect();
        let by_hand = spread::judge("y", Some(&Tensor::f32(SHAPE, finite)), &at_hand);
        assert_eq!(
            (found.metric, found.passed()),
            (by_hand.metric, by_hand.passed())
        );
        assert_eq!(found.passed(), out == right, "{found:?} {by_hand:?}");
        assert!(
            (found.error / by_hand.error - 1.0).abs() < 1e-9,
            "{found:?} {by_hand:?}"
        );
        assert!(
            (found.tolerance / by_hand.tolerance - 1.0).abs() < 1e-9,
            "{found:?} {by_hand:?}"
        );
    }
    for (at, value) in [
        (3, f32::NAN),
        (right.len() - 1, 1.0),
        (right.len() - 1, f32::NEG_INFINITY),
    ] {
        let mut out = right.clone();
        out[at] = value;
        assert!(
            !by_kept(&mut python, out, &expected).passed(),
            "{at}: {value}"
        );
    }

    // The answer of another problem takes its place, and `forget` leaves none.
    let outputs = Outputs::Host([("y".to_owned(), Tensor::f32(SHAPE, right))].into());
    python
        .reference(&function(), &inputs, Some(&published("other")), true)
        .unwrap();
    assert!(python.compare(&kept, &outputs).is_err());
    assert!(python.compare(&published("other"), &outputs).is_ok());
    python.forget().unwrap();
    assert!(python.compare(&published("other"), &outputs).is_err());
}

/// Right values near zero, as of biases before a normalisation, are far from what rounding makes
/// of them. Answers for an audit have no noise of their own to hold that against.
#[test]
fn answers_of_a_gpu_for_an_audit_are_trusted_as_the_published_one_is() {
    if !has_package("torch", "torch") {
        return;
    }
    let ran = Command::new(python())
        .args([
            "tests/it/python/kept_cases.py",
            "src/engine/device/foreign/python/child",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}

/// Kernels of libraries are told from own ones by names that real profiles have.
#[test]
fn kernels_of_libraries_are_known_by_their_names() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let ran = Command::new(python())
        .args([
            "tests/it/python/libraries_cases.py",
            "src/engine/device/foreign/python/child",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}

/// Sums over memory differ where any bit does: of a single element, and of zero and poison, whose
/// bits are each other's complement.
#[test]
fn sums_over_memory_differ_where_any_bit_does() {
    if !has_package("torch", "torch") {
        return;
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/engine/device/foreign/python/child/sums.py"
    );
    let program = format!(
        "import runpy, torch\nof = runpy.run_path({path:?})['of']\n\
         for count in (1, 7, 4096):\n    held = torch.zeros(count, dtype=torch.int32)\n    first = of(held)\n    \
         assert of(held.clone()) == first\n    for place in {{0, count // 2, count - 1}}:\n        \
         for bits in (-1, *(1 << bit for bit in range(31)), -1 << 31):\n            other = held.clone()\n            \
         other[place] = bits\n            found = of(other)\n            \
         assert found[0] != first[0] and found[1] != first[1], (count, place, bits)\n"
    );
    let ran = Command::new(python())
        .args(["-c", &program])
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
