/* Patterns: tensors and operations as cuDNN's descriptors. What becomes of them: cudnn_plan.c. */
#include "trainer/backend/cuda/device/cudnn_graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/device/cudnn_internal.h"

FshStatus cudnn_check(cudnnStatus_t code, const char *call, FshError *error)
{
    if (code == CUDNN_STATUS_SUCCESS)
        return FSH_OK;
    char detail[512] = "";
    cudnnGetLastErrorString(detail, sizeof detail);
    FshStatus status = code == CUDNN_STATUS_ALLOC_FAILED ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "%s: %s%s%s", call, cudnnGetErrorString(code), detail[0] ? ": " : "",
                         detail);
}

FshStatus cudnn_plan_new(CudnnPlan **plan, const CudnnDevice *device, FshError *error)
{
    *plan = calloc(1, sizeof **plan);
    if (!*plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cuDNN plan");
    (*plan)->device = device;
    return FSH_OK;
}

void cudnn_plan_free(CudnnPlan **plan)
{
    if (!*plan)
        return;
    for (int i = 0; i < (*plan)->candidate_count; i++)
        (void)cudnnBackendDestroyDescriptor((*plan)->candidates[i].plan);
    for (size_t i = (*plan)->owned_count; i-- > 0;)
        (void)cudnnBackendDestroyDescriptor((*plan)->owned[i]);
    free((*plan)->owned);
    free(*plan);
    *plan = NULL;
}

void cudnn_plan_move(CudnnPlan *plan, const CudnnDevice *device)
{
    plan->device = device;
}

const char *cudnn_plan_text(const CudnnPlan *plan)
{
    return plan->text;
}

/* ---- descriptors: nothing happens after the first failure ---- */

void cudnn_note_failure(CudnnPlan *plan, cudnnStatus_t code, const char *call)
{
    if (!plan->failure.status)
        (void)cudnn_check(code, call, &plan->failure);
}

Descriptor cudnn_create(CudnnPlan *plan, cudnnBackendDescriptorType_t type, const char *type_name)
{
    if (plan->failure.status)
        return NULL;
    if (plan->owned_count == plan->owned_capacity) {
        size_t capacity = plan->owned_capacity ? 2 * plan->owned_capacity : 32;
        Descriptor *owned = realloc(plan->owned, capacity * sizeof *owned);
        if (!owned) {
            (void)fsh_error_set(&plan->failure, FSH_ERR_MEMORY, "no memory for a cuDNN descriptor");
            return NULL;
        }
        plan->owned = owned;
        plan->owned_capacity = capacity;
    }
    Descriptor descriptor = NULL;
    cudnn_note_failure(plan, cudnnBackendCreateDescriptor(type, &descriptor), type_name);
    if (descriptor)
        plan->owned[plan->owned_count++] = descriptor;
    return descriptor;
}

void cudnn_set(CudnnPlan *plan, Descriptor descriptor, cudnnBackendAttributeName_t name,
               const char *name_text, cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!plan->failure.status)
        cudnn_note_failure(plan, cudnnBackendSetAttribute(descriptor, name, type, count, values), name_text);
}

void cudnn_finalize(CudnnPlan *plan, Descriptor descriptor, const char *what)
{
    if (!plan->failure.status)
        cudnn_note_failure(plan, cudnnBackendFinalize(descriptor), what);
}

/* Adds to the line that tells patterns apart. */
static void write_down(CudnnPlan *plan, const char *format, ...) FSH_PRINTF(2, 3);
static void write_down(CudnnPlan *plan, const char *format, ...)
{
    if (plan->failure.status)
        return;
    va_list arguments;
    va_start(arguments, format);
    int wrote =
        vsnprintf(plan->text + plan->text_length, sizeof plan->text - plan->text_length, format, arguments);
    va_end(arguments);
    if (wrote < 0 || (size_t)wrote >= sizeof plan->text - plan->text_length)
        (void)fsh_error_set(&plan->failure, FSH_ERR_UNSUPPORTED, "a cuDNN pattern of more than %d letters",
                            CUDNN_TEXT_MAX);
    else
        plan->text_length += (size_t)wrote;
}

/* ---- tensors ---- */

static int add_tensor(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4], bool is_virtual)
{
    if (plan->tensor_count == CUDNN_TENSORS_MAX && !plan->failure.status)
        (void)fsh_error_set(&plan->failure, FSH_ERR_UNSUPPORTED, "a cuDNN pattern has at most %d tensors",
                            CUDNN_TENSORS_MAX);
    int64_t c = dimensions[1], h = dimensions[2], w = dimensions[3];
    const int64_t strides[4] = {h * w * c, 1, w * c, c};
    const int64_t alignment = 16, unique_id = plan->tensor_count + 1;
    Descriptor tensor = CREATE(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    SET(plan, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dimensions);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &unique_id);
    SET_INT64(plan, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    SET(plan, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    cudnn_finalize(plan, tensor, "finalize tensor");
    write_down(plan, "%s%d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "; ",
               is_virtual ? "inner " : "tensor ", (int)type, dimensions[0], c, h, w);
    if (plan->failure.status)
        return -1;
    plan->tensors[plan->tensor_count] = tensor;
    plan->is_virtual[plan->tensor_count] = is_virtual;
    return plan->tensor_count++;
}

int cudnn_plan_tensor(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4])
{
    return add_tensor(plan, type, dimensions, false);
}

int cudnn_plan_virtual(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4])
{
    return add_tensor(plan, type, dimensions, true);
}

