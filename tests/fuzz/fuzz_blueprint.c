/* What fpack --merge takes from each part: the blueprint (.fpack-plan.json), and from it a manifest. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/pack/pack_blueprint.h"
#include "tools/job/contents.h"

static void finish(Blueprint *blueprint, const char *folder)
{
    FshError error = {0};
    FshManifest again = {0};
    for (size_t i = 0; i < blueprint->output_count && i < 8; i++) {
        FshSplitInfo *split = NULL;
        const FshFileInfo *file = blueprint_output(blueprint, i, &split);
        fuzz_expect(file->name && !strchr(file->name, '/') && file->name[0] != '.',
                    "an output lies in the dataset's own folder");
    }
    fuzz_expect_ok(blueprint_finish(blueprint, &error), &error, "blueprint_finish");
    if (fsh_manifest_save(&blueprint->manifest, folder, true, &error) == FSH_OK) {
        fuzz_expect_ok(fsh_manifest_load(&again, folder, &error), &error, "fsh_manifest_load");
        fsh_manifest_free(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Blueprint blueprint;
    FshError error = {0};
    FuzzFolder folder = fuzz_folder_open(CONTENTS_BLUEPRINT_NAME, bytes, length);
    fuzz_folder_seal(&folder, bytes, length);
    if (blueprint_load(&blueprint, folder.path, &error) == FSH_OK) {
        finish(&blueprint, folder.path);
        blueprint_free(&blueprint);
        fuzz_folder_empty(&folder, FSH_MANIFEST_NAME);
    }
    fuzz_folder_close(&folder);
    return 0;
}
