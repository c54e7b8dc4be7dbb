/* pack_update_old.c - what a dataset that is to be updated holds: its samples, and what they were made of. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/updated.h"
#include "tools/pack/pack_update_parts.h"

/* Reads the list of sources beside a shard. */
static FshStatus read_sources(Update *update, OldFile *file, SourcesView *view, FshError *error)
{
    char hidden[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX], path[PATH_MAX];
    const char *folder = update->options->destination;
    const FshFileInfo *info = file->info;
    FshStatus status =
        file_join(path, sizeof path, folder, fsh_sources_name(hidden, sizeof hidden, info->name), error);
    if (status)
        return status;
    if (!file_exists(path))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: does not say what its samples were made of (%s is not there), as datasets "
                             "of earlier versions of fpack do not: pack it anew, with --force instead of "
                             "--%s; later updates need no more than what differs",
                             folder, hidden, update->wanted.append ? "append" : "update");
    status = file_read(path, &file->sources, error);
    if (status)
        return status;
    status = fsh_sources_parse(view, file->sources.bytes, file->sources.length, error);
    file->head = view->head;
    file->rows_end = view->end;
    const uint64_t rows = info->sample_count + fsh_rows_count(info->removed, info->removed_count);
    if (!status &&
        (memcmp(&view->head.shard_hash, &info->hash, sizeof info->hash) != 0 ||
         view->head.record_count != rows || view->head.field_count != update->manifest->field_count))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "is not of this shard");
    json_t *object = status ? NULL : json_loadb(view->head.statistics, view->head.statistics_bytes, 0, NULL);
    if (!status && !stats_from_json(object, &file->statistics))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "its statistics are damaged");
    json_decref(object);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

/* Notes the samples of a shard. first_sample: their first one's index in the split. */
static FshStatus note_records(Update *update, size_t index, const FshSplit *split, uint64_t first_sample,
                              FshError *error)
{
    OldFile *file = &update->files[index];
    SourcesView view;
    FshStatus status = read_sources(update, file, &view, error);
    file->first_record = update->record_count;
    for (uint64_t row = 0; row < file->head.record_count && !status; row++) {
        const uint8_t *at = view.at;
        SourceRecord sources;
        status = fsh_sources_next(&view, &sources, error);
        if (status || fsh_rows_hold(file->info->removed, file->info->removed_count, row))
            continue;
        const uint64_t sample = first_sample + file->record_count++;
        update->records[update->record_count++] =
            (OldRecord){.key = sources.key,
                        .key_bytes = (uint32_t)sources.key_bytes,
                        .row = at,
                        .sample = sample,
                        .file = (uint32_t)index,
                        .number = (uint32_t)row,
                        .label = (int32_t)fsh_sample_label(split, sample)};
    }
    return status;
}

FshStatus update_old_sources(const Update *update, const OldRecord *record, SourceRecord *sources,
                             FshError *error)
{
    const OldFile *file = &update->files[record->file];
    /* Its place among the rows does not matter: the one after it is not looked at. */
    SourcesView view = {.head = file->head, .at = record->row, .end = file->rows_end};
    view.head.record_count = UINT64_MAX;
    return fsh_sources_next(&view, sources, error);
}

FshStatus update_open_old(Update *update, FshError *error)
{
    const char *folder = update->options->destination;
    FshStatus status = fsh_open(&update->dataset, folder, error);
    if (status)
        return status;
    const FshManifest *manifest = update->manifest = fsh_manifest(update->dataset);
    uint64_t sample_count = 0;
    if (!manifest->version || !fsh_container_has(manifest->container, FSH_HAS_SOURCES))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: holds %s; fpack updates datasets of shards: pack it anew, with --force",
                             folder, fsh_container_noun(manifest->container, 2));
    if (manifest->updates >= UPDATES_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: was updated %" PRIu32 " times, which is all that names of shards can hold: "
                             "pack it anew, with --force",
                             folder, manifest->updates);
    for (size_t i = 0; i < manifest->split_count; i++) {
        update->file_count += manifest->splits[i].file_count;
        sample_count += manifest->splits[i].sample_count;
    }
    update->files = calloc(update->file_count + 1, sizeof *update->files);
    update->records = calloc(sample_count + 1, sizeof *update->records);
    if (!update->files || !update->records)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    size_t next = 0;
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        const uint32_t index = pack_split_by_name(split->name, strlen(split->name));
        uint64_t first_sample = 0;
        if (index == PACK_SPLITS || strcmp(split->name, fsh_split_name(index)) != 0)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: has a split %s, which is none of fpack's",
                                 folder, split->name);
        for (size_t j = 0; j < split->file_count && !status; j++, next++) {
            update->files[next].info = &split->files[j];
            update->files[next].split = index;
            status = note_records(update, next, fsh_split(update->dataset, split->name), first_sample, error);
            first_sample += split->files[j].sample_count;
        }
    }
    return status;
}

static bool same_root(const SourcesHead *head, const char *root, size_t root_bytes)
{
    return head->root_bytes == root_bytes && memcmp(head->root, root, root_bytes) == 0;
}

FshStatus update_find_ours(Update *update, FshError *error)
{
    char root[PATH_MAX];
    bool any = false, several = false;
    pack_root(update->options, root);
    for (size_t i = 0; i < update->file_count; i++) {
        OldFile *file = &update->files[i];
        const SourcesHead *first = &update->files[0].head;
        several = several || !same_root(&file->head, first->root, first->root_bytes);
        file->ours = !update->wanted.append && same_root(&file->head, root, strlen(root));
        any = any || file->ours;
    }
    memcpy(update->base.root, root, sizeof root);
    update->several = several || update->wanted.append;
    /* A folder that was moved, or is called otherwise on this machine, keeps its name in the dataset. */
    for (size_t i = 0; i < update->file_count && !any && !several && !update->wanted.append; i++) {
        const SourcesHead *head = &update->files[i].head;
        update->files[i].ours = true;
        (void)snprintf(update->base.root, sizeof update->base.root, "%.*s", (int)head->root_bytes,
                       head->root);
    }
    if (any || !several || update->wanted.append)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: holds samples of several folders, %.*s among them, but none of %s: give one of "
                         "them, or --append to add it",
                         update->options->destination, (int)update->files[0].head.root_bytes,
                         update->files[0].head.root, root);
}
