/* fresize, where images come from and where they go: lists, tars, labels, pairs; links and other formats. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

/* ---- lists ---- */

TEST_IN_FOLDER(test_a_list_names_the_images, folder)
{
    write_many(folder, "in/a", 3, 40);
    write_many(folder, "in/b", 3, 40);
    test_file_write_text(
        test_path(folder, "list"),
        "b/002.jpg\r\n\n./a//000.jpg\na/000.jpg\nb/nowhere.jpg\n../in/a/001.jpg\n/etc/passwd\n");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *list = test_path(folder, "list");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--files-from", list, in, out, NULL);
    assert_contains(result.err,
                    "a/000.jpg: would be written to a/000.jpg, as an image before it in the list is");
    assert_contains(result.err, "b/nowhere.jpg: cannot be read: No such file or directory");
    assert_contains(result.err, "../in/a/001.jpg: goes up by ..");
    assert_contains(result.err, "/etc/passwd: is not below SRC");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 2);
    assert_image(test_path(folder, "out/b/002.jpg"), IMAGE_JPEG, 20, 20, 3);
    assert_image(test_path(folder, "out/a/000.jpg"), IMAGE_JPEG, 20, 20, 3);
}

TEST_IN_FOLDER(test_a_list_may_come_from_find, folder)
{
    write_size(test_path(folder, "in/a b\nc.jpg"), 40, 40);
    write_size(test_path(folder, "in/d.jpg"), 40, 40);
    shell(
        folder,
        "find in -name '*.jpg' -printf '%P\\0' | \"$FSHARD_BIN/fresize\" -q --max-size 20 -0 --files-from - "
        "in out");
    assert_image(test_path(folder, "out/a b\nc.jpg"), IMAGE_JPEG, 20, 20, 3);
    assert_image(test_path(folder, "out/d.jpg"), IMAGE_JPEG, 20, 20, 3);
    RunResult result = run_expecting(2, "fresize", "--files-from=-", "--part=1/2", test_path(folder, "in"),
                                     test_path(folder, "two"), NULL);
    assert_contains(result.err, "standard input");
    run_result_free(&result);
    result = run_expecting(2, "fresize", "-0", test_path(folder, "in"), test_path(folder, "two"), NULL);
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--files-from", test_path(folder, "none"), test_path(folder, "in"),
                           test_path(folder, "two"), NULL);
    assert_contains(result.err, "none: cannot open the list of files: No such file or directory");
    run_result_free(&result);
}

/* ---- tars ---- */

TEST_IN_FOLDER(test_a_tar_gives_what_its_folder_gives, folder)
{
    write_many(folder, "in/a", 5, 60);
    write_many(folder, "in/b/deep", 5, 30);
    test_file_write_text(test_path(folder, "in/README"), "words");
    shell(folder, "tar cf plain.tar -C in . && tar czf packed.tar.gz -C in a b README");
    run_ok("fresize", "--max-size=20", test_path(folder, "in"), test_path(folder, "out"), NULL);
    static const char *const tars[] = {"plain.tar", "packed.tar.gz"};
    for (size_t i = 0; i < 2; i++) {
        const char *const arguments[] = {"--max-size=20", test_path(folder, "%s", tars[i]),
                                         test_path(folder, "out%zu", i), NULL};
        json_t *summary = fresize_json(0, arguments);
        assert_int_equal(json_count(summary, "resized"), 10);
        assert_int_equal(json_count(summary, "other_files"), 1);
        json_decref(summary);
        char command[128];
        (void)snprintf(command, sizeof command, "diff -r -x .fresize out out%zu", i);
        shell(folder, command);
    }
}

TEST_IN_FOLDER(test_a_tar_of_tars_is_a_folder_of_folders, folder)
{
    write_many(folder, "n01", 3, 60);
    write_many(folder, "n02", 2, 60);
    shell(folder, "tar cf n01.tar -C n01 . && tar cf n02.tar -C n02 000.jpg 001.jpg && tar cf train.tar "
                  "n01.tar n02.tar");
    const char *const arguments[] = {"--max-size=20", test_path(folder, "train.tar"),
                                     test_path(folder, "out"), NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "resized"), 5);
    json_decref(summary);
    assert_image(test_path(folder, "out/n01/002.jpg"), IMAGE_JPEG, 20, 20, 3);
    assert_image(test_path(folder, "out/n02/001.jpg"), IMAGE_JPEG, 20, 20, 3);
    assert_int_equal(unlink(test_path(folder, "out/n02/001.jpg")), 0);
    summary = fresize_json(0, arguments); /* what is done is not read again */
    assert_int_equal(json_count(summary, "done_before"), 4);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
}

