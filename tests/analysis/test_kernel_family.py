"""What kernels' names say, by the names of the libraries that LLM servers use."""

from __future__ import annotations

import pytest

from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.analysis.kernels.family_shares import family_shares
from llmtop.parsers.registry import load
from llmtop.text import base_name
from tests.kernel_traces import LADDER, LLAMA, TIMELINE

NAMES: dict[KernelFamily, tuple[str, ...]] = {
    KernelFamily.ATTENTION: (
        "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, (vllm::Fp8KVCa"
        "cheDataType)0, false, 512>(float*, float*)",
        "void vllm::merge_attn_states_kernel<__nv_bfloat16, 128>(__nv_bfloat16*, float*)",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u, 8u, "
        "16u, 1u, 8u, flashinfer::DefaultAttention<false, false, false, false>>(flashinfer::Params)",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::Mask"
        "Mode)1, 128u, 2u>>(flashinfer::Params)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, __nv_bfloat16, __nv"
        "_bfloat16, int>(__nv_bfloat16*)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Collecti"
        "veMainloopFwdSm90<2, cute::tuple<cute::C<1>>>>>>(flash::FlashAttnFwdSm90::Params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>, 128, 5, 256, 1,"
        " false, true, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>(P)",
        "flash::prepare_varlen_num_blocks_kernel(int, int, int, int const*)",
        "void flash_attn_ext_f16<128, 128, 8, 8, false, false>(char const*, char const*)",
        "void flash_attn_vec_ext_f32<128, 1, (ggml_type)1, (ggml_type)1, false>(char const*)",
        "void flash_attn_combine_results<128>(float const*, float2 const*, float*, int)",
        "_fwd_grouped_kernel_stage1",
        "kernel_unified_attention_3d",
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16"
        "_t, 512>, true, SharedStorageMLA>(Flash_fwd_mla_params)",
        "_attn_fwd",
        "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm90_kernel",
        "triton_tem_fused_flex_attention_0",
    ),
    KernelFamily.GEMM: (
        "void marlin::Marlin<__nv_bfloat16, 1125899906843652l, 256, 4, 16, 4, false, 4, 8, false>(int4 c"
        "onst*, int4 const*)",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)",
        "fused_moe_kernel",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 64u, 128u, 128u>(float*, int*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int"
        ">, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP"
        "8<4>>>>(P)",
        "void mul_mat_q<(ggml_type)12, 128, 8, false>(char const*, int const*, int const*)",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
        "turing_fp16_s1688gemm_fp16_128x64_sliced1x2_ldg8_f2f_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_64x6_tn_align8>(P)",
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_bias_execute_ke"
        "rnel__5x_cublas",
        "gemm_half_q_half_gptq_4bit_kernel",
        "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int, __half*, int*, __half*, int*, in"
        "t, int, int, __half*)",
        "triton_tem_fused_addmm_0",
        "triton_mm",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const>>(P)",
        "void tensorrt_llm::kernels::cutlass_kernels::MoeGemm(int)",
        "bmm_E4m3_E4m3E4m3_Fp32_bA32_bB32_bC32_t128x8x128_s4_et128x8_m128x8x32_sm100f",
    ),
    KernelFamily.GEMV: (
        "void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, int const*)",
        "void mul_mat_vec_f<__half, float, 1, 256>(__half const*, float const*)",
        "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024, cublasGemvParamsEx<int>>(cub"
        "lasGemvParamsEx)",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bflo"
        "at16, __nv_bfloat16, float, false, true, true, false, 7, false, cublasGemvParamsEx<int, cublasG"
        "emvTensorStridedBatched<__nv_bfloat16 const>>>(P)",
    ),
    KernelFamily.NORM: (
        "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        "void rms_norm_f32<1024, true, false>(float const*, float*, int)",
        "void vllm::rms_norm_dynamic_per_token_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn, false>(P)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)",
        "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, int>(__nv_bfloat16 const*)",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
        "triton_per_fused_native_layer_norm_1",
    ),
    KernelFamily.REDUCTION: (
        "triton_per_fused__softmax_2",
        "void flashinfer::sampling::TopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)2, (cub::"
        "BlockReduceAlgorithm)2, 4u, true, float, int>(float*)",
        "void flashinfer::sampling::OnlineSoftmaxFusedKernel<1024u, 4u, float>(float*)",
        "void at::native::radixSortKVInPlace<2, -1, 32, 4, c10::BFloat16, long, unsigned int>(P)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 1, false>(P)",
        "void vllm::apply_repetition_penalties_kernel<float>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native:"
        ":(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, a"
        "t::native::templates::cuda::exponential_kernel<float>>(long)",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<P>(int)",
        "void soft_max_f32<true, 0, 0, __half>(float const*, __half const*, float const*, float*)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float"
        ", float, float>, unsigned int, float, 4, 4>>(P)",
    ),
    KernelFamily.ELEMENTWISE: (
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFlo"
        "at16*, c10::BFloat16 const*, int)",
        "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(__nv_bfloat16*)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void rope_neox<true, false, float>(float const*)",
        "void rope_norm<true, false, float>(float const*)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<false, 128u, 128u, 8u, 16u, __nv_bfl"
        "oat16, long>(P)",
        "void k_bin_bcast<&op_add, float, float, float>(float const*)",
        "void unary_gated_op_kernel<&op_silu, float>(float const*)",
        "triton_poi_fused_mul_silu_1",
    ),
    KernelFamily.COPY: (
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(P)",
        "void k_get_rows_float<float, float>(float const*)",
        "void k_set_rows<float, __half>(float const*)",
        "void vllm::gptq_marlin_repack_kernel<64, 256, 4, false>(unsigned int const*)",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u, 16u, __nv_bfloat16, int>(P)",
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>(P)",
    ),
    KernelFamily.CONVERSION: (
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(P)",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, false, false>(void const*)",
        "void convert_unary<__half, float>(void const*, float*, long)",
        "void quantize_q8_1(float const*, void*, long, long)",
        "void dequantize_block_q4_K<__half>(void const*, __half*)",
        "_per_token_group_quant_fp8",
        "_fwd_kernel_int8_quantize",
    ),
    KernelFamily.COMMUNICATION: (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_AGxLLMC_R_sum_bf16(ncclSymkDevWorkArgs4K)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(P)1, __nv_bfloat16, 8>(P)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "void deep_ep::internode_ll::combine<false, 7168, 9>(void*)",
    ),
    KernelFamily.ROUTING: (
        "void vllm::moe::topkGatingSoftmax<4, 128, 4, 16, 32, int>(float const*)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int*, int*)",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int*)",
        "void vllm::moe::grouped_topk_fused_kernel<float, int>(float*)",
        "void topk_moe_cuda<128, true>(float const*, float*, int*)",
    ),
    KernelFamily.CONVOLUTION: (
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<5, float, int>(P)",
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8>(P)",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16, c10:"
        ":BFloat16>>(ConvParamsBase)",
    ),
    KernelFamily.OTHER: (
        "mykernel(float*)",
        "computeEnergy(double*)",
        "summarize_particles(float*)",
        "normalize_positions(float3*)",
        "step_convergence(float*)",
    ),
}


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, name) for family, names in NAMES.items() for name in names],
    ids=lambda value: value[:60],
)
def test_a_librarys_kernel_is_known_by_its_name(family: KernelFamily, name: str) -> None:
    assert kernel_kind(name).family is family


