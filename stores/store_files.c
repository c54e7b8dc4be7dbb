#include "stores/store_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/text.h"
#include "formats/brace.h"
#include "formats/container.h"
#include "formats/names.h"
#include "formats/shard.h"

enum { LOOKING_CONNECTIONS = 16 };

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

void store_files_free(StoreFiles *files)
{
    free(files->items);
    *files = (StoreFiles){0};
}

/* ---- files by themselves ---- */

/* Returns whether a name is of a file that is read by itself. */
static bool is_file_name(const char *name)
{
    static const char *const endings[] = {".tar",  ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz",
                                          ".tbz2", ".tar.xz", ".txz", ".tar.lz4", ".TAR",  ".fshard"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_has_suffix(name, endings[i]))
            return true;
    return false;
}

bool store_files_are_named(const char *address)
{
    return store_url_is(address) &&
           (is_file_name(address) || strchr(address, '{') != NULL || strstr(address, "::") != NULL);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)((found - digits) % 16) : -1;
}

/* Copies a name; of a web server's address its %XX become what they stand for, since they are encoded again
 * when the file is asked for. Returns false if it does not fit, or is no name of a file in a folder. */
static bool take_name(StoreFile *file, const char *text, bool encoded)
{
    size_t length = 0;
    for (const char *c = text; *c; c++) {
        const bool escape = encoded && *c == '%' && hex_digit(c[1]) >= 0 && hex_digit(c[2]) >= 0;
        const char byte = escape ? (char)(16 * hex_digit(c[1]) + hex_digit(c[2])) : *c;
        if (length + 1 >= sizeof file->name || (unsigned char)byte < ' ' || byte == '/')
            return false;
        file->name[length++] = byte;
        c += escape ? 2 : 0;
    }
    file->name[length] = '\0';
    return length && file->name[0] != '.';
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const StoreFile *)a)->name, ((const StoreFile *)b)->name);
}

/* Takes one of the addresses of a list. */
static FshStatus split_one(StoreFile *file, const char *path, const char *address, char *folder,
                           FshError *error)
{
    StoreUrl url;
    FshStatus status = store_url_parse(&url, path, error);
    if (status)
        return status;
    const char *slash = strrchr(url.text, '/');
    const int folder_bytes = (int)(slash - url.text);
    if (!is_file_name(url.text))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is no tar and no .fshard file", address, path);
    if (slash[-1] == '/' || !take_name(file, slash + 1, url.kind == STORE_HTTP))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: names no file in a folder", path);
    if (*folder && ((size_t)folder_bytes != strlen(folder) || strncmp(folder, url.text, strlen(folder)) != 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: the files of a list are in one folder, and '%s' is in another than '%s'",
                             address, path, folder);
    (void)snprintf(folder, STORE_URL_BYTES, "%.*s", folder_bytes, url.text);
    return FSH_OK;
}

FshStatus store_files_split(StoreFiles *files, const char *address, char folder[STORE_URL_BYTES],
                            FshError *error)
{
    char **paths = NULL;
    *folder = '\0';
    *files = (StoreFiles){0};
    FshStatus status = fsh_brace_expand(address, &paths, &files->count, error);
    if (!status && !(files->items = calloc(files->count + 1, sizeof *files->items)))
        status = out_of_memory(error);
    for (size_t i = 0; i < files->count && !status; i++)
        status = split_one(&files->items[i], paths[i], address, folder, error);
    fsh_names_free(paths, files->count);
    if (!status)
        qsort(files->items, files->count, sizeof *files->items, compare_names);
    for (size_t i = 1; i < files->count && !status; i++)
        if (strcmp(files->items[i - 1].name, files->items[i].name) == 0)
            status =
                fsh_error_set(error, FSH_ERR_USAGE, "%s: names '%s' twice", address, files->items[i].name);
    if (!status && !files->count)
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: names no file", address);
    return status;
}

/* Finds the folder of an address, and the files where it names some. */
static bool find_place(const char *address, StoreFiles *files, char folder[STORE_URL_BYTES])
{
    StoreUrl url;
    *files = (StoreFiles){0};
    if (store_files_are_named(address))
        return store_files_split(files, address, folder, NULL) == FSH_OK;
    if (!store_url_is(address) || store_url_parse(&url, address, NULL))
        return false;
    (void)snprintf(folder, STORE_URL_BYTES, "%s", url.text);
    return true;
}

bool store_files_meet(const char *from, const char *to)
{
    char from_folder[STORE_URL_BYTES], to_folder[STORE_URL_BYTES];
    StoreFiles from_files = {0}, to_files = {0};
    bool meet = find_place(from, &from_files, from_folder) && find_place(to, &to_files, to_folder) &&
                strcmp(from_folder, to_folder) == 0;
    if (meet && from_files.count && to_files.count) {
        meet = false;
        for (size_t i = 0; i < from_files.count; i++)
            for (size_t j = 0; j < to_files.count; j++)
                meet = meet || compare_names(&from_files.items[i], &to_files.items[j]) == 0;
    }
    store_files_free(&from_files);
    store_files_free(&to_files);
    return meet;
}

/* ---- what the server says of them ---- */

typedef struct Looking {
    StoreFiles *files;
    const StoreSite *site;
    const StorePatience *patience;
    StoreClient clients[LOOKING_CONNECTIONS];
    _Atomic bool whole; /* some file came as a whole: the server gives no parts */
} Looking;

static FshStatus look_at(uint64_t item, int thread, void *context, FshError *error)
{
    Looking *looking = context;
    StoreFile *file = &looking->files->items[item];
    StoreClient *client = &looking->clients[thread];
    StoreLook look;
    FshStatus status =
        client->connection ? FSH_OK : store_client_open(client, looking->site, looking->patience, error);
    if (!status)
        status = store_look(client, file->name, &look, error);
    if (status)
        return status;
    if (look.bytes == UINT64_MAX)
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s/%s: the server does not say how long it is",
                             looking->site->url.text, file->name);
    file->bytes = look.bytes;
    memcpy(file->etag, look.etag, sizeof file->etag);
    if (!look.parts)
        looking->whole = true;
    return FSH_OK;
}

