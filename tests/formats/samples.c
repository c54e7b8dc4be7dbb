#include "tests/formats/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"

const char *const samples_class_names[SAMPLES_CLASS_COUNT] = {"bee", "cat", "däwg"};
const char *const samples_pair_names[2] = {"blurry", "sharp"};
static const char *const image_name[] = {"image"};

static FshKind kind_of(const DatasetPlan *plan)
{
    return plan->kind ? plan->kind : FSH_KIND_CLASSES;
}

static FshContainer container_of(const DatasetPlan *plan)
{
    return plan->container ? plan->container : FSH_CONTAINER_SHARDS;
}

void sample_make(MadeSample *made, const DatasetPlan *plan, const char *split, uint64_t index)
{
    Random random;
    random_start(&random, (uint64_t)split[0], index);
    size_t most = plan->payload_bytes_max ? plan->payload_bytes_max : 500;
    bool pairs = kind_of(plan) == FSH_KIND_PAIRS;
    *made = (MadeSample){0};
    FshSample *sample = &made->sample;
    int64_t class_index = (int64_t)(index % SAMPLES_CLASS_COUNT);
    (void)snprintf(made->key, sizeof made->key, "%s/image-%llu", samples_class_names[class_index],
                   (unsigned long long)index);
    sample->index = index;
    sample->label = pairs || index % 7 == 6 ? FSH_NO_LABEL : class_index;
    sample->key = made->key;
    sample->key_bytes = strlen(made->key);
    sample->field_count = pairs ? 2 : 1;
    for (unsigned i = 0; i < sample->field_count; i++) {
        FshField *field = &sample->fields[i];
        field->channels = index % 4 == 2 ? 1 : 3;
        field->width = 1 + random_below(&random, 20);
        field->height = 1 + random_below(&random, 8);
        field->bytes = 1 + random_below(&random, (uint32_t)most);
        field->codec = FSH_CODEC_JPEG;
        if (index % 2 == 0) {
            field->codec = FSH_CODEC_RAW;
            field->bytes = (size_t)field->width * field->height * field->channels;
        }
        made->payloads[i] = malloc(field->bytes);
        for (size_t j = 0; made->payloads[i] && j < field->bytes; j++) {
            made->payloads[i][j] = (uint8_t)random_u32(&random);
        }
        field->data = made->payloads[i];
        (void)snprintf(made->sources[i], sizeof made->sources[i], "%s/%s.%s", split, made->key,
                       index % 2 == 0 ? "png" : "jpg");
        field->source = made->sources[i];
        field->source_bytes = index % 5 == 4 ? 0 : strlen(made->sources[i]);
    }
}

void sample_free(MadeSample *made)
{
    free(made->payloads[0]);
    free(made->payloads[1]);
    *made = (MadeSample){0};
}

void sample_assert_equal(const FshSample *read, const DatasetPlan *plan, const char *split, uint64_t index)
{
    MadeSample made;
    sample_make(&made, plan, split, index);
    const FshSample *expected = &made.sample;
    assert_int_equal(read->index, index);
    assert_int_equal(read->label, expected->label);
    assert_int_equal(read->key_bytes, expected->key_bytes);
    assert_memory_equal(read->key, expected->key, expected->key_bytes);
    assert_int_equal(read->field_count, expected->field_count);
    for (unsigned i = 0; i < expected->field_count; i++) {
        const FshField *a = &read->fields[i], *b = &expected->fields[i];
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, b->bytes);
        assert_int_equal(a->width, b->width);
        assert_int_equal(a->height, b->height);
        assert_int_equal(a->channels, b->channels);
        assert_int_equal(a->codec, b->codec);
        assert_int_equal(a->source_bytes, b->source_bytes);
        if (b->source_bytes)
            assert_memory_equal(a->source, b->source, b->source_bytes);
    }
    sample_free(&made);
}

FshWriterOptions samples_writer_options(const DatasetPlan *plan, const char *split, uint32_t shard_index)
{
    bool pairs = kind_of(plan) == FSH_KIND_PAIRS;
    bool sharded = container_of(plan) == FSH_CONTAINER_SHARDS && strcmp(split, "train") == 0;
    return (FshWriterOptions){
        .container = container_of(plan),
        .dataset_id = SAMPLES_ID,
        .split = split,
        .kind = kind_of(plan),
        .field_names = pairs ? samples_pair_names : image_name,
        .field_count = pairs ? 2 : 1,
        .class_names = pairs ? NULL : samples_class_names,
        .class_count = pairs ? 0 : SAMPLES_CLASS_COUNT,
        .shard_index = shard_index,
        .shard_count = sharded && plan->shard_count ? plan->shard_count : 1,
        .record_form = plan->form,
    };
}

