/* What hosts say when they meet: a hello, or a welcome where the input is longer. Whoever is let in has ranks
 * of the run and names that can be printed. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "trainer/ranks/hub_frames.h"

static const char secret[] = "open sesame";
static const RankPlace first = {.rank = 0, .world_size = 8, .local_world = 2, .run = 7};
static const HubChallenge challenge; /* all zeros, so that proofs can be mended */

static void expect_printable(const char *text, size_t text_bytes)
{
    fuzz_expect(memchr(text, '\0', text_bytes) != NULL, "the text ends");
    for (; *text; text++)
        fuzz_expect(*text >= ' ' && *text <= '~', "the text can be printed");
}

static void try_hello(HubHello *hello)
{
    char text[HUB_TEXT_MAX] = "";
    const HubCheck check = hub_hello_check(hello, &first, &challenge, secret, text);
    if (check == HUB_WELL) {
        fuzz_expect(hello->first >= 1 && hello->count >= 1 && hello->count <= 8 - hello->first,
                    "the ranks are some of the run's");
        expect_printable(hello->host, sizeof hello->host);
    } else {
        fuzz_expect(text[0] != '\0', "a refusal says why");
        expect_printable(text, sizeof text);
    }
}

static void try_welcome(HubWelcome *welcome)
{
    const HubHello hello = {.run = 7};
    char text[HUB_TEXT_MAX] = "";
    if (hub_welcome_check(welcome, &hello, secret, text) == HUB_WELL)
        fuzz_expect(welcome->host >= 1 && welcome->host < welcome->host_count &&
                        welcome->host_count <= RANKS_MAX,
                    "the host is one of the hosts");
    else
        expect_printable(text, sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    HubChallenge spoken = {0};
    HubHello hello = {0};
    HubWelcome welcome = {0};
    char text[HUB_TEXT_MAX];
    memcpy(&spoken, bytes, length < sizeof spoken ? length : sizeof spoken);
    memcpy(&hello, bytes, length < sizeof hello ? length : sizeof hello);
    memcpy(&welcome, bytes, length < sizeof welcome ? length : sizeof welcome);
    (void)hub_challenge_check(&spoken, text);
    if (length <= sizeof hello)
        try_hello(&hello);
    else
        try_welcome(&welcome);
    return 0;
}

/* Makes the proof right, as somebody who knows the secret would. */
void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    const HubHello hello = {.run = 7};
    HubWelcome welcome;
    uint8_t proved[sizeof challenge + sizeof(HubHello)] = {0};
    (void)choice;
    if (length == sizeof(HubHello)) {
        memcpy(proved + sizeof challenge, bytes, offsetof(HubHello, proof));
        hub_proof_make(secret, proved, sizeof challenge + offsetof(HubHello, proof),
                       bytes + offsetof(HubHello, proof));
    } else if (length == sizeof welcome) {
        memcpy(&welcome, bytes, sizeof welcome);
        hub_welcome_make(&welcome, &hello, secret);
        memcpy(bytes, &welcome, sizeof welcome);
    }
}
