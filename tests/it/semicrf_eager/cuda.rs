//! The kernels of `streaming` for CUDA on the shim, against the oracle of the CPU's kernels.

use super::*;
use crate::shim::{self, Mode};

impl Case {
    /// Checks all phases of the kernels for GPUs.
    fn check_on_shim(&self, mode: Mode) {
        self.problem.validate(&self.inputs).expect("valid inputs");
        let expected = self.problem.oracle(&self.inputs, Phase::Both);
        for phase in Phase::ALL {
            let shape = CanonicalShape::default();
            let target = super::cuda("sm_90a");
            let program = self.problem.program("streaming", phase, &shape, &target);
            let program = program.expect("a program");
            let specs = self.problem.outputs(phase);
            let outputs = shim::run(&program, &self.inputs, &specs, mode);
            let check = self.problem.check(&self.inputs, &outputs, &expected, phase);
            assert!(check.passed(), "{}: {phase}: {check:?}", self.name);
        }
    }
}

/// Checks every semiring and form that the sizes allow.
fn check_matrix(sizes: [i64; 4], mode: Mode, change: impl Fn(Case) -> Case) {
    let mut checked = 0;
    for semiring in SEMIRINGS {
        for form in FORMS {
            if let Some(case) = Case::new(sizes, semiring, form, "full") {
                change(case).check_on_shim(mode);
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "{checked} of 18 forms");
}

#[test]
fn boundary_sizes_conform() {
    if !shim::is_here() {
        return;
    }
    // One position, two positions; one duration, durations longer than the sequence; one label, an
    // odd number of labels; more terms than a thread reduces alone.
    for sizes in [
        [1, 1, 1, 1],
        [1, 4, 2, 3],
        [2, 1, 3, 2],
        [2, 3, 5, 1],
        [5, 1, 2, 2],
        [6, 9, 2, 3],
        [7, 7, 1, 1],
        [12, 3, 17, 1],
        [16, 6, 5, 2],
    ] {
        check_matrix(sizes, Mode::Fast, |case| case);
    }
}

#[test]
fn sequences_of_one_position_conform() {
    if shim::is_here() {
        for lengths in [[6, 1, 2], [1, 1, 1]] {
            let with_lengths = |case: Case| case.with_lengths(&lengths);
            check_matrix([6, 4, 3, 3], Mode::Fast, with_lengths);
        }
    }
}

#[test]
fn nothing_is_touched_that_is_not_theirs() {
    if shim::is_here() {
        // The second has sums and maxima that a warp reduces.
        for sizes in [[2, 4, 3, 2], [6, 8, 3, 1]] {
            check_matrix(sizes, Mode::Sanitized, |case| case);
        }
    }
}