static FshStatus try_write_file(const DatasetPlan *plan, const char *split, const char *path,
                                uint32_t shard_index, uint64_t first, uint64_t count, FshFileInfo *info_ret,
                                FshError *error)
{
    FshWriterOptions options = samples_writer_options(plan, split, shard_index);
    FshWriter *writer = NULL;
    FshStatus status = fsh_writer_open(&writer, path, &options, error);
    for (uint64_t i = 0; i < count && !status; i++) {
        MadeSample made;
        sample_make(&made, plan, split, first + i);
        status = fsh_writer_put(writer, &made.sample, error);
        sample_free(&made);
    }
    if (!status)
        status = fsh_writer_finish(writer, info_ret, error);
    fsh_writer_close(&writer);
    return status;
}

void samples_write_file(const DatasetPlan *plan, const char *split, const char *path, uint32_t shard_index,
                        uint64_t first, uint64_t count, FshFileInfo *info_ret)
{
    FshError error = {0};
    assert_ok(try_write_file(plan, split, path, shard_index, first, count, info_ret, &error), &error);
}

static void count_classes(const DatasetPlan *plan, uint64_t count, uint64_t *class_counts)
{
    for (uint64_t i = 0; kind_of(plan) == FSH_KIND_CLASSES && i < count; i++) {
        if (i % 7 != 6)
            class_counts[i % SAMPLES_CLASS_COUNT]++;
    }
}

FshStatus samples_try_write_dataset(const DatasetPlan *plan, const char *folder, FshError *error)
{
    enum { MOST_SHARDS = 16 };
    FshFileInfo files[2][MOST_SHARDS] = {{{0}}};
    uint64_t class_counts[2][SAMPLES_CLASS_COUNT] = {{0}};
    char split_names[2][8] = {"train", "val"};
    const uint64_t counts[2] = {plan->train_count, plan->val_count};
    FshSplitInfo splits[2] = {{0}};
    FshWriterOptions options = samples_writer_options(plan, "train", 0);
    FshStatus status = FSH_OK;
    for (size_t s = 0; s < 2 && !status; s++) {
        uint32_t shard_count = samples_writer_options(plan, split_names[s], 0).shard_count;
        uint64_t first = 0;
        for (uint32_t i = 0; i < shard_count && !status && (s == 0 || counts[s]); i++) {
            char name[64], path[512];
            uint64_t count = (counts[s] - first) / (shard_count - i);
            (void)fsh_file_name(name, sizeof name, options.container, split_names[s], i, shard_count);
            (void)snprintf(path, sizeof path, "%s/%s", folder, name);
            status = try_write_file(plan, split_names[s], path, i, first, count, &files[s][i], error);
            first += count;
        }
        count_classes(plan, counts[s], class_counts[s]);
        splits[s] = (FshSplitInfo){.name = split_names[s],
                                   .sample_count = counts[s],
                                   .class_counts = options.class_count ? class_counts[s] : NULL,
                                   .files = files[s],
                                   .file_count = shard_count};
    }
    FshManifest manifest = {
        .id = SAMPLES_ID,
        .container = options.container,
        .kind = options.kind,
        .field_names = (char **)options.field_names,
        .field_count = options.field_count,
        .class_names = (char **)options.class_names,
        .class_count = options.class_count,
        .splits = splits,
        .split_count = counts[1] ? 2 : 1,
        .statistics = {.channels = 3,
                       .width_min = 1,
                       .width_max = 20,
                       .height_min = 1,
                       .height_max = 8,
                       .mean = {0.485, 0.456, 0.406},
                       .standard_deviation = {0.229, 0.224, 0.225}},
        .provenance_json = (char[]){"{\"tool\": \"samples\", \"recipe\": {\"max_size\": 160}}"},
    };
    if (!status)
        status = fsh_manifest_save(&manifest, folder, false, error);
    for (size_t i = 0; i < MOST_SHARDS; i++) {
        free(files[0][i].name);
        free(files[1][i].name);
    }
    return status;
}

void samples_write_dataset(const DatasetPlan *plan, const char *folder)
{
    FshError error = {0};
    assert_ok(samples_try_write_dataset(plan, folder, &error), &error);
}

void samples_assert_split(const FshDataset *dataset, const DatasetPlan *plan, const char *split_name,
                          uint64_t count)
{
    const FshSplit *split = fsh_split(dataset, split_name);
    assert_non_null(split);
    assert_int_equal(split->sample_count, count);
    for (uint64_t i = 0; i < count; i++) {
        FshError error = {0};
        FshSample sample;
        fsh_sample_prefetch(split, i, i % 2 == 0); /* may do nothing, and no harm */
        assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
        sample_assert_equal(&sample, plan, split_name, i);
        assert_int_equal(fsh_sample_label(split, i), sample.label);
        assert_ok(fsh_sample_verify(split, i, &error), &error);
    }
}
