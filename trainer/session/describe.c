#include "trainer/session/describe.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/options_config.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/plan/recipe.h"
#include "trainer/graph/muon.h"
#include "trainer/session/expect.h"
#include "trainer/session/memory_table.h"
#include "trainer/session/run_resume.h"
#include "trainer/session/run_space.h"
#include "trainer/report/run_record.h"

/* ---- JSON ---- */

FshStatus describe_print_json(json_t *object, FshError *error)
{
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_PRINTED) : NULL;
    json_decref(object);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the result");
    (void)puts(text); /* main checks that stdout arrived */
    free(text);
    return FSH_OK;
}

/* Sets "options", all options by name as Python spells it (train_crop_size), and "given", the names of those
 * that the user gave. Returns 0 on success. */
static int set_options(json_t *object, const TrainOptions *options)
{
    TrainOptions copy = *options;
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&copy, rows);
    const OptionTable table = train_options_table(rows);
    const int failed =
        json_object_set_new(object, "options", options_config_object(&table, OPTION_NOT_IN_FILE));
    return json_object_set_new(object, "given", options_config_given(&table, OPTION_NOT_IN_FILE)) |
           recipe_record(options, object) | failed;
}

static json_t *view_json(const Augmentation *view)
{
    static const char *const unnamed[] = {"random", "whole", "scaled"};
    const bool named = view->mode < CROP_MODE_COUNT;
    json_t *object = json_pack("{s:s, s:i, s:i}", "crop_mode",
                               named ? crop_mode_names[view->mode] : unnamed[view->mode - CROP_MODE_COUNT],
                               "size", (int)view->size, "channels", (int)view->channels);
    if (view->mode == CROP_RESIZED)
        (void)json_object_update_new(object,
                                     json_pack("{s:[f, f], s:[f, f]}", "scale", view->scale_min,
                                               view->scale_max, "ratio", view->ratio_min, view->ratio_max));
    else if (view->mode == CROP_SCALED)
        (void)json_object_update_new(object,
                                     json_pack("{s:[f, f]}", "scale", view->scale_min, view->scale_max));
    else if (crop_mode_resizes_first(view->mode))
        (void)json_object_set_new(object, "resize", json_integer(view->resize));
    if (view->mode == CROP_PADDED)
        (void)json_object_set_new(object, "padding", json_integer(view->padding));
    if (view->flip_mode == FLIP_ALTERNATING)
        (void)json_object_set_new(object, "flip", json_string(flip_mode_names[view->flip_mode]));
    else
        (void)json_object_set_new(object, "flip_probability", json_real(view->flip_probability));
    return object;
}

/* Returns what was chosen of the samples, whose number now stands beside it. */
static json_t *choice_json(const SampleChoice *choice)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:I}", "digest", choice->digest, "train_samples_of",
                               (json_int_t)choice->train_of, "val_samples_of",
                               (json_int_t)choice->evaluation_of, "classes_of", (json_int_t)choice->class_of);
    if (choice->evaluation_digest[0])
        (void)json_object_set_new(object, "val_digest", json_string(choice->evaluation_digest));
    return object;
}

/* Returns the sets of the run, where it has several: what they are, and what of them is used. */
static json_t *sets_json(const TrainingData *data)
{
    const TrainingSets *sets = &data->sets;
    json_t *array = json_array();
    for (size_t i = 0; i < sets->count; i++) {
        const FshDataset *member = fsh_member(data->dataset, i);
        const uint64_t samples = data->train ? set_samples(data->train, i) : 0;
        const double weight = sets->weights ? sets->weights[i] : 1;
        json_t *object =
            json_pack("{s:o, s:o, s:s, s:f, s:I, s:I, s:I}", "name", json_text(sets->names[i]), "path",
                      json_text(fsh_path(member)), "dataset_id", fsh_manifest(member)->id, "weight", weight,
                      "train_samples", (json_int_t)samples, "epoch_samples",
                      (json_int_t)(sets->weights ? set_draws(weight, samples) : samples), "val_samples",
                      (json_int_t)(data->evaluation ? set_samples(data->evaluation, i) : 0));
        (void)json_array_append_new(array, object);
    }
    return array;
}

