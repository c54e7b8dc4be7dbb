/* ftrain --recipe from outside: what a recipe gives, what wins over it, and how a wrong fit is told. */
#include "tests/programs/train_support.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the array that --list-recipes --json prints. */
static json_t *all_recipes(void)
{
    RunResult result = TRAIN(0, "--list-recipes", "--json");
    json_t *array = read_json(result.out);
    run_result_free(&result);
    assert_true(json_is_array(array) && json_array_size(array) > 0);
    return array;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (!text || !*text)
        fail_msg("a recipe has no %s", name);
    return text;
}

static bool is_for_pairs(const json_t *recipe)
{
    const char *model = json_string_value(json_object_get(json_object_get(recipe, "options"), "model"));
    return model && (strcmp(model, "nafnet") == 0 || strcmp(model, "unet") == 0);
}

/* ---- all of them ---- */

/* Every option is one that ftrain takes, with a value that it takes, and none is idle or at odds with
 * another. */
TEST_IN_FOLDER(test_every_recipe_makes_a_plan, folder)
{
    const char *const sets[] = {pack_colours(folder, 24, 4), make_set(folder, &train_negatives)};
    json_t *array = all_recipes(), *recipe;
    size_t i;
    json_array_foreach(array, i, recipe)
    {
        const bool pairs = is_for_pairs(recipe);
        const json_t *options = json_object_get(recipe, "options");
        /* Small images, which take little time: where the recipe says a size, and not several. And small
         * batches, of evaluation too; pairs are evaluated one by one. */
        const bool sized = json_object_get(options, "train-crop-size") != NULL;
        RunResult result =
            TRAIN(0, "--dry-run", "--recipe", text_of(recipe, "name"), "--batch-size", "2",
                  pairs ? "--seed" : "--val-batch-size", "2", "--device", "cpu", sets[pairs],
                  sized ? "--train-crop-size" : NULL, "32", pairs ? NULL : "--val-crop-size", "32");
        assert_contains(result.err, text_of(recipe, "summary"));
        assert_contains(result.err, text_of(recipe, "source"));
        /* Its resize is for a crop of its own, and goes with that. */
        if (sized && json_object_get(options, "val-resize-size"))
            assert_contains(result.err, "of these do nothing here: val-resize-size\n");
        else
            assert_contains_not(result.err, "do nothing here");
        run_result_free(&result);
    }
    json_decref(array);
}

/* Writes the page to a new text with blanks for line ends, as a reader sees it. */
static char *page_text(void)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/man/ftrain-recipes.7", getenv("FSHARD_SOURCE"));
    char *text = test_file_read(path, NULL);
    for (char *at = text; *at; at++)
        *at = isspace((unsigned char)*at) ? ' ' : *at;
    return text;
}

TEST(test_the_page_has_every_recipe_and_no_other)
{
    char *page = page_text(), head[64];
    json_t *array = all_recipes(), *recipe;
    size_t i, heads = 0;
    json_array_foreach(array, i, recipe)
    {
        (void)snprintf(head, sizeof head, ".It Cm %s ", text_of(recipe, "name"));
        const char *at = strstr(page, head), *end = at ? strstr(at + 1, ".It Cm ") : NULL;
        if (!at)
            fail_msg("ftrain-recipes(7) has no %s", text_of(recipe, "name"));
        const char *summary = at ? strstr(at, text_of(recipe, "summary")) : NULL;
        const char *source = at ? strstr(at, text_of(recipe, "source")) : NULL;
        if (!summary || !source || (end && (summary > end || source > end)))
            fail_msg("ftrain-recipes(7) does not say of %s what --list-recipes says",
                     text_of(recipe, "name"));
    }
    for (const char *at = page; (at = strstr(at, ".It Cm ")); at++)
        heads++;
    assert_int_equal(heads, json_array_size(array));
    json_decref(array);
    free(page);
}

/* ---- what wins ---- */

/* Returns whether the printed configuration has the line. */
static bool has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    return at && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n';
}

