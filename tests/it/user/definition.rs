//! Declared problems: inputs, right answers, tolerances.

use super::*;

/// A manifest of one workload, with a backend that is never run.
fn with_workload(workload: &str) -> Manifest {
    let folder = copied();
    let text = format!(
        "schema = 1\n[workload.w]\n{workload}\n[backend.b]\nworkload = \"w\"\nc = \"add.c\"\n\
         entry = \"f\"\nargs = [\"y\"]\n[case.c]\nworkload = \"w\"\ngrid.n = 6\n"
    );
    let path = folder.path("w.toml");
    fs::write(&path, text).unwrap();
    match resolve(&path, &Overrides::new()) {
        Ok(manifest) => manifest,
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

fn inputs(workload: &str) -> Tensors {
    let manifest = with_workload(workload);
    problem(&manifest, &[("n", 6)]).generate(&InputKey([5; 32]))
}

#[test]
fn fills_have_their_values() {
    let inputs = inputs(
        "params.n = { int = [1, 100] }\n\
         inputs.arange = { dtype = \"i32\", shape = [\"n\"], fill = { arange = [3, 2] } }\n\
         inputs.constant = { dtype = \"bf16\", shape = [\"n\"], fill = 1.5 }\n\
         inputs.expr = { dtype = \"f64\", shape = [\"n\"], fill = { expr = \"0.5 * (i % 4) + n\" } }\n\
         inputs.order = { dtype = \"u8\", shape = [\"n\"], fill = \"permutation\" }\n\
         inputs.rows = { dtype = \"f16\", shape = [2, \"n\"], fill = { sorted = { uniform = [0, 1] } } }\n\
         inputs.few = { dtype = \"i64\", shape = [\"n\"], fill = { choice = [7, 9] } }\n\
         inputs.faces = { dtype = \"u32\", shape = [\"100 * n\"], fill = { integers = [1, 6] } }\n\
         outputs.y = { shape = [\"n\"] }\n\
         check.reference = \"none\"",
    );
    let data = |name: &str| inputs[name].data();
    assert_eq!(*data("arange"), Data::I32(vec![3, 5, 7, 9, 11, 13]));
    assert_eq!(*data("expr"), Data::F64(vec![6.0, 6.5, 7.0, 7.5, 6.0, 6.5]));
    let Data::U8(order) = data("order") else {
        panic!("{:?}", data("order"));
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    assert_ne!(*order, sorted);
    let Data::F16(rows) = data("rows") else {
        panic!("{:?}", data("rows"));
    };
    assert!(rows.chunks(6).all(<[_]>::is_sorted));
    let Data::I64(few) = data("few") else {
        panic!("{:?}", data("few"));
    };
    assert!(few.iter().all(|value| [7, 9].contains(value)));
    let Data::U32(faces) = data("faces") else {
        panic!("{:?}", data("faces"));
    };
    let found: std::collections::BTreeSet<u32> = faces.iter().copied().collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

/// An output that is `value` more than the right one everywhere, relative to its size.
fn judged(workload: &str, change: impl Fn(f64) -> f64, dtype: &str) -> bool {
    let manifest = with_workload(&format!(
        "params.n = {{ int = [1, 100] }}\n{workload}\n\
         outputs.y = {{ dtype = \"{dtype}\", shape = [\"n\"] }}"
    ));
    let problem = problem(&manifest, &[("n", 6)]);
    let inputs = problem.generate(&InputKey([5; 32]));
    let expected = problem.oracle(&inputs, Phase::Forward);
    let values = expected["y"].as_f64().unwrap();
    let dtype = Dtype::named(dtype).unwrap();
    let data = sweeper_program::with_element_type!(dtype, T => {
        use sweeper_program::Element;
        Element::data(values.iter().map(|&value| T::from_f64(change(value))).collect())
    });
    let y = sweeper_program::Tensor::new(vec![6], data);
    let outputs: Tensors = [("y".to_owned(), y)].into();
    problem
        .check(&inputs, &outputs, &expected, Phase::Forward)
        .passed()
}

const TANH: &str = "inputs.x = { dtype = \"f32\", shape = [\"n\"] }\n\
     check = { reference = { expr = \"tanh(x) * where(x > 0, 2, 3) + erf(x)\" } }";

#[test]
fn derived_tolerances_pass_roundings_and_nothing_more() {
    for (dtype, unit) in [("f32", 6e-8), ("f16", 5e-4), ("bf16", 4e-3)] {
        assert!(judged(TANH, |value| value, dtype), "{dtype}");
        assert!(judged(TANH, |value| value * (1.0 + unit), dtype), "{dtype}");
        assert!(
            !judged(TANH, |value| value * (1.0 + 30.0 * unit), dtype),
            "{dtype}"
        );
        assert!(!judged(TANH, |_| 0.0, dtype), "{dtype}");
        assert!(!judged(TANH, |_| f64::NAN, dtype), "{dtype}");
    }
}

#[test]
fn whole_numbers_are_judged_exactly() {
    let workload = "inputs.x = { dtype = \"i32\", shape = [\"n\"], fill = { integers = [-9, 9] } }\n\
         check = { reference = { expr = \"x * x + 1\" } }";
    assert!(judged(workload, |value| value, "i32"));
    assert!(!judged(workload, |value| value + 1.0, "i32"));
    let exact = "inputs.x = { dtype = \"f32\", shape = [\"n\"] }\n\
         check = { reference = { expr = \"x + 1\" }, tolerance = \"exact\" }";
    assert!(judged(exact, |value| value, "f32"));
    assert!(!judged(exact, |value| value * (1.0 + 2e-7), "f32"));
}

#[test]
fn references_broadcast_and_values_need_not_be_finite() {
    let manifest = with_workload(
        "params.n = { int = [1, 100] }\n\
         inputs.x = { dtype = \"f32\", shape = [2, \"n\"], fill = { arange = [0, 1] } }\n\
         inputs.row = { dtype = \"f32\", shape = [\"n\"], fill = { arange = [0, 1] } }\n\
         inputs.column = { dtype = \"f32\", shape = [2, 1], fill = { arange = [0, 100] } }\n\
         inputs.one = { dtype = \"f32\", shape = [], fill = 1000 }\n\
         outputs.y = { dtype = \"f32\", shape = [2, \"n\"] }\n\
         check = { reference = { expr = \"x / row + column + one\" } }",
    );
    let problem = problem(&manifest, &[("n", 3)]);
    let inputs = problem.generate(&InputKey([5; 32]));
    let expected = problem.oracle(&inputs, Phase::Forward);
    let y = expected["y"].as_f64().unwrap();
    assert!(y[0].is_nan());
    assert_eq!(y[1..3], [1001.0, 1001.0]);
    assert_eq!(y[3], f64::INFINITY);
    assert_eq!(y[4..], [1104.0, 1102.5]);
    let rounded = |values: Vec<f32>| -> Tensors {
        let y = sweeper_program::Tensor::f32([2, 3], values);
        [("y".to_owned(), y)].into()
    };
    let judge = |values: Vec<f32>| {
        let outputs = rounded(values);
        problem
            .check(&inputs, &outputs, &expected, Phase::Forward)
            .passed()
    };
    let right: Vec<f32> = y.iter().map(|&value| value as f32).collect();
    assert!(judge(right.clone()));
    for (at, value) in [(0, 1.0), (3, 1e30), (3, f32::NEG_INFINITY), (4, f32::NAN)] {
        let mut wrong = right.clone();
        wrong[at] = value;
        assert!(!judge(wrong), "{at} {value}");
    }
}

#[test]
fn kernels_in_c_start_from_initial_values() {
    let folder = copied();
    fs::write(
        folder.path("f.c"),
        "void f(double *sum, float *in_place, const float *x, double by, unsigned char n)\n{\n\
         for (int i = 0; i < n; i++) {\n*sum += x[i] * by;\nin_place[i] *= 2;\n}\n}\n",
    )
    .unwrap();
    fs::write(
        folder.path("f.toml"),
        "schema = 1\n[workload.w]\nparams.n = { int = [1, 100] }\n\
         inputs.x = { dtype = \"f32\", shape = [\"n\"], fill = { arange = [1, 1] } }\n\
         outputs.sum = { dtype = \"f64\", shape = [], init = 10 }\n\
         outputs.in_place = { dtype = \"f32\", shape = [\"n\"], init = \"x\" }\n\
         check.reference = \"none\"\n[backend.b]\nworkload = \"w\"\nc = \"f.c\"\nentry = \"f\"\n\
         args = [\"sum\", \"in_place\", \"x\", { f64 = \"1 / 4\" }, { u8 = \"n\" }]\n\
         [case.c]\nworkload = \"w\"\ngrid.n = 4\n",
    )
    .unwrap();
    let manifest = resolve(&folder.path("f.toml"), &Overrides::new()).unwrap();
    let problem = problem(&manifest, &[("n", 4)]);
    let inputs = problem.generate(&InputKey([5; 32]));
    let canonical = CanonicalShape::default();
    let program = problem
        .program("b", Phase::Forward, &canonical, &Target::Cpu)
        .unwrap();
    let specs = problem.outputs(Phase::Forward);
    let outputs = crate::conformance::run_on_cpu(program, &inputs, &specs, 1, 3);
    assert_eq!(*outputs["sum"].data(), Data::F64(vec![12.5]));
    assert_eq!(
        *outputs["in_place"].data(),
        Data::F32(vec![2.0, 4.0, 6.0, 8.0])
    );
}
