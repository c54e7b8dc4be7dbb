#include "trainer/plan/train_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

/* What a dataset looks like to the plan. */
typedef struct Facts {
    uint32_t short_edge, channels;
    bool uniform;
    uint64_t train_count;
    bool pairs;
} Facts;

/* Made from facts; split stands for both train and val. */
typedef struct Case {
    TrainOptions options;
    FshSplit split;
    TrainingData data;
    TrainPlan plan;
    bool only_trains; /* no split to evaluate on */
    FshError error;
} Case;

static Case make_case(Facts facts)
{
    Case made = {.options = train_options_default()};
    made.options.program.jobs = 4;
    made.split.sample_count = facts.train_count;
    made.data = (TrainingData){.kind = facts.pairs ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                               .class_count = facts.pairs ? 0 : 10,
                               .width_min = facts.short_edge,
                               .height_min = facts.short_edge,
                               .width_max = 2 * facts.short_edge,
                               .height_max = facts.short_edge,
                               .channels = facts.channels,
                               .mean = {0.5, 0.25, 1},
                               .standard_deviation = {0.25, 0.25, 0.25},
                               .measured = true,
                               .short_edge = facts.short_edge,
                               .uniform = facts.uniform};
    return made;
}

static FshStatus plan_case(Case *made)
{
    const Model *model = NULL;
    made->data.train = &made->split;
    made->data.evaluation = made->only_trains ? NULL : &made->split;
    FshStatus status = plan_model(&made->options, made->data.kind, &model, &made->error);
    return status ? status : plan_make(&made->plan, &made->options, model, &made->data, &made->error);
}

/* Marks an option as given by the user. */
static void give(Case *made, const char *name)
{
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&made->options, rows);
    for (Option *row = rows; row->name; row++)
        if (strcmp(row->name, name) == 0) {
            *row->given = true;
            return;
        }
    fail_msg("no option --%s", name);
}

TEST(test_image_sizes_follow_from_the_dataset)
{
    static const struct {
        Facts facts;
        uint32_t crop, resize;
        CropMode mode;
    } cases[] = {
        {{28, 1, true, 8000, false}, 28, 28, CROP_PADDED},    /* MNIST */
        {{32, 3, true, 50000, false}, 32, 32, CROP_PADDED},   /* CIFAR */
        {{64, 3, true, 10000, false}, 64, 64, CROP_RESIZED},  /* Tiny ImageNet */
        {{64, 3, false, 10000, false}, 64, 64, CROP_RESIZED}, /* not enlarged to lose a margin */
        {{160, 3, false, 10000, false}, 160, 160, CROP_RESIZED},
        {{256, 3, false, 10000, false}, 224, 256, CROP_RESIZED}, /* torchvision's */
        {{375, 3, false, 10000, false}, 224, 256, CROP_RESIZED},
        {{100, 3, false, 10000, false}, 96, 100, CROP_RESIZED},
        {{128, 3, true, 10000, false}, 128, 128, CROP_RESIZED},
        {{1, 3, true, 10000, false}, 1, 1, CROP_PADDED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case(cases[i].facts);
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_augmentation.size, cases[i].crop);
        assert_int_equal(made.plan.train_augmentation.mode, cases[i].mode);
        assert_int_equal(made.plan.evaluation_augmentation.size, cases[i].crop);
        assert_int_equal(made.plan.evaluation_augmentation.resize, cases[i].resize);
        assert_int_equal(made.plan.evaluation_augmentation.mode, CROP_CENTER);
        assert_int_equal(made.plan.train_spec.width, cases[i].crop);
    }
}

