#include "common/walk.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/path.h"
#include "common/walk_internal.h"

/* The cursor goes depth first. A folder is read whole and sorted when it is entered, its folders as "name/",
 * which gives the byte order of whole paths: "a-b/x", "a.txt", "a/x". */

/* ---- names of one folder ---- */

typedef enum NameKind {
    NAME_FILE,
    NAME_FOLDER,
    NAME_LINK,          /* not followed yet */
    NAME_UNKNOWN,       /* the file system does not give it: stat is needed */
    NAME_LINKED_FOLDER, /* a link, followed */
    NAME_OTHER,         /* pipes, sockets, devices */
} NameKind;

typedef struct Name {
    uint64_t key; /* sorts most of them: eight bytes, from where the folder's names begin to differ */
    char *text;   /* followed by '/' if it is a folder's; text[-1] is its NameKind */
} Name;

/* A folder between the root and the current file. */
typedef struct Level {
    struct Level *above;
    dev_t device;
    ino_t inode;
    bool linked;        /* it, or a folder above it, was reached by a link */
    size_t full_length; /* of its own path in cursor->full */
    char *texts;        /* of all names: kind, name, NUL, and a byte for '/' */
    Name *names;
    size_t count, at;
} Level;

typedef struct FolderId {
    dev_t device;
    ino_t inode;
} FolderId;

struct WalkCursor {
    Level *top;
    size_t root_length; /* of the root in full; the relative path follows the next '/' */
    uint64_t hidden_count;
    FolderId *entered; /* by links in linked folders; sorted */
    size_t entered_count, entered_capacity;
    const char *avoided; /* a folder that is not entered; NULL: none */
    bool looked_at;      /* status is that of the last entry */
    struct stat status;
    char reason[WALK_REASON_BYTES];
    bool unread; /* as in WalkEntry */
    char full[WALK_FULL_BYTES];
};

bool walk_grow(void **items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = wanted > SIZE_MAX / item_bytes ? NULL : realloc(*items, wanted * item_bytes);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static FshStatus out_of_memory(WalkCursor *cursor, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%.*s: out of memory for the list of its files",
                         (int)cursor->root_length, cursor->full);
}

static FshStatus interrupted(WalkCursor *cursor, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_INTERRUPTED, "%.*s: interrupted while its files were listed",
                         (int)cursor->root_length, cursor->full);
}

static NameKind kind_of(const Name *name)
{
    return (NameKind)name->text[-1];
}

static NameKind kind_told(const struct dirent *entry)
{
    switch (entry->d_type) {
    case DT_REG:
        return NAME_FILE;
    case DT_DIR:
        return NAME_FOLDER;
    case DT_LNK:
        return NAME_LINK;
    case DT_UNKNOWN:
        return NAME_UNKNOWN;
    default:
        return NAME_OTHER;
    }
}

static int compare_names(const void *a, const void *b)
{
    const Name *first = a, *second = b;
    if (first->key != second->key)
        return first->key < second->key ? -1 : 1;
    return strcmp(first->text, second->text);
}

enum { MANY_NAMES = 1000 }; /* with fewer qsort is as fast */

/* Sorts by keys alone, a byte at a time from the last, without bytes that all keys share: a folder of a
 * million files waits for this before its first file. Returns false without memory. */
static bool sort_by_keys(Name *names, size_t count)
{
    enum { BYTES = sizeof names->key, VALUES = 256 };
    size_t(*starts)[VALUES] = calloc(BYTES, sizeof *starts);
    Name *other = malloc(count * sizeof *other), *from = names, *to = other;
    bool done = starts && other;
    for (size_t i = 0; done && i < count; i++)
        for (size_t byte = 0; byte < BYTES; byte++)
            starts[byte][names[i].key >> (8 * byte) & 0xff]++;
    for (size_t byte = 0; done && byte < BYTES; byte++) {
        size_t *start = starts[byte], sum = 0;
        if (start[names[0].key >> (8 * byte) & 0xff] == count)
            continue;
        for (size_t value = 0; value < VALUES; value++) {
            size_t here = start[value];
            start[value] = sum;
            sum += here;
        }
        for (size_t i = 0; i < count; i++)
            to[start[from[i].key >> (8 * byte) & 0xff]++] = from[i];
        Name *swapped = from;
        from = to;
        to = swapped;
    }
    if (done && from != names)
        memcpy(names, from, count * sizeof *names);
    free(other);
    free(starts);
    return done;
}

