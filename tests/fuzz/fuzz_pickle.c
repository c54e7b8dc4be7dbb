/* A value of folder2lmdb's databases: where (bytes, int) lies in a pickle. */
#include "formats/folder2lmdb.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    uint64_t image_at = 0, image_bytes = 0;
    int64_t label = 0;
    FshError error = {0};
    if (fsh_pickle_sample(bytes, length, &image_at, &image_bytes, &label, &error) == FSH_OK) {
        fuzz_expect(image_at <= length && image_bytes <= length - image_at,
                    "the image lies within the pickle");
        fuzz_touch(bytes + image_at, (size_t)image_bytes);
    }
    return 0;
}
