#include "trainer/checkpoint/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/read_fault.h"
#include "common/file.h"

/* Data is used in place, as little endian numbers. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors are read in place: a little endian machine is needed");

static const char metadata_key[] = "__metadata__";

static const char header_checksum_key[] = "fshard.header_xxh3",
                  tensor_checksums_key[] = "fshard.tensors_xxh3";

enum { LENGTH_BYTES = 8, DATA_ALIGNMENT = 8, DIGITS = 16 };

struct Safetensors {
    FileMapping mapping;
    json_t *header;            /* owns the names and the metadata */
    SafetensorsEntry *entries; /* by offset */
    size_t count;
    bool has_checksums;
};

/* ---- checksums ---- */

static void format_checksum(char digits[DIGITS + 1], uint64_t checksum)
{
    (void)snprintf(digits, DIGITS + 1, "%016" PRIx64, checksum);
}

/* Finds the value of a key of checksums in a header's text. NULL: the text has no such key. The pattern can
 * occur nowhere else: inside a string, quotes have a backslash before them. */
static const char *find_checksums(const char *text, size_t text_bytes, const char *key)
{
    char pattern[64];
    const int length = snprintf(pattern, sizeof pattern, "\"%s\":\"", key);
    const char *found = memmem(text, text_bytes, pattern, (size_t)length);
    return found ? found + length : NULL;
}

/* Hashes a header with zeros in place of its own checksum's digits. Returns false without memory. */
static bool hash_header(const char *text, size_t text_bytes, const char *digits, char checksum[DIGITS + 1])
{
    static const char zeros[] = "0000000000000000";
    const size_t before = (size_t)(digits - text), after = text_bytes - before - DIGITS;
    XXH3_state_t *state = XXH3_createState();
    const bool hashed = state && XXH3_64bits_reset(state) == XXH_OK &&
                        XXH3_64bits_update(state, text, before) == XXH_OK &&
                        XXH3_64bits_update(state, zeros, DIGITS) == XXH_OK &&
                        XXH3_64bits_update(state, digits + DIGITS, after) == XXH_OK;
    if (hashed)
        format_checksum(checksum, XXH3_64bits_digest(state));
    (void)XXH3_freeState(state);
    return hashed;
}

/* ---- types ---- */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float f64_at(const uint8_t *bytes)
{
    double value;
    memcpy(&value, bytes, sizeof value);
    return (float)value;
}

