//! Calls of a library on the host: products of matrices by the crate `gemm-f32`.

use gemm_common::Parallelism;
use rayon::prelude::*;
use sweeper_program::{Activation, Conv2d, ConvPass, Library, Matmul, Matrix, Precision};

/// Memory of a call: addresses of its arguments, in order.
pub type Addresses<'a> = &'a [usize];

/// Why a call can't be made on a CPU, in words.
pub fn refusal(library: &Library) -> Option<String> {
    let (precision, is_plain) = match library {
        Library::Matmul(call) => (call.precision, call.activation == Activation::None),
        Library::Conv2d(call) => {
            let is_plain = !call.has_bias && call.activation == Activation::None;
            (call.precision, is_plain)
        }
        Library::Attention(_) => {
            return Some("attention by a library is computed on GPUs only, by cuDNN".to_owned());
        }
    };
    if precision != Precision::F32 {
        let name = precision.name();
        return Some(format!("products in {name} are computed on GPUs only"));
    }
    (!is_plain).then(|| "the host's library ends products in nothing but a bias".to_owned())
}

/// Runs one call. The arguments are those of the call's docs; [`refusal`] had no complaint.
pub fn run(library: &Library, args: Addresses<'_>) {
    match library {
        Library::Matmul(call) => matmul(call, args),
        Library::Conv2d(call) => conv2d(call, args),
        Library::Attention(_) => unreachable!("refused"),
    }
}

fn matmul(call: &Matmul, args: Addresses<'_>) {
    let (a, b, bias, out) = match args {
        [a, b, out] if !call.has_bias => (a, b, None, out),
        [a, b, bias, out] if call.has_bias => (a, b, Some(elements(*bias, call.n)), out),
        _ => unreachable!("a product has two factors, a bias if the call says so, and a result"),
    };
    if let Some(bias) = bias {
        // The product is added to it.
        let len = call.out.span(call.batch, call.m, call.n);
        let rows = elements_mut(*out, len).par_chunks_mut(call.n);
        rows.for_each(|row| row.copy_from_slice(&bias[..row.len()]));
    }
    let one = |index: usize, parallelism: Parallelism| {
        let at = |address: usize, matrix: &Matrix| address + 4 * index * matrix.batch_step;
        product(
            [call.m, call.n, call.k],
            (at(*a, &call.a), &call.a),
            (at(*b, &call.b), &call.b),
            (at(*out, &call.out), &call.out),
            Onto {
                scale: call.scale.get(),
                adds: bias.is_some(),
            },
            parallelism,
        );
    };
    let threads = rayon::current_num_threads();
    // Small matrices of a batch are shared out whole; large ones are cut.
    if call.batch >= threads && threads > 1 {
        let each = (0..call.batch).into_par_iter();
        each.for_each(|index| one(index, Parallelism::None));
    } else {
        (0..call.batch).for_each(|index| one(index, parallelism(threads)));
    }
}

fn parallelism(threads: usize) -> Parallelism {
    match threads {
        1 => Parallelism::None,
        threads => Parallelism::Rayon(threads),
    }
}

/// How a product gets into its result.
#[derive(Clone, Copy)]
struct Onto {
    /// The factor of the product.
    scale: f32,
    /// Whether the product is added to the result's old value.
    adds: bool,
}