TEST_IN_FOLDER(test_names_in_a_tar_cannot_leave_the_destination, folder)
{
    write_size(test_path(folder, "src/good.jpg"), 40, 40);
    write_size(test_path(folder, "src/evil.jpg"), 40, 40);
    shell(folder, "cd src && ln -s /etc link.jpg && ln good.jpg hard.jpg && "
                  "tar cf ../a.tar good.jpg hard.jpg link.jpg && "
                  "tar rPf ../a.tar --transform 's|evil|../../evil|' evil.jpg && "
                  "tar rPf ../a.tar --transform 's|evil|/tmp/fshard-evil|' evil.jpg");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", test_path(folder, "a.tar"),
                                     test_path(folder, "x/y/out"), NULL);
    assert_contains(result.err, "../../evil.jpg: ");
    assert_contains(result.err, "/tmp/fshard-evil.jpg: ");
    assert_contains(result.err, "link.jpg: ");
    assert_contains(result.err, "hard.jpg: ");
    run_result_free(&result);
    assert_int_equal(count_outputs(test_path(folder, "x/y/out")), 1);
    assert_false(exists(test_path(folder, "x/evil.jpg")));
    assert_false(exists(test_path(folder, "evil.jpg")));
    assert_false(exists("/tmp/fshard-evil.jpg"));
}

TEST_IN_FOLDER(test_a_tar_that_ends_early_gives_what_is_there, folder)
{
    write_many(folder, "in", 4, 60);
    shell(folder, "tar cf a.tar -C in 000.jpg 001.jpg 002.jpg 003.jpg");
    test_file_truncate(test_path(folder, "a.tar"), (int64_t)test_file_size(test_path(folder, "a.tar")) / 2);
    RunResult result = run_expecting(1, "fresize", "--max-size=20", test_path(folder, "a.tar"),
                                     test_path(folder, "out"), NULL);
    assert_contains(result.err, "a.tar: ");
    run_result_free(&result);
    assert_true(exists(test_path(folder, "out/000.jpg")));
    assert_false(exists(test_path(folder, "out/003.jpg")));
}

/* Some programs write no end marker, and fpack takes such a tar too: nothing failed. */
TEST_IN_FOLDER(test_a_tar_without_an_end_marker_is_taken_with_a_warning, folder)
{
    const RunOptions here = {.folder = folder->path};
    write_many(folder, "in", 2, 60);
    shell(folder, "tar cf a.tar -b 1 -C in 000.jpg 001.jpg");
    test_file_truncate(test_path(folder, "a.tar"), -1024);
    RunResult result = run_program(&here, "fresize", "--max-size=20", "a.tar", "out", NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "fresize: 2 images: 2 resized");
    assert_contains(result.err, "fresize: warning: a.tar: 1 tar without an end marker: either the writer");
    run_result_free(&result);
    run_ok("fresize", "--max-size=20", "--check", test_path(folder, "a.tar"), test_path(folder, "out"), NULL);
    result = run_program(&here, "fresize", "-q", "--json", "--max-size=20", "a.tar", "again", NULL);
    assert_contains(result.out, "\"unmarked_tars\":1");
    run_result_free(&result);
}

/* Neither is a folder of this name made, nor is a pipe taken for something that is no tar. */
TEST_IN_FOLDER(test_streams_are_refused, folder)
{
    static const char *const programs[] = {"fresize", "fpack"};
    write_many(folder, "in/a", 2, 60);
    const RunOptions here = {.folder = folder->path};
    for (size_t i = 0; i < 2; i++) {
        RunResult result = run_program(&here, programs[i], "in", "-", NULL);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, "-: DST is not written to standard output; name a folder or a file");
        run_result_free(&result);
        result = run_program(&here, programs[i], "-", "out", NULL);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, "-: SRC is not read from standard input; name a folder or a file");
        run_result_free(&result);
    }
    assert_false(exists(test_path(folder, "-")));
    run_ok("fresize", "--max-size=20", test_path(folder, "in"), test_path(folder, "./-"), NULL);
    shell(folder, "mkfifo pipe");
    RunResult result = run_expecting(1, "fresize", test_path(folder, "pipe"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "pipe: is a pipe, and a tar is read from a file; keep it in one first");
    run_result_free(&result);
}

