#include "trainer/ranks/hub_frames.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { PROTOCOL = 1, KIND_CHALLENGE = 1, KIND_HELLO = 2, KIND_WELCOME = 3 };
static const char magic[HUB_MAGIC_BYTES + 1] = "fshard\r\n";

static HubOpening opening_of(uint32_t kind)
{
    HubOpening opening = {.protocol = PROTOCOL, .kind = kind};
    memcpy(opening.magic, magic, sizeof opening.magic);
    return opening;
}

/* ---- making ---- */

static FshStatus draw(uint8_t nonce[HUB_NONCE_BYTES], FshError *error)
{
    return getrandom(nonce, HUB_NONCE_BYTES, 0) == HUB_NONCE_BYTES
               ? FSH_OK
               : fsh_error_system(error, errno, "no random numbers");
}

/* Makes the proof of a frame: of what it answers, and of all in it before the proof. */
static void prove(const void *answered, size_t answered_bytes, const void *frame, size_t frame_bytes,
                  const char *secret, uint8_t proof[HUB_PROOF_BYTES])
{
    uint8_t bytes[sizeof(HubHello) + offsetof(HubWelcome, proof)]; /* the longest */
    memcpy(bytes, answered, answered_bytes);
    memcpy(bytes + answered_bytes, frame, frame_bytes);
    hub_proof_make(secret, bytes, answered_bytes + frame_bytes, proof);
}

static void prove_hello(const HubHello *hello, const HubChallenge *challenge, const char *secret,
                        uint8_t proof[HUB_PROOF_BYTES])
{
    prove(challenge, sizeof *challenge, hello, offsetof(HubHello, proof), secret, proof);
}

static void prove_welcome(const HubWelcome *welcome, const HubHello *hello, const char *secret,
                          uint8_t proof[HUB_PROOF_BYTES])
{
    prove(hello, sizeof *hello, welcome, offsetof(HubWelcome, proof), secret, proof);
}

FshStatus hub_challenge_make(HubChallenge *challenge, FshError *error)
{
    *challenge = (HubChallenge){.opening = opening_of(KIND_CHALLENGE)};
    return draw(challenge->nonce, error);
}

FshStatus hub_hello_make(HubHello *hello, const RankPlace *place, const char *host,
                         const HubChallenge *challenge, const char *secret, FshError *error)
{
    *hello = (HubHello){.opening = opening_of(KIND_HELLO),
                        .run = place->run,
                        .world_size = place->world_size,
                        .first = rank_place_first(place),
                        .count = place->local_world,
                        .process = (uint64_t)getpid()};
    (void)snprintf(hello->version, sizeof hello->version, "%s", FSHARD_VERSION);
    (void)snprintf(hello->host, sizeof hello->host, "%s", host);
    FshStatus status = draw(hello->nonce, error);
    prove_hello(hello, challenge, secret, hello->proof);
    return status;
}

void hub_welcome_make(HubWelcome *welcome, const HubHello *hello, const char *secret)
{
    welcome->opening = opening_of(KIND_WELCOME);
    prove_welcome(welcome, hello, secret, welcome->proof);
}

/* ---- checking ---- */

void hub_text_clean(char *text, size_t text_bytes)
{
    text[text_bytes - 1] = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
            *text = '?';
}

/* Checks the beginning of a frame. */
static bool check_opening(const HubOpening *opening, uint32_t kind, char text[HUB_TEXT_MAX])
{
    text[0] = '\0';
    if (memcmp(opening->magic, magic, sizeof opening->magic) != 0 ||
        (opening->protocol == PROTOCOL && opening->kind != kind))
        (void)snprintf(text, HUB_TEXT_MAX, "it does not speak as ftrain does");
    else if (opening->protocol != PROTOCOL)
        (void)snprintf(text, HUB_TEXT_MAX,
                       "it speaks protocol %" PRIu32 ", and ftrain %s speaks %d; install one version on all "
                       "hosts",
                       opening->protocol, FSHARD_VERSION, PROTOCOL);
    return !text[0];
}

