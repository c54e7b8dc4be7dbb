/* make_photos.c - renders small data sets for ./run demo: blossoms in class folders, and landscapes with a
 * noisy copy of each. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/pool.h"
#include "common/program.h"
#include "common/progress.h"
#include "examples/scenes.h"
#include "examples/sensor_noise.h"
#include "imaging/encode.h"

typedef struct Settings {
    ProgramOptions program;
    int64_t count, edge_min, edge_max, seed;
    int set; /* an index of set_names */
} Settings;

enum { SET_BLOSSOMS, SET_LANDSCAPES, SET_NIGHT };
static const char *const set_names[] = {"blossoms", "landscapes", "night", NULL};

/* A set: its scenes, and whether each picture is a pair. */
typedef struct PictureSet {
    const Scene *scenes;
    int scene_count;
    bool pairs;
} PictureSet;

/* Buffers that a thread keeps from picture to picture. */
typedef struct Worker {
    Image image, noisy;
    ImageEncoder *encoder;
    Buffer file;
} Worker;

typedef struct Job {
    const Settings *settings;
    PictureSet set;
    const char *folder;
    Worker *workers;
    Progress progress;
} Job;

/* Draws a size between the bounds, with a uniform logarithm, in one of the shapes of cameras. */
static void draw_size(const Settings *settings, Random *random, uint32_t *width, uint32_t *height)
{
    static const double shapes[] = {4.0 / 3.0, 3.0 / 2.0, 16.0 / 9.0, 1.0, 3.0 / 4.0, 2.0 / 3.0};
    double low = (double)settings->edge_min, high = (double)settings->edge_max;
    double edge = low * pow(high / low, random_uniform_double(random));
    double shape = shapes[random_below(random, sizeof shapes / sizeof shapes[0])];
    *width = (uint32_t)lround(shape >= 1.0 ? edge * shape : edge);
    *height = (uint32_t)lround(shape >= 1.0 ? edge : edge / shape);
}

/* Encodes image as JPEG and writes it to FOLDER/name. */
static FshStatus save(Job *job, Worker *worker, const Image *image, int quality, const char *name,
                      FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, job->folder, name, error);
    if (!status)
        status = image_encode(worker->encoder, image,
                              &(ImageEncodeOptions){.format = IMAGE_JPEG,
                                                    .quality = quality,
                                                    .subsampling = job->set.pairs ? IMAGE_SUBSAMPLING_444
                                                                                  : IMAGE_SUBSAMPLING_420},
                              &worker->file, error);
    if (!status)
        status = file_write_atomic(path, worker->file.bytes, worker->file.length, true, false, error);
    if (!status)
        progress_add(&job->progress, 1, worker->file.length, 0);
    return status;
}

/* Writes both sides of a pair: clean/NAME, and noisy/NAME with a camera's noise at night. */
static FshStatus save_pair(Job *job, Worker *worker, const char *file, Random *random, FshError *error)
{
    const int quality = 97;
    char name[96];
    (void)snprintf(name, sizeof name, "clean/%s", file);
    FshStatus status = save(job, worker, &worker->image, quality, name, error);
    if (!status)
        status = sensor_noise(&worker->image, random, &worker->noisy, error);
    (void)snprintf(name, sizeof name, "noisy/%s", file);
    return status ? status : save(job, worker, &worker->noisy, quality, name, error);
}

static FshStatus make_one(uint64_t item, int thread, void *context, FshError *error)
{
    Job *job = context;
    Worker *worker = &job->workers[thread];
    const Settings *settings = job->settings;
    const PictureSet *set = &job->set;
    const Scene *scene = &set->scenes[item % (uint64_t)set->scene_count];
    const uint64_t number = item / (uint64_t)set->scene_count;
    const uint64_t seed = random_stream((uint64_t)settings->seed, item);

    Random random;
    random_start(&random, seed, 0);
    uint32_t width = 0, height = 0;
    draw_size(settings, &random, &width, &height);
    /* As in ImageNet, one picture in fifty is gray; never in pairs. */
    const bool gray = random_below(&random, 50) == 0 && !set->pairs;
    FshStatus status =
        scene_render(scene, seed, width, height, gray ? 1 : 3, !set->pairs, &worker->image, error);
    char file[64], name[96];
    (void)snprintf(file, sizeof file, "%s_%04llu.jpg", scene->name, (unsigned long long)number);
    (void)snprintf(name, sizeof name, "%s/%s", scene->name, file);
    if (status)
        return status;
    if (set->pairs)
        return save_pair(job, worker, file, &random, error);
    return save(job, worker, &worker->image, 85 + (int)random_below(&random, 11), name, error);
}

