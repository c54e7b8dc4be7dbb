/* tar_write.h - writes a tar file by file, and can go on after a kill.
 *
 *   TarWriter *writer = NULL;
 *   FshStatus status = tar_writer_open(&writer, "small.tar", 0, &error);
 *   if (!status) status = tar_writer_add(writer, "cat/1.jpg", bytes, length, modified_ns, &offset, &error);
 *   if (!status) status = tar_writer_finish(&writer, &error);    // only now does it end as a tar ends
 *   tar_writer_abandon(&writer);                                 // safe after all of them
 *
 * The same entries give the same bytes, on every machine and in every locale: ustar (POSIX.1-1988), with a
 * pax header (POSIX.1-2001, "pax Extended Header") only where a name is long or not ASCII, a time is before
 * 1970, after 2242 or has a fraction of a second, or a file has 8 GiB or more; owner 0, no owner's name, mode
 * 0644. A name that is not UTF-8 is kept unchanged (a long one with hdrcharset=BINARY, which GNU tar says
 * that it ignores). The writer is our own because libarchive writes other bytes in other locales and
 * versions.
 *
 * Every entry is written at once and ends on a block of 512 bytes, so that the tar up to an offset X is whole
 * except for its end marker, and a writer opened again at X goes on to the same bytes as one that was never
 * interrupted.
 *
 * Threads: one writer belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_WRITE_H
#define FSHARD_TAR_TAR_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/file.h"

typedef struct TarWriter TarWriter;

/* Opens path for writing and cuts it off at offset: 0 (the file is made if necessary), or an offset from
 * tar_writer_add. FSH_ERR_NOT_FOUND: there is no file, and offset is not 0; FSH_ERR_CORRUPT: it is shorter
 * than offset, or no entry ends there; FSH_ERR_EXISTS: another writer has it, in this process or another
 * (flock; a file system without locks cannot tell); FSH_ERR_UNSUPPORTED: no regular file; FSH_ERR_SYSTEM,
 * FSH_ERR_MEMORY. On failure *writer is NULL and the file is unchanged. */
FshStatus tar_writer_open(TarWriter **writer, const char *path, uint64_t offset, FshError *error);

/* Appends a regular file. path is relative, with '/' between its parts, any bytes. *offset_ret (may be NULL)
 * is set to where the next entry will begin. FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM, FSH_ERR_MEMORY: the tar is as
 * before the call. FSH_ERR_USAGE: an empty path, or one that ends in '/'. */
FshStatus tar_writer_add(TarWriter *writer, const char *path, const void *bytes, size_t length,
                         int64_t modified_ns, uint64_t *offset_ret, FshError *error);

/* Waits for the disk: all entries so far then survive a power cut. */
FshStatus tar_writer_sync(TarWriter *writer, FshError *error);

/* Writes the end marker, syncs and closes; frees and sets to NULL, on failure too. The end marker is two zero
 * blocks, without padding to 10240. */
FshStatus tar_writer_finish(TarWriter **writer, FshError *error);

/* Appends an entry's header, content and padding to a tar in memory, for callers that hash it or write it
 * elsewhere. *content_at_ret is set to where in tar the content begins. scratch is kept from entry to entry.
 * On failure tar is as before the call. FSH_ERR_USAGE: as above; FSH_ERR_MEMORY. */
FshStatus tar_entry_append(Buffer *tar, Buffer *scratch, const char *path, const void *bytes, size_t length,
                           int64_t modified_ns, size_t *content_at_ret, FshError *error);
/* Appends the end marker. FSH_ERR_MEMORY. */
FshStatus tar_end_append(Buffer *tar, FshError *error);

/* Closes without the end marker; frees and sets to NULL; NULL is fine. */
void tar_writer_abandon(TarWriter **writer);

#endif
