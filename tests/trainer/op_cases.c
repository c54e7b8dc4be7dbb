#include "tests/trainer/op_cases.h"

#include <stddef.h>
#include <string.h>

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define SHAPES(array)                                                                                        \
    {                                                                                                        \
        (array), COUNT_OF(array)                                                                             \
    }
#define CASES(array) .cases = (array), .case_count = COUNT_OF(array)

/* ---- shapes ---- */

/* One pixel; channels that are no whole vectors of either type; whole ones; odd sides; a batch. */
static const int64_t small_images[][4] = {{1, 1, 1, 1},  {1, 3, 5, 3},  {2, 6, 3, 11}, {3, 5, 7, 8},
                                          {2, 7, 4, 12}, {2, 6, 9, 20}, {3, 4, 5, 32}, {2, 3, 4, 5}};

/* More samples than are added up at a time. */
static const int64_t many_samples[][4] = {{35, 3, 2, 12}, {17, 2, 2, 70}};

/* Each size of a group of lanes, pixels that a group does not hold, blocks that do not hold a row. */
static const int64_t all_channels[][4] = {{2, 3, 3, 40},  {2, 3, 3, 70},   {2, 3, 3, 128},  {2, 3, 3, 136},
                                          {2, 3, 3, 250}, {2, 3, 3, 256},  {2, 3, 3, 264},  {2, 3, 3, 512},
                                          {2, 3, 3, 520}, {2, 3, 3, 1024}, {2, 3, 3, 1032}, {2, 3, 3, 1100},
                                          {2, 3, 3, 2100}};

/* Many strips, many rows for each thread, more than one round of the grid. */
static const int64_t large_images[][4] = {{2, 70, 66, 16}},
                     larger_images[][4] = {{2, 70, 66, 16}, {2, 201, 256, 32}};

/* Odd channels, whole vectors, one element, more than a block. */
static const int64_t pointwise_images[][4] = {{1, 1, 1, 1},  {1, 5, 7, 3},   {2, 3, 3, 8},    {3, 1, 1, 20},
                                              {4, 7, 7, 12}, {2, 33, 3, 70}, {2, 9, 100, 21}, {5, 40, 37, 64},
                                              {2, 3, 5, 7},  {2, 3, 4, 5}};
/* Enough for the kernels that have several loads in flight. */
static const int64_t pointwise_large[][4] = {{6, 257, 259, 20}};

/* Rows and channels dealt out in every way. */
static const int64_t norm_images[][4] = {{1, 9, 11, 7},    {1, 2, 3, 3},    {5, 17, 13, 12}, {3, 8, 8, 264},
                                         {32, 12, 12, 40}, {2, 5, 5, 2048}, {2, 2, 2, 8},    {64, 8, 8, 286},
                                         {4, 5, 7, 24},    {3, 5, 7, 3},    {4, 5, 6, 64},   {4, 6, 6, 80}};
/* Images of one strip and of several, of a line and of less, channels that are no whole vectors, several
 * blocks of channels; and images enough that each is a strip. */
static const int64_t gated_images[][4] = {{2, 3, 5, 3},    {3, 9, 11, 7},  {2, 1, 2, 8},   {5, 17, 13, 12},
                                          {4, 5, 7, 24},   {2, 5, 5, 520}, {300, 3, 3, 8}, {3, 8, 8, 264},
                                          {2, 40, 40, 16}, {4, 6, 6, 80}};
static const int64_t gated_large[][4] = {{64, 40, 40, 64}, {600, 5, 5, 256}};
static const int64_t norm_matrices[][4] = {{1024, 512}, {64, 19}, {7, 8}};
/* Enough rows for every block of a sum to walk over several lines. The first is too large for one launch; of
 * the others, some do not stay in shared memory whole (rows_whole.cuh). */
static const int64_t many_rows[][4] = {
    {16, 104, 104, 88}, {16, 80, 80, 88}, {16, 80, 80, 64}, {64, 40, 40, 24}, {4, 64, 64, 256}};
static const int64_t many_rows_alone[][4] = {{16, 96, 96, 96}}, many_rows_of_input[][4] = {{16, 80, 80, 64}};

/* Sizes that leave rows without a window, channels that fill no vector. */
static const int64_t windows[][4] = {{1, 9, 11, 3},   {3, 8, 8, 16}, {5, 7, 13, 13}, {2, 12, 5, 40},
                                     {2, 30, 35, 40}, {2, 9, 7, 70}, {2, 8, 6, 70},  {2, 5, 6, 9}};
/* Channels in multiples of 8. */
static const int64_t eights[][4] = {{1, 9, 11, 8}, {3, 8, 7, 24}, {2, 30, 35, 72}};
/* So many pixels that an image is pooled in parts. */
static const int64_t pooled_in_parts[][4] = {{2, 64, 48, 13}, {1, 40, 37, 264}, {3, 7, 5, 20}};

