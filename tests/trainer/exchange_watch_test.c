/* When a GPU that trains with others hangs, told by counters that it would write. Needs no GPU. */
#include "trainer/backend/cuda/lowering/exchange_watch.h"

#include "tests/support/support.h"

enum { TIMEOUT = 10 };

static ExchangeCounts counts;

static ExchangeWatch watch_of(uint64_t begun)
{
    ExchangeWatch watch = {.host = &counts};
    counts = (ExchangeCounts){0};
    for (uint64_t i = 0; i < begun; i++)
        exchange_watch_begin(&watch);
    return watch;
}

/* Looks so often, a second after the other, or until something hangs. Returns when. */
static int seconds_until(ExchangeWatch *watch, int most, ExchangeState *state_ret)
{
    int seconds = 0;
    do
        *state_ret = exchange_watch_look(watch, 1, TIMEOUT);
    while (++seconds < most && *state_ret == EXCHANGE_WELL);
    return seconds;
}

TEST(test_nothing_under_way_never_hangs)
{
    ExchangeWatch watch = watch_of(3);
    ExchangeState state;
    counts = (ExchangeCounts){3, 3};
    (void)seconds_until(&watch, 100, &state);
    assert_int_equal(state, EXCHANGE_WELL);
}

TEST(test_a_gpu_that_does_not_reach_its_exchange_hangs)
{
    ExchangeWatch watch = watch_of(3);
    ExchangeState state;
    counts = (ExchangeCounts){2, 2};
    assert_int_equal(seconds_until(&watch, 100, &state), TIMEOUT + 2); /* the first look sees them change */
    assert_int_equal(state, EXCHANGE_BEFORE);
}

/* Those that wait in the exchange speak later than the one that they wait for. */
TEST(test_an_exchange_that_does_not_end_hangs_a_little_later)
{
    ExchangeWatch watch = watch_of(3);
    ExchangeState state;
    counts = (ExchangeCounts){3, 2};
    assert_int_equal(seconds_until(&watch, 100, &state), TIMEOUT + 7);
    assert_int_equal(state, EXCHANGE_BETWEEN);
}

TEST(test_a_gpu_that_gets_on_slowly_is_well)
{
    ExchangeWatch watch = watch_of(1);
    ExchangeState state;
    for (int step = 0; step < 20; step++) {
        exchange_watch_begin(&watch);
        counts.reached++;
        assert_int_equal(seconds_until(&watch, TIMEOUT - 1, &state), TIMEOUT - 1);
        assert_int_equal(state, EXCHANGE_WELL);
        counts.passed++;
        assert_int_equal(seconds_until(&watch, TIMEOUT - 1, &state), TIMEOUT - 1);
        assert_int_equal(state, EXCHANGE_WELL);
    }
}
