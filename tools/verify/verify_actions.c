#include "tools/verify/verify_actions.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/display_names.h"
#include "common/file.h"
#include "common/json_text.h"
#include "common/path.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"
#include "formats/names.h"
#include "tools/job/destination.h"
#include "tools/job/job.h"
#include "tools/verify/verify_extract.h"
#include "tools/verify/verify_list.h"
#include "tools/verify/verify_names.h"
#include "tools/verify/verify_report.h"
#include "tools/verify/verify_sheet.h"

/* ---- list ---- */

FshStatus action_list(const ActionOptions *options, bool *partial_ret, FshError *error)
{
    FshDataset *dataset = NULL;
    uint64_t bad_count = 0;
    FshStatus status = fsh_open(&dataset, options->path, error);
    if (!status)
        status = verify_list(dataset, stdout, &bad_count, error);
    fsh_close(&dataset);
    *partial_ret = *partial_ret || bad_count;
    return status;
}

/* ---- extract ---- */

static uint64_t count_samples(const FshDataset *dataset)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    uint64_t count = 0;
    for (size_t i = 0; i < manifest->split_count; i++)
        count += manifest->splits[i].sample_count;
    return count;
}

/* Writes to real where path lies, or will lie: it, or the nearest folder above it that is there. Returns
 * false where that cannot be found out. */
static bool find_real(const char *path, char real[PATH_MAX])
{
    char above[PATH_MAX];
    if (snprintf(above, sizeof above, "%s", path) >= (int)sizeof above)
        return false;
    while (!realpath(above, real)) {
        char *slash = strrchr(above, '/');
        if (!slash)
            return realpath(".", real) != NULL;
        slash[slash == above] = '\0'; /* "/x": "/" */
    }
    return true;
}

/* Refuses a target in the dataset, into which nothing is written. */
static FshStatus refuse_inside(const char *path, const char *target, FshError *error)
{
    char dataset[PATH_MAX], real[PATH_MAX];
    if (file_is_folder(path) && realpath(path, dataset) && find_real(target, real) &&
        path_lies_in(real, dataset))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--extract: %s lies in the dataset %s; choose another folder", target, path);
    return FSH_OK;
}

static void print_extracted(const ActionOptions *options, const VerifyReport *report,
                            const ExtractResult *result)
{
    char count[32], bytes[32];
    verify_print_problems(stdout, report, options->verbose);
    if (options->quiet)
        return;
    program_print_text(stdout, options->target);
    (void)printf(": %s file%s, %s", progress_format_count(count, sizeof count, result->file_count),
                 text_plural(result->file_count), progress_format_bytes(bytes, sizeof bytes, result->bytes));
    if (report->problem_count)
        (void)printf("; %s problem%s", progress_format_count(count, sizeof count, report->problem_count),
                     text_plural(report->problem_count));
    (void)printf("\n");
}

FshStatus action_extract(const ActionOptions *options, bool *partial_ret, FshError *error)
{
    FshDataset *dataset = NULL;
    VerifyReport report = {.path = strdup(options->path), .name = strdup(options->name)};
    ExtractResult result = {0};
    Progress progress;
    FshStatus status = report.path && report.name
                           ? fsh_open(&dataset, options->path, error)
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->path);
    if (!status)
        status = refuse_inside(fsh_path(dataset), options->target, error);
    if (!status) {
        progress_start(&progress, stderr, "extracting", "samples", count_samples(dataset), options->quiet);
        status = verify_extract(dataset, options->target, options->jobs, &progress, &report, &result, error);
        progress_finish(&progress);
    }
    if (!status && options->json)
        status = job_print_json(stdout,
                                json_pack("{s:s, s:b, s:o, s:o, s:I, s:I, s:o}", "program", "fverify", "ok",
                                          report.problem_count == 0, "path", json_text(options->name),
                                          "folder", json_text(options->target), "files",
                                          (json_int_t)result.file_count, "bytes", (json_int_t)result.bytes,
                                          "problems", verify_problems_to_json(&report)),
                                JSON_SORT_KEYS, error);
    else if (!status)
        print_extracted(options, &report, &result);
    *partial_ret = *partial_ret || report.problem_count;
    verify_report_free(&report);
    fsh_close(&dataset);
    return status;
}

/* ---- sheet ---- */

