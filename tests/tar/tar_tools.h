/* tar_tools.h - tars for the tests, and what the reader says of them. Whatever cannot be done fails the
 * running test. */
#ifndef FSHARD_TESTS_TAR_TOOLS_H
#define FSHARD_TESTS_TAR_TOOLS_H

#include "tar/tar_read.h"
#include "tar/tar_write.h"
#include "tests/support/support.h"

/* Call tar_writer_open, tar_writer_add and tar_writer_finish, and fail the test on errors. */
TarWriter *tar_begin(const char *path);
void tar_add(TarWriter *writer, const char *path, const void *bytes, size_t length, int64_t modified_ns);
void tar_finish(TarWriter **writer);
/* Adds the file at `path` as the entry `name`. */
void tar_add_file(TarWriter *writer, const char *name, const char *path);

/* Writes FOLDER/name with "a" ("first"), "b/b" ("second") and "c" (5,000 bytes, a 7 and zeros), whose headers
 * are at bytes 0, 1024 and 2048. Returns the path. */
const char *tar_write_small(TestFolder *folder, const char *name);
/* Makes the checksum of the header, 512 bytes, right again. */
void tar_sign_header(uint8_t *block);

/* Runs `command` in a shell whose $0 is the test's folder; fails the test unless it succeeds. */
void run_shell(TestFolder *folder, const char *command);

/* Returns the walk as text, which the caller frees: a line "PATH (BYTES)" or "PATH: REASON" for each entry,
 * the tar itself as "(tar)", then "N hidden". With content, an entry that cannot be read has a line with its
 * message. */
char *tar_listing(const char *path, bool with_content);
/* Asserts the listing, with content and without. */
void assert_tar_listing(const char *path, const char *expected);
/* Opens the tar, goes to the entry of that name and reads it. Sets entry->path to NULL. */
FshStatus tar_read_one(const char *path, const char *name, Buffer *content, uint64_t most, TarEntry *entry,
                       FshError *error);

#endif
