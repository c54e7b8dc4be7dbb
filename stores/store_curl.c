/* The plugin's side of store_plugin.h: one request by libcurl.
 *
 * libcurl signs (SigV4). It signs a query as it stands, up to 8.2 without sorting it or adding "=" to names
 * without a value, and knows no hash of a body that it streams: queries here are sorted and encoded, each
 * name has its "=", and x-amz-content-sha256 says UNSIGNED-PAYLOAD (curl issues 8810, 11794). */
#include <curl/curl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "common/text.h"
#include "stores/store_plugin.h"

struct StoreConnection {
    CURL *curl;
    char error[CURL_ERROR_SIZE];
    /* of the request under way */
    StoreExchange *exchange;
    uint64_t sunk_bytes; /* of the body, given to the sink */
    uint64_t sent_bytes; /* of the exchange's body */
    size_t text_length;
    uint64_t part_first;   /* of Content-Range */
    double window_seconds; /* since when it is looked whether something comes */
    uint64_t window_bytes; /* that had come by then */
    bool has_part, judged, sink_failed, stopped, stalled;
};

/* ---- what comes ---- */

/* Returns the value of a header of this name, NULL if it is another; *length_ret is its length. */
static const char *header_value(const char *line, size_t length, const char *name, size_t *length_ret)
{
    const size_t name_length = strlen(name);
    if (length <= name_length || line[name_length] != ':' || strncasecmp(line, name, name_length) != 0)
        return NULL;
    const char *value = line + name_length + 1, *end = line + length;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *length_ret = (size_t)(end - value);
    return value;
}

static void copy_value(char *place, size_t place_bytes, const char *value, size_t length)
{
    if (length < place_bytes) {
        memcpy(place, value, length);
        place[length] = '\0';
    }
}

/* Reads "bytes 5-9/123". */
static void take_content_range(StoreConnection *connection, const char *text)
{
    uint64_t first = 0, last = 0, total = 0;
    const int found = sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &first, &last, &total);
    connection->has_part = found >= 2;
    connection->part_first = first;
    if (found == 3)
        connection->exchange->told_bytes = total;
}

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    StoreConnection *connection = context;
    StoreExchange *exchange = connection->exchange;
    const size_t bytes = size * count;
    char text[160] = "";
    size_t length = 0;
    const char *value = NULL;
    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) { /* of the last answer alone */
        connection->has_part = false;
        exchange->told_bytes = UINT64_MAX;
        exchange->retry_after_seconds = 0;
        exchange->date_seconds = 0;
        *exchange->etag = '\0';
    } else if ((value = header_value(line, bytes, "content-range", &length))) {
        copy_value(text, sizeof text, value, length);
        take_content_range(connection, text);
    } else if ((value = header_value(line, bytes, "retry-after", &length))) {
        copy_value(text, sizeof text, value, length);
        exchange->retry_after_seconds = strtod(text, NULL); /* 0 of a date */
    } else if ((value = header_value(line, bytes, "date", &length))) {
        copy_value(text, sizeof text, value, length);
        const time_t seconds = curl_getdate(text, NULL);
        exchange->date_seconds = seconds > 0 ? seconds : 0;
    } else if ((value = header_value(line, bytes, "etag", &length))) {
        copy_value(exchange->etag, sizeof exchange->etag, value, length);
    } else if ((value = header_value(line, bytes, "x-amz-bucket-region", &length))) {
        copy_value(exchange->region, sizeof exchange->region, value, length);
    }
    return bytes;
}

/* Notes an answer that is not what was asked for. */
static bool refuse(StoreExchange *exchange, const char *what)
{
    exchange->unasked = true;
    (void)snprintf(exchange->failure, sizeof exchange->failure, "%s", what);
    return false;
}

/* Returns whether the body that begins is the one that was asked for, by the headers. */
static bool judge(StoreConnection *connection)
{
    StoreExchange *exchange = connection->exchange;
    curl_off_t length = -1;
    char text[200];
    if (exchange->wanted_etag && *exchange->wanted_etag && *exchange->etag &&
        strcmp(exchange->wanted_etag, exchange->etag) != 0) {
        exchange->changed = true;
        (void)snprintf(exchange->failure, sizeof exchange->failure,
                       "it was replaced there while it was fetched");
        return false;
    }
    if (exchange->status == 200 && exchange->range_bytes && !exchange->whole_is_fine)
        return refuse(exchange, "the server sends the whole file, and a part was asked for");
    if (exchange->status == 200 && exchange->told_bytes == UINT64_MAX &&
        curl_easy_getinfo(connection->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) == CURLE_OK &&
        length >= 0)
        exchange->told_bytes = (uint64_t)length;
    if (exchange->status == 206 && (!connection->has_part || connection->part_first != exchange->range_first))
        return refuse(exchange, "the server sends another part than was asked for");
    if (exchange->file_bytes && exchange->told_bytes != UINT64_MAX &&
        exchange->told_bytes != exchange->file_bytes) {
        (void)snprintf(text, sizeof text, "the server says that it has %" PRIu64 " bytes, and %s %" PRIu64,
                       exchange->told_bytes,
                       exchange->wanted_etag && *exchange->wanted_etag ? "it said" : "the manifest lists",
                       exchange->file_bytes);
        return refuse(exchange, text);
    }
    return true;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    StoreConnection *connection = context;
    StoreExchange *exchange = connection->exchange;
    const size_t length = size * count;
    (void)curl_easy_getinfo(connection->curl, CURLINFO_RESPONSE_CODE, &exchange->status);
    if ((exchange->status != 200 && exchange->status != 206) || !exchange->sink) {
        const size_t room = sizeof exchange->text - 1 - connection->text_length;
        const size_t taken = length < room ? length : room;
        memcpy(exchange->text + connection->text_length, bytes, taken);
        connection->text_length += taken;
        return length;
    }
    if (!connection->judged && !judge(connection))
        return 0;
    connection->judged = true;
    const bool whole = exchange->status == 200 && exchange->whole_is_fine;
    const uint64_t wanted = exchange->range_bytes && !whole ? exchange->range_bytes : exchange->file_bytes;
    if (wanted && connection->sunk_bytes + length > wanted)
        return refuse(exchange, "the server sends more bytes than were asked for"), 0;
    if (!exchange->sink(exchange->context, bytes, length)) {
        connection->sink_failed = true;
        return 0;
    }
    connection->sunk_bytes += length;
    return length;
}

