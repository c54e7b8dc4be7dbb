/* The losses of rows of targets: several labels, or numbers. Each sample leaves a sum in double; they are
 * added in their order. */
#include "trainer/backend/cpu/cpu_internal.h"

#include <math.h>

#include "trainer/backend/target_math.h"

typedef struct RowLoss {
    const CpuStep *step;
    const TargetLoss *loss;
    const float *x, *targets, *valid;
    const float *weights, *positives; /* [columns]; NULL: 1 each */
    int64_t samples, columns;
    double terms; /* what the sums are divided by; 0: no sample counts */
    double dloss;
} RowLoss;

/* Collects the operands of a step. first: the place of x among its inputs. */
static RowLoss row_loss(const CpuStep *step, int first)
{
    const Tensor *x = cpu_input(step, first);
    RowLoss loss = {.step = step,
                    .loss = &step->node->as.target_loss,
                    .x = step->inputs[first],
                    .targets = step->inputs[first + 1],
                    .valid = step->inputs[first + 2],
                    .weights = step->inputs[first + 3],
                    .positives = step->inputs[first + 4],
                    .samples = x->shape[0],
                    .columns = x->shape[1]};
    for (int64_t n = 0; n < loss.samples; n++)
        loss.terms += loss.valid[n] > 0;
    loss.terms *= loss.loss->sums ? 1 : (double)loss.columns;
    return loss;
}

static double *sample_losses(const RowLoss *loss)
{
    return (double *)loss->step->program->scratch;
}

static double weight_at(const float *weights, int64_t k)
{
    return weights ? (double)weights[k] : 1;
}

static FshStatus target_loss_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes = (uint64_t)cpu_input(step, TARGET_LOSS_X)->shape[0] * sizeof(double);
    return FSH_OK;
}

static void loss_part(void *context, int part, int64_t begin, int64_t end)
{
    const RowLoss *loss = context;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *x = loss->x + n * loss->columns, *targets = loss->targets + n * loss->columns;
        double sum = 0;
        for (int64_t k = 0; k < loss->columns && loss->valid[n] > 0; k++)
            sum += weight_at(loss->weights, k) * target_term(loss->loss->kind, x[k],
                                                             target_of(loss->loss, targets[k]),
                                                             weight_at(loss->positives, k));
        sample_losses(loss)[n] = sum;
    }
}

static FshStatus target_loss_run(CpuStep *step, FshError *error)
{
    RowLoss loss = row_loss(step, TARGET_LOSS_X);
    double sum = 0;
    (void)error;
    cpu_parallel(step->program->backend, loss.samples, loss_part, &loss);
    for (int64_t n = 0; n < loss.samples; n++)
        sum += sample_losses(&loss)[n];
    *(float *)step->outputs[0] = loss.terms > 0 ? (float)(sum / loss.terms) : 0;
    return FSH_OK;
}

static void backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const RowLoss *loss = context;
    (void)part;
    for (int64_t n = begin; n < end; n++) {
        const float *x = loss->x + n * loss->columns, *targets = loss->targets + n * loss->columns;
        float *dx = (float *)loss->step->outputs[0] + n * loss->columns;
        const bool counts = loss->valid[n] > 0; /* one left out may hold anything, NaN too */
        for (int64_t k = 0; k < loss->columns; k++)
            dx[k] = counts ? (float)(loss->dloss * weight_at(loss->weights, k) *
                                     target_slope(loss->loss->kind, x[k], target_of(loss->loss, targets[k]),
                                                  weight_at(loss->positives, k)))
                           : 0;
    }
}

static FshStatus target_loss_backward_run(CpuStep *step, FshError *error)
{
    RowLoss loss = row_loss(step, TARGET_LOSS_BACK_X);
    (void)error;
    loss.dloss = loss.terms > 0 ? (double)*(const float *)step->inputs[0] / loss.terms : 0;
    cpu_parallel(step->program->backend, loss.samples, backward_part, &loss);
    return FSH_OK;
}

const CpuOp cpu_ops_loss_target[] = {
    {OP_TARGET_LOSS, .prepare = target_loss_prepare, .run = target_loss_run},
    {OP_TARGET_LOSS_BACKWARD, .run = target_loss_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
