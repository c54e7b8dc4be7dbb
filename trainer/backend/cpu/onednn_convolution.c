#include "trainer/backend/cpu/onednn_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- descriptions of one convolution ---- */

typedef struct ConvolutionDescriptions {
    dnnl_memory_desc_t x, y, bias; /* activations NHWC */
    /* The layouts that oneDNN chooses for the weight that products read, and for its gradient (f32). One
     * layout for f32. */
    dnnl_memory_desc_t weight_any, gradient_any;
    dnnl_dims_t strides, padding;
    dnnl_primitive_attr_t attributes; /* NULL: the engine's; else owned */
} ConvolutionDescriptions;

static FshStatus describe_convolution(const DnnConvolution *c, ConvolutionDescriptions *d, FshError *error)
{
    const dnnl_dims_t x = {c->batch, c->in_channels, c->in_height, c->in_width};
    const dnnl_dims_t weight = {c->groups, c->out_channels / c->groups, c->in_channels / c->groups, c->kernel,
                                c->kernel};
    const int ungrouped = c->groups == 1; /* to oneDNN the first dimension is there in groups only */
    const dnnl_dims_t y = {c->batch, c->out_channels, c->out_height, c->out_width};
    const dnnl_dims_t bias = {c->out_channels};
    const dnnl_data_type_t type = dnn_type(c->type);
    FshStatus status;
    d->attributes = NULL;
    for (int i = 0; i < 2; i++) {
        d->strides[i] = c->stride;
        d->padding[i] = c->padding;
    }
    if ((status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->x, 4, x, type, dnnl_nhwc))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->weight_any, 5 - ungrouped, weight + ungrouped,
                                                         type, dnnl_format_tag_any))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->gradient_any, 5 - ungrouped, weight + ungrouped,
                                                         dnnl_f32, dnnl_format_tag_any))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a))))
        return status;
    return DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->y, 4, y, type, dnnl_nhwc));
}

static FshStatus describe_forward(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                  const dnnl_memory_desc_t *weight, bool bias, FshError *error)
{
    return DNN_CHECK(dnnl_convolution_forward_desc_init(
        operation, dnnl_forward_training, dnnl_convolution_direct, &d->x, weight, bias ? &d->bias : NULL,
        &d->y, d->strides, d->padding, d->padding));
}

static FshStatus describe_backward_data(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                        const dnnl_memory_desc_t *weight, bool bias, FshError *error)
{
    (void)bias;
    return DNN_CHECK(dnnl_convolution_backward_data_desc_init(
        operation, dnnl_convolution_direct, &d->x, weight, &d->y, d->strides, d->padding, d->padding));
}

static FshStatus describe_backward_weight(dnnl_convolution_desc_t *operation,
                                          const ConvolutionDescriptions *d, const dnnl_memory_desc_t *weight,
                                          bool bias, FshError *error)
{
    return DNN_CHECK(dnnl_convolution_backward_weights_desc_init(operation, dnnl_convolution_direct, &d->x,
                                                                 weight, bias ? &d->bias : NULL, &d->y,
                                                                 d->strides, d->padding, d->padding));
}

typedef FshStatus (*DescribeConvolution)(dnnl_convolution_desc_t *operation, const ConvolutionDescriptions *d,
                                         const dnnl_memory_desc_t *weight, bool bias, FshError *error);

/* Returns whether these are oneDNN's plain loops, a hundred times slower than the rest. */
static bool is_reference(const_dnnl_primitive_desc_t description)
{
    const char *info = NULL;
    return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&info) !=
               dnnl_success ||
           strncmp(info, "ref", 3) == 0;
}

/* Describes the forward convolution, which the backward ones take as a hint. */
static FshStatus forward_hint(const DnnEngine *engine, const ConvolutionDescriptions *d,
                              dnnl_primitive_desc_t *hint, FshError *error)
{
    dnnl_convolution_desc_t operation;
    FshStatus status = describe_forward(&operation, d, &d->weight_any, false, error);
    return status ? status
                  : DNN_CHECK(dnnl_primitive_desc_create(hint, &operation, engine->attributes, engine->engine,
                                                         NULL));
}

/* Returns whether the weight gradient has a fast implementation for weights laid out like this. */
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

/* Chooses a layout of f32 weights that forward pass and weight gradient are both fast in. Without one the
 * first stands, and the gradient is converted after each run. In oneDNN 2.6 this passes over "brgconv", whose
 * weights nothing else can read; on small images it is slower than "jit", too. */
