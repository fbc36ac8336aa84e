"""What a kernel computes, told by its name alone: its family, its operation, its types and tile, and whose code it is.

Works on the names that Nsight Compute, Nsight Systems, PyTorch's profiler and CUPTI write, which spell one kernel
differently. A name that nothing here knows is of the family "other" and keeps its function's name: no family is
guessed.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from llmtop.frozen import frozen
from llmtop.text import whole_namespaces


class KernelFamily(StrEnum):
    """What kind of work a kernel does in a model."""

    GEMM = "GEMM"
    GEMV = "GEMV"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORM = "norm"
    ELEMENTWISE = "elementwise"
    COPY = "copy"
    CONVERSION = "conversion"
    """From one type to another, quantising included."""
    COMMUNICATION = "communication"
    REDUCTION = "reduction/sampling"
    """Sums, maxima, softmax, scans, sorts, top-k, random choice."""
    ROUTING = "MoE routing"
    OTHER = "other"


@frozen
class KernelKind:
    """What the name of a kernel says.

    Attributes:
        title: A short name for people; empty where the function's own name is the best there is.
        library: Whose code it is; empty where the name does not tell, which mostly means the user's own.
        dtype: The type of its inputs: "bf16", "fp32" ...; empty where the name does not say.
        tile: Of a matrix kernel, the part that a block computes: "128x256".
    """

    family: KernelFamily
    title: str = ""
    library: str = ""
    dtype: str = ""
    tile: str = ""

    @property
    def is_small_step(self) -> bool:
        """Whether it reads, changes a little and writes back, so that fusing it saves its memory traffic."""
        return self.family in (KernelFamily.ELEMENTWISE, KernelFamily.NORM, KernelFamily.CONVERSION, KernelFamily.COPY)


_LONGEST = 20_000
"""Characters of a name that are looked at: templates of CUTLASS come to some thousands."""
_CASTS = re.compile(r"\((?:int|bool|char|short|long|(?:unsigned|signed|long) (?:int|long|char|short))\)\s*(?=-?\d)")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
_TYPES = (
    ("bf16", re.compile(r"bf16|bfloat16|\bbf\d+\b", re.IGNORECASE)),
    ("fp16", re.compile(r"\bhalf\b|__half|c10::half|float16|fp16|\bf16\b|_f16|half_t", re.IGNORECASE)),
    ("fp8", re.compile(r"e4m3|e5m2|fp8|float8|float_e4m3|_f8", re.IGNORECASE)),
    ("fp4", re.compile(r"e2m1|fp4|float4_e2m1|nvfp4", re.IGNORECASE)),
    ("int8", re.compile(r"int8|\bsigned char\b|\bs8\b|i8816|_s8_|imma", re.IGNORECASE)),
    ("tf32", re.compile(r"tf32", re.IGNORECASE)),
    ("fp64", re.compile(r"\bdouble\b|float64|fp64|f64", re.IGNORECASE)),
    ("fp32", re.compile(r"\bfloat\b|float32|fp32|\bf32\b|_f32", re.IGNORECASE)),
)
_WHOLE = (
    ("int64", re.compile(r"\blong\b|int64")),
    ("int32", re.compile(r"\bint\b|int32")),
    ("bool", re.compile("bool")),
)
_TILE = re.compile(r"(?<![\dx])(\d{1,3}x\d{1,3})(?:x\d{1,3})*(?![\d])")


@lru_cache(maxsize=16384)
def kernel_kind(name: str) -> KernelKind:
    """What the demangled (or, where the capture has no other, mangled) name of a kernel says.

    >>> kernel_kind("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT").title
    'GEMM 256x128 bf16 nvjet'
    >>> kernel_kind("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)").title
    'elementwise add fp32 vec4'
    >>> str(kernel_kind("my_kernel(float *)").family)
    'other'
    """
    name = _spelled(name[:_LONGEST])
    function, arguments = _parts(name)
    for tell in _TELLERS:
        if kind := tell(name, function, arguments):
            return kind
    return KernelKind(KernelFamily.OTHER, library=_library(name, function))


def _spelled(name: str) -> str:
    """One spelling of what the tools write differently: casts of numbers, unnamed namespaces."""
    return _ANONYMOUS.sub("", _CASTS.sub("", whole_namespaces(name))).strip()


def _parts(name: str) -> tuple[str, str]:
    """The qualified function, without return type and arguments, and its template arguments.

    >>> _parts("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float>(T13)")
    ('internal::gemvx::kernel', 'int, float')
    """
    outside: list[str] = []
    inside: list[list[str]] = []
    opened: list[str] = []
    for char in name:
        if char in "<([{":
            if not opened and char == "<":
                inside.append([])
            if not opened and char == "(":
                break  # the call's arguments: all of the name is behind us
            opened.append(char)
        elif char in ")]}" and opened:
            while opened and opened.pop() not in "([{":
                pass
        elif char == ">" and opened and opened[-1] == "<":
            opened.pop()
        elif not opened:
            outside.append(char)
        if opened and inside:
            inside[-1].append(char)
    function = "".join(outside).strip().split(" ")[-1]
    return function or name.split("(")[0], "".join(inside[-1])[1:] if inside else ""


def _squashed(text: str) -> str:
    """Words run together, so that rms_norm, RMSNorm and rmsnorm are one."""
    return text.replace("_", "").lower()


def _dtype(text: str) -> str:
    """The floating-point type that comes first, else the whole-number type that does."""
    for types in (_TYPES, _WHOLE):
        found = [(match.start(), dtype) for dtype, pattern in types if (match := pattern.search(text))]
        if found:
            return min(found)[1]
    return ""


def _tile(text: str) -> str:
    """The largest of the first three pairs of sizes that a matrix kernel's name is made of: its block's tile.

    Instruction shapes (16x8x16) and stages (64x4) stand beside it and are smaller.
    """
    pairs = [pair for pair in _TILE.findall(text) if min(_sizes(pair)) >= 8][:3]
    return max(pairs, key=lambda pair: _sizes(pair)[0] * _sizes(pair)[1], default="")


def _sizes(pair: str) -> tuple[int, int]:
    first, second = pair.split("x")[:2]
    return int(first), int(second)


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


# -- whose code it is -------------------------------------------------------------------------------------------------

_LIBRARIES = (
    ("NCCL", r"^nccl|^rccl"),
    ("cuDNN", r"cudnn|cask_cudnn|^volta_scudnn|xmma_(?:fprop|dgrad|wgrad)"),
    ("nvjet", r"^nvjet"),
    ("TensorRT-LLM", r"tensorrt_llm|^fmhaSm\d|^bmm_[A-Z]|^gemm_[A-Z][a-z]+\w*_t\d|moe::dev::|trtllm"),
    ("FlashInfer", r"flashinfer"),
    ("FlashAttention", r"flash_fwd|flash_bwd|(?:^|\W)(?:pytorch_)?flash::|FlashAttn(?:Fwd|Bwd)"),
    ("vLLM", r"\bvllm::"),
    ("SGLang", r"\bsgl_|sgl_kernel"),
    ("DeepGEMM", r"deep_gemm"),
    ("DeepEP", r"deep_ep"),
    ("Marlin", r"(?i)\bmarlin"),
    ("PyTorch", r"\bat::|\bc10::|^cunn_|\bpytorch_|^fmha_cutlass|OpaqueType|TensorIteratorBase|vectorized_elementwise"),
    ("cuBLAS", r"cublas|gemvx::|gemv2[TN]|gemvNSP|gemmSN_|gemmk1|splitKreduce|xmma_gemm|magma_"
               r"|^(?:maxwell|pascal|volta|turing|ampere|hopper|sm\d+)_[a-z0-9_]*gemm|cutlass_\d+_"),
    ("CUTLASS", r"\bcutlass\w*::|^cutlass\d*_|Kernel2?<cutlass"),
    ("CUB", r"\bcub::|\bthrust::"),
    ("CuPy", r"^cupy_"),
    ("Triton", r"^triton_|^_?matmul_ogs"),
    ("Tensile", r"^Cijk_"),
    ("Composable Kernel", r"ck_tile|\bck::"),
    ("llama.cpp", r"^(?:void )?(?:mul_mat|quantize_(?:mmq_)?q8|k_bin_bcast|k_get_rows|k_set_rows|flash_attn_(?:ext|vec"
                  r"|tile|combine|mask|stream)|rms_norm_f32|rope_n|soft_max_f32|unary_\w*op_kernel|cpy_|convert_unary"
                  r"|dequantize_|mmq_|mul_mm)"),
)  # fmt: skip
_LIBRARY_PATTERNS = tuple((library, re.compile(pattern)) for library, pattern in _LIBRARIES)


_WRAPPERS = re.compile(r"(?:^|::)(?:Kernel2?|device_kernel|kentry|kernel|kernel_entry)$")


def _library(name: str, function: str) -> str:
    """By the function first: its arguments may be another library's types. Of a wrapper the argument is the kernel."""
    for text in (name,) if _WRAPPERS.search(function) else (function, name):
        for library, pattern in _LIBRARY_PATTERNS:
            if pattern.search(text):
                return library
    return ""


