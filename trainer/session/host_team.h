/* host_team.h - the ranks of a host as a team that decodes a split together (decode_team.h).
 *
 * What they share is memory without a name (memfd): the host's first rank makes it, the others open it
 * through /proc/PROCESS/fd, and it is gone with the last rank, however that ends. Where /proc does not
 * show the first rank's process (ranks in containers of their own), nothing is shared.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_HOST_TEAM_H
#define FSHARD_TRAINER_SESSION_HOST_TEAM_H

#include "trainer/data/decode_team.h"
#include "trainer/ranks/communicator.h"

typedef struct HostTeam {
    DecodeTeam team;
    Communicator *communicator; /* borrowed */
    char why[256];              /* nothing could be shared: why, the same on all ranks; "" until then */
} HostTeam;

/* Sets *team; it must not move afterwards. */
void host_team_open(HostTeam *team, Communicator *communicator);

#endif
