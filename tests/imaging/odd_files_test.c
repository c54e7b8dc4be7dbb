/* The awkward files that other projects test with ($FSHARD_DATA/odd): each is decoded or refused with a
 * reason, and how many of each format are is written down here. Skips where the folder or libvips is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/walk.h"
#include "imaging/decode.h"
#include "imaging/image_plugin.h"
#include "tests/support/support.h"

/* Formats that libvips reads may be decoded more often as it learns: at_least. Everything else is exact. */
static const struct {
    ImageFormat format;
    unsigned decoded, refused;
    bool at_least;
} expected[] = {
    {IMAGE_UNKNOWN, 0, 1, false}, /* a BMP whose header has a size that does not exist */
    {IMAGE_JPEG, 27, 4, false},   /* 12-bit; bad Huffman codes; two cut short */
    {IMAGE_PNG, 75, 2, false},    /* a broken chunk; one cut short */
    {IMAGE_BMP, 30, 2, true},     {IMAGE_GIF, 7, 1, true}, /* cut short */
    {IMAGE_TIFF, 24, 3, true},    {IMAGE_PNM, 5, 0, false},
    {IMAGE_WEBP, 2, 0, true},     {IMAGE_JPEG2000, 0, 2, true}, /* libvips before 8.16 */
};

TEST(test_odd_files_are_decoded_or_refused)
{
    char folder[512];
    const char *data = getenv("FSHARD_DATA");
    FshError error = {0};
    const ImagePlugin *plugin = NULL;
    FileList list = {0};
    if (!data) {
        print_message("skipped: FSHARD_DATA is not set\n");
        skip();
    }
    (void)snprintf(folder, sizeof folder, "%s/odd", data);
    if (image_plugin_load(&plugin, &error) || walk_files(folder, 1, &list, &error)) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
    ImageDecoder *decoder = NULL;
    Image image = {0};
    Buffer file = {0};
    unsigned decoded[IMAGE_OTHER + 1] = {0}, refused[IMAGE_OTHER + 1] = {0};
    assert_ok(image_decoder_new(&decoder, &error), &error);
    for (uint64_t i = 0; i < list.count; i++) {
        char path[1024];
        ImageInfo info = {0};
        assert_ok(file_join(path, sizeof path, folder, list.files[i].path, &error), &error);
        assert_ok(file_read(path, &file, &error), &error);
        error = (FshError){0};
        FshStatus status = image_decode(decoder, file.bytes, file.length,
                                        &(ImageDecodeOptions){.convert_icc = true}, &image, &info, &error);
        if (status) {
            refused[info.format]++;
            assert_int_equal(error.status, status);
            assert_true(error.message[0] != '\0');
        } else {
            decoded[info.format]++;
            assert_int_equal(image.width, info.width);
            assert_int_equal(image.height, info.height);
            assert_int_equal(image.channels, info.channels);
        }
    }
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        ImageFormat format = expected[i].format;
        bool as_expected = expected[i].at_least ? decoded[format] >= expected[i].decoded
                                                : decoded[format] == expected[i].decoded;
        if (!as_expected || decoded[format] + refused[format] != expected[i].decoded + expected[i].refused)
            fail_msg("%s: %u decoded and %u refused; expected %u and %u", image_format_name(format),
                     decoded[format], refused[format], expected[i].decoded, expected[i].refused);
    }
    image_decoder_free(&decoder);
    image_free(&image);
    buffer_free(&file);
    file_list_free(&list);
}
