/* pack_pairs.c - side folders to samples: one image for each field, matched by path.
 *
 * A side is a folder named like a field, at any depth. What is left of a path without that folder and without
 * the extension is the key; images with the same split and key are one sample. A side may also be a folder
 * anywhere, and names may end in a word of their side (--pair-suffix). Nothing is guessed: a key that lacks a
 * side, or has two images on one side, is listed and left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pack/pack_keyed.h"
#include "common/text.h"

/* Orders by split, key, field, then path. */
static int compare_images(const void *a, const void *b)
{
    const SideImage *left = a, *right = b;
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    size_t shorter = left->key_bytes < right->key_bytes ? left->key_bytes : right->key_bytes;
    int order = memcmp(left->key, right->key, shorter);
    if (order)
        return order;
    if (left->key_bytes != right->key_bytes)
        return left->key_bytes < right->key_bytes ? -1 : 1;
    if (left->field != right->field)
        return left->field < right->field ? -1 : 1;
    return left->file < right->file ? -1 : left->file > right->file;
}

static bool same_sample(const SideImage *a, const SideImage *b)
{
    return a->split == b->split && text_is_same(a->key, a->key_bytes, b->key, b->key_bytes);
}

/* Returns how many of the folders of path are side folders. The first of them is the side *field_ret and
 * begins at *begin_ret. */
static size_t find_sides(const PackKeyed *keyed, const char *path, uint32_t *field_ret, size_t *begin_ret)
{
    size_t found = 0;
    const char *part = path;
    for (const char *slash = strchr(part, '/'); slash; part = slash + 1, slash = strchr(part, '/')) {
        for (size_t field = 0; field < keyed->found->field_count; field++) {
            size_t length = strlen(keyed->found->field_names[field]);
            if (length != (size_t)(slash - part) ||
                memcmp(part, keyed->found->field_names[field], length) != 0)
                continue;
            if (found++ == 0) {
                *field_ret = (uint32_t)field;
                *begin_ret = (size_t)(part - path);
            }
        }
    }
    return found;
}

static bool ends_in(const char *text, size_t bytes, const char *end)
{
    const size_t end_bytes = strlen(end);
    return bytes > end_bytes && text[bytes - end_bytes - 1] != '/' &&
           memcmp(text + bytes - end_bytes, end, end_bytes) == 0;
}

/* Finds the side whose own folder path lies in; of several in one folder the one with the longest suffix that
 * the name has. Returns field_count where there is none: *below_ret tells whether it lies in a side's folder
 * at all. */
static uint32_t find_folder(const PackOptions *options, const char *path, bool *below_ret)
{
    const size_t stem_bytes = pack_stem_bytes(path);
    size_t best = options->field_count;
    *below_ret = false;
    for (size_t field = 0; field < options->field_count; field++) {
        const size_t length = strlen(options->side_folders[field]);
        const char *suffix = options->side_suffixes[field];
        if (strncmp(path, options->side_folders[field], length) != 0 || path[length] != '/')
            continue;
        *below_ret = true;
        if (ends_in(path, stem_bytes, suffix) &&
            (best == options->field_count || strlen(suffix) > strlen(options->side_suffixes[best])))
            best = field;
    }
    return (uint32_t)best;
}

/* Writes path without the side's folder, suffix and extension to storage, and finds its split. */
static size_t make_key(const char *path, size_t side_begin, size_t side_end, size_t suffix_bytes,
                       char *storage, SideImage *image)
{
    size_t stem_bytes = pack_stem_bytes(path) - suffix_bytes;
    memcpy(storage, path, side_begin);
    memcpy(storage + side_begin, path + side_end, stem_bytes - side_end);
    size_t length = side_begin + stem_bytes - side_end;
    const char *slash = memchr(storage, '/', length);
    PackSplitIndex split = slash ? pack_split_by_name(storage, (size_t)(slash - storage)) : PACK_SPLITS;
    size_t skipped = split == PACK_SPLITS ? 0 : (size_t)(slash - storage) + 1;
    image->split = split == PACK_SPLITS ? PACK_TRAIN : split;
    image->key = storage + skipped;
    image->key_bytes = length - skipped;
    return length;
}

