/* Self-attention between channels, and spectral norm. Of self-attention a thread has whole images, whose
 * products are oneDNN's. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/backend/cpu/cpu_internal.h"

/* ---- spectral norm ---- */

/* Sets *rows_ret and *columns_ret to those of the weight as a matrix. */
static void matrix_of(const Tensor *weight, int64_t *rows_ret, int64_t *columns_ret)
{
    *rows_ret = weight->shape[0];
    *columns_ret = tensor_count(weight) / weight->shape[0];
}

static FshStatus spectral_norm_prepare(CpuStep *step, FshError *error)
{
    int64_t rows, columns;
    (void)error;
    matrix_of(cpu_input(step, SPECTRAL_NORM_WEIGHT), &rows, &columns);
    step->scratch_bytes = (uint64_t)(rows + columns) * sizeof(double);
    return FSH_OK;
}

/* Writes the vector, divided by its length, to `to`. */
static void set_direction(const double *vector, int64_t count, float *to)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += vector[i] * vector[i];
    const double length = fmax(sqrt(squares), 1e-12); /* PyTorch's */
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(vector[i] / length);
}

static void multiply_matrix(const float *weight, int64_t rows, int64_t columns, const float *v,
                            double *product)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < columns; j++)
            sum += (double)weight[i * columns + j] * (double)v[j];
        product[i] = sum;
    }
}

static FshStatus spectral_norm_run(CpuStep *step, FshError *error)
{
    int64_t rows, columns;
    (void)error;
    matrix_of(cpu_input(step, SPECTRAL_NORM_WEIGHT), &rows, &columns);
    const float *weight = step->inputs[SPECTRAL_NORM_WEIGHT];
    float *u = step->inputs[SPECTRAL_NORM_U], *v = step->inputs[SPECTRAL_NORM_V],
          *y = step->outputs[SPECTRAL_NORM_Y];
    double *of_rows = (double *)(void *)step->program->scratch, *of_columns = of_rows + rows, sigma = 0;
    if (step->node->as.spectral_norm.training) {
        memset(of_columns, 0, (size_t)columns * sizeof *of_columns);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                of_columns[j] += (double)weight[i * columns + j] * (double)u[i];
        set_direction(of_columns, columns, v);
    }
    multiply_matrix(weight, rows, columns, v, of_rows);
    if (step->node->as.spectral_norm.training)
        set_direction(of_rows, rows, u);
    for (int64_t i = 0; i < rows; i++)
        sigma += of_rows[i] * (double)u[i];
    for (int64_t i = 0; i < rows * columns; i++)
        y[i] = (float)((double)weight[i] / sigma);
    *(float *)step->outputs[SPECTRAL_NORM_SIGMA] = (float)sigma;
    return FSH_OK;
}

static FshStatus spectral_norm_backward_run(CpuStep *step, FshError *error)
{
    int64_t rows, columns;
    (void)error;
    matrix_of(cpu_input(step, SPECTRAL_NORM_BACK_Y), &rows, &columns);
    const float *dy = step->inputs[SPECTRAL_NORM_BACK_DY], *y = step->inputs[SPECTRAL_NORM_BACK_Y],
                *u = step->inputs[SPECTRAL_NORM_BACK_U], *v = step->inputs[SPECTRAL_NORM_BACK_V];
    const double sigma = (double)*(const float *)step->inputs[SPECTRAL_NORM_BACK_SIGMA];
    float *dweight = step->outputs[0];
    double product = 0;
    for (int64_t i = 0; i < rows * columns; i++)
        product += (double)dy[i] * (double)y[i];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            dweight[i * columns + j] =
                (float)(((double)dy[i * columns + j] - product * (double)u[i] * (double)v[j]) / sigma);
    return FSH_OK;
}

/* ---- self-attention ---- */

typedef struct SelfAttentionPlan {
    int64_t images, pixels, channels;
    bool narrow;         /* images are converted to floats in scratch, and back */
    int64_t part_floats; /* of scratch, for each thread */
    atomic_bool failed;  /* oneDNN had no memory */
} SelfAttentionPlan;

