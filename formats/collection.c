/* Files of other tools have no manifest: names tell the splits, and contents the rest. */

#include "formats/collection.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/text.h"
#include "formats/brace.h"
#include "formats/container.h"
#include "formats/lmdb_reader.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"
#include "formats/xxh3.h"

/* ---- which split ---- */

/* Words in file names, and the split they mean. */
static const struct {
    const char *word;
    int split; /* as fsh_split_name takes it */
} split_words[] = {
    {"train", 0}, {"training", 0}, {"val", 1}, {"valid", 1}, {"validation", 1}, {"test", 2}, {"testing", 2},
};

/* Returns the split that the first word of letters with such a meaning names: "imagenet-val-000000.tar" is
 * val. Returns -1 if there is none. only_first: for a folder, whose name is chosen for many reasons; only the
 * whole name before a dot counts. */
static int find_split(const char *name, bool only_first)
{
    for (const char *at = name; *at;) {
        char word[16] = {0};
        size_t length = 0;
        while (at[length] && isalpha((unsigned char)at[length])) {
            length++;
        }
        for (size_t i = 0; i < length && length < sizeof word; i++) {
            word[i] = (char)tolower((unsigned char)at[i]);
        }
        bool whole = at[length] == '\0' || at[length] == '.' || at[length] == '/';
        if (only_first && !whole)
            return -1;
        for (size_t i = 0; word[0] && i < sizeof split_words / sizeof *split_words; i++) {
            if (strcmp(word, split_words[i].word) == 0)
                return split_words[i].split;
        }
        if (only_first)
            return -1;
        at += length ? length : 1;
    }
    return -1;
}

/* ---- gathering ---- */

static FshStatus out_of_memory(const char *path, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

FshStatus fsh_collection_add(Collection *collection, const char *folder, const char *name, const char *split,
                             FshError *error)
{
    char joined[PATH_MAX];
    const char *path = name;
    FshStatus status = FSH_OK;
    if (folder[0]) {
        status = file_join(joined, sizeof joined, folder, name, error);
        path = joined;
    }
    if (status)
        return status;
    if ((collection->count & (collection->count - 1)) == 0) { /* room for twice as many at powers of two */
        size_t capacity = collection->count ? 2 * collection->count : 1;
        CollectionFile *grown = realloc(collection->files, capacity * sizeof *grown);
        if (!grown)
            return out_of_memory(path, error);
        collection->files = grown;
    }
    CollectionFile *file = &collection->files[collection->count];
    *file = (CollectionFile){.path = strdup(path), .name = strdup(name), .split = split};
    if (!file->path || !file->name) {
        free(file->path);
        free(file->name);
        return out_of_memory(path, error);
    }
    collection->count++;
    return FSH_OK;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const CollectionFile *)a)->name, ((const CollectionFile *)b)->name);
}

/* Gives each file the split that its name tells. Refuses files of which only some tell one: a mix is more
 * likely a mistake than one training set. */
static FshStatus assign_splits(Collection *collection, FshError *error)
{
    const CollectionFile *without = NULL, *with = NULL;
    for (size_t i = 0; i < collection->count; i++) {
        size_t bytes = 0;
        CollectionFile *file = &collection->files[i];
        if (file->split)
            continue;
        const bool only_first = container_has(collection->container, CONTAINER_SIDES);
        const int split = find_split(fsh_path_name(file->path, &bytes), only_first);
        file->split = fsh_split_name(split < 0 ? 0 : split);
        *(split < 0 ? &without : &with) = file;
    }
    if (with && without)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: which split is it of? %s is of %s; name them train-…, val-…, test-…",
                             without->path, with->name, with->split);
    /* Stable: in each split the order stays. */
    CollectionFile *sorted = calloc(collection->count + 1, sizeof *sorted);
    if (!sorted)
        return out_of_memory(collection->files[0].path, error);
    size_t next = 0;
    for (size_t split = 0; split < FSH_SPLIT_COUNT; split++) {
        for (size_t i = 0; i < collection->count; i++) {
            if (collection->files[i].split == fsh_split_name(split))
                sorted[next++] = collection->files[i];
        }
    }
    free(collection->files);
    collection->files = sorted;
    return FSH_OK;
}

/* ---- sniffing ---- */

/* Maps a file that may be of any kind. Pipes and devices have nothing to look at: an empty mapping. */
static FshStatus map_any(const char *path, FileMapping *mapping, FshError *error)
{
    FshStatus status = file_map(path, mapping, error);
    return status == FSH_ERR_UNSUPPORTED ? FSH_OK : status;
}

