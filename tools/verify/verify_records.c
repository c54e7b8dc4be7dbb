#include "tools/verify/verify_records.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/text.h"
#include "tools/verify/verify_likeness.h"

/* ---- problems ---- */

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static FshStatus append(VerifyProblem **items, size_t *count, size_t *capacity, const FshProblem *problem,
                        FshError *error)
{
    if (*count == *capacity) {
        const size_t larger = *capacity ? 2 * *capacity : 16;
        VerifyProblem *grown = reallocarray(*items, larger, sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", problem->file);
        *items = grown;
        *capacity = larger;
    }
    VerifyProblem *own = &(*items)[(*count)++];
    *own = (VerifyProblem){.status = problem->status,
                           .record = problem->record,
                           .file = copy_text(problem->file),
                           .key = copy_text(problem->key),
                           .source = copy_text(problem->source),
                           .reason = copy_text(problem->reason)};
    if (!own->file || !own->reason)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", problem->file);
    return FSH_OK;
}

FshStatus verify_add_problem(VerifyReport *report, const FshProblem *problem, FshError *error)
{
    return problem->status
               ? append(&report->problems, &report->problem_count, &report->problem_capacity, problem, error)
               : append(&report->remarks, &report->remark_count, &report->remark_capacity, problem, error);
}

typedef struct VerifyKnown {
    const char *file; /* the problem's */
    int64_t record;
} VerifyKnown;

static int compare_known(const void *a, const void *b)
{
    const VerifyKnown *left = a, *right = b;
    int order = strcmp(left->file, right->file);
    return order ? order : (left->record > right->record) - (left->record < right->record);
}

FshStatus verify_know_problems(VerifyReport *report, FshError *error)
{
    report->known = calloc(report->problem_count + 1, sizeof *report->known);
    if (!report->known)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
    for (size_t i = 0; i < report->problem_count; i++)
        report->known[i] =
            (VerifyKnown){.file = report->problems[i].file, .record = report->problems[i].record};
    report->known_count = report->problem_count;
    qsort(report->known, report->known_count, sizeof *report->known, compare_known);
    return FSH_OK;
}

bool verify_knows(const VerifyReport *report, const char *file, int64_t record)
{
    const VerifyKnown wanted = {.file = file, .record = record};
    return report->known_count &&
           bsearch(&wanted, report->known, report->known_count, sizeof wanted, compare_known);
}

/* Returns the reason in "shards/train-00000-of-00001.fshard record 3 at byte 960: key cat/3: …": a problem
 * names the rest itself. */
static const char *drop_place(const FshSplit *split, uint64_t index, const FshSample *sample,
                              const char *message)
{
    static const char key[] = "key ";
    char where[512];
    const char *reason = strstr(message, fsh_sample_where(split, index, where, sizeof where));
    if (!reason || !(reason = strstr(reason + strlen(where), ": ")))
        return message;
    reason += 2;
    if (sample && strncmp(reason, key, strlen(key)) == 0 &&
        strlen(reason) > strlen(key) + sample->key_bytes &&
        strncmp(reason + strlen(key), sample->key, sample->key_bytes) == 0 &&
        strncmp(reason + strlen(key) + sample->key_bytes, ": ", 2) == 0)
        reason += strlen(key) + sample->key_bytes + 2;
    return reason;
}

FshStatus verify_add_sample_problem(VerifyReport *report, const FshSplit *split, uint64_t index,
                                    const FshSample *sample, unsigned field, const FshError *failure,
                                    FshError *error)
{
    static const char separator[] = " record ";
    char file[PATH_MAX];
    (void)fsh_sample_where(split, index, file, sizeof file);
    char *mark = NULL;
    for (char *at = strstr(file, separator); at; at = strstr(at + 1, separator))
        mark = at; /* the last: a name may hold the word */
    const int64_t record = mark ? (int64_t)strtoull(mark + strlen(separator), NULL, 10) : (int64_t)index;
    if (mark)
        *mark = '\0';
    if (verify_knows(report, file, record))
        return FSH_OK;
    char *key = sample ? text_copy(sample->key, sample->key_bytes) : NULL;
    char *source = sample && sample->fields[field].source_bytes
                       ? text_copy(sample->fields[field].source, sample->fields[field].source_bytes)
                       : NULL;
    const FshProblem problem = {.status = failure->status,
                                .file = file,
                                .record = record,
                                .key = key,
                                .source = source,
                                .reason = drop_place(split, index, sample, failure->message)};
    FshStatus status = verify_add_problem(report, &problem, error);
    free(key);
    free(source);
    return status;
}

/* ---- one sample ---- */

/* What a thread keeps. */
typedef struct VerifyThread {
    AgainstReader reader;
    Image thumbnail;
    LikenessSide *sides; /* two, with --pairs */
} VerifyThread;

/* Found in one record. Slots are not cleared between records: check_record sets all of it. */
typedef struct RecordFindings {
    bool readable; /* sample is valid */
    bool wrong;
    FshError failure;
    unsigned field; /* whose source the failure is about */
    FshSample sample;
    unsigned decoded_count, compared_count, source_count, absent_count;
    bool paired, suspicious;
    Likeness likeness; /* of the side that is least like the first */
    PixelStatistics statistics;
} RecordFindings;

/* What a thread takes at a time: a few neighbours, since a record of a kilobyte costs less than handing it
 * from thread to thread. */
enum { CHUNK_RECORDS = 64, CHUNK_BYTES = 256 << 10 };

typedef struct RecordChunk {
    RecordFindings found[CHUNK_RECORDS];
} RecordChunk;

typedef struct RecordsJob {
    const FshSplit *split;
    uint64_t chunk_records; /* at most CHUNK_RECORDS; the last chunk may have fewer */
    const FshManifest *manifest;
    const VerifyOptions *options;
    const Against *against;
    VerifyThread *threads;
    VerifyReport *report;
    Progress *progress;
    bool sums_pixels; /* the manifest tells the mean of this split */
} RecordsJob;

/* Returns whether the record tells the image's size, which decoding could contradict. Records of other
 * containers need not. */
static bool tells_size(const FshField *field, const FshManifest *manifest)
{
    return fsh_container_has(manifest->container, FSH_HAS_SIZES) || field->width || field->height ||
           field->channels;
}

/* Decodes the pixels that the field promises; a field that promises none is filled with what they are. */
static FshStatus decode_field(PixelReader *reader, const FshManifest *manifest, FshField *field,
                              const void *data, size_t bytes, FshError *failure)
{
    ImageInfo info = {0};
    FshStatus status = pixel_reader_decode(reader, field, data, bytes, 0, &info, failure);
    const bool sized = info.width && info.height; /* not of raw pixels */
    if (!tells_size(field, manifest)) {
        field->width = info.width;
        field->height = info.height;
        field->channels = status ? 0 : (uint8_t)reader->decoded.channels;
        return status;
    }
    if (sized && (info.width != field->width || info.height != field->height))
        return fsh_error_set(failure, FSH_ERR_MISMATCH,
                             "the image is %" PRIu32 "x%" PRIu32 ", its record says %" PRIu32 "x%" PRIu32,
                             info.width, info.height, field->width, field->height);
    if (status)
        return status;
    if (reader->decoded.channels != field->channels)
        return fsh_error_set(failure, FSH_ERR_MISMATCH,
                             "the image has %" PRIu32 " channels, its record says %u",
                             reader->decoded.channels, (unsigned)field->channels);
    if (sized && codec_of_format(info.format) != field->codec)
        return fsh_error_set(failure, FSH_ERR_MISMATCH, "the image is %s, its record says %s",
                             image_format_name(info.format), fsh_codec_name(field->codec));
    return FSH_OK;
}

/* Decodes a mask, and checks that its record tells its size and that no value is above those that
 * dataset.json tells. */
static FshStatus check_mask(PixelReader *reader, const FshManifest *manifest, const FshField *field,
                            const void *data, size_t bytes, PixelStatistics *statistics, FshError *failure)
{
    const uint32_t said = manifest->statistics.mask_classes;
    bool ignored = false;
    if (field->codec != FSH_CODEC_PNG || field->channels != 1)
        return fsh_error_set(failure, FSH_ERR_MISMATCH,
                             "a mask is a PNG of one channel; its record says %s of %u",
                             fsh_codec_name(field->codec), (unsigned)field->channels);
    FshStatus status =
        pixel_reader_mask(reader, data, bytes, (uint64_t)field->width * field->height, failure);
    if (status)
        return status;
    if (reader->decoded.width != field->width || reader->decoded.height != field->height)
        return fsh_error_set(failure, FSH_ERR_MISMATCH,
                             "the mask is %" PRIu32 "x%" PRIu32 ", its record says %" PRIu32 "x%" PRIu32,
                             reader->decoded.width, reader->decoded.height, field->width, field->height);
    PixelStatistics own = {0};
    stats_add_mask(&own, &reader->decoded, &ignored);
    if (said && own.mask_classes > said)
        return fsh_error_set(failure, FSH_ERR_MISMATCH,
                             "the mask has a value of %" PRIu32 ", and %s tells %" PRIu32
                             " classes; fpack --repair-manifest counts them again",
                             own.mask_classes - 1, FSH_MANIFEST_NAME, said);
    stats_merge(statistics, &own);
    return FSH_OK;
}

/* Checks what needs the field's bytes, unpacked. */
static FshStatus check_contents(const RecordsJob *job, VerifyThread *own, unsigned index,
                                RecordFindings *found)
{
    FshField *field = &found->sample.fields[index];
    PixelReader *reader = &own->reader.pixels;
    const bool thumbnail = job->options->pairs && job->manifest->kind == FSH_KIND_PAIRS;
    const bool decode = job->options->level >= VERIFY_DECODE;
    const void *data = NULL;
    size_t bytes = 0;
    if (!thumbnail && !decode && !job->against)
        return FSH_OK;
    FshStatus status = pixel_reader_bytes(reader, job->split, field, &data, &bytes, &found->failure);
    if (!status && decode && fsh_is_mask(job->manifest->kind, index)) {
        status = check_mask(reader, &job->report->manifest, field, data, bytes, &found->statistics,
                            &found->failure);
        found->decoded_count += !status;
    } else if (!status && decode) {
        status = decode_field(reader, job->manifest, field, data, bytes, &found->failure);
        found->decoded_count += !status;
        if (!status && job->sums_pixels)
            stats_add_pixels(&found->statistics, &reader->decoded);
    } else if (!status && thumbnail) {
        status = pixel_reader_decode(reader, field, data, bytes, LIKENESS_EDGE, NULL, &found->failure);
    }
    if (!status && thumbnail) {
        status = pixel_reader_shrink(reader, LIKENESS_EDGE, true, &own->thumbnail, &found->failure);
        if (!status)
            likeness_side(&own->thumbnail, &own->sides[index > 0]);
        if (!status && index > 0) { /* every other side against the first */
            const Likeness likeness = likeness_of(&own->sides[0], &own->sides[1]);
            if (!found->paired || likeness.likeness < found->likeness.likeness)
                found->likeness = likeness;
            found->paired = true;
        }
    }
    if (!status && job->against) {
        status = against_compare(job->against, &own->reader, field, data, bytes,
                                 fsh_is_mask(job->manifest->kind, index), &found->failure);
        found->compared_count += !status;
    }
    return status;
}

/* Returns whether two sizes are in the factor that dataset.json says; where it says none, any factor may be
 * meant. */
static bool sizes_fit(const VerifyReport *report, const FshField *first, const FshField *other)
{
    const uint32_t scale = report->manifest.pair_scale ? report->manifest.pair_scale : 1;
    const uint32_t factor = other->width / first->width;
    return other->width == (uint64_t)factor * first->width &&
           other->height == (uint64_t)factor * first->height &&
           (report->from_manifest ? factor == scale : factor >= 1 && factor <= FSH_PAIR_SCALE_MAX);
}

static FshStatus check_field(const RecordsJob *job, VerifyThread *own, unsigned index, RecordFindings *found)
{
    const FshField *field = &found->sample.fields[index], *first = &found->sample.fields[0];
    found->field = index;
    FshStatus status = FSH_OK;
    if (field->channels != 1 && field->channels != 3 && tells_size(field, job->manifest))
        status = fsh_error_set(&found->failure, FSH_ERR_CORRUPT, "%u channels, not 1 or 3",
                               (unsigned)field->channels);
    if (!status && field->codec == FSH_CODEC_RAW && (field->width == 0 || field->height == 0))
        status = fsh_error_set(&found->failure, FSH_ERR_CORRUPT, "%" PRIu32 "x%" PRIu32 " pixels",
                               field->width, field->height);
    if (!status)
        status = check_contents(job, own, index, found);
    if (!status && index && field->width && first->width && !sizes_fit(job->report, first, field))
        status = fsh_error_set(&found->failure, FSH_ERR_MISMATCH,
                               "sizes differ: %s is %" PRIu32 "x%" PRIu32 ", %s is %" PRIu32 "x%" PRIu32,
                               job->manifest->field_names[0], first->width, first->height,
                               job->manifest->field_names[index], field->width, field->height);
    return status;
}

/* Says in found->failure why the pair is suspicious. Returns FSH_ERR_MISMATCH. */
static FshStatus suspect(RecordFindings *found, double least)
{
    const Likeness *likeness = &found->likeness;
    found->suspicious = true;
    if (likeness->shifted)
        return fsh_error_set(
            &found->failure, FSH_ERR_MISMATCH,
            "suspicious: its sides do not look alike: likeness %.3f, less than %.3g; it is %.3f where one is "
            "shifted by %+.0f %% of the width and %+.0f %% of the height: another frame or crop of the "
            "scene?",
            likeness->likeness, least, likeness->likeness_there, 100 * likeness->shift_x,
            100 * likeness->shift_y);
    return fsh_error_set(&found->failure, FSH_ERR_MISMATCH,
                         "suspicious: its sides do not look alike: likeness %.3f, less than %.3g",
                         likeness->likeness, least);
}

/* Counts the images whose sources the record names, and those whose source is not there. Where the record has
 * failed, the sources from the failing side on are looked for: those before it were compared. */
static void count_sources(const RecordsJob *job, VerifyThread *own, bool failed, RecordFindings *found)
{
    for (unsigned i = 0; i < found->sample.field_count; i++) {
        const FshField *field = &found->sample.fields[i];
        found->source_count += field->source_bytes > 0;
        if (failed && i >= found->field)
            found->absent_count += against_lacks_source(job->against, &own->reader, field);
    }
}

static FshStatus check_record(const RecordsJob *job, uint64_t item, VerifyThread *own, RecordFindings *found,
                              FshError *error)
{
    found->failure.status = FSH_OK;
    found->field = found->decoded_count = found->compared_count = 0;
    found->source_count = found->absent_count = 0;
    found->paired = found->suspicious = false;
    found->likeness = (Likeness){0};
    found->statistics = (PixelStatistics){0};
    FshStatus status = fsh_sample_get(job->split, item, &found->sample, &found->failure);
    found->readable = !status;
    for (unsigned i = 0; !status && i < found->sample.field_count; i++)
        status = check_field(job, own, i, found);
    if (found->readable && job->against)
        count_sources(job, own, status != FSH_OK, found);
    if (found->readable && fsh_sample_check_read(job->split, &found->sample, &found->failure))
        status = FSH_ERR_SYSTEM; /* whatever else seemed wrong */
    if (!status && found->paired && !(found->likeness.likeness >= job->options->likeness_min))
        status = suspect(found, job->options->likeness_min);
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "split %s sample %" PRIu64 ": %s", job->split->info->name, item,
                             found->failure.message);
    found->wrong = status != FSH_OK;
    return FSH_OK;
}

