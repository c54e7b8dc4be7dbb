#include "trainer/report/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/csv.h"
#include "common/file.h"
#include "common/json_text.h"
#include "formats/fshard.h"

const char record_best_name[] = "model_best.safetensors";
const char record_link_name[] = "model.safetensors";
const char record_last_name[] = "last.safetensors";
const char record_average_name[] = "model_ema.safetensors";
const char record_checkpoint_name[] = "checkpoint.safetensors";
const char record_diverged_name[] = "diverged.safetensors";
const char record_profile_name[] = "PROFILE.txt";
const char record_lock_name[] = ".ftrain-lock";
static const char arguments_name[] = "args.json";
static const char summary_name[] = "summary.csv";
const char record_metrics_name[] = "metrics.jsonl";
const char record_classes_name[] = "per_class.csv";
const char record_best_classes_name[] = "per_class_best.csv";
const char record_average_classes_name[] = "per_class_ema.csv";

/* The files that a run leaves, as patterns of fnmatch(3). */
static const char *const file_patterns[] = {
    "model_best.safetensors",
    "last.safetensors",
    "model_ema.safetensors",
    "checkpoint.safetensors",
    "checkpoint-[0-9]*.safetensors",
    "diverged.safetensors",
    "diverged.json",
    "PROFILE.txt",
    "args.json",
    "summary.csv",
    "metrics.jsonl",
    "per_class.csv",
    "per_class_best.csv",
    "per_class_ema.csv",
    "config.json",
    "model.safetensors",
    "report.html",
    "events.out.tfevents.*",
};

static bool is_of_a_run(const char *name)
{
    for (size_t i = 0; i < sizeof file_patterns / sizeof *file_patterns; i++)
        if (fnmatch(file_patterns[i], name, 0) == 0)
            return true;
    return false;
}

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return file_join(path, sizeof path, folder, name, NULL) || file_exists(path); /* too long a path counts as
                                                                                   * there, to be safe */
}

/* Returns whether the name is that of weights or a checkpoint, and the file is there. Earlier versions made
 * model.safetensors at the beginning, as a link to a file that came later. */
static bool is_saved_state(const char *folder, const char *name)
{
    return fnmatch("*.safetensors", name, 0) == 0 && is_there(folder, name);
}

/* Names found in a folder, one of each kind: any entry, a file that no run of ours leaves, weights or a
 * checkpoint. "": none. */
typedef struct Holdings {
    char any[NAME_MAX + 1], foreign[NAME_MAX + 1], state[NAME_MAX + 1];
} Holdings;

static bool look_into(const char *folder, Holdings *holdings)
{
    DIR *entries = opendir(folder);
    *holdings = (Holdings){0};
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, record_lock_name) == 0)
            continue;
        (void)snprintf(holdings->any, sizeof holdings->any, "%s", name);
        if (!is_of_a_run(name) && (!holdings->foreign[0] || !file_is_temporary_name(name)))
            (void)snprintf(holdings->foreign, sizeof holdings->foreign, "%s", name);
        if (is_saved_state(folder, name))
            (void)snprintf(holdings->state, sizeof holdings->state, "%s", name);
    }
    if (entries)
        (void)closedir(entries);
    return entries != NULL;
}

/* Returns whether args.json is one of ours: other programs have files of that name too. */
static bool has_our_arguments(const char *folder)
{
    char path[PATH_MAX];
    if (file_join(path, sizeof path, folder, arguments_name, NULL))
        return false;
    enum { ARGUMENTS_BYTES_MAX = 1 << 20 };
    json_t *object = json_file_load(path, ARGUMENTS_BYTES_MAX);
    const bool ours = json_is_string(json_object_get(object, "version")) &&
                      json_is_object(json_object_get(object, "chosen"));
    json_decref(object);
    return ours;
}

bool record_has_lock(const char *folder)
{
    return is_there(folder, record_lock_name);
}

bool record_has_only_begun(const char *folder)
{
    Holdings holdings;
    (void)file_remove_stale_temporaries(folder);
    return look_into(folder, &holdings) && !holdings.foreign[0] && !holdings.state[0] &&
           (!holdings.any[0] || has_our_arguments(folder));
}

bool record_may_begin_again(const char *folder)
{
    Holdings holdings;
    return look_into(folder, &holdings) && !is_there(folder, record_checkpoint_name) &&
           (!holdings.foreign[0] || file_is_temporary_name(holdings.foreign)) &&
           (!holdings.any[0] || has_our_arguments(folder));
}

