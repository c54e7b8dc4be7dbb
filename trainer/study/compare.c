#include "trainer/study/compare.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/json_text.h"

const char compare_page_name[] = "compare.html";

FshStatus compare_check_page(const char *path, bool force, FshError *error)
{
    struct stat file; /* a link to nothing is in the way, too */
    return force || lstat(path, &file) || comparison_is_page(path)
               ? FSH_OK
               : fsh_error_set(
                     error, FSH_ERR_EXISTS,
                     "%s: exists, and is no page of --compare; --output names another page, --force "
                     "replaces this file",
                     path);
}

static FshStatus find_page(const TrainOptions *options, char path[PATH_MAX], FshError *error)
{
    const char *output = options->output ? options->output : ".";
    FshStatus status = FSH_OK;
    if (!options->output || file_is_folder(output))
        status = file_join(path, PATH_MAX, output, compare_page_name, error);
    else if ((size_t)snprintf(path, PATH_MAX, "%s", output) >= PATH_MAX)
        status = fsh_error_set(error, FSH_ERR_USAGE, "--output: the path is too long");
    if (!status)
        status = file_check_parent_folder(path, error);
    return status ? status : compare_check_page(path, options->force, error);
}

FshStatus compare_print(const Comparison *comparison, const char *page, bool as_json, FILE *stream,
                        FshError *error)
{
    if (!as_json) {
        comparison_print(comparison, stream);
        return FSH_OK;
    }
    json_t *object = comparison_json(comparison);
    char *text = object && !json_object_set_new(object, "page", json_text(page))
                     ? json_dumps(object, JSON_INDENT(2) | JSON_PRINTED)
                     : NULL;
    json_decref(object);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the result");
    (void)fprintf(stream, "%s\n", text);
    free(text);
    return FSH_OK;
}

FshStatus compare_runs(const TrainOptions *options, const char *const *folders, size_t count, FshError *error)
{
    char page[PATH_MAX];
    Comparison *comparison = NULL;
    if (!count)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "the runs are missing: ftrain --compare RUN1 RUN2 ..., or the folder of a sweep");
    FshStatus status = find_page(options, page, error);
    if (!status)
        status = comparison_open(&comparison, folders, count, error);
    if (!status)
        status = compare_print(comparison, page, options->program.json, stdout, error);
    if (!status)
        status = comparison_write(comparison, page, options->force, error);
    if (!status && !options->program.quiet && !options->program.json)
        (void)fprintf(stderr, "page: %s\n", page);
    comparison_close(&comparison);
    return status;
}
