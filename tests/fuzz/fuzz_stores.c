/* What stores/ reads of others: answers of servers in XML, the files of ~/.aws, the note of what was sent. */
#include <stdlib.h>
#include <string.h>

#include "stores/store_aws.h"
#include "stores/store_leftovers.h"
#include "tests/fuzz/fuzz.h"

static void read_xml(const char *text)
{
    static const char *const names[] = {"Code", "Message", "UploadId"};
    char value[40];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(value, 'x', sizeof value);
        if (store_xml_text(text, names[i], value, sizeof value))
            fuzz_expect(memchr(value, '\0', sizeof value) != NULL && strstr(text, value) != NULL,
                        "the text of an element is in the answer");
    }
}

static void read_profile(const uint8_t *bytes, size_t length)
{
    static const char *const names[] = {"default", "lab", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        AwsProfile profile = {0};
        aws_profile_parse(&profile, (const char *)bytes, length, names[i]);
        fuzz_expect(memchr(profile.key, '\0', sizeof profile.key) &&
                        memchr(profile.secret, '\0', sizeof profile.secret) &&
                        memchr(profile.token, '\0', sizeof profile.token) &&
                        memchr(profile.region, '\0', sizeof profile.region),
                    "every value ends");
        fuzz_expect(profile.found || !(*profile.key || *profile.secret || *profile.token || *profile.region),
                    "values are of a profile that is there");
    }
}

static void read_leftovers(const uint8_t *bytes, size_t length)
{
    StoreLeftovers leftovers = {.loaded = true};
    FshError error = {0};
    fuzz_expect(!buffer_append(&leftovers.names, bytes, length, &error) &&
                    !buffer_append(&leftovers.names, "\n", 1, &error),
                "memory for the names");
    fuzz_expect(!store_leftovers_add(&leftovers, "train-00000-of-00001.fshard", &error),
                "memory for one more");
    const size_t before = leftovers.names.length;
    fuzz_expect(!store_leftovers_add(&leftovers, "train-00000-of-00001.fshard", &error) &&
                    leftovers.names.length == before,
                "a name is noted once");
    store_leftovers_free(&leftovers);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char *text = malloc(length + 1);
    fuzz_expect(text != NULL, "memory for the text");
    memcpy(text, bytes, length);
    text[length] = '\0';
    read_xml(text);
    free(text);
    read_profile(bytes, length);
    read_leftovers(bytes, length);
    return 0;
}
