#include "tools/pack/pack_merge.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/source_list.h"
#include "tools/pack/pack_bring.h"

/* ---- bringing files over ---- */

static FshStatus bring_named(const char *from_folder, const char *to_folder, const char *name,
                             FshError *error)
{
    char from[PATH_MAX], to[PATH_MAX];
    FshStatus status = file_join(from, sizeof from, from_folder, name, error);
    if (!status)
        status = file_join(to, sizeof to, to_folder, name, error);
    return status ? status : bring_file(from, to, error);
}

/* Brings an LMDB's folder, or BasicSR's with one for each side. */
static FshStatus bring_folder(const char *from, const char *to, FshError *error)
{
    FshStatus status = file_make_folders(to, error);
    DIR *stream = status ? NULL : opendir(from);
    if (!status && !stream)
        status = fsh_error_system(error, errno, "%s: cannot open the folder", from);
    for (const struct dirent *entry; !status && (entry = readdir(stream));) {
        char from_path[PATH_MAX], to_path[PATH_MAX];
        const char *name = entry->d_name;
        if (name[0] == '.' || strcmp(name, "lock.mdb") == 0) /* a reader's, of that machine */
            continue;
        status = file_join(from_path, sizeof from_path, from, name, error);
        if (!status)
            status = file_join(to_path, sizeof to_path, to, name, error);
        if (!status)
            status = file_is_folder(from_path) ? bring_folder(from_path, to_path, error)
                                               : bring_file(from_path, to_path, error);
    }
    if (stream)
        (void)closedir(stream);
    return status ? status : file_sync_parent_folder(to, error);
}

/* Brings an output, then its progress file: without the latter it is made again, or brought again. */
static FshStatus bring_output(const char *from, const char *to, const char *name, FshError *error)
{
    char from_path[PATH_MAX], to_path[PATH_MAX], hidden[NAME_MAX + sizeof "..json"];
    FshStatus status = file_join(from_path, sizeof from_path, from, name, error);
    if (!status)
        status = file_join(to_path, sizeof to_path, to, name, error);
    if (!status)
        status = file_is_folder(from_path) ? bring_folder(from_path, to_path, error)
                                           : bring_file(from_path, to_path, error);
    const size_t stem = strlen(name) - strlen(".tar");
    char sources[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX];
    if (!status && file_exists_in(from, fsh_sources_name(sources, sizeof sources, name)))
        status = bring_named(from, to, sources, error);
    if (!status && strcmp(name + stem, ".tar") == 0) {
        char index[NAME_MAX + 1];
        (void)snprintf(index, sizeof index, "%.*s.idx", (int)stem, name);
        status = bring_named(from, to, index, error);
    }
    return status ? status : bring_named(from, to, resume_name(hidden, sizeof hidden, name), error);
}

/* ---- the parts ---- */

typedef struct Merge {
    const MergeOptions *options;
    Blueprint blueprint;
    Destination destination;
    int *locks; /* of the parts; -1: none */
    PackResult *result;
} Merge;

/* Takes the blueprint of a folder. FSH_ERR_MISMATCH if it is of another dataset than those of the folders
 * before. */
static FshStatus take_blueprint(Merge *merge, const char *folder, FshError *error)
{
    Blueprint found;
    FshStatus status = blueprint_load(&found, folder, error);
    if (status)
        return status;
    const char *id = merge->blueprint.manifest.id;
    if (!id[0]) {
        merge->blueprint = found;
        return FSH_OK;
    }
    if (strcmp(id, found.manifest.id) != 0)
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: part of another dataset (%s) than those before it (%s): of other input, options or "
            "version of fpack",
            folder, found.manifest.id, id);
    blueprint_free(&found);
    return status;
}

