/* crc32c.h - CRC32C (Castagnoli), RFC 3720 appendix B.4: the checksum of records, headers and indexes.
 *
 * Threads: nothing is shared. Any length, any alignment. */
#ifndef FSHARD_COMMON_CRC32C_H
#define FSHARD_COMMON_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC of what was before (crc; 0 for nothing) followed by length bytes. bytes may be NULL if length is 0.
 * crc32c(crc32c(0, a, n), b, m) is the CRC of a and b joined. Takes the fastest way this processor has. */
uint32_t fsh_crc32c(uint32_t crc, const void *bytes, size_t length);

/* CRC of a and b joined, where first is that of a and second that of b, which has second_bytes bytes. It
 * works backwards too: with that of both joined for second, it gives that of b alone. About 3 us: it is for
 * bytes that are too many to read again. Mark Adler's crc32_combine (zlib), with this polynomial. */
uint32_t fsh_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

/* The ways, for tests and benchmarks. The portable one is the reference. */
uint32_t fsh_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
bool fsh_crc32c_sse42_available(void);
/* Only where the above is true. */
uint32_t fsh_crc32c_sse42(uint32_t crc, const void *bytes, size_t length);

#endif