static FshStatus choose_common_layout(const DnnEngine *engine, const ConvolutionDescriptions *d,
                                      const_dnnl_primitive_desc_t hint, DnnLayout *layout, FshError *error)
{
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    FshStatus status = describe_forward(&operation, d, &d->weight_any, false, error);
    if (status || (status = DNN_CHECK(dnnl_primitive_desc_iterator_create(
                       &iterator, &operation, engine->attributes, engine->engine, NULL))))
        return status;
    layout->description = *dnnl_primitive_desc_query_md(hint, dnnl_query_weights_md, 0);
    do {
        dnnl_primitive_desc_t candidate = dnnl_primitive_desc_iterator_fetch(iterator);
        const dnnl_memory_desc_t *weight =
            candidate ? dnnl_primitive_desc_query_md(candidate, dnnl_query_weights_md, 0) : NULL;
        const bool chosen = weight && !is_reference(candidate) && gradient_likes(engine, d, weight, hint);
        if (chosen)
            layout->description = *weight;
        (void)dnnl_primitive_desc_destroy(candidate);
        if (chosen)
            break;
    } while (dnnl_primitive_desc_iterator_next(iterator) == dnnl_success);
    (void)dnnl_primitive_desc_iterator_destroy(iterator);
    return FSH_OK;
}

static FshStatus choose_gradient_layout(const DnnEngine *engine, const ConvolutionDescriptions *d,
                                        const_dnnl_primitive_desc_t hint, DnnLayout *layout, FshError *error)
{
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status = describe_backward_weight(&operation, d, &d->gradient_any, false, error);
    if (!status)
        status = DNN_CHECK(
            dnnl_primitive_desc_create(&description, &operation, engine->attributes, engine->engine, hint));
    if (!status)
        layout->description = *dnnl_primitive_desc_query_md(description, dnnl_query_diff_weights_md, 0);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

FshStatus dnn_layout_convolution(DnnLayout **layout_ret, DnnEngine *engine, const DnnConvolution *convolution,
                                 FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t hint = NULL;
    FshStatus status;
    DnnLayout *layout = calloc(1, sizeof *layout);
    *layout_ret = layout;
    if (!layout)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = forward_hint(engine, &d, &hint, error)))
        goto done;
    if (convolution->type == DATA_F32)
        status = choose_common_layout(engine, &d, hint, layout, error);
    else
        status = choose_gradient_layout(engine, &d, hint, layout, error);
done:
    (void)dnnl_primitive_desc_destroy(hint);
    if (status)
        dnn_layout_free(layout_ret);
    return status;
}

/* ---- convolution ---- */

/* Describes the convolution for weights (their gradient) as they are stored. Where oneDNN has only plain
 * loops for that, or weights are of another type, describes it for `any`, the layout that oneDNN prefers. */
static FshStatus describe_for(const DnnEngine *engine, DescribeConvolution describe,
                              const ConvolutionDescriptions *d, const DnnLayout *weights,
                              const dnnl_memory_desc_t *any, bool bias, const_dnnl_primitive_desc_t hint,
                              dnnl_primitive_desc_t *description, FshError *error)
{
    const const_dnnl_primitive_attr_t attributes = d->attributes ? d->attributes : engine->attributes;
    dnnl_convolution_desc_t operation;
    FshStatus status;
    *description = NULL;
    if (weights->description.data_type == any->data_type) {
        if ((status = describe(&operation, d, &weights->description, bias, error)))
            return status;
        if (dnnl_primitive_desc_create(description, &operation, attributes, engine->engine, hint) ==
            dnnl_success) {
            if (!is_reference(*description))
                return FSH_OK;
            (void)dnnl_primitive_desc_destroy(*description);
        }
        *description = NULL;
    }
    status = describe(&operation, d, any, bias, error);
    return status ? status
                  : DNN_CHECK(dnnl_primitive_desc_create(description, &operation, attributes, engine->engine,
                                                         hint));
}

/* Adds the activation after the sums to the attributes of the engine. */
static FshStatus add_activation(const DnnEngine *engine, const DnnConvolution *convolution,
                                ConvolutionDescriptions *d, FshError *error)
{
    const float scale = 1, unused = 0;
    dnnl_post_ops_t behind = NULL;
    FshStatus status;
    if (!(status = DNN_CHECK(dnnl_primitive_attr_clone(&d->attributes, engine->attributes))) &&
        !(status = DNN_CHECK(dnnl_post_ops_create(&behind))) &&
        !(status = DNN_CHECK(
              dnnl_post_ops_append_eltwise(behind, scale, dnnl_eltwise_relu, convolution->slope, unused))))
        status = DNN_CHECK(dnnl_primitive_attr_set_post_ops(d->attributes, behind));
    (void)dnnl_post_ops_destroy(behind);
    return status;
}