static FshStatus take_blueprints(Merge *merge, FshError *error)
{
    const MergeOptions *options = merge->options;
    char sibling[PATH_MAX];
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < options->part_count && !status; i++)
        status = take_blueprint(merge, options->parts[i], error);
    if (status)
        return status;
    /* In the destination itself there may be parts, or what an earlier merge left, or nothing yet. */
    FshError nothing = {0};
    status = take_blueprint(merge, options->destination, &nothing);
    if (status == FSH_ERR_NOT_FOUND && destination_sibling(options->destination, sibling, NULL) == FSH_OK &&
        file_exists(sibling))
        status = take_blueprint(merge, sibling, &nothing);
    if (status == FSH_ERR_NOT_FOUND && options->part_count)
        return FSH_OK;
    return status ? fsh_error_set(error, status, "%s", nothing.message) : FSH_OK;
}

static FshStatus hold_parts(Merge *merge, FshError *error)
{
    const MergeOptions *options = merge->options;
    FshStatus status = FSH_OK;
    merge->locks = calloc(options->part_count + 1, sizeof *merge->locks);
    if (!merge->locks)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->destination);
    for (size_t i = 0; i < options->part_count; i++)
        merge->locks[i] = -1;
    for (size_t i = 0; i < options->part_count && !status; i++) {
        char real[PATH_MAX];
        if (!realpath(options->parts[i], real))
            status = fsh_error_system(error, errno, "%s", options->parts[i]);
        else if (strcmp(real, merge->destination.folder) != 0)
            status = destination_hold(real, &merge->locks[i], error);
    }
    return status;
}

/* Looks for an output in the destination, which it must get to, and then in the parts. *where_ret: the folder
 * that has it; NULL: none. */
static FshStatus find_output(Merge *merge, const char *folder, size_t index, OutputResult *output,
                             const char **where_ret, FshError *error)
{
    const FshManifest *manifest = &merge->blueprint.manifest;
    FshSplitInfo *split = NULL;
    const FshFileInfo *file = blueprint_output(&merge->blueprint, index, &split);
    const ResumeKey key = {.id = manifest->id,
                           .split = split->name,
                           .name = file->name,
                           .container = manifest->container,
                           .class_count = manifest->class_count};
    bool found = false;
    FshStatus status = resume_load(&key, folder, output, &found, error);
    *where_ret = folder;
    for (size_t i = 0; i < merge->options->part_count && !status && !found; i++) {
        *where_ret = merge->options->parts[i];
        status = resume_load(&key, *where_ret, output, &found, error);
    }
    if (!found)
        *where_ret = NULL;
    return status;
}

/* What a merge does not find. */
typedef struct Missing {
    size_t count;
    const char *first; /* its name */
    bool *outputs;     /* by index */
} Missing;

/* Writes which parts pack what is missing, "3, 5-8", and the first of them to *first_ret.
 * FSH_ERR_MEMORY. */
static FshStatus list_parts(const Merge *merge, const Missing *missing, char *text, size_t size,
                            uint32_t *first_ret, FshError *error)
{
    const uint32_t count = merge->blueprint.part_count;
    uint32_t run_begin = 0;
    size_t used = 0;
    PartScan *scan = NULL;
    FshStatus status = blueprint_scan(&merge->blueprint, &scan, error);
    *first_ret = 0;
    text[0] = '\0';
    for (uint32_t index = 1; index <= count + 1 && !status; index++) {
        bool lacks = false;
        uint64_t begin = 0, end = 0;
        if (index <= count)
            part_scan_range(scan, (Part){index, count}, &begin, &end);
        for (uint64_t i = begin; i < end && !lacks; i++)
            lacks = missing->outputs[i];
        if (lacks && !run_begin)
            run_begin = index;
        if (lacks || !run_begin)
            continue;
        if (used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%u", *first_ret ? ", " : "", run_begin);
            if (used < size && index - 1 > run_begin)
                used += (size_t)snprintf(text + used, size - used, "-%u", index - 1);
        }
        *first_ret = *first_ret ? *first_ret : run_begin;
        run_begin = 0;
    }
    if (used >= size) /* hundreds of runs: what fits is enough to begin with */
        memcpy(text + size - sizeof "...", "...", sizeof "...");
    free(scan);
    return status;
}

