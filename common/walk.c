#include "common/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/interrupt.h"

/* Two kinds of tasks wait on one stack: a folder to list, and a batch of names of a folder to look at (stat).
 * Batches let many threads share one flat folder of a million files, where each stat is a round trip on a
 * network disk. */

/* ---- memory of the paths: bump allocation, freed as a whole ---- */

typedef struct WalkArena {
    struct WalkArena *next;
    size_t used, capacity;
    char bytes[];
} WalkArena;

static void *arena_take(WalkArena **arena, size_t bytes)
{
    enum { CHUNK_BYTES = 1 << 18, ALIGNMENT = 8 };
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!*arena || (*arena)->capacity - (*arena)->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        WalkArena *chunk = malloc(sizeof *chunk + capacity);
        if (!chunk)
            return NULL;
        *chunk = (WalkArena){.next = *arena, .capacity = capacity};
        *arena = chunk;
    }
    void *taken = (*arena)->bytes + (*arena)->used;
    (*arena)->used += bytes;
    return taken;
}

static void arena_free(WalkArena *arena)
{
    while (arena) {
        WalkArena *next = arena->next;
        free(arena);
        arena = next;
    }
}

/* ---- what is walked, and by whom ---- */

typedef struct Folder {
    const struct Folder *parent; /* NULL: the root */
    const char *path;            /* relative to the root; "" for the root */
    dev_t device;
    ino_t inode;
} Folder;

typedef struct Task {
    struct Task *below; /* on the stack */
    const Folder *folder;
    size_t names_bytes; /* 0: the folder is to be listed */
    char names[];       /* NUL after each */
} Task;

enum { BATCH_BYTES = 16384 };

/* What one thread has found; nobody else touches it until all are done. */
typedef struct Worker {
    FileEntry *files; /* sorted at the end */
    size_t count, capacity;
    WalkProblem *problems;
    size_t problem_count, problem_capacity;
    uint64_t total_bytes, hidden_count;
    WalkArena *arena;
} Worker;

typedef struct Walk {
    const char *root;
    Worker *workers;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t changed;
    int next_worker;
    Task *top;
    size_t unfinished; /* tasks on the stack or in a thread's hands */
    FshStatus status;  /* the first failure stops all */
    FshError error;
} Walk;

static void fail(Walk *walk, const FshError *error)
{
    (void)pthread_mutex_lock(&walk->lock);
    if (!walk->status) {
        walk->status = error->status;
        walk->error = *error;
    }
    (void)pthread_cond_broadcast(&walk->changed);
    (void)pthread_mutex_unlock(&walk->lock);
}

static void fail_memory(Walk *walk)
{
    FshError error = {0};
    (void)fsh_error_set(&error, FSH_ERR_MEMORY, "%s: out of memory for the list of its files", walk->root);
    fail(walk, &error);
}

static void push_task(Walk *walk, Task *task)
{
    (void)pthread_mutex_lock(&walk->lock);
    task->below = walk->top;
    walk->top = task;
    walk->unfinished++;
    (void)pthread_cond_signal(&walk->changed);
    (void)pthread_mutex_unlock(&walk->lock);
}

static void push_folder(Walk *walk, const Folder *folder)
{
    Task *task = malloc(sizeof *task);
    if (!task) {
        fail_memory(walk);
        return;
    }
    *task = (Task){.folder = folder};
    push_task(walk, task);
}

/* A task, or NULL when there is nothing left to do. */
static Task *pop_task(Walk *walk)
{
    (void)pthread_mutex_lock(&walk->lock);
    while (!walk->top && walk->unfinished && !walk->status)
        (void)pthread_cond_wait(&walk->changed, &walk->lock);
    Task *task = walk->status ? NULL : walk->top;
    if (task)
        walk->top = task->below;
    (void)pthread_mutex_unlock(&walk->lock);
    return task;
}

static void finish_task(Walk *walk)
{
    (void)pthread_mutex_lock(&walk->lock);
    if (--walk->unfinished == 0)
        (void)pthread_cond_broadcast(&walk->changed);
    (void)pthread_mutex_unlock(&walk->lock);
}

