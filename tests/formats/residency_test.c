/* Files in memory before they are needed, and how much of them is told. */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/formats/samples.h"

enum { PAYLOAD_BYTES = 8 << 20, SHARDS = 3 };

/* Opens a split of SHARDS shards, each one record of zeros, after their disk blocks were given back: the
 * files read as before, and none of those pages is in memory, on tmpfs either. */
static FshDataset *open_with_holes(TestFolder *folder)
{
    uint8_t *zeros = calloc(PAYLOAD_BYTES, 1);
    FshFileInfo files[SHARDS] = {{0}};
    uint64_t class_counts[SAMPLES_CLASS_COUNT] = {SHARDS};
    FshDataset *dataset = NULL;
    FshError error = {0};
    const DatasetPlan plan = {.shard_count = SHARDS};
    assert_non_null(zeros);
    for (uint32_t i = 0; i < SHARDS; i++) {
        FshWriterOptions options = samples_writer_options(&plan, "train", i);
        FshWriter *writer = NULL;
        char key[8];
        (void)snprintf(key, sizeof key, "k%u", (unsigned)i);
        FshSample sample = {
            .key = key,
            .key_bytes = strlen(key),
            .field_count = 1,
            .fields = {{.data = zeros, .bytes = PAYLOAD_BYTES, .channels = 3, .codec = FSH_CODEC_OTHER}}};
        const char *path = test_path(folder, "train-%05u-of-%05u.fshard", (unsigned)i, SHARDS);
        assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
        assert_ok(fsh_writer_put(writer, &sample, &error), &error);
        assert_ok(fsh_writer_finish(writer, &files[i], &error), &error);
        fsh_writer_close(&writer);
        int descriptor = open(path, O_RDWR | O_CLOEXEC);
        assert_true(descriptor >= 0);
        if (fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4 << 20)) {
            (void)close(descriptor);
            print_message("skipped: files here cannot have holes\n");
            skip();
        }
        (void)close(descriptor);
    }
    FshWriterOptions options = samples_writer_options(&plan, "train", 0);
    FshSplitInfo split = {.name = (char[]){"train"},
                          .sample_count = SHARDS,
                          .class_counts = class_counts,
                          .files = files,
                          .file_count = SHARDS};
    FshManifest manifest = {.id = SAMPLES_ID,
                            .container = FSH_CONTAINER_SHARDS,
                            .kind = FSH_KIND_CLASSES,
                            .field_names = (char **)options.field_names,
                            .field_count = 1,
                            .class_names = (char **)options.class_names,
                            .class_count = options.class_count,
                            .splits = &split,
                            .split_count = 1,
                            .provenance_json = (char[]){"{}"}};
    assert_ok(fsh_manifest_save(&manifest, folder->path, false, &error), &error);
    for (uint32_t i = 0; i < SHARDS; i++)
        free(files[i].name);
    free(zeros);
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    return dataset;
}

static FshResidency residency_of(const FshDataset *dataset)
{
    FshResidency residency;
    FshError error = {0};
    assert_ok(fsh_split_residency(fsh_split(dataset, "train"), &residency, &error), &error);
    return residency;
}

TEST_IN_FOLDER(test_ram_brings_in_what_was_not_there, folder)
{
    FshDataset *dataset = open_with_holes(folder);
    const FshSplit *train = fsh_split(dataset, "train");
    FshError error = {0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < SHARDS; i++)
        bytes += train->info->files[i].bytes;
    FshResidency before = residency_of(dataset);
    assert_true(before.known);
    assert_int_equal(before.bytes, bytes);
    assert_true(before.resident_bytes <= bytes - SHARDS * (UINT64_C(4) << 20));
    assert_ok(fsh_split_cache(train, FSH_CACHE_NONE, 2, &error), &error);
    assert_int_equal(residency_of(dataset).resident_bytes, before.resident_bytes);
    assert_ok(fsh_split_cache(train, FSH_CACHE_RAM, 2, &error), &error);
    assert_int_equal(residency_of(dataset).resident_bytes, bytes);
    fsh_close(&dataset);
}

/* Sizes that are no whole number of pages are counted to the byte. */
TEST_IN_FOLDER(test_small_files_are_counted_to_the_byte, folder)
{
    const FshContainer containers[] = {FSH_CONTAINER_SHARDS, FSH_CONTAINER_LMDB};
    for (size_t i = 0; i < 2; i++) {
        const DatasetPlan plan = {
            .container = containers[i], .train_count = 40, .val_count = 3, .payload_bytes_max = 10000};
        const char *path = test_path(folder, "set-%zu", i);
        FshDataset *dataset = NULL;
        FshError error = {0};
        FshResidency residency;
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(&plan, path);
        assert_ok(fsh_open(&dataset, path, &error), &error);
        const FshSplit *val = fsh_split(dataset, "val");
        assert_ok(fsh_split_cache(val, FSH_CACHE_RAM, 1, &error), &error);
        assert_ok(fsh_split_residency(val, &residency, &error), &error);
        assert_int_equal(residency.bytes, val->info->files[0].bytes);
        assert_int_equal(residency.resident_bytes, residency.bytes);
        fsh_close(&dataset);
    }
}

