/* cudnn_convolution.h - cuDNN's plan of one convolution, with what it may do to the result on its way to
 * memory.
 *
 * To cuDNN every dimension is what lies in memory: of narrow tensors the padded channels, whose zeros add
 * nothing.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CUDNN_CONVOLUTION_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_CUDNN_CONVOLUTION_H

#include "trainer/backend/cuda/lowering/lowering.h"

/* Which tensors are x, weight and y of the convolution y = x * weight; one of them is the result. */
typedef struct Convolution {
    ConvolutionKind kind;
    DeviceTensor x, weight, y;
    ConvolutionShape shape;
} Convolution;

/* What cuDNN may do with y on its way to memory, in place of a pass of our own. */
typedef struct Epilogue {
    enum { EPILOGUE_NONE, EPILOGUE_SUMS, EPILOGUE_BIAS, EPILOGUE_BIAS_RELU } kind;
    /* SUMS: [2, pitch of y] f32, the step's CONV_SUMS, for a norm. BIAS, BIAS_RELU: the bias, of y's type. */
    DeviceTensor tensor;
    float slope; /* of the ReLU */
} Epilogue;

extern const Epilogue epilogue_none;

/* Returns whether it adds a bias. */
bool epilogue_adds_bias(const Epilogue *epilogue);

/* Asks the cache for a plan that cudnn_convolution_get will want, so that those of a program are made
 * together. timed: as `trial` there. Fails as cudnn_cache_want. */
FshStatus cudnn_convolution_want(CudaBackend *backend, const Convolution *convolution,
                                 const Epilogue *epilogue, bool timed, FshError *error);
/* Gets a plan from the cache, to be released there. trial: candidates are timed, on the addresses of the
 * tensors. Fails as cudnn_cache_get. */
FshStatus cudnn_convolution_get(CudaBackend *backend, const Convolution *convolution,
                                const Epilogue *epilogue, bool trial, const CudnnPlan **plan,
                                FshError *error);

enum { CONVOLUTION_ADDRESSES = 5 };
/* Lists the addresses of the tensors in the order that the plan has them. */
void cudnn_convolution_addresses(const Convolution *convolution, const Epilogue *epilogue,
                                 void *addresses[CONVOLUTION_ADDRESSES]);

#endif
