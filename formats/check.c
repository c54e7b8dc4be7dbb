/* fsh_check: the files (check_list.h), each checked on its own (check_file.c), and what they add up to. */

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "formats/check_list.h"
#include "formats/check_overlap.h"
#include "formats/hash_set.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"

/* ---- the run ---- */

typedef struct Check {
    CheckList list;
    HashSet hashes;     /* of each file delivered that holds records */
    char **field_names; /* owned: those of the first file without a manifest that has any; NULL for now */
    size_t field_count;
    FileContents *contents; /* of each file delivered; NULL below FSH_CHECK_CONTENTS */
    /* the split at hand */
    size_t split;
    HashSet keys;
    uint64_t *class_counts;
    bool complete; /* all its files could be counted */
    FshProblemVisit visit;
    void *context;
    uint64_t problem_count;
} Check;

static void tell(Check *check, const char *file, const FoundProblem *found)
{
    FshProblem problem = {.status = found->status,
                          .file = file,
                          .record = found->record,
                          .key = found->key,
                          .source = found->source,
                          .reason = found->reason};
    check->problem_count += found->status != FSH_OK; /* else a remark */
    if (check->visit)
        check->visit(&problem, check->context);
}

/* Tells of a file as a whole; context is the Check. */
static void tell_file(void *context, const char *file, FshStatus status, char *reason)
{
    tell(context, file, &(FoundProblem){.status = status, .record = -1, .reason = reason});
}

/* ---- adding up ---- */

/* Reports keys that another record of the split has already. */
static FshStatus check_keys(Check *check, size_t file_index, FileReport *report, FshError *error)
{
    if (!report->keys)
        return FSH_OK;
    FshStatus status = hash_set_reserve(&check->keys, report->file.record_count, error);
    for (uint64_t i = 0; i < report->file.record_count && !status; i++) {
        if (i + HASH_SET_AHEAD < report->file.record_count)
            hash_set_prefetch(&check->keys, &report->keys[i + HASH_SET_AHEAD]);
        if (!hash_is_known(&report->keys[i]))
            continue;
        const HashSetEntry *seen = hash_set_meet(&check->keys, &report->keys[i], i, file_index);
        if (!seen)
            continue;
        FshSample sample;
        char reason[PATH_MAX];
        bool known = fsh_report_sample(report, i, &sample);
        (void)snprintf(reason, sizeof reason, "the same key as %s record %" PRIu64,
                       check->list.files[seen->file].name, seen->record);
        status = fsh_report_add(report, FSH_ERR_CORRUPT, (int64_t)i, known ? &sample : NULL, reason, error);
    }
    return status;
}

/* Reports a file that holds the same bytes as an earlier one: a shard copied over another has the other's
 * content under its own name. */
static FshStatus check_copies(Check *check, size_t file_index, FileReport *report, FshError *error)
{
    char reason[PATH_MAX];
    if (report->file.record_count == 0 || !hash_is_known(&report->hash)) /* tars of nothing are all alike */
        return FSH_OK;
    const HashSetEntry *seen = hash_set_meet(&check->hashes, &report->hash, 0, file_index);
    if (!seen)
        return FSH_OK;
    (void)snprintf(reason, sizeof reason, "holds the same bytes as %s", check->list.files[seen->file].name);
    return fsh_report_add(report, FSH_ERR_CORRUPT, -1, NULL, reason, error);
}

