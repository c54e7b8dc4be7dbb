#include "trainer/data/name_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "formats/xxh3.h"

enum { LIST_BYTES_MAX = 1 << 30 };

/* Adds the name on a line, if there is one, and ends it with a zero byte. end: of the line, which may be
 * overwritten. */
static FshStatus add_line(NameList *list, char *at, char *end, uint64_t line, FshError *error)
{
    at = (char *)text_skip_blanks(at, end);
    for (char *tab = at; tab < end; tab++)
        if (*tab == '\t')
            end = tab;
    while (end > at && text_is_blank(end[-1]))
        end--;
    if (at == end)
        return FSH_OK;
    *end = '\0';
    const ListedName name = {.text = at, .bytes = (size_t)(end - at), .line = line};
    list->count++;
    return buffer_append(&list->names, &name, sizeof name, error);
}

static FshStatus add_lines(NameList *list, FshError *error)
{
    char *text = (char *)list->bytes.bytes, *end = text + list->bytes.length - 1; /* without the last 0 */
    FshStatus status = FSH_OK;
    for (uint64_t line = 1; text < end && !status; line++) {
        char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        status = add_line(list, text, stop, line, error);
        text = stop + 1;
    }
    return status;
}

/* Returns the length of a name without its extension. */
static size_t stem_bytes(const ListedName *name)
{
    for (size_t at = name->bytes; at-- > 1 && name->text[at] != '/';)
        if (name->text[at] == '.' && name->text[at - 1] != '/')
            return at;
    return name->bytes;
}

static FshStatus index_names(NameList *list, bool extensions, FshError *error)
{
    FshStatus status = hash_set_reserve(&list->set, 2 * (uint64_t)list->count, error);
    list->met = calloc(list->count, sizeof *list->met);
    if (!status && !list->met)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count && !status; i++) {
        const ListedName *name = name_list_at(list, i);
        const FshHash128 hash = fsh_hash_bytes(name->text, name->bytes);
        (void)hash_set_meet(&list->set, &hash, i, 0);
    }
    for (size_t i = 0; i < list->count && extensions && !status; i++) {
        const ListedName *name = name_list_at(list, i);
        const FshHash128 hash = fsh_hash_bytes(name->text, stem_bytes(name));
        (void)hash_set_meet(&list->set, &hash, i, 0);
    }
    return status;
}

FshStatus name_list_read(NameList *list, const char *path, bool extensions, FshError *error)
{
    *list = (NameList){0};
    FshStatus status = file_read_stream(path, LIST_BYTES_MAX, &list->bytes, error);
    if (status) {
        name_list_free(list);
        return status; /* its message names the file */
    }
    if (memchr(list->bytes.bytes ? list->bytes.bytes : (const uint8_t *)"", 0, list->bytes.length))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "has a zero byte, so it is no list of names");
    if (!status)
        status = buffer_append(&list->bytes, "", 1, error);
    if (!status)
        status = add_lines(list, error);
    if (!status && !list->count)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "names nothing; it has a name on each line");
    if (!status)
        status = index_names(list, extensions, error);
    if (!status)
        return FSH_OK;
    name_list_free(list);
    return fsh_error_prepend(error, "%s", path);
}

void name_list_free(NameList *list)
{
    buffer_free(&list->bytes);
    buffer_free(&list->names);
    hash_set_free(&list->set);
    free(list->met);
    *list = (NameList){0};
}

const ListedName *name_list_at(const NameList *list, size_t index)
{
    return (const ListedName *)(const void *)list->names.bytes + index;
}

bool name_list_find(const NameList *list, const char *name, size_t bytes, size_t *index_ret)
{
    const FshHash128 hash = fsh_hash_bytes(name, bytes);
    const HashSetEntry *entry = hash_set_find(&list->set, &hash);
    if (entry)
        *index_ret = (size_t)entry->record;
    return entry != NULL;
}

bool name_list_meet(const NameList *list, const char *name, size_t bytes)
{
    size_t index = 0;
    const bool found = name_list_find(list, name, bytes, &index);
    if (found)
        atomic_store_explicit(&list->met[index], 1, memory_order_relaxed);
    return found;
}

bool name_list_is_met(const NameList *list, size_t index)
{
    const ListedName *name = name_list_at(list, index);
    size_t first = index;
    (void)name_list_find(list, name->text, name->bytes, &first);
    return atomic_load_explicit(&list->met[first], memory_order_relaxed);
}
