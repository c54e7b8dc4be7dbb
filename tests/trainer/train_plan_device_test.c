/* The plan of what computes and feeds: threads, batches, sources, precision. */
#include "tests/trainer/plan_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(test_loader_threads_follow_the_cores_and_the_device)
{
    static const struct {
        int device;
        int64_t jobs, given;
        int workers, most;
    } cases[] = {
        {DEVICE_CPU, 4, 0, 2, 4},  {DEVICE_CPU, 1, 0, 1, 1},  {OPTION_AUTO, 16, 0, 8, 16},
        {DEVICE_CUDA, 2, 0, 1, 2}, {DEVICE_CUDA, 1, 0, 1, 1}, {DEVICE_CUDA, 16, 0, 15, 16},
        {DEVICE_CUDA, 4, 5, 5, 5}, {DEVICE_CPU, 16, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){32, 3, true, 1000, false});
        made.options.compute.device = cases[i].device;
        made.options.program.jobs = cases[i].jobs;
        made.options.data.workers = cases[i].given;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.workers, cases[i].workers);
        assert_int_equal(made.plan.workers_most, cases[i].most);
    }
}

TEST(test_batches_ahead_follow_their_size_and_the_device)
{
    static const struct {
        Facts facts;
        int device;
        int64_t batch, size;
        size_t ahead;
    } cases[] = {
        {{32, 3, true, 1000, false}, DEVICE_CPU, 64, 32, 8},
        {{160, 3, false, 100000, false}, DEVICE_CPU, 64, 160, 3},
        {{160, 3, false, 100000, false}, DEVICE_CUDA, 1024, 160, 3}, /* 79 MB each */
        {{160, 3, false, 100000, false}, DEVICE_CUDA, 256, 160, 6},
        {{160, 3, false, 100000, false}, DEVICE_CUDA, 32, 160, 16},
        {{200, 3, false, 100000, true}, DEVICE_CUDA, 64, 160, 13},
        {{32, 3, true, 100000, false}, DEVICE_CUDA, 32768, 32, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case(cases[i].facts);
        made.options.compute.device = cases[i].device;
        made.options.training.batch_size = cases[i].batch;
        made.options.image.train_crop_size = cases[i].size;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.batches_ahead, cases[i].ahead);
    }
}

TEST(test_sources_are_alike_where_images_are_decoded_in_full)
{
    static const struct {
        uint32_t short_edge, crop;
        CropMode mode;
        int device;
        bool in_ram, on_gpu;
    } cases[] = {
        {160, 128, CROP_RESIZED, DEVICE_CUDA, true, true},
        {255, 128, CROP_RESIZED, DEVICE_CUDA, true, true},
        {256, 128, CROP_RESIZED, DEVICE_CUDA, false, false},
        {500, 32, CROP_PADDED, DEVICE_CUDA, true, true},
        {160, 128, CROP_RESIZED, DEVICE_CPU, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){500, 3, false, 1000, false});
        made.options.compute.device = cases[i].device;
        made.options.image.train_crop_size = cases[i].crop;
        made.options.image.train_crop_mode = cases[i].mode;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(plan_source_is_alike(&made.plan, pixel_source_type("planes"), cases[i].short_edge),
                         cases[i].in_ram);
        assert_int_equal(plan_source_is_alike(&made.plan, pixel_source_type("gpu"), cases[i].short_edge),
                         cases[i].on_gpu);
    }
}

/* What a GPU does not render, or not to the bit. */
TEST(test_a_gpu_is_left_out_where_its_pixels_are_not_alike)
{
    for (int i = 0; i < 6; i++) {
        Case made = make_case((Facts){160, 3, false, 1000, i == 4});
        made.options.compute.device = DEVICE_CUDA;
        made.options.views.interpolation = i == 1   ? INTERPOLATION_LANCZOS
                                           : i == 5 ? INTERPOLATION_BICUBIC
                                                    : INTERPOLATION_BILINEAR;
        made.options.views.erasing.probability = i >= 2 && i < 4 ? 0.5 : 0;
        made.options.views.erasing.fill = i == 3 ? ERASING_PIXEL : ERASING_CONST;
        made.options.views.noise = i == 4 ? 0.1 : 0;
        made.options.views.auto_augment.text = i == 5 ? "3a" : NULL;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(plan_source_is_alike(&made.plan, pixel_source_type("gpu"), 160), i < 3 || i == 5);
        assert_true(plan_source_is_alike(&made.plan, pixel_source_type("pixels"), 160));
    }
}

