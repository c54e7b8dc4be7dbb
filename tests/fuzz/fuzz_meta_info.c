/* BasicSR's meta_info.txt, and its keys as our writer spells them. */
#include <string.h>

#include "common/file.h"
#include "formats/basicsr.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    MetaLine line = {0};
    FshError error = {0};
    Buffer key = {0};
    size_t offset = 0, before = 0;
    while (fsh_meta_line_next((const char *)bytes, length, &offset, &line, &error) == FSH_OK && line.key) {
        fuzz_expect(offset > before && offset <= length, "each line moves on");
        fuzz_expect(line.key_bytes > 0 && !memchr(line.key, '.', line.key_bytes), "a key has no dot");
        fuzz_expect(line.channels <= FSH_CHANNELS_MAX, "channels are possible ones");
        if (fsh_basicsr_key_encode(line.key, line.key_bytes, &key, &error) == FSH_OK)
            fuzz_expect(!memchr(key.bytes, '.', key.length), "an encoded key has no dot");
        before = offset;
    }
    buffer_free(&key);
    return 0;
}