uint64_t record_held_bytes(const char *folder)
{
    enum { BLOCK_BYTES = 512 }; /* of st_blocks */
    uint64_t bytes = 0;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        struct stat file;
        if (is_of_a_run(entry->d_name) && fnmatch("*.safetensors", entry->d_name, 0) == 0 &&
            strcmp(entry->d_name, record_diverged_name) != 0 && /* it stays when the run goes on */
            fstatat(dirfd(entries), entry->d_name, &file, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(file.st_mode) && file.st_nlink == 1)
            bytes += (uint64_t)file.st_blocks * BLOCK_BYTES;
    }
    if (entries)
        (void)closedir(entries);
    return bytes;
}

FshStatus record_check_folder(const char *folder, bool force, FshError *error)
{
    Holdings holdings;
    if (!file_exists(folder))
        return FSH_OK;
    if (!file_is_folder(folder))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: is a file; the output must be a folder", folder);
    if (is_there(folder, FSH_MANIFEST_NAME)) /* --force does not mean that: the output was left out */
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: it is a dataset, not an output folder; the order is ftrain SHARDS OUTPUT",
                             folder);
    if (force)
        return FSH_OK;
    if (!look_into(folder, &holdings))
        return fsh_error_system(error, errno, "%s: cannot be read", folder);
    if (!holdings.any[0])
        return FSH_OK;
    if (holdings.state[0] && !holdings.foreign[0] && !is_there(folder, record_checkpoint_name))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: holds weights (%s), but no checkpoint to go on from; choose another output "
                             "folder, or use --force, which replaces them",
                             folder, holdings.state);
    const bool goes_on = is_there(folder, record_checkpoint_name);
    if (has_our_arguments(folder) && (goes_on || (!holdings.state[0] && !holdings.foreign[0])))
        return fsh_error_set(
            error, FSH_ERR_EXISTS,
            "%s: exists and is not empty: it holds a run; --resume auto %s; or choose another "
            "output folder, or use --force, which replaces the run",
            folder, goes_on ? "goes on with it" : "begins it again, for nothing was saved before it stopped");
    return fsh_error_set(error, FSH_ERR_EXISTS,
                         "%s: exists and is not empty (%s); choose another output folder, or use --force",
                         folder, holdings.foreign[0] ? holdings.foreign : holdings.any);
}

FshStatus record_path(const Record *record, char *buffer, size_t buffer_bytes, const char *name,
                      FshError *error)
{
    return file_join(buffer, buffer_bytes, record->folder, name, error);
}

static FshStatus remove_file(const Record *record, const char *name, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = record_path(record, path, sizeof path, name, error);
    if (!status && unlink(path) && errno != ENOENT)
        status = fsh_error_system(error, errno, "%s: cannot remove", path);
    return status;
}

/* Removes the files of an earlier run, so that an interrupted second run is never taken for a mixture of
 * both. args.json goes last: it marks the rest as a run's. */
static FshStatus remove_earlier(const Record *record, FshError *error)
{
    FshStatus status = FSH_OK;
    DIR *entries = opendir(record->folder);
    if (!entries)
        return fsh_error_system(error, errno, "%s: cannot open", record->folder);
    for (struct dirent *entry = readdir(entries); entry && !status; entry = readdir(entries))
        if (is_of_a_run(entry->d_name) && strcmp(entry->d_name, arguments_name) != 0)
            status = remove_file(record, entry->d_name, error);
    (void)closedir(entries);
    return status ? status : remove_file(record, arguments_name, error);
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

/* Appends all of the text or nothing: half a row would spoil the next one too. */
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
                (void)!ftruncate(descriptor, before); /* the failure is reported already */
            return status;
        }
        done += (size_t)written;
    }
    return FSH_OK;
}

static FshStatus write_arguments(const Record *record, const char *arguments_json, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = record_path(record, path, sizeof path, arguments_name, error);
    if (!status)
        status = file_write_atomic(path, arguments_json, strlen(arguments_json), true, true, error);
    return status;
}

static FshStatus open_tables(Record *record, FshError *error)
{
    FshStatus status = open_table(record, summary_name, &record->summary_descriptor, error);
    if (!status)
        status = open_table(record, record_metrics_name, &record->metrics_descriptor, error);
    return status;
}

static FshStatus take_folder(Record *record, const char *folder, const RecordShape *shape, FshError *error)
{
    *record = (Record)RECORD_NONE;
    record->shape = *shape;
    record->folder = strdup(folder);
    return record->folder ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
}

/* The columns that follow eval_loss. */
typedef struct Columns {
    Metric metrics[2];
    size_t count;
} Columns;

