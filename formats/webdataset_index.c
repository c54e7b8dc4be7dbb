/* DALI's index beside a tar of ours (data/wds2idx of https://github.com/NVIDIA/DALI): "v1.2 SAMPLES", then a
 * line for each sample, "EXTENSION OFFSET BYTES PATH" for each of its members, with blanks between. Made from
 * the tar it is the one that the writer made. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "formats/names.h"
#include "tar/tar_parse.h"

/* Returns the bytes of a member's path up to the first dot of its last part, which name the sample. */
static size_t key_bytes(const char *path)
{
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    const char *dot = strchr(last, '.');
    return dot ? (size_t)(dot - path) : strlen(path);
}

/* Appends what stands in the index after its first line, and counts the samples in *samples_ret. */
static FshStatus append_members(Buffer *index, const FileMapping *tar, uint64_t *samples_ret, FshError *error)
{
    TarSource source = tar_source_memory(tar->bytes, tar->length);
    TarCursor cursor = {.source = &source};
    TarMember member;
    Buffer key = {0};
    *samples_ret = 0;
    FshStatus status = FSH_OK;
    while (!(status = fsh_tar_next(&cursor, &member, error)) && member.path) {
        const size_t bytes = key_bytes(member.path);
        const bool same = *samples_ret && bytes == key.length && memcmp(member.path, key.bytes, bytes) == 0;
        char place[64];
        const int place_bytes =
            snprintf(place, sizeof place, " %" PRIu64 " %" PRIu64 " ", member.content, member.bytes);
        const char *extension = member.path[bytes] ? member.path + bytes + 1 : "";
        if (!same) {
            key.length = 0;
            status = buffer_append(&key, member.path, bytes, error);
        }
        if (!status && (same || *samples_ret))
            status = buffer_append(index, same ? " " : "\n", 1, error);
        *samples_ret += !same;
        if (!status)
            status = buffer_append_text(index, extension, error);
        if (!status)
            status = buffer_append(index, place, (size_t)place_bytes, error);
        if (!status)
            status = buffer_append_text(index, member.path, error);
        if (status)
            break;
    }
    if (!status && *samples_ret)
        status = buffer_append(index, "\n", 1, error);
    fsh_tar_free(&cursor);
    buffer_free(&key);
    return status;
}

/* Makes the path of the index of a tar, and the text that it must have. */
static FshStatus make_index(const char *tar_path, char index_path[PATH_MAX], Buffer *text, FshError *error)
{
    FileMapping tar = {0};
    Buffer members = {0};
    uint64_t samples = 0;
    char first[48];
    const size_t stem = strlen(tar_path) - strlen(".tar");
    if (strlen(tar_path) <= strlen(".tar") || strcmp(tar_path + stem, ".tar") != 0 || stem + 5 > PATH_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the name of a tar ends in .tar", tar_path);
    (void)snprintf(index_path, PATH_MAX, "%.*s.idx", (int)stem, tar_path);
    FshStatus status = file_map(tar_path, &tar, error);
    if (status)
        return status;
    status = append_members(&members, &tar, &samples, error);
    if (!status) /* a page that cannot be read is one of zeros, which end a tar */
        status = file_mapping_check(&tar, 0, tar.length, error);
    if (status)
        (void)fsh_error_prepend(error, "%s", tar_path);
    const int length = snprintf(first, sizeof first, "v1.2 %" PRIu64 "\n", samples);
    if (!status)
        status = buffer_append(text, first, (size_t)length, error);
    if (!status)
        status = buffer_append(text, members.bytes, members.length, error);
    file_unmap(&tar);
    buffer_free(&members);
    return status;
}

FshStatus fsh_tar_index_check(const char *tar_path, FshError *error)
{
    char path[PATH_MAX];
    Buffer expected = {0}, found = {0};
    size_t name_bytes = 0;
    FshStatus status = make_index(tar_path, path, &expected, error);
    const char *name = fsh_path_name(path, &name_bytes);
    if (!status && !file_exists(path))
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "its index, %s, is missing; fpack --repair-manifest makes it again", name);
    if (!status)
        status = file_read_most(path, expected.length, &found, error);
    if (status == FSH_ERR_MISMATCH || (!status && (found.length != expected.length ||
                                                   memcmp(found.bytes, expected.bytes, found.length) != 0)))
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT,
                          "its index, %s, is not that of its members: it was changed or cut short; fpack "
                          "--repair-manifest makes it again",
                          name);
    buffer_free(&expected);
    buffer_free(&found);
    return status;
}

FshStatus fsh_tar_index_save(const char *tar_path, FshError *error)
{
    char path[PATH_MAX];
    Buffer text = {0};
    FshStatus status = make_index(tar_path, path, &text, error);
    if (!status)
        status = file_write_atomic(path, text.bytes, text.length, true, true, error);
    buffer_free(&text);
    return status;
}
