#include "trainer/graph/graph_internal.h"

const char *const loss_names[] = {"cross-entropy", "bce", "l1", "charbonnier", "mse", "psnr", "huber", NULL};

/* ---- classes ---- */

/* Returns whether an input is [N] of this type, as many as there are scores; true if there is none. */
static bool is_beside(const Tensor *scores, const Tensor *tensor, DataType type)
{
    return !tensor || (tensor->rank == 1 && tensor->type == type && tensor->shape[0] == scores->shape[0]);
}

static const Tensor *optional_operand(Graph *graph, TensorId id)
{
    return id == TENSOR_NONE ? NULL : graph_operand(graph, id);
}

/* Returns x in f32: losses are computed in it, whatever the network computes in. */
static TensorId as_f32(Graph *graph, TensorId x)
{
    const Tensor *tensor = graph_operand(graph, x);
    return tensor && data_type_is_float(tensor->type) ? graph_cast(graph, x, DATA_F32) : x;
}

TensorId graph_class_loss(Graph *graph, LossKind kind, TensorId logits, const ClassTargetsOf *targets)
{
    const bool is_binary = kind == LOSS_BCE;
    const char *what = is_binary ? "binary cross-entropy" : "cross-entropy";
    logits = as_f32(graph, logits);
    const Tensor *scores = graph_operand(graph, logits), *classes = graph_operand(graph, targets->labels);
    const Tensor *others = optional_operand(graph, targets->labels_mixed),
                 *shares = optional_operand(graph, targets->mix),
                 *weights = optional_operand(graph, targets->weights);
    char left[96], right[96];
    if (!scores || !classes || (targets->weights != TENSOR_NONE && !weights))
        return TENSOR_NONE;
    if (scores->rank != 2 || scores->type != DATA_F32 || !is_beside(scores, classes, DATA_I64))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: %s needs f32 logits [N, K] and i64 labels [N], not %s [%s] and %s [%s]",
                          scores->name, what, data_type_name(scores->type),
                          tensor_shape_text(scores, left, sizeof left), data_type_name(classes->type),
                          tensor_shape_text(classes, right, sizeof right));
    if (!others != !shares || !is_beside(scores, others, DATA_I64) || !is_beside(scores, shares, DATA_F32))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: %s of mixed samples needs the other label i64 [N] and its share f32 [N]",
                          scores->name, what);
    if (weights && (weights->rank != 1 || weights->type != DATA_F32 || weights->shape[0] != scores->shape[1]))
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s needs f32 weights [K] of the classes, not %s [%s]",
                          scores->name, what, data_type_name(weights->type),
                          tensor_shape_text(weights, left, sizeof left));
    if (!(targets->smoothing >= 0 && targets->smoothing < 1))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: label smoothing %g; it must be at least 0 and below 1",
                          scores->name, (double)targets->smoothing);
    if (targets->binarizes && !(targets->threshold >= 0 && targets->threshold <= 1))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: a threshold of %g for targets; it must be 0 to 1",
                          scores->name, (double)targets->threshold);
    Node node = {.op = is_binary ? OP_BINARY_CROSS_ENTROPY : OP_SOFTMAX_CROSS_ENTROPY,
                 .inputs = {[CLASS_LOSS_LOGITS] = logits,
                            [CLASS_LOSS_LABELS] = targets->labels,
                            [CLASS_LOSS_LABELS_MIXED] = targets->labels_mixed,
                            [CLASS_LOSS_MIX] = targets->mix,
                            [CLASS_LOSS_WEIGHTS] = targets->weights},
                 .input_count = weights ? 5 : 4,
                 .as.loss = {.smoothing = targets->smoothing,
                             .threshold = targets->threshold,
                             .binarizes = is_binary && targets->binarizes,
                             .sums = is_binary && targets->sums}};
    node_name_after(&node, scores);
    return graph_append(graph, &node);
}

