# farlog: each target does its own set-up. Needed beforehand: git, make, Go and a C compiler.
SHELL := /bin/bash
CRASHES ?= 1000000
SEED ?=
# of make soak beside CRASHES: seconds of each fuzzer in C, kills and faults of a kind, time without a control plane
FUZZ_SECONDS ?= 300
KILLS ?= 120
OUTAGE ?= 10m

.PHONY: help build demo test check model bench bench-java soak fuzz testbed testbed-shell generate docs \
	release release-test clean

help:
	@echo "make demo      real orders through a ring into a store, with kills on the way (under 3 minutes)"
	@echo "make test      what a change must pass before anybody sees it (about 10 minutes on 2 cores)"
	@echo "make check     everything that needs no virtual machine: make test at full length, sanitizers, mutants, fuzzers"
	@echo "make testbed   virtual machines with SoftRoCE and persistent memory: make testbed [SCENARIO=name] [SEED=...] (under 25 minutes)"
	@echo "make model     the protocol of members in a model checker, and its mutants (make testbed runs it beside the machines)"
	@echo "make testbed-shell  a shell in such a machine"
	@echo "make build     bin/farlog, farlogd, farlog-archive and farlog-verify"
	@echo "make bench     measure against floors; writes build/bench.json"
	@echo "make bench-java  the Java client and Log4j appender against C, files and neighbours; writes build/bench-java.json"
	@echo "make soak      more crashes of the adversarial memory, and runs of members, routes and merges, an hour of fuzzing; 10 minutes without a control plane under load; 120 kills of each Java appender: make soak CRASHES=10000000 [SEED=...]; a short one: CRASHES=20000 FUZZ_SECONDS=5 FUZZTIME=3s KILLS=12 OUTAGE=20s"
	@echo "make fuzz      fuzz every target for a minute: make fuzz FUZZTIME=10m"
	@echo "make docs      the site of docs/, into build/site"
	@echo "make release   packages, images, archives and jars of this commit, built twice and compared, into build/release/dist"
	@echo "make release-test  install, upgrade and remove these packages in roots of Debian 12 and 13"
	@echo "make generate  what is derived: the protocol's Go code, docs/reference, deploy/grafana, the core's tables"

build:
	@scripts/build.sh

demo: build
	@scripts/demo.sh

test:
	@scripts/test.sh

check:
	@scripts/test.sh --check

model:
	@model/run.sh

bench:
	@scripts/bench.sh

bench-java:
	@scripts/bench-java.sh

soak:
	@scripts/setup.sh build ctest shm
	@CRASHES="$(CRASHES)" MEMBER_RUNS=$$(($(CRASHES) / 10)) ROUTE_RUNS=$$(($(CRASHES) / 100)) BLOCK_CRASHES=$$(($(CRASHES) / 4)) FILE_CRASHES=$$(($(CRASHES) / 8)) $(if $(SEED),SEED="$(SEED)") rdma/test/run.sh crash mutants
	@FUZZ_SECONDS=$(FUZZ_SECONDS) rdma/test/run.sh fuzz
	@scripts/fuzz.sh $(or $(FUZZTIME),130s)
	@go test -count=1 -v -timeout 60m -run TestCrash_NothingSynced ./pkg/store -crash.rounds=$$(($(CRASHES) / 100))
	@go test -count=1 -v -timeout 60m -tags farlog_fault -run TestMerged_FaultsLeaveTheOrder ./pkg/drain -merged.runs=$$(($(CRASHES) / 2000))
	@FARLOG_OUTAGE=$(OUTAGE) go test -count=1 -v -timeout 30m -run TestOutage_DataPathGoesOnWithoutControl ./pkg/internal/e2e
	@FARLOG_MEMBER_FAULTS=$(KILLS) go test -count=1 -v -timeout 30m -run TestMembers_EachTargetAtFaultInTurn ./pkg/internal/e2e
	@scripts/java.sh -pl farlog-client,farlog-log4j2,farlog-logback,farlog-end-to-end -am test -Dtest='KillTest,CrashTest,StoreTest' -Dsurefire.failIfNoSpecifiedTests=false -Dfarlog.kills=$(KILLS)
	@FARLOG_TAKEOVER_ROUNDS=$$(($(KILLS) / 6)) FARLOG_TAKEOVER_BYTES=67108864 go test -count=1 -v -timeout 30m -run TestMembers_StandbyTakesOver ./pkg/internal/e2e

fuzz:
	@scripts/fuzz.sh $(or $(FUZZTIME),60s)

testbed:
	@testbed/$(if $(SCENARIO),run.sh,all.sh) $(if $(SEED),-seed "$(SEED)") $(SCENARIO)

testbed-shell:
	@testbed/run.sh -shell

generate:
	@scripts/setup.sh build proto
	@pkg/api/v1/generate.sh
	@go generate ./pkg/farlog
	@go run ./pkg/internal/gen/dashboards deploy/grafana
	@go run ./pkg/internal/gen/pages .
	@FARLOG_CONFIG= go run ./cmd/farlog reference >build/reference && mv build/reference docs/reference/farlog.md
	@FARLOG_CONFIG= go run ./cmd/farlogd reference >build/reference && mv build/reference docs/reference/farlogd.md
	@go run ./cmd/farlog-archive reference >build/reference && mv build/reference docs/reference/farlog-archive.md
	@go run ./cmd/farlog-verify reference >build/reference && mv build/reference docs/reference/farlog-verify.md

docs:
	@scripts/docs.sh

release:
	@scripts/release.sh

release-test:
	@scripts/release-test.sh

clean:
	@rm -rf build bin
