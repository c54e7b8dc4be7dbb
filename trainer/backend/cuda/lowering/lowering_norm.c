#include "trainer/backend/cuda/lowering/norm_step.h"

#include "trainer/backend/cuda/kernels/kernels_norm_gate.h"
#include "trainer/backend/cuda/kernels/kernels_norm_pair.h"
#include "trainer/backend/cuda/kernels/kernels_norm_pool.h"
#include "trainer/backend/cuda/lowering/device_ranks.h"

/* A norm whose statistics are of several ranks exchanges two numbers of each channel in each direction.
 * Forward: the sums of x that the convolution before it has left, in f32, or the means of x and of its square
 * in f64, which lie in scratch. Backward: dweight and dbias, between their sums and dx. All are means over
 * the ranks, so every formula keeps the rows of this rank. For small images the one launch that makes sums
 * and result exchanges them too, where GPUs reach each other's memory (peers.cuh). */

/* Returns of how many rows of x, its first, the step's statistics are; 0: of all. */
static int64_t sampled_rows(const Step *step, const DeviceTensor *x)
{
    const int64_t images = x->shape[0], sampled = batch_norm_sampled(&step->node->as.norm.options, images);
    return sampled == images ? 0 : device_tensor_rows(x) / images * sampled;
}

/* Returns the ranks whose rows the step's statistics are of; NULL: this one's alone. */
static DeviceRanks *ranks_of(const Step *step)
{
    return step->plan;
}

static void leave_to_backend(void *ranks)
{
    (void)ranks;
}

static bool is_synced(const CudaProgram *program, const Node *node)
{
    return node->as.norm.options.sync && program_backend(program)->ranks;
}

bool lowering_sums_are_wanted(const CudaProgram *program, TensorId sums)
{
    const Graph *graph = program->base.graph;
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        if (node->op == OP_NORM_POOL && node->inputs[NORM_SUMS] == sums)
            return true;
        if (node->op == OP_BATCH_NORM && node->inputs[NORM_SUMS] == sums)
            return is_synced(program, node) && !device_ranks_boxes(program_backend(program)->ranks);
    }
    return false;
}

/* Returns the bytes of scratch memory that the exchange takes, before those of the sums. */
static uint64_t means_bytes(const Step *step)
{
    const uint64_t bytes = 2 * (uint64_t)in(step, NORM_X)->pitch * sizeof(double);
    return (bytes + TENSOR_ALIGNMENT_BYTES - 1) / TENSOR_ALIGNMENT_BYTES * TENSOR_ALIGNMENT_BYTES;
}

/* Enqueues the exchange of a norm or of its backward node; of a norm that pools, and those of squeeze and
 * excitation, alike, whose operands have the same places. */
static FshStatus exchange(const Step *step, cudaStream_t stream, FshError *error)
{
    const bool forward = step->node->op == OP_BATCH_NORM || step->node->op == OP_NORM_SQUEEZE ||
                         step->node->op == OP_NORM_POOL;
    const DeviceTensor *sums = forward ? maybe_in(step, NORM_SUMS) : NULL;
    const RankMean of_sums = {sums ? sums->data : NULL, sums ? 2 * (uint64_t)sums->pitch : 0, RANK_F32};
    const RankMean of_means = {step->scratch, 2 * (uint64_t)in(step, NORM_X)->pitch, RANK_F64};
    if (forward)
        return device_ranks_mean(ranks_of(step), sums ? &of_sums : &of_means, 1, stream, error);
    const DeviceTensor *dweight = out(step, NORM_BACK_DWEIGHT), *dbias = out(step, NORM_BACK_DBIAS);
    const RankMean of_gradients[] = {{dweight->data, (uint64_t)dweight->pitch, RANK_F32},
                                     {dbias->data, (uint64_t)dbias->pitch, RANK_F32}};
    return device_ranks_mean(ranks_of(step), of_gradients, 2, stream, error);
}

NormActivation norm_step_activation(const Step *step)
{
    return (NormActivation){step->node->as.norm.activation, step->node->as.norm.slope};
}

