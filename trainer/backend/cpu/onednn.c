#include "trainer/backend/cpu/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

enum { SCRATCH_ALIGNMENT = 64, ARGUMENTS_MAX = 5 };

struct DnnEngine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* scratchpad: the caller's */
};

struct DnnLayout {
    dnnl_memory_desc_t description;
};

struct DnnPrimitive {
    const DnnEngine *engine;
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;
    dnnl_exec_arg_t arguments[ARGUMENTS_MAX + 1]; /* memories owned; the scratchpad is the last */
    int argument_count;
    /* Where the primitive wants its weights in another layout than they are stored in: a copy in scratch, converted before
     * (weights) or after (their gradient) each run. */
    dnnl_primitive_t conversion;
    dnnl_memory_t converted, stored;
    bool converts_after;
    uint64_t scratchpad_bytes, converted_bytes;
    const char *implementation;
};

static FshStatus check(dnnl_status_t status, const char *call, FshError *error)
{
    if (status == dnnl_success)
        return FSH_OK;
    return fsh_error_set(error, status == dnnl_out_of_memory ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY,
                         "oneDNN: %s: %s", call, dnnl_status2str(status));
}

/* Every call into oneDNN that can fail goes through this, and its text into the message. */
#define CHECK(call) check((call), #call, error)

/* ---- engine and layouts --------------------------------------------------------------------------------------------- */

FshStatus dnn_engine_new(DnnEngine **engine_ret, FshError *error)
{
    FshStatus status;
    DnnEngine *engine = calloc(1, sizeof *engine);
    *engine_ret = engine;
    if (!engine)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    if ((status = CHECK(dnnl_engine_create(&engine->engine, dnnl_cpu, 0))) ||
        (status = CHECK(dnnl_stream_create(&engine->stream, engine->engine, dnnl_stream_default_flags))) ||
        (status = CHECK(dnnl_primitive_attr_create(&engine->attributes))) ||
        (status =
             CHECK(dnnl_primitive_attr_set_scratchpad_mode(engine->attributes, dnnl_scratchpad_mode_user))))
        dnn_engine_free(engine_ret);
    return status;
}

void dnn_engine_free(DnnEngine **engine)
{
    if (!engine || !*engine)
        return;
    /* Destroying what was created cannot fail for a reason that a caller could act on. */
    (void)dnnl_primitive_attr_destroy((*engine)->attributes);
    (void)dnnl_stream_destroy((*engine)->stream);
    (void)dnnl_engine_destroy((*engine)->engine);
    free(*engine);
    *engine = NULL;
}

void dnn_engine_describe(char *buffer, uint64_t buffer_bytes)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } isas[] = {
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    };
    const dnnl_version_t *version = dnnl_version();
    const char *name = "generic code";
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        if (isas[i].isa == dnnl_get_effective_cpu_isa())
            name = isas[i].name;
    (void)snprintf(buffer, buffer_bytes, "oneDNN %d.%d.%d, %s", version->major, version->minor,
                   version->patch, name);
}

