/* The largest split, train as a rule, is only looked up and not stored: what is stored is the size of the
 * others. */

#include "formats/check_overlap.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "formats/check.h"
#include "formats/container.h"
#include "formats/hash_set.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/split_file.h"

/* A file that was checked, opened again for keys and sources: of each pair of splits the last one asked for
 * stays open. */
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
    const OpenRequest request = fsh_check_request(check);
    return fsh_split_file_open(file, check->path, check->container, &request, NULL) == FSH_OK;
}

/* Reads the record's sample. Returns false where its file cannot be read any more. */
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

/* A record by its place. */
typedef struct Place {
    size_t file;
    uint64_t record;
} Place;

/* Reports, for the later of two records that hold the same, what is wrong and which the earlier one is. */
static FshStatus tell(Overlap *overlap, FshStatus kind, const char *what, Place later, Place earlier,
                      FshError *error)
{
    FshSample sample, other;
    char reason[PATH_MAX];
    const bool known = read_sample(overlap, &overlap->later, later.file, later.record, &sample);
    const bool named = read_sample(overlap, &overlap->earlier, earlier.file, earlier.record, &other);
    (void)snprintf(reason, sizeof reason, "%s: %s record %" PRIu64 "%s%.*s", what,
                   overlap->files[earlier.file].name, earlier.record, named ? ", key " : "",
                   named ? (int)other.key_bytes : 0, named ? other.key : "");
    FileReport report = {0};
    FshStatus status =
        fsh_report_add(&report, kind, (int64_t)later.record, known ? &sample : NULL, reason, error);
    if (!status)
        overlap->visit(later.file, report.problems, overlap->context);
    fsh_report_empty(&report);
    return status;
}

/* ---- of two splits ---- */

/* Returns the split with the most samples. */
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

/* Looks up all records of a file and reports those that another split holds; with store, adds new ones to the
 * set. */
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
        if (!seen || overlap->split_of[seen->file] == overlap->split_of[file])
            continue;
        const Place here = {file, i}, there = {seen->file, seen->record};
        const bool later = overlap->split_of[file] > overlap->split_of[seen->file];
        status = tell(overlap, FSH_ERR_MISMATCH, "the same content is in another split", later ? here : there,
                      later ? there : here, error);
    }
    return status;
}

/* ---- of one split ---- */

/* Leaves the hashes that may be there more than once: those that share their lowest bits with another. Eight
 * bits in a table for each hash leave a twelfth of those that are there once, so that nearly nothing is left
 * to sort. */
static FshStatus keep_likely(FshHash128 *hashes, size_t *count, FshError *error)
{
    size_t bits = 64, kept = 0;
    while (bits < 8 * *count)
        bits *= 2;
    uint64_t *once = calloc(bits / 64, 2 * sizeof *once), *twice = once + (once ? bits / 64 : 0);
    if (!once)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: hashes of %zu samples", *count);
    for (size_t i = 0; i < *count; i++) {
        const size_t bit = hash_low_bits(&hashes[i]) & (bits - 1);
        const uint64_t mask = UINT64_C(1) << bit % 64;
        twice[bit / 64] |= once[bit / 64] & mask;
        once[bit / 64] |= mask;
    }
    for (size_t i = 0; i < *count; i++) {
        const size_t bit = hash_low_bits(&hashes[i]) & (bits - 1);
        if (twice[bit / 64] >> bit % 64 & 1)
            hashes[kept++] = hashes[i];
    }
    *count = kept;
    free(once);
    return FSH_OK;
}

/* Sorts the known hashes of files begin to end - 1 into *hashes_ret, *count_ret of them. The caller frees the
 * array. */
