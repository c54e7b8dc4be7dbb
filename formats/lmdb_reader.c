/* The pages of data.mdb: a walk over all, and a way down to one key; what is read of LMDB's format stands in
 * fshard(5).
 *
 * Why not liblmdb: it follows page numbers and lengths of the file without looking (CVE-2019-16224 to 16228
 * are of that kind), it must not open a file twice in a process, and each read needs a transaction. Here
 * everything is checked before it is used, by functions that both ways share, so that what is damaged is told
 * in the same words by both. */

#include "formats/lmdb_reader.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/mapped_pages.h"
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
static FshStatus read_meta(LmdbTree *tree, unsigned page_number, FshError *error)
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

static bool tree_is_empty(const LmdbTree *tree)
{
    return tree->depth == 0 && tree->entry_count == 0 && tree->root == UINT64_MAX;
}

static FshStatus read_metas(LmdbTree *tree, FshError *error)
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
                             "%" PRIu64 " bytes are no whole number of pages: cut short; copy it again",
                             tree->length);
    tree->page_bytes = page_bytes;
    tree->page_count = tree->length / page_bytes;
    FshStatus status = read_meta(tree, 0, error);
    if (!status)
        status = read_meta(tree, 1, error);
    if (!status && tree_is_empty(tree))
        return FSH_OK;
    if (!status && tree->depth >= 1 && tree->depth <= DEPTH_MAX && tree->root >= tree->page_count)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "its first page is page %" PRIu64 ", and it has only %" PRIu64
                               ": cut short; copy it again",
                               tree->root, tree->page_count);
    else if (!status && (tree->depth < 1 || tree->depth > DEPTH_MAX || tree->root >= tree->page_count))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "tree of depth %u with its root at page %" PRIu64,
                               tree->depth, tree->root);
    return status;
}

typedef struct Page {
    const uint8_t *bytes;
    uint64_t number;
    unsigned node_count, upper;
} Page;

/* Finds a branch or leaf page, and checks its header. */
static FshStatus find_page(const LmdbTree *tree, uint64_t number, bool leaf, Page *page_ret, FshError *error)
{
    if (number < 2 || number >= tree->page_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 " lies outside the file", number);
    const uint8_t *page = tree->bytes + number * tree->page_bytes;
    mapped_pages_note(page, tree->page_bytes);
    unsigned lower = load_le16(page + AT_LOWER), upper = load_le16(page + AT_UPPER);
    if (load_le64(page + AT_PAGE_NUMBER) != number ||
        load_le16(page + AT_FLAGS) != (leaf ? FLAG_LEAF : FLAG_BRANCH) || lower <= PAGE_HEADER_BYTES ||
        lower % 2 || lower > upper || upper > tree->page_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 " is no %s page", number,
                             leaf ? "leaf" : "branch");
    *page_ret = (Page){page, number, (lower - PAGE_HEADER_BYTES) / 2, upper};
    return FSH_OK;
}

/* Finds a node, whose header lies within the page. i: below node_count. */
static FshStatus find_node(const LmdbTree *tree, const Page *page, unsigned i, const uint8_t **node_ret,
                           FshError *error)
{
    const unsigned at = load_le16(page->bytes + PAGE_HEADER_BYTES + 2 * i);
    if (at < page->upper || at % 2 || at + NODE_HEADER_BYTES > tree->page_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 ": node %u lies outside", page->number,
                             i);
    *node_ret = page->bytes + at;
    return FSH_OK;
}

/* Finds a page of which every node's header lies within it. */
static FshStatus find_whole_page(const LmdbTree *tree, uint64_t number, bool leaf, Page *page_ret,
                                 FshError *error)
{
    const uint8_t *node = NULL;
    FshStatus status = find_page(tree, number, leaf, page_ret, error);
    for (unsigned i = 0; !status && i < page_ret->node_count; i++)
        status = find_node(tree, page_ret, i, &node, error);
    return status;
}

typedef struct Key {
    const uint8_t *text; /* NULL: none */
    size_t bytes;
} Key;