/* Returns what was chosen where the options left it open, and the facts of the dataset. */
static json_t *plan_json(const Session *session)
{
    const TrainPlan *plan = &session->plan;
    json_t *mean = json_array(), *deviation = json_array();
    for (uint32_t c = 0; c < session->data.channels; c++) {
        (void)json_array_append_new(mean, json_real(plan->recipe.mean[c]));
        (void)json_array_append_new(deviation, json_real(plan->recipe.deviation[c]));
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:I, s:s}",
        "model", plan->model->name, "opt", optimizer_names[plan->recipe.optimizer.kind], "loss",
        loss_names[plan->recipe.loss], "batch_size", (json_int_t)plan->train_spec.batch, "val_batch_size",
        (json_int_t)plan->evaluation_spec.batch, "steps_per_epoch", (json_int_t)plan->steps_per_pass,
        "train_samples", (json_int_t)plan->train_count, "val_samples", (json_int_t)plan->evaluation_count,
        "lr", plan->schedule.base, "warmup_steps", (json_int_t)plan->schedule.warmup_steps, "jobs",
        plan->threads, "workers", plan->workers, "train", view_json(&plan->train_augmentation), "val",
        view_json(&plan->evaluation_augmentation), "mean", mean, "std", deviation, "classes",
        (json_int_t)session->data.class_count, "parameters",
        (json_int_t)graph_parameter_count(network_graph(&session->network)), "dataset_id",
        fsh_manifest(session->data.dataset)->id);
    (void)json_object_set_new(object, "amp", json_string(plan_amp_name(plan->recipe.compute_type)));
    if (plan->train_count)
        (void)json_object_set_new(
            object, "trained_parameters",
            json_integer((json_int_t)graph_trained_count(network_graph(&session->network))));
    if (plan->train_count)
        (void)json_object_set_new(object, "weight_decay", json_real(plan->recipe.optimizer.weight_decay));
    if (plan->train_count && plan->recipe.optimizer.kind == OPTIMIZER_MUON)
        (void)json_object_set_new(
            object, "muon_parameters",
            json_integer((json_int_t)muon_parameter_count(network_graph(&session->network))));
    if (plan->world_size > 1) {
        (void)json_object_set_new(object, "ranks", json_integer((json_int_t)plan->world_size));
        (void)json_object_set_new(object, "total_batch_size",
                                  json_integer((json_int_t)plan_total_batch(plan)));
    }
    if (session->data.sets.count > 1)
        (void)json_object_set_new(object, "sets", sets_json(&session->data));
    if (session->data.choice.made)
        (void)json_object_set_new(object, "choice", choice_json(&session->data.choice));
    if (session->data.evaluation)
        (void)json_object_set_new(object, "val_split", json_string(session->data.evaluation->info->name));
    return object;
}

/* Appends a line feed, with which a text file ends. */
static FshStatus end_line(char **text, FshError *error)
{
    const size_t length = strlen(*text);
    char *longer = realloc(*text, length + 2);
    if (!longer) {
        free(*text);
        *text = NULL;
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for args.json");
    }
    memcpy(longer + length, "\n", 2);
    *text = longer;
    return FSH_OK;
}

FshStatus describe_arguments(const TrainOptions *options, const Session *session, char **text_ret,
                             FshError *error)
{
    json_t *object = json_object();
    (void)json_object_set_new(object, "version", json_string(FSHARD_VERSION));
    (void)json_object_set_new(object, "device", json_string(backend_description(session->network.backend)));
    int failed = set_options(object, options);
    failed |= json_object_set_new(object, "chosen", plan_json(session));
    *text_ret = failed ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(object);
    return *text_ret ? end_line(text_ret, error)
                     : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for args.json");
}

/* ---- the network ---- */

static bool is_read_before(const Graph *graph, NodeId id, TensorId tensor)
{
    for (NodeId earlier = 0; earlier < id; earlier++)
        for (int i = 0; i < graph_node(graph, earlier)->input_count; i++)
            if (graph_node(graph, earlier)->inputs[i] == tensor)
                return true;
    return false;
}

