#include "trainer/backend/cuda/pixel_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "trainer/backend/cuda/jpeg_batch.h"
#include "trainer/backend/cuda/kernels/kernels_pixels.h"
#include "trainer/backend/memory_advice.h"
#include "trainer/backend/cuda/pixel_parts.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/backend/pixel_math.h"

enum {
    STAGE_COUNT = 4, /* threads that fill the store at a time; PCIe is full with fewer */
    STAGE_BYTES = 4 << 20,
    FILES_COUNT = 4, /* batches whose files are under way: as the ring */
    FILE_ALIGNMENT = 64,
    RING_COUNT = 4, /* batches whose recipes are under way: two, each of two sides */
};

/* A way into the store for one thread at a time. */
typedef struct Stage {
    void *pinned;
    cudaStream_t stream;
    bool taken;
} Stage;

/* The recipes of a batch on their way. */
typedef struct RingSlot {
    void *pinned, *memory;
    uint64_t bytes;
    cudaEvent_t used; /* the batch is made */
} RingSlot;

/* Images that came with a batch: decoded or copied into memory, on a stream of their own, while the work goes
 * on. */
typedef struct FilesSlot {
    void *memory, *pinned; /* pinned: what does not last, and pixels on their way */
    uint64_t bytes, pinned_bytes;
    cudaEvent_t there, used; /* the images are in memory; the batch is made from them */
} FilesSlot;

/* Memory of the device for the batch in hand. */
typedef struct WorkMemory {
    void *memory;
    uint64_t bytes;
} WorkMemory;

typedef struct CudaPixelStore {
    PixelStore base;
    int device;
    void *memory;
    PixelStoreKey own;     /* what memory holds of the whole */
    PixelParts parts;      /* none: memory holds all */
    pthread_mutex_t mutex; /* stages[].taken */
    pthread_cond_t freed;
    bool mutex_made, condition_made;
    Stage stages[STAGE_COUNT];
    RingSlot ring[RING_COUNT];
    int next;
    JpegBatch *jpegs; /* made with the first file */
    cudaStream_t files_stream;
    FilesSlot files[FILES_COUNT];
    int next_files;
    JpegFile *list; /* of a batch's JPEG files */
    uint64_t *list_places;
    bool *list_refused;
    size_t list_capacity;
    /* of the batch in hand; batches follow each other on one stream */
    WorkMemory axes;    /* weights of resampling */
    WorkMemory scratch; /* of operations */
} CudaPixelStore;

/* ---- life ---- */

static void store_free(PixelStore *store)
{
    CudaPixelStore *freed = (CudaPixelStore *)store;
    (void)cudaStreamSynchronize(((CudaBackend *)store->backend)->stream);
    for (int i = 0; i < STAGE_COUNT; i++) {
        if (freed->stages[i].stream)
            (void)cudaStreamDestroy(freed->stages[i].stream);
        cuda_pinned_free(&freed->stages[i].pinned);
    }
    for (int i = 0; i < RING_COUNT; i++) {
        cuda_pinned_free(&freed->ring[i].pinned);
        cuda_memory_free(&freed->ring[i].memory);
        if (freed->ring[i].used)
            (void)cudaEventDestroy(freed->ring[i].used);
    }
    if (freed->files_stream) {
        (void)cudaStreamSynchronize(freed->files_stream);
        (void)cudaStreamDestroy(freed->files_stream);
    }
    jpeg_batch_free(&freed->jpegs);
    for (int i = 0; i < FILES_COUNT; i++) {
        cuda_memory_free(&freed->files[i].memory);
        cuda_pinned_free(&freed->files[i].pinned);
        if (freed->files[i].there)
            (void)cudaEventDestroy(freed->files[i].there);
        if (freed->files[i].used)
            (void)cudaEventDestroy(freed->files[i].used);
    }
    free(freed->list);
    free(freed->list_places);
    free(freed->list_refused);
    cuda_memory_free(&freed->axes.memory);
    cuda_memory_free(&freed->scratch.memory);
    pixel_parts_close(&freed->parts);
    cuda_memory_free(&freed->memory);
    if (freed->condition_made)
        (void)pthread_cond_destroy(&freed->freed);
    if (freed->mutex_made)
        (void)pthread_mutex_destroy(&freed->mutex);
    free(freed);
}

