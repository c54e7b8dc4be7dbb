/* Attention and its gradient on the matrix units (attention_tiles.cu, attention_warpgroup.cu) against the
 * same in float64 on the CPU, with tokens that fill tiles of either kernel and that do not; the same bits
 * each time, and nothing beside the result is written. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

enum { GUARD = 512, SAMPLES = 2 }; /* GUARD: elements behind a result */
static const uint16_t mark = 0x5A5A;

typedef struct Case {
    int tokens, heads, channels; /* channels: of a head */
    ElementType element;
    float scale; /* of queries and keys */
} Case;

/* A narrow tensor [SAMPLES, tokens, 1, width] on both sides. */
typedef struct Matrix {
    DeviceTensor tensor;
    float *values;
    size_t count;
} Matrix;

static Matrix make_matrix(const Case *c, Random *random, int width, float scale, bool empty)
{
    Matrix m = {.count = (size_t)SAMPLES * (size_t)c->tokens * (size_t)width};
    uint16_t *bits = malloc((m.count + GUARD) * sizeof *bits);
    m.values = malloc(m.count * sizeof *m.values);
    assert_non_null(bits);
    assert_non_null(m.values);
    for (size_t i = 0; i < m.count + GUARD; i++)
        bits[i] = mark;
    for (size_t i = 0; i < m.count && !empty; i++) {
        const float value = scale * random_normal(random);
        bits[i] = narrow_bits(c->element, fabsf(value) < 1e-3F ? 0 : value);
        m.values[i] = narrow_value(c->element, bits[i]);
    }
    m.tensor = (DeviceTensor){.data = gpu_copy_of(bits, (m.count + GUARD) * sizeof *bits),
                              .element = c->element,
                              .rank = 4,
                              .shape = {SAMPLES, c->tokens, 1, width},
                              .pitch = width,
                              .rows = (int64_t)SAMPLES * c->tokens};
    free(bits);
    return m;
}

static void free_matrix(Matrix *m)
{
    gpu_check(cudaFree(m->tensor.data));
    free(m->values);
}

/* Reads what a kernel made, and checks that it kept off what lies behind. Returns its bits, for free. */
static uint16_t *read_result(const Case *c, Matrix *m)
{
    uint16_t *bits = gpu_read(m->tensor.data, (m->count + GUARD) * sizeof *bits);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(bits[m->count + i], mark);
    for (size_t i = 0; i < m->count; i++)
        m->values[i] = narrow_value(c->element, bits[i]);
    return bits;
}

enum { QUERY, KEY, VALUE };

/* Returns the row of a token of a head; third: QUERY … of x, 0 of y. */
static const float *row_of(const Case *c, const Matrix *m, int sample, int head, int third, int token)
{
    const size_t pitch = (size_t)m->tensor.pitch;
    return m->values + ((size_t)sample * (size_t)c->tokens + (size_t)token) * pitch +
           (size_t)((third * c->heads + head) * c->channels);
}

