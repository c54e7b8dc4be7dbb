/* Several open datasets as one: the files of all, member after member, under one manifest. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset.h"
#include "formats/manifest.h"
#include "formats/names.h"

/* Where the memory begins that a member's records lie in, to find the member by the data of a field. */
typedef struct Span {
    uintptr_t begin;
    size_t member;
} Span;

struct Joined {
    FshDataset **members; /* owned; without files */
    size_t count;
    int32_t **labels; /* [count][the member's classes]: what each is now; NULL: the same; owned */
    uint64_t *ends;   /* [splits][count]; owned */
    Span *spans;      /* by their begin; owned */
    size_t span_count;
};

void fsh_joined_free(FshDataset *dataset)
{
    struct Joined *joined = dataset->joined;
    if (!joined)
        return;
    for (size_t i = 0; i < joined->count; i++) {
        fsh_close(&joined->members[i]);
        free(joined->labels ? joined->labels[i] : NULL);
    }
    free(joined->members);
    free(joined->labels);
    free(joined->ends);
    free(joined->spans);
    free(joined);
    dataset->joined = NULL;
}

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for several datasets as one");
}

/* ---- whether they go together ---- */

static FshStatus check_fields(const FshDataset *member, const FshDataset *first, FshError *error)
{
    const FshManifest *own = &member->manifest, *other = &first->manifest;
    char has[200] = "", had[200] = "";
    if (fsh_names_equal(own->field_names, own->field_count, other->field_names, other->field_count))
        return FSH_OK;
    for (size_t i = 0; i < own->field_count; i++)
        (void)snprintf(has + strlen(has), sizeof has - strlen(has), "%s%s", i ? ", " : "",
                       own->field_names[i]);
    for (size_t i = 0; i < other->field_count; i++)
        (void)snprintf(had + strlen(had), sizeof had - strlen(had), "%s%s", i ? ", " : "",
                       other->field_names[i]);
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: its samples have the fields %s, those of %s %s; sets of one run need the same",
                         member->path, has, first->path, had);
}

/* Returns what a dataset of this kind holds, for messages. */
static const char *kind_text(FshKind kind)
{
    return kind == FSH_KIND_CLASSES ? "classes"
           : kind == FSH_KIND_PAIRS ? "pairs of images"
                                    : "images and masks";
}

/* Refuses a set whose masks call a value otherwise than an earlier one's do. */
static FshStatus check_mask_names(FshDataset *const *members, size_t index, FshError *error)
{
    const FshManifest *own = &members[index]->manifest;
    for (size_t i = 0; i < index; i++) {
        const FshManifest *other = &members[i]->manifest;
        for (size_t k = 0; k < own->mask_name_count && k < other->mask_name_count; k++)
            if (strcmp(own->mask_names[k], other->mask_names[k]) != 0)
                return fsh_error_set(
                    error, FSH_ERR_MISMATCH,
                    "%s: its masks call the value %zu '%s', those of %s '%s'; sets of one run "
                    "need the same",
                    members[index]->path, k, own->mask_names[k], members[i]->path, other->mask_names[k]);
    }
    return FSH_OK;
}

static FshStatus check_member(FshDataset *const *members, size_t index, FshError *error)
{
    const FshDataset *member = members[index], *first = members[0];
    const FshManifest *own = &member->manifest;
    if (fsh_container_has(own->container, FSH_HAS_FILES))
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "%s: is files that nobody has packed, which are no set of several; fpack makes a "
            "dataset of them",
            member->path);
    for (size_t i = 0; i < index; i++)
        if (strcmp(own->id, members[i]->manifest.id) == 0)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: is the same dataset as %s (id %s)",
                                 member->path, members[i]->path, own->id);
    if (own->kind != first->manifest.kind)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: holds %s, and %s %s; sets of one run are of one kind", member->path,
                             kind_text(own->kind), first->path, kind_text(first->manifest.kind));
    if (own->pair_scale != first->manifest.pair_scale && own->kind == FSH_KIND_PAIRS)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its targets are %u times as large as its inputs, those of %s %u times",
                             member->path, own->pair_scale ? own->pair_scale : 1, first->path,
                             first->manifest.pair_scale ? first->manifest.pair_scale : 1);
    const FshStatus status = check_fields(member, first, error);
    return status ? status : check_mask_names(members, index, error);
}