static const int64_t matrices[][4] = {{1, 1},    {1, 9},    {2, 16}, {7, 33}, {64, 40},
                                      {33, 500}, {32, 100}, {5, 64}, {1, 24}, {3, 24}};
/* One number alone may be all cancellation. */
static const int64_t matrices_of_several[][4] = {{1, 9}, {2, 16}, {7, 33}, {64, 40}, {33, 500}};
static const int64_t images_flattened[][4] = {{1, 1, 1, 1},  {1, 5, 7, 3},  {2, 3, 3, 8},
                                              {3, 1, 1, 20}, {4, 7, 7, 12}, {2, 33, 3, 70}};

/* ---- convolutions ---- */

#define CONV(...) .options.conv = {__VA_ARGS__}
/* A pool: POOL(kernel, stride, padding). */
#define POOL(size, step, pad) .options.pool = {.kernel = (size), .stride = (step), .padding = (pad)}

/* Makes convolution i of all kernels and channel counts. Each count is there once in and once out, as every
 * pair of odd and padded counts would take minutes. */
static bool channels_and_kernels(int i, OpCase *c)
{
    static const int64_t channels[][2] = {{3, 5}, {5, 13}, {13, 21}, {21, 3}, {8, 16}, {16, 8}, {1, 1}};
    static const Conv2d kernels[] = {
        {.kernel = 1, .stride = 1},
        {.kernel = 1, .stride = 2},
        {.kernel = 3, .stride = 1, .padding = 1},
        {.kernel = 3, .stride = 2, .padding = 1},
        {.kernel = 3, .stride = 2},
        {.kernel = 5, .stride = 1, .padding = 2},
        {.kernel = 5, .stride = 2, .padding = 2},
        {.kernel = 7, .stride = 1, .padding = 3},
        {.kernel = 7, .stride = 2, .padding = 3},
    };
    const int pair = i / COUNT_OF(kernels), kernel = i % COUNT_OF(kernels);
    if (pair >= COUNT_OF(channels))
        return false;
    *c = (OpCase){.x = {1 + kernel % 3, 9, 11, channels[pair][0]}, .options.conv = kernels[kernel]};
    c->options.conv.channels = channels[pair][1];
    c->options.conv.bias = (pair + kernel) % 2 == 0;
    return true;
}

/* Makes convolution i of those that the kernels for few channels take without having been timed: all their
 * widths, images smaller than the 16 pixels of a warp and with an odd rest, pixels that no tap reads, a
 * kernel that reaches beyond the image on both sides. */
static bool few_channels(int i, OpCase *c)
{
    static const int64_t numbers[][8] = {
        /* batch, height, width, in, out, kernel, stride, padding */
        {1, 3, 3, 3, 3, 3, 1, 0},   {1, 3, 3, 1, 8, 3, 2, 1},    {5, 14, 14, 3, 3, 3, 1, 0},
        {3, 16, 13, 3, 8, 3, 2, 0}, {2, 9, 9, 8, 32, 3, 2, 0},   {2, 5, 6, 32, 8, 3, 1, 1},
        {7, 4, 4, 16, 16, 3, 1, 0}, {2, 6, 7, 24, 8, 2, 2, 1},   {2, 7, 5, 8, 24, 4, 1, 3},
        {1, 2, 2, 5, 9, 5, 1, 2},   {2, 8, 7, 7, 3, 1, 2, 0},    {2, 9, 8, 16, 13, 5, 2, 2},
        {2, 6, 6, 9, 3, 4, 2, 1},   {64, 30, 30, 1, 3, 3, 2, 0}, {2, 31, 5, 3, 16, 2, 1, 0}};
    if (i >= COUNT_OF(numbers))
        return false;
    const int64_t *n = numbers[i];
    *c =
        (OpCase){.x = {n[0], n[1], n[2], n[3]},
                 CONV(.channels = n[4], .kernel = n[5], .stride = n[6], .padding = n[7], .bias = i % 2 == 0)};
    return true;
}

/* Makes stem i. Up to four channels at stride 2 and kernel 5 or more are folded on the GPU; five are not. */
static bool stems(int i, OpCase *c)
{
    const int padding = i % 4, kernel = 5 + i / 4 % 3, channels = 1 + i / 12;
    *c = (OpCase){
        .x = {2, 17, 24, channels},
        CONV(.channels = 12, .kernel = kernel, .stride = 2, .padding = padding, .bias = padding == 1)};
    return channels <= 5;
}

/* Makes a convolution of patches: images that they cover and such that they do not. Up to four channels are
 * cut into patches on the GPU, five are not. */
static bool patches(int i, OpCase *c)
{
    static const int64_t kernels[] = {4, 8, 16, 5};
    const int64_t kernel = kernels[i % 4], channels = 1 + i / 4;
    *c = (OpCase){
        .x = {2, 2 * kernel + i % 3, 3 * kernel + i % 2, channels},
        CONV(.channels = 12 + i, .kernel = kernel, .stride = kernel, .padding = 0, .bias = i % 2 == 0)};
    return channels <= 5;
}

