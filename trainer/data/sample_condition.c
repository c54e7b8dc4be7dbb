#include "trainer/data/sample_condition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "formats/fshard.h"
#include "trainer/data/name_list.h"

enum {
    NODES_MAX = 1000, /* of a condition; longer ones are for lists */
    DEPTH_MAX = 100,  /* of parentheses and of `not` */
    SHOWN_BYTES = 60, /* of a condition in a message, around the place */
};

typedef enum NodeKind { NODE_OR, NODE_AND, NODE_NOT, NODE_TEST } NodeKind;
typedef enum TestKind { TEST_NAME, TEST_GLOB, TEST_LIST } TestKind;
typedef enum Subject { OF_CLASS, OF_KEY, OF_SPLIT, SUBJECTS } Subject;

static const char *const subject_names[SUBJECTS] = {"class", "key", "split"};

typedef struct Node {
    NodeKind kind;
    size_t left, right; /* operands, which stand before it in the list; of NODE_NOT: left */
    /* of a test */
    TestKind test;
    Subject subject;
    char *name;            /* a name, a GLOB, or the path of a file; owned */
    size_t name_bytes, at; /* at: where it stands in the text */
    NameList list;
    bool *classes; /* [class_count]: whether it holds for a class; owned */
    bool holds;    /* of a split: whether it holds for the one that is asked about */
} Node;

struct SampleCondition {
    char *text; /* as it was given; owned */
    Node *nodes;
    size_t count; /* the last one is the whole */
    size_t class_count;
};

/* ---- words ---- */

typedef enum WordKind { WORD_END, WORD_NAME, WORD_QUOTED, WORD_SIGN, WORD_OPEN_QUOTE } WordKind;

typedef struct Word {
    WordKind kind;
    const char *text; /* of a quoted one what is between the quotes */
    size_t bytes;
    size_t at; /* where it begins, with its quote */
} Word;

typedef struct Reader {
    SampleCondition *condition;
    const char *next; /* in the text */
    Word word;        /* the current one */
    int depth;
} Reader;

/* Returns the length of the sign at text, which a NUL ends: ( ) = == ~ != !~; 0: there is none. */
static size_t sign_bytes(const char *text)
{
    if (*text == '=')
        return text[1] == '=' ? 2 : 1;
    if (*text == '!')
        return text[1] == '=' || text[1] == '~' ? 2 : 0;
    return *text && strchr("()~", *text) ? 1 : 0;
}

static bool is_name_character(const char *text)
{
    return *text && !text_is_blank(*text) && *text != '\'' && *text != '"' && !sign_bytes(text);
}

/* Reads the next word into reader->word. */
static void advance(Reader *reader)
{
    const char *text = reader->condition->text, *at = reader->next;
    at = text_skip_blanks(at, at + strlen(at));
    Word word = {.text = at, .at = (size_t)(at - text), .bytes = sign_bytes(at)};
    const char *end = at + word.bytes;
    if (!*at)
        word.kind = WORD_END;
    else if (word.bytes)
        word.kind = WORD_SIGN;
    else if (*at == '\'' || *at == '"') {
        const char *close = strchr(at + 1, *at);
        word.kind = close ? WORD_QUOTED : WORD_OPEN_QUOTE;
        word.text = at + 1;
        word.bytes = close ? (size_t)(close - word.text) : strlen(word.text);
        end = close ? close + 1 : word.text + word.bytes;
    } else {
        word.kind = WORD_NAME;
        while (is_name_character(end))
            end++;
        word.bytes = (size_t)(end - at);
    }
    reader->next = end;
    reader->word = word;
}

/* Returns whether the current word is this sign, or this word without quotes. */
static bool is_word(const Reader *reader, const char *text)
{
    const Word *word = &reader->word;
    return (word->kind == WORD_NAME || word->kind == WORD_SIGN) &&
           text_is_same(word->text, word->bytes, text, strlen(text));
}

