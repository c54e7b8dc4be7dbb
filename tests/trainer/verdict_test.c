#include "trainer/report/verdict.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

TEST(test_advice_leaves_out_what_the_run_does_already)
{
    static const struct {
        SpeedFacts facts;
        const char *text;
    } cases[] = {
        {{.waited_percent = 2, .compute_type = DATA_F32},
         "compute bound: 98 % of the steps' time is computing; --profile 3 says what takes it, --amp bf16 "
         "makes products faster where the CPU has AVX-512"},
        {{.waited_percent = 2, .compute_type = DATA_F32, .cuda = true},
         "compute bound: 98 % of the steps' time is computing; --profile 3 says what takes it, --amp auto "
         "makes products "
         "faster"},
        {{.waited_percent = 4.4, .compute_type = DATA_F16, .cuda = true},
         "compute bound: 96 % of the steps' time is computing; --profile 3 says what takes it"},
        {{.waited_percent = 62, .workers = 2, .cores = 4},
         "loader bound: 62 % of the steps' time is waiting for data; more --workers, --cache pixels (where "
         "RAM "
         "holds them), smaller images (fresize, "
         "fpack --max-size) or raw pixels (fpack --store raw) make that shorter; --bench-loader says what "
         "bounds it"},
        {{.waited_percent = 62, .workers = 4, .cores = 4},
         "loader bound: 62 % of the steps' time is waiting for data; --cache pixels (where RAM holds them), "
         "smaller images (fresize, fpack --max-size) or raw pixels (fpack --store raw) make that shorter; "
         "--bench-loader says what bounds it"},
        {{.waited_percent = 5, .workers = 4, .cores = 4, .raw = true},
         "loader bound: 5 % of the steps' time is waiting for data; smaller images (fresize, fpack "
         "--max-size) "
         "make that shorter; --bench-loader says what bounds it"},
        {{.waited_percent = 30, .workers = 8, .cores = 16, .cuda = true},
         "loader bound: 30 % of the steps' time is waiting for data; more --workers, --cache gpu, --cache "
         "pixels (where RAM holds "
         "them), smaller "
         "images "
         "(fresize, fpack --max-size) or raw pixels (fpack --store raw) make that shorter; --bench-loader "
         "says "
         "what bounds it"},
        {{.waited_percent = 9, .workers = 4, .cores = 4, .cache_pixels = true},
         "loader bound: 9 % of the steps' time is waiting for data; smaller images (fresize, fpack "
         "--max-size) "
         "make that shorter; --bench-loader says what bounds it"},
        {{.waited_percent = 9, .workers = 4, .cores = 4, .cuda = true, .cache_pixels = true},
         "loader bound: 9 % of the steps' time is waiting for data; --cache gpu or smaller images (fresize, "
         "fpack --max-size) make that shorter; --bench-loader says what bounds it"},
        {{.waited_percent = 30, .workers = 8, .cores = 16, .cuda = true, .cache_gpu = true},
         "loader bound: 30 % of the steps' time is waiting for data; more --workers make that shorter"},
        {{.waited_percent = 30, .workers = 16, .cores = 16, .cuda = true, .cache_gpu = true},
         "loader bound: 30 % of the steps' time is waiting for data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        SpeedFacts facts = cases[i].facts;
        facts.step_seconds = 3;
        verdict_of_speed(&facts, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

/* The first batch takes most of a second, and later ones none. */
TEST(test_a_short_run_does_not_tell_what_bounds_it)
{
    char text[512];
    verdict_of_speed(&(SpeedFacts){.step_seconds = 0.84, .waited_percent = 44, .workers = 2, .cores = 4},
                     text, sizeof text);
    assert_string_equal(text, "the run is too short to tell what bounds it: its steps took 0.8 s");
    verdict_of_speed(&(SpeedFacts){.step_seconds = 2.9, .waited_percent = 0}, text, sizeof text);
    assert_contains(text, "too short to tell");
}

TEST(test_a_divergence_says_what_was_no_number_and_where_the_state_is)
{
    char text[1024];
    DivergenceFacts facts = {.loss = (double)NAN,
                             .epoch = 3,
                             .step = 7,
                             .rate = 0.25,
                             .peak_rate = 0.5,
                             .samples = "a/b",
                             .folder = "out",
                             .saved = true};
    verdict_of_divergence(&facts, text, sizeof text);
    assert_string_equal(
        text, "loss is nan in epoch 3, step 7, at learning rate 0.25: training has diverged; lower --lr (it "
              "peaks at 0.5), raise --lr-warmup-epochs or use --clip-grad; samples: a/b; "
              "out/diverged.safetensors holds the state, diverged.json the samples");
    facts.loss = (double)-INFINITY;
    facts.saved = false;
    verdict_of_divergence(&facts, text, sizeof text);
    assert_contains(text, "loss is infinite in epoch 3");
    assert_contains(text, "samples: a/b; the state could NOT be saved to out/diverged.safetensors");
    assert_null(strstr(text, "holds the state"));
    /* In fp16 the loss is f32 and may be good while gradients overflow. */
    facts.loss = 2.5;
    facts.skipped = 100;
    verdict_of_divergence(&facts, text, sizeof text);
    assert_contains(text, "gradients were not finite in 100 steps in a row, up to epoch 3, step 7 (its loss: "
                          "2.5), at learning rate 0.25: training has diverged");
    assert_null(strstr(text, "loss is"));
}

TEST(test_what_does_not_fit_is_cut)
{
    char text[64];
    verdict_of_divergence(&(DivergenceFacts){.loss = 1, .samples = "a", .folder = "out", .saved = true}, text,
                          sizeof text);
    assert_int_equal(strlen(text), sizeof text - 1);
    verdict_of_speed(&(SpeedFacts){.waited_percent = 50, .cores = 2}, text, sizeof text);
    assert_int_equal(strlen(text), sizeof text - 1);
}