TEST(test_the_way_of_feeding_is_open_unless_given)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    assert_ok(plan_case(&made), &made.error);
    assert_true(made.plan.cache_follows);
    assert_string_equal(made.plan.source->name, "records");
    made.options.data.cache = PIXEL_CACHE_NONE;
    assert_ok(plan_case(&made), &made.error);
    assert_false(made.plan.cache_follows);
    made.options.data.cache = OPTION_AUTO;
    made.options.compute.device = DEVICE_CUDA;
    made.options.data.decode = DECODE_GPU;
    assert_ok(plan_case(&made), &made.error);
    assert_false(made.plan.cache_follows);
}

static void keep_line(void *context, const char *line)
{
    char *text = context;
    if (strncmp(line, "batch: ", 7) == 0)
        (void)snprintf(text, 200, "%s", line);
}

TEST(test_the_batch_follows_the_device_unless_the_split_is_small)
{
    static const struct {
        Facts facts;
        uint64_t wanted, world_size;
        int64_t given, batch;
        double rate;
        const char *says;
    } cases[] = {
        {{32, 3, true, 50000, false},
         512,
         1,
         0,
         512,
         0.4,
         "batch: 512 images, with which a GPU reaches about 90 %"},
        {{32, 3, true, 50000, false}, 1024, 1, 0, 512, 0.4, "the split is small, else it would be 1024"},
        {{32, 3, true, 4096, false}, 512, 1, 0, 64, 0.05, "the split is small"},
        {{32, 3, true, 400, false}, 512, 1, 0, 16, 0.0125, "the split is small"},
        {{32, 3, true, 1000000, false}, 32, 1, 0, 64, 0.05, "batch: 64 images"}, /* not fewer than usual */
        {{32, 3, true, 1000000, false}, 0, 1, 0, 64, 0.05, ""},
        {{32, 3, true, 1000000, false}, 512, 1, 96, 96, 0.075, ""},
        {{32, 3, true, 131072, false}, 1024, 2, 0, 1024, 1.6, "batch: 1024 images"},
        {{32, 3, true, 65536, false}, 1024, 2, 0, 512, 0.8, "the split is small"},
        {{128, 3, true, 2103, true}, 256, 1, 0, 32, 0.001, "the split is small"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[200] = "";
        Case made = make_case(cases[i].facts);
        made.options.compute.device = DEVICE_CUDA;
        made.options.device_batch = cases[i].wanted;
        made.options.device_cost = (BatchCost){.fixed = (double)cases[i].wanted / 9, .image = 1};
        made.options.place =
            (RankPlace){.world_size = cases[i].world_size, .local_world = cases[i].world_size};
        made.options.training.batch_size = cases[i].given;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_spec.batch, cases[i].batch);
        assert_true(fabs(made.plan.schedule.base - cases[i].rate) < 1e-9);
        made.data.dataset = NULL;
        plan_describe_batch(&made.plan, keep_line, line);
        assert_contains(line, cases[i].says);
    }
}

TEST(test_a_run_that_goes_on_keeps_its_batch)
{
    static const struct {
        uint64_t ranks, of_run, samples;
        int64_t given, batch;
    } cases[] = {{1, 1, 100000, 0, 96},
                 {1, 2, 100000, 0, 512},
                 {2, 2, 100000, 0, 96},
                 {1, 1, 100000, 32, 32},
                 {1, 1, 80, 0, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){32, 3, true, cases[i].samples, false});
        made.options.compute.device = DEVICE_CUDA;
        made.options.device_batch = 512;
        made.options.run_batch = 96;
        made.options.run_ranks = cases[i].of_run;
        made.options.place = (RankPlace){.world_size = cases[i].ranks, .local_world = cases[i].ranks};
        made.options.training.batch_size = cases[i].given;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_spec.batch, cases[i].batch);
    }
}

