/* Conditions of ftrain --where, and the globs in them. What is known of a class without a key holds for every
 * key; a text is matched by itself where it has no wildcard, and by * always. */
#include <string.h>

#include "formats/fshard.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/data/sample_condition.h"

static void ask(SampleCondition *condition)
{
    static const char *const keys[] = {"", "a", "n01440764/n01440764_10026"};
    sample_condition_take_split(condition, "train");
    const ConditionAnswer answer = sample_condition_of_class(condition, FSH_NO_LABEL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const bool holds = sample_condition_holds(condition, FSH_NO_LABEL, keys[i], strlen(keys[i]));
        fuzz_expect(answer == CONDITION_BY_KEY || holds == (answer == CONDITION_YES),
                    "what is known without a key holds for each");
    }
}

static void match(const char *glob, size_t bytes)
{
    enum { BYTES_MAX = 300 }; /* the time is their product */
    const size_t half = bytes / 2 < BYTES_MAX ? bytes / 2 : BYTES_MAX;
    const bool plain = !memchr(glob, '*', half) && !memchr(glob, '?', half) && !memchr(glob, '[', half);
    const bool matches = sample_condition_matches(glob, half, glob + half, half);
    fuzz_expect(sample_condition_matches("*", 1, glob, bytes), "* matches everything");
    fuzz_expect(!plain || sample_condition_matches(glob, half, glob, half), "a text matches itself");
    fuzz_expect(!plain || matches == (memcmp(glob, glob + half, half) == 0), "and no other");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    SampleCondition *condition = NULL;
    FshError error = {0};
    char *text = malloc(length + 1);
    fuzz_expect(text != NULL, "memory for the condition");
    memcpy(text, bytes, length);
    text[length] = '\0';
    if (sample_condition_parse(&condition, text, &error) == FSH_OK)
        ask(condition);
    else
        fuzz_expect(error.message[0] && strlen(error.message) < 500, "what is wrong is said, and shown");
    sample_condition_free(&condition);
    match(text, length);
    free(text);
    return 0;
}
