//! Outputs that no kernel computed, on which a check of the user is tried before it judges any
//! others: zeros, and what lies in the outputs' memory before a run.

use sweeper_program::check::{Trial, as_f64};
use sweeper_program::spread;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Data, Tensor, Tensors};

use super::declaration::{Initial, OutputDeclaration};
use super::definition::held;

/// The byte of memory that was poisoned.
const POISON: u8 = 0xFF;

/// The outputs on which the check of a problem is tried. `expected` are the right ones, if they are
/// known.
pub(super) fn trials(
    specs: &[TensorSpec],
    declared: &[OutputDeclaration],
    inputs: &Tensors,
    expected: Option<&Tensors>,
) -> Vec<Trial> {
    // Neither zeros nor NaN are within the rounding of an answer, and large tensors take time.
    if specs.iter().all(|spec| has_spread(spec, expected)) {
        return Vec::new();
    }
    let zeros = specs
        .iter()
        .map(|spec| (spec.name.clone(), filled(spec, 0)));
    let untouched = specs.iter().zip(declared).map(|(spec, declared)| {
        let contents = match &declared.initial {
            Initial::Poison => Some(filled(spec, POISON)),
            Initial::Constant(value) => Some(constant(spec, *value)),
            Initial::Input(name) => inputs.get(name).cloned(),
        };
        (
            spec.name.clone(),
            contents.unwrap_or_else(|| filled(spec, POISON)),
        )
    });
    let names = |of: &dyn Fn(&TensorSpec, &OutputDeclaration) -> bool| {
        let outputs = specs.iter().zip(declared);
        let chosen = outputs.filter(|(spec, declared)| of(spec, declared));
        chosen.map(|(spec, _)| spec.name.clone()).collect()
    };
    vec![
        Trial {
            name: "zeros",
            outputs: zeros.collect(),
            // Where all right values are zero, zeros are right; where zeros are as near to them as
            // what rounding does, no check could tell.
            wrong: names(&|spec, _| !is_zero(spec, expected) && !has_spread(spec, expected)),
            is_wrong_in_all: false,
        },
        Trial {
            name: "outputs that nothing was written to",
            outputs: untouched.collect(),
            wrong: names(&|spec, declared| {
                declared.initial == Initial::Poison && spec.elements() > 0
            }),
            // An output in place of its input may be right from the beginning, as one that is
            // sorted. Where there are no elements there is nothing to write.
            is_wrong_in_all: specs.iter().any(|spec| spec.elements() > 0)
                && !declared
                    .iter()
                    .any(|output| matches!(output.initial, Initial::Input(_))),
        },
    ]
}

/// Whether all right values of an output are zero, as its type holds them.
fn is_zero(spec: &TensorSpec, expected: Option<&Tensors>) -> bool {
    let expected = expected.and_then(|expected| expected.get(&spec.name));
    expected.is_some_and(|expected| {
        let mut values = as_f64(expected).into_owned().into_iter();
        values.all(|value| held(spec.dtype, value) == 0.0)
    })
}

/// Whether an output is judged by what rounding does to it.
fn has_spread(spec: &TensorSpec, expected: Option<&Tensors>) -> bool {
    expected.is_some_and(|expected| expected.contains_key(&spread::name_of(&spec.name)))
}

/// A tensor all of whose bytes are equal.
fn filled(spec: &TensorSpec, byte: u8) -> Tensor {
    let bytes = vec![byte; spec.size_bytes() as usize];
    Tensor::new(spec.shape.clone(), Data::from_bytes(spec.dtype, &bytes))
}

fn constant(spec: &TensorSpec, value: f64) -> Tensor {
    let data = sweeper_program::with_element_type!(spec.dtype, T => {
        let value = <T as sweeper_program::Element>::from_f64(value);
        sweeper_program::Element::data(vec![value; spec.elements() as usize])
    });
    Tensor::new(spec.shape.clone(), data)
}