/* Returns how many numbers the parameters are that the node is the first to read: a norm in two nodes has its
 * own once. */
static int64_t node_parameters(const Graph *graph, NodeId id)
{
    const Node *node = graph_node(graph, id);
    int64_t count = 0;
    for (int i = 0; i < node->input_count; i++) {
        const TensorId tensor = node->inputs[i];
        if (tensor != TENSOR_NONE && graph_tensor(graph, tensor)->role == TENSOR_PARAMETER &&
            !is_read_before(graph, id, tensor))
            count += tensor_count(graph_tensor(graph, tensor));
    }
    return count;
}

/* Returns how many nodes a forward pass has: what follows the loss is backward. */
static size_t forward_count(const Graph *graph)
{
    const TensorId loss = graph_find(graph, "loss");
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        if (graph_node(graph, (NodeId)i)->outputs[0] == loss)
            return i + 1;
    }
    return graph_node_count(graph);
}

/* Returns the bytes of the first `depth` parts of a layer's name: those of layer1.0 in layer1.0.conv1 of
 * two. */
static size_t stage_bytes(const char *name, int depth)
{
    size_t bytes = 0;
    while (name[bytes] && (name[bytes] != '.' || --depth > 0))
        bytes++;
    return bytes;
}

/* Returns whether the names of two nodes have the same first parts. */
static bool same_stage(const Graph *graph, size_t a, size_t b, int depth)
{
    const char *one = graph_node(graph, (NodeId)a)->name, *other = graph_node(graph, (NodeId)b)->name;
    const size_t bytes = stage_bytes(one, depth);
    return stage_bytes(other, depth) == bytes && memcmp(one, other, bytes) == 0;
}

/* Returns whether a node has no parameters and its name is that of a stage that stands before the node
 * `first`: it belongs to what comes after, as the pool and the pad of a shortcut do. */
static bool is_between(const Graph *graph, size_t node, size_t first, int depth)
{
    if (node_parameters(graph, (NodeId)node))
        return false;
    for (size_t i = 0; i < first; i++)
        if (same_stage(graph, i, node, depth))
            return true;
    return false;
}

/* Returns the first node after those of the stage that begins with the node: neighbours whose names have the
 * same first parts, and a few between them that are named after what they read. The last node, which is the
 * loss, stands alone, and with depth 0 each does. */
static size_t stage_end(const Graph *graph, size_t first, size_t count, int depth)
{
    enum { BETWEEN_MAX = 4 };
    size_t end = first + 1;
    for (size_t at = end; depth && at + 1 < count && at - end <= BETWEEN_MAX; at++) {
        if (same_stage(graph, first, at, depth))
            end = at + 1;
        else if (!is_between(graph, at, first, depth))
            break;
    }
    return end;
}

/* Returns the bytes of the name of the nodes from first to before end: the parts that the names of all of its
 * stage begin with, which tell encoders.0 from encoders.1 where something else stands between them. */
static size_t shared_bytes(const Graph *graph, size_t first, size_t end, int depth)
{
    const char *name = graph_node(graph, (NodeId)first)->name;
    size_t bytes = strlen(name);
    for (size_t i = first + 1; i < end; i++) {
        const char *other = graph_node(graph, (NodeId)i)->name;
        while (same_stage(graph, first, i, depth) && bytes &&
               (strncmp(name, other, bytes) != 0 || (other[bytes] && other[bytes] != '.')))
            for (bytes--; bytes && name[bytes] != '.';)
                bytes--;
    }
    return bytes;
}

/* Returns by how many parts of their names layers are summed up in a table of a few rows; 0: there are few
 * layers, and each has its row. */
static int stage_depth(const Graph *graph, size_t count)
{
    enum { LAYERS_MAX = 30, ROWS_MAX = 12, DEPTH_MAX = 4 };
    for (int depth = count > LAYERS_MAX ? DEPTH_MAX : 0; depth > 1; depth--) {
        size_t rows = 0;
        for (size_t first = 0; first < count; first = stage_end(graph, first, count, depth))
            rows++;
        if (rows <= ROWS_MAX)
            return depth;
    }
    return count > LAYERS_MAX;
}

