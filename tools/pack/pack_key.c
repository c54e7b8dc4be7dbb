#include "tools/pack/pack_keyed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/display_names.h"
#include "formats/names.h"

/* ---- samples ---- */

FshStatus keyed_reserve(PackKeyed *keyed, uint64_t count, FshError *error)
{
    keyed->samples = calloc(count + 1, sizeof *keyed->samples);
    keyed->items = calloc(count * keyed->found->field_count + 1, sizeof *keyed->items);
    return keyed->samples && keyed->items
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
}

void keyed_add_sample(PackKeyed *keyed, const char *key, size_t key_bytes, int32_t label,
                      PackSplitIndex split, const uint64_t *items)
{
    const size_t field_count = keyed->found->field_count;
    uint64_t *own = keyed->items + keyed->item_count;
    memcpy(own, items, field_count * sizeof *own);
    keyed->item_count += field_count;
    keyed->samples[keyed->sample_count++] = (PackSample){
        .key = key, .key_bytes = (uint32_t)key_bytes, .label = label, .split = (uint32_t)split, .items = own};
}

PackSource sample_source(const PackFound *found, const PackSample *sample, size_t field)
{
    return found_source(found, sample->items[field]);
}

const char *sample_source_name(const PackFound *found, const PackSample *sample, size_t field,
                               char buffer[PATH_MAX])
{
    const PackSource source = sample_source(found, sample, field);
    const char *name = source.path_bytes ? source.path : sample->key;
    const size_t bytes = source.path_bytes ? source.path_bytes : sample->key_bytes;
    (void)snprintf(buffer, PATH_MAX, "%.*s", (int)(bytes < PATH_MAX ? bytes : PATH_MAX - 1), name);
    return buffer;
}

FshStatus keyed_warn_capitals(PackKeyed *keyed, const char *name, const char *small, bool is_class, bool flat,
                              FshError *error)
{
    return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, keyed->found->root,
                      "'%s' %s, call the folder %s, in small letters%s", name,
                      is_class ? "is taken for a class, of which all its images are; if it is a split"
                               : "lies beside the splits, and its images are left alone; if it is one",
                      small, flat ? ", and put its images into folders of their classes" : "");
}

/* ---- a tree ---- */

static bool all_lie_in_the_root(const PackKeyed *keyed)
{
    for (uint64_t i = 0; i < keyed->found->files.count; i++) {
        if (strchr(keyed->found->files.files[i].path, '/'))
            return false;
    }
    return true;
}

static FshStatus refuse_no_samples(const PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    uint64_t image_count = keyed->found->files.count - keyed->found->other_file_count;
    char found[192];
    if (keyed->found->files.count == 0)
        (void)snprintf(found, sizeof found, "the folder holds no file");
    else if (image_count == 0)
        (void)snprintf(found, sizeof found, "none of its files (%llu) is an image",
                       (unsigned long long)keyed->found->files.count);
    else if (options->field_count == 0 && all_lie_in_the_root(keyed))
        (void)snprintf(found, sizeof found,
                       "its images (%llu) lie in it directly; pack the folder above it, or say with --labels "
                       "what they are",
                       (unsigned long long)image_count);
    else
        (void)snprintf(found, sizeof found, "its images (%llu) lie elsewhere",
                       (unsigned long long)image_count);
    if (options->field_count == 0)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: no images in class folders (looked for %s/CLASS/x.jpg and "
                             "%s/train/CLASS/x.jpg): %s",
                             keyed->found->root, keyed->found->root, keyed->found->root, found);
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "%s: no sample has an image in each of the folders '%s' and '%s' (looked %s"
                         "same path below them): %s",
                         keyed->found->root, keyed->found->field_names[0], keyed->found->field_names[1],
                         options->root[0] ? "for the " : "at any depth, ",
                         keyed->pair_hint[0]                   ? keyed->pair_hint
                         : keyed->found->notes->left_out.count ? "see what was left out"
                                                               : found);
}

/* Makes the samples of a tree that was walked. */
static FshStatus key_tree(PackKeyed *keyed, FshError *error)
{
    FshStatus status = keyed_reserve(keyed, keyed->found->files.count, error);
    if (status)
        return status;
    status = keyed->found->options->field_count ? key_pairs(keyed, error) : key_classes(keyed, error);
    if (!status && keyed->sample_count == 0)
        status = refuse_no_samples(keyed, error);
    return status == FSH_ERR_NOT_FOUND ? found_hint_flat_pairs(keyed->found, status, error) : status;
}

/* ---- classes ---- */

