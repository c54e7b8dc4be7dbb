#include "tools/verify/verify.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "tools/job/contents.h"
#include "tools/verify/verify_names.h"
#include "tools/verify/verify_records.h"
#include "tools/verify/verify_report.h"
#include "tools/verify/verify_root.h"

/* A file that fsh_check found whole, and has counted. */
typedef struct CountedFile {
    char *name;
    uint64_t sample_count, bytes, *class_counts;
    size_t class_count;
    VerifyTally tally;
} CountedFile;

typedef struct Verification {
    const VerifyOptions *options;
    VerifyReport *report;
    char folder[PATH_MAX]; /* that the manifest's files are in */
    /* of a part: the manifest's files first_file .. end_file - 1, counted through the splits */
    uint64_t first_file, end_file, asked_count, promised_count;
    uint64_t skipped_count; /* samples of the split at hand in files that are not looked at */
    Progress progress;
    Against against;       /* folder NULL: nothing is compared */
    CountedFile **counted; /* in the order of the manifest */
    size_t counted_count, counted_capacity, counted_next;
    FshStatus visit_status; /* of noting what fsh_check found */
    FshError visit_error;
} Verification;

static FshStatus add_problem(VerifyReport *report, FshStatus status, const char *file, const char *reason,
                             FshError *error)
{
    const FshProblem problem = {.status = status, .file = file, .record = -1, .reason = reason};
    return verify_add_problem(report, &problem, error);
}

static void visit(const FshProblem *problem, void *context)
{
    Verification *verification = context;
    if (!verification->visit_status)
        verification->visit_status =
            verify_add_problem(verification->report, problem, &verification->visit_error);
}

/* ---- what fsh_check counted ---- */

static void free_counted(CountedFile *file)
{
    if (file) {
        free(file->name);
        free(file->class_counts);
        free(file);
    }
}

/* Keeps what was counted of a file. FSH_ERR_MEMORY. */
static FshStatus keep_counted(const FshFileInfo *info, const uint64_t *class_counts, size_t class_count,
                              const void *own, void *context, FshError *error)
{
    Verification *verification = context;
    const VerifyTally *tally = own;
    CountedFile *file = calloc(1, sizeof *file);
    if (verification->counted_count == verification->counted_capacity) {
        const size_t larger = verification->counted_capacity ? 2 * verification->counted_capacity : 16;
        CountedFile **grown = reallocarray(verification->counted, larger, sizeof(CountedFile *));
        if (grown) {
            verification->counted = grown;
            verification->counted_capacity = larger;
        }
    }
    if (file)
        *file = (CountedFile){.name = strdup(info->name),
                              .sample_count = info->sample_count,
                              .bytes = info->bytes,
                              .class_counts = calloc(class_count + 1, sizeof *file->class_counts),
                              .class_count = class_count,
                              .tally = *tally};
    if (!file || !file->name || !file->class_counts ||
        verification->counted_count == verification->counted_capacity) {
        free_counted(file);
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", info->name);
    }
    memcpy(file->class_counts, class_counts, class_count * sizeof *class_counts);
    verification->counted[verification->counted_count++] = file;
    progress_add(&verification->progress, info->sample_count, tally->images.bytes.sum, 0);
    return FSH_OK;
}

static void add_counts(VerifySplit *split, const uint64_t *class_counts, size_t class_count)
{
    for (size_t i = 0; i < class_count && split->class_counts && class_counts; i++)
        split->class_counts[i] += class_counts[i];
}

/* Adds a file that was counted to its split and to the report. Returns false where it was not: then it is to
 * be opened. */
static bool add_counted(Verification *verification, const char *name, VerifySplit *split)
{
    const CountedFile *file = verification->counted_next < verification->counted_count
                                  ? verification->counted[verification->counted_next]
                                  : NULL;
    const size_t class_count = verification->report->manifest.class_count;
    if (!file || strcmp(file->name, name) != 0)
        return false;
    verification->counted_next++;
    if (file->class_count != class_count || !verify_add_tally(verification->report, &file->tally))
        return false;
    split->file_count++;
    split->sample_count += file->sample_count;
    split->bytes += file->bytes;
    add_counts(split, file->class_counts, class_count);
    return true;
}

