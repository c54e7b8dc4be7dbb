/* pack_update_write.c - packs what differs, puts it beside the old shards, changes dataset.json over, and
 * removes what nobody needs any more. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/text.h"
#include "formats/manifest_lock.h"
#include "formats/updated.h"
#include "tools/job/contents.h"
#include "tools/pack/pack_blueprint.h"
#include "tools/pack/pack_bring.h"
#include "tools/pack/pack_update_parts.h"

/* ---- what nobody needs ---- */

/* Adds the names of a manifest's files. */
static FshStatus add_names(NameList *list, const FshManifest *manifest, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < manifest->split_count; i++)
        for (size_t j = 0; j < manifest->splits[i].file_count && !status; j++)
            status = names_add(list, manifest->splits[i].files[j].name, error);
    return status;
}

static FshStatus list_folder(const char *folder, NameList *names, FshError *error)
{
    DIR *stream = NULL;
    FshStatus status = folder_open(folder, &stream, error);
    for (const struct dirent *entry = folder_next(stream, folder, &status, error); entry;
         entry = folder_next(stream, folder, &status, error))
        status = status ? status : names_add(names, entry->d_name, error);
    folder_close(stream);
    return status;
}

static FshStatus remove_name(const char *folder, const char *name, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, folder, name, error);
    if (!status && unlink(path) && errno != ENOENT)
        status = fsh_error_system(error, errno, "%s: cannot remove", path);
    return status;
}

/* Removes the manifests that updates have replaced and nobody reads by; adds the files of the others to
 * `needed`. */
static FshStatus remove_old_manifests(const char *folder, const NameList *names, NameList *needed,
                                      FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < names->count && !status; i++) {
        char path[PATH_MAX];
        FshManifest manifest;
        if (!manifest_is_old_name(names->names[i]))
            continue;
        status = file_join(path, sizeof path, folder, names->names[i], error);
        if (!status && manifest_is_read(path) && fsh_manifest_load(&manifest, path, NULL) == FSH_OK) {
            status = add_names(needed, &manifest, error);
            fsh_manifest_free(&manifest);
        } else if (!status) {
            status = remove_name(folder, names->names[i], error);
        }
    }
    return status;
}

/* Returns the shard that a name in the folder is, or whose sources it is, in shard; NULL: neither. */
static const char *shard_of(const char *name, char shard[NAME_MAX + 1])
{
    const bool hidden = name[0] == '.' && text_has_suffix(name, ".fshard" FSH_SOURCES_SUFFIX);
    (void)snprintf(shard, NAME_MAX + 1, "%s", name + hidden);
    if (hidden)
        shard[strlen(shard) - strlen(FSH_SOURCES_SUFFIX)] = '\0';
    return text_has_suffix(shard, ".fshard") && contents_is_output(shard) ? shard : NULL;
}

/* Removes shards that neither the dataset nor one of its readers needs, and what else earlier updates have
 * left. *waiting_ret: how many stay for readers alone. */
static FshStatus clean(const char *folder, const FshManifest *manifest, size_t *waiting_ret, FshError *error)
{
    NameList names = {0}, own = {0}, needed = {0};
    FshStatus status = list_folder(folder, &names, error);
    if (!status)
        status = add_names(&own, manifest, error);
    if (!status)
        status = remove_old_manifests(folder, &names, &needed, error);
    names_sort(&own);
    names_sort(&needed);
    *waiting_ret = 0;
    for (size_t i = 0; i < names.count && !status; i++) {
        char shard[NAME_MAX + 1];
        if (!shard_of(names.names[i], shard) || names_find(&own, shard, NULL))
            continue;
        if (names_find(&needed, shard, NULL))
            *waiting_ret += names.names[i][0] != '.';
        else
            status = remove_name(folder, names.names[i], error);
    }
    names_free(&names);
    names_free(&own);
    names_free(&needed);
    return status;
}

/* ---- changing over ---- */

