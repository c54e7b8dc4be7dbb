#include "stores/store_put.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/progress.h"
#include "stores/store_files.h"
#include "stores/store_multipart.h"
#include "stores/store_staging.h"

struct StorePut {
    StoreOptions options;
    StorePatience patience;
    StoreSite site; /* of the folder */
    StoreFiles files;
    StoreStaging staging;
    char path[PATH_MAX];
    Progress progress;
};

/* Refuses a file that is there already, or that may be. */
static FshStatus look_for_old(const StorePut *put, FshError *error)
{
    StoreClient client = {0};
    StoreLook look;
    FshError failure = {0};
    const char *name = put->files.items[0].name;
    FshStatus status = store_client_open(&client, &put->site, &put->patience, error);
    if (status)
        return status;
    status = store_look(&client, name, &look, &failure);
    store_client_close(&client);
    if (status == FSH_ERR_NOT_FOUND)
        return FSH_OK;
    return status
               ? fsh_error_set(error, status, "%s; --force writes it without looking for it", failure.message)
               : fsh_error_set(error, FSH_ERR_EXISTS, "%s/%s: exists already; --force replaces it",
                               put->site.url.text, name);
}

FshStatus store_put_open(StorePut **put_ret, const char *address, bool force, bool look_only,
                         const StoreOptions *options, FshError *error)
{
    StorePut *put = calloc(1, sizeof *put);
    char folder[STORE_URL_BYTES];
    *put_ret = NULL;
    if (!put)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    put->options = *options;
    put->staging.lock = (FolderLock)FOLDER_LOCK_NONE;
    progress_start(&put->progress, stderr, "sending", "files", 0, options->quiet);
    put->patience = (StorePatience){.retries = options->retries,
                                    .stall_seconds = options->timeout_seconds,
                                    .progress = options->quiet ? NULL : &put->progress,
                                    .speaker = options->speaker};
    FshStatus status = store_files_split(&put->files, address, folder, error);
    if (!status && put->files.count != 1)
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: names several files, and one is written", address);
    if (!status)
        status = store_site_find(&put->site, folder, STORE_TO_WRITE, error);
    if (!status && put->site.url.kind == STORE_HTTP)
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "%s: files are written to s3:// and gs://, and read from https:// too", address);
    if (!status && !force)
        status = look_for_old(put, error);
    if (!status)
        status = store_staging_open(&put->staging, address, options, look_only, error);
    if (!status)
        status = file_join(put->path, sizeof put->path, put->staging.base, put->files.items[0].name, error);
    if (status)
        store_put_close(&put);
    *put_ret = put;
    return status;
}

const char *store_put_path(const StorePut *put)
{
    return put->path;
}

FshStatus store_put_finish(StorePut *put, FshError *error)
{
    const char *name = put->files.items[0].name;
    char id_path[PATH_MAX], size[32];
    FileMapping mapping = {0};
    const double begin = progress_now_seconds();
    FshStatus status = file_map(put->path, &mapping, error);
    const uint64_t bytes = mapping.length;
    file_unmap(&mapping);
    if (!status)
        status = store_site_renew(&put->site, error);
    if (!status)
        status = file_join(id_path, sizeof id_path, put->staging.base, ".upload", error);
    if (!status)
        status = store_multipart_send(&put->site, &put->patience, put->path, name, id_path, error);
    if (status)
        return status;
    store_staging_clear(&put->staging);
    progress_format_bytes(size, sizeof size, bytes);
    if (!put->options.quiet)
        progress_note(&put->progress, "%s: %s/%s: sent %s in %.1f s", put->options.speaker,
                      put->site.url.text, name, size, progress_now_seconds() - begin);
    return FSH_OK;
}

void store_put_close(StorePut **put_ref)
{
    StorePut *put = *put_ref;
    if (!put)
        return;
    progress_finish(&put->progress);
    store_staging_close(&put->staging);
    store_files_free(&put->files);
    store_site_forget(&put->site);
    free(put);
    *put_ref = NULL;
}
