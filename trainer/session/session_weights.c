#include "trainer/session/session_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/image_source.h"

enum { NAMES_BYTES = 320 }; /* of one list in a message */

/* ---- the network ---- */

FshStatus session_refuse_network(const char *weights, const Model *model, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: these are weights of %s; say --model %s", weights,
                         model->name, model->name);
}

FshStatus session_weights_model(const TrainOptions *options, WeightsOrigin *origin, const Model **model_ret,
                                FshError *error)
{
    const Model *named = NULL;
    FshStatus status = weights_origin(options->weights, origin, error);
    if (!status && options->model)
        status = plan_model(options, 0, &named, error);
    if (status)
        return status;
    *model_ret = named ? named : origin->model;
    if (!*model_ret)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: these weights do not name their network; name it with --model",
                             options->weights);
    return !origin->model || origin->model == *model_ret
               ? FSH_OK
               : session_refuse_network(options->weights, origin->model, error);
}

FshStatus session_choose_model(const Session *session, const TrainOptions *options, SessionUse use,
                               const Model **model_ret, FshError *error)
{
    const Model *named = session->origin.model;
    *model_ret = named;
    if (use == SESSION_EVALUATE && named && !options->model)
        return FSH_OK;
    FshStatus status = plan_model(options, session->data.kind, model_ret, error);
    return status || !named || named == *model_ret ? status
                                                   : session_refuse_network(options->weights, named, error);
}

/* ---- images without a dataset ---- */

FshStatus session_take_images(Session *session, const TrainOptions *options, const Model **model_ret,
                              FshError *error)
{
    enum { COLOURS = 3 };
    const WeightsOrigin *origin = &session->origin;
    uint64_t class_count = 0;
    FshStatus status = session_choose_model(session, options, SESSION_EVALUATE, model_ret, error);
    if (!status)
        status = weights_class_count(options->weights, *model_ret, origin, &class_count, error);
    if (status)
        return status;
    const bool classifies = (*model_ret)->task == TASK_CLASSIFICATION;
    training_data_take_images(&session->data, options->images->dataset, plan_kind_of(*model_ret),
                              (int64_t)class_count, origin->normalised ? origin->channels : COLOURS);
    options->images->dataset = NULL;
    session->data.label_kind = classifies ? session_label_kind(origin) : LABELS_ONE;
    if (origin->classes.count)
        session->data.class_names = origin->classes.names;
    return FSH_OK;
}

/* ---- classes ---- */

/* Writes the classes that differ: "'scorpion'; the weights alone know 'n01770393'". Returns text. */
static const char *list_difference(const ClassNames *dataset, const ClassNames *weights, char *text,
                                   size_t text_bytes)
{
    char ours[NAMES_BYTES], theirs[NAMES_BYTES];
    (void)snprintf(text, text_bytes, "%s; the weights alone know %s",
                   class_names_only_in(dataset, weights, ours, sizeof ours),
                   class_names_only_in(weights, dataset, theirs, sizeof theirs));
    return text;
}

/* Copies the names of the dataset's own classes, or those of its labels. */
static FshStatus dataset_names(const Session *session, ClassNames *names, FshError *error)
{
    const TrainingData *data = &session->data;
    return class_names_copy(names, (const char *const *)data->own_class_names, data->own_class_count, error);
}

LabelKind session_label_kind(const WeightsOrigin *origin)
{
    LabelKind kind = LABELS_ONE;
    for (int i = 0; origin->problem_type && label_kind_names[i]; i++)
        if (strcmp(origin->problem_type, label_kind_names[i]) == 0)
            kind = (LabelKind)i;
    return kind;
}

/* Refuses to measure weights by labels of another kind. Weights of others, which say nothing, may be of
 * any. */
static FshStatus check_kind(const Session *session, const TrainOptions *options, FshError *error)
{
    const LabelKind ours = session->data.label_kind, theirs = session_label_kind(&session->origin);
    if (!session->origin.model || ours == theirs)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: is a %s network; %s %s labels, %s%s", options->weights,
                         label_kind_names[theirs],
                         options->data.labels.path ? options->data.labels.path : options->shards,
                         options->data.labels.path ? "has" : "holds", label_kind_names[ours],
                         options->data.labels.path ? "and --problem-type says what they are"
                                                   : "and --labels names a file of others");
}

/* Refuses classes of the dataset that the weights do not know, if a sample to evaluate on has one. Others do
 * no harm: --where has left none of their samples, or the split has none. */