/* Makes depthwise convolution i: slabs of channels, images smaller and larger than a tile, strips that do not
 * come out even. */
static bool depthwise(int i, OpCase *c)
{
    static const int64_t images[][4] = {
        {1, 9, 11, 5}, {2, 5, 3, 16}, {2, 17, 37, 24}, {1, 12, 70, 136}, {3, 8, 8, 320}};
    const int stride = 1 + i % 2, kernel = 3 + 2 * (i / 2 % 3), image = i / 6;
    if (image >= COUNT_OF(images))
        return false;
    const int64_t *s = images[image];
    *c = (OpCase){.x = {s[0], s[1] + kernel - 3, s[2] + kernel - 3, s[3]},
                  CONV(.channels = s[3], .kernel = kernel, .stride = stride,
                       .padding = stride == 2 && image == 2 ? 0 : kernel / 2, .bias = image == 1,
                       .groups = s[3])};
    return true;
}

static const OpCase convolutions[] = {
    /* even sizes at stride 2: a last row or column that no window reads, whose gradient is 0 */
    {{2, 12, 8, 24}, CONV(.channels = 40, .kernel = 3, .stride = 2, .padding = 1)},
    {{2, 12, 8, 24}, CONV(.channels = 40, .kernel = 1, .stride = 2)},
    {{2, 12, 8, 24}, CONV(.channels = 16, .kernel = 5, .stride = 2, .padding = 2)},
    {{4, 16, 16, 64}, CONV(.channels = 64, .kernel = 3, .stride = 1, .padding = 1)},
    {{3, 160, 96, 3}, CONV(.channels = 64, .kernel = 7, .stride = 2, .padding = 3)},
    /* groups of whole vectors */
    {{2, 9, 11, 32}, CONV(.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 2)},
    {{2, 9, 11, 64}, CONV(.channels = 32, .kernel = 3, .stride = 2, .padding = 1, .groups = 4)},
    /* groups of few channels, which the GPU joins: two, four and sixteen of them, one half filled */
    {{2, 9, 11, 128}, CONV(.channels = 128, .kernel = 3, .stride = 1, .padding = 1, .groups = 32)},
    {{2, 9, 10, 64}, CONV(.channels = 32, .kernel = 3, .stride = 2, .padding = 1, .groups = 8, .bias = true)},
    {{2, 6, 5, 32}, CONV(.channels = 64, .kernel = 1, .stride = 1, .groups = 16)},
    {{3, 5, 6, 16}, CONV(.channels = 16, .kernel = 2, .stride = 2, .groups = 16)},
    {{2, 7, 5, 24}, CONV(.channels = 48, .kernel = 3, .stride = 1, .padding = 1, .groups = 6)},
    /* what oneDNN has ways of its own for */
    {{4, 9, 7, 32}, CONV(.channels = 64, .kernel = 3, .stride = 1, .padding = 1)},
    {{4, 10, 8, 64}, CONV(.channels = 48, .kernel = 3, .stride = 2, .padding = 1, .bias = true)},
    {{2, 20, 22, 3}, CONV(.channels = 64, .kernel = 7, .stride = 2, .padding = 3)},
    {{2, 16, 16, 3}, CONV(.channels = 64, .kernel = 3, .stride = 1, .padding = 1)},
    {{3, 5, 6, 40}, CONV(.channels = 24, .kernel = 1, .stride = 1)},
    {{3, 8, 8, 64}, CONV(.channels = 128, .kernel = 1, .stride = 2)},
    {{2, 9, 9, 16}, CONV(.channels = 3, .kernel = 3, .stride = 1, .padding = 1, .bias = true)},
    {{2, 9, 8, 32}, CONV(.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 32, .bias = true)},
    {{2, 8, 8, 16}, CONV(.channels = 32, .kernel = 2, .stride = 2, .bias = true)},
};

/* Convolutions that oneDNN would compute slowly; the CPU backend makes a matrix of them. */
static const OpCase small_convolutions[] = {
    {{16, 2, 2, 128}, CONV(.channels = 96, .kernel = 3, .stride = 1, .padding = 1)},
    {{16, 4, 4, 64}, CONV(.channels = 128, .kernel = 3, .stride = 2, .padding = 1)},
    {{6, 10, 10, 64}, CONV(.channels = 72, .kernel = 5, .stride = 3, .padding = 2, .bias = true)},
    {{4, 5, 6, 64}, CONV(.channels = 64, .kernel = 2, .stride = 1)},
    {{32, 7, 7, 64}, CONV(.channels = 64, .kernel = 3, .stride = 2, .padding = 1)},
};

/* Convolutions for every way that one goes on the GPU (cuDNN's, folded, few channels, depthwise, in groups)
 * and for the CPU's. */
