#include "tools/resize/resize.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/progress.h"
#include "common/text.h"
#include "tar/tar_write.h"
#include "common/walk.h"
#include "imaging/shrink_names.h"
#include "tools/resize/resize_output.h"
#include "tools/resize/resize_range.h"
#include "tools/resize/resize_places.h"
#include "tools/resize/resize_queue.h"
#include "tools/resize/resize_report.h"
#include "tools/resize/resize_work.h"

enum {
    SLOTS_PER_JOB = 32,    /* one slow image holds up only what is told, not what is done */
    TAR_SLOTS_PER_JOB = 4, /* these hold whole files */
};

typedef struct Run {
    const ResizeOptions *options;
    ResizeJob job;
    ResizeState state;
    ResizeSource *source;
    ResizeQueue queue; /* of it */
    NameClaims *claims;
    uint64_t ordinal, begin, end; /* items taken; those of this part */
    uint64_t missed_count;        /* files and folders without which it is not finished */
    TarWriter *tar;
    char tar_path[PATH_MAX]; /* while it is written */
    uint64_t tar_offset;
    ResizeThread *threads; /* options->jobs of them */
    double finding_seconds, delivering_seconds;
    ResizeReport report;
    ResizePlaces places;
    ResizeOnFailure on_failure;
    void *context;
    ResizeSummary *summary;
    Progress progress;
    pthread_t counter;
    bool counting;
    atomic_bool stopped; /* the pool is done: nobody needs the count any more */
} Run;

uint64_t resize_summary_images(const ResizeSummary *summary)
{
    uint64_t count = 0;
    for (size_t i = 0; i < RESIZE_OUTCOME_COUNT; i++)
        count += summary->outcome_counts[i];
    return count;
}

/* ---- taking: in the source's order, one at a time ---- */

/* Begins the item's result, and takes its name. */
static FshStatus begin_item(Run *run, ResizeSlot *slot, FshError *error)
{
    ResizeItem *item = &slot->item;
    ResizeResult *result = &slot->results[0];
    static const char own_folder[] = RESIZE_STATE_FOLDER "/";
    FshError unnamed = {0};
    const char *owner = NULL;
    FshStatus status = FSH_OK;
    slot->conflict = slot->done = false;
    slot->results_count = 1;
    if (resize_result_begin(&run->job, item->is_second_side, item->path, item->name, result, &unnamed) &&
        !item->reason[0])
        (void)snprintf(item->reason, sizeof item->reason, "its new name would be too long");
    if (!item->reason[0] && strncmp(result->target, own_folder, sizeof own_folder - 1) == 0)
        (void)snprintf(item->reason, sizeof item->reason,
                       "would be written into %s, which fresize needs itself", RESIZE_STATE_FOLDER);
    if (!item->reason[0] && item->name[0] && (!run->job.sorted || strcmp(result->target, item->path) != 0))
        status = name_claims_take(run->claims, item->path, result->target, &slot->conflict, &owner, error);
    (void)snprintf(slot->owner, sizeof slot->owner, "%s", owner ? owner : "");
    return status;
}

/* Takes the next item of this part; *end_ret: there is none. Items before it take their names, too, so that
 * no name is given away in two parts. */
static FshStatus take_item(Run *run, ResizeSlot *slot, bool *end_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    do {
        *end_ret = run->ordinal >= run->end;
        if (!*end_ret)
            status = resize_queue_next(&run->queue, &slot->item, end_ret, error);
        if (!status && !*end_ret)
            status = begin_item(run, slot, error);
    } while (!status && !*end_ret && run->ordinal++ < run->begin);
    return status;
}

/* Notes which file of a side, if any, of an item to come is to be asked for: one that will be read. */
static void note_ahead(const ResizeItem *item, const char *path, char ahead[PATH_MAX])
{
    const bool is_read = item && !item->reason[0] && item->name[0] && !item->is_second_side;
    ahead[0] = '\0';
    if (is_read && image_name_is_image(path))
        memcpy(ahead, path, strlen(path) + 1);
}

/* Notes what to ask for while the item that was taken is worked on. */
static void look_ahead(const Run *run, ResizeSlot *slot)
{
    const bool is_in_part = run->end - run->ordinal >= run->queue.places;
    const ResizeItem *item = is_in_part ? resize_queue_ahead(&run->queue) : NULL;
    note_ahead(item, item ? item->path : NULL, slot->ahead[0]);
    note_ahead(item, item ? item->partner : NULL, slot->ahead[1]);
}

