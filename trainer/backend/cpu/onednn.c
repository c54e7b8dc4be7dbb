#include "trainer/backend/cpu/onednn_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl_debug.h>

FshStatus dnn_check(dnnl_status_t status, const char *call, FshError *error)
{
    if (status == dnnl_success)
        return FSH_OK;
    return fsh_error_set(error, status == dnnl_out_of_memory ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY,
                         "oneDNN: %s: %s", call, dnnl_status2str(status));
}

dnnl_data_type_t dnn_type(DataType type)
{
    return type == DATA_BF16 ? dnnl_bf16 : dnnl_f32;
}

FshStatus dnn_check_type(DataType type, FshError *error)
{
    char library[80];
    dnn_engine_describe(library, sizeof library);
    if (type == DATA_F16)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "the CPU cannot compute in fp16 (%s has no such convolutions); use --amp bf16, or a GPU "
            "(--device cuda)",
            library);
    /* oneDNN's bf16 begins at AVX-512 (without its bf16 instructions it takes two f32 ones for each); a set
     * of instructions includes those before it, and its number their bits. */
    if (type == DATA_BF16 &&
        (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "this CPU cannot compute in bf16 (%s; it takes AVX-512); use float32 (--amp off), "
            "or a GPU (--device cuda)",
            library);
    return FSH_OK;
}

/* ---- engine and layouts ---- */

