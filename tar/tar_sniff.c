#include "tar/tar_sniff.h"

#include <string.h>
#include <strings.h>

#include "tar/tar_parse.h"

bool tar_sniff_start(const uint8_t *bytes, size_t length, bool named_tar)
{
    if (length < TAR_START_BYTES / 2)
        return false;
    if (fsh_tar_sniff(bytes, length))
        return true;
    for (size_t i = 0; i < TAR_START_BYTES; i++)
        if (!named_tar || i >= length || bytes[i])
            return false;
    return true;
}

size_t tar_name_stem(const char *path)
{
    static const char *const endings[] = {".tar",  ".tar.bz2", ".tar.gz", ".tar.xz", ".tar.zst",
                                          ".tbz2", ".tgz",     ".txz",    ".tzst"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending_bytes = strlen(endings[i]);
        if (length > ending_bytes && strcasecmp(path + length - ending_bytes, endings[i]) == 0 &&
            path[length - ending_bytes - 1] != '/')
            return length - ending_bytes;
    }
    return 0;
}

bool tar_sniff_compressed(const uint8_t *bytes, size_t length)
{
    static const struct {
        const char *bytes;
        size_t length;
    } magics[] = {{"\x1F\x8B", 2},
                  {"BZh", 3},
                  {"\xFD"
                   "7zXZ",
                   6},
                  {"\x28\xB5\x2F\xFD", 4},
                  {"\x04\x22\x4D\x18", 4},
                  {"\x02\x21\x4C\x18", 4}, /* lz4 before its frames */
                  {"LZIP", 4},
                  {"\x1F\x9D", 2}};
    /* Frames that zstd and lz4 pass over may come first; parallel compressors write such. */
    if (length >= 4 && (bytes[0] & 0xF0) == 0x50 && memcmp(bytes + 1, "\x2A\x4D\x18", 3) == 0)
        return true;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (length >= magics[i].length && memcmp(bytes, magics[i].bytes, magics[i].length) == 0)
            return true;
    return false;
}
