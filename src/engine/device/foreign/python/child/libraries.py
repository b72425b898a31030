"""Which kernels of a GPU are those of libraries, by their names, and what share of the device's time they take.

A report, and no wall: code that attacks can hide from a profiler in its own process. All other kernels are the
function's own: those of Triton, PyTorch's compiler and NVRTC, and those that it compiles from CUDA, with CUTLASS
where it uses that.
"""

import re

from . import faults

# So many kernels are named, of so many characters each at most.
MOST_NAMED = 3
MOST_CHARACTERS = 120

# What C++ writes before the name of a function, and of namespaces what nobody can say.
RESULT = re.compile(r"^(?:void|std::enable_if<.*?>::type)\s+")
UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(unnamed\))::")

# The kernels of libraries: how their names begin. Where others may be called so, a template's arguments follow.
BEGINNINGS = [
    # PyTorch, with the attention and the parts of CUB that it ships.
    r"(?:at|c10|torch|at_cuda_detail|pytorch_flash)::",
    r"fmha_cutlass[FB]_",
    r"(?:softmax_warp_(?:forward|backward)|elementwise_kernel_with_index)<",
    # Thrust and CUB.
    r"(?:thrust|cub)::",
    # cuBLAS and cuBLASLt: products that are named by architecture and tile, and what surrounds them.
    r"(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_\w*(?:gemm|cudnn)_\w*\d+x\d+",
    r"sm\d+_xmma_|xmma\w*::|cask\w*::|nvjet_",
    r"(?:cublas\w*|internal::gemvx)::",
    r"(?:gemv2[NT]|gemvNSP|gemmk1|gemmSN_[NT]{2}|splitKreduce)_kernel",
    # cuDNN.
    r"cudnn\w*::|cudnn_generated_|cutlass__5x_cudnn::|winograd_nonfused::",
    r"(?:implicit|explicit|precomputed)_convolve_|convolve_common_engine_|conv2d_grouped_direct_kernel",
    r"(?:dgrad|wgrad)\w*_engine<|(?:LSTM|GRU|RNN)_\w+<|fft2d_[rc]2[rc]_|genericTranspose_kernel<|tensorTransformGeneric<",
    # cuFFT, cuSPARSE, cuSOLVER, MAGMA, NCCL.
    r"cufft\w*::|(?:regular|vector|multi|composite|partial)\w*_fft\w*<",
    r"cusparse\w*::",
    r"cusolver\w*::|(?:getr[fsi]|potr[fsi]|geqr[f2]|gebrd|gesvdj?|syevj?|syevd|heevj?|sytr[fd]|hetrd|larft?|larfg|laswp|"
    r"orgqr|ormqr|ungqr|unmqr|trsm|trsv|trmm|syrk)_\w*<",
    r"magma_\w+_kernel|nccl[A-Z]\w+|nccl_",
]
# What stands anywhere in their names: CUTLASS as cuBLAS and cuDNN ship it, whose kernels have names that a program
# made, and types of these libraries.
ANYWHERE = [r"cutlass(?:_|\dx_sm)\d+_", r"cublas\w*(?:Params|Tensor)", r"\bat::native::"]
LIBRARY = re.compile("|".join([*(rf"(?:{held})" for held in BEGINNINGS), *(rf".*?(?:{held})" for held in ANYWHERE)]),
                     re.DOTALL)

# Neither: memory that is copied, converted or filled, by the driver or by PyTorch.
DRIVER_COPY = re.compile(r"Mem(?:cpy|set)\b")
COPY = re.compile(r"at::native::.*?(?:FillFunctor|copy_kernel_cuda|CatArrayBatchedCopy)", re.DOTALL)

# What a person would call a kernel of CUTLASS.
GENERATED = re.compile(r"cutlass(?:_|\dx_sm)\d+_\w+")


def plain(name):
    """A name without result and unnamed namespaces. Profilers have long ones as linkers do."""
    if not name.startswith("_Z"):
        return UNNAMED.sub("", RESULT.sub("", name))
    parts, rest = [], name[2:].lstrip("N")
    while length := re.match(r"\d+", rest):
        begin, end = length.end(), length.end() + int(length[0])
        parts.append(rest[begin:end])
        rest = rest[end:]
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_")) + "<" + rest


def kind(name):
    """Whether a kernel is one of a `library`, an `own` one, or a `copy`."""
    name = plain(name)
    if DRIVER_COPY.match(name) or COPY.match(name):
        return "copy"
    return "library" if LIBRARY.match(name) else "own"


def shown(name):
    """A kernel's name for people."""
    name = plain(name)
    generated = GENERATED.search(name)
    name = generated[0] if generated else name
    return name if len(name) <= MOST_CHARACTERS else name[: MOST_CHARACTERS - 3] + "..."


def use(kernels):
    """What share of the device's time kernels of libraries have, of pairs of a name and a duration, and the names of
    those that take the most of it."""
    times = {"library": 0.0, "own": 0.0, "copy": 0.0}
    of_libraries = {}
    for name, duration in kernels:
        found = kind(name)
        times[found] += duration
        if found == "library":
            of_libraries[shown(name)] = of_libraries.get(shown(name), 0.0) + duration
    all_of_them = times["library"] + times["own"]
    names = sorted(of_libraries, key=of_libraries.get, reverse=True)[:MOST_NAMED]
    return {"share": times["library"] / all_of_them if all_of_them else 0.0, "kernels": names}


class Watch:
    """Notes which kernels this process launches from now on, by PyTorch's profiler, which asks CUPTI."""

    def __init__(self, framework):
        if framework.name != "torch":
            raise faults.Refused("unavailable", "kernels are noted of functions over PyTorch only")
        self.torch = framework.torch
        profiler = self.torch.profiler
        self.profile = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])
        self.torch.cuda.synchronize()
        self.profile.start()
        # It shows whether anything is noted at all, and has CUPTI take its memory before a gate is closed.
        self.torch.ones(1, device="cuda")
        self.torch.cuda.synchronize()

    def end(self, without=()):
        """Their use of libraries; some kernels are not the function's."""
        self.torch.cuda.synchronize()
        self.profile.stop()
        on_device = self.torch.autograd.DeviceType.CUDA
        events = [event for event in self.profile.events()
                  if event.device_type == on_device and not getattr(event, "is_user_annotation", False)]
        if not events:
            reason = "PyTorch's profiler noted no kernel: CUPTI is missing, is in use, or is not permitted here"
            raise faults.Refused("unavailable", reason)
        return use((event.name, event.time_range.elapsed_us()) for event in events if event.name not in without)
