#include "trainer/backend/pixels.h"

#include "trainer/backend/operation_math.h"
#include "trainer/backend/pixel_math.h"

static FshStatus interface_of(const Backend *backend, const PixelInterface **pixels_ret, FshError *error)
{
    *pixels_ret = backend->interface->pixels;
    return *pixels_ret
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "device %s: has no memory of its own to keep pixels in; --cache gpu and "
                               "--decode gpu are for --device cuda",
                               backend->interface->device);
}

FshStatus pixel_store_new(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error)
{
    const PixelInterface *pixels = NULL;
    *store = NULL;
    FshStatus status = interface_of(backend, &pixels, error);
    return status ? status : pixels->store_new(store, backend, bytes, error);
}

FshStatus pixel_store_new_part(PixelStore **store, Backend *backend, uint64_t bytes, uint64_t begin_bytes,
                               uint64_t own_bytes, FshError *error)
{
    const PixelInterface *pixels = NULL;
    const PixelStoreKey own = {.begin_bytes = begin_bytes, .bytes = own_bytes};
    *store = NULL;
    FshStatus status = interface_of(backend, &pixels, error);
    if (!status && !pixels->store_new_part)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "device %s: cannot divide pixels over processes",
                               backend->interface->device);
    return status ? status : pixels->store_new_part(store, backend, bytes, &own, error);
}

FshStatus pixel_store_key(PixelStore *store, PixelStoreKey *key_ret, FshError *error)
{
    return store->backend->interface->pixels->store_key(store, key_ret, error);
}

FshStatus pixel_store_join(PixelStore *store, const PixelStoreKey *keys, size_t count, size_t own,
                           FshError *error)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count && keys[i].begin_bytes == end; i++)
        end += keys[i].bytes;
    if (end != store->bytes || own >= count)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "pixel store: %zu parts are not its %llu bytes", count,
                             (unsigned long long)store->bytes);
    return store->backend->interface->pixels->store_join(store, keys, count, own, error);
}

void pixel_store_free(PixelStore **store)
{
    if (!*store)
        return;
    (*store)->backend->interface->pixels->store_free(*store);
    *store = NULL;
}

void pixel_store_memory(const PixelStore *store, MemoryUse *use)
{
    store->backend->interface->pixels->store_memory(store, use);
}

FshStatus pixel_store_put(PixelStore *store, uint64_t offset_bytes, const void *pixels, size_t bytes,
                          FshError *error)
{
    if (offset_bytes > store->bytes || bytes > store->bytes - offset_bytes)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "pixel store: %zu bytes at %llu do not lie in its %llu",
                             bytes, (unsigned long long)offset_bytes, (unsigned long long)store->bytes);
    return store->backend->interface->pixels->store_put(store, offset_bytes, pixels, bytes, error);
}

/* Sets *bytes_ret to the bytes of the stored image, all its planes; false: no memory holds as many, or the
 * planes are more than kernels count in 32 bits. */
static bool stored_bytes(const PixelRecipe *recipe, unsigned side, uint64_t *bytes_ret)
{
    const uint64_t pixels = (uint64_t)recipe->width * recipe->height,
                   chroma = (uint64_t)planes_halved(recipe->width) * planes_halved(recipe->height);
    if (recipe->planes[side])
        return !__builtin_add_overflow(pixels, 2 * chroma, bytes_ret) && *bytes_ret <= UINT32_MAX;
    return !__builtin_mul_overflow(pixels, (uint64_t)recipe->channels[side], bytes_ret);
}

/* Returns whether the recipe stays within its image and the store: kernels read what it says without a
 * check. */