FshStatus dnn_layout_plain(DnnLayout **layout_ret, int rank, const int64_t *shape, FshError *error)
{
    static const dnnl_format_tag_t tags[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    DnnLayout *layout = calloc(1, sizeof *layout);
    *layout_ret = layout;
    if (!layout)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    FshStatus status =
        CHECK(dnnl_memory_desc_init_by_tag(&layout->description, rank, shape, dnnl_f32, tags[rank]));
    if (status)
        dnn_layout_free(layout_ret);
    return status;
}

void dnn_layout_free(DnnLayout **layout)
{
    if (!layout)
        return;
    free(*layout);
    *layout = NULL;
}

uint64_t dnn_layout_bytes(const DnnLayout *layout)
{
    return dnnl_memory_desc_get_size(&layout->description);
}

FshStatus dnn_layout_convert(DnnEngine *engine, const DnnLayout *from_layout, const float *from,
                             const DnnLayout *to_layout, float *to, FshError *error)
{
    FshStatus status;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t source = NULL, target = NULL;
    if ((status =
             CHECK(dnnl_reorder_primitive_desc_create(&description, &from_layout->description, engine->engine,
                                                      &to_layout->description, engine->engine, NULL))) ||
        (status = CHECK(dnnl_primitive_create(&primitive, description))) ||
        (status =
             CHECK(dnnl_memory_create(&source, &from_layout->description, engine->engine, (void *)from))) ||
        (status = CHECK(dnnl_memory_create(&target, &to_layout->description, engine->engine, to))))
        goto done;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};
    status = CHECK(dnnl_primitive_execute(primitive, engine->stream, 2, arguments));
    if (!status)
        status = CHECK(dnnl_stream_wait(engine->stream));
done:
    (void)dnnl_memory_destroy(target);
    (void)dnnl_memory_destroy(source);
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

/* ---- descriptions of one convolution ---------------------------------------------------------------------------------- */

typedef struct ConvolutionDescriptions {
    dnnl_memory_desc_t x, weight_any, bias, y; /* activations NHWC */
    dnnl_dims_t strides, padding;
} ConvolutionDescriptions;

static FshStatus describe_convolution(const DnnConvolution *c, ConvolutionDescriptions *d, FshError *error)
{
    const dnnl_dims_t x = {c->batch, c->in_channels, c->in_height, c->in_width};
    const dnnl_dims_t weight = {c->out_channels, c->in_channels, c->kernel, c->kernel};
    const dnnl_dims_t y = {c->batch, c->out_channels, c->out_height, c->out_width};
    const dnnl_dims_t bias = {c->out_channels};
    FshStatus status;
    for (int i = 0; i < 2; i++) {
        d->strides[i] = c->stride;
        d->padding[i] = c->padding;
    }
    if ((status = CHECK(dnnl_memory_desc_init_by_tag(&d->x, 4, x, dnnl_f32, dnnl_nhwc))) ||
        (status =
             CHECK(dnnl_memory_desc_init_by_tag(&d->weight_any, 4, weight, dnnl_f32, dnnl_format_tag_any))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a))))
        return status;
    return CHECK(dnnl_memory_desc_init_by_tag(&d->y, 4, y, dnnl_f32, dnnl_nhwc));
}

static FshStatus describe_forward(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                  const dnnl_memory_desc_t *weight, bool bias, FshError *error)
{
    return CHECK(dnnl_convolution_forward_desc_init(operation, dnnl_forward_training, dnnl_convolution_direct,
                                                    &d->x, weight, bias ? &d->bias : NULL, &d->y, d->strides,
                                                    d->padding, d->padding));
}

static FshStatus describe_backward_data(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                        const dnnl_memory_desc_t *weight, bool bias, FshError *error)
{
    (void)bias;
    return CHECK(dnnl_convolution_backward_data_desc_init(operation, dnnl_convolution_direct, &d->x, weight,
                                                          &d->y, d->strides, d->padding, d->padding));
}

static FshStatus describe_backward_weight(dnnl_convolution_desc_t *operation,
                                          const ConvolutionDescriptions *d, const dnnl_memory_desc_t *weight,
                                          bool bias, FshError *error)
{
    return CHECK(dnnl_convolution_backward_weights_desc_init(operation, dnnl_convolution_direct, &d->x,
                                                             weight, bias ? &d->bias : NULL, &d->y,
                                                             d->strides, d->padding, d->padding));
}

typedef FshStatus (*DescribeConvolution)(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                         const dnnl_memory_desc_t *weight, bool bias, FshError *error);

/* oneDNN's plain loops, a hundred times slower than the rest. */
static bool is_reference(const_dnnl_primitive_desc_t description)
{
    const char *info = NULL;
    return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&info) !=
               dnnl_success ||
           strncmp(info, "ref", 3) == 0;
}

/* The forward description, which the backward ones take as a hint. */
static FshStatus forward_hint(const DnnEngine *engine, const ConvolutionDescriptions *d,
                              dnnl_primitive_desc_t *hint, FshError *error)
{
    dnnl_convolution_desc_t operation;
    FshStatus status = describe_forward(&operation, d, &d->weight_any, false, error);
    return status ? status
                  : CHECK(dnnl_primitive_desc_create(hint, &operation, engine->attributes, engine->engine,
                                                     NULL));
}

/* True if the weight gradient has a fast implementation for weights laid out like this. */
static bool gradient_likes(const DnnEngine *engine, const ConvolutionDescriptions *d,
                           const dnnl_memory_desc_t *weight, const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    bool likes = !describe_backward_weight(&operation, d, weight, false, NULL) &&
                 dnnl_primitive_desc_create(&description, &operation, engine->attributes, engine->engine,
                                            hint) == dnnl_success &&
                 !is_reference(description);
    (void)dnnl_primitive_desc_destroy(description);
    return likes;
}

