/* onednn.h - the only door to oneDNN: convolution and matrix product, and the layouts in which it likes its
 * weights.
 *
 * Everything oneDNN is in onednn*.c: 2.x (Debian 12's 2.6.3) describes operations by op descriptors, 3.x does
 * not, and nothing outside of that file should know. Activations are plain NHWC and NC everywhere; only
 * convolution weights have a layout of oneDNN's own choice, the same for forward pass and weight gradient, so
 * that neither converts.
 *
 * NHWC, because own kernels are then loops over channels, and it costs little: resnet18 at 64 px, batch 64, 2
 * cores, forward + both gradients 166 ms, against 158 ms where oneDNN chooses blocked activations too
 * (docs/measurements).
 *
 * Types: activations and their gradients are f32 or bf16 (DataType of the convolution or matrices), weights,
 * biases and their gradients f32 always. A product of bf16 reads a copy of its weight in scratch, rounded and
 * laid out as oneDNN likes it before each run: forward pass and data gradient want two different layouts
 * there, and each is used once in a step.
 *
 * Threads: one thread at a time on an engine and its primitives; oneDNN's own threads are those of OpenMP.
 * Nothing here allocates tensors after *_new: intermediate memory is the caller's scratch. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_ONEDNN_H
#define FSHARD_TRAINER_BACKEND_CPU_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/graph/graph.h"

typedef struct DnnEngine DnnEngine;
typedef struct DnnLayout DnnLayout;
typedef struct DnnPrimitive DnnPrimitive;

FshStatus dnn_engine_new(DnnEngine **engine, FshError *error);
void dnn_engine_free(DnnEngine **engine);
/* Writes "oneDNN 2.6.3, avx512_core" to buffer. */
void dnn_engine_describe(char *buffer, uint64_t buffer_bytes);

/* Returns FSH_ERR_UNSUPPORTED where oneDNN cannot compute with activations of this type on this processor;
 * the message says what to do. */
FshStatus dnn_check_type(DataType type, FshError *error);

typedef struct DnnConvolution {
    DataType type; /* of activations */
    int64_t batch;
    int64_t in_height, in_width, in_channels;
    int64_t out_height, out_width, out_channels;
    int64_t kernel, stride, padding;
    int64_t groups; /* at least 1 */
    bool relu;      /* forward: an activation is part of it */
    float slope;    /* of the activation, where its argument is not above 0 */
} DnnConvolution;

/* Makes a plain row-major layout: OIHW, matrices, vectors; of a convolution in groups [groups, O / groups, I
 * / groups, H, W]. */
FshStatus dnn_layout_plain(DnnLayout **layout, int rank, const int64_t *shape, FshError *error);
/* Makes the layout of a plain one turned around: its first dimensions, `lead` of them, lie innermost, so that
 * a matrix of their rows lies transposed. */
FshStatus dnn_layout_turned(DnnLayout **layout, const DnnLayout *plain, int lead, FshError *error);
/* Makes the layout of a convolution's f32 weights: that of the first forward implementation whose layout the
 * weight gradient is fast in, too; for bf16, whose forward pass converts anyway, the weight gradient's. */
FshStatus dnn_layout_convolution(DnnLayout **layout, DnnEngine *engine, const DnnConvolution *convolution,
                                 FshError *error);
/* Makes the layout of a plain weight in groups of one channel with each tap's channels side by side. */
FshStatus dnn_layout_by_taps(DnnLayout **layout, const DnnLayout *plain, FshError *error);
/* Returns whether it is such a layout. */
bool dnn_layout_is_by_taps(const DnnLayout *layout);
void dnn_layout_free(DnnLayout **layout);
uint64_t dnn_layout_bytes(const DnnLayout *layout);
int dnn_layout_rank(const DnnLayout *layout); /* its dimensions */
/* Converts from one layout to another; padding that the target layout has becomes zero. */
FshStatus dnn_layout_convert(DnnEngine *engine, const DnnLayout *from_layout, const float *from,
                             const DnnLayout *to_layout, float *to, FshError *error);

/* Each of these makes a primitive that is bound to the given memory (activations NHWC; weights in the layout
 * of `weights`, bias plain or NULL). */

