#include "trainer/backend/cpu/cpu_internal.h"

DnnConvolution cpu_convolution_geometry(const Tensor *x, const Tensor *y, const Conv2d *conv)
{
    return (DnnConvolution){
        .type = x->type,
        .batch = x->shape[0],
        .in_height = x->shape[1],
        .in_width = x->shape[2],
        .in_channels = x->shape[3],
        .out_height = y->shape[1],
        .out_width = y->shape[2],
        .out_channels = y->shape[3],
        .kernel = conv->kernel,
        .stride = conv->stride,
        .padding = conv->padding,
        .groups = conv->groups,
    };
}

/* Returns the layout of the weight that the step reads, or whose gradient it writes. */
static const DnnLayout *weight_layout(const CpuStep *step, TensorId weight)
{
    return step->program->variables[weight]->layout;
}

/* Returns whether the convolution's activation is a ReLU that oneDNN may not compute: its ReLU is a maximum,
 * which makes 0 of NaN, so that a network that has diverged would go on. Its leaky one keeps NaN. */
static bool is_plain_relu(const Node *node)
{
    return node->as.conv.relu && node->as.conv.slope == 0;
}

static void rectify_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    void *y = cpu_write(step, 0, begin);
    (void)part;
    step->kernels->relu(y, y, end - begin, 0);
}

void cpu_convolution_activate(CpuStep *step)
{
    if (is_plain_relu(step->node))
        cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), rectify_part, step);
}

static FshStatus convolution_run(CpuStep *step, FshError *error)
{
    FshStatus status = dnn_primitive_run(step->primitive, error);
    if (!status)
        cpu_convolution_activate(step);
    return status;
}

/* Returns whether the convolution is a matrix product of all pixels: x [pixels, in], y [pixels, out]. */
static bool is_product(const DnnConvolution *c)
{
    return c->kernel == 1 && c->stride == 1 && c->padding == 0 && c->groups == 1;
}

/* Makes one image of all that are there, for a product: oneDNN takes the pixels of an image four at a time,
 * and of nine one remains (16 images of 3 x 3 x 768, to 3072 channels, AVX2: 94 and 108 GFLOP/s). */
static void join_images(DnnConvolution *c)
{
    if (c->type != DATA_F32 || !is_product(c))
        return;
    c->in_height = c->out_height = c->batch * c->out_height;
    c->batch = 1;
}

/* A product loses where few pixels share the conversion of the weight, or channels fill no vectors. The
 * gradient of x, which has that conversion either way, wins from more channels on. */
enum { PIXELS_MIN = 64, CHANNELS_MIN = 24, CHANNELS_MIN_DATA = 96, COLLIDING_VALUES = 512 };

/* Returns whether rows of a product, of m x n results, share few lines of the cache. oneDNN copies the
 * operands block by block where m and n are long, and else reads them as they lie; rows 2 KiB apart and
 * multiples of that then drive each other out: half the speed at 4 KiB. */
static bool rows_collide(const DnnConvolution *c, int64_t m, int64_t n)
{
    static const double copies_below = 0.0038; /* oneDNN's */
    return (c->in_channels % COLLIDING_VALUES == 0 || c->out_channels % COLLIDING_VALUES == 0) &&
           1 / (double)m + 1 / (double)n >= copies_below;
}

/* Returns whether a gradient of the convolution goes faster as oneDNN's inner product than as its
 * convolution; that follows from shapes alone. In f32 and for AVX2, 16 images of 96 px: the weight's gradient
 * of 96 to 384 channels 66 and 100 GFLOP/s, of 768 to 3072 83 and 104, of x 75 and 98, 71 and 103
 * (docs/measurements/2026-11-28-cpu-pointwise.md). */
static bool inner_product_wins(const DnnConvolution *c, bool of_weight)
{
    const int64_t pixels = c->batch * c->out_height * c->out_width;
    const int64_t channels = c->in_channels < c->out_channels ? c->in_channels : c->out_channels;
    return c->type == DATA_F32 && is_product(c) && pixels >= PIXELS_MIN &&
           channels >= (of_weight ? CHANNELS_MIN : CHANNELS_MIN_DATA) &&
           !rows_collide(c, c->in_channels, of_weight ? c->out_channels : pixels);
}

