# firstseen: `make demo` shows it, `make test` proves it.

# What says most of a version of Postgres: plans, locks, the model, failures of all kinds.
BRIEFLY = Plan|Scan|Order$$|Claim|Load|Tables|Opposite|Model|ToldApart|Retention|Days

# The same of requests and messages by HTTP.
ONCE = IsAStore|SameRequest|SixtyFour|InTheSession|Expired|Sweep|OneTransaction|KafkaTakes|Retention|Queued

# Most tests wait for something most of the time. The package that takes longest comes first.
BESIDE = -p 3 -parallel 6

GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

ACTIONLINT = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

GORELEASER = go run github.com/goreleaser/goreleaser/v2@v2.15.1

HELM = go run helm.sh/helm/v3/cmd/helm@v3.22.0
KUBERNETES_VALIDATE = 1.37.0

# The package of Python's that brings axe-core along (MPL 2.0).
AXE = 0.1.8

SCHEMATHESIS = 4.32.5

# What checks TLS in the image.
CERTIFICATES = $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem))

# buildah, podman or docker: whichever is there.
BUILDER = $(firstword $(shell for tool in buildah podman docker; do command -v $$tool; done))

.DEFAULT_GOAL := help
.PHONY: help demo test manifests openapi crashtest soak race oldest versions lint generate bench bench-quick mutants build extras dist image release deploy-check

help: ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: build ## a stream with duplicates takes effect once while the consumer is being killed (needs only Go)
	bin/firstseen dev $(DEMO)

test: ## all tests; Postgres is brought along, the real Kafka needs Java 17 and Maven and is skipped without
	go test $(BESIDE) -timeout 30m ./consumer ./...

openapi: bin/ci/schemathesis-$(SCHEMATHESIS)/bin/st ## the servers are asked whatever their OpenAPI documents let them be (needs Java 17, Maven and Python 3.10)
	FIRSTSEEN_TEST_SCHEMATHESIS=$(CURDIR)/$< go test ./cmd/firstseen -run TestServersAnswerAsTheirOpenAPIDocumentsSay -count=1 -timeout 10m -v

bin/ci/schemathesis-$(SCHEMATHESIS)/bin/st:
	python3 -m venv bin/ci/schemathesis-$(SCHEMATHESIS)
	bin/ci/schemathesis-$(SCHEMATHESIS)/bin/pip install --quiet --disable-pip-version-check schemathesis==$(SCHEMATHESIS)

crashtest: ## firstseen crashtest on all samples, broken and right
	FIRSTSEEN_TEST_CRASHTEST=1 go test ./cmd/firstseen -run TestCrashTest -count=1 -timeout 30m -v

page: bin/ci/axe-$(AXE)/axe.min.js ## the operator's page and the demo's in a real browser, with axe-core looking on (needs Chromium and Python 3.10)
	FIRSTSEEN_TEST_AXE=$(CURDIR)/$< go test ./consumer/page ./cmd/internal/devstack -run InARealBrowser -count=1 -timeout 10m -v

bin/ci/axe-$(AXE)/axe.min.js:
	python3 -m venv bin/ci/axe-$(AXE)
	bin/ci/axe-$(AXE)/bin/pip install --quiet --disable-pip-version-check --no-deps axe-playwright-python==$(AXE)
	cp bin/ci/axe-$(AXE)/lib/python3.*/site-packages/axe_playwright_python/axe.min.js $@

soak: ## torture for half an hour, judged by an oracle that shares no code with firstseen (needs Java 17 and Maven)
	mkdir -p bin
	go build -o bin/firstseen ./cmd/firstseen
	cd testdata/torture && go run . -firstseen ../../bin/firstseen $(SOAK)

# The program's own tests run it as it is built, without the detector. What takes longest comes first.
race: ## everything that runs concurrently under the race detector
	FIRSTSEEN_TEST_KILLS=10 go test $(BESIDE) -race -timeout 30m ./consumer ./handlers/... ./consumer/... ./migrations/... ./dedup/... \
		$$(go list ./cmd/... | grep -v -e /bench -e /cmd/firstseen$$)

