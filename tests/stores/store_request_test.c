/* Requests and questions, without a server. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stores/store_ask.h"
#include "tests/support/support.h"

/* ---- a script in libcurl's place ---- */

enum { ANSWERS_MAX = 8 };

static struct {
    long statuses[ANSWERS_MAX]; /* of HTTP; NO_HOST; 0: the connection breaks */
    double retry_after_seconds;
    size_t asked; /* how often */
} script;

enum { NO_HOST = -1 };

static FshStatus open_script(StoreConnection **connection, FshError *error)
{
    (void)error;
    *connection = NULL;
    return FSH_OK;
}

static void perform_script(StoreConnection *connection, StoreExchange *exchange)
{
    (void)connection;
    assert_true(script.asked < ANSWERS_MAX);
    const long status = script.statuses[script.asked++];
    exchange->status = status > 0 ? status : 0;
    exchange->finished = status > 0;
    exchange->transient = status <= 0;
    exchange->unknown_host = status == NO_HOST;
    exchange->told_bytes = UINT64_MAX;
    exchange->retry_after_seconds = status > 0 && status != 200 ? script.retry_after_seconds : 0;
}

static void close_script(StoreConnection **connection)
{
    *connection = NULL;
}

const StorePlugin fshard_store_plugin = {STORE_PLUGIN_HERE, .open = open_script, .perform = perform_script,
                                         .close = close_script};

/* ---- files ---- */

TEST(test_a_host_that_has_answered_may_lack_an_address_for_a_while)
{
    const struct {
        long statuses[ANSWERS_MAX];
        size_t asked;
        FshStatus status;
    } cases[] = {{{NO_HOST, NO_HOST}, 2, FSH_ERR_SYSTEM},
                 {{NO_HOST, 200}, 2, FSH_OK},
                 {{0, 0, NO_HOST, 200}, 4, FSH_OK},
                 {{503, NO_HOST, NO_HOST, 200}, 4, FSH_OK},
                 {{503, NO_HOST, NO_HOST, NO_HOST, NO_HOST}, 5, FSH_ERR_SYSTEM}};
    const StoreSite site = {.url = {.kind = STORE_HTTP, .text = "http://host"}, .base = "http://host"};
    const StorePatience patience = {.retries = 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        StoreClient client = {0};
        FshError error = {0};
        memset(&script, 0, sizeof script);
        memcpy(script.statuses, cases[i].statuses, sizeof script.statuses);
        assert_ok(store_client_open(&client, &site, &patience, &error), &error);
        const StoreGet get = {.name = "file"};
        assert_int_equal(store_get(&client, &get, NULL, &error), cases[i].status);
        assert_int_equal(script.asked, cases[i].asked);
        store_client_close(&client);
    }
}

/* ---- lenders ---- */

TEST(test_times_are_read_as_lenders_write_them)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } cases[] = {{"2020-06-17T10:02:08Z", 1592388128},
                 {"2020-06-17T10:02:08UTC", 1592388128},
                 {"2020-06-17T10:02:08.25Z", 1592388128},
                 {"2020-06-17T12:02:08+02:00", 1592388128},
                 {"2020-06-17T08:32:08-01:30", 1592388128},
                 {"2020-06-17T10:02:08UTX", 0},
                 {"2020-06-17", 0},
                 {NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(store_read_time(cases[i].text), cases[i].seconds);
}

TEST(test_a_google_token_has_an_end_that_can_be_counted)
{
    static const struct {
        const char *seconds;
        int64_t life; /* 0: no end is known */
    } cases[] = {{"3599", 3599}, {"9223372036854775807", 0}, {"2147483647", 0}, {"0", 0}, {"-5", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        StoreLent lent = {0};
        char text[128];
        (void)snprintf(text, sizeof text, "{\"access_token\": \"a\", \"expires_in\": %s}", cases[i].seconds);
        const int64_t now = (int64_t)time(NULL);
        assert_true(store_take_google_token(&lent, text));
        if (cases[i].life)
            assert_in_range(lent.end_seconds - now, cases[i].life, cases[i].life + 5);
        else
            assert_int_equal(lent.end_seconds, 0);
    }
}

TEST(test_a_lender_that_is_busy_is_asked_again)
{
    const struct {
        long statuses[ANSWERS_MAX];
        double retry_after_seconds, at_least_seconds;
        bool near;
        size_t asked;
        long status;
    } cases[] = {{{503, 200}, 0, 0.1, false, 2, 200},   {{429, 503, 200}, 0, 0.6, false, 3, 200},
                 {{429, 200}, 1.5, 1.4, false, 2, 200}, {{503, 503, 503, 503}, 0, 2.6, false, 4, 503},
                 {{403}, 0, 0, false, 1, 403},          {{0, 0, 0}, 0, 0.6, false, 3, 0},
                 {{503, 503}, 5, 0, true, 2, 503}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const StoreQuestion question = {.method = "GET", .url = "http://lender/", .near = cases[i].near};
        StoreExchange exchange;
        FshError error = {0};
        memset(&script, 0, sizeof script);
        memcpy(script.statuses, cases[i].statuses, sizeof script.statuses);
        script.retry_after_seconds = cases[i].retry_after_seconds;
        const double begin = progress_now_seconds();
        assert_ok(store_ask(&question, &exchange, &error), &error);
        assert_int_equal(script.asked, cases[i].asked);
        assert_int_equal(exchange.status, cases[i].status);
        assert_true(progress_now_seconds() - begin >= cases[i].at_least_seconds);
        assert_true(!cases[i].near || progress_now_seconds() - begin < 3);
    }
}
