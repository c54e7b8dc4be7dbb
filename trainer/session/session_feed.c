#include "trainer/session/session_feed.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "common/cpu.h"
#include "trainer/plan/cache_choice.h"

enum { FIRST_LOOK = 8 }; /* steps; the first ones build what later ones use */

/* Seconds of training that a look needs, and after which the last one is taken. */
static const double least_seconds = 0.02, most_seconds = 1;

/* What a rank knows. */
typedef struct RankFacts {
    CacheFacts facts;
    double seconds;    /* of training that were measured */
    uint64_t problems; /* samples that its loaders have skipped */
} RankFacts;

void session_feed_start(SessionFeed *feed, const Session *session, uint64_t first_step)
{
    *feed = (SessionFeed){.looks = session->plan.cache_follows,
                          .first_step = first_step,
                          .next_look = first_step + FIRST_LOOK,
                          .alone_step = UINT64_MAX};
}

double session_feed_processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool session_feed_is_due(const SessionFeed *feed, uint64_t step)
{
    return feed->looks && step >= feed->next_look;
}

bool session_feed_is_alone(const SessionFeed *feed, uint64_t step)
{
    return feed->looks && step == feed->alone_step;
}

void session_feed_note(SessionFeed *feed, uint64_t step, double seconds)
{
    if (session_feed_is_alone(feed, step) && (feed->alone_seconds == 0 || seconds < feed->alone_seconds))
        feed->alone_seconds = seconds;
}

static void end_looks(SessionFeed *feed, Session *session)
{
    feed->looks = false;
    session->plan.cache_follows = false;
    loader_end_measuring(session->train);
}

/* ---- what is known ---- */

/* Returns the seconds of training for a sample. Where a step is waited for while another one computes, the
 * wait hides what the device does: then a step that was alone tells. */
static double step_seconds(const SessionFeed *feed, const Session *session, double seconds, double waited,
                           double samples)
{
    const bool hides = session->plan.device == DEVICE_CUDA && waited > 0.02 * seconds;
    const double alone = feed->alone_seconds / (double)session->plan.train_spec.batch;
    return hides && alone > 0 ? fmin(alone, seconds / samples) : (seconds - waited) / samples;
}

/* Returns the bytes of all images, as RGB or gray, by the dataset's median of their short edges. */
static uint64_t estimate_bytes(const Session *session)
{
    const TrainingData *data = &session->data;
    const uint64_t edge = data->short_edge,
                   channels = data->channels * (data->kind == FSH_KIND_PAIRS ? 2U : 1U) +
                              (data->kind == FSH_KIND_MASKS),
                   pixels = data->uniform ? edge * edge : edge * edge * 4 / 3;
    return (session->plan.train_count + session->plan.evaluation_count) * pixels * channels;
}

/* Returns those that they have as planes: what cameras and fresize write is 4:2:0. */
static uint64_t estimate_planes(const Session *session)
{
    const uint64_t bytes = estimate_bytes(session);
    return session->data.jpegs && session->data.channels == 3 ? bytes / 2 : bytes;
}

/* Adds what the processors have spent on a sample since the first look. trained: samples. */
static void add_work(const SessionFeed *feed, Session *session, const FeedMoment *now, double trained,
                     CacheFacts *facts)
{
    LoaderStatistics made;
    loader_statistics(session->train, &made);
    const double sides = session->data.kind != FSH_KIND_CLASSES ? 2 : 1,
                 samples = (double)(made.samples.images - feed->made.samples.images) / sides,
                 loading = made.cpu_seconds - feed->made.cpu_seconds;
    double all = 0, changing = 0;
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++) {
        const double seconds = made.samples.seconds[stage] - feed->made.samples.seconds[stage];
        all += seconds;
        changing += stage == SAMPLE_AUGMENT || stage == SAMPLE_COPY ? seconds : 0;
    }
    if (!(samples > 0 && all > 0))
        return;
    facts->train_seconds =
        fmax(0, now->processor_seconds - feed->before.processor_seconds - loading) / trained;
    facts->make_seconds = loading / samples;
    facts->change_seconds = facts->make_seconds * changing / all;
}

