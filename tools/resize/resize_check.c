#include "tools/resize/resize_check.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json_text.h"
#include "common/pool.h"
#include "common/progress.h"
#include "tar/tar_read.h"
#include "tar/tar_source.h"
#include "common/walk.h"
#include "imaging/shrink_names.h"
#include "tools/resize/resize_range.h"
#include "tools/resize/resize_work.h"

const char *const resize_finding_names[RESIZE_FINDING_COUNT] = {
    [RESIZE_FINDING_MISSING] = "missing",  [RESIZE_FINDING_STALE] = "stale",
    [RESIZE_FINDING_DAMAGED] = "damaged",  [RESIZE_FINDING_EXTRA] = "extra",
    [RESIZE_FINDING_GONE] = "source gone",
};

typedef struct Thread {
    ShrinkWorker *worker; /* why an image has no output */
    Buffer file;
} Thread;

typedef struct Check {
    const ResizeOptions *options;
    ResizeState state;
    ResizeSource *source;
    Thread *threads;
    ResizeOnFinding on_finding;
    void *context;
    ResizeCheckSummary *summary;
    Progress progress;
    ResizeRange range;      /* of the source: all of it, or that of a part */
    uint64_t ordinal;       /* items taken from the source */
    uint64_t matched_count; /* rows that an image of the source has asked for */
    /* of a tar, which is read first: targets that are in it, and those that are as they were written */
    NameClaims *seen, *whole;
    char tar_reason[512]; /* why the tar could not be read to its end; "": it could */
} Check;

/* An image of the source, looked up. */
typedef struct Slot {
    ResizeItem item;
    char target[PATH_MAX];
    ImageFormat format;
    bool is_image, found, good;
    bool is_in_tar, is_whole; /* the output, if the destination is a tar */
    LedgerRow row;
    /* the source of the output that has the target's name; "": no other than this one */
    char owner[PATH_MAX];
    ResizeFinding finding;
    char reason[512];
    uint64_t bytes_read;
} Slot;

static void slot_free(void *slot)
{
    buffer_free(&((Slot *)slot)->item.content);
}

static FshStatus tell(Check *check, ResizeFinding finding, const char *path, const char *reason)
{
    check->summary->finding_counts[finding]++;
    progress_clear(&check->progress);
    check->on_finding(finding, path, reason, check->context);
    return FSH_OK;
}

static bool has_hash(const LedgerRow *row, const void *bytes, size_t length)
{
    uint8_t hash[sizeof row->hash];
    ledger_hash(bytes, length, hash);
    return row->bytes == length && memcmp(hash, row->hash, sizeof hash) == 0;
}

/* ---- from the source to the destination ---- */

/* Finds the row of an output if it was made of this image; else slot->owner is the image that it was made of.
 * In a tar, notes whether the output is there and whole. */
static FshStatus find_row(const Check *check, Slot *slot, FshError *error)
{
    FshStatus status =
        resize_state_find(&check->state, slot->target, &slot->found, &slot->row, slot->owner, error);
    slot->found = slot->found && strcmp(slot->owner, slot->item.path) == 0;
    if (slot->found || status)
        slot->owner[0] = '\0';
    if (check->state.is_tar) {
        slot->is_in_tar = name_claims_has(check->seen, slot->target);
        slot->is_whole = name_claims_has(check->whole, slot->target);
    }
    return status;
}

/* Takes the next image of the source. *wanted_ret: it belongs to the part, if there are parts; *end_ret:
 * there is none. The second side of a pair belongs to the part of the first side, which may come long before:
 * the part that has its row. */
static FshStatus take_next(Check *check, Slot *slot, bool *wanted_ret, bool *end_ret, FshError *error)
{
    ResizeItem *item = &slot->item;
    const ResizeRange *range = &check->range;
    const uint64_t ordinal = check->ordinal++;
    FshStatus status = resize_source_next(check->source, item, end_ret, error);
    if (status || *end_ret)
        return status;
    slot->found = slot->good = false;
    slot->owner[0] = '\0';
    item->content.length = 0; /* of an earlier item */
    slot->bytes_read = 0;
    slot->is_image = item->is_outside ? !item->is_unplaced && image_name_is_image(item->path)
                                      : item->reason[0] || image_name_is_image(item->path);
    const bool is_mask = resize_source_is_mask(&check->options->source, item->is_second_side);
    status = shrink_name_target(item->name, is_mask ? IMAGE_UNKNOWN : check->options->recipe.format,
                                slot->target, &slot->format, error);
    if (!status && !item->reason[0])
        status = find_row(check, slot, error);
    *wanted_ret = check->options->part.count && item->is_second_side
                      ? slot->found
                      : ordinal >= range->begin && ordinal < range->end;
    return status;
}

