# After `. ./env.sh`, plain `reframe -c checks/ -r` works. For bash, zsh and other POSIX shells
# that are in the project's folder or, for bash and zsh, anywhere.
plumbline_root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE:-${(%):-%x}}")" 2>/dev/null && pwd)