static FshStatus know_own(const SessionFeed *feed, Session *session, const FeedMoment *now, RankFacts *own,
                          FshError *error)
{
    const TrainPlan *plan = &session->plan;
    const uint64_t ranks = session->place.local_world ? session->place.local_world : 1,
                   copies = session->team.why[0] ? ranks : 1;
    const double samples =
                     (double)((now->steps_done - feed->before.steps_done) * (uint64_t)plan->train_spec.batch),
                 seconds = now->step_seconds - feed->before.step_seconds,
                 waited = now->wait_seconds - feed->before.wait_seconds;
    const uint32_t edge = session->data.short_edge;
    *own = (RankFacts){
        .facts = {.cuda = plan->device == DEVICE_CUDA,
                  .passes_left = (double)(plan->total_steps - now->steps_done) / (double)plan->steps_per_pass,
                  .pass_samples = plan->steps_per_pass * (uint64_t)plan->train_spec.batch,
                  .decoded_samples = (plan->train_count + plan->evaluation_count) / (ranks / copies),
                  .step_seconds = step_seconds(feed, session, seconds, waited, samples),
                  .wait_seconds = waited / samples,
                  .cores = plan->cores,
                  .pixel_bytes = estimate_bytes(session),
                  .planes_bytes = estimate_planes(session),
                  .free_ram = cpu_free_memory_bytes(ranks) / copies,
                  .same_on_gpu = plan_source_is_alike(plan, pixel_source_type("gpu"), edge),
                  .same_in_ram = plan_source_is_alike(plan, pixel_source_type("pixels"), edge)},
        .seconds = seconds,
        .problems = session_problem_count(session)};
    add_work(feed, session, now, samples, &own->facts);
    return own->facts.cuda ? backend_free_memory(session->network.backend, &own->facts.free_gpu, error)
                           : FSH_OK;
}

/* Takes the worse of two ranks' facts. */
static void take_worse(RankFacts *facts, const RankFacts *other)
{
    CacheFacts *worse = &facts->facts;
    const CacheFacts *its = &other->facts;
    worse->step_seconds = fmax(worse->step_seconds, its->step_seconds);
    worse->wait_seconds = fmax(worse->wait_seconds, its->wait_seconds);
    worse->train_seconds = fmax(worse->train_seconds, its->train_seconds);
    if (its->make_seconds > worse->make_seconds) { /* with its part: their difference is used */
        worse->make_seconds = its->make_seconds;
        worse->change_seconds = its->change_seconds;
    }
    worse->cores = its->cores < worse->cores ? its->cores : worse->cores;
    worse->free_ram = its->free_ram < worse->free_ram ? its->free_ram : worse->free_ram;
    worse->free_gpu = its->free_gpu < worse->free_gpu ? its->free_gpu : worse->free_gpu;
    facts->seconds = fmin(facts->seconds, other->seconds);
    facts->problems += other->problems;
}

/* Makes the facts of all ranks known to each, so that all decide alike. */
static FshStatus know_all(const SessionFeed *feed, Session *session, const FeedMoment *now, RankFacts *facts,
                          FshError *error)
{
    RankFacts all[RANKS_MAX];
    Communicator *communicator = session->communicator;
    FshStatus status = ranks_agree(communicator, know_own(feed, session, now, facts, error), error);
    if (status || !communicator)
        return status;
    status = communicator_gather(communicator, facts, sizeof *facts, all, error);
    for (uint64_t rank = 0; rank < session->plan.world_size && !status; rank++)
        if (rank == 0)
            *facts = all[0];
        else
            take_worse(facts, &all[rank]);
    return status;
}

/* ---- changing the source ---- */

