/* What an address names, where it leads, and with which credentials: as text, without a server. */
#include <stdlib.h>
#include <string.h>

#include "stores/store_request.h"
#include "stores/store_site.h"
#include "tests/support/support.h"

TEST(test_an_address_is_taken_apart)
{
    StoreUrl url;
    FshError error = {0};
    assert_ok(store_url_parse(&url, "s3://bucket//some/prefix//", &error), &error);
    assert_int_equal(url.kind, STORE_S3);
    assert_string_equal(url.bucket, "bucket");
    assert_string_equal(url.prefix, "some/prefix");
    assert_ok(store_url_parse(&url, "gs://bucket", &error), &error);
    assert_string_equal(url.bucket, "bucket");
    assert_string_equal(url.prefix, "");
    assert_ok(store_url_parse(&url, "https://host:8443/a/b/dataset.json", &error), &error);
    assert_string_equal(url.text, "https://host:8443/a/b");
    assert_false(store_url_is("shards/"));
    assert_false(store_url_is("s3:/x"));
    assert_int_equal(store_url_parse(&url, "https://host/a\nb", &error), FSH_ERR_USAGE);
    assert_int_equal(store_url_parse(&url, "s3://", &error), FSH_ERR_USAGE);
}

TEST(test_names_are_encoded_as_signatures_want_them)
{
    char text[32] = "x/";
    assert_true(store_url_encode(text, sizeof text, "a b+c/d~é"));
    assert_string_equal(text, "x/a%20b%2Bc/d~%C3%A9");
    assert_false(store_url_encode(text, sizeof text, "     "));
}

static void check_base(const char *address, const char *base, const char *signing)
{
    StoreSite site;
    FshError error = {0};
    assert_ok(store_site_find(&site, address, STORE_TO_WRITE, &error), &error);
    assert_string_equal(site.base, base);
    assert_string_equal(site.signing, signing);
    store_site_forget(&site);
}

TEST(test_buckets_lead_to_their_servers)
{
    (void)setenv("HOME", "/nonexistent", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    (void)unsetenv("AWS_PROFILE");
    (void)unsetenv("AWS_REGION");
    (void)unsetenv("AWS_ENDPOINT_URL");
    (void)unsetenv("AWS_ENDPOINT_URL_S3");
    (void)setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    check_base("s3://bucket/a b", "https://bucket.s3.eu-west-1.amazonaws.com/a%20b", "");
    check_base("s3://my.bucket/a", "https://s3.eu-west-1.amazonaws.com/my.bucket/a", "");
    (void)setenv("AWS_ACCESS_KEY_ID", "key", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    (void)setenv("AWS_REGION", "us-west-2", 1);
    check_base("s3://bucket/a", "https://bucket.s3.us-west-2.amazonaws.com/a", "aws:amz:us-west-2:s3");
    (void)setenv("AWS_ENDPOINT_URL", "https://minio.lab:9000/", 1);
    check_base("s3://bucket/a", "https://minio.lab:9000/bucket/a", "aws:amz:us-west-2:s3");
    (void)unsetenv("STORAGE_EMULATOR_HOST");
    (void)unsetenv("GOOGLE_OAUTH_ACCESS_TOKEN");
    (void)setenv("GS_ACCESS_KEY_ID", "key", 1);
    (void)setenv("GS_SECRET_ACCESS_KEY", "secret", 1);
    check_base("gs://bucket/a", "https://storage.googleapis.com/bucket/a", "aws:amz:auto:s3");
    check_base("https://host/a%20b/", "https://host/a%20b", "");
}

TEST(test_secrets_are_taken_out_of_texts)
{
    StoreSite site = {.user_password = "key:topsecret", .bearer = "abcdefgh"};
    char text[128] = "topsecret and abcdefgh, topsecret";
    store_site_hide(&site, text);
    assert_string_equal(text, "*** and ***, ***");
    store_site_forget(&site);
    assert_string_equal(site.user_password, "");
}

TEST(test_xml_is_read_for_one_element)
{
    char text[8] = "";
    assert_true(store_xml_text("<a><Code>No</Code></a>", "Code", text, sizeof text));
    assert_string_equal(text, "No");
    assert_false(store_xml_text("<Code>No", "Code", text, sizeof text));
    assert_false(store_xml_text("<Code>muchtoolong</Code>", "Code", text, sizeof text));
}
