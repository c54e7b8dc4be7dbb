#include "trainer/inference/restore.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/interrupt.h"
#include "common/path.h"
#include "trainer/inference/image_writer.h"
#include "trainer/inference/tiles.h"

enum {
    OVERLAP = 128, /* an input pixel of the unet influences outputs up to 90 pixels away, most of it much
                    * nearer */
    /* Parts of memory: the programs that are kept (network.h), and what loader and writer hold. */
    MEMORY_PARTS = NETWORK_SIZES_KEPT + 2,
};

struct Restorer {
    Session *session;
    RestoreOptions options;
    ImageWriter *writer;
    uint32_t multiple;  /* sides and tile positions are multiples of this, since the network halves images */
    double pixels_most; /* that fit into memory at a time; lowered when the device runs out */
    uint32_t tile;      /* of the last image */
    bool masks;         /* what is made of images are masks, whole */
    Buffer canvas, piece;
};

/* ---- names ---- */

FshStatus restore_target(const char *path, ImageFormat wanted, char target[PATH_MAX], ImageFormat *format_ret,
                         FshError *error)
{
    const ImageFormat named = image_name_format(path);
    const bool kept = named == IMAGE_JPEG || named == IMAGE_PNG;
    *format_ret = wanted != IMAGE_UNKNOWN ? wanted : kept ? named : IMAGE_PNG;
    const bool same = named == *format_ret;
    const size_t bytes = same || named == IMAGE_UNKNOWN ? strlen(path) : path_stem_bytes(path);
    const int length = snprintf(target, PATH_MAX, "%.*s%s", (int)bytes, path,
                                same ? "" : image_format_extension(*format_ret));
    if (length < 0 || length >= PATH_MAX)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: its new name is too long", path);
    return FSH_OK;
}

/* ---- tiles ---- */