/* ---- what is at the path ---- */

/* Returns whether path leads to a dataset.json; folder gets the folder it is in. */
static bool find_manifest(const char *path, char folder[PATH_MAX])
{
    char manifest[PATH_MAX];
    if (file_is_folder(path)) {
        (void)snprintf(folder, PATH_MAX, "%s", path);
        return file_join(manifest, sizeof manifest, path, FSH_MANIFEST_NAME, NULL) == FSH_OK &&
               file_exists(manifest);
    }
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    (void)snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    return dot &&
           strcmp(dot, ".json") == 0; /* by name, as fsh_check does: the content may be what is damaged */
}

/* Adds the problem of a path that cannot be opened. Where fpack was stopped, that says more than "no
 * dataset.json". */
static FshStatus explain_missing(VerifyReport *report, const FshError *failure, FshError *error)
{
    char partial[PATH_MAX];
    const char *reason = failure->message;
    const size_t length = strlen(report->path);
    if (file_join(partial, sizeof partial, report->path, CONTENTS_PARTIAL_NAME, NULL) == FSH_OK &&
        file_exists(partial))
        reason = "is unfinished: fpack was stopped, or is at work; the same fpack command goes on";
    else if (strncmp(reason, report->path, length) == 0 && strncmp(reason + length, ": ", 2) == 0)
        reason += length + 2;
    return add_problem(report, failure->status, report->name, reason, error);
}

static FshStatus name_classes(FshManifest *manifest, FshError *error)
{
    char **names = NULL;
    const FshStatus status = verify_names_read(manifest, &names, error);
    if (names)
        manifest->class_display_names = names;
    return status;
}

/* ---- counts ---- */

/* Makes a split of the report for each of the manifest. Returns false when out of memory. */
static bool make_splits(VerifyReport *report)
{
    const FshManifest *manifest = &report->manifest;
    report->splits = calloc(manifest->split_count + 1, sizeof *report->splits);
    bool complete = report->splits != NULL;
    for (size_t i = 0; i < manifest->split_count && complete; i++) {
        VerifySplit *split = &report->splits[i];
        const char *name = manifest->splits[i].name;
        split->name = name ? strdup(name) : NULL;
        complete = split->name != NULL;
        if (manifest->class_count && complete) {
            split->class_counts = calloc(manifest->class_count, sizeof *split->class_counts);
            complete = split->class_counts != NULL;
        }
    }
    return complete;
}

static void count_labels(const FshSplit *from, size_t class_count, uint64_t *class_counts)
{
    for (uint64_t i = 0; i < from->sample_count && class_counts; i++) {
        int64_t label = fsh_sample_label(from, i);
        if (label >= 0 && (uint64_t)label < class_count)
            class_counts[label]++;
    }
}

/* Returns whether samples are looked at here, beyond what fsh_check does. */
static bool reads_records(const VerifyOptions *options)
{
    return options->level > VERIFY_QUICK || options->against || options->pairs;
}

/* Runs verify_records, and gives the suspects that it finds their place: in split `index` of the report's
 * manifest, after the samples of its files before. */
static FshStatus look_at_records(Verification *verification, const FshSplit *own, size_t index,
                                 FshError *error)
{
    VerifyReport *report = verification->report;
    const size_t known = report->suspect_count;
    const uint64_t first =
        verification->skipped_count + report->splits[index].sample_count - own->sample_count;
    if (!reads_records(verification->options))
        return FSH_OK;
    FshStatus status = verify_records(own, verification->options,
                                      verification->against.folder ? &verification->against : NULL,
                                      &verification->progress, report, error);
    for (size_t i = known; i < report->suspect_count; i++) {
        report->suspects[i].split = index;
        report->suspects[i].index += first;
    }
    return status;
}

