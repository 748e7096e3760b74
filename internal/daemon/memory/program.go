package memory

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// unmapProgram returns the pages of the program's own file. The system maps many pages
// where one is needed, so a start maps nearly all of them, and none go while memory is
// plentiful: of 40 MB, a daemon under full load maps 31 again, and uses 13. The system's
// file cache still has the pages. A failure costs memory and nothing else.
func unmapProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	mappings, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer mappings.Close()
	for _, m := range readOnly(mappings, program) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// mapping is the position of a part of a file in memory.
type mapping struct{ from, to uintptr }

// readOnly returns the mappings of a file that are only for reading and execution, and have
// no changed byte: a change, such as a debugger's breakpoint, exists nowhere else. smaps is
// in the form of /proc/PID/smaps.
func readOnly(smaps io.Reader, file string) (found []mapping) {
	lines, ours := bufio.NewScanner(smaps), false
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		switch {
		case len(fields) >= 5 && bytes.IndexByte(fields[0], '-') > 0:
			from, to, _ := bytes.Cut(fields[0], []byte("-"))
			m := mapping{address(from), address(to)}
			// The name is the last field, after five others, and may contain blanks.
			ours = m.from > 0 && m.to > m.from && !bytes.ContainsRune(fields[1], 'w') && len(fields) > 5 && bytes.HasSuffix(lines.Bytes(), []byte(" "+file))
			if ours {
				found = append(found, m)
			}
		case ours && len(fields) == 3 && string(fields[0]) == "Anonymous:" && string(fields[1]) != "0":
			found = slices.Delete(found, len(found)-1, len(found))
			ours = false
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return found
}

func address(hex []byte) uintptr {
	n, err := strconv.ParseUint(string(hex), 16, 64)
	if err != nil {
		return 0
	}
	return uintptr(n)
}