FshStatus dnn_engine_new(DnnEngine **engine_ret, FshError *error)
{
    FshStatus status;
    DnnEngine *engine = calloc(1, sizeof *engine);
    *engine_ret = engine;
    if (!engine)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    if ((status = DNN_CHECK(dnnl_engine_create(&engine->engine, dnnl_cpu, 0))) ||
        (status =
             DNN_CHECK(dnnl_stream_create(&engine->stream, engine->engine, dnnl_stream_default_flags))) ||
        (status = DNN_CHECK(dnnl_primitive_attr_create(&engine->attributes))) ||
        (status = DNN_CHECK(
             dnnl_primitive_attr_set_scratchpad_mode(engine->attributes, dnnl_scratchpad_mode_user))))
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

/* Makes the layout of a tensor in f32 in the order of the tag. */
static FshStatus layout_by_tag(DnnLayout **layout_ret, int rank, const dnnl_dim_t *shape,
                               dnnl_format_tag_t tag, FshError *error)
{
    DnnLayout *layout = calloc(1, sizeof *layout);
    *layout_ret = layout;
    if (!layout)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    FshStatus status =
        DNN_CHECK(dnnl_memory_desc_init_by_tag(&layout->description, rank, shape, dnnl_f32, tag));
    if (status)
        dnn_layout_free(layout_ret);
    return status;
}

FshStatus dnn_layout_plain(DnnLayout **layout_ret, int rank, const int64_t *shape, FshError *error)
{
    static const dnnl_format_tag_t tags[] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    return layout_by_tag(layout_ret, rank, shape, tags[rank], error);
}

FshStatus dnn_layout_turned(DnnLayout **layout, const DnnLayout *plain, int lead, FshError *error)
{
    const dnnl_memory_desc_t *from = &plain->description;
    dnnl_dims_t strides;
    dnnl_dim_t stride = 1;
    for (int i = 0; i < from->ndims; i++) { /* innermost first */
        const int d = i < lead ? lead - 1 - i : from->ndims - 1 - (i - lead);
        strides[d] = stride;
        stride *= from->dims[d];
    }
    *layout = calloc(1, sizeof **layout);
    if (!*layout)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    return DNN_CHECK(dnnl_memory_desc_init_by_strides(&(*layout)->description, from->ndims, from->dims,
                                                      from->data_type, strides));
}

FshStatus dnn_layout_by_taps(DnnLayout **layout, const DnnLayout *plain, FshError *error)
{
    return layout_by_tag(layout, plain->description.ndims, plain->description.dims, dnnl_decab, error);
}

bool dnn_layout_is_by_taps(const DnnLayout *layout)
{
    const dnnl_memory_desc_t *own = &layout->description;
    dnnl_memory_desc_t by_taps;
    return own->ndims == 5 && own->dims[1] == 1 && own->dims[2] == 1 &&
           dnnl_memory_desc_init_by_tag(&by_taps, 5, own->dims, dnnl_f32, dnnl_decab) == dnnl_success &&
           dnnl_memory_desc_equal(own, &by_taps);
}

void dnn_layout_free(DnnLayout **layout)
{
    if (!layout)
        return;
    free(*layout);
    *layout = NULL;
}

int dnn_layout_rank(const DnnLayout *layout)
{
    return layout->description.ndims;
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
    if ((status = DNN_CHECK(dnnl_reorder_primitive_desc_create(&description, &from_layout->description,
                                                               engine->engine, &to_layout->description,
                                                               engine->engine, NULL))) ||
        (status = DNN_CHECK(dnnl_primitive_create(&primitive, description))) ||
        (status = DNN_CHECK(
             dnnl_memory_create(&source, &from_layout->description, engine->engine, (void *)from))) ||
        (status = DNN_CHECK(dnnl_memory_create(&target, &to_layout->description, engine->engine, to))))
        goto done;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};
    status = DNN_CHECK(dnnl_primitive_execute(primitive, engine->stream, 2, arguments));
    if (!status)
        status = DNN_CHECK(dnnl_stream_wait(engine->stream));
done:
    (void)dnnl_memory_destroy(target);
    (void)dnnl_memory_destroy(source);
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

/* ---- primitives ---- */

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

static FshStatus bind(DnnPrimitive *primitive, const Binding *binding, FshError *error)
{
    dnnl_memory_t memory = NULL;
    FshStatus status = DNN_CHECK(
        dnnl_memory_create(&memory, binding->layout, primitive->engine->engine, (void *)binding->data));
    if (!status)
        primitive->arguments[primitive->argument_count++] = (dnnl_exec_arg_t){binding->argument, memory};
    return status;
}

/* Binds weights, converting them through scratch where the primitive wants another layout than they are
 * stored in. */
static FshStatus bind_weight(DnnPrimitive *primitive, const_dnnl_primitive_desc_t description,
                             const WeightBinding *weight, FshError *error)
{
    FshStatus status;
    dnnl_engine_t engine = primitive->engine->engine;
    dnnl_primitive_desc_t conversion = NULL;
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(description, weight->wanted, 0);
    const dnnl_memory_desc_t *stored = weight->stored.layout;
    if (dnnl_memory_desc_equal(wanted, stored))
        return bind(primitive, &weight->stored, error);
    if ((status = DNN_CHECK(dnnl_memory_create(&primitive->converted, wanted, engine, DNNL_MEMORY_NONE))) ||
        (status = DNN_CHECK(
             dnnl_memory_create(&primitive->stored, stored, engine, (void *)weight->stored.data))) ||
        (status = DNN_CHECK(
             dnnl_reorder_primitive_desc_create(&conversion, weight->is_gradient ? wanted : stored, engine,
                                                weight->is_gradient ? stored : wanted, engine, NULL))) ||
        (status = DNN_CHECK(dnnl_primitive_create(&primitive->conversion, conversion))))
        goto done;
    primitive->arguments[primitive->argument_count++] =
        (dnnl_exec_arg_t){weight->stored.argument, primitive->converted};
    primitive->converts_after = weight->is_gradient;
    primitive->converted_bytes =
        (dnnl_memory_desc_get_size(wanted) + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
done:
    (void)dnnl_primitive_desc_destroy(conversion);
    return status;
}

static FshStatus bind_scratchpad(DnnPrimitive *primitive, const_dnnl_primitive_desc_t description,
                                 FshError *error)
{
    const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    primitive->scratchpad_bytes = layout ? dnnl_memory_desc_get_size(layout) : 0;
    if (!primitive->scratchpad_bytes)
        return FSH_OK;
    FshStatus status = DNN_CHECK(
        dnnl_memory_create(&primitive->scratchpad, layout, primitive->engine->engine, DNNL_MEMORY_NONE));
    if (!status)
        primitive->arguments[primitive->argument_count++] =
            (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, primitive->scratchpad};
    return status;
}

FshStatus dnn_primitive_new(DnnPrimitive **primitive_ret, const DnnEngine *engine,
                            const_dnnl_primitive_desc_t description, const Binding *bindings, int count,
                            const WeightBinding *weight, FshError *error)
{
    DnnPrimitive *primitive = calloc(1, sizeof *primitive);
    *primitive_ret = primitive;
    if (!primitive)
        return fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory");
    primitive->engine = engine;
    FshStatus status = DNN_CHECK(dnnl_primitive_create(&primitive->primitive, description));
    for (int i = 0; !status && i < count; i++)
        if (bindings[i].layout)
            status = bind(primitive, &bindings[i], error);
    if (!status && weight)
        status = bind_weight(primitive, description, weight, error);
    if (!status)
        status = bind_scratchpad(primitive, description, error);
    if (status)
        dnn_primitive_free(primitive_ret);
    return status;
}

FshStatus dnn_primitive_bind(DnnPrimitive *primitive, void *const *memories, int count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; !status && i < count; i++)
        status = DNN_CHECK(dnnl_memory_set_data_handle(primitive->arguments[i].memory, memories[i]));
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
        status = DNN_CHECK(dnnl_memory_set_data_handle(primitive->converted, scratch));
    if (!status && primitive->scratchpad)
        status = DNN_CHECK(
            dnnl_memory_set_data_handle(primitive->scratchpad, (char *)scratch + primitive->converted_bytes));
    return status;
}

static FshStatus convert(const DnnPrimitive *primitive, dnnl_memory_t from, dnnl_memory_t to, FshError *error)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return DNN_CHECK(dnnl_primitive_execute(primitive->conversion, primitive->engine->stream, 2, arguments));
}