/* Prints a row for the nodes from first to before end, of which depth parts of the names are the same. */
static void print_stage(const Graph *graph, size_t first, size_t end, int depth, double images, FILE *stream)
{
    const Node *node = graph_node(graph, (NodeId)first), *last = graph_node(graph, (NodeId)end - 1);
    char operation[32], shape[96] = "", parameters[24] = "", flops[24] = "";
    const size_t name_bytes = shared_bytes(graph, first, end, depth);
    int64_t count = 0;
    double mega = 0;
    for (size_t i = first; i < end; i++) {
        count += node_parameters(graph, (NodeId)i);
        mega += (double)graph_node_flops(graph, (NodeId)i) / 1e6 / images;
    }
    if (end - first > 1)
        (void)snprintf(operation, sizeof operation, "%zu layers", end - first);
    else
        (void)snprintf(operation, sizeof operation, "%s", op_name(node->op));
    if (last->output_count > 0)
        (void)tensor_shape_text(graph_tensor(graph, last->outputs[0]), shape, sizeof shape);
    if (count)
        (void)snprintf(parameters, sizeof parameters, "%" PRId64, count);
    if (mega > 0)
        (void)snprintf(flops, sizeof flops, "%.3f", mega);
    (void)fprintf(stream, "%-38.*s %-22s %-22s %12s %12s\n", (int)name_bytes, node->name, operation, shape,
                  parameters, flops);
}

void describe_plans(const Session *session, FILE *stream)
{
    const Network *network = &session->network;
    const size_t sizes = session->plan.edge_count;
    const NetworkProgram *part =
        sizes ? &network->train[sizes - 1] : &network->evaluation[NETWORK_TRAINED][0];
    for (size_t n = 0; n < graph_node_count(part->graph); n++) {
        const Node *node = graph_node(part->graph, (NodeId)n);
        const char *plan = program_node_plan(part->program, (NodeId)n);
        if (*plan)
            (void)fprintf(stream, "%-38s %-22s %s\n", node->name, op_name(node->op), plan);
    }
}

void describe_network(const Session *session, bool whole, FILE *stream)
{
    const Graph *graph = network_graph(&session->network);
    const TrainPlan *plan = &session->plan;
    const ModelSpec *spec = plan->edge_count ? &plan->train_spec : &plan->evaluation_spec;
    const double images = (double)spec->batch;
    const size_t count = forward_count(graph);
    const int depth = whole ? 0 : stage_depth(graph, count);
    (void)fprintf(stream, "%-38s %-22s %-22s %12s %12s\n", "layer", "operation", "output", "parameters",
                  "MFLOP/image");
    for (size_t first = 0, end; first < count; first = end) {
        end = stage_end(graph, first, count, depth);
        print_stage(graph, first, end, depth, images, stream);
    }
    (void)fprintf(stream, "%-38s %-22s %-22s %12" PRId64 " %12.3f\n", "total", "", "",
                  graph_parameter_count(graph), (double)graph_forward_flops(graph) / 1e6 / images);
    if (graph_trained_count(graph) < graph_parameter_count(graph))
        (void)fprintf(stream, "%-38s %-22s %-22s %12" PRId64 "\n", "trained", "", "",
                      graph_trained_count(graph));
    if (muon_parameter_count(graph) > 0)
        (void)fprintf(stream, "%-38s %-22s %-22s %12" PRId64 "\n", "moved by muon", "", "",
                      muon_parameter_count(graph));
    if (depth)
        (void)fprintf(stream, "(each of the %zu layers: --verbose)\n", count);
    (void)fputc('\n', stream);

    memory_table_print(session, stream);
}