/* ---- classes ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool have_same_classes(const struct Joined *joined)
{
    const FshManifest *first = &joined->members[0]->manifest;
    bool same = true;
    for (size_t i = 1; i < joined->count && same; i++) {
        const FshManifest *own = &joined->members[i]->manifest;
        same = fsh_names_equal(own->class_names, own->class_count, first->class_names, first->class_count);
    }
    return same;
}

/* Lists the names of all classes, each once, in byte order; borrowed from the members. *names_ret is the
 * caller's. */
static FshStatus unite_names(const struct Joined *joined, const char ***names_ret, size_t *count_ret,
                             FshError *error)
{
    size_t room = 1, all = 0, count = 0;
    for (size_t i = 0; i < joined->count; i++)
        room += joined->members[i]->manifest.class_count;
    const char **names = *names_ret = calloc(room, sizeof *names);
    if (!names)
        return out_of_memory(error);
    for (size_t i = 0; i < joined->count; i++) {
        const FshManifest *own = &joined->members[i]->manifest;
        for (size_t k = 0; own->class_names && k < own->class_count; k++)
            names[all++] = own->class_names[k];
    }
    qsort(names, all, sizeof *names, compare_names);
    for (size_t i = 0; i < all; i++)
        if (!count || strcmp(names[count - 1], names[i]) != 0)
            names[count++] = names[i];
    *count_ret = count;
    return count <= INT32_MAX ? FSH_OK
                              : fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%zu classes are too many", count);
}

/* Fills in what each class of a member is now. names: [count], in byte order. */
static FshStatus place_classes(struct Joined *joined, size_t member, const char *const *names, size_t count,
                               FshError *error)
{
    const FshManifest *own = &joined->members[member]->manifest;
    int32_t *places = joined->labels[member] = calloc(own->class_count + 1, sizeof *places);
    if (!places)
        return out_of_memory(error);
    for (size_t k = 0; own->class_names && k < own->class_count; k++) {
        const char *const name = own->class_names[k];
        const char *const *found = bsearch(&name, names, count, sizeof *names, compare_names);
        places[k] = found ? (int32_t)(found - names) : FSH_NO_LABEL;
    }
    return FSH_OK;
}

static size_t class_now(const struct Joined *joined, size_t member, size_t class)
{
    return joined->labels[member] ? (size_t)joined->labels[member][class] : class;
}

/* Takes what the values of masks are called from the member that names most of them. */
static FshStatus take_mask_names(const struct Joined *joined, FshManifest *manifest, FshError *error)
{
    const FshManifest *from = &joined->members[0]->manifest;
    for (size_t i = 1; i < joined->count; i++)
        if (joined->members[i]->manifest.mask_name_count > from->mask_name_count)
            from = &joined->members[i]->manifest;
    if (!from->mask_names)
        return FSH_OK;
    const FshStatus status = fsh_names_copy(&manifest->mask_names, (const char *const *)from->mask_names,
                                            from->mask_name_count, error);
    manifest->mask_name_count = status ? 0 : from->mask_name_count;
    return status;
}