static float f32_at(const uint8_t *bytes)
{
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static float f16_at(const uint8_t *bytes)
{
    uint32_t half = bytes[0] | (uint32_t)bytes[1] << 8;
    uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    if (exponent == 0x1F)
        return float_of_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24F;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static float bf16_at(const uint8_t *bytes)
{
    return float_of_bits((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
}

static const struct {
    const char *name;
    uint64_t bytes;
    float (*at)(const uint8_t *bytes); /* NULL: not a floating-point type */
} types[SAFETENSORS_TYPE_COUNT] = {
    [SAFETENSORS_F64] = {"F64", 8, f64_at}, [SAFETENSORS_F32] = {"F32", 4, f32_at},
    [SAFETENSORS_F16] = {"F16", 2, f16_at}, [SAFETENSORS_BF16] = {"BF16", 2, bf16_at},
    [SAFETENSORS_I64] = {"I64", 8, NULL},   [SAFETENSORS_I32] = {"I32", 4, NULL},
    [SAFETENSORS_I16] = {"I16", 2, NULL},   [SAFETENSORS_I8] = {"I8", 1, NULL},
    [SAFETENSORS_U8] = {"U8", 1, NULL},     [SAFETENSORS_BOOL] = {"BOOL", 1, NULL},
};

const char *safetensors_type_name(SafetensorsType type)
{
    return types[type].name;
}

bool safetensors_type_is_float(SafetensorsType type)
{
    return types[type].at != NULL;
}

/* ---- reading ---- */

/* Reads a JSON number as an offset or dimension. Returns false if it is negative or not an integer. */
static bool whole_number(const json_t *value, uint64_t *number_ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number_ret = (uint64_t)json_integer_value(value);
    return true;
}

static FshStatus read_type(const json_t *value, const char *path, SafetensorsEntry *entry, FshError *error)
{
    const char *name = json_string_value(value);
    if (!name)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: tensor %s has no dtype", path, entry->name);
    int type = 0;
    while (type < SAFETENSORS_TYPE_COUNT && strcmp(types[type].name, name) != 0)
        type++;
    if (type == SAFETENSORS_TYPE_COUNT)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: tensor %s has dtype %.32s, which is not read here", path, entry->name,
                             name);
    entry->type = (SafetensorsType)type;
    return FSH_OK;
}

static FshStatus read_shape(const json_t *value, const char *path, SafetensorsEntry *entry, FshError *error)
{
    if (!json_is_array(value))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: tensor %s has no shape", path, entry->name);
    if (json_array_size(value) > SAFETENSORS_RANK_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: tensor %s has %zu dimensions, at most %d are read", path, entry->name,
                             json_array_size(value), SAFETENSORS_RANK_MAX);
    entry->rank = (int)json_array_size(value);
    entry->count = 1;
    for (int i = 0; i < entry->rank; i++)
        if (!whole_number(json_array_get(value, (size_t)i), &entry->shape[i]) ||
            __builtin_mul_overflow(entry->count, entry->shape[i], &entry->count))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: tensor %s has an impossible shape", path,
                                 entry->name);
    return FSH_OK;
}

static FshStatus read_offsets(const json_t *value, const char *path, const uint8_t *data, uint64_t data_bytes,
                              SafetensorsEntry *entry, FshError *error)
{
    uint64_t begin = 0, end = 0, bytes = 0;
    if (json_array_size(value) != 2 || !whole_number(json_array_get(value, 0), &begin) ||
        !whole_number(json_array_get(value, 1), &end) || begin > end || end > data_bytes)
        return fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "%s: tensor %s does not lie within the file's %llu data bytes; copy the file anew", path,
            entry->name, (unsigned long long)data_bytes);
    if (__builtin_mul_overflow(entry->count, types[entry->type].bytes, &bytes) || bytes != end - begin)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: tensor %s has %llu bytes, which is not its shape",
                             path, entry->name, (unsigned long long)(end - begin));
    entry->data = data + begin;
    entry->bytes = bytes;
    return FSH_OK;
}

static FshStatus read_entry(const char *path, const json_t *value, const uint8_t *data, uint64_t data_bytes,
                            SafetensorsEntry *entry, FshError *error)
{
    FshStatus status = read_type(json_object_get(value, "dtype"), path, entry, error);
    if (!status)
        status = read_shape(json_object_get(value, "shape"), path, entry, error);
    if (!status)
        status = read_offsets(json_object_get(value, "data_offsets"), path, data, data_bytes, entry, error);
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const SafetensorsEntry *left = a, *right = b;
    if (left->data != right->data)
        return left->data < right->data ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

/* Checks that tensors follow each other without gap or overlap, up to the last byte. */
static FshStatus check_coverage(const Safetensors *file, const char *path, const uint8_t *data,
                                uint64_t data_bytes, FshError *error)
{
    const uint8_t *expected = data;
    for (size_t i = 0; i < file->count; i++) {
        if (file->entries[i].data != expected)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: tensor %s overlaps another or leaves a gap",
                                 path, file->entries[i].name);
        expected += file->entries[i].bytes;
    }
    if (expected != data + data_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: %llu bytes at the end belong to no tensor", path,
                             (unsigned long long)(data + data_bytes - expected));
    return FSH_OK;
}

static FshStatus check_metadata(const char *path, json_t *metadata, FshError *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: __metadata__ is no object", path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: __metadata__ %.64s is no string", path, key);
    }
    return FSH_OK;
}

static FshStatus check_header(const Safetensors *file, const char *path, uint64_t header_bytes,
                              FshError *error)
{
    const char *text = (const char *)file->mapping.bytes + LENGTH_BYTES;
    const char *digits = find_checksums(text, header_bytes, header_checksum_key);
    const char *stored = safetensors_metadata(file, header_checksum_key);
    char checksum[DIGITS + 1] = "";
    const bool complete = digits && header_bytes - (uint64_t)(digits - text) >= DIGITS && stored &&
                          strlen(stored) == DIGITS && memcmp(stored, digits, DIGITS) == 0;
    if (complete && !hash_header(text, header_bytes, digits, checksum))
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!complete || strcmp(stored, checksum) != 0)
        return fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "%s: damaged: its header does not match its checksum; take another copy (a program "
            "that rewrites weights must leave \"%s\" and \"%s\" out of the metadata)",
            path, header_checksum_key, tensor_checksums_key);
    return FSH_OK;
}

