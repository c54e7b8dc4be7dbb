#include <inttypes.h>
#include <stdlib.h>

#include "common/json_text.h"
#include "tools/verify/verify_report.h"

/* A remark's status is FSH_OK, which has no name of a kind. */
static json_t *problems_to_json(const VerifyProblem *problems, size_t count)
{
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < count && !failed; i++) {
        const VerifyProblem *problem = &problems[i];
        failed |= json_array_append_new(
            array, json_pack("{s:o, s:o, s:o, s:o, s:o, s:s}", "file", json_text(problem->file), "record",
                             problem->record >= 0 ? json_integer((json_int_t)problem->record) : json_null(),
                             "key", json_text(problem->key), "source", json_text(problem->source), "reason",
                             json_text(problem->reason), "kind",
                             problem->status ? fsh_strerror(problem->status) : "remark"));
    }
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

json_t *verify_problems_to_json(const VerifyReport *report)
{
    return problems_to_json(report->problems, report->problem_count);
}

static json_t *splits_to_json(const VerifyReport *report)
{
    json_t *splits = json_object();
    int failed = !splits;
    for (size_t i = 0; report->opened && i < report->manifest.split_count && !failed; i++) {
        const VerifySplit *split = &report->splits[i];
        json_t *classes = json_object();
        failed |= !classes;
        for (size_t c = 0; c < report->manifest.class_count && !failed; c++)
            failed |= json_object_set_new(classes, report->manifest.class_names[c],
                                          json_integer((json_int_t)split->class_counts[c]));
        failed |=
            json_object_set_new(splits, split->name,
                                json_pack("{s:I, s:I, s:I, s:o}", "files", (json_int_t)split->file_count,
                                          "samples", (json_int_t)split->sample_count, "bytes",
                                          (json_int_t)split->bytes, "classes", classes));
    }
    if (failed) {
        json_decref(splits);
        return NULL;
    }
    return splits;
}

/* Returns [[first value of the range, count], …], from the first range that holds something to the last. */
static json_t *histogram_to_json(const Histogram *histogram)
{
    size_t begin, end;
    json_t *array = json_array();
    int failed = !array;
    histogram_range(histogram, &begin, &end);
    for (size_t i = begin; i < end && !failed; i++)
        failed |= json_array_append_new(
            array, json_pack("[I, I]", (json_int_t)histogram_bin_begin(i), (json_int_t)histogram->counts[i]));
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *images_to_json(const VerifyReport *report)
{
    json_t *codecs = json_object();
    int failed = !codecs;
    for (unsigned codec = 0; codec < VERIFY_CODECS && !failed; codec++) {
        if (report->codec_counts[codec])
            failed |= json_object_set_new(codecs, fsh_codec_name((FshCodec)codec),
                                          json_integer((json_int_t)report->codec_counts[codec]));
    }
    if (failed) {
        json_decref(codecs);
        return NULL;
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:[I, I], s:[I, I], s:o, s:o, s:o}", "count",
                     (json_int_t)report->image_count, "decoded", (json_int_t)report->decoded_count,
                     "compared", (json_int_t)report->compared_count, "gray", (json_int_t)report->gray_count,
                     "compressed", (json_int_t)report->compressed_count, "codecs", codecs, "width",
                     (json_int_t)report->widths.minimum, (json_int_t)report->widths.maximum, "height",
                     (json_int_t)report->heights.minimum, (json_int_t)report->heights.maximum, "widths",
                     histogram_to_json(&report->widths), "heights", histogram_to_json(&report->heights),
                     "bytes", histogram_to_json(&report->bytes));
}

/* Returns [{split, index, likeness}, …], the least alike first. */
static json_t *suspects_to_json(const VerifyReport *report)
{
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < report->suspect_count && !failed; i++) {
        const VerifySuspect *suspect = &report->suspects[i];
        failed |= json_array_append_new(
            array, json_pack("{s:s, s:I, s:f}", "split", report->splits[suspect->split].name, "index",
                             (json_int_t)suspect->index, "likeness", suspect->likeness));
    }
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

/* Returns {class: what people call it}, of those that have a name. */
static json_t *display_names_to_json(const FshManifest *manifest)
{
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; i < manifest->class_count && !failed; i++) {
        if (manifest->class_display_names[i][0])
            failed |= json_object_set_new(object, manifest->class_names[i],
                                          json_text(manifest->class_display_names[i]));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *mask_names_to_json(const FshManifest *manifest)
{
    json_t *array = json_array();
    int failed = !array;
    for (size_t i = 0; i < manifest->mask_name_count && !failed; i++)
        failed |= json_array_append_new(array, json_text(manifest->mask_names[i]));
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

json_t *verify_to_json(const VerifyReport *report, const VerifyOptions *options)
{
    static const char *const levels[] = {
        [VERIFY_QUICK] = "quick", [VERIFY_RECORDS] = "records", [VERIFY_DECODE] = "decode"};
    json_t *object = json_pack("{s:o, s:b, s:s, s:o, s:o, s:o, s:o}", "path", json_text(report->name), "ok",
                               report->problem_count == 0, "level", levels[options->level], "problems",
                               verify_problems_to_json(report), "remarks",
                               problems_to_json(report->remarks, report->remark_count), "splits",
                               splits_to_json(report), "seconds", json_measured(report->seconds));
    int failed = !object;
    if (!failed && report->opened)
        failed |= json_object_set_new(object, "id", json_string(report->manifest.id)) ||
                  json_object_set_new(object, "container",
                                      json_string(fsh_container_name(report->manifest.container)));
    if (!failed && report->opened && report->manifest.class_display_names)
        failed |= json_object_set_new(object, "class_names", display_names_to_json(&report->manifest));
    if (!failed && report->opened && report->manifest.mask_names)
        failed |= json_object_set_new(object, "mask_class_names", mask_names_to_json(&report->manifest));
    if (!failed && report->opened && report->image_count)
        failed |= json_object_set_new(object, "images", images_to_json(report));
    if (!failed && report->part.count)
        failed |= json_object_set_new(
            object, "part",
            json_pack("[I, I]", (json_int_t)report->part.index, (json_int_t)report->part.count));
    if (!failed && report->opened && options->against && !report->part.count && !verify_root_is_wrong(report))
        failed |= json_object_set_new(object, "not_packed", json_integer((json_int_t)report->missing.count));
    if (!failed && report->opened && options->against)
        failed |=
            json_object_set_new(object, "sources_missing", json_integer((json_int_t)report->absent_count));
    if (!failed && report->pair_count)
        failed |=
            json_object_set_new(object, "pairs",
                                json_pack("{s:I, s:f, s:f, s:o}", "count", (json_int_t)report->pair_count,
                                          "likeness_least", report->likeness_least, "likeness_mean",
                                          report->likeness_sum / (double)report->pair_count, "suspicious",
                                          suspects_to_json(report)));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}