/* ---- operations ---- */

/* Adds an operation to the plan. Returns NULL after a failure. */
static Descriptor add_operation(CudnnPlan *plan, cudnnBackendDescriptorType_t type, const char *type_name)
{
    if (plan->operation_count == CUDNN_OPERATIONS_MAX && !plan->failure.status)
        (void)fsh_error_set(&plan->failure, FSH_ERR_UNSUPPORTED, "a cuDNN pattern has at most %d operations",
                            CUDNN_OPERATIONS_MAX);
    Descriptor operation = cudnn_create(plan, type, type_name);
    if (operation)
        plan->operations[plan->operation_count++] = operation;
    return operation;
}

/* The names of the attributes of each convolution: the three operations differ in nothing else. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} convolution_operations[] = {
    [CONVOLUTION_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONVOLUTION_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONVOLUTION_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void cudnn_plan_convolution(CudnnPlan *plan, ConvolutionKind kind, int x, int w, int y,
                            const ConvolutionShape *shape)
{
    if (plan->failure.status)
        return;
    const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial_dimensions = 2, padding[2] = {shape->padding, shape->padding},
                  stride[2] = {shape->stride, shape->stride}, dilation[2] = {1, 1};
    Descriptor convolution = CREATE(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    SET(plan, convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
    SET(plan, convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &spatial_dimensions);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, padding);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, padding);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride);
    SET_INT64(plan, convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation);
    cudnn_finalize(plan, convolution, "finalize convolution");

    /* Float, as the compute type is: a double is taken without complaint, and some engines then read half of
     * it, which is 0. */
    const float alpha = 1, beta = 0;
    Descriptor operation = add_operation(plan, convolution_operations[kind].type, "convolution operation");
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].x, plan->tensors[x]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].w, plan->tensors[w]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].y, plan->tensors[y]);
    SET_DESCRIPTOR(plan, operation, convolution_operations[kind].convolution, convolution);
    SET(plan, operation, convolution_operations[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    SET(plan, operation, convolution_operations[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    cudnn_finalize(plan, operation, "finalize convolution operation");
    write_down(plan, "convolution %d of %d %d %d, stride %" PRId64 ", padding %" PRId64 "; ", (int)kind, x, w,
               y, shape->stride, shape->padding);
}

void cudnn_plan_statistics(CudnnPlan *plan, int x, int sum, int square_sum)
{
    if (plan->failure.status)
        return;
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
    Descriptor operation =
        add_operation(plan, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "statistics operation");
    SET(plan, operation, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    SET(plan, operation, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, plan->tensors[x]);
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, plan->tensors[sum]);
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, plan->tensors[square_sum]);
    cudnn_finalize(plan, operation, "finalize statistics operation");
    write_down(plan, "statistics %d %d %d; ", x, sum, square_sum);
}

/* Adds an operation on single values. b: -1 for operations of one tensor. */
static void add_pointwise(CudnnPlan *plan, cudnnPointwiseMode_t mode, int x, int b, float slope, int y)
{
    if (plan->failure.status)
        return;
    const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
    const double clip_slope = (double)slope;
    const cudnnNanPropagation_t nan_stays = CUDNN_PROPAGATE_NAN;
    Descriptor pointwise = CREATE(plan, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    SET(plan, pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    SET(plan, pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
    if (mode == CUDNN_POINTWISE_RELU_FWD) /* a network that has diverged must not go on with 0 */
        SET(plan, pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan_stays);
    if (slope != 0)
        SET(plan, pointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &clip_slope);
    cudnn_finalize(plan, pointwise, "finalize pointwise");
    Descriptor operation =
        add_operation(plan, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation");
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, plan->tensors[x]);
    if (b >= 0)
        SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, plan->tensors[b]);
    SET_DESCRIPTOR(plan, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, plan->tensors[y]);
    cudnn_finalize(plan, operation, "finalize pointwise operation");
    write_down(plan, "pointwise %d of %d %d to %d, slope %a%s; ", (int)mode, x, b, y, (double)slope,
               mode == CUDNN_POINTWISE_RELU_FWD ? ", NaN stays" : "");
}

void cudnn_plan_bias(CudnnPlan *plan, int x, int bias, int y)
{
    add_pointwise(plan, CUDNN_POINTWISE_ADD, x, bias, 0, y);
}

void cudnn_plan_relu(CudnnPlan *plan, int x, float slope, int y)
{
    add_pointwise(plan, CUDNN_POINTWISE_RELU_FWD, x, -1, slope, y);
}