static FshStatus make_ways(CudaPixelStore *store, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < STAGE_COUNT && !status; i++) {
        status = cuda_pinned_new(&store->stages[i].pinned, STAGE_BYTES, "pixels on their way", error);
        if (!status)
            status =
                CUDA_TRY(cudaStreamCreateWithFlags(&store->stages[i].stream, cudaStreamNonBlocking), error);
    }
    for (int i = 0; i < RING_COUNT && !status; i++)
        status = CUDA_TRY(
            cudaEventCreateWithFlags(&store->ring[i].used, cudaEventDisableTiming | cudaEventBlockingSync),
            error);
    return status;
}

static FshStatus store_new_part(PixelStore **store, Backend *backend, uint64_t bytes,
                                const PixelStoreKey *own, FshError *error)
{
    CudaPixelStore *made = calloc(1, sizeof *made);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for a pixel store");
    made->base = (PixelStore){.backend = backend, .bytes = bytes};
    made->own = *own;
    made->mutex_made = pthread_mutex_init(&made->mutex, NULL) == 0;
    made->condition_made = pthread_cond_init(&made->freed, NULL) == 0;
    FshStatus status = made->mutex_made && made->condition_made
                           ? CUDA_TRY(cudaGetDevice(&made->device), error)
                           : fsh_error_set(error, FSH_ERR_SYSTEM, "cuda: no lock for a pixel store");
    if (!status)
        status = cuda_memory_new(&made->memory, own->bytes, "pixels", error);
    if (!status)
        status = make_ways(made, error);
    if (status)
        store_free(&made->base);
    else
        *store = &made->base;
    return status;
}

static FshStatus store_new(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error)
{
    return store_new_part(store, backend, bytes, &(PixelStoreKey){.bytes = bytes}, error);
}

static FshStatus store_new_shared(PixelStore **store, Backend *backend, uint64_t bytes,
                                  const PixelStoreKey *own, FshError *error)
{
    PixelStoreKey room = *own;
    room.bytes = pixel_parts_room(own->bytes);
    FshStatus status = store_new_part(store, backend, bytes, &room, error);
    if (!status)
        ((CudaPixelStore *)*store)->own.bytes = own->bytes;
    return status;
}

static FshStatus store_key(PixelStore *base, PixelStoreKey *key_ret, FshError *error)
{
    const CudaPixelStore *store = (const CudaPixelStore *)base;
    *key_ret = store->own;
    return pixel_parts_key(store->memory, key_ret, error);
}

static FshStatus store_join(PixelStore *base, const PixelStoreKey *keys, size_t count, size_t own,
                            FshError *error)
{
    CudaPixelStore *store = (CudaPixelStore *)base;
    return pixel_parts_open(&store->parts, store->memory, keys, count, own, error);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void store_memory(const PixelStore *base, MemoryUse *use)
{
    const CudaPixelStore *store = (const CudaPixelStore *)base;
    uint64_t recipes = 0, images = 0, pinned = 0;
    for (int i = 0; i < RING_COUNT; i++)
        recipes = larger(recipes, store->ring[i].bytes);
    for (int i = 0; i < FILES_COUNT; i++) {
        images = larger(images, store->files[i].bytes);
        pinned = larger(pinned, store->files[i].pinned_bytes);
    }
    use->bytes[MEMORY_PIXELS] += store->own.bytes + RING_COUNT * recipes + FILES_COUNT * images +
                                 store->axes.bytes + store->scratch.bytes;
    use->bytes[MEMORY_PINNED] +=
        (uint64_t)STAGE_COUNT * STAGE_BYTES + RING_COUNT * recipes + FILES_COUNT * pinned;
}

static FshStatus decodes(Backend *backend, FshError *error)
{
    JpegBatch *jpegs = NULL;
    FshStatus status = jpeg_batch_new(&jpegs, !((const CudaBackend *)backend)->deterministic, error);
    jpeg_batch_free(&jpegs);
    return status;
}

static FshStatus free_memory(Backend *backend, uint64_t *free_bytes_ret, FshError *error)
{
    (void)backend;
    size_t free_bytes = 0, total_bytes = 0;
    FshStatus status = CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), error);
    *free_bytes_ret = free_bytes;
    return status;
}

