# The two commands of the README are `make demo` and `make test`.
# `make help` lists the rest.

CARGO ?= cargo
KENDALL = target/release/kendall
# The commit of its repository that was tried.
GHZ = v0.121.0
REXEC = v0.0.0-20260319212129-17fbde8c1ac4
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
PREFIX ?= /usr/local

# Crates whose tests need no server and no network.
SERVERLESS = units queueing stats protocols tier fit store observations report

.PHONY: help demo test lint test-clients quick fuzz kill build static install image dist book deny advisories packages-dist check-dashboards packages-demo packages-test fmt clippy doc bench-coverage bench-models bench-link bench-load bench-proxy bench-queue bench-predict bench-answers bench-build test-hosts gallery

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 20

demo: packages-demo ## installs what is missing, builds, runs a study of a real system
	$(CARGO) build --profile demo --locked --bin kendall
	target/demo/kendall demo

test: packages-test ## installs what the tests need, and runs all of them
	scripts/run-tests $(ARGS)

lint: fmt clippy doc deny ## checks format, lints, documentation and libraries, warnings denied

quick: fmt ## checks format, lints and the tests that need no server
	$(CARGO) clippy $(SERVERLESS:%=-p kendall-%) --all-targets --locked -- --deny warnings
	$(CARGO) test --locked $(SERVERLESS:%=-p kendall-%) --lib

test-clients: ## real build tools against the build cluster, with parts of it killed (minutes)
	@scripts/packages clients
	npm install --prefix target/clients --no-audit --no-fund --silent @moonrepo/cli@2.5.5
	python3 -m venv target/clients/buildstream
	target/clients/buildstream/bin/pip install --quiet buildstream==2.8.1
	[ -x target/clients/go/rexec ] || ! command -v go >/dev/null || GOBIN=$(CURDIR)/target/clients/go \
	  go install github.com/bazelbuild/remote-apis-sdks/go/cmd/rexec@$(REXEC) || echo "rexec could not be had: its test is skipped"
	$(CARGO) test --locked -p kendall --test cluster -- bazel_execution bazel_studies other_clients --include-ignored --test-threads 1

fuzz: ## random bytes for every parser, SECONDS of CPU time each, or TOTAL for all in turn (TARGETS="NAME…"; a C++ compiler)
	scripts/fuzz $(if $(TOTAL),--total $(TOTAL),$(or $(SECONDS),60)) $(TARGETS)

kill: ## a thousand kills, freezes and cuts over proxy, queue, PostgreSQL, build cluster and studies (half an hour)
	$(CARGO) test -p kendall --locked --test queue --test studies --test cluster -- campaign_over --ignored --nocapture --test-threads 1

test-hosts: ## studies over three hosts in namespaces, with each failure of docs/hosts.md (root; minutes)
	@scripts/packages hosts
	$(CARGO) build --release --locked --bin kendall
	scripts/test-hosts $(KENDALL) $(ARGS)

build: ## builds the program
	$(CARGO) build --release --locked --bin kendall

static: build ## builds the static program that studies carry to other hosts instead of this one, whatever C library is there
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked --bin kendall --target-dir target/static \
	  --target $(HOST)
	install -m 755 target/static/$(HOST)/release/kendall $(KENDALL)-static
	sha256sum < $(KENDALL) | cut -c1-64 > $(KENDALL)-static.of

install: build ## installs the program, its manual pages and completions below PREFIX (with the static one if it was made)
	install -D -m 755 $(KENDALL) $(DESTDIR)$(PREFIX)/bin/kendall
	if [ "$$(sha256sum < $(KENDALL) | cut -c1-64)" = "$$(cat $(KENDALL)-static.of 2>/dev/null)" ]; then \
	  install -m 755 $(KENDALL)-static $(DESTDIR)$(PREFIX)/bin/ && install -m 644 $(KENDALL)-static.of $(DESTDIR)$(PREFIX)/bin/; \
	else rm -f $(DESTDIR)$(PREFIX)/bin/kendall-static $(DESTDIR)$(PREFIX)/bin/kendall-static.of; fi
	$(KENDALL) completions man --out $(DESTDIR)$(PREFIX)/share/man/man1
	mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	  $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(KENDALL) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kendall
	$(KENDALL) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kendall
	$(KENDALL) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kendall.fish

image: static ## writes the container image as an OCI layout into target/image, and as the archive target/kendall-image.tar
	scripts/image --program $(KENDALL)-static --out target/image --archive target/kendall-image.tar

dist: packages-dist ## static program, .deb, wheel and image with sums and lists of contents into target/dist (half an hour; ARGS=--check builds twice)
	scripts/dist $(ARGS)

book: ## the documentation as a site with search, into target/book
	@scripts/packages book
	[ -n "$(wildcard target/*/kendall)" ] || $(CARGO) build --profile demo --locked --bin kendall
	scripts/book target/book

check-dashboards: build ## the dashboards against Grafana's schema, and each query on a Prometheus that scrapes the tiers
	@scripts/packages test
	scripts/check-dashboards --program $(KENDALL)