/* Points each entry to its checksum; the header was checked. */
static FshStatus read_checksums(Safetensors *file, const char *path, FshError *error)
{
    const char *checksums = safetensors_metadata(file, tensor_checksums_key);
    const size_t length = checksums ? strlen(checksums) : 0, each = DIGITS + 1;
    if (!checksums || length != (file->count ? file->count * each - 1 : 0))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: \"%s\" does not have %zu checksums, one for each tensor", path,
                             tensor_checksums_key, file->count);
    for (size_t i = 0; i < file->count; i++)
        file->entries[i].checksum = checksums + i * each;
    file->has_checksums = true;
    return FSH_OK;
}

/* Removes the prefix that PyTorch's wrappers DistributedDataParallel and torch.compile add to every name. */
static void drop_wrapper(Safetensors *file)
{
    static const char *const wrappers[] = {"module.", "_orig_mod."};
    for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++) {
        const size_t bytes = strlen(wrappers[w]);
        size_t wrapped = 0;
        while (wrapped < file->count && strncmp(file->entries[wrapped].name, wrappers[w], bytes) == 0)
            wrapped++;
        for (size_t i = 0; i < file->count && wrapped == file->count; i++)
            file->entries[i].name += bytes;
    }
}

static FshStatus read_header(Safetensors *file, const char *path, uint64_t header_bytes, FshError *error)
{
    const uint8_t *data = file->mapping.bytes + LENGTH_BYTES + header_bytes;
    uint64_t data_bytes = file->mapping.length - LENGTH_BYTES - header_bytes;
    json_error_t problem;
    file->header = json_loadb((const char *)file->mapping.bytes + LENGTH_BYTES, header_bytes,
                              JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(file->header))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: damaged: its header is no JSON object (%s); take another copy", path,
                             file->header ? "another value" : problem.text);
    file->entries = calloc(json_object_size(file->header) + 1, sizeof *file->entries);
    if (!file->entries)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for its table of tensors", path);
    const char *key;
    json_t *value;
    json_object_foreach(file->header, key, value)
    {
        FshStatus status;
        if (strcmp(key, metadata_key) == 0) {
            status = check_metadata(path, value, error);
        } else {
            SafetensorsEntry *entry = &file->entries[file->count++];
            entry->name = key;
            status = read_entry(path, value, data, data_bytes, entry, error);
        }
        if (status)
            return status;
    }
    qsort(file->entries, file->count, sizeof *file->entries, by_offset);
    FshStatus status = check_coverage(file, path, data, data_bytes, error);
    drop_wrapper(file);
    /* One of the two strings marks a file of ours: if a bit has flipped in one key, the other is still
     * there. */
    if (status || (!safetensors_metadata(file, header_checksum_key) &&
                   !safetensors_metadata(file, tensor_checksums_key)))
        return status;
    status = check_header(file, path, header_bytes, error);
    return status ? status : read_checksums(file, path, error);
}

/* Returns whether the file was written by torch.save: a zip, formerly a pickle of protocol 2. */
static bool is_pickled(const FileMapping *mapping)
{
    return mapping->length > 4 &&
           (memcmp(mapping->bytes, "PK\3\4", 4) == 0 || memcmp(mapping->bytes, "\x80\2", 2) == 0);
}

FshStatus safetensors_open(Safetensors **file, const char *path, FshError *error)
{
    *file = NULL;
    Safetensors *made = calloc(1, sizeof *made);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    FshStatus status = file_map(path, &made->mapping, error);
    if (!status) { /* all of it is read in any case; here read errors show before anything is used */
        read_fault_touch(made->mapping.bytes, (size_t)made->mapping.length);
        if (file_mapping_check(&made->mapping, 0, made->mapping.length, error))
            status = fsh_error_prepend(error, "%s", path);
    }
    if (status)
        goto done;
    uint64_t header_bytes = 0;
    if (made->mapping.length >= LENGTH_BYTES)
        memcpy(&header_bytes, made->mapping.bytes, LENGTH_BYTES);
    if (made->mapping.length < LENGTH_BYTES + 2 || header_bytes > SAFETENSORS_HEADER_MAX_BYTES ||
        header_bytes > made->mapping.length - LENGTH_BYTES || made->mapping.bytes[LENGTH_BYTES] != '{') {
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               is_pickled(&made->mapping) ? "%s: a file of torch.save; convert it: "
                                                            "python3 -m fshard.convert FILE OUT.safetensors"
                                                          : "%s: not a safetensors file, or cut short",
                               path);
        goto done;
    }
    status = read_header(made, path, header_bytes, error);