bool hub_challenge_check(const HubChallenge *challenge, char text[HUB_TEXT_MAX])
{
    return check_opening(&challenge->opening, KIND_CHALLENGE, text);
}

/* Checks that the ranks of a hello can be some of the run's. */
static HubCheck check_ranks(const HubHello *hello, const RankPlace *place, char text[HUB_TEXT_MAX])
{
    if (hello->world_size != place->world_size)
        (void)snprintf(text, HUB_TEXT_MAX,
                       "host %s was started with %" PRIu64 " ranks in all, and the first host with %" PRIu64
                       "; start as many on every host",
                       hello->host, hello->world_size, place->world_size);
    else if (hello->count < 1 || hello->first < 1 || hello->first >= place->world_size ||
             hello->count > place->world_size - hello->first)
        (void)snprintf(text, HUB_TEXT_MAX,
                       "host %s says that it has %" PRIu64 " ranks from rank %" PRIu64 " on, of %" PRIu64
                       ", and rank 0 is here",
                       hello->host, hello->count, hello->first, place->world_size);
    else
        return HUB_WELL;
    return HUB_MISFIT;
}

HubCheck hub_hello_check(HubHello *hello, const RankPlace *place, const HubChallenge *challenge,
                         const char *secret, char text_ret[HUB_TEXT_MAX])
{
    uint8_t proof[HUB_PROOF_BYTES];
    if (!check_opening(&hello->opening, KIND_HELLO, text_ret))
        return HUB_STRANGER;
    prove_hello(hello, challenge, secret, proof);
    if (!hub_proof_is(proof, hello->proof)) {
        (void)snprintf(text_ret, HUB_TEXT_MAX,
                       "FSHARD_SECRET differs between this host and the first; set the same on all, or none");
        return HUB_STRANGER;
    }
    hub_text_clean(hello->version, sizeof hello->version);
    hub_text_clean(hello->host, sizeof hello->host);
    if (hello->run != place->run) {
        (void)snprintf(text_ret, HUB_TEXT_MAX,
                       "host %s is of another job; give each run a port of its own (--master-port)",
                       hello->host);
        return HUB_STRANGER;
    }
    if (strcmp(hello->version, FSHARD_VERSION) != 0) {
        (void)snprintf(text_ret, HUB_TEXT_MAX,
                       "host %s has ftrain %s, and the first host ftrain %s; install one version on all",
                       hello->host, hello->version, FSHARD_VERSION);
        return HUB_MISFIT;
    }
    return check_ranks(hello, place, text_ret);
}

HubCheck hub_welcome_check(HubWelcome *welcome, const HubHello *hello, const char *secret,
                           char text_ret[HUB_TEXT_MAX])
{
    uint8_t proof[HUB_PROOF_BYTES];
    if (!check_opening(&welcome->opening, KIND_WELCOME, text_ret))
        return HUB_STRANGER;
    prove_welcome(welcome, hello, secret, proof);
    hub_text_clean(welcome->name, sizeof welcome->name);
    hub_text_clean(welcome->text, sizeof welcome->text);
    if (welcome->verdict != HUB_TOGETHER) { /* who has another secret is refused too, and cannot check why */
        (void)snprintf(text_ret, HUB_TEXT_MAX, "%s", welcome->text);
        return HUB_MISFIT;
    }
    if (!hub_proof_is(proof, welcome->proof)) {
        (void)snprintf(text_ret, HUB_TEXT_MAX,
                       "it does not know FSHARD_SECRET; is it the first host of this run?");
        return HUB_STRANGER;
    }
    if (welcome->host_count < 2 || welcome->host_count > RANKS_MAX || welcome->host < 1 ||
        welcome->host >= welcome->host_count) {
        (void)snprintf(text_ret, HUB_TEXT_MAX, "it makes this host %" PRIu64 " of %" PRIu64, welcome->host,
                       welcome->host_count);
        return HUB_MISFIT;
    }
    return HUB_WELL;
}
