#include "trainer/backend/cuda/device/cudnn_cache.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/interrupt.h"
#include "common/pool.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/backend/cuda/device/device.h"

/* The first word of each file; its number changes with the file's form. */
#define FILE_MAGIC "fshard-cudnn-plan-2"
enum { KEY_MAX = 2048, FILE_BYTES_MAX = 4 << 20, THREADS_MAX = 16, PLANS_OF_A_THREAD = 4 };

typedef enum Stage {
    WANTED, /* described */
    BUILT,  /* candidates are there */
    CHOSEN, /* one plan is, and stays */
    FAILED, /* see failure */
} Stage;

struct CudnnCache {
    char *machine, *folder; /* owned; folder may be NULL */
    struct Entry {
        char *key;
        CudnnPlan *plan; /* both owned */
        CudnnPolicy policy;
        Stage stage;
        FshError failure;
        bool given;     /* asked for before */
        uint64_t users; /* given and not released */
        uint64_t round; /* when it was asked for last */
    } * entries;
    size_t entry_count, entry_capacity, kept;
    uint64_t round; /* cudnn_cache_build so far */
    int threads;
    cudaStream_t stream; /* of the handles below; NULL: no handles, all build with the device of their plan */
    /* by thread; handles are made when they are needed, and owned */
    CudnnDevice devices[THREADS_MAX];
    CudnnCacheCounts counts;
    FshError warning; /* status 0: none */
    int lock;         /* a descriptor, while this process times plans of the folder; -1: it does not */
};

FshStatus cudnn_cache_new(CudnnCache **cache, const char *machine, const char *folder, size_t kept,
                          FshError *error)
{
    *cache = calloc(1, sizeof **cache);
    if (*cache) {
        (*cache)->lock = -1;
        (*cache)->kept = kept;
        (*cache)->machine = text_copy(machine, strlen(machine));
        (*cache)->folder = folder ? text_copy(folder, strlen(folder)) : NULL;
    }
    if (!*cache || !(*cache)->machine || (folder && !(*cache)->folder)) {
        cudnn_cache_free(cache);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cache of cuDNN plans");
    }
    return FSH_OK;
}

void cudnn_cache_free(CudnnCache **cache)
{
    if (!*cache)
        return;
    cudnn_cache_settle(*cache);
    for (size_t i = 0; i < (*cache)->entry_count; i++) {
        cudnn_plan_free(&(*cache)->entries[i].plan);
        free((*cache)->entries[i].key);
    }
    for (int i = 0; i < THREADS_MAX; i++)
        if ((*cache)->devices[i].handle)
            (void)cudnnDestroy((*cache)->devices[i].handle);
    free((*cache)->entries);
    free((*cache)->machine);
    free((*cache)->folder);
    free(*cache);
    *cache = NULL;
}

CudnnCacheCounts cudnn_cache_counts(const CudnnCache *cache)
{
    return cache->counts;
}

const char *cudnn_cache_warning(const CudnnCache *cache)
{
    return cache->warning.status ? cache->warning.message : NULL;
}

/* ---- on disk ---- */

static FshStatus file_of(const CudnnCache *cache, const char *key, char path[PATH_MAX], FshError *error)
{
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
    char name[64];
    (void)snprintf(name, sizeof name, "%016" PRIx64 "%016" PRIx64 ".cudnn", (uint64_t)hash.high64,
                   (uint64_t)hash.low64);
    return file_join(path, PATH_MAX, cache->folder, name, error);
}

/* What a file tells beside the plan. engine: as cudnn_plan_engine. */
typedef struct Known {
    double milliseconds;
    int64_t engine;
} Known;

/* Writes the lines before the JSON: magic, key, milliseconds and engine, hash of the JSON. Returns their
 * length, as snprintf. */
static int header_text(char *header, size_t bytes, const char *key, const Known *known, const uint8_t *json,
                       size_t json_bytes)
{
    return snprintf(header, bytes, FILE_MAGIC "\n%s\n%.6f %" PRId64 "\n%016" PRIx64 "\n", key,
                    known->milliseconds, known->engine, (uint64_t)XXH3_64bits(json, json_bytes));
}

