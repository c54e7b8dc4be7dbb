#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "formats/lmdb_reader.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/source_list.h"
#include "tests/formats/samples.h"
#include "tests/fuzz/fuzz_dictionary.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/seeds_lmdb.h"

enum { PAYLOAD_BYTES = 40 };

static void need_ok(FshStatus status, const FshError *error)
{
    seed_need(status == FSH_OK, error->message);
}

/* Writes a file of the dataset in folder as a seed. */
static void take(const char *root, const char *target, const char *name, const char *folder, const char *file,
                 Buffer *bytes)
{
    char path[PATH_MAX];
    FshError error = {0};
    need_ok(file_join(path, sizeof path, folder, file, &error), &error);
    need_ok(file_read(path, bytes, &error), &error);
    seed_write(root, target, name, bytes->bytes, bytes->length);
    if (strcmp(target, "shard") == 0) { /* whole, and without its footer */
        char torn[64];
        (void)snprintf(torn, sizeof torn, "%s-torn", name);
        seed_write(root, "repair", name, bytes->bytes, bytes->length);
        seed_write(root, "repair", torn, bytes->bytes, bytes->length - SHARD_FOOTER_BYTES);
    }
}

/* Writes the parts of a shard as seeds: metadata, records, index. */
static void take_parts(const char *root, const char *name, const Buffer *shard)
{
    ShardView view;
    FshError error = {0};
    bool torn = false;
    need_ok(fsh_shard_parse_header(&view, shard->bytes, shard->length, &error), &error);
    need_ok(fsh_shard_parse_footer(&view, &torn, &error), &error);
    const uint8_t *rows = NULL;
    Buffer own_rows = {0};
    need_ok(fsh_shard_rows(&view, &own_rows, &rows, &error), &error);
    seed_write(root, "metadata", name, view.metadata, view.metadata_bytes);
    for (uint64_t i = 0; i < view.record_count; i++) {
        IndexRow row = fsh_index_row_load(rows + i * INDEX_ROW_BYTES);
        char record_name[64];
        (void)snprintf(record_name, sizeof record_name, "%s-%llu", name, (unsigned long long)i);
        seed_write(root, "record", record_name, shard->bytes + row.offset, (size_t)row.record_bytes);
    }
    buffer_free(&own_rows);
    if (view.record_form == FSH_RECORD_COMPACT)
        return;
    /* The index, as fuzz_index.c has it: records begin at 128. */
    Buffer index = {0};
    uint8_t head[16];
    store_le64(head, view.index_offset - view.header_bytes + 128);
    store_le64(head + 8, SAMPLES_CLASS_COUNT);
    need_ok(buffer_append(&index, head, sizeof head, &error), &error);
    need_ok(buffer_append(&index, view.index, (size_t)view.record_count * INDEX_ROW_BYTES, &error), &error);
    for (uint64_t i = 0; i < view.record_count; i++) {
        uint8_t *row = index.bytes + sizeof head + i * INDEX_ROW_BYTES;
        store_le64(row, load_le64(row) - view.header_bytes + 128);
    }
    seed_write(root, "index", name, index.bytes, index.length);
    buffer_free(&index);
}

/* Writes as seeds the files of a dataset that its container's parsers are given. */
static void take_container(const char *root, const char *name, const DatasetPlan *plan, const char *folder,
                           Buffer *bytes)
{
    char file[FSH_FILE_NAME_BYTES], torn[64];
    LmdbView view;
    FshError error = {0};
    (void)fsh_file_name(file, sizeof file, plan->container, "train", 0, plan->shard_count);
    switch (plan->container) {
    case FSH_CONTAINER_LMDB:
        take(root, "lmdb", name, folder, "train.lmdb/" LMDB_DATA_NAME, bytes);
        need_ok(fsh_lmdb_parse(&view, bytes->bytes, bytes->length, &error), &error);
        seed_write(root, "metadata", name, view.metadata, view.metadata_bytes);
        fsh_lmdb_free(&view);
        break;
    case FSH_CONTAINER_SHARDS:
        take(root, "shard", name, folder, file, bytes);
        take_parts(root, name, bytes);
        (void)snprintf(torn, sizeof torn, "%s-torn", name);
        seed_write(root, "shard", torn, bytes->bytes, bytes->length / 64 * 32);
        break;
    default:
        take(root, "webdataset", name, folder, file, bytes);
    }
}

