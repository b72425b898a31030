"""The semi-Markov CRF of flash-semicrf, which torch-semimarkov became, on the tensors of `semicrf`.

Its tensors are laid out as those of `semicrf` are, with duration k at index k-1, which is
`durations = "1..K"`. It has decomposed potentials alone, and no gradients of the best score.

Where there is no GPU or no Triton, and for K below 3, the package computes with PyTorch and says
nothing. The function that is named after Triton refuses then.
"""

try:
    from flash_semicrf import streaming
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("pip install flash-semicrf", name=error.name) from error


def pytorch(cum_scores, transition, duration_bias, lengths, K, semiring):
    """In PyTorch's operations."""
    return streaming.semi_crf_streaming_forward(
        cum_scores, transition, duration_bias, lengths, K, semiring=semiring, use_triton=False
    )


def triton(cum_scores, transition, duration_bias, lengths, K, semiring):
    """By kernels forward and backward."""
    if not cum_scores.is_cuda:
        raise NotImplementedError("Triton's kernels run on a GPU")
    if not streaming.HAS_TRITON:
        raise NotImplementedError("flash_semicrf finds no Triton")
    if K < 3:
        raise NotImplementedError("flash_semicrf has no kernel for K < 3")
    value = streaming.semi_crf_streaming_forward(
        cum_scores, transition, duration_bias, lengths, K, semiring=semiring
    )
    # Without gradients its kernel returns f64.
    return value.to(cum_scores.dtype)
