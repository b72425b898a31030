// Gradients of transition and bias: sums of parts, in an order that never changes. One warp an
// element.
#include "cuda.h"

constexpr int THREADS = 128;

// The sum over parts of one of their elements, or of `count` that are `stride` apart.
DEVICE float sum_of(const float *parts, int64 part_count, int64 elements, int64 first, int64 count, int64 stride) {
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int64 part = lane; part < part_count; part += 32)
        for (int64 i = 0; i < count; i++) sum += parts[part * elements + first + i * stride];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

// Parts hold transitions by (duration,) source and destination, then biases by duration. Where
// transitions depend on the duration, a bias is the sum over sources.
KERNEL(semicrf_sums, THREADS)
(int64 durations, int64 labels, int64 longest, int64 first_index, int64 per_duration, const float *parts,
 int64 part_count, int64 elements, float *transition, float *bias) {
    const int64 square = labels * labels, all = (per_duration ? durations : 1) * square;
    const int64 element = (blockIdx.x * (int64)blockDim.x + threadIdx.x) / 32;
    if (element >= all + durations * labels) return;
    const bool is_transition = element < all;
    const int64 at = is_transition ? element : element - all;
    int64 duration = (is_transition ? at / square : at / labels) - first_index;
    const bool is_one = is_transition && !per_duration;
    if (is_one) duration = 0;
    float sum = 0.0f;
    if (duration >= 0 && duration < longest) {
        if (is_one) sum = sum_of(parts, part_count, elements, at, 1, 1);
        else if (is_transition) sum = sum_of(parts, part_count, elements, duration * square + at % square, 1, 1);
        else if (!per_duration) sum = sum_of(parts, part_count, elements, square + duration * labels + at % labels, 1, 1);
        else sum = sum_of(parts, part_count, elements, duration * square + at % labels, labels, labels);
    }
    if (threadIdx.x % 32 == 0) (is_transition ? transition : bias)[at] = sum;
}
