#include "tests/stores/stores_support.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"

/* Forgets whatever credentials and servers the user has in the environment. */
static void forget_environment(void)
{
    static const char *const begins[] = {"AWS_", "GS_",       "GOOGLE_",
                                         "GCE_", "CLOUDSDK_", "STORAGE_EMULATOR_HOST="};
    char name[256];
    for (char **at = environ; *at;) {
        bool ours = false;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            ours = ours || strncmp(*at, begins[i], strlen(begins[i])) == 0;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        at++;
        if (ours && unsetenv(name) == 0)
            at = environ;
    }
}

int serving_setup(void **state)
{
    forget_environment();
    Serving *serving = calloc(1, sizeof *serving);
    char script[512];
    test_folder_make(&serving->folder);
    serving->www = test_path(&serving->folder, "www");
    serving->cache = test_path(&serving->folder, "cache");
    const char *log = test_path(&serving->folder, "log"), *port = test_path(&serving->folder, "port");
    test_file_write_text(log, "");
    test_file_write_text(test_path(&serving->folder, "www/.here"), "");
    (void)snprintf(script, sizeof script, "%s/tests/stores/store_server.py", getenv("FSHARD_SOURCE"));
    const char *arguments[] = {script, serving->www, log, port, NULL};
    const RunOptions options = {.timeout_seconds = 300};
    serving->server = run_start(&options, FSHARD_PYTHON, arguments);
    assert_true(wait_for_file(port, 20));
    char *text = test_file_read(port, NULL);
    (void)snprintf(serving->port, sizeof serving->port, "%s", text);
    free(text);
    *state = serving;
    return 0;
}

int serving_teardown(void **state)
{
    Serving *serving = *state;
    (void)kill(serving->server.process, SIGKILL);
    RunResult result = run_wait(&serving->server);
    run_result_free(&result);
    test_folder_remove(&serving->folder);
    free(serving);
    return 0;
}

void serving_pack(Serving *serving, const char *name, size_t count, size_t edge, const char *const *more)
{
    const char *images = test_path(&serving->folder, "images-%s", name);
    uint8_t *file = malloc(64 + 3 * edge * edge);
    for (size_t i = 0; i < count + 4; i++) { /* the last four are val's */
        const int head = snprintf((char *)file, 64, "P6\n%zu %zu\n255\n", edge, edge);
        test_fill_noise(file + head, edge, edge, (uint32_t)i);
        test_file_write(test_path(&serving->folder, "images-%s/%s/%s/%zu.ppm", name,
                                  i < count ? "train" : "val", i % 2 ? "cat" : "dog", i / 2),
                        file, (size_t)head + 3 * edge * edge);
    }
    free(file);
    const char *arguments[16] = {"-q", images, test_path(&serving->folder, "www/%s", name)};
    for (size_t i = 0; more && more[i]; i++)
        arguments[3 + i] = more[i];
    RunResult result = run_program_arguments(NULL, "fpack", arguments);
    if (result.exit_status)
        fail_msg("fpack: %s", result.err);
    run_result_free(&result);
}

const char *serving_address(Serving *serving, const char *path)
{
    return test_path(&serving->folder, "http://127.0.0.1:%s/%s", serving->port, path) +
           strlen(serving->folder.path) + 1;
}

/* Writes "NAME=value" into the folder's texts and returns it. */
static const char *variable(Serving *serving, const char *name, const char *value)
{
    return test_path(&serving->folder, "%s=%s", name, value) + strlen(serving->folder.path) + 1;
}

RunningProgram serving_start(Serving *serving, const char *const *environment, const char *program,
                             const char *const *arguments)
{
    const char *all[24] = {variable(serving, "XDG_CACHE_HOME", serving->cache),
                           variable(serving, "HOME", serving->cache),
                           variable(serving, "AWS_ENDPOINT_URL", serving_address(serving, "s3")),
                           variable(serving, "STORAGE_EMULATOR_HOST", serving_address(serving, "gs")),
                           "http_proxy=",
                           "no_proxy=*"};
    const RunOptions options = {.environment = all};
    for (size_t i = 0; environment && environment[i]; i++)
        all[6 + i] = environment[i];
    return run_start(&options, program, arguments);
}

