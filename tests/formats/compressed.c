#include "tests/formats/compressed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"

enum { HEAD_BYTES = 600, TAIL_BYTES_MAX = 200, TRAIN_COUNT = 400, DICTIONARY_BYTES = 2048 };

static Buffer dictionaries[2]; /* one for the tests, and another */

void compressed_draw(uint64_t index, unsigned field, Buffer *drawn)
{
    Random head, tail;
    FshError error = {0};
    random_start(&head, 1, 1);
    random_start(&tail, 2 + field, index);
    size_t length = HEAD_BYTES + random_below(&tail, TAIL_BYTES_MAX);
    assert_ok(buffer_reserve(drawn, length, &error), &error);
    drawn->length = length;
    for (size_t i = 0; i < drawn->length; i++)
        drawn->bytes[i] = (uint8_t)random_u32(i < HEAD_BYTES ? &head : &tail);
    drawn->bytes[HEAD_BYTES / 2] = (uint8_t)index; /* so that the heads are not one long match */
    /* A run of zeros, so that a field shrinks without a dictionary too. */
    memset(drawn->bytes + HEAD_BYTES - 60, 0, 60);
}

static void train(uint64_t first, Buffer *dictionary)
{
    Buffer images = {0}, drawn = {0};
    size_t sizes[TRAIN_COUNT];
    void *trained = NULL;
    size_t trained_bytes = 0;
    FshError error = {0};
    for (uint64_t i = 0; i < TRAIN_COUNT; i++) {
        compressed_draw(first + i, 0, &drawn);
        assert_ok(buffer_append(&images, drawn.bytes, drawn.length, &error), &error);
        sizes[i] = drawn.length;
    }
    assert_ok(fsh_dictionary_train(images.bytes, sizes, TRAIN_COUNT, DICTIONARY_BYTES, &trained,
                                   &trained_bytes, &error),
              &error);
    assert_ok(buffer_append(dictionary, trained, trained_bytes, &error), &error);
    free(trained);
    buffer_free(&images);
    buffer_free(&drawn);
}

const Buffer *compressed_dictionary(void)
{
    if (!dictionaries[0].length)
        train(1000, &dictionaries[0]);
    return &dictionaries[0];
}

static const Buffer *dictionary_of(const CompressedPlan *plan)
{
    static const Buffer none;
    if (!plan->dictionary)
        return &none;
    if (!plan->other_dictionary)
        return compressed_dictionary();
    if (!dictionaries[1].length)
        train(5000, &dictionaries[1]);
    return &dictionaries[1];
}

void compressed_forget(void)
{
    buffer_free(&dictionaries[0]);
    buffer_free(&dictionaries[1]);
}

static void put_sample(const CompressedPlan *plan, FshWriter *writer, FshPacker *packer, uint64_t index)
{
    char key[32];
    Buffer drawn[2] = {{0}};
    FshError error = {0};
    (void)snprintf(key, sizeof key, "a/%06u", (unsigned)index);
    FshSample sample = {.label = plan->pairs ? FSH_NO_LABEL : (int64_t)(index % 2),
                        .key = key,
                        .key_bytes = strlen(key),
                        .field_count = plan->pairs ? 2 : 1};
    for (unsigned i = 0; i < sample.field_count; i++) {
        compressed_draw(index, i, &drawn[i]);
        sample.fields[i] = (FshField){.data = drawn[i].bytes,
                                      .bytes = drawn[i].length,
                                      .width = 32,
                                      .height = 32,
                                      .channels = 3,
                                      .codec = FSH_CODEC_JPEG};
    }
    if (packer)
        assert_ok(fsh_sample_pack(packer, &sample, &sample, &error), &error);
    assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    buffer_free(&drawn[0]);
    buffer_free(&drawn[1]);
}

static void write_file(const CompressedPlan *plan, const char *folder, const FshWriterOptions *options,
                       FshPacker *packer, uint64_t first, uint64_t count, FshFileInfo *info)
{
    char name[64], path[512];
    FshWriter *writer = NULL;
    FshError error = {0};
    (void)fsh_file_name(name, sizeof name, options->container, options->split, options->shard_index,
                        options->shard_count);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(fsh_writer_open(&writer, path, options, &error), &error);
    for (uint64_t i = first; i < first + count; i++)
        put_sample(plan, writer, packer, i);
    assert_ok(fsh_writer_finish(writer, info, &error), &error);
    fsh_writer_close(&writer);
}

void compressed_write(const CompressedPlan *plan, const char *folder)
{
    enum { SHARDS_MAX = 8 };
    static const char *const pair_names[] = {"blurry", "sharp"}, *const names[] = {"image"},
                             *const classes[] = {"a", "b"};
    const Buffer *dictionary = dictionary_of(plan);
    FshFileInfo files[2][SHARDS_MAX] = {{{0}}};
    FshSplitInfo splits[2] = {{0}};
    uint64_t class_counts[2][2] = {{0}};
    FshPacker *packer = NULL;
    FshError error = {0};
    FshWriterOptions options = {.container = plan->container ? plan->container : FSH_CONTAINER_SHARDS,
                                .dataset_id = "0123456789abcdef0123456789abcdef",
                                .kind = plan->pairs ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                                .field_names = plan->pairs ? pair_names : names,
                                .field_count = plan->pairs ? 2 : 1,
                                .class_names = plan->pairs ? NULL : classes,
                                .class_count = plan->pairs ? 0 : 2,
                                .dictionary = dictionary->bytes,
                                .dictionary_bytes = dictionary->length,
                                .record_form = plan->form};
    assert_ok(file_make_folders(folder, &error), &error);
    if (plan->level)
        assert_ok(fsh_packer_new(&packer, plan->level, dictionary->bytes, dictionary->length, &error),
                  &error);
    for (size_t s = 0; s < 2; s++) {
        uint64_t count = s ? plan->val_count : plan->train_count, first = 0;
        options.split = s ? "val" : "train";
        options.shard_count = s || !plan->shard_count ? 1 : plan->shard_count;
        for (uint32_t i = 0; i < options.shard_count && count; i++) {
            uint64_t here = (count - first) / (options.shard_count - i);
            options.shard_index = i;
            write_file(plan, folder, &options, packer, first, here, &files[s][i]);
            first += here;
        }
        class_counts[s][0] = (count + 1) / 2;
        class_counts[s][1] = count / 2;
        splits[s] = (FshSplitInfo){.name = (char *)options.split,
                                   .sample_count = count,
                                   .class_counts = plan->pairs ? NULL : class_counts[s],
                                   .files = files[s],
                                   .file_count = options.shard_count};
    }
    FshManifest manifest = {.id = "0123456789abcdef0123456789abcdef",
                            .container = options.container,
                            .kind = options.kind,
                            .field_names = (char **)options.field_names,
                            .field_count = options.field_count,
                            .class_names = (char **)options.class_names,
                            .class_count = options.class_count,
                            .splits = splits,
                            .split_count = plan->val_count ? 2 : 1,
                            .provenance_json = (char[]){"{}"}};
    if (dictionary->length)
        assert_ok(
            fsh_dictionary_describe(dictionary->bytes, dictionary->length, &manifest.dictionary, &error),
            &error);
    assert_ok(fsh_manifest_save(&manifest, folder, false, &error), &error);
    fsh_packer_free(&packer);
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        free(files[0][i].name);
        free(files[1][i].name);
    }
}