# -- families, the most particular first ------------------------------------------------------------------------------

INDUCTOR = re.compile(r"triton_(?P<kind>poi|red|per|tem|for|split_scan)_fused_?(?P<operations>\w*?)_?(?:\d+)?$")
_TEMPLATES = (
    ("flex_attention", KernelFamily.ATTENTION),
    ("convolution", KernelFamily.CONVOLUTION),
    ("mm", KernelFamily.GEMM),
)
_MOVES = frozenset({"clone", "copy", "cat", "stack", "view", "permute", "transpose", "expand", "slice", "select",
                    "index", "gather", "embedding", "index_put", "constant_pad_nd", "new_empty_strided", "repeat",
                    "roll", "as_strided", "split", "unsqueeze", "squeeze", "_unsafe_view", "reshape"})  # fmt: skip
_INDUCTOR_OPERATION = re.compile(r"_to_copy|_unsafe_view|constant_pad_nd|index_put|new_empty_strided|native_layer_norm|"
                                 r"_softmax|as_strided|[a-z0-9]+")  # fmt: skip
_SHOWN_OPERATIONS = 4
"""Operations of a fused kernel that are in its title."""


def _inductor(name: str, function: str, arguments: str) -> KernelKind | None:
    """What torch.compile generated; its names list the operations, in alphabetical order."""
    match = INDUCTOR.match(function)
    if match is None:
        return None
    operations = _INDUCTOR_OPERATION.findall(match["operations"])
    shown = ",".join(operation.strip("_") for operation in operations[:_SHOWN_OPERATIONS])
    title = _joined("fused", shown + ("…" if len(operations) > _SHOWN_OPERATIONS else ""))
    return KernelKind(_inductor_family(match["kind"], match["operations"], operations), title, "Triton")