FshStatus dnn_primitive_run(DnnPrimitive *primitive, FshError *error)
{
    FshStatus status = FSH_OK;
    if (primitive->conversion && !primitive->converts_after)
        status = convert(primitive, primitive->stored, primitive->converted, error);
    if (!status)
        status = DNN_CHECK(dnnl_primitive_execute(primitive->primitive, primitive->engine->stream,
                                                  primitive->argument_count, primitive->arguments));
    if (!status && primitive->conversion && primitive->converts_after)
        status = convert(primitive, primitive->converted, primitive->stored, error);
    return status ? status : DNN_CHECK(dnnl_stream_wait(primitive->engine->stream));
}

/* ---- matrix product ---- */

typedef struct LinearDescriptions {
    dnnl_memory_desc_t x, y, bias; /* plain */
    /* The weight as it is stored, f32, and as the product reads it: plain for f32, of oneDNN's choice for
     * bf16. */
    dnnl_memory_desc_t stored, weight;
    dnnl_primitive_desc_t forward; /* owned */
} LinearDescriptions;

static FshStatus describe_linear(const DnnEngine *engine, const DnnLinear *linear, bool bias,
                                 LinearDescriptions *d, FshError *error)
{
    /* A convolution's weights have an image of one pixel, and so has x then. */
    const int rank = linear->weights ? 4 : 2;
    const dnnl_format_tag_t plain = linear->weights ? dnnl_abcd : dnnl_ab;
    const dnnl_dims_t x = {linear->batch, linear->in, 1, 1}, weight = {linear->out, linear->in, 1, 1};
    const dnnl_dims_t y = {linear->batch, linear->out}, b = {linear->out};
    const dnnl_data_type_t type = dnn_type(linear->type);
    const dnnl_format_tag_t weight_tag = linear->type == DATA_F32 ? plain : dnnl_format_tag_any;
    dnnl_inner_product_desc_t operation;
    FshStatus status;
    *d = (LinearDescriptions){0};
    if (linear->weights)
        d->stored = linear->weights->description;
    else if ((status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->stored, rank, weight, dnnl_f32, plain))))
        return status;
    if ((status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->x, rank, x, type, plain))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->weight, rank, weight, type, weight_tag))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->bias, 1, b, dnnl_f32, dnnl_a))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&d->y, 2, y, type, dnnl_ab))) ||
        (status = DNN_CHECK(dnnl_inner_product_forward_desc_init(&operation, dnnl_forward_training, &d->x,
                                                                 &d->weight, bias ? &d->bias : NULL, &d->y))))
        return status;
    return DNN_CHECK(
        dnnl_primitive_desc_create(&d->forward, &operation, engine->attributes, engine->engine, NULL));
}

FshStatus dnn_linear_forward_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                 const void *x, const float *weight, const float *bias, void *y,
                                 FshError *error)
{
    LinearDescriptions d;
    *primitive = NULL;
    FshStatus status = describe_linear(engine, linear, bias != NULL, &d, error);
    if (!status) {
        const Binding bindings[] = {
            {DNNL_ARG_SRC, &d.x, x}, {DNNL_ARG_BIAS, bias ? &d.bias : NULL, bias}, {DNNL_ARG_DST, &d.y, y}};
        const WeightBinding of_weight = {{DNNL_ARG_WEIGHTS, &d.stored, weight}, dnnl_query_weights_md, false};
        status = dnn_primitive_new(primitive, engine, d.forward, bindings, 3, &of_weight, error);
    }
    (void)dnnl_primitive_desc_destroy(d.forward);
    return status;
}