static FshStatus take(uint64_t index, void *memory, bool *end_ret, void *context, FshError *error)
{
    Check *check = context;
    Slot *slot = memory;
    ResizeItem *item = &slot->item;
    const ShrinkRecipe *recipe = &check->options->recipe;
    bool wanted = false;
    FshStatus status = FSH_OK;
    (void)index;
    while (!status && !wanted && !*end_ret)
        status = take_next(check, slot, &wanted, end_ret, error);
    if (status || *end_ret)
        return status;
    /* it may be too small, damaged, or an image by its content alone */
    if (item->in_tar && !slot->found && !item->reason[0])
        status = resize_source_load(check->source, item, shrink_most_bytes(recipe), error);
    return status;
}

static void find(Slot *slot, ResizeFinding finding, const char *reason)
{
    slot->finding = finding;
    (void)snprintf(slot->reason, sizeof slot->reason, "%.*s", (int)sizeof slot->reason - 1, reason);
}

/* Returns whether an image without a row was below --min-size by its header. reason: filled where the image
 * cannot be read. */
static bool is_too_small(const Check *check, Thread *thread, const Slot *slot, const char *path,
                         FshError *reason)
{
    const ResizeItem *item = &slot->item;
    ShrunkImage image;
    FileMapping mapping = {0};
    if (!item->in_tar && file_map(path, &mapping, NULL))
        return false;
    const uint8_t *bytes = item->in_tar ? item->content.bytes : mapping.bytes;
    const size_t length = item->in_tar ? item->content.length : (size_t)mapping.length;
    const ResizeOptions *options = check->options;
    FshStatus status = resize_source_is_mask(&options->source, item->is_second_side)
                           ? shrink_mask_plan(bytes, length, &options->recipe, &image, reason)
                           : shrink_image_plan(thread->worker, bytes, length, slot->format, &options->recipe,
                                               &image, reason);
    if (file_mapping_check(&mapping, 0, mapping.length, reason))
        status = FSH_ERR_SYSTEM;
    file_unmap(&mapping);
    return !status && image.action == SHRINK_TOO_SMALL;
}

static void find_in_tar(const Check *check, Slot *slot)
{
    char reason[sizeof check->tar_reason + 64];
    (void)snprintf(reason, sizeof reason, "its output is not in the tar%s%s",
                   *check->tar_reason ? ", which " : "", check->tar_reason);
    find(slot, slot->is_in_tar ? RESIZE_FINDING_DAMAGED : RESIZE_FINDING_MISSING,
         slot->is_in_tar ? "its output is not what was written" : reason);
}

static void compare_output(const Check *check, Thread *thread, Slot *slot, const char *target)
{
    FshError reason = {0};
    if (check->state.is_tar) {
        slot->good = slot->is_whole;
        find_in_tar(check, slot);
    } else if (!file_exists(target)) {
        find(slot, RESIZE_FINDING_MISSING, "its output is not there");
    } else if (file_read_most(target, slot->row.bytes, &thread->file, &reason)) {
        find(slot, RESIZE_FINDING_DAMAGED, reason.message);
    } else {
        slot->bytes_read = thread->file.length;
        slot->good = has_hash(&slot->row, thread->file.bytes, thread->file.length);
        find(slot, RESIZE_FINDING_DAMAGED, "its output is not what was written");
    }
}