/* Room for one more in a growing array; false: out of memory. */
static bool grow(void **items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = wanted > SIZE_MAX / item_bytes ? NULL : realloc(*items, wanted * item_bytes);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* path lives in an arena, as the reason will. */
static void note_problem(Walk *walk, Worker *worker, const char *path, const char *what, int system_errno)
{
    char text[128], reason[256];
    int length = system_errno ? snprintf(reason, sizeof reason, "%s: %s", what,
                                         strerror_r(system_errno, text, sizeof text))
                              : snprintf(reason, sizeof reason, "%s", what);
    size_t bytes = (size_t)length < sizeof reason ? (size_t)length + 1 : sizeof reason;
    char *kept = arena_take(&worker->arena, bytes);
    if (!kept || !grow((void **)&worker->problems, worker->problem_count, &worker->problem_capacity,
                       sizeof *worker->problems)) {
        fail_memory(walk);
        return;
    }
    memcpy(kept, reason, bytes);
    worker->problems[worker->problem_count++] = (WalkProblem){.path = path, .reason = kept};
}

/* ---- a name ---- */

/* "root/a/b" into a PATH_MAX buffer; false when it does not fit. */
static bool full_path(char *buffer, const char *root, const char *path)
{
    int length = snprintf(buffer, PATH_MAX, "%s%s%s", root, *path ? "/" : "", path);
    return length >= 0 && length < PATH_MAX;
}

static bool is_own_ancestor(const Folder *folder, const struct stat *status)
{
    for (; folder; folder = folder->parent)
        if (folder->device == status->st_dev && folder->inode == status->st_ino)
            return true;
    return false;
}

static void add_folder(Walk *walk, Worker *worker, const Folder *parent, const char *path,
                       const struct stat *status)
{
    if (is_own_ancestor(parent, status)) {
        note_problem(walk, worker, path, "leads back to a folder above it; not entered again", 0);
        return;
    }
    Folder *folder = arena_take(&worker->arena, sizeof *folder);
    if (!folder) {
        fail_memory(walk);
        return;
    }
    *folder = (Folder){.parent = parent, .path = path, .device = status->st_dev, .inode = status->st_ino};
    push_folder(walk, folder);
}

static void add_file(Walk *walk, Worker *worker, const char *path, const struct stat *status)
{
    if (!grow((void **)&worker->files, worker->count, &worker->capacity, sizeof *worker->files)) {
        fail_memory(walk);
        return;
    }
    worker->files[worker->count++] = (FileEntry){
        .path = path,
        .bytes = (uint64_t)status->st_size,
        .modified_ns = file_time_ns(status->st_mtim),
    };
    worker->total_bytes += (uint64_t)status->st_size;
}

static void look_at_name(Walk *walk, Worker *worker, const Folder *folder, const char *name)
{
    size_t folder_length = strlen(folder->path), name_length = strlen(name);
    char *path = arena_take(&worker->arena, folder_length + 1 + name_length + 1);
    if (!path) {
        fail_memory(walk);
        return;
    }
    char *end = path;
    if (folder_length) {
        memcpy(end, folder->path, folder_length);
        end += folder_length;
        *end++ = '/';
    }
    memcpy(end, name, name_length + 1);

    char full[PATH_MAX];
    struct stat status;
    if (!full_path(full, walk->root, path)) {
        note_problem(walk, worker, path, "cannot be read", ENAMETOOLONG);
    } else if (stat(full, &status)) {
        int failure = errno;
        bool dangling = failure == ENOENT && lstat(full, &status) == 0 && S_ISLNK(status.st_mode);
        note_problem(walk, worker, path, dangling ? "link to nothing" : "cannot be read",
                     dangling ? 0 : failure);
    } else if (S_ISDIR(status.st_mode)) {
        add_folder(walk, worker, folder, path, &status);
    } else if (S_ISREG(status.st_mode)) {
        add_file(walk, worker, path, &status);
    } else {
        note_problem(walk, worker, path, "is no regular file", 0);
    }
}

static void look_at_names(Walk *walk, Worker *worker, const Task *task)
{
    for (size_t at = 0; at < task->names_bytes; at += strlen(task->names + at) + 1)
        look_at_name(walk, worker, task->folder, task->names + at);
}

/* ---- a folder ---- */

static void unreadable_folder(Walk *walk, Worker *worker, const Folder *folder, int system_errno)
{
    if (folder->parent) {
        note_problem(walk, worker, folder->path, "cannot read the folder", system_errno);
        return;
    }
    FshError error = {0};
    (void)fsh_error_system(&error, system_errno, "%s: cannot read the folder", walk->root);
    fail(walk, &error);
}

static void list_folder(Walk *walk, Worker *worker, const Folder *folder)
{
    char full[PATH_MAX];
    errno = ENAMETOOLONG; /* opendir sets its own */
    DIR *entries = full_path(full, walk->root, folder->path) ? opendir(full) : NULL;
    if (!entries) {
        unreadable_folder(walk, worker, folder, errno);
        return;
    }
    Task *batch = NULL;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(entries);
        if (!entry)
            break;
        const char *name = entry->d_name;
        if (name[0] == '.') {
            worker->hidden_count += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
            continue;
        }
        size_t bytes = strlen(name) + 1;
        if (batch && BATCH_BYTES - batch->names_bytes < bytes) {
            push_task(walk, batch);
            batch = NULL;
        }
        if (!batch) {
            batch = malloc(sizeof *batch + BATCH_BYTES);
            if (!batch) {
                fail_memory(walk);
                break;
            }
            *batch = (Task){.folder = folder};
        }
        memcpy(batch->names + batch->names_bytes, name, bytes);
        batch->names_bytes += bytes;
    }
    if (errno)
        unreadable_folder(walk, worker, folder, errno);
    if (batch)
        push_task(walk, batch);
    (void)closedir(entries);
}

