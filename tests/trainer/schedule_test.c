#include "trainer/optim/schedule.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"

/* 10 epochs of 20 steps, the first two of them warm-up. */
static const Schedule base = {.base = 0.4,
                              .minimum = 0.004,
                              .warmup_factor = 0.01,
                              .total_steps = 200,
                              .warmup_steps = 40,
                              .step_size = 60,
                              .gamma = 0.1,
                              .power = 2};

static Schedule with_kind(ScheduleKind kind)
{
    Schedule schedule = base;
    schedule.kind = kind;
    return schedule;
}

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-12)
        fail_msg("%.15g is not %.15g", value, expected);
}

TEST(test_every_kind_warms_up_along_a_line)
{
    for (int kind = 0; kind < SCHEDULE_KIND_COUNT; kind++) {
        const Schedule schedule = with_kind((ScheduleKind)kind);
        if (kind == SCHEDULE_ONE_CYCLE) /* has none */
            continue;
        assert_near(schedule_at(&schedule, 0), 0.004);
        assert_near(schedule_at(&schedule, 10), 0.004 + 0.25 * 0.396);
        assert_near(schedule_at(&schedule, 39), 0.004 + 0.975 * 0.396);
        assert_near(schedule_at(&schedule, 40), 0.4);
    }
}

TEST(test_constant_stays)
{
    const Schedule schedule = with_kind(SCHEDULE_CONSTANT);
    assert_near(schedule_at(&schedule, 199), 0.4);
}

TEST(test_step_drops_by_gamma)
{
    const Schedule schedule = with_kind(SCHEDULE_STEP);
    assert_near(schedule_at(&schedule, 99), 0.4);
    assert_near(schedule_at(&schedule, 100), 0.04);
    assert_near(schedule_at(&schedule, 159), 0.04);
    assert_near(schedule_at(&schedule, 160), 0.004);
}

/* torch.optim.lr_scheduler.CosineAnnealingLR(SGD(lr=0.4), T_max=160, eta_min=0.004), printed after n steps.
 */
TEST(test_cosine_is_pytorchs)
{
    const Schedule schedule = with_kind(SCHEDULE_COSINE);
    const struct {
        uint64_t step;
        double rate;
    } golden[] = {{0, 0.4},
                  {1, 0.39996183361544885},
                  {40, 0.34200714267493626},
                  {80, 0.20199999999999985},
                  {120, 0.06199285732506353},
                  {159, 0.004038166384551166}};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        assert_near(schedule_at(&schedule, 40 + golden[i].step), golden[i].rate);
}

static uint64_t count_of(const json_t *object, const char *key)
{
    return json_object_get(object, key) ? (uint64_t)golden_integer(object, key) : 0;
}

static double real_of(const json_t *object, const char *key)
{
    return json_object_get(object, key) ? golden_real(object, key) : 0;
}

static ScheduleKind kind_of(const char *name)
{
    int kind = 0;
    while (kind < SCHEDULE_KIND_COUNT && strcmp(schedule_names[kind], name) != 0)
        kind++;
    assert_int_not_equal(kind, SCHEDULE_KIND_COUNT);
    return (ScheduleKind)kind;
}

static Schedule schedule_of(const json_t *s)
{
    const char *warmup = json_string_value(json_object_get(s, "warmup"));
    return (Schedule){.kind = kind_of(golden_text(s, "kind")),
                      .base = golden_real(s, "base"),
                      .minimum = real_of(s, "minimum"),
                      .warmup = warmup && strcmp(warmup, "cosine") == 0 ? WARMUP_COSINE : WARMUP_LINEAR,
                      .warmup_factor = real_of(s, "warmup_factor"),
                      .total_steps = count_of(s, "total_steps"),
                      .warmup_steps = count_of(s, "warmup_steps"),
                      .step_size = count_of(s, "step_size"),
                      .gamma = real_of(s, "gamma"),
                      .power = real_of(s, "power"),
                      .rise = real_of(s, "pct_start"),
                      .div = real_of(s, "div_factor"),
                      .final_div = real_of(s, "final_div_factor"),
                      .momentum_min = real_of(s, "base_momentum"),
                      .momentum_max = real_of(s, "max_momentum"),
                      .hold_steps = count_of(s, "hold_steps"),
                      .warmup_hold_steps = count_of(s, "warmup_hold_steps")};
}

TEST(test_milestones_are_pytorchs)
{
    json_t *document = golden_load("schedules.json"), *c, *rate;
    size_t i, step, k;
    json_array_foreach(json_object_get(document, "milestones"), i, c)
    {
        const json_t *told = json_object_get(c, "schedule"), *at = json_object_get(told, "milestones");
        Schedule schedule = schedule_of(told);
        for (k = 0; k < json_array_size(at); k++)
            schedule.milestones[schedule.milestone_count++] =
                (uint64_t)json_integer_value(json_array_get(at, k));
        json_array_foreach(json_object_get(c, "rates"), step, rate)
        {
            const double wanted = json_number_value(rate), got = schedule_at(&schedule, step);
            if (!(fabs(got - wanted) < 1e-9 * wanted))
                fail_msg("%s: step %zu: %.17g is not %.17g", golden_text(c, "name"), step, got, wanted);
        }
    }
    assert_int_equal(i, 3);
    json_decref(document);
}

