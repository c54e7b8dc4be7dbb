/* The plan of a run: batches, steps, learning rates, optimizers, and what is refused. */
#include "tests/trainer/plan_case.h"

#include <math.h>

#include "trainer/plan/plan_chosen.h"

TEST(test_small_splits_get_small_batches)
{
    static const uint64_t cases[][2] = {{1000000, 64}, {1280, 64}, {1279, 32}, {400, 16}, {200, 8},
                                        {20, 8},       {8, 8},     {5, 5},     {1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){32, 3, true, cases[i][0], false});
        assert_ok(plan_case(&made), &made.error);
        assert_int_equal(made.plan.train_spec.batch, cases[i][1]);
        assert_int_equal(made.plan.steps_per_epoch, cases[i][0] / cases[i][1]);
    }
}

TEST(test_evaluation_has_a_step_for_every_sample)
{
    Case made = make_case((Facts){32, 3, true, 1001, false});
    made.options.training.val_batch_size = 50;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.evaluation_steps, 21);
}

TEST(test_the_learning_rate_grows_with_the_batch)
{
    Case made = make_case((Facts){32, 3, true, 100000, false});
    made.options.training.batch_size = 128;
    made.options.schedule.lr_base = 0.4;
    made.options.training.epochs = 10;
    assert_ok(plan_case(&made), &made.error);
    assert_true(fabs(made.plan.schedule.base - 0.2) < 1e-12);
    assert_int_equal(made.plan.schedule.total_steps, 7810);
    assert_int_equal(made.plan.schedule.warmup_steps, 1562); /* a fifth */
    made.options.schedule.lr = 0.7;
    give(&made, "lr-warmup-epochs");
    made.options.schedule.lr_warmup_epochs = 0.5;
    assert_ok(plan_case(&made), &made.error);
    assert_true(made.plan.schedule.base == 0.7);
    assert_int_equal(made.plan.schedule.warmup_steps, 391);
}

TEST(test_a_run_of_iterations_is_cut_into_stretches)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.training.batch_size = 64; /* 15 to a pass */
    made.options.training.iters = 100;
    made.options.training.val_every = 30;
    made.options.schedule.lr_warmup_iters = 7;
    assert_ok(plan_case(&made), &made.error);
    const TrainPlan *plan = &made.plan;
    assert_true(plan_counts_iterations(plan));
    assert_int_equal(plan->steps_per_pass, 15);
    assert_int_equal(plan->epochs, 4);
    assert_int_equal(plan->total_steps, 100);
    assert_int_equal(plan->schedule.total_steps, 100);
    assert_int_equal(plan->schedule.warmup_steps, 7);
    assert_int_equal(plan->evaluation_interval, 1);
    static const uint64_t steps[] = {30, 30, 30, 10, 0}, before[] = {0, 30, 60, 90, 100};
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(plan_epoch_steps(plan, i), steps[i]);
        assert_int_equal(plan_steps_before(plan, i), before[i]);
    }
    char text[40];
    assert_string_equal(plan_epoch_text(plan, 3, text, sizeof text), "iteration 100");
    made.options.training.val_every = 0; /* a pass; a fifth of the run is warm-up, but at most 5 passes */
    made.options.schedule.lr_warmup_iters = 0;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(plan->steps_per_epoch, 15);
    assert_int_equal(plan->epochs, 7);
    assert_int_equal(plan->schedule.warmup_steps, 20);
    made.options.training.grad_accum_steps = 4; /* of 12 steps in a pass: 3 updates */
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(plan->steps_per_pass, 12);
    assert_int_equal(plan->total_steps, 400);
    assert_int_equal(plan_iterations(plan, plan->total_steps), 100);
    assert_int_equal(plan->epochs, 34);
}

TEST(test_a_least_learning_rate_above_the_highest_is_refused)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.schedule.lr = 0.1;
    made.options.schedule.lr_min = 0.1;
    assert_ok(plan_case(&made), &made.error);
    made.options.schedule.lr_min = 0.2;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--lr-min: 0.2 is more than the highest learning rate of 0.1");
    made.options.schedule.lr_scheduler = SCHEDULE_CONSTANT; /* has no use for it */
    assert_ok(plan_case(&made), &made.error);
}