/* Takes the sums away where the convolution in front leaves them out. */
static void drop_absent_sums(const CudaProgram *program, Step *step)
{
    if (!maybe_in(step, NORM_SUMS))
        return;
    const NodeId maker = graph_tensor(program->base.graph, step->node->inputs[NORM_SUMS])->producer;
    if (!maybe_out(&program->steps[maker], CONV_SUMS))
        step->inputs[NORM_SUMS].data = NULL;
}

static FshStatus batch_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    if (step->node->op == OP_BATCH_NORM)
        drop_absent_sums(program, step);
    want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    if (!is_synced(program, step->node))
        return FSH_OK;
    step_own(step, program_backend(program)->ranks, leave_to_backend);
    if (step->node->op == OP_BATCH_NORM)
        want_scratch(step, means_bytes(step) + kernel_column_scratch_bytes(in(step, NORM_X)));
    return FSH_OK;
}

/* Exchanges once, before anything is recorded: ranks connect then. What is exchanged is written again before
 * it is read. */
static FshStatus batch_norm_bind(const CudaProgram *program, Step *step, FshError *error)
{
    return ranks_of(step) ? exchange(step, program_backend(program)->stream, error) : FSH_OK;
}

/* Enqueues the norm with mean and inverse deviation that tensors hold by then. */
static FshStatus apply(const Step *step, const NormTensors *tensors, cudaStream_t stream, FshError *error)
{
    const NormActivation activation = norm_step_activation(step);
    return CUDA_TRY(
        kernel_batch_norm_apply(tensors, &activation, maybe_in(step, NORM_ADDEND), out(step, NORM_Y), stream),
        error);
}

/* Enqueues a training norm in one launch for small images, in two else. */
static cudaError_t forward(const Step *step, const NormTensors *tensors, const NormRunning *running,
                           cudaStream_t stream)
{
    const NormActivation activation = norm_step_activation(step);
    return kernel_batch_norm_forward(tensors, running, &activation, maybe_in(step, NORM_ADDEND),
                                     out(step, NORM_Y), step->scratch, stream);
}

/* Enqueues a training norm whose statistics are of all ranks: in one launch, or in parts with the exchange
 * between them. */
static FshStatus joint_forward(const Step *step, const NormTensors *tensors, const NormRunning *running,
                               cudaStream_t stream, FshError *error)
{
    double *means = step->scratch;
    NormRunning with_peers = *running;
    with_peers.peers = device_ranks_boxes(ranks_of(step));
    const cudaError_t whole =
        with_peers.peers ? forward(step, tensors, &with_peers, stream) : cudaErrorNotSupported;
    if (whole != cudaErrorNotSupported)
        return CUDA_TRY(whole, error);
    FshStatus status = CUDA_TRY(kernel_batch_norm_means(tensors->x, running->sampled_rows, means,
                                                        (char *)step->scratch + means_bytes(step), stream),
                                error);
    if (!status)
        status = exchange(step, stream, error);
    if (!status)
        status = CUDA_TRY(kernel_batch_norm_statistics(tensors, running, means, stream), error);
    return status ? status : apply(step, tensors, stream, error);
}

/* Enqueues a training norm of x whose sums a convolution has made. */
static FshStatus from_sums(const Step *step, const NormTensors *tensors, const NormRunning *running,
                           cudaStream_t stream, FshError *error)
{
    const NormActivation activation = norm_step_activation(step);
    FshStatus status = ranks_of(step) ? exchange(step, stream, error) : FSH_OK;
    return status ? status
                  : CUDA_TRY(kernel_batch_norm_apply_sums(tensors, running, in(step, NORM_SUMS), &activation,
                                                          maybe_in(step, NORM_ADDEND), out(step, NORM_Y),
                                                          stream),
                             error);
}

/* Returns the operands of an OP_BATCH_NORM, OP_NORM_POOL or OP_NORM_SQUEEZE, and of the first norm of an
 * OP_NORM_PAIR. */
