#include "tests/fuzz/seeds_lmdb.h"

#include <string.h>

#include "common/bytes.h"
#include "tests/fuzz/seeds.h"

enum {
    PAGE_BYTES = 256,
    PAGES_MAX = 64,
    PAGE_HEADER = 16,
    INLINE_MAX = 200,
    BRANCH_PAGE = 2,
    FLAG_BRANCH = 1,
    FLAG_LEAF = 2,
    FLAG_OVERFLOW = 4,
    FLAG_META = 8,
};

static uint8_t *begin_page(uint8_t *file, uint64_t number, unsigned flags)
{
    uint8_t *page = file + number * PAGE_BYTES;
    seed_need(number < PAGES_MAX, "there are pages left");
    store_le64(page, number);
    store_le16(page + 10, (uint16_t)flags);
    store_le16(page + 12, PAGE_HEADER);
    store_le16(page + 14, PAGE_BYTES);
    return page;
}

/* Adds a node to the page. low is the node's first two bytes, flags the third pair. */
static void add_node(uint8_t *page, size_t low, unsigned flags, const char *key, const void *data,
                     size_t data_bytes)
{
    size_t key_bytes = strlen(key), lower = load_le16(page + 12);
    size_t upper = (load_le16(page + 14) - 8 - key_bytes - data_bytes) & ~(size_t)1;
    seed_need(upper >= lower + 2 && upper < PAGE_BYTES, "a node fits into its page");
    store_le16(page + upper, (uint16_t)low);
    store_le16(page + upper + 4, (uint16_t)flags);
    store_le16(page + upper + 6, (uint16_t)key_bytes);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): a key has its length */
    memcpy(page + upper + 8, key, key_bytes);
    if (data_bytes)
        memcpy(page + upper + 8 + key_bytes, data, data_bytes);
    store_le16(page + lower, (uint16_t)upper);
    store_le16(page + 12, (uint16_t)(lower + 2));
    store_le16(page + 14, (uint16_t)upper);
}

void seed_write_lmdb(const char *root, const char *target, const char *name, const SeedEntry *entries,
                     size_t count)
{
    uint8_t file[PAGES_MAX * PAGE_BYTES] = {0}, *branch = begin_page(file, BRANCH_PAGE, FLAG_BRANCH);
    uint64_t next = BRANCH_PAGE + 1;
    for (size_t i = 0; i < count; i++) {
        const SeedEntry *entry = &entries[i];
        const uint64_t leaf = next++;
        uint8_t number[8], *page = begin_page(file, leaf, FLAG_LEAF);
        add_node(branch, (size_t)leaf, 0, i ? entry->key : "", NULL, 0);
        if (!entry->overflow && entry->bytes <= INLINE_MAX) {
            add_node(page, entry->bytes, 0, entry->key, entry->value, entry->bytes);
            continue;
        }
        store_le64(number, next);
        add_node(page, entry->bytes, 1, entry->key, number, sizeof number);
        page = begin_page(file, next, FLAG_OVERFLOW);
        next += (PAGE_HEADER + entry->bytes + PAGE_BYTES - 1) / PAGE_BYTES;
        seed_need(next <= PAGES_MAX, "there are pages left");
        memcpy(page + PAGE_HEADER, entry->value, entry->bytes);
    }
    for (uint64_t i = 0; i < 2; i++) { /* meta pages: mdb.c's MDB_meta */
        uint8_t *page = begin_page(file, i, FLAG_META);
        store_le32(page + 16, 0xBEEFC0DE);
        store_le32(page + 20, 1);
        store_le32(page + 40, PAGE_BYTES);
        store_le16(page + 94, 2); /* depth */
        store_le64(page + 120, count);
        store_le64(page + 128, BRANCH_PAGE);
        store_le64(page + 136, next - 1);
        store_le64(page + 144, i);
    }
    seed_write(root, target, name, file, (size_t)next * PAGE_BYTES);
}
