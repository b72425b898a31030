// Attention in f32 on a GPU, without the scores in memory.
//
// SHARING warps share 32 rows of the result, each with a part of its columns, and of the keys of a
// tile. Keys come transposed, 64 columns at a time, and values 64 rows at a time, by turns into two
// slots: one is copied while the other is multiplied. Weighted values are kept relative to a
// reference that is at most 2^8 below the greatest score so far (online softmax: Milakov and
// Gimelshein, 2018): most tiles need not scale what there is. References are whole exponents of 2,
// so that differences of scores are rounded once, and scaling is exact.
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of 64. All sums
// are added in one order. IS_SPLIT: several blocks share a tile of queries, each with a part of its
// keys.
#include "tiles.h"

#define OWN 8
#define OWN_KEYS 8
#define KEYS (64 * SHARING)
#define TEAMS (WARPS / SHARING)
#define QUERIES (TEAMS * 32)
#define QUERY_STEP (QUERIES + 4)
#define KEY_STEP (KEYS + 4)
#define WEIGHT_STEP 36
#define SLOT (64 * (KEY_STEP > WIDTH ? KEY_STEP : WIDTH))
// Columns of the result that a thread has.
#define OUT (WIDTH / SHARING / SHARERS)
#define NEVER __int_as_float(0xff800000)

#if IS_SPLIT
#include "parts.h"
#endif

// Waits for the warps that share rows.
DEVICE void wait_for_team(int team) {
#if SHARING == 1
    __syncwarp();
#else
    named_barrier_sync(1 + team, SHARING * 32);
#endif
}