TEST(test_a_step_at_least_is_behind_the_warm_up)
{
    Case made = make_case((Facts){32, 3, true, 100, false});
    made.options.training.epochs = 1;
    made.options.training.batch_size = 50;
    give(&made, "lr-warmup-epochs");
    made.options.schedule.lr_warmup_epochs = 0.9; /* of two steps: rounded, both */
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.schedule.total_steps, 2);
    assert_int_equal(made.plan.schedule.warmup_steps, 1);
}

TEST(test_one_cycle_rises_by_itself_and_moves_the_momentum)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.schedule.lr_scheduler = SCHEDULE_ONE_CYCLE;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.schedule.warmup_steps, 0);
    assert_true(made.plan.recipe.optimizer.cycles_momentum);
    assert_true(schedule_at(&made.plan.schedule, 0) == made.plan.schedule.base / 25);
    made.options.schedule.cycle_momentum = false;
    assert_ok(plan_case(&made), &made.error);
    assert_false(made.plan.recipe.optimizer.cycles_momentum);
    made.options.schedule.cycle_momentum = true;
    made.options.schedule.base_momentum = 0.96;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--base-momentum: 0.96 is more than --max-momentum, 0.95");
    made.options.schedule.base_momentum = 0.85;
    give(&made, "momentum");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--momentum: does nothing here; it is for runs without");
    made = make_case((Facts){256, 3, false, 1000, false});
    made.options.schedule.lr_scheduler = SCHEDULE_ONE_CYCLE;
    give(&made, "lr-warmup-epochs");
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "as one-cycle does");
}

TEST(test_optimizers_have_defaults_of_their_own)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    const Optimizer *o = &made.plan.recipe.optimizer;
    made.options.update.optimizer = OPTIMIZER_RANGER;
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->beta1 == 0.95 && o->beta2 == 0.99 && o->epsilon == 1e-6 && o->weight_decay == 0.01);
    assert_int_equal(o->lookahead_steps, 6);
    made.options.update.lookahead_steps = 4;
    made.options.update.betas = "0.8:0.9";
    give(&made, "lookahead");
    give(&made, "opt-betas");
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(o->lookahead_steps, 4);
    assert_true(o->beta1 == 0.8 && o->beta2 == 0.9);
    made = make_case((Facts){256, 3, false, 1000, false});
    made.options.update.optimizer = OPTIMIZER_NADAMW;
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->beta2 == 0.999 && o->weight_decay == 0.05 && made.plan.schedule.base == 0.001);
    assert_int_equal(o->lookahead_steps, 0);
    made.options.update.optimizer = OPTIMIZER_RADAM; /* its decay is part of the gradient */
    assert_ok(plan_case(&made), &made.error);
    assert_true(o->weight_decay == 5e-4);
}

TEST(test_options_that_would_do_nothing_are_refused)
{
    static const struct {
        const char *option, *message;
        bool pairs;
    } cases[] = {
        {"lr-step-size", "--lr-step-size: does nothing here; it is for --lr-scheduler step", false},
        {"opt-betas", "--opt-betas: does nothing here", false},
        {"momentum", "--momentum: does nothing here; it is for --opt sgd, sgdw, lars and muon", true},
        {"label-smoothing", "it is for classes", true},
        {"crop-border", "it is for pairs", false},
        {"model-ema-decay", "it is for --model-ema", false},
        {"scale", "random resized crops", true},
        {"tf32", "it is for --device cuda with --amp off", false},
        {"cudnn-benchmark", "it is for --device cuda", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){256, 3, false, 1000, cases[i].pairs});
        give(&made, cases[i].option);
        assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
        assert_contains(made.error.message, cases[i].message);
    }
}

TEST(test_all_options_that_would_do_nothing_are_told_at_once)
{
    static const char *const names[] = {"lr-step-size", "opt-betas", "mixup-prob", "lr-gamma", "mixup-mode"};
    Case made = make_case((Facts){256, 3, false, 1000, false});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        give(&made, names[i]);
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_string_equal(
        made.error.message,
        "--lr-step-size, --lr-gamma: do nothing here; they are for --lr-scheduler step; --opt-betas: does "
        "nothing here; it is for --opt other than sgd, sgdw and lars, and --muon-rest other than sgd; "
        "--mixup-prob, --mixup-mode: do nothing here; they are for --mixup-alpha or --cutmix-alpha");
}

