/* What a finished output left behind for a packing that goes on: .NAME.json. The output itself is not there,
 * so all of it is read and none of it is used. */
#include "tests/fuzz/fuzz.h"
#include "tools/pack/pack_resume.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const char name[] = "train-00000-of-00001.fshard";
    const ResumeKey key = {.id = "0123456789abcdef0123456789abcdef",
                           .split = "train",
                           .name = name,
                           .container = FSH_CONTAINER_SHARDS,
                           .class_count = 2};
    char hidden[64];
    OutputResult result;
    FshError error = {0};
    bool kept = true;
    FuzzFolder folder = fuzz_folder_open(resume_name(hidden, sizeof hidden, name), bytes, length);
    fuzz_folder_seal(&folder, bytes, length);
    fuzz_expect_ok(resume_load(&key, folder.path, &result, &kept, &error), &error, "resume_load");
    fuzz_expect(!kept, "what is not there is not kept");
    fuzz_folder_close(&folder);
    return 0;
}