static const OpCase with_relus[] = {
    {{2, 12, 8, 24}, CONV(.channels = 40, .kernel = 3, .stride = 1, .padding = 1, .bias = true)},
    {{3, 9, 11, 21}, CONV(.channels = 70, .kernel = 1, .stride = 2, .bias = true)},
    {{2, 17, 24, 3}, CONV(.channels = 33, .kernel = 7, .stride = 2, .padding = 3, .bias = true)},
    {{5, 14, 14, 3}, CONV(.channels = 5, .kernel = 3, .stride = 1, .padding = 1, .bias = true)},
    {{2, 9, 9, 8}, CONV(.channels = 32, .kernel = 3, .stride = 2, .bias = true)},
    {{2, 9, 11, 21},
     CONV(.channels = 21, .kernel = 3, .stride = 1, .padding = 1, .groups = 21, .bias = true)},
    {{2, 9, 11, 32}, CONV(.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 2, .bias = true)},
    {{4, 9, 7, 32}, CONV(.channels = 40, .kernel = 3, .stride = 1, .padding = 1, .bias = true)},
    {{16, 4, 4, 64}, CONV(.channels = 72, .kernel = 3, .stride = 1, .padding = 1, .bias = true)},
    {{2, 9, 8, 24}, CONV(.channels = 24, .kernel = 5, .stride = 1, .padding = 2, .groups = 24, .bias = true)},
};

/* Queries, keys and values of vision transformers: tokens that fill no tile, one tile and several, more
 * keys than shared memory holds; heads of 64 and 32 channels and of others. */
static const OpCase attentions[] = {
    {{1, 1, 1, 24}, {.heads = 1}},    {{2, 5, 1, 96}, {.heads = 2}},    {{3, 7, 1, 60}, {.heads = 4}},
    {{2, 17, 1, 288}, {.heads = 3}},  {{1, 65, 1, 576}, {.heads = 3}},  {{2, 64, 1, 192}, {.heads = 1}},
    {{2, 101, 1, 288}, {.heads = 3}}, {{1, 128, 1, 384}, {.heads = 2}}, {{2, 197, 1, 1152}, {.heads = 6}},
    {{1, 130, 1, 96}, {.heads = 1}},  {{2, 401, 1, 576}, {.heads = 3}}, {{1, 785, 1, 192}, {.heads = 1}},
};

static const int64_t token_images[][4] = {{1, 1, 1, 8}, {2, 3, 5, 16}, {3, 4, 4, 40}, {2, 7, 7, 192}};
static const int64_t token_images_large[][4] = {{70, 14, 14, 384}};

/* Fewer pixels than channels and more, tiles that are not full, one pixel. */
static const int64_t attended_images[][4] = {{1, 1, 1, 8},  {2, 5, 7, 16}, {3, 4, 4, 64},
                                             {2, 3, 3, 24}, {1, 9, 5, 40}, {4, 8, 8, 72}};
static const int64_t attended_images_large[][4] = {{5, 32, 32, 256}, {70, 13, 11, 64}};
/* Above GRADIENT_ELEMENTS_MAX of op_test.c: u and v move with the weight there, and count as constants. */
static const int64_t attended_images_training[][4] = {{4, 8, 8, 32}, {3, 5, 7, 64}, {2, 9, 8, 40}};

/* ---- the table ---- */

/* clang-format off */
/* Where a row says nothing, a result and a gradient are rounded once each, 0.3 epsilon; dx where it is a
 * sum twice. */
