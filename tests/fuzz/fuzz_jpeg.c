/* A JPEG: its header and what it carries, its pixels, a part of them, and itself made smaller by planes.
 * libjpeg-turbo does the decoding; what is fuzzed is our way through it, and our reader of Huffman codes:
 * it gives libjpeg's coefficients or gives up. */
#include "imaging/decode.h"
#include "imaging/jpeg_decode.h"
#include "imaging/jpeg_shrink.h"
#include "tests/fuzz/fuzz.h"
#include "tests/imaging/jpeg_both.h"

enum { PIXELS_MAX = 1 << 16 };

typedef struct Tools {
    JpegDecoder *decoder;
    JpegEncoder *encoder;
    JpegShrinker *shrinker;
    Image image;
    Buffer file;
} Tools;

static void expect_ok(FshStatus status, const FshError *error)
{
    fuzz_expect_ok(status, error, "a decoder, an encoder, a shrinker");
}

static void shrink(Tools *tools, const ImageInfo *info, const ImageMetadata *metadata)
{
    const JpegShrinkOptions options = {.width = 1 + info->stored_width / 3,
                                       .height = 1 + info->stored_height / 3,
                                       .margin = 2,
                                       .filter = RESAMPLE_BICUBIC,
                                       .quality = 90,
                                       .subsampling = IMAGE_SUBSAMPLING_420,
                                       .metadata = metadata};
    JpegShrinkReport report;
    FshError error = {0};
    if (jpeg_shrink(tools->shrinker, tools->decoder, tools->encoder, &options, &tools->file, &report,
                    &error) == FSH_OK)
        fuzz_touch(tools->file.bytes, tools->file.length);
}

static void read_all(Tools *tools, const uint8_t *bytes, size_t length, bool strict)
{
    ImageInfo info = {0};
    ImageMetadata metadata = {0};
    FshError error = {0};
    if (jpeg_decoder_header(tools->decoder, bytes, length, strict, &info, &error) != FSH_OK)
        return;
    fuzz_expect(info.width && info.height && info.orientation >= 1 && info.orientation <= 8,
                "a header that was read says what is there");
    jpeg_decoder_metadata(tools->decoder, &metadata);
    fuzz_touch(metadata.exif.bytes, metadata.exif.length);
    fuzz_touch(metadata.icc.bytes, metadata.icc.length);
    fuzz_touch(metadata.xmp.bytes, metadata.xmp.length);
    if ((uint64_t)info.width * info.height > PIXELS_MAX)
        return;
    if (strict && jpeg_decoder_planes_count(tools->decoder)) {
        shrink(tools, &info, &metadata);
    } else if (!(info.quirks & IMAGE_QUIRK_CMYK) &&
               jpeg_decoder_pixels(tools->decoder, info.channels, 4, 4, &tools->image, &info, &error) ==
                   FSH_OK) {
        fuzz_touch(tools->image.pixels,
                   (size_t)tools->image.width * tools->image.height * tools->image.channels);
    }
}

/* Reads a part in the middle, at the scale that a crop of half the size allows, and expects that the part is
 * in what was read. */
static void read_part(Tools *tools, const uint8_t *bytes, size_t length)
{
    ImageInfo info = {0};
    FshError error = {0};
    ImagePlace place;
    if (jpeg_decoder_header(tools->decoder, bytes, length, true, &info, &error) != FSH_OK ||
        (info.quirks & IMAGE_QUIRK_CMYK) || (uint64_t)info.width * info.height > PIXELS_MAX)
        return;
    uint32_t width = info.stored_width, height = info.stored_height;
    const ImagePart part = {
        .left = width / 3, .top = height / 3, .width = 1 + width / 3, .height = 1 + height / 3};
    if (part.left + part.width > width || part.top + part.height > height ||
        jpeg_decoder_part(tools->decoder, info.channels, width / 2, height / 2, &part, &tools->image, &place,
                          &info, &error) != FSH_OK)
        return;
    fuzz_expect((place.left + tools->image.width) * 8 >= (part.left + part.width) * place.eighths &&
                    (place.top + tools->image.height) * 8 >= (part.top + part.height) * place.eighths &&
                    place.left * 8 <= part.left * place.eighths && place.top * 8 <= part.top * place.eighths,
                "a part that was read is there");
    fuzz_touch(tools->image.pixels, (size_t)tools->image.width * tools->image.height * tools->image.channels);
}

/* Makes the image smaller as its planes, of 4:4:4. */
static void read_planes(Tools *tools, const uint8_t *bytes, size_t length)
{
    ImageInfo info = {0};
    JpegShrinkReport report;
    FshError error = {0};
    if (jpeg_decoder_header(tools->decoder, bytes, length, true, &info, &error) != FSH_OK ||
        (uint64_t)info.width * info.height > PIXELS_MAX || !jpeg_decoder_planes_count(tools->decoder))
        return;
    const JpegShrinkOptions options = {.width = 1 + info.stored_width / 2,
                                       .height = 1 + info.stored_height / 2,
                                       .filter = RESAMPLE_LANCZOS,
                                       .subsampling = IMAGE_SUBSAMPLING_444};
    if (jpeg_shrink_planes(tools->shrinker, tools->decoder, &options, &tools->file, &report, &error) ==
        FSH_OK)
        fuzz_touch(tools->file.bytes, tools->file.length);
}

/* Reads the coefficients, or at 1/8 the first of each block, with our reader of codes and without. */
static void read_both_ways(JpegHuffman *huffman, const uint8_t *bytes, size_t length, unsigned eighths)
{
    const JpegWanted wanted = {.eighths = eighths, .most_pixels = PIXELS_MAX};
    JpegReading alone = {0}, ours = {0};
    jpeg_read_both_ways(&wanted, bytes, length, huffman, &ours);
    if (ours.attached && !ours.gave_up) {
        jpeg_read_both_ways(&wanted, bytes, length, NULL, &alone);
        fuzz_expect(jpeg_readings_equal(&alone, &ours), "codes that are in order are read as by libjpeg");
    }
    buffer_free(&alone.values);
    buffer_free(&ours.values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Tools tools = {0};
    FshError error = {0};
    JpegHuffman *huffman = NULL;
    expect_ok(jpeg_huffman_new(&huffman, &error), &error);
    read_both_ways(huffman, bytes, length, 0);
    read_both_ways(huffman, bytes, length, 1);
    jpeg_huffman_free(&huffman);
    expect_ok(jpeg_decoder_new(&tools.decoder, &error), &error);
    expect_ok(jpeg_encoder_new(&tools.encoder, &error), &error);
    expect_ok(jpeg_shrinker_new(&tools.shrinker, &error), &error);
    read_all(&tools, bytes, length, true);
    read_all(&tools, bytes, length, false); /* with the same decoder: one file leaves nothing to the next */
    read_part(&tools, bytes, length);
    read_planes(&tools, bytes, length);
    jpeg_decoder_free(&tools.decoder);
    jpeg_encoder_free(&tools.encoder);
    jpeg_shrinker_free(&tools.shrinker);
    image_free(&tools.image);
    buffer_free(&tools.file);
    return 0;
}
