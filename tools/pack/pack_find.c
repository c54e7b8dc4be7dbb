#include "tools/pack/pack_found.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/pool.h"
#include "common/seal.h"
#include "imaging/image.h"

/* ---- names ---- */

PackSplitIndex pack_split_by_name(const char *name, size_t length)
{
    return (PackSplitIndex)fsh_split_of_folder(name, length);
}

size_t pack_stem_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot && dot != name && image_name_is_image(path) ? (size_t)(dot - path) : strlen(path);
}

/* ---- where bytes come from ---- */

PackSource found_source(const PackFound *found, uint64_t item)
{
    if (!found->from.dataset) {
        const FileEntry *file = &found->files.files[item];
        return (PackSource){.path = file->path,
                            .path_bytes = strlen(file->path),
                            .bytes = file->bytes,
                            .modified_ns = file->modified_ns};
    }
    FshSample from;
    size_t at = 0;
    if (found_dataset_sample(found, item, &from, &at, NULL, NULL))
        return (PackSource){.path = ""};
    return (PackSource){.path = from.fields[at].source ? from.fields[at].source : "", /* a tar has none */
                        .path_bytes = from.fields[at].source_bytes,
                        .bytes = from.fields[at].unpacked_bytes,
                        .modified_ns = found->from.modified};
}

/* ---- reading ---- */

FshStatus source_open(const char *root, int *descriptor_ret, FshError *error)
{
    *descriptor_ret = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *descriptor_ret < 0 ? fsh_error_system(error, errno, "%s: cannot open the folder", root) : FSH_OK;
}

/* Reads until `most` bytes are there or the file ends. It has ended too when a read comes back short at
 * exactly `expected` bytes: asking again for nothing would be a fourth system call for each file. */
static FshStatus read_up_to(int folder, const char *path, size_t most, uint64_t expected, Buffer *buffer,
                            FshError *error)
{
    buffer->length = 0;
    FshStatus status = buffer_reserve(buffer, most, error);
    if (status)
        return status;
    /* O_NONBLOCK: a pipe put in the file's place since the walk must not hold us. */
    int descriptor = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "cannot open");
    while (buffer->length < most && !status) {
        ssize_t got = read(descriptor, buffer->bytes + buffer->length, most - buffer->length);
        if (got > 0)
            buffer->length += (size_t)got;
        else if (got < 0 && errno != EINTR)
            status = fsh_error_system(error, errno, "cannot read");
        if (got == 0 || buffer->length == expected)
            break;
    }
    (void)close(descriptor);
    return status;
}

FshStatus source_read_start(int folder, const char *path, size_t most, Buffer *buffer, FshError *error)
{
    return read_up_to(folder, path, most, UINT64_MAX, buffer, error);
}

FshStatus source_read(int folder, const char *path, uint64_t expected, Buffer *buffer, FshError *error)
{
    if (expected >= SIZE_MAX / 2)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%" PRIu64 " bytes are too many", expected);
    /* One byte more than expected, so that a file that has grown is seen. */
    FshStatus status = read_up_to(folder, path, (size_t)expected + 1, expected, buffer, error);
    if (!status && buffer->length != expected)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "changed since it was listed: it had %" PRIu64 " bytes", expected);
    return status;
}

/* ---- which files are images ---- */

enum { NOT_AN_IMAGE, AN_IMAGE, UNREADABLE };

typedef struct SniffJob {
    PackFound *found;
    const uint64_t *files;
    Buffer *buffers; /* for each thread */
} SniffJob;

static FshStatus sniff_one(uint64_t item, int thread, void *context, FshError *error)
{
    SniffJob *job = context;
    PackFound *found = job->found;
    Buffer *buffer = &job->buffers[thread];
    FshError failure = {0};
    uint64_t file = job->files[item];
    FshStatus status =
        source_read_start(found->folder, found->files.files[file].path, IMAGE_SNIFF_BYTES, buffer, &failure);
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    if (status)
        found->is_image[file] = UNREADABLE;
    else if (image_sniff(buffer->bytes, buffer->length) != IMAGE_UNKNOWN)
        found->is_image[file] = AN_IMAGE;
    return FSH_OK;
}

/* Fills is_image. A file whose name says "image" is taken for one until the work reads it, so that a text
 * called .jpg is reported, not passed over. A file of any other name is an image if its first bytes are an
 * image's. */
static FshStatus find_images(PackFound *found, int jobs, FshError *error)
{
    FshStatus status = FSH_OK;
    const uint64_t count = found->files.count;
    uint64_t odd_count = 0;
    uint64_t *odd = calloc(count + 1, sizeof *odd);
    Buffer *buffers = calloc((size_t)jobs, sizeof *buffers);
    found->is_image = calloc(count + 1, sizeof *found->is_image);
    if (!odd || !buffers || !found->is_image) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", found->root);
        goto done;
    }
    for (uint64_t file = 0; file < count; file++) {
        found->is_image[file] = image_name_is_image(found->files.files[file].path) ? AN_IMAGE : NOT_AN_IMAGE;
        if (found->is_image[file] == NOT_AN_IMAGE)
            odd[odd_count++] = file;
    }
    SniffJob job = {.found = found, .files = odd, .buffers = buffers};
    status = pool_run(jobs, odd_count, sniff_one, &job, error);
    for (uint64_t i = 0; i < odd_count && !status; i++) {
        uint8_t *kind = &found->is_image[odd[i]];
        if (*kind == UNREADABLE) {
            *kind = NOT_AN_IMAGE;
            status = notes_add(&found->notes->left_out, FSH_ERR_SYSTEM, found->files.files[odd[i]].path,
                               "cannot be read to see whether it is an image", error);
        }
        found->other_file_count += *kind == NOT_AN_IMAGE;
    }
