# `make help` lists the targets.

GO           ?= go
PYTHON       ?= /usr/bin/python3
BIN          := bin/ocipd
FUZZTIME     ?= 10s
SOAK_TIME    ?= 1h
# The length of fleet-chaos, and how soon after the last fault every message has its receipt.
FLEET_SEEDS  ?= 20
FLEET_HOSTS  ?= 8
FLEET_TIME   ?= 60s
FLEET_QUIET  ?= 10s
TEST_TIMEOUT ?= 40m
PROFILE_TIME ?= 20s
ARGS         ?=
PREFIX       ?= $(HOME)/.local

# Built from source by the go command, at this version, once; cached afterwards.
# It brings staticcheck, revive and gosec with it.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

VERSION := $(or $(shell git describe --tags --dirty 2>/dev/null),dev)
COMMIT  := $(or $(shell git rev-parse --short=12 HEAD 2>/dev/null),none)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
SOURCES := $(wildcard client cmd examples internal configs bench sdk test)
# Where the processor's time goes in dispatches: the compiler makes those paths fast.
PROFILE := bench/ocipd.pgo
# How the binary is compiled. What needs the packages compiled, but not for the
# race detector, asks for the same, so that they are compiled once.
COMPILED := -trimpath -buildvcs=false -pgo=$(PROFILE)

# What the race detector leaves out: SQLite, which is C translated to Go and keeps
# what it works on outside Go's heap, where the detector sees nothing; and checks
# of unsafe pointers inside the standard library.
RACE  := -race -trimpath -buildvcs=false -gcflags='std=-d=checkptr=0' -gcflags='modernc.org/...=-race=false'
# At its end a raced program does not sleep a second for what its threads may still do:
# there are a hundred of them, and the programs that they start.
export GORACE := atexit_sleep_ms=0
# Every test is run, and none is vetted once more: `make lint` does it. Tests that wait for
# processes and disks wait side by side, and twice as many packages as there are processors.
TESTS := -count=1 -vet=off -timeout $(TEST_TIMEOUT) -parallel 4 -p $(shell expr 2 '*' $$(nproc))
# Packages that start nothing beside themselves, nor do their tests: nothing can race in
# them, and the detector would take five times as long. test/archtest holds them to it.
ALONE := bench/detection test/archtest internal/api/members internal/audit internal/audit/fold internal/audit/gate \
	internal/audit/sealedtext internal/fleet/lane internal/ocip/media internal/ocip internal/ocip/commitment \
	internal/ocip/content internal/task internal/base/term internal/base/text
# Packages whose tests start whole daemons, or make large logs. `make test` runs them without the
# race detector, and `make race` with it. The longest are first, so that none is left alone at the end.
WHOLE := internal/daemon cmd/ocipd internal/bridge/console/page examples integrations internal/evidence/index sdk bench/fault
# Tests of many cases like each other, of which the detector sees a few, and tests that kill
# a daemon many times, or have many processes at it: `make test-long` runs them.
SWEEPS := TestAlteredColumns|TestAttacks|TestCanaryOf.*|TestConsoleWaysIn|TestDamagedTilesAreMadeAgain|TestEditedRowsAreFoundAtTheStart|TestEditedTaskIsFoundAtTheStart|TestEveryColumnIsHeldToTheLog|TestEveryTextIsText|TestFaults|TestHundredThousandContacts|TestKilledAtAnyMoment|TestLargeDirectoryOnRecord|TestManyFaultsTakeNoLonger|TestNoEditLetsAnythingThrough|TestOldRowsAreFoundAtTheStart|TestPlantedFiles|TestRemovedIsGone|TestTaskFailsOverKills
KILLS := TestACPRunOutlivesTheDaemon|TestApprovalsAreLinearizable|TestConfigReloadsUnderLoad|TestEffectsAreLinearizable|TestFleetChaos|TestFleetNeverBothThere|TestHostileClients|TestKilledRoundsAreLinearizable|TestKillUnderLoad|TestKillWhileDeciding|TestLobsterKilled|TestManyProcessesOneWinner|TestMCPMessagesOverKills|TestPanicInACommit|TestRedeemOverKills|TestReloadSurvivesKill|TestRoundsAreLinearizable|TestRunnerKilled|TestTaskRunIsKilled
# The packages that have sweeps.
SWEPT := bench/fault cmd/ocipd internal/bridge/console internal/bridge/console/page internal/config internal/daemon internal/evidence/configlog internal/evidence/mirror internal/store internal/task/taskstore
# Runs tests, and prints what failed and the slowest ones.
REPORT := | $(GO) run -buildvcs=false ./test/report
# Whether the race detector can be linked: it needs a C compiler and its headers.
HAVE_CC = printf '\#include <stdlib.h>\nint main(void) { return 0; }\n' | \
	$$($(GO) env CC) -x c -o /dev/null - >/dev/null 2>&1

