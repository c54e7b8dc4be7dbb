#include "trainer/inference/class_prediction.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json_text.h"
#include "common/text.h"
#include "trainer/session/session_weights.h"

static const RowTruth unknown = {.label = FSH_NO_LABEL};

FshStatus class_prediction_name(ClassPrediction *classes, const TrainOptions *options, const Model *model,
                                const WeightsOrigin *origin, FshError *error)
{
    const ClassNames *known = &origin->classes;
    uint64_t count = 0;
    FshStatus status = weights_class_count(options->weights, model, origin, &count, error);
    if (status)
        return status;
    classes->names = calloc(count + 1, sizeof *classes->names);
    classes->numbers = calloc(count + 1, sizeof *classes->numbers);
    if (!classes->names || !classes->numbers)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of %" PRIu64 " classes",
                             count);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(classes->numbers[i], sizeof classes->numbers[i], "%zu", i);
        classes->names[i] = i < known->count ? known->names[i] : classes->numbers[i];
    }
    classes->rows = (ClassRows){.of = (RowsOf)session_label_kind(origin),
                                .key_name = "file",
                                .json = options->inference.format == PREDICT_JSONL,
                                .names = classes->names,
                                .classes = (int64_t)count};
    return FSH_OK;
}

/* Returns a text of everything that the rows depend on; free it. NULL: no memory. */
static char *describe_identity(const TrainOptions *options)
{
    char weights[PATH_MAX], images[PATH_MAX], *text = NULL;
    struct stat status = {0};
    if (!realpath(options->weights, weights) || stat(weights, &status))
        weights[0] = '\0';
    if (!realpath(options->shards ? options->shards : ".", images))
        images[0] = '\0';
    json_t *object = json_pack(
        "{s:o, s:o, s:I, s:I, s:o, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:s}", "weights",
        json_text(weights), "list", json_text(options->inference.files_from), "bytes",
        (json_int_t)status.st_size, "modified", (json_int_t)file_time_ns(status.st_mtim), "images",
        json_text(images), "format", predict_format_name(options->inference.format), "amp",
        train_amp_name(options->compute.amp), "model", options->model ? options->model : "", "flip_tta",
        options->image.flip_tta, "shift_tta", (json_int_t)options->image.shift_tta, "resize",
        (json_int_t)options->image.val_resize_size, "crop", (json_int_t)options->image.val_crop_size,
        "train_crop", (json_int_t)options->image.train_crop_size, "interpolation",
        train_given(options, &options->views.interpolation)
            ? interpolation_names[options->views.interpolation]
            : "");
    text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

FshStatus class_prediction_open(ClassPrediction *classes, const TrainOptions *options, FshError *error)
{
    Buffer head = {0};
    char *identity = describe_identity(options);
    FshStatus status = identity ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a table");
    if (!status && options->inference.predict)
        status = file_join(classes->table_path, PATH_MAX, options->inference.predict,
                           classes->rows.json ? "predictions.jsonl" : "predictions.csv", error);
    else if (!status)
        (void)snprintf(classes->table_path, PATH_MAX, "%s", options->inference.export_path);
    if (!status)
        status = class_rows_head(&classes->rows, &head, error);
    if (!status)
        status = buffer_append(&head, "", 1, error);
    const PredictionTableOptions table = {.force = options->force,
                                          .identity = identity,
                                          .head = (const char *)head.bytes,
                                          .json = classes->rows.json};
    if (!status && options->inference.predict && options->inference.export_path && !options->force &&
        file_exists(options->inference.export_path))
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists; --force replaces it",
                               options->inference.export_path);
    if (!status)
        status = prediction_table_open(&classes->table, classes->table_path, &table, error);
    buffer_free(&head);
    free(identity);
    return status;
}

FshStatus class_prediction_finish(ClassPrediction *classes, const TrainOptions *options, Console *console,
                                  FshError *error)
{
    Buffer text = {0};
    FshStatus status = prediction_table_finish(classes->table, error);
    if (!status && options->inference.predict && options->inference.export_path) {
        status = file_make_parent_folders(options->inference.export_path, error);
        if (!status)
            status = file_read(classes->table_path, &text, error);
        if (!status)
            status = file_write_atomic(options->inference.export_path, text.bytes, text.length,
                                       options->force, true, error);
        buffer_free(&text);
    }
    if (!status && classes->rows.formulas)
        console_warning(console,
                        "%" PRIu64 " cells of the CSV begin with =, +, - or @, which spreadsheets run as "
                        "formulas: import them there as text",
                        classes->rows.formulas);
    return status;
}

/* Keeps the prediction of the only image, so that it can be printed. */
static void keep_only(ClassPrediction *classes, const char *key, size_t key_bytes, const float *logits)
{
    char *name = text_copy(key, key_bytes);
    (void)class_rows_tell(&classes->rows, logits, classes->likeliest, sizeof classes->likeliest);
    json_decref(classes->only);
    classes->only = name ? class_rows_json(&classes->rows, name, &unknown, logits) : NULL;
    free(name);
}

FshStatus class_prediction_add(ClassPrediction *classes, const char *key, size_t key_bytes,
                               const float *logits, bool is_only, FshError *error)
{
    if (is_only)
        keep_only(classes, key, key_bytes, logits);
    return class_rows_add(&classes->rows, key, key_bytes, &unknown, logits, &classes->row, error);
}

FshStatus class_prediction_write(ClassPrediction *classes, FshError *error)
{
    const FshStatus status =
        prediction_table_write(classes->table, classes->row.bytes, classes->row.length, error);
    classes->row.length = 0;
    return status;
}

const char *class_prediction_only_name(const ClassPrediction *classes, const TrainOptions *options)
{
    const char *given = options->shards;
    const char *file = json_string_value(json_object_get(classes->only, "file"));
    if (!given || !file)
        return file ? file : given ? given : "the image";
    const size_t given_bytes = strlen(given), file_bytes = strlen(file);
    const bool is_given = given_bytes >= file_bytes && strcmp(given + given_bytes - file_bytes, file) == 0;
    return is_given ? given : file;
}

void class_prediction_free(ClassPrediction *classes)
{
    prediction_table_close(&classes->table);
    buffer_free(&classes->row);
    json_decref(classes->only);
    free(classes->names);
    free(classes->numbers);
    *classes = (ClassPrediction){0};
}