static FshStatus look(uint64_t index, int thread_index, void *memory, void *context, FshError *error)
{
    const Check *check = context;
    Thread *thread = &check->threads[thread_index];
    Slot *slot = memory;
    const ResizeItem *item = &slot->item;
    char path[PATH_MAX], target[PATH_MAX];
    struct stat source;
    uint64_t bytes = item->bytes;
    int64_t modified_ns = item->modified_ns;
    (void)index;
    FshStatus status = file_join(path, sizeof path, check->options->source.path, item->path, error);
    if (!status)
        status = file_join(target, sizeof target, check->options->destination, slot->target, error);
    if (status)
        return status;
    slot->is_image =
        slot->is_image || slot->found ||
        (item->in_tar && image_sniff(item->content.bytes, item->content.length) != IMAGE_UNKNOWN);
    FshError unread = {0};
    if (!slot->is_image && !item->in_tar && !item->reason[0] &&
        resize_is_image_by_content(path, &slot->is_image, &unread))
        slot->is_image = true; /* it may be one */
    if (!slot->is_image)
        return FSH_OK;
    if (item->reason[0] || unread.status) {
        find(slot, RESIZE_FINDING_MISSING, unread.status ? unread.message : item->reason);
        return FSH_OK;
    }
    if (!slot->found) {
        FshError unreadable = {0};
        slot->good = is_too_small(check, thread, slot, path, &unreadable);
        find(slot, RESIZE_FINDING_MISSING, "has no output");
        if (unreadable.status)
            (void)snprintf(slot->reason, sizeof slot->reason, "has no output: %.400s", unreadable.message);
        if (slot->owner[0])
            (void)snprintf(slot->reason, sizeof slot->reason, "would be written to %.200s, as %.200s is",
                           slot->target, slot->owner);
        return FSH_OK;
    }
    if (!item->in_tar) {
        if (stat(path, &source)) {
            find(slot, RESIZE_FINDING_GONE, "cannot be read any more");
            return FSH_OK;
        }
        bytes = (uint64_t)source.st_size;
        modified_ns = file_time_ns(source.st_mtim);
    }
    if (!resize_row_is_current(&slot->row, bytes, modified_ns)) {
        (void)snprintf(slot->reason, sizeof slot->reason,
                       "has changed since: %" PRIu64 " bytes then, %" PRIu64 " now%s", slot->row.source_bytes,
                       bytes, slot->row.source_bytes == bytes ? ", with another time" : "");
        slot->finding = RESIZE_FINDING_STALE;
        return FSH_OK;
    }
    compare_output(check, thread, slot, target);
    return FSH_OK;
}

static FshStatus deliver(uint64_t index, void *memory, void *context, FshError *error)
{
    Check *check = context;
    const Slot *slot = memory;
    (void)index, (void)error;
    const bool is_counted = check->state.is_tar && slot->is_in_tar; /* when the tar was read */
    progress_add(&check->progress, !is_counted, slot->bytes_read,
                 slot->is_image && !slot->good && !is_counted);
    if (!slot->is_image)
        return FSH_OK;
    check->summary->images_count++;
    check->summary->good_count += slot->good;
    check->summary->bytes += slot->bytes_read;
    check->matched_count += slot->found;
    return slot->good ? FSH_OK : tell(check, slot->finding, slot->item.path, slot->reason);
}

static FshStatus check_images(Check *check, FshError *error)
{
    const ResizeOptions *options = check->options;
    FshStatus status = FSH_OK;
    check->threads = calloc((size_t)options->jobs, sizeof *check->threads);
    if (!check->threads)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %d threads", options->jobs);
    for (int i = 0; i < options->jobs && !status; i++)
        status = shrink_worker_new(&check->threads[i].worker, error);
    const PoolStream stream = {.take = take,
                               .work = look,
                               .deliver = deliver,
                               .slot_free = slot_free,
                               .window = (size_t)options->jobs * 8,
                               .slot_bytes = sizeof(Slot),
                               .context = check};
    if (!status)
        status = pool_run_stream(options->jobs, &stream, error);
    for (int i = 0; i < options->jobs; i++) {
        shrink_worker_free(&check->threads[i].worker);
        buffer_free(&check->threads[i].file);
    }
    free(check->threads);
    return status;
}

/* ---- from the destination to the source ---- */

static FshStatus check_folder(Check *check, FshError *error)
{
    WalkCursor *cursor = NULL;
    WalkEntry entry = {0};
    FshStatus status = walk_open(&cursor, check->options->destination, error);
    while (!status && !(status = walk_next(cursor, &entry, error)) && entry.path) {
        LedgerRow row;
        char source[PATH_MAX];
        bool found = false;
        status =
            entry.reason ? FSH_OK : resize_state_find(&check->state, entry.path, &found, &row, source, error);
        if (!status && !found)
            status =
                tell(check, RESIZE_FINDING_EXTRA, entry.path,
                     entry.reason ? entry.reason : "is in the destination, and fresize did not write it");
    }
    walk_close(&cursor);
    return status;
}