/* Returns the whole run as JSON. expected: NULL if nothing could be timed. */
static json_t *run_json(const TrainOptions *options, const Session *session, const ExpectedTime *expected)
{
    json_t *object = json_object();
    (void)set_options(object, options);
    (void)json_object_set_new(object, "memory", memory_table_json(session));
    (void)json_object_set_new(object, "disk_bytes",
                              json_integer((json_int_t)run_space_needed(session, options).total_bytes));
    if (expected) {
        (void)json_object_set_new(object, "step_seconds", json_measured(expected->step_seconds));
        (void)json_object_set_new(object, "expected_seconds",
                                  json_measured(expected->training_seconds + expected->evaluation_seconds));
    }
    if (json_object_set_new(object, "chosen", plan_json(session))) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static void print_steps(const Session *session, const TrainOptions *options)
{
    char bytes[32];
    (void)printf("%-38s %12s\n", "on disk, at most",
                 progress_format_bytes(bytes, sizeof bytes, run_space_needed(session, options).total_bytes));
    const TrainPlan *plan = &session->plan;
    if (plan_counts_iterations(plan))
        (void)printf(
            "\n%" PRIu64 " iteration%s, an epoch is %.4g: ", plan_iterations(plan, plan->total_steps),
            text_plural(plan_iterations(plan, plan->total_steps)),
            (double)plan->steps_per_pass / (double)plan->iteration_steps);
    else
        (void)printf("\n%" PRIu64 " epoch%s of %" PRIu64 " step%s: ", plan->epochs, text_plural(plan->epochs),
                     plan->steps_per_epoch, text_plural(plan->steps_per_epoch));
    (void)printf("%" PRIu64 " step%s in all; evaluation %" PRIu64 " step%s\n", plan->total_steps,
                 text_plural(plan->total_steps), plan->evaluation_steps, text_plural(plan->evaluation_steps));
    if (plan->world_size > 1)
        (void)printf("a step takes %" PRIu64 " image%s: %" PRId64 " on each of %" PRIu64 " ranks\n",
                     plan_total_batch(plan), text_plural(plan_total_batch(plan)), plan->train_spec.batch,
                     plan->world_size);
}

/* Tells what was decided, and what a run by these options would meet: that goes on from the checkpoint,
 * which is read as that run would read it, or that begins ("" for checkpoint). Sets *from to where. */
static FshStatus describe_begin(Session *session, const TrainOptions *options, const char *checkpoint,
                                RunState *from, FshError *error)
{
    FshError refusal = {0}; /* a run that writes nothing only warns */
    RunShape before;
    *from = (RunState){0};
    FshStatus status =
        checkpoint[0] ? run_resume(checkpoint, session, options, from, &before, error) : FSH_OK;
    if (status)
        return status;
    session_describe(session);
    if (checkpoint[0])
        run_resume_tell(session, checkpoint, from, &before);
    else
        session_describe_begin(session);
    if (options->output && !options->checkpoint.resume &&
        record_check_folder(options->output, options->force, &refusal) != FSH_OK)
        console_warning(&session->console, "%s", refusal.message);
    return FSH_OK;
}

/* Describes a CUDA run on a machine without a GPU, for instance the login host of a cluster; the build must
 * know CUDA. why: the error of session_open. */
static FshStatus describe_without_device(const TrainOptions *options, const char *checkpoint, FshError *why)
{
    Session session;
    RunState from;
    unsigned fusions = 0;
    const FshError without = *why;
    FshStatus status = backend_foresee("cuda", NULL, &fusions, NULL, why);
    if (status)
        return status;
    status = session_open(&session, options, SESSION_LOAD, why);
    if (status)
        return status;
    status = plan_fusions(&session.plan, options, fusions, why);
    if (!status)
        status = network_foresee(&session.network, &session.plan, why);
    if (!status)
        status = describe_begin(&session, options, checkpoint, &from, why);
    if (!status) {
        console_warning(&session.console, "%s", without.message);
        console_warning(&session.console, "foreseen without a GPU: scratch memory of its libraries, images "
                                          "that lie there, and the time of a step are not known");
    }
    if (!status && options->program.json) {
        status = describe_print_json(run_json(options, &session, NULL), why);
    } else if (!status) {
        describe_network(&session, options->program.verbose, stdout);
        print_steps(&session, options);
    }
    session_close(&session);
    return status;
}

static bool lacks_device(const TrainOptions *options, FshStatus status)
{
    int count = 0;
    return status == FSH_ERR_UNSUPPORTED && options->compute.device == DEVICE_CUDA &&
           backend_device_count("cuda", &count, NULL) == FSH_ERR_UNSUPPORTED;
}

/* Says that a step is timed, where that is likely to take more than a second or two: a core of a CPU does
 * some 50 GFLOP a second. */
static void tell_timing(Session *session)
{
    const double core_flops = 5e10, long_seconds = 2;
    const TrainPlan *plan = &session->plan;
    const double flops = expect_step_flops(session);
    if (plan->device == DEVICE_CPU && flops / (core_flops * plan->threads) > long_seconds)
        console_line(&session->console,
                     "timing a step of %" PRId64 " image%s, %.3g TFLOP; Ctrl-C ends this at once",
                     plan->train_spec.batch, text_plural((uint64_t)plan->train_spec.batch), flops / 1e12);
}

/* Prints, of a run that memory does not hold, the tables that say where it would go. The refusal follows. */
static void describe_refused(const Session *session, const TrainOptions *options)
{
    if (options->program.json) {
        (void)describe_print_json(run_json(options, session, NULL), NULL);
    } else {
        describe_network(session, options->program.verbose, stdout);
        print_steps(session, options);
    }
    (void)fflush(stdout);
}

FshStatus describe_run(const TrainOptions *given, FshError *error)
{
    Session session;
    TrainOptions own = *given;
    const TrainOptions *options = &own;
    char checkpoint[PATH_MAX];
    interrupt_take_at_once(); /* there is nothing to save */
    FshStatus status = run_resume_find(options, checkpoint, sizeof checkpoint, error);
    if (status)
        return status;
    if (checkpoint[0])
        run_resume_take(checkpoint, &own);
    status = session_open(&session, options, SESSION_TRAIN, error);
    if (lacks_device(options, status))
        return describe_without_device(options, checkpoint, error);
    if (status)
        return status;
    ExpectedTime expected;
    RunState from;
    status = describe_begin(&session, options, checkpoint, &from, error);
    if (status)
        goto done;
    if (session.refusal.status) {
        status = session.refusal.status;
        *error = session.refusal;
    } else if (session.plan.source->residence != PIXELS_DECODED_AT_USE) /* batches are made from it */
        status = session_cache(&session, error);
    /* On a GPU the steps settle what the network takes. */
    const bool early = !status && session.plan.device == DEVICE_CPU && !options->program.json;
    if (early)
        describe_network(&session, options->program.verbose, stdout);
    (void)fflush(stdout);
    if (!status)
        tell_timing(&session);
    if (!status)
        status = expect_time(&session, &from, &expected, error);
    if (status == FSH_ERR_MEMORY && !early) {
        describe_refused(&session, options);
    } else if (!status && options->program.json) {
        status = describe_print_json(run_json(options, &session, &expected), error);
    } else if (!status) {
        char training[32], evaluation[32];
        if (!early)
            describe_network(&session, options->program.verbose, stdout);
        if (options->program.verbose)
            describe_plans(&session, stdout);
        print_steps(&session, options);
        (void)printf("a step takes %.3f s on this machine now%s: %straining about %s, evaluation about %s\n",
                     expected.step_seconds,
                     session.plan.world_size > 1 ? ", without the exchange between the ranks" : "",
                     checkpoint[0] ? "what is left of " : "",
                     progress_format_duration(training, sizeof training, expected.training_seconds),
                     progress_format_duration(evaluation, sizeof evaluation, expected.evaluation_seconds));
    }
done:
    session_close(&session);
    return status;
}

/* ---- --list-models ---- */

/* A column of the list: the images that networks are made for. */
typedef struct ListedSize {
    int64_t edge, channels, classes;
    FshKind kind; /* 0: any */
} ListedSize;

typedef struct ListedCost {
    bool fits;
    int64_t parameter_count;
    double giga_flops;
} ListedCost;

static ListedCost cost_of(const Model *model, const ListedSize *size)
{
    const ModelSpec spec = {.batch = 1,
                            .height = size->edge,
                            .width = size->edge,
                            .channels = size->channels,
                            .classes = size->classes};
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1},
                                .loss = model->task == TASK_RESTORATION ? LOSS_MSE : LOSS_CROSS_ENTROPY};
    Graph *graph = NULL;
    if (size->kind && size->kind != plan_kind_of(model))
        return (ListedCost){0};
    if (model_graph(model, &spec, &recipe, &graph, NULL) != FSH_OK)
        return (ListedCost){0};
    const ListedCost cost = {.fits = true,
                             .parameter_count = graph_parameter_count(graph),
                             .giga_flops = (double)graph_forward_flops(graph) / 1e9};
    graph_free(&graph);
    return cost;
}

