#include "stores/store_upload.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/text.h"
#include "common/thread.h"
#include "formats/manifest.h"
#include "formats/container.h"
#include "formats/lmdb_reader.h"
#include "stores/store_bring.h"
#include "stores/store_cache.h"
#include "stores/store_leftovers.h"
#include "stores/store_multipart.h"
#include "stores/store_packed.h"
#include "stores/store_staging.h"

enum { WAITING_MAX = 2 };

struct StoreUpload {
    StoreSite site;
    StorePatience patience;
    StoreOptions options;
    StoreUploadOptions how;
    char folder[PATH_MAX], parts[PATH_MAX];
    Buffer old_text; /* dataset.json of the dataset that is replaced; empty: there is none */
    StoreStaging staging;
    Progress progress;
    _Atomic bool stops;
    /* Of the sender, and when it has ended of store_upload_finish: */
    bool prepared; /* the place is: what was there is noted, and its manifest gone */
    StoreLeftovers leftovers;
    uint64_t sent_files, sent_bytes;
    /* Of both, under the mutex: */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char *waiting[WAITING_MAX]; /* names, owned; the first is sent next */
    size_t waiting_count;
    bool ends, started;
    FshError failure; /* of the first file that could not be sent */
    pthread_t sender;
};

static bool upload_stops(void *context)
{
    const StoreUpload *upload = context;
    return atomic_load(&upload->stops);
}

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

/* ---- one file ---- */

/* Returns whether the file `mark` says that this very file was sent, and it is still there. */
static bool is_sent(const StoreUpload *upload, const char *mark, const StorePacked *packed, const char *name)
{
    const char *identity = packed->identity;
    StoreClient client = {0};
    Buffer text = {0};
    bool sent = file_exists(mark) && !file_read_most(mark, FSH_HASH_TEXT_BYTES, &text, NULL) &&
                text.length == strlen(identity) && memcmp(text.bytes, identity, text.length) == 0;
    buffer_free(&text);
    sent = sent && !store_client_open(&client, &upload->site, &upload->patience, NULL) &&
           store_multipart_is_there(&client, &packed->mapping, name);
    store_client_close(&client);
    return sent;
}

/* Takes the manifest of the dataset that is replaced away, before one of its files may change; its files are
 * noted before that. */
static FshStatus remove_old_manifest(StoreUpload *upload, StoreClient *client, FshError *error)
{
    FshManifest old = {0};
    StoreFiles files = {0};
    FshStatus status = FSH_OK;
    if (!upload->old_text.length)
        return FSH_OK;
    /* One that is damaged lists nothing. */
    if (!fsh_manifest_parse(&old, (const char *)upload->old_text.bytes, upload->old_text.length, NULL) &&
        !store_files_of_manifest(&files, &old, upload->site.url.text, NULL))
        status = store_leftovers_add_files(&upload->leftovers, &files, error);
    if (!status)
        status = store_leftovers_save(&upload->leftovers, client, error);
    if (!status)
        status = store_send(client, "DELETE", FSH_MANIFEST_NAME, "", NULL, 0, NULL, error);
    if (status == FSH_ERR_NOT_FOUND) /* a try has removed it, and its answer was lost */
        status = FSH_OK;
    store_files_free(&files);
    fsh_manifest_free(&old);
    return status;
}

static FshStatus take_text(void *context, uint64_t position, const void *bytes, size_t length,
                           FshError *error)
{
    Buffer *text = context;
    if (position + length > MANIFEST_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "a file of this name is there that fpack has not written");
    text->length = (size_t)position;
    return buffer_append(text, bytes, length, error);
}