static void sort_names(Level *level)
{
    size_t same = level->count ? strlen(level->names[0].text) : 0;
    for (size_t i = 1; i < level->count; i++) {
        size_t at = 0;
        while (at < same && level->names[i].text[at] == level->names[0].text[at])
            at++;
        same = at;
    }
    for (size_t i = 0; i < level->count; i++) {
        const unsigned char *text = (const unsigned char *)level->names[i].text + same;
        uint64_t key = 0;
        for (size_t at = 0; at < sizeof key; at++) {
            key = key << 8 | *text;
            text += *text != '\0';
        }
        level->names[i].key = key;
    }
    if (level->count < MANY_NAMES || !sort_by_keys(level->names, level->count)) {
        qsort(level->names, level->count, sizeof *level->names, compare_names);
        return;
    }
    for (size_t i = 0, end; i < level->count; i = end) {
        for (end = i + 1; end < level->count && level->names[end].key == level->names[i].key; end++)
            ;
        if (end - i > 1)
            qsort(level->names + i, end - i, sizeof *level->names, compare_names);
    }
}

/* Appends the name to the level's path. Returns false if it is longer than the system allows. */
static bool set_path(WalkCursor *cursor, const Level *level, const char *text)
{
    size_t length = strlen(text);
    if (length && text[length - 1] == '/')
        length--;
    char *end = cursor->full + level->full_length;
    *end++ = '/';
    memcpy(end, text, length);
    end[length] = '\0';
    return (size_t)(end - cursor->full) + length < PATH_MAX;
}

/* Follows a link, and finds out the kind if the file system did not give it. Returns false, with errno, if
 * stat fails. */
static bool look(WalkCursor *cursor, Name *name)
{
    NameKind kind = kind_of(name);
    if (stat(cursor->full, &cursor->status))
        return false;
    cursor->looked_at = true;
    NameKind found = S_ISREG(cursor->status.st_mode) ? NAME_FILE : NAME_OTHER;
    if (S_ISDIR(cursor->status.st_mode)) {
        struct stat itself;
        bool linked = kind == NAME_LINK || lstat(cursor->full, &itself) || S_ISLNK(itself.st_mode);
        found = linked ? NAME_LINKED_FOLDER : NAME_FOLDER;
    }
    name->text[-1] = (char)found;
    return true;
}

/* Follows the links that sorting needs. Others are followed when their turn comes, since a folder may have a
 * million. A link must be followed if another name begins with its name and a byte below '/': it sorts before
 * "a-b", or after it as "a/". */
static void look_where_the_order_asks(WalkCursor *cursor, Level *level)
{
    bool changed = false;
    for (size_t i = 0; i + 1 < level->count; i++) {
        Name *name = &level->names[i];
        if (kind_of(name) != NAME_LINK && kind_of(name) != NAME_UNKNOWN)
            continue;
        size_t length = strlen(name->text);
        const char *next = level->names[i + 1].text;
        if (strncmp(next, name->text, length) != 0 || (unsigned char)next[length] >= '/' ||
            !set_path(cursor, level, name->text) || !look(cursor, name))
            continue;
        if (kind_of(name) == NAME_FOLDER || kind_of(name) == NAME_LINKED_FOLDER) {
            memcpy(name->text + length, "/", 2);
            changed = true;
        }
    }
    if (changed)
        sort_names(level);
    cursor->looked_at = false;
    cursor->full[level->full_length] = '\0';
}

/* ---- a folder ---- */

static void free_level(Level *level)
{
    free(level->names);
    free(level->texts);
    free(level);
}

/* Reads all names except hidden ones into level. Sets *read_errno to the reason if some are missing, else to
 * 0. */
static FshStatus read_names(WalkCursor *cursor, Level *level, DIR *entries, int *read_errno, FshError *error)
{
    size_t capacity = 0, used = 0, count = 0;
    for (;;) {
        if (interrupt_requested())
            return interrupted(cursor, error);
        errno = 0;
        const struct dirent *entry = readdir(entries);
        if (!entry)
            break;
        const char *name = entry->d_name;
        if (name[0] == '.') {
            cursor->hidden_count += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
            continue;
        }
        size_t length = strlen(name);
        if (capacity - used < length + 3) {
            capacity = capacity ? capacity * 2 : 4096;
            char *grown = realloc(level->texts, capacity);
            if (!grown)
                return out_of_memory(cursor, error);
            level->texts = grown;
        }
        NameKind kind = kind_told(entry);
        char *text = level->texts + used;
        *text++ = (char)kind;
        memcpy(text, name, length);
        text[length] = kind == NAME_FOLDER ? '/' : '\0';
        text[length + 1] = '\0';
        used += length + 3;
        count++;
    }
    *read_errno = errno;
    level->names = malloc((count ? count : 1) * sizeof *level->names);
    if (!level->names)
        return out_of_memory(cursor, error);
    level->count = count;
    char *text = level->texts;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(text + 1);
        level->names[i].text = text + 1;
        text += 1 + length + (text[length] == '/' ? 1 : 2);
    }
    sort_names(level);
    look_where_the_order_asks(cursor, level);
    return FSH_OK;
}

