#include "trainer/session/session.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/path.h"
#include "common/progress.h"
#include "common/resolve.h"
#include "common/text.h"
#include "trainer/backend/gpu_signs.h"
#include "trainer/data/capital_splits.h"
#include "trainer/data/class_weights.h"
#include "trainer/graph/muon.h"
#include "trainer/plan/plan_loader.h"
#include "trainer/plan/recipe.h"
#include "trainer/session/memory_table.h"
#include "trainer/session/ranks_alike.h"
#include "trainer/session/session_alike.h"
#include "trainer/session/session_batch.h"
#include "trainer/session/session_cores.h"
#include "trainer/session/session_weights.h"

enum { PROBLEMS_TOLD_MAX = 20 }; /* one by one; a broken disk would fill the log */

FshStatus session_loader_options(const Session *session, bool training, LoaderOptions *options,
                                 uint32_t **sizes_ret, FshError *error)
{
    FshStatus status =
        plan_loader_options(&session->plan, &session->data, training, options, sizes_ret, error);
    options->source = session->sources[training ? 0 : 1];
    return status;
}

static FshStatus open_loader(Session *session, bool training, Loader **loader, FshError *error)
{
    LoaderOptions options;
    uint32_t *sizes = NULL;
    FshStatus status = session_loader_options(session, training, &options, &sizes, error);
    if (!status)
        status = loader_new(loader, &options, error);
    free(sizes);
    return status;
}

/* Opens where the pixels of a split come from. Without evaluation loaders its samples stay records. */
static FshStatus open_source(Session *session, bool training, SessionUse use, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    LoaderOptions loader;
    uint32_t *sizes = NULL;
    FshStatus status = session_loader_options(session, training, &loader, &sizes, error);
    free(sizes);
    if (status)
        return status;
    const PixelSourceType *type = training              ? plan->source
                                  : use == SESSION_LOAD ? pixel_source_type("records")
                                                        : plan_evaluation_source(plan);
    const PixelSourceOptions options = {.samples = {.split = loader.split,
                                                    .kind = loader.kind,
                                                    .input_field = loader.input_field,
                                                    .target_field = loader.target_field,
                                                    .mask_classes = loader.mask_classes,
                                                    .label_places = loader.label_places,
                                                    .labels = loader.labels,
                                                    .inputs_alone = loader.inputs_alone},
                                        .channels = loader.augmentation.channels,
                                        .cache = plan->cache,
                                        .threads = plan->threads,
                                        /* one that only a part of is damaged stays with the loader */
                                        .skip_bad = loader.skip_bad && !plan->cache_follows,
                                        .team = session->communicator ? &session->team.team : NULL,
                                        .backend = session->network.backend};
    return pixel_source_new(&session->sources[training ? 0 : 1], type, &options, error);
}

FshStatus session_open_sources(Session *session, SessionUse use, FshError *error)
{
    FshStatus status = session->data.train ? open_source(session, true, use, error) : FSH_OK;
    if (!status && session->data.evaluation)
        status = open_source(session, false, use, error);
    return status;
}

FshStatus session_open_loaders(Session *session, FshError *error)
{
    FshStatus status = session->data.train ? open_loader(session, true, &session->train, error) : FSH_OK;
    if (!status && session->data.evaluation)
        status = open_loader(session, false, &session->evaluation, error);
    return status;
}

/* Sets *kind_ret to the kind of dataset that the network takes; 0: any. */
static FshStatus wanted_kind(const TrainOptions *options, const Model *named, FshKind *kind_ret,
                             FshError *error)
{
    const Model *model = named;
    *kind_ret = 0;
    if (!model && options->model) {
        FshStatus status = plan_model(options, 0, &model, error);
        if (status)
            return status;
    }
    if (model)
        *kind_ret = plan_kind_of(model);
    return FSH_OK;
}

/* Takes the normalisation that the weights were trained with, whatever the dataset's mean is. */
static void take_normalisation(Session *session, const WeightsOrigin *origin)
{
    ModelRecipe *recipe = &session->plan.recipe;
    if (!origin->normalised || origin->channels != session->data.channels)
        return;
    session->weights_normalise = true;
    memcpy(recipe->mean, origin->mean, sizeof recipe->mean);
    memcpy(recipe->deviation, origin->deviation, sizeof recipe->deviation);
}

