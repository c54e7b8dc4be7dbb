#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "common/crc32c.h"
#include "tests/support/support.h"

typedef uint32_t (*Crc32c)(uint32_t crc, const void *bytes, size_t length);

static const struct {
    const char *name;
    Crc32c crc32c;
    bool needs_sse42;
} variants[] = {
    {"portable", fsh_crc32c_portable, false},
    {"sse42", fsh_crc32c_sse42, true},
    {"dispatched", fsh_crc32c, false},
};
enum { VARIANT_COUNT = sizeof variants / sizeof *variants };

static bool can_run(size_t variant)
{
    return !variants[variant].needs_sse42 || fsh_crc32c_sse42_available();
}

/* Computes CRC-32C as it is defined, one bit at a time. */
static uint32_t crc32c_bitwise(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
        }
    }
    return ~crc;
}

TEST(test_values_of_the_standard)
{
    uint8_t zeros[32] = {0}, ones[32], rising[32], falling[32];
    memset(ones, 0xFF, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        rising[i] = i;
        falling[i] = (uint8_t)(31 - i);
    }
    for (size_t v = 0; v < VARIANT_COUNT; v++) {
        if (!can_run(v))
            continue;
        /* RFC 3720, B.4 */
        assert_int_equal(variants[v].crc32c(0, zeros, sizeof zeros), 0x8A9136AA);
        assert_int_equal(variants[v].crc32c(0, ones, sizeof ones), 0x62A8AB43);
        assert_int_equal(variants[v].crc32c(0, rising, sizeof rising), 0x46DD794E);
        assert_int_equal(variants[v].crc32c(0, falling, sizeof falling), 0x113FDB5C);
        assert_int_equal(variants[v].crc32c(0, "123456789", 9), 0xE3069283);
        assert_int_equal(variants[v].crc32c(0, NULL, 0), 0);
    }
}

TEST(test_every_way_agrees_with_the_definition)
{
    /* Lengths around the block sizes of the fast way: 3 * 256 and 3 * 2048. */
    static const size_t lengths[] = {0,    1,    7,    8,    9,     63,    64,    255,   256,  767,  768,
                                     769,  775,  776,  777,  1535,  1536,  1537,  6143,  6144, 6145, 6911,
                                     6912, 6913, 6920, 6921, 12287, 12288, 12289, 20000, 20001};
    enum { ROOM = 20001 + 8 };
    uint8_t *bytes = malloc(ROOM);
    Random random;
    random_start(&random, 1, 2);
    for (size_t i = 0; i < ROOM; i++) {
        bytes[i] = (uint8_t)random_u32(&random);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t offset = 0; offset < 8; offset += 3) {
            /* Its own block, so that a read past the end is seen. */
            uint8_t *exact = malloc(lengths[i] + 1);
            memcpy(exact, bytes + offset, lengths[i]);
            uint32_t start = random_u32(&random);
            uint32_t expected = crc32c_bitwise(start, exact, lengths[i]);
            for (size_t v = 0; v < VARIANT_COUNT; v++) {
                if (can_run(v) && (variants[v].crc32c(start, exact, lengths[i]) != expected ||
                                   variants[v].crc32c(start, bytes + offset, lengths[i]) != expected))
                    fail_msg("%s differs at length %zu, offset %zu", variants[v].name, lengths[i], offset);
            }
            free(exact);
        }
    }
    free(bytes);
}

TEST(test_parts_join)
{
    uint8_t bytes[3000];
    Random random;
    random_start(&random, 3, 4);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_u32(&random);
    }
    uint32_t whole = crc32c_bitwise(0, bytes, sizeof bytes);
    for (size_t v = 0; v < VARIANT_COUNT; v++) {
        for (size_t cut = 0; can_run(v) && cut <= sizeof bytes; cut += 37) {
            uint32_t first = variants[v].crc32c(0, bytes, cut);
            assert_int_equal(variants[v].crc32c(first, bytes + cut, sizeof bytes - cut), whole);
        }
    }
}

TEST(test_crcs_of_parts_join_and_come_apart)
{
    enum { ROOM = 5000 };
    uint8_t bytes[ROOM];
    Random random;
    random_start(&random, 5, 6);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_u32(&random);
    }
    for (size_t length = 0; length <= ROOM; length += 499) {
        uint32_t whole = crc32c_bitwise(0, bytes, length);
        for (size_t cut = 0; cut <= length; cut += 83) {
            uint32_t first = crc32c_bitwise(0, bytes, cut);
            uint32_t second = crc32c_bitwise(0, bytes + cut, length - cut);
            assert_int_equal(fsh_crc32c_combine(first, second, length - cut), whole);
            assert_int_equal(fsh_crc32c_combine(first, whole, length - cut), second);
        }
    }
    /* Further than anybody reads: zeros doubled until they are 2^40 bytes, one by one and at once. */
    uint32_t zeros = crc32c_bitwise(0, (const uint8_t[1]){0}, 1);
    for (unsigned i = 0; i < 40; i++) {
        zeros = fsh_crc32c_combine(zeros, zeros, UINT64_C(1) << i);
    }
    uint32_t start = crc32c_bitwise(0, bytes, 9);
    uint32_t twice =
        fsh_crc32c_combine(fsh_crc32c_combine(start, zeros, UINT64_C(1) << 40), zeros, UINT64_C(1) << 40);
    uint32_t both = fsh_crc32c_combine(zeros, zeros, UINT64_C(1) << 40);
    assert_int_equal(twice, fsh_crc32c_combine(start, both, UINT64_C(1) << 41));
}
