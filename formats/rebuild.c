/* A manifest made again from the files of its folder: what each of them tells of itself, and of the old
 * manifest what is still as it was written. */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/bytes.h"
#include "formats/container.h"
#include "formats/json.h"
#include "formats/manifest.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"
#include "formats/updated.h"
#include "formats/xxh3.h"

/* One file of the folder. */
typedef struct Part {
    char *name, *split; /* owned */
    SplitFile file;
    Metadata metadata; /* of shards and LMDBs */
    uint64_t index;    /* in its split, as the file or its name says */
    FshHash128 hash;
} Part;

typedef struct Rebuild {
    const char *folder;
    const Container *container;
    Part *parts;
    size_t count;
    Buffer text; /* of the old manifest; empty where there is none */
    json_t *old; /* NULL: none that is an object */
    bool sealed; /* its members have checksums */
    FshManifest *manifest;
} Rebuild;

static FshStatus out_of_memory(const Rebuild *rebuild, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", rebuild->folder);
}

/* ---- the old manifest ---- */

static FshStatus read_old(Rebuild *rebuild, FshError *error)
{
    char path[PATH_MAX];
    json_error_t where;
    FshStatus status = file_join(path, sizeof path, rebuild->folder, FSH_MANIFEST_NAME, error);
    if (status || file_read_most(path, MANIFEST_BYTES_MAX, &rebuild->text, NULL))
        return status; /* one that is missing or far too long says nothing */
    json_t *object = json_text_load((const char *)rebuild->text.bytes, rebuild->text.length,
                                    JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(object)) {
        const json_t *version = json_object_get(object, "version");
        rebuild->old = object;
        rebuild->sealed = json_object_get(object, "checksum") ||
                          json_integer_value(version) != MANIFEST_VERSION_WITHOUT_SEAL;
    } else {
        json_decref(object);
    }
    return FSH_OK;
}

/* Returns a member of the old manifest that is as it was written, or NULL. A manifest without checksums is
 * believed. */
static const json_t *old_member(const Rebuild *rebuild, const char *name)
{
    const json_t *member = json_object_get(rebuild->old, name);
    const bool whole =
        member && (!rebuild->sealed || fsh_manifest_member_is_whole((const char *)rebuild->text.bytes,
                                                                    rebuild->text.length, name));
    return whole ? member : NULL;
}

/* ---- the files ---- */

static FshStatus add_part(Rebuild *rebuild, const char *name, FshError *error)
{
    Part *parts = reallocarray(rebuild->parts, rebuild->count + 1, sizeof *parts);
    if (!parts)
        return out_of_memory(rebuild, error);
    rebuild->parts = parts;
    parts[rebuild->count] = (Part){.name = strdup(name)};
    return parts[rebuild->count++].name ? FSH_OK : out_of_memory(rebuild, error);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const Part *)a)->name, ((const Part *)b)->name);
}

static FshStatus list_parts(Rebuild *rebuild, FshError *error)
{
    FshStatus status = FSH_OK;
    const char *listed = json_string_value(old_member(rebuild, "container")), *first = NULL;
    FshContainer id = 0;
    if (listed && fsh_container_from_name(listed, &id))
        rebuild->container = fsh_container_find(id);
    DIR *entries = opendir(rebuild->folder);
    if (!entries)
        return fsh_error_system(error, errno, "%s: cannot open the folder", rebuild->folder);
    for (const struct dirent *entry; !status && (entry = readdir(entries));) {
        const Container *container = entry->d_name[0] == '.' ? NULL : fsh_container_of_name(entry->d_name);
        if (!container || (listed && container != rebuild->container))
            continue;
        if (!listed && first && container != rebuild->container)
            status =
                fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                              "%s: holds files of two containers, %s and %s: whose manifest shall it be? "
                              "Move the others away",
                              rebuild->folder, rebuild->parts[0].name, entry->d_name);
        rebuild->container = container;
        first = "";
        if (!status)
            status = add_part(rebuild, entry->d_name, error);
    }
    (void)closedir(entries);
    for (size_t i = 0; i < rebuild->count && !status; i++) {
        if (fsh_is_updated_name(rebuild->parts[i].name) || json_object_get(rebuild->old, "updates"))
            status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                   "%s: was changed by fpack --update: which records of its shards are "
                                   "samples stood in its " FSH_MANIFEST_NAME
                                   " alone, and it cannot be made again; pack it anew",
                                   rebuild->folder);
    }
    if (!status && rebuild->count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: holds no files of a dataset that a manifest could be made of",
                               rebuild->folder);
    if (rebuild->count)
        qsort(rebuild->parts, rebuild->count, sizeof *rebuild->parts, compare_names);
    return status;
}

