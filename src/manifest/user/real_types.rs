//! A user's text with `double` for `float`: a reference that shows what rounding does to it, and no
//! mistake in its formula.

use std::fmt::Write as _;

use sweeper_program::Dtype;

use super::declaration::DeclaredLanguage;

/// The types in which a user's text computes with real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RealTypes {
    /// Those that are written there.
    AsWritten,
    /// f64 for f32.
    InF64,
}

/// Functions of `math.h` that have an `f` at the end of their names where they take `float`.
const FUNCTIONS: &str = "\
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp \
    exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ldexp lgamma log \
    log10 log1p log2 lrint lround modf nearbyint pow remainder rint round sin sincos \
    sinh sqrt tan tanh tgamma trunc rsqrt rcbrt";

/// Functions of CUDA for `float` alone, and what they compute.
const INTRINSICS: [(&str, &str); 15] = [
    ("__cosf(x)", "cos(x)"),
    ("__exp10f(x)", "exp10(x)"),
    ("__expf(x)", "exp(x)"),
    ("__fadd_rn(x, y)", "((x) + (y))"),
    ("__fdividef(x, y)", "((x) / (y))"),
    ("__fmaf_rn(x, y, z)", "fma(x, y, z)"),
    ("__fmul_rn(x, y)", "((x) * (y))"),
    ("__frcp_rn(x)", "(1.0 / (x))"),
    ("__frsqrt_rn(x)", "rsqrt(x)"),
    ("__fsqrt_rn(x)", "sqrt(x)"),
    ("__log10f(x)", "log10(x)"),
    ("__log2f(x)", "log2(x)"),
    ("__logf(x)", "log(x)"),
    ("__powf(x, y)", "pow(x, y)"),
    ("__sinf(x)", "sin(x)"),
];

/// Words of texts that compute with more than `float` and `double`: vectors of processors, vectors
/// and short types of CUDA, bits, other languages.
const UNKNOWN: [&str; 14] = [
    "_mm",
    "__m128",
    "__m256",
    "__m512",
    "float32x",
    "vector_size",
    "float2",
    "float3",
    "float4",
    "half",
    "bfloat16",
    "asm",
    "union",
    "__builtin_",
];

impl RealTypes {
    /// The type of a tensor or a scalar that is declared with this one.
    pub(super) fn dtype(self, declared: Dtype) -> Dtype {
        match (self, declared) {
            (RealTypes::InF64, Dtype::F32) => Dtype::F64,
            (_, declared) => declared,
        }
    }
}

/// Whether a text seems to mean the same with `double` for `float`.
pub(crate) fn can_be_in_f64(text: &str) -> bool {
    !UNKNOWN.iter().any(|word| text.contains(word))
}

/// What stands before a user's text so that it computes in f64.
pub(super) fn prelude(language: DeclaredLanguage) -> String {
    let mut text = String::new();
    if language == DeclaredLanguage::C {
        // These have functions of `float`; where the text includes them, they are empty.
        text += "#include <float.h>\n#include <math.h>\n#include <stdlib.h>\n\
                 #undef FLT_EPSILON\n#undef FLT_MAX\n#undef FLT_MIN\n\
                 #define FLT_EPSILON DBL_EPSILON\n#define FLT_MAX DBL_MAX\n\
                 #define FLT_MIN DBL_MIN\n";
    }
    text += "#define float double\n";
    for name in FUNCTIONS.split_whitespace() {
        let _ = writeln!(text, "#define {name}f {name}");
    }
    if language == DeclaredLanguage::Cuda {
        for (call, meaning) in INTRINSICS {
            let _ = writeln!(text, "#define {call} {meaning}");
        }
    }
    text
}