/* Takes the display name of each class from the first member that has one. */
static FshStatus take_display_names(const struct Joined *joined, FshManifest *manifest, FshError *error)
{
    bool any = false;
    for (size_t i = 0; i < joined->count; i++)
        any |= joined->members[i]->manifest.class_display_names != NULL;
    if (!any || !manifest->class_count)
        return FSH_OK;
    char **names = manifest->class_display_names = calloc(manifest->class_count, sizeof *names);
    for (size_t i = 0; names && i < joined->count; i++) {
        const FshManifest *own = &joined->members[i]->manifest;
        for (size_t k = 0; own->class_display_names && k < own->class_count; k++) {
            char **at = &names[class_now(joined, i, k)];
            if (!*at && *own->class_display_names[k] && !(*at = strdup(own->class_display_names[k])))
                return out_of_memory(error);
        }
    }
    bool whole = names != NULL;
    for (size_t k = 0; whole && k < manifest->class_count; k++)
        whole = names[k] || (names[k] = strdup(""));
    return whole ? FSH_OK : out_of_memory(error);
}

static FshStatus unite_classes(struct Joined *joined, FshManifest *manifest, FshError *error)
{
    const FshManifest *first = &joined->members[0]->manifest;
    const char **names = NULL;
    size_t count = first->class_count;
    const bool same = have_same_classes(joined);
    if (!first->class_names && same)
        return take_mask_names(joined, manifest, error);
    FshStatus status = same ? FSH_OK : unite_names(joined, &names, &count, error);
    for (size_t i = 0; i < joined->count && !same && !status; i++)
        status = place_classes(joined, i, names, count, error);
    if (!status)
        status = fsh_names_copy(&manifest->class_names,
                                same ? (const char *const *)first->class_names : names, count, error);
    if (!status)
        manifest->class_count = count;
    free(names);
    return status ? status : take_display_names(joined, manifest, error);
}

/* ---- what is known of the images ---- */

/* Returns how many images a member's statistics are over. */
static uint64_t measured_images(const FshDataset *member)
{
    const FshSplit *train = fsh_split(member, "train");
    return train ? train->sample_count : member->manifest.splits[0].sample_count;
}