/* Collects the images of all sides; *count_ret of them. */
static FshStatus collect(PackKeyed *keyed, SideImage *images, uint64_t *count_ret, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    const bool own_folders = options->root[0] != '\0';
    FshStatus status = FSH_OK;
    uint64_t count = 0, outside_count = 0;
    const char *outside_example = NULL;
    size_t used = 0;
    for (uint64_t file = 0; file < keyed->found->files.count && !status; file++) {
        const char *path = keyed->found->files.files[file].path;
        uint32_t field = 0;
        size_t side_begin = 0;
        if (!keyed->found->is_image[file])
            continue;
        bool below = false;
        if (own_folders)
            field = find_folder(options, path, &below);
        size_t sides = own_folders ? below : find_sides(keyed, path, &field, &side_begin);
        const char *suffix = field < keyed->found->field_count ? options->side_suffixes[field] : "";
        const bool fits = field < keyed->found->field_count && ends_in(path, pack_stem_bytes(path), suffix);
        if (sides == 1 && fits) {
            const char *folder =
                own_folders ? options->side_folders[field] : keyed->found->field_names[field];
            SideImage *image = &images[count++];
            *image = (SideImage){.file = file, .field = field};
            used += make_key(path, side_begin, side_begin + strlen(folder) + 1, strlen(suffix),
                             keyed->key_storage + used, image);
        } else if (sides == 1) {
            status = notes_addf(&keyed->found->notes->left_out, FSH_ERR_MISMATCH, error, path,
                                "its name does not end as --pair-suffix says of its side%s%s%s",
                                *suffix ? ": '" : "", suffix, *suffix ? "'" : "");
        } else if (sides > 1) {
            status =
                notes_add(&keyed->found->notes->left_out, FSH_ERR_MISMATCH, path,
                          "lies below more than one side folder: which side it is cannot be told", error);
        } else {
            outside_count++;
            if (!outside_example)
                outside_example = path;
        }
    }
    if (!status && outside_count)
        status = notes_addf(&keyed->found->notes->warnings, FSH_OK, error, outside_example,
                            "below no side folder, as %llu image%s in all; left alone",
                            (unsigned long long)outside_count, text_plural(outside_count));
    *count_ret = count;
    return status;
}

/* Adds images of one key: as a sample if each side has exactly one, else as a note for each image.
 * *orphans_ret: the group lacks a side. */
static FshStatus add_group(PackKeyed *keyed, const SideImage *images, size_t count, bool *orphans_ret,
                           FshError *error)
{
    uint64_t sources[FSH_FIELDS_MAX] = {0};
    size_t per_field[FSH_FIELDS_MAX] = {0};
    size_t missing = FSH_FIELDS_MAX, doubled = FSH_FIELDS_MAX; /* the first such field */
    for (size_t i = 0; i < count; i++) {
        per_field[images[i].field]++;
        sources[images[i].field] = images[i].file;
    }
    for (size_t field = keyed->found->field_count; field-- > 0;) {
        missing = per_field[field] == 0 ? field : missing;
        doubled = per_field[field] > 1 ? field : doubled;
    }
    *orphans_ret = missing < FSH_FIELDS_MAX;
    if (missing == FSH_FIELDS_MAX && doubled == FSH_FIELDS_MAX) {
        keyed_add_sample(keyed, images[0].key, images[0].key_bytes, FSH_NO_LABEL, images[0].split, sources);
        return FSH_OK;
    }
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const char *path = keyed->found->files.files[images[i].file].path;
        if (doubled < FSH_FIELDS_MAX)
            status = notes_addf(&keyed->found->notes->left_out, FSH_ERR_MISMATCH, error, path,
                                "'%s' has %zu images for '%.*s': which one is meant cannot be told",
                                keyed->found->field_names[doubled], per_field[doubled],
                                (int)images[i].key_bytes, images[i].key);
        else
            status = notes_addf(&keyed->found->notes->left_out, FSH_ERR_NOT_FOUND, error, path,
                                "has no counterpart in '%s'", keyed->found->field_names[missing]);
    }
    return status;
}

/* A folder name on the path of an image. */
typedef struct FolderName {
    const char *text; /* bytes long, not NUL-terminated */
    size_t bytes;
    uint64_t image_count;
} FolderName;