static FshStatus sort_hashes(const Overlap *overlap, size_t begin, size_t end, FshHash128 **hashes_ret,
                             size_t *count_ret, FshError *error)
{
    size_t count = 0;
    for (size_t i = begin; i < end; i++)
        count += (size_t)overlap->contents[i].record_count;
    FshHash128 *hashes = calloc(count + 1, sizeof *hashes);
    if (!hashes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: hashes of %zu samples", count);
    count = 0;
    for (size_t i = begin; i < end; i++) {
        const FileContents *contents = &overlap->contents[i];
        for (uint64_t j = 0; contents->hashes && j < contents->record_count; j++) {
            if (hash_is_known(&contents->hashes[j]))
                hashes[count++] = contents->hashes[j];
        }
    }
    FshStatus status = keep_likely(hashes, &count, error);
    if (!status)
        qsort(hashes, count, sizeof *hashes, hash_compare);
    *hashes_ret = hashes;
    *count_ret = count;
    return status;
}

/* Keeps one of each hash that is there more than once, *count of them. Returns how many hashes repeat an
 * earlier one. */
static uint64_t keep_repeated(FshHash128 *hashes, size_t *count)
{
    uint64_t repeats = 0;
    size_t kept = 0;
    for (size_t first = 0, end = 0; first < *count; first = end) {
        while (end < *count && fsh_hash_equal(&hashes[end], &hashes[first]))
            end++;
        if (end - first > 1) {
            repeats += end - first - 1;
            hashes[kept++] = hashes[first];
        }
    }
    *count = kept;
    return repeats;
}

/* Finds the first record that another repeats, and the first that repeats it. */
static void find_repeat(const Overlap *overlap, size_t begin, size_t end, const FshHash128 *repeated,
                        size_t count, Place *first, Place *again)
{
    const FshHash128 *wanted = NULL;
    for (size_t i = begin; i < end; i++) {
        const FileContents *contents = &overlap->contents[i];
        for (uint64_t j = 0; contents->hashes && j < contents->record_count; j++) {
            const FshHash128 *hash = &contents->hashes[j];
            if (!wanted && bsearch(hash, repeated, count, sizeof *hash, hash_compare)) {
                wanted = hash;
                *first = (Place){i, j};
            } else if (wanted && fsh_hash_equal(hash, wanted)) {
                *again = (Place){i, j};
                return;
            }
        }
    }
}

/* Adds a remark that says how many samples of a split repeat another. */
static FshStatus remark_on_split(Overlap *overlap, size_t begin, size_t end, FshError *error)
{
    FshHash128 *hashes = NULL;
    size_t count = 0;
    FshStatus status = sort_hashes(overlap, begin, end, &hashes, &count, error);
    const uint64_t repeats = status ? 0 : keep_repeated(hashes, &count);
    if (repeats) {
        char what[128];
        Place first = {0}, again = {0};
        find_repeat(overlap, begin, end, hashes, count, &first, &again);
        (void)snprintf(what, sizeof what,
                       "%" PRIu64 " of the split's samples repeat%s another's content; this one that of",
                       repeats, repeats == 1 ? "s" : "");
        status = tell(overlap, FSH_OK, what, again, first, error);
    }
    free(hashes);
    return status;
}

/* ---- both ---- */

static FshStatus compare_splits(Overlap *overlap, FshError *error)
{
    const size_t largest = largest_split(overlap);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < overlap->file_count && !status; i++) {
        if (overlap->split_of[i] != largest)
            status = pass_file(overlap, i, true, error);
    }
    for (size_t i = 0; i < overlap->file_count && !status; i++) {
        if (overlap->split_of[i] == largest)
            status = pass_file(overlap, i, false, error);
    }
    hash_set_free(&overlap->set);
    return status;
}

FshStatus fsh_check_overlap(const FileCheck *files, const FileContents *contents, const size_t *split_of,
                            size_t file_count, bool across_splits, OverlapVisit visit, void *context,
                            FshError *error)
{
    Overlap overlap = {.files = files,
                       .contents = contents,
                       .split_of = split_of,
                       .file_count = file_count,
                       .visit = visit,
                       .context = context};
    FshStatus status = across_splits ? compare_splits(&overlap, error) : FSH_OK;
    for (size_t begin = 0, end = 0; begin < file_count && !status; begin = end) {
        while (end < file_count && split_of[end] == split_of[begin])
            end++;
        status = interrupt_requested() ? fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted")
                                       : remark_on_split(&overlap, begin, end, error);
    }
    close_file(&overlap.later);
    close_file(&overlap.earlier);
    return status;
}
