/* What a user of libfshard writes: compiled against the installed header through pkg-config, linked to
 * libfshard.so. */
#include <fshard.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    FshDataset *dataset = NULL;
    FshError error = {FSH_OK, 0, ""};
    if (argc != 2)
        return 2;
    if (fsh_open(&dataset, argv[1], &error)) {
        printf("%s: %s\n", fsh_strerror(error.status), error.message);
        return 1;
    }
    fsh_close(&dataset);
    return 0;
}