/* ---- sorting: each thread its own finds, then merges of two ---- */

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const FileEntry *)a)->path, ((const FileEntry *)b)->path);
}

static int compare_problems(const void *a, const void *b)
{
    return strcmp(((const WalkProblem *)a)->path, ((const WalkProblem *)b)->path);
}

/* into[0 .. a_count+b_count-1], from two sorted neighbours. */
static void merge_neighbours(const FileEntry *a, size_t a_count, const FileEntry *b, size_t b_count,
                             FileEntry *into)
{
    while (a_count && b_count) {
        bool first = compare_files(a, b) <= 0;
        *into++ = first ? *a++ : *b++;
        a_count -= first;
        b_count -= !first;
    }
    memcpy(into, a_count ? a : b, (a_count + b_count) * sizeof *into);
}

/* The workers' sorted finds, as one sorted array; NULL: out of memory. */
static FileEntry *merge_workers(Worker *workers, int jobs, size_t count)
{
    size_t slots = count ? count : 1;
    FileEntry *files = malloc(slots * sizeof *files), *other = malloc(slots * sizeof *other);
    size_t *starts =
        malloc(((size_t)jobs + 1) * sizeof *starts); /* run i is starts[i] .. starts[i + 1] - 1 */
    if (!files || !other || !starts) {
        free(files);
        files = NULL;
        goto done;
    }
    starts[0] = 0;
    for (int i = 0; i < jobs; i++) {
        if (workers[i].count)
            memcpy(files + starts[i], workers[i].files, workers[i].count * sizeof *files);
        starts[i + 1] = starts[i] + workers[i].count;
        free(workers[i].files);
        workers[i].files = NULL;
    }
    for (int runs = jobs; runs > 1; runs = (runs + 1) / 2) {
#pragma omp parallel for num_threads(jobs)
        for (int pair = 0; pair < (runs + 1) / 2; pair++) {
            size_t start = starts[2 * pair], middle = starts[2 * pair + 1];
            size_t end = 2 * pair + 2 <= runs ? starts[2 * pair + 2] : middle;
            merge_neighbours(files + start, middle - start, files + middle, end - middle, other + start);
        }
        for (int pair = 0; pair <= runs / 2; pair++)
            starts[pair] = starts[2 * pair];
        starts[(runs + 1) / 2] = count;
        FileEntry *merged = other;
        other = files;
        files = merged;
    }
done:
    free(starts);
    free(other);
    return files;
}

