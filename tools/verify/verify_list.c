#include "tools/verify/verify_list.h"

#include <inttypes.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/text.h"

static void print_escaped(FILE *stream, const char *text, size_t length)
{
    for (size_t i = 0, bytes = 0; i < length; i += bytes) {
        const unsigned char byte = (unsigned char)text[i];
        bool control = false;
        bytes = text_character(text + i, length - i, &control);
        if (byte == '\\')
            (void)fputs("\\\\", stream);
        else if (byte == '\t')
            (void)fputs("\\t", stream);
        else if (byte == '\n')
            (void)fputs("\\n", stream);
        else if (!control)
            (void)fwrite(text + i, 1, bytes, stream);
        for (size_t j = 0; control && byte != '\t' && byte != '\n' && j < bytes; j++)
            (void)fprintf(stream, "\\x%02X", (unsigned char)text[i + j]);
    }
}

static void print_fields(const FshManifest *manifest, const FshSample *sample, FILE *stream)
{
    for (unsigned i = 0; i < sample->field_count && i < manifest->field_count; i++) {
        (void)fputc(i ? ',' : '\t', stream);
        print_escaped(stream, manifest->field_names[i], strlen(manifest->field_names[i]));
    }
    for (unsigned i = 0; i < sample->field_count; i++)
        (void)fprintf(stream, "%c%" PRIu32 "x%" PRIu32 "x%u", i ? ',' : '\t', sample->fields[i].width,
                      sample->fields[i].height, (unsigned)sample->fields[i].channels);
    for (unsigned i = 0; i < sample->field_count; i++)
        (void)fprintf(stream, "%c%s", i ? ',' : '\t', fsh_codec_name(sample->fields[i].codec));
    for (unsigned i = 0; i < sample->field_count; i++)
        (void)fprintf(stream, "%c%zu", i ? ',' : '\t', sample->fields[i].bytes);
}

static void print_sample(const FshManifest *manifest, const FshSplit *split, uint64_t index, FILE *stream,
                         uint64_t *bad_count)
{
    FshSample sample;
    (void)fprintf(stream, "%s\t%" PRIu64 "\t", split->info->name, index);
    if (fsh_sample_get(split, index, &sample, NULL)) {
        (*bad_count)++;
        (void)fputs("?\t?\t?\t?\t?\t?\t?\n", stream);
        return;
    }
    print_escaped(stream, sample.key, sample.key_bytes);
    if (sample.label >= 0 && (uint64_t)sample.label < manifest->class_count) {
        const char *name = manifest->class_names[sample.label];
        (void)fprintf(stream, "\t%" PRId64 "\t", sample.label);
        print_escaped(stream, name, strlen(name));
    } else {
        (void)fputs("\t-\t-", stream);
    }
    print_fields(manifest, &sample, stream);
    (void)fputc('\n', stream);
}

FshStatus verify_list(const FshDataset *dataset, FILE *stream, uint64_t *bad_count_ret, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    *bad_count_ret = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[i].name);
        for (uint64_t j = 0; j < split->sample_count && !ferror(stream); j++) {
            if (interrupt_requested())
                return fsh_error_set(error, FSH_ERR_INTERRUPTED, "%s: interrupted", fsh_path(dataset));
            print_sample(manifest, split, j, stream, bad_count_ret);
        }
    }
    return FSH_OK;
}
