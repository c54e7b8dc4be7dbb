#include "stores/store_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/folder_lock.h"
#include "common/thread.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "formats/shard.h"
#include "formats/xxh3.h"
#include "stores/store_cache.h"
#include "stores/store_multipart.h"

enum { WAITING_MAX = 2 };

struct StoreUpload {
    StoreSite site;
    StorePatience patience;
    StoreOptions options;
    char base[PATH_MAX], folder[PATH_MAX];
    FshManifest old; /* of the dataset that is replaced */
    Buffer old_text; /* its dataset.json; empty: there is none */
    FolderLock lock; /* of base: one process at a time packs for an address */
    Progress progress;
    _Atomic bool stops;
    /* Of the sender alone: */
    bool old_is_gone;
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

/* Reads header and footer of a packed shard, which stay when its records are gone. */
static FshStatus read_shard(const FileMapping *mapping, ShardView *shard, FshError *error)
{
    bool torn = false;
    FshStatus status = fsh_shard_parse_header(shard, mapping->bytes, mapping->length, error);
    return status ? status : fsh_shard_parse_footer(shard, &torn, error);
}

/* Proves a shard by its footer: what would be sent is what was packed. */
static FshStatus prove_shard(const FileMapping *mapping, const ShardView *shard, FshError *error)
{
    const FshHash128 hash = fsh_hash_bytes(mapping->bytes, (size_t)shard->footer_offset);
    return fsh_hash_equal(&hash, &shard->hash)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT, "its bytes were changed since it was packed");
}

/* Gives the room of the records back to the disk. Where the file system cannot do that, they stay. */
static void drop_records(const char *path, const ShardView *shard)
{
    enum { BLOCK_BYTES = 4096 };
    const uint64_t first = (shard->header_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    const uint64_t end = shard->index_offset / BLOCK_BYTES * BLOCK_BYTES;
    const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor >= 0 && end > first)
        (void)fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                        (off_t)(end - first));
    if (descriptor >= 0)
        (void)close(descriptor);
}

/* Returns whether the file `mark` says that this very shard was sent, and it is still there. */
static bool is_sent(const StoreUpload *upload, const char *mark, const char *identity,
                    const FileMapping *mapping, const char *name)
{
    StoreClient client = {0};
    Buffer text = {0};
    bool sent = file_exists(mark) && !file_read_most(mark, FSH_HASH_TEXT_BYTES, &text, NULL) &&
                text.length == strlen(identity) && memcmp(text.bytes, identity, text.length) == 0;
    buffer_free(&text);
    sent = sent && !store_client_open(&client, &upload->site, &upload->patience, NULL) &&
           store_multipart_is_there(&client, mapping, name);
    store_client_close(&client);
    return sent;
}

/* Takes the manifest of the dataset that is replaced away, before one of its files may change. */
static FshStatus remove_old_manifest(StoreUpload *upload, FshError *error)
{
    StoreClient client = {0};
    if (upload->old_is_gone || !upload->old_text.length)
        return FSH_OK;
    FshStatus status = store_client_open(&client, &upload->site, &upload->patience, error);
    if (!status)
        status = store_send(&client, "DELETE", FSH_MANIFEST_NAME, "", NULL, 0, NULL, error);
    store_client_close(&client);
    if (status == FSH_ERR_NOT_FOUND) /* a try has removed it, and its answer was lost */
        status = FSH_OK;
    upload->old_is_gone = !status;
    return status;
}

/* Writes the path of a file that says something of another, BASE/NAME.suffix. */
static FshStatus side_path(const StoreUpload *upload, const char *name, const char *suffix,
                           char path[PATH_MAX], FshError *error)
{
    char file[NAME_MAX + 1];
    (void)snprintf(file, sizeof file, "%.200s.%s", name, suffix);
    return file_join(path, PATH_MAX, upload->base, file, error);
}

