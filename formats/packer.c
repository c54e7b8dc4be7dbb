/* Fields to zstd frames.
 *
 * A frame states its content's size, so that a plain zstd reads it, and leaves out what the record and the
 * dataset know already: a checksum and the dictionary's id. On 900-byte images those would be 3 % of a
 * frame. */

#include <stdlib.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "common/file.h"
#include "formats/fshard.h"

struct FshPacker {
    ZSTD_CCtx *context;
    ZSTD_CDict *dictionary;
    Buffer frames[FSH_FIELDS_MAX]; /* of the sample's fields */
};

static FshStatus fail_zstd(size_t code, FshError *error)
{
    FshStatus status =
        ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "zstd: %s", ZSTD_getErrorName(code));
}

static FshStatus set_parameters(ZSTD_CCtx *context, int level, FshError *error)
{
    const struct {
        ZSTD_cParameter name;
        int value;
    } parameters[] = {{ZSTD_c_compressionLevel, level},
                      {ZSTD_c_contentSizeFlag, 1},
                      {ZSTD_c_checksumFlag, 0},
                      {ZSTD_c_dictIDFlag, 0}};
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        size_t code = ZSTD_CCtx_setParameter(context, parameters[i].name, parameters[i].value);
        if (ZSTD_isError(code))
            return fail_zstd(code, error);
    }
    return FSH_OK;
}

static FshStatus load_dictionary(FshPacker *packer, int level, const void *dictionary, size_t bytes,
                                 FshError *error)
{
    FshDictionaryInfo info;
    FshStatus status = fsh_dictionary_describe(dictionary, bytes, &info, error);
    if (status)
        return status;
    packer->dictionary = ZSTD_createCDict(dictionary, bytes, level);
    if (!packer->dictionary) /* zstd does not say which; tables that make no sense are far likelier */
        return fsh_error_set(error, FSH_ERR_USAGE, "the dictionary of %zu bytes is damaged", bytes);
    size_t code = ZSTD_CCtx_refCDict(packer->context, packer->dictionary);
    return ZSTD_isError(code) ? fail_zstd(code, error) : FSH_OK;
}

FshStatus fsh_packer_new(FshPacker **packer_ret, int level, const void *dictionary, size_t dictionary_bytes,
                         FshError *error)
{
    *packer_ret = NULL;
    if (level < 1 || level > FSH_PACK_LEVEL_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "level %d of zstd; 1 to %d are possible", level,
                             FSH_PACK_LEVEL_MAX);
    FshPacker *packer = calloc(1, sizeof *packer);
    if (packer)
        packer->context = ZSTD_createCCtx();
    FshStatus status = packer && packer->context
                           ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for compressing");
    if (!status)
        status = set_parameters(packer->context, level, error);
    if (!status && dictionary_bytes)
        status = load_dictionary(packer, level, dictionary, dictionary_bytes, error);
    if (status)
        fsh_packer_free(&packer);
    *packer_ret = packer;
    return status;
}

void fsh_packer_free(FshPacker **packer_ret)
{
    FshPacker *packer = *packer_ret;
    if (!packer)
        return;
    for (size_t i = 0; i < FSH_FIELDS_MAX; i++) {
        buffer_free(&packer->frames[i]);
    }
    (void)ZSTD_freeCCtx(packer->context);
    (void)ZSTD_freeCDict(packer->dictionary);
    free(packer);
    *packer_ret = NULL;
}

static FshStatus pack_field(ZSTD_CCtx *context, Buffer *frame, FshField *field, FshError *error)
{
    field->unpacked_bytes = field->bytes;
    if (field->bytes > FSH_UNPACKED_BYTES_MAX)
        return FSH_OK;
    FshStatus status = buffer_reserve(frame, ZSTD_compressBound(field->bytes), error);
    if (status)
        return status;
    size_t bytes = ZSTD_compress2(context, frame->bytes, frame->capacity, field->data, field->bytes);
    if (ZSTD_isError(bytes))
        return fail_zstd(bytes, error);
    if (bytes >= field->bytes)
        return FSH_OK;
    field->data = frame->bytes;
    field->bytes = bytes;
    field->compression = FSH_COMPRESSION_ZSTD;
    return FSH_OK;
}

FshStatus fsh_sample_pack(FshPacker *packer, const FshSample *sample, FshSample *packed, FshError *error)
{
    FshSample result = *sample;
    FshStatus status = FSH_OK;
    if (sample->field_count > FSH_FIELDS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%u fields; at most %d are possible", sample->field_count,
                             FSH_FIELDS_MAX);
    for (unsigned i = 0; i < sample->field_count && !status; i++) {
        if (sample->fields[i].compression != FSH_COMPRESSION_NONE)
            status = fsh_error_set(error, FSH_ERR_USAGE, "field %u is compressed already", i);
        else
            status = pack_field(packer->context, &packer->frames[i], &result.fields[i], error);
    }
    if (!status)
        *packed = result;
    return status;
}
