/* decoded_load.c - measures and decodes a split, on all threads, and together with the processes of a
 * team. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/pool.h"
#include "common/progress.h"
#include "trainer/data/decoded_split.h"

enum {
    MEASURED_AT_A_TIME = 256, /* samples, at most */
    SHARES_WANTED = 8, /* pieces for each process of a team, so that all are done at about the same time */
    COPIED_BYTES = 4 << 20, /* neighbours that travel together */
    HOST_BYTES = 256 << 10, /* neighbours that a thread decodes into RAM at a time */
    ROUND_STRETCHES = 64,   /* for each process of a team, whose threads are then done at about one time */
};

/* What a thread decodes into before it is put into a store. */
typedef struct CopyBuffer {
    uint8_t *bytes;
    uint64_t capacity;
} CopyBuffer;

/* Neighbours, and where they lie in the split. */
typedef struct Stretch {
    uint64_t first, end; /* samples */
    uint64_t begin, bytes;
} Stretch;

/* Stretches that are decoded at a time, to where; at NULL: into buffers. */
typedef struct Round {
    uint64_t first, count; /* stretches */
    uint64_t begin, bytes; /* in the split */
    uint8_t *at;
} Round;

/* One job: measuring or loading. */
typedef struct Task {
    DecodedSplit *split;
    const PixelSourceOptions *options;
    PixelStore *store;      /* what is decoded goes there; NULL: it stays */
    Round decoded, copied;  /* copied: decoded before, by the team */
    uint64_t share, shares; /* this process does items share, share + shares, … */
    uint64_t at_a_time;     /* samples to measure */
    SampleLoader **loaders; /* [threads] */
    CopyBuffer *buffers;    /* [threads] */
    Stretch *stretches;     /* [stretch_count] all of the split, in its order */
    uint64_t stretch_count;
} Task;

/* ---- a team ---- */

FshStatus decoded_split_agree(const PixelSourceOptions *options, FshStatus mine, FshError *error)
{
    return options->team ? options->team->agree(options->team->context, mine, error) : mine;
}

/* Sets *memory_ret to zeroed memory: the team's; where it shares none (split->team is NULL from then on)
 * this process's own. mine: its status until now. With a team all processes call it, and all fail or none. */
static FshStatus take_memory(DecodedSplit *split, const PixelSourceOptions *options, FshStatus mine,
                             uint64_t bytes, DecodedMemory *memory_ret, FshError *error)
{
    const size_t length = bytes ? (size_t)bytes : 1; /* nothing cannot be mapped */
    char text[32];
    void *memory = NULL;
    FshStatus status = decoded_split_agree(options, mine, error);
    if (!status && split->team)
        status = split->team->share(split->team->context, length, &memory, error);
    if (!status && !memory && split->team && split->tables.bytes) /* others write into the tables, too */
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "the processes of this host share memory no more");
    if (!status && !memory) {
        split->team = NULL;
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (!status && memory == MAP_FAILED)
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "the system does not give %s of memory for decoded images",
                          progress_format_bytes(text, sizeof text, length));
    if (memory && memory != MAP_FAILED)
        *memory_ret = (DecodedMemory){.bytes = memory, .length = length};
#ifdef MADV_HUGEPAGE
    if (!status)
        (void)madvise(memory, length, MADV_HUGEPAGE); /* samples are read in no order */
#endif
    return decoded_split_agree(options, status, error);
}

/* ---- a job ---- */

static void close_task(Task *task)
{
    for (int i = 0; i < task->options->threads; i++) {
        if (task->loaders)
            sample_loader_free(&task->loaders[i]);
        if (task->buffers)
            free(task->buffers[i].bytes);
    }
    free(task->loaders);
    free(task->buffers);
    free(task->stretches);
}

