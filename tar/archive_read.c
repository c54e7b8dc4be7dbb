/* archive_read.c - libfshard-archive.so: tar_read.h through libarchive. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tar/archive_plugin.h"
#include "tar/tar_sniff.h"
#include "tar/tar_source.h"

enum { CHUNK_BYTES = 1 << 20 }; /* memory that a mere claim of a header may cost */

static bool archive_is_tar(const char *path)
{
    TarSource source;
    const bool is_tar = tar_source_open(path, &source, NULL) == FSH_OK;
    if (is_tar)
        (void)close(source.descriptor);
    return is_tar;
}

/* ---- the reader ---- */

/* A tar being read. */
typedef struct Level {
    struct archive *archive; /* NULL: not open */
    TarSource source;
    char *path;        /* owned: as messages name it */
    size_t stem_bytes; /* of path, before its entries' names; 0 for the outer tar */
    bool fatal;        /* reading content failed; the damage is to be reported, unless */
    bool told;         /* it was reported */
} Level;

typedef struct ArchiveReader {
    TarReader common;            /* first: a TarReader is one of these */
    Level levels[2];             /* the file's, and that of a tar in it */
    Level *level;                /* the current one */
    struct archive_entry *entry; /* the level's current entry, owned by the archive; NULL: none to read */
    uint64_t entry_offset;       /* where its content begins, in the level's uncompressed bytes */
    uint64_t hidden_count;
    Buffer name; /* path of the current entry */
    char reason[512];
    uint8_t start[TAR_START_BYTES]; /* of the current entry, taken from the archive to find out what it is */
    size_t start_bytes;
    bool ended;
    locale_t plain_locale; /* libarchive converts names to the locale's characters; "C" leaves them alone */
} ArchiveReader;

static void close_level(Level *level)
{
    (void)archive_read_free(level->archive);
    free(level->source.bytes);
    free(level->path);
    *level = (Level){.source.descriptor = -1};
}

static void archive_close(TarReader *reader)
{
    ArchiveReader *closed = (ArchiveReader *)reader;
    const int descriptor = closed->levels[0].source.descriptor;
    close_level(&closed->levels[1]);
    close_level(&closed->levels[0]);
    if (descriptor >= 0)
        (void)close(descriptor);
    if (closed->plain_locale)
        freelocale(closed->plain_locale);
    buffer_free(&closed->name);
    free(closed);
}

static FshStatus archive_open(TarReader **reader, const char *path, FshError *error)
{
    *reader = NULL;
    FshStatus status = FSH_OK;
    ArchiveReader *opened = calloc(1, sizeof *opened);
    if (!opened)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    Level *level = &opened->levels[0];
    opened->common.plugin = &fshard_archive_plugin;
    opened->level = level;
    level->source.descriptor = -1;
    opened->levels[1].source.descriptor = -1;
    opened->plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    level->path = strdup(path);
    if (!level->path || !opened->plain_locale) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    status = tar_source_open(path, &level->source, error);
    if (status)
        goto done;
    level->archive = tar_source_archive(&level->source, archive_read_support_format_tar);
    if (!level->archive)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
done:
    if (status) {
        archive_close(&opened->common);
        return status;
    }
    *reader = &opened->common;
    return FSH_OK;
}

static void archive_position(const TarReader *common, uint64_t *position_ret, uint64_t *extent_ret)
{
    const ArchiveReader *reader = (const ArchiveReader *)common;
    const TarSource *source = &reader->level->source;
    *position_ret = source->outer ? reader->levels[0].source.offset : source->offset;
    *extent_ret = reader->levels[0].source.end;
}

static uint64_t archive_hidden_count(const TarReader *reader)
{
    return ((const ArchiveReader *)reader)->hidden_count;
}

/* Returns the bytes of the entry's content; libarchive refuses negative sizes. */
static uint64_t entry_bytes(struct archive_entry *entry)
{
    return (uint64_t)archive_entry_size(entry);
}

/* ---- names ---- */

typedef enum NameKind { NAME_FINE, NAME_HIDDEN, NAME_REFUSED } NameKind;

/* Makes the reader's name from the entry's: the inner tar's stem before it, no "." parts, single slashes. A
 * refused name stays as it is. */
