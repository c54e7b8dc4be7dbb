/* What python_test.py needs of libfshard.
 *
 *   python_peer make FOLDER (shards|lmdb) (zstd|dictionary) COUNT
 *
 * writes a dataset of compressed fields: sample i of split train has the key of its number and the label i %
 * 2. Where i % 4 is 3 its field is of codec other and holds a text; else it holds raw pixels, 20 + i % 3
 * high, 16 + i % 5 wide, in three channels: (3 * x + 5 * y + 7 * i + channel) & 255.
 *
 *   python_peer read
 *
 * opens each path that comes on stdin, verifies and unpacks every sample, and answers with a line: "ok",
 * their number, one CRC32C over all keys, labels and contents, and the dataset's id; or the failure's status
 * and message. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "formats/fshard.h"

enum { CONTENT_BYTES_MAX = 2048, DICTIONARY_BYTES = 1024, LEVEL = 3 };

/* ---- make ---- */

static void fill_field(FshField *field, uint64_t i, uint8_t content[CONTENT_BYTES_MAX])
{
    *field = (FshField){.data = content, .width = 16 + (uint32_t)(i % 5), .height = 20 + (uint32_t)(i % 3)};
    field->channels = 3;
    if (i % 4 == 3) {
        int length = 0;
        for (uint64_t line = 0; line < 4 + i % 9; line++) {
            length += snprintf((char *)content + length, CONTENT_BYTES_MAX - (size_t)length,
                               "line %" PRIu64 " of the text of sample %" PRIu64 "\n", line, i);
        }
        field->codec = FSH_CODEC_OTHER;
        field->bytes = (size_t)length;
        return;
    }
    field->codec = FSH_CODEC_RAW;
    for (uint32_t y = 0; y < field->height; y++) {
        for (uint32_t x = 0; x < field->width; x++) {
            for (unsigned channel = 0; channel < 3; channel++) {
                content[field->bytes++] = (uint8_t)(3 * x + 5 * y + 7 * i + channel);
            }
        }
    }
}

static FshStatus train(uint64_t count, void **dictionary_ret, size_t *bytes_ret, FshError *error)
{
    uint8_t *contents = malloc(count * CONTENT_BYTES_MAX);
    size_t *sizes = calloc(count, sizeof *sizes);
    FshStatus status = FSH_ERR_MEMORY;
    size_t total = 0;
    for (uint64_t i = 0; contents && sizes && i < count; i++) {
        FshField field;
        fill_field(&field, i, contents + total);
        sizes[i] = field.bytes;
        total += field.bytes;
    }
    if (contents && sizes)
        status =
            fsh_dictionary_train(contents, sizes, count, DICTIONARY_BYTES, dictionary_ret, bytes_ret, error);
    free(sizes);
    free(contents);
    return status;
}

static FshStatus write_samples(FshWriter *writer, FshPacker *packer, uint64_t count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < count && !status; i++) {
        uint8_t content[CONTENT_BYTES_MAX];
        char key[32];
        int key_bytes = snprintf(key, sizeof key, "%" PRIu64, i);
        FshSample sample = {
            .label = (int64_t)(i % 2), .key = key, .key_bytes = (size_t)key_bytes, .field_count = 1};
        fill_field(&sample.fields[0], i, content);
        status = fsh_sample_pack(packer, &sample, &sample, error);
        if (!status)
            status = fsh_writer_put(writer, &sample, error);
    }
    return status;
}

static FshStatus save_manifest(const FshWriterOptions *options, FshFileInfo *info, const char *folder,
                               uint64_t count, FshError *error)
{
    char split_name[] = "train", *class_names[] = {"even", "odd"}, *field_names[] = {"image"};
    uint64_t class_counts[] = {count - count / 2, count / 2};
    FshSplitInfo split = {.name = split_name,
                          .sample_count = count,
                          .class_counts = class_counts,
                          .files = info,
                          .file_count = 1};
    FshManifest manifest = {.container = options->container,
                            .kind = options->kind,
                            .field_names = field_names,
                            .field_count = 1,
                            .class_names = class_names,
                            .class_count = 2,
                            .splits = &split,
                            .split_count = 1};
    (void)snprintf(manifest.id, sizeof manifest.id, "%s", options->dataset_id);
    FshStatus status = FSH_OK;
    if (options->dictionary)
        status = fsh_dictionary_describe(options->dictionary, options->dictionary_bytes, &manifest.dictionary,
                                         error);
    return status ? status : fsh_manifest_save(&manifest, folder, false, error);
}

