/* A file of labels, and looking up each of its own words in it. */
#include <stdlib.h>
#include <string.h>

#include "tools/job/labels.h"
#include "tests/fuzz/fuzz.h"

static void find_all(const Labels *labels, const uint8_t *bytes, size_t length)
{
    enum { LOOKUPS_MAX = 64 };
    char *text = malloc(length + 1), *rest = NULL;
    fuzz_expect(text != NULL, "memory for the text");
    memcpy(text, bytes, length);
    text[length] = '\0';
    int lookups = 0;
    for (char *word = strtok_r(text, " \t\r\n,\"", &rest); word && lookups < LOOKUPS_MAX; lookups++) {
        const char *label = labels_find(labels, word);
        if (label) {
            size_t label_bytes = strlen(label);
            fuzz_expect(label_bytes > 0 && label_bytes <= NAME_MAX && label[0] != '.' && !strchr(label, '/'),
                        "a label can name a folder");
        }
        word = strtok_r(NULL, " \t\r\n,\"", &rest);
    }
    (void)labels_find(labels, "");
    (void)labels_find(labels, "val/ILSVRC2012_val_00000001.JPEG");
    (void)labels_find(labels, "99999999999999999999999.jpg");
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Labels *labels = NULL;
    FshError error = {0};
    FuzzFile file = fuzz_file_open(bytes, length);
    if (labels_load(&labels, file.path, &error) == FSH_OK)
        find_all(labels, bytes, length);
    labels_free(&labels);
    fuzz_file_close(&file);
    return 0;
}
