package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime/pprof"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// steady are n samples that do not change.
func steady(n int) []sample {
	samples := make([]sample, n)
	for i := range samples {
		samples[i] = sample{rss: 100 << 20, heap: 20 << 20, descriptors: 40, goroutines: 60}
	}
	return samples
}

func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func([]sample)
		grows  string
	}{
		{"nothing changes", func([]sample) {}, ""},
		{"warming up", func(s []sample) {
			for i := range 10 {
				s[i].rss = int64(10*i) << 20
			}
		}, ""},
		{"one outlier", func(s []sample) { s[39] = sample{rss: 1 << 40, heap: 1 << 40, descriptors: 1000, goroutines: 1000} }, ""},
		{"memory that leaks", func(s []sample) {
			for i := range s {
				s[i].rss += int64(2*i) << 20
			}
		}, "RSS"},
		{"a heap that leaks", func(s []sample) {
			for i := range s {
				s[i].heap += int64(i) << 19
			}
		}, "heap in use"},
		{"a descriptor now and then", func(s []sample) {
			for i := range s {
				s[i].descriptors += int64(i / 4)
			}
		}, "descriptors"},
		{"a goroutine each time", func(s []sample) {
			for i := range s {
				s[i].goroutines += int64(i)
			}
		}, "goroutines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			samples := steady(40)
			tc.change(samples)
			for _, v := range compare(samples, true) {
				if v.flat == (v.name == tc.grows) {
					t.Errorf("%s: flat %t, from %s to %s, allowed %s", v.name, v.flat, v.second, v.last, v.allowed)
				}
			}
		})
	}
	samples := steady(40)
	samples[7].rss = mostMemory + 1
	for _, v := range compare(samples, false) {
		if v.flat == (v.name == "RSS at most") {
			t.Errorf("a peak: %s is flat: %t", v.name, v.flat)
		}
	}
	if v := compare(steady(3), true); len(v) != 1 || v[0].flat {
		t.Errorf("too few samples: %+v", v)
	}
}

// A real profile has as many goroutines as it says.
func TestSumValues(t *testing.T) {
	stop, started := make(chan struct{}), make(chan struct{})
	defer close(stop)
	for range 50 {
		go func() {
			started <- struct{}{}
			<-stop
		}()
	}
	for range 50 {
		<-started
	}
	profile := pprof.Lookup("goroutine")
	var packed bytes.Buffer
	if err := profile.WriteTo(&packed, 0); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := sumValues(text, 0); err != nil || sum < 50 || sum > 70 {
		t.Errorf("got %d goroutines, %v", sum, err)
	}
	if sum, err := sumValues(text, 7); err != nil || sum != 0 {
		t.Errorf("a value that no sample has: got %d, %v", sum, err)
	}
}

func FuzzSumValues(f *testing.F) {
	values := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{1, 2, 0x96, 1})
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), values), 2)
	f.Add([]byte{0x12, 0xff}, 0)
	f.Add([]byte{0x12, 2, 0x12, 0}, 0)
	f.Fuzz(func(t *testing.T, text []byte, i int) {
		if sum, err := sumValues(text, i); err == nil && i < 0 && sum != 0 {
			t.Errorf("a value before the first: %d", sum)
		}
	})
}

func TestResidentBytes(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int64
		fails      bool
	}{
		{"as the kernel writes it", "Name:\tocipd\nVmPeak:\t 2048 kB\nVmRSS:\t   51200 kB\nRssAnon:\t 4 kB\n", 50 << 20, false},
		{"none, as of a zombie", "Name:\tocipd\n", 0, true},
		{"no number", "VmRSS:\t much kB\n", 0, true},
		{"negative", "VmRSS:\t -1 kB\n", 0, true},
		{"too large", "VmRSS:\t 9223372036854775807 kB\n", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := residentBytes(tc.text)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func FuzzResidentBytes(f *testing.F) {
	f.Add("VmRSS:\t   51200 kB\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := residentBytes(text); got < 0 || got%1024 != 0 || err != nil && got != 0 {
			t.Errorf("got %d, %v", got, err)
		}
	})
}
