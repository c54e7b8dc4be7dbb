/* PNGs that are read without libvips, and written: what was read is written and read back the same. */
#include <string.h>

#include <libdeflate.h>

#include "common/bytes.h"
#include "imaging/png_decode.h"
#include "imaging/png_encode.h"
#include "tests/fuzz/fuzz.h"

enum { PIXELS_MAX = 1 << 16, SIGNATURE_BYTES = 8, CHUNK_BYTES = 12 };

void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    for (size_t at = SIGNATURE_BYTES, i = 0; at < length && length - at >= CHUNK_BYTES; i++) {
        const size_t data_bytes = load_be32(bytes + at);
        if (data_bytes > length - CHUNK_BYTES - at)
            return;
        if (!(choice >> i % 16 & 1))
            store_be32(bytes + at + 8 + data_bytes, libdeflate_crc32(0, bytes + at + 4, data_bytes + 4));
        at += CHUNK_BYTES + data_bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static PngDecoder *png;
    static PngEncoder *encoder;
    static Image image, back;
    static Buffer file;
    FshError error = {0};
    ImageInfo info = {0};
    bool done = false;
    if (!png)
        fuzz_expect_ok(png_decoder_new(&png, &error), &error, "png_decoder_new");
    if (!encoder)
        fuzz_expect_ok(png_encoder_new(&encoder, &error), &error, "png_encoder_new");
    if (length < SIGNATURE_BYTES)
        return 0;
    const PngReader reader = png_decoder_header(png, bytes, length, &info);
    if (reader == PNG_BY_LIBVIPS ||
        (uint64_t)load_be32(bytes + 16) * load_be32(bytes + 20) > PIXELS_MAX) /* of the IHDR chunk */
        return 0;
    fuzz_expect_ok(png_decoder_pixels(png, &image, &done, &error), &error, "png_decoder_pixels");
    if (!done)
        return 0;
    const size_t pixels_bytes = (size_t)image.width * image.height * image.channels;
    fuzz_expect(reader != PNG_WHOLLY_HERE ||
                    (info.stored_width == image.width && info.stored_height == image.height &&
                     info.channels == image.channels),
                "pixels are as the header says");
    fuzz_expect_ok(png_encoder_encode(encoder, &image, NULL, &file, &error), &error, "png_encoder_encode");
    fuzz_expect(png_decoder_header(png, file.bytes, file.length, &info) == PNG_WHOLLY_HERE,
                "what is written here is read here");
    fuzz_expect_ok(png_decoder_pixels(png, &back, &done, &error), &error, "png_decoder_pixels");
    fuzz_expect(done && memcmp(back.pixels, image.pixels, pixels_bytes) == 0,
                "pixels that were written come back");
    return 0;
}
