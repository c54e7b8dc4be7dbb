#include "stores/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/manifest.h"
#include "formats/xxh3.h"
#include "stores/store_cache.h"
#include "stores/store_fetch.h"

StoreOptions store_options_default(void)
{
    return (StoreOptions){.retries = 7, .timeout_seconds = 30, .speaker = "fshard"};
}

bool store_is_address(const char *text)
{
    return text && store_url_is(text);
}

FshStatus store_options_check(const StoreOptions *options, bool has_address, FshError *error)
{
    const StoreOptions usual = store_options_default();
    const char *given = options->cache_dir                                  ? "--cache-dir"
                        : options->cache_bytes                              ? "--cache-size"
                        : options->retries != usual.retries                 ? "--fetch-retries"
                        : options->timeout_seconds != usual.timeout_seconds ? "--fetch-timeout"
                                                                            : NULL;
    if (!given || has_address)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "%s: is of datasets on servers (https://, s3://, gs://), and none is named", given);
}

/* One address on its way into the cache. */
typedef struct Opening {
    const StoreOptions *options;
    const char *address;
    StoreSite site; /* of the folder */
    StoreCache cache;
    bool named;      /* files by themselves, without a manifest */
    Buffer identity; /* tells versions apart: the text of the manifest, or what the server says of files */
    StoreFiles files;
    char name[NAME_MAX + 1]; /* of the entry */
    char folder[PATH_MAX];
    bool told_waiting; /* once is enough */
    Progress progress;
} Opening;

/* ---- the manifest ---- */

static FshStatus take_manifest(void *context, uint64_t position, const void *bytes, size_t length,
                               FshError *error)
{
    Opening *opening = context;
    if (position + length > MANIFEST_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s/%s: is too long for a manifest",
                             opening->site.url.text, FSH_MANIFEST_NAME);
    opening->identity.length = (size_t)position;
    return buffer_append(&opening->identity, bytes, length, error);
}

/* Names the entry: the last part of the address, so that people know it again, and a number of address and
 * identity, so that another version is another entry. */
static FshStatus name_entry(Opening *opening, FshError *error)
{
    const char *address = opening->named ? opening->address : opening->site.url.text;
    const char *last = strrchr(address, '/');
    char shown[64];
    size_t length = 0;
    for (const char *c = last ? last + 1 : address; *c && length < sizeof shown - 1; c++)
        shown[length++] = strchr("/.:% {}", *c) ? '_' : *c;
    shown[length] = '\0';
    const uint64_t number = XXH3_64bits_withSeed(opening->identity.bytes, opening->identity.length,
                                                 XXH3_64bits(address, strlen(address)));
    (void)snprintf(opening->name, sizeof opening->name, "%s-%016" PRIx64, *shown ? shown : "dataset", number);
    return file_join(opening->folder, sizeof opening->folder, opening->cache.folder, opening->name, error);
}

static FshStatus get_manifest(Opening *opening, const StorePatience *patience, FshError *error)
{
    StoreClient client = {0};
    FshManifest manifest = {0};
    bool parts = false;
    const StoreGet get = {.name = FSH_MANIFEST_NAME,
                          .bytes = MANIFEST_BYTES_MAX,
                          .parts_ret = &parts,
                          .sink = take_manifest,
                          .context = opening};
    FshStatus status = store_client_open(&client, &opening->site, patience, error);
    if (!status)
        status = store_get(&client, &get, NULL, error);
    store_client_close(&client);
    if (status)
        return status;
    status =
        fsh_manifest_parse(&manifest, (const char *)opening->identity.bytes, opening->identity.length, error);
    if (status)
        return fsh_error_prepend(error, "%s/%s", opening->site.url.text, FSH_MANIFEST_NAME);
    status = store_files_of_manifest(&opening->files, &manifest, opening->site.url.text, error);
    opening->files.parts = parts;
    fsh_manifest_free(&manifest);
    return status;
}

/* ---- files by themselves ---- */

static FshStatus look_at_files(Opening *opening, const StorePatience *patience, FshError *error)
{
    FshStatus status = store_files_look(&opening->files, &opening->site, patience, error);
    for (size_t i = 0; i < opening->files.count && !status; i++) {
        const StoreFile *file = &opening->files.items[i];
        char line[sizeof file->name + sizeof file->etag + 32];
        const int length =
            snprintf(line, sizeof line, "%s %" PRIu64 " %s\n", file->name, file->bytes, file->etag);
        status = buffer_append(&opening->identity, line, (size_t)length, error);
    }
    return status;
}

/* Says that what comes is everybody's, where credentials are named that are not to be had. */
static void tell_anonymous(Opening *opening)
{
    if (opening->site.why_none && !opening->options->quiet)
        progress_note(&opening->progress, "%s: %s: is read as anybody may, without credentials: %s",
                      opening->options->speaker, opening->address, opening->site.why_none_text);
}

/* Finds out where the address leads, which files it stands for, and what is known of them. */
static FshStatus find_files(Opening *opening, const StorePatience *patience, FshError *error)
{
    char folder[STORE_URL_BYTES];
    const StoreOptions *options = opening->options;
    FshStatus status =
        opening->named ? store_files_split(&opening->files, opening->address, folder, error) : FSH_OK;
    if (!status)
        status =
            store_site_find(&opening->site, opening->named ? folder : opening->address, STORE_TO_READ, error);
    if (!status)
        status = store_cache_open(&opening->cache, options->cache_dir, options->cache_bytes, error);
    if (!status)
        status =
            opening->named ? look_at_files(opening, patience, error) : get_manifest(opening, patience, error);
    if (!status)
        tell_anonymous(opening);
    return status ? status : name_entry(opening, error);
}

/* ---- the entry ---- */