static FshStatus open_task(Task *task, FshError *error)
{
    const size_t threads = (size_t)task->options->threads;
    const DecodeTeam *team = task->split->team;
    FshStatus status = FSH_OK;
    task->share = team ? team->index : 0;
    task->shares = team ? team->count : 1;
    task->loaders = calloc(threads, sizeof(SampleLoader *));
    task->buffers = calloc(threads, sizeof *task->buffers);
    task->stretches = calloc(task->split->sample_count + 1, sizeof *task->stretches);
    const bool made = task->loaders && task->buffers && task->stretches;
    for (size_t i = 0; made && !status && i < threads; i++)
        status =
            sample_loader_new(&task->loaders[i], &task->options->samples, &task->split->checksums, error);
    if (!status && !made)
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu threads that read a split", threads);
    return status;
}

/* Returns how many of `count` items are this process's share. */
static uint64_t share_of(const Task *task, uint64_t count)
{
    return count > task->share ? (count - task->share + task->shares - 1) / task->shares : 0;
}

static FshStatus run_share(const Task *task, uint64_t count, PoolWork work, FshError *error)
{
    return pool_run(task->options->threads, share_of(task, count), work, (void *)task, error);
}

/* Returns which of all items this process's item is. */
static uint64_t item_of(const Task *task, uint64_t own)
{
    return own * task->shares + task->share;
}

static FshStatus note_problem(DecodedSplit *split, uint64_t sample, const char *message, FshError *error)
{
    split->problems[sample] = strdup(message);
    return split->problems[sample] ? FSH_OK
                                   : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a message");
}

/* Notes a sample that cannot be used and returns FSH_OK, or returns its failure. */
static FshStatus leave_out(const Task *task, uint64_t sample, const FshError *failure, FshError *error)
{
    DecodedSplit *split = task->split;
    if (!task->options->skip_bad || failure->status == FSH_ERR_MEMORY) {
        if (error)
            *error = *failure;
        return failure->status;
    }
    for (unsigned side = 0; side < split->sides; side++)
        decoded_image(split, sample, side)->offset_bytes = PIXELS_NONE;
    return note_problem(split, sample, failure->message, error);
}

/* Decodes a sample that another process has left out, to find out why. */
static FshStatus find_out_why(const Task *task, SampleLoader *loader, uint64_t sample, FshError *error)
{
    const DecodedSplit *split = task->split;
    FshError failure = {.message = "another process could not decode it"};
    SampleInfo info;
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < split->sides; side++) {
        DecodedImage image = {0};
        status = split->form->measure(loader, side, task->options->channels, &image, &failure);
        uint8_t *to = status ? NULL : malloc(image.bytes + 1);
        if (to)
            status = split->form->write(loader, side, task->options->channels, &image, to, &failure);
        free(to);
    }
    return note_problem(task->split, sample, failure.message, error);
}

/* Notes what is wrong with the samples that others have left out. */
static FshStatus note_problems_of_others(const Task *task, FshError *error)
{
    DecodedSplit *split = task->split;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < split->sample_count && split->team && !status; i++)
        if (decoded_image(split, i, 0)->offset_bytes == PIXELS_NONE && !split->problems[i])
            status = find_out_why(task, task->loaders[0], i, error);
    return status;
}

/* ---- measuring ---- */

static FshStatus measure_sample(const Task *task, SampleLoader *loader, uint64_t sample, FshError *error)
{
    DecodedSplit *split = task->split;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < split->sides; side++)
        status = split->form->measure(loader, side, task->options->channels,
                                      decoded_image(split, sample, side), &failure);
    if (status)
        return leave_out(task, sample, &failure, error);
    if (split->labels)
        split->labels[sample] = info.label;
    return FSH_OK;
}

static FshStatus measure_some(uint64_t own, int thread, void *context, FshError *error)
{
    const Task *task = context;
    FshStatus status = FSH_OK;
    const uint64_t first = item_of(task, own) * task->at_a_time, end = first + task->at_a_time;
    for (uint64_t i = first; !status && i < end && i < task->split->sample_count; i++)
        status = measure_sample(task, task->loaders[thread], i, error);
    return status;
}

