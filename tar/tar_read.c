#include "tar/tar_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tar/archive_plugin.h"
#include "tar/tar_parse.h"
#include "tar/tar_sniff.h"

enum { CHUNK_BYTES = 1 << 20 }; /* memory that a mere claim of a header may cost */

/* A tar being read. */
typedef struct Level {
    TarSource file, plain; /* its bytes as they are stored; what they become, if they are compressed */
    TarCursor cursor;      /* over one of these */
    char *path;            /* owned: as messages name it */
    size_t stem_bytes;     /* of path, before its entries' names; 0 for the outer tar */
    bool broken;           /* its damage was told: there is no more of it */
} Level;

struct TarReader {
    Level levels[2]; /* the file's, and that of a tar in it */
    Level *level;    /* the current one */
    TarMember member;
    bool readable; /* member's content can be read, and was not yet */
    bool ended;
    uint64_t hidden_count, unmarked_count;
    char *first_unmarked; /* owned; NULL: none */
    Buffer name;          /* path of the current entry */
    char reason[512];
};

/* ---- opening ---- */

static bool is_compressed(const Level *level)
{
    return level->cursor.source == &level->plain;
}

/* Looks at the first bytes of the level's file, and points its cursor to the bytes of the tar. *is_tar_ret:
 * they begin as a tar does, or are compressed. Fails where they are compressed, and no plugin is there. */
static FshStatus begin(Level *level, bool named_tar, bool *is_tar_ret, FshError *error)
{
    const uint8_t *start = NULL;
    size_t length = 0;
    level->cursor.source = &level->file;
    level->cursor.as_stream = true;
    FshStatus status = tar_source_at(&level->file, 0, TAR_START_BYTES, &start, &length, error);
    *is_tar_ret = !status && tar_sniff_start(start, length, named_tar);
    if (status || *is_tar_ret || !tar_sniff_compressed(start, length))
        return status;
    *is_tar_ret = true;
    level->cursor.source = &level->plain;
    return tar_source_decompress(&level->plain, &level->file, error);
}

/* Does what begin does for a tar in a file, and looks at the decompressed bytes, too. */
static FshStatus begin_file(Level *level, const char *path, bool *is_tar_ret, FshError *error)
{
    struct stat file;
    const uint8_t *start = NULL;
    size_t length = 0;
    const bool named_tar = tar_name_stem(path) > 0;
    *is_tar_ret = false;
    level->file.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a FIFO */
    if (level->file.descriptor < 0)
        return fsh_error_system(error, errno, "cannot open");
    if (fstat(level->file.descriptor, &file))
        return fsh_error_system(error, errno, "cannot read its size");
    if (!S_ISREG(file.st_mode))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "is not a regular file");
    level->file = tar_source_file(level->file.descriptor, (uint64_t)file.st_size);
    FshStatus status = begin(level, named_tar, is_tar_ret, error);
    if (!status && is_compressed(level)) {
        status = tar_source_at(&level->plain, 0, TAR_START_BYTES, &start, &length, error);
        if (status == FSH_ERR_CORRUPT) /* cut short: a header may be there */
            status = tar_source_at(&level->plain, 0, TAR_START_BYTES / 2, &start, &length, error);
        *is_tar_ret = !status && tar_sniff_start(start, length, named_tar);
    }
    return status;
}

static void close_level(Level *level)
{
    fsh_tar_free(&level->cursor);
    tar_source_close(&level->plain);
    tar_source_close(&level->file);
    free(level->path);
    *level = (Level){.file.descriptor = -1};
}

static void close_file(Level *level)
{
    const int descriptor = level->file.descriptor;
    close_level(level);
    if (descriptor >= 0)
        (void)close(descriptor);
}

bool tar_is_tar(const char *path)
{
    Level level = {.file.descriptor = -1};
    bool is_tar = false;
    (void)begin_file(&level, path, &is_tar, NULL);
    close_file(&level);
    return is_tar;
}

bool tar_is_named(const char *path)
{
    return tar_name_stem(path) > 0;
}

