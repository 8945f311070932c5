"""Shell functions defined in the remote shell at its start: constant text for any POSIX shell.

Values come only as arguments.

A bash takes options and functions from its environment. They are undone first, and again after a prelude.

The functions need coreutils, and util-linux for locks (``flock``) and sessions (``setsid``); every Linux has both. Each
function ends with ``js_end``, which marks the end of an answer on both streams. ``js_note`` prints a remark between.
Before a detached command has started, nothing may be printed: with a broken connection, that would end the shell.
"""

from __future__ import annotations

from typing import Final

from jupyter_slurm.transport.guard import GUARD, KILL
from jupyter_slurm.transport.owned_files import ENTER_OWNED_FOLDER

__all__ = ["FUNCTIONS"]

# Marks, and commands in a context: UMASK CWD #LIMITS L=V… #VARIABLES NAME=VALUE… ARGV…
_RUN: Final = r"""
set +aefmuvxC
js_calm() {
  set +aefmuvxC
  unset IFS GLOBIGNORE
  unset -f command
  command unset -f '[' cat cd chmod dd echo env false flock grep head id kill ls mkdir mkfifo mv printf pwd read rm \
    setsid sh shopt sleep stat test touch true ulimit umask
  shopt -u dotglob failglob || :
} 2>/dev/null
js_calm
js_end() { printf '%s:%s\n' "$js_mark" "$1"; printf '%s:\n' "$js_mark" >&2; }
js_note() { printf '%s!%s\n' "$js_mark" "$1"; }
js_do() { LC_ALL=C "$@" </dev/null; js_end $?; }
js_here() {
  [ -z "$1" ] || umask "$1"
  if [ -n "$2" ]; then CDPATH= cd -- "$2" >/dev/null 2>&1 || { js_note folder; exit 1; }; fi
  js_n=$3; shift 3
  while [ "$js_n" -gt 0 ]; do ulimit -S "-${1%%=*}" "${1#*=}" 2>/dev/null; shift; js_n=$((js_n-1)); done
  js_n=$1; shift
  while [ "$js_n" -gt 0 ]; do export "$1"; shift; js_n=$((js_n-1)); done
  command -v -- "$1" >/dev/null 2>&1 || { js_note missing; exit 1; }
  case $js_how in
    check) exit 0 ;;
    live) js_guard "$js_limit" "$js_file" "$@" ;;
    once) exec setsid /bin/sh -c "$js_wrap" "$js_prefix" "$@" </dev/null >/dev/null 2>&1 ;;
  esac
  exec "$@"
}
js_how=
js_run() { ( js_here "$@" ) </dev/null; js_end $?; }
js_feed() { js_note begin; ( js_here "$@" ); js_end $?; exit; }
"""

# Locks. A lock lives as long as a process of this shell's group has the file open; the shell ends this process at its
# end.
_LOCK: Final = r"""
js_holders=
js_trap() {
  trap 'kill $js_holders 2>/dev/null' EXIT
  trap 'exit 1' PIPE HUP TERM  # else dash does not come to what it does at its end
}
js_able() { command -v flock >/dev/null && command -v setsid >/dev/null || { js_end lacking; return 1; }; }
js_lock() { flock -n 8 2>/dev/null; js_code=$?; }
js_keep() {
  js_lock
  [ "$js_code" -le 1 ] || js_code=0
  [ "$js_code" = 0 ] || return 0
  # Nobody's child: bash loses the exit code of a command that ends together with one in the background.
  js_holder=$(sleep 2147483647 </dev/null >/dev/null 2>&1 & printf %s "$!")
  js_holders="$js_holders $js_holder"
}
js_hold() {
  js_able || return
  js_code=3 js_holder=
  if [ -L "$1" ]; then echo 'Too many levels of symbolic links' >&2
  elif [ -e "$1" ]; then { js_keep; } 8<>"$1"
  else echo 'No such file or directory' >&2
  fi
  js_end "$js_code $js_holder"
}
js_free() {
  kill "$1" 2>/dev/null
  js_kept=
  for js_holder in $js_holders; do [ "$js_holder" = "$1" ] || js_kept="$js_kept $js_holder"; done
  js_holders=$js_kept
  js_end 0
}
js_stop() { js_kill "$1"; js_end 0; }
js_reap() {
  for js_ghost do
    js_pid=${js_ghost%%:*} js_ghost=${js_ghost#*:}
    if LC_ALL=C grep -aq "JUPYTER_SLURM_SHELL=${js_ghost#*:}" "/proc/$js_pid/environ" 2>/dev/null; then
      js_kill "${js_ghost%%:*}"
    fi
  done
  js_end 0
}
"""

