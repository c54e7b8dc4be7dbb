/* cudnn_graph.h - cuDNN's graph API (cudnnBackend*) behind one object: describe a pattern, ask the
 * heuristics, keep a plan.
 *
 *   CudnnPlan *plan = NULL;
 *   status = cudnn_plan_new(&plan, &device, error);
 *   int x = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){n, c, h, w}); // ids count from 0
 *   int w = …, y = …;
 *   cudnn_plan_convolution(plan, CONVOLUTION_FORWARD, x, w, y, &shape);
 *   status = cudnn_plan_build(plan, &policy, error);   // engines that satisfy the policy
 *   … the caller finds cudnn_plan_workspace_bytes(plan) …
 *   status = cudnn_pack_new(&pack, plan, (void *[]){x_data, w_data, y_data}, workspace, error);
 *   status = cudnn_plan_run(plan, pack, handle, error); // on the handle's stream; can be captured
 *   cudnn_pack_free(&pack);
 *   cudnn_plan_free(&plan);
 *
 * The describing calls record their first failure in the plan, and cudnn_plan_build returns it: no check is
 * needed between. All tensors are NHWC in memory, filters KRSC; dimensions are given in cuDNN's order N, C,
 * H, W (filters: K, C, R, S). A convolution whose x has more channels than its filters is one in groups.
 *
 * A plan knows no addresses: one serves every layer of its shapes, each with a pack of its own (cudnn_cache.h
 * shares them, and keeps them on disk).
 *
 * A CudnnDevice with properties instead of a handle builds plans for a GPU that this machine need not have
 * (cuDNN 9.8): that is how tests check the lowering where there is no GPU. Such plans cannot run.
 *
 * Threads: a plan, and a handle, belong to one thread at a time. Source: cuDNN's "Graph API" and "Backend
 * descriptor types" reference. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_GRAPH_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_GRAPH_H

#include <stdint.h>

#include <cudnn.h>

#include "common/error.h"
#include "common/file.h"

typedef struct CudnnPlan CudnnPlan;

/* One of the two is set. */
typedef struct CudnnDevice {
    cudnnHandle_t handle;                /* a device that is here */
    cudnnBackendDescriptor_t properties; /* a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR */
} CudnnDevice;

typedef enum ConvolutionKind {
    CONVOLUTION_FORWARD,         /* y = x * w */
    CONVOLUTION_BACKWARD_DATA,   /* x, a gradient, from w and y */
    CONVOLUTION_BACKWARD_WEIGHT, /* w, a gradient, from x and y */
} ConvolutionKind;

typedef struct ConvolutionShape {
    int64_t stride, padding; /* the same in both directions */
} ConvolutionShape;

/* What an engine may be. */
typedef struct CudnnPolicy {
    uint32_t refused_notes; /* bit n: no engine with cudnnBackendNumericalNote_t n */
    int candidates; /* plans to build, in the heuristics' order; more than one to let cudnn_plan_choose time
                       them */
    uint64_t workspace_limit_bytes; /* no plan that needs more */
} CudnnPolicy;

#define CUDNN_NOTE_BIT(note) (1U << (unsigned)(note))
/* TF32 is the matrix units' way with float32: ten bits of mantissa. */
#define CUDNN_NOTES_OF_TF32                                                                                  \
    (CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) |                                                      \
     CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
/* Transforms whose rounding is far above a plain sum's. */
#define CUDNN_NOTES_OF_TRANSFORMS                                                                            \
    (CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_FFT) | CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) |     \
     CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
/* Sums by atomics, in another order each time. */
#define CUDNN_NOTES_OF_CHANCE CUDNN_NOTE_BIT(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)

/* Returns FSH_OK, or FSH_ERR_LIBRARY with the call, the name of the status and cuDNN's own message. */
FshStatus cudnn_check(cudnnStatus_t code, const char *call, FshError *error);
#define CUDNN_TRY(call, error) cudnn_check((call), #call, (error))

/* Makes an empty plan. device is borrowed and outlives the plan. FSH_ERR_MEMORY. */
FshStatus cudnn_plan_new(CudnnPlan **plan, const CudnnDevice *device, FshError *error);
void cudnn_plan_free(CudnnPlan **plan);

/* ---- describing ---- */

