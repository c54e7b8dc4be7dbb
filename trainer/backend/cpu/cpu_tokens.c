/* Tokens and attention. A head's products are oneDNN's, on one thread for each head of each sample; the
 * scores of QUERIES queries at a time lie in scratch, so that they stay in cache. */
#include <stdatomic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/backend/cpu/cpu_internal.h"

/* ---- tokens ---- */

typedef struct TokensPlan {
    int64_t first;  /* 1: there is a class token */
    float *addends; /* [tokens, channels]: sines; NULL: there are none */
} TokensPlan;

static void release_tokens(CpuStep *step)
{
    TokensPlan *plan = step->plan;
    free(plan->addends);
}

static FshStatus tokens_prepare(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, TOKENS_X), *y = cpu_output(step, 0);
    const int64_t channels = y->shape[3], width = x->shape[2];
    TokensPlan *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    step->release = release_tokens;
    plan->first = step->node->as.tokens.class_token;
    step->scratch_bytes = (uint64_t)step->program->backend->threads * (uint64_t)channels * sizeof(float);
    if (!step->node->as.tokens.sines)
        return FSH_OK;
    plan->addends = calloc((size_t)(y->shape[1] * channels), sizeof *plan->addends);
    if (!plan->addends)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    for (int64_t t = plan->first; t < y->shape[1]; t++)
        for (int64_t c = 0; c < channels; c++)
            plan->addends[t * channels + c] =
                tokens_sine((t - plan->first) / width, (t - plan->first) % width, c, channels);
    return FSH_OK;
}

/* Makes token `begin` to `end` of all samples. */
static void tokens_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const TokensPlan *plan = step->plan;
    const Tensor *y = cpu_output(step, 0);
    const int64_t tokens = y->shape[1], channels = y->shape[3], pixels = tokens - plan->first;
    const float *class = step->inputs[TOKENS_CLASS],
                *addends = plan->addends ? plan->addends : step->inputs[TOKENS_POSITIONS];
    float *row = (float *)step->program->scratch + part * channels;
    for (int64_t t = begin; t < end; t++)
        for (int64_t n = 0; n < y->shape[0]; n++) {
            if (t < plan->first)
                memcpy(row, class, (size_t)channels * sizeof *row);
            else
                step->kernels->to_f32(cpu_read(step, TOKENS_X, (n * pixels + t - plan->first) * channels),
                                      row, channels);
            for (int64_t c = 0; c < channels; c++)
                row[c] += addends[t * channels + c];
            step->kernels->from_f32(row, cpu_write(step, 0, (n * tokens + t) * channels), channels);
        }
}

static FshStatus tokens_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, cpu_output(step, 0)->shape[1], tokens_part, step);
    return FSH_OK;
}

static FshStatus tokens_backward_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes = (uint64_t)step->program->backend->threads * (uint64_t)cpu_input(step, 0)->shape[3] *
                          (sizeof(float) + sizeof(double));
    return FSH_OK;
}

static void tokens_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *dy = cpu_input(step, 0);
    const int64_t tokens = dy->shape[1], channels = dy->shape[3];
    const int64_t threads = step->program->backend->threads;
    const bool has_class = step->node->as.tokens.class_token; /* its gradient may not be asked for */
    const size_t bytes = (size_t)channels * data_type_bytes(dy->type);
    double *sums = (double *)(void *)step->program->scratch + part * channels;
    float *row = (float *)(void *)((double *)(void *)step->program->scratch + threads * channels) +
                 part * channels,
          *dclass = step->outputs[TOKENS_BACK_DCLASS], *dpositions = step->outputs[TOKENS_BACK_DPOSITIONS];
    for (int64_t t = begin; t < end; t++) {
        memset(sums, 0, (size_t)channels * sizeof *sums);
        for (int64_t n = 0; n < dy->shape[0]; n++) {
            const void *from = cpu_read(step, 0, (n * tokens + t) * channels);
            step->kernels->to_f32(from, row, channels);
            for (int64_t c = 0; c < channels; c++)
                sums[c] += (double)row[c];
            if (t >= has_class && step->outputs[TOKENS_BACK_DX])
                memcpy(cpu_write(step, TOKENS_BACK_DX, (n * (tokens - has_class) + t - has_class) * channels),
                       from, bytes);
        }
        for (int64_t c = 0; c < channels && dpositions; c++)
            dpositions[t * channels + c] = (float)sums[c];
        for (int64_t c = 0; c < channels && dclass && t == 0; c++)
            dclass[c] = (float)sums[c];
    }
}

static FshStatus tokens_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[1], tokens_backward_part, step);
    return FSH_OK;
}

/* ---- attention ---- */

enum { QUERIES = 128 };