static bool has_name(char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Checks that samples have the same images as those of the first file, where no manifest says which. A reader
 * refuses a file that differs. */
static FshStatus check_fields(Check *check, FileReport *report, FshError *error)
{
    const SampleTable *table = &report->file.table;
    if (check->list.has_manifest || !table->field_count)
        return FSH_OK;
    if (!check->field_names) {
        check->field_count = table->field_count;
        return fsh_names_copy(&check->field_names, (const char *const *)table->field_names,
                              table->field_count, error);
    }
    bool same = table->field_count == check->field_count;
    for (unsigned i = 0; i < table->field_count; i++) {
        same = same && has_name(check->field_names, check->field_count, table->field_names[i]);
    }
    char reason[] = "its samples do not have the images that those of the first file have";
    return same ? FSH_OK : fsh_report_add(report, FSH_ERR_MISMATCH, -1, NULL, reason, error);
}

static FshStatus begin_split(Check *check, size_t split, FshError *error)
{
    check->split = split;
    check->complete = check->list.has_manifest && !(check->list.counting && check->list.counting->wants);
    hash_set_free(&check->keys);
    free(check->class_counts);
    check->class_counts = calloc(check->list.manifest.class_count + 1, sizeof *check->class_counts);
    return check->class_counts ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

/* Compares the counts of the labels with those of the manifest. */
static void end_split(Check *check)
{
    if (!check->complete || !check->class_counts)
        return;
    const FshSplitInfo *split = &check->list.manifest.splits[check->split];
    for (size_t i = 0; i < check->list.manifest.class_count; i++) {
        if (check->class_counts[i] == split->class_counts[i])
            continue;
        char reason[1024];
        (void)snprintf(reason, sizeof reason,
                       "split %s, class %s: the manifest says %" PRIu64 " samples, the labels %" PRIu64,
                       split->name, check->list.manifest.class_names[i], split->class_counts[i],
                       check->class_counts[i]);
        tell_file(check, FSH_MANIFEST_NAME, FSH_ERR_CORRUPT, reason);
    }
}

/* Hands on what was counted in a file that is whole. */
static FshStatus end_counting(Check *check, size_t file_index, const FileReport *report, FshError *error)
{
    const FshFileInfo file = {.name = check->list.names[file_index],
                              .bytes = fsh_split_file_bytes(&report->file),
                              .sample_count = check->list.files[file_index].updated
                                                  ? check->list.files[file_index].info->sample_count
                                                  : report->file.record_count};
    return report->counted && !report->problem_count
               ? check->list.counting->end(&file, report->class_counts, report->class_count, report->counted,
                                           check->context, error)
               : FSH_OK;
}

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    (void)thread;
    const Check *check = context;
    return fsh_check_file(&check->list.files[item], slot, error);
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    Check *check = context;
    FileReport *report = slot;
    FshStatus status = FSH_OK;
    if (item == 0 || check->list.split_of[item] != check->split) {
        if (item > 0)
            end_split(check);
        status = begin_split(check, check->list.split_of[item], error);
    }
    if (!status)
        status = check_keys(check, item, report, error);
    if (!status)
        status = check_copies(check, item, report, error);
    if (!status)
        status = check_fields(check, report, error);
    if (!status)
        status = end_counting(check, item, report, error);
    if (!report->class_counts || report->class_count != check->list.manifest.class_count)
        check->complete = false;
    for (size_t i = 0; check->complete && !status && i < report->class_count; i++) {
        check->class_counts[i] += report->class_counts[i];
    }
    for (size_t i = 0; i < report->problem_count; i++) {
        tell(check, check->list.files[item].name, &report->problems[i]);
        if (report->problems[i].record < 0) /* with a file that is not the one listed, counts cannot agree */
            check->complete = false;
    }
    if (check->contents) {
        check->contents[item] =
            (FileContents){.hashes = report->contents, .record_count = report->file.record_count};
        report->contents = NULL;
    }
    fsh_report_empty(report); /* lets the mapping go before the slot's next turn */
    return status;
}

static void tell_overlap(size_t file, const FoundProblem *problem, void *context)
{
    Check *check = context;
    tell(check, check->list.files[file].name, problem);
}

static void check_free(Check *check)
{
    for (size_t i = 0; check->contents && i < check->list.file_count; i++) {
        free(check->contents[i].hashes);
    }
    free(check->contents);
    hash_set_free(&check->hashes);
    hash_set_free(&check->keys);
    free(check->class_counts);
    fsh_names_free(check->field_names, check->field_count);
    fsh_check_list_free(&check->list);
    free(check);
}

FshStatus fsh_check(const char *path, FshCheckLevel level, int jobs, FshProblemVisit visit, void *context,
                    uint64_t *problem_count_ret, FshError *error)
{
    return fsh_check_counting(path, level, jobs, visit, NULL, context, problem_count_ret, error);
}

FshStatus fsh_check_counting(const char *path, FshCheckLevel level, int jobs, FshProblemVisit visit,
                             const FshCounting *counting, void *context, uint64_t *problem_count_ret,
                             FshError *error)
{
    Check *check = calloc(1, sizeof *check);
    if (!check)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    check->list.level = level;
    check->visit = visit;
    check->list.counting = counting;
    check->list.counting_context = context;
    check->context = context;
    check->list.tell = tell_file;
    check->list.context = check;
    FshStatus status = fsh_check_list(&check->list, path, error);
    const bool with_contents = level >= FSH_CHECK_CONTENTS;
    for (size_t i = 0; i < check->list.file_count; i++)
        check->list.files[i].with_contents = with_contents;
    if (!status)
        status = hash_set_reserve(&check->hashes, check->list.file_count, error);
    if (!status) {
        check->contents = with_contents ? calloc(check->list.file_count + 1, sizeof *check->contents) : NULL;
        status = check->contents || !with_contents
                     ? pool_run_ordered(jobs, check->list.file_count, 0, sizeof(FileReport), work, deliver,
                                        fsh_report_empty, check, error)
                     : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    if (!status && check->list.file_count)
        end_split(check);
    if (!status && check->contents)
        status =
            fsh_check_overlap(check->list.files, check->contents, check->list.split_of,
                              check->list.file_count, check->list.has_splits, tell_overlap, check, error);
    if (problem_count_ret)
        *problem_count_ret = check->problem_count;
    check_free(check);
    return status;
}