done:
    for (int thread = 0; buffers && thread < jobs; thread++)
        buffer_free(&buffers[thread]);
    free(buffers);
    free(odd);
    return status;
}

/* ---- a tree ---- */

/* Notes what the walk could not read as left out: a dangling link may have been a photograph. */
static FshStatus note_walk_problems(PackFound *found, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < found->files.problem_count && !status; i++) {
        const WalkProblem *problem = &found->files.problems[i];
        status = notes_add(&found->notes->left_out, problem->unread ? FSH_ERR_SYSTEM : FSH_ERR_UNSUPPORTED,
                           problem->path, problem->reason, error);
    }
    return status;
}

/* Reads the recipe that fresize leaves in the tree it writes: it belongs in the provenance. A tree that
 * fresize has not finished is packed as it is, with a warning: images may be missing that nobody will miss
 * later. */
static FshStatus read_resize_recipe(PackFound *found, FshError *error)
{
    enum { RECIPE_BYTES_MAX = 1 << 20 };
    static const char name[] = ".fresize/recipe.json";
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, found->root, name, error);
    if (status || found->options->root[0]) /* folders anywhere have recipes of their own, or none */
        return status;
    FshError damage = {0};
    status = seal_read(path, RECIPE_BYTES_MAX, false, &found->recipe, &damage);
    if (status == FSH_ERR_NOT_FOUND)
        return FSH_OK;
    if (status)
        return notes_add(&found->notes->warnings, FSH_OK, name,
                         "is damaged, so the dataset will not tell how its images were made smaller; "
                         "fresize --check finds out whether they are right",
                         error);
    (void)json_object_del(found->recipe, "checksum"); /* of that file alone */
    if (!json_is_true(json_object_get(found->recipe, "complete")))
        status = notes_add(&found->notes->warnings, FSH_OK, name,
                           "fresize did not come to its end here: images may be missing; run it again first",
                           error);
    (void)json_object_del(found->recipe, "complete");
    return status;
}

/* Orders folders by the bytes of the paths below them: "a/b-" comes before "a/b", since '-' comes before '/'.
 */
static int compare_folders(const void *a, const void *b)
{
    const char *left = *(const char *const *)a, *right = *(const char *const *)b;
    while (*left && *left == *right) {
        left++;
        right++;
    }
    return (*left ? (unsigned char)*left : '/') - (*right ? (unsigned char)*right : '/');
}

/* Lists the files of the source, or of the sides' own folders. */
static FshStatus find_files(PackFound *found, FshError *error)
{
    const PackOptions *options = found->options;
    const char *folders[FSH_FIELDS_MAX];
    size_t count = 0, kept = 0;
    if (!options->root[0])
        return walk_files(options->source, options->jobs, &found->files, error);
    for (; count < options->field_count; count++)
        folders[count] = options->side_folders[count];
    qsort(folders, count, sizeof *folders, compare_folders);
    for (size_t i = 0; i < count; i++) {
        if (!kept || strcmp(folders[kept - 1], folders[i]) != 0)
            folders[kept++] = folders[i];
    }
    return walk_folders(found->root, folders, kept, options->jobs, &found->files, error);
}

/* Finds the files of a tree: by walking it, or in a list. */
static FshStatus find_tree(PackFound *found, FshError *error)
{
    const PackOptions *options = found->options;
    FshStatus status = source_open(options->source, &found->folder, error);
    if (!status)
        status = read_resize_recipe(found, error);
    if (status || options->files_from)
        return status ? status : find_list(found, error);
    status = find_files(found, error);
    if (!status)
        status = note_walk_problems(found, error);
    if (!status)
        status = find_images(found, options->jobs, error);
    found->item_count = found->files.count;
    return status;
}

/* ---- all of it ---- */

FshStatus pack_find(PackFound *found, const PackOptions *options, PackNotes *notes, FshError *error)
{
    const ShrinkRecipe limits = {.max_pixels = options->max_pixels};
    *found = (PackFound){.options = options,
                         .root = options->source,
                         .notes = notes,
                         .file_most_bytes = shrink_most_bytes(&limits),
                         .folder = -1,
                         .kind = options->masks         ? FSH_KIND_MASKS
                                 : options->field_count ? FSH_KIND_PAIRS
                                                        : FSH_KIND_CLASSES,
                         .field_count = options->field_count ? options->field_count : 1,
                         .pair_scale = options->pair_scale,
                         .field_names = {"image"}};
    for (size_t field = 0; field < options->field_count; field++)
        found->field_names[field] = options->field_names[field];
    /* A list says what there is: nothing else is looked for. */
    const bool dataset = !options->files_from && !options->root[0] && find_is_dataset(options->source);
    return dataset ? find_dataset(found, error) : find_tree(found, error);
}

void pack_found_free(PackFound *found)
{
    if (!found->root) /* nothing was looked for */
        return;
    if (found->folder >= 0)
        (void)close(found->folder);
    free(found->is_image);
    free((void *)found->list_labels);
    buffer_free(&found->list_text);
    file_list_free(&found->files);
    fsh_close(&found->from.dataset);
    json_decref(found->recipe);
    json_decref(found->provenance);
    *found = (PackFound){.folder = -1};
}
