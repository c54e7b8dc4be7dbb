#include "trainer/models/models.h"

#include <stdio.h>
#include <string.h>

#include "common/options_value.h"
#include "trainer/graph/muon.h"
#include "trainer/models/networks.h"

/* The networks of each file of this folder; each list ends with one without a name. */
extern const Model conv8_models[], toynet_models[], resnet9_models[], resnet_models[], xresnet_models[],
    pyramidnet_models[], airbench_models[], convnext_models[], vit_models[], unet_models[], nafnet_models[];
static const Model *const files[] = {conv8_models,   toynet_models,     resnet9_models,  resnet_models,
                                     xresnet_models, pyramidnet_models, airbench_models, convnext_models,
                                     vit_models,     unet_models,       nafnet_models};

const Model *model_at(size_t index)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        for (const Model *model = files[i]; model->name; model++)
            if (index-- == 0)
                return model;
    return NULL;
}

const Model *model_find(const char *name)
{
    const Model *model = NULL;
    size_t i = 0;
    while ((model = model_at(i)) && strcmp(model->name, name) != 0)
        i++;
    return model;
}

static const char *name_at(size_t i)
{
    const Model *model = model_at(i);
    return model ? model->name : NULL;
}

const char *model_names_near(const char *name, char *buffer, size_t buffer_bytes)
{
    return options_names_near(name, name_at, buffer, buffer_bytes);
}

/* Refuses what the network does not take: a size, or an option of another network. */
static FshStatus check_spec(const Model *model, const ModelSpec *spec, FshError *error)
{
    const bool classes = model->task != TASK_RESTORATION;
    if (spec->batch < 1 || spec->height < 1 || spec->width < 1 || (classes && spec->classes < 1) ||
        (spec->channels != 1 && spec->channels != 3))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: a batch of %lld images of %lld x %lld x %lld and %lld classes; all must be at least "
            "1, and channels 1 or 3",
            model->name, (long long)spec->batch, (long long)spec->height, (long long)spec->width,
            (long long)spec->channels, (long long)spec->classes);
    return model_check_options(model, &spec->options, error);
}

/* Builds a classifier's network from its image, up to its logits in f32, whatever type it computes in. */
static TensorId build_logits(Graph *graph, const Model *model, const ModelSpec *spec,
                             const ModelRecipe *recipe, TensorId image)
{
    graph_set_compute_type(graph, recipe->compute_type);
    TensorId logits =
        model->build(graph, graph_normalize(graph, image, recipe->mean, recipe->deviation), spec);
    return graph_cast(graph, logits, DATA_F32);
}

/* Returns the input of weights of the classes; TENSOR_NONE unless there are some. */
static TensorId weights_input(Graph *graph, const ModelSpec *spec, const char *name, bool weighs)
{
    return spec->training && weighs ? graph_input(graph, name, DATA_F32, 1, &spec->classes) : TENSOR_NONE;
}

/* Builds the graph of a network whose samples have rows of targets: several labels, or numbers. */
static TensorId build_rows(Graph *graph, const Model *model, const ModelSpec *spec, const ModelRecipe *recipe,
                           TensorId image)
{
    const RowTargetsOf targets = {
        .targets = graph_input(graph, "targets", DATA_F32, 2, (int64_t[]){spec->batch, spec->classes}),
        .valid = graph_input(graph, "valid", DATA_F32, 1, &spec->batch),
        .weights = weights_input(graph, spec, "class_weights", recipe->weighs_classes),
        .positive_weights = weights_input(graph, spec, "positive_weights", recipe->weighs_positives),
        .loss = {.kind = recipe->loss,
                 .smoothing = spec->training ? recipe->label_smoothing : 0,
                 .threshold = recipe->bce_threshold,
                 .binarizes = spec->training && recipe->bce_binarizes,
                 .sums = recipe->bce_sums}};
    TensorId logits = build_logits(graph, model, spec, recipe, image);
    TensorId loss = graph_target_loss(graph, logits, &targets);
    graph_keep(graph, logits, "logits");
    return loss;
}

static TensorId build_classification(Graph *graph, const Model *model, const ModelSpec *spec,
                                     const ModelRecipe *recipe, TensorId image)
{
    const bool mixes = spec->training && recipe->mixes;
    ClassTargetsOf targets = {.smoothing = spec->training ? recipe->label_smoothing : 0,
                              .threshold = recipe->bce_threshold,
                              .binarizes = spec->training && recipe->bce_binarizes,
                              .sums = recipe->bce_sums};
    targets.labels = graph_input(graph, "label", DATA_I64, 1, &spec->batch);
    targets.labels_mixed = mixes ? graph_input(graph, "label_mixed", DATA_I64, 1, &spec->batch) : TENSOR_NONE;
    targets.mix = mixes ? graph_input(graph, "mix", DATA_F32, 1, &spec->batch) : TENSOR_NONE;
    targets.weights = weights_input(graph, spec, "class_weights", recipe->weighs_classes);
    TensorId logits = build_logits(graph, model, spec, recipe, image);
    TensorId loss = graph_class_loss(graph, recipe->loss, logits, &targets);
    graph_keep(graph, logits, "logits");
    return loss;
}