/* Sends the plan of a part, unless another part has. */
static FshStatus agree_on_plan(const StoreUpload *upload, StoreClient *client, FshError *error)
{
    char path[PATH_MAX];
    Buffer here = {0}, there = {0};
    bool found = false, hidden = false;
    const StoreGet get = {.name = upload->how.plan,
                          .optional = true,
                          .hidden_ret = &hidden,
                          .sink = take_text,
                          .context = &there};
    FshStatus status = file_join(path, sizeof path, upload->folder, upload->how.plan, error);
    if (!status)
        status = file_read(path, &here, error);
    if (!status)
        status = store_get(client, &get, &found, error);
    const bool alike =
        here.length && here.length == there.length && memcmp(here.bytes, there.bytes, here.length) == 0;
    if (!status && found && !alike && !upload->how.force)
        status =
            fsh_error_set(error, FSH_ERR_MISMATCH,
                          "%s: parts of another packing are there, of other input, options or version of "
                          "fpack; --force replaces them",
                          upload->site.url.text);
    if (!status && !(found && alike))
        status = store_send(client, "PUT", upload->how.plan, "", here.bytes, here.length, NULL, error);
    buffer_free(&here);
    buffer_free(&there);
    return status;
}

/* Makes the place ready for a file: once for all, and notes its name where no plan tells it. */
static FshStatus prepare(StoreUpload *upload, const char *name, FshError *error)
{
    StoreClient client = {0};
    FshStatus status = store_client_open(&client, &upload->site, &upload->patience, error);
    if (!status)
        status = store_leftovers_load(&upload->leftovers, &client, error);
    if (!status && !upload->prepared)
        status = remove_old_manifest(upload, &client, error);
    if (!status && !upload->prepared && upload->how.part)
        status = agree_on_plan(upload, &client, error);
    upload->prepared = upload->prepared || !status;
    if (!status && !upload->how.part)
        status = store_leftovers_add(&upload->leftovers, name, error);
    if (!status)
        status = store_leftovers_save(&upload->leftovers, &client, error);
    store_client_close(&client);
    return status;
}

/* Writes the path of a file that says something of another, BASE/NAME.suffix; "_" for "/" in the name. */
static FshStatus side_path(const StoreUpload *upload, const char *name, const char *suffix,
                           char path[PATH_MAX], FshError *error)
{
    char file[NAME_MAX + 1];
    (void)snprintf(file, sizeof file, "%.200s.%s", name, suffix);
    for (char *slash = file; (slash = strchr(slash, '/'));)
        *slash = '_';
    return file_join(path, PATH_MAX, upload->staging.base, file, error);
}

static FshStatus send_file(StoreUpload *upload, const char *given, FshError *error)
{
    char path[PATH_MAX], mark[PATH_MAX], id_path[PATH_MAX], name[NAME_MAX + 1];
    StorePacked packed = {0};
    FshStatus status = store_site_renew(&upload->site, error);
    if (!status)
        status = file_join(path, sizeof path, upload->folder, given, error);
    (void)snprintf(name, sizeof name, "%.200s%s", given,
                   !status && file_is_folder(path) ? "/" LMDB_DATA_NAME : "");
    if (!status)
        status = file_join(path, sizeof path, upload->folder, name, error);
    if (!status)
        status = side_path(upload, name, "sent", mark, error);
    if (!status)
        status = side_path(upload, name, "upload", id_path, error);
    if (!status)
        status = store_packed_open(&packed, path, error);
    const bool sent = !status && is_sent(upload, mark, &packed, name);
    if (!status && !sent)
        status = store_packed_prove(&packed, error);
    if (status == FSH_ERR_CORRUPT)
        (void)fsh_error_prepend(error, "remove %s and pack again", upload->staging.base);
    if (!status && !sent)
        status = prepare(upload, name, error);
    if (!status && !sent) {
        status = store_multipart_send(&upload->site, &upload->patience, path, name, id_path, error);
        if (!status) /* before the records go */
            status = file_write_atomic(mark, packed.identity, strlen(packed.identity), true, true, error);
        upload->sent_files += !status;
        upload->sent_bytes += status ? 0 : packed.mapping.length;
    }
    if (!status)
        store_packed_drop(&packed);
    store_packed_close(&packed);
    return status;
}

/* ---- the sender ---- */

