#include "tools/resize/resize_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/interrupt.h"
#include "tar/tar_read.h"
#include "tar/tar_source.h"
#include "common/walk.h"
#include "common/path.h"
#include "common/text.h"
#include "imaging/image.h"
#include "common/folder_list.h"

struct ResizeSource {
    const ResizeSourceOptions *options;
    /* one of the three is set */
    WalkCursor *walk;
    TarReader *tar;
    FILE *list;
    char *line; /* getdelim's */
    size_t line_capacity;
    uint64_t line_count;
    uint64_t list_extent;    /* bytes; 0: standard input */
    char resolved[PATH_MAX]; /* SRC, for a list that names whole paths; "": unknown */
};

bool resize_source_is_tar(const ResizeSourceOptions *options)
{
    return !file_is_folder(options->path) && tar_is_tar(options->path);
}

/* ---- open and close ---- */

static FshStatus open_list(ResizeSource *source, FshError *error)
{
    const char *path = source->options->files_from;
    struct stat status;
    source->list = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!source->list)
        return fsh_error_system(error, errno, "%s: cannot open the list of files", path);
    if (fstat(fileno(source->list), &status) == 0 && S_ISDIR(status.st_mode))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is a folder, not a list of files", path);
    if (source->list != stdin && S_ISREG(status.st_mode))
        source->list_extent = (uint64_t)status.st_size;
    if (!realpath(source->options->path, source->resolved))
        source->resolved[0] = '\0';
    return FSH_OK;
}

/* Returns whether a file's name says that it is an archive, and no tar. */
static bool is_other_archive(const char *path)
{
    static const char *const endings[] = {".zip", ".7z", ".rar"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_has_suffix(path, endings[i]))
            return true;
    return false;
}

static FshStatus open_kind(ResizeSource *source, FshError *error)
{
    const ResizeSourceOptions *options = source->options;
    const char *path = options->path;
    bool pairs = options->sides[0][0], is_folder = file_is_folder(path);
    if (!file_exists(path))
        return fsh_error_system(error, ENOENT, "%s", path);
    struct stat file;
    if (stat(path, &file) == 0 && S_ISFIFO(file.st_mode))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: is a pipe, and a tar is read from a file; keep it in one first", path);
    if (!is_folder && !tar_is_tar(path))
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED, "%s: %s", path,
            is_other_archive(path) ? "is an archive that is not read; unpack it, or make it a tar"
            : tar_is_named(path)   ? "is no tar, as its name says it is: empty, damaged or " TAR_CUT_SHORT
                                   : "is neither a folder nor a tar; name the folder of the images");
    if (!is_folder && (pairs || options->files_from))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is a tar, and %s takes a folder; unpack it first",
                             path,
                             options->masks ? "--masks"
                             : pairs        ? "--pairs"
                                            : "--files-from");
    if (!is_folder) {
        const FshStatus opened = tar_reader_open(&source->tar, path, error);
        return opened || !options->name ? opened : tar_reader_name(source->tar, options->name, error);
    }
    if (options->files_from)
        return open_list(source, error);
    FshStatus status = walk_open(&source->walk, path, error);
    if (!status)
        walk_avoid(source->walk, options->avoided);
    return status;
}

FshStatus resize_source_open(ResizeSource **source_ret, const ResizeSourceOptions *options, FshError *error)
{
    ResizeSource *source = calloc(1, sizeof *source);
    FshStatus status = FSH_OK;
    if (!source)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for reading it", options->path);
    source->options = options;
    status = open_kind(source, error);
    if (status)
        resize_source_close(&source);
    *source_ret = source;
    return status;
}

void resize_source_close(ResizeSource **source)
{
    if (!*source)
        return;
    walk_close(&(*source)->walk);
    tar_reader_close(&(*source)->tar);
    if ((*source)->list && (*source)->list != stdin)
        (void)fclose((*source)->list);
    free((*source)->line);
    free(*source);
    *source = NULL;
}

/* ---- a line of the list ---- */

/* Returns why a listed path cannot be one of the source's files; NULL: it can. */
static const char *refuse_path(const char *path)
{
    if (path[0] == '/')
        return "is not below SRC";
    return path_goes_up(path) ? "goes up by ..; the list names paths below SRC" : NULL;
}

/* Returns what follows the folder in path; NULL: the path does not lie below it. */
static const char *path_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    while (length && folder[length - 1] == '/')
        length--;
    return strncmp(path, folder, length) == 0 && path[length] == '/'
               ? path + length + strspn(path + length, "/")
               : NULL;
}

/* Returns a listed path as it is below SRC: `find SRC` and `find /data/SRC` give SRC with each path. A
 * relative path is taken to begin with SRC only if SRC/path is not there. */
static const char *drop_source(const ResizeSource *source, const char *path)
{
    char whole[PATH_MAX];
    const char *folder = source->options->path;
    const char *below = path_below(path, folder);
    if (!below && path[0] == '/' && source->resolved[0])
        below = path_below(path, source->resolved);
    if (!below || !*below ||
        (path[0] != '/' && (file_join(whole, sizeof whole, folder, path, NULL) || file_exists(whole))))
        return path;
    return below;
}

