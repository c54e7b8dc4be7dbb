#include "stores/store_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/pool.h"
#include "formats/names.h"
#include "formats/xxh3.h"

/* A file on its way. */
typedef struct FetchFile {
    const StoreFile *file;
    bool missing;
    _Atomic uint64_t parts_left;
} FetchFile;

/* Bytes of a file that one request asks for. */
typedef struct FetchPart {
    size_t file;
    uint64_t first, bytes; /* bytes 0: the whole file, in one answer */
} FetchPart;

typedef struct Fetching {
    const StoreFetch *fetch;
    FetchFile *files;
    size_t file_count;
    FetchPart *parts;
    size_t part_count;
    StoreClient clients[STORE_CONNECTIONS]; /* one for each thread */
    StoreSite *sites;  /* of each of them, and after these the one with the newest credentials; owned */
    unsigned renewals; /* of those */
    unsigned seen[STORE_CONNECTIONS]; /* how many of the renewals a thread has */
    pthread_mutex_t mutex;            /* of the last one of sites, and of renewals */
    _Atomic bool failed;              /* the others need not go on */
    _Atomic uint64_t done_bytes;
    _Atomic unsigned told; /* how many files with wrong bytes */
    uint64_t missing_bytes;
} Fetching;

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

/* ---- which files ---- */

/* Looks which of the files are missing. */
static FshStatus list_files(Fetching *fetching, const StoreFetch *fetch, FshError *error)
{
    const StoreFiles *files = fetch->files;
    FshStatus status = FSH_OK;
    *fetching = (Fetching){.fetch = fetch, .file_count = files->count};
    fetching->files = calloc(files->count + 1, sizeof *fetching->files);
    if (!fetching->files)
        return out_of_memory(error);
    for (size_t i = 0; i < files->count && !status; i++) {
        const StoreFile *file = &files->items[i];
        char path[PATH_MAX];
        struct stat state;
        status = file_join(path, sizeof path, fetch->folder, file->name, error);
        fetching->files[i].file = file;
        fetching->files[i].missing = !status && (stat(path, &state) != 0 ||
                                                 (!file->optional && (uint64_t)state.st_size != file->bytes));
    }
    return status;
}

FshStatus store_fetch_look(const StoreFetch *fetch, size_t *missing_ret, uint64_t *have_ret,
                           uint64_t *bytes_ret, FshError *error)
{
    Fetching fetching;
    FshStatus status = list_files(&fetching, fetch, error);
    *missing_ret = 0;
    *have_ret = *bytes_ret = 0;
    for (size_t i = 0; i < fetching.file_count && !status; i++) {
        const StoreFile *file = fetching.files[i].file;
        if (file->optional)
            continue;
        *bytes_ret += file->bytes;
        *missing_ret += fetching.files[i].missing;
        *have_ret += fetching.files[i].missing ? 0 : file->bytes;
    }
    free(fetching.files);
    return status;
}

/* Cuts the missing files into parts. */
static FshStatus cut_parts(Fetching *fetching, FshError *error)
{
    size_t count = 0;
    const bool parts = fetching->fetch->files->parts;
    for (int pass = 0; pass < 2; pass++) { /* to count them, then to make them */
        if (pass == 1 && !(fetching->parts = calloc(count ? count : 1, sizeof *fetching->parts)))
            return out_of_memory(error);
        fetching->part_count = count;
        count = 0;
        for (size_t i = 0; i < fetching->file_count; i++) {
            FetchFile *file = &fetching->files[i];
            const uint64_t bytes = file->file->bytes;
            const uint64_t step = parts && bytes ? STORE_PART_BYTES : UINT64_MAX;
            uint64_t first = 0, pieces = 0;
            if (!file->missing)
                continue;
            do {
                const uint64_t length = bytes - first < step ? bytes - first : step;
                if (pass == 1)
                    fetching->parts[count] =
                        (FetchPart){.file = i, .first = first, .bytes = parts ? length : 0};
                count++;
                pieces++;
                first += length;
            } while (first < bytes);
            atomic_store(&file->parts_left, pieces);
            fetching->missing_bytes += pass ? bytes : 0;
        }
    }
    return FSH_OK;
}

/* ---- one file ---- */

static FshStatus temporary_path(const Fetching *fetching, size_t file, char path[PATH_MAX], FshError *error)
{
    char name[48];
    (void)snprintf(name, sizeof name, ".part-%zu", file);
    return file_join(path, PATH_MAX, fetching->fetch->folder, name, error);
}

/* Where the bytes of a part go. */
typedef struct PartSink {
    Fetching *fetching;
    uint64_t first;
    int descriptor;
} PartSink;