TensorId graph_softmax_cross_entropy(Graph *graph, TensorId logits, TensorId labels, TensorId labels_mixed,
                                     TensorId mix, float smoothing)
{
    const ClassTargetsOf targets = {.labels = labels,
                                    .labels_mixed = labels_mixed,
                                    .mix = mix,
                                    .weights = TENSOR_NONE,
                                    .smoothing = smoothing};
    return graph_class_loss(graph, LOSS_CROSS_ENTROPY, logits, &targets);
}

static void class_loss_infer(Graph *graph, Node *node)
{
    const Tensor *logits = graph_tensor(graph, node->inputs[0]);
    const int64_t shape[2] = {logits->shape[0], logits->shape[1]};
    graph_output(graph, node, CLASS_LOSS_LOSS, DATA_F32, 1, (int64_t[]){1});
    graph_output(graph, node, CLASS_LOSS_PROBABILITIES, DATA_F32, 2, shape);
}

static void class_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const bool is_binary = node->op == OP_BINARY_CROSS_ENTROPY;
    Node backward = {.op = is_binary ? OP_BINARY_CROSS_ENTROPY_BACKWARD : OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
                     .inputs = {[CLASS_LOSS_BACK_DLOSS] = output_gradient,
                                [CLASS_LOSS_BACK_PROBABILITIES] = node->outputs[CLASS_LOSS_PROBABILITIES],
                                [CLASS_LOSS_BACK_LABELS] = node->inputs[CLASS_LOSS_LABELS],
                                [CLASS_LOSS_BACK_LABELS_MIXED] = node->inputs[CLASS_LOSS_LABELS_MIXED],
                                [CLASS_LOSS_BACK_MIX] = node->inputs[CLASS_LOSS_MIX],
                                [CLASS_LOSS_BACK_WEIGHTS] = node->inputs[CLASS_LOSS_WEIGHTS]},
                     .input_count = node->input_count + 1,
                     .as.loss = node->as.loss};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- rows of targets ---- */

/* Returns whether an input is f32 [K], as many as there are columns; true if there is none. */
static bool is_of_columns(const Tensor *x, const Tensor *tensor)
{
    return !tensor || (tensor->rank == 1 && tensor->type == DATA_F32 && tensor->shape[0] == x->shape[1]);
}

TensorId graph_target_loss(Graph *graph, TensorId x, const RowTargetsOf *targets)
{
    const TargetLoss *loss = &targets->loss;
    const bool is_binary = loss->kind == LOSS_BCE;
    x = as_f32(graph, x);
    const Tensor *output = graph_operand(graph, x), *wanted = graph_operand(graph, targets->targets),
                 *valid = graph_operand(graph, targets->valid),
                 *weights = optional_operand(graph, targets->weights),
                 *positives = optional_operand(graph, targets->positive_weights);
    char left[96], right[96];
    if (!output || !wanted || !valid)
        return TENSOR_NONE;
    if (!is_binary && loss->kind != LOSS_MSE && loss->kind != LOSS_L1 && loss->kind != LOSS_HUBER)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: %s is no loss of rows of targets", output->name,
                          loss->kind < LOSS_KIND_COUNT ? loss_names[loss->kind] : "?");
    if (output->rank != 2 || output->type != DATA_F32 || wanted->rank != 2 || wanted->type != DATA_F32 ||
        wanted->shape[0] != output->shape[0] || wanted->shape[1] != output->shape[1] ||
        !is_beside(output, valid, DATA_F32))
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: %s needs f32 targets [N, K] like the outputs, and valid [N], not %s [%s] and %s [%s]",
            output->name, loss_names[loss->kind], data_type_name(output->type),
            tensor_shape_text(output, left, sizeof left), data_type_name(wanted->type),
            tensor_shape_text(wanted, right, sizeof right));
    if (!is_of_columns(output, weights) || !is_of_columns(output, positives) || (positives && !is_binary))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: %s needs f32 weights [K] of the columns, and of positives for bce alone",
                          output->name, loss_names[loss->kind]);
    if (!(loss->smoothing >= 0 && loss->smoothing < 1) ||
        (loss->binarizes && !(loss->threshold >= 0 && loss->threshold <= 1)))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: label smoothing %g or a threshold of %g is out of range",
                          output->name, (double)loss->smoothing, (double)loss->threshold);
    Node node = {.op = OP_TARGET_LOSS,
                 .inputs = {[TARGET_LOSS_X] = x,
                            [TARGET_LOSS_TARGETS] = targets->targets,
                            [TARGET_LOSS_VALID] = targets->valid,
                            [TARGET_LOSS_WEIGHTS] = targets->weights,
                            [TARGET_LOSS_POSITIVE_WEIGHTS] = targets->positive_weights},
                 .input_count = 5,
                 .as.target_loss = *loss};
    node_name_after(&node, output);
    return graph_append(graph, &node);
}