/* ---- what each says ---- */

/* Hashes all mappings of a part by XXH3-128, one after another, as BasicSR's are hashed. */
static FshStatus hash_part(const Rebuild *rebuild, Part *part, FshError *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    (void)XXH3_128bits_reset(state);
    for (size_t i = 0; i < fsh_split_file_mapping_count(&part->file); i++) {
        const FileMapping *mapping = fsh_split_file_mapping(&part->file, i);
        (void)XXH3_128bits_update(state, mapping->bytes, (size_t)mapping->length);
    }
    part->hash = fsh_hash_taken(state);
    (void)XXH3_freeState(state);
    /* Else zeros that stand for pages which the disk cannot read would be what the manifest tells. */
    return fsh_split_file_check_all_read(&part->file, error)
               ? fsh_error_prepend(error, "%s/%s", rebuild->folder, part->name)
               : FSH_OK;
}

/* Opens a shard or an LMDB, which must say the same of the dataset as the first does. */
static FshStatus open_own(Rebuild *rebuild, Part *part, const char *path, FshError *error)
{
    const SplitFile *file = &part->file;
    const OpenRequest request = {.metadata_ret = &part->metadata};
    FshStatus status = fsh_split_file_open(&part->file, path, rebuild->container, &request, error);
    if (status)
        return status;
    Metadata expected = rebuild->parts[0].metadata;
    uint64_t count = 0;
    const bool counts = container_has(rebuild->container, CONTAINER_COUNTS);
    expected.split = part->metadata.split; /* which differs as it should */
    expected.text = NULL;
    status =
        fsh_metadata_compare(file->metadata, file->metadata_bytes, counts ? &count : NULL, &expected, error);
    if (status)
        return fsh_error_prepend(error, "%s: and %s", path, rebuild->parts[0].name);
    part->split = strdup(part->metadata.split);
    part->index = file->shard_index;
    part->hash = file->hash;
    if (!part->split)
        return out_of_memory(rebuild, error);
    return container_has(rebuild->container, FSH_HAS_HASH) ? FSH_OK : hash_part(rebuild, part, error);
}

/* Reads split and number from a name: SPLIT-000003.tar, SPLIT.basicsr. */
static FshStatus read_name(const Rebuild *rebuild, Part *part, FshError *error)
{
    const char *end = strrchr(part->name, '.');
    char *rest = NULL;
    if (container_has(rebuild->container, FSH_HAS_SHARDS)) {
        const char *dash = memrchr(part->name, '-', (size_t)(end - part->name));
        part->index = dash ? strtoull(dash + 1, &rest, 10) : 0;
        end = dash && rest == end && rest > dash + 1 ? dash : NULL;
    }
    part->split = end ? strndup(part->name, (size_t)(end - part->name)) : NULL;
    if (end && !part->split)
        return out_of_memory(rebuild, error);
    return end && fsh_split_name_valid(part->split)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s/%s: its name tells no split", rebuild->folder,
                               part->name);
}

static FshStatus open_foreign(Rebuild *rebuild, Part *part, const char *path, FshError *error)
{
    const FshManifest *manifest = rebuild->manifest;
    const SampleTable *first = &rebuild->parts[0].file.table;
    OpenRequest request = {/* Without a list of classes each .json tells the name of its own. */
                           .written_by_us =
                               manifest->class_count || !container_has(rebuild->container, FSH_HAS_CLASSES)};
    if (manifest->field_count) {
        request.field_names = (const char *const *)manifest->field_names;
        request.field_count = manifest->field_count;
    } else if (part != rebuild->parts) {
        request.field_names = (const char *const *)first->field_names;
        request.field_count = first->field_count;
    }
    FshStatus status = read_name(rebuild, part, error);
    if (!status)
        status = fsh_split_file_open(&part->file, path, rebuild->container, &request, error);
    return status ? status : hash_part(rebuild, part, error);
}

static FshStatus open_parts(Rebuild *rebuild, FshError *error)
{
    FshStatus status = FSH_OK;
    const bool own = container_has(rebuild->container, FSH_HAS_METADATA);
    for (size_t i = 0; i < rebuild->count && !status; i++) {
        char path[PATH_MAX];
        Part *part = &rebuild->parts[i];
        status = file_join(path, sizeof path, rebuild->folder, part->name, error);
        if (!status)
            status = own ? open_own(rebuild, part, path, error) : open_foreign(rebuild, part, path, error);
    }
    return status;
}