TEST(test_precision_follows_device_and_network)
{
    static const struct {
        int device, amp;
        DataType type;
        bool pairs, chosen;
    } cases[] = {
        {DEVICE_CPU, OPTION_AUTO, DATA_F32, false, true},  {OPTION_AUTO, OPTION_AUTO, DATA_F32, false, true},
        {DEVICE_CUDA, OPTION_AUTO, DATA_F16, false, true}, {DEVICE_CUDA, OPTION_AUTO, DATA_BF16, true, true},
        {DEVICE_CUDA, AMP_OFF, DATA_F32, false, false},    {DEVICE_CUDA, AMP_BF16, DATA_BF16, false, false},
        {DEVICE_CPU, AMP_BF16, DATA_BF16, true, false},    {DEVICE_CUDA, AMP_FP16, DATA_F16, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){256, 3, false, 1000, cases[i].pairs});
        made.options.compute.device = cases[i].device;
        made.options.compute.amp = cases[i].amp;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.recipe.compute_type, cases[i].type);
        assert_int_equal(made.plan.precision_chosen, cases[i].chosen);
        assert_int_equal(made.plan.recipe.optimizer.loss_scaling, cases[i].type == DATA_F16);
    }
}

TEST(test_options_of_a_gpu_are_taken_on_one)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.compute.device = DEVICE_CUDA;
    give(&made, "cudnn-benchmark");
    assert_ok(plan_case(&made), &made.error);
    made.options.compute.tf32 = true;
    give(&made, "tf32");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE); /* fp16 */
    made.options.compute.amp = AMP_OFF;
    assert_ok(plan_case(&made), &made.error);
    assert_true(made.plan.tf32);
}

/* Which plan wins where plans are timed is chance. */
TEST(test_a_deterministic_run_times_no_plans_unless_told)
{
    PlanBackend backend;
    Case made = make_case((Facts){256, 3, false, 1000, false});
    assert_int_equal(setenv("XDG_CACHE_HOME", "/somewhere", 1), 0);
    plan_backend(&backend, &made.options);
    assert_true(backend.options.benchmark);
    assert_false(backend.options.deterministic || backend.options.tf32);
    assert_int_equal(backend.options.threads, 4);
    assert_string_equal(backend.options.plan_cache, "/somewhere/fshard");
    made.options.compute.deterministic = true;
    assert_int_equal(setenv("XDG_CACHE_HOME", "not/absolute", 1), 0);
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
    plan_backend(&backend, &made.options);
    assert_true(backend.options.deterministic);
    assert_false(backend.options.benchmark);
    assert_string_equal(backend.options.plan_cache, "/home/me/.cache/fshard");
    give(&made, "cudnn-benchmark");
    assert_int_equal(unsetenv("HOME"), 0);
    plan_backend(&backend, &made.options);
    assert_true(backend.options.benchmark);
    assert_null(backend.options.plan_cache);
}

TEST(test_fusions_can_be_left_out_by_name)
{
    const unsigned there = FUSE_NORM_RELU | FUSE_NORM_ADD_RELU | FUSE_GRADIENT_ADD;
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.compute.device = DEVICE_CPU;
    assert_ok(plan_case(&made), &made.error);
    assert_ok(plan_fusions(&made.plan, &made.options, there, &made.error), &made.error);
    assert_int_equal(made.plan.recipe.fusions, there);
    made.options.compute.no_fuse = "gradient-add,norm-relu";
    assert_ok(plan_fusions(&made.plan, &made.options, there, &made.error), &made.error);
    assert_int_equal(made.plan.recipe.fusions, FUSE_NORM_ADD_RELU);
    made.options.compute.no_fuse = "gradient-add,norm-relu,norm-add-relu";
    assert_ok(plan_fusions(&made.plan, &made.options, there, &made.error), &made.error);
    assert_int_equal(made.plan.recipe.fusions, FUSE_NONE); /* 0 would be the default */
    static const char *const refused[] = {"norm", "norm-relu,norm-add", "norm-relu,,norm-add-relu"};
    static const char *const named[] = {"'norm' is no fusion", "'norm-add' is for other devices",
                                        "'' is no fusion"};
    for (size_t i = 0; i < 3; i++) {
        char message[256];
        made.options.compute.no_fuse = refused[i];
        assert_int_equal(plan_fusions(&made.plan, &made.options, there, &made.error), FSH_ERR_USAGE);
        (void)snprintf(message, sizeof message,
                       "--no-fuse: %s; the cpu backend has norm-relu, norm-add-relu, gradient-add", named[i]);
        assert_string_equal(made.error.message, message);
    }
}
