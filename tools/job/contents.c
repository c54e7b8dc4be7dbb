#include "tools/job/contents.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/json_text.h"
#include "common/text.h"
#include "formats/fshard.h"
#include "formats/manifest_lock.h"
#include "formats/source_list.h"

/* ---- by name ---- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Returns the length of the output name that text begins with, or 0. */
static size_t output_name_bytes(const char *text)
{
    for (size_t split = 0; split < FSH_SPLIT_COUNT; split++) {
        size_t length = strlen(fsh_split_name(split));
        if (strncmp(text, fsh_split_name(split), length) != 0)
            continue;
        const char *rest = text + length;
        static const char *const folders[] = {".lmdb", ".basicsr"};
        for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
            if (begins_with(rest, folders[i]))
                return length + strlen(folders[i]);
        }
        static const char *const forms[] = {"-#####-of-#####.fshard", "-u#####-#####-of-#####.fshard",
                                            "-######.tar", "-######.idx"};
        for (size_t form = 0; form < sizeof forms / sizeof forms[0]; form++) {
            const char *at = forms[form];
            size_t i = 0;
            while (at[i] && (at[i] == '#' ? rest[i] >= '0' && rest[i] <= '9' : rest[i] == at[i]))
                i++;
            if (!at[i])
                return length + i;
        }
    }
    return 0;
}

/* Returns whether text is a list's name: "train-wids.json". */
static bool is_wids_name(const char *text)
{
    for (size_t split = 0; split < FSH_SPLIT_COUNT; split++) {
        if (begins_with(text, fsh_split_name(split)) &&
            begins_with(text + strlen(fsh_split_name(split)), "-wids.json"))
            return true;
    }
    return false;
}

/* Returns one of CONTENTS_*, or 0 for what fpack never calls a file. */
static unsigned kind_of(const char *name)
{
    if (strcmp(name, FSH_MANIFEST_NAME) == 0)
        return CONTENTS_MANIFEST;
    if (strcmp(name, CONTENTS_PARTIAL_NAME) == 0)
        return CONTENTS_PARTIAL;
    if (strcmp(name, CONTENTS_BLUEPRINT_NAME) == 0 || begins_with(name, CONTENTS_PART_NAME))
        return CONTENTS_PROGRESS;
    if (strcmp(name, CONTENTS_UPDATE_NAME) == 0 || manifest_is_old_name(name))
        return CONTENTS_UPDATE;
    if (is_wids_name(name))
        return CONTENTS_LISTS;
    size_t length = output_name_bytes(name);
    if (length && name[length] == '\0')
        return CONTENTS_OUTPUTS;
    if (name[0] != '.')
        return 0;
    length = output_name_bytes(name + 1);
    if (length && strcmp(name + 1 + length, ".json") == 0)
        return CONTENTS_PROGRESS;
    if (length && strcmp(name + 1 + length, FSH_SOURCES_SUFFIX) == 0)
        return CONTENTS_SOURCES;
    /* Temporary names: a dot, what it will be called, ".tmp-" and numbers. */
    const char *mark = strstr(name, ".tmp-");
    if (!mark)
        return 0;
    const char *base = name + strspn(name, ".");
    bool ours = output_name_bytes(base) || is_wids_name(base) || begins_with(base, FSH_MANIFEST_NAME) ||
                begins_with(base, CONTENTS_BLUEPRINT_NAME + 1);
    return ours ? CONTENTS_TEMPORARY : 0;
}

bool contents_is_output(const char *name)
{
    return kind_of(name) == CONTENTS_OUTPUTS;
}

/* Returns whether an LMDB's folder may hold this name. lock.mdb is made by other readers, meta_info.txt is
 * BasicSR's, temporaries are left by a writer that was killed. */
static bool is_of_an_lmdb(const char *name)
{
    return strcmp(name, "data.mdb") == 0 || strcmp(name, "lock.mdb") == 0 ||
           strcmp(name, "meta_info.txt") == 0 || begins_with(name, ".data.mdb.tmp-") ||
           begins_with(name, ".meta_info.txt.tmp-");
}

/* Returns whether this is the folder of one side in BasicSR's layout: blurry.lmdb. */
static bool is_side(const char *path, const char *name)
{
    const size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".lmdb") == 0 && name[0] != '.' && file_is_folder(path);
}

/* ---- going through a folder ---- */

/* Calls visit with the path and the name of each entry until one fails. */
typedef FshStatus (*VisitEntry)(const char *path, const char *name, void *context, FshError *error);

