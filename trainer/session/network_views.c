/* network_views.c - evaluation of several views of an image: mirrored (--flip-tta), moved (--shift-tta), and
 * as it is, which comes last. Their outputs and losses are averaged. */
#include <stdlib.h>
#include <string.h>

#include "imaging/mirror.h"
#include "trainer/backend/pixel_math.h"
#include "trainer/session/network.h"

enum { VIEWS_MAX = 6 };

typedef struct View {
    bool mirrored;
    int32_t shift; /* right and down, pixels */
    float weight;
} View;

/* Lists the views, which weigh 1 together; the image as it is is the last. It weighs as much as both that are
 * moved (Jordan 2024). */
static size_t list_views(const TrainPlan *plan, View views[VIEWS_MAX])
{
    const int32_t shift = (int32_t)plan->shift_tta, shifts[] = {shift, -shift, 0};
    const float of_mirror = plan->flip_tta ? 0.5F : 1, of_moved = 0.25F, of_unmoved = shift ? 0.5F : 1;
    size_t count = 0;
    for (int i = shift ? 0 : 2; i < 3; i++)
        for (int mirrored = plan->flip_tta; mirrored >= 0; mirrored--)
            views[count++] = (View){mirrored, shifts[i], of_mirror * (shifts[i] ? of_moved : of_unmoved)};
    return count;
}

static FshStatus read_output(NetworkProgram *part, size_t count, FshError *error)
{
    const size_t bytes = data_type_bytes(graph_tensor(part->graph, part->output)->type);
    return program_read(part->program, part->output, part->host_output, count * bytes, error);
}

/* Runs one batch; sets *loss, and the output in part->host_output. */
static FshStatus run_batch(NetworkProgram *part, const Batch *batch, size_t outputs, float *loss,
                           FshError *error)
{
    FshStatus status = network_write_batch(part, batch, error);
    if (!status)
        status = program_run(part->program, error);
    if (!status)
        status = program_read(part->program, part->loss, loss, sizeof *loss, error);
    return status ? status : read_output(part, outputs, error);
}

/* ---- the pixels of a view ---- */

/* Makes a view of images [count, height, width, channels]. */
static void view_pixels(const View *view, const Batch *batch, size_t count, size_t channels,
                        const uint8_t *pixels, uint8_t *target)
{
    const size_t width = batch->width, height = batch->height;
    for (size_t row = 0; row < count * height; row++, target += width * channels) {
        const size_t y = pixel_mirrored((int64_t)(row % height) - view->shift, (int64_t)height);
        const uint8_t *from = pixels + (row - row % height + y) * width * channels;
        if (!view->shift)
            image_mirror_row(from, width, (uint32_t)channels, target);
        for (size_t x = 0; x < width && view->shift; x++) {
            const int64_t unmirrored = (int64_t)(view->mirrored ? width - 1 - x : x);
            memcpy(target + x * channels,
                   from + pixel_mirrored(unmirrored - view->shift, (int64_t)width) * channels, channels);
        }
    }
}

static void view_recipes(const View *view, const PixelBatch *batch, PixelRecipe *recipes)
{
    for (uint64_t i = 0; i < batch->count; i++) {
        recipes[i] = batch->recipes[i];
        recipes[i].flip ^= view->mirrored;
        recipes[i].shift_x -= view->shift;
        recipes[i].shift_y -= view->shift;
    }
}

static FshStatus reserve(Network *network, size_t bytes, size_t outputs, FshError *error)
{
    if (network->view_bytes < bytes || network->view_outputs < outputs) {
        free(network->view_pixels);
        free(network->view_sum);
        network->view_pixels = malloc(bytes);
        network->view_sum = malloc(outputs * sizeof *network->view_sum);
        network->view_bytes = network->view_pixels && network->view_sum ? bytes : 0;
        network->view_outputs = network->view_bytes ? outputs : 0;
    }
    return network->view_bytes
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the mirror image of a batch");
}

/* Runs a view other than the image as it is. */
static FshStatus run_view(Network *network, NetworkProgram *part, const View *view, const Batch *batch,
                          size_t outputs, float *loss, FshError *error)
{
    const size_t count = (size_t)part->spec.batch, channels = (size_t)part->spec.channels;
    const size_t pixel_bytes = count * batch->height * batch->width * channels;
    Batch turned = *batch;
    PixelBatch recipes;
    const size_t bytes = batch->recipes ? (size_t)batch->recipes->count * sizeof(PixelRecipe)
                                        : (batch->target ? 2 : 1) * pixel_bytes;
    FshStatus status = reserve(network, bytes, outputs, error);
    if (status)
        return status;
    if (batch->recipes) {
        recipes = *batch->recipes;
        recipes.recipes = (const PixelRecipe *)(const void *)network->view_pixels;
        turned.recipes = &recipes;
        view_recipes(view, batch->recipes, (PixelRecipe *)(void *)network->view_pixels);
    } else {
        turned.pixels = network->view_pixels;
        view_pixels(view, batch, count, channels, batch->pixels, network->view_pixels);
    }
    if (batch->target) {
        turned.target = network->view_pixels + pixel_bytes;
        view_pixels(view, batch, count, channels, batch->target, network->view_pixels + pixel_bytes);
    }
    return run_batch(part, &turned, outputs, loss, error);
}

/* ---- their mean ---- */

/* Adds the output of a view to sum: restored images flipped back. */
static void add_output(const NetworkProgram *part, const View *view, float *sum, size_t outputs)
{
    const bool images = part->target != TENSOR_NONE;
    const float *output = part->host_output;
    const size_t channels = (size_t)part->spec.channels, width = (size_t)part->spec.width;
    for (size_t i = 0; i < outputs; i++) {
        const size_t x = i / channels % width, mirrored = i + (width - 1 - 2 * x) * channels;
        sum[i] += view->weight * output[images && view->mirrored ? mirrored : i];
    }
}

FshStatus network_run_views(Network *network, NetworkProgram *part, const Batch *batch, float *loss,
                            FshError *error)
{
    View views[VIEWS_MAX];
    const size_t count = list_views(network->plan, views);
    const size_t outputs = (size_t)tensor_count(graph_tensor(part->graph, part->output));
    float mean_loss = 0;
    FshStatus status = FSH_OK;
    for (size_t v = 0; v + 1 < count && !status; v++) {
        status = run_view(network, part, &views[v], batch, outputs, loss, error);
        if (!status && v == 0)
            memset(network->view_sum, 0, outputs * sizeof *network->view_sum);
        if (!status)
            add_output(part, &views[v], network->view_sum, outputs);
        mean_loss += views[v].weight * *loss;
    }
    if (!status)
        status = run_batch(part, batch, outputs, loss, error);
    if (status || count == 1)
        return status;
    add_output(part, &views[count - 1], network->view_sum, outputs);
    memcpy(part->host_output, network->view_sum, outputs * sizeof(float));
    *loss = mean_loss + views[count - 1].weight * *loss;
    return FSH_OK;
}
