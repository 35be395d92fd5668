"""rank.sh, the script that a launcher starts for every task: rendered here as text, from a plan."""
