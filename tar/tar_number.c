#include "tar/tar_number.h"

#include "common/file.h"

bool tar_number_field(const uint8_t *field, size_t bytes, uint64_t *number_ret)
{
    uint64_t number = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] & 0x7F)
            return false; /* negative, or above 2^88 */
        for (i = 1; i < bytes; i++) {
            if (number >> 56)
                return false;
            number = number << 8 | field[i];
        }
        *number_ret = number;
        return true;
    }
    while (i < bytes && field[i] == ' ') {
        i++;
    }
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++) {
        if (number >> 60)
            return false;
        number = number << 3 | (uint64_t)(field[i] - '0');
    }
    *number_ret = number;
    return i == bytes || field[i] == '\0' || field[i] == ' ';
}

/* Returns the time of so many seconds; beyond time_t it is beyond int64_t's nanoseconds anyway. */
static int64_t time_of(bool negative, uint64_t seconds, uint64_t nanoseconds)
{
    const int64_t whole = seconds < INT64_MAX ? (int64_t)seconds : INT64_MAX;
    const int64_t rest = (int64_t)nanoseconds;
    return file_time_ns(
        (struct timespec){.tv_sec = negative ? -whole : whole, .tv_nsec = negative ? -rest : rest});
}

int64_t tar_number_field_time(const uint8_t *field, size_t bytes)
{
    uint64_t number = 0;
    if ((field[0] & 0xC0) != 0xC0) /* not negative */
        return tar_number_field(field, bytes, &number) ? time_of(false, number, 0) : 0;
    for (size_t i = 0; i < bytes; i++) { /* the size of a two's complement is its inverse, and 1 */
        if (number >> 54)
            return INT64_MIN;
        number = number << 8 | (uint8_t)~field[i];
    }
    return time_of(true, number + 1, 0);
}

bool tar_number_text(const char *text, size_t bytes, uint64_t *number_ret)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    }
    *number_ret = number;
    return bytes > 0;
}

static bool is_digit(const char *text, size_t bytes, size_t i)
{
    return i < bytes && text[i] >= '0' && text[i] <= '9';
}

int64_t tar_number_text_time(const char *text, size_t bytes)
{
    const bool negative = bytes && text[0] == '-';
    uint64_t seconds = 0, nanoseconds = 0;
    size_t i = negative;
    for (; is_digit(text, bytes, i); i++)
        seconds = seconds < INT64_MAX / 10 ? seconds * 10 + (uint64_t)(text[i] - '0') : INT64_MAX;
    if (i++ < bytes && text[i - 1] == '.')
        for (uint64_t unit = 100000000; unit && is_digit(text, bytes, i); unit /= 10)
            nanoseconds += unit * (uint64_t)(text[i++] - '0');
    return time_of(negative, seconds, nanoseconds);
}
