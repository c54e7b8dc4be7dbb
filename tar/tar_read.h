/* tar_read.h - reads the files of a tar, one after another, and unpacks nothing to disk: ustar, pax, GNU
 * (long names, sparse files); plain or, through libarchive, compressed by gzip, bzip2, xz, zstd, lz4, lzip
 * or compress.
 *
 *   TarReader *reader = NULL;
 *   FshStatus status = tar_reader_open(&reader, path, &error);
 *   while (!status && !(status = tar_reader_next(reader, &entry, &error)) && entry.path)
 *       if (!entry.reason) status = tar_reader_content(reader, &content, most, &error);
 *   tar_reader_close(&reader);
 *
 * A tar in a tar becomes a folder with its name without the extension: ILSVRC2012_img_train.tar holds
 * n01440764.tar, which holds n01440764_18.JPEG: the path is n01440764/n01440764_18.JPEG. There is one such
 * level: a tar in a tar in a tar is a file. A tar in a tar has one of the extensions .tar, .tgz, .tbz2,
 * .txz, .tzst, .tar.gz, .tar.bz2, .tar.xz, .tar.zst and begins as its name says; otherwise it is a file, and
 * so is one that is stored with holes (sparse).
 *
 * Names may be hostile. Names that are absolute, hold "..", are empty or longer than PATH_MAX, and links,
 * devices and pipes are entries with a reason, never followed; the path then ends in the unchanged name.
 * "./a" becomes "a", and doubled slashes one. Bytes of names are given unchanged, UTF-8 or not, control
 * characters too, in every locale. Folders are skipped. Names with a part that begins with "." (macOS'
 * "._x.jpg", ".DS_Store") are skipped and counted, as walk_files does.
 *
 * Skipped content is not read, also within a tar of an uncompressed tar, so that reading a part of
 * ILSVRC2012_img_train.tar (138 GB) costs the headers and that part.
 *
 * Threads: one reader belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_READ_H
#define FSHARD_TAR_TAR_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/file.h"

typedef struct TarReader TarReader;

typedef struct TarEntry {
    const char *path;    /* owned by the reader, until its next step; NULL: the end */
    const char *reason;  /* NULL: a regular file; else why it is none: "is a symbolic link"; owned by the
                          * reader too */
    uint64_t bytes;      /* of its content, as its header claims; 0 with a reason */
    int64_t modified_ns; /* as file_time_ns gives it; 0 with a reason */
} TarEntry;

/* Returns whether the file begins as a tar does, compressed or not: with a header whose checksum is right.
 * Two blocks of zeros are an empty tar if the name says .tar (or .tar.gz …) too. Returns false also if the
 * file cannot be read. Where the plugin with libarchive cannot be loaded, a compressed file counts as one:
 * tar_reader_open then says what is missing. */
bool tar_is_tar(const char *path);

/* Returns whether a path has the name of a tar, compressed or not. */
bool tar_is_named(const char *path);

/* Opens a tar. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY; FSH_ERR_UNSUPPORTED: no tar, or no regular
 * file. On failure *reader is NULL. */
FshStatus tar_reader_open(TarReader **reader, const char *path, FshError *error);

/* Has messages and reasons call the tar something else than its path: the address that it was fetched from.
 * To be called before the first step. FSH_ERR_MEMORY: it keeps its name. */
FshStatus tar_reader_name(TarReader *reader, const char *name, FshError *error);

/* Sets *entry to the next file. Damage ends the walk, not the run: the last entry then has the tar's own path
 * (the inner one's, if that is damaged; the outer goes on), and its reason says what is damaged and at which
 * byte of the (uncompressed) tar. Several tars one after another (cat) are read as one. A tar without its end
 * marker is none that is damaged: tar_reader_unmarked counts it. FSH_ERR_SYSTEM: reading failed;
 * FSH_ERR_MEMORY. */
FshStatus tar_reader_next(TarReader *reader, TarEntry *entry, FshError *error);

/* Reads the whole content of the last entry, once. FSH_ERR_USAGE: there is none to read. FSH_ERR_CORRUPT: the
 * tar ends or breaks within it; FSH_ERR_MISMATCH: more than `most` bytes; the walk may go on after both.
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY. Messages do not name the entry. content is empty on failure. */
FshStatus tar_reader_content(TarReader *reader, Buffer *content, uint64_t most, FshError *error);

/* Sets how many of the file's bytes (compressed ones, if it is compressed) were read, and how many there are.
 * For progress. */
void tar_reader_position(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret);
/* Returns how many files were skipped so far because a part of their name begins with ".". */
uint64_t tar_reader_hidden_count(const TarReader *reader);

/* Returns how many tars, the inner ones among them, came to their end so far without an end marker: some
 * programs write none, and a tar that is cut short between two members looks the same. *first_ret: what
 * messages call the first, the reader's; left alone where there is none. */
uint64_t tar_reader_unmarked(const TarReader *reader, const char **first_ret);

/* Frees and sets to NULL; NULL is fine. */
void tar_reader_close(TarReader **reader);

#endif
