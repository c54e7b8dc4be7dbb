/* ftrain --profile from outside. */
#include <string.h>

#include "tests/programs/train_support.h"

/* Measured steps learn what the others do: on the CPU the same bits. */
TEST_IN_FOLDER(test_a_profile_is_written_and_changes_nothing, folder)
{
    const char *shards = make_set(folder, &train_plain);
    TRAINED("--model", "conv8", "--epochs", "2", "-b", "8", shards, test_path(folder, "a"));
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "2", "-b", "8", "--profile", "4", shards,
                             test_path(folder, "b"));
    assert_same_file(folder, "a", "b", true);
    assert_contains(result.err, "profile: a step is ");
    assert_contains(result.err, "b/PROFILE.txt has the layers");
    run_result_free(&result);
    size_t length = 0;
    char *text = test_file_read(test_path(folder, "b/PROFILE.txt"), &length);
    assert_contains(text, "conv8, 4 steps of 8 images of 32 x 32 pixels, f32: steps 3 to 6 of the run\n");
    assert_contains(text, "GB/s (measured: a copy, read and written)");
    assert_contains(text, "Steps that were not measured took ");
    assert_contains(text, "conv2d_backward_weight");
    assert_contains(text, "  update ");
    assert_contains(text, "  all\n");
    free(text);
    /* It is of that run: --force removes it. */
    TRAINED("--model", "conv8", "--epochs", "1", "--force", shards, test_path(folder, "b"));
    assert_int_equal(test_count_files(test_path(folder, "b")), test_count_files(test_path(folder, "a")));
}

TEST_IN_FOLDER(test_a_profile_of_the_first_steps_and_of_all, folder)
{
    const char *shards = make_set(folder, &train_plain);
    TRAINED("--model", "conv8", "--epochs", "1", "-b", "8", "--profile", "5", shards,
            test_path(folder, "out"));
    size_t length = 0;
    char *text = test_file_read(test_path(folder, "out/PROFILE.txt"), &length);
    assert_contains(text, ": steps 0 to 4 of the run\n");
    assert_null(strstr(text, "Steps that were not measured"));
    free(text);
}

TEST_IN_FOLDER(test_a_profile_that_cannot_be_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(1, "--profile: 6 is more than the 5 steps of all epochs", out, "--model", "conv8", "--epochs",
            "1", "-b", "8", "--profile", "6", shards);
    SAYS(2, "--profile: does nothing with --dry-run; it is for training", "--dry-run", "--profile", "2",
         shards);
    SAYS(2, "--profile: does nothing with --bench-loader; it is for training", "--bench-loader", "--profile",
         "2", shards);
}

/* Layers that are one with fusion are two without. */
TEST_IN_FOLDER(test_fusions_left_out_show_in_the_profile, folder)
{
    const char *shards = make_set(folder, &train_plain);
    static const char *const outs[] = {"fused", "apart"};
    for (int apart = 0; apart < 2; apart++) {
        size_t length = 0;
        if (apart)
            TRAINED("--model", "resnet9", "--epochs", "1", "--profile", "1", "--no-fuse", "norm-relu", shards,
                    test_path(folder, "apart"));
        else
            TRAINED("--model", "resnet9", "--epochs", "1", "--profile", "1", shards,
                    test_path(folder, "fused"));
        char *text = test_file_read(test_path(folder, "%s/PROFILE.txt", outs[apart]), &length);
        assert_int_equal(strstr(text, "  relu_backward ") != NULL, apart);
        free(text);
    }
    REFUSED(2, "--no-fuse: 'norm' is no fusion; the cpu backend has norm-relu", test_path(folder, "out"),
            "--device", "cpu", "--no-fuse", "norm", shards);
}
