/* A tar, and the tars in it, as a stream of files (tar/tar_read.h); libarchive decompresses. */
#include <string.h>

#include "tar/tar_read.h"
#include "tests/fuzz/fuzz.h"

enum { ENTRIES_MAX = 1000, CONTENT_BYTES_MAX = 1 << 16 };

/* Expects that the path, which was not refused, may be written below a folder. */
static void expect_harmless(const char *path)
{
    fuzz_expect(*path && *path != '/' && strlen(path) < PATH_MAX, "a path is relative");
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        fuzz_expect(*part && *part != '/' && *part != '.', "no part of a path is empty or begins with a dot");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    TarReader *reader = NULL;
    TarEntry entry = {0};
    Buffer content = {0};
    FshError error = {0};
    uint64_t position = 0, extent = 0;
    FuzzFile file = fuzz_file_open(bytes, length);
    (void)tar_is_tar(file.path);
    FshStatus status = tar_reader_open(&reader, file.path, &error);
    for (int i = 0; i < ENTRIES_MAX && !status; i++) {
        status = tar_reader_next(reader, &entry, &error);
        if (status || !entry.path)
            break;
        if (entry.reason) {
            fuzz_touch(entry.path, strlen(entry.path));
            fuzz_touch(entry.reason, strlen(entry.reason));
            continue;
        }
        expect_harmless(entry.path);
        if (i % 4 == 3) /* some are leapt over */
            continue;
        uint64_t entry_bytes = entry.bytes;
        FshStatus read = tar_reader_content(reader, &content, CONTENT_BYTES_MAX, &error);
        fuzz_expect(read || content.length == entry_bytes, "an entry holds what its header says");
        fuzz_touch(content.bytes, content.length);
    }
    if (reader)
        tar_reader_position(reader, &position, &extent);
    tar_reader_close(&reader);
    buffer_free(&content);
    fuzz_file_close(&file);
    return 0;
}
