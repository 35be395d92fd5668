/* What the launcher does for an adopted prefix (compiled with -DADOPTED). The files in its image name each other by the path
 * that the prefix had (first lines of scripts, compiled-in paths), so the image is seen there too, in the namespace in
 * which it is mounted. A directory has to be there, in which other files may be now. Who owns what is above it may put a
 * link in its place, or remove it: then the kernel takes the mount away in each namespace.
 */
#define CANNOT "cannot mount %s/image.sqsh on %s, by which its files name each other: "

/* Open a directory by a path without links: what another account has put in its place is not followed. */
static int open_without_links(const char *path) {
  char copy[PATH_MAX], *rest = copy, *name;
  int folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  snprintf(copy, sizeof copy, "%s", *path == '/' ? path + 1 : "");
  while (folder >= 0 && (name = strsep(&rest, "/"))) {
    int next = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), why = errno;
    close(folder);
    folder = next;
    errno = why;
  }
  return folder;
}

static int is_same_place(const char *one, const char *other) {
  struct stat a, b;
  return !stat(one, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Bind the mounted image at its original path, unless it is seen there. lock/original has that as it was given, and
 * without links. */
static void show_at_original(void) {
  static char text[2 * PATH_MAX];
  char path[PATH_MAX], prefix[PATH_MAX], place[NAME], *real = text;
  struct statfs about;
  join_path(path, root, "lock/original");
  if (slurp(path, text, sizeof text) <= 0) fail(4, RESTORE, "cannot read %s: %s", path, strerror(errno));
  char *given = strsep(&real, "\n");
  real = real ? strsep(&real, "\n") : given;
  join_path(prefix, root, "prefix");
  if (is_same_place(prefix, given)) return;
  while (statfs(real, &about) && errno == ENOTCONN) /* the mount of a server that has ended */
    if (umount2(real, MNT_DETACH | UMOUNT_NOFOLLOW)) break;
  int folder = open_without_links(real);
  snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
  int bound = folder >= 0 && !mount(prefix, place, NULL, MS_BIND, NULL), why = errno;
  if (folder >= 0) close(folder);
  if (bound && is_same_place(prefix, given)) return;
  if (bound) umount2(real, MNT_DETACH | UMOUNT_NOFOLLOW);
  if (!bound && why == ENOENT)
    fail(4, "make the directory, which can be empty: mkdir -p DIRECTORY", CANNOT "not found", root, real);
  if (!bound && why != ENOTDIR && why != ELOOP)
    fail(4, or_limits(why, "see which accounts may enter it: namei -l DIRECTORY"), CANNOT "%s", root, real, strerror(why));
  fail(4, "let the path lead where it led, or adopt it where it is now: stackyard adopt --image DIRECTORY",
       CANNOT "the path now leads elsewhere", root, bound ? given : real);
}
