#include "trainer/plan/train_use.h"

#include <string.h>

#include "tests/support/support.h"

/* Returns the row of an option. */
static const Option *row_of(const Option *rows, const char *name)
{
    while (rows->name && strcmp(rows->name, name) != 0)
        rows++;
    assert_non_null(rows->name);
    return rows;
}

TEST(test_the_options_say_what_is_done)
{
    TrainOptions options = train_options_default();
    assert_int_equal(train_use(&options), USE_TRAIN);
    options.program.dry_run = true;
    assert_int_equal(train_use(&options), USE_DRY_RUN);
    options = train_options_default();
    options.data.bench_loader = true;
    assert_int_equal(train_use(&options), USE_BENCH);
    assert_string_equal(train_use_name(&options), "--bench-loader");
    options = train_options_default();
    options.inference.evaluate = true;
    assert_int_equal(train_use(&options), USE_EVALUATE);
    options.inference.export_path = "table.csv"; /* with --evaluate, too, answers are written */
    assert_int_equal(train_use(&options), USE_PREDICTS);
    assert_string_equal(train_use_name(&options), "--export");
    options = train_options_default();
    options.inference.export_onnx = "network.onnx";
    assert_int_equal(train_use(&options), USE_ONNX);
    assert_string_equal(train_use_name(&options), "--export-onnx");
}

TEST(test_typed_options_of_another_use_are_refused_together)
{
    static const struct {
        unsigned use;
        const char *names[2], *message;
    } cases[] = {
        {USE_EVALUATE, {"lr"}, "--lr: does nothing with --evaluate; it is for training"},
        {USE_EVALUATE,
         {"lr", "drop-caches"},
         "--drop-caches, --lr: do nothing with --evaluate; leave them out"},
        {USE_BENCH,
         {"amp", "epochs"},
         "--amp, --epochs: do nothing with --bench-loader; they are for training"},
        {USE_TRAIN, {"tile"}, "--tile: does nothing here; it is for --predict and --export"},
        {USE_TRAIN, {"drop-caches"}, "--drop-caches: does nothing here; it is for --bench-loader"},
        {USE_ONNX, {"device"}, "--device: does nothing with --export-onnx; it is for what runs the network"},
        {USE_ONNX, {"lr"}, "--lr: does nothing with --export-onnx; it is for training"},
        {USE_IMAGES,
         {"cache"},
         "--cache: does nothing with images that nobody has packed; it is for datasets"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FshError error = {0};
        TrainOptions options = train_options_default();
        Option rows[TRAIN_OPTION_ROWS];
        train_options_rows(&options, rows);
        options.inference.evaluate = cases[i].use == USE_EVALUATE;
        options.data.bench_loader = cases[i].use == USE_BENCH;
        options.inference.export_onnx = cases[i].use == USE_ONNX ? "network.onnx" : NULL;
        for (size_t k = 0; k < 2 && cases[i].names[k]; k++)
            *row_of(rows, cases[i].names[k])->typed = true;
        assert_int_equal(train_use_take(&options, cases[i].use, &error), FSH_ERR_USAGE);
        assert_string_equal(error.message, cases[i].message);
    }
}

TEST(test_a_file_may_give_options_of_another_use)
{
    FshError error = {0};
    TrainOptions options = train_options_default();
    const TrainOptions plain = train_options_default();
    options.inference.evaluate = true;
    options.training.epochs = 90;
    options.views.flip_probability = 0.25;
    options.image.val_crop_size = 224;
    options.given[(const char *)&options.training.epochs - (const char *)&options] = true;
    assert_true(train_given(&options, &options.training.epochs));
    assert_ok(train_use_take(&options, USE_EVALUATE, &error), &error);
    assert_int_equal(options.training.epochs, plain.training.epochs);
    assert_false(train_given(&options, &options.training.epochs));
    assert_true(options.views.flip_probability == plain.views.flip_probability);
    assert_int_equal(options.image.val_crop_size, 224); /* which evaluation reads */
}

TEST(test_rows_without_uses_have_those_of_their_part)
{
    TrainOptions options = train_options_default();
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&options, rows);
    size_t count = 0;
    while (rows[count].name)
        count++;
    assert_in_range(count + 16, 1, TRAIN_OPTION_ROWS); /* with room for some more */
    assert_int_equal(row_of(rows, "lr")->uses, USE_LEARN);
    assert_int_equal(row_of(rows, "interpolation")->uses, USE_ANY); /* its part is for samples */
    assert_int_equal(row_of(rows, "hflip-prob")->uses, USE_SAMPLES);
    assert_int_equal(row_of(rows, "jobs")->uses, 0);
}
