#include "trainer/data/class_weights.h"
#include "trainer/data/training_data.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

static const DatasetSpec classes_spec = {.codec = FSH_CODEC_RAW,
                                         .width = 24,
                                         .height = 20,
                                         .channels = 3,
                                         .class_count = 4,
                                         .train_count = 30,
                                         .val_count = 12,
                                         .shard_count = 2};
static const DatasetSpec pairs_spec = {.codec = FSH_CODEC_RAW,
                                       .width = 24,
                                       .height = 20,
                                       .channels = 3,
                                       .class_count = 1,
                                       .train_count = 30,
                                       .val_count = 12,
                                       .shard_count = 2,
                                       .kind = FSH_KIND_PAIRS,
                                       .grow = 8};

/* Opens the dataset to train on it. */
static FshStatus open_at(const char *path, FshKind kind, TrainingData *data, FshError *error)
{
    const TrainingDataSource source = {.path = path, .kind = kind, .train_split = "train"};
    return training_data_open(data, &source, error);
}

/* Makes the dataset in the test's folder and opens it. */
static FshStatus open_data(TestFolder *folder, const DatasetSpec *spec, FshKind kind, TrainingData *data,
                           FshError *error)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    return open_at(path, kind, data, error);
}

TEST_IN_FOLDER(test_classes_open_with_their_splits_and_sizes, folder)
{
    TrainingData data;
    FshError error = {0};
    assert_ok(open_data(folder, &classes_spec, FSH_KIND_CLASSES, &data, &error), &error);
    assert_int_equal(data.kind, FSH_KIND_CLASSES);
    assert_int_equal(data.class_count, 4);
    assert_int_equal(data.train->sample_count, 30);
    assert_string_equal(data.evaluation->info->name, "val");
    assert_int_equal(data.input_field, 0);
    assert_int_equal(data.target_field, 0);
    assert_int_equal(data.short_edge, 20);
    assert_false(data.uniform);
    assert_true(data.measured && data.mean[2] == 0.35);
    training_data_close(&data);
    assert_null(data.dataset);
}

TEST_IN_FOLDER(test_pairs_open_with_their_fields_and_sizes, folder)
{
    TrainingData data;
    FshError error = {0};
    assert_ok(open_data(folder, &pairs_spec, FSH_KIND_PAIRS, &data, &error), &error);
    assert_int_equal(data.kind, FSH_KIND_PAIRS);
    assert_int_equal(data.class_count, 0);
    assert_int_equal(data.input_field, 0);
    assert_int_equal(data.target_field, 1);
    assert_string_equal(data.input_name, "blurry");
    assert_string_equal(data.target_name, "sharp");
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.width_min, 24);
    assert_int_equal(data.width_max, 40);
    assert_int_equal(data.height_max, 28);
    training_data_close(&data);
}

/* A shard by itself has no statistics: the images tell. */
TEST_IN_FOLDER(test_pairs_without_a_manifest_are_measured, folder)
{
    TrainingData data;
    FshError error = {0};
    dataset_make(test_path(folder, "set"), &pairs_spec);
    assert_ok(open_at(test_path(folder, "set/train-00000-of-00002.fshard"), FSH_KIND_PAIRS, &data, &error),
              &error);
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.width_min, 0);
    assert_int_equal(data.short_edge, 20);
    assert_false(data.measured);
    assert_int_equal(training_data_check_crop(&data, data.train, 21, &error), FSH_ERR_MISMATCH);
    training_data_close(&data);
}

