/* loader_speed.c - times the trainer's loader alone, and libjpeg-turbo as its yardstick.
 *
 *   loader_speed DATASET SIZE rrc|pad|center|random WORKERS BATCH SECONDS [cold]
 *
 * The two take turns, so that the machine is the same for both: the loader (trainer/data/loader_bench.h) and,
 * for JPEGs, libjpeg-turbo alone on as many threads. libjpeg-turbo decodes the split's images into memory:
 * whole at full size, and whole at the scale that each crop allows. Progress goes to stderr, one line of JSON
 * to stdout. Training split, three rounds, the best of each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/jpeg_guard.h"
#include "trainer/data/loader_bench.h"
#include "trainer/data/training_data.h"

enum { ROUNDS = 3 };

static _Noreturn void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "loader_speed: %s: %s\n", what, why);
    exit(1);
}

static void print_line(void *context, const char *line)
{
    (void)context;
    (void)fprintf(stderr, "  %s\n", line);
}

/* ---- libjpeg-turbo alone ---- */

/* The share of one thread: samples first, first + step, … for some seconds. */
typedef struct FloorThread {
    pthread_t thread;
    JpegGuard guard;
    struct jpeg_decompress_struct decompress;
    const LoaderOptions *options;
    uint64_t first, step;
    bool scaled;
    double seconds, used, cpu_seconds;
    uint64_t count;
    Image image;
    FshSample sample; /* the current one */
    unsigned eighths;
    FshError error;
} FloorThread;

static void step_create(void *context)
{
    FloorThread *own = context;
    jpeg_create_decompress(&own->decompress);
}

static void step_decode(void *context)
{
    FloorThread *own = context;
    struct jpeg_decompress_struct *cinfo = &own->decompress;
    const FshField *field = &own->sample.fields[0];
    jpeg_mem_src(cinfo, field->data, field->bytes);
    (void)jpeg_read_header(cinfo, TRUE);
    cinfo->out_color_space = JCS_RGB;
    cinfo->scale_num = own->eighths;
    cinfo->scale_denom = 8;
    (void)jpeg_start_decompress(cinfo);
    if (image_reserve(&own->image, cinfo->output_width, cinfo->output_height, 3, own->guard.error))
        jpeg_guard_fail(&own->guard, FSH_ERR_MEMORY);
    size_t row_bytes = (size_t)cinfo->output_width * 3;
    while (cinfo->output_scanline < cinfo->output_height) {
        JSAMPROW row = own->image.pixels + cinfo->output_scanline * row_bytes;
        (void)jpeg_read_scanlines(cinfo, &row, 1);
    }
    (void)jpeg_finish_decompress(cinfo);
}

/* Returns the scale, in eighths, that the loader chooses for this sample's crop in epoch 0. */
static unsigned scale_of(const FloorThread *own)
{
    const Augmentation *augmentation = &own->options->augmentation;
    const FshField *field = &own->sample.fields[0];
    Random random;
    CropPlan plan;
    uint32_t least_width, least_height;
    random_start(&random, own->options->seed, random_stream(0, own->sample.index));
    augment_plan(augmentation, field->width, field->height, &random, &plan);
    augment_least_size(augmentation, &plan, field->width, field->height, &least_width, &least_height);
    for (unsigned eighths = 1; eighths < 8 && least_width && least_height; eighths *= 2)
        if ((uint64_t)field->width * eighths / 8 >= least_width &&
            (uint64_t)field->height * eighths / 8 >= least_height)
            return eighths;
    return 8;
}

static void *floor_main(void *argument)
{
    FloorThread *own = argument;
    const FshSplit *split = own->options->split;
    jpeg_guard_init(&own->guard);
    own->decompress.err = &own->guard.manager;
    if (jpeg_guard(&own->guard, step_create, own, &own->error))
        return NULL;
    double begin = progress_now_seconds(), cpu_begin = progress_thread_seconds();
    for (uint64_t i = own->first; own->used < own->seconds; i += own->step) {
        if (fsh_sample_get(split, i % split->sample_count, &own->sample, &own->error))
            break;
        own->eighths = own->scaled ? scale_of(own) : 8;
        jpeg_guard_reset(&own->guard, false);
        if (jpeg_guard(&own->guard, step_decode, own, &own->error))
            jpeg_abort_decompress(&own->decompress); /* CMYK and the like, which the loader decodes by
                                                      * libvips */
        own->count++;
        own->used = progress_now_seconds() - begin;
    }
    own->cpu_seconds = progress_thread_seconds() - cpu_begin;
    jpeg_destroy_decompress(&own->decompress);
    image_free(&own->image);
    return NULL;
}

/* The best rates so far: per second, and per second of processor time. */
typedef struct Rate {
    double per_second, per_cpu_second;
} Rate;

static void keep_best(Rate *best, double count, double seconds, double cpu_seconds)
{
    double per_second = seconds > 0 ? count / seconds : 0,
           per_cpu = cpu_seconds > 0 ? count / cpu_seconds : 0;
    best->per_second = per_second > best->per_second ? per_second : best->per_second;
    best->per_cpu_second = per_cpu > best->per_cpu_second ? per_cpu : best->per_cpu_second;
}