static void show_position(Run *run)
{
    uint64_t position = 0, extent = 0;
    resize_queue_position(&run->queue, &position, &extent);
    if (extent)
        progress_set_position(&run->progress, position, extent);
}

static FshStatus take(uint64_t index, void *memory, bool *end_ret, void *context, FshError *error)
{
    Run *run = context;
    ResizeSlot *slot = memory;
    ResizeItem *item = &slot->item;
    ResizeResult *result = &slot->results[0];
    (void)index;
    const double begin = progress_now_seconds();
    if (item->content.capacity > RESIZE_KEPT_BYTES)
        buffer_free(&item->content);
    FshStatus status = take_item(run, slot, end_ret, error);
    if (!status && !*end_ret)
        look_ahead(run, slot);
    const bool wanted = !status && !*end_ret && !item->reason[0] && !slot->conflict;
    if (wanted && item->in_tar) { /* what is done need not be read */
        result->modified_ns = item->modified_ns;
        status = resize_is_done(&run->job, result, item->bytes, &slot->done, error);
        if (!status && !slot->done)
            status = resize_source_load(run->source, item, shrink_most_bytes(&run->options->recipe), error);
    }
    show_position(run);
    run->finding_seconds += progress_now_seconds() - begin;
    return status;
}

static FshStatus work(uint64_t index, int thread, void *slot, void *context, FshError *error)
{
    const Run *run = context;
    (void)index;
    return resize_work(&run->job, &run->threads[thread], slot, error);
}

/* ---- delivering: in the same order, one at a time ---- */

static FshStatus tell_failure(Run *run, const ResizeResult *result, FshError *error)
{
    const char *reason = result->reason.message;
    const bool worth = places_note(&run->places, &run->options->source, result) || run->options->verbose;
    if (run->options->fail_on_error)
        return fsh_error_set(error, result->reason.status, "%s: %s; stopped, as --on-error fail asks",
                             result->path, reason);
    if (!worth) {
        run->summary->untold_count++;
        return FSH_OK;
    }
    progress_clear(&run->progress);
    run->on_failure(result->path, reason, run->context);
    return FSH_OK;
}

static FshStatus report(Run *run, const ResizeResult *result, FshError *error)
{
    const bool failed = result->outcome == RESIZE_OUTCOME_FAILED;
    const ResizeLine line = {
        .path = result->path,
        .target = result->target,
        .outcome = result->outcome,
        .reason = failed ? result->reason.message : NULL,
        .info = result->image.info,
        .format = result->image.format,
        .width = result->image.width,
        .height = result->image.height,
        .bytes_before = result->bytes_before,
        .bytes_after = result->row.bytes,
    };
    FshStatus status = resize_report_add(&run->report, &line, error);
    if (!failed)
        (void)places_note(&run->places, &run->options->source, result);
    return !status && failed ? tell_failure(run, result, error) : status;
}

/* Returns whether this image keeps the destination from being finished. */
static bool is_missed(const Run *run, const ResizeResult *result)
{
    return result->is_unread && !run->options->skip_unread && !run->options->dry_run && !run->state.finished;
}

/* Ends the run before a file that could not be read: the next file of the tar would have its place. */
static FshStatus stop_tar(const Run *run, const ResizeResult *result, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_SYSTEM,
                         "%s: %s could not be read, and is next in %s, which is not finished; the same "
                         "command goes on with it, --on-error skip without it",
                         run->options->source.path, result->path, run->options->destination);
}

static void count_result(Run *run, const ResizeResult *result)
{
    ResizeSummary *summary = run->summary;
    summary->outcome_counts[result->outcome]++;
    summary->unread_count += result->is_unread;
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT; bit++)
        summary->quirk_counts[bit] += result->image.info.quirks >> bit & 1;
    summary->unlinked_count += result->unlinked;
    if (!result->is_new)
        return;
    summary->bytes_before += result->bytes_before;
    summary->bytes_after += result->row.bytes;
    progress_add_saved(&run->progress, (int64_t)result->bytes_before - (int64_t)result->row.bytes);
}

/* Returns whether one side was written gray and the other in colour; of what was done before, nothing is
 * known. */
