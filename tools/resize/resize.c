#include "tools/resize/resize.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/pool.h"
#include "common/progress.h"
#include "tools/resize/resize_plan.h"
#include "tools/resize/resize_report.h"
#include "tools/resize/resize_state.h"

/* What one thread needs, kept from image to image. */
typedef struct Thread {
    ResizeWorker *worker;
    Buffer file;
} Thread;

typedef struct Run {
    const ResizeOptions *options;
    const ResizePlan *plan;
    Thread *threads; /* options->jobs of them */
    bool resume;
    ResizeReport report;
    ResizeOnFailure on_failure;
    void *context;
    ResizeSummary *summary;
    Progress progress;
} Run;

/* What a thread found out about one image, until it is its turn to be told. */
typedef struct Result {
    ResizeOutcome outcome;
    FshError reason; /* FAILED */
    ResizedImage image;
    uint64_t bytes_before, bytes_after;
} Result;

/* ---- one image ---- */

/* The file appears with its source's time, which is how a later run knows it. */
static FshStatus write_output(const char *path, const ResizedImage *image, const FileEntry *source,
                              FshError *error)
{
    AtomicFile file;
    FshStatus status = atomic_file_open(&file, path, true, error);
    if (status == FSH_ERR_NOT_FOUND) { /* the first image of its folder */
        status = file_make_parent_folders(path, error);
        if (!status)
            status = atomic_file_open(&file, path, true, error);
    }
    if (status)
        return status;
    status = atomic_file_write(&file, image->bytes, image->length, error);
    const struct timespec modified = file_time_of_ns(source->modified_ns);
    const struct timespec times[2] = {modified, modified};
    if (!status && futimens(file.descriptor, times))
        status = fsh_error_system(error, errno, "%s: cannot set its time", path);
    /* The disk is waited for once, at the end of the run: a sync for each image would take longer than the image. */
    if (!status)
        status = atomic_file_commit(&file, false, error);
    atomic_file_abandon(&file);
    return status;
}

static void fail_result(Result *result, FshStatus status)
{
    result->outcome = RESIZE_OUTCOME_FAILED;
    if (result->reason.status != status)
        (void)fsh_error_set(&result->reason, status, "%s", fsh_strerror(status));
}

/* A message that begins with the path, without it: the path is told apart. */
static void drop_prefix(FshError *error, const char *path)
{
    size_t length = strlen(path);
    if (strncmp(error->message, path, length) == 0 && strncmp(error->message + length, ": ", 2) == 0)
        memmove(error->message, error->message + length + 2, strlen(error->message + length + 2) + 1);
}

/* Reads and decodes; a failure here is the image's, and noted in result. False then. */
static bool make_image(const Run *run, Thread *thread, const ResizeItem *item, const char *path,
                       Result *result)
{
    const ResizeOptions *options = run->options;
    FshStatus status =
        file_read_most(path, resize_most_bytes(&options->recipe), &thread->file, &result->reason);
    if (status) {
        drop_prefix(&result->reason, path);
        fail_result(result, status);
        return false;
    }
    result->bytes_before = thread->file.length;
    status = (options->dry_run ? resize_image_plan : resize_image)(
        thread->worker, thread->file.bytes, thread->file.length, item->format, &options->recipe,
        &result->image, &result->reason);
    ImageInfo *info = &result->image.info;
    ImageFormat promised = image_name_format(item->source->path);
    if (promised != IMAGE_UNKNOWN && info->format != IMAGE_UNKNOWN && promised != info->format)
        info->quirks |= IMAGE_QUIRK_EXTENSION;
    if (status) {
        fail_result(result, status);
        return false;
    }
    static const ResizeOutcome outcomes[] = {[RESIZE_COPIED] = RESIZE_OUTCOME_COPIED,
                                             [RESIZE_CONVERTED] = RESIZE_OUTCOME_CONVERTED,
                                             [RESIZE_RESIZED] = RESIZE_OUTCOME_RESIZED};
    result->outcome = outcomes[result->image.action];
    result->bytes_after = result->image.length;
    return true;
}

/* A failure returned from here is the destination's and ends the run. */
static FshStatus work(uint64_t index, int thread_index, void *slot, void *context, FshError *error)
{
    const Run *run = context;
    const ResizeItem *item = &run->plan->items[index];
    Thread *thread = &run->threads[thread_index];
    Result *result = slot;
    char source[PATH_MAX], target[PATH_MAX];
    *result = (Result){.outcome = RESIZE_OUTCOME_FAILED};
    FshStatus status = file_join(source, sizeof source, run->options->source, item->source->path, error);
    if (!status)
        status = file_join(target, sizeof target, run->options->destination, item->target, error);
    if (status)
        return status;
    if (item->conflict) {
        bool is_folder = item->conflict[strlen(item->target)] == '/';
        (void)fsh_error_set(&result->reason, FSH_ERR_EXISTS,
                            "would be written to %s, %s %s%s; rename one of them", item->target,
                            is_folder ? "the folder of" : "as", item->conflict, is_folder ? "" : " is");
        return FSH_OK;
    }
    if (run->resume && resize_state_is_finished(target, item->source)) {
        result->outcome = RESIZE_OUTCOME_DONE_BEFORE;
        return FSH_OK;
    }
    if (!make_image(run, thread, item, source, result) || run->options->dry_run)
        return FSH_OK;
    return write_output(target, &result->image, item->source, error);
}

/* ---- what is told, in order ---- */

