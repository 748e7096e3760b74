package casefile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/ocip/policy"
)

// configured is a configuration that was in force.
type configured struct {
	seq  uint64
	text string
}

// maxSigners bounds the size of the file of allowed signers.
const maxSigners = 1 << 20

// govern adds the versions in force at the records: of the program, the configuration, the policy
// and the signers, each with the record that announced it.
func (f *folder) govern() error {
	var needed [kinds][]uint64
	for _, seq := range f.seqs() {
		for kind, list := range f.inForce {
			at, found := slices.BinarySearch(list, seq)
			if found {
				at++
			}
			switch {
			case at > 0:
				needed[kind] = append(needed[kind], list[at-1])
			case kind == kindConfiguration:
				// A later record can lead back to it.
				needed[kind] = append(needed[kind], 0)
			}
		}
	}
	for kind := range needed {
		needed[kind] = slices.Compact(needed[kind])
		for _, seq := range needed[kind] {
			if seq == 0 {
				continue
			}
			if err := f.add(seq, f.lines[seq], true); err != nil {
				return err
			}
		}
	}
	for _, seq := range needed[kindConfiguration] {
		if err := f.configuration(seq); err != nil {
			return err
		}
	}
	for _, seq := range needed[kindPolicy] {
		f.Policies = append(f.Policies, f.policy(seq))
	}
	for _, seq := range needed[kindSigners] {
		f.Signers = append(f.Signers, f.signers(seq))
	}
	return nil
}

// configuration adds the configuration that a record put in force. Zero stands for the one before
// the first such record in the log.
func (f *folder) configuration(seq uint64) error {
	replay := configlog.NewReplay(seq)
	for _, at := range f.inForce[kindConfiguration] {
		more, err := replay.Add(at, f.lines[at])
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	found, err := replay.InForce()
	if errors.Is(err, configlog.ErrUnknown) {
		f.Configurations = append(f.Configurations, held{Record: seq, Why: "the records that say it were removed, or are of a version that wrote none"})
		return nil
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.Configurations, func(h held) bool { return h.Record == found.Seq }) {
		return nil
	}
	h := held{Record: found.Seq, Digest: found.Digest, Files: []string{fmt.Sprintf("configuration/%d.yaml", found.Seq)}}
	f.files[h.Files[0]] = []byte(found.Text)
	if len(found.Directory) > 0 {
		f.files[fmt.Sprintf("configuration/%d.directory.jsonl", found.Seq)] = []byte(joined(found.Directory))
	}
	f.Configurations = append(f.Configurations, h)
	f.configs = append(f.configs, configured{found.Seq, found.Text})
	// A configuration that is larger than a record takes several consecutive records.
	for _, at := range slices.Backward(f.inForce[kindConfiguration]) {
		if at > found.Seq {
			continue
		}
		e, err := audit.Parse(f.lines[at])
		if err != nil {
			return &audit.Fault{Seq: at, Problem: err.Error()}
		}
		if err := f.add(at, f.lines[at], true); err != nil {
			return err
		}
		if part, _ := e.Details["part"].(float64); part <= 1 {
			break
		}
	}
	return nil
}

func joined(lines []string) string {
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// policy adds the text of the policy that a record put in force, if the program or the operator's
// files still have that text.
func (f *folder) policy(seq uint64) held {
	e := f.chosen[seq]
	h := held{Record: seq}
	h.Digest, _ = e.Details["digest"].(string)
	h.Why = "its text is not on record, and today's files differ"
	for _, c := range f.configs {
		cfg, err := config.Parse(fmt.Sprintf("configuration/%d.yaml", c.seq), []byte(c.text))
		if err != nil {
			continue
		}
		text, err := policy.Read(policy.Source{Path: cfg.Policy.Path, Data: cfg.Policy.Data.Map()})
		if err != nil || text.Digest() != h.Digest {
			continue
		}
		h.Why = ""
		for _, part := range text.Parts() {
			name := fmt.Sprintf("policies/%d.data.json", seq)
			if part.Name != "" {
				name = fmt.Sprintf("policies/%d/%s", seq, safeName(part.Name))
			}
			f.files[name] = part.Text
			h.Files = append(h.Files, name)
		}
		break
	}
	return h
}

// signers adds the file of allowed signers that a record announces, if the file is still the same.
func (f *folder) signers(seq uint64) held {
	e := f.chosen[seq]
	h := held{Record: seq}
	h.Digest, _ = e.Details["digest"].(string)
	file, _ := e.Details["file"].(string)
	text, err := durable.ReadUpTo(file, maxSigners)
	if err != nil || "sha256:"+sum(text) != h.Digest {
		h.Why = "the file is not on record, and today's file differs"
		return h
	}
	h.Files = []string{fmt.Sprintf("signers/%d.allowed_signers", seq)}
	f.files[h.Files[0]] = text
	return h
}
