/* What each network becomes on a device: the list of its steps, held against the recorded one, so that a
 * change that was meant to change nothing is seen to change nothing.
 *
 * usage: lowered_plans_test cpu|cuda [accept]     accept, or FSHARD_ACCEPT=1: writes what it finds in place
 * of comparing
 *
 * Recorded: $FSHARD_SOURCE/tests/trainer/plans/DEVICE.txt. What was found lies in
 * $FSHARD_BIN/../tests/lowered_plans-DEVICE.txt after a failure. An intended change is one command:
 *   FSHARD_ACCEPT=1 ctest -R lowered_plans
 * On a lent machine with a GPU, to bring the file back in $OUT:
 *   FSHARD_ACCEPT=1 FSHARD_SOURCE=$OUT build/tests/lowered_plans_test cuda
 *
 * The file has a section for each network, type and kind of program, and a line for each step:
 *   == resnet18 bf16 train 8x64x64x3: weights 1 copies 2 gradients 3 activations 4 inputs 5
 *   f layer1.0.conv1 conv2d+relu bf16[8,16,16,64] [64,64,3,3] - > bf16[8,16,16,64] | onednn | 410000
 * f, b, u: forward, backward, update. Then the layer, the operation (+relu: its activation is part of it),
 * its inputs and outputs (no type: f32; -: an optional one that is not there; *3: three such), what computes
 * it (program_node_engine), and the bytes that it moves at least, as --profile counts them. The first line
 * has the bytes that the program takes. Steps that repeat, but for numbers in the layers' names, are written
 * once.
 *
 * Nothing in it depends on the machine. On the CPU what computes a step follows from shapes and types alone,
 * not from the instruction set or from the number of threads, which choose among oneDNN's implementations and
 * its scratch memory; neither is in the file (the test runs under several instruction sets). A CPU without
 * bf16 leaves those sections unchecked. On a GPU ways are not timed here (BackendOptions.benchmark), since
 * the fastest differs from run to run. Whether a norm takes the sums of a convolution depends on the GPU's
 * size, what computes attention on its generation: the file is an H200's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/model_value.h"
#include "tests/trainer/network_support.h"
#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

enum { LINE_BYTES = 768, LINES_MAX = 4096, PERIOD_MAX = 80, REPEATED_LEAST = 4, HEADING_BYTES = 128 };

typedef struct Device {
    const char *name;
    const DataType *types; /* ends with DATA_U8 */
} Device;

static const Device devices[] = {
    {"cpu", (const DataType[]){DATA_F32, DATA_BF16, DATA_U8}},
    {"cuda", (const DataType[]){DATA_F32, DATA_BF16, DATA_F16, DATA_U8}},
};
static const Device *device; /* of the arguments */
static bool accepts;
static size_t unchecked_count; /* sections of a type in which this machine cannot compute */
static Backend *backend;

/* ---- networks ---- */

typedef struct Case {
    const char *model; /* its name; with "+OPTION", one that is set to yes */
    unsigned types;    /* bits 1 << DataType */
    bool large;        /* for a GPU alone, in training alone */
    int64_t batch, size, channels, classes;
    int64_t depth;
    const char *encoder_blocks, *decoder_blocks;
} Case;

enum { F32 = 1 << DATA_F32, BF16 = 1 << DATA_BF16, F16 = 1 << DATA_F16, ALL = F32 | BF16 | F16 };

/* Each network of the registry. resnet34 and resnet101 repeat the blocks of resnet18 and resnet50, so they
 * are here in one type. On a GPU there are sizes at which other ways are chosen: in the larger resnet50 norms
 * are too large for one launch and take the sums of convolutions; the images of the larger resnet18d are made
 * again for the backward pass. */
