/* tar_read.h - the files of a tar, one after another, nothing unpacked to disk. Through libarchive: ustar,
 * pax, GNU (long names, sparse files); plain or compressed by gzip, bzip2, xz, zstd, lz4, lzip or compress.
 *
 *   TarReader *reader = NULL;
 *   FshStatus status = tar_reader_open(&reader, path, &error);
 *   while (!status && !(status = tar_reader_next(reader, &entry, &error)) && entry.path)
 *       if (!entry.reason) status = tar_reader_content(reader, &content, most, &error);
 *   tar_reader_close(&reader);
 *
 * A tar in a tar is a folder of its name without the extension: ILSVRC2012_img_train.tar holds n01440764.tar,
 * which holds n01440764_18.JPEG: the path is n01440764/n01440764_18.JPEG. One level; a tar in a tar in a tar
 * is a file. A tar in a tar has one of the names .tar, .tgz, .tbz2, .txz, .tzst, .tar.gz, .tar.bz2, .tar.xz,
 * .tar.zst and begins as its name says; a file that does not is a file, as is one that is stored with holes
 * (sparse).
 *
 * Names are hostile: those that are absolute, hold "..", are empty or longer than PATH_MAX, links, devices
 * and pipes are entries with a reason, never followed; the path then ends in the name as it stands. "./a" is
 * "a", doubled slashes are one. Bytes of names are given as they are, UTF-8 or not, control characters too,
 * in every locale. Folders are passed over; so are names with a part that begins with "." (macOS' "._x.jpg",
 * ".DS_Store"), and counted, as walk_files does.
 *
 * What is not read is skipped without reading it, also within a tar of an uncompressed tar, so that a part of
 * ILSVRC2012_img_train.tar (138 GB) costs its headers and that part.
 *
 * Threads: one reader belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_READ_H
#define FSHARD_TAR_TAR_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/file.h"

typedef struct TarReader TarReader;

/* Caveat: a time before 1970 with a fraction of a second is wrong by up to a second (libarchive 3.6 reads
 * "-1.5" as -0.5). */
typedef struct TarEntry {
    const char *path;    /* the reader's, until its next step; NULL: the end */
    const char *reason;  /* NULL: a regular file; else why not: "is a symbolic link"; the reader's too */
    uint64_t bytes;      /* of its content, as its header says; 0 with a reason */
    int64_t modified_ns; /* as file_time_ns gives it; 0 with a reason */
} TarEntry;

/* Whether the file begins as a tar does, compressed or not: a header whose checksum is right. Two blocks of
 * zeros are an empty tar, where the name says .tar (or .tar.gz …) too. False also for what cannot be read. */
bool tar_is_tar(const char *path);

/* FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY; FSH_ERR_UNSUPPORTED: no tar, or no regular file. On
 * failure *reader is NULL. */
FshStatus tar_reader_open(TarReader **reader, const char *path, FshError *error);

/* Damage ends the walk, not the run: one last entry whose path is the tar's own (the inner one's, within the
 * outer, if that is damaged; the outer goes on) and whose reason says what and at which byte of the tar
 * (uncompressed). A tar without its end marker is damaged: it may have been cut off. Several tars one behind
 * the other (cat) are read as one. FSH_ERR_SYSTEM: reading failed; FSH_ERR_MEMORY. */
FshStatus tar_reader_next(TarReader *reader, TarEntry *entry, FshError *error);

/* The whole content of the entry that tar_reader_next gave last, once; FSH_ERR_USAGE: there is none to read.
 * FSH_ERR_CORRUPT: the tar ends or breaks within it; FSH_ERR_MISMATCH: more than `most` bytes; the walk may
 * go on after both. FSH_ERR_SYSTEM, FSH_ERR_MEMORY. Messages do not name the entry. content is empty on
 * failure. */
FshStatus tar_reader_content(TarReader *reader, Buffer *content, uint64_t most, FshError *error);

/* How far into the file, of how many bytes (compressed ones, if it is compressed): for progress. */
void tar_reader_position(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret);
/* Files passed over so far because a part of their name begins with "." */
uint64_t tar_reader_hidden_count(const TarReader *reader);

/* Frees and sets to NULL; NULL is fine. */
void tar_reader_close(TarReader **reader);

#endif
