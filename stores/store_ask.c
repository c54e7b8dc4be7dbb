#include "stores/store_ask.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/text.h"

const char *store_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- asking ---- */

/* Returns how often a question is asked at most, after what has come of it. A server that is busy is worth
 * more patience than one that is not there. */
static int most_tries(const StoreQuestion *question, const StoreExchange *exchange)
{
    return question->near ? 2 : exchange->finished ? 4 : 3;
}

FshStatus store_ask(const StoreQuestion *question, StoreExchange *exchange, FshError *error)
{
    static const double waits[] = {0.25, 1, 4}, asked_most = 8; /* seconds */
    const StoreSite nobody = {.url.kind = STORE_HTTP};
    const StoreSite *site = question->site ? question->site : &nobody;
    const StorePatience patience = {0};
    StoreClient client = {0};
    FshStatus status = store_client_open(&client, site, &patience, error);
    for (int tries = 1; !status; tries++) {
        *exchange = (StoreExchange){.method = question->method,
                                    .url = question->url,
                                    .site = site,
                                    .headers = question->headers,
                                    .direct = true,
                                    .by_proxy = question->by_proxy,
                                    .body = question->body,
                                    .body_bytes = question->body ? strlen(question->body) : 0,
                                    .stall_seconds = question->near ? 1 : 3};
        client.plugin->perform(client.connection, exchange);
        const bool is_said = exchange->finished && exchange->status != 429 && exchange->status < 500;
        if (is_said || tries >= most_tries(question, exchange))
            break;
        store_client_wait(&client, waits[tries - 1], question->near ? 0 : exchange->retry_after_seconds,
                          asked_most);
        if (interrupt_requested())
            status = fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
    }
    store_client_close(&client);
    return status;
}

const char store_aws_remedy[] = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, where they are set, are taken "
                                "instead";

bool store_is_answered(const StoreExchange *exchange)
{
    return exchange->finished && exchange->status == 200;
}

FshStatus store_refuse(const StoreExchange *exchange, const char *from, const char *remedy, FshError *error)
{
    char code[80] = "", message[300] = "";
    if (!exchange->finished)
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: no credentials come: %s; %s", from,
                             exchange->failure, remedy);
    if (exchange->status == 200)
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: what comes are no credentials; %s", from, remedy);
    (void)store_xml_text(exchange->text, "Code", code, sizeof code);
    (void)store_xml_text(exchange->text, "Message", message, sizeof message);
    return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: no credentials come: the server says %ld%s%s%s%s%s; %s",
                         from, exchange->status, *code ? " (" : "", code, *message ? ": " : "", message,
                         *code ? ")" : "", remedy);
}

/* ---- answers ---- */

bool store_take(char *place, size_t place_bytes, const char *text)
{
    if (!text || !*text || strlen(text) >= place_bytes || strpbrk(text, "\r\n"))
        return false;
    memcpy(place, text, strlen(text) + 1);
    return true;
}

int64_t store_read_time(const char *text)
{
    struct tm time = {0};
    int hours = 0, minutes = 0;
    char sign = '+';
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &time) : NULL;
    if (!end)
        return 0;
    end += *end == '.' ? 1 + strspn(end + 1, "0123456789") : 0;
    if (*end && *end != 'Z' && strcmp(end, "UTC") != 0 &&
        sscanf(end, "%c%2d:%2d", &sign, &hours, &minutes) < 2)
        return 0;
    const int64_t ahead = ((int64_t)hours * 60 + minutes) * 60;
    return (int64_t)timegm(&time) - (sign == '-' ? -ahead : ahead);
}

bool store_take_json_keys(StoreLent *lent, const char *text, const char *token_name)
{
    json_t *object = json_loads(text, 0, NULL);
    lent->found =
        store_take(lent->key, sizeof lent->key, json_string_value(json_object_get(object, "AccessKeyId"))) &&
        store_take(lent->secret, sizeof lent->secret,
                   json_string_value(json_object_get(object, "SecretAccessKey"))) &&
        store_take(lent->token, sizeof lent->token, json_string_value(json_object_get(object, token_name)));
    lent->end_seconds = store_read_time(json_string_value(json_object_get(object, "Expiration")));
    json_decref(object);
    return lent->found;
}

bool store_take_xml_keys(StoreLent *lent, const char *text)
{
    char end[64] = "";
    lent->found = store_xml_text(text, "AccessKeyId", lent->key, sizeof lent->key) &&
                  store_xml_text(text, "SecretAccessKey", lent->secret, sizeof lent->secret) &&
                  store_xml_text(text, "SessionToken", lent->token, sizeof lent->token);
    if (store_xml_text(text, "Expiration", end, sizeof end))
        lent->end_seconds = store_read_time(end);
    return lent->found;
}

bool store_take_google_token(StoreLent *lent, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    const json_int_t seconds = json_integer_value(json_object_get(object, "expires_in"));
    lent->found = store_take(lent->token, sizeof lent->token,
                             json_string_value(json_object_get(object, "access_token")));
    lent->end_seconds = seconds > 0 && seconds < INT_MAX ? (int64_t)time(NULL) + (int64_t)seconds : 0;
    json_decref(object);
    return lent->found;
}

FshStatus store_read_line(const char *path, char *text, size_t text_bytes, FshError *error)
{
    Buffer file = {0};
    FshStatus status = file_read_most(path, text_bytes - 1, &file, error);
    size_t length = status ? 0 : file.length;
    while (length && text_is_blank((char)file.bytes[length - 1]))
        length--;
    memcpy(text, length ? (const char *)file.bytes : "", length);
    text[length] = '\0';
    if (file.bytes)
        explicit_bzero(file.bytes, file.length);
    buffer_free(&file);
    return status;
}

bool store_is_trusted(const char *url)
{
    if (strchr(url, '@')) /* what stands before it is no host */
        return false;
    static const char *const hosts[] = {"http://127.0.0.1",      "http://localhost", "http://169.254.170.2",
                                        "http://169.254.170.23", "http://[::1]",     "http://[fd00:ec2::23]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const size_t length = strlen(hosts[i]);
        if (strncmp(url, hosts[i], length) == 0 && strchr(":/", url[length])) /* or its end */
            return true;
    }
    return strncmp(url, "https://", 8) == 0;
}

/* ---- questions ---- */

bool store_append_field(char *body, size_t body_bytes, const char *name, const char *value)
{
    const size_t length = strlen(body);
    return (size_t)snprintf(body + length, body_bytes - length, "%s%s=", length ? "&" : "", name) <
               body_bytes - length &&
           store_url_encode_value(body, body_bytes, value);
}

void store_sts_url(char url[STORE_URL_BYTES], const char *region)
{
    const char *endpoint = store_variable("AWS_ENDPOINT_URL_STS");
    endpoint = endpoint ? endpoint : store_variable("AWS_ENDPOINT_URL");
    if (endpoint)
        (void)snprintf(url, STORE_URL_BYTES, "%s%s", endpoint, text_has_suffix(endpoint, "/") ? "" : "/");
    else
        (void)snprintf(url, STORE_URL_BYTES, "https://sts.%s.amazonaws.com/", region);
}
