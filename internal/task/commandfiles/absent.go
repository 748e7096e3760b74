package commandfiles

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
)

// interpreters run the file that their first argument names, with the letters of the options whose
// value is a text in its place.
var interpreters = map[string]string{
	"sh": "c", "bash": "c", "dash": "c", "zsh": "c", "ksh": "c", "ash": "c", "fish": "c", "python": "cm", "pypy": "cm", "perl": "eE", "ruby": "e",
	"node": "ep", "nodejs": "ep", "php": "r", "lua": "e", "Rscript": "e", "source": "", ".": "", "osascript": "e", "tclsh": "", "expect": "c", "java": "",
}

const (
	// prefixes run the command that follows them.
	prefixes = "env exec command builtin eval nohup time nice timeout setsid stdbuf xargs sudo doas if then elif else while until do ! {"
	// readers run the file behind their option -f.
	readers = "awk gawk mawk nawk make gmake sed psql"
	// scripts are the extensions of files that are run or applied.
	scripts = ".sh .bash .zsh .ksh .fish .py .pyc .pyz .rb .pl .pm .php .js .mjs .cjs .ts .mts .lua .tcl .exp .awk .sed .ps1 .r .jl .groovy .sql .mk .yml .yaml .tf .jar .so .wasm"
)

var (
	// otherwise are words with a "/" that are no paths: media types, substitutions of sed, numbers,
	// folders, and branches of another repository.
	otherwise = regexp.MustCompile(`^(?:(?:application|audio|font|image|message|model|multipart|text|video)/[\w.+-]+|[sy]/.*/.*/\w*|[0-9/.]+|.*/|(?:origin|upstream|refs)/.*)$`)
	number    = regexp.MustCompile(`^[0-9.]*[0-9][smhd]?$`)
	assigned  = regexp.MustCompile(`^[A-Za-z_]\w*=`)
)

// place of a word in a command or a text.
type place int

const (
	argument place = iota
	// program is the place of a program's name, and script that of a file that is run or read.
	program
	script
	// reader is among the arguments of one of the readers.
	reader
)

// reading reads the words of a command for names of files that are not there.
type reading struct {
	*search
	at    place
	texts string
	names []string
}

// absent adds the files that a command seems to name and that are not there: what is there once the
// command runs is not what a person approves. A word seems to name a file in the place of a program if
// it has a "/", in the place of a script always, and elsewhere with a "/" or the extension of a script.
func (s *search) absent(c *task.Action, env []string) {
	r := &reading{search: s, at: program}
	r.program(path.Base("/" + c.Argv[0]))
	for _, word := range c.Argv[1:] {
		if strings.ContainsAny(word, blanks) && r.at != script {
			r.at = program
		}
		r.text(word)
	}
	for _, name := range env {
		r.at = argument
		r.text(c.Env[name])
	}
	for _, name := range r.names {
		if len(name) > maxPath || strings.ContainsAny(name, "$*?[]{}\\") {
			continue
		}
		w := s.follow(name)
		if w.err == nil || !gone(w.err) || w.path == "" || !w.within && rootsFolder(filepath.Dir(w.path)) || s.copied[w.path] {
			continue
		}
		full := plainfile.Joined(s.Folder, name)
		if !slices.ContainsFunc(s.list, func(f File) bool { return f.Path == w.path || f.Path == full }) {
			s.add(File{Named: task.Named{Path: w.path, Absent: true}})
		}
	}
}

// text reads a text, or a word that may be a list.
func (r *reading) text(text string) {
	address := false
	for rest := text; rest != ""; {
		n := strings.IndexFunc(rest, func(c rune) bool { return !strings.ContainsRune(ends, c) })
		if n < 0 {
			n = len(rest)
		}
		between := rest[:n]
		rest = rest[n:]
		n = strings.IndexAny(rest, ends)
		if n < 0 {
			n = len(rest)
		}
		word := rest[:n]
		rest = rest[n:]
		if strings.HasPrefix(rest, "://") {
			word = ""
		}
		address = address && !strings.ContainsAny(between, blanks) || strings.HasSuffix(between, ":") && strings.HasPrefix(word, "//")
		out := r.between(between)
		if word != "" && !address && !out {
			r.word(word)
		}
	}
}

// between is what stands between two words. It reports whether the second one is written, or is the
// mark of a text that follows, and so names no file that is read.
func (r *reading) between(b string) (skip bool) {
	switch {
	case strings.Contains(b, ">"), strings.Contains(b, "<<"):
		return true
	case strings.ContainsAny(b, ";|&()`\n"):
		r.at = program
	case strings.Contains(b, "<"):
		r.at, r.texts = script, ""
	}
	return false
}

// word reads a word.
func (r *reading) word(word string) {
	option := word[0] == '-'
	switch {
	case r.at == program && assigned.MatchString(word):
		_, value, _ := strings.Cut(word, "=")
		r.named(value)
	case r.at == program && (option || number.MatchString(word)):
		// Of a program that runs another one.
	case r.at == program:
		r.program(word)
	case r.at == script && option:
		if !strings.HasPrefix(word, "--") && r.texts != "" && strings.ContainsAny(word, r.texts) {
			r.at = program
		}
	case r.at == script:
		r.names, r.at = append(r.names, word), argument
	case r.at == reader && (word == "-f" || word == "--file"):
		r.at, r.texts = script, ""
	default:
		for _, from := range starts(word) {
			if !option || from != 2 || !r.attached(word[from:]) {
				r.named(word[from:])
			}
		}
	}
}

// attached reports whether a file that is there is attached to options of one letter.
func (r *reading) attached(word string) bool {
	for from := range word {
		if r.follow(word[from:]).err == nil {
			return true
		}
		if !letters("-" + word[:from+1]) {
			break
		}
	}
	return false
}

// program reads the name of a program.
func (r *reading) program(word string) {
	if strings.Contains(word, "/") {
		r.names = append(r.names, word)
	}
	base := filepath.Base(word)
	texts, runs := interpreters[base]
	if !runs {
		texts, runs = interpreters[strings.TrimRight(base, "0123456789.")]
	}
	switch {
	case runs:
		r.at, r.texts = script, texts
	case slices.Contains(strings.Fields(readers), base):
		r.at = reader
	case !slices.Contains(strings.Fields(prefixes), base):
		r.at = argument
	}
}

// named keeps an argument that seems to be the name of a file.
func (r *reading) named(word string) {
	if word == "" || word[0] == '-' || word[0] == '@' || assigned.MatchString(word) {
		return
	}
	slash := strings.Contains(word, "/") && !otherwise.MatchString(word)
	if slash || slices.Contains(strings.Fields(scripts), strings.ToLower(filepath.Ext(word))) && filepath.Ext(word) != word {
		r.names = append(r.names, word)
	}
}