static bool take_word(Reader *reader, const char *text)
{
    if (!is_word(reader, text))
        return false;
    advance(reader);
    return true;
}

/* ---- what is wrong, and where ---- */

/* Returns how many columns the bytes take on a terminal, where each character takes one. */
static int columns(const char *text, size_t bytes)
{
    int count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Returns the nearest place at or before `at` where a character begins. */
static size_t character_begin(const char *text, size_t at)
{
    while (at && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

/* Fails with the message and the text around the place, with a mark before it: "class >>>on dogs.txt". */
static FshStatus fail_at(const char *text, size_t at, const char *message, FshError *error)
{
    const size_t bytes = strlen(text);
    const size_t from = character_begin(text, at > SHOWN_BYTES / 2 ? at - SHOWN_BYTES / 2 : 0);
    const size_t to = bytes - at > SHOWN_BYTES / 2 ? character_begin(text, at + SHOWN_BYTES / 2) : bytes;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s%.*s>>>%.*s%s", message, from ? "…" : "",
                         (int)(at - from), text + from, (int)(to - at), text + at, to < bytes ? "…" : "");
}

/* Fails at the current word, which is not what was expected there. */
static FshStatus fail_at_word(const Reader *reader, const char *expected, FshError *error)
{
    char message[200];
    const Word *word = &reader->word;
    const int column = 1 + columns(reader->condition->text, word->at);
    if (word->kind == WORD_OPEN_QUOTE)
        (void)snprintf(message, sizeof message, "the quote at column %d is not closed", column);
    else if (word->kind == WORD_END)
        (void)snprintf(message, sizeof message, "%s is missing at its end", expected);
    else
        (void)snprintf(message, sizeof message, "%s is expected at column %d, where '%.*s' stands", expected,
                       column, word->bytes > 40 ? 40 : (int)word->bytes, word->text);
    return fail_at(reader->condition->text, word->at, message, error);
}

/* ---- reading ---- */

/* Adds a node; *index_ret is its place. Takes node->name over, also on failure. */
static FshStatus add_node(Reader *reader, Node *node, size_t *index_ret, FshError *error)
{
    SampleCondition *condition = reader->condition;
    if (condition->count == NODES_MAX) {
        free(node->name);
        return fail_at(condition->text, reader->word.at,
                       "the condition is too long; a FILE may have any number of names", error);
    }
    *index_ret = condition->count;
    condition->nodes[condition->count++] = *node;
    return FSH_OK;
}

static FshStatus read_or(Reader *reader, size_t *index_ret, FshError *error);

static FshStatus negate(Reader *reader, size_t *index, FshError *error)
{
    Node node = {.kind = NODE_NOT, .left = *index};
    return add_node(reader, &node, index, error);
}

/* Reads the sign of a test, "not in" included. */
static FshStatus read_sign(Reader *reader, TestKind *test_ret, bool *negated_ret, FshError *error)
{
    static const struct {
        const char *sign;
        TestKind test;
        bool negated;
    } signs[] = {{"=", TEST_NAME, false}, {"==", TEST_NAME, false}, {"!=", TEST_NAME, true},
                 {"~", TEST_GLOB, false}, {"!~", TEST_GLOB, true},  {"in", TEST_LIST, false}};
    *negated_ret = take_word(reader, "not");
    for (size_t i = *negated_ret ? 5 : 0; i < sizeof signs / sizeof *signs; i++) {
        if (!take_word(reader, signs[i].sign))
            continue;
        *test_ret = signs[i].test;
        *negated_ret |= signs[i].negated;
        return FSH_OK;
    }
    return fail_at_word(reader, *negated_ret ? "'in'" : "one of = != ~ !~ in, not in", error);
}

static FshStatus read_test(Reader *reader, size_t *index_ret, FshError *error)
{
    static const char *const wanted[] = {"a name", "a name with * and ?", "the name of a file"};
    Node node = {.kind = NODE_TEST};
    bool negated = false;
    while (node.subject < SUBJECTS && !take_word(reader, subject_names[node.subject]))
        node.subject++;
    if (node.subject == SUBJECTS)
        return fail_at_word(reader, "'class', 'key', 'split', 'not' or (", error);
    FshStatus status = read_sign(reader, &node.test, &negated, error);
    if (status)
        return status;
    const Word word = reader->word;
    const bool reserved = is_word(reader, "and") || is_word(reader, "or");
    if ((word.kind != WORD_NAME && word.kind != WORD_QUOTED) || !word.bytes || reserved)
        return fail_at_word(reader, wanted[node.test], error);
    node.name = text_copy(word.text, word.bytes);
    if (!node.name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    node.name_bytes = word.bytes;
    node.at = word.at;
    advance(reader);
    status = add_node(reader, &node, index_ret, error);
    return !status && negated ? negate(reader, index_ret, error) : status;
}

static FshStatus read_not(Reader *reader, size_t *index_ret, FshError *error)
{
    if (!is_word(reader, "not") && !is_word(reader, "("))
        return read_test(reader, index_ret, error);
    if (reader->depth == DEPTH_MAX)
        return fail_at(reader->condition->text, reader->word.at, "the condition is nested too deeply", error);
    reader->depth++;
    const bool negated = take_word(reader, "not");
    if (!negated)
        advance(reader);
    FshStatus status = negated ? read_not(reader, index_ret, error) : read_or(reader, index_ret, error);
    if (!status && negated)
        status = negate(reader, index_ret, error);
    else if (!status && !take_word(reader, ")"))
        status = fail_at_word(reader, "'and', 'or' or )", error);
    reader->depth--;
    return status;
}

/* Reads operands with the word between them. */
static FshStatus read_chain(Reader *reader, const char *word, NodeKind kind,
                            FshStatus (*read)(Reader *reader, size_t *index_ret, FshError *error),
                            size_t *index_ret, FshError *error)
{
    FshStatus status = read(reader, index_ret, error);
    while (!status && take_word(reader, word)) {
        Node node = {.kind = kind, .left = *index_ret};
        status = read(reader, &node.right, error);
        if (!status)
            status = add_node(reader, &node, index_ret, error);
    }
    return status;
}

static FshStatus read_and(Reader *reader, size_t *index_ret, FshError *error)
{
    return read_chain(reader, "and", NODE_AND, read_not, index_ret, error);
}

static FshStatus read_or(Reader *reader, size_t *index_ret, FshError *error)
{
    return read_chain(reader, "or", NODE_OR, read_and, index_ret, error);
}

FshStatus sample_condition_parse(SampleCondition **condition_ret, const char *text, FshError *error)
{
    size_t root = 0;
    SampleCondition *condition = *condition_ret = calloc(1, sizeof *condition);
    if (condition) {
        condition->text = strdup(text);
        condition->nodes = calloc(NODES_MAX, sizeof *condition->nodes);
    }
    Reader reader = {.condition = condition};
    FshStatus status = condition && condition->text && condition->nodes
                           ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status) {
        reader.next = condition->text;
        advance(&reader);
        status = read_or(&reader, &root, error);
    }
    if (!status && reader.word.kind != WORD_END)
        status = fail_at_word(&reader, "'and', 'or' or the end", error);
    if (status)
        sample_condition_free(condition_ret);
    return status;
}

void sample_condition_free(SampleCondition **condition_ret)
{
    SampleCondition *condition = *condition_ret;
    for (size_t i = 0; condition && i < condition->count; i++) {
        free(condition->nodes[i].name);
        free(condition->nodes[i].classes);
        name_list_free(&condition->nodes[i].list);
    }
    if (condition) {
        free(condition->nodes);
        free(condition->text);
    }
    free(condition);
    *condition_ret = NULL;
}

/* ---- globs ---- */

/* Returns whether the set at glob, which begins with [, has the character, and sets *bytes_ret to its length;
 * 0: it is not closed, and [ is a character like others. */
static bool set_has(const char *glob, size_t glob_bytes, unsigned char c, size_t *bytes_ret)
{
    size_t at = 1;
    bool has = false;
    const bool opposite = at < glob_bytes && (glob[at] == '!' || glob[at] == '^');
    at += opposite;
    for (const size_t first = at; at < glob_bytes && (glob[at] != ']' || at == first); at++) {
        const unsigned char low = (unsigned char)glob[at];
        unsigned char high = low;
        if (at + 2 < glob_bytes && glob[at + 1] == '-' && glob[at + 2] != ']')
            high = (unsigned char)glob[at += 2];
        has |= c >= low && c <= high;
    }
    *bytes_ret = at < glob_bytes ? at + 1 : 0;
    return has != opposite;
}

/* Returns whether the first character of a text matches the first part of a glob, which is no *, and sets
 * *bytes_ret to that part's length. */
static bool matches_one(const char *glob, size_t glob_bytes, char c, size_t *bytes_ret)
{
    *bytes_ret = 0;
    const bool has = *glob == '[' && set_has(glob, glob_bytes, (unsigned char)c, bytes_ret);
    if (*bytes_ret)
        return has;
    *bytes_ret = 1;
    return *glob == '?' || *glob == c;
}

/* A * takes as little as it can, and more whenever what follows does not match: only the last one needs to be
 * taken back to. */
bool sample_condition_matches(const char *glob, size_t glob_bytes, const char *text, size_t text_bytes)
{
    size_t at = 0, in = 0, star = SIZE_MAX, taken = 0;
    while (in < text_bytes) {
        size_t bytes = 0;
        if (at < glob_bytes && glob[at] == '*') {
            star = ++at;
            taken = in;
        } else if (at < glob_bytes && matches_one(glob + at, glob_bytes - at, text[in], &bytes)) {
            at += bytes;
            in++;
        } else if (star != SIZE_MAX) {
            at = star;
            in = ++taken;
        } else {
            return false;
        }
    }
    while (at < glob_bytes && glob[at] == '*')
        at++;
    return at == glob_bytes;
}

/* ---- classes and files ---- */

static FshStatus take_class(Node *node, const char *const *names, size_t count, const char *name,
                            FshError *error)
{
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        found = strcmp(names[i], name) == 0;
        node->classes[i] |= found;
    }
    return found ? FSH_OK : fsh_error_set(error, FSH_ERR_USAGE, "'%.100s' is no class of the dataset", name);
}

static FshStatus take_listed(Node *node, const char *const *names, size_t count, FshError *error)
{
    for (size_t i = 0; i < count; i++)
        node->classes[i] = name_list_meet(&node->list, names[i], strlen(names[i]));
    for (size_t i = 0; i < node->list.count; i++) {
        const ListedName *name = name_list_at(&node->list, i);
        if (!name_list_is_met(&node->list, i))
            return fsh_error_set(error, FSH_ERR_USAGE, "%s:%llu: '%.100s' is no class of the dataset",
                                 node->name, (unsigned long long)name->line, name->text);
    }
    return FSH_OK;
}

static FshStatus match_classes(Node *node, const char *const *names, size_t count, FshError *error)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= node->classes[i] =
            sample_condition_matches(node->name, node->name_bytes, names[i], strlen(names[i]));
    return any ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE, "no class of the dataset matches '%.100s'", node->name);
}

