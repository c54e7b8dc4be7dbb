#include "tar/tar_sparse.h"

#include <string.h>

#include "tar/tar_number.h"

enum {
    BLOCK_BYTES = 512,
    NUMBER_BYTES = 12, /* a part is two of them */
    AT_PARTS = 386,    /* in a header: 4 parts */
    AT_MORE = 482,     /* not 0: a block of parts follows */
    AT_BYTES = 483,
    AT_MORE_IN_BLOCK = 504, /* after 21 parts */
};

void tar_sparse_reset(TarSparse *sparse)
{
    *sparse = (TarSparse){.parts = sparse->parts};
    sparse->parts.length = 0;
}

static FshStatus add_part(TarSparse *sparse, uint64_t offset, uint64_t bytes, FshError *error)
{
    const TarPart part = {.offset = offset, .bytes = bytes};
    sparse->given = true;
    return buffer_append(&sparse->parts, &part, sizeof part, error);
}

static FshStatus refuse_map(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "a sparse file with a wrong map of its holes");
}

/* ---- pax headers ---- */

/* Adds the parts of "OFFSET,BYTES,OFFSET,BYTES…". */
static FshStatus add_parts(TarSparse *sparse, const char *text, size_t bytes, FshError *error)
{
    const char *at = text, *end = text + bytes;
    uint64_t numbers[2];
    FshStatus status = FSH_OK;
    for (size_t i = 0; at < end && !status; i++) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
        if (!tar_number_text(at, (size_t)(stop - at), &numbers[i % 2]))
            return refuse_map(error);
        if (i % 2)
            status = add_part(sparse, numbers[0], numbers[1], error);
        at = stop + 1;
    }
    return status;
}

FshStatus tar_sparse_record(TarSparse *sparse, const char *key, size_t key_bytes, const char *value,
                            size_t value_bytes, FshError *error)
{
    enum { MAJOR, SIZE, REALSIZE, OFFSET, NUMBYTES, MAP, KEYS };
    static const char *const keys[KEYS] = {"major", "size", "realsize", "offset", "numbytes", "map"};
    static const char prefix[] = "GNU.sparse.", solaris[] = "SUN.holesdata";
    const size_t prefix_bytes = sizeof prefix - 1;
    uint64_t number = 0;
    size_t i = 0;
    if (key_bytes == sizeof solaris - 1 && memcmp(key, solaris, key_bytes) == 0)
        return add_part(sparse, UINT64_MAX, 0, error); /* lies in no file: its content is refused */
    if (key_bytes <= prefix_bytes || memcmp(key, prefix, prefix_bytes) != 0)
        return FSH_OK;
    key += prefix_bytes;
    key_bytes -= prefix_bytes;
    while (i < KEYS && (key_bytes != strlen(keys[i]) || memcmp(key, keys[i], key_bytes) != 0))
        i++;
    if (i < MAP && !tar_number_text(value, value_bytes, &number))
        return refuse_map(error);
    sparse->given = sparse->given || i < KEYS;
    switch (i) {
    case MAJOR:
        sparse->map_in_content = number == 1;
        break;
    case SIZE:
    case REALSIZE:
        sparse->bytes = number;
        break;
    case OFFSET:
        sparse->next_offset = number;
        break;
    case NUMBYTES:
        return add_part(sparse, sparse->next_offset, number, error);
    case MAP:
        return add_parts(sparse, value, value_bytes, error);
    default: /* name, numblocks, minor */
        break;
    }
    return FSH_OK;
}

/* ---- blocks ---- */

/* Sets *block_ret to the block at offset. */
static FshStatus take_block(TarSource *source, uint64_t offset, const uint8_t **block_ret, FshError *error)
{
    size_t available = 0;
    const FshStatus status = tar_source_at(source, offset, BLOCK_BYTES, block_ret, &available, error);
    if (!status && available < BLOCK_BYTES)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "the file ends within the map of a sparse file: " TAR_CUT_SHORT);
    return status;
}

/* Adds up to count parts of a header or block; an empty one is the last. */
static FshStatus add_fields(TarSparse *sparse, const uint8_t *field, size_t count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (; count-- > 0 && *field && !status; field += 2 * (size_t)NUMBER_BYTES) {
        uint64_t offset = 0, bytes = 0;
        if (!tar_number_field(field, NUMBER_BYTES, &offset) ||
            !tar_number_field(field + NUMBER_BYTES, NUMBER_BYTES, &bytes))
            return refuse_map(error);
        status = add_part(sparse, offset, bytes, error);
    }
    return status;
}

FshStatus tar_sparse_header(TarSparse *sparse, const uint8_t *header, TarSource *source, uint64_t offset,
                            uint64_t *taken_ret, FshError *error)
{
    bool more = header[AT_MORE] != 0;
    *taken_ret = 0;
    sparse->given = true;
    if (!tar_number_field(header + AT_BYTES, NUMBER_BYTES, &sparse->bytes))
        return refuse_map(error);
    FshStatus status = add_fields(sparse, header + AT_PARTS, 4, error);
    while (!status && more) {
        const uint8_t *block = NULL;
        status = take_block(source, offset + *taken_ret, &block, error);
        if (!status)
            status = add_fields(sparse, block, 21, error);
        more = !status && block[AT_MORE_IN_BLOCK] != 0;
        *taken_ret += BLOCK_BYTES;
    }
    return status;
}

/* Lines of numbers: how many parts there are, then offset and size of each; padded to a block with zeros. */
FshStatus tar_sparse_content(TarSparse *sparse, TarSource *source, uint64_t offset, uint64_t bytes,
                             uint64_t *taken_ret, FshError *error)
{
    uint64_t count = 0, part_offset = 0, number = 0, lines = 0;
    const uint8_t *block = NULL;
    bool ended = false;
    FshStatus status = FSH_OK;
    for (*taken_ret = 0; !status && !ended; *taken_ret += BLOCK_BYTES) {
        if (bytes - *taken_ret < BLOCK_BYTES)
            return refuse_map(error);
        status = take_block(source, offset + *taken_ret, &block, error);
        for (size_t i = 0; i < BLOCK_BYTES && !status && !ended; i++) {
            if (block[i] >= '0' && block[i] <= '9' && number < UINT64_MAX / 10 - 1) {
                number = number * 10 + (uint64_t)(block[i] - '0');
                continue;
            }
            if (block[i] != '\n')
                return refuse_map(error);
            if (lines == 0)
                count = number;
            else if (lines % 2)
                part_offset = number;
            else
                status = add_part(sparse, part_offset, number, error);
            number = 0;
            ended = lines++ / 2 == count;
        }
    }
    return status;
}