/* ---- filling ---- */

static Stage *take_stage(CudaPixelStore *store)
{
    Stage *found = NULL;
    (void)pthread_mutex_lock(&store->mutex);
    while (!found) {
        for (int i = 0; i < STAGE_COUNT && !found; i++)
            if (!store->stages[i].taken)
                found = &store->stages[i];
        if (!found)
            (void)pthread_cond_wait(&store->freed, &store->mutex);
    }
    found->taken = true;
    (void)pthread_mutex_unlock(&store->mutex);
    return found;
}

static void give_stage(CudaPixelStore *store, Stage *stage)
{
    (void)pthread_mutex_lock(&store->mutex);
    stage->taken = false;
    (void)pthread_cond_signal(&store->freed);
    (void)pthread_mutex_unlock(&store->mutex);
}

static FshStatus store_put(PixelStore *base, uint64_t offset_bytes, const void *pixels, size_t bytes,
                           FshError *error)
{
    CudaPixelStore *store = (CudaPixelStore *)base;
    FshStatus status =
        CUDA_TRY(cudaSetDevice(store->device), error); /* a thread begins with the first device */
    if (status || bytes == 0)
        return status;
    Stage *stage = take_stage(store);
    for (size_t done = 0; done < bytes && !status;) {
        const size_t count = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
        memcpy(stage->pinned, (const char *)pixels + done, count);
        status =
            CUDA_TRY(cudaMemcpyAsync((char *)store->memory + (offset_bytes - store->own.begin_bytes) + done,
                                     stage->pinned, count, cudaMemcpyHostToDevice, stage->stream),
                     error);
        if (!status)
            status = CUDA_TRY(cudaStreamSynchronize(stage->stream), error);
        done += count;
    }
    give_stage(store, stage);
    return status ? fsh_error_prepend(error, "cuda: pixels") : FSH_OK;
}

/* ---- images that come with their batch ---- */

static FshStatus open_files(CudaPixelStore *store, FshError *error)
{
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    if (store->jpegs)
        return FSH_OK;
    FshStatus status =
        CUDA_TRY(cudaStreamCreateWithFlags(&store->files_stream, cudaStreamNonBlocking), error);
    for (int i = 0; i < FILES_COUNT && !status; i++) {
        status = CUDA_TRY(cudaEventCreateWithFlags(&store->files[i].there, flags), error);
        if (!status)
            status = CUDA_TRY(cudaEventCreateWithFlags(&store->files[i].used, flags), error);
    }
    return status ? status
                  : jpeg_batch_new(&store->jpegs, !((const CudaBackend *)store->base.backend)->deterministic,
                                   error);
}

static FshStatus reserve_list(CudaPixelStore *store, size_t count, FshError *error)
{
    if (store->list_capacity >= count)
        return FSH_OK;
    free(store->list);
    free(store->list_places);
    free(store->list_refused);
    store->list = calloc(count, sizeof *store->list);
    store->list_places = calloc(count, sizeof *store->list_places);
    store->list_refused = calloc(count, sizeof *store->list_refused);
    store->list_capacity = store->list && store->list_places && store->list_refused ? count : 0;
    return store->list_capacity ? FSH_OK
                                : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu files", count);
}

static bool is_staged(const PixelFile *file)
{
    return !file->is_jpeg || !file->lasting;
}

static uint64_t file_room(const PixelFile *file)
{
    return (file->bytes + FILE_ALIGNMENT - 1) / FILE_ALIGNMENT * FILE_ALIGNMENT;
}

/* Appends advice to a message: how large a batch would fit, counting the images of all batches that may be
 * under way. */
static FshStatus advise(const CudaPixelStore *store, uint64_t count, uint64_t bytes, bool pinned,
                        FshError *error)
{
    BatchRoom room = {.needed_bytes = FILES_COUNT * bytes,
                      .free_bytes = pinned ? cpu_memory_available() : cuda_memory_left()};
    for (int i = 0; i < FILES_COUNT; i++)
        room.held_bytes += pinned ? store->files[i].pinned_bytes : store->files[i].bytes;
    (void)memory_advise("with --decode cpu images take none of it", error);
    return memory_advise_batch((int64_t)count, &room, error);
}

