/* tar_number.h - numbers as tars write them: in the fields of a header, and as text in pax headers. Internal
 * to tar/. */
#ifndef FSHARD_TAR_TAR_NUMBER_H
#define FSHARD_TAR_TAR_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads octal digits after blanks. GNU and star write larger numbers big endian after a first bit of 1.
 * Returns false if the field holds no number, a negative one, or one of more than 64 bits. */
bool tar_number_field(const uint8_t *field, size_t bytes, uint64_t *number_ret);

/* Returns the time in a header's field, in nanoseconds since 1970; negative before, which only GNU and star
 * write. What is no number is 0, and what is beyond int64_t its limit. */
int64_t tar_number_field_time(const uint8_t *field, size_t bytes);

/* Reads decimal digits, which must be all there is. Returns false if they are not, or have more than 64
 * bits. */
bool tar_number_text(const char *text, size_t bytes, uint64_t *number_ret);

/* Returns the time of a pax header, "-1.5", in nanoseconds since 1970, as tar_number_field_time does; what
 * follows the number is passed over. */
int64_t tar_number_text_time(const char *text, size_t bytes);

#endif
