/* The largest split, train as a rule, is only looked up and not stored: what is stored is the size of the others. */
#include "formats/check_overlap.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "formats/hash_set.h"

/* A file that was checked, opened again for keys and sources: of each pair of splits the last one asked for stays open. */
typedef struct OpenFile {
    SplitFile file;
    size_t index;
    bool tried, open;
} OpenFile;

typedef struct Overlap {
    const FileCheck *files;
    const FileContents *contents;
    const size_t *split_of;
    size_t file_count;
    HashSet set;
    OpenFile later, earlier;
    OverlapVisit visit;
    void *context;
} Overlap;

static void close_file(OpenFile *file)
{
    if (file->open)
        fsh_split_file_close(&file->file);
    *file = (OpenFile){0};
}

static bool open_file(SplitFile *file, const FileCheck *check)
{
    const Metadata *expected = check->expected; /* NULL: no manifest tells */
    if (!fsh_container_is_foreign(check->container))
        return fsh_split_file_open(file, check->path, check->container, NULL, NULL, NULL) == FSH_OK;
    *file = (SplitFile){.container = check->container};
    if (fsh_foreign_open(file, check->path, check->container,
                         expected ? (const char *const *)expected->field_names : NULL,
                         expected ? expected->field_count : 0, expected != NULL, NULL) == FSH_OK)
        return true;
    fsh_split_file_close(file);
    return false;
}

/* The record's sample; false where its file cannot be read any more. */
static bool read_sample(const Overlap *overlap, OpenFile *open, size_t file, uint64_t record,
                        FshSample *sample)
{
    if (!open->tried || open->index != file) {
        close_file(open);
        *open = (OpenFile){.index = file, .tried = true};
        open->open = open_file(&open->file, &overlap->files[file]);
    }
    RecordHead head;
    return open->open && record < open->file.record_count &&
           fsh_split_file_sample(&open->file, record, sample, &head, NULL) == FSH_OK;
}

static FshStatus tell(Overlap *overlap, size_t file, uint64_t record, const HashSetEntry *seen,
                      FshError *error)
{
    size_t other_file = seen->file;
    uint64_t other_record = seen->record;
    if (overlap->split_of[other_file] > overlap->split_of[file]) {
        other_file = file;
        other_record = record;
        file = seen->file;
        record = seen->record;
    }
    FshSample sample, other;
    char reason[PATH_MAX];
    const bool known = read_sample(overlap, &overlap->later, file, record, &sample);
    const bool named = read_sample(overlap, &overlap->earlier, other_file, other_record, &other);
    (void)snprintf(reason, sizeof reason, "the same content is in another split: %s record %" PRIu64 "%s%.*s",
                   overlap->files[other_file].name, other_record, named ? ", key " : "",
                   named ? (int)other.key_bytes : 0, named ? other.key : "");
    FileReport report = {0};
    FshStatus status =
        fsh_report_add(&report, FSH_ERR_MISMATCH, (int64_t)record, known ? &sample : NULL, reason, error);
    if (!status)
        overlap->visit(file, report.problems, overlap->context);
    fsh_report_empty(&report);
    return status;
}

/* The split of most samples. */
static size_t largest_split(const Overlap *overlap)
{
    size_t largest = 0;
    uint64_t largest_count = 0, count = 0;
    for (size_t i = 0; i < overlap->file_count; i++) {
        count = (i && overlap->split_of[i] == overlap->split_of[i - 1] ? count : 0) +
                overlap->contents[i].record_count;
        if (count > largest_count) {
            largest_count = count;
            largest = overlap->split_of[i];
        }
    }
    return largest;
}

/* Meets, or looks up, all records of a file. */
static FshStatus pass_file(Overlap *overlap, size_t file, bool store, FshError *error)
{
    const FileContents *contents = &overlap->contents[file];
    if (!contents->hashes)
        return FSH_OK;
    if (interrupt_requested())
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
    FshStatus status = store ? hash_set_reserve(&overlap->set, contents->record_count, error) : FSH_OK;
    for (uint64_t i = 0; i < contents->record_count && !status; i++) {
        const FshHash128 *hash = &contents->hashes[i];
        if (!hash_is_known(hash))
            continue;
        const HashSetEntry *seen =
            store ? hash_set_meet(&overlap->set, hash, i, file) : hash_set_find(&overlap->set, hash);
        if (seen && overlap->split_of[seen->file] != overlap->split_of[file])
            status = tell(overlap, file, i, seen, error);
    }
    return status;
}

FshStatus fsh_check_overlap(const FileCheck *files, const FileContents *contents, const size_t *split_of,
                            size_t file_count, OverlapVisit visit, void *context, FshError *error)
{
    Overlap overlap = {.files = files,
                       .contents = contents,
                       .split_of = split_of,
                       .file_count = file_count,
                       .visit = visit,
                       .context = context};
    const size_t largest = largest_split(&overlap);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < file_count && !status; i++) {
        if (split_of[i] != largest)
            status = pass_file(&overlap, i, true, error);
    }
    for (size_t i = 0; i < file_count && !status; i++) {
        if (split_of[i] == largest)
            status = pass_file(&overlap, i, false, error);
    }
    close_file(&overlap.later);
    close_file(&overlap.earlier);
    hash_set_free(&overlap.set);
    return status;
}