static double dot(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* A head in float64: shares [tokens][tokens] of keys for each query, and slopes, the gradients of the scores,
 * beside the sizes of what these are differences of. */
typedef struct Head {
    double *shares, *slopes, *sizes, *log_sums;
} Head;

/* dy is NULL in front of the backward pass. */
static void compute_head(const Case *c, const Matrix *x, const Matrix *y, const Matrix *dy, int sample,
                         int head, Head *made)
{
    const double factor = 1 / sqrt((double)c->channels);
    for (int q = 0; q < c->tokens; q++) {
        double *shares = made->shares + (size_t)q * (size_t)c->tokens, greatest = -INFINITY, sum = 0;
        const float *query = row_of(c, x, sample, head, QUERY, q);
        for (int k = 0; k < c->tokens; k++) {
            shares[k] = factor * dot(query, row_of(c, x, sample, head, KEY, k), c->channels);
            greatest = fmax(greatest, shares[k]);
        }
        for (int k = 0; k < c->tokens; k++)
            sum += shares[k] = exp(shares[k] - greatest);
        made->log_sums[q] = greatest + log(sum);
        for (int k = 0; k < c->tokens; k++)
            shares[k] /= sum;
        if (!dy)
            continue;
        const float *gradient = row_of(c, dy, sample, head, 0, q);
        const double mean = dot(gradient, row_of(c, y, sample, head, 0, q), c->channels);
        for (int k = 0; k < c->tokens; k++) {
            const double of_share = dot(gradient, row_of(c, x, sample, head, VALUE, k), c->channels);
            const size_t at = (size_t)q * (size_t)c->tokens + (size_t)k;
            made->slopes[at] = factor * shares[k] * (of_share - mean);
            made->sizes[at] = factor * shares[k] * (fabs(of_share) + fabs(mean));
        }
    }
}

/* Fails unless the row found is the sum of weights * rows, of which each term may be off by the rounding of
 * its weight, and the result by its own. weights, sizes: of row 0, `stride` apart. */
static void compare_row(const Case *c, const char *what, const Matrix *rows, int sample, int head, int third,
                        const double *weights, const double *sizes, size_t stride, const float *found, int at)
{
    const double epsilon = c->element == ELEMENT_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    for (int i = 0; i < c->channels; i++) {
        double wanted = 0, terms = 0;
        for (int t = 0; t < c->tokens; t++) {
            const double value = (double)row_of(c, rows, sample, head, third, t)[i];
            wanted += weights[(size_t)t * stride] * value;
            terms += fabs(sizes[(size_t)t * stride] * value);
        }
        const double allowed = epsilon * fabs(wanted) + 1.5 * epsilon * terms + ldexp(1, -20);
        if (!(fabs((double)found[i] - wanted) <= allowed))
            fail_msg("%d tokens, %d heads of %d, element %d: %s, sample %d, head %d, row %d, channel %d: "
                     "%.9g, not %.9g, off by more than %.3g",
                     c->tokens, c->heads, c->channels, c->element, what, sample, head, at, i,
                     (double)found[i], wanted, allowed);
    }
}

static void compare_forward(const Case *c, const Matrix *x, const Matrix *y, const float *log_sums,
                            Head *made)
{
    for (int sample = 0; sample < SAMPLES; sample++)
        for (int head = 0; head < c->heads; head++) {
            compute_head(c, x, NULL, NULL, sample, head, made);
            for (int q = 0; q < c->tokens; q++) {
                const double *shares = made->shares + (size_t)q * (size_t)c->tokens;
                const float found = log_sums[(sample * c->heads + head) * c->tokens + q];
                compare_row(c, "y", x, sample, head, VALUE, shares, shares, 1,
                            row_of(c, y, sample, head, 0, q), q);
                if (!(fabs((double)found - made->log_sums[q]) <= 1e-4 + 1e-5 * fabs(made->log_sums[q])))
                    fail_msg("%d tokens: log_sum %d: %g, not %g", c->tokens, q, (double)found,
                             made->log_sums[q]);
            }
        }
}

static void compare_backward(const Case *c, const Matrix *x, const Matrix *y, const Matrix *dy,
                             const Matrix *dx, Head *made)
{
    const size_t tokens = (size_t)c->tokens;
    for (int sample = 0; sample < SAMPLES; sample++)
        for (int head = 0; head < c->heads; head++) {
            compute_head(c, x, y, dy, sample, head, made);
            for (int t = 0; t < c->tokens; t++) {
                const size_t of_query = (size_t)t * tokens, of_key = (size_t)t;
                compare_row(c, "dquery", x, sample, head, KEY, made->slopes + of_query,
                            made->sizes + of_query, 1, row_of(c, dx, sample, head, QUERY, t), t);
                compare_row(c, "dkey", x, sample, head, QUERY, made->slopes + of_key, made->sizes + of_key,
                            tokens, row_of(c, dx, sample, head, KEY, t), t);
                compare_row(c, "dvalue", dy, sample, head, 0, made->shares + of_key, made->shares + of_key,
                            tokens, row_of(c, dx, sample, head, VALUE, t), t);
            }
        }
}

/* Runs a way forward and backward, twice. */
static void try(const AttentionWay *way, const Case *c)
{
    Random random;
    random_start(&random, (uint64_t)c->tokens, (uint64_t)c->heads);
    const int width = c->heads * c->channels;
    const size_t squares = (size_t)c->tokens * (size_t)c->tokens;
    Matrix x = make_matrix(c, &random, 3 * width, c->scale, false),
           dy = make_matrix(c, &random, width, 1, false), y = make_matrix(c, &random, width, 0, true),
           dx = make_matrix(c, &random, 3 * width, 0, true);
    const size_t numbers = (size_t)SAMPLES * (size_t)c->heads * (size_t)c->tokens;
    DeviceTensor log_sums = {.data = gpu_copy_of(NULL, numbers * sizeof(float)),
                             .element = ELEMENT_F32,
                             .rank = 4,
                             .shape = {SAMPLES, c->heads, c->tokens, 1},
                             .pitch = 1,
                             .rows = (int64_t)numbers};
    const AttentionGradient gradient = {
        .dy = &dy.tensor, .x = &x.tensor, .y = &y.tensor, .log_sums = &log_sums, .heads = c->heads};
    void *scratch = gpu_copy_of(NULL, kernel_attention_scratch_bytes(&log_sums));
    Head made = {malloc(squares * sizeof(double)), malloc(squares * sizeof(double)),
                 malloc(squares * sizeof(double)), malloc((size_t)c->tokens * sizeof(double))};
    if (!way->fits(&x.tensor, c->heads)) {
        printf("left out: %s, heads of %d channels\n", way->name, c->channels);
    } else {
        uint16_t *first[2] = {NULL, NULL};
        for (int turn = 0; turn < 2; turn++) {
            gpu_check(way->forward(&x.tensor, c->heads, &y.tensor, &log_sums, NULL));
            gpu_check(way->backward(&gradient, &dx.tensor, scratch, NULL));
            gpu_check(cudaDeviceSynchronize());
            uint16_t *made_y = read_result(c, &y), *made_dx = read_result(c, &dx);
            if (turn == 0) {
                first[0] = made_y;
                first[1] = made_dx;
                continue;
            }
            assert_memory_equal(first[0], made_y, y.count * sizeof *made_y);
            assert_memory_equal(first[1], made_dx, dx.count * sizeof *made_dx);
            free(made_y);
            free(made_dx);
        }
        float *sums = gpu_read(log_sums.data, numbers * sizeof *sums);
        compare_forward(c, &x, &y, sums, &made);
        compare_backward(c, &x, &y, &dy, &dx, &made);
        free(sums);
        free(first[0]);
        free(first[1]);
    }
    free(made.shares);
    free(made.slopes);
    free(made.sizes);
    free(made.log_sums);
    gpu_check(cudaFree(scratch));
    gpu_check(cudaFree(log_sums.data));
    free_matrix(&x);
    free_matrix(&dy);
    free_matrix(&y);
    free_matrix(&dx);
}

static void try_all(const AttentionWay *way)
{
    static const int tokens[] = {1,   5,   15,  16,  17,  31,  32,  33,  48,  49,  63,  64, 65,
                                 101, 127, 128, 129, 145, 192, 197, 255, 256, 257, 320, 401};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            for (int channels = 32; channels <= 64; channels += 32) {
                Case c = {tokens[i], i % 2 ? 3 : 1, channels, bf16 ? ELEMENT_BF16 : ELEMENT_F16, 1};
                try(way, &c);
                c.scale = 3; /* a few keys have almost all */
                try(way, &c);
            }
}

TEST(test_tiles_agree_with_float64)
{
    try_all(&attention_tiles);
}

TEST(test_warpgroups_agree_with_float64)
{
    try_all(&attention_warpgroup);
    try(&attention_warpgroup, &(Case){1111, 1, 64, ELEMENT_BF16, 1});
}

/* Each way refuses what it does not fit, and the fastest that does is taken. */
TEST(test_what_does_not_fit_is_left_to_others)
{
    static const struct {
        int tokens, channels;
        bool warpgroup;
    } cases[] = {{101, 64, true}, {101, 32, false}, {4096, 64, true}, {4097, 64, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case c = {cases[i].tokens, 1, cases[i].channels, ELEMENT_F16, 1};
        Random random;
        random_start(&random, 7, i);
        Matrix x = make_matrix(&c, &random, 3 * c.channels, 1, false),
               y = make_matrix(&c, &random, c.channels, 0, true);
        const size_t numbers = (size_t)SAMPLES * (size_t)c.tokens;
        const DeviceTensor log_sums = {.data = gpu_copy_of(NULL, numbers * sizeof(float)),
                                       .element = ELEMENT_F32,
                                       .rank = 4,
                                       .shape = {SAMPLES, 1, c.tokens, 1},
                                       .pitch = 1,
                                       .rows = (int64_t)numbers};
        const bool fits = attention_warpgroup.fits(&x.tensor, 1);
        assert_true(cases[i].warpgroup || !fits); /* where it is true it takes a Hopper */
        assert_int_equal(attention_warpgroup.forward(&x.tensor, 1, &y.tensor, &log_sums, NULL),
                         fits ? cudaSuccess : cudaErrorNotSupported);
        assert_ptr_equal(kernel_attention_way(&x.tensor, 1), fits ? &attention_warpgroup : &attention_tiles);
        gpu_check(cudaDeviceSynchronize());
        gpu_check(cudaFree(log_sums.data));
        free_matrix(&x);
        free_matrix(&y);
    }
}
