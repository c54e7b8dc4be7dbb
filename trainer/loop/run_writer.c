#include "trainer/loop/run_writer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/thread.h"

typedef struct Entry {
    RunWrite write;
    RunWritten written;
    struct Entry *next;
} Entry;

struct RunWriter {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    Entry *first, **end; /* all that nobody has taken, oldest first */
    Entry *waiting;      /* the first of them that is not done */
    bool closing;
};

static void *run(void *context)
{
    RunWriter *writer = context;
    (void)pthread_mutex_lock(&writer->mutex);
    for (;;) {
        while (!writer->waiting && !writer->closing)
            (void)pthread_cond_wait(&writer->changed, &writer->mutex);
        Entry *entry = writer->waiting;
        if (!entry)
            break;
        (void)pthread_mutex_unlock(&writer->mutex);
        entry->written.status = entry->write(entry->written.job, &entry->written.error);
        (void)pthread_mutex_lock(&writer->mutex);
        writer->waiting = entry->next;
        (void)pthread_cond_broadcast(&writer->changed);
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

FshStatus run_writer_new(RunWriter **writer_ret, FshError *error)
{
    RunWriter *writer = calloc(1, sizeof *writer);
    *writer_ret = NULL;
    if (!writer)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the thread that saves");
    writer->end = &writer->first;
    (void)pthread_mutex_init(&writer->mutex, NULL);
    (void)pthread_cond_init(&writer->changed, NULL);
    const int failure = thread_start(&writer->thread, run, writer);
    if (failure) {
        (void)pthread_cond_destroy(&writer->changed);
        (void)pthread_mutex_destroy(&writer->mutex);
        free(writer);
        return fsh_error_system(error, failure, "cannot start the thread that saves");
    }
    *writer_ret = writer;
    return FSH_OK;
}

void run_writer_free(RunWriter **writer_at)
{
    RunWriter *writer = *writer_at;
    RunWritten written;
    if (!writer)
        return;
    (void)pthread_mutex_lock(&writer->mutex);
    writer->closing = true;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
    (void)pthread_join(writer->thread, NULL);
    while (run_writer_next(writer, &written))
        ;
    (void)pthread_cond_destroy(&writer->changed);
    (void)pthread_mutex_destroy(&writer->mutex);
    free(writer);
    *writer_at = NULL;
}

FshStatus run_writer_add(RunWriter *writer, RunWrite write, void *job, FshError *error)
{
    Entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a file to save");
    entry->write = write;
    entry->written.job = job;
    (void)pthread_mutex_lock(&writer->mutex);
    *writer->end = entry;
    writer->end = &entry->next;
    if (!writer->waiting)
        writer->waiting = entry;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
    return FSH_OK;
}

void run_writer_wait(RunWriter *writer)
{
    (void)pthread_mutex_lock(&writer->mutex);
    while (writer->waiting)
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
    (void)pthread_mutex_unlock(&writer->mutex);
}

void run_writer_wait_one(RunWriter *writer)
{
    (void)pthread_mutex_lock(&writer->mutex);
    while (writer->waiting && writer->first == writer->waiting)
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
    (void)pthread_mutex_unlock(&writer->mutex);
}

bool run_writer_next(RunWriter *writer, RunWritten *written_ret)
{
    (void)pthread_mutex_lock(&writer->mutex);
    Entry *entry = writer->first != writer->waiting ? writer->first : NULL;
    if (entry) {
        writer->first = entry->next;
        if (!writer->first)
            writer->end = &writer->first;
        *written_ret = entry->written;
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    free(entry);
    return entry;
}
