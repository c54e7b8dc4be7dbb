/* stores_support.h - a server with datasets on it, for the tests of stores/: store_server.py over a folder.
 *
 *   TEST_WITH(test_…, serving_setup, serving_teardown, Serving *serving)
 *   {
 *       RunResult result = serving_run(serving, NULL, "fverify", serving_address(serving, "ok/small"), NULL);
 *   }
 *
 * Threads: one. */
#ifndef FSHARD_TESTS_STORES_SUPPORT_H
#define FSHARD_TESTS_STORES_SUPPORT_H

#include "tests/support/support.h"

typedef struct Serving {
    TestFolder folder; /* www/: what is served; cache/: of the programs; log: the requests */
    RunningProgram server;
    char port[16];
    const char *www, *cache;
} Serving;

/* Starts the server over an empty folder. */
int serving_setup(void **state);
int serving_teardown(void **state);

/* Packs a dataset of count images, of edge x edge noise in two classes, to www/NAME; more: further arguments
 * of fpack, or NULL. */
void serving_pack(Serving *serving, const char *name, size_t count, size_t edge, const char *const *more);

/* Returns http://127.0.0.1:PORT/PATH; it lives until the teardown. */
const char *serving_address(Serving *serving, const char *path);

/* Runs a program with the cache of the test and few retries, and with environment variables, which end with
 * NULL. What S3 and Google need is set for the server, but for credentials. */
RunResult serving_run(Serving *serving, const char *const *environment, const char *program, ...)
    __attribute__((sentinel));
/* The same in two steps. arguments: without the program's name, NULL at the end. */
RunningProgram serving_start(Serving *serving, const char *const *environment, const char *program,
                             const char *const *arguments);

/* Returns "NAME=http://127.0.0.1:PORT/PATH"; it lives until the teardown. */
const char *serving_variable(Serving *serving, const char *name, const char *path);

/* Runs fverify over an address, and expects an exit status, a text on stderr, and none of the secrets, which
 * end with NULL, anywhere. */
void serving_check(Serving *serving, const char *address, const char *const *environment, int exit_status,
                   const char *told, const char *const *secrets);

/* Counts the requests whose line in the log has this in it. */
size_t serving_count(Serving *serving, const char *part);
/* Forgets the requests so far. */
void serving_forget(Serving *serving);

/* Returns the folder of the cache's one dataset that begins with name; it fails if there is none. */
const char *serving_entry(Serving *serving, const char *name);
/* Checks that each file NAME of the entry that is a shard is byte for byte that of www/DATASET. Returns how
 * many there are. */
size_t serving_check_shards(Serving *serving, const char *entry, const char *dataset);
/* Packs www/set's images to SCHEME://bucket/a, and to bucket/b with www/short-lives, by which what the server
 * lends is good for less than a packing takes. Expects the shards of www/set, none of the secrets (NULL at
 * the end) on stderr, and that `asked` is in the log once, or before each file. */
void serving_pack_twice(Serving *serving, const char *const *environment, const char *scheme,
                        const char *short_lives, const char *asked, const char *const *secrets);

#endif
