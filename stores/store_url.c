#include "stores/store_url.h"

#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "formats/fshard.h"

static const struct {
    const char *begin;
    StoreKind kind;
} schemes[] = {{"https://", STORE_HTTP}, {"http://", STORE_HTTP}, {"s3://", STORE_S3}, {"gs://", STORE_GS}};
enum { SCHEME_COUNT = sizeof schemes / sizeof *schemes };

/* Returns the scheme of a text, SCHEME_COUNT if it has none of ours. */
static size_t find_scheme(const char *text)
{
    size_t i = 0;
    while (i < SCHEME_COUNT && strncmp(text, schemes[i].begin, strlen(schemes[i].begin)) != 0)
        i++;
    return i;
}

bool store_url_is(const char *text)
{
    return find_scheme(text) < SCHEME_COUNT;
}

static void strip_slashes(char *text, size_t keep)
{
    size_t length = strlen(text);
    while (length > keep && text[length - 1] == '/')
        text[--length] = '\0';
}

/* Checks what would be shown, or would change what is asked for. rest: what follows the scheme. */
static FshStatus check_text(const char *text, const char *rest, FshError *error)
{
    const size_t host_bytes = strcspn(rest, "/?#");
    const char *at = memchr(rest, '@', host_bytes);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f || (*c == ' ' && *text == 'h'))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "an address of a dataset has no control characters, and %%20 for a blank");
    if (at)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%.*s…: a user and password in an address are seen by everybody who lists "
                             "processes; put them into ~/.netrc",
                             (int)(rest - text), text);
    if (strpbrk(rest, "?#"))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%.*s: is a folder of several files, so '?' and '#' have no meaning in its "
                             "address (one that is signed in advance is of one file)",
                             (int)(strcspn(text, "?#")), text);
    if (!host_bytes)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: names no %s", text, *text == 'h' ? "host" : "bucket");
    return FSH_OK;
}

FshStatus store_url_parse(StoreUrl *url, const char *text, FshError *error)
{
    static const char manifest[] = "/" FSH_MANIFEST_NAME;
    const size_t scheme = find_scheme(text);
    *url = (StoreUrl){0};
    if (scheme == SCHEME_COUNT)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is no address of https://, http://, s3:// or gs://",
                             text);
    const size_t scheme_bytes = strlen(schemes[scheme].begin);
    const char *rest = text + scheme_bytes;
    FshStatus status = check_text(text, rest, error);
    if (status)
        return status;
    url->kind = schemes[scheme].kind;
    if (strlen(text) > sizeof url->text / 2)
        return fsh_error_set(error, FSH_ERR_USAGE, "%.80s…: is too long", text);
    (void)snprintf(url->text, sizeof url->text, "%s", text);
    strip_slashes(url->text, scheme_bytes);
    if (text_has_suffix(url->text, manifest))
        url->text[strlen(url->text) - strlen(manifest)] = '\0';
    strip_slashes(url->text, scheme_bytes);
    if (url->kind == STORE_HTTP)
        return FSH_OK;
    rest = url->text + scheme_bytes;
    const size_t bucket_bytes = strcspn(rest, "/");
    if (bucket_bytes >= sizeof url->bucket)
        return fsh_error_set(error, FSH_ERR_USAGE, "%.80s…: its bucket's name is too long", text);
    memcpy(url->bucket, rest, bucket_bytes);
    rest += bucket_bytes;
    while (*rest == '/')
        rest++;
    (void)snprintf(url->prefix, sizeof url->prefix, "%s", rest);
    return FSH_OK;
}

/* plain: what stays as it is. */
static bool encode(char *buffer, size_t buffer_bytes, const char *text, const char *plain)
{
    size_t length = strlen(buffer);
    for (const char *c = text; *c; c++) {
        const bool is_plain = strchr(plain, *c) != NULL;
        if (length + (is_plain ? 1 : 3) >= buffer_bytes)
            return false;
        if (is_plain)
            buffer[length++] = *c;
        else
            length += (size_t)snprintf(buffer + length, 4, "%%%02X", (unsigned)(unsigned char)*c);
        buffer[length] = '\0';
    }
    return true;
}

#define UNRESERVED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

bool store_url_encode(char *buffer, size_t buffer_bytes, const char *text)
{
    return encode(buffer, buffer_bytes, text, UNRESERVED "/");
}

bool store_url_encode_value(char *buffer, size_t buffer_bytes, const char *text)
{
    return encode(buffer, buffer_bytes, text, UNRESERVED);
}
