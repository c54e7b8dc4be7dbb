/* Mutations for formats that checksums guard, and whose parts lie at fixed offsets: half of the time a
 * stretch is changed in place and nothing moves; then most checksums are made right again. */
#include <string.h>

#include "tests/fuzz/fuzz.h"

/* The first is libFuzzer's own mutation, which the mutator calls; the second is the mutator, which libFuzzer
 * calls. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t length, size_t length_max);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t length_max, unsigned seed);

/* Scatters seeds by splitmix64's last steps, so that consecutive seeds give unrelated choices. */
static uint64_t scatter(uint64_t seed)
{
    seed += UINT64_C(0x9E3779B97F4A7C15);
    seed = (seed ^ seed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94D049BB133111EB);
    return seed ^ seed >> 31;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t length_max, unsigned seed)
{
    uint64_t choice = scatter(seed);
    if (length > 64 && choice & 1) {
        size_t at = (size_t)(choice >> 32) % length, room = length - at;
        size_t stretch = 1 + (size_t)(choice >> 8 & 127);
        stretch = stretch < room ? stretch : room;
        (void)LLVMFuzzerMutate(bytes + at, stretch, stretch);
    } else {
        length = LLVMFuzzerMutate(bytes, length, length_max);
    }
    if (choice & 6) /* three in four */
        fuzz_mend(bytes, length, (uint32_t)(choice >> 16));
    return length;
}