static FshStatus tell_failure(Run *run, const char *path, const char *reason, FshStatus status,
                              FshError *error)
{
    if (run->options->fail_on_error)
        return fsh_error_set(error, status, "%s: %s; stopped, as --on-error fail asks", path, reason);
    progress_clear(&run->progress);
    run->on_failure(path, reason, run->context);
    return FSH_OK;
}

static FshStatus deliver(uint64_t index, void *slot, void *context, FshError *error)
{
    Run *run = context;
    const ResizeItem *item = &run->plan->items[index];
    const Result *result = slot;
    ResizeSummary *summary = run->summary;
    bool failed = result->outcome == RESIZE_OUTCOME_FAILED;
    summary->outcome_counts[result->outcome]++;
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT; bit++)
        summary->quirk_counts[bit] += result->image.info.quirks >> bit & 1;
    if (!failed) {
        summary->bytes_before += result->bytes_before;
        summary->bytes_after += result->bytes_after;
    }
    progress_add(&run->progress, 1, result->bytes_before, failed);
    const ResizeLine line = {
        .path = item->source->path,
        .target = item->target,
        .outcome = result->outcome,
        .reason = failed ? result->reason.message : NULL,
        .info = result->image.info,
        .format = result->image.format,
        .width = result->image.width,
        .height = result->image.height,
        .bytes_before = failed && !result->bytes_before ? item->source->bytes : result->bytes_before,
        .bytes_after = result->bytes_after,
    };
    FshStatus status = resize_report_add(&run->report, &line, error);
    if (!status && failed)
        status = tell_failure(run, item->source->path, result->reason.message, result->reason.status, error);
    return status;
}

/* What the walk could not enter or follow. */
static FshStatus tell_problems(Run *run, FshError *error)
{
    FshStatus status = FSH_OK;
    const FileList *list = &run->plan->list;
    for (uint64_t i = 0; i < list->problem_count && !status; i++) {
        const ResizeLine line = {.path = list->problems[i].path,
                                 .outcome = RESIZE_OUTCOME_FAILED,
                                 .reason = list->problems[i].reason};
        run->summary->outcome_counts[RESIZE_OUTCOME_FAILED]++;
        status = resize_report_add(&run->report, &line, error);
        if (!status)
            status = tell_failure(run, line.path, line.reason, FSH_ERR_SYSTEM, error);
    }
    return status;
}

/* ---- the run ---- */

static FshStatus start_threads(Run *run, FshError *error)
{
    run->threads = calloc((size_t)run->options->jobs, sizeof *run->threads);
    if (!run->threads)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %d threads", run->options->jobs);
    FshStatus status = FSH_OK;
    for (int i = 0; i < run->options->jobs && !status; i++)
        status = resize_worker_new(&run->threads[i].worker, error);
    return status;
}

static void free_threads(Run *run)
{
    for (int i = 0; run->threads && i < run->options->jobs; i++) {
        resize_worker_free(&run->threads[i].worker);
        buffer_free(&run->threads[i].file);
    }
    free(run->threads);
}

/* The images. What was done before a stop is told, too. */
static FshStatus run_images(Run *run, FshError *error)
{
    enum { SLOTS_PER_JOB = 64 }; /* one slow image holds up only what is told, not what is done */
    const ResizeOptions *options = run->options;
    FshStatus status = start_threads(run, error);
    if (status)
        return status;
    progress_start(&run->progress, stderr, options->dry_run ? "looking" : "resizing", "images",
                   run->plan->count, options->quiet);
    status = tell_problems(run, error);
    if (!status)
        status = pool_run_ordered(options->jobs, run->plan->count, (size_t)options->jobs * SLOTS_PER_JOB,
                                  sizeof(Result), work, deliver, NULL, run, error);
    progress_finish(&run->progress);
    if (status == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(error, status, "%s: interrupted; %s", options->destination,
                               options->force ? "with --force, the same command begins anew"
                                              : "the same command goes on from here");
    return status;
}

FshStatus resize_run(const ResizeOptions *options, ResizeOnFailure on_failure, void *context,
                     ResizeSummary *summary, FshError *error)
{
    ResizePlan plan = {0};
    Run run = {.options = options,
               .plan = &plan,
               .report = {.descriptor = -1},
               .on_failure = on_failure,
               .context = context,
               .summary = summary};
    double start_seconds = progress_now_seconds();
    *summary = (ResizeSummary){0};
    FshStatus status = resize_plan_make(&plan, options->source, options->jobs, error);
    if (!status)
        status = resize_state_check(options->destination, options->source, &options->recipe, options->force,
                                    &run.resume, error);
    if (status)
        goto done;
    summary->images_count = plan.count + plan.list.problem_count;
    summary->other_count = plan.other_count;
    summary->hidden_count = plan.list.hidden_count;
    if (!options->dry_run) {
        status = resize_report_open(&run.report, options->report, run.resume, options->force, error);
        if (!status)
            status = resize_state_begin(options->destination, options->source, &options->recipe, &plan,
                                        run.resume, error);
    }
    if (!status)
        status = run_images(&run, error);
    if (!status && !options->dry_run)
        status = resize_state_finish(options->destination, options->source, &options->recipe, error);
    FshError close_error = {0};
    if (resize_report_close(&run.report, &close_error) && !status)
        status = fsh_error_set(error, close_error.status, "%s", close_error.message);
done:
    summary->seconds = progress_now_seconds() - start_seconds;
    free_threads(&run);
    resize_plan_free(&plan);
    return status;
}