TEST(test_options_of_evaluation_without_a_split_for_it_are_refused)
{
    static const struct {
        const char *option;
        bool pairs;
    } cases[] = {
        {"val-interval", false}, {"val-batch-size", false}, {"flip-tta", false},
        {"flip-tta", true},      {"crop-border", true},     {"y-channel", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case made = make_case((Facts){256, 3, false, 1000, cases[i].pairs});
        give(&made, cases[i].option);
        assert_ok(plan_case(&made), &made.error);
        made.only_trains = true;
        assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
        assert_contains(made.error.message, cases[i].option);
        assert_contains(made.error.message,
                        "does nothing here; it is for a dataset with a split to evaluate");
    }
}

TEST(test_what_does_not_fit_the_kind_of_data_is_refused)
{
    Case made = make_case((Facts){256, 3, false, 1000, false});
    made.options.training.loss = LOSS_L1;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "l1 is for pairs");
    made.options.training.loss = OPTION_AUTO;
    made.options.schedule.early_stop_metric = METRIC_PSNR;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "psnr is measured on pairs");
    made.options.schedule.early_stop_metric = OPTION_AUTO;
    made.options.mixing.mixup_alpha = 0.2;
    made.options.training.batch_size = 33;
    assert_int_equal(plan_case(&made), FSH_ERR_USAGE);
    assert_contains(made.error.message, "--batch-size: 33 is odd");
}

/* Batches are each rank's; steps, the samples left over and the learning rate follow from all of them. */
TEST(test_steps_and_learning_rate_follow_from_the_batches_of_all_ranks)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    made.options.place = (RankPlace){.rank = 2, .world_size = 3, .local_rank = 2, .local_world = 3};
    made.options.training.batch_size = 32;
    made.options.training.val_batch_size = 50;
    assert_ok(plan_case(&made), &made.error);
    assert_int_equal(made.plan.rank, 2);
    assert_int_equal(made.plan.train_spec.batch, 32);
    assert_int_equal(plan_total_batch(&made.plan), 96);
    assert_int_equal(made.plan.steps_per_epoch, 10);
    assert_int_equal(made.plan.evaluation_steps, 7); /* 6 of 150, and 100 */
    assert_true(fabs(made.plan.schedule.base - 0.2 * 96 / 256) < 1e-12);
    assert_int_equal(made.plan.threads, 4); /* --jobs is each rank's */
    made.options.training.batch_size = 334;
    assert_int_equal(plan_case(&made), FSH_ERR_MISMATCH);
    assert_contains(made.error.message,
                    "334 on each of 3 ranks is more than the 1000 training samples; use 333");
}

/* Else a run could not go on with the value that it has used. */
TEST(test_what_others_decide_is_noted_unless_it_was_given)
{
    Case made = make_case((Facts){32, 3, true, 1000, false});
    Option rows[TRAIN_OPTION_ROWS];
    made.options.update.optimizer = OPTIMIZER_MUON; /* which has most of them */
    give(&made, "weight-decay");
    assert_ok(plan_case(&made), &made.error);
    train_options_rows(&made.options, rows);
    json_t *chosen = plan_chosen(&made.plan, &made.options);
    assert_non_null(chosen);
    for (const Option *row = rows; row->name; row++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s", row->name);
        for (char *at = name; *at; at++)
            *at = *at == '-' ? '_' : *at;
        const bool noted = json_object_get(chosen, name) != NULL;
        if ((row->marks & OPTION_VARIES) && noted == *row->given)
            fail_msg("--%s is %s", row->name, noted ? "noted, and was given" : "not noted");
    }
    assert_true(json_real_value(json_object_get(chosen, "momentum")) == 0.95);
    assert_true(json_real_value(json_object_get(chosen, "lr")) == 0.001);
    assert_true(json_real_value(json_object_get(chosen, "lr_warmup_epochs")) == 0.2 * 16);
    assert_string_equal(json_string_value(json_object_get(chosen, "model")), made.plan.model->name);
    json_decref(chosen);
}