/* Plans scratch for each thread: `images` where they are narrow, and `matrices` of channels by channels. */
static FshStatus plan_self_attention(CpuStep *step, int images, int matrices, FshError *error)
{
    const bool forward = step->node->op == OP_SELF_ATTENTION;
    const Tensor *x = cpu_input(step, forward ? SELF_ATTENTION_X : SELF_ATTENTION_BACK_X);
    SelfAttentionPlan *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    plan->images = x->shape[0];
    plan->pixels = x->shape[1] * x->shape[2];
    plan->channels = x->shape[3];
    plan->narrow = x->type != DATA_F32;
    plan->part_floats = (plan->narrow ? images * plan->pixels * plan->channels : 0) +
                        matrices * plan->channels * plan->channels;
    plan->part_floats = (plan->part_floats + 15) / 16 * 16;
    step->scratch_bytes = (uint64_t)(step->program->backend->threads * plan->part_floats) * sizeof(float) +
                          (uint64_t)plan->images * sizeof(double);
    step->engine = "onednn gemm";
    return FSH_OK;
}

/* What a thread works on: an image, and the scratch that is left. */
typedef struct Image {
    const CpuStep *step;
    SelfAttentionPlan *plan;
    int64_t number;
    float *scratch;
} Image;

static float *take(Image *image, int64_t floats)
{
    float *taken = image->scratch;
    image->scratch += floats;
    return taken;
}

/* Returns the image's pixels of input k as floats. */
static const float *read_image(Image *image, int k)
{
    const int64_t count = image->plan->pixels * image->plan->channels;
    if (!image->plan->narrow)
        return cpu_read(image->step, k, image->number * count);
    float *floats = take(image, count);
    image->step->kernels->to_f32(cpu_read(image->step, k, image->number * count), floats, count);
    return floats;
}

/* Returns where the image's pixels of output 0 are computed as floats, with those of `begin` in it. */
static float *begin_result(Image *image, const float *begin)
{
    const int64_t count = image->plan->pixels * image->plan->channels;
    float *floats =
        image->plan->narrow ? take(image, count) : cpu_write(image->step, 0, image->number * count);
    memcpy(floats, begin, (size_t)count * sizeof *floats);
    return floats;
}

/* Writes the pixels of begin_result to output 0, where they are not there yet. */
static void end_result(const Image *image, const float *floats)
{
    const int64_t count = image->plan->pixels * image->plan->channels;
    if (image->plan->narrow)
        image->step->kernels->from_f32(floats, cpu_write(image->step, 0, image->number * count), count);
}

/* Computes a product of packed matrices. */
static void multiply(const Image *image, DnnGemm gemm, const float *a, const float *b, float *c)
{
    gemm.pitch_a = gemm.transpose_a ? gemm.rows : gemm.inner;
    gemm.pitch_b = gemm.transpose_b ? gemm.inner : gemm.columns;
    gemm.pitch_c = gemm.columns;
    if (dnn_gemm(&gemm, a, b, c, NULL))
        atomic_store(&image->plan->failed, true);
}

static FshStatus run_images(CpuStep *step, CpuPart work, FshError *error)
{
    SelfAttentionPlan *plan = step->plan;
    atomic_store(&plan->failed, false);
    cpu_parallel(step->program->backend, plan->images, work, step);
    return atomic_load(&plan->failed) ? fsh_error_set(error, FSH_ERR_MEMORY, "oneDNN: no memory") : FSH_OK;
}

static float *scratch_of(const CpuStep *step, int part)
{
    const SelfAttentionPlan *plan = step->plan;
    return (float *)(void *)step->program->scratch + part * plan->part_floats;
}

static FshStatus self_attention_prepare(CpuStep *step, FshError *error)
{
    return plan_self_attention(step, 2, 0, error);
}

static void self_attention_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const float *weight = step->inputs[SELF_ATTENTION_WEIGHT],
                gamma = *(const float *)step->inputs[SELF_ATTENTION_GAMMA];
    for (int64_t n = begin; n < end; n++) {
        Image image = {step, step->plan, n, scratch_of(step, part)};
        const int64_t pixels = image.plan->pixels, channels = image.plan->channels,
                      square = channels * channels;
        float *products = (float *)step->outputs[SELF_ATTENTION_PRODUCTS] + n * square,
              *mixing = (float *)step->outputs[SELF_ATTENTION_MIXING] + n * square;
        const float *x = read_image(&image, SELF_ATTENTION_X);
        float *y = begin_result(&image, x);
        multiply(&image, (DnnGemm){channels, channels, pixels, .transpose_a = true, .factor = 1}, x, x,
                 products);
        multiply(&image, (DnnGemm){channels, channels, channels, .factor = 1}, products, weight, mixing);
        multiply(&image,
                 (DnnGemm){pixels, channels, channels, .transpose_b = true, .adds = true, .factor = gamma}, x,
                 mixing, y);
        end_result(&image, y);
    }
}

static FshStatus self_attention_run(CpuStep *step, FshError *error)
{
    return run_images(step, self_attention_part, error);
}