static size_t give_body(char *place, size_t size, size_t count, void *context)
{
    StoreConnection *connection = context;
    const StoreExchange *exchange = connection->exchange;
    const uint64_t left = exchange->body_bytes - connection->sent_bytes;
    const size_t length = left < size * count ? (size_t)left : size * count;
    memcpy(place, (const char *)exchange->body + connection->sent_bytes, length);
    connection->sent_bytes += length;
    return length;
}

/* libcurl sends a body again from its beginning where a kept connection turns out to be closed. */
static int rewind_body(void *context, curl_off_t offset, int origin)
{
    StoreConnection *connection = context;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > connection->exchange->body_bytes)
        return CURL_SEEKFUNC_FAIL;
    connection->sent_bytes = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static double now_seconds(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Returns whether almost nothing came or went for so long. libcurl's own CURLOPT_LOW_SPEED_TIME looks at a
 * mean over more than five seconds, which a fast beginning keeps up. */
static bool has_stalled(StoreConnection *connection, uint64_t bytes)
{
    static const double slowest = 1024; /* bytes a second */
    const double now = now_seconds(), seconds = now - connection->window_seconds;
    if (!connection->window_seconds || seconds >= connection->exchange->stall_seconds) {
        connection->stalled =
            connection->window_seconds && (double)(bytes - connection->window_bytes) < slowest * seconds;
        connection->window_seconds = now;
        connection->window_bytes = bytes;
    }
    return connection->stalled;
}

static int look_up(void *context, curl_off_t download_bytes, curl_off_t came, curl_off_t upload_bytes,
                   curl_off_t went)
{
    StoreConnection *connection = context;
    StoreExchange *exchange = connection->exchange;
    (void)download_bytes, (void)upload_bytes;
    connection->stopped = exchange->stopped && exchange->stopped(exchange->context);
    return connection->stopped || has_stalled(connection, (uint64_t)came + (uint64_t)went);
}

/* ---- one request ---- */

/* Returns whether another try may fare better. */
static bool is_transient(CURLcode code)
{
    static const CURLcode lasting[] = {
        CURLE_UNSUPPORTED_PROTOCOL,     CURLE_URL_MALFORMAT,      CURLE_NOT_BUILT_IN,
        CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM,
        CURLE_TOO_MANY_REDIRECTS,       CURLE_OUT_OF_MEMORY,      CURLE_BAD_FUNCTION_ARGUMENT};
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (code == lasting[i])
            return false;
    return true;
}

/* Returns whether the resolver says for good that the URL's host has no address; libcurl does not tell that
 * from a resolver that does not answer. */
static bool is_unknown_host(const char *url)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    CURLU *parts = curl_url();
    char *host = NULL;
    int code = 0;
    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        code = getaddrinfo(host, NULL, &wanted, &found);
    if (found)
        freeaddrinfo(found);
    curl_free(host);
    curl_url_cleanup(parts);
    return code == EAI_NONAME || code == EAI_NODATA;
}

/* Appends a header. Returns false without memory. */
static bool add_header(struct curl_slist **headers, const char *name, const char *value)
{
    char line[STORE_SECRET_BYTES + 64];
    (void)snprintf(line, sizeof line, "%s:%s%s", name, *value ? " " : "", value);
    struct curl_slist *longer = curl_slist_append(*headers, line);
    explicit_bzero(line, sizeof line);
    *headers = longer ? longer : *headers;
    return longer != NULL;
}

/* Appends lines. Returns false without memory. */
static bool add_lines(struct curl_slist **headers, const char *const *lines)
{
    for (size_t i = 0; lines && lines[i]; i++) {
        struct curl_slist *longer = curl_slist_append(*headers, lines[i]);
        if (!longer)
            return false;
        *headers = longer;
    }
    return true;
}