FshStatus action_sheet(const ActionOptions *options, bool *partial_ret, FshError *error)
{
    const ThumbOptions thumb_options = {.count = SHEET_SAMPLES, .edge = SHEET_EDGE_PX, .jobs = options->jobs};
    FshDataset *dataset = NULL;
    Thumbs thumbs = {0};
    FshStatus status = verify_open_named(&dataset, options->path, error);
    if (!status)
        status = thumbs_make(dataset, &thumb_options, &thumbs, error);
    if (!status)
        status = sheet_write(&(SheetSection){NULL, &thumbs}, 1, options->target, options->force, error);
    for (size_t i = 0; i < thumbs.count; i++)
        *partial_ret = *partial_ret || thumbs.items[i].reason[0];
    if (!status && options->json)
        status = job_print_json(stdout,
                                json_pack("{s:s, s:b, s:o, s:o, s:I}", "program", "fverify", "ok",
                                          !*partial_ret, "path", json_text(options->name), "sheet",
                                          json_text(options->target), "samples", (json_int_t)thumbs.count),
                                JSON_SORT_KEYS, error);
    else if (!status && !options->quiet) {
        program_print_text(stdout, options->target);
        (void)printf(": %zu sample%s%s\n", thumbs.count, text_plural(thumbs.count),
                     *partial_ret ? ", of which some cannot be decoded (--decode lists them)" : "");
    }
    thumbs_free(&thumbs);
    fsh_close(&dataset);
    return status;
}

/* ---- repair ---- */

typedef struct Losses {
    const ActionOptions *options;
    json_t *array; /* with --json */
    bool failed;   /* no memory for it */
} Losses;

static void print_loss(const FshLoss *loss)
{
    char text[1024];
    (void)printf("lost: bytes %" PRIu64 " to %" PRIu64, loss->offset, loss->offset + loss->bytes - 1);
    if (loss->key) {
        (void)snprintf(text, sizeof text, ", key %.*s", (int)loss->key_bytes, loss->key);
        program_print_text(stdout, text);
    }
    if (loss->source_bytes) {
        (void)snprintf(text, sizeof text, ", source %.*s", (int)loss->source_bytes, loss->source);
        program_print_text(stdout, text);
    }
    (void)printf(": ");
    program_print_text(stdout, loss->reason);
    (void)printf("\n");
}

static json_t *bytes_to_json(const char *text, size_t length)
{
    char *copy = text ? text_copy(text, length) : NULL;
    json_t *json = json_text(copy);
    free(copy);
    return json;
}

static void visit_loss(const FshLoss *loss, void *context)
{
    Losses *losses = context;
    if (!losses->array) {
        print_loss(loss);
        return;
    }
    json_t *object =
        json_pack("{s:I, s:I, s:o, s:o, s:o}", "offset", (json_int_t)loss->offset, "bytes",
                  (json_int_t)loss->bytes, "key", bytes_to_json(loss->key, loss->key_bytes), "source",
                  bytes_to_json(loss->source, loss->source_bytes), "reason", json_text(loss->reason));
    losses->failed |= json_array_append_new(losses->array, object) != 0;
}

FshStatus action_repair(const ActionOptions *options, bool *partial_ret, FshError *error)
{
    Losses losses = {.options = options, .array = options->json ? json_array() : NULL};
    FshRepairReport report = {0};
    char count[32], bytes[32];
    FshStatus status = FSH_OK;
    if (file_is_folder(options->path))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "%s: is a folder; --repair takes one shard, a .fshard file", options->path);
    else if (file_exists(options->target)) /* a shard: --force does not replace those */
        status = fsh_error_set(error, FSH_ERR_EXISTS,
                               "%s: exists already; --repair takes the name of a new file", options->target);
    if (!status)
        status = fsh_repair(options->path, options->target, visit_loss, &losses, &report, error);
    if (!status)
        *partial_ret = *partial_ret || report.lost_ranges;
    if (!status && options->json) {
        status = losses.failed
                     ? fsh_error_set(error, FSH_ERR_MEMORY, "--json: out of memory")
                     : job_print_json(
                           stdout,
                           json_pack("{s:s, s:b, s:o, s:o, s:I, s:I, s:I, s:O}", "program", "fverify", "ok",
                                     report.lost_ranges == 0, "path", json_text(options->name), "repaired",
                                     json_text(options->target), "records", (json_int_t)report.record_count,
                                     "bytes", (json_int_t)report.record_bytes, "lost_bytes",
                                     (json_int_t)report.lost_bytes, "lost", losses.array),
                           JSON_SORT_KEYS, error);
    } else if (!status && !options->quiet) {
        program_print_text(stdout, options->target);
        (void)printf(": %s record%s, %s", progress_format_count(count, sizeof count, report.record_count),
                     text_plural(report.record_count),
                     progress_format_bytes(bytes, sizeof bytes, report.record_bytes));
        if (report.lost_ranges && report.indexed)
            (void)printf("; %s record%s lost", progress_format_count(count, sizeof count, report.lost_ranges),
                         text_plural(report.lost_ranges));
        if (report.lost_ranges)
            (void)printf("; %s lost", progress_format_bytes(bytes, sizeof bytes, report.lost_bytes));
        else
            (void)printf("; nothing lost");
        (void)printf("\n");
    }
    json_decref(losses.array);
    return status;
}

