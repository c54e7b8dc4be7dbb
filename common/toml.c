#include "common/toml.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

typedef struct TomlLine {
    const char *path;
    size_t number; /* from 1 */
    const char *at, *end;
} TomlLine;

static FshStatus refuse(const TomlLine *line, FshError *error, const char *reason)
{
    return fsh_error_set(error, FSH_ERR_USAGE, "%s:%zu: %s", line->path, line->number, reason);
}

static void skip_blanks(TomlLine *line)
{
    while (line->at < line->end && (*line->at == ' ' || *line->at == '\t' || *line->at == '\r'))
        line->at++;
}

static bool at_line_end(TomlLine *line)
{
    skip_blanks(line);
    return line->at == line->end || *line->at == '#';
}

/* Reads a basic ("…", with escapes) or literal ('…') string into a new text; the quote is at line->at. */
static FshStatus read_string(TomlLine *line, char **text_ret, FshError *error)
{
    static const char escapes[] = "\"\\bfnrt/", meanings[] = "\"\\\b\f\n\r\t/";
    const char quote = *line->at++;
    size_t length = 0;
    char *text = malloc((size_t)(line->end - line->at) + 1);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
    while (line->at < line->end && *line->at != quote) {
        char letter = *line->at++;
        if (letter == '\\' && quote == '"') {
            const char *escape = line->at < line->end ? strchr(escapes, *line->at) : NULL;
            if (!escape || !*escape) {
                free(text);
                return refuse(line, error,
                              "after a backslash only one of \" \\ b f n r t is understood; 'single quotes' "
                              "take a text as it is");
            }
            letter = meanings[escape - escapes];
            line->at++;
        }
        text[length++] = letter;
    }
    text[length] = '\0';
    if (line->at == line->end) {
        free(text);
        return refuse(line, error, "a text has no closing quote");
    }
    line->at++;
    *text_ret = text;
    return FSH_OK;
}