static NormTensors forward_tensors(const Step *step)
{
    return (NormTensors){.x = in(step, NORM_X),
                         .weight = in(step, NORM_WEIGHT),
                         .bias = in(step, NORM_BIAS),
                         .mean = out(step, NORM_MEAN),
                         .inverse_deviation = out(step, NORM_INVERSE_DEVIATION),
                         .signs = step->node->op == OP_BATCH_NORM ? maybe_out(step, NORM_SIGNS) : NULL};
}

/* Returns the operand NORM_BACK_Y if it holds signs, or is to; else NULL. */
static const DeviceTensor *gate_of(const Step *step, bool signs)
{
    const DeviceTensor *y = maybe_in(step, NORM_BACK_Y);
    return y && (y->element == ELEMENT_U8) == signs ? y : NULL;
}

NormTensors norm_step_backward_tensors(const Step *step)
{
    return (NormTensors){.x = in(step, NORM_BACK_X),
                         .weight = in(step, NORM_BACK_WEIGHT),
                         .bias = in(step, NORM_BACK_BIAS),
                         .mean = in(step, NORM_BACK_MEAN),
                         .inverse_deviation = in(step, NORM_BACK_INVERSE_DEVIATION),
                         .signs = gate_of(step, true)};
}

static NormRunning running_of(const Step *step)
{
    const BatchNorm *options = &step->node->as.norm.options;
    return (NormRunning){.mean = in(step, NORM_RUNNING_MEAN),
                         .var = in(step, NORM_RUNNING_VAR),
                         .bias = maybe_in(step, NORM_LAYER_BIAS),
                         .epsilon = options->epsilon,
                         .momentum = options->momentum,
                         .sampled_rows = sampled_rows(step, in(step, NORM_X)),
                         .ranks = device_ranks_count(ranks_of(step))};
}

static FshStatus batch_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const BatchNorm *options = &step->node->as.norm.options;
    const NormTensors tensors = forward_tensors(step);
    const NormRunning running = running_of(step);
    if (options->training && maybe_in(step, NORM_SUMS))
        return from_sums(step, &tensors, &running, stream, error);
    if (options->training)
        return ranks_of(step) ? joint_forward(step, &tensors, &running, stream, error)
                              : CUDA_TRY(forward(step, &tensors, &running, stream), error);
    FshStatus status = CUDA_TRY(kernel_batch_norm_running(&tensors, &running, stream), error);
    return status ? status : apply(step, &tensors, stream, error);
}

/* Enqueues a gradient through statistics of all ranks: in one launch, or in parts with the exchange between
 * them. */
static FshStatus joint_backward(const Step *step, const NormGradient *gradient, const NormTensors *tensors,
                                cudaStream_t stream, FshError *error)
{
    const NormActivation activation = norm_step_activation(step);
    NormGradient part = *gradient;
    part.peers = device_ranks_boxes(ranks_of(step));
    const cudaError_t whole =
        part.peers ? kernel_batch_norm_backward(&part, tensors, &activation, step->scratch, stream)
                   : cudaErrorNotSupported;
    if (whole != cudaErrorNotSupported)
        return CUDA_TRY(whole, error);
    part.peers = NULL;
    part.part = NORM_GRADIENT_SUMS;
    FshStatus status =
        CUDA_TRY(kernel_batch_norm_backward(&part, tensors, &activation, step->scratch, stream), error);
    if (!status)
        status = exchange(step, stream, error);
    part.part = NORM_GRADIENT_X;
    return status ? status
                  : CUDA_TRY(kernel_batch_norm_backward(&part, tensors, &activation, NULL, stream), error);
}

NormGradient norm_step_gradient(const Step *step, const DeviceTensor *dy)
{
    return (NormGradient){.dy = dy,
                          .dy2 = maybe_in(step, NORM_BACK_DY2),
                          .y = gate_of(step, false),
                          .dx = maybe_out(step, NORM_BACK_DX),
                          .dweight = out(step, NORM_BACK_DWEIGHT),
                          .dbias = out(step, NORM_BACK_DBIAS),
                          .g = maybe_out(step, NORM_BACK_G),
                          .zero = maybe_out(step, NORM_BACK_DLAYER_BIAS),
                          .batch_statistics = step->node->as.norm.options.training,
                          .sampled_rows = sampled_rows(step, in(step, NORM_BACK_X))};
}

