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
js_await() { :; }
js_guard() {
  js_limit=$1 js_file=$2
  shift 2
  read -r js_stat </proc/self/stat
  js_pid=${js_stat%% *}
  exec 7<&0 </dev/null
  { if js_await; then
      exec >/dev/null
      timeout "$js_limit" cat <&7 || [ "$?" != 127 ] || cat <&7
    fi
    js_kill "$js_pid"
    kill -s KILL "$js_pid"  # it may not lead its group yet
    rm -f -- "$js_file" "$js_file.go"
  } 2>/dev/null &
  exec setsid "$@" 7<&-
}
"""
"""Function for a subshell: SECONDS FILE ARGV…; FILE is removed at the end.

``js_await`` can be replaced: it returns when the time begins, and fails if the command is not wanted any more.
"""