static const Case cases[] = {
    {"toynet", ALL, false, 16, 28, 1, 10, 0, NULL, NULL},
    {"conv8", ALL, false, 16, 28, 1, 10, 0, NULL, NULL},
    {"resnet9", ALL, false, 16, 32, 3, 10, 0, NULL, NULL},
    {"resnet18", ALL, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet34", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet50", ALL, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet50", F16, true, 64, 160, 3, 1000, 0, NULL, NULL},
    {"resnet101", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet18d", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet18d", BF16, true, 112, 224, 3, 1000, 0, NULL, NULL},
    {"resnet34d", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnet50d", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"seresnet50", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"resnext50_32x4d", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"xresnet18", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"xresnet50", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"xse_resnext50", BF16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"xse_resnext50+self-attention", F32 | F16, false, 8, 64, 3, 20, 0, NULL, NULL},
    {"pyramidnet", ALL, false, 8, 32, 3, 10, 20, NULL, NULL},
    {"airbench94", ALL, false, 16, 32, 3, 10, 0, NULL, NULL},
    {"airbench94", F16, true, 1000, 32, 3, 10, 0, NULL, NULL},
    {"airbench96", BF16, false, 16, 32, 3, 10, 0, NULL, NULL},
    {"convnext_atto", ALL, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_femto", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_pico", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_nano", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_tiny", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_small", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnext_base", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnextv2_atto", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnextv2_femto", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnextv2_pico", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnextv2_nano", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"convnextv2_tiny", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"vit_tiny_patch16", ALL, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"vit_tiny_patch8", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"vit_small_patch16", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"vit_small_patch8", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"deit_tiny_patch16", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"deit_small_patch16", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"simplevit_tiny_patch16", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"simplevit_small_patch16", BF16, false, 4, 64, 3, 10, 0, NULL, NULL},
    {"unet", ALL, false, 2, 64, 3, 0, 0, NULL, NULL},
    {"unet_segmentation", ALL, false, 2, 64, 3, 10, 0, NULL, NULL},
    {"nafnet", ALL, false, 2, 64, 3, 0, 0, "1,2", "1,1"},
};

static Graph *graph_of(const Case *row, DataType type, bool training)
{
    char name[GRAPH_NAME_MAX];
    (void)snprintf(name, sizeof name, "%s", row->model);
    char *option = strchr(name, '+');
    if (option)
        *option++ = '\0';
    const Model *model = model_find(name);
    const bool pairs = model->task == TASK_RESTORATION;
    const double mean = pairs ? 0 : 0.5, deviation = pairs ? 1 : 0.25;
    ModelSpec spec = {.batch = row->batch,
                      .height = row->size,
                      .width = row->size,
                      .channels = row->channels,
                      .classes = row->classes,
                      .training = training};
    model_value(&spec.options, "depth")->integer = row->depth;
    model_value(&spec.options, "encoder-blocks")->text = row->encoder_blocks;
    model_value(&spec.options, "decoder-blocks")->text = row->decoder_blocks;
    if (option)
        model_value(&spec.options, option)->text = "yes";
    const ModelRecipe recipe = {.mean = {mean, mean, mean},
                                .deviation = {deviation, deviation, deviation},
                                .loss = pairs ? LOSS_CHARBONNIER : LOSS_CROSS_ENTROPY,
                                .compute_type = type,
                                .fusions = backend_fusions(backend),
                                .optimizer = {.kind = OPTIMIZER_SGD,
                                              .momentum = 0.9,
                                              .nesterov = true,
                                              .weight_decay = 1e-4,
                                              .loss_scaling = type == DATA_F16,
                                              .scale_init = 65536,
                                              .scale_growth = 2,
                                              .scale_backoff = 0.5,
                                              .scale_interval = 2000}};
    Graph *graph = NULL;
    FshError error = {0};
    assert_ok(model_graph(model, &spec, &recipe, &graph, &error), &error);
    return graph;
}

/* ---- lines ---- */

typedef struct Line {
    char *text; /* owned */
    char *key;  /* text without the digits of the layer's name; owned */
} Line;

static void write_operands(FILE *line, const Graph *graph, const TensorId *ids, int count)
{
    char previous[96] = "";
    int same = 0;
    for (int i = 0; i <= count; i++) {
        char text[96] = "-";
        const Tensor *tensor = i < count && ids[i] != TENSOR_NONE ? graph_tensor(graph, ids[i]) : NULL;
        size_t used = 0;
        if (tensor)
            used = (size_t)snprintf(text, sizeof text, "%s",
                                    tensor->type == DATA_F32 ? "" : data_type_name(tensor->type));
        for (int k = 0; tensor && k < tensor->rank; k++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%c%lld%s", k ? ',' : '[',
                                     (long long)tensor->shape[k], k + 1 == tensor->rank ? "]" : "");
        if (i < count && strcmp(text, previous) == 0) {
            same++;
            continue;
        }
        if (same > 1)
            (void)fprintf(line, "*%d", same);
        if (i < count)
            (void)fprintf(line, " %s", text);
        (void)snprintf(previous, sizeof previous, "%s", text);
        same = 1;
    }
}

static char phase_of(const Graph *graph, NodeId id)
{
    const NodeId loss = graph_tensor(graph, graph_find(graph, "loss"))->producer;
    return graph_node(graph, id)->op == OP_UPDATE ? 'u' : id <= loss ? 'f' : 'b';
}

static Line line_of(const Program *program, NodeId id)
{
    const Node *node = graph_node(program->graph, id);
    const bool is_norm = node->op == OP_BATCH_NORM || node->op == OP_BATCH_NORM_BACKWARD ||
                         node->op == OP_CONV_NORM_BACKWARD || node->op == OP_NORM_GATE ||
                         node->op == OP_NORM_GATE_BACKWARD || node->op == OP_NORM_PAIR ||
                         node->op == OP_NORM_PAIR_BACKWARD || node->op == OP_NORM_POOL;
    const OpKind activation = is_norm                                       ? node->as.norm.activation
                              : node->op == OP_CONV2D && node->as.conv.relu ? OP_RELU
                                                                            : 0;
    Line line = {malloc(LINE_BYTES), malloc(LINE_BYTES)};
    assert_true(line.text && line.key);
    memset(line.text, 0, LINE_BYTES);
    FILE *stream = fmemopen(line.text, LINE_BYTES, "w");
    assert_non_null(stream);
    (void)fprintf(stream, "%c %s %s%s%s", phase_of(program->graph, id), *node->name ? node->name : "-",
                  op_name(node->op), activation ? "+" : "", activation ? op_name(activation) : "");
    write_operands(stream, program->graph, node->inputs, node->input_count);
    (void)fputs(" >", stream);
    write_operands(stream, program->graph, node->outputs, node->output_count);
    (void)fprintf(stream, " | %s | %.0f", program_node_engine(program, id),
                  (double)graph_node_bytes(program->graph, id));
    assert_true(ftell(stream) < LINE_BYTES - 1);
    (void)fclose(stream);
    const char *name_end = strchr(line.text + 2, ' ');
    char *key = line.key;
    for (const char *c = line.text; *c; c++)
        if (c > name_end || *c < '0' || *c > '9')
            *key++ = *c;
    *key = '\0';
    return line;
}

/* Returns how often the `period` lines at `begin` stand there, one after the other: 1 or more. */
static size_t times_repeated(const Line *lines, size_t count, size_t begin, size_t period)
{
    size_t i = begin + period;
    while (i < count && strcmp(lines[i].key, lines[i - period].key) == 0)
        i++;
    return (i - begin) / period;
}

/* Writes lines; those that repeat once, with their number. */
static void write_folded(FILE *stream, const Line *lines, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t period = 1, times = 1, saved = 0;
        for (size_t p = 1; p <= PERIOD_MAX && i + 2 * p <= count; p++) {
            const size_t t = times_repeated(lines, count, i, p);
            if ((t - 1) * p > saved && (t - 1) * p >= REPEATED_LEAST) {
                period = p;
                times = t;
                saved = (t - 1) * p;
            }
        }
        for (size_t k = 0; k < period; k++)
            (void)fprintf(stream, "%s\n", lines[i + k].text);
        if (times > 1)
            (void)fprintf(stream, "  the %zu lines above, %zu times in all\n", period, times);
        i += period * times;
    }
}

/* ---- sections ---- */

static void write_heading(FILE *stream, const Case *row, DataType type, bool training)
{
    (void)fprintf(stream, "== %s %s %s %lldx%lldx%lldx%lld:", row->model, data_type_name(type),
                  training ? "train" : "evaluate", (long long)row->batch, (long long)row->size,
                  (long long)row->size, (long long)row->channels);
}

static void write_program(FILE *stream, const Program *program)
{
    static Line lines[LINES_MAX];
    const size_t count = graph_node_count(program->graph);
    MemoryUse use = {{0}};
    state_memory(program->state, &use);
    program_memory(program, &use);
    (void)fprintf(stream, " weights %llu copies %llu gradients %llu activations %llu inputs %llu\n",
                  (unsigned long long)use.bytes[MEMORY_WEIGHTS], (unsigned long long)use.bytes[MEMORY_COPIES],
                  (unsigned long long)use.bytes[MEMORY_GRADIENTS],
                  (unsigned long long)use.bytes[MEMORY_ACTIVATIONS],
                  (unsigned long long)use.bytes[MEMORY_INPUTS]);
    assert_true(count <= LINES_MAX);
    for (size_t n = 0; n < count; n++)
        lines[n] = line_of(program, (NodeId)n);
    write_folded(stream, lines, count);
    for (size_t n = 0; n < count; n++) {
        free(lines[n].text);
        free(lines[n].key);
    }
}

/* Copies the recorded section of a type in which this machine cannot compute. */
static void write_unchecked(FILE *stream, const char *recorded, const char *heading, const char *reason)
{
    const char *begin = recorded ? strstr(recorded, heading) : NULL;
    if (!begin) {
        fail_msg("%s %s", heading, reason);
        return;
    }
    const char *end = strstr(begin + 1, "\n== ");
    (void)fwrite(begin, 1, end ? (size_t)(end + 1 - begin) : strlen(begin), stream);
    if (unchecked_count++ == 0)
        print_message("not checked: %s\n", reason);
}

static void write_section(FILE *stream, const Case *row, DataType type, bool training, const char *recorded)
{
    Graph *graph = graph_of(row, type, training);
    State *state = NULL;
    Program *program = NULL;
    FshError error = {0};
    FshStatus status = state_new(&state, backend, graph, &error);
    if (!status)
        status = program_new(&program, state, graph, &error);
    if (status == FSH_ERR_UNSUPPORTED) {
        char heading[HEADING_BYTES] = "";
        FILE *text = fmemopen(heading, sizeof heading, "w");
        assert_non_null(text);
        write_heading(text, row, type, training);
        (void)fclose(text);
        write_unchecked(stream, recorded, heading, error.message);
    } else if (program) {
        write_heading(stream, row, type, training);
        write_program(stream, program);
    } else {
        fail_msg("%s: %s", row->model, error.message);
    }
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
}

static void write_case(FILE *stream, const Case *row, const char *recorded)
{
    if (row->large && device == &devices[0])
        return;
    for (const DataType *type = device->types; *type != DATA_U8; type++) {
        if (!(row->types & 1U << *type))
            continue;
        write_section(stream, row, *type, true, recorded);
        if (!row->large)
            write_section(stream, row, *type, false, recorded);
    }
}

/* Returns the text of all sections; the caller frees it. */
static char *plans_found(const char *recorded)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    (void)fprintf(stream,
                  "The steps of every network on %s; what a line says: tests/trainer/lowered_plans_test.c\n",
                  device->name);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        write_case(stream, &cases[i], recorded);
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* ---- the comparison ---- */

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        fail_msg("%s is not set: run it by ctest", name);
    return value;
}

