#include "trainer/backend/cuda/program.h"

#include <stdlib.h>

/* cuDNN's plans: plain float32 sums that come out the same each time. Candidates only matter when they are
 * timed. */
enum { TIMED_CANDIDATES = 8 };
static const uint64_t convolution_workspace_limit_bytes = UINT64_C(2) << 30;

/* Tensors of the step; what the op table marks optional is asked for with maybe_, and NULL where it is absent. */
static const DeviceTensor *in(const Step *step, int i)
{
    return &step->inputs[i];
}

static const DeviceTensor *out(const Step *step, int i)
{
    return &step->outputs[i];
}

static const DeviceTensor *maybe_in(const Step *step, int i)
{
    return step->inputs[i].data ? &step->inputs[i] : NULL;
}

static const DeviceTensor *maybe_out(const Step *step, int i)
{
    return step->outputs[i].data ? &step->outputs[i] : NULL;
}

static void want_scratch(Step *step, uint64_t bytes)
{
    if (bytes > step->scratch_bytes)
        step->scratch_bytes = bytes;
}

/* ---- pointwise ---- */

static FshStatus fill(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_fill(out(step, 0), step->node->as.fill.value, stream), error);
}

static FshStatus normalize(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_normalize(in(step, 0), step->node->as.normalize.mean,
                                     step->node->as.normalize.deviation, out(step, 0), stream),
                    error);
}

static FshStatus relu(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_relu(in(step, 0), step->node->as.relu.slope, out(step, 0), stream), error);
}

static FshStatus relu_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(
        kernel_relu_backward(in(step, 0), in(step, 1), step->node->as.relu.slope, out(step, 0), stream),
        error);
}

static FshStatus add(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_add(in(step, 0), in(step, 1), out(step, 0), stream), error);
}

static FshStatus flatten(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_flatten(in(step, 0), out(step, 0), stream), error);
}

static FshStatus flatten_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_flatten_backward(in(step, 0), out(step, 0), stream), error);
}

/* ---- windows ---- */

static PoolShape pool_shape(const Step *step)
{
    const Pool2d *pool = &step->node->as.pool;
    return (PoolShape){(int)pool->kernel, (int)pool->stride, (int)pool->padding};
}

static FshStatus max_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_max_pool(in(step, 0), &pool, out(step, 0), out(step, 1), stream), error);
}

static FshStatus max_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_max_pool_backward(in(step, 0), in(step, 1), &pool, out(step, 0), stream), error);
}

static FshStatus avg_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_avg_pool(in(step, 0), &pool, out(step, 0), stream), error);
}

static FshStatus avg_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_avg_pool_backward(in(step, 0), &pool, out(step, 0), stream), error);
}

static FshStatus global_avg_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_global_avg_pool(in(step, 0), out(step, 0), stream), error);
}

static FshStatus global_avg_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_global_avg_pool_backward(in(step, 0), out(step, 0), stream), error);
}

static FshStatus reflection_pad(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_reflection_pad(in(step, 0), (int)step->node->as.pad.padding, out(step, 0), stream),
                    error);
}

static FshStatus reflection_pad_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(
        kernel_reflection_pad_backward(in(step, 0), (int)step->node->as.pad.padding, out(step, 0), stream),
        error);
}

/* ---- batch norm ---- */

static NormActivation norm_activation(const Step *step)
{
    return (NormActivation){step->node->as.norm.relu, step->node->as.norm.slope};
}

static FshStatus batch_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus batch_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const BatchNorm *options = &step->node->as.norm.options;
    const NormTensors tensors = {.x = in(step, 0),
                                 .weight = in(step, 1),
                                 .bias = in(step, 2),
                                 .mean = out(step, 1),
                                 .inverse_deviation = out(step, 2)};
    const NormActivation activation = norm_activation(step);
    FshStatus status = FSH_OK;
    if (options->training)
        status = CUDA_TRY(kernel_batch_norm_statistics(&tensors, options->epsilon, options->momentum,
                                                       in(step, 3), in(step, 4), step->scratch, stream),
                          error);
    else
        status = CUDA_TRY(
            kernel_batch_norm_running(in(step, 3), in(step, 4), options->epsilon, &tensors, stream), error);
    if (!status)
        status = CUDA_TRY(
            kernel_batch_norm_apply(&tensors, &activation, maybe_in(step, 5), out(step, 0), stream), error);
    return status;
}

