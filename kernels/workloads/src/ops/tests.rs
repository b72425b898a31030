//! Operations against loops that do one element at a time, over shapes around the widths of blocks.

use super::*;
use sweeper_program::builtin::{Builtin, Call, CallArg, Slice, SliceMut};

const LENGTHS: [usize; 12] = [1, 2, 3, 5, 8, 12, 15, 16, 17, 31, 40, 600];

fn values(len: usize) -> Vec<f32> {
    (0..len).map(|at| (at * 37 % 101) as f32 - 50.0).collect()
}

fn run(builtin: Builtin, reads: &[&[f32]], writes: Vec<SliceMut<'_>>, ints: &[i64]) {
    let reads = reads.iter().map(|values| CallArg::Read(Slice::F32(values)));
    let writes = writes.into_iter().map(|write| CallArg::Write(Some(write)));
    let ints = ints.iter().map(|&value| CallArg::Int(value));
    (builtin.function)(&mut Call::new(reads.chain(writes).chain(ints).collect()));
}

fn ints<const N: usize>(values: [usize; N]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

#[test]
fn broadcast_operations() {
    for row in LENGTHS {
        let (a, b) = (values(6 * row), values(2 * row));
        let mut out = vec![f32::NAN; 6 * row];
        // (2, 3, 1, row) and (2, 1, 1, row).
        let mut args = ints([2, 3, 1, row, 0, 3 * row, row, 0, 1]);
        args.extend(ints([0, row, 0, 0, 1]));
        run(SUB, &[&a, &b], vec![SliceMut::F32(&mut out)], &args);
        let expected = |at: usize| a[at] - b[at / (3 * row) * row + at % row];
        assert!(
            out.iter().enumerate().all(|(at, &x)| x == expected(at)),
            "{row}"
        );

        // The other way round, one element of b for each row.
        let mut args = ints([1, 2, 3, row, 0, 0, 3, 1, 0]);
        args.extend(ints([0, 0, 3 * row, row, 1]));
        let firsts = values(6);
        run(SUB, &[&firsts, &a], vec![SliceMut::F32(&mut out)], &args);
        let expected = |at: usize| firsts[at / row] - a[at];
        assert!(
            out.iter().enumerate().all(|(at, &x)| x == expected(at)),
            "{row}"
        );

        // One element of b for each row of x, in place.
        let mut x = a.clone();
        let args = ints([1, 1, 6, row, 0, 0, 0, 1, 0, 0, 0, 0, row, 1]);
        run(
            MUL_IN_PLACE,
            &[&values(6)],
            vec![SliceMut::F32(&mut x)],
            &args,
        );
        let expected = |at: usize| a[at] * values(6)[at / row];
        assert!(
            x.iter().enumerate().all(|(at, &x)| x == expected(at)),
            "{row}"
        );
    }
}

#[test]
fn steps_may_be_negative() {
    let x = values(12);
    let mut out = vec![0.0; 12];
    // Rows of 4 in reverse, and each row turned round.
    let args = [1, 1, 3, 4, 11, 0, 0, -4, -1, 0, 0, 0, 4, 1];
    run(COPY, &[&x], vec![SliceMut::F32(&mut out)], &args);
    let reversed: Vec<f32> = x.iter().rev().copied().collect();
    assert_eq!(out, reversed);
}

#[test]
fn reductions_of_all_shapes() {
    for first in [1, 2, 4, 9] {
        for (kept, last) in LENGTHS
            .into_iter()
            .flat_map(|kept| [(kept, 1), (kept, 12), (3, kept)])
        {
            let x = values(2 * first * kept * last);
            let term = |outer: usize, one: usize, keep: usize, two: usize| {
                x[((outer * first + one) * kept + keep) * last + two]
            };
            let (mut sum, mut most) = (vec![f32::NAN; 2 * kept], vec![f32::NAN; 2 * kept]);
            let (mut best, mut index) = (most.clone(), vec![-1; 2 * kept]);
            let args = ints([2, first, kept, last]);
            run(SUM, &[&x], vec![SliceMut::F32(&mut sum)], &args);
            run(AMAX, &[&x], vec![SliceMut::F32(&mut most)], &args);
            let writes = vec![SliceMut::F32(&mut best), SliceMut::I64(&mut index)];
            run(ARGMAX, &[&x], writes, &args);
            for at in 0..2 * kept {
                let terms = (0..first * last)
                    .map(|number| term(at / kept, number / last, at % kept, number % last));
                let terms: Vec<f32> = terms.collect();
                let expected = terms.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let place = terms.iter().position(|&term| term == expected);
                let shape = [first, kept, last];
                // Sums of few small whole numbers are exact in any order.
                assert_eq!(sum[at], terms.iter().sum::<f32>(), "{shape:?}");
                assert_eq!((most[at], best[at]), (expected, expected), "{shape:?}");
                assert_eq!(Some(index[at] as usize), place, "{shape:?}");
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let (a, b) = (values(200_000), values(500));
    let all = || {
        let mut out = vec![0.0; a.len()];
        let args = ints([1, 400, 1, 500, 0, 0, 500, 0, 1, 0, 0, 0, 0, 1]);
        run(ADD, &[&a, &b], vec![SliceMut::F32(&mut out)], &args);
        let mut exponentials = vec![0.0; a.len()];
        run(
            EXP,
            &[&out],
            vec![SliceMut::F32(&mut exponentials)],
            &ints([a.len()]),
        );
        run(
            ADD_IN_PLACE,
            &[&b],
            vec![SliceMut::F32(&mut out)],
            &ints([1, 400, 1, 500, 0, 0, 0, 0, 1, 0, 0, 500, 0, 1]),
        );
        let mut sums = vec![0.0; 400];
        run(
            SUM,
            &[&out],
            vec![SliceMut::F32(&mut sums)],
            &ints([400, 1, 1, 500]),
        );
        (out, exponentials, sums)
    };
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let [one, two] = [1, 3].map(|threads| pool(threads).expect("threads").install(all));
    assert!(one == two);
}

/// Rows that go back in memory, as far as they are long and farther.
#[test]
fn rows_may_go_back() {
    for row in [7, 8, 9, 12, 15, 16] {
        for step in [row, row + 3, 4 * row] {
            let (count, planes) = (5, 2);
            let (a, b) = (values(planes * row), values(planes * count * step + row));
            let start = |plane: usize| (plane + 1) * count * step - step;
            let mut args = ints([planes, count, row, 1, 0, row, 0, 1, 0]);
            args.extend([start(0), count * step].map(|at| at as i64));
            args.extend([-(step as i64), 1, 0]);
            let mut out = vec![f32::NAN; planes * count * row];
            run(SUB, &[&a, &b], vec![SliceMut::F32(&mut out)], &args);
            let place = |at: usize| {
                let (plane, number) = (at / (count * row), at / row % count);
                start(plane) - number * step + at % row
            };
            for (at, &x) in out.iter().enumerate() {
                let expected = a[at / (count * row) * row + at % row] - b[place(at)];
                assert_eq!(x, expected, "{row} {step} {at}");
            }
            // In place, from dense rows.
            let from = values(planes * count * row);
            let mut args = ints([planes, count, row, 1, 0, count * row, row, 1, 0]);
            args.extend([start(0), count * step].map(|at| at as i64));
            args.extend([-(step as i64), 1, 0]);
            let mut x = b.clone();
            run(ADD_IN_PLACE, &[&from], vec![SliceMut::F32(&mut x)], &args);
            let mut expected = b.clone();
            for (at, from) in from.iter().enumerate() {
                expected[place(at)] += from;
            }
            assert_eq!(x, expected, "{row} {step}");
        }
    }
}

#[test]
fn dense_rows_in_place() {
    for row in LENGTHS {
        let (b, mut x) = (values(row), vec![0.5; row]);
        let args = ints([1, 1, 1, row, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
        run(ADD_IN_PLACE, &[&b], vec![SliceMut::F32(&mut x)], &args);
        assert!(x.iter().zip(&b).all(|(x, b)| *x == 0.5 + b), "{row}");
    }
}

/// Rows that end within a vector, and at its end.
#[test]
fn differences_and_greatest_of_f64_rows() {
    for (inner, outer) in LENGTHS
        .into_iter()
        .chain([64, 65, 276])
        .zip([1, 2, 3, 4].into_iter().cycle())
    {
        let x: Vec<f64> = values(outer * inner)
            .iter()
            .map(|&x| f64::from(x) / 3.0)
            .collect();
        let reference: Vec<f64> = (0..outer).map(|row| 0.1 + row as f64).collect();
        let mut out = vec![f32::NAN; outer * inner];
        let args = vec![
            CallArg::Read(Slice::F64(&x)),
            CallArg::Read(Slice::F64(&reference)),
            CallArg::Write(Some(SliceMut::F32(&mut out))),
            CallArg::Int(outer as i64),
            CallArg::Int(inner as i64),
        ];
        (RELATIVE.function)(&mut Call::new(args));
        for (at, &out) in out.iter().enumerate() {
            assert_eq!(
                out,
                (x[at] - reference[at / inner]) as f32,
                "{outer} x {inner}, {at}"
            );
        }

        let mut most = vec![f64::NAN; outer];
        let args = vec![
            CallArg::Read(Slice::F64(&x)),
            CallArg::Write(Some(SliceMut::F64(&mut most))),
            CallArg::Int(outer as i64),
            CallArg::Int(1),
            CallArg::Int(1),
            CallArg::Int(inner as i64),
        ];
        (AMAX_F64.function)(&mut Call::new(args));
        let expected = x
            .chunks(inner)
            .map(|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        assert_eq!(most, expected.collect::<Vec<_>>(), "{outer} x {inner}");
    }
}