/* Returns the first record of a chunk; *count_ret: how many it has. */
static uint64_t chunk_begin(const RecordsJob *job, uint64_t chunk, uint64_t *count_ret)
{
    const uint64_t first = chunk * job->chunk_records, left = job->split->sample_count - first;
    *count_ret = left < job->chunk_records ? left : job->chunk_records;
    return first;
}

static FshStatus check_chunk(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    const RecordsJob *job = context;
    RecordChunk *chunk = slot;
    uint64_t count = 0;
    const uint64_t first = chunk_begin(job, item, &count);
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < count && !status; i++)
        status = check_record(job, first + i, &job->threads[thread], &chunk->found[i], error);
    return status;
}

/* ---- gathering, in the order of the records ---- */

static void count_images(VerifyReport *report, const FshSample *sample)
{
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        report->image_count++;
        if (field->width && field->height) {
            histogram_add(&report->widths, field->width);
            histogram_add(&report->heights, field->height);
        }
        histogram_add(&report->bytes, field->bytes);
        report->gray_count += field->channels == 1;
        report->colour_count += field->channels == 3;
        report->codec_counts[(unsigned)field->codec % VERIFY_CODECS]++;
        report->compressed_count += field->compression != FSH_COMPRESSION_NONE;
    }
}

/* ---- counted while libfshard checks ---- */