/* Checks one entry of the tar: tells what is not fresize's, and notes which outputs are there and whole, for
 * when the images of the source are looked up. */
static FshStatus check_entry(Check *check, TarReader *reader, const TarEntry *entry, Buffer *content,
                             FshError *error)
{
    LedgerRow row;
    char source[PATH_MAX];
    bool found = false, twice = false;
    const char *owner = NULL;
    if (entry->reason && strcmp(entry->path, check->options->destination) == 0) { /* there is no more of it */
        (void)snprintf(check->tar_reason, sizeof check->tar_reason, "%s", entry->reason);
        return FSH_OK;
    }
    FshStatus status = resize_state_find(&check->state, entry->path, &found, &row, source, error);
    if (!status && !found)
        return tell(check, RESIZE_FINDING_EXTRA, entry->path,
                    entry->reason ? entry->reason : "is in the tar, and fresize did not write it");
    if (!status)
        status = name_claims_take(check->seen, entry->path, entry->path, &twice, &owner, error);
    if (!status && twice)
        return tell(check, RESIZE_FINDING_EXTRA, entry->path, "stands in the tar a second time");
    const bool is_whole = !status && !entry->reason &&
                          !tar_reader_content(reader, content, row.bytes, NULL) &&
                          has_hash(&row, content->bytes, content->length);
    if (is_whole)
        status = name_claims_take(check->whole, entry->path, entry->path, &twice, &owner, error);
    check->summary->bytes += content->length;
    progress_add(&check->progress, 1, content->length, !is_whole);
    return status;
}

/* Checks the tar before the source: an image is good only if the tar holds what was written. */
static FshStatus check_tar(Check *check, FshError *error)
{
    TarReader *reader = NULL;
    TarEntry entry = {0};
    Buffer content = {0};
    const char *unmarked = NULL;
    FshStatus status = name_claims_new(&check->seen, false, error);
    if (!status)
        status = name_claims_new(&check->whole, false, error);
    if (!status)
        status = tar_reader_open(&reader, check->options->destination, error);
    while (!status && !(status = tar_reader_next(reader, &entry, error)) && entry.path) {
        content.length = 0;
        status = check_entry(check, reader, &entry, &content, error);
    }
    if (!status && tar_reader_unmarked(reader, &unmarked) &&
        strcmp(unmarked, check->options->destination) == 0) /* not one inside it */
        (void)snprintf(check->tar_reason, sizeof check->tar_reason,
                       "ends without an end marker: it was " TAR_CUT_SHORT);
    buffer_free(&content);
    tar_reader_close(&reader);
    return status;
}

/* Tells that a tar ends early, unless missing or damaged images were told: those are what it lacks, and
 * findings count images. */
static FshStatus tell_of_tar(Check *check)
{
    const uint64_t *counts = check->summary->finding_counts;
    if (!*check->tar_reason || counts[RESIZE_FINDING_MISSING] || counts[RESIZE_FINDING_DAMAGED])
        return FSH_OK;
    return tell(check, RESIZE_FINDING_DAMAGED, check->options->destination, check->tar_reason);
}

/* Returns whether an output was taken away, from a folder. */
static bool is_taken_away(const Check *check, const char *target)
{
    char path[PATH_MAX];
    struct stat status;
    return !check->state.is_tar && !file_join(path, sizeof path, check->options->destination, target, NULL) &&
           lstat(path, &status) && (errno == ENOENT || errno == ENOTDIR);
}

/* Checks that the source of a row is there, where the source is a folder. Where its output is gone, too,
 * there is nothing to tell. */
