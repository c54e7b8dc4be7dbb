/* The update's kernel on narrow gradients and with narrow copies, against itself on dense float32 gradients
 * of the same values, which cuda_update_test holds to the CPU backend: the same bits. Copies are the weights
 * rounded, in padded rows, and pads stay as they were. And on gradients joined as ranks exchange them. Needs
 * a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_update.h"
#include "trainer/graph/muon.h"

/* ---- narrow numbers ---- */

/* Returns the nearest number with `bits` bits after the leading one, ties to even; numbers are at least
 * 2^least apart. */
static float rounded(float value, int bits, int least)
{
    int exponent;
    if (value == 0)
        return value;
    (void)frexpf(value, &exponent); /* value = 0.1… * 2^exponent */
    const int unit = exponent - 1 - bits > least ? exponent - 1 - bits : least;
    return ldexpf(rintf(ldexpf(value, -unit)), unit);
}

static float rounded_to(ElementType element, float value)
{
    return element == ELEMENT_BF16 ? rounded(value, 7, -133) : rounded(value, 10, -24);
}

/* ---- a table of tensors ---- */

typedef struct Weights {
    int rows, channels;
} Weights;
/* Channels that are a multiple of eight, of four, of neither; one piece and several, cut in the middle of a
 * row. */
static const Weights shapes[] = {{5, 8}, {300, 16}, {70, 301}, {77, 12}, {9 * 9 * 64, 3}, {1, 1}, {1000, 13}};
enum { TENSORS = sizeof shapes / sizeof *shapes, PIECES_MAX = 64, COPIES = 2 };
static const uint16_t pad_mark = 0x3C01; /* a number in both types */

static int pitch_of(int channels)
{
    return (int)padded_channels(channels);
}

static size_t count_of(int t)
{
    return (size_t)shapes[t].rows * (size_t)shapes[t].channels;
}

static size_t stored_of(int t)
{
    return (size_t)shapes[t].rows * (size_t)pitch_of(shapes[t].channels);
}

typedef struct Updater {
    Optimizer optimizer;
    bool narrow;
    bool joins;          /* as ranks that accumulate: the host says which run updates */
    ElementType element; /* of the gradients where they are narrow */
    UpdateTensor tensors[TENSORS];
    void *gradients[TENSORS];
    UpdateTable table;
    MuonSlab *slabs; /* of muon's matrices, in device memory */
    int64_t slab_count;
    float *numbers; /* learning rate, step, micro, scale, tracker, norm, updated */
    void *scratch;
    void *owned[TENSORS * 12];
    int owned_count;
} Updater;

static void *own(Updater *updater, void *memory)
{
    assert_true(updater->owned_count < TENSORS * 12);
    return updater->owned[updater->owned_count++] = memory;
}

static bool keeps(const Optimizer *o, int slot)
{
    const OptimizerKind rule = muon_rest_kind(o);
    const bool moments = !optimizer_has_momentum(rule);
    const bool kept[OPTIMIZER_SLOT_COUNT] = {[SLOT_MOMENTUM_BUFFER] = !moments,
                                             [SLOT_EXP_AVG] = moments,
                                             [SLOT_EXP_AVG_SQ] = moments,
                                             [SLOT_SLOW] = o->lookahead_steps > 0,
                                             [SLOT_ACCUMULATED] = o->accumulation_steps > 1,
                                             [SLOT_EMA] = o->ema_decay > 0};
    return kept[slot];
}

