#include "trainer/inference/export_onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/json_text.h"
#include "common/program.h"
#include "trainer/checkpoint/state_file.h"
#include "trainer/onnx/onnx_network.h"
#include "trainer/session/describe.h"
#include "trainer/session/session_weights.h"

enum { COLOURS = 3, EDGE_MAX = 4096 /* as --val-crop-size */ };

typedef struct OnnxExport {
    const TrainOptions *options;
    const Model *model;
    ModelSpec spec;
    WeightsOrigin origin;
    Safetensors *weights;
    Graph *graph;
    OnnxWire wire;
    char input[160], output[128]; /* what goes in and comes out, for people */
} OnnxExport;

static bool restores(const OnnxExport *export)
{
    return export->model->task == TASK_RESTORATION;
}

/* Returns whether images of any size go in, as an answer for each pixel comes out. */
static bool takes_any_size(const OnnxExport *export)
{
    return export->model->task != TASK_CLASSIFICATION;
}

/* ---- the network ---- */

/* Decides the size of the images: any where pixels are the answer, else that of --val-crop-size or of the
 * weights. */
static FshStatus choose_size(OnnxExport *export, FshError *error)
{
    const int64_t given = export->options->image.val_crop_size;
    const int64_t named = export->origin.crop <= EDGE_MAX ? export->origin.crop : 0;
    const int64_t edge = takes_any_size(export) ? 1 : given ? given : named;
    export->spec.height = export->spec.width = edge;
    if (takes_any_size(export) && given)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--val-crop-size: %s takes images of any size; leave it out",
                             export->model->name);
    if (!edge)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: these weights do not say of which size their images are; give "
                             "--val-crop-size (most of torchvision and timm: 224)",
                             export->options->weights);
    return FSH_OK;
}

/* Sets network and shape to those of the weights. */
static FshStatus choose_network(OnnxExport *export, FshError *error)
{
    const TrainOptions *options = export->options;
    const WeightsOrigin *origin = &export->origin;
    uint64_t classes = 0;
    FshStatus status = session_weights_model(options, &export->origin, &export->model, error);
    if (!status)
        status = weights_class_count(options->weights, export->model, origin, &classes, error);
    if (status)
        return status;
    export->spec = (ModelSpec){.batch = 1,
                               .channels = origin->normalised ? origin->channels : COLOURS,
                               .classes = (int64_t)classes,
                               .options = options->network};
    if (export->model == origin->model)
        model_take_shape(&export->spec.options, &origin->options);
    return choose_size(export, error);
}

/* Builds the graph of evaluation, and checks that the weights are those of the network. */
static FshStatus build(OnnxExport *export, FshError *error)
{
    const char *path = export->options->weights;
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1},
                                .loss = restores(export) ? LOSS_L1 : LOSS_CROSS_ENTROPY,
                                .keeps_logits = true,
                                .fusions = FUSE_NONE};
    FshStatus status = model_graph(export->model, &export->spec, &recipe, &export->graph, error);
    if (!status)
        status = safetensors_open(&export->weights, path, error);
    if (!status)
        status = state_file_check(path, export->weights, export->graph, STATE_NETWORK, NULL, error);
    const Model *other = status == FSH_ERR_MISMATCH && !export->origin.model ? weights_recognise(path) : NULL;
    return other && other != export->model ? session_refuse_network(path, other, error) : status;
}

/* ---- the file ---- */

/* Reads a weight for the ONNX graph (OnnxRead). */
static FshStatus read_weight(void *context, const Tensor *tensor, float *values, FshError *error)
{
    const OnnxExport *export = context;
    return state_file_values(safetensors_find(export->weights, tensor->name), tensor, values, error);
}

static void describe(OnnxExport *export)
{
    const ModelSpec *spec = &export->spec;
    const char *colours = spec->channels == 1 ? "gray" : "RGB";
    if (restores(export)) {
        (void)snprintf(export->input, sizeof export->input, "%s, pixel / 255: 0 to 1", colours);
        (void)snprintf(export->output, sizeof export->output,
                       "the restored image, as the input; may lie beyond 0 to 1");
        return;
    }
    (void)snprintf(export->input, sizeof export->input,
                   "%s, (pixel / 255 - mean) / std, with mean and std of the metadata", colours);
    (void)snprintf(export->output, sizeof export->output, "%s; softmax makes probabilities",
                   takes_any_size(export)
                       ? "a number for each class of each pixel, classes in the order of class_names"
                       : "a number for each class, in the order of class_names");
}

