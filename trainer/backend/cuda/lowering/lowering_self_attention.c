#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/kernels/kernels_self_attention.h"

/* Self-attention between channels is products of matrices: of pixels by channels in the type of the network,
 * and of channels by channels.
 *
 * In 16 bits the sums over pixels, products and dmixing, are made and kept in f32, since they may be
 * thousands of times what they are sums of: f16 ends at 65,504. So are mixing and dproducts, whose products
 * round their operands to TF32, which has the range of f32 and the precision of f16. What pixels are
 * multiplied by is 16 bits again, with gamma in it: gamma * mixing, and dproducts with its transposed. A
 * number there that f16 cannot hold is one by which the result, x + that * x, could not hold its sum either;
 * one that is too small for f16, below 6e-8, is less than x is rounded by. */

/* ---- spectral norm ---- */

static FshStatus spectral_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_spectral_norm_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus spectral_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const SpectralNormTensors tensors = {.weight = in(step, SPECTRAL_NORM_WEIGHT),
                                         .u = in(step, SPECTRAL_NORM_U),
                                         .v = in(step, SPECTRAL_NORM_V),
                                         .sigma = out(step, SPECTRAL_NORM_SIGMA)};
    return CUDA_TRY(kernel_spectral_norm(&tensors, step->node->as.spectral_norm.training,
                                         out(step, SPECTRAL_NORM_Y), step->scratch, stream),
                    error);
}

static FshStatus spectral_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const SpectralNormTensors tensors = {.weight = in(step, SPECTRAL_NORM_BACK_Y),
                                         .u = in(step, SPECTRAL_NORM_BACK_U),
                                         .v = in(step, SPECTRAL_NORM_BACK_V),
                                         .sigma = in(step, SPECTRAL_NORM_BACK_SIGMA)};
    return CUDA_TRY(kernel_spectral_norm_backward(in(step, SPECTRAL_NORM_BACK_DY), &tensors, out(step, 0),
                                                  step->scratch, stream),
                    error);
}

/* ---- self-attention ---- */

/* The products of the forward step and of the backward one, in the order in which they run. */
enum { PRODUCT_PRODUCTS, PRODUCT_MIXING, PRODUCT_Y, FORWARD_PRODUCTS };
enum {
    PRODUCT_DMIXING,
    PRODUCT_DWEIGHT,
    PRODUCT_DPRODUCTS,
    PRODUCT_DX_OF_DY,
    PRODUCT_DX_OF_X,
    BACKWARD_PRODUCTS
};

typedef struct SelfAttentionPlan {
    MatmulPlan *products[BACKWARD_PRODUCTS]; /* the forward step has fewer */
    /* Of scratch: matrices [N, C, C], first and second, then the kernels' sums and cuBLASLt's workspace. */
    uint64_t second, sums, workspace;
} SelfAttentionPlan;

static void free_plan(void *plan)
{
    SelfAttentionPlan *owned = plan;
    for (int i = 0; i < BACKWARD_PRODUCTS; i++)
        matmul_plan_free(&owned->products[i]);
    free(owned);
}

