"""Records become what users see: modulefiles in Lua and Tcl, aliases, rc files."""