static FshStatus each_entry(const char *folder, VisitEntry visit, void *context, FshError *error)
{
    DIR *stream = NULL;
    FshStatus status = folder_open(folder, &stream, error);
    for (const struct dirent *entry = folder_next(stream, folder, &status, error); entry;
         entry = folder_next(stream, folder, &status, error)) {
        char path[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        status = file_join(path, sizeof path, folder, entry->d_name, error);
        if (!status)
            status = visit(path, entry->d_name, context, error);
    }
    folder_close(stream);
    return status;
}

/* ---- by content ---- */

/* What is known of the folder while its entries are looked at. */
typedef struct Look {
    Contents *contents;
    FshManifest manifest; /* empty where there is none that can be read */
} Look;

static void set_foreign(Contents *contents, const char *folder, const char *name)
{
    (void)snprintf(contents->foreign, sizeof contents->foreign, "%s%s%s", folder, folder[0] ? "/" : "", name);
}

static bool is_listed(const FshManifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->split_count; i++) {
        for (size_t f = 0; f < manifest->splits[i].file_count; f++) {
            if (strcmp(manifest->splits[i].files[f].name, name) == 0)
                return true;
        }
    }
    return false;
}

static bool file_begins_with(const char *path, const char *text, size_t length)
{
    char bytes[32];
    FILE *stream = fopen(path, "re");
    size_t got = stream ? fread(bytes, 1, length, stream) : 0;
    if (stream)
        (void)fclose(stream);
    return got == length && memcmp(bytes, text, length) == 0;
}

/* Returns whether the first members of a tar are fpack's: one of them is a sample's .json, which names fpack.
 * A tar without members holds nothing. */
static bool is_our_tar(const char *path)
{
    enum {
        BLOCK_BYTES = 512,
        MEMBERS_MAX = 4 * FSH_FIELDS_MAX,
        NAME_BYTES = 100,
        SIZE_AT = 124,
        SIZE_DIGITS = 11
    };
    static const char ours[] = "{\"fshard\": ";
    char header[BLOCK_BYTES], content[sizeof ours - 1];
    bool found = false;
    FILE *stream = fopen(path, "re");
    for (int member = 0; stream && !found && member < MEMBERS_MAX; member++) {
        if (fread(header, 1, sizeof header, stream) != sizeof header)
            break;
        found = header[0] == '\0' && member == 0;
        header[SIZE_AT + SIZE_DIGITS] = '\0';
        const unsigned long long bytes = strtoull(header + SIZE_AT, NULL, 8);
        header[NAME_BYTES] = '\0';
        const char *dot = strrchr(header, '.');
        const off_t next = ftello(stream) + (off_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES);
        if (dot && strcmp(dot, ".json") == 0 && fread(content, 1, sizeof content, stream) == sizeof content)
            found = memcmp(content, ours, sizeof content) == 0;
        if (fseeko(stream, next, SEEK_SET))
            break;
    }
    if (stream)
        (void)fclose(stream);
    return found;
}

/* Returns whether the first bytes of a file are those of an output, of any version, whole or not. */
static bool is_output(const char *path, const char *name)
{
    static const char shard[] = "\x89"
                                "FSHARD\n"; /* fshard(5) */
    static const char index[] = "v1.2 ";
    const char *dot = strrchr(name, '.');
    if (strcmp(dot, ".tar") == 0)
        return is_our_tar(path);
    if (strcmp(dot, ".idx") == 0)
        return file_begins_with(path, index, sizeof index - 1);
    return file_begins_with(path, shard, sizeof shard - 1);
}

/* Notes what belongs to no LMDB, in its folder or in those of BasicSR's sides. */
static FshStatus visit_lmdb(const char *path, const char *name, void *context, FshError *error)
{
    char *foreign = context;
    if (is_side(path, name))
        return each_entry(path, visit_lmdb, foreign, error);
    if (!is_of_an_lmdb(name))
        (void)snprintf(foreign, NAME_MAX + 1, "%s", name);
    return FSH_OK;
}

/* Notes whether an LMDB is an output of fpack. One that was being written has no data.mdb yet: then there is
 * nothing to lose. Nobody but fpack calls a folder train.basicsr. */
static FshStatus look_at_lmdb(Contents *contents, const char *path, const char *name, bool listed,
                              FshError *error)
{
    char data[PATH_MAX], foreign[NAME_MAX + 1] = "";
    FshDataset *dataset = NULL;
    FshStatus status = each_entry(path, visit_lmdb, foreign, error);
    if (!status)
        status = file_join(data, sizeof data, path, "data.mdb", error);
    if (status)
        return status;
    if (foreign[0]) {
        set_foreign(contents, name, foreign);
    } else if (!listed && file_exists(data)) {
        if (fsh_open(&dataset, path, NULL))
            set_foreign(contents, "", name);
        fsh_close(&dataset);
    }
    return FSH_OK;
}

/* Returns whether a file is a manifest. One that cannot be read may come from a newer version, and says
 * itself that it is ours. */