static void make_dataset(const char *root, const char *name, const DatasetPlan *plan)
{
    char folder[64] = "/tmp/fuzz-seeds-XXXXXX", command[128];
    FshError error = {0};
    Buffer bytes = {0};
    seed_need(mkdtemp(folder) != NULL, "mkdtemp");
    need_ok(samples_try_write_dataset(plan, folder, &error), &error);
    take(root, "manifest", name, folder, FSH_MANIFEST_NAME, &bytes);
    take_container(root, name, plan, folder, &bytes);
    buffer_free(&bytes);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    seed_need(system(command) == 0, command); // NOLINT(cert-env33-c): a name of our own making
}

static void make_small_lmdb(const char *root)
{
    static const char jpeg[] = "\xFF\xD8 no more than this";
    static const char *const fields[] = {"image"}, *const classes[] = {"bee", "cat"};
    FshError error = {0};
    Metadata metadata = {0};
    char *text = NULL;
    size_t text_bytes = 0;
    FshSample sample = {.label = 1, .key = "cat/1", .key_bytes = 5, .field_count = 1};
    sample.fields[0] = (FshField){.data = jpeg,
                                  .bytes = sizeof jpeg,
                                  .width = 2,
                                  .height = 2,
                                  .channels = 3,
                                  .codec = FSH_CODEC_JPEG,
                                  .source = "cat/1.jpg",
                                  .source_bytes = 9};
    _Alignas(FSH_ALIGNMENT) uint8_t record[RECORD_BYTES_MIN];
    need_ok(fsh_record_build(&sample, FSH_RECORD_ALIGNED, record, sizeof record, &error), &error);
    const FshManifest manifest = {.id = SAMPLES_ID,
                                  .container = FSH_CONTAINER_LMDB,
                                  .kind = FSH_KIND_CLASSES,
                                  .field_names = (char **)fields,
                                  .field_count = 1,
                                  .class_names = (char **)classes,
                                  .class_count = 2};
    need_ok(fsh_metadata_make(&metadata, &manifest, "train", &error), &error);
    need_ok(fsh_metadata_encode(&metadata, 2, &text, &text_bytes, &error), &error);
    const SeedEntry entries[] = {{"0000000000", record, sizeof record, false},
                                 {"0000000001", record, sizeof record, true},
                                 {LMDB_METADATA_KEY, text, text_bytes, true}};
    seed_write_lmdb(root, "lmdb", "small-pages", entries, 3);
    free(text);
    fsh_metadata_free(&metadata);
}

/* ---- compressed fields ---- */

/* Writes a field's frame as a seed, with the head that fuzz_unpack.c expects. */
static void write_frame(const char *root, const char *name, const FshField *field, bool with_dictionary)
{
    uint8_t head[5] = {0};
    Buffer input = {0};
    FshError error = {0};
    store_le32(head, (uint32_t)field->unpacked_bytes - 1);
    head[4] = with_dictionary;
    need_ok(buffer_append(&input, head, sizeof head, &error), &error);
    need_ok(buffer_append(&input, field->data, field->bytes, &error), &error);
    seed_write(root, "unpack", name, input.bytes, input.length);
    buffer_free(&input);
}

typedef struct Packing {
    const char *root, *name;
    FshContainer container;
    FshRecordForm form;
    const void *dictionary; /* NULL: none */
    size_t dictionary_bytes;
    FshPacker *packer;
} Packing;

