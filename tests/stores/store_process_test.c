/* credential_process: how a command is split, what is taken of its output, and when it is killed. */
#include <stdio.h>
#include <string.h>

#include "common/progress.h"
#include "stores/store_process.h"
#include "tests/support/support.h"

/* The words are those of Python's shlex.split(), by which Amazon's command line goes. */
TEST(test_a_command_is_split_without_a_shell)
{
    static const struct {
        const char *command, *words[5];
    } cases[] = {
        {"/opt/bin/keys --user me", {"/opt/bin/keys", "--user", "me"}},
        {"  a\t b  ", {"a", "b"}},
        {"'a b' \"c d\"e", {"a b", "c de"}},
        {"a '' \"\"", {"a", "", ""}},
        {"a\\ b 'c\\' \"d\\\"\\\\\\e\"", {"a b", "c\\", "d\"\\\\e"}},
        {"~/x $HOME a|b;c>d", {"~/x", "$HOME", "a|b;c>d"}},
    };
    static const char *const refused[] = {"", "  ", "a 'b", "a \"b", "a \\", "1 2 3 4 5 6 7 8"};
    char command[128], *arguments[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 0;
        (void)snprintf(command, sizeof command, "%s", cases[i].command);
        const size_t got = store_process_split(command, arguments, 8);
        for (; count < 5 && cases[i].words[count]; count++)
            if (count < got)
                assert_string_equal(arguments[count], cases[i].words[count]);
        assert_int_equal(got, count);
        assert_null(arguments[got]);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        (void)snprintf(command, sizeof command, "%s", refused[i]);
        assert_int_equal(store_process_split(command, arguments, 8), 0);
    }
}

TEST(test_only_keys_of_version_1_are_taken)
{
    static const char good[] = "{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\", "
                               "\"Expiration\": \"2099-01-01T01:30:00.5+01:30\"}";
    static const char old[] = "{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\", "
                              "\"Expiration\": \"2001-01-01T00:00:00Z\"}";
    static const char *const bad[] = {
        "",
        "[]",
        "{\"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\"}",
        "{\"Version\": 2, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\"}",
        "{\"Version\": 1, \"AccessKeyId\": \"a\"}",
        "{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\\nHost: c\"}",
        "{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\", \"Expiration\": \"soon\"}",
        old};
    StoreLent lent;
    FshError error = {0};
    assert_ok(store_process_parse(&lent, good, strlen(good), "x", &error), &error);
    assert_true(lent.found);
    assert_string_equal(lent.key, "a");
    assert_string_equal(lent.secret, "b");
    assert_string_equal(lent.token, "");
    assert_int_equal(lent.end_seconds, 4070908800); /* date -d 2099-01-01T00:00:00Z +%s */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(store_process_parse(&lent, bad[i], strlen(bad[i]), "x", &error), FSH_ERR_SYSTEM);
        assert_false(lent.found);
    }
}

TEST(test_a_program_that_does_not_end_is_killed)
{
    static const char *const commands[] = {"sleep 100", "sh -c 'exec >&-; exec sleep 100'"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        StoreLent lent;
        FshError error = {0};
        const double begin = progress_now_seconds();
        assert_int_equal(store_lent_by_process(&lent, commands[i], "profile 'x'", 0.3, &error),
                         FSH_ERR_SYSTEM);
        assert_string_equal(error.message, "profile 'x': its credential_process did not end within 0.3 s");
        assert_true(progress_now_seconds() - begin < 20);
    }
}
