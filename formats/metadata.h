/* metadata.h - what every file of records says of its dataset. The JSON stands in fshard(5). */
#ifndef FSHARD_FORMATS_METADATA_H
#define FSHARD_FORMATS_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/fshard.h"
#include "formats/names.h"

typedef struct Metadata {
    char id[FSH_ID_DIGITS + 1];
    char *split; /* all owned */
    FshKind kind;
    char **field_names;
    size_t field_count;
    char **class_names; /* NULL for pairs */
    size_t class_count;
    FshDictionaryInfo dictionary; /* bytes 0: none */
    char *text;                   /* as in a shard's header, where fsh_metadata_make made it; else NULL */
    size_t text_bytes;
} Metadata;

enum { METADATA_BYTES_MIN = 2, METADATA_BYTES_MAX = 64 << 20, METADATA_NO_COUNT = -1 };

/* Makes what the files of a manifest's split say: id, kind, fields, classes and dictionary are copied and
 * checked, the rest of the manifest is not looked at. FSH_ERR_USAGE for what fshard(5) does not allow. On
 * failure *metadata is empty. */
FshStatus fsh_metadata_make(Metadata *metadata, const FshManifest *manifest, const char *split,
                            FshError *error);
/* Writes metadata as JSON, *bytes_ret bytes in *text_ret, which the caller frees. count: METADATA_NO_COUNT
 * for shards, the number of samples for LMDB. */
FshStatus fsh_metadata_encode(const Metadata *metadata, int64_t count, char **text_ret, size_t *bytes_ret,
                              FshError *error);
/* Reads metadata from JSON. *count_ret: the number of samples of an LMDB; count_ret is NULL for shards. On
 * failure *metadata is empty. FSH_ERR_CORRUPT. */
FshStatus fsh_metadata_parse(Metadata *metadata, const char *text, size_t bytes, uint64_t *count_ret,
                             FshError *error);
/* Compares a file's metadata with what is expected. FSH_ERR_CORRUPT names the first thing that differs.
 * count_ret as for fsh_metadata_parse. */
FshStatus fsh_metadata_compare(const char *text, size_t bytes, uint64_t *count_ret, const Metadata *expected,
                               FshError *error);
/* Does the same with metadata that were read already. */
FshStatus fsh_metadata_compare_parsed(const Metadata *found, const Metadata *expected, FshError *error);
/* Returns whether the text is the one that fsh_metadata_make has made of what is expected: then nothing need
 * be read. */
bool fsh_metadata_is_same(const char *text, size_t bytes, const Metadata *expected);
/* Moves metadata into *to; frees it where to is NULL. */
void fsh_metadata_hand_over(Metadata *metadata, Metadata *to);
void fsh_metadata_free(Metadata *metadata);

#endif
