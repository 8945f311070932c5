/* A stand-in of the SPANK plugin Pyxis: some of its options, and containers without enroot. See spank(7).
 *
 * Arguments in plugstack.conf: a folder of images and a file. An image of a registry is a link in the folder (`%` for
 * `/`), an .sqsh file contains a path; both lead to an unpacked image. The task gets the mounts and runs under chroot.
 * The values of the options are appended to the file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, NAMES, REMAP, ENTRYPOINT, COUNT };
static const char *labels[COUNT] = {"image", "mounts", "workdir", "env", "remap_root", "entrypoint"};
static char *given[COUNT];

static int take(int option, const char *argument, int remote)
{
    (void)remote;
    free(given[option]);
    given[option] = strdup(option < REMAP ? argument : "no");
    return 0;
}

struct spank_option spank_options[] = {
    {"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "[pyxis] image", 1, IMAGE, take},
    {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] mounts", 1, MOUNTS, take},
    {"container-workdir", "PATH", "[pyxis] working directory", 1, WORKDIR, take},
    {"container-env", "NAME[,NAME...]", "[pyxis] variables", 1, NAMES, take},
    {"no-container-remap-root", NULL, "[pyxis] keep the user", 0, REMAP, take},
    {"no-container-entrypoint", NULL, "[pyxis] no entry point", 0, ENTRYPOINT, take},
    SPANK_OPTIONS_TABLE_END,
};

static int find_tree(const char *images, char *tree)
{
    char path[PATH_MAX];
    if (given[IMAGE][0] != '/') {
        int at = snprintf(path, sizeof path, "%s/", images);
        snprintf(path + at, sizeof path - at, "%s", given[IMAGE]);
        for (char *sign = path + at; *sign; sign++)
            if (*sign == '/')
                *sign = '%';
        return realpath(path, tree) ? 0 : -1;
    }
    FILE *file = fopen(given[IMAGE], "r");
    if (!file || !fgets(tree, PATH_MAX, file))
        return -1;
    tree[strcspn(tree, "\n")] = 0;
    return fclose(file);
}

static int bind_into(const char *tree, const char *source, const char *target, int is_read_only)
{
    char path[PATH_MAX];
    int at = snprintf(path, sizeof path, "%s", tree);
    snprintf(path + at, sizeof path - at, "%s", target);
    for (char *sign = path + at + 1; (sign = strchr(sign, '/')); sign++) {
        *sign = 0;
        mkdir(path, 0755);
        *sign = '/';
    }
    mkdir(path, 0755);
    if (mount(source, path, NULL, MS_BIND | MS_REC, NULL))
        return -1;
    return is_read_only ? mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) : 0;
}

static int enter(const char *images)
{
    char tree[PATH_MAX], *rest = strdup(given[MOUNTS] ? given[MOUNTS] : ""), *one;
    if (find_tree(images, tree))
        return -1;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return -1;
    if (bind_into(tree, "/proc", "/proc", 0) || bind_into(tree, "/dev", "/dev", 0))
        return -1;
    while ((one = strsep(&rest, ","))) {
        char *source = strsep(&one, ":"), *target = strsep(&one, ":");
        if (*source && bind_into(tree, source, target ? target : source, one && !strcmp(one, "ro")))
            return -1;
    }
    return chroot(tree) || chdir(given[WORKDIR] ? given[WORKDIR] : "/") ? -1 : 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
    if (!given[IMAGE] || count < 2)
        return 0;
    FILE *file = fopen(arguments[1], "a");
    for (int option = 0; file && option < COUNT; option++)
        fprintf(file, "%s=%s\n", labels[option], given[option] ? given[option] : "");
    if (file)
        fclose(file);
    spank_setenv(spank, "PATH", "/usr/local/bin:/usr/bin:/bin", 1); /* values of the image win, as with Pyxis */
    if (enter(arguments[0])) {
        slurm_error("pyxis: failed to create container filesystem: %s", strerror(errno));
        return -1;
    }
    return 0;
}
