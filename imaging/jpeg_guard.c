#include "imaging/jpeg_guard.h"

#include <jerror.h>

/* Statuses of libjpeg's error codes. Any other code means damage in the file. */
static const struct {
    int code;
    FshStatus status;
    const char *message; /* NULL: libjpeg's own */
} meanings[] = {
    {JERR_OUT_OF_MEMORY, FSH_ERR_MEMORY, "no memory to decode the JPEG"},
    {JERR_BAD_PRECISION, FSH_ERR_UNSUPPORTED,
     "a JPEG of more than 8 bits a sample (12-bit) cannot be read; convert it to 8 bits or to PNG"},
    {JERR_SOF_UNSUPPORTED, FSH_ERR_UNSUPPORTED,
     "a JPEG of a kind that libjpeg-turbo cannot read (lossless or hierarchical)"},
    {JERR_CONVERSION_NOTIMPL, FSH_ERR_UNSUPPORTED, "a JPEG in a colour space that cannot be converted"},
    {JERR_EMPTY_IMAGE, FSH_ERR_UNSUPPORTED, "a JPEG without a height in its header (DNL) cannot be read"},
    {JERR_IMAGE_TOO_BIG, FSH_ERR_MISMATCH, "an edge longer than a JPEG can have (65500 pixels)"},
#if JPEG_LIB_VERSION < 70 /* the others, Ubuntu's among them, have no such message */
    {JERR_ARITH_NOTIMPL, FSH_ERR_UNSUPPORTED,
     "an arithmetic-coded JPEG, which this libjpeg was built without"},
#endif
};

/* Warnings about lost or invented pixels. */
static const int damages[] = {JWRN_JPEG_EOF,       JWRN_HIT_MARKER,  JWRN_HUFF_BAD_CODE,
                              JWRN_ARITH_BAD_CODE, JWRN_MUST_RESYNC, JWRN_BOGUS_PROGRESSION};

static JpegGuard *guard_of(j_common_ptr cinfo)
{
    return (JpegGuard *)(void *)cinfo->err; /* the manager is the guard's first member */
}

_Noreturn void jpeg_guard_fail(JpegGuard *guard, FshStatus status)
{
    guard->status = status;
    longjmp(guard->escape, 1); // NOLINT(cert-err52-cpp): libjpeg knows no other way out
}

static void set_message(JpegGuard *guard, j_common_ptr cinfo, FshStatus status, const char *message)
{
    char text[JMSG_LENGTH_MAX];
    if (!message) {
        cinfo->err->format_message(cinfo, text);
        if (text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z')
            text[0] = (char)(text[0] - 'A' + 'a'); /* it follows "PATH: " */
        message = text;
    }
    (void)fsh_error_set(guard->error, status, "%s", message);
}

static void on_error(j_common_ptr cinfo)
{
    JpegGuard *guard = guard_of(cinfo);
    FshStatus status = FSH_ERR_CORRUPT;
    const char *message = NULL;
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].code == cinfo->err->msg_code) {
            status = meanings[i].status;
            message = meanings[i].message;
        }
    }
    set_message(guard, cinfo, status, message);
    jpeg_guard_fail(guard, status);
}

/* Returns whether bytes were left over between one scan of a progressive file and the marker of the next,
 * which means that the scan was read out of step. At the end of the image such bytes may be padding, as some
 * cameras write it. */
static bool is_scan_out_of_step(j_common_ptr cinfo)
{
    enum { MARKER_PARAMETER = 1 };
    const struct jpeg_decompress_struct *decompress = (j_decompress_ptr)cinfo;
    return cinfo->err->msg_code == JWRN_EXTRANEOUS_DATA && cinfo->is_decompressor &&
           decompress->progressive_mode && decompress->input_scan_number > 0 &&
           cinfo->err->msg_parm.i[MARKER_PARAMETER] != JPEG_EOI;
}

static void on_message(j_common_ptr cinfo, int level)
{
    if (level >= 0)
        return; /* traces */
    JpegGuard *guard = guard_of(cinfo);
    guard->warnings_count++;
    if (!guard->strict)
        return;
    bool is_damage = is_scan_out_of_step(cinfo);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++)
        is_damage = is_damage || damages[i] == cinfo->err->msg_code;
    if (is_damage) {
        set_message(guard, cinfo, FSH_ERR_CORRUPT, NULL);
        jpeg_guard_fail(guard, FSH_ERR_CORRUPT);
    }
}

void jpeg_guard_warn(JpegGuard *guard, FshStatus status, const char *message)
{
    guard->warnings_count++;
    if (guard->strict)
        jpeg_guard_fail(guard, fsh_error_set(guard->error, status, "%s", message));
}

/* Prints nothing, where libjpeg would print. */
static void on_output(j_common_ptr cinfo)
{
    (void)cinfo;
}

void jpeg_guard_init(JpegGuard *guard)
{
    (void)jpeg_std_error(&guard->manager);
    guard->manager.error_exit = on_error;
    guard->manager.emit_message = on_message;
    guard->manager.output_message = on_output;
}

void jpeg_guard_reset(JpegGuard *guard, bool strict)
{
    guard->strict = strict;
    guard->warnings_count = 0;
}

FshStatus jpeg_guard(JpegGuard *guard, void (*step)(void *context), void *context, FshError *error)
{
    guard->error = error;
    guard->status = FSH_OK;
    if (setjmp(guard->escape) == 0) // NOLINT(cert-err52-cpp): libjpeg knows no other way out
        step(context);
    return guard->status;
}