FshStatus dnn_layout_convolution(DnnLayout **layout_ret, DnnEngine *engine, const DnnConvolution *convolution,
                                 FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    dnnl_primitive_desc_t hint = NULL;
    FshStatus status;
    DnnLayout *layout = calloc(1, sizeof *layout);
    *layout_ret = layout;
    if (!layout)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = describe_forward(&operation, &d, &d.weight_any, false, error)) ||
        (status = forward_hint(engine, &d, &hint, error)) ||
        (status = CHECK(dnnl_primitive_desc_iterator_create(&iterator, &operation, engine->attributes,
                                                            engine->engine, NULL))))
        goto done;
    /* With no layout that both like, the first stands, and the gradient is converted after each run. In 2.6 this passes over
     * "brgconv", whose weights nothing else can read; on small images it is slower than "jit", too. */
    layout->description = *dnnl_primitive_desc_query_md(hint, dnnl_query_weights_md, 0);
    do {
        dnnl_primitive_desc_t candidate = dnnl_primitive_desc_iterator_fetch(iterator);
        const dnnl_memory_desc_t *weight =
            candidate ? dnnl_primitive_desc_query_md(candidate, dnnl_query_weights_md, 0) : NULL;
        const bool chosen = weight && !is_reference(candidate) && gradient_likes(engine, &d, weight, hint);
        if (chosen)
            layout->description = *weight;
        (void)dnnl_primitive_desc_destroy(candidate);
        if (chosen)
            break;
    } while (dnnl_primitive_desc_iterator_next(iterator) == dnnl_success);
done:
    (void)dnnl_primitive_desc_iterator_destroy(iterator);
    (void)dnnl_primitive_desc_destroy(hint);
    if (status)
        dnn_layout_free(layout_ret);
    return status;
}

/* ---- primitives ------------------------------------------------------------------------------------------------------- */

void dnn_primitive_free(DnnPrimitive **primitive)
{
    if (!primitive || !*primitive)
        return;
    for (int i = 0; i < (*primitive)->argument_count; i++)
        if ((*primitive)->arguments[i].memory != (*primitive)->converted)
            (void)dnnl_memory_destroy((*primitive)->arguments[i].memory);
    (void)dnnl_memory_destroy((*primitive)->converted);
    (void)dnnl_memory_destroy((*primitive)->stored);
    (void)dnnl_primitive_destroy((*primitive)->conversion);
    (void)dnnl_primitive_destroy((*primitive)->primitive);
    free(*primitive);
    *primitive = NULL;
}

static FshStatus primitive_new(DnnPrimitive **primitive_ret, const DnnEngine *engine,
                               const_dnnl_primitive_desc_t description, FshError *error)
{
    FshStatus status;
    DnnPrimitive *primitive = calloc(1, sizeof *primitive);
    *primitive_ret = primitive;
    if (!primitive)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    primitive->engine = engine;
    if ((status = CHECK(dnnl_primitive_create(&primitive->primitive, description))))
        return status;
    /* The string belongs to the library and outlives the description. */
    return CHECK(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0,
                                           (void *)&primitive->implementation));
}

/* Binds data, which lies as `layout` says, to an argument. Data is only read where the argument is an input. */
static FshStatus bind(DnnPrimitive *primitive, int argument, const dnnl_memory_desc_t *layout,
                      const float *data, FshError *error)
{
    dnnl_memory_t memory = NULL;
    FshStatus status = CHECK(dnnl_memory_create(&memory, layout, primitive->engine->engine, (void *)data));
    if (!status)
        primitive->arguments[primitive->argument_count++] = (dnnl_exec_arg_t){argument, memory};
    return status;
}

