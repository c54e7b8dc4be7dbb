/* op_cases.h - every op that a network is built of, as a row of one table; op_test.c and cuda_op_test.c run
 * all their checks over it.
 *
 *   {.name = "gate", .golden = "gate", .build = build_gate, .shapes = {SHAPES(small_images)}, .channel_factor
 *    = 2},
 *
 * To add an op, add what builds it (op_builders.c), its row (op_cases.c), and its cases to
 * golden/make_golden.py. A test fails where an op has no row. */
#ifndef FSHARD_TESTS_TRAINER_OP_CASES_H
#define FSHARD_TESTS_TRAINER_OP_CASES_H

#include "trainer/graph/graph.h"

/* What an op is built with. Each builder reads what its op has. */
typedef struct OpOptions {
    Conv2d conv; /* linear layers: channels and bias */
    Pool2d pool; /* reflection pads: padding */
    BatchNorm norm;
    int64_t box[3];  /* zero pad and crop: by how much the height, width and channels change */
    int64_t factor;  /* shuffles */
    int64_t heads;   /* attention */
    bool relu;       /* an activation follows: slope is its own */
    float slope;     /* of the activation; the factor of a scale */
    OpKind function; /* OP_GELU, OP_SILU or OP_MISH, which follows; 0: none */
} OpOptions;

typedef struct OpCase {
    int64_t x[4]; /* shape; 0 after its last axis */
    OpOptions options;
} OpCase;

/* What the builder gets beside x. */
typedef enum OpOther {
    OTHER_NONE,
    OTHER_X,          /* x itself */
    OTHER_LIKE_X,     /* another input, of the shape of x */
    OTHER_WIDER,      /* another input with three channels more */
    OTHER_FACTORS,    /* another input [N, C], always f32 */
    OTHER_NO_GRADIENT /* another input, of the shape of x, that wants no gradient */
} OpOther;

enum {
    OP_F32 = 1 << DATA_F32,
    OP_BF16 = 1 << DATA_BF16,
    OP_F16 = 1 << DATA_F16,
    OP_NARROW = OP_BF16 | OP_F16
};

typedef struct OpShapes {
    const int64_t (*shapes)[4];
    int count;
} OpShapes;

/* Appends an op to the graph. */
typedef TensorId OpBuild(Graph *graph, const OpOptions *options, TensorId x, TensorId other);

typedef struct OpTest {
    const char *name;
    OpBuild *build;
    const char *golden; /* the op's name in golden/layers.json, in the first of its rows */
    /* Cases: `options` at each of `shapes`, and those of `cases` or `sweep`, which have options of
     * their own. */
    OpOptions options;
    OpShapes shapes[3];
    const OpCase *cases;
    bool (*sweep)(int i, OpCase *case_ret); /* makes case i of many; false: there are no more */
    /* shapes are of [N, H, W, C]: x is [N, size_factor H, size_factor W, channel_factor C]; 0 means 1 */
    int64_t size_factor, channel_factor;
    OpShapes large; /* too large for the CPU alone, for compute-sanitizer and for finite differences */
    /* How far results may be apart, root mean square, relative to their size: in f32 (0: 1e-4), and in a
     * narrow type times its epsilon (2^-8 for bf16, 2^-11 for f16; 0: 1). A result that is rounded once is
     * off by 0.3. */
    double f32, roundings;
    int case_count;
    OpOther other;
    unsigned types;      /* OP_F32 …; 0: all */
    bool has_no_cpu_way; /* its cases are the CUDA backend's affair: to the CPU they are all one */
    /* Also between two layer norms, which add up over the padding of narrow images; four roundings more. */
    bool between_norms;
    /* A ReLU stands behind a sum with a term that was rounded before. Where the sum is nearly 0, rounding
     * turns the ReLU over: of a share of all values like epsilon, so gradients are off by a share like its
     * root, and are held to 0.7 of it. */
    bool turns;
    const char *cancels; /* a gradient of one value, a sum that nearly cancels: held to twice as much */
} OpTest;

/* op_builders.c */
OpBuild build_conv2d, build_conv2d_relu, build_conv2d_leaky_relu, build_conv2d_frozen, build_linear,
    build_linear_1x1, build_linear_add, build_three_linears, build_flatten_linear, build_batch_norm,
    build_batch_norm_unscaled, build_norm_pool, build_add_batch_norm, build_norm_squeeze_excite,
    build_layer_norm, build_response_norm, build_relu, build_gelu, build_silu, build_mish,
    build_multiply_by_sigmoid, build_add, build_add_scaled, build_add_twice, build_add_thrice, build_max_pool,
    build_max_pool_of_relu, build_avg_pool, build_global_avg_pool, build_reflection_pad, build_flatten,
    build_zero_pad, build_crop, build_concat, build_tokens, build_tokens_of_frozen_class,
    build_tokens_without_class, build_tokens_of_sines, build_tokens_of_sines_with_class, build_attention,
    build_self_attention, build_self_attention_of_frozen_weight, build_pixel_shuffle, build_pixel_unshuffle,
    build_scale, build_channel_scale, build_channel_multiply, build_gate, build_gate_of_means,
    build_gate_of_factors, build_softmax_cross_entropy;

extern const OpTest op_tests[];
extern const int op_test_count;

/* Sets *case_ret to case i of a row, or of its large ones. Returns false where the row has no more. */
bool op_case(const OpTest *row, bool large, int i, OpCase *case_ret);
/* Returns the row whose golden name this is; NULL if there is none. */
const OpTest *op_test_of_golden(const char *name);

#endif