packages-demo: ## installs what the demo needs, or says what to install
	@scripts/packages demo

packages-dist:
	@scripts/packages dist

packages-test: ## installs what the tests need, or says what to install
	@scripts/packages test

fmt: ## checks the format
	$(CARGO) fmt --all --check

clippy: ## checks the lints
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	# With the features of its own crates alone, as `cargo install` builds it.
	$(CARGO) clippy -p kendall --bin kendall --locked -- --deny warnings

deny: ## checks licenses, sources and second versions of libraries (deny.toml)
	@scripts/packages lint
	target/tools/bin/cargo-deny --locked check --hide-inclusion-graph licenses bans sources

advisories: ## compares the libraries with the RustSec database, which it fetches
	@scripts/packages lint
	target/tools/bin/cargo-deny --locked check advisories

doc: ## builds the documentation, warnings denied
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --locked --document-private-items

bench-coverage: ## prints how often 95 % intervals hold the truth (15 minutes of processor time)
	$(CARGO) test --release --locked -p kendall-stats --lib correlated:: -- --include-ignored --nocapture --test-threads 1
	$(CARGO) test --release --locked -p kendall-stats --test all -- coverage:: warm_up:: within_run:: comparisons:: drifting_speed:: adaptive:: load_curve:: --include-ignored --nocapture --test-threads 1
	$(CARGO) test --release --locked -p kendall-fit --lib coverage_of_the_squared -- --include-ignored --nocapture

bench-models: ## prints the speed of the models in CPU seconds beside Octave and LINE, errors of approximations, and the coverage of simulated intervals
	@scripts/packages models || echo "not all peers could be had"
	@mkdir -p target
	$(CARGO) run --release --locked -q -p kendall-queueing --example bench_models -- target/bench-models.jsonl
	scripts/bench-models-peers target/bench-models.jsonl
	$(CARGO) run --release --locked -q -p kendall-queueing --example bench_simulation
	$(CARGO) test --release --locked -q -p kendall-queueing --test all -- coverage:: approximations:: measured:: --include-ignored --nocapture

bench-link: ## prints what a link adds and costs, by delay and connections (2 minutes)
	$(CARGO) bench --locked -p kendall-link --bench link

bench-load: build ## compares what a request of the load costs with other tools, and checks its schedule
	@scripts/packages bench
	[ -x target/clients/go/ghz ] || ! command -v go >/dev/null || GOBIN=$(CURDIR)/target/clients/go \
	  go install github.com/bojand/ghz/cmd/ghz@$(GHZ) || echo "ghz could not be had: no row of it"
	$(CARGO) bench --locked -p kendall-loadgen --bench load
	scripts/bench-load-peers

bench-proxy: build ## prints the proxy's cost beside nutcracker and no proxy (9 minutes; MEMCACHED_PROXY=PATH: a memcached with its own proxy as well)
	@scripts/packages bench
	@echo "all on one core: the work itself"
	scripts/bench-proxy --layout together --seconds 1
	@echo "placed by the scheduler: with the price of waking cores"
	scripts/bench-proxy --layout free --seconds 1 --quick
	@echo "beside clients that ask for much and read nothing"
	scripts/bench-proxy --stalled-readers 50 200 1000 --seconds 8 --rounds 1
	@$(if $(MEMCACHED_PROXY),echo "beside memcached's own proxy")
	$(if $(MEMCACHED_PROXY),scripts/bench-proxy --layout together --seconds 1 --quick --memcached-proxy $(MEMCACHED_PROXY))

bench-predict: $(if $(SIMULATED),,build) ## predicts ten systems and holds the predictions against runs (35 minutes; resumable); SIMULATED=1: systems of which the truth is known (10 minutes, SEEDS=3)
ifdef SIMULATED
	SEEDS=$(or $(SEEDS),3) $(CARGO) test --locked -q -p kendall-fit --test ladder -- answers_a what_an_inferred --nocapture --test-threads 1
else
	@scripts/packages bench
	scripts/bench-predict
endif

bench-answers: build ## asks what limits fifteen services of which that is known, alone and beside half a core of other work (25 minutes; resumable)
	@scripts/packages bench
	scripts/bench-answers

bench-queue: ## compares the message queue with the yardstick on the same PostgreSQL
	@scripts/packages bench
	$(CARGO) bench --locked -p kendall --bench queue

gallery: build ## runs the published studies for MINUTES (60) or HOURS, larger each time until they are as published
	@scripts/packages test
	scripts/gallery $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),60)) --into docs/studies.md docs/studies/*.md $(ARGS)

bench-build: build ## prints the cost of the build cluster beside its peers (BAZEL_REMOTE=PATH BB_STORAGE=PATH; 15 minutes)
	scripts/bench-build $(if $(BAZEL_REMOTE),--bazel-remote $(BAZEL_REMOTE)) $(if $(BB_STORAGE),--bb-storage $(BB_STORAGE))