# A command that runs once: PREFIX TOKEN DRAFT SECONDS #FILES (NAME CONTENT)… and the arguments of js_here. The wrapper
# keeps PREFIX.out locked until PREFIX.exit is written; the command inherits the lock with its output.
_ONCE: Final = r"""
js_wrap='set +efuC; ( exec "$@" ) </dev/null >&9 2>&7 7>&- 9>&-; js_code=$?
unset -f printf umask; umask 077; printf "%s\n" "$js_code" >"$0.exit"'
js_begin() {
  umask "$js_umask"
  set +C
  js_state=failed
  printf '%s\n' "$js_token" >&6 || return 0
  { js_lock; } 8>&9 6>&- 7>&-
  ( js_how=check; js_here "$@" ) 6>&- 7>&- 9>&- || { js_state=refused; return 0; }
  if [ -n "$js_first" ]; then
    { js_keep; } 8<>"$js_draft/$js_first" 6>&- 7>&- 9>&-
    # A look first: mv would complain, and that is not what the command says.
    [ ! -e "$js_folder" ] && LC_ALL=C mv -T -- "$js_draft" "$js_folder" 6>&- 7>&- 9>&- || {
      [ ! -d "$js_folder" ] || js_state=taken
      return 0
    }
  fi
  ( ( js_how=once; js_here "$@" ) & ) 6>&-
  js_state=started
}
js_once() {
  js_able || return
  js_prefix=$1 js_token=$2 js_draft=$3 js_wait=$4 js_n=$5
  shift 5
  js_first= js_holder= js_base=$js_prefix js_folder=${js_prefix%/*} js_state=failed
  umask 077
  if [ "$js_n" -gt 0 ]; then
    js_first=$2 js_base=$js_draft/${js_prefix##*/}
    LC_ALL=C mkdir -- "$js_draft"
    while [ "$js_n" -gt 0 ]; do
      if [ "$1" = link ]; then
        ln -- "$3" "$js_draft/$2" 2>/dev/null || cp -- "$3" "$js_draft/$2" || js_first=
      else
        printf '%b' "$3" >"$js_draft/$2" || js_first=
      fi
      shift 3
      js_n=$((js_n-1))
    done
    [ -n "$js_first" ] || js_base=
  fi
  if [ -n "$js_base" ]; then
    if [ -e "$js_base.out" ]; then
      js_state=taken
    else
      set -C
      { js_begin "$@"; } 9>"$js_base.out" 7>"$js_base.err" 6>"$js_base.once" || :
      set +C
    fi
  fi
  umask "$js_umask"
  if [ "$js_state" = started ]; then
    js_tell "$js_wait"
    return
  fi
  [ -z "$js_holder" ] || kill "$js_holder"
  [ "$js_base" = "$js_prefix" ] || rm -rf -- "$js_draft"
  js_mine=
  [ "$js_state" != taken ] || read -r js_mine 2>/dev/null <"$js_prefix.once"
  if [ "$js_mine" = "$js_token" ]; then js_holder=; js_tell "$js_wait"; return; fi
  if [ "$js_state" = refused ] && [ "$js_base" = "$js_prefix" ]; then
    rm -f -- "$js_prefix.out" "$js_prefix.err" "$js_prefix.once"
  fi
  js_end "$js_state"
}
js_tell() {
  js_code=
  if [ -e "$js_prefix.out" ] && [ ! -s "$js_prefix.exit" ]; then
    { flock -w "$1" 8; } 2>/dev/null 8<>"$js_prefix.out" && js_code=died
  fi
  [ ! -s "$js_prefix.exit" ] || read -r js_code <"$js_prefix.exit"
  if [ -n "$js_code" ]; then
    [ ! -s "$js_prefix.out" ] || cat "$js_prefix.out"
    [ ! -s "$js_prefix.err" ] || cat "$js_prefix.err" >&2
  fi
  [ -e "$js_prefix.out" ] || js_code=gone
  js_end "started $js_holder:${js_code:-runs}"
}
js_wait() { js_prefix=$1 js_holder=; js_tell "$2"; }
"""

# Files. The messages of coreutils in the C locale are mapped back to the error of the system.
_FILES: Final = r"""
js_read() {
  if [ -p "$1" ]; then echo 'Illegal seek' >&2; js_end 1; return; fi  # else it would wait until somebody writes to it
  LC_ALL=C dd if="$1" iflag=skip_bytes,count_bytes,fullblock bs=262144 skip="$2" count="$3" status=none </dev/null
  js_end $?
}
js_read_owned() {
  ( js_enter "${1%/*}" || exit
    js_name=./${1##*/}
    if [ -L "$js_name" ]; then js_bad "${1##*/} is a symbolic link"; exit; fi
    if [ -p "$js_name" ]; then js_bad "${1##*/} is not a regular file"; exit; fi
    export LC_ALL=C
    { js_opened "${1##*/}" &&
      dd iflag=skip_bytes,count_bytes,fullblock bs=262144 skip="$2" count="$3" status=none; } <"$js_name"
  ) </dev/null
  js_end $?
}
js_list() {
  ( LC_ALL=C ls -d -- "$1/." >/dev/null && CDPATH= cd -- "$1/." && if [ -r . ]; then
      for js_name in * .[!.]* ..?*; do
        if [ -e "$js_name" ] || [ -L "$js_name" ]; then printf '%s\0' "$js_name"; fi
      done
    else echo 'Permission denied' >&2; false
    fi ) </dev/null
  js_end $?
}
js_make() { ( umask 077; LC_ALL=C mkdir -p -- "$1" ) </dev/null; js_end $?; }
js_move() {
  if [ -e "$1" ] || [ ! -e "$2" ]; then
    [ "$3" = 0600 ] || chmod "$3" "$1"
    LC_ALL=C mv -fT -- "$1" "$2"
  fi </dev/null
}
js_put() {
  ( umask 077; set -C; printf '%b' "$4" >"$1" ) && js_move "$1" "$2" "$3"
  js_code=$?
  [ "$js_code" = 0 ] || rm -f -- "$1" </dev/null
  js_end "$js_code"
}
js_take() {
  js_note begin
  ( umask 077; LC_ALL=C exec dd of="$1" iflag=fullblock,count_bytes count="$3" oflag=seek_bytes seek="$2" \
      bs=65536 conv=notrunc status=none )
  js_code=$?
  js_end "$js_code"
  [ "$js_code" = 0 ] || exit
}
js_settle() { js_move "$@"; js_end $?; }
"""

