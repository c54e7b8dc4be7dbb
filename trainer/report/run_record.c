#include "trainer/report/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/fshard.h"

const char record_best_name[] = "model_best.safetensors";
const char record_last_name[] = "last.safetensors";
static const char arguments_name[] = "args.json";
static const char summary_name[] = "summary.csv";
static const char metrics_name[] = "metrics.jsonl";

static const char *const file_names[] = {record_best_name, record_last_name, arguments_name, summary_name,
                                         metrics_name};

static bool is_empty_folder(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return false;
    size_t count = 0;
    while (readdir(entries))
        count++;
    (void)closedir(entries);
    return count <= 2; /* . and .. */
}

FshStatus record_check_folder(const char *folder, bool force, FshError *error)
{
    if (!file_exists(folder))
        return FSH_OK;
    if (!file_is_folder(folder))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: is a file; the output must be a folder", folder);
    char manifest[PATH_MAX];
    if (!force && !file_join(manifest, sizeof manifest, folder, FSH_MANIFEST_NAME, NULL) &&
        file_exists(manifest))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: it is a dataset, not an output folder; the order is ftrain SHARDS OUTPUT",
                             folder);
    if (!force && !is_empty_folder(folder))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: exists and is not empty; choose another output folder, or use --force",
                             folder);
    return FSH_OK;
}

FshStatus record_path(const Record *record, char *buffer, size_t buffer_bytes, const char *name,
                      FshError *error)
{
    return file_join(buffer, buffer_bytes, record->folder, name, error);
}

/* So that an interrupted second run is never taken for a mixture of both. */
static FshStatus remove_earlier(const Record *record, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < sizeof file_names / sizeof *file_names; i++) {
        char path[PATH_MAX];
        status = record_path(record, path, sizeof path, file_names[i], error);
        if (!status && unlink(path) && errno != ENOENT)
            status = fsh_error_system(error, errno, "%s: cannot remove", path);
    }
    return status;
}

static FshStatus open_table(const Record *record, const char *name, int *descriptor_ret, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = record_path(record, path, sizeof path, name, error);
    if (status)
        return status;
    *descriptor_ret = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (*descriptor_ret < 0)
        return fsh_error_system(error, errno, "%s: cannot create", path);
    return FSH_OK;
}

/* All of it or nothing: a row cut in half would spoil the next one too. */
static FshStatus append(const Record *record, int descriptor, const char *name, const char *text,
                        FshError *error)
{
    size_t length = strlen(text), done = 0;
    off_t before = lseek(descriptor, 0, SEEK_END);
    while (done < length) {
        ssize_t written = write(descriptor, text + done, length - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            FshStatus status = fsh_error_system(error, errno, "%s/%s: cannot write", record->folder, name);
            if (before >= 0 && done > 0)
                (void)!ftruncate(descriptor, before); /* the failure is told already */
            return status;
        }
        done += (size_t)written;
    }
    return FSH_OK;
}

FshStatus record_open(Record *record, const char *folder, bool force, const char *arguments_json,
                      FshError *error)
{
    *record = (Record)RECORD_NONE;
    char path[PATH_MAX];
    FshStatus status = record_check_folder(folder, force, error);
    if (status)
        return status;
    bool existed = file_exists(folder);
    record->folder = strdup(folder);
    if (!record->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    status = file_make_folders(folder, error);
    if (!status)
        (void)file_remove_stale_temporaries(folder);
    if (!status && force)
        status = remove_earlier(record, error);
    if (!status)
        status = record_path(record, path, sizeof path, arguments_name, error);
    if (!status)
        status = file_write_atomic(path, arguments_json, strlen(arguments_json), false, true, error);
    if (!status)
        status = open_table(record, summary_name, &record->summary_descriptor, error);
    if (!status)
        status = open_table(record, metrics_name, &record->metrics_descriptor, error);
    if (!status)
        status = append(record, record->summary_descriptor, summary_name,
                        "epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n", error);
    if (status) {
        (void)remove_earlier(record, NULL); /* nothing half-made stays */
        if (!existed)
            (void)rmdir(folder);
        record_close(record);
    }
    return status;
}

void record_close(Record *record)
{
    if (record->summary_descriptor >= 0)
        (void)close(record->summary_descriptor);
    if (record->metrics_descriptor >= 0)
        (void)close(record->metrics_descriptor);
    free(record->folder);
    *record = (Record)RECORD_NONE;
}

/* Takes the object. */
static FshStatus append_object(const Record *record, json_t *object, FshError *error)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    size_t length = text ? strlen(text) : 0;
    char *row = text ? realloc(text, length + 2) : NULL;
    if (!row) {
        free(text);
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s/%s: out of memory", record->folder, metrics_name);
    }
    memcpy(row + length, "\n", 2);
    FshStatus status = append(record, record->metrics_descriptor, metrics_name, row, error);
    free(row);
    return status;
}