/* ---- the whole ---- */

/* Takes names that only the old manifest and the samples of tars tell. */
static FshStatus take_old_names(Rebuild *rebuild, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    FshStatus status = FSH_OK;
    if (container_has(rebuild->container, FSH_HAS_METADATA))
        return FSH_OK;
    if (old_member(rebuild, "fields"))
        status =
            fsh_json_names(rebuild->old, "fields", &manifest->field_names, &manifest->field_count, error);
    if (!status && old_member(rebuild, "classes"))
        status =
            fsh_json_names(rebuild->old, "classes", &manifest->class_names, &manifest->class_count, error);
    return status;
}

/* Gives the classes of tars whose manifest has lost the names each the name that a sample of the class
 * tells. */
static FshStatus gather_classes(Rebuild *rebuild, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    int32_t most = FSH_NO_LABEL;
    for (size_t i = 0; i < rebuild->count; i++)
        most = rebuild->parts[i].file.table.label_max > most ? rebuild->parts[i].file.table.label_max : most;
    const size_t count = most < 0 ? 0 : (size_t)most + 1;
    const char **names = calloc(count + 1, sizeof *names);
    FshStatus status = names ? FSH_OK : out_of_memory(rebuild, error);
    for (size_t i = 0; i < rebuild->count && !status; i++) {
        const SampleTable *table = &rebuild->parts[i].file.table;
        for (size_t label = 0; label < table->class_name_count && label < count; label++)
            names[label] = table->class_names[label] ? table->class_names[label] : names[label];
    }
    for (size_t label = 0; label < count && !status; label++) {
        if (!names[label])
            status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                                   "%s: no sample tells the name of class %zu, and the manifest's names were "
                                   "changed; pack it again",
                                   rebuild->folder, label);
    }
    if (!status)
        status = fsh_names_copy(&manifest->class_names, names, count, error);
    manifest->class_count = status ? 0 : count;
    free(names);
    return status;
}

static FshStatus describe_foreign(Rebuild *rebuild, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    const SampleTable *table = &rebuild->parts[0].file.table;
    const char *id = json_string_value(old_member(rebuild, rebuild->sealed ? "files_id" : "id"));
    FshStatus status = FSH_OK;
    if (!manifest->field_count) {
        status = fsh_names_copy(&manifest->field_names, (const char *const *)table->field_names,
                                table->field_count, error);
        manifest->field_count = status ? 0 : table->field_count;
    }
    manifest->kind = manifest->field_count > 1 ? FSH_KIND_PAIRS : FSH_KIND_CLASSES;
    if (!status && manifest->kind == FSH_KIND_CLASSES && !manifest->class_count)
        status = gather_classes(rebuild, error);
    if (id && fsh_id_valid(id)) {
        memcpy(manifest->files_id, id, sizeof manifest->files_id);
        return status;
    }
    memset(manifest->files_id, '0', FSH_ID_DIGITS);
    for (size_t i = 0; i < rebuild->count; i++)
        fsh_id_mix(manifest->files_id, &rebuild->parts[i].hash, sizeof rebuild->parts[i].hash);
    return status;
}

/* Moves over what the first file says; all say it. */
static void describe_own(Rebuild *rebuild)
{
    FshManifest *manifest = rebuild->manifest;
    Metadata *metadata = &rebuild->parts[0].metadata;
    memcpy(manifest->files_id, metadata->id, sizeof manifest->files_id);
    manifest->kind = metadata->kind;
    manifest->field_names = metadata->field_names;
    manifest->field_count = metadata->field_count;
    manifest->class_names = metadata->class_names;
    manifest->class_count = metadata->class_count;
    manifest->dictionary = metadata->dictionary;
    metadata->field_names = metadata->class_names = NULL;
    metadata->field_count = metadata->class_count = 0;
}

static size_t rank_of_split(const char *name)
{
    static const char *const order[] = {"train", "val", "test"};
    size_t rank = 0;
    while (rank < 3 && strcmp(order[rank], name) != 0)
        rank++;
    return rank;
}

static int compare_parts(const void *a, const void *b)
{
    const Part *left = a, *right = b;
    const size_t left_rank = rank_of_split(left->split), right_rank = rank_of_split(right->split);
    if (left_rank != right_rank)
        return left_rank < right_rank ? -1 : 1;
    const int order = strcmp(left->split, right->split);
    return order ? order : (left->index > right->index) - (left->index < right->index);
}

