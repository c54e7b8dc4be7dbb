/* A walk over the pages of data.mdb; what is read of LMDB's format stands in fshard(5).
 *
 * Why not liblmdb: it follows page numbers and lengths of the file without looking (CVE-2019-16224 to 16228
 * are of that kind), it must not open a file twice in a process, and each read needs a transaction. Here
 * everything is checked, once, and after that a read is an addition. */

#include "formats/lmdb_reader.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "formats/shard.h"

enum {
    PAGE_HEADER_BYTES = 16,
    PAGE_BYTES_MIN = 256,
    PAGE_BYTES_MAX = 32768,
    DEPTH_MAX = 32,
    NODE_HEADER_BYTES = 8,
    LMDB_FORMAT_VERSION = 1,

    AT_PAGE_NUMBER = 0,
    AT_FLAGS = 10,
    AT_LOWER = 12,
    AT_UPPER = 14,

    FLAG_BRANCH = 1,
    FLAG_LEAF = 2,
    FLAG_META = 8,

    AT_META_MAGIC = 16,
    AT_META_VERSION = 20,
    AT_META_PAGE_BYTES = 40,
    AT_TREE_FLAGS = 92,
    AT_TREE_DEPTH = 94,
    AT_TREE_ENTRIES = 120,
    AT_TREE_ROOT = 128,
    AT_META_TRANSACTION = 144,
    META_END = 152,

    NODE_LOW = 0,
    NODE_HIGH = 2,
    NODE_FLAGS = 4,
    NODE_KEY_BYTES = 6,
    NODE_IN_OVERFLOW = 1,
};

static const uint32_t lmdb_magic = 0xBEEFC0DE;

typedef struct Tree {
    const uint8_t *bytes;
    uint64_t length, page_bytes, page_count;
    uint64_t root, entry_count, transaction;
    unsigned depth;
} Tree;

bool fsh_lmdb_sniff(const uint8_t *bytes, uint64_t length)
{
    return length >= META_END && load_le16(bytes + AT_FLAGS) == FLAG_META &&
           load_le32(bytes + AT_META_MAGIC) == lmdb_magic;
}

FshStatus fsh_lmdb_data_path(char data_path[PATH_MAX], const char *path, FshError *error)
{
    if (!file_exists(path) || file_is_folder(path))
        return file_join(data_path, PATH_MAX, path, LMDB_DATA_NAME, error);
    return (size_t)snprintf(data_path, PATH_MAX, "%s", path) < PATH_MAX
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
}

/* Takes the tree of one meta page if it is the newer. */
static FshStatus read_meta(Tree *tree, unsigned page_number, FshError *error)
{
    const uint8_t *meta = tree->bytes + page_number * tree->page_bytes;
    if (!fsh_lmdb_sniff(meta, tree->page_bytes) || load_le32(meta + AT_META_VERSION) != LMDB_FORMAT_VERSION ||
        load_le32(meta + AT_META_PAGE_BYTES) != tree->page_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "meta page %u is damaged", page_number);
    uint64_t transaction = load_le64(meta + AT_META_TRANSACTION);
    if (page_number > 0 && transaction <= tree->transaction)
        return FSH_OK;
    tree->transaction = transaction;
    tree->root = load_le64(meta + AT_TREE_ROOT);
    tree->entry_count = load_le64(meta + AT_TREE_ENTRIES);
    tree->depth = load_le16(meta + AT_TREE_DEPTH);
    if (load_le16(meta + AT_TREE_FLAGS) != 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "LMDB with flags %04x: not written by fshard",
                             load_le16(meta + AT_TREE_FLAGS));
    return FSH_OK;
}

static bool tree_is_empty(const Tree *tree)
{
    return tree->depth == 0 && tree->entry_count == 0 && tree->root == UINT64_MAX;
}

static FshStatus read_metas(Tree *tree, FshError *error)
{
    if (!fsh_lmdb_sniff(tree->bytes, tree->length))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is no LMDB: wrong magic");
    uint32_t version = load_le32(tree->bytes + AT_META_VERSION);
    if (version != LMDB_FORMAT_VERSION)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "LMDB format %" PRIu32 "; this program knows %d",
                             version, LMDB_FORMAT_VERSION);
    uint64_t page_bytes = load_le32(tree->bytes + AT_META_PAGE_BYTES);
    if (page_bytes < PAGE_BYTES_MIN || page_bytes > PAGE_BYTES_MAX || (page_bytes & (page_bytes - 1)))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "LMDB pages of %" PRIu64 " bytes", page_bytes);
    if (tree->length % page_bytes || tree->length < 2 * page_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%" PRIu64 " bytes are no whole number of pages: cut short", tree->length);
    tree->page_bytes = page_bytes;
    tree->page_count = tree->length / page_bytes;
    FshStatus status = read_meta(tree, 0, error);
    if (!status)
        status = read_meta(tree, 1, error);
    if (!status && tree_is_empty(tree))
        return FSH_OK;
    if (!status && (tree->depth < 1 || tree->depth > DEPTH_MAX || tree->root >= tree->page_count))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "tree of depth %u with its root at page %" PRIu64,
                               tree->depth, tree->root);
    return status;
}