static void tell_waiting(void *context)
{
    Opening *opening = context;
    if (!opening->options->quiet && !opening->told_waiting)
        progress_note(&opening->progress, "%s: %s: another process is fetching it; waiting",
                      opening->options->speaker, opening->address);
    opening->told_waiting = true;
}

/* Removes what a process that was stopped has left of files on their way. */
static void remove_parts(const char *path)
{
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, ".part-", 6) == 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        (void)closedir(folder);
}

static void tell_fetched(Opening *opening, size_t files, uint64_t bytes, double seconds, unsigned removed)
{
    char size[32], rate[32], room[96] = "";
    progress_format_bytes(size, sizeof size, bytes);
    progress_format_bytes(rate, sizeof rate, seconds > 0 ? (uint64_t)((double)bytes / seconds) : 0);
    if (removed)
        (void)snprintf(room, sizeof room, "; %u other dataset%s made room", removed, removed > 1 ? "s" : "");
    if (!opening->options->quiet)
        progress_note(&opening->progress, "%s: %s: fetched %zu file%s, %s in %.1f s (%s/s), into %s%s",
                      opening->options->speaker, opening->address, files, text_plural(files), size, seconds,
                      rate, opening->folder, room);
}

/* Fetches what is missing, with the entry's lock held alone. */
static FshStatus fill_entry(Opening *opening, const StoreFetch *fetch, int lock, FshError *error)
{
    size_t missing = 0;
    uint64_t have = 0, bytes = 0;
    unsigned removed = 0;
    const double begin = progress_now_seconds();
    FshStatus status = file_make_folders(opening->folder, error);
    if (status)
        return status;
    remove_parts(opening->folder);
    status = store_fetch_look(fetch, &missing, &have, &bytes, error);
    if (!status)
        status = store_cache_make_room(&opening->cache, opening->name, lock, bytes + opening->identity.length,
                                       have, &removed, error);
    if (status)
        return fsh_error_prepend(error, "%s", opening->address);
    progress_set_total(&opening->progress, missing);
    status = store_fetch_run(fetch, error);
    if (!status && !opening->named) { /* last: what has a manifest is whole */
        char path[PATH_MAX];
        status = file_join(path, sizeof path, opening->folder, FSH_MANIFEST_NAME, error);
        if (!status)
            status =
                file_write_atomic(path, opening->identity.bytes, opening->identity.length, true, true, error);
    }
    progress_finish(&opening->progress);
    if (!status)
        tell_fetched(opening, missing, bytes - have, progress_now_seconds() - begin, removed);
    return status;
}

/* Brings the entry to be whole and holds it: shared where it is whole already; else alone, to fill it, and
 * then again from the beginning, for somebody may have made room meanwhile, or have filled it. */
static FshStatus hold_entry(Opening *opening, const StoreFetch *fetch, int *lock_ret, FshError *error)
{
    for (bool alone = false;; alone = !alone) {
        size_t missing = 0;
        uint64_t have = 0, bytes = 0;
        FshStatus status =
            store_cache_lock(&opening->cache, opening->name, alone, tell_waiting, opening, lock_ret, error);
        if (!status && *lock_ret < 0)
            continue;
        if (!status)
            status = store_fetch_look(fetch, &missing, &have, &bytes, error);
        const bool whole = !missing && (opening->named || file_exists_in(opening->folder, FSH_MANIFEST_NAME));
        if (!status && whole && !alone)
            return FSH_OK;
        if (!status && !whole && alone)
            status = fill_entry(opening, fetch, *lock_ret, error);
        if (*lock_ret >= 0)
            (void)close(*lock_ret);
        *lock_ret = -1;
        if (status)
            return status;
    }
}

FshStatus store_open(StoreFolder *folder, const char *address, const StoreOptions *options, FshError *error)
{
    *folder = (StoreFolder)STORE_FOLDER_NONE;
    Opening *opening = calloc(1, sizeof *opening);
    if (!opening)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", address);
    opening->options = options;
    opening->address = address;
    opening->named = store_files_are_named(address);
    progress_start(&opening->progress, stderr, "fetching", "files", 0, options->quiet);
    const StorePatience patience = {.retries = options->retries,
                                    .stall_seconds = options->timeout_seconds,
                                    .progress = options->quiet ? NULL : &opening->progress,
                                    .speaker = options->speaker};
    FshStatus status = find_files(opening, &patience, error);
    const StoreFetch fetch = {
        .site = &opening->site, .files = &opening->files, .folder = opening->folder, .patience = patience};
    if (!status)
        status = hold_entry(opening, &fetch, &folder->lock, error);
    if (!status && opening->named && opening->files.count == 1)
        status = file_join(folder->path, sizeof folder->path, opening->folder, opening->files.items[0].name,
                           error);
    else if (!status)
        (void)snprintf(folder->path, sizeof folder->path, "%s", opening->folder);
    if (status)
        store_close(folder);
    progress_finish(&opening->progress);
    store_files_free(&opening->files);
    buffer_free(&opening->identity);
    store_site_forget(&opening->site);
    free(opening);
    return status;
}

void store_name_error(FshError *error, const char *path, const char *address)
{
    char message[sizeof error->message];
    const size_t length = strlen(path);
    for (char *at = error->message; length && (at = strstr(at, path)); at += strlen(address)) {
        (void)snprintf(message, sizeof message, "%.*s%s%s", (int)(at - error->message), error->message,
                       address, at + length);
        if ((size_t)(at - error->message) + strlen(address) >= sizeof message)
            return;
        memcpy(error->message, message, sizeof message);
    }
}

void store_close(StoreFolder *folder)
{
    if (folder->lock >= 0)
        (void)close(folder->lock);
    *folder = (StoreFolder)STORE_FOLDER_NONE;
}
