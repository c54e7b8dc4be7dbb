/* profile.h - where the time of a training step goes, layer by layer, and the least that each layer could
 * take.
 *
 * The floor of a node is the longer of two times: its inputs and outputs once through memory, at the rate of
 * a copy; its operations, at the rate of a large product. An update moves its parameters, their state and
 * their gradients. A node that fits a cache can be faster than its floor. A node without countable operations
 * is compared with memory alone.
 *
 * Threads: any, each with its own. */
#ifndef FSHARD_TRAINER_REPORT_PROFILE_H
#define FSHARD_TRAINER_REPORT_PROFILE_H

#include <stdio.h>

#include "trainer/backend/backend.h"

typedef struct ProfileNode {
    NodeId node;
    double seconds;      /* of one step */
    double bytes, flops; /* bytes moved at least; operations, a multiply-add counted as two */
    double floor_seconds;
} ProfileNode;

typedef struct Profile {
    const Graph *graph; /* borrowed */
    BackendRates rates;
    ProfileNode *nodes; /* longest first; owned */
    size_t node_count;
    double seconds, floor_seconds; /* sums */
} Profile;

/* Makes a profile. seconds: of each node, over `steps` steps. FSH_ERR_MEMORY. On failure nothing is held. */
FshStatus profile_make(Profile *profile, const Graph *graph, const double *seconds, uint64_t steps,
                       const BackendRates *rates, FshError *error);
void profile_free(Profile *profile);

/* Prints the profile by kind of operation, then by layer. */
void profile_print(const Profile *profile, FILE *stream);
/* Writes "33.0 ms, floor 12.1 ms (37 %); conv2d 12.3 ms, batch_norm 4.2 ms, …" to buffer, with the five
 * longest kinds. Returns buffer. */
const char *profile_summary(const Profile *profile, char *buffer, size_t buffer_bytes);

#endif
