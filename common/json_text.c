#include "common/json_text.h"

#include <stdlib.h>
#include <string.h>

json_t *json_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *string = json_string(text);
    char *ascii = string ? NULL : strdup(text);
    for (char *at = ascii; at && *at; at++) {
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    }
    if (ascii)
        string = json_string(ascii);
    free(ascii);
    return string;
}
