#include "trainer/library/fshard_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "formats/fshard.h"
#include "trainer/library/batch_format.h"
#include "trainer/library/loader_options.h"
#include "trainer/plan/plan_loader.h"

/* Where the batch of a slot goes, unless the loader makes it in the caller's memory itself. */
typedef struct Output {
    uint8_t *sides[2];
} Output;

struct FshLoader {
    LoaderSettings settings;
    TrainingData data;
    TrainPlan plan;
    uint32_t *sizes;
    LoaderOptions options;
    Loader *loader;
    FshLoaderInfo info;
    BatchFormat format;
    Output *outputs;      /* [ring], of format; NULL: pixels are as they are wanted, or whole */
    size_t output_bytes;  /* of one side in each output */
    uint8_t *whole[2];    /* whole images as they are wanted, until the next call */
    size_t whole_bytes;   /* of each */
    uint64_t next_number; /* the loader's next batch */
    uint64_t end_number;  /* one more than the last batch of the epoch */
    bool started;
};

const char *fsh_loader_version(void)
{
    return FSHARD_VERSION;
}

void fsh_loader_outlive_read_errors(void)
{
    fsh_outlive_read_errors();
}

/* ---- opening ---- */

static FshStatus open_data(FshLoader *loader, const FshLoaderConfig *config, FshError *error)
{
    TrainOptions *options = &loader->settings.options;
    TrainingDataSource source = train_options_source(options, 0);
    if (!config->training) {
        source.train_split = NULL;
        source.evaluation_split = config->split;
    }
    FshStatus status = training_data_open(&loader->data, &source, error);
    if (!status && loader->data.kind == FSH_KIND_MASKS)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "%s: holds images and masks, of which the native loader makes no batches; "
                               "fshard.torch.FshardDataset gives them to a DataLoader",
                               config->shards);
    const uint64_t samples = !status && loader->data.train ? loader->data.train->sample_count : 0;
    if (!status && config->keep_last && samples && config->batch > samples)
        options->training.batch_size = (int64_t)samples;
    return status;
}

static FshStatus make_plan(FshLoader *loader, const FshLoaderConfig *config, FshError *error)
{
    const TrainOptions *options = &loader->settings.options;
    const Model *model = NULL;
    FshStatus status = plan_model(options, loader->data.kind, &model, error);
    if (!status)
        status = plan_make(&loader->plan, options, model, &loader->data, error);
    if (!status)
        status = plan_loader_options(&loader->plan, &loader->data, config->training != 0, &loader->options,
                                     &loader->sizes, error);
    if (status)
        return status;
    LoaderOptions *made = &loader->options;
    /* The program's own work leaves a core, and takes none where it waits. */
    if (!config->workers)
        made->workers = made->workers_most > 1 ? made->workers_most - 1 : 1;
    if (config->ahead)
        made->batches_ahead = config->ahead;
    made->keep_last = config->training && config->keep_last;
    return FSH_OK;
}

static FshStatus check_format(const FshLoader *loader, const FshLoaderConfig *config, FshError *error)
{
    if (config->element > FSH_LOADER_BF16 || config->normalize > FSH_LOADER_BY_CALLER)
        return fsh_error_set(error, FSH_ERR_USAGE, "the loader knows no such element or normalization");
    if (config->element == FSH_LOADER_U8 && config->normalize != FSH_LOADER_AS_IT_IS)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "normalize: bytes are not normalized; ask for floating point, or do it on the GPU");
    if (config->normalize == FSH_LOADER_BY_DATASET && loader->data.kind == FSH_KIND_PAIRS)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "normalize: pairs stay in 0..1; give mean and deviation if they should not");
    for (uint32_t c = 0; c < loader->data.channels && config->normalize == FSH_LOADER_BY_CALLER; c++)
        if (!(config->deviation[c] > 0))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "normalize: the deviation of channel %u is %g, not above 0", c,
                                 config->deviation[c]);
    return FSH_OK;
}

/* Writes the values of places that a thread has filled to where they are wanted. */
static void write_output(void *context, size_t slot, const BatchSlot *memory, uint64_t first, uint64_t count)
{
    const FshLoader *loader = context;
    const Output *output = &loader->outputs[slot];
    const size_t pixels = (size_t)memory->width * memory->height,
                 bytes = pixels * loader->format.channels * loader->format.element_bytes;
    for (uint64_t place = first; place < first + count; place++) {
        const uint8_t *sides[] = {batch_slot_pixels(memory, place), batch_slot_target(memory, place)};
        for (int side = 0; side < 2 && sides[side]; side++)
            batch_format_image(&loader->format, sides[side], pixels, output->sides[side] + place * bytes);
    }
}