const char *walk_reason(char *buffer, const char *what, int system_errno)
{
    char text[128];
    (void)snprintf(buffer, WALK_REASON_BYTES, "%s%s%s", what, system_errno ? ": " : "",
                   system_errno ? strerror_r(system_errno, text, sizeof text) : "");
    return buffer;
}

bool walk_is_passing(int system_errno)
{
    return system_errno && system_errno != ENAMETOOLONG && system_errno != ELOOP;
}

static void set_reason(WalkCursor *cursor, const char *what, int system_errno)
{
    (void)walk_reason(cursor->reason, what, system_errno);
    cursor->unread = walk_is_passing(system_errno);
}

static int compare_ids(const FolderId *a, const FolderId *b)
{
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* Adds a folder to those entered. Returns false with *failed false if it is there already. */
static bool add_entered(WalkCursor *cursor, const FolderId *id, bool *failed)
{
    size_t low = 0, high = cursor->entered_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_ids(&cursor->entered[middle], id);
        if (!order)
            return false;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *failed = !walk_grow((void **)&cursor->entered, cursor->entered_count, &cursor->entered_capacity,
                         sizeof *cursor->entered);
    if (*failed)
        return false;
    memmove(cursor->entered + low + 1, cursor->entered + low,
            (cursor->entered_count - low) * sizeof *cursor->entered);
    cursor->entered[low] = *id;
    cursor->entered_count++;
    return true;
}

void walk_avoid(WalkCursor *cursor, const char *folder)
{
    cursor->avoided = folder;
}

/* Returns whether cursor->full, reached by a link, lies in the avoided folder. */
static bool is_avoided(const WalkCursor *cursor)
{
    char avoided[PATH_MAX], found[PATH_MAX];
    return cursor->avoided && realpath(cursor->avoided, avoided) && realpath(cursor->full, found) &&
           path_lies_in(found, avoided);
}

static const char avoided_reason[] = "a link leads here, into the destination; not followed";

/* Returns whether the folder may be entered; else sets *why. */
static bool may_enter(WalkCursor *cursor, const Level *level, bool by_link, const char **why, bool *failed)
{
    for (const Level *above = level->above; above; above = above->above)
        if (above->device == level->device && above->inode == level->inode) {
            *why = "leads back to a folder above it; not entered again";
            return false;
        }
    if (level->linked && is_avoided(cursor)) {
        *why = avoided_reason;
        return false;
    }
    /* Folders full of links to each other have a path for each order of the links: without this bound the
     * walk would not end. */
    if (by_link && level->above && level->above->linked) {
        *why = "a link in a linked folder, to one entered so before; not entered again";
        return add_entered(cursor, &(FolderId){level->device, level->inode}, failed);
    }
    return true;
}

/* Makes the folder at cursor->full the top, or sets the reason, or both if its listing breaks off.
 * *system_errno is set to the system's error, if there was one. */
static FshStatus enter(WalkCursor *cursor, bool by_link, int *system_errno, FshError *error)
{
    FshStatus status = FSH_OK;
    struct stat found;
    bool failed = false;
    Level *level = NULL;
    DIR *entries = opendir(cursor->full);
    if (!entries || fstat(dirfd(entries), &found)) {
        *system_errno = errno;
        set_reason(cursor, stat(cursor->full, &found) ? "cannot be read" : "cannot read the folder",
                   *system_errno);
        goto done;
    }
    level = malloc(sizeof *level);
    if (!level) {
        status = out_of_memory(cursor, error);
        goto done;
    }
    *level = (Level){.above = cursor->top,
                     .device = found.st_dev,
                     .inode = found.st_ino,
                     .linked = cursor->top && (by_link || cursor->top->linked),
                     .full_length = strlen(cursor->full)};
    const char *why = NULL;
    if (!may_enter(cursor, level, by_link, &why, &failed)) {
        if (failed)
            status = out_of_memory(cursor, error);
        else
            set_reason(cursor, why, 0);
        goto done;
    }
    status = read_names(cursor, level, entries, system_errno, error);
    if (status)
        goto done;
    if (*system_errno)
        set_reason(cursor, "cannot read the folder", *system_errno);
    cursor->top = level;
    level = NULL;
done:
    if (level)
        free_level(level);
    if (entries)
        (void)closedir(entries);
    return status;
}

/* ---- the cursor ---- */

FshStatus walk_open(WalkCursor **cursor_ret, const char *root, FshError *error)
{
    *cursor_ret = NULL;
    struct stat found;
    if (stat(root, &found))
        return fsh_error_system(error, errno, "%s: cannot read the folder", root);
    if (!S_ISDIR(found.st_mode))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: is no folder", root);
    WalkCursor *cursor = calloc(1, sizeof *cursor);
    if (!cursor)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for the list of its files", root);
    cursor->root_length = strlen(root); /* below PATH_MAX, since stat accepted it */
    memcpy(cursor->full, root, cursor->root_length);
    int system_errno = 0;
    FshStatus status = enter(cursor, false, &system_errno, error);
    if (!status && system_errno)
        status = fsh_error_system(error, system_errno, "%s: cannot read the folder", root);
    if (status)
        walk_close(&cursor);
    *cursor_ret = cursor;
    return status;
}

/* Takes the next file or problem of the top folder. If it is a folder, that becomes the top, and *found_ret
 * is set to false. */
static FshStatus step(WalkCursor *cursor, bool *found_ret, FshError *error)
{
    Level *level = cursor->top;
    Name *name = &level->names[level->at++];
    *found_ret = true;
    if (!set_path(cursor, level, name->text)) {
        set_reason(cursor, "cannot be read", ENAMETOOLONG);
        return FSH_OK;
    }
    if ((kind_of(name) == NAME_LINK || kind_of(name) == NAME_UNKNOWN) && !look(cursor, name)) {
        int failure = errno;
        struct stat itself;
        bool dangling = failure == ENOENT && lstat(cursor->full, &itself) == 0 && S_ISLNK(itself.st_mode);
        set_reason(cursor, dangling ? "link to nothing" : "cannot be read", dangling ? 0 : failure);
        return FSH_OK;
    }
    NameKind kind = kind_of(name);
    if (kind == NAME_OTHER) {
        set_reason(cursor, "is no regular file", 0);
    } else if (kind == NAME_FILE && cursor->looked_at && is_avoided(cursor)) {
        set_reason(cursor, avoided_reason, 0);
    } else if (kind != NAME_FILE) {
        int system_errno = 0;
        FshStatus status = enter(cursor, kind == NAME_LINKED_FOLDER, &system_errno, error);
        *found_ret = cursor->reason[0] != '\0';
        return status;
    }
    return FSH_OK;
}

FshStatus walk_next(WalkCursor *cursor, WalkEntry *entry, FshError *error)
{
    *entry = (WalkEntry){0};
    for (;;) {
        cursor->reason[0] = '\0';
        cursor->looked_at = false;
        if (interrupt_requested())
            return interrupted(cursor, error);
        Level *level = cursor->top;
        if (!level)
            return FSH_OK;
        if (level->at == level->count) {
            cursor->top = level->above;
            free_level(level);
            continue;
        }
        bool found = false;
        FshStatus status = step(cursor, &found, error);
        if (status)
            return status;
        if (found) {
            entry->path = cursor->full + cursor->root_length + 1;
            entry->reason = cursor->reason[0] ? cursor->reason : NULL;
            entry->unread = entry->reason && cursor->unread;
            entry->looked_at = cursor->looked_at && !entry->reason;
            if (entry->looked_at) {
                entry->bytes = (uint64_t)cursor->status.st_size;
                entry->modified_ns = file_time_ns(cursor->status.st_mtim);
            }
            return FSH_OK;
        }
    }
}

uint64_t walk_hidden_count(const WalkCursor *cursor)
{
    return cursor->hidden_count;
}

void walk_close(WalkCursor **cursor)
{
    if (!*cursor)
        return;
    while ((*cursor)->top) {
        Level *above = (*cursor)->top->above;
        free_level((*cursor)->top);
        (*cursor)->top = above;
    }
    free((*cursor)->entered);
    free(*cursor);
    *cursor = NULL;
}
