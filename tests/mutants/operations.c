// Operations with one mistake each, chosen by FAULT; 0 is right, in plain f32.
#include <math.h>
#include <stdint.h>
#include <string.h>

#define IF(fault, wrong, right) (FAULT == (fault) ? (wrong) : (right))

static float bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x8000u) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static float greatest(const float *x, int n) {
    float most = x[0];
    for (int i = 1; i < IF(2, n - 1, n); i++) most = x[i] > most ? x[i] : most;
    return IF(1, 0.0f, most);
}

// 1 no maximum is taken away, 2 it is that of all but the last, 3 the sum lacks the last, 4 the first,
// 5 the sum is one of bf16, 6 the result has a factor, 7 the last row is not computed, 8 two elements
// change places
void softmax(float *out, const float *x, int rows, int n) {
    for (int row = 0; row < IF(7, rows - 1, rows); row++, x += n, out += n) {
        float most = greatest(x, n), sum = 0;
        for (int i = 0; i < n; i++) {
            out[i] = expf(x[i] - most);
            if (!(FAULT == 3 && i == n - 1) && !(FAULT == 4 && i == 0)) sum += out[i];
            if (FAULT == 5) sum = bf16(sum);
        }
        for (int i = 0; i < n; i++) out[i] = out[i] / sum * IF(6, 1.00001f, 1.0f);
        if (FAULT == 8 && row == rows / 2) {
            float held = out[0];
            out[0] = out[n - 1];
            out[n - 1] = held;
        }
    }
}

// 1 nothing is subtracted, 2 the mean of the terms lacks the last, 3 the first
void softmax_grad(float *grad_x, const float *grad, const float *x, int rows, int n) {
    for (int row = 0; row < rows; row++, x += n, grad += n, grad_x += n) {
        float most = x[0], sum = 0, mean = 0;
        for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
        for (int i = 0; i < n; i++) sum += grad_x[i] = expf(x[i] - most);
        for (int i = IF(3, 1, 0); i < IF(2, n - 1, n); i++) mean += grad_x[i] / sum * grad[i];
        for (int i = 0; i < n; i++) grad_x[i] = grad_x[i] / sum * (grad[i] - IF(1, 0.0f, mean));
    }
}

// 1 no eps, 2 a tenth of it, 3 outside of the root, 4 variance over n - 1, 5 mean and 6 variance without
// the last, 7 no mean, 8 no gain, 9 no bias, 10 the bias of the next column, 11 bf16 variance
void layernorm(float *out, const float *x, const float *gamma, const float *beta, int rows, int n) {
    const float eps = IF(1, 0.0f, IF(2, 1e-6f, 1e-5f));
    for (int row = 0; row < rows; row++, x += n, out += n) {
        float mean = 0, variance = 0;
        for (int i = 0; i < IF(5, n - 1, n); i++) mean += x[i];
        mean = IF(7, 0.0f, mean / n);
        for (int i = 0; i < IF(6, n - 1, n); i++) variance += (x[i] - mean) * (x[i] - mean);
        variance /= IF(4, n - 1, n);
        if (FAULT == 11) variance = bf16(variance);
        float scale = FAULT == 3 ? 1 / (sqrtf(variance) + eps) : 1 / sqrtf(variance + eps);
        for (int i = 0; i < n; i++)
            out[i] = IF(8, 1.0f, gamma[i]) * ((x[i] - mean) * scale) + IF(9, 0.0f, beta[IF(10, (i + 1) % n, i)]);
    }
}

// 1 no eps, 2 a tenth of it, 3 the mean lacks the last, 4 it is over n - 1, 5 no gain
void rmsnorm(float *out, const float *x, const float *gamma, int rows, int n) {
    const float eps = IF(1, 0.0f, IF(2, 1e-6f, 1e-5f));
    for (int row = 0; row < rows; row++, x += n, out += n) {
        float squares = 0;
        for (int i = 0; i < IF(3, n - 1, n); i++) squares += x[i] * x[i];
        float scale = 1 / sqrtf(squares / IF(4, n - 1, n) + eps);
        for (int i = 0; i < n; i++) out[i] = IF(5, 1.0f, gamma[i]) * (x[i] * scale);
    }
}

// 1 the approximation by tanh, 2 zero below -4, 3 x above 3, 4 a factor, 5 the last element is missing
void gelu(float *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < IF(5, n - 1, n); i++) {
        float y = x[i], tanh = tanhf(0.79788456f * (y + 0.044715f * y * y * y));
        out[i] = FAULT == 1 ? 0.5f * y * (1 + tanh) : 0.5f * y * erfcf(-0.70710678f * y);
        if (FAULT == 2 && y < -4) out[i] = 0;
        if (FAULT == 3 && y > 3) out[i] = y;
        if (FAULT == 4) out[i] *= 1.00001f;
    }
}

// 1 zero below -20, 2 e^x (overflows), 3 the gate of bf16
void swish(float *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float y = x[i], gate = FAULT == 2 ? expf(y) / (1 + expf(y)) : 1 / (1 + expf(-y));
        out[i] = y * IF(3, bf16(gate), gate);
        if (FAULT == 1 && y < -20) out[i] = 0;
    }
}

// 1 without the last, 2 without the first, 3 over n - 1 (small sizes show it), 4 a half
void mse(float *out, const float *x, const float *target, int64_t n) {
    float sum = 0;
    for (int64_t i = IF(2, 1, 0); i < IF(1, n - 1, n); i++) sum += (x[i] - target[i]) * (x[i] - target[i]);
    out[0] = sum / IF(3, n - 1, n) * IF(4, 0.5f, 1.0f);
}

// 1 no maximum is taken away, 3 the sum lacks the last class, 4 one row has another label, 5 the mean
// lacks the last row, 6 the first
void cross_entropy(float *out, const float *x, const int64_t *labels, int rows, int n) {
    float total = 0;
    for (int row = IF(6, 1, 0); row < IF(5, rows - 1, rows); row++) {
        const float *own = x + (int64_t)row * n;
        float most = greatest(own, n), sum = 0;
        for (int i = 0; i < IF(3, n - 1, n); i++) sum += expf(own[i] - most);
        int64_t label = labels[row];
        if (FAULT == 4 && row == rows - 1) label = (label + 1) % n;
        total += logf(sum) + (most - own[label]);
    }
    out[0] = total / rows;
}
