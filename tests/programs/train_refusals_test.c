/* ftrain from outside: what it refuses, before anything is written. */
#include "tests/programs/train_support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

static bool permissions_bind;

TEST_IN_FOLDER(test_weights_of_another_network_are_refused, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *out = test_path(folder, "b");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    const char *weights = test_path(folder, "a/last.safetensors");
    REFUSED(1, "a/last.safetensors: these are weights of conv8; say --model conv8", out, "--weights", weights,
            shards);
    REFUSED(1, "it holds the state of a run; last.safetensors beside it has weights", out, "--weights",
            test_path(folder, "a/checkpoint.safetensors"), shards);
    test_file_write(test_path(folder, "a.pth"), "PK\3\4archive/data.pkl", 20);
    REFUSED(1, "a.pth: a file of torch.save; convert it: python3 -m fshard.convert", out, "--weights",
            test_path(folder, "a.pth"), shards);
    test_file_truncate(weights, -5);
    REFUSED(1, "last.safetensors: ", out, "--model", "conv8", "--weights", weights, shards);
    REFUSED(1, "No such file", out, "--model", "conv8", "--weights", test_path(folder, "none"), shards);
}

TEST_IN_FOLDER(test_weights_that_nearly_fit_are_refused, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *out = test_path(folder, "b");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    const char *weights = test_path(folder, "a/last.safetensors");
    REFUSED(1, "model.33.weight is [3, 128], the network has [3, 512]", out, "--model", "conv8",
            "--train-crop-size", "64", "--weights", weights, shards);
    forget_checksums(weights);
    replace_in_file(weights, "\"model.1.weight\":{\"dtype\":\"F32\"",
                    "\"model.1.weight\":{\"dtype\":\"I32\"");
    REFUSED(1, "model.1.weight is I32; weights are floating-point numbers", out, "--model", "conv8",
            "--weights", weights, shards);
    replace_in_file(weights, "\"model.1.weight\":{\"dtype\":\"I32\"",
                    "\"model.1.weight\":{\"dtype\":\"F32\"");
    /* A counter by another name is a tensor that the network does not have. */
    replace_in_file(weights, "model.2.num_batches_tracked", "model.2.num_batches_counted");
    REFUSED(1, "the network has no tensor model.2.num_batches_counted", out, "--model", "conv8", "--weights",
            weights, shards);
}

TEST_IN_FOLDER(test_a_backend_that_cannot_be_loaded_is_told, folder)
{
    const char *shards = pack_colours(folder, 8, 2);
    test_file_write_text(test_path(folder, "plugins/libfshard-cpu.so"), "no library");
    (void)setenv("FSHARD_PLUGINS", test_path(folder, "plugins"), 1);
    REFUSED(1, "cpu: cannot load a plugin: ", test_path(folder, "out"), "--device", "cpu", "--model", "conv8",
            shards);
    (void)unsetenv("FSHARD_PLUGINS");
}

TEST_IN_FOLDER(test_a_missing_dataset_is_refused, folder)
{
    REFUSED(1, "No such file", test_path(folder, "out"), test_path(folder, "none"));
}

TEST_IN_FOLDER(test_pairs_for_a_classifier_are_refused, folder)
{
    DatasetSpec pairs = train_plain;
    pairs.kind = FSH_KIND_PAIRS;
    REFUSED(1, "holds pairs of images", test_path(folder, "out"), "--model", "resnet18",
            make_set(folder, &pairs));
}

TEST_IN_FOLDER(test_classes_for_a_restorer_are_refused, folder)
{
    REFUSED(1, "pairs", test_path(folder, "out"), "--model", "unet", make_set(folder, &train_plain));
}

TEST_IN_FOLDER(test_one_class_is_refused, folder)
{
    DatasetSpec spec = train_plain;
    spec.class_count = 1;
    REFUSED(1, "at least two class folders", test_path(folder, "out"), make_set(folder, &spec));
}

TEST_IN_FOLDER(test_splits_of_different_classes_are_refused, folder)
{
    DatasetSpec spec = train_plain;
    spec.classes_apart = true;
    REFUSED(1, "split 'val' has images of class 'class03', split 'train' has none", test_path(folder, "out"),
            make_set(folder, &spec));
}

