/* odd_network.h - a small network whose channel counts are all odd, for how tensors lie on a GPU; no GPU need
 * be here. */
#ifndef FSHARD_TESTS_TRAINER_ODD_NETWORK_H
#define FSHARD_TESTS_TRAINER_ODD_NETWORK_H

#include "trainer/graph/graph.h"

/* Returns a differentiated network on two images of 6 x 5: "normalized" (kept), "conv" with a bias, a norm,
 * "grouped" of 9 channels in so many groups, "linear". The caller frees it. */
Graph *odd_network(DataType type, int64_t groups);

#endif
