/* write_network FOLDER EDGE CHANNELS MODEL [OPTION=VALUE…]: writes weights of a network, drawn so that no
 * layer is idle, and what the CPU makes of made-up pixels in two batches, for programs that shall make the
 * same:
 *
 *   weights.safetensors   as ftrain writes them
 *   0.pixels, 1.pixels    uint8 [batch, height, width, channels]
 *   0.output, 1.output    float32 [batch, classes], or [batch, height, width, channels or classes]
 *
 * and prints "task batch height width batch height width". Networks that answer for pixels get two sizes,
 * which are no multiples of theirs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/random.h"
#include "tests/trainer/model_value.h"
#include "trainer/backend/backend.h"
#include "trainer/checkpoint/weights.h"

enum { BATCHES = 2, CLASSES = 7, SEED = 5 };

static const char *const class_names[CLASSES] = {"ash", "birch", "cedar", "date", "elm", "fir", "gum"};

/* Ends the program with the message of a failure. */
static void check(FshStatus status, const FshError *error)
{
    if (status) {
        (void)fprintf(stderr, "write_network: %s\n", error->message);
        exit(1);
    }
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (!memory)
        exit(1);
    return memory;
}

static void set_option(ModelSpec *spec, char *text)
{
    char *value = strchr(text, '=');
    FshError error = {0};
    if (!value)
        check(fsh_error_set(&error, FSH_ERR_USAGE, "'%s' is no OPTION=VALUE", text), &error);
    *value++ = '\0';
    ModelValue *place = model_value(&spec->options, text);
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)) && !model_option_is(option, text); i++) {
    }
    if (!place || !option)
        check(fsh_error_set(&error, FSH_ERR_USAGE, "no network has the option '%s'", text), &error);
    else if (option->row.kind == OPTION_TEXT)
        place->text = value;
    else if (option->row.kind == OPTION_REAL)
        place->real = strtod(value, NULL);
    else
        place->integer = strtoll(value, NULL, 10);
}

/* Draws the weights anew that begin as one value everywhere: scales as 0.9 to 1.1, other numbers as -0.1 to
 * 0.1. */
static void draw(State *state, const Graph *graph)
{
    Random random;
    FshError error = {0};
    random_start(&random, SEED, 0);
    check(state_initialize(state, SEED, &error), &error);
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const Initializer *first = &tensor->initializer;
        const size_t count = (size_t)tensor_count(tensor);
        if (!tensor_is_weight(tensor) ||
            (first->kind != INIT_ZEROS && first->kind != INIT_ONES && first->kind != INIT_CONSTANT))
            continue;
        float *values = allocate(count * sizeof *values);
        for (size_t k = 0; k < count; k++)
            values[k] = (first->kind == INIT_ONES ? 1.0F : 0.0F) +
                        0.1F * ((float)random_below(&random, 2001) / 1000.0F - 1.0F);
        check(state_write(state, tensor->name, values, count, &error), &error);
        free(values);
    }
}

static void write(const char *folder, int batch, const char *what, const void *bytes, size_t length)
{
    char path[4096];
    FshError error = {0};
    (void)snprintf(path, sizeof path, "%s/%d.%s", folder, batch, what);
    check(file_write_atomic(path, bytes, length, true, false, &error), &error);
}

/* Runs the graph on made-up pixels, and writes both. */
static void run(State *state, const Graph *graph, const char *folder, int number)
{
    const TensorId image = graph_find(graph, "image"), logits = graph_find(graph, "logits"),
                   output = logits == TENSOR_NONE ? graph_find(graph, "restored") : logits;
    const size_t pixel_count = (size_t)tensor_count(graph_tensor(graph, image)),
                 bytes = (size_t)tensor_count(graph_tensor(graph, output)) * sizeof(float);
    uint8_t *pixels = allocate(pixel_count);
    float *values = allocate(bytes);
    Program *program = NULL;
    Random random;
    FshError error = {0};
    random_start(&random, SEED, (uint64_t)number + 1);
    for (size_t i = 0; i < pixel_count; i++)
        pixels[i] = (uint8_t)random_below(&random, 256);
    check(program_new(&program, state, graph, &error), &error);
    check(program_write(program, image, pixels, pixel_count, &error), &error);
    check(program_run(program, &error), &error);
    check(program_read(program, output, values, bytes, &error), &error);
    write(folder, number, "pixels", pixels, pixel_count);
    write(folder, number, "output", values, bytes);
    program_free(&program);
    free(values);
    free(pixels);
}

