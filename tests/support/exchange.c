/* Another account at work: exchanges each of FOLDER/0 ... FOLDER/(COUNT-1) with a link to TARGET, with a pipe, or with a
 * directory of its own, again and again, until it is killed.
 *
 *     exchange FOLDER COUNT link|pipe|folder TARGET
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void prepare(int folder, const char *name, const char *kind, const char *target) {
    int failed;
    if (!strcmp(kind, "link"))
        failed = symlinkat(target, folder, name);
    else if (!strcmp(kind, "pipe"))
        failed = mknodat(folder, name, S_IFIFO | 0666, 0);
    else
        failed = mkdirat(folder, name, 0755);
    if (failed) {
        perror(name);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int folder = open(argv[1], O_RDONLY | O_DIRECTORY), count = atoi(argv[2]);
    char there[32], evil[32];
    for (int i = 0; i < count; i++) {
        snprintf(evil, sizeof evil, ".evil%d", i);
        prepare(folder, evil, argv[3], argv[4]);
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        for (int i = 0; i < count; i++) {
            snprintf(there, sizeof there, "%d", i);
            snprintf(evil, sizeof evil, ".evil%d", i);
            syscall(SYS_renameat2, folder, there, folder, evil, RENAME_EXCHANGE);
        }
}