/* Returns where the line ends that begins at from; NULL: nowhere. */
static const uint8_t *line_end(const uint8_t *from, const uint8_t *end)
{
    return from < end ? memchr(from, '\n', (size_t)(end - from)) : NULL;
}

/* Finds in a file what is known of a plan, *known_ret, and the plan's JSON, *json_ret. Returns false unless
 * the file is whole and of this key: cuDNN may crash on JSON that it did not write. */
static bool parse_file(const Buffer *file, const char *key, Known *known_ret, const uint8_t **json_ret)
{
    const uint8_t *end = file->bytes + file->length, *line = file->bytes, *starts[4];
    for (int i = 0; i < 4; i++) {
        starts[i] = line;
        line = line_end(line, end);
        if (!line)
            return false;
        line++;
    }
    char numbers[64] = "", *engine = numbers, header[KEY_MAX + 128];
    const size_t number_bytes = (size_t)(starts[3] - starts[2]) - 1;
    if (number_bytes >= sizeof numbers)
        return false;
    memcpy(numbers, starts[2], number_bytes);
    Known known = {.milliseconds = strtod(numbers, &engine)};
    known.engine = strtoll(engine, NULL, 10);
    /* written again from what was read, it must be the same */
    int length = header_text(header, sizeof header, key, &known, line, (size_t)(end - line));
    if (length < 0 || (size_t)length != (size_t)(line - file->bytes) ||
        memcmp(header, file->bytes, (size_t)length) != 0)
        return false;
    *known_ret = known;
    *json_ret = line;
    return true;
}

/* Loads a plan and what is known of it from its file. plan: NULL for a time alone. Returns false where there
 * is no sound file. */
static bool load(const CudnnCache *cache, const char *key, CudnnPlan *plan, Known *known)
{
    char path[PATH_MAX];
    Buffer file = {0};
    FshError ignored = {0};
    const uint8_t *json = NULL;
    bool loaded =
        cache->folder && !file_of(cache, key, path, &ignored) &&
        !file_read_most(path, FILE_BYTES_MAX, &file, &ignored) && parse_file(&file, key, known, &json) &&
        (!plan || !cudnn_plan_load(plan, json, file.length - (size_t)(json - file.bytes), &ignored));
    buffer_free(&file);
    return loaded;
}

static FshStatus write_file(const CudnnCache *cache, const char *key, const CudnnPlan *plan,
                            double milliseconds, FshError *error)
{
    char path[PATH_MAX], header[KEY_MAX + 128];
    Buffer json = {0}, file = {0};
    FshStatus status = file_of(cache, key, path, error);
    if (!status && plan)
        status = cudnn_plan_json(plan, &json, error);
    if (!status) {
        const Known known = {milliseconds, plan ? cudnn_plan_engine(plan) : -1};
        int length = header_text(header, sizeof header, key, &known, json.bytes, json.length);
        status = buffer_append(&file, header, (size_t)length, error);
    }
    if (!status && json.length > 0)
        status = buffer_append(&file, json.bytes, json.length, error);
    if (!status)
        status = file_make_folders(cache->folder, error);
    if (!status)
        status = file_write_atomic(path, file.bytes, file.length, true, false, error);
    buffer_free(&json);
    buffer_free(&file);
    return status;
}

static void keep_on_disk(CudnnCache *cache, const char *key, const CudnnPlan *plan, double milliseconds)
{
    FshError error = {0};
    if (!cache->folder || cache->warning.status || !write_file(cache, key, plan, milliseconds, &error))
        return;
    (void)fsh_error_set(&cache->warning, error.status, "cuDNN's plans are not kept for the next start: %s",
                        error.message);
}

static bool key_of_time(const CudnnCache *cache, const char *what, char key[KEY_MAX])
{
    int length = snprintf(key, KEY_MAX, "%s; %s", cache->machine, what);
    return length > 0 && length < KEY_MAX && !strchr(what, '\n');
}