static FshStatus self_attention_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_self_attention(step, 3, 3, error);
}

/* Returns the sums of each image's share in dgamma. */
static double *gammas_of(const CpuStep *step)
{
    return (double *)(void *)scratch_of(step, step->program->backend->threads);
}

/* Makes a matrix its sum with itself, transposed. */
static void add_transposed(float *matrix, int64_t side)
{
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j <= i; j++)
            matrix[i * side + j] = matrix[j * side + i] = matrix[i * side + j] + matrix[j * side + i];
}

/* Adds its images' part of dweight up in the first matrix of its scratch. */
static void self_attention_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const float *weight = step->inputs[SELF_ATTENTION_BACK_WEIGHT],
                gamma = *(const float *)step->inputs[SELF_ATTENTION_BACK_GAMMA];
    for (int64_t n = begin; n < end; n++) {
        Image image = {step, step->plan, n, scratch_of(step, part)};
        const int64_t pixels = image.plan->pixels, channels = image.plan->channels,
                      square = channels * channels;
        const DnnGemm of_matrices = {channels, channels, channels, .factor = gamma};
        const float *products = (const float *)step->inputs[SELF_ATTENTION_BACK_PRODUCTS] + n * square,
                    *mixing = (const float *)step->inputs[SELF_ATTENTION_BACK_MIXING] + n * square;
        float *dweight = take(&image, square), *dmixing = take(&image, square),
              *dproducts = take(&image, square);
        const float *x = read_image(&image, SELF_ATTENTION_BACK_X),
                    *dy = read_image(&image, SELF_ATTENTION_BACK_DY);
        double dgamma = 0;
        /* dmixing is without gamma, which the products that read it have as their factor. */
        multiply(&image, (DnnGemm){channels, channels, pixels, .transpose_a = true, .factor = 1}, dy, x,
                 dmixing);
        for (int64_t i = 0; i < square; i++)
            dgamma += (double)dmixing[i] * (double)mixing[i];
        gammas_of(step)[n] = dgamma;
        DnnGemm of_weight = of_matrices, of_products = of_matrices;
        of_weight.adds = true; /* products are their own transposed */
        multiply(&image, of_weight, products, dmixing, dweight);
        if (!step->outputs[SELF_ATTENTION_BACK_DX])
            continue;
        of_products.transpose_b = true;
        /* with a gamma of 0 oneDNN leaves the result as it was on some CPUs, NaN too (2.6, SSE4.1) */
        memset(dproducts, 0, (size_t)(channels * channels) * sizeof *dproducts);
        multiply(&image, of_products, dmixing, weight, dproducts);
        add_transposed(dproducts, channels);
        float *dx = begin_result(&image, dy);
        multiply(&image, (DnnGemm){pixels, channels, channels, .adds = true, .factor = gamma}, dy, mixing,
                 dx);
        multiply(&image, (DnnGemm){pixels, channels, channels, .adds = true, .factor = 1}, x, dproducts, dx);
        end_result(&image, dx);
    }
}

static FshStatus self_attention_backward_run(CpuStep *step, FshError *error)
{
    const SelfAttentionPlan *plan = step->plan;
    const int64_t square = plan->channels * plan->channels;
    const int threads = step->program->backend->threads;
    float *dweight = step->outputs[SELF_ATTENTION_BACK_DWEIGHT],
          *dgamma = step->outputs[SELF_ATTENTION_BACK_DGAMMA];
    double sum = 0;
    for (int part = 0; part < threads; part++)
        memset(scratch_of(step, part), 0, (size_t)square * sizeof(float));
    FshStatus status = run_images(step, self_attention_backward_part, error);
    for (int64_t i = 0; i < square && dweight; i++) {
        double of_parts = 0;
        for (int part = 0; part < threads; part++)
            of_parts += (double)scratch_of(step, part)[i];
        dweight[i] = (float)of_parts;
    }
    for (int64_t n = 0; n < plan->images; n++)
        sum += gammas_of(step)[n];
    if (dgamma)
        *dgamma = (float)sum;
    return status;
}

const CpuOp cpu_ops_self_attention[] = {
    {OP_SPECTRAL_NORM, .prepare = spectral_norm_prepare, .run = spectral_norm_run},
    {OP_SPECTRAL_NORM_BACKWARD, .run = spectral_norm_backward_run},
    {OP_SELF_ATTENTION, .prepare = self_attention_prepare, .run = self_attention_run},
    {OP_SELF_ATTENTION_BACKWARD, .prepare = self_attention_backward_prepare,
     .run = self_attention_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