/* Whatever it is compressed with, and however soon the run ends. */
TEST_IN_FOLDER(test_a_tar_that_ends_early_is_named, folder)
{
    static const char *const names[] = {"cut.tar", "cut.tar.gz"};
    write_many(folder, "in", 100, 60); /* libarchive decompresses 64 KiB at a time */
    shell(folder, "tar cf a.tar in && head -c 3000 a.tar >cut.tar && gzip -k a.tar && "
                  "head -c $(($(stat -c %s a.tar.gz) - 9)) a.tar.gz >cut.tar.gz && >empty.tar && "
                  "head -c 100 a.tar >short.tar");
    for (size_t i = 0; i < 2; i++) {
        const char *cut = test_path(folder, "%s", names[i]);
        for (int fails = 0; fails < 2; fails++) {
            RunResult result = run_expecting(1, "fresize", "--on-error", fails ? "fail" : "stop", cut,
                                             test_path(folder, "out-%zu-%d.tar", i, fails), NULL);
            assert_contains(result.err, cut);
            assert_contains(result.err, ": cut short; copy or download it again");
            assert_contains_not(result.err, "out-");
            run_result_free(&result);
        }
    }
    test_file_write_text(test_path(folder, "set.zip"), "PK");
    RunResult zip =
        run_expecting(1, "fresize", test_path(folder, "set.zip"), test_path(folder, "none"), NULL);
    assert_contains(zip.err, "set.zip: is an archive that is not read; unpack it, or make it a tar");
    run_result_free(&zip);
    static const char *const starts[] = {"empty.tar", "short.tar"};
    for (size_t i = 0; i < 2; i++) {
        RunResult result =
            run_expecting(1, "fresize", test_path(folder, "%s", starts[i]), test_path(folder, "none"), NULL);
        assert_contains(result.err, test_path(folder,
                                              "%s: is no tar, as its name says it is: "
                                              "empty, damaged or cut short; copy or download it again",
                                              starts[i]));
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_validation_images_go_to_the_folders_of_their_labels, folder)
{
    for (unsigned i = 1; i <= 4; i++)
        write_size(test_path(folder, "in/ILSVRC2012_val_%08u.JPEG", i), 40, 40);
    shell(folder, "tar cf val.tar -C in .");
    test_file_write_text(test_path(folder, "names"),
                         "ILSVRC2012_val_00000001.JPEG n02\nILSVRC2012_val_00000002.JPEG n01\n"
                         "ILSVRC2012_val_00000003.JPEG n02\n");
    test_file_write_text(test_path(folder, "numbers"), "490\n361\n171\n822\n");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", "--labels", test_path(folder, "names"),
                                     test_path(folder, "val.tar"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "ILSVRC2012_val_00000004.JPEG: has no label in the file of labels");
    run_result_free(&result);
    assert_image(test_path(folder, "out/n02/ILSVRC2012_val_00000003.JPEG"), IMAGE_JPEG, 20, 20, 3);
    assert_image(test_path(folder, "out/n01/ILSVRC2012_val_00000002.JPEG"), IMAGE_JPEG, 20, 20, 3);
    assert_int_equal(count_outputs(test_path(folder, "out")), 3);
    run_ok("fresize", "--max-size=20", "--labels", test_path(folder, "numbers"), test_path(folder, "in"),
           test_path(folder, "numbered"), NULL);
    assert_image(test_path(folder, "numbered/822/ILSVRC2012_val_00000004.JPEG"), IMAGE_JPEG, 20, 20, 3);
}

/* ---- into a tar ---- */

TEST_IN_FOLDER(test_a_tar_holds_what_a_folder_would, folder)
{
    write_many(folder, "in/a", 30, 90);
    write_many(folder, "in/b", 30, 20);
    const char *in = test_path(folder, "in");
    run_ok("fresize", "--max-size=30", in, test_path(folder, "out"), NULL);
    run_ok("fresize", "--max-size=30", "-j1", in, test_path(folder, "one.tar"), NULL);
    run_ok("fresize", "--max-size=30", "-j4", in, test_path(folder, "four.tar"), NULL);
    assert_same_bytes(test_path(folder, "one.tar"), test_path(folder, "four.tar"));
    shell(folder, "mkdir x && tar xf one.tar -C x && rm -r out/.fresize && diff -r out x && "
                  "test \"$(stat -c %Y in/a/003.jpg)\" = \"$(stat -c %Y x/a/003.jpg)\"");
    run_ok("fresize", "--max-size=30", "--check", in, test_path(folder, "one.tar"), NULL);
    test_file_flip_byte(test_path(folder, "one.tar"), 1700); /* in the first image */
    RunResult result =
        run_expecting(1, "fresize", "--max-size=30", "--check", in, test_path(folder, "one.tar"), NULL);
    assert_contains(result.out, "damaged: a/000.jpg: its output is not what was written");
    run_result_free(&result);
    run_ok("fresize", "--max-size=30", "--force", in, test_path(folder, "one.tar"), NULL);
    assert_same_bytes(test_path(folder, "one.tar"), test_path(folder, "four.tar"));
}

TEST_IN_FOLDER(test_a_tar_goes_on_after_kills_to_the_same_bytes, folder)
{
    enum { KILLS = 6 };
    write_many(folder, "in", 300, 500);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out.tar");
    RunResult whole = run_expecting(0, "fresize", "--max-size=250", in, test_path(folder, "whole.tar"), NULL);
    const char *const arguments[] = {"--max-size=250", "-q", in, out, NULL};
    for (unsigned i = 0; i < KILLS; i++) {
        RunningProgram running = run_start(NULL, "fresize", arguments);
        sleep_seconds(whole.seconds * (i + 1) / (KILLS + 2));
        (void)kill(running.process, i % 2 ? SIGKILL : SIGTERM);
        RunResult result = run_wait(&running);
        if (i < 2 && result.exit_status != 0)
            assert_false(exists(out)); /* it has its name when it is whole */
        run_result_free(&result);
    }
    if (!exists(out))
        run_ok("fresize", "--max-size=250", in, out, NULL);
    assert_same_bytes(out, test_path(folder, "whole.tar"));
    run_result_free(&whole);
}

/* As find gives them, whole or with the name of the source in front. */
TEST_IN_FOLDER(test_a_list_may_name_the_source_in_its_paths, folder)
{
    write_many(folder, "in", 4, 60);
    write_size(test_path(folder, "in/in/003.jpg"), 50, 50);
    assert_int_equal(symlink("in", test_path(folder, "link")), 0);
    const char *out = test_path(folder, "out");
    char text[2048];
    (void)snprintf(
        text, sizeof text, "%s/000.jpg\n%s//001.jpg\nlink/002.jpg\n%s-not/a.jpg\n%s/../in/003.jpg\n",
        test_path(folder, "in"), test_path(folder, "in"), test_path(folder, "in"), test_path(folder, "in"));
    test_file_write_text(test_path(folder, "list"), text);
    const char *const arguments[] = {"--max-size=30", "--files-from", "list", "link/", "out", NULL};
    RunResult result = run_program_arguments(&(RunOptions){.folder = folder->path}, "fresize", arguments);
    assert_contains(result.err, "in-not/a.jpg: is not below SRC");
    assert_contains(result.err, "../in/003.jpg: goes up by ..");
    assert_contains(result.err, "5 images: 3 resized, 2 failed");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 3);
    assert_image(test_path(folder, "out/002.jpg"), IMAGE_JPEG, 30, 30, 3);
    /* what there is below the source comes first */
    test_file_write_text(test_path(folder, "list"), "in/003.jpg\n");
    const char *const same[] = {"--max-size=50", "--files-from", "list", "in", "same", NULL};
    result = run_program_arguments(&(RunOptions){.folder = folder->path}, "fresize", same);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_image(test_path(folder, "same/in/003.jpg"), IMAGE_JPEG, 50, 50, 3);
    test_file_write_text(test_path(folder, "list"), "\n");
    result = run_expecting(1, "fresize", "--files-from", test_path(folder, "list"), test_path(folder, "in"),
                           test_path(folder, "none"), NULL);
    assert_contains(result.err, "list: the list names no image");
    run_result_free(&result);
}

