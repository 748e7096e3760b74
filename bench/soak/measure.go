package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"google.golang.org/protobuf/encoding/protowire"
)

// sample has the daemon's memory, descriptors and goroutines at a moment. Sizes are bytes.
type sample struct {
	at                      time.Duration
	rss, heap               int64
	descriptors, goroutines int64
	records                 int64
	database, wal           int64
	index, mirror           int64
	sent, messagesPerSecond int64
}

const (
	sampleTime = 5 * time.Second
	// leastSamples is how many there are at least, tableRows how many rows of
	// them are printed, about.
	leastSamples = 40
	tableRows    = 20
)

// watch samples until the time is over, or the daemon is gone.
func (s *soak) watch(ctx context.Context, d *process, operator *client.Client) error {
	began := time.Now()
	interval := min(sampleTime, s.length/leastSamples)
	between := max(1, int(s.length/interval)/tableRows)
	fmt.Fprintf(s.out, "%8s %7s %7s %4s %5s %8s %6s %6s %6s %6s %5s\n",
		"time", "RSS MB", "heap MB", "fds", "gorou", "records", "db B/r", "WAL MB", "ix B/r", "mi B/r", "msg/s")
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		case <-d.ended:
			return fmt.Errorf("the daemon has ended: %s", d.lastWords())
		}
		m, err := s.sample(ctx, d, operator)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		m.at = time.Since(began)
		before := sample{}
		if at := len(s.samples) - between; at >= 0 {
			before = s.samples[at]
		}
		m.messagesPerSecond = int64(float64(m.sent-before.sent) / (m.at - before.at).Seconds())
		s.samples = append(s.samples, m)
		if n%between == 0 {
			perRecord := func(bytes int64) int64 { return bytes / max(1, m.records) }
			fmt.Fprintf(s.out, "%8s %7.1f %7.1f %4d %5d %8d %6d %6.1f %6d %6d %5d\n",
				m.at.Round(time.Second), mega(m.rss), mega(m.heap), m.descriptors, m.goroutines, m.records,
				perRecord(m.database), mega(m.wal), perRecord(m.index), perRecord(m.mirror), m.messagesPerSecond)
		}
	}
}

func mega(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (s *soak) sample(ctx context.Context, d *process, operator *client.Client) (m sample, err error) {
	var status api.Status
	if err := call(ctx, operator, "kernel.status", nil, &status); err != nil {
		return m, err
	}
	if status.Audit.Fault != "" {
		return m, fmt.Errorf("the daemon closed its store: %s", status.Audit.Fault)
	}
	m.records = int64(min(status.Audit.Seq, 1<<62))
	m.sent = s.sent.Load() + s.denied.Load() + s.held.Load()
	profiled := func(name string, value int) int64 {
		sum, failure := profileSum(ctx, operator, name, value)
		err = errors.Join(err, failure)
		return sum
	}
	// A sample of the goroutines' profile has one value, their number. A sample of the heap's
	// has four: objects and bytes that were allocated, and objects and bytes in use.
	m.goroutines, m.heap = profiled("goroutine", 0), profiled("heap", 3)
	process := filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid))
	open, failure := os.ReadDir(filepath.Join(process, "fd"))
	err, m.descriptors = errors.Join(err, failure), int64(len(open))
	text, failure := os.ReadFile(filepath.Join(process, "status"))
	if err = errors.Join(err, failure); err == nil {
		m.rss, err = residentBytes(string(text))
	}
	for _, file := range []struct {
		name string
		size *int64
	}{{"ocipd.db", &m.database}, {"ocipd.db-wal", &m.wal}, {"ocipd.index.db", &m.index}} {
		info, failure := os.Stat(s.place.state(file.name))
		if failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		*file.size = info.Size()
	}
	copies, failure := filepath.Glob(s.place.state("audit*.jsonl*"))
	err = errors.Join(err, failure)
	for _, name := range copies {
		// One may be compressed or renamed between the list and the look.
		info, failure := os.Stat(name)
		if failure == nil {
			m.mirror += info.Size()
		} else if !errors.Is(failure, fs.ErrNotExist) {
			err = errors.Join(err, failure)
		}
	}
	return m, err
}

