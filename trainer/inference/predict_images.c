#include "trainer/inference/predict_images.h"

#include <inttypes.h>
#include <jansson.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/folder_lock.h"
#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/data/image_source.h"
#include "trainer/inference/class_prediction.h"
#include "trainer/session/describe.h"
#include "trainer/session/session_weights.h"
#include "trainer/inference/restore.h"
#include "trainer/inference/restore_origin.h"
#include "trainer/loop/run_output.h"
#include "trainer/report/run_record.h"

enum { TOLD_MOST = 1000 };

typedef struct Prediction {
    TrainOptions options; /* a copy: bad images are skipped */
    Session session;
    ImageSource source;
    Progress progress;
    WeightsOrigin origin;
    bool restores; /* writes an image for each: a restored one, or, */
    bool masks;    /* a mask */
    uint64_t done, bad, existing;
    double seconds;
    /* For restorers. */
    FolderLock lock;    /* on the output folder; a table has a lock of its own */
    ImageFormat format; /* IMAGE_UNKNOWN: by the input's name */
    Restorer *restorer;
    void *targets;           /* output names already given to inputs, tsearch's tree; owned */
    uint32_t tile;           /* already reported */
    FshError failure;        /* of the callbacks that find the images */
    ClassPrediction classes; /* For classifiers. */
} Prediction;

/* ---- options ---- */

FshStatus predict_images_wanted(const TrainOptions *options, bool *wanted_ret, FshError *error)
{
    const Model *model = NULL;
    *wanted_ret = options->inference.files_from != NULL;
    if ((!options->inference.predict && !options->inference.export_path) || *wanted_ret)
        return FSH_OK;
    WeightsOrigin origin = {0};
    FshStatus status = weights_origin(options->weights, &origin, error);
    if (!status)
        model = origin.model;
    if (!status && !model && options->model)
        status = plan_model(options, 0, &model, error);
    weights_origin_free(&origin);
    const FshKind kind = model ? plan_kind_of(model) : FSH_KIND_CLASSES;
    *wanted_ret = !status && !image_source_is_packed(options->shards, kind);
    return status;
}

static bool is_format(const Prediction *prediction, PredictFormat format)
{
    return prediction->options.inference.format == (int)format;
}

/* Refuses options that would be ignored. */
static FshStatus check_options(const Prediction *prediction, FshError *error)
{
    const TrainOptions *options = &prediction->options;
    const bool images = is_format(prediction, PREDICT_PNG) || is_format(prediction, PREDICT_JPEG);
    const bool tables = is_format(prediction, PREDICT_CSV) || is_format(prediction, PREDICT_JSONL);
    const char *tiles = options->inference.tile           ? "--tile"
                        : options->inference.tile_overlap ? "--tile-overlap"
                                                          : NULL;
    if (options->inference.evaluate)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--evaluate: nobody knows what is in these images; leave it out, or fpack them");
    if (prediction->restores ? tables : images)
        return fsh_error_set(error, FSH_ERR_USAGE, "--predict-format: '%s' is for networks that %s",
                             predict_format_name(options->inference.format),
                             images ? "restore images" : "tell classes apart");
    if (prediction->masks && is_format(prediction, PREDICT_JPEG))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--predict-format: jpeg changes the values of masks, which are png");
    if (prediction->masks && tiles)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the masks of images are made whole", tiles);
    if (prediction->restores && options->inference.export_path)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--export: images without targets give no table; --predict DIR %s",
                             prediction->masks ? "writes their masks" : "restores them");
    if (!prediction->restores && tiles)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is for networks that restore images", tiles);
    return FSH_OK;
}

/* ---- finding images ---- */