static void add_number(OnnxWire *wire, const char *key, int64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    onnx_metadata(wire, key, text);
}

/* Writes what programs that serve the network want to know, by the names that weights and args.json have. */
static void write_metadata(OnnxExport *export)
{
    static const char *const kept[] = {"class_names", "mean", "std", "dataset", "epoch", "steps"};
    const WeightsOrigin *origin = &export->origin;
    OnnxWire *wire = &export->wire;
    onnx_metadata(wire, "model", export->model->name);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = safetensors_metadata(export->weights, kept[i]);
        if (value)
            onnx_metadata(wire, kept[i], value);
    }
    if (origin->metric_name)
        onnx_metadata(wire, origin->metric_name, safetensors_metadata(export->weights, origin->metric_name));
    if (takes_any_size(export))
        return;
    add_number(wire, "val_crop_size", export->spec.height);
    if (origin->crop == export->spec.height && origin->resize)
        add_number(wire, "val_resize_size", origin->resize);
    if (origin->interpolation)
        onnx_metadata(wire, "interpolation", origin->interpolation);
}

static FshStatus write_file(OnnxExport *export, FshError *error)
{
    const char *path = export->options->inference.export_onnx;
    const OnnxNetwork network = {.name = export->model->name,
                                 .graph = export->graph,
                                 .output = restores(export) ? "restored" : "logits",
                                 .any_size = takes_any_size(export),
                                 .about_input = export->input,
                                 .about_output = export->output,
                                 .read = read_weight,
                                 .context = export};
    describe(export);
    onnx_model(&export->wire, export->model->summary);
    write_metadata(export);
    FshStatus status = onnx_network(&export->wire, &network, error);
    if (!status)
        status = file_make_parent_folders(path, error);
    if (!status)
        status = file_write_atomic(path, export->wire.bytes.bytes, export->wire.bytes.length,
                                   export->options->force, true, error);
    return status;
}

/* ---- the call ---- */

static FshStatus print_json(const OnnxExport *export, FshError *error)
{
    const ModelSpec *spec = &export->spec;
    json_t *object =
        json_pack("{s:o, s:o, s:s, s:i, s:I, s:I, s:I}", "weights", json_text(export->options->weights),
                  "output", json_text(export->options->inference.export_onnx), "model", export->model->name,
                  "opset", ONNX_OPSET, "parameters", (json_int_t)graph_parameter_count(export->graph),
                  "bytes", (json_int_t) export->wire.bytes.length, "channels", (json_int_t)spec->channels);
    if (object && !takes_any_size(export))
        (void)json_object_set_new(object, "val_crop_size", json_integer((json_int_t)spec->height));
    if (object && !restores(export))
        (void)json_object_set_new(object, "classes", json_integer((json_int_t)spec->classes));
    return describe_print_json(object, error);
}

static void print_text(const OnnxExport *export)
{
    const ModelSpec *spec = &export->spec;
    program_print_text(stdout, export->options->inference.export_onnx);
    if (takes_any_size(export))
        (void)printf(": %s, input [batch, %" PRId64 ", height, width] of any size", export->model->name,
                     spec->channels);
    else
        (void)printf(": %s, input [batch, %" PRId64 ", %" PRId64 ", %" PRId64 "], logits [batch, %" PRId64
                     "]",
                     export->model->name, spec->channels, spec->height, spec->width, spec->classes);
    if (takes_any_size(export) && !restores(export))
        (void)printf(", logits [batch, %" PRId64 ", height, width]", spec->classes);
    (void)printf("; opset %d, %.1f MiB\n", ONNX_OPSET, (double)export->wire.bytes.length / (1 << 20));
    if (!restores(export) && !export->origin.normalised)
        (void)printf("the weights name neither mean nor std: programs must know how to normalise\n");
}

FshStatus export_onnx(const TrainOptions *options, FshError *error)
{
    OnnxExport export = {.options = options};
    const char *path = options->inference.export_onnx;
    FshStatus status = FSH_OK;
    if (!options->force && file_exists(path))
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists; --force replaces it", path);
    if (!status)
        status = choose_network(&export, error);
    if (!status)
        status = build(&export, error);
    if (!status)
        status = write_file(&export, error);
    if (!status && options->program.json)
        status = print_json(&export, error);
    else if (!status && !options->program.quiet)
        print_text(&export);
    wire_free(&export.wire);
    safetensors_close(&export.weights);
    graph_free(&export.graph);
    weights_origin_free(&export.origin);
    return status;
}
