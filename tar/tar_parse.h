/* tar_parse.h - walks the members of a tar in memory: a pure function of its bytes, which may be hostile.
 *
 * Messages name the byte but no file: the caller prepends it. Threads: one cursor belongs to one thread at a
 * time. */
#ifndef FSHARD_TAR_TAR_PARSE_H
#define FSHARD_TAR_TAR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/file.h"

typedef struct TarCursor {
    const uint8_t *bytes;
    uint64_t length, offset; /* of the next header */
    bool marked_end;         /* there was an end marker; without one the tar may have been cut at the end of a
                      * member */
    Buffer path;             /* of the member, NUL-terminated; owned */
} TarCursor;

typedef struct TarMember {
    const char *path; /* owned by the cursor, until its next step; NULL: the end */
    size_t path_bytes;
    bool regular;                           /* false: a folder, link or device, of 0 bytes */
    uint64_t header_offset, content, bytes; /* content: offset of its first byte */
} TarMember;

/* Returns whether the bytes begin with a header whose checksum is right. */
bool fsh_tar_sniff(const uint8_t *bytes, uint64_t length);
/* Sets *member to the next member. Reads names and sizes of ustar, pax and GNU long names. The end is the end
 * marker, or the end of the file after a member. FSH_ERR_CORRUPT: wrong checksum, a member that ends after
 * the file, more data after the end marker; FSH_ERR_UNSUPPORTED: a sparse member; FSH_ERR_MEMORY. */
FshStatus fsh_tar_next(TarCursor *cursor, TarMember *member, FshError *error);
void fsh_tar_free(TarCursor *cursor);

#endif