static bool is_manifest(const char *path)
{
    enum { MANIFEST_BYTES_MAX = 64 << 20 }; /* fshard(5) */
    json_t *object = json_file_load(path, MANIFEST_BYTES_MAX);
    const char *format = json_string_value(json_object_get(object, "format"));
    bool ours = format && strcmp(format, "fshard") == 0;
    json_decref(object);
    return ours;
}

static void read_id(const char *path, char id[33])
{
    FILE *stream = fopen(path, "re");
    size_t length = 0;
    if (stream) {
        length = fread(id, 1, 32, stream);
        (void)fclose(stream);
    }
    id[length] = '\0';
}

static FshStatus look_at_entry(const char *path, const char *name, void *context, FshError *error)
{
    const Look *look = context;
    Contents *contents = look->contents;
    const unsigned kind = kind_of(name);
    bool ours = kind != 0;
    if (kind == CONTENTS_MANIFEST) {
        contents->finished = true;
        ours = is_manifest(path);
    } else if (kind == CONTENTS_PARTIAL) {
        contents->unfinished = true;
        read_id(path, contents->id);
    } else if (kind == CONTENTS_OUTPUTS) {
        const bool listed = is_listed(&look->manifest, name);
        contents->outputs = true;
        if (file_is_folder(path))
            return look_at_lmdb(contents, path, name, listed, error);
        ours = listed || is_output(path, name);
        contents->shards = contents->shards || text_has_suffix(name, ".fshard");
    }
    if (!ours)
        set_foreign(contents, "", name);
    return FSH_OK;
}

FshStatus contents_look(const char *folder, Contents *contents, FshError *error)
{
    struct stat facts;
    *contents = (Contents){0};
    if (stat(folder, &facts))
        return errno == ENOENT ? FSH_OK
                               : fsh_error_system(error, errno, "%s: cannot open the folder", folder);
    if (!S_ISDIR(facts.st_mode))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: is there and is no folder", folder);
    contents->exists = true;
    Look look = {.contents = contents};
    (void)fsh_manifest_load(&look.manifest, folder, NULL); /* what is no manifest lists nothing */
    FshStatus status = each_entry(folder, look_at_entry, &look, error);
    fsh_manifest_free(&look.manifest);
    contents->unfinished = !contents->finished && (contents->unfinished || contents->outputs);
    return status;
}

/* ---- removing ---- */

static FshStatus refuse_foreign(const char *path, const char *name, void *context, FshError *error)
{
    if (is_side(path, name))
        return each_entry(path, refuse_foreign, context, error);
    return is_of_an_lmdb(name)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_EXISTS, "%s: is not fpack's; remove it first", path);
}

static FshStatus remove_all_of(const char *path, FshError *error);

static FshStatus remove_file(const char *path, const char *name, void *context, FshError *error)
{
    (void)context;
    if (is_side(path, name))
        return remove_all_of(path, error);
    return unlink(path) && errno != ENOENT ? fsh_error_system(error, errno, "%s: cannot remove", path)
                                           : FSH_OK;
}

/* Removes a folder in which refuse_foreign has found nothing. */
static FshStatus remove_all_of(const char *path, FshError *error)
{
    FshStatus status = each_entry(path, remove_file, NULL, error);
    if (!status && rmdir(path))
        status = fsh_error_system(error, errno, "%s: cannot remove", path);
    return status;
}

/* Removes a file, or an LMDB's folder with all that it may hold; nothing of it, if something else is in it.
 */
static FshStatus remove_entry(const char *path, FshError *error)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return FSH_OK;
    if (errno != EISDIR && errno != EPERM)
        return fsh_error_system(error, errno, "%s: cannot remove", path);
    FshStatus status = each_entry(path, refuse_foreign, NULL, error);
    return status ? status : remove_all_of(path, error);
}

FshStatus contents_remove_update(const char *path, FshError *error)
{
    if (!file_exists(path))
        return FSH_OK;
    FshStatus status = contents_remove(path, CONTENTS_DATASET | CONTENTS_PARTIAL, error);
    if (!status && rmdir(path))
        status = fsh_error_system(error, errno, "%s: cannot remove", path);
    return status;
}

static FshStatus remove_if_in_set(const char *path, const char *name, void *context, FshError *error)
{
    const unsigned *set = context;
    if (!(kind_of(name) & *set))
        return FSH_OK;
    return strcmp(name, CONTENTS_UPDATE_NAME) == 0 ? contents_remove_update(path, error)
                                                   : remove_entry(path, error);
}

FshStatus contents_remove(const char *folder, unsigned set, FshError *error)
{
    char manifest[PATH_MAX];
    FshStatus status = FSH_OK;
    if (set & CONTENTS_MANIFEST) {
        status = file_join(manifest, sizeof manifest, folder, FSH_MANIFEST_NAME, error);
        if (!status)
            status = remove_entry(manifest, error);
    }
    return status ? status : each_entry(folder, remove_if_in_set, &set, error);
}
