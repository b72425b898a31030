// Attention as a library computes it, in bf16 with sums in double, one query at a time.
#pragma once

// Steps of an operand from one sequence, head and row to the next.
struct Heads {
    uint64_t batch, head, row;

    uint64_t at(uint64_t sequence, uint64_t of_head, uint64_t of_row) const {
        return sequence * batch + of_head * head + of_row * row;
    }
};

static Heads heads(Input &in) {
    Heads steps;
    steps.batch = in.word(), steps.head = in.word(), steps.row = in.word();
    return steps;
}

static double rounded(double x) {
    char bits[2];
    store(bits, 2, (float)x);
    return Factor{bits, 2}[0];
}

static void attention(const std::vector<Buffer> &buffers, Input &in) {
    const uint64_t is_gradient = in.word(), with_sums = in.word(), is_causal = in.word();
    uint64_t sizes[6];
    for (uint64_t &size : sizes) size = in.word();
    const uint64_t batch = sizes[0], count = sizes[1], key_count = sizes[2], queries = sizes[3], keys = sizes[4], width = sizes[5];
    const uint32_t scale_bits = (uint32_t)in.word();
    float scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    const Heads at_q = heads(in), at_k = heads(in), at_v = heads(in), at_grad = heads(in), at_out = heads(in);
    const auto matrix = [&] { return Factor{(const char *)view(buffers, in), 2}; };
    const Factor q = matrix(), k = matrix(), v = matrix();
    const Factor grad_out = is_gradient ? matrix() : q;
    const float *given_sums = is_gradient ? (const float *)view(buffers, in) : nullptr;
    const Factor given_out = is_gradient ? matrix() : q;
    char *first = view(buffers, in), *others[2] = {};
    if (is_gradient || with_sums) others[0] = view(buffers, in);
    if (is_gradient) others[1] = view(buffers, in);
    spoil_scratch(buffers, in);
    const uint64_t of_keys = batch * key_count * keys * width;
    std::vector<double> grad_k(is_gradient ? of_keys : 0), grad_v(grad_k.size());
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t h = 0; h < count; h++)
            for (uint64_t row = 0; row < queries; row++) {
                const uint64_t of_key = key_count == count ? h : 0, from = (b * count + h) * queries + row;
                const auto dot = [&](const Factor &x, uint64_t i, const Factor &y, uint64_t j) {
                    double sum = 0;
                    for (uint64_t c = 0; c < width; c++) sum += x[i + c] * y[j + c];
                    return sum;
                };
                const uint64_t seen = is_causal ? std::min(row + 1, keys) : keys;
                std::vector<double> weights(seen);
                double greatest = -INFINITY, sum = 0;
                for (uint64_t j = 0; j < seen; j++) {
                    weights[j] = scale * dot(q, at_q.at(b, h, row), k, at_k.at(b, of_key, j));
                    greatest = std::max(greatest, weights[j]);
                }
                for (double score : weights) sum += std::exp(score - greatest);
                const double log_sum_exp = is_gradient ? given_sums[from] : greatest + std::log(sum);
                for (double &weight : weights) weight = std::exp(weight - log_sum_exp);
                std::vector<double> out(width);
                const double delta = is_gradient ? dot(grad_out, at_grad.at(b, h, row), given_out, at_out.at(b, h, row)) : 0;
                for (uint64_t j = 0; j < seen; j++) {
                    const uint64_t key = at_k.at(b, of_key, j), value = at_v.at(b, of_key, j);
                    const double of_score = is_gradient ? scale * weights[j] * (dot(grad_out, at_grad.at(b, h, row), v, value) - delta) : 0;
                    const uint64_t to = ((b * key_count + of_key) * keys + j) * width;
                    for (uint64_t c = 0; c < width; c++) {
                        if (!is_gradient) {
                            out[c] += rounded(weights[j]) * v[value + c];
                            continue;
                        }
                        out[c] += rounded(of_score) * k[key + c];
                        grad_k[to + c] += rounded(of_score) * q[at_q.at(b, h, row) + c];
                        grad_v[to + c] += rounded(weights[j]) * grad_out[at_grad.at(b, h, row) + c];
                    }
                }
                for (uint64_t c = 0; c < width; c++) store(first + 2 * (from * width + c), 2, (float)out[c]);
                if (with_sums) ((float *)others[0])[from] = (float)log_sum_exp;
            }
    for (uint64_t i = 0; i < grad_k.size(); i++) store(others[0] + 2 * i, 2, (float)grad_k[i]);
    for (uint64_t i = 0; i < grad_v.size(); i++) store(others[1] + 2 * i, 2, (float)grad_v[i]);
}
