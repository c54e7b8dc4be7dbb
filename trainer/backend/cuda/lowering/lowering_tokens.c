#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>

#include "trainer/backend/cuda/kernels/kernels_tokens.h"

static FshStatus tokens(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_tokens(in(step, TOKENS_X), maybe_in(step, TOKENS_CLASS),
                                  maybe_in(step, TOKENS_POSITIONS), out(step, 0), stream),
                    error);
}

static FshStatus tokens_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_tokens_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus tokens_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_tokens_backward(in(step, 0), step->node->as.tokens.class_token,
                                           maybe_out(step, TOKENS_BACK_DX),
                                           maybe_out(step, TOKENS_BACK_DCLASS),
                                           maybe_out(step, TOKENS_BACK_DPOSITIONS), step->scratch, stream),
                    error);
}

/* ---- attention ---- */

static FshStatus attention_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const bool backward = step->node->op == OP_ATTENTION_BACKWARD;
    const DeviceTensor *x = in(step, backward ? ATTENTION_BACK_X : 0);
    (void)program;
    (void)error;
    (void)snprintf(step->engine, sizeof step->engine, "%s",
                   kernel_attention_way(x, step->node->as.attention.heads)->name);
    if (backward)
        want_scratch(step, kernel_attention_scratch_bytes(in(step, ATTENTION_BACK_LOG_SUMS)));
    return FSH_OK;
}

static FshStatus attention(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *x = in(step, 0);
    const int64_t heads = step->node->as.attention.heads;
    return CUDA_TRY(kernel_attention_way(x, heads)->forward(x, heads, out(step, ATTENTION_Y),
                                                            out(step, ATTENTION_LOG_SUMS), stream),
                    error);
}

static FshStatus attention_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const AttentionGradient gradient = {.dy = in(step, ATTENTION_BACK_DY),
                                        .x = in(step, ATTENTION_BACK_X),
                                        .y = in(step, ATTENTION_BACK_Y),
                                        .log_sums = in(step, ATTENTION_BACK_LOG_SUMS),
                                        .heads = step->node->as.attention.heads};
    return CUDA_TRY(kernel_attention_way(gradient.x, gradient.heads)
                        ->backward(&gradient, out(step, 0), step->scratch, stream),
                    error);
}

const LoweringRow lowering_tokens[] = {
    {OP_TOKENS, {.enqueue = tokens}},
    {OP_TOKENS_BACKWARD, {.prepare = tokens_backward_prepare, .enqueue = tokens_backward}},
    {OP_ATTENTION, {.prepare = attention_prepare, .enqueue = attention}},
    {OP_ATTENTION_BACKWARD, {.prepare = attention_prepare, .enqueue = attention_backward}},
    {OP_KIND_COUNT, {NULL}},
};
