#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

/* A convolution over small images in bf16, with several images side by side in one.
 *
 * oneDNN takes image after image, and reads the weights (adds to their gradient) for each: 4.7 MB of 512 x
 * 512 x 3 x 3 weights for the 16 pixels of a 4 x 4 image. Here `images` of them become one wide image, with
 * columns of zeros between that stand for the padding: [batch, H, W, C] is copied to [batch / images, H,
 * images * pitch, C]. The results between the images are left behind; their gradient is zero, so that they
 * add nothing to anybody's.
 *
 * One core with AMX, oneDNN 2.6.3, batch 128, 512 channels of 4 x 4 pixels, alone and so: forward 30 and 13
 * ms, data gradient 36 and 13 ms, weight gradient 82 and 15 ms; 256 to 512 channels of 8 x 8: 22 and 17, 25
 * and 17, 55 and 26 ms; 128 of 16 x 16 lose. In f32, where arithmetic takes longer than the weights, nothing
 * is won (docs/measurements). */

enum { OUT_WIDTH_MAX = 8, CHANNELS_MIN = 64, IMAGES_MAX = 16 };

typedef struct SideBySide {
    DnnConvolution one, wide; /* of the images as they are, and side by side */
    int64_t images;
    int64_t x_pitch, y_pitch; /* columns from one image to the next */
    uint64_t x_bytes, y_bytes;
    DnnPrimitive *primitive;
} SideBySide;

/* Returns how many images make a wide one: a divisor of the batch. */
static int64_t images_of(const DnnConvolution *c)
{
    int64_t images = IMAGES_MAX;
    while (c->batch % images)
        images--;
    return images;
}

bool cpu_side_by_side_wins(const DnnConvolution *c)
{
    return c->type == DATA_BF16 && c->groups == 1 && c->kernel > 1 && c->out_width <= OUT_WIDTH_MAX &&
           c->in_channels >= CHANNELS_MIN && c->out_channels >= CHANNELS_MIN && images_of(c) > 1;
}

/* A copy between [batch, height, width, channels] and the same images side by side. */
typedef struct Copy {
    const SideBySide *plan;
    char *narrow, *wide;
    int64_t height, pitch, wide_width; /* pixels of the wide image */
    size_t row_bytes, pixel_bytes;     /* of a narrow image */
    bool gathers;                      /* narrow to wide */
} Copy;

static void copy_part(void *context, int part, int64_t begin, int64_t end)
{
    const Copy *copy = context;
    const int64_t images = copy->plan->images;
    const size_t pitch_bytes = (size_t)copy->pitch * copy->pixel_bytes;
    (void)part;
    for (int64_t i = begin; i < end; i++) { /* rows of wide images */
        const int64_t group = i / copy->height, row = i % copy->height;
        char *wide = copy->wide + (size_t)(i * copy->wide_width) * copy->pixel_bytes;
        for (int64_t k = 0; k < images; k++) {
            char *narrow =
                copy->narrow + (size_t)((group * images + k) * copy->height + row) * copy->row_bytes;
            char *place = wide + (size_t)k * pitch_bytes;
            if (copy->gathers)
                memcpy(place, narrow, copy->row_bytes);
            else
                memcpy(narrow, place, copy->row_bytes);
            if (copy->gathers && k + 1 < images)
                memset(place + copy->row_bytes, 0, pitch_bytes - copy->row_bytes);
        }
        const size_t used = (size_t)(images - 1) * pitch_bytes + copy->row_bytes;
        if (copy->gathers)
            memset(wide + used, 0, (size_t)copy->wide_width * copy->pixel_bytes - used);
    }
}

static void copy_x(const CpuStep *step, void *narrow, bool gathers)
{
    const SideBySide *plan = step->plan;
    const size_t pixel = (size_t)plan->one.in_channels * data_type_bytes(plan->one.type);
    Copy copy = {plan,
                 narrow,
                 step->program->scratch,
                 plan->one.in_height,
                 plan->x_pitch,
                 plan->wide.in_width,
                 (size_t)plan->one.in_width * pixel,
                 pixel,
                 gathers};
    cpu_parallel(step->program->backend, plan->wide.batch * plan->one.in_height, copy_part, &copy);
}

static void copy_y(const CpuStep *step, void *narrow, bool gathers)
{
    const SideBySide *plan = step->plan;
    const size_t pixel = (size_t)plan->one.out_channels * data_type_bytes(plan->one.type);
    Copy copy = {plan,
                 narrow,
                 step->program->scratch + plan->x_bytes,
                 plan->one.out_height,
                 plan->y_pitch,
                 plan->wide.out_width,
                 (size_t)plan->one.out_width * pixel,
                 pixel,
                 gathers};
    cpu_parallel(step->program->backend, plan->wide.batch * plan->one.out_height, copy_part, &copy);
}