TEST(test_given_sizes_decide_the_others)
{
    static const struct {
        int64_t train_crop, val_resize, val_crop;
        uint32_t train, resize, val;
    } cases[] = {
        {64, 0, 64, 64, 73, 64},        {64, 0, 0, 64, 73, 64},     {0, 0, 192, 192, 219, 192},
        {128, 0, 160, 128, 183, 160},   {0, 300, 0, 224, 300, 224}, {0, 100, 0, 100, 100, 100},
        {224, 256, 224, 224, 256, 224},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){375, 3, false, 10000, false});
        made.options.image.train_crop_size = cases[i].train_crop;
        made.options.image.val_resize_size = cases[i].val_resize;
        made.options.image.val_crop_size = cases[i].val_crop;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_augmentation.size, cases[i].train);
        assert_int_equal(made.plan.evaluation_augmentation.resize, cases[i].resize);
        assert_int_equal(made.plan.evaluation_augmentation.size, cases[i].val);
    }
}

TEST(test_gray_images_are_not_flipped_unless_told)
{
    Case gray = make_case((Facts){28, 1, true, 1000, false}),
         colour = make_case((Facts){28, 3, true, 1000, false});
    assert_ok(plan_case(&gray), &gray.error);
    assert_ok(plan_case(&colour), &colour.error);
    assert_true(gray.plan.train_augmentation.flip_probability == 0);
    assert_true(colour.plan.train_augmentation.flip_probability == 0.5);
    give(&gray, "hflip-prob");
    assert_ok(plan_case(&gray), &gray.error);
    assert_true(gray.plan.train_augmentation.flip_probability == 0.5);
}

TEST(test_alternating_flips_are_those_of_training)
{
    Case made = make_case((Facts){28, 1, true, 1000, false});
    made.options.views.flip_mode = FLIP_ALTERNATING;
    give(&made, "flip");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.flip_mode, FLIP_ALTERNATING);
    assert_int_equal(made.plan.evaluation_augmentation.flip_mode, FLIP_RANDOM);
    give(&made, "hflip-prob");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--hflip-prob: does nothing here; it is for random views");
}

TEST(test_without_augmentation_training_sees_what_evaluation_sees)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.image.augment = false;
    assert_ok(plan_case(&made), &made.error);
    const Augmentation *train = &made.plan.train_augmentation,
                       *evaluation = &made.plan.evaluation_augmentation;
    assert_int_equal(train->mode, CROP_CENTER);
    assert_int_equal(train->size, evaluation->size);
    assert_int_equal(train->resize, evaluation->resize);
    assert_true(train->flip_probability == 0);
}

TEST(test_small_splits_get_small_batches)
{
    static const uint64_t cases[][2] = {{1000000, 64}, {1280, 64}, {1279, 32}, {400, 16}, {200, 8},
                                        {20, 8},       {8, 8},     {5, 5},     {1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){32, 3, true, cases[i][0], false});
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_spec.batch, cases[i][1]);
        assert_int_equal(made.plan.steps_per_epoch, cases[i][0] / cases[i][1]);
    }
}

TEST(test_evaluation_has_a_step_for_every_sample)
{
    Case made = make_case((Facts){32, 3, true, 1001, false});
    made.options.training.val_batch_size = 50;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.evaluation_steps, 21);
}

TEST(test_the_learning_rate_grows_with_the_batch)
{
    Case made = make_case((Facts){32, 3, true, 100000, false});
    made.options.training.batch_size = 128;
    made.options.schedule.lr_base = 0.4;
    made.options.training.epochs = 10;
    assert_ok(plan_case(&made), &made.error);
    assert_true(fabs(made.plan.schedule.base - 0.2) < 1e-12);
    assert_int_equal(made.plan.schedule.total_steps, 7810);
    assert_int_equal(made.plan.schedule.warmup_steps, 1562); /* a fifth */
    made.options.schedule.lr = 0.7;
    give(&made, "lr-warmup-epochs");
    made.options.schedule.lr_warmup_epochs = 0.5;
    assert_ok(plan_case(&made), &made.error);
    assert_true(made.plan.schedule.base == 0.7);
    assert_int_equal(made.plan.schedule.warmup_steps, 391);
}