/* Sets the interpolation to that which the weights were evaluated with, unless the user gave one. */
static void take_interpolation(TrainOptions *options, const WeightsOrigin *origin)
{
    if (train_given(options, &options->views.interpolation) || !origin->interpolation)
        return;
    for (int i = 0; interpolation_names[i]; i++)
        if (strcmp(origin->interpolation, interpolation_names[i]) == 0)
            options->views.interpolation = (Interpolation)i;
}

/* Sets the evaluation sizes to those that the weights were evaluated with, if the user set none; --crop-pct
 * leaves the crop. */
static void take_sizes(TrainOptions *options, const WeightsOrigin *origin)
{
    enum { LARGEST = 4096 };
    const bool told = options->image.train_crop_size || options->image.val_crop_size ||
                      options->image.val_resize_size || options->image.progressive;
    if (told || !origin->crop || origin->resize < origin->crop || origin->resize > LARGEST)
        return;
    options->image.val_crop_size = origin->crop;
    options->image.val_resize_size = options->image.crop_pct > 0 ? 0 : origin->resize;
}

/* Tells why no GPU computes, or notes it for the line of the device where that is no surprise. status: of the
 * GPU here, with its error. */
static void tell_why_cpu(Session *session, FshStatus status, const FshError *why)
{
    const GpuSigns signs = gpu_signs("");
    if (!status)
        session->why_cpu = "; the GPU of another rank cannot be used";
    else if (signs == GPU_SIGNS_THERE)
        console_warning(&session->console, "the CPU computes, for the GPU cannot: %s", why->message);
    else
        session->why_cpu =
            signs == GPU_SIGNS_HIDDEN ? "; no GPU: CUDA_VISIBLE_DEVICES hides all" : "; no NVIDIA GPU found";
}

/* Opens the backend that the options name. "auto" takes the best that works on all ranks and never fails for
 * lack of a GPU, but tells why there is none. */
static FshStatus open_backend(Session *session, Backend **backend, const TrainOptions *options,
                              FshError *error)
{
    Communicator *communicator = session->communicator;
    PlanBackend wanted;
    FshError why = {0};
    plan_backend(&wanted, options);
    if (options->compute.device != OPTION_AUTO)
        return ranks_agree(
            communicator,
            backend_open(backend, train_device_name(options->compute.device), &wanted.options, error), error);
    const FshStatus status = backend_open(backend, "cuda", &wanted.options, &why);
    if (ranks_agree(communicator, status, NULL) == FSH_OK)
        return FSH_OK;
    tell_why_cpu(session, status, &why);
    backend_close(backend); /* of a rank whose GPU works */
    return backend_open(backend, "cpu", &wanted.options, error);
}

/* Refuses an output folder that lies in a dataset's folder. In class folders that nobody has packed, the next
 * run would take it for a class. A packed one would not be packed again with it there; the folder itself is
 * refused elsewhere, and a run that is there already, by an earlier version, goes on. */
static FshStatus check_output_outside(const FshDataset *dataset, const TrainOptions *options, FshError *error)
{
    const bool files = fsh_container_has(fsh_manifest(dataset)->container, FSH_HAS_FILES);
    char source[PATH_MAX], target[PATH_MAX];
    if (!options->output || !file_is_folder(fsh_path(dataset)) || !realpath(fsh_path(dataset), source))
        return FSH_OK;
    if (!path_resolve(options->output, target))
        return fsh_error_system(error, errno ? errno : ENAMETOOLONG, "%s", options->output);
    const bool stays = strcmp(target, source) == 0 || (options->checkpoint.resume && file_exists(target));
    if (!path_lies_in(target, source) || (!files && stays))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: lies in SHARDS, %s, %s; choose a folder outside",
                         options->output, fsh_path(dataset),
                         files ? "where it would be taken for a class"
                               : "which is to hold the dataset alone");
}

/* Opens the dataset that the options name, with the kind that the network takes. */
static FshStatus open_dataset(Session *session, const TrainOptions *options, SessionUse use,
                              const Model **model_ret, FshError *error)
{
    const bool evaluates = use == SESSION_EVALUATE;
    const WeightsOrigin *origin = &session->origin;
    FshKind kind = 0;
    FshStatus status = wanted_kind(options, evaluates ? origin->model : NULL, &kind, error);
    TrainingDataSource source = train_options_source(options, kind);
    if (evaluates)
        source.train_split = NULL;
    if (!status)
        status = training_data_open(&session->data, &source, error);
    for (size_t i = 0; !status && i < fsh_member_count(session->data.dataset); i++)
        status = check_output_outside(fsh_member(session->data.dataset, i), options, error);
    if (!status && !evaluates)
        status = plan_set_weights(&session->data.sets, &options->sets, error);
    if (status)
        return status;
    return session_choose_model(session, options, use, model_ret, error);
}