/* Links a new shard and its sources into the dataset under the name that they have there. */
static FshStatus bring_shard(const Update *update, const char *from_name, const char *to_name,
                             FshError *error)
{
    const char *folder = update->options->destination;
    char from[PATH_MAX], to[PATH_MAX], hidden[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX];
    FshStatus status = file_join(from, sizeof from, update->base.folder,
                                 fsh_sources_name(hidden, sizeof hidden, from_name), error);
    if (!status)
        status = file_join(to, sizeof to, folder, fsh_sources_name(hidden, sizeof hidden, to_name), error);
    if (!status)
        status = bring_file(from, to, error);
    if (!status)
        status = file_join(from, sizeof from, update->base.folder, from_name, error);
    if (!status)
        status = file_join(to, sizeof to, folder, to_name, error);
    return status ? status : bring_file(from, to, error);
}

static FshStatus bring_shards(Update *update, const FshManifest *fresh, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < fresh->split_count; i++) {
        const FshSplitInfo *split = &fresh->splits[i];
        for (size_t j = 0; j < split->file_count && !status; j++) {
            char name[NAME_MAX + 1];
            (void)fsh_updated_name(name, sizeof name, split->name, update->manifest->updates + 1, (uint32_t)j,
                                   (uint32_t)split->file_count);
            status = bring_shard(update, split->files[j].name, name, error);
        }
    }
    return status;
}

/* Gives the manifest that is there a second name, under which its readers hold it. */
static FshStatus keep_old_manifest(const Update *update, FshError *error)
{
    const char *folder = update->options->destination;
    char name[64], from[PATH_MAX], to[PATH_MAX];
    manifest_old_name(name, sizeof name, update->manifest->updates + 1);
    FshStatus status = file_join(from, sizeof from, folder, FSH_MANIFEST_NAME, error);
    if (!status)
        status = file_join(to, sizeof to, folder, name, error);
    if (!status && unlink(to) && errno != ENOENT)
        status = fsh_error_system(error, errno, "%s: cannot remove", to);
    /* A file system without links: then nobody knows who reads, and old shards go at once. */
    if (!status && link(from, to) && errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        status = fsh_error_system(error, errno, "%s: cannot be linked", from);
    return status ? status : file_sync_parent_folder(to, error);
}

/* Puts the new dataset in the place of the old one. */
static FshStatus change_over(Update *update, const FshManifest *fresh, const FshManifest *manifest,
                             FshError *error)
{
    FshStatus status = bring_shards(update, fresh, error);
    if (!status)
        status = keep_old_manifest(update, error);
    return status ? status : fsh_manifest_save(manifest, update->options->destination, true, error);
}

/* ---- the run ---- */

/* Takes the shards out of a manifest of which every sample was left out. */
static void drop_empty(FshManifest *fresh)
{
    for (size_t i = 0; i < fresh->split_count; i++) {
        FshSplitInfo *split = &fresh->splits[i];
        size_t kept = 0;
        for (size_t j = 0; j < split->file_count; j++) {
            const FshFileInfo info = split->files[j];
            if (info.sample_count)
                split->files[kept++] = info;
            else
                free(info.name);
        }
        split->file_count = kept;
    }
}

/* Packs what differs: *fresh_ret gets the manifest of the new shards. */
static FshStatus pack_fresh(Update *update, const PackPlan *plan, PackLeftOut left_out, void *context,
                            PackResult *result, FshManifest *fresh_ret, FshError *error)
{
    Blueprint blueprint = {0};
    *result = (PackResult){0};
    FshStatus status = FSH_OK;
    if (plan->split.sample_count && !update->wanted.dry_run) {
        status = pack_run(plan, left_out, context, result, error);
        *fresh_ret = result->manifest;
        drop_empty(fresh_ret);
    } else {
        status = blueprint_make(&blueprint, plan, error);
        *fresh_ret = blueprint.manifest;
        blueprint.manifest = (FshManifest){0};
        blueprint_free(&blueprint);
    }
    result->manifest = (FshManifest){0};
    for (size_t i = 0; i < fresh_ret->split_count; i++)
        update->counts.new_files += fresh_ret->splits[i].file_count;
    return status;
}

/* Fills what the result says of the dataset as a whole. */
static void describe(PackResult *result)
{
    const FshManifest *manifest = &result->manifest;
    result->sample_count = result->written_bytes = 0;
    result->output_count = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        result->sample_count += manifest->splits[i].sample_count;
        result->output_count += manifest->splits[i].file_count;
        for (size_t j = 0; j < manifest->splits[i].file_count; j++)
            result->written_bytes += manifest->splits[i].files[j].bytes;
    }
}