static FshStatus make_name(ArchiveReader *reader, const char *raw, NameKind *kind_ret, FshError *error)
{
    Buffer *name = &reader->name;
    const Level *level = reader->level;
    const char *reason = *raw == '/' ? "has an absolute name" : NULL;
    bool hidden = false;
    name->length = 0;
    FshStatus status = buffer_reserve(name, level->stem_bytes + strlen(raw) + 2, error);
    if (status)
        return status;
    if (level->stem_bytes)
        (void)buffer_append(name, level->path, level->stem_bytes, NULL);
    size_t stem_bytes = name->length;
    for (const char *part = raw; *part; part += strspn(part, "/")) {
        size_t bytes = strcspn(part, "/");
        bool parent = bytes == 2 && part[0] == '.' && part[1] == '.';
        if (parent)
            reason = "has \"..\" in its name";
        if (bytes && !(bytes == 1 && *part == '.')) {
            hidden = hidden || (*part == '.' && !parent);
            if (name->length)
                name->bytes[name->length++] = '/';
            memcpy(name->bytes + name->length, part, bytes);
            name->length += bytes;
        }
        part += bytes;
    }
    if (name->length == stem_bytes && !reason)
        reason = "has no name";
    else if (name->length >= PATH_MAX && !reason)
        reason = "has a name that is too long";
    *kind_ret = reason ? NAME_REFUSED : hidden ? NAME_HIDDEN : NAME_FINE;
    if (reason) {
        name->length = stem_bytes;
        if (stem_bytes)
            name->bytes[name->length++] = '/';
        memcpy(name->bytes + name->length, raw, strlen(raw));
        name->length += strlen(raw);
        (void)snprintf(reader->reason, sizeof reader->reason, "%s", reason);
    }
    name->bytes[name->length] = '\0';
    return FSH_OK;
}

/* Returns whether the entry is no file, and then sets the reason. */
static bool refuse_kind(ArchiveReader *reader, struct archive_entry *entry)
{
    static const struct {
        mode_t kind;
        const char *reason;
    } kinds[] = {
        {AE_IFLNK, "is a symbolic link"}, {AE_IFCHR, "is a device"},  {AE_IFBLK, "is a device"},
        {AE_IFIFO, "is a named pipe"},    {AE_IFSOCK, "is a socket"},
    };
    const char *reason = "is not a regular file";
    const char *target = archive_entry_hardlink(entry);
    if (target) {
        (void)snprintf(reader->reason, sizeof reader->reason, "is a hard link to %s", target);
        return true;
    }
    mode_t kind = archive_entry_filetype(entry);
    if (kind == AE_IFREG)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind)
            reason = kinds[i].reason;
    (void)snprintf(reader->reason, sizeof reader->reason, "%s", reason);
    return true;
}

/* ---- damage ---- */

/* Returns how many uncompressed bytes of the level were consumed. */
static uint64_t consumed_bytes(const Level *level)
{
    la_int64_t bytes = archive_filter_bytes(level->archive, 0);
    return bytes < 0 ? 0 : (uint64_t)bytes;
}

/* Returns where the last header begins, good or not. After a fatal one libarchive does not say; it has
 * consumed nothing of an incomplete header. */
static uint64_t header_offset(const Level *level)
{
    la_int64_t offset = archive_read_header_position(level->archive);
    return offset < 0 ? consumed_bytes(level) : (uint64_t)offset;
}

static FshStatus fail_to_read(const Level *level, FshError *error)
{
    return fsh_error_system(error, level->source.failure, "%s: cannot read", level->path);
}

/* Returns whether the level is read as it is in the file: its bytes are the file's from source.begin on. */
static bool is_plain(const Level *level)
{
    return !level->source.outer && archive_filter_code(level->archive, 0) == ARCHIVE_FILTER_NONE;
}

/* Gives the entry that reports damage; the level ends after it. */
static FshStatus give_damage(ArchiveReader *reader, TarEntry *entry, uint64_t offset, const char *what,
                             FshError *error)
{
    Level *level = reader->level;
    level->told = true;
    (void)snprintf(
        reader->reason, sizeof reader->reason, "is damaged at byte %" PRIu64 "%s: %s", offset,
        archive_filter_code(level->archive, 0) == ARCHIVE_FILTER_NONE ? "" : " of its uncompressed bytes",
        what ? what : "cannot be read on");
    reader->name.length = 0;
    FshStatus status = buffer_append(&reader->name, level->path, strlen(level->path) + 1, error);
    *entry = (TarEntry){.path = status ? NULL : (const char *)reader->name.bytes, .reason = reader->reason};
    return status;
}

/* ---- tars in the tar ---- */

/* Reads the first bytes of the current entry; those that are taken from the archive are kept for the reader
 * of the content. */