.DEFAULT_GOAL := build
.PHONY: build run install uninstall demo test test-long race fuzz e2e e2e-witness mutants bench detection profile fault fleet-chaos soak reference page pictures size cover lint vuln fmt dist sdk dist-test machine-test clean help

build: ## build the static binary bin/ocipd
	CGO_ENABLED=0 $(GO) build $(COMPILED) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/ocipd

run: build ## build, then serve in the foreground (ARGS="--config file")
	./$(BIN) serve $(ARGS)

install: build ## install to PREFIX (~/.local) and run it as a service of yours
	if [ -x '$(PREFIX)/bin/ocipd' ] && ! cmp -s $(BIN) '$(PREFIX)/bin/ocipd'; then cp -p '$(PREFIX)/bin/ocipd' '$(PREFIX)/bin/ocipd.former'; fi
	install -D -m 0755 $(BIN) '$(PREFIX)/bin/ocipd'
	'$(PREFIX)/bin/ocipd' service install $(ARGS)

uninstall: ## stop the service and remove what install wrote; configuration and state stay
	if [ -x '$(PREFIX)/bin/ocipd' ]; then '$(PREFIX)/bin/ocipd' service uninstall $(ARGS); fi
	rm -f '$(PREFIX)/bin/ocipd' '$(PREFIX)/bin/ocipd.former'

demo: build ## build, then show the daemon at work, without touching the machine
	./$(BIN) demo $(ARGS)

test: ## run the tests: under the race detector, if there is a C compiler, but for those of whole daemons
	@list=$$($(GO) list ./...) || exit; \
	if $(HAVE_CC); then \
		list=$$(echo "$$list" | grep -vE "/($$(echo $(ALONE) $(WHOLE) | tr ' ' '|'))$$"); \
		plain='$(addprefix ./,$(WHOLE) $(ALONE))'; \
	else \
		echo "make test: no C compiler found, so the race detector stays off" >&2; plain=$$list; list=; \
	fi; \
	set -x; { \
		CGO_ENABLED=0 $(GO) test -json $(COMPILED) $(TESTS) -skip '^($(SWEEPS)|$(KILLS))$$' $$plain; \
		[ -z "$$list" ] || CGO_ENABLED=1 $(GO) test -json $(RACE) $(TESTS) -skip '^($(SWEEPS)|$(KILLS))$$' $$list; \
	} $(REPORT)

test-long: ## run what `make test` leaves out: sweeps, and kills under the race detector
	@$(HAVE_CC) || { echo "make test-long: the race detector needs a C compiler (gcc)" >&2; exit 1; }
	@set -x; { \
		CGO_ENABLED=0 $(GO) test -json $(COMPILED) $(TESTS) -run '^($(SWEEPS))$$' $(addprefix ./,$(SWEPT)); \
		CGO_ENABLED=1 $(GO) test -json $(RACE) $(TESTS) -run '^($(KILLS))$$' ./cmd/ocipd ./internal/daemon; \
	} $(REPORT)

race: ## run every test under the race detector, or fail
	@$(HAVE_CC) || { echo "make race: the race detector needs a C compiler (gcc)" >&2; exit 1; }
	CGO_ENABLED=1 $(GO) test $(RACE) $(TESTS) ./...

