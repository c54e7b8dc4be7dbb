#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/walk.h"
#include "common/walk_internal.h"

/* The list of walk_files: the cursor runs on, and all threads stat files a batch at a time, since each stat
 * is a round trip on a network disk. */

/* ---- the list's memory of paths: bump allocation, freed as a whole ---- */

typedef struct WalkArena {
    struct WalkArena *next;
    size_t used, capacity;
    char bytes[];
} WalkArena;

static const char *arena_keep(WalkArena **arena, const char *prefix, const char *text)
{
    enum { CHUNK_BYTES = 1 << 18 };
    const size_t prefix_bytes = strlen(prefix), text_bytes = strlen(text);
    size_t bytes = prefix_bytes + text_bytes + 1;
    if (!*arena || (*arena)->capacity - (*arena)->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        WalkArena *chunk = malloc(sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        *chunk = (WalkArena){.next = *arena, .capacity = capacity};
        *arena = chunk;
    }
    char *kept = (*arena)->bytes + (*arena)->used;
    memcpy(kept, prefix, prefix_bytes);
    memcpy(kept + prefix_bytes, text, text_bytes);
    kept[bytes - 1] = '\0';
    (*arena)->used += bytes;
    return kept;
}

/* ---- the list ---- */

/* With full batches one thread lists a folder while the others stat the files of the one before; the first
 * batches are small, so that all threads share a small tree too. */
enum { BATCH_ENTRIES = 1024, FIRST_ENTRIES = 16, BATCHES_PER_SIZE = 16, BATCH_BYTES = 65536 };

static size_t batch_entries(uint64_t batch)
{
    uint64_t doublings = batch / BATCHES_PER_SIZE;
    return doublings < 6 ? (size_t)FIRST_ENTRIES << doublings : BATCH_ENTRIES;
}

typedef struct BatchEntry {
    const char *path;
    const char *reason; /* the cursor's; NULL: a file */
    bool unread;        /* with reason or what */
    const char *what;   /* what is wrong with the file; NULL: nothing */
    int system_errno;
    bool looked_at; /* size and time are known */
    uint64_t bytes;
    int64_t modified_ns;
} BatchEntry;

/* Neighbours in the order, which one thread stats. */
typedef struct Batch {
    size_t count, texts_bytes;
    BatchEntry entries[BATCH_ENTRIES];
    char texts[BATCH_BYTES]; /* paths and reasons */
} Batch;

typedef struct Listing {
    const char *root;
    const char *prefix; /* of paths in the list: "" or "folder/" */
    WalkCursor *cursor;
    FileList *list;
    size_t files_capacity, problems_capacity;
} Listing;

static const char *batch_keep(Batch *batch, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *kept = memcpy(batch->texts + batch->texts_bytes, text, bytes);
    batch->texts_bytes += bytes;
    return kept;
}

static FshStatus take_batch(uint64_t item, void *slot, bool *end_ret, void *context, FshError *error)
{
    Batch *batch = slot;
    const Listing *listing = context;
    size_t entries = batch_entries(item);
    batch->count = batch->texts_bytes = 0;
    while (batch->count < entries &&
           BATCH_BYTES - batch->texts_bytes >= WALK_FULL_BYTES + WALK_REASON_BYTES) {
        WalkEntry found;
        FshStatus status = walk_next(listing->cursor, &found, error);
        if (status)
            return status;
        if (!found.path)
            break;
        BatchEntry *entry = &batch->entries[batch->count++];
        *entry = (BatchEntry){.path = batch_keep(batch, found.path),
                              .looked_at = found.looked_at,
                              .bytes = found.bytes,
                              .modified_ns = found.modified_ns};
        if (found.reason)
            entry->reason = batch_keep(batch, found.reason);
        entry->unread = found.unread;
    }
    *end_ret = batch->count == 0;
    return FSH_OK;
}

/* A folder that stays open from file to file, so that its path is looked up once. */
typedef struct OpenFolder {
    const char *path; /* the first path_bytes bytes of a file's path */
    size_t path_bytes;
    int descriptor; /* -1: none */
} OpenFolder;

static int stat_in(OpenFolder *folder, const char *root, const char *path, struct stat *found)
{
    const char *slash = strrchr(path, '/');
    size_t path_bytes = slash ? (size_t)(slash - path) : 0;
    if (folder->descriptor < 0 || path_bytes != folder->path_bytes ||
        memcmp(path, folder->path, path_bytes) != 0) {
        char full[WALK_FULL_BYTES];
        /* It fits, since it did in the cursor. */
        (void)snprintf(full, sizeof full, "%s/%.*s", root, (int)path_bytes, path);
        if (folder->descriptor >= 0)
            (void)close(folder->descriptor);
        *folder = (OpenFolder){path, path_bytes, open(full, O_PATH | O_DIRECTORY | O_CLOEXEC)};
        if (folder->descriptor < 0)
            return -1;
    }
    return fstatat(folder->descriptor, slash ? slash + 1 : path, found, 0);
}

static FshStatus look_at_batch(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    (void)item;
    (void)thread;
    (void)error;
    Batch *batch = slot;
    const Listing *listing = context;
    OpenFolder folder = {.descriptor = -1};
    for (size_t i = 0; i < batch->count; i++) {
        BatchEntry *entry = &batch->entries[i];
        if (entry->reason || entry->looked_at)
            continue;
        struct stat found;
        if (stat_in(&folder, listing->root, entry->path, &found)) {
            entry->what = "cannot be read";
            entry->system_errno = errno;
            entry->unread = walk_is_passing(errno);
        } else if (!S_ISREG(found.st_mode)) { /* it has changed since it was listed */
            entry->what = "is no regular file";
        } else {
            entry->bytes = (uint64_t)found.st_size;
            entry->modified_ns = file_time_ns(found.st_mtim);
        }
    }
    if (folder.descriptor >= 0)
        (void)close(folder.descriptor);
    return FSH_OK;
}

static FshStatus list_batch(uint64_t item, void *slot, void *context, FshError *error)
{
    (void)item;
    const Batch *batch = slot;
    Listing *listing = context;
    FileList *list = listing->list;
    for (size_t i = 0; i < batch->count; i++) {
        const BatchEntry *entry = &batch->entries[i];
        const char *path = arena_keep(&list->arena, listing->prefix, entry->path), *reason = NULL;
        bool kept = path != NULL;
        if (entry->reason || entry->what) {
            char text[WALK_REASON_BYTES];
            reason = entry->reason ? entry->reason : walk_reason(text, entry->what, entry->system_errno);
            reason = arena_keep(&list->arena, "", reason);
            kept = kept && reason &&
                   walk_grow((void **)&list->problems, (size_t)list->problem_count,
                             &listing->problems_capacity, sizeof *list->problems);
            if (kept)
                list->problems[list->problem_count++] =
                    (WalkProblem){.path = path, .reason = reason, .unread = entry->unread};
        } else {
            kept = kept && walk_grow((void **)&list->files, (size_t)list->count, &listing->files_capacity,
                                     sizeof *list->files);
            if (kept)
                list->files[list->count++] =
                    (FileEntry){.path = path, .bytes = entry->bytes, .modified_ns = entry->modified_ns};
            list->total_bytes += entry->bytes;
        }
        if (!kept)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for the list of its files",
                                 listing->root);
    }
    return FSH_OK;
}