static FshStatus peek(ArchiveReader *reader, bool in_file, uint64_t bytes, FshError *error)
{
    Level *level = reader->level;
    size_t wanted = bytes < TAR_START_BYTES ? (size_t)bytes : TAR_START_BYTES, length = 0;
    while (length < wanted) {
        la_ssize_t got = 0;
        if (in_file)
            got = pread(level->source.descriptor, reader->start + length, wanted - length,
                        (off_t)(reader->entry_offset + length));
        else
            got = archive_read_data(level->archive, reader->start + length, wanted - length);
        if (in_file && got < 0 && errno == EINTR)
            continue;
        if (in_file && got < 0)
            return fsh_error_system(error, errno, "%s: cannot read", level->path);
        level->fatal = got < 0;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    reader->start_bytes = length;
    return FSH_OK;
}

static TarSource stretch_of(const TarSource *source, uint64_t begin, uint64_t bytes)
{
    uint64_t left = source->end > begin ? source->end - begin : 0;
    return (TarSource){.descriptor = source->descriptor,
                       .begin = begin,
                       .offset = begin,
                       .end = begin + (bytes < left ? bytes : left)};
}

/* Opens the current entry as a tar if it is one, and sets *opened_ret. An entry of a plain tar is a stretch
 * of the file, so that both can skip; other content comes through the outer archive. */
static FshStatus open_inner(ArchiveReader *reader, bool *opened_ret, FshError *error)
{
    Level *outer = &reader->levels[0], *inner = &reader->levels[1];
    const char *path = (const char *)reader->name.bytes;
    size_t stem_bytes = reader->level == outer ? tar_name_stem(path) : 0;
    *opened_ret = false;
    /* A sparse one stays a file: it is no stretch, and its holes may be terabytes of zeros. */
    if (!stem_bytes || archive_entry_sparse_reset(reader->entry) > 0)
        return FSH_OK;
    uint64_t bytes = entry_bytes(reader->entry);
    bool in_file = is_plain(outer);
    FshStatus status = peek(reader, in_file, bytes, error);
    if (status || (!tar_sniff_start(reader->start, reader->start_bytes, true) &&
                   !tar_sniff_compressed(reader->start, reader->start_bytes)))
        goto done;
    *inner = (Level){.path = strdup(path), .stem_bytes = stem_bytes};
    if (in_file)
        inner->source = stretch_of(&outer->source, reader->entry_offset, bytes);
    else
        inner->source = (TarSource){.descriptor = -1,
                                    .outer = outer->archive,
                                    .start = reader->start,
                                    .start_bytes = reader->start_bytes};
    inner->archive = inner->path ? tar_source_archive(&inner->source, archive_read_support_format_tar) : NULL;
    if (!inner->archive) {
        close_level(inner);
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    reader->level = inner;
    *opened_ret = true;
    return FSH_OK;
done:
    if (in_file) /* nothing was taken from the archive */
        reader->start_bytes = 0;
    return status;
}

/* ---- the walk ---- */

/* Leaves the current tar and goes on after it. */
static void leave_level(ArchiveReader *reader)
{
    if (reader->level == &reader->levels[0]) {
        reader->ended = true;
        return;
    }
    reader->levels[0].fatal |= reader->level->source.outer_broke;
    close_level(reader->level);
    reader->level = &reader->levels[0];
}

/* Handles a header just read. Sets *given_ret to whether it is an entry for the caller. */
static FshStatus take_entry(ArchiveReader *reader, struct archive_entry *header, TarEntry *entry,
                            bool *given_ret, FshError *error)
{
    NameKind kind = NAME_FINE;
    const char *raw = archive_entry_pathname(header);
    *given_ret = false;
    if (archive_entry_filetype(header) == AE_IFDIR && !archive_entry_hardlink(header))
        return FSH_OK;
    FshStatus status = make_name(reader, raw ? raw : "", &kind, error);
    if (status)
        return status;
    if (kind == NAME_HIDDEN) {
        reader->hidden_count++;
        return FSH_OK;
    }
    *given_ret = true;
    *entry = (TarEntry){.path = (const char *)reader->name.bytes, .reason = reader->reason};
    if (kind == NAME_REFUSED || refuse_kind(reader, header))
        return FSH_OK;
    bool is_tar = false;
    reader->entry = header;
    reader->entry_offset = consumed_bytes(reader->level);
    status = open_inner(reader, &is_tar, error);
    if (status || is_tar) {
        *given_ret = false;
        return status;
    }
    const struct timespec modified = {.tv_sec = archive_entry_mtime(header),
                                      .tv_nsec = archive_entry_mtime_nsec(header)};
    entry->reason = NULL;
    entry->bytes = entry_bytes(header);
    entry->modified_ns = file_time_ns(modified);
    return FSH_OK;
}

/* Takes one step: a header, an end or damage. */
static FshStatus step(ArchiveReader *reader, TarEntry *entry, bool *given_ret, FshError *error)
{
    Level *level = reader->level;
    struct archive_entry *header = NULL;
    reader->entry = NULL;
    reader->start_bytes = 0;
    *given_ret = true;
    if (level->fatal && !level->told)
        return give_damage(reader, entry, consumed_bytes(level), archive_error_string(level->archive), error);
    int result = level->told ? ARCHIVE_EOF : archive_read_next_header(level->archive, &header);
    if (level->source.failure)
        return fail_to_read(level, error);
    if (reader->levels[0].source.failure)
        return fail_to_read(&reader->levels[0], error);
    /* A warning is about a name that the locale lacks, which is kept as it is. A retry means a bad header. */
    if (result == ARCHIVE_OK || result == ARCHIVE_WARN)
        return take_entry(reader, header, entry, given_ret, error);
    uint64_t offset = header_offset(level);
    if (result != ARCHIVE_EOF && archive_errno(level->archive) == ENOMEM)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", level->path);
    if (result != ARCHIVE_EOF)
        return give_damage(reader, entry, offset, archive_error_string(level->archive), error);
    if (!level->told && consumed_bytes(level) == offset)
        return give_damage(reader, entry, offset, "ends without an end marker; it may have been cut off",
                           error);
    *given_ret = false;
    leave_level(reader);
    return FSH_OK;
}

static FshStatus archive_next(TarReader *common, TarEntry *entry, FshError *error)
{
    ArchiveReader *reader = (ArchiveReader *)common;
    FshStatus status = FSH_OK;
    bool given = false;
    *entry = (TarEntry){0};
    locale_t before = uselocale(reader->plain_locale);
    while (!status && !given && !reader->ended)
        status = step(reader, entry, &given, error);
    (void)uselocale(before);
    if (status || !given)
        *entry = (TarEntry){0};
    return status;
}

/* Reads up to `bytes` bytes, the size of the current entry; fewer if the rest is a hole. */
static FshStatus read_content(ArchiveReader *reader, Buffer *content, uint64_t bytes, FshError *error)
{
    Level *level = reader->level;
    FshStatus status = buffer_append(content, reader->start, reader->start_bytes, error);
    while (!status && content->length < bytes) {
        uint64_t wanted = bytes - content->length;
        /* A compressed tar may claim more than it has: memory grows with the bytes read. */
        if (wanted > CHUNK_BYTES && archive_filter_code(level->archive, 0) != ARCHIVE_FILTER_NONE)
            wanted = CHUNK_BYTES;
        status = buffer_reserve(content, content->length + (size_t)wanted, error);
        if (status)
            return status;
        la_ssize_t got = ARCHIVE_FATAL; /* a broken archive is not read again, so that its message stays */
        if (!level->fatal)
            got = archive_read_data(level->archive, content->bytes + content->length, (size_t)wanted);
        if (got == 0)
            return FSH_OK;
        if (got > 0) {
            content->length += (size_t)got;
            continue;
        }
        level->fatal = true;
        const Level *failed = level->source.failure ? level : &reader->levels[0];
        if (failed->source.failure)
            return fsh_error_system(error, failed->source.failure, "cannot be read");
        return fsh_error_set(error, FSH_ERR_CORRUPT, "the tar is damaged %zu bytes into it: %s",
                             content->length, archive_error_string(level->archive));
    }
    return status;
}

static FshStatus archive_content(TarReader *common, Buffer *content, uint64_t most, FshError *error)
{
    ArchiveReader *reader = (ArchiveReader *)common;
    struct archive_entry *entry = reader->entry;
    const Level *level = reader->level;
    content->length = 0;
    reader->entry = NULL;
    if (!entry)
        return fsh_error_set(error, FSH_ERR_USAGE, "no entry of the tar is there to read");
    uint64_t bytes = entry_bytes(entry);
    if (bytes > most || bytes > SIZE_MAX / 2)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "has %" PRIu64 " bytes, more than the %" PRIu64 " allowed", bytes, most);
    bool sparse = archive_entry_sparse_reset(entry) > 0;
    uint64_t begin = level->source.begin + reader->entry_offset;
    if (!sparse && is_plain(level) && bytes > level->source.end - begin)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "the tar ends within it");
    FshStatus status = read_content(reader, content, bytes, error);
    size_t holes = status ? 0 : (size_t)bytes - content->length; /* a sparse file may end in one */
    if (holes)
        status = buffer_reserve(content, (size_t)bytes, error);
    if (holes && !status) {
        memset(content->bytes + content->length, 0, holes);
        content->length = (size_t)bytes;
    }
    if (status)
        content->length = 0;
    return status;
}

FSH_API const ArchivePlugin fshard_archive_plugin = {
    ARCHIVE_PLUGIN_HERE,
    .is_tar = archive_is_tar,
    .open = archive_open,
    .next = archive_next,
    .content = archive_content,
    .position = archive_position,
    .hidden_count = archive_hidden_count,
    .close = archive_close,
};