/* Measures libjpeg on all threads together and keeps the best rate. */
static void measure_libjpeg(const LoaderOptions *options, double seconds, bool scaled, Rate *best)
{
    double count = 0, cpu_seconds = 0, longest = 0;
    uint64_t workers = (uint64_t)options->workers;
    FloorThread *threads = calloc(workers, sizeof *threads);
    if (!threads)
        die("libjpeg", "out of memory");
    for (uint64_t i = 0; i < workers; i++) {
        threads[i] = (FloorThread){
            .options = options, .first = i, .step = workers, .scaled = scaled, .seconds = seconds};
        if (pthread_create(&threads[i].thread, NULL, floor_main, &threads[i]) != 0)
            die("libjpeg", "cannot start a thread");
    }
    for (uint64_t i = 0; i < workers; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        count += (double)threads[i].count;
        cpu_seconds += threads[i].cpu_seconds;
        longest = threads[i].used > longest ? threads[i].used : longest;
    }
    free(threads);
    keep_best(best, count, longest, cpu_seconds);
}

/* ---- main ---- */

static Augmentation make_view(const char *mode, uint32_t size, uint32_t channels)
{
    Augmentation view = {.size = size,
                         .channels = channels,
                         .resize = size,
                         .padding = size / 8,
                         .scale_min = 0.08,
                         .scale_max = 1,
                         .ratio_min = 3.0 / 4,
                         .ratio_max = 4.0 / 3,
                         .flip_probability = 0.5};
    view.mode = CROP_RANDOM;
    for (int i = 0; i < CROP_MODE_COUNT; i++)
        if (strcmp(crop_mode_names[i], mode) == 0)
            view.mode = (CropMode)i;
    if (view.mode == CROP_RANDOM && strcmp(mode, "random") != 0)
        die(mode, "should be one of rrc, pad, center, random");
    return view;
}

static void print_rates(const char *name, const Rate *rate, bool last)
{
    (void)printf("%s\"%s_per_s\": %.0f, \"%s_per_cpu_s\": %.0f%s", strcmp(name, "images") == 0 ? "{" : "",
                 name, rate->per_second, name, rate->per_cpu_second, last ? "}\n" : ", ");
}

int main(int argument_count, char **arguments)
{
    if (argument_count < 7) {
        (void)fprintf(
            stderr, "usage: loader_speed DATASET SIZE rrc|pad|center|random WORKERS BATCH SECONDS [cold]\n");
        return 2;
    }
    TrainingData data;
    FshError error = {0};
    LoaderBenchReport report = {0};
    double seconds = strtod(arguments[6], NULL);
    Rate loader = {0}, process = {0}, whole = {0}, scaled = {0}, pixels = {0}, copies = {0};
    bool cold = argument_count > 7 && strcmp(arguments[7], "cold") == 0;
    if (training_data_open(&data, &(TrainingDataSource){.path = arguments[1], .train_split = "train"},
                           &error))
        die("open", error.message);
    LoaderBenchOptions options = {
        .loader = {.split = data.train,
                   .kind = data.kind,
                   .target_field = data.target_field,
                   .augmentation =
                       make_view(arguments[3], (uint32_t)strtoul(arguments[2], NULL, 10), data.channels),
                   .batch = strtoul(arguments[5], NULL, 10),
                   .world_size = 1,
                   .seed = 1,
                   .training = true,
                   .workers = (int)strtol(arguments[4], NULL, 10),
                   .batches_ahead = 3},
        .seconds = seconds,
        .drop_caches = cold,
    };
    FshSample sample;
    bool jpeg = fsh_sample_get(data.train, 0, &sample, &error) == FSH_OK &&
                sample.fields[0].codec == FSH_CODEC_JPEG &&
                sample.fields[0].compression == FSH_COMPRESSION_NONE;
    for (int round = 0; round < ROUNDS; round++) {
        if (loader_bench(&options, &report, &error))
            die(arguments[1], error.message);
        loader_bench_tell(&report, print_line, NULL);
        const LoaderStatistics *work = &report.warm.work;
        keep_best(&loader, (double)report.warm.samples, report.warm.seconds, work->cpu_seconds);
        keep_best(&process, (double)report.warm.samples, report.warm.seconds,
                  report.warm.process_cpu_seconds);
        keep_best(&pixels, (double)work->samples.pixel_bytes / 1e6, report.warm.seconds, work->cpu_seconds);
        keep_best(&copies, report.memory_bytes_per_second / 1e6, 1,
                  report.memory_bytes_per_second / report.memory_bytes_per_cpu_second);
        if (jpeg) {
            measure_libjpeg(&options.loader, seconds, false, &whole);
            measure_libjpeg(&options.loader, seconds, true, &scaled);
        }
        options.drop_caches = false;
    }
    print_rates("images", &loader, false);
    print_rates("process_images", &process, false);
    print_rates("libjpeg_whole", &whole, false);
    print_rates("libjpeg_scaled", &scaled, false);
    print_rates("pixels_mb", &pixels, false);
    print_rates("memcpy_mb", &copies, true);
    training_data_close(&data);
    return 0;
}
