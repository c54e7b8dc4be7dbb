/* What a dictionary makes of many small images ($FSHARD_DATA/cifar10, 60,000 JPEGs of 900 bytes): packed with
 * one, they shrink to less than 1 / 2.5 and come back byte for byte. Prints what each size of dictionary
 * gives on this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/progress.h"
#include "common/walk.h"
#include "formats/fshard.h"
#include "tests/support/support.h"

enum { TRAIN_BYTES = 100 * 112640, DICTIONARY_COUNT = 4 };
static const size_t dictionary_bytes[DICTIONARY_COUNT] = {16384, 32768, 65536, 112640};

typedef struct Images {
    Buffer bytes; /* one after the other */
    size_t *sizes;
    uint64_t count;
} Images;

/* Reads all files in byte order of their paths, so that every machine reads them alike. */
static void read_images(const char *folder, Images *images)
{
    FileList list = {0};
    Buffer file = {0};
    FshError error = {0};
    assert_ok(walk_files(folder, 1, &list, &error), &error);
    images->sizes = calloc(list.count + 1, sizeof *images->sizes);
    assert_non_null(images->sizes);
    assert_ok(buffer_reserve(&images->bytes, list.total_bytes, &error), &error);
    for (uint64_t i = 0; i < list.count; i++) {
        char path[1024];
        assert_ok(file_join(path, sizeof path, folder, list.files[i].path, &error), &error);
        assert_ok(file_read(path, &file, &error), &error);
        assert_ok(buffer_append(&images->bytes, file.bytes, file.length, &error), &error);
        images->sizes[images->count++] = file.length;
    }
    buffer_free(&file);
    file_list_free(&list);
}

static void free_images(Images *images)
{
    buffer_free(&images->bytes);
    free(images->sizes);
}

/* Trains a dictionary of up to `capacity` bytes on every nth image, so that all classes are in it. */
static void train(const Images *images, size_t capacity, void **dictionary, size_t *bytes)
{
    Images chosen = {.sizes = calloc(images->count, sizeof *chosen.sizes)};
    uint64_t step = images->bytes.length / TRAIN_BYTES + 1;
    const uint8_t *at = images->bytes.bytes;
    FshError error = {0};
    assert_non_null(chosen.sizes);
    for (uint64_t i = 0; i < images->count; at += images->sizes[i++])
        if (i % step == 0) {
            assert_ok(buffer_append(&chosen.bytes, at, images->sizes[i], &error), &error);
            chosen.sizes[chosen.count++] = images->sizes[i];
        }
    assert_ok(fsh_dictionary_train(chosen.bytes.bytes, chosen.sizes, chosen.count, capacity, dictionary,
                                   bytes, &error),
              &error);
    free_images(&chosen);
}

/* Writes one shard of all images. Returns the bytes of its payloads; *seconds_ret is the time spent packing
 * them. */
static uint64_t pack(const Images *images, const void *dictionary, size_t bytes, const char *path,
                     double *seconds_ret)
{
    static const char *const fields[] = {"image"}, *const classes[] = {"any"};
    const FshWriterOptions options = {.container = FSH_CONTAINER_SHARDS,
                                      .dataset_id = "0123456789abcdef0123456789abcdef",
                                      .split = "train",
                                      .kind = FSH_KIND_CLASSES,
                                      .field_names = fields,
                                      .field_count = 1,
                                      .class_names = classes,
                                      .class_count = 1,
                                      .shard_count = 1,
                                      .force = true,
                                      .dictionary = dictionary,
                                      .dictionary_bytes = bytes};
    FshWriter *writer = NULL;
    FshPacker *packer = NULL;
    FshError error = {0};
    uint64_t payload_bytes = 0;
    const uint8_t *at = images->bytes.bytes;
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    assert_ok(fsh_packer_new(&packer, FSH_PACK_LEVEL_DEFAULT, dictionary, bytes, &error), &error);
    *seconds_ret = 0;
    for (uint64_t i = 0; i < images->count; at += images->sizes[i++]) {
        char key[32];
        (void)snprintf(key, sizeof key, "%06llu", (unsigned long long)i);
        FshSample sample = {.key = key, .key_bytes = strlen(key), .field_count = 1};
        sample.fields[0] = (FshField){.data = at,
                                      .bytes = images->sizes[i],
                                      .width = 32,
                                      .height = 32,
                                      .channels = 3,
                                      .codec = FSH_CODEC_JPEG};
        double start = progress_now_seconds();
        assert_ok(fsh_sample_pack(packer, &sample, &sample, &error), &error);
        *seconds_ret += progress_now_seconds() - start;
        payload_bytes += sample.fields[0].bytes;
        assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    }
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    fsh_packer_free(&packer);
    return payload_bytes;
}

static double unpack(const Images *images, const char *path)
{
    FshDataset *dataset = NULL;
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    const uint8_t *at = images->bytes.bytes;
    double seconds = 0;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    const FshSplit *split = fsh_split(dataset, "train");
    assert_int_equal(split->sample_count, images->count);
    for (uint64_t i = 0; i < images->count; at += images->sizes[i++]) {
        FshSample sample;
        const void *data = NULL;
        size_t bytes = 0;
        double start = progress_now_seconds();
        assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
        assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[0], &data, &bytes, &error), &error);
        seconds += progress_now_seconds() - start;
        assert_int_equal(bytes, images->sizes[i]);
        assert_memory_equal(data, at, bytes);
    }
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
    return seconds;
}

TEST_IN_FOLDER(test_small_jpegs_shrink_and_come_back, folder)
{
    const char *data = getenv("FSHARD_DATA");
    char source[512];
    Images images = {0};
    (void)snprintf(source, sizeof source, "%s/cifar10", data ? data : "");
    if (!data || !file_is_folder(source)) {
        print_message("skipped: no FSHARD_DATA with cifar10\n");
        skip();
    }
    read_images(source, &images);
    print_message("%llu images of %.0f bytes; one core:\n", (unsigned long long)images.count,
                  (double)images.bytes.length / (double)images.count);
    for (size_t i = 0; i < DICTIONARY_COUNT; i++) {
        void *dictionary = NULL;
        size_t bytes = 0;
        double pack_seconds = 0, start = progress_now_seconds();
        train(&images, dictionary_bytes[i], &dictionary, &bytes);
        double train_seconds = progress_now_seconds() - start;
        const char *path = test_path(folder, "train-00000-of-00001.fshard");
        uint64_t payload_bytes = pack(&images, dictionary, bytes, path, &pack_seconds);
        double unpack_seconds = unpack(&images, path);
        double ratio = (double)images.bytes.length / (double)(payload_bytes + bytes);
        print_message("dictionary of %6zu bytes: trained in %4.1f s, payloads %.2f times smaller, packing "
                      "%6.0f images/s, unpacking %7.0f images/s\n",
                      bytes, train_seconds, ratio, (double)images.count / pack_seconds,
                      (double)images.count / unpack_seconds);
        assert_true(ratio >= 2.5);
        free(dictionary);
    }
    free_images(&images);
}
