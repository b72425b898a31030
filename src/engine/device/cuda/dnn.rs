//! Convolutions by cuDNN.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use cudarc::cudnn::{result as dnn, sys};
use sweeper_program::{Activation, Conv2d, ConvPass, Precision};

use super::driver::Fault;

const FORMAT: sys::cudnnTensorFormat_t = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
const FLOAT: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
/// More algorithms than cuDNN has for any pass.
const MOST_ALGORITHMS: usize = 16;

fn said(doing: &str) -> impl Fn(dnn::CudnnError) -> Fault {
    move |error| Fault::refused(format!("{doing}: {:?}", error.0))
}

/// The library, once it was opened, for one stream.
pub struct Dnn {
    handle: sys::cudnnHandle_t,
}

impl Dnn {
    /// Opens the library, which [`super::calls`] found and loaded, for a stream.
    ///
    /// # Errors
    /// The library's.
    #[expect(unsafe_code, reason = "a call of the library")]
    pub fn open(stream: *mut c_void) -> Result<Rc<Self>, Fault> {
        let handle = dnn::create_handle().map_err(said("opening cuDNN"))?;
        let dnn = Dnn { handle };
        // SAFETY: the handle was just made; the stream lives as long as the device, which drops its
        // convolutions before its context.
        unsafe { dnn::set_stream(handle, stream.cast()) }.map_err(said("opening cuDNN"))?;
        Ok(Rc::new(dnn))
    }

    /// The library's own handle, valid as long as `self`.
    pub fn handle(&self) -> sys::cudnnHandle_t {
        self.handle
    }
}

impl Drop for Dnn {
    #[expect(unsafe_code, reason = "a call of the library")]
    fn drop(&mut self) {
        // SAFETY: destroyed once; convolutions hold an `Rc` of it.
        let _ = unsafe { dnn::destroy_handle(self.handle) };
    }
}

/// The library's descriptions of one convolution.
struct Descriptions {
    x: sys::cudnnTensorDescriptor_t,
    out: sys::cudnnTensorDescriptor_t,
    bias: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
    activation: sys::cudnnActivationDescriptor_t,
}

impl Descriptions {
    #[expect(unsafe_code, reason = "calls of the library")]
    #[expect(clippy::too_many_lines, reason = "arguments of library calls")]
    fn of(call: &Conv2d) -> Result<Self, Fault> {
        let doing = said("describing a convolution");
        let made = Descriptions {
            x: dnn::create_tensor_descriptor().map_err(&doing)?,
            out: dnn::create_tensor_descriptor().map_err(&doing)?,
            bias: dnn::create_tensor_descriptor().map_err(&doing)?,
            w: dnn::create_filter_descriptor().map_err(&doing)?,
            convolution: dnn::create_convolution_descriptor().map_err(&doing)?,
            activation: dnn::create_activation_descriptor().map_err(&doing)?,
        };
        let [height, width] = call.out_picture();
        let x = [
            call.batch,
            call.channels_in,
            call.picture[0],
            call.picture[1],
        ];
        let out = [call.batch, call.channels_out, height, width];
        let w = [
            call.channels_out,
            call.channels_in,
            call.kernel[0],
            call.kernel[1],
        ];
        let [x, out, w] = [extents(x)?, extents(out)?, extents(w)?];
        let [padding, stride] = [call.padding as c_int, call.stride as c_int];
        let mode = match call.activation {
            Activation::Relu => sys::cudnnActivationMode_t::CUDNN_ACTIVATION_RELU,
            _ => sys::cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY,
        };
        let math = match call.precision {
            Precision::F32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            _ => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        };
        // SAFETY: all of them were just made, and are of the types that are asked for.
        unsafe {
            dnn::set_tensor4d_descriptor(made.x, FORMAT, FLOAT, x)
                .and_then(|()| dnn::set_tensor4d_descriptor(made.out, FORMAT, FLOAT, out))
                .and_then(|()| {
                    dnn::set_tensor4d_descriptor(made.bias, FORMAT, FLOAT, [1, out[1], 1, 1])
                })
                .and_then(|()| dnn::set_filter4d_descriptor(made.w, FLOAT, FORMAT, w))
                .and_then(|()| {
                    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
                    dnn::set_convolution2d_descriptor(
                        made.convolution,
                        padding,
                        padding,
                        stride,
                        stride,
                        1,
                        1,
                        mode,
                        FLOAT,
                    )
                })
                .and_then(|()| dnn::set_convolution_math_type(made.convolution, math))
                .and_then(|()| {
                    let nan = sys::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
                    dnn::set_activation_descriptor(made.activation, mode, nan, 0.0)
                })
        }
        .map_err(&doing)?;
        Ok(made)
    }
}

