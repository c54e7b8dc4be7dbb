/* safetensors.h - files of named tensors, as PyTorch, timm and Hugging Face read them.
 *
 *   Safetensors *file = NULL;
 *   if (!safetensors_open(&file, "resnet18.safetensors", &error)) {
 *       const SafetensorsEntry *entry = safetensors_find(file, "conv1.weight");
 *       safetensors_read_f32(entry, weights, 64 * 3 * 7 * 7, &error);
 *   }
 *   safetensors_close(&file);
 *
 * Format (https://huggingface.co/docs/safetensors): 8 bytes, the header's length, little endian; the header,
 * a JSON object that gives each tensor its dtype, shape and offsets, and strings under "__metadata__"; then
 * the tensors' bytes, little endian, in row-major order, without gaps.
 *
 * Every length, offset and shape of a file is checked before use; a hostile file gives FSH_ERR_CORRUPT.
 *
 * Files written here carry checksums (XXH3-64, 16 hexadecimal digits each) as two strings of the metadata:
 * "fshard.tensors_xxh3" has one for the bytes of each tensor, in the order of the file, separated by spaces;
 * "fshard.header_xxh3" is that of the header as it is in the file, with "0" for its own 16 digits. So any
 * changed byte is found: in the header by safetensors_open, in a tensor by safetensors_check. Files of other
 * programs have no checksums. A program that rewrites a file must leave both strings out. Threads: an open
 * file is constant. */
#ifndef FSHARD_TRAINER_CHECKPOINT_SAFETENSORS_H
#define FSHARD_TRAINER_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum {
    SAFETENSORS_RANK_MAX = 8,
    SAFETENSORS_HEADER_MAX_BYTES = 100000000 /* the limit of the reference implementation */
};

typedef enum SafetensorsType {
    SAFETENSORS_F64,
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I64,
    SAFETENSORS_I32,
    SAFETENSORS_I16,
    SAFETENSORS_I8,
    SAFETENSORS_U8,
    SAFETENSORS_BOOL,
    SAFETENSORS_TYPE_COUNT
} SafetensorsType;

/* Returns "F32", …; static. */
const char *safetensors_type_name(SafetensorsType type);
/* Returns whether safetensors_read_f32 converts this type. */
bool safetensors_type_is_float(SafetensorsType type);

typedef struct SafetensorsEntry {
    const char *name; /* owned by the file; without the prefix "module." or "_orig_mod.", if all names have
                       * it */
    SafetensorsType type;
    int rank;
    uint64_t shape[SAFETENSORS_RANK_MAX];
    uint64_t count;      /* product of shape */
    const uint8_t *data; /* into the mapping, any alignment */
    uint64_t bytes;
    const char *checksum; /* 16 digits, not NUL-terminated; owned by the file; NULL: the file has none */
} SafetensorsEntry;

typedef struct Safetensors Safetensors;

/* Opens a file and checks its header. FSH_ERR_NOT_FOUND; FSH_ERR_CORRUPT, also if the header does not match
 * its checksum; FSH_ERR_UNSUPPORTED: a dtype or rank that this reader does not know. */
FshStatus safetensors_open(Safetensors **file, const char *path, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void safetensors_close(Safetensors **file);

/* Return the number of tensors, and tensor `number`, in the order of the file. */
size_t safetensors_count(const Safetensors *file);
const SafetensorsEntry *safetensors_entry(const Safetensors *file, size_t number);
/* Returns the tensor of this name; NULL: there is none. */
const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name);
/* Returns a string of "__metadata__"; NULL: there is none. */
const char *safetensors_metadata(const Safetensors *file, const char *key);

/* Reads every tensor and compares its checksum, if the file has checksums. FSH_ERR_CORRUPT names path and the
 * first tensor that does not match. */
FshStatus safetensors_check(const Safetensors *file, const char *path, FshError *error);

/* Converts F64, F32, F16 or BF16 to values. FSH_ERR_MISMATCH: another type, or count is not the entry's. */
FshStatus safetensors_read_f32(const SafetensorsEntry *entry, float *values, uint64_t count, FshError *error);

/* A tensor to write. */
typedef struct SafetensorsTensor {
    const char *name;
    SafetensorsType type;
    int rank;
    uint64_t shape[SAFETENSORS_RANK_MAX];
} SafetensorsTensor;

typedef struct SafetensorsMetadata {
    const char *key, *value;
} SafetensorsMetadata;

/* Fills values with tensor `number` of the caller's list; there is room for all of it. */
typedef FshStatus (*SafetensorsRead)(size_t number, void *values, void *context, FshError *error);

/* Writes path atomically: it is the old file or the complete new one. Tensors with wider elements come first,
 * so that each is aligned to its elements. Calls read once for each tensor, one at a time. */
FshStatus safetensors_write(const char *path, const SafetensorsTensor *tensors, size_t tensor_count,
                            const SafetensorsMetadata *metadata, size_t metadata_count, SafetensorsRead read,
                            void *context, FshError *error);

#endif
