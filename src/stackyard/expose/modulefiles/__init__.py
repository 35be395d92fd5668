"""Modulefiles: their content without a format, and as Lua and Tcl."""