/* Prints the beginning of diff's output, each part with the section that it belongs to. */
static void print_difference(const char *recorded_path, const char *found_path)
{
    enum { SHOWN = 60 };
    char line[LINE_BYTES];
    RunResult result = run_program(NULL, "/usr/bin/diff", "-U2", "-F^== ", recorded_path, found_path, NULL);
    int shown = 0;
    FILE *stream = fmemopen(result.out, result.out_bytes + 1, "r");
    assert_non_null(stream);
    while (shown < SHOWN && fgets(line, sizeof line, stream)) {
        print_error("%s", line);
        shown++;
    }
    (void)fclose(stream);
    if (shown == SHOWN)
        print_error("… the rest: diff -U2 -F'^== ' %s %s\n", recorded_path, found_path);
    run_result_free(&result);
}

TEST(test_plans_are_those_recorded)
{
    char path[512], found_path[512];
    (void)snprintf(path, sizeof path, "%s/tests/trainer/plans/%s.txt", from_environment("FSHARD_SOURCE"),
                   device->name);
    FILE *there = fopen(path, "r");
    char *recorded = there ? test_file_read(path, NULL) : NULL;
    if (there)
        (void)fclose(there);
    char *found = plans_found(recorded);
    const bool same = recorded && strcmp(recorded, found) == 0;
    if (accepts && unchecked_count)
        fail_msg("%zu sections need a machine with all types: accept there", unchecked_count);
    if (accepts && !same) {
        test_file_write_text(path, found);
        print_message("%s: written\n", path);
    } else if (!same) {
        (void)snprintf(found_path, sizeof found_path, "%s/../tests/lowered_plans-%s.txt",
                       from_environment("FSHARD_BIN"), device->name);
        test_file_write_text(found_path, found);
        if (recorded)
            print_difference(path, found_path);
        print_error("%s: %s. If that is intended: FSHARD_ACCEPT=1 ctest -R lowered_plans\n", path,
                    recorded ? "what runs has changed" : "not recorded yet");
    }
    free(recorded);
    free(found);
    assert_true(same || accepts);
}

