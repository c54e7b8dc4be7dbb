/* fpack: what it may remove, and the last step of a replacement when it fails. The two calls that rename
 * folders are this program's own: they fail where a test says so. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/file.h"
#include "imaging/decode.h"
#include "tests/imaging/make_images.h"
#include "tests/tools/sources.h"
#include "tools/pack/pack.h"

/* ---- memory ---- */

#if !defined(__SANITIZE_ADDRESS__)
/* Makes a folder of count links to one image of width x height gray pixels without detail: few bytes of JPEG.
 */
static void make_plain_class(const char *root, const char *class_name, unsigned count, uint32_t width,
                             uint32_t height)
{
    Buffer file = {0};
    char first[PATH_MAX], path[PATH_MAX];
    uint8_t *pixels = calloc(width, height);
    assert_non_null(pixels);
    make_jpeg(&(MakeJpeg){.width = width, .height = height, .colours = MAKE_GRAY, .pixels = pixels}, &file);
    (void)snprintf(first, sizeof first, "%s/%s/000.jpg", root, class_name);
    test_file_write(first, file.bytes, file.length);
    for (unsigned i = 1; i < count; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/%03u.jpg", root, class_name, i);
        assert_int_equal(link(first, path), 0);
    }
    free(pixels);
    buffer_free(&file);
}
#endif

/* What is small on disk may be large decoded: 6 million pixels in 37,000 bytes. First of all tests: the
 * number is that of the largest child so far. */
TEST_IN_FOLDER(test_memory_is_bounded_by_jobs_and_not_by_what_images_become, folder)
{
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* it keeps what is freed */
#else
    struct rusage usage;
    make_plain_class(test_path(folder, "photos"), "a", 60, 3000, 2000);
    make_plain_class(test_path(folder, "photos"), "b", 60, 500, 400);
    source_two_classes(test_path(folder, "photos")); /* with colours: 18 million bytes each */
    run_ok("fpack", "-j2", "--store", "raw", test_path(folder, "photos"), test_path(folder, "out"), NULL);
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    if (usage.ru_maxrss > 160 * 1024)
        fail_msg("%ld KiB of memory for two jobs", usage.ru_maxrss);
#endif
}

/* ---- renames that fail ---- */

