#include "tests/tools/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "imaging/decode.h"
#include "imaging/image_plugin.h"
#include "tests/imaging/make_images.h"

/* ---- images ---- */

/* Returns width * height * channels bytes of a gradient; the caller frees them. */
static uint8_t *fill(uint32_t width, uint32_t height, uint32_t channels, uint32_t seed)
{
    uint8_t *rgb = malloc((size_t)width * height * 3);
    assert_non_null(rgb);
    test_fill_gradient(rgb, width, height, seed);
    for (size_t i = 0; i < (size_t)width * height && channels == 1; i++)
        rgb[i] = rgb[3 * i];
    return rgb;
}

static void write_buffer(const char *path, Buffer *buffer)
{
    test_file_write(path, buffer->bytes, buffer->length);
    buffer_free(buffer);
}

void source_jpeg(const char *path, uint32_t width, uint32_t height, uint32_t channels, uint32_t seed)
{
    Buffer file = {0};
    uint8_t *pixels = fill(width, height, channels, seed);
    make_jpeg(&(MakeJpeg){.width = width,
                          .height = height,
                          .colours = channels == 1 ? MAKE_GRAY : MAKE_RGB,
                          .pixels = pixels},
              &file);
    free(pixels);
    write_buffer(path, &file);
}

void source_jpeg_turned(const char *path, uint32_t width, uint32_t height, uint8_t orientation, uint32_t seed)
{
    Buffer file = {0};
    uint8_t *pixels = fill(width, height, 3, seed);
    make_jpeg(&(MakeJpeg){.width = width,
                          .height = height,
                          .colours = MAKE_RGB,
                          .pixels = pixels,
                          .orientation = orientation},
              &file);
    free(pixels);
    write_buffer(path, &file);
}

void source_png(const char *path, uint32_t width, uint32_t height, uint32_t channels, uint32_t seed)
{
    Buffer file = {0};
    uint8_t *pixels = fill(width, height, channels, seed);
    make_png(&(MakePng){.width = width,
                        .height = height,
                        .bit_depth = 8,
                        .colour_type = channels == 1 ? 0 : 2,
                        .rows = pixels},
             &file);
    free(pixels);
    write_buffer(path, &file);
}

void source_mask(const char *path, uint32_t width, uint32_t height, const uint8_t *values, bool palette)
{
    Buffer file = {0};
    uint8_t colours[256 * 3];
    for (size_t i = 0; i < sizeof colours; i++)
        colours[i] = (uint8_t)(i * 37);
    make_png(&(MakePng){.width = width,
                        .height = height,
                        .bit_depth = 8,
                        .colour_type = palette ? 3 : 0,
                        .rows = values,
                        .palette = palette ? colours : NULL,
                        .palette_count = palette ? 256 : 0},
             &file);
    write_buffer(path, &file);
}

void source_masked(const char *root, const char *images, const char *masks, const char *name, uint32_t width,
                   uint32_t height, uint8_t most)
{
    char path[512];
    uint32_t seed = 17;
    uint8_t *values = calloc(width, height);
    assert_non_null(values);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            values[y * width + x] = x == 0                                                               ? 255
                                    : x > width / 4 && x < width / 2 && y > height / 4 && y < height / 2 ? 1
                                                                                                         : 0;
    values[width * height - 1] = most;
    for (const char *at = name; *at; at++)
        seed = seed * 33 + (unsigned char)*at;
    (void)snprintf(path, sizeof path, "%s/%s/%s.jpg", root, images, name);
    source_jpeg(path, width, height, 3, seed);
    (void)snprintf(path, sizeof path, "%s/%s/%s.png", root, masks, name);
    source_mask(path, width, height, values, seed % 2);
    free(values);
}

bool png_is_supported(void)
{
    const ImagePlugin *plugin = NULL;
    FshError error = {0};
    if (image_plugin_load(&plugin, &error) == FSH_OK)
        return true;
    print_message("skipped: %s\n", error.message);
    return false;
}

void source_class(const char *root, const char *class_name, unsigned count)
{
    const size_t length = strlen(root);
    const uint32_t split = length > 4 && strcmp(root + length - 4, "/val") == 0    ? 1
                           : length > 5 && strcmp(root + length - 5, "/test") == 0 ? 2
                                                                                   : 0;
    for (unsigned i = 0; i < count; i++) {
        char path[512];
        uint32_t seed = 31 * i;
        for (const char *at = class_name; *at; at++)
            seed = seed * 33 + (unsigned char)*at;
        seed += 7 * split; /* no two splits share an image: fverify would say so */
        (void)snprintf(path, sizeof path, "%s/%s/%u.jpg", root, class_name, i);
        source_jpeg(path, 40 + i % 5, 30, 3, seed);
    }
}

void source_two_classes(const char *root)
{
    source_class(root, "cat", 3);
    source_class(root, "dog", 2);
}

