/* ops.h - the functions that rows of the op table name, by family; see OpRow in graph_internal.h for what
 * each does. */
#ifndef FSHARD_TRAINER_GRAPH_OPS_H
#define FSHARD_TRAINER_GRAPH_OPS_H

#include "trainer/graph/graph_internal.h"

/* Windows of `kernel` at every `stride` along an axis of `in` pixels padded on both ends; 0 where none fits.
 */
int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t padding);

/* op_convolution.c: conv2d, linear */
void conv2d_infer(Graph *graph, Node *node);
void conv2d_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
int64_t conv2d_flops(const Graph *graph, const Node *node);
void linear_infer(Graph *graph, Node *node);
void linear_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
int64_t linear_flops(const Graph *graph, const Node *node);

/* op_norm.c: normalize, batch norm */
void normalize_infer(Graph *graph, Node *node);
void batch_norm_infer(Graph *graph, Node *node);
void batch_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient);

/* op_pointwise.c: cast, ReLU, add, flatten */
void cast_infer(Graph *graph, Node *node);
void cast_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void same_shape_infer(Graph *graph, Node *node);
void relu_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void add_infer(Graph *graph, Node *node);
void add_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void flatten_infer(Graph *graph, Node *node);
void flatten_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
/* One pixel: [N, 1, 1, C] and [N, C] are the same bytes. */
bool flatten_is_a_view(const Graph *graph, const Node *node);

/* op_pool.c: pools, reflection pad */
void max_pool_infer(Graph *graph, Node *node);
void max_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void avg_pool_infer(Graph *graph, Node *node);
void avg_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void global_avg_pool_infer(Graph *graph, Node *node);
void global_avg_pool_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void reflection_pad_infer(Graph *graph, Node *node);
void reflection_pad_differentiate(Graph *graph, const Node *node, TensorId output_gradient);

/* op_box.c: zero pad, crop, concat, pixel shuffle */
void box_infer(Graph *graph, Node *node);
void zero_pad_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void crop_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
/* The gradient of input k, an image whose channels add to the first of the result's. */
void crop_gradient(Graph *graph, const Node *node, int k, TensorId output_gradient);
void concat_infer(Graph *graph, Node *node);
void concat_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void pixel_shuffle_infer(Graph *graph, Node *node);
void pixel_shuffle_differentiate(Graph *graph, const Node *node, TensorId output_gradient);

/* op_channel.c: scale, channel scale, channel multiply, gate, layer norm */
void scale_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void channel_scale_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void channel_multiply_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void gate_infer(Graph *graph, Node *node);
void gate_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void layer_norm_infer(Graph *graph, Node *node);
void layer_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient);

/* op_loss.c: softmax and binary cross-entropy; losses of images */
void class_loss_infer(Graph *graph, Node *node);
void class_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient);
void pixel_loss_infer(Graph *graph, Node *node);
void pixel_loss_differentiate(Graph *graph, const Node *node, TensorId output_gradient);

/* op_optimizer.c: the update */
void update_infer(Graph *graph, Node *node);

#endif
