#include "stores/store_multipart.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/pool.h"

enum { ID_BYTES = 1024, TAG_BYTES = 160 };

typedef struct Sending {
    const StoreSite *site;
    StorePatience patience;
    const char *name;
    FileMapping mapping;
    char query_id[3 * ID_BYTES]; /* "uploadId=…", encoded */
    uint64_t part_bytes;
    char (*tags)[TAG_BYTES]; /* of each part, as the server gave it */
    StoreClient clients[STORE_UPLOAD_CONNECTIONS];
    _Atomic bool failed;
} Sending;

static bool others_failed(void *context)
{
    const Sending *sending = context;
    const StorePatience *given = &sending->patience;
    return atomic_load(&sending->failed) || (given->stopped && given->stopped(given->context));
}

static FshStatus send_part(uint64_t item, int thread, void *context, FshError *error)
{
    Sending *sending = context;
    StoreClient *client = &sending->clients[thread];
    StoreExchange exchange;
    char query[sizeof sending->query_id + 32];
    const uint64_t first = item * sending->part_bytes, left = sending->mapping.length - first;
    const size_t bytes = (size_t)(left < sending->part_bytes ? left : sending->part_bytes);
    FshStatus status = FSH_OK;
    if (!client->connection) {
        StorePatience patience = sending->patience;
        patience.stopped = others_failed;
        patience.context = sending;
        status = store_client_open(client, sending->site, &patience, error);
    }
    (void)snprintf(query, sizeof query, "partNumber=%" PRIu64 "&%s", item + 1, sending->query_id);
    if (!status)
        status = store_send(client, "PUT", sending->name, query, sending->mapping.bytes + first, bytes,
                            &exchange, error);
    if (!status && !*exchange.etag)
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "%s/%s: the server gives no ETag for part %" PRIu64,
                               sending->site->url.text, sending->name, item + 1);
    if (!status)
        (void)snprintf(sending->tags[item], TAG_BYTES, "%s", exchange.etag);
    /* Those that stop because another has failed have nothing to tell. */
    if (status == FSH_ERR_INTERRUPTED && atomic_load(&sending->failed) && !interrupt_requested())
        return FSH_OK;
    if (status)
        atomic_store(&sending->failed, true);
    return status;
}

enum { TAIL_BYTES = 128 };

static FshStatus take_tail(void *context, uint64_t position, const void *bytes, size_t length,
                           FshError *error)
{
    (void)error;
    memcpy((uint8_t *)context + position, bytes, length); /* no more than was asked for */
    return FSH_OK;
}

bool store_multipart_is_there(StoreClient *client, const FileMapping *mapping, const char *name)
{
    uint8_t tail[TAIL_BYTES];
    const uint64_t bytes = mapping->length < TAIL_BYTES ? mapping->length : TAIL_BYTES;
    const StoreGet get = {.name = name,
                          .first = mapping->length - bytes,
                          .bytes = bytes,
                          .file_bytes = mapping->length,
                          .sink = take_tail,
                          .context = tail};
    return bytes && store_get(client, &get, NULL, NULL) == FSH_OK &&
           memcmp(tail, mapping->bytes + get.first, (size_t)bytes) == 0;
}

/* Has the server put the parts together. */
static FshStatus complete(Sending *sending, StoreClient *client, uint64_t count, FshError *error)
{
    Buffer xml = {0};
    char line[TAG_BYTES + 96];
    FshError failure = {0};
    FshStatus status = buffer_append(&xml, "<CompleteMultipartUpload>", 25, error);
    for (uint64_t i = 0; i < count && !status; i++) {
        const int length =
            snprintf(line, sizeof line, "<Part><PartNumber>%" PRIu64 "</PartNumber><ETag>%s</ETag></Part>",
                     i + 1, sending->tags[i]);
        status = buffer_append(&xml, line, (size_t)length, error);
    }
    if (!status)
        status = buffer_append(&xml, "</CompleteMultipartUpload>", 26, error);
    if (!status)
        status = store_send(client, "POST", sending->name, sending->query_id, xml.bytes, xml.length, NULL,
                            &failure);
    buffer_free(&xml);
    /* The server may have put it together, and its answer been lost. */
    if (!failure.status || (failure.status == FSH_ERR_NOT_FOUND &&
                            store_multipart_is_there(client, &sending->mapping, sending->name)))
        return failure.status ? FSH_OK : status;
    return fsh_error_set(error, failure.status, "%s", failure.message);
}

