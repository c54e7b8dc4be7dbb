/* Plans of cuDNN's that are kept, in memory and on disk; for a GPU that need not be here. */
#include "trainer/backend/cuda/device/cudnn_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/cudnn_support.h"
#include "trainer/backend/cuda/device/cudnn_internal.h"

static FshStatus get(CudnnCache *cache, const CudnnDevice *device, ConvolutionKind kind,
                     const CudnnPlan **plan)
{
    FshError error = {0};
    CudnnPlan *described = NULL;
    assert_ok(case_describe_in(CUDNN_DATA_HALF, device, &middle_case, kind, &described, &error), &error);
    FshStatus status = cudnn_cache_get(cache, &described, &narrow_policy, NULL, plan, &error);
    assert_null(described);
    return status;
}

static void assert_counts(const CudnnCache *cache, uint64_t built, uint64_t loaded, uint64_t shared)
{
    const CudnnCacheCounts counts = cudnn_cache_counts(cache);
    assert_int_equal(counts.built, built);
    assert_int_equal(counts.loaded, loaded);
    assert_int_equal(counts.shared, shared);
}

TEST_WITH(test_a_plan_is_built_once_and_loaded_by_the_next_start, NULL, NULL, CudnnDevice *device)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *first, *again, *other;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "deeper/plans");
    assert_ok(cudnn_cache_new(&cache, "this machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &first), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &again), &error);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &other), &error);
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_counts(cache, 2, 0, 1);
    assert_null(cudnn_cache_warning(cache));
    assert_int_equal(test_count_files(path), 2);
    const uint64_t workspace_bytes = cudnn_plan_workspace_bytes(first);
    char told[80], told_again[80];
    assert_true(cudnn_plan_engine(first) >= 0);
    (void)cudnn_plan_describe(first, told, sizeof told);
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &first), &error);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &other), &error);
    assert_counts(cache, 0, 2, 0);
    assert_int_equal(cudnn_plan_workspace_bytes(first), workspace_bytes);
    assert_string_equal(cudnn_plan_describe(first, told_again, sizeof told_again), told);
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "another machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &first), &error);
    assert_counts(cache, 1, 0, 0);
    assert_int_equal(test_count_files(path), 3);
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
}

TEST_WITH(test_plans_that_nobody_uses_are_forgotten_when_there_are_many, NULL, NULL, CudnnDevice *device)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *forward, *data, *weight;
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, 2, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &forward), &error);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &data), &error);
    cudnn_cache_release(cache, data);
    assert_ok(cudnn_cache_build(cache, &error), &error); /* there are not more than two */
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &data), &error);
    assert_counts(cache, 2, 0, 1);
    cudnn_cache_release(cache, data);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_WEIGHT, &weight), &error);
    assert_ok(cudnn_cache_build(cache, &error), &error); /* forgets the one in the middle */
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &forward), &error);
    assert_counts(cache, 3, 0, 2);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_WEIGHT, &weight), &error);
    assert_counts(cache, 3, 0, 3);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &data), &error);
    assert_counts(cache, 4, 0, 3);
    cudnn_cache_free(&cache);
}

/* Wants the plan of the middle case, and builds it or waits for who does. */
static void want_and_build(CudnnCache *cache, const CudnnDevice *device)
{
    FshError error = {0};
    CudnnPlan *described = NULL;
    assert_ok(
        case_describe_in(CUDNN_DATA_HALF, device, &middle_case, CONVOLUTION_FORWARD, &described, &error),
        &error);
    assert_ok(cudnn_cache_want(cache, &described, &narrow_policy, false, &error), &error);
    assert_ok(cudnn_cache_build(cache, &error), &error);
}

/* Another process of the same start. */
typedef struct Other {
    const CudnnDevice *device;
    CudnnCache *cache;
    atomic_bool built;
} Other;

static void *build_as_other(void *context)
{
    Other *other = context;
    want_and_build(other->cache, other->device);
    other->built = true;
    return NULL;
}

TEST_WITH(test_of_two_processes_one_builds_and_the_other_loads, NULL, NULL, CudnnDevice *device)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *first = NULL, *second = NULL;
    const CudnnPlan *plan;
    pthread_t thread;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "plans");
    assert_ok(cudnn_cache_new(&first, "machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_ok(cudnn_cache_new(&second, "machine", path, CUDNN_PLANS_KEPT, &error), &error);
    want_and_build(first, device);
    Other other = {.device = device, .cache = second};
    assert_int_equal(pthread_create(&thread, NULL, build_as_other, &other), 0);
    sleep_seconds(0.5);                                                /* it misses the plan, too */
    assert_ok(get(first, device, CONVOLUTION_FORWARD, &plan), &error); /* writes it */
    sleep_seconds(0.5);
    assert_false(other.built); /* the first may still time what competes with the plan */
    cudnn_cache_settle(first);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(get(second, device, CONVOLUTION_FORWARD, &plan), &error);
    assert_counts(first, 1, 0, 0);
    assert_counts(second, 0, 1, 0);
    cudnn_cache_free(&second);
    cudnn_cache_free(&first);
    test_folder_remove(&folder);
}

/* What competes with a plan is timed once, as the plan is; a time of something else, or of another machine,
 * does not count. */
TEST(test_a_time_is_kept_for_the_next_start)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    double milliseconds = 0;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "plans");
    assert_ok(cudnn_cache_new(&cache, "this machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_remember(cache, "kernel 1", 0.0125);
    assert_null(cudnn_cache_warning(cache));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_true(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    assert_float_equal(milliseconds, 0.0125, 1e-9);
    assert_false(cudnn_cache_recall(cache, "kernel 2", &milliseconds));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "another machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", NULL, CUDNN_PLANS_KEPT, &error), &error);
    cudnn_cache_remember(cache, "kernel 1", 1);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
}

