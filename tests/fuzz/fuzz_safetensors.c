/* A file of tensors: its header, each tensor's place, and its values as floats. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "trainer/checkpoint/safetensors.h"

static void read_values(const SafetensorsEntry *entry)
{
    FshError error = {0};
    fuzz_touch(entry->data, (size_t)entry->bytes);
    fuzz_expect(entry->rank >= 0 && entry->rank <= SAFETENSORS_RANK_MAX, "a rank is known");
    if (!safetensors_type_is_float(entry->type))
        return;
    float *values = malloc((size_t)entry->count * sizeof *values + 1);
    fuzz_expect(values != NULL, "memory for the values");
    fuzz_expect_ok(safetensors_read_f32(entry, values, entry->count, &error), &error, "safetensors_read_f32");
    fuzz_touch(values, (size_t)entry->count * sizeof *values);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Safetensors *tensors = NULL;
    FshError error = {0};
    FuzzFile file = fuzz_file_open(bytes, length);
    if (safetensors_open(&tensors, file.path, &error) == FSH_OK) {
        for (size_t i = 0; i < safetensors_count(tensors); i++) {
            const SafetensorsEntry *entry = safetensors_entry(tensors, i);
            fuzz_expect(safetensors_find(tensors, entry->name) != NULL, "a tensor is found by its name");
            read_values(entry);
        }
        const FshStatus status = safetensors_check(tensors, file.path, &error);
        fuzz_expect(status == FSH_OK || status == FSH_ERR_CORRUPT, "checksums are right or wrong");
        const char *value = safetensors_metadata(tensors, "format");
        if (value)
            fuzz_touch(value, strlen(value));
    }
    safetensors_close(&tensors);
    fuzz_file_close(&file);
    return 0;
}
