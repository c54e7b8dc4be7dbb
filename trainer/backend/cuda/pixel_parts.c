#include "trainer/backend/cuda/pixel_parts.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/backend/cuda/device/device.h"

uint64_t pixel_parts_room(uint64_t bytes)
{
    enum { BLOCK_BYTES = 4 << 20 };
    return (bytes / BLOCK_BYTES + 1) * BLOCK_BYTES;
}

FshStatus pixel_parts_key(void *memory, PixelStoreKey *key, FshError *error)
{
    cudaIpcMemHandle_t handle;
    _Static_assert(sizeof handle == sizeof key->handle, "a key holds CUDA's handle");
    FshStatus status = CUDA_TRY(cudaIpcGetMemHandle(&handle, memory), error);
    if (!status)
        memcpy(key->handle, &handle, sizeof handle);
    return status ? fsh_error_prepend(error, "cuda: pixels for other GPUs") : FSH_OK;
}

/* Opens the memory of another process, on its GPU. */
static FshStatus open_part(PixelPart *part, const PixelStoreKey *key, FshError *error)
{
    cudaIpcMemHandle_t handle;
    FshError why = {0};
    memcpy(&handle, key->handle, sizeof handle);
    if (CUDA_TRY(cudaIpcOpenMemHandle(&part->opened, handle, cudaIpcMemLazyEnablePeerAccess), &why) == FSH_OK)
        return FSH_OK;
    part->opened = NULL;
    (void)cudaGetLastError(); /* it is told here */
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "the GPUs cannot reach each other's memory (%s)",
                         why.message);
}

FshStatus pixel_parts_open(PixelParts *parts, const void *memory, const PixelStoreKey *keys, size_t count,
                           size_t own, FshError *error)
{
    FshStatus status = FSH_OK;
    parts->parts = calloc(count, sizeof *parts->parts);
    if (!parts->parts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu parts of the pixels", count);
    parts->count = count;
    for (size_t i = 0; i < count && !status; i++) {
        PixelPart *part = &parts->parts[i];
        part->begin_bytes = keys[i].begin_bytes;
        if (i != own && keys[i].bytes)
            status = open_part(part, &keys[i], error);
        const void *begin = part->opened ? part->opened : memory;
        part->shift = (uint64_t)(uintptr_t)begin - (uint64_t)(uintptr_t)memory - part->begin_bytes;
    }
    return status;
}

void pixel_parts_close(PixelParts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        if (parts->parts[i].opened)
            (void)cudaIpcCloseMemHandle(parts->parts[i].opened);
    free(parts->parts);
    *parts = (PixelParts){NULL, 0};
}

void pixel_parts_find(const PixelParts *parts, PixelRecipe *recipes, uint64_t count, unsigned side)
{
    for (uint64_t i = 0; i < count && parts->count; i++) {
        uint64_t *offset = &recipes[i].offset_bytes[side];
        size_t part = parts->count - 1;
        while (part > 0 && parts->parts[part].begin_bytes > *offset)
            part--;
        if (*offset != PIXELS_NONE)
            *offset += parts->parts[part].shift;
    }
}
