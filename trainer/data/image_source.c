#include "trainer/data/image_source.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/path.h"
#include "common/walk.h"
#include "imaging/image.h"

/* ---- what path is ---- */

static bool is_image_file(const char *path)
{
    uint8_t bytes[IMAGE_SNIFF_BYTES];
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return false;
    const ssize_t length = read(descriptor, bytes, sizeof bytes);
    (void)close(descriptor);
    return length > 0 && image_sniff(bytes, (size_t)length) != IMAGE_UNKNOWN;
}

static bool all_are_wanted(void *context, const char *path)
{
    (void)context;
    return image_name_is_image(path);
}

static bool is_tar_of_images(const char *path)
{
    FshDataset *dataset = NULL;
    const bool opened = fsh_open_tar_files(&dataset, path, all_are_wanted, NULL, NULL) == FSH_OK;
    fsh_close(&dataset);
    return opened;
}

bool image_source_is_packed(const char *path, FshKind kind)
{
    FshDataset *dataset = NULL;
    const bool folder = file_is_folder(path);
    if (!file_exists(path) || (!folder && is_image_file(path)))
        return !file_exists(path);
    if (folder && (file_exists_in(path, FSH_MANIFEST_NAME) || file_exists_in(path, FSH_UNFINISHED_NAME)))
        return true;
    const bool opened = fsh_open(&dataset, path, NULL) == FSH_OK;
    const FshContainer container = opened ? fsh_manifest(dataset)->container : 0;
    const bool members = fsh_container_has(container, FSH_HAS_MEMBERS);
    const bool files = fsh_container_has(container, FSH_HAS_FILES);
    const bool fits = opened && fsh_manifest(dataset)->kind == kind && kind != FSH_KIND_CLASSES;
    fsh_close(&dataset);
    if (opened && !files && (fits || folder || !members))
        return true;
    return folder ? file_exists_in(path, "data.mdb") : !is_tar_of_images(path);
}

/* ---- finding ---- */

/* A search under way. */
typedef struct Finder {
    const ImageSourceOptions *options;
    ImageSource *source;
    char outputs[PATH_MAX];   /* relative to the root; "": they lie elsewhere */
    char real_root[PATH_MAX]; /* without links, for what a list names in full; "": not known */
    char **paths;             /* of wanted images; owned */
    size_t capacity;
} Finder;

FSH_PRINTF(2, 3) static void tell(Finder *finder, const char *format, ...);

static void tell(Finder *finder, const char *format, ...)
{
    char message[2 * PATH_MAX + 512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    finder->source->problem_count++;
    if (finder->options->tell)
        finder->options->tell(finder->options->context, message);
}

static bool is_wanted(Finder *finder, const char *path)
{
    if (*finder->outputs && path_lies_in(path, finder->outputs))
        return false;
    finder->source->image_count++;
    const bool wanted = !finder->options->wanted || finder->options->wanted(finder->options->context, path);
    finder->source->wanted_count += wanted;
    return wanted;
}

/* Returns the failure, and takes back the count of an image that is not kept. */
static FshStatus out_of_memory(Finder *finder, FshError *error)
{
    finder->source->wanted_count--;
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of the images");
}

static FshStatus keep(Finder *finder, const char *path, FshError *error)
{
    if (!is_wanted(finder, path))
        return FSH_OK;
    const size_t count = (size_t)finder->source->wanted_count - 1;
    if (!finder->paths || count == finder->capacity) {
        const size_t capacity = finder->capacity ? 2 * finder->capacity : 1024;
        char **paths = realloc(finder->paths, capacity * sizeof *paths);
        if (!paths)
            return out_of_memory(finder, error);
        finder->paths = paths;
        finder->capacity = capacity;
    }
    finder->paths[count] = strdup(path);
    return finder->paths[count] ? FSH_OK : out_of_memory(finder, error);
}

static FshStatus find_below(Finder *finder, const char *root, FshError *error)
{
    WalkCursor *cursor = NULL;
    WalkEntry entry = {0};
    FshStatus status = walk_open(&cursor, root, error);
    while (!status && !(status = walk_next(cursor, &entry, error)) && entry.path) {
        if (entry.reason)
            tell(finder, "%s/%s: %s", root, entry.path, entry.reason);
        else if (image_name_is_image(entry.path))
            status = keep(finder, entry.path, error);
        else
            finder->source->other_count++;
    }
    walk_close(&cursor);
    return status;
}

/* Returns what a path in full is called below folder; NULL where it does not lie there. */
static const char *below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    while (length && folder[length - 1] == '/')
        length--;
    const bool lies = *folder == '/' && strncmp(path, folder, length) == 0 && path[length] == '/';
    return lies ? path + length + strspn(path + length, "/") : NULL;
}

