/* What operations of --auto-augment take on the GPU: a batch of 256 crops of 224 pixels, every image with the
 * same operation, then as policies draw them. No test: scripts/device.sh time runs it. Each line: time of the
 * batch, of an image; the floor, which is to read and write all pixels once for each operation at 4.29 TB/s
 * (a copy's speed on an H200); the same on one core, by the loader's code, and how many cores the GPU stands
 * for. usage: cuda_operation_time */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_pixels.h"
#include "trainer/data/auto_augment.h"

static const double copy_bytes_per_second = 4.29e12;
enum {
    COUNT = 256,
    EDGE = 224,
    CHANNELS = 3,
    IMAGE_BYTES = EDGE * EDGE * CHANNELS,
    CALLS = 10,
    CPU_IMAGES = 24
};

typedef struct Bench {
    uint8_t *pixels, *changed, *scratch; /* of the host: one picture for each of CPU_IMAGES, then all again */
    void *source, *target, *beside, *recipes, *operations; /* of the device */
    PixelRecipe own_recipes[COUNT];
    PixelOperations own_operations[COUNT];
    ImageSteps steps[COUNT];
    cudaStream_t stream;
    cudaEvent_t before, after;
} Bench;

/* Fills images with what photographs have: even areas, slopes and noise. */
static void draw(uint8_t *pixels)
{
    uint32_t random = 1;
    for (uint32_t i = 0; i < COUNT * IMAGE_BYTES; i++) {
        const uint32_t x = i / CHANNELS % EDGE, y = i / CHANNELS / EDGE % EDGE;
        random = random * 1664525U + 1013904223U;
        pixels[i] = (uint8_t)((x / 56 * 40 + y / 2 + i % CHANNELS * 9 + (random >> 28)) & 255);
    }
}

static Bench *open_bench(void)
{
    const size_t bytes = (size_t)COUNT * IMAGE_BYTES;
    Bench *bench = calloc(1, sizeof *bench);
    if (!bench || !(bench->pixels = malloc(bytes)) || !(bench->changed = malloc(IMAGE_BYTES)) ||
        !(bench->scratch = malloc(IMAGE_BYTES)))
        exit(1);
    draw(bench->pixels);
    CHECK(cudaStreamCreate(&bench->stream));
    CHECK(cudaEventCreate(&bench->before));
    CHECK(cudaEventCreate(&bench->after));
    CHECK(cudaMalloc(&bench->source, bytes));
    CHECK(cudaMalloc(&bench->target, bytes));
    CHECK(cudaMalloc(&bench->beside, pixels_operation_images(COUNT) * IMAGE_BYTES));
    CHECK(cudaMalloc(&bench->recipes, sizeof bench->own_recipes));
    CHECK(cudaMalloc(&bench->operations, sizeof bench->own_operations));
    CHECK(cudaMemcpy(bench->source, bench->pixels, bytes, cudaMemcpyHostToDevice));
    return bench;
}

/* Returns the milliseconds of the batch: the least of CALLS, after one that is not counted. */
static double time_device(Bench *bench, bool bicubic)
{
    const PixelJob job = {.target = bench->target,
                          .recipes = bench->recipes,
                          .operations = bench->operations,
                          .scratch = bench->beside,
                          .scratch_images = pixels_operation_images(COUNT),
                          .count = COUNT,
                          .width = EDGE,
                          .height = EDGE,
                          .channels = CHANNELS};
    float least = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        bench->own_recipes[i].filter = bicubic ? RESAMPLE_BICUBIC : RESAMPLE_BILINEAR;
        bench->own_operations[i].count = bench->steps[i].count;
        for (unsigned s = 0; s < bench->steps[i].count; s++)
            image_operation_plan(&bench->steps[i].steps[s], EDGE, EDGE, &bench->own_operations[i].steps[s]);
    }
    CHECK(cudaMemcpy(bench->recipes, bench->own_recipes, sizeof bench->own_recipes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(bench->operations, bench->own_operations, sizeof bench->own_operations,
                     cudaMemcpyHostToDevice));
    for (int call = 0; call <= CALLS; call++) {
        float milliseconds = 0;
        CHECK(cudaMemcpyAsync(bench->target, bench->source, (size_t)COUNT * IMAGE_BYTES,
                              cudaMemcpyDeviceToDevice, bench->stream));
        CHECK(cudaEventRecord(bench->before, bench->stream));
        CHECK(pixels_operate(&job, bench->stream));
        CHECK(cudaEventRecord(bench->after, bench->stream));
        CHECK(cudaStreamSynchronize(bench->stream));
        CHECK(cudaEventElapsedTime(&milliseconds, bench->before, bench->after));
        if (call == 1 || (call > 1 && milliseconds < least))
            least = milliseconds;
    }
    return (double)least;
}

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Returns the microseconds of one core for an image: the least of three passes. */
static double time_core(const Bench *bench, bool bicubic)
{
    double least = 0;
    for (int pass = 0; pass < 3; pass++) {
        double sum = 0;
        for (unsigned i = 0; i < CPU_IMAGES; i++) {
            const ImageCanvas canvas = {.pixels = bench->changed,
                                        .scratch = bench->scratch,
                                        .width = EDGE,
                                        .height = EDGE,
                                        .channels = CHANNELS,
                                        .bicubic = bicubic};
            memcpy(bench->changed, bench->pixels + (size_t)i * IMAGE_BYTES, IMAGE_BYTES);
            const double start = seconds();
            auto_augment_apply(&bench->steps[i], &canvas);
            sum += seconds() - start;
        }
        least = pass == 0 || sum < least ? sum : least;
    }
    return least / CPU_IMAGES * 1e6;
}

