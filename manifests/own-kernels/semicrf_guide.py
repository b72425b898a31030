"""The semi-Markov CRF of torch-semimarkov, the package of the benchmarking guide, on the tensors of
`semicrf`.

Its tensors are laid out as those of `semicrf` are: `edge` is (B, T-1, K, C, C) with the target
before the source, `cum_scores` (B, T+1, C) begins with zeros, `transition` is (source, target), and
duration k stands at index k, which is `durations = "1..K-1"`. Only results differ: a scan returns
its values with an axis for the parts of the semiring.

Where there is no GPU or no Triton, the package computes with PyTorch and says nothing. A function
that is named after Triton refuses then.
"""

try:
    from torch_semimarkov import SemiMarkov
    from torch_semimarkov import streaming, triton_scan
    from torch_semimarkov.semirings import EntropySemiring, LogSemiring, MaxSemiring
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "clone github.com/biobenkj/torch-semimarkov (of 2026-01-21), and let "
        "SWEEPER_TORCH_SEMIMARKOV name the folder `src` of it",
        name=error.name,
    ) from error

SEMIRINGS = {"log": LogSemiring, "max": MaxSemiring, "entropy": EntropySemiring}


def scan(edge, lengths, semiring):
    """The guide's `linear_scan_streaming`: position by position, in PyTorch's operations."""
    values, _, _ = SemiMarkov(SEMIRINGS[semiring])._dp_scan_streaming(edge, lengths, force_grad=True)
    return values[0]


def entropy_scan(edge, lengths):
    """`linear_scan_streaming` in the entropy semiring: log Z and the entropy."""
    values, _, _ = SemiMarkov(EntropySemiring)._dp_scan_streaming(edge, lengths, force_grad=True)
    return values[0], values[1]


def pytorch(edge, lengths, semiring):
    """The guide's `triton_pytorch`: the algorithm of the kernel in PyTorch's operations."""
    return triton_scan.semi_crf_triton_forward(
        edge, lengths, use_triton=False, semiring=semiring, use_compile=False
    )


def triton(edge, lengths, semiring):
    """The guide's `triton`: its kernel forward, torch.compile with gradients."""
    needs_triton(edge, triton_scan)
    return triton_scan.semi_crf_triton_forward(edge, lengths, semiring=semiring)


def triton_checkpointing(edge, lengths, semiring):
    """The guide's `triton_checkpointing`: gradients by PyTorch, which computes all again."""
    needs_triton(edge, triton_scan)
    return triton_scan.semi_crf_triton_forward(edge, lengths, semiring=semiring, use_compile=False)


def streaming_pytorch(cum_scores, transition, duration_bias, lengths, K, semiring):
    """Decomposed potentials, in PyTorch's operations."""
    return streaming.semi_crf_streaming_forward(
        cum_scores, transition, duration_bias, lengths, K, semiring=semiring, use_triton=False
    )


def streaming_triton(cum_scores, transition, duration_bias, lengths, K, semiring):
    """Decomposed potentials, by kernels forward and backward."""
    needs_triton(cum_scores, streaming)
    return streaming.semi_crf_streaming_forward(
        cum_scores, transition, duration_bias, lengths, K, semiring=semiring
    )


def needs_triton(tensor, module):
    if not tensor.is_cuda:
        raise NotImplementedError("Triton's kernels run on a GPU")
    if not module.HAS_TRITON:
        raise NotImplementedError("torch_semimarkov finds no Triton")
