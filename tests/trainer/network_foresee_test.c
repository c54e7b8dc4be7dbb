/* The memory that a network is foreseen to take on the CPU, where it is described without being made, against
 * what it takes. tests/trainer/memory_use_test.c: on a GPU. */
#include "trainer/session/session.h"

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

static const DatasetSpec spec = {.codec = FSH_CODEC_RAW,
                                 .width = 32,
                                 .height = 32,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 16,
                                 .val_count = 8,
                                 .shard_count = 1};

/* Adds all that the network takes. */
static MemoryUse sum_of(const Network *network)
{
    MemoryUse use = {0};
    network_state_memory(network, NETWORK_TRAINED, &use);
    network_state_memory(network, NETWORK_AVERAGED, &use);
    for (size_t i = 0; i < network->plan->edge_count; i++)
        network_program_memory(network, &network->train[i], &use);
    for (int weights = NETWORK_TRAINED; weights <= NETWORK_AVERAGED; weights++)
        network_program_memory(network, &network->evaluation[weights][0], &use);
    return use;
}

/* All but scratch memory, which oneDNN alone knows: two sizes of training, evaluation of the weights and of
 * their average, and gradients once. */
TEST_IN_FOLDER(test_what_a_network_takes_is_foreseen, folder)
{
    static const MemoryKind kinds[] = {MEMORY_WEIGHTS, MEMORY_COPIES,  MEMORY_GRADIENTS, MEMORY_ACTIVATIONS,
                                       MEMORY_INPUTS,  MEMORY_RESULTS, MEMORY_PIXELS,    MEMORY_PINNED};
    static Session session;
    static Network foreseen;
    TrainOptions options = train_options_default();
    FshError error = {0};
    options.shards = test_path(folder, "set");
    dataset_make(options.shards, &spec);
    options.compute.device = DEVICE_CPU;
    options.model = "resnet9";
    options.training.batch_size = 8;
    options.image.progressive = "16:32";
    options.update.model_ema = true;
    options.program.quiet = true;
    options.program.jobs = 1;
    assert_ok(session_open(&session, &options, SESSION_TRAIN, &error), &error);
    assert_true(session.plan.edge_count > 1);
    assert_ok(network_foresee(&foreseen, &session.plan, &error), &error);
    const MemoryUse taken = sum_of(&session.network), found = sum_of(&foreseen);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const double a = (double)taken.bytes[kinds[i]], b = (double)found.bytes[kinds[i]];
        if (!(a - b <= 4096 && b - a <= 4096)) /* tensors begin at multiples of 64 */
            fail_msg("%s: takes %.0f bytes, foreseen were %.0f", memory_kind_names[kinds[i]], a, b);
    }
    assert_true(found.bytes[MEMORY_GRADIENTS] > 0 && found.bytes[MEMORY_ACTIVATIONS] > 0);
    network_close(&foreseen);
    session_close(&session);
}
