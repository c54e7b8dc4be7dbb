/* Requests and questions, without a server. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stores/store_ask.h"
#include "tests/support/support.h"

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
