/* NumPy's .npy, whose pixels must be all that follows; and what an image is by its first bytes. */
#include <string.h>

#include "formats/media.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    NpyArray array = {0};
    fuzz_expect(fsh_codec_sniff(bytes, length) != FSH_CODEC_RAW, "no first bytes are raw pixels");
    if (fsh_npy_parse(bytes, length, &array)) {
        uint8_t header[NPY_HEADER_BYTES];
        uint64_t pixels = (uint64_t)array.height * array.width;
        fuzz_expect(array.data_at <= length && pixels > 0 && array.channels >= 1 &&
                        array.channels <= FSH_CHANNELS_MAX,
                    "an array has pixels");
        fuzz_expect((length - array.data_at) / array.channels == pixels &&
                        (length - array.data_at) % array.channels == 0,
                    "pixels are all that follows");
        fsh_npy_store_header(header, array.height, array.width, array.channels);
        fuzz_touch(header, sizeof header);
    }
    return 0;
}