/* ---- the walk ---- */

static void walk_tasks(Walk *walk)
{
    (void)pthread_mutex_lock(&walk->lock);
    Worker *worker = &walk->workers[walk->next_worker++];
    (void)pthread_mutex_unlock(&walk->lock);
    for (Task *task = pop_task(walk); task; task = pop_task(walk)) {
        if (interrupt_requested()) {
            FshError error = {0};
            (void)fsh_error_set(&error, FSH_ERR_INTERRUPTED, "%s: interrupted while its files were listed",
                                walk->root);
            fail(walk, &error);
        } else if (task->names_bytes) {
            look_at_names(walk, worker, task);
        } else {
            list_folder(walk, worker, task->folder);
        }
        free(task);
        finish_task(walk);
    }
    if (worker->count)
        qsort(worker->files, worker->count, sizeof *worker->files, compare_files);
}

/* Moves all that the workers found into the list, on failure too, so that one function frees it. */
static FshStatus gather(Walk *walk, int jobs, FileList *list)
{
    size_t problem_count = 0;
    for (int i = 0; i < jobs; i++) {
        Worker *worker = &walk->workers[i];
        list->count += worker->count;
        list->total_bytes += worker->total_bytes;
        list->hidden_count += worker->hidden_count;
        problem_count += worker->problem_count;
        WalkArena **end = &worker->arena;
        while (*end)
            end = &(*end)->next;
        *end = list->arena;
        list->arena = worker->arena;
    }
    list->files = merge_workers(walk->workers, jobs, (size_t)list->count);
    list->problems = malloc((problem_count ? problem_count : 1) * sizeof *list->problems);
    for (int i = 0; i < jobs; i++) {
        Worker *worker = &walk->workers[i];
        for (size_t j = 0; list->problems && j < worker->problem_count; j++)
            list->problems[list->problem_count++] = worker->problems[j];
        free(worker->problems);
        free(worker->files);
    }
    if (!list->files || !list->problems) {
        fail_memory(walk);
        return walk->status;
    }
    qsort(list->problems, (size_t)list->problem_count, sizeof *list->problems, compare_problems);
    return walk->status;
}

FshStatus walk_files(const char *root, int jobs, FileList *list, FshError *error)
{
    *list = (FileList){0};
    struct stat status;
    if (stat(root, &status))
        return fsh_error_system(error, errno, "%s: cannot read the folder", root);
    if (!S_ISDIR(status.st_mode))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: is no folder", root);
    if (jobs < 1)
        jobs = 1;

    Folder root_folder = {.path = "", .device = status.st_dev, .inode = status.st_ino};
    Walk walk = {.root = root,
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .changed = PTHREAD_COND_INITIALIZER,
                 .workers = calloc((size_t)jobs, sizeof *walk.workers)};
    if (!walk.workers)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for the list of its files", root);
    push_folder(&walk, &root_folder);
#pragma omp parallel num_threads(jobs)
    walk_tasks(&walk);
    while (walk.top) { /* after a failure */
        Task *task = walk.top;
        walk.top = task->below;
        free(task);
    }
    FshStatus result = gather(&walk, jobs, list);
    if (result) {
        if (error)
            *error = walk.error;
        file_list_free(list);
    }
    free(walk.workers);
    (void)pthread_cond_destroy(&walk.changed);
    (void)pthread_mutex_destroy(&walk.lock);
    return result;
}

void file_list_free(FileList *list)
{
    free(list->problems);
    free(list->files);
    arena_free(list->arena);
    *list = (FileList){0};
}
