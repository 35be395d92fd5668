/* A SPANK plug-in with the options of CSCS's uenv 8: --uenv=LABEL|FILE[:MOUNT],..., --view=[UENV:]VIEW,..., --repo. It mounts a
   directory of images=DIR, or a SquashFS file, in the mount namespace of each task; the root stays the host's. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <slurm/spank.h>
SPANK_PLUGIN(uenv, 1)
static char images[4096], *uenv, *view;
static int bad(const char *why, const char *what) { slurm_error("uenv: %s: %s", why, what); return -1; }
static int take(int i, const char *given, int remote) {
  if (!given || !*given) return bad("argument required", i ? "view" : "uenv");
  if (!i && strstr(given, ",,")) return bad("invalid uenv description", given);
  *(i ? &view : &uenv) = strdup(given);
  return 0;
}
int slurm_spank_init(spank_t sp, int count, char **words) {
  struct spank_option one[] = {{"uenv", "<file|label>[:mount]", "[uenv] environments to mount", 1, 0, take},
                               {"view", "[uenv:]view", "[uenv] views to load", 1, 1, take}};
  for (int i = 0; i < count; i++) if (!strncmp(words[i], "images=", 7)) snprintf(images, sizeof images, "%s", words[i] + 7);
  for (int i = 0; i < 2; i++) if (spank_option_register(sp, one + i) != ESPANK_SUCCESS) return -1;
  return 0;
}
int slurm_spank_init_post_opt(spank_t sp, int count, char **words) {
  return view && !uenv ? bad("--view needs --uenv", view) : 0;
}
int slurm_spank_task_init_privileged(spank_t sp, int count, char **words) {
  char file[8192], *rest = uenv ? strdup(uenv) : 0, *one, *mark;
  struct stat status;
  if (uenv && (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_SLAVE, 0))) return bad("unshare", strerror(errno));
  while (rest && (one = strsep(&rest, ","))) {
    char *at = "/user-environment";
    if ((mark = strstr(one, ":/"))) { *mark = 0; at = mark + 1; }
    snprintf(file, sizeof file, "%s%s%s", *one == '/' ? "" : images, *one == '/' ? "" : "/", one);
    for (char *c = file + (*one == '/' ? strlen(file) : strlen(images) + 1); *c; c++) if (strchr("/:@", *c)) *c = '_';
    if (stat(file, &status)) return bad("no uenv matches", one);
    if (stat(at, &status)) return bad("the mount point does not exist", at);
    if (mount(file, at, 0, MS_BIND | MS_REC, 0)) return bad("unable to mount", at);
    spank_setenv(sp, "UENV_MOUNT_LIST", at, 1);
    if (view) spank_setenv(sp, "UENV_VIEW", view, 1);
  }
  return 0;
}