TEST_IN_FOLDER(test_each_kind_refuses_the_other, folder)
{
    TrainingData data;
    FshError error = {0};
    dataset_make(test_path(folder, "classes"), &classes_spec);
    dataset_make(test_path(folder, "pairs"), &pairs_spec);
    assert_int_equal(open_at(test_path(folder, "pairs"), FSH_KIND_CLASSES, &data, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "holds pairs of images, not classes");
    assert_null(data.dataset);
    assert_int_equal(open_at(test_path(folder, "classes"), FSH_KIND_PAIRS, &data, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "holds classes, not pairs of images");
    assert_contains(error.message, "fpack --pairs");
    assert_null(data.dataset);
    assert_ok(open_at(test_path(folder, "pairs"), 0, &data, &error), &error);
    assert_int_equal(data.kind, FSH_KIND_PAIRS);
    training_data_close(&data);
}

TEST_IN_FOLDER(test_sides_of_super_resolution_are_refused, folder)
{
    const char *path = test_path(folder, "set");
    FshManifest manifest;
    TrainingData data;
    FshError error = {0};
    dataset_make(path, &pairs_spec);
    assert_ok(fsh_manifest_load(&manifest, path, &error), &error);
    manifest.pair_scale = 2;
    assert_ok(fsh_manifest_save(&manifest, path, true, &error), &error);
    fsh_manifest_free(&manifest);
    assert_int_equal(open_at(path, FSH_KIND_PAIRS, &data, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "its 'sharp' is 2 times as large as its 'blurry'");
}

TEST_IN_FOLDER(test_one_class_is_refused, folder)
{
    DatasetSpec spec = classes_spec;
    spec.class_count = 1;
    TrainingData data;
    FshError error = {0};
    assert_int_equal(open_data(folder, &spec, FSH_KIND_CLASSES, &data, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "has 1 class; a classifier needs at least two");
}

TEST_IN_FOLDER(test_splits_of_different_classes_are_refused, folder)
{
    DatasetSpec spec = classes_spec;
    spec.classes_apart = true;
    TrainingData data;
    FshError error = {0};
    assert_int_equal(open_data(folder, &spec, FSH_KIND_CLASSES, &data, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "split 'val' has images of class 'class03', split 'train' has none");
}

TEST_IN_FOLDER(test_a_crop_larger_than_a_pair_names_the_pair, folder)
{
    TrainingData data;
    FshError error = {0};
    assert_ok(open_data(folder, &pairs_spec, FSH_KIND_PAIRS, &data, &error), &error);
    assert_ok(training_data_check_crop(&data, data.train, 20, &error), &error);
    assert_int_equal(training_data_check_crop(&data, data.train, 28, &error), FSH_ERR_MISMATCH);
    /* 0 is 24 x 20, 1 is 32 x 28: the first that allows 28; 3 is 24 x 28. Of six only 1 and 5 do. */
    assert_contains(error.message,
                    "train-00000-of-00002.fshard record 0 (key class00/000000) is 24 x 20 pixels");
    assert_contains(error.message, "too small for a crop of 28 x 28, as are 20 of the split's 30");
    assert_contains(error.message, "--train-crop-size 20 or less");
    training_data_close(&data);
}

TEST_IN_FOLDER(test_a_crop_larger_than_a_classs_image_is_no_matter, folder)
{
    TrainingData data;
    FshError error = {0};
    assert_ok(open_data(folder, &classes_spec, FSH_KIND_CLASSES, &data, &error), &error);
    assert_ok(training_data_check_crop(&data, data.train, 224, &error), &error);
    training_data_close(&data);
}

TEST_IN_FOLDER(test_a_split_that_is_not_there_is_named_with_those_that_are, folder)
{
    TrainingData data;
    FshError error = {0};
    dataset_make(test_path(folder, "set"), &pairs_spec);
    assert_int_equal(
        training_data_open(&data,
                           &(TrainingDataSource){.path = test_path(folder, "set"), .train_split = "training"},
                           &error),
        FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "has no split 'training'; it has: train, val");
}

/* ---- weights of classes ---- */

static const DatasetSpec seven = {.codec = FSH_CODEC_RAW,
                                  .width = 16,
                                  .height = 16,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 7,
                                  .val_count = 4,
                                  .shard_count = 1};

/* scikit-learn: compute_class_weight("balanced", classes=range(4), y=[0, 1, 2, 3, 0, 1, 2]). */
TEST_IN_FOLDER(test_balanced_weights_are_those_of_scikit_learn, folder)
{
    const char *path = test_path(folder, "set");
    TrainingData data;
    FshError error = {0};
    float *weights = NULL;
    dataset_make(path, &seven);
    assert_ok(open_at(path, FSH_KIND_CLASSES, &data, &error), &error);
    assert_ok(class_weights_make(&weights, CLASS_WEIGHTS, "balanced", &data, &error), &error);
    assert_memory_equal(weights, ((const float[]){0.875F, 0.875F, 0.875F, 1.75F}), 4 * sizeof *weights);
    free(weights);
    /* The network's classes are others, in another order: two of them are not in the dataset. */
    static const int32_t places[] = {5, 3, 1, 0};
    data.label_places = places;
    data.class_count = 6;
    assert_ok(class_weights_make(&weights, CLASS_WEIGHTS, "balanced", &data, &error), &error);
    assert_memory_equal(weights, ((const float[]){1.75F, 0.875F, 1, 0.875F, 1, 0.875F}), 6 * sizeof *weights);
    free(weights);
    data.class_count = 4;
    training_data_close(&data);
}

TEST_IN_FOLDER(test_weights_are_read_by_name_or_place, folder)
{
    static const struct {
        const char *text, *message;
    } files[] = {
        {"class00 1\nclass01 2\nclass02 0\nclass03 0.5\n", NULL},
        {"class03,0.5\nclass01,2\nclass00,1\nclass02,0\nclass99,7\n", NULL},
        {"class00\t1\nclass01\t2\nclass02\t0\nclass03\t5e-1\n", NULL},
        {"1\n2\n0\n0.5\n", NULL},
        {"class00 1\nclass01 2\nclass03 0.5\n", "has no weight for class 'class02'"},
        {"1\n2\n-1\n0.5\n", "the weight of class 'class02' is '-1', not a number from 0 to 1e+06"},
        {"1\n2\nnan\n0.5\n", "the weight of class 'class02' is 'nan', not a number"},
        {"1\n2\n0x\n0.5\n", "the weight of class 'class02' is '0x', not a number"},
        {"0\n0\n0\n0\n", "every weight is 0"},
        {"1\n2\n", "weights.txt"},
        {"", "weights.txt"},
    };
    static const float expected[] = {1, 2, 0, 0.5F};
    const char *path = test_path(folder, "set"), *file = test_path(folder, "weights.txt");
    TrainingData data;
    FshError error = {0};
    dataset_make(path, &seven);
    assert_ok(open_at(path, FSH_KIND_CLASSES, &data, &error), &error);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        float *weights = NULL;
        test_file_write_text(file, files[i].text);
        const FshStatus status = class_weights_make(&weights, CLASS_WEIGHTS, file, &data, &error);
        if (files[i].message) {
            assert_int_not_equal(status, FSH_OK);
            assert_null(weights);
            assert_contains(error.message, "--class-weights: ");
            assert_contains(error.message, files[i].message);
        } else {
            assert_ok(status, &error);
            assert_memory_equal(weights, expected, sizeof expected);
        }
        free(weights);
    }
    training_data_close(&data);
}