static bool are_same(const FshStatistics *a, const FshStatistics *b)
{
    bool same = a->channels == b->channels;
    for (size_t c = 0; c < FSH_CHANNELS_MAX; c++)
        same &= a->mean[c] == b->mean[c] && a->standard_deviation[c] == b->standard_deviation[c];
    return same;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Joins the statistics: means and deviations exactly as they are where all members have the same. */
static void join_statistics(const struct Joined *joined, FshStatistics *statistics)
{
    const FshStatistics *first = &joined->members[0]->manifest.statistics;
    bool same = true, known = true;
    double squares[FSH_CHANNELS_MAX] = {0}, images = 0;
    *statistics = *first;
    for (size_t i = 1; i < joined->count; i++) {
        const FshStatistics *own = &joined->members[i]->manifest.statistics;
        same &= are_same(own, first);
        statistics->channels = most(statistics->channels, own->channels);
        statistics->width_min = least(statistics->width_min, own->width_min);
        statistics->height_min = least(statistics->height_min, own->height_min);
        statistics->width_max = most(statistics->width_max, own->width_max);
        statistics->height_max = most(statistics->height_max, own->height_max);
        statistics->mask_classes = most(statistics->mask_classes, own->mask_classes);
    }
    if (same)
        return;
    memset(statistics->mean, 0, sizeof statistics->mean);
    memset(statistics->standard_deviation, 0, sizeof statistics->standard_deviation);
    for (size_t i = 0; i < joined->count; i++) {
        const FshStatistics *own = &joined->members[i]->manifest.statistics;
        const double count = (double)measured_images(joined->members[i]);
        double sum = 0;
        for (uint32_t c = 0; c < statistics->channels; c++) {
            const uint32_t from = own->channels == 1 ? 0 : c; /* gray is the same in all */
            const double mean = own->mean[from], deviation = own->standard_deviation[from];
            statistics->mean[c] += count * mean;
            squares[c] += count * (deviation * deviation + mean * mean);
            sum += mean + deviation;
        }
        images += count;
        known &= sum > 0 || count == 0;
    }
    for (uint32_t c = 0; c < statistics->channels; c++) {
        statistics->mean[c] = known && images > 0 ? statistics->mean[c] / images : 0;
        const double variance =
            squares[c] / (images > 0 ? images : 1) - statistics->mean[c] * statistics->mean[c];
        statistics->standard_deviation[c] = known && variance > 0 ? sqrt(variance) : 0;
    }
}

/* ---- splits ---- */

/* Copies what a manifest says of a file, with its member's folder before its name. */
static FshStatus copy_file(FshFileInfo *copy, const FshFileInfo *file, const char *folder, FshError *error)
{
    const size_t length = strlen(folder), bytes = length + strlen(file->name) + 2;
    *copy = *file;
    copy->removed = NULL;
    copy->removed_count = 0;
    copy->name = malloc(bytes);
    if (!copy->name)
        return out_of_memory(error);
    (void)snprintf(copy->name, bytes, "%s%s%s", folder, length && folder[length - 1] != '/' ? "/" : "",
                   file->name);
    return FSH_OK;
}

/* Finds the place of a member's split of this name; split_count where it has none. */
static size_t place_of_split(const FshDataset *member, const char *name)
{
    size_t at = 0;
    while (at < member->manifest.split_count && strcmp(member->manifest.splits[at].name, name) != 0)
        at++;
    return at;
}

/* Takes the files of a member's split over. */
static FshStatus take_files(FshDataset *made, size_t split, size_t member, size_t from, FshError *error)
{
    struct Joined *joined = made->joined;
    FshDataset *own = joined->members[member];
    FshSplitInfo *info = &made->manifest.splits[split];
    struct FshSplitFiles *files = &made->split_files[split], *others = &own->split_files[from];
    const FshSplitInfo *theirs = &own->manifest.splits[from];
    for (size_t i = 0; i < others->count; i++) {
        FshStatus status = copy_file(&info->files[info->file_count], &theirs->files[i], own->folder, error);
        if (status)
            return status;
        info->file_count++;
        SplitFile *file = &files->files[files->count++];
        *file = others->files[i];
        others->files[i] = (SplitFile){0};
        file->first = info->sample_count;
        file->joined_labels = joined->labels[member];
        file->joined_label_count = own->manifest.class_count;
        info->sample_count += file->record_count;
    }
    others->count = 0;
    for (size_t k = 0; theirs->class_counts && info->class_counts && k < own->manifest.class_count; k++)
        info->class_counts[class_now(joined, member, k)] += theirs->class_counts[k];
    return FSH_OK;
}

static FshStatus join_split(FshDataset *made, size_t split, const char *name, FshError *error)
{
    struct Joined *joined = made->joined;
    FshManifest *manifest = &made->manifest;
    FshSplitInfo *info = &manifest->splits[split];
    struct FshSplitFiles *files = &made->split_files[split];
    uint64_t *ends = joined->ends + split * joined->count;
    FshStatus status = FSH_OK;
    size_t count = 0;
    for (size_t i = 0; i < joined->count; i++) {
        const size_t from = place_of_split(joined->members[i], name);
        count +=
            from < joined->members[i]->manifest.split_count ? joined->members[i]->split_files[from].count : 0;
    }
    info->name = strdup(name);
    info->files = calloc(count + 1, sizeof *info->files);
    info->class_counts =
        manifest->class_count ? calloc(manifest->class_count, sizeof *info->class_counts) : NULL;
    *files = (struct FshSplitFiles){.files = calloc(count + 1, sizeof *files->files),
                                    .folder = made->folder,
                                    .manifest = manifest,
                                    .joined = joined,
                                    .member_ends = ends};
    if (!info->name || !info->files || !files->files || (manifest->class_count && !info->class_counts))
        return out_of_memory(error);
    for (size_t i = 0; i < joined->count && !status; i++) {
        const size_t from = place_of_split(joined->members[i], name);
        if (from < joined->members[i]->manifest.split_count)
            status = take_files(made, split, i, from, error);
        ends[i] = info->sample_count;
    }
    made->splits[split] =
        (FshSplit){.dataset = made, .info = info, .sample_count = info->sample_count, .files = files};
    return status;
}

/* Makes the splits that any member has, in the order in which they come. */
static FshStatus join_splits(FshDataset *made, FshError *error)
{
    struct Joined *joined = made->joined;
    size_t most_splits = 1; /* one more, so that it is never none */
    made->manifest.split_count = 0;
    for (size_t i = 0; i < joined->count; i++)
        most_splits += joined->members[i]->manifest.split_count;
    made->manifest.splits = calloc(most_splits, sizeof *made->manifest.splits);
    made->splits = calloc(most_splits, sizeof *made->splits);
    made->split_files = calloc(most_splits, sizeof *made->split_files);
    joined->ends = calloc(most_splits * joined->count + 1, sizeof *joined->ends);
    if (!made->manifest.splits || !made->splits || !made->split_files || !joined->ends)
        return out_of_memory(error);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < joined->count && !status; i++)
        for (size_t k = 0; k < joined->members[i]->manifest.split_count && !status; k++) {
            const char *name = joined->members[i]->manifest.splits[k].name;
            if (place_of_split(made, name) == made->manifest.split_count)
                status = join_split(made, made->manifest.split_count++, name, error);
        }
    return status;
}