// residentBytes reads VmRSS of /proc/PID/status, proc_pid_status(5), which is in
// units of 1024 bytes.
func residentBytes(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilo, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 48)
			if err != nil || kilo < 0 {
				return 0, fmt.Errorf("cannot read the process's memory: %q", line)
			}
			return kilo << 10, nil
		}
	}
	return 0, errors.New("cannot read the process's memory: it has none")
}

// profileSum takes a profile of the daemon and adds up one of its values.
func profileSum(ctx context.Context, operator *client.Client, name string, value int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := operator.Stream(ctx, "debug.profile", api.ProfileParams{Name: name})
	if err != nil {
		return 0, fmt.Errorf("cannot take the profile %s: %w", name, err)
	}
	var packed bytes.Buffer
	for {
		text, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		var chunk api.ProfileChunk
		if err == nil {
			err = json.Unmarshal(text, &chunk)
		}
		if err != nil {
			return 0, fmt.Errorf("cannot take the profile %s: %w", name, err)
		}
		packed.Write(chunk.Data)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		return 0, fmt.Errorf("cannot read the profile %s: %w", name, err)
	}
	profile, err := io.ReadAll(io.LimitReader(unpacked, maxProfileBytes))
	if err == nil {
		value, sumErr := sumValues(profile, value)
		return value, sumErr
	}
	return 0, fmt.Errorf("cannot read the profile %s: %w", name, err)
}

// maxProfileBytes bounds a profile that is read.
const maxProfileBytes = 64 << 20

var errProfile = errors.New("malformed profile")

// sumValues adds up the i-th values of all samples of a profile. Samples are the
// messages in field 2, their values the numbers in field 2 of those, packed or
// one by one; source: pprof's profile.proto.
func sumValues(profile []byte, i int) (sum int64, err error) {
	err = eachField(profile, func(kind protowire.Type, one []byte) error {
		if kind != protowire.BytesType {
			return errProfile
		}
		n := 0
		return eachField(one, func(_ protowire.Type, values []byte) error {
			for ; len(values) > 0; n++ {
				v, size := protowire.ConsumeVarint(values)
				if size < 0 {
					return errProfile
				}
				if n == i {
					sum += int64(v)
				}
				values = values[size:]
			}
			return nil
		})
	})
	return sum, err
}

// eachField calls do with the content of each field 2 of a message: its bytes if it has a
// length, else the encoded number.
func eachField(message []byte, do func(protowire.Type, []byte) error) error {
	const wanted = 2
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return errProfile
		}
		message = message[size:]
		length := protowire.ConsumeFieldValue(number, kind, message)
		if length < 0 {
			return errProfile
		}
		content := message[:length]
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(content)
		}
		if number == wanted {
			if err := do(kind, content); err != nil {
				return err
			}
		}
		message = message[length:]
	}
	return nil
}

// verdict compares one measure of two quarters.
type verdict struct {
	name, second, last, allowed string
	flat                        bool
}

const (
	// memoryGrowth bounds the last quarter's memory, as a multiple of the second's.
	memoryGrowth = 1.2
	// With hostile neighbours, most of it is garbage of their input, and its size depends on
	// the moment; but it is never more than mostMemory.
	memoryGrowthOfMany = 1.5
	mostMemory         = 640 << 20
	// heapNoise is allowed to a heap besides: it is sampled, and holds garbage between two
	// collections.
	heapNoise = 4 << 20
	// warmTime is how long the caches take to fill at the usual rate.
	warmTime = 10 * time.Minute
	// Connections of apps that come and go are open at one moment or not. Hostile
	// neighbours open thousands, and some hundred are open at once: a leak of one for each
	// would soon exceed the bound.
	moreDescriptors, moreGoroutines             = 4, 12
	moreDescriptorsOfMany, moreGoroutinesOfMany = 600, 600
)