/* Keeps the image that a line of the list names: by a path below root, or by one in full that leads there, as
 * root is written or as its real path is. */
static FshStatus keep_listed(Finder *finder, const char *root, char *line, FshError *error)
{
    const char *path = *line == '/' ? below(line, root) : line;
    if (!path)
        path = below(line, finder->real_root);
    if (!path || path_goes_up(path)) {
        tell(finder, "%s: is not below %s, though the list names it", line,
             *finder->real_root ? finder->real_root : root);
        return FSH_OK;
    }
    char *clean = line + (path - line);
    path_clean(clean);
    return *clean ? keep(finder, clean, error) : FSH_OK;
}

static FshStatus find_listed(Finder *finder, const char *root, FshError *error)
{
    enum { LIST_BYTES_MOST = 1 << 30 };
    Buffer list = {0};
    FshStatus status = file_read_stream(finder->options->files_from, LIST_BYTES_MOST, &list, error);
    if (!status && memchr(list.bytes, '\0', list.length))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: is no text: a list has a path a line (find -print, not -print0)",
                               finder->options->files_from);
    if (!status)
        status = buffer_append(&list, "\n", 2, error); /* the last line ends too, and so does the text */
    char *at = (char *)list.bytes;
    while (!status && *at) {
        char *end = strchr(at, '\n');
        *end = '\0';
        if (end > at && end[-1] == '\r')
            end[-1] = '\0';
        if (*at)
            status = keep_listed(finder, root, at, error);
        at = end + 1;
    }
    buffer_free(&list);
    return status;
}

/* Finds where the outputs lie below the root, by real paths: links may lead anywhere. */
static void find_outputs(Finder *finder, const char *root)
{
    char real_root[PATH_MAX], real_outputs[PATH_MAX];
    if (!finder->options->outputs || !realpath(root, real_root) ||
        !realpath(finder->options->outputs, real_outputs) || !path_lies_in(real_outputs, real_root))
        return;
    const char *below = real_outputs + strlen(real_root);
    while (*below == '/')
        below++;
    (void)snprintf(finder->outputs, sizeof finder->outputs, "%s", below);
}

static FshStatus open_folder(Finder *finder, const char *root, FshError *error)
{
    ImageSource *source = finder->source;
    if (!realpath(root, finder->real_root))
        finder->real_root[0] = '\0';
    find_outputs(finder, root);
    FshStatus status =
        finder->options->files_from ? find_listed(finder, root, error) : find_below(finder, root, error);
    if (!status && source->wanted_count)
        status = fsh_open_files(&source->dataset, root, (const char *const *)finder->paths,
                                source->wanted_count, error);
    return status;
}

static FshStatus open_image(Finder *finder, const char *path, FshError *error)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX] = ".";
    if (slash)
        (void)snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    FshStatus status = keep(finder, name, error);
    if (!status && finder->source->wanted_count)
        status =
            fsh_open_files(&finder->source->dataset, folder, (const char *const *)finder->paths, 1, error);
    return status;
}

static bool is_wanted_member(void *context, const char *path)
{
    Finder *finder = context;
    if (path_goes_up(path) || *path == '/') {
        tell(finder, "%s: %s: leads out of the tar", finder->options->path, path);
        return false;
    }
    if (image_name_is_image(path))
        return is_wanted(finder, path);
    finder->source->other_count++;
    return false;
}

static FshStatus open_tar(Finder *finder, const char *path, FshError *error)
{
    const FshStatus status =
        fsh_open_tar_files(&finder->source->dataset, path, is_wanted_member, finder, error);
    return status == FSH_ERR_MISMATCH && !finder->source->wanted_count ? FSH_OK : status;
}

/* ---- life ---- */

FshStatus image_source_open(ImageSource *source, const ImageSourceOptions *options, FshError *error)
{
    const char *root = options->path ? options->path : ".";
    Finder finder = {.options = options, .source = source};
    FshStatus status = FSH_OK;
    *source = (ImageSource){0};
    if (file_is_folder(root))
        status = open_folder(&finder, root, error);
    else if (options->files_from)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: is no folder, below which --files-from could name files", root);
    else
        status = is_image_file(root) ? open_image(&finder, root, error) : open_tar(&finder, root, error);
    for (size_t i = 0; i < source->wanted_count && finder.paths; i++)
        free(finder.paths[i]);
    free(finder.paths);
    if (status)
        image_source_close(source);
    return status;
}

void image_source_close(ImageSource *source)
{
    fsh_close(&source->dataset);
    *source = (ImageSource){0};
}
