/* networks.h - the builder functions behind the rows of models.c; Model.build in models.h says what each
 * does. Names and initialisation are those of the source. */
#ifndef FSHARD_TRAINER_MODELS_NETWORKS_H
#define FSHARD_TRAINER_MODELS_NETWORKS_H

#include "trainer/models/models.h"

/* PREFIX.SUFFIX into name. Returns it. */
const char *model_join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix);
/* Convolution, batch norm, ReLU. */
TensorId model_conv_norm_relu(Graph *graph, const char *conv_name, const char *norm_name, TensorId x,
                              const Conv2d *conv, bool training);

/* The net of suiyizhao/Pytorch-speedup (src/train.py): eight times reflection pad 1, convolution 3x3, batch
 * norm, leaky ReLU 0.2; channels 3, 3, 8, 8, 16, 16, 32, 32; strides 2, 1, 2, 1, 2, 1, 2, 1; then a linear
 * layer. One nn.Sequential named "model", so the convolutions are "model.1", "model.5", …, the norms
 * "model.2", "model.6", …, and the linear layer "model.33". Images of at least 17 pixels; 128 features before
 * the linear layer from 17 to 32 pixels. */
TensorId conv8_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* torchvision's, v1.5 (the stride of a bottleneck is in its 3x3): stem 7x7/2 and max pool 3x3/2, four stages
 * of basic blocks (18, 34) or bottlenecks (50, 101), global average pool, "fc". */
TensorId resnet18_build(Graph *graph, TensorId x, const ModelSpec *spec);
TensorId resnet34_build(Graph *graph, TensorId x, const ModelSpec *spec);
TensorId resnet50_build(Graph *graph, TensorId x, const ModelSpec *spec);
TensorId resnet101_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* PyramidNet (Han et al. 2016) as dnddnjs/pytorch-multigpu has it for CIFAR-10: 3x3 to 16 channels and batch
 * norm, then three stages of (depth - 2) / 6 - 1 blocks (17 of depth 110: one less than the paper's)
 * BN-conv-BN-ReLU-conv-BN, each with alpha / (3 * (depth - 2) / 6) channels more than the one before it; the
 * shortcut is padded with zeros and, where the stride is 2, average pooled. Height and width must be
 * multiples of 4. */
TensorId pyramidnet_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* The CIFAR-10 speed net of davidcpage/cifar10-fast (dawn.py): 3x3 convolutions with batch norm and ReLU of
 * 64, 128, 256, 512 channels, the last three max pooled, a residual pair after the second and the fourth; the
 * maximum over what is left of the image (4 x 4 of 32 x 32), a linear layer without bias, times 0.125. */
TensorId resnet9_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* Toy_Net of Lance0218/Pytorch-DistributedDataParallel-Training-Tricks: two pairs of unpadded 3x3
 * convolutions with batch norm and ReLU (64, 128, max pool, 256, 512, max pool), linear to 512, batch norm,
 * ReLU, linear. Images of at least 16 pixels. */
TensorId toynet_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* A U-Net (Ronneberger et al. 2015) that adds to its input: four levels of pairs of padded 3x3 convolutions
 * with leaky ReLU 0.2, channels doubled by 2x2/2 convolutions down and halved by 1x1 convolutions with pixel
 * shuffle up, the level's own result beside what comes up. Its last convolution begins as zero, so that
 * training starts at the input itself. Any size: padded with zeros to a multiple of 8, and cropped. */
TensorId unet_build(Graph *graph, TensorId x, const ModelSpec *spec);

/* NAFNet (Chen et al. 2022, megvii-research/NAFNet), its keys and arithmetic: published weights load. Any
 * size, as its check_image_size has it. */
TensorId nafnet_build(Graph *graph, TensorId x, const ModelSpec *spec);

#endif
