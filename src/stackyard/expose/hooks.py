"""Hooks with which a module system counts module loads (`yard.others.usage`). None of them runs a program.

Lmod calls the function that ``SitePackage.lua`` registers; Environment Modules has no such call, so ``siteconfig.tcl``
traces the procedure that evaluates a modulefile. An error in a hook is neither shown nor stops a load. Other accounts
can create entries in the directory, such as a pipe, so only the user's own regular file is opened.
"""

from __future__ import annotations

from typing import Literal

from stackyard.expose.modulefiles import lua, tcl
from stackyard.expose.root import users_path
from stackyard.inputs.workspace import Workspace

System = Literal["lmod", "modules"]

_LMOD = """\
-- Counts loads of the modules in MODULES, in USAGE; written by `stackyard usage --hook lmod`.
do
   local posix, hook = require("posix"), require("Hook")
   local modules, usage = MODULES, USAGE
   local function count(t)
      if mode() ~= "load" or not t.fn or t.fn:sub(1, #modules + 1) ~= modules .. "/" then return end
      local uid = posix.getuid and posix.getuid() or posix.getpid("uid")
      local file = string.format("%s/%s.%d.%s.log", usage, posix.uname("%n"), uid, os.date("%Y-%m"))
      local found = posix.stat and posix.stat(file)
      if found and (found.type ~= "regular" or found.uid ~= uid) then return end
      local out = io.open(file, "a")
      if out then
         out:write(os.date("%Y-%m-%d") .. " load " .. t.modFullName .. "\\n")
         out:close()
         if not found and posix.chmod then posix.chmod(file, "rw-r--r--") end
      end
   end
   hook.register("load", function(t) pcall(count, t) end)
end
"""
_MODULES = """\
# Counts loads of the modules in MODULES, in USAGE; written by `stackyard usage --hook modules`.
proc stackyardCount {call code result how} {
    set modules MODULES
    lassign $call procedure file name
    if {$code != 0 || $result ne {0} && $result ne {} || [currentState mode] ne {load}} { return }
    if {[string first "$modules/" $file] != 0} { return }
    set now [clock seconds]
    set month [clock format $now -format %Y-%m]
    catch {
        set log [file join USAGE "[info hostname].[stackyardUid].$month.log"]
        set is [expr {[catch {file lstat $log found}] ? {} : "$found(type) $found(uid)"}]
        if {$is ni [list {} "file [stackyardUid]"]} { return }
        set out [open $log a]
        puts $out "[clock format $now -format %Y-%m-%d] load $name"
        close $out
        if {$is eq {}} { file attributes $log -permissions 0644 }
    }
}
proc stackyardUid {} {
    set in [open /proc/self/status]
    set text [read $in]
    close $in
    regexp {Uid:\\s+(\\d+)} $text whole uid
    return $uid
}
trace add execution execute-modulefile leave stackyardCount
"""


def hook(system: System, workspace: Workspace) -> str:
    """The text to add to a module system's site file.

    Args:
        workspace: its yard has the modules that are counted.
    """
    text, quote = (_LMOD, lua.quote) if system == "lmod" else (_MODULES, tcl.quote)
    modules, usage = str(users_path(workspace)), str(workspace.yard.usage)
    head, _, body = text.partition("\n")
    head = head.replace("MODULES", modules).replace("USAGE", usage)
    return head + "\n" + body.replace("MODULES", quote(modules)).replace("USAGE", quote(usage))
