#include "trainer/models/models.h"

#include <stdio.h>
#include <string.h>

#include "trainer/models/networks.h"

const Model models[] = {
    {"conv8", "eight 3x3 convolutions with reflection padding (suiyizhao/Pytorch-speedup), for small images",
     conv8_build},
    {"resnet18", "ResNet-18 (He et al. 2015, torchvision's)", resnet18_build},
    {NULL, NULL, NULL},
};

const Model *model_find(const char *name)
{
    for (const Model *model = models; model->name; model++)
        if (strcmp(model->name, name) == 0)
            return model;
    return NULL;
}

const char *model_names(char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    if (buffer_bytes)
        buffer[0] = '\0';
    for (const Model *model = models; model->name && used < buffer_bytes; model++) {
        int wrote =
            snprintf(buffer + used, buffer_bytes - used, "%s%s", model == models ? "" : ", ", model->name);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return buffer;
}

FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph_ret,
                      FshError *error)
{
    *graph_ret = NULL;
    if (spec->batch < 1 || spec->height < 1 || spec->width < 1 || spec->classes < 1 ||
        (spec->channels != 1 && spec->channels != 3))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: a batch of %lld images of %lld x %lld x %lld and %lld classes; all must be at least "
            "1, and channels 1 or 3",
            model->name, (long long)spec->batch, (long long)spec->height, (long long)spec->width,
            (long long)spec->channels, (long long)spec->classes);
    Graph *graph = graph_new();
    if (!graph)
        return graph_check(NULL, error);
    TensorId image = graph_input(graph, "image", DATA_U8, 4,
                                 (int64_t[]){spec->batch, spec->height, spec->width, spec->channels});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, &spec->batch);
    TensorId logits =
        model->build(graph, graph_normalize(graph, image, recipe->mean, recipe->deviation), spec);
    TensorId loss =
        graph_softmax_cross_entropy(graph, logits, label, spec->training ? recipe->label_smoothing : 0);
    graph_keep(graph, logits, "logits");
    graph_keep(graph, loss, "loss");
    graph_fuse(graph, FUSE_ALL);
    if (spec->training) {
        Optimizer optimizer = recipe->optimizer;
        optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
        if (optimizer.loss_scaling)
            graph_loss_scale(graph);
        graph_differentiate(graph, loss);
        graph_update(graph, &optimizer);
    }
    FshStatus status = graph_check(graph, error);
    if (status) {
        graph_free(&graph);
        return fsh_error_prepend(error, "%s", model->name);
    }
    *graph_ret = graph;
    return FSH_OK;
}
