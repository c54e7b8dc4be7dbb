/* Class folders that nobody has packed: CLASS/x.jpg below a folder, or below train, val and test in it.
 *
 * Classes are the names of the folders, in byte order, empty ones too; samples are the files below them whose
 * names are those of images, in byte order of their paths, as fpack packs them. Files of other names are
 * passed over, where fpack looks at their first bytes. No file is read before its sample is. Where fpack
 * would leave an image out, who decodes it hears why. Where fpack warns of images in folders beside those of
 * splits, they are refused: nothing here can warn. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/image_names.h"
#include "common/walk.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/names.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"

/* The name of a dataset's only file, which is the folder itself. */
static const char itself[] = ".";

/* ---- what is in a folder ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds a copy of name. FSH_ERR_MEMORY. */
static FshStatus add_name(char ***names, size_t *count, const char *name, FshError *error)
{
    char **grown = reallocarray(*names, *count + 1, sizeof *grown);
    *names = grown ? grown : *names;
    char *copy = grown ? strdup(name) : NULL;
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    grown[(*count)++] = copy;
    return FSH_OK;
}

/* Lists the folders directly in path, hidden ones left out, links followed, in byte order: *count_ret of
 * them. *names_ret is the caller's (fsh_names_free), also on failure. */
static FshStatus list_folders(const char *path, char ***names_ret, size_t *count_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    DIR *folder = opendir(path);
    *names_ret = NULL;
    *count_ret = 0;
    if (!folder)
        return fsh_error_system(error, errno, "%s: cannot be read", path);
    for (const struct dirent *entry; (entry = folder_next(folder, path, &status, error));) {
        char inside[PATH_MAX];
        if (entry->d_name[0] == '.' || entry->d_type == DT_REG)
            continue;
        status = file_join(inside, sizeof inside, path, entry->d_name, error);
        if (!status && (entry->d_type == DT_DIR || file_is_folder(inside)))
            status = add_name(names_ret, count_ret, entry->d_name, error);
    }
    folder_close(folder);
    if (*count_ret)
        qsort(*names_ret, *count_ret, sizeof **names_ret, compare_names);
    return status;
}

/* Goes on to the next file below path whose name is that of an image; inside: in a folder of path. *path_ret
 * is relative to path, the cursor's; NULL: the end. */
static FshStatus next_image(WalkCursor *cursor, const char *path, bool inside, const char **path_ret,
                            FshError *error)
{
    WalkEntry entry = {0};
    FshStatus status = FSH_OK;
    *path_ret = NULL;
    while (!status && !(status = walk_next(cursor, &entry, error)) && entry.path) {
        if (entry.reason && entry.unread)
            status = fsh_error_set(error, FSH_ERR_SYSTEM, "%s/%s: %s", path, entry.path, entry.reason);
        if (status ||
            (!entry.reason && (!inside || strchr(entry.path, '/')) && image_name_kind(entry.path))) {
            *path_ret = entry.path;
            break;
        }
    }
    return status;
}

/* ---- finding ---- */

/* Sets *found_ret to whether an image lies below path; inside: in a folder of path. */
static FshStatus look_for_image(const char *path, bool inside, bool *found_ret, FshError *error)
{
    WalkCursor *cursor = NULL;
    const char *image = NULL;
    FshStatus status = walk_open(&cursor, path, error);
    if (!status)
        status = next_image(cursor, path, inside, &image, error);
    walk_close(&cursor);
    *found_ret = image != NULL;
    return status;
}

/* The folders in a folder, and which of them hold splits. */
typedef struct Folders {
    const char *path;
    char **names;
    size_t count;
    const char *splits[FSH_SPLIT_COUNT]; /* of names: those with class folders; NULL: none */
} Folders;

/* Finds the folders of splits: those with folders of their own, for one of images is a class called so. */
static FshStatus find_splits(Folders *folders, FshError *error)
{
    const char *named[FSH_SPLIT_COUNT] = {NULL}, *twice[2] = {NULL};
    size_t twice_split = 0;
    bool any = false;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < folders->count && !status; i++) {
        char inside[PATH_MAX], **names = NULL;
        size_t count = 0;
        const char *name = folders->names[i];
        const size_t split = fsh_split_of_folder(name, strlen(name));
        if (split == FSH_SPLIT_COUNT)
            continue;
        status = file_join(inside, sizeof inside, folders->path, name, error);
        if (!status)
            status = list_folders(inside, &names, &count, error);
        fsh_names_free(names, count);
        if (named[split] && !twice[0]) {
            twice[0] = named[split];
            twice[1] = name;
            twice_split = split;
        }
        named[split] = name;
        any = any || count;
        folders->splits[split] = count ? name : folders->splits[split];
    }
    if (!status && any && twice[0])
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "%s: both '%s' and '%s' are there; keep one as the %s split", folders->path,
                               twice[0], twice[1], fsh_split_name(twice_split));
    return status;
}