oldest: ## the SQL on the oldest Postgres, whole but for what comes by HTTP
	FIRSTSEEN_TEST_POSTGRES_VERSION=14 go test $(BESIDE) -timeout 10m ./migrations ./dedup ./dedup/online ./dedup/operate ./handlers
	FIRSTSEEN_TEST_POSTGRES_VERSION=14 go test $(BESIDE) -timeout 10m ./dedup/idempotency ./handlers/ingress -run '$(ONCE)'

versions: ## the SQL on the Postgres versions between the oldest and the newest, briefly
	for version in 15 16 17; do FIRSTSEEN_TEST_POSTGRES_VERSION=$$version go test $(BESIDE) -timeout 10m ./migrations && \
		FIRSTSEEN_TEST_POSTGRES_VERSION=$$version go test $(BESIDE) -timeout 10m ./dedup ./dedup/operate ./handlers -run '$(BRIEFLY)' || exit 1; done

lint: ## gofmt, go vet, golangci-lint, and actionlint for the workflows
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	$(GOLANGCI) run
	$(ACTIONLINT)

deploy-check: manifests ## also goreleaser looks at what a release is made of
	$(GORELEASER) check

manifests: bin/ci/kubernetes-validate-$(KUBERNETES_VALIDATE)/bin/kubernetes-validate ## Helm's chart and kubernetes.yaml are held against Kubernetes' schemas (needs Python 3.10)
	for values in docs/deploy/helm/ci/*.yaml; do \
		$(HELM) lint docs/deploy/helm --strict --values $$values || exit 1; \
		for version in 1.27 1.31 1.37; do \
			$(HELM) template billing docs/deploy/helm --kube-version $$version.0 --values $$values >bin/ci/helm.yaml && \
			$< -k $$version --strict bin/ci/helm.yaml docs/deploy/kubernetes.yaml || exit 1; done; done

bin/ci/kubernetes-validate-$(KUBERNETES_VALIDATE)/bin/kubernetes-validate:
	python3 -m venv bin/ci/kubernetes-validate-$(KUBERNETES_VALIDATE)
	bin/ci/kubernetes-validate-$(KUBERNETES_VALIDATE)/bin/pip install --quiet --disable-pip-version-check kubernetes-validate==$(KUBERNETES_VALIDATE)

generate: ## what is made of the code: the config's example and schema, the ingress' OpenAPI document, the bench's chart
	go generate ./...

bench: ## all figures, against peers and limits: about 25 minutes on a quiet machine (needs Java 17 and Maven)
	mkdir -p bin
	go run ./cmd/bench --json bin/bench.json --chart bin/bench.svg

bench-quick: ## the same, small and coarse, in under three minutes
	go run ./cmd/bench --quick

mutants: ## break the code in small ways and see that tests notice: hours; MUTANTS="-sample 30 handlers/retry.go" for a part
	go run ./cmd/mutants $(MUTANTS)

build: ## bin/firstseen
	go build -o bin/firstseen ./cmd/firstseen

extras: build ## what a release has beside the binary: completions, the manual page, the unit, an example, certificates
	rm -rf bin/extras
	mkdir -p bin/extras/completions
	for shell in bash zsh fish powershell; do \
		bin/firstseen completion $$shell >bin/extras/completions/firstseen.$$shell || exit 1; done
	bin/firstseen man | gzip -n9 >bin/extras/firstseen.1.gz
	gzip -n9 <CHANGELOG.md >bin/extras/changelog.gz
	bin/firstseen config example >bin/extras/firstseen.yaml
	sed 's,/usr/local/bin/,/usr/bin/,' docs/deploy/firstseen.service >bin/extras/firstseen.service
	cp $(CERTIFICATES) bin/extras/ca-certificates.crt

dist: ## a release in bin/dist, of this revision and for all systems, without publishing anything
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean --skip=docker

image: dist ## the image of a release for this machine, by docker, podman or buildah
	rm -rf bin/image
	mkdir -p bin/image/bin/extras bin/image/linux/$$(go env GOARCH)
	cp bin/extras/ca-certificates.crt bin/image/bin/extras
	cp bin/dist/firstseen_linux_$$(go env GOARCH)*/firstseen bin/image/linux/$$(go env GOARCH)
	$(BUILDER) build --build-arg TARGETPLATFORM=linux/$$(go env GOARCH) -f docs/deploy/release.Dockerfile -t firstseen bin/image

release: ## publish the tag that is checked out: .github/workflows/release.yml does
	$(GORELEASER) release --clean