/* Counts a sample. Returns false if the sample fails one of check_field's checks that need no decoding. */
bool verify_tally_sample(const FshSample *sample, void *own)
{
    VerifyTally *tally = own;
    const FshField *first = &sample->fields[0];
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        if ((field->channels != 1 && field->channels != 3) ||
            (field->codec == FSH_CODEC_RAW && (field->width == 0 || field->height == 0)))
            return false;
        if (i == 0 || field->width == 0 || first->width == 0)
            continue;
        const uint32_t factor = field->width / first->width;
        if (factor < 1 || field->width != (uint64_t)factor * first->width ||
            field->height != (uint64_t)factor * first->height)
            return false;
        tally->factor_min = tally->factor_min && tally->factor_min < factor ? tally->factor_min : factor;
        tally->factor_max = factor > tally->factor_max ? factor : tally->factor_max;
    }
    count_images(&tally->images, sample);
    return true;
}

bool verify_add_tally(VerifyReport *report, const VerifyTally *tally)
{
    const VerifyReport *images = &tally->images;
    const uint32_t scale = report->manifest.pair_scale ? report->manifest.pair_scale : 1;
    const uint32_t least = report->from_manifest ? scale : 1;
    const uint32_t most = report->from_manifest ? scale : FSH_PAIR_SCALE_MAX;
    if (tally->factor_max && (tally->factor_min < least || tally->factor_max > most))
        return false;
    report->image_count += images->image_count;
    histogram_merge(&report->widths, &images->widths);
    histogram_merge(&report->heights, &images->heights);
    histogram_merge(&report->bytes, &images->bytes);
    report->gray_count += images->gray_count;
    report->colour_count += images->colour_count;
    for (size_t i = 0; i < VERIFY_CODECS; i++)
        report->codec_counts[i] += images->codec_counts[i];
    report->compressed_count += images->compressed_count;
    return true;
}

