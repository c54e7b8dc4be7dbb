/* fuzz_seeds FOLDER: writes FOLDER/TARGET/NAME for every fuzz target. The corpus in tests/fuzz/corpus is what
 * libFuzzer kept of these and of what it found (docs/fuzzing.md). */
#include "tests/fuzz/seeds.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"

void seed_need(int holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_seeds: failed: %s\n", what);
    exit(1);
}

void seed_write(const char *root, const char *target, const char *name, const void *bytes, size_t length)
{
    char path[PATH_MAX];
    FshError error = {0};
    int fits = snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
    seed_need(fits > 0 && (size_t)fits < sizeof path, "a path");
    if (file_make_parent_folders(path, &error) || file_write_atomic(path, bytes, length, true, false, &error))
        seed_need(0, error.message);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    seeds_formats(argv[1]);
    seeds_foreign(argv[1]);
    seeds_images(argv[1]);
    seeds_hosts(argv[1]);
    seeds_lists(argv[1]);
    return 0;
}
