#include "stores/store_leftovers.h"

#include <stdio.h>
#include <string.h>

#include "formats/lmdb_reader.h"

enum { LEFTOVERS_BYTES_MAX = 64 << 20 };

static FshStatus take_names(void *context, uint64_t position, const void *bytes, size_t length,
                            FshError *error)
{
    StoreLeftovers *leftovers = context;
    if (position + length > LEFTOVERS_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             STORE_LEFTOVERS_NAME ": is too long; remove it there, and what it names");
    leftovers->names.length = (size_t)position;
    return buffer_append(&leftovers->names, bytes, length, error);
}

FshStatus store_leftovers_load(StoreLeftovers *leftovers, StoreClient *client, FshError *error)
{
    bool hidden = false, found = false;
    const StoreGet get = {.name = STORE_LEFTOVERS_NAME,
                          .optional = true,
                          .hidden_ret = &hidden,
                          .sink = take_names,
                          .context = leftovers};
    if (leftovers->loaded)
        return FSH_OK;
    FshStatus status = store_get(client, &get, &found, error);
    leftovers->loaded = !status;
    leftovers->there = found;
    if (!status && leftovers->names.length && leftovers->names.bytes[leftovers->names.length - 1] != '\n')
        status = buffer_append(&leftovers->names, "\n", 1, error);
    return status;
}

/* Returns whether a name is of a file that fpack sends: in the folder itself, or an LMDB's data. Whoever may
 * write the list shall not have other folders' files removed by it. */
static bool is_packed_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return name != slash && (!slash || strcmp(slash + 1, LMDB_DATA_NAME) == 0) && !strstr(name, "..") &&
           strcmp(name, FSH_MANIFEST_NAME) != 0;
}

/* Takes the next line; *at: where it begins, and then the next. Returns false at the end, or where a name is
 * none of a file here. */
static bool next_name(const StoreLeftovers *leftovers, size_t *at, char *name, size_t name_bytes)
{
    while (*at < leftovers->names.length) {
        const char *line = (const char *)leftovers->names.bytes + *at;
        const char *end = memchr(line, '\n', leftovers->names.length - *at);
        const size_t length = end ? (size_t)(end - line) : leftovers->names.length - *at;
        *at += length + 1;
        if (!length || length >= name_bytes || memchr(line, '\0', length))
            continue;
        memcpy(name, line, length);
        name[length] = '\0';
        if (is_packed_name(name))
            return true;
    }
    return false;
}

FshStatus store_leftovers_add(StoreLeftovers *leftovers, const char *name, FshError *error)
{
    char known[FSH_FILE_NAME_BYTES + 64];
    for (size_t at = 0; next_name(leftovers, &at, known, sizeof known);)
        if (strcmp(known, name) == 0)
            return FSH_OK;
    leftovers->changed = true;
    FshStatus status = buffer_append_text(&leftovers->names, name, error);
    return status ? status : buffer_append(&leftovers->names, "\n", 1, error);
}

FshStatus store_leftovers_add_files(StoreLeftovers *leftovers, const StoreFiles *files, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < files->count && !status; i++)
        status = store_leftovers_add(leftovers, files->items[i].name, error);
    return status;
}

FshStatus store_leftovers_save(StoreLeftovers *leftovers, StoreClient *client, FshError *error)
{
    if (!leftovers->changed)
        return FSH_OK;
    const FshStatus status = store_send(client, "PUT", STORE_LEFTOVERS_NAME, "", leftovers->names.bytes,
                                        leftovers->names.length, NULL, error);
    leftovers->changed = status != FSH_OK;
    leftovers->there = leftovers->there || !status;
    return status;
}

static bool stays(const StoreFiles *stay, const char *name)
{
    for (size_t i = 0; i < stay->count; i++)
        if (strcmp(stay->items[i].name, name) == 0)
            return true;
    return false;
}

void store_leftovers_remove(StoreLeftovers *leftovers, StoreClient *client, const StoreFiles *stay)
{
    char name[FSH_FILE_NAME_BYTES + 64];
    bool all = true;
    for (size_t at = 0; next_name(leftovers, &at, name, sizeof name);) {
        if (stays(stay, name))
            continue;
        const FshStatus status = store_send(client, "DELETE", name, "", NULL, 0, NULL, NULL);
        all = all && (!status || status == FSH_ERR_NOT_FOUND);
    }
    if (all && leftovers->there)
        (void)store_send(client, "DELETE", STORE_LEFTOVERS_NAME, "", NULL, 0, NULL, NULL);
}

void store_leftovers_free(StoreLeftovers *leftovers)
{
    buffer_free(&leftovers->names);
    *leftovers = (StoreLeftovers){0};
}