static FshStatus batch_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, 1),
                                 .weight = in(step, 2),
                                 .bias = in(step, 3),
                                 .mean = in(step, 4),
                                 .inverse_deviation = in(step, 5)};
    const NormActivation activation = norm_activation(step);
    return CUDA_TRY(kernel_batch_norm_backward(in(step, 0), &tensors, &activation, maybe_in(step, 6),
                                               step->node->as.norm.options.training, maybe_out(step, 0),
                                               out(step, 1), out(step, 2), maybe_out(step, 3), step->scratch,
                                               stream),
                    error);
}

/* ---- convolution ---- */

static const cudnnDataType_t cudnn_types[] = {
    [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_U8] = CUDNN_DATA_UINT8, [ELEMENT_I64] = CUDNN_DATA_INT64};

/* NHWC and OHWI are N, C, H, W and K, C, R, S to cuDNN, with strides that say how they lie. */
static int convolution_tensor(CudnnPlan *plan, const DeviceTensor *tensor)
{
    const int64_t dimensions[4] = {tensor->shape[0], tensor->shape[3], tensor->shape[1], tensor->shape[2]};
    return cudnn_plan_tensor(plan, cudnn_types[tensor->element], dimensions);
}

/* Which of a node's tensors are x, weight and y of the convolution y = x * weight; one of them is the result.
 */
typedef struct Convolution {
    ConvolutionKind kind;
    const DeviceTensor *x, *weight, *y;
} Convolution;

static Convolution convolution_of(const Step *step)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return (Convolution){CONVOLUTION_BACKWARD_DATA, .x = out(step, 0), .weight = in(step, 1),
                             .y = in(step, 0)};
    case OP_CONV2D_BACKWARD_WEIGHT:
        return (Convolution){CONVOLUTION_BACKWARD_WEIGHT, .x = in(step, 1), .weight = out(step, 0),
                             .y = in(step, 0)};
    default:
        return (Convolution){CONVOLUTION_FORWARD, .x = in(step, 0), .weight = in(step, 1), .y = out(step, 0)};
    }
}

static FshStatus convolution_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const CudaBackend *backend = program_backend(program);
    const Convolution convolution = convolution_of(step);
    if (step->node->as.conv.groups > 1)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no convolution in groups; use --device cpu");
    const ConvolutionShape shape = {step->node->as.conv.stride, step->node->as.conv.padding};
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TF32 | CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE,
                                backend->benchmark ? TIMED_CANDIDATES : 1, convolution_workspace_limit_bytes};
    FshStatus status = cudnn_plan_new(&step->convolution, &backend->cudnn, error);
    if (status)
        return status;
    int x = convolution_tensor(step->convolution, convolution.x);
    int weight = convolution_tensor(step->convolution, convolution.weight);
    int y = convolution_tensor(step->convolution, convolution.y);
    cudnn_plan_convolution(step->convolution, convolution.kind, x, weight, y, &shape);
    status = cudnn_plan_build(step->convolution, &policy, error);
    want_scratch(step, cudnn_plan_workspace_bytes(step->convolution));
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        want_scratch(step, kernel_column_scratch_bytes(convolution.y));
    return status;
}

static FshStatus convolution_bind(const CudaProgram *program, Step *step, FshError *error)
{
    const Convolution convolution = convolution_of(step);
    void *const data[] = {convolution.x->data, convolution.weight->data, convolution.y->data};
    FshStatus status = cudnn_plan_bind(step->convolution, data, step->scratch, error);
    if (!status && cudnn_plan_candidates(step->convolution) > 1)
        status = cudnn_plan_choose(step->convolution, program_backend(program)->stream, error);
    return status;
}