static void put_packed(const Packing *packing, FshWriter *writer, uint64_t index)
{
    enum { PARTS = 8 };
    const DatasetPlan plan = {.container = packing->container, .train_count = 3, .shard_count = 1};
    uint8_t picture[PARTS * FUZZ_PICTURE_BYTES];
    char frame_name[64];
    MadeSample made;
    FshSample packed;
    FshError error = {0};
    for (size_t part = 0; part < PARTS; part++)
        fuzz_picture(index, picture + part * FUZZ_PICTURE_BYTES);
    sample_make(&made, &plan, "train", index);
    FshField *field = &made.sample.fields[0];
    field->data = picture;
    field->bytes = packing->dictionary ? FUZZ_PICTURE_BYTES : sizeof picture; /* repeats need no dictionary */
    field->codec = index == 2 ? FSH_CODEC_RAW : FSH_CODEC_JPEG;
    field->width = (uint32_t)field->bytes / 3;
    field->height = 1;
    field->channels = 3;
    need_ok(fsh_sample_pack(packing->packer, &made.sample, &packed, &error), &error);
    seed_need(packed.fields[0].compression == FSH_COMPRESSION_ZSTD, "a picture becomes smaller");
    (void)snprintf(frame_name, sizeof frame_name, "%s-%llu", packing->name, (unsigned long long)index);
    write_frame(packing->root, frame_name, &packed.fields[0], packing->dictionary != NULL);
    need_ok(fsh_writer_put(writer, &packed, &error), &error);
    sample_free(&made);
}

/* Writes seeds from a shard or LMDB of packed fields. */
static void make_packed(Packing packing)
{
    const bool is_lmdb = packing.container == FSH_CONTAINER_LMDB;
    const DatasetPlan plan = {.container = packing.container, .train_count = 3, .shard_count = 1};
    char folder[64] = "/tmp/fuzz-seeds-XXXXXX", path[PATH_MAX], command[128], file[FSH_FILE_NAME_BYTES];
    FshWriterOptions options = samples_writer_options(&plan, "train", 0);
    FshWriter *writer = NULL;
    FshError error = {0};
    Buffer bytes = {0};
    options.record_form = packing.form;
    options.dictionary = packing.dictionary;
    options.dictionary_bytes = packing.dictionary_bytes;
    seed_need(mkdtemp(folder) != NULL, "mkdtemp");
    (void)fsh_file_name(file, sizeof file, packing.container, "train", 0, 1);
    need_ok(file_join(path, sizeof path, folder, file, &error), &error);
    need_ok(fsh_packer_new(&packing.packer, FSH_PACK_LEVEL_DEFAULT, packing.dictionary,
                           packing.dictionary_bytes, &error),
            &error);
    need_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    for (uint64_t i = 0; i < plan.train_count; i++)
        put_packed(&packing, writer, i);
    need_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    fsh_packer_free(&packing.packer);
    take(packing.root, is_lmdb ? "lmdb" : "shard", packing.name, folder,
         is_lmdb ? "train.lmdb/" LMDB_DATA_NAME : file, &bytes);
    if (!is_lmdb)
        take_parts(packing.root, packing.name, &bytes);
    buffer_free(&bytes);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    seed_need(system(command) == 0, command); // NOLINT(cert-env33-c): a name of our own making
}

static void make_compressed(const char *root)
{
    void *dictionary = NULL;
    size_t dictionary_bytes = 0;
    FshError error = {0};
    need_ok(fuzz_dictionary_train(&dictionary, &dictionary_bytes, &error), &error);
    make_packed((Packing){root, "packed", FSH_CONTAINER_SHARDS, FSH_RECORD_ALIGNED, NULL, 0, NULL});
    make_packed((Packing){root, "dictionary", FSH_CONTAINER_SHARDS, FSH_RECORD_ALIGNED, dictionary,
                          dictionary_bytes, NULL});
    make_packed((Packing){root, "compact-dictionary", FSH_CONTAINER_SHARDS, FSH_RECORD_COMPACT, dictionary,
                          dictionary_bytes, NULL});
    make_packed((Packing){root, "lmdb-dictionary", FSH_CONTAINER_LMDB, FSH_RECORD_ALIGNED, dictionary,
                          dictionary_bytes, NULL});
    free(dictionary);
}