static FshStatus listed_dataset(const TrainOptions *options, ListedSize *size, FshError *error)
{
    TrainingData data;
    TrainPlan plan;
    const Model *model = NULL;
    const TrainingDataSource source = train_options_source(options, 0);
    FshStatus status = training_data_open(&data, &source, error);
    if (status)
        return status;
    status = plan_model(options, data.kind, &model, error);
    if (!status)
        status = plan_make(&plan, options, model, &data, error);
    if (!status)
        *size = (ListedSize){plan.train_spec.height, plan.train_spec.channels, plan.train_spec.classes,
                             data.kind};
    training_data_close(&data);
    return status;
}

static json_t *cost_json(const ListedSize *size, const ListedCost *cost)
{
    if (!cost->fits)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:f}", "size", (json_int_t)size->edge, "channels",
                     (json_int_t)size->channels, "classes", (json_int_t)size->classes, "parameters",
                     (json_int_t)cost->parameter_count, "gflop", cost->giga_flops);
}

static FshStatus list_json(const ListedSize *sizes, size_t size_count, FshError *error)
{
    json_t *list = json_array();
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        json_t *costs = json_array();
        for (size_t i = 0; i < size_count; i++) {
            const ListedCost cost = cost_of(model, &sizes[i]);
            (void)json_array_append_new(costs, cost_json(&sizes[i], &cost));
        }
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", model->name, "summary",
                                                    model->summary, "costs", costs));
    }
    return describe_print_json(list, error);
}

