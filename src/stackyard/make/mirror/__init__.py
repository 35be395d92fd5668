"""Mirrors: every file that locks need, in one directory, for machines that reach no other server.

`read` is what a build takes from a mirror, `write` makes and extends one, `requires` finds out what compiling a source
package needs besides what is locked, `pages` are the lists by which pip, uv and conda use a mirror too.

    DIR/mirror.json                     which file has which sha256, which repository holds which commit
    DIR/conda/<server>/<channel>/       a channel, with its repodata.json
    DIR/pip/files/                      wheels and source archives: a place for --find-links
    DIR/pip/simple/                     the same as an index (PEP 503)
    DIR/pip/links.html                  the same as a page of links, for a web server
    DIR/git/<server>/<repository>-<commit>.bundle
"""