def _inductor_family(kind: str, text: str, operations: list[str]) -> KernelFamily:
    if kind == "tem":
        return next((family for word, family in _TEMPLATES if word in text), KernelFamily.OTHER)
    if kind in ("red", "per"):
        return KernelFamily.NORM if "rsqrt" in operations or "layer_norm" in text else KernelFamily.REDUCTION
    if operations and set(operations) <= {"_to_copy"}:
        return KernelFamily.CONVERSION
    return KernelFamily.COPY if operations and set(operations) <= _MOVES else KernelFamily.ELEMENTWISE


_COMMUNICATION = re.compile(
    r"^nccl|^rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem_|cross_device_reduce|nvshmem|deep_ep::|"
    r"mscclpp|userbuffers|(?:one|two)_?shot",
    re.IGNORECASE,
)
_NCCL = re.compile(r"nccl(?:Dev)?Kernel_(?P<what>[A-Za-z]+)_?(?P<how>\w*)")


def _communication(name: str, function: str, arguments: str) -> KernelKind | None:
    if not _COMMUNICATION.search(function):
        return None
    match = _NCCL.match(function)
    title = "" if match is None else _joined("NCCL", match["what"], match["how"])
    return KernelKind(KernelFamily.COMMUNICATION, title, _library(name, function), _dtype(function))


