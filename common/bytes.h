/* bytes.h - integers at any address, little endian and big endian (compilers make one move of each), and a
 * test for zeros. */
#ifndef FSHARD_COMMON_BYTES_H
#define FSHARD_COMMON_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint16_t load_le16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t load_le32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t load_le64(const uint8_t *at)
{
    return load_le32(at) | (uint64_t)load_le32(at + 4) << 32;
}

static inline void store_le16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void store_le32(uint8_t *at, uint32_t value)
{
    store_le16(at, (uint16_t)value);
    store_le16(at + 2, (uint16_t)(value >> 16));
}

static inline void store_le64(uint8_t *at, uint64_t value)
{
    store_le32(at, (uint32_t)value);
    store_le32(at + 4, (uint32_t)(value >> 32));
}

static inline uint32_t load_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline uint16_t load_be16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint64_t load_be64(const uint8_t *at)
{
    return (uint64_t)load_be32(at) << 32 | load_be32(at + 4);
}

static inline void store_be32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static inline bool bytes_are_zero(const uint8_t *bytes, size_t length)
{
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

#endif