/// `out = scale a b`, or `out += scale a b`, for matrices at these addresses.
#[expect(unsafe_code, reason = "the library takes pointers")]
fn product(
    [m, n, k]: [usize; 3],
    (a, in_a): (usize, &Matrix),
    (b, in_b): (usize, &Matrix),
    (out, in_out): (usize, &Matrix),
    Onto { scale, adds }: Onto,
    parallelism: Parallelism,
) {
    // The library wants columns that lie further apart than rows do; else it is the product of the
    // transposes.
    let is_transposed = in_out.column_step < in_out.row_step;
    let (m, n, out_steps, left, right) = match is_transposed {
        true => (
            n,
            m,
            exchanged(in_out),
            (b, exchanged(in_b)),
            (a, exchanged(in_a)),
        ),
        false => (m, n, *in_out, (a, *in_a), (b, *in_b)),
    };
    // SAFETY: the launch's views span the matrices (`Program::validate` checks that they lie inside
    // their buffers, and `check_writes_are_exclusive` that `out` is apart from the others).
    unsafe {
        (gemm_f32::gemm::f32::get_gemm_fn())(
            m,
            n,
            k,
            out as *mut f32,
            out_steps.column_step as isize,
            out_steps.row_step as isize,
            adds,
            left.0 as *const f32,
            left.1.column_step as isize,
            left.1.row_step as isize,
            right.0 as *const f32,
            right.1.column_step as isize,
            right.1.row_step as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The transpose of a matrix, with rows and columns exchanged.
const fn exchanged(matrix: &Matrix) -> Matrix {
    Matrix {
        row_step: matrix.column_step,
        column_step: matrix.row_step,
        batch_step: matrix.batch_step,
    }
}

/// Contiguous rows of `columns` elements.
const fn dense(columns: usize) -> Matrix {
    Matrix {
        row_step: columns,
        column_step: 1,
        batch_step: 0,
    }
}

const fn transposed(columns: usize) -> Matrix {
    Matrix {
        row_step: 1,
        column_step: columns,
        batch_step: 0,
    }
}

/// Elements that a view of the launch spans, to read.
#[expect(unsafe_code, reason = "memory that the launch's views span")]
fn elements<'a>(address: usize, len: usize) -> &'a [f32] {
    // SAFETY: views lie inside their buffers (`Program::validate`), here of f32; no other view of
    // the launch overlaps one that is written (`check_writes_are_exclusive`).
    unsafe { std::slice::from_raw_parts(address as *const f32, len) }
}

/// Elements that a view of the launch spans, to write.
#[expect(unsafe_code, reason = "memory that the launch's views span")]
fn elements_mut<'a>(address: usize, len: usize) -> &'a mut [f32] {
    // SAFETY: as in `elements`; and of each written view one slice is in use at a time.
    unsafe { std::slice::from_raw_parts_mut(address as *mut f32, len) }
}

/// One picture after the other, each unfolded so that a product with the kernel's matrix is the
/// convolution.
fn conv2d(call: &Conv2d, args: Addresses<'_>) {
    let &[one, other, result, scratch] = args else {
        unreachable!("a convolution has two operands, a result and scratch memory");
    };
    let [height, width] = call.out_picture();
    let (window, places) = (call.window(), height * width);
    let (x_len, out_len) = (
        call.channels_in * call.picture[0] * call.picture[1],
        call.channels_out * places,
    );
    let parallelism = parallelism(rayon::current_num_threads());
    let onto = |adds| Onto { scale: 1.0, adds };
    for index in 0..call.batch {
        let (x_at, out_at) = (4 * index * x_len, 4 * index * out_len);
        let len = call.scratch();
        let columns = (scratch, &dense(places));
        match call.pass {
            ConvPass::Forward => {
                let x = elements(one + x_at, x_len);
                unfold(call, x, elements_mut(scratch, len));
                product(
                    [call.channels_out, places, window],
                    (other, &dense(window)),
                    columns,
                    (result + out_at, &dense(places)),
                    onto(false),
                    parallelism,
                );
            }
            ConvPass::GradX => {
                product(
                    [window, places, call.channels_out],
                    (other, &transposed(window)),
                    (one + out_at, &dense(places)),
                    columns,
                    onto(false),
                    parallelism,
                );
                fold(
                    call,
                    elements(scratch, len),
                    elements_mut(result + x_at, x_len),
                );
            }
            ConvPass::GradW => {
                let x = elements(other + x_at, x_len);
                unfold(call, x, elements_mut(scratch, len));
                product(
                    [call.channels_out, window, places],
                    (one + out_at, &dense(places)),
                    (scratch, &transposed(places)),
                    (result, &dense(window)),
                    onto(index > 0),
                    parallelism,
                );
            }
        }
    }
}

/// For each element of the kernel's window: the channel, and how far it is from the window's
/// corner.
fn taps(call: &Conv2d) -> impl IndexedParallelIterator<Item = (usize, usize, usize)> + use<> {
    let [rows, columns] = call.kernel;
    (0..call.window()).into_par_iter().map(move |tap| {
        let (channel, place) = (tap / (rows * columns), tap % (rows * columns));
        (channel, place / columns, place % columns)
    })
}

/// Columns of a result's row whose tap at `offset` lies in the picture: from, to.
fn inside(call: &Conv2d, dim: usize, offset: usize) -> (usize, usize) {
    let out = call.out_picture()[dim];
    let from = call.padding.saturating_sub(offset).div_ceil(call.stride);
    let room = (call.picture[dim] + call.padding).saturating_sub(offset);
    let to = room.div_ceil(call.stride).min(out);
    (from.min(to), to)
}

/// Writes a picture as a matrix (window, places of the result), zeros where the kernel sticks out.
fn unfold(call: &Conv2d, picture: &[f32], unfolded: &mut [f32]) {
    let [height, width] = call.out_picture();
    let [rows, columns] = call.picture;
    let each = unfolded.par_chunks_mut(height * width).zip(taps(call));
    each.for_each(|(to, (channel, row, column))| {
        let from = &picture[channel * rows * columns..][..rows * columns];
        let ((top, bottom), (left, right)) = (inside(call, 0, row), inside(call, 1, column));
        to.fill(0.0);
        for y in top..bottom {
            let line = &from[(y * call.stride + row - call.padding) * columns..][..columns];
            let to = &mut to[y * width + left..][..right - left];
            // A step of one is a copy, and most have that.
            match call.stride {
                _ if to.is_empty() => {}
                1 => to.copy_from_slice(&line[left + column - call.padding..][..to.len()]),
                stride => {
                    let met = line[left * stride + column - call.padding..].iter();
                    let pairs = to.iter_mut().zip(met.step_by(stride));
                    pairs.for_each(|(to, met)| *to = *met);
                }
            }
        }
    });
}

/// The sum, for each element of a picture, over where [`unfold`] writes it.
fn fold(call: &Conv2d, unfolded: &[f32], picture: &mut [f32]) {
    let [height, width] = call.out_picture();
    let [rows, columns] = call.picture;
    let taps_of_channel = call.kernel[0] * call.kernel[1];
    let channels = picture.par_chunks_mut(rows * columns).enumerate();
    channels.for_each(|(channel, to)| {
        to.fill(0.0);
        for tap in 0..taps_of_channel {
            let (row, column) = (tap / call.kernel[1], tap % call.kernel[1]);
            let from = &unfolded[(channel * taps_of_channel + tap) * height * width..];
            let ((top, bottom), (left, right)) = (inside(call, 0, row), inside(call, 1, column));
            for y in top..bottom {
                let line = &mut to[(y * call.stride + row - call.padding) * columns..][..columns];
                for x in left..right {
                    line[x * call.stride + column - call.padding] += from[y * width + x];
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_program::Dtype;
    use sweeper_program::Scale;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn address(values: &[f32]) -> usize {
        values.as_ptr() as usize
    }

    #[test]
    fn products_of_a_batch_are_right_transposed_or_not_scaled_or_with_a_bias() {
        let (batch, m, n, k) = (3, 5, 7, 4);
        let (a, b) = (numbers(batch * m * k, 1), numbers(batch * k * n, 2));
        let bias = numbers(n, 3);
        for (b_is_transposed, scale, has_bias) in [
            (false, 1.0, false),
            (true, 1.0, false),
            (false, 0.125, false),
            (true, -3.0, true),
        ] {
            let out = vec![f32::NAN; batch * m * n];
            let lies = |matrix: Matrix, batch_step| Matrix {
                batch_step,
                ..matrix
            };
            let in_b = if b_is_transposed {
                transposed(k)
            } else {
                dense(n)
            };
            let call = Matmul {
                batch,
                m,
                n,
                k,
                a: lies(dense(k), m * k),
                b: lies(in_b, k * n),
                out: lies(dense(n), m * n),
                precision: Precision::F32,
                stores: Dtype::F32,
                scale: Scale::new(scale),
                has_bias,
                activation: Activation::None,
            };
            assert_eq!(refusal(&Library::Matmul(call)), None);
            let (a, out) = (&a, &out);
            let biases = has_bias.then(|| address(&bias));
            let args = [address(a), address(&b)].into_iter().chain(biases);
            let args: Vec<usize> = args.chain([address(out)]).collect();
            run(&Library::Matmul(call), &args);
            for (index, out) in out.iter().enumerate() {
                let (at, row, column) = (index / (m * n), index / n % m, index % n);
                let term = |inner: usize| {
                    let b_at = at * k * n + inner * in_b.row_step + column * in_b.column_step;
                    a[at * m * k + row * k + inner] * b[b_at]
                };
                let product: f32 = (0..k).map(term).sum();
                let expected = scale * product + if has_bias { bias[column] } else { 0.0 };
                assert!((out - expected).abs() < 1e-5, "{out} {expected}");
            }
        }
    }

    /// `out[o, y, x]` or its gradients, term by term.
    fn each_term(call: &Conv2d, mut term: impl FnMut(usize, usize, usize)) {
        let [height, width] = call.out_picture();
        for b in 0..call.batch {
            for o in 0..call.channels_out {
                for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                    for (channel, row, column) in taps(call).collect::<Vec<_>>() {
                        let (i, j) = (y * call.stride + row, x * call.stride + column);
                        let (Some(i), Some(j)) =
                            (i.checked_sub(call.padding), j.checked_sub(call.padding))
                        else {
                            continue;
                        };
                        if i >= call.picture[0] || j >= call.picture[1] {
                            continue;
                        }
                        let from = ((b * call.channels_in + channel) * call.picture[0] + i)
                            * call.picture[1]
                            + j;
                        let by = ((o * call.channels_in + channel) * call.kernel[0] + row)
                            * call.kernel[1]
                            + column;
                        let to = ((b * call.channels_out + o) * height + y) * width + x;
                        term(from, by, to);
                    }
                }
            }
        }
    }

    #[test]
    fn convolutions_and_their_gradients_are_sums_of_products() {
        for (stride, padding, picture, kernel) in [
            (1, 0, [5, 6], [3, 3]),
            (2, 1, [7, 4], [3, 2]),
            (3, 2, [4, 5], [1, 3]),
            (1, 3, [2, 2], [2, 3]),
        ] {
            let call = |pass| Conv2d {
                pass,
                batch: 2,
                channels_in: 3,
                channels_out: 4,
                picture,
                kernel,
                stride,
                padding,
                precision: Precision::F32,
                has_bias: false,
                activation: Activation::None,
            };
            let forward = call(ConvPass::Forward);
            let [height, width] = forward.out_picture();
            let x = numbers(2 * 3 * picture[0] * picture[1], 1);
            let w = numbers(4 * 3 * kernel[0] * kernel[1], 2);
            let out = numbers(2 * 4 * height * width, 3);
            let scratch = vec![f32::NAN; forward.scratch()];
            let computed = |pass, one: &[f32], other: &[f32], len| {
                let to = vec![f32::NAN; len];
                let args = [
                    address(one),
                    address(other),
                    address(&to),
                    address(&scratch),
                ];
                run(&Library::Conv2d(call(pass)), &args);
                to
            };
            let mut expected = [
                vec![0f32; out.len()],
                vec![0f32; x.len()],
                vec![0f32; w.len()],
            ];
            each_term(&forward, |from, by, to| {
                expected[0][to] += x[from] * w[by];
                expected[1][from] += out[to] * w[by];
                expected[2][by] += out[to] * x[from];
            });
            let found = [
                computed(ConvPass::Forward, &x, &w, out.len()),
                computed(ConvPass::GradX, &out, &w, x.len()),
                computed(ConvPass::GradW, &out, &x, w.len()),
            ];
            for (found, expected) in found.iter().zip(&expected) {
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
                }
            }
        }
    }
}