/* y's bias, or the gradient of the bias from that of y. */
static FshStatus convolution(const Step *step, cudaStream_t stream, FshError *error)
{
    FshStatus status = cudnn_plan_run(step->convolution, error);
    if (!status && step->node->op == OP_CONV2D && maybe_in(step, 2))
        status = CUDA_TRY(kernel_add_bias(out(step, 0), in(step, 2), stream), error);
    if (!status && step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        status = CUDA_TRY(kernel_column_sum(in(step, 0), out(step, 1), step->scratch, stream), error);
    return status;
}

/* ---- linear: y [N, out] = x [N, in] weight' + bias ---- */

static FshStatus linear_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const DeviceTensor *a = in(step, 0), *b = in(step, 1), *result = out(step, 0);
    MatmulShape shape = {.rows = result->shape[0], .columns = result->shape[1]};
    switch (step->node->op) {
    case OP_LINEAR_BACKWARD_DATA: /* dx = dy weight */
        shape.inner = a->shape[1];
        break;
    case OP_LINEAR_BACKWARD_WEIGHT: /* dweight = dy' x */
        shape.inner = a->shape[0];
        shape.transpose_a = true;
        if (maybe_out(step, 1))
            want_scratch(step, kernel_column_scratch_bytes(a));
        break;
    default:
        shape.inner = b->shape[1];
        shape.transpose_b = true;
        shape.bias = maybe_in(step, 2) != NULL;
        break;
    }
    FshStatus status = matmul_plan_new(&step->matmul, program_backend(program)->cublas_lt, &shape, error);
    if (!status)
        want_scratch(step, matmul_plan_workspace_bytes(step->matmul));
    return status;
}

static FshStatus linear(const Step *step, cudaStream_t stream, FshError *error)
{
    FshStatus status =
        matmul_plan_run(step->matmul, in(step, 0)->data, in(step, 1)->data, step->inputs[2].data,
                        out(step, 0)->data, step->scratch, stream, error);
    if (!status && step->node->op == OP_LINEAR_BACKWARD_WEIGHT && maybe_out(step, 1))
        status = CUDA_TRY(kernel_column_sum(in(step, 0), out(step, 1), step->scratch, stream), error);
    return status;
}

/* ---- loss and optimizer ---- */

static FshStatus loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    if (maybe_in(step, 2))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the CUDA backend has no mixed labels yet; train without mixup and cutmix");
    want_scratch(step, kernel_softmax_cross_entropy_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus loss(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_softmax_cross_entropy(in(step, 0), in(step, 1), step->node->as.loss.smoothing,
                                                 out(step, 0), out(step, 1), step->scratch, stream),
                    error);
}

static FshStatus loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_softmax_cross_entropy_backward(in(step, 0), in(step, 1), in(step, 2),
                                                          step->node->as.loss.smoothing, out(step, 0),
                                                          stream),
                    error);
}

/* Fills the table of pieces of every parameter that has optimizer state. Returns their number; NULL only
 * counts. */
static int64_t list_pieces(const CudaProgram *program, SgdPiece *pieces)
{
    const Graph *graph = program->base.graph;
    int64_t count = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *state = graph_tensor(graph, (TensorId)t);
        if (state->role != TENSOR_OPTIMIZER)
            continue;
        const int64_t elements = tensor_count(state);
        float *parameter = program->tensors[state->of].data, *momentum = program->tensors[t].data;
        const float *gradient = program->tensors[graph_gradient(graph, state->of)].data;
        for (int64_t at = 0; at < elements; at += SGD_PIECE, count++) {
            const int64_t length = elements - at < SGD_PIECE ? elements - at : SGD_PIECE;
            if (pieces)
                pieces[count] = (SgdPiece){parameter + at, momentum + at, gradient + at, (int32_t)length,
                                           graph_tensor(graph, state->of)->decays};
        }
    }
    return count;
}

/* What this backend does not do yet: anything but plain SGD. */
static FshStatus refuse_update(const Optimizer *o, FshError *error)
{
    const struct {
        bool asked;
        const char *name;
    } unknown[] = {
        {o->kind != OPTIMIZER_SGD, optimizer_names[o->kind]},
        {o->accumulation_steps > 1, "accumulation of gradients"},
        {o->clip_norm > 0, "gradient clipping"},
        {o->loss_scaling, "loss scaling"},
        {o->lookahead_steps > 0, "lookahead"},
        {o->ema_decay > 0, "averaging of weights"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i].asked)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "the CUDA backend has no %s yet; use --device cpu, or sgd without it",
                                 unknown[i].name);
    return FSH_OK;
}