/* Returns less than, equal to or more than 0, as strcmp. */
static int key_compare(const Key *a, const Key *b)
{
    if (a->bytes == LMDB_KEY_DIGITS && b->bytes == LMDB_KEY_DIGITS) { /* half the time of a look-up */
        const uint64_t first = load_be64(a->text), other_first = load_be64(b->text);
        const unsigned last = load_be16(a->text + 8), other_last = load_be16(b->text + 8);
        return first != other_first ? (first > other_first ? 1 : -1) : (int)last - (int)other_last;
    }
    const int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Finds the key of a node. The first of a branch page has none: it holds all that comes before the second. */
static FshStatus find_key(const LmdbTree *tree, const Page *page, unsigned i, Key *key_ret, FshError *error)
{
    const uint8_t *node = NULL;
    const FshStatus status = find_node(tree, page, i, &node, error);
    if (status)
        return status;
    *key_ret = (Key){node + NODE_HEADER_BYTES, load_le16(node + NODE_KEY_BYTES)};
    return key_ret->bytes <= tree->page_bytes - (uint64_t)(node - page->bytes) - NODE_HEADER_BYTES
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 ": node %u lies outside", page->number,
                               i);
}

/* Returns the page that a node of a branch page leads to. */
static uint64_t child_page(const uint8_t *node)
{
    return load_le16(node + NODE_LOW) | (uint64_t)load_le16(node + NODE_HIGH) << 16 |
           (uint64_t)load_le16(node + NODE_FLAGS) << 32;
}

/* Finds the value of a leaf's node: *bytes_ret bytes at *offset_ret. */
static FshStatus read_value(const LmdbTree *tree, const uint8_t *page, const uint8_t *node,
                            uint64_t *offset_ret, uint64_t *bytes_ret, FshError *error)
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
static void format_key(uint64_t index, uint8_t key[LMDB_KEY_DIGITS])
{
    for (int i = LMDB_KEY_DIGITS - 1; i >= 0; i--, index /= 10) {
        key[i] = (uint8_t)('0' + index % 10);
    }
}

static bool key_is(const char *key, size_t key_bytes, const char *expected)
{
    return key_bytes == strlen(expected) && memcmp(key, expected, key_bytes) == 0;
}

/* ---- all entries ---- */

/* What the walk carries from leaf to leaf. */
typedef struct Walk {
    LmdbVisit visit;
    void *context;
    Key last;             /* of the entry before */
    Key least;            /* which the next entry's may be, as a branch on the way to it says */
    uint64_t entry_count; /* so far */
    uint64_t value_bytes; /* so far */
} Walk;

static FshStatus out_of_order(const Page *page, unsigned node, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "page %" PRIu64 ": key %u is out of order", page->number,
                         node);
}

static FshStatus read_leaf(Walk *walk, const LmdbTree *tree, uint64_t number, FshError *error)
{
    Page page;
    FshStatus status = find_whole_page(tree, number, true, &page, error);
    for (unsigned i = 0; !status && i < page.node_count; i++) {
        const uint8_t *node = page.bytes + load_le16(page.bytes + PAGE_HEADER_BYTES + 2 * i);
        const Key key = {node + NODE_HEADER_BYTES, load_le16(node + NODE_KEY_BYTES)};
        LmdbEntry entry = {.key = (const char *)key.text, .key_bytes = key.bytes};
        status = read_value(tree, page.bytes, node, &entry.offset, &entry.bytes, error);
        /* Else a thousand keys could share one value, and who reads all of them would never be done. */
        walk->value_bytes += status ? 0 : entry.bytes;
        if (walk->value_bytes > tree->length)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "page %" PRIu64 ": values overlap: they take more bytes than the file has",
                                 number);
        if (!status)
            status = walk->visit(&entry, walk->context, error);
        if (!status && ((walk->last.text && key_compare(&walk->last, &key) >= 0) ||
                        (walk->least.text && key_compare(&walk->least, &key) > 0)))
            status = out_of_order(&page, i, error);
        walk->last = key;
        walk->least = (Key){0};
        walk->entry_count++;
    }
    return status;
}

/* Takes the key of a branch's node, which parts what comes before from what follows: whoever looks for one
 * key goes by it. */