/* Fills the shapes of the products of `step`. Returns how many there are. */
static int shapes_of(const Step *step, bool tf32, MatmulShape shapes[BACKWARD_PRODUCTS])
{
    const bool forward = step->node->op == OP_SELF_ATTENTION;
    const DeviceTensor *x = in(step, forward ? SELF_ATTENTION_X : SELF_ATTENTION_BACK_X);
    const int64_t images = x->shape[0], pixels = x->shape[1] * x->shape[2], channels = x->shape[3];
    const ElementType type = x->element;
    const MatmulShape common = {.columns = channels,
                                .pitch_a = channels,
                                .pitch_b = channels,
                                .pitch_result = channels,
                                .tf32 = tf32 || element_is_narrow(type)};
    MatmulShape over_pixels = common, of_pixels = common, of_matrices = common, over_images = common;
    over_pixels.rows = channels; /* a' b, for each image */
    over_pixels.inner = pixels;
    over_pixels.operands = type;
    over_pixels.result = ELEMENT_F32;
    over_pixels.transpose_a = true;
    over_pixels.batch = images;
    of_pixels.rows = pixels; /* a b + addend, for each image */
    of_pixels.inner = channels;
    of_pixels.operands = of_pixels.result = type;
    of_pixels.addend = true;
    of_pixels.batch = images;
    of_matrices.rows = images * channels; /* a b, of the matrices of all images with one */
    of_matrices.inner = channels;
    of_matrices.operands = of_matrices.result = ELEMENT_F32;
    over_images.rows = channels; /* a' b, summed over the images */
    over_images.inner = images * channels;
    over_images.operands = over_images.result = ELEMENT_F32;
    over_images.transpose_a = true;
    if (forward) {
        shapes[PRODUCT_PRODUCTS] = over_pixels;
        shapes[PRODUCT_MIXING] = of_matrices;
        shapes[PRODUCT_Y] = of_pixels;
        shapes[PRODUCT_Y].transpose_b = true;
        return FORWARD_PRODUCTS;
    }
    shapes[PRODUCT_DMIXING] = over_pixels;
    shapes[PRODUCT_DWEIGHT] = over_images;
    shapes[PRODUCT_DPRODUCTS] = of_matrices;
    shapes[PRODUCT_DPRODUCTS].transpose_b = true;
    shapes[PRODUCT_DX_OF_DY] = shapes[PRODUCT_DX_OF_X] = of_pixels;
    return BACKWARD_PRODUCTS;
}

static uint64_t aligned(uint64_t bytes)
{
    const uint64_t mask = TENSOR_ALIGNMENT_BYTES - 1;
    return (bytes + mask) & ~mask;
}

static FshStatus self_attention_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const bool forward = step->node->op == OP_SELF_ATTENTION;
    MatmulShape shapes[BACKWARD_PRODUCTS];
    const int count = shapes_of(step, program_backend(program)->tf32, shapes);
    const DeviceTensor *matrices =
        forward ? out(step, SELF_ATTENTION_MIXING) : in(step, SELF_ATTENTION_BACK_MIXING);
    SelfAttentionPlan *plan = calloc(1, sizeof *plan);
    uint64_t workspace = 0;
    FshStatus status = FSH_OK;
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the products of self-attention");
    step_own(step, plan, free_plan);
    plan->second = forward ? 0 : device_tensor_room_bytes(matrices);
    plan->sums = plan->second + device_tensor_room_bytes(matrices);
    plan->workspace = plan->sums + (forward ? 0 : aligned(kernel_mixing_scratch_bytes(matrices)));
    for (int i = 0; i < count && !status; i++) {
        status = matmul_plan_new(&plan->products[i], program_backend(program)->cublas_lt, &shapes[i], error);
        if (!status && matmul_plan_workspace_bytes(plan->products[i]) > workspace)
            workspace = matmul_plan_workspace_bytes(plan->products[i]);
    }
    want_scratch(step, plan->workspace + workspace);
    (void)snprintf(step->engine, sizeof step->engine, "cublaslt");
    return status;
}

/* Returns matrices of this type in scratch, `offset` bytes from its start, shaped like others. */
static DeviceTensor matrices_at(const Step *step, uint64_t offset, const DeviceTensor *like, ElementType type)
{
    DeviceTensor matrices = *like;
    matrices.data = (char *)step->scratch + offset;
    matrices.element = type;
    return matrices;
}

static FshStatus multiply(const Step *step, int product, const DeviceTensor *a, const DeviceTensor *b,
                          const DeviceTensor *addend, const DeviceTensor *result, cudaStream_t stream,
                          FshError *error)
{
    const SelfAttentionPlan *plan = step->plan;
    const MatmulOperands operands = {.a = a->data,
                                     .b = b->data,
                                     .addend = addend ? addend->data : NULL,
                                     .result = result->data,
                                     .workspace = (char *)step->scratch + plan->workspace};
    return matmul_plan_run(plan->products[product], &operands, stream, error);
}

