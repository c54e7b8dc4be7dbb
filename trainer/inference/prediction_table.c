#include "trainer/inference/prediction_table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/file.h"
#include "common/text.h"

struct PredictionTable {
    char path[PATH_MAX], part[PATH_MAX];
    bool force, json, finished;
    int descriptor;
    size_t head_bytes;
    uint64_t row_count; /* rows of earlier runs; writes of this one */
    void *files;        /* files that have rows, tsearch's tree; owned */
};

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* ---- rows of earlier runs ---- */

/* Returns the end of the CSV row at `at`, and sets *cell_bytes_ret to the length of its first cell, still
 * quoted. Returns NULL if the row is cut off. */
static const char *csv_row_end(const char *at, const char *end, size_t *cell_bytes_ret)
{
    bool quoted = false, first = true;
    const char *begin = at;
    for (; at < end; at++) {
        quoted ^= *at == '"';
        if (quoted || (*at != ',' && *at != '\n'))
            continue;
        if (first)
            *cell_bytes_ret = (size_t)(at - begin);
        first = false;
        if (*at == '\n')
            return at + 1;
    }
    return NULL;
}

/* Returns the cell without its quotes; free it. NULL: no memory. */
static char *plain_cell(const char *cell, size_t bytes)
{
    const bool quoted = bytes >= 2 && cell[0] == '"';
    char *text = text_copy(cell + quoted, bytes - 2 * quoted), *to = text;
    for (const char *from = text; text && *from; from++) {
        from += quoted && from[0] == '"' && from[1] == '"';
        *to++ = *from;
    }
    if (text)
        *to = '\0';
    return text;
}

/* Returns the end of the row at `at`, and sets *file_ret to the name of its file; free it. Returns NULL if
 * the row is cut off or is not one of ours. */
static const char *take_row(const PredictionTable *table, const char *at, const char *end, char **file_ret)
{
    size_t bytes = 0;
    *file_ret = NULL;
    if (!table->json) {
        const char *next = csv_row_end(at, end, &bytes);
        *file_ret = next ? plain_cell(at, bytes) : NULL;
        return *file_ret ? next : NULL;
    }
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    json_t *object = newline ? json_loadb(at, (size_t)(newline - at), 0, NULL) : NULL;
    const char *file = json_string_value(json_object_get(object, "file"));
    *file_ret = file ? strdup(file) : NULL;
    json_decref(object);
    return *file_ret ? newline + 1 : NULL;
}

static FshStatus note_file(PredictionTable *table, char *file, FshError *error)
{
    char **found = tsearch(file, &table->files, compare);
    if (found && *found == file)
        return FSH_OK;
    free(file);
    return found ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", table->part);
}

/* Takes over the rows of an earlier run, except a last row that was cut off. */
static FshStatus take_rows(PredictionTable *table, const char *head, FshError *error)
{
    Buffer text = {0};
    FshStatus status = file_read(table->part, &text, error);
    const char *begin = (const char *)text.bytes, *end = begin + text.length, *at = begin;
    if (!status && text.length && text.length >= table->head_bytes &&
        memcmp(begin, head, table->head_bytes) == 0)
        at += table->head_bytes;
    else
        end = begin; /* begin anew */
    while (!status && at < end) {
        char *file = NULL;
        const char *next = take_row(table, at, end, &file);
        if (!next) {
            free(file);
            break;
        }
        status = note_file(table, file, error);
        table->row_count++;
        at = next;
    }
    const off_t kept = (off_t)(at - begin);
    if (!status && (ftruncate(table->descriptor, kept) || lseek(table->descriptor, kept, SEEK_SET) < 0))
        status = fsh_error_system(error, errno, "%s: cannot be cut to its whole rows", table->part);
    if (!status && kept == 0 && table->head_bytes) {
        status = prediction_table_write(table, head, table->head_bytes, error);
        table->row_count = 0;
    }
    buffer_free(&text);
    return status;
}

/* ---- opening and closing ---- */

static FshStatus name_part(PredictionTable *table, const char *identity, FshError *error)
{
    const char *slash = strrchr(table->path, '/');
    const int folder = slash ? (int)(slash - table->path) + 1 : 0;
    const int length =
        snprintf(table->part, sizeof table->part, "%.*s.%s.%016" PRIx64 ".part", folder, table->path,
                 table->path + folder, (uint64_t)XXH3_64bits(identity, strlen(identity)));
    return length > 0 && (size_t)length < sizeof table->part
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", table->path);
}

static FshStatus open_part(PredictionTable *table, FshError *error)
{
    enum { MODE = 0666 };
    table->descriptor = open(table->part, O_RDWR | O_CREAT | O_CLOEXEC, MODE);
    if (table->descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot be made", table->part);
    if (flock(table->descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) { /* some file systems have no
                                                                                * locks */
        (void)close(table->descriptor);
        table->descriptor = -1; /* it belongs to the other run: leave it alone */
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: another ftrain is writing it; wait for its end",
                             table->path);
    }
    if (table->force && ftruncate(table->descriptor, 0))
        return fsh_error_system(error, errno, "%s: cannot be written", table->part);
    return FSH_OK;
}

FshStatus prediction_table_open(PredictionTable **table_ret, const char *path,
                                const PredictionTableOptions *options, FshError *error)
{
    PredictionTable *table = *table_ret = calloc(1, sizeof *table);
    if (!table)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    table->descriptor = -1;
    table->force = options->force;
    table->json = options->json;
    table->head_bytes = strlen(options->head);
    FshStatus status = FSH_OK;
    if ((size_t)snprintf(table->path, sizeof table->path, "%s", path) >= sizeof table->path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    else if (!options->force && file_exists(path))
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists; --force replaces it", path);
    if (!status)
        status = file_make_parent_folders(path, error);
    if (!status)
        status = name_part(table, options->identity, error);
    if (!status)
        status = open_part(table, error);
    if (!status)
        status = take_rows(table, options->head, error);
    if (status)
        prediction_table_close(table_ret);
    return status;
}

bool prediction_table_has(const PredictionTable *table, const char *file)
{
    return tfind(file, (void *const *)&table->files, compare) != NULL;
}

FshStatus prediction_table_write(PredictionTable *table, const void *rows, size_t bytes, FshError *error)
{
    const char *at = rows;
    table->row_count++;
    while (bytes > 0) {
        const ssize_t wrote = write(table->descriptor, at, bytes);
        if (wrote < 0 && errno != EINTR)
            return fsh_error_system(error, errno, "%s: cannot be written", table->part);
        at += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return FSH_OK;
}

FshStatus prediction_table_finish(PredictionTable *table, FshError *error)
{
    if (fsync(table->descriptor))
        return fsh_error_system(error, errno, "%s: cannot be written", table->part);
    if (!table->force && file_exists(table->path))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists now; --force replaces it", table->path);
    if (rename(table->part, table->path))
        return fsh_error_system(error, errno, "%s: cannot get its name", table->path);
    table->finished = true;
    return file_sync_parent_folder(table->path, error);
}

void prediction_table_close(PredictionTable **table_ret)
{
    PredictionTable *table = *table_ret;
    if (!table)
        return;
    if (table->descriptor >= 0 && !table->finished && table->row_count == 0)
        (void)unlink(table->part);
    if (table->descriptor >= 0)
        (void)close(table->descriptor);
    tdestroy(table->files, free);
    free(table);
    *table_ret = NULL;
}