impl Drop for Descriptions {
    #[expect(unsafe_code, reason = "calls of the library")]
    fn drop(&mut self) {
        // SAFETY: each is destroyed once.
        unsafe {
            let _ = dnn::destroy_tensor_descriptor(self.x);
            let _ = dnn::destroy_tensor_descriptor(self.out);
            let _ = dnn::destroy_tensor_descriptor(self.bias);
            let _ = dnn::destroy_filter_descriptor(self.w);
            let _ = dnn::destroy_convolution_descriptor(self.convolution);
            let _ = sys::cudnnDestroyActivationDescriptor(self.activation);
        }
    }
}

fn extents(extents: [usize; 4]) -> Result<[c_int; 4], Fault> {
    let mut converted = [0; 4];
    for (to, extent) in converted.iter_mut().zip(extents) {
        *to = c_int::try_from(extent).map_err(|_| {
            Fault::refused(format!("cuDNN counts in 32 bits: {extent} is too many"))
        })?;
    }
    Ok(converted)
}

/// How one pass is computed.
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    GradX(sys::cudnnConvolutionBwdDataAlgo_t),
    GradW(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// A convolution that is ready to be launched.
pub struct Convolution {
    dnn: Rc<Dnn>,
    call: Conv2d,
    descriptions: Descriptions,
    algorithm: Algorithm,
    scratch_bytes: usize,
}

impl Convolution {
    /// Chooses how `call` is computed, with at most `scratch_bytes` of scratch memory: the first
    /// algorithm of the library's list whose results are equal in every bit each time.
    ///
    /// # Errors
    /// A call that the library can't do.
    pub fn new(dnn: &Rc<Dnn>, call: &Conv2d, scratch_bytes: usize) -> Result<Self, Fault> {
        if call.precision == Precision::Bf16 {
            let reason = "convolutions are computed in f32 or tf32, not in bf16";
            return Err(Fault::refused(reason));
        }
        if call.activation == Activation::GeluTanh {
            return Err(Fault::refused("convolutions end in nothing or max(x, 0)"));
        }
        if call.activation != Activation::None && !call.has_bias {
            return Err(Fault::refused(
                "convolutions end in max(x, 0) only after a bias",
            ));
        }
        let descriptions = Descriptions::of(call)?;
        let algorithm = choose(dnn, call, &descriptions, scratch_bytes)?;
        Ok(Convolution {
            dnn: Rc::clone(dnn),
            call: *call,
            descriptions,
            algorithm,
            scratch_bytes,
        })
    }

    /// Queues the convolution of operands at these addresses: the two that are read, the bias if
    /// there is one, the result, and scratch memory if there is any.
    ///
    /// # Errors
    /// The library's.
    #[expect(unsafe_code, reason = "calls of the library")]
    #[expect(clippy::too_many_lines, reason = "arguments of library calls")]
    pub fn launch(&self, args: &[u64]) -> Result<(), Fault> {
        let scratch_bytes = self.scratch_bytes;
        let (handle, of) = (self.dnn.handle, &self.descriptions);
        let at = |index: usize| args[index] as *const c_void;
        let result = 2 + usize::from(self.call.has_bias);
        let to = args[result] as *mut c_void;
        let scratch = args.get(result + 1).copied().unwrap_or(0) as *mut c_void;
        let (one, zero) = (1f32, 0f32);
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let is_fused = self.call.has_bias || self.call.activation != Activation::None;
        // SAFETY: everything lives as long as `self`; the operands' views span the call's tensors
        // (`check_library_launch`), and the factors are read before the call returns.
        unsafe {
            match self.algorithm {
                Algorithm::Forward(algorithm) if is_fused => {
                    dnn::convolution_bias_activation_forward(
                        handle,
                        one,
                        of.x,
                        at(0),
                        of.w,
                        at(1),
                        of.convolution,
                        algorithm,
                        scratch,
                        scratch_bytes,
                        zero,
                        of.out,
                        to,
                        of.bias,
                        at(2),
                        of.activation,
                        of.out,
                        to,
                    )
                }
                Algorithm::Forward(algorithm) => dnn::convolution_forward(
                    handle,
                    one,
                    of.x,
                    at(0),
                    of.w,
                    at(1),
                    of.convolution,
                    algorithm,
                    scratch,
                    scratch_bytes,
                    zero,
                    of.out,
                    to,
                ),
                Algorithm::GradX(algorithm) => sys::cudnnConvolutionBackwardData(
                    handle,
                    one,
                    of.w,
                    at(1),
                    of.out,
                    at(0),
                    of.convolution,
                    algorithm,
                    scratch,
                    scratch_bytes,
                    zero,
                    of.x,
                    to,
                )
                .result(),
                Algorithm::GradW(algorithm) => sys::cudnnConvolutionBackwardFilter(
                    handle,
                    one,
                    of.x,
                    at(1),
                    of.out,
                    at(0),
                    of.convolution,
                    algorithm,
                    scratch,
                    scratch_bytes,
                    zero,
                    of.w,
                    to,
                )
                .result(),
            }
        }
        .map_err(said("launching a convolution"))
    }
}

/// The first of the library's candidates that works, fits and is deterministic.
macro_rules! first_of {
    ($ask:path, $perf:ty, $handle:expr, [$($description:expr),*], $scratch:expr) => {{
        let mut count = 0;
        // SAFETY: candidates are plain numbers, for which zeros are valid.
        let mut found: [$perf; MOST_ALGORITHMS] = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptions live until the call returns, and there is as much room as is
        // told.
        unsafe {
            $ask(
                $handle,
                $($description,)*
                MOST_ALGORITHMS as c_int,
                &raw mut count,
                found.as_mut_ptr(),
            )
        }
        .result()
        .map_err(said("choosing a convolution's algorithm"))?;
        found[..count as usize]
            .iter()
            .find(|found| {
                found.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                    && found.memory <= $scratch
                    && found.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC
            })
            .map(|found| found.algo)
    }};
}

#[expect(unsafe_code, reason = "calls of the library")]
fn choose(
    dnn: &Dnn,
    call: &Conv2d,
    of: &Descriptions,
    scratch_bytes: usize,
) -> Result<Algorithm, Fault> {
    let (handle, way) = (dnn.handle, of.convolution);
    let chosen = match call.pass {
        // Only this one can be followed by the identity: the library's documentation says so.
        ConvPass::Forward if call.has_bias && call.activation == Activation::None => {
            use sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
            Some(Algorithm::Forward(
                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            ))
        }
        ConvPass::Forward => first_of!(
            sys::cudnnGetConvolutionForwardAlgorithm_v7,
            sys::cudnnConvolutionFwdAlgoPerf_t,
            handle,
            [of.x, of.w, way, of.out],
            scratch_bytes
        )
        .map(Algorithm::Forward),
        ConvPass::GradX => first_of!(
            sys::cudnnGetConvolutionBackwardDataAlgorithm_v7,
            sys::cudnnConvolutionBwdDataAlgoPerf_t,
            handle,
            [of.w, of.out, way, of.x],
            scratch_bytes
        )
        .map(Algorithm::GradX),
        ConvPass::GradW => first_of!(
            sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7,
            sys::cudnnConvolutionBwdFilterAlgoPerf_t,
            handle,
            [of.x, of.out, way, of.w],
            scratch_bytes
        )
        .map(Algorithm::GradW),
    };
    chosen.ok_or_else(|| {
        Fault::refused(format!(
            "cuDNN has no algorithm for this convolution that gives the same bits every time within \
             {scratch_bytes} bytes"
        ))
    })
}
