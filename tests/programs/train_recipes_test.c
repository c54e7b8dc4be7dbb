/* ftrain from outside: what a run is made of - schedules, optimizers, averages, sizes, mixed samples - and
 * files of options. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define CONV8 "--model", "conv8"

static void assert_near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-5 * fabs(wanted)))
        fail_msg("%.9g is not %.9g", value, wanted);
}

/* ---- learning rate ---- */

TEST_IN_FOLDER(test_a_plateau_lowers_the_rate, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    /* Nothing is better by 1000 %: every epoch after the first is one without improvement. */
    SAYS(0, "top1 has stopped getting better: learning rate 0.005 from here on", CONV8, "--epochs", "5",
         "--lr", "0.01", "--lr-warmup-epochs", "0", "--lr-scheduler", "plateau", "--plateau-patience", "0",
         "--plateau-threshold", "1000", "--plateau-threshold-mode", "abs", "--plateau-factor", "0.5",
         "--lr-min", "0.002", shards, out);
    static const double rates[] = {0.01, 0.01, 0.005, 0.0025, 0.002};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        assert_near(summary_number(out, i, "lr"), rates[i]);
}

TEST_IN_FOLDER(test_schedules_reach_the_table, folder)
{
    const char *shards = make_set(folder, &train_plain);
    static const struct {
        const char *name;
        double rates[4]; /* by epochs, without a warm-up */
    } schedules[] = {{"constant", {0.01, 0.01, 0.01, 0.01}},
                     {"linear", {0.01, 0.0075, 0.005, 0.0025}},
                     {"polynomial", {0.01, 0.0075, 0.005, 0.0025}},
                     {"cosine", {0.01, 0.00853553391, 0.005, 0.00146446609}}};
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        const char *out = test_path(folder, "%s", schedules[s].name);
        const char *const arguments[] = {CONV8,
                                         "--epochs",
                                         "4",
                                         "--lr",
                                         "0.01",
                                         "--lr-scheduler",
                                         schedules[s].name,
                                         "--lr-warmup-epochs",
                                         "0",
                                         shards,
                                         out,
                                         s ? "--lr-unit" : NULL,
                                         "epoch",
                                         NULL};
        RunResult result = expect_train(0, NULL, arguments);
        run_result_free(&result);
        for (size_t i = 0; i < 4; i++)
            assert_near(summary_number(out, i, "lr"), schedules[s].rates[i]);
    }
    /* From a tenth of the highest in equal steps, held for each epoch. */
    const char *out = test_path(folder, "warm");
    TRAINED(CONV8, "--epochs", "5", "--lr", "0.01", "--lr-scheduler", "constant", "--lr-warmup-epochs", "3",
            "--lr-warmup-decay", "0.1", "--lr-unit", "epoch", shards, out);
    static const double rates[] = {0.001, 0.004, 0.007, 0.01, 0.01};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        assert_near(summary_number(out, i, "lr"), rates[i]);
}

TEST_IN_FOLDER(test_epochs_between_evaluations_are_left_out, folder)
{
    const char *out = test_path(folder, "out");
    TRAINED(CONV8, "--epochs", "5", "--val-interval", "2", make_set(folder, &train_plain), out);
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    const char *row = text;
    for (int epoch = 0; epoch < 5; epoch++) {
        row = strchr(row, '\n') + 1;
        unsigned long long number;
        double seconds, loss;
        int read = 0;
        assert_int_equal(sscanf(row, "%llu,%lf,%lf,%n", &number, &seconds, &loss, &read), 3);
        assert_int_equal(number, epoch);
        assert_true((row[read] == ',') == (epoch == 0 || epoch == 2)); /* the last one is evaluated */
    }
    free(text);
}

TEST_IN_FOLDER(test_a_run_that_does_not_get_better_stops_early, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
#define STOPS                                                                                                \
    CONV8, "--epochs", "20", "--early-stop-patience", "2", "--early-stop-min-delta", "101",                  \
        "--early-stop-metric", "top1", "--json"
    RunResult result = TRAIN(0, STOPS, shards, out);
    assert_contains(result.err, "stopped early: top1 has not got better in 2 epochs");
    json_t *object = read_json(result.out);
    assert_true(json_is_true(json_object_get(object, "stopped_early")));
    assert_int_equal((int)number_of(object, "epochs"), 3);
    json_decref(object);
    run_result_free(&result);
    result = TRAIN(0, STOPS, "--resume", "auto", shards, out);
    assert_contains(result.err, "the run ended after 3 epochs; nothing is left to do");
    object = read_json(result.out);
    assert_true(json_is_true(json_object_get(object, "stopped_early")));
    json_decref(object);
    run_result_free(&result);
}