static void add_weights(Updater *updater, int t, UpdatePiece *pieces)
{
    Random random;
    float *weights = malloc(count_of(t) * sizeof *weights);
    UpdateTensor *tensor = &updater->tensors[t];
    assert_non_null(weights);
    random_start(&random, 7, (uint64_t)t);
    for (size_t i = 0; i < count_of(t); i++)
        weights[i] = random_normal(&random) * 0.1F;
    *tensor =
        (UpdateTensor){.values = own(updater, gpu_copy_of(weights, count_of(t) * sizeof *weights)),
                       .channels = shapes[t].channels,
                       .gradient_element = updater->narrow ? updater->element : ELEMENT_F32,
                       .gradient_pitch = updater->narrow ? pitch_of(shapes[t].channels) : shapes[t].channels,
                       .copy_pitch = pitch_of(shapes[t].channels),
                       .copy_elements = {ELEMENT_BF16, ELEMENT_F16},
                       .first_piece = (int32_t)updater->table.piece_count,
                       .decays = t % 2 == 0,
                       .rate = 1,
                       .decay = t % 2 == 0};
    free(weights);
    for (int slot = 0; slot < OPTIMIZER_SLOT_COUNT; slot++)
        if (keeps(&updater->optimizer, slot))
            tensor->slots[slot] = own(updater, gpu_copy_of(NULL, count_of(t) * sizeof(float)));
    tensor->gradient = updater->gradients[t] =
        own(updater, updater->narrow ? gpu_filled(stored_of(t), pad_mark)
                                     : gpu_copy_of(NULL, count_of(t) * sizeof(float)));
    for (int k = 0; k < COPIES && updater->narrow; k++)
        tensor->copies[k] = own(updater, gpu_filled(stored_of(t), pad_mark));
    for (size_t first = 0; first < count_of(t); first += UPDATE_PIECE, tensor->piece_count++) {
        const size_t rest = count_of(t) - first, channels = (size_t)shapes[t].channels;
        assert_true(updater->table.piece_count < PIECES_MAX);
        pieces[updater->table.piece_count++] =
            (UpdatePiece){.first = (int64_t)first,
                          .row = (int64_t)(first / channels),
                          .column = (int32_t)(first % channels),
                          .count = (int32_t)(rest < UPDATE_PIECE ? rest : UPDATE_PIECE),
                          .tensor = t};
    }
}

/* Makes matrices of two tensors where the optimizer is muon: wide and tall, one after the other in scratch
 * memory; slabs: room for theirs. */
static uint64_t add_matrices(Updater *updater, MuonSlab *slabs)
{
    static const int tensors[] = {2, 3};
    uint64_t bytes = 0;
    for (size_t i = 0; i < 2 && updater->optimizer.kind == OPTIMIZER_MUON; i++) {
        const int t = tensors[i], rows = pitch_of(shapes[t].rows), pitch = pitch_of(shapes[t].channels);
        updater->tensors[t].matrix = (MuonMatrix){.step_offset_bytes = bytes,
                                                  .result_offset_bytes = bytes,
                                                  .rows = shapes[t].rows,
                                                  .columns = shapes[t].channels,
                                                  .pitch = pitch,
                                                  .scale = 0.5F};
        bytes += (uint64_t)rows * (uint64_t)pitch * sizeof(uint16_t);
        for (int first = 0; first < rows * pitch; first += MUON_SLAB) {
            const int rest = rows * pitch - first;
            assert_true(updater->slab_count < PIECES_MAX);
            slabs[updater->slab_count++] =
                (MuonSlab){.first = first, .count = rest < MUON_SLAB ? rest : MUON_SLAB, .tensor = t};
        }
    }
    return bytes;
}

static void updater_start(Updater *updater, const Optimizer *optimizer, bool narrow, ElementType element)
{
    UpdatePiece pieces[PIECES_MAX];
    MuonSlab slabs[PIECES_MAX];
    *updater = (Updater){.optimizer = *optimizer, .narrow = narrow, .element = element};
    for (int t = 0; t < TENSORS; t++)
        add_weights(updater, t, pieces);
    const uint64_t matrix_bytes = add_matrices(updater, slabs);
    if (updater->slab_count > 0)
        updater->slabs =
            own(updater, gpu_copy_of(slabs, (size_t)updater->slab_count * sizeof *updater->slabs));
    UpdateTable *table = &updater->table;
    table->parameter_count = TENSORS;
    table->parameter_pieces = table->piece_count;
    table->tensors = own(updater, gpu_copy_of(updater->tensors, sizeof updater->tensors));
    table->pieces = own(updater, gpu_copy_of(pieces, (size_t)table->piece_count * sizeof *pieces));
    table->control = own(updater, gpu_copy_of(NULL, kernel_update_control_bytes(TENSORS)));
    updater->scratch = own(updater, gpu_copy_of(NULL, kernel_update_scratch_bytes(table) + matrix_bytes));
    updater->numbers = own(updater, gpu_copy_of((float[7]){0.05F, 0, 0, 64, 0, 0, 0}, 7 * sizeof(float)));
}

