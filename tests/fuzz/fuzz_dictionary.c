#include "tests/fuzz/fuzz_dictionary.h"

#include <stdio.h>
#include <string.h>

#include "formats/fshard.h"

void fuzz_picture(uint64_t number, uint8_t picture[FUZZ_PICTURE_BYTES])
{
    uint64_t state = number * UINT64_C(0x9E3779B97F4A7C15);
    memset(picture, 0, FUZZ_PICTURE_BYTES);
    (void)snprintf(
        (char *)picture, FUZZ_PICTURE_BYTES,
        "\xFF\xD8 tables that repeat in every picture of a %s; pixels: ", number % 3 ? "cat" : "small bee");
    for (size_t i = 64; i < FUZZ_PICTURE_BYTES; i++, state = state * UINT64_C(6364136223846793005) + 1)
        picture[i] = (uint8_t)("0123456789abcdef"[state >> 60]);
}

FshStatus fuzz_dictionary_train(void **dictionary_ret, size_t *bytes_ret, FshError *error)
{
    enum { PICTURES = 300, DICTIONARY_BYTES = 512 };
    uint8_t pictures[PICTURES][FUZZ_PICTURE_BYTES];
    size_t sizes[PICTURES];
    for (size_t i = 0; i < PICTURES; i++) {
        fuzz_picture(i, pictures[i]);
        sizes[i] = FUZZ_PICTURE_BYTES;
    }
    return fsh_dictionary_train(pictures, sizes, PICTURES, DICTIONARY_BYTES, dictionary_ret, bytes_ret,
                                error);
}