const OpTest op_tests[] = {
    {.name = "convolution", .golden = "conv2d", .build = build_conv2d, CASES(convolutions)},
    {.name = "convolution of small images", .build = build_conv2d, CASES(small_convolutions)},
    {.name = "convolution of all kernels", .build = build_conv2d, .sweep = channels_and_kernels,
     .types = OP_NARROW, .has_no_cpu_way = true},
    {.name = "convolution of few channels", .build = build_conv2d, .sweep = few_channels, .types = OP_NARROW},
    {.name = "convolution of a stem", .build = build_conv2d, .sweep = stems, .types = OP_NARROW,
     .has_no_cpu_way = true},
    {.name = "convolution of patches", .build = build_conv2d, .sweep = patches, .types = OP_NARROW},
    {.name = "convolution by channel", .build = build_conv2d, .sweep = depthwise, .types = OP_NARROW},
    {.name = "convolution, relu", .build = build_conv2d_relu, CASES(with_relus), .types = OP_NARROW},
    {.name = "convolution, leaky relu",
     .build = build_conv2d_leaky_relu, CASES(with_relus), .types = OP_NARROW,
     .roundings = 2},
    {.name = "convolution, weight frozen", .golden = "conv2d_frozen", .build = build_conv2d_frozen,
     CASES(with_relus)},

    {.name = "linear", .golden = "linear",
     .build = build_linear, .options.conv = {.channels = 3, .bias = true},
     .shapes = {SHAPES(matrices)}},
    {.name = "linear without bias", .build = build_linear, .options.conv = {.channels = 19},
     .shapes = {SHAPES(matrices)}},
    {.name = "linear 1x1", .golden = "linear_1x1", .build = build_linear_1x1,
     .options.conv = {.channels = 12, .bias = true}, .shapes = {SHAPES(matrices)}},
    {.name = "linear, add an input",
     .build = build_linear_add, .options.conv.bias = true, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(matrices), SHAPES(token_images)}},
    {.name = "linear without bias, add", .build = build_linear_add, .other = OTHER_X,
     .shapes = {SHAPES(token_images)}, .roundings = 2},
    {.name = "linears",
     .build = build_three_linears, .shapes = {SHAPES(matrices_of_several)}, .roundings = 4},
    {.name = "flatten, linear", .build = build_flatten_linear, .options.conv = {.channels = 11, .bias = true},
     .shapes = {SHAPES(images_flattened)}},

    {.name = "batch norm", .golden = "batch_norm", .build = build_batch_norm, .options.norm.training = true,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm, relu", .build = build_batch_norm, .options = {.norm.training = true, .relu = true},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "batch norm, add, leaky relu", .build = build_batch_norm,
     .options = {.norm.training = true, .relu = true, .slope = 0.25F}, .other = OTHER_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm, add an input, relu", .build = build_batch_norm,
     .options = {.norm.training = true, .relu = true}, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm, gelu", .build = build_batch_norm,
     .options = {.norm.training = true, .function = OP_GELU},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "batch norm, silu", .build = build_batch_norm,
     .options = {.norm.training = true, .function = OP_SILU},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "batch norm, mish", .build = build_batch_norm,
     .options = {.norm.training = true, .function = OP_MISH},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "batch norm, add, gelu", .build = build_batch_norm,
     .options = {.norm.training = true, .function = OP_GELU}, .other = OTHER_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm, add",
     .build = build_add_batch_norm, .options.norm.training = true, .other = OTHER_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm, weight frozen", .golden = "batch_norm_unscaled", .build = build_batch_norm_unscaled,
     .options.norm.training = true, .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm of many rows, weight frozen", .build = build_batch_norm_unscaled,
     .options = {.norm.training = true}, .large = SHAPES(many_rows_alone), .types = OP_NARROW,
     .roundings = 2},
    {.name = "sampled batch norm", .build = build_batch_norm, .options.norm = {.training = true, .sample = 2},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "sampled batch norm, relu", .build = build_batch_norm,
     .options = {.norm = {.training = true, .sample = 3}, .relu = true},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "sampled batch norm, add, leaky relu", .build = build_batch_norm,
     .options = {.norm = {.training = true, .sample = 2}, .relu = true, .slope = 0.25F}, .other = OTHER_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "sampled batch norm, add an input, relu", .build = build_batch_norm,
     .options = {.norm = {.training = true, .sample = 2}, .relu = true}, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "sampled batch norm, add",
     .build = build_add_batch_norm, .options.norm = {.training = true, .sample = 2}, .other = OTHER_X,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "sampled batch norm, weight frozen", .build = build_batch_norm_unscaled,
     .options.norm = {.training = true, .sample = 2}, .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "sampled batch norm of many rows, add an input, relu", .build = build_batch_norm,
     .options = {.norm = {.training = true, .sample = 8}, .relu = true}, .other = OTHER_NO_GRADIENT,
     .large = SHAPES(many_rows_of_input), .types = OP_NARROW, .roundings = 2},
    {.name = "sampled batch norm, gelu", .build = build_batch_norm,
     .options = {.norm = {.training = true, .sample = 3}, .function = OP_GELU},
     .shapes = {SHAPES(norm_images), SHAPES(norm_matrices)}, .roundings = 2},
    {.name = "frozen batch norm, gelu", .build = build_batch_norm, .options.function = OP_GELU,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "frozen batch norm, relu", .build = build_batch_norm, .options.relu = true,
     .shapes = {SHAPES(norm_images)}, .roundings = 2},
    {.name = "batch norm of many rows", .build = build_batch_norm, .options.norm.training = true,
     .large = SHAPES(many_rows_alone), .types = OP_NARROW, .roundings = 2},
    {.name = "batch norm of many rows, relu", .build = build_batch_norm,
     .options = {.norm.training = true, .relu = true}, .large = SHAPES(many_rows), .types = OP_NARROW,
     .roundings = 2},
    {.name = "batch norm of many rows, gelu", .build = build_batch_norm,
     .options = {.norm.training = true, .function = OP_GELU}, .large = SHAPES(many_rows), .types = OP_NARROW,
     .roundings = 2},
    {.name = "batch norm of many rows, add, leaky relu", .build = build_batch_norm,
     .options = {.norm.training = true, .relu = true, .slope = 0.25F}, .other = OTHER_X,
     .large = SHAPES(many_rows), .types = OP_NARROW, .roundings = 2},
    /* the backward pass keeps no gradient for the addend */
    {.name = "batch norm of many rows, add an input, relu", .build = build_batch_norm,
     .options = {.norm.training = true, .relu = true}, .other = OTHER_NO_GRADIENT,
     .large = SHAPES(many_rows_of_input), .types = OP_NARROW, .roundings = 2},

    {.name = "batch norm, squeeze and excitation", .build = build_norm_squeeze_excite,
     .options.norm.training = true, .shapes = {SHAPES(gated_images)}, .large = SHAPES(gated_large),
     .roundings = 3},
    {.name = "batch norm, squeeze and excitation, relu", .build = build_norm_squeeze_excite,
     .options = {.norm.training = true, .relu = true}, .shapes = {SHAPES(gated_images)}, .roundings = 3},
    {.name = "batch norm, squeeze and excitation, add", .build = build_norm_squeeze_excite,
     .options.norm.training = true, .other = OTHER_X, .shapes = {SHAPES(gated_images)}, .roundings = 3},
    {.name = "batch norm, squeeze and excitation, add an input, leaky relu",
     .build = build_norm_squeeze_excite, .options = {.norm.training = true, .relu = true, .slope = 0.25F},
     .other = OTHER_LIKE_X, .shapes = {SHAPES(gated_images)}, .large = SHAPES(gated_large), .roundings = 3,
     .turns = true},
    {.name = "sampled batch norm, squeeze and excitation, add, relu", .build = build_norm_squeeze_excite,
     .options = {.norm = {.training = true, .sample = 2}, .relu = true}, .other = OTHER_X,
     .shapes = {SHAPES(gated_images)}, .roundings = 3, .turns = true},
    {.name = "frozen batch norm, squeeze and excitation, add an input, relu",
     .build = build_norm_squeeze_excite, .options.relu = true, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(gated_images)}, .roundings = 3, .turns = true},
    {.name = "batch norm, squeeze and excitation, add what gets no gradient, relu",
     .build = build_norm_squeeze_excite, .options = {.norm.training = true, .relu = true},
     .other = OTHER_NO_GRADIENT, .shapes = {SHAPES(gated_images)}, .roundings = 3, .turns = true},
    {.name = "layer norm", .golden = "layer_norm", .build = build_layer_norm, .options.norm.epsilon = 1e-2,
     .shapes = {SHAPES(small_images), SHAPES(all_channels)}, .large = SHAPES(larger_images), .f32 = 1e-5,
     .between_norms = true},
    {.name = "layer norm of vectors", .build = build_layer_norm, .options.norm.epsilon = 1e-2,
     .shapes = {SHAPES(matrices_of_several), SHAPES(norm_matrices)}},
    /* what comes back beside the norm is added in its backward pass */
    {.name = "layer norm, add", .build = build_layer_norm, .options.norm.epsilon = 1e-2, .other = OTHER_X,
     .shapes = {SHAPES(small_images), SHAPES(all_channels)}, .large = SHAPES(larger_images), .f32 = 1e-5,
     .between_norms = true},

    {.name = "response norm", .golden = "response_norm",
     .build = build_response_norm, .options.norm.epsilon = 1e-2,
     .shapes = {SHAPES(small_images), SHAPES(all_channels), SHAPES(many_samples)},
     .large = SHAPES(larger_images), .roundings = 2},

    {.name = "relu", .golden = "relu", .build = build_relu, .shapes = {SHAPES(pointwise_images)}},
    {.name = "leaky relu", .build = build_relu, .options.slope = 0.2F, .shapes = {SHAPES(pointwise_images)}},
    {.name = "gelu", .golden = "gelu", .build = build_gelu, .shapes = {SHAPES(pointwise_images)}},
    {.name = "silu", .golden = "silu", .build = build_silu, .shapes = {SHAPES(pointwise_images)}},
    {.name = "mish", .golden = "mish", .build = build_mish, .shapes = {SHAPES(pointwise_images)}},
    {.name = "sigmoid, channel multiply", .golden = "multiply_by_sigmoid", .build = build_multiply_by_sigmoid,
     .other = OTHER_FACTORS, .shapes = {SHAPES(small_images)}},
    {.name = "add", .build = build_add, .other = OTHER_LIKE_X, .shapes = {SHAPES(pointwise_images)},
     .roundings = 2},
    {.name = "add to itself", .golden = "add_twice", .build = build_add_twice,
     .shapes = {SHAPES(pointwise_images)}, .roundings = 1e-3},
    {.name = "add of three", .golden = "add_thrice", .build = build_add_thrice,
     .shapes = {SHAPES(pointwise_images)}, .roundings = 2},
    {.name = "add scaled", .build = build_add_scaled, .options.slope = 0.7F,
     .shapes = {SHAPES(pointwise_images)}, .roundings = 2},
    {.name = "add scaled images of many loads", .build = build_add_scaled, .options.slope = 0.7F,
     .shapes = {SHAPES(pointwise_large)}, .types = OP_NARROW, .roundings = 0.6},
    {.name = "scale", .golden = "scale", .build = build_scale, .options.slope = 0.3F,
     .shapes = {SHAPES(pointwise_images)}},
    /* what is a power of two times a rounded value is exact */
    {.name = "cast", .build = build_scale, .options.slope = 0.5F, .shapes = {SHAPES(pointwise_images)},
     .roundings = 1e-3},
    {.name = "flatten", .golden = "flatten", .build = build_flatten, .shapes = {SHAPES(pointwise_images)},
     .roundings = 1e-3},

    {.name = "max pool 3/2, 1", .golden = "max_pool", .build = build_max_pool, POOL(3, 2, 1),
     .shapes = {SHAPES(windows)}},
    {.name = "max pool 2/2", .build = build_max_pool, POOL(2, 2, 0), .shapes = {SHAPES(windows)}},
    {.name = "max pool 2/1", .build = build_max_pool, POOL(2, 1, 0), .shapes = {SHAPES(windows)}},
    {.name = "max pool 2/2, 1", .build = build_max_pool, POOL(2, 2, 1), .shapes = {SHAPES(windows)}},
    {.name = "max pool 4/3, 2", .build = build_max_pool, POOL(4, 3, 2), .shapes = {SHAPES(windows)}},
    {.name = "max pool of relu", .build = build_max_pool_of_relu, POOL(3, 2, 1),
     .shapes = {SHAPES(windows)}},
    /* rounding makes other values equal, and another one the largest */
    {.name = "batch norm, max pool 3/2, 1", .build = build_norm_pool, .types = OP_F32,
     .options = {.norm.training = true, .pool = {.kernel = 3, .stride = 2, .padding = 1}},
     .shapes = {SHAPES(eights), SHAPES(windows)}},
    {.name = "batch norm, leaky relu, max pool 2/2", .build = build_norm_pool, .types = OP_F32,
     .options = {.norm.training = true, .relu = true, .slope = 0.9375F, .pool = {.kernel = 2, .stride = 2}},
     .shapes = {SHAPES(eights), SHAPES(windows)}},
    {.name = "average pool 2/2", .golden = "avg_pool", .build = build_avg_pool, POOL(2, 2, 0),
     .shapes = {SHAPES(windows)}},
    {.name = "average pool 2/2 beyond the edge", .build = build_avg_pool,
     .options.pool = {.kernel = 2, .stride = 2, .ceil = true},
     .shapes = {SHAPES(windows), SHAPES(small_images)}},
    {.name = "average pool 3/3 beyond the edge", .build = build_avg_pool,
     .options.pool = {.kernel = 3, .stride = 3, .ceil = true},
     .shapes = {SHAPES(windows), SHAPES(small_images)}},
    {.name = "average pool 2/1", .build = build_avg_pool, POOL(2, 1, 0),
     .shapes = {SHAPES(windows)}},
    {.name = "average pool 3/2, 1", .build = build_avg_pool, POOL(3, 2, 1),
     .shapes = {SHAPES(windows)}},
    {.name = "global pool", .golden = "global_avg_pool", .build = build_global_avg_pool,
     .shapes = {SHAPES(windows), SHAPES(pooled_in_parts)}},
    {.name = "reflection pad 1", .golden = "reflection_pad", .build = build_reflection_pad,
     .options.pool.padding = 1, .shapes = {SHAPES(windows)}},
    {.name = "reflection pad 3", .build = build_reflection_pad, .options.pool.padding = 3,
     .shapes = {SHAPES(windows)}},

    {.name = "zero pad of channels", .golden = "zero_pad", .build = build_zero_pad, .options.box = {0, 0, 5},
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "zero pad of sides", .build = build_zero_pad, .options.box = {3, 2, 0},
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "zero pad of all", .build = build_zero_pad, .options.box = {1, 4, 8},
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "crop", .golden = "crop", .build = build_crop, .options.box = {1, 2, 0},
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "concat", .golden = "concat", .build = build_concat, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "concat of others",
     .build = build_concat, .other = OTHER_WIDER, .shapes = {SHAPES(small_images)},
     .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "channel scale", .golden = "channel_scale", .build = build_channel_scale,
     .shapes = {SHAPES(small_images), SHAPES(all_channels)}, .large = SHAPES(larger_images), .f32 = 1e-5,
     .between_norms = true},
    {.name = "channel scale, add", .build = build_channel_scale, .other = OTHER_LIKE_X,
     .shapes = {SHAPES(small_images), SHAPES(all_channels)}, .large = SHAPES(larger_images), .f32 = 1e-5,
     .between_norms = true},
    {.name = "channel multiply", .golden = "channel_multiply", .build = build_channel_multiply,
     .other = OTHER_FACTORS, .shapes = {SHAPES(small_images), SHAPES(all_channels)},
     .large = SHAPES(larger_images), .f32 = 1e-5, .between_norms = true},
    {.name = "gate", .golden = "gate", .build = build_gate, .channel_factor = 2,
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "gate, means", .build = build_gate_of_means, .channel_factor = 2,
     .shapes = {SHAPES(gated_images)}, .large = SHAPES(gated_large), .roundings = 3},
    {.name = "gate, factors", .build = build_gate_of_factors, .other = OTHER_FACTORS,
     .shapes = {SHAPES(gated_images)}, .large = SHAPES(gated_large), .roundings = 3},
    {.name = "tokens", .golden = "tokens", .build = build_tokens, .shapes = {SHAPES(token_images)},
     .large = SHAPES(token_images_large)},
    {.name = "tokens, class token frozen",
     .build = build_tokens_of_frozen_class, .shapes = {SHAPES(token_images)}},
    {.name = "tokens without class token", .golden = "tokens_without_class",
     .build = build_tokens_without_class,
     .shapes = {SHAPES(token_images)}},
    {.name = "tokens with sines", .golden = "tokens_of_sines", .build = build_tokens_of_sines,
     .shapes = {SHAPES(token_images)}},
    {.name = "tokens with class token and sines", .build = build_tokens_of_sines_with_class,
     .shapes = {SHAPES(token_images)}},
    /* shares and slopes are rounded on the way to a product */
    {.name = "attention", .golden = "attention", .build = build_attention, CASES(attentions), .roundings = 3},
    /* so is what pixels are multiplied by */
    {.name = "self-attention", .golden = "self_attention", .build = build_self_attention,
     .shapes = {SHAPES(attended_images)}, .large = SHAPES(attended_images_large), .roundings = 3},
    {.name = "self-attention in training", .build = build_self_attention, .options.norm.training = true,
     .shapes = {SHAPES(attended_images_training)}, .roundings = 3, .cancels = "layer.gamma.grad"},
    {.name = "self-attention, weight frozen", .build = build_self_attention_of_frozen_weight,
     .shapes = {SHAPES(attended_images)}, .roundings = 3},
    {.name = "linear of tokens", .golden = "linear_of_tokens", .build = build_linear,
     .options.conv = {.channels = 24, .bias = true}, .shapes = {SHAPES(token_images)}},
    {.name = "shuffle by 2", .golden = "pixel_shuffle", .build = build_pixel_shuffle, .options.factor = 2,
     .channel_factor = 4, .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5,
     .between_norms = true},
    {.name = "shuffle by 3", .build = build_pixel_shuffle, .options.factor = 3, .channel_factor = 9,
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    {.name = "unshuffle by 2", .golden = "pixel_unshuffle",
     .build = build_pixel_unshuffle, .options.factor = 2,
     .size_factor = 2, .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5,
     .between_norms = true},
    {.name = "unshuffle by 3", .build = build_pixel_unshuffle, .options.factor = 3, .size_factor = 3,
     .shapes = {SHAPES(small_images)}, .large = SHAPES(large_images), .f32 = 1e-5, .between_norms = true},
    /* other cases of losses: loss_test.c and cuda_loss_test.c */
    {.name = "softmax cross-entropy", .golden = "softmax_cross_entropy",
     .build = build_softmax_cross_entropy},
};
/* clang-format on */
const int op_test_count = COUNT_OF(op_tests);