/* Finds a branch or leaf page: *page_ret, with *node_count_ret nodes whose offsets lie within the page. */
static FshStatus read_page(const Tree *tree, uint64_t number, bool leaf, const uint8_t **page_ret,
                           unsigned *node_count_ret, FshError *error)
{
    if (number < 2 || number >= tree->page_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 " lies outside the file", number);
    const uint8_t *page = tree->bytes + number * tree->page_bytes;
    unsigned lower = load_le16(page + AT_LOWER), upper = load_le16(page + AT_UPPER);
    if (load_le64(page + AT_PAGE_NUMBER) != number ||
        load_le16(page + AT_FLAGS) != (leaf ? FLAG_LEAF : FLAG_BRANCH) || lower <= PAGE_HEADER_BYTES ||
        lower % 2 || lower > upper || upper > tree->page_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 " is no %s page", number,
                             leaf ? "leaf" : "branch");
    *page_ret = page;
    *node_count_ret = (lower - PAGE_HEADER_BYTES) / 2;
    for (unsigned i = 0; i < *node_count_ret; i++) {
        unsigned at = load_le16(page + PAGE_HEADER_BYTES + 2 * i);
        if (at < upper || at % 2 || at + NODE_HEADER_BYTES > tree->page_bytes)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 ": node %u lies outside", number, i);
    }
    return FSH_OK;
}

/* Finds the value of a leaf's node: *bytes_ret bytes at *offset_ret. */
static FshStatus read_value(const Tree *tree, const uint8_t *page, const uint8_t *node, uint64_t *offset_ret,
                            uint64_t *bytes_ret, FshError *error)
{
    uint64_t room = tree->page_bytes - (uint64_t)(node - page) - NODE_HEADER_BYTES;
    uint64_t key_bytes = load_le16(node + NODE_KEY_BYTES);
    uint64_t value_bytes = load_le16(node + NODE_LOW) | (uint64_t)load_le16(node + NODE_HIGH) << 16;
    unsigned flags = load_le16(node + NODE_FLAGS);
    if (flags > NODE_IN_OVERFLOW)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "node flags %04x: another kind of database", flags);
    uint64_t inline_bytes = flags == NODE_IN_OVERFLOW ? sizeof(uint64_t) : value_bytes;
    if (key_bytes > room || inline_bytes > room - key_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "node of %" PRIu64 " + %" PRIu64 " bytes lies outside its page", key_bytes,
                             inline_bytes);
    const uint8_t *data = node + NODE_HEADER_BYTES + key_bytes;
    *bytes_ret = value_bytes;
    *offset_ret = (uint64_t)(data - tree->bytes);
    if (flags == NODE_IN_OVERFLOW) {
        uint64_t number = load_le64(data);
        if (number < 2 || number >= tree->page_count ||
            value_bytes > (tree->page_count - number) * tree->page_bytes - PAGE_HEADER_BYTES)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "value of %" PRIu64 " bytes at page %" PRIu64 " lies outside the file",
                                 value_bytes, number);
        *offset_ret = number * tree->page_bytes + PAGE_HEADER_BYTES;
    }
    return FSH_OK;
}

/* Writes the decimal digits of index, as keys have them. */
static void format_key(uint64_t index, char key[LMDB_KEY_DIGITS])
{
    for (int i = LMDB_KEY_DIGITS - 1; i >= 0; i--, index /= 10) {
        key[i] = (char)('0' + index % 10);
    }
}

static bool key_is(const char *key, size_t key_bytes, const char *expected)
{
    return key_bytes == strlen(expected) && memcmp(key, expected, key_bytes) == 0;
}

/* What the walk carries from leaf to leaf. */
typedef struct Walk {
    LmdbVisit visit;
    void *context;
    const char *last_key; /* of the entry before; NULL: none */
    size_t last_key_bytes;
    uint64_t entry_count; /* so far */
    uint64_t value_bytes; /* so far */
} Walk;

static bool key_follows(const Walk *walk, const char *key, size_t key_bytes)
{
    if (!walk->last_key)
        return true;
    size_t common = key_bytes < walk->last_key_bytes ? key_bytes : walk->last_key_bytes;
    int order = memcmp(walk->last_key, key, common);
    return order < 0 || (order == 0 && walk->last_key_bytes < key_bytes);
}

static FshStatus read_leaf(Walk *walk, const Tree *tree, uint64_t number, FshError *error)
{
    const uint8_t *page = NULL;
    unsigned node_count = 0;
    FshStatus status = read_page(tree, number, true, &page, &node_count, error);
    for (unsigned i = 0; i < node_count && !status; i++) {
        const uint8_t *node = page + load_le16(page + PAGE_HEADER_BYTES + 2 * i);
        LmdbEntry entry = {.key = (const char *)node + NODE_HEADER_BYTES,
                           .key_bytes = load_le16(node + NODE_KEY_BYTES)};
        status = read_value(tree, page, node, &entry.offset, &entry.bytes, error);
        /* Else a thousand keys could share one value, and who reads all of them would never be done. */
        walk->value_bytes += status ? 0 : entry.bytes;
        if (walk->value_bytes > tree->length)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "page %" PRIu64 ": values overlap: they take more bytes than the file has",
                                 number);
        if (!status)
            status = walk->visit(&entry, walk->context, error);
        if (!status && !key_follows(walk, entry.key, entry.key_bytes))
            status =
                fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 ": key %u is out of order", number, i);
        walk->last_key = entry.key;
        walk->last_key_bytes = entry.key_bytes;
        walk->entry_count++;
    }
    return status;
}

