package acp

import (
	"context"
	"io/fs"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/task"
	declared "github.com/openclawos/ocipd/internal/task/outputs"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskclient"
)

// maxOutputs bounds the files recorded for an attempt. maxSeen bounds the names
// read in a workspace.
const (
	maxOutputs = 200
	maxSeen    = 100_000
)

// outputs returns the files of a workspace that match the outputs of a spec. It skips entries that
// name no file.
func outputs(dir string, entries []string) (files []string, err error) {
	named := declared.Of(entries)
	if !named.Patterns() {
		return nil, nil
	}
	seen := 0
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		seen++
		switch {
		case err != nil && name != ".":
			return nil // a folder that cannot be read has no outputs
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case len(files) >= maxOutputs || seen > maxSeen:
			return fs.SkipAll
		case d.Type().IsRegular() && named.Match(name):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// deliver records the output files that the spec names, and reports whether the attempt
// has produced anything.
func (b *bridge) deliver(ctx context.Context) (made bool, err error) {
	files, err := outputs(b.dir, b.view.Spec.Outputs)
	if err != nil {
		b.o.Say("cannot look for outputs: %v", err)
	}
	kind := task.PrimaryOutput
	if b.attempt.Research() {
		kind = task.OtherArtifact
	}
	for _, name := range files {
		err := b.o.Daemon.Call(ctx, "task.record_artifact", &taskapi.ArtifactParams{
			Write: b.write(), AttemptID: b.attempt.ID, Kind: kind, URI: name, ProducedBy: b.o.Attached.Actor, Fence: &b.attempt.Fence,
		}, nil)
		switch {
		case err == nil:
			made = true
		case over(err), taskclient.Away(err):
			return made, err
		default:
			b.o.Say("%s is not recorded: %v", name, err)
		}
	}
	if made {
		return true, nil
	}
	v, err := b.get(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(v.Artifacts, func(a task.Artifact) bool { return a.AttemptID == b.attempt.ID && a.Work && !a.Undeclared }), nil
}