/* Reads the next line that is not empty into item's path; *end_ret: there is none. */
static FshStatus next_line(ResizeSource *source, ResizeItem *item, bool *end_ret, FshError *error)
{
    const char separator = source->options->null_separated ? '\0' : '\n';
    const char *list = source->options->files_from;
    for (;;) {
        errno = 0;
        ssize_t length = getdelim(&source->line, &source->line_capacity, separator, source->list);
        if (length < 0 && ferror(source->list))
            return fsh_error_system(error, errno, "%s: cannot read the list of files", list);
        if (length < 0) {
            *end_ret = true;
            return FSH_OK;
        }
        source->line_count++;
        if (length && source->line[length - 1] == separator)
            source->line[--length] = '\0';
        if (separator == '\n' && length && source->line[length - 1] == '\r')
            source->line[--length] = '\0';
        if (length == 0)
            continue;
        if (strlen(source->line) != (size_t)length)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: line %llu holds a NUL; take -0 for a list that is separated by NUL",
                                 list, (unsigned long long)source->line_count);
        break;
    }
    if (strlen(source->line) >= sizeof item->path)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: line %llu is longer than a path can be; %s", list,
                             (unsigned long long)source->line_count,
                             separator ? "is it a list of files?" : "is it separated by NUL?");
    const char *path = drop_source(source, source->line), *refusal = refuse_path(path);
    memcpy(item->path, path, strlen(path) + 1);
    if (refusal)
        (void)snprintf(item->reason, sizeof item->reason, "%s", refusal);
    else
        path_clean(item->path);
    return FSH_OK;
}

uint64_t resize_source_unmarked(const ResizeSource *source, const char **first_ret)
{
    return source->tar ? tar_reader_unmarked(source->tar, first_ret) : 0;
}

/* ---- pairs ---- */

/* Finds the one folder on the path that is named like a side: *side_ret, at *begin_ret in the path. Returns
 * false where there is none, or several (*several_ret). */
static bool find_side(const char *path, const char (*sides)[RESIZE_SIDE_BYTES], size_t *side_ret,
                      size_t *begin_ret, bool *several_ret)
{
    size_t found = 0;
    for (const char *part = path, *slash = strchr(part, '/'); slash;
         part = slash + 1, slash = strchr(part, '/')) {
        for (size_t side = 0; side < 2; side++) {
            size_t length = strlen(sides[side]);
            if (length != (size_t)(slash - part) || memcmp(part, sides[side], length) != 0)
                continue;
            if (found++ == 0) {
                *side_ret = side;
                *begin_ret = (size_t)(part - path);
            }
        }
    }
    *several_ret = found > 1;
    return found == 1;
}

static void fill_pair(const ResizeSource *source, ResizeItem *item)
{
    const char(*sides)[RESIZE_SIDE_BYTES] = source->options->sides;
    size_t side = 0, begin = 0;
    bool several = false;
    if (!find_side(item->path, sides, &side, &begin, &several)) {
        (void)snprintf(item->reason, sizeof item->reason,
                       several ? "lies below more than one side's folder: which side it is cannot be told"
                               : "lies below neither side's folder (%.80s, %.80s)",
                       sides[0], sides[1]);
        item->is_outside = true;
        item->is_unplaced = !several;
        return;
    }
    int length = snprintf(item->partner, sizeof item->partner, "%.*s%s%s", (int)begin, item->path,
                          sides[!side], item->path + begin + strlen(sides[side]));
    if (length < 0 || (size_t)length >= sizeof item->partner)
        (void)snprintf(item->reason, sizeof item->reason, "its partner's path would be too long");
    item->is_second_side = side == 1;
}

bool resize_source_is_mask(const ResizeSourceOptions *options, size_t side)
{
    return options->masks && side == 1;
}

/* ---- the next one ---- */

static void set_path(ResizeItem *item, const char *path, const char *reason)
{
    (void)snprintf(item->path, sizeof item->path, "%s", path); /* both readers keep to PATH_MAX */
    (void)snprintf(item->reason, sizeof item->reason, "%s", reason ? reason : "");
}

static FshStatus next_path(ResizeSource *source, ResizeItem *item, bool *end_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    if (source->list)
        return next_line(source, item, end_ret, error);
    if (source->walk) {
        WalkEntry entry = {0};
        status = walk_next(source->walk, &entry, error);
        *end_ret = !entry.path;
        if (!status && entry.path)
            set_path(item, entry.path, entry.reason);
        item->is_unread = entry.unread;
        return status;
    }
    TarEntry entry = {0};
    status = tar_reader_next(source->tar, &entry, error);
    *end_ret = !entry.path;
    if (!status && entry.path) {
        set_path(item, entry.path, entry.reason);
        item->in_tar = true;
        item->bytes = entry.bytes;
        item->modified_ns = entry.modified_ns;
    }
    return status;
}

