#include "tests/trainer/fake_store.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

typedef struct FakeStore {
    PixelStore base;
    uint8_t *pixels;
} FakeStore;

uint64_t fake_free_bytes = UINT64_C(1) << 40;

static FshStatus fake_new(PixelStore **store, Backend *backend, uint64_t bytes, FshError *error)
{
    (void)error;
    FakeStore *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->base = (PixelStore){.backend = backend, .bytes = bytes};
    made->pixels = malloc(bytes + 1);
    assert_non_null(made->pixels);
    *store = &made->base;
    return FSH_OK;
}

static void fake_free(PixelStore *store)
{
    free(((FakeStore *)store)->pixels);
    free(store);
}

static FshStatus fake_put(PixelStore *store, uint64_t offset, const void *pixels, size_t bytes,
                          FshError *error)
{
    (void)error;
    memcpy(((FakeStore *)store)->pixels + offset, pixels, bytes);
    return FSH_OK;
}

static FshStatus fake_memory(Backend *backend, uint64_t *bytes, FshError *error)
{
    (void)backend;
    (void)error;
    *bytes = fake_free_bytes;
    return FSH_OK;
}

static FshStatus fake_decodes(Backend *backend, FshError *error)
{
    (void)backend;
    (void)error;
    return FSH_OK;
}

static const PixelInterface fake_pixels = {.store_new = fake_new,
                                           .store_free = fake_free,
                                           .store_put = fake_put,
                                           .decodes = fake_decodes,
                                           .free_memory = fake_memory};
static const BackendInterface fake_interface = {.device = "fake", .pixels = &fake_pixels};
Backend fake_backend = {.interface = &fake_interface};

const uint8_t *fake_store_pixels(const PixelStore *store)
{
    return ((const FakeStore *)store)->pixels;
}