_ATEN_LOOP = re.compile(r"(?:vectorized|unrolled|legacy|index|manual)?_?elementwise_kernel|unrolled_elementwise")
_ATEN_OPERATIONS = (
    (re.compile(r"\bCompare(\w*)Functor|\bCompareFunctor"), "compare"),
    (re.compile(r"\bCUDAFunctor(?:OnSelf|OnOther)?_(\w+)"), ""),
    (re.compile(r"\b(?:a[st]::native::)?(?!Binary|AUnary|BUnary|Unary)([A-Z]\w*?)(?:Scalar)?Functor\b"), ""),
    (re.compile(r"\b([A-Za-z]\w*?)(?:_scalar|_tensor_scalar)?_kernel(?:_cuda|_impl)+\b"), ""),
    (re.compile(r"\blaunch_(\w+?)(?:_scalar|_kernel)?\("), ""),
    (re.compile(r"\b([A-Za-z]\w*?)(?:CUDAKernelImpl|_kernel)(?:<[^<>]*>)?\("), ""),
    (re.compile(r"\b(copy_device_to_device)\("), ""),
    (re.compile(r"\b([a-z]\w*?)_cuda(?:_out)?\("), ""),
)
_LOOPS = frozenset({"gpu", "gpu_index", "elementwise"})
_VECTOR = re.compile(r"vectorized_elementwise_kernel<(\d+)")


def _aten_loop(name: str, function: str, arguments: str) -> KernelKind | None:
    """PyTorch's elementwise loops: the operation is one of their template arguments."""
    if not _ATEN_LOOP.search(function) or not (
        "functor" in arguments.lower() or "kernel" in arguments or "lambda" in arguments
    ):
        return None
    operation, dtype = _aten_operation(arguments), _dtype(arguments)
    match = _VECTOR.search(name)
    layout = f"vec{match[1]}" if match else ""
    if target := _cast_to(operation, arguments, dtype):
        return KernelKind(KernelFamily.CONVERSION, _joined("cast to", target, layout), "PyTorch", dtype)
    if operation.startswith(("copy", "direct_copy")):
        return KernelKind(KernelFamily.COPY, _joined("copy", dtype, layout), "PyTorch", dtype)
    if "index" in function or operation.startswith("index"):
        return KernelKind(KernelFamily.COPY, _joined(operation or "index", dtype), "PyTorch", dtype)
    return KernelKind(KernelFamily.ELEMENTWISE, _joined("elementwise", operation, dtype, layout), "PyTorch", dtype)


_COPY_TO = {"bfloat16_copy": "bf16", "float16_copy": "fp16", "float8_copy": "fp8"}


def _cast_to(operation: str, arguments: str, dtype: str) -> str:
    """What a copy converts to: some say so; else the loop loads with a cast, and its lambda is of the type written."""
    if operation in _COPY_TO:
        return _COPY_TO[operation]
    return dtype or "another type" if "copy" in operation and "LoadWithCast" in arguments else ""


def _aten_operation(arguments: str) -> str:
    """The operation that stands first; what only drives the loop is none.

    >>> _aten_operation("at::native::BinaryFunctor<float, float, float, binary_internal::MulFunctor<float>>")
    'mul'
    """
    found = []
    for pattern, fixed in _ATEN_OPERATIONS:
        for match in pattern.finditer(arguments):
            word = fixed or _snake(match[1])
            if word and word not in _LOOPS:
                found.append((match.start(), word))
                break
    return min(found)[1] if found else ""


