/* dataset.json: what is read keeps all promises, and can be written; what was written reads as the same
 * text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/manifest.h"
#include "tests/fuzz/fuzz.h"

static void save(const FshManifest *manifest, const FuzzFolder *folder, Buffer *text)
{
    FshError error = {0};
    fuzz_expect_ok(fsh_manifest_save(manifest, folder->path, true, &error), &error, "fsh_manifest_save");
    fuzz_expect_ok(file_read(folder->file, text, &error), &error, "file_read");
}

static void write_and_read(const FshManifest *manifest, const uint8_t *bytes, size_t length)
{
    Buffer first = {0}, second = {0};
    FshManifest again = {0};
    FshError error = {0};
    FuzzFolder folder = fuzz_folder_open(FSH_MANIFEST_NAME, bytes, length);
    save(manifest, &folder, &first);
    fuzz_expect_ok(fsh_manifest_parse(&again, (const char *)first.bytes, first.length, &error), &error,
                   "fsh_manifest_parse of what was written");
    save(&again, &folder, &second);
    fuzz_expect(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0,
                "the same manifest gives the same bytes");
    fsh_manifest_free(&again);
    buffer_free(&first);
    buffer_free(&second);
    fuzz_folder_close(&folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    FshManifest manifest = {0};
    FshError error = {0};
    if (fsh_manifest_parse(&manifest, (const char *)bytes, length, &error) == FSH_OK) {
        fuzz_expect_ok(fsh_manifest_check(&manifest, FSH_ERR_CORRUPT, &error), &error, "fsh_manifest_check");
        write_and_read(&manifest, bytes, length);
    }
    fsh_manifest_free(&manifest);
    return 0;
}