/* Builds the graph of a restorer. The target stays float32: differences from it may be a few grey levels. */
static TensorId build_restoration(Graph *graph, const Model *model, const ModelSpec *spec,
                                  const ModelRecipe *recipe, TensorId image)
{
    TensorId pixels = graph_input(graph, "target", DATA_U8, 4,
                                  (int64_t[]){spec->batch, spec->height, spec->width, spec->channels});
    TensorId valid = graph_input(graph, "valid", DATA_F32, 1, &spec->batch);
    TensorId target = graph_normalize(graph, pixels, recipe->mean, recipe->deviation);
    graph_set_compute_type(graph, recipe->compute_type);
    /* The input stays float32 too: what the network adds to it may be less than 16 bits resolve. */
    TensorId pixels_in = graph_normalize_to(graph, image, recipe->mean, recipe->deviation, DATA_F32);
    TensorId restored = model->build(graph, pixels_in, spec);
    restored = graph_cast(graph, restored, DATA_F32);
    TensorId loss = graph_pixel_loss(graph, restored, target, valid, recipe->loss);
    graph_keep(graph, restored, "restored");
    graph_keep(graph, graph_pixel_loss_error(graph, loss), "error");
    return loss;
}

/* Builds the graph of a segmentation. */
static TensorId build_segmentation(Graph *graph, const Model *model, const ModelSpec *spec,
                                   const ModelRecipe *recipe, TensorId image)
{
    TensorId mask =
        graph_input(graph, "target", DATA_U8, 4, (int64_t[]){spec->batch, spec->height, spec->width, 1});
    TensorId valid = graph_input(graph, "valid", DATA_F32, 1, &spec->batch);
    TensorId logits = build_logits(graph, model, spec, recipe, image);
    TensorId loss = graph_mask_loss(graph, logits, mask, valid, spec->training ? recipe->label_smoothing : 0);
    graph_keep(graph, graph_mask_loss_classes(graph, loss), "classes");
    graph_keep(graph, graph_mask_loss_sums(graph, loss), "sums");
    if (recipe->keeps_logits)
        graph_keep(graph, logits, "logits");
    return loss;
}

FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph_ret,
                      FshError *error)
{
    *graph_ret = NULL;
    FshStatus status = check_spec(model, spec, error);
    if (status)
        return status;
    Graph *graph = graph_new();
    if (!graph)
        return graph_check(NULL, error);
    graph_set_sync_norms(graph, spec->training && recipe->sync_norms);
    graph_set_norm_sample(graph, spec->training ? recipe->norm_sample : 0);
    TensorId image = graph_input(graph, "image", DATA_U8, 4,
                                 (int64_t[]){spec->batch, spec->height, spec->width, spec->channels});
    TensorId loss = model->task == TASK_RESTORATION    ? build_restoration(graph, model, spec, recipe, image)
                    : model->task == TASK_SEGMENTATION ? build_segmentation(graph, model, spec, recipe, image)
                    : recipe->rows                     ? build_rows(graph, model, spec, recipe, image)
                                   : build_classification(graph, model, spec, recipe, image);
    graph_keep(graph, loss, "loss");
    if (spec->training)
        parameter_rules_apply(graph, &recipe->rules, model->blocks);
    const unsigned fusions = recipe->fusions ? recipe->fusions : FUSE_ALL;
    graph_fuse(graph, fusions);
    if (spec->training) {
        Optimizer optimizer = recipe->optimizer;
        optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
        if (optimizer.cycles_momentum)
            optimizer.momentum_of_run = graph_input(graph, "momentum", DATA_F32, 1, (int64_t[]){1});
        if (optimizer.loss_scaling)
            graph_loss_scale(graph);
        graph_differentiate(graph, loss);
        graph_fuse_backward(graph, fusions);
        graph_update(graph, &optimizer);
        if (optimizer.kind == OPTIMIZER_MUON && muon_parameter_count(graph) == 0)
            graph_refuse(graph, "muon moves the matrices of hidden layers, and it trains none: take --opt %s",
                         optimizer_names[muon_rest_kind(&optimizer)]);
    }
    status = graph_check(graph, error);
    if (status) {
        graph_free(&graph);
        return fsh_error_prepend(error, "%s", model->name);
    }
    *graph_ret = graph;
    return FSH_OK;
}