/* Returns whether it is another size of networks that are recorded: a large one, or of convnextv2_tiny, with
 * the depths of convnext_small and the widths of convnext_base. */
static bool is_left_out(const Model *model)
{
    return test_model_is_large(model) || strcmp(model->name, "convnextv2_small") == 0 ||
           strcmp(model->name, "convnextv2_base") == 0;
}

TEST(test_every_network_is_recorded)
{
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        bool there = is_left_out(model);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            there |= !cases[i].large && strcmp(cases[i].model, model->name) == 0;
        if (!there)
            fail_msg("%s has no row in `cases`", model->name);
    }
}

TEST(test_a_change_within_a_repetition_is_seen)
{
    Line lines[] = {{"a1 x", "a x"}, {"b1 x", "b x"}, {"a2 x", "a x"}, {"b2 x", "b x"},
                    {"a3 x", "a x"}, {"b3 x", "b x"}, {"a4 x", "a x"}, {"b4 x", "b x"}};
    const size_t count = sizeof lines / sizeof *lines;
    char text[256] = "";
    FILE *stream = fmemopen(text, sizeof text, "w");
    assert_non_null(stream);
    write_folded(stream, lines, count);
    lines[7] = (Line){"b4 y", "b y"};
    write_folded(stream, lines, count);
    (void)fclose(stream);
    assert_string_equal(text, "a1 x\nb1 x\n  the 2 lines above, 4 times in all\n"
                              "a1 x\nb1 x\n  the 2 lines above, 3 times in all\na4 x\nb4 y\n");
}

int test_program_arguments(int argc, char **argv)
{
    const char *accept = getenv("FSHARD_ACCEPT");
    for (size_t i = 0; argc > 1 && i < sizeof devices / sizeof *devices; i++)
        if (strcmp(argv[1], devices[i].name) == 0)
            device = &devices[i];
    if (!device || argc > 3 || (argc == 3 && strcmp(argv[2], "accept") != 0)) {
        (void)fprintf(stderr, "usage: %s cpu|cuda [accept]\n", argv[0]);
        return 2;
    }
    accepts = argc == 3 || (accept && strcmp(accept, "1") == 0);
    return TEST_RUN;
}

int test_program_begin(void)
{
    FshError error = {0};
    const FshStatus status = backend_open(&backend, device->name, &(BackendOptions){.threads = 1}, &error);
    if (status)
        printf("%s: %s\n", status == FSH_ERR_UNSUPPORTED ? "left out" : "failed", error.message);
    return !status ? TEST_RUN : status == FSH_ERR_UNSUPPORTED ? TEST_SKIP_ALL : 1;
}

int test_group_teardown(void **state)
{
    (void)state;
    backend_close(&backend);
    return 0;
}
