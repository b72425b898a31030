//! The workloads' contract, and that wrong results are found.

use super::SizedOperation;
use super::info::FULL;
use super::sizes::AXES;
use crate::registry::{OPERATIONS, forms, workload};
use sweeper_program::check::Check;
use sweeper_program::inputs::InputKey;
use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::{Data, Dtype, Tensor, Tensors};
use sweeper_program::workload::{
    CanonicalShape, Phase, Problem, Refusal, Target, TensorInfo, TensorSpec,
};

/// Every operation in each of its forms, with what it is called.
pub(super) fn every(sizes: [i64; 3]) -> Vec<(String, SizedOperation)> {
    let mut all = vec![];
    for operation in OPERATIONS {
        for mut form in forms(operation.info) {
            let words: Vec<String> = form.iter().map(|(_, word)| word.to_string()).collect();
            let name = format!("{} {words:?} {sizes:?}", operation.info.name);
            for (axis, size) in AXES.into_iter().zip(sizes) {
                form.set(axis, size);
            }
            all.push((name, operation.at(&form).unwrap()));
        }
    }
    all
}

fn every_name() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().map(|operation| operation.info.name)
}

fn problem(name: &str, sizes: [i64; 3]) -> Result<Box<dyn Problem>, String> {
    let parameters = AXES.into_iter().zip(sizes).collect();
    let workload = workload(name).expect("registered");
    workload
        .problem(&parameters, Dtype::F32)
        .map_err(|error| error.to_string())
}

fn names(specs: Vec<TensorSpec>) -> Vec<String> {
    specs.into_iter().map(|spec| spec.name).collect()
}

#[test]
fn tensors_are_those_of_the_description() {
    for name in every_name() {
        let problem = problem(name, [2, 3, 4]).unwrap();
        let info = workload(name).unwrap().info();
        let shape = |text: &str| match text {
            FULL => vec![2, 3, 4],
            "(batch, sequence)" => vec![2, 3],
            "(dimension)" => vec![4],
            "()" => vec![],
            other => panic!("{other}"),
        };
        let listed = |tensors: &[TensorInfo]| -> Vec<_> {
            let tensors = tensors.iter();
            tensors
                .map(|tensor| (tensor.name.to_owned(), tensor.dtype, shape(tensor.shape)))
                .collect()
        };
        let of = |specs: Vec<TensorSpec>| -> Vec<_> {
            specs
                .into_iter()
                .map(|spec| (spec.name, spec.dtype, spec.shape))
                .collect()
        };
        assert_eq!(of(problem.inputs()), listed(info.inputs), "{name}");
        assert_eq!(
            of(problem.outputs(Phase::Both)),
            listed(info.outputs),
            "{name}"
        );
        assert_eq!(names(problem.outputs(Phase::Forward)), ["out"]);
        let gradients = names(problem.outputs(Phase::Backward));
        assert!(
            gradients.iter().all(|name| name.starts_with("grad_")),
            "{gradients:?}"
        );
    }
}