TITLES = {
    "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT": "GEMM 64x16 bf16 nvjet",
    "ampere_sgemm_32x128_nt": "GEMM 32x128 fp32 cuBLAS",
    "ampere_fp16_sgemm_fp16_128x64_ldg8_f2f_stages_32x5_tn": "GEMM 128x64 fp16 cuBLAS",
    "volta_hgemm_128x64_nn": "GEMM 128x64 fp16 cuBLAS",
    "volta_dgemm_64x64_nn": "GEMM 64x64 fp64 cuBLAS",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)": "GEMM 256x64 tf32 cuBLAS",
    "turing_fp16_s1688gemm_fp16_128x64_sliced1x2_ldg8_f2f_tn": "GEMM 128x64 fp16 cuBLAS",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN": "GEMM 256x192 bf16 Tensile",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32": "GEMM 128x16 fp4 TensorRT-LLM",
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, "
    "float, (bool)0, (bool)1, (bool)1, (bool)0, (int)7, (bool)0, cublasGemvParamsEx<int>>(T13)": (
        "GEMV bf16 template=7 cuBLAS"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)": (
        "elementwise mul bf16 vec4"
    ),
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)": "cast to fp32",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>>>(T3)": (
        "reduce argmax bf16"
    ),
    "triton_poi_fused_add_mul_silu_sub_1": "fused add,mul,silu,sub",
    "triton_poi_fused_add_div_mul_silu_sub_1": "fused add,div,mul,silu…",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": "fused to_copy,add,mean,mul…",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL AllReduce Sum_bf16_RING_LL",
    "sgemm_naive(int, const float *, const float *, float *)": "",
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64": "attention forward 64x64 cuDNN",
}