static FshStatus batch_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = norm_step_backward_tensors(step);
    const NormGradient gradient = norm_step_gradient(step, in(step, NORM_BACK_DY));
    const NormActivation activation = norm_step_activation(step);
    if (ranks_of(step))
        return joint_backward(step, &gradient, &tensors, stream, error);
    return CUDA_TRY(kernel_batch_norm_backward(&gradient, &tensors, &activation, step->scratch, stream),
                    error);
}

/* ---- two norms in a row ---- */

static FshStatus norm_pair_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    if (step->node->op == OP_NORM_PAIR)
        drop_absent_sums(program, step);
    want_scratch(step, kernel_norm_pair_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus norm_pair(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *y = out(step, NORM_Y);
    const NormPair pair = {.first = forward_tensors(step),
                           .second = {.x = y,
                                      .weight = in(step, NORM_PAIR_WEIGHT),
                                      .bias = in(step, NORM_PAIR_BIAS),
                                      .mean = out(step, NORM_PAIR_MEAN),
                                      .inverse_deviation = out(step, NORM_PAIR_INVERSE_DEVIATION)},
                           .activation = norm_step_activation(step)};
    const NormRunning first = running_of(step), second = {.mean = in(step, NORM_PAIR_RUNNING_MEAN),
                                                          .var = in(step, NORM_PAIR_RUNNING_VAR),
                                                          .epsilon = first.epsilon,
                                                          .momentum = first.momentum};
    return CUDA_TRY(kernel_norm_pair_forward(&pair, &first, &second, maybe_in(step, NORM_SUMS),
                                             maybe_in(step, NORM_ADDEND), y, out(step, NORM_PAIR_Z),
                                             step->scratch, stream),
                    error);
}

static FshStatus norm_pair_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormPair pair = {.first = norm_step_backward_tensors(step),
                           .second = {.x = in(step, NORM_PAIR_BACK_Y),
                                      .weight = in(step, NORM_PAIR_BACK_WEIGHT),
                                      .bias = in(step, NORM_PAIR_BACK_BIAS),
                                      .mean = in(step, NORM_PAIR_BACK_MEAN),
                                      .inverse_deviation = in(step, NORM_PAIR_BACK_INVERSE_DEVIATION)},
                           .activation = norm_step_activation(step)};
    const NormGradient first = norm_step_gradient(step, NULL);
    return CUDA_TRY(kernel_norm_pair_backward(&pair, in(step, NORM_BACK_DY), &first,
                                              out(step, NORM_PAIR_BACK_DWEIGHT),
                                              out(step, NORM_PAIR_BACK_DBIAS), step->scratch, stream),
                    error);
}

/* ---- norms and pools ---- */

static FshStatus norm_pool_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    want_scratch(step, means_bytes(step) + kernel_column_scratch_bytes(in(step, NORM_X)));
    if (is_synced(program, step->node))
        step_own(step, program_backend(program)->ranks, leave_to_backend);
    return FSH_OK;
}

/* Enqueues mean and inverse deviation of x, of its sums where a convolution has made them; those of all ranks
 * where there are several. */
static FshStatus pooled_statistics(const Step *step, const NormTensors *tensors, const NormRunning *running,
                                   cudaStream_t stream, FshError *error)
{
    const DeviceTensor *sums = maybe_in(step, NORM_SUMS);
    double *means = step->scratch;
    FshStatus status = FSH_OK;
    if (!sums)
        status = CUDA_TRY(
            kernel_batch_norm_means(tensors->x, 0, means, (char *)step->scratch + means_bytes(step), stream),
            error);
    if (!status && ranks_of(step))
        status = exchange(step, stream, error);
    if (status)
        return status;
    return CUDA_TRY(sums ? kernel_batch_norm_sum_statistics(tensors, running, sums, stream)
                         : kernel_batch_norm_statistics(tensors, running, means, stream),
                    error);
}