static bool is_mixed_pair(const ResizeSlot *slot)
{
    const ResizeResult *results = slot->results;
    return slot->results_count == 2 && !results[1].is_mask &&
           results[0].outcome < RESIZE_OUTCOME_DONE_BEFORE &&
           results[1].outcome < RESIZE_OUTCOME_DONE_BEFORE &&
           ((results[0].image.info.quirks ^ results[1].image.info.quirks) & IMAGE_QUIRK_GRAY);
}

/* Returns whether one side alone of a pair of images looks like a mask, and was not just copied: its values
 * are mixed then. */
static bool is_masked_pair(const ResizeSlot *slot)
{
    const ResizeResult *results = slot->results;
    return slot->results_count == 2 && results[0].begins_as_mask != results[1].begins_as_mask &&
           results[results[1].begins_as_mask].outcome < RESIZE_OUTCOME_COPIED;
}

/* Notes the rows of the outputs that are there, about once a second; an output in a tar is there when the tar
 * is on disk. */
static FshStatus commit(Run *run, FshError *error)
{
    FshStatus status = run->tar ? tar_writer_sync(run->tar, error) : FSH_OK;
    return status ? status : ledger_commit(run->state.ledger, run->tar_offset, error);
}

static FshStatus keep_output(Run *run, ResizeResult *result, FshError *error)
{
    FshStatus status = FSH_OK;
    if (run->tar)
        status = tar_writer_add(run->tar, result->target, result->output.bytes, result->output.length,
                                result->modified_ns, &run->tar_offset, error);
    return status ? status : ledger_add(run->state.ledger, result->target, result->path, &result->row, error);
}

/* Counts an image that is of neither side, as GOPRO_Large has them in blur_gamma. */
static void note_outside(Run *run, const ResizeResult *result)
{
    ResizeSummary *summary = run->summary;
    if (summary->outside_count++ == 0)
        (void)snprintf(summary->outside_first, sizeof summary->outside_first, "%s", result->path);
    (void)places_note(&run->places, &run->options->source, result);
}

static FshStatus deliver(uint64_t index, void *memory, void *context, FshError *error)
{
    Run *run = context;
    ResizeSlot *slot = memory;
    FshStatus status = FSH_OK;
    uint64_t bytes = 0, failed = 0;
    (void)index;
    const double begin = progress_now_seconds();
    for (size_t i = 0; i < slot->results_count && !status; i++) {
        ResizeResult *result = &slot->results[i];
        if (result->is_other) {
            run->summary->other_count++;
            continue;
        }
        if (result->is_outside) {
            note_outside(run, result);
            continue;
        }
        if (run->state.finished && resize_has_output(result)) {
            status = fsh_error_set(error, FSH_ERR_EXISTS,
                                   "%s: %s has changed since: %s is not in it; --force writes it anew",
                                   run->options->destination, run->options->source.path, result->path);
        } else if (result->is_new) {
            status = keep_output(run, result, error);
        }
        bytes += result->bytes_before;
        failed += result->outcome == RESIZE_OUTCOME_FAILED;
        if (status)
            break;
        count_result(run, result);
        status = report(run, result, error);
        if (!status && run->tar && is_missed(run, result))
            status = stop_tar(run, result, error);
        run->missed_count += is_missed(run, result);
    }
    run->summary->mixed_pairs_count += is_mixed_pair(slot);
    run->summary->masked_pairs_count += is_masked_pair(slot);
    if (!status && run->state.ledger &&
        ledger_is_due(run->state.ledger)) /* what it knows, the report tells */
        status = commit(run, error);
    run->delivering_seconds += progress_now_seconds() - begin;
    progress_add(&run->progress, 1, bytes, failed);
    return status;
}

/* ---- parts ---- */

static FshStatus find_part(Run *run, FshError *error)
{
    const ResizeOptions *options = run->options;
    ResizeRange range;
    FshStatus status = options->part.count ? resize_range_find(options, &range, error) : FSH_OK;
    if (status || !options->part.count)
        return status;
    run->begin = range.begin;
    run->end = range.end;
    progress_set_total(&run->progress, run->end - run->begin);
    return options->dry_run || run->state.is_tar
               ? FSH_OK
               : resize_state_note_part(&run->state, options->part, range.source_count, range.source_bytes,
                                        error);
}