/* Batches differ in bytes: a quarter more than asked for, and soon none asks again. The slot is idle. */
static FshStatus reserve_files(const CudaPixelStore *store, FilesSlot *slot, uint64_t bytes,
                               uint64_t pinned_bytes, uint64_t count, FshError *error)
{
    const uint64_t taken = bytes + bytes / 4, pinned_taken = pinned_bytes + pinned_bytes / 4;
    FshStatus status = FSH_OK;
    if (slot->bytes < bytes) {
        cuda_memory_free(&slot->memory);
        slot->bytes = 0;
        status = cuda_memory_new(&slot->memory, taken, "images of a batch", error);
        if (status == FSH_ERR_MEMORY)
            return advise(store, count, taken, false, error);
        slot->bytes = status ? 0 : taken;
    }
    if (!status && slot->pinned_bytes < pinned_bytes) {
        cuda_pinned_free(&slot->pinned);
        slot->pinned_bytes = 0;
        status = cuda_pinned_new(&slot->pinned, pinned_taken, "images of a batch", error);
        if (status == FSH_ERR_MEMORY)
            return advise(store, count, pinned_taken, true, error);
        slot->pinned_bytes = status ? 0 : pinned_taken;
    }
    return status;
}

/* Sends off the pixels of a side and lists its JPEG files, *jpeg_count_ret of them. */
static FshStatus send_files(CudaPixelStore *store, FilesSlot *slot, const PixelBatch *batch, unsigned side,
                            size_t *jpeg_count_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    uint64_t at = 0;
    size_t jpegs = 0;
    for (uint64_t i = 0; i < batch->count && !status; i++) {
        const PixelFile *file = &batch->files[side][i];
        const PixelRecipe *recipe = &batch->recipes[i];
        const void *data = file->data;
        if (recipe->offset_bytes[side] == PIXELS_NONE)
            continue;
        void *target = (char *)slot->memory + recipe->offset_bytes[side];
        if (is_staged(file)) {
            data = memcpy((char *)slot->pinned + at, file->data, file->bytes);
            at += file_room(file);
        }
        if (file->is_jpeg) {
            store->list[jpegs] =
                (JpegFile){.data = data, .bytes = file->bytes, .target = target, .width = recipe->width};
            store->list_places[jpegs++] = i;
        } else {
            status = CUDA_TRY(
                cudaMemcpyAsync(target, data, file->bytes, cudaMemcpyHostToDevice, store->files_stream),
                error);
        }
    }
    *jpeg_count_ret = jpegs;
    return status;
}

/* Decodes the listed JPEG files. The places of refused ones take over list_places. */
static FshStatus decode_files(CudaPixelStore *store, const PixelBatch *batch, size_t count, FshError *error)
{
    FshStatus status = jpeg_batch_decode(store->jpegs, store->list, count, batch->channels,
                                         store->files_stream, store->list_refused, error);
    size_t refused = 0;
    for (size_t i = 0; i < count && status == FSH_ERR_CORRUPT; i++)
        if (store->list_refused[i])
            store->list_places[refused++] = store->list_places[i];
    store->base.refused = store->list_places;
    store->base.refused_count = refused;
    return refused ? fsh_error_prepend(error, "sample %llu of the split",
                                       (unsigned long long)batch->samples[store->list_places[0]])
                   : status;
}

/* Brings the images of a side to (*slot_ret)->memory; they are there once the work's stream has passed the
 * wait. */
