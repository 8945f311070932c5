"""Guard of a command with live output: shell text that ends the command together with its client.

The client holds the standard input of the guard open. When this input ends, because the client wants that, has died, or
its connection broke, the guard ends the command and all processes of its group. So it does after a time limit.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GUARD", "KILL"]

KILL: Final = r"""
js_kill() {
  kill -s TERM -- "-$1"  # a starter still has to write down how commands end
  for js_n in 1 2 3; do
    kill -s 0 -- "-$1" || return 0
    sleep 0.1
  done
  kill -s KILL -- "-$1"
} 2>/dev/null
"""
"""Function that ends a process group: first politely, then by force."""

# The command replaces this process, so that no shell stands between it and its exit code. In the background it would
# ignore interrupts; so the watcher is there, as a child that the command does not know.
GUARD: Final = r"""
js_clock() { timeout "$1" cat || [ "$?" != 127 ] || cat; }
js_over() {
  js_kill "$js_pid"
  kill -s KILL "$js_pid"  # it may not lead its group yet
  rm -f -- "$js_file" "$js_file.go"
}
js_watch() {
  js_clock "$js_limit" <&7 >/dev/null
  js_over
}
js_guard() {
  js_limit=$1 js_file=$2
  shift 2
  read -r js_stat </proc/self/stat
  js_pid=${js_stat%% *}
  exec 7<&0 </dev/null
  js_watch 2>/dev/null &
  exec setsid "$@" 7<&-
}
"""
"""Function for a subshell: SECONDS FILE ARGV…; FILE is removed at the end.

``js_watch`` can be replaced: it ends the command when its input or its time ends.
"""