/* ---- dictionaries ---- */

static int compare_spans(const void *a, const void *b)
{
    const uintptr_t left = ((const Span *)a)->begin, right = ((const Span *)b)->begin;
    return left < right ? -1 : left > right;
}

/* Lists where the members' files lie in memory, if any was packed with a dictionary. */
static FshStatus list_spans(FshDataset *made, FshError *error)
{
    struct Joined *joined = made->joined;
    size_t count = 0;
    bool any = false;
    for (size_t i = 0; i < joined->count; i++)
        any |= joined->members[i]->dictionary != NULL;
    for (size_t i = 0; i < made->manifest.split_count; i++)
        for (size_t k = 0; k < made->split_files[i].count; k++)
            count += fsh_split_file_mapping_count(&made->split_files[i].files[k]);
    if (!any)
        return FSH_OK;
    joined->spans = calloc(count + 1, sizeof *joined->spans);
    if (!joined->spans)
        return out_of_memory(error);
    for (size_t i = 0; i < made->manifest.split_count; i++) {
        const struct FshSplitFiles *files = &made->split_files[i];
        size_t member = 0;
        for (size_t k = 0; k < files->count; k++) {
            const SplitFile *file = &files->files[k];
            while (member + 1 < joined->count && file->first >= files->member_ends[member])
                member++;
            for (size_t m = 0; m < fsh_split_file_mapping_count(file); m++) {
                const uintptr_t begin = (uintptr_t)fsh_split_file_mapping(file, m)->bytes;
                joined->spans[joined->span_count++] = (Span){begin, member};
            }
        }
    }
    qsort(joined->spans, joined->span_count, sizeof *joined->spans, compare_spans);
    return FSH_OK;
}

const struct ZSTD_DDict_s *fsh_field_dictionary(const FshSplit *split, const FshField *field)
{
    const struct Joined *joined = split->files->joined;
    if (!joined || !joined->span_count)
        return split->files->dictionary;
    const uintptr_t data = (uintptr_t)field->data;
    size_t low = 0, high = joined->span_count;
    while (high - low > 1) { /* the last one that begins at or before the data */
        const size_t middle = low + (high - low) / 2;
        if (joined->spans[middle].begin <= data)
            low = middle;
        else
            high = middle;
    }
    return joined->members[joined->spans[low].member]->dictionary;
}

/* ---- the whole ---- */

