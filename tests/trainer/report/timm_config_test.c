#include "trainer/report/timm_config.h"

#include <jansson.h>
#include <math.h>

#include "tests/support/support.h"

static const double mean[] = {0.5, 0.25, 0.125}, deviation[] = {0.1, 0.2, 0.3};
static const char *const names[] = {"cat", "dog \"<b>\" \xff"};

static json_t *write_and_read(TestFolder *folder, const TimmConfig *config)
{
    const char *path = test_path(folder, "config.json");
    FshError error = {0};
    assert_ok(timm_config_write(config, path, &error), &error);
    json_t *object = json_load_file(path, 0, NULL);
    assert_non_null(object);
    return object;
}

static TimmConfig example(void)
{
    return (TimmConfig){.architecture = "resnet50",
                        .classes = 2,
                        .class_names = names,
                        .channels = 3,
                        .height = 224,
                        .width = 224,
                        .resize_px = 256,
                        .interpolation = "bilinear",
                        .mean = mean,
                        .deviation = deviation};
}

TEST_IN_FOLDER(test_a_network_that_timm_has_is_told_in_full, folder)
{
    const TimmConfig config = example();
    json_t *object = write_and_read(folder, &config),
           *expected = json_loads("{\"architecture\": \"resnet50\", \"num_classes\": 2, \"num_features\": "
                                  "2048, \"label_names\": [\"cat\", \"dog "
                                  "\\\"<b>\\\" ?\"], \"pretrained_cfg\": {\"input_size\": [3, 224, 224], "
                                  "\"mean\": [0.5, 0.25, 0.125], \"std\": [0.1, 0.2, "
                                  "0.3], \"crop_pct\": 0.875, \"crop_mode\": \"center\", \"interpolation\": "
                                  "\"bilinear\", \"fixed_input_size\": false, "
                                  "\"num_classes\": 2, \"first_conv\": \"conv1\", \"classifier\": \"fc\"}}",
                                  0, NULL);
    assert_non_null(expected);
    assert_true(json_equal(object, expected));
    json_decref(object);
    json_decref(expected);
}

TEST_IN_FOLDER(test_others_are_told_without_what_is_not_known, folder)
{
    TimmConfig config = example();
    config.architecture = "unet";
    config.classes = 0;
    config.class_names = NULL;
    config.channels = 1;
    config.resize_px = 0;
    json_t *object = write_and_read(folder, &config);
    const json_t *pretrained = json_object_get(object, "pretrained_cfg");
    assert_null(json_object_get(object, "num_features"));
    assert_null(json_object_get(object, "label_names"));
    assert_int_equal(json_array_size(json_object_get(pretrained, "mean")), 1);
    assert_true(json_number_value(json_object_get(pretrained, "crop_pct")) == 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(object, "model_args"), "in_chans")),
                     1);
    json_decref(object);
}

/* timm computes floor(crop / crop_pct). */
TEST_IN_FOLDER(test_the_resize_edge_comes_back_exactly, folder)
{
    TimmConfig config = example();
    for (uint32_t crop = 28; crop <= 224; crop += 28)
        for (config.resize_px = crop + 1; config.resize_px < crop + 60; config.resize_px++) {
            config.height = config.width = crop;
            json_t *object = write_and_read(folder, &config);
            const double part =
                json_number_value(json_object_get(json_object_get(object, "pretrained_cfg"), "crop_pct"));
            assert_int_equal((int)floor(crop / part), config.resize_px);
            json_decref(object);
        }
}