/* Visits all leaves, depth first, keys in order. Branches may point anywhere, also up or at one page twice;
 * the walk ends all the same. It goes no deeper than `depth`, where it must meet a leaf, and a leaf that
 * comes again has keys that were there before: so no leaf is read twice. */
static FshStatus walk_tree(Walk *walk, const Tree *tree, FshError *error)
{
    struct Level {
        const uint8_t *page;
        unsigned node_count, next;
    } levels[DEPTH_MAX] = {0};
    unsigned level = 0;
    uint64_t number = tree->root;
    for (;;) {
        FshStatus status = FSH_OK;
        if (level + 1 == tree->depth) {
            status = read_leaf(walk, tree, number, error);
        } else {
            levels[level].next = 0;
            status = read_page(tree, number, false, &levels[level].page, &levels[level].node_count, error);
            level++;
        }
        if (status)
            return status;
        while (level > 0 && levels[level - 1].next == levels[level - 1].node_count) {
            level--;
        }
        if (level == 0)
            return FSH_OK;
        struct Level *top = &levels[level - 1];
        const uint8_t *node = top->page + load_le16(top->page + PAGE_HEADER_BYTES + 2 * top->next++);
        number = load_le16(node + NODE_LOW) | (uint64_t)load_le16(node + NODE_HIGH) << 16 |
                 (uint64_t)load_le16(node + NODE_FLAGS) << 32;
    }
}

FshStatus fsh_lmdb_walk(const uint8_t *bytes, uint64_t length, LmdbVisit visit, void *context,
                        FshError *error)
{
    Tree tree = {.bytes = bytes, .length = length};
    Walk walk = {.visit = visit, .context = context};
    FshStatus status = read_metas(&tree, error);
    if (!status && !tree_is_empty(&tree))
        status = walk_tree(&walk, &tree, error);
    if (!status && walk.entry_count != tree.entry_count)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%" PRIu64 " entries, not the %" PRIu64 " its meta page says",
                               walk.entry_count, tree.entry_count);
    return status;
}

/* ---- the LMDB of our own: records under ten digits ---- */

typedef struct OwnParse {
    LmdbView *view;
    const uint8_t *bytes;
} OwnParse;

/* Takes the next entry, and refuses any other order than this: samples without gaps, then the metadata, then
 * the dictionary if there is one, then nothing. */
static FshStatus visit_own(const LmdbEntry *entry, void *context, FshError *error)
{
    const OwnParse *parse = context;
    LmdbView *view = parse->view;
    char expected[LMDB_KEY_DIGITS];
    format_key(view->record_count, expected);
    if (!view->metadata && entry->key_bytes == sizeof expected &&
        memcmp(entry->key, expected, sizeof expected) == 0) {
        IndexRow row = {.offset = entry->offset, .record_bytes = entry->bytes};
        FshStatus status = buffer_reserve(&view->rows, view->rows.length + INDEX_ROW_BYTES, error);
        if (status)
            return status;
        fsh_index_row_store(view->rows.bytes + view->rows.length, &row);
        view->rows.length += INDEX_ROW_BYTES;
        view->record_count++;
    } else if (!view->metadata && key_is(entry->key, entry->key_bytes, LMDB_METADATA_KEY)) {
        view->metadata = (const char *)parse->bytes + entry->offset;
        view->metadata_bytes = (size_t)entry->bytes;
    } else if (view->metadata && !view->dictionary &&
               key_is(entry->key, entry->key_bytes, LMDB_DICTIONARY_KEY)) {
        view->dictionary = parse->bytes + entry->offset;
        view->dictionary_bytes = (size_t)entry->bytes;
    } else {
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "key \"%.*s\" where sample %" PRIu64
                             " or %s was expected: not written by fshard, or damaged",
                             (int)entry->key_bytes, entry->key, view->record_count, LMDB_METADATA_KEY);
    }
    return FSH_OK;
}

FshStatus fsh_lmdb_parse(LmdbView *view, const uint8_t *bytes, uint64_t length, FshError *error)
{
    *view = (LmdbView){0};
    OwnParse parse = {.view = view, .bytes = bytes};
    FshStatus status = fsh_lmdb_walk(bytes, length, visit_own, &parse, error);
    if (!status && !view->metadata)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "no entry %s: not written by fshard, or damaged",
                               LMDB_METADATA_KEY);
    if (status)
        fsh_lmdb_free(view);
    return status;
}

void fsh_lmdb_free(LmdbView *view)
{
    buffer_free(&view->rows);
    *view = (LmdbView){0};
}
