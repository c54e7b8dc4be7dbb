/* pointwise_math.h - ops that are a function of one value, y = f(x), written once for the CPU and CUDA.
 *
 * To add one: its kind and its _BACKWARD in graph_ops.h, with a builder; their rows in op_pointwise.c; here a
 * line of the list, the function and its slope. Both backends make their loops and rows from the list. For
 * one that becomes part of a batch norm, its kind in activation_behind of fuse.c, too.
 *
 * What a function keeps: f(0) = 0, because narrow tensors on the device are padded with zeros (the
 * sigmoid, whose builder takes f32 alone, is the exception); NaN yields NaN; no branch and no call of
 * libm, so that loops of it are vectors. float32 throughout; on the CPU all instruction sets give the same
 * bits (no contraction), on the device products and sums may be joined. */
#ifndef FSHARD_TRAINER_BACKEND_POINTWISE_MATH_H
#define FSHARD_TRAINER_BACKEND_POINTWISE_MATH_H

#include <stdint.h>
#include <string.h>

#include "common/philox.h" /* FSH_HOST_DEVICE */

/* X(KIND, function, narrow): OP_KIND is y = function(x), and OP_KIND_BACKWARD dx = dy * function_slope(x);
 * narrow is what a GPU computes for values that are stored in 16 bits (the CPU's tables compute alike for all
 * types, cpu_kernels.h). The first may become part of a batch norm (FUSE_NORM_FUNCTION). */
#define POINTWISE_ACTIVATIONS(X)                                                                             \
    X(GELU, gelu, gelu_narrow) X(SILU, silu, silu_narrow) X(MISH, mish, mish_narrow)
#define POINTWISE_FUNCTIONS(X) POINTWISE_ACTIVATIONS(X) X(SIGMOID, pointwise_sigmoid, pointwise_sigmoid)

/* ---- shared ---- */

/* Returns e^x of x <= 0, of less than -87 as of -87, to 1e-7 relative. */
FSH_HOST_DEVICE static inline float pointwise_exp(float x)
{
    const float half_way = 12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer, in the lowest bits */
    const float clamped = x < -87.0F ? -87.0F : x;
    const float shifted = clamped * 1.44269504F + half_way, whole = shifted - half_way;
    const float rest = clamped - whole * 0.693145752F - whole * 1.42860677e-6F;
    uint32_t bits;
    float power, series = 1.38887602e-3F;
    series = series * rest + 8.33333377e-3F;
    series = series * rest + 4.16664593e-2F;
    series = series * rest + 1.66666671e-1F;
    series = series * rest + 0.5F;
    series = series * rest * rest + rest + 1.0F;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3F800000U;
    memcpy(&power, &bits, sizeof power);
    return series * power;
}

/* Returns the part of a normal distribution below x, to 1e-7: (1 + erf(x / sqrt 2)) / 2, with the two
 * polynomials that approximate erf near 0 and log erfc elsewhere. */
FSH_HOST_DEVICE static inline float pointwise_normal_below(float x)
{
    const float a = x * 0.707106781F, t = a < 0 ? -a : a, s = a * a;
    float near = -5.96761703e-4F, log_tail = -1.72853470e-5F * t + 3.83197126e-4F;
    near = near * s + 4.99119423e-3F;
    near = near * s - 2.67681349e-2F;
    near = near * s + 1.12819925e-1F;
    near = near * s - 3.76125336e-1F;
    near = near * s + 1.28379166e-1F;
    log_tail = log_tail * s + (-3.88396438e-3F * t + 2.42546219e-2F);
    log_tail = log_tail * t - 1.06777877e-1F;
    log_tail = log_tail * t - 6.34846687e-1F;
    log_tail = log_tail * t - 1.28717512e-1F;
    const float tail = 0.5F * pointwise_exp(log_tail * t - t);
    const float far = a < 0 ? tail : 1.0F - tail;
    return t > 0.927734375F ? far : 0.5F + 0.5F * (near * a + a);
}

/* ---- the functions ---- */

/* Returns x times the normal distribution below x: GELU (Hendrycks and Gimpel 2016), exact, as
 * torch.nn.GELU(). */
FSH_HOST_DEVICE static inline float gelu(float x)
{
    return x * pointwise_normal_below(x);
}

FSH_HOST_DEVICE static inline float gelu_slope(float x)
{
    return pointwise_normal_below(x) + x * 0.398942280F * pointwise_exp(-0.5F * x * x);
}

/* Returns 2^x of x <= 0, to 3e-7 relative; of less than -125 about 0. */
FSH_HOST_DEVICE static inline float pointwise_exp2(float x)
{
#ifdef __CUDA_ARCH__
    float power; /* one instruction */
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return pointwise_exp(x * 0.693147181F);
#endif
}

/* Returns 1 / x of a normal x, to 2e-7. */
FSH_HOST_DEVICE static inline float pointwise_reciprocal(float x)
{
#ifdef __CUDA_ARCH__
    float reciprocal; /* one instruction; a division is ten and a branch */
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
#else
    return 1.0F / x;
#endif
}

/* Returns the part of a normal distribution below x, to 7e-6 relative where x > -6, a seventieth of what f16
 * rounds. Where x < 0 the logarithm of that part is nearly a parabola; this is its best polynomial of degree
 * 7 between -6 and 0 (Remez's exchange), which goes on falling below. On a GPU the plain function is bound by
 * its instructions, 40 an element and 60 for its slope, and not by memory; here they are 16 and 24. */