/* Binds weights (or their gradient), converting them through scratch where the primitive wants another layout. */
static FshStatus bind_weight(DnnPrimitive *primitive, int argument, const dnnl_memory_desc_t *wanted,
                             const dnnl_memory_desc_t *stored, const float *data, bool is_gradient,
                             FshError *error)
{
    FshStatus status;
    dnnl_engine_t engine = primitive->engine->engine;
    dnnl_primitive_desc_t description = NULL;
    if (dnnl_memory_desc_equal(wanted, stored))
        return bind(primitive, argument, stored, data, error);
    if ((status = CHECK(dnnl_memory_create(&primitive->converted, wanted, engine, DNNL_MEMORY_NONE))) ||
        (status = CHECK(dnnl_memory_create(&primitive->stored, stored, engine, (void *)data))) ||
        (status = CHECK(
             is_gradient
                 ? dnnl_reorder_primitive_desc_create(&description, wanted, engine, stored, engine, NULL)
                 : dnnl_reorder_primitive_desc_create(&description, stored, engine, wanted, engine, NULL))) ||
        (status = CHECK(dnnl_primitive_create(&primitive->conversion, description))))
        goto done;
    primitive->arguments[primitive->argument_count++] = (dnnl_exec_arg_t){argument, primitive->converted};
    primitive->converts_after = is_gradient;
    primitive->converted_bytes =
        (dnnl_memory_desc_get_size(wanted) + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
done:
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

static FshStatus bind_scratchpad(DnnPrimitive *primitive, const_dnnl_primitive_desc_t description,
                                 FshError *error)
{
    const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    primitive->scratchpad_bytes = layout ? dnnl_memory_desc_get_size(layout) : 0;
    if (!primitive->scratchpad_bytes)
        return FSH_OK;
    FshStatus status = CHECK(
        dnnl_memory_create(&primitive->scratchpad, layout, primitive->engine->engine, DNNL_MEMORY_NONE));
    if (!status)
        primitive->arguments[primitive->argument_count++] =
            (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, primitive->scratchpad};
    return status;
}

uint64_t dnn_primitive_scratch_bytes(const DnnPrimitive *primitive)
{
    return primitive->converted_bytes + primitive->scratchpad_bytes;
}

FshStatus dnn_primitive_set_scratch(DnnPrimitive *primitive, void *scratch, FshError *error)
{
    FshStatus status = FSH_OK;
    if (primitive->converted)
        status = CHECK(dnnl_memory_set_data_handle(primitive->converted, scratch));
    if (!status && primitive->scratchpad)
        status = CHECK(
            dnnl_memory_set_data_handle(primitive->scratchpad, (char *)scratch + primitive->converted_bytes));
    return status;
}

static FshStatus convert(const DnnPrimitive *primitive, dnnl_memory_t from, dnnl_memory_t to, FshError *error)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return CHECK(dnnl_primitive_execute(primitive->conversion, primitive->engine->stream, 2, arguments));
}

FshStatus dnn_primitive_run(DnnPrimitive *primitive, FshError *error)
{
    FshStatus status = FSH_OK;
    if (primitive->conversion && !primitive->converts_after)
        status = convert(primitive, primitive->stored, primitive->converted, error);
    if (!status)
        status = CHECK(dnnl_primitive_execute(primitive->primitive, primitive->engine->stream,
                                              primitive->argument_count, primitive->arguments));
    if (!status && primitive->conversion && primitive->converts_after)
        status = convert(primitive, primitive->converted, primitive->stored, error);
    return status ? status : CHECK(dnnl_stream_wait(primitive->engine->stream));
}

const char *dnn_primitive_implementation(const DnnPrimitive *primitive)
{
    return primitive->implementation;
}

/* ---- convolution ------------------------------------------------------------------------------------------------------ */

/* Describes the convolution for weights as they are stored, or, where that has only oneDNN's plain loops, for the layout
 * it prefers. */
static FshStatus describe_for(const DnnEngine *engine, DescribeConvolution describe,
                              const ConvolutionDescriptions *d, const DnnLayout *weights, bool bias,
                              const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *description,
                              FshError *error)
{
    dnnl_convolution_desc_t operation;
    FshStatus status = describe(&operation, d, &weights->description, bias, error);
    if (status)
        return status;
    if (dnnl_primitive_desc_create(description, &operation, engine->attributes, engine->engine, hint) ==
        dnnl_success) {
        if (!is_reference(*description))
            return FSH_OK;
        (void)dnnl_primitive_desc_destroy(*description);
    }
    *description = NULL;
    status = describe(&operation, d, &d->weight_any, bias, error);
    return status ? status
                  : CHECK(dnnl_primitive_desc_create(description, &operation, engine->attributes,
                                                     engine->engine, hint));
}

FshStatus dnn_convolution_forward_new(DnnPrimitive **primitive, DnnEngine *engine,
                                      const DnnConvolution *convolution, const DnnLayout *weights,
                                      const float *x, const float *weight, const float *bias, float *y,
                                      FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status =
             describe_for(engine, describe_forward, &d, weights, bias != NULL, NULL, &description, error)) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_SRC, &d.x, x, error)) ||
        (status = bind_weight(*primitive, DNNL_ARG_WEIGHTS,
                              dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0),
                              &weights->description, weight, false, error)) ||
        (bias && (status = bind(*primitive, DNNL_ARG_BIAS, &d.bias, bias, error))) ||
        (status = bind(*primitive, DNNL_ARG_DST, &d.y, y, error)))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