/* Sets case_ret->x to shape i of a list; returns false after the last. */
static bool shape_of(const OpShapes *list, int i, OpCase *case_ret)
{
    if (i >= list->count)
        return false;
    memcpy(case_ret->x, list->shapes[i], sizeof case_ret->x);
    return true;
}

static bool find_case(const OpTest *row, bool large, int i, OpCase *case_ret)
{
    *case_ret = (OpCase){.options = row->options};
    if (large)
        return shape_of(&row->large, i, case_ret);
    for (int list = 0; list < COUNT_OF(row->shapes); list++) {
        if (shape_of(&row->shapes[list], i, case_ret))
            return true;
        i -= row->shapes[list].count;
    }
    if (i < row->case_count)
        *case_ret = row->cases[i];
    return i < row->case_count || (row->sweep && row->sweep(i - row->case_count, case_ret));
}

bool op_case(const OpTest *row, bool large, int i, OpCase *case_ret)
{
    const int64_t size = row->size_factor ? row->size_factor : 1,
                  channels = row->channel_factor ? row->channel_factor : 1;
    if (!find_case(row, large, i, case_ret))
        return false;
    case_ret->x[1] *= size;
    case_ret->x[2] *= size;
    case_ret->x[3] *= channels;
    return true;
}

const OpTest *op_test_of_golden(const char *name)
{
    for (int i = 0; i < op_test_count; i++)
        if (op_tests[i].golden && strcmp(op_tests[i].golden, name) == 0)
            return &op_tests[i];
    return NULL;
}
