/* pack_update_classes.c - the classes of an updated dataset: those of the folder, as a packing from nothing
 * would number them, and those of samples of other folders that the dataset holds too. Old shards keep their
 * own numbers; readers go by the names. */
#include <stdlib.h>
#include <string.h>

#include "formats/names.h"
#include "tools/pack/pack_update_parts.h"

/* Returns the index of a name, looked for from *hint on, which then is the place after it; -1: it is not
 * there. Lists are in one order, as a rule. */
static int32_t find_name(char *const *names, size_t count, const char *name, size_t *hint)
{
    for (size_t tried = 0; tried < count; tried++) {
        const size_t at = (*hint + tried) % count;
        if (strcmp(names[at], name) == 0) {
            *hint = at + 1;
            return (int32_t)at;
        }
    }
    return -1;
}

int32_t *update_map_classes(const FshManifest *manifest, const PackKeyed *keyed)
{
    size_t hint = 0;
    int32_t *map = calloc(manifest->class_count + 1, sizeof *map);
    for (size_t i = 0; map && i < manifest->class_count; i++)
        map[i] = find_name(keyed->class_names, keyed->class_count, manifest->class_names[i], &hint);
    return map;
}

static bool is_sorted(char *const *names, size_t count)
{
    bool sorted = true;
    for (size_t i = 1; i < count; i++)
        sorted = sorted && strcmp(names[i - 1], names[i]) < 0;
    return sorted;
}

/* Appends copies of the names that the list has not yet. */
static FshStatus add_names(NameList *list, char *const *names, size_t count, const bool *wanted,
                           FshError *error)
{
    const size_t before = list->count;
    size_t hint = 0;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if ((!wanted || wanted[i]) && find_name(list->names, before, names[i], &hint) < 0)
            status = names_add(list, names[i], error);
    }
    return status;
}

/* Marks the classes of the manifest that must stay: those of samples of other folders; with append, all. */
static void mark_kept(const Update *update, bool *kept)
{
    for (size_t i = 0; i < update->manifest->class_count; i++)
        kept[i] = update->wanted.append;
    for (uint64_t i = 0; i < update->record_count; i++) {
        const OldRecord *record = &update->records[i];
        if (record->label >= 0 && !update->files[record->file].ours)
            kept[record->label] = true;
    }
}

/* Makes the list of classes: the folder's, and those that must stay. In byte order, where both are so; else
 * one must hold the other, and its order counts. */
static FshStatus unite(const Update *update, const PackKeyed *keyed, const bool *kept, NameList *list,
                       FshError *error)
{
    const FshManifest *manifest = update->manifest;
    FshStatus status = add_names(list, keyed->class_names, keyed->class_count, NULL, error);
    if (!status)
        status = add_names(list, manifest->class_names, manifest->class_count, kept, error);
    if (status || list->count == keyed->class_count)
        return status;
    if (is_sorted(keyed->class_names, keyed->class_count) &&
        is_sorted(manifest->class_names, manifest->class_count)) {
        names_sort(list);
        return FSH_OK;
    }
    size_t hint = 0;
    for (size_t i = 0; i < keyed->class_count; i++) {
        if (find_name(manifest->class_names, manifest->class_count, keyed->class_names[i], &hint) < 0)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: the classes are in an order of their own, and it has a class that the "
                                 "dataset has not, %s: how shall they be numbered? Give --classes, or pack "
                                 "anew, with --force",
                                 update->options->source, keyed->class_names[i]);
    }
    names_free(list);
    return add_names(list, manifest->class_names, manifest->class_count, NULL, error);
}

/* Makes what people call the classes: as the folder's options say, else as the manifest says. */
static FshStatus name_classes(const Update *update, const PackKeyed *keyed, const NameList *list,
                              char ***display_ret, FshError *error)
{
    const FshManifest *manifest = update->manifest;
    char *const *theirs = manifest->class_display_names;
    size_t hint = 0, old_hint = 0;
    *display_ret = NULL;
    if (!keyed->display_names && !theirs)
        return FSH_OK;
    NameList display = {0};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < list->count && !status; i++) {
        const int32_t own = find_name(keyed->class_names, keyed->class_count, list->names[i], &hint);
        const int32_t old =
            find_name(manifest->class_names, manifest->class_count, list->names[i], &old_hint);
        const char *name = own >= 0 && keyed->display_names ? keyed->display_names[own] : "";
        if (!name[0] && old >= 0 && theirs)
            name = theirs[old];
        status = names_add(&display, name, error);
    }
    if (status)
        names_free(&display);
    *display_ret = display.names;
    return status;
}

FshStatus update_classes(Update *update, PackPlan *plan, FshError *error)
{
    const FshManifest *manifest = update->manifest;
    PackKeyed *keyed = &plan->keyed;
    if (manifest->mask_names && !keyed->mask_names) { /* those that the folder's options do not say */
        const FshStatus copied = fsh_names_copy(&keyed->mask_names, (const char *const *)manifest->mask_names,
                                                manifest->mask_name_count, error);
        keyed->mask_name_count = copied ? 0 : manifest->mask_name_count;
        return copied;
    }
    if (manifest->kind != FSH_KIND_CLASSES)
        return FSH_OK;
    NameList list = {0};
    char **display = NULL;
    size_t hint = 0;
    bool *kept = calloc(manifest->class_count + 1, sizeof *kept);
    int32_t *labels = calloc(keyed->class_count + 1, sizeof *labels);
    FshStatus status =
        kept && labels ? FSH_OK
                       : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->source);
    if (!status) {
        mark_kept(update, kept);
        status = unite(update, keyed, kept, &list, error);
    }
    if (!status)
        status = name_classes(update, keyed, &list, &display, error);
    if (!status) {
        for (size_t i = 0; i < keyed->class_count; i++)
            labels[i] = find_name(list.names, list.count, keyed->class_names[i], &hint);
        for (uint64_t i = 0; i < plan->split.sample_count; i++) {
            int32_t *label = &plan->split.samples[i].label;
            *label = *label < 0 ? *label : labels[*label];
        }
        fsh_names_free(keyed->class_names, keyed->class_count);
        fsh_names_free(keyed->display_names, keyed->class_count);
        keyed->class_names = list.names;
        keyed->class_count = list.count;
        keyed->display_names = display;
        list = (NameList){0};
    }
    names_free(&list);
    free(kept);
    free(labels);
    return status;
}