int main(int argc, char **argv)
{
    const Model *model = argc > 4 ? model_find(argv[4]) : NULL;
    if (!model) {
        (void)fprintf(stderr, "usage: write_network FOLDER EDGE CHANNELS MODEL [OPTION=VALUE...]\n");
        return 2;
    }
    static const char *const tasks[] = {[TASK_CLASSIFICATION] = "classification",
                                        [TASK_RESTORATION] = "restoration",
                                        [TASK_SEGMENTATION] = "segmentation"};
    const bool restores = model->task == TASK_RESTORATION, pixels = model->task != TASK_CLASSIFICATION;
    const int64_t edge = strtoll(argv[2], NULL, 10);
    ModelSpec spec = {.channels = strtoll(argv[3], NULL, 10), .classes = restores ? 0 : CLASSES};
    for (int i = 5; i < argc; i++)
        set_option(&spec, argv[i]);
    ModelRecipe recipe = {.mean = {0.485, 0.456, 0.406},
                          .deviation = {0.229, 0.224, 0.225},
                          .loss = restores ? LOSS_L1 : LOSS_CROSS_ENTROPY,
                          .keeps_logits = true};
    for (int c = 0; restores && c < 4; c++) {
        recipe.mean[c] = 0;
        recipe.deviation[c] = 1;
    }
    const ModelSpec sizes[BATCHES] = {
        {.batch = 1, .height = pixels ? edge + 5 : edge, .width = pixels ? edge - 9 : edge},
        {.batch = 3, .height = pixels ? edge - 1 : edge, .width = pixels ? 2 * edge : edge}};
    char path[4096];
    Graph *graphs[BATCHES] = {NULL};
    Backend *backend = NULL;
    State *state = NULL;
    FshError error = {0};
    check(backend_open(&backend, "cpu", &(BackendOptions){.threads = 1}, &error), &error);
    (void)printf("%s", tasks[model->task]);
    for (int i = 0; i < BATCHES; i++) {
        spec.batch = sizes[i].batch;
        spec.height = sizes[i].height;
        spec.width = sizes[i].width;
        check(model_graph(model, &spec, &recipe, &graphs[i], &error), &error);
        if (!state) {
            check(state_new(&state, backend, graphs[i], &error), &error);
            draw(state, graphs[i]);
        }
        run(state, graphs[i], argv[1], i);
        (void)printf(" %" PRId64 " %" PRId64 " %" PRId64, spec.batch, spec.height, spec.width);
    }
    (void)putchar('\n');
    WeightsInfo info = {.model = model->name,
                        .spec = &spec,
                        .crop = pixels ? 0 : (uint32_t)edge,
                        .resize = pixels ? 0 : (uint32_t)edge + 8,
                        .interpolation = pixels ? NULL : "bicubic",
                        .dataset_id = "made up",
                        .channels = (uint32_t)spec.channels,
                        .class_names = class_names,
                        .class_count = restores ? 0 : CLASSES};
    memcpy(info.mean, recipe.mean, sizeof info.mean);
    memcpy(info.deviation, recipe.deviation, sizeof info.deviation);
    (void)snprintf(path, sizeof path, "%s/weights.safetensors", argv[1]);
    check(weights_save(path, state, graphs[0], &info, &error), &error);
    state_free(&state);
    for (int i = 0; i < BATCHES; i++)
        graph_free(&graphs[i]);
    backend_close(&backend);
    return 0;
}