static void tell(void *context, const char *message)
{
    Prediction *prediction = context;
    console_warning(&prediction->session.console, "%s; left out", message);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Gives the output name to this image. Returns false if an earlier image has it. */
static bool claim(Prediction *prediction, const char *path, const char *target)
{
    char *copy = strdup(target);
    char **found = copy ? tsearch(copy, &prediction->targets, compare_names) : NULL;
    if (!found)
        (void)fsh_error_set(&prediction->failure, FSH_ERR_MEMORY,
                            "out of memory for the names of the images");
    if (!found || *found == copy)
        return found != NULL;
    free(copy);
    prediction->bad++;
    console_warning(&prediction->session.console, "%s: another image is written to %s; left out", path,
                    target);
    return false;
}

/* Returns whether a restored image would not replace its own input: an image may be given by itself, and
 * links lead anywhere. */
static bool is_apart(Prediction *prediction, const char *path, const char *into)
{
    const char *root = prediction->options.shards ? prediction->options.shards : ".";
    char input[PATH_MAX];
    struct stat in, out;
    const bool joined = !file_is_folder(root) || file_join(input, sizeof input, root, path, NULL) == FSH_OK;
    if (!joined || stat(into, &out) || stat(file_is_folder(root) ? input : root, &in) ||
        in.st_dev != out.st_dev || in.st_ino != out.st_ino)
        return true;
    (void)fsh_error_set(&prediction->failure, FSH_ERR_USAGE,
                        "--predict: %s is the input itself; name another folder", into);
    return false;
}

/* Returns whether an input is to be restored: not if its output is there already. */
static bool is_to_be_restored(void *context, const char *path)
{
    Prediction *prediction = context;
    char target[PATH_MAX], into[PATH_MAX];
    ImageFormat format = IMAGE_UNKNOWN;
    FshError *failure = &prediction->failure;
    if (failure->status || restore_target(path, prediction->format, target, &format, failure) ||
        file_join(into, sizeof into, prediction->options.inference.predict, target, failure) ||
        !claim(prediction, path, target) || !is_apart(prediction, path, into))
        return false;
    const bool exists = !prediction->options.force && file_exists(into);
    prediction->existing += exists;
    return !exists;
}

static bool has_no_row(void *context, const char *path)
{
    Prediction *prediction = context;
    const bool has = prediction_table_has(prediction->classes.table, path);
    prediction->existing += has;
    return !has;
}

/* Refuses an output folder that is the input folder: a file and its output would have the same path. */
static FshStatus check_folders(const Prediction *prediction, FshError *error)
{
    char in[PATH_MAX], out[PATH_MAX];
    const char *root = prediction->options.shards ? prediction->options.shards : ".";
    if (realpath(root, in) && realpath(prediction->options.inference.predict, out) && strcmp(in, out) == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--predict: %s holds the inputs; name another folder",
                             prediction->options.inference.predict);
    return FSH_OK;
}

static FshStatus find_images(Prediction *prediction, FshError *error)
{
    const TrainOptions *options = &prediction->options;
    FshStatus status = prediction->restores ? check_folders(prediction, error)
                                            : class_prediction_open(&prediction->classes, options, error);
    const ImageSourceOptions wanted = {.path = options->shards,
                                       .files_from = options->inference.files_from,
                                       .outputs = options->inference.predict,
                                       .wanted = prediction->restores ? is_to_be_restored : has_no_row,
                                       .tell = tell,
                                       .context = prediction};
    if (!status)
        status = image_source_open(&prediction->source, &wanted, error);
    if (!status && prediction->failure.status) {
        *error = prediction->failure;
        status = error->status;
    }
    if (!status && prediction->source.image_count == 0)
        status =
            fsh_error_set(error, FSH_ERR_NOT_FOUND,
                          "%s: there are no images (%" PRIu64 " other file%s); names of images end in .jpg, "
                          ".png, .tif and the like",
                          options->shards ? options->shards : ".", prediction->source.other_count,
                          text_plural(prediction->source.other_count));
    prediction->bad += prediction->source.problem_count;
    return status;
}

/* ---- the run ---- */

static FshStatus open_session(Prediction *prediction, FshError *error)
{
    TrainOptions *options = &prediction->options;
    Console console = prediction->session.console;
    options->images = &prediction->source;
    options->data.on_error = TRAIN_SKIP;
    FshStatus status = session_open(&prediction->session, options, SESSION_EVALUATE, error);
    if (status)
        prediction->session.console = console;
    else if (prediction->session.data.display_names)
        prediction->classes.rows.names = prediction->session.data.display_names;
    return status;
}

static void describe(Prediction *prediction)
{
    Session *session = &prediction->session;
    const Augmentation *view = &session->plan.evaluation_augmentation;
    const ImageSource *source = &prediction->source;
    char existing[64] = "", others[64] = "";
    if (prediction->existing)
        (void)snprintf(existing, sizeof existing, ", %" PRIu64 " of them done already", prediction->existing);
    if (source->other_count)
        (void)snprintf(others, sizeof others, "; %" PRIu64 " other file%s passed over", source->other_count,
                       text_plural(source->other_count));
    session_describe(session);
    console_line(&session->console, "images: %s: %" PRIu64 "%s%s", fsh_path(session->data.dataset),
                 source->image_count, existing, others);
    if (prediction->restores)
        return;
    if (!prediction->origin.classes.count)
        console_line(&session->console, "classes: the weights name none, so numbers stand for them");
    console_line(&session->console, "views: short edge %u pixels, centre crop of %u%s%s", view->resize,
                 view->size, session->plan.flip_tta ? ", mirrored too" : "",
                 session->plan.shift_tta ? ", moved too" : "");
}

/* Reports the images that the loader could not read. */
static void tell_problems(Prediction *prediction)
{
    Session *session = &prediction->session;
    const uint64_t count = loader_problem_count(session->evaluation);
    char message[1024];
    for (uint64_t n = session->told_of[1]; n < count; n++) {
        session->told_of[1] = n + 1;
        prediction->bad++;
        progress_add(&prediction->progress, 1, 0, 1);
        if (loader_problem(session->evaluation, n, message, sizeof message))
            progress_note(&prediction->progress, "warning: %s; left out", message);
        else if (n == TOLD_MOST)
            progress_note(&prediction->progress,
                          "warning: more images cannot be read, which are only counted");
    }
}

static FshStatus predict_classes(Prediction *prediction, const Batch *batch, FshError *error)
{
    Metrics metrics = {0};
    Evaluated evaluated = {0};
    FshStatus status =
        network_evaluate(&prediction->session.network, NETWORK_TRAINED, batch, &metrics, &evaluated, error);
    for (int64_t i = 0; i < prediction->session.plan.evaluation_spec.batch && !status; i++) {
        size_t key_bytes = 0;
        if (!(batch->valid[i] > 0))
            continue;
        const char *key = session_key(prediction->session.data.evaluation, batch->samples[i], &key_bytes);
        status = class_prediction_add(&prediction->classes, key, key_bytes,
                                      evaluated.output + i * prediction->classes.rows.classes,
                                      prediction->source.image_count == 1, error);
    }
    if (!status)
        status = class_prediction_write(&prediction->classes, error);
    prediction->done += status ? 0 : batch->valid_count;
    progress_add(&prediction->progress, status ? 0 : batch->valid_count, 0, 0);
    return status;
}

static void tell_tile(Prediction *prediction, const char *path, const Batch *batch)
{
    const uint32_t tile = restorer_tile(prediction->restorer);
    if (!tile || tile == prediction->tile || prediction->options.program.quiet)
        return;
    prediction->tile = tile;
    progress_note(&prediction->progress, "%s: %u x %u pixels, in tiles of %u", path, batch->width,
                  batch->height, tile);
}

static FshStatus restore_image(Prediction *prediction, const Batch *batch, FshError *error)
{
    size_t key_bytes = 0;
    bool unfit = false;
    const char *key = session_key(prediction->session.data.evaluation, batch->samples[0], &key_bytes);
    char *path = text_copy(key, key_bytes);
    if (!path)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = restorer_add(prediction->restorer, path, batch, &unfit, error);
    if (!status)
        tell_tile(prediction, path, batch);
    if (unfit) {
        progress_note(&prediction->progress, "warning: %s: %s; left out", path, error->message);
        *error = (FshError){0};
        status = FSH_OK;
    }
    prediction->bad += unfit;
    prediction->done += !unfit && !status;
    progress_add(&prediction->progress, !status, 0, unfit);
    free(path);
    return status;
}

/* Returns FSH_ERR_INTERRUPTED with a message that says how to go on; with --force the command begins anew. */
static FshStatus tell_interrupted(const TrainOptions *options, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted; the same command %s",
                         options->force ? "begins again (--force)" : "goes on");
}