/* ---- pairs ---- */

TEST_IN_FOLDER(test_pairs_keep_one_geometry_or_are_left_out, folder)
{
    write_size(test_path(folder, "in/train/seq1/blur/000.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/sharp/000.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/blur/001.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/sharp/001.jpg"), 60, 90);
    write_size(test_path(folder, "in/train/seq1/blur/002.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/sharp/003.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/blur/004.jpg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/sharp/004.jpeg"), 90, 60);
    write_size(test_path(folder, "in/train/seq1/blur/005.jpg"), 90, 60);
    test_file_write_text(test_path(folder, "in/train/seq1/sharp/005.jpg"), "no image");
    write_size(test_path(folder, "in/other/006.jpg"), 90, 60);
    test_file_write_text(test_path(folder, "in/README"), "words");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(1, "fresize", "--max-size=30", "--pairs=blur:sharp", in, out, NULL);
    assert_contains(result.err, "blur/001.jpg: is 90 x 60, its partner train/seq1/sharp/001.jpg 60 x 90");
    assert_contains(result.err, "sharp/001.jpg: is 60 x 90, its partner train/seq1/blur/001.jpg 90 x 60");
    assert_contains(result.err, "blur/002.jpg: has no partner train/seq1/sharp/002.jpg");
    assert_contains(result.err, "sharp/003.jpg: has no partner train/seq1/blur/003.jpg");
    assert_contains(result.err, "sharp/005.jpg: not an image of a known format");
    assert_contains(result.err, "blur/005.jpg: its partner train/seq1/sharp/005.jpg cannot be used");
    assert_contains(result.err, "warning: other/006.jpg: lies below neither side's folder, as 1 image in");
    assert_contains(result.err, "10 images: 4 resized, 6 failed");
    assert_contains(result.err, "1 other file left alone\n");
    assert_contains_not(result.err, "side gray");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 4);
    assert_image(test_path(folder, "out/train/seq1/blur/004.jpg"), IMAGE_JPEG, 45, 30, 3);
    assert_image(test_path(folder, "out/train/seq1/sharp/004.jpeg"), IMAGE_JPEG, 45, 30, 3);
    result = run_expecting(2, "fresize", "--pairs=blur", in, out, NULL);
    assert_contains(result.err, "--pairs");
    run_result_free(&result);
    write_jpeg(test_path(folder, "gray/blur/a.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_GRAY});
    write_size(test_path(folder, "gray/sharp/a.jpg"), 90, 60);
    result = run_expecting(0, "fresize", "--pairs=blur:sharp", test_path(folder, "gray"),
                           test_path(folder, "g"), NULL);
    assert_contains(result.err, "fresize: 1 pair with one side gray and the other in colours\n");
    run_result_free(&result);
    assert_int_equal(unlink(test_path(folder, "out/train/seq1/sharp/000.jpg")),
                     0); /* half a pair is made whole */
    result = run_expecting(1, "fresize", "--max-size=30", "--pairs=blur:sharp", in, out, NULL);
    assert_contains(result.err, "10 images: 1 resized, 3 done before, 6 failed");
    run_result_free(&result);
}

/* One line instead of a hundred, and the right command goes through afterwards. */
TEST_IN_FOLDER(test_mistyped_sides_and_labels_are_told_in_one_line_and_bind_nothing, folder)
{
    write_many(folder, "in/train/blurry", 9, 60);
    write_many(folder, "in/train/sharp", 9, 60);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    const char *labels = test_path(folder, "labels"), *tar = test_path(folder, "out.tar");
    test_file_write_text(labels, "x.jpg cat\ny.jpg dog\n");
    RunResult result = run_expecting(1, "fresize", "--pairs=blur:sharper", in, out, NULL);
    assert_contains(result.err,
                    "in: no image lies below a folder blur or sharper; the folders here are: train, "
                    "blurry, sharp\n");
    assert_contains_not(result.err, ".jpg"); /* no folder is that of a side */
    assert_false(exists(out));
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--pairs=blur:sharp", "--report", test_path(folder, "report"), in,
                           out, NULL);
    assert_contains(result.err,
                    "no image lies below a folder blur; the folders here are: train, blurry, sharp\n");
    assert_contains_not(result.err, "sharp/003.jpg");
    assert_false(exists(out));
    assert_false(exists(test_path(folder, "report")));
    run_result_free(&result);
    result = run_expecting(1, "fresize", "-v", "--labels", labels, in, tar, NULL);
    assert_contains(result.err, "in: none of the 18 images has a label in ");
    assert_contains(result.err, "(the first is train/blurry/000.jpg)\n");
    assert_contains(result.err, "sharp/008.jpg: has no label");
    assert_false(exists(tar));
    assert_int_equal(test_count_files(folder->path), 18 + 1);
    run_result_free(&result);
    run_ok("fresize", "--max-size=30", "--pairs=blurry:sharp", in, out, NULL);
    assert_int_equal(count_outputs(out), 18);
    /* some have a place: that is no slip of the hand, but a hundred lines are still too many */
    test_file_write_text(labels, "000.jpg cat\n");
    result = run_expecting(1, "fresize", "--max-size=30", "--labels", labels,
                           test_path(folder, "in/train/sharp"), test_path(folder, "labelled"), NULL);
    assert_contains(result.err, "003.jpg: has no label in the file of labels");
    assert_contains_not(result.err, "004.jpg");
    assert_contains(result.err, "5 more were left out for such reasons");
    run_result_free(&result);
}

