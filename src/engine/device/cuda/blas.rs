//! Products of matrices by cuBLASLt.

use std::ffi::c_void;
use std::rc::Rc;

use cudarc::cublaslt::{result as lt, sys};
use sweeper_program::tensor::Dtype;
use sweeper_program::{Activation, Library, Matmul, Matrix, Precision};

use super::driver::Fault;
use super::numerics;

use sys::cublasLtMatmulDescAttributes_t as Of;
use sys::cublasLtMatmulPreferenceAttributes_t as Wish;
use sys::cublasLtMatrixLayoutAttribute_t as Lies;

/// The library, once it was opened.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
}

impl Blas {
    /// Opens the library, which [`super::calls`] found and loaded.
    ///
    /// # Errors
    /// The library's.
    pub fn open() -> Result<Rc<Self>, Fault> {
        let handle = lt::create_handle().map_err(|error| said("opening cuBLASLt", &error))?;
        Ok(Rc::new(Blas { handle }))
    }
}

impl Drop for Blas {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once; plans hold an `Rc` of it.
        let _ = unsafe { lt::destroy_handle(self.handle) };
    }
}

fn said(doing: &str, error: &lt::CublasError) -> Fault {
    Fault::refused(format!("{doing}: {:?}", error.0))
}

/// How one matrix lies, as the library sees it: column by column.
struct Layout {
    handle: sys::cublasLtMatrixLayout_t,
    /// Whether the matrix in memory is the transpose of the operand.
    is_transposed: bool,
}

impl Layout {
    /// The layout of a matrix of `rows` and `columns`, whose transpose the library is to see: a
    /// product that is stored row by row is, column by column, the product of the transposes in
    /// reverse order.
    #[expect(unsafe_code, reason = "calls of the library")]
    fn of_transpose(
        matrix: &Matrix,
        rows: usize,
        columns: usize,
        batch: usize,
        kind: sys::cudaDataType,
    ) -> Result<Self, Fault> {
        // An extent of 1 has no step: any will do.
        let by_rows = matrix.column_step == 1 || columns == 1;
        let by_columns = matrix.row_step == 1 || rows == 1;
        let (is_transposed, high, wide, apart) = match (by_rows, by_columns) {
            (true, _) => (false, columns, rows, matrix.row_step),
            (false, true) => (true, rows, columns, matrix.column_step),
            (false, false) => {
                let steps = (matrix.row_step, matrix.column_step);
                return Err(Fault::refused(format!(
                    "a matrix with steps {steps:?} has no contiguous dimension"
                )));
            }
        };
        let doing = |error: lt::CublasError| said("describing a matrix", &error);
        let apart = apart.max(high) as i64;
        let handle =
            lt::create_matrix_layout(kind, high as u64, wide as u64, apart).map_err(doing)?;
        let layout = Layout {
            handle,
            is_transposed,
        };
        let (count, step) = (batch as i32, matrix.batch_step as i64);
        // SAFETY: the handle was just made; both pointers are to numbers of the sizes that are
        // told.
        unsafe {
            let count = (&raw const count).cast::<c_void>();
            let step = (&raw const step).cast::<c_void>();
            let name = Lies::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            lt::set_matrix_layout_attribute(handle, name, count, 4).map_err(doing)?;
            let name = Lies::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            lt::set_matrix_layout_attribute(handle, name, step, 8).map_err(doing)?;
        }
        Ok(layout)
    }
}

impl Drop for Layout {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { lt::destroy_matrix_layout(self.handle) };
    }
}

/// The computation with the matrices.
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn set<T>(&self, attribute: Of, value: T) -> Result<(), Fault> {
        let pointer = (&raw const value).cast::<c_void>();
        // SAFETY: the description lives as long as `self`; the pointer is to as many bytes as are
        // told.
        unsafe { lt::set_matmul_desc_attribute(self.0, attribute, pointer, size_of::<T>()) }
            .map_err(|error| said("describing a product", &error))
    }
}

impl Drop for Description {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { lt::destroy_matmul_desc(self.0) };
    }
}

/// The library's conditions for choosing an algorithm.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

/// A product that is ready to be launched.
pub struct Product {
    blas: Rc<Blas>,
    call: Matmul,
    description: Description,
    /// The library's operands are ours in reverse order: `b`, `a`.
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes of scratch memory that the algorithm takes.
    scratch_bytes: usize,
}

impl Product {
    /// Chooses how `call` is computed, with `scratch_bytes` of scratch memory, where operands start
    /// at multiples of `alignment` bytes.
    ///
    /// # Errors
    /// A call that the library can't do, or for which it chooses a coarser arithmetic.
    pub fn new(
        blas: &Rc<Blas>,
        call: &Matmul,
        scratch_bytes: usize,
        alignment: u32,
    ) -> Result<Self, Fault> {
        let kind = |is_bf16: bool| match is_bf16 {
            true => sys::cudaDataType::CUDA_R_16BF,
            false => sys::cudaDataType::CUDA_R_32F,
        };
        let of_factors = kind(call.precision == Precision::Bf16);
        let of_result = kind(call.stores == Dtype::Bf16);
        let layouts = [
            Layout::of_transpose(&call.b, call.k, call.n, call.batch, of_factors)?,
            Layout::of_transpose(&call.a, call.m, call.k, call.batch, of_factors)?,
            Layout::of_transpose(&call.out, call.m, call.n, call.batch, of_result)?,
        ];
        if layouts[2].is_transposed {
            return Err(Fault::refused("a product is stored row by row"));
        }
        let description = describe(call, &layouts)?;
        let (algorithm, scratch_bytes) =
            choose(blas, &description, &layouts, scratch_bytes, alignment)?;
        numerics::check(&algorithm, call.precision)?;
        Ok(Product {
            blas: Rc::clone(blas),
            call: *call,
            description,
            layouts,
            algorithm,
            scratch_bytes,
        })
    }