TEST_IN_FOLDER(test_config_wins_over_a_recipe_and_the_command_line_over_both, folder)
{
    const char *config = test_path(folder, "own.toml");
    test_file_write_text(config, "epochs = 7\nlr = 0.5\n");
    RunResult result = TRAIN(0, "--print-config", "--recipe", "rsb-a3", "--config", config, "--lr", "0.25");
    assert_true(has_line(result.out, "opt = \"lamb\"")); /* of the recipe */
    assert_true(has_line(result.out, "epochs = 7"));
    assert_true(has_line(result.out, "lr = 0.25"));
    assert_true(has_line(result.out, "[recipe]"));
    assert_true(has_line(result.out, "total-batch = 2048"));
    assert_false(has_line(result.out, "momentum = 0.9")); /* left open: a comment */
    run_result_free(&result);
}

TEST(test_the_page_names_what_is_printed_of_a_recipe)
{
    char *page = page_text(), fact[64];
    RunResult result = TRAIN(0, "--print-config", "--recipe", "finetune");
    const char *line = strstr(result.out, "[recipe]\n");
    assert_non_null(line);
    while (*(line = strchr(line, '\n') + 1)) {
        (void)snprintf(fact, sizeof fact, "%.*s ", (int)strcspn(line, " "), line);
        if (!strstr(page, fact))
            fail_msg("the page does not say what %sof [recipe] is", fact);
    }
    assert_true(has_line(result.out, "name = \"finetune\""));
    assert_contains(page, ".Cm name ");
    run_result_free(&result);
    free(page);
}

/* A value that a run would not use is not printed: with muon momentum is 0.95, and the rest decays by 0.3. */
TEST(test_what_the_optimizer_decides_has_no_value_when_printed)
{
    static const char *const names[] = {"momentum", "weight-decay", "rest-weight-decay", "lookahead",
                                        "opt-eps"};
    RunResult result = TRAIN(0, "--print-config", "--opt", "muon");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[40];
        (void)snprintf(line, sizeof line, "# %s =", names[i]);
        assert_true(has_line(result.out, line));
    }
    run_result_free(&result);
    result = TRAIN(0, "--print-config", "--recipe", "imagenette-5");
    assert_true(has_line(result.out, "momentum = 0.8"));
    assert_true(has_line(result.out, "# rest-weight-decay ="));
    run_result_free(&result);
}

/* A resize is for the crop beside it: with another crop the recipe's does nothing, and a given one counts. */
TEST_IN_FOLDER(test_a_crop_takes_the_place_of_a_recipes_crop_and_resize, folder)
{
    const char *colours = pack_colours(folder, 24, 4); /* of 32 pixels */
#define SIZED "--dry-run", "--recipe", "imagenette-5", "--model", "resnet18", "--device", "cpu", colours
    RunResult result = TRAIN(0, SIZED, "--train-crop-size", "32", "--val-crop-size", "32");
    assert_contains(result.err, "evaluation: short edge to 32, centre 32 pixels");
    assert_contains(result.err, "of these do nothing here: self-attention, val-resize-size\n");
    run_result_free(&result);
    SAYS(0, "evaluation: short edge to 40, centre 32 pixels", SIZED, "--train-crop-size", "32",
         "--val-crop-size", "32", "--val-resize-size", "40");
    SAYS(0, "weight decay of 0.3 are for --opt muon: give adamw a --lr and a --weight-decay of its own\n",
         SIZED, "--train-crop-size", "32", "--val-crop-size", "32", "--opt", "adamw");
    SAYS(0, "weight decay of 0.3 is for --opt muon: give sgd a --weight-decay of its own\n", SIZED,
         "--train-crop-size", "32", "--val-crop-size", "32", "--opt", "sgd", "--lr", "0.1");
    result = TRAIN(0, SIZED, "--train-crop-size", "32"); /* evaluation keeps the recipe's crop */
    assert_contains(result.err, "evaluation: short edge to 128, centre 128 pixels");
    assert_contains(result.err, "of these do nothing here: self-attention\n");
    run_result_free(&result);
}