FshStatus dnn_convolution_forward_new(DnnPrimitive **primitive, DnnEngine *engine,
                                      const DnnConvolution *convolution, const DnnLayout *weights,
                                      const void *x, const float *weight, const float *bias, void *y,
                                      FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (convolution->relu && (status = add_activation(engine, convolution, &d, error))) ||
        (status = describe_for(engine, describe_forward, &d, weights, &d.weight_any, bias != NULL, NULL,
                               &description, error)))
        goto done;
    const Binding bindings[] = {
        {DNNL_ARG_SRC, &d.x, x}, {DNNL_ARG_BIAS, bias ? &d.bias : NULL, bias}, {DNNL_ARG_DST, &d.y, y}};
    const WeightBinding of_weight = {
        {DNNL_ARG_WEIGHTS, &weights->description, weight}, dnnl_query_weights_md, false};
    status = dnn_primitive_new(primitive, engine, description, bindings, 3, &of_weight, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_attr_destroy(d.attributes);
    return status;
}

FshStatus dnn_convolution_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine,
                                            const DnnConvolution *convolution, const DnnLayout *weights,
                                            const void *dy, const float *weight, void *dx, FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = forward_hint(engine, &d, &hint, error)) ||
        (status = describe_for(engine, describe_backward_data, &d, weights, &d.weight_any, false, hint,
                               &description, error)))
        goto done;
    const Binding bindings[] = {{DNNL_ARG_DIFF_DST, &d.y, dy}, {DNNL_ARG_DIFF_SRC, &d.x, dx}};
    const WeightBinding of_weight = {
        {DNNL_ARG_WEIGHTS, &weights->description, weight}, dnnl_query_weights_md, false};
    status = dnn_primitive_new(primitive, engine, description, bindings, 2, &of_weight, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(hint);
    return status;
}

FshStatus dnn_convolution_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine,
                                              const DnnConvolution *convolution, const DnnLayout *weights,
                                              const void *dy, const void *x, float *dweight, float *dbias,
                                              FshError *error)
{
    ConvolutionDescriptions d;
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_convolution(convolution, &d, error)) ||
        (status = forward_hint(engine, &d, &hint, error)) ||
        (status = describe_for(engine, describe_backward_weight, &d, weights, &d.gradient_any, dbias != NULL,
                               hint, &description, error)))
        goto done;
    const Binding bindings[] = {{DNNL_ARG_DIFF_DST, &d.y, dy},
                                {DNNL_ARG_SRC, &d.x, x},
                                {DNNL_ARG_DIFF_BIAS, dbias ? &d.bias : NULL, dbias}};
    const WeightBinding of_weight = {
        {DNNL_ARG_DIFF_WEIGHTS, &weights->description, dweight}, dnnl_query_diff_weights_md, true};
    status = dnn_primitive_new(primitive, engine, description, bindings, 3, &of_weight, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(hint);
    return status;
}

static FshStatus make_conversion(DnnPrimitive **primitive, const DnnEngine *engine,
                                 const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                 FshError *error)
{
    dnnl_primitive_desc_t description = NULL;
    FshStatus status = DNN_CHECK(dnnl_reorder_primitive_desc_create(&description, from, engine->engine, to,
                                                                    engine->engine, engine->attributes));
    if (status)
        return status;
    const Binding bindings[] = {{DNNL_ARG_FROM, from, NULL}, {DNNL_ARG_TO, to, NULL}};
    status = dnn_primitive_new(primitive, engine, description, bindings, 2, NULL, error);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

FshStatus dnn_layout_conversion_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLayout *from,
                                    const DnnLayout *to, FshError *error)
{
    *primitive = NULL;
    return make_conversion(primitive, engine, &from->description, &to->description, error);
}

FshStatus dnn_conversion_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnConvolution *convolution,
                             const DnnLayout *weights, FshError *error)
{
    const dnnl_dims_t shape = {convolution->out_channels, convolution->in_channels, convolution->kernel,
                               convolution->kernel};
    dnnl_memory_desc_t from;
    *primitive = NULL;
    FshStatus status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&from, 4, shape, dnnl_f32, dnnl_hwio));
    return status ? status : make_conversion(primitive, engine, &from, &weights->description, error);
}