static void target_loss_infer(Graph *graph, Node *node)
{
    graph_output(graph, node, 0, DATA_F32, 1, (int64_t[]){1});
}

static void target_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {
        .op = OP_TARGET_LOSS_BACKWARD,
        .inputs = {[TARGET_LOSS_BACK_DLOSS] = output_gradient,
                   [TARGET_LOSS_BACK_X] = node->inputs[TARGET_LOSS_X],
                   [TARGET_LOSS_BACK_TARGETS] = node->inputs[TARGET_LOSS_TARGETS],
                   [TARGET_LOSS_BACK_VALID] = node->inputs[TARGET_LOSS_VALID],
                   [TARGET_LOSS_BACK_WEIGHTS] = node->inputs[TARGET_LOSS_WEIGHTS],
                   [TARGET_LOSS_BACK_POSITIVE_WEIGHTS] = node->inputs[TARGET_LOSS_POSITIVE_WEIGHTS]},
        .input_count = 6,
        .as.target_loss = node->as.target_loss};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- images ---- */

TensorId graph_pixel_loss(Graph *graph, TensorId prediction, TensorId target, TensorId valid, LossKind kind)
{
    const char *name = kind < LOSS_KIND_COUNT ? loss_names[kind] : "?";
    prediction = as_f32(graph, prediction);
    target = as_f32(graph, target);
    const Tensor *restored = graph_operand(graph, prediction), *wanted = graph_operand(graph, target);
    const Tensor *weights = optional_operand(graph, valid);
    char left[96], right[96];
    if (!restored || !wanted || (valid != TENSOR_NONE && !weights))
        return TENSOR_NONE;
    if (kind < LOSS_L1 || kind > LOSS_PSNR)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: %s is no loss of images", restored->name, name);
    if (!graph_image(graph, restored->name, name, prediction) ||
        !graph_image(graph, wanted->name, name, target))
        return TENSOR_NONE;
    for (int i = 0; i < 4; i++)
        if (restored->shape[i] != wanted->shape[i])
            return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s needs images of one shape, not [%s] and [%s]",
                              restored->name, name, tensor_shape_text(restored, left, sizeof left),
                              tensor_shape_text(wanted, right, sizeof right));
    if (!is_beside(restored, weights, DATA_F32))
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s needs f32 weights [N] of the images, not %s [%s]",
                          restored->name, name, data_type_name(weights->type),
                          tensor_shape_text(weights, left, sizeof left));
    Node node = {.op = OP_PIXEL_LOSS,
                 .inputs = {prediction, target, valid},
                 .input_count = 3,
                 .as.pixel_loss.kind = kind};
    node_name_after(&node, restored);
    return graph_append(graph, &node);
}

TensorId graph_pixel_loss_error(Graph *graph, TensorId loss)
{
    const Tensor *tensor = graph_operand(graph, loss);
    if (!tensor)
        return TENSOR_NONE;
    if (tensor->producer == NODE_NONE || graph->nodes[tensor->producer].op != OP_PIXEL_LOSS)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: no loss of images made it", tensor->name);
    return graph->nodes[tensor->producer].outputs[PIXEL_LOSS_ERRORS];
}