done:
    if (status)
        safetensors_close(&made);
    *file = made;
    return status;
}

void safetensors_close(Safetensors **file)
{
    if (!*file)
        return;
    json_decref((*file)->header);
    free((*file)->entries);
    file_unmap(&(*file)->mapping);
    free(*file);
    *file = NULL;
}

size_t safetensors_count(const Safetensors *file)
{
    return file->count;
}

const SafetensorsEntry *safetensors_entry(const Safetensors *file, size_t number)
{
    return &file->entries[number];
}

const SafetensorsEntry *safetensors_find(const Safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0)
            return &file->entries[i];
    return NULL;
}

const char *safetensors_metadata(const Safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, metadata_key), key));
}

FshStatus safetensors_read_f32(const SafetensorsEntry *entry, float *values, uint64_t count, FshError *error)
{
    if (count != entry->count)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "tensor %s has %llu numbers, %llu are wanted",
                             entry->name, (unsigned long long)entry->count, (unsigned long long)count);
    if (!safetensors_type_is_float(entry->type))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "tensor %s is %s, a floating-point type is wanted",
                             entry->name, types[entry->type].name);
    for (uint64_t i = 0; i < count; i++)
        values[i] = types[entry->type].at(entry->data + i * types[entry->type].bytes);
    return FSH_OK;
}

FshStatus safetensors_check(const Safetensors *file, const char *path, FshError *error)
{
    for (size_t i = 0; i < file->count && file->has_checksums; i++) {
        const SafetensorsEntry *entry = &file->entries[i];
        char checksum[DIGITS + 1];
        format_checksum(checksum, XXH3_64bits(entry->data, entry->bytes));
        if (memcmp(entry->checksum, checksum, DIGITS) != 0)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "%s: damaged: tensor %s does not match its checksum; take another copy",
                                 path, entry->name);
    }
    return FSH_OK;
}

/* ---- writing ---- */

typedef struct Placed {
    size_t number; /* index in the caller's list */
    uint64_t begin, end;
} Placed;

/* Sets offsets: tensors with wide elements first, those of equal width in the caller's order. */
static FshStatus place_tensors(const SafetensorsTensor *tensors, size_t tensor_count, Placed *placed,
                               uint64_t *largest_ret, FshError *error)
{
    uint64_t offset = 0;
    size_t done = 0;
    *largest_ret = 1;
    for (uint64_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < tensor_count; i++) {
            if (types[tensors[i].type].bytes != width)
                continue;
            uint64_t bytes = width;
            bool overflow = false;
            for (int d = 0; d < tensors[i].rank; d++)
                overflow |= __builtin_mul_overflow(bytes, tensors[i].shape[d], &bytes);
            placed[done] = (Placed){.number = i, .begin = offset};
            overflow |= __builtin_add_overflow(offset, bytes, &offset);
            placed[done].end = offset;
            if (overflow || bytes > SIZE_MAX)
                return fsh_error_set(error, FSH_ERR_MEMORY, "tensor %s is too large to be written",
                                     tensors[i].name);
            *largest_ret = bytes > *largest_ret ? bytes : *largest_ret;
            done++;
        }
    }
    return FSH_OK;
}

static json_t *tensor_json(const SafetensorsTensor *tensor, const Placed *placed)
{
    json_t *shape = json_array();
    for (int d = 0; d < tensor->rank; d++)
        (void)json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[tensor->type].name, "shape", shape,
                     "data_offsets", (json_int_t)placed->begin, (json_int_t)placed->end);
}

/* Takes over text, and returns it padded with spaces to DATA_ALIGNMENT. NULL: no memory. */
static char *pad(char *text)
{
    const size_t text_bytes = strlen(text);
    const size_t padding = (DATA_ALIGNMENT - text_bytes % DATA_ALIGNMENT) % DATA_ALIGNMENT;
    char *padded = realloc(text, text_bytes + padding + 1);
    if (!padded) {
        free(text);
        return NULL;
    }
    memset(padded + text_bytes, ' ', padding);
    padded[text_bytes + padding] = '\0';
    return padded;
}

