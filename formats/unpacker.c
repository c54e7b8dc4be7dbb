/* zstd frames back to the bytes of a codec.
 *
 * The frame is not trusted: how much it may give stands in the record, which has been bounded, and zstd is
 * given a buffer of exactly that. One call from buffer to buffer takes no window, so a frame that asks for a
 * window of gigabytes gets none. */

#include <inttypes.h>
#include <stdlib.h>

#include <zstd.h>

#include "common/file.h"
#include "common/bytes.h"
#include "formats/dataset.h"
#include "formats/dictionary.h"

struct FshUnpacker {
    ZSTD_DCtx *context; /* made when first needed: most datasets never do */
    Buffer bytes;
};

FshStatus fsh_unpacker_new(FshUnpacker **unpacker_ret, FshError *error)
{
    *unpacker_ret = calloc(1, sizeof **unpacker_ret);
    return *unpacker_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for decompressing");
}

void fsh_unpacker_free(FshUnpacker **unpacker_ret)
{
    FshUnpacker *unpacker = *unpacker_ret;
    if (!unpacker)
        return;
    (void)ZSTD_freeDCtx(unpacker->context);
    buffer_free(&unpacker->bytes);
    free(unpacker);
    *unpacker_ret = NULL;
}

/* Checks that there is exactly one frame, of the format that RFC 8878 describes, that does not contradict its
 * record. zstd itself would also take several, skippable ones among them, and those of its versions before
 * 1.0, whose decoders are old. */
static FshStatus check_frame(const uint8_t *frame, size_t bytes, size_t unpacked_bytes, FshError *error)
{
    if (bytes < sizeof(uint32_t) || load_le32(frame) != ZSTD_MAGICNUMBER)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is no zstd frame");
    unsigned long long content = ZSTD_getFrameContentSize(frame, bytes);
    if (content == ZSTD_CONTENTSIZE_ERROR)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its zstd frame is damaged");
    if (content != ZSTD_CONTENTSIZE_UNKNOWN && content != unpacked_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "its zstd frame says that it holds %llu bytes, the record says %zu", content,
                             unpacked_bytes);
    size_t frame_bytes = ZSTD_findFrameCompressedSize(frame, bytes);
    if (ZSTD_isError(frame_bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its zstd frame is damaged: %s",
                             ZSTD_getErrorName(frame_bytes));
    if (frame_bytes != bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its zstd frame ends after %zu of %zu bytes",
                             frame_bytes, bytes);
    return FSH_OK;
}

static FshStatus unpack(FshUnpacker *unpacker, const struct ZSTD_DDict_s *dictionary, const FshField *field,
                        FshError *error)
{
    if (field->compression != FSH_COMPRESSION_ZSTD || field->unpacked_bytes > FSH_UNPACKED_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "compression %d of %zu bytes: not from fsh_sample_get",
                             (int)field->compression, field->unpacked_bytes);
    FshStatus status = check_frame(field->data, field->bytes, field->unpacked_bytes, error);
    if (!status)
        status = buffer_reserve(&unpacker->bytes, field->unpacked_bytes, error);
    if (status)
        return status;
    if (!unpacker->context)
        unpacker->context = ZSTD_createDCtx();
    if (!unpacker->context)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for decompressing");
    size_t bytes = ZSTD_decompress_usingDDict(unpacker->context, unpacker->bytes.bytes, field->unpacked_bytes,
                                              field->data, field->bytes, dictionary);
    if (ZSTD_isError(bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its zstd frame is damaged: %s",
                             ZSTD_getErrorName(bytes));
    if (bytes != field->unpacked_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its zstd frame holds %zu bytes, the record says %zu",
                             bytes, field->unpacked_bytes);
    return FSH_OK;
}

FshStatus fsh_field_unpack(FshUnpacker *unpacker, const FshSplit *split, const FshField *field,
                           const void **data_ret, size_t *bytes_ret, FshError *error)
{
    *data_ret = field->data;
    *bytes_ret = field->bytes;
    if (field->compression == FSH_COMPRESSION_NONE)
        return FSH_OK;
    if (field->compression == FSH_COMPRESSION_FILE) {
        FshStatus read = fsh_files_read(split, field, &unpacker->bytes, error);
        *data_ret = unpacker->bytes.bytes;
        *bytes_ret = unpacker->bytes.length;
        return read;
    }
    FshStatus status = unpack(unpacker, fsh_field_dictionary(split, field), field, error);
    if (fsh_split_check_read_data(split, field->data, field->bytes, error))
        status = FSH_ERR_SYSTEM; /* why the frame was wrong */
    if (status)
        return fsh_split_fail_at_data(split, field->data, status, error);
    *data_ret = unpacker->bytes.bytes;
    *bytes_ret = field->unpacked_bytes;
    return FSH_OK;
}

FshStatus fsh_dictionary_prepare(const void *dictionary, size_t bytes, struct ZSTD_DDict_s **prepared_ret,
                                 FshError *error)
{
    *prepared_ret = ZSTD_createDDict(dictionary, bytes);
    /* zstd does not say which; it is not the memory, as a rule. */
    return *prepared_ret
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT, "its dictionary of %zu bytes is damaged", bytes);
}

void fsh_dictionary_release(struct ZSTD_DDict_s *prepared)
{
    (void)ZSTD_freeDDict(prepared);
}
