/* fake_store.h - a backend that keeps pixels in memory of malloc, and renders nothing. */
#ifndef FSHARD_TESTS_TRAINER_FAKE_STORE_H
#define FSHARD_TESTS_TRAINER_FAKE_STORE_H

#include "trainer/backend/pixels.h"

extern Backend fake_backend;
/* What backend_free_memory says: a terabyte, until a test sets it. */
extern uint64_t fake_free_bytes;

/* Returns the pixels of a store of fake_backend. */
const uint8_t *fake_store_pixels(const PixelStore *store);

#endif