static void updater_end(Updater *updater)
{
    for (int i = 0; i < updater->owned_count; i++)
        (void)cudaFree(updater->owned[i]);
}

/* Writes gradients that are multiples of 1/64 below 2, which are exact in every type. */
static void write_gradients(const Updater *updater, int run)
{
    for (int t = 0; t < TENSORS; t++) {
        const int channels = shapes[t].channels, pitch = updater->tensors[t].gradient_pitch;
        const size_t each = updater->narrow ? sizeof(uint16_t) : sizeof(float),
                     bytes = (size_t)shapes[t].rows * (size_t)pitch * each;
        unsigned char *values = gpu_read(updater->tensors[t].gradient, bytes);
        Random random;
        random_start(&random, (uint64_t)run, (uint64_t)t);
        for (int row = 0; row < shapes[t].rows; row++)
            for (int i = 0; i < channels; i++) {
                const float value = ((float)random_below(&random, 255) - 127) / 64;
                const uint16_t bits = narrow_bits(updater->element, value);
                unsigned char *at = values + ((size_t)row * (size_t)pitch + (size_t)i) * each;
                memcpy(at, updater->narrow ? (const void *)&bits : (const void *)&value, each);
            }
        assert_int_equal(cudaMemcpy(updater->gradients[t], values, bytes, cudaMemcpyHostToDevice),
                         cudaSuccess);
        free(values);
    }
}

/* run: the number of runs before. */
static void updater_run(const Updater *updater, int run)
{
    float *n = updater->numbers;
    const Optimizer *o = &updater->optimizer;
    const UpdateNumbers numbers = {.learning_rate = n,
                                   .step = n + 1,
                                   .micro = o->accumulation_steps > 1 ? n + 2 : NULL,
                                   .scale = o->loss_scaling ? n + 3 : NULL,
                                   .tracker = o->loss_scaling ? n + 4 : NULL,
                                   .gradient_norm = n + 5,
                                   .updated = n + 6};
    const bool last = run % 2 == 1; /* of two, where it accumulates */
    const UpdateRun kind = !updater->joins ? UPDATE_DECIDES : last ? UPDATE_JOINED : UPDATE_ACCUMULATES;
    if (kind == UPDATE_JOINED)
        assert_int_equal(kernel_update_join(o, &updater->table, &numbers, NULL, NULL), cudaSuccess);
    assert_int_equal(kernel_update(o, &updater->table, &numbers, kind, updater->scratch, NULL), cudaSuccess);
    if (updater->slab_count > 0) { /* as if no step of Newton and Schulz were made */
        char *matrices = (char *)updater->scratch + kernel_update_scratch_bytes(&updater->table);
        assert_int_equal(
            kernel_muon_normalize(&updater->table, updater->slabs, updater->slab_count, matrices, NULL),
            cudaSuccess);
        assert_int_equal(kernel_update_muon(o, &updater->table, &numbers, kind, updater->scratch, NULL),
                         cudaSuccess);
    }
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
}

static void assert_same(const void *first, const void *second, size_t bytes)
{
    void *ours = gpu_read(first, bytes), *theirs = gpu_read(second, bytes);
    assert_memory_equal(ours, theirs, bytes);
    free(ours);
    free(theirs);
}