bool cudnn_cache_recall(const CudnnCache *cache, const char *what, double *milliseconds_ret)
{
    char key[KEY_MAX];
    Known known;
    if (!key_of_time(cache, what, key) || !load(cache, key, NULL, &known))
        return false;
    *milliseconds_ret = known.milliseconds;
    return true;
}

void cudnn_cache_remember(CudnnCache *cache, const char *what, double milliseconds)
{
    char key[KEY_MAX];
    if (key_of_time(cache, what, key))
        keep_on_disk(cache, key, NULL, milliseconds);
}

/* ---- in memory ---- */

static struct Entry *find(const CudnnCache *cache, const char *key)
{
    for (size_t i = 0; i < cache->entry_count; i++)
        if (strcmp(cache->entries[i].key, key) == 0)
            return &cache->entries[i];
    return NULL;
}

static FshStatus make_room(CudnnCache *cache, FshError *error)
{
    if (cache->entry_count < cache->entry_capacity)
        return FSH_OK;
    const size_t capacity = cache->entry_capacity ? 2 * cache->entry_capacity : 64;
    struct Entry *entries = realloc(cache->entries, capacity * sizeof *entries);
    if (!entries)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a cache of %zu cuDNN plans", capacity);
    cache->entries = entries;
    cache->entry_capacity = capacity;
    return FSH_OK;
}

/* Loads the plan of an entry, if there is a file of it. Several threads may, each an entry of its own. */
static void take_from_disk(const CudnnCache *cache, struct Entry *entry)
{
    Known known = {0};
    if (!load(cache, entry->key, entry->plan, &known))
        return;
    cudnn_plan_set_known(entry->plan, known.milliseconds, known.engine);
    entry->stage = CHOSEN;
}

/* Sets *entry_ret to the entry of a pattern: one that is there, or a new one, which is wanted. Takes
 * *described. */
static FshStatus enter(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy, bool timed,
                       struct Entry **entry_ret, FshError *error)
{
    char key[KEY_MAX];
    int length = snprintf(key, sizeof key,
                          "%s; %sbut notes %" PRIx32 ", %" PRIu64 " bytes of workspace, %d candidates",
                          cache->machine, cudnn_plan_text(*described), policy->refused_notes,
                          policy->workspace_limit_bytes, timed ? policy->candidates : 1);
    FshStatus status = FSH_OK;
    if (length < 0 || (size_t)length >= sizeof key)
        status =
            fsh_error_set(error, FSH_ERR_UNSUPPORTED, "a cuDNN pattern of more than %d letters", KEY_MAX);
    struct Entry *entry = status ? NULL : find(cache, key);
    if (!status && !entry)
        status = make_room(cache, error);
    char *own_key = status || entry ? NULL : text_copy(key, (size_t)length);
    if (!status && !entry && !own_key)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a key");
    if (own_key) {
        entry = &cache->entries[cache->entry_count++];
        *entry = (struct Entry){.key = own_key, .plan = *described, .policy = *policy, .stage = WANTED};
        *described = NULL;
        if (!timed)
            entry->policy.candidates = 1;
    }
    cudnn_plan_free(described);
    if (entry)
        entry->round = cache->round;
    *entry_ret = entry;
    return status;
}

FshStatus cudnn_cache_want(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy, bool timed,
                           FshError *error)
{
    struct Entry *entry;
    return enter(cache, described, policy, timed, &entry, error);
}

void cudnn_cache_release(CudnnCache *cache, const CudnnPlan *plan)
{
    for (size_t i = 0; plan && i < cache->entry_count; i++)
        if (cache->entries[i].plan == plan)
            cache->entries[i].users--;
}

static void forget_unused(CudnnCache *cache)
{
    size_t count = 0;
    for (size_t i = 0; i < cache->entry_count; i++) {
        struct Entry *entry = &cache->entries[i];
        if (entry->users > 0 || entry->round == cache->round) {
            cache->entries[count++] = *entry;
            continue;
        }
        cudnn_plan_free(&entry->plan);
        free(entry->key);
    }
    cache->entry_count = count;
}