TEST_IN_FOLDER(test_a_file_that_was_cut_short_is_a_failure, folder)
{
    const DatasetPlan plan = {.train_count = 40, .shard_count = 3, .payload_bytes_max = 100000};
    FshError error = {0};
    FshDataset *dataset = NULL;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    /* And not a death by SIGBUS. */
    test_file_truncate(test_path(folder, "train-00001-of-00003.fshard"), 100);
    assert_int_equal(fsh_split_cache(fsh_split(dataset, "train"), FSH_CACHE_RAM, 2, &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "train-00001-of-00003.fshard");
    assert_contains(error.message, "cut short meanwhile");
    fsh_close(&dataset);
}

/* Skips the test under AddressSanitizer, whose mlock does nothing because its shadow must not be locked. */
static void skip_without_mlock(void)
{
#if defined(__SANITIZE_ADDRESS__) /* gcc's way of saying it, then clang's */
    bool sanitized = true;
#elif defined(__clang__)
    bool sanitized = __has_feature(address_sanitizer);
#else
    bool sanitized = false;
#endif
    if (sanitized) {
        print_message("skipped: AddressSanitizer locks no memory\n");
        skip();
    }
}

static uint64_t locked_bytes(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "re");
    assert_non_null(status);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %llu kB", &kilobytes) == 1)
            break;
    (void)fclose(status);
    return kilobytes * 1024;
}

TEST_IN_FOLDER(test_lock_holds_the_pages_until_the_dataset_is_closed, folder)
{
    skip_without_mlock();
    FshDataset *dataset = open_with_holes(folder);
    FshError error = {0};
    struct rlimit limit;
    uint64_t bytes = residency_of(dataset).bytes;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() != 0 && limit.rlim_cur < 2 * bytes) {
        fsh_close(&dataset);
        print_message("skipped: this user may lock only %llu bytes\n", (unsigned long long)limit.rlim_cur);
        skip();
    }
    assert_int_equal(locked_bytes(), 0);
    assert_ok(fsh_split_cache(fsh_split(dataset, "train"), FSH_CACHE_LOCK, 2, &error), &error);
    assert_true(locked_bytes() >= bytes);
    fsh_close(&dataset);
    assert_int_equal(locked_bytes(), 0);
}

/* Runs `check` in a child as another user without rights. Returns whether `check` returned true. */
static bool check_as_nobody(bool (*check)(const FshDataset *dataset), const FshDataset *dataset)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {65536, 65536};
        bool changed = setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (geteuid() != 0 || setuid(65534) == 0);
        _exit(changed && check(dataset) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

static bool lock_is_refused(const FshDataset *dataset)
{
    FshError error = {0};
    FshStatus status = fsh_split_cache(fsh_split(dataset, "train"), FSH_CACHE_LOCK, 1, &error);
    return status == FSH_ERR_SYSTEM && strstr(error.message, "train-00000-of-00003.fshard") &&
           strstr(error.message, "65536 bytes (ulimit -l)");
}

TEST_IN_FOLDER(test_a_lock_that_is_not_allowed_says_how_much_is, folder)
{
    skip_without_mlock();
    FshDataset *dataset = open_with_holes(folder);
    assert_true(check_as_nobody(lock_is_refused, dataset));
    fsh_close(&dataset);
}

static bool residency_is_unknown(const FshDataset *dataset)
{
    /* Opened again: what Linux tells depends on who maps. */
    FshDataset *again = NULL;
    FshResidency residency = {.known = true};
    bool unknown = fsh_open(&again, fsh_path(dataset), NULL) == FSH_OK &&
                   fsh_split_residency(fsh_split(again, "train"), &residency, NULL) == FSH_OK &&
                   !residency.known && residency.bytes > 0;
    fsh_close(&again);
    return unknown;
}

TEST_IN_FOLDER(test_files_of_others_are_not_told, folder)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    FshDataset *dataset = open_with_holes(folder);
    assert_int_equal(chmod(folder->path, 0755), 0);
    assert_true(check_as_nobody(residency_is_unknown, dataset));
    fsh_close(&dataset);
}

TEST(test_modes_have_names)
{
    FshCache cache = FSH_CACHE_NONE;
    assert_true(fsh_cache_from_name("ram", &cache));
    assert_int_equal(cache, FSH_CACHE_RAM);
    assert_true(fsh_cache_from_name("lock", &cache));
    assert_int_equal(cache, FSH_CACHE_LOCK);
    assert_true(fsh_cache_from_name("none", &cache));
    assert_int_equal(cache, FSH_CACHE_NONE);
    assert_false(fsh_cache_from_name("RAM", &cache));
}

/* Pages that were touched are dropped too; samples read as before. */
TEST_IN_FOLDER(test_dropping_forgets_what_was_read, folder)
{
    FshDataset *dataset = open_with_holes(folder);
    const FshSplit *split = fsh_split(dataset, "train");
    FshError error = {0};
    struct statfs system;
    assert_ok(fsh_split_cache(split, FSH_CACHE_RAM, 1, &error), &error);
    FshResidency before = residency_of(dataset);
    assert_int_equal(before.resident_bytes, before.bytes);
    fsh_split_drop(split);
    FshResidency after = residency_of(dataset);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(statfs(fsh_path(dataset), &system), 0);
    if (system.f_type == TMPFS_MAGIC)
        print_message("a tmpfs, which keeps everything\n");
    else
        assert_true(after.resident_bytes < before.bytes / 4);
    for (uint64_t i = 0; i < SHARDS; i++)
        assert_ok(fsh_sample_verify(split, i, &error), &error);
    fsh_close(&dataset);
}
