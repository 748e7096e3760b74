package memory

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// smaps is a process whose program is mapped in four parts, in the system's form.
const smaps = `00400000-01a1b000 r-xp 00000000 fe:00 9978176                            /usr/bin/oci pd
Size:              22636 kB
Rss:               20284 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01a1b000-03528000 r--p 0161b000 fe:00 9978176                            /usr/bin/oci pd
Rss:               22796 kB
Anonymous:             0 kB
03528000-03529000 r--p 03128000 fe:00 9978176                            /usr/bin/oci pd
Rss:                   4 kB
Anonymous:             4 kB
03529000-03725000 rw-p 03129000 fe:00 9978176                            /usr/bin/oci pd
Rss:                 884 kB
Anonymous:             0 kB
7fbee52f5000-7fbee544b000 r-xp 00028000 fe:00 131                        /usr/lib/libc.so.6
Anonymous:             0 kB
7fbee5500000-7fbee5501000 r--p 00000000 00:00 0
Anonymous:             0 kB
7fbee5600000-7fbee5601000 r--p 00000000 fe:00 132                        /opt/usr/bin/oci pd
Anonymous:             0 kB
`

func TestReadOnlyPartsOfTheProgram(t *testing.T) {
	want := []mapping{{0x400000, 0x1a1b000}, {0x1a1b000, 0x3528000}}
	if got := readOnly(strings.NewReader(smaps), "/usr/bin/oci pd"); !slices.Equal(got, want) {
		t.Errorf("the parts are %x, want %x", got, want)
	}
	if got := readOnly(strings.NewReader(smaps+strings.Repeat("x", 1<<20)), "/usr/bin/oci pd"); len(got) > 0 {
		t.Errorf("the parts in what cannot be read are %x", got)
	}
}

// A program that has returned its pages continues, with fewer of them.
func TestUnmapProgram(t *testing.T) {
	resident := func() (kb int) {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip("no /proc here")
		}
		_, of, _ := strings.Cut(string(status), "RssFile:")
		if _, err := fmt.Sscan(of, &kb); err != nil {
			t.Skip("the system does not tell how much of a file is mapped")
		}
		return kb
	}
	before := resident()
	unmapProgram()
	if after := resident(); after >= before {
		t.Errorf("%d kB of files are mapped, and %d were before", after, before)
	}
}
