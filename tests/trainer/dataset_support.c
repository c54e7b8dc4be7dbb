#include "tests/trainer/dataset_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/random.h"
#include "imaging/encode.h"
#include "imaging/y4m.h"
#include "tests/support/support.h"

enum { CLASSES_MAX = 64, SHARDS_MAX = 16, NAME_BYTES = 64 };

static const char dataset_id[] = "0123456789abcdef0123456789abcdef";

uint32_t dataset_width(const DatasetSpec *spec, uint64_t index)
{
    return spec->width + spec->grow * (uint32_t)(index % 3);
}

uint32_t dataset_height(const DatasetSpec *spec, uint64_t index)
{
    return spec->height + spec->grow * (uint32_t)(index % 2);
}

/* Returns the number that a class looks like and is named after. */
static uint64_t look_of(const DatasetSpec *spec, uint64_t label)
{
    return spec->backwards ? spec->class_count - 1 - label : label;
}

void dataset_draw(const DatasetSpec *spec, uint64_t index, uint8_t *pixels)
{
    uint32_t width = dataset_width(spec, index), height = dataset_height(spec, index);
    uint64_t label = look_of(spec, index % spec->class_count);
    Random random;
    random_start(&random, 99, index);
    /* A bright quarter: the class says which, and in which channel. */
    uint32_t left = label % 2 ? width / 2 : 0, top = label / 2 % 2 ? height / 2 : 0;
    uint32_t bright = (uint32_t)(label / 4 % spec->channels);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < spec->channels; c++) {
                bool inside = x >= left && x < left + width / 2 && y >= top && y < top + height / 2;
                uint32_t value = random_below(&random, 60) + (inside && c == bright ? 170 : 30);
                *pixels++ = (uint8_t)value;
            }
}

/* What one split needs while it is written. */
typedef struct SplitWriter {
    const DatasetSpec *spec;
    const char *folder, *name;
    FshSplitInfo *info;
    ImageEncoder *encoder;
    Image images[2]; /* of a pair: input and target */
    Buffer encoded[2];
    const Buffer *dictionary; /* empty: nothing is compressed */
    FshPacker *packer;
} SplitWriter;

static uint64_t class_of(const DatasetSpec *spec, const char *split, uint64_t index)
{
    if (!spec->classes_apart)
        return index % spec->class_count;
    return strcmp(split, "val") == 0 ? spec->class_count - 1 : index % (spec->class_count - 1);
}

/* Makes a JPEG file the Y4M of its planes. */
static void make_y4m(Buffer *file)
{
    ImageDecoder *decoder = NULL;
    ImageInfo info;
    PlanesChroma chroma = PLANES_GRAY;
    Buffer made = {0};
    uint8_t *planes = NULL;
    FshError error = {0};
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_probe(decoder, file->bytes, file->length, &info, &error), &error);
    assert_true(planes_of_jpeg(decoder, &info, &chroma));
    assert_ok(y4m_begin(&made, chroma, info.width, info.height, &planes, &error), &error);
    assert_ok(planes_read_jpeg(decoder, planes, &error), &error);
    image_decoder_free(&decoder);
    buffer_free(file);
    *file = made;
}

static void fill_field(SplitWriter *writer, uint64_t index, unsigned side, FshField *field)
{
    const DatasetSpec *spec = writer->spec;
    Image *image = &writer->images[side];
    Buffer *encoded = &writer->encoded[side];
    FshError error = {0};
    uint32_t width = dataset_width(spec, index), height = dataset_height(spec, index);
    size_t bytes = (size_t)width * height * spec->channels;
    assert_ok(image_reserve(image, width, height, spec->channels, &error), &error);
    dataset_draw(spec, index, image->pixels);
    for (size_t i = 0; side == 1 && i < bytes; i++)
        image->pixels[i] = (uint8_t)(255 - image->pixels[i]);
    if (spec->uneven && side == 1 && index == 5) {
        width--;
        bytes -= (size_t)height * spec->channels;
    }
    *field = (FshField){.data = image->pixels,
                        .bytes = bytes,
                        .width = width,
                        .height = height,
                        .channels = spec->channels,
                        .codec = spec->codec};
    image->pixels[0] ^= spec->other_byte && index == 0;
    if (spec->codec == FSH_CODEC_RAW)
        return;
    assert_ok(image_encode(writer->encoder, image,
                           &(ImageEncodeOptions){.format = IMAGE_JPEG,
                                                 .quality = 95,
                                                 .subsampling = spec->subsampled ? IMAGE_SUBSAMPLING_420
                                                                                 : IMAGE_SUBSAMPLING_444},
                           encoded, &error),
              &error);
    if (spec->garbage && index == 5)
        memset(encoded->bytes + 2, 0, encoded->length - 2);
    for (size_t i = 0; i + 21 < encoded->length && spec->untabled && index == 5; i++)
        if (encoded->bytes[i] == 0xFF && encoded->bytes[i + 1] == 0xC4) /* DHT: length, class, 16 counts */
            memset(encoded->bytes + i + 5, 0xFF, 16);
    if (spec->codec == FSH_CODEC_Y4M)
        make_y4m(encoded);
    field->data = encoded->bytes;
    field->bytes = encoded->length;
    if (spec->claimed)
        field->width = field->height = spec->claimed;
}

