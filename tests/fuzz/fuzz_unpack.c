/* A zstd frame in a field: four bytes say how much it claims to unpack to, a fifth whether the dataset has a
 * dictionary, the rest is the frame. Without a dictionary the answer must be libzstd's own. */
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "common/bytes.h"
#include "formats/dataset.h"
#include "formats/dictionary.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_dictionary.h"

enum { HEAD_BYTES = 5, UNPACKED_MAX = 1 << 20 };

static const struct ZSTD_DDict_s *dictionary(void)
{
    static struct ZSTD_DDict_s *prepared; /* training takes as long as a thousand inputs */
    void *trained = NULL;
    size_t bytes = 0;
    FshError error = {0};
    if (!prepared) {
        fuzz_expect_ok(fuzz_dictionary_train(&trained, &bytes, &error), &error, "fuzz_dictionary_train");
        fuzz_expect_ok(fsh_dictionary_prepare(trained, bytes, &prepared, &error), &error,
                       "fsh_dictionary_prepare");
        free(trained);
    }
    return prepared;
}

static void compare(const FshField *field, const void *data, bool unpacked)
{
    void *expected = malloc(field->unpacked_bytes);
    fuzz_expect(expected != NULL, "memory for the unpacked bytes");
    size_t bytes = ZSTD_decompress(expected, field->unpacked_bytes, field->data, field->bytes);
    bool agrees = !ZSTD_isError(bytes) && bytes == field->unpacked_bytes;
    fuzz_expect(!unpacked || (agrees && memcmp(expected, data, bytes) == 0),
                "what unpacks is what zstd gives");
    free(expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length <= HEAD_BYTES)
        return 0;
    const FshManifest manifest = {.kind = FSH_KIND_CLASSES};
    struct FshSplitFiles files = {
        .folder = "", .manifest = &manifest, .dictionary = bytes[4] & 1 ? dictionary() : NULL};
    FshSplitInfo info = {.name = (char[]){"train"}};
    const FshSplit split = {.info = &info, .files = &files};
    const FshField field = {.data = bytes + HEAD_BYTES,
                            .bytes = length - HEAD_BYTES,
                            .unpacked_bytes = 1 + load_le32(bytes) % UNPACKED_MAX,
                            .compression = FSH_COMPRESSION_ZSTD,
                            .codec = FSH_CODEC_JPEG};
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    const void *data = NULL;
    size_t data_bytes = 0;
    fuzz_expect_ok(fsh_unpacker_new(&unpacker, &error), &error, "fsh_unpacker_new");
    bool unpacked = fsh_field_unpack(unpacker, &split, &field, &data, &data_bytes, &error) == FSH_OK;
    if (unpacked) {
        fuzz_expect(data_bytes == field.unpacked_bytes, "a field unpacks to what it says");
        fuzz_touch(data, data_bytes);
    }
    if (!files.dictionary)
        compare(&field, data, unpacked);
    fsh_unpacker_free(&unpacker);
    return 0;
}