fuzz: ## run every fuzz target for FUZZTIME (10s) each
	@set -eu; found=0; \
	for pkg in $$($(GO) list ./...); do \
		list=$$($(GO) test -list '^Fuzz' "$$pkg"); \
		for target in $$(printf '%s\n' "$$list" | grep '^Fuzz' || true); do \
			found=$$((found + 1)); \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"; \
		done; \
	done; \
	if [ "$$found" -eq 0 ]; then echo "make fuzz: no fuzz target found" >&2; exit 1; fi; \
	echo "fuzz targets run: $$found, $(FUZZTIME) each, no fault found"

e2e: build ## try ocipd mcp and acp with the MCP inspector, Claude Code, Codex, OpenClaw, ACP agents and Lobster (installs them in e2e/)
	@command -v npm >/dev/null || { echo "make e2e: it needs Node and npm" >&2; exit 1; }
	cd e2e && npm ci --no-audit --no-fund && node node_modules/@anthropic-ai/claude-code/install.cjs
	cd e2e/github && $(GO) build -o ../node_modules/.bin/github-mcp-server github.com/github/github-mcp-server/cmd/github-mcp-server
	cd e2e/openclaw && npm ci --ignore-scripts --no-audit --no-fund && npm rebuild node
	@# npm ci refuses a lock without the builds of opencode for other systems, which no registry has to have.
	cd e2e/bridges && npm install --no-save --ignore-scripts --no-audit --no-fund && npm rebuild opencode-ai
	cd examples/openai-agents && npm ci --ignore-scripts --no-audit --no-fund
	cd examples/langgraph && npm ci --ignore-scripts --no-audit --no-fund
	cd e2e/hooks && npm ci --ignore-scripts --no-audit --no-fund
	OCIPD='$(CURDIR)/$(BIN)' $(GO) test -count=1 -timeout 60m -tags e2e ./e2e
	$(MAKE) e2e-witness

e2e-witness: build ## hold the log against a witness and a verifier that others wrote (Go modules of their own)
	cd e2e/witness && $(GO) build -o '$(CURDIR)/bin/' filippo.io/torchwood/cmd/litewitness filippo.io/torchwood/cmd/witnessctl
	cd e2e/witness && OCIPD='$(CURDIR)/$(BIN)' WITNESS_TOOLS='$(CURDIR)/bin' $(GO) test -count=1 -timeout 15m ./...

mutants: ## switch each guard of internal/base/mutant off in turn: the canary has to notice each (ARGS="wall sender": those)
	@GO='$(GO)' COMPILED='$(COMPILED)' packaging/mutants $(ARGS)

bench: build ## measure the daemon end to end, and the page of the console if there is Chromium
	$(GO) run -buildvcs=false ./bench $(ARGS)
	CGO_ENABLED=0 $(GO) test $(COMPILED) -vet=off -run '^$$' -bench '^Benchmark(Page|Watched)$$' -benchtime 1x ./internal/bridge/console/page

detection: ## measure the detectors on labelled texts (ARGS="-write": keep the figures)
	$(GO) run -buildvcs=false ./bench/detection $(ARGS)

profile: ## record anew, into bench/ocipd.pgo, what the build is made fast for
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) test -run '^$$' -trimpath -bench '^BenchmarkDispatch$$' -benchtime $(PROFILE_TIME) -cpuprofile "$$dir/cpu" -o "$$dir/test" ./internal/daemon && \
	$(GO) run -C packaging/tools ./profile <"$$dir/cpu" >"$$dir/small" && cp "$$dir/small" $(PROFILE)

fault: build ## let writes, fsyncs and the daemon fail at every point (ARGS="-all")
	$(GO) run -buildvcs=false ./bench/fault $(ARGS)

fleet-chaos: ## kill the parts of a fleet of FLEET_HOSTS (8) for FLEET_TIME (60s), FLEET_SEEDS (20) times: is a message lost, doubled or late?
	TEST_FLEET_SEEDS=$(FLEET_SEEDS) TEST_FLEET_HOSTS=$(FLEET_HOSTS) TEST_FLEET_TIME=$(FLEET_TIME) TEST_FLEET_QUIET=$(FLEET_QUIET) \
		CGO_ENABLED=0 $(GO) test $(COMPILED) -v -count=1 -vet=off -timeout 2h -run '^TestFleetChaos$$' ./cmd/ocipd