/* In an LMDB: the labels of shards stand in their index, too, which fsh_open checks. */
TEST_IN_FOLDER(test_a_label_out_of_range_is_refused_with_its_place, folder)
{
    enum { LABEL_AT = 16 }; /* in a record, fshard(5) */
    (void)pack_colours(folder, 4, 2);
    const char *set = test_path(folder, "lmdb"), *file = test_path(folder, "lmdb/train.lmdb/data.mdb");
    RunResult result =
        run_program(NULL, "fpack", "-q", "--format", "lmdb", test_path(folder, "images"), set, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    size_t length = 0;
    char *bytes = test_file_read(file, &length), *record = memmem(bytes, length, "FREC", 4);
    assert_non_null(record);
    assert_in_range(record[LABEL_AT], 0, COLOURS - 1);
    record[LABEL_AT] = COLOURS;
    test_file_write(file, bytes, length);
    free(bytes);
    REFUSED(1, "label 3 in a dataset of 1 fields and 3 classes", test_path(folder, "out"), "--model", "conv8",
            set);
}

TEST_IN_FOLDER(test_a_missing_split_is_refused_by_name, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(1, "has no split 'validation'; it has: train, val", out, "--val-split", "validation", shards);
    REFUSED(1, "has no split 'all'; it has: train, val", out, "--train-split", "all", shards);
}

TEST_IN_FOLDER(test_fewer_samples_than_a_batch_are_refused, folder)
{
    REFUSED(1, "--batch-size: 41 is more than the 40 training samples; use 40 or less",
            test_path(folder, "out"), "--batch-size", "41", make_set(folder, &train_plain));
}

TEST_IN_FOLDER(test_a_model_that_does_not_fit_the_images_is_refused, folder)
{
    REFUSED(1, "ftrain: images of 2 x 2 pixels: conv8: model.", test_path(folder, "out"), "--model", "conv8",
            "--train-crop-size", "2", "--val-crop-size", "2", make_set(folder, &train_plain));
}

TEST_IN_FOLDER(test_an_unknown_model_is_refused_with_the_known_ones, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(2, "--model: 'lenet' is none of the networks; --list-models lists them", out, "--model", "lenet",
            shards);
    REFUSED(2, "--model: 'resnet19' is none of the networks; did you mean resnet9 or resnet18? --list-models",
            out, "--model", "resnet19", shards);
    REFUSED(2, "did you mean resnet50? --list-models", out, "--model", "ResNet-50", shards);
}

TEST_IN_FOLDER(test_options_that_contradict_are_usage_errors, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(2, "--lr-warmup-epochs: 3 leaves nothing of 3 epochs", out, "--epochs", "3", "--lr-warmup-epochs",
            "3", shards);
    REFUSED(2, "--scale: '0.5' is not MIN:MAX", out, "--scale", "0.5", shards);
    REFUSED(2, "--scale: '0.9:0.1' is not MIN:MAX", out, "--scale", "0.9:0.1", shards);
    REFUSED(2, "--scale: '35%:110%' is not MIN:MAX", out, "--scale", "35%:110%", shards);
    REFUSED(2, "--scale: '35%%:1' is not MIN:MAX", out, "--scale", "35%%:1", shards);
    REFUSED(2, "--ratio: '50%:1' is not MIN:MAX", out, "--ratio", "50%:1", shards); /* is no share */
    SAYS(0, "random resized crop (scale 0.35 to 0.9, ", "--dry-run", "--train-crop-mode", "rrc", "--scale",
         "35%:90%", shards);
    REFUSED(2, "--ratio: '1:x' is not MIN:MAX", out, "--ratio", "1:x", shards);
    REFUSED(2, "--val-resize-size: 20 is less than the crop of 30", out, "--val-resize-size", "20",
            "--val-crop-size", "30", shards);
    REFUSED(2, "--crop-padding: 32 is not less than the crop", out, "--crop-padding", "32", shards);
    REFUSED(2, "--evaluate needs --weights", out, "--evaluate", shards);
    SAYS(2, "--dry-run: not together with --predict", "--dry-run", "--weights", "w", "--predict", out,
         shards);
    SAYS(2, "--bench-loader: not together with --evaluate", "--bench-loader", "--evaluate", shards);
    SAYS(2, "--resume: does nothing with --bench-loader; it is for training", "--bench-loader", "--resume",
         "auto", shards);
    REFUSED(2, "SHARDS and OUTPUT are known already", out, "--shards", shards, "--output", out, "third");
    REFUSED(2, "--gpus: 'two' is neither a number from 1 to 256, nor all, nor a list", out, "--gpus", "two",
            shards);
    REFUSED(2, "GPU 0 alone is --gpus 0,", out, "--gpus", "0", shards);
    SAYS(2, "--bench-loader: is for one process; use --gpus 1", "--gpus", "2", "--bench-loader", shards);
    SAYS(2, "--bench-loader: is for one process; use --gpus 1", "--gpus", "0,2", "--bench-loader", shards);
    REFUSED(2, "--gpus: '0,2' says which GPUs, and --device cpu takes none", out, "--gpus", "0,2", "--device",
            "cpu", shards);
    REFUSED(2, "--gpus: 'all' says which GPUs", out, "--gpus", "all", "--device", "cpu", shards);
    REFUSED(2, "--device: 'gpu' is not one of: auto, cpu, cuda; cuda is the name\n", out, "--device", "gpu",
            shards);
    REFUSED(2, "--gpu: no such option; CUDA_VISIBLE_DEVICES says which", out, "--gpu", "0", shards);
    REFUSED(2, "with --world-size each process is one", out, "--gpus", "2", "--device", "cpu", "--world-size",
            "2", "--rank", "0", "--master-addr", "127.0.0.1", shards);
    REFUSED(2, "ftrain: --rank is missing", out, "--world-size", "2", shards);
    REFUSED(2, "--num-machines: no such option; ftrain calls it --nnodes", out, "--num-machines", "2",
            shards);
    REFUSED(2, "--num-gpus: no such option; ftrain calls it --gpus", out, "--num-gpus", "2", shards);
    REFUSED(2, "--betas: no such option; ftrain calls it --opt-betas", out, "--betas", "0.9,0.999", shards);
    REFUSED(2, "--epochs: '0' is not a whole number", out, "--epochs", "0", shards);
}

TEST_IN_FOLDER(test_cuda_on_a_machine_without_it_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = run_program(NULL, "ftrain", "--model", "conv8", "--epochs", "1", "--device", "cuda",
                                   shards, out, NULL);
    bool there = result.exit_status == 0;
    if (!there) {
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, "ftrain: ");
        assert_contains(result.err, "cuda");
        assert_contains(result.err, "--device cpu"); /* what to do */
        assert_int_equal(test_count_files(out), 0);
        run_result_free(&result);
        /* Said before an output that cannot be used either. */
        test_file_write_text(test_path(folder, "out/note.txt"), "mine");
        result = TRAIN(1, "--model", "conv8", "--device", "cuda", shards, out);
        assert_contains(result.err, "--device cpu");
    }
    run_result_free(&result);
    if (there)
        skip();
}