static FshStatus pass_branch_key(Walk *walk, const LmdbTree *tree, const Page *page, unsigned i,
                                 FshError *error)
{
    const FshStatus status = i ? find_key(tree, page, i, &walk->least, error) : FSH_OK;
    if (status || !i || !walk->last.text || key_compare(&walk->last, &walk->least) < 0)
        return status;
    return out_of_order(page, i, error);
}

/* Visits all leaves, depth first, keys in order. Branches may point anywhere, also up or at one page twice;
 * the walk ends all the same. It goes no deeper than `depth`, where it must meet a leaf, and a leaf that
 * comes again has keys that were there before: so no leaf is read twice. */
static FshStatus walk_tree(Walk *walk, const LmdbTree *tree, FshError *error)
{
    struct Level {
        Page page;
        unsigned next;
    } levels[DEPTH_MAX] = {0};
    unsigned level = 0;
    uint64_t number = tree->root;
    for (;;) {
        FshStatus status = FSH_OK;
        if (level + 1 == tree->depth) {
            status = read_leaf(walk, tree, number, error);
        } else {
            levels[level].next = 0;
            status = find_whole_page(tree, number, false, &levels[level].page, error);
            level++;
        }
        while (!status && level > 0 && levels[level - 1].next == levels[level - 1].page.node_count) {
            level--;
        }
        if (status || level == 0)
            return status;
        struct Level *top = &levels[level - 1];
        status = pass_branch_key(walk, tree, &top->page, top->next, error);
        if (status)
            return status;
        number =
            child_page(top->page.bytes + load_le16(top->page.bytes + PAGE_HEADER_BYTES + 2 * top->next++));
    }
}

FshStatus fsh_lmdb_walk(const uint8_t *bytes, uint64_t length, LmdbVisit visit, void *context,
                        FshError *error)
{
    LmdbTree tree = {.bytes = bytes, .length = length};
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

static FshStatus unexpected_key(const LmdbEntry *entry, uint64_t record, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "key \"%.*s\" where sample %" PRIu64
                         " or %s was expected: not written by fshard, or damaged",
                         (int)entry->key_bytes, entry->key, record, LMDB_METADATA_KEY);
}

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
    uint8_t expected[LMDB_KEY_DIGITS];
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
        return unexpected_key(entry, view->record_count, error);
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

/* ---- one key ---- */

/* Goes down to the leaf that has the key, if any has. *after_ret is the first key of the leaf after it, as
 * the branches say; none: unchanged. */
static FshStatus find_leaf(const LmdbTree *tree, const Key *wanted, Page *leaf_ret, Key *after_ret,
                           FshError *error)
{
    uint64_t number = tree->root;
    FshStatus status = FSH_OK;
    for (unsigned level = 1; level < tree->depth && !status; level++) {
        Page page;
        Key key;
        const uint8_t *node = NULL;
        status = find_page(tree, number, false, &page, error);
        unsigned low = 0,
                 high = status ? 1 : page.node_count; /* the last child that begins at or before it */
        while (high - low > 1 && !status) {
            const unsigned middle = low + (high - low) / 2;
            status = find_key(tree, &page, middle, &key, error);
            if (status)
                break;
            if (key_compare(&key, wanted) <= 0) {
                low = middle;
            } else {
                high = middle;
                *after_ret = key;
            }
        }
        if (!status)
            status = find_node(tree, &page, low, &node, error);
        if (!status)
            number = child_page(node);
    }
    return status ? status : find_page(tree, number, true, leaf_ret, error);
}

/* Looks for a key: sets *found_ret, and *entry_ret to its entry or, where it is not there, to the key that
 * stands in its place (key_bytes 0: none does). */
