/* position_grid.h - positions of a vision transformer that were trained on images of one size, for images of
 * another: resampled as a picture of one channel for each of theirs. */
#ifndef FSHARD_TRAINER_CHECKPOINT_POSITION_GRID_H
#define FSHARD_TRAINER_CHECKPOINT_POSITION_GRID_H

#include "trainer/checkpoint/safetensors.h"
#include "trainer/graph/graph.h"

/* Returns the edge of the square of positions that a file's entry holds behind the rows of a parameter of
 * graph_tokens that are of no pixel; 0: the parameter is none, or the entry does not fit so. */
int64_t position_grid_edge(const SafetensorsEntry *entry, const Tensor *parameter);

/* Sets values to stored, the numbers of such an entry: rows of no pixel as they are, the square resampled to
 * the parameter's height and width by a cubic filter (a = -0.5) that widens where there are fewer, as timm's
 * resample_abs_pos_embed does. FSH_ERR_MEMORY. */
FshStatus position_grid_resample(const Tensor *parameter, int64_t edge, const float *stored, float *values,
                                 FshError *error);

#endif
