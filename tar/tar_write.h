/* tar_write.h - a tar that grows by one file after another, and can go on after a kill.
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
 * 0644. A name that is not UTF-8 stands as it is (a long one with hdrcharset=BINARY, of which GNU tar says
 * that it ignores it). libarchive writes other bytes in other locales and versions; hence this is our own.
 *
 * Every entry is written through at once and ends on a block of 512 bytes, so that "the tar as far as offset
 * X" is whole but for its end marker, and a writer opened again at X goes on to the same bytes that one never
 * interrupted writes.
 *
 * Threads: one writer belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_WRITE_H
#define FSHARD_TAR_TAR_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/file.h"

typedef struct TarWriter TarWriter;

/* Opens path for writing and cuts it off at offset: 0 (made where it is not there), or one that
 * tar_writer_add gave. FSH_ERR_NOT_FOUND: no file, and offset is not 0; FSH_ERR_CORRUPT: it is shorter than
 * offset, or no entry ends there; FSH_ERR_EXISTS: another writer has it, in this process or another (flock; a
 * file system without locks cannot tell); FSH_ERR_UNSUPPORTED: no regular file; FSH_ERR_SYSTEM,
 * FSH_ERR_MEMORY. On failure *writer is NULL, the file as it was. */
FshStatus tar_writer_open(TarWriter **writer, const char *path, uint64_t offset, FshError *error);

/* Appends a regular file; path is relative, '/' between its parts, any bytes. *offset_ret (may be NULL):
 * where the next entry will begin. FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM, FSH_ERR_MEMORY: the tar is as before the
 * call. FSH_ERR_USAGE: an empty path, or one that ends in '/'. */
FshStatus tar_writer_add(TarWriter *writer, const char *path, const void *bytes, size_t length,
                         int64_t modified_ns, uint64_t *offset_ret, FshError *error);

/* Waits for the disk: all entries so far survive a power cut. */
FshStatus tar_writer_sync(TarWriter *writer, FshError *error);

/* The end marker, sync, close; frees and sets to NULL, on failure too. Two zero blocks, no padding to
 * 10240. */
FshStatus tar_writer_finish(TarWriter **writer, FshError *error);

/* The same entries in memory, for who hashes them or writes them elsewhere: appends the entry's header,
 * content and padding to tar; *content_at_ret is where in tar the content begins. scratch is kept from entry
 * to entry. On failure tar is as before the call. FSH_ERR_USAGE: as above; FSH_ERR_MEMORY. */
FshStatus tar_entry_append(Buffer *tar, Buffer *scratch, const char *path, const void *bytes, size_t length,
                           int64_t modified_ns, size_t *content_at_ret, FshError *error);
FshStatus tar_end_append(Buffer *tar, FshError *error);

/* Closes without the end marker; frees and sets to NULL; NULL is fine. */
void tar_writer_abandon(TarWriter **writer);

#endif