static void pixel_loss_infer(Graph *graph, Node *node)
{
    const int64_t images = graph_tensor(graph, node->inputs[0])->shape[0];
    graph_output(graph, node, PIXEL_LOSS_LOSS, DATA_F32, 1, (int64_t[]){1});
    graph_output(graph, node, PIXEL_LOSS_ERRORS, DATA_F32, 1, &images);
}

static void pixel_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_PIXEL_LOSS_BACKWARD,
                     .inputs = {[PIXEL_LOSS_BACK_DLOSS] = output_gradient,
                                [PIXEL_LOSS_BACK_PREDICTION] = node->inputs[PIXEL_LOSS_PREDICTION],
                                [PIXEL_LOSS_BACK_TARGET] = node->inputs[PIXEL_LOSS_TARGET],
                                [PIXEL_LOSS_BACK_ERRORS] = node->outputs[PIXEL_LOSS_ERRORS],
                                [PIXEL_LOSS_BACK_VALID] = node->inputs[PIXEL_LOSS_VALID]},
                     .input_count = 5,
                     .as.pixel_loss = node->as.pixel_loss};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- masks ---- */

TensorId graph_mask_loss(Graph *graph, TensorId logits, TensorId mask, TensorId valid, float smoothing)
{
    logits = as_f32(graph, logits);
    const Tensor *scores = graph_operand(graph, logits), *classes = graph_operand(graph, mask);
    const Tensor *weights = optional_operand(graph, valid);
    char left[96], right[96];
    if (!scores || !classes || (valid != TENSOR_NONE && !weights))
        return TENSOR_NONE;
    if (scores->rank != 4 || classes->rank != 4 || classes->type != DATA_U8 || classes->shape[3] != 1 ||
        scores->shape[0] != classes->shape[0] || scores->shape[1] != classes->shape[1] ||
        scores->shape[2] != classes->shape[2] || scores->shape[3] > GRAPH_MASK_IGNORED)
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: cross-entropy of pixels needs logits [N, H, W, K], K at most %d, and a mask u8 "
            "[N, H, W, 1], not [%s] and %s [%s]",
            scores->name, GRAPH_MASK_IGNORED, tensor_shape_text(scores, left, sizeof left),
            data_type_name(classes->type), tensor_shape_text(classes, right, sizeof right));
    if (!is_beside(scores, weights, DATA_F32))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: cross-entropy of pixels needs f32 weights [N] of the images, not %s [%s]",
                          scores->name, data_type_name(weights->type),
                          tensor_shape_text(weights, left, sizeof left));
    if (!(smoothing >= 0 && smoothing < 1))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: label smoothing %g; it must be at least 0 and below 1",
                          scores->name, (double)smoothing);
    Node node = {.op = OP_MASK_LOSS,
                 .inputs = {logits, mask, valid},
                 .input_count = 3,
                 .as.mask_loss.smoothing = smoothing};
    node_name_after(&node, scores);
    return graph_append(graph, &node);
}

/* Returns an output of the node that made a loss of masks. */
static TensorId mask_loss_output(Graph *graph, TensorId loss, int output)
{
    const Tensor *tensor = graph_operand(graph, loss);
    if (!tensor)
        return TENSOR_NONE;
    if (tensor->producer == NODE_NONE || graph->nodes[tensor->producer].op != OP_MASK_LOSS)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: no loss of masks made it", tensor->name);
    return graph->nodes[tensor->producer].outputs[output];
}

TensorId graph_mask_loss_classes(Graph *graph, TensorId loss)
{
    return mask_loss_output(graph, loss, MASK_LOSS_CLASSES);
}

