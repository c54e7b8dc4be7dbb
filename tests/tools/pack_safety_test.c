/* fpack against the power switch, the full disk and itself, in each of its layouts: what is there verifies or
 * is recognised as unfinished, the same command goes on to the same bytes, and a second writer is refused.
 * FSHARD_KILLS=100 kills so often. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/sources.h"

enum { OPTIONS_MAX = 4, ARGUMENTS_MAX = 10, KILLS = 12, RUNS_PER_KILL_MAX = 10 };
enum { FINISHED = 1 }; /* the exit status: one image is bad, and left out */

typedef struct Layout {
    const char *name;
    const char *options[OPTIONS_MAX];
    bool pairs;
} Layout;

static const Layout layouts[] = {
    {.name = "shards", .options = {"--shard-size", "200K"}},
    {.name = "lmdb", .options = {"--format", "lmdb"}},
    {.name = "tar", .options = {"--format", "tar", "--shard-size", "200K"}},
    {.name = "basicsr", .options = {"--layout", "basicsr", "--pairs", "lq:gt"}, .pairs = true},
};

enum { LAYOUT_COUNT = sizeof layouts / sizeof *layouts };

/* One layout's source, what an undisturbed run makes of it, and where the disturbed ones write. */
typedef struct Scene {
    TestFolder *folder;
    const char *source, *whole, *packed, *manifest; /* manifest: of packed */
    uint64_t whole_bytes;
    double whole_seconds;
    const char
        *arguments[ARGUMENTS_MAX]; /* of a run to packed, NULL at the end; the first is --force or -j1 */
} Scene;