/* ---- optimizers and averages ---- */

TEST_IN_FOLDER(test_every_optimizer_learns_in_its_own_way, folder)
{
    const char *shards = pack_colours(folder, 24, 4);
    static const char *const runs[][4] = {{"sgd", "0.02", "--clip-grad", "1"},
                                          {"adam", "0.005", "--lookahead", "3"},
                                          {"adamw", "0.005", "--grad-accum-steps", "2"},
                                          {"lars", "3", "--nesterov", NULL},
                                          {"lamb", "0.02", "--opt-betas", "0.8:0.99"}};
    enum { RUNS = sizeof runs / sizeof *runs };
    for (size_t i = 0; i < RUNS; i++) {
        const char *out = test_path(folder, "%s", runs[i][0]);
        const bool fits = i != 3; /* nesterov is sgd's */
        const char *const arguments[] = {
            CONV8,      "--epochs", "10", "--batch-size",           "8",        "--opt", runs[i][0], "--lr",
            runs[i][1], shards,     out,  fits ? runs[i][2] : NULL, runs[i][3], NULL};
        RunResult result = expect_train(0, NULL, arguments);
        run_result_free(&result);
        double best = 0;
        for (size_t epoch = 0; epoch < 10; epoch++)
            best = fmax(best, summary_number(out, epoch, "eval_top1"));
        if (best < 60)
            fail_msg("%s reaches top-1 %g", runs[i][0], best);
        for (size_t k = 0; k < i; k++)
            assert_same_file(folder, runs[k][0], runs[i][0], false);
    }
    REFUSED(2, "--nesterov: does nothing here; it is for --opt sgd", test_path(folder, "out"), CONV8, "--opt",
            "lars", "--nesterov", shards);
}

TEST_IN_FOLDER(test_averages_are_evaluated_and_saved, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED(CONV8, "--epochs", "4", "--model-ema", "--model-ema-decay", "0.000001", shards, out);
    for (size_t i = 0; i < 4; i++) /* an average that forgets at once is the weights */
        assert_near(summary_number(out, i, "ema_top1") + 1, summary_number(out, i, "eval_top1") + 1);
    const char *slow = test_path(folder, "slow");
    RunResult result = TRAIN(0, CONV8, "--epochs", "4", "--model-ema", "--model-ema-decay", "0.99", "--json",
                             "--no-model-ema-warmup", shards, slow);
    json_t *trained = read_json(result.out);
    run_result_free(&result);
    assert_same_file(folder, "out", "slow", true); /* averaging changes nothing else */
    assert_false(same_bytes(test_path(folder, "slow/model_ema.safetensors"),
                            test_path(folder, "out/model_ema.safetensors")));
    result = TRAIN(0, "--evaluate", "--json", "--weights", test_path(folder, "slow/model_ema.safetensors"),
                   shards);
    json_t *evaluated = read_json(result.out);
    assert_true(number_of(evaluated, "top1") == number_of(trained, "best_ema_top1"));
    char *page = test_file_read(test_path(folder, "slow/report.html"), NULL);
    assert_contains(page, "<td>classes and examples<td>of the averaged weights"); /* evaluated last */
    free(page);
    json_decref(trained);
    json_decref(evaluated);
    run_result_free(&result);
    REFUSED(2, "--model-ema-decay: '0'", test_path(folder, "none"), CONV8, "--model-ema", "--model-ema-decay",
            "0", shards);
}

/* ---- images ---- */