static void split_writer_free(SplitWriter *writer)
{
    fsh_packer_free(&writer->packer);
    image_encoder_free(&writer->encoder);
    for (int side = 0; side < 2; side++) {
        image_free(&writer->images[side]);
        buffer_free(&writer->encoded[side]);
    }
}

static void put_sample(SplitWriter *writer, FshWriter *shard, uint64_t index)
{
    const DatasetSpec *spec = writer->spec;
    uint64_t label = class_of(spec, writer->name, index);
    char key[NAME_BYTES], source[2 * NAME_BYTES];
    (void)snprintf(key, sizeof key, "class%02u/%06u", (unsigned)label, (unsigned)index);
    (void)snprintf(source, sizeof source, "%s/%s.png", writer->name, key);
    FshSample sample = {.label = spec->kind == FSH_KIND_PAIRS ? FSH_NO_LABEL : (int64_t)label,
                        .key = key,
                        .key_bytes = strlen(key),
                        .field_count = spec->kind == FSH_KIND_PAIRS ? 2 : 1};
    for (unsigned i = 0; i < sample.field_count; i++) {
        fill_field(writer, index, i, &sample.fields[i]);
        sample.fields[i].source = source;
        sample.fields[i].source_bytes = strlen(source);
    }
    FshError error = {0};
    uint8_t broken[64] = {0};
    if (writer->packer) {
        assert_ok(fsh_sample_pack(writer->packer, &sample, &sample, &error), &error);
        assert_int_equal(sample.fields[0].compression, FSH_COMPRESSION_ZSTD);
    }
    if (spec->broken_frame && index == 5) {
        sample.fields[0].data = broken;
        sample.fields[0].bytes = sizeof broken;
    }
    assert_ok(fsh_writer_put(shard, &sample, &error), &error);
    if (writer->info->class_counts)
        writer->info->class_counts[label]++;
}

static void write_shard(SplitWriter *writer, FshManifest *manifest, uint32_t number)
{
    const DatasetSpec *spec = writer->spec;
    char name[NAME_BYTES], path[512];
    FshError error = {0};
    FshWriter *shard = NULL;
    const FshWriterOptions options = {
        .container = FSH_CONTAINER_SHARDS,
        .dataset_id = dataset_id,
        .split = writer->name,
        .kind = manifest->kind,
        .field_names = (const char *const *)manifest->field_names,
        .field_count = manifest->field_count,
        .class_names = (const char *const *)manifest->class_names,
        .class_count = manifest->class_count,
        .shard_index = number,
        .shard_count = spec->shard_count,
        .dictionary = writer->dictionary->bytes,
        .dictionary_bytes = writer->dictionary->length,
    };
    (void)fsh_file_name(name, sizeof name, FSH_CONTAINER_SHARDS, writer->name, number, spec->shard_count);
    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, name);
    assert_ok(fsh_writer_open(&shard, path, &options, &error), &error);
    uint64_t count = writer->info->sample_count;
    for (uint64_t i = count * number / spec->shard_count; i < count * (number + 1) / spec->shard_count; i++)
        put_sample(writer, shard, i);
    assert_ok(fsh_writer_finish(shard, &writer->info->files[number], &error), &error);
    fsh_writer_close(&shard);
}

/* Trains a dictionary on the images of the training split. */
static void train_dictionary(const DatasetSpec *spec, Buffer *dictionary)
{
    enum { DICTIONARY_BYTES = 1024 };
    FshError error = {0};
    SplitWriter writer = {.spec = spec};
    Buffer images = {0};
    size_t *sizes = calloc(spec->train_count, sizeof *sizes);
    void *trained = NULL;
    size_t trained_bytes = 0;
    assert_non_null(sizes);
    assert_ok(image_encoder_new(&writer.encoder, &error), &error);
    for (uint64_t i = 0; i < spec->train_count; i++) {
        FshField field;
        fill_field(&writer, i, 0, &field);
        assert_ok(buffer_append(&images, field.data, field.bytes, &error), &error);
        sizes[i] = field.bytes;
    }
    assert_ok(fsh_dictionary_train(images.bytes, sizes, spec->train_count, DICTIONARY_BYTES, &trained,
                                   &trained_bytes, &error),
              &error);
    assert_ok(buffer_append(dictionary, trained, trained_bytes, &error), &error);
    free(trained);
    free(sizes);
    split_writer_free(&writer);
    buffer_free(&images);
}

