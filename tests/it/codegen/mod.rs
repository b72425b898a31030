//! Generated kernels compute the meaning of their nests: C on the CPU device, CUDA on the shim.

use std::path::Path;

use proptest::prelude::*;
use sweeper_compiler::codegen::{self, Generated};
use sweeper_compiler::nest::{
    Alignment, Binary, Bounds, CrossBlock, Launch, Nest, Over, Reduction, Stride, Unary, Value,
    ValueId,
};
use sweeper_program::{Dtype, Program, Target};

use crate::shim::{self, Mode};
use crate::support::golden;

/// An interpreter of nests.
#[path = "../../../kernels/compiler/src/nest/interpret.rs"]
mod interpret;
/// The CPU device.
mod cpu;
/// Running.
mod harness;
/// Comparing with the interpreter.
mod judge;
/// Nests to run.
mod nests;
/// Several nests in one kernel.
mod horizontal;
/// Stores past the caches.
mod nontemporal;
/// Single-pass reductions.
mod single_pass;
/// Randomly generated nests.
mod random;
/// Functions of one element.
mod functions;

use harness::{ARCHS, Case, Place, report, waits};

const COLUMNS: [u64; 9] = [1, 2, 15, 16, 17, 1023, 1024, 1025, 4097];
const CPU: Place = Place::Cpu(1);

fn all_nests() -> Vec<Nest> {
    vec![
        nests::layernorm(),
        nests::layernorm_backward(),
        nests::many_loads(),
        nests::softmax(),
        nests::rows_alone(),
        nests::cross_entropy(),
        nests::log_likelihood(),
        nests::gelu_of_bias(),
        nests::tanh(),
        nests::neg_of_one(),
        nests::squared_error(),
        nests::mean_of_all(),
        nests::total_of_rows(),
        nests::column_sum(CrossBlock::Partials),
        nests::column_sum(CrossBlock::OneBlock),
        nests::mixed(),
    ]
}

fn check_sizes(nest: &Nest, place: Place) {
    for columns in COLUMNS {
        for rows in [1, 3, 200] {
            if rows * columns > 300_000 {
                continue;
            }
            let rows = match nest.row_dims {
                1 => vec![rows],
                _ => vec![2, rows],
            };
            Case::new(nest.clone(), &rows, columns).check(place);
        }
        let rows: Vec<u64> = [3, 5][..nest.row_dims].to_vec();
        Case::new(nest.clone(), &rows, columns)
            .padded(3)
            .unbounded()
            .check(place);
    }
}

#[test]
fn c_computes_what_nests_mean() {
    for nest in all_nests() {
        check_sizes(&nest, CPU);
    }
}

#[test]
fn cuda_computes_what_nests_mean() {
    if shim::is_here() {
        for nest in all_nests() {
            check_sizes(&nest, Place::Shim(Mode::Fast));
        }
    }
}

#[test]
fn cuda_touches_nothing_that_is_not_its_own() {
    if !shim::is_here() {
        return;
    }
    for nest in all_nests() {
        for columns in [1, 17, 1025] {
            let rows: Vec<u64> = [3, 5][..nest.row_dims].to_vec();
            let case = Case::new(nest.clone(), &rows, columns);
            case.check(Place::Shim(Mode::Sanitized));
            case.unbounded().check(Place::Shim(Mode::Sanitized));
        }
    }
}

/// Sizes with aligned columns, others, and rows that are whole tiles.
fn check_few_sizes(nest: &Nest, columns: &[u64], place: Place) {
    for &columns in columns {
        let rows: Vec<u64> = [2, 9][2 - nest.row_dims..].to_vec();
        let case = Case::new(nest.clone(), &rows, columns);
        case.check(place);
        case.padded(2).unbounded().check(place);
    }
}

#[test]
fn numbers_are_loaded_from_bf16() {
    for nest in all_nests() {
        let nest = nests::of_bf16(nest);
        let refused = Generated::new(&nest, Bounds::default(), &Target::Cpu);
        let loads = nest
            .operands
            .iter()
            .any(|operand| operand.dtype == Dtype::Bf16);
        assert_eq!(refused.is_err(), loads, "{nest:?}");
        if shim::is_here() {
            check_few_sizes(&nest, &[15, 1024], Place::Shim(Mode::Fast));
        }
    }
}

