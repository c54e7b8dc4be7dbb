#include "common/html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/html_style.h"
#include "tests/support/support.h"

static char *escaped(const char *text, size_t length)
{
    HtmlPage page = {0};
    html_add_text(&page, text, length);
    html_add_text(&page, "", 1); /* a NUL is a control character too */
    assert_int_equal(page.status, FSH_OK);
    assert_true(page.text.length >= 3);
    page.text.bytes[page.text.length - 3] = '\0';
    char *copy = strdup((const char *)page.text.bytes);
    buffer_free(&page.text);
    return copy;
}

TEST_IN_FOLDER(test_a_page_is_known_by_its_title, folder)
{
    HtmlPage page = {0};
    const char *path = test_path(folder, "page.html");
    html_begin(&page, "a & b", 0);
    assert_int_equal(html_write(&page, path, false), FSH_OK);
    assert_true(html_is_page(path, "a & b"));
    assert_false(html_is_page(path, "a"));
    assert_false(html_is_page(test_path(folder, "none.html"), "a & b"));
    assert_false(html_is_page(folder->path, "a & b"));
    test_file_write_text(path, "<!DOCTYPE html>\n<html><head><title>a &amp; b</title><style>");
    assert_false(html_is_page(path, "a & b"));
}

TEST(test_text_is_escaped)
{
#define MARK "\xEF\xBF\xBD"
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#39;"},
        {"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\x01\x7F\n", MARK MARK MARK},
        {"\xC0\xAF", MARK MARK},                   /* an overlong / */
        {"\xED\xA0\x80", MARK MARK MARK},          /* a surrogate */
        {"\xF4\x90\x80\x80", MARK MARK MARK MARK}, /* beyond Unicode */
        {"\xC2\x85", MARK MARK},                   /* a C1 control */
        {"\xE2\x82", MARK MARK},                   /* cut off */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = escaped(rows[i].text, strlen(rows[i].text));
        assert_string_equal(text, rows[i].expected);
        free(text);
    }
}

TEST(test_base64_is_that_of_the_rfc)
{
    static const char *const expected[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < 7; i++) {
        HtmlPage page = {0};
        html_add_base64(&page, "foobar", i);
        assert_int_equal(page.text.length, strlen(expected[i]));
        if (i)
            assert_memory_equal(page.text.bytes, expected[i], page.text.length);
        buffer_free(&page.text);
    }
}

TEST_IN_FOLDER(test_a_page_is_written_whole_or_not, folder)
{
    const char *path = test_path(folder, "page.html");
    FshError error = {0};
    HtmlPage page = {.error = &error};
    html_begin(&page, "a<b", 0);
    html_add(&page, "<p>%d</p>", 7);
    assert_ok(html_write(&page, path, false), &error);
    char *text = test_file_read(path, NULL);
    assert_contains(text, "<title>a&lt;b</title><style>:root{");
    assert_contains(text, "prefers-color-scheme:dark");
    assert_contains(text, "</style></head><body><p>7</p><script>\"use strict\";");
    assert_contains(text, "</script></body></html>\n");
    assert_contains(
        text, "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-");
    assert_contains_not(text, "http-equiv=\"refresh\"");
    assert_contains_not(text, "<body data-refresh");
    free(text);
    page = (HtmlPage){.error = &error};
    html_begin(&page, "other", 0);
    assert_int_equal(html_write(&page, path, false), FSH_ERR_EXISTS);
    assert_null(page.text.bytes);
    text = test_file_read(path, NULL);
    assert_contains_not(text, "other");
    free(text);
}

TEST_IN_FOLDER(test_after_a_failure_nothing_is_written, folder)
{
    HtmlPage page = {.status = FSH_ERR_MEMORY};
    html_begin(&page, "a", 0);
    html_add_string(&page, "b");
    html_add_base64(&page, "c", 1);
    assert_int_equal(page.text.length, 0);
    assert_int_equal(html_write(&page, test_path(folder, "page.html"), true), FSH_ERR_MEMORY);
    assert_int_equal(test_count_files(folder->path), 0);
}

TEST(test_a_page_that_changes_is_loaded_again)
{
    HtmlPage page = {0};
    html_begin(&page, "a", 15);
    assert_int_equal(buffer_append(&page.text, "", 1, NULL), FSH_OK);
    assert_contains((const char *)page.text.bytes,
                    "<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>");
    assert_contains((const char *)page.text.bytes, "<body data-refresh=\"15\">");
    buffer_free(&page.text);
}

/* Browsers run the script only if the page's policy has its hash. */
TEST_IN_FOLDER(test_the_policy_knows_the_script, folder)
{
    char hash[128] = "", command[1024];
    test_file_write_text(test_path(folder, "script"), html_script);
    (void)snprintf(
        command, sizeof command,
        "sha256sum <'%s/script' | cut -c1-64 | tr a-f A-F | tr -d '\\n' | basenc --base16 -d | base64",
        folder->path);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): coreutils know SHA-256 */
    assert_non_null(pipe);
    assert_non_null(fgets(hash, sizeof hash, pipe));
    (void)pclose(pipe);
    hash[strcspn(hash, "\n")] = '\0';
    assert_string_equal(html_script_hash, hash);
    assert_null(strstr(html_script, "</"));
    assert_null(strstr(html_script, "innerHTML"));
}
