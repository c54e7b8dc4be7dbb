/* pixels.h - batches of pixels that a backend makes itself, in its own memory: samples lie there (or come
 * there as JPEG files), and what travels for each batch is a recipe of some hundred bytes for each sample.
 *
 *   PixelStore *store;
 *   pixel_store_new(&store, backend, bytes, &error);      // FSH_ERR_UNSUPPORTED: this backend has none
 *   pixel_store_put(store, offset, pixels, count, &error); // any number of threads
 *   …
 *   PixelBatch batch = {.count = 512, .width = 160, .height = 160, .channels = 3, …};
 *   program_write_pixels(program, image, store, 0, &batch, &error);  // in place of program_write
 *   program_write_pixels(program, target, store, 1, &batch, &error); // of pairs
 *
 * Recipes are drawn by trainer/data (pixel_recipe.h) from the same numbers as the CPU's loader draws, and
 * give the same bytes: upsampling the chroma of planes (libjpeg's), cropping, resampling (Pillow's fixed
 * point), mirroring, operations of --auto-augment, colour jitter, constant erasing, mixing. Noise, and
 * erasing with noise, go through logarithm and sine of the device's library, and may differ in the last grey
 * level of one value in millions.
 *
 * Threads: pixel_store_put any; all else the thread that drives the backend. */
#ifndef FSHARD_TRAINER_BACKEND_PIXELS_H
#define FSHARD_TRAINER_BACKEND_PIXELS_H

#include "trainer/backend/backend.h"
#include "trainer/backend/pixel_recipe.h"

typedef struct PixelStore PixelStore;

/* Makes a store with memory for `bytes` of pixels. FSH_ERR_UNSUPPORTED: this backend computes where the
 * loader's memory is. FSH_ERR_MEMORY says what was asked for and what is free. */
FshStatus pixel_store_new(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error);
/* What another process needs to reach the part that a store holds. */
typedef struct PixelStoreKey {
    unsigned char handle[64]; /* the backend's */
    uint64_t begin_bytes, bytes;
} PixelStoreKey;

/* Makes a store of `bytes` of which this process holds own_bytes from begin_bytes on; pixel_store_put
 * takes those alone. The rest lies in stores of other processes of this host, which pixel_store_join
 * finds. FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY as above. */
FshStatus pixel_store_new_part(PixelStore **store, Backend *backend, uint64_t bytes, uint64_t begin_bytes,
                               uint64_t own_bytes, FshError *error);
/* Sets *key_ret to the key of the part that this store holds. */
FshStatus pixel_store_key(PixelStore *store, PixelStoreKey *key_ret, FshError *error);
/* Opens the parts of all processes, in their order, this one's (`own`) among them: batches find every byte
 * from then on. Keys are copied. FSH_ERR_UNSUPPORTED: a GPU cannot reach another's memory.
 * FSH_ERR_MISMATCH: the parts are not the whole. */
FshStatus pixel_store_join(PixelStore *store, const PixelStoreKey *keys, size_t count, size_t own,
                           FshError *error);
/* Waits for the work that uses the store, and frees it. Call it before the backend is closed. NULL is
 * fine. */
void pixel_store_free(PixelStore **store);
/* Adds the memory that a store takes: the pixels that stay, and for each batch that may be under way as much
 * as the largest so far took. */
void pixel_store_memory(const PixelStore *store, MemoryUse *use);
/* Copies bytes of pixels to offset; the caller may free them after the call. */
FshStatus pixel_store_put(PixelStore *store, uint64_t offset_bytes, const void *pixels, size_t bytes,
                          FshError *error);

/* Renders the batch into the program's input, an u8 tensor [count, height, width, channels]. side: 0 the
 * input, 1 the target of pairs. Recipes are copied. FSH_ERR_CORRUPT: files that the device's decoder refuses
 * (pixel_store_refused); the message names the first one's sample. FSH_ERR_MISMATCH: the tensor is of another
 * shape, a recipe goes beyond the store, or an operation is none. */
FshStatus program_write_pixels(Program *program, TensorId input, PixelStore *store, unsigned side,
                               const PixelBatch *batch, FshError *error);

/* Returns the places of the batch whose files the last program_write_pixels has refused, *count_ret of them;
 * good until the next. Once their files are decoded elsewhere, the batch can be written again. NULL, 0: the
 * failure was another one. */
const uint64_t *pixel_store_refused(const PixelStore *store, size_t *count_ret);

/* Returns FSH_OK where the backend decodes JPEG files (PixelBatch.files). FSH_ERR_UNSUPPORTED: this build, or
 * this device, has no decoder. */
FshStatus backend_decodes(Backend *backend, FshError *error);

/* Measures the free memory of the device, *free_bytes_ret, to tell beforehand what does not fit.
 * FSH_ERR_UNSUPPORTED. */
FshStatus backend_free_memory(Backend *backend, uint64_t *free_bytes_ret, FshError *error);

/* What a backend implements; the functions above check arguments and call these. */
typedef struct PixelInterface {
    FshStatus (*store_new)(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error);
    /* Of parts; NULL: there are none. own: what this process holds, its handle not set. */
    FshStatus (*store_new_part)(PixelStore **store, Backend *backend, uint64_t bytes,
                                const PixelStoreKey *own, FshError *error);
    FshStatus (*store_key)(PixelStore *store, PixelStoreKey *key_ret, FshError *error);
    FshStatus (*store_join)(PixelStore *store, const PixelStoreKey *keys, size_t count, size_t own,
                            FshError *error);
    void (*store_free)(PixelStore *store);
    FshStatus (*store_put)(PixelStore *store, uint64_t offset_bytes, const void *pixels, size_t bytes,
                           FshError *error);
    FshStatus (*write)(Program *program, TensorId input, PixelStore *store, unsigned side,
                       const PixelBatch *batch, FshError *error);
    void (*store_memory)(const PixelStore *store, MemoryUse *use);
    FshStatus (*decodes)(Backend *backend, FshError *error);
    FshStatus (*free_memory)(Backend *backend, uint64_t *free_bytes_ret, FshError *error);
} PixelInterface;

/* What every backend's store begins with. */
struct PixelStore {
    Backend *backend;
    uint64_t bytes;
    const uint64_t *refused; /* [refused_count] the backend's */
    size_t refused_count;
};

#endif
