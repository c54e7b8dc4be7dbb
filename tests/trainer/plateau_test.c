/* The rate that falls on a plateau, against PyTorch's ReduceLROnPlateau, measure by measure
 * (golden/make_golden_optim.py). */
#include "trainer/optim/plateau.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"

static PlateauOptions options_of(const json_t *o)
{
    const char *threshold_mode = json_string_value(json_object_get(o, "threshold_mode"));
    return (PlateauOptions){.higher_is_better = strcmp(golden_text(o, "mode"), "max") == 0,
                            .threshold_is_absolute = threshold_mode && strcmp(threshold_mode, "abs") == 0,
                            .threshold = golden_real(o, "threshold"),
                            .factor = golden_real(o, "factor"),
                            .patience = golden_integer(o, "patience"),
                            .cooldown = golden_integer(o, "cooldown"),
                            .minimum = golden_real(o, "min_lr")};
}

/* Returns the worst error of the rates; with restarts, the state is saved and loaded again after each
 * measure. */
static double case_error(const json_t *c, bool restarts)
{
    const PlateauOptions options = options_of(json_object_get(c, "options"));
    const json_t *rates = json_object_get(c, "rates");
    Plateau plateau = plateau_start(golden_real(c, "base"));
    double worst = 0, before = plateau.rate, values[PLATEAU_STATE];
    size_t i;
    json_t *measure;
    json_array_foreach(json_object_get(c, "measures"), i, measure)
    {
        const double wanted = json_number_value(json_array_get(rates, i));
        const bool fell = plateau_step(&plateau, &options, json_number_value(measure));
        assert_true(fell == (plateau.rate < before));
        worst = fmax(worst, fabs(plateau.rate / wanted - 1));
        before = plateau.rate;
        if (restarts) {
            plateau_save(&plateau, values);
            plateau = plateau_start(0);
            assert_true(plateau_load(&plateau, values));
        }
    }
    return worst;
}

TEST(test_every_rate_is_pytorchs)
{
    json_t *document = golden_load("schedules.json"), *c;
    double worst = 0;
    size_t i;
    json_array_foreach(json_object_get(document, "plateaus"), i, c)
    {
        for (int restarts = 0; restarts < 2; restarts++) {
            const double error = case_error(c, restarts);
            worst = fmax(worst, error);
            if (!restarts)
                print_message("  %-50s %.1e\n", golden_text(c, "name"), error);
        }
    }
    assert_true(i == 7);
    json_decref(document);
    assert_true(worst < 1e-9);
}

TEST(test_nan_is_no_better)
{
    const PlateauOptions options = {.factor = 0.5, .patience = 1};
    Plateau plateau = plateau_start(1);
    assert_false(plateau_step(&plateau, &options, NAN));
    assert_true(plateau_step(&plateau, &options, NAN));
    assert_true(plateau.rate == 0.5 && !plateau.measured);
    assert_false(plateau_step(&plateau, &options, 3));
    assert_true(plateau.measured && plateau.best == 3);
}

TEST(test_an_infinite_measure_can_be_saved)
{
    const PlateauOptions options = {.higher_is_better = true, .factor = 0.5}; /* PSNR of equal images */
    Plateau plateau = plateau_start(1);
    double values[PLATEAU_STATE];
    assert_false(plateau_step(&plateau, &options, INFINITY));
    plateau_save(&plateau, values);
    assert_true(values[1] == DBL_MAX);
    assert_true(plateau_load(&plateau, values));
    assert_true(plateau_step(&plateau, &options, INFINITY));
}

TEST(test_broken_numbers_are_not_loaded)
{
    static const double bad[][PLATEAU_STATE] = {{NAN, 0, 0, 0, 0},
                                                {0.1, INFINITY, 1, 0, 0},
                                                {-1, 0, 0, 0, 0},
                                                {0.1, 0, 0, -1, 0},
                                                {0.1, 0, 0, 0, 1e300}};
    Plateau plateau = plateau_start(0.25);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(plateau_load(&plateau, bad[i]));
    assert_true(plateau.rate == 0.25);
}