TEST_IN_FOLDER(test_sizes_grow_with_the_epochs, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--model", "resnet9", "--epochs", "6", "--batch-size", "20", "--progressive", "16:32", shards,
            out);
    static const int edges[] = {16, 16, 16, 24, 32, 32};
    char *text = test_file_read(test_path(folder, "out/metrics.jsonl"), NULL);
    size_t epoch = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = read_json(line);
        if (strcmp(json_string_value(json_object_get(object, "event")), "epoch") == 0)
            assert_int_equal((int)number_of(object, "image_size"), edges[epoch++]);
        json_decref(object);
    }
    free(text);
    assert_int_equal(epoch, 6);
    const char *none = test_path(folder, "none");
    REFUSED(2, "--progressive: '32:32' is not FROM:TO", none, "--model", "resnet9", "--progressive", "32:32",
            shards);
    REFUSED(2, "--progressive: '17:32' is not FROM:TO", none, "--model", "resnet9", "--progressive", "17:32",
            shards);
    REFUSED(2, "--progressive: '16.5:32' is not FROM:TO", none, "--model", "resnet9", "--progressive",
            "16.5:32", shards);
    REFUSED(2, "--progressive: '16:32' is 16 pixels in every epoch", none, "--model", "resnet9", "--epochs",
            "1", "--progressive", "16:32", shards);
    REFUSED(2, "--train-crop-size: --progressive says the sizes already", none, "--progressive", "16:32",
            "--train-crop-size", "32", shards);
    REFUSED(1, "images of 16 x 16 pixels: conv8: ", none, CONV8, "--progressive", "16:32", shards);
    REFUSED(1, "; the weights of toynet are for images of one size: give one to --train-crop-size", none,
            "--model", "toynet", "--progressive", "16:32", shards);
}

TEST_IN_FOLDER(test_mixed_samples_have_mixed_labels, folder)
{
    const char *shards = pack_colours(folder, 24, 4);
    static const char *const names[] = {"plain", "never", "mixup", "cutmix"};
    static const char *const options[][4] = {{NULL, NULL, NULL, NULL},
                                             {"--mixup-alpha", "1", "--mixup-prob", "0"},
                                             {"--mixup-alpha", "1", NULL, NULL},
                                             {"--cutmix-alpha", "1", NULL, NULL}};
    double loss[4];
    for (size_t i = 0; i < 4; i++) {
        const char *out = test_path(folder, "%s", names[i]), *const *more = options[i];
        const char *const arguments[] = {
            CONV8,   "--epochs", "10",    "--batch-size", "8", "--label-smoothing", "0", shards, out,
            more[0], more[1],    more[2], more[3],        NULL};
        RunResult result = expect_train(0, NULL, arguments);
        run_result_free(&result);
        loss[i] = summary_number(out, 9, "train_loss");
    }
    assert_same_file(folder, "plain", "never", true);
    /* A share of another class cannot be learnt away. */
    assert_true(loss[2] > loss[0] + 0.1);
    assert_true(loss[3] > loss[0] + 0.1);
    assert_same_file(folder, "mixup", "cutmix", false);
    TRAINED(CONV8, "--epochs", "1", "--loss", "bce", "--mixup-alpha", "0.2", "--cutmix-alpha", "1",
            "--mixup-switch-prob", "0.7", shards, test_path(folder, "both"));
    const char *none = test_path(folder, "none");
    REFUSED(2, "--batch-size: 7 is odd; mixup and cutmix mix two neighbours of a batch", none, CONV8,
            "--batch-size", "7", "--mixup-alpha", "0.2", shards);
    REFUSED(2, "--mixup-alpha: does nothing here; it is for classes, and not with --no-aug", none, CONV8,
            "--no-aug", "--mixup-alpha", "0.2", shards);
}

TEST_IN_FOLDER(test_blocks_are_left_out_by_seed_and_sample, folder)
{
    const char *shards = make_set(folder, &train_plain);
    static const char *const rates[] = {"0.9", "0.9", "0"};
    double losses[3];
    for (size_t i = 0; i < 3; i++) {
        const char *out = test_path(folder, "out%zu", i);
        TRAINED("--jobs", i ? "2" : "1", "--model", "convnext_atto", "--epochs", "2", "--lr", "0.1",
                "--drop-path", rates[i], shards, out);
        losses[i] = summary_number(out, 1, "train_loss");
    }
    assert_near(losses[1], losses[0]);
    assert_true(losses[2] != losses[0]);
}

TEST_IN_FOLDER(test_a_mirror_image_is_evaluated_too, folder)
{
    const char *shards = make_set(folder, &train_plain), *weights = test_path(folder, "a/last.safetensors");
    TRAINED(CONV8, "--epochs", "3", "--no-aug", shards, test_path(folder, "a"));
    double loss[2];
    for (int i = 0; i < 2; i++) {
        RunResult result =
            TRAIN(0, "--evaluate", "--json", "--weights", weights, shards, i ? "--flip-tta" : "--quiet");
        json_t *object = read_json(result.out);
        loss[i] = number_of(object, "loss");
        json_decref(object);
        run_result_free(&result);
    }
    assert_true(loss[0] != loss[1]);
}

/* ---- predictions ---- */

