/* The table of containers, and what may be asked of it. */

#include "formats/container.h"

#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/lmdb_reader.h"

extern const Container fsh_class_folder_container; /* which no other file names */

/* In the order in which a path is sniffed, and a folder searched. */
static const Container *const containers[] = {
    &fsh_shards_container,      &fsh_lmdb_container,  &fsh_webdataset_container,   &fsh_basicsr_container,
    &fsh_folder2lmdb_container, &fsh_files_container, &fsh_class_folder_container, NULL,
};

const Container *fsh_container_row(size_t i)
{
    return containers[i];
}

const Container *fsh_container_find(FshContainer id)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)) && container->id != id;)
        i++;
    return container;
}

const Container *fsh_container_of_name(const char *name)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)); i++) {
        if (container->writer && text_has_suffix(name, container->suffix ? container->suffix : ""))
            break;
    }
    return container;
}

bool fsh_container_has(FshContainer id, FshContainerFact fact)
{
    const Container *container = fsh_container_find(id);
    return container && container_has(container, fact);
}

const char *fsh_container_name(FshContainer id)
{
    const Container *container = fsh_container_find(id);
    return container ? container->name : "unknown";
}

const char *fsh_container_noun(FshContainer id, size_t count)
{
    const Container *container = fsh_container_find(id);
    return !container ? "unknown" : count == 1 ? container->one : container->many;
}

bool fsh_container_from_name(const char *text, FshContainer *container_ret)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)) && strcmp(text, container->name) != 0;)
        i++;
    *container_ret = container ? container->id : *container_ret;
    return container != NULL;
}

const char *fsh_file_name(char *buffer, size_t buffer_bytes, FshContainer id, const char *split,
                          uint32_t shard_index, uint32_t shard_count)
{
    const Container *container = fsh_container_find(id);
    if (container && container->write_name)
        container->write_name(buffer, buffer_bytes, split, shard_index, shard_count);
    else if (buffer_bytes)
        buffer[0] = '\0';
    return buffer;
}

FshStatus fsh_key_fits(FshContainer id, const char *key, size_t key_bytes, FshError *error)
{
    const Container *container = fsh_container_find(id);
    Buffer encoded = {0};
    if (!container || !container->encode_key)
        return FSH_OK;
    const FshStatus status = container->encode_key(key, key_bytes, &encoded, error);
    buffer_free(&encoded);
    return status;
}

FshStatus fsh_container_map(const Container *container, const char *path, char data_path[PATH_MAX],
                            const char **mapped_ret, FileMapping *mapping, FshError *error)
{
    *mapped_ret = container->data_name ? data_path : path;
    const FshStatus status = container->data_name ? fsh_lmdb_data_path(data_path, path, error) : FSH_OK;
    return status ? status : file_map(*mapped_ret, mapping, error);
}