/* Adds up the images' bytes and, in the first process of a team, places them. */
static FshStatus place_images(DecodedSplit *split, bool first, FshError *error)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < split->sample_count * split->sides; i++) {
        DecodedImage *image = &split->images[i];
        if (image->offset_bytes == PIXELS_NONE)
            continue;
        if (first)
            image->offset_bytes = bytes;
        if (__builtin_add_overflow(bytes, image->bytes, &bytes))
            return fsh_error_set(error, FSH_ERR_MEMORY, "the pixels of the split do not fit in any memory");
    }
    split->bytes = bytes;
    return FSH_OK;
}

/* Takes the tables' memory. */
static FshStatus open_tables(DecodedSplit *split, const PixelSourceOptions *options, FshError *error)
{
    const size_t images = (size_t)(split->sample_count * split->sides) * sizeof *split->images;
    const size_t labels = split->sides > 1 ? 0 : (size_t)split->sample_count * sizeof *split->labels;
    split->problems = calloc((size_t)split->sample_count + 1, sizeof *split->problems);
    FshStatus status = sample_checksums_make(&split->checksums, split->sample_count, error);
    if (!status && !split->problems)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the places of %llu images",
                               (unsigned long long)split->sample_count);
    status = take_memory(split, options, status, images + labels, &split->tables, error);
    if (status)
        return status;
    split->images = (DecodedImage *)split->tables.bytes;
    split->labels = labels ? (int64_t *)(split->tables.bytes + images) : NULL;
    return FSH_OK;
}

/* Measures this process's share, and learns of the others'. */
static FshStatus measure_all(Task *task, FshError *error)
{
    DecodedSplit *split = task->split;
    const uint64_t count = split->sample_count;
    FshStatus status = open_task(task, error);
    const uint64_t even = count / (task->shares * SHARES_WANTED) + 1;
    task->at_a_time = task->shares == 1 || even > MEASURED_AT_A_TIME ? MEASURED_AT_A_TIME : even;
    if (!status)
        status = run_share(task, (count + task->at_a_time - 1) / task->at_a_time, measure_some, error);
    status = decoded_split_agree(task->options, status, error); /* all have measured */
    const bool first = !split->team || split->team->index == 0;
    if (!status && first)
        status = place_images(split, true, error);
    status = decoded_split_agree(task->options, status, error); /* the first has placed */
    if (!status && !first)
        status = place_images(split, false, error);
    return status ? status : note_problems_of_others(task, error);
}

FshStatus decoded_split_measure(DecodedSplit *split, const PixelSourceOptions *options,
                                const DecodedForm *form, FshError *error)
{
    const double start = progress_now_seconds();
    Task task = {.split = split, .options = options};
    *split = (DecodedSplit){.form = form,
                            .sample_count = options->samples.split->sample_count,
                            .sides = options->samples.kind != FSH_KIND_CLASSES ? 2 : 1,
                            .team = options->team};
    FshStatus status = open_tables(split, options, error);
    if (!status)
        status = measure_all(&task, error);
    close_task(&task);
    status = decoded_split_agree(options, status, error);
    if (status)
        decoded_split_free(split);
    split->seconds = progress_now_seconds() - start;
    return status;
}

/* ---- loading ---- */

/* Returns what lies between sample and the next: those that are left out take nothing. */
static uint64_t sample_bytes(const DecodedSplit *split, uint64_t sample)
{
    uint64_t bytes = 0;
    for (unsigned side = 0; side < split->sides; side++)
        if (decoded_image(split, sample, side)->offset_bytes != PIXELS_NONE)
            bytes += decoded_image(split, sample, side)->bytes;
    return bytes;
}

/* Makes stretches of neighbours of most_bytes together, from offset `from` to `to` of the split; a sample
 * that is larger goes alone. */
static void divide(Task *task, uint64_t most_bytes, uint64_t from, uint64_t to)
{
    Stretch *now = NULL;
    uint64_t begin = 0;
    for (uint64_t i = 0; i < task->split->sample_count; i++) {
        const uint64_t own = sample_bytes(task->split, i);
        const bool inside = own > 0 && begin >= from && begin < to;
        if (inside && (!now || now->bytes + own > most_bytes)) {
            now = &task->stretches[task->stretch_count++];
            *now = (Stretch){.first = i, .begin = begin};
        }
        if (inside) {
            now->end = i + 1;
            now->bytes += own;
        }
        begin += own;
    }
}

