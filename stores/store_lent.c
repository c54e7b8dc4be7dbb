#include "stores/store_lent.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/file.h"
#include "common/text.h"
#include "stores/store_request.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- asking ---- */

/* A question to who lends. */
typedef struct Question {
    const char *method, *url;
    const char *headers[3]; /* lines; NULL at the end */
    const char *body;       /* NULL: none */
    bool by_proxy;          /* of the environment, if there is one: who is asked is no neighbour */
} Question;

/* Asks, up to three times where nobody answers; the answer is in *exchange, and its text may be secret. Fails
 * only where the plugin is not here. */
static FshStatus ask(const Question *question, StoreExchange *exchange, FshError *error)
{
    enum { TRIES = 3 };
    static const double stall_seconds = 3;
    const StoreSite site = {.url.kind = STORE_HTTP};
    const StorePatience patience = {0};
    StoreClient client = {0};
    FshStatus status = store_client_open(&client, &site, &patience, error);
    for (int i = 0; i < TRIES && !status; i++) {
        const struct timespec nap = {.tv_nsec = 200000000};
        *exchange = (StoreExchange){.method = question->method,
                                    .url = question->url,
                                    .site = &site,
                                    .headers = question->headers,
                                    .direct = true,
                                    .by_proxy = question->by_proxy,
                                    .body = question->body,
                                    .body_bytes = question->body ? strlen(question->body) : 0,
                                    .stall_seconds = stall_seconds};
        client.plugin->perform(client.connection, exchange);
        if (exchange->finished && exchange->status != 429 && exchange->status < 500)
            break;
        (void)nanosleep(&nap, NULL);
    }
    store_client_close(&client);
    return status;
}

static const char aws_remedy[] = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, where they are set, are taken "
                                 "instead";

static bool is_answered(const StoreExchange *exchange)
{
    return exchange->finished && exchange->status == 200;
}

/* Fails with what came instead of credentials, but for its text, which may be secret; remedy: what to do. */
static FshStatus refuse(const StoreExchange *exchange, const char *from, const char *remedy, FshError *error)
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

/* Copies a text if it fits, and is one line. */
static bool take(char *place, size_t place_bytes, const char *text)
{
    if (!text || !*text || strlen(text) >= place_bytes || strpbrk(text, "\r\n"))
        return false;
    memcpy(place, text, strlen(text) + 1);
    return true;
}

/* Reads "2026-11-24T03:00:00Z"; 0: it is something else. */
static int64_t read_time(const char *text)
{
    struct tm time = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &time) : NULL;
    return end ? (int64_t)timegm(&time) : 0;
}

/* Takes Amazon's keys from JSON. */
static bool take_json_keys(StoreLent *lent, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    lent->found =
        take(lent->key, sizeof lent->key, json_string_value(json_object_get(object, "AccessKeyId"))) &&
        take(lent->secret, sizeof lent->secret,
             json_string_value(json_object_get(object, "SecretAccessKey"))) &&
        take(lent->token, sizeof lent->token, json_string_value(json_object_get(object, "Token")));
    lent->end_seconds = read_time(json_string_value(json_object_get(object, "Expiration")));
    json_decref(object);
    return lent->found;
}

/* ---- a web identity ---- */

/* Reads a file of one line into text. */
static FshStatus read_line(const char *path, char *text, size_t text_bytes, FshError *error)
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

/* Writes what STS is asked. Returns false if it does not fit. */
static bool write_request(char *body, size_t body_bytes, const char *role, const char *session,
                          const char *token)
{
    const struct {
        const char *name, *value;
    } fields[] = {{"RoleArn", role}, {"RoleSessionName", session}, {"WebIdentityToken", token}};
    (void)snprintf(body, body_bytes, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const size_t length = strlen(body);
        if ((size_t)snprintf(body + length, body_bytes - length, "&%s=", fields[i].name) >=
                body_bytes - length ||
            !store_url_encode_value(body, body_bytes, fields[i].value))
            return false;
    }
    return true;
}