/* Refuses the images in a folder that holds no split. split: the name of one that does. */
static FshStatus refuse_folder(const Folders *folders, const char *name, const char *path, const char *split,
                               FshError *error)
{
    const char *small = fsh_split_in_small_letters(name);
    if (fsh_split_of_folder(name, strlen(name)) < FSH_SPLIT_COUNT)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its images lie in no class folder, those of %s/ do; move them, or pack "
                             "with fpack",
                             path, split);
    if (small && !folders->splits[fsh_split_of_folder(small, strlen(small))])
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: its images lie beside %s/, in no split; if it is one, call the folder %s, in "
            "small letters",
            path, split, small);
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: its images lie beside %s/, in no split; move them, or pack with fpack", path,
                         split);
}

/* Refuses images in folders that hold no split, which nobody would miss. split: the name of one that does. */
static FshStatus refuse_beside(const Folders *folders, const char *split, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < folders->count && !status; i++) {
        char inside[PATH_MAX];
        const char *name = folders->names[i];
        const size_t number = fsh_split_of_folder(name, strlen(name));
        bool found = false;
        if (number < FSH_SPLIT_COUNT && folders->splits[number] == name)
            continue;
        status = file_join(inside, sizeof inside, folders->path, name, error);
        if (!status)
            status = look_for_image(inside, false, &found, error);
        if (!status && found)
            status = refuse_folder(folders, name, inside, split, error);
    }
    return status;
}

static FshStatus add_folders(Collection *collection, const Folders *folders, FshError *error)
{
    const char *any = NULL;
    FshStatus status = FSH_OK;
    for (size_t split = 0; split < FSH_SPLIT_COUNT && !status; split++) {
        if (!folders->splits[split])
            continue;
        any = any ? any : folders->splits[split];
        status = fsh_collection_add(collection, folders->path, folders->splits[split], fsh_split_name(split),
                                    error);
    }
    if (status)
        return status;
    return any ? refuse_beside(folders, any, error)
               : fsh_collection_add(collection, folders->path, itself, fsh_split_name(0), error);
}

static FshStatus find(Collection *collection, const char *path, FshError *error)
{
    Folders folders = {.path = path};
    bool found = false;
    FshStatus status = list_folders(path, &folders.names, &folders.count, error);
    if (!status && folders.count)
        status = look_for_image(path, true, &found, error);
    if (!status && found)
        status = find_splits(&folders, error);
    if (!status && found)
        status = add_folders(collection, &folders, error);
    fsh_names_free(folders.names, folders.count);
    return status;
}

/* ---- opening ---- */

/* Adds the image at path, which begins with its class, under its path in the dataset's folder. */
static FshStatus add_image(SampleTable *table, const char *prefix, const char *path, FshError *error)
{
    char key[PATH_MAX], class_name[NAME_MAX + 1];
    const char *wanted = class_name;
    (void)snprintf(class_name, sizeof class_name, "%.*s", (int)strcspn(path, "/"), path);
    char **found = table->class_name_count ? bsearch(&wanted, table->class_names, table->class_name_count,
                                                     sizeof *found, compare_names)
                                           : NULL;
    if (!found) /* made since the folders were listed */
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: its folder was made just now; try again", path);
    const int length = snprintf(key, sizeof key, "%s%s", prefix, path);
    if (length < 0 || (size_t)length >= sizeof key)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    FshStatus status = fsh_table_add(table, key, (size_t)length, error);
    return status ? status
                  : fsh_table_label(table, table->sample_count - 1, found - table->class_names, error);
}

static FshStatus fill_table(SampleTable *table, const char *path, FshError *error)
{
    static const char field_name[] = "image";
    size_t name_bytes = 0;
    char prefix[NAME_MAX + 2] = "";
    WalkCursor *cursor = NULL;
    const char *name = fsh_path_name(path, &name_bytes), *image = NULL;
    if (strcmp(name, itself) != 0)
        (void)snprintf(prefix, sizeof prefix, "%.*s/", (int)name_bytes, name);
    *table = (SampleTable){.label_max = FSH_NO_LABEL, .names_are_labels = true};
    FshStatus status = fsh_table_name_field(table, field_name, strlen(field_name), error);
    if (!status)
        status = list_folders(path, &table->class_names, &table->class_name_count, error);
    if (!status)
        status = walk_open(&cursor, path, error);
    while (!status && !(status = next_image(cursor, path, true, &image, error)) && image)
        status = add_image(table, prefix, image, error);
    walk_close(&cursor);
    return status;
}

static FshStatus open_file(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    (void)request;
    const FshStatus status = fill_table(&file->table, path, error);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

const Container fsh_class_folder_container = {
    .id = FSH_CONTAINER_FILES,
    .name = "folder",
    .one = "folder",
    .many = "folders",
    .facts = FSH_HAS_FILES | FSH_HAS_CLASSES,
    .find = find,
    .open = open_file,
    .sample = fsh_files_sample,
    .verify = fsh_table_file_verify,
    .stretches = fsh_table_file_stretches,
};
