GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# SQLite's driver is C translated to Go; without the checks of pointer arithmetic its tests are three times as fast.
RACE := -race -shuffle=on -timeout 20m -gcflags='modernc.org/...=-d=checkptr=0'
# These are slow under the race detector, which then runs a part of them: all of it runs here without.
PROOFS := ./internal/model ./internal/sequences ./internal/faultpoints

.PHONY: test
test: ## all tests, as CI runs them; under CI a skipped test is a failure
ifeq ($(CI),true)
	@status=0; \
	go test $(RACE) -v ./... > test.out 2>&1 || status=1; \
	go test -v -timeout 20m $(PROOFS) >> test.out 2>&1 || status=1; \
	grep -vE '^\s*(=== |--- PASS|PASS$$)' test.out; \
	if grep -qE '^\s*--- SKIP' test.out; then echo 'tests were skipped:'; grep -E '^\s*--- SKIP' test.out; status=1; fi; \
	sqlite=$$(grep -cE '^\s*--- PASS: .*/sqlite \(' test.out); postgres=$$(grep -cE '^\s*--- PASS: .*/postgres \(' test.out); \
	echo "tests that ran on SQLite: $$sqlite, on PostgreSQL: $$postgres"; \
	if [ "$$sqlite" != "$$postgres" ]; then echo 'these must be equal'; status=1; fi; \
	exit $$status
else
	go test $(RACE) ./...
	go test -timeout 20m $(PROOFS)
endif

.PHONY: postgres
postgres: ## start a PostgreSQL for the tests, in .postgres, and say how to use it
	@.ci/postgres start $(CURDIR)/.postgres/data 5499
	@echo 'export LOAM_TEST_POSTGRES=postgres://loam@127.0.0.1:5499/postgres'
	@echo '# .ci/postgres stop $(CURDIR)/.postgres/data stops it'

.PHONY: lint
lint: $(GOLANGCI) ## vet, formatting and the chosen linters
	go vet ./...
	$(GOLANGCI) run ./...
	go mod tidy -diff

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: fmt
fmt: $(GOLANGCI) ## format
	$(GOLANGCI) fmt ./...

.PHONY: fuzz
fuzz: ## a minute of fuzzing for each fuzz test
	go test -run '^$$' -fuzz '^FuzzParsePayload$$' -fuzztime 60s ./events
	go test -run '^$$' -fuzz '^FuzzCheckName$$' -fuzztime 60s ./events
	go test -run '^$$' -fuzz '^FuzzCheckPattern$$' -fuzztime 60s ./events
	go test -run '^$$' -fuzz '^FuzzStored$$' -fuzztime 60s ./events
	go test -run '^$$' -fuzz '^FuzzHistory$$' -fuzztime 60s ./durable
	go test -run '^$$' -fuzz '^FuzzTime$$' -fuzztime 60s ./database
	go test -run '^$$' -fuzz '^FuzzEscape$$' -fuzztime 60s ./outbox/natsjs
	go test -run '^$$' -fuzz '^FuzzPages$$' -fuzztime 60s ./admin
	go test -run '^$$' -fuzz '^FuzzPlace$$' -fuzztime 60s ./admin

.PHONY: cover
cover: ## how much of each package its own tests and those of the root reach
	go test -coverprofile=coverage.out -coverpkg=./durable,./ledger,./sweep,./jobs,./database/...,./migrations,. ./durable ./ledger ./sweep ./jobs ./database/... ./migrations .
	go tool cover -func=coverage.out | grep -v '100.0%'

.PHONY: mutants
mutants: ## put faults into the code, one at a time: the tests must catch each (needs LOAM_TEST_POSTGRES)
	go run ./internal/mutants

.PHONY: torture
torture: ## attack the guarantees for half an hour with real processes; ends with the verdict
	go run ./cmd/loam-torture -for 30m -database sqlite

.PHONY: torture-postgres
torture-postgres: ## the same on PostgreSQL, through a proxy that cuts connections (set LOAM_DATABASE_URL)
	go run ./cmd/loam-torture -for 30m -database postgres

.PHONY: bench
bench: ## first view of each page with 200,000 delivered and 20,000 dead rows
	go test -run '^$$' -bench FirstView ./admin

.PHONY: capacity
capacity: ## the pages with 2,000,000 delivered and 50,000 dead rows (minutes)
	LOAM_CAPACITY=1 go test -run TestCapacity -v -timeout 30m ./admin

.PHONY: e2e
e2e: ## the pages in a real Chromium
	go test -run TestChromium -v ./admin

.PHONY: nightly
nightly: ## what takes too long for CI
	LOAM_NIGHTLY=1 go test $(RACE) -timeout 90m ./...
	LOAM_NIGHTLY=1 go test -timeout 120m $(PROOFS)

.PHONY: verify
verify: lint test ## what CI checks
	go mod verify
