/* decode_team.h - processes of one host that decode a split together, into memory that all of them see.
 *
 * How they meet is the caller's affair (session/host_team.h does it through the ranks' communicator). All
 * processes of a run, of other hosts too, make the same calls in the same order.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_DATA_DECODE_TEAM_H
#define FSHARD_TRAINER_DATA_DECODE_TEAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct DecodeTeam {
    uint64_t index, count; /* of this process among those of its host; their number */
    uint64_t room_bytes;   /* of what they decode on its way into stores of their own; the same on all */
    /* Exchanges how things went, and waits for all: FSH_OK if all are well; else mine, or the failure of
     * another. */
    FshStatus (*agree)(void *context, FshStatus mine, FshError *error);
    /* Sets *memory_ret to zeroed memory that all processes of the host see, for the caller to unmap
     * (munmap); it is gone when the last of them has. NULL, on all alike: these processes cannot share
     * any. */
    FshStatus (*share)(void *context, size_t bytes, void **memory_ret, FshError *error);
    void *context;
} DecodeTeam;

#endif