static FshStatus prepare_classes(const SampleCondition *condition, Node *node, const char *const *names,
                                 size_t count, FshError *error)
{
    if (!count)
        return fail_at(condition->text, node->at, "the dataset has no classes; test its keys", error);
    node->classes = calloc(count, sizeof *node->classes);
    return !node->classes            ? fsh_error_set(error, FSH_ERR_MEMORY, "out of memory")
           : node->test == TEST_LIST ? take_listed(node, names, count, error)
           : node->test == TEST_GLOB ? match_classes(node, names, count, error)
                                     : take_class(node, names, count, node->name, error);
}

FshStatus sample_condition_prepare(SampleCondition *condition, const char *const *names, size_t count,
                                   FshError *error)
{
    FshStatus status = FSH_OK;
    condition->class_count = count;
    for (size_t i = 0; i < condition->count && !status; i++) {
        Node *node = &condition->nodes[i];
        if (node->kind != NODE_TEST)
            continue;
        if (node->test == TEST_LIST)
            status = name_list_read(&node->list, node->name, node->subject == OF_KEY, error);
        if (!status && node->subject == OF_CLASS)
            status = prepare_classes(condition, node, names, count, error);
    }
    return status;
}

/* ---- answers ---- */

/* Returns whether a test of keys or splits holds for one. */
static bool test_text(const Node *node, const char *text, size_t bytes)
{
    return node->test == TEST_LIST   ? name_list_meet(&node->list, text, bytes)
           : node->test == TEST_GLOB ? sample_condition_matches(node->name, node->name_bytes, text, bytes)
                                     : text_is_same(node->name, node->name_bytes, text, bytes);
}

