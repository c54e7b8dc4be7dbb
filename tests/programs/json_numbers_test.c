/* What all programs print with --json: a count is an integer, and only seconds, rates and what was measured
 * have a fraction, of no more digits than it means. */
#include <stdlib.h>
#include <string.h>

#include "tests/tools/sources.h"

/* Names, or ends of names, of what is real. */
static const char *const reals[] = {
    "seconds",   "_per_second", "likeness",     "likeness_least", "likeness_mean", "gflop",     "best.mean",
    "_percent",  "_loss",       "top1",         "top5",           "recall",        "precision", "f1",
    "last.mean", "loss.mean",   "seconds.mean", "options.lr",     ".best",         ".last",     ".loss"};

static bool is_real(const char *name)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const size_t length = strlen(name), end = strlen(reals[i]);
        if (length >= end && strcmp(name + length - end, reals[i]) == 0)
            return true;
    }
    return strstr(name, ".stage_seconds.") != NULL;
}

/* Returns whether a clock measured it in this call. */
static bool is_timed(const char *name)
{
    const char *last = strrchr(name, '.');
    return !strstr(name, ".groups.") && last &&
           (strstr(last, "_per_second") || strstr(last, "seconds") || strstr(name, ".stage_seconds."));
}

static void check_digits(const char *name, double value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.*g", is_timed(name) ? 6 : 9, value);
    if (strtod(text, NULL) != value)
        fail_msg("%s is %.17g, which has too many digits", name, value);
}

/* Checks all numbers of a value, whose name has the names around it in front. */
static void check_numbers(const char *name, json_t *value)
{
    char inner[512];
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_real(value) && !is_real(name))
        fail_msg("%s is %g, no integer", name, json_real_value(value));
    if (json_is_integer(value) && is_real(name))
        fail_msg("%s is %lld, no real number", name, json_integer_value(value));
    if (json_is_real(value))
        check_digits(name, json_real_value(value));
    json_object_foreach(value, key, member)
    {
        (void)snprintf(inner, sizeof inner, "%s.%s", name, key);
        check_numbers(inner, member);
    }
    json_array_foreach(value, i, member) check_numbers(name, member);
}

/* Runs a program with --json, and checks its one value. */
static void check_output(int exit_status, const char *program, const char *const *arguments)
{
    const char *all[16] = {"--json"};
    for (size_t i = 0; arguments[i]; i++)
        all[i + 1] = arguments[i];
    RunResult result = run_program_arguments(NULL, program, all);
    if (result.exit_status != exit_status)
        fail_msg("%s %s: status %d\n%s", program, arguments[0], result.exit_status, result.err);
    json_t *value = json_of(result.out);
    check_numbers(program, value);
    json_decref(value);
    run_result_free(&result);
}

#define CHECK(exit_status, program, ...)                                                                     \
    check_output(exit_status, program, (const char *const[]){__VA_ARGS__, NULL})

TEST_IN_FOLDER(test_counts_are_integers, folder)
{
    const char *photos = test_path(folder, "photos"), *pairs = test_path(folder, "pairs"),
               *small = test_path(folder, "small"), *shards = test_path(folder, "shards"),
               *packed = test_path(folder, "packed");
    source_two_classes(photos);
    for (unsigned i = 0; i < 4; i++) {
        source_jpeg(test_path(folder, "pairs/lq/%u.jpg", i), 40, 30, 3, i);
        source_jpeg(test_path(folder, "pairs/gt/%u.jpg", i), 40, 30, 3, i);
    }
    CHECK(0, "fresize", "--dry-run", "--max-size", "20", photos, small);
    CHECK(0, "fresize", "--max-size", "20", photos, small);
    CHECK(0, "fresize", "--check", photos, small);
    CHECK(0, "fpack", "--dry-run", photos, shards);
    CHECK(0, "fpack", photos, shards);
    CHECK(0, "fpack", "--pairs", "lq:gt", pairs, packed);
    CHECK(0, "fpack", "--repair-manifest", shards);
    CHECK(0, "fpack", "--part", "1/1", photos, test_path(folder, "part"));
    CHECK(0, "fpack", "--merge", test_path(folder, "part"));
    CHECK(0, "fverify", "--decode", "--against", photos, shards);
    CHECK(0, "fverify", "--pairs", packed);
    CHECK(0, "fverify", "--part", "1/1", shards);
    CHECK(0, "fverify", "--extract", test_path(folder, "tree"), shards);
    CHECK(0, "fverify", "--sheet", test_path(folder, "sheet.jpg"), shards);
}

TEST_IN_FOLDER(test_counts_of_ftrain_are_integers, folder)
{
    const char *photos = test_path(folder, "photos"), *shards = test_path(folder, "shards"),
               *run = test_path(folder, "run"), *other = test_path(folder, "other");
    source_class(photos, "cat", 6);
    source_class(photos, "dog", 6);
    run_ok("fpack", "--split", "0.34", photos, shards, NULL);
    CHECK(0, "ftrain", "--list-models");
    CHECK(0, "ftrain", "-q", "--device", "cpu", "--model", "conv8", "--epochs", "1", "--batch-size", "4",
          shards, run);
    CHECK(0, "ftrain", "-q", "--device", "cpu", "--evaluate", "--weights",
          test_path(folder, "run/last.safetensors"), shards);
    CHECK(0, "ftrain", "-q", "--device", "cpu", "--weights", test_path(folder, "run/last.safetensors"),
          "--predict", test_path(folder, "table.csv"), shards);
    run_ok("ftrain", "-q", "--device", "cpu", "--model", "conv8", "--epochs", "1", "--batch-size", "4",
           "--lr", "0.02", shards, other, NULL);
    CHECK(0, "ftrain", "--compare", "--output", test_path(folder, "page.html"), run, other);
}