static FshStatus make(const char *folder, const char *container, const char *compression, uint64_t count,
                      FshError *error)
{
    static const char *const class_names[] = {"even", "odd"}, *const field_names[] = {"image"};
    FshWriterOptions options = {
        .container = strcmp(container, "lmdb") == 0 ? FSH_CONTAINER_LMDB : FSH_CONTAINER_SHARDS,
        .dataset_id = "00112233445566778899aabbccddeeff",
        .split = "train",
        .kind = FSH_KIND_CLASSES,
        .field_names = field_names,
        .field_count = 1,
        .class_names = class_names,
        .class_count = 2,
        .shard_count = 1,
        .record_form = strcmp(container, "compact") == 0 ? FSH_RECORD_COMPACT : FSH_RECORD_ALIGNED,
    };
    char name[128], path[4096];
    void *dictionary = NULL;
    FshPacker *packer = NULL;
    FshWriter *writer = NULL;
    FshFileInfo info = {0};
    (void)snprintf(path, sizeof path, "%s/%s", folder,
                   fsh_file_name(name, sizeof name, options.container, "train", 0, 1));
    FshStatus status = FSH_OK;
    if (strcmp(compression, "dictionary") == 0)
        status = train(count, &dictionary, &options.dictionary_bytes, error);
    options.dictionary = dictionary;
    if (!status)
        status = fsh_packer_new(&packer, LEVEL, dictionary, options.dictionary_bytes, error);
    if (!status)
        status = fsh_writer_open(&writer, path, &options, error);
    if (!status)
        status = write_samples(writer, packer, count, error);
    if (!status)
        status = fsh_writer_finish(writer, &info, error);
    if (!status)
        status = save_manifest(&options, &info, folder, count, error);
    free(info.name);
    fsh_writer_close(&writer);
    fsh_packer_free(&packer);
    free(dictionary);
    return status;
}

/* ---- read ---- */

static FshStatus read_sample(const FshSplit *split, uint64_t index, FshUnpacker *unpacker, uint32_t *crc,
                             FshError *error)
{
    FshSample sample;
    FshStatus status = fsh_sample_verify(split, index, error);
    if (!status)
        status = fsh_sample_get(split, index, &sample, error);
    if (status)
        return status;
    *crc = fsh_crc32c(*crc, sample.key, sample.key_bytes);
    *crc = fsh_crc32c(*crc, &sample.label, sizeof sample.label);
    for (unsigned i = 0; i < sample.field_count && !status; i++) {
        const void *data = NULL;
        size_t bytes = 0;
        status = fsh_field_unpack(unpacker, split, &sample.fields[i], &data, &bytes, error);
        if (!status)
            *crc = fsh_crc32c(*crc, data, bytes);
    }
    return status;
}

static void read_path(const char *path, FshUnpacker *unpacker)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    uint64_t count = 0;
    uint32_t crc = 0;
    FshStatus status = fsh_open(&dataset, path, &error);
    const FshManifest *manifest = status ? NULL : fsh_manifest(dataset);
    for (size_t i = 0; manifest && i < manifest->split_count; i++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[i].name);
        for (uint64_t j = 0; j < split->sample_count && !status; j++, count++) {
            status = read_sample(split, j, unpacker, &crc, &error);
        }
    }
    for (char *at = error.message; *at; at++) { /* a key may be anything, and the answer is one line */
        *at = *at == '\n' ? ' ' : *at;
    }
    if (status)
        (void)printf("%s\t%s\n", fsh_strerror(status), error.message);
    else
        (void)printf("ok\t%" PRIu64 "\t%08" PRIx32 "\t%s\n", count, crc, manifest->id);
    (void)fflush(stdout); /* who asks waits for the answer */
    fsh_close(&dataset);
}

int main(int argc, char **argv)
{
    FshError error = {0};
    FshStatus status = FSH_OK;
    if (argc == 6 && strcmp(argv[1], "make") == 0) {
        status = make(argv[2], argv[3], argv[4], strtoull(argv[5], NULL, 10), &error);
    } else if (argc == 2 && strcmp(argv[1], "read") == 0) {
        FshUnpacker *unpacker = NULL;
        char path[4096];
        status = fsh_unpacker_new(&unpacker, &error);
        while (!status && fgets(path, sizeof path, stdin)) {
            path[strcspn(path, "\n")] = '\0';
            read_path(path, unpacker);
        }
        fsh_unpacker_free(&unpacker);
    } else {
        (void)fprintf(stderr, "usage: python_peer make FOLDER (shards|lmdb) (zstd|dictionary) COUNT\n"
                              "       python_peer read\n");
        return 2;
    }
    if (status)
        (void)fprintf(stderr, "python_peer: %s: %s\n", fsh_strerror(status), error.message);
    return status ? 1 : 0;
}