FshStatus store_files_look(StoreFiles *files, const StoreSite *site, const StorePatience *patience,
                           FshError *error)
{
    Looking looking = {.files = files, .site = site, .patience = patience};
    const int jobs = files->count < LOOKING_CONNECTIONS ? (int)files->count : LOOKING_CONNECTIONS;
    const FshStatus status = pool_run(jobs, files->count, look_at, &looking, error);
    for (int i = 0; i < LOOKING_CONNECTIONS; i++)
        store_client_close(&looking.clients[i]);
    files->parts = !looking.whole;
    return status;
}

/* ---- those of a manifest ---- */

static FshStatus add_file(StoreFiles *files, const FshFileInfo *info, const char *name, const char *suffix,
                          FshError *error)
{
    StoreFile *file = &files->items[files->count];
    if ((size_t)snprintf(file->name, sizeof file->name, "%s%s", name, suffix) >= sizeof file->name)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: the name is too long", name);
    file->optional = !info;
    file->hashed = info != NULL;
    if (info) {
        file->bytes = info->bytes;
        file->hash = info->hash;
    }
    files->count++;
    return FSH_OK;
}

/* Adds a file that the manifest lists, and the index that stands beside it. */
static FshStatus add_listed(StoreFiles *files, const Container *container, const FshFileInfo *info,
                            FshError *error)
{
    char data[64] = "", stem[FSH_FILE_NAME_BYTES];
    if (container->data_name)
        (void)snprintf(data, sizeof data, "/%s", container->data_name);
    FshStatus status = add_file(files, info, info->name, data, error);
    if (!status && container_has(container, FSH_HAS_HASH)) /* a shard's is that of all before its footer */
        files->items[files->count - 1].unhashed_bytes =
            info->bytes < SHARD_FOOTER_BYTES ? info->bytes : SHARD_FOOTER_BYTES;
    if (status || !container->index_suffix)
        return status;
    (void)snprintf(stem, sizeof stem, "%.*s", (int)(strlen(info->name) - strlen(container->suffix)),
                   info->name);
    return add_file(files, NULL, stem, container->index_suffix, error);
}

FshStatus store_files_of_manifest(StoreFiles *files, const FshManifest *manifest, const char *address,
                                  FshError *error)
{
    const Container *container = fsh_container_find(manifest->container);
    size_t most = 1;
    FshStatus status = FSH_OK;
    *files = (StoreFiles){0};
    if (!container || container_has(container, CONTAINER_SIDES))
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "%s: is of %s, which are not read from servers; pack it as shards, or copy it here", address,
            fsh_container_noun(manifest->container, 2));
    for (size_t i = 0; i < manifest->split_count; i++)
        most += 2 * manifest->splits[i].file_count + 1;
    files->items = calloc(most, sizeof *files->items);
    if (!files->items)
        return out_of_memory(error);
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        for (size_t j = 0; j < split->file_count && !status; j++)
            status = add_listed(files, container, &split->files[j], error);
        if (!status && container->list_suffix)
            status = add_file(files, NULL, split->name, container->list_suffix, error);
    }
    return status;
}
