/* When decoding once pays, and which memory it goes to. */
#include "trainer/plan/cache_choice.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

enum { MIB = 1 << 20 };
static const uint64_t gib = 1 << 30;

/* conv8 from small JPEGs on an H200 with 16 cores (docs/measurements/2026-11-21-cuda.md): 60,000 images 20
 * times over. */
static const CacheFacts conv8 = {.cuda = true,
                                 .passes_left = 15,
                                 .pass_samples = 1200000,
                                 .decoded_samples = 1400000,
                                 .step_seconds = 0.27e-6,
                                 .wait_seconds = 0.33e-6,
                                 .make_seconds = 9.7e-6,
                                 .change_seconds = 0.8e-6,
                                 .cores = 16,
                                 .pixel_bytes = 1100 * (uint64_t)MIB,
                                 .planes_bytes = 1100 * (uint64_t)MIB, /* gray */
                                 .free_ram = 100 * (uint64_t)(1 << 30),
                                 .free_gpu = 120 * (uint64_t)(1 << 30),
                                 .same_on_gpu = true,
                                 .same_in_ram = true};

/* resnet50 at 160 pixels: two of 16 cores decode as fast as it trains. */
static CacheFacts resnet50(void)
{
    CacheFacts facts = conv8;
    facts.step_seconds = 57e-6;
    facts.wait_seconds = 0.3e-6;
    facts.make_seconds = 180e-6;
    facts.change_seconds = 70e-6;
    facts.pass_samples = facts.decoded_samples = 1281167;
    facts.pixel_bytes = 98 * gib;
    facts.planes_bytes = 49 * gib;
    return facts;
}

/* A small network on two cores of a CPU, from JPEGs. */
static CacheFacts on_cpu(double step_seconds)
{
    CacheFacts facts = conv8;
    facts.cuda = false;
    facts.cores = 2;
    facts.train_seconds = 2 * step_seconds - 30e-6; /* the cores are busy all the time */
    facts.step_seconds = step_seconds;
    facts.wait_seconds = 0;
    facts.pass_samples = 50000;
    facts.decoded_samples = 60000;
    facts.make_seconds = 30e-6;
    facts.change_seconds = 4e-6;
    facts.free_gpu = 0;
    facts.same_on_gpu = false;
    return facts;
}

static void assert_choice(const CacheFacts *facts, CacheAnswer answer, const char *cache)
{
    const CacheChoice choice = cache_choose(facts);
    if (choice.answer != answer || strcmp(choice.cache, cache) != 0)
        fail_msg("answer %d and %s, not %d and %s; a pass %g s, then %g s, load %g s", choice.answer,
                 choice.cache, answer, cache, choice.pass_now, choice.pass_then, choice.load);
}

TEST(test_a_loader_that_is_waited_for_is_left_for_memory)
{
    CacheFacts facts = conv8;
    facts.planes_bytes = facts.pixel_bytes / 2; /* in colours, 4:2:0 */
    assert_choice(&facts, CACHE_PAYS, "gpu");
    facts.free_gpu = gib;
    assert_choice(&facts, CACHE_PAYS, "gpu");
    facts.free_gpu = gib / 2;
    assert_choice(&facts, CACHE_PAYS, "pixels");
    facts.free_ram = 2 * gib;
    assert_choice(&facts, CACHE_PAYS, "planes");
    facts.free_ram = gib;
    assert_choice(&facts, CACHE_HAS_NO_ROOM, "none");
}

TEST(test_what_is_not_waited_for_stays)
{
    const CacheFacts facts = resnet50();
    assert_choice(&facts, CACHE_WINS_LITTLE, "none");
}

TEST(test_few_cores_make_it_pay)
{
    CacheFacts facts = resnet50();
    facts.cores = 2;
    assert_choice(&facts, CACHE_PAYS, "gpu"); /* 49 of 120 GiB; RGB would take 98 */
    facts.free_gpu = 60 * gib;
    assert_choice(&facts, CACHE_PAYS, "planes"); /* in 49 of 100 GiB */
    facts.free_gpu = facts.free_ram = 60 * gib;
    assert_choice(&facts, CACHE_HAS_NO_ROOM, "none");
    facts.free_gpu = 139 * gib;
    facts.passes_left = 1;
    assert_choice(&facts, CACHE_WINS_LITTLE, "none");
}

