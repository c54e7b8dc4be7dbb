/* networks.h - shared by the networks' files. */
#ifndef FSHARD_TRAINER_MODELS_NETWORKS_H
#define FSHARD_TRAINER_MODELS_NETWORKS_H

#include "trainer/models/models.h"

/* Writes PREFIX.SUFFIX to name and returns it. */
const char *model_join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix);
/* Adds a convolution, a batch norm and a ReLU. */
TensorId model_conv_norm_relu(Graph *graph, const char *conv_name, const char *norm_name, TensorId x,
                              const Conv2d *conv, bool training);

/* The activations that networks may be built with. */
typedef enum ModelActivation { MODEL_RELU, MODEL_SILU, MODEL_GELU, MODEL_MISH } ModelActivation;
TensorId model_activate(Graph *graph, ModelActivation activation, TensorId x);
/* Adds a linear layer to `reduced` channels, the activation, one back, and multiplies the channels of x by
 * the sigmoids: squeeze and excitation (Hu et al. 2017). Both layers have 1x1 convolutions' weights, and
 * biases. */
TensorId model_squeeze_excite(Graph *graph, const char *first, const char *second, TensorId x,
                              int64_t reduced, ModelActivation activation);
/* Halves an image by the filter [1 2 1] in both directions, reflected at the edges (Zhang 2019): timm's
 * BlurPool2d. It is two averages of 2x2. */
TensorId model_blur_pool(Graph *graph, TensorId x);
/* Blurs an image by the same filter, with zeros beyond the edges: what a strided convolution sees in FFCV's
 * ImageNet and Composer's BlurPool. */
TensorId model_blur(Graph *graph, TensorId x);
/* Adds a max pool 3x3/2, or 3x3/1 and a blur pool. */
TensorId model_stem_pool(Graph *graph, TensorId x, bool blur);
/* Returns the maximum of each channel over the image, [N, C]; if it is not square, the mean of the maxima
 * over squares. */
TensorId model_image_maximum(Graph *graph, TensorId x);

/* --width: channels of the first level; --drop-path: stochastic depth; --act-layer; --aa-layer: blur
 * pools. */
extern const ModelOption model_width, model_drop_path, model_act_layer, model_aa_layer;
/* Sets *activation_ret to that of --act-layer, ReLU by default. Returns false for an unknown name: the
 * graph has failed then. */
bool model_activation(Graph *graph, const ModelSpec *spec, ModelActivation *activation_ret);
/* Sets *is_second_ret to whether a text option has the second of the two values that its argument lists,
 * "plain|deep"; fallback NULL means the first. Returns false for another value: the graph has failed then. */
bool model_is_chosen(Graph *graph, const ModelSpec *spec, const ModelOption *option, const char *fallback,
                     bool *is_second_ret);

#endif
