#include "tools/resize/resize_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/progress.h"
#include "imaging/mask.h"
#include "imaging/shrink_names.h"
#include "tools/resize/resize_output.h"

FshStatus resize_thread_init(ResizeThread *thread, bool pairs, FshError *error)
{
    FshStatus status = shrink_worker_new(&thread->workers[0], error);
    if (!status && pairs)
        status = shrink_worker_new(&thread->workers[1], error);
    return status;
}

void resize_thread_free(ResizeThread *thread)
{
    for (size_t side = 0; side < 2; side++) {
        shrink_worker_free(&thread->workers[side]);
        buffer_free(&thread->files[side]);
    }
    file_unmap(&thread->mapping);
}

void resize_slot_free(void *memory)
{
    ResizeSlot *slot = memory;
    buffer_free(&slot->item.content);
    buffer_free(&slot->results[0].output);
    buffer_free(&slot->results[1].output);
}

/* ---- failures of one image ---- */

static void fail_result(ResizeResult *result, FshStatus status)
{
    result->outcome = RESIZE_OUTCOME_FAILED;
    if (result->reason.status != status)
        (void)fsh_error_set(&result->reason, status, "%s", fsh_strerror(status));
}

/* Fails the result of an image that the system could not read, or for which it had no memory: another time it
 * may. What is gone, or has a name that no file can have, stays so. */
static void fail_reading(ResizeResult *result, FshStatus status)
{
    const int number = result->reason.system_errno;
    result->is_unread =
        status == FSH_ERR_MEMORY || (status == FSH_ERR_SYSTEM && number != ENAMETOOLONG && number != ELOOP);
    fail_result(result, status);
}

/* Removes the path from the beginning of a message: it is told apart. */
static void drop_prefix(FshError *error, const char *path)
{
    size_t length = strlen(path);
    if (strncmp(error->message, path, length) == 0 && strncmp(error->message + length, ": ", 2) == 0)
        memmove(error->message, error->message + length + 2, strlen(error->message + length + 2) + 1);
}

/* ---- before the work ---- */

/* Returns whether two times are one, on any file system: the coarsest keep every second second, rounded. */
static bool is_same_time(int64_t a_ns, int64_t b_ns)
{
    static const uint64_t tolerance_ns = UINT64_C(3000000000);
    const uint64_t between = a_ns > b_ns ? (uint64_t)a_ns - (uint64_t)b_ns : (uint64_t)b_ns - (uint64_t)a_ns;
    return between <= tolerance_ns;
}

FshStatus resize_is_done(const ResizeJob *job, const ResizeResult *result, uint64_t source_bytes,
                         bool *done_ret, FshError *error)
{
    const ResizeOptions *options = job->options;
    bool found = false;
    LedgerRow row;
    char path[PATH_MAX];
    *done_ret = false;
    if (!job->state->resume)
        return FSH_OK;
    FshStatus status = resize_state_find(job->state, result->target, &found, &row, path, error);
    if (status || !found)
        return status;
    bool current =
        strcmp(path, result->path) == 0 && resize_row_is_current(&row, source_bytes, result->modified_ns);
    if (job->state->is_tar) {
        *done_ret = current;
        return current ? FSH_OK
                       : fsh_error_set(error, FSH_ERR_EXISTS,
                                       "%s: %s has changed since: %s is another; --force writes it anew",
                                       options->destination, options->source.path, result->path);
    }
    struct stat output;
    status = file_join(path, sizeof path, options->destination, result->target, error);
    /* the size too: a file system may lose the bytes of a file at a power cut, and keep the name; and the
     * time that it was given: who has written into it has changed that */
    *done_ret = !status && current && stat(path, &output) == 0 && S_ISREG(output.st_mode) &&
                (uint64_t)output.st_size == row.bytes &&
                is_same_time(file_time_ns(output.st_mtim), result->modified_ns);
    return status;
}

FshStatus resize_result_begin(const ResizeJob *job, size_t side, const char *path, const char *name,
                              ResizeResult *result, FshError *error)
{
    const bool is_mask = resize_source_is_mask(&job->options->source, side);
    Buffer output = result->output;
    output.length = 0;
    if (output.capacity > RESIZE_KEPT_BYTES)
        buffer_free(&output);
    *result =
        (ResizeResult){.path = path, .is_mask = is_mask, .outcome = RESIZE_OUTCOME_FAILED, .output = output};
    return shrink_name_target(name, is_mask ? IMAGE_UNKNOWN : job->options->recipe.format, result->target,
                              &result->format, error);
}