/* ---- building ---- */

void cudnn_cache_set_threads(CudnnCache *cache, int threads, cudaStream_t stream)
{
    cache->threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    cache->stream = stream;
}

/* Builds the plan of an entry. A failure is kept for whoever asks for the plan. */
static void build_entry(const CudnnCache *cache, struct Entry *entry) /* an EntryWork */
{
    (void)cache;
    entry->stage = cudnn_plan_build(entry->plan, &entry->policy, &entry->failure) ? FAILED : BUILT;
}

/* Makes a handle for a thread, on its first item. */
static FshStatus thread_device(CudnnCache *cache, int thread, const CudnnDevice **device, FshError *error)
{
    CudnnDevice *own = &cache->devices[thread];
    FshStatus status = FSH_OK;
    *device = own;
    if (own->handle)
        return FSH_OK;
    status = CUDNN_TRY(cudnnCreate(&own->handle), error);
    return status ? status : CUDNN_TRY(cudnnSetStream(own->handle, cache->stream), error);
}

typedef void (*EntryWork)(const CudnnCache *cache, struct Entry *entry);

/* What is done to each wanted entry, on several threads. */
typedef struct EntryJob {
    CudnnCache *cache;
    EntryWork work;
    size_t *wanted; /* owned: indices of entries */
    int cuda_device;
} EntryJob;

static FshStatus work_on_entry(uint64_t item, int thread, void *context, FshError *error)
{
    const EntryJob *job = context;
    CudnnCache *cache = job->cache;
    struct Entry *entry = &cache->entries[job->wanted[item]];
    const CudnnDevice *device = NULL;
    FshStatus status = FSH_OK;
    if (cache->stream) { /* without a GPU all share its properties, which nobody writes */
        status = CUDA_TRY(cudaSetDevice(job->cuda_device), error); /* of each thread */
        status = status ? status : thread_device(cache, thread, &device, error);
        if (!status)
            cudnn_plan_move(entry->plan, device);
    }
    if (!status)
        job->work(cache, entry);
    return status;
}