static FshStatus look_up(const LmdbTree *tree, const Key *wanted, bool *found_ret, LmdbEntry *entry_ret,
                         FshError *error)
{
    Page leaf;
    Key key = {0}, next = {.text = (const uint8_t *)""};
    const uint8_t *node = NULL;
    *found_ret = false;
    *entry_ret = (LmdbEntry){.key = ""};
    if (tree_is_empty(tree))
        return FSH_OK;
    FshStatus status = find_leaf(tree, wanted, &leaf, &next, error);
    unsigned low = 0, high = status ? 0 : leaf.node_count; /* the first that is not before it */
    while (low < high) {
        const unsigned middle = low + (high - low) / 2;
        status = find_key(tree, &leaf, middle, &key, error);
        if (status)
            return status;
        if (key_compare(&key, wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
            next = key;
        }
    }
    *entry_ret = (LmdbEntry){.key = (const char *)next.text, .key_bytes = next.bytes};
    if (status || low == leaf.node_count || key_compare(&next, wanted) != 0)
        return status;
    *found_ret = true;
    status = find_node(tree, &leaf, low, &node, error);
    return status ? status : read_value(tree, leaf.bytes, node, &entry_ret->offset, &entry_ret->bytes, error);
}

FshStatus fsh_lmdb_find(const LmdbTree *tree, uint64_t record, IndexRow *row_ret, FshError *error)
{
    uint8_t digits[LMDB_KEY_DIGITS];
    LmdbEntry entry;
    bool found = false;
    const Key wanted = {digits, sizeof digits};
    format_key(record, digits);
    *row_ret = (IndexRow){0};
    const FshStatus status = look_up(tree, &wanted, &found, &entry, error);
    if (status)
        return status;
    if (!found)
        return unexpected_key(&entry, record, error);
    *row_ret = (IndexRow){.offset = entry.offset, .record_bytes = entry.bytes};
    return FSH_OK;
}

/* Fills view by a few looks into its tree. Returns false where they do not agree with each other. */
static bool open_tree(LmdbView *view)
{
    /* Bytes of a leaf that an entry takes, with its place: who makes a table for all samples of a file that
     * lies about their number needs no more memory than for one of its size. */
    enum { ENTRY_BYTES_MIN = NODE_HEADER_BYTES + LMDB_KEY_DIGITS + 2 };
    const LmdbTree *tree = &view->tree;
    const Key metadata_key = {(const uint8_t *)LMDB_METADATA_KEY, sizeof LMDB_METADATA_KEY - 1};
    const Key dictionary_key = {(const uint8_t *)LMDB_DICTIONARY_KEY, sizeof LMDB_DICTIONARY_KEY - 1};
    LmdbEntry metadata, dictionary, next;
    IndexRow row;
    bool found = false, with_dictionary = false, one_more = true;
    if (look_up(tree, &metadata_key, &found, &metadata, NULL) || !found ||
        look_up(tree, &dictionary_key, &with_dictionary, &dictionary, NULL) ||
        tree->entry_count < 1U + with_dictionary || tree->entry_count > tree->length / ENTRY_BYTES_MIN)
        return false;
    view->record_count = tree->entry_count - 1U - with_dictionary;
    uint8_t digits[LMDB_KEY_DIGITS];
    const Key after_last = {digits, sizeof digits};
    format_key(view->record_count, digits);
    if ((view->record_count && fsh_lmdb_find(tree, view->record_count - 1, &row, NULL)) ||
        look_up(tree, &after_last, &one_more, &next, NULL) || one_more)
        return false;
    view->metadata = (const char *)tree->bytes + metadata.offset;
    view->metadata_bytes = (size_t)metadata.bytes;
    view->dictionary = with_dictionary ? tree->bytes + dictionary.offset : NULL;
    view->dictionary_bytes = with_dictionary ? (size_t)dictionary.bytes : 0;
    return true;
}

FshStatus fsh_lmdb_open(LmdbView *view, const uint8_t *bytes, uint64_t length, FshError *error)
{
    *view = (LmdbView){.tree = {.bytes = bytes, .length = length}};
    const FshStatus status = read_metas(&view->tree, error);
    if (!status && open_tree(view))
        return FSH_OK;
    *view = (LmdbView){0};
    return status ? status : fsh_lmdb_parse(view, bytes, length, error);
}

void fsh_lmdb_free(LmdbView *view)
{
    buffer_free(&view->rows);
    *view = (LmdbView){0};
}