/* ---- one image ---- */

/* Returns whether an output that was renamed would take the place of another source's. */
static bool is_taken_by_source(const ResizeJob *job, ResizeResult *result)
{
    char path[PATH_MAX];
    struct stat found;
    if (!job->sorted || strcmp(result->path, result->target) == 0 ||
        file_join(path, sizeof path, job->options->source.path, result->target, NULL))
        return false;
    if (stat(path, &found)) {
        const bool is_gone = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP;
        if (!is_gone)
            fail_reading(result, fsh_error_system(&result->reason, errno,
                                                  "would be written to %.400s, which cannot be looked at",
                                                  result->target));
        return !is_gone;
    }
    const bool is_folder = S_ISDIR(found.st_mode);
    (void)fsh_error_set(&result->reason, FSH_ERR_EXISTS,
                        "would be written to %.400s, %s%.400s%s; rename one of them", result->target,
                        is_folder ? "which is a folder" : "as ", is_folder ? "" : result->target,
                        is_folder ? "" : " is");
    return true;
}

/* Asks for a file whose turn comes later, where those that this thread reads come from a disk. */
static void ask_ahead(const ResizeJob *job, ResizeThread *thread, const char *path)
{
    char whole[PATH_MAX];
    if (path[0] && read_ahead_is_due(&thread->ahead) &&
        !file_join(whole, sizeof whole, job->options->source.path, path, NULL))
        read_ahead_ask(AT_FDCWD, whole);
}

/* Reads the content of a file, or its beginning where a header is enough: *bytes_ret, *length_ret of them.
 * ahead: the file to ask for before. */
static FshStatus read_file(const ResizeJob *job, ResizeThread *thread, size_t side, const char *path,
                           const char *ahead, ResizeResult *result, const uint8_t **bytes_ret,
                           size_t *length_ret)
{
    FshStatus status = FSH_OK;
    double begin = progress_now_seconds();
    if (job->options->dry_run) {
        file_unmap(&thread->mapping);
        status = file_map(path, &thread->mapping, &result->reason);
        *bytes_ret = thread->mapping.bytes;
        *length_ret = (size_t)thread->mapping.length;
    } else {
        Buffer *file = &thread->files[side];
        ask_ahead(job, thread, ahead);
        if (file->capacity > RESIZE_KEPT_BYTES)
            buffer_free(file);
        status = file_read_most(path, shrink_most_bytes(&job->options->recipe), file, &result->reason);
        *bytes_ret = file->bytes;
        *length_ret = file->length;
    }
    drop_prefix(&result->reason, path);
    thread->stage_seconds[RESIZE_STAGE_READING] += progress_now_seconds() - begin;
    return status;
}

FshStatus resize_is_image_by_content(const char *path, bool *is_image_ret, FshError *error)
{
    uint8_t bytes[IMAGE_SNIFF_BYTES];
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    const int failure = !file || ferror(file) ? errno : 0;
    if (file)
        (void)fclose(file);
    *is_image_ret = length && image_sniff(bytes, length) != IMAGE_UNKNOWN;
    return failure && !length && failure != EISDIR
               ? fsh_error_system(error, failure, "cannot be read, and may be an image")
               : FSH_OK;
}

/* Makes an image or a mask smaller, or in a dry run looks at its header. */
static FshStatus shrink(const ResizeJob *job, ShrinkWorker *worker, const uint8_t *bytes, size_t length,
                        ResizeResult *result)
{
    const ShrinkRecipe *recipe = &job->options->recipe;
    ShrunkImage *image = &result->image;
    FshError *reason = &result->reason;
    if (result->is_mask)
        return job->options->dry_run ? shrink_mask_plan(bytes, length, recipe, image, reason)
                                     : shrink_mask(worker, bytes, length, recipe, image, reason);
    return (job->options->dry_run ? shrink_image_plan : shrink_image)(worker, bytes, length, result->format,
                                                                      recipe, image, reason);
}