static FshStatus send_shard(StoreUpload *upload, const char *name, FshError *error)
{
    char path[PATH_MAX], mark[PATH_MAX], id_path[PATH_MAX], identity[FSH_HASH_TEXT_BYTES];
    FileMapping mapping = {0};
    ShardView shard = {0};
    FshStatus status = file_join(path, sizeof path, upload->folder, name, error);
    if (!status)
        status = side_path(upload, name, "sent", mark, error);
    if (!status)
        status = side_path(upload, name, "upload", id_path, error);
    if (!status)
        status = file_map(path, &mapping, error);
    if (status)
        return status;
    status = read_shard(&mapping, &shard, error);
    fsh_hash_format(&shard.hash, identity);
    const bool sent = !status && is_sent(upload, mark, identity, &mapping, name);
    if (!status && !sent)
        status = prove_shard(&mapping, &shard, error);
    if (status)
        (void)fsh_error_prepend(error, "%s: remove %s and pack again", path, upload->base);
    if (!status && !sent) {
        status = remove_old_manifest(upload, error);
        if (!status)
            status = store_multipart_send(&upload->site, &upload->patience, path, name, id_path, error);
        if (!status) /* before the records go */
            status = file_write_atomic(mark, identity, strlen(identity), true, true, error);
        upload->sent_files += !status;
        upload->sent_bytes += status ? 0 : mapping.length;
    }
    if (!status)
        drop_records(path, &shard);
    file_unmap(&mapping);
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
        const FshStatus status = send_shard(upload, name, &error);
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

static FshStatus take_old(void *context, uint64_t position, const void *bytes, size_t length, FshError *error)
{
    StoreUpload *upload = context;
    if (position + length > MANIFEST_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s/%s: is there, and is no manifest",
                             upload->site.url.text, FSH_MANIFEST_NAME);
    upload->old_text.length = (size_t)position;
    return buffer_append(&upload->old_text, bytes, length, error);
}

/* Looks whether a dataset is there already. */
static FshStatus find_old(StoreUpload *upload, bool force, FshError *error)
{
    StoreClient client = {0};
    bool hidden = false;
    const StoreGet get = {.name = FSH_MANIFEST_NAME,
                          .optional = true,
                          .hidden_ret = &hidden,
                          .sink = take_old,
                          .context = upload};
    bool found = false;
    FshStatus status = store_client_open(&client, &upload->site, &upload->patience, error);
    if (!status)
        status = store_get(&client, &get, &found, error);
    store_client_close(&client);
    if (!status && hidden && !force)
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s: the server does not tell these keys whether a dataset is there (403 "
            "Forbidden); let them read and list, or use --force, which replaces what is there",
            upload->site.url.text);
    if (!status && found && !force)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: a dataset is there already; --force replaces it",
                             upload->site.url.text);
    if (!status && found) /* one that is damaged lists nothing */
        (void)fsh_manifest_parse(&upload->old, (const char *)upload->old_text.bytes, upload->old_text.length,
                                 NULL);
    return status;
}

