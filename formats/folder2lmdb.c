/* The LMDBs of folder2lmdb.py (https://github.com/Lyken17/Efficient-PyTorch, tools/folder2lmdb.py, and its
 * many copies) whose values are pickles. A pickle is a program: it is not run here. Its opcodes stand in
 * CPython's pickletools.py. */

#include "formats/folder2lmdb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/mapped_pages.h"
#include "formats/json_scan.h"
#include "formats/lmdb_reader.h"
#include "formats/sample_table.h"

/* ---- pickle ---- */

/* What an opcode does to the few things that a tuple of bytes and int needs. */
typedef enum PickleAction {
    ACTION_REFUSE = 0,
    ACTION_SKIP,      /* a fixed argument that says nothing here: memo, protocol */
    ACTION_SKIP_LINE, /* PUT: an argument up to a newline */
    ACTION_FRAME,     /* 8 bytes of length */
    ACTION_MARK,
    ACTION_BYTES,      /* a length, then as many bytes */
    ACTION_INT,        /* a little endian number */
    ACTION_INT_SIGNED, /* the same with a sign */
    ACTION_INT_LINE,   /* decimal digits, perhaps an L, a newline */
    ACTION_LONG,       /* a length, then as many bytes of a number with a sign */
    ACTION_TUPLE,      /* of all since the mark */
    ACTION_TUPLE2,
    ACTION_STOP,
} PickleAction;

typedef struct PickleOpcode {
    uint8_t code, argument_bytes;
    PickleAction action;
    const char *name;
} PickleOpcode;

static const PickleOpcode opcodes[] = {
    {0x80, 1, ACTION_SKIP, "PROTO"},
    {0x95, 8, ACTION_FRAME, "FRAME"},
    {'(', 0, ACTION_MARK, "MARK"},
    {'C', 1, ACTION_BYTES, "SHORT_BINBYTES"},
    {'B', 4, ACTION_BYTES, "BINBYTES"},
    {0x8E, 8, ACTION_BYTES, "BINBYTES8"},
    {0x96, 8, ACTION_BYTES, "BYTEARRAY8"},
    {'U', 1, ACTION_BYTES, "SHORT_BINSTRING"}, /* str of Python 2 */
    {'T', 4, ACTION_BYTES, "BINSTRING"},
    {'K', 1, ACTION_INT, "BININT1"},
    {'M', 2, ACTION_INT, "BININT2"},
    {'J', 4, ACTION_INT_SIGNED, "BININT"},
    {'I', 0, ACTION_INT_LINE, "INT"},
    {'L', 0, ACTION_INT_LINE, "LONG"},
    {0x8A, 1, ACTION_LONG, "LONG1"},
    {0x8B, 4, ACTION_LONG, "LONG4"},
    {'p', 0, ACTION_SKIP_LINE, "PUT"},
    {'q', 1, ACTION_SKIP, "BINPUT"},
    {'r', 4, ACTION_SKIP, "LONG_BINPUT"},
    {0x94, 0, ACTION_SKIP, "MEMOIZE"},
    {'t', 0, ACTION_TUPLE, "TUPLE"},
    {0x86, 0, ACTION_TUPLE2, "TUPLE2"},
    {'.', 0, ACTION_STOP, "STOP"},
    /* Known, so that the refusal has a name. */
    {'0', 0, ACTION_REFUSE, "POP"},
    {'1', 0, ACTION_REFUSE, "POP_MARK"},
    {'2', 0, ACTION_REFUSE, "DUP"},
    {'F', 0, ACTION_REFUSE, "FLOAT"},
    {'G', 0, ACTION_REFUSE, "BINFLOAT"},
    {'N', 0, ACTION_REFUSE, "NONE"},
    {'P', 0, ACTION_REFUSE, "PERSID"},
    {'Q', 0, ACTION_REFUSE, "BINPERSID"},
    {'R', 0, ACTION_REFUSE, "REDUCE"},
    {'S', 0, ACTION_REFUSE, "STRING"},
    {'V', 0, ACTION_REFUSE, "UNICODE"},
    {'X', 0, ACTION_REFUSE, "BINUNICODE"},
    {0x8C, 0, ACTION_REFUSE, "SHORT_BINUNICODE"},
    {0x8D, 0, ACTION_REFUSE, "BINUNICODE8"},
    {'a', 0, ACTION_REFUSE, "APPEND"},
    {'b', 0, ACTION_REFUSE, "BUILD"},
    {'c', 0, ACTION_REFUSE, "GLOBAL"},
    {'d', 0, ACTION_REFUSE, "DICT"},
    {'}', 0, ACTION_REFUSE, "EMPTY_DICT"},
    {'e', 0, ACTION_REFUSE, "APPENDS"},
    {'g', 0, ACTION_REFUSE, "GET"},
    {'h', 0, ACTION_REFUSE, "BINGET"},
    {'i', 0, ACTION_REFUSE, "INST"},
    {'j', 0, ACTION_REFUSE, "LONG_BINGET"},
    {'l', 0, ACTION_REFUSE, "LIST"},
    {']', 0, ACTION_REFUSE, "EMPTY_LIST"},
    {'o', 0, ACTION_REFUSE, "OBJ"},
    {'s', 0, ACTION_REFUSE, "SETITEM"},
    {'u', 0, ACTION_REFUSE, "SETITEMS"},
    {')', 0, ACTION_REFUSE, "EMPTY_TUPLE"},
    {0x81, 0, ACTION_REFUSE, "NEWOBJ"},
    {0x82, 0, ACTION_REFUSE, "EXT1"},
    {0x83, 0, ACTION_REFUSE, "EXT2"},
    {0x84, 0, ACTION_REFUSE, "EXT4"},
    {0x85, 0, ACTION_REFUSE, "TUPLE1"},
    {0x87, 0, ACTION_REFUSE, "TUPLE3"},
    {0x88, 0, ACTION_REFUSE, "NEWTRUE"},
    {0x89, 0, ACTION_REFUSE, "NEWFALSE"},
    {0x8F, 0, ACTION_REFUSE, "EMPTY_SET"},
    {0x90, 0, ACTION_REFUSE, "ADDITEMS"},
    {0x91, 0, ACTION_REFUSE, "FROZENSET"},
    {0x92, 0, ACTION_REFUSE, "NEWOBJ_EX"},
    {0x93, 0, ACTION_REFUSE, "STACK_GLOBAL"},
    {0x97, 0, ACTION_REFUSE, "NEXT_BUFFER"},
    {0x98, 0, ACTION_REFUSE, "READONLY_BUFFER"},
};