/* GOPRO_Large has blur_gamma beside both sides: fpack leaves it alone, too. */
TEST_IN_FOLDER(test_what_is_of_neither_side_is_left_alone, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/train/GOPR1/blur", 5, 60);
    write_many(folder, "in/train/GOPR1/blur_gamma", 5, 60);
    write_many(folder, "in/train/GOPR1/sharp", 5, 60);
    RunResult result = run_expecting(0, "fresize", "--max-size=30", "--pairs=blur:sharp", in, out, NULL);
    assert_contains(result.err, "fresize: 10 images: 10 resized\n");
    assert_contains(result.err,
                    "fresize: warning: train/GOPR1/blur_gamma/000.jpg: lies below neither side's");
    assert_contains(result.err, "as 5 images in all; left alone\n");
    run_result_free(&result);
    const char *const again[] = {"--pairs=blur:sharp", "--max-size=30", in, out, NULL};
    json_t *summary = fresize_json(0, again);
    assert_int_equal(json_count(summary, "outside"), 5);
    assert_int_equal(json_count(summary, "done_before"), 10);
    assert_int_equal(json_count(summary, "failed"), 0);
    json_decref(summary);
    result = run_expecting(0, "fresize", "--check", in, out, NULL);
    assert_contains(result.err, "10 of 10 images have the output they should have");
    run_result_free(&result);
    /* which side it is cannot be told */
    write_size(test_path(folder, "in/train/blur/sharp/a.jpg"), 60, 60);
    result = run_expecting(1, "fresize", "--max-size=30", "--pairs=blur:sharp", in, out, NULL);
    assert_contains(result.err, "blur/sharp/a.jpg: lies below more than one side's folder");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--check", in, out, NULL);
    assert_contains(result.out, "missing: train/blur/sharp/a.jpg: ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_state_without_outputs_binds_nothing, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "in/a.jpg"), "no image");
    RunResult result = run_expecting(1, "fresize", "--max-size=20", in, out, NULL);
    run_result_free(&result);
    assert_true(exists(test_path(folder, "out/.fresize/recipe.json")));
    write_size(test_path(folder, "in/a.jpg"), 60, 60);
    run_ok("fresize", "--max-size=30", in, out, NULL);
    assert_image(test_path(folder, "out/a.jpg"), IMAGE_JPEG, 30, 30, 3);
    result = run_expecting(1, "fresize", "--max-size=20", in, out, NULL);
    assert_contains(result.err, "was made with ");
    run_result_free(&result);
}

/* ---- links, sizes, formats ---- */

TEST_IN_FOLDER(test_small_images_become_links_where_asked, folder)
{
    write_size(test_path(folder, "in/a/small.jpg"), 20, 20);
    write_size(test_path(folder, "in/a/large.jpg"), 90, 90);
    const char *const arguments[] = {"--max-size=30", "--link", test_path(folder, "in"),
                                     test_path(folder, "out"), NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "linked"), 1);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
    struct stat from, to;
    assert_int_equal(stat(test_path(folder, "in/a/small.jpg"), &from), 0);
    assert_int_equal(stat(test_path(folder, "out/a/small.jpg"), &to), 0);
    assert_int_equal(from.st_ino, to.st_ino);
    summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 2);
    json_decref(summary);
    const char *const anew[] = {"--max-size=30",          "--link", "--force", test_path(folder, "in"),
                                test_path(folder, "out"), NULL};
    summary = fresize_json(0, anew); /* over its own link */
    assert_int_equal(json_count(summary, "linked"), 1);
    json_decref(summary);
    run_ok("fresize", "--max-size=10", "--force", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_image(test_path(folder, "in/a/small.jpg"), IMAGE_JPEG, 20, 20,
                 3); /* nothing was written through it */
}

