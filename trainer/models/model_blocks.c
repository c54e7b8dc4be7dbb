#include "trainer/models/networks.h"

#include <stdio.h>

const char *model_join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix)
{
    (void)snprintf(name, GRAPH_NAME_MAX, "%.48s.%.40s", prefix, suffix);
    return name;
}

TensorId model_conv_norm_relu(Graph *graph, const char *conv_name, const char *norm_name, TensorId x,
                              const Conv2d *conv, bool training)
{
    x = graph_conv2d(graph, conv_name, x, conv);
    x = graph_batch_norm(graph, norm_name, x, &(BatchNorm){.training = training});
    return graph_relu(graph, x);
}

const ModelOption model_width = {.row = {.name = "width",
                                         .kind = OPTION_INTEGER,
                                         .argument = "N",
                                         .maximum = 1024,
                                         .help = "unet, nafnet: channels of the first level; 0: 32"}};
