#include "trainer/inference/image_writer.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "imaging/encode.h"

enum { JPEG_QUALITY = 95 };

typedef enum JobState {
    JOB_FREE,
    JOB_FILLING, /* image_writer_put is filling it */
    JOB_READY,
    JOB_TAKEN, /* a thread is writing it */
} JobState;

typedef struct Job {
    JobState state;
    char path[PATH_MAX];
    ImageFormat format;
    Image image;
} Job;

struct ImageWriter {
    bool force, masks;
    Job *jobs;
    size_t job_count;
    pthread_t *threads;
    int thread_count;
    pthread_mutex_t mutex; /* guards everything below, and the states of jobs */
    pthread_cond_t changed;
    bool mutex_made, changed_made, stop;
    uint64_t written;
    FshError error; /* the first failure; status FSH_OK: none */
};

/* ---- the threads ---- */

/* Returns a job in this state; NULL: there is none. The caller holds the mutex. */
static Job *find_job(ImageWriter *writer, JobState state)
{
    for (size_t i = 0; i < writer->job_count; i++)
        if (writer->jobs[i].state == state)
            return &writer->jobs[i];
    return NULL;
}

static FshStatus write_job(const ImageWriter *writer, const Job *job, ImageEncoder *encoder, Buffer *bytes,
                           FshError *error)
{
    const ImageEncodeOptions options = {
        .format = job->format, .quality = JPEG_QUALITY, .subsampling = IMAGE_SUBSAMPLING_444};
    FshStatus status = file_make_parent_folders(job->path, error);
    if (status)
        return status;
    if (writer->masks) {
        uint8_t colours[MASK_COLOURS_BYTES];
        const MaskFormat format = mask_voc_format(colours);
        status = image_encode_mask(encoder, &job->image, &format, bytes, error);
    } else {
        status = image_encode(encoder, &job->image, &options, bytes, error);
    }
    return status ? fsh_error_prepend(error, "%s", job->path)
                  : file_write_atomic(job->path, bytes->bytes, bytes->length, writer->force, false, error);
}

/* Keeps the first failure. The caller holds the mutex. */
static void note_failure(ImageWriter *writer, const FshError *error)
{
    if (!writer->error.status)
        writer->error = *error;
}

static void *write_jobs(void *argument)
{
    ImageWriter *writer = argument;
    ImageEncoder *encoder = NULL;
    Buffer bytes = {0};
    FshError error = {0};
    FshStatus status = image_encoder_new(&encoder, &error);
    (void)pthread_mutex_lock(&writer->mutex);
    if (status)
        note_failure(writer, &error);
    for (;;) {
        Job *job = NULL;
        while (!writer->stop && !(job = find_job(writer, JOB_READY)))
            (void)pthread_cond_wait(&writer->changed, &writer->mutex);
        if (writer->stop)
            break;
        job->state = JOB_TAKEN;
        const bool failed = writer->error.status != FSH_OK;
        (void)pthread_mutex_unlock(&writer->mutex);
        error = (FshError){0};
        status = failed ? FSH_OK : write_job(writer, job, encoder, &bytes, &error);
        (void)pthread_mutex_lock(&writer->mutex);
        if (status)
            note_failure(writer, &error);
        writer->written += !status && !failed;
        job->state = JOB_FREE;
        (void)pthread_cond_broadcast(&writer->changed);
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    image_encoder_free(&encoder);
    buffer_free(&bytes);
    return NULL;
}

/* ---- the caller's side ---- */

/* Copies the first failure to error and returns its status. The caller holds the mutex. */
static FshStatus failure_of(const ImageWriter *writer, FshError *error)
{
    if (writer->error.status && error)
        *error = writer->error;
    return writer->error.status;
}

FshStatus image_writer_put(ImageWriter *writer, const char *path, ImageFormat format, const ImageView *view,
                           FshError *error)
{
    Job *job = NULL;
    (void)pthread_mutex_lock(&writer->mutex);
    while (!writer->error.status && !(job = find_job(writer, JOB_FREE)))
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
    FshStatus status = failure_of(writer, error);
    if (!status)
        job->state = JOB_FILLING;
    (void)pthread_mutex_unlock(&writer->mutex);
    if (status)
        return status;
    job->format = format;
    if ((size_t)snprintf(job->path, sizeof job->path, "%s", path) >= sizeof job->path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    if (!status)
        status = image_copy_view(&job->image, view, error);
    (void)pthread_mutex_lock(&writer->mutex);
    job->state = status ? JOB_FREE : JOB_READY;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
    return status;
}

FshStatus image_writer_finish(ImageWriter *writer, FshError *error)
{
    (void)pthread_mutex_lock(&writer->mutex);
    while (find_job(writer, JOB_READY) || find_job(writer, JOB_TAKEN))
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
    const FshStatus status = failure_of(writer, error);
    (void)pthread_mutex_unlock(&writer->mutex);
    return status;
}

uint64_t image_writer_count(ImageWriter *writer)
{
    (void)pthread_mutex_lock(&writer->mutex);
    const uint64_t written = writer->written;
    (void)pthread_mutex_unlock(&writer->mutex);
    return written;
}

/* ---- opening and closing ---- */

FshStatus image_writer_new(ImageWriter **writer_ret, int threads, bool force, bool masks, FshError *error)
{
    ImageWriter *writer = *writer_ret = calloc(1, sizeof *writer);
    FshStatus status = FSH_OK;
    if (!writer)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for writing images");
    writer->force = force;
    writer->masks = masks;
    writer->job_count = (size_t)threads + 1;
    writer->jobs = calloc(writer->job_count, sizeof *writer->jobs);
    writer->threads = calloc((size_t)threads, sizeof *writer->threads);
    writer->mutex_made = pthread_mutex_init(&writer->mutex, NULL) == 0;
    writer->changed_made = pthread_cond_init(&writer->changed, NULL) == 0;
    if (!writer->jobs || !writer->threads || !writer->mutex_made || !writer->changed_made)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for writing images");
    while (!status && writer->thread_count < threads) {
        const int failure = pthread_create(&writer->threads[writer->thread_count], NULL, write_jobs, writer);
        if (failure)
            status = fsh_error_system(error, failure, "cannot start %d threads that write images", threads);
        else
            writer->thread_count++;
    }
    if (status)
        image_writer_free(writer_ret);
    return status;
}

void image_writer_free(ImageWriter **writer_ret)
{
    ImageWriter *writer = *writer_ret;
    if (!writer)
        return;
    if (writer->mutex_made && writer->changed_made) {
        (void)pthread_mutex_lock(&writer->mutex);
        writer->stop = true;
        (void)pthread_cond_broadcast(&writer->changed);
        (void)pthread_mutex_unlock(&writer->mutex);
    }
    for (int i = 0; i < writer->thread_count; i++)
        (void)pthread_join(writer->threads[i], NULL);
    for (size_t i = 0; writer->jobs && i < writer->job_count; i++)
        image_free(&writer->jobs[i].image);
    if (writer->changed_made)
        (void)pthread_cond_destroy(&writer->changed);
    if (writer->mutex_made)
        (void)pthread_mutex_destroy(&writer->mutex);
    free(writer->jobs);
    free(writer->threads);
    free(writer);
    *writer_ret = NULL;
}