/* Learned positions are of one size: the recipe's sizes of evaluation follow the size of training. */
TEST_IN_FOLDER(test_learned_positions_are_evaluated_at_the_size_of_training, folder)
{
    const char *colours = pack_colours(folder, 24, 4), *out = test_path(folder, "out");
#define LEARNED "--recipe", "deit-s", "--model", "deit_tiny_patch16", "--batch-size", "8", colours
    RunResult result = TRAIN(0, "--dry-run", LEARNED, "--train-crop-size", "32");
    assert_contains(result.err, "evaluation: short edge to 37, centre 32 pixels as in training "
                                "(deit_tiny_patch16 learns positions), bicubic\n");
    assert_contains(result.err, "of these do nothing here: val-crop-size\n");
    run_result_free(&result);
    SAYS(0, "evaluation: short edge to 40, centre 32 pixels", "--dry-run", LEARNED, "--train-crop-size", "32",
         "--val-resize-size", "40");
    REFUSED(2, "--val-crop-size: 48 pixels, and deit_tiny_patch16 has learned positions", out, LEARNED,
            "--train-crop-size", "32", "--val-crop-size", "48");
    SAYS(0, "evaluation: short edge to 256, centre 224 pixels, bicubic", "--dry-run", LEARNED,
         "--train-crop-size", "32", "--pos-embed", "sincos");
    /* A recipe whose own two sizes differ is for other networks. */
    REFUSED(2, "recipe rsb-a3: --val-crop-size: 224 pixels, and vit_tiny_patch16", out, "--recipe", "rsb-a3",
            "--model", "vit_tiny_patch16", "--batch-size", "8", colours);
}

TEST_IN_FOLDER(test_a_run_notes_its_recipe_and_is_repeated_from_its_notes, folder)
{
    const char *shards = make_set(folder, &train_plain), *recipe = test_path(folder, "own.toml");
    test_file_write_text(recipe,
                         "model = 'conv8'\nepochs = 3\nopt = 'adamw'\nopt-betas = '0.8:0.9'\nlr = 0.02\n"
                         "batch-size = 8\n[recipe]\nsummary = 'a try'\nsource = 'nobody'\n"
                         "total-batch = 32\n");
    RunResult result = TRAIN(0, "--recipe", recipe, "--epochs", "2", shards, test_path(folder, "a"));
    assert_contains(result.err, "own.toml: a try (nobody)");
    assert_contains(result.err,
                    "recipe's options: model conv8, opt adamw, opt-betas 0.8:0.9, lr 0.02, batch-size 8\n");
    assert_contains(result.err, "learning rate of 0.02 is for updates of 32 images (batch size x ranks x "
                                "accumulation), and these are of 8: in proportion it would be --lr 0.005");
    run_result_free(&result);
    json_t *notes = read_json_file(test_path(folder, "a/args.json"));
    const json_t *facts = json_object_get(notes, "recipe");
    assert_string_equal(json_string_value(json_object_get(facts, "name")), recipe);
    assert_int_equal(json_array_size(json_object_get(facts, "gives")), 5); /* epochs were given */
    json_decref(notes);
    char *page = test_file_read(test_path(folder, "a/report.html"), NULL);
    assert_contains(page, "own.toml");
    free(page);
    /* An option of the recipe that does nothing any more is told, in the repetition too; a given one is
     * refused. */
    result = TRAIN(0, "--config", test_path(folder, "a/args.json"), "--opt", "sgd", shards,
                   test_path(folder, "b"));
    assert_contains(result.err, "of these do nothing here: opt-betas\n");
    assert_contains(result.err,
                    "the recipe's learning rate of 0.02 is for --opt adamw: give sgd a --lr of its own\n");
    run_result_free(&result);
    REFUSED(2, "--opt-betas: does nothing here", test_path(folder, "c"), "--recipe", recipe, "--opt", "sgd",
            "--opt-betas", "0.9:0.99", shards);
    TRAINED("--config", test_path(folder, "a/args.json"), shards, test_path(folder, "d"));
    assert_same_file(folder, "a", "d", true);
    SAYS(0, "the run ended after 2 epochs", "--recipe", recipe, "--epochs", "2", "--resume", "auto", shards,
         test_path(folder, "d"));
}

