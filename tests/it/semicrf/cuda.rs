//! The CUDA kernels on the shim: the bodies that the C kernels pass, and once more with
//! AddressSanitizer.

use std::time::Duration;

use sweeper::compile::Bounds;

use super::*;

const FAST: Place = Place::Shim(Mode::Fast);

#[test]
fn all_options_conform() {
    if shim::is_here() {
        options::all_options(FAST);
    }
}

#[test]
fn all_phases_conform() {
    if shim::is_here() {
        options::all_phases(FAST);
    }
}

#[test]
fn sizes_at_the_edges_conform() {
    if shim::is_here() {
        options::sizes_at_the_edges(FAST);
    }
}

#[test]
fn the_shortest_sequences_conform() {
    if shim::is_here() {
        options::the_shortest_sequences(FAST);
    }
}

#[test]
fn the_largest_point_of_the_paper_conforms() {
    if shim::is_here() {
        options::the_largest_point_of_the_paper(FAST);
    }
}

#[test]
fn ranges_conform() {
    if shim::is_here() {
        ranges::no_self_transitions(FAST);
        ranges::some_durations_and_labels(FAST);
        ranges::scores_times_20(FAST);
        ranges::wide_window(FAST);
    }
}

#[test]
fn a_ring_with_a_minimum_duration_conforms() {
    if shim::is_here() {
        ranges::ring(FAST);
    }
}

#[test]
fn long_sequences_conform_on_inputs_that_show_mistakes() {
    if shim::is_here() {
        options::long_showing(FAST);
    }
}

#[test]
fn long_sequences_keep_their_precision() {
    if shim::is_here() {
        ranges::long_sequences(FAST);
        ranges::long_materialized_sequences(FAST);
    }
}

#[test]
fn nothing_is_touched_that_is_not_theirs() {
    if !shim::is_here() {
        return;
    }
    for sizes in [
        [40, 9, 12, 2],
        [20, 1, 3, 1],
        [6, 30, 1, 2],
        [12, 4, 17, 1],
        [2, 2, 13, 1],
    ] {
        for form in options::FORMS {
            for semiring in options::SEMIRINGS {
                let case = case(sizes, &format!("{form} {semiring} lengths=random"));
                for backend in BACKENDS {
                    let canonical = CanonicalShape::default();
                    let place = Place::Shim(Mode::Sanitized);
                    case.conforms(place, backend, Phase::Both, &canonical);
                }
            }
        }
    }
}

#[test]
fn every_kernel_compiles_for_old_and_new_gpus() {
    let Some(nvrtc) = crate::support::nvrtc() else {
        return;
    };
    let bounded = CanonicalShape::new([("C".to_owned(), 32)]);
    for arch in ["sm_80", "sm_90"] {
        for form in options::FORMS {
            for semiring in options::SEMIRINGS {
                let problem = problem([64, 8, 12, 2], &format!("{form} {semiring}"));
                let target = Target::Cuda {
                    arch: arch.to_owned(),
                };
                let program = problem
                    .program("fused", Phase::Both, &bounded, &target)
                    .unwrap();
                for source in program.compiled() {
                    let compiled =
                        nvrtc.compile(source, arch, &Bounds::within(Duration::from_secs(120)));
                    let compiled = compiled.unwrap_or_else(|error| {
                        panic!("{} {form} {semiring} {arch}: {error}", source.entry)
                    });
                    assert!(!compiled.log.contains("warning"), "{}", compiled.log);
                }
            }
        }
    }
}
