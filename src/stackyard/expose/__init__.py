"""Renders records for users: modulefiles in Lua and Tcl, aliases, rc files."""