/* Makes the weights of the classes that the options ask for. What has none is refused by plan_check. */
static FshStatus weigh_classes(TrainingData *data, const TrainingOptions *options, FshError *error)
{
    const bool classes = data->train && data->kind == FSH_KIND_CLASSES && data->label_kind != LABELS_NUMBERS;
    FshStatus status = FSH_OK;
    if (classes && options->class_weights)
        status = class_weights_make(&data->class_weights, CLASS_WEIGHTS, options->class_weights, data, error);
    if (!status && classes && options->pos_weight && data->label_kind == LABELS_MANY)
        status =
            class_weights_make(&data->positive_weights, POSITIVE_WEIGHTS, options->pos_weight, data, error);
    return status;
}

/* Opens dataset, backend and plan. Sets *backend, which must exist before the plan, since the plan depends on
 * the device; NULL for SESSION_LOAD. */
static FshStatus open_data(Session *session, const TrainOptions *options, SessionUse use, Backend **backend,
                           FshError *error)
{
    WeightsOrigin *origin = &session->origin;
    TrainOptions settled = *options;
    const Model *model = NULL;
    FshStatus status = options->weights ? weights_origin(options->weights, origin, error) : FSH_OK;
    if (!status)
        status = options->images ? session_take_images(session, options, &model, error)
                                 : open_dataset(session, options, use, &model, error);
    if (!status)
        status = session_map_classes(session, options, use, error);
    if (!status)
        status = training_data_name_classes(&session->data, error);
    if (!status)
        status = weigh_classes(&session->data, &options->training, error);
    if (!status && model == origin->model)
        model_take_shape(&settled.network, &origin->options);
    if (!status && use == SESSION_EVALUATE && model->task == TASK_CLASSIFICATION) {
        take_sizes(&settled, origin);
        take_interpolation(&settled, origin);
    }
    if (session->communicator)
        status = ranks_agree(session->communicator, status, error);
    if (!status && use != SESSION_LOAD)
        status = open_backend(session, backend, options, error);
    if (!status && *backend)
        settled.compute.device =
            strcmp((*backend)->interface->device, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    if (!status) { /* before the network is built, whose errors begin with the size of the images */
        recipe_leave_out(&settled, model);
        status = model_check_options(model, &settled.network, error);
    }
    if (!status)
        status = plan_make(&session->plan, &settled, model, &session->data, error);
    if (session->communicator)
        status = ranks_agree(session->communicator, status, error);
    if (!status)
        status = session_choose_batch(session, &settled, *backend, error);
    if (!status && *backend)
        status = plan_fusions(&session->plan, options, backend_fusions(*backend), error);
    if (!status && use == SESSION_EVALUATE)
        take_normalisation(session, origin);
    return status;
}

/* Says that weights are drawn, where that is likely to take more than a second or two: a core draws some
 * fifty million a second. */
static void tell_drawing(Session *session)
{
    const double core_weights = 5e7, long_seconds = 2;
    const TrainPlan *plan = &session->plan;
    const double count = (double)graph_parameter_count(network_graph(&session->network));
    if (plan->rank == 0 && plan->device == DEVICE_CPU &&
        count / (core_weights * plan->threads) > long_seconds)
        console_line(&session->console, "%s: drawing %.0f M weights", plan->model->name, count / 1e6);
}

static FshStatus open_network(Session *session, const TrainOptions *options, SessionUse use,
                              Backend **backend, FshError *error)
{
    Network *network = &session->network;
    FshStatus status = network_open(network, backend, &session->plan, error);
    if (status == FSH_ERR_MEMORY && options->program.dry_run) {
        session->refusal = *error;
        *error = (FshError){0};
        return network_foresee(network, &session->plan, error);
    }
    if (!status)
        tell_drawing(session);
    if (!status)
        status = network_initialize(network, session->plan.seed, error);
    if (!status && options->weights)
        status = session_load_weights(session, use, error);
    return status;
}

enum { MISSING_RANK_SECONDS = 10 }; /* before the first rank tells who is missing */

static void tell_who_is_missing(void *context, const char *text)
{
    Session *session = context;
    console_warning(&session->console, "%s", text);
}

/* Finds this rank's place and connects the ranks. A session that only loads has one rank, unless it foresees
 * what several would do (--dry-run), which then are not met. */
static FshStatus join_ranks(Session *session, TrainOptions *options, SessionUse use, FshError *error)
{
    CommunicatorOptions meeting = {
        .hint = {.after_seconds = MISSING_RANK_SECONDS, .tell = tell_who_is_missing, .context = session},
        .timeout_seconds = options->ranks.timeout,
        .secret = getenv("FSHARD_SECRET")};
    FshStatus status = FSH_OK;
    options->place = (RankPlace){.world_size = 1, .local_world = 1};
    if (use != SESSION_LOAD || options->program.dry_run)
        status = rank_place_from_environment(&options->place, &options->ranks, error);
    session->place = options->place;
    if (rank_place_has_hosts(&options->place) && train_given(options, &options->ranks.timeout) &&
        options->ranks.timeout > COMMUNICATOR_HOSTS_SECONDS) /* containers that come one by one */
        meeting.hint.most_seconds = options->ranks.timeout;
    if (!status && options->place.world_size > 1 && !options->program.dry_run)
        status = communicator_open(&session->communicator, &options->place, &meeting, error);
    if (session->communicator)
        host_team_open(&session->team, session->communicator);
    if (!status && options->place.rank > 0)
        console_set_rank(&session->console, options->place.rank);
    return status;
}

FshStatus session_open(Session *session, const TrainOptions *given, SessionUse use, FshError *error)
{
    TrainOptions own = *given;
    const TrainOptions *options = &own;
    *session = (Session){0};
    console_open(&session->console, stderr, options->program.quiet);
    Backend *backend = NULL;
    FshStatus status = join_ranks(session, &own, use, error);
    if (!status)
        status = session_share_cores(session, &own, error);
    if (!status)
        status = ranks_check_options(session->communicator, options, error);
    if (!status)
        status = ranks_agree(session->communicator, open_data(session, options, use, &backend, error), error);
    session->console.classes = session->data.class_count;
    if (!status)
        status = session_check_alike(session, error);
    if (!status)
        status = session_bind_cores(session, backend, options, error);
    if (!status && session->communicator)
        status = backend_join(backend, session->communicator, error);
    if (!status && use != SESSION_LOAD)
        status =
            ranks_agree(session->communicator, open_network(session, options, use, &backend, error), error);
    if (!status && session->communicator)
        status = session_check_first_weights(session, options->program.verbose, error);
    const bool foreseen = session->refusal.status != FSH_OK;
    if (!status)
        status = session_open_sources(session, foreseen ? SESSION_LOAD : use, error);
    if (!status && use != SESSION_LOAD && !foreseen)
        status = session_open_loaders(session, error);
    if (session->communicator)
        status = ranks_agree(session->communicator, status, error);
    backend_close(&backend); /* NULL if the network has taken it over */
    if (status == FSH_ERR_PEER)
        ranks_tell_once(session->communicator, error);
    if (status)
        session_close(session);
    return status;
}

void session_close(Session *session)
{
    console_clear(&session->console);
    loader_free(&session->train);
    loader_free(&session->evaluation);
    pixel_source_free(&session->sources[0]);
    pixel_source_free(&session->sources[1]);
    network_close(&session->network);
    for (size_t i = 0; session->set_counts && i < session->data.sets.count; i++)
        class_counts_free(&session->set_counts[i]);
    free(session->set_counts);
    training_data_close(&session->data);
    communicator_close(&session->communicator);
    weights_origin_free(&session->origin);
    class_map_free(&session->classes);
    class_counts_free(&session->class_counts);
    label_scores_free(&session->label_scores);
    for (int weights = 0; weights <= NETWORK_AVERAGED; weights++)
        free(session->set_metrics[weights]);
    *session = (Session){0};
}

static void print_plan_line(void *context, const char *line)
{
    console_line(context, "%s", line);
}

/* Warns of pairs, or images and masks, that nobody has packed: they look like two classes. */
static void warn_pairs(Session *session)
{
    char *const *names = fsh_manifest(session->data.dataset)->class_names;
    const int mask = session->data.mask_class;
    if (mask < 0)
        console_warning(&session->console,
                        "the classes '%s' and '%s' hold files of the same names; for image pairs: fpack "
                        "--pairs %s:%s",
                        names[0], names[1], names[0], names[1]);
    else
        console_warning(&session->console,
                        "the classes '%s' and '%s' hold files of the same names; for image pairs: fpack "
                        "--pairs %s:%s, for images and the masks of segmentation: fpack --masks %s:%s",
                        names[0], names[1], names[0], names[1], names[!mask], names[mask]);
}

/* Warns of classes of folders that nobody has packed: two that look like pairs, or those that are most likely
 * splits. */
static void warn_classes(Session *session)
{
    const FshSplit *train = session->data.train;
    bool any = false;
    for (size_t i = 0; i < fsh_manifest(train->dataset)->class_count; i++) {
        const char *name = fsh_manifest(train->dataset)->class_names[i];
        SplitLikeClass like;
        char called[64] = "";
        if (!class_is_like_split(train, i, &like))
            continue;
        any = true;
        const bool is_small = strcmp(name, like.small) == 0;
        if (!is_small)
            (void)snprintf(called, sizeof called, "call the folder %s, in small letters%s", like.small,
                           like.flat ? ", and " : "");
        console_warning(&session->console,
                        "%s: '%s' is taken for a class, of which all its images are; if it is a split, %s%s",
                        fsh_path(train->dataset), name, called,
                        like.flat ? "put its images into folders of their classes" : "");
    }
    if (!any && session->data.paired_names)
        warn_pairs(session);
}

/* Tells how many ranks train, how they were started, and what they share. */
static void describe_ranks(Session *session)
{
    const TrainPlan *plan = &session->plan;
    const RankPlace *place = &session->place;
    const uint64_t hosts = session->communicator ? communicator_host_count(session->communicator)
                                                 : place->world_size / place->local_world;
    char on_hosts[40] = "", shares[96] = "";
    if (hosts > 1)
        (void)snprintf(on_hosts, sizeof on_hosts, " on %llu hosts", (unsigned long long)hosts);
    if (plan->divides_batch)
        (void)snprintf(shares, sizeof shares, ", %swhich they share (--parallel dp)",
                       plan->batch_is_chosen ? "chosen as for one process, " : "");
    console_line(
        &session->console,
        "ranks: %llu%s (%s), one device each: %llu image%s in a step%s, %lld on each; the dataset is "
        "mapped once "
        "for all%s",
        (unsigned long long)plan->world_size, on_hosts, place->launcher,
        (unsigned long long)plan_total_batch(plan), text_plural(plan_total_batch(plan)), shares,
        (long long)plan->train_spec.batch,
        plan->source->residence == PIXELS_IN_RAM ? ", and decoded once for those of a host" : "");
}

void session_describe(Session *session)
{
    const TrainPlan *plan = &session->plan;
    const Graph *graph = network_graph(&session->network);
    const ModelSpec *spec = plan->edge_count ? &plan->train_spec : &plan->evaluation_spec;
    const int64_t by_muon = muon_parameter_count(graph);
    char memory[400], trained[48] = "", muon[40] = "";
    if (graph_trained_count(graph) < graph_parameter_count(graph))
        (void)snprintf(trained, sizeof trained, ", %lld of them trained",
                       (long long)graph_trained_count(graph));
    if (by_muon > 0)
        (void)snprintf(muon, sizeof muon, ", %lld moved by muon", (long long)by_muon);
    console_line(&session->console, "ftrain (fshard) %s", FSHARD_VERSION);
    if (!session->data.inputs_alone) /* for images without a dataset --predict prints the rest */
        plan_describe(plan, &session->data, print_plan_line, &session->console);
    if (plan->rank == 0 && session->data.train && session->data.evaluation &&
        strcmp(session->data.train->info->name, session->data.evaluation->info->name) == 0)
        console_warning(&session->console,
                        "split '%s' is trained on and evaluated: the results say nothing of other images "
                        "(--train-split, --val-split)",
                        session->data.train->info->name);
    if (plan->rank == 0 && session->data.train && session->data.kind == FSH_KIND_CLASSES &&
        !training_data_labels(&session->data, true))
        warn_classes(session);
    console_line(&session->console, "network: %s, %.2f M parameters%s%s, %.3g GFLOP an image forward",
                 plan->model->name, (double)graph_parameter_count(graph) / 1e6, trained, muon,
                 (double)graph_forward_flops(graph) / 1e9 / (double)spec->batch);
    console_line(&session->console, "memory: %s", memory_table_line(session, memory, sizeof memory));
    session_describe_weights(session);
    if (session->weights_normalise)
        console_line(&session->console, "normalisation: that of the weights");
    if (plan->world_size > 1)
        describe_ranks(session);
    if (!session->network.backend) /* the device is only foreseen */
        return;
    char most[64] = "";
    if (plan->workers_most > plan->workers)
        (void)snprintf(most, sizeof most, " (up to %d, as data is waited for)", plan->workers_most);
    console_line(&session->console, "device: %s; loader: %d thread%s%s, %zu batch%s ahead%s",
                 backend_description(session->network.backend), plan->workers,
                 text_plural((uint64_t)plan->workers), most, plan->batches_ahead,
                 plan->batches_ahead == 1 ? "" : "es", session->why_cpu ? session->why_cpu : "");
    const char *warning = backend_warning(session->network.backend);
    if (warning && rank_place_speaks(&session->place))
        console_warning(&session->console, "%s", warning);
}

/* Warns where a run of so few updates leaves an average of weights near what it began with. */
static void warn_average(Session *session)
{
    const TrainPlan *plan = &session->plan;
    const Optimizer *optimizer = &plan->recipe.optimizer;
    const uint64_t each = optimizer->accumulation_steps > 1 ? (uint64_t)optimizer->accumulation_steps : 1;
    const uint64_t updates = plan->total_steps / each;
    const double kept = pow(optimizer->ema_decay, (double)updates);
    if (plan->rank != 0 || optimizer->ema_decay <= 0 || optimizer->ema_warmup || kept < 0.1)
        return;
    console_warning(&session->console,
                    "--model-ema: after %llu updates %.0f %% of the average are what it began with; "
                    "--model-ema-warmup or a lower --model-ema-decay",
                    (unsigned long long)updates, 100 * kept);
}

void session_describe_begin(Session *session)
{
    const ParameterRules *rules = &session->plan.recipe.rules;
    warn_average(session);
    if (session->weights)
        return;
    if (!recipe_describe_random(&session->plan, print_plan_line, &session->console) &&
        session->plan.rank == 0 && (rules->head_only || rules->freeze))
        console_warning(&session->console, "%s keeps weights that are random: give --weights FILE",
                        rules->head_only ? "--head-only" : "--freeze");
}

FshStatus session_write_step(Session *session, const Batch *batch, const StepRates *rates, FshError *error)
{
    FshStatus status = network_write_step(&session->network, batch, rates, error);
    size_t count = 0;
    /* Once for each side of pairs: images that were refused are pixels after it. */
    for (int side = 0; side < 2 && status && batch->recipes; side++) {
        const uint64_t *refused = pixel_store_refused(batch->store, &count);
        if (count == 0)
            break;
        status = loader_decode_refused(session->train, refused, count, error);
        if (!status)
            status = network_write_step(&session->network, batch, rates, error);
    }
    return status;
}

static uint64_t problem_count(Loader *loader)
{
    return loader ? loader_problem_count(loader) : 0;
}

uint64_t session_problem_count(const Session *session)
{
    return problem_count(session->train) + problem_count(session->evaluation);
}

void session_tell_problems(Session *session)
{
    Loader *const loaders[] = {session->train, session->evaluation};
    for (int i = 0; i < 2; i++) {
        char message[1024];
        for (uint64_t n = session->told_of[i]; n < problem_count(loaders[i]); n++) {
            session->told_of[i] = n + 1;
            if (session->problems_told++ < PROBLEMS_TOLD_MAX &&
                loader_problem(loaders[i], n, message, sizeof message))
                console_warning(&session->console, "%s; skipped", message);
            else if (session->problems_told == PROBLEMS_TOLD_MAX + 1)
                console_warning(&session->console,
                                "more samples are skipped, which are only counted; see fverify");
        }
    }
}

const char *session_key(const FshSplit *split, uint64_t sample, size_t *bytes_ret)
{
    FshSample record;
    *bytes_ret = 0;
    if (sample >= split->sample_count || fsh_sample_get(split, sample, &record, NULL) != FSH_OK)
        return "";
    *bytes_ret = record.key_bytes;
    return record.key;
}
