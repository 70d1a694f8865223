GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.PHONY: test
test: ## all tests, as CI runs them; under CI a skipped test is a failure
ifeq ($(CI),true)
	@go test -race -shuffle=on -v ./... > test.out 2>&1; status=$$?; \
	grep -vE '^\s*(=== |--- PASS|PASS$$)' test.out; \
	if grep -qE '^\s*--- SKIP' test.out; then echo 'tests were skipped:'; grep -E '^\s*--- SKIP' test.out; exit 1; fi; \
	exit $$status
else
	go test -race -shuffle=on ./...
endif

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
	go test -run '^$$' -fuzz '^FuzzPages$$' -fuzztime 60s ./admin
	go test -run '^$$' -fuzz '^FuzzPlace$$' -fuzztime 60s ./admin

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
	LOAM_NIGHTLY=1 go test -race -shuffle=on -timeout 60m ./...

.PHONY: verify
verify: lint test ## what CI checks
	go mod verify
