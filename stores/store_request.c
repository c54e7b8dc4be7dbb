#include "stores/store_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/plugin.h"
#include "common/random.h"
#include "common/text.h"
#include "formats/fshard.h"

/* ---- the plugin ---- */

/* Its address is 0 unless the program is linked to the plugin's side itself. */
#pragma weak fshard_store_plugin

static bool is_of_this_build(const StorePlugin *plugin)
{
    static const StorePlugin here = {STORE_PLUGIN_HERE};
    return plugin->plugin_bytes == here.plugin_bytes && plugin->exchange_bytes == here.exchange_bytes &&
           plugin->site_bytes == here.site_bytes && strcmp(plugin->version, here.version) == 0;
}

FshStatus store_plugin_load(const StorePlugin **plugin_ret, FshError *error)
{
    const void *address = &fshard_store_plugin;
    FshStatus status = FSH_OK;
    if (!address)
        status = plugin_load(STORE_PLUGIN_FILE, STORE_PLUGIN_SYMBOL, &address, error);
    if (status == FSH_ERR_NOT_FOUND)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "datasets on servers need libcurl, and " STORE_PLUGIN_FILE
            " is not here; install libcurl4-openssl-dev and libssl-dev and build again, or name its folder "
            "in FSHARD_PLUGINS");
    if (status)
        return fsh_error_prepend(error, "datasets on servers need libcurl (Debian: libcurl4)");
    *plugin_ret = address;
    if (!is_of_this_build(*plugin_ret))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the libcurl plugin is of another version of fshard; rebuild both");
    return FSH_OK;
}

FshStatus store_client_open(StoreClient *client, const StoreSite *site, const StorePatience *patience,
                            FshError *error)
{
    *client = (StoreClient){.site = site, .patience = *patience};
    FshStatus status = store_plugin_load(&client->plugin, error);
    return status ? status : client->plugin->open(&client->connection, error);
}

void store_client_close(StoreClient *client)
{
    if (client->connection)
        client->plugin->close(&client->connection);
}

/* ---- answers ---- */

bool store_xml_text(const char *xml, const char *name, char *text, size_t text_bytes)
{
    char open[64], close[64];
    (void)snprintf(open, sizeof open, "<%s>", name);
    (void)snprintf(close, sizeof close, "</%s>", name);
    const char *begin = strstr(xml, open);
    begin = begin ? begin + strlen(open) : NULL;
    const char *end = begin ? strstr(begin, close) : NULL;
    if (!end || (size_t)(end - begin) >= text_bytes)
        return false;
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    return true;
}