FshStatus tar_reader_open(TarReader **reader, const char *path, FshError *error)
{
    bool is_tar = false;
    TarReader *opened = calloc(1, sizeof *opened);
    *reader = NULL;
    if (!opened)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    opened->level = &opened->levels[0];
    opened->level->file.descriptor = -1;
    opened->level->path = strdup(path);
    FshStatus status = opened->level->path ? begin_file(opened->level, path, &is_tar, error)
                                           : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (status == FSH_ERR_CORRUPT || (!status && !is_tar)) /* compressed, it may be anything */
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "is no tar, plain or compressed by gzip, bzip2, xz, zstd, lz4 or lzip");
    if (status) {
        (void)fsh_error_prepend(error, "%s", path);
        tar_reader_close(&opened);
        return status;
    }
    *reader = opened;
    return FSH_OK;
}

FshStatus tar_reader_name(TarReader *reader, const char *name, FshError *error)
{
    char *copy = strdup(name);
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    free(reader->levels[0].path);
    reader->levels[0].path = copy;
    return FSH_OK;
}

void tar_reader_close(TarReader **reader)
{
    TarReader *closed = *reader;
    if (!closed)
        return;
    close_level(&closed->levels[1]);
    close_file(&closed->levels[0]);
    buffer_free(&closed->name);
    free(closed->first_unmarked);
    free(closed);
    *reader = NULL;
}

void tar_reader_position(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret)
{
    const TarSource *file = &reader->level->file, *outer = &reader->levels[0].file;
    if (file->base) /* read through the outer tar */
        file = outer;
    *position_ret = file->begin + tar_source_position(file);
    *extent_ret = outer->length;
}

uint64_t tar_reader_hidden_count(const TarReader *reader)
{
    return reader->hidden_count;
}

uint64_t tar_reader_unmarked(const TarReader *reader, const char **first_ret)
{
    if (reader->unmarked_count)
        *first_ret = reader->first_unmarked;
    return reader->unmarked_count;
}

/* ---- names ---- */

typedef enum NameKind { NAME_FINE, NAME_HIDDEN, NAME_REFUSED } NameKind;

/* Makes the reader's name from the entry's: the inner tar's stem before it, no "." parts, single slashes. A
 * refused name stays as it is. */
static FshStatus make_name(TarReader *reader, const char *raw, NameKind *kind_ret, FshError *error)
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

/* Returns whether the member is no file, and then sets the reason. */
static bool refuse_kind(TarReader *reader)
{
    static const struct {
        uint8_t kind;
        const char *reason;
    } kinds[] = {
        {'2', "is a symbolic link"}, {'3', "is a device"},           {'4', "is a device"},
        {'6', "is a named pipe"},    {'M', "is not a regular file"}, /* the rest of one in another tar */
    };
    const TarMember *member = &reader->member;
    if (member->kind == '1') {
        (void)snprintf(reader->reason, sizeof reader->reason, "is a hard link to %s", member->link);
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].kind == member->kind) {
            (void)snprintf(reader->reason, sizeof reader->reason, "%s", kinds[i].reason);
            return true;
        }
    }
    return false;
}

/* Returns whether the member is nothing that could be read: a folder, GNU's list of one, the label of a tape,
 * rights of Solaris. A file whose name ends in '/' is a folder of old tars. */
static bool is_passed_over(const TarMember *member)
{
    const uint8_t kind = member->kind;
    const bool is_file = kind != '1' && kind != '2' && kind != '3' && kind != '4' && kind != '6';
    return kind == '5' || kind == 'D' || kind == 'V' || kind == 'A' ||
           (is_file && member->path_bytes && member->path[member->path_bytes - 1] == '/');
}

/* ---- the walk ---- */

/* Gives the entry that reports damage; the level ends after it. The message is "byte N: …". */
static FshStatus give_damage(TarReader *reader, TarEntry *entry, const FshError *damage, FshError *error)
{
    Level *level = reader->level;
    const char *message = damage->message;
    const size_t place_bytes = strcspn(message, ":");
    level->broken = true;
    (void)snprintf(reader->reason, sizeof reader->reason, "is damaged at %.*s%s%s", (int)place_bytes, message,
                   is_compressed(level) ? " of its uncompressed bytes" : "", message + place_bytes);
    reader->name.length = 0;
    FshStatus status = buffer_append(&reader->name, level->path, strlen(level->path) + 1, error);
    *entry = (TarEntry){.path = status ? NULL : (const char *)reader->name.bytes, .reason = reader->reason};
    return status;
}

/* Returns whether a member may be a tar, by its first bytes. They stay in the window of the tar around it:
 * what is none can still be read, where the tar is compressed and only goes on. */
