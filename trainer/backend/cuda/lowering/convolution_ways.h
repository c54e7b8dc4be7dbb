/* convolution_ways.h - the ways to compute a convolution or a gradient of it, and the choice among them:
 * cuDNN's plan as it is or on other operands, own kernels, a product through cuBLASLt. Where plans are timed,
 * the fastest is taken, each with the passes of our own that it leaves to do.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CONVOLUTION_WAYS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CONVOLUTION_WAYS_H

#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/backend/cuda/lowering/cudnn_convolution.h"
#include "trainer/backend/cuda/lowering/implicit_step.h"
#include "trainer/backend/cuda/lowering/matmul_step.h"

typedef enum ConvolutionWay {
    WAY_CUDNN,
    WAY_FOLDED,    /* cuDNN on what kernel_fold_image makes of x, or kernel_fold_bytes of an x of u8 */
    WAY_PATCHES,   /* cuDNN on what kernel_cut_patches makes of x */
    WAY_JOINED,    /* cuDNN on what kernel_join_groups makes of the weight */
    WAY_DEPTHWISE, /* own kernels */
    WAY_DIRECT,    /* own kernels for few channels */
    WAY_IMPLICIT,  /* own kernels for 3 x 3 */
    WAY_STEM,      /* own kernel for stems of bytes */
    WAY_MATMUL,    /* cuBLASLt, of 1 x 1 */
} ConvolutionWay;

/* What a step keeps. */
typedef struct ConvolutionPlan {
    ConvolutionWay way;
    Convolution convolution; /* as cuDNN sees it */
    /* x, the weight lie in the step's scratch memory, in this order; the workspace after them */
    bool own_image, own_weight;
    Fold fold;
    Patches patches;
    Depthwise depthwise;
    Direct direct;
    ImplicitKernel implicit;
    bool timed;   /* plans are: the backend's benchmark, where it pays */
    bool may_cut; /* patches are tried */
    CudaBackend *backend;
    const CudnnPlan *cudnn; /* of the backend's; released */
    CudnnPack pack;         /* owned */
    Epilogue possible;      /* what there may be a plan for */
    bool fused;             /* cudnn does it, or the product */
    MatmulPlan *product;    /* owned */
    /* of the pass that cuts patches, where ways are timed */
    double cut_milliseconds;
} ConvolutionPlan;

/* Returns the convolution of a step as the graph has it, of the image as it lies once it is normalised. */
Convolution convolution_of(const Step *step);

/* Turns the plan into one over patches. */
void convolution_cut_patches(const Step *step, ConvolutionPlan *plan);

/* Returns the bytes of the plan's own operands, and places them in memory. */
uint64_t convolution_own_bytes(const ConvolutionPlan *plan);
void convolution_place_own(ConvolutionPlan *plan, void *memory);

/* Chooses the way, asks for the scratch memory that it wants, and tells of it (Step.told). The plan's cuDNN
 * plans have been asked for (cudnn_convolution_want), the step's tensors have addresses. Fails as
 * cudnn_convolution_get. */
FshStatus convolution_choose_way(CudaBackend *backend, Step *step, ConvolutionPlan *plan, FshError *error);

/* Returns whether cuDNN runs, on operands that are the step's or the plan's own. */
bool convolution_runs_cudnn(const ConvolutionPlan *plan);

/* Returns the convolution as a product; a bias without an activation is added on the way. */
MatmulStep convolution_product(const Step *step, const ConvolutionPlan *plan);

#endif