TEST(test_a_run_of_iterations_is_cut_into_stretches)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.training.batch_size = 64; /* 15 to a pass */
    made.options.training.iters = 100;
    made.options.training.val_every = 30;
    made.options.schedule.lr_warmup_iters = 7;
    assert_ok(plan_case(&made), &made.error);
    const TrainPlan *plan = &made.plan;
    assert_true(plan_counts_iterations(plan));
    assert_int_equal(plan->steps_per_pass, 15);
    assert_int_equal(plan->epochs, 4);
    assert_int_equal(plan->total_steps, 100);
    assert_int_equal(plan->schedule.total_steps, 100);
    assert_int_equal(plan->schedule.warmup_steps, 7);
    assert_int_equal(plan->evaluation_interval, 1);
    static const uint64_t steps[] = {30, 30, 30, 10, 0}, before[] = {0, 30, 60, 90, 100};
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(plan_epoch_steps(plan, i), steps[i]);
        assert_int_equal(plan_steps_before(plan, i), before[i]);
    }
    char text[40];
    assert_string_equal(plan_epoch_text(plan, 3, text, sizeof text), "iteration 100");
    made.options.training.val_every = 0; /* a pass; a fifth of the run is warm-up, but at most 5 passes */
    made.options.schedule.lr_warmup_iters = 0;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(plan->steps_per_epoch, 15);
    assert_int_equal(plan->epochs, 7);
    assert_int_equal(plan->schedule.warmup_steps, 20);
    made.options.training.grad_accum_steps = 4; /* of 12 steps in a pass: 3 updates */
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(plan->steps_per_pass, 12);
    assert_int_equal(plan->total_steps, 400);
    assert_int_equal(plan_iterations(plan, plan->total_steps), 100);
    assert_int_equal(plan->epochs, 34);
}

TEST(test_a_least_learning_rate_above_the_highest_is_refused)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.schedule.lr = 0.1;
    made.options.schedule.lr_min = 0.1;
    assert_ok(plan_case(&made), &made.error);
    made.options.schedule.lr_min = 0.2;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--lr-min: 0.2 is more than the highest learning rate of 0.1");
    made.options.schedule.lr_scheduler = SCHEDULE_CONSTANT; /* has no use for it */
    assert_ok(plan_case(&made), &made.error);
}

TEST(test_a_step_at_least_is_behind_the_warm_up)
{
    Case made = make_case((Facts){32, 3, true, 100, false});
    made.options.training.epochs = 1;
    made.options.training.batch_size = 50;
    give(&made, "lr-warmup-epochs");
    made.options.schedule.lr_warmup_epochs = 0.9; /* of two steps: rounded, both */
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.schedule.total_steps, 2);
    assert_int_equal(made.plan.schedule.warmup_steps, 1);
}

TEST(test_padding_shows_the_mean)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    assert_ok(plan_case(&made), &made.error);
    const uint8_t expected[] = {128, 64, 255};
    assert_memory_equal(made.plan.fill, expected, sizeof expected);
}

TEST(test_crops_are_resized_as_asked_where_the_cpu_renders_them)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.interpolation, INTERPOLATION_BILINEAR);
    made.options.views.interpolation = INTERPOLATION_BICUBIC;
    give(&made, "interpolation");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.interpolation, INTERPOLATION_BICUBIC);
    assert_int_equal(made.plan.evaluation_augmentation.interpolation, INTERPOLATION_BICUBIC);
    made.options.compute.device = DEVICE_CUDA;
    made.options.data.decode = DECODE_GPU;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_string_equal(made.error.message,
                        "--decode gpu: a GPU resizes with bilinear interpolation alone; use --decode cpu, or "
                        "--interpolation bilinear");
    Case pairs = make_case((Facts){256, 3, false, 1000, true});
    give(&pairs, "interpolation");
    assert_int_equal(plan_case(&pairs), FSH_ERR_USAGE);
    assert_contains(pairs.error.message, "it is for classes; pairs are not resized");
}

