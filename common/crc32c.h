/* crc32c.h - CRC32C (Castagnoli), RFC 3720 appendix B.4: the checksum of records, headers and indexes.
 *
 * Threads: nothing is shared. Any length, any alignment. */
#ifndef FSHARD_COMMON_CRC32C_H
#define FSHARD_COMMON_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of earlier bytes, whose CRC is `crc` (0: none), followed by these. bytes may be NULL if
 * length is 0. crc32c(crc32c(0, a, n), b, m) is the CRC of a and b joined. Uses the fastest way of this
 * processor. */
uint32_t fsh_crc32c(uint32_t crc, const void *bytes, size_t length);

/* Returns the CRC of a and b joined, from `first`, that of a, and `second`, that of b, which has second_bytes
 * bytes. It also works backwards: with the CRC of both joined as `second` it returns that of b. Takes about 3
 * us: for bytes that are too many to read again. Mark Adler's crc32_combine (zlib) with this polynomial. */
uint32_t fsh_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

/* Do what fsh_crc32c does, each in one way, for tests and benchmarks. The portable one is the reference. */
uint32_t fsh_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
bool fsh_crc32c_sse42_available(void);
/* Uses the crc32 instruction; call it only if fsh_crc32c_sse42_available(). */
uint32_t fsh_crc32c_sse42(uint32_t crc, const void *bytes, size_t length);

#endif