static FshStatus run(Prediction *prediction, FshError *error)
{
    Session *session = &prediction->session;
    const uint64_t steps = session->plan.evaluation_steps;
    FshStatus status = FSH_OK;
    const double start = progress_now_seconds();
    const bool restores = prediction->restores && !prediction->masks;
    progress_start(&prediction->progress, stderr, restores ? "restoring" : "predicting", "images",
                   session->data.evaluation->sample_count, prediction->options.program.quiet);
    loader_start(session->evaluation, 0, steps);
    for (uint64_t step = 0; step < steps && !status; step++) {
        const Batch *batch = NULL;
        if (interrupt_requested())
            status = FSH_ERR_INTERRUPTED;
        if (!status)
            status = loader_next(session->evaluation, &batch, error);
        if (!status && batch->valid_count)
            status = prediction->restores ? restore_image(prediction, batch, error)
                                          : predict_classes(prediction, batch, error);
        tell_problems(prediction);
    }
    if (status == FSH_ERR_INTERRUPTED)
        status = tell_interrupted(&prediction->options, error);
    if (prediction->restores) { /* finished images are written in any case */
        FshError failure = {0};
        const FshStatus written = restorer_finish(prediction->restorer, &failure);
        if (written && !status && error)
            *error = failure;
        status = status ? status : written;
        prediction->done = restorer_count(prediction->restorer);
    }
    prediction->seconds = progress_now_seconds() - start;
    progress_finish(&prediction->progress);
    return status;
}

