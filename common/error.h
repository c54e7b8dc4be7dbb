/* error.h - how a failure is passed on: as a returned status, with its message in an object of the caller.
 *
 *   FshError error = {0};
 *   if (fsh_open(&dataset, path, &error))
 *       fprintf(stderr, "fverify: %s\n", error.message);   // only main prints
 *
 * A function that can fail takes `FshError *error` last and returns FshStatus: FSH_OK is 0, every failure is
 * negative and disjoint from errno. A library never prints, exits or aborts.
 *
 * Messages have one form: object, what is wrong, what to do. "photos/a.jpg: premature end of JPEG data; left
 * out". Start with the path (or shard and record) concerned, without the program's name, which main adds, and
 * without a final full stop.
 *
 * Threads: an FshError belongs to one thread at a time. error may be NULL everywhere; then there is no
 * message. */
#ifndef FSHARD_COMMON_ERROR_H
#define FSHARD_COMMON_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* A private range, so that a status can never be taken for an errno. */
typedef enum FshStatus {
    FSH_OK = 0,
    FSH_ERR_USAGE = -31000,       /* options or arguments are wrong, or contradict each other */
    FSH_ERR_SYSTEM = -31001,      /* a system call failed; system_errno says how */
    FSH_ERR_MEMORY = -31002,      /* there is no memory, or a size overflows size_t */
    FSH_ERR_NOT_FOUND = -31003,   /* a file, folder, split, model or sample that does not exist */
    FSH_ERR_EXISTS = -31004,      /* the destination exists, and --force was not given */
    FSH_ERR_CORRUPT = -31005,     /* bytes contradict their format or their checksum */
    FSH_ERR_UNSUPPORTED = -31006, /* valid, but this version or this build cannot do it */
    FSH_ERR_NO_SPACE = -31007,    /* the disk or the quota is full */
    FSH_ERR_MISMATCH = -31008,    /* valid in itself, but wrong for the job: label out of range, image too
                                * small */
    FSH_ERR_LIBRARY = -31009,     /* a library reports a failure that it does not explain */
    FSH_ERR_INTERRUPTED = -31010, /* SIGINT or SIGTERM; files on disk are whole */
    FSH_ERR_PEER = -31011,        /* another process of the same run has failed or is lost */
} FshStatus;

typedef struct FshError {
    FshStatus status;   /* FSH_OK, or the first failure */
    int system_errno;   /* errno of FSH_ERR_SYSTEM, FSH_ERR_NO_SPACE, FSH_ERR_NOT_FOUND; else 0 */
    char message[1024]; /* UTF-8, NUL-terminated, cut at the end if too long */
} FshError;

#if defined(__GNUC__)
#define FSH_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#define FSH_API                         __attribute__((visibility("default")))
#else
#define FSH_PRINTF(format_at, first_at)
#define FSH_API
#endif

/* Records a failure and returns its status: `return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: …", path);` */
FshStatus fsh_error_set(FshError *error, FshStatus status, const char *format, ...) FSH_PRINTF(3, 4);

/* Records a failed system call: the message gets ": " and the text of system_errno. The status follows from
 * it: ENOSPC and EDQUOT give FSH_ERR_NO_SPACE, ENOENT and ENOTDIR FSH_ERR_NOT_FOUND, EEXIST and ENOTEMPTY
 * FSH_ERR_EXISTS, ENOMEM FSH_ERR_MEMORY, all others FSH_ERR_SYSTEM. */
FshStatus fsh_error_system(FshError *error, int system_errno, const char *format, ...) FSH_PRINTF(3, 4);

/* Puts "context: " in front of the message, for an outer function that knows the place better. Returns
 * error's status. */
FshStatus fsh_error_prepend(FshError *error, const char *format, ...) FSH_PRINTF(2, 3);
/* Puts "; advice" behind the message, for whoever knows what to do. error NULL is fine. */
void fsh_error_advise(FshError *error, const char *format, ...) FSH_PRINTF(2, 3);

#ifdef __clang_analyzer__
/* Tells the analyzer, which does not look into error.c, that none of these returns FSH_OK. */
#define fsh_error_set(error, status, ...) ((void)fsh_error_set(error, status, __VA_ARGS__), (status))
#define fsh_error_system(...)             ((void)fsh_error_system(__VA_ARGS__), FSH_ERR_SYSTEM)
#define fsh_error_prepend(...)            ((void)fsh_error_prepend(__VA_ARGS__), FSH_ERR_SYSTEM)
#endif

/* Returns a name for people, "corrupt data"; static, never NULL. */
FSH_API const char *fsh_strerror(FshStatus status);

/* Returns the exit status of a program for this failure (fshard's programs agree on it): 0 done; 2 usage; 130
 * interrupted; 1 everything else. */
int fsh_exit_status(FshStatus status);

#ifdef __cplusplus
}
#endif
#endif
