/* fusion_support.h - the results of networks (fusion_graphs.h) with rewrites of the graph and without. */
#ifndef FSHARD_TESTS_TRAINER_FUSION_SUPPORT_H
#define FSHARD_TESTS_TRAINER_FUSION_SUPPORT_H

#include "trainer/backend/backend.h"

/* Compares, on one backend from the same weights, loss, gradients of all parameters and running statistics of
 * the network with `fusions` and without any: ||difference|| / ||without|| must be at most tolerance. The
 * gradient of a bias in front of a norm must be nearly 0, and 0 itself where bias-norm is among the
 * fusions. */
void compare_fusions(Backend *backend, DataType type, unsigned fusions, double tolerance);

/* Asserts that all gradients and running statistics have the same bits with the one set of fusions and the
 * other. */
void compare_bits_of_fusions(Backend *backend, DataType type, unsigned fusions, unsigned others);

/* Compares the same of a network whose shortcuts are convolutions of 1 x 1 and stride 2, over images of even
 * and odd sizes, with the one set of fusions and the other. */
void compare_strided(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network of norms and max pools of more values than FUSE_NORM_POOL leaves alone;
 * fusions has it, others has not. */
void compare_pooled(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network of gates, factors of their means, and channel scales. */
void compare_gated(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network of layer scales behind products of pixels; fusions has FUSE_LINEAR_SCALE,
 * others has not. */
void compare_scaled(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network of convolutions of few channels behind reflection pads. */
void compare_padded(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network that begins as resnets do; fusions has FUSE_STEM_GRADIENT, others has
 * not. */
void compare_stem(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance);

/* Compares the same of a network of three norms in front of norms, of size 0 to 2 (paired_graph, middle,
 * large); fusions has FUSE_NORM_PAIR, others has not. */
void compare_paired(Backend *backend, int size, DataType type, unsigned fusions, unsigned others,
                    double tolerance);

/* Asserts that all gradients together, with `fusions`, are no more than twice as far from the network's in
 * float32 as without any, root mean square over several first weights (bf16 on the CPU: 0.05 of their size
 * without, 0.05 to 0.08 with one). In 16 bits,
 * rounding another value on the way flips signs in front of ReLUs. */
void compare_narrow_fusions(Backend *backend, DataType type, unsigned fusions);

/* Asserts that a pixel that is no number makes results that are none, in fused convolutions of several shapes
 * with a bias and a ReLU or a leaky one. */
void check_no_number_passes(Backend *backend, DataType type);

/* Asserts that the weight gradient of a convolution has the same bits with FUSE_IMAGES_AGAIN as without; the
 * convolution has more images than are kept. */
void compare_images_again(Backend *backend, DataType type);

#endif
