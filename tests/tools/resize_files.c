#include "tests/tools/resize_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "imaging/decode.h"

void write_jpeg(const char *path, MakeJpeg options)
{
    static const uint32_t channels[] = {1, 3, 4, 4};
    Buffer file = {0};
    uint8_t *pixels = make_pixels(options.width, options.height, channels[options.colours]);
    options.pixels = pixels;
    make_jpeg(&options, &file);
    test_file_write(path, file.bytes, file.length);
    free(pixels);
    buffer_free(&file);
}

void write_png(const char *path, uint32_t width, uint32_t height)
{
    Buffer file = {0};
    uint8_t *pixels = make_pixels(width, height, 3);
    make_png(&(MakePng){.width = width, .height = height, .bit_depth = 8, .colour_type = 2, .rows = pixels},
             &file);
    test_file_write(path, file.bytes, file.length);
    free(pixels);
    buffer_free(&file);
}

void read_image(const char *path, Image *image, ImageInfo *info)
{
    ImageDecoder *decoder = NULL;
    FshError error = {0};
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode(decoder, bytes, length, &(ImageDecodeOptions){.ignore_orientation = true}, image,
                           info, &error),
              &error);
    image_decoder_free(&decoder);
    free(bytes);
}

void assert_image(const char *path, ImageFormat format, uint32_t width, uint32_t height, uint32_t channels)
{
    Image image = {0};
    ImageInfo info = {0};
    read_image(path, &image, &info);
    if (info.format != format || image.width != width || image.height != height || image.channels != channels)
        fail_msg("%s: %s %u x %u x %u, expected %s %u x %u x %u", path, image_format_name(info.format),
                 image.width, image.height, image.channels, image_format_name(format), width, height,
                 channels);
    image_free(&image);
}

void assert_same_bytes(const char *path, const char *other)
{
    size_t length = 0, other_length = 0;
    char *bytes = test_file_read(path, &length), *other_bytes = test_file_read(other, &other_length);
    if (length != other_length || memcmp(bytes, other_bytes, length) != 0)
        fail_msg("%s and %s differ", path, other);
    free(bytes);
    free(other_bytes);
}

void shell(TestFolder *folder, const char *command)
{
    RunResult result =
        run_program(NULL, "/bin/sh", "-ec", "cd \"$1\"; eval \"$2\"", "sh", folder->path, command, NULL);
    if (result.exit_status != 0)
        fail_msg("%s: %s", command, result.err);
    run_result_free(&result);
}

bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

void write_size(const char *path, uint32_t width, uint32_t height)
{
    write_jpeg(path, (MakeJpeg){.width = width, .height = height, .colours = MAKE_RGB});
}

json_t *fresize_json(int exit_status, const char *const *arguments)
{
    enum { ARGUMENTS_MAX = 32 };
    const char *with_json[ARGUMENTS_MAX] = {"--json"};
    for (size_t i = 0; i < ARGUMENTS_MAX - 2 && arguments[i]; i++)
        with_json[i + 1] = arguments[i];
    RunResult result = run_program_arguments(NULL, "fresize", with_json);
    if (result.exit_status != exit_status)
        fail_msg("fresize: exit status %d, expected %d\n%s", result.exit_status, exit_status, result.err);
    json_t *object = json_of(result.out);
    run_result_free(&result);
    return object;
}

json_int_t json_count(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no count of '%s'", key);
    return json_integer_value(value);
}

void write_many(TestFolder *folder, const char *name, unsigned count, uint32_t size)
{
    const char *first = test_path(folder, "%s/000.jpg", name);
    write_jpeg(first, (MakeJpeg){.width = size, .height = size, .colours = MAKE_RGB});
    size_t length = 0;
    char *bytes = test_file_read(first, &length);
    for (unsigned i = 1; i < count; i++)
        test_file_write(test_path(folder, "%s/%03u.jpg", name, i), bytes, length);
    free(bytes);
}

uint64_t count_outputs(const char *path)
{
    char state[PATH_MAX];
    (void)snprintf(state, sizeof state, "%s/.fresize", path);
    return test_count_files(path) - test_count_files(state);
}