/* Checks, now that the images are measured, what was estimated. */
static FshStatus check_measured(const Session *session, const CacheChoice *choice, CacheFacts facts,
                                FshError *error)
{
    const PixelExtent train = pixel_source_extent(session->sources[0]),
                      evaluation = pixel_source_extent(session->sources[1]);
    *(strcmp(choice->cache, "pixels") == 0 ? &facts.pixel_bytes : &facts.planes_bytes) =
        train.bytes + evaluation.bytes;
    if (!plan_source_is_alike(&session->plan, session->plan.source, train.short_edge))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "some photographs are decoded at a part of their size now, and would have other "
                             "pixels");
    if (strcmp(cache_choose(&facts).cache, choice->cache) != 0)
        return fsh_error_set(error, FSH_ERR_MEMORY, "the images are larger than expected");
    return FSH_OK;
}

/* Opens and loads the sources of the choice in place of those in use. */
static FshStatus load_sources(Session *session, const CacheChoice *choice, const CacheFacts *facts,
                              FshError *error)
{
    Communicator *communicator = session->communicator;
    FshStatus status = ranks_agree(communicator, session_open_sources(session, SESSION_TRAIN, error), error);
    if (!status)
        status = session_cache_measure(session, error);
    if (!status)
        status = ranks_agree(communicator, check_measured(session, choice, *facts, error), error);
    return status ? status : session_cache_load(session, error);
}

static void free_sources(PixelSource *sources[2])
{
    pixel_source_free(&sources[0]);
    pixel_source_free(&sources[1]);
}

/* Feeds the run from decoded images from `step` on. What fails is told, and leaves it as it is. */
static FshStatus change_source(Session *session, const CacheChoice *choice, const CacheFacts *facts,
                               uint64_t step, FshError *error)
{
    TrainPlan *plan = &session->plan;
    PixelSource *before[2] = {session->sources[0], session->sources[1]};
    const PixelSourceType *type_before = plan->source;
    FshError why = {0};
    session->sources[0] = session->sources[1] = NULL;
    plan->source = pixel_source_of_option("cache", choice->cache);
    FshStatus status = load_sources(session, choice, facts, &why);
    if (status) {
        free_sources(session->sources);
        memcpy(session->sources, before, sizeof before);
        plan->source = type_before;
        if (status != FSH_ERR_INTERRUPTED)
            console_line(&session->console, "cache: none after all: %s", why.message);
        return FSH_OK; /* a rank that is lost is met in the next step */
    }
    loader_free(&session->train);
    loader_free(&session->evaluation);
    free_sources(before);
    session->told_of[0] = session->told_of[1] = 0;
    plan->cache_follows = false; /* nothing is measured from here on */
    status = ranks_agree(session->communicator, session_open_loaders(session, error), error);
    if (!status)
        loader_start(session->train, step, plan->total_steps - step);
    return status;
}

FshStatus session_feed_look(SessionFeed *feed, Session *session, const FeedMoment *now, FshError *error)
{
    RankFacts known;
    char text[512];
    const uint64_t steps = now->steps_done - feed->first_step;
    feed->next_look = feed->first_step + 2 * steps;
    feed->alone_step = now->steps_done;
    if (feed->before.steps_done == 0) {
        feed->before = *now;
        loader_statistics(session->train, &feed->made);
        return FSH_OK;
    }
    FshStatus status = know_all(feed, session, now, &known, error);
    if (status || known.seconds < least_seconds)
        return status;
    const CacheChoice choice = cache_choose(&known.facts);
    if (choice.answer == CACHE_WINS_LITTLE && known.seconds < most_seconds)
        return FSH_OK;
    if (choice.answer != CACHE_WINS_LITTLE)
        console_line(&session->console, "%s", cache_choice_text(&choice, &known.facts, text, sizeof text));
    if (choice.answer == CACHE_PAYS && !known.problems)
        status = change_source(session, &choice, &known.facts, now->steps_done, error);
    if (!status)
        end_looks(feed, session);
    return status;
}
