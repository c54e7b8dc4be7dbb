/* fuzz_mend of targets whose input is a tar: a header's sum, over itself with blanks where the sum is. Any
 * block that says "ustar" is taken for a header. */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    enum { BLOCK_BYTES = 512, AT_SUM = 148, SUM_BYTES = 8, AT_MAGIC = 257 };
    (void)choice;
    for (size_t at = 0; at + BLOCK_BYTES <= length; at += BLOCK_BYTES) {
        uint8_t *header = bytes + at;
        if (memcmp(header + AT_MAGIC, "ustar", 5) != 0)
            continue;
        unsigned sum = 0;
        char text[SUM_BYTES + 1];
        memset(header + AT_SUM, ' ', SUM_BYTES);
        for (size_t i = 0; i < BLOCK_BYTES; i++)
            sum += header[i];
        (void)snprintf(text, sizeof text, "%06o", sum);
        memcpy(header + AT_SUM, text, 7); /* with its NUL */
    }
}
