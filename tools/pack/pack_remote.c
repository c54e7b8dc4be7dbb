/* pack_remote.c - fpack from and to servers. */
#include "tools/pack/pack_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/source_list.h"
#include "stores/store_files.h"
#include "tools/job/contents.h"

static StoreOptions store_options(const Settings *settings, const char *program)
{
    StoreOptions store = settings->remote;
    store.speaker = program;
    store.quiet = settings->program.quiet;
    return store;
}

/* ---- packing ---- */

/* Refuses what is not done to and from servers, and options of servers where none is named. */
static FshStatus check_addresses(const Settings *settings, const PackOptions *options, FshError *error)
{
    const bool from = store_is_address(options->source), to = store_is_address(options->destination);
    if ((from || to) && (settings->update || settings->append))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: --update and --append change a dataset in its folder; change the copy of "
                             "this machine, and pack that to the server",
                             from ? options->source : options->destination);
    if (from && to && store_files_meet(options->source, options->destination))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: is where the source lies too, whose files would be replaced; name another "
                             "folder",
                             options->destination);
    if (to && !store_upload_takes(options->container))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: BasicSR's LMDBs are packed into a folder; copy that there",
                             options->destination);
    if (to && options->part.count && !fsh_container_has(options->container, FSH_HAS_HASH))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: parts of shards alone are merged there (--format shards); pack parts of "
                             "anything else into a folder that all machines see",
                             options->destination);
    return store_options_check(&settings->remote, from || to, error);
}

static FshStatus send_file(void *context, const char *name, FshError *error)
{
    return store_upload_file(context, name, error);
}

static FshStatus send_manifest(void *context, const FshManifest *manifest, FshError *error)
{
    return store_upload_finish(context, manifest, error);
}

static FshStatus send_part(void *context, FshError *error)
{
    return store_upload_finish_part(context, error);
}

/* Opens the way to a destination that is on a server. */
static FshStatus open_upload(PackRemote *remote, const StoreOptions *store, const StoreUploadOptions *how,
                             const char *destination, FshError *error)
{
    const FshStatus status = store_upload_open(&remote->upload, destination, how, store, error);
    remote->taker = (PackTaker){
        .file = send_file, .manifest = send_manifest, .part = send_part, .context = remote->upload};
    return status;
}

FshStatus remote_open(PackRemote *remote, const Settings *settings, const char *program, PackOptions *options,
                      FshError *error)
{
    const StoreOptions store = store_options(settings, program);
    const bool dry_run = settings->program.dry_run;
    remote->source = options->source;
    remote->destination = options->destination;
    FshStatus status = check_addresses(settings, options, error);
    if (!status && store_is_address(options->destination)) { /* first, since it may refuse */
        StoreUploadOptions how = {.force = settings->force, .look_only = dry_run};
        (void)snprintf(remote->part, sizeof remote->part, "%u-of-%u", options->part.index,
                       options->part.count);
        how.part = options->part.count ? remote->part : NULL;
        how.plan = CONTENTS_BLUEPRINT_NAME;
        status = open_upload(remote, &store, &how, options->destination, error);
        options->destination = status ? NULL : store_upload_folder(remote->upload);
        options->taker = status || dry_run ? NULL : &remote->taker;
    }
    if (!status && store_is_address(options->source)) {
        status = store_open(&remote->folder, options->source, &store, error);
        options->address = options->source;
        options->source = remote->folder.path;
    }
    return status;
}

/* ---- merging ---- */

/* Writes the name of what is brought of an output. */
typedef const char *(*NameOf)(char *buffer, size_t buffer_bytes, const char *output);

static const char *own_name(char *buffer, size_t buffer_bytes, const char *output)
{
    (void)snprintf(buffer, buffer_bytes, "%s", output);
    return buffer;
}

/* Brings what is there of those outputs that are wanted; the others are not wanted any more. */
static FshStatus bring_of_outputs(PackRemote *remote, const Blueprint *blueprint, NameOf name_of,
                                  bool *wanted, FshError *error)
{
    const size_t most = blueprint->output_count + 1;
    char **names = calloc(most, sizeof *names);
    size_t *outputs = calloc(most, sizeof *outputs), count = 0;
    bool *found = calloc(most, sizeof *found), whole = names && outputs && found;
    for (size_t i = 0; i < blueprint->output_count && whole; i++) {
        char name[NAME_MAX + 64];
        FshSplitInfo *split = NULL;
        if (!wanted[i])
            continue;
        outputs[count] = i;
        names[count] = strdup(name_of(name, sizeof name, blueprint_output(blueprint, i, &split)->name));
        whole = names[count++] != NULL;
    }
    FshStatus status = whole ? store_upload_bring(remote->upload, names, count, found, error)
                             : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", remote->destination);
    for (size_t i = 0; i < count; i++) {
        wanted[outputs[i]] = found[i];
        free(names[i]);
    }
    free(names);
    free(outputs);
    free(found);
    return status;
}

/* Brings the plan, and of each output what says that it is finished, what it was made of, and itself. */
static FshStatus bring_parts(PackRemote *remote, FshError *error)
{
    static const NameOf names[] = {resume_name, fsh_sources_name, own_name};
    Blueprint blueprint = {0};
    bool found = false, *wanted = NULL;
    char *plan = strdup(CONTENTS_BLUEPRINT_NAME);
    FshStatus status = plan ? store_upload_bring(remote->upload, &plan, 1, &found, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", remote->destination);
    if (!status && !found)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: no parts are there; fpack --part I/N SRC %s packs them",
                               remote->destination, remote->destination);
    if (!status)
        status = blueprint_load(&blueprint, store_upload_parts(remote->upload), error);
    if (!status && !(wanted = malloc(blueprint.output_count + 1)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", remote->destination);
    if (!status)
        memset(wanted, true, blueprint.output_count);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
        status = bring_of_outputs(remote, &blueprint, names[i], wanted, error);
    free(wanted);
    free(plan);
    blueprint_free(&blueprint);
    return status;
}

FshStatus remote_open_merge(PackRemote *remote, const Settings *settings, const char *program,
                            const char *destination, MergeOptions *options, FshError *error)
{
    const StoreOptions store = store_options(settings, program);
    const StoreUploadOptions how = {.force = settings->force};
    remote->destination = destination;
    if (options->part_count)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: the parts that were sent there are merged, and no folders (%s)",
                             destination, options->parts[0]);
    FshStatus status = open_upload(remote, &store, &how, destination, error);
    if (!status)
        status = bring_parts(remote, error);
    if (status)
        return status;
    options->destination = store_upload_folder(remote->upload);
    options->taker = &remote->taker;
    return FSH_OK;
}

/* ---- the end ---- */

void remote_close(PackRemote *remote, bool done, FshError *error)
{
    if (remote->folder.path[0])
        store_name_error(error, remote->folder.path, remote->source);
    if (remote->upload) {
        store_name_error(error, store_upload_folder(remote->upload), remote->destination);
        store_name_error(error, store_upload_parts(remote->upload), remote->destination);
        if (done)
            store_upload_clear(remote->upload);
    }
    store_upload_close(&remote->upload);
    store_close(&remote->folder);
}
