/* Plays files through a fuzz target, without libFuzzer: fuzz-NAME FILE|FOLDER…
 * Each file once; folders are read in byte order. Exit 0: all were played; 1: there was nothing to play. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/walk.h"
#include "tests/fuzz/fuzz.h"

/* Runs the target on the file's bytes in an allocation of exactly their length, as libFuzzer does. */
static FshStatus play(const char *path, FshError *error)
{
    Buffer file = {0};
    FshStatus status = file_read(path, &file, error);
    uint8_t *bytes = status ? NULL : malloc(file.length + !file.length);
    if (bytes) {
        if (file.length)
            memcpy(bytes, file.bytes, file.length);
        (void)LLVMFuzzerTestOneInput(bytes, file.length);
    } else if (!status) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    free(bytes);
    buffer_free(&file);
    return status;
}

static FshStatus play_folder(const char *folder, uint64_t *count, FshError *error)
{
    FileList list = {0};
    FshStatus status = walk_files(folder, 1, &list, error);
    for (uint64_t i = 0; i < list.count && !status; i++) {
        char path[PATH_MAX];
        status = file_join(path, sizeof path, folder, list.files[i].path, error);
        if (!status)
            status = play(path, error);
        *count += !status;
    }
    file_list_free(&list);
    return status;
}

int main(int argc, char **argv)
{
    FshError error = {0};
    FshStatus status = FSH_OK;
    uint64_t count = 0;
    for (int i = 1; i < argc && !status; i++) {
        if (file_is_folder(argv[i])) {
            status = play_folder(argv[i], &count, &error);
        } else {
            status = play(argv[i], &error);
            count += !status;
        }
    }
    if (status)
        (void)fprintf(stderr, "fuzz: %s\n", error.message);
    else
        (void)printf("%llu inputs\n", (unsigned long long)count);
    return status || !count;
}