TEST_IN_FOLDER(test_a_recipe_for_weights_of_others_tells_of_random_ones, folder)
{
    const char *colours = pack_colours(folder, 24, 4), *out = test_path(folder, "out");
    const char *own = test_path(folder, "own.toml"), *weights = test_path(folder, "first/last.safetensors");
    static const char told[] = "is for weights that others have trained, and conv8 begins with random ones: "
                               "give --weights FILE and the --model that it is of\n";
    test_file_write_text(own, "model = 'conv8'\nepochs = 1\n[recipe]\nfor-weights = true\n");
    SAYS(0, "recipe finetune is for weights that others have trained, and resnet18 begins with random ones",
         "--dry-run", "--recipe", "finetune", "--batch-size", "8", colours);
    TRAINED("--model", "conv8", "--epochs", "1", colours, test_path(folder, "first"));
    SAYS(0, told, "--recipe", own, "--resume", "auto", colours, out);
    RunResult result = TRAIN(0, "--recipe", own, "--resume", "auto", colours, out); /* goes on */
    assert_contains_not(result.err, "random ones");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--recipe", own, "--weights", weights, colours);
    assert_contains_not(result.err, "random ones");
    run_result_free(&result);
    SAYS(0, told, "--dry-run", "--config", test_path(folder, "out/args.json"), colours);
}

/* 72 images: 18 updates of 8, of 2 epochs. */
TEST_IN_FOLDER(test_what_a_short_run_leaves_as_it_began_is_told, folder)
{
    const char *colours = pack_colours(folder, 24, 4), *weights = test_path(folder, "first/last.safetensors");
    SAYS(0, "--head-only keeps weights that are random: give --weights FILE", "--dry-run", "--model", "conv8",
         "--head-only", colours);
    SAYS(0, "--freeze keeps weights that are random: give --weights FILE", "--dry-run", "--model", "conv8",
         "--freeze", "model.1", colours);
    SAYS(0,
         "--model-ema: after 18 updates 83 % of the average are what it began with; --model-ema-warmup or a "
         "lower --model-ema-decay",
         "--dry-run", "--model", "conv8", "--batch-size", "8", "--epochs", "2", "--model-ema",
         "--model-ema-decay", "0.99", "--no-model-ema-warmup", colours);
    TRAINED("--model", "conv8", "--epochs", "1", colours, test_path(folder, "first"));
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", "--head-only", "--weights", weights,
                             "--model-ema", "--model-ema-decay", "0.99", colours);
    assert_contains_not(result.err, "random");
    assert_contains_not(result.err, "of the average");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--model", "conv8", "--batch-size", "8", "--epochs", "2", "--model-ema",
                   "--model-ema-decay", "0.8", "--no-model-ema-warmup", colours);
    assert_contains_not(result.err, "of the average");
    run_result_free(&result);
}

/* ---- what is wrong ---- */