static int compare_suspects(const void *a, const void *b)
{
    const VerifySuspect *left = a, *right = b;
    const int likeness = (left->likeness > right->likeness) - (left->likeness < right->likeness);
    const int split = (left->split > right->split) - (left->split < right->split);
    return likeness ? likeness : split ? split : (left->index > right->index) - (left->index < right->index);
}

/* Checks one file of a split, opened by itself, so that a broken neighbour does not hide it. */
static FshStatus verify_file(Verification *verification, size_t index, size_t file, FshError *error)
{
    const char *name = verification->report->manifest.splits[index].files[file].name;
    char path[PATH_MAX];
    VerifyReport *report = verification->report;
    VerifySplit *split = &report->splits[index];
    FshDataset *dataset = NULL;
    FshError failure = {0};
    if (add_counted(verification, name, split))
        return FSH_OK;
    FshStatus status = file_join(path, sizeof path, verification->folder, name, error);
    if (status)
        return status;
    /* By itself it has any number; of an updated dataset only the manifest tells which records count. */
    status = report->manifest.updates
                 ? fsh_open_listed(&dataset, verification->folder, &report->manifest, index, file, &failure)
                 : fsh_open(&dataset, path, &failure);
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    if (status) /* fsh_check has said why; this is for what only opening sees */
        return verify_knows(report, name, -1) ? FSH_OK
                                              : add_problem(report, status, name, failure.message, error);
    const FshManifest *manifest = fsh_manifest(dataset);
    const FshSplit *own = fsh_split(dataset, manifest->splits[0].name);
    split->file_count++;
    split->sample_count += own->sample_count;
    split->bytes += manifest->splits[0].files[0].bytes;
    if (!report->manifest.updates && manifest->class_count == report->manifest.class_count)
        add_counts(split, own->info->class_counts, manifest->class_count);
    else
        count_labels(own, report->manifest.class_count, split->class_counts);
    status = look_at_records(verification, own, index, error);
    fsh_close(&dataset);
    return status;
}

/* Compares the sizes that dataset.json promises to the trainer with those found. */
static FshStatus compare_sizes(VerifyReport *report, FshError *error)
{
    const FshStatistics *said = &report->manifest.statistics;
    char reason[256];
    if (report->widths.count == 0 || report->widths.count != report->image_count || said->channels == 0 ||
        (said->width_min == report->widths.minimum && said->width_max == report->widths.maximum &&
         said->height_min == report->heights.minimum && said->height_max == report->heights.maximum))
        return FSH_OK;
    (void)snprintf(
        reason, sizeof reason,
        "statistics.width and .height: widths %" PRIu32 " to %" PRIu32 " and heights %" PRIu32 " to %" PRIu32
        " are listed, its files hold %" PRIu64 " to %" PRIu64 " and %" PRIu64 " to %" PRIu64,
        said->width_min, said->width_max, said->height_min, said->height_max, report->widths.minimum,
        report->widths.maximum, report->heights.minimum, report->heights.maximum);
    return add_problem(report, FSH_ERR_MISMATCH, FSH_MANIFEST_NAME, reason, error);
}

/* Compares the manifest's statistics.channels with what the records tell: 3 if any image has colours. */
static FshStatus compare_channels(VerifyReport *report, FshError *error)
{
    const uint32_t said = report->manifest.statistics.channels, found = report->colour_count ? 3 : 1;
    char reason[160];
    if (report->image_count == 0 || report->gray_count + report->colour_count != report->image_count ||
        said == 0 || said == found)
        return FSH_OK;
    (void)snprintf(reason, sizeof reason,
                   "statistics.channels is %" PRIu32 ", but %" PRIu64 " of its %" PRIu64
                   " images have colours",
                   said, report->colour_count, report->image_count);
    return add_problem(report, FSH_ERR_MISMATCH, FSH_MANIFEST_NAME, reason, error);
}

/* An eighth of a step of 255: so much may lie between two decoders' pixels of the same file on average, and
 * no more. */
#define PIXEL_TOLERANCE 0.0005