static FshStatus self_attention(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *x = in(step, SELF_ATTENTION_X), *products = out(step, SELF_ATTENTION_PRODUCTS),
                       *mixing = out(step, SELF_ATTENTION_MIXING);
    const DeviceTensor factors = matrices_at(step, 0, mixing, x->element);
    FshStatus status = multiply(step, PRODUCT_PRODUCTS, x, x, NULL, products, stream, error);
    if (!status)
        status = multiply(step, PRODUCT_MIXING, products, in(step, SELF_ATTENTION_WEIGHT), NULL, mixing,
                          stream, error);
    if (!status)
        status =
            CUDA_TRY(kernel_mixing_scale(mixing, in(step, SELF_ATTENTION_GAMMA), &factors, stream), error);
    return status ? status
                  : multiply(step, PRODUCT_Y, x, &factors, x, out(step, SELF_ATTENTION_Y), stream, error);
}

/* Makes dx = dy + dy gamma mixing + x (dproducts + its transposed). dmixing: gamma times the gradient of
 * mixing, whose memory is used up. */
static FshStatus self_attention_dx(const Step *step, const DeviceTensor *dmixing, cudaStream_t stream,
                                   FshError *error)
{
    const SelfAttentionPlan *plan = step->plan;
    const DeviceTensor *dy = in(step, SELF_ATTENTION_BACK_DY), *x = in(step, SELF_ATTENTION_BACK_X),
                       *mixing = in(step, SELF_ATTENTION_BACK_MIXING),
                       *dx = out(step, SELF_ATTENTION_BACK_DX);
    const DeviceTensor dproducts = matrices_at(step, plan->second, mixing, ELEMENT_F32);
    const DeviceTensor of_x = matrices_at(step, 0, mixing, x->element),
                       of_dy = matrices_at(step, plan->second, mixing, x->element);
    FshStatus status = multiply(step, PRODUCT_DPRODUCTS, dmixing, in(step, SELF_ATTENTION_BACK_WEIGHT), NULL,
                                &dproducts, stream, error);
    if (!status)
        status = CUDA_TRY(kernel_add_transposed(&dproducts, &of_x, stream), error);
    if (!status)
        status =
            CUDA_TRY(kernel_mixing_scale(mixing, in(step, SELF_ATTENTION_BACK_GAMMA), &of_dy, stream), error);
    if (!status)
        status = multiply(step, PRODUCT_DX_OF_DY, dy, &of_dy, dy, dx, stream, error);
    return status ? status : multiply(step, PRODUCT_DX_OF_X, x, &of_x, dx, dx, stream, error);
}

static FshStatus self_attention_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const SelfAttentionPlan *plan = step->plan;
    const DeviceTensor *mixing = in(step, SELF_ATTENTION_BACK_MIXING),
                       *dweight = maybe_out(step, SELF_ATTENTION_BACK_DWEIGHT);
    const DeviceTensor dmixing = matrices_at(step, 0, mixing, ELEMENT_F32);
    FshStatus status = multiply(step, PRODUCT_DMIXING, in(step, SELF_ATTENTION_BACK_DY),
                                in(step, SELF_ATTENTION_BACK_X), NULL, &dmixing, stream, error);
    if (!status)
        status = CUDA_TRY(kernel_mixing_backward(&dmixing, mixing, in(step, SELF_ATTENTION_BACK_GAMMA),
                                                 maybe_out(step, SELF_ATTENTION_BACK_DGAMMA),
                                                 (char *)step->scratch + plan->sums, stream),
                          error);
    if (!status && dweight) /* products are their own transposed */
        status = multiply(step, PRODUCT_DWEIGHT, in(step, SELF_ATTENTION_BACK_PRODUCTS), &dmixing, NULL,
                          dweight, stream, error);
    return status || !maybe_out(step, SELF_ATTENTION_BACK_DX)
               ? status
               : self_attention_dx(step, &dmixing, stream, error);
}

const LoweringRow lowering_self_attention[] = {
    {OP_SPECTRAL_NORM, {.prepare = spectral_norm_prepare, .enqueue = spectral_norm}},
    {OP_SPECTRAL_NORM_BACKWARD, {.prepare = spectral_norm_prepare, .enqueue = spectral_norm_backward}},
    {OP_SELF_ATTENTION, {.prepare = self_attention_prepare, .enqueue = self_attention}},
    {OP_SELF_ATTENTION_BACKWARD, {.prepare = self_attention_prepare, .enqueue = self_attention_backward}},
    {OP_KIND_COUNT, {NULL}},
};