TEST_IN_FOLDER(test_an_output_that_exists_is_refused_without_force, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *note = test_path(folder, "out/note.txt"),
               *stale = test_path(folder, "out/model_best.safetensors");
    test_file_write_text(note, "mine");
    test_file_write_text(stale, "of an earlier run");
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "1", shards, out);
    assert_contains(result.err, "out: exists and is not empty");
    assert_contains(result.err, "--force");
    assert_int_equal(test_count_files(out), 2);
    run_result_free(&result);

    result = TRAIN(0, "--model", "conv8", "--epochs", "1", "--force", shards, out);
    run_result_free(&result);
    char *text = test_file_read(note, NULL);
    assert_string_equal(text, "mine");
    free(text);
    assert_true(test_file_size(stale) > 1000);
    assert_int_equal(test_count_files(out), 9 + REPORT_FILES);

    result = TRAIN(1, "--model", "conv8", shards, note);
    assert_contains(result.err, "note.txt: is a file");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_the_dataset_is_checked_before_the_output, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "out/note.txt"), "mine");
    RunResult result = TRAIN(1, "--model", "conv8", out, shards); /* swapped */
    assert_contains(result.err, "dataset.json");
    assert_contains_not(result.err, "--force");
    run_result_free(&result);

    for (int forced = 0; forced < 2; forced++) { /* --force replaces runs, not datasets */
        result = TRAIN(1, forced ? "--force" : "--quiet", "--model", "conv8", shards, shards);
        assert_contains(result.err,
                        "it is a dataset, not an output folder; the order is ftrain SHARDS OUTPUT");
        assert_contains_not(result.err, "--force");
        run_result_free(&result);
    }

    result = TRAIN(1, "--model", "conv8", "--batch-size", "41", shards, out);
    assert_contains(result.err, "--batch-size: 41");
    run_result_free(&result);

    result = TRAIN(0, "--dry-run", "--model", "conv8", shards, out);
    assert_contains(result.err, "warning: ");
    assert_contains(result.err, "out: exists and is not empty");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_an_option_of_another_network_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(2, "--dry-run", "--model", "resnet9", "--drop-path", "0.1", shards, out);
    assert_contains(result.err, "--drop-path: resnet9 has none; resnet18 to ");
    assert_contains(result.err, " have it");
    assert_contains_not(result.err, "pixels");
    run_result_free(&result);
    REFUSED(2, "--depth: conv8 has none; pyramidnet has it", out, "--model", "conv8", "--depth", "110",
            shards);
}

