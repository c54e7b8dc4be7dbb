/* The plan of the images: their sizes, crops and augmentation. */
#include "tests/trainer/plan_case.h"

#include <math.h>

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

TEST(test_learned_positions_are_of_one_size)
{
    Case made = make_case((Facts){64, 3, true, 1000, false});
    made.options.model = "vit_tiny_patch16";
    made.options.image.train_crop_size = 48;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.evaluation_augmentation.size, 48);
    made.options.image.val_crop_size = 96;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_string_equal(made.error.message,
                        "--val-crop-size: 96 pixels, and vit_tiny_patch16 has learned positions for images "
                        "of 48 x 48 pixels, those of training: use --val-crop-size 48, or --pos-embed "
                        "sincos");
    made.only_trains = true; /* its weights are evaluated by another run, which resamples the positions */
    assert_ok(plan_case(&made), &made.error);
    made.only_trains = false;
    made.options.model = "simplevit_tiny_patch16";
    assert_ok(plan_case(&made), &made.error);
    made.options.model = "vit_tiny_patch16";
    made.options.image.train_crop_size = made.options.image.val_crop_size = 0;
    made.options.image.progressive = "32:64";
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--progressive: vit_tiny_patch16 has learned positions");
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

TEST(test_padding_shows_the_mean)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    assert_ok(plan_case(&made), &made.error);
    const uint8_t expected[] = {128, 64, 255};
    assert_memory_equal(made.plan.fill, expected, sizeof expected);
}

TEST(test_crops_are_resized_as_asked)
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
    assert_ok(plan_case(&made), &made.error);
    made.options.views.interpolation = INTERPOLATION_LANCZOS;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.train_augmentation.interpolation, INTERPOLATION_LANCZOS);
    Case pairs = make_case((Facts){256, 3, false, 1000, true});
    give(&pairs, "interpolation");
    assert_int_equal(plan_case(&pairs), FSH_ERR_USAGE);
    assert_contains(pairs.error.message, "it is for classes and masks; pairs are not resized");
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
    assert_contains(pairs.error.message, "it is for classes; pairs and masks are evaluated whole");
}

TEST(test_operations_are_drawn_in_training)
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
    made.options.compute.device = DEVICE_CUDA; /* which applies them, too */
    made.options.data.decode = DECODE_GPU;
    assert_ok(plan_case(&made), &made.error);
    assert_string_equal(made.plan.source->name, "nvjpeg");
    assert_int_equal(made.plan.train_augmentation.auto_augment.kind, AUTO_AUGMENT_RA);
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
