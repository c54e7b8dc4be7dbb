/* dictionary.h - zstd dictionaries: what is said of one, and its prepared form. */
#ifndef FSHARD_FORMATS_DICTIONARY_H
#define FSHARD_FORMATS_DICTIONARY_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/fshard.h"

enum { DICTIONARY_BYTES_MIN = 256 }; /* zstd trains none that is smaller */

bool fsh_dictionary_info_equal(const FshDictionaryInfo *a, const FshDictionaryInfo *b);
/* Checks that a file's dictionary (0 bytes: it has none) is the one that its metadata names.
 * FSH_ERR_CORRUPT. */
FshStatus fsh_dictionary_check(const void *dictionary, size_t bytes, const FshDictionaryInfo *expected,
                               FshError *error);
/* zstd's own form of a dictionary, which any number of threads decompress with. FSH_ERR_CORRUPT. */
struct ZSTD_DDict_s;
FshStatus fsh_dictionary_prepare(const void *dictionary, size_t bytes, struct ZSTD_DDict_s **prepared_ret,
                                 FshError *error);
/* Frees a prepared dictionary; NULL is fine. */
void fsh_dictionary_release(struct ZSTD_DDict_s *prepared);

#endif