TEST(test_the_centre_is_the_part_that_was_asked_for)
{
    Case made = make_case((Facts){300, 3, false, 1000, false});
    made.options.image.val_crop_size = 224;
    made.options.image.crop_pct = 0.875;
    give(&made, "crop-pct");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.evaluation_augmentation.resize, 256);
    assert_int_equal(made.plan.evaluation_augmentation.size, 224);
    made.options.image.crop_pct = 0.95; /* 235.78 */
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.evaluation_augmentation.resize, 235);
    made.options.image.crop_pct = 0.05;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_string_equal(made.error.message,
                        "--crop-pct: 0.05 makes the short edge of a crop of 224 pixels 4480; it is at most "
                        "4096 pixels");
    made.options.image.crop_pct = 0.9;
    made.options.image.val_resize_size = 256;
    give(&made, "val-resize-size");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--val-resize-size: does nothing here; it is for evaluation without");
    Case pairs = make_case((Facts){256, 3, false, 1000, true});
    pairs.options.image.crop_pct = 0.9;
    give(&pairs, "crop-pct");
    assert_int_equal(plan_case(&pairs), FSH_ERR_USAGE);
    assert_contains(pairs.error.message, "it is for classes; pairs are evaluated whole");
}

TEST(test_operations_are_drawn_in_training_where_the_cpu_renders_crops)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.views.auto_augment.text = "rand-m6-n3";
    give(&made, "auto-augment");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.auto_augment.kind, AUTO_AUGMENT_RAND);
    assert_int_equal(made.plan.train_augmentation.auto_augment.layers, 3);
    assert_int_equal(made.plan.evaluation_augmentation.auto_augment.kind, AUTO_AUGMENT_NONE);
    made.options.views.auto_augment.text = "rand-w6";
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--auto-augment: section 'w6'");
    made.options.views.auto_augment = (AutoAugment){.text = "ra", .ra_magnitude = 12};
    give(&made, "ra-magnitude");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.auto_augment.ra_magnitude, 12);
    made.options.compute.device = DEVICE_CUDA;
    made.options.data.decode = DECODE_GPU;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_string_equal(made.error.message,
                        "--decode gpu: a GPU has no operations of --auto-augment yet; use "
                        "--decode cpu, or leave --auto-augment out");
}

TEST(test_gray_images_have_no_colours_to_change)
{
    Case made = make_case((Facts){28, 1, true, 1000, false});
    made.options.image.color_jitter = "0.4:0.4:0.2";
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "gray images have no saturation");
    made.options.image.color_jitter = "0.4";
    assert_ok(plan_case(&made), &made.error);
    assert_true(made.plan.train_augmentation.jitter.contrast == 0.4);
}

TEST(test_images_grow_with_the_epochs)
{
    static const uint32_t edges[] = {128, 128, 128, 128, 160, 160, 192, 192, 192};
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.training.epochs = 9;
    made.options.image.progressive = "128:192";
    made.options.image.progressive_epochs = "3:6.5";
    assert_ok(plan_case(&made), &made.error);
    for (uint64_t epoch = 0; epoch < 9; epoch++)
        assert_int_equal(plan_edge(&made.plan, epoch), edges[epoch]);
    assert_int_equal(made.plan.edge_count, 3);
    assert_int_equal(made.plan.edges[0], 128);
    assert_int_equal(made.plan.edges[2], 192);
    assert_int_equal(made.plan.train_augmentation.size, 192);
    made.options.image.progressive = "32:512"; /* an eighth of the last is more than the first */
    made.options.image.train_crop_mode = CROP_PADDED;
    made.options.image.progressive_epochs = NULL;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.padding, 64);
    made.options.image.progressive = "100:192";
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "multiples of 32");
}

/* Sizes of Composer's ProgressiveResizing(initial_scale=0.5, delay_fraction=0.4, finetune_fraction=0.2) at
 * the first step of each epoch. */
TEST(test_images_grow_in_small_steps_as_composers_do)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.training.epochs = 36;
    made.options.image.progressive = "88:176";
    made.options.image.progressive_step = 4;
    made.options.image.progressive_epochs = "14.4:28.8";
    assert_ok(plan_case(&made), &made.error);
    for (uint64_t epoch = 0; epoch < 36; epoch++) {
        const double elapsed = (double)epoch / 36, part = fmin(fmax((elapsed - 0.4) / 0.4, 0), 1);
        const double scale = 0.5 + 0.5 * part;
        assert_int_equal(plan_edge(&made.plan, epoch), (int)(rint(176 * scale / 4) * 4));
    }
    assert_int_equal(made.plan.edge_count, 16);
    made.options.image.progressive = "90:176";
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "multiples of 4");
}