/* Names the folders, and makes them. */
static FshStatus make_folders(StoreUpload *upload, FshError *error)
{
    StoreCache cache;
    char name[NAME_MAX + 1];
    const char *address = upload->site.url.text;
    (void)snprintf(name, sizeof name, ".uploads/%016" PRIx64, XXH3_64bits(address, strlen(address)));
    FshStatus status = store_cache_open(&cache, upload->options.cache_dir, 0, error);
    if (!status)
        status = file_join(upload->base, sizeof upload->base, cache.folder, name, error);
    if (!status)
        status = file_join(upload->folder, sizeof upload->folder, upload->base, "shards", error);
    if (!status)
        status = file_make_folders(upload->base, error);
    if (!status)
        status = folder_lock_take(&upload->lock, upload->base, ".lock", "fpack", error);
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

FshStatus store_upload_open(StoreUpload **upload_ret, const char *address, bool force,
                            const StoreOptions *options, FshError *error)
{
    StoreUpload *upload = calloc(1, sizeof *upload);
    *upload_ret = NULL;
    if (!upload)
        return out_of_memory(error);
    upload->options = *options;
    upload->lock = (FolderLock)FOLDER_LOCK_NONE;
    (void)pthread_mutex_init(&upload->mutex, NULL);
    (void)pthread_cond_init(&upload->changed, NULL);
    progress_start(&upload->progress, stderr, "sending", "files", 0, options->quiet);
    upload->patience = (StorePatience){.retries = options->retries,
                                       .stall_seconds = options->timeout_seconds,
                                       .stopped = upload_stops,
                                       .context = upload,
                                       .progress = options->quiet ? NULL : &upload->progress,
                                       .speaker = options->speaker};
    FshStatus status = store_site_find(&upload->site, address, error);
    if (!status && upload->site.url.kind == STORE_HTTP)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: datasets are written to s3:// and gs://, and read from https:// too",
                               upload->site.url.text);
    if (!status)
        status = find_old(upload, force, error);
    if (!status)
        status = make_folders(upload, error);
    if (!status)
        clear_manifest(upload);
    if (!status) {
        const int failed = thread_start(&upload->sender, send_all, upload);
        upload->started = !failed;
        status = failed ? fsh_error_system(error, failed, "no thread can be started") : FSH_OK;
    }
    if (status)
        store_upload_close(&upload);
    *upload_ret = upload;
    return status;
}

static bool lists(const FshManifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->split_count; i++)
        for (size_t j = 0; j < manifest->splits[i].file_count; j++)
            if (strcmp(manifest->splits[i].files[j].name, name) == 0)
                return true;
    return false;
}

/* Removes what the replaced dataset has had and the new one has not. What cannot be removed does no harm. */
static void remove_old_files(StoreUpload *upload, StoreClient *client, const FshManifest *manifest)
{
    for (size_t i = 0; i < upload->old.split_count; i++)
        for (size_t j = 0; j < upload->old.splits[i].file_count; j++) {
            const char *name = upload->old.splits[i].files[j].name;
            if (!lists(manifest, name))
                (void)store_send(client, "DELETE", name, "", NULL, 0, NULL, NULL);
        }
}

FshStatus store_upload_finish(StoreUpload *upload, const FshManifest *manifest, FshError *error)
{
    StoreClient client = {0};
    char path[PATH_MAX], id_path[PATH_MAX], size[32];
    FshStatus status = end_sender(upload, error);
    if (!status)
        status = file_join(path, sizeof path, upload->folder, FSH_MANIFEST_NAME, error);
    if (!status)
        status = side_path(upload, FSH_MANIFEST_NAME, "upload", id_path, error);
    if (!status)
        status =
            store_multipart_send(&upload->site, &upload->patience, path, FSH_MANIFEST_NAME, id_path, error);
    if (status)
        return status;
    if (!store_client_open(&client, &upload->site, &upload->patience, NULL))
        remove_old_files(upload, &client, manifest);
    store_client_close(&client);
    progress_format_bytes(size, sizeof size, upload->sent_bytes);
    if (!upload->options.quiet)
        progress_note(&upload->progress, "%s: %s: sent %" PRIu64 " files, %s, and %s",
                      upload->options.speaker, upload->site.url.text, upload->sent_files, size,
                      FSH_MANIFEST_NAME);
    return FSH_OK;
}

void store_upload_clear(StoreUpload *upload)
{
    store_cache_remove(upload->base);
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
    folder_lock_release(&upload->lock);
    (void)rmdir(upload->base); /* where nothing was packed */
    fsh_manifest_free(&upload->old);
    buffer_free(&upload->old_text);
    store_site_forget(&upload->site);
    (void)pthread_cond_destroy(&upload->changed);
    (void)pthread_mutex_destroy(&upload->mutex);
    free(upload);
    *upload_ref = NULL;
}