static int compare_problems(const void *a, const void *b)
{
    return strcmp(((const WalkProblem *)a)->path, ((const WalkProblem *)b)->path);
}

/* Adds the files of one folder to the list. */
static FshStatus list_folder(Listing *listing, int jobs, FshError *error)
{
    FshStatus status = walk_open(&listing->cursor, listing->root, error);
    if (status)
        return status;
    const PoolStream stream = {.take = take_batch,
                               .work = look_at_batch,
                               .deliver = list_batch,
                               .window = 2 * (size_t)(jobs > 1 ? jobs : 1),
                               .slot_bytes = sizeof(Batch),
                               .context = listing};
    status = pool_run_stream(jobs, &stream, error);
    if (status == FSH_ERR_INTERRUPTED)
        (void)fsh_error_set(error, FSH_ERR_INTERRUPTED, "%s: interrupted while its files were listed",
                            listing->root);
    listing->list->hidden_count += walk_hidden_count(listing->cursor);
    walk_close(&listing->cursor);
    return status;
}

static FshStatus finish(FileList *list, FshStatus status)
{
    if (status) {
        file_list_free(list);
        return status;
    }
    /* They come in the order of the walk, where a folder is "name/". */
    if (list->problem_count)
        qsort(list->problems, (size_t)list->problem_count, sizeof *list->problems, compare_problems);
    return FSH_OK;
}

FshStatus walk_files(const char *root, int jobs, FileList *list, FshError *error)
{
    *list = (FileList){0};
    Listing listing = {.root = root, .prefix = "", .list = list};
    return finish(list, list_folder(&listing, jobs, error));
}

FshStatus walk_folders(const char *root, const char *const *folders, size_t folder_count, int jobs,
                       FileList *list, FshError *error)
{
    *list = (FileList){0};
    Listing listing = {.list = list};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < folder_count && !status; i++) {
        char path[PATH_MAX], prefix[PATH_MAX];
        status = file_join(path, sizeof path, root, folders[i], error);
        if (!status)
            status = file_join(prefix, sizeof prefix, folders[i], "", error);
        listing.root = path;
        listing.prefix = prefix;
        if (!status)
            status = list_folder(&listing, jobs, error);
    }
    return finish(list, status);
}

void file_list_free(FileList *list)
{
    free(list->problems);
    free(list->files);
    while (list->arena) {
        WalkArena *next = list->arena->next;
        free(list->arena);
        list->arena = next;
    }
    *list = (FileList){0};
}