/* Makes a gradient of a convolution as an inner product. */
static FshStatus inner_product_prepare(CpuStep *step, const DnnConvolution *c, const DnnLayout *weights,
                                       FshError *error)
{
    DnnEngine *engine = step->program->backend->dnn;
    const DnnLinear linear = {.type = c->type,
                              .batch = c->batch * c->out_height * c->out_width,
                              .in = c->in_channels,
                              .out = c->out_channels,
                              .weights = weights};
    step->engine = "onednn inner-product";
    if (step->node->op == OP_CONV2D_BACKWARD_DATA)
        return dnn_linear_backward_data_new(&step->primitive, engine, &linear, step->inputs[CONV_DATA_DY],
                                            step->inputs[CONV_DATA_WEIGHT], step->outputs[0], error);
    return dnn_linear_backward_weight_new(&step->primitive, engine, &linear, step->inputs[CONV_WEIGHT_DY],
                                          step->inputs[CONV_WEIGHT_X], step->outputs[CONV_WEIGHT_DWEIGHT],
                                          step->outputs[CONV_WEIGHT_DBIAS], error);
}

/* Calls depthwise convolutions that oneDNN computes by the name of those that own loops compute: which of the
 * two does is a matter of the CPU's instructions alone. */
static void name_engine(CpuStep *step, const DnnConvolution *geometry)
{
    if (cpu_is_depthwise(geometry))
        step->engine = "depthwise";
}

static FshStatus convolution_prepare(CpuStep *step, FshError *error)
{
    const Node *node = step->node;
    DnnEngine *engine = step->program->backend->dnn;
    DnnConvolution geometry;
    switch (node->op) {
    case OP_CONV2D:
        geometry = cpu_convolution_geometry(cpu_input(step, 0), cpu_output(step, 0), &node->as.conv.options);
        geometry.relu = node->as.conv.relu && !is_plain_relu(node);
        geometry.slope = node->as.conv.slope;
        if (cpu_depthwise_wins(&geometry, weight_layout(step, node->inputs[CONV_WEIGHT])))
            return cpu_depthwise_prepare(step, &geometry, error);
        if (cpu_side_by_side_wins(&geometry))
            return cpu_side_by_side_prepare(step, &geometry, weight_layout(step, node->inputs[CONV_WEIGHT]),
                                            error);
        name_engine(step, &geometry);
        join_images(&geometry);
        return dnn_convolution_forward_new(&step->primitive, engine, &geometry,
                                           weight_layout(step, node->inputs[CONV_WEIGHT]),
                                           step->inputs[CONV_X], step->inputs[CONV_WEIGHT],
                                           step->inputs[CONV_BIAS], step->outputs[0], error);
    case OP_CONV2D_BACKWARD_DATA:
        geometry = cpu_convolution_geometry(cpu_output(step, 0), cpu_input(step, 0), &node->as.conv.options);
        if (cpu_depthwise_wins(&geometry, weight_layout(step, node->inputs[CONV_DATA_WEIGHT])))
            return cpu_depthwise_prepare(step, &geometry, error);
        if (cpu_side_by_side_wins(&geometry))
            return cpu_side_by_side_prepare(step, &geometry,
                                            weight_layout(step, node->inputs[CONV_DATA_WEIGHT]), error);
        if (inner_product_wins(&geometry, false))
            return inner_product_prepare(step, &geometry, weight_layout(step, node->inputs[CONV_DATA_WEIGHT]),
                                         error);
        name_engine(step, &geometry);
        join_images(&geometry);
        return dnn_convolution_backward_data_new(
            &step->primitive, engine, &geometry, weight_layout(step, node->inputs[CONV_DATA_WEIGHT]),
            step->inputs[CONV_DATA_DY], step->inputs[CONV_DATA_WEIGHT], step->outputs[0], error);
    default:
        geometry = cpu_convolution_geometry(cpu_input(step, CONV_WEIGHT_X), cpu_input(step, CONV_WEIGHT_DY),
                                            &node->as.conv.options);
        if (cpu_depthwise_gradient_wins(&geometry, weight_layout(step, node->outputs[CONV_WEIGHT_DWEIGHT])))
            return cpu_depthwise_prepare(step, &geometry, error);
        if (cpu_side_by_side_wins(&geometry))
            return cpu_side_by_side_prepare(step, &geometry,
                                            weight_layout(step, node->outputs[CONV_WEIGHT_DWEIGHT]), error);
        if (cpu_small_gradient_wins(step, &geometry))
            return cpu_small_gradient_prepare(step, &geometry,
                                              weight_layout(step, node->outputs[CONV_WEIGHT_DWEIGHT]), error);
        if (inner_product_wins(&geometry, true))
            return inner_product_prepare(step, &geometry,
                                         weight_layout(step, node->outputs[CONV_WEIGHT_DWEIGHT]), error);
        name_engine(step, &geometry);
        return dnn_convolution_backward_weight_new(
            &step->primitive, engine, &geometry, weight_layout(step, node->outputs[CONV_WEIGHT_DWEIGHT]),
            step->inputs[CONV_WEIGHT_DY], step->inputs[CONV_WEIGHT_X], step->outputs[CONV_WEIGHT_DWEIGHT],
            step->outputs[CONV_WEIGHT_DBIAS], error);
    }
}