RunResult serving_run(Serving *serving, const char *const *environment, const char *program, ...)
{
    const char *arguments[32] = {0};
    size_t count = 0;
    va_list rest;
    va_start(rest, program);
    while ((arguments[count] = va_arg(rest, const char *)))
        count++;
    va_end(rest);
    RunningProgram running = serving_start(serving, environment, program, arguments);
    return run_wait(&running);
}

const char *serving_variable(Serving *serving, const char *name, const char *path)
{
    return variable(serving, name, serving_address(serving, path));
}

void serving_check(Serving *serving, const char *address, const char *const *environment, int exit_status,
                   const char *told, const char *const *secrets)
{
    RunResult result = serving_run(serving, environment, "fverify", address, NULL);
    if (result.exit_status != exit_status)
        fail_msg("%s %s: exit status %d: %s", environment[0],
                 environment[0] && environment[1] ? environment[1] : "", result.exit_status, result.err);
    assert_contains(result.err, told);
    for (const char *const *secret = secrets; *secret; secret++) {
        assert_contains_not(result.err, *secret);
        assert_contains_not(result.out, *secret);
        assert_int_equal(serving_count(serving, *secret), 0); /* in no URL */
    }
    run_result_free(&result);
}

size_t serving_count(Serving *serving, const char *part)
{
    size_t count = 0;
    char *text = test_file_read(test_path(&serving->folder, "log"), NULL), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        count += strstr(line, part) != NULL;
    free(text);
    return count;
}

void serving_forget(Serving *serving)
{
    test_file_truncate(test_path(&serving->folder, "log"), 0);
}

const char *serving_entry(Serving *serving, const char *name)
{
    const char *found = NULL, *datasets = test_path(&serving->folder, "cache/fshard/datasets");
    DIR *folder = opendir(datasets);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, name, strlen(name)) == 0 && !text_has_suffix(entry->d_name, ".lock"))
            found = test_path(&serving->folder, "cache/fshard/datasets/%s", entry->d_name);
    if (folder)
        (void)closedir(folder);
    if (!found)
        fail_msg("%s: has no entry of %s", datasets, name);
    return found;
}

size_t serving_check_shards(Serving *serving, const char *entry, const char *dataset)
{
    size_t count = 0;
    DIR *folder = opendir(entry);
    assert_non_null(folder);
    for (const struct dirent *file; (file = readdir(folder));) {
        char path[1024];
        size_t have = 0, want = 0;
        if (file->d_name[0] == '.' || !text_has_suffix(file->d_name, ".fshard"))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", entry, file->d_name);
        char *here = test_file_read(path, &have);
        char *there = test_file_read(test_path(&serving->folder, "www/%s/%s", dataset, file->d_name), &want);
        assert_int_equal(have, want);
        assert_memory_equal(here, there, want);
        free(here);
        free(there);
        count++;
    }
    (void)closedir(folder);
    return count;
}

void serving_pack_twice(Serving *serving, const char *const *environment, const char *scheme,
                        const char *short_lives, const char *asked, const char *const *secrets)
{
    const char *const more[] = {"--no-check", "--shard-size", "500K", NULL};
    serving_pack(serving, "set", 20, 256, more);
    for (size_t i = 0; i < 2; i++) {
        char address[64];
        (void)snprintf(address, sizeof address, "%s://bucket/%c", scheme, i ? 'b' : 'a');
        if (i)
            test_file_write_text(test_path(&serving->folder, "www/short-lives"), short_lives);
        serving_forget(serving);
        RunResult result = serving_run(serving, environment, "fpack", "--no-check", "--shard-size", "500K",
                                       test_path(&serving->folder, "images-set"), address, NULL);
        if (result.exit_status)
            fail_msg("%s", result.err);
        for (const char *const *secret = secrets; *secret; secret++)
            assert_contains_not(result.err, *secret);
        run_result_free(&result);
        const size_t shards = serving_check_shards(
            serving, test_path(&serving->folder, i ? "www/bucket/b" : "www/bucket/a"), "set");
        assert_true(shards > 1);
        assert_int_equal(serving_count(serving, asked), i ? shards + 2 : 1);
    }
}
