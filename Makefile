# firstseen: `make demo` shows it, `make test` proves it.

# What says most of a version of Postgres: plans, locks, the model, failures of all kinds.
BRIEFLY = Plan|Scan|Order$$|Claim|Load|Tables|Opposite|Model|ToldApart|Retention|Days

# Most tests wait for something most of the time. The package that takes longest comes first.
BESIDE = -p 3 -parallel 6

GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help demo test soak race oldest versions lint bench bench-quick mutants build

help: ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: ## a stream with duplicates takes effect once while the consumer is being killed (needs only Go)
	go run ./cmd/firstseen dev $(DEMO)

test: ## all tests; Postgres is brought along, the real Kafka needs Java 17 and Maven and is skipped without
	go test $(BESIDE) -timeout 15m ./consumer ./...

soak: ## torture for half an hour, judged by an oracle that shares no code with firstseen (needs Java 17 and Maven)
	mkdir -p bin
	go build -o bin/firstseen ./cmd/firstseen
	cd testdata/torture && go run . -firstseen ../../bin/firstseen $(SOAK)

race: ## everything that runs concurrently under the race detector
	FIRSTSEEN_TEST_KILLS=10 go test $(BESIDE) -race -timeout 30m ./migrations ./dedup/... ./handlers/... ./consumer/... \
		$$(go list ./cmd/... | grep -v /bench)

oldest: ## the SQL on the oldest Postgres, whole
	FIRSTSEEN_TEST_POSTGRES_VERSION=14 go test $(BESIDE) -timeout 10m ./migrations ./dedup ./dedup/operate ./handlers

versions: ## the SQL on the Postgres versions between the oldest and the newest, briefly
	for version in 15 16 17; do FIRSTSEEN_TEST_POSTGRES_VERSION=$$version go test $(BESIDE) -timeout 10m ./migrations && \
		FIRSTSEEN_TEST_POSTGRES_VERSION=$$version go test $(BESIDE) -timeout 10m ./dedup ./dedup/operate ./handlers -run '$(BRIEFLY)' || exit 1; done

lint: ## gofmt, go vet and golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	$(GOLANGCI) run

bench: ## all figures, against peers and limits, and the chart: about 20 minutes on a quiet machine (needs Java 17 and Maven)
	mkdir -p bin
	go run ./cmd/bench --json bin/bench.json --chart docs/bench.svg

bench-quick: ## the same, small and coarse, in under three minutes
	go run ./cmd/bench --quick

mutants: ## break the code in small ways and see that tests notice: hours; MUTANTS="-sample 30 handlers/retry.go" for a part
	go run ./cmd/mutants $(MUTANTS)

build: ## bin/firstseen
	go build -o bin/firstseen ./cmd/firstseen