static FshStatus write_part(void *context, uint64_t position, const void *bytes, size_t length,
                            FshError *error)
{
    const PartSink *sink = context;
    Fetching *fetching = sink->fetching;
    for (size_t written = 0; written < length;) {
        const ssize_t count = pwrite(sink->descriptor, (const char *)bytes + written, length - written,
                                     (off_t)(sink->first + position + written));
        if (count < 0 && errno != EINTR)
            return fsh_error_system(error, errno, "%s: cannot be written", fetching->fetch->folder);
        written += count > 0 ? (size_t)count : 0;
    }
    const uint64_t done = atomic_fetch_add(&fetching->done_bytes, length) + length;
    if (fetching->fetch->patience.progress) {
        progress_add(fetching->fetch->patience.progress, 0, length, 0);
        progress_set_position(fetching->fetch->patience.progress, done, fetching->missing_bytes);
    }
    return FSH_OK;
}

static FshStatus fetch_part(Fetching *fetching, const FetchPart *part, int thread, bool *found_ret,
                            FshError *error)
{
    const StoreFile *file = fetching->files[part->file].file;
    char path[PATH_MAX];
    bool hidden = false;
    PartSink sink = {.fetching = fetching, .first = part->first, .descriptor = -1};
    const StoreGet get = {.name = file->name,
                          .first = part->first,
                          .bytes = part->bytes,
                          .file_bytes = file->bytes,
                          .etag = file->etag,
                          .optional = file->optional,
                          .hidden_ret = &hidden,
                          .sink = write_part,
                          .context = &sink};
    FshStatus status = temporary_path(fetching, part->file, path, error);
    if (status)
        return status;
    sink.descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (sink.descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot be made", path);
    status = store_get(&fetching->clients[thread], &get, found_ret, error);
    if (close(sink.descriptor) != 0 && !status)
        status = fsh_error_system(error, errno, "%s: cannot be written", path);
    return status;
}

/* Computes the checksum of a file as the manifest has it. */
static FshStatus hash_file(const StoreFile *file, const char *path, FshHash128 *hash_ret, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    if (status)
        return status;
    *hash_ret = fsh_hash_bytes(mapping.bytes, (size_t)(mapping.length - file->unhashed_bytes));
    file_unmap(&mapping);
    return FSH_OK;
}

/* Proves a file that has come. *right_ret: it is what it must be; else *error says what it is. */
static FshStatus prove_file(const StoreFile *file, const char *path, bool *right_ret, FshError *error)
{
    char came[FSH_HASH_TEXT_BYTES], listed[FSH_HASH_TEXT_BYTES];
    FshHash128 hash;
    struct stat state;
    *right_ret = false;
    if (stat(path, &state) != 0)
        return fsh_error_system(error, errno, "%s", path);
    if ((uint64_t)state.st_size != file->bytes) {
        (void)fsh_error_set(error, FSH_ERR_CORRUPT, "%jd bytes came, and %s %" PRIu64,
                            (intmax_t)state.st_size,
                            file->hashed ? "the manifest lists" : "the server said that it has", file->bytes);
        return FSH_OK;
    }
    FshStatus status = file->hashed ? hash_file(file, path, &hash, error) : FSH_OK;
    *right_ret = !status && (!file->hashed || fsh_hash_equal(&hash, &file->hash));
    if (status || *right_ret)
        return status;
    fsh_hash_format(&hash, came);
    fsh_hash_format(&file->hash, listed);
    (void)fsh_error_set(error, FSH_ERR_CORRUPT,
                        "other bytes came than were packed: their XXH3-128 is %s, and the manifest says %s",
                        came, listed);
    return FSH_OK;
}

/* Fetches a whole file once more, after bytes that were wrong. */
static FshStatus fetch_again(Fetching *fetching, size_t index, int thread, const char *path, FshError *error)
{
    const StoreFile *file = fetching->files[index].file;
    const bool parts = fetching->fetch->files->parts;
    (void)atomic_fetch_sub(&fetching->done_bytes, file->bytes);
    FshStatus status = truncate(path, 0) == 0 ? FSH_OK : fsh_error_system(error, errno, "%s", path);
    for (uint64_t first = 0; !status && first < file->bytes;) {
        const uint64_t left = file->bytes - first;
        const uint64_t bytes = parts && left > STORE_PART_BYTES ? STORE_PART_BYTES : left;
        const FetchPart part = {.file = index, .first = first, .bytes = parts ? bytes : 0};
        status = fetch_part(fetching, &part, thread, NULL, error);
        first += bytes;
    }
    return status;
}

/* Gives a file that is proved its name: its bytes are on the disk before that. */
static FshStatus name_file(const Fetching *fetching, const StoreFile *file, const char *from, FshError *error)
{
    char to[PATH_MAX];
    FshStatus status = file_join(to, sizeof to, fetching->fetch->folder, file->name, error);
    if (!status && strchr(file->name, '/')) /* an LMDB's, which is a folder */
        status = file_make_parent_folders(to, error);
    const int descriptor = status ? -1 : open(from, O_RDONLY | O_CLOEXEC);
    if (!status && (descriptor < 0 || fdatasync(descriptor) != 0 || rename(from, to) != 0))
        status = fsh_error_system(error, errno, "%s: cannot be written", to);
    if (descriptor >= 0)
        (void)close(descriptor);
    return status;
}

/* Proves and names a file of which all parts have come. */
static FshStatus finish_file(Fetching *fetching, size_t index, int thread, FshError *error)
{
    enum { TIMES_MAX = 3, TOLD_MAX = 5 };
    const StoreFile *file = fetching->files[index].file;
    Progress *progress = fetching->fetch->patience.progress;
    char path[PATH_MAX];
    bool right = file->optional;
    FshStatus status = temporary_path(fetching, index, path, error);
    for (int times = 1; !status && !right; times++) {
        FshError found = {0};
        status = prove_file(file, path, &right, &found);
        if (status)
            return fsh_error_set(error, status, "%s", found.message);
        if (!right && times == TIMES_MAX) {
            (void)unlink(path);
            return fsh_error_set(error, found.status,
                                 "%s/%s: %s; fetched %d times: the copy there is damaged%s: upload it again",
                                 fetching->fetch->site->url.text, file->name, found.message, times,
                                 file->hashed ? ", or is not of its dataset.json" : "");
        }
        if (right)
            break;
        if (progress && atomic_fetch_add(&fetching->told, 1) < TOLD_MAX)
            progress_note(progress, "%s: %s/%s: %s; fetching it again", fetching->fetch->patience.speaker,
                          fetching->fetch->site->url.text, file->name, found.message);
        status = fetch_again(fetching, index, thread, path, error);
    }
    if (!status)
        status = name_file(fetching, file, path, error);
    if (!status && progress && !file->optional)
        progress_add(progress, 1, 0, 0);
    return status;
}

/* ---- all ---- */

static bool others_failed(void *context)
{
    const Fetching *fetching = context;
    return atomic_load(&fetching->failed);
}

/* Gives the thread the credentials that are good now: a large set takes longer than they last. */
static FshStatus take_site(Fetching *fetching, int thread, FshError *error)
{
    FshStatus status = FSH_OK;
    StoreSite *newest = &fetching->sites[STORE_CONNECTIONS];
    (void)pthread_mutex_lock(&fetching->mutex);
    if (store_site_is_aging(newest)) {
        status = store_site_renew(newest, error);
        fetching->renewals++;
    }
    if (!status && fetching->seen[thread] != fetching->renewals) {
        fetching->sites[thread] = *newest;
        fetching->seen[thread] = fetching->renewals;
    }
    (void)pthread_mutex_unlock(&fetching->mutex);
    return status;
}

static FshStatus work(uint64_t item, int thread, void *context, FshError *error)
{
    Fetching *fetching = context;
    const FetchPart *part = &fetching->parts[item];
    FetchFile *file = &fetching->files[part->file];
    FshStatus status = FSH_OK;
    bool found = true;
    if (!fetching->clients[thread].connection) {
        StorePatience patience = fetching->fetch->patience;
        patience.stopped = others_failed;
        patience.context = fetching;
        status = store_client_open(&fetching->clients[thread], &fetching->sites[thread], &patience, error);
    }
    if (!status)
        status = take_site(fetching, thread, error);
    if (!status)
        status = fetch_part(fetching, part, thread, &found, error);
    if (!status && !found) { /* there is no such file beside the others */
        char path[PATH_MAX];
        status = temporary_path(fetching, part->file, path, error);
        return status || unlink(path) == 0 ? status : fsh_error_system(error, errno, "%s", path);
    }
    if (!status && atomic_fetch_sub(&file->parts_left, 1) == 1)
        status = finish_file(fetching, part->file, thread, error);
    /* Those that stop because another has failed have nothing to tell. */
    if (status == FSH_ERR_INTERRUPTED && atomic_load(&fetching->failed) && !interrupt_requested())
        return FSH_OK;
    if (status)
        atomic_store(&fetching->failed, true);
    return status;
}

FshStatus store_fetch_run(const StoreFetch *fetch, FshError *error)
{
    Fetching fetching;
    FshStatus status = list_files(&fetching, fetch, error);
    if (!status)
        status = cut_parts(&fetching, error);
    if (!status && !(fetching.sites = calloc(STORE_CONNECTIONS + 1, sizeof *fetching.sites)))
        status = out_of_memory(error);
    for (size_t i = 0; fetching.sites && i <= STORE_CONNECTIONS; i++)
        fetching.sites[i] = *fetch->site;
    (void)pthread_mutex_init(&fetching.mutex, NULL);
    const int jobs = fetching.part_count < STORE_CONNECTIONS ? (int)fetching.part_count : STORE_CONNECTIONS;
    if (!status && jobs)
        status = pool_run(jobs, fetching.part_count, work, &fetching, error);
    for (int i = 0; i < STORE_CONNECTIONS; i++)
        store_client_close(&fetching.clients[i]);
    for (size_t i = 0; fetching.sites && i <= STORE_CONNECTIONS; i++)
        store_site_forget(&fetching.sites[i]);
    (void)pthread_mutex_destroy(&fetching.mutex);
    free(fetching.sites);
    free(fetching.files);
    free(fetching.parts);
    return status;
}
