/* What ftrain --export-onnx refuses, and what it leaves. That the file computes what ftrain does is
 * onnx_runtime_test's to say. */
#include <unistd.h>

#include "tests/programs/train_support.h"

/* Trains a small network and returns its weights. */
static const char *train(TestFolder *folder)
{
    TRAINED("--model", "conv8", "--epochs", "1", pack_colours(folder, 8, 2), test_path(folder, "a"));
    return test_path(folder, "a/last.safetensors");
}

TEST_IN_FOLDER(test_weights_alone_make_an_onnx_file, folder)
{
    const char *weights = train(folder), *file = test_path(folder, "new/conv8.onnx");
    RunResult result = TRAIN(0, "--export-onnx", file, "--weights", weights);
    assert_contains(result.out, "conv8.onnx: conv8, input [batch, 3, 32, 32], logits [batch, 3]; opset 17");
    run_result_free(&result);
    size_t bytes = 0;
    free(test_file_read(file, &bytes));
    result = TRAIN(0, "--export-onnx", file, "--weights", weights, "--force", "--json");
    json_t *told = read_json(result.out);
    assert_int_equal(number_of(told, "bytes"), bytes);
    assert_int_equal(number_of(told, "classes"), 3);
    assert_int_equal(number_of(told, "val_crop_size"), 32);
    json_decref(told);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_file_that_is_there_stays_without_force, folder)
{
    const char *weights = train(folder), *file = test_path(folder, "conv8.onnx");
    test_file_write(file, "mine", 4);
    SAYS(1, "conv8.onnx: exists; --force replaces it", "--export-onnx", file, "--weights", weights);
    char *text = test_file_read(file, NULL);
    assert_string_equal(text, "mine");
    free(text);
    TRAINED("--export-onnx", file, "--weights", weights, "--force");
}

/* Nothing else that is asked for, and no option that would do nothing, is passed over. */
TEST_IN_FOLDER(test_what_an_export_does_not_read_is_refused, folder)
{
    const char *weights = train(folder), *shards = test_path(folder, "shards");
    const char *file = test_path(folder, "conv8.onnx");
#define EXPORT "--export-onnx", file, "--weights", weights
    SAYS(2, "--export-onnx needs --weights FILE", "--export-onnx", file);
    SAYS(2, "shards': --export-onnx reads no images; leave SHARDS out", EXPORT, shards);
    SAYS(2, "--evaluate: not together with --export-onnx; give one of them", EXPORT, "--evaluate");
    SAYS(2, "--export-onnx: not together with --predict; give one of them", EXPORT, "--predict", "x");
    SAYS(2, "--export-onnx: not together with --export; give one of them", EXPORT, "--export", "x");
    SAYS(2, "--dry-run: not together with --export-onnx; give one of them", EXPORT, "--dry-run");
    SAYS(2, "--device: does nothing with --export-onnx", EXPORT, "--device", "cpu");
    SAYS(2, "--flip-tta: does nothing with --export-onnx", EXPORT, "--flip-tta");
    SAYS(2, "--recipe: does nothing with --export-onnx", EXPORT, "--recipe", "rsb-a3");
    SAYS(2, "--seeds: does nothing with --export-onnx; it is for training", EXPORT, "--seeds", "2");
#undef EXPORT
    assert_int_equal(access(file, F_OK), -1);
}

TEST_IN_FOLDER(test_weights_of_other_programs_want_their_network_and_size, folder)
{
    const char *weights = train(folder), *file = test_path(folder, "conv8.onnx");
    forget_checksums(weights);
    replace_in_file(weights, "\"model\":\"conv8\"", "\"modem\":\"conv8\"");
    replace_in_file(weights, "\"shape\":", "\"shaqe\":");
    SAYS(2, "these weights do not name their network; name it with --model", "--export-onnx", file,
         "--weights", weights);
    SAYS(2, "do not say of which size their images are; give --val-crop-size", "--export-onnx", file,
         "--weights", weights, "--model", "conv8");
    SAYS(1, "these are weights of conv8; say --model conv8", "--export-onnx", file, "--weights", weights,
         "--model", "resnet9", "--val-crop-size", "32");
    assert_int_equal(access(file, F_OK), -1);
    TRAINED("--export-onnx", file, "--weights", weights, "--model", "conv8", "--val-crop-size", "32");
}

TEST_IN_FOLDER(test_a_restorer_has_no_size, folder)
{
    const char *shards = make_set(folder, &train_negatives), *file = test_path(folder, "unet.onnx");
    TRAINED("--model", "unet", "--width", "4", "--epochs", "1", "--train-crop-size", "16", shards,
            test_path(folder, "a"));
    const char *weights = test_path(folder, "a/last.safetensors");
    SAYS(2, "--val-crop-size: unet takes images of any size; leave it out", "--export-onnx", file,
         "--weights", weights, "--val-crop-size", "32");
    RunResult result = TRAIN(0, "--export-onnx", file, "--weights", weights);
    assert_contains(result.out, "unet, input [batch, 3, height, width] of any size; opset 17");
    run_result_free(&result);
}