/* ---- gathering, of the rest ---- */

static void count_pair(VerifyReport *report, double likeness)
{
    if (report->pair_count++ == 0 || likeness < report->likeness_least)
        report->likeness_least = likeness;
    report->likeness_sum += likeness;
}

/* Adds a suspicious pair by its index in the part of a split that is looked at. FSH_ERR_MEMORY. */
static FshStatus add_suspect(VerifyReport *report, uint64_t index, double likeness, FshError *error)
{
    if (report->suspect_count == report->suspect_capacity) {
        const size_t larger = report->suspect_capacity ? 2 * report->suspect_capacity : 16;
        VerifySuspect *grown = reallocarray(report->suspects, larger, sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
        report->suspects = grown;
        report->suspect_capacity = larger;
    }
    report->suspects[report->suspect_count++] = (VerifySuspect){.index = index, .likeness = likeness};
    return FSH_OK;
}

/* Adds a record's findings to the report, and the bytes of its fields to *bytes. */
static FshStatus gather_record(const RecordsJob *job, uint64_t item, const RecordFindings *found,
                               uint64_t *bytes, FshError *error)
{
    VerifyReport *report = job->report;
    FshStatus status = FSH_OK;
    if (found->readable) {
        count_images(report, &found->sample);
        for (unsigned i = 0; i < found->sample.field_count; i++)
            *bytes += found->sample.fields[i].bytes;
    }
    report->decoded_count += found->decoded_count;
    stats_merge(&report->pixels, &found->statistics);
    report->compared_count += found->compared_count;
    report->source_count += found->source_count;
    report->absent_count += found->absent_count;
    if (found->paired)
        count_pair(report, found->likeness.likeness);
    if (found->suspicious)
        status = add_suspect(report, item, found->likeness.likeness, error);
    /* A record whose CRC is wrong is in the report already; that it does not decode either is no news. */
    if (found->wrong && !status)
        status = verify_add_sample_problem(report, job->split, item, found->readable ? &found->sample : NULL,
                                           found->field, &found->failure, error);
    for (unsigned i = 0; found->readable && job->against && i < found->sample.field_count && !status; i++)
        status = source_set_add(&report->sources, found->sample.fields[i].source,
                                found->sample.fields[i].source_bytes, job->against->has_recipe, error);
    return status;
}

/* Returns whether mean and deviation are those of this split: of train or, where there is none, of the first.
 */
static bool is_measured_split(const FshManifest *manifest, const char *name)
{
    const char *measured = manifest->split_count ? manifest->splits[0].name : "";
    for (size_t i = 0; i < manifest->split_count; i++)
        measured = strcmp(manifest->splits[i].name, "train") == 0 ? "train" : measured;
    return strcmp(measured, name) == 0;
}

static FshStatus gather(uint64_t item, void *slot, void *context, FshError *error)
{
    const RecordsJob *job = context;
    const RecordChunk *chunk = slot;
    uint64_t count = 0, bytes = 0, wrong = 0;
    const uint64_t first = chunk_begin(job, item, &count);
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < count && !status; i++) {
        status = gather_record(job, first + i, &chunk->found[i], &bytes, error);
        wrong += chunk->found[i].wrong;
    }
    progress_add(job->progress, count, bytes, wrong);
    return status;
}