static FshStatus norm_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = forward_tensors(step);
    const NormRunning running = running_of(step);
    const NormActivation activation = norm_step_activation(step);
    const PoolShape pool = lowering_pool_shape(&step->node->as.norm.pool);
    const NormPooled pooled = {out(step, NORM_Y), out(step, NORM_POOL_EXTREME), out(step, NORM_POOL_INDEX)};
    FshStatus status = pooled_statistics(step, &tensors, &running, stream, error);
    return status ? status : CUDA_TRY(kernel_norm_pool(&tensors, &activation, &pool, &pooled, stream), error);
}

static FshStatus norm_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, NORM_POOL_BACK_X),
                                 .weight = in(step, NORM_POOL_BACK_WEIGHT),
                                 .mean = in(step, NORM_POOL_BACK_MEAN),
                                 .inverse_deviation = in(step, NORM_POOL_BACK_INVERSE_DEVIATION)};
    const PoolShape pool = lowering_pool_shape(&step->node->as.norm.pool);
    return CUDA_TRY(kernel_norm_pool_backward(in(step, NORM_POOL_BACK_G), in(step, NORM_POOL_BACK_INDEX),
                                              &tensors, in(step, NORM_POOL_BACK_DWEIGHT),
                                              in(step, NORM_POOL_BACK_DBIAS), &pool, out(step, 0), stream),
                    error);
}

/* ---- squeeze and excitation ---- */

static FshStatus norm_squeeze_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    want_scratch(step, kernel_image_scratch_bytes(in(step, NORM_X)));
    if (!is_synced(program, step->node))
        return FSH_OK;
    step_own(step, program_backend(program)->ranks, leave_to_backend);
    want_scratch(step, means_bytes(step) + kernel_image_scratch_bytes(in(step, NORM_X)));
    return FSH_OK;
}

/* Enqueues mean and inverse deviation of sums that are in scratch; those of all ranks where there are
 * several. */
static FshStatus batch_statistics(const Step *step, const NormTensors *tensors, const NormRunning *running,
                                  const void *sums, cudaStream_t stream, FshError *error)
{
    double *means = step->scratch;
    if (!ranks_of(step))
        return CUDA_TRY(kernel_image_statistics(tensors, running, sums, stream), error);
    FshStatus status =
        CUDA_TRY(kernel_image_means(tensors->x, running->sampled_rows, means, sums, stream), error);
    if (!status)
        status = exchange(step, stream, error);
    return status ? status : CUDA_TRY(kernel_batch_norm_statistics(tensors, running, means, stream), error);
}

static FshStatus norm_squeeze(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = forward_tensors(step);
    const NormRunning running = running_of(step);
    void *sums = (char *)step->scratch + (ranks_of(step) ? means_bytes(step) : 0);
    FshStatus status = CUDA_TRY(kernel_image_sums(tensors.x, sums, stream), error);
    if (!status && step->node->as.norm.options.training)
        status = batch_statistics(step, &tensors, &running, sums, stream, error);
    else if (!status)
        status = CUDA_TRY(kernel_batch_norm_running(&tensors, &running, stream), error);
    return status ? status
                  : CUDA_TRY(kernel_norm_squeeze(&tensors, out(step, NORM_Y), out(step, NORM_IMAGE_MEANS),
                                                 sums, stream),
                             error);
}

static FshStatus norm_gate(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, NORM_GATE_X),
                                 .weight = in(step, NORM_GATE_WEIGHT),
                                 .bias = in(step, NORM_GATE_BIAS),
                                 .mean = in(step, NORM_GATE_MEAN),
                                 .inverse_deviation = in(step, NORM_GATE_INVERSE_DEVIATION)};
    const NormActivation activation = norm_step_activation(step);
    return CUDA_TRY(kernel_norm_gate(&tensors, &activation, in(step, NORM_GATE_FACTORS),
                                     maybe_in(step, NORM_GATE_ADDEND), out(step, 0), stream),
                    error);
}

static FshStatus norm_gate_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_image_scratch_bytes(in(step, NORM_BACK_X)));
    return FSH_OK;
}

