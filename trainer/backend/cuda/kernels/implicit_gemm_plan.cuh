/* implicit_gemm_plan.cuh - how a convolution of implicit_gemm.cu is cut into tiles and parts. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_PLAN_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_PLAN_CUH

#include "trainer/backend/cuda/kernels/implicit_gemm_block.cuh"

namespace fshard
{
namespace implicit
{

/* How a convolution is computed. */
struct Plan {
    Tiles tiles;
    int parts, part; /* of the channels that are written; channels of one */
    int columns;     /* those, rounded up to what there is an instance for */
};

/* Returns the plan of a cover. */
inline Plan plan_of_cover(const DeviceTensor *to, const Cover &cover, int parts)
{
    Plan plan = {};
    plan.tiles = tiles_of(to, cover);
    plan.part = ceil_of(to->pitch, (int64_t)piece * parts) * piece;
    plan.parts = ceil_of(to->pitch, plan.part);
    plan.columns = ceil_of(plan.part, sixteen) * sixteen;
    return plan;
}

/* Returns the clocks of a plan, as far as they tell plans apart: a product of 64 x columns takes columns / 2
 * on the matrix units and reads (64 + columns) * 32 bytes of shared memory at 128 a clock; what a step reads
 * comes at 32 bytes a clock; a tile begins and ends. */
inline double clocks_of(const Plan &plan, int64_t from_pitch)
{
    const int chunks = ceil_of(from_pitch, chunk), sixteens = ceil_of(from_pitch, sixteen);
    const int streams = processors > plan.parts ? processors / plan.parts : 1,
              tiles = ceil_of(plan.tiles.count, streams); /* of a block */
    const double product = plan.columns > 64 ? plan.columns / 2.0 : 16 + plan.columns / 4.0;
    const double compute = sixteens * taps * squares_of(plan.tiles.cover) * product,
                 copy = chunks * (tile_bytes(plan.tiles.cover, 1) + taps * plan.columns * place_bytes) / 32.0;
    return (tiles * ((compute > copy ? compute : copy) + 1500.0) + copy / chunks) *
           ceil_of(plan.parts, processors);
}

/* Returns the plan that takes the fewest clocks. */
inline Plan plan_of(const DeviceTensor *from, const DeviceTensor *to)
{
    Plan best = {};
    double least = 0;
    for (const Cover &cover : covers)
        for (int parts = ceil_of(to->pitch, columns_most), most = parts + 7; parts <= most; parts++) {
            const Plan plan = plan_of_cover(to, cover, parts);
            const double clocks = clocks_of(plan, from->pitch);
            if (least == 0 || clocks < least) {
                least = clocks;
                best = plan;
            }
        }
    return best;
}

/* Returns the streams of tiles: as many blocks as the card runs at once have one each. */
inline int streams_of(const Plan &plan, int peers)
{
    return max(min(processors / plan.parts / peers, ceil_of(plan.tiles.count, peers)), 1) * peers;
}

} // namespace implicit
} // namespace fshard

#endif