TEST_IN_FOLDER(test_images_in_no_class_folder_are_refused, folder)
{
    static const char looked_for[] = "no images in class folders (CLASS/x.jpg or train/CLASS/x.jpg)";
    const char *out = test_path(folder, "out");
    (void)pack_colours(folder, 4, 1);
    REFUSED(1, looked_for, out, test_path(folder, "images/train/red"));
    test_file_write_text(test_path(folder, "empty/red/notes.txt"), "no image");
    REFUSED(1, looked_for, out, test_path(folder, "empty"));
}

/* Nothing is made in there, nor is it where the folder is reached by a link. */
TEST_IN_FOLDER(test_an_output_among_class_folders_is_refused, folder)
{
    static const char taken[] = "where it would be taken for a class; choose a folder outside";
    (void)pack_colours(folder, 8, 2);
    const char *images = test_path(folder, "images"), *inside = test_path(folder, "images/out"),
               *linked = test_path(folder, "link/new/out"), *shards = test_path(folder, "shards");
    assert_int_equal(symlink(images, test_path(folder, "link")), 0);
    REFUSED(2, taken, inside, "--model", "conv8", images);
    REFUSED(2, taken, inside, "--dry-run", "--model", "conv8", images);
    REFUSED(2, taken, linked, "--model", "conv8", images);
    assert_false(file_exists(test_path(folder, "images/new")));
    SAYS(2, taken, "--model", "conv8", "--force", images, images);
    assert_true(file_exists(test_path(folder, "images/train/red/000.jpg")));
    TRAINED("--model", "conv8", "--epochs", "1", shards, inside); /* the shards are elsewhere */
}

/* fpack would not pack the dataset again with a folder of another program there. */
TEST_IN_FOLDER(test_an_output_in_a_packed_dataset_is_refused, folder)
{
    static const char taken[] = "which is to hold the dataset alone; choose a folder outside";
    const char *shards = make_set(folder, &train_plain), *inside = test_path(folder, "set/run"),
               *outside = test_path(folder, "run"), *other = test_path(folder, "other");
    DatasetSpec spec = train_plain;
    spec.other_byte = true;
    dataset_make(other, &spec);
    REFUSED(2, taken, inside, "--model", "conv8", shards);
    REFUSED(2, taken, inside, "--dry-run", "--model", "conv8", shards);
    REFUSED(2, taken, test_path(folder, "other/run"), "--model", "conv8", shards, other);
    /* A run that is there, by a version that did not refuse it, goes on. */
    TRAINED("--model", "conv8", "--epochs", "1", shards, outside);
    assert_int_equal(rename(outside, inside), 0);
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "1", "--resume", "auto", shards, inside);
}

/* Links the images of a colour below images/train to those of a side below pairs. */
static void link_side(TestFolder *folder, const char *colour, const char *side, const char *names)
{
    enum { IMAGES = 8 };
    for (int i = 0; i < IMAGES; i++) {
        const char *to = test_path(folder, "pairs/train/%s/%s%d.jpg", side, names, i);
        FshError error = {0};
        assert_ok(file_make_parent_folders(to, &error), &error);
        assert_int_equal(link(test_path(folder, "images/train/%s/%03d.jpg", colour, i), to), 0);
    }
}

TEST_IN_FOLDER(test_pairs_that_look_like_classes_are_warned_about, folder)
{
    static const char warning[] =
        "warning: the classes 'blurry' and 'sharp' hold files of the same names; for "
        "image pairs: fpack --pairs blurry:sharp";
    (void)pack_colours(folder, 8, 2);
    const char *pairs = test_path(folder, "pairs");
    link_side(folder, "red", "blurry", "seq01/");
    link_side(folder, "green", "sharp", "seq01/");
    SAYS(0, warning, "--dry-run", "--model", "conv8", pairs);
    link_side(folder, "red", "blurry", "a");
    link_side(folder, "green", "sharp", "b"); /* half of them are no pairs now */
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", pairs);
    assert_contains_not(result.err, "fpack --pairs");
    run_result_free(&result);
}

/* Folders of images that are called as splits are no classes, whatever their letters; names of classes in
 * splits are. */
