#include "trainer/loop/predict.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/csv.h"
#include "common/file.h"
#include "common/folder_lock.h"
#include "common/path.h"
#include "common/text.h"
#include "imaging/encode.h"
#include "trainer/report/class_rows.h"
#include "trainer/report/run_record.h"

enum { CSVS = 2 };

struct Predictor {
    const Session *session;
    char *folder; /* for images; NULL: none */
    AtomicFile csvs[CSVS];
    size_t csv_count;
    bool force;
    FolderLock lock;   /* on folder */
    ClassRows classes; /* of classifiers; unused for pairs */
    Buffer row, png;
    ImageEncoder *encoder;
    Image image;
};

/* ---- rows ---- */

FSH_PRINTF(3, 4) static FshStatus add(Predictor *predictor, FshError *error, const char *format, ...);

static FshStatus add(Predictor *predictor, FshError *error, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return buffer_append(&predictor->row, text, length < 0 ? 0 : (size_t)length, error);
}

static FshStatus write_row(Predictor *predictor, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < predictor->csv_count; i++)
        status = atomic_file_write(&predictor->csvs[i], predictor->row.bytes, predictor->row.length, error);
    predictor->row.length = 0;
    return status;
}

/* ---- classes ---- */

static FshStatus write_class(Predictor *predictor, const Batch *batch, const Evaluated *evaluated, int64_t i,
                             FshError *error)
{
    size_t key_bytes = 0;
    const char *key = session_key(predictor->session->data.evaluation, batch->samples[i], &key_bytes);
    const int64_t classes = predictor->classes.classes;
    const RowTruth truth = {.label = batch->labels ? batch->labels[i] : FSH_NO_LABEL,
                            .targets = batch->targets ? batch->targets + i * classes : NULL};
    FshStatus status = class_rows_add(&predictor->classes, key, key_bytes, &truth,
                                      evaluated->output + i * classes, &predictor->row, error);
    return status ? status : write_row(predictor, error);
}

/* ---- pairs ---- */

/* Writes the path of an image, KEY.WHAT.png or, where what is "", KEY.png, to `path`. Keys may be
 * hostile: FSH_ERR_UNSUPPORTED if one names a place outside the folder. */
static FshStatus image_path(const Predictor *predictor, const char *key, const char *what, char *path,
                            size_t path_bytes, FshError *error)
{
    char name[PATH_MAX];
    if (!*key || *key == '/' || path_goes_up(key))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: '%s' is no name for a file in it",
                             predictor->folder, key);
    if ((size_t)snprintf(name, sizeof name, "%s%s%s.png", key, *what ? "." : "", what) >= sizeof name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", key);
    return file_join(path, path_bytes, predictor->folder, name, error);
}

static FshStatus write_image(Predictor *predictor, const char *key, const char *what, const uint8_t *pixels,
                             const Batch *batch, uint32_t channels, FshError *error)
{
    char path[PATH_MAX];
    const ImageEncodeOptions options = {.format = IMAGE_PNG};
    FshStatus status = image_path(predictor, key, what, path, sizeof path, error);
    if (!status)
        status = file_make_parent_folders(path, error);
    if (!status)
        status = image_reserve(&predictor->image, batch->width, batch->height, channels, error);
    if (status)
        return status;
    memcpy(predictor->image.pixels, pixels, (size_t)batch->width * batch->height * channels);
    if (plan_is_masks(&predictor->session->plan)) {
        uint8_t colours[MASK_COLOURS_BYTES];
        const MaskFormat format = mask_voc_format(colours);
        status = image_encode_mask(predictor->encoder, &predictor->image, &format, &predictor->png, error);
    } else {
        status = image_encode(predictor->encoder, &predictor->image, &options, &predictor->png, error);
    }
    if (status)
        return fsh_error_prepend(error, "%s", path);
    return file_write_atomic(path, predictor->png.bytes, predictor->png.length, predictor->force, false,
                             error);
}