static bool is_bare(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

static FshStatus read_key(TomlLine *line, char **key_ret, FshError *error)
{
    if (*line->at == '"' || *line->at == '\'')
        return read_string(line, key_ret, error);
    if (*line->at == '[')
        return refuse(
            line, error,
            "tables ([name]) are not understood here, but for one [recipe] after the options, which "
            "stand at the top, one a line");
    const char *begin = line->at;
    while (line->at < line->end && is_bare(*line->at))
        line->at++;
    if (line->at == begin)
        return refuse(line, error, "expected: name = value");
    *key_ret = text_copy(begin, (size_t)(line->at - begin));
    return *key_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
}

/* Reads a number or boolean: a word without blanks. */
static FshStatus read_word(TomlLine *line, json_t **value_ret, FshError *error)
{
    char word[64];
    size_t length = 0;
    while (line->at < line->end && *line->at != '#' && !isspace((unsigned char)*line->at)) {
        if (length + 1 == sizeof word)
            return refuse(line, error, "the value is neither \"text\" nor a number, true or false");
        /* TOML: an underscore only between digits. */
        const bool joint = *line->at == '_' && length && isdigit((unsigned char)word[length - 1]) &&
                           line->at + 1 < line->end && isdigit((unsigned char)line->at[1]);
        if (!joint)
            word[length++] = *line->at;
        line->at++;
    }
    word[length] = '\0';
    char *end = NULL;
    *value_ret = NULL;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        *value_ret = json_boolean(word[0] == 't');
    else if (length && word[strspn(word, "+-0123456789")] == '\0') {
        errno = 0;
        const long long number = strtoll(word, &end, 10);
        if (*end == '\0' && errno == 0)
            *value_ret = json_integer(number);
    } else if (length && word[strspn(word, "+-.eE0123456789")] == '\0') {
        const double number = strtod(word, &end);
        if (*end == '\0' && isfinite(number))
            *value_ret = json_real(number);
    }
    if (!*value_ret && length > 1 && word[length - 1] == '%')
        return refuse(line, error, "a percentage goes in quotes: \"10%\"");
    return *value_ret ? FSH_OK
                      : refuse(line, error, "the value is neither \"text\" nor a number, true or false");
}

/* Reads a text in quotes. */
static FshStatus read_text(TomlLine *line, json_t **value_ret, FshError *error)
{
    char *text = NULL;
    FshStatus status = read_string(line, &text, error);
    if (status)
        return status;
    *value_ret = json_string(text);
    free(text);
    return *value_ret ? FSH_OK : refuse(line, error, "the text is not UTF-8");
}

/* Reads a list of texts, ["a", "b"]. */
static FshStatus read_list(TomlLine *line, json_t **value_ret, FshError *error)
{
    json_t *array = *value_ret = json_array();
    FshStatus status = array ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
    for (char end = ','; !status && end == ',';) {
        json_t *text = NULL;
        line->at++;
        skip_blanks(line);
        if (line->at < line->end && (*line->at == '"' || *line->at == '\''))
            status = read_text(line, &text, error);
        else
            status = refuse(line, error, "a list is of texts, all on one line: [\"text\", \"text\"]");
        if (!status && json_array_append_new(array, text))
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
        skip_blanks(line);
        end = !status && line->at < line->end ? *line->at : '\0';
        if (!status && end != ',' && end != ']')
            status = refuse(line, error, "a list has no closing bracket");
    }
    line->at += !status;
    return status;
}

static FshStatus read_value(TomlLine *line, json_t **value_ret, FshError *error)
{
    if (at_line_end(line))
        return refuse(line, error, "the value is missing: name = value");
    return *line->at == '"' || *line->at == '\'' ? read_text(line, value_ret, error)
           : *line->at == '['                    ? read_list(line, value_ret, error)
                                                 : read_word(line, value_ret, error);
}

static FshStatus read_line(TomlLine *line, json_t *object, FshError *error)
{
    char *key = NULL;
    json_t *value = NULL;
    if (at_line_end(line))
        return FSH_OK;
    FshStatus status = read_key(line, &key, error);
    if (status)
        return status;
    skip_blanks(line);
    if (line->at == line->end || *line->at != '=') {
        status = refuse(line, error, "expected \"=\" after the name: name = value");
        goto done;
    }
    line->at++;
    status = read_value(line, &value, error);
    if (!status && !at_line_end(line))
        status = refuse(line, error, "there is something behind the value");
    if (!status && json_object_get(object, key))
        status = refuse(line, error, "this name stands above already");
    if (!status && json_object_set(object, key, value))
        status = refuse(line, error, "the name is not UTF-8");
done:
    json_decref(value);
    free(key);
    return status;
}

/* Returns whether the line is the head of the table, and nothing else. */
static bool is_head(const TomlLine *line, const char *table)
{
    TomlLine rest = *line;
    const size_t length = strlen(table);
    skip_blanks(&rest);
    if ((size_t)(rest.end - rest.at) < length + 2 || rest.at[0] != '[' || rest.at[length + 1] != ']' ||
        memcmp(rest.at + 1, table, length) != 0)
        return false;
    rest.at += length + 2;
    return at_line_end(&rest);
}

FshStatus toml_read(const char *path, const char *text, size_t length, const char *table, json_t *object,
                    FshError *error)
{
    const char *const end = text + length;
    json_t *facts = NULL; /* borrowed from the object */
    FshStatus status = FSH_OK;
    for (size_t number = 1; !status && text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        TomlLine line = {.path = path, .number = number, .at = text, .end = newline ? newline : end};
        if (!facts && is_head(&line, table)) {
            facts = json_object();
            if (json_object_set_new(object, table, facts))
                status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        } else {
            status = read_line(&line, facts ? facts : object, error);
        }
        text = newline ? newline + 1 : end;
    }
    return status;
}