TEST_IN_FOLDER(test_too_small_images_are_left_out_and_told, folder)
{
    write_size(test_path(folder, "in/a.jpg"), 20, 90);
    write_size(test_path(folder, "in/b.jpg"), 21, 90);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *report = test_path(folder, "report");
    RunResult result =
        run_expecting(0, "fresize", "--max-size=30", "--min-size=21", "--report", report, in, out, NULL);
    assert_contains(result.err, "2 images: 1 copied, 1 too small");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 1);
    char *lines = test_file_read(report, NULL);
    assert_contains(lines, "{\"path\":\"a.jpg\",\"status\":\"too small\"");
    free(lines);
    run_ok("fresize", "--max-size=30", "--min-size=21", "--check", in, out, NULL);
}

TEST_IN_FOLDER(test_everything_becomes_the_format_that_is_asked_for, folder)
{
    if (!png_is_supported())
        skip();
    write_size(test_path(folder, "in/a.jpg"), 20, 20);
    write_png(test_path(folder, "in/b.png"), 90, 60);
    write_png(test_path(folder, "in/c.JPEG"), 20, 20);
    const char *in = test_path(folder, "in");
    run_ok("fresize", "--max-size=30", "--format=png", in, test_path(folder, "png"), NULL);
    assert_image(test_path(folder, "png/a.png"), IMAGE_PNG, 20, 20, 3);
    assert_image(test_path(folder, "png/b.png"), IMAGE_PNG, 45, 30, 3);
    assert_image(test_path(folder, "png/c.png"), IMAGE_PNG, 20, 20, 3);
    run_ok("fresize", "--max-size=30", "--format=webp", in, test_path(folder, "webp"), NULL);
    assert_image(test_path(folder, "webp/a.webp"), IMAGE_WEBP, 20, 20, 3);
    assert_int_equal(count_outputs(test_path(folder, "webp")), 3);
    run_ok("fresize", "--max-size=30", in, test_path(folder, "keep"), NULL);
    assert_image(test_path(folder, "keep/b.png"), IMAGE_PNG, 45, 30, 3);
    assert_image(test_path(folder, "keep/c.JPEG"), IMAGE_JPEG, 20, 20, 3); /* ImageNet's PNG named .JPEG */
}

