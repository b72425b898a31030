//! Stores past the caches yield what ordinary ones do.

use sweeper_kernels::{Data, Tensor};

use super::harness::{Case, Place};
use super::{CPU, all_nests, nests};

/// A tensor's size that no launch here reaches.
const NEVER: u64 = 1 << 40;

/// The bits of a tensor of f32.
fn bits(tensor: &Tensor) -> Vec<u32> {
    match tensor.data() {
        Data::F32(values) => values.iter().map(|x| x.to_bits()).collect(),
        data => panic!("{data:?}"),
    }
}

/// Holds what a case computes with stores past the caches against what its nest means, and bit by bit against what it
/// computes without.
fn check(case: Case) {
    let past = case.clone().nontemporal_from(0);
    past.check(CPU);
    assert_same(&past, &case.nontemporal_from(NEVER), CPU);
}

/// Checks that two cases have the same results, bit by bit.
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
        for columns in [1, 15, 16, 17, 64, 1025] {
            let rows: Vec<u64> = [3, 37][2 - nest.row_dims..].to_vec();
            check(Case::new(nest.clone(), &rows, columns));
        }
    }
}

#[test]
fn rows_that_begin_within_a_line_are_stored_too() {
    for nest in all_nests() {
        // Of the first ones every other row begins a line, of the second ones every 16th does.
        for (columns, padding) in [(64, 8), (48, 1)] {
            let rows: Vec<u64> = [3, 37][2 - nest.row_dims..].to_vec();
            let case = Case::new(nest.clone(), &rows, columns).padded(padding);
            check(case.clone());
            check(case.unbounded());
        }
    }
}

/// Tensors of 32 MiB and three rows, by the bound that is in the text, in several threads.
#[test]
fn large_tensors_are_the_same_whatever_the_bound() {
    for nest in [nests::gelu_of_bias(), nests::layernorm_backward()] {
        let case = Case::new(nest, &[8195], 1024);
        assert_same(&case, &case.clone().nontemporal_from(NEVER), Place::Cpu(2));
    }
}
