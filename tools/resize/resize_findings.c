#include "tools/resize/resize_findings.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"
#include "common/program.h"

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

/* Not before there is something to tell: the check may be refused. */
static FshStatus begin_report(ResizeFindings *findings, FshError *error)
{
    FshStatus status = findings->report_begun ? FSH_OK : resize_report_begin(&findings->report, error);
    findings->report_begun = true;
    return status;
}

/* "source gone" as a key, as the counts have it: "source_gone". */
static json_t *kind_json(ResizeFinding finding)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s", resize_finding_names[finding]);
    for (char *space = strchr(name, ' '); space; space = strchr(space, ' '))
        *space = '_';
    return json_string(name);
}

static FshStatus add_object(ResizeFindings *findings, ResizeFinding finding, const char *path,
                            const char *reason, FshError *error)
{
    json_t *object = json_pack("{s:o, s:o, s:o}", "kind", kind_json(finding), "path", json_text(path),
                               "reason", json_text(reason));
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

static void add_line(const ResizeFindings *findings, ResizeFinding finding, const char *path,
                     const char *reason)
{
    FILE *stream = findings->stream;
    (void)fprintf(stream, "%s: ", resize_finding_names[finding]);
    program_print_text(stream, path);
    (void)fputs(": ", stream);
    program_print_text(stream, reason);
    (void)fputc('\n', stream);
}

void findings_add(ResizeFinding finding, const char *path, const char *reason, void *context)
{
    ResizeFindings *findings = context;
    FshStatus status = FSH_OK;
    FshError error = {0};
    if (findings->json)
        status = add_object(findings, finding, path, reason, &error);
    else if (!resize_report_is_stdout(findings->report.path))
        add_line(findings, finding, path, reason);
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
