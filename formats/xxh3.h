/* xxh3.h - XXH3 as this machine does it fastest. Where libxxhash was built with its dispatcher (Debian's and
 * Fedora's for x86 are), including this instead of xxhash.h makes the same calls choose AVX2 or AVX-512 at
 * run time: half as fast again as the SSE2 that an ordinary build takes. The values are the same. */
#ifndef FSHARD_FORMATS_XXH3_H
#define FSHARD_FORMATS_XXH3_H

#include <string.h>

#include "formats/fshard.h"

#ifdef FSHARD_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

/* Returns a hash of 128 bits as files hold it, in XXH3's canonical order. */
static inline FshHash128 fsh_hash_store(XXH128_hash_t hash)
{
    FshHash128 stored;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(stored.bytes, canonical.digest, sizeof stored.bytes);
    return stored;
}

/* Returns the XXH3-128 of the bytes. */
static inline FshHash128 fsh_hash_bytes(const void *bytes, size_t length)
{
    return fsh_hash_store(XXH3_128bits(bytes, length));
}

/* Returns the XXH3-128 of what the state has taken. */
static inline FshHash128 fsh_hash_taken(const XXH3_state_t *state)
{
    return fsh_hash_store(XXH3_128bits_digest(state));
}

#endif
