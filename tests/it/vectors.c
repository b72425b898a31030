// Checks the vectors of the headers lane by lane against plain loops and libm; the failures' names.
#include <math.h>
#include <stdio.h>

#include "functions.h"

static int failures;
static void check(int is_right, const char *name, double at) {
    if (!is_right) failures++, printf("%s at %.9g\n", name, at);
}

static int is_same(float a, float b) { return a == b || (a != a && b != b); }

// Lanes of different values, NaN and infinities among them.
static float number(int i) {
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    return i % 11 == 7 ? odd[i / 11 % 5] : (float)((i * 37 % 101) - 50) * 0.75f;
}

static void check_lanes(int from) {
    float a[3 * LANES], b[LANES];
    for (int i = 0; i < 3 * LANES; i++) a[i] = number(from + i);
    for (int i = 0; i < LANES; i++) b[i] = number(2 * from + 3 * i + 1);
    const vf x = v_load(a), y = v_load(b), second = v_load(a + LANES), third = v_load(a + 2 * LANES);
    const vi less = v_less(x, y);
    const Wide wide = v_widen(x);
    const vf narrow = v_narrow(wide);
    vi reversed;
    for (int i = 0; i < LANES; i++) reversed[i] = LANES - 1 - i;
    int any = 0;
    for (int i = 0; i < LANES; i++) {
        const int is_less = a[i] < b[i];
        any |= is_less;
        check(less[i] == -is_less, "v_less", a[i]);
        check(is_same(v_select(less, x, y)[i], is_less ? a[i] : b[i]), "v_select", a[i]);
        check(is_same(v_max(x, y)[i], a[i] > b[i] ? a[i] : b[i]), "v_max", a[i]);
        check(is_same(v_min(x, y)[i], is_less ? a[i] : b[i]), "v_min", a[i]);
        check(v_iota()[i] == i, "v_iota", i);
        check(is_same(v_all(b[0])[i], b[0]), "v_all", b[0]);
        check(is_same((float)(i < LANES / 2 ? wide.low[i] : wide.high[i - LANES / 2]), a[i]), "v_widen", a[i]);
        check(is_same(narrow[i], a[i]), "v_narrow", a[i]);
        check(is_same(v_permute(x, reversed)[i], a[LANES - 1 - i]), "v_permute", i);
        check(is_same(v_swapped_pairs(x)[i], a[i ^ 1]), "v_swapped_pairs", i);
        check(is_same(v_even(x, second)[i], a[2 * i]), "v_even", i);
        check(is_same(v_odd(x, second)[i], a[2 * i + 1]), "v_odd", i);
        check(is_same(v_third0(x, second, third)[i], a[3 * i]), "v_third0", i);
        check(is_same(v_third1(x, second, third)[i], a[3 * i + 1]), "v_third1", i);
        check(is_same(v_third2(x, second, third)[i], a[3 * i + 2]), "v_third2", i);
    }
    check(v_any(less) == any, "v_any", from);
}

static void check_parts(int count) {
    float from[LANES], to[LANES + 1];
    int64_t whole[LANES], columns[2 * LANES];
    double sum = 0.0;
    float greatest = -1e30f;
    for (int i = 0; i < LANES; i++) {
        from[i] = (float)(i * 7 % 5) + 0.25f * (float)i, whole[i] = (int64_t)i << 33;
        sum += from[i], greatest = from[i] > greatest ? from[i] : greatest;
    }
    for (int i = 0; i <= LANES; i++) to[i] = -1.0f;
    v_store_first(to, v_load(from), count);
    const vf part = v_load_part(from, count, 9.0f), first = v_load_first(from, count);
    const vf step = v_load_step(from, 1, count), rest = v_first_of(v_load(from), count, 9.0f);
    const Long l = l_load_first(whole, count), index = l_from(0);
    const Long sums = (Long){l.low + index.low, l.high + index.high};
    const Long columns_of = l_from_float(v_from_long(l_from(5)));
    l_store_step(columns, 2, l_all(3), count);
    for (int i = 0; i < LANES; i++) {
        const int is_in = i < count;
        check(v_first(count)[i] == -is_in, "v_first", count);
        check(part[i] == (is_in ? from[i] : 9.0f), "v_load_part", count);
        check(rest[i] == (is_in ? from[i] : 9.0f), "v_first_of", count);
        check(first[i] == (is_in ? from[i] : 0.0f), "v_load_first", count);
        check(step[i] == (is_in ? from[i] : 0.0f), "v_load_step", count);
        check(to[i] == (is_in ? from[i] : -1.0f), "v_store_first", count);
        check(l_lane(l, i) == (is_in ? whole[i] : 0), "l_load_first", count);
        check(l_less(index, l_all(count))[i] == -is_in, "l_less", count);
        check(l_equal(index, l_all(count))[i] == -(i == count), "l_equal", count);
        check(l_less_equal(index, l_all(count))[i] == -(i <= count), "l_less_equal", count);
        check(l_lane(sums, i) == l_lane(l, i) + i, "l_lane", count);
        check(l_lane(columns_of, i) == 5 + i, "l_from_float", i);
        check(!is_in || columns[2 * i] == 3, "l_store_step", count);
        check(v_gather(from, index, 1, 0, count)[i] == (is_in ? from[i] : 0.0f), "v_gather", count);
    }
    check(to[LANES] == -1.0f, "v_store_first, past the end", count);
    check(fabs(v_sum(v_load(from)) - sum) < 1e-4, "v_sum", sum);
    check(v_sum_wide(v_load(from)) == sum, "v_sum_wide", sum);
    check(v_greatest(v_load(from)) == greatest, "v_greatest", greatest);
}

// Errors of functions, in units in the last place and absolute: one of the two has to hold.
static void check_function(const char *name, vf (*of)(vf), double (*right)(double), double least, double most,
                           double units, double absolute) {
    for (int i = 0; i < 20000; i += LANES) {
        vf x;
        for (int lane = 0; lane < LANES; lane++) x[lane] = (float)(least + (most - least) * (i + lane) / 20000.0);
        const vf y = of(x);
        for (int lane = 0; lane < LANES; lane++) {
            const double exact = right(x[lane]), error = fabs(y[lane] - exact);
            const double unit = ldexp(1.0, ilogb((float)exact) - 23);
            check(error <= units * unit || error <= absolute, name, x[lane]);
        }
    }
}

int main(void) {
    for (int from = 0; from < 200; from++) check_lanes(from);
    for (int count = 0; count <= LANES; count++) check_parts(count);
    check_function("v_e_to", v_e_to, exp, -87.0, 88.0, 2.0, 0.0);
    check_function("v_exp", v_exp, exp, -87.0, 88.0, 2.0, 0.0);
    check_function("v_ln", v_ln, log, 1e-3, 100.0, 3.0, 0.0);
    check_function("v_tanh", v_tanh, tanh, -12.0, 12.0, 3.0, 0.0);
    check_function("v_erf", v_erf, erf, -5.0, 5.0, 0.0, 4.5e-7);
    check_function("v_sin", v_sin, sin, -1000.0, 1000.0, 2.0, 1e-9);
    check_function("v_cos", v_cos, cos, -1000.0, 1000.0, 2.0, 1e-9);
    check_function("v_sqrt", v_sqrt, sqrt, 0.0, 1e6, 0.5, 0.0);
    printf("%d lanes\n", LANES);
    return failures > 0;
}
