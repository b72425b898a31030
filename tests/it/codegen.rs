//! Generated kernels compute what their nests mean: C on the CPU device, CUDA on the shim.

use sweeper_kernels::nest::{Nest, Parts};

/// What a nest means.
mod interpret;
/// The CPU device.
mod cpu;
/// Running and comparing.
mod harness;
/// Nests to run.
mod nests;

use harness::{Case, Place};

const COLUMNS: [u64; 9] = [1, 2, 15, 16, 17, 1023, 1024, 1025, 4097];
const CPU: Place = Place::Cpu(1);

fn all_nests() -> Vec<Nest> {
    vec![
        nests::layernorm(),
        nests::layernorm_backward(),
        nests::softmax(),
        nests::cross_entropy(),
        nests::gelu_of_bias(),
        nests::squared_error(),
        nests::mean_of_all(),
        nests::column_sum(Parts::Many),
        nests::column_sum(Parts::One),
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