FshStatus store_lent_by_identity(StoreLent *lent, const char *region, FshError *error)
{
    enum { BODY_BYTES = 4 * STORE_SECRET_BYTES };
    static const char from[] = "AWS_WEB_IDENTITY_TOKEN_FILE";
    const char *file = variable(from), *role = variable("AWS_ROLE_ARN");
    const char *session = variable("AWS_ROLE_SESSION_NAME"), *endpoint = variable("AWS_ENDPOINT_URL_STS");
    char url[STORE_URL_BYTES], token[STORE_SECRET_BYTES], end[64] = "";
    *lent = (StoreLent){0};
    if (!file || !role)
        return FSH_OK;
    endpoint = endpoint ? endpoint : variable("AWS_ENDPOINT_URL");
    if (endpoint)
        (void)snprintf(url, sizeof url, "%s%s", endpoint, text_has_suffix(endpoint, "/") ? "" : "/");
    else
        (void)snprintf(url, sizeof url, "https://sts.%s.amazonaws.com/", region);
    StoreExchange exchange = {0};
    char *body = calloc(1, BODY_BYTES);
    FshStatus status = body ? read_line(file, token, sizeof token, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status && !write_request(body, BODY_BYTES, role, session ? session : "fshard", token))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: the token is too long", from);
    const Question question = {.method = "POST",
                               .url = url,
                               .headers = {"Content-Type: application/x-www-form-urlencoded"},
                               .body = body,
                               .by_proxy = true};
    if (!status)
        status = ask(&question, &exchange, error);
    if (!status) {
        lent->found = is_answered(&exchange) &&
                      store_xml_text(exchange.text, "AccessKeyId", lent->key, sizeof lent->key) &&
                      store_xml_text(exchange.text, "SecretAccessKey", lent->secret, sizeof lent->secret) &&
                      store_xml_text(exchange.text, "SessionToken", lent->token, sizeof lent->token);
        if (store_xml_text(exchange.text, "Expiration", end, sizeof end))
            lent->end_seconds = read_time(end);
        (void)snprintf(lent->from, sizeof lent->from, "AWS_ROLE_ARN");
        status = lent->found ? FSH_OK : refuse(&exchange, from, aws_remedy, error);
    }
    if (body)
        explicit_bzero(body, BODY_BYTES);
    free(body);
    explicit_bzero(token, sizeof token);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}

/* ---- a container ---- */

/* Returns whether keys may come from there unencrypted: from this machine, and from ECS and EKS. */
static bool is_own_host(const char *url)
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

static FshStatus ask_container(StoreLent *lent, const char *url, const char *from, FshError *error)
{
    const char *token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
               *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char read[STORE_SECRET_BYTES] = "", header[STORE_SECRET_BYTES + 32] = "";
    StoreExchange exchange = {0};
    FshStatus status = file ? read_line(file, read, sizeof read, error) : FSH_OK;
    token = file ? read : token;
    if (token)
        (void)snprintf(header, sizeof header, "Authorization: %s", token);
    const Question question = {.method = "GET", .url = url, .headers = {token ? header : NULL}};
    if (!status && strpbrk(header, "\r\n"))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: its authorization has several lines", from);
    if (!status)
        status = ask(&question, &exchange, error);
    if (!status && !(is_answered(&exchange) && take_json_keys(lent, exchange.text)))
        status = refuse(&exchange, from, aws_remedy, error);
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    explicit_bzero(read, sizeof read);
    explicit_bzero(header, sizeof header);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}

/* ---- machines ---- */

/* Returns whether a file of /sys begins with a text. */
static bool sys_says(const char *path, const char *text)
{
    char line[64] = "";
    FILE *file = fopen(path, "re");
    const bool begun = file && fgets(line, sizeof line, file) && strncmp(line, text, strlen(text)) == 0;
    if (file)
        (void)fclose(file);
    return begun;
}

