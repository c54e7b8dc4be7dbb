/* read_bench.c - makes datasets of records of one size, and reads them as fast as possible.
 *
 *   read_bench make shards|lmdb|tar|mdb|files DIR COUNT BYTES     (mdb: liblmdb alone, keys "00000042";
 *                                                                 files: a file each)
 *   read_bench read DIR COUNT [THREADS]                           prints one line of JSON
 *
 * "random" reads the length and the first payload byte of every record once, in an order drawn beforehand.
 * "sequential" sums every byte in order. Both are warm, the best of three. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/random.h"
#include "formats/fshard.h"

enum { KEY_BYTES = 8, ROUNDS = 3 };

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "read_bench: %s: %s\n", what, why);
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- making ---- */

static void fill(uint8_t *payload, size_t bytes, uint64_t index)
{
    Random random;
    random_start(&random, 7, index);
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word = random_u32(&random);
        memcpy(payload + i, &word, bytes - i < 4 ? bytes - i : 4);
    }
}

static void key_of(char key[KEY_BYTES + 1], uint64_t index)
{
    (void)snprintf(key, KEY_BYTES + 1, "%08u", (unsigned)(index % 100000000));
}

static void make_dataset(FshContainer container, const char *folder, uint64_t count, size_t bytes)
{
    static const char id[] = "00112233445566778899aabbccddeeff";
    const char *const fields[] = {"image"}, *const classes[] = {"only"};
    char name[128], path[PATH_MAX], key[KEY_BYTES + 1];
    FshError error = {0};
    FshWriter *writer = NULL;
    FshFileInfo info = {0};
    uint8_t *payload = malloc(bytes);
    (void)fsh_file_name(name, sizeof name, container, "train", 0, 1);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    const FshWriterOptions options = {.container = container,
                                      .dataset_id = id,
                                      .split = "train",
                                      .kind = FSH_KIND_CLASSES,
                                      .field_names = fields,
                                      .field_count = 1,
                                      .class_names = classes,
                                      .class_count = 1,
                                      .shard_count = 1,
                                      .force = true};
    if (!payload || file_make_folders(folder, &error) || fsh_writer_open(&writer, path, &options, &error))
        die(path, error.message);
    for (uint64_t i = 0; i < count; i++) {
        fill(payload, bytes, i);
        key_of(key, i);
        FshSample sample = {.label = 0, .key = key, .key_bytes = KEY_BYTES, .field_count = 1};
        sample.fields[0] = (FshField){.data = payload,
                                      .bytes = bytes,
                                      .unpacked_bytes = bytes,
                                      .width = 32,
                                      .height = 32,
                                      .channels = 3,
                                      .codec = FSH_CODEC_JPEG,
                                      .source = key,
                                      .source_bytes = KEY_BYTES};
        if (fsh_writer_put(writer, &sample, &error))
            die(path, error.message);
    }
    if (fsh_writer_finish(writer, &info, &error))
        die(path, error.message);
    free(info.name);
    fsh_writer_close(&writer);
    free(payload);
}

static void check_mdb(int code, const char *path)
{
    if (code)
        die(path, mdb_strerror(code));
}

static void make_mdb(const char *folder, uint64_t count, size_t bytes)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi = 0;
    char key[KEY_BYTES + 1];
    uint8_t *payload = malloc(bytes);
    FshError error = {0};
    if (!payload || file_make_folders(folder, &error))
        die(folder, error.message);
    check_mdb(mdb_env_create(&env), folder);
    check_mdb(mdb_env_set_mapsize(env, (size_t)64 << 30), folder);
    check_mdb(mdb_env_open(env, folder, MDB_NOSYNC, 0666), folder);
    check_mdb(mdb_txn_begin(env, NULL, 0, &txn), folder);
    check_mdb(mdb_dbi_open(txn, NULL, 0, &dbi), folder);
    for (uint64_t i = 0; i < count; i++) {
        fill(payload, bytes, i);
        key_of(key, i);
        MDB_val name = {KEY_BYTES, key}, value = {bytes, payload};
        check_mdb(mdb_put(txn, dbi, &name, &value, MDB_APPEND), folder);
    }
    check_mdb(mdb_txn_commit(txn), folder);
    mdb_env_close(env);
    free(payload);
}