static uint32_t round_up(uint32_t value, uint32_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static uint32_t find_overlap(const Restorer *restorer, uint32_t tile)
{
    uint32_t wanted = restorer->options.overlap ? restorer->options.overlap : OVERLAP;
    if (wanted > tile / 2 && !(restorer->options.overlap && restorer->options.tile))
        wanted = tile / 2;
    return round_up(wanted < TILE_RAMP ? TILE_RAMP : wanted, restorer->multiple);
}

/* Returns the edge of the largest tiles that fit; 0: the whole image fits. */
static uint32_t choose_tile(const Restorer *restorer, const Batch *batch)
{
    if (restorer->masks)
        return 0;
    if (restorer->options.tile)
        return round_up(restorer->options.tile, restorer->multiple);
    if ((double)batch->width * batch->height <= restorer->pixels_most)
        return 0;
    return tile_edge_for(restorer->pixels_most, restorer->multiple);
}

static FshStatus run(Restorer *restorer, const Batch *batch, const uint8_t **pixels_ret, FshError *error)
{
    Metrics metrics = {0};
    Evaluated evaluated = {0};
    FshStatus status =
        network_evaluate(&restorer->session->network, NETWORK_TRAINED, batch, &metrics, &evaluated, error);
    *pixels_ret = restorer->masks ? evaluated.classes : evaluated.restored;
    return status;
}

static FshStatus run_tile(Restorer *restorer, const Batch *batch, const TileAxis *columns,
                          const TileAxis *rows, const Tile *tile, FshError *error)
{
    const uint32_t channels = restorer->session->data.channels;
    const uint8_t *restored = NULL;
    Batch part = *batch;
    tile_cut(batch->pixels, columns, tile, channels, restorer->piece.bytes);
    part.pixels = restorer->piece.bytes;
    part.width = tile->width;
    part.height = tile->height;
    FshStatus status = run(restorer, &part, &restored, error);
    if (!status)
        tile_join(restorer->canvas.bytes, columns, rows, tile, channels, restored);
    return status;
}

static FshStatus run_tiles(Restorer *restorer, const Batch *batch, uint32_t edge, const uint8_t **pixels_ret,
                           FshError *error)
{
    const uint32_t channels = restorer->session->data.channels, overlap = find_overlap(restorer, edge);
    const TileAxis columns = {batch->width, edge, overlap}, rows = {batch->height, edge, overlap};
    FshStatus status =
        buffer_reserve(&restorer->canvas, (size_t)batch->width * batch->height * channels, error);
    if (!status)
        status = buffer_reserve(&restorer->piece, (size_t)edge * edge * channels, error);
    for (uint32_t row = 0; row < tile_count(&rows) && !status; row++)
        for (uint32_t column = 0; column < tile_count(&columns) && !status; column++) {
            const Tile tile = tile_at(&columns, &rows, column, row);
            if (interrupt_requested()) /* a large image takes minutes */
                status = fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
            else
                status = run_tile(restorer, batch, &columns, &rows, &tile, error);
        }
    *pixels_ret = restorer->canvas.bytes;
    return status;
}

/* Restores the image whole or in tiles, in smaller tiles if the device runs out of memory, and sets
 * *pixels_ret. */
static FshStatus restore(Restorer *restorer, const Batch *batch, const uint8_t **pixels_ret, FshError *error)
{
    for (;;) {
        FshError failure = {0};
        const uint32_t edge = choose_tile(restorer, batch);
        const bool whole = !edge || (batch->width <= edge && batch->height <= edge);
        restorer->tile = whole ? 0 : edge;
        const FshStatus status = whole ? run(restorer, batch, pixels_ret, &failure)
                                       : run_tiles(restorer, batch, edge, pixels_ret, &failure);
        const double pixels = whole ? (double)batch->width * batch->height : (double)edge * edge;
        const double least = tile_edge_least(restorer->multiple);
        if (status != FSH_ERR_MEMORY || restorer->masks || restorer->options.tile ||
            pixels <= least * least) {
            if (error)
                *error = failure;
            return status;
        }
        restorer->pixels_most = pixels / 4;
    }
}

/* ---- opening and closing ---- */

static FshStatus measure_memory(Restorer *restorer, FshError *error)
{
    double bytes = 0;
    restorer->pixels_most = HUGE_VAL;
    if (restorer->session->plan.device != DEVICE_CPU) /* a GPU reports when it is full */
        return FSH_OK;
    FshStatus status = network_foresee_pixel(&restorer->session->network, &bytes, error);
    if (!status && bytes > 0)
        restorer->pixels_most = (double)cpu_free_memory_bytes(1) / MEMORY_PARTS / bytes;
    return status;
}

FshStatus restorer_new(Restorer **restorer_ret, Session *session, const RestoreOptions *options,
                       FshError *error)
{
    Restorer *restorer = *restorer_ret = calloc(1, sizeof *restorer);
    if (!restorer)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for restoring images");
    restorer->session = session;
    restorer->options = *options;
    restorer->masks = plan_is_masks(&session->plan);
    restorer->multiple = session->plan.model->multiple(&session->plan.evaluation_spec);
    const uint32_t tile = round_up(options->tile, restorer->multiple), overlap = find_overlap(restorer, tile);
    FshStatus status = FSH_OK;
    if (options->tile && tile <= overlap)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "--tile: %u pixels are no more than the %u that two tiles share (both are "
                               "multiples of %u); use a larger one, or a smaller --tile-overlap",
                               tile, overlap, restorer->multiple);
    if (!status)
        status = measure_memory(restorer, error);
    if (!status)
        status = image_writer_new(&restorer->writer, session->plan.workers, options->force, restorer->masks,
                                  error);
    if (status)
        restorer_free(restorer_ret);
    return status;
}

FshStatus restorer_add(Restorer *restorer, const char *path, const Batch *batch, bool *unfit_ret,
                       FshError *error)
{
    char target[PATH_MAX], into[PATH_MAX];
    ImageFormat format = IMAGE_UNKNOWN;
    const uint8_t *pixels = NULL;
    FshStatus status = restore(restorer, batch, &pixels, error);
    *unfit_ret = status == FSH_ERR_MISMATCH || status == FSH_ERR_MEMORY;
    if (!status)
        status = restore_target(path, restorer->options.format, target, &format, error);
    if (!status)
        status = file_join(into, sizeof into, restorer->options.folder, target, error);
    if (status)
        return status;
    const uint32_t channels = restorer->masks ? 1 : restorer->session->data.channels;
    const ImageView view = {.pixels = pixels,
                            .stride_bytes = (size_t)batch->width * channels,
                            .width = batch->width,
                            .height = batch->height,
                            .channels = channels};
    return image_writer_put(restorer->writer, into, format, &view, error);
}

FshStatus restorer_finish(Restorer *restorer, FshError *error)
{
    return image_writer_finish(restorer->writer, error);
}

uint64_t restorer_count(Restorer *restorer)
{
    return image_writer_count(restorer->writer);
}

uint32_t restorer_tile(const Restorer *restorer)
{
    return restorer->tile;
}

void restorer_free(Restorer **restorer_ret)
{
    Restorer *restorer = *restorer_ret;
    if (!restorer)
        return;
    image_writer_free(&restorer->writer);
    buffer_free(&restorer->canvas);
    buffer_free(&restorer->piece);
    free(restorer);
    *restorer_ret = NULL;
}