soak: build ## run the daemon under load for SOAK_TIME (1h): is its memory flat?
	$(GO) run -buildvcs=false ./bench/soak -time $(SOAK_TIME) $(ARGS)

reference: ## write the generated pages of docs from their tables
	for page in protocol/methods protocol/errors protocol/channels records export-formats configuration runtimes commands; do \
		CGO_ENABLED=0 $(GO) run -buildvcs=false ./cmd/ocipd protocol $${page##*/} >docs/reference/$$page.md.new && \
		mv docs/reference/$$page.md.new docs/reference/$$page.md || exit 1; done
	mkdir -p docs/reference/runtimes && rm -f docs/reference/runtimes/*.md
	for name in $$(sed -n 's/^| .*(runtimes\/\([a-z-]*\)\.md).*/\1/p' docs/reference/runtimes.md); do \
		CGO_ENABLED=0 $(GO) run -buildvcs=false ./cmd/ocipd protocol runtimes $$name >docs/reference/runtimes/$$name.md || exit 1; done
	for types in python=python/ocipd/protocol.py types=node/protocol.d.ts; do \
		CGO_ENABLED=0 $(GO) run -buildvcs=false ./cmd/ocipd protocol $${types%%=*} >sdk/protocol.new && \
		mv sdk/protocol.new sdk/$${types##*=} || exit 1; done
	UPDATE_SAMPLES=1 CGO_ENABLED=0 $(GO) test -count=1 -vet=off $(COMPILED) -run '^TestAttacksPage$$' ./cmd/ocipd

page: ## bundle the console's page (ARGS="-check": compare it with the bundle that is there)
	cd packaging/tools && $(GO) build -buildvcs=false -o '$(CURDIR)/bin/page' ./page
	cd internal/bridge/console/page && '$(CURDIR)/bin/page' $(ARGS)

pictures: ## make the pictures of the console's guide anew, with the chromium that is installed
	UPDATE_SAMPLES=1 $(GO) test -count=1 -run '^TestScreens$$' ./internal/bridge/console/page

size: ## print how many lines of code the promise rests on
	@$(GO) test -count=1 -run '^TestTrustedBase$$' -v ./test/archtest | sed -n 's/^ *| //p'

cover: ## run every test and print what they cover; profile in cover.out
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -covermode=atomic -coverpkg=./... -coverprofile=cover.out ./...
	@$(GO) tool cover -func=cover.out | tail -n 1

lint: ## check format, and run golangci-lint (.golangci.yml), with go vet in it
	@bad=$$(gofmt -l $(SOURCES)) || exit 1; \
	if [ -n "$$bad" ]; then echo "make lint: not formatted (make fmt):" >&2; echo "$$bad" >&2; exit 1; fi
	CGO_ENABLED=0 GOFLAGS='$(COMPILED)' $(GO) run -trimpath=false -pgo=off $(GOLANGCI) run ./...

vuln: ## look for known vulnerabilities in what the daemon calls
	@GO='$(GO)' packaging/vuln || [ $$? -eq 75 ]

fmt: ## format the source
	gofmt -w $(SOURCES)

dist: ## build the release into dist/ (ARGS="amd64": of the two, that alone)
	GO='$(GO)' packaging/build $(ARGS)

sdk: ## build the Python and Node packages into dist/sdk (PYTHON: one with pip, setuptools and wheel)
	mkdir -p dist/sdk
	$(PYTHON) -m pip wheel --quiet --no-index --no-build-isolation --no-deps -w dist/sdk ./sdk/python
	npm pack --silent --pack-destination dist/sdk ./sdk/node

dist-test: ## build the release twice, compare, and install it in a clean root
	packaging/test $(ARGS)

machine-test: ## boot a new Debian in a container and install there as the README says
	GO='$(GO)' packaging/machine-test

clean: ## remove what was built
	rm -rf bin dist cover.out

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
