/* make_photos.c - a small data set of rendered landscapes in class folders, for ./run demo and for the tests.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/pool.h"
#include "common/program.h"
#include "common/progress.h"
#include "examples/scenes.h"
#include "imaging/encode.h"

typedef struct Settings {
    ProgramOptions program;
    int64_t count, edge_min, edge_max, seed;
} Settings;

/* What a thread keeps from picture to picture. */
typedef struct Worker {
    Image image;
    ImageEncoder *encoder;
    Buffer file;
} Worker;

typedef struct Job {
    const Settings *settings;
    const char *folder;
    Worker *workers;
    Progress progress;
} Job;

/* Edges between the bounds, evenly in the logarithm, in one of the shapes cameras make. */
static void draw_size(const Settings *settings, Random *random, uint32_t *width, uint32_t *height)
{
    static const double shapes[] = {4.0 / 3.0, 3.0 / 2.0, 16.0 / 9.0, 1.0, 3.0 / 4.0, 2.0 / 3.0};
    double low = (double)settings->edge_min, high = (double)settings->edge_max;
    double edge = low * pow(high / low, random_uniform_double(random));
    double shape = shapes[random_below(random, sizeof shapes / sizeof shapes[0])];
    *width = (uint32_t)lround(shape >= 1.0 ? edge * shape : edge);
    *height = (uint32_t)lround(shape >= 1.0 ? edge : edge / shape);
}

static FshStatus make_one(uint64_t item, int thread, void *context, FshError *error)
{
    Job *job = context;
    Worker *worker = &job->workers[thread];
    const Settings *settings = job->settings;
    const Scene *scene = &scenes[item % (uint64_t)scene_count];
    const uint64_t number = item / (uint64_t)scene_count;
    const uint64_t seed = random_stream((uint64_t)settings->seed, item);

    Random random;
    random_start(&random, seed, 0);
    uint32_t width = 0, height = 0;
    draw_size(settings, &random, &width, &height);
    /* As in ImageNet, one picture in fifty is gray. */
    const uint32_t channels = random_below(&random, 50) == 0 ? 1 : 3;

    char path[PATH_MAX], name[64];
    (void)snprintf(name, sizeof name, "%s/%s_%04llu.jpg", scene->name, scene->name,
                   (unsigned long long)number);
    FshStatus status = file_join(path, sizeof path, job->folder, name, error);
    if (!status)
        status = scene_render(scene, seed, width, height, channels, &worker->image, error);
    if (!status)
        status = image_encode(worker->encoder, &worker->image,
                              &(ImageEncodeOptions){.format = IMAGE_JPEG,
                                                    .quality = 85 + (int)random_below(&random, 11),
                                                    .subsampling = IMAGE_SUBSAMPLING_420},
                              &worker->file, error);
    if (!status)
        status = file_write_atomic(path, worker->file.bytes, worker->file.length, true, false, error);
    if (!status)
        progress_add(&job->progress, 1, worker->file.length, 0);
    return status;
}

static FshStatus run(const ProgramContext *context, bool *partial, FshError *error)
{
    (void)partial;
    const Settings *settings = context->settings;
    if (settings->edge_min > settings->edge_max)
        return fsh_error_set(error, FSH_ERR_USAGE, "--edge-min: %lld is more than --edge-max %lld",
                             (long long)settings->edge_min, (long long)settings->edge_max);
    const int jobs = cpu_jobs(settings->program.jobs);
    const uint64_t total = (uint64_t)settings->count * (uint64_t)scene_count;
    Job job = {.settings = settings, .folder = context->arguments->items[0]};
    if (settings->program.dry_run) {
        fprintf(stderr, "would render %llu pictures in %d classes into %s\n", (unsigned long long)total,
                scene_count, job.folder);
        return FSH_OK;
    }
    FshStatus status = FSH_OK;
    job.workers = calloc((size_t)jobs, sizeof *job.workers);
    if (!job.workers)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%d workers: out of memory", jobs);
    for (int i = 0; i < jobs && !status; i++)
        status = image_encoder_new(&job.workers[i].encoder, error);
    for (int i = 0; i < scene_count && !status; i++) {
        char folder[PATH_MAX];
        status = file_join(folder, sizeof folder, job.folder, scenes[i].name, error);
        if (!status)
            status = file_make_folders(folder, error);
    }
    if (!status) {
        progress_start(&job.progress, stderr, "rendering", "pictures", total, settings->program.quiet);
        status = pool_run(jobs, total, make_one, &job, error);
        progress_finish(&job.progress);
    }
    for (int i = 0; i < jobs; i++) {
        image_free(&job.workers[i].image);
        image_encoder_free(&job.workers[i].encoder);
        buffer_free(&job.workers[i].file);
    }
    free(job.workers);
    return status;
}

int main(int argc, char **argv)
{
    Settings settings = {.count = 100, .edge_min = 180, .edge_max = 480, .seed = 1};
    const Option options[] = {
        {.name = "count",
         .kind = OPTION_INTEGER,
         .value = &settings.count,
         .argument = "N",
         .help = "pictures in each class",
         .minimum = 1,
         .maximum = 1e6,
         .group = "Pictures"},
        {.name = "edge-min",
         .kind = OPTION_INTEGER,
         .value = &settings.edge_min,
         .argument = "N",
         .help = "shortest short edge",
         .minimum = 1,
         .maximum = 16384},
        {.name = "edge-max",
         .kind = OPTION_INTEGER,
         .value = &settings.edge_max,
         .argument = "N",
         .help = "longest short edge",
         .minimum = 1,
         .maximum = 16384},
        {.name = "seed",
         .kind = OPTION_INTEGER,
         .value = &settings.seed,
         .argument = "N",
         .help = "another seed, other pictures",
         .maximum = 4294967295.0},
        PROGRAM_OPTIONS(&settings.program),
        {0},
    };
    const OptionTable table = {
        .program = "make-photos",
        .summary = "Renders landscapes that look a little like photographs, as JPEG files of varied size in "
                   "one folder\n"
                   "for each class. The same options give the same files.",
        .usage = "[OPTIONS] DST",
        .options = options,
        .examples = "  make-photos --count 100 photos/\n",
        .arguments_min = 1,
        .arguments_max = 1,
    };
    return program_main(argc, argv, &table, &settings, NULL, run);
}