// compare judges whether the last quarter is as the second was.
func compare(samples []sample, alone bool) []verdict {
	quarter := len(samples) / 4
	if quarter == 0 {
		return []verdict{{name: "samples", second: "0", last: "0", allowed: "1 or more"}}
	}
	medians := func(of func(sample) int64) (second, last int64) {
		return median(samples[quarter:2*quarter], of), median(samples[len(samples)-quarter:], of)
	}
	var verdicts []verdict
	growth, descriptors, goroutines := memoryGrowth, int64(moreDescriptors), int64(moreGoroutines)
	if !alone {
		growth, descriptors, goroutines = memoryGrowthOfMany, moreDescriptorsOfMany, moreGoroutinesOfMany
	}
	memory := func(name string, noise int64, of func(sample) int64) {
		second, last := medians(of)
		most := int64(float64(second)*growth) + noise
		verdicts = append(verdicts, verdict{
			name, fmt.Sprintf("%.1f MB", mega(second)), fmt.Sprintf("%.1f MB", mega(last)), fmt.Sprintf("≤ %.1f MB", mega(most)), last <= most,
		})
	}
	number := func(name string, more int64, of func(sample) int64) {
		second, last := medians(of)
		verdicts = append(verdicts, verdict{
			name, strconv.FormatInt(second, 10), strconv.FormatInt(last, 10), "≤ " + strconv.FormatInt(second+more, 10), last <= second+more,
		})
	}
	memory("RSS", 0, func(m sample) int64 { return m.rss })
	memory("heap in use", heapNoise, func(m sample) int64 { return m.heap })
	number("descriptors", descriptors, func(m sample) int64 { return m.descriptors })
	number("goroutines", goroutines, func(m sample) int64 { return m.goroutines })
	if !alone {
		peak := slices.MaxFunc(samples, func(x, y sample) int { return cmp.Compare(x.rss, y.rss) }).rss
		verdicts = append(verdicts, verdict{"RSS at most", "", fmt.Sprintf("%.1f MB", mega(peak)), fmt.Sprintf("≤ %.1f MB", mega(mostMemory)), peak <= mostMemory})
	}
	return verdicts
}

func median(samples []sample, of func(sample) int64) int64 {
	values := make([]int64, len(samples))
	for i, m := range samples {
		values[i] = of(m)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// judge prints what the run came to and returns whether all was as it should be.
func (s *soak) judge() bool {
	flat := true
	if s.length < warmTime {
		fmt.Fprintf(s.out, "\nin less than %s the daemon is still warming up: its memory may grow\n", warmTime)
	}
	fmt.Fprintf(s.out, "\n%-12s %14s %14s %14s\n", "median", "2nd quarter", "last quarter", "allowed")
	for _, v := range compare(s.samples, s.alone) {
		result := "flat"
		if !v.flat {
			result, flat = "GROWS", false
		}
		fmt.Fprintf(s.out, "%-12s %14s %14s %14s  %s\n", v.name, v.second, v.last, v.allowed, result)
	}
	fmt.Fprintf(s.out, "\nsent %d, denied %d, held %d (approved %d, denied %d), delivered %d,\nbrought in %d, came and went %d, reloads %d, records followed %d, tasks %d\n",
		s.sent.Load(), s.denied.Load(), s.held.Load(), s.approved.Load(), s.disapproved.Load(), s.delivered.Load(),
		s.queued.Load(), s.visits.Load(), s.reloads.Load(), s.followed.Load(), s.tasks.Load())
	for _, done := range []struct {
		what  string
		count int64
	}{
		{"was sent", s.sent.Load()}, {"was denied", s.denied.Load()}, {"was approved", s.approved.Load()}, {"was denied by a person", s.disapproved.Load()},
		{"was delivered", s.delivered.Load()}, {"came in", s.queued.Load()}, {"came and went", s.visits.Load()}, {"was reloaded", s.reloads.Load()},
		{"was followed", s.followed.Load()}, {"was done as a task", s.tasks.Load()},
	} {
		if done.count == 0 {
			fmt.Fprintf(s.out, "WRONG: nothing %s, so that was not under load\n", done.what)
			flat = false
		}
	}
	if n := s.late.Load(); n > 0 {
		fmt.Fprintf(s.out, "%d tasks lost the lease of an attempt, since nobody was heard of for %s: something stopped this program\n", n, lease)
	}
	fmt.Fprintf(s.out, "a status took %s at most\n", s.longest.Round(time.Millisecond))
	for _, did := range s.neighbours {
		fmt.Fprintf(s.out, "neighbour: %s\n", did)
		if strings.HasSuffix(did, " 0") {
			fmt.Fprintln(s.out, "WRONG: it did nothing")
			flat = false
		}
	}
	if s.wrong > 0 {
		fmt.Fprintf(s.out, "WRONG: %d answers should not have come; the first: %v\n", s.wrong, s.first)
		flat = false
	}
	return flat
}