static FshStatus norm_gate_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = norm_step_backward_tensors(step);
    const NormGradient gradient = {.dy = in(step, NORM_BACK_DY),
                                   .dy2 = maybe_in(step, NORM_BACK_DY2),
                                   .y = maybe_in(step, NORM_BACK_Y),
                                   .g = maybe_out(step, NORM_GATE_BACK_G)};
    const NormActivation activation = norm_step_activation(step);
    return CUDA_TRY(kernel_norm_gate_backward(&gradient, &tensors, &activation,
                                              out(step, NORM_GATE_BACK_DFACTORS),
                                              out(step, NORM_GATE_BACK_SUMS), step->scratch, stream),
                    error);
}

static FshStatus norm_squeeze_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    if (is_synced(program, step->node))
        step_own(step, program_backend(program)->ranks, leave_to_backend);
    return FSH_OK;
}

static FshStatus norm_squeeze_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, NORM_SQUEEZE_BACK_X),
                                 .weight = in(step, NORM_SQUEEZE_BACK_WEIGHT),
                                 .mean = in(step, NORM_SQUEEZE_BACK_MEAN),
                                 .inverse_deviation = in(step, NORM_SQUEEZE_BACK_INVERSE_DEVIATION)};
    NormSqueezeGradient gradient = {.dy = in(step, NORM_SQUEEZE_BACK_DY),
                                    .g = in(step, NORM_SQUEEZE_BACK_G),
                                    .factors = in(step, NORM_SQUEEZE_BACK_FACTORS),
                                    .sums = in(step, NORM_SQUEEZE_BACK_SUMS),
                                    .image_means = in(step, NORM_SQUEEZE_BACK_IMAGE_MEANS),
                                    .dx = maybe_out(step, NORM_BACK_DX),
                                    .dweight = out(step, NORM_BACK_DWEIGHT),
                                    .dbias = out(step, NORM_BACK_DBIAS),
                                    .batch_statistics = step->node->as.norm.options.training,
                                    .sampled_rows = sampled_rows(step, tensors.x)};
    if (!ranks_of(step))
        return CUDA_TRY(kernel_norm_squeeze_backward(&gradient, &tensors, stream), error);
    gradient.part = NORM_GRADIENT_SUMS;
    FshStatus status = CUDA_TRY(kernel_norm_squeeze_backward(&gradient, &tensors, stream), error);
    if (!status)
        status = exchange(step, stream, error);
    gradient.part = NORM_GRADIENT_X;
    return status ? status : CUDA_TRY(kernel_norm_squeeze_backward(&gradient, &tensors, stream), error);
}

static FshStatus bias_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus bias_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_column_sum(in(step, 0), out(step, 0), step->scratch, stream), error);
}

const LoweringRow lowering_norm[] = {
    {OP_BIAS_BACKWARD, {.prepare = bias_prepare, .enqueue = bias_backward}},
    {OP_BATCH_NORM, {.prepare = batch_norm_prepare, .bind = batch_norm_bind, .enqueue = batch_norm}},
    {OP_BATCH_NORM_BACKWARD,
     {.prepare = batch_norm_prepare, .bind = batch_norm_bind, .enqueue = batch_norm_backward}},
    {OP_NORM_PAIR, {.prepare = norm_pair_prepare, .enqueue = norm_pair}},
    {OP_NORM_PAIR_BACKWARD, {.prepare = norm_pair_prepare, .enqueue = norm_pair_backward}},
    {OP_NORM_POOL, {.prepare = norm_pool_prepare, .bind = batch_norm_bind, .enqueue = norm_pool}},
    {OP_NORM_POOL_BACKWARD, {.enqueue = norm_pool_backward}},
    {OP_NORM_SQUEEZE, {.prepare = norm_squeeze_prepare, .bind = batch_norm_bind, .enqueue = norm_squeeze}},
    {OP_NORM_SQUEEZE_BACKWARD,
     {.prepare = norm_squeeze_backward_prepare, .bind = batch_norm_bind, .enqueue = norm_squeeze_backward}},
    {OP_NORM_GATE, {.enqueue = norm_gate}},
    {OP_NORM_GATE_BACKWARD, {.prepare = norm_gate_backward_prepare, .enqueue = norm_gate_backward}},
    {OP_KIND_COUNT, {NULL}},
};