/* Adds parts [begin, end), those of one split, in order. */
static FshStatus add_split(Rebuild *rebuild, size_t begin, size_t end, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    FshSplitInfo *split = &manifest->splits[manifest->split_count++];
    split->name = strdup(rebuild->parts[begin].split);
    split->files = calloc(end - begin, sizeof *split->files);
    split->class_counts =
        manifest->class_count ? calloc(manifest->class_count, sizeof *split->class_counts) : NULL;
    if (!split->name || !split->files || (manifest->class_count && !split->class_counts))
        return out_of_memory(rebuild, error);
    for (size_t i = begin; i < end; i++) {
        const Part *part = &rebuild->parts[i];
        const SplitFile *file = &part->file;
        const uint64_t count = file->shard_count ? file->shard_count : end - begin;
        if (part->index < i - begin)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: %s and %s are the same file of split %s",
                                 rebuild->folder, rebuild->parts[i - 1].name, part->name, split->name);
        const bool is_short = i + 1 == end && count > end - begin;
        if (part->index > i - begin || is_short)
            return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                                 "%s: split %s: file %zu of %" PRIu64 " is missing; bring it back first",
                                 rebuild->folder, split->name, is_short ? end - begin : i - begin,
                                 count > end - begin ? count : part->index + 1);
        split->files[split->file_count] = (FshFileInfo){.name = strdup(part->name),
                                                        .sample_count = file->record_count,
                                                        .bytes = fsh_split_file_bytes(file),
                                                        .hash = part->hash};
        if (!split->files[split->file_count++].name)
            return out_of_memory(rebuild, error);
        split->sample_count += file->record_count;
        for (uint64_t record = 0; split->class_counts && record < file->record_count; record++) {
            const int64_t label = fsh_split_file_label(file, record);
            if (label >= 0 && (uint64_t)label < manifest->class_count)
                split->class_counts[label]++;
        }
    }
    return FSH_OK;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Gathers the names of files that a list of splits tells, sorted: *count_ret of them. *names_ret is the
 * caller's (free); the names are the list's. */
static FshStatus gather_listed(const Rebuild *rebuild, const json_t *splits, const char ***names_ret,
                               size_t *count_ret, FshError *error)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < json_array_size(splits); i++)
        most += json_array_size(json_object_get(json_array_get(splits, i), "files"));
    const char **names = *names_ret = calloc(most + 1, sizeof *names);
    *count_ret = 0;
    if (!names)
        return out_of_memory(rebuild, error);
    for (size_t i = 0; i < json_array_size(splits); i++) {
        const json_t *files = json_object_get(json_array_get(splits, i), "files");
        for (size_t j = 0; j < json_array_size(files); j++) {
            const char *name = json_string_value(json_object_get(json_array_get(files, j), "name"));
            if (name)
                names[count++] = name;
        }
    }
    if (count)
        qsort(names, count, sizeof *names, compare_strings);
    *count_ret = count;
    return FSH_OK;
}

/* Refuses a folder in which a file of the old manifest is lost, or one is added, where its list is as it was
 * written. Tars do not tell how many there are: what another run has left would become a part of the dataset.
 * */
static FshStatus check_listed(const Rebuild *rebuild, FshError *error)
{
    const json_t *splits = old_member(rebuild, "splits");
    const char **names = NULL;
    size_t count = 0;
    FshStatus status = splits ? gather_listed(rebuild, splits, &names, &count, error) : FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const Part wanted = {.name = (char *)names[i]}; /* is only read */
        if (!bsearch(&wanted, rebuild->parts, rebuild->count, sizeof wanted, compare_names))
            status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s/%s: is missing; bring it back first",
                                   rebuild->folder, names[i]);
    }
    for (size_t i = 0; i < rebuild->count && count && !status; i++) {
        const char *name = rebuild->parts[i].name;
        if (!bsearch(&name, names, count, sizeof *names, compare_strings))
            status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                   "%s/%s: is not in the manifest's list of files, which is as it was "
                                   "written; move it away first",
                                   rebuild->folder, name);
    }
    free(names);
    return status;
}

/* Copies the old manifest's provenance, whatever somebody wrote into it by hand: it is told and not read. But
 * a recipe that is no object, with which no manifest is read, is left out. NULL: out of memory. */
static char *copy_provenance(const Rebuild *rebuild)
{
    const json_t *provenance = json_object_get(rebuild->old, "provenance");
    if (!json_is_object(provenance))
        return strdup("{}");
    json_t *copy = json_copy((json_t *)provenance); /* is only read */
    const json_t *recipe = json_object_get(copy, "recipe");
    if (recipe && !json_is_object(recipe))
        (void)json_object_del(copy, "recipe");
    char *text = copy ? json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(copy);
    return text;
}