static bool begins_as_tar(Level *outer, const TarMember *member)
{
    const uint8_t *start = NULL;
    const size_t wanted = member->bytes < TAR_START_BYTES ? (size_t)member->bytes : TAR_START_BYTES;
    size_t length = 0;
    if (tar_source_at(outer->cursor.source, member->content, wanted, &start, &length, NULL))
        return false;
    length = length < wanted ? length : wanted;
    return tar_sniff_start(start, length, true) || tar_sniff_compressed(start, length);
}

/* Opens the current entry as a tar if it is one, and sets *opened_ret; *refused_ret: it is one, and the
 * reason says why it cannot be read. A sparse one stays a file: its holes may be terabytes of zeros. */
static FshStatus open_inner(TarReader *reader, bool *opened_ret, bool *refused_ret, FshError *error)
{
    Level *outer = &reader->levels[0], *inner = &reader->levels[1];
    const char *path = (const char *)reader->name.bytes;
    const size_t stem_bytes = reader->level == outer ? tar_name_stem(path) : 0;
    FshError failure = {0};
    *opened_ret = *refused_ret = false;
    if (!stem_bytes || outer->cursor.sparse.given)
        return FSH_OK;
    *inner = (Level){
        .file = tar_source_stretch(outer->cursor.source, reader->member.content, reader->member.bytes),
        .path = strdup(path),
        .stem_bytes = stem_bytes};
    FshStatus status =
        inner->path ? FSH_OK : fsh_error_set(&failure, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status && begins_as_tar(outer, &reader->member))
        status = begin(inner, true, opened_ret, &failure);
    if (status == FSH_ERR_UNSUPPORTED) {
        (void)snprintf(reader->reason, sizeof reader->reason, "%.*s", (int)sizeof reader->reason - 1,
                       failure.message);
        *refused_ret = true;
    }
    if (*opened_ret && !status)
        reader->level = inner;
    else
        close_level(inner);
    *opened_ret = *opened_ret && !status;
    if (status && status != FSH_ERR_UNSUPPORTED && status != FSH_ERR_CORRUPT) {
        if (error)
            *error = failure;
        return status;
    }
    return FSH_OK; /* what is damaged is told by who reads its content */
}

/* Leaves the current tar and goes on after it. */
static FshStatus leave_level(TarReader *reader, FshError *error)
{
    const Level *level = reader->level;
    if (!level->broken && !level->cursor.marked_end) {
        if (!reader->first_unmarked && !(reader->first_unmarked = strdup(level->path)))
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", level->path);
        reader->unmarked_count++;
    }
    if (reader->level == &reader->levels[0]) {
        reader->ended = true;
        return FSH_OK;
    }
    close_level(reader->level);
    reader->level = &reader->levels[0];
    return FSH_OK;
}

/* Handles the member just met. Sets *given_ret to whether it is an entry for the caller. */
static FshStatus take_member(TarReader *reader, TarEntry *entry, bool *given_ret, FshError *error)
{
    const TarMember *member = &reader->member;
    const TarSparse *sparse = &reader->level->cursor.sparse;
    NameKind kind = NAME_FINE;
    bool is_tar = false, is_refused = false;
    *given_ret = false;
    if (is_passed_over(member))
        return FSH_OK;
    FshStatus status = make_name(reader, member->path, &kind, error);
    if (status)
        return status;
    if (kind == NAME_HIDDEN) {
        reader->hidden_count++;
        return FSH_OK;
    }
    *given_ret = true;
    *entry = (TarEntry){.path = (const char *)reader->name.bytes, .reason = reader->reason};
    if (kind == NAME_REFUSED || refuse_kind(reader))
        return FSH_OK;
    status = open_inner(reader, &is_tar, &is_refused, error);
    *given_ret = !status && !is_tar;
    if (status || is_tar || is_refused)
        return status;
    reader->readable = true;
    entry->reason = NULL;
    entry->bytes = sparse->given ? sparse->bytes : member->bytes;
    entry->modified_ns = member->modified_ns;
    return FSH_OK;
}

/* Takes one step: a member, an end or damage. */
static FshStatus step(TarReader *reader, TarEntry *entry, bool *given_ret, FshError *error)
{
    Level *level = reader->level;
    FshError failure = {0};
    reader->member.path = NULL;
    FshStatus status = level->broken ? FSH_OK : fsh_tar_next(&level->cursor, &reader->member, &failure);
    *given_ret = status == FSH_ERR_CORRUPT;
    if (status == FSH_ERR_CORRUPT)
        return give_damage(reader, entry, &failure, error);
    if (status) {
        if (error)
            *error = failure;
        return fsh_error_prepend(error, "%s", level->path);
    }
    if (reader->member.path)
        return take_member(reader, entry, given_ret, error);
    return leave_level(reader, error);
}