TEST_IN_FOLDER(test_one_name_for_two_images_is_told, folder)
{
    if (!png_is_supported())
        skip();
    write_size(test_path(folder, "in/a.jpg"), 20, 20);
    write_png(test_path(folder, "in/a.png"), 20, 20);
    write_png(test_path(folder, "in/b.PNG"), 20, 20);
    write_png(test_path(folder, "in/b.png"), 20, 20);
    write_png(test_path(folder, "in/c.png"), 20, 20);
    write_size(test_path(folder, "in/c.jpg/d.jpg"), 20, 20);
    RunResult result =
        run_expecting(1, "fresize", "--format=jpeg", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "a.png: would be written to a.jpg, as a.jpg is");
    assert_contains(result.err, "b.png: would be written to b.jpg, as b.PNG is");
    assert_contains(result.err, "c.png: would be written to c.jpg, which is a folder");
    run_result_free(&result);
    assert_int_equal(count_outputs(test_path(folder, "out")), 3);
    assert_same_bytes(test_path(folder, "out/a.jpg"), test_path(folder, "in/a.jpg"));
}

TEST_IN_FOLDER(test_what_does_not_go_together_is_usage, folder)
{
    write_many(folder, "in", 1, 20);
    shell(folder, "tar cf in.tar in");
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "in.tar"),
               *out = test_path(folder, "out");
    const char *const rows[][3] = {
        {"--check", "--force", in},        {"--check", "--part=1/2", in}, {"--check", "--dry-run", in},
        {"--pairs=a:b", "--labels=x", in}, {"--pairs=a:b", "-q", tar},    {"--link", "-q", tar},
        {"--files-from=x", "-q", tar},     {"--part=3/2", "-q", in},      {"--pairs=a/b:c", "-q", in},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        RunResult result = run_expecting(2, "fresize", rows[i][0], rows[i][1], rows[i][2], out, NULL);
        run_result_free(&result);
    }
    assert_false(exists(out));
    RunResult result = run_expecting(1, "fresize", "--check", in, out, NULL);
    assert_contains(result.err, "fresize has not made this");
    run_result_free(&result);
}
