#include "imaging/y4m.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER_BYTES_MAX = 256, /* ours have 70; those of others may have comments */
    EDGE_MAX = 65500,       /* as libjpeg's */
};

static const char magic[] = "YUV4MPEG2 ", frame[] = "FRAME\n";

static const struct {
    const char *name;
    PlanesChroma chroma;
} chromas[] = {{"420jpeg", PLANES_420}, {"444", PLANES_444}, {"mono", PLANES_GRAY}};

/* ---- reading ---- */

/* What the words of a header say. */
typedef struct Y4mHeader {
    uint64_t width, height;
    char chroma[24], range[16];
    bool interlaced;
} Y4mHeader;

/* Returns the number that the text is, at most EDGE_MAX + 1; 0 for any other text. */
static uint64_t take_edge(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9' && number <= EDGE_MAX; text++)
        number = 10 * number + (uint64_t)(*text - '0');
    return *text ? (number > EDGE_MAX ? EDGE_MAX + 1 : 0) : number;
}

static void take_word(Y4mHeader *header, const char *word)
{
    static const char range[] = "XCOLORRANGE=";
    if (*word == 'W')
        header->width = take_edge(word + 1);
    else if (*word == 'H')
        header->height = take_edge(word + 1);
    else if (*word == 'C')
        (void)snprintf(header->chroma, sizeof header->chroma, "%s", word + 1);
    else if (*word == 'I')
        header->interlaced = strcmp(word, "Ip") != 0 && strcmp(word, "I?") != 0;
    else if (strncmp(word, range, strlen(range)) == 0)
        (void)snprintf(header->range, sizeof header->range, "%s", word + strlen(range));
}

/* Reads the words of the first line. Returns the length of the line with its end; 0: there is none. */
static size_t read_words(const uint8_t *bytes, size_t length, Y4mHeader *header)
{
    char line[HEADER_BYTES_MAX], *rest = NULL;
    const size_t most = length < sizeof line ? length : sizeof line;
    const uint8_t *end = memchr(bytes, '\n', most);
    if (!end || memchr(bytes, 0, (size_t)(end - bytes)))
        return 0;
    memcpy(line, bytes, (size_t)(end - bytes));
    line[end - bytes] = '\0';
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        take_word(header, word);
    return (size_t)(end - bytes) + 1;
}

static FshStatus find_chroma(const Y4mHeader *header, PlanesChroma *chroma_ret, FshError *error)
{
    for (size_t i = 0; i < sizeof chromas / sizeof *chromas; i++)
        if (strcmp(header->chroma, chromas[i].name) == 0) {
            *chroma_ret = chromas[i].chroma;
            return FSH_OK;
        }
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "a Y4M of C%s; C420jpeg, C444 and Cmono are read: give ffmpeg -pix_fmt yuvj420p",
                         header->chroma);
}

FshStatus y4m_open(const void *bytes, size_t length, ImageInfo *info, Planes *planes_ret, FshError *error)
{
    Y4mHeader header = {.chroma = "420jpeg"}; /* the default */
    const uint8_t *first = bytes;
    *info = (ImageInfo){.format = IMAGE_Y4M, .orientation = 1};
    size_t at = read_words(first, length, &header);
    if (!at || length - at < strlen(frame) || memcmp(first + at, frame, strlen(frame)) != 0 ||
        !header.width || !header.height || header.width > EDGE_MAX || header.height > EDGE_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "a Y4M whose header is damaged");
    at += strlen(frame);
    PlanesChroma chroma = PLANES_GRAY;
    FshStatus status = find_chroma(&header, &chroma, error);
    if (status)
        return status;
    if (header.interlaced || strcmp(header.range, "FULL") != 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "a Y4M that is %s; give ffmpeg -pix_fmt yuvj420p",
                             header.interlaced ? "interlaced"
                                               : "not said to be of full range (XCOLORRANGE=FULL)");
    *planes_ret = (Planes){.bytes = first + at,
                           .width = (uint32_t)header.width,
                           .height = (uint32_t)header.height,
                           .chroma = chroma};
    info->width = info->stored_width = planes_ret->width;
    info->height = info->stored_height = planes_ret->height;
    info->channels = chroma == PLANES_GRAY ? 1 : 3;
    const uint64_t wanted = planes_bytes(chroma, planes_ret->width, planes_ret->height);
    if (length - at > wanted && length - at - wanted > strlen(frame) &&
        memcmp(first + at + wanted, frame, strlen(frame)) == 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "a Y4M of several frames; it must be one image");
    if (length - at != wanted)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "a Y4M of %" PRIu32 "x%" PRIu32 " has %" PRIu64 " bytes of samples, not %zu",
                             planes_ret->width, planes_ret->height, wanted, length - at);
    return FSH_OK;
}

/* ---- writing ---- */

/* Writes the header, with its NUL. Returns its length. */
static size_t write_header(char text[HEADER_BYTES_MAX], PlanesChroma chroma, uint32_t width, uint32_t height)
{
    const char *name = "";
    for (size_t i = 0; i < sizeof chromas / sizeof *chromas; i++)
        if (chromas[i].chroma == chroma)
            name = chromas[i].name;
    return (size_t)snprintf(text, HEADER_BYTES_MAX,
                            "%sW%" PRIu32 " H%" PRIu32 " F1:1 Ip A1:1 C%s XCOLORRANGE=FULL\n%s", magic, width,
                            height, name, frame);
}

uint64_t y4m_bytes(PlanesChroma chroma, uint32_t width, uint32_t height)
{
    char text[HEADER_BYTES_MAX];
    return write_header(text, chroma, width, height) + planes_bytes(chroma, width, height);
}

FshStatus y4m_begin(Buffer *file, PlanesChroma chroma, uint32_t width, uint32_t height, uint8_t **planes_ret,
                    FshError *error)
{
    char text[HEADER_BYTES_MAX];
    const size_t header_bytes = write_header(text, chroma, width, height);
    const uint64_t bytes = planes_bytes(chroma, width, height);
    file->length = 0;
    FshStatus status = buffer_reserve(file, header_bytes + (size_t)bytes, error);
    if (status)
        return status;
    memcpy(file->bytes, text, header_bytes);
    file->length = header_bytes + (size_t)bytes;
    *planes_ret = file->bytes + header_bytes;
    return FSH_OK;
}