/* Makes the folders that the set's pictures go into. */
static FshStatus make_folders(const Job *job, FshError *error)
{
    FshStatus status = FSH_OK;
    const int count = job->set.pairs ? 2 : job->set.scene_count;
    for (int i = 0; i < count && !status; i++) {
        const char *name = job->set.pairs ? (i ? "noisy" : "clean") : job->set.scenes[i].name;
        char folder[PATH_MAX];
        status = file_join(folder, sizeof folder, job->folder, name, error);
        if (!status)
            status = file_make_folders(folder, error);
    }
    return status;
}

static PictureSet set_of(int set)
{
    if (set == SET_BLOSSOMS)
        return (PictureSet){blossoms, blossom_count, false};
    return (PictureSet){landscapes, landscape_count, set == SET_NIGHT};
}

static FshStatus run(const ProgramContext *context, bool *partial, FshError *error)
{
    (void)partial;
    const Settings *settings = context->settings;
    if (settings->edge_min > settings->edge_max)
        return fsh_error_set(error, FSH_ERR_USAGE, "--edge-min: %lld is more than --edge-max %lld",
                             (long long)settings->edge_min, (long long)settings->edge_max);
    const int jobs = cpu_jobs(settings->program.jobs);
    Job job = {.settings = settings, .set = set_of(settings->set), .folder = context->arguments->items[0]};
    const uint64_t total = (uint64_t)settings->count * (uint64_t)job.set.scene_count;
    if (settings->program.dry_run) {
        fprintf(stderr, "would render %llu %s of %d kinds into %s\n", (unsigned long long)total,
                job.set.pairs ? "pairs" : "pictures", job.set.scene_count, job.folder);
        return FSH_OK;
    }
    FshStatus status = FSH_OK;
    job.workers = calloc((size_t)jobs, sizeof *job.workers);
    if (!job.workers)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%d workers: out of memory", jobs);
    for (int i = 0; i < jobs && !status; i++)
        status = image_encoder_new(&job.workers[i].encoder, error);
    if (!status)
        status = make_folders(&job, error);
    if (!status) {
        progress_start(&job.progress, stderr, "rendering", "pictures", job.set.pairs ? 2 * total : total,
                       settings->program.quiet);
        status = pool_run(jobs, total, make_one, &job, error);
        progress_finish(&job.progress);
    }
    for (int i = 0; i < jobs; i++) {
        image_free(&job.workers[i].image);
        image_free(&job.workers[i].noisy);
        image_encoder_free(&job.workers[i].encoder);
        buffer_free(&job.workers[i].file);
    }
    free(job.workers);
    return status;
}

int main(int argc, char **argv)
{
    Settings settings = {.count = 100, .edge_min = 180, .edge_max = 480, .seed = 1, .set = SET_BLOSSOMS};
    const Option options[] = {
        {.name = "set",
         .kind = OPTION_CHOICE,
         .value = &settings.set,
         .choices = set_names,
         .argument = "SET",
         .help = "six kinds of flowers, six kinds of landscapes, or landscapes as pairs, noisy and clean",
         .group = "Pictures"},
        {.name = "count",
         .kind = OPTION_INTEGER,
         .value = &settings.count,
         .argument = "N",
         .help = "pictures, or pairs, of each kind",
         .minimum = 1,
         .maximum = 1e6},
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
        .summary =
            "Renders pictures that look a little like photographs, as JPEG files of varied size in one "
            "folder\n"
            "for each class, or for each side of a pair. The same options give the same files.",
        .usage = "[OPTIONS] DST",
        .options = options,
        .examples = "  make-photos --count 100 photos/\n"
                    "  make-photos --set night --count 20 pairs/\n",
        .arguments_min = 1,
        .arguments_max = 1,
    };
    return program_main(argc, argv, &table, &settings, NULL, run);
}