/* ---- results ---- */

static double rate(const Prediction *prediction)
{
    return prediction->seconds > 0 ? (double)prediction->done / prediction->seconds : 0;
}

static FshStatus print_json(const Prediction *prediction, FshError *error)
{
    const TrainOptions *options = &prediction->options;
    json_t *object = json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "weights", json_text(options->weights), "output",
        json_text(options->inference.predict ? options->inference.predict : options->inference.export_path),
        "images", (json_int_t)prediction->source.image_count,
        prediction->restores && !prediction->masks ? "restored" : "predicted", (json_int_t)prediction->done,
        "existing", (json_int_t)prediction->existing, "left_out", (json_int_t)prediction->bad, "seconds",
        json_measured(prediction->seconds), "images_per_second", json_measured(rate(prediction)));
    if (object && !prediction->restores)
        (void)json_object_set_new(object, "table", json_text(prediction->classes.table_path));
    if (object && prediction->classes.only)
        (void)json_object_set(object, "prediction", prediction->classes.only);
    return describe_print_json(object, error);
}

static void print_text(const Prediction *prediction)
{
    const TrainOptions *options = &prediction->options;
    const char *into = prediction->restores ? options->inference.predict : prediction->classes.table_path;
    if (*prediction->classes.likeliest) {
        program_print_text(stdout, class_prediction_only_name(&prediction->classes, options));
        (void)fputs(": ", stdout);
        program_print_text(stdout, prediction->classes.likeliest);
        (void)fputc('\n', stdout);
    }
    if (options->program.quiet)
        return;
    (void)printf("%" PRIu64 " image%s %s%s%s", prediction->done, text_plural(prediction->done),
                 prediction->masks      ? "predicted, masks in "
                 : prediction->restores ? "restored into "
                                        : "predicted, a row for each in ",
                 into,
                 options->inference.predict && options->inference.export_path ? ", and in that of --export"
                                                                              : "");
    if (prediction->existing)
        (void)printf(", %" PRIu64 " were there already", prediction->existing);
    if (prediction->bad)
        (void)printf(", %" PRIu64 " left out", prediction->bad);
    (void)printf("; %.1f s, %.4g images/s\n", prediction->seconds, rate(prediction));
}