static int compare_folder_names(const void *a, const void *b)
{
    const FolderName *left = a, *right = b;
    int order = memcmp(left->text, right->text, left->bytes < right->bytes ? left->bytes : right->bytes);
    return order ? order : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* Orders by the count of images, most first, then by name. */
static int compare_image_counts(const void *a, const void *b)
{
    const FolderName *left = a, *right = b;
    if (left->image_count != right->image_count)
        return left->image_count > right->image_count ? -1 : 1;
    return compare_folder_names(a, b);
}

static void set_missing_error(const PackKeyed *keyed, const char *missing, const FolderName *names,
                              size_t count, FshError *error)
{
    enum { SHOWN_MAX = 6 };
    char shown[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && i < SHOWN_MAX; i++) {
        if (used + names[i].bytes + sizeof ", , ..." > sizeof shown)
            break;
        used += (size_t)snprintf(shown + used, sizeof shown - used, "%s%.*s", i ? ", " : "",
                                 (int)names[i].bytes, names[i].text);
    }
    (void)fsh_error_set(error, FSH_ERR_NOT_FOUND,
                        "%s: no folder named '%s' holds an image; folders that do: %s%s", keyed->found->root,
                        missing, shown, count > SHOWN_MAX ? ", ..." : "");
}

/* Refuses a source in which a side is nowhere: that is one mistake in the command, not one of each image of
 * the other side. Where no image lies in a folder, what was looked for is explained elsewhere. */
static FshStatus check_sides(const PackKeyed *keyed, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t capacity = 1, count = 0, distinct = 0;
    bool seen[FSH_FIELDS_MAX] = {0};
    for (uint64_t file = 0; file < keyed->found->files.count; file++) {
        for (const char *at = keyed->found->files.files[file].path; (at = strchr(at, '/')); at++)
            capacity++;
    }
    FolderName *names = calloc(capacity, sizeof *names);
    if (!names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    for (uint64_t file = 0; file < keyed->found->files.count; file++) {
        const char *part = keyed->found->files.files[file].path;
        for (const char *slash; keyed->found->is_image[file] && (slash = strchr(part, '/')); part = slash + 1)
            names[count++] = (FolderName){.text = part, .bytes = (size_t)(slash - part), .image_count = 1};
    }
    if (count)
        qsort(names, count, sizeof *names, compare_folder_names);
    for (size_t i = 0; i < count; i++) {
        if (distinct && compare_folder_names(&names[distinct - 1], &names[i]) == 0)
            names[distinct - 1].image_count++;
        else
            names[distinct++] = names[i];
    }
    for (size_t i = 0; i < distinct; i++) {
        for (size_t field = 0; field < keyed->found->field_count; field++)
            seen[field] |= strlen(keyed->found->field_names[field]) == names[i].bytes &&
                           memcmp(keyed->found->field_names[field], names[i].text, names[i].bytes) == 0;
    }
    size_t kept = 0; /* names that could be sides */
    for (size_t i = 0; i < distinct; i++) {
        if (pack_split_by_name(names[i].text, names[i].bytes) == PACK_SPLITS)
            names[kept++] = names[i];
    }
    if (kept)
        qsort(names, kept, sizeof *names, compare_image_counts);
    for (size_t field = 0; field < keyed->found->field_count && kept && !status; field++) {
        if (!seen[field]) {
            set_missing_error(keyed, keyed->found->field_names[field], names, kept, error);
            status = FSH_ERR_NOT_FOUND;
        }
    }
    free(names);
    return status;
}

FshStatus key_pairs(PackKeyed *keyed, FshError *error)
{
    FshStatus status = keyed->found->options->root[0] ? FSH_OK : check_sides(keyed, error);
    if (status)
        return status;
    uint64_t count = 0, orphan_count = 0;
    size_t path_bytes = 1;
    for (uint64_t file = 0; file < keyed->found->files.count; file++)
        path_bytes += strlen(keyed->found->files.files[file].path);
    SideImage *images = calloc(keyed->found->files.count + 1, sizeof *images);
    keyed->key_storage = malloc(path_bytes); /* a key is shorter than its path */
    if (!images || !keyed->key_storage) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
        goto done;
    }
    status = collect(keyed, images, &count, error);
    if (status)
        goto done;
    if (count)
        qsort(images, count, sizeof *images, compare_images);
    for (uint64_t begin = 0, end; begin < count && !status; begin = end) {
        bool orphans = false;
        for (end = begin + 1; end < count && same_sample(&images[begin], &images[end]);)
            end++;
        status = add_group(keyed, &images[begin], (size_t)(end - begin), &orphans, error);
        for (uint64_t i = begin; i < end && orphans; i++)
            images[orphan_count++] = images[i]; /* where a group before was */
    }
    if (!status && orphan_count && keyed->found->field_count == 2)
        status = key_hint_suffix(keyed, images, (size_t)orphan_count, error);
    if (!status && keyed->pair_hint[0] && keyed->sample_count)
        status =
            notes_add(&keyed->found->notes->warnings, FSH_OK, keyed->found->root, keyed->pair_hint, error);
done:
    free(images);
    return status;
}
