#include "trainer/backend/cuda/lowering/patch_step.h"

#include <inttypes.h>
#include <stdio.h>

#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* Patches that overlap are more bytes than the image: larger ones than this are not tried. Where plans are
 * not timed only those from PATCH_KERNEL_MIN on are cut that do not overlap. */
enum { PATCH_CHANNELS_MAX = 64, PATCH_KERNEL_MIN = 4 };

/* The number changes with the kernel: times of others do not count. */
#define TIMED_AS "patches 1: "

static const DeviceTensor *image_of(const Step *step)
{
    return step->node->op == OP_CONV2D_BACKWARD_WEIGHT ? in(step, CONV_WEIGHT_X) : in(step, CONV_X);
}

/* Returns how many channels an image of patches has, with zeros. */
static int64_t patch_channels(const Step *step)
{
    const int64_t kernel = step->node->as.conv.options.kernel;
    return padded_channels(kernel * kernel * image_of(step)->shape[3]);
}

bool patch_step_fits(const Step *step, bool timed)
{
    const Conv2d *conv = &step->node->as.conv.options;
    if (step->node->op == OP_CONV2D_BACKWARD_DATA || !element_is_narrow(image_of(step)->element) ||
        conv->groups > 1 || conv->kernel == 1 || image_of(step)->shape[3] > FOLD_CHANNELS_MAX)
        return false;
    const bool overlap = conv->stride < conv->kernel || conv->padding > 0;
    return timed ? !overlap || patch_channels(step) <= PATCH_CHANNELS_MAX
                 : !overlap && conv->kernel >= PATCH_KERNEL_MIN;
}

Patches patch_step_convolution(const Step *step, Convolution *convolution)
{
    const Conv2d *conv = &step->node->as.conv.options;
    const DeviceTensor *y = &convolution->y;
    const int64_t channels = patch_channels(step);
    convolution->x = device_tensor_loose(y->element, y->shape[0], y->shape[1], y->shape[2], channels);
    convolution->weight = device_tensor_loose(y->element, y->pitch, 1, 1, channels);
    convolution->shape = (ConvolutionShape){.stride = 1, .padding = 0};
    return (Patches){conv->kernel, conv->stride, conv->padding};
}

FshStatus patch_step_image(const Step *step, const Patches *patches, const DeviceTensor *image,
                           cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_cut_patches(image_of(step), patches, image, stream), error);
}

typedef struct Timed {
    const Step *step;
    const Patches *patches;
    const DeviceTensor *image;
} Timed;

static FshStatus enqueue_timed(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    const Timed *timed = context;
    DeviceTensor image = *timed->image;
    image.data = scratch;
    return patch_step_image(timed->step, timed->patches, &image, stream, error);
}

FshStatus patch_step_milliseconds(CudaBackend *backend, const Step *step, const Patches *patches,
                                  const DeviceTensor *image, double *milliseconds_ret, FshError *error)
{
    char name[192];
    const DeviceTensor *x = image_of(step);
    const Timed timed = {step, patches, image};
    const Trial trial = {enqueue_timed, &timed, device_tensor_room_bytes(image)};
    (void)snprintf(name, sizeof name,
                   TIMED_AS "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 ", kernel %" PRId64
                            ", stride %" PRId64 ", padding %" PRId64,
                   x->shape[0], x->shape[1], x->shape[2], x->shape[3], patches->kernel, patches->stride,
                   patches->padding);
    return trial_milliseconds(backend, name, &trial, milliseconds_ret, error);
}