static FshStatus update_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    FshStatus status = refuse_update(&step->node->as.update, error);
    if (status)
        return status;
    step->piece_count = list_pieces(program, NULL);
    const size_t bytes = (size_t)step->piece_count * sizeof(SgdPiece);
    if (bytes == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "no parameter has optimizer state");
    SgdPiece *pieces = calloc((size_t)step->piece_count, sizeof *pieces);
    if (!pieces)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the table of parameters");
    (void)list_pieces(program, pieces);
    want_scratch(step, kernel_sgd_scratch_bytes(step->piece_count));
    void *memory = NULL;
    status = cuda_memory_new(&memory, bytes, "the optimizer's table", error);
    step->pieces = memory;
    if (!status)
        status = CUDA_TRY(
            cudaMemcpyAsync(memory, pieces, bytes, cudaMemcpyHostToDevice, program_backend(program)->stream),
            error);
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(program_backend(program)->stream), error);
    free(pieces);
    return status;
}

static FshStatus update(const Step *step, cudaStream_t stream, FshError *error)
{
    const Optimizer *options = &step->node->as.update;
    const SgdConstants constants = {(float)options->momentum, (float)options->weight_decay,
                                    options->nesterov};
    const SgdResults results = {out(step, 0), out(step, 1), in(step, 1)};
    return CUDA_TRY(kernel_sgd(step->pieces, step->piece_count, &constants, in(step, 0), maybe_in(step, 5),
                               &results, step->scratch, stream),
                    error);
}

static const Lowering lowerings[OP_KIND_COUNT] = {
    [OP_FILL] = {.enqueue = fill},
    [OP_NORMALIZE] = {.enqueue = normalize},
    [OP_CONV2D] = {convolution_prepare, convolution_bind, convolution},
    [OP_CONV2D_BACKWARD_DATA] = {convolution_prepare, convolution_bind, convolution},
    [OP_CONV2D_BACKWARD_WEIGHT] = {convolution_prepare, convolution_bind, convolution},
    [OP_BATCH_NORM] = {.prepare = batch_norm_prepare, .enqueue = batch_norm},
    [OP_BATCH_NORM_BACKWARD] = {.prepare = batch_norm_prepare, .enqueue = batch_norm_backward},
    [OP_RELU] = {.enqueue = relu},
    [OP_RELU_BACKWARD] = {.enqueue = relu_backward},
    [OP_ADD] = {.enqueue = add},
    [OP_MAX_POOL] = {.enqueue = max_pool},
    [OP_MAX_POOL_BACKWARD] = {.enqueue = max_pool_backward},
    [OP_AVG_POOL] = {.enqueue = avg_pool},
    [OP_AVG_POOL_BACKWARD] = {.enqueue = avg_pool_backward},
    [OP_GLOBAL_AVG_POOL] = {.enqueue = global_avg_pool},
    [OP_GLOBAL_AVG_POOL_BACKWARD] = {.enqueue = global_avg_pool_backward},
    [OP_REFLECTION_PAD] = {.enqueue = reflection_pad},
    [OP_REFLECTION_PAD_BACKWARD] = {.enqueue = reflection_pad_backward},
    [OP_FLATTEN] = {.enqueue = flatten},
    [OP_FLATTEN_BACKWARD] = {.enqueue = flatten_backward},
    [OP_LINEAR] = {.prepare = linear_prepare, .enqueue = linear},
    [OP_LINEAR_BACKWARD_DATA] = {.prepare = linear_prepare, .enqueue = linear},
    [OP_LINEAR_BACKWARD_WEIGHT] = {.prepare = linear_prepare, .enqueue = linear},
    [OP_SOFTMAX_CROSS_ENTROPY] = {.prepare = loss_prepare, .enqueue = loss},
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = {.enqueue = loss_backward},
    [OP_UPDATE] = {.prepare = update_prepare, .enqueue = update},
};

const Lowering *lowering_of(OpKind op)
{
    return lowerings[op].enqueue ? &lowerings[op] : NULL;
}