TEST_IN_FOLDER(test_a_recipe_that_does_not_fit_is_told, folder)
{
    const char *colours = pack_colours(folder, 24, 4), *pairs = make_set(folder, &train_negatives);
    const char *out = test_path(folder, "out");
    REFUSED(1, "recipe rsb-a3: --batch-size: 2048 is more than the 72 training samples; use 72 or less", out,
            "--recipe", "rsb-a3", colours);
    SAYS(0, "the images are smaller than the crop of 160 pixels, and are enlarged", "--dry-run", "--recipe",
         "rsb-a3", "--batch-size", "8", colours);
    /* Evaluation is told of by itself where it enlarges them more. */
    SAYS(
        0,
        "the images are smaller than evaluation's short edge of 236 pixels, and are enlarged: pack them with "
        "a short edge of 236 or more (fresize --max-size), or evaluate at 32 (--val-resize-size, "
        "--val-crop-size)\n",
        "--dry-run", "--recipe", "rsb-a3", "--batch-size", "8", "--train-crop-size", "32", colours);
    RunResult result = TRAIN(0, "--dry-run", "--model", "resnet18", "--train-crop-size", "64", colours);
    assert_contains(result.err, "the crop of 64 pixels, and are enlarged");
    assert_contains_not(result.err, "evaluation's short edge of");
    run_result_free(&result);
    REFUSED(1, "recipe rsb-a3: ", out, "--recipe", "rsb-a3", "--batch-size", "2", pairs);
    /* options of another network */
    SAYS(0, "of these do nothing here: drop-path, zero-init-last, ", "--dry-run", "--recipe", "rsb-a2",
         "--model", "resnet9", "--batch-size", "8", "--train-crop-size", "32", "--val-crop-size", "32",
         colours);
    REFUSED(2, "--drop-path: resnet9 has none", out, "--recipe", "rsb-a2", "--model", "resnet9",
            "--drop-path", "0.1", "--batch-size", "8", colours);
    SAYS(0, "convnext_atto was published with adamw: --recipe convnext, or --opt adamw", "--dry-run",
         "--model", "convnext_atto", "--batch-size", "8", colours);
    REFUSED(2, "--recipe: 'rsb' is none of the recipes: rsb-a3, ", out, "--recipe", "rsb", colours);
    REFUSED(2, "finetune; did you mean imagenette-5?", out, "--recipe", "imagenete-5", colours);
    REFUSED(2, "finetune; did you mean rsb-a3 or rsb-a2?", out, "--recipe", "rsb-a4", colours);
}

/* Its user has typed none of it. */
TEST_IN_FOLDER(test_what_network_or_memory_refuse_of_a_recipe_is_said_to_be_the_recipes, folder)
{
#define ALIEN "--recipe", "airbench94", "--model", "resnet18", "--batch-size", "8"
#define TOO_LARGE                                                                                            \
    "--device", "cpu", "--model", "convnext_large", "--train-crop-size", "1280" /* 10 GiB an image */
    const char *colours = pack_colours(folder, 24, 4), *out = test_path(folder, "out");
    REFUSED(2,
            "recipe airbench94: images of 32 x 32 pixels: resnet18: --lr-of: 'head' matches no parameter; ",
            out, ALIEN, colours);
    RunResult result = TRAIN(2, ALIEN, "--lr-of", "tail=2", colours, out);
    assert_contains(result.err, "--lr-of: 'tail' matches no parameter; ");
    assert_contains_not(result.err, "recipe airbench94: ");
    run_result_free(&result);
    const char *path = test_path(folder, "own.toml");
    test_file_write_text(path, "batch-size = 72\n");
    REFUSED(1, "own.toml: batches of 72 images of 1280 x 1280 pixels: ", out, TOO_LARGE, "--recipe", path,
            colours);
    result = TRAIN(1, TOO_LARGE, "--recipe", path, "--batch-size", "64", colours, out);
    assert_contains(result.err, "ftrain: batches of 64 images of 1280 x 1280 pixels: ");
    run_result_free(&result);
#undef ALIEN
#undef TOO_LARGE
}

TEST_IN_FOLDER(test_a_file_that_is_no_recipe_is_told, folder)
{
    const char *path = test_path(folder, "own.toml"), *out = test_path(folder, "out");
    const char *shards = make_set(folder, &train_plain);
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[recipe]\nsorce = 'a paper'\n",
         "[recipe] has no 'sorce'; it has summary, source, total-batch and for-weights"},
        {"[recipe]\nfor-weights = 1\n", "for-weights, whether it trains weights of others, is true or false"},
        {"[recipe]\ntotal-batch = 'many'\n", "total-batch, the images of an update, is a whole number"},
        {"[recipe]\nsource = 7\n", "source of [recipe] is a text"},
        {"learningrate = 1\n", "own.toml: --learningrate: no such option"},
        {"force = true\n", "--force is for the command line alone"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_file_write_text(path, cases[i].text);
        REFUSED(2, cases[i].message, out, "--recipe", path, shards);
    }
    REFUSED(1, "none.toml: ", out, "--recipe", test_path(folder, "none.toml"), shards);
}