TEST_IN_FOLDER(test_predicted_classes_are_a_table, folder)
{
    const char *shards = pack_colours(folder, 40, 3), *into = test_path(folder, "predicted");
    const char *weights = test_path(folder, "a/model_best.safetensors");
    const char *csv = test_path(folder, "more/deeper.csv");
    RunResult result = TRAIN(0, CONV8, "--epochs", "8", "--json", shards, test_path(folder, "a"));
    json_t *object = read_json(result.out);
    const double top1 = number_of(object, "best_top1");
    json_decref(object);
    run_result_free(&result);
    TRAINED("--weights", weights, "--predict", into, "--export", csv, shards);
    assert_true(same_bytes(csv, test_path(folder, "predicted/predictions.csv")));
    assert_int_equal(test_count_files(into), 1);
    char *text = test_file_read(csv, NULL);
    assert_contains(text,
                    "key,label,prediction,probability,prediction2,probability2,prediction3,probability3\n"
                    "blue/000,blue,");
    assert_int_equal(count_lines(text), 1 + 9);
    int right = 0;
    for (const char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1) {
        char label[16], prediction[16], second[16];
        double first = 0, less = 0, least = 0;
        assert_int_equal(sscanf(at, "%*[^,],%15[^,],%15[^,],%lf,%15[^,],%lf,%*[^,],%lf", label, prediction,
                                &first, second, &less, &least),
                         6);
        assert_string_not_equal(prediction, second);
        assert_true(first >= less && less >= least && fabs(first + less + least - 1) < 1e-5);
        right += strcmp(label, prediction) == 0;
    }
    free(text);
    assert_near(100.0 * right / 9, top1);
    SAYS(1, "deeper.csv", "--weights", weights, "--export", csv, shards);
}

TEST_IN_FOLDER(test_a_head_of_other_classes_begins_anew, folder)
{
    const char *four = make_set(folder, &train_plain), *three = pack_colours(folder, 8, 2);
    const char *weights = test_path(folder, "a/last.safetensors");
    TRAINED(CONV8, "--epochs", "1", four, test_path(folder, "a"));
    SAYS(0, "the weights alone know 'class00', 'class01', 'class02', 'class03'; model.33 begins anew", CONV8,
         "--epochs", "1", "--weights", weights, three, test_path(folder, "b"));
    RunResult result = TRAIN(0, CONV8, "--epochs", "1", "--weights", weights, four, test_path(folder, "c"));
    assert_contains_not(result.err, "begins anew");
    run_result_free(&result);
    SAYS(1, "3 of its 3 classes are not among the 4 of", "--evaluate", "--weights", weights, three);
}

/* ---- options from a file ---- */

TEST_IN_FOLDER(test_a_file_of_options_gives_the_same_run, folder)
{
    DatasetSpec gray = train_plain;
    gray.channels = 1; /* which is not flipped unless it is said */
    const char *shards = make_set(folder, &gray), *toml = test_path(folder, "run.toml");
    const char *arguments = test_path(folder, "line/args.json");
    TRAINED(CONV8, "--epochs", "2", "--opt", "adamw", "--lr", "0.01", "--seed", "5", shards,
            test_path(folder, "line"));
    test_file_write_text(toml,
                         "# a run\nmodel = \"conv8\"\nepochs = 2\nopt = 'adamw'\nlr = 1e-2\nseed = 5\n");
    TRAINED("--config", toml, shards, test_path(folder, "toml"));
    TRAINED("--config", arguments, shards, test_path(folder, "json"));
    /* args.json holds where the data and the output are; what the command line says wins. */
    TRAINED("--config", arguments, "--output", test_path(folder, "whole"));
    TRAINED("--config", toml, "--seed", "6", shards, test_path(folder, "other"));
    assert_same_file(folder, "line", "toml", true);
    assert_same_file(folder, "line", "json", true);
    assert_same_file(folder, "line", "whole", true);
    assert_same_file(folder, "line", "other", false);
    SAYS(1, "exists and is not empty", "--config", arguments);
    SAYS(0, "nothing is left to do", "--config", arguments, "--resume", "auto");
    /* The run's own file serves to evaluate what it has made. */
    SAYS(0, "split val", "--config", arguments, "--evaluate", "--weights",
         test_path(folder, "line/last.safetensors"));

    RunResult result = TRAIN(0, "--config", toml, "--print-config");
    const char *again = test_path(folder, "again.toml");
    test_file_write_text(again, result.out);
    assert_contains(result.out, "\nopt = \"adamw\"\n");
    assert_contains(result.out, "\n# momentum =\n");
    TRAINED("--config", again, shards, test_path(folder, "again"));
    assert_same_file(folder, "line", "again", true);
    RunResult second = TRAIN(0, "--config", again, "--print-config");
    assert_string_equal(result.out, second.out);
    run_result_free(&result);
    run_result_free(&second);
    test_file_write_text(toml, "momentun = 0.5\n");
    SAYS(2, "momentun", "--config", toml, shards, test_path(folder, "none"));
    test_file_write_text(toml, "force = true\n");
    SAYS(2, "--force is for the command line alone", "--config", toml, shards, test_path(folder, "none"));
}

