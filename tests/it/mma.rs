//! Products of warps on tensor cores (`mma.h`), as the shim has them: which numbers lanes hold.

use std::borrow::Cow;

use sweeper_program::headers::{CUDA_H, FACTORS_H, MMA_H};

use sweeper_program::workload::TensorSpec;
use sweeper_program::{
    Arg, Binding, Dtype, Geometry, Kernel, KernelSource, Language, Program, Role, SourceFile, Step,
    Tensor, Tensors,
};

use crate::shim::{self, Mode};

/// `a` has 16 rows, `b` 16 columns; both are over 32 bytes of factors. In bf16 `b` is read once by
/// its columns, and once by its rows, transposed.
const TEXT: &str = r#"
#include "mma.h"
#if BF16
typedef Bf16 Number;
#define OVER 16
#else
typedef Tf32 Number;
#define OVER 8
#endif
DEVICE void put(unsigned char *tile, int at, float x) {
#if BF16
    ((unsigned short *)tile)[at] = (unsigned short)round_to_bf16_pair(x, 0.0f);
#else
    ((float *)tile)[at] = round_to_tf32(x);
#endif
}
DEVICE void store(float *to, const float *sums, int lane) {
    for (int i = 0; i < 8; i++) to[(lane / 4 + i % 4 / 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}
KERNEL(products, 32, 1)(const float *a, const float *b, float *by_columns, float *by_rows) {
    SHARED(memory);
    unsigned char *of_a = (unsigned char *)memory, *columns = of_a + 512, *rows = columns + 512;
    const int lane = threadIdx.x;
    for (int i = lane; i < 16 * OVER; i += 32) {
        const int line = i / OVER, at = i % OVER;
        put(of_a, i, a[i]), put(columns, i, b[at * 16 + line]), put(rows, at * 16 + line, b[at * 16 + line]);
    }
    __syncthreads();
    unsigned x[4], y[4];
    load_matrices(x, of_a + lane % 16 * 32 + lane / 16 * 16);
    load_matrices(y, columns + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16);
    float sums[8] = {};
    multiply_add(sums, x, y, Number()), multiply_add(sums + 4, x, y + 2, Number());
    store(by_columns, sums, lane);
#if BF16
    load_matrices_transposed(y, rows + lane % 16 * 32 + lane / 16 * 16);
    for (int i = 0; i < 8; i++) sums[i] = 0.0f;
    multiply_add(sums, x, y, Number()), multiply_add(sums + 4, x, y + 2, Number());
#endif
    store(by_rows, sums, lane);
}
"#;

fn program(is_bf16: bool, over: usize) -> Program {
    let mut program = Program::default();
    let files = [
        SourceFile::embedded("products.cu", TEXT),
        MMA_H,
        FACTORS_H,
        CUDA_H,
    ];
    let kernel = program.kernel(Kernel::Compiled(KernelSource {
        language: Language::Cuda,
        files: Cow::Owned(files.to_vec()),
        entry: "products".into(),
        defines: vec![KernelSource::define("BF16", u32::from(is_bf16))],
        options: Vec::new(),
        user: None,
    }));
    let mut args = vec![];
    for name in ["a", "b"] {
        let given = program.buffer(name, Dtype::F32, 16 * over, Role::Input, Binding::Given);
        args.push(Arg::Read(program.all(given)));
    }
    for name in ["by_columns", "by_rows"] {
        let result = program.buffer(name, Dtype::F32, 256, Role::Output, Binding::Result);
        args.push(Arg::Write(program.all(result)));
    }
    let geometry = Geometry {
        shared_bytes: 1536,
        ..Geometry::linear(1, 32)
    };
    program.steps.push(Step::Launch {
        kernel,
        geometry,
        args,
    });
    program
}

/// Small whole numbers, all sums of which are exact in any order.
#[test]
fn warps_multiply_matrices() {
    if !shim::is_here() {
        return;
    }
    for (is_bf16, over) in [(true, 16), (false, 8)] {
        let a: Vec<f32> = (0..16 * over)
            .map(|i| (i * 37 % 101) as f32 - 50.0)
            .collect();
        let b: Vec<f32> = (0..16 * over)
            .map(|i| (i * 53 % 97) as f32 - 48.0)
            .collect();
        let product = |i: usize| -> f32 {
            let (row, column) = (i / 16, i % 16);
            (0..over)
                .map(|k| a[row * over + k] * b[k * 16 + column])
                .sum()
        };
        let expected: Vec<f32> = (0..256).map(product).collect();
        let inputs: Tensors = [
            ("a".to_owned(), Tensor::f32([16, over], a.clone())),
            ("b".to_owned(), Tensor::f32([over, 16], b.clone())),
        ]
        .into_iter()
        .collect();
        let specs = ["by_columns", "by_rows"].map(|name| TensorSpec {
            name: name.to_owned(),
            shape: vec![16, 16],
            dtype: Dtype::F32,
        });
        let found = shim::run(&program(is_bf16, over), &inputs, &specs, Mode::Sanitized);
        for spec in &specs {
            assert_eq!(
                found[&spec.name].as_f32(),
                Some(&expected[..]),
                "{}",
                spec.name
            );
        }
    }
}
