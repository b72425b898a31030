//! Nests side by side in one kernel.

use std::path::Path;

use sweeper_compiler::codegen::Generated;
use sweeper_compiler::nest::{Bounds, CrossBlock};
use sweeper_program::Target;

use super::harness::{ARCHS, Case, Pack, Place, report, waits};
use super::nests;
use crate::shim::{self, Mode};
use crate::support::golden;

/// Updates, a sum, and broadcasts: nests with equal texts alternate with others, in sizes that are
/// not multiples of four, of one element, and of many blocks.
fn mixed() -> Pack {
    let sgd = |rows, columns| Case::new(nests::sgd(), &[rows], columns).unbounded();
    Pack(vec![
        Case::new(nests::column_sum(CrossBlock::OneBlock), &[7], 10).unbounded(),
        Case::new(nests::column_sum(CrossBlock::OneBlock), &[1], 1).unbounded(),
        sgd(16, 24),
        sgd(1, 1),
        sgd(300, 1025).padded(3),
        Case::new(nests::gelu_of_bias(), &[5], 33),
        sgd(2, 4097),
        Case::new(nests::column_sum(CrossBlock::OneBlock), &[200], 70).unbounded(),
    ])
}

/// As many nests as a program packs, all of different sizes.
fn many() -> Pack {
    let sgd = |at: u64| {
        let mut case = Case::new(nests::sgd(), &[1 + at % 3], 1 + at * at).unbounded();
        case.scalars[0] = at as f32;
        case
    };
    Pack((0..24).map(sgd).collect())
}

#[test]
fn packs_compute_what_their_nests_mean() {
    for pack in [mixed(), many()] {
        for threads in [1, 2] {
            pack.check(Place::Cpu(threads));
        }
        if shim::is_here() {
            pack.check(Place::Shim(Mode::Fast));
            pack.check(Place::Shim(Mode::Sanitized));
        }
    }
}

#[test]
fn texts_of_packs_depend_on_structure_alone() {
    let two = |sizes: [u64; 2]| {
        let cases = sizes.map(|columns| Case::new(nests::sgd(), &[columns], columns).unbounded());
        Pack(cases.to_vec())
    };
    for target in [Target::Cpu, Place::Shim(Mode::Fast).target()] {
        let source = |sizes| two(sizes).source(&target);
        assert_eq!(source([3, 100]), source([4096, 1]));
        assert_ne!(
            source([3, 100]),
            Pack(two([3, 100]).0[..1].to_vec()).source(&target)
        );
        // Nests that are alike stand in the text once.
        let text = &source([3, 100]).files[0].text;
        let count = |word| text.matches(word).count();
        let functions = count("static void m0_run(") + count("METHOD void run(");
        assert_eq!((functions, count("m1_run")), (1, 0), "{text}");
    }
}

#[test]
fn packs_wait_for_the_launches_before_them_once() {
    let source = mixed().source(&Place::Shim(Mode::Fast).target());
    let text = &source.files[0].text;
    assert_eq!(text.matches("grid_dependency_wait").count(), 1);
    assert!(waits(&source), "{text}");
}

#[test]
fn packs_compile_for_old_and_new_gpus() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    for arch in ARCHS {
        for pack in [mixed(), many()] {
            report(&nvrtc, arch, |target| pack.source(target));
        }
    }
}

#[test]
fn people_can_read_packs() {
    let pack = Pack(mixed().0[1..5].to_vec());
    for (target, extension) in [(Target::Cpu, "c"), (Place::Shim(Mode::Fast).target(), "cu")] {
        let file = format!("tests/golden/codegen/horizontal.{extension}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        golden(&path, &pack.source(&target).files[0].text).unwrap();
    }
}

#[test]
fn what_needs_all_of_a_block_is_in_no_pack() {
    let (softmax, sgd) = (nests::softmax(), nests::sgd());
    let bounds = Bounds::default();
    let nests = [(&sgd, bounds), (&softmax, bounds)];
    let refused = Generated::horizontal(&nests, &Target::Cpu).unwrap_err();
    assert_eq!(refused, "softmax can not be fused horizontally");
}
