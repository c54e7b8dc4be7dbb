/* hub_frames.h - what hosts send each other when they meet, and how it is checked. For hub_*.c alone.
 *
 *   the first host             another
 *   HubChallenge      ->                      a number, drawn for this connection
 *                     <-       HubHello       who it is; a proof over the challenge and the hello
 *   HubWelcome        ->                      once all are there, or what is wrong; a proof over the hello
 *
 * Every frame has one size, so no length is ever read from a peer. The proofs are made with the secret
 * (FSHARD_SECRET; without one, with an empty text), on both sides, over numbers that the other has drawn: who
 * does not know the secret can neither join nor pass for the first host, and what was said in another meeting
 * is of no use. They are of the meeting alone. What the hosts say afterwards is neither signed nor encrypted:
 * who can read and change the packets on their way is not kept out.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_HUB_FRAMES_H
#define FSHARD_TRAINER_RANKS_HUB_FRAMES_H

#include "trainer/ranks/hub_proof.h"
#include "trainer/ranks/rank_place.h"

enum {
    HUB_HOST_MAX = 64,
    HUB_VERSION_MAX = 32,
    HUB_NONCE_BYTES = 32,
    HUB_TEXT_MAX = 400,
    HUB_MAGIC_BYTES = 8
};

/* What every frame of the meeting begins with. Numbers are as the machine has them: a machine with another
 * order of bytes is told apart by the protocol's number. */
typedef struct HubOpening {
    char magic[HUB_MAGIC_BYTES];
    uint32_t protocol, kind;
} HubOpening;

typedef struct HubChallenge {
    HubOpening opening;
    uint8_t nonce[HUB_NONCE_BYTES];
} HubChallenge;

typedef struct HubHello {
    HubOpening opening;
    uint64_t run, world_size;
    uint64_t first, count; /* the ranks of this host: first, and how many follow each other */
    uint64_t process;
    char version[HUB_VERSION_MAX];
    char host[HUB_HOST_MAX];
    uint8_t nonce[HUB_NONCE_BYTES];
    uint8_t proof[HUB_PROOF_BYTES];
} HubHello;

typedef enum HubVerdict {
    HUB_TOGETHER,
    HUB_REFUSED,     /* a host does not fit: FSH_ERR_USAGE on all that are told */
    HUB_FAILED,      /* a host is missing, or something is lost: FSH_ERR_PEER */
    HUB_INTERRUPTED, /* a signal has come to the first host */
} HubVerdict;

typedef struct HubWelcome {
    HubOpening opening;
    uint64_t verdict;          /* HubVerdict */
    uint64_t host, host_count; /* of the one that is welcome: its index, and how many there are */
    uint64_t process;          /* of the first host's first rank */
    char name[HUB_HOST_MAX];   /* of the first host */
    uint64_t signal_number;    /* HUB_INTERRUPTED: which */
    char text[HUB_TEXT_MAX];   /* why not HUB_TOGETHER */
    uint8_t proof[HUB_PROOF_BYTES];
} HubWelcome;
_Static_assert(sizeof(HubChallenge) == 48 && sizeof(HubHello) == 216 && sizeof(HubWelcome) == 552,
               "frames have no gaps, whose bytes nobody would set");

/* Fill in a frame. The hello's and the welcome's proofs are made too. */
FshStatus hub_challenge_make(HubChallenge *challenge, FshError *error);
FshStatus hub_hello_make(HubHello *hello, const RankPlace *place, const char *host,
                         const HubChallenge *challenge, const char *secret, FshError *error);
void hub_welcome_make(HubWelcome *welcome, const HubHello *hello, const char *secret);

/* Ends a text of a peer, and makes it printable. */
void hub_text_clean(char *text, size_t text_bytes);

/* Returns whether these are the first bytes of ftrain. */
bool hub_challenge_check(const HubChallenge *challenge, char text[HUB_TEXT_MAX]);

typedef enum HubCheck {
    HUB_WELL,
    HUB_STRANGER, /* no ftrain, or without the secret, or of another run: not to be counted */
    HUB_MISFIT,   /* of this run, and it cannot be joined: another version, another number of ranks */
} HubCheck;

/* Checks a hello against the place of the first host. text_ret: why not, for the peer and for the log. Texts
 * of hello end, and have no control characters, afterwards. */
HubCheck hub_hello_check(HubHello *hello, const RankPlace *place, const HubChallenge *challenge,
                         const char *secret, char text_ret[HUB_TEXT_MAX]);
/* Does the same for a welcome: HUB_WELL, or HUB_STRANGER or HUB_MISFIT with a text. Verdicts other than
 * HUB_TOGETHER are HUB_MISFIT with the first host's text. */
HubCheck hub_welcome_check(HubWelcome *welcome, const HubHello *hello, const char *secret,
                           char text_ret[HUB_TEXT_MAX]);

#endif