static FshStatus run(CpuStep *step, FshError *error)
{
    const SideBySide *plan = step->plan;
    const OpKind op = step->node->op;
    if (op == OP_CONV2D)
        copy_x(step, step->inputs[0], true);
    else
        copy_y(step, step->inputs[0], true);
    if (op == OP_CONV2D_BACKWARD_WEIGHT)
        copy_x(step, step->inputs[CONV_WEIGHT_X], true);
    FshStatus status = dnn_primitive_run(plan->primitive, error);
    if (op == OP_CONV2D) {
        copy_y(step, step->outputs[0], false);
        cpu_convolution_activate(step);
    } else if (op == OP_CONV2D_BACKWARD_DATA)
        copy_x(step, step->outputs[0], false);
    return status;
}

static void release(CpuStep *step)
{
    SideBySide *plan = step->plan;
    dnn_primitive_free(&plan->primitive);
}

/* Binds the images in scratch memory, in the order in which each maker of a primitive takes them; the weight
 * is bound already. */
static FshStatus bind_scratch(CpuStep *step, FshError *error)
{
    const SideBySide *plan = step->plan;
    char *x = step->program->scratch, *y = x + plan->x_bytes;
    void *memories[3] = {y, x, NULL};
    int count = 2;
    if (step->node->op == OP_CONV2D) {
        void *bias = step->inputs[CONV_BIAS];
        memories[0] = x;
        memories[bias ? 1 : 2] = bias;
        memories[bias ? 2 : 1] = y;
        count += bias != NULL;
    }
    FshStatus status = dnn_primitive_bind(plan->primitive, memories, count, error);
    return status ? status : dnn_primitive_set_scratch(plan->primitive, y + plan->y_bytes, error);
}

static uint64_t whole_lines(int64_t values, DataType type)
{
    return ((uint64_t)values * data_type_bytes(type) + 63) / 64 * 64;
}

static void plan_geometry(SideBySide *plan, const DnnConvolution *c)
{
    plan->one = plan->wide = *c;
    plan->images = images_of(c);
    /* No window reaches from one image into the next: the last of one ends before width + padding. Whole
     * strides, so that the windows of every image stand as those of the first. */
    plan->x_pitch = (c->in_width + c->padding + c->stride - 1) / c->stride * c->stride;
    plan->y_pitch = plan->x_pitch / c->stride;
    plan->wide.batch = c->batch / plan->images;
    plan->wide.in_width = plan->images * plan->x_pitch;
    plan->wide.out_width = (plan->wide.in_width + 2 * c->padding - c->kernel) / c->stride + 1;
    plan->x_bytes =
        whole_lines(plan->wide.batch * c->in_height * plan->wide.in_width * c->in_channels, c->type);
    plan->y_bytes =
        whole_lines(plan->wide.batch * c->out_height * plan->wide.out_width * c->out_channels, c->type);
}

FshStatus cpu_side_by_side_prepare(CpuStep *step, const DnnConvolution *convolution, const DnnLayout *weights,
                                   FshError *error)
{
    DnnEngine *engine = step->program->backend->dnn;
    FshStatus status;
    SideBySide *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    plan_geometry(plan, convolution);
    step->run = run;
    step->engine = "onednn side-by-side";
    step->bind_scratch = bind_scratch;
    step->release = release;
    switch (step->node->op) {
    case OP_CONV2D:
        status = dnn_convolution_forward_new(&plan->primitive, engine, &plan->wide, weights, NULL,
                                             step->inputs[CONV_WEIGHT], step->inputs[CONV_BIAS], NULL, error);
        break;
    case OP_CONV2D_BACKWARD_DATA:
        status = dnn_convolution_backward_data_new(&plan->primitive, engine, &plan->wide, weights, NULL,
                                                   step->inputs[CONV_DATA_WEIGHT], NULL, error);
        break;
    default:
        status = dnn_convolution_backward_weight_new(&plan->primitive, engine, &plan->wide, weights, NULL,
                                                     NULL, step->outputs[CONV_WEIGHT_DWEIGHT],
                                                     step->outputs[CONV_WEIGHT_DBIAS], error);
        break;
    }
    if (!status)
        step->scratch_bytes = plan->x_bytes + plan->y_bytes + dnn_primitive_scratch_bytes(plan->primitive);
    return status;
}