static struct {
    int exchange_errno;    /* of an exchange of two folders; 0: none */
    unsigned rename_fails; /* the n-th rename of a folder from now on, 0: none */
} failing;

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (flags & RENAME_EXCHANGE && failing.exchange_errno) {
        errno = failing.exchange_errno;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int rename(const char *from, const char *to)
{
    if (failing.rename_fails && file_is_folder(from) && --failing.rename_fails == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* ---- packing, in this process ---- */

static FshStatus pack_as(FshContainer container, const char *source, const char *destination,
                         size_t *kept_ret, FshError *error)
{
    const PackOptions options = {.source = source,
                                 .destination = destination,
                                 .container = container,
                                 .shard_bytes = 16384,
                                 .check = true,
                                 .force = true,
                                 .max_pixels = IMAGE_MAX_PIXELS_DEFAULT,
                                 .jobs = 1,
                                 .quiet = true};
    PackPlan plan = {0};
    PackResult result = {0};
    FshStatus status = pack_plan_make(&plan, &options, error);
    if (!status)
        status = pack_run(&plan, NULL, NULL, &result, error);
    *kept_ret = result.kept_output_count;
    pack_result_free(&result);
    pack_plan_free(&plan);
    return status;
}

static FshStatus pack(const char *source, const char *destination, size_t *kept_ret, FshError *error)
{
    return pack_as(FSH_CONTAINER_SHARDS, source, destination, kept_ret, error);
}

/* Makes an old dataset in out/shards, copies of old and new in old/ and new/, and the source of the new one,
 * which it returns. */
static const char *make_old_and_new(TestFolder *folder)
{
    const char *source = test_path(folder, "photos");
    source_class(test_path(folder, "before"), "cat", 2);
    source_class(source, "cat", 20);
    source_class(source, "dog", 20);
    run_ok("fpack", test_path(folder, "before"), test_path(folder, "old"), NULL);
    run_ok("fpack", test_path(folder, "before"), test_path(folder, "out/shards"), NULL);
    run_ok("fpack", "--shard-size", "16K", source, test_path(folder, "new"), NULL);
    return source;
}

static void assert_same(TestFolder *folder, const char *a, const char *b)
{
    char *difference = test_tree_difference(test_path(folder, "%s", a), test_path(folder, "%s", b));
    if (difference)
        fail_msg("%s", difference);
}

TEST_IN_FOLDER(test_a_failed_exchange_leaves_the_old_dataset_and_the_same_command_goes_on, folder)
{
    FshError error = {0};
    size_t kept = 0;
    const char *source = make_old_and_new(folder), *packed = test_path(folder, "out/shards");
    failing.exchange_errno = EIO;
    assert_int_equal(pack(source, packed, &kept, &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "cannot be put in the place of");
    failing.exchange_errno = 0;
    assert_same(folder, "out/shards", "old");
    assert_ok(pack(source, packed, &kept, &error), &error);
    assert_true(kept >= 2);
    assert_same(folder, "out/shards", "new");
    assert_int_equal(test_count_files(test_path(folder, "out")), test_count_files(test_path(folder, "new")));
}

TEST_IN_FOLDER(test_two_renames_of_which_the_second_fails_are_undone, folder)
{
    FshError error = {0};
    size_t kept = 0;
    const char *source = make_old_and_new(folder), *packed = test_path(folder, "out/shards");
    failing.exchange_errno = ENOSYS; /* NFS */
    failing.rename_fails = 2;
    assert_int_equal(pack(source, packed, &kept, &error), FSH_ERR_SYSTEM);
    assert_same(folder, "out/shards", "old");
    failing.rename_fails = 1;
    assert_int_equal(pack(source, packed, &kept, &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "cannot make room for");
    assert_same(folder, "out/shards", "old");
    failing.rename_fails = 0;
    assert_ok(pack(source, packed, &kept, &error), &error);
    assert_true(kept >= 2);
    assert_same(folder, "out/shards", "new");
    failing.exchange_errno = 0;
    assert_int_equal(test_count_files(test_path(folder, "out")), test_count_files(test_path(folder, "new")));
}

/* An LMDB's size says little, as LMDBs are made of pages. */
TEST_IN_FOLDER(test_an_lmdb_of_other_samples_is_not_kept, folder)
{
    FshError error = {0};
    size_t kept = 0;
    const char *source = make_old_and_new(folder), *packed = test_path(folder, "out/shards");
    const char *data = test_path(folder, "out/.shards.fpack-new/train.lmdb/data.mdb");
    source_class(test_path(folder, "other"), "cow", 20);
    source_class(test_path(folder, "other"), "dog", 20);
    run_ok("fpack", "--format", "lmdb", test_path(folder, "other"), test_path(folder, "other-lmdb"), NULL);
    size_t length = 0;
    char *other = test_file_read(test_path(folder, "other-lmdb/train.lmdb/data.mdb"), &length);
    for (int foreign = 0; foreign < 2; foreign++) {
        failing.exchange_errno = EIO;
        assert_int_equal(pack_as(FSH_CONTAINER_LMDB, source, packed, &kept, &error), FSH_ERR_SYSTEM);
        failing.exchange_errno = 0;
        assert_int_equal(test_file_size(data), length);
        if (foreign)
            test_file_write(data, other, length);
        assert_ok(pack_as(FSH_CONTAINER_LMDB, source, packed, &kept, &error), &error);
        assert_int_equal(kept, !foreign);
        run_ok("fverify", packed, NULL);
    }
    free(other);
}

/* ---- what is fpack's own ---- */

TEST_IN_FOLDER(test_an_lmdb_that_was_killed_half_way_is_cleared_by_force, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "out");
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "cat", 1);
    run_ok("fpack", "--format", "lmdb", source, packed, NULL);
    assert_int_equal(unlink(test_path(folder, "out/dataset.json")), 0);
    assert_int_equal(unlink(test_path(folder, "out/val.lmdb/data.mdb")), 0);
    test_file_write_text(test_path(folder, "out/.fpack-unfinished"), "0123456789abcdef0123456789abcdef\n");
    test_file_write_text(test_path(folder, "out/val.lmdb/.data.mdb.tmp-4711-0"), "half");
    test_file_write_text(test_path(folder, "out/val.lmdb/lock.mdb"), "a reader's");
    run_ok("fpack", "--force", source, packed, NULL);
    run_ok("fverify", packed, NULL);
    assert_int_equal(test_count_files(packed), 5); /* manifest, two shards and their sources */
    assert_false(access(test_path(folder, "out/val.lmdb"), F_OK) == 0);
}

TEST_IN_FOLDER(test_a_name_alone_does_not_make_a_file_fpacks, folder)
{
    const char *source = test_path(folder, "photos");
    source_two_classes(source);
    /* Of other programs, or of people. */
    static const char *const files[][2] = {
        {"train.lmdb/data.mdb", "train.lmdb"},
        {"train.lmdb/notes.txt", "train.lmdb/notes.txt"},
        {"val.lmdb", "val.lmdb"},
        {"train-00000-of-00001.fshard", "train-00000-of-00001.fshard"},
        {"test-00007-of-00009.fshard/x", "test-00007-of-00009.fshard"},
        {"dataset.json", "dataset.json"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        for (int beside = 0; beside < 2; beside++) {
            const char *packed = test_path(folder, "out-%zu-%d", i, beside);
            const char *file = test_path(folder, "out-%zu-%d/%s", i, beside, files[i][0]);
            if (beside && i != 3 && i != 5) /* beside a finished dataset */
                run_ok("fpack", source, packed, NULL);
            test_file_write_text(file, "{\"name\": \"years of work\"}");
            const uint64_t count = test_count_files(packed);
            RunResult result = run_expecting(1, "fpack", "--force", source, packed, NULL);
            assert_contains(result.err, "holds files that are not fpack's");
            assert_contains(result.err, files[i][1]);
            run_result_free(&result);
            assert_int_equal(test_count_files(packed), count);
            assert_int_equal(test_file_size(file), 25);
        }
    }
}

/* What the manifest does not list any more, or never did, is known by its first bytes. */
TEST_IN_FOLDER(test_shards_and_lmdbs_are_known_by_content, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "out");
    source_two_classes(source);
    run_ok("fpack", source, packed, NULL);
    run_ok("fpack", "--format", "lmdb", source, test_path(folder, "lmdb"), NULL);
    size_t length = 0;
    char *bytes = test_file_read(test_path(folder, "out/train-00000-of-00001.fshard"), &length);
    test_file_write(test_path(folder, "out/val-00003-of-00004.fshard"), bytes, length / 2); /* torn */
    test_file_truncate(test_path(folder, "out/train-00000-of-00001.fshard"), 3);            /* listed */
    free(bytes);
    bytes = test_file_read(test_path(folder, "lmdb/train.lmdb/data.mdb"), &length);
    test_file_write(test_path(folder, "out/train.lmdb/data.mdb"), bytes, length);
    free(bytes);
    run_ok("fpack", "--force", source, packed, NULL);
    run_ok("fverify", packed, NULL);
    assert_int_equal(test_count_files(packed), 3);
}