/* Does the work on the entries that are wanted, on several threads. */
static FshStatus work_on_wanted(CudnnCache *cache, EntryWork work, FshError *error)
{
    EntryJob job = {.cache = cache, .work = work};
    size_t count = 0;
    job.wanted = malloc((cache->entry_count + 1) * sizeof *job.wanted);
    if (!job.wanted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu cuDNN plans", cache->entry_count);
    for (size_t i = 0; i < cache->entry_count; i++)
        if (cache->entries[i].stage == WANTED)
            job.wanted[count++] = i;
    FshStatus status = FSH_OK;
    if (cache->stream)
        status = CUDA_TRY(cudaGetDevice(&job.cuda_device), error);
    /* a handle costs as much as a few plans */
    const int most = 1 + (int)(count / PLANS_OF_A_THREAD),
              jobs = cache->threads < most ? cache->threads : most;
    if (!status && count > 0)
        status = pool_run(jobs > 0 ? jobs : 1, count, work_on_entry, &job, error);
    free(job.wanted);
    return status;
}

/* Opens the file whose lock makes one process at a time build plans. Returns -1 where there can be none. */
static int open_lock(const CudnnCache *cache)
{
    char path[PATH_MAX];
    if (!cache->folder || file_make_folders(cache->folder, NULL) ||
        file_join(path, sizeof path, cache->folder, ".timing-lock", NULL))
        return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static size_t count_wanted(const CudnnCache *cache)
{
    size_t count = 0;
    for (size_t i = 0; i < cache->entry_count; i++)
        count += cache->entries[i].stage == WANTED;
    return count;
}

/* Takes the plans that are wanted from the disk. Returns how many it has not found. */
static size_t take_wanted(CudnnCache *cache)
{
    const size_t before = count_wanted(cache);
    if (cache->folder && before > 0)
        (void)work_on_wanted(cache, take_from_disk, NULL); /* what fails is missing, and built */
    const size_t missing = count_wanted(cache);
    cache->counts.loaded += before - missing;
    return missing;
}

void cudnn_cache_settle(CudnnCache *cache)
{
    if (cache->lock >= 0)
        (void)close(cache->lock);
    cache->lock = -1;
}

/* Waits until this process may build plans, and takes those from the disk meanwhile that another one builds.
 * When it has all, it waits a little more for the times of what competes with them. Holds the lock afterwards
 * if something is left to build. */
static void begin_building(CudnnCache *cache)
{
    static const double times_seconds = 10;
    const struct timespec pause = {.tv_nsec = 100000000};
    const double start = progress_now_seconds();
    double missed = start; /* when a plan was missing last */
    if (take_wanted(cache) == 0 || cache->lock >= 0)
        return;
    cache->lock = open_lock(cache);
    bool held = false, waits = cache->lock >= 0;
    size_t missing = 1;
    while (waits) {
        held = flock(cache->lock, LOCK_EX | LOCK_NB) == 0;
        const bool others = !held && (errno == EWOULDBLOCK || errno == EINTR);
        missing = take_wanted(cache); /* after the lock: what another one has made is there */
        const double now = progress_now_seconds();
        missed = missing > 0 ? now : missed;
        waits = others && !interrupt_requested() && now - start < CUDNN_CACHE_WAIT_SECONDS &&
                now - missed < times_seconds;
        if (waits)
            (void)nanosleep(&pause, NULL);
    }
    if (!held || missing == 0)
        cudnn_cache_settle(cache);
}

FshStatus cudnn_cache_build(CudnnCache *cache, FshError *error)
{
    if (cache->entry_count > cache->kept)
        forget_unused(cache);
    cache->round++;
    begin_building(cache);
    return work_on_wanted(cache, build_entry, error);
}

/* Times the candidates in workspace of its own; where the GPU has not enough of it, those that need the most
 * are left out. */
static FshStatus choose(CudnnPlan *plan, const CudnnTrial *trial, FshError *error)
{
    void *workspace = NULL;
    uint64_t bytes = cudnn_plan_workspace_bytes(plan);
    FshStatus status;
    while ((status = cuda_memory_new(&workspace, bytes, "workspace to try convolutions in", error)) ==
           FSH_ERR_MEMORY) {
        status = cudnn_plan_limit_workspace(plan, bytes - 1, error);
        if (status)
            return status;
        bytes = cudnn_plan_workspace_bytes(plan);
    }
    if (!status)
        status = cudnn_plan_choose(plan, trial->data, workspace, trial->stream, error);
    cuda_memory_free(&workspace);
    return status;
}

FshStatus cudnn_cache_get(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy,
                          const CudnnTrial *trial, const CudnnPlan **plan, FshError *error)
{
    struct Entry *entry = NULL;
    *plan = NULL;
    FshStatus status = enter(cache, described, policy, trial != NULL, &entry, error);
    if (status)
        return status;
    if (entry->stage == WANTED) {
        take_from_disk(cache, entry);
        cache->counts.loaded += entry->stage == CHOSEN;
    }
    if (entry->stage == WANTED)
        build_entry(cache, entry);
    /* A single candidate is timed, too: its time is compared with those of other ways, and a candidate that
     * does not run is found out. */
    if (entry->stage == BUILT && trial && choose(entry->plan, trial, &entry->failure))
        entry->stage = FAILED;
    if (entry->stage == BUILT) {
        entry->stage = CHOSEN;
        cache->counts.built++;
        keep_on_disk(cache, entry->key, entry->plan, cudnn_plan_milliseconds(entry->plan));
    }
    if (entry->stage == FAILED)
        return fsh_error_set(error, entry->failure.status, "%s", entry->failure.message);
    cache->counts.shared += entry->given;
    entry->given = true;
    entry->users++;
    *plan = entry->plan;
    return FSH_OK;
}
