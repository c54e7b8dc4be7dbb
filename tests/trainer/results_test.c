/* Results of runs that are collected later: each run's own, whatever was run since. */
#include "trainer/backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/network_support.h"

enum { DEPTH = 3, RUNS = 7 };

static TestNetwork open_network(Backend **backend)
{
    *backend = test_backend(1);
    return test_network(*backend, "conv8", 2, 28);
}

static void close_network(TestNetwork *network, Backend **backend)
{
    test_network_free(network);
    backend_close(backend);
}

TEST(test_each_run_leaves_its_own_results)
{
    Backend *backend = NULL;
    FshError error = {0};
    const float *values[2] = {NULL};
    float losses[RUNS], logits[RUNS][2 * TEST_CLASSES];
    TestNetwork network = open_network(&backend);
    const TensorId wanted[2] = {graph_find(network.graph, "logits"), graph_find(network.graph, "loss")};
    test_check(program_results(network.program, wanted, 2, DEPTH, &error), &error);
    for (uint64_t run = 0; run < RUNS; run++) {
        assert_int_equal(program_run_count(network.program), run);
        test_run(network.program);
        test_check(program_read(network.program, wanted[0], logits[run], sizeof logits[run], &error), &error);
        test_check(program_read(network.program, wanted[1], &losses[run], sizeof losses[run], &error),
                   &error);
        for (uint64_t back = run < DEPTH ? 0 : run - DEPTH + 1; back <= run; back++) {
            test_check(program_collect(network.program, back, values, &error), &error);
            assert_memory_equal(values[0], logits[back], sizeof logits[back]);
            assert_memory_equal(values[1], &losses[back], sizeof losses[back]);
        }
    }
    assert_true(losses[0] > losses[RUNS - 1]); /* they are not all the same */
    close_network(&network, &backend);
}

TEST(test_runs_that_were_not_made_or_are_gone_are_refused)
{
    Backend *backend = NULL;
    FshError error = {0};
    const float *values[1] = {NULL};
    TestNetwork network = open_network(&backend);
    const TensorId loss = graph_find(network.graph, "loss");
    test_run(network.program);
    assert_int_equal(program_collect(network.program, 0, values, &error), FSH_ERR_USAGE);
    test_check(program_results(network.program, &loss, 1, 2, &error), &error);
    assert_int_equal(program_run_count(network.program), 0);
    assert_int_equal(program_collect(network.program, 0, values, &error), FSH_ERR_USAGE);
    for (int run = 0; run < 3; run++)
        test_run(network.program);
    assert_int_equal(program_collect(network.program, 0, values, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "program: results of run 0 asked; it has made 3 and keeps the last 2");
    assert_int_equal(program_collect(network.program, 3, values, &error), FSH_ERR_USAGE);
    test_check(program_collect(network.program, 1, values, &error), &error);
    test_check(program_results(network.program, NULL, 0, 1, &error), &error);
    test_run(network.program);
    assert_int_equal(program_collect(network.program, 0, values, &error), FSH_ERR_USAGE);
    close_network(&network, &backend);
}

TEST(test_what_cannot_be_collected_is_named)
{
    Backend *backend = NULL;
    FshError error = {0};
    TestNetwork network = open_network(&backend);
    const TensorId loss = graph_find(network.graph, "loss"), image = graph_find(network.graph, "image");
    const TensorId none = (TensorId)graph_tensor_count(network.graph);
    assert_int_equal(program_results(network.program, &image, 1, 1, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "image: only kept f32 activations can be collected");
    const TensorId rate = graph_find(network.graph, "learning_rate");
    assert_int_equal(program_results(network.program, &rate, 1, 1, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "learning_rate: is not kept after a run; mark it with graph_keep");
    assert_int_equal(program_results(network.program, &none, 1, 1, &error), FSH_ERR_USAGE);
    assert_int_equal(program_results(network.program, &loss, 1, 0, &error), FSH_ERR_USAGE);
    assert_int_equal(program_results(network.program, &loss, 1, PROGRAM_DEPTH_MAX + 1, &error),
                     FSH_ERR_USAGE);
    assert_int_equal(program_results(network.program, &loss, PROGRAM_RESULTS_MAX + 1, 1, &error),
                     FSH_ERR_USAGE);
    assert_false(backend_runs_ahead(backend));
    close_network(&network, &backend);
}