TEST(test_pairs_are_cropped_and_evaluated_whole)
{
    Case made = make_case((Facts){321, 3, false, 60, true});
    assert_ok(plan_case(&made), &made.error);
    assert_string_equal(made.plan.model ? made.plan.model->name : "none", "unet");
    assert_int_equal(made.plan.train_augmentation.mode, CROP_RANDOM);
    assert_int_equal(made.plan.train_augmentation.size, 128);
    assert_int_equal(made.plan.evaluation_augmentation.mode, CROP_WHOLE);
    assert_int_equal(made.plan.evaluation_spec.batch, 1);
    assert_int_equal(made.plan.evaluation_spec.width, 642);
    assert_int_equal(made.plan.recipe.optimizer.kind, OPTIMIZER_ADAMW);
    assert_int_equal(made.plan.recipe.loss, LOSS_CHARBONNIER);
    assert_int_equal(made.plan.main_metric, METRIC_PSNR);
    assert_true(made.plan.recipe.mean[0] == 0 && made.plan.recipe.deviation[0] == 1);
}

TEST(test_one_cycle_rises_by_itself_and_moves_the_momentum)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.schedule.lr_scheduler = SCHEDULE_ONE_CYCLE;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.schedule.warmup_steps, 0);
    assert_true(made.plan.recipe.optimizer.cycles_momentum);
    assert_true(schedule_at(&made.plan.schedule, 0) == made.plan.schedule.base / 25);
    made.options.schedule.cycle_momentum = false;
    assert_ok(plan_case(&made), &made.error);
    assert_false(made.plan.recipe.optimizer.cycles_momentum);
    made.options.schedule.cycle_momentum = true;
    made.options.schedule.base_momentum = 0.96;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--base-momentum: 0.96 is more than --max-momentum, 0.95");
    made.options.schedule.base_momentum = 0.85;
    give(&made, "momentum");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--momentum: does nothing here; it is for runs without");
    made = make_case((Facts){256, 3, false, 1000, false});
    made.options.schedule.lr_scheduler = SCHEDULE_ONE_CYCLE;
    give(&made, "lr-warmup-epochs");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "as one-cycle does");
}

TEST(test_optimizers_have_defaults_of_their_own)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    const Optimizer *o = &made.plan.recipe.optimizer;
    made.options.update.optimizer = OPTIMIZER_RANGER;
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->beta1 == 0.95 && o->beta2 == 0.99 && o->epsilon == 1e-6 && o->weight_decay == 0.01);
    assert_int_equal(o->lookahead_steps, 6);
    made.options.update.lookahead_steps = 4;
    made.options.update.betas = "0.8:0.9";
    give(&made, "lookahead");
    give(&made, "opt-betas");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(o->lookahead_steps, 4);
    assert_true(o->beta1 == 0.8 && o->beta2 == 0.9);
    made = make_case((Facts){256, 3, false, 1000, false});
    made.options.update.optimizer = OPTIMIZER_NADAMW;
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->beta2 == 0.999 && o->weight_decay == 0.05 && made.plan.schedule.base == 0.001);
    assert_int_equal(o->lookahead_steps, 0);
    made.options.update.optimizer = OPTIMIZER_RADAM; /* its decay is part of the gradient */
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->weight_decay == 5e-4);
}