static FshStatus bring_files(CudaPixelStore *store, const PixelBatch *batch, unsigned side,
                             FilesSlot **slot_ret, cudaStream_t work, FshError *error)
{
    uint64_t pinned_bytes = 0;
    size_t jpeg_count = 0;
    FilesSlot *slot = *slot_ret = &store->files[store->next_files];
    for (uint64_t i = 0; i < batch->count; i++)
        if (batch->recipes[i].offset_bytes[side] != PIXELS_NONE && is_staged(&batch->files[side][i]))
            pinned_bytes += file_room(&batch->files[side][i]);
    FshStatus status = open_files(store, error);
    if (!status) /* waits for the batch before the last one, whose work is long under way */
        status = CUDA_TRY(cudaEventSynchronize(slot->used), error);
    if (!status)
        status = reserve_files(store, slot, batch->stored_bytes, pinned_bytes, batch->count, error);
    if (!status)
        status = reserve_list(store, (size_t)batch->count, error);
    if (!status)
        status = send_files(store, slot, batch, side, &jpeg_count, error);
    if (!status)
        status = decode_files(store, batch, jpeg_count, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(slot->there, store->files_stream), error);
    if (!status)
        status = CUDA_TRY(cudaStreamWaitEvent(work, slot->there, 0), error);
    store->next_files = (store->next_files + 1) % FILES_COUNT;
    if (status && store->files_stream) /* the copies under way read memory of the caller, or of the slot */
        (void)cudaStreamSynchronize(store->files_stream);
    return status;
}

/* Makes room in a slot. The first batches take it; a later one only if it is larger than any before. */
static FshStatus reserve_slot(RingSlot *slot, uint64_t bytes, FshError *error)
{
    if (slot->bytes >= bytes)
        return FSH_OK;
    cuda_pinned_free(&slot->pinned);
    cuda_memory_free(&slot->memory);
    slot->bytes = 0;
    FshStatus status = cuda_pinned_new(&slot->pinned, bytes, "recipes of a batch", error);
    if (!status)
        status = cuda_memory_new(&slot->memory, bytes, "recipes of a batch", error);
    if (!status)
        slot->bytes = bytes;
    return status;
}

/* Makes room for the work on a batch, a quarter more than asked for: images differ in size, so batches differ
 * in weights, and soon none asks again. what: the memory's name, for the message. */
static FshStatus reserve_work(const CudaPixelStore *store, WorkMemory *work, uint64_t bytes, const char *what,
                              FshError *error)
{
    if (work->bytes >= bytes)
        return FSH_OK;
    const uint64_t taken = bytes + bytes / 4;
    FshStatus status = CUDA_TRY(cudaStreamSynchronize(((CudaBackend *)store->base.backend)->stream), error);
    if (status)
        return status;
    cuda_memory_free(&work->memory);
    status = cuda_memory_new(&work->memory, taken, what, error);
    work->bytes = status ? 0 : taken;
    return status;
}

static uint32_t taps_of(const PixelBatch *batch, unsigned side)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < batch->count; i++) {
        const PixelRecipe *recipe = &batch->recipes[i];
        if (recipe->offset_bytes[side] == PIXELS_NONE || !pixel_is_resampled(recipe))
            continue;
        const uint64_t across = pixel_taps(recipe->part_width, recipe->resized_width, recipe->filter),
                       down = pixel_taps(recipe->part_height, recipe->resized_height, recipe->filter);
        most = across > most ? across : most;
        most = down > most ? down : most;
    }
    return (uint32_t)most;
}

/* Copies `bytes` behind what lies in the slot, *used_bytes of it. Returns where the device will find them. */
static const void *append(const RingSlot *slot, uint64_t *used_bytes, const void *data, uint64_t bytes)
{
    const uint64_t at = *used_bytes;
    memcpy((char *)slot->pinned + at, data, bytes);
    *used_bytes += bytes;
    return (const char *)slot->memory + at;
}

/* Sends the recipes of a side; side 0 has the batch's operations and colours with them. All are made of
 * 64-bit words, so that each begins where it may. */
static FshStatus send_recipes(const CudaPixelStore *store, RingSlot *slot, const PixelBatch *batch,
                              PixelJob *job, cudaStream_t stream, FshError *error)
{
    const bool operates = job->side == 0 && batch->operations, colours = job->side == 0 && batch->colours;
    const uint64_t recipe_bytes = batch->count * sizeof *batch->recipes,
                   operation_bytes = operates ? batch->count * sizeof *batch->operations : 0,
                   colours_bytes = colours ? batch->count * sizeof *batch->colours : 0;
    uint64_t used_bytes = 0;
    FshStatus status = CUDA_TRY(cudaEventSynchronize(slot->used), error);
    if (!status)
        status = reserve_slot(slot, recipe_bytes + operation_bytes + colours_bytes, error);
    if (status)
        return status;
    job->recipes = append(slot, &used_bytes, batch->recipes, recipe_bytes);
    pixel_parts_find(&store->parts, slot->pinned, batch->count, job->side);
    if (operates)
        job->operations = append(slot, &used_bytes, batch->operations, operation_bytes);
    if (colours)
        job->colours = append(slot, &used_bytes, batch->colours, colours_bytes);
    return CUDA_TRY(cudaMemcpyAsync(slot->memory, slot->pinned, used_bytes, cudaMemcpyHostToDevice, stream),
                    error);
}

