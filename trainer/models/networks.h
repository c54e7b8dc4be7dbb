/* networks.h - the builder functions behind the rows of models.c; Model.build in models.h says what each
 * does. */
#ifndef FSHARD_TRAINER_MODELS_NETWORKS_H
#define FSHARD_TRAINER_MODELS_NETWORKS_H

#include "trainer/models/models.h"

/* The net of suiyizhao/Pytorch-speedup (src/train.py): eight times reflection pad 1, convolution 3x3, batch
 * norm, leaky ReLU 0.2; channels 3, 3, 8, 8, 16, 16, 32, 32; strides 2, 1, 2, 1, 2, 1, 2, 1; then a linear
 * layer. Names and initialisation are the source's: one nn.Sequential named "model", so the convolutions are
 * "model.1", "model.5", …, the norms "model.2", "model.6", …, and the linear layer "model.33". Images of at
 * least 17 pixels; 128 features before the linear layer from 17 to 32 pixels. */
TensorId conv8_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* torchvision's resnet18, names and initialisation: stem 7x7/2 and max pool 3x3/2, four stages of two basic
 * blocks with 64, 128, 256, 512 channels, global average pool, "fc". */
TensorId resnet18_build(Graph *graph, TensorId x, const ModelSpec *spec);

#endif