static FshStatus compare_pixels(VerifyReport *report, FshError *error)
{
    const FshStatistics *said = &report->manifest.statistics;
    char reason[200];
    bool measured = false, any = false;
    FshStatus status = FSH_OK;
    if (report->pixels.gray.pixel_count + report->pixels.rgb.pixel_count == 0)
        return FSH_OK;
    report->pixels.rgb_count = said->channels == 3; /* gray ones count in each channel then */
    const FshStatistics found = stats_finish(&report->pixels);
    const struct {
        const char *name;
        const double *said, *found;
    } rows[] = {{"mean", said->mean, found.mean},
                {"std", said->standard_deviation, found.standard_deviation}};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t c = 0; c < said->channels; c++) {
            measured |= rows[i].said[c] != 0;
            any |= rows[i].found[c] != 0;
        }
    }
    if (!measured && any)
        return add_problem(
            report, FSH_OK, FSH_MANIFEST_NAME,
            "has no mean and deviation (fpack --no-check did not look at the pixels), so ftrain "
            "takes ImageNet's; fpack --repair-manifest measures them",
            error);
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t c = 0; c < said->channels && !status; c++) {
            if (fabs(rows[i].said[c] - rows[i].found[c]) <= PIXEL_TOLERANCE)
                continue;
            (void)snprintf(reason, sizeof reason,
                           "statistics.%s[%" PRIu32 "] is %.9g, and that of its images is %.9g; fpack "
                           "--repair-manifest puts it right",
                           rows[i].name, c, rows[i].said[c], rows[i].found[c]);
            status = add_problem(report, FSH_ERR_MISMATCH, FSH_MANIFEST_NAME, reason, error);
        }
    }
    return status;
}

/* Compares the sizes, channels and pixel statistics that dataset.json says with those found, only where
 * nothing else is wrong, a missing shard explains the rest, and where all files were looked at. */
static FshStatus compare_statistics(VerifyReport *report, FshError *error)
{
    if (report->problem_count || report->part.count)
        return FSH_OK;
    FshStatus status = compare_sizes(report, error);
    if (!status)
        status = compare_channels(report, error);
    return status ? status : compare_pixels(report, error);
}

static void open_against(Verification *verification)
{
    if (verification->options->against)
        against_open(&verification->against, verification->options->against, &verification->report->manifest);
}

/* Copies what the report shows of a dataset's own manifest. Returns false when out of memory. */
static bool borrow_manifest(VerifyReport *report, const FshManifest *from)
{
    FshManifest *to = &report->manifest;
    memcpy(to->id, from->id, sizeof to->id);
    to->container = from->container;
    to->kind = from->kind;
    to->class_names = calloc(from->class_count + 1, sizeof *to->class_names);
    to->splits = calloc(from->split_count + 1, sizeof *to->splits);
    if (!to->class_names || !to->splits)
        return false;
    for (; to->split_count < from->split_count; to->split_count++) {
        to->splits[to->split_count].name = strdup(from->splits[to->split_count].name);
        if (!to->splits[to->split_count].name)
            return false;
    }
    for (; to->class_count < from->class_count; to->class_count++) {
        to->class_names[to->class_count] = strdup(from->class_names[to->class_count]);
        if (!to->class_names[to->class_count])
            return false;
    }
    return true;
}

/* Checks whatever fsh_open opens, as a whole: one file, and containers of others, which only together make
 * samples. */
