//! Variables in constant memory, which inputs are copied to before each run.

use std::fs;

use sweeper_program::check::as_f64;
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Binding, CanonicalShape, Dtype, Phase, Tensor};

use super::{copied, manifest, problem};
use crate::conformance::cuda;
use crate::place::{code, text};
use crate::shim::{self, Mode};
use crate::support::nvrtc;

#[test]
fn constants_have_the_elements_of_their_inputs() {
    if !shim::is_here() {
        return;
    }
    let manifest = manifest("filter.toml");
    for (n, width) in [(1, 1), (1000, 1), (130, 3), (64, 9)] {
        let problem = problem(&manifest, &[("n", n), ("width", width)]);
        let mut inputs = problem.generate(&InputKey([3; 32]));
        let canonical = CanonicalShape::default();
        let program = |name| {
            let program = problem.program(name, Phase::Forward, &canonical, &cuda());
            program.unwrap()
        };
        let in_f64 = program("filtered_cuda in f64");
        let program = program("filtered_cuda");
        let symbols = program.buffers.iter();
        let symbols: Vec<(usize, bool)> = symbols
            .filter(|buffer| matches!(buffer.binding, Binding::Symbol { .. }))
            .map(|buffer| (buffer.len, buffer.is_given()))
            .collect();
        assert_eq!(symbols, [(width as usize, false), (2, false)]);
        // Copying them is not part of what is timed.
        assert_eq!((program.prologue.len(), program.steps.len()), (2, 1));
        let specs = problem.outputs(Phase::Forward);
        let specs_in_f64 = specs.iter().map(|spec| TensorSpec {
            dtype: Dtype::F64,
            ..spec.clone()
        });
        let specs_in_f64: Vec<TensorSpec> = specs_in_f64.collect();
        for first in [1.0, -2.0] {
            let filter: Vec<f32> = (0..width).map(|k| first + 0.5 * k as f32).collect();
            let tensor = Tensor::f32([width as usize], filter.clone());
            inputs.insert("filter".to_owned(), tensor);
            let outputs = shim::run(&program, &inputs, &specs, Mode::Sanitized);
            let widened = inputs.iter().map(|(name, tensor)| {
                let values = as_f64(tensor).into_owned();
                (name.clone(), Tensor::f64(tensor.shape(), values))
            });
            let in_f64 = shim::run(&in_f64, &widened.collect(), &specs_in_f64, Mode::Sanitized);
            let x = inputs["x"].as_f32().unwrap();
            let exact = in_f64["y"].as_f64().unwrap();
            for (i, (&y, exact)) in outputs["y"].as_f32().unwrap().iter().zip(exact).enumerate() {
                let terms = filter.iter().enumerate();
                let terms = terms.map(|(k, &w)| f64::from(w) * f64::from(x[(i + k) % x.len()]));
                let right = 3.0 * terms.sum::<f64>() + 4.0;
                assert!((f64::from(y) - right).abs() < 1e-4, "{n} {width} {i}");
                assert!((exact - right).abs() < 1e-13, "{n} {width} {i}");
            }
        }
    }
}

#[test]
fn sources_with_constants_are_compiled_for_a_gpu() {
    if nvrtc().is_none() {
        return;
    }
    let folder = copied();
    let compiled = folder.sweeper(&["compile", "filter.toml", "--arch", "sm_90"]);
    assert_eq!(code(&compiled), 0, "{}", text(&compiled));
    assert!(
        text(&compiled).contains("compiled filter.cu"),
        "{}",
        text(&compiled)
    );
    let manifest = fs::read_to_string(folder.path("filter.toml")).unwrap();
    let text_in_f64 = "{ backend = \"filtered_cuda\", dtype = \"f64\" }";
    let checked = manifest.replace("\"none\"", text_in_f64);
    fs::write(folder.path("checked.toml"), checked).unwrap();
    let compiled = folder.sweeper(&["compile", "checked.toml", "--arch", "sm_90"]);
    let said = text(&compiled);
    assert!(said.contains("compiled sweeper_in_f64.cu"), "{said}");
    // A variable that is not there is a mistake of the source.
    let other = manifest.replace("d_filter =", "d_filters =");
    fs::write(folder.path("other.toml"), other).unwrap();
    let refused = folder.sweeper(&["compile", "other.toml", "--arch", "sm_90"]);
    assert_ne!(code(&refused), 0);
    assert!(text(&refused).contains("d_filters"), "{}", text(&refused));
}

#[test]
fn mistakes_of_constants_are_named() {
    let folder = copied();
    let manifest = fs::read_to_string(folder.path("filter.toml")).unwrap();
    for (old, new, reason) in [
        (
            "\"filter\", \"scales",
            "\"filters\", \"scales",
            "`d_filter` can't be `filters`",
        ),
        (
            "d_filter =",
            "\"d filter\" =",
            "`d filter` is not a variable of CUDA",
        ),
        (
            "cuda      = \"filter.cu\"",
            "c = \"add.c\"",
            "`constants` is for CUDA",
        ),
    ] {
        fs::write(folder.path("bad.toml"), manifest.replace(old, new)).unwrap();
        let checked = folder.sweeper(&["check", "bad.toml"]);
        assert_eq!(code(&checked), 3, "{}", text(&checked));
        assert!(text(&checked).contains(reason), "{}", text(&checked));
    }
}