static Columns columns_of(const RecordShape *shape)
{
    switch (shape->main_metric) {
    case METRIC_PSNR:
        return (Columns){{METRIC_PSNR, METRIC_SSIM}, 2};
    case METRIC_MAP:
        return (Columns){{METRIC_MAP, METRIC_F1}, 2};
    case METRIC_MIOU:
        return (Columns){{METRIC_MIOU, METRIC_PIXEL_ACCURACY}, 2};
    case METRIC_MAE:
        return (Columns){{METRIC_MAE, METRIC_RMSE}, 2};
    default:
        return (Columns){{METRIC_TOP1, METRIC_TOP5}, 2};
    }
}

/* Appends ",eval_top1/NAME" for loss and columns of each set, or the values; metrics NULL: none. */
static FshStatus append_sets(Buffer *row, const RecordShape *shape, const char *prefix,
                             const Metrics *metrics, bool values, FshError *error)
{
    const Columns columns = columns_of(shape);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < shape->set_count && shape->sets && !status; i++)
        for (size_t k = 0; k <= columns.count && !status; k++) {
            const Metric metric = k ? columns.metrics[k - 1] : METRIC_LOSS;
            char text[PATH_MAX + 64] = "";
            if (!values)
                (void)snprintf(text, sizeof text, "%s%s/%s", prefix, metric_names[metric], shape->sets[i]);
            else if (metrics && metrics[i].count)
                (void)snprintf(text, sizeof text, "%.6g", metrics_value(&metrics[i], metric));
            status = buffer_append_text(row, ",", error);
            status = status ? status : csv_append_text(row, text, strlen(text), error);
        }
    return status;
}

/* Appends a row of summary.csv to the file, and what the sets add to it; report NULL: the head. */
static FshStatus append_row(const Record *record, const char *row, const EpochReport *report, FshError *error)
{
    const bool values = report != NULL;
    const Metrics *trained = values && report->evaluated ? report->set_evaluation : NULL,
                  *average = values && report->averaged ? report->set_average : NULL;
    Buffer whole = {0};
    FshStatus status = buffer_append_text(&whole, row, error);
    if (!status)
        status = append_sets(&whole, &record->shape, "eval_", trained, values, error);
    if (!status && record->shape.averaged)
        status = append_sets(&whole, &record->shape, "ema_", average, values, error);
    if (!status)
        status = buffer_append(&whole, "\n", 2, error); /* with the NUL */
    if (!status)
        status = append(record, record->summary_descriptor, summary_name, (const char *)whole.bytes, error);
    buffer_free(&whole);
    return status;
}

static FshStatus write_head(const Record *record, FshError *error)
{
    const Columns columns = columns_of(&record->shape);
    char row[256];
    size_t length = (size_t)snprintf(row, sizeof row, "epoch,%stime,train_loss,eval_loss",
                                     record->shape.iterations ? "iteration," : "");
    for (size_t i = 0; i < columns.count; i++)
        length +=
            (size_t)snprintf(row + length, sizeof row - length, ",eval_%s", metric_names[columns.metrics[i]]);
    length += (size_t)snprintf(row + length, sizeof row - length, ",lr");
    for (size_t i = 0; record->shape.averaged && i < columns.count; i++)
        length +=
            (size_t)snprintf(row + length, sizeof row - length, ",ema_%s", metric_names[columns.metrics[i]]);
    return append_row(record, row, NULL, error);
}

FshStatus record_open(Record *record, const char *folder, bool force, const RecordShape *shape,
                      const char *arguments_json, FshError *error)
{
    *record = (Record)RECORD_NONE;
    FshStatus status = record_check_folder(folder, force, error);
    if (status)
        return status;
    const bool existed = file_exists(folder);
    status = take_folder(record, folder, shape, error);
    if (status)
        return status;
    status = file_make_folders(folder, error);
    if (!status)
        (void)file_remove_stale_temporaries(folder);
    if (!status && force)
        status = remove_earlier(record, error);
    if (!status)
        status = write_arguments(record, arguments_json, error);
    if (!status)
        status = open_tables(record, error);
    if (!status)
        status = write_head(record, error);
    if (status) {
        (void)remove_earlier(record, NULL); /* leave nothing half-made */
        if (!existed)
            (void)rmdir(folder);
        record_close(record);
    }
    return status;
}

/* ---- resuming ---- */