static bool set_credentials(CURL *curl, const StoreSite *site, bool direct, struct curl_slist **headers)
{
    bool done = true;
    if (*site->signing) {
        (void)curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, site->signing);
        (void)curl_easy_setopt(curl, CURLOPT_USERPWD, site->user_password);
        if (text_has_suffix(site->signing, ":s3")) /* alone takes a body that is not signed */
            done = add_header(headers, "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
        if (done && *site->session_token)
            done = add_header(headers, "x-amz-security-token", site->session_token);
    } else if (*site->bearer) {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        (void)curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, site->bearer);
    } else if (site->url.kind == STORE_HTTP && !direct) {
        (void)curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    }
    return done;
}

static void set_method(StoreConnection *connection, const StoreExchange *exchange,
                       struct curl_slist **headers)
{
    CURL *curl = connection->curl;
    char range[64];
    if (strcmp(exchange->method, "PUT") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_body);
        (void)curl_easy_setopt(curl, CURLOPT_READDATA, connection);
        (void)curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, rewind_body);
        (void)curl_easy_setopt(curl, CURLOPT_SEEKDATA, connection);
        (void)curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)exchange->body_bytes);
        (void)curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
        /* A header "Expect:", which would turn it off, would be signed and not sent. */
        (void)curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, 200L);
    } else if (strcmp(exchange->method, "POST") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->body_bytes);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, exchange->body ? exchange->body : "");
        if (!exchange->headers)
            (void)add_header(headers, "Content-Type", "application/xml");
    } else if (strcmp(exchange->method, "GET") != 0) {
        (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, exchange->method);
    } else if (exchange->range_bytes) {
        (void)snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, exchange->range_first,
                       exchange->range_first + exchange->range_bytes - 1);
        (void)curl_easy_setopt(curl, CURLOPT_RANGE, range); /* is copied */
    }
}

static void set_rest(StoreConnection *connection, const StoreExchange *exchange)
{
    CURL *curl = connection->curl;
    const bool plain = exchange->site->url.kind == STORE_HTTP && !exchange->direct;
    if (exchange->direct && !exchange->by_proxy)
        (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    const bool secure = strncmp(exchange->url, "https:", 6) == 0;
    (void)curl_easy_setopt(curl, CURLOPT_URL, exchange->url);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, connection->error);
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "fshard/" FSHARD_VERSION);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    /* A signature is for one host. Nobody is led from https to http. */
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, plain ? 1L : 0L);
    (void)curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
    (void)curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    /* Several connections carry more than several streams of one. */
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)CURL_MAX_READ_SIZE);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(exchange->stall_seconds * 1000));
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, connection);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, connection);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, connection);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

static void perform(StoreConnection *connection, StoreExchange *exchange)
{
    struct curl_slist *headers = NULL;
    *connection = (StoreConnection){.curl = connection->curl, .exchange = exchange};
    exchange->told_bytes = UINT64_MAX;
    curl_easy_reset(connection->curl); /* keeps the connection */
    if (!set_credentials(connection->curl, exchange->site, exchange->direct, &headers) ||
        !add_lines(&headers, exchange->headers)) {
        (void)snprintf(exchange->failure, sizeof exchange->failure, "out of memory");
        goto done;
    }
    set_method(connection, exchange, &headers);
    set_rest(connection, exchange);
    (void)curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_easy_perform(connection->curl);
    (void)curl_easy_getinfo(connection->curl, CURLINFO_RESPONSE_CODE, &exchange->status);
    exchange->finished = code == CURLE_OK;
    const bool ours =
        connection->sink_failed || connection->stopped || exchange->unasked || exchange->changed;
    if (code != CURLE_OK && !ours) {
        const char *why = *connection->error ? connection->error : curl_easy_strerror(code);
        exchange->transient = connection->stalled || is_transient(code);
        exchange->unknown_host = code == CURLE_COULDNT_RESOLVE_HOST && is_unknown_host(exchange->url);
        if (connection->stalled)
            (void)snprintf(exchange->failure, sizeof exchange->failure,
                           "the connection stalled: less than 1 KiB/s for %.0f s", exchange->stall_seconds);
        else
            (void)snprintf(exchange->failure, sizeof exchange->failure, "%s", why);
    }
done:
    curl_slist_free_all(headers);
    connection->exchange = NULL;
}

static FshStatus open_connection(StoreConnection **connection, FshError *error)
{
    *connection = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "libcurl does not start");
    StoreConnection *opened = calloc(1, sizeof *opened);
    if (opened)
        opened->curl = curl_easy_init();
    if (!opened || !opened->curl) {
        free(opened);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    *connection = opened;
    return FSH_OK;
}

static void close_connection(StoreConnection **connection)
{
    if (*connection)
        curl_easy_cleanup((*connection)->curl);
    free(*connection);
    *connection = NULL;
}

FSH_API const StorePlugin fshard_store_plugin = {
    STORE_PLUGIN_HERE,         .open = open_connection,        .perform = perform,
    .close = close_connection, .sign_rs256 = store_sign_rs256, .sha1 = store_sha1};
