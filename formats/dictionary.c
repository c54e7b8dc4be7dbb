/* zstd dictionaries: what a dataset says of its own, and how one is trained. */

#include "formats/dictionary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <zdict.h>

#include "formats/names.h"
#include "formats/xxh3.h"

FshStatus fsh_dictionary_describe(const void *dictionary, size_t bytes, FshDictionaryInfo *info_ret,
                                  FshError *error)
{
    *info_ret = (FshDictionaryInfo){0};
    if (!dictionary || bytes < DICTIONARY_BYTES_MIN || bytes > FSH_DICTIONARY_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "a dictionary of %zu bytes; %d to %d are possible", bytes,
                             DICTIONARY_BYTES_MIN, FSH_DICTIONARY_BYTES_MAX);
    uint32_t id = ZDICT_getDictID(dictionary, bytes);
    /* Zero for bytes without zstd's header too. Those could be used as mere content, but then nothing tells
     * them from a file that was named by mistake. */
    if (id == 0)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%zu bytes that are no zstd dictionary; zstd --train or fpack --dictionary makes one", bytes);
    *info_ret =
        (FshDictionaryInfo){.bytes = (uint32_t)bytes, .id = id, .hash = fsh_hash_bytes(dictionary, bytes)};
    return FSH_OK;
}

bool fsh_dictionary_info_equal(const FshDictionaryInfo *a, const FshDictionaryInfo *b)
{
    return a->bytes == b->bytes && a->id == b->id && fsh_hash_equal(&a->hash, &b->hash);
}

FshStatus fsh_dictionary_check(const void *dictionary, size_t bytes, const FshDictionaryInfo *expected,
                               FshError *error)
{
    FshDictionaryInfo found = {0};
    if (bytes != expected->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "holds a dictionary of %zu bytes where its metadata says %" PRIu32, bytes,
                             expected->bytes);
    if (bytes && fsh_dictionary_describe(dictionary, bytes, &found, NULL))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its dictionary of %zu bytes is none of zstd's", bytes);
    if (!fsh_dictionary_info_equal(&found, expected))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its dictionary is not the one that its metadata names");
    return FSH_OK;
}

FshStatus fsh_dictionary_train(const void *samples, const size_t *sizes, size_t count, size_t capacity,
                               void **dictionary_ret, size_t *dictionary_bytes_ret, FshError *error)
{
    *dictionary_ret = NULL;
    *dictionary_bytes_ret = 0;
    if (capacity < DICTIONARY_BYTES_MIN || capacity > FSH_DICTIONARY_BYTES_MAX || count > UINT32_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "a dictionary of %zu bytes from %zu samples; %d to %d bytes are possible",
                             capacity, count, DICTIONARY_BYTES_MIN, FSH_DICTIONARY_BYTES_MAX);
    void *dictionary = malloc(capacity);
    if (!dictionary)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a dictionary of %zu bytes", capacity);
    /* The stable call: one thread, no randomness, and an id that follows from the content. */
    size_t bytes = ZDICT_trainFromBuffer(dictionary, capacity, samples, sizes, (unsigned)count);
    FshDictionaryInfo info;
    FshStatus status = FSH_OK;
    if (ZDICT_isError(bytes))
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "no dictionary of %zu bytes comes of %zu samples: %s; it takes more samples, or a smaller one",
            capacity, count, ZDICT_getErrorName(bytes));
    else
        status = fsh_dictionary_describe(dictionary, bytes, &info, error);
    if (status) {
        free(dictionary);
        return status;
    }
    *dictionary_ret = dictionary;
    *dictionary_bytes_ret = bytes;
    return FSH_OK;
}