static uint64_t bytes_below(const char *path)
{
    RunResult result = run_program(NULL, "/usr/bin/find", path, "-type", "f", "-printf", "%s\n", NULL);
    uint64_t bytes = 0;
    char *rest = NULL;
    for (char *line = strtok_r(result.out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        bytes += strtoull(line, NULL, 10);
    run_result_free(&result);
    return bytes;
}

static Scene make_scene(TestFolder *folder, const Layout *layout, unsigned count)
{
    static const char *const splits[] = {"train", "val"};
    Scene scene = {.folder = folder,
                   .source = test_path(folder, "%s/source", layout->name),
                   .whole = test_path(folder, "%s/whole", layout->name),
                   .packed = test_path(folder, "%s/packed", layout->name),
                   .manifest = test_path(folder, "%s/packed/dataset.json", layout->name)};
    for (uint32_t i = 0; i < 2; i++) {
        const char *split = test_path(folder, "%s/source/%s", layout->name, splits[i]);
        const unsigned there = i ? count / 4 : count;
        const uint32_t width = i ? 600 : 640; /* the same content in both is a problem */
        source_slow_class(split, layout->pairs ? "lq" : "cat", there, width, 480);
        source_slow_class(split, layout->pairs ? "gt" : "dog", there, width, 480);
    }
    test_file_write_text(
        test_path(folder, "%s/source/train/%s/0-bad.jpg", layout->name, layout->pairs ? "lq" : "cat"),
        "text");
    if (layout->pairs)
        test_file_write_text(test_path(folder, "%s/source/train/gt/0-bad.jpg", layout->name), "text");
    size_t at = 0;
    scene.arguments[at++] = "-j1";
    for (size_t i = 0; i < OPTIONS_MAX && layout->options[i]; i++)
        scene.arguments[at++] = layout->options[i];
    scene.arguments[at++] = scene.source;
    scene.arguments[at] = scene.whole;
    RunResult result = run_program_arguments(NULL, "fpack", scene.arguments);
    if (result.exit_status != FINISHED)
        fail_msg("%s: exit status %d\n%s", layout->name, result.exit_status, result.err);
    scene.whole_seconds = result.seconds;
    run_result_free(&result);
    scene.whole_bytes = bytes_below(scene.whole);
    scene.arguments[at] = scene.packed;
    return scene;
}

static void remove_packed(const Scene *scene)
{
    RunResult result = run_program(NULL, "/bin/rm", "-rf", scene->packed, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

static void assert_packed_is_whole(const Scene *scene)
{
    /* A kill after dataset.json but before the last mark was removed leaves marks; nobody minds them. */
    RunResult result = run_program(NULL, "/usr/bin/find", scene->packed, "-name", ".*", "-not", "-name", ".",
                                   "-not", "-name", "*.sources", "-delete", NULL);
    run_result_free(&result);
    char *difference = test_tree_difference(scene->packed, scene->whole);
    if (difference)
        fail_msg("%s", difference);
}

/* Returns whether a dataset is there, which must verify then. */
static bool packed_is_there(const Scene *scene)
{
    const bool there = access(scene->manifest, F_OK) == 0;
    RunResult result = run_program(NULL, "fverify", scene->packed, NULL);
    if (result.exit_status != (there ? 0 : 1))
        fail_msg("%s: exit status %d\n%s%s", there ? "a dataset" : "an unfinished one", result.exit_status,
                 result.out, result.err);
    run_result_free(&result);
    return there;
}

/* ---- kill -9 ---- */

static unsigned kill_count(void)
{
    const char *text = getenv("FSHARD_KILLS");
    return text ? (unsigned)strtoul(text, NULL, 10) : KILLS;
}

/* Kills at moments spread over an undisturbed run, every other one early, so that much is left to go on from.
 * A dataset that got ready is compared, and the next begun. */
static void kill_often(TestFolder *folder, const Layout *layout)
{
    const Scene scene = make_scene(folder, layout, 32);
    unsigned kills = 0, finished = 0, unfinished = 0;
    uint32_t random = 12345;
    for (unsigned run = 0; kills < kill_count() || finished == 0; run++) {
        if (run > kill_count() * RUNS_PER_KILL_MAX)
            fail_msg("%u kills and %u datasets in %u runs", kills, finished, run);
        RunningProgram running = run_start(NULL, "fpack", scene.arguments);
        random = random * 1664525 + 1013904223;
        sleep_seconds((random >> 8) / 16777216.0 * scene.whole_seconds * (run % 2 ? 1.1 : 0.3));
        if (kills < kill_count())
            (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        const bool killed = result.exit_status == 128 + SIGKILL;
        if (!killed && result.exit_status != FINISHED)
            fail_msg("exit status %d after %u kills\n%s", result.exit_status, kills, result.err);
        run_result_free(&result);
        kills += killed;
        const bool there = packed_is_there(&scene);
        assert_true(there || killed);
        unfinished += !there;
        if (!there)
            continue;
        finished++;
        assert_packed_is_whole(&scene);
        remove_packed(&scene);
    }
    assert_true(unfinished > 0);
    print_message("%s: %u kills, %u times unfinished, %u datasets, all identical\n", layout->name, kills,
                  unfinished, finished);
}

TEST_IN_FOLDER(test_kills_leave_what_verifies_or_is_unfinished, folder)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++)
        kill_often(folder, &layouts[i]);
}

/* ---- full disk ---- */

static RunResult run_on_disk(const Scene *scene, uint64_t disk_bytes)
{
    const RunOptions options = {.limit_disk = true, .disk_bytes = disk_bytes};
    return run_program_arguments(&options, "fpack", scene->arguments);
}

static void assert_disk_was_full(const Scene *scene, RunResult *result, uint64_t disk_bytes)
{
    if (result->exit_status != 1)
        fail_msg("%llu of %llu bytes of disk: exit status %d\n%s", (unsigned long long)disk_bytes,
                 (unsigned long long)scene->whole_bytes, result->exit_status, result->err);
    assert_contains(result->err, "No space left on device");
    run_result_free(result);
    RunResult listing = run_program(NULL, "/usr/bin/find", scene->packed, "-name", "*.tmp-*", NULL);
    assert_string_equal(listing.out, "");
    run_result_free(&listing);
}

static void finish_packed(const Scene *scene)
{
    RunResult result = run_program_arguments(NULL, "fpack", scene->arguments);
    if (result.exit_status != FINISHED)
        fail_msg("exit status %d\n%s", result.exit_status, result.err);
    run_result_free(&result);
    assert_packed_is_whole(scene);
    remove_packed(scene);
}

/* Packs onto disks that lack ever less of what is needed, down to the last byte of the manifest. */
static void fill_disk(TestFolder *folder, const Layout *layout)
{
    static const uint64_t permille[] = {0, 100, 400, 700, 950, 1000};
    Scene scene = make_scene(folder, layout, 12);
    for (size_t i = 0; i < sizeof permille / sizeof *permille; i++) {
        const uint64_t disk_bytes = scene.whole_bytes * permille[i] / 1000 - (permille[i] == 1000);
        RunResult result = run_on_disk(&scene, disk_bytes);
        assert_disk_was_full(&scene, &result, disk_bytes);
        assert_false(packed_is_there(&scene));
        finish_packed(&scene);
    }
    /* Where runs that go on cannot write a byte, the mark still says whose outputs these are. */
    const uint64_t rooms[] = {scene.whole_bytes * 7 / 10, 0, 10};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        RunResult result = run_on_disk(&scene, rooms[i]);
        assert_disk_was_full(&scene, &result, rooms[i]);
    }
    finish_packed(&scene);
    /* The dataset that was there stays, whole, until another one is. */
    RunResult result = run_program(NULL, "/bin/cp", "-r", scene.whole, scene.packed, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    scene.arguments[0] = "--force";
    result = run_on_disk(&scene, scene.whole_bytes / 2);
    assert_disk_was_full(&scene, &result, scene.whole_bytes / 2);
    assert_packed_is_whole(&scene);
}

TEST_IN_FOLDER(test_a_full_disk_loses_nothing, folder)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++)
        fill_disk(folder, &layouts[i]);
}

/* ---- a second writer ---- */

/* Returns a writer that was stopped in the midst of its work, and stands still. */
static RunningProgram start_and_stop(const Scene *scene)
{
    for (unsigned tries = 0; tries < 10; tries++) {
        RunningProgram running = run_start(NULL, "fpack", scene->arguments);
        /* One file is its mark, the second an output, which comes after it. */
        for (unsigned i = 0; i < 3000 && test_count_files(scene->packed) < 2; i++)
            sleep_seconds(0.01);
        assert_int_equal(kill(running.process, SIGSTOP), 0);
        if (access(scene->manifest, F_OK) != 0)
            return running;
        (void)kill(running.process, SIGCONT); /* this machine was busy elsewhere: too late */
        RunResult result = run_wait(&running);
        run_result_free(&result);
        remove_packed(scene);
    }
    fail_msg("every run was over before it could be stopped");
    return (RunningProgram){0};
}

static void write_twice(TestFolder *folder, const Layout *layout)
{
    Scene scene = make_scene(folder, layout, 32);
    RunningProgram running = start_and_stop(&scene);
    static const char *const first_arguments[] = {"-j1", "--force"};
    for (size_t i = 0; i < 2; i++) {
        scene.arguments[0] = first_arguments[i];
        RunResult second = run_program_arguments(NULL, "fpack", scene.arguments);
        assert_int_equal(second.exit_status, 1);
        assert_contains(second.err, "another fpack is writing there");
        run_result_free(&second);
    }
    assert_int_equal(kill(running.process, SIGCONT), 0);
    RunResult first = run_wait(&running);
    assert_int_equal(first.exit_status, FINISHED);
    run_result_free(&first);
    char *difference = test_tree_difference(scene.packed, scene.whole);
    if (difference)
        fail_msg("%s", difference);
}

TEST_IN_FOLDER(test_a_second_writer_is_refused_whatever_the_layout, folder)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++)
        write_twice(folder, &layouts[i]);
}
