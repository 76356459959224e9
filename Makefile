# Targets are the same for people and for CI; `check` is exactly what CI runs.
GO       ?= go
LDFLAGS  := -s -w
GOBUILD  := $(GO) build -trimpath -ldflags "$(LDFLAGS)"
GUESTDIR := internal/sandbox/local/guestbin
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint
# Of the modernizers, the one that builds three strings with a Builder makes code longer.
FIXES    := -stringsbuilder=false
# Integration tests need things that a bare machine may lack. Where REQUIRE=1 is set, a missing one is a failure, not a skip.
PEER_SH  ?= ../shared/tools/peer.sh
export CGO_ENABLED := 0

.PHONY: build guest test race int lint fix bench bench-peer bench-gateway bench-engine fuzz soak check docs clean

## build: the binary with both guests inside, bin/agent-env
build: guest
	$(GOBUILD) -tags guest_embed -o bin/agent-env ./cmd/agent-env

## guest: PID 1 of sandboxes for both architectures, where the embedding expects it
guest:
	@mkdir -p $(GUESTDIR)
	GOOS=linux GOARCH=amd64 $(GOBUILD) -o $(GUESTDIR)/agent-env-guest-linux-amd64 ./cmd/agent-env-guest
	GOOS=linux GOARCH=arm64 $(GOBUILD) -o $(GUESTDIR)/agent-env-guest-linux-arm64 ./cmd/agent-env-guest

## test: everything that needs no network, no Docker and no peer
test:
	$(GO) test ./...

## race: the same under the race detector (needs a C compiler)
race:
	CGO_ENABLED=1 $(GO) test -race ./...

## int: the integration tier, the peer included: the packages that have tests of that tag
int: build
	PEER_SH=$(abspath $(PEER_SH)) $(GO) test -count=1 -tags integration $$(grep -rl --include='*_test.go' '^//go:build .*integration' . | xargs -n 1 dirname | sort -u)

## lint: linters, formatters and modernizers, nothing changed
lint:
	$(GO) vet -tags integration,soak ./...
	$(LINT) run --allow-parallel-runners
	@out=$$($(GO) fix $(FIXES) -diff ./... 2>&1); if [ -n "$$out" ]; then echo "$$out"; echo "run: make fix"; exit 1; fi

## fix: format and modernize
fix:
	$(GO) fix $(FIXES) ./...
	$(LINT) fmt

## docs: rewrite what is generated from the program
docs:
	$(GO) test ./internal/cli -run TestDocs -update

## bench: Go benchmarks
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

## bench-peer: the built binary beside the peer, in one run
bench-peer: build
	PEER_SH=$(abspath $(PEER_SH)) $(GO) run ./bench/peer -binary bin/agent-env
	PEER_SH=$(abspath $(PEER_SH)) $(GO) run ./bench/gateway -binary bin/agent-env

## bench-gateway: the gateway alone beside the peer's, a Go and then a Python environment behind both
bench-gateway: build
	PEER_SH=$(abspath $(PEER_SH)) $(GO) run ./bench/gateway -binary bin/agent-env
	PEER_SH=$(abspath $(PEER_SH)) $(GO) run ./bench/gateway -binary bin/agent-env -python

## bench-engine: sandboxes beside docker run, in one run
bench-engine: guest
	$(GO) run -trimpath -ldflags "$(LDFLAGS)" -tags guest_embed ./bench/engine

## fuzz: every fuzz target for FUZZTIME
FUZZTIME ?= 20s
fuzz:
	@set -e; grep -rE '^func Fuzz[A-Za-z0-9_]+\(' --include='*_test.go' . | sed -E 's/^(.*)\/[^/]*:func (Fuzz[A-Za-z0-9_]+)\(.*/\1 \2/' | sort | \
	while read -r dir name; do echo "== $$dir $$name"; $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$dir; done

## soak: long random kills, and 10,000 random graphs against the model; not part of check
soak: build
	AGENTENV_SOAK=1 $(GO) test -count=1 -timeout 2h -tags soak ./...

## check: what CI runs
check: lint test int

clean:
	rm -rf bin $(GUESTDIR)/agent-env-guest-*
