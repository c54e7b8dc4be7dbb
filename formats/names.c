#include "formats/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

static const struct {
    FshCodec codec;
    const char *name;
} codecs[] = {
    {FSH_CODEC_RAW, "raw"},   {FSH_CODEC_JPEG, "jpeg"},   {FSH_CODEC_PNG, "png"}, {FSH_CODEC_WEBP, "webp"},
    {FSH_CODEC_TIFF, "tiff"}, {FSH_CODEC_GIF, "gif"},     {FSH_CODEC_BMP, "bmp"}, {FSH_CODEC_PNM, "pnm"},
    {FSH_CODEC_Y4M, "y4m"},   {FSH_CODEC_OTHER, "other"},
};

/* Indexed by FshKind. */
static const char *const kind_names[] = {NULL, "classes", "pairs", "masks"};

static const char lower_digits[] = "0123456789abcdef";

bool fsh_codec_known(unsigned codec)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if ((unsigned)codecs[i].codec == codec)
            return true;
    }
    return false;
}

const char *fsh_codec_name(FshCodec codec)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if (codecs[i].codec == codec)
            return codecs[i].name;
    }
    return "unknown";
}

const char *fsh_compression_name(FshCompression compression)
{
    switch (compression) {
    case FSH_COMPRESSION_NONE:
        return "none";
    case FSH_COMPRESSION_ZSTD:
        return "zstd";
    case FSH_COMPRESSION_FILE:
        return "file";
    }
    return "unknown";
}

bool fsh_cache_from_name(const char *text, FshCache *cache_ret)
{
    static const char *const names[] = {"none", "ram", "lock"}; /* indexed by FshCache */
    for (int i = FSH_CACHE_NONE; i <= FSH_CACHE_LOCK; i++) {
        if (strcmp(text, names[i]) == 0) {
            *cache_ret = (FshCache)i;
            return true;
        }
    }
    return false;
}

bool fsh_id_valid(const char *id)
{
    return strlen(id) == FSH_ID_DIGITS && strspn(id, lower_digits) == FSH_ID_DIGITS;
}

bool fsh_split_name_valid(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t length = strlen(name);
    return length >= 1 && length <= 64 && name[0] != '-' && name[0] != '_' && strspn(name, letters) == length;
}

const char *fsh_path_name(const char *path, size_t *length_ret)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    *length_ret = end - begin;
    return path + begin;
}

bool fsh_file_name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 255 && name[0] != '.' && !strchr(name, '/');
}

const char *fsh_kind_name(FshKind kind)
{
    return kind_names[kind];
}

bool fsh_kind_from_name(const char *text, FshKind *kind_ret)
{
    for (int i = FSH_KIND_CLASSES; i <= FSH_KIND_MASKS; i++) {
        if (strcmp(text, kind_names[i]) == 0) {
            *kind_ret = (FshKind)i;
            return true;
        }
    }
    return false;
}

bool fsh_is_mask(FshKind kind, size_t field)
{
    return kind == FSH_KIND_MASKS && field == FSH_MASK_FIELD;
}

void fsh_hash_format(const FshHash128 *hash, char text[FSH_HASH_TEXT_BYTES])
{
    for (size_t i = 0; i < sizeof hash->bytes; i++) {
        text[2 * i] = lower_digits[hash->bytes[i] >> 4];
        text[2 * i + 1] = lower_digits[hash->bytes[i] & 15];
    }
    text[FSH_HASH_TEXT_BYTES - 1] = '\0';
}

bool fsh_hash_parse(const char *text, FshHash128 *hash_ret)
{
    if (strlen(text) != FSH_HASH_TEXT_BYTES - 1 || strspn(text, lower_digits) != FSH_HASH_TEXT_BYTES - 1)
        return false;
    for (size_t i = 0; i < sizeof hash_ret->bytes; i++) {
        size_t high = (size_t)(strchr(lower_digits, text[2 * i]) - lower_digits);
        size_t low = (size_t)(strchr(lower_digits, text[2 * i + 1]) - lower_digits);
        hash_ret->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool fsh_hash_equal(const FshHash128 *a, const FshHash128 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

const char *fsh_split_name(size_t index)
{
    static const char *const names[FSH_SPLIT_COUNT] = {"train", "val", "test"};
    return names[index];
}

/* What people call the folders of splits, and which split of fsh_split_name each is. */
static const struct {
    const char *name;
    size_t split;
} split_folders[] = {
    {"train", 0}, {"training", 0}, {"val", 1}, {"valid", 1}, {"validation", 1}, {"test", 2}, {"testing", 2},
};

size_t fsh_split_of_folder(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof split_folders / sizeof split_folders[0]; i++) {
        if (strlen(split_folders[i].name) == length && memcmp(split_folders[i].name, name, length) == 0)
            return split_folders[i].split;
    }
    return FSH_SPLIT_COUNT;
}

const char *fsh_split_in_small_letters(const char *name)
{
    for (size_t i = 0; i < sizeof split_folders / sizeof split_folders[0]; i++) {
        if (strcasecmp(split_folders[i].name, name) == 0)
            return strcmp(split_folders[i].name, name) ? split_folders[i].name : NULL;
    }
    return NULL;
}

bool fsh_are_split_names(char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fsh_split_of_folder(names[i], strlen(names[i])) == FSH_SPLIT_COUNT &&
            !fsh_split_in_small_letters(names[i]))
            return false;
    }
    return count > 0;
}

/* ---- lists ---- */

FshStatus fsh_names_copy(char ***copy_ret, const char *const *names, size_t count, FshError *error)
{
    *copy_ret = NULL;
    if (count == 0)
        return FSH_OK;
    char **copy = calloc(count, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = strdup(names[i]);
        if (!copy[i]) {
            fsh_names_free(copy, count);
            copy = NULL;
        }
    }
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    *copy_ret = copy;
    return FSH_OK;
}

void fsh_names_free(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++) {
        free(names[i]);
    }
    free(names);
}

bool fsh_names_equal(char *const *a, size_t a_count, char *const *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++) {
        if (strcmp(a[i], b[i]) != 0)
            return false;
    }
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

FshStatus fsh_names_check(const char *what, const char *const *names, size_t count, FshError *error)
{
    if (count == 0)
        return FSH_OK;
    for (size_t i = 0; i < count; i++) {
        if (!names[i] || !names[i][0])
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: entry %zu is %s", what, i,
                                 names[i] ? "empty" : "not a string");
        if (!text_is_utf8(names[i]))
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: entry %zu is not UTF-8; rename it", what, i);
    }
    /* Sorted, so that 20,000 classes are no problem. */
    const char **sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    memcpy(sorted, names, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    FshStatus status = FSH_OK;
    for (size_t i = 1; i < count && !status; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = fsh_error_set(error, FSH_ERR_USAGE, "%s: \"%s\" is there twice", what, sorted[i]);
    }
    free(sorted);
    return status;
}