/* Refuses names of classes that are no UTF-8: they stand in JSON, in the manifest and in every shard. */
static FshStatus check_class_names(const PackKeyed *keyed, FshError *error)
{
    for (size_t i = 0; i < keyed->class_count; i++) {
        json_t *text = json_string(keyed->class_names[i]);
        if (!text)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "%s: the name of its class '%s' is not UTF-8; rename it", keyed->found->root,
                                 keyed->class_names[i]);
        json_decref(text);
    }
    return FSH_OK;
}

/* Returns the display name that the source's manifest has for a class; "": none. */
static const char *source_display_name(const FshManifest *from, const char *class_name)
{
    for (size_t i = 0; from->class_display_names && i < from->class_count; i++) {
        if (strcmp(from->class_names[i], class_name) == 0)
            return from->class_display_names[i];
    }
    return "";
}

/* Keeps the display names of a dataset with their classes, which may be fewer now. */
static FshStatus keep_display_names(PackKeyed *keyed, FshError *error)
{
    const FshManifest *from = fsh_manifest(keyed->found->from.dataset);
    if (!from->class_display_names)
        return FSH_OK;
    keyed->display_names = calloc(keyed->class_count + 1, sizeof *keyed->display_names);
    for (size_t i = 0; i < keyed->class_count && keyed->display_names; i++) {
        keyed->display_names[i] = strdup(source_display_name(from, keyed->class_names[i]));
        if (!keyed->display_names[i])
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    }
    return keyed->display_names
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
}

/* Reads what the values of masks are called: from --class-names, else from the dataset that is packed. */
static FshStatus name_values(PackKeyed *keyed, FshError *error)
{
    const PackFound *found = keyed->found;
    const FshManifest *from = found->from.dataset ? fsh_manifest(found->from.dataset) : NULL;
    if (found->options->class_names)
        return display_names_of_values(found->options->class_names, FSH_MASK_IGNORED, &keyed->mask_names,
                                       &keyed->mask_name_count, error);
    if (!from || !from->mask_names)
        return FSH_OK;
    FshStatus status = fsh_names_copy(&keyed->mask_names, (const char *const *)from->mask_names,
                                      from->mask_name_count, error);
    keyed->mask_name_count = status ? 0 : from->mask_name_count;
    return status;
}

/* Reads what people call the classes: from --class-names, else from the dataset that is packed, else from the
 * file that the environment names, which may know none of them. */
static FshStatus name_classes(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    const char *usual = getenv(DISPLAY_NAMES_VARIABLE);
    size_t named = 0;
    FshStatus status = FSH_OK;
    if (keyed->found->kind == FSH_KIND_MASKS)
        return name_values(keyed, error);
    if (keyed->found->from.dataset && !options->class_names)
        status = keep_display_names(keyed, error);
    if (status || keyed->display_names || !keyed->class_count)
        return status;
    if (options->class_names)
        status = display_names_read(options->class_names, keyed->class_names, keyed->class_count, true,
                                    &keyed->display_names, &named, error);
    else if (usual && *usual)
        status = display_names_read(usual, keyed->class_names, keyed->class_count, false,
                                    &keyed->display_names, &named, error);
    if (status && !options->class_names)
        return fsh_error_prepend(error, "$" DISPLAY_NAMES_VARIABLE);
    if (!status && keyed->display_names && !named) {
        display_names_free(keyed->display_names, keyed->class_count);
        keyed->display_names = NULL;
    }
    for (size_t i = 0;
         i < keyed->class_count && options->class_names && !status && named < keyed->class_count; i++) {
        if (keyed->display_names[i][0])
            continue;
        return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, options->class_names,
                          "has no name for %zu of %zu classes, such as %s", keyed->class_count - named,
                          keyed->class_count, keyed->class_names[i]);
    }
    return status;
}

/* ---- all of it ---- */

FshStatus pack_key(const PackFound *found, PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = found->options;
    *keyed = (PackKeyed){.found = found};
    FshStatus status = (found->from.dataset   ? key_dataset
                        : options->files_from ? key_list
                                              : key_tree)(keyed, error);
    if (!status && keyed->sample_count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no sample", found->root);
    if (!status && options->classes)
        status = key_choose_classes(keyed, error);
    if (!status)
        status = check_class_names(keyed, error);
    if (!status)
        status = name_classes(keyed, error);
    if (!status && options->dedupe)
        status = key_dedupe(keyed, error);
    return status;
}

void pack_keyed_free(PackKeyed *keyed)
{
    for (size_t i = 0; i < keyed->class_count; i++)
        free(keyed->class_names[i]);
    free(keyed->class_names);
    display_names_free(keyed->display_names, keyed->class_count);
    fsh_names_free(keyed->mask_names, keyed->mask_name_count);
    free(keyed->samples);
    free(keyed->items);
    free(keyed->key_storage);
    names_free(&keyed->made_keys);
    *keyed = (PackKeyed){0};
}