static void make_format(FshLoader *loader, const FshLoaderConfig *config)
{
    static const double zeros[4] = {0}, ones[4] = {1, 1, 1, 1};
    const bool by_dataset = config->normalize == FSH_LOADER_BY_DATASET,
               by_caller = config->normalize == FSH_LOADER_BY_CALLER;
    const double *mean = by_dataset ? loader->data.mean : by_caller ? config->mean : zeros;
    const double *deviation = by_dataset  ? loader->data.standard_deviation
                              : by_caller ? config->deviation
                                          : ones;
    batch_format_make(&loader->format, (FshLoaderElement)config->element, config->planes != 0,
                      loader->options.augmentation.channels, mean, deviation);
}

/* Returns the batches of this rank that have a sample, of one epoch. */
static uint64_t own_steps(const FshLoader *loader)
{
    const LoaderOptions *options = &loader->options;
    const uint64_t samples = options->split->sample_count, total = options->batch * options->world_size,
                   before = options->rank * options->batch;
    if (options->training)
        return loader_step_count(loader->loader);
    return samples > before ? (samples - before + total - 1) / total : 0;
}

static uint32_t largest_edge(const LoaderOptions *options)
{
    uint32_t largest = options->epoch_size_count ? 0 : options->augmentation.size;
    for (size_t i = 0; i < options->epoch_size_count; i++)
        largest = options->epoch_sizes[i] > largest ? options->epoch_sizes[i] : largest;
    return largest;
}

static void fill_info(FshLoader *loader, bool whole, uint32_t edge)
{
    const LoaderOptions *options = &loader->options;
    const TrainingData *data = &loader->data;
    FshLoaderInfo *info = &loader->info;
    *info = (FshLoaderInfo){
        .samples = options->split->sample_count,
        .steps = own_steps(loader),
        .batch = options->batch,
        .ring = options->batches_ahead + 1,
        .image_bytes = whole ? 0 : loader->output_bytes,
        .row_width = mixing_is_on(&options->mixing) ? (uint64_t)data->class_count : options->row_width,
        .class_count = (uint64_t)data->class_count,
        .class_names = (const char *const *)data->class_names,
        .input_name = data->input_name,
        .target_name = data->target_name,
        .channels = options->augmentation.channels,
        .size = whole ? 0 : edge,
        .pairs = data->kind == FSH_KIND_PAIRS,
        .whole = whole,
        .workers = (uint32_t)options->workers_most,
        .element_bytes = (uint32_t)loader->format.element_bytes,
    };
    memcpy(info->mean, data->mean, sizeof info->mean);
    memcpy(info->deviation, data->standard_deviation, sizeof info->deviation);
}

static FshStatus open_loader(FshLoader *loader, const FshLoaderConfig *config, FshError *error)
{
    LoaderOptions *options = &loader->options;
    const bool whole = options->augmentation.mode == CROP_WHOLE;
    const uint32_t edge = largest_edge(options);
    make_format(loader, config);
    options->lends = loader->format.same && !whole;
    if (!loader->format.same && !whole) {
        loader->outputs = calloc(options->batches_ahead + 1, sizeof *loader->outputs);
        if (!loader->outputs)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
        options->filled = write_output;
        options->filled_context = loader;
    }
    FshStatus status = loader_new(&loader->loader, options, error);
    if (status)
        return status;
    loader->output_bytes =
        (size_t)edge * edge * loader->format.channels * loader->format.element_bytes * options->batch;
    fill_info(loader, whole, edge);
    return FSH_OK;
}

FshStatus fsh_loader_open(FshLoader **loader, const FshLoaderConfig *config, FshError *error)
{
    *loader = NULL;
    if (config->bytes != sizeof *config)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "the caller was made for another fshard than this one, " FSHARD_VERSION);
    FshLoader *made = calloc(1, sizeof *made);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    FshStatus status = loader_settings_read(&made->settings, config, error);
    if (!status)
        status = open_data(made, config, error);
    if (!status)
        status = make_plan(made, config, error);
    if (!status)
        status = check_format(made, config, error);
    if (!status)
        status = open_loader(made, config, error);
    if (status)
        fsh_loader_close(&made);
    *loader = made;
    return status;
}

void fsh_loader_close(FshLoader **loader)
{
    FshLoader *freed = *loader;
    if (!freed)
        return;
    loader_free(&freed->loader);
    training_data_close(&freed->data);
    loader_settings_free(&freed->settings);
    free(freed->sizes);
    free(freed->outputs);
    free(freed->whole[0]);
    free(freed->whole[1]);
    free(freed);
    *loader = NULL;
}

const FshLoaderInfo *fsh_loader_info(const FshLoader *loader)
{
    return &loader->info;
}

/* ---- batches ---- */

void fsh_loader_lend(FshLoader *loader, uint64_t slot, const FshLoaderMemory *memory)
{
    if (loader->outputs)
        loader->outputs[slot] = (Output){{memory->images, memory->target}};
    else
        loader_lend(loader->loader, (size_t)slot, memory->images, memory->target);
}