/* ---- beside the run ---- */

/* Counts a folder's files for the time that is left, and clears up after runs that were killed. */
static void *count_files(void *context)
{
    Run *run = context;
    const ResizeOptions *options = run->options;
    if (run->state.resume && !run->state.is_tar && !options->dry_run)
        output_remove_leftovers(options->destination);
    if (options->quiet || options->part.count || options->source.files_from)
        return NULL;
    WalkCursor *cursor = NULL;
    WalkEntry entry = {0};
    uint64_t count = 0;
    FshStatus status = walk_open(&cursor, options->source.path, NULL);
    while (!status && !atomic_load(&run->stopped) && !(status = walk_next(cursor, &entry, NULL)) &&
           entry.path)
        count++;
    if (!status && !entry.path)
        progress_set_total(&run->progress, count);
    walk_close(&cursor);
    return NULL;
}

/* ---- the run ---- */

static FshStatus start_threads(Run *run, FshError *error)
{
    run->threads = calloc((size_t)run->options->jobs, sizeof *run->threads);
    if (!run->threads)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %d threads", run->options->jobs);
    FshStatus status = FSH_OK;
    for (int i = 0; i < run->options->jobs && !status; i++)
        status = resize_thread_init(&run->threads[i], run->options->source.sides[0][0], error);
    return status;
}

static void free_threads(Run *run)
{
    double *seconds = run->summary->stage_seconds;
    for (int i = 0; run->threads && i < run->options->jobs; i++) {
        for (size_t stage = 0; stage < RESIZE_STAGE_COUNT; stage++)
            seconds[stage] += run->threads[i].stage_seconds[stage];
        resize_thread_free(&run->threads[i]);
    }
    seconds[RESIZE_STAGE_FINDING] += run->finding_seconds;
    seconds[RESIZE_STAGE_WRITING] += run->delivering_seconds;
    free(run->threads);
}

/* Opens report and state of the destination, and the tar where it is one. */
static FshStatus open_destination(Run *run, FshError *error)
{
    const ResizeOptions *options = run->options;
    FshStatus status =
        resize_report_open(&run->report, options->report, run->state.resume, options->force, error);
    if (!status)
        status = resize_state_begin(&run->state, options, error);
    if (!status)
        status = resize_report_begin(&run->report, error);
    if (status || !run->state.is_tar || run->state.finished)
        return status;
    status = file_join(run->tar_path, sizeof run->tar_path, run->state.folder, RESIZE_TAR_NAME, error);
    if (!status)
        run->tar_offset = ledger_tar_offset(run->state.ledger);
    return status ? status : tar_writer_open(&run->tar, run->tar_path, run->tar_offset, error);
}

static FshStatus close_destination(Run *run, FshError *error)
{
    const ResizeOptions *options = run->options;
    FshStatus status = FSH_OK;
    if (run->state.finished)
        return FSH_OK;
    if (run->missed_count)
        return fsh_error_set(error, FSH_ERR_SYSTEM,
                             "%s: %llu of its files and folders could not be read, and %s is not finished; "
                             "the same command goes on with them, --on-error skip finishes without them",
                             options->source.path, (unsigned long long)run->missed_count,
                             options->destination);
    if (run->tar)
        status = tar_writer_finish(&run->tar, error);
    if (!status)
        status = resize_state_finish(&run->state, options, error);
    /* last: as long as it has not its name, the same command goes on */
    return status || !run->state.is_tar ? status
                                        : output_finish_tar(run->tar_path, options->destination, error);
}