TEST_IN_FOLDER(test_sam_takes_part_in_every_so_many_updates, folder)
{
    const char *shards = make_set(folder, &train_plain); /* five steps of an epoch */
    static const struct {
        const char *interval, *accumulated;
        bool same; /* as without sam */
    } cases[] = {{"6", "1", true}, {"5", "1", false}, {"3", "2", true}, {"2", "2", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *with = test_path(folder, "with%zu", i), *without = test_path(folder, "without%zu", i);
#define FIVE_STEPS                                                                                           \
    CONV8, "--epochs", "1", "--batch-size", "8", "--model-ema", "--grad-accum-steps", cases[i].accumulated
        TRAINED(FIVE_STEPS, "--sam", "0.5", "--sam-interval", cases[i].interval, shards, with);
        TRAINED(FIVE_STEPS, shards, without);
#undef FIVE_STEPS
        assert_true(same_bytes(test_path(folder, "with%zu/last.safetensors", i),
                               test_path(folder, "without%zu/last.safetensors", i)) == cases[i].same);
    }
}

TEST_IN_FOLDER(test_options_that_would_do_nothing_are_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const char *const useless[][4] = {
        {"--lr-step-size", "3"},
        {"--lr-gamma", "0.5"},
        {"--lr-power", "2"},
        {"--plateau-patience", "3"},
        {"--plateau-metric", "loss"},
        {"--lr-min", "0.001", "--lr-scheduler", "constant"},
        {"--lr-warmup-decay", "0.5", "--lr-warmup-epochs", "0"},
        {"--lr-base", "0.1", "--lr", "0.1"},
        {"--lr-base", "0.1", "--opt", "adamw"},
        {"--momentum", "0.5", "--opt", "adam"},
        {"--opt-betas", "0.9:0.99"},
        {"--opt-eps", "1e-6"},
        {"--trust-coefficient", "0.01"},
        {"--sam-interval", "2"},
        {"--lookahead-alpha", "0.8"},
        {"--model-ema-decay", "0.99"},
        {"--loss-scale", "1024"},
        {"--early-stop-min-delta", "0.1"},
        {"--early-stop-metric", "loss"},
        {"--scale", "0.5:1"},
        {"--crop-padding", "2", "--train-crop-mode", "rrc"},
        {"--hflip-prob", "0.1", "--no-aug"},
        {"--hflip-prob", "0.1", "--flip", "alternating"},
        {"--flip", "alternating", "--no-aug"},
        {"--vflip-prob", "0.5"},
        {"--noise", "3"},
        {"--random-erase-mode", "pixel"},
        {"--auto-augment", "ra", "--no-aug"},
        {"--ra-magnitude", "5"},
        {"--ra-magnitude", "5", "--auto-augment", "ta_wide"},
        {"--mixup-prob", "0.5"},
        {"--mixup-switch-prob", "0.5", "--mixup-alpha", "0.1"},
        {"--mixup-mode", "batch"},
        {"--progressive-epochs", "1:2"},
        {"--progressive-step", "4"},
        {"--crop-border", "2"},
    };
    char part[96];
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++) {
        (void)snprintf(part, sizeof part, "%s: does nothing here; it is for ", useless[i][0]);
        const char *const arguments[] = {CONV8,         shards,        out,           useless[i][0],
                                         useless[i][1], useless[i][2], useless[i][3], NULL};
        expect_refusal(2, part, out, arguments);
    }
    const char *const constant[] = {
        CONV8, shards, out, "--lr-unit", "epoch", "--lr-scheduler", "constant", "--lr-warmup-epochs",
        "0",   NULL};
    expect_refusal(2, "--lr-unit: does nothing here", out, constant);
    REFUSED(1, "--grad-accum-steps: 100 is more than the 10 steps of all epochs", out, CONV8, "--epochs", "2",
            "--grad-accum-steps", "100", shards);
}