static void *send_all(void *context)
{
    StoreUpload *upload = context;
    (void)pthread_mutex_lock(&upload->mutex);
    for (;;) {
        while (!upload->waiting_count && !upload->ends)
            (void)pthread_cond_wait(&upload->changed, &upload->mutex);
        if (!upload->waiting_count || upload->failure.status)
            break;
        char *name = upload->waiting[0];
        upload->waiting_count--;
        memmove(upload->waiting, upload->waiting + 1, upload->waiting_count * sizeof *upload->waiting);
        (void)pthread_cond_broadcast(&upload->changed);
        (void)pthread_mutex_unlock(&upload->mutex);
        FshError error = {0};
        const FshStatus status = send_file(upload, name, &error);
        free(name);
        (void)pthread_mutex_lock(&upload->mutex);
        if (status)
            upload->failure = error;
        (void)pthread_cond_broadcast(&upload->changed);
        if (status)
            break;
    }
    (void)pthread_mutex_unlock(&upload->mutex);
    return NULL;
}

/* Returns the sender's failure, whose mutex is held. */
static FshStatus take_failure(const StoreUpload *upload, FshError *error)
{
    return upload->failure.status
               ? fsh_error_set(error, upload->failure.status, "%s", upload->failure.message)
               : FSH_OK;
}

FshStatus store_upload_file(StoreUpload *upload, const char *name, FshError *error)
{
    char *copy = strdup(name);
    if (!copy)
        return out_of_memory(error);
    (void)pthread_mutex_lock(&upload->mutex);
    while (upload->waiting_count == WAITING_MAX && !upload->failure.status)
        (void)pthread_cond_wait(&upload->changed, &upload->mutex);
    const FshStatus status = take_failure(upload, error);
    if (!status)
        upload->waiting[upload->waiting_count++] = copy;
    else
        free(copy);
    (void)pthread_cond_broadcast(&upload->changed);
    (void)pthread_mutex_unlock(&upload->mutex);
    return status;
}

/* Has the sender end, after what waits, and waits for it. */
static FshStatus end_sender(StoreUpload *upload, FshError *error)
{
    (void)pthread_mutex_lock(&upload->mutex);
    upload->ends = true;
    (void)pthread_cond_broadcast(&upload->changed);
    (void)pthread_mutex_unlock(&upload->mutex);
    if (upload->started)
        (void)pthread_join(upload->sender, NULL);
    upload->started = false;
    return take_failure(upload, error);
}

/* ---- all ---- */

const char *store_upload_folder(const StoreUpload *upload)
{
    return upload->folder;
}

/* Looks whether a dataset is there already. */
static FshStatus find_old(StoreUpload *upload, FshError *error)
{
    StoreClient client = {0};
    bool found = false, hidden = false;
    const bool force = upload->how.force;
    const StoreGet get = {.name = FSH_MANIFEST_NAME,
                          .optional = true,
                          .hidden_ret = &hidden,
                          .sink = take_text,
                          .context = &upload->old_text};
    FshStatus status = store_client_open(&client, &upload->site, &upload->patience, error);
    if (!status)
        status = store_get(&client, &get, &found, error);
    store_client_close(&client);
    if (status == FSH_ERR_EXISTS)
        return fsh_error_prepend(error, "%s/%s", upload->site.url.text, FSH_MANIFEST_NAME);
    if (!status && hidden && !force)
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s: the server does not tell these keys whether a dataset is there (403 "
            "Forbidden); let them read and list, or use --force, which replaces what is there",
            upload->site.url.text);
    if (!status && found && !force)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: a dataset is there already; --force replaces it",
                             upload->site.url.text);
    return status;
}

/* Names the folders, and makes them. */
static FshStatus make_folders(StoreUpload *upload, FshError *error)
{
    char key[2 * STORE_URL_BYTES];
    const bool look_only = upload->how.look_only;
    (void)snprintf(key, sizeof key, "%s%s%s", upload->site.url.text, upload->how.part ? "#" : "",
                   upload->how.part ? upload->how.part : "");
    FshStatus status = store_staging_open(&upload->staging, key, &upload->options, look_only, error);
    if (!status)
        status = file_join(upload->folder, sizeof upload->folder, upload->staging.base, "shards", error);
    if (!status)
        status = file_join(upload->parts, sizeof upload->parts, upload->staging.base, "parts", error);
    /* A manifest there is of a run that was killed before it was sent (clear_manifest). */
    if (!status && look_only && file_exists_in(upload->folder, FSH_MANIFEST_NAME))
        status = file_join(upload->folder, sizeof upload->folder, upload->staging.base, "dry-run", error);
    return status;
}