/* Rows of floats, `pitch` floats apart. */
typedef struct Rows {
    float *data;
    int64_t pitch;
} Rows;

typedef struct AttentionPlan {
    int64_t samples, heads, tokens, channels; /* channels: of a head */
    float factor;                             /* of the products of queries and keys */
    bool narrow;                              /* rows are converted to floats in scratch, and back */
    int64_t part_floats;                      /* of scratch, for each thread */
    atomic_bool failed;                       /* oneDNN had no memory */
} AttentionPlan;

/* Plans scratch for each thread: `matrices` of tokens x channels where they are narrow, and `squares` of
 * QUERIES x tokens. */
static FshStatus plan_attention(CpuStep *step, const Tensor *y, int matrices, int squares, FshError *error)
{
    const int64_t heads = step->node->as.attention.heads;
    AttentionPlan *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    plan->samples = y->shape[0];
    plan->heads = heads;
    plan->tokens = y->shape[1];
    plan->channels = y->shape[3] / heads;
    plan->factor = (float)(1 / sqrt((double)plan->channels));
    plan->narrow = y->type != DATA_F32;
    plan->part_floats =
        (plan->narrow ? matrices * plan->tokens * plan->channels : 0) + squares * QUERIES * plan->tokens;
    plan->part_floats = (plan->part_floats + 15) / 16 * 16;
    step->scratch_bytes = (uint64_t)(step->program->backend->threads * plan->part_floats) * sizeof(float);
    step->engine = "onednn gemm";
    return FSH_OK;
}

/* What a thread works on: a head of a sample, and the scratch that is left. */
typedef struct Head {
    const CpuStep *step;
    AttentionPlan *plan;
    int64_t sample, head;
    float *scratch;
} Head;

static Head head_of(const CpuStep *step, int part, int64_t item)
{
    AttentionPlan *plan = step->plan;
    return (Head){step, plan, item / plan->heads, item % plan->heads,
                  (float *)(void *)step->program->scratch + part * plan->part_floats};
}

static Rows take(Head *head, int64_t rows, int64_t columns)
{
    const Rows taken = {head->scratch, columns};
    head->scratch += rows * columns;
    return taken;
}

/* Returns the index of the head's rows in a tensor of `thirds` times its channels, and sets their pitch. */
static int64_t place(const Head *head, int third, int thirds, int64_t *pitch)
{
    const AttentionPlan *plan = head->plan;
    const int64_t width = plan->heads * plan->channels;
    *pitch = thirds * width;
    return head->sample * plan->tokens * *pitch + third * width + head->head * plan->channels;
}

/* Returns the head's rows of input k as floats. */
static Rows read_rows(Head *head, int k, int third, int thirds)
{
    const AttentionPlan *plan = head->plan;
    const CpuStep *step = head->step;
    int64_t pitch;
    const int64_t first = place(head, third, thirds, &pitch);
    if (!plan->narrow)
        return (Rows){(float *)step->inputs[k] + first, pitch};
    const Rows rows = take(head, plan->tokens, plan->channels);
    for (int64_t t = 0; t < plan->tokens; t++)
        step->kernels->to_f32(cpu_read(step, k, first + t * pitch), rows.data + t * rows.pitch,
                              plan->channels);
    return rows;
}

/* Returns where the head's rows of output 0 are computed as floats. */
static Rows result_rows(Head *head, int third, int thirds)
{
    int64_t pitch;
    const int64_t first = place(head, third, thirds, &pitch);
    return head->plan->narrow ? take(head, head->plan->tokens, head->plan->channels)
                              : (Rows){(float *)head->step->outputs[0] + first, pitch};
}

/* Writes rows of result_rows to output 0, where they are not there yet. */
static void write_rows(const Head *head, Rows rows, int third, int thirds)
{
    const AttentionPlan *plan = head->plan;
    int64_t pitch;
    const int64_t first = place(head, third, thirds, &pitch);
    for (int64_t t = 0; plan->narrow && t < plan->tokens; t++)
        head->step->kernels->from_f32(rows.data + t * rows.pitch, cpu_write(head->step, 0, first + t * pitch),
                                      plan->channels);
}

static Rows row(Rows rows, int64_t i)
{
    return (Rows){rows.data + i * rows.pitch, rows.pitch};
}

static void multiply(const Head *head, DnnGemm gemm, Rows a, Rows b, Rows c)
{
    gemm.pitch_a = a.pitch;
    gemm.pitch_b = b.pitch;
    gemm.pitch_c = c.pitch;
    if (dnn_gemm(&gemm, a.data, b.data, c.data, NULL))
        atomic_store(&head->plan->failed, true);
}