# A command with live output: MARK TOKEN SECONDS TEXT and the arguments of js_here. The text is in a private file, the
# last argument of the command. This is the last call of a shell: the guard takes its standard input.
_LIVE: Final = r"""
js_prepare() { :; }
js_live() {
  js_mark=$1 js_file= js_limit=$3 js_text=$4
  umask 077
  set -C
  for js_folder in "${TMPDIR:-/tmp}" /tmp "$HOME"; do
    js_file=$js_folder/.jupyter_slurm-$2
    { printf '%s' "$js_text" >"$js_file" && js_prepare; } 2>/dev/null && break
    rm -f -- "$js_file" "$js_file.go" </dev/null
    js_file=
  done
  set +C
  umask "$js_umask"
  shift 4
  js_note begin
  js_note begin >&2
  [ -n "$js_file" ] || { js_end file; exit; }
  exec 8>&2 2>/dev/null  # the shell's own message about a signal is not the command's
  ( exec 2>&8 8>&-; js_how=live; js_here "$@" "$js_file" )
  js_code=$?
  exec 2>&8
  js_end "$js_code"
  exit
}
"""

# The same with a command that starts ahead of its text, which is empty in the call. It waits until it can open FILE.go.
# The text arrives as one line in the form of printf %b. After a moment, if the command still runs, a second line starts
# the clock of its time limit: a short command does not compete with the start of two processes. If that line does not
# come, a clock with more seconds, the first argument, started ahead as well. Meanwhile nobody else can have put a file
# in the place of the text, because the empty file is there. The time of FILE.go is that of the newest start-up file, by
# the clock of its own file system; that of a folder shows a file that was renamed or removed.
_AHEAD: Final = r"""
js_startup() {
  js_n=${XDG_CONFIG_HOME:-$HOME/.config} js_zsh=${ZDOTDIR:-$HOME}
  "$@" "$HOME" "$HOME/.profile" "$HOME/.bash_profile" "$HOME/.bash_login" "$HOME/.bashrc" "$HOME/.bash_aliases" \
    "$js_zsh" "$js_zsh/.zshenv" "$js_zsh/.zprofile" "$js_zsh/.zlogin" "$HOME/.cshrc" "$HOME/.tcshrc" "$HOME/.login" \
    "$js_n/fish" "$js_n/fish/config.fish" "$js_n/fish/conf.d" "$js_n/fish/functions" "${BASH_ENV:-$HOME}"
}
js_is_newer() {
  for js_n do
    if [ "$js_n" -nt "$js_file.go" ]; then return; fi
  done
  return 1
}
js_ahead() {
  js_prepare() {
    mkfifo -- "$js_file.go" </dev/null && touch -r "$(js_startup ls -dLt -- | head -n 1)" -- "$js_file.go"
  }
  js_go() {
    IFS= read -r js_text || return
    if js_startup js_is_newer || ! printf '%b' "$js_text" >"$js_file"; then js_note stale; return 1; fi
    exec 9<>"$js_file.go" >/dev/null
    read -r js_text
  }
  js_most=$1
  shift
  js_watch() {
    js_clock "$js_most" <&7 | {
      js_go && js_clock "$js_limit"
      js_over
    }
  }
  js_live "$@"
}
"""

# A Python replaces the shell, if there is one: PROGRAM, which reads its code from standard input.
_BECOME: Final = r"""
js_become() {
  js_py=/usr/bin/python3
  [ -x "$js_py" ] || js_py=$(command -v python3) || { js_end lacking; return; }
  ( umask "$js_umask"; exec "$js_py" -ISEu -c "$1" "${LC_CTYPE+=$LC_CTYPE}" )
  js_end "ended $?"
}
"""

_SELF: Final = r"""
unset JUPYTER_SLURM_SHELL
js_ready() { js_calm; js_trap; js_umask=$(umask); }
js_group=$$
{ read -r js_stat </proc/$$/stat && js_stat=${js_stat##*) } && set -- $js_stat && js_group=$3; } 2>/dev/null
"""

FUNCTIONS: Final = _RUN + KILL + GUARD + _LIVE + _AHEAD + _LOCK + _ONCE + ENTER_OWNED_FOLDER + _FILES + _BECOME + _SELF
