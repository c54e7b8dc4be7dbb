#include "tools/verify/verify_names.h"

#include <stdlib.h>

#include "common/display_names.h"

FshStatus verify_names_read(const FshManifest *manifest, char ***names_ret, FshError *error)
{
    const char *usual = getenv(DISPLAY_NAMES_VARIABLE);
    size_t named = 0;
    *names_ret = NULL;
    if (manifest->class_display_names || !manifest->class_count || !usual || !*usual)
        return FSH_OK;
    const FshStatus status = display_names_read(usual, manifest->class_names, manifest->class_count, false,
                                                names_ret, &named, error);
    return status ? fsh_error_prepend(error, "$" DISPLAY_NAMES_VARIABLE) : FSH_OK;
}

FshStatus verify_open_named(FshDataset **dataset_ret, const char *path, FshError *error)
{
    char **names = NULL;
    FshStatus status = fsh_open(dataset_ret, path, error);
    if (status)
        return status;
    status = verify_names_read(fsh_manifest(*dataset_ret), &names, error);
    if (names)
        fsh_set_class_display_names(*dataset_ret, names);
    if (status)
        fsh_close(dataset_ret);
    return status;
}

FshStatus verify_names_check(const char *path, FshError *error)
{
    FshManifest manifest = {0};
    char **names = NULL;
    if (fsh_manifest_load(&manifest, path, NULL))
        return FSH_OK;
    const FshStatus status = verify_names_read(&manifest, &names, error);
    display_names_free(names, manifest.class_count);
    fsh_manifest_free(&manifest);
    return status;
}