/* Makes y = activation(x * weight + bias). */
FshStatus dnn_convolution_forward_new(DnnPrimitive **primitive, DnnEngine *engine,
                                      const DnnConvolution *convolution, const DnnLayout *weights,
                                      const void *x, const float *weight, const float *bias, void *y,
                                      FshError *error);
/* Makes dx from dy. */
FshStatus dnn_convolution_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine,
                                            const DnnConvolution *convolution, const DnnLayout *weights,
                                            const void *dy, const float *weight, void *dx, FshError *error);
/* Makes dweight and dbias from dy and x. */
FshStatus dnn_convolution_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine,
                                              const DnnConvolution *convolution, const DnnLayout *weights,
                                              const void *dy, const void *x, float *dweight, float *dbias,
                                              FshError *error);

/* Matrices: x [batch, in], weight [out, in], y [batch, out], all plain but a weight that says otherwise. */
typedef struct DnnLinear {
    DataType type; /* of x and y */
    int64_t batch, in, out;
    /* Of a convolution of 1 x 1 in f32 whose weight this is, borrowed until the maker returns: it, or its
     * gradient, is converted in scratch. NULL: plain. */
    const DnnLayout *weights;
} DnnLinear;

FshStatus dnn_linear_forward_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                 const void *x, const float *weight, const float *bias, void *y,
                                 FshError *error);
FshStatus dnn_linear_backward_data_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                       const void *dy, const float *weight, void *dx, FshError *error);
FshStatus dnn_linear_backward_weight_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLinear *linear,
                                         const void *dy, const void *x, float *dweight, float *dbias,
                                         FshError *error);

/* A product c [rows, columns] = transpose(a) * b, with a [inner, rows] and b [inner, columns], all plain. It
 * is bound by dnn_primitive_bind, in the order a, b, c. */
typedef struct DnnProduct {
    DataType type; /* of a and b; c is f32 */
    int64_t inner, rows, columns;
    bool a_by_rows;    /* a lies as [rows, inner] */
    bool b_by_columns; /* b lies as [columns, inner] */
} DnnProduct;
FshStatus dnn_product_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnProduct *product,
                          FshError *error);

/* Matrices of floats that lie row by row, each row `pitch` floats behind the last: c [rows, columns] =
 * factor * a b, with a [rows, inner] and b [inner, columns], or, transposed, [inner, rows] and [columns,
 * inner]; with `adds` that is added to c. */
typedef struct DnnGemm {
    int64_t rows, columns, inner;
    bool transpose_a, transpose_b, adds;
    float factor;
    int64_t pitch_a, pitch_b, pitch_c;
} DnnGemm;
/* Computes c at once, in the part of the machine's threads that the caller has: on its own alone inside of
 * cpu_parallel. */
FshStatus dnn_gemm(const DnnGemm *gemm, const float *a, const float *b, float *c, FshError *error);

/* Makes a conversion from one layout to another, as dnn_layout_convert does. It is bound by
 * dnn_primitive_bind, in the order from, to. */
FshStatus dnn_layout_conversion_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnLayout *from,
                                    const DnnLayout *to, FshError *error);

/* Makes a conversion of a convolution's weights from [kernel, kernel, in, out] to `weights`. It is bound by
 * dnn_primitive_bind, in the order from, to. */
FshStatus dnn_conversion_new(DnnPrimitive **primitive, DnnEngine *engine, const DnnConvolution *convolution,
                             const DnnLayout *weights, FshError *error);

/* Binds the primitive to its arguments, in the order that its maker names. */
FshStatus dnn_primitive_bind(DnnPrimitive *primitive, void *const *memories, int count, FshError *error);

void dnn_primitive_free(DnnPrimitive **primitive);
/* Returns the bytes of scratch memory that a run needs. It may be shared with what does not run at the same
 * time. */
uint64_t dnn_primitive_scratch_bytes(const DnnPrimitive *primitive);
/* Sets the scratch memory, 64-byte aligned, before the first run. */
FshStatus dnn_primitive_set_scratch(DnnPrimitive *primitive, void *scratch, FshError *error);
FshStatus dnn_primitive_run(DnnPrimitive *primitive, FshError *error);

#endif