typedef enum PickleItem { ITEM_MARK, ITEM_BYTES, ITEM_INT, ITEM_TUPLE } PickleItem;
enum { STACK_MAX = 3 }; /* mark, bytes, int */

typedef struct PickleReader {
    const uint8_t *bytes;
    size_t length, at;
    PickleItem stack[STACK_MAX];
    size_t depth;
    uint64_t image_at, image_bytes;
    int64_t label;
} PickleReader;

static const PickleOpcode *find_opcode(uint8_t code)
{
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        if (opcodes[i].code == code)
            return &opcodes[i];
    }
    return NULL;
}

static uint64_t load_argument(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

/* Returns the integer of up to 8 bytes, little-endian, in two's complement. */
static int64_t load_signed(const uint8_t *at, size_t bytes)
{
    uint64_t value = load_argument(at, bytes);
    if (bytes && bytes < 8 && at[bytes - 1] & 0x80)
        value |= UINT64_MAX << (8 * bytes);
    return (int64_t)value;
}

/* Takes the line at reader->at, without its newline. Returns false if there is none. */
static bool take_line(PickleReader *reader, const uint8_t **line, size_t *bytes)
{
    *line = reader->bytes + reader->at;
    const uint8_t *end = memchr(*line, '\n', reader->length - reader->at);
    if (!end)
        return false;
    *bytes = (size_t)(end - *line);
    reader->at += *bytes + 1;
    return true;
}

static bool read_int_line(PickleReader *reader)
{
    const uint8_t *line;
    size_t bytes;
    if (!take_line(reader, &line, &bytes))
        return false;
    if (bytes && line[bytes - 1] == 'L')
        bytes--;
    JsonSlice number = {.kind = JSON_SCAN_NUMBER, .text = (const char *)line, .bytes = bytes};
    return bytes && fsh_json_slice_integer(&number, &reader->label);
}

static bool push(PickleReader *reader, PickleItem item)
{
    if (reader->depth == STACK_MAX)
        return false;
    reader->stack[reader->depth++] = item;
    return true;
}

/* Replaces bytes and int at the top of the stack (above a mark, if marked) by the tuple. Returns false if
 * something else is there. */
static bool reduce_tuple(PickleReader *reader, bool marked)
{
    size_t items = marked ? 3 : 2;
    if (reader->depth != items || (marked && reader->stack[0] != ITEM_MARK) ||
        reader->stack[items - 2] != ITEM_BYTES || reader->stack[items - 1] != ITEM_INT)
        return false;
    reader->depth = 0;
    return push(reader, ITEM_TUPLE);
}

/* Does the opcode. Returns false if what it needs is not there. */
static bool perform(PickleReader *reader, const PickleOpcode *opcode)
{
    const uint8_t *line;
    size_t bytes, left = reader->length - reader->at;
    if (opcode->argument_bytes > left)
        return false;
    const uint8_t *argument = reader->bytes + reader->at;
    uint64_t value = load_argument(argument, opcode->argument_bytes);
    reader->at += opcode->argument_bytes;
    left -= opcode->argument_bytes;
    switch (opcode->action) {
    case ACTION_SKIP:
    case ACTION_STOP:
        return true;
    case ACTION_SKIP_LINE:
        return take_line(reader, &line, &bytes);
    case ACTION_FRAME:
        return value <= left;
    case ACTION_MARK:
        return push(reader, ITEM_MARK);
    case ACTION_BYTES:
        if (value > left)
            return false;
        reader->image_at = reader->at;
        reader->image_bytes = value;
        reader->at += (size_t)value;
        return push(reader, ITEM_BYTES);
    case ACTION_INT:
        reader->label = (int64_t)value;
        return push(reader, ITEM_INT);
    case ACTION_INT_SIGNED:
        reader->label = load_signed(argument, opcode->argument_bytes);
        return push(reader, ITEM_INT);
    case ACTION_INT_LINE:
        return read_int_line(reader) && push(reader, ITEM_INT);
    case ACTION_LONG:
        if (value > left || value > sizeof(int64_t))
            return false;
        reader->label = load_signed(reader->bytes + reader->at, (size_t)value);
        reader->at += (size_t)value;
        return push(reader, ITEM_INT);
    case ACTION_TUPLE:
        return reduce_tuple(reader, true);
    case ACTION_TUPLE2:
        return reduce_tuple(reader, false);
    case ACTION_REFUSE:
        break;
    }
    return false;
}

/* Returns the name of another format that the bytes are in, or NULL. msgpack begins with an array, pyarrow
 * with a count of small numbers; a pickle of a tuple begins with neither. */
static const char *other_format(const uint8_t *bytes, size_t length)
{
    if (length &&
        ((bytes[0] >= 0x90 && bytes[0] <= 0x93 && length > 1 && bytes[1] >= 0xA0) || bytes[0] == 0xDC))
        return "msgpack";
    if (length >= 4 && load_le32(bytes) <= 0xFF && bytes[0] != '(')
        return "pyarrow";
    return NULL;
}

FshStatus fsh_pickle_sample(const uint8_t *bytes, size_t length, uint64_t *image_at, uint64_t *image_bytes,
                            int64_t *label_ret, FshError *error)
{
    PickleReader reader = {.bytes = bytes, .length = length};
    const PickleOpcode *opcode = NULL;
    const char *other = other_format(bytes, length);
    if (other)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "was written with %s, not with pickle, and is not read; pack the images themselves", other);
    do {
        size_t at = reader.at;
        opcode = at < length ? find_opcode(bytes[at]) : NULL;
        if (at == length)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "pickle without an end");
        if (!opcode)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "byte %02x at %zu is no opcode of pickle",
                                 bytes[at], at);
        if (opcode->action == ACTION_REFUSE)
            return fsh_error_set(
                error, FSH_ERR_UNSUPPORTED,
                "opcode %s at byte %zu of a pickle: only (bytes, int) is read, and nothing is executed; "
                "in Python 3 that is pickle.dumps((image, int(label)), protocol=4)",
                opcode->name, at);
        reader.at = at + 1;
        if (!perform(&reader, opcode))
            return fsh_error_set(
                error, FSH_ERR_CORRUPT,
                "opcode %s at byte %zu of a pickle does not fit: cut short, or not (bytes, int)",
                opcode->name, at);
    } while (opcode->action != ACTION_STOP);
    if (reader.depth != 1 || reader.stack[0] != ITEM_TUPLE)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "a pickle of something else than (bytes, int)");
    if (reader.at != length)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%zu bytes after the end of a pickle",
                             length - reader.at);
    *image_at = reader.image_at;
    *image_bytes = reader.image_bytes;
    *label_ret = reader.label;
    return FSH_OK;
}