TEST_IN_FOLDER(test_splits_without_classes_are_warned_about, folder)
{
    static const char *const moves[][2] = {{"images/train/red", "images/train/Test"},
                                           {"images/train/green", "images/train/Val"},
                                           {"images/train/blue", "blue"},
                                           {"images/val/red", "images/val/Test"},
                                           {"images/val/green", "images/val/Val"},
                                           {"images/val/blue", "green"}};
    const char *images = test_path(folder, "images");
    (void)pack_colours(folder, 8, 2);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        assert_int_equal(rename(test_path(folder, moves[i][0]), test_path(folder, moves[i][1])), 0);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", images);
    assert_contains_not(result.err, "is taken for a class");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--model", "conv8", test_path(folder, "images/train"));
    assert_contains(result.err, "'Test' is taken for a class, of which all its images are; if it is a split, "
                                "call the folder test, in small letters, and put its images into folders of "
                                "their classes\n");
    run_result_free(&result);
    assert_int_equal(rename(test_path(folder, "images/train/Test"), test_path(folder, "images/train/test")),
                     0);
    result = TRAIN(0, "--dry-run", "--model", "conv8", test_path(folder, "images/train"));
    assert_contains(result.err, "'test' is taken for a class, of which all its images are; if it is a split, "
                                "put its images into folders of their classes\n");
    run_result_free(&result);
}

/* As by fpack. A class that is called Test and has images in it is one, beside a class. */
TEST_IN_FOLDER(test_splits_in_capitals_are_warned_about, folder)
{
    (void)pack_colours(folder, 8, 2);
    const char *images = test_path(folder, "images");
    assert_int_equal(rename(test_path(folder, "images/train"), test_path(folder, "images/TRAIN")), 0);
    REFUSED(1,
            "images/TRAIN: its images lie beside val/, in no split; if it is one, call the folder train, in "
            "small letters",
            test_path(folder, "run"), "--model", "conv8", images);
    assert_int_equal(rename(test_path(folder, "images/val"), test_path(folder, "images/Val")), 0);
    assert_int_equal(rename(test_path(folder, "images/Val/red"), test_path(folder, "images/Test")), 0);
    assert_int_equal(rename(test_path(folder, "images/Val/green"), test_path(folder, "images/green")), 0);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", images);
    assert_contains(result.err,
                    "images: 'TRAIN' is taken for a class, of which all its images are; if it is a "
                    "split, call the folder train, in small letters\n");
    assert_contains(result.err, "images: 'Val' is taken for a class, of which all its images are; if it is a "
                                "split, call the folder val, in small letters\n");
    assert_contains_not(result.err, "'Test'");
    assert_contains_not(result.err, "fpack --pairs");
    run_result_free(&result);
    assert_int_equal(rename(test_path(folder, "images/green"), test_path(folder, "green")), 0);
    SAYS(0, "images: 'Test' is taken for a class", "--dry-run", "--model", "conv8", images);
    assert_int_equal(rename(test_path(folder, "images/Val"), test_path(folder, "elsewhere")), 0);
    assert_int_equal(rename(test_path(folder, "images/Test"), test_path(folder, "none")), 0);
    REFUSED(
        1,
        "images: has 1 class; a classifier needs at least two class folders, or --labels; if 'TRAIN' is a "
        "split, call the folder train, in small letters",
        test_path(folder, "run"), "--model", "conv8", images);
}

/* Also in a dry run. */
TEST_IN_FOLDER(test_class_folders_are_not_held_in_memory_as_files, folder)
{
    static const char *const caches[] = {"ram", "lock"};
    static const char way_out[] = "--cache pixels decodes them once, or pack them";
    (void)pack_colours(folder, 8, 2);
    const char *images = test_path(folder, "images"), *out = test_path(folder, "out");
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        REFUSED(1, way_out, out, "--model", "conv8", "--cache", caches[i], images);
        REFUSED(1, way_out, out, "--dry-run", "--model", "conv8", "--cache", caches[i], images);
    }
    SAYS(0, "split val: 6 samples", "--dry-run", "--model", "conv8", "--cache", "pixels", images, out);
}

TEST_IN_FOLDER(test_a_torn_shard_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain);
    test_file_truncate(test_path(folder, "set/train-00001-of-00002.fshard"), -1000);
    REFUSED(1, "train-00001-of-00002.fshard", test_path(folder, "out"), shards);
}

/* Before anything is decoded. */
TEST_IN_FOLDER(test_an_output_that_cannot_be_written_to_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    if (!permissions_bind)
        skip();
    assert_int_equal(mkdir(out, 0555), 0);
    RunResult result = TRAIN(1, "--model", "conv8", "--cache", "pixels", shards, out);
    assert_contains(result.err, "out: cannot be written to: Permission denied");
    assert_contains_not(result.err, "in memory, decoded");
    run_result_free(&result);
    assert_true(file_exists(out));
}

int test_program_begin(void)
{
    permissions_bind = test_bind_to_permissions();
    return TEST_RUN;
}