static FshStatus refuse_missing(const Merge *merge, const Missing *missing, FshError *error)
{
    char parts[256];
    uint32_t first = 0;
    FshStatus status = list_parts(merge, missing, parts, sizeof parts, &first, error);
    return status
               ? status
               : fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: %zu of %zu files are missing, the first is %s: pack again part %s of %u "
                               "(fpack --part %u/%u ...)%s",
                               merge->options->destination, missing->count, merge->blueprint.output_count,
                               missing->first, parts, merge->blueprint.part_count, first,
                               merge->blueprint.part_count,
                               merge->options->taker ? "" : ", or name the folders that have them");
}

static FshStatus take_outputs(Merge *merge, const char *folder, FshError *error)
{
    Missing missing = {.outputs = calloc(merge->blueprint.output_count + 1, sizeof *missing.outputs)};
    FshStatus status = missing.outputs ? FSH_OK
                                       : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory",
                                                       merge->options->destination);
    for (size_t i = 0; i < merge->blueprint.output_count && !status; i++) {
        OutputResult output = {0};
        const char *where = NULL;
        status = find_output(merge, folder, i, &output, &where, error);
        if (status)
            break;
        if (!where) {
            FshSplitInfo *split = NULL;
            const char *name = blueprint_output(&merge->blueprint, i, &split)->name;
            missing.first = missing.count++ ? missing.first : name;
            missing.outputs[i] = true;
            continue;
        }
        if (where != folder && !merge->options->dry_run)
            status = bring_output(where, folder, output.info.name, error);
        if (!status)
            status = pack_result_add(merge->result, &output, error);
        blueprint_add(&merge->blueprint, i, &output);
        output_result_free(&output);
    }
    if (!status && missing.count)
        status = refuse_missing(merge, &missing, error);
    free(missing.outputs);
    return status;
}

static FshStatus merge_folders(Merge *merge, FshError *error)
{
    const MergeOptions *options = merge->options;
    const DestinationOptions where = {.id = merge->blueprint.manifest.id, .force = options->force};
    if (options->dry_run) {
        FshStatus status = destination_check(options->destination, &where, error);
        if (!status)
            status = take_outputs(merge, options->destination, error);
        merge->result->manifest = merge->blueprint.manifest;
        merge->blueprint.manifest = (FshManifest){0};
        return status;
    }
    FshStatus status = destination_open(&merge->destination, options->destination, &where, error);
    if (!status)
        status = hold_parts(merge, error);
    /* So that a merge that is stopped goes on where not every part is at hand any more. */
    if (!status)
        status = blueprint_save(&merge->blueprint, merge->destination.folder, error);
    if (!status)
        status = take_outputs(merge, merge->destination.folder, error);
    if (!status && merge->result->sample_count == 0)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: all samples of all parts were left out; nothing to merge",
                               options->destination);
    if (!status)
        status = pack_finish(&merge->blueprint, &merge->destination, options->taker, merge->result, error);
    destination_close(&merge->destination);
    return status;
}

FshStatus merge_run(const MergeOptions *options, PackResult *result, FshError *error)
{
    Merge merge = {.options = options, .destination = {.lock = -1, .part_lock = -1}, .result = result};
    *result = (PackResult){0};
    FshStatus status = take_blueprints(&merge, error);
    if (!status) {
        result->output_count = merge.blueprint.output_count;
        status = merge_folders(&merge, error);
    }
    for (size_t i = 0; merge.locks && i < options->part_count; i++) {
        if (merge.locks[i] >= 0)
            (void)close(merge.locks[i]);
    }
    free(merge.locks);
    blueprint_free(&merge.blueprint);
    return status;
}
