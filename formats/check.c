/* fsh_check: which files there are, each checked on its own (check_file.c), and what they add up to. */

#include "formats/check.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/pool.h"
#include "common/text.h"
#include "formats/check_overlap.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/hash_set.h"
#include "formats/lmdb_reader.h"
#include "formats/manifest.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"

/* ---- the run ---- */

typedef struct Check {
    char folder[PATH_MAX]; /* of the files */
    FshCheckLevel level;
    FshManifest manifest; /* empty where there is none or it cannot be read */
    const char *manifest_name;
    bool has_manifest;
    bool has_splits;    /* split_of is told by the manifest, or by the names of others' files */
    Metadata *expected; /* for each split of the manifest */
    FileCheck *files;   /* in the order of the manifest, or of their names */
    char **paths;       /* owned: what files[].path points to */
    char **names;       /* owned, where there is no manifest: what files[].name points to */
    size_t *split_of;   /* index of each file's split; without a manifest each file is its own */
    HashSet hashes;     /* of each file delivered that holds records */
    size_t file_count, file_capacity;
    char **field_names; /* owned: those of the first file without a manifest that has any; NULL for now */
    size_t field_count;
    const FshCounting *counting; /* or NULL */
    FileContents *contents;      /* of each file delivered; NULL below FSH_CHECK_CONTENTS */
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

static void tell_file(Check *check, const char *file, FshStatus status, char *reason)
{
    tell(check, file, &(FoundProblem){.status = status, .record = -1, .reason = reason});
}

static FshStatus add_file(Check *check, const char *name, FileCheck file, size_t split, FshError *error)
{
    if (check->file_count == check->file_capacity) {
        size_t capacity = check->file_capacity ? 2 * check->file_capacity : 16;
        FileCheck *files = realloc(check->files, capacity * sizeof *files);
        if (files)
            check->files = files;
        char **paths = realloc(check->paths, capacity * sizeof *paths);
        if (paths)
            check->paths = paths;
        char **names = realloc(check->names, capacity * sizeof *names);
        if (names)
            check->names = names;
        size_t *split_of = realloc(check->split_of, capacity * sizeof *split_of);
        if (split_of)
            check->split_of = split_of;
        if (!files || !paths || !names || !split_of)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        check->file_capacity = capacity;
    }
    char path[PATH_MAX];
    FshStatus status = FSH_OK;
    if (check->folder[0])
        status = file_join(path, sizeof path, check->folder, name, error);
    else if (snprintf(path, sizeof path, "%s", name) >= (int)sizeof path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", name);
    if (status)
        return status;
    size_t i = check->file_count;
    check->paths[i] = strdup(path);
    check->names[i] = strdup(name);
    if (!check->paths[i] || !check->names[i]) {
        free(check->paths[i]);
        free(check->names[i]);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    check->split_of[i] = split;
    check->files[i] = file;
    check->files[i].path = check->paths[i];
    check->files[i].name = check->names[i];
    check->files[i].level = check->level;
    check->files[i].counting = check->counting;
    check->file_count++;
    return FSH_OK;
}

static FshStatus list_manifest(Check *check, FshError *error)
{
    const FshManifest *manifest = &check->manifest;
    FshStatus status = FSH_OK;
    check->expected = calloc(manifest->split_count, sizeof *check->expected);
    if (!check->expected)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        status = fsh_metadata_make(&check->expected[i], manifest, split->name, error);
        for (size_t j = 0; j < split->file_count && !status; j++) {
            FileCheck file = {.container = fsh_container_find(manifest->container),
                              .expected = &check->expected[i],
                              .info = &split->files[j],
                              .file_index = j,
                              .file_count = split->file_count};
            status = add_file(check, split->files[j].name, file, i, error);
        }
    }
    return status;
}

/* Returns whether a name looks like one of ours. *container_ret: the container whose files are called so;
 * NULL where the name is that of an index or a list, which stand beside the files. */
static bool is_ours(const char *name, const Container **container_ret)
{
    const Container *container = NULL;
    *container_ret = fsh_container_of_name(name);
    for (size_t i = 0; !*container_ret && (container = fsh_container_row(i)); i++) {
        if ((container->index_suffix && text_has_suffix(name, container->index_suffix)) ||
            (container->list_suffix && text_has_suffix(name, container->list_suffix)))
            return true;
    }
    return *container_ret != NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names in the folder, sorted, hidden ones too. The caller frees *names_ret, of *count_ret
 * names. */
static FshStatus list_folder(const char *folder, char ***names_ret, size_t *count_ret, FshError *error)
{
    size_t count = 0, capacity = 0;
    char **names = NULL;
    FshStatus status = FSH_OK;
    DIR *entries = opendir(folder);
    if (!entries)
        return fsh_error_system(error, errno, "%s: cannot read the folder", folder);
    for (const struct dirent *entry; (entry = folder_next(entries, folder, &status, error));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            char **grown = realloc(names, capacity * sizeof *grown);
            if (grown)
                names = grown;
            else
                status = FSH_ERR_MEMORY;
        }
        if (!status && !(names[count++] = strdup(entry->d_name)))
            status = FSH_ERR_MEMORY;
    }
    if (status == FSH_ERR_MEMORY)
        (void)fsh_error_set(error, status, "%s: out of memory", folder);
    folder_close(entries);
    if (status) {
        fsh_names_free(names, count);
        return status;
    }
    if (count)
        qsort(names, count, sizeof *names, compare_names);
    *names_ret = names;
    *count_ret = count;
    return FSH_OK;
}

/* Sorts the names of the files so far into *listed_ret. The caller frees the array, but not the names. */
static FshStatus sort_listed(const Check *check, char ***listed_ret, FshError *error)
{
    *listed_ret = calloc(check->file_count + 1, sizeof **listed_ret);
    if (!*listed_ret)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", check->folder);
    if (check->file_count) {
        memcpy(*listed_ret, check->names, check->file_count * sizeof **listed_ret);
        qsort(*listed_ret, check->file_count, sizeof **listed_ret, compare_names);
    }
    return FSH_OK;
}

/* Returns whether a name is that of the index of a listed file, or of a list of one of the splits. */
static bool is_beside(const Check *check, char **listed, size_t listed_count, const char *name)
{
    const FshManifest *manifest = &check->manifest;
    const Container *container = fsh_container_find(manifest->container);
    char file[NAME_MAX + 8];
    const char *wanted = file;
    const size_t length = strlen(name);
    if (container->list_suffix && text_has_suffix(name, container->list_suffix)) {
        const size_t stem = length - strlen(container->list_suffix);
        for (size_t i = 0; i < manifest->split_count; i++) {
            if (strlen(manifest->splits[i].name) == stem && memcmp(manifest->splits[i].name, name, stem) == 0)
                return true;
        }
    }
    if (!container->index_suffix || !text_has_suffix(name, container->index_suffix))
        return false;
    (void)snprintf(file, sizeof file, "%.*s%s", (int)(length - strlen(container->index_suffix)), name,
                   container->suffix);
    return bsearch(&wanted, listed, listed_count, sizeof *listed, compare_names) != NULL;
}

/* Reports what does not belong in a file that is a folder, as an LMDB is. */
static void check_inside(Check *check, const FileCheck *file)
{
    char **names = NULL;
    size_t count = 0;
    if (!file->container->owns || list_folder(file->path, &names, &count, NULL))
        return; /* whoever opens it says what is wrong */
    for (size_t i = 0; i < count; i++) {
        char reason[NAME_MAX + 64];
        (void)snprintf(reason, sizeof reason, "holds %.*s, which is not of it: remove it", NAME_MAX,
                       names[i]);
        if (names[i][0] != '.' && !file->container->owns(&check->manifest, names[i]))
            tell_file(check, file->name, FSH_ERR_MISMATCH, reason);
    }
    fsh_names_free(names, count);
}

/* Looks for files besides those listed. With a manifest, a file of a dataset that the manifest does not list
 * is a problem; any other file, and a hidden mark of fpack, is a remark. Without a manifest the files found
 * are what is checked. */
static FshStatus look_for_others(Check *check, FshError *error)
{
    char **names = NULL, **listed = NULL;
    size_t count = 0;
    const size_t listed_count = check->file_count;
    FshStatus status = list_folder(check->folder, &names, &count, error);
    if (!status)
        status = sort_listed(check, &listed, error);
    for (size_t i = 0; i < count && !status; i++) {
        FileCheck file = {0};
        const bool ours = names[i][0] != '.' && is_ours(names[i], &file.container);
        char left_over[] = "is not in the manifest: left over from another run, remove it";
        char mark[] = "a mark that a run of fpack left; nothing reads it, and it may be removed";
        char other[] = "is no file of the dataset";
        if (!check->has_manifest) {
            if (ours && file.container)
                status = add_file(check, names[i], file, i, error);
        } else if (names[i][0] == '.') {
            if (strcmp(names[i], FSH_UNFINISHED_NAME) == 0 || strncmp(names[i], ".fpack-", 7) == 0)
                tell_file(check, names[i], FSH_OK, mark);
        } else if (ours) {
            const bool known = bsearch(&names[i], listed, listed_count, sizeof *listed, compare_names) ||
                               (!file.container && is_beside(check, listed, listed_count, names[i]));
            if (!known)
                tell_file(check, names[i], FSH_ERR_MISMATCH, left_over);
        } else if (strcmp(names[i], check->manifest_name) != 0) {
            tell_file(check, names[i], FSH_OK, other);
        }
    }
    for (size_t i = 0; i < listed_count && !status; i++)
        check_inside(check, &check->files[i]);
    free(listed);
    fsh_names_free(names, count);
    return status;
}

/* Checks the lists of a split's files that stand beside them, as tars have them. */
static FshStatus check_lists(Check *check, FshError *error)
{
    const FshManifest *manifest = &check->manifest;
    const Container *container = fsh_container_find(manifest->container);
    for (size_t i = 0; container->check_list && i < manifest->split_count; i++) {
        FshError found = {0};
        char name[FSH_FILE_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s%s", manifest->splits[i].name, container->list_suffix);
        if (container->check_list(manifest, &manifest->splits[i], check->folder, &found) == FSH_ERR_MEMORY)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s", found.message);
        if (found.status)
            tell_file(check, name, found.status, found.message);
    }
    return FSH_OK;
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
                       check->files[seen->file].name, seen->record);
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
    (void)snprintf(reason, sizeof reason, "holds the same bytes as %s", check->files[seen->file].name);
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
    if (check->has_manifest || !table->field_count)
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
    check->complete = check->has_manifest;
    hash_set_free(&check->keys);
    free(check->class_counts);
    check->class_counts = calloc(check->manifest.class_count + 1, sizeof *check->class_counts);
    return check->class_counts ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

/* Compares the counts of the labels with those of the manifest. */
static void end_split(Check *check)
{
    if (!check->complete || !check->class_counts)
        return;
    const FshSplitInfo *split = &check->manifest.splits[check->split];
    for (size_t i = 0; i < check->manifest.class_count; i++) {
        if (check->class_counts[i] == split->class_counts[i])
            continue;
        char reason[1024];
        (void)snprintf(reason, sizeof reason,
                       "split %s, class %s: the manifest says %" PRIu64 " samples, the labels %" PRIu64,
                       split->name, check->manifest.class_names[i], split->class_counts[i],
                       check->class_counts[i]);
        tell_file(check, FSH_MANIFEST_NAME, FSH_ERR_CORRUPT, reason);
    }
}

/* Hands on what was counted in a file that is whole. */
static FshStatus end_counting(Check *check, size_t file_index, const FileReport *report, FshError *error)
{
    const FshFileInfo file = {.name = check->names[file_index],
                              .bytes = fsh_split_file_bytes(&report->file),
                              .sample_count = report->file.record_count};
    return report->counted && !report->problem_count
               ? check->counting->end(&file, report->class_counts, report->class_count, report->counted,
                                      check->context, error)
               : FSH_OK;
}

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    (void)thread;
    const Check *check = context;
    return fsh_check_file(&check->files[item], slot, error);
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    Check *check = context;
    FileReport *report = slot;
    FshStatus status = FSH_OK;
    if (item == 0 || check->split_of[item] != check->split) {
        if (item > 0)
            end_split(check);
        status = begin_split(check, check->split_of[item], error);
    }
    if (!status)
        status = check_keys(check, item, report, error);
    if (!status)
        status = check_copies(check, item, report, error);
    if (!status)
        status = check_fields(check, report, error);
    if (!status)
        status = end_counting(check, item, report, error);
    if (!report->class_counts || report->class_count != check->manifest.class_count)
        check->complete = false;
    for (size_t i = 0; check->complete && !status && i < report->class_count; i++) {
        check->class_counts[i] += report->class_counts[i];
    }
    for (size_t i = 0; i < report->problem_count; i++) {
        tell(check, check->files[item].name, &report->problems[i]);
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
    tell(check, check->files[file].name, problem);
}

/* ---- what path is ---- */

/* Splits a path into check->folder and *name_ret, without slashes at its end; a path without '/' is in
 * ".". */
static FshStatus take_folder(Check *check, const char *path, const char **name_ret, FshError *error)
{
    size_t name_bytes = 0;
    *name_ret = fsh_path_name(path, &name_bytes);
    size_t folder_bytes = (size_t)(*name_ret - path);
    int length = folder_bytes ? snprintf(check->folder, sizeof check->folder, "%.*s", (int)folder_bytes, path)
                              : snprintf(check->folder, sizeof check->folder, ".");
    if (length < 0 || (size_t)length >= sizeof check->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    return FSH_OK;
}

/* Lists the files of the manifest. A manifest that cannot be read is a problem; then the files are checked as
 * they are. */
static FshStatus list_dataset(Check *check, const char *manifest_path, const char *manifest_name,
                              FshError *error)
{
    FshError found = {0};
    char unproved[] = "is of version 1, without a checksum: that nobody has changed it cannot be proved; "
                      "fpack --repair-manifest makes one with a checksum";
    check->manifest_name = manifest_name;
    FshStatus status = fsh_manifest_load(&check->manifest, manifest_path, &found);
    if (status == FSH_ERR_MEMORY) {
        if (error)
            *error = found;
        return status;
    }
    if (status) { /* the problem says which file it is about: its message need not */
        size_t path_bytes = strlen(manifest_path);
        bool named = strncmp(found.message, manifest_path, path_bytes) == 0 &&
                     strncmp(found.message + path_bytes, ": ", 2) == 0;
        tell_file(check, manifest_name, status, found.message + (named ? path_bytes + 2 : 0));
    }
    check->has_manifest = check->has_splits = status == FSH_OK;
    if (check->has_manifest && check->manifest.version == MANIFEST_VERSION_WITHOUT_SEAL)
        tell_file(check, manifest_name, FSH_OK, unproved);
    status = check->has_manifest ? list_manifest(check, error) : FSH_OK;
    if (!status && check->has_manifest)
        status = check_lists(check, error);
    return status ? status : look_for_others(check, error);
}

static FshStatus is_lmdb(const char *path, bool *is_ret, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    *is_ret = !status && fsh_lmdb_sniff(mapping.bytes, mapping.length);
    if (!status && file_mapping_check(&mapping, 0, mapping.length, error))
        status = fsh_error_prepend(error, "%s", path);
    file_unmap(&mapping);
    return status == FSH_ERR_UNSUPPORTED ? FSH_OK : status;
}

static FshStatus list_own(Check *check, const char *path, FshError *error)
{
    char inside[PATH_MAX], plain[PATH_MAX];
    const char *name = "";
    /* Without slashes at the end, so that the name is a name. */
    size_t name_bytes = 0;
    size_t length = (size_t)(fsh_path_name(path, &name_bytes) - path) + name_bytes;
    if (length >= sizeof plain)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    memcpy(plain, path, length);
    plain[length] = '\0';
    if (!file_exists(plain))
        return fsh_error_system(error, ENOENT, "%s: cannot open", path);
    if (!file_is_folder(plain)) {
        FshStatus status = take_folder(check, plain, &name, error);
        if (status)
            return status;
        if (text_has_suffix(name, ".json"))
            return list_dataset(check, plain, name, error);
        if (text_has_suffix(name, ".fshard")) /* by name: its content may be what is damaged */
            return add_file(check, name, (FileCheck){.container = &fsh_shards_container}, 0, error);
        bool lmdb = text_has_suffix(name, ".mdb");
        if (!lmdb)
            status = is_lmdb(plain, &lmdb, error);
        if (status)
            return status;
        if (lmdb)
            return add_file(check, name, (FileCheck){.container = &fsh_lmdb_container}, 0, error);
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is neither a shard nor a " FSH_MANIFEST_NAME,
                             path);
    }
    FshStatus status = file_join(inside, sizeof inside, plain, LMDB_DATA_NAME, error);
    if (!status && file_exists(inside)) {
        status = take_folder(check, plain, &name, error);
        return status ? status
                      : add_file(check, name, (FileCheck){.container = &fsh_lmdb_container}, 0, error);
    }
    (void)snprintf(check->folder, sizeof check->folder, "%s", plain);
    status = file_join(inside, sizeof inside, plain, FSH_MANIFEST_NAME, error);
    if (status)
        return status;
    if (file_exists(inside))
        return list_dataset(check, inside, FSH_MANIFEST_NAME, error);
    status = look_for_others(check, error);
    if (!status && check->file_count == 0)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no " FSH_MANIFEST_NAME " and no shards",
                             path);
    char reason[] = "missing: packing did not finish, or it was removed; each file is checked alone; "
                    "fpack --repair-manifest makes it again";
    if (!status)
        tell_file(check, FSH_MANIFEST_NAME, FSH_ERR_NOT_FOUND, reason);
    return status;
}

/* Lists tars and LMDBs of others, which have no manifest. */
static FshStatus list_collection(Check *check, const Collection *collection, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t split = 0;
    check->has_splits = true;
    (void)snprintf(check->folder, sizeof check->folder, "%s", collection->folder);
    for (size_t i = 0; i < collection->count && !status; i++) {
        const CollectionFile *file = &collection->files[i];
        split += i && file->split != collection->files[i - 1].split;
        status = add_file(check, file->name, (FileCheck){.container = collection->container}, split, error);
    }
    return status;
}

static FshStatus list_path(Check *check, const char *path, FshError *error)
{
    Collection collection;
    FshStatus status = fsh_collection_find(&collection, path, error);
    const bool found = collection.container && collection.container->check; /* else nothing can be proved */
    if (!status && found)
        status = list_collection(check, &collection, error);
    fsh_collection_free(&collection);
    return status || found ? status : list_own(check, path, error);
}

static void check_free(Check *check)
{
    for (size_t i = 0; i < check->file_count; i++) {
        free(check->paths[i]);
        free(check->names[i]);
        if (check->contents)
            free(check->contents[i].hashes);
    }
    free(check->contents);
    for (size_t i = 0; check->expected && i < check->manifest.split_count; i++) {
        fsh_metadata_free(&check->expected[i]);
    }
    free(check->expected);
    free(check->files);
    free(check->paths);
    free(check->names);
    free(check->split_of);
    hash_set_free(&check->hashes);
    hash_set_free(&check->keys);
    free(check->class_counts);
    fsh_names_free(check->field_names, check->field_count);
    fsh_manifest_free(&check->manifest);
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
    check->level = level;
    check->visit = visit;
    check->counting = counting;
    check->context = context;
    FshStatus status = list_path(check, path, error);
    const bool with_contents = level >= FSH_CHECK_CONTENTS;
    for (size_t i = 0; i < check->file_count; i++)
        check->files[i].with_contents = with_contents;
    if (!status)
        status = hash_set_reserve(&check->hashes, check->file_count, error);
    if (!status) {
        check->contents = with_contents ? calloc(check->file_count + 1, sizeof *check->contents) : NULL;
        status = check->contents || !with_contents
                     ? pool_run_ordered(jobs, check->file_count, 0, sizeof(FileReport), work, deliver,
                                        fsh_report_empty, check, error)
                     : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    if (!status && check->file_count)
        end_split(check);
    if (!status && check->contents)
        status = fsh_check_overlap(check->files, check->contents, check->split_of, check->file_count,
                                   check->has_splits, tell_overlap, check, error);
    if (problem_count_ret)
        *problem_count_ret = check->problem_count;
    check_free(check);
    return status;
}