/* ---- the database ---- */

typedef struct Found {
    uint64_t index, image_at, image_bytes;
    int64_t label;
} Found;

typedef struct Folder2lmdb {
    const uint8_t *bytes;
    Buffer found; /* in the order of the keys' bytes: "0", "1", "10", … */
} Folder2lmdb;

static bool parse_index(const LmdbEntry *entry, uint64_t *index_ret)
{
    uint64_t index = 0;
    enum { DIGITS_MAX = 18 };
    if (entry->key_bytes < 1 || entry->key_bytes > DIGITS_MAX ||
        (entry->key[0] == '0' && entry->key_bytes > 1))
        return false;
    for (size_t i = 0; i < entry->key_bytes; i++) {
        if (entry->key[i] < '0' || entry->key[i] > '9')
            return false;
        index = index * 10 + (uint64_t)(entry->key[i] - '0');
    }
    *index_ret = index;
    return true;
}

static bool key_is(const LmdbEntry *entry, const char *text)
{
    return entry->key_bytes == strlen(text) && memcmp(entry->key, text, entry->key_bytes) == 0;
}

static FshStatus visit(const LmdbEntry *entry, void *context, FshError *error)
{
    Folder2lmdb *lmdb = context;
    Found found = {0};
    if (key_is(entry, "__keys__") || key_is(entry, "__len__"))
        return FSH_OK;
    if (!parse_index(entry, &found.index))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "key \"%.*s\": neither a number nor __keys__ or __len__", (int)entry->key_bytes,
                             entry->key);
    mapped_pages_note(lmdb->bytes + entry->offset, entry->bytes);
    FshStatus status = fsh_pickle_sample(lmdb->bytes + entry->offset, (size_t)entry->bytes, &found.image_at,
                                         &found.image_bytes, &found.label, error);
    if (status)
        return fsh_error_prepend(error, "key %" PRIu64, found.index);
    found.image_at += entry->offset;
    return buffer_append(&lmdb->found, &found, sizeof found, error);
}