/* Makes room for what the kernels need besides: weights, and images beside those in work. */
static FshStatus reserve_job(CudaPixelStore *store, const PixelBatch *batch, PixelJob *job, FshError *error)
{
    const uint64_t image_bytes = (uint64_t)batch->width * batch->height * batch->channels,
                   axis_bytes = pixel_axis_words(job->outputs, job->taps) * sizeof *job->axes;
    FshStatus status = FSH_OK;
    if (job->taps)
        status =
            reserve_work(store, &store->axes, 2 * batch->count * axis_bytes, "weights of resampling", error);
    if (!status && job->side == 0 && batch->operations) {
        job->scratch_images = pixels_operation_images(batch->count);
        status = reserve_work(store, &store->scratch, job->scratch_images * image_bytes,
                              "images beside those that operations change", error);
    }
    job->axes = store->axes.memory;
    job->scratch = store->scratch.memory;
    return status;
}

static FshStatus make_batch(const PixelJob *job, cudaStream_t stream, FshError *error)
{
    FshStatus status = CUDA_TRY(pixels_fill_axes(job, stream), error);
    if (!status)
        status = CUDA_TRY(pixels_render(job, stream), error);
    if (!status && job->operations)
        status = CUDA_TRY(pixels_operate(job, stream), error);
    if (!status && job->colours)
        status = CUDA_TRY(pixels_change_colours(job, stream), error);
    if (!status && job->colours)
        status = CUDA_TRY(pixels_mix(job, stream), error);
    return status;
}

static FshStatus write_pixels(Program *program, TensorId input, PixelStore *base, unsigned side,
                              const PixelBatch *batch, FshError *error)
{
    CudaPixelStore *store = (CudaPixelStore *)base;
    const CudaProgram *cuda = (const CudaProgram *)program;
    cudaStream_t stream = program_backend(cuda)->stream;
    RingSlot *slot = &store->ring[store->next];
    PixelJob job = {.target = cuda->tensors[input].data,
                    .store = store->memory,
                    .count = batch->count,
                    .seed = batch->seed,
                    .width = batch->width,
                    .height = batch->height,
                    .channels = batch->channels,
                    .outputs = batch->width > batch->height ? batch->width : batch->height,
                    .taps = taps_of(batch, side),
                    .side = side};
    memcpy(job.erased_deviation, batch->erased_deviation, sizeof job.erased_deviation);
    memcpy(job.fill, batch->fill, sizeof job.fill);
    FilesSlot *files = NULL;
    FshStatus status = reserve_job(store, batch, &job, error);
    if (!status && batch->files[side]) {
        status = bring_files(store, batch, side, &files, stream, error);
        job.store = files->memory;
    }
    if (!status)
        status = send_recipes(store, slot, batch, &job, stream, error);
    if (!status)
        status = make_batch(&job, stream, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(slot->used, stream), error);
    if (!status && files)
        status = CUDA_TRY(cudaEventRecord(files->used, stream), error);
    store->next = (store->next + 1) % RING_COUNT;
    return status ? fsh_error_prepend(error, "cuda: %s", graph_tensor(program->graph, input)->name) : FSH_OK;
}

const PixelInterface cuda_pixels = {.store_new = store_new,
                                    .store_new_part = store_new_shared,
                                    .store_key = store_key,
                                    .store_join = store_join,
                                    .store_free = store_free,
                                    .store_put = store_put,
                                    .store_memory = store_memory,
                                    .write = write_pixels,
                                    .decodes = decodes,
                                    .free_memory = free_memory};