/* Returns a text with room for `count` checksums: zeros separated by spaces. NULL: no memory. */
static char *blank_checksums(size_t count)
{
    char *text = malloc(count * (DIGITS + 1) + 1);
    for (size_t i = 0; text && i < count; i++)
        (void)snprintf(text + i * (DIGITS + 1), DIGITS + 2, "%016d ", 0);
    if (text)
        text[count ? count * (DIGITS + 1) - 1 : 0] = '\0';
    return text;
}

/* Returns the header as text, with blank checksums and padded with spaces to the alignment of the data. NULL:
 * no memory. Free it with free(). */
static char *header_text(const SafetensorsTensor *tensors, const Placed *placed, size_t tensor_count,
                         const SafetensorsMetadata *metadata, size_t metadata_count)
{
    json_t *header = json_object();
    json_t *strings = json_object();
    char *checksums = blank_checksums(tensor_count);
    int failed = json_object_set_new(strings, header_checksum_key, json_string("0000000000000000"));
    failed |= json_object_set_new(strings, tensor_checksums_key, json_string(checksums));
    for (size_t i = 0; i < metadata_count; i++)
        failed |= json_object_set_new(strings, metadata[i].key, json_string(metadata[i].value));
    failed |= json_object_set_new(header, metadata_key, strings);
    for (size_t i = 0; i < tensor_count; i++) {
        const SafetensorsTensor *tensor = &tensors[placed[i].number];
        failed |= json_object_set_new(header, tensor->name, tensor_json(tensor, &placed[i]));
    }
    char *text = failed ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    free(checksums);
    return text ? pad(text) : NULL;
}

static FshStatus write_header(AtomicFile *file, const char *text, FshError *error)
{
    const uint64_t header_bytes = strlen(text);
    FshStatus status = atomic_file_write(file, &header_bytes, sizeof header_bytes, error);
    return status ? status : atomic_file_write(file, text, header_bytes, error);
}

/* Writes the header again, now with its own checksum; all others must be in the text. */
static FshStatus seal_header(AtomicFile *file, char *text, FshError *error)
{
    const size_t text_bytes = strlen(text);
    char checksum[DIGITS + 1];
    char *digits = (char *)find_checksums(text, text_bytes, header_checksum_key);
    if (!hash_header(text, text_bytes, digits, checksum))
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", file->path);
    memcpy(digits, checksum, DIGITS);
    return atomic_file_rewrite(file, LENGTH_BYTES, text, text_bytes, error);
}

FshStatus safetensors_write(const char *path, const SafetensorsTensor *tensors, size_t tensor_count,
                            const SafetensorsMetadata *metadata, size_t metadata_count, SafetensorsRead read,
                            void *context, FshError *error)
{
    AtomicFile file = {.descriptor = -1};
    char *text = NULL;
    void *values = NULL;
    uint64_t largest = 0;
    FshStatus status;
    Placed *placed = calloc(tensor_count + 1, sizeof *placed);
    if (!placed) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    status = place_tensors(tensors, tensor_count, placed, &largest, error);
    if (status)
        goto done;
    text = header_text(tensors, placed, tensor_count, metadata, metadata_count);
    values = malloc(largest);
    if (!text || !values) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    if (strlen(text) > SAFETENSORS_HEADER_MAX_BYTES) {
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "%s: its header, with names of classes, would have %zu bytes; safetensors "
                               "allows %d",
                               path, strlen(text), SAFETENSORS_HEADER_MAX_BYTES);
        goto done;
    }
    status = atomic_file_open(&file, path, true, error);
    if (!status)
        status = write_header(&file, text, error);
    char *checksums = (char *)find_checksums(text, strlen(text), tensor_checksums_key);
    for (size_t i = 0; !status && i < tensor_count; i++) {
        const size_t bytes = placed[i].end - placed[i].begin;
        char checksum[DIGITS + 1];
        status = read(placed[i].number, values, context, error);
        format_checksum(checksum, status ? 0 : XXH3_64bits(values, bytes));
        memcpy(checksums + i * (DIGITS + 1), checksum, DIGITS);
        if (!status)
            status = atomic_file_write(&file, values, bytes, error);
        if (!status)
            atomic_file_send(&file);
    }
    if (!status)
        status = seal_header(&file, text, error);
    if (!status)
        status = atomic_file_commit(&file, true, error);
done:
    atomic_file_abandon(&file);
    free(values);
    free(text);
    free(placed);
    return status;
}
