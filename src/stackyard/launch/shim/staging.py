"""The parts of rank.sh for a job with staged files (`stackyard.launch.node.staging.stage`)."""

FUNCTIONS = """# Whether files are staged or removed: the agent says so, and lives.
sy_staging() {
  [[ -e $sy_dir/staging ]] && { read -r sy_agent < "$sy_dir/staging"; } 2>/dev/null && kill -0 "$sy_agent" 2>/dev/null
}
# The node's first task stays until the staged files are removed: a scheduler may end all processes with the last task.
sy_unstaged() { while (( sy_local == 0 )) && sy_staging; do sy_pause; done; }

"""

WAIT = """until sy_until sy_answered || ! sy_staging; do :; done
"""
"""Staging may take longer than the nodes may take to report."""