/* Returns whether a row of metrics.jsonl is from before the checkpoint. */
static bool object_stays(const char *row, size_t length, uint64_t epoch, uint64_t step)
{
    json_t *object = json_loadb(row, length, 0, NULL);
    const uint64_t its_epoch = (uint64_t)json_integer_value(json_object_get(object, "epoch"));
    const json_t *its_step = json_object_get(object, "step");
    const bool stays = object && (its_epoch < epoch || (its_epoch == epoch && its_step &&
                                                        (uint64_t)json_integer_value(its_step) < step));
    json_decref(object);
    return stays;
}

/* Returns whether a row of summary.csv is from before the checkpoint: the head, or a finished epoch. */
static bool row_stays(const char *row, size_t length, uint64_t epoch, uint64_t step)
{
    char *end = NULL;
    (void)length;
    (void)step;
    const unsigned long long its_epoch = strtoull(row, &end, 10);
    return end == row || its_epoch < epoch;
}

static FshStatus keep_rows(const Record *record, const char *name, uint64_t epoch, uint64_t step,
                           bool (*stays)(const char *row, size_t length, uint64_t epoch, uint64_t step),
                           FshError *error)
{
    char path[PATH_MAX];
    Buffer whole = {0}, kept = {0};
    FshStatus status = record_path(record, path, sizeof path, name, error);
    if (!status && file_exists(path))
        status = file_read(path, &whole, error);
    if (!status)
        status = buffer_append(&whole, "", 1, error); /* ends the text for strtoull */
    const char *at = (const char *)whole.bytes, *end = status ? at : at + whole.length - 1;
    while (!status && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t length = newline ? (size_t)(newline - at) + 1 : (size_t)(end - at);
        if (newline && stays(at, length, epoch, step)) /* half a row at the end is dropped */
            status = buffer_append(&kept, at, length, error);
        at += length;
    }
    if (!status)
        status = file_write_atomic(path, kept.bytes, kept.length, true, true, error);
    buffer_free(&whole);
    buffer_free(&kept);
    return status;
}

FshStatus record_resume(Record *record, const char *folder, const RecordShape *shape,
                        const char *arguments_json, uint64_t epoch, uint64_t step, FshError *error)
{
    FshStatus status = take_folder(record, folder, shape, error);
    if (!status)
        status = file_make_folders(folder, error);
    if (!status)
        (void)file_remove_stale_temporaries(folder);
    if (!status)
        status = write_arguments(record, arguments_json, error);
    if (!status)
        status = keep_rows(record, summary_name, epoch, step, row_stays, error);
    if (!status)
        status = keep_rows(record, record_metrics_name, epoch, step, object_stays, error);
    if (!status)
        status = open_tables(record, error);
    /* The checkpoint is from another folder, or the table was lost. */
    if (!status && lseek(record->summary_descriptor, 0, SEEK_END) == 0)
        status = write_head(record, error);
    if (status)
        record_close(record);
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

/* Appends the object as a row, and releases it in any case. */
static FshStatus append_object(const Record *record, json_t *object, FshError *error)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    size_t length = text ? strlen(text) : 0;
    char *row = text ? realloc(text, length + 2) : NULL;
    if (!row) {
        free(text);
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s/%s: out of memory", record->folder,
                             record_metrics_name);
    }
    memcpy(row + length, "\n", 2);
    FshStatus status = append(record, record->metrics_descriptor, record_metrics_name, row, error);
    free(row);
    return status;
}

/* Sets a number; one that is not finite becomes null, since JSON has no other word for it. Returns false
 * without memory. */
static bool set_number(json_t *object, const char *prefix, const char *name, double value)
{
    char key[PATH_MAX + 64];
    (void)snprintf(key, sizeof key, "%s%s", prefix, name);
    return json_object_set_new(object, key, json_number(value)) == 0;
}

/* Sets the metrics; of: the set that they are of, whose name follows theirs, or NULL. */
static bool set_metrics(json_t *object, const char *prefix, const char *of, const Metrics *metrics)
{
    char name[PATH_MAX + 32];
    bool set = true;
    for (int i = 0; i < METRIC_COUNT && set; i++) {
        (void)snprintf(name, sizeof name, "%s%s%s", metric_names[i], of ? "/" : "", of ? of : "");
        if (metrics_has(metrics, (Metric)i))
            set = set_number(object, prefix, name, metrics_value(metrics, (Metric)i));
    }
    return set;
}

static json_t *make_event(const char *event, uint64_t epoch)
{
    return json_pack("{s:s, s:I}", "event", event, "epoch", (json_int_t)epoch);
}

/* Adds the iterations done, where the run is counted in them. Returns false without memory. */
static bool set_iteration(json_t *object, uint64_t iteration)
{
    return !iteration || json_object_set_new(object, "iteration", json_integer((json_int_t)iteration)) == 0;
}