/* Returns the columns that names of networks take, at least 12. */
static int longest_name(void)
{
    size_t longest = 12;
    const Model *model = NULL;
    for (size_t i = 0; (model = model_at(i)); i++)
        if (strlen(model->name) > longest)
            longest = strlen(model->name);
    return (int)longest;
}

FshStatus describe_models(const TrainOptions *options, FshError *error)
{
    /* CIFAR's and ImageNet's images, unless a dataset is given. */
    ListedSize sizes[] = {{32, 3, 10, 0}, {224, 3, 1000, 0}};
    size_t size_count = 2;
    if (options->shards) {
        FshStatus status = listed_dataset(options, &sizes[0], error);
        if (status)
            return status;
        size_count = 1;
    }
    if (options->program.json)
        return list_json(sizes, size_count, error);
    const int name_width = longest_name();
    (void)printf("%-*s", name_width, "");
    for (size_t i = 0; i < size_count; i++)
        (void)printf("  %8" PRId64 " px, %4" PRId64 " classes", sizes[i].edge, sizes[i].classes);
    (void)printf("\n%-*s", name_width, "network");
    for (size_t i = 0; i < size_count; i++)
        (void)printf("  %12s %11s", "parameters", "GFLOP");
    (void)printf("\n");
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        (void)printf("%-*s", name_width, model->name);
        for (size_t i = 0; i < size_count; i++) {
            const ListedCost cost = cost_of(model, &sizes[i]);
            if (cost.fits)
                (void)printf("  %10.2f M %11.4f", (double)cost.parameter_count / 1e6, cost.giga_flops);
            else
                (void)printf("  %12s %11s", "-", "-");
        }
        (void)printf("  %s\n", model->summary);
    }
    (void)printf(
        "\nGFLOP: of the forward pass of one image, a multiply-add being two; torchvision's \"GFLOPS\" and "
        "papers' GMACs count it as one.\n");
    return FSH_OK;
}