static void report(Bench *bench, const char *name, bool bicubic)
{
    unsigned step_count = 0;
    for (unsigned i = 0; i < COUNT; i++)
        step_count += bench->steps[i].count;
    const double device = time_device(bench, bicubic), core = time_core(bench, bicubic),
                 floor = 2.0 * step_count * IMAGE_BYTES / copy_bytes_per_second * 1e3;
    printf("%-22s %-9s %8.3f ms %8.3f us/image   floor %6.3f ms, %4.1f %%   one core %8.1f us, %6.0f cores\n",
           name, bicubic ? "bicubic" : "", device, device / COUNT * 1e3, floor, floor / device * 100, core,
           core / (device / COUNT * 1e3));
}

static void report_operation(Bench *bench, ImageOperation operation, double argument, bool bicubic)
{
    for (unsigned i = 0; i < COUNT; i++)
        bench->steps[i] = (ImageSteps){.count = 1, .steps = {{operation, argument}}};
    report(bench, image_operation_names[operation], bicubic);
}

static void report_policy(Bench *bench, const char *name, bool bicubic)
{
    AutoAugment policy = auto_augment_default();
    FshError error = {0};
    if (auto_augment_parse(name, &policy, &error))
        exit(1);
    for (unsigned i = 0; i < COUNT; i++) {
        Random random;
        random_start(&random, 1, i);
        auto_augment_draw(&policy, EDGE, EDGE, &random, &bench->steps[i]);
    }
    report(bench, name, bicubic);
}

int main(void)
{
    static const double arguments[OPERATION_COUNT] = {
        [OPERATION_ROTATE] = 17,       [OPERATION_POSTERIZE] = 4,     [OPERATION_SOLARIZE] = 128,
        [OPERATION_SOLARIZE_ADD] = 55, [OPERATION_COLOUR] = 0.7,      [OPERATION_CONTRAST] = 0.7,
        [OPERATION_BRIGHTNESS] = 0.7,  [OPERATION_SHARPNESS] = 0.7,   [OPERATION_SHEAR_X] = 0.2,
        [OPERATION_SHEAR_Y] = 0.2,     [OPERATION_TRANSLATE_X] = 7.5, [OPERATION_TRANSLATE_Y] = 7.5,
        [OPERATION_BLUR] = 1.3};
    static const char *const policies[] = {"rand-m9-mstd0.5-inc1", "ra", "ta_wide", "imagenet", "3a"};
    Bench *bench = open_bench();
    for (int i = 0; i < OPERATION_COUNT; i++)
        report_operation(bench, (ImageOperation)i, arguments[i], false);
    report_operation(bench, OPERATION_ROTATE, arguments[OPERATION_ROTATE], true);
    report_operation(bench, OPERATION_SHEAR_X, arguments[OPERATION_SHEAR_X], true);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int bicubic = 0; bicubic < 2; bicubic++)
            report_policy(bench, policies[i], bicubic);
    return 0; /* the system takes back what is left */
}
