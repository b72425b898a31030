// Packs the numbers of queries that gradients of attention on tensor cores take, for bulk copies.
#include "packed.h"

// The logarithms of sums to base 2, and delta, of all queries. Rows beyond have infinite sums:
// their weights are 0.
KERNEL(attention_pack_sums, 256)(const float *logs, const float *delta, float *sums, int64 heads, int64 queries) {
    const int64 i = blockIdx.x * (int64)256 + threadIdx.x, all = padded(queries);
    const int64 head = i / all, query = i % all;
    if (head >= heads) return;
    const bool is_row = query < queries;
    sums[head * 2 * all + query] = is_row ? logs[head * queries + query] * LOG2_E : INFINITE;
    sums[(head * 2 + 1) * all + query] = is_row ? delta[head * queries + query] : 0.0f;
}
