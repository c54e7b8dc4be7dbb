#include "trainer/ranks/hub_proof.h"

#include <string.h>

enum { BLOCK_BYTES = 64, ROUNDS = 64, LENGTH_BYTES = 8 };

typedef struct Sha256 {
    uint32_t state[8];
    uint8_t block[BLOCK_BYTES];
    size_t held;     /* bytes in block */
    uint64_t hashed; /* bytes in all */
} Sha256;

static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

/* Writes the 64 words of a block's schedule. */
static void expand(const uint8_t *block, uint32_t words[ROUNDS])
{
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                   (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    for (int i = 16; i < ROUNDS; i++) {
        const uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + words[i - 7] +
                   (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

static void take_block(Sha256 *hash)
{
    uint32_t words[ROUNDS], s[8];
    expand(hash->block, words);
    memcpy(s, hash->state, sizeof s);
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t first =
            s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choice + constants[i] + words[i];
        const uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        hash->state[i] += s[i];
}

static void begin(Sha256 *hash)
{
    *hash = (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                               0x1f83d9ab, 0x5be0cd19}};
}

static void add(Sha256 *hash, const void *bytes, size_t byte_count)
{
    const uint8_t *at = bytes;
    hash->hashed += byte_count;
    while (byte_count > 0) {
        const size_t room = sizeof hash->block - hash->held, now = byte_count < room ? byte_count : room;
        memcpy(hash->block + hash->held, at, now);
        hash->held += now;
        at += now;
        byte_count -= now;
        if (hash->held == sizeof hash->block) {
            take_block(hash);
            hash->held = 0;
        }
    }
}

static void end(Sha256 *hash, uint8_t digest[HUB_PROOF_BYTES])
{
    static const uint8_t padding[BLOCK_BYTES] = {0x80};
    const uint64_t bits = hash->hashed * 8;
    uint8_t length[LENGTH_BYTES];
    const size_t used = (hash->held + LENGTH_BYTES) % BLOCK_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    add(hash, padding, BLOCK_BYTES - used);
    add(hash, length, sizeof length);
    for (int i = 0; i < HUB_PROOF_BYTES; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hub_proof_make(const char *secret, const void *bytes, size_t byte_count, uint8_t proof[HUB_PROOF_BYTES])
{
    uint8_t key[BLOCK_BYTES] = {0}, inner[BLOCK_BYTES], outer[BLOCK_BYTES];
    const size_t length = strlen(secret);
    Sha256 hash;
    if (length <= sizeof key) {
        memcpy(key, secret, length); // NOLINT(bugprone-not-null-terminated-result): it has its length
    } else {
        begin(&hash);
        add(&hash, secret, length);
        end(&hash, key);
    }
    for (size_t i = 0; i < sizeof key; i++) {
        inner[i] = key[i] ^ 0x36;
        outer[i] = key[i] ^ 0x5C;
    }
    begin(&hash);
    add(&hash, inner, sizeof inner);
    add(&hash, bytes, byte_count);
    end(&hash, proof);
    begin(&hash);
    add(&hash, outer, sizeof outer);
    add(&hash, proof, HUB_PROOF_BYTES);
    end(&hash, proof);
}

bool hub_proof_is(const uint8_t a[HUB_PROOF_BYTES], const uint8_t b[HUB_PROOF_BYTES])
{
    unsigned difference = 0;
    for (size_t i = 0; i < HUB_PROOF_BYTES; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}