/* Makes bytes an image in result, with the thread's worker of this side. */
static void make_image(const ResizeJob *job, ResizeThread *thread, size_t side, const uint8_t *bytes,
                       size_t length, ResizeResult *result)
{
    static const ResizeOutcome outcomes[] = {
        [SHRINK_COPIED] = RESIZE_OUTCOME_COPIED,
        [SHRINK_CONVERTED] = RESIZE_OUTCOME_CONVERTED,
        [SHRINK_RESIZED] = RESIZE_OUTCOME_RESIZED,
        [SHRINK_TOO_SMALL] = RESIZE_OUTCOME_TOO_SMALL,
    };
    ShrunkImage *image = &result->image;
    result->bytes_before = length;
    result->begins_as_mask = !result->is_mask && mask_begins(bytes, length);
    FshStatus status = shrink(job, thread->workers[side], bytes, length, result);
    if (job->options->dry_run && file_mapping_check(&thread->mapping, 0, length, &result->reason))
        status = FSH_ERR_SYSTEM;
    thread->stage_seconds[RESIZE_STAGE_DECODING] += image->decode_seconds;
    thread->stage_seconds[RESIZE_STAGE_RESAMPLING] += image->resample_seconds;
    thread->stage_seconds[RESIZE_STAGE_ENCODING] += image->encode_seconds;
    ImageFormat promised = image_name_format(result->path);
    if (promised != IMAGE_UNKNOWN && image->info.format != IMAGE_UNKNOWN && promised != image->info.format)
        image->info.quirks |= IMAGE_QUIRK_EXTENSION;
    if (status)
        fail_reading(result, status);
    else
        result->outcome = outcomes[image->action];
}

/* Makes a side of a slot's item an image ready to be written; what goes wrong with the image stands in its
 * result. anew: also an image that was done before. Returns a failure only of the destination, which ends the
 * run. */
static FshStatus prepare(const ResizeJob *job, ResizeThread *thread, ResizeSlot *slot, size_t side, bool anew,
                         FshError *error)
{
    const ResizeItem *item = &slot->item;
    ResizeResult *result = &slot->results[side];
    char path[PATH_MAX], target[PATH_MAX];
    struct stat source;
    bool done = false;
    const uint8_t *bytes = item->content.bytes;
    size_t length = item->content.length;
    FshStatus status = file_join(path, sizeof path, job->options->source.path, result->path, NULL);
    if (!status)
        status = file_join(target, sizeof target, job->options->destination, result->target, NULL);
    if (status) {
        fail_result(result, fsh_error_set(&result->reason, status, "its path would be too long"));
        return FSH_OK;
    }
    if (!item->in_tar) {
        if (stat(path, &source)) {
            fail_reading(result, fsh_error_system(&result->reason, errno, "cannot be read"));
            return FSH_OK;
        }
        result->bytes_before = (uint64_t)source.st_size;
        result->modified_ns = file_time_ns(source.st_mtim);
        if (image_name_is_image(result->path) && is_taken_by_source(job, result))
            return FSH_OK;
        if (!anew)
            status = resize_is_done(job, result, result->bytes_before, &done, error);
        if (status || done) {
            result->outcome = RESIZE_OUTCOME_DONE_BEFORE;
            return status;
        }
    }
    bool promised = image_name_is_image(result->path);
    bool is_image = promised || (item->in_tar && image_sniff(bytes, length) != IMAGE_UNKNOWN);
    if (!promised && !item->in_tar)
        status = resize_is_image_by_content(path, &is_image, &result->reason);
    if (status) {
        fail_reading(result, status);
        return FSH_OK;
    }
    result->is_other = !is_image;
    if (result->is_other || is_taken_by_source(job, result))
        return FSH_OK;
    if (!item->name[0]) {
        result->is_unplaced = true;
        fail_result(result,
                    fsh_error_set(&result->reason, FSH_ERR_NOT_FOUND, "has no label in the file of labels"));
        return FSH_OK;
    }
    if (!item->in_tar) {
        if (!job->state->fresh && !job->state->is_tar &&
            (output_is_beside(path, target) || resize_state_leads_to_source(job->state, target)))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: lies in the folder of its own source, %s; take another "
                                 "destination",
                                 target, path);
        status = read_file(job, thread, side, path, slot->ahead[side], result, &bytes, &length);
    }
    if (status)
        fail_reading(result, status);
    else
        make_image(job, thread, side, bytes, length, result);
    return FSH_OK;
}