/* As measured on 2 cores beside an H200, four passes over 19,200 images in all: 8,000 images/s as they were,
 * decoded within 2.1 s, and then 17,600. */
TEST(test_four_passes_on_two_cores_are_enough)
{
    CacheFacts facts = resnet50();
    facts.cores = 2;
    facts.passes_left = 3.5;
    facts.pass_samples = 18944;
    facts.decoded_samples = 19200;
    facts.pixel_bytes = 2 * gib;
    facts.planes_bytes = gib;
    facts.make_seconds = 250e-6;
    facts.change_seconds = 90e-6;
    assert_choice(&facts, CACHE_PAYS, "gpu");
    assert_true(cache_choose(&facts).load < 2.1);
}

/* 1.4 million of 9.7 us on 16 cores are 0.85 s, 1.06 with reserve; a pass then takes 0.40 s less. */
TEST(test_it_has_to_pay_within_the_run)
{
    CacheFacts facts = conv8;
    facts.passes_left = 4;
    assert_choice(&facts, CACHE_WINS_LITTLE, "none");
    facts.passes_left = 6;
    assert_choice(&facts, CACHE_PAYS, "gpu");
}

TEST(test_a_second_is_the_least_that_counts)
{
    CacheFacts facts = conv8;
    facts.pass_samples = facts.decoded_samples = 60000; /* a pass of 0.04 s */
    assert_choice(&facts, CACHE_WINS_LITTLE, "none");
    facts.passes_left = 300;
    assert_choice(&facts, CACHE_PAYS, "gpu");
}

TEST(test_batches_stay_what_they_are)
{
    CacheFacts facts = conv8;
    facts.same_on_gpu = false;
    assert_choice(&facts, CACHE_PAYS, "pixels");
    facts.same_in_ram = false;
    assert_choice(&facts, CACHE_OTHER_PIXELS, "none");
}

TEST(test_on_a_cpu_decoding_and_training_share_the_cores)
{
    CacheFacts facts = on_cpu(40e-6); /* 13 of 40 us are won */
    assert_choice(&facts, CACHE_PAYS, "pixels");
    facts = on_cpu(15e-3); /* resnet18: a thousandth */
    assert_choice(&facts, CACHE_WINS_LITTLE, "none");
    facts = on_cpu(40e-6);
    facts.same_on_gpu = true; /* there is none */
    facts.free_gpu = 100 * gib;
    assert_choice(&facts, CACHE_PAYS, "pixels");
}

/* Beside other programs all takes ten times as long, and the share that is won is the same. */
TEST(test_a_crowded_machine_changes_the_times_alone)
{
    CacheFacts facts = on_cpu(40e-6);
    const CacheChoice alone = cache_choose(&facts);
    facts.step_seconds *= 4;
    facts.wait_seconds = 6 * 40e-6;
    const CacheChoice crowded = cache_choose(&facts);
    assert_choice(&facts, CACHE_PAYS, "pixels");
    assert_true(fabs(crowded.pass_now / alone.pass_now - 10) < 1e-6);
    assert_true(fabs(crowded.pass_then / alone.pass_then - 10) < 1e-6);
    assert_true(fabs(crowded.load / alone.load - 10) < 1e-6);
    assert_true(fabs(alone.pass_then - 50000 * 27e-6) < 1e-6); /* 26 of 80 us of cores fall away */
}

TEST(test_the_log_says_what_and_why)
{
    static const struct {
        uint64_t free_gpu, free_ram;
        bool same;
        const char *says[3];
    } cases[] = {
        {139, 100, true, {"cache: gpu: a pass over the images takes 0.73 s", "0.32 s without", "15 passes"}},
        {1, 1, true, {"cache: none", "from 0.73 to", "1 GiB of the GPU's memory and 1 GiB of RAM"}},
        {139, 100, false, {"cache: none", "change some pixels", "--max-size"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        CacheFacts facts = conv8;
        facts.free_gpu = cases[i].free_gpu * gib;
        facts.free_ram = cases[i].free_ram * gib;
        facts.same_on_gpu = facts.same_in_ram = cases[i].same;
        const CacheChoice choice = cache_choose(&facts);
        for (size_t k = 0; k < 3; k++)
            assert_contains(cache_choice_text(&choice, &facts, text, sizeof text), cases[i].says[k]);
    }
}