/* Unmaps a file, and checks that what was looked at could be read. */
static FshStatus unmap_read(const char *path, FileMapping *mapping, FshError *error)
{
    FshStatus status = file_mapping_check(mapping, 0, mapping->length, error);
    file_unmap(mapping);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

/* Finds the container of others that a single path is of: *container_ret, NULL if none. A file that cannot be
 * read may be anything: FSH_ERR_SYSTEM. */
static FshStatus sniff_path(const char *path, const Container **container_ret, FshError *error)
{
    char data_path[PATH_MAX];
    FileMapping mapping;
    const Container *container = NULL;
    *container_ret = NULL;
    if (fsh_lmdb_data_path(data_path, path, NULL) || !file_exists(data_path))
        return FSH_OK;
    FshStatus status = map_any(data_path, &mapping, error);
    if (status)
        return status;
    for (size_t i = 0; !*container_ret && (container = fsh_container_row(i)); i++) {
        if (!container_has(container, FSH_HAS_METADATA) && container->sniff &&
            container->sniff(path, &mapping))
            *container_ret = container;
    }
    return unmap_read(data_path, &mapping, error);
}

/* Refuses a compressed tar, by its name: nobody can read its samples in place. */
static FshStatus refuse_compressed(const char *path, FshError *error)
{
    static const char *const suffixes[] = {".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".tar.lz4"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (text_has_suffix(path, suffixes[i]))
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "%s: is compressed, and samples are read in place; decompress it to a .tar",
                                 path);
    }
    return FSH_OK;
}

FshStatus fsh_collection_gather(Collection *collection, const char *path, const char *suffix,
                                const Container *container, FshError *error)
{
    FshStatus status = FSH_OK;
    DIR *folder = opendir(path);
    if (!folder)
        return fsh_error_system(error, errno, "%s: cannot be read", path);
    for (const struct dirent *entry; (entry = folder_next(folder, path, &status, error));) {
        char inside[PATH_MAX];
        const char *name = entry->d_name;
        const Container *found = container;
        if (name[0] == '.' || !text_has_suffix(name, suffix))
            continue;
        status = file_join(inside, sizeof inside, path, name, error);
        if (!status && container)
            status = sniff_path(inside, &found, error);
        if (!status && found == container)
            status = fsh_collection_add(collection, path, name, NULL, error);
    }
    folder_close(folder);
    if (collection->count)
        qsort(collection->files, collection->count, sizeof *collection->files, compare_files);
    return status;
}

static void drop_files(Collection *collection)
{
    for (size_t i = 0; i < collection->count; i++) {
        free(collection->files[i].path);
        free(collection->files[i].name);
    }
    collection->count = 0;
}

FshStatus fsh_collection_take(Collection *collection, const char *path, FshError *error)
{
    size_t bytes = 0;
    const char *name = fsh_path_name(path, &bytes);
    drop_files(collection);
    free(collection->folder);
    collection->folder = strndup(path, (size_t)(name - path));
    if (!collection->folder)
        return out_of_memory(path, error);
    FshStatus status = fsh_collection_add(collection, "", path, NULL, error);
    if (status)
        return status;
    free(collection->files[0].name);
    collection->files[0].name = strndup(name, bytes);
    return collection->files[0].name ? FSH_OK : out_of_memory(path, error);
}

/* Finds files of others in a folder, of the first container that any of them is of. */
static FshStatus find_in_folder(Collection *collection, const char *path, FshError *error)
{
    FshStatus status = FSH_OK;
    const Container *container = NULL;
    for (size_t i = 0; !status && !collection->count && (container = fsh_container_row(i)); i++) {
        if (container->find)
            status = container->find(collection, path, error);
        if (!status && collection->count)
            collection->container = container;
    }
    return status;
}

/* Sets the container of a list by the content of its first file: tars where that tells nothing. */
static FshStatus sniff_list(Collection *collection, const char *text, FshError *error)
{
    FileMapping mapping;
    const char *first = collection->files[0].path;
    collection->container = &fsh_webdataset_container;
    if (file_is_folder(first) || text_has_suffix(first, FSH_MANIFEST_NAME))
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "%s: a list is of tars, or of the .fshard files of a split, and %s is neither; open "
            "one dataset at a time",
            text, first);
    FshStatus status = file_map(first, &mapping, error);
    if (status)
        return status;
    if (fsh_shards_container.sniff(first, &mapping))
        collection->container = &fsh_shards_container;
    status = file_mapping_check(&mapping, 0, mapping.length, error);
    file_unmap(&mapping);
    return status ? fsh_error_prepend(error, "%s", first) : FSH_OK;
}