bool resize_has_output(const ResizeResult *result)
{
    return result->outcome == RESIZE_OUTCOME_RESIZED || result->outcome == RESIZE_OUTCOME_CONVERTED ||
           result->outcome == RESIZE_OUTCOME_COPIED;
}

static FshStatus write_file(const ResizeJob *job, const ResizeItem *item, ResizeResult *result,
                            FshError *error)
{
    char path[PATH_MAX], source[PATH_MAX];
    bool linked = false;
    const bool wanted = job->options->link && result->outcome == RESIZE_OUTCOME_COPIED && !item->in_tar;
    FshStatus status = file_join(path, sizeof path, job->options->destination, result->target, error);
    if (!status && wanted)
        status = file_join(source, sizeof source, job->options->source.path, result->path, error);
    if (!status && wanted)
        status = output_link(source, path, &linked, error);
    if (!status && !linked)
        status = output_write(path, result->image.bytes, result->image.length, result->modified_ns, error);
    result->unlinked = wanted && !linked;
    if (linked)
        result->outcome = RESIZE_OUTCOME_LINKED;
    return status;
}

/* Returns whether an output could not be written because no file can have its name, or a file has the name of
 * its folder: the next one can be. */
static bool is_about_name(const FshError *error)
{
    static const int numbers[] = {ENAMETOOLONG, EISDIR, ENOTDIR, ELOOP, EILSEQ, EINVAL};
    bool found = error->status == FSH_ERR_EXISTS;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        found = found || (error->status != FSH_OK && error->system_errno == numbers[i]);
    return found;
}

/* Writes what prepare has made, or keeps it for its turn. */
static FshStatus put(const ResizeJob *job, ResizeThread *thread, const ResizeItem *item, ResizeResult *result,
                     FshError *error)
{
    if (!resize_has_output(result) || job->options->dry_run)
        return FSH_OK;
    double begin = progress_now_seconds();
    const ShrunkImage *image = &result->image;
    result->is_new = true;
    result->row = (LedgerRow){.source_bytes = result->bytes_before,
                              .source_modified_ns = result->modified_ns,
                              .bytes = image->length};
    ledger_hash(image->bytes, image->length, result->row.hash);
    FshError failure = {0};
    FshStatus status = job->state->is_tar
                           ? buffer_append(&result->output, image->bytes, image->length, &failure)
                           : write_file(job, item, result, &failure);
    thread->stage_seconds[RESIZE_STAGE_WRITING] += progress_now_seconds() - begin;
    if (status && is_about_name(&failure)) {
        result->is_new = false;
        result->reason = failure;
        fail_result(result, status);
        return FSH_OK;
    }
    if (status && error)
        *error = failure;
    return status;
}

/* ---- a pair ---- */

/* Fails an image that its EXIF orientation turns: whether its mask was drawn before or after nobody can tell,
 * and fpack --masks refuses it too. */
static void check_upright(ResizeResult *result)
{
    const unsigned orientation = result->image.info.orientation;
    if (resize_has_output(result) && orientation > 1)
        fail_result(result,
                    fsh_error_set(&result->reason, FSH_ERR_MISMATCH,
                                  "is turned by its EXIF orientation (%u), and its mask may be of the image "
                                  "before or after: write the image upright, as its mask shows it",
                                  orientation));
}

