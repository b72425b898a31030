//! Kernels write nothing past their arrays: each array of a single sequence gets a guard behind it.

use sweeper_program::Binding;
use sweeper_program::check::elements;
use sweeper_program::workload::TensorSpec;

use super::*;

const GUARD: usize = 64;

/// Runs a program with longer arrays, and checks the memory behind their elements.
fn stays_inside(sizes: [i64; 4], options: &str, backend: &str, canonical: &CanonicalShape) {
    let problem = problem(sizes, options);
    let inputs = problem.generate(&InputKey([42; 32]));
    let mut program = problem
        .program(backend, Phase::Both, canonical, &Target::Cpu)
        .unwrap();
    let mut specs = Vec::new();
    for buffer in &mut program.buffers {
        if buffer.binding != Binding::Given {
            buffer.binding = Binding::Result;
            buffer.len += GUARD;
            specs.push(TensorSpec {
                name: buffer.name.to_string(),
                dtype: buffer.dtype,
                shape: vec![buffer.len],
            });
        }
    }
    for (name, tensor) in run_on_cpu(program, &inputs, &specs, 1, 1) {
        let behind = tensor.shape()[0] - GUARD;
        assert!(
            elements(&tensor).skip(behind).all(f64::is_nan),
            "{sizes:?} {options} {backend} {canonical}: `{name}`"
        );
    }
}

#[test]
fn nothing_is_written_past_an_array() {
    let bounded = CanonicalShape::new([("C".to_owned(), 32)]);
    for sizes in [
        [40, 9, 12, 1],
        [20, 1, 3, 1],
        [6, 30, 1, 1],
        [18, 5, 16, 1],
        [12, 4, 17, 1],
        [30, 6, 7, 1],
        [9, 3, 31, 1],
        [2, 2, 13, 1],
    ] {
        for form in options::FORMS {
            for semiring in options::SEMIRINGS {
                for backend in BACKENDS {
                    for canonical in [&CanonicalShape::default(), &bounded] {
                        let options = format!("{form} {semiring}");
                        stays_inside(sizes, &options, backend, canonical);
                    }
                }
            }
        }
    }
}