static void make_files(const char *folder, uint64_t count, size_t bytes)
{
    char key[KEY_BYTES + 1], path[PATH_MAX];
    uint8_t *payload = malloc(bytes);
    FshError error = {0};
    if (!payload || file_make_folders(folder, &error))
        die(folder, error.message);
    for (uint64_t i = 0; i < count; i++) {
        fill(payload, bytes, i);
        key_of(key, i);
        (void)snprintf(path, sizeof path, "%s/%s.bin", folder, key);
        if (file_write_atomic(path, payload, bytes, true, false, &error))
            die(path, error.message);
    }
    free(payload);
}

/* ---- reading: one interface for all containers ---- */

typedef struct Reader {
    const char *folder;
    FshDataset *dataset;
    const FshSplit *split;
    MDB_env *env;
    MDB_dbi dbi;
    bool files;
} Reader;

/* State of a thread. */
typedef struct Hand {
    const Reader *reader;
    MDB_txn *txn;
    uint8_t *buffer; /* files */
    size_t capacity;
} Hand;

static void open_reader(Reader *reader, const char *folder)
{
    char path[PATH_MAX];
    FshError error = {0};
    *reader = (Reader){.folder = folder};
    (void)snprintf(path, sizeof path, "%s/lock.mdb", folder);
    if (file_exists(path)) {
        MDB_txn *txn = NULL;
        check_mdb(mdb_env_create(&reader->env), folder);
        check_mdb(mdb_env_open(reader->env, folder, MDB_RDONLY | MDB_NORDAHEAD | MDB_NOTLS, 0666), folder);
        check_mdb(mdb_txn_begin(reader->env, NULL, MDB_RDONLY, &txn), folder);
        check_mdb(mdb_dbi_open(txn, NULL, 0, &reader->dbi), folder);
        mdb_txn_abort(txn);
        return;
    }
    (void)snprintf(path, sizeof path, "%s/00000000.bin", folder);
    reader->files = file_exists(path);
    if (reader->files)
        return;
    static const char *const names[] = {"train-00000-of-00001.fshard", "train.lmdb", "train-000000.tar"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!file_exists(path))
            continue;
        if (fsh_open(&reader->dataset, path, &error))
            die(path, error.message);
        reader->split = fsh_split(reader->dataset, "train");
        if (!reader->split)
            die(path, "has no split train");
        return;
    }
    die(folder, "nothing here that read_bench has made");
}

static void close_reader(Reader *reader)
{
    fsh_close(&reader->dataset);
    if (reader->env)
        mdb_env_close(reader->env);
}

static void read_file_into(Hand *hand, uint64_t index, const uint8_t **data, size_t *bytes)
{
    char key[KEY_BYTES + 1], path[PATH_MAX];
    struct stat status;
    key_of(key, index);
    (void)snprintf(path, sizeof path, "%s/%s.bin", hand->reader->folder, key);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status))
        die(path, strerror(errno));
    if ((size_t)status.st_size > hand->capacity) {
        free(hand->buffer);
        hand->capacity = (size_t)status.st_size;
        hand->buffer = malloc(hand->capacity);
    }
    if (!hand->buffer || read(descriptor, hand->buffer, (size_t)status.st_size) != status.st_size)
        die(path, strerror(errno));
    (void)close(descriptor);
    *data = hand->buffer;
    *bytes = (size_t)status.st_size;
}

static void get(Hand *hand, uint64_t index, const uint8_t **data, size_t *bytes)
{
    const Reader *reader = hand->reader;
    if (reader->split) {
        FshSample sample;
        FshError error = {0};
        if (fsh_sample_get(reader->split, index, &sample, &error))
            die(reader->folder, error.message);
        *data = sample.fields[0].data;
        *bytes = sample.fields[0].bytes;
    } else if (reader->env) {
        char key[KEY_BYTES + 1];
        key_of(key, index);
        MDB_val name = {KEY_BYTES, key}, value;
        check_mdb(mdb_get(hand->txn, reader->dbi, &name, &value), reader->folder);
        *data = value.mv_data;
        *bytes = value.mv_size;
    } else {
        read_file_into(hand, index, data, bytes);
    }
}

static Hand open_hand(const Reader *reader)
{
    Hand hand = {.reader = reader};
    if (reader->env)
        check_mdb(mdb_txn_begin(reader->env, NULL, MDB_RDONLY, &hand.txn), reader->folder);
    return hand;
}

static void close_hand(Hand *hand)
{
    if (hand->txn)
        mdb_txn_abort(hand->txn);
    free(hand->buffer);
}

