/* tar_parse.h - walks the members of a tar from header to header: a pure function of its bytes, which may be
 * hostile. Contents are not touched, so that a tar in memory costs a page for each member.
 *
 *   TarSource source = tar_source_memory(bytes, length);
 *   TarCursor cursor = {.source = &source};
 *   while (!(status = fsh_tar_next(&cursor, &member, &error)) && member.path) …
 *   fsh_tar_free(&cursor);
 *
 * Messages name the byte ("byte 1024: …") but no file: the caller prepends it. Threads: one cursor belongs to
 * one thread at a time. */
#ifndef FSHARD_TAR_TAR_PARSE_H
#define FSHARD_TAR_TAR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/file.h"
#include "tar/tar_source.h"
#include "tar/tar_sparse.h"

typedef struct TarCursor {
    TarSource *source;
    uint64_t offset; /* of the next header */
    bool as_stream; /* reads what programs that unpack tars read (see fsh_tar_next); set it before the walk */
    bool marked_end;   /* there was an end marker after the last member */
    Buffer path, link; /* of the member, NUL-terminated; owned */
    TarSparse sparse;  /* of the member; owned */
} TarCursor;

typedef struct TarMember {
    const char *path; /* owned by the cursor, until its next step, as is link; NULL: the end */
    size_t path_bytes;
    const char *link; /* the target of a link, else "" */
    uint8_t kind;     /* the byte of the header: '0' or NUL a file, '1' a hard link, '2' a symbolic one … */
    bool regular;     /* false: a folder, link or device, or of a kind that is not POSIX's */
    uint64_t header_offset, content, bytes; /* content: offset of its first byte; bytes: as they are stored */
    int64_t modified_ns;                    /* as file_time_ns gives it */
} TarMember;

/* Returns whether the bytes begin with a header whose checksum is right. */
bool fsh_tar_sniff(const uint8_t *bytes, uint64_t length);
/* Sets *member to the next member. Reads names, links, sizes and times of ustar, pax and GNU tar. The end is
 * the end marker, or the end of the file after a member. FSH_ERR_CORRUPT: wrong checksum, a member that ends
 * after the file, more data after the end marker, or decompressing failed; FSH_ERR_UNSUPPORTED: a sparse
 * member; FSH_ERR_SYSTEM, FSH_ERR_MEMORY.
 *
 * As a stream, it goes on after an end marker (tars that cat has joined are one) and reads the maps of
 * sparse members, which cursor->sparse then has. Wrong records of pax headers, and global ones, are passed
 * over. A member may end after the file, which its content and the next step then tell. A tar of no bytes is
 * FSH_ERR_CORRUPT. */
FshStatus fsh_tar_next(TarCursor *cursor, TarMember *member, FshError *error);
/* Frees what the cursor owns, not its source. */
void fsh_tar_free(TarCursor *cursor);

#endif