/* ---- names of classes ---- */

/* Fills manifest with that of a finished dataset of classes or masks and folder with its folder, in which
 * nobody else writes until *lock_ret goes to destination_release. */
static FshStatus load_classes(const char *path, FshManifest *manifest, char folder[PATH_MAX], int *lock_ret,
                              FshError *error)
{
    const size_t length = strlen(path), name = strlen(FSH_MANIFEST_NAME);
    const bool is_manifest =
        !file_is_folder(path) && length >= name && strcmp(path + length - name, FSH_MANIFEST_NAME) == 0;
    if (length >= PATH_MAX || (!is_manifest && !file_is_folder(path)))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: --set-class-names takes the folder of a dataset that fpack made", path);
    (void)snprintf(folder, PATH_MAX, "%.*s", (int)(is_manifest ? length - name : length), path);
    if (!*folder)
        (void)snprintf(folder, PATH_MAX, ".");
    FshStatus status = destination_hold_dataset(folder, lock_ret, error);
    if (!status)
        status = fsh_manifest_load(manifest, folder, error);
    if (!status && manifest->kind == FSH_KIND_PAIRS)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: holds pairs, which have no classes", path);
    return status;
}

/* Gives the manifest the names of its classes. *count_ret: how many those are, *named_ret: with a name;
 * *without: one that has none. */
static FshStatus take_names(const char *path, FshManifest *manifest, size_t *count_ret, size_t *named_ret,
                            const char **without, FshError *error)
{
    char **names = NULL;
    if (manifest->kind == FSH_KIND_MASKS) {
        size_t count = 0;
        const FshStatus status = display_names_of_values(path, FSH_MASK_IGNORED, &names, &count, error);
        if (status)
            return status;
        fsh_names_free(manifest->mask_names, manifest->mask_name_count);
        manifest->mask_names = names;
        *named_ret = *count_ret = manifest->mask_name_count = count;
        if (count < manifest->statistics.mask_classes) {
            *count_ret = manifest->statistics.mask_classes;
            *without = "the largest value of its masks";
        }
        return FSH_OK;
    }
    const FshStatus status = display_names_read(path, manifest->class_names, manifest->class_count, true,
                                                &names, named_ret, error);
    if (status)
        return status;
    display_names_free(manifest->class_display_names, manifest->class_count);
    manifest->class_display_names = names;
    *count_ret = manifest->class_count;
    for (size_t i = 0; i < manifest->class_count && !*without; i++)
        *without = names[i][0] ? NULL : manifest->class_names[i];
    return FSH_OK;
}

FshStatus action_name_classes(const ActionOptions *options, bool *partial_ret, FshError *error)
{
    FshManifest manifest = {0};
    char folder[PATH_MAX];
    const char *without = NULL;
    size_t named = 0, count = 0;
    int lock = -1;
    FshStatus status = load_classes(options->path, &manifest, folder, &lock, error);
    if (!status)
        status = take_names(options->target, &manifest, &count, &named, &without, error);
    if (!status)
        status = fsh_manifest_save(&manifest, folder, true, error);
    destination_release(folder, lock);
    *partial_ret = *partial_ret || without;
    if (!status && options->json) {
        status = job_print_json(stdout,
                                json_pack("{s:s, s:b, s:o, s:I, s:I}", "program", "fverify", "ok", !without,
                                          "path", json_text(options->name), "classes", (json_int_t)count,
                                          "named", (json_int_t)named),
                                JSON_SORT_KEYS, error);
    } else if (!status && (!options->quiet || without)) {
        program_print_text(stdout, options->name);
        (void)printf(": %zu of %zu classes have names", named, count);
        if (without) {
            (void)printf("; none has, for example, ");
            program_print_text(stdout, without);
        }
        (void)printf("\n");
    }
    fsh_manifest_free(&manifest);
    return status;
}