static bool recipe_fits(const PixelRecipe *recipe, unsigned side, const PixelBatch *batch,
                        uint64_t store_bytes)
{
    const uint64_t offset = recipe->offset_bytes[side];
    if (offset == PIXELS_NONE)
        return true;
    const uint32_t taken_width = pixel_columns(recipe, batch->width, batch->height),
                   taken_height = pixel_rows(recipe, batch->width, batch->height);
    uint64_t bytes = 0;
    return (recipe->channels[side] == 3 || (recipe->channels[side] == 1 && !recipe->planes[side])) &&
           stored_bytes(recipe, side, &bytes) && offset <= store_bytes && bytes <= store_bytes - offset &&
           recipe->part_width > 0 && recipe->part_height > 0 &&
           (uint64_t)recipe->part_left + recipe->part_width <= recipe->width &&
           (uint64_t)recipe->part_top + recipe->part_height <= recipe->height &&
           (uint64_t)recipe->window_left + taken_width <= recipe->resized_width &&
           (uint64_t)recipe->window_top + taken_height <= recipe->resized_height;
}

/* Returns whether kernels can do what the operations say: they look nothing up without a check. */
static bool operations_fit(const PixelOperations *operations, const PixelBatch *batch)
{
    bool fit = operations->count <= PIXEL_OPERATIONS_MAX &&
               (operations->count == 0 || (uint64_t)batch->width * batch->height <= INT32_MAX);
    for (uint32_t s = 0; s < operations->count && fit; s++) {
        const PixelOperation *step = &operations->steps[s];
        fit = step->operation < OPERATION_COUNT && step->box.radius >= 0 &&
              (uint32_t)step->box.radius <= INT16_MAX;
    }
    return fit;
}

FshStatus program_write_pixels(Program *program, TensorId input, PixelStore *store, unsigned side,
                               const PixelBatch *batch, FshError *error)
{
    const PixelInterface *pixels = NULL;
    FshStatus status = interface_of(program->state->backend, &pixels, error);
    if (status)
        return status;
    store->refused_count = 0;
    if (input < 0 || (size_t)input >= graph_tensor_count(program->graph) || side > 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "program: no tensor %d in its graph", (int)input);
    const Tensor *tensor = graph_tensor(program->graph, input);
    if (tensor->role != TENSOR_INPUT || tensor->type != DATA_U8 || tensor->rank != 4 ||
        (uint64_t)tensor->shape[0] != batch->count || tensor->shape[1] != (int64_t)batch->height ||
        tensor->shape[2] != (int64_t)batch->width || tensor->shape[3] != (int64_t)batch->channels) {
        char shape[96];
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: %llu images of %u x %u x %u given, but it is %s [%s]", tensor->name,
                             (unsigned long long)batch->count, batch->height, batch->width, batch->channels,
                             data_type_name(tensor->type), tensor_shape_text(tensor, shape, sizeof shape));
    }
    for (uint64_t i = 0; i < batch->count && side == 0 && batch->operations; i++)
        if (!operations_fit(&batch->operations[i], batch))
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: image %llu has operations that are none",
                                 tensor->name, (unsigned long long)i);
    for (uint64_t i = 0; i < batch->count; i++)
        if (!recipe_fits(&batch->recipes[i], side, batch,
                         batch->files[side] ? batch->stored_bytes : store->bytes))
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: the recipe of image %llu goes beyond the store", tensor->name,
                                 (unsigned long long)i);
    return pixels->write(program, input, store, side, batch, error);
}

const uint64_t *pixel_store_refused(const PixelStore *store, size_t *count_ret)
{
    *count_ret = store->refused_count;
    return store->refused_count ? store->refused : NULL;
}

FshStatus backend_decodes(Backend *backend, FshError *error)
{
    const PixelInterface *pixels = NULL;
    FshStatus status = interface_of(backend, &pixels, error);
    return status ? status : pixels->decodes(backend, error);
}

FshStatus backend_free_memory(Backend *backend, uint64_t *free_bytes_ret, FshError *error)
{
    const PixelInterface *pixels = NULL;
    FshStatus status = interface_of(backend, &pixels, error);
    return status ? status : pixels->free_memory(backend, free_bytes_ret, error);
}