/* Ends the walk at once; the status is not seen outside. */
static FshStatus visit_first(const LmdbEntry *entry, void *context, FshError *error)
{
    uint64_t index;
    (void)error;
    *(bool *)context = parse_index(entry, &index) || key_is(entry, "__keys__") || key_is(entry, "__len__");
    return FSH_ERR_INTERRUPTED;
}

bool fsh_folder2lmdb_sniff(const uint8_t *bytes, uint64_t length)
{
    bool found = false;
    return fsh_lmdb_walk(bytes, length, visit_first, &found, NULL) == FSH_ERR_INTERRUPTED && found;
}

static int compare_found(const void *a, const void *b)
{
    const Found *first = a, *second = b;
    return first->index < second->index ? -1 : first->index > second->index;
}

FshStatus fsh_folder2lmdb_table(SampleTable *table, const uint8_t *bytes, uint64_t length, FshError *error)
{
    static const char *const names[] = {"image"};
    Folder2lmdb lmdb = {.bytes = bytes};
    *table = (SampleTable){.label_max = FSH_NO_LABEL};
    FshStatus status = fsh_table_name_fields(table, names, 1, error);
    if (!status)
        status = fsh_lmdb_walk(bytes, length, visit, &lmdb, error);
    size_t count = lmdb.found.length / sizeof(Found);
    Found *found = (Found *)(void *)lmdb.found.bytes;
    if (!status && count)
        qsort(found, count, sizeof *found, compare_found);
    for (size_t i = 0; i < count && !status; i++) {
        char key[24];
        int key_bytes = snprintf(key, sizeof key, "%zu", i);
        if (found[i].index != i)
            status =
                fsh_error_set(error, FSH_ERR_CORRUPT, "there is no key %zu, but %" PRIu64, i, found[i].index);
        if (!status)
            status = fsh_table_add(table, key, (size_t)key_bytes, error);
        if (!status)
            status = fsh_table_label(table, i, found[i].label, error);
        if (!status)
            *fsh_table_fields(table, i) =
                (FieldRow){.offset = found[i].image_at, .bytes = found[i].image_bytes};
    }
    buffer_free(&lmdb.found);
    if (status)
        fsh_table_free(table);
    return status;
}