#[test]
fn pairs_of_columns_are_loaded_exchanged() {
    for nest in all_nests() {
        let nest = nests::of_swapped_pairs(nest);
        check_few_sizes(&nest, &[2, 18, 1024], CPU);
        if shim::is_here() {
            check_few_sizes(&nest, &[18], Place::Shim(Mode::Fast));
            check_few_sizes(&nests::of_bf16(nest), &[1024], Place::Shim(Mode::Fast));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_nests_mean_the_same_on_both_targets(
        choices in proptest::collection::vec(any::<u8>(), 40),
        rows in 1..40u64,
        columns in prop_oneof![Just(1u64), 2..20u64, Just(129), Just(256), Just(1025)],
        is_bounded in any::<bool>(),
    ) {
        let nest = random::nest(&choices);
        let case = Case::new(nest, &[2, rows], columns);
        let case = if is_bounded { case } else { case.unbounded() };
        case.check(CPU);
        if shim::is_here() {
            case.check(Place::Shim(Mode::Fast));
        }
    }
}

/// Equal terms are rounded alike: roundings add up while terms of both signs cancel. Rows of the
/// loaded operand are one row here, repeated.
#[test]
fn sums_of_repeated_terms_that_cancel_are_as_exact_as_their_terms() {
    let mut b = nests::Build::new("total", 2);
    let x = b.load(&[Stride::Dynamic, Stride::Broadcast, Stride::Unit]);
    let erf = b.unary(Unary::Erf, x);
    let part = b.constant(0.75);
    let terms = b.binary(Binary::Mul, part, erf);
    let total = b.sum(Over::All, terms);
    b.store(&[Stride::Broadcast; 3], total);
    let case = Case::new(b.0, &[2, 20], 1025);
    case.check(CPU);
    if shim::is_here() {
        case.check(Place::Shim(Mode::Fast));
    }
}

/// Functions over their whole range: each row another magnitude, up to where e^x overflows.
#[test]
fn functions_are_as_exact_as_they_say() {
    for unary in Unary::ALL {
        let case = functions::case(unary);
        functions::check(unary, &case, CPU);
        if shim::is_here() {
            functions::check(unary, &case, Place::Shim(Mode::Fast));
        }
    }
}

#[test]
fn sums_of_exponentials_are_as_exact_as_they_say() {
    functions::check_sums_of_exponentials(CPU);
    if shim::is_here() {
        functions::check_sums_of_exponentials(Place::Shim(Mode::Fast));
    }
}

#[test]
fn sums_do_not_depend_on_threads() {
    for nest in [nests::layernorm_backward(), nests::squared_error()] {
        let case = Case::new(nest, &[300], 1025);
        // Compared as text: an element that is not written is NaN, which equals nothing.
        let outputs = |threads| format!("{:?}", case.outputs(Place::Cpu(threads)));
        assert!(outputs(1) == outputs(2));
    }
}

#[test]
fn launches_overlap_where_kernels_wait_for_those_before() {
    for nest in all_nests() {
        let rows: Vec<u64> = [3, 5][..nest.row_dims].to_vec();
        let case = Case::new(nest, &rows, 64);
        for (arch, overlaps) in [("sm_80", false), ("sm_90a", true), ("sm_100", true)] {
            let arch = arch.to_owned();
            let target = Target::Cuda { arch };
            let only = case.only(&target);
            for (case, overlaps) in [(&case, overlaps), (&only, false)] {
                assert_eq!(case.geometry(&target).overlaps, overlaps, "{target:?}");
                let waits = waits(&case.source(&target));
                assert_eq!(waits, overlaps, "{case:?}");
            }
        }
    }
}

#[test]
fn kernels_for_one_row_are_for_nothing_else() {
    let target = Place::Shim(Mode::Fast).target();
    let case = |padding| Case::new(nests::gelu_of_bias(), &[9], 512).padded(padding);
    let dense = |padding| Case::new(nests::tanh(), &[9], 512).padded(padding);
    for (case, is_single_row) in [(case(0), false), (dense(0), true), (dense(4), false)] {
        let known = case.filled(&target).last().unwrap();
        assert_eq!(known.bounds.is_single_row, is_single_row, "{case:?}");
        let text = &known.source(&target).files[0].text;
        assert_eq!(
            text.contains("constexpr int64 r = 0;"),
            is_single_row,
            "{text}"
        );
    }
    let mut program = Program::default();
    let one = dense(0).filled(&target).last().unwrap();
    let generated = Generated::new(&one.nest, one.bounds, &target).unwrap();
    let other = dense(4).place(&mut program, "", 4, &mut Default::default(), &mut vec![]);
    let kernel = program.kernel(generated.kernel());
    let refused = generated.launch(kernel, &other).unwrap_err();
    assert_eq!(refused, "a kernel for one row, where there are 9");
}

#[test]
fn kernels_for_few_rows_are_for_nothing_else() {
    let target = Place::Shim(Mode::Fast).target();
    let loss = Case::new(nests::cross_entropy(), &[9], 512);
    let few = loss.only(&target);
    // One that waits for the launch before has few blocks, which go over many rows.
    let waiting = loss.filled(&target).last().unwrap();
    for (case, partial_per_row_group) in [(&loss, false), (&waiting, false), (&few, true)] {
        assert_eq!(case.bounds.partial_per_row_group, partial_per_row_group);
        let text = &case.source(&target).files[0].text;
        assert_eq!(
            text.contains("base += step"),
            !partial_per_row_group,
            "{text}"
        );
    }
    let mut program = Program::default();
    let mut many = few.place(&mut program, "", 4, &mut Default::default(), &mut vec![]);
    many.extents.rows = vec![1 << 24];
    let known = codegen::known(&few.nest, few.bounds, &many, &target);
    assert!(!known.partial_per_row_group);
    let generated = Generated::new(&few.nest, few.bounds, &target).unwrap();
    let kernel = program.kernel(generated.kernel());
    let refused = generated.launch(kernel, &many).unwrap_err();
    assert_eq!(refused, "a kernel for few rows, where there are 16777216");
}

/// A block's first warp computes the values of rows after their columns, if this is the only
/// remaining work and if columns need no such value except for exponents.
#[test]
fn numbers_are_left_to_one_warp_where_columns_need_none() {
    let target = Place::Shim(Mode::Fast).target();
    let is_late = |nest: &Nest| {
        let case = Case::new(nest.clone(), &[9], 512).only(&target);
        assert!(case.bounds.partial_per_row_group);
        case.source(&target).files[0].text.contains("ROW_WARPS = 2")
    };
    assert!(is_late(&nests::log_likelihood()));
    assert!(is_late(&nests::masked_exponentials()));
    // Stores a number of each row.
    assert!(!is_late(&nests::cross_entropy()));
    // Of each element less its row's mean.
    assert!(!is_late(&nests::total_of_variances()));
}

/// Columns that a warp holds of several rows, in whole float4 and tiles or not; with rows for whole
/// blocks, in one dimension or two, dense and padded.
#[test]
fn rows_side_by_side_are_what_nests_mean() {
    if !shim::is_here() {
        return;
    }
    let place = Place::Shim(Mode::Sanitized);
    for nest in [nests::layernorm(), nests::softmax(), nests::rows_alone()] {
        let mut kernels = 0;
        for columns in [125, 126, 128, 256, 384, 509, 512] {
            let rows: Vec<u64> = [8, 3][..nest.row_dims].to_vec();
            let case = Case::new(nest.clone(), &rows, columns);
            for case in [case.clone(), case.padded(4)] {
                for case in case.several_rows(&place.target()) {
                    kernels += 1;
                    case.check_as_is(place);
                }
            }
        }
        assert!(kernels >= 8, "{kernels} of {}", nest.name);
    }
}

#[test]
fn kernels_for_rows_side_by_side_are_for_nothing_else() {
    let target = Place::Shim(Mode::Fast).target();
    let case = |rows, columns| Case::new(nests::softmax(), &[rows], columns);
    // Many rows, of one warp, in whole blocks; without another launch to wait for.
    for (case, at_once) in [
        (case(8448, 256), Some(4)),
        (case(8448, 512), Some(2)),
        (case(8450, 512), Some(2)),
        (case(8449, 512), None),
        (case(8446, 512), None),
        (case(8448, 508), None),
        (case(8448, 768), None),
        (case(8448, 64), None),
    ] {
        let only = case.only(&target);
        assert_eq!(
            only.bounds.several_rows_per_warp,
            at_once.is_some(),
            "{:?}",
            case.extents
        );
        let waiting = case.filled(&target).last().unwrap();
        assert!(!waiting.bounds.several_rows_per_warp);
        let text = &only.source(&target).files[0].text;
        let rows = at_once.map(|rows| format!(", ROWS_PER_WARP = {rows};"));
        assert!(rows.is_none_or(|rows| text.contains(&rows)), "{text}");
        assert_eq!(text.contains("ROWS"), at_once.is_some(), "{text}");
    }
    let mut program = Program::default();
    let many = case(8448, 256).only(&target);
    let generated = Generated::new(&many.nest, many.bounds, &target).unwrap();
    let other = case(8450, 256).place(&mut program, "", 1, &mut Default::default(), &mut vec![]);
    let kernel = program.kernel(generated.kernel());
    let refused = generated.launch(kernel, &other).unwrap_err();
    assert_eq!(
        refused,
        "a kernel for 4 rows at a time, where there are 8450"
    );
}

#[test]
fn kernels_for_columns_that_fill_their_lanes_are_for_nothing_else() {
    let target = Place::Shim(Mode::Fast).target();
    let case = |columns| Case::new(nests::softmax(), &[9], columns);
    let loss = |columns| Case::new(nests::cross_entropy(), &[9], columns);
    for (case, alignment) in [
        (case(510), Alignment::Unknown),
        (case(512).padded(2), Alignment::Unknown),
        (case(508), Alignment::Float4),
        (case(512).padded(4), Alignment::Float4),
        (loss(508), Alignment::Unknown),
        (loss(512).padded(2), Alignment::Unknown),
        (loss(512).padded(4), Alignment::FullTiles),
    ] {
        assert_eq!(case.alignment(&target), alignment);
        assert_eq!(case.alignment(&Target::Cpu), Alignment::Unknown);
        let filled = case.filled(&target).last();
        let text = &filled.as_ref().unwrap_or(&case).source(&target).files[0].text;
        let is_vectorized = text.contains("constexpr bool is_vectorized = true;");
        assert_eq!(is_vectorized, alignment >= Alignment::Float4, "{text}");
        let is_full = text.contains("constexpr int extent = ");
        assert_eq!(is_full, alignment == Alignment::FullTiles, "{text}");
    }
    // A dense tensor of rows of 6 is one row of 60.
    assert_eq!(
        Case::new(nests::tanh(), &[10], 6).alignment(&target),
        Alignment::Float4
    );
    let mut program = Program::default();
    for (filled, other, alignment) in [
        (case(512), case(510), Alignment::Float4),
        (loss(512), loss(508), Alignment::FullTiles),
    ] {
        let filled = filled.filled(&target).last().unwrap();
        let generated = Generated::new(&filled.nest, filled.bounds, &target).unwrap();
        let other = other.place(&mut program, "", 4, &mut Default::default(), &mut vec![]);
        let kernel = program.kernel(generated.kernel());
        let refused = generated.launch(kernel, &other).unwrap_err();
        assert!(
            refused.contains(&format!("alignment {alignment:?}")),
            "{refused}"
        );
    }
}

#[test]
fn texts_depend_on_structure_alone() {
    for target in [Target::Cpu, Place::Shim(Mode::Fast).target()] {
        let renamed = Nest {
            name: "another".to_owned(),
            ..nests::softmax()
        };
        let one = Case::new(nests::softmax(), &[8], 512);
        let mut other = Case::new(renamed, &[9], 512);
        other.scalars = vec![3.0; 4];
        assert_eq!(one.source(&target), other.source(&target));
    }
}

#[test]
fn kernels_compile_for_old_and_new_gpus() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    for arch in ARCHS {
        for nest in all_nests() {
            for columns in [3, 512, 4096] {
                let case = Case::new(nest.clone(), &vec![4; nest.row_dims], columns);
                let target = Place::Shim(Mode::Fast).target();
                for case in case.kernels(&target).into_iter().chain([case.unbounded()]) {
                    report(&nvrtc, arch, |target| case.source(target));
                }
            }
        }
    }
}

#[test]
fn people_can_read_what_is_generated() {
    for (name, nest) in [
        ("softmax", nests::softmax()),
        ("layernorm_backward", nests::layernorm_backward()),
        ("gelu", nests::gelu_of_bias()),
        ("tanh", nests::tanh()),
        ("layernorm", nests::layernorm()),
    ] {
        let case = match name {
            "layernorm" => Case::new(nest, &[8448], 256),
            _ => Case::new(nest, &[8], 512),
        };
        for (target, extension) in [(Target::Cpu, "c"), (Place::Shim(Mode::Fast).target(), "cu")] {
            // As the compiler makes them; one that takes all sizes beside.
            let case = match name {
                "gelu" => case.clone(),
                "tanh" | "layernorm" => case.only(&target),
                _ => case.filled(&target).last().unwrap_or_else(|| case.clone()),
            };
            let file = format!("tests/golden/codegen/{name}.{extension}");
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            golden(&path, &case.source(&target).files[0].text).unwrap();
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_with_a_reason() {
    let mut b = nests::Build::new("normalised by all", 1);
    let x = b.load(&nests::CELLS);
    let total = b.sum(Over::All, x);
    let out = b.binary(Binary::Div, x, total);
    b.store(&nests::CELLS, out);
    let refused = Generated::new(&b.one(), Bounds::default(), &Target::Cpu).unwrap_err();
    assert_eq!(
        refused,
        "value 2 varies over rows, and is used when all rows are done"
    );
}