static const char *status_name(long status)
{
    static const struct {
        long status;
        const char *name;
    } names[] = {{200, "OK"},
                 {301, "Moved Permanently"},
                 {307, "Temporary Redirect"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {416, "Range Not Satisfiable"},
                 {429, "Too Many Requests"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status)
            return names[i].name;
    return "";
}

static bool is_success(long status)
{
    return status >= 200 && status < 300;
}

static bool is_retried(const StoreExchange *exchange)
{
    static const long statuses[] = {408, 425, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (exchange->status == statuses[i])
            return true;
    return exchange->unasked || exchange->transient || (exchange->finished && is_success(exchange->status));
}

/* Writes what came: "the server says 403 Forbidden (AccessDenied: Access Denied)". missing: bytes of a body
 * that ended early. */
static void tell_answer(char *text, size_t text_bytes, const StoreExchange *exchange, uint64_t missing)
{
    char code[80], message[300];
    const bool early = is_success(exchange->status) && missing;
    int length = 0;
    if (*exchange->failure)
        length = snprintf(text, text_bytes, "%s", exchange->failure);
    else if (early)
        length = snprintf(text, text_bytes, "the answer ended %" PRIu64 " bytes early", missing);
    else
        length = snprintf(text, text_bytes, "the server says %ld %s", exchange->status,
                          status_name(exchange->status));
    if (*exchange->failure || (size_t)length >= text_bytes || early ||
        !store_xml_text(exchange->text, "Code", code, sizeof code))
        return;
    if (!store_xml_text(exchange->text, "Message", message, sizeof message))
        *message = '\0';
    (void)snprintf(text + length, text_bytes - (size_t)length, " (%s%s%s)", code, *message ? ": " : "",
                   message);
}

/* Returns what a user can do about an answer; "": nothing is known. */
static const char *remedy(const StoreClient *client, const StoreExchange *exchange, char *text,
                          size_t text_bytes)
{
    const StoreSite *site = client->site;
    static const char *const places[] = {
        [STORE_HTTP] = "put the user and password of this host into ~/.netrc",
        [STORE_S3] = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        [STORE_GS] = "set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or GOOGLE_OAUTH_ACCESS_TOKEN"};
    static const char *const names[] = {
        [STORE_HTTP] = "is the address spelled right, and can this machine look up names?",
        [STORE_S3] =
            "is AWS_REGION right, or AWS_ENDPOINT_URL where it is set, and can this machine look up names?",
        [STORE_GS] = "is STORAGE_EMULATOR_HOST right where it is set, and can this machine look up names?"};
    static const char *const anonymous[] = {
        [STORE_HTTP] = "",
        [STORE_S3] = " AWS_NO_SIGN_REQUEST=YES reads what is everybody's without them",
        [STORE_GS] = " GS_NO_SIGN_REQUEST=YES reads what is everybody's without them"};
    *text = '\0';
    if (site->url.kind == STORE_S3 && *exchange->region && strcmp(exchange->region, site->region) != 0 &&
        !is_success(exchange->status))
        (void)snprintf(text, text_bytes, "; the bucket is in %s: set AWS_REGION=%s%s%s", exchange->region,
                       exchange->region, site->why_none ? "; and there are no credentials: " : "",
                       site->why_none ? site->why_none_text : "");
    else if ((exchange->status == 401 || exchange->status == 403) && *site->credentials)
        (void)snprintf(text, text_bytes, "; asked with the credentials of %.200s: may they do that?%s",
                       site->credentials, site->purpose == STORE_TO_READ ? anonymous[site->url.kind] : "");
    else if ((exchange->status == 401 || exchange->status == 403) && *site->why_none_text)
        (void)snprintf(text, text_bytes, ", and there are no credentials: %s", site->why_none_text);
    else if (exchange->status == 401 || exchange->status == 403)
        (void)snprintf(text, text_bytes, "; no credentials were found: %s", places[site->url.kind]);
    else if (exchange->unknown_host)
        (void)snprintf(text, text_bytes, "; %s", names[site->url.kind]);
    else if (exchange->status == 404 && strcmp(exchange->method, "GET") == 0 &&
             text_has_suffix(exchange->url, "/" FSH_MANIFEST_NAME))
        (void)snprintf(text, text_bytes,
                       "; is this the folder of a dataset, with its dataset.json? A tar's address ends in "
                       ".tar");
    else if (exchange->changed)
        (void)snprintf(text, text_bytes, "; the same command fetches the new one");
    else if (exchange->unasked &&
             (!exchange->file_bytes || (exchange->wanted_etag && *exchange->wanted_etag)))
        (void)snprintf(text, text_bytes, "; the server is wrong about it, or a proxy is between");
    else if (exchange->unasked)
        (void)snprintf(text, text_bytes,
                       "; the copy there is not that of its manifest, or a proxy is between: "
                       "upload the file again");
    else if (is_retried(exchange))
        (void)snprintf(text, text_bytes, "; the same command goes on with what has come");
    return text;
}

/* ---- trying ---- */

static bool is_stopped(const StoreClient *client)
{
    const StorePatience *patience = &client->patience;
    return (interrupt_requested() && !patience->regardless) ||
           (patience->stopped && patience->stopped(patience->context));
}

void store_client_wait(const StoreClient *client, double seconds, double asked_seconds, double asked_most)
{
    const double begin = progress_now_seconds();
    Random random;
    random_start(&random, (uint64_t)getpid(), (uint64_t)(begin * 1e9));
    seconds *= (1 + (double)random_uniform(&random)) / 2;
    if (asked_seconds > seconds)
        seconds = asked_seconds < asked_most ? asked_seconds : asked_most;
    while (!is_stopped(client) && progress_now_seconds() - begin < seconds) {
        const struct timespec nap = {.tv_nsec = 20000000};
        (void)nanosleep(&nap, NULL);
    }
}

/* Waits before try number `tries`. */
static void wait_before(const StoreClient *client, int64_t tries, double asked_seconds)
{
    static const double first = 0.25, most = 20, asked_most = 60;
    double seconds = first;
    for (int64_t i = 0; i < tries && seconds < most; i++)
        seconds *= 2;
    store_client_wait(client, seconds < most ? seconds : most, asked_seconds, asked_most);
}

/* What was tried so far. */
typedef struct Tries {
    int64_t count;         /* all of them */
    int64_t in_vain;       /* since something came */
    int64_t unknown_hosts; /* in a row: the last of them */
    double begin_seconds;
} Tries;

/* Makes a request, and notes what became of it. */
static void try_once(StoreClient *client, StoreExchange *exchange, Tries *tries)
{
    client->plugin->perform(client->connection, exchange);
    client->answered = client->answered || exchange->status;
    tries->count++;
    tries->unknown_hosts = exchange->unknown_host ? tries->unknown_hosts + 1 : 0;
}

/* Fails for good, with all that is to say. */
static FshStatus give_up(const StoreClient *client, const StoreExchange *exchange, const char *name,
                         uint64_t missing, const Tries *tries, FshError *error)
{
    char answer[600], help[900], tried[80] = "";
    tell_answer(answer, sizeof answer, exchange, missing);
    if (tries->count > 1)
        (void)snprintf(tried, sizeof tried, "; tried %" PRId64 " times in %.1f s", tries->count,
                       progress_now_seconds() - tries->begin_seconds);
    FshStatus status = exchange->status == 404 ? FSH_ERR_NOT_FOUND : FSH_ERR_SYSTEM;
    if (client->site->why_none && (exchange->status == 401 || exchange->status == 403))
        status = client->site->why_none; /* of all that fails, this is what can be mended */
    (void)fsh_error_set(error, status, "%s%s%s: %s%s%s", client->site->url.text, *name ? "/" : "", name,
                        answer, tried, remedy(client, exchange, help, sizeof help));
    if (error)
        store_site_hide(client->site, error->message);
    return status;
}

/* Decides after a try that was not enough: FSH_OK: try again, after a wait. */
static FshStatus after_failure(const StoreClient *client, const StoreExchange *exchange, const char *name,
                               uint64_t missing, Tries *tries, FshError *error)
{
    if (is_stopped(client))
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
    const bool misspelt = tries->unknown_hosts > 1 && !client->answered;
    if (!is_retried(exchange) || misspelt || tries->in_vain > client->patience.retries)
        return give_up(client, exchange, name, missing, tries, error);
    if (client->patience.progress && tries->in_vain >= 3) {
        char answer[600];
        tell_answer(answer, sizeof answer, exchange, missing);
        store_site_hide(client->site, answer);
        progress_note(client->patience.progress, "%s: %s/%s: %s; trying again (%" PRId64 " of %" PRId64 ")",
                      client->patience.speaker, client->site->url.text, name, answer, tries->in_vain,
                      client->patience.retries);
    }
    wait_before(client, tries->in_vain - 1, exchange->retry_after_seconds);
    return is_stopped(client) ? fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted") : FSH_OK;
}

/* A GET under way. */
typedef struct Getting {
    const StoreClient *client;
    const StoreGet *get;
    uint64_t got_bytes; /* of what was asked for */
    StoreLook *look;    /* is all that is wanted; NULL: the bytes are */
    FshStatus status;   /* of the sink */
    FshError *error;
} Getting;

static bool getting_stopped(void *context)
{
    const Getting *getting = context;
    return is_stopped(getting->client);
}

static bool take_bytes(void *context, const void *bytes, size_t length)
{
    Getting *getting = context;
    if (getting->look) { /* one byte comes to its end, and a whole file is stopped */
        getting->got_bytes += length;
        return getting->got_bytes <= 1;
    }
    getting->status =
        getting->get->sink(getting->get->context, getting->got_bytes, bytes, length, getting->error);
    getting->got_bytes += length;
    return getting->status == FSH_OK;
}

/* Returns whether all has come that was asked for; *missing_ret: how much has not. */
static bool is_complete(const Getting *getting, const StoreExchange *exchange, uint64_t *missing_ret)
{
    const StoreGet *get = getting->get;
    const uint64_t told = exchange->told_bytes != UINT64_MAX ? exchange->told_bytes : 0;
    uint64_t wanted = get->bytes ? get->bytes : get->file_bytes;
    if (!wanted || (get->parts_ret && told < wanted))
        wanted = told;
    *missing_ret = wanted > getting->got_bytes ? wanted - getting->got_bytes : 0;
    return exchange->finished && is_success(exchange->status) && !*missing_ret && !exchange->unasked;
}

static FshStatus get_or_look(StoreClient *client, const StoreGet *get, StoreLook *look, bool *found_ret,
                             FshError *error)
{
    enum { PROGRESS_BYTES = 1 << 20 };
    char url[STORE_URL_BYTES];
    Getting getting = {.client = client, .get = get, .look = look, .error = error};
    Tries tries = {.begin_seconds = progress_now_seconds()};
    uint64_t missing = 0, counted_bytes = 0;
    FshStatus status = store_site_url(client->site, get->name, url, error);
    if (found_ret)
        *found_ret = true;
    while (!status) {
        if (!get->bytes || get->parts_ret) /* from the beginning again */
            getting.got_bytes = 0;
        StoreExchange exchange = {.method = "GET",
                                  .url = url,
                                  .site = client->site,
                                  .range_first = get->first + getting.got_bytes,
                                  .range_bytes = get->bytes ? get->bytes - getting.got_bytes : 0,
                                  .file_bytes = get->file_bytes,
                                  .whole_is_fine = get->parts_ret != NULL,
                                  .wanted_etag = get->etag,
                                  .stall_seconds = client->patience.stall_seconds,
                                  .stopped = getting_stopped,
                                  .sink = take_bytes,
                                  .context = &getting};
        try_once(client, &exchange, &tries);
        if (getting.status)
            return getting.status;
        if (look && is_success(exchange.status) && (getting.got_bytes || exchange.finished)) {
            *look = (StoreLook){.bytes = exchange.told_bytes, .parts = exchange.status == 206};
            memcpy(look->etag, exchange.etag, sizeof look->etag);
            return FSH_OK;
        }
        if (is_complete(&getting, &exchange, &missing)) {
            if (get->parts_ret)
                *get->parts_ret = exchange.status == 206;
            return FSH_OK;
        }
        if (get->optional && (exchange.status == 404 || (exchange.status == 403 && get->hidden_ret))) {
            if (get->hidden_ret)
                *get->hidden_ret = exchange.status == 403;
            if (found_ret)
                *found_ret = false;
            return FSH_OK;
        }
        if (get->bytes && !get->parts_ret && getting.got_bytes - counted_bytes >= PROGRESS_BYTES) {
            counted_bytes = getting.got_bytes;
            tries.in_vain = 0;
        }
        tries.in_vain++;
        status = after_failure(client, &exchange, get->name, missing, &tries, error);
    }
    return status;
}

FshStatus store_get(StoreClient *client, const StoreGet *get, bool *found_ret, FshError *error)
{
    return get_or_look(client, get, NULL, found_ret, error);
}

FshStatus store_look(StoreClient *client, const char *name, StoreLook *look, FshError *error)
{
    bool parts = false;
    const StoreGet get = {.name = name, .bytes = 1, .parts_ret = &parts};
    return get_or_look(client, &get, look, NULL, error);
}

FshStatus store_send(StoreClient *client, const char *method, const char *name, const char *query,
                     const void *body, size_t body_bytes, StoreExchange *exchange_ret, FshError *error)
{
    static const double longest_pause = 120; /* in which a server puts the parts of a file together */
    const double usual = client->patience.stall_seconds;
    const double stall_seconds = strcmp(method, "POST") == 0 && usual < longest_pause ? longest_pause : usual;
    char url[STORE_URL_BYTES];
    Getting getting = {.client = client};
    Tries tries = {.begin_seconds = progress_now_seconds()};
    FshStatus status = store_site_url(client->site, name, url, error);
    const size_t length = status ? 0 : strlen(url);
    if (!status && *query &&
        (size_t)snprintf(url + length, sizeof url - length, "?%s", query) >= sizeof url - length)
        status = fsh_error_set(error, FSH_ERR_USAGE, "%.80s…/%s: is too long", client->site->url.text, name);
    while (!status) {
        StoreExchange exchange = {.method = method,
                                  .url = url,
                                  .site = client->site,
                                  .body = body,
                                  .body_bytes = body_bytes,
                                  .stall_seconds = stall_seconds,
                                  .stopped = getting_stopped,
                                  .context = &getting};
        try_once(client, &exchange, &tries);
        tries.in_vain++;
        const bool failed = strstr(exchange.text, "<Error>") != NULL; /* S3 may say so with status 200 */
        if (exchange.finished && is_success(exchange.status) && !failed) {
            if (exchange_ret)
                *exchange_ret = exchange;
            return FSH_OK;
        }
        status = after_failure(client, &exchange, name, 0, &tries, error);
    }
    return status;
}
