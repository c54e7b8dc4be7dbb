#include "stores/store_lent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/text.h"
#include "stores/store_ask.h"

/* ---- a web identity ---- */

FshStatus store_lent_by_identity(StoreLent *lent, const StoreIdentity *identity, const char *region,
                                 FshError *error)
{
    enum { BODY_BYTES = 4 * STORE_SECRET_BYTES };
    char url[STORE_URL_BYTES], token[STORE_SECRET_BYTES];
    *lent = (StoreLent){0};
    store_sts_url(url, region);
    StoreExchange exchange = {0};
    char *body = calloc(1, BODY_BYTES);
    FshStatus status = body ? store_read_line(identity->file, token, sizeof token, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status && !(store_append_field(body, BODY_BYTES, "Action", "AssumeRoleWithWebIdentity") &&
                     store_append_field(body, BODY_BYTES, "Version", "2011-06-15") &&
                     store_append_field(body, BODY_BYTES, "RoleArn", identity->role) &&
                     store_append_field(body, BODY_BYTES, "RoleSessionName",
                                        identity->session ? identity->session : "fshard") &&
                     store_append_field(body, BODY_BYTES, "WebIdentityToken", token)))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: the token is too long", identity->from);
    const StoreQuestion question = {.method = "POST",
                                    .url = url,
                                    .headers = {"Content-Type: application/x-www-form-urlencoded"},
                                    .body = body,
                                    .by_proxy = true};
    if (!status)
        status = store_ask(&question, &exchange, error);
    if (!status) {
        (void)snprintf(lent->from, sizeof lent->from, "%s", identity->credentials);
        status = store_is_answered(&exchange) && store_take_xml_keys(lent, exchange.text)
                     ? FSH_OK
                     : store_refuse(&exchange, identity->from, store_aws_remedy, error);
    }
    if (body)
        explicit_bzero(body, BODY_BYTES);
    free(body);
    explicit_bzero(token, sizeof token);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}

FshStatus store_lent_by_environment(StoreLent *lent, const char *region, FshError *error)
{
    const StoreIdentity identity = {.file = store_variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
                                    .role = store_variable("AWS_ROLE_ARN"),
                                    .session = store_variable("AWS_ROLE_SESSION_NAME"),
                                    .from = "AWS_WEB_IDENTITY_TOKEN_FILE",
                                    .credentials = "AWS_ROLE_ARN"};
    *lent = (StoreLent){0};
    return identity.file && identity.role ? store_lent_by_identity(lent, &identity, region, error) : FSH_OK;
}

/* ---- a container ---- */

static FshStatus ask_container(StoreLent *lent, const char *url, const char *from, FshError *error)
{
    const char *token = store_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
               *file = store_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char read[STORE_SECRET_BYTES] = "", header[STORE_SECRET_BYTES + 32] = "";
    StoreExchange exchange = {0};
    FshStatus status = file ? store_read_line(file, read, sizeof read, error) : FSH_OK;
    token = file ? read : token;
    if (token)
        (void)snprintf(header, sizeof header, "Authorization: %s", token);
    const StoreQuestion question = {.method = "GET", .url = url, .headers = {token ? header : NULL}};
    if (!status && strpbrk(header, "\r\n"))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: its authorization has several lines", from);
    if (!status)
        status = store_ask(&question, &exchange, error);
    if (!status && !(store_is_answered(&exchange) && store_take_json_keys(lent, exchange.text, "Token")))
        status = store_refuse(&exchange, from, store_aws_remedy, error);
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
                      remedy[] = "AWS_EC2_METADATA_DISABLED=true goes on without it",
                      silent[] = "in a container the instance must allow two hops: aws ec2 "
                                 "modify-instance-metadata-options --http-put-response-hop-limit 2; "
                                 "AWS_EC2_METADATA_DISABLED=true goes on without it";
    char url[STORE_URL_BYTES], token[STORE_SECRET_BYTES], header[STORE_SECRET_BYTES + 64], role[256];
    StoreExchange exchange;
    const StoreQuestion first = {
        .method = "PUT", .url = url, .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 300"}, .near = true};
    const StoreQuestion next = {.method = "GET", .url = url, .headers = {header}, .near = true};
    (void)snprintf(url, sizeof url, "%s/latest/api/token", endpoint);
    FshStatus status = store_ask(&first, &exchange, error);
    if (status)
        return status;
    if (!store_is_answered(&exchange) || !store_take(token, sizeof token, exchange.text))
        return store_refuse(&exchange, from, exchange.finished ? remedy : silent, error);
    (void)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", token);
    (void)snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/", endpoint);
    status = store_ask(&next, &exchange, error);
    if (status || exchange.status == 404) /* it has no role */
        return status;
    exchange.text[strcspn(exchange.text, "\r\n")] = '\0';
    if (!store_is_answered(&exchange) || !store_take(role, sizeof role, exchange.text) ||
        strpbrk(role, "/?#"))
        return store_refuse(&exchange, from, remedy, error);
    const size_t length = strlen(url);
    (void)snprintf(url + length, sizeof url - length, "%s", role);
    status = store_ask(&next, &exchange, error);
    if (!status && !(store_is_answered(&exchange) && store_take_json_keys(lent, exchange.text, "Token")))
        status = store_refuse(&exchange, from, remedy, error);
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    explicit_bzero(exchange.text, sizeof exchange.text);
    explicit_bzero(token, sizeof token);
    explicit_bzero(header, sizeof header);
    return status;
}

FshStatus store_lent_by_container(StoreLent *lent, FshError *error)
{
    static const char relative_name[] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                      full_name[] = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    const char *relative = store_variable(relative_name), *full = store_variable(full_name);
    char url[STORE_URL_BYTES];
    *lent = (StoreLent){0};
    if (relative) {
        (void)snprintf(url, sizeof url, "http://169.254.170.2%s%s", *relative == '/' ? "" : "/", relative);
        return ask_container(lent, url, relative_name, error);
    }
    if (full && !store_is_trusted(full))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: is neither https:// nor of this host", full_name);
    return full ? ask_container(lent, full, full_name, error) : FSH_OK;
}

FshStatus store_lent_by_machine(StoreLent *lent, FshError *error)
{
    const char *disabled = store_variable("AWS_EC2_METADATA_DISABLED"),
               *endpoint = store_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    *lent = (StoreLent){0};
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
    const char *host = store_variable("GCE_METADATA_HOST");
    char url[STORE_URL_BYTES];
    StoreExchange exchange;
    *lent = (StoreLent){0};
    if (!host && sys_says("/sys/class/dmi/id/product_name", "Google"))
        host = "metadata.google.internal";
    if (!host)
        return FSH_OK;
    (void)snprintf(url, sizeof url, "http://%s/computeMetadata/v1/instance/service-accounts/default/token",
                   host);
    const StoreQuestion question = {.method = "GET", .url = url, .headers = {"Metadata-Flavor: Google"}};
    FshStatus status = store_ask(&question, &exchange, error);
    if (status || exchange.status == 404) /* it has no account */
        return status;
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    if (!store_is_answered(&exchange) || !store_take_google_token(lent, exchange.text))
        status = store_refuse(&exchange, from, "GOOGLE_OAUTH_ACCESS_TOKEN, where it is set, is taken instead",
                              error);
    explicit_bzero(exchange.text, sizeof exchange.text);
    return status;
}