    /// Whether an argument is not accessed: scratch memory that the algorithm does not take.
    pub fn ignores(&self, arg: usize) -> bool {
        let operands = Library::Matmul(self.call).operand_lens().len();
        arg >= operands && self.scratch_bytes == 0
    }

    /// Queues the product of operands at these addresses: `a`, `b`, the bias if there is one,
    /// `out`, and scratch memory if there is any.
    ///
    /// # Errors
    /// The library's.
    #[expect(unsafe_code, reason = "a call of the library")]
    pub fn launch(&self, args: &[u64], stream: *mut c_void) -> Result<(), Fault> {
        let (a, b) = (args[0], args[1]);
        let rest = &args[2..];
        let rest = match self.call.has_bias {
            true => {
                let bias = Of::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
                self.description.set(bias, rest[0])?;
                &rest[1..]
            }
            false => rest,
        };
        let scratch = rest.get(1).copied().unwrap_or(0);
        let (scale, zero) = (self.call.scale.get(), 0f32);
        let [in_b, in_a, in_out] = &self.layouts;
        // SAFETY: everything lives as long as `self`; the operands' views span the call's matrices
        // (`check_library_launch`), and the factors are read before the call returns.
        unsafe {
            lt::matmul(
                self.blas.handle,
                self.description.0,
                (&raw const scale).cast(),
                (&raw const zero).cast(),
                b as *const c_void,
                in_b.handle,
                a as *const c_void,
                in_a.handle,
                rest[0] as *const c_void,
                in_out.handle,
                rest[0] as *mut c_void,
                in_out.handle,
                &raw const self.algorithm,
                scratch as *mut c_void,
                self.scratch_bytes,
                stream.cast(),
            )
        }
        .map_err(|error| said("launching a product", &error))
    }
}

fn describe(call: &Matmul, layouts: &[Layout; 3]) -> Result<Description, Fault> {
    use sys::cublasComputeType_t as Compute;
    use sys::cublasLtEpilogue_t as Epilogue;
    let compute = match call.precision {
        // With `CUBLAS_COMPUTE_32F_FAST_16BF` the library chooses how to round factors in f32, and
        // chooses tf32.
        Precision::F32 | Precision::Bf16 => Compute::CUBLAS_COMPUTE_32F,
        Precision::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
    };
    let description = lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)
        .map(Description)
        .map_err(|error| said("describing a product", &error))?;
    // 0 as it lies, 1 transposed.
    let [b, a, _] = layouts
        .each_ref()
        .map(|layout| i32::from(layout.is_transposed));
    description.set(Of::CUBLASLT_MATMUL_DESC_TRANSA, b)?;
    description.set(Of::CUBLASLT_MATMUL_DESC_TRANSB, a)?;
    let epilogue = match (call.has_bias, call.activation) {
        (false, Activation::None) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
        (true, Activation::None) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
        (false, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU,
        (true, Activation::Relu) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
        (false, Activation::GeluTanh) => Epilogue::CUBLASLT_EPILOGUE_GELU,
        (true, Activation::GeluTanh) => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
    };
    description.set(Of::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
    Ok(description)
}

/// The library's first choice of an algorithm, and the bytes of scratch memory that it takes.
#[expect(unsafe_code, reason = "calls of the library")]
fn choose(
    blas: &Blas,
    description: &Description,
    [in_b, in_a, in_out]: &[Layout; 3],
    scratch_bytes: usize,
    alignment: u32,
) -> Result<(sys::cublasLtMatmulAlgo_t, usize), Fault> {
    let doing = |error: lt::CublasError| said("choosing how to multiply", &error);
    let preference = lt::create_matmul_pref().map(Preference).map_err(doing)?;
    let set = |wish, pointer: *const c_void, size| {
        // SAFETY: the preference was just made; the pointer is to as many bytes as are told.
        unsafe { lt::set_matmul_pref_attribute(preference.0, wish, pointer, size) }.map_err(doing)
    };
    let bytes = (&raw const scratch_bytes).cast();
    set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes, 8)?;
    for wish in [
        Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        set(wish, (&raw const alignment).cast(), 4)?;
    }
    // SAFETY: all of them live until the call returns.
    let chosen = unsafe {
        lt::get_matmul_algo_heuristic(
            blas.handle,
            description.0,
            in_b.handle,
            in_a.handle,
            in_out.handle,
            in_out.handle,
            preference.0,
        )
    };
    let chosen = chosen.map_err(doing)?;
    Ok((chosen.algo, chosen.workspaceSize))
}