static FshStatus find_list(Collection *collection, const char *text, FshError *error)
{
    char **paths = NULL;
    size_t count = 0;
    FshStatus status = fsh_brace_expand(text, &paths, &count, error);
    for (size_t i = 0; i < count && !status; i++) {
        if (!file_exists(paths[i]))
            status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: no such file; it is one of the %zu of %s",
                                   paths[i], count, text);
        if (!status)
            status = fsh_collection_add(collection, "", paths[i], NULL, error);
    }
    fsh_names_free(paths, count);
    return status ? status : sniff_list(collection, text, error);
}

FshStatus fsh_collection_find(Collection *collection, const char *path, FshError *error)
{
    FshStatus status = refuse_compressed(path, error);
    *collection = (Collection){0};
    if (status)
        return status;
    bool is_list = !file_exists(path) && (strchr(path, '{') || strstr(path, "::"));
    bool is_folder = file_is_folder(path);
    collection->folder = strdup(is_folder ? path : "");
    if (!collection->folder)
        return out_of_memory(path, error);
    /* Tars that fpack has not finished packing are no dataset of others. */
    if (is_folder && (file_exists_in(path, FSH_MANIFEST_NAME) || file_exists_in(path, FSH_UNFINISHED_NAME)))
        return FSH_OK;
    status = sniff_path(path, &collection->container, error);
    if (status) {
        fsh_collection_free(collection);
        return status;
    }
    if (is_list) {
        status = find_list(collection, path, error);
    } else if (collection->container) {
        status = fsh_collection_take(collection, path, error);
    } else if (is_folder && !file_exists_in(path, LMDB_DATA_NAME)) {
        status = find_in_folder(collection, path, error);
    }
    if (!status && collection->container)
        status = assign_splits(collection, error);
    if (status)
        fsh_collection_free(collection);
    return status;
}

void fsh_collection_free(Collection *collection)
{
    drop_files(collection);
    free(collection->files);
    free(collection->folder);
    *collection = (Collection){0};
}

/* ---- the manifest ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Gives each class the name that the files tell, where they agree and no two classes have one name; else its
 * number. */
static FshStatus name_classes(FshManifest *manifest, const SplitFile *files, size_t file_count,
                              FshError *error)
{
    size_t count = manifest->class_count;
    const char **told = calloc(count, sizeof *told), **sorted = calloc(count, sizeof *sorted);
    char(*numbers)[16] = calloc(count, sizeof *numbers);
    bool agree = true;
    FshStatus status = FSH_OK;
    if (!told || !sorted || !numbers) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        goto done;
    }
    for (size_t i = 0; i < file_count; i++) {
        const SampleTable *table = &files[i].table;
        for (size_t label = 0; label < table->class_name_count; label++) {
            const char *name = table->class_names[label];
            agree &= !name || !told[label] || strcmp(name, told[label]) == 0;
            told[label] = name ? name : told[label];
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "%zu", i);
        sorted[i] = told[i] ? told[i] : numbers[i];
    }
    qsort(sorted, count, sizeof *sorted, compare_text);
    for (size_t i = 1; i < count; i++) {
        agree &= strcmp(sorted[i - 1], sorted[i]) != 0;
    }
    for (size_t i = 0; i < count; i++) {
        told[i] = agree && told[i] ? told[i] : numbers[i];
    }
    if (agree && fsh_names_check("classes", told, count, NULL)) /* empty, or not UTF-8 */
        for (size_t i = 0; i < count; i++) {
            told[i] = numbers[i];
        }
    status = fsh_names_copy(&manifest->class_names, told, count, error);
done:
    free(told);
    free(sorted);
    free(numbers);
    return status;
}

/* Makes the classes of a manifest of kind classes: one even where no sample has a label. */
static FshStatus make_classes(FshManifest *manifest, const SplitFile *files, size_t file_count,
                              FshError *error)
{
    static const char *const unlabelled[] = {"unlabelled"};
    int32_t label_max = FSH_NO_LABEL;
    for (size_t i = 0; i < file_count; i++) {
        const SampleTable *table = &files[i].table;
        label_max = table->label_max > label_max ? table->label_max : label_max;
        if (table->names_are_labels && (int64_t)table->class_name_count > (int64_t)label_max + 1)
            label_max = (int32_t)table->class_name_count - 1; /* classes that no sample is of */
    }
    if (manifest->kind != FSH_KIND_CLASSES)
        return FSH_OK;
    manifest->class_count = label_max < 0 ? 1 : (size_t)label_max + 1;
    return label_max < 0 ? fsh_names_copy(&manifest->class_names, unlabelled, 1, error)
                         : name_classes(manifest, files, file_count, error);
}