FshStatus dnn_convolution_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine,
                                            const DnnConvolution *convolution, const DnnLayout *weights,
                                            const float *dy, const float *weight, float *dx, FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = forward_hint(engine, &d, &hint, error)) ||
        (status =
             describe_for(engine, describe_backward_data, &d, weights, false, hint, &description, error)) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_DST, &d.y, dy, error)) ||
        (status = bind_weight(*primitive, DNNL_ARG_WEIGHTS,
                              dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0),
                              &weights->description, weight, false, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_SRC, &d.x, dx, error)))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(hint);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

FshStatus dnn_convolution_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine,
                                              const DnnConvolution *convolution, const DnnLayout *weights,
                                              const float *dy, const float *x, float *dweight, float *dbias,
                                              FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = forward_hint(engine, &d, &hint, error)) ||
        (status = describe_for(engine, describe_backward_weight, &d, weights, dbias != NULL, hint,
                               &description, error)) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_DST, &d.y, dy, error)) ||
        (status = bind(*primitive, DNNL_ARG_SRC, &d.x, x, error)) ||
        (status = bind_weight(*primitive, DNNL_ARG_DIFF_WEIGHTS,
                              dnnl_primitive_desc_query_md(description, dnnl_query_diff_weights_md, 0),
                              &weights->description, dweight, true, error)) ||
        (dbias && (status = bind(*primitive, DNNL_ARG_DIFF_BIAS, &d.bias, dbias, error))))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(hint);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

/* ---- matrix product ----------------------------------------------------------------------------------------------------- */

typedef struct LinearDescriptions {
    dnnl_memory_desc_t x, weight, bias, y; /* all plain */
    dnnl_primitive_desc_t forward;         /* owned */
} LinearDescriptions;

static FshStatus describe_linear(const DnnEngine *engine, const DnnLinear *linear, bool bias,
                                 LinearDescriptions *d, FshError *error)
{
    const dnnl_dims_t x = {linear->batch, linear->in}, weight = {linear->out, linear->in};
    const dnnl_dims_t y = {linear->batch, linear->out}, b = {linear->out};
    dnnl_inner_product_desc_t operation;
    FshStatus status;
    *d = (LinearDescriptions){0};
    if ((status = CHECK(dnnl_memory_desc_init_by_tag(&d->x, 2, x, dnnl_f32, dnnl_ab))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&d->weight, 2, weight, dnnl_f32, dnnl_ab))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&d->bias, 1, b, dnnl_f32, dnnl_a))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&d->y, 2, y, dnnl_f32, dnnl_ab))) ||
        (status = CHECK(dnnl_inner_product_forward_desc_init(&operation, dnnl_forward_training, &d->x,
                                                             &d->weight, bias ? &d->bias : NULL, &d->y))))
        return status;
    return CHECK(
        dnnl_primitive_desc_create(&d->forward, &operation, engine->attributes, engine->engine, NULL));
}

FshStatus dnn_linear_forward_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                 const float *x, const float *weight, const float *bias, float *y,
                                 FshError *error)
{
    LinearDescriptions d;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_linear(engine, linear, bias != NULL, &d, error)) ||
        (status = primitive_new(primitive, engine, d.forward, error)) ||
        (status = bind(*primitive, DNNL_ARG_SRC, &d.x, x, error)) ||
        (status = bind(*primitive, DNNL_ARG_WEIGHTS, &d.weight, weight, error)) ||
        (bias && (status = bind(*primitive, DNNL_ARG_BIAS, &d.bias, bias, error))) ||
        (status = bind(*primitive, DNNL_ARG_DST, &d.y, y, error)))
        goto done;
    status = bind_scratchpad(*primitive, d.forward, error);
