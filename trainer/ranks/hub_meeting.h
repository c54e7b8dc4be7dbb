/* hub_meeting.h - how hosts find each other: rank 0's listens, the others connect. For hub.c alone.
 *
 * The first host listens on the address of the place. Where that is none of its own (a container, an address
 * that is forwarded) or a loopback address under another name (a host's own name, in Debian's /etc/hosts), it
 * listens on all of its addresses, and says so. Whoever connects has 5 seconds for its hello; strangers,
 * however many and slow, are let go one by one and neither hold up nor end the meeting.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_RANKS_HUB_MEETING_H
#define FSHARD_TRAINER_RANKS_HUB_MEETING_H

#include "trainer/ranks/hub.h"
#include "trainer/ranks/hub_frames.h"

/* A host at the other end of a connection. */
typedef struct HubLink {
    int socket; /* does not block */
    uint64_t first, count, process;
    char host[HUB_HOST_MAX];
} HubLink;

typedef struct HubMeeting {
    HubLink *links; /* of the first host: all others, in the order of their ranks; else the first alone */
    uint64_t link_count; /* connected so far, which may be fewer than host_count tells after a failure */
    uint64_t host_count;
} HubMeeting;

/* Meets the other hosts. meeting->links has room for RANKS_MAX. Errors as hub_open; the connections that
 * meeting has then are the caller's to close. */
FshStatus hub_meeting_hold(HubMeeting *meeting, const RankPlace *place, const HubOptions *options,
                           FshError *error);

#endif