/* Adds a tensor that has memory of its own, 16-byte aligned at least; returns its id, -1 after a failure. */
int cudnn_plan_tensor(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4]);
/* Adds a tensor inside of a pattern: it is never written to memory, and its address is not asked for. */
int cudnn_plan_virtual(CudnnPlan *plan, cudnnDataType_t type, const int64_t dimensions[4]);
/* Adds a convolution. x, w, y: ids; which of them is the result follows from kind. Products and sums are
 * float32. */
void cudnn_plan_convolution(CudnnPlan *plan, ConvolutionKind kind, int x, int w, int y,
                            const ConvolutionShape *shape);
/* Adds sum[c] and square_sum[c], of x and of its squares; float32, dimensions 1, C, 1, 1. Engines sum by
 * atomics. */
void cudnn_plan_statistics(CudnnPlan *plan, int x, int sum, int square_sum);
/* Adds y = x + bias, dimensions 1, C, 1, 1. */
void cudnn_plan_bias(CudnnPlan *plan, int x, int bias, int y);
/* Adds y = x > 0 ? x : slope * x. */
void cudnn_plan_relu(CudnnPlan *plan, int x, float slope, int y);
/* Returns the pattern in one line, types, dimensions and operations: equal texts are equal patterns. Good for
 * the life of the plan. */
const char *cudnn_plan_text(const CudnnPlan *plan);

/* ---- from a pattern to a plan: build or load ---- */

/* Gives the plan another device, of the same GPU, to build with and to run on: the handle of another thread.
 * Before building or loading. */
void cudnn_plan_move(CudnnPlan *plan, const CudnnDevice *device);
/* Builds up to policy->candidates plans. FSH_ERR_LIBRARY when no engine satisfies the policy (the message
 * counts why), or when a call failed. */
FshStatus cudnn_plan_build(CudnnPlan *plan, const CudnnPolicy *policy, FshError *error);
/* Loads, in place of building, the one plan that cudnn_plan_json gave, of the same pattern, device and
 * library. FSH_ERR_LIBRARY. */
FshStatus cudnn_plan_load(CudnnPlan *plan, const void *json, size_t bytes, FshError *error);
/* Appends to json the first candidate, or the chosen one, as cuDNN writes it down (about 4 KB). */
FshStatus cudnn_plan_json(const CudnnPlan *plan, Buffer *json, FshError *error);
/* Returns the most workspace that any candidate needs; after cudnn_plan_choose that of the chosen one. */
uint64_t cudnn_plan_workspace_bytes(const CudnnPlan *plan);
/* Forgets the candidates that need more; FSH_ERR_MEMORY when none is left. */
FshStatus cudnn_plan_limit_workspace(CudnnPlan *plan, uint64_t most_bytes, FshError *error);
/* Times every candidate on this memory (which the results overwrite) and keeps the fastest. data: device
 * addresses by tensor id, NULL for virtual ones. Synchronizes the stream. A candidate that does not run is
 * left out. */
FshStatus cudnn_plan_choose(CudnnPlan *plan, void *const *data, void *workspace, cudaStream_t stream,
                            FshError *error);
/* Returns the milliseconds of one run, as measured by cudnn_plan_choose or as set; 0: they are not known. */
double cudnn_plan_milliseconds(const CudnnPlan *plan);
/* Returns cuDNN's number for the engine of the plan that will run; -1: a plan from JSON, of which nobody has
 * told it. */
int64_t cudnn_plan_engine(const CudnnPlan *plan);
/* Sets what was known of a plan when its JSON was written. */
void cudnn_plan_set_known(CudnnPlan *plan, double milliseconds, int64_t engine);
/* Writes "engine 47, 1.5 MiB workspace, 0.123 ms" of the plan that will run. Returns buffer. */
const char *cudnn_plan_describe(const CudnnPlan *plan, char *buffer, size_t buffer_bytes);

/* ---- running ---- */

/* The addresses of one use of a plan; data as for cudnn_plan_choose. */
typedef cudnnBackendDescriptor_t CudnnPack;
FshStatus cudnn_pack_new(CudnnPack *pack, const CudnnPlan *plan, void *const *data, void *workspace,
                         FshError *error);
void cudnn_pack_free(CudnnPack *pack);
/* Enqueues the plan, the first candidate or the chosen one, on the stream of the handle, which may be another
 * than the one that it was built with. */
FshStatus cudnn_plan_run(const CudnnPlan *plan, CudnnPack pack, cudnnHandle_t handle, FshError *error);

#endif