static FshStatus linear_prepare(CpuStep *step, FshError *error)
{
    const Node *node = step->node;
    DnnEngine *engine = step->program->backend->dnn;
    const Tensor *x = node->op == OP_LINEAR                 ? cpu_input(step, 0)
                      : node->op == OP_LINEAR_BACKWARD_DATA ? cpu_output(step, 0)
                                                            : cpu_input(step, CONV_WEIGHT_X);
    const Tensor *y = node->op == OP_LINEAR ? cpu_output(step, 0) : cpu_input(step, 0);
    const int64_t in = x->shape[x->rank - 1], out = y->shape[y->rank - 1];
    const DnnLinear linear = {.type = x->type, .batch = tensor_count(x) / in, .in = in, .out = out};
    switch (node->op) {
    case OP_LINEAR:
        return dnn_linear_forward_new(&step->primitive, engine, &linear, step->inputs[CONV_X],
                                      step->inputs[CONV_WEIGHT], step->inputs[CONV_BIAS], step->outputs[0],
                                      error);
    case OP_LINEAR_BACKWARD_DATA:
        return dnn_linear_backward_data_new(&step->primitive, engine, &linear, step->inputs[CONV_DATA_DY],
                                            step->inputs[CONV_DATA_WEIGHT], step->outputs[0], error);
    default:
        return dnn_linear_backward_weight_new(&step->primitive, engine, &linear, step->inputs[CONV_WEIGHT_DY],
                                              step->inputs[CONV_WEIGHT_X], step->outputs[CONV_WEIGHT_DWEIGHT],
                                              step->outputs[CONV_WEIGHT_DBIAS], error);
    }
}

static FshStatus primitive_run(CpuStep *step, FshError *error)
{
    return dnn_primitive_run(step->primitive, error);
}

static void add_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    void *y = cpu_write(step, 0, begin);
    (void)part;
    step->kernels->add(y, cpu_read(step, LINEAR_ADDEND, begin), y, end - begin);
}

static FshStatus linear_run(CpuStep *step, FshError *error)
{
    FshStatus status = dnn_primitive_run(step->primitive, error);
    if (!status && step->inputs[LINEAR_ADDEND])
        cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), add_part, step);
    return status;
}

const CpuOp cpu_ops_convolution[] = {
    {OP_CONV2D, .prepare = convolution_prepare, .run = convolution_run},
    {OP_CONV2D_BACKWARD_DATA, .prepare = convolution_prepare, .run = primitive_run},
    {OP_CONV2D_BACKWARD_WEIGHT, .prepare = convolution_prepare, .run = primitive_run},
    {OP_LINEAR, .prepare = linear_prepare, .run = linear_run},
    {OP_LINEAR_BACKWARD_DATA, .prepare = linear_prepare, .run = primitive_run},
    {OP_LINEAR_BACKWARD_WEIGHT, .prepare = linear_prepare, .run = primitive_run},
    {OP_KIND_COUNT, NULL, NULL},
};