static FshStatus ask_machine(StoreLent *lent, const char *endpoint, FshError *error)
{
    static const char from[] = "the role of this EC2 instance",
                      remedy[] = "AWS_EC2_METADATA_DISABLED=true goes on without it";
    char url[STORE_URL_BYTES], token[STORE_SECRET_BYTES], header[STORE_SECRET_BYTES + 64], role[256];
    StoreExchange exchange;
    const Question first = {
        .method = "PUT", .url = url, .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 300"}};
    const Question next = {.method = "GET", .url = url, .headers = {header}};
    (void)snprintf(url, sizeof url, "%s/latest/api/token", endpoint);
    FshStatus status = ask(&first, &exchange, error);
    if (status)
        return status;
    if (!is_answered(&exchange) || !take(token, sizeof token, exchange.text))
        return refuse(&exchange, from, remedy, error);
    (void)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", token);
    (void)snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/", endpoint);
    status = ask(&next, &exchange, error);
    if (status || exchange.status == 404) /* it has no role */
        return status;
    exchange.text[strcspn(exchange.text, "\r\n")] = '\0';
    if (!is_answered(&exchange) || !take(role, sizeof role, exchange.text) || strpbrk(role, "/?#"))
        return refuse(&exchange, from, remedy, error);
    const size_t length = strlen(url);
    (void)snprintf(url + length, sizeof url - length, "%s", role);
    status = ask(&next, &exchange, error);
    if (!status && !(is_answered(&exchange) && take_json_keys(lent, exchange.text)))
        status = refuse(&exchange, from, remedy, error);
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    explicit_bzero(exchange.text, sizeof exchange.text);
    explicit_bzero(token, sizeof token);
    explicit_bzero(header, sizeof header);
    return status;
}

FshStatus store_lent_by_host(StoreLent *lent, FshError *error)
{
    static const char relative_name[] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                      full_name[] = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    const char *relative = variable(relative_name), *full = variable(full_name);
    const char *disabled = variable("AWS_EC2_METADATA_DISABLED"),
               *endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char url[STORE_URL_BYTES];
    *lent = (StoreLent){0};
    if (relative) {
        (void)snprintf(url, sizeof url, "http://169.254.170.2%s%s", *relative == '/' ? "" : "/", relative);
        return ask_container(lent, url, relative_name, error);
    }
    if (full && !is_own_host(full))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is neither https:// nor of this host", full_name);
    if (full)
        return ask_container(lent, full, full_name, error);
    if (disabled && strcasecmp(disabled, "true") == 0)
        return FSH_OK;
    if (!endpoint &&
        (sys_says("/sys/class/dmi/id/sys_vendor", "Amazon EC2") || sys_says("/sys/hypervisor/uuid", "ec2")))
        endpoint = "http://169.254.169.254";
    return endpoint ? ask_machine(lent, endpoint, error) : FSH_OK;
}

FshStatus store_lent_by_google(StoreLent *lent, FshError *error)
{
    static const char from[] = "the service account of this machine";
    const char *host = variable("GCE_METADATA_HOST");
    char url[STORE_URL_BYTES];
    StoreExchange exchange;
    *lent = (StoreLent){0};
    if (!host && sys_says("/sys/class/dmi/id/product_name", "Google"))
        host = "metadata.google.internal";
    if (!host)
        return FSH_OK;
    (void)snprintf(url, sizeof url, "http://%s/computeMetadata/v1/instance/service-accounts/default/token",
                   host);
    const Question question = {.method = "GET", .url = url, .headers = {"Metadata-Flavor: Google"}};
    FshStatus status = ask(&question, &exchange, error);
    if (status || exchange.status == 404) /* it has no account */
        return status;
    json_t *object = is_answered(&exchange) ? json_loads(exchange.text, 0, NULL) : NULL;
    const json_int_t seconds = json_integer_value(json_object_get(object, "expires_in"));
    lent->found =
        take(lent->token, sizeof lent->token, json_string_value(json_object_get(object, "access_token")));
    lent->end_seconds = seconds > 0 ? (int64_t)time(NULL) + (int64_t)seconds : 0;
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    json_decref(object);
    if (!lent->found)
        status =
            refuse(&exchange, from, "GOOGLE_OAUTH_ACCESS_TOKEN, where it is set, is taken instead", error);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}