FshStatus record_step(Record *record, const StepReport *report, FshError *error)
{
    json_t *object = make_event("step", report->epoch);
    bool set = object && json_object_set_new(object, "step", json_integer((json_int_t)report->step)) == 0 &&
               set_iteration(object, report->iteration);
    set = set && set_metrics(object, "", NULL, &report->now);
    set = set && set_number(object, "", "lr", report->learning_rate);
    if (set && !isnan(report->gradient_norm))
        set = set_number(object, "", "gradient_norm", report->gradient_norm);
    set = set && set_number(object, "", "seconds", report->seconds_mean);
    set = set && set_number(object, "", "data_seconds", report->data_mean);
    set = set && set_number(object, "", "images_per_second", report->images_per_second);
    if (!set) {
        json_decref(object);
        object = NULL;
    }
    return append_object(record, object, error);
}

static FshStatus append_summary(const Record *record, const EpochReport *report, FshError *error)
{
    const Columns columns = columns_of(&record->shape);
    char row[512];
    size_t length = (size_t)snprintf(row, sizeof row, "%llu,", (unsigned long long)report->epoch);
    if (record->shape.iterations)
        length += (size_t)snprintf(row + length, sizeof row - length, "%llu,",
                                   (unsigned long long)report->iteration);
    length += (size_t)snprintf(row + length, sizeof row - length, "%.3f,%.6g,", report->seconds,
                               metrics_value(&report->train, METRIC_LOSS));
    if (report->evaluated)
        length += (size_t)snprintf(row + length, sizeof row - length, "%.6g",
                                   metrics_value(&report->evaluation, METRIC_LOSS));
    for (size_t i = 0; i < columns.count; i++) {
        length += (size_t)snprintf(row + length, sizeof row - length, ",");
        if (report->evaluated)
            length += (size_t)snprintf(row + length, sizeof row - length, "%.6g",
                                       metrics_value(&report->evaluation, columns.metrics[i]));
    }
    length += (size_t)snprintf(row + length, sizeof row - length, ",%.6g", report->learning_rate);
    for (size_t i = 0; record->shape.averaged && i < columns.count; i++) {
        length += (size_t)snprintf(row + length, sizeof row - length, ",");
        if (report->averaged)
            length += (size_t)snprintf(row + length, sizeof row - length, "%.6g",
                                       metrics_value(&report->average, columns.metrics[i]));
    }
    return append_row(record, row, report, error);
}

/* Sets the metrics of each set, "eval_top1/NAME". */
static bool set_metrics_of_sets(json_t *object, const RecordShape *shape, const char *prefix,
                                const Metrics *metrics)
{
    bool set = true;
    for (size_t i = 0; i < shape->set_count && shape->sets && metrics && set; i++)
        set = !metrics[i].count || set_metrics(object, prefix, shape->sets[i], &metrics[i]);
    return set;
}

static json_t *epoch_event(const RecordShape *shape, const EpochReport *report)
{
    char digest[17];
    json_t *object = make_event("epoch", report->epoch);
    bool set =
        object && set_iteration(object, report->iteration) && set_number(object, "", "time", report->seconds);
    set = set && set_metrics(object, "train_", NULL, &report->train);
    set = set && set_number(object, "", "lr", report->learning_rate);
    set = set && set_number(object, "", "images_per_second", report->images_per_second);
    set = set && set_number(object, "", "step_seconds", report->step_seconds);
    set = set && set_number(object, "", "loader_wait_seconds", report->loader_wait_seconds);
    set = set && set_number(object, "", "evaluation_seconds", report->evaluation_seconds);
    if (set && report->evaluated)
        set = set_metrics(object, "eval_", NULL, &report->evaluation);
    if (set && report->averaged)
        set = set_metrics(object, "ema_", NULL, &report->average);
    if (set && report->evaluated)
        set = set_metrics_of_sets(object, shape, "eval_", report->set_evaluation);
    if (set && report->averaged)
        set = set_metrics_of_sets(object, shape, "ema_", report->set_average);
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)report->order_digest);
    set = set && json_object_set_new(object, "image_size", json_integer(report->image_size)) == 0;
    set = set && json_object_set_new(object, "order_digest", json_string(digest)) == 0;
    if (set)
        return object;
    json_decref(object);
    return NULL;
}

FshStatus record_epoch(Record *record, const EpochReport *report, FshError *error)
{
    FshStatus status = append_summary(record, report, error);
    FshStatus second = append_object(record, epoch_event(&record->shape, report), status ? NULL : error);
    return status ? status : second;
}