/* Returns the factor by which the sides of the first pair whose sizes are told differ, or 0; where no pair
 * tells, that of the old manifest. */
static uint32_t find_pair_scale(const Rebuild *rebuild)
{
    const json_t *old = old_member(rebuild, "pair_scale");
    for (size_t i = 0; i < rebuild->count; i++) {
        for (uint64_t record = 0; record < rebuild->parts[i].file.record_count; record++) {
            FshSample sample;
            RecordHead head;
            if (fsh_split_file_sample(&rebuild->parts[i].file, record, &sample, &head, NULL) ||
                sample.field_count < 2)
                continue;
            const uint32_t first = sample.fields[0].width, other = sample.fields[1].width;
            if (first && other)
                return other % first == 0 && other / first <= FSH_PAIR_SCALE_MAX ? other / first : 0;
            return json_is_integer(old) ? (uint32_t)json_integer_value(old) : 0;
        }
    }
    return 0;
}

/* Takes the names of the values of masks from the old manifest. They are gone where it has none that are
 * right: nothing else is lost with them. FSH_ERR_MEMORY. */
static FshStatus take_mask_names(Rebuild *rebuild, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    FshError wrong = {0};
    const FshStatus status = fsh_json_names(rebuild->old, "mask_class_names", &manifest->mask_names,
                                            &manifest->mask_name_count, &wrong);
    if (!status && manifest->mask_name_count > FSH_MASK_IGNORED) {
        fsh_names_free(manifest->mask_names, manifest->mask_name_count);
        manifest->mask_names = NULL;
        manifest->mask_name_count = 0;
    }
    return status == FSH_ERR_MEMORY ? out_of_memory(rebuild, error) : FSH_OK;
}

static FshStatus make_manifest(Rebuild *rebuild, FshError *error)
{
    FshManifest *manifest = rebuild->manifest;
    FshStatus status = FSH_OK;
    manifest->container = rebuild->container->id;
    if (container_has(rebuild->container, FSH_HAS_METADATA))
        describe_own(rebuild);
    else
        status = describe_foreign(rebuild, error);
    if (status)
        return status;
    qsort(rebuild->parts, rebuild->count, sizeof *rebuild->parts, compare_parts);
    manifest->splits = calloc(rebuild->count, sizeof *manifest->splits);
    manifest->provenance_json = copy_provenance(rebuild);
    if (!manifest->splits || !manifest->provenance_json)
        return out_of_memory(rebuild, error);
    for (size_t begin = 0, end = 0; begin < rebuild->count && !status; begin = end) {
        while (end < rebuild->count && strcmp(rebuild->parts[end].split, rebuild->parts[begin].split) == 0)
            end++;
        status = add_split(rebuild, begin, end, error);
    }
    /* No file tells what people call the classes: a name that was changed is gone, with the others. */
    if (!status && json_array_size(old_member(rebuild, "class_display_names")) == manifest->class_count)
        status = fsh_manifest_parse_display_names(manifest, rebuild->old, error);
    if (!status && manifest->kind == FSH_KIND_MASKS && old_member(rebuild, "mask_class_names"))
        status = take_mask_names(rebuild, error);
    if (!status && manifest->kind == FSH_KIND_PAIRS)
        manifest->pair_scale = find_pair_scale(rebuild);
    if (!status)
        status = fsh_manifest_check(manifest, FSH_ERR_CORRUPT, error);
    return status ? status : fsh_manifest_identify(manifest, error);
}

FshStatus fsh_manifest_rebuild(FshManifest *manifest, const char *folder, FshError *error)
{
    Rebuild rebuild = {.folder = folder, .manifest = manifest};
    *manifest = (FshManifest){0};
    FshStatus status = read_old(&rebuild, error);
    if (!status)
        status = list_parts(&rebuild, error);
    if (!status)
        status = check_listed(&rebuild, error);
    if (!status)
        status = take_old_names(&rebuild, error);
    if (!status)
        status = open_parts(&rebuild, error);
    if (!status)
        status = make_manifest(&rebuild, error);
    for (size_t i = 0; i < rebuild.count; i++) {
        fsh_split_file_close(&rebuild.parts[i].file);
        fsh_metadata_free(&rebuild.parts[i].metadata);
        free(rebuild.parts[i].name);
        free(rebuild.parts[i].split);
    }
    free(rebuild.parts);
    json_decref(rebuild.old);
    buffer_free(&rebuild.text);
    if (status)
        fsh_manifest_free(manifest);
    return status;
}