/* Fails both sides unless both keep the same geometry. */
static void compare_sides(const ResizeJob *job, ResizeResult results[2])
{
    const bool stored = job->options->recipe.ignore_orientation, masks = job->options->source.masks;
    const ImageInfo *infos[2] = {&results[0].image.info, &results[1].image.info};
    uint32_t sizes[2][2];
    for (size_t side = 0; side < 2; side++) {
        sizes[side][0] = stored ? infos[side]->stored_width : infos[side]->width;
        sizes[side][1] = stored ? infos[side]->stored_height : infos[side]->height;
    }
    for (size_t side = 0; side < 2; side++) {
        ResizeResult *result = &results[side], *other = &results[!side];
        if (result->outcome == RESIZE_OUTCOME_FAILED)
            continue;
        if (other->outcome == RESIZE_OUTCOME_FAILED)
            fail_result(result, fsh_error_set(&result->reason, FSH_ERR_MISMATCH,
                                              "its partner %.200s cannot be used", other->path));
    }
    if (results[0].outcome == RESIZE_OUTCOME_DONE_BEFORE || results[0].outcome == RESIZE_OUTCOME_FAILED)
        return;
    if (memcmp(sizes[0], sizes[1], sizeof sizes[0]) == 0)
        return;
    const bool scaled = !masks && (image_whole_factor(sizes[0][0], sizes[0][1], sizes[1][0], sizes[1][1]) ||
                                   image_whole_factor(sizes[1][0], sizes[1][1], sizes[0][0], sizes[0][1]));
    for (size_t side = 0; side < 2; side++)
        fail_result(&results[side],
                    fsh_error_set(
                        &results[side].reason, FSH_ERR_MISMATCH,
                        "is %u x %u, its partner %.200s %u x %u; %s must be of one size%s", sizes[side][0],
                        sizes[side][1], results[!side].path, sizes[!side][0], sizes[!side][1],
                        masks ? "an image and its mask" : "a pair",
                        scaled ? ": pairs for super-resolution go into fpack --pair-scale as they are" : ""));
}

static FshStatus work_on_pair(const ResizeJob *job, ResizeThread *thread, ResizeSlot *slot, FshError *error)
{
    const ResizeItem *item = &slot->item;
    ResizeResult *results = slot->results;
    FshStatus status =
        resize_source_partner(job->options->source.path, item, slot->partner, &results[0].reason);
    if (status) {
        results[0].is_other = !image_name_is_image(item->path);
        results[0].is_unplaced = status == FSH_ERR_NOT_FOUND;
        fail_reading(&results[0], status);
        return FSH_OK;
    }
    slot->results_count = item->is_second_side ? 0 : 2;
    if (item->is_second_side)
        return FSH_OK;
    status = resize_result_begin(job, 1, slot->partner, slot->partner, &results[1], &results[0].reason);
    if (status) {
        slot->results_count = 1;
        fail_result(&results[0], status);
        return FSH_OK;
    }
    bool done[2] = {false, false};
    for (size_t side = 0; side < 2 && !status; side++) {
        status = prepare(job, thread, slot, side, false, error);
        done[side] = results[side].outcome == RESIZE_OUTCOME_DONE_BEFORE;
    }
    const bool one_done = done[0] != done[1]; /* its size is still to be compared */
    if (!status && one_done)
        status = prepare(job, thread, slot, done[1], true, error);
    if (status)
        return status;
    if (job->options->source.masks)
        check_upright(&results[0]);
    compare_sides(job, results);
    if (one_done && results[done[1]].outcome != RESIZE_OUTCOME_FAILED)
        results[done[1]].outcome = RESIZE_OUTCOME_DONE_BEFORE;
    for (size_t side = 0; side < 2 && !status; side++)
        status = put(job, thread, item, &results[side], error);
    return status;
}

/* ---- any item ---- */

static const char *unknown_owner(const ResizeJob *job)
{
    return job->options->source.files_from ? "an image before it in the list" : "another image";
}

FshStatus resize_work(const ResizeJob *job, ResizeThread *thread, ResizeSlot *slot, FshError *error)
{
    const ResizeItem *item = &slot->item;
    ResizeResult *result = &slot->results[0];
    if (slot->done) {
        result->outcome = RESIZE_OUTCOME_DONE_BEFORE;
        return FSH_OK;
    }
    if (item->reason[0]) {
        result->is_other = item->is_outside && !image_name_is_image(item->path);
        result->is_outside = item->is_outside && item->is_unplaced && !result->is_other;
        result->is_unplaced = item->is_unplaced;
        result->is_unread = item->is_unread;
        fail_result(result, fsh_error_set(&result->reason, FSH_ERR_CORRUPT, "%s", item->reason));
        return FSH_OK;
    }
    if (slot->conflict) {
        fail_result(result, fsh_error_set(&result->reason, FSH_ERR_EXISTS,
                                          "would be written to %.400s, as %.400s is; rename one of them",
                                          result->target, slot->owner[0] ? slot->owner : unknown_owner(job)));
        return FSH_OK;
    }
    if (item->partner[0])
        return work_on_pair(job, thread, slot, error);
    FshStatus status = prepare(job, thread, slot, 0, false, error);
    return status ? status : put(job, thread, item, result, error);
}
