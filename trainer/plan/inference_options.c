#include "trainer/plan/inference_options.h"

#include <string.h>

static const char *const predict_choices[] = {"csv", "jsonl", "png", "jpeg", NULL};

const char *predict_format_name(int format)
{
    return format == OPTION_AUTO ? "auto" : predict_choices[format];
}

InferenceOptions inference_options_default(void)
{
    return (InferenceOptions){.format = OPTION_AUTO};
}

/* clang-format off */
size_t inference_options_rows(InferenceOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "evaluate", .kind = OPTION_FLAG, .value = &o->evaluate, .alias = "test-only",
         .group = "Evaluation and prediction",
         .marks = OPTION_FREE | OPTION_ALIKE | OPTION_NOT_IN_FILE,
         .help = "evaluate --weights and leave; writes nothing"},
        {.name = "predict", .kind = OPTION_TEXT, .value = &o->predict, .argument = "DIR",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "with --weights: predicted classes as a table, or restored images, into DIR; SHARDS may "
                 "be a folder of images, a tar, or an image too"},
        {.name = "export", .kind = OPTION_TEXT, .value = &o->export_path, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "with --weights: a table with a row for each sample of the evaluation split, or for "
                 "each image"},
        {.name = "export-onnx", .kind = OPTION_TEXT, .value = &o->export_onnx, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_ANY | USE_ONNX,
         .help = "with --weights: the network as an ONNX file, for onnxruntime, TensorRT and others; SHARDS "
                 "are not needed"},
        {.name = "predict-format", .kind = OPTION_CHOICE, .value = &o->format, .argument = "FORMAT",
         .has_auto = true, .choices = predict_choices, .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .uses = USE_PREDICTS,
         .help = "tables as csv or jsonl (auto: csv), restored images as png or jpeg (auto: by the name "
                 "of the input)"},
        {.name = "files-from", .kind = OPTION_TEXT, .value = &o->files_from, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "predict the images below SHARDS (or here) that FILE lists, a path a line; -: standard "
                 "input"},
        {.name = "tile", .kind = OPTION_INTEGER, .value = &o->tile, .argument = "PX", .maximum = 16384,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "restore images in squares of this edge; 0: whole, or in the largest that fit into "
                 "memory"},
        {.name = "tile-overlap", .kind = OPTION_INTEGER, .value = &o->tile_overlap, .argument = "PX",
         .maximum = 4096, .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "pixels that neighbouring tiles share, so that no seam is seen; 0: 128, but half of a "
                 "tile at most"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */
