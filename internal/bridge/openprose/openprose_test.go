package openprose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func lines(found []Finding) (list []string) {
	for _, f := range found {
		list = append(list, strings.TrimPrefix(f.String(), f.File+":"))
	}
	return list
}

// All forms of the grammar, each in a correct script.
const everything = `# A comment. No tools are declared.
use "std/evals/inspector" as inspector
use "github.com/a/b@v1"

agent writer:
  model: sonnet
  persist: project
  prompt: """
  Write {style}; \{literal\} and { "json": [1] } and {} stay.
    As it stands.
"""
  skills: ["web-search"]
  shape:
    self: ["drafts"]
    delegates: []
    prohibited: ["running commands"]
agent critic:
  model: "opus"   # quoted

block improve(draft, rounds):
  let review = session: critic
    prompt: "Review {draft}, at most {rounds} times"
  if review has critical issues:
    return call inspector
      artifact: draft
      retry: 3
      backoff: exponential
  return draft

const style = "short"
const depth = -1.5
let items = [style, "b", 3, true, false, null,
  { style }, { style: style, deep: { n: 1 } }
]
let draft = session "Write about {style}"
  model: haiku
  context: { items, style: style }
let second = session drafter: writer
draft = resume: writer
  prompt: "Once more"
  context: []
  retry: 2
let { a, b } = call "a name with blanks"
let c = call inspector
  subject: a.score.total
parallel:
  let left = call inspector
    subject: a
  let right = do improve(draft, 3)
parallel ("any", count: 1, on-fail: "continue"):
  call inspector
  session "x"
let joined = parallel:
  call inspector
repeat 3:
  call inspector
repeat 2 as attempt:
  session "try {attempt}"
for item in items:
  session "{item}"
for item, i in items:
  session "{item} {i}"
parallel for item in [1, 2] ("first"):
  session "{item}"
loop (max: 20):
  session "x"
loop until all tests pass (max: 5) as round:
  session "{round}"
loop while **there are: more pages** (max: 50):
  session "x"
loop for each item in items (max: 3):
  session "{item}"
if ***
  review has critical: concerns
  and they block
***:
  session "x"
elif it's "quoted":
  session "y"
else:
  draft = left
choice the best way:
  option "retry":
    session "x"
  option "abort":
    throw "no way"
try:
  let response = call inspector
catch as err:
  if err is recoverable:
    throw
  else:
    throw { error: "x", cause: err }
finally:
  session "clean"
let initial = do:
  let outline = call inspector
  session "draft {outline}"
do improve(right, 2)
let summaries = items
  | filter:
      session "Is {item} good?"
  | map:
      session "Sum up {item}"
  | reduce(all, one):
      session "{all} and {one}"
let once = items | pmap:
  session "{item}"
return {
  draft: draft
  summaries: summaries, once: once
}
`

func TestEveryForm(t *testing.T) {
	found := Check("x.prose", []byte(everything), Options{})
	if got, want := lines(found), []string{}; !slices.Equal(got, want) {
		t.Errorf("found\n%s", strings.Join(got, "\n"))
	}
}

// The same lines with other line ends, after a byte order mark, have the same meaning.
func TestOtherLineEnds(t *testing.T) {
	if found := Check("x.prose", []byte("\ufeff"+strings.ReplaceAll(everything, "\n", "\r\n")), Options{}); len(found) > 0 {
		t.Errorf("found %q", lines(found))
	}
}

func TestStandalone(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"tab", "if x:\n\tsession \"y\"", "2:1: a tab indents the line: blocks are indented by spaces"},
		{"word", "cal x", "1:1: “cal” begins no statement: did you mean “call”?"},
		{"other language", "while true:\n  x = 1", "1:1: “while” begins no statement: a statement begins with use"},
		{"sign", "=> x", "1:1: “=” begins no statement"},
		{"indented", "session \"a\"\n    session \"b\"", "2:13: “\"” stands where “:” belongs, in the property “session” of the session"},
		{"indented first", "  session \"a\"", "1:3: this line is indented, and no block begins before it"},
		{"between", "if x:\n    session \"a\"\n  session \"b\"", "3:3: this line is indented like none of the blocks it may belong to"},
		{"no body", "if x:\nsession \"a\"", "2:1: the if has no body: it is indented further than its header"},
		{"no colon", "if x\n  session \"a\"", "1:4: the line of the if has no “:” at its end"},
		{"empty condition", "if :\n  session \"a\"", "1:4: the condition of the if is empty"},
		{"open condition", "if **x:\n  session \"a\"", "1:4: the condition that begins with ** does not end with it"},
		{"more on the line", "session \"a\" \"b\"", "1:13: “\"” follows the session: want the end of the line"},
		{"arrow", "session \"a\" -> session \"b\"", "1:13: “-” follows the session: want the end of the line"},
		{"text", "session \"a\n", "1:9: the text does not end on its line: one of several lines stands between \"\"\" and \"\"\""},
		{"long text", "session \"\"\"a\nb", "1:9: the text does not end"},
		{"escape", `session "a\x"`, `1:11: there is no such escape: a text has \\, \", \n, \t, \{ and \}`},
		{"single quotes", "session 'a'", "1:9: “'” stands where “:” belongs, in the session"},
		{"array", "let a = [1 2]", "1:12: “2” stands where “,” or “]” belongs"},
		{"open array", "let a = [1,\n2", "1:9: “[” is not closed"},
		{"index", "let a = 1\nlet b = a[0]", "2:10: “[” follows the name “a”: a reference is a name and its properties, such as review.score"},
		{"call in brackets", "let a = [call x]", "1:10: “call” stands within brackets: bind its result before, and name it here"},
		{"number", "let a = -", "1:9: “-” begins no number"},
		{"no value", "let a =\n", "1:8: a value is missing"},
		{"else", "else:\n  session \"a\"", "1:1: “else” follows no if"},
		{"two elses", "if x:\n  session \"a\"\nelse:\n  session \"b\"\nelif y:\n  session \"c\"", "5:1: “elif” follows the else"},
		{"catch", "catch:\n  session \"a\"", "1:1: “catch” follows no try"},
		{"try", "try:\n  session \"a\"", "1:1: the try has no catch and no finally"},
		{"two catches", "try:\n  session \"a\"\ncatch:\n  session \"b\"\ncatch:\n  session \"c\"", "5:1: the try has a catch already"},
		{"catch after finally", "try:\n  session \"a\"\nfinally:\n  session \"b\"\ncatch:\n  session \"c\"", "5:1: “catch” follows the finally"},
		{"option", "option \"x\":\n  session \"a\"", "1:1: an option stands outside of a choice"},
		{"choice", "choice a way:\n  session \"a\"", "2:3: “session” stands where an option belongs"},
		{"no options", "choice a way:\nsession \"a\"", "1:1: the choice has no options"},
		{"repeat", "repeat \"n\":\n  session \"a\"", "1:8: “\"” stands where a number belongs: “repeat” takes how often, and “loop” a condition"},
		{"repeat of a name", "let n = 3\nrepeat n as attempt:\n  session \"a\"", "2:8: warning: a name stands where the grammar has a number: “repeat” takes how often, and “loop” a condition"},
		{"value of a repeat", "let x = repeat 3:\n  session \"a\"\nsession \"{x}\"", "1:9: warning: a loop gives no value that can be bound, by the grammar: “let” takes “parallel:”"},
		{"repeat 0", "repeat 0:\n  session \"a\"", "1:8: repeat takes a whole number from 1 on"},
		{"repeat 1.5", "repeat 1.5:\n  session \"a\"", "1:8: repeat takes a whole number from 1 on"},
		{"max", "loop (max: 0):\n  session \"a\"", "1:12: max takes a whole number from 1 on"},
		{"max of a name", "loop until x (max: config.n):\n  session \"a\"", "1:20: “config” stands where a number belongs, in (max: number)"},
		{"no max", "loop until x:\n  session \"a\"", "1:1: the loop has no bound: want (max: number)"},
		{"each without max", "let a = []\nloop for each x in a:\n  session \"b\"", "2:1: a loop over what a model has made has no bound: want (max: number)"},
		{"for", "for x on y:\n  session \"a\"", "1:7: “on” stands where “in” belongs"},
		{"for a number", "for x in 3:\n  session \"a\"", "1:10: a number is nothing to go through"},
		{"bound loop", "let r = parallel for x in []:\n  session \"a\"", "1:9: a loop gives no value that can be bound: “let” takes “parallel:”, and no “parallel for”"},
		{"parallel repeat", "parallel repeat 3:\n  session \"a\"", "1:1: warning: “parallel” and “repeat” stand together, which the grammar does not have: there are “parallel:” and “parallel for”"},
		{"join", "parallel (\"most\"):\n  session \"a\"", "1:11: “most” is no way to join: there are “all”, “first” and “any”"},
		{"count", "parallel (count: 1):\n  session \"a\"", "1:1: count goes with “any” alone"},
		{"count of more", "parallel (\"any\", count: 3):\n  session \"a\"", "1:18: count is 3, and there are 1 branches"},
		{"on-fail", "parallel (on-fail: \"x\"):\n  session \"a\"", "1:11: on-fail is “fail-fast”, “continue” or “ignore”"},
		{"modifier", "parallel (speed: 3):\n  session \"a\"", "1:11: there is no modifier “speed”: there are count and on-fail"},
		{"branch", "parallel:\n  let a = session \"x\"\n  let b = session \"{a}\"", "3:21: “a” is another branch's, and there after the join"},
		{"branches", "parallel:\n  let a = session \"x\"\n  let a = session \"y\"", "3:7: two branches bind “a”"},
		{"unbound", "session \"{a}\"", "1:11: “a” is not bound"},
		{"unbound property", "session \"x\"\n  context: [a.b]", "2:13: “a” is not bound"},
		{"assigned", "a = 1", "1:1: “a” is not bound: let binds a name"},
		{"constant", "const a = 1\na = 2", "2:1: “a” is a const, and is not assigned to"},
		{"round", "repeat 2 as i:\n  i = 1", "2:3: “i” is a loop's, and is not assigned to"},
		{"twice", "let a = 1\nlet a = 2", "2:5: “a” is bound here already"},
		{"hidden", "let a = 1\nif x:\n  let a = 2", "3:7: warning: “a” hides the one of an outer block"},
		{"inside", "if x:\n  let a = 2\nsession \"{a}\"", "3:11: “a” is not bound"},
		{"agent", "session: a", "1:10: there is no agent “a”"},
		{"agent's name", "agent writer:\n  model: x\nsession: writr", "3:10: there is no agent “writr”: did you mean “writer”?"},
		{"agents", "agent a:\n  model: x\nagent a:\n  model: y", "3:7: there is an agent “a” already"},
		{"agent in a block", "if x:\n  agent a:\n    model: y", "2:3: “agent” stands within a block: want it at the top"},
		{"no properties", "agent a:\nsession: a", "1:7: the agent “a” has no properties"},
		{"agent's property", "agent a:\n  tools: []", "2:3: an agent has no property “tools”: there are model, prompt, persist, skills and shape"},
		{"nested property", "agent a:\n  permissions:\n    bash: deny", "2:15: a value is missing"},
		{"prompt", "agent a:\n  prompt: 3", "2:11: prompt is a string, and no number"},
		{"shape", "agent a:\n  shape:\n    may: []", "3:5: a shape has no “may”: there are self, delegates and prohibited"},
		{"property twice", "session \"x\"\n  model: a\n  model: b", "3:3: the property “model” stands here again"},
		{"session's property", "session \"x\"\n  tools: []", "2:3: a session has no property “tools”: there are prompt, model, context, retry and backoff"},
		{"resume", "agent a:\n  persist: false\nresume: a", "3:9: the agent “a” is not persistent, so that there is nothing to resume"},
		{"retry", "session \"x\"\n  retry: 0", "2:10: retry takes a whole number from 1 on"},
		{"backoff", "session \"x\"\n  retry: 1\n  backoff: slow", "3:12: backoff is none, linear or exponential"},
		{"backoff alone", "session \"x\"\n  backoff: none", "2:3: warning: backoff says nothing without retry"},
		{"throw", "throw", "1:1: throw says no error, and stands in no catch"},
		{"block", "do x(1)", "1:4: there is no block “x”"},
		{"arguments", "block x(a):\n  return a\ndo x(1, 2)", "3:4: the block “x” takes 1 arguments, and is given 2"},
		{"parameters", "block x(a, a):\n  return a", "1:12: the parameter “a” stands here again"},
		{"block's name", "agent x:\n  model: a\nblock x:\n  session: x", "3:7: the block “x” has the name of an agent or a dependency"},
		{"use later", "session \"x\"\nuse \"std/a\"", "2:1: a dependency is declared after a statement: want it before them"},
		{"use twice", "use \"a\" as x\nuse \"b\" as x", "2:12: there is a dependency “x” already"},
		{"step", "let a = []\nlet b = a | sort:\n  session \"x\"", "2:13: “sort” is no step of a pipeline: there are map, filter, pmap and reduce"},
		{"reduce", "let a = []\nlet b = a | reduce(x):\n  session \"x\"", "2:13: reduce takes two names: reduce(accumulator, item)"},
		{"item outside", "let a = []\nlet b = a | map:\n  session \"x\"\nsession \"{item}\"", "4:11: “item” is not bound"},
		{"older forms", "input a: \"x\"", "1:1: warning: an input is of an older form of the language: prose upgrade --dry-run says what it becomes"},
		{"option twice", "choice a way:\n  option \"x\":\n    session \"a\"\n  option \"x\":\n    session \"b\"", "4:10: warning: there is an option “x” already"},
		{"no UTF-8", "session \"a\xff\"", "1:11: this is no UTF-8"},
		{"columns", "session \"請求書\" x", "1:15: “x” follows the session: want the end of the line"},

		// The protocol's rules.
		{"no phase", "choice the phase:\n  option \"spec_daft\":\n    session \"a\"", "2:10: “spec_daft” is no phase: did you mean “spec_draft”?"},
		{"among phases", "choice what is next:\n  option \"failed\":\n    session \"a\"\n  option \"else\":\n    session \"b\"", "4:10: “else” is no phase: there are spec_draft, "},
		{"phases left out", "choice the phase:\n  option \"failed\":\n    session \"a\"", "1:1: warning: the choice has no option for spec_draft, "},
		{"undeclared tool", "# tools: cli:lobster\nsession \"Call task_get\"", "2:15: the tool “task_get” is of mcp:ocipd, which is not declared"},
		{"undeclared server", "session \"Ask mcp:gmail\"", "1:14: the tool “mcp:gmail” is not declared"},
		{"declaration", "# tools: lobster", "1:10: “lobster” is no declaration of a tool: want cli:NAME or mcp:NAME"},
		{"misspelled tool", "# tools: mcp:ocipd\nsession \"Call task_transtion\"", "2:15: there is no tool “task_transtion”: did you mean “task_transition”?"},
		{"a session moves", "# tools: mcp:ocipd\nsession \"Call task_transition\"", "2:15: “task_transition” is the orchestrator's alone, and a session of no agent is told of it"},
		{"an executor moves", "# tools: mcp:ocipd\nagent executor:\n  prompt: \"then task_run_effect\"", "3:17: “task_run_effect” is the orchestrator's alone, and “executor” is told of it: name what it must not do under prohibited"},
		{"a reviewer's session", "# tools: mcp:ocipd\nagent spec-reviewer:\n  model: x\nsession: spec-reviewer\n  prompt: \"task_open_circuit\"", "5:12: “task_open_circuit” is the orchestrator's alone"},
		{"in a shape", "# tools: mcp:ocipd\nagent lobster:\n  shape:\n    self: [\"task_close_circuit\"]", "4:13: “task_close_circuit” is the orchestrator's alone"},
		{"in a call", "# tools: mcp:ocipd\ncall executor-step\n  prompt: \"task_transition\"", "3:12: “task_transition” is the orchestrator's alone"},
		{"retry of an executor", "agent executor-strong:\n  model: x\nsession: executor-strong\n  retry: 2", "4:3: warning: “executor-strong” is tried again without the store's seeing it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lines(Check("x.prose", []byte(test.script), Options{}))
			if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, test.want) }); i < 0 {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), test.want)
			}
			// A fault is reported without its consequences.
			if len(got) > 2 {
				t.Errorf("found more:\n%s", strings.Join(got, "\n"))
			}
		})
	}
	for _, fine := range []string{
		"# tools: mcp:ocipd\nagent orchestrator:\n  prompt: \"task_transition\"\nsession: orchestrator\n  prompt: \"task_run_effect\"",
		"# tools: mcp:ocipd\nagent executor:\n  shape:\n    prohibited: [\"task_transition\"]",
		"let task_id = 1\nsession \"the task_id is {task_id}\"",
	} {
		if found := Check("x.prose", []byte(fine), Options{}); len(found) > 0 {
			t.Errorf("%q: %q", fine, lines(found))
		}
	}
	if found := Check("x.prose", []byte("loop:\n  session \"Call task_transition\"\nchoice the phase:\n  option \"x\":\n    session \"a\""), Options{LanguageOnly: true}); len(found) != 1 || found[0].Level != Warning {
		t.Errorf("by the language alone: %q", lines(found))
	}
}

func TestContract(t *testing.T) {
	const head = "---\nname: x\nkind: function\n---\n\n### Parameters\n\n- `topic`: what\n\n"
	for _, test := range []struct{ name, text, want string }{
		{"no front matter", "# x\n", "1:1: there is no front matter: a contract begins with a line of ---"},
		{"open front matter", "---\nname: x\nkind: function\n", "1:1: the front matter does not end: a line of --- closes it"},
		{"kind", "---\nname: x\nkind: service\n---\n", "3:7: there is no kind “service”: want responsibility, function, gateway, pattern, test"},
		{"no kind", "---\nname: x\n---\n", "1:1: the front matter has no kind"},
		{"no name", "---\nkind: test\n---\n", "1:1: the front matter has no name"},
		{"place", head + "### Execution\n\n```prose\nsession \"{topic}\"\nsession \"{other}\"\n```\n", "14:11: “other” is not bound"},
		{"open fence", head + "### Execution\n\n```prose\nsession \"{topic}\"\n", "12:9: the block that begins here with ``` does not end"},
		{"input", head + "### Execution\n\n```prose\ninput a: \"x\"\n```\n", "13:1: “input” is of standalone scripts"},
		{"use", head + "### Execution\n\n```prose\nuse \"std/a\"\n```\n", "13:1: a contract's script declares no dependency: the contract does"},
		{"not given", head + "### Execution\n\n```prose\ncall help\n```\n\n## help\n\n### Parameters\n\n- `a`: x\n- `b`: x (optional)\n", "13:6: “help” is not given a"},
		{"not taken", head + "### Execution\n\n```prose\ncall help\n  a: topic\n  c: topic\n```\n\n## help\n\n### Parameters\n\n- `a`: x\n", "15:3: “help” takes no “c”"},
		{"two of a name", head + "## help\n\n## help\n", "12:1: there is “help” already"},
		{"tool", head + "### Tools\n\n- `gh`: x\n", "12:4: “gh” is no declaration of a tool: want cli:NAME or mcp:NAME"},
		{"kind of tool", head + "### Tools\n\n- `http:x`: x\n", "12:4: tools of “http” cannot be declared: want cli:NAME or mcp:NAME"},
		{"tool in a section", head + "### Strategies\n\n- call task_get\n", "12:8: the tool “task_get” is of mcp:ocipd, which is not declared"},
		{"tool of a function", head + "### Tools\n\n- `mcp:ocipd`: x\n\n## executor-work\n\n### Strategies\n\n- end with task_transition\n", "18:12: “task_transition” is the orchestrator's alone, and “executor-work” is told of it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lines(Check("x.prose.md", []byte(test.text), Options{}))
			if len(got) == 0 || !strings.HasPrefix(got[0], test.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), test.want)
			}
		})
	}
	for _, fine := range []string{
		head + "### Execution\n\n````prose\nsession \"\"\"\n```\n{topic}\n\"\"\"\n````\n\n### Strategies\n\n```prose\nthis is an example\n```\n",
		"---\nname: x\nkind: pattern\n---\n\n### Slots\n\n- `worker`: x\n\n### Delegation\n\n```prose\ncall worker\n  brief: task_brief\n```\n",
		"---\nname: x\nkind: responsibility\nid: 1\n---\n\n### Requires\n\n#### funding\n\nx\n\n### Maintains\n\n- `view`: x\n\n### Execution\n\n```prose\nreturn { funding, view }\n```\n",
		head + "### Tools\n\n- `mcp:ocipd`: x\n\n### Strategies\n\n- move it with task_transition\n\n## orchestrator-step\n\n### Strategies\n\n- task_transition\n",
	} {
		if found := Check("x.prose.md", []byte(fine), Options{}); len(found) > 0 {
			t.Errorf("%q: %q", fine, lines(found))
		}
	}
}

// The programs that are shipped pass, and the older form differs from the newer one in
// what it has to.
func TestShipped(t *testing.T) {
	for _, name := range []string{"ocip-protocol.prose.md", "ocip-protocol.prose"} {
		source, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "prose", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Check(name, source, Options{}) {
			if f.Level == Error || strings.HasSuffix(name, ".md") || !strings.Contains(f.Text, "older form") {
				t.Error(f)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	deep := strings.Repeat("[", 10000)
	for text, want := range map[string]string{
		strings.Repeat("x", MaxBytes+1):              "the program is larger than 1048576 bytes",
		"let a = " + deep:                            "blocks and values are more than 64 deep",
		strings.Repeat("x y\n", 10000):               "begins no statement",
		"let a = 1\n" + strings.Repeat(" |", 100000): "no step of a pipeline",
	} {
		found := Check("x.prose", []byte(text), Options{})
		if len(found) == 0 || len(found) > maxFindings || !strings.Contains(found[len(found)-1].Text, want) {
			t.Errorf("%.40q…: %d findings, %.200q", text, len(found), lines(found))
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("x.prose", everything)
	f.Add("x.prose.md", "---\nname: x\nkind: function\n---\n### Tools\n- `mcp:ocipd`: x\n### Execution\n```prose\nlet a = call b\n  | map:\n      session \"{item}\"\n```\n## b\n")
	f.Add("x.prose", "if ***\n***:\n  x.y = [\n{a:\n1}]")
	f.Fuzz(func(t *testing.T, name, source string) {
		found := Check(name, []byte(source), Options{})
		count := strings.Count(source, "\n") + 1
		for _, one := range found {
			if one.Line < 1 || one.Line > count || one.Column < 1 || one.Text == "" || strings.ContainsAny(one.Text, "\n") {
				t.Errorf("%+v of %d lines", one, count)
			}
		}
		for _, one := range Check(name, []byte(source), Options{LanguageOnly: true}) {
			if len(found) < maxFindings && one.Level == Error && !slices.Contains(found, one) {
				t.Errorf("%v is of the language alone", one)
			}
		}
	})
}