FSH_HOST_DEVICE static inline float pointwise_normal_below_narrow(float x)
{
    const float t = x < 0 ? -x : x;
    float logarithm = -1.83481138e-6F * t + 6.15982946e-5F;
    logarithm = logarithm * t - 9.30524874e-4F;
    logarithm = logarithm * t + 8.50789112e-3F;
    logarithm = logarithm * t - 5.39600698e-2F;
    logarithm = logarithm * t - 4.58464392e-1F;
    logarithm = logarithm * t - 1.15125105F;
    const float tail = pointwise_exp2(logarithm * t - 9.99995294e-1F);
    return x < 0 ? tail : 1.0F - tail;
}

/* Returns GELU for values that are stored in 16 bits. */
FSH_HOST_DEVICE static inline float gelu_narrow(float x)
{
    return x * pointwise_normal_below_narrow(x);
}

FSH_HOST_DEVICE static inline float gelu_narrow_slope(float x)
{
    return pointwise_normal_below_narrow(x) + x * 0.398942280F * pointwise_exp2(-0.721347520F * x * x);
}

/* Returns 1 / (1 + exp(-x)). */
FSH_HOST_DEVICE static inline float pointwise_sigmoid(float x)
{
    const float small = pointwise_exp(x < 0 ? x : -x);
    return (x < 0 ? small : 1.0F) / (1.0F + small);
}

/* Returns x times its sigmoid: SiLU, Swish (Elfwing et al. 2017), as torch.nn.SiLU(). */
FSH_HOST_DEVICE static inline float silu(float x)
{
    return x * pointwise_sigmoid(x);
}

FSH_HOST_DEVICE static inline float silu_slope(float x)
{
    const float s = pointwise_sigmoid(x);
    return s * (1.0F + x * (1.0F - s));
}

/* Returns e^-|x|, for values that are stored in 16 bits: to 3e-7 and 1e-7 |x|. */
FSH_HOST_DEVICE static inline float pointwise_fall_narrow(float x)
{
    return pointwise_exp2(x < 0 ? x * 1.44269504F : x * -1.44269504F);
}

FSH_HOST_DEVICE static inline float pointwise_sigmoid_narrow(float x)
{
    const float small = pointwise_fall_narrow(x);
    return (x < 0 ? small : 1.0F) * pointwise_reciprocal(1.0F + small);
}

/* Returns SiLU for values that are stored in 16 bits. */
FSH_HOST_DEVICE static inline float silu_narrow(float x)
{
    return x * pointwise_sigmoid_narrow(x);
}

FSH_HOST_DEVICE static inline float silu_narrow_slope(float x)
{
    const float s = pointwise_sigmoid_narrow(x);
    return s * (1.0F + x * (1.0F - s));
}

FSH_HOST_DEVICE static inline float pointwise_sigmoid_slope(float x)
{
    const float s = pointwise_sigmoid(x);
    return s * (1.0F - s);
}

/* tanh(log(1 + exp(x))) = n / (n + rest), by u = exp(-|x|), so that nothing overflows or cancels. */
typedef struct MishParts {
    float u, n, rest;
} MishParts;

FSH_HOST_DEVICE static inline MishParts mish_parts_of(float x, float u)
{
    MishParts parts;
    parts.u = u;
    parts.n = x < 0 ? u * (u + 2.0F) : 1.0F + 2.0F * u;
    parts.rest = x < 0 ? 2.0F : 2.0F * u * u;
    return parts;
}

FSH_HOST_DEVICE static inline MishParts mish_parts(float x)
{
    return mish_parts_of(x, pointwise_exp(x < 0 ? x : -x));
}

/* Returns x tanh(log(1 + exp(x))): Mish (Misra 2019), as torch.nn.Mish(). */
FSH_HOST_DEVICE static inline float mish(float x)
{
    const MishParts parts = mish_parts(x);
    return x * (parts.n / (parts.n + parts.rest));
}

FSH_HOST_DEVICE static inline float mish_slope(float x)
{
    const MishParts parts = mish_parts(x);
    const float d = parts.n + parts.rest, sigmoid = (x < 0 ? parts.u : 1.0F) / (1.0F + parts.u);
    return parts.n / d + x * sigmoid * (parts.rest / d) * ((d + parts.n) / d);
}

/* Returns Mish for values that are stored in 16 bits. With divisions a norm with Mish is bound by some 120
 * instructions an element on a GPU, and not by memory; here they are 15, and 20 for the slope. */
FSH_HOST_DEVICE static inline float mish_narrow(float x)
{
    const MishParts parts = mish_parts_of(x, pointwise_fall_narrow(x));
    return x * parts.n * pointwise_reciprocal(parts.n + parts.rest);
}

FSH_HOST_DEVICE static inline float mish_narrow_slope(float x)
{
    const MishParts parts = mish_parts_of(x, pointwise_fall_narrow(x));
    /* of tanh(log(1 + exp(x))): 4 u (1 + u) / d^2, where x > 0 times u */
    const float over = pointwise_reciprocal(parts.n + parts.rest), part = over * (1.0F + parts.u);
    const float rise = parts.u * (x < 0 ? 4.0F : 4.0F * parts.u) * over * part;
    return parts.n * over + x * rise;
}

#endif
