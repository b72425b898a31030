//! Every option, and sizes at the edges.

use super::*;

pub(super) const FORMS: [&str; 3] = [
    "potentials=materialized",
    "potentials=decomposed",
    "potentials=decomposed transition=per_duration",
];
pub(super) const SEMIRINGS: [&str; 3] = ["semiring=log", "semiring=max", "semiring=entropy"];

fn combinations() -> Vec<String> {
    let mut all = Vec::new();
    for form in FORMS {
        for semiring in SEMIRINGS {
            for durations in ["durations=1..K-1", "durations=1..K"] {
                for lengths in ["lengths=full", "lengths=random"] {
                    all.push(format!("{form} {semiring} {durations} {lengths}"));
                }
            }
        }
    }
    all
}

#[test]
fn all_options_conform() {
    all_options(Place::Cpu);
}

pub(super) fn all_options(place: Place) {
    for options in combinations() {
        case([70, 9, 5, 3], &options).conforms_everywhere(place);
        showing_case([70, 9, 5, 3], &options).conforms_everywhere(place);
    }
}

/// A segment costs as much as it gains: values are small beside the scores that make them.
pub(super) fn long_showing(place: Place) {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let case = showing_case([512, 8, 6, 2], &format!("{form} {semiring}"));
            case.conforms(place, "fused", Phase::Both, &CanonicalShape::default());
        }
    }
}

#[test]
fn long_sequences_conform_on_inputs_that_show_mistakes() {
    long_showing(Place::Cpu);
}

#[test]
fn all_phases_conform() {
    all_phases(Place::Cpu);
}

pub(super) fn all_phases(place: Place) {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let case = case([40, 6, 4, 2], &format!("{form} {semiring}"));
            for backend in BACKENDS {
                for phase in Phase::ALL {
                    case.conforms(place, backend, phase, &CanonicalShape::default());
                }
            }
        }
    }
}

#[test]
fn sizes_at_the_edges_conform() {
    sizes_at_the_edges(Place::Cpu);
}

pub(super) fn sizes_at_the_edges(place: Place) {
    // One duration, durations longer than the sequence, one label, one sequence, two positions,
    // labels that divide a vector, fill one, or take several.
    let sizes = [
        [20, 1, 3, 2],
        [6, 30, 4, 2],
        [30, 5, 1, 2],
        [25, 4, 6, 1],
        [2, 4, 3, 2],
        [40, 25, 1, 2],
        [30, 4, 2, 2],
        [24, 5, 7, 2],
        [18, 4, 9, 1],
        [18, 4, 16, 1],
        [12, 4, 17, 2],
        [9, 3, 31, 1],
        [16, 20, 13, 1],
        // Longer segments than there is room for with one cell a thread, and with all cells.
        [90, 70, 5, 1],
        [310, 300, 2, 1],
        // A pattern of labels that is longer than a chunk.
        [4, 3, 257, 1],
    ];
    for sizes in sizes {
        for form in FORMS {
            for semiring in SEMIRINGS {
                for durations in ["1..K-1", "1..K"] {
                    let options = format!("{form} {semiring} durations={durations} lengths=random");
                    case(sizes, &options).conforms_everywhere(place);
                }
            }
        }
    }
}

#[test]
fn checkpoints_change_no_bit() {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let case = case([300, 7, 5, 2], &format!("{form} {semiring} lengths=random"));
            let outputs = |backend| case.outputs(backend, Phase::Both, &CanonicalShape::default());
            assert_eq!(outputs("fused"), outputs("fused_checkpointing"));
        }
    }
}

#[test]
fn the_shortest_sequences_conform() {
    the_shortest_sequences(Place::Cpu);
}

pub(super) fn the_shortest_sequences(place: Place) {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let problem = problem([12, 4, 3, 4], &format!("{form} {semiring}"));
            let mut inputs = problem.generate(&InputKey([42; 32]));
            inputs.insert("lengths".to_owned(), Tensor::i64([4], vec![1, 2, 12, 11]));
            with_inputs(problem, inputs, format!("{form} {semiring}")).conforms_everywhere(place);
        }
    }
}

#[test]
fn the_largest_point_of_the_paper_conforms() {
    the_largest_point_of_the_paper(Place::Cpu);
}

pub(super) fn the_largest_point_of_the_paper(place: Place) {
    for form in FORMS {
        for semiring in SEMIRINGS {
            let case = case([1024, 24, 12, 2], &format!("{form} {semiring}"));
            case.conforms(place, "fused", Phase::Both, &CanonicalShape::default());
            case.conforms(
                place,
                "fused_checkpointing",
                Phase::Both,
                &CanonicalShape::default(),
            );
        }
    }
}