/* Judges once more, now that the samples are read: all that seemed new may be damaged, as it was before, and
 * then the dataset stays the same. */
static void judge_left_out(Update *update, const PackPlan *plan, const PackResult *result)
{
    UpdateCounts *counts = &update->counts;
    if (plan->split.sample_count && result->left_out.count == plan->split.sample_count &&
        counts->added == plan->split.sample_count && update_is_same(update, plan)) {
        counts->added = 0;
        counts->is_same = true;
    }
}

/* Refuses an update that would leave no sample, and removes what it has made. */
static FshStatus refuse_empty(const Update *update, FshError *error)
{
    const FshStatus status = contents_remove_update(update->base.folder, error);
    return status
               ? status
               : fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: none of its samples (%" PRIu64 ") can be packed; %s is as it was",
                               update->options->source, update->planned_count, update->options->destination);
}

/* Counts in a dry run's manifest the samples that would be packed. */
static void count_planned(const PackPlan *plan, FshManifest *manifest)
{
    for (uint64_t i = 0; i < plan->split.sample_count; i++) {
        const PackSample *sample = &plan->split.samples[i];
        for (size_t s = 0; s < manifest->split_count; s++) {
            FshSplitInfo *split = &manifest->splits[s];
            if (strcmp(split->name, fsh_split_name(sample->split)) != 0)
                continue;
            split->sample_count++;
            if (sample->label >= 0 && split->class_counts)
                split->class_counts[sample->label]++;
        }
    }
}

FshStatus update_run(Update *update, const PackPlan *plan, PackLeftOut left_out, void *context,
                     PackResult *result, FshError *error)
{
    const char *folder = update->options->destination;
    FshManifest fresh = {0};
    UpdateCounts *counts = &update->counts;
    FshStatus status = pack_fresh(update, plan, left_out, context, result, &fresh, error);
    if (!status)
        judge_left_out(update, plan, result);
    if (!status)
        status = update_manifest(update, plan, &fresh, plan->notes.left_out.count + result->left_out.count,
                                 &result->manifest, error);
    if (!status && update->wanted.dry_run)
        count_planned(plan, &result->manifest);
    if (!status && !update->wanted.dry_run && !counts->is_same && result->manifest.split_count == 0)
        status = refuse_empty(update, error);
    /* What is the same is left as it is, to the last byte. */
    if (!status && !counts->is_same && !update->wanted.dry_run)
        status = change_over(update, &fresh, &result->manifest, error);
    if (!status && counts->is_same) {
        fsh_manifest_free(&result->manifest);
        status = fsh_manifest_load(&result->manifest, folder, error);
    }
    /* From here on the dataset is the new one. */
    if (!status && !update->wanted.dry_run) {
        fsh_close(&update->dataset); /* lets go of the old manifest: nobody but others reads by it now */
        status = clean(folder, &result->manifest, &counts->waiting_files, error);
        if (!status)
            status = contents_remove_update(update->base.folder, error);
    }
    if (!status)
        status = fsh_manifest_identify(&result->manifest, error);
    describe(result);
    fsh_manifest_free(&fresh);
    return status;
}