done:
    (void)dnnl_primitive_desc_destroy(d.forward);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

FshStatus dnn_linear_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                       const float *dy, const float *weight, float *dx, FshError *error)
{
    LinearDescriptions d;
    dnnl_inner_product_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_linear(engine, linear, false, &d, error)) ||
        (status = CHECK(dnnl_inner_product_backward_data_desc_init(&operation, &d.x, &d.weight, &d.y))) ||
        (status = CHECK(dnnl_primitive_desc_create(&description, &operation, engine->attributes,
                                                   engine->engine, d.forward))) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_DST, &d.y, dy, error)) ||
        (status = bind(*primitive, DNNL_ARG_WEIGHTS, &d.weight, weight, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_SRC, &d.x, dx, error)))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(d.forward);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

FshStatus dnn_linear_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                         const float *dy, const float *x, float *dweight, float *dbias,
                                         FshError *error)
{
    LinearDescriptions d;
    dnnl_inner_product_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_linear(engine, linear, dbias != NULL, &d, error)) ||
        (status = CHECK(dnnl_inner_product_backward_weights_desc_init(&operation, &d.x, &d.weight,
                                                                      dbias ? &d.bias : NULL, &d.y))) ||
        (status = CHECK(dnnl_primitive_desc_create(&description, &operation, engine->attributes,
                                                   engine->engine, d.forward))) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_DST, &d.y, dy, error)) ||
        (status = bind(*primitive, DNNL_ARG_SRC, &d.x, x, error)) ||
        (status = bind(*primitive, DNNL_ARG_DIFF_WEIGHTS, &d.weight, dweight, error)) ||
        (dbias && (status = bind(*primitive, DNNL_ARG_DIFF_BIAS, &d.bias, dbias, error))))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(d.forward);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

/* ---- for gradients of small images (cpu_small_gradient.c) ------------------------------------------------ */

FshStatus dnn_primitive_bind(DnnPrimitive *primitive, void *const *memories, int count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; !status && i < count && i < primitive->argument_count; i++)
        status = CHECK(dnnl_memory_set_data_handle(primitive->arguments[i].memory, memories[i]));
    return status;
}

FshStatus dnn_product_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnProduct *product,
                          FshError *error)
{
    const dnnl_dims_t a_shape = {product->rows, product->inner}, b_shape = {product->inner, product->columns};
    const dnnl_dims_t c_shape = {product->rows, product->columns};
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = CHECK(dnnl_memory_desc_init_by_tag(&a, 2, a_shape, dnnl_f32, dnnl_ba))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&b, 2, b_shape, dnnl_f32, dnnl_ab))) ||
        (status = CHECK(dnnl_memory_desc_init_by_tag(&c, 2, c_shape, dnnl_f32, dnnl_ab))) ||
        (status = CHECK(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c))) ||
        (status = CHECK(dnnl_primitive_desc_create(&description, &operation, engine->attributes,
                                                   engine->engine, NULL))) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_SRC, &a, NULL, error)) ||
        (status = bind(*primitive, DNNL_ARG_WEIGHTS, &b, NULL, error)) ||
        (status = bind(*primitive, DNNL_ARG_DST, &c, NULL, error)))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}

FshStatus dnn_conversion_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnConvolution *convolution,
                             const DnnLayout *weights, FshError *error)
{
    const dnnl_dims_t shape = {convolution->out_channels, convolution->in_channels, convolution->kernel,
                               convolution->kernel};
    dnnl_memory_desc_t from;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = CHECK(dnnl_memory_desc_init_by_tag(&from, 4, shape, dnnl_f32, dnnl_hwio))) ||
        (status = CHECK(dnnl_reorder_primitive_desc_create(&description, &from, engine->engine,
                                                           &weights->description, engine->engine,
                                                           engine->attributes))) ||
        (status = primitive_new(primitive, engine, description, error)) ||
        (status = bind(*primitive, DNNL_ARG_FROM, &from, NULL, error)) ||
        (status = bind(*primitive, DNNL_ARG_TO, &weights->description, NULL, error)))
        goto done;
    status = bind_scratchpad(*primitive, description, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    if (status)
        dnn_primitive_free(primitive);
    return status;
}