TensorId graph_mask_loss_sums(Graph *graph, TensorId loss)
{
    return mask_loss_output(graph, loss, MASK_LOSS_SUMS);
}

static void mask_loss_infer(Graph *graph, Node *node)
{
    const Tensor *mask = graph_tensor(graph, node->inputs[MASK_LOSS_MASK]);
    const int64_t shape[] = {mask->shape[0], mask->shape[1], mask->shape[2], 1};
    graph_output(graph, node, MASK_LOSS_LOSS, DATA_F32, 1, (int64_t[]){1});
    graph_output(graph, node, MASK_LOSS_CLASSES, DATA_U8, 4, shape);
    graph_output(graph, node, MASK_LOSS_SUMS, DATA_F32, 2, (int64_t[]){shape[0], MASK_SUMS});
}

static void mask_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_MASK_LOSS_BACKWARD,
                     .inputs = {[MASK_LOSS_BACK_DLOSS] = output_gradient,
                                [MASK_LOSS_BACK_LOGITS] = node->inputs[MASK_LOSS_LOGITS],
                                [MASK_LOSS_BACK_MASK] = node->inputs[MASK_LOSS_MASK],
                                [MASK_LOSS_BACK_SUMS] = node->outputs[MASK_LOSS_SUMS],
                                [MASK_LOSS_BACK_VALID] = node->inputs[MASK_LOSS_VALID]},
                     .input_count = 5,
                     .as.mask_loss = node->as.mask_loss};
    graph_append_backward(graph, node, &backward, &node->inputs[MASK_LOSS_LOGITS], 1);
}

/* Returns whether probabilities and the gradient of the scores lie in the same way. */
static bool gradient_has_type_of_probabilities(const Graph *graph, const Node *node)
{
    return graph_tensor(graph, node->outputs[0])->type ==
           graph_tensor(graph, node->inputs[CLASS_LOSS_BACK_PROBABILITIES])->type;
}

const OpRow op_rows_loss[] = {
    {.op = OP_SOFTMAX_CROSS_ENTROPY,
     .name = "softmax_cross_entropy",
     .infer = class_loss_infer,
     .differentiate = class_loss_differentiate},
    {.op = OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
     .name = "softmax_cross_entropy_backward",
     .overwrites = {1 << CLASS_LOSS_BACK_PROBABILITIES},
     .overwrites_if = gradient_has_type_of_probabilities},
    {.op = OP_BINARY_CROSS_ENTROPY,
     .name = "binary_cross_entropy",
     .infer = class_loss_infer,
     .differentiate = class_loss_differentiate},
    {.op = OP_BINARY_CROSS_ENTROPY_BACKWARD,
     .name = "binary_cross_entropy_backward",
     .overwrites = {1 << CLASS_LOSS_BACK_PROBABILITIES},
     .overwrites_if = gradient_has_type_of_probabilities},
    {.op = OP_TARGET_LOSS,
     .name = "target_loss",
     .infer = target_loss_infer,
     .differentiate = target_loss_differentiate},
    {.op = OP_TARGET_LOSS_BACKWARD, .name = "target_loss_backward", .overwrites = {1 << TARGET_LOSS_BACK_X}},
    {.op = OP_PIXEL_LOSS,
     .name = "pixel_loss",
     .infer = pixel_loss_infer,
     .differentiate = pixel_loss_differentiate},
    {.op = OP_PIXEL_LOSS_BACKWARD,
     .name = "pixel_loss_backward",
     .overwrites = {1 << PIXEL_LOSS_BACK_PREDICTION | 1 << PIXEL_LOSS_BACK_TARGET}},
    {.op = OP_MASK_LOSS,
     .name = "mask_loss",
     .infer = mask_loss_infer,
     .differentiate = mask_loss_differentiate},
    {.op = OP_MASK_LOSS_BACKWARD, .name = "mask_loss_backward", .overwrites = {1 << MASK_LOSS_BACK_LOGITS}},
    {.name = NULL},
};