typedef struct NamedNumber {
    const char *name;
    double value;
} NamedNumber;

/* An event with its place and its numbers; what is not finite becomes null, which is all that JSON knows. */
static json_t *make_event(const char *event, uint64_t epoch, const NamedNumber *numbers, size_t count)
{
    json_t *object = json_object();
    int failed = json_object_set_new(object, "event", json_string(event));
    failed |= json_object_set_new(object, "epoch", json_integer((json_int_t)epoch));
    for (size_t i = 0; i < count; i++) {
        double value = numbers[i].value;
        failed |=
            json_object_set_new(object, numbers[i].name, isfinite(value) ? json_real(value) : json_null());
    }
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

FshStatus record_step(Record *record, const StepReport *report, FshError *error)
{
    const NamedNumber numbers[] = {
        {"loss", report->loss_now},
        {"top1", report->top1_now},
        {"top5", report->top5_now},
        {"lr", report->learning_rate},
        {"seconds", report->seconds_mean},
        {"data_seconds", report->data_mean},
        {"images_per_second", report->images_per_second},
    };
    json_t *object = make_event("step", report->epoch, numbers, sizeof numbers / sizeof *numbers);
    if (object)
        (void)json_object_set_new(object, "step", json_integer((json_int_t)report->step));
    return append_object(record, object, error);
}

static FshStatus append_summary(const Record *record, const EpochReport *report, FshError *error)
{
    char row[256], evaluation[96] = ",,";
    if (report->evaluated)
        (void)snprintf(evaluation, sizeof evaluation, "%.6g,%.6g,%.6g", report->eval_loss, report->eval_top1,
                       report->eval_top5);
    (void)snprintf(row, sizeof row, "%llu,%.3f,%.6g,%s,%.6g\n", (unsigned long long)report->epoch,
                   report->seconds, report->train_loss, evaluation, report->learning_rate);
    return append(record, record->summary_descriptor, summary_name, row, error);
}

FshStatus record_epoch(Record *record, const EpochReport *report, FshError *error)
{
    enum { TRAIN_NUMBERS = 7 };
    const NamedNumber numbers[] = {
        {"time", report->seconds},
        {"train_loss", report->train_loss},
        {"train_top1", report->train_top1},
        {"train_top5", report->train_top5},
        {"lr", report->learning_rate},
        {"images_per_second", report->images_per_second},
        {"loader_wait_seconds", report->loader_wait_seconds},
        {"eval_loss", report->eval_loss},
        {"eval_top1", report->eval_top1},
        {"eval_top5", report->eval_top5},
    };
    size_t count = report->evaluated ? sizeof numbers / sizeof *numbers : TRAIN_NUMBERS;
    char digest[17];
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)report->order_digest);
    json_t *object = make_event("epoch", report->epoch, numbers, count);
    if (object)
        (void)json_object_set_new(object, "order_digest", json_string(digest));
    FshStatus status = append_summary(record, report, error);
    FshStatus second = append_object(record, object, status ? NULL : error);
    return status ? status : second;
}
