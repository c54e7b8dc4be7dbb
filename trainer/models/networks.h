/* networks.h - shared by the networks' files. */
#ifndef FSHARD_TRAINER_MODELS_NETWORKS_H
#define FSHARD_TRAINER_MODELS_NETWORKS_H

#include "trainer/models/models.h"

/* Writes PREFIX.SUFFIX to name and returns it. */
const char *model_join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix);
/* Adds a convolution, a batch norm and a ReLU. */
TensorId model_conv_norm_relu(Graph *graph, const char *conv_name, const char *norm_name, TensorId x,
                              const Conv2d *conv, bool training);

/* --width: channels of the first level. */
extern const ModelOption model_width;

#endif