uint64_t decoded_split_part(const DecodedSplit *split, uint64_t index, uint64_t count)
{
    const uint64_t least = (uint64_t)((__uint128_t)split->bytes * index / count);
    uint64_t begin = 0;
    for (uint64_t i = 0; i < split->sample_count && begin < least; i++)
        begin += sample_bytes(split, i);
    return begin;
}

/* Returns the bytes to decode at a time: what is copied into a store should be large, but give all threads
 * of a team something to do. */
static uint64_t stretch_bytes(const Task *task)
{
    const DecodeTeam *team = task->split->team;
    const uint64_t of_team = team ? team->room_bytes / (ROUND_STRETCHES * team->count) : COPIED_BYTES;
    return !task->store ? HOST_BYTES : of_team < COPIED_BYTES ? of_team : COPIED_BYTES;
}

/* Returns the thread's buffer with room for bytes; NULL: there is no memory. */
static uint8_t *reserve_buffer(CopyBuffer *buffer, uint64_t bytes)
{
    if (bytes <= buffer->capacity)
        return buffer->bytes;
    free(buffer->bytes);
    buffer->bytes = malloc(bytes);
    buffer->capacity = buffer->bytes ? bytes : 0;
    return buffer->bytes;
}

/* Decodes the images of a sample. Offset `begin` of the split is at `to`. */
static FshStatus load_sample(const Task *task, SampleLoader *loader, uint64_t sample, uint8_t *to,
                             uint64_t begin, FshError *error)
{
    const DecodedSplit *split = task->split;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < split->sides; side++) {
        const DecodedImage *image = decoded_image(split, sample, side);
        status = split->form->write(loader, side, task->options->channels, image,
                                    to + (image->offset_bytes - begin), &failure);
    }
    return status ? leave_out(task, sample, &failure, error) : FSH_OK;
}

/* Loads the samples of a stretch. One copy brings all of them into a store, unless they stay for others to
 * copy. */
static FshStatus load_some(uint64_t own, int thread, void *context, FshError *error)
{
    const Task *task = context;
    const Stretch *stretch = &task->stretches[task->decoded.first + item_of(task, own)];
    if (stretch->bytes == 0)
        return FSH_OK;
    uint8_t *to = task->decoded.at ? task->decoded.at + (stretch->begin - task->decoded.begin)
                                   : reserve_buffer(&task->buffers[thread], stretch->bytes);
    if (!to)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for images of %llu bytes",
                             (unsigned long long)stretch->bytes);
    FshStatus status = FSH_OK;
    for (uint64_t i = stretch->first; i < stretch->end && !status; i++)
        if (decoded_image(task->split, i, 0)->offset_bytes != PIXELS_NONE)
            status = load_sample(task, task->loaders[thread], i, to, stretch->begin, error);
    return status || task->decoded.at
               ? status
               : pixel_store_put(task->store, stretch->begin, to, (size_t)stretch->bytes, error);
}

/* Copies a stretch that the team has decoded before into this process's store, or decodes one of this
 * process's share: the copies come first, and decoding goes on beside them. */
static FshStatus copy_or_load(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    const Round *copied = &task->copied;
    if (item >= copied->count)
        return load_some(item - copied->count, thread, context, error);
    const Stretch *stretch = &task->stretches[copied->first + item];
    return pixel_store_put(task->store, stretch->begin, copied->at + (stretch->begin - copied->begin),
                           (size_t)stretch->bytes, error);
}

/* Returns the round from a stretch on: those that fit into the team's room, and one at least; none at the
 * end. */
