//! Stores past the caches have the results of ordinary stores.

use sweeper_program::inputs::InputKey;
use sweeper_program::{CanonicalShape, Data, Dtype, Kernel, KernelSource, Phase, Target, Tensor};
use sweeper_workloads::registry;

use super::harness::{Case, Place};
use super::{CPU, all_nests, cpu, nests};

/// A tensor's size that no launch here reaches.
const NEVER: u64 = 1 << 40;

/// The bits of a tensor of f32.
fn bits(tensor: &Tensor) -> Vec<u32> {
    match tensor.data() {
        Data::F32(values) => values.iter().map(|x| x.to_bits()).collect(),
        data => panic!("{data:?}"),
    }
}

/// Compares the results of a case with stores past the caches with the meaning of its nest, and bit
/// by bit with the results without such stores.
fn check(case: Case) {
    let past = case.clone().large_from(0);
    past.check(CPU);
    assert_same(&past, &case.large_from(NEVER), CPU);
}

/// Checks that two cases have equal results, bit by bit.
fn assert_same(one: &Case, other: &Case, place: Place) {
    let expected = other.outputs(place);
    for (name, tensor) in &one.outputs(place) {
        let is_same = bits(tensor) == bits(&expected[name]);
        assert!(is_same, "{name} of {} {:?}", one.nest.name, one.extents);
    }
}

#[test]
fn stores_past_the_caches_change_no_bit() {
    for nest in all_nests() {
        for columns in [15, 64, 1025] {
            let rows: Vec<u64> = [3, 37][2 - nest.row_dims..].to_vec();
            check(Case::new(nest.clone(), &rows, columns));
        }
    }
}

#[test]
fn rows_that_begin_within_a_line_are_stored_too() {
    for nest in all_nests() {
        // Every 16th row begins a line; all do, and end within one.
        let rows: Vec<u64> = [3, 37][2 - nest.row_dims..].to_vec();
        check(Case::new(nest.clone(), &rows, 48).padded(1).unbounded());
        check(Case::new(nest, &rows, 40).padded(8));
    }
}

/// Tensors of 32 MiB and three rows, by the bound that is in the text, in several threads.
#[test]
fn large_tensors_are_the_same_whatever_the_bound() {
    for nest in [nests::gelu_of_bias(), nests::layernorm_backward()] {
        let case = Case::new(nest, &[8195], 1024);
        assert_same(&case, &case.clone().large_from(NEVER), Place::Cpu(2));
    }
}

/// `copy` has a kernel by hand. Lengths end within a vector, with one, and within the second block.
#[test]
fn copies_past_the_caches_are_whole() {
    let workload = registry::workload("copy").unwrap();
    for elements in [1, 16, 37, (1 << 18) + 53] {
        let parameters = [("elements", elements)].into_iter().collect();
        let problem = workload.problem(&parameters, Dtype::F32).unwrap();
        let (phase, shape) = (Phase::Forward, CanonicalShape::default());
        let program = problem.program("compiled", phase, &shape, &Target::Cpu);
        let Ok(mut program) = program else {
            panic!("refused");
        };
        for kernel in &mut program.kernels {
            if let Kernel::Compiled(source) = kernel {
                let define = KernelSource::define("LARGE_BYTES", 0);
                source.defines.push(define);
            }
        }
        let inputs = problem.generate(&InputKey([7; 32]));
        let outputs = cpu::run(program, &inputs, &problem.outputs(phase), 2);
        assert!(bits(&outputs["out"]) == bits(&inputs["x"]), "{elements}");
    }
}