static FshStatus run_heads(CpuStep *step, CpuPart work, FshError *error)
{
    AttentionPlan *plan = step->plan;
    atomic_store(&plan->failed, false);
    cpu_parallel(step->program->backend, plan->samples * plan->heads, work, step);
    return atomic_load(&plan->failed) ? fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory") : FSH_OK;
}

static FshStatus attention_prepare(CpuStep *step, FshError *error)
{
    return plan_attention(step, cpu_output(step, ATTENTION_Y), 4, 1, error);
}

static void attention_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const CpuChannelKernels *kernels = step->kernels->channel;
    for (int64_t i = begin; i < end; i++) {
        Head head = head_of(step, part, i);
        const AttentionPlan *plan = head.plan;
        const int64_t tokens = plan->tokens, channels = plan->channels;
        const Rows q = read_rows(&head, 0, 0, 3), k = read_rows(&head, 0, 1, 3),
                   v = read_rows(&head, 0, 2, 3);
        const Rows y = result_rows(&head, 0, 1), scores = take(&head, QUERIES, tokens);
        for (int64_t first = 0; first < tokens; first += QUERIES) {
            const int64_t count = first + QUERIES < tokens ? QUERIES : tokens - first;
            multiply(&head, (DnnGemm){count, tokens, channels, .transpose_b = true, .factor = plan->factor},
                     row(q, first), k, scores);
            kernels->softmax(scores.data, count, tokens,
                             (float *)step->outputs[ATTENTION_LOG_SUMS] + i * tokens + first);
            multiply(&head, (DnnGemm){count, channels, tokens, .factor = 1}, scores, v, row(y, first));
        }
        write_rows(&head, y, 0, 1);
    }
}

static FshStatus attention_run(CpuStep *step, FshError *error)
{
    return run_heads(step, attention_part, error);
}

static FshStatus attention_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_attention(step, cpu_input(step, ATTENTION_BACK_Y), 7, 2, error);
}

static void attention_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const CpuChannelKernels *kernels = step->kernels->channel;
    for (int64_t i = begin; i < end; i++) {
        Head head = head_of(step, part, i);
        const AttentionPlan *plan = head.plan;
        const int64_t tokens = plan->tokens, channels = plan->channels;
        const float *log_sums = (const float *)step->inputs[ATTENTION_BACK_LOG_SUMS] + i * tokens;
        const Rows q = read_rows(&head, ATTENTION_BACK_X, 0, 3), k = read_rows(&head, ATTENTION_BACK_X, 1, 3),
                   v = read_rows(&head, ATTENTION_BACK_X, 2, 3),
                   dy = read_rows(&head, ATTENTION_BACK_DY, 0, 1);
        const Rows dq = result_rows(&head, 0, 3), dk = result_rows(&head, 1, 3),
                   dv = result_rows(&head, 2, 3);
        const Rows shares = take(&head, QUERIES, tokens), slopes = take(&head, QUERIES, tokens);
        for (int64_t first = 0; first < tokens; first += QUERIES) {
            const int64_t count = first + QUERIES < tokens ? QUERIES : tokens - first;
            const DnnGemm scores = {count, tokens, channels, .transpose_b = true, .factor = plan->factor};
            const DnnGemm of_shares = {count, tokens, channels, .transpose_b = true, .factor = 1};
            const DnnGemm of_values = {tokens,     channels, count, .transpose_a = true, .adds = first > 0,
                                       .factor = 1};
            const DnnGemm of_queries = {count, channels, tokens, .factor = plan->factor};
            const DnnGemm of_keys = {
                tokens, channels, count, .transpose_a = true, .adds = first > 0, .factor = plan->factor};
            multiply(&head, scores, row(q, first), k, shares);
            kernels->softmax_again(shares.data, count, tokens, log_sums + first);
            multiply(&head, of_values, shares, row(dy, first), dv);
            multiply(&head, of_shares, row(dy, first), v, slopes);
            kernels->softmax_backward(shares.data, slopes.data, count, tokens);
            multiply(&head, of_queries, slopes, k, row(dq, first));
            multiply(&head, of_keys, slopes, row(q, first), dk);
        }
        write_rows(&head, dq, 0, 3);
        write_rows(&head, dk, 1, 3);
        write_rows(&head, dv, 2, 3);
    }
}

static FshStatus attention_backward_run(CpuStep *step, FshError *error)
{
    return run_heads(step, attention_backward_part, error);
}

const CpuOp cpu_ops_tokens[] = {
    {OP_TOKENS, .prepare = tokens_prepare, .run = tokens_run},
    {OP_TOKENS_BACKWARD, .prepare = tokens_backward_prepare, .run = tokens_backward_run},
    {OP_ATTENTION, .prepare = attention_prepare, .run = attention_run},
    {OP_ATTENTION_BACKWARD, .prepare = attention_backward_prepare, .run = attention_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