/* Sets the query of an upload's id. */
static bool take_id(Sending *sending, const char *id)
{
    (void)snprintf(sending->query_id, sizeof sending->query_id, "uploadId=");
    return store_url_encode_value(sending->query_id, sizeof sending->query_id, id);
}

/* Ends the upload of the query, and waits not long for it; also after an interrupt. */
static FshStatus end_upload(const Sending *sending, const StorePatience *patience)
{
    StoreClient client = {0};
    const StorePatience short_one = {.retries = 1,
                                     .stall_seconds =
                                         patience->stall_seconds < 10 ? patience->stall_seconds : 10,
                                     .regardless = true};
    FshStatus status = store_client_open(&client, sending->site, &short_one, NULL);
    if (!status)
        status = store_send(&client, "DELETE", sending->name, sending->query_id, NULL, 0, NULL, NULL);
    store_client_close(&client);
    return status == FSH_ERR_NOT_FOUND ? FSH_OK : status;
}

/* Begins an upload in parts, and notes its id; one whose id cannot be noted is ended again. */
static FshStatus begin(Sending *sending, StoreClient *client, const char *id_path, FshError *error)
{
    StoreExchange exchange;
    char id[ID_BYTES];
    FshStatus status = store_send(client, "POST", sending->name, "uploads=", NULL, 0, &exchange, error);
    if (status)
        return status;
    if (!store_xml_text(exchange.text, "UploadId", id, sizeof id) || !take_id(sending, id))
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s/%s: the server gives no UploadId",
                             sending->site->url.text, sending->name);
    status = file_write_atomic(id_path, id, strlen(id), true, true, error);
    if (status)
        (void)end_upload(sending, &sending->patience);
    return status;
}

static FshStatus send_parts(Sending *sending, StoreClient *client, const char *id_path, FshError *error)
{
    const uint64_t bytes = sending->mapping.length;
    sending->part_bytes = STORE_UPLOAD_PART_BYTES;
    while (bytes / sending->part_bytes >= STORE_UPLOAD_PARTS_MAX)
        sending->part_bytes *= 2;
    const uint64_t count = (bytes + sending->part_bytes - 1) / sending->part_bytes;
    const int jobs = count < STORE_UPLOAD_CONNECTIONS ? (int)count : STORE_UPLOAD_CONNECTIONS;
    sending->tags = calloc(count, sizeof *sending->tags);
    if (!sending->tags)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = begin(sending, client, id_path, error);
    if (!status)
        status = pool_run(jobs, count, send_part, sending, error);
    for (int i = 0; i < STORE_UPLOAD_CONNECTIONS; i++)
        store_client_close(&sending->clients[i]);
    if (!status)
        status = complete(sending, client, count, error);
    free(sending->tags);
    if (status)
        store_multipart_abort(sending->site, &sending->patience, sending->name, id_path);
    else
        (void)unlink(id_path);
    return status;
}

FshStatus store_multipart_send(const StoreSite *site, const StorePatience *patience, const char *path,
                               const char *name, const char *id_path, FshError *error)
{
    StoreClient client = {0};
    Sending *sending = calloc(1, sizeof *sending);
    if (!sending)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    *sending = (Sending){.site = site, .patience = *patience, .name = name};
    store_multipart_abort(site, patience, name, id_path);
    FshStatus status = file_map(path, &sending->mapping, error);
    if (!status)
        status = store_client_open(&client, site, patience, error);
    if (!status)
        status = sending->mapping.length <= STORE_UPLOAD_PART_BYTES
                     ? store_send(&client, "PUT", name, "", sending->mapping.bytes,
                                  (size_t)sending->mapping.length, NULL, error)
                     : send_parts(sending, &client, id_path, error);
    store_client_close(&client);
    file_unmap(&sending->mapping);
    free(sending);
    return status;
}

void store_multipart_abort(const StoreSite *site, const StorePatience *patience, const char *name,
                           const char *id_path)
{
    Buffer id = {0};
    Sending *sending = NULL;
    if (!file_exists(id_path) || !(sending = calloc(1, sizeof *sending)))
        return;
    *sending = (Sending){.site = site, .name = name};
    FshStatus status = file_read_most(id_path, ID_BYTES - 1, &id, NULL);
    if (!status)
        status = buffer_append(&id, "", 1, NULL);
    if (!status && take_id(sending, (const char *)id.bytes))
        status = end_upload(sending, patience);
    if (!status) /* else the next one tries again */
        (void)unlink(id_path);
    buffer_free(&id);
    free(sending);
}
