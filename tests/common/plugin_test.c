/* Where plugins are looked for, and what is said of those that are missing or broken. */
#include "common/plugin.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

TEST_IN_FOLDER(test_a_plugin_that_is_nowhere_is_told_apart, folder)
{
    FshError error = {0};
    const void *address = folder;
    (void)setenv("FSHARD_PLUGINS", folder->path, 1);
    assert_int_equal(plugin_load("libfshard-none.so", "symbol", &address, &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "libfshard-none.so");
    assert_contains(error.message, "FSHARD_PLUGINS");
    assert_null(address);
}

TEST_IN_FOLDER(test_a_file_that_is_no_library_is_refused_by_path, folder)
{
    FshError error = {0};
    const void *address = folder;
    (void)setenv("FSHARD_PLUGINS", folder->path, 1);
    test_file_write_text(test_path(folder, "libfshard-text.so"), "no library");
    assert_int_equal(plugin_load("libfshard-text.so", "symbol", &address, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, folder->path);
    assert_null(address);
}

/* The library that the tests of a full disk preload is one to load: it lies beside this program. */
TEST(test_a_library_is_loaded_and_a_symbol_it_lacks_is_named)
{
    FshError error = {0};
    const void *address = NULL;
    char *folder = realpath(getenv("FSHARD_ENOSPC"), NULL);
    assert_non_null(folder);
    *strrchr(folder, '/') = '\0';
    (void)setenv("FSHARD_PLUGINS", folder, 1);
    assert_ok(plugin_load("libfshard-test-enospc.so", "write", &address, &error), &error);
    assert_non_null(address);
    assert_int_equal(plugin_load("libfshard-test-enospc.so", "fshard_no_such_symbol", &address, &error),
                     FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "fshard_no_such_symbol");
    free(folder);
}