FshStatus tar_reader_next(TarReader *reader, TarEntry *entry, FshError *error)
{
    FshStatus status = FSH_OK;
    bool given = false;
    *entry = (TarEntry){0};
    reader->readable = false;
    while (!status && !given && !reader->ended)
        status = step(reader, entry, &given, error);
    if (status || !given)
        *entry = (TarEntry){0};
    return status;
}

/* ---- content ---- */

/* Fails because the tar ends before the entry does. Names the tar: whoever tells of the entry need not. */
static FshStatus fail_ended(const TarReader *reader, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s ends within it: " TAR_CUT_SHORT, reader->level->path);
}

/* Appends a part of the stored content, from `begin` of it on. */
static FshStatus read_part(TarReader *reader, Buffer *content, uint64_t begin, size_t bytes, FshError *error)
{
    TarSource *source = reader->level->cursor.source;
    const size_t end = content->length + bytes;
    size_t got = 1;
    FshStatus status = FSH_OK;
    while (!status && got && content->length < end) {
        /* A compressed tar may claim more than it has: memory grows with the bytes read. */
        const size_t left = end - content->length;
        const size_t wanted = left > CHUNK_BYTES && is_compressed(reader->level) ? CHUNK_BYTES : left;
        status = buffer_reserve(content, content->length + wanted, error);
        if (status)
            return status;
        status = tar_source_read(source, reader->member.content + begin, content->bytes + content->length,
                                 wanted, &got, error);
        content->length += got;
        begin += got;
    }
    if (status == FSH_ERR_CORRUPT)
        return fsh_error_prepend(error, "%s is damaged %zu bytes into it", reader->level->path,
                                 content->length);
    return !status && content->length < end ? fail_ended(reader, error) : status;
}

/* Appends zeros up to a length. */
static FshStatus fill_hole(Buffer *content, uint64_t length, FshError *error)
{
    const FshStatus status = buffer_reserve(content, (size_t)length, error);
    if (!status && length > content->length) {
        memset(content->bytes + content->length, 0, (size_t)length - content->length);
        content->length = (size_t)length;
    }
    return status;
}

/* Reads the parts of a sparse file, with zeros between them. */
static FshStatus read_sparse(TarReader *reader, Buffer *content, FshError *error)
{
    const TarSparse *sparse = &reader->level->cursor.sparse;
    uint64_t stored = 0;
    FshStatus status = FSH_OK;
    for (size_t at = 0; at < sparse->parts.length && !status; at += sizeof(TarPart)) {
        TarPart part;
        memcpy(&part, sparse->parts.bytes + at, sizeof part);
        if (part.offset < content->length || part.offset > sparse->bytes ||
            part.bytes > sparse->bytes - part.offset || part.bytes > reader->member.bytes - stored)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "the tar has a wrong map of its holes");
        status = fill_hole(content, part.offset, error);
        if (!status)
            status = read_part(reader, content, stored, (size_t)part.bytes, error);
        stored += part.bytes;
    }
    return status ? status : fill_hole(content, sparse->bytes, error);
}

FshStatus tar_reader_content(TarReader *reader, Buffer *content, uint64_t most, FshError *error)
{
    const Level *level = reader->level;
    const TarSparse *sparse = &level->cursor.sparse;
    const TarMember *member = &reader->member;
    const uint64_t bytes = sparse->given ? sparse->bytes : member->bytes;
    content->length = 0;
    if (!reader->readable)
        return fsh_error_set(error, FSH_ERR_USAGE, "no entry of the tar is there to read");
    reader->readable = false;
    if (bytes > most || bytes > SIZE_MAX / 2)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "has %" PRIu64 " bytes, more than the %" PRIu64 " allowed", bytes, most);
    if (member->content > level->cursor.source->length ||
        member->bytes > level->cursor.source->length - member->content)
        return fail_ended(reader, error);
    FshStatus status = sparse->given ? read_sparse(reader, content, error)
                                     : read_part(reader, content, 0, (size_t)bytes, error);
    if (status)
        content->length = 0;
    return status;
}
