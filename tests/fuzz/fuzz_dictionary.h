/* fuzz_dictionary.h - a small zstd dictionary, the same each time: for the seeds and for the target
 * "unpack". */
#ifndef FSHARD_TESTS_FUZZ_FUZZ_DICTIONARY_H
#define FSHARD_TESTS_FUZZ_FUZZ_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { FUZZ_PICTURE_BYTES = 96 };

/* Fills picture with a payload that the dictionary helps with. */
void fuzz_picture(uint64_t number, uint8_t picture[FUZZ_PICTURE_BYTES]);

/* Trains a dictionary on such payloads. The caller frees *dictionary_ret, of *bytes_ret bytes. */
FshStatus fuzz_dictionary_train(void **dictionary_ret, size_t *bytes_ret, FshError *error);

#endif