FshStatus dnn_linear_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                       const void *dy, const float *weight, void *dx, FshError *error)
{
    LinearDescriptions d;
    dnnl_inner_product_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_linear(engine, linear, false, &d, error)) ||
        (status = DNN_CHECK(dnnl_inner_product_backward_data_desc_init(&operation, &d.x, &d.weight, &d.y))) ||
        (status = DNN_CHECK(dnnl_primitive_desc_create(&description, &operation, engine->attributes,
                                                       engine->engine, d.forward))))
        goto done;
    const Binding bindings[] = {{DNNL_ARG_DIFF_DST, &d.y, dy}, {DNNL_ARG_DIFF_SRC, &d.x, dx}};
    const WeightBinding of_weight = {{DNNL_ARG_WEIGHTS, &d.stored, weight}, dnnl_query_weights_md, false};
    status = dnn_primitive_new(primitive, engine, description, bindings, 2, &of_weight, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(d.forward);
    return status;
}

FshStatus dnn_linear_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                         const void *dy, const void *x, float *dweight, float *dbias,
                                         FshError *error)
{
    LinearDescriptions d;
    dnnl_memory_desc_t gradient; /* f32 whatever the type of the weight that the product reads */
    dnnl_inner_product_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = describe_linear(engine, linear, dbias != NULL, &d, error)))
        goto done;
    gradient = linear->weights ? d.weight : d.stored;
    if ((status = DNN_CHECK(dnnl_inner_product_backward_weights_desc_init(&operation, &d.x, &gradient,
                                                                          dbias ? &d.bias : NULL, &d.y))) ||
        (status = DNN_CHECK(dnnl_primitive_desc_create(&description, &operation, engine->attributes,
                                                       engine->engine, d.forward))))
        goto done;
    const Binding bindings[] = {{DNNL_ARG_DIFF_DST, &d.y, dy},
                                {DNNL_ARG_SRC, &d.x, x},
                                {DNNL_ARG_DIFF_BIAS, dbias ? &d.bias : NULL, dbias}};
    const WeightBinding of_weight = {
        {DNNL_ARG_DIFF_WEIGHTS, &d.stored, dweight}, dnnl_query_diff_weights_md, true};
    status = dnn_primitive_new(primitive, engine, description, bindings, 3, &of_weight, error);
done:
    (void)dnnl_primitive_desc_destroy(description);
    (void)dnnl_primitive_desc_destroy(d.forward);
    return status;
}

FshStatus dnn_product_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnProduct *product,
                          FshError *error)
{
    const dnnl_dims_t a_shape = {product->rows, product->inner}, b_shape = {product->inner, product->columns};
    const dnnl_dims_t c_shape = {product->rows, product->columns};
    const dnnl_format_tag_t a_tag = product->a_by_rows ? dnnl_ab : dnnl_ba,
                            b_tag = product->b_by_columns ? dnnl_ba : dnnl_ab;
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    FshStatus status;
    *primitive = NULL;
    if ((status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&a, 2, a_shape, dnn_type(product->type), a_tag))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&b, 2, b_shape, dnn_type(product->type), b_tag))) ||
        (status = DNN_CHECK(dnnl_memory_desc_init_by_tag(&c, 2, c_shape, dnnl_f32, dnnl_ab))) ||
        (status = DNN_CHECK(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c))) ||
        (status = DNN_CHECK(
             dnnl_primitive_desc_create(&description, &operation, engine->attributes, engine->engine, NULL))))
        return status;
    const Binding bindings[] = {
        {DNNL_ARG_SRC, &a, NULL}, {DNNL_ARG_WEIGHTS, &b, NULL}, {DNNL_ARG_DST, &c, NULL}};
    status = dnn_primitive_new(primitive, engine, description, bindings, 3, NULL, error);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

FshStatus dnn_gemm(const DnnGemm *gemm, const float *a, const float *b, float *c, FshError *error)
{
    return DNN_CHECK(dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', gemm->rows,
                                gemm->columns, gemm->inner, gemm->factor, a, gemm->pitch_a, b, gemm->pitch_b,
                                gemm->adds ? 1.0F : 0.0F, c, gemm->pitch_c));
}
