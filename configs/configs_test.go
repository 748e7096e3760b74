package configs_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/config"
)

// TestDefault holds the shipped file to the defaults of the code.
func TestDefault(t *testing.T) {
	c, err := config.Parse("ocipd.yaml", configs.Default())
	if err != nil {
		t.Fatal(err)
	}
	got, want := reflect.ValueOf(*c), reflect.ValueOf(*config.Default())
	for i := range got.NumField() {
		field := got.Type().Field(i)
		if !field.IsExported() || field.Name == "File" {
			continue
		}
		if got, want := got.Field(i).Interface(), want.Field(i).Interface(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads as %+v, the default is %+v", field.Name, got, want)
		}
	}
}

// TestDefaultWritesOutEveryKey keeps the file complete, since people copy it to
// learn what there is.
func TestDefaultWritesOutEveryKey(t *testing.T) {
	c, err := config.Parse("ocipd.yaml", configs.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(config.Keys(), "agents", "routes", "directory", "access.apps", "access.channels", "hooks.apps", "channels", "apps", "ipc.allow_uids") {
		if c.Source(key) == config.SourceDefault {
			t.Errorf("%s is not in the file", key)
		}
	}
}

// TestDefaultExamples reads the file with its commented examples switched on.
func TestDefaultExamples(t *testing.T) {
	var out [][]byte
	for line := range bytes.SplitSeq(configs.Default(), []byte("\n")) {
		switch {
		case bytes.HasPrefix(line, []byte("#  ")):
			line = line[1:]
		case bytes.HasPrefix(line, []byte("  #  ")):
			line = append([]byte("    "), line[5:]...)
		case bytes.HasSuffix(line, []byte(": []")), bytes.HasSuffix(line, []byte(": {}")):
			line = line[:len(line)-3]
		}
		out = append(out, line)
	}
	c, err := config.Parse("ocipd.yaml", bytes.Join(out, []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Agents) != 1 || len(c.Routes) != 1 || len(c.Directory) != 3 || len(c.Access.Apps) != 3 || len(c.Access.Channels) != 1 || len(c.Hooks.Apps) != 1 || len(c.Channels) != 1 {
		t.Errorf("not every example was read: %+v", c)
	}
}

func TestDefaultIsACopy(t *testing.T) {
	configs.Default()[0] = 'x'
	if configs.Default()[0] == 'x' {
		t.Error("a caller can change the default")
	}
}