/* Makes the restorer and takes the folder's lock. Two runs in one folder would mix their images: the second
 * is told about the first. */
static FshStatus begin(Prediction *prediction, FshError *error)
{
    const TrainOptions *options = &prediction->options;
    const RestoreOptions restoring = {.folder = options->inference.predict,
                                      .format = prediction->format,
                                      .force = options->force,
                                      .tile = (uint32_t)options->inference.tile,
                                      .overlap = (uint32_t)options->inference.tile_overlap};
    if (!prediction->restores)
        return FSH_OK;
    FshStatus status = restorer_new(&prediction->restorer, &prediction->session, &restoring, error);
    if (!status)
        status = file_make_folders(options->inference.predict, error);
    if (!status)
        status = folder_lock_take(&prediction->lock, options->inference.predict, record_lock_name, "ftrain",
                                  error);
    if (!status)
        run_output_warn(&prediction->session.console, &prediction->lock, options->inference.predict);
    if (!status && !options->force) /* another run may have begun and ended since the folder was checked */
        status = restore_origin_check(options->inference.predict, options, error);
    return status ? status : restore_origin_write(options->inference.predict, options, error);
}

static void free_prediction(Prediction *prediction)
{
    restorer_free(&prediction->restorer);
    folder_lock_release(&prediction->lock);
    class_prediction_free(&prediction->classes);
    weights_origin_free(&prediction->origin);
    session_close(&prediction->session);
    image_source_close(&prediction->source);
    tdestroy(prediction->targets, free);
}

FshStatus predict_images(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Prediction prediction = {.options = *options, .lock = FOLDER_LOCK_NONE};
    const Model *model = NULL;
    console_open(&prediction.session.console, stderr, options->program.quiet);
    FshStatus status = session_weights_model(options, &prediction.origin, &model, error);
    if (status)
        goto done;
    prediction.restores = model->task != TASK_CLASSIFICATION;
    prediction.masks = model->task == TASK_SEGMENTATION;
    prediction.format = prediction.masks || is_format(&prediction, PREDICT_PNG) ? IMAGE_PNG
                        : is_format(&prediction, PREDICT_JPEG)                  ? IMAGE_JPEG
                                                                                : IMAGE_UNKNOWN;
    status = check_options(&prediction, error);
    if (!status && !prediction.restores)
        status = class_prediction_name(&prediction.classes, options, model, &prediction.origin, error);
    if (!status)
        status = find_images(&prediction, error);
    if (!status && prediction.restores && !options->force)
        status = restore_origin_check(options->inference.predict, options, error);
    const bool any = !status && prediction.source.wanted_count > 0;
    if (any)
        status = open_session(&prediction, error);
    if (any && !status)
        status = begin(&prediction, error);
    if (any && !status) {
        describe(&prediction);
        status = run(&prediction, error);
    }
    if (!status && prediction.classes.table)
        status = class_prediction_finish(&prediction.classes, options, &prediction.session.console, error);
    *partial_ret = prediction.bad > 0;
    if (!status && options->program.json)
        status = print_json(&prediction, error);
    else if (!status)
        print_text(&prediction);
done:
    free_prediction(&prediction);
    return status;
}