// Over the lanes that share rows.
DEVICE float shared_max(float x) {
#pragma unroll
    for (int lanes = 2; lanes < 2 * SHARERS; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}
DEVICE float shared_sum(float x) {
#pragma unroll
    for (int lanes = 2; lanes < 2 * SHARERS; lanes *= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// Scores of keys that no query sees, or not that of the row, become NEVER. Most tiles have none.
DEVICE void hide(float (&scores)[OWN][OWN_KEYS], int64 first_key, int64 keys, int64 first_query) {
    const int64 last_key = first_key + column_at(OWN_KEYS - 1);
#if CAUSAL
    if (last_key < keys && last_key <= first_query) return;
#else
    if (last_key < keys) return;
#endif
#pragma unroll
    for (int i = 0; i < OWN; i++) {
#pragma unroll
        for (int j = 0; j < OWN_KEYS; j++) {
            const int64 key = first_key + column_at(j);
            bool is_seen = key < keys;
#if CAUSAL
            is_seen = is_seen && key <= first_query + row_at(i);
#endif
            if (!is_seen) scores[i][j] = NEVER;
        }
    }
}

// The greatest scores of rows, over all warps of the team. `memory` has 32 floats a warp.
DEVICE void row_maxima(float (&most)[OWN], const float (&scores)[OWN][OWN_KEYS], float *memory, int warp, const Lane &lane) {
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        most[i] = scores[i][0];
#pragma unroll
        for (int j = 1; j < OWN_KEYS; j++) most[i] = fmaxf(most[i], scores[i][j]);
        most[i] = shared_max(most[i]);
    }
#if SHARING == 2
    float *own = memory + warp * 32 + lane.group * 4, *others = memory + (warp ^ 1) * 32 + lane.group * 4;
    if (lane.sharer == 0) {
#pragma unroll
        for (int i = 0; i < OWN; i++) own[row_at(i)] = most[i];
    }
    wait_for_team(warp / SHARING);
#pragma unroll
    for (int i = 0; i < OWN; i++) most[i] = fmaxf(most[i], others[row_at(i)]);
#endif
}

// Sums of rows over all lanes and warps that share them.
DEVICE void row_sums(float (&sum)[OWN], float *memory, int warp, const Lane &lane) {
#pragma unroll
    for (int i = 0; i < OWN; i++) sum[i] = shared_sum(sum[i]);
#if SHARING == 2
    float *both = memory + warp / SHARING * SHARING * 32 + lane.group * 4;
    __syncthreads();
    if (lane.sharer == 0) {
#pragma unroll
        for (int i = 0; i < OWN; i++) both[warp % SHARING * 32 + row_at(i)] = sum[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < OWN; i++) sum[i] = both[row_at(i)] + both[32 + row_at(i)];
#endif
}

KERNEL(attention, THREADS, 1)(const float *q_at, const float *k_at,
#if WRITES_OUT
    const float *v_at, float *out,
#endif
#if WRITES_LOG_SUM_EXP
    float *row_sums_at,
#endif
#if IS_SPLIT
    unsigned long long *done,
#endif
    SIZES, STEPS(q), STEPS(k)
#if WRITES_OUT
    , STEPS(v)
#endif
#if IS_SPLIT
    , int64 part_keys
#endif
) {
    SHARED(memory);
    const Sizes sizes = THE_SIZES;
    const int64 tiles = (queries + QUERIES - 1) / QUERIES;
#if IS_SPLIT
    const Part own_part = part_of(blockIdx.x, gridDim.x / (int)(e0 * e1 * e2), keys, part_keys);
    const int64 head = own_part.head, first = own_part.tile * QUERIES, begin = own_part.first_key;
    int64 end = min(keys, begin + part_keys);
#else
    // Later queries of a causal attention have the most keys: they begin first.
    const int64 head = blockIdx.x / tiles, first = (tiles - 1 - blockIdx.x % tiles) * QUERIES, begin = 0;
    int64 end = keys;
#endif
    HEAD(q, q, queries, depth);
    HEAD(k, k, keys, depth);
    float *q_tile = memory, *weights = q_tile + DEPTH * QUERY_STEP;
    float *slot = weights + TEAMS * KEYS * WEIGHT_STEP, *other = slot + SLOT, *of_warps = other + SLOT;
    const int warp = threadIdx.x / 32, side = warp % SHARING, team = warp / SHARING;
    const Lane lane = lane_of(threadIdx.x);
    const int row = team * 32 + lane.group * 4;
    const int64 own = first + row;
#if CAUSAL
    end = min(end, first + QUERIES);
#endif
#pragma unroll 1
    for (int d = 0; d < DEPTH; d += 64) load_transposed<QUERIES, 64>(q_tile + d * QUERY_STEP, q, first, d);
    load_transposed<KEYS, 64>(slot, k, begin, 0);
    copies_commit();
#if WRITES_OUT
    HEAD(v, v, keys, width);
    float *team_weights = weights + team * KEYS * WEIGHT_STEP + lane.group * 4;
    float sums[OWN][OUT];
    zero(sums);
#endif
    // Sums are those of the thread's own keys.
    float reference[OWN], sum[OWN];
    const float factor = scale * LOG2_E;
#pragma unroll
    for (int i = 0; i < OWN; i++) reference[i] = NEVER, sum[i] = 0.0f;
#pragma unroll 1
    for (int64 at = begin; at < end; at += KEYS) {
        float scores[OWN][OWN_KEYS];
        zero(scores);
#pragma unroll 1
        for (int d = 0; d < DEPTH; d += 64) {
            copies_wait<0>();
            __syncthreads();
            if (d + 64 < DEPTH) load_transposed<KEYS, 64>(other, k, at, d + 64);
#if WRITES_OUT
            else load_tile<64, WIDTH, WIDTH>(other, v, at);
#else
            else if (at + KEYS < end) load_transposed<KEYS, 64>(other, k, at + KEYS, 0);
#endif
            copies_commit();
            multiply<64, QUERY_STEP, KEY_STEP>(scores, q_tile + d * QUERY_STEP + row, slot + side * 64 + lane.sharer * 4);
            float *next = other;
            other = slot, slot = next;
        }
        hide(scores, at + side * 64 + lane.sharer * 4, keys, own);
        float most[OWN];
        row_maxima(most, scores, of_warps, warp, lane);
        bool is_far = false;
#pragma unroll
        for (int i = 0; i < OWN; i++) is_far = is_far || most[i] * factor - reference[i] > 8.0f;
        if (warp_any(is_far)) {
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                const float now = fmaxf(reference[i], rintf(most[i] * factor)), before = exp2_fast(reference[i] - now);
                reference[i] = now;
                sum[i] *= before;
#if WRITES_OUT
#pragma unroll
                for (int c = 0; c < OUT; c++) sums[i][c] *= before;
#endif
            }
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) {
#pragma unroll
            for (int j = 0; j < OWN_KEYS; j++) {
                scores[i][j] = exp2_fast(fmaf(scores[i][j], factor, -reference[i]));
                sum[i] += scores[i][j];
            }
        }
#if WRITES_OUT
#pragma unroll
        for (int j = 0; j < OWN_KEYS; j++)
#pragma unroll
            for (int i = 0; i < OWN; i += 4) {
                const float4 x = {scores[i][j], scores[i + 1][j], scores[i + 2][j], scores[i + 3][j]};
                *(float4 *)(team_weights + (side * 64 + lane.sharer * 4 + column_at(j)) * WEIGHT_STEP + row_at(i)) = x;
            }
        wait_for_team(team);
#pragma unroll 1
        for (int key = 0; key < KEYS; key += 64) {
            copies_wait<0>();
            __syncthreads();
            if (key + 64 < KEYS) load_tile<64, WIDTH, WIDTH>(other, v, at + key + 64);
            else if (at + KEYS < end) load_transposed<KEYS, 64>(other, k, at + KEYS, 0);
            copies_commit();
            multiply<64, WEIGHT_STEP, WIDTH>(sums, team_weights + key * WEIGHT_STEP, slot + side * OUT * SHARERS + lane.sharer * 4);
            float *next = other;
            other = slot, slot = next;
        }
#endif
    }
    row_sums(sum, of_warps, warp, lane);
#if IS_SPLIT
    if (first + team * 32 >= queries) return;
    // After the words of `done`, an even number, numbers of parts.
    float *stored = (float *)(done + e0 * e1 * e2 * tiles * WARPS);
    done += (head * tiles + own_part.tile) * WARPS + warp;
    if (own_part.parts > 1 && !combine(stored, done, own_part, sums, reference, sum)) return;
#endif
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        if (own + row_at(i) >= queries) continue;
        const int64 row = head * queries + own + row_at(i);
        const float share = 1.0f / sum[i];
#if WRITES_OUT
#pragma unroll
        for (int c = 0; c < OUT; c += 4) {
            const float4 x = {sums[i][c] * share, sums[i][c + 1] * share, sums[i][c + 2] * share, sums[i][c + 3] * share};
            put_4(out + row * width, side * OUT * SHARERS + lane.sharer * 4 + column_at(c), width, x);
        }
#endif
#if WRITES_LOG_SUM_EXP
        if (lane.sharer == 0 && side == 0) row_sums_at[2 * row] = reference[i], row_sums_at[2 * row + 1] = share;
#endif
    }
}
