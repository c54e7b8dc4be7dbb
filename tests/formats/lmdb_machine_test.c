/* What an LMDB is to the machine: full pages, no locks that stay, no reading of what nobody asked for. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lmdb.h>

#include "common/file.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.container = FSH_CONTAINER_LMDB, .train_count = 12};

/* Appending fills each page before the next is begun: 89 %, for a record is never cut. Inserting leaves 83
 * %. */
TEST_IN_FOLDER(test_pages_are_filled_by_appending, folder)
{
    const DatasetPlan plan = {
        .container = FSH_CONTAINER_LMDB, .train_count = 20000, .payload_bytes_max = 100};
    MDB_env *environment = NULL;
    MDB_txn *transaction = NULL;
    MDB_dbi database = 0;
    MDB_stat stat;
    FshError error = {0};
    FshDataset *dataset = NULL;
    samples_write_file(&plan, "train", test_path(folder, "train.lmdb"), 0, 0, plan.train_count, NULL);
    assert_ok(fsh_open(&dataset, test_path(folder, "train.lmdb"), &error), &error);
    uint64_t records_bytes = fsh_split_bytes(fsh_split(dataset, "train"));
    fsh_close(&dataset);
    assert_int_equal(mdb_env_create(&environment), 0);
    assert_int_equal(mdb_env_open(environment, test_path(folder, "train.lmdb"), MDB_RDONLY | MDB_NOLOCK, 0),
                     0);
    assert_int_equal(mdb_txn_begin(environment, NULL, MDB_RDONLY, &transaction), 0);
    assert_int_equal(mdb_dbi_open(transaction, NULL, 0, &database), 0);
    assert_int_equal(mdb_stat(transaction, database, &stat), 0);
    assert_int_equal(stat.ms_entries, plan.train_count + 1);
    assert_int_equal(stat.ms_overflow_pages, 0);
    double filled = (double)records_bytes / ((double)stat.ms_leaf_pages * stat.ms_psize);
    if (filled < 0.86)
        fail_msg("pages are filled to %.0f %%", 100 * filled);
    mdb_txn_abort(transaction);
    mdb_env_close(environment);
}

/* ---- killed ---- */

/* Runs action in a child, which must say that it is ready, and then kills it. */
static void kill_while(void (*action)(const char *path), const char *path)
{
    int ready[2], status = 0;
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        action(path);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Opens the LMDB as another program's reader in the middle of a transaction: liblmdb keeps a lock file and a
 * slot in it. */
static void read_with_locks(const char *path)
{
    MDB_env *environment = NULL;
    MDB_txn *transaction = NULL;
    if (mdb_env_create(&environment) || mdb_env_open(environment, path, MDB_RDONLY, 0666) ||
        mdb_txn_begin(environment, NULL, MDB_RDONLY, &transaction))
        _exit(1);
}

static void start_writing(const char *path)
{
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    FshWriter *writer = NULL;
    MadeSample made;
    sample_make(&made, &small_plan, "train", 0);
    options.force = true;
    if (fsh_writer_open(&writer, path, &options, NULL) || fsh_writer_put(writer, &made.sample, NULL))
        _exit(1);
}

TEST_IN_FOLDER(test_a_killed_reader_or_writer_blocks_nobody, folder)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshWriter *writer = NULL;
    const char *path = test_path(folder, "train.lmdb");
    samples_write_file(&small_plan, "train", path, 0, 0, small_plan.train_count, NULL);
    kill_while(read_with_locks, path);
    assert_true(file_exists(test_path(folder, "train.lmdb/lock.mdb")));
    kill_while(start_writing, path);
    assert_int_equal(test_count_files(path), 3); /* data.mdb, the lock, and what the writer left */
    assert_ok(fsh_open(&dataset, path, &error), &error);
    samples_assert_split(dataset, &small_plan, "train", small_plan.train_count);
    fsh_close(&dataset);

    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    options.force = true;
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    assert_int_equal(test_count_files(path), 1); /* data.mdb alone */
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 0);
    fsh_close(&dataset);
}

/* ---- cold ---- */

static uint64_t cached_bytes(int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status))
        return 0;
    size_t length = (size_t)status.st_size, page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    void *mapping = mmap(NULL, length, PROT_READ, MAP_SHARED, descriptor, 0);
    unsigned char *states = malloc(length / page + 1);
    bool known = mapping != MAP_FAILED && states && mincore(mapping, length, states) == 0;
    for (size_t i = 0; known && i < length / page; i++)
        count += states[i] & 1;
    if (mapping != MAP_FAILED)
        (void)munmap(mapping, length);
    free(states);
    return known ? count * page : length;
}

/* On a disk (/var/tmp): which pages are in memory after opening a file of which none was. */
TEST(test_opening_reads_the_tree_and_not_the_values)
{
    const DatasetPlan plan = {
        .container = FSH_CONTAINER_LMDB, .train_count = 400, .payload_bytes_max = 200000};
    char folder[] = "/var/tmp/fshard-test-XXXXXX";
    char path[64], data[96], manifest[64];
    FshResidency residency = {0};
    FshError error = {0};
    FshDataset *dataset = NULL;
    if (!mkdtemp(folder)) {
        print_message("skipped: no /var/tmp\n");
        skip();
    }
    (void)snprintf(path, sizeof path, "%s/train.lmdb", folder);
    (void)snprintf(data, sizeof data, "%s/data.mdb", path);
    (void)snprintf(manifest, sizeof manifest, "%s/dataset.json", folder);
    samples_write_dataset(&plan, folder);
    int descriptor = open(data, O_RDONLY | O_CLOEXEC);
    bool opened = descriptor >= 0 && posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0;
    uint64_t cold_bytes = opened ? cached_bytes(descriptor) : 0;
    if (opened)
        opened = fsh_open(&dataset, folder, &error) == FSH_OK &&
                 fsh_split_residency(fsh_split(dataset, "train"), &residency, &error) == FSH_OK;
    fsh_close(&dataset);
    (void)close(descriptor);
    (void)unlink(data);
    (void)unlink(manifest);
    (void)rmdir(path);
    (void)rmdir(folder);
    assert_true(opened);
    assert_true(residency.bytes > 10 << 20);
    if (cold_bytes > 0 || !residency.known) {
        print_message("skipped: what is in memory here stays there\n");
        skip();
    }
    if (residency.resident_bytes > residency.bytes / 50)
        fail_msg("%llu of %llu bytes were read", (unsigned long long)residency.resident_bytes,
                 (unsigned long long)residency.bytes);
}