TEST_WITH(test_wanted_plans_are_built_on_several_threads, NULL, NULL, CudnnDevice *device)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, CUDNN_PLANS_KEPT, &error), &error);
    cudnn_cache_set_threads(cache, 4, NULL);
    for (int round = 0; round < 2; round++) /* the second wants what is there */
        for (size_t i = 0; i < narrow_case_count; i++) {
            CudnnPlan *described = NULL;
            assert_ok(case_describe_in(CUDNN_DATA_HALF, device, &narrow_cases[i], CONVOLUTION_FORWARD,
                                       &described, &error),
                      &error);
            assert_ok(cudnn_cache_want(cache, &described, &narrow_policy, false, &error), &error);
            assert_null(described);
        }
    watch_leaks(false);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    watch_leaks(true);
    for (size_t i = 0; i < narrow_case_count; i++) {
        CudnnPlan *described = NULL;
        assert_ok(case_describe_in(CUDNN_DATA_HALF, device, &narrow_cases[i], CONVOLUTION_FORWARD, &described,
                                   &error),
                  &error);
        assert_ok(cudnn_cache_get(cache, &described, &narrow_policy, NULL, &plan, &error), &error);
        assert_int_equal(plan->candidate_count, 1);
    }
    assert_counts(cache, narrow_case_count, 0, 0);
    cudnn_cache_free(&cache);
}

/* Whoever asks is told, every time; who only wanted it is not. */
TEST_WITH(test_a_wanted_plan_that_cannot_be_built_is_told_when_it_is_asked_for, NULL, NULL,
          CudnnDevice *device)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    CudnnPolicy none = plain_f32;
    none.refused_notes = UINT32_MAX;
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, CUDNN_PLANS_KEPT, &error), &error);
    CudnnPlan *described = NULL;
    assert_ok(case_describe(device, &middle_case, CONVOLUTION_BACKWARD_DATA, &described, &error), &error);
    none.workspace_limit_bytes = 0;
    assert_ok(cudnn_cache_want(cache, &described, &none, false, &error), &error);
    watch_leaks(false);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    watch_leaks(true);
    for (int i = 0; i < 2; i++) {
        assert_ok(case_describe(device, &middle_case, CONVOLUTION_BACKWARD_DATA, &described, &error), &error);
        assert_int_equal(cudnn_cache_get(cache, &described, &none, NULL, &plan, &error), FSH_ERR_LIBRARY);
        assert_contains(error.message, "has no engine for this");
        assert_null(plan);
    }
    assert_counts(cache, 0, 0, 0);
    cudnn_cache_free(&cache);
}

/* Returns the path of the one .cudnn file in folder. */
static const char *only_file(TestFolder *folder)
{
    char command[512], line[512] = "";
    (void)snprintf(command, sizeof command, "ls %s/*.cudnn", folder->path);
    FILE *pipe = popen(command, "r"); // NOLINT(cert-env33-c)
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    line[strcspn(line, "\n")] = '\0';
    (void)pclose(pipe);
    return test_path(folder, "%s", strrchr(line, '/') + 1);
}

TEST_WITH(test_a_damaged_file_is_replaced, NULL, NULL, CudnnDevice *device)
{
    TestFolder folder;
    FshError error = {0};
    const CudnnPlan *plan;
    const char *file = NULL;
    test_folder_make(&folder);
    for (int damage = 0; damage < 6; damage++) {
        CudnnCache *cache = NULL;
        assert_ok(cudnn_cache_new(&cache, "machine", folder.path, CUDNN_PLANS_KEPT, &error), &error);
        assert_ok(get(cache, device, CONVOLUTION_FORWARD, &plan), &error);
        assert_counts(cache, 1, 0, 0);
        cudnn_cache_free(&cache);
        /* what was put right is good */
        assert_ok(cudnn_cache_new(&cache, "machine", folder.path, CUDNN_PLANS_KEPT, &error), &error);
        assert_ok(get(cache, device, CONVOLUTION_FORWARD, &plan), &error);
        assert_counts(cache, 0, 1, 0);
        cudnn_cache_free(&cache);
        file = only_file(&folder);
        switch (damage) {
        case 0:
            test_file_flip_byte(file, 3);
            break;
        case 1:
            test_file_flip_byte(file, 40);
            break;
        case 2:
            test_file_flip_byte(file, -100);
            break;
        case 3:
            test_file_truncate(file, -1);
            break;
        case 4:
            test_file_truncate(file, 10);
            break;
        default:
            test_file_truncate(file, 0);
            break;
        }
    }
    test_folder_remove(&folder);
}

TEST_WITH(test_a_folder_that_cannot_be_written_is_told_and_does_no_harm, NULL, NULL, CudnnDevice *device)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "file");
    test_file_write_text(path, "not a folder");
    assert_ok(cudnn_cache_new(&cache, "machine", path, CUDNN_PLANS_KEPT, &error), &error);
    assert_ok(get(cache, device, CONVOLUTION_FORWARD, &plan), &error);
    assert_ok(get(cache, device, CONVOLUTION_BACKWARD_DATA, &plan), &error);
    assert_counts(cache, 2, 0, 0);
    assert_contains(cudnn_cache_warning(cache), "are not kept for the next start: ");
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
}
