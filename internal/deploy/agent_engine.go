package deploy

import (
	"context"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
)

// Commands that install an agent into a container are written for a machine with an engine beside it, which they ask to copy files into the container and to
// run commands there. Here both are the sandbox: it is given a docker command for the time of the installation that does those two things, and nothing else.
const dockerShim = `#!/bin/sh
bin=@BIN@ name=@NAME@
PATH=${PATH#"$bin":}
fail() { echo "docker: $*; agents are installed here by docker cp and docker exec of their container alone" >&2; exit 125; }
inside() { case $1 in "$name":*) printf %s "${1#"$name":}" ;; *) printf %s "$1" ;; esac; }
command=$1
[ $# -gt 0 ] && shift
case $command in
cp)
	while :; do case $1 in -a|-L|-q|--archive|--follow-link|--quiet) shift ;; -?*) fail "cp $1 isn't known" ;; *) break ;; esac; done
	[ $# -eq 2 ] || fail "cp takes two paths"
	from=$(inside "$1") to=$(inside "$2")
	if [ "$1" = - ]; then exec tar -x -f - -C "$to"; fi
	if [ "$2" = - ]; then exec tar -c -f - -C "$(dirname "$from")" "$(basename "$from")"; fi
	if [ "$from" = "$to" ]; then exit 0; fi
	case $from in */.) mkdir -p "$to" ;; esac
	exec cp -R "$from" "$to"
	;;
exec)
	dir= back= input=
	user() { case $1 in "$(id -u)"|"$(id -un)"|"$(id -u):$(id -g)") ;; *) fail "exec as user $1" ;; esac; }
	while :; do
		case $1 in
		-i|-it|-ti|--interactive) input=1 ;;
		-t|--tty|--privileged) ;;
		-d|-dt|-td|--detach) back=1 ;;
		-e|--env) export "$2"; shift ;;
		--env=*) export "${1#--env=}" ;;
		-w|--workdir) dir=$2; shift ;;
		--workdir=*) dir=${1#--workdir=} ;;
		-u|--user) user "$2"; shift ;;
		--user=*) user "${1#--user=}" ;;
		-*) fail "exec $1 isn't known" ;;
		*) break ;;
		esac
		shift
	done
	[ "$1" = "$name" ] || fail "there is no container $1"
	shift
	if [ -n "$dir" ]; then cd "$dir" || exit 126; fi
	if [ -n "$back" ]; then
		if command -v setsid >/dev/null 2>&1; then set -- setsid "$@"; fi
		"$@" </dev/null >/dev/null 2>&1 &
		exit 0
	fi
	if [ -z "$input" ]; then exec </dev/null; fi
	exec "$@"
	;;
*) fail "there is no $command" ;;
esac
`

// sudoShim has whom the sandbox runs as do what others would do by sudo: the sandbox's own may refuse to work there, or not find the docker command.
const sudoShim = `#!/bin/sh
while :; do case $1 in -n|-E|-H|-nE|-En) shift ;; *) break ;; esac; done
exec "$@"
`

// engineShims puts both into a folder of the sandbox.
func engineShims(ctx context.Context, box guest.Box, bin, container string) error {
	docker := strings.NewReplacer("@BIN@", shellWord(bin), "@NAME@", shellWord(container)).Replace(dockerShim)
	err := guest.Put(ctx, box, bin, []guest.PutFile{guest.PutBytes("docker", 0o755, []byte(docker)), guest.PutBytes("sudo", 0o755, []byte(sudoShim))})
	if err != nil {
		return step.Infra(fmt.Errorf("put the commands of an installation into the sandbox: %w", err))
	}
	return nil
}

// shellWord is a text as one word of a shell.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s // as it is, also where no shell reads it
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"

// installArgv runs a command by bash, where there is one, with a folder before all others.
func installArgv(bin, command string) []string {
	const script = `[ -z "$1" ] || PATH="$1:$PATH"; export PATH; if command -v bash >/dev/null 2>&1; then exec bash -c "$2"; fi; exec sh -c "$2"`
	return []string{"sh", "-c", script, "install", bin, command}
}