static void write_split(const char *folder, const DatasetSpec *spec, const Buffer *dictionary,
                        FshManifest *manifest, const char *name, uint64_t count)
{
    FshSplitInfo *info = &manifest->splits[manifest->split_count++];
    *info = (FshSplitInfo){.name = strdup(name),
                           .sample_count = count,
                           .files = calloc(spec->shard_count, sizeof *info->files),
                           .file_count = spec->shard_count};
    if (manifest->kind == FSH_KIND_CLASSES)
        info->class_counts = calloc(spec->class_count, sizeof *info->class_counts);
    SplitWriter writer = {
        .spec = spec, .folder = folder, .name = name, .info = info, .dictionary = dictionary};
    FshError error = {0};
    if (dictionary->length)
        assert_ok(fsh_packer_new(&writer.packer, FSH_PACK_LEVEL_DEFAULT, dictionary->bytes,
                                 dictionary->length, &error),
                  &error);
    assert_ok(image_encoder_new(&writer.encoder, &error), &error);
    for (uint32_t shard = 0; shard < spec->shard_count; shard++)
        write_shard(&writer, manifest, shard);
    split_writer_free(&writer);
}

static void set_statistics(FshStatistics *statistics, const DatasetSpec *spec)
{
    *statistics = (FshStatistics){.channels = spec->channels,
                                  .width_min = spec->width,
                                  .width_max = spec->width + 2 * spec->grow,
                                  .height_min = spec->height,
                                  .height_max = spec->height + spec->grow};
    for (uint32_t c = 0; c < spec->channels && !spec->unmeasured; c++) {
        statistics->mean[c] = 0.35;
        statistics->standard_deviation[c] = 0.25;
    }
}

void dataset_make(const char *folder, const DatasetSpec *spec)
{
    FshManifest manifest = {.container = FSH_CONTAINER_SHARDS,
                            .kind = spec->kind ? spec->kind : FSH_KIND_CLASSES,
                            .provenance_json = strdup("{}")};
    bool pairs = manifest.kind == FSH_KIND_PAIRS;
    memcpy(manifest.id, dataset_id, sizeof dataset_id);
    set_statistics(&manifest.statistics, spec);
    manifest.field_count = pairs ? 2 : 1;
    manifest.field_names = calloc(manifest.field_count, sizeof *manifest.field_names);
    manifest.splits = calloc(2, sizeof *manifest.splits);
    assert_true(manifest.field_names && manifest.splits && spec->class_count <= CLASSES_MAX &&
                spec->shard_count <= SHARDS_MAX);
    manifest.field_names[0] = strdup(pairs ? "blurry" : "image");
    if (pairs) {
        manifest.field_names[1] = strdup("sharp");
    } else {
        manifest.class_count = spec->class_count;
        manifest.class_names = calloc(spec->class_count, sizeof *manifest.class_names);
        for (uint64_t i = 0; i < spec->class_count; i++) {
            char name[NAME_BYTES];
            (void)snprintf(name, sizeof name, "class%02u", (unsigned)look_of(spec, i));
            manifest.class_names[i] = strdup(look_of(spec, i) == 0 && spec->renamed ? spec->renamed : name);
        }
    }
    FshError error = {0};
    assert_ok(file_make_folders(folder, &error), &error);
    Buffer dictionary = {0};
    if (spec->compressed) {
        train_dictionary(spec, &dictionary);
        assert_ok(fsh_dictionary_describe(dictionary.bytes, dictionary.length, &manifest.dictionary, &error),
                  &error);
    }
    if (spec->train_count)
        write_split(folder, spec, &dictionary, &manifest, "train", spec->train_count);
    if (spec->val_count)
        write_split(folder, spec, &dictionary, &manifest, "val", spec->val_count);
    assert_ok(fsh_manifest_save(&manifest, folder, false, &error), &error);
    buffer_free(&dictionary);
    fsh_manifest_free(&manifest);
}

void dataset_unpack(const FshSplit *split, const char *folder)
{
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        FshError error = {0};
        char path[4096];
        assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
        (void)snprintf(path, sizeof path, "%s/%lld", folder, (long long)sample.label);
        assert_ok(file_make_folders(path, &error), &error);
        (void)snprintf(path, sizeof path, "%s/%lld/%06llu.jpg", folder, (long long)sample.label,
                       (unsigned long long)i);
        test_file_write(path, sample.fields[0].data, sample.fields[0].bytes);
    }
}
