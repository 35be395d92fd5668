-- pytorch/2.13-py311-1: written by stackyard from the record of its build; changes here are lost

help([[
PyTorch and Horovod for jobs on many nodes

Contains 5 packages; top-level packages: horovod 0.28.1, pytorch 2.13.0.

This revision never changes. Useful commands:

    stackyard show pytorch/2.13-py311-1         list every package with its build and origin
    python -m venv --system-site-packages DIR   create an environment of your own on top, then
    . DIR/bin/activate && pip install NAME      add packages to it (pip install --user is disabled)
    module unload pytorch                       unload it, whichever of its names was loaded]])
whatis("Name: pytorch")
whatis("Version: 2.13-py311-1")
whatis("Description: PyTorch and Horovod for jobs on many nodes")
whatis("Keywords: horovod pytorch")
whatis("Platform: linux-64")
family("python")
conflict("anaconda")
extensions("cloudpickle/3.0.0, horovod/0.28.1, numpy/1.26.4, python/3.11.4, pytorch/2.13.0")

local this = "pytorch/2.13-py311-1"
local loading, unloading = mode() == "load", mode() == "unload"
local shell = myShellType()

if loading and not isDir("/yard/stacks/pytorch/2.13-py311-1") then LmodError("pytorch/2.13-py311-1: /yard/stacks/pytorch/2.13-py311-1 not found: its files were moved or removed; restore them, or choose another: stackyard list") end

local function prepend_keeping(name, directory)
   local now = os.getenv(name) or ""
   local alone = now == directory .. ":" or now == directory .. "::"
   if (loading and now == "") or (unloading and alone) then
      setenv(name, directory .. ":")
   else
      prepend_path(name, directory)
   end
end

local function borrow(name, value)
   local stack, old = "__LMOD_STACK_" .. name, os.getenv(name)
   local kept = os.getenv(stack)
   if loading and old and old:find("\n") then
      LmodMessage(this .. ": " .. name .. " contains a line break; it is not restored when this module is unloaded")
      if kept then unsetenv(stack) end
      if value then setenv(name, value) else unsetenv(name) end
      return
   end
   if unloading and not kept then
      if value then setenv(name, value) end
      return
   end
   if loading and kept and old and not kept:find(":") then
      unsetenv(stack)
      pushenv(name, old)
   end
   pushenv(name, value or false)
end

local function extended(name, text)
   local old = (os.getenv(name) or ""):gsub("\n", " ")
   return old == "" and text or old .. " " .. text
end

local function offer(name, value)
   local mark, mine = "__STACKYARD_" .. name, this .. "="
   if unloading then
      local kept = os.getenv(mark)
      if kept and kept:sub(1, #mine) == mine then
         setenv(mark, "")
         if os.getenv(name) == kept:sub(#mine + 1) then setenv(name, "") end
      end
   elseif os.getenv(name) == nil and value then
      setenv(name, value)
      if loading then setenv(mark, mine .. value) end
   end
end

local function place(bases, inner, home, tail)
   local function usable(text) return text and text ~= "" and not text:find("\n") end
   for _, base in ipairs(bases) do
      local folder = os.getenv(base)
      if usable(folder) then return folder .. "/" .. inner .. tail end
   end
   local folder = os.getenv("HOME")
   return usable(folder) and folder .. "/" .. home .. tail or nil
end

prepend_path("PATH", "/yard/stacks/pytorch/2.13-py311-1/prefix/bin")
prepend_keeping("MANPATH", "/yard/stacks/pytorch/2.13-py311-1/prefix/share/man")
borrow("PYTHONNOUSERSITE", "1")
borrow("PYTHONHOME", nil)
borrow("PYTHONPATH", nil)
borrow("CONDA_PREFIX", "/yard/stacks/pytorch/2.13-py311-1/prefix")
borrow("CONDA_DEFAULT_ENV", "/yard/stacks/pytorch/2.13-py311-1/prefix")
offer("CONDA_ENVS_PATH", place({"SCRATCH"}, "stackyard/conda/envs", ".local/share/stackyard/conda/envs", ""))
offer("CONDA_PKGS_DIRS", place({"SCRATCH"}, "stackyard/conda/pkgs", ".local/share/stackyard/conda/pkgs", ""))
offer("PIP_CACHE_DIR", place({"SCRATCH"}, "stackyard/cache/pip", ".cache/pip", ""))
offer("UV_CACHE_DIR", place({"SCRATCH"}, "stackyard/cache/uv", ".cache/uv", ""))
offer("CONDARC", "/yard/stacks/pytorch/2.13-py311-1/condarc")
if shell ~= "csh" then setenv("STRANGE", "a \"b\" $HOME [x] {y} \\ 'c' ü `d` ; e & f | g * ? ~ #") end
setenv("PROJ_DATA", "/opt/share/proj")
borrow("OMP_NUM_THREADS", "4")
borrow("CFLAGS", extended("CFLAGS", "-O2 -isystem /a -isystem /b"))
prepend_path("XDG_DATA_DIRS", "/opt/data")
if shell == "sh" then
   set_shell_function("greet", "echo \"hello $1\"", "")
   if myShellName() == "bash" then execute{cmd="export -f greet", modeA={"load"}} end
elseif shell == "fish" then
   set_shell_function("greet", "echo \"hello $argv[1]\"", "")
elseif shell == "csh" then
   set_alias("greet", "echo hello")
end
set_alias("gg", "echo alias of the stack")
borrow("HVD_HOME", "/yard/stacks/pytorch/2.13-py311-1/prefix")

if loading then
   LmodMessage("Uses \"all\" [cores] of $HOSTNAME")
end