/* Fills the name below the destination: the label's folder first, instead of those that the set had. */
static void fill_name(const ResizeSource *source, ResizeItem *item)
{
    const char *label = source->options->labels ? labels_find(source->options->labels, item->path) : NULL;
    if (!source->options->labels) {
        memcpy(item->name, item->path, strlen(item->path) + 1);
    } else if (label) {
        const char *slash = strrchr(item->path, '/');
        int length = snprintf(item->name, sizeof item->name, "%s/%s", label, slash ? slash + 1 : item->path);
        if (length < 0 || (size_t)length >= sizeof item->name)
            (void)snprintf(item->reason, sizeof item->reason, "its path with the label would be too long");
    } else {
        item->is_unplaced = true;
        if (image_name_is_image(item->path))
            (void)snprintf(item->reason, sizeof item->reason, "has no label in the file of labels");
    }
}

FshStatus resize_source_next(ResizeSource *source, ResizeItem *item, bool *end_ret, FshError *error)
{
    item->path[0] = item->name[0] = item->partner[0] = item->reason[0] = '\0';
    item->is_second_side = item->is_outside = item->is_unplaced = item->in_tar = item->is_unread = false;
    item->bytes = 0;
    *end_ret = false;
    FshStatus status = next_path(source, item, end_ret, error);
    if (status || *end_ret || item->reason[0])
        return status;
    if (source->options->sides[0][0])
        fill_pair(source, item);
    if (!item->reason[0])
        fill_name(source, item);
    return FSH_OK;
}

FshStatus resize_source_load(ResizeSource *source, ResizeItem *item, uint64_t most, FshError *error)
{
    FshError reason = {0};
    FshStatus status = tar_reader_content(source->tar, &item->content, most, &reason);
    if (status == FSH_ERR_MEMORY || status == FSH_ERR_INTERRUPTED) {
        *error = reason;
        return status;
    }
    if (status)
        (void)snprintf(item->reason, sizeof item->reason, "%.*s", RESIZE_REASON_BYTES - 1, reason.message);
    item->is_unread = status == FSH_ERR_SYSTEM;
    return FSH_OK;
}

/* ---- about the source ---- */

bool resize_source_is_at_hand(const ResizeSource *source)
{
    return source->walk || source->list_extent;
}

bool resize_source_is_sorted(const ResizeSource *source)
{
    return source->walk && !source->options->labels;
}

void resize_source_position(const ResizeSource *source, uint64_t *position_ret, uint64_t *extent_ret)
{
    *position_ret = *extent_ret = 0;
    if (source->tar) {
        tar_reader_position(source->tar, position_ret, extent_ret);
    } else if (source->list && source->list_extent) {
        off_t position = ftello(source->list);
        *position_ret = position > 0 ? (uint64_t)position : 0;
        *extent_ret = source->list_extent;
    }
}

uint64_t resize_source_hidden_count(const ResizeSource *source)
{
    return source->walk  ? walk_hidden_count(source->walk)
           : source->tar ? tar_reader_hidden_count(source->tar)
                         : 0;
}

/* ---- pairs ---- */

FshStatus resize_source_partner(const char *root, const ResizeItem *item, char partner[PATH_MAX],
                                FshError *error)
{
    char path[PATH_MAX];
    memcpy(partner, item->partner, strlen(item->partner) + 1);
    FshStatus status = file_join(path, sizeof path, root, item->partner, error);
    struct stat partner_file;
    if (status)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "its partner's path would be too long");
    if (stat(path, &partner_file)) {
        if (errno != ENOENT && errno != ENOTDIR)
            return fsh_error_system(error, errno, "its partner %.300s cannot be read", partner);
    } else if (S_ISREG(partner_file.st_mode)) {
        return FSH_OK;
    }
    char *slash = strrchr(path, '/'), *wanted = strrchr(partner, '/') + 1; /* it lies in its side's folder */
    *slash = '\0';
    size_t folder_bytes = (size_t)(wanted - partner), stem = path_stem_bytes(wanted), found = 0;
    DIR *folder = NULL;
    status = folder_open(path, &folder, error);
    for (const struct dirent *entry = folder_next(folder, path, &status, error); entry;
         entry = folder_next(folder, path, &status, error)) {
        const char *name = entry->d_name;
        if (path_stem_bytes(name) != stem || strncmp(name, wanted, stem) != 0 || !image_name_is_image(name) ||
            folder_bytes + strlen(name) >= PATH_MAX || fstatat(dirfd(folder), name, &partner_file, 0) != 0 ||
            !S_ISREG(partner_file.st_mode))
            continue;
        if (found++ == 0)
            memcpy(wanted, name, strlen(name) + 1);
    }
    folder_close(folder);
    if (status || found == 1)
        return status;
    return found ? fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "has several partners: %.300s and others of that name", partner)
                 : fsh_error_set(error, FSH_ERR_NOT_FOUND, "has no partner %.300s", item->partner);
}