static FshStatus check_unknown(const Session *session, const TrainOptions *options, const ClassNames *dataset,
                               FshError *error)
{
    const ClassMap *classes = &session->classes;
    char difference[2 * NAMES_BYTES + 64];
    uint64_t *counts = calloc(classes->count + 1, sizeof *counts), samples = 0;
    if (!counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu classes", classes->count);
    training_data_count(&session->data, false, counts);
    for (size_t i = 0; i < classes->count; i++)
        samples += classes->places[i] < 0 ? counts[i] : 0;
    free(counts);
    if (!samples && session->data.label_kind != LABELS_NUMBERS)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: %zu of its %zu classes %s not among the %zu of %s: %s; leave them out with --where \"class in "
        "FILE\", rename the classes, or train for these: ftrain --weights FILE SHARDS OUTPUT",
        fsh_path(session->data.dataset), classes->missing, dataset->count,
        classes->missing == 1 ? "is" : "are", session->origin.classes.count, options->weights,
        list_difference(dataset, &session->origin.classes, difference, sizeof difference));
}

/* Returns whether a value of masks has a name: its number is none. */
static bool is_named(const ClassNames *names, size_t value)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%zu", value);
    return value < names->count && strcmp(names->names[value], number) != 0;
}

/* Finds the first value of masks that both lists name, and differently. Returns false if there is none. */
static bool find_renamed(const ClassNames *a, const ClassNames *b, size_t *value_ret)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        *value_ret = i;
        if (is_named(a, i) && is_named(b, i) && strcmp(a->names[i], b->names[i]) != 0)
            return true;
    }
    return false;
}

/* Refuses to measure weights on masks of which a value is called otherwise than theirs. */
static FshStatus check_mask_names(const Session *session, const TrainOptions *options, FshError *error)
{
    const ClassNames *weights = &session->origin.classes;
    ClassNames dataset = {0};
    size_t value = 0;
    FshStatus status = dataset_names(session, &dataset, error);
    if (!status && find_renamed(&dataset, weights, &value))
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "%s: its masks call the value %zu '%s', and %s '%s'; if they mean the same, "
                               "fverify --set-class-names gives the masks other names",
                               fsh_path(session->data.dataset), value, dataset.names[value], options->weights,
                               weights->names[value]);
    class_names_free(&dataset);
    return status;
}

/* Takes the classes of the weights for masks, if those that are evaluated have no others. */
static FshStatus take_mask_classes(Session *session, const TrainOptions *options, FshError *error)
{
    const ClassNames *weights = &session->origin.classes;
    TrainingData *data = &session->data;
    if (!weights->count || data->inputs_alone)
        return FSH_OK;
    const FshStatus status = check_mask_names(session, options, error);
    if (status)
        return status;
    const uint32_t found = fsh_manifest(data->dataset)->statistics.mask_classes;
    if (found > weights->count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its masks have values up to %u, and %s know %zu classes, 0 to %zu",
                             fsh_path(data->dataset), (unsigned)found - 1, options->weights, weights->count,
                             weights->count - 1);
    data->class_count = (int64_t)weights->count;
    data->class_names = weights->names;
    return FSH_OK;
}

FshStatus session_map_classes(Session *session, const TrainOptions *options, SessionUse use, FshError *error)
{
    const ClassNames *weights = &session->origin.classes;
    TrainingData *data = &session->data;
    ClassNames dataset = {0};
    session->weights = options->weights;
    if (data->kind == FSH_KIND_MASKS && use == SESSION_EVALUATE)
        return take_mask_classes(session, options, error);
    if (data->kind != FSH_KIND_CLASSES || data->inputs_alone)
        return FSH_OK;
    FshStatus status = use == SESSION_EVALUATE ? check_kind(session, options, error) : FSH_OK;
    if (status || !weights->count)
        return status;
    status = dataset_names(session, &dataset, error);
    if (!status)
        status = class_map_make(&session->classes, &dataset, weights, error);
    if (status)
        status = fsh_error_prepend(error, "%s", options->weights);
    else if (use == SESSION_EVALUATE && session->classes.missing)
        status = check_unknown(session, options, &dataset, error);
    if (!status && use == SESSION_EVALUATE && !session->classes.same) {
        data->class_count = (int64_t)weights->count;
        data->class_names = weights->names;
        data->label_places = session->classes.places;
    }
    class_names_free(&dataset);
    return status;
}

FshStatus session_load_weights(Session *session, SessionUse use, FshError *error)
{
    const ClassMap *classes = &session->classes;
    WeightsHead head = {0};
    if (use == SESSION_TRAIN && !classes->count)
        head.anew_if_other = true;
    else if (use == SESSION_TRAIN && classes->missing)
        head.anew = true;
    else if (use == SESSION_TRAIN && !classes->same) {
        head.rows = classes->places;
        head.file_rows = session->origin.classes.count;
    }
    const FshStatus status =
        weights_load(session->weights, session->network.state, network_graph(&session->network), &head,
                     &session->kept_head, error);
    const Model *model =
        status == FSH_ERR_MISMATCH && !session->origin.model ? weights_recognise(session->weights) : NULL;
    return model && model != session->plan.model ? session_refuse_network(session->weights, model, error)
                                                 : status;
}