#[test]
fn parameters_are_checked() {
    let message = |sizes| problem("layernorm", sizes).map(|_| ()).unwrap_err();
    assert_eq!(
        message([1, 1, 0]),
        "`dimension` = 0: expected a whole number from 1 to 1048576"
    );
    assert!(
        message([1 << 24, 1 << 24, 1]).contains("too many elements"),
        "{}",
        message([1 << 24, 1 << 24, 1])
    );
    assert!(problem("layernorm", [1, 1, 1 << 20]).is_ok());
    let form = |form: &str| {
        let mut parameters: Parameters = AXES.into_iter().zip([1i64; 3]).collect();
        parameters.set("form", Value::from(form));
        let problem = workload("gelu").unwrap().problem(&parameters, Dtype::F32);
        problem.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(form("tanh"), Ok(()));
    assert_eq!(
        form("sigmoid"),
        Err("`form` = sigmoid: expected one of erf, tanh".to_owned())
    );
}

#[test]
fn the_least_work_is_each_tensor_once() {
    let bytes = |name, phase| {
        problem(name, [2, 3, 4])
            .unwrap()
            .work(phase)
            .compulsory_bytes
    };
    let full = 4.0 * 24.0;
    let row = 4.0 * 4.0;
    assert_eq!(bytes("layernorm", Phase::Forward), 2.0 * full + 2.0 * row);
    // x, grad_out and gamma are read, and three gradients are written; beta has no part in it.
    assert_eq!(bytes("layernorm", Phase::Backward), 3.0 * full + 3.0 * row);
    assert_eq!(bytes("layernorm", Phase::Both), 4.0 * full + 4.0 * row);
    assert_eq!(bytes("gelu", Phase::Backward), 3.0 * full);
    assert_eq!(bytes("mse", Phase::Forward), 2.0 * full + 4.0);
    assert_eq!(bytes("mse", Phase::Backward), 3.0 * full + 4.0);
    assert_eq!(
        bytes("cross_entropy", Phase::Forward),
        full + 8.0 * 6.0 + 4.0
    );
    assert_eq!(
        bytes("cross_entropy", Phase::Backward),
        2.0 * full + 8.0 * 6.0 + 4.0
    );
    for name in every_name() {
        let [forward, backward, both] =
            Phase::ALL.map(|phase| problem(name, [2, 3, 4]).unwrap().work(phase).flops);
        assert!(
            forward > 24.0 && backward >= 24.0,
            "{name}: {forward}, {backward}"
        );
        assert_eq!(forward + backward, both, "{name}");
    }
}

#[test]
fn inputs_are_judged() {
    let problem = problem("cross_entropy", [1, 2, 3]).unwrap();
    let mut inputs = problem.generate(&InputKey([1; 32]));
    assert_eq!(problem.validate(&inputs), Ok(()));
    inputs.insert("labels".to_owned(), Tensor::i64([1, 2], vec![2, 3]));
    assert_eq!(
        problem.validate(&inputs).unwrap_err(),
        "element 1 of `labels` is 3, but there are 3 classes, from 0 on"
    );
    inputs.insert("labels".to_owned(), Tensor::i64([1, 2], vec![-1, 0]));
    assert!(problem.validate(&inputs).is_err());
    let x = vec![0.0, f32::INFINITY, 0.0, 0.0, 0.0, 0.0];
    inputs.insert("x".to_owned(), Tensor::f32([1, 2, 3], x));
    assert_eq!(
        problem.validate(&inputs).unwrap_err(),
        "element 1 of `x` is inf, not a finite number"
    );
}

#[test]
fn no_library_has_them() {
    for name in every_name() {
        let problem = problem(name, [1, 2, 3]).unwrap();
        let refused = problem.program(
            "library",
            Phase::Forward,
            &CanonicalShape::default(),
            &Target::Cpu,
        );
        let Err(Refusal::Unavailable(reason)) = refused else {
            panic!("{name}")
        };
        assert_eq!(
            reason,
            format!("no library that is linked here has `{name}`")
        );
    }
}

/// The right answers in f32, changed by `change`, as they are judged.
fn judged(name: &str, change: impl Fn(&str, &mut Vec<f32>)) -> Check {
    let problem = problem(name, [4, 64, 96]).unwrap();
    let inputs = problem.generate(&InputKey([4; 32]));
    let expected = problem.oracle(&inputs, Phase::Both);
    let outputs: Tensors = problem
        .outputs(Phase::Both)
        .into_iter()
        .map(|spec| {
            let answer = expected[&spec.name].as_f64().unwrap();
            let mut values: Vec<f32> = answer.iter().map(|&value| value as f32).collect();
            change(&spec.name, &mut values);
            (spec.name, Tensor::f32(spec.shape, values))
        })
        .collect();
    problem.check(&inputs, &outputs, &expected, Phase::Both)
}

#[test]
fn small_faults_are_found() {
    for name in every_name() {
        assert!(judged(name, |_, _| {}).passed(), "{name}");
        let outputs = problem(name, [1, 1, 2]).unwrap().outputs(Phase::Both);
        for output in names(outputs) {
            // One element that was not computed.
            let check = judged(name, |tensor, values| {
                if tensor == output {
                    values[0] = 0.0;
                }
            });
            assert!(!check.passed(), "{name} {output}: {check:?}");
            // A factor that is a little off.
            let check = judged(name, |tensor, values| {
                if tensor == output {
                    values.iter_mut().for_each(|value| *value *= 1.0001);
                }
            });
            assert!(!check.passed(), "{name} {output}: {check:?}");
        }
    }
}

/// The last row is left out of a mean over as many rows as the published sizes have: inputs that
/// show mistakes show it.
#[test]
fn a_row_missing_from_a_total_is_found_at_published_sizes() {
    for (name, rows) in [
        ("mse", 65536),
        ("cross_entropy", 65536),
        ("mse", 131_072),
        ("cross_entropy", 131_072),
    ] {
        let posed = |rows: i64| problem(name, [1, rows, 16]).unwrap();
        let whole = posed(rows);
        let inputs = whole.showing(&InputKey([4; 32])).unwrap();
        let expected = whole.oracle(&inputs, Phase::Forward);
        let judged = |value: f64| {
            let out = Tensor::f32([], vec![value as f32]);
            let outputs = Tensors::from([("out".to_owned(), out)]);
            whole
                .check(&inputs, &outputs, &expected, Phase::Forward)
                .passed()
        };
        let right = expected["out"].as_f64().unwrap()[0];
        // The greatest error of a total among recorded rows is 9e-8.
        for error in [0.0, 4e-7, -4e-7] {
            assert!(judged(right * (1.0 + error)), "{name} {rows} {error}");
        }
        let mut rest = Tensors::new();
        for (name, tensor) in &inputs {
            let shape = tensor.shape();
            if shape.is_empty() {
                rest.insert(name.clone(), tensor.clone());
                continue;
            }
            let width: usize = shape[2..].iter().product();
            let (kept, mut shape) = (width * (rows as usize - 1), shape.to_vec());
            shape[1] -= 1;
            let cut = match tensor.data() {
                Data::I64(values) => Tensor::i64(shape, values[..kept].to_vec()),
                Data::F32(values) => Tensor::f32(shape, values[..kept].to_vec()),
                other => panic!("{other:?}"),
            };
            rest.insert(name.clone(), cut);
        }
        let others = posed(rows - 1).oracle(&rest, Phase::Forward)["out"]
            .as_f64()
            .unwrap()[0];
        assert!(
            !judged(others * (rows - 1) as f64 / rows as f64),
            "{name} {rows}"
        );
    }
}

#[test]
fn compiled_programs_move_little_more_than_they_must() {
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let canonical = CanonicalShape::new([("dimension".to_owned(), 512)]);
    for (target, name) in [Target::Cpu, cuda]
        .iter()
        .flat_map(|target| every_name().map(move |name| (target, name)))
    {
        let problem = problem(name, [16, 256, 512]).unwrap();
        for phase in Phase::ALL {
            let totals = ["primitive", "eager", "compiled"].map(|backend| {
                let program = problem.program(backend, phase, &canonical, target);
                let totals = program.unwrap().totals();
                (totals.read_bytes + totals.written_bytes, totals.launches)
            });
            let [primitive, eager, compiled] = totals;
            assert!(
                compiled <= eager && eager <= primitive,
                "{name} {phase}: {totals:?}"
            );
            // Statistics of rows, and parts of sums over rows. A label's element of `x` is one of a
            // row, of which a launch may count all.
            let slack = if name == "cross_entropy" { 2.0 } else { 1.1 };
            let ratio = compiled.0 as f64 / problem.work(phase).compulsory_bytes;
            assert!(ratio <= slack, "{name} {phase}: {ratio}");
        }
    }
}