static FshStatus verify_opened(Verification *verification, FshError *error)
{
    VerifyReport *report = verification->report;
    FshDataset *dataset = NULL;
    FshError failure = {0};
    FshStatus status = fsh_open(&dataset, report->path, &failure);
    if (status && !report->problem_count)
        return explain_missing(report, &failure, error);
    if (status && status != FSH_ERR_MEMORY) /* fsh_check has said why: what is left is counted */
        status = fsh_open_readable(&dataset, report->path, &failure);
    if (status)
        return status == FSH_ERR_MEMORY ? fsh_error_set(error, status, "%s", failure.message) : FSH_OK;
    const FshManifest *manifest = fsh_manifest(dataset);
    if (!report->opened && (!borrow_manifest(report, manifest) || !make_splits(report)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
    if (!status && !report->opened)
        status = name_classes(&report->manifest, error);
    if (!status && !report->opened)
        open_against(verification);
    report->opened = !status;
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplit *own = fsh_split(dataset, manifest->splits[i].name);
        VerifySplit *split = &report->splits[i];
        for (size_t f = 0; f < own->info->file_count; f++)
            split->bytes += own->info->files[f].bytes;
        split->file_count += own->info->file_count;
        split->sample_count += own->sample_count;
        count_labels(own, manifest->class_count, split->class_counts);
        status = look_at_records(verification, own, i, error);
    }
    fsh_close(&dataset);
    return status;
}

static FshStatus verify_dataset(Verification *verification, FshError *error)
{
    VerifyReport *report = verification->report;
    FshError failure = {0};
    FshStatus status = fsh_manifest_load(&report->manifest, report->path, &failure);
    if (status) /* fsh_check has said so */
        return report->problem_count ? FSH_OK : explain_missing(report, &failure, error);
    report->opened = report->from_manifest = true;
    if (!make_splits(report))
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
    status = name_classes(&report->manifest, error);
    if (status)
        return status;
    open_against(verification);
    if (!fsh_container_has(report->manifest.container, FSH_HAS_METADATA)) {
        status = verify_opened(verification, error);
        return status ? status : compare_statistics(report, error);
    }
    uint64_t file = 0;
    for (size_t i = 0; i < report->manifest.split_count && !status; i++) {
        const FshSplitInfo *info = &report->manifest.splits[i];
        verification->skipped_count = 0;
        for (size_t f = 0; f < info->file_count && !status; f++, file++) {
            if (file < verification->first_file || file >= verification->end_file) {
                verification->skipped_count += info->files[f].sample_count;
                continue;
            }
            status = verify_file(verification, i, f, error);
            if (!status && interrupt_requested())
                status = FSH_ERR_INTERRUPTED; /* verify_path says where */
        }
    }
    return status ? status : compare_statistics(report, error);
}

/* ---- all of it ---- */

/* Chooses the files of the part, and counts the samples that the manifest promises in them, for the bar. */
static FshStatus choose_files(Verification *verification, const char *path, FshError *error)
{
    const Part part = verification->options->part;
    FshManifest manifest = {0};
    uint64_t file = 0;
    verification->end_file = UINT64_MAX;
    FshStatus status = fsh_manifest_load(&manifest, path, part.count ? error : NULL);
    if (status)
        return part.count ? status : FSH_OK;
    PartScan *scan = part.count ? malloc(sizeof *scan) : NULL;
    if (part.count && !fsh_container_has(manifest.container, FSH_HAS_METADATA))
        status =
            fsh_error_set(error, FSH_ERR_MISMATCH, "--part: the files of %s %s are looked at only together",
                          fsh_container_name(manifest.container), path);
    else if (part.count && !scan)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (scan)
        part_scan_init(scan);
    for (size_t i = 0; i < manifest.split_count && scan; i++) {
        for (size_t f = 0; f < manifest.splits[i].file_count; f++)
            part_scan_add(scan, manifest.splits[i].files[f].bytes);
    }
    if (scan)
        part_scan_range(scan, part, &verification->first_file, &verification->end_file);
    for (size_t i = 0; i < manifest.split_count; i++) {
        for (size_t f = 0; f < manifest.splits[i].file_count; f++, file++)
            verification->promised_count += file >= verification->first_file && file < verification->end_file
                                                ? manifest.splits[i].files[f].sample_count
                                                : 0;
    }
    free(scan);
    fsh_manifest_free(&manifest);
    return status;
}

/* Returns whether a file is of the part: the next of the manifest. */
static bool is_wanted(const FshFileInfo *file, void *context)
{
    Verification *verification = context;
    (void)file;
    const uint64_t index = verification->asked_count++;
    return index >= verification->first_file && index < verification->end_file;
}

static FshCheckLevel check_level(const VerifyOptions *options)
{
    if (options->level == VERIFY_QUICK)
        return FSH_CHECK_QUICK;
    return options->overlap && !options->part.count ? FSH_CHECK_CONTENTS : FSH_CHECK_RECORDS;
}

FshStatus verify_path(const char *path, const VerifyOptions *options, VerifyReport *report, FshError *error)
{
    Verification verification = {.options = options, .report = report};
    const double begin = progress_now_seconds();
    uint64_t problem_count = 0;
    FshError failure = {0};
    *report = (VerifyReport){
        .path = strdup(path), .name = strdup(options->name ? options->name : path), .part = options->part};
    if (!report->path || !report->name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (options->against && !file_is_folder(options->against))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "--against: %s is no folder", options->against);
    const bool is_dataset = find_manifest(path, verification.folder);
    FshStatus status = FSH_OK;
    if (!is_dataset && options->part.count)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "--part: %s is no dataset with a dataset.json, which tells its files", path);
    if (is_dataset)
        status = verify_names_check(path, error);
    if (!status && is_dataset)
        status = choose_files(&verification, path, error);
    if (status)
        return status;
    progress_start(&verification.progress, stderr, "verifying", "samples", verification.promised_count,
                   options->no_progress || !reads_records(options));

    const bool counts = options->level == VERIFY_RECORDS && !options->against && !options->pairs;
    const FshCounting counting = {.wants = options->part.count ? is_wanted : NULL,
                                  .own_bytes = sizeof(VerifyTally),
                                  .add = counts ? verify_tally_sample : NULL,
                                  .end = keep_counted};
    const FshStatus checked = fsh_check_counting(path, check_level(options), options->jobs, visit, &counting,
                                                 &verification, &problem_count, &failure);
    if (checked == FSH_ERR_MEMORY || checked == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(error, checked, "%s", failure.message);
    else if (checked)
        status = explain_missing(report, &failure, error);
    else if (verification.visit_status)
        status = fsh_error_set(error, verification.visit_status, "%s", verification.visit_error.message);
    else
        status = verify_know_problems(report, error);
    if (!status && !checked)
        status = is_dataset ? verify_dataset(&verification, error) : verify_opened(&verification, error);
    if (!status && report->opened && options->pairs && report->manifest.kind != FSH_KIND_PAIRS)
        status = add_problem(report, FSH_ERR_MISMATCH, report->name,
                             report->manifest.kind == FSH_KIND_MASKS
                                 ? "--pairs: compares images that show the same, and a mask shows classes"
                                 : "--pairs: its samples are single images, there are no pairs to compare",
                             error);
    if (!status && report->opened && options->against && verify_root_is_wrong(report))
        status = verify_root_find(report, options->against, error);
    else if (!status && report->opened && options->against && !options->part.count)
        status = missing_images_find(&report->sources, options->against, verification.against.has_recipe,
                                     options->jobs, &report->missing, error);
    for (size_t i = 0; i < verification.counted_count; i++)
        free_counted(verification.counted[i]);
    free(verification.counted);
    if (report->suspect_count)
        qsort(report->suspects, report->suspect_count, sizeof *report->suspects, compare_suspects);
    progress_finish(&verification.progress);
    if (status == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(error, status, "%s: interrupted", report->name);
    report->seconds = progress_now_seconds() - begin;
    return status;
}

static void free_problems(VerifyProblem *problems, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(problems[i].file);
        free(problems[i].key);
        free(problems[i].source);
        free(problems[i].reason);
    }
    free(problems);
}

void verify_report_free(VerifyReport *report)
{
    free_problems(report->problems, report->problem_count);
    free_problems(report->remarks, report->remark_count);
    free(report->known);
    free(report->suspects);
    for (size_t i = 0; report->splits && i < report->manifest.split_count; i++) {
        free(report->splits[i].name);
        free(report->splits[i].class_counts);
    }
    free(report->splits);
    free(report->nearby_root);
    source_set_free(&report->sources);
    missing_images_free(&report->missing);
    fsh_manifest_free(&report->manifest);
    free(report->path);
    free(report->name);
    *report = (VerifyReport){0};
}