/* Checks that masks have as many classes as a run had, and none of them another name. Names that one of them
 * lacks do not matter: masks are named when people like. */
static FshStatus check_masks_of_run(const Session *session, const ClassNames *run, const ClassNames *dataset,
                                    FshError *error)
{
    const char *path = fsh_path(session->data.dataset);
    size_t value = 0;
    if (run->count != dataset->count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "is of a run on masks of %zu classes, and those of %s have %zu now, with those "
                             "that have a name alone; name as many as it began with (fverify "
                             "--set-class-names), or begin a new run",
                             run->count, path, dataset->count);
    if (find_renamed(run, dataset, &value))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "is of a run on masks that called the value %zu '%s', and those of %s call it "
                             "'%s'; give it the name that it had (fverify --set-class-names), or begin a new "
                             "run",
                             value, run->names[value], path, dataset->names[value]);
    return FSH_OK;
}

FshStatus session_check_classes(const Session *session, const char *path, const char *text, FshError *error)
{
    const bool masks = session->data.kind == FSH_KIND_MASKS;
    char ours[NAMES_BYTES], theirs[NAMES_BYTES];
    ClassNames run = {0}, dataset = {0};
    ClassMap map = {0};
    FshStatus status = class_names_parse(&run, text, error);
    if (!status)
        status = dataset_names(session, &dataset, error);
    if (!status && masks)
        status = check_masks_of_run(session, &run, &dataset, error);
    else if (!status)
        status = class_map_make(&map, &dataset, &run, error);
    if (!status && !masks && !map.same)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "is of a run on other classes than those of %s, which alone has %s; the run "
                               "alone had %s%s; begin "
                               "a new run with --weights, which finds classes by their names",
                               fsh_path(session->data.dataset),
                               class_names_only_in(&dataset, &run, ours, sizeof ours),
                               class_names_only_in(&run, &dataset, theirs, sizeof theirs),
                               map.missing ? "" : ": they stand in another order");
    class_map_free(&map);
    class_names_free(&run);
    class_names_free(&dataset);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

/* Prints what became of the classes, if the names alone do not tell. */
static void describe_classes(Session *session)
{
    const ClassMap *classes = &session->classes;
    const size_t known = session->origin.classes.count;
    char difference[2 * NAMES_BYTES + 64];
    ClassNames dataset = {0};
    if (session->kept_head && !classes->count)
        console_line(
            &session->console,
            "classes: the weights have no last layer, or one for another number of them, and no names; %s "
            "begins anew",
            session->kept_head);
    else if (!classes->count)
        console_line(&session->console,
                     "classes: the weights have no names of theirs; that they are these, in this order, was "
                     "not checked");
    else if (session->kept_head && dataset_names(session, &dataset, NULL) == FSH_OK)
        console_line(&session->console,
                     "classes: %zu of %zu %s not among the %zu of the weights: %s; %s begins anew",
                     classes->missing, classes->count, classes->missing == 1 ? "is" : "are", known,
                     list_difference(&dataset, &session->origin.classes, difference, sizeof difference),
                     session->kept_head);
    else if (!classes->same)
        console_line(&session->console, "classes: %zu, found by their names among the %zu of the weights",
                     classes->count - classes->missing, known);
    class_names_free(&dataset);
}

/* Prints the first value of masks that is called otherwise than the weights do: what they have learnt of it
 * is of another class, which more training mends. */
static void describe_mask_names(Session *session)
{
    const ClassNames *weights = &session->origin.classes;
    ClassNames dataset = {0};
    size_t value = 0;
    if (dataset_names(session, &dataset, NULL) == FSH_OK && find_renamed(&dataset, weights, &value))
        console_line(
            &session->console,
            "classes: the weights call the value %zu '%s', and the masks '%s'; the last layer begins "
            "as it is",
            value, weights->names[value], dataset.names[value]);
    class_names_free(&dataset);
}

void session_describe_weights(Session *session)
{
    const WeightsOrigin *origin = &session->origin;
    char classes[48] = "", epoch[40] = "", metric[64] = "";
    if (!session->weights)
        return;
    if (origin->classes.count)
        (void)snprintf(classes, sizeof classes, ", %zu classes", origin->classes.count);
    if (origin->trained)
        (void)snprintf(epoch, sizeof epoch, ", epoch %" PRIu64, origin->epoch);
    if (origin->metric_name)
        (void)snprintf(metric, sizeof metric, ", %s %.2f", origin->metric_name, origin->metric);
    console_line(&session->console, "weights: %s: %s%s%s%s", session->weights,
                 origin->model ? origin->model->name : "of another program", classes, epoch, metric);
    if (session->data.kind == FSH_KIND_CLASSES && !session->data.inputs_alone)
        describe_classes(session);
    else if (session->data.kind == FSH_KIND_MASKS && !session->data.inputs_alone)
        describe_mask_names(session);
}
