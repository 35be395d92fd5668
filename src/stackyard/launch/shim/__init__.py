"""The shim: rank.sh, the script that a launcher starts for every task, rendered from a plan."""