static FshStatus check_row(const char *target, const char *source, const LedgerRow *row, void *context,
                           FshError *error)
{
    Check *check = context;
    char path[PATH_MAX];
    struct stat status;
    (void)row;
    FshStatus joined = file_join(path, sizeof path, check->options->source.path, source, error);
    if (joined || stat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return joined;
    if (is_taken_away(check, target))
        return FSH_OK;
    (void)snprintf(path, sizeof path, "its source %.300s is gone", source);
    return tell(check, RESIZE_FINDING_GONE, target, path);
}

static FshStatus check_rows(Check *check, FshError *error)
{
    if (!resize_source_is_tar(&check->options->source))
        return resize_state_each(&check->state, check_row, check, error);
    char text[128];
    uint64_t rows = resize_state_count(&check->state);
    if (check->matched_count >= rows)
        return FSH_OK;
    (void)snprintf(text, sizeof text, "holds %" PRIu64 " outputs of images that the source does not have",
                   rows - check->matched_count);
    return tell(check, RESIZE_FINDING_GONE, check->options->destination, text);
}

/* ---- all of it ---- */

FshStatus resize_check(const ResizeOptions *options, ResizeOnFinding on_finding, void *context,
                       ResizeCheckSummary *summary, FshError *error)
{
    Check check = {.range.end = UINT64_MAX,
                   .options = options,
                   .on_finding = on_finding,
                   .context = context,
                   .summary = summary};
    const double start_seconds = progress_now_seconds();
    *summary = (ResizeCheckSummary){0};
    FshStatus status = resize_source_open(&check.source, &options->source, error);
    if (!status)
        status = resize_state_open(&check.state, options, error);
    if (!status) {
        progress_start(&check.progress, stderr, "checking", "images", resize_state_count(&check.state),
                       options->quiet);
        summary->is_tar = check.state.is_tar;
        status = options->part.count ? resize_range_find(options, &check.range, error) : FSH_OK;
    }
    if (!status && check.state.is_tar)
        status = check_tar(&check, error);
    if (!status)
        status = check_images(&check, error);
    if (!status)
        status = check.state.is_tar ? tell_of_tar(&check) : check_folder(&check, error);
    if (!status)
        status = check_rows(&check, error);
    progress_finish(&check.progress);
    name_claims_free(&check.seen);
    name_claims_free(&check.whole);
    resize_source_close(&check.source);
    resize_state_close(&check.state);
    summary->seconds = progress_now_seconds() - start_seconds;
    return status;
}

void resize_check_print(FILE *stream, const char *program, const ResizeCheckSummary *summary)
{
    char bytes[32];
    (void)fprintf(stream, "%s: %" PRIu64 " of %" PRIu64 " images have the output they should have", program,
                  summary->good_count, summary->images_count);
    for (size_t i = 0; i < RESIZE_FINDING_COUNT; i++) {
        if (summary->finding_counts[i])
            (void)fprintf(stream, ", %" PRIu64 " %s", summary->finding_counts[i], resize_finding_names[i]);
    }
    (void)fprintf(stream, "\n%s: %s of outputs read in %.1f s\n", program,
                  progress_format_bytes(bytes, sizeof bytes, summary->bytes), summary->seconds);
    const uint64_t *counts = summary->finding_counts;
    if (counts[RESIZE_FINDING_MISSING] + counts[RESIZE_FINDING_STALE] + counts[RESIZE_FINDING_DAMAGED])
        (void)fprintf(stream, "%s: the same command %s\n", program,
                      summary->is_tar ? "with --force instead of --check writes the tar anew"
                                      : "without --check makes missing and stale outputs again; delete the "
                                        "damaged ones first");
}

FshStatus resize_check_print_json(FILE *stream, const ResizeCheckSummary *summary, FshError *error)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "images",
                               (json_int_t)summary->images_count, "good", (json_int_t)summary->good_count,
                               "missing", (json_int_t)summary->finding_counts[RESIZE_FINDING_MISSING],
                               "stale", (json_int_t)summary->finding_counts[RESIZE_FINDING_STALE], "damaged",
                               (json_int_t)summary->finding_counts[RESIZE_FINDING_DAMAGED], "extra",
                               (json_int_t)summary->finding_counts[RESIZE_FINDING_EXTRA], "source_gone",
                               (json_int_t)summary->finding_counts[RESIZE_FINDING_GONE], "bytes",
                               (json_int_t)summary->bytes, "seconds", json_measured(summary->seconds));
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_PRINTED) : NULL;
    json_decref(object);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the summary");
    (void)fprintf(stream, "%s\n", text + 1); /* without the brace */
    free(text);
    return FSH_OK;
}