void sample_condition_take_split(SampleCondition *condition, const char *name)
{
    for (size_t i = 0; i < condition->count; i++) {
        Node *node = &condition->nodes[i];
        if (node->kind == NODE_TEST && node->subject == OF_SPLIT)
            node->holds = test_text(node, name, strlen(name));
    }
}

/* What is asked about. */
typedef struct Asked {
    int64_t class_index;
    bool has_key; /* else answers may depend on it */
    const char *key;
    size_t key_bytes;
} Asked;

static ConditionAnswer answer_test(const SampleCondition *condition, const Node *node, const Asked *asked)
{
    const bool has_class = asked->class_index >= 0 && (size_t)asked->class_index < condition->class_count;
    if (node->subject == OF_KEY && !asked->has_key)
        return CONDITION_BY_KEY;
    const bool holds = node->subject == OF_KEY     ? test_text(node, asked->key, asked->key_bytes)
                       : node->subject == OF_SPLIT ? node->holds
                                                   : has_class && node->classes[asked->class_index];
    return holds ? CONDITION_YES : CONDITION_NO;
}

static ConditionAnswer answer(const SampleCondition *condition, size_t index, const Asked *asked)
{
    const Node *node = &condition->nodes[index];
    if (node->kind == NODE_TEST)
        return answer_test(condition, node, asked);
    const ConditionAnswer left = answer(condition, node->left, asked);
    if (node->kind == NODE_NOT)
        return left == CONDITION_BY_KEY ? left : left == CONDITION_YES ? CONDITION_NO : CONDITION_YES;
    const ConditionAnswer decides = node->kind == NODE_OR ? CONDITION_YES : CONDITION_NO;
    if (left == decides)
        return left;
    const ConditionAnswer right = answer(condition, node->right, asked);
    return right == decides || left != CONDITION_BY_KEY ? right : left;
}

ConditionAnswer sample_condition_of_class(const SampleCondition *condition, int64_t class_index)
{
    const Asked asked = {.class_index = class_index, .key = ""};
    return answer(condition, condition->count - 1, &asked);
}

bool sample_condition_holds(const SampleCondition *condition, int64_t class_index, const char *key,
                            size_t key_bytes)
{
    const Asked asked = {class_index, true, key, key_bytes};
    return answer(condition, condition->count - 1, &asked) == CONDITION_YES;
}

uint64_t sample_condition_unmet(const SampleCondition *condition, const char **first_ret,
                                const char **file_ret)
{
    uint64_t count = 0;
    *first_ret = *file_ret = NULL;
    for (size_t i = 0; i < condition->count; i++) {
        const Node *node = &condition->nodes[i];
        for (size_t j = 0; node->subject == OF_KEY && j < node->list.count; j++) {
            const ListedName *name = name_list_at(&node->list, j);
            if (name_list_is_met(&node->list, j))
                continue;
            if (!count++) {
                *first_ret = name->text;
                *file_ret = node->name;
            }
        }
    }
    return count;
}