static FshStatus write_pair(Predictor *predictor, const Batch *batch, const Evaluated *evaluated,
                            FshError *error)
{
    const uint32_t channels = predictor->session->data.channels;
    size_t key_bytes = 0;
    const char *key = session_key(predictor->session->data.evaluation, batch->samples[0], &key_bytes);
    char *name = text_copy(key, key_bytes);
    if (!name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = FSH_OK;
    if (predictor->folder) {
        status = write_image(predictor, name, "restored", evaluated->restored, batch, channels, error);
        if (!status)
            status = write_image(predictor, name, "input", batch->pixels, batch, channels, error);
    }
    if (!status)
        status = csv_append_text(&predictor->row, key, key_bytes, error);
    predictor->classes.formulas += csv_is_formula(key, key_bytes);
    if (!status)
        status = add(predictor, error, ",%.4f,%.6f,%.4f\n", evaluated->psnr, evaluated->ssim,
                     evaluated->input_psnr);
    free(name);
    return status ? status : write_row(predictor, error);
}

/* ---- masks ---- */

/* Writes the mask that the network makes of an image, KEY.png, whose values are the classes, and its row. */
static FshStatus write_mask(Predictor *predictor, const Batch *batch, const Evaluated *evaluated,
                            FshError *error)
{
    const size_t pixels = (size_t)batch->width * batch->height;
    size_t key_bytes = 0;
    uint64_t counted = 0, right = 0;
    const char *key = session_key(predictor->session->data.evaluation, batch->samples[0], &key_bytes);
    char *name = text_copy(key, key_bytes);
    if (!name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < pixels; i++) {
        counted += batch->target[i] != FSH_MASK_IGNORED;
        right += batch->target[i] == evaluated->classes[i];
    }
    FshStatus status = FSH_OK;
    if (predictor->folder)
        status = write_image(predictor, name, "", evaluated->classes, batch, 1, error);
    if (!status)
        status = csv_append_text(&predictor->row, key, key_bytes, error);
    predictor->classes.formulas += csv_is_formula(key, key_bytes);
    if (!status)
        status = add(predictor, error, ",%" PRIu64 ",%" PRIu64 "\n", counted, right);
    free(name);
    return status ? status : write_row(predictor, error);
}

FshStatus predictor_visit(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error)
{
    Predictor *predictor = context;
    FshStatus status = FSH_OK;
    if (plan_is_pairs(&predictor->session->plan))
        return write_pair(predictor, batch, evaluated, error);
    if (plan_is_masks(&predictor->session->plan))
        return write_mask(predictor, batch, evaluated, error);
    for (int64_t i = 0; !status && i < predictor->session->plan.evaluation_spec.batch; i++)
        if (batch->valid[i] > 0)
            status = write_class(predictor, batch, evaluated, i, error);
    return status;
}

/* ---- opening and closing ---- */

static FshStatus open_csv(Predictor *predictor, const char *path, FshError *error)
{
    FshStatus status = file_make_parent_folders(path, error);
    if (!status)
        status = atomic_file_open(&predictor->csvs[predictor->csv_count], path, predictor->force, error);
    if (!status)
        predictor->csv_count++;
    return status;
}

FshStatus predictor_new(Predictor **predictor_ret, const Session *session, const char *folder,
                        const char *csv_path, bool json, bool force, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = FSH_OK;
    Predictor *predictor = calloc(1, sizeof *predictor);
    if (!predictor)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for predictions");
    predictor->session = session;
    predictor->force = force;
    predictor->lock = (FolderLock)FOLDER_LOCK_NONE;
    predictor->classes =
        (ClassRows){.of = (RowsOf)session->data.label_kind,
                    .key_name = "key",
                    .json = json,
                    .labelled = true,
                    .names = session->data.label_kind == LABELS_ONE ? session->data.display_names
                                                                    : (char **)session->data.class_names,
                    .classes = session->plan.evaluation_spec.classes};
    if (folder) {
        predictor->folder = strdup(folder);
        status = predictor->folder ? file_make_folders(folder, error)
                                   : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
        if (!status)
            status = folder_lock_take(&predictor->lock, folder, record_lock_name, "ftrain", error);
        if (!status)
            status =
                file_join(path, sizeof path, folder, json ? "predictions.jsonl" : "predictions.csv", error);
        if (!status)
            status = open_csv(predictor, path, error);
        if (!status)
            status = image_encoder_new(&predictor->encoder, error);
    }
    if (!status && csv_path)
        status = open_csv(predictor, csv_path, error);
    if (!status)
        status = plan_is_pairs(&predictor->session->plan)
                     ? add(predictor, error, "key,psnr,ssim,input_psnr\n")
                 : plan_is_masks(&predictor->session->plan)
                     ? add(predictor, error, "key,pixels,correct\n")
                     : class_rows_head(&predictor->classes, &predictor->row, error);
    if (!status)
        status = write_row(predictor, error);
    if (status)
        predictor_free(&predictor);
    *predictor_ret = predictor;
    return status;
}

FshStatus predictor_finish(Predictor *predictor, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < predictor->csv_count; i++)
        status = atomic_file_commit(&predictor->csvs[i], true, error);
    return status;
}

const FolderLock *predictor_lock(const Predictor *predictor)
{
    return &predictor->lock;
}

uint64_t predictor_formula_count(const Predictor *predictor)
{
    return predictor->classes.formulas;
}

void predictor_free(Predictor **predictor_ret)
{
    Predictor *predictor = *predictor_ret;
    if (!predictor)
        return;
    for (size_t i = 0; i < predictor->csv_count; i++)
        atomic_file_abandon(&predictor->csvs[i]);
    folder_lock_release(&predictor->lock);
    image_encoder_free(&predictor->encoder);
    image_free(&predictor->image);
    buffer_free(&predictor->row);
    buffer_free(&predictor->png);
    free(predictor->folder);
    free(predictor);
    *predictor_ret = NULL;
}
