/* lane_recorder.h - puts the steps of a program into two streams while they are recorded
 * (trainer/graph/lanes.h).
 *
 *   lane_recorder_begin(&recorder, plan, node_count, main, beside, &error);
 *   for each node n: lane_recorder_enter(&recorder, n, &stream, &error); … enqueue it on stream …
 *                    lane_recorder_leave(&recorder, n, &error);
 *   lane_recorder_end(&recorder, &error); // always */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LANE_RECORDER_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_LANE_RECORDER_H

#include <cuda_runtime_api.h>

#include "trainer/graph/lanes.h"

typedef struct LaneRecorder {
    const LanePlan *plan;
    size_t node_count;
    cudaStream_t main, beside;
    cudaEvent_t *ended;   /* [node_count] of steps beside, NULL elsewhere; NULL: there is one lane */
    cudaEvent_t fork;     /* what has been enqueued in the main lane */
    bool fork_is_current; /* nothing was enqueued in the main lane since the last step beside began */
} LaneRecorder;

/* Begins while the main stream is being captured. beside may be the same stream: then there is one lane.
 * FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
FshStatus lane_recorder_begin(LaneRecorder *recorder, const LanePlan *plan, size_t node_count,
                              cudaStream_t main, cudaStream_t beside, FshError *error);
/* Sets *stream_ret to the stream of node n, which waits there for all that the node has to wait for. */
FshStatus lane_recorder_enter(LaneRecorder *recorder, size_t n, cudaStream_t *stream_ret, FshError *error);
/* Notes that node n has been enqueued. */
FshStatus lane_recorder_leave(LaneRecorder *recorder, size_t n, FshError *error);
/* Makes the main stream wait for all that was enqueued beside, and frees the recorder. */
FshStatus lane_recorder_end(LaneRecorder *recorder, FshError *error);

#endif