static Round round_from(const Task *task, uint64_t first, uint8_t *at)
{
    Round round = {.first = first, .at = at};
    for (uint64_t i = first; i < task->stretch_count; i++, round.count++) {
        const Stretch *stretch = &task->stretches[i];
        if (i == first)
            round.begin = stretch->begin;
        else if (round.bytes + stretch->bytes > task->split->team->room_bytes)
            break;
        round.bytes += stretch->bytes;
    }
    return round;
}

/* Returns the bytes of the largest round. */
static uint64_t largest_round(const Task *task)
{
    uint64_t most = 0;
    for (uint64_t i = 0; i < task->stretch_count;) {
        const Round round = round_from(task, i, NULL);
        most = round.bytes > most ? round.bytes : most;
        i += round.count;
    }
    return most;
}

/* Loads into a store of this process by rounds: the team decodes one into one half of the room, while each
 * process copies the one before from the other half. */
static FshStatus load_rounds(Task *task, FshStatus opened, FshError *error)
{
    DecodedMemory room = {0};
    const uint64_t most = opened ? 0 : largest_round(task);
    uint64_t first = 0, half = 0;
    FshStatus status = take_memory(task->split, task->options, opened, 2 * most, &room, error);
    while (!status && (first < task->stretch_count || task->decoded.count)) {
        task->copied = task->decoded;
        task->decoded = round_from(task, first, room.bytes + half * most);
        first += task->decoded.count;
        half = 1 - half;
        status = pool_run(task->options->threads, task->copied.count + share_of(task, task->decoded.count),
                          copy_or_load, task, error);
        status =
            decoded_split_agree(task->options, status, error); /* the next round overwrites the copied one */
    }
    if (room.bytes)
        (void)munmap(room.bytes, room.length);
    return status;
}

/* Keeps this process from writing into what others read. */
static void protect(const DecodedSplit *split)
{
    const DecodedMemory *const both[] = {&split->tables, &split->pixels};
    for (int i = 0; i < 2 && split->team; i++)
        if (both[i]->bytes)
            (void)mprotect(both[i]->bytes, both[i]->length, PROT_READ);
}

/* Loads into the store, or into memory that is there: all, or this process's part. With a team all
 * processes fail alike. */
static FshStatus load_all(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                          bool part, FshError *error)
{
    const double start = progress_now_seconds();
    const uint64_t index = part ? split->team->index : 0, count = part ? split->team->count : 1;
    Task task = {.split = split, .options = options, .store = store};
    FshStatus status = open_task(&task, error);
    if (!status)
        divide(&task, stretch_bytes(&task), decoded_split_part(split, index, count),
               decoded_split_part(split, index + 1, count));
    /* From here on samples may be left out: all have divided the same. */
    status = decoded_split_agree(options, status, error);
    if (part) {
        task.share = 0;
        task.shares = 1;
    }
    if (store && split->team && !part)
        status = load_rounds(&task, status, error);
    else if (!status) {
        task.decoded = (Round){.count = task.stretch_count, .at = split->pixels.bytes};
        status = run_share(&task, task.stretch_count, load_some, error);
    }
    status = decoded_split_agree(options, status, error);
    if (!status)
        status = note_problems_of_others(&task, error);
    close_task(&task);
    protect(split);
    status = decoded_split_agree(options, status, error);
    split->loaded = !status;
    split->divided = part;
    split->seconds += progress_now_seconds() - start;
    return status;
}

FshStatus decoded_split_load_store(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                                   FshError *error)
{
    return load_all(split, options, store, false, error);
}

FshStatus decoded_split_load_part(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                                  FshError *error)
{
    return load_all(split, options, store, true, error);
}

FshStatus decoded_split_load_ram(DecodedSplit *split, const PixelSource *source, FshError *error)
{
    FshStatus status = take_memory(split, &source->options, FSH_OK, split->bytes, &split->pixels, error);
    if (status == FSH_ERR_MEMORY)
        status = fsh_error_prepend(error, "%s: %s", fsh_path(source->options.samples.split->dataset),
                                   source->type->option);
    if (!status)
        status = load_all(split, &source->options, NULL, false, error);
    if (status)
        decoded_split_drop_pixels(split);
    return status;
}