def _snake(word: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", word).lower().strip("_")


_REDUCTION_OPERATION = re.compile(r"\b(\w+?)(?:Ops|NanFunctor|_functor|_kernel_cuda)\b")


def _aten_reduction(name: str, function: str, arguments: str) -> KernelKind | None:
    if not function.endswith("reduce_kernel") or "ReduceOp" not in arguments:
        return None
    match = _REDUCTION_OPERATION.search(arguments)
    operation = match[1] if match else ""
    dtype = _dtype(arguments)
    return KernelKind(
        KernelFamily.REDUCTION, _joined("reduce", _snake(operation).replace("_", ""), dtype), "PyTorch", dtype
    )


_ROTARY = re.compile(r"rotary|(?<![a-z])rope(?![a-z])|applyrope|ropequantize", re.IGNORECASE)
_CACHE_WRITE = re.compile(
    r"reshape_and_cache|concat_and_cache|append_?paged_?(?:kv|mla)|copy_blocks|swap_blocks|set_rows|store_kv|"
    r"set_(?:mla_)?kv_buffer|update_kv|set_k_and_s|fillPagedKV",
    re.IGNORECASE,
)
_ATTENTION = re.compile(
    r"flash_?(?:fwd|bwd|attn|attention|mla|decod)|\bflash::|fmha|attention|paged_?attn|mla_(?:decode|fwd|prefill|kernel)|sdpa|"
    r"batch(?:decode|prefill)with|single(?:decode|prefill)with|merge_?(?:attn_)?states?|xqa|_attn_(?:fwd|bwd)|kernel_mha|"
    r"decode_(?:att|grouped_att)|\bmha_|fwd_grouped_kernel_stage",
    re.IGNORECASE,
)
_TRAITS = re.compile(r"kernel_traits<(\d+), *(\d+), *(\d+)")


def _attention(name: str, function: str, arguments: str) -> KernelKind | None:
    """Before norms and matrix kernels: attention kernels have both within."""
    inner = _wrapped(function, arguments)
    if not _ATTENTION.search(function) and not (inner and _ATTENTION.search(inner)):
        return None
    library = _library(name, function)
    # cuDNN writes "f16" for tensor instructions of any 16-bit type.
    dtype = "" if library == "cuDNN" else _dtype(function) or _dtype(arguments)
    return KernelKind(KernelFamily.ATTENTION, _attention_title(name, function, library, dtype), library, dtype)


def _attention_title(name: str, function: str, library: str, dtype: str) -> str:
    if not library:
        return ""
    words = _squashed(name[:2000])
    what = next((said for said, sign in _ATTENTION_STEPS if sign in words), "")
    traits = _TRAITS.search(name)
    head = f"d{traits[1]} {traits[2]}x{traits[3]}" if traits else _tile(function)
    return _joined("attention", what, head, dtype, _SHORT_LIBRARY.get(library, library))


_ATTENTION_STEPS = (
    ("combine", "combine"),
    ("merge states", "mergestates"),
    ("backward", "bwd"),
    ("split-KV", "splitkv"),
    ("decode", "decodewith"),
    ("prefill", "prefillwith"),
    ("MLA", "mla"),
    ("forward", "fwd"),
    ("forward", "fprop"),
)
_SHORT_LIBRARY = {"FlashAttention": "flash", "cuDNN": "cuDNN", "TensorRT-LLM": "TRT-LLM", "PyTorch": "mem-efficient"}


def _wrapped(function: str, arguments: str) -> str:
    """The arguments of a wrapper whose own name says nothing: cutlass::Kernel2<...>, ck_tile::kentry<...>."""
    return arguments if _WRAPPERS.search(function) else ""


_CONVOLUTION = re.compile(
    r"convol(?:ve|ution)|conv[123]d|conv2d|implicit_?gemm(?!_tn)|winograd|[dwf](?:grad|prop)(?:_|\d|$)|im2col|scudnn|"
    r"dgrad|wgrad|cask_cudnn|depthwise",
    re.IGNORECASE,
)
_NORM = re.compile(
    r"rmsnorm|layernorm|groupnorm|batchnorm|instancenorm|norm2d|norm3d|(?<![a-z0-9])bn(?:fw|bw)|addnorm|qknorm|normf32|"
    r"rowwisemoments|welford",
)
_GEMV = re.compile(r"gemv|mul_mat_vec|matvec|mat_vec|wvSplitK|LLMM1", re.IGNORECASE)
_GEMM = re.compile(
    r"gemm(?!a_?3)|^nvjet|matmul(?![a-z])|(?:^|_)(?:b|add|scaled_|grouped_)?mm(?:_|$)|^Cijk_|^bmm_|mul_mat|fused_moe_kernel|"
    r"fused_moe_gptq_awq|marlin(?!_\w*repack)|machete|splitKreduce|cublasLt|epilogue::impl|_mma_|MmaMultistage|"
    r"tensorop_\w*\d{4}|mma_sync",
    re.IGNORECASE,
)


def _convolution(name: str, function: str, arguments: str) -> KernelKind | None:
    text = _wrapped(function, arguments) or function
    if not _CONVOLUTION.search(text) and not (function.startswith("_Z") and _CONVOLUTION.search(name)):
        return None
    library = _library(name, function)
    dtype, tile = _matrix_type(text) or _dtype(text), _tile(text)
    title = _joined("convolution", tile, dtype, library) if library and tile else ""
    return KernelKind(KernelFamily.CONVOLUTION, title, library, dtype, tile)


def _norm(name: str, function: str, arguments: str) -> KernelKind | None:
    text = _squashed(function + (" " + arguments if _wrapped(function, arguments) else ""))
    if not _NORM.search(text) and not (function.startswith("_Z") and _NORM.search(_squashed(name))):
        return None
    library, dtype = _library(name, function), _dtype(arguments or function)
    title = _joined(_own_name(function), dtype) if library and not function.startswith("_Z") else ""
    return KernelKind(KernelFamily.NORM, title, library, dtype)


def _own_name(function: str) -> str:
    return function.split("::")[-1].removesuffix("_kernel").removesuffix("Kernel")


def _gemv(name: str, function: str, arguments: str) -> KernelKind | None:
    if not _GEMV.search(function) and not ("cublasGemv" in arguments and not _GEMM.search(function)):
        return None
    library, dtype = _library(name, function), _dtype(arguments)
    variant = _gemvx_variant(function, arguments)
    title = _joined("GEMV", dtype, variant, library) if library else ""
    return KernelKind(KernelFamily.GEMV, title, library, dtype)


def _gemvx_variant(function: str, arguments: str) -> str:
    """The template parameter of cuBLAS's gemvx that tells its kernels apart: how it divides the matrix."""
    numbers = re.findall(r"(?<=[ ,])(\d+)(?=,)", arguments)
    return f"template={numbers[4]}" if function.endswith("gemvx::kernel") and len(numbers) > 4 else ""


def _gemm(name: str, function: str, arguments: str) -> KernelKind | None:
    inner = _wrapped(function, arguments)
    if not _GEMM.search(function) and not (inner and _GEMM.search(inner)):
        return None
    text = inner or function
    library = _library(name, function)
    dtype = _matrix_type(text) or _dtype(text if inner else f"{function} {arguments}")
    if "splitKreduce" in text or (library == "Marlin" and dtype.startswith("int")):
        dtype = ""  # its whole numbers are ids of types
    tile = _matrix_tile(text, arguments)
    return KernelKind(KernelFamily.GEMM, _gemm_title(text, library, dtype, tile), library, dtype, tile)


def _gemm_title(text: str, library: str, dtype: str, tile: str) -> str:
    if "splitKreduce" in text:
        return _joined("GEMM split-K sum", library)
    if "epilogue::impl" in text:
        return _joined("GEMM epilogue", dtype, library)
    split = "split-K" if re.search(r"split_?k", text, re.IGNORECASE) else ""
    return _joined("GEMM", tile, dtype, split, library) if library and (tile or dtype) else ""


_NVJET = re.compile(r"^nvjet_(?:sm\d+_)?([a-z]+)_")
_CUBLAS_LETTER = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8", "i": "int8", "o": "fp4"}
_GENERATED = re.compile(r"^(?:bmm|gemm)_[A-Za-z0-9]+_([A-Za-z0-9]+)_Fp32_")
"""TensorRT-LLM's generated kernels: the type of the result, those of the operands, that of the sum."""
_TENSILE = re.compile(r"^Cijk_\w+?_([A-Z0-9]+)_")
_TENSILE_TYPE = {"BB": "bf16", "HH": "fp16", "SB": "fp32", "SS": "fp32", "F8": "fp8", "I8": "int8", "DB": "fp64"}


def _matrix_type(text: str) -> str:
    """The input type where a matrix library writes it in its own letters."""
    if match := _NVJET.match(text):
        return _CUBLAS_LETTER.get(match[1][0], "")
    if match := _GENERATED.match(text):
        return _dtype(match[1])
    if match := _TENSILE.match(text):
        return _TENSILE_TYPE.get(match[1][:2], "")
    if re.search(r"(?:^|_)s1688(?:gemm|fprop|dgrad|wgrad)", text) and not _dtype(text):
        return "tf32"  # multiplies fp32 rounded to tf32: the instruction 16x8x8 knows no other input of 32 bits
    by_letter = re.search(r"(?:^|_)([dhs])(?:gemm|cudnn)(?:_|Ex|$)", text)
    # Where the type is written out too, the letter is that of the sums: fp16_sgemm_fp16 multiplies fp16.
    return _CUBLAS_LETTER[by_letter[1]] if by_letter and not _dtype(text) else ""


_GEMM_SHAPE = re.compile(r"GemmShape<(\d+), *(\d+)")


def _matrix_tile(text: str, arguments: str) -> str:
    if match := re.search(r"tilesize(\d+x\d+)|_MT(\d+x\d+)|_t(\d+x\d+)x\d+", text):
        return next(group for group in match.groups() if group)
    if match := _GEMM_SHAPE.search(arguments):
        return f"{match[1]}x{match[2]}"
    if match := _NVJET.match(text):
        return _TILE.findall(text[match.end() :])[0] if _TILE.search(text[match.end() :]) else ""
    return _tile(text)


_ROUTING = re.compile(
    r"topk_?gating|moe_?align|moe::dev::(?:routing|finalize)|expert_?(?:offset|count|token|map)|sort_expert|grouped_topk|"
    r"topk_moe|topk_(?:softmax|sigmoid)|moe_?(?:sum|permute|unpermute|finalize|sort)|_combined_routing|finalizeMoe|"
    r"expandInputRows|routing|permute_copy|silu_and_mul_masked|biased_grouped",
    re.IGNORECASE,
)
_REDUCTION = re.compile(
    r"soft_?max|top_?k|top_?p|min_?p|sampling|multinomial|argmax|arg_?sort|bitonic|radix_?sort|sort(?:_|kv|$)|(?<!selective_)scan|reduce|"
    r"reduction|(?:^|[_:])sum(?:_|$)|mean(?:_|$)|histogram|distribution_|penalt|unique|DeviceSelect|logits",
    re.IGNORECASE,
)
_CONVERSION = re.compile(
    r"quant(?!ity)|(?:^|_)cast(?:_|$)|convert|float2bfloat|bfloat162float|_to_(?:b?float|half|fp|bf|int)\w*|"
    r"(?:^|[_:])to_(?:b?float|half|fp|bf16|f32|f16)\w*",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"copy|memcpy|memset|concat|CatArray|(?:^|_)cat(?:_|$)|transpose|permute|gather|scatter|index_?select|get_rows|repack|"
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|embedding|swizzle|(?:^|_)pad(?:_|$)|(?:^|_)cpy(?:_|$)|repeat",
    re.IGNORECASE,
)
_ELEMENTWISE = re.compile(
    r"elementwise|act_and_mul|(?:^|[_:])(?:silu|gelu|relu|swiglu|sigmoid|tanh|add|mul|multiply|divide|true_divide|subtract|"
    r"scale|scal|axpy|sqrt|exp|neg|clamp|where|fill)(?:_|$)|bin_bcast|unary_(?:gated_)?op|multi_tensor_apply|activation|"
    r"(?:^|_)(?:bias|residual)_?(?:add)?(?:_|$)",
    re.IGNORECASE,
)
_BY_WORD = (
    (re.compile(r"top_?k", re.IGNORECASE), KernelFamily.REDUCTION),  # before what gathers its results
    (_CONVERSION, KernelFamily.CONVERSION),
    (_COPY, KernelFamily.COPY),
    (_REDUCTION, KernelFamily.REDUCTION),
    (_ELEMENTWISE, KernelFamily.ELEMENTWISE),
)
_TITLED = frozenset({"vLLM", "FlashInfer", "PyTorch", "CUB", "TensorRT-LLM", "CuPy", "llama.cpp", "SGLang", "cuBLAS"})


def _cupy(name: str, function: str, arguments: str) -> KernelKind | None:
    """CuPy's own: cupy_OPERATION__TYPE_TYPE."""
    match = re.match(r"cupy_(\w+?)__(\w+)", function + ("__" if "__" not in function else ""))
    if match is None or not function.startswith("cupy_"):
        return None
    types = [part for part in match[2].split("_") if part]
    if match[1] == "copy":
        family = KernelFamily.COPY if len(set(types)) <= 1 else KernelFamily.CONVERSION
    else:
        family = KernelFamily.REDUCTION if _REDUCTION.search(match[1]) else KernelFamily.ELEMENTWISE
    return KernelKind(family, "", "CuPy", _dtype(match[2]))


def _rotary(name: str, function: str, arguments: str) -> KernelKind | None:
    if not _ROTARY.search(function.replace("_", " ")) or _CACHE_WRITE.search(function):
        return None
    library, dtype = _library(name, function), _dtype(arguments)
    return KernelKind(KernelFamily.ELEMENTWISE, _joined("rotary embedding", dtype) if library else "", library, dtype)


def _by_word(name: str, function: str, arguments: str) -> KernelKind | None:
    """By words of the function's own name, without its namespaces unless they are all that tells."""
    own_name = function.split("::")[-1]
    for text in (own_name, function):
        for pattern, family in _BY_WORD:
            if pattern.search(text):
                return _worded(family, name, function, arguments)
    return None


def _worded(family: KernelFamily, name: str, function: str, arguments: str) -> KernelKind:
    library, dtype = _library(name, function), _dtype(arguments or function)
    if family is KernelFamily.COPY and "cpy" in function and _differ(arguments):
        family = KernelFamily.CONVERSION
    own_name = _own_name(function).replace("CatArrayBatchedCopy", "cat")
    # An opaque type tells its size in bytes.
    opaque = re.search(r"OpaqueType<(\d+)u?>", arguments)
    kind = f"{opaque[1]}-byte" if opaque else dtype
    return KernelKind(family, _joined(own_name, kind) if library in _TITLED else "", library, dtype)


def _differ(arguments: str) -> bool:
    """Whether a copy's two types differ."""
    types = re.findall(r"\b(?:float|half|__half|nv_bfloat16|__nv_bfloat16|int)\b", arguments)
    return len(set(types)) > 1


_TELLERS = (
    _inductor,
    _cupy,
    _communication,
    _aten_loop,
    _aten_reduction,
    _rotary,
    lambda name, function, arguments: (
        _worded(KernelFamily.COPY, name, function, arguments) if _CACHE_WRITE.search(function) else None
    ),
    _attention,
    _convolution,
    _gemv,
    lambda name, function, arguments: (
        _worded(KernelFamily.ROUTING, name, function, arguments) if _ROUTING.search(function) else None
    ),
    _norm,
    _gemm,
    _by_word,
)
