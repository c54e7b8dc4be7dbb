#include "tools/resize/resize_findings.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/job/notes.h"

FshStatus findings_open(ResizeFindings *findings, FILE *stream, bool json, const char *report, bool force,
                        FshError *error)
{
    *findings = (ResizeFindings){.stream = stream, .json = json};
    return resize_report_open(&findings->report, report, false, force, error);
}

static void begin_object(ResizeFindings *findings)
{
    if (!findings->begun)
        (void)fputs("{\"problems\":[", findings->stream);
    findings->begun = true;
}

/* Begins the report, when there is something to tell: before that the check may be refused. */
static FshStatus begin_report(ResizeFindings *findings, FshError *error)
{
    FshStatus status = findings->report_begun ? FSH_OK : resize_report_begin(&findings->report, error);
    findings->report_begun = true;
    return status;
}

/* Writes to key what the counts call a finding: "source_gone" for "source gone". Returns key. */
static const char *kind_key(ResizeFinding finding, char key[32])
{
    (void)snprintf(key, 32, "%s", resize_finding_names[finding]);
    for (char *space = strchr(key, ' '); space; space = strchr(space, ' '))
        *space = '_';
    return key;
}

static FshStatus add_object(ResizeFindings *findings, ResizeFinding finding, const char *path,
                            const char *reason, FshError *error)
{
    char kind[32];
    json_t *object = note_json(kind_key(finding, kind), path, reason);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for what was found");
    const bool first = !findings->begun;
    begin_object(findings);
    (void)fprintf(findings->stream, "%s%s", first ? "" : ",", text);
    free(text);
    return FSH_OK;
}

void findings_add(ResizeFinding finding, const char *path, const char *reason, void *context)
{
    ResizeFindings *findings = context;
    FshStatus status = FSH_OK;
    FshError error = {0};
    if (findings->json)
        status = add_object(findings, finding, path, reason, &error);
    else if (!resize_report_is_stdout(findings->report.path))
        note_print(findings->stream, resize_finding_names[finding], path, reason, "\n");
    if (!status)
        status = begin_report(findings, &error);
    if (!status)
        status =
            resize_report_add_finding(&findings->report, path, resize_finding_names[finding], reason, &error);
    if (!status || findings->status)
        return;
    findings->status = status;
    findings->error = error;
}

FshStatus findings_close(ResizeFindings *findings, const ResizeCheckSummary *summary, FshError *error)
{
    FshStatus status = findings->status;
    if (status && error)
        *error = findings->error;
    if (findings->json && summary) {
        begin_object(findings);
        (void)fputs("],", findings->stream);
        FshStatus printed = resize_check_print_json(findings->stream, summary, status ? NULL : error);
        status = status ? status : printed;
    } else if (findings->begun) {
        (void)fputs("],\"stopped\":true}\n", findings->stream);
    }
    if (!status && summary)
        status = begin_report(findings, error);
    if (!findings->report_begun)
        resize_report_undo(&findings->report);
    FshStatus closed = resize_report_close(&findings->report, status ? NULL : error);
    return status ? status : closed;
}
