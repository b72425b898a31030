//! The arithmetic of an algorithm of cuBLASLt, by the library's own answer.

use std::ffi::c_void;

use cudarc::cublaslt::sys;
use sweeper_program::Precision;

use super::driver::Fault;

use sys::cublasLtMatmulAlgoCapAttributes_t as Capability;

/// Formats to which an algorithm rounds factors: a flag (`CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_*` of
/// cublasLt.h), its name, and the bits of its significands.
const FACTORS: [(u64, &str, u32); 4] = [
    (1 << 16, "f16", 11),
    (2 << 16, "bf16", 8),
    (4 << 16, "tf32", 11),
    (8 << 16, "f32", 24),
];

/// Sums are in f16 (`CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F`).
const SUMS_IN_F16: u64 = 1 << 8;

/// Checks that an algorithm multiplies at least as exactly as was asked for.
///
/// # Errors
/// A coarser arithmetic.
#[expect(unsafe_code, reason = "a call of the library")]
pub(super) fn check(algorithm: &sys::cublasLtMatmulAlgo_t, asked: Precision) -> Result<(), Fault> {
    let (mut flags, mut written) = (0u64, 0usize);
    // SAFETY: the algorithm was chosen by the library; the pointer is to as many bytes as are told.
    let answer = unsafe {
        sys::cublasLtMatmulAlgoCapGetAttribute(
            algorithm,
            Capability::CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS,
            (&raw mut flags).cast::<c_void>(),
            size_of::<u64>(),
            &raw mut written,
        )
    };
    if answer != sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        // A version that does not tell.
        return Ok(());
    }
    coarser(flags, asked).map_or(Ok(()), |found| Err(Fault::refused(found)))
}

/// In what an algorithm with these flags is coarser than was asked for, in words.
fn coarser(flags: u64, asked: Precision) -> Option<String> {
    let (name, needed) = match asked {
        Precision::F32 => ("f32", 24),
        Precision::Tf32 => ("tf32", 11),
        Precision::Bf16 => ("bf16", 8),
    };
    if flags & SUMS_IN_F16 != 0 {
        return Some(format!(
            "cuBLASLt's algorithm adds up in f16, where products in {name} were asked for"
        ));
    }
    let is_coarse = |&&(flag, _, bits): &&(u64, &str, u32)| flags & flag != 0 && bits < needed;
    let (_, found, _) = FACTORS.iter().find(is_coarse)?;
    Some(format!(
        "cuBLASLt's algorithm rounds factors to {found}, where {name} was asked for"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of fused multiply-adds and of tensor cores, with sums in f32.
    const FMA: u64 = 1 | 2 << 8;
    const TENSORS: u64 = 2 | 2 << 8;

    #[test]
    fn coarser_arithmetic_is_refused_and_finer_is_not() {
        assert_eq!(coarser(FMA | 8 << 16, Precision::F32), None);
        assert_eq!(coarser(FMA | 8 << 16, Precision::Tf32), None);
        assert_eq!(coarser(TENSORS | 4 << 16, Precision::Tf32), None);
        assert_eq!(coarser(TENSORS | 2 << 16, Precision::Bf16), None);
        assert_eq!(coarser(0, Precision::F32), None);
        let found = coarser(TENSORS | 4 << 16, Precision::F32).unwrap();
        assert_eq!(
            found,
            "cuBLASLt's algorithm rounds factors to tf32, where f32 was asked for"
        );
        assert!(coarser(TENSORS | 2 << 16, Precision::Tf32).is_some());
        assert!(coarser(TENSORS & !(2 << 8) | 1 << 8 | 1 << 16, Precision::Bf16).is_some());
    }
}