/* Removes the manifest that a run has left that was killed after it had packed everything: the packing goes
 * on as unfinished. What such a run had sent as a whole is of no use. */
static void clear_manifest(const StoreUpload *upload)
{
    char path[PATH_MAX];
    if (!file_exists_in(upload->folder, FSH_MANIFEST_NAME))
        return;
    if (!file_exists_in(upload->folder, FSH_UNFINISHED_NAME))
        store_cache_remove(upload->folder);
    else if (!file_join(path, sizeof path, upload->folder, FSH_MANIFEST_NAME, NULL))
        (void)unlink(path);
}

static FshStatus start_sender(StoreUpload *upload, FshError *error)
{
    const int failed = thread_start(&upload->sender, send_all, upload);
    upload->started = !failed;
    return failed ? fsh_error_system(error, failed, "no thread can be started") : FSH_OK;
}

bool store_upload_takes(FshContainer container)
{
    const Container *row = fsh_container_find(container);
    return row && !container_has(row, CONTAINER_SIDES);
}

FshStatus store_upload_open(StoreUpload **upload_ret, const char *address, const StoreUploadOptions *how,
                            const StoreOptions *options, FshError *error)
{
    StoreUpload *upload = calloc(1, sizeof *upload);
    *upload_ret = NULL;
    if (!upload)
        return out_of_memory(error);
    upload->options = *options;
    upload->how = *how;
    upload->staging.lock = (FolderLock)FOLDER_LOCK_NONE;
    (void)pthread_mutex_init(&upload->mutex, NULL);
    (void)pthread_cond_init(&upload->changed, NULL);
    progress_start(&upload->progress, stderr, "sending", "files", 0, options->quiet);
    upload->patience = (StorePatience){.retries = options->retries,
                                       .stall_seconds = options->timeout_seconds,
                                       .stopped = upload_stops,
                                       .context = upload,
                                       .progress = options->quiet ? NULL : &upload->progress,
                                       .speaker = options->speaker};
    FshStatus status = store_site_find(&upload->site, address, STORE_TO_WRITE, error);
    if (!status && upload->site.url.kind == STORE_HTTP)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: datasets are written to s3:// and gs://, and read from https:// too",
                               upload->site.url.text);
    if (!status && store_files_are_named(address))
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: is the name of a file; a dataset is several in one folder, and is named "
                               "by that",
                               address);
    if (!status)
        status = find_old(upload, error);
    if (!status)
        status = make_folders(upload, error);
    if (!status && !how->look_only) {
        clear_manifest(upload);
        status = start_sender(upload, error);
    }
    if (status)
        store_upload_close(&upload);
    *upload_ret = upload;
    return status;
}

/* Sends a file of the folder without a mark. */
static FshStatus send_once(StoreUpload *upload, const char *name, FshError *error)
{
    char path[PATH_MAX], id_path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, upload->folder, name, error);
    if (!status)
        status = side_path(upload, name, "upload", id_path, error);
    return status ? status
                  : store_multipart_send(&upload->site, &upload->patience, path, name, id_path, error);
}

/* Sends what stands beside the files: indexes and lists of tars. */
static FshStatus send_besides(StoreUpload *upload, const StoreFiles *files, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < files->count && !status; i++)
        if (files->items[i].optional && file_exists_in(upload->folder, files->items[i].name))
            status = send_once(upload, files->items[i].name, error);
    return status;
}

/* Removes what the replaced dataset has had and stopped runs have sent, but for the files of the new one.
 * What cannot be removed does no harm. */
static void remove_leftovers(StoreUpload *upload, const StoreFiles *files)
{
    StoreClient client = {0};
    FshStatus status = store_client_open(&client, &upload->site, &upload->patience, NULL);
    if (!status)
        status = store_leftovers_load(&upload->leftovers, &client, NULL);
    if (!status)
        store_leftovers_remove(&upload->leftovers, &client, files);
    store_client_close(&client);
}