static FshStatus fill_split(FshSplitInfo *split, size_t class_count, const CollectionFile *list,
                            const SplitFile *files, size_t count, FshError *error)
{
    split->name = strdup(list[0].split);
    split->files = calloc(count, sizeof *split->files);
    split->class_counts = class_count ? calloc(class_count, sizeof *split->class_counts) : NULL;
    if (!split->name || !split->files || (class_count && !split->class_counts))
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        split->files[i] = (FshFileInfo){.name = strdup(list[i].name),
                                        .sample_count = files[i].record_count,
                                        .bytes = fsh_split_file_bytes(&files[i])};
        split->file_count = i + 1;
        if (!split->files[i].name)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        split->sample_count += files[i].record_count;
        for (uint64_t j = 0; split->class_counts && j < files[i].record_count; j++) {
            int32_t label = fsh_table_row(&files[i].table, j)->label;
            if (label >= 0)
                split->class_counts[label]++;
        }
    }
    return FSH_OK;
}

/* Appends what tells the samples of a file apart from others of the same sizes: the last bytes of each field.
 * In a tar they lie just before the header that opening it reads; in an LMDB each costs a page, so of
 * BasicSR's at most EDGES_MAX samples are looked at, evenly spread. */
static FshStatus append_edges(Buffer *text, const SplitFile *file, FshError *error)
{
    enum { EDGE_BYTES = 64, EDGES_MAX = 4096 };
    const uint64_t spread = file->record_count / EDGES_MAX + 1;
    const uint64_t step = container_has(file->container, CONTAINER_SIDES) ? spread : 1;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < file->record_count && !status; i += step) {
        FshSample sample;
        RecordHead head;
        if (fsh_split_file_sample(file, i, &sample, &head, NULL))
            continue; /* whoever asks for it hears why */
        for (unsigned f = 0; f < sample.field_count && !status; f++) {
            const size_t bytes = sample.fields[f].bytes, edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
            const XXH64_hash_t hash =
                XXH3_64bits_withSeed((const uint8_t *)sample.fields[f].data + bytes - edge, edge, bytes);
            XXH64_canonical_t canonical;
            XXH64_canonicalFromHash(&canonical, hash);
            status = buffer_append(text, canonical.digest, sizeof canonical.digest, error);
        }
    }
    return status;
}

/* Makes the id from names, sizes, counts and the last bytes of images. */
static FshStatus make_id(FshManifest *manifest, const Collection *collection, const SplitFile *files,
                         FshError *error)
{
    Buffer text = {0};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < collection->count && !status; i++) {
        char numbers[96];
        int length =
            snprintf(numbers, sizeof numbers, "\n%s %" PRIu64 " %" PRIu64 "\n", collection->container->name,
                     fsh_split_file_bytes(&files[i]), files[i].record_count);
        status = buffer_append_text(&text, collection->files[i].name, error);
        if (!status)
            status = buffer_append(&text, numbers, (size_t)length, error);
        if (!status)
            status = append_edges(&text, &files[i], error);
    }
    if (!status) {
        FshHash128 hash;
        hash = fsh_hash_bytes(text.bytes, text.length);
        fsh_hash_format(&hash, manifest->id);
        memcpy(manifest->files_id, manifest->id, sizeof manifest->files_id);
    }
    buffer_free(&text);
    return status;
}

FshStatus fsh_collection_manifest(FshManifest *manifest, const Collection *collection, const SplitFile *files,
                                  FshError *error)
{
    const SampleTable *table = &files[0].table;
    *manifest = (FshManifest){.container = collection->container->id,
                              .kind = table->field_count > 1 ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                              .provenance_json = strdup("{}"),
                              .splits = calloc(FSH_SPLIT_COUNT, sizeof *manifest->splits)};
    FshStatus status = FSH_OK;
    if (!manifest->provenance_json || !manifest->splits)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status)
        status = fsh_names_copy(&manifest->field_names, (const char *const *)table->field_names,
                                table->field_count, error);
    if (!status)
        manifest->field_count = table->field_count;
    if (!status)
        status = make_classes(manifest, files, collection->count, error);
    for (size_t begin = 0, end = 0; begin < collection->count && !status; begin = end) {
        while (end < collection->count && collection->files[end].split == collection->files[begin].split) {
            end++;
        }
        status = fill_split(&manifest->splits[manifest->split_count++], manifest->class_count,
                            &collection->files[begin], &files[begin], end - begin, error);
    }
    if (!status)
        status = make_id(manifest, collection, files, error);
    if (status)
        fsh_manifest_free(manifest);
    return status;
}
