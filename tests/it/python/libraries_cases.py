"""Names of kernels, as profilers have them, and what each is."""

import importlib
import sys
import types

package = types.ModuleType("child")
package.__path__ = [sys.argv[1]]
sys.modules["child"] = package
libraries = importlib.import_module("child.libraries")

CASES = {
    "library": [
        "ampere_sgemm_128x64_nn",
        "ampere_sgemm_32x32_sliced1x4_tn",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT",
        "nvjet_tst_64x8_64x16_1x4_h_bz_splitK_bias_TNT",
        "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x64_32x4_tn_align8",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)",
        "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_256x128_8x4_nn_align1EEvNT_6ParamsE",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_nnn_align1_bias_f32_relu",
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>, float const*, float*)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams<float>)",
        "void gemv2T_kernel_val<int, int, float2, float2, float2, 128, 16, 2, 2, false, false>(float2)",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(float)",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const> >(float)",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const> > >(float)",
        "void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int, int)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(float)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int, int)",
        "void regular_fft<192u, EPT<12u, 16u>, 16u, 2u, (padding_t)6>(kernel_arguments_t<unsigned int>)",
        "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<int, float, float, float> >(int)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5array",
        "_ZN2at6native12_GLOBAL__N_128vectorized_layer_norm_kernelIN3c108BFloat16EfLb1EEE",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*, float const*)",
        "void at_cuda_detail::cub::DeviceRadixSortUpsweepKernel<at_cuda_detail::cub::Policy>(int)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::Agent>(long)",
        "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4> >(Flash_fwd_params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "_Z40fmha_cutlassF_f32_aligned_64x128_rf_sm80N22PyTorchMemEffAttention15AttentionKernel",
    ],
    "copy": [
        "Memcpy DtoD (Device -> Device)",
        "Memset (Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >(int)",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*)",
    ],
    "own": [
        "triton_poi_fused_add_relu_0",
        "triton_tem_fused__to_copy__unsafe_view_mm_mul_silu_split_view_7",
        "matmul_kernel",
        "hopper_gemm_kernel",
        "beats_cublas_kernel",
        "softmax_warp_forward",
        "my_kernel(float const*, float*, int)",
        "void tiled_gemm<128, 64>(float const*, float const*, float*, int)",
        "_Z9my_kernelPKfPfi",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >(int)",
        "Memcpyish_kernel",
    ],
}
for expected, names in CASES.items():
    for name in names:
        assert libraries.kind(name) == expected, f"{name}: {libraries.kind(name)}, not {expected}"

gemm = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(T1::Params)"
add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at)"
found = libraries.use([(gemm, 3.0), ("mine", 4.0), (add, 1.0), ("Memset (Device)", 9.0), (gemm, 2.0)])
assert found["share"] == 0.6, found
assert found["kernels"][0] == "cutlass_80_simt_sgemm_128x64_8x5_nn_align1", found
assert found["kernels"][1].startswith("at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>"), found
assert len(found["kernels"][1]) <= libraries.MOST_CHARACTERS, found
many = libraries.use((f"nvjet_{number}", 1.0 + number) for number in range(5))
assert many == {"share": 1.0, "kernels": ["nvjet_4", "nvjet_3", "nvjet_2"]}, many
assert libraries.use([("Memcpy DtoD (Device -> Device)", 1.0)]) == {"share": 0.0, "kernels": []}