void source_slow_class(const char *root, const char *class_name, unsigned count, uint32_t width,
                       uint32_t height)
{
    char first[512], path[512];
    (void)snprintf(first, sizeof first, "%s/%s/00000.jpg", root, class_name);
    source_jpeg(first, width, height, 3, 7);
    for (unsigned i = 1; i < count; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/%05u.jpg", root, class_name, i);
        assert_int_equal(link(first, path), 0);
    }
}

/* ---- programs ---- */

enum { ARGUMENTS_MAX = 32 };

RunResult run_expecting(int exit_status, const char *program, ...)
{
    const char *arguments[ARGUMENTS_MAX + 1] = {NULL};
    size_t count = 0;
    va_list list;
    va_start(list, program);
    for (const char *argument = va_arg(list, const char *); argument; argument = va_arg(list, const char *)) {
        assert_true(count < ARGUMENTS_MAX);
        arguments[count++] = argument;
    }
    va_end(list);
    RunResult result = run_program_arguments(NULL, program, arguments);
    if (result.exit_status != exit_status)
        fail_msg("%s: exit status %d, not %d\n%s%s", program, result.exit_status, exit_status, result.out,
                 result.err);
    return result;
}

void run_forget(RunResult result)
{
    run_result_free(&result);
}

/* ---- datasets made by hand ---- */

FshWriter *shard_writer(const char *path, const char *const *classes, size_t class_count)
{
    static const char *const fields[] = {"image"};
    const FshWriterOptions options = {.container = FSH_CONTAINER_SHARDS,
                                      .dataset_id = "0123456789abcdef0123456789abcdef",
                                      .split = "train",
                                      .kind = FSH_KIND_CLASSES,
                                      .field_names = fields,
                                      .field_count = 1,
                                      .class_names = classes,
                                      .class_count = class_count,
                                      .shard_count = 1};
    FshWriter *writer = NULL;
    FshError error = {0};
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    return writer;
}

/* ---- what was packed ---- */

FshDataset *packed_open(const char *path)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

uint64_t packed_count(const char *path, const char *split)
{
    FshDataset *dataset = packed_open(path);
    const FshSplit *found = fsh_split(dataset, split);
    uint64_t count = found ? found->sample_count : 0;
    fsh_close(&dataset);
    return count;
}

char *packed_list(const char *path, const char *split)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    FshDataset *dataset = packed_open(path);
    const FshSplit *found = fsh_split(dataset, split);
    assert_non_null(stream);
    for (uint64_t i = 0; found && i < found->sample_count; i++) {
        FshSample sample;
        FshError error = {0};
        assert_ok(fsh_sample_get(found, i, &sample, &error), &error);
        (void)fprintf(stream, "%.*s %lld\n", (int)sample.key_bytes, sample.key, (long long)sample.label);
    }
    fsh_close(&dataset);
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* Asserts that a sample's label is the class of "train/cat/x.jpg" or "cat/x.jpg". */
static void assert_label(const FshManifest *manifest, const FshSplit *split, const FshSample *sample)
{
    const FshField *field = &sample->fields[0];
    const char *begin = field->source;
    size_t length = strlen(split->info->name);
    if (strncmp(begin, split->info->name, length) == 0 && begin[length] == '/')
        begin += length + 1;
    const char *name = manifest->class_names[sample->label];
    assert_true(strncmp(begin, name, strlen(name)) == 0 && begin[strlen(name)] == '/');
}

void packed_assert_copies(const char *path, const char *source_root)
{
    FshDataset *dataset = packed_open(path);
    const FshManifest *manifest = fsh_manifest(dataset);
    for (size_t s = 0; s < manifest->split_count; s++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[s].name);
        for (uint64_t i = 0; i < split->sample_count; i++) {
            FshSample sample;
            FshError error = {0};
            assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
            assert_ok(fsh_sample_verify(split, i, &error), &error);
            if (manifest->kind == FSH_KIND_CLASSES)
                assert_label(manifest, split, &sample);
            for (unsigned f = 0; f < sample.field_count; f++) {
                const FshField *field = &sample.fields[f];
                char source[1024];
                size_t length = 0;
                (void)snprintf(source, sizeof source, "%s/%.*s", source_root, (int)field->source_bytes,
                               field->source);
                char *bytes = test_file_read(source, &length);
                assert_int_equal(field->bytes, length);
                assert_memory_equal(field->data, bytes, length);
                free(bytes);
            }
        }
    }
    fsh_close(&dataset);
}

json_t *json_of(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, 0, &where);
    if (!json)
        fail_msg("no JSON: %s\n%s", where.text, text);
    return json;
}

json_t *packed_manifest(const char *path)
{
    char file[1024];
    (void)snprintf(file, sizeof file, "%s/%s", path, FSH_MANIFEST_NAME);
    char *text = test_file_read(file, NULL);
    json_t *json = json_of(text);
    free(text);
    return json;
}

char *packed_id(const char *path)
{
    json_t *manifest = packed_manifest(path);
    char *id = strdup(json_string_value(json_object_get(manifest, "id")));
    json_decref(manifest);
    return id;
}