static void assert_copies_are_rounded_weights(const Updater *updater)
{
    for (int t = 0; t < TENSORS; t++)
        for (int k = 0; k < COPIES; k++) {
            const UpdateTensor *tensor = &updater->tensors[t];
            const int pitch = tensor->copy_pitch, channels = shapes[t].channels;
            float *weights = gpu_read(tensor->values, count_of(t) * sizeof *weights);
            uint16_t *copy = gpu_read(tensor->copies[k], stored_of(t) * sizeof *copy);
            for (int row = 0; row < shapes[t].rows; row++)
                for (int i = 0; i < pitch; i++) {
                    const uint16_t bits = copy[row * pitch + i];
                    const float wanted =
                        i < channels ? rounded_to(tensor->copy_elements[k], weights[row * channels + i]) : 0;
                    if (i < channels ? narrow_value(tensor->copy_elements[k], bits) != wanted
                                     : bits != pad_mark)
                        fail_msg("tensor %d, copy %d, row %d, element %d: %04x, not %g", t, k, row, i, bits,
                                 (double)wanted);
                }
            free(weights);
            free(copy);
        }
}

static const Optimizer plain = {.momentum = 0.9,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .trust_coefficient = 0.02,
                                .weight_decay = 0.01,
                                .muon = {.momentum = 0.9, .nesterov = true, .renorm = true}};

static Optimizer with_everything(void)
{
    Optimizer optimizer = plain;
    optimizer.clip_norm = 5;
    optimizer.accumulation_steps = 2;
    optimizer.lookahead_steps = 2;
    optimizer.lookahead_alpha = 0.5;
    optimizer.ema_decay = 0.9;
    optimizer.loss_scaling = true;
    optimizer.scale_growth = 2;
    optimizer.scale_backoff = 0.5;
    optimizer.scale_interval = 2;
    return optimizer;
}

static void compare_narrow(Optimizer optimizer, ElementType element, bool joins)
{
    Updater narrow, dense;
    updater_start(&narrow, &optimizer, true, element);
    updater_start(&dense, &optimizer, false, element);
    narrow.joins = joins;
    for (int run = 0; run < 4; run++) {
        write_gradients(&narrow, run);
        write_gradients(&dense, run);
        updater_run(&narrow, run);
        updater_run(&dense, run);
    }
    assert_same(narrow.numbers, dense.numbers, 7 * sizeof(float));
    for (int t = 0; t < TENSORS; t++) {
        assert_same(narrow.tensors[t].values, dense.tensors[t].values, count_of(t) * sizeof(float));
        for (int slot = 0; slot < OPTIMIZER_SLOT_COUNT; slot++)
            if (keeps(&optimizer, slot))
                assert_same(narrow.tensors[t].slots[slot], dense.tensors[t].slots[slot],
                            count_of(t) * sizeof(float));
    }
    assert_copies_are_rounded_weights(&narrow);
    float *numbers = gpu_read(narrow.numbers, 7 * sizeof *numbers);
    assert_true(numbers[1] == (optimizer.accumulation_steps > 1 ? 2 : 4)); /* updates were made */
    assert_true(isfinite(numbers[5]) && numbers[5] > 0 && numbers[6] == 1);
    free(numbers);
    updater_end(&narrow);
    updater_end(&dense);
}

static void compare_optimizers(const Optimizer *around, bool joins)
{
    for (int kind = 0; kind < OPTIMIZER_KIND_COUNT; kind++) {
        Optimizer optimizer = *around;
        optimizer.kind = (OptimizerKind)kind;
        compare_narrow(optimizer, ELEMENT_BF16, joins);
        compare_narrow(optimizer, ELEMENT_F16, joins);
    }
}

TEST(test_narrow_gradients_update_as_dense_ones)
{
    compare_optimizers(&plain, false);
}

TEST(test_narrow_gradients_update_as_dense_ones_with_everything_around)
{
    const Optimizer everything = with_everything();
    compare_optimizers(&everything, false);
}

/* The half of two gradients' sum is exact in every type, and so is all that follows. */
TEST(test_joined_gradients_update_as_accumulated_ones)
{
    const Optimizer everything = with_everything();
    compare_optimizers(&everything, true);
}