void fsh_loader_start(FshLoader *loader, uint64_t epoch, uint64_t step)
{
    const uint64_t steps = loader_step_count(loader->loader), number = epoch * steps + step;
    if (!loader->started || number != loader->next_number)
        loader_start(loader->loader, number, UINT64_MAX / 2 - number);
    loader->started = true;
    loader->next_number = number;
    loader->end_number = (epoch + 1) * steps;
}

/* Takes the memory of a batch from its slot, which gets other. */
static void exchange(FshLoader *loader, const Batch *made, const FshLoaderMemory *fresh,
                     FshLoaderBatch *batch)
{
    if (loader->outputs) {
        const Output *output = &loader->outputs[made->slot];
        batch->images = output->sides[0];
        batch->target = output->sides[1];
    } else {
        batch->images = (void *)made->pixels;
        batch->target = (void *)made->target;
    }
    fsh_loader_lend(loader, made->slot, fresh);
}

/* Writes a whole image as it is wanted to memory of the loader's. */
static FshStatus take_whole(FshLoader *loader, const Batch *made, FshLoaderBatch *batch, FshError *error)
{
    const uint8_t *sides[] = {made->pixels, made->target};
    const size_t pixels = (size_t)made->width * made->height,
                 bytes = pixels * loader->format.channels * loader->format.element_bytes;
    for (int side = 0; side < 2 && bytes > loader->whole_bytes; side++) {
        uint8_t *grown = realloc(loader->whole[side], bytes);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for an image of %u x %u", made->width,
                                 made->height);
        loader->whole[side] = grown;
    }
    loader->whole_bytes = bytes > loader->whole_bytes ? bytes : loader->whole_bytes;
    for (int side = 0; side < 2 && sides[side]; side++)
        batch_format_image(&loader->format, sides[side], pixels, loader->whole[side]);
    batch->images = loader->whole[0];
    batch->target = sides[1] ? loader->whole[1] : NULL;
    return FSH_OK;
}

/* Writes the row of targets of a place: its own, or the shares of its label and of that it is mixed with. */
static void write_row(const FshLoader *loader, const Batch *made, uint64_t place, float *row)
{
    const size_t width = (size_t)loader->info.row_width;
    if (made->targets) {
        memcpy(row, made->targets + place * width, width * sizeof *row);
        return;
    }
    memset(row, 0, width * sizeof *row);
    if (!made->labels ||
        !made->labels_mixed) /* without rows of targets labels are mixed, or there are no rows */
        return;
    row[made->labels[place]] += made->mix[place];
    row[made->labels_mixed[place]] += 1 - made->mix[place];
}

/* Writes what stands at the places that hold a sample, one after the other, and moves their images up to the
 * first; the places of padding and skipped samples are gone. */
static void take_places(const FshLoader *loader, const Batch *made, const FshLoaderMemory *fresh,
                        FshLoaderBatch *batch)
{
    const size_t bytes =
        (size_t)made->width * made->height * loader->format.channels * loader->format.element_bytes;
    uint8_t *const sides[] = {batch->images, batch->target};
    uint64_t count = 0;
    for (uint64_t place = 0; place < loader->info.batch; place++) {
        if (!(made->valid[place] > 0))
            continue;
        for (int side = 0; side < 2 && sides[side] && count < place; side++)
            memcpy(sides[side] + count * bytes, sides[side] + place * bytes, bytes);
        if (fresh->labels && made->labels)
            fresh->labels[count] = made->labels[place];
        if (fresh->rows && loader->info.row_width)
            write_row(loader, made, place, fresh->rows + count * loader->info.row_width);
        if (fresh->samples)
            fresh->samples[count] = made->samples[place];
        count++;
    }
    batch->count = count;
}

FshStatus fsh_loader_next(FshLoader *loader, const FshLoaderMemory *fresh, double seconds,
                          FshLoaderBatch *batch, FshError *error)
{
    const Batch *made = NULL;
    *batch = (FshLoaderBatch){.state = FSH_LOADER_END};
    do {
        if (loader->next_number >= loader->end_number)
            return FSH_OK;
        if (!loader_wait(loader->loader, seconds)) {
            batch->state = FSH_LOADER_WAIT;
            return FSH_OK;
        }
        loader->next_number++;
        FshStatus status = loader_next(loader->loader, &made, error);
        if (status)
            return status;
    } while (!made->valid_count); /* padding, or samples that were skipped */
    if (loader->info.whole) {
        FshStatus status = take_whole(loader, made, batch, error);
        if (status)
            return status;
    } else {
        exchange(loader, made, fresh, batch);
    }
    batch->state = FSH_LOADER_BATCH;
    batch->epoch = made->epoch;
    batch->step = made->step;
    batch->height = made->height;
    batch->width = made->width;
    take_places(loader, made, fresh, batch);
    return FSH_OK;
}

int fsh_loader_problem(FshLoader *loader, uint64_t number, char *message, size_t message_bytes)
{
    return loader_problem(loader->loader, number, message, message_bytes);
}

uint64_t fsh_loader_problem_count(FshLoader *loader)
{
    return loader_problem_count(loader->loader);
}