TEST(test_options_that_would_do_nothing_are_refused)
{
    static const struct {
        const char *option, *message;
        bool pairs;
    } cases[] = {
        {"lr-step-size", "--lr-step-size: does nothing here; it is for --lr-scheduler step", false},
        {"opt-betas", "--opt-betas: does nothing here", false},
        {"momentum", "--momentum: does nothing here; it is for --opt sgd, sgdw, lars and muon", true},
        {"label-smoothing", "it is for classes", true},
        {"crop-border", "it is for pairs", false},
        {"model-ema-decay", "it is for --model-ema", false},
        {"scale", "random resized crops", true},
        {"tf32", "it is for --device cuda with --amp off", false},
        {"cudnn-benchmark", "it is for --device cuda", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){256, 3, false, 1000, cases[i].pairs});
        give(&made, cases[i].option);
        assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
        assert_contains(made.error.message, cases[i].message);
    }
}

TEST(test_options_of_evaluation_without_a_split_for_it_are_refused)
{
    static const struct {
        const char *option;
        bool pairs;
    } cases[] = {
        {"val-interval", false}, {"val-batch-size", false}, {"flip-tta", false},
        {"flip-tta", true},      {"crop-border", true},     {"y-channel", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){256, 3, false, 1000, cases[i].pairs});
        give(&made, cases[i].option);
        assert_ok(plan_case(&made), &made.error);
        made.only_trains = true;
        assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
        assert_contains(made.error.message, cases[i].option);
        assert_contains(made.error.message,
                        "does nothing here; it is for a dataset with a split to evaluate");
    }
}

TEST(test_what_does_not_fit_the_kind_of_data_is_refused)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.training.loss = LOSS_L1;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "l1 is for pairs");
    made.options.training.loss = OPTION_AUTO;
    made.options.schedule.early_stop_metric = METRIC_PSNR;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "psnr is measured on pairs");
    made.options.schedule.early_stop_metric = OPTION_AUTO;
    made.options.mixing.mixup_alpha = 0.2;
    made.options.training.batch_size = 33;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--batch-size: 33 is odd");
}

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
    for (int i = 0; i < 5; i++) {
        Case made = make_case((Facts){160, 3, false, 1000, i == 4});
        made.options.compute.device = DEVICE_CUDA;
        made.options.views.interpolation = i == 1 ? INTERPOLATION_BICUBIC : INTERPOLATION_BILINEAR;
        made.options.views.erasing.probability = i >= 2 && i < 4 ? 0.5 : 0;
        made.options.views.erasing.fill = i == 3 ? ERASING_PIXEL : ERASING_CONST;
        made.options.views.noise = i == 4 ? 0.1 : 0;
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(plan_source_is_alike(&made.plan, pixel_source_type("gpu"), 160), i == 0 || i == 2);
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
    static const char *const named[] = {"'norm'", "'norm-add'", "''"};
    for (size_t i = 0; i < 3; i++) {
        char message[256];
        made.options.compute.no_fuse = refused[i];
        assert_int_equal(plan_fusions(&made.plan, &made.options, there, &made.error), FSH_ERR_USAGE);
        (void)snprintf(
            message, sizeof message,
            "--no-fuse: %s is no fusion of the cpu backend; it has norm-relu, norm-add-relu, gradient-add",
            named[i]);
        assert_string_equal(made.error.message, message);
    }
}

/* Batches are each rank's; steps, the samples left over and the learning rate follow from all of them. */
TEST(test_steps_and_learning_rate_follow_from_the_batches_of_all_ranks)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.place = (RankPlace){.rank = 2, .world_size = 3, .local_rank = 2, .local_world = 3};
    made.options.training.batch_size = 32;
    made.options.training.val_batch_size = 50;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.rank, 2);
    assert_int_equal(made.plan.train_spec.batch, 32);
    assert_int_equal(plan_total_batch(&made.plan), 96);
    assert_int_equal(made.plan.steps_per_epoch, 10);
    assert_int_equal(made.plan.evaluation_steps, 7); /* 6 of 150, and 100 */
    assert_true(fabs(made.plan.schedule.base - 0.2 * 96 / 256) < 1e-12);
    assert_int_equal(made.plan.threads, 4); /* --jobs is each rank's */
    made.options.training.batch_size = 334;
    assert_int_equal(plan_case(&made), FSH_ERR_MISMATCH);
    assert_contains(made.error.message,
                    "334 on each of 3 ranks is more than the 1000 training samples; use 333");
}
