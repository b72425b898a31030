// Parts of a tile's keys, where tiles of queries are too few to keep a GPU busy: a block for each.
//
// A block stores what its keys yield, each thread its own numbers. Of a part's warps that have the
// same rows and columns, the one that is done last combines what all of them have stored, in the
// order of keys: which one that is does not change a bit. No block waits for another.
//
// `done` is zeros before: for each tile of queries and warp, how many parts have been stored.

// A block's tile of queries, and its keys: those of part `at` of `parts`. `slot` is its place in
// memory; parts of a tile lie side by side.
struct Part {
    int64 head, tile, first_key;
    int at, parts, slot;
};

// A head has `per_head` parts of `length` keys or less, those of the last queries first. In a
// causal attention, `length` is a multiple of QUERIES: the first tiles have one part, as many tiles
// after them two, and so on.
DEVICE Part part_of(int block, int per_head, int64 keys, int64 length) {
    int index = per_head - 1 - block % per_head;
    const int slot = block / per_head * per_head + index;
#if CAUSAL
    const int tiles = (int)(length / QUERIES);
    int parts = 1, tile = 0;
    for (; index >= parts * tiles; parts++, tile += tiles) index -= parts * tiles;
#else
    const int parts = (int)((keys + length - 1) / length), tile = 0;
#endif
    const int at = index % parts;
    return {block / per_head, tile + index / parts, at * length, at, parts, slot};
}

// Those of a thread: its sums, and of each row the reference and the sum of weights.
#define NUMBERS (OWN * OUT + 2 * OWN)

// The `n`th float4 of a thread; those of a block lie side by side.
DEVICE float *number_4(float *stored, int slot, int n) {
    return stored + ((int64)slot * (NUMBERS / 4) + n) * (THREADS * 4) + threadIdx.x * 4;
}

DEVICE void store_part(float *stored, int slot, const float (&sums)[OWN][OUT], const float (&reference)[OWN], const float (&sum)[OWN]) {
    int n = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int c = 0; c < OUT; c += 4)
            *(float4 *)number_4(stored, slot, n++) = {sums[i][c], sums[i][c + 1], sums[i][c + 2], sums[i][c + 3]};
#pragma unroll
    for (int i = 0; i < OWN; i += 4) {
        *(float4 *)number_4(stored, slot, n++) = {reference[i], reference[i + 1], reference[i + 2], reference[i + 3]};
        *(float4 *)number_4(stored, slot, n++) = {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]};
    }
}

// Adds a part that was stored to what there is: both relative to the greater reference.
DEVICE void add_part(float *stored, int slot, float (&sums)[OWN][OUT], float (&reference)[OWN], float (&sum)[OWN]) {
    float4 x[OWN * OUT / 4], rows[OWN / 2];
#pragma unroll
    for (int n = 0; n < OWN * OUT / 4; n++) x[n] = load_float4_past_l1(number_4(stored, slot, n));
#pragma unroll
    for (int n = 0; n < OWN / 2; n++) rows[n] = load_float4_past_l1(number_4(stored, slot, OWN * OUT / 4 + n));
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const float own = part(rows[i / 4 * 2], i % 4), now = fmaxf(reference[i], own);
        const float before = exp2_fast(reference[i] - now), after = exp2_fast(own - now);
        reference[i] = now;
        sum[i] = fmaf(part(rows[i / 4 * 2 + 1], i % 4), after, sum[i] * before);
#pragma unroll
        for (int c = 0; c < OUT; c++) sums[i][c] = fmaf(part(x[(i * OUT + c) / 4], c % 4), after, sums[i][c] * before);
    }
}

// Whether the warp is the last one of its rows and columns that is done; then its numbers become
// those of all keys.
DEVICE bool combine(float *stored, unsigned long long *done, const Part &of,
                    float (&sums)[OWN][OUT], float (&reference)[OWN], float (&sum)[OWN]) {
    store_part(stored, of.slot, sums, reference, sum);
    __syncwarp();
    unsigned long long before = 0;
    if (threadIdx.x % 32 == 0) {
        memory_fence();
        before = take_ticket(done);
        memory_fence();
    }
    if (!warp_any(before + 1 == (unsigned long long)of.parts)) return false;
    __syncwarp();
    zero(sums);
#pragma unroll
    for (int i = 0; i < OWN; i++) reference[i] = NEVER, sum[i] = 0.0f;
#pragma unroll 1
    for (int at = 0; at < of.parts; at++) add_part(stored, of.slot - of.at + at, sums, reference, sum);
    return true;
}