/* Makes the path for messages, "a/ + b/", and the id. */
static FshStatus name_joined(FshDataset *made, FshError *error)
{
    const struct Joined *joined = made->joined;
    FshManifest *manifest = &made->manifest;
    size_t bytes = 1;
    for (size_t i = 0; i < joined->count; i++)
        bytes += strlen(joined->members[i]->path) + sizeof " + ";
    made->path = calloc(1, bytes);
    made->folder = strdup("");
    char *ids = calloc(joined->count, FSH_ID_DIGITS);
    for (size_t i = 0; i < joined->count && made->path && ids; i++) {
        const size_t length = strlen(made->path);
        (void)snprintf(made->path + length, bytes - length, "%s%s", i ? " + " : "", joined->members[i]->path);
        memcpy(ids + i * FSH_ID_DIGITS, joined->members[i]->manifest.id, FSH_ID_DIGITS);
    }
    if (made->path && made->folder && ids) {
        memcpy(manifest->id, ids, FSH_ID_DIGITS);
        fsh_id_mix(manifest->id, ids, joined->count * FSH_ID_DIGITS);
        memcpy(manifest->files_id, manifest->id, sizeof manifest->files_id);
    }
    const bool whole = made->path && made->folder && ids;
    free(ids);
    return whole ? FSH_OK : out_of_memory(error);
}

static FshStatus make(FshDataset *made, FshError *error)
{
    struct Joined *joined = made->joined;
    FshManifest *manifest = &made->manifest;
    const FshManifest *first = &joined->members[0]->manifest;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < joined->count && !status; i++)
        status = check_member(joined->members, i, error);
    if (status)
        return status;
    *manifest = (FshManifest){.container = first->container,
                              .kind = first->kind,
                              .pair_scale = first->pair_scale,
                              .provenance_json = strdup("{}")};
    joined->labels = calloc(joined->count, sizeof *joined->labels);
    status = joined->labels && manifest->provenance_json ? name_joined(made, error) : out_of_memory(error);
    if (!status)
        status = fsh_names_copy(&manifest->field_names, (const char *const *)first->field_names,
                                first->field_count, error);
    if (!status) {
        manifest->field_count = first->field_count;
        join_statistics(joined, &manifest->statistics);
        status = unite_classes(joined, manifest, error);
    }
    if (!status)
        status = join_splits(made, error);
    return status ? status : list_spans(made, error);
}

FshStatus fsh_join(FshDataset **joined_ret, FshDataset **members, size_t count, FshError *error)
{
    if (!count) {
        *joined_ret = NULL;
        return fsh_error_set(error, FSH_ERR_USAGE, "no dataset: several as one are at least one");
    }
    FshDataset *made = *joined_ret = calloc(1, sizeof *made);
    struct Joined *joined = calloc(1, sizeof *joined);
    FshDataset **own = calloc(count + 1, sizeof(FshDataset *));
    const bool room = made && joined && own;
    for (size_t i = 0; i < count; i++) {
        if (room)
            own[i] = members[i];
        else
            fsh_close(&members[i]);
        members[i] = NULL;
    }
    if (!room) {
        free(made);
        free(joined);
        free(own);
        *joined_ret = NULL;
        return out_of_memory(error);
    }
    *joined = (struct Joined){.members = own, .count = count};
    *made = (FshDataset){.lock = -1, .joined = joined};
    FshStatus status = make(made, error);
    if (status)
        fsh_close(joined_ret);
    return status;
}

size_t fsh_member_count(const FshDataset *dataset)
{
    return dataset && dataset->joined ? dataset->joined->count : 1;
}

const FshDataset *fsh_member(const FshDataset *dataset, size_t index)
{
    return dataset->joined ? dataset->joined->members[index] : dataset;
}

uint64_t fsh_split_member_end(const FshSplit *split, size_t index)
{
    const struct FshSplitFiles *files = split->files;
    if (fsh_member_count(split->dataset) == 1)
        return split->sample_count;
    const uint64_t end = files->member_ends[index];
    if (!files->chosen)
        return end;
    uint64_t low = 0, high = split->sample_count; /* the first chosen sample at or behind the end */
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (files->chosen[middle] < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