static void tell_sent(StoreUpload *upload, const char *and)
{
    char size[32];
    progress_format_bytes(size, sizeof size, upload->sent_bytes);
    if (!upload->options.quiet)
        progress_note(&upload->progress, "%s: %s: sent %" PRIu64 " file%s, %s%s", upload->options.speaker,
                      upload->site.url.text, upload->sent_files, text_plural(upload->sent_files), size, and);
}

FshStatus store_upload_finish(StoreUpload *upload, const FshManifest *manifest, FshError *error)
{
    StoreFiles files = {0};
    FshStatus status = end_sender(upload, error);
    if (!status)
        status = store_site_renew(&upload->site, error);
    if (!status)
        status = store_files_of_manifest(&files, manifest, upload->site.url.text, error);
    if (!status)
        status = send_besides(upload, &files, error);
    if (!status)
        status = send_once(upload, FSH_MANIFEST_NAME, error);
    if (!status) {
        remove_leftovers(upload, &files);
        tell_sent(upload, ", and " FSH_MANIFEST_NAME);
    }
    store_files_free(&files);
    return status;
}

FshStatus store_upload_finish_part(StoreUpload *upload, FshError *error)
{
    const FshStatus status = end_sender(upload, error);
    if (!status)
        tell_sent(upload, "");
    return status;
}

enum { BRINGING_CONNECTIONS = 8 };

typedef struct Bringing {
    const StoreUpload *upload;
    char *const *names;
    bool *found;
    StoreClient clients[BRINGING_CONNECTIONS];
} Bringing;

static FshStatus bring_one(uint64_t item, int thread, void *context, FshError *error)
{
    Bringing *bringing = context;
    const StoreUpload *upload = bringing->upload;
    StoreClient *client = &bringing->clients[thread];
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, upload->parts, bringing->names[item], error);
    if (!status && !client->connection)
        status = store_client_open(client, &upload->site, &upload->patience, error);
    return status ? status : store_bring(client, bringing->names[item], path, &bringing->found[item], error);
}

FshStatus store_upload_bring(StoreUpload *upload, char *const *names, size_t count, bool *found,
                             FshError *error)
{
    Bringing bringing = {.upload = upload, .names = names, .found = found};
    StoreClient client = {0};
    const int jobs = count < BRINGING_CONNECTIONS ? (int)count : BRINGING_CONNECTIONS;
    FshStatus status = file_make_folders(upload->parts, error);
    if (!status && jobs)
        status = pool_run(jobs, count, bring_one, &bringing, error);
    for (size_t i = 0; i < BRINGING_CONNECTIONS; i++)
        store_client_close(&bringing.clients[i]);
    if (!status)
        status = store_client_open(&client, &upload->site, &upload->patience, error);
    if (!status)
        status = store_leftovers_load(&upload->leftovers, &client, error);
    for (size_t i = 0; i < count && !status; i++)
        if (found[i] && !text_has_suffix(names[i], ".fshard"))
            status = store_leftovers_add(&upload->leftovers, names[i], error);
    store_client_close(&client);
    return status;
}

const char *store_upload_parts(const StoreUpload *upload)
{
    return upload->parts;
}

void store_upload_clear(StoreUpload *upload)
{
    store_staging_clear(&upload->staging);
}

void store_upload_close(StoreUpload **upload_ref)
{
    StoreUpload *upload = *upload_ref;
    if (!upload)
        return;
    atomic_store(&upload->stops, true);
    (void)end_sender(upload, NULL);
    while (upload->waiting_count)
        free(upload->waiting[--upload->waiting_count]);
    progress_finish(&upload->progress);
    if (upload->failure.status == FSH_ERR_MISMATCH) /* nothing was sent of it, and nothing will be */
        store_staging_clear(&upload->staging);
    store_staging_close(&upload->staging);
    store_leftovers_free(&upload->leftovers);
    buffer_free(&upload->old_text);
    store_site_forget(&upload->site);
    (void)pthread_cond_destroy(&upload->changed);
    (void)pthread_mutex_destroy(&upload->mutex);
    free(upload);
    *upload_ref = NULL;
}