/* golden/make_golden_optim.py: PyTorch's schedulers, stepped. */
TEST(test_every_step_is_pytorchs)
{
    json_t *document = golden_load("schedules.json"), *c, *rate;
    double worst = 0;
    size_t i, step;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const Schedule schedule = schedule_of(json_object_get(c, "schedule"));
        double of_case = 0;
        json_array_foreach(json_object_get(c, "rates"), step, rate)
        {
            const double wanted = json_number_value(rate), got = schedule_at(&schedule, step);
            const double error = fabs(got - wanted) / fmax(wanted, 1e-9);
            if (!(error < 1e-9))
                print_error("%s: step %zu: %.17g is not %.17g\n", golden_text(c, "name"), step, got, wanted);
            of_case = fmax(of_case, error);
        }
        assert_true(step >= 60);
        json_array_foreach(json_object_get(c, "momenta"), step, rate)
        {
            const double wanted = json_number_value(rate), got = schedule_momentum_at(&schedule, step);
            of_case = fmax(of_case, fabs(got - wanted) / wanted);
        }
        print_message("  %-50s %.1e\n", golden_text(c, "name"), of_case);
        worst = fmax(worst, of_case);
    }
    assert_true(i == 17);
    json_decref(document);
    assert_true(worst < 1e-9);
}

/* fastai's fit_flat_cos with pct_start 0.75: SchedCos from 0.4 to 0.004 in the last quarter of 160 steps. */
TEST(test_flat_cosine_stays_and_then_falls)
{
    Schedule schedule = with_kind(SCHEDULE_FLAT_COSINE);
    schedule.flat = 0.75;
    assert_near(schedule_at(&schedule, 100), 0.4);
    assert_near(schedule_at(&schedule, 160), 0.4);
    assert_near(schedule_at(&schedule, 170), 0.004 + 0.396 * (1 + cos(3.14159265358979323846 / 4)) / 2);
    assert_near(schedule_at(&schedule, 180), 0.202);
    assert_near(schedule_at(&schedule, 200), 0.004);
    schedule.flat = 0; /* a cosine */
    const Schedule cosine = with_kind(SCHEDULE_COSINE);
    assert_near(schedule_at(&schedule, 77), schedule_at(&cosine, 77));
}

TEST(test_polynomial_falls_to_the_minimum)
{
    const Schedule schedule = with_kind(SCHEDULE_POLYNOMIAL);
    assert_near(schedule_at(&schedule, 120), 0.004 + 0.25 * 0.396);
    assert_near(schedule_at(&schedule, 500), 0.004);
}

TEST(test_warmup_from_zero_begins_at_nothing)
{
    for (int warmup = 0; warmup < WARMUP_KIND_COUNT; warmup++) {
        Schedule schedule = with_kind(SCHEDULE_CONSTANT);
        schedule.warmup_factor = 0;
        schedule.warmup = (WarmupKind)warmup;
        assert_near(schedule_at(&schedule, 0), 0);
        assert_near(schedule_at(&schedule, 20), 0.2);
        assert_near(schedule_at(&schedule, 40), 0.4);
        assert_string_equal(warmup_names[warmup], warmup ? "cosine" : "linear");
    }
}

TEST(test_a_warmup_may_end_within_an_epoch)
{
    Schedule schedule = with_kind(SCHEDULE_LINEAR);
    schedule.warmup_steps = 30;
    schedule.hold_steps = schedule.warmup_hold_steps = 20;
    assert_near(schedule_at(&schedule, 29), 0.4 * (0.01 + 0.99 * 20 / 30));
    assert_near(schedule_at(&schedule, 30), 0.4); /* the epoch began in the warm-up */
    assert_near(schedule_at(&schedule, 40), 0.4 - 0.396 * 10 / 170);
    assert_near(schedule_at(&schedule, 59), 0.4 - 0.396 * 10 / 170);
}

TEST(test_linear_falls_to_the_minimum)
{
    const Schedule schedule = with_kind(SCHEDULE_LINEAR);
    assert_near(schedule_at(&schedule, 80), 0.004 + 0.75 * 0.396);
    assert_near(schedule_at(&schedule, 199), 0.004 + 0.396 / 160);
}

TEST(test_steps_behind_the_end_keep_its_rate)
{
    const Schedule linear = with_kind(SCHEDULE_LINEAR), cosine = with_kind(SCHEDULE_COSINE);
    assert_near(schedule_at(&linear, 200), 0.004);
    assert_near(schedule_at(&linear, 1000), 0.004);
    assert_near(schedule_at(&cosine, 1000), 0.004);
}

TEST(test_without_warmup_the_first_step_has_the_full_rate)
{
    Schedule schedule = with_kind(SCHEDULE_COSINE);
    schedule.warmup_steps = 0;
    assert_near(schedule_at(&schedule, 0), 0.4);
}

TEST(test_names_lead_to_kinds)
{
    assert_string_equal(schedule_names[SCHEDULE_CONSTANT], "constant");
    assert_string_equal(schedule_names[SCHEDULE_STEP], "step");
    assert_string_equal(schedule_names[SCHEDULE_COSINE], "cosine");
    assert_string_equal(schedule_names[SCHEDULE_LINEAR], "linear");
    assert_string_equal(schedule_names[SCHEDULE_POLYNOMIAL], "polynomial");
    assert_string_equal(schedule_names[SCHEDULE_FLAT_COSINE], "flat-cosine");
    assert_string_equal(schedule_names[SCHEDULE_PLATEAU], "plateau");
    assert_null(schedule_names[SCHEDULE_KIND_COUNT]);
}