@pytest.mark.parametrize(("name", "title"), TITLES.items(), ids=lambda value: value[:50])
def test_a_title_says_the_family_and_what_differs(name: str, title: str) -> None:
    assert kernel_kind(name).title == title


@pytest.mark.parametrize(
    ("ncu", "profiler"),
    [
        (
            "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>, "
            "(int)4>(T1 *)",
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::"
            "OpaqueType<2u>, 4>(char*)",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel("
            "at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::"
            "[lambda(c10::BFloat16) (instance 1)]>(T3)",
            "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel("
            "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}>(int)",
        ),
    ],
)
def test_tools_that_spell_a_kernel_differently_give_it_one_title(ncu: str, profiler: str) -> None:
    assert kernel_kind(ncu) == kernel_kind(profiler)
    assert kernel_kind(ncu).title


@pytest.mark.parametrize(
    "name", ["", "<", ">>>(", "void f<a>b>(c)", "((((", "a" * 100_000, "\x00\u202e", "x<" * 30_000]
)
def test_no_name_is_too_odd(name: str) -> None:
    assert kernel_kind(name).family is KernelFamily.OTHER


def test_a_decode_step_is_mostly_matrix_kernels_and_nothing_of_it_is_unknown() -> None:
    for path, largest in ((LLAMA, KernelFamily.GEMM), (TIMELINE, KernelFamily.GEMM)):
        shares = family_shares(load(path))
        assert shares[0].family is largest
        assert sum(share.share for share in shares) == pytest.approx(1.0)
        assert KernelFamily.OTHER not in {share.family for share in shares}
    assert [share.family for share in family_shares(load(LADDER))] == [
        KernelFamily.GEMM,
        KernelFamily.OTHER,
        KernelFamily.COPY,
    ]


@pytest.mark.parametrize("cut", ["", "at::native::<"])
def test_names_that_lost_their_namespaces_are_what_whole_ones_are(cut: str) -> None:
    """As details pages print them: of at::native::<unnamed>:: the end alone, right behind what stood before."""
    name = f"void {cut}unnamed>::CatArrayBatchedCopy_vectorized<{cut}unnamed>::OpaqueType<2>, unsigned int, 3>(char *)"
    kind = kernel_kind(name)
    assert (kind.family, kind.title) == (KernelFamily.COPY, "cat_vectorized 2-byte")
    assert base_name(name) == "CatArrayBatchedCopy_vectorized"


def test_ids_of_types_are_no_type() -> None:
    kind = kernel_kind("void marlin::Marlin<long, long, (int)256, (int)1, (int)8>(int4 const*)")
    assert (kind.family, kind.dtype) == (KernelFamily.GEMM, "")