/* Writes what samples were made of, and texts of rows that are no samples. */
static void make_sources(const char *root)
{
    static const char *const rows[] = {"0", "3,17-20,44", "0-4294967294", "4294967295", "1,2", "7-7", "01"};
    static const char statistics[] = "{}";
    char folder[] = "/tmp/fuzz-seeds-XXXXXX", command[64], name[32];
    FshError error = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(name, sizeof name, "rows-%zu", i);
        seed_write(root, "sources", name, rows[i], strlen(rows[i]));
    }
    seed_need(mkdtemp(folder) != NULL, "mkdtemp");
    for (unsigned fields = 1; fields <= 2; fields++) {
        Buffer text = {0}, bytes = {0};
        const SourceField field = {.bytes = 77,
                                   .modified_ns = -5,
                                   .hash = 9,
                                   .width = 4,
                                   .height = 3,
                                   .channels = 3,
                                   .path = "a/b.jpg",
                                   .path_bytes = 7};
        const SourceRecord inside = {
            .key = "a/b", .key_bytes = 3, .field_count = fields, .fields = {field, field}};
        const SourceRecord alone = {
            .key = "b~2", .key_bytes = 3, .field_count = fields, .fields = {field, field}};
        const SourcesHead head = {.field_count = fields,
                                  .record_count = 2,
                                  .root = "/data",
                                  .root_bytes = 5,
                                  .statistics = statistics,
                                  .statistics_bytes = sizeof statistics - 1};
        need_ok(fsh_sources_add(&text, &inside, &error), &error);
        need_ok(fsh_sources_add(&text, &alone, &error), &error);
        need_ok(fsh_sources_save(folder, "x", &head, &text, &error), &error);
        (void)snprintf(name, sizeof name, "fields-%u", fields);
        take(root, "sources", name, folder, ".x.sources", &bytes);
        buffer_free(&text);
        buffer_free(&bytes);
    }
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    seed_need(system(command) == 0, command); // NOLINT(cert-env33-c): a name of our own making
}

void seeds_formats(const char *root)
{
    make_sources(root);
    static const struct {
        const char *name;
        DatasetPlan plan;
    } datasets[] = {
        {"classes", {.container = FSH_CONTAINER_SHARDS, .train_count = 7, .val_count = 1, .shard_count = 2}},
        {"one", {.container = FSH_CONTAINER_SHARDS, .train_count = 1, .shard_count = 1}},
        {"pairs",
         {.container = FSH_CONTAINER_SHARDS, .kind = FSH_KIND_PAIRS, .train_count = 2, .shard_count = 1}},
        {"compact",
         {.container = FSH_CONTAINER_SHARDS, .train_count = 9, .shard_count = 1, .form = FSH_RECORD_COMPACT}},
        {"compact-pairs",
         {.container = FSH_CONTAINER_SHARDS,
          .kind = FSH_KIND_PAIRS,
          .train_count = 4,
          .shard_count = 1,
          .form = FSH_RECORD_COMPACT}},
        {"lmdb", {.container = FSH_CONTAINER_LMDB, .train_count = 3}},
        {"lmdb-pairs", {.container = FSH_CONTAINER_LMDB, .kind = FSH_KIND_PAIRS, .train_count = 2}},
        {"tar", {.container = FSH_CONTAINER_TAR, .train_count = 4}},
        {"tar-pairs", {.container = FSH_CONTAINER_TAR, .kind = FSH_KIND_PAIRS, .train_count = 2}},
        {"lmdb-overflow", {.container = FSH_CONTAINER_LMDB, .train_count = 2, .payload_bytes_max = 6000}},
    };
    for (size_t i = 0; i < sizeof datasets / sizeof datasets[0]; i++) {
        DatasetPlan plan = datasets[i].plan;
        if (!plan.payload_bytes_max)
            plan.payload_bytes_max = PAYLOAD_BYTES;
        make_dataset(root, datasets[i].name, &plan);
    }
    make_small_lmdb(root);
    make_compressed(root);
}