static FshStatus run_images(Run *run, FshError *error)
{
    const ResizeOptions *options = run->options;
    const PoolStream stream = {
        .take = take,
        .work = work,
        .deliver = deliver,
        .slot_free = resize_slot_free,
        .window =
            (size_t)options->jobs *
            (resize_source_is_tar(&options->source) || run->state.is_tar ? TAR_SLOTS_PER_JOB : SLOTS_PER_JOB),
        .slot_bytes = sizeof(ResizeSlot),
        .context = run};
    const bool reads_files = resize_source_is_at_hand(run->source) && !options->dry_run;
    progress_start(&run->progress, stderr, options->dry_run ? "looking" : "resizing", "files", 0,
                   options->quiet);
    FshStatus status = resize_queue_init(&run->queue, run->source,
                                         reads_files ? (size_t)options->jobs * READ_AHEAD_PLACES : 0, error);
    if (!status)
        status = find_part(run, error);
    if (!status)
        status = start_threads(run, error);
    if (!status)
        run->counting = pthread_create(&run->counter, NULL, count_files, run) == 0;
    if (!status)
        status = pool_run_stream(options->jobs, &stream, error);
    /* what was done before a stop is known to the next run */
    FshError late = {0};
    if (run->state.ledger && commit(run, &late) && !status)
        status = fsh_error_set(error, late.status, "%s", late.message);
    atomic_store(&run->stopped, true);
    if (run->counting)
        (void)pthread_join(run->counter, NULL);
    if (status) {
        const uint64_t total = run->progress.total, done = run->progress.done;
        run->summary->stopped = true;
        run->summary->files_left = total > done ? total - done : 0;
    }
    progress_finish(&run->progress);
    return status;
}

/* Refuses a source that has nothing to do, and of which nothing is to be kept: FSH_ERR_NOT_FOUND. */
static FshStatus refuse_nothing(const Run *run, FshError *error)
{
    const ResizeOptions *options = run->options;
    if (options->part.count || run->missed_count) /* others, or the next run, may find some */
        return FSH_OK;
    if (places_all_missed(&run->places))
        return places_explain(&run->places, options, error);
    const char *list = options->source.files_from;
    if (list && list[0] == '-' && !list[1])
        list = "standard input";
    return resize_summary_images(run->summary)
               ? FSH_OK
               : fsh_error_set(
                     error, FSH_ERR_NOT_FOUND, "%s: %s (%llu other file%s)",
                     list ? list : options->source.path, list ? "the list names no image" : "no images in it",
                     (unsigned long long)run->summary->other_count, text_plural(run->summary->other_count));
}

/* Notes in the summary which tars of the source may be cut short where nothing else shows it. */
static void note_unmarked(const Run *run)
{
    ResizeSummary *summary = run->summary;
    const char *first = "";
    summary->unmarked_count = resize_source_unmarked(run->source, &first);
    (void)snprintf(summary->unmarked_first, sizeof summary->unmarked_first, "%s", first);
}

FshStatus resize_run(const ResizeOptions *options, ResizeOnFailure on_failure, void *context,
                     ResizeSummary *summary, FshError *error)
{
    Run run = {.options = options,
               .job = {.options = options},
               .end = UINT64_MAX,
               .report = {.descriptor = -1},
               .on_failure = on_failure,
               .context = context,
               .summary = summary};
    const double start_seconds = progress_now_seconds();
    *summary = (ResizeSummary){.part = options->part};
    run.job.state = &run.state;
    FshStatus status = resize_source_open(&run.source, &options->source, error);
    if (!status)
        status = resize_state_check(&run.state, options, error);
    if (status)
        goto done;
    summary->source_unfinished = resize_state_is_unfinished(options->source.path);
    run.job.sorted = resize_source_is_sorted(run.source);
    status = name_claims_new(&run.claims, run.job.sorted, error);
    if (!status)
        status =
            options->dry_run ? resize_state_look(&run.state, options, error) : open_destination(&run, error);
    if (!status)
        status = run_images(&run, error);
    summary->hidden_count = resize_source_hidden_count(run.source);
    note_unmarked(&run);
    const FshStatus refused = status ? FSH_OK : refuse_nothing(&run, error);
    const bool nothing = refused != FSH_OK;
    status = nothing ? refused : status;
    if (!status && !options->dry_run)
        status = close_destination(&run, error);
    if (nothing && run.state.fresh && !options->dry_run) {
        tar_writer_abandon(&run.tar);
        resize_state_undo(&run.state, options->destination);
    }
    if (nothing || !(run.state.ledger || run.state.others_count))
        resize_report_undo(&run.report);
    FshError close_error = {0};
    if (resize_report_close(&run.report, &close_error) && !status)
        status = fsh_error_set(error, close_error.status, "%s", close_error.message);
done:
    summary->seconds = progress_now_seconds() - start_seconds;
    free_threads(&run);
    tar_writer_abandon(&run.tar);
    name_claims_free(&run.claims);
    resize_queue_free(&run.queue);
    resize_source_close(&run.source);
    resize_state_close(&run.state);
    return status;
}