/* Returns the records of a chunk: large images are one by one, so that all threads end at about the same
 * time. */
static uint64_t records_in_chunk(const FshSplit *split)
{
    const uint64_t each = split->sample_count ? fsh_split_bytes(split) / split->sample_count + 1 : 1;
    const uint64_t count = CHUNK_BYTES / each;
    return count < 1 ? 1 : count > CHUNK_RECORDS ? CHUNK_RECORDS : count;
}

FshStatus verify_records(const FshSplit *split, const VerifyOptions *options, const Against *against,
                         Progress *progress, VerifyReport *report, FshError *error)
{
    RecordsJob job = {.split = split,
                      .chunk_records = records_in_chunk(split),
                      .manifest = fsh_manifest(split->dataset),
                      .options = options,
                      .against = against,
                      .threads = calloc((size_t)options->jobs, sizeof *job.threads),
                      .report = report,
                      .progress = progress};
    if (!job.threads)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", split->info->name);
    job.sums_pixels =
        options->level >= VERIFY_DECODE && is_measured_split(&report->manifest, split->info->name);
    FshStatus status = FSH_OK;
    for (int thread = 0; options->pairs && thread < options->jobs && !status; thread++) {
        job.threads[thread].sides = malloc(2 * sizeof *job.threads[thread].sides);
        if (!job.threads[thread].sides)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", split->info->name);
    }
    const uint64_t chunk_count = (split->sample_count + job.chunk_records - 1) / job.chunk_records;
    if (!status)
        status = pool_run_ordered(options->jobs, chunk_count, 0, sizeof(RecordChunk), check_chunk, gather,
                                  NULL, &job, error);
    for (int thread = 0; thread < options->jobs; thread++) {
        against_reader_free(&job.threads[thread].reader);
        image_free(&job.threads[thread].thumbnail);
        free(job.threads[thread].sides);
    }
    free(job.threads);
    return status;
}