static uint64_t sum_bytes(const uint8_t *data, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        sum += word;
    }
    return sum;
}

/* ---- measuring ---- */

typedef struct Task {
    const Reader *reader;
    const uint64_t *order; /* NULL: ascending */
    uint64_t begin, end;
    uint64_t bytes, sum;
} Task;

static void *run_task(void *context)
{
    Task *task = context;
    Hand hand = open_hand(task->reader);
    for (uint64_t i = task->begin; i < task->end; i++) {
        const uint8_t *data = NULL;
        size_t bytes = 0;
        get(&hand, task->order ? task->order[i] : i, &data, &bytes);
        task->bytes += bytes;
        task->sum += task->order ? data[0] : sum_bytes(data, bytes);
    }
    close_hand(&hand);
    return NULL;
}

/* Returns the seconds of the best round. */
static double measure(const Reader *reader, const uint64_t *order, uint64_t count, unsigned threads,
                      uint64_t *bytes_ret, uint64_t *sum_ret)
{
    enum { THREADS_MAX = 256 };
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t handles[THREADS_MAX];
        Task tasks[THREADS_MAX];
        double start = seconds(CLOCK_MONOTONIC);
        for (unsigned i = 0; i < threads; i++) {
            tasks[i] = (Task){reader, order, count * i / threads, count * (i + 1) / threads, 0, 0};
            if (pthread_create(&handles[i], NULL, run_task, &tasks[i]))
                die("threads", "cannot start");
        }
        *bytes_ret = *sum_ret = 0;
        for (unsigned i = 0; i < threads; i++) {
            (void)pthread_join(handles[i], NULL);
            *bytes_ret += tasks[i].bytes;
            *sum_ret += tasks[i].sum;
        }
        double took = seconds(CLOCK_MONOTONIC) - start;
        best = took < best ? took : best;
    }
    return best;
}

static void read_all(const char *folder, uint64_t count, unsigned threads)
{
    Reader reader;
    double open_seconds = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
        open_reader(&reader, folder);
        double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
        open_seconds = took < open_seconds ? took : open_seconds;
        if (round + 1 < ROUNDS)
            close_reader(&reader);
    }
    uint64_t *order = malloc(count * sizeof *order), bytes = 0, random_sum = 0, sum = 0;
    if (!order)
        die(folder, "no memory");
    for (uint64_t i = 0; i < count; i++)
        order[i] = random_permute(i, count, 3, 0);
    (void)measure(&reader, NULL, count, 1, &bytes, &sum); /* maps everything and fills the page cache */
    double random_seconds = measure(&reader, order, count, threads, &bytes, &random_sum);
    double sequential_seconds = measure(&reader, NULL, count, threads, &bytes, &sum);
    (void)printf("{\"open_ms\": %.3f, \"random_per_s\": %.0f, \"sequential_per_s\": %.0f, "
                 "\"sequential_gb_per_s\": %.3f, "
                 "\"bytes\": %" PRIu64 ", \"sum\": %" PRIu64 "}\n",
                 open_seconds * 1e3, (double)count / random_seconds, (double)count / sequential_seconds,
                 (double)bytes / sequential_seconds / 1e9, bytes, sum);
    free(order);
    close_reader(&reader);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "make") == 0) {
        uint64_t count = strtoull(argv[4], NULL, 10);
        size_t bytes = (size_t)strtoull(argv[5], NULL, 10);
        if (strcmp(argv[2], "shards") == 0)
            make_dataset(FSH_CONTAINER_SHARDS, argv[3], count, bytes);
        else if (strcmp(argv[2], "lmdb") == 0)
            make_dataset(FSH_CONTAINER_LMDB, argv[3], count, bytes);
        else if (strcmp(argv[2], "mdb") == 0)
            make_mdb(argv[3], count, bytes);
        else if (strcmp(argv[2], "files") == 0)
            make_files(argv[3], count, bytes);
        else
            die(argv[2], "shards, lmdb, mdb or files");
        return 0;
    }
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "read") == 0) {
        read_all(argv[2], strtoull(argv[3], NULL, 10), argc == 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 1);
        return 0;
    }
    (void)fprintf(stderr, "usage: read_bench make shards|lmdb|mdb|files DIR COUNT BYTES\n"
                          "       read_bench read DIR COUNT [THREADS]\n");
    return 2;
}
